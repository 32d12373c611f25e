//! Chat Completions of OpenAI and many local servers: builds requests from conversations, and
//! decodes the stream of chunks.

use pvp_protocol::payload::{PromptConfig, UsageStats};
use pvp_protocol::{ExtraFields, JsonObject};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::conversation::{AnswerPart, Conversation, ConversationTurn, ToolCall};
use super::super::tools::ToolDefinition;
use super::super::{AnswerFinish, BrainError, BrainErrorKind, BrainEvent};
use super::ProviderSettings;
use super::decoder::AnswerLimits;
use super::error_body::{error_from_body, parse_error_body};
use super::request::{call_input, merge_provider_params, sanitize_tool_name};

/// Servers that send their thinking in this field want it back in the same field while they work on
/// the same prompt. OpenAI itself has no such field and never sends it.
const REASONING_FIELD: &str = "reasoning_content";

/// The body of a request. `official` is true for OpenAI's own server.
pub(crate) fn request_body(
    settings: &ProviderSettings,
    official: bool,
    conversation: &Conversation,
    tools: &[ToolDefinition],
    config: Option<&PromptConfig>,
) -> JsonObject {
    let mut body = json!({
        "model": config.and_then(|it| it.model.as_deref()).unwrap_or(&settings.model),
        "messages": messages(conversation),
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if !tools.is_empty() {
        let offer = |tool: &ToolDefinition| {
            let function = json!({
                "name": tool.name, "description": tool.description, "parameters": tool.schema,
            });
            json!({"type": "function", "function": function})
        };
        body["tools"] = tools.iter().map(offer).collect();
    }
    let max = config.and_then(|it| it.max_tokens).or(settings.max_tokens);
    if let Some(max) = max {
        // OpenAI's newer models refuse the old name, and small servers know only the old one.
        let name = if official {
            "max_completion_tokens"
        } else {
            "max_tokens"
        };
        body[name] = json!(max);
    }
    if let Some(temperature) = config.and_then(|it| it.temperature) {
        body["temperature"] = json!(temperature);
    }
    merge_provider_params(body, config)
}

fn messages(conversation: &Conversation) -> Vec<Value> {
    let mut messages = Vec::new();
    let system = conversation.system_prompt();
    if !system.trim().is_empty() {
        messages.push(json!({"role": "system", "content": system}));
    }
    let is_prompt = |turn: &ConversationTurn| matches!(turn, ConversationTurn::Person(_));
    let prompt = conversation
        .turns()
        .iter()
        .rposition(is_prompt)
        .unwrap_or(0);
    for (index, turn) in conversation.turns().iter().enumerate() {
        match turn {
            ConversationTurn::Person(text) => push_user_message(&mut messages, text),
            ConversationTurn::Model(parts) => {
                messages.extend(assistant_message(parts, index > prompt));
                messages.extend(tool_messages(parts));
            }
        }
    }
    messages
}

/// Adds a user message. Some models require alternating roles, so two prompts in a row are joined.
fn push_user_message(messages: &mut Vec<Value>, text: &str) {
    if let Some(last) = messages.last_mut().filter(|it| it["role"] == "user") {
        let before = last["content"].as_str().unwrap_or_default();
        last["content"] = json!(format!("{before}\n\n{text}"));
    } else {
        messages.push(json!({"role": "user", "content": text}));
    }
}

fn assistant_message(parts: &[AnswerPart], current: bool) -> Option<Value> {
    let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
    for part in parts {
        match part {
            AnswerPart::Text(more) => text.push_str(more),
            AnswerPart::Thinking {
                text,
                signature: Some(signature),
            } if signature == REASONING_FIELD => thinking.push_str(text),
            AnswerPart::Thinking { .. } | AnswerPart::RedactedThinking(_) => {}
            AnswerPart::Call { call, .. } => {
                let arguments = Value::Object(call_input(call)).to_string();
                let function =
                    json!({"name": sanitize_tool_name(&call.name), "arguments": arguments});
                calls.push(json!({"id": call.id, "type": "function", "function": function}));
            }
        }
    }
    if text.is_empty() && calls.is_empty() {
        return None;
    }
    let mut message = json!({"role": "assistant", "content": text});
    if text.is_empty() {
        message["content"] = Value::Null;
    }
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    if current && !thinking.is_empty() {
        message[REASONING_FIELD] = json!(thinking);
    }
    Some(message)
}

fn tool_messages(parts: &[AnswerPart]) -> Vec<Value> {
    let message = |part: &AnswerPart| match part {
        AnswerPart::Call { call, result } => {
            let text = result.as_ref().map_or("Nothing was done.", |it| &it.text);
            Some(json!({"role": "tool", "tool_call_id": call.id, "content": text}))
        }
        AnswerPart::Thinking { .. } | AnswerPart::RedactedThinking(_) | AnswerPart::Text(_) => None,
    };
    parts.iter().filter_map(message).collect()
}

#[derive(Debug, Deserialize)]
struct OpenAiChunk {
    object: Option<String>,
    model: Option<String>,
    choices: Option<Vec<OpenAiChoice>>,
    usage: Option<OpenAiUsage>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct OpenAiChoice {
    #[serde(default)]
    index: u64,
    delta: Option<OpenAiDelta>,
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct OpenAiDelta {
    content: Option<Value>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<Value>,
    tool_calls: Option<Vec<OpenAiCallDelta>>,
}

#[derive(Debug, Deserialize)]
struct OpenAiCallDelta {
    index: Option<u64>,
    id: Option<String>,
    function: Option<OpenAiFunctionDelta>,
}

#[derive(Debug, Deserialize)]
struct OpenAiFunctionDelta {
    name: Option<String>,
    arguments: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
struct OpenAiUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    completion_tokens_details: Option<OpenAiCompletionDetails>,
    prompt_tokens_details: Option<OpenAiPromptDetails>,
}

#[derive(Debug, Default, Deserialize)]
struct OpenAiCompletionDetails {
    reasoning_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct OpenAiPromptDetails {
    cached_tokens: Option<u64>,
}

/// Turns the chunks of one stream into [`BrainEvent`]s.
#[derive(Debug, Default)]
pub(crate) struct OpenAiDecoder {
    /// Limits the size of the answer.
    limits: AnswerLimits,
    /// The calls so far, each with the index that the server gave it.
    calls: Vec<(Option<u64>, ToolCall)>,
    /// The model that answers, once the stream has named it.
    model: Option<String>,
    /// The token counts, once the stream has sent them.
    usage: Option<OpenAiUsage>,
    /// Why the answer stopped; `None` until the stream says so.
    finish_reason: Option<String>,
    /// Whether thinking arrived in [`REASONING_FIELD`] and has no signature event yet.
    unsigned_reasoning: bool,
    /// Whether any part of the answer arrived.
    answered: bool,
    /// Whether `[DONE]` arrived.
    done: bool,
}

impl OpenAiDecoder {
    pub(crate) fn push(&mut self, data: &str) -> Result<Vec<BrainEvent>, BrainError> {
        self.limits.add_bytes(data.len())?;
        if data.trim() == "[DONE]" {
            self.done = true;
            return self.finish();
        }
        let chunk: OpenAiChunk = serde_json::from_str(data).map_err(|error| {
            let message = format!("the provider sent an invalid chunk: {error}");
            BrainError::new(BrainErrorKind::InvalidResponse, message)
        })?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(error_from_body(None, &json!({ "error": error })));
        }
        if chunk.object.as_deref() == Some("error") {
            return Err(error_from_body(None, &parse_error_body(data)));
        }
        self.model = chunk.model.or(self.model.take());
        self.usage = chunk.usage.or(self.usage.take());
        let mut events = Vec::new();
        // Only one choice is requested.
        let choices = chunk.choices.unwrap_or_default().into_iter();
        for choice in choices.filter(|choice| choice.index == 0) {
            if let Some(delta) = choice.delta {
                self.apply_delta(delta, &mut events);
            }
            let reason = choice.finish_reason.filter(|reason| !reason.is_empty());
            self.finish_reason = reason.or(self.finish_reason.take());
        }
        self.answered |= !events.is_empty() || !self.calls.is_empty();
        Ok(events)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// Ends the stream. Some servers leave out `[DONE]`, some the finish reason.
    pub(crate) fn finish(&mut self) -> Result<Vec<BrainEvent>, BrainError> {
        if self.finish_reason.is_none() && !(self.done && self.answered) {
            let message = "the provider's answer was cut off";
            return Err(BrainError::new(BrainErrorKind::ConnectionLost, message));
        }
        if let Some(why @ ("error" | "insufficient_system_resource")) =
            self.finish_reason.as_deref()
        {
            let message = format!("the provider ended its answer early ({why})");
            return Err(BrainError::new(
                BrainErrorKind::Busy { after: None },
                message,
            ));
        }
        let mut events = Vec::new();
        self.push_signature(&mut events);
        let calls = std::mem::take(&mut self.calls);
        let called = !calls.is_empty();
        events.extend(
            calls
                .into_iter()
                .map(|(_, call)| BrainEvent::ToolCall(call)),
        );
        if let Some(usage) = self.usage.take() {
            events.push(BrainEvent::Usage(self.usage_stats(&usage)));
        }
        let finish = match self.finish_reason.as_deref() {
            Some("length" | "model_length") => AnswerFinish::MaxTokens,
            Some("content_filter") => AnswerFinish::Withheld,
            // Small servers say `stop` for calls too.
            _ if called => AnswerFinish::ToolUse,
            _ => AnswerFinish::Complete,
        };
        events.push(BrainEvent::Finished(finish));
        Ok(events)
    }

    fn apply_delta(&mut self, delta: OpenAiDelta, events: &mut Vec<BrainEvent>) {
        let filled = |text: &String| !text.is_empty();
        if let Some(text) = delta.reasoning_content.filter(filled) {
            self.unsigned_reasoning = true;
            events.push(BrainEvent::Thinking(text));
        } else if let Some(Value::String(text)) = delta.reasoning
            && filled(&text)
        {
            events.push(BrainEvent::Thinking(text));
        }
        for text in [
            content_text(delta.content),
            delta.refusal.unwrap_or_default(),
        ] {
            if filled(&text) {
                self.push_signature(events);
                events.push(BrainEvent::Text(text));
            }
        }
        for call in delta.tool_calls.unwrap_or_default() {
            self.apply_call_delta(call);
        }
    }

    fn push_signature(&mut self, events: &mut Vec<BrainEvent>) {
        if std::mem::take(&mut self.unsigned_reasoning) {
            events.push(BrainEvent::ThinkingSignature(REASONING_FIELD.to_owned()));
        }
    }

    fn apply_call_delta(&mut self, delta: OpenAiCallDelta) {
        let id = delta.id.unwrap_or_default();
        let (name, arguments) = match delta.function {
            Some(function) => (function.name.unwrap_or_default(), function.arguments),
            None => (String::new(), None),
        };
        let continues = |(index, call): &(Option<u64>, ToolCall)| {
            (delta.index.is_none() || *index == delta.index) && continues_call(call, &id, &name)
        };
        let position = match self.calls.iter().rposition(continues) {
            Some(position) => position,
            None if !self.limits.allow_call() => return,
            None => {
                let (id, name, arguments) = (String::new(), String::new(), String::new());
                let call = ToolCall {
                    id,
                    name,
                    arguments,
                };
                self.calls.push((delta.index, call));
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[position].1;
        if call.id.is_empty() {
            call.id = id;
        }
        if call.name.is_empty() {
            call.name = name;
        }
        match arguments {
            Some(Value::String(more)) => call.arguments.push_str(&more),
            Some(Value::Object(whole)) => call.arguments = Value::Object(whole).to_string(),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) | None => {}
        }
    }

    fn usage_stats(&self, usage: &OpenAiUsage) -> UsageStats {
        let details = usage.prompt_tokens_details.as_ref();
        let mut extra = ExtraFields::new();
        if let Some(cached) = details.and_then(|it| it.cached_tokens).filter(|it| *it > 0) {
            extra.insert("cached_input_tokens".to_owned(), json!(cached));
        }
        let details = usage.completion_tokens_details.as_ref();
        UsageStats {
            input_tokens: usage.prompt_tokens.unwrap_or(0),
            output_tokens: usage.completion_tokens.unwrap_or(0),
            thinking_tokens: details.and_then(|it| it.reasoning_tokens),
            cost_usd: None,
            model: self.model.clone(),
            latency_ms: None,
            extra,
        }
    }
}

/// Whether a delta with this id and this name continues a call. Some servers number every call 0,
/// some number none, some leave out ids, and some make up a new id for each delta.
fn continues_call(call: &ToolCall, id: &str, name: &str) -> bool {
    let known = !id.is_empty() && !call.id.is_empty();
    match known {
        true => call.id == id || name.is_empty(),
        false => name.is_empty() || call.name.is_empty() || !has_complete_arguments(call),
    }
}

fn has_complete_arguments(call: &ToolCall) -> bool {
    !call.arguments.is_empty() && call.parse_arguments().is_ok()
}

/// The text of a content field: a string, or a list of parts that contain text.
fn content_text(content: Option<Value>) -> String {
    match content {
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => parts
            .iter()
            .filter_map(|part| part.get("text")?.as_str())
            .collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            String::new()
        }
    }
}
