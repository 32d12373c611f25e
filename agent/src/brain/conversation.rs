//! The conversation between people, the model and its tools, kept within a token budget.

mod budget;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use pvp_protocol::JsonObject;

use super::BrainEvent;
use super::proposal_result::CallResult;
pub(crate) use budget::estimate_tokens;

/// A tool call, as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// The arguments as text; JSON, unless the model made a mistake.
    pub arguments: String,
}

impl ToolCall {
    /// The parsed arguments, or an error message for the model.
    pub fn parse_arguments(&self) -> Result<JsonObject, String> {
        if self.arguments.trim().is_empty() {
            return Ok(JsonObject::new());
        }
        serde_json::from_str(&self.arguments).map_err(|error| {
            format!(
                "The arguments of this call are not a JSON object ({error}). Nothing was done. \
                 Send the call again, and shorter if it was cut off."
            )
        })
    }
}

/// A part of the model's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerPart {
    /// The provider wants the signature back with the text; thinking without one is not sent back.
    Thinking {
        text: String,
        signature: Option<String>,
    },
    /// Thinking that the provider keeps hidden, but wants back.
    RedactedThinking(String),
    Text(String),
    /// A result is stored in its call, so that neither is ever sent without the other.
    Call {
        call: ToolCall,
        result: Option<CallResult>,
    },
}

/// One turn of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum ConversationTurn {
    Person(String),
    Model(Vec<AnswerPart>),
}

/// Assembles the events of an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelAnswer {
    parts: Vec<AnswerPart>,
}

impl ModelAnswer {
    /// Whether the model has not answered anything yet.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub fn push(&mut self, event: &BrainEvent) {
        match event {
            BrainEvent::Thinking(more) => match self.parts.last_mut() {
                Some(AnswerPart::Thinking {
                    text,
                    signature: None,
                }) => text.push_str(more),
                _ => self.parts.push(AnswerPart::Thinking {
                    text: more.clone(),
                    signature: None,
                }),
            },
            BrainEvent::ThinkingSignature(value) => match self.parts.last_mut() {
                Some(AnswerPart::Thinking { signature, .. }) if signature.is_none() => {
                    *signature = Some(value.clone())
                }
                // A provider that hides the thinking still signs it.
                _ => self.parts.push(AnswerPart::Thinking {
                    text: String::new(),
                    signature: Some(value.clone()),
                }),
            },
            BrainEvent::RedactedThinking(data) => {
                self.parts.push(AnswerPart::RedactedThinking(data.clone()))
            }
            BrainEvent::Text(more) => match self.parts.last_mut() {
                Some(AnswerPart::Text(text)) => text.push_str(more),
                _ => self.parts.push(AnswerPart::Text(more.clone())),
            },
            BrainEvent::ToolCall(call) => self.parts.push(AnswerPart::Call {
                call: call.clone(),
                result: None,
            }),
            BrainEvent::Retrying { .. } | BrainEvent::Usage(_) | BrainEvent::Finished(_) => {}
        }
    }
}

/// A conversation that is always valid for either provider.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    system_prompt: String,
    turns: Vec<ConversationTurn>,
    truncated: bool,
}

impl Conversation {
    pub fn new(system: impl Into<String>) -> Self {
        Self {
            system_prompt: system.into(),
            turns: Vec::new(),
            truncated: false,
        }
    }

    /// The system prompt, with a note if the beginning of the conversation was dropped.
    pub fn system_prompt(&self) -> String {
        let note = if self.truncated {
            "\n\nThe beginning of this conversation is left out, because it became too long."
        } else {
            ""
        };
        format!("{}{note}", self.system_prompt)
    }

    pub fn turns(&self) -> &[ConversationTurn] {
        &self.turns
    }

    /// Whether it is the model's turn: a person spoke last, or every call has its result.
    pub fn awaits_model(&self) -> bool {
        match self.turns.last() {
            None => false,
            Some(ConversationTurn::Person(_)) => true,
            Some(ConversationTurn::Model(parts)) => {
                parts
                    .iter()
                    .any(|part| matches!(part, AnswerPart::Call { .. }))
                    && self.open_calls().is_empty()
            }
        }
    }

    /// Adds a prompt. Calls that are still open get a failed result.
    pub fn push_prompt(&mut self, text: impl Into<String>) {
        self.fail_open_calls("Nothing was done: someone spoke before this call was dealt with.");
        self.turns.push(ConversationTurn::Person(text.into()));
    }

    /// Adds the model's answer. Returns its calls, with ids that are unique in this conversation.
    pub fn push_answer(&mut self, answer: ModelAnswer) -> Vec<ToolCall> {
        self.fail_open_calls("Nothing was done: this call was given up.");
        let mut parts = answer.parts;
        let mut used = self.call_ids();
        for part in &mut parts {
            if let AnswerPart::Call { call, .. } = part {
                call.id = unused_call_id(&used, &call.id);
                used.insert(call.id.clone());
            }
        }
        if !parts.is_empty() {
            self.turns.push(ConversationTurn::Model(parts));
        }
        self.open_calls()
    }

    /// The calls of the last answer that have no result.
    pub fn open_calls(&self) -> Vec<ToolCall> {
        let Some(ConversationTurn::Model(parts)) = self.turns.last() else {
            return Vec::new();
        };
        let open = |part: &AnswerPart| match part {
            AnswerPart::Call { call, result: None } => Some(call.clone()),
            AnswerPart::Call { .. }
            | AnswerPart::Thinking { .. }
            | AnswerPart::RedactedThinking(_)
            | AnswerPart::Text(_) => None,
        };
        parts.iter().filter_map(open).collect()
    }

    /// Sets the result of an open call; `false` if there is no such call.
    pub fn set_result(&mut self, id: &str, outcome: CallResult) -> bool {
        let Some(ConversationTurn::Model(parts)) = self.turns.last_mut() else {
            return false;
        };
        for part in parts {
            if let AnswerPart::Call { call, result } = part
                && call.id == id
                && result.is_none()
            {
                *result = Some(outcome);
                return true;
            }
        }
        false
    }

    /// Gives every open call the same failed result.
    pub fn fail_open_calls(&mut self, why: &str) {
        for call in self.open_calls() {
            self.set_result(&call.id, CallResult::failed(why));
        }
    }

    /// Removes what the provider refused to answer: sent again, it would be refused again.
    pub fn retract_unanswered(&mut self) {
        while matches!(self.turns.last(), Some(ConversationTurn::Person(_))) {
            self.turns.pop();
        }
        let Some(ConversationTurn::Model(parts)) = self.turns.last_mut() else {
            return;
        };
        for part in parts {
            if let AnswerPart::Call { result, .. } = part {
                let why = "Left out: the provider did not let you answer to this.";
                *result = Some(CallResult::failed(why));
            }
        }
    }

    /// The latest result of a call.
    pub fn last_result(&self) -> Option<&CallResult> {
        self.turns.iter().rev().find_map(|turn| match turn {
            ConversationTurn::Person(_) => None,
            ConversationTurn::Model(parts) => parts.iter().rev().find_map(|part| match part {
                AnswerPart::Call { result, .. } => result.as_ref(),
                AnswerPart::Thinking { .. }
                | AnswerPart::RedactedThinking(_)
                | AnswerPart::Text(_) => None,
            }),
        })
    }

    fn call_ids(&self) -> BTreeSet<String> {
        let mut ids = BTreeSet::new();
        for turn in &self.turns {
            if let ConversationTurn::Model(parts) = turn {
                ids.extend(parts.iter().filter_map(|part| match part {
                    AnswerPart::Call { call, .. } => Some(call.id.clone()),
                    AnswerPart::Thinking { .. }
                    | AnswerPart::RedactedThinking(_)
                    | AnswerPart::Text(_) => None,
                }));
            }
        }
        ids
    }
}

/// An id that is not used yet. Small servers give every call the same id, or none.
fn unused_call_id(used: &BTreeSet<String>, id: &str) -> String {
    let id = if id.is_empty() { "call" } else { id };
    if !used.contains(id) {
        return id.to_owned();
    }
    let mut number = 2_u64;
    loop {
        let fresh = format!("{id}_{number}");
        if !used.contains(&fresh) {
            return fresh;
        }
        number += 1;
    }
}
