//! What providers send and are sent, against recorded streams.

mod requests;
mod streams;

use pvp_protocol::ExtraFields;
use pvp_protocol::payload::UsageStats;
use serde_json::json;

use super::super::Finish;
use super::super::conversation::ToolCall;
use super::*;

const ANTHROPIC: &str = include_str!("../../../tests/wire/anthropic.sse");
const OPENAI: &str = include_str!("../../../tests/wire/openai.sse");

type Events = Vec<Result<BrainEvent, BrainError>>;

fn decode<'a>(dialect: Dialect, pieces: impl IntoIterator<Item = &'a [u8]>) -> Events {
    let mut decoding = Decoding::new(dialect);
    let mut events = Vec::new();
    let over =
        |events: &Events| matches!(events.last(), Some(Err(_) | Ok(BrainEvent::Finished(_))));
    for piece in pieces {
        events.extend(decoding.take(piece));
        if over(&events) {
            return events;
        }
    }
    events.extend(decoding.end());
    events
}

fn whole(dialect: Dialect, text: &str) -> Events {
    decode(dialect, [text.as_bytes()])
}

fn text(text: &str) -> BrainEvent {
    BrainEvent::Text(text.to_owned())
}

fn thinking(text: &str) -> BrainEvent {
    BrainEvent::Thinking(text.to_owned())
}

fn call(id: &str, name: &str, arguments: &str) -> BrainEvent {
    BrainEvent::Call(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    })
}

fn usage(model: &str, input: u64, thinking: Option<u64>, cached: u64) -> BrainEvent {
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
        thinking("Erst schauen, "),
        thinking("dann ändern 🦉"),
        BrainEvent::ThinkingSeal("EqQBCgIYAhIM1gbcDa9GJwZA2b3h".to_owned()),
        text("Okay, "),
        text("zwei Dinge – “gleich”."),
        call(
            "toolu_01A",
            "shell",
            r#"{"command": "ls -la", "purpose": "see"}"#,
        ),
        call("toolu_01B", "jobs", "{}"),
        usage("claude-test-1", 2572, None, 2000),
        BrainEvent::Finished(Finish::ToolUse),
    ]
}

fn openai_events() -> Vec<BrainEvent> {
    vec![
        thinking("Erst schauen 🦉"),
        BrainEvent::ThinkingSeal("reasoning_content".to_owned()),
        text("Okay, zwei"),
        text(" Dinge – “gleich”."),
        call(
            "call_A",
            "shell",
            r#"{"command": "ls -la", "purpose": "see"}"#,
        ),
        call("call_B", "jobs", "{}"),
        usage("gpt-test-1", 572, Some(40), 512),
        BrainEvent::Finished(Finish::ToolUse),
    ]
}

fn recordings() -> [(Dialect, &'static str, Vec<BrainEvent>); 2] {
    [
        (Dialect::Anthropic, ANTHROPIC, anthropic_events()),
        (Dialect::OpenAi, OPENAI, openai_events()),
    ]
}
