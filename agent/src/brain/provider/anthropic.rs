//! Anthropic's Messages API: builds requests from conversations, and decodes its stream of events.

use std::collections::BTreeMap;

use pvp_protocol::payload::{PromptConfig, UsageStats};
use pvp_protocol::{ExtraFields, JsonObject};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::conversation::{AnswerPart, Conversation, ConversationTurn, ToolCall};
use super::super::tools::ToolDefinition;
use super::super::{AnswerFinish, BrainError, BrainErrorKind, BrainEvent};
use super::decoder::AnswerLimits;
use super::error_body::error_from_body;
use super::request::{call_input, merge_provider_params, sanitize_tool_name};
use super::{ProviderSettings, ThinkingMode};

/// The smallest thinking budget that the API accepts, in tokens.
const MIN_THINKING_BUDGET: u64 = 1024;

/// The body of a request.
pub(crate) fn request_body(
    settings: &ProviderSettings,
    conversation: &Conversation,
    tools: &[ToolDefinition],
    config: Option<&PromptConfig>,
) -> JsonObject {
    let max_tokens = config.and_then(|it| it.max_tokens);
    let max_tokens = max_tokens.unwrap_or_else(|| settings.max_answer_tokens());
    let mut body = json!({
        "model": config.and_then(|it| it.model.as_deref()).unwrap_or(&settings.model),
        "max_tokens": max_tokens,
        "messages": messages(conversation),
        "stream": true,
    });
    let system = conversation.system_prompt();
    if !system.trim().is_empty() {
        // The provider caches what does not change, up to here and up to the last message.
        let block = json!({"type": "text", "text": system, "cache_control": {"type": "ephemeral"}});
        body["system"] = json!([block]);
    }
    if !tools.is_empty() {
        let offer = |tool: &ToolDefinition| {
            json!({
                "name": tool.name, "description": tool.description, "input_schema": tool.schema,
            })
        };
        body["tools"] = tools.iter().map(offer).collect();
    }
    match config.and_then(|it| it.temperature) {
        // With thinking, the API accepts no temperature.
        Some(temperature) => body["temperature"] = json!(temperature),
        None => {
            if let Some(thinking) = thinking_parameter(settings.thinking, max_tokens) {
                body["thinking"] = thinking;
            }
        }
    }
    merge_provider_params(body, config)
}

/// The `thinking` parameter for an answer of at most this many tokens.
fn thinking_parameter(thinking: ThinkingMode, max_tokens: u64) -> Option<Value> {
    match thinking {
        ThinkingMode::Unspecified => None,
        // Not every model shows its thinking unless the request asks for it.
        ThinkingMode::Adaptive => Some(json!({"type": "adaptive", "display": "summarized"})),
        // The budget must be below the limit of the whole answer and not below the API's minimum.
        ThinkingMode::Budget(tokens) => {
            let budget = tokens
                .max(MIN_THINKING_BUDGET)
                .min(max_tokens.saturating_sub(1));
            (budget >= MIN_THINKING_BUDGET)
                .then(|| json!({"type": "enabled", "budget_tokens": budget}))
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
            ConversationTurn::Person(text) => push("user", text_block(text).into_iter().collect()),
            ConversationTurn::Model(parts) => {
                push("assistant", assistant_blocks(parts));
                push("user", tool_result_blocks(parts));
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

/// A text block; the API accepts no blank text.
fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn assistant_blocks(parts: &[AnswerPart]) -> Vec<Value> {
    let block = |part: &AnswerPart| match part {
        AnswerPart::Thinking { text, signature } => signature
            .as_ref()
            .map(|signature| json!({"type": "thinking", "thinking": text, "signature": signature})),
        AnswerPart::RedactedThinking(data) => {
            Some(json!({"type": "redacted_thinking", "data": data}))
        }
        AnswerPart::Text(text) => text_block(text),
        AnswerPart::Call { call, .. } => Some(json!({
            "type": "tool_use", "id": call.id, "name": sanitize_tool_name(&call.name), "input": call_input(call),
        })),
    };
    let mut blocks: Vec<_> = parts.iter().filter_map(block).collect();
    let thought = |block: &Value| block["type"] != "text" && block["type"] != "tool_use";
    // The API refuses an answer that ends in thinking, as an interrupted one does.
    while blocks.last().is_some_and(thought) {
        blocks.pop();
    }
    blocks
}

fn tool_result_blocks(parts: &[AnswerPart]) -> Vec<Value> {
    let block = |part: &AnswerPart| match part {
        AnswerPart::Call { call, result } => {
            let text = result.as_ref().map_or("Nothing was done.", |it| &it.text);
            let text = if text.is_empty() { "Nothing." } else { text };
            Some(json!({
                "type": "tool_result", "tool_use_id": call.id, "content": text,
                "is_error": result.as_ref().is_none_or(|it| it.failed),
            }))
        }
        AnswerPart::Thinking { .. } | AnswerPart::RedactedThinking(_) | AnswerPart::Text(_) => None,
    };
    parts.iter().filter_map(block).collect()
}

/// An event of the stream. Unknown events are ignored, as the API requires.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicEvent {
    MessageStart {
        message: AnthropicMessage,
    },
    ContentBlockStart {
        index: u64,
        content_block: AnthropicBlock,
    },
    ContentBlockDelta {
        index: u64,
        delta: AnthropicDelta,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        #[serde(default)]
        delta: AnthropicStop,
        usage: Option<AnthropicUsage>,
    },
    MessageStop,
    Error {
        error: Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct AnthropicMessage {
    model: Option<String>,
    usage: Option<AnthropicUsage>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicBlock {
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
enum AnthropicDelta {
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
struct AnthropicStop {
    stop_reason: Option<String>,
    stop_details: Option<AnthropicStopDetails>,
}

#[derive(Debug, Deserialize)]
struct AnthropicStopDetails {
    explanation: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct AnthropicUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

/// A block whose call or signature is not complete yet.
#[derive(Debug)]
enum UnfinishedBlock {
    Call {
        call: ToolCall,
        initial_input: Value,
    },
    Signature(String),
}

/// Turns the events of one stream into [`BrainEvent`]s.
#[derive(Debug, Default)]
pub(crate) struct AnthropicDecoder {
    /// Limits the size of the answer.
    limits: AnswerLimits,
    /// The calls and signatures that are not complete yet, by the index of their block.
    blocks: BTreeMap<u64, UnfinishedBlock>,
    /// The model that answers, once the stream has named it.
    model: Option<String>,
    /// The token counts so far.
    usage: AnthropicUsage,
    /// Why the answer stopped; `None` until the stream says so.
    stop_reason: Option<String>,
    /// Whether the answer has a complete call.
    has_call: bool,
}

impl AnthropicDecoder {
    pub(crate) fn push(&mut self, data: &str) -> Result<Vec<BrainEvent>, BrainError> {
        self.limits.add_bytes(data.len())?;
        let event = serde_json::from_str(data).map_err(|error| {
            let message = format!("the provider sent an invalid event: {error}");
            BrainError::new(BrainErrorKind::InvalidResponse, message)
        })?;
        Ok(match event {
            AnthropicEvent::MessageStart { message } => {
                self.model = message.model;
                self.add_usage(message.usage);
                Vec::new()
            }
            AnthropicEvent::ContentBlockStart {
                index,
                content_block,
            } => self.start_block(index, content_block),
            AnthropicEvent::ContentBlockDelta { index, delta } => self.apply_delta(index, delta),
            AnthropicEvent::ContentBlockStop { index } => self.finish_block(index),
            AnthropicEvent::MessageDelta { delta, usage } => {
                self.stop_reason = delta.stop_reason.or(self.stop_reason.take());
                self.add_usage(usage);
                let why = delta.stop_details.and_then(|it| it.explanation);
                non_empty(BrainEvent::Text, why.unwrap_or_default())
            }
            AnthropicEvent::MessageStop => self.finish()?,
            AnthropicEvent::Error { error } => {
                return Err(error_from_body(None, &json!({ "error": error })));
            }
            AnthropicEvent::Other => Vec::new(),
        })
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.stop_reason.is_some()
    }

    /// Ends the stream. The stop reason is the last thing that matters; after it, nothing is
    /// missing.
    pub(crate) fn finish(&mut self) -> Result<Vec<BrainEvent>, BrainError> {
        let Some(stop) = self.stop_reason.take() else {
            let message = "the provider's answer was cut off";
            return Err(BrainError::new(BrainErrorKind::ConnectionLost, message));
        };
        let open: Vec<_> = self.blocks.keys().copied().collect();
        let mut events: Vec<_> = open
            .into_iter()
            .flat_map(|index| self.finish_block(index))
            .collect();
        let finish = match stop.as_str() {
            // Only the provider's own tools pause a turn, and none is offered.
            "max_tokens" | "model_context_window_exceeded" | "pause_turn" => {
                AnswerFinish::MaxTokens
            }
            "refusal" => AnswerFinish::Withheld,
            _ if self.has_call => AnswerFinish::ToolUse,
            _ => AnswerFinish::Complete,
        };
        events.push(BrainEvent::Usage(self.usage_stats()));
        events.push(BrainEvent::Finished(finish));
        Ok(events)
    }

    fn start_block(&mut self, index: u64, block: AnthropicBlock) -> Vec<BrainEvent> {
        match block {
            AnthropicBlock::Text { text } => non_empty(BrainEvent::Text, text),
            AnthropicBlock::Thinking {
                thinking,
                signature,
            } => {
                self.blocks
                    .insert(index, UnfinishedBlock::Signature(signature));
                non_empty(BrainEvent::Thinking, thinking)
            }
            AnthropicBlock::RedactedThinking { data } => vec![BrainEvent::RedactedThinking(data)],
            AnthropicBlock::ToolUse { .. } if !self.limits.allow_call() => Vec::new(),
            AnthropicBlock::ToolUse { id, name, input } => {
                let call = ToolCall {
                    id,
                    name,
                    arguments: String::new(),
                };
                self.blocks.insert(
                    index,
                    UnfinishedBlock::Call {
                        call,
                        initial_input: input,
                    },
                );
                Vec::new()
            }
            AnthropicBlock::Other => Vec::new(),
        }
    }

    fn apply_delta(&mut self, index: u64, delta: AnthropicDelta) -> Vec<BrainEvent> {
        match (delta, self.blocks.get_mut(&index)) {
            (AnthropicDelta::Text { text }, _) => non_empty(BrainEvent::Text, text),
            (AnthropicDelta::Thinking { thinking }, _) => non_empty(BrainEvent::Thinking, thinking),
            (
                AnthropicDelta::Signature { signature: more },
                Some(UnfinishedBlock::Signature(signature)),
            ) => {
                signature.push_str(&more);
                Vec::new()
            }
            (
                AnthropicDelta::InputJson { partial_json },
                Some(UnfinishedBlock::Call { call, .. }),
            ) => {
                call.arguments.push_str(&partial_json);
                Vec::new()
            }
            // These belong to a kind of block that is ignored.
            (
                AnthropicDelta::Signature { .. }
                | AnthropicDelta::InputJson { .. }
                | AnthropicDelta::Other,
                _,
            ) => Vec::new(),
        }
    }

    fn finish_block(&mut self, index: u64) -> Vec<BrainEvent> {
        match self.blocks.remove(&index) {
            None => Vec::new(),
            Some(UnfinishedBlock::Signature(signature)) => {
                non_empty(BrainEvent::ThinkingSignature, signature)
            }
            Some(UnfinishedBlock::Call {
                mut call,
                initial_input,
            }) => {
                if call.arguments.is_empty() {
                    let input = initial_input.is_object().then_some(initial_input);
                    call.arguments = input.unwrap_or_else(|| json!({})).to_string();
                }
                self.has_call = true;
                vec![BrainEvent::ToolCall(call)]
            }
        }
    }

    /// Updates the token counts. They are totals for the answer so far, so the last ones count.
    fn add_usage(&mut self, usage: Option<AnthropicUsage>) {
        let Some(usage) = usage else { return };
        let total = &mut self.usage;
        total.input_tokens = usage.input_tokens.or(total.input_tokens);
        total.output_tokens = usage.output_tokens.or(total.output_tokens);
        total.cache_creation_input_tokens = usage
            .cache_creation_input_tokens
            .or(total.cache_creation_input_tokens);
        total.cache_read_input_tokens = usage
            .cache_read_input_tokens
            .or(total.cache_read_input_tokens);
    }

    fn usage_stats(&self) -> UsageStats {
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

/// An event, unless its text is empty.
fn non_empty(kind: fn(String) -> BrainEvent, text: String) -> Vec<BrainEvent> {
    if text.is_empty() {
        Vec::new()
    } else {
        vec![kind(text)]
    }
}
