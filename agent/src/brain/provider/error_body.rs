//! Classifies the errors that providers return.

use serde_json::Value;

use super::super::{BrainError, BrainErrorKind};

/// The body of an error: JSON, or the text or title of a page.
pub(super) fn parse_error_body(text: &str) -> Value {
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
        Some(title) => format!("a web page, {:?}", title.trim()),
        None if page => "a web page".to_owned(),
        None => text.to_owned(),
    };
    serde_json::json!({ "message": message })
}

/// Classifies an error by its status and body. The message may be long.
pub(super) fn error_from_body(status: Option<u16>, body: &Value) -> BrainError {
    let error = body.get("error").filter(|it| !it.is_null()).unwrap_or(body);
    let field = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let message = match error {
        Value::String(text) => text.as_str(),
        Value::Object(_) if !field("message").is_empty() => field("message"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            field("detail")
        }
    };
    let (kind, code) = (field("type"), field("code"));
    let number = error.get("code").and_then(Value::as_u64);
    let number = number.and_then(|number| u16::try_from(number).ok());
    let error_kind = classify_error(status.or(number), kind, code, message);
    let status = status.map_or(String::new(), |status| format!(" ({status})"));
    let kind = if kind.is_empty() { code } else { kind };
    let kind = if kind.is_empty() {
        String::new()
    } else {
        format!(" {kind}")
    };
    let message = if message.is_empty() {
        String::new()
    } else {
        format!(": {message}")
    };
    let text = format!("the provider answered with an error{kind}{status}{message}");
    BrainError::new(error_kind, text)
}

/// How providers and servers say that a conversation is too long.
const TOO_LONG_PHRASES: [&str; 9] = [
    "prompt is too long",
    "input is too long",
    "context length",
    "context_length",
    "context limit",
    "context size",
    "context window",
    "maximum prompt length",
    "maximum number of tokens",
];

fn classify_error(status: Option<u16>, kind: &str, code: &str, message: &str) -> BrainErrorKind {
    let message = message.to_ascii_lowercase();
    let too_long = TOO_LONG_PHRASES.iter().any(|words| message.contains(words));
    let busy = BrainErrorKind::Busy { after: None };
    match (status, kind, code) {
        // Waiting does not restore a quota.
        (_, "insufficient_quota", _) | (_, _, "insufficient_quota") => BrainErrorKind::Refused,
        (Some(413), ..) | (_, "request_too_large", _) | (_, _, "context_length_exceeded") => {
            BrainErrorKind::ContextTooLong
        }
        (Some(400 | 422) | None, ..) if too_long => BrainErrorKind::ContextTooLong,
        // The request exceeds the limit of a whole minute, so waiting does not help.
        (Some(429), ..) if message.contains("request too large") => BrainErrorKind::ContextTooLong,
        (Some(408 | 429 | 500..=599), ..) => busy,
        (_, "overloaded_error" | "rate_limit_error" | "api_error" | "timeout_error", _) => busy,
        (_, "server_error" | "service_unavailable" | "rate_limit_exceeded", _) => busy,
        (Some(_), ..) => BrainErrorKind::Refused,
        (None, "invalid_request_error" | "authentication_error" | "permission_error", _) => {
            BrainErrorKind::Refused
        }
        (None, "not_found_error" | "billing_error", _) => BrainErrorKind::Refused,
        (None, ..) => busy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_conversation_that_is_too_long_is_recognized_by_many_phrases() {
        for (status, message) in [
            (400, "prompt is too long: 210000 tokens > 200000 maximum"),
            (
                400,
                "input length and `max_tokens` exceed context limit: 199000 + 21000 > 200000",
            ),
            (400, "the request exceeds the available context size"),
            (422, "This model's maximum context length is 8192 tokens"),
            (
                400,
                "This model's maximum prompt length is 131072 but the request contains 200000 tokens",
            ),
            (
                400,
                "The input token count exceeds the maximum number of tokens allowed (1048576).",
            ),
            (
                429,
                "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000",
            ),
            (413, ""),
        ] {
            let error = error_from_body(Some(status), &json!({"error": {"message": message}}));
            assert_eq!(error.kind, BrainErrorKind::ContextTooLong, "{message}");
        }
        let limited = error_from_body(Some(429), &json!({"error": {"message": "slow down"}}));
        assert_eq!(limited.kind, BrainErrorKind::Busy { after: None });
    }

    #[test]
    fn pages_and_other_bodies_become_a_sentence() {
        let page = "<!DOCTYPE html><html><head><TITLE>Bad gateway</TITLE></head></html>";
        let error = error_from_body(Some(502), &parse_error_body(page));
        assert_eq!(
            error.message,
            "the provider answered with an error (502): a web page, \"Bad gateway\""
        );
        assert!(error.is_retryable());
        assert_eq!(
            error_from_body(Some(400), &parse_error_body("")).message,
            "the provider answered with an error (400)"
        );
    }
}
