//! Anthropic's Messages API.

use serde_json::{Value, json};

use super::conversation::{Encode, Parsed, Part, ScriptedAnswer, content_text, elements, string};
use super::http::{ModelHttpRequest, ModelHttpResponse};
use super::{ModelDialect, SeenResult};

pub(super) fn respond(request: &ModelHttpRequest) -> (Parsed, Encode) {
    let body = &request.body;
    let model = string(&body["model"]);
    let parsed = Parsed {
        dialect: ModelDialect::AnthropicMessages,
        model: model.clone(),
        system: content_text(&body["system"]),
        history: elements(&body["messages"]).flat_map(parts).collect(),
        tools: elements(&body["tools"])
            .map(|tool| string(&tool["name"]))
            .collect(),
        tool_definitions: body["tools"].clone(),
    };
    let streams = body["stream"] == true;
    let encode = move |answer: &ScriptedAnswer| {
        let message = message(&model, answer);
        match streams {
            true => ModelHttpResponse::events(&events(&message)),
            false => ModelHttpResponse::json(&message),
        }
    };
    (parsed, Box::new(encode))
}

fn parts(message: &Value) -> Vec<Part> {
    let text_part = match message["role"] == "assistant" {
        true => Part::Assistant,
        false => Part::User,
    };
    if let Some(text) = message["content"].as_str() {
        return vec![text_part(text.to_owned())];
    }
    let blocks = elements(&message["content"]).filter_map(|block| match block["type"].as_str() {
        Some("text") => Some(text_part(string(&block["text"]))),
        Some("tool_use") => Some(Part::Call {
            id: string(&block["id"]),
            name: string(&block["name"]),
        }),
        Some("tool_result") => Some(Part::Result(SeenResult {
            call_id: string(&block["tool_use_id"]),
            name: String::new(),
            text: content_text(&block["content"]),
            is_error: block["is_error"] == true,
        })),
        Some(_) | None => None,
    });
    blocks.collect()
}

fn message(model: &str, answer: &ScriptedAnswer) -> Value {
    let (content, stop_reason) = match answer {
        ScriptedAnswer::Text(text) => (vec![json!({ "type": "text", "text": text })], "end_turn"),
        ScriptedAnswer::Calls(calls) => {
            let blocks = calls.iter().map(|(id, call)| {
                json!({ "type": "tool_use", "id": id, "name": call.name, "input": call.arguments })
            });
            (blocks.collect(), "tool_use")
        }
    };
    json!({
        "id": "msg_scripted", "type": "message", "role": "assistant", "model": model,
        "content": content, "stop_reason": stop_reason, "stop_sequence": null,
        "usage": { "input_tokens": 10, "output_tokens": 5 },
    })
}

fn events(message: &Value) -> Vec<(Option<&'static str>, String)> {
    let mut start = message.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    let mut events = vec![(
        "message_start",
        json!({ "type": "message_start", "message": start }),
    )];
    for (index, block) in elements(&message["content"]).enumerate() {
        let mut empty = block.clone();
        let delta = match block["type"] == "text" {
            true => {
                empty["text"] = json!("");
                json!({ "type": "text_delta", "text": block["text"] })
            }
            false => {
                empty["input"] = json!({});
                json!({ "type": "input_json_delta", "partial_json": block["input"].to_string() })
            }
        };
        events.extend([
            (
                "content_block_start",
                json!({ "type": "content_block_start", "index": index, "content_block": empty }),
            ),
            (
                "content_block_delta",
                json!({ "type": "content_block_delta", "index": index, "delta": delta }),
            ),
            (
                "content_block_stop",
                json!({ "type": "content_block_stop", "index": index }),
            ),
        ]);
    }
    let delta = json!({ "stop_reason": message["stop_reason"], "stop_sequence": null });
    let usage = json!({ "output_tokens": 5 });
    events.extend([
        (
            "message_delta",
            json!({ "type": "message_delta", "delta": delta, "usage": usage }),
        ),
        ("message_stop", json!({ "type": "message_stop" })),
    ]);
    let named = events.into_iter();
    named
        .map(|(name, event)| (Some(name), event.to_string()))
        .collect()
}
