//! The queue of prompts and interrupts that the turn loop reads.

use std::collections::VecDeque;

use pvp_protocol::MessageId;
use pvp_protocol::payload::{Content, InterruptUrgency, PromptConfig};

use super::{AgentEvent, AgentEventCallback};
use crate::agent::{AgentInput, AgentInputs, Requester, SessionRecap};
use crate::brain::result_text::truncate_middle;

/// The most prompts that may wait. Further ones are dropped, and the agent gets a note about it.
const MAX_QUEUED: usize = 64;

/// Bytes of one prompt with its context; providers accept no more in one message anyway.
const MAX_PROMPT_BYTES: usize = 512 * 1024;

/// How soon to end a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    /// After what is under way.
    Pause,
    /// At once.
    Stop,
}

/// What arrived.
#[derive(Debug)]
pub(super) enum PromptQueueEvent {
    /// A prompt was queued.
    Prompt,
    Halt(Halt),
    Recap(Box<SessionRecap>),
    /// Nothing more will arrive.
    Closed,
}

/// A prompt as the brain reads it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct QueuedPrompt {
    pub(super) id: MessageId,
    pub(super) text: String,
    pub(super) config: Option<PromptConfig>,
}

pub(super) struct PromptQueue {
    /// Where inputs come from.
    inputs: AgentInputs,
    /// Prompts that are not in the conversation yet, oldest first.
    prompts: VecDeque<QueuedPrompt>,
    /// What happened between prompts, to be prepended to the next one.
    notes: Vec<String>,
    /// Whether a prompt is unanswered and no interrupt came after it.
    awaiting_answer: bool,
    /// Whether the inputs have ended.
    closed: bool,
    /// Receives prompts and interrupts as they arrive.
    on_event: AgentEventCallback,
}

impl PromptQueue {
    pub(super) fn new(inputs: AgentInputs, on_event: AgentEventCallback) -> Self {
        Self {
            inputs,
            prompts: VecDeque::new(),
            notes: Vec::new(),
            awaiting_answer: false,
            closed: false,
            on_event,
        }
    }

    /// Whether a prompt is unanswered and no interrupt came after it.
    pub(super) fn is_awaiting_answer(&self) -> bool {
        self.awaiting_answer
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn last_prompt_id(&self) -> Option<&MessageId> {
        self.prompts.back().map(|queued| &queued.id)
    }

    /// The oldest prompt, with the notes on what happened before it.
    pub(super) fn pop_prompt(&mut self) -> Option<QueuedPrompt> {
        let mut queued = self.prompts.pop_front()?;
        self.awaiting_answer &= !self.prompts.is_empty();
        if !self.notes.is_empty() {
            let notes = std::mem::take(&mut self.notes).join("\n");
            queued.text = format!("{notes}\n\n{}", queued.text);
        }
        Some(queued)
    }

    /// Waits for the next input. Cancel safe: dropping the future loses no input.
    pub(super) async fn next(&mut self) -> PromptQueueEvent {
        let Some(input) = self.inputs.next().await else {
            self.closed = true;
            return PromptQueueEvent::Closed;
        };
        match input {
            AgentInput::Prompt {
                id,
                by,
                prompt,
                context,
            } => {
                let text = prompt_text(&by, &prompt.content, &context);
                self.push_prompt(
                    &by,
                    &prompt.content,
                    QueuedPrompt {
                        id,
                        text,
                        config: prompt.config,
                    },
                )
            }
            AgentInput::Amend { id, by, amend } => {
                let text = format!(
                    "{} changes what was asked before ({}): {}",
                    by.name, amend.reason, amend.amendment
                );
                let config = None;
                self.push_prompt(&by, &amend.amendment, QueuedPrompt { id, text, config })
            }
            AgentInput::Interrupt { by, interrupt, .. } => {
                let (word, halt) = match interrupt.urgency {
                    InterruptUrgency::Pause => ("paused", Halt::Pause),
                    InterruptUrgency::Stop => ("stopped", Halt::Stop),
                    InterruptUrgency::Emergency => ("stopped, in an emergency,", Halt::Stop),
                };
                let mut note = format!("({} {word} you: {})", by.name, interrupt.message);
                match &interrupt.inject_context {
                    None => {}
                    Some(Content::Text(text)) => note.push_str(&format!("\n{text}")),
                    Some(Content::Object(object)) => {
                        let text = serde_json::Value::Object(object.clone()).to_string();
                        note.push_str(&format!("\n{text}"));
                    }
                }
                self.awaiting_answer = false;
                self.notes
                    .push(truncate_middle(&note, MAX_PROMPT_BYTES / 8));
                if self.notes.len() > MAX_QUEUED {
                    self.notes.remove(0);
                }
                (self.on_event)(AgentEvent::Interrupted {
                    by: by.name,
                    message: interrupt.message,
                });
                PromptQueueEvent::Halt(halt)
            }
            AgentInput::Recap(recap) => PromptQueueEvent::Recap(recap),
        }
    }

    fn push_prompt(
        &mut self,
        by: &Requester,
        content: &str,
        queued: QueuedPrompt,
    ) -> PromptQueueEvent {
        (self.on_event)(AgentEvent::Prompted {
            by: by.name.clone(),
            text: truncate_middle(content, 2000),
        });
        self.awaiting_answer = true;
        if self.prompts.len() < MAX_QUEUED {
            self.prompts.push_back(queued);
        } else {
            self.notes
                .push(format!("({} asked something that you missed)", by.name));
        }
        PromptQueueEvent::Prompt
    }
}

fn prompt_text(by: &Requester, content: &str, context: &[(String, String)]) -> String {
    let mut text = format!("{}: {content}", by.name);
    for (key, value) in context {
        text.push_str(&format!("\n\n<context key={key:?}>\n{value}\n</context>"));
    }
    truncate_middle(&text, MAX_PROMPT_BYTES)
}
