//! Describes the messages of a log, one line each, also to readers who saw nothing before them.

use pvp_protocol::payload::{
    ClearedBy, FinishReason, GateRequest, OutputStream, ResponseEnd, ToolExecute,
};
use pvp_protocol::{Action, Command, Envelope, JsonObject, MessageId, ServerMessage, WireMessage};

use super::{Narrator, role_list};
use crate::view::{
    CommandForm, ResolutionView, RunResultView, TimelineEvent, TimelineItem, command_headline,
};

impl Narrator<'_> {
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
            M::ThinkingEnd(_) => "finished thinking".to_owned(),
            M::ResponseStart(_) => "starts answering".to_owned(),
            M::ResponseChunk(chunk) => format!("says: {}", text(&chunk.text)),
            M::ResponseEnd(end) => response_end_text(end),
            M::ToolPropose(propose) => {
                let category = propose.assessment.as_ref().map(|it| it.category_label());
                let command = match self.view.timeline_item(&envelope.header.id) {
                    Some(item) if propose.tool_name != "shell" => self.proposed_text(item),
                    Some(_) | None => self.arguments_text(&propose.tool_name, &propose.arguments),
                };
                let id = envelope.header.id.short();
                format!("proposes {id} [{}]: {command}", category.unwrap_or("?"))
            }
            M::Announce(announce) => {
                let roles = role_list(&announce.roles);
                format!("joined as {} ({roles})", text(&announce.name))
            }
            M::GateResolve(resolve) => {
                let how = self.resolution_text(&ResolutionView::new(resolve));
                let id = &resolve.tool_proposal;
                let command = self.view.proposal(id).map(|it| &it.requested.shown);
                let command = command.map(|shown| format!(" ({})", self.shown_text(shown)));
                format!("{} {how}{}", id.short(), command.unwrap_or_default())
            }
            M::GateRequest(request) => {
                let id = request.action_ref.short();
                format!("asks for approval of {id}: {}", self.request_text(request))
            }
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
                let id = output.tool_proposal.short();
                format!(
                    "{id} {stream}| {}{end}",
                    (self.escape)(output.text.trim_end())
                )
            }
            M::ToolResult(result) => {
                let id = result.tool_proposal.short();
                let finish = RunResultView::new(result, envelope.at);
                let tried = match result.extra.get("tried") {
                    Some(serde_json::Value::Bool(true)) => "tried in the sandbox and ended",
                    Some(_) | None => "ended",
                };
                format!("{id} {tried}: {}", self.run_result_text(&finish))
            }
            M::ToolDiscard(discard) => {
                let id = discard.tool_proposal.short();
                format!("{id} {}", text(&discard.trial.to_string()))
            }
            M::SessionCreate(create) => match &create.name {
                Some(name) => format!("created the session {}", text(name)),
                None => "created the session".to_owned(),
            },
            M::GateAmend(amend) => match self.view.timeline_item(&envelope.header.id) {
                Some(item) => self.item_text(item),
                // Whoever did not see the proposal knows only what it is from here on.
                None => {
                    let remark = self.remark(amend.reason.as_deref());
                    let command = self.arguments_text("shell", &amend.arguments);
                    format!("edits {}: {command}{remark}", self.gate_text(&amend.gate))
                }
            },
            _ => return None,
        })
    }

    /// A gate by the short id of its proposal, or by its own if the proposal is not known.
    fn gate_text(&self, id: &MessageId) -> String {
        match self.view.proposal_at_gate(id) {
            Some(proposal) => proposal.id.short().to_owned(),
            None => format!("gate {}", id.short()),
        }
    }

    fn arguments_text(&self, tool: &str, arguments: &JsonObject) -> String {
        let command = match (tool, arguments.get("full_command")) {
            ("shell", Some(serde_json::Value::String(line))) => line.trim().to_owned(),
            _ => match Action::from_arguments(tool, arguments) {
                Ok(action) => command_headline(&action.command),
                Err(_) => serde_json::Value::from(arguments.clone()).to_string(),
            },
        };
        (self.escape)(&command)
    }

    /// What an item proposes.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the item of a proposal is one"
    )]
    fn proposed_text(&self, item: &TimelineItem) -> String {
        match &item.event {
            TimelineEvent::Proposed { command, .. } => (self.escape)(&command.shown),
            _ => self.item_text(item),
        }
    }

    /// What a gate waits for. The server's own words for a tool call are its arguments as JSON.
    fn request_text(&self, request: &GateRequest) -> String {
        let proposal = self.view.proposal(&request.action_ref);
        let requested = proposal.map(|it| &it.requested);
        match requested.filter(|it| it.form == CommandForm::Tool) {
            None => (self.escape)(request.message.trim()),
            Some(requested) => {
                let assessment = requested.assessment.as_ref();
                let reason = assessment.map(|it| format!(" ({})", (self.escape)(&it.reason)));
                let category = assessment.map_or("write", |it| it.category_label());
                let shown = (self.escape)(&requested.shown);
                let (reason, quorum) = (reason.unwrap_or_default(), &request.quorum);
                format!("{category}: {shown}{reason}; waiting for {quorum}")
            }
        }
    }

    fn grant_text(&self, execute: &ToolExecute) -> String {
        let why = match execute.grant.cleared_by {
            ClearedBy::Read => "a read".to_owned(),
            ClearedBy::AllowRule => self.rule_text(execute.grant.allowed_by.as_ref()),
            ClearedBy::Direct => "a person's own command".to_owned(),
            ClearedBy::Clock => "approved automatically at the deadline".to_owned(),
            ClearedBy::Tried => "a trial in the sandbox".to_owned(),
            ClearedBy::Quorum => {
                format!("approved by {}", self.name_list(execute.approved_by.iter()))
            }
        };
        format!(
            "grants {} to {} ({why}): {}",
            execute.tool_proposal.short(),
            self.name(&execute.grant.executor),
            self.granted_text(execute)
        )
    }

    /// What is granted. The view may know more of it, such as what it changes.
    fn granted_text(&self, execute: &ToolExecute) -> String {
        let command = &execute.grant.action.command;
        let known = self.view.proposal(&execute.tool_proposal);
        match (command, known.map(|it| &it.requested)) {
            (Command::Tool { .. }, Some(requested)) if requested.form == CommandForm::Tool => {
                (self.escape)(&requested.shown)
            }
            (command, _) => (self.escape)(&command_headline(command)),
        }
    }

    fn raw_text(&self, message: &ServerMessage) -> String {
        let payload = serde_json::to_string(message).unwrap_or_default();
        format!("{} {}", message.kind(), (self.escape)(&payload))
    }
}

fn response_end_text(end: &ResponseEnd) -> String {
    let how = match end.finish_reason {
        FinishReason::Complete => "finished answering",
        FinishReason::ToolUse => "calls tools",
        FinishReason::Interrupted => "was interrupted",
        FinishReason::Error => "failed to answer",
        FinishReason::MaxTokens => "reached the token limit",
    };
    match &end.usage {
        None => how.to_owned(),
        Some(usage) => format!(
            "{how} ({} tokens in, {} out)",
            usage.input_tokens, usage.output_tokens
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MAX_LOG_COMMAND_CHARS, NarratorStyle};
    use super::*;
    use crate::View;

    use pvp_protocol::{EnvelopeHeader, ParticipantId, Sender, Timestamp};
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
        assert_eq!(text, format!("rejects p1: {shown}… (never)"));
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
            "edits gate abcdef: echo \\u{202e}x (typo)"
        );
    }
}
