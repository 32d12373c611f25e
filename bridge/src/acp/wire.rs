//! JSON-RPC 2.0 in lines, as ACP speaks it over standard input and output.

use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// Bytes of one message. A line that is longer is skipped.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// Messages that may wait to be written. Whoever reads none of so many is taken for gone.
const MAX_UNSENT: usize = 1024;

pub(super) const METHOD_NOT_FOUND: i64 = -32601;
pub(super) const INVALID_PARAMS: i64 = -32602;
pub(super) const INTERNAL_ERROR: i64 = -32603;
pub(super) const AUTH_REQUIRED: i64 = -32000;
pub(super) const RESOURCE_NOT_FOUND: i64 = -32002;

/// What one line says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AcpMessage {
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    Response {
        id: Value,
        outcome: Result<Value, RpcError>,
    },
}

/// Why a request was not answered as it was meant.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
}

impl RpcError {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }
}

impl AcpMessage {
    /// Reads a line; `None` if it is no message.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let Ok(Value::Object(mut fields)) = serde_json::from_slice(line) else {
            return None;
        };
        let id = fields.remove("id").filter(is_id);
        let params = fields.remove("params").unwrap_or(Value::Null);
        match (fields.remove("method"), id) {
            (Some(Value::String(method)), Some(id)) => {
                Some(AcpMessage::Request { id, method, params })
            }
            (Some(Value::String(method)), None) => {
                Some(AcpMessage::Notification { method, params })
            }
            (None, Some(id)) => {
                let outcome = match fields.remove("error") {
                    None | Some(Value::Null) => Ok(fields.remove("result").unwrap_or(Value::Null)),
                    Some(error) => Err(RpcError {
                        code: error["code"].as_i64().unwrap_or(INTERNAL_ERROR),
                        message: error_text(&error),
                    }),
                };
                Some(AcpMessage::Response { id, outcome })
            }
            (Some(_) | None, _) => None,
        }
    }

    pub(super) fn request(id: impl Into<Value>, method: &str, params: Value) -> Self {
        AcpMessage::Request {
            id: id.into(),
            method: method.to_owned(),
            params,
        }
    }

    pub(super) fn notification(method: &str, params: Value) -> Self {
        AcpMessage::Notification {
            method: method.to_owned(),
            params,
        }
    }

    fn to_line(&self) -> String {
        let value = match self {
            AcpMessage::Request { id, method, params } => {
                json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            }
            AcpMessage::Notification { method, params } => {
                json!({"jsonrpc": "2.0", "method": method, "params": params})
            }
            AcpMessage::Response {
                id,
                outcome: Ok(result),
            } => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            AcpMessage::Response {
                id,
                outcome: Err(error),
            } => {
                let error = json!({"code": error.code, "message": error.message});
                json!({"jsonrpc": "2.0", "id": id, "error": error})
            }
        };
        format!("{value}\n")
    }
}

fn is_id(id: &Value) -> bool {
    id.is_string() || id.is_number()
}

/// What an error says: agents keep the useful part of it in `data`.
fn error_text(error: &Value) -> String {
    let message = error["message"].as_str().unwrap_or("no reason given");
    let data = &error["data"];
    let details = data.as_str().or_else(|| data["details"].as_str());
    let details = details.or_else(|| data["message"].as_str());
    match details {
        Some(details) if details != message => format!("{message}: {details}"),
        Some(_) | None => message.to_owned(),
    }
}

/// Reads messages until the other side closes. What is no message is skipped.
pub(super) async fn read_messages(
    mut input: impl AsyncBufRead + Unpin,
    messages: mpsc::Sender<AcpMessage>,
) {
    let mut line = Vec::new();
    while let Ok(true) = read_line(&mut input, &mut line).await {
        match AcpMessage::parse(&line) {
            Some(message) => {
                if messages.send(message).await.is_err() {
                    return;
                }
            }
            None if line.trim_ascii().is_empty() => {}
            None => tracing::warn!(bytes = line.len(), "skipped a line that is no message"),
        }
    }
}

/// Reads one line, or leaves it empty if it is too long. False at the end.
async fn read_line(
    input: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> std::io::Result<bool> {
    line.clear();
    let mut too_long = false;
    loop {
        let available = input.fill_buf().await?;
        if available.is_empty() {
            return Ok(!line.is_empty());
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        too_long |= line.len() + part.len() > MAX_LINE_BYTES;
        match too_long {
            true => line.clear(),
            false => line.extend_from_slice(part),
        }
        let used = end.map_or(available.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// Where messages are written to.
#[derive(Debug, Clone)]
pub(super) struct Outgoing(mpsc::Sender<String>);

impl Outgoing {
    /// Starts to write to this.
    pub(super) fn start(mut output: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        let (lines, mut receiver) = mpsc::channel::<String>(MAX_UNSENT);
        tokio::spawn(async move {
            while let Some(line) = receiver.recv().await {
                let written = output.write_all(line.as_bytes()).await;
                if written.is_err() || output.flush().await.is_err() {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// Sends a message, without waiting for anybody to read it. False if nobody will.
    pub(super) fn send(&self, message: &AcpMessage) -> bool {
        let sent = self.0.try_send(message.to_line());
        if sent.is_err() {
            tracing::warn!("a message was not written, because nobody reads");
        }
        sent.is_ok()
    }

    pub(super) fn respond(&self, id: Value, outcome: Result<Value, RpcError>) -> bool {
        self.send(&AcpMessage::Response { id, outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(text: &[u8]) -> Vec<AcpMessage> {
        let (sender, mut receiver) = mpsc::channel(64);
        read_messages(text, sender).await;
        let mut messages = Vec::new();
        while let Some(message) = receiver.recv().await {
            messages.push(message);
        }
        messages
    }

    #[tokio::test]
    async fn what_is_no_message_is_skipped() {
        let mut text =
            b"not json\n\n[1]\n{\"method\":7}\n\xff\xfe\n{\"id\":{},\"result\":1}\n".to_vec();
        text.extend_from_slice(&vec![b'x'; MAX_LINE_BYTES + 1]);
        text.extend_from_slice(b"\n{\"method\":\"a\"}\n{\"id\":1,\"method\":\"b\",\"params\":{}}");
        let expected = [
            AcpMessage::notification("a", Value::Null),
            AcpMessage::request(1, "b", json!({})),
        ];
        assert_eq!(read_all(&text).await, expected);
    }

    #[tokio::test]
    async fn an_error_says_what_its_data_says() {
        let line = br#"{"id":"x","error":{"code":-32603,"message":"Internal error","data":{"details":"no key"}}}"#;
        let error = RpcError::new(INTERNAL_ERROR, "Internal error: no key");
        let expected = AcpMessage::Response {
            id: "x".into(),
            outcome: Err(error),
        };
        assert_eq!(read_all(line).await, [expected]);
    }
}
