//! Describes what happened in a session as text, one line per event, the same on every screen.
//!
//! A [`Narrator`] reads a view that has folded everything up to the item it describes.

mod log;
mod units;

use pvp_protocol::payload::{AllowedBy, Approval, ClearedBy, ResolutionCause, TimeoutResolution};
use pvp_protocol::{MessageId, ParticipantId, ParticipantKind, Timestamp};

pub use units::{
    bound_file, byte_size, countdown, degree_text, duration, fails_open_text, label, outcome_text,
    pluralize, presence_mark, role_list, shorten,
};

use crate::view::{
    CommandVersion, EarlierVersion, GateCard, ProposalState, ProposalView, ResolutionView,
    RunResultView, TimelineEvent, TimelineItem, View,
};

/// The longest command in a line of the log, in characters, so that what was done to it is not
/// cut off behind it.
const MAX_LOG_COMMAND_CHARS: usize = 48;

/// The kind of output that a description is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NarratorStyle {
    /// People at a screen: participants by the names they chose, commands in full.
    Screen,
    /// A log: participants by their ids, which they cannot choose, and commands shortened.
    Log,
}

/// Describes what happened in one line each.
#[derive(Clone, Copy)]
pub struct Narrator<'a> {
    view: &'a View,
    style: NarratorStyle,
    /// Escapes text from others, so that it is safe to print on one line.
    escape: fn(&str) -> String,
}

impl<'a> Narrator<'a> {
    pub fn new(view: &'a View, style: NarratorStyle, escape: fn(&str) -> String) -> Self {
        Self {
            view,
            style,
            escape,
        }
    }

    fn name(&self, id: &ParticipantId) -> String {
        match self.style {
            NarratorStyle::Screen => (self.escape)(self.view.display_name(id)),
            NarratorStyle::Log => (self.escape)(id.as_str()),
        }
    }

    pub fn name_list<'b>(&self, ids: impl Iterator<Item = &'b ParticipantId>) -> String {
        let names: Vec<_> = ids.map(|id| self.name(id)).collect();
        names.join(", ")
    }

    /// How many approvals a card has, and how many it needs.
    pub fn vote_tally(&self, card: &GateCard) -> String {
        let required = pluralize(u64::from(card.required), "approval");
        let mut text = format!("{} of {required}", card.received);
        if !card.votes.is_empty() {
            text += &format!(" (✓ {})", self.name_list(card.votes.keys()));
        }
        for approver in card.votes.keys() {
            let participant = self.view.people.get(approver);
            let Some(inviter) = participant.and_then(|it| it.invited_by.as_ref()) else {
                continue;
            };
            let (name, inviter) = (self.name(approver), self.name(inviter));
            text += &format!(", {name} was invited by {inviter}");
            if card.not_counted.contains_key(approver) {
                text += " and does not count";
            }
        }
        text
    }

    /// Who decided, how and when.
    pub fn resolution_text(&self, resolution: &ResolutionView) -> String {
        let approvers =
            |approvals: &[Approval]| self.name_list(approvals.iter().map(|a| &a.participant));
        let by = resolution.by.as_ref().map(|by| self.name(by));
        let by = by.unwrap_or_else(|| approvers(&resolution.approvals));
        let by = match (by.as_str(), &resolution.rule) {
            ("", _) => String::new(),
            (by, None) => format!(" by {by}"),
            (by, Some(_)) => format!(" by an allow rule of {by}"),
        };
        let how = match resolution.how {
            ResolutionCause::Quorum | ResolutionCause::Rejection | ResolutionCause::Cancel => "",
            ResolutionCause::Deadline => " at the deadline",
            ResolutionCause::Clock => " automatically at the deadline",
            ResolutionCause::ProposerLeft => " because the agent left",
            ResolutionCause::SessionEnded => " because the session ended",
        };
        let outcome = outcome_text(resolution.outcome);
        let reason = resolution.reason.as_deref().map(self.escape);
        let reason = reason.map(|reason| format!(": {reason}"));
        let reason = reason.unwrap_or_default();
        format!("{outcome}{by}{how}{reason}")
    }

    /// How a run ended.
    pub fn run_result_text(&self, finish: &RunResultView) -> String {
        let mut text = match (finish.exit_code, &finish.signal) {
            _ if finish.not_run => "the client did not run it".to_owned(),
            _ if finish.outcome_unknown => "ended with an unknown result".to_owned(),
            (Some(code), _) => format!("exit {code}"),
            (None, Some(signal)) => format!("ended by signal {}", (self.escape)(signal)),
            // Tools other than commands have no exit code.
            (None, None) if finish.success => "done".to_owned(),
            (None, None) if finish.returned_value => "failed".to_owned(),
            (None, None) => "did not run".to_owned(),
        };
        text += &format!(" after {}", duration(finish.duration_ms));
        if let Some(error) = &finish.error {
            text += &format!(": {}", (self.escape)(error));
        }
        if finish.truncated {
            text += " (output truncated)";
        }
        if finish.attested && !finish.outcome_unknown {
            text += " (according to the client)";
        }
        text
    }

    /// The state of a command.
    pub fn state_text(&self, proposal: &ProposalView, now: Timestamp) -> String {
        match (proposal.state, &proposal.finish) {
            (_, Some(ended)) => self.run_result_text(ended),
            (ProposalState::Judged, None) => "assessed".to_owned(),
            (ProposalState::Waiting, None) => "waiting for approval".to_owned(),
            (ProposalState::Approved, None) => "approved".to_owned(),
            (ProposalState::Running, None) => {
                let run = proposal.run.as_ref();
                let doing = match run.and_then(|run| run.cleared_by) {
                    Some(ClearedBy::Tried) => "running in the sandbox as a trial",
                    Some(_) | None => "running",
                };
                match proposal.elapsed_ms(now) {
                    Some(ms) => format!("{doing} for {}", duration(ms)),
                    None => doing.to_owned(),
                }
            }
            (ProposalState::Over, None) => "ended".to_owned(),
            (ProposalState::Blocked, None) => "blocked".to_owned(),
            (ProposalState::Rejected, None) => "rejected".to_owned(),
            (ProposalState::TimedOut, None) => "timed out".to_owned(),
            (ProposalState::Cancelled, None) => "cancelled".to_owned(),
            (ProposalState::Finished, None) => "finished".to_owned(),
        }
    }

    /// Why a run was allowed.
    pub fn clearance_text(&self, proposal: &ProposalView) -> Option<String> {
        let run = proposal.run.as_ref()?;
        let on = self.name(&run.executor);
        Some(match run.cleared_by? {
            ClearedBy::Read => format!("a read, on {on}"),
            ClearedBy::Quorum => format!("approved, on {on}"),
            ClearedBy::Clock => format!("approved automatically at the deadline, on {on}"),
            ClearedBy::AllowRule => {
                let rule = self.rule_text(run.allowed_by.as_ref());
                format!("allowed by {rule}, on {on}")
            }
            ClearedBy::Direct => format!("a person's own command, on {on}"),
            ClearedBy::Tried => format!("a trial in the sandbox on {on}"),
        })
    }

    /// The allow rule that a grant is based on: whose it is, and what it allows.
    pub fn rule_text(&self, allowed_by: Option<&AllowedBy>) -> String {
        let Some(rule) = allowed_by else {
            return "an allow rule".to_owned();
        };
        let prefix = (self.escape)(&rule.prefix.join(" "));
        format!("the rule `{prefix} …` of {}", self.name(&rule.participant))
    }

    /// A command by its short id and as it is, in one line.
    pub fn command_text(&self, id: &MessageId) -> String {
        match self.view.proposal(id) {
            Some(proposal) => self.named_text(id, &proposal.requested.shown),
            None => format!("command {}", id.short()),
        }
    }

    /// A command by its short id and as it was then, in one line.
    pub fn version_text(&self, id: &MessageId, command: &CommandVersion) -> String {
        match (&*command.shown, self.view.proposal(id)) {
            ("", None) => format!("command {}", id.short()),
            ("", Some(_)) => format!("an earlier version of {}", id.short()),
            (shown, _) => self.named_text(id, shown),
        }
    }

    fn named_text(&self, id: &MessageId, shown: &str) -> String {
        format!("{}: {}", id.short(), self.shown_text(shown))
    }

    fn shown_text(&self, shown: &str) -> String {
        let command = (self.escape)(shown);
        match self.style {
            NarratorStyle::Screen => command,
            NarratorStyle::Log => shorten(&command, MAX_LOG_COMMAND_CHARS),
        }
    }

    /// A comment or reason behind a command; empty if there is none.
    fn remark(&self, text: Option<&str>) -> String {
        match text.map(str::trim) {
            None | Some("") => String::new(),
            Some(text) => format!(" ({})", (self.escape)(text)),
        }
    }

    fn edit_text(
        &self,
        proposal: &MessageId,
        before: &CommandVersion,
        command: &CommandVersion,
        void_votes: &[ParticipantId],
        reason: Option<&str>,
    ) -> String {
        let from = match &*before.shown {
            "" => String::new(),
            shown => format!("{} → ", self.shown_text(shown)),
        };
        let to = self.shown_text(&command.shown);
        let remark = self.remark(reason);
        let void = self.void_votes_text(void_votes);
        format!("edits {}: {from}{to}{remark}{void}", proposal.short())
    }

    /// What a command was before an edit, why it was edited, and which approvals that made void.
    pub fn replaced_text(&self, earlier: &EarlierVersion) -> String {
        let was = match &*earlier.command.shown {
            "" => "the earlier version is not known here".to_owned(),
            shown => format!("was: {}", self.shown_text(shown)),
        };
        let remark = self.remark(earlier.reason.as_deref());
        format!("{was}{remark}{}", self.void_votes_text(&earlier.void_votes))
    }

    /// Whose approvals an edit made void; empty if there were none.
    fn void_votes_text(&self, voters: &[ParticipantId]) -> String {
        match voters {
            [] => String::new(),
            [one] => format!("; the approval of {} is void", self.name(one)),
            several => {
                let names = self.name_list(several.iter());
                format!("; the approvals of {names} are void")
            }
        }
    }

    /// What happened, without sender and time, on one line.
    pub fn item_text(&self, item: &TimelineItem) -> String {
        let name = |id: &ParticipantId| self.name(id);
        let because = |reason: &Option<String>| match reason.as_deref() {
            None | Some("") => String::new(),
            Some(reason) => format!(": {}", (self.escape)(reason)),
        };
        match &item.event {
            TimelineEvent::Created { .. } => "created the session".to_owned(),
            TimelineEvent::Joined {
                participant_kind,
                roles: held,
                ..
            } => match participant_kind {
                ParticipantKind::Agent => "joined as an agent".to_owned(),
                ParticipantKind::Human => format!("joined as {}", role_list(held)),
            },
            TimelineEvent::Left { reason } => format!("left{}", because(reason)),
            TimelineEvent::RolesChanged {
                participant,
                new_roles,
                reason,
                ..
            } => {
                let roles = role_list(new_roles);
                format!("made {} {roles}{}", name(participant), because(reason))
            }
            TimelineEvent::Attendance {
                participant,
                status,
            } => {
                format!("{} is {}", name(participant), label(status.as_str()))
            }
            TimelineEvent::Configured { changes, reason } => {
                let changes = (self.escape)(&changes.to_string());
                format!("changed the settings {changes}: {}", (self.escape)(reason))
            }
            TimelineEvent::Ended { reason, .. } => {
                format!("ended the session: {}", (self.escape)(reason))
            }
            TimelineEvent::Prompt { text, to, .. } => {
                format!("asks {}: {}", name(to), (self.escape)(&text.text))
            }
            TimelineEvent::PromptAmended { text, .. } => {
                format!("edits the prompt: {}", (self.escape)(&text.text))
            }
            TimelineEvent::Thinking { text, .. } => {
                format!("thinks: {}", (self.escape)(&text.text))
            }
            TimelineEvent::Response { text, .. } => format!("says: {}", (self.escape)(&text.text)),
            TimelineEvent::Proposed { proposal, command } => {
                format!("proposes {}", self.version_text(proposal, command))
            }
            TimelineEvent::Executed { proposal, command } => {
                format!("runs {}", self.version_text(proposal, command))
            }
            TimelineEvent::Approved {
                proposal,
                command,
                comment,
            } => {
                let command = self.version_text(proposal, command);
                format!("approves {command}{}", self.remark(comment.as_deref()))
            }
            TimelineEvent::Rejected {
                proposal,
                command,
                reason,
                ..
            } => {
                let command = self.version_text(proposal, command);
                format!("rejects {command}{}", self.remark(Some(reason)))
            }
            TimelineEvent::Edited {
                proposal,
                command,
                before,
                void_votes,
                reason,
            } => self.edit_text(proposal, before, command, void_votes, reason.as_deref()),
            TimelineEvent::DeadlinePassed {
                proposal,
                command,
                resolution,
                ..
            } => {
                let what = match resolution {
                    TimeoutResolution::Rejected => "rejected",
                    TimeoutResolution::AutoApproved => "approved automatically",
                    TimeoutResolution::Escalated => "up to the admins",
                };
                let (id, command) = (proposal.short(), self.shown_text(&command.shown));
                format!("the deadline of {id} has passed, so it is {what}: {command}")
            }
            TimelineEvent::Resolved {
                proposal,
                command,
                outcome: how,
                by,
                reason,
                rule,
                ..
            } => {
                let by = match (by, rule) {
                    (Some(by), None) => format!(" by {}", name(by)),
                    (Some(by), Some(_)) => format!(" by an allow rule of {}", name(by)),
                    (None, _) => String::new(),
                };
                let (id, command) = (proposal.short(), self.shown_text(&command.shown));
                let reason = self.remark(reason.as_deref());
                format!("{} {id}{by}: {command}{reason}", outcome_text(*how))
            }
            TimelineEvent::TrialDiscarded {
                proposal,
                command,
                why,
            } => {
                let (id, command) = (proposal.short(), self.shown_text(&command.shown));
                format!("{id}: {} ({command})", (self.escape)(why))
            }
            TimelineEvent::CancelAsked {
                proposal,
                command,
                reason,
            } => {
                let command = self.version_text(proposal, command);
                format!("cancels {command}{}", self.remark(reason.as_deref()))
            }
            TimelineEvent::Interrupted {
                target,
                urgency,
                message,
            } => {
                let whom = target.as_ref().map_or("every agent".to_owned(), name);
                format!(
                    "interrupts {whom} ({}): {}",
                    label(urgency.as_str()),
                    (self.escape)(message)
                )
            }
            TimelineEvent::Acknowledged {
                action_taken,
                reason,
                ..
            } => {
                format!(
                    "answers the interrupt: {}{}",
                    label(action_taken.as_str()),
                    because(reason)
                )
            }
            TimelineEvent::ContextAdded { key, bytes } => {
                format!("shares {} ({})", (self.escape)(key), byte_size(*bytes))
            }
            TimelineEvent::ContextUpdated { key, reason, .. } => {
                format!("updates {}: {}", (self.escape)(key), (self.escape)(reason))
            }
            TimelineEvent::ContextRemoved { key, reason } => {
                format!("removes {}: {}", (self.escape)(key), (self.escape)(reason))
            }
            TimelineEvent::SecretShared { key, scope } => {
                let with = self.name_list(scope.iter());
                format!("shares the secret {} with {with}", (self.escape)(key))
            }
            TimelineEvent::SecretRevoked { key, reason } => {
                format!(
                    "revokes the secret {}: {}",
                    (self.escape)(key),
                    (self.escape)(reason)
                )
            }
            TimelineEvent::Allowed {
                prefix,
                read_root,
                directory,
                expires_at,
                reason,
            } => {
                let life = duration(expires_at.millis_since(item.at));
                let escaped = |text: &Option<String>| text.as_deref().map(self.escape);
                let (read_root, directory) = (escaped(read_root), escaped(directory));
                let prefix = (self.escape)(&prefix.join(" "));
                let rule = allow_rule(&prefix, read_root.as_deref(), directory.as_deref());
                format!("allows {rule} for {life}{}", because(reason))
            }
            TimelineEvent::AllowRevoked { reason, .. } => {
                format!("revokes an allow rule{}", because(reason))
            }
            TimelineEvent::Error { code, message, .. } => {
                format!("{}: {}", label(code.as_str()), (self.escape)(message))
            }
        }
    }
}

/// What an allow rule allows, in words.
pub fn allow_rule(prefix: &str, read_root: Option<&str>, directory: Option<&str>) -> String {
    match read_root {
        Some(root) => format!("reading below {root}"),
        None => format!("`{prefix} …` {}", rule_place(directory)),
    }
}

/// Where an allow rule holds, in words.
pub fn rule_place(directory: Option<&str>) -> String {
    match directory {
        None => "in the agent's directory".to_owned(),
        Some("*") => "anywhere".to_owned(),
        Some(directory) => format!("in {directory}"),
    }
}
