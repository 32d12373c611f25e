//! Tests of requests and answers of both dialects, against recorded streams.

mod requests;
mod streams;

use pvp_protocol::ExtraFields;
use pvp_protocol::payload::UsageStats;
use serde_json::json;

use super::super::AnswerFinish;
use super::super::conversation::ToolCall;
use super::*;

const ANTHROPIC: &str = include_str!("../../../tests/wire/anthropic.sse");
const OPENAI: &str = include_str!("../../../tests/wire/openai.sse");

type DecodedEvents = Vec<Result<BrainEvent, BrainError>>;

fn decode<'a>(dialect: Dialect, pieces: impl IntoIterator<Item = &'a [u8]>) -> DecodedEvents {
    let mut decoder = AnswerDecoder::new(dialect);
    let mut events = Vec::new();
    let over = |events: &DecodedEvents| {
        matches!(events.last(), Some(Err(_) | Ok(BrainEvent::Finished(_))))
    };
    for piece in pieces {
        events.extend(decoder.push(piece));
        if over(&events) {
            return events;
        }
    }
    events.extend(decoder.finish());
    events
}

fn decode_text(dialect: Dialect, text: &str) -> DecodedEvents {
    decode(dialect, [text.as_bytes()])
}

fn text_event(text: &str) -> BrainEvent {
    BrainEvent::Text(text.to_owned())
}

fn thinking_event(text: &str) -> BrainEvent {
    BrainEvent::Thinking(text.to_owned())
}

fn call_event(id: &str, name: &str, arguments: &str) -> BrainEvent {
    BrainEvent::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    })
}

fn usage_event(model: &str, input: u64, thinking: Option<u64>, cached: u64) -> BrainEvent {
    let mut extra = ExtraFields::new();
    extra.insert("cached_input_tokens".to_owned(), json!(cached));
    BrainEvent::Usage(UsageStats {
        input_tokens: input,
        output_tokens: 89,
        thinking_tokens: thinking,
        cost_usd: None,
        model: Some(model.to_owned()),
        latency_ms: None,
        extra,
    })
}

fn anthropic_events() -> Vec<BrainEvent> {
    vec![
        thinking_event("Erst schauen, "),
        thinking_event("dann ändern 🦉"),
        BrainEvent::ThinkingSignature("EqQBCgIYAhIM1gbcDa9GJwZA2b3h".to_owned()),
        text_event("Okay, "),
        text_event("zwei Dinge – “gleich”."),
        call_event(
            "toolu_01A",
            "shell",
            r#"{"command": "ls -la", "purpose": "see"}"#,
        ),
        call_event("toolu_01B", "jobs", "{}"),
        usage_event("claude-test-1", 2572, None, 2000),
        BrainEvent::Finished(AnswerFinish::ToolUse),
    ]
}

fn openai_events() -> Vec<BrainEvent> {
    vec![
        thinking_event("Erst schauen 🦉"),
        BrainEvent::ThinkingSignature("reasoning_content".to_owned()),
        text_event("Okay, zwei"),
        text_event(" Dinge – “gleich”."),
        call_event(
            "call_A",
            "shell",
            r#"{"command": "ls -la", "purpose": "see"}"#,
        ),
        call_event("call_B", "jobs", "{}"),
        usage_event("gpt-test-1", 572, Some(40), 512),
        BrainEvent::Finished(AnswerFinish::ToolUse),
    ]
}

fn recordings() -> [(Dialect, &'static str, Vec<BrainEvent>); 2] {
    [
        (Dialect::Anthropic, ANTHROPIC, anthropic_events()),
        (Dialect::OpenAi, OPENAI, openai_events()),
    ]
}
