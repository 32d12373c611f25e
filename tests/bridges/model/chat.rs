//! OpenAI's Chat Completions API.

use serde_json::{Value, json};

use super::conversation::{Encode, Parsed, Part, ScriptedAnswer, content_text, elements, string};
use super::http::{ModelHttpRequest, ModelHttpResponse};
use super::{ModelDialect, SeenResult};

pub(super) fn respond(request: &ModelHttpRequest) -> (Parsed, Encode) {
    let body = &request.body;
    let system = elements(&body["messages"]).filter(|message| is_system(message));
    let texts: Vec<String> = system
        .map(|message| content_text(&message["content"]))
        .collect();
    let parsed = Parsed {
        dialect: ModelDialect::OpenAiChat,
        model: string(&body["model"]),
        system: texts.join("\n"),
        history: elements(&body["messages"]).flat_map(parts).collect(),
        tools: elements(&body["tools"])
            .map(|tool| string(&tool["function"]["name"]))
            .collect(),
        tool_definitions: body["tools"].clone(),
    };
    let streams = body["stream"] == true;
    let encode = move |answer: &ScriptedAnswer| match streams {
        true => ModelHttpResponse::events(&events(answer)),
        false => ModelHttpResponse::json(&completion(answer)),
    };
    (parsed, Box::new(encode))
}

fn is_system(message: &Value) -> bool {
    message["role"] == "system" || message["role"] == "developer"
}

fn parts(message: &Value) -> Vec<Part> {
    let text = content_text(&message["content"]);
    match message["role"].as_str() {
        Some("assistant") => {
            let calls = elements(&message["tool_calls"]).map(|call| Part::Call {
                id: string(&call["id"]),
                name: string(&call["function"]["name"]),
            });
            let text = (!text.is_empty()).then_some(Part::Assistant(text));
            text.into_iter().chain(calls).collect()
        }
        Some("tool") => vec![Part::Result(SeenResult {
            call_id: string(&message["tool_call_id"]),
            name: String::new(),
            text,
            is_error: false,
        })],
        Some("user") => vec![Part::User(text)],
        Some(_) | None => Vec::new(),
    }
}

/// The message of the answer and why it ends.
fn message(answer: &ScriptedAnswer) -> (Value, &'static str) {
    match answer {
        ScriptedAnswer::Text(text) => (json!({ "role": "assistant", "content": text }), "stop"),
        ScriptedAnswer::Calls(calls) => {
            let calls = calls.iter().enumerate().map(|(index, (id, call))| {
                let function =
                    json!({ "name": call.name, "arguments": call.arguments.to_string() });
                json!({ "index": index, "id": id, "type": "function", "function": function })
            });
            let calls: Vec<Value> = calls.collect();
            (
                json!({ "role": "assistant", "content": null, "tool_calls": calls }),
                "tool_calls",
            )
        }
    }
}

fn usage() -> Value {
    json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 })
}

fn completion(answer: &ScriptedAnswer) -> Value {
    let (message, reason) = message(answer);
    json!({
        "id": "chatcmpl-scripted", "object": "chat.completion", "created": 1, "model": "scripted",
        "choices": [{ "index": 0, "message": message, "finish_reason": reason }], "usage": usage(),
    })
}

fn events(answer: &ScriptedAnswer) -> Vec<(Option<&'static str>, String)> {
    let (message, reason) = message(answer);
    let chunk = |choices: Value, usage: Value| {
        json!({
            "id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1,
            "model": "scripted", "choices": choices, "usage": usage,
        })
        .to_string()
    };
    let data = [
        chunk(
            json!([{ "index": 0, "delta": message, "finish_reason": null }]),
            Value::Null,
        ),
        chunk(
            json!([{ "index": 0, "delta": {}, "finish_reason": reason }]),
            Value::Null,
        ),
        chunk(json!([]), usage()),
        "[DONE]".to_owned(),
    ];
    data.into_iter().map(|data| (None, data)).collect()
}
