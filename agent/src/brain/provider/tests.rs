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

fn openai_stream(chunks: &[Value]) -> Events {
    let chunk = |chunk: &Value| format!("data: {chunk}\n\n");
    let stream: String = chunks.iter().map(chunk).collect();
    whole(Dialect::OpenAi, &stream)
}

fn openai_call(piece: Value) -> Value {
    json!({"choices": [{"delta": {"tool_calls": [piece]}}]})
}

fn openai_finish(reason: &str) -> Value {
    json!({"choices": [{"delta": {}, "finish_reason": reason}]})
}

#[test]
fn calls_are_told_apart_whatever_numbers_and_ids_they_have() {
    let two = [
        Ok(call("", "shell", r#"{"command":"a"}"#)),
        Ok(call("", "jobs", "{}")),
        Ok(BrainEvent::Finished(Finish::ToolUse)),
    ];
    let piece = |name: &str, arguments: &str| json!({"index": 0, "id": "", "function": {"name": name, "arguments": arguments}});
    let unnamed = |arguments: &str| json!({"function": {"arguments": arguments}});
    // All numbered 0, without ids.
    let chunks = [
        openai_call(piece("shell", r#"{"command":"a"}"#)),
        openai_call(piece("jobs", "{}")),
        openai_finish("tool_calls"),
    ];
    assert_eq!(openai_stream(&chunks), two);
    // The same in pieces, where only the first has a name.
    let chunks = [
        openai_call(piece("shell", "")),
        openai_call(unnamed(r#"{"command""#)),
        openai_call(unnamed(r#":"a"}"#)),
        openai_call(piece("jobs", "{")),
        openai_call(unnamed("}")),
        openai_finish("stop"),
    ];
    assert_eq!(openai_stream(&chunks), two);
    // An id that is made up anew for each piece.
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
        [Ok(call("x1", "jobs", "{}")), Ok(call("y1", "jobs", "{}"))]
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
        whole(Dialect::Anthropic, &anthropic),
        openai_stream(&openai),
    ] {
        let call = |event: &Result<BrainEvent, BrainError>| matches!(event, Ok(BrainEvent::Call(call)) if call.arguments == "{}");
        assert_eq!(seen.iter().filter(|event| call(event)).count(), 1024);
        let end = Ok(BrainEvent::Finished(Finish::ToolUse));
        assert_eq!(seen.last(), Some(&end));
    }
}

#[test]
fn every_reason_to_stop_is_understood() {
    let anthropic = |delta: Value| {
        let data = json!({"type": "message_delta", "delta": delta});
        let stream = format!("data: {data}\n\ndata: {{\"type\":\"message_stop\"}}\n\n");
        let seen: Vec<_> = whole(Dialect::Anthropic, &stream);
        let usage =
            |event: &Result<BrainEvent, BrainError>| matches!(event, Ok(BrainEvent::Usage(_)));
        seen.into_iter()
            .filter(|event| !usage(event))
            .map(Result::unwrap)
            .collect::<Vec<_>>()
    };
    for (reason, finish) in [
        ("end_turn", Finish::Complete),
        ("stop_sequence", Finish::Complete),
        ("max_tokens", Finish::MaxTokens),
        ("model_context_window_exceeded", Finish::MaxTokens),
        ("pause_turn", Finish::MaxTokens),
        ("refusal", Finish::Withheld),
        ("something_new", Finish::Complete),
    ] {
        let seen = anthropic(json!({"stop_reason": reason, "stop_details": null}));
        assert_eq!(seen, [BrainEvent::Finished(finish)], "{reason}");
    }
    let details =
        json!({"type": "refusal", "category": "cyber", "explanation": "It was declined."});
    assert_eq!(
        anthropic(json!({"stop_reason": "refusal", "stop_details": details})),
        [
            text("It was declined."),
            BrainEvent::Finished(Finish::Withheld)
        ]
    );
    for (reason, finish) in [
        ("stop", Finish::Complete),
        ("length", Finish::MaxTokens),
        ("model_length", Finish::MaxTokens),
        ("content_filter", Finish::Withheld),
    ] {
        let seen = openai_stream(&[openai_finish(reason)]);
        assert_eq!(seen, [Ok(BrainEvent::Finished(finish))], "{reason}");
    }
    for reason in ["error", "insufficient_system_resource"] {
        let seen = openai_stream(&[openai_finish(reason)]);
        let error = seen[0].clone().unwrap_err();
        assert_eq!(error.trouble, Trouble::Busy { after: None }, "{reason}");
    }
}

#[test]
fn nothing_at_all_is_no_answer() {
    let lost = |stream: &str| {
        let seen = whole(Dialect::OpenAi, stream);
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone().unwrap_err().trouble
    };
    assert_eq!(lost("data: [DONE]\n\n"), Trouble::Lost);
    // An empty reason is none.
    let chunk = json!({"choices": [{"delta": {"content": ""}, "finish_reason": ""}]});
    assert_eq!(lost(&format!("data: {chunk}\n\n")), Trouble::Lost);
    let said = json!({"choices": [{"delta": {"content": "hm"}, "finish_reason": null}]});
    let seen = whole(
        Dialect::OpenAi,
        &format!("data: {said}\n\ndata: [DONE]\n\n"),
    );
    assert_eq!(
        seen,
        [Ok(text("hm")), Ok(BrainEvent::Finished(Finish::Complete))]
    );
    let error =
        r#"{"object":"error","message":"no such adapter","type":"BadRequestError","code":400}"#;
    assert_eq!(
        lost(&format!("data: {error}\n\ndata: [DONE]\n\n")),
        Trouble::Refused
    );
}

#[test]
fn a_conversation_that_is_too_long_is_known_by_many_words() {
    for (status, message) in [
        (400, "prompt is too long: 210000 tokens > 200000 maximum"),
        (
            400,
            "input length and `max_tokens` exceed context limit: 199000 + 21000 > 200000",
        ),
        (400, "the request exceeds the available context size"),
        (422, "This model's maximum context length is 8192 tokens"),
        (
            400,
            "This model's maximum prompt length is 131072 but the request contains 200000 tokens",
        ),
        (
            400,
            "The input token count exceeds the maximum number of tokens allowed (1048576).",
        ),
        (
            429,
            "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000",
        ),
        (413, ""),
    ] {
        let error = failure(Some(status), &json!({"error": {"message": message}}));
        assert_eq!(error.trouble, Trouble::TooLong, "{message}");
    }
    let limited = failure(Some(429), &json!({"error": {"message": "slow down"}}));
    assert_eq!(limited.trouble, Trouble::Busy { after: None });
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
fn thinking_goes_back_to_small_servers_only_while_they_work_on_its_prompt() {
    let mut conversation = story(&openai_events());
    let thinks = |conversation: &Conversation| {
        let body = openai::body(&settings(Dialect::OpenAi), false, conversation, &[], None);
        body["messages"].to_string().contains("reasoning_content")
    };
    assert!(thinks(&conversation));
    conversation.ask("next");
    assert!(!thinks(&conversation));
}

#[test]
fn the_last_count_holds() {
    let count = |tokens: u64| json!({"choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": 1}});
    let seen = openai_stream(&[count(5), openai_finish("stop"), count(7)]);
    let Ok(BrainEvent::Usage(usage)) = &seen[0] else {
        panic!("{seen:?}");
    };
    assert_eq!(usage.input_tokens, 7);
}

#[test]
fn an_answer_of_a_wished_length_has_its_room() {
    let mut settings = settings(Dialect::OpenAi);
    settings.context_tokens = 100_000;
    let provider = Provider::with_environment(settings, |_| Some("key".to_owned())).unwrap();
    let wish: PromptConfig = serde_json::from_value(json!({"max_tokens": 40_000})).unwrap();
    assert_eq!(provider.room(&[], None), 84_000);
    assert_eq!(provider.room(&[], Some(&wish)), 60_000);
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
    // Two prompts without an answer between them are one message.
    assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
    assert_eq!(body["messages"][1]["content"], "look\n\ngo on");
}

#[test]
fn thinking_is_asked_for_only_where_the_api_takes_it() {
    let mut conversation = Conversation::new("");
    conversation.ask("look");
    let asked = |thinking: Thinking, max: Option<u64>, config: Value| {
        let mut settings = settings(Dialect::Anthropic);
        (settings.thinking, settings.max_tokens) = (thinking, max);
        let config: PromptConfig = serde_json::from_value(config).unwrap();
        let body = anthropic::body(&settings, &conversation, &[], Some(&config));
        let get = |name: &str| body.get(name).cloned().unwrap_or_default();
        [get("thinking"), get("max_tokens"), get("temperature")]
    };
    let budget = |tokens: u64| json!({"type": "enabled", "budget_tokens": tokens});
    let adaptive = json!({"type": "adaptive", "display": "summarized"});
    for (thinking, max, config, expected) in [
        (
            Thinking::Adaptive,
            None,
            json!({}),
            [adaptive, json!(16_000), Value::Null],
        ),
        (
            Thinking::Unsaid,
            None,
            json!({}),
            [Value::Null, json!(16_000), Value::Null],
        ),
        // A temperature is refused beside thinking.
        (
            Thinking::Adaptive,
            None,
            json!({"temperature": 0.5}),
            [Value::Null, json!(16_000), json!(0.5)],
        ),
        // A budget is below the whole, and has a least.
        (
            Thinking::Budget(20_000),
            None,
            json!({}),
            [budget(20_000), json!(36_000), Value::Null],
        ),
        (
            Thinking::Budget(20_000),
            Some(8000),
            json!({}),
            [budget(7999), json!(8000), Value::Null],
        ),
        (
            Thinking::Budget(10),
            None,
            json!({}),
            [budget(1024), json!(16_010), Value::Null],
        ),
        (
            Thinking::Budget(2000),
            None,
            json!({"max_tokens": 1024}),
            [Value::Null, json!(1024), Value::Null],
        ),
    ] {
        assert_eq!(asked(thinking, max, config), expected, "{thinking:?}");
    }
}

#[test]
fn an_answer_that_goes_back_does_not_end_in_thinking() {
    let seal = BrainEvent::ThinkingSeal("s".to_owned());
    let mut conversation = story(&[thinking("hm"), seal, text("\n\n")]);
    conversation.ask("and?");
    let body = anthropic::body(&settings(Dialect::Anthropic), &conversation, &[], None);
    let roles = body["messages"].as_array().unwrap().iter();
    let roles: Vec<_> = roles.map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["user"]);
}

#[test]
fn hidden_thinking_goes_back_as_it_came() {
    let stream = concat!(
        r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"Eo8D"}}"#,
        "\n\n",
        r#"data: {"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        "\n\n",
        r#"data: {"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"EqQ"}}"#,
        "\n\n",
        r#"data: {"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"BCg"}}"#,
        "\n\n",
        r#"data: {"type":"content_block_stop","index":1}"#,
        "\n\n",
        r#"data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t1","name":"jobs","input":{}}}"#,
        "\n\n",
        r#"data: {"type":"content_block_stop","index":2}"#,
        "\n\n",
        r#"data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":3}}"#,
        "\n\n",
    );
    let seen: Result<Vec<_>, _> = whole(Dialect::Anthropic, stream).into_iter().collect();
    let conversation = story(&seen.unwrap());
    let body = anthropic::body(&settings(Dialect::Anthropic), &conversation, &[], None);
    assert_eq!(
        body["messages"][1]["content"],
        json!([
            {"type": "redacted_thinking", "data": "Eo8D"},
            {"type": "thinking", "thinking": "", "signature": "EqQBCg"},
            {"type": "tool_use", "id": "t1", "name": "jobs", "input": {}},
        ])
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
}
