//! Slash commands: one table, and what each does.

use std::collections::BTreeSet;

use pvp_client::view::{ProposalState, ProposalView};
use pvp_protocol::api::InviteRequest;
use pvp_protocol::payload::{InterruptUrgency, PolicyRevoke, RoleChange, ToolCancel};
use pvp_protocol::{ExtraFields, MessageId, ParticipantId, ParticipantKind, Role};

use super::answering::span;
use super::{App, Effect, Errand, Tone};
use crate::pages;
use crate::theme::{Palette, Theme};

/// A slash command, as help shows it.
pub(crate) struct Slash {
    pub(crate) name: &'static str,
    pub(crate) args: &'static str,
    pub(crate) help: &'static str,
    /// Words that completion offers after it.
    pub(crate) words: &'static [&'static str],
}

const fn row(name: &'static str, args: &'static str, help: &'static str) -> Slash {
    let words = &[];
    Slash {
        name,
        args,
        help,
        words,
    }
}

const fn offering(mut slash: Slash, words: &'static [&'static str]) -> Slash {
    slash.words = words;
    slash
}

const ROLES: &[&str] = &[
    "driver",
    "navigator",
    "adversary",
    "approver",
    "admin",
    "observer",
];

/// Every slash command.
pub(crate) const COMMANDS: &[Slash] = &[
    row("help", "", "this page"),
    row("keys", "", "every key"),
    row(
        "tools",
        "",
        "which agents run commands, where, and how they are confined",
    ),
    row("people", "", "who is here, in which role"),
    offering(
        row("role", "PERSON ROLE[,ROLE]", "give someone other roles"),
        ROLES,
    ),
    offering(
        row(
            "invite",
            "NAME ROLE [8h]",
            "make a link for someone, for this session",
        ),
        ROLES,
    ),
    row(
        "allow",
        "WORDS… [for 1h]",
        "let commands that begin so run without asking",
    ),
    row("rules", "", "what is allowed so"),
    row("revoke", "NUMBER", "take back a rule of /rules"),
    row("jobs", "", "what runs, and what waits"),
    row(
        "open",
        "[NUMBER]",
        "the card, the screen or the output of a command of /jobs; the latest if not said",
    ),
    row(
        "cancel",
        "[NUMBER] [why]",
        "stop a command of /jobs; the latest if not said",
    ),
    offering(
        row(
            "interrupt",
            "[pause|stop|emergency] [why]",
            "interrupt the agents",
        ),
        &["pause", "stop", "emergency"],
    ),
    row("context", "", "what is shared with the agents"),
    row("history", "[TEXT]", "commands that are over"),
    row(
        "output",
        "[NUMBER]",
        "all that a command of /history printed; the latest if not said",
    ),
    row("audit", "", "who decided what, and how to prove it"),
    row("to", "AGENT", "whom prompts go to"),
    row(
        "drop",
        "",
        "forget the results that wait for the next prompt",
    ),
    offering(
        row("theme", "colour|high-contrast|none", "other colours"),
        &["colour", "high-contrast", "none"],
    ),
    row("quit", "", "leave the screen; the session goes on"),
    row("exit", "", "the same"),
];

/// The table as the manual shows it.
pub fn manual() -> String {
    let mut page = "| command | does |\n|---|---|\n".to_owned();
    for command in COMMANDS {
        let usage = format!("/{} {}", command.name, command.args);
        let usage = usage.trim_end().replace('|', "\\|");
        page += &format!("| `{usage}` | {} |\n", command.help);
    }
    page
}

impl App {
    /// Does a slash command; false if it was not understood, so that it can be corrected.
    pub(super) fn slash(&mut self, line: &str) -> bool {
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let done = self.slash_named(name, rest.trim());
        match done {
            Ok(()) => true,
            Err(problem) => {
                self.tell(Tone::Bad, problem);
                false
            }
        }
    }

    fn slash_named(&mut self, name: &str, rest: &str) -> Result<(), String> {
        match name {
            "help" => self.open_page(pages::help(self)),
            "keys" => self.open_page(pages::keys(self)),
            "tools" => self.open_page(pages::tools(self)),
            "people" => self.open_page(pages::people(self)),
            "rules" => self.open_page(pages::rules(self)),
            "jobs" => self.open_page(pages::jobs(self)),
            "context" => self.open_page(pages::context(self)),
            "history" => self.open_page(pages::history(self, rest)),
            "audit" => self.open_page(pages::audit(self)),
            "role" => return self.change_role(rest),
            "invite" => return self.invite(rest),
            "allow" => return self.allow(rest),
            "revoke" => return self.revoke(rest),
            "open" => return self.open_said(rest),
            "cancel" => return self.cancel(rest),
            "interrupt" => return self.interrupt_said(rest),
            "output" => return self.output_said(rest),
            "to" => {
                self.target = Some(self.agent_named(rest)?);
                self.tell(Tone::Good, format!("prompts go to {rest}"));
            }
            "drop" => self.drop_results(),
            "theme" => {
                let palette = Palette::named(rest);
                let palette = palette.ok_or("there are colour, high-contrast and none")?;
                self.theme = Theme::new(palette);
            }
            "quit" | "exit" => self.quit(),
            _ => return Err(format!("no command is called /{name}; /help lists them")),
        }
        Ok(())
    }

    /// Commands that run or wait, as `/jobs` numbers them.
    pub(crate) fn jobs(&self) -> Vec<&ProposalView> {
        let open = self.view.commands.iter().filter(|it| match it.state {
            ProposalState::Waiting | ProposalState::Approved | ProposalState::Running => true,
            ProposalState::Judged
            | ProposalState::Over
            | ProposalState::Blocked
            | ProposalState::Rejected
            | ProposalState::TimedOut
            | ProposalState::Cancelled
            | ProposalState::Finished => false,
        });
        open.collect()
    }

    fn drop_results(&mut self) {
        let ids: Vec<_> = self
            .results
            .iter()
            .map(|result| result.id.clone())
            .collect();
        ids.iter().for_each(|id| self.results.remove(id));
        self.tell(Tone::Plain, "no results wait any more");
    }

    fn person_named(&self, name: &str) -> Result<ParticipantId, String> {
        let mut people = self.view.present();
        let found = people.find(|person| {
            person.id.as_str() == name || super::compose::squeezed(&person.name) == name
        });
        let found = found.map(|person| person.id.clone());
        found.ok_or_else(|| format!("nobody called `{name}` is here; /people lists them"))
    }

    fn change_role(&mut self, rest: &str) -> Result<(), String> {
        let (name, roles) = rest
            .split_once(char::is_whitespace)
            .ok_or("say whom and which role")?;
        let participant = self.person_named(name)?;
        let new_roles: Vec<Role> = roles_said(roles)?.into_iter().collect();
        let person = self.view.people.get(&participant);
        let old_roles = person
            .map(|person| person.roles.clone())
            .unwrap_or_default();
        let me = self.view.me.as_ref().ok_or("not in the session yet")?;
        let message = RoleChange {
            participant,
            old_roles,
            new_roles,
            changed_by: me.participant.clone(),
            reason: None,
            capabilities: None,
            extra: ExtraFields::new(),
        };
        self.send(Errand::Plain { done: "changed" }, message);
        Ok(())
    }

    fn invite(&mut self, rest: &str) -> Result<(), String> {
        let words: Vec<_> = rest.split_whitespace().collect();
        let (name, roles, time) = match words.as_slice() {
            [name, roles] => (name, roles, None),
            [name, roles, time] => (name, roles, Some(time)),
            _ => {
                return Err(
                    "say a name, a role and perhaps a time: /invite ann approver 8h".to_owned(),
                );
            }
        };
        let expires = match time {
            None => 86_400,
            Some(time) => {
                span(time).ok_or_else(|| format!("`{time}` is no time; write 30m, 8h or 2d"))?
            }
        };
        let invite = InviteRequest {
            name: (*name).to_owned(),
            roles: roles_said(roles)?,
            kind: ParticipantKind::Human,
            capabilities: BTreeSet::new(),
            session: self.view.session.clone(),
            expires_seconds: Some(expires),
            participant: None,
        };
        self.effects.push(Effect::Invite(Box::new(invite)));
        Ok(())
    }

    fn revoke(&mut self, rest: &str) -> Result<(), String> {
        let rules: Vec<_> = self
            .view
            .active_rules(self.now)
            .map(|it| it.rule.clone())
            .collect();
        let rule = numbered(rest, &rules)?.ok_or("say the number of a rule of /rules")?;
        let message = PolicyRevoke {
            rule,
            reason: None,
            extra: ExtraFields::new(),
        };
        self.send(Errand::Plain { done: "taken back" }, message);
        Ok(())
    }

    fn open_said(&mut self, rest: &str) -> Result<(), String> {
        let jobs: Vec<_> = self.jobs().iter().map(|job| job.id.clone()).collect();
        let chosen = numbered(rest, &jobs)?.or(jobs.last().cloned());
        let id = chosen.ok_or("nothing runs or waits")?;
        self.open_command(&id);
        Ok(())
    }

    fn cancel(&mut self, rest: &str) -> Result<(), String> {
        let (number, reason) = match rest.split_once(char::is_whitespace) {
            Some((number, reason)) if number.parse::<usize>().is_ok() => (number, reason.trim()),
            _ if rest.parse::<usize>().is_ok() => (rest, ""),
            _ => ("", rest),
        };
        let jobs: Vec<_> = self.jobs().iter().map(|job| job.id.clone()).collect();
        let chosen = numbered(number, &jobs)?.or(jobs.last().cloned());
        let tool_proposal = chosen.ok_or("nothing runs or waits")?;
        let reason = (!reason.is_empty()).then(|| reason.to_owned());
        let message = ToolCancel {
            tool_proposal,
            reason,
            extra: ExtraFields::new(),
        };
        self.send(
            Errand::Plain {
                done: "asked to stop",
            },
            message,
        );
        Ok(())
    }

    fn interrupt_said(&mut self, rest: &str) -> Result<(), String> {
        if rest.is_empty() {
            self.ask_interrupt();
            return Ok(());
        }
        let (first, message) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let (urgency, message) = match first {
            "pause" => (InterruptUrgency::Pause, message),
            "stop" => (InterruptUrgency::Stop, message),
            "emergency" => (InterruptUrgency::Emergency, message),
            _ => (InterruptUrgency::Pause, rest),
        };
        self.interrupt(None, urgency, message.trim());
        Ok(())
    }

    fn output_said(&mut self, rest: &str) -> Result<(), String> {
        let past: Vec<_> = self
            .view
            .history
            .iter()
            .rev()
            .map(|it| it.proposal.clone())
            .collect();
        let chosen = numbered(rest, &past)?.or(past.first().cloned());
        let id = chosen.ok_or("no command is over yet")?;
        self.open_output(&id);
        Ok(())
    }
}

/// The one of this number, counted from one; `None` if nothing is said.
fn numbered(text: &str, all: &[MessageId]) -> Result<Option<MessageId>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let number: usize = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    let found = number.checked_sub(1).and_then(|index| all.get(index));
    found
        .cloned()
        .map(Some)
        .ok_or_else(|| format!("there is no number {number}"))
}

fn roles_said(text: &str) -> Result<BTreeSet<Role>, String> {
    let role = |word: &str| {
        let value = serde_json::Value::from(word.trim());
        let role: Result<Role, _> = serde_json::from_value(value);
        role.map_err(|_| format!("`{word}` is no role; there are {}", ROLES.join(", ")))
    };
    text.split([',', '+']).map(role).collect()
}
