//! Chat Completions as OpenAI and many local servers speak it: a conversation as its request, its
//! chunks as our events.

use pvp_protocol::payload::{PromptConfig, UsageStats};
use pvp_protocol::{ExtraFields, JsonObject};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::conversation::{Conversation, Part, ToolCall, Turn};
use super::super::tools::ToolOffer;
use super::super::{BrainError, BrainEvent, Finish, Trouble};
use super::Settings;
use super::decoding::Measure;
use super::failure::{failure, said as said_of};
use super::request::{input, merge, plain_name};

/// Servers that send their thinking under this name want it back under the same name, as long as
/// they work on the same prompt. OpenAI itself knows no such field, and never sends it.
const WANTED_BACK: &str = "reasoning_content";

/// The body of a request. `official` is OpenAI's own server.
pub(crate) fn body(
    settings: &Settings,
    official: bool,
    conversation: &Conversation,
    tools: &[ToolOffer],
    config: Option<&PromptConfig>,
) -> JsonObject {
    let mut body = json!({
        "model": config.and_then(|it| it.model.as_deref()).unwrap_or(&settings.model),
        "messages": messages(conversation),
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if !tools.is_empty() {
        let offer = |tool: &ToolOffer| {
            let function = json!({
                "name": tool.name, "description": tool.description, "parameters": tool.schema,
            });
            json!({"type": "function", "function": function})
        };
        body["tools"] = tools.iter().map(offer).collect();
    }
    let max = config.and_then(|it| it.max_tokens).or(settings.max_tokens);
    if let Some(max) = max {
        // OpenAI's newer models refuse the old name, and small servers know only that.
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
    merge(body, config)
}

fn messages(conversation: &Conversation) -> Vec<Value> {
    let mut messages = Vec::new();
    let system = conversation.system();
    if !system.trim().is_empty() {
        messages.push(json!({"role": "system", "content": system}));
    }
    let person = |turn: &Turn| matches!(turn, Turn::Person(_));
    let prompt = conversation.turns().iter().rposition(person).unwrap_or(0);
    for (index, turn) in conversation.turns().iter().enumerate() {
        match turn {
            Turn::Person(text) => ask(&mut messages, text),
            Turn::Model(parts) => {
                messages.extend(said(parts, index > prompt));
                messages.extend(results(parts));
            }
        }
    }
    messages
}

/// Some models know only people and themselves in turn, so that two prompts in a row are one.
fn ask(messages: &mut Vec<Value>, text: &str) {
    if let Some(last) = messages.last_mut().filter(|it| it["role"] == "user") {
        let before = last["content"].as_str().unwrap_or_default();
        last["content"] = json!(format!("{before}\n\n{text}"));
    } else {
        messages.push(json!({"role": "user", "content": text}));
    }
}

fn said(parts: &[Part], current: bool) -> Option<Value> {
    let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
    for part in parts {
        match part {
            Part::Text(more) => text.push_str(more),
            Part::Thinking {
                text,
                seal: Some(seal),
            } if seal == WANTED_BACK => thinking.push_str(text),
            Part::Thinking { .. } | Part::Hidden(_) => {}
            Part::Call { call, .. } => {
                let arguments = Value::Object(input(call)).to_string();
                let function = json!({"name": plain_name(&call.name), "arguments": arguments});
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
        message[WANTED_BACK] = json!(thinking);
    }
    Some(message)
}

fn results(parts: &[Part]) -> Vec<Value> {
    let message = |part: &Part| match part {
        Part::Call { call, result } => {
            let text = result.as_ref().map_or("Nothing was done.", |it| &it.text);
            Some(json!({"role": "tool", "tool_call_id": call.id, "content": text}))
        }
        Part::Thinking { .. } | Part::Hidden(_) | Part::Text(_) => None,
    };
    parts.iter().filter_map(message).collect()
}

#[derive(Debug, Deserialize)]
struct Chunk {
    object: Option<String>,
    model: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    index: u64,
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Delta {
    content: Option<Value>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<Value>,
    tool_calls: Option<Vec<CallDelta>>,
}

#[derive(Debug, Deserialize)]
struct CallDelta {
    index: Option<u64>,
    id: Option<String>,
    function: Option<FunctionDelta>,
}

#[derive(Debug, Deserialize)]
struct FunctionDelta {
    name: Option<String>,
    arguments: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    completion_tokens_details: Option<CompletionDetails>,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Debug, Default, Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

/// Turns the chunks of one stream into our events.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    measure: Measure,
    calls: Vec<(Option<u64>, ToolCall)>,
    model: Option<String>,
    usage: Option<Usage>,
    finish: Option<String>,
    /// Something came under the name that is wanted back, and is not sealed yet.
    unsealed: bool,
    /// Something came of the answer itself.
    answered: bool,
    /// The last word came.
    done: bool,
}

impl Decoder {
    pub(crate) fn take(&mut self, data: &str) -> Result<Vec<BrainEvent>, BrainError> {
        self.measure.add(data.len())?;
        if data.trim() == "[DONE]" {
            self.done = true;
            return self.end();
        }
        let chunk: Chunk = serde_json::from_str(data).map_err(|error| {
            let message = format!("the provider sent a chunk that makes no sense: {error}");
            BrainError::new(Trouble::Nonsense, message)
        })?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(failure(None, &json!({ "error": error })));
        }
        if chunk.object.as_deref() == Some("error") {
            return Err(failure(None, &said_of(data)));
        }
        self.model = chunk.model.or(self.model.take());
        self.usage = chunk.usage.or(self.usage.take());
        let mut events = Vec::new();
        // Only one answer is asked for.
        let choices = chunk.choices.unwrap_or_default().into_iter();
        for choice in choices.filter(|choice| choice.index == 0) {
            if let Some(delta) = choice.delta {
                self.more(delta, &mut events);
            }
            let reason = choice.finish_reason.filter(|reason| !reason.is_empty());
            self.finish = reason.or(self.finish.take());
        }
        self.answered |= !events.is_empty() || !self.calls.is_empty();
        Ok(events)
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.finish.is_some()
    }

    /// The end of the stream. Some servers leave out the last word, some the reason.
    pub(crate) fn end(&mut self) -> Result<Vec<BrainEvent>, BrainError> {
        if self.finish.is_none() && !(self.done && self.answered) {
            let message = "the provider's answer broke off in the middle";
            return Err(BrainError::new(Trouble::Lost, message));
        }
        if let Some(why @ ("error" | "insufficient_system_resource")) = self.finish.as_deref() {
            let message = format!("the provider broke its answer off ({why})");
            return Err(BrainError::new(Trouble::Busy { after: None }, message));
        }
        let mut events = Vec::new();
        self.seal(&mut events);
        let calls = std::mem::take(&mut self.calls);
        let called = !calls.is_empty();
        events.extend(calls.into_iter().map(|(_, call)| BrainEvent::Call(call)));
        if let Some(usage) = self.usage.take() {
            events.push(BrainEvent::Usage(self.stats(&usage)));
        }
        let finish = match self.finish.as_deref() {
            Some("length" | "model_length") => Finish::MaxTokens,
            Some("content_filter") => Finish::Withheld,
            // Small servers say `stop` for calls too.
            _ if called => Finish::ToolUse,
            _ => Finish::Complete,
        };
        events.push(BrainEvent::Finished(finish));
        Ok(events)
    }

    fn more(&mut self, delta: Delta, events: &mut Vec<BrainEvent>) {
        let filled = |text: &String| !text.is_empty();
        if let Some(text) = delta.reasoning_content.filter(filled) {
            self.unsealed = true;
            events.push(BrainEvent::Thinking(text));
        } else if let Some(Value::String(text)) = delta.reasoning
            && filled(&text)
        {
            events.push(BrainEvent::Thinking(text));
        }
        for text in [text_of(delta.content), delta.refusal.unwrap_or_default()] {
            if filled(&text) {
                self.seal(events);
                events.push(BrainEvent::Text(text));
            }
        }
        for call in delta.tool_calls.unwrap_or_default() {
            self.more_of_a_call(call);
        }
    }

    fn seal(&mut self, events: &mut Vec<BrainEvent>) {
        if std::mem::take(&mut self.unsealed) {
            events.push(BrainEvent::ThinkingSeal(WANTED_BACK.to_owned()));
        }
    }

    fn more_of_a_call(&mut self, delta: CallDelta) {
        let id = delta.id.unwrap_or_default();
        let (name, arguments) = match delta.function {
            Some(function) => (function.name.unwrap_or_default(), function.arguments),
            None => (String::new(), None),
        };
        let goes_on = |(index, call): &(Option<u64>, ToolCall)| {
            (delta.index.is_none() || *index == delta.index) && continues(call, &id, &name)
        };
        let place = match self.calls.iter().rposition(goes_on) {
            Some(place) => place,
            None if !self.measure.keeps_call() => return,
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
        let call = &mut self.calls[place].1;
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

    fn stats(&self, usage: &Usage) -> UsageStats {
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

/// Whether a piece with this id and this name goes on with a call. Some servers number every call
/// 0, some number none, some leave out ids, and some make up an id a piece.
fn continues(call: &ToolCall, id: &str, name: &str) -> bool {
    let known = !id.is_empty() && !call.id.is_empty();
    match known {
        true => call.id == id || name.is_empty(),
        false => name.is_empty() || call.name.is_empty() || !is_whole(call),
    }
}

fn is_whole(call: &ToolCall) -> bool {
    !call.arguments.is_empty() && call.read().is_ok()
}

/// Text, or a list of parts with text in them.
fn text_of(content: Option<Value>) -> String {
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
