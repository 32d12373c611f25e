//! The messages of Codex's app-server: JSON-RPC without a version, one object in each line or frame.

use pvp_protocol::JsonObject;
use serde_json::{Value, json};

/// Bytes of the longest message that is taken from either side.
pub const MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;

/// The error code for what is refused.
const REFUSED: i64 = -32600;

/// A message as it was received.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Wants an answer.
    Request {
        id: Value,
        method: String,
        params: JsonObject,
    },
    /// Answers a request; the whole message is kept.
    Response { id: Value, body: JsonObject },
    /// Wants no answer.
    Notification { method: String, params: JsonObject },
}

impl Message {
    /// Reads a message; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let Ok(Value::Object(mut body)) = serde_json::from_str(text) else {
            return None;
        };
        let id = body.get("id").filter(|id| !id.is_null()).cloned();
        if id.as_ref().is_some_and(|id| !is_id(id)) {
            return None;
        }
        let method = match body.get("method") {
            None => None,
            Some(Value::String(method)) => Some(method.clone()),
            Some(_) => return None,
        };
        let mut params = || match body.remove("params") {
            None | Some(Value::Null) => Some(JsonObject::new()),
            Some(Value::Object(params)) => Some(params),
            Some(_) => None,
        };
        match (id, method) {
            (Some(id), Some(method)) => Some(Self::Request {
                id,
                method,
                params: params()?,
            }),
            (None, Some(method)) => Some(Self::Notification {
                method,
                params: params()?,
            }),
            (Some(id), None) => Some(Self::Response { id, body }),
            (None, None) => None,
        }
    }

    /// The message as JSON.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Request { id, method, params } => {
                json!({ "id": id, "method": method, "params": params })
            }
            Self::Response { body, .. } => Value::Object(body.clone()),
            Self::Notification { method, params } => {
                json!({ "method": method, "params": params })
            }
        }
    }
}

fn is_id(id: &Value) -> bool {
    id.is_string() || id.is_i64() || id.is_u64()
}

pub fn request(id: &str, method: &str, params: Value) -> Value {
    json!({ "id": id, "method": method, "params": params })
}

pub fn notification(method: &str, params: Value) -> Value {
    json!({ "method": method, "params": params })
}

pub fn result(id: &Value, result: Value) -> Value {
    json!({ "id": id, "result": result })
}

/// Refuses a request, in words for people.
pub fn refusal(id: &Value, why: &str) -> Value {
    json!({ "id": id, "error": { "code": REFUSED, "message": why } })
}

/// A text of an object; empty if it has none.
pub fn text<'a>(object: &'a JsonObject, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_no_message_is_none() {
        for text in [
            "",
            "[]",
            "1",
            "{}",
            r#"{"id":null}"#,
            r#"{"id":{},"method":"x"}"#,
            r#"{"method":1}"#,
            r#"{"method":"x","params":[1]}"#,
            r#"{"id":1.5,"method":"x"}"#,
        ] {
            assert_eq!(Message::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_message_is_written_as_it_was_read() {
        for text in [
            r#"{"id":1,"method":"turn/start","params":{"a":1}}"#,
            r#"{"id":"x","result":{}}"#,
            r#"{"id":0,"error":{"code":1,"message":"m"}}"#,
            r#"{"method":"initialized","params":{}}"#,
        ] {
            let message = Message::parse(text).unwrap();
            let expected: Value = serde_json::from_str(text).unwrap();
            assert_eq!(message.to_json(), expected);
        }
    }
}
