//! The Messages API of Anthropic: a conversation as its request, its events as ours.

use std::collections::BTreeMap;

use pvp_protocol::payload::{PromptConfig, UsageStats};
use pvp_protocol::{ExtraFields, JsonObject};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::conversation::{Conversation, Part, ToolCall, Turn};
use super::super::tools::ToolOffer;
use super::super::{BrainError, BrainEvent, Finish, Trouble};
use super::decoding::Measure;
use super::failure::failure;
use super::request::{input, merge, plain_name};
use super::{Settings, Thinking};

/// The smallest budget for thinking that the API takes, in tokens.
const LEAST_BUDGET: u64 = 1024;

/// The body of a request.
pub(crate) fn body(
    settings: &Settings,
    conversation: &Conversation,
    tools: &[ToolOffer],
    config: Option<&PromptConfig>,
) -> JsonObject {
    let most = config.and_then(|it| it.max_tokens);
    let most = most.unwrap_or_else(|| settings.answer_tokens());
    let mut body = json!({
        "model": config.and_then(|it| it.model.as_deref()).unwrap_or(&settings.model),
        "max_tokens": most,
        "messages": messages(conversation),
        "stream": true,
    });
    let system = conversation.system();
    if !system.trim().is_empty() {
        // What never changes is remembered by the provider, up to here and up to the last message.
        let block = json!({"type": "text", "text": system, "cache_control": {"type": "ephemeral"}});
        body["system"] = json!([block]);
    }
    if !tools.is_empty() {
        let offer = |tool: &ToolOffer| {
            json!({
                "name": tool.name, "description": tool.description, "input_schema": tool.schema,
            })
        };
        body["tools"] = tools.iter().map(offer).collect();
    }
    match config.and_then(|it| it.temperature) {
        // With thinking, the API takes no temperature.
        Some(temperature) => body["temperature"] = json!(temperature),
        None => {
            if let Some(thinking) = thinking(settings.thinking, most) {
                body["thinking"] = thinking;
            }
        }
    }
    merge(body, config)
}

/// What is said about thinking in an answer of this many tokens.
fn thinking(thinking: Thinking, most: u64) -> Option<Value> {
    match thinking {
        Thinking::Unsaid => None,
        // Without being asked for, thinking is not shown by every model.
        Thinking::Adaptive => Some(json!({"type": "adaptive", "display": "summarized"})),
        // The API wants a budget below the whole, and none at all below its least.
        Thinking::Budget(tokens) => {
            let budget = tokens.max(LEAST_BUDGET).min(most.saturating_sub(1));
            (budget >= LEAST_BUDGET).then(|| json!({"type": "enabled", "budget_tokens": budget}))
        }
    }
}

fn messages(conversation: &Conversation) -> Vec<Value> {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut push = |role: &'static str, mut blocks: Vec<Value>| match messages.last_mut() {
        _ if blocks.is_empty() => {}
        Some((last, before)) if *last == role => before.append(&mut blocks),
        Some(_) | None => messages.push((role, blocks)),
    };
    for turn in conversation.turns() {
        match turn {
            Turn::Person(text) => push("user", text_block(text).into_iter().collect()),
            Turn::Model(parts) => {
                push("assistant", said(parts));
                push("user", results(parts));
            }
        }
    }
    if let Some(block) = messages
        .last_mut()
        .and_then(|(_, blocks)| blocks.last_mut())
    {
        block["cache_control"] = json!({"type": "ephemeral"});
    }
    let message = |(role, blocks)| json!({"role": role, "content": blocks});
    messages.into_iter().map(message).collect()
}

/// The API takes no blank text.
fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn said(parts: &[Part]) -> Vec<Value> {
    let block = |part: &Part| match part {
        Part::Thinking { text, seal } => seal
            .as_ref()
            .map(|seal| json!({"type": "thinking", "thinking": text, "signature": seal})),
        Part::Hidden(data) => Some(json!({"type": "redacted_thinking", "data": data})),
        Part::Text(text) => text_block(text),
        Part::Call { call, .. } => Some(json!({
            "type": "tool_use", "id": call.id, "name": plain_name(&call.name), "input": input(call),
        })),
    };
    let mut blocks: Vec<_> = parts.iter().filter_map(block).collect();
    let thought = |block: &Value| block["type"] != "text" && block["type"] != "tool_use";
    // An answer may not end in thinking, which one that was interrupted does.
    while blocks.last().is_some_and(thought) {
        blocks.pop();
    }
    blocks
}

fn results(parts: &[Part]) -> Vec<Value> {
    let block = |part: &Part| match part {
        Part::Call { call, result } => {
            let text = result.as_ref().map_or("Nothing was done.", |it| &it.text);
            let text = if text.is_empty() { "Nothing." } else { text };
            Some(json!({
                "type": "tool_result", "tool_use_id": call.id, "content": text,
                "is_error": result.as_ref().is_none_or(|it| it.failed),
            }))
        }
        Part::Thinking { .. } | Part::Hidden(_) | Part::Text(_) => None,
    };
    parts.iter().filter_map(block).collect()
}

/// What comes in a stream. Whatever else comes is let pass, as the API asks for.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: Message,
    },
    ContentBlockStart {
        index: u64,
        content_block: Block,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        #[serde(default)]
        delta: Stop,
        usage: Option<Usage>,
    },
    MessageStop,
    Error {
        error: Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct Message {
    model: Option<String>,
    usage: Option<Usage>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        #[serde(default)]
        text: String,
    },
    Thinking {
        #[serde(default)]
        thinking: String,
        #[serde(default)]
        signature: String,
    },
    RedactedThinking {
        data: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
    #[serde(other)]
    Other,
}

#[derive(Debug, Default, Deserialize)]
struct Stop {
    stop_reason: Option<String>,
    stop_details: Option<StopDetails>,
}

#[derive(Debug, Deserialize)]
struct StopDetails {
    explanation: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Usage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

/// A call or a seal that is not whole yet.
#[derive(Debug)]
enum Unfinished {
    Call { call: ToolCall, given: Value },
    Seal(String),
}

/// Turns the events of one stream into ours.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    measure: Measure,
    blocks: BTreeMap<u64, Unfinished>,
    model: Option<String>,
    usage: Usage,
    stop: Option<String>,
    called: bool,
}

impl Decoder {
    pub(crate) fn take(&mut self, data: &str) -> Result<Vec<BrainEvent>, BrainError> {
        self.measure.add(data.len())?;
        let event = serde_json::from_str(data).map_err(|error| {
            let message = format!("the provider sent an event that makes no sense: {error}");
            BrainError::new(Trouble::Nonsense, message)
        })?;
        Ok(match event {
            Event::MessageStart { message } => {
                self.model = message.model;
                self.count(message.usage);
                Vec::new()
            }
            Event::ContentBlockStart {
                index,
                content_block,
            } => self.start(index, content_block),
            Event::ContentBlockDelta { index, delta } => self.more(index, delta),
            Event::ContentBlockStop { index } => self.stop(index),
            Event::MessageDelta { delta, usage } => {
                self.stop = delta.stop_reason.or(self.stop.take());
                self.count(usage);
                let why = delta.stop_details.and_then(|it| it.explanation);
                some(BrainEvent::Text, why.unwrap_or_default())
            }
            Event::MessageStop => self.end()?,
            Event::Error { error } => return Err(failure(None, &json!({ "error": error }))),
            Event::Other => Vec::new(),
        })
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.stop.is_some()
    }

    /// The end of the stream. A stop reason is the last thing that matters, so that nothing is
    /// missing if it came.
    pub(crate) fn end(&mut self) -> Result<Vec<BrainEvent>, BrainError> {
        let Some(stop) = self.stop.take() else {
            let message = "the provider's answer broke off in the middle";
            return Err(BrainError::new(Trouble::Lost, message));
        };
        let open: Vec<_> = self.blocks.keys().copied().collect();
        let mut events: Vec<_> = open
            .into_iter()
            .flat_map(|index| self.stop(index))
            .collect();
        let finish = match stop.as_str() {
            // Only tools of the provider's own pause a turn, and none is offered.
            "max_tokens" | "model_context_window_exceeded" | "pause_turn" => Finish::MaxTokens,
            "refusal" => Finish::Withheld,
            _ if self.called => Finish::ToolUse,
            _ => Finish::Complete,
        };
        events.push(BrainEvent::Usage(self.stats()));
        events.push(BrainEvent::Finished(finish));
        Ok(events)
    }

    fn start(&mut self, index: u64, block: Block) -> Vec<BrainEvent> {
        match block {
            Block::Text { text } => some(BrainEvent::Text, text),
            Block::Thinking {
                thinking,
                signature,
            } => {
                self.blocks.insert(index, Unfinished::Seal(signature));
                some(BrainEvent::Thinking, thinking)
            }
            Block::RedactedThinking { data } => vec![BrainEvent::HiddenThinking(data)],
            Block::ToolUse { .. } if !self.measure.keeps_call() => Vec::new(),
            Block::ToolUse { id, name, input } => {
                let call = ToolCall {
                    id,
                    name,
                    arguments: String::new(),
                };
                self.blocks
                    .insert(index, Unfinished::Call { call, given: input });
                Vec::new()
            }
            Block::Other => Vec::new(),
        }
    }

    fn more(&mut self, index: u64, delta: Delta) -> Vec<BrainEvent> {
        match (delta, self.blocks.get_mut(&index)) {
            (Delta::Text { text }, _) => some(BrainEvent::Text, text),
            (Delta::Thinking { thinking }, _) => some(BrainEvent::Thinking, thinking),
            (Delta::Signature { signature }, Some(Unfinished::Seal(seal))) => {
                seal.push_str(&signature);
                Vec::new()
            }
            (Delta::InputJson { partial_json }, Some(Unfinished::Call { call, .. })) => {
                call.arguments.push_str(&partial_json);
                Vec::new()
            }
            // Of a kind of block that is let pass.
            (Delta::Signature { .. } | Delta::InputJson { .. } | Delta::Other, _) => Vec::new(),
        }
    }

    fn stop(&mut self, index: u64) -> Vec<BrainEvent> {
        match self.blocks.remove(&index) {
            None => Vec::new(),
            Some(Unfinished::Seal(seal)) => some(BrainEvent::ThinkingSeal, seal),
            Some(Unfinished::Call { mut call, given }) => {
                if call.arguments.is_empty() {
                    let given = given.is_object().then_some(given);
                    call.arguments = given.unwrap_or_else(|| json!({})).to_string();
                }
                self.called = true;
                vec![BrainEvent::Call(call)]
            }
        }
    }

    /// Counts are of the whole answer so far, so that the last ones hold.
    fn count(&mut self, usage: Option<Usage>) {
        let Some(usage) = usage else { return };
        let ours = &mut self.usage;
        ours.input_tokens = usage.input_tokens.or(ours.input_tokens);
        ours.output_tokens = usage.output_tokens.or(ours.output_tokens);
        ours.cache_creation_input_tokens = usage
            .cache_creation_input_tokens
            .or(ours.cache_creation_input_tokens);
        ours.cache_read_input_tokens = usage
            .cache_read_input_tokens
            .or(ours.cache_read_input_tokens);
    }

    fn stats(&self) -> UsageStats {
        let usage = &self.usage;
        let cached = usage.cache_read_input_tokens.unwrap_or(0);
        let mut extra = ExtraFields::new();
        if cached > 0 {
            extra.insert("cached_input_tokens".to_owned(), json!(cached));
        }
        UsageStats {
            input_tokens: usage
                .input_tokens
                .unwrap_or(0)
                .saturating_add(usage.cache_creation_input_tokens.unwrap_or(0))
                .saturating_add(cached),
            output_tokens: usage.output_tokens.unwrap_or(0),
            thinking_tokens: None,
            cost_usd: None,
            model: self.model.clone(),
            latency_ms: None,
            extra,
        }
    }
}

/// An event, unless there is nothing in it.
fn some(kind: fn(String) -> BrainEvent, text: String) -> Vec<BrainEvent> {
    if text.is_empty() {
        Vec::new()
    } else {
        vec![kind(text)]
    }
}
