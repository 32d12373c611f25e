//! A fake model provider whose answers the test gives, one request at a time. It has the Chat
//! Completions API unless a test chooses another.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::TEST_TIMEOUT;

pub struct FakeModelServer {
    listener: TcpListener,
}

impl FakeModelServer {
    pub async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { listener }
    }

    /// The flags that make an agent use this model.
    pub fn agent_flags(&self) -> Vec<String> {
        self.agent_flags_for("openai")
    }

    /// As `agent_flags`, for another provider's API.
    pub fn agent_flags_for(&self, provider: &str) -> Vec<String> {
        let base = format!("http://{}/v1", self.listener.local_addr().unwrap());
        [
            "--brain",
            provider,
            "--model",
            "test-1",
            "--base-url",
            &base,
        ]
        .map(str::to_owned)
        .into()
    }

    /// Waits for the next request and sends the head of the response.
    pub async fn next_request(&self) -> ModelRequest {
        let accepted = tokio::time::timeout(TEST_TIMEOUT, self.listener.accept()).await;
        let (mut socket, _) = accepted.expect("the model is asked").unwrap();
        let (head, body) = read_request(&mut socket).await;
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                      transfer-encoding: chunked\r\nconnection: close\r\n\r\n";
        socket.write_all(answer.as_bytes()).await.unwrap();
        ModelRequest {
            head,
            body,
            socket,
            calls: 0,
        }
    }

    /// Answers the next request with an HTTP error.
    pub async fn respond_error(&self, status: u16, headers: &str, body: &str) {
        let accepted = tokio::time::timeout(TEST_TIMEOUT, self.listener.accept()).await;
        let (mut socket, _) = accepted.expect("the model is asked").unwrap();
        read_request(&mut socket).await;
        let answer = format!(
            "HTTP/1.1 {status} Status\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(answer.as_bytes()).await.unwrap();
    }
}

pub struct ModelRequest {
    /// The request up to its body.
    pub head: String,
    /// The body of the request.
    pub body: Value,
    socket: TcpStream,
    calls: usize,
}

impl ModelRequest {
    /// The contents of the messages of a role, in order.
    pub fn messages(&self, role: &str) -> Vec<String> {
        let messages = self.body["messages"].as_array().unwrap().iter();
        messages
            .filter(|message| message["role"] == role)
            .map(|message| content_text(&message["content"]))
            .collect()
    }

    /// The content of the newest message of a role.
    pub fn last_message(&self, role: &str) -> String {
        let last = self.messages(role).pop();
        last.unwrap_or_else(|| panic!("no message of {role}"))
    }

    pub async fn stream_text(mut self, text: &str) -> Self {
        self.send_delta(json!({ "content": text })).await;
        self
    }

    pub async fn stream_thinking(mut self, text: &str) -> Self {
        self.send_delta(json!({ "reasoning_content": text })).await;
        self
    }

    pub async fn tool_call(self, name: &str, arguments: Value) -> Self {
        self.raw_tool_call(name, &arguments.to_string()).await
    }

    /// Sends a tool call with its arguments exactly as given.
    pub async fn raw_tool_call(mut self, name: &str, arguments: &str) -> Self {
        let index = self.calls;
        self.calls += 1;
        let function = json!({ "name": name, "arguments": arguments });
        let call = json!({ "index": index, "id": format!("call_{index}"), "type": "function", "function": function });
        self.send_delta(json!({ "tool_calls": [call] })).await;
        self
    }

    pub async fn shell_call(self, command: &str) -> Self {
        let arguments = json!({ "command": command, "purpose": "a test" });
        self.tool_call("shell", arguments).await
    }

    /// Sends these tool calls and ends the answer.
    pub async fn finish_with_calls(mut self, calls: &[(&str, Value)]) {
        for (name, arguments) in calls {
            self = self.tool_call(name, arguments.clone()).await;
        }
        self.finish().await;
    }

    /// Sends these shell commands as tool calls and ends the answer.
    pub async fn finish_with_commands(mut self, commands: &[&str]) {
        for command in commands {
            self = self.shell_call(command).await;
        }
        self.finish().await;
    }

    /// Sends this text and ends the answer.
    pub async fn finish_with_text(self, text: &str) {
        self.stream_text(text).await.finish().await;
    }

    /// Ends the answer with the finish reason that fits what was sent.
    pub async fn finish(self) {
        let reason = match self.calls {
            0 => "stop",
            _ => "tool_calls",
        };
        self.finish_with_reason(reason).await;
    }

    /// Ends the answer with this finish reason and a token count.
    pub async fn finish_with_reason(mut self, finish: &str) {
        let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": finish }] });
        self.send_event(&last.to_string()).await;
        let usage = json!({ "choices": [], "usage": { "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18 } });
        self.send_event(&usage.to_string()).await;
        self.send_event("[DONE]").await;
        // The agent may have closed the connection already.
        let _ = self.socket.write_all(b"0\r\n\r\n").await;
    }

    /// Sends a whole answer of the Messages API, event by event.
    pub async fn send_events(mut self, events: &[Value]) {
        for event in events {
            self.send_event(&event.to_string()).await;
        }
        let _ = self.socket.write_all(b"0\r\n\r\n").await;
    }

    /// The value of a header; empty if it is missing.
    pub fn header(&self, name: &str) -> String {
        find_header(&self.head, name)
    }

    /// Waits until the agent closes the connection.
    pub async fn wait_disconnected(mut self) {
        let mut rest = Vec::new();
        let gone = tokio::time::timeout(TEST_TIMEOUT, self.socket.read_to_end(&mut rest)).await;
        // A reset is as good as an orderly close.
        let _ = gone.expect("the agent hangs up");
    }

    async fn send_delta(&mut self, delta: Value) {
        let chunk = json!({ "model": "test-1", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
        self.send_event(&chunk.to_string()).await;
    }

    async fn send_event(&mut self, data: &str) {
        let event = format!("data: {data}\n\n");
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        // The agent may have closed the connection already.
        let _ = self.socket.write_all(chunk.as_bytes()).await;
    }
}

fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .map(|part| content_text(&part["text"]))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => content.to_string(),
    }
}

/// The head and the body of a request.
async fn read_request(socket: &mut TcpStream) -> (String, Value) {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length: usize = find_header(head, "content-length").parse().unwrap();
            if body.len() >= length {
                let body = serde_json::from_str(body).unwrap();
                return (head.to_owned(), body);
            }
        }
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0);
    }
}

fn find_header(head: &str, name: &str) -> String {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(found, _)| found.eq_ignore_ascii_case(name));
    found.map_or(String::new(), |(_, value)| value.to_owned())
}
