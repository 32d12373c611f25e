//! What an editor and its agent may say to each other, and what is changed in it.

use serde_json::{Value, json};

/// What an agent may ask of an editor besides: to ask the person something.
pub(super) const PASSED_ON: [&str; 1] = ["elicitation/create"];

/// What an editor may ask of an agent. What is not known may change whether it asks.
pub(super) const EDITOR_REQUESTS: [&str; 19] = [
    "auth/status",
    "authenticate",
    "initialize",
    "logout",
    "session/archive",
    "session/close",
    "session/delete",
    "session/fork",
    "session/list",
    "session/load",
    "session/new",
    "session/prompt",
    "session/resume",
    "session/set_config_option",
    "session/set_mode",
    "session/set_model",
    "session/set_title",
    "session/status",
    "session/unarchive",
];

/// Says that files and terminals are ours, whatever the editor can do.
pub(super) fn add_capabilities(params: &mut Value, ours: &Value) {
    let Some(params) = params.as_object_mut() else {
        return;
    };
    let capabilities = params.entry("clientCapabilities");
    let capabilities = capabilities.or_insert_with(|| json!({}));
    let ours = ours.as_object().cloned().unwrap_or_default();
    match capabilities.as_object_mut() {
        Some(capabilities) => capabilities.extend(ours),
        None => *capabilities = ours.into(),
    }
}

/// Whether a question to the person is in truth about a call.
pub(super) fn asks_for_approval(params: &Value) -> bool {
    let meta = params["_meta"].to_string().to_lowercase();
    ["approval", "permission"]
        .iter()
        .any(|word| meta.contains(word))
}

/// An editor knows only the terminals that it opened itself.
pub(super) fn hide_terminals(params: &mut Value) {
    let content = params.pointer_mut("/update/content");
    let content = content.and_then(Value::as_array_mut);
    for part in content.into_iter().flatten() {
        if part["type"] == "terminal" {
            let text = json!({ "type": "text", "text": "(runs in a terminal of PVP)" });
            *part = json!({ "type": "content", "content": text });
        }
    }
}
