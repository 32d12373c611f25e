//! The slash commands: the table of them, and what each does.

use std::collections::BTreeSet;

use pvp_client::view::{ProposalState, ProposalView};
use pvp_protocol::api::InviteRequest;
use pvp_protocol::payload::{InterruptUrgency, PolicyRevoke, RoleChange, ToolCancel};
use pvp_protocol::{ExtraFields, MessageId, ParticipantId, ParticipantKind, Role};

use super::dialogs::parse_duration_seconds;
use super::{App, AppEffect, NoticeLevel, PendingRequest};
use crate::pages;
use crate::theme::{Palette, Theme};

/// A slash command as `/help` shows it.
pub(crate) struct SlashCommand {
    pub(crate) name: &'static str,
    pub(crate) args: &'static str,
    pub(crate) help: &'static str,
    /// Words that completion offers as its arguments.
    pub(crate) argument_candidates: &'static [&'static str],
}

const fn slash_command(name: &'static str, args: &'static str, help: &'static str) -> SlashCommand {
    let words = &[];
    SlashCommand {
        name,
        args,
        help,
        argument_candidates: words,
    }
}

const fn with_candidates(mut slash: SlashCommand, words: &'static [&'static str]) -> SlashCommand {
    slash.argument_candidates = words;
    slash
}

const ROLE_NAMES: &[&str] = &[
    "driver",
    "navigator",
    "adversary",
    "approver",
    "admin",
    "observer",
];

pub(crate) const SLASH_COMMANDS: &[SlashCommand] = &[
    slash_command("help", "", "this page"),
    slash_command("keys", "", "every key"),
    slash_command(
        "tools",
        "",
        "the agents, where they run commands, and their sandboxes",
    ),
    slash_command("people", "", "the participants and their roles"),
    with_candidates(
        slash_command(
            "role",
            "PERSON ROLE[,ROLE]",
            "change the roles of a participant",
        ),
        ROLE_NAMES,
    ),
    with_candidates(
        slash_command(
            "invite",
            "NAME ROLE [8h]",
            "create a link with its QR code; an observer only reads",
        ),
        ROLE_NAMES,
    ),
    slash_command(
        "allow",
        "WORDS… [in DIR] [for 1h]",
        "allow commands with this prefix without a vote",
    ),
    slash_command(
        "allow-read",
        "/DIR… [for 1h]",
        "allow reads below a directory without a vote",
    ),
    slash_command("rules", "", "the allow rules in force"),
    slash_command("revoke", "NUMBER", "revoke a rule of /rules"),
    slash_command("jobs", "", "running and waiting commands"),
    slash_command(
        "open",
        "[NUMBER]",
        "open a command of /jobs: its card, screen or output; the latest by default",
    ),
    slash_command(
        "cancel",
        "[NUMBER] [why]",
        "cancel a command of /jobs; the latest by default",
    ),
    with_candidates(
        slash_command(
            "interrupt",
            "[pause|stop|emergency] [why]",
            "interrupt the agents",
        ),
        &["pause", "stop", "emergency"],
    ),
    slash_command("context", "", "the shared context"),
    slash_command("history", "[TEXT]", "finished commands"),
    slash_command(
        "output",
        "[NUMBER]",
        "the output of a command of /history; the latest by default",
    ),
    slash_command("audit", "", "the decisions, and how to verify the log"),
    slash_command("to", "AGENT", "choose the agent that prompts go to"),
    slash_command(
        "drop",
        "",
        "discard the results that would go with the next prompt",
    ),
    with_candidates(
        slash_command("theme", "colour|high-contrast|none", "change the colours"),
        &["colour", "high-contrast", "none"],
    ),
    slash_command("quit", "", "quit; the session keeps running"),
    slash_command("exit", "", "the same"),
];

/// The table of slash commands, in Markdown, for the manual.
pub fn manual_table() -> String {
    let mut page = "| command | does |\n|---|---|\n".to_owned();
    for command in SLASH_COMMANDS {
        let usage = format!("/{} {}", command.name, command.args);
        let usage = usage.trim_end().replace('|', "\\|");
        page += &format!("| `{usage}` | {} |\n", command.help);
    }
    page
}

impl App {
    /// Runs a slash command; false if it failed, so that the text stays for correction.
    pub(super) fn run_slash_command(&mut self, line: &str) -> bool {
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let done = self.dispatch_slash_command(name, rest.trim());
        match done {
            Ok(()) => true,
            Err(problem) => {
                self.show_notice(NoticeLevel::Error, problem);
                false
            }
        }
    }

    fn dispatch_slash_command(&mut self, name: &str, rest: &str) -> Result<(), String> {
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
            "role" => return self.slash_role(rest),
            "invite" => return self.slash_invite(rest),
            "allow" => return self.send_allow_rule(rest),
            "allow-read" => return self.send_read_roots(rest),
            "revoke" => return self.slash_revoke(rest),
            "open" => return self.slash_open(rest),
            "cancel" => return self.slash_cancel(rest),
            "interrupt" => return self.slash_interrupt(rest),
            "output" => return self.slash_output(rest),
            "to" => {
                self.prompt_target = Some(self.find_agent(rest)?);
                self.show_notice(NoticeLevel::Success, format!("prompts go to {rest}"));
            }
            "drop" => self.slash_drop(),
            "theme" => {
                let palette = Palette::from_name(rest);
                let palette = palette.ok_or("choose a theme: colour, high-contrast or none")?;
                self.theme = Theme::new(palette);
            }
            "quit" | "exit" => self.request_quit(),
            _ => {
                return Err(format!(
                    "there is no command /{name}; /help lists the commands"
                ));
            }
        }
        Ok(())
    }

    /// Commands that run or wait, in the order in which `/jobs` numbers them.
    pub(crate) fn active_proposals(&self) -> Vec<&ProposalView> {
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

    fn slash_drop(&mut self) {
        let ids: Vec<_> = self
            .shell_results
            .iter()
            .map(|result| result.id.clone())
            .collect();
        ids.iter().for_each(|id| self.shell_results.remove(id));
        self.show_notice(NoticeLevel::Info, "results discarded");
    }

    fn find_participant(&self, name: &str) -> Result<ParticipantId, String> {
        let mut participants = self.view.present();
        let found = participants.find(|person| {
            person.id.as_str() == name || super::composer::mention_name(&person.name) == name
        });
        let found = found.map(|person| person.id.clone());
        found.ok_or_else(|| format!("there is no participant `{name}`; /people lists them"))
    }

    fn slash_role(&mut self, rest: &str) -> Result<(), String> {
        let (name, roles) = rest
            .split_once(char::is_whitespace)
            .ok_or("name a participant and a role")?;
        let participant = self.find_participant(name)?;
        let new_roles: Vec<Role> = parse_roles(roles)?.into_iter().collect();
        let participant_view = self.view.people.get(&participant);
        let old_roles = participant_view
            .map(|person| person.roles.clone())
            .unwrap_or_default();
        let me = self
            .view
            .me
            .as_ref()
            .ok_or("not connected to the session yet")?;
        let message = RoleChange {
            participant,
            old_roles,
            new_roles,
            changed_by: me.participant.clone(),
            reason: None,
            capabilities: None,
            votes_void: None,
            extra: ExtraFields::new(),
        };
        self.send(
            PendingRequest::WithNotice {
                success_notice: "changed",
            },
            message,
        );
        Ok(())
    }

    fn slash_invite(&mut self, rest: &str) -> Result<(), String> {
        let words: Vec<_> = rest.split_whitespace().collect();
        let (name, roles, time) = match words.as_slice() {
            [name, roles] => (name, roles, None),
            [name, roles, time] => (name, roles, Some(time)),
            _ => {
                return Err(
                    "give a name, a role and optionally a duration: /invite ann approver 8h"
                        .to_owned(),
                );
            }
        };
        let expires = match time {
            None => 86_400,
            Some(time) => parse_duration_seconds(time)
                .ok_or_else(|| format!("`{time}` is not a duration; use 30m, 8h or 2d"))?,
        };
        let invite = InviteRequest {
            name: (*name).to_owned(),
            roles: parse_roles(roles)?,
            kind: ParticipantKind::Human,
            capabilities: BTreeSet::new(),
            session: self.view.session.clone(),
            expires_seconds: Some(expires),
            participant: None,
        };
        self.effects
            .push(AppEffect::CreateInvitation(Box::new(invite)));
        Ok(())
    }

    fn slash_revoke(&mut self, rest: &str) -> Result<(), String> {
        let rules: Vec<_> = self
            .view
            .active_rules(self.now)
            .map(|it| it.rule.clone())
            .collect();
        let rule =
            pick_by_number(rest, &rules)?.ok_or("give the number of a rule; /rules lists them")?;
        let message = PolicyRevoke {
            rule,
            reason: None,
            extra: ExtraFields::new(),
        };
        self.send(
            PendingRequest::WithNotice {
                success_notice: "rule revoked",
            },
            message,
        );
        Ok(())
    }

    fn slash_open(&mut self, rest: &str) -> Result<(), String> {
        let jobs: Vec<_> = self
            .active_proposals()
            .iter()
            .map(|job| job.id.clone())
            .collect();
        let chosen = pick_by_number(rest, &jobs)?.or(jobs.last().cloned());
        let id = chosen.ok_or("no command is running or waiting")?;
        self.open_command(&id);
        Ok(())
    }

    fn slash_cancel(&mut self, rest: &str) -> Result<(), String> {
        let (number, reason) = match rest.split_once(char::is_whitespace) {
            Some((number, reason)) if number.parse::<usize>().is_ok() => (number, reason.trim()),
            _ if rest.parse::<usize>().is_ok() => (rest, ""),
            _ => ("", rest),
        };
        let jobs: Vec<_> = self
            .active_proposals()
            .iter()
            .map(|job| job.id.clone())
            .collect();
        let chosen = pick_by_number(number, &jobs)?.or(jobs.last().cloned());
        let tool_proposal = chosen.ok_or("no command is running or waiting")?;
        let reason = (!reason.is_empty()).then(|| reason.to_owned());
        let message = ToolCancel {
            tool_proposal,
            reason,
            extra: ExtraFields::new(),
        };
        self.send(
            PendingRequest::WithNotice {
                success_notice: "cancel requested",
            },
            message,
        );
        Ok(())
    }

    fn slash_interrupt(&mut self, rest: &str) -> Result<(), String> {
        if rest.is_empty() {
            self.open_interrupt_dialog();
            return Ok(());
        }
        let (first, message) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let (urgency, message) = match first {
            "pause" => (InterruptUrgency::Pause, message),
            "stop" => (InterruptUrgency::Stop, message),
            "emergency" => (InterruptUrgency::Emergency, message),
            _ => (InterruptUrgency::Pause, rest),
        };
        self.send_interrupt(None, urgency, message.trim());
        Ok(())
    }

    fn slash_output(&mut self, rest: &str) -> Result<(), String> {
        let finished: Vec<_> = self
            .view
            .history
            .iter()
            .rev()
            .map(|it| it.proposal.clone())
            .collect();
        let chosen = pick_by_number(rest, &finished)?.or(finished.first().cloned());
        let id = chosen.ok_or("no command has finished yet")?;
        self.open_output(&id);
        Ok(())
    }
}

/// The id with this number, counted from one; `None` if the text is empty.
fn pick_by_number(text: &str, all: &[MessageId]) -> Result<Option<MessageId>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let number: usize = text
        .parse()
        .map_err(|_| format!("`{text}` is not a number"))?;
    let found = number.checked_sub(1).and_then(|index| all.get(index));
    found
        .cloned()
        .map(Some)
        .ok_or_else(|| format!("there is no number {number}"))
}

fn parse_roles(text: &str) -> Result<BTreeSet<Role>, String> {
    let role = |word: &str| {
        let value = serde_json::Value::from(word.trim());
        let role: Result<Role, _> = serde_json::from_value(value);
        role.map_err(|_| {
            format!(
                "`{word}` is not a role; choose from {}",
                ROLE_NAMES.join(", ")
            )
        })
    };
    text.split([',', '+']).map(role).collect()
}
