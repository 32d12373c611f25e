//! What an error of a provider means.

use serde_json::Value;

use super::super::digest::ends;
use super::super::{BrainError, Trouble};

/// The body of an error: JSON, or whatever text there is of a page.
pub(super) fn said(text: &str) -> Value {
    if let Ok(value @ Value::Object(_)) = serde_json::from_str(text) {
        return value;
    }
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    let title = || {
        let from = lower.find("<title>")? + "<title>".len();
        let to = from + lower[from..].find("</title>")?;
        text.get(from..to)
    };
    let page = lower.starts_with("<!doctype") || lower.starts_with("<html");
    let message = match title() {
        Some(title) => format!("a web page, {:?}", ends(title.trim(), 200)),
        None if page => "a web page".to_owned(),
        None => ends(text, 1000),
    };
    serde_json::json!({ "message": message })
}

/// What an error means, from its status and from what is said of it.
pub(super) fn failure(status: Option<u16>, body: &Value) -> BrainError {
    let error = body.get("error").filter(|it| !it.is_null()).unwrap_or(body);
    let word = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let message = match error {
        Value::String(text) => text.as_str(),
        Value::Object(_) if !word("message").is_empty() => word("message"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            word("detail")
        }
    };
    let (kind, code) = (word("type"), word("code"));
    let number = error.get("code").and_then(Value::as_u64);
    let number = number.and_then(|number| u16::try_from(number).ok());
    let trouble = trouble(status.or(number), kind, code, message);
    let status = status.map_or(String::new(), |status| format!(" ({status})"));
    let kind = if kind.is_empty() { code } else { kind };
    let kind = if kind.is_empty() {
        String::new()
    } else {
        format!(" {}", ends(kind, 100))
    };
    let message = if message.is_empty() {
        String::new()
    } else {
        format!(": {}", ends(message, 1000))
    };
    let text = format!("the provider answered with an error{kind}{status}{message}");
    BrainError::new(trouble, text)
}

fn trouble(status: Option<u16>, kind: &str, code: &str, message: &str) -> Trouble {
    let message = message.to_ascii_lowercase();
    let too_long = [
        "prompt is too long",
        "context length",
        "context_length",
        "context size",
        "context window",
    ];
    let busy = Trouble::Busy { after: None };
    match (status, kind, code) {
        // This limit does not pass by itself.
        (_, "insufficient_quota", _) | (_, _, "insufficient_quota") => Trouble::Refused,
        (Some(413), ..) | (_, "request_too_large", _) | (_, _, "context_length_exceeded") => {
            Trouble::TooLong
        }
        (Some(400) | None, ..) if too_long.iter().any(|words| message.contains(words)) => {
            Trouble::TooLong
        }
        (Some(408 | 429 | 500..=599), ..) => busy,
        (_, "overloaded_error" | "rate_limit_error" | "api_error" | "timeout_error", _) => busy,
        (_, "server_error" | "service_unavailable" | "rate_limit_exceeded", _) => busy,
        (Some(_), ..) => Trouble::Refused,
        (None, "invalid_request_error" | "authentication_error" | "permission_error", _) => {
            Trouble::Refused
        }
        (None, ..) => busy,
    }
}
