//! A model on loopback that asks for one call, and then says that it is done.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::CanaryCall;
use super::http::{self, CanaryRequest, CanaryResponse};

/// Requests that are answered at a time.
const MAX_CONNECTIONS: usize = 32;

/// How a client speaks with its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CanaryDialect {
    /// Anthropic's.
    Messages,
    /// OpenAI's.
    ChatCompletions,
    /// OpenAI's newer one.
    Responses,
    /// Google's.
    Gemini,
}

/// The model, until it is dropped.
pub(super) struct CanaryModel {
    address: SocketAddr,
    told: Arc<Mutex<Option<String>>>,
    task: JoinHandle<()>,
}

impl CanaryModel {
    pub(super) async fn start(call: CanaryCall) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let told = Arc::new(Mutex::new(None));
        let task = tokio::spawn(serve(listener, Arc::new(call), told.clone()));
        Ok(Self {
            address,
            told,
            task,
        })
    }

    pub(super) fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What the client told about the call.
    pub(super) fn told(&self) -> Option<String> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.clone()
    }
}

impl Drop for CanaryModel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, call: Arc<CanaryCall>, told: Arc<Mutex<Option<String>>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                let Ok((socket, _)) = accepted else { continue };
                let (call, told) = (call.clone(), told.clone());
                connections.spawn(async move {
                    let answer = |request: &CanaryRequest| {
                        let (response, result) = respond(&call, request);
                        if let Some(result) = result {
                            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                        }
                        response
                    };
                    if let Err(error) = http::serve(socket, answer).await {
                        tracing::debug!(%error, "a request to the canary's model failed");
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// What the model says, and what it was told about its call.
fn respond(call: &CanaryCall, request: &CanaryRequest) -> (CanaryResponse, Option<String>) {
    let is_asked = match call.dialect {
        CanaryDialect::Messages => request.path.ends_with("/messages"),
        CanaryDialect::ChatCompletions => request.path.ends_with("/chat/completions"),
        CanaryDialect::Responses => request.path.ends_with("/responses"),
        CanaryDialect::Gemini => request.path.contains("enerateContent"),
    };
    if !is_asked {
        return (CanaryResponse::not_found(), None);
    }
    let body = &request.body;
    let result = match call.dialect {
        CanaryDialect::Messages => messages_result(body),
        CanaryDialect::ChatCompletions => chat_result(body),
        CanaryDialect::Responses => responses_result(body),
        CanaryDialect::Gemini => gemini_result(body),
    };
    let has_tools = body["tools"].as_array().is_some_and(|it| !it.is_empty());
    let calls = has_tools && result.is_none();
    let response = match call.dialect {
        CanaryDialect::Messages => messages(call, calls, body["stream"] == true),
        CanaryDialect::ChatCompletions => chat(call, calls, body["stream"] == true),
        CanaryDialect::Responses => responses(call, calls),
        CanaryDialect::Gemini => gemini(call, calls, request.path.contains("stream")),
    };
    (response, result)
}

/// The elements of a list; none if it is something else.
fn elements(value: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn messages_result(body: &Value) -> Option<String> {
    let blocks = elements(&body["messages"]).flat_map(|message| elements(&message["content"]));
    let mut results = blocks.filter(|block| block["type"] == "tool_result");
    results
        .next_back()
        .map(|block| block["content"].to_string())
}

fn chat_result(body: &Value) -> Option<String> {
    let mut results = elements(&body["messages"]).filter(|message| message["role"] == "tool");
    results
        .next_back()
        .map(|message| message["content"].to_string())
}

/// What came after the call: its result, and what people said about it.
fn responses_result(body: &Value) -> Option<String> {
    let items = elements(&body["input"]);
    let after: Vec<_> = items
        .skip_while(|item| item["type"] != "function_call")
        .skip(1)
        .collect();
    let has_result = after
        .iter()
        .any(|item| item["type"] == "function_call_output");
    has_result.then(|| json!(after).to_string())
}

fn gemini_result(body: &Value) -> Option<String> {
    let parts = elements(&body["contents"]).flat_map(|content| elements(&content["parts"]));
    let mut results = parts.filter_map(|part| part.get("functionResponse"));
    results
        .next_back()
        .map(|result| result["response"].to_string())
}

const DONE: &str = "Done.";

fn messages(call: &CanaryCall, calls: bool, streams: bool) -> CanaryResponse {
    let (block, stop) = match calls {
        true => (
            json!({ "type": "tool_use", "id": "toolu_canary", "name": call.tool, "input": call.arguments }),
            "tool_use",
        ),
        false => (json!({ "type": "text", "text": DONE }), "end_turn"),
    };
    let usage = json!({ "input_tokens": 1, "output_tokens": 1 });
    let message = json!({
        "id": "msg_canary", "type": "message", "role": "assistant", "model": "canary",
        "content": [block], "stop_reason": stop, "stop_sequence": null, "usage": usage,
    });
    if !streams {
        return CanaryResponse::json(&message);
    }
    let mut begun = message;
    begun["content"] = json!([]);
    begun["stop_reason"] = Value::Null;
    let (empty, delta) = match calls {
        true => {
            let input = Value::Object(call.arguments.clone()).to_string();
            let mut empty = block;
            empty["input"] = json!({});
            (
                empty,
                json!({ "type": "input_json_delta", "partial_json": input }),
            )
        }
        false => (
            json!({ "type": "text", "text": "" }),
            json!({ "type": "text_delta", "text": DONE }),
        ),
    };
    CanaryResponse::events([
        json!({ "type": "message_start", "message": begun }),
        json!({ "type": "content_block_start", "index": 0, "content_block": empty }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": stop }, "usage": { "output_tokens": 1 } }),
        json!({ "type": "message_stop" }),
    ])
}

fn chat(call: &CanaryCall, calls: bool, streams: bool) -> CanaryResponse {
    let (message, reason) = match calls {
        true => {
            let arguments = Value::Object(call.arguments.clone()).to_string();
            let function = json!({ "name": call.tool, "arguments": arguments });
            let calls = json!([{ "index": 0, "id": "call_canary", "type": "function", "function": function }]);
            (
                json!({ "role": "assistant", "content": null, "tool_calls": calls }),
                "tool_calls",
            )
        }
        false => (json!({ "role": "assistant", "content": DONE }), "stop"),
    };
    let usage = json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 });
    let chunk = |choices: Value, usage: Value| {
        json!({
            "id": "chatcmpl-canary", "object": "chat.completion.chunk", "created": 1,
            "model": "canary", "choices": choices, "usage": usage,
        })
    };
    if streams {
        return CanaryResponse::events([
            chunk(
                json!([{ "index": 0, "delta": message, "finish_reason": null }]),
                Value::Null,
            ),
            chunk(
                json!([{ "index": 0, "delta": {}, "finish_reason": reason }]),
                Value::Null,
            ),
            chunk(json!([]), usage),
        ]);
    }
    CanaryResponse::json(&json!({
        "id": "chatcmpl-canary", "object": "chat.completion", "created": 1, "model": "canary",
        "choices": [{ "index": 0, "message": message, "finish_reason": reason }], "usage": usage,
    }))
}

fn responses(call: &CanaryCall, calls: bool) -> CanaryResponse {
    let item = match calls {
        true => json!({
            "type": "function_call", "id": "item_canary", "call_id": "call_canary",
            "name": call.tool, "status": "completed",
            "arguments": Value::Object(call.arguments.clone()).to_string(),
        }),
        false => json!({
            "type": "message", "id": "msg_canary", "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": DONE, "annotations": [] }],
        }),
    };
    let whole = |status: &str, output: Value| {
        json!({
            "id": "resp_canary", "object": "response", "status": status, "model": "canary",
            "output": output,
            "usage": {
                "input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
                "input_tokens_details": { "cached_tokens": 0 },
                "output_tokens_details": { "reasoning_tokens": 0 },
            },
        })
    };
    CanaryResponse::events([
        json!({ "type": "response.created", "response": whole("in_progress", json!([])) }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item": item }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "response": whole("completed", json!([item])) }),
    ])
}

fn gemini(call: &CanaryCall, calls: bool, streams: bool) -> CanaryResponse {
    let part = match calls {
        true => {
            json!({ "functionCall": { "id": "canary", "name": call.tool, "args": call.arguments } })
        }
        false => json!({ "text": DONE }),
    };
    let said = json!({
        "candidates": [{
            "content": { "role": "model", "parts": [part] }, "finishReason": "STOP", "index": 0,
        }],
        "usageMetadata": { "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2 },
    });
    match streams {
        true => CanaryResponse::events([said]),
        false => CanaryResponse::json(&said),
    }
}
