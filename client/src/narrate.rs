//! Describes what happened in a session as text, one line per event, the same on every screen.
//!
//! A [`Narrator`] reads a view that has folded everything up to the item it describes.

use pvp_protocol::payload::{
    Approval, ClearedBy, FinishReason, GateOutcome, OutputStream, PresenceStatus, ResolutionCause,
    ResponseEnd, TimeoutResolution, ToolExecute,
};
use pvp_protocol::{
    Envelope, JsonObject, MessageId, ParticipantId, ParticipantKind, Role, ServerMessage,
    Timestamp, WireMessage,
};

use crate::view::{
    GateCard, ParticipantView, ProposalState, ProposalView, ResolutionView, RunResultView,
    TimelineEvent, TimelineItem, View,
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
        let mut text = format!("{} of {}", card.received, card.required);
        if !card.votes.is_empty() {
            text += &format!(" (✓ {})", self.name_list(card.votes.keys()));
        }
        text
    }

    /// Who decided, how and when.
    pub fn resolution_text(&self, resolution: &ResolutionView) -> String {
        let approvers =
            |approvals: &[Approval]| self.name_list(approvals.iter().map(|a| &a.participant));
        let by = resolution.by.as_ref().map(|by| self.name(by));
        let by = by.unwrap_or_else(|| approvers(&resolution.approvals));
        let by = match by.as_str() {
            "" => String::new(),
            by => format!(" by {by}"),
        };
        let how = match resolution.how {
            ResolutionCause::Quorum | ResolutionCause::Rejection | ResolutionCause::Cancel => "",
            ResolutionCause::Deadline => " at the deadline",
            ResolutionCause::Clock => " by the clock",
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
            _ if finish.outcome_unknown => "ended, nobody saw how".to_owned(),
            (Some(code), _) => format!("exit {code}"),
            (None, Some(signal)) => format!("ended by signal {}", (self.escape)(signal)),
            (None, None) => "did not run".to_owned(),
        };
        text += &format!(" after {}", duration(finish.duration_ms));
        if let Some(error) = &finish.error {
            text += &format!(": {}", (self.escape)(error));
        }
        if finish.truncated {
            text += " (output was cut)";
        }
        text
    }

    /// The state of a command.
    pub fn state_text(&self, proposal: &ProposalView, now: Timestamp) -> String {
        match (proposal.state, &proposal.finish) {
            (_, Some(ended)) => self.run_result_text(ended),
            (ProposalState::Judged, None) => "judged".to_owned(),
            (ProposalState::Waiting, None) => "waits for approval".to_owned(),
            (ProposalState::Approved, None) => "approved".to_owned(),
            (ProposalState::Running, None) => match proposal.elapsed_ms(now) {
                Some(ms) => format!("running for {}", duration(ms)),
                None => "running".to_owned(),
            },
            (ProposalState::Over, None) => "over".to_owned(),
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
            ClearedBy::Read => format!("a read, run at once on {on}"),
            ClearedBy::Quorum => format!("approved, runs on {on}"),
            ClearedBy::Clock => format!("approved by the clock, runs on {on}"),
            ClearedBy::AllowRule => format!("allowed by a rule, runs on {on}"),
            ClearedBy::Direct => format!("one's own command, runs on {on}"),
        })
    }

    /// A command, in one line.
    pub fn command_text(&self, id: &MessageId) -> String {
        let command = match self.view.proposal(id) {
            Some(proposal) => (self.escape)(&proposal.requested.shown),
            None => format!("command {id}"),
        };
        match self.style {
            NarratorStyle::Screen => command,
            NarratorStyle::Log => shorten(&command, MAX_LOG_COMMAND_CHARS),
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
            TimelineEvent::Created { .. } => "made the session".to_owned(),
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
                format!("asks differently: {}", (self.escape)(&text.text))
            }
            TimelineEvent::Thinking { text, .. } => {
                format!("thinks: {}", (self.escape)(&text.text))
            }
            TimelineEvent::Response { text, .. } => format!("says: {}", (self.escape)(&text.text)),
            TimelineEvent::Proposed { proposal } => {
                format!("proposes: {}", self.command_text(proposal))
            }
            TimelineEvent::Executed { proposal } => {
                format!("runs: {}", self.command_text(proposal))
            }
            TimelineEvent::Approved { proposal, comment } => {
                format!(
                    "approves {}{}",
                    self.command_text(proposal),
                    because(comment)
                )
            }
            TimelineEvent::Rejected {
                proposal, reason, ..
            } => {
                format!(
                    "rejects {}: {}",
                    self.command_text(proposal),
                    (self.escape)(reason)
                )
            }
            TimelineEvent::Edited { shown, reason, .. } => {
                format!("edits it to {}{}", (self.escape)(shown), because(reason))
            }
            TimelineEvent::DeadlinePassed {
                proposal,
                resolution,
                ..
            } => {
                let what = match resolution {
                    TimeoutResolution::Rejected => "rejected",
                    TimeoutResolution::AutoApproved => "approved by the clock",
                    TimeoutResolution::Escalated => "now for the admins to decide",
                };
                format!(
                    "the deadline has passed: {} is {what}",
                    self.command_text(proposal)
                )
            }
            TimelineEvent::Resolved {
                proposal,
                outcome: how,
                by,
                reason,
                ..
            } => {
                let by = by.as_ref().map(|by| format!(" by {}", name(by)));
                let by = by.unwrap_or_default();
                let command = self.command_text(proposal);
                format!("{}{by}: {command}{}", outcome_text(*how), because(reason))
            }
            TimelineEvent::CancelAsked { proposal, reason } => {
                format!("cancels {}{}", self.command_text(proposal), because(reason))
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
                expires_at,
                reason,
            } => {
                let prefix = (self.escape)(&prefix.join(" "));
                let life = duration(expires_at.millis_since(item.at));
                format!("allows `{prefix} …` for {life}{}", because(reason))
            }
            TimelineEvent::AllowRevoked { reason, .. } => {
                format!("takes a rule back{}", because(reason))
            }
            TimelineEvent::Error { code, message, .. } => {
                format!("{}: {}", label(code.as_str()), (self.escape)(message))
            }
        }
    }

    /// What a logged message says, without sender and time. The view has folded the message.
    pub fn message_text(&self, envelope: &Envelope) -> String {
        match self.unlisted_text(envelope) {
            Some(text) => text,
            None => match self.view.timeline_item(&envelope.header.id) {
                Some(item) => self.item_text(item),
                None => self.raw_text(&envelope.message),
            },
        }
    }

    /// The text of messages for which the timeline has no item, or one with less detail.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the other messages are described by their timeline items"
    )]
    fn unlisted_text(&self, envelope: &Envelope) -> Option<String> {
        use ServerMessage as M;
        let text = |text: &str| (self.escape)(text.trim());
        Some(match &envelope.message {
            M::ThinkingStart(_) => "starts thinking".to_owned(),
            M::ThinkingChunk(chunk) => format!("thinks: {}", text(&chunk.text)),
            M::ThinkingEnd(_) => "stops thinking".to_owned(),
            M::ResponseStart(_) => "starts answering".to_owned(),
            M::ResponseChunk(chunk) => format!("says: {}", text(&chunk.text)),
            M::ResponseEnd(end) => response_end_text(end),
            M::ToolPropose(propose) => {
                let category = propose.assessment.as_ref().map(|it| it.category.as_str());
                let command = self.arguments_text(&propose.arguments);
                format!("proposes [{}]: {command}", category.unwrap_or("?"))
            }
            M::Announce(announce) => {
                let roles = role_list(&announce.roles);
                format!("joined as {} ({roles})", text(&announce.name))
            }
            M::GateResolve(resolve) => {
                let how = self.resolution_text(&ResolutionView::new(resolve));
                format!("{how}: {}", self.command_text(&resolve.tool_proposal))
            }
            M::GateRequest(request) => format!("asks for approval: {}", text(&request.message)),
            M::ToolExecute(execute) => self.grant_text(execute),
            M::ToolInput(input) => {
                let keys = input.data.as_deref().unwrap_or("a new size");
                let command = self.command_text(&input.tool_proposal);
                format!("types into {command}: {}", (self.escape)(keys))
            }
            M::ToolOutput(output) => {
                let stream = match output.stream {
                    OutputStream::Stdout => "out",
                    OutputStream::Stderr => "err",
                };
                let end = if output.complete { " (end)" } else { "" };
                let id = short_id(&output.tool_proposal);
                format!(
                    "{id} {stream}| {}{end}",
                    (self.escape)(output.text.trim_end())
                )
            }
            M::ToolResult(result) => {
                let id = short_id(&result.tool_proposal);
                let finish = RunResultView::new(result, envelope.at);
                format!("{id} ended: {}", self.run_result_text(&finish))
            }
            M::SessionCreate(create) => match &create.name {
                Some(name) => format!("made the session {}", text(name)),
                None => "made the session".to_owned(),
            },
            M::GateAmend(amend) => {
                let reason = amend.reason.as_deref().filter(|reason| !reason.is_empty());
                let reason = reason.map(|reason| format!(" ({})", text(reason)));
                format!(
                    "edits {}{}: {}",
                    self.gate_text(&amend.gate),
                    reason.unwrap_or_default(),
                    self.arguments_text(&amend.arguments)
                )
            }
            M::GateApprove(vote) => self.vote_text("approves", &vote.gate, vote.comment.as_deref()),
            M::ToolApprove(vote) => {
                self.vote_text("approves", &vote.tool_proposal, vote.comment.as_deref())
            }
            M::GateReject(vote) => self.vote_text("rejects", &vote.gate, Some(&vote.reason)),
            M::ToolReject(vote) => {
                self.vote_text("rejects", &vote.tool_proposal, Some(&vote.reason))
            }
            _ => return None,
        })
    }

    /// A vote; the comment stands before the command, which may be long.
    fn vote_text(&self, verb: &str, gate: &MessageId, comment: Option<&str>) -> String {
        let comment = comment.filter(|comment| !comment.is_empty());
        let comment = comment.map(|comment| format!(": {}", (self.escape)(comment)));
        let gate = self.gate_text(gate);
        format!("{verb} {gate}{}", comment.unwrap_or_default())
    }

    /// The command at a gate, which may be named by its own id or by that of the proposal.
    fn gate_text(&self, id: &MessageId) -> String {
        let card = self.view.card(id).map(|card| &card.proposal);
        let proposal = card.unwrap_or(id);
        match self.view.proposal(proposal) {
            Some(_) => self.command_text(proposal),
            None => format!("gate {}", short_id(id)),
        }
    }

    fn arguments_text(&self, arguments: &JsonObject) -> String {
        match arguments.get("full_command").and_then(|it| it.as_str()) {
            Some(command) => (self.escape)(command.trim()),
            None => (self.escape)(&serde_json::Value::from(arguments.clone()).to_string()),
        }
    }

    fn grant_text(&self, execute: &ToolExecute) -> String {
        let why = match execute.grant.cleared_by {
            ClearedBy::Read => "a read".to_owned(),
            ClearedBy::AllowRule => "an allow rule".to_owned(),
            ClearedBy::Direct => "a person's own command".to_owned(),
            ClearedBy::Clock => "approved by the clock".to_owned(),
            ClearedBy::Quorum => {
                format!("approved by {}", self.name_list(execute.approved_by.iter()))
            }
        };
        format!(
            "grants {} to {} ({why}): {}",
            short_id(&execute.tool_proposal),
            self.name(&execute.grant.executor),
            (self.escape)(&execute.grant.action.command.summary())
        )
    }

    fn raw_text(&self, message: &ServerMessage) -> String {
        let payload = serde_json::to_string(message).unwrap_or_default();
        format!("{} {}", message.kind(), (self.escape)(&payload))
    }
}

fn response_end_text(end: &ResponseEnd) -> String {
    let how = match end.finish_reason {
        FinishReason::Complete => "has answered",
        FinishReason::ToolUse => "goes on",
        FinishReason::Interrupted => "was interrupted",
        FinishReason::Error => "could not go on",
        FinishReason::MaxTokens => "was cut off",
    };
    match &end.usage {
        None => how.to_owned(),
        Some(usage) => format!(
            "{how} ({} tokens in, {} out)",
            usage.input_tokens, usage.output_tokens
        ),
    }
}

/// The end of an id, which is enough to distinguish the ids of one session.
fn short_id(id: &MessageId) -> &str {
    let id = id.as_str();
    // Ids are ASCII.
    &id[id.len().saturating_sub(6)..]
}

/// The beginning of a text that is longer than so many characters.
pub fn shorten(text: &str, max_chars: usize) -> String {
    let mut shown: String = text.chars().take(max_chars + 1).collect();
    if shown.chars().count() > max_chars {
        shown.pop();
        shown.push('…');
    }
    shown
}

/// A protocol name such as `timed_out` with spaces instead of underscores.
pub fn label(name: &str) -> String {
    name.replace('_', " ")
}

/// A duration in a short form, such as `1.2 s` or `3 min`.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=9 => format!("{}.{} s", seconds, ms % 1000 / 100),
        10..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// The time left, in minutes and seconds.
pub fn countdown(ms: u64) -> String {
    let seconds = ms.div_ceil(1000);
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

pub fn byte_size(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} bytes"),
        10_000..=9_999_999 => format!("{} KB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

pub fn pluralize(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        number => format!("{number} {one}s"),
    }
}

pub fn role_list(roles: &[Role]) -> String {
    let words: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
    words.join("+")
}

/// The mark that shows a participant's presence.
pub fn presence_mark(participant: &ParticipantView) -> &'static str {
    match (participant.left, participant.presence) {
        (true, _) => "✗",
        (false, PresenceStatus::Active) => "●",
        (false, PresenceStatus::Idle) => "○",
        (false, PresenceStatus::Away) => "◌",
        (false, PresenceStatus::Disconnected) => "✗",
    }
}

pub fn outcome_text(outcome: GateOutcome) -> &'static str {
    match outcome {
        GateOutcome::Approved => "approved",
        GateOutcome::Rejected => "rejected",
        GateOutcome::TimedOut => "timed out",
        GateOutcome::Cancelled => "cancelled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use pvp_protocol::{EnvelopeHeader, Sender};
    use serde_json::{Value, json};

    fn envelope(seq: u64, id: &str, by: &str, kind: &str, payload: Value) -> Envelope {
        let message = ServerMessage::parse_payload(kind, &payload.to_string());
        let sender = match by {
            Sender::SYSTEM => Sender::System,
            by => Sender::Participant(ParticipantId::parse(by).unwrap()),
        };
        Envelope {
            header: EnvelopeHeader {
                id: MessageId::parse(id).unwrap(),
                session: pvp_protocol::SessionId::parse("owl").unwrap(),
                sender,
                reference: None,
                causal_refs: Vec::new(),
                fork: None,
            },
            at: Timestamp::from_millis(seq),
            seq: Some(seq),
            message: message.unwrap().unwrap(),
        }
    }

    /// The last of these messages as a line of the log, by a view that knows only them.
    fn log_text(messages: &[Envelope]) -> String {
        let mut view = View::default();
        for envelope in messages {
            view.fold(envelope);
        }
        let one_line = |text: &str| crate::view::escape_invisible(text).replace('\n', "\\n");
        Narrator::new(&view, NarratorStyle::Log, one_line).message_text(messages.last().unwrap())
    }

    fn proposal(command: &str) -> Envelope {
        let payload = json!({
            "tool_name": "shell", "arguments": {"full_command": command}, "agent": "bot",
            "description": "", "risk_level": "low", "requires_approval": false, "category": "all",
        });
        envelope(1, "p1", "bot", "tool.propose", payload)
    }

    #[test]
    fn a_result_is_told_whole_by_who_saw_nothing_before_it() {
        let payload = json!({
            "tool_proposal": "p-123456", "success": false, "duration_ms": 3200,
            "result": {"exitCode": 2, "stdout": "", "stderr": ""}, "error": "it\nbroke",
        });
        let result = envelope(23, "r1", "bot", "tool.result", payload);
        assert_eq!(
            log_text(&[result]),
            "123456 ended: exit 2 after 3.2 s: it\\nbroke"
        );
    }

    #[test]
    fn a_long_command_does_not_hide_what_was_done_to_it() {
        let reject = json!({"tool_proposal": "p1", "rejector": "ann", "reason": "never"});
        let reject = envelope(2, "v1", "ann", "tool.reject", reject);
        let text = log_text(&[proposal(&"x".repeat(500)), reject]);
        let shown = "x".repeat(MAX_LOG_COMMAND_CHARS);
        assert_eq!(text, format!("rejects {shown}…: never"));
    }

    #[test]
    fn an_edit_is_told_also_by_who_did_not_see_the_gate() {
        let amend = json!({
            "gate": "gate-abcdef", "arguments": {"full_command": "echo \u{202e}x"}, "reason": "typo",
            "digest": "00".repeat(32),
        });
        let amend = envelope(9, "a1", "ann", "gate.amend", amend);
        assert_eq!(
            log_text(&[amend]),
            "edits gate abcdef (typo): echo \\u{202e}x"
        );
    }

    #[test]
    fn times_are_short_and_clear() {
        let texts: Vec<_> = [40, 1_250, 61_000, 200_000, 8_000_000].map(duration).into();
        assert_eq!(texts, ["0.0 s", "1.2 s", "61 s", "3 min", "2 h"]);
        assert_eq!(
            [0, 59_001, 300_000].map(countdown),
            ["0:00", "1:00", "5:00"]
        );
    }
}
