//! What the requests of both dialects have in common.

use pvp_protocol::JsonObject;
use pvp_protocol::payload::PromptConfig;
use serde_json::Value;

use super::super::conversation::ToolCall;

/// Adds the provider parameters of a prompt, except those that this client sets itself.
pub(super) fn merge_provider_params(body: Value, config: Option<&PromptConfig>) -> JsonObject {
    let Value::Object(mut body) = body else {
        return JsonObject::new();
    };
    let params = config.and_then(|config| config.provider_params.as_ref());
    for (name, value) in params.into_iter().flatten() {
        let ours = [
            "messages",
            "system",
            "tools",
            "stream",
            "stream_options",
            "n",
        ];
        if !ours.contains(&name.as_str()) {
            body.insert(name.clone(), value.clone());
        }
    }
    body
}

/// The arguments of a call that is sent back. The API refuses anything but a JSON object.
pub(super) fn call_input(call: &ToolCall) -> JsonObject {
    call.parse_arguments().unwrap_or_default()
}

/// A tool name that the API accepts, even if the model made the tool up.
pub(super) fn sanitize_tool_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = name
        .chars()
        .take(64)
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
    if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name
    }
}
