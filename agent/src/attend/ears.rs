//! What people want, as an attendant hears it.

use std::collections::VecDeque;

use pvp_protocol::MessageId;
use pvp_protocol::payload::{Content, InterruptUrgency, PromptConfig};

use super::{Moment, Watch};
use crate::agent::{Memory, Speaker, Wish, Wishes};
use crate::brain::digest::ends;

/// Prompts that wait; more are left out, and the agent says so.
const WAITING: usize = 64;

/// Bytes of one prompt with its context; providers take no more in one go anyway.
const PROMPT: usize = 512 * 1024;

/// How soon to end a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    /// After what is under way.
    Pause,
    /// At once.
    Stop,
}

/// What was heard.
#[derive(Debug)]
pub(super) enum Heard {
    /// One more prompt waits.
    Prompt,
    Halt(Halt),
    Memory(Box<Memory>),
    /// Nothing more will be heard.
    Over,
}

/// A prompt as the brain reads it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    pub(super) id: MessageId,
    pub(super) text: String,
    pub(super) config: Option<PromptConfig>,
}

pub(super) struct Ears {
    wishes: Wishes,
    prompts: VecDeque<Asked>,
    /// What happened beside prompts, for the next one.
    notes: Vec<String>,
    /// Someone spoke who is not answered yet, and nobody halted us since.
    called: bool,
    closed: bool,
    watch: Watch,
}

impl Ears {
    pub(super) fn new(wishes: Wishes, watch: Watch) -> Self {
        Self {
            wishes,
            prompts: VecDeque::new(),
            notes: Vec::new(),
            called: false,
            closed: false,
            watch,
        }
    }

    /// Whether someone waits for an answer that nobody asked us to hold back.
    pub(super) fn is_called(&self) -> bool {
        self.called
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn last_prompt(&self) -> Option<&MessageId> {
        self.prompts.back().map(|asked| &asked.id)
    }

    /// The oldest prompt, with what happened before it.
    pub(super) fn take_prompt(&mut self) -> Option<Asked> {
        let mut asked = self.prompts.pop_front()?;
        self.called &= !self.prompts.is_empty();
        if !self.notes.is_empty() {
            let notes = std::mem::take(&mut self.notes).join("\n");
            asked.text = format!("{notes}\n\n{}", asked.text);
        }
        Some(asked)
    }

    /// Waits for something. May be given up without losing anything.
    pub(super) async fn next(&mut self) -> Heard {
        let Some(wish) = self.wishes.next().await else {
            self.closed = true;
            return Heard::Over;
        };
        match wish {
            Wish::Prompt {
                id,
                by,
                prompt,
                context,
            } => {
                let text = prompted(&by, &prompt.content, &context);
                self.push(
                    &by,
                    &prompt.content,
                    Asked {
                        id,
                        text,
                        config: prompt.config,
                    },
                )
            }
            Wish::Amend { id, by, amend } => {
                let text = format!(
                    "{} changes what was asked before ({}): {}",
                    by.name, amend.reason, amend.amendment
                );
                let config = None;
                self.push(&by, &amend.amendment, Asked { id, text, config })
            }
            Wish::Interrupt { by, interrupt, .. } => {
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
                self.called = false;
                self.notes.push(ends(&note, PROMPT / 8));
                if self.notes.len() > WAITING {
                    self.notes.remove(0);
                }
                (self.watch)(Moment::Interrupted {
                    by: by.name,
                    message: interrupt.message,
                });
                Heard::Halt(halt)
            }
            Wish::Remember(memory) => Heard::Memory(memory),
        }
    }

    fn push(&mut self, by: &Speaker, said: &str, asked: Asked) -> Heard {
        (self.watch)(Moment::Asked {
            by: by.name.clone(),
            text: ends(said, 2000),
        });
        self.called = true;
        if self.prompts.len() < WAITING {
            self.prompts.push_back(asked);
        } else {
            self.notes
                .push(format!("({} asked something that you missed)", by.name));
        }
        Heard::Prompt
    }
}

fn prompted(by: &Speaker, content: &str, context: &[(String, String)]) -> String {
    let mut text = format!("{}: {content}", by.name);
    for (key, value) in context {
        text.push_str(&format!("\n\n<context key={key:?}>\n{value}\n</context>"));
    }
    ends(&text, PROMPT)
}
