//! OpenAI's Responses API.

use serde_json::{Value, json};

use super::conversation::{Encode, Parsed, Part, ScriptedAnswer, content_text, elements, string};
use super::http::{ModelHttpRequest, ModelHttpResponse};
use super::{ModelDialect, ScriptedCall, SeenResult};

pub(super) fn respond(request: &ModelHttpRequest) -> (Parsed, Encode) {
    let body = &request.body;
    let parsed = Parsed {
        dialect: ModelDialect::OpenAiResponses,
        model: string(&body["model"]),
        system: system(body),
        history: history(&body["input"]),
        tools: elements(&body["tools"]).flat_map(tool_names).collect(),
        tool_definitions: body["tools"].clone(),
    };
    let streams = body["stream"] == true;
    let encode = move |answer: &ScriptedAnswer| {
        let items = items(answer);
        match streams {
            true => ModelHttpResponse::events(&events(&items)),
            false => ModelHttpResponse::json(&response("completed", &items)),
        }
    };
    (parsed, Box::new(encode))
}

/// A function by its name, a tool of the provider by its type, and those of a namespace by both names.
fn tool_names(tool: &Value) -> Vec<String> {
    let own = tool["name"].as_str().or(tool["type"].as_str());
    let own = own.unwrap_or_default();
    match tool["type"] == "namespace" {
        true => elements(&tool["tools"])
            .map(|inner| format!("{own}.{}", string(&inner["name"])))
            .collect(),
        false => vec![own.to_owned()],
    }
}

/// The instructions, and the messages that are not from the user.
fn system(body: &Value) -> String {
    let messages = elements(&body["input"]).filter(|item| is_system(item));
    let texts = messages.map(|item| content_text(&item["content"]));
    let instructions = string(&body["instructions"]);
    std::iter::once(instructions)
        .chain(texts)
        .collect::<Vec<_>>()
        .join("\n")
}

fn is_system(item: &Value) -> bool {
    item["role"] == "developer" || item["role"] == "system"
}

fn history(input: &Value) -> Vec<Part> {
    if let Some(text) = input.as_str() {
        return vec![Part::User(text.to_owned())];
    }
    let items = elements(input).filter(|item| !is_system(item));
    let parts = items.filter_map(|item| match item["type"].as_str() {
        Some("message") | None => Some(match item["role"] == "assistant" {
            true => Part::Assistant(content_text(&item["content"])),
            false => Part::User(content_text(&item["content"])),
        }),
        Some("function_call" | "custom_tool_call") => Some(Part::Call {
            id: string(&item["call_id"]),
            name: string(&item["name"]),
        }),
        Some("function_call_output" | "custom_tool_call_output") => {
            Some(Part::Result(SeenResult {
                call_id: string(&item["call_id"]),
                name: String::new(),
                text: content_text(&item["output"]),
                is_error: false,
            }))
        }
        Some(_) => None,
    });
    parts.collect()
}

fn items(answer: &ScriptedAnswer) -> Vec<Value> {
    match answer {
        ScriptedAnswer::Text(text) => {
            let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
            vec![
                json!({ "type": "message", "id": "msg_scripted", "role": "assistant", "status": "completed", "content": content }),
            ]
        }
        ScriptedAnswer::Calls(calls) => {
            calls.iter().map(|(id, call)| call_item(id, call)).collect()
        }
    }
}

/// A call; `namespace.name` calls a tool of a namespace.
fn call_item(id: &str, call: &ScriptedCall) -> Value {
    let mut item = match call.arguments.as_str() {
        Some(input) => json!({ "type": "custom_tool_call", "input": input }),
        None => json!({ "type": "function_call", "arguments": call.arguments.to_string() }),
    };
    item["id"] = json!(format!("item_{id}"));
    item["call_id"] = json!(id);
    item["status"] = json!("completed");
    match call.name.split_once('.') {
        Some((namespace, name)) => {
            item["namespace"] = json!(namespace);
            item["name"] = json!(name);
        }
        None => item["name"] = json!(call.name),
    }
    item
}

fn response(status: &str, items: &[Value]) -> Value {
    json!({
        "id": "resp_scripted", "object": "response", "status": status, "output": items,
        "usage": {
            "input_tokens": 10, "input_tokens_details": null,
            "output_tokens": 5, "output_tokens_details": null, "total_tokens": 15,
        },
    })
}

fn events(items: &[Value]) -> Vec<(Option<&'static str>, String)> {
    let mut events = vec![(
        "response.created",
        json!({ "response": response("in_progress", &[]) }),
    )];
    for (index, item) in items.iter().enumerate() {
        let mut added = item.clone();
        added["status"] = json!("in_progress");
        if item["type"] == "message" {
            added["content"] = json!([]);
        }
        events.push((
            "response.output_item.added",
            json!({ "output_index": index, "item": added }),
        ));
        if item["type"] == "message" {
            events.push((
                "response.output_text.delta",
                json!({ "output_index": index, "content_index": 0, "item_id": item["id"], "delta": item["content"][0]["text"] }),
            ));
        }
        events.push((
            "response.output_item.done",
            json!({ "output_index": index, "item": item }),
        ));
    }
    events.push((
        "response.completed",
        json!({ "response": response("completed", items) }),
    ));
    let numbered = events.into_iter().enumerate();
    numbered
        .map(|(number, (name, mut event))| {
            event["type"] = json!(name);
            event["sequence_number"] = json!(number);
            (Some(name), event.to_string())
        })
        .collect()
}
