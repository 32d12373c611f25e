//! Recorded streams, whole, cut and damaged.

use proptest::prelude::*;
use pvp_protocol::Extra;
use pvp_protocol::payload::UsageStats;
use serde_json::{Value, json};

use super::super::Finish;
use super::super::conversation::{Answer, ToolCall};
use super::super::words::CallResult;
use super::failure::{failure, said};
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
    let mut extra = Extra::new();
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

#[test]
fn recorded_streams_are_understood() {
    for (dialect, recorded, events) in recordings() {
        let events: Events = events.into_iter().map(Ok).collect();
        assert_eq!(whole(dialect, recorded), events);
        let bytes = recorded.as_bytes();
        assert_eq!(decode(dialect, bytes.chunks(1)), events);
        assert_eq!(whole(dialect, &recorded.replace('\n', "\r\n")), events);
    }
}

#[test]
fn a_stream_that_breaks_off_anywhere_tells_what_came_and_then_says_so() {
    for (dialect, recorded, events) in recordings() {
        for end in 0..recorded.len() {
            let seen = decode(dialect, [&recorded.as_bytes()[..end]]);
            let (last, told) = seen.split_last().unwrap();
            match last {
                // Only what is not needed was missing.
                Ok(last) => assert_eq!(*last, BrainEvent::Finished(Finish::ToolUse)),
                Err(error) => {
                    assert!(error.worth_trying_again(), "{error}");
                    let told: Vec<_> = told.iter().map(|it| it.clone().unwrap()).collect();
                    assert_eq!(told, events[..told.len()]);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn any_split_of_a_recorded_stream_gives_the_same_events(
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        for (dialect, recorded, events) in recordings() {
            let bytes = recorded.as_bytes();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]);
            let events: Events = events.into_iter().map(Ok).collect();
            prop_assert_eq!(decode(dialect, pieces), events);
        }
    }

    #[test]
    fn damage_never_panics_and_always_ends(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30),
    ) {
        for (dialect, recorded, _) in recordings() {
            let mut bytes = recorded.as_bytes().to_vec();
            for (place, byte) in &places {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            let seen = decode(dialect, [bytes.as_slice()]);
            prop_assert!(matches!(seen.last(), Some(Err(_) | Ok(BrainEvent::Finished(_)))));
        }
    }
}

#[test]
fn errors_in_a_stream_say_whether_to_try_again() {
    let overloaded =
        r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let busy = Trouble::Busy { after: None };
    let error = BrainError::new(
        busy,
        "the provider answered with an error overloaded_error: Overloaded",
    );
    assert_eq!(whole(Dialect::Anthropic, overloaded), [Err(error)]);
    let trouble = |dialect, data: &str| {
        let seen = whole(dialect, &format!("data: {data}\n\n"));
        seen.last().unwrap().clone().unwrap_err().trouble
    };
    let openai = |data: &str| trouble(Dialect::OpenAi, data);
    assert_eq!(
        openai(r#"{"error":{"message":"oops","type":"server_error"}}"#),
        busy
    );
    assert_eq!(
        openai(r#"{"error":{"message":"x","code":"insufficient_quota"}}"#),
        Trouble::Refused
    );
    assert_eq!(
        openai(r#"{"error":{"message":"x","code":400}}"#),
        Trouble::Refused
    );
    assert_eq!(
        openai(r#"{"error":"this model's maximum context length is 8"}"#),
        Trouble::TooLong
    );
    assert_eq!(openai(r#"{"choices": {"#), Trouble::Nonsense);
    assert_eq!(openai(r#"{"choices": 7}"#), Trouble::Nonsense);
    assert_eq!(
        trouble(Dialect::Anthropic, r#"{"type":"content_block_delta"}"#),
        Trouble::Nonsense
    );
}

#[test]
fn the_ways_of_small_servers_are_understood() {
    let openai = |deltas: &[Value], finish: Value| {
        let mut stream = String::new();
        for delta in deltas {
            stream += &format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}));
        }
        stream += &format!(
            "data: {}\n\n",
            json!({"choices": [{"delta": {}, "finish_reason": finish}]})
        );
        let seen: Result<Vec<_>, _> = whole(Dialect::OpenAi, &stream).into_iter().collect();
        seen.unwrap()
    };
    let one = |id: Value, arguments: Value| json!({"id": id, "function": {"name": "jobs", "arguments": arguments}});
    // No numbers, a whole object for arguments, `stop` for a reason, no last word.
    let calls = json!({"tool_calls": [one(json!("a"), json!({})), one(json!("b"), json!("{}"))]});
    assert_eq!(
        openai(&[calls], json!("stop")),
        [
            call("a", "jobs", "{}"),
            call("b", "jobs", "{}"),
            BrainEvent::Finished(Finish::ToolUse)
        ]
    );
    // Every call numbered 0, each piece with its name and id again.
    let numbered = |id: &str, arguments: &str| json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": "jobs", "arguments": arguments}}]});
    assert_eq!(
        openai(
            &[numbered("a", "{"), numbered("a", "}"), numbered("b", "{}")],
            json!("tool_calls")
        ),
        [
            call("a", "jobs", "{}"),
            call("b", "jobs", "{}"),
            BrainEvent::Finished(Finish::ToolUse)
        ]
    );
    // Thinking under the other name is shown, and not wanted back.
    assert_eq!(
        openai(
            &[
                json!({"reasoning": "hm"}),
                json!({"content": "so", "reasoning": null})
            ],
            json!("length")
        ),
        [
            thinking("hm"),
            text("so"),
            BrainEvent::Finished(Finish::MaxTokens)
        ]
    );
}

fn settings(dialect: Dialect) -> Settings {
    Settings::new(dialect, "model-1")
}

/// A prompt, the recorded answer, its results, and the prompt after them.
fn story(events: &[BrainEvent]) -> Conversation {
    let mut conversation = Conversation::new("Be careful.");
    conversation.ask("look");
    let mut answer = Answer::default();
    for event in events {
        answer.take(event);
    }
    for (number, call) in conversation.answer(answer).iter().enumerate() {
        let result = match number {
            0 => CallResult::answered("fine".to_owned()),
            _ => CallResult::failed("no"),
        };
        conversation.result(&call.id, result);
    }
    conversation
}

#[test]
fn a_conversation_becomes_messages_of_anthropic() {
    let mut conversation = story(&anthropic_events());
    conversation.ask(" ");
    conversation.ask("thanks");
    let body = anthropic::body(&settings(Dialect::Anthropic), &conversation, &[], None);
    let forever = json!({"type": "ephemeral"});
    assert_eq!(
        Value::Object(body),
        json!({
            "model": "model-1", "max_tokens": 16_000, "stream": true,
            "thinking": {"type": "adaptive", "display": "summarized"},
            "system": [{"type": "text", "text": "Be careful.", "cache_control": forever}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "look"}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "Erst schauen, dann ändern 🦉", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"},
                    {"type": "text", "text": "Okay, zwei Dinge – “gleich”."},
                    {"type": "tool_use", "id": "toolu_01A", "name": "shell", "input": {"command": "ls -la", "purpose": "see"}},
                    {"type": "tool_use", "id": "toolu_01B", "name": "jobs", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_01A", "content": "fine", "is_error": false},
                    {"type": "tool_result", "tool_use_id": "toolu_01B", "content": "no", "is_error": true},
                    {"type": "text", "text": "thanks", "cache_control": forever},
                ]},
            ],
        })
    );
}

#[test]
fn a_conversation_becomes_messages_of_openai() {
    let conversation = story(&openai_events());
    let config = PromptConfig {
        temperature: Some(0.5),
        max_tokens: Some(100),
        tools_allowed: None,
        model: Some("model-2".to_owned()),
        provider_params: json!({"messages": [], "seed": 7}).as_object().cloned(),
        extra: Extra::new(),
    };
    let body = openai::body(
        &settings(Dialect::OpenAi),
        false,
        &conversation,
        &[],
        Some(&config),
    );
    let function = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
    assert_eq!(
        Value::Object(body),
        json!({
            "model": "model-2", "max_tokens": 100, "temperature": 0.5, "seed": 7,
            "stream": true, "stream_options": {"include_usage": true},
            "messages": [
                {"role": "system", "content": "Be careful."},
                {"role": "user", "content": "look"},
                {
                    "role": "assistant", "content": "Okay, zwei Dinge – “gleich”.", "reasoning_content": "Erst schauen 🦉",
                    "tool_calls": [
                        {"id": "call_A", "type": "function", "function": function("shell", r#"{"command":"ls -la","purpose":"see"}"#)},
                        {"id": "call_B", "type": "function", "function": function("jobs", "{}")},
                    ],
                },
                {"role": "tool", "tool_call_id": "call_A", "content": "fine"},
                {"role": "tool", "tool_call_id": "call_B", "content": "no"},
            ],
        })
    );
}

#[test]
fn what_was_interrupted_or_made_up_can_still_be_sent() {
    let mut conversation = story(&[thinking("hm"), BrainEvent::HiddenThinking("x".to_owned())]);
    conversation.ask("go on");
    let half = [thinking("hm"), call("", "functions.shell", "{\"comm")];
    let mut answer = Answer::default();
    half.iter().for_each(|event| answer.take(event));
    conversation.answer(answer);
    conversation.ask("and?");
    let body = anthropic::body(&settings(Dialect::Anthropic), &conversation, &[], None);
    let blocks = &body["messages"];
    assert_eq!(blocks.as_array().unwrap().len(), 3);
    assert_eq!(
        blocks[1],
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "call", "name": "functions_shell", "input": {}}]})
    );
    let body = openai::body(&settings(Dialect::OpenAi), true, &conversation, &[], None);
    let roles: Vec<_> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["role"].clone())
        .collect();
    assert_eq!(
        roles,
        ["system", "user", "user", "assistant", "tool", "user"]
    );
}

#[test]
fn pages_and_other_answers_become_a_sentence() {
    let page = "<!DOCTYPE html><html><head><TITLE>Bad gateway</TITLE></head></html>";
    let error = failure(Some(502), &said(page));
    assert_eq!(
        error.message,
        "the provider answered with an error (502): a web page, \"Bad gateway\""
    );
    assert!(error.worth_trying_again());
    assert_eq!(
        failure(Some(400), &said("")).message,
        "the provider answered with an error (400)"
    );
    let long = failure(Some(400), &said(&"ü".repeat(100_000)));
    assert!(long.message.len() < 1200);
}
