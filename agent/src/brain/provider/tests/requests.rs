//! Tests of the requests that are built from conversations.

use serde_json::{Value, json};

use super::super::super::conversation::ModelAnswer;
use super::super::super::proposal_result::CallResult;
use super::*;

fn settings(dialect: Dialect) -> ProviderSettings {
    ProviderSettings::new(dialect, "model-1")
}

/// A prompt, the recorded answer, its results, and the prompt after them.
fn conversation_with_answer(events: &[BrainEvent]) -> Conversation {
    let mut conversation = Conversation::new("Be careful.");
    conversation.push_prompt("look");
    let mut answer = ModelAnswer::default();
    for event in events {
        answer.push(event);
    }
    for (number, call) in conversation.push_answer(answer).iter().enumerate() {
        let result = match number {
            0 => CallResult::success("fine".to_owned()),
            _ => CallResult::failed("no"),
        };
        conversation.set_result(&call.id, result);
    }
    conversation
}

#[test]
fn a_conversation_becomes_messages_of_anthropic() {
    let mut conversation = conversation_with_answer(&anthropic_events());
    conversation.push_prompt(" ");
    conversation.push_prompt("thanks");
    let body = anthropic::request_body(&settings(Dialect::Anthropic), &conversation, &[], None);
    let cache_control = json!({"type": "ephemeral"});
    assert_eq!(
        Value::Object(body),
        json!({
            "model": "model-1", "max_tokens": 16_000, "stream": true,
            "thinking": {"type": "adaptive", "display": "summarized"},
            "system": [{"type": "text", "text": "Be careful.", "cache_control": cache_control}],
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
                    {"type": "text", "text": "thanks", "cache_control": cache_control},
                ]},
            ],
        })
    );
}

#[test]
fn a_conversation_becomes_messages_of_openai() {
    let conversation = conversation_with_answer(&openai_events());
    let config = PromptConfig {
        temperature: Some(0.5),
        max_tokens: Some(100),
        tools_allowed: None,
        model: Some("model-2".to_owned()),
        provider_params: json!({"messages": [], "seed": 7}).as_object().cloned(),
        extra: ExtraFields::new(),
    };
    let body = openai::request_body(
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
fn thinking_goes_back_to_small_servers_only_for_the_same_prompt() {
    let mut conversation = conversation_with_answer(&openai_events());
    let thinks = |conversation: &Conversation| {
        let body = openai::request_body(&settings(Dialect::OpenAi), false, conversation, &[], None);
        body["messages"].to_string().contains("reasoning_content")
    };
    assert!(thinks(&conversation));
    conversation.push_prompt("next");
    assert!(!thinks(&conversation));
}

#[test]
fn interrupted_answers_and_invalid_calls_can_still_be_sent() {
    let mut conversation = conversation_with_answer(&[
        thinking_event("hm"),
        BrainEvent::RedactedThinking("x".to_owned()),
    ]);
    conversation.push_prompt("go on");
    let half = [
        thinking_event("hm"),
        call_event("", "functions.shell", "{\"comm"),
    ];
    let mut answer = ModelAnswer::default();
    half.iter().for_each(|event| answer.push(event));
    conversation.push_answer(answer);
    conversation.push_prompt("and?");
    let body = anthropic::request_body(&settings(Dialect::Anthropic), &conversation, &[], None);
    let blocks = &body["messages"];
    assert_eq!(blocks.as_array().unwrap().len(), 3);
    assert_eq!(
        blocks[1],
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "call", "name": "functions_shell", "input": {}}]})
    );
    let body = openai::request_body(&settings(Dialect::OpenAi), true, &conversation, &[], None);
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
fn thinking_is_requested_only_where_the_api_accepts_it() {
    let mut conversation = Conversation::new("");
    conversation.push_prompt("look");
    let parameters = |thinking: ThinkingMode, max: Option<u64>, config: Value| {
        let mut settings = settings(Dialect::Anthropic);
        (settings.thinking, settings.max_tokens) = (thinking, max);
        let config: PromptConfig = serde_json::from_value(config).unwrap();
        let body = anthropic::request_body(&settings, &conversation, &[], Some(&config));
        let get = |name: &str| body.get(name).cloned().unwrap_or_default();
        [get("thinking"), get("max_tokens"), get("temperature")]
    };
    let budget = |tokens: u64| json!({"type": "enabled", "budget_tokens": tokens});
    let adaptive = json!({"type": "adaptive", "display": "summarized"});
    for (thinking, max, config, expected) in [
        (
            ThinkingMode::Adaptive,
            None,
            json!({}),
            [adaptive, json!(16_000), Value::Null],
        ),
        (
            ThinkingMode::Unspecified,
            None,
            json!({}),
            [Value::Null, json!(16_000), Value::Null],
        ),
        // The API refuses a temperature together with thinking.
        (
            ThinkingMode::Adaptive,
            None,
            json!({"temperature": 0.5}),
            [Value::Null, json!(16_000), json!(0.5)],
        ),
        // A budget is below the whole, and has a minimum.
        (
            ThinkingMode::Budget(20_000),
            None,
            json!({}),
            [budget(20_000), json!(36_000), Value::Null],
        ),
        (
            ThinkingMode::Budget(20_000),
            Some(8000),
            json!({}),
            [budget(7999), json!(8000), Value::Null],
        ),
        (
            ThinkingMode::Budget(10),
            None,
            json!({}),
            [budget(1024), json!(16_010), Value::Null],
        ),
        (
            ThinkingMode::Budget(2000),
            None,
            json!({"max_tokens": 1024}),
            [Value::Null, json!(1024), Value::Null],
        ),
    ] {
        assert_eq!(parameters(thinking, max, config), expected, "{thinking:?}");
    }
}

#[test]
fn an_answer_that_is_sent_back_does_not_end_in_thinking() {
    let signature = BrainEvent::ThinkingSignature("s".to_owned());
    let mut conversation =
        conversation_with_answer(&[thinking_event("hm"), signature, text_event("\n\n")]);
    conversation.push_prompt("and?");
    let body = anthropic::request_body(&settings(Dialect::Anthropic), &conversation, &[], None);
    let roles = body["messages"].as_array().unwrap().iter();
    let roles: Vec<_> = roles.map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["user"]);
}

#[test]
fn hidden_thinking_is_sent_back_unchanged() {
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
    let seen: Result<Vec<_>, _> = decode_text(Dialect::Anthropic, stream)
        .into_iter()
        .collect();
    let conversation = conversation_with_answer(&seen.unwrap());
    let body = anthropic::request_body(&settings(Dialect::Anthropic), &conversation, &[], None);
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
fn a_requested_answer_length_reduces_the_context_budget() {
    let mut settings = settings(Dialect::OpenAi);
    settings.context_tokens = 100_000;
    let provider = Provider::with_environment(settings, |_| Some("key".to_owned())).unwrap();
    let config: PromptConfig = serde_json::from_value(json!({"max_tokens": 40_000})).unwrap();
    assert_eq!(provider.context_budget(&[], None), 84_000);
    assert_eq!(provider.context_budget(&[], Some(&config)), 60_000);
}
