//! Google's generateContent API.

use serde_json::{Value, json};

use super::conversation::{Encode, Parsed, Part, ScriptedAnswer, content_text, elements, string};
use super::http::{ModelHttpRequest, ModelHttpResponse};
use super::{ModelDialect, SeenResult};

pub(super) fn respond(request: &ModelHttpRequest) -> (Parsed, Encode) {
    let body = &request.body;
    let declarations =
        elements(&body["tools"]).flat_map(|tool| elements(&tool["functionDeclarations"]));
    let (_, model) = request.path().rsplit_once('/').unwrap_or_default();
    let parsed = Parsed {
        dialect: ModelDialect::Gemini,
        model: model.split(':').next().unwrap_or_default().to_owned(),
        system: content_text(&body["systemInstruction"]["parts"]),
        history: elements(&body["contents"]).flat_map(parts).collect(),
        tools: declarations
            .map(|declaration| string(&declaration["name"]))
            .collect(),
        tool_definitions: body["tools"].clone(),
    };
    let streams = request.path().ends_with(":streamGenerateContent");
    let encode = move |answer: &ScriptedAnswer| {
        let response = response(answer);
        match streams {
            true => ModelHttpResponse::events(&[(None, response.to_string())]),
            false => ModelHttpResponse::json(&response),
        }
    };
    (parsed, Box::new(encode))
}

fn parts(content: &Value) -> Vec<Part> {
    let from_model = content["role"] == "model";
    let parts = elements(&content["parts"]).filter_map(|part| {
        if let Some(call) = part.get("functionCall") {
            return Some(Part::Call {
                id: string(&call["id"]),
                name: string(&call["name"]),
            });
        }
        if let Some(response) = part.get("functionResponse") {
            return Some(Part::Result(result(response)));
        }
        let text = string(part.get("text")?);
        Some(match from_model {
            true => Part::Assistant(text),
            false => Part::User(text),
        })
    });
    parts.collect()
}

fn result(response: &Value) -> SeenResult {
    let said = &response["response"];
    let text = said["error"].as_str().or(said["output"].as_str());
    SeenResult {
        call_id: string(&response["id"]),
        name: string(&response["name"]),
        text: text.map_or_else(|| said.to_string(), str::to_owned),
        is_error: said.get("error").is_some(),
    }
}

fn response(answer: &ScriptedAnswer) -> Value {
    let parts = match answer {
        ScriptedAnswer::Text(text) => vec![json!({ "text": text })],
        ScriptedAnswer::Calls(calls) => {
            let calls = calls.iter().map(|(id, call)| {
                json!({ "functionCall": { "id": id, "name": call.name, "args": call.arguments } })
            });
            calls.collect()
        }
    };
    let content = json!({ "role": "model", "parts": parts });
    json!({
        "candidates": [{ "content": content, "finishReason": "STOP", "index": 0 }],
        "usageMetadata": { "promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15 },
    })
}
