//! Tests of recorded streams, complete, split and damaged, and of the quirks of small servers.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[test]
fn recorded_streams_are_decoded() {
    for (dialect, recorded, events) in recordings() {
        let events: DecodedEvents = events.into_iter().map(Ok).collect();
        assert_eq!(decode_text(dialect, recorded), events);
        let bytes = recorded.as_bytes();
        assert_eq!(decode(dialect, bytes.chunks(1)), events);
        assert_eq!(
            decode_text(dialect, &recorded.replace('\n', "\r\n")),
            events
        );
    }
}

#[test]
fn a_truncated_stream_gives_its_events_and_then_an_error() {
    for (dialect, recorded, events) in recordings() {
        for end in 0..recorded.len() {
            let seen = decode(dialect, [&recorded.as_bytes()[..end]]);
            let (last, before) = seen.split_last().unwrap();
            match last {
                // Only the formal end was missing.
                Ok(last) => assert_eq!(*last, BrainEvent::Finished(AnswerFinish::ToolUse)),
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    let before: Vec<_> =
                        before.iter().map(|event| event.clone().unwrap()).collect();
                    assert_eq!(before, events[..before.len()]);
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
            let events: DecodedEvents = events.into_iter().map(Ok).collect();
            prop_assert_eq!(decode(dialect, pieces), events);
        }
    }

    #[test]
    fn damage_never_panics_and_always_ends(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30),
    ) {
        for (dialect, recorded, _) in recordings() {
            let mut bytes = recorded.as_bytes().to_vec();
            for (position, byte) in &changes {
                let position = position.index(bytes.len());
                bytes[position] = *byte;
            }
            let seen = decode(dialect, [bytes.as_slice()]);
            prop_assert!(matches!(seen.last(), Some(Err(_) | Ok(BrainEvent::Finished(_)))));
        }
    }
}

#[test]
fn errors_in_a_stream_say_whether_to_retry() {
    let overloaded =
        r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let busy = BrainErrorKind::Busy { after: None };
    let error = BrainError::new(
        busy,
        "the provider answered with an error overloaded_error: Overloaded",
    );
    assert_eq!(decode_text(Dialect::Anthropic, overloaded), [Err(error)]);
    let trouble = |dialect, data: &str| {
        let seen = decode_text(dialect, &format!("data: {data}\n\n"));
        seen.last().unwrap().clone().unwrap_err().kind
    };
    let openai = |data: &str| trouble(Dialect::OpenAi, data);
    assert_eq!(
        openai(r#"{"error":{"message":"oops","type":"server_error"}}"#),
        busy
    );
    assert_eq!(
        openai(r#"{"error":{"message":"x","code":"insufficient_quota"}}"#),
        BrainErrorKind::Refused
    );
    assert_eq!(
        openai(r#"{"error":{"message":"x","code":400}}"#),
        BrainErrorKind::Refused
    );
    assert_eq!(
        openai(r#"{"error":"this model's maximum context length is 8"}"#),
        BrainErrorKind::ContextTooLong
    );
    assert_eq!(openai(r#"{"choices": {"#), BrainErrorKind::InvalidResponse);
    assert_eq!(openai(r#"{"choices": 7}"#), BrainErrorKind::InvalidResponse);
    assert_eq!(
        trouble(Dialect::Anthropic, r#"{"type":"content_block_delta"}"#),
        BrainErrorKind::InvalidResponse
    );
}

fn openai_stream(chunks: &[Value]) -> DecodedEvents {
    let chunk = |chunk: &Value| format!("data: {chunk}\n\n");
    let stream: String = chunks.iter().map(chunk).collect();
    decode_text(Dialect::OpenAi, &stream)
}

fn openai_call(piece: Value) -> Value {
    json!({"choices": [{"delta": {"tool_calls": [piece]}}]})
}

fn openai_finish(reason: &str) -> Value {
    json!({"choices": [{"delta": {}, "finish_reason": reason}]})
}

#[test]
fn the_quirks_of_small_servers_are_handled() {
    let openai = |deltas: &[Value], finish: Value| {
        let mut stream = String::new();
        for delta in deltas {
            stream += &format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}));
        }
        stream += &format!(
            "data: {}\n\n",
            json!({"choices": [{"delta": {}, "finish_reason": finish}]})
        );
        let seen: Result<Vec<_>, _> = decode_text(Dialect::OpenAi, &stream).into_iter().collect();
        seen.unwrap()
    };
    let one = |id: Value, arguments: Value| json!({"id": id, "function": {"name": "jobs", "arguments": arguments}});
    // No index, arguments as an object, `stop` as the reason, no `[DONE]`.
    let calls = json!({"tool_calls": [one(json!("a"), json!({})), one(json!("b"), json!("{}"))]});
    assert_eq!(
        openai(&[calls], json!("stop")),
        [
            call_event("a", "jobs", "{}"),
            call_event("b", "jobs", "{}"),
            BrainEvent::Finished(AnswerFinish::ToolUse)
        ]
    );
    // Every call has index 0, and each delta repeats its name and id.
    let numbered = |id: &str, arguments: &str| json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": "jobs", "arguments": arguments}}]});
    assert_eq!(
        openai(
            &[numbered("a", "{"), numbered("a", "}"), numbered("b", "{}")],
            json!("tool_calls")
        ),
        [
            call_event("a", "jobs", "{}"),
            call_event("b", "jobs", "{}"),
            BrainEvent::Finished(AnswerFinish::ToolUse)
        ]
    );
    // Thinking in the other field is shown, and not sent back.
    assert_eq!(
        openai(
            &[
                json!({"reasoning": "hm"}),
                json!({"content": "so", "reasoning": null})
            ],
            json!("length")
        ),
        [
            thinking_event("hm"),
            text_event("so"),
            BrainEvent::Finished(AnswerFinish::MaxTokens)
        ]
    );
}

#[test]
fn calls_are_distinguished_whatever_indexes_and_ids_they_have() {
    let two = [
        Ok(call_event("", "shell", r#"{"command":"a"}"#)),
        Ok(call_event("", "jobs", "{}")),
        Ok(BrainEvent::Finished(AnswerFinish::ToolUse)),
    ];
    let piece = |name: &str, arguments: &str| json!({"index": 0, "id": "", "function": {"name": name, "arguments": arguments}});
    let unnamed = |arguments: &str| json!({"function": {"arguments": arguments}});
    // All have index 0, without ids.
    let chunks = [
        openai_call(piece("shell", r#"{"command":"a"}"#)),
        openai_call(piece("jobs", "{}")),
        openai_finish("tool_calls"),
    ];
    assert_eq!(openai_stream(&chunks), two);
    // The same in several deltas, where only the first has a name.
    let chunks = [
        openai_call(piece("shell", "")),
        openai_call(unnamed(r#"{"command""#)),
        openai_call(unnamed(r#":"a"}"#)),
        openai_call(piece("jobs", "{")),
        openai_call(unnamed("}")),
        openai_finish("stop"),
    ];
    assert_eq!(openai_stream(&chunks), two);
    // A new id for each delta.
    let odd = |id: &str, name: Value, arguments: &str| json!({"index": 0, "id": id, "function": {"name": name, "arguments": arguments}});
    let chunks = [
        openai_call(odd("x1", json!("jobs"), "{")),
        openai_call(odd("x2", json!(null), "}")),
        openai_call(odd("y1", json!("jobs"), "{}")),
        openai_finish("tool_calls"),
    ];
    let seen = openai_stream(&chunks);
    assert_eq!(
        seen[..2],
        [
            Ok(call_event("x1", "jobs", "{}")),
            Ok(call_event("y1", "jobs", "{}"))
        ]
    );
    assert_eq!(seen.len(), 3);
}

#[test]
fn a_thousand_calls_are_kept_and_not_a_million() {
    let mut anthropic = String::new();
    let mut openai = Vec::new();
    for index in 0..1100 {
        let block =
            json!({"type": "tool_use", "id": format!("t{index}"), "name": "jobs", "input": {}});
        let start = json!({"type": "content_block_start", "index": index, "content_block": block});
        let stop = json!({"type": "content_block_stop", "index": index});
        anthropic += &format!("data: {start}\n\ndata: {stop}\n\n");
        let id = format!("t{index}");
        let function = json!({"name": "jobs", "arguments": "{}"});
        openai.push(openai_call(
            json!({"index": index, "id": id, "function": function}),
        ));
    }
    let stop = json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}});
    anthropic += &format!("data: {stop}\n\ndata: {{\"type\":\"message_stop\"}}\n\n");
    openai.push(openai_finish("tool_calls"));
    for seen in [
        decode_text(Dialect::Anthropic, &anthropic),
        openai_stream(&openai),
    ] {
        let call = |event: &Result<BrainEvent, BrainError>| matches!(event, Ok(BrainEvent::ToolCall(call)) if call.arguments == "{}");
        assert_eq!(seen.iter().filter(|event| call(event)).count(), 1024);
        let end = Ok(BrainEvent::Finished(AnswerFinish::ToolUse));
        assert_eq!(seen.last(), Some(&end));
    }
}

#[test]
fn every_stop_reason_is_handled() {
    let anthropic = |delta: Value| {
        let data = json!({"type": "message_delta", "delta": delta});
        let stream = format!("data: {data}\n\ndata: {{\"type\":\"message_stop\"}}\n\n");
        let seen: Vec<_> = decode_text(Dialect::Anthropic, &stream);
        let usage =
            |event: &Result<BrainEvent, BrainError>| matches!(event, Ok(BrainEvent::Usage(_)));
        seen.into_iter()
            .filter(|event| !usage(event))
            .map(Result::unwrap)
            .collect::<Vec<_>>()
    };
    for (reason, finish) in [
        ("end_turn", AnswerFinish::Complete),
        ("stop_sequence", AnswerFinish::Complete),
        ("max_tokens", AnswerFinish::MaxTokens),
        ("model_context_window_exceeded", AnswerFinish::MaxTokens),
        ("pause_turn", AnswerFinish::MaxTokens),
        ("refusal", AnswerFinish::Withheld),
        ("something_new", AnswerFinish::Complete),
    ] {
        let seen = anthropic(json!({"stop_reason": reason, "stop_details": null}));
        assert_eq!(seen, [BrainEvent::Finished(finish)], "{reason}");
    }
    let details =
        json!({"type": "refusal", "category": "cyber", "explanation": "It was declined."});
    assert_eq!(
        anthropic(json!({"stop_reason": "refusal", "stop_details": details})),
        [
            text_event("It was declined."),
            BrainEvent::Finished(AnswerFinish::Withheld)
        ]
    );
    for (reason, finish) in [
        ("stop", AnswerFinish::Complete),
        ("length", AnswerFinish::MaxTokens),
        ("model_length", AnswerFinish::MaxTokens),
        ("content_filter", AnswerFinish::Withheld),
    ] {
        let seen = openai_stream(&[openai_finish(reason)]);
        assert_eq!(seen, [Ok(BrainEvent::Finished(finish))], "{reason}");
    }
    for reason in ["error", "insufficient_system_resource"] {
        let seen = openai_stream(&[openai_finish(reason)]);
        let error = seen[0].clone().unwrap_err();
        assert_eq!(error.kind, BrainErrorKind::Busy { after: None }, "{reason}");
    }
}

#[test]
fn an_empty_stream_is_an_error() {
    let lost = |stream: &str| {
        let seen = decode_text(Dialect::OpenAi, stream);
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone().unwrap_err().kind
    };
    assert_eq!(lost("data: [DONE]\n\n"), BrainErrorKind::ConnectionLost);
    // An empty reason counts as none.
    let chunk = json!({"choices": [{"delta": {"content": ""}, "finish_reason": ""}]});
    assert_eq!(
        lost(&format!("data: {chunk}\n\n")),
        BrainErrorKind::ConnectionLost
    );
    let text = json!({"choices": [{"delta": {"content": "hm"}, "finish_reason": null}]});
    let seen = decode_text(
        Dialect::OpenAi,
        &format!("data: {text}\n\ndata: [DONE]\n\n"),
    );
    assert_eq!(
        seen,
        [
            Ok(text_event("hm")),
            Ok(BrainEvent::Finished(AnswerFinish::Complete))
        ]
    );
    let error =
        r#"{"object":"error","message":"no such adapter","type":"BadRequestError","code":400}"#;
    assert_eq!(
        lost(&format!("data: {error}\n\ndata: [DONE]\n\n")),
        BrainErrorKind::Refused
    );
}

#[test]
fn the_last_token_count_is_used() {
    let count = |tokens: u64| json!({"choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": 1}});
    let seen = openai_stream(&[count(5), openai_finish("stop"), count(7)]);
    let Ok(BrainEvent::Usage(usage)) = &seen[0] else {
        panic!("{seen:?}");
    };
    assert_eq!(usage.input_tokens, 7);
}
