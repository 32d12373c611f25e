//! What an agent did in a session before it was started, as far as the session tells it.

use std::collections::{BTreeMap, VecDeque};

use pvp_protocol::payload::{FinishReason, GateOutcome};
use pvp_protocol::{Action, Envelope, MessageId, ParticipantId, Sender, ServerMessage};

use super::lore::Lore;
use crate::brain::digest::ends;

/// Bytes of what is remembered; the oldest is forgotten.
const MOST: usize = 16 * 1024;

/// Bytes of one thing that was said or done.
const ONE: usize = 2 * 1024;

/// Commands whose end is awaited.
const COMMANDS: usize = 256;

/// The story so far, in lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    lines: VecDeque<String>,
    bytes: usize,
    saying: String,
    commands: BTreeMap<MessageId, String>,
    unanswered: Option<MessageId>,
}

impl Memory {
    /// Whether nothing of ours happened.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.unanswered.is_none()
    }

    /// The end of the story in about so many bytes, oldest first.
    pub fn story(&self, most: usize) -> String {
        let mut room = most;
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
    pub fn unanswered(&self) -> Option<&MessageId> {
        self.unanswered.as_ref()
    }

    /// Takes the next thing that happened.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else was not between people and this agent"
    )]
    pub(super) fn take(&mut self, envelope: &Envelope, me: &ParticipantId, lore: &Lore) {
        let by = match &envelope.heading.sender {
            Sender::System => None,
            Sender::Participant(id) => Some(id),
        };
        let mine = by == Some(me);
        match &envelope.message {
            ServerMessage::PromptSubmit(prompt) if prompt.target_agent == *me => {
                let who = by.map_or_else(|| "someone".to_owned(), |id| lore.name(id));
                self.push(format!("{who} asked: {}", ends(&prompt.content, ONE)));
                self.unanswered = Some(envelope.heading.id.clone());
            }
            ServerMessage::ResponseChunk(chunk) if mine && self.saying.len() < ONE => {
                self.saying.push_str(&chunk.text);
            }
            ServerMessage::ResponseEnd(end) if mine => {
                let said = std::mem::take(&mut self.saying);
                if !said.trim().is_empty() {
                    self.push(format!("You said: {}", ends(&said, ONE)));
                }
                match end.finish_reason {
                    FinishReason::ToolUse => {}
                    FinishReason::Complete
                    | FinishReason::Interrupted
                    | FinishReason::Error
                    | FinishReason::MaxTokens => self.unanswered = None,
                }
            }
            ServerMessage::ToolPropose(propose) if mine => {
                if let Ok(action) = Action::from_arguments(&propose.tool_name, &propose.arguments)
                    && self.commands.len() < COMMANDS
                {
                    let command = ends(&action.command.summary(), ONE);
                    self.commands.insert(envelope.heading.id.clone(), command);
                }
            }
            ServerMessage::GateResolve(resolve) if resolve.outcome != GateOutcome::Approved => {
                if let Some(command) = self.commands.remove(&resolve.tool_proposal) {
                    let why = resolve.reason.as_deref().unwrap_or("no reason given");
                    let why = ends(why, ONE);
                    self.push(format!(
                        "You proposed, and it was not approved ({why}): {command}"
                    ));
                }
            }
            ServerMessage::ToolResult(result) => {
                if let Some(command) = self.commands.remove(&result.tool_proposal) {
                    let code = result.result.as_ref().and_then(|body| body.exit_code);
                    let how = match (&result.error, code) {
                        (Some(why), _) => ends(why, ONE),
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
        while self.bytes > MOST
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= oldest.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_is_told_from_where_it_fits() {
        let mut memory = Memory::default();
        for line in ["first", "second", "third"] {
            memory.push(line.to_owned());
        }
        assert_eq!(memory.story(1000), "first\nsecond\nthird");
        assert_eq!(memory.story(13), "second\nthird");
        assert_eq!(memory.story(12), "third");
        assert_eq!(memory.story(0), "");
    }
}
