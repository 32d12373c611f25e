//! Conversations as they are sent.

use serde_json::{Value, json};

use super::super::super::conversation::Answer;
use super::super::super::words::CallResult;
use super::*;

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
        extra: ExtraFields::new(),
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
fn an_answer_of_a_wished_length_has_its_room() {
    let mut settings = settings(Dialect::OpenAi);
    settings.context_tokens = 100_000;
    let provider = Provider::with_environment(settings, |_| Some("key".to_owned())).unwrap();
    let wish: PromptConfig = serde_json::from_value(json!({"max_tokens": 40_000})).unwrap();
    assert_eq!(provider.room(&[], None), 84_000);
    assert_eq!(provider.room(&[], Some(&wish)), 60_000);
}
