//! A recap of what an agent did in a session before it was started, folded from the replayed log.

use std::collections::VecDeque;

use pvp_client::View;
use pvp_protocol::payload::{FinishReason, GateOutcome};
use pvp_protocol::{Envelope, MessageId, ParticipantId, Sender, ServerMessage};

use super::MAX_NAME_BYTES;
use crate::brain::result_text::truncate_middle;

/// Bytes of the whole recap; the oldest lines are dropped.
const MAX_BYTES: usize = 16 * 1024;

/// Bytes of one line.
const MAX_LINE_BYTES: usize = 2 * 1024;

/// What happened so far, one line per event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionRecap {
    lines: VecDeque<String>,
    bytes: usize,
    response_text: String,
    unanswered_prompt: Option<MessageId>,
}

impl SessionRecap {
    /// Whether nothing that concerns this agent happened.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.unanswered_prompt.is_none()
    }

    /// The last lines that fit into `max_bytes`, oldest first.
    pub fn text(&self, max_bytes: usize) -> String {
        let mut room = max_bytes;
        let fits = |line: &&String| {
            let left = room.checked_sub(line.len() + 1);
            room = left.unwrap_or(0);
            left.is_some()
        };
        let mut lines: Vec<_> = self.lines.iter().rev().take_while(fits).cloned().collect();
        lines.reverse();
        lines.join("\n")
    }

    /// A prompt that was being answered when the agent ended.
    pub fn unanswered_prompt(&self) -> Option<&MessageId> {
        self.unanswered_prompt.as_ref()
    }

    /// Adds one replayed message to the recap; the view is folded up to it.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else was not between people and this agent"
    )]
    pub(super) fn on_message(&mut self, envelope: &Envelope, me: &ParticipantId, view: &View) {
        let by = match &envelope.header.sender {
            Sender::System => None,
            Sender::Participant(id) => Some(id),
        };
        let mine = by == Some(me);
        match &envelope.message {
            ServerMessage::PromptSubmit(prompt) if prompt.target_agent == *me => {
                let who = by.map_or("someone", |id| view.display_name(id));
                self.push(format!(
                    "{} asked: {}",
                    truncate_middle(who, MAX_NAME_BYTES),
                    truncate_middle(&prompt.content, MAX_LINE_BYTES)
                ));
                self.unanswered_prompt = Some(envelope.header.id.clone());
            }
            ServerMessage::ResponseChunk(chunk)
                if mine && self.response_text.len() < MAX_LINE_BYTES =>
            {
                self.response_text.push_str(&chunk.text);
            }
            ServerMessage::ResponseEnd(end) if mine => {
                let text = std::mem::take(&mut self.response_text);
                if !text.trim().is_empty() {
                    self.push(format!(
                        "You said: {}",
                        truncate_middle(&text, MAX_LINE_BYTES)
                    ));
                }
                match end.finish_reason {
                    FinishReason::ToolUse => {}
                    FinishReason::Complete
                    | FinishReason::Interrupted
                    | FinishReason::Error
                    | FinishReason::MaxTokens => self.unanswered_prompt = None,
                }
            }
            ServerMessage::GateResolve(resolve) if resolve.outcome != GateOutcome::Approved => {
                if let Some(command) = command_of(view, me, &resolve.tool_proposal) {
                    let why = resolve.reason.as_deref().unwrap_or("no reason given");
                    let why = truncate_middle(why, MAX_LINE_BYTES);
                    self.push(format!(
                        "You proposed, and it was not approved ({why}): {command}"
                    ));
                }
            }
            ServerMessage::ToolResult(result) => {
                if let Some(command) = command_of(view, me, &result.tool_proposal) {
                    let code = result.exit_code();
                    let how = match (&result.error, code) {
                        (Some(why), _) => truncate_middle(why, MAX_LINE_BYTES),
                        (None, Some(code)) => format!("exit code {code}"),
                        (None, None) => "ended by a signal".to_owned(),
                    };
                    let reference = &result.tool_proposal;
                    self.push(format!("You ran ({how}, ref \"{reference}\"): {command}"));
                }
            }
            _ => {}
        }
    }

    fn push(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= oldest.len();
        }
    }
}

/// The command of a proposal that this agent made.
fn command_of(view: &View, me: &ParticipantId, proposal: &MessageId) -> Option<String> {
    let proposal = view.proposal(proposal)?;
    let mine = proposal.requested.proposer.as_ref() == Some(me);
    mine.then(|| truncate_middle(&proposal.requested.command, MAX_LINE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recap_keeps_the_newest_lines_that_fit() {
        let mut recap = SessionRecap::default();
        for line in ["first", "second", "third"] {
            recap.push(line.to_owned());
        }
        assert_eq!(recap.text(1000), "first\nsecond\nthird");
        assert_eq!(recap.text(13), "second\nthird");
        assert_eq!(recap.text(12), "third");
        assert_eq!(recap.text(0), "");
    }
}
