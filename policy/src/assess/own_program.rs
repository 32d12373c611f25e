//! Recognises commands by which an agent would decide for itself, or stop what judges it.

use pvp_protocol::{Category, Risk};

use super::{Actor, Assessor, possible_names};
use crate::secret_files::glob_matches;
use crate::syntax::SimpleCommand;
use crate::verdict::CommandVerdict;
use crate::word::{ShellWord, WordPart};

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
    "open",
    "invite",
    "tokens",
    "notify",
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

/// Programs that give a file another name.
const COPIERS: &[&str] = &[
    "cp", "gcp", "ln", "link", "install", "mv", "rsync", "scp", "ditto", "rename", "symlink",
];

/// Programs whose output may be another file with the same content.
const PRINTERS: &[&str] = &[
    "cat", "dd", "head", "tail", "tee", "base64", "gzip", "zstd", "xz", "tar",
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
        if copies_own_program(&name, arguments) {
            return Some(self_approval(
                "makes another name for `pvp`, by which an agent could run it unseen",
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

/// Whether a command gives our program another name: a copy, a link, or an alias.
fn copies_own_program(name: &str, arguments: &[ShellWord]) -> bool {
    let is_operand = |word: &&ShellWord| !word.text().starts_with('-');
    let mut operands: Vec<&ShellWord> = arguments.iter().filter(is_operand).collect();
    let is_program = |word: &ShellWord| names_own_program(&word.text()) || prints_own_program(word);
    match name {
        _ if COPIERS.contains(&name) => {
            let has_target = |word: &ShellWord| {
                let text = word.text();
                text.starts_with("--target") || !text.starts_with("--") && text.contains('t')
            };
            let flags = arguments.iter().filter(|word| !is_operand(word));
            // The last one is where the others go, unless a flag says that.
            if operands.len() > 1 && !flags.into_iter().any(has_target) {
                operands.pop();
            }
            operands.into_iter().any(is_program)
        }
        "alias" => operands.iter().any(|word| {
            let text = word.text();
            let value = text.split_once('=').map(|(_, value)| value);
            let program = value.and_then(|value| value.split_whitespace().next());
            program.is_some_and(names_own_program)
        }),
        _ if PRINTERS.contains(&name) => operands.iter().any(|word| {
            let text = word.text();
            let path = text.strip_prefix("if=").unwrap_or(&text);
            is_where_programs_are(path) && names_own_program(path) || prints_own_program(word)
        }),
        _ => false,
    }
}

/// Whether the last name of a path is our program's, or a pattern that is written like it.
fn names_own_program(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    let name = name.strip_suffix(".exe").unwrap_or(name);
    let pattern: Vec<char> = name.chars().collect();
    let aimed = name.starts_with("pv") && name.contains(['*', '?', '[']);
    is_own_program(name) || aimed && glob_matches(&pattern, "pvp")
}

/// Whether a word is what a command such as `which pvp` prints.
fn prints_own_program(word: &ShellWord) -> bool {
    word.parts.iter().any(|part| match part {
        WordPart::Computed { source, .. } | WordPart::Opaque(source) => {
            possible_names(source).any(names_own_program)
        }
        WordPart::Text(_) | WordPart::Glob(_) | WordPart::Variable { .. } => false,
    })
}

/// Whether a path is in a directory of programs. A `docs/pvp` is some text.
fn is_where_programs_are(path: &str) -> bool {
    let mut directories = path.split('/').rev().skip(1);
    directories
        .next()
        .is_some_and(|name| ["bin", "sbin", "debug", "release"].contains(&name))
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
