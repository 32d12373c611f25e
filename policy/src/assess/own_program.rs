//! Recognises commands by which an agent would decide for itself, or stop what judges it.

use pvp_protocol::{Category, Risk};

use super::{Actor, Assessor, possible_names};
use crate::syntax::SimpleCommand;
use crate::verdict::CommandVerdict;
use crate::word::ShellWord;

/// Subcommands that change nothing and show nothing of a session.
const HARMLESS: &[&str] = &[
    "check",
    "policy",
    "doctor",
    "help",
    "--help",
    "-h",
    "--version",
    "-V",
    "completions",
    "man",
];

/// Subcommands that show what happens in a session.
const SHOWING: &[&str] = &["history", "output", "show", "gates", "tail", "audit"];

/// Subcommands that must not run below a program of which nothing is known either.
const DECIDING: &[&str] = &[
    "approve",
    "reject",
    "amend",
    "login",
    "logout",
    "join",
    "invite",
    "tokens",
    "rules",
    "session",
    "send",
    "exec",
    "connect",
    "cancel",
    "interrupt",
    "tui",
    "server",
    "up",
    "agent",
    "create",
    "sessions",
    "hook",
    "run",
    "mcp",
    "acp",
];

/// Programs that stop processes by their name.
const KILLERS: &[&str] = &["pkill", "killall", "skill", "snice", "slay"];

/// Programs that find processes, whose numbers another program may be given.
const FINDERS: &[&str] = &[
    "pgrep", "pidof", "ps", "grep", "egrep", "rg", "awk", "fuser", "lsof",
];

/// Programs that stop services.
const SERVICE_TOOLS: &[&str] = &["systemctl", "service", "launchctl", "rc-service", "sv"];

const STOPPING_WORDS: &[&str] = &[
    "stop",
    "kill",
    "restart",
    "try-restart",
    "disable",
    "mask",
    "down",
    "unload",
    "bootout",
    "remove",
    "edit",
    "revert",
];

/// The rule against agents that decide for themselves.
pub(super) const SELF_APPROVAL: &str = "pvp.self-approval";

impl Assessor<'_> {
    /// The verdict on an agent's command that would decide about its own proposals, sign it in, or
    /// stop PVP.
    pub(super) fn guard_own_program(
        &mut self,
        name: &str,
        command: &SimpleCommand,
    ) -> Option<CommandVerdict> {
        match self.actor {
            Actor::Agent => {}
            Actor::Person => return None,
        }
        let name = name.to_ascii_lowercase();
        let arguments = &command.words[1..];
        self.remember_processes(&name, arguments);
        if is_own_program(&name) && !is_open_to_agents(arguments) {
            return Some(self_approval(
                "lets an agent decide or act for itself through `pvp`",
            ));
        }
        let unknown = !self.has_inert_arguments(command);
        if unknown && passes_on_own_program(arguments) {
            return Some(self_approval(
                "passes on a command by which an agent would decide for itself",
            ));
        }
        let names_own = |word: &ShellWord| word.text().to_ascii_lowercase().contains("pvp");
        let stops = KILLERS.contains(&name.as_str())
            || SERVICE_TOOLS.contains(&name.as_str())
                && arguments
                    .iter()
                    .any(|word| STOPPING_WORDS.contains(&word.text().as_str()));
        (stops && arguments.iter().any(names_own)).then(stops_pvp)
    }

    /// The verdict on a line that looks for PVP's processes and kills what it finds.
    pub(super) fn guard_found_processes(&self) -> Option<CommandVerdict> {
        (self.finds_own_processes && self.kills_processes).then(stops_pvp)
    }

    fn remember_processes(&mut self, name: &str, arguments: &[ShellWord]) {
        let texts = || arguments.iter().map(ShellWord::text);
        let kills = |text: &str| text == "kill" || text.ends_with("/kill");
        self.kills_processes |= kills(name) || texts().any(|text| kills(&text));
        let own = |text: String| text.to_ascii_lowercase().contains("pvp");
        self.finds_own_processes |= FINDERS.contains(&name) && texts().any(own);
    }
}

fn is_own_program(name: &str) -> bool {
    name == "pvp"
}

fn is_open_to_agents(arguments: &[ShellWord]) -> bool {
    let text = |at: usize| arguments.get(at).and_then(ShellWord::as_literal);
    let first = text(0).unwrap_or_default();
    let is = |list: &[&str]| list.contains(&first.as_str());
    is(HARMLESS) || is(SHOWING) || (first == "git" && text(1).as_deref() == Some("blame"))
}

/// Whether words beside each other are our program and what an agent must not tell it.
fn passes_on_own_program(arguments: &[ShellWord]) -> bool {
    arguments.windows(2).any(|pair| {
        let program = pair[0].text().to_ascii_lowercase();
        let name = program.rsplit('/').next().unwrap_or_default();
        is_own_program(name) && DECIDING.contains(&pair[1].text().as_str())
    })
}

/// Whether a text that may be code names our program, and next to it what an agent must not tell it.
pub(super) fn mentions_deciding(text: &str) -> bool {
    let names: Vec<&str> = possible_names(text).collect();
    names.windows(2).any(|pair| {
        let name = pair[0].rsplit('/').next().unwrap_or_default();
        is_own_program(&name.to_ascii_lowercase()) && DECIDING.contains(&pair[1])
    })
}

/// What is said where a program may run such a text.
pub(super) fn may_decide() -> CommandVerdict {
    let reason = "names a command by which an agent would decide for itself";
    CommandVerdict::new(Category::Destructive, Risk::High, SELF_APPROVAL, reason)
}

pub(super) fn self_approval(reason: &str) -> CommandVerdict {
    CommandVerdict::new(Category::Blocked, Risk::Critical, SELF_APPROVAL, reason)
}

fn stops_pvp() -> CommandVerdict {
    let reason = "stops PVP, which judges what agents do";
    CommandVerdict::new(Category::Blocked, Risk::Critical, "pvp.stop", reason)
}
