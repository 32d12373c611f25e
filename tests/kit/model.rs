//! A model behind Chat Completions, answered for by the test: one question at a time.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::PATIENCE;

pub struct Model {
    listener: TcpListener,
}

impl Model {
    pub async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { listener }
    }

    /// What an agent is told so that it asks this model.
    pub fn flags(&self) -> Vec<String> {
        let base = format!("http://{}/v1", self.listener.local_addr().unwrap());
        [
            "--brain",
            "openai",
            "--model",
            "test-1",
            "--base-url",
            &base,
        ]
        .map(str::to_owned)
        .into()
    }

    /// The next question; its answer begins at once.
    pub async fn asked(&self) -> Question {
        let accepted = tokio::time::timeout(PATIENCE, self.listener.accept()).await;
        let (mut socket, _) = accepted.expect("the model is asked").unwrap();
        let body = request(&mut socket).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    transfer-encoding: chunked\r\nconnection: close\r\n\r\n";
        socket.write_all(head.as_bytes()).await.unwrap();
        Question {
            body,
            socket,
            calls: 0,
        }
    }

    /// Answers the next question with a status and nothing else.
    pub async fn fails(&self, status: u16, headers: &str) {
        let (mut socket, _) = self.listener.accept().await.unwrap();
        request(&mut socket).await;
        let answer = format!(
            "HTTP/1.1 {status} Status\r\n{headers}content-length: 2\r\nconnection: close\r\n\r\n{{}}"
        );
        socket.write_all(answer.as_bytes()).await.unwrap();
    }
}

pub struct Question {
    /// What the agent asked.
    pub body: Value,
    socket: TcpStream,
    calls: usize,
}

impl Question {
    /// The contents of the messages of a role, in order.
    pub fn messages(&self, role: &str) -> Vec<String> {
        let messages = self.body["messages"].as_array().unwrap().iter();
        messages
            .filter(|message| message["role"] == role)
            .map(|message| text(&message["content"]))
            .collect()
    }

    /// The newest result of a call.
    pub fn result(&self) -> String {
        self.messages("tool").pop().expect("a call was answered")
    }

    pub async fn say(mut self, text: &str) -> Self {
        self.delta(json!({ "content": text })).await;
        self
    }

    pub async fn think(mut self, text: &str) -> Self {
        self.delta(json!({ "reasoning_content": text })).await;
        self
    }

    pub async fn call(mut self, name: &str, arguments: Value) -> Self {
        let index = self.calls;
        self.calls += 1;
        let arguments = arguments.to_string();
        let function = json!({ "name": name, "arguments": arguments });
        let call = json!({ "index": index, "id": format!("call_{index}"), "type": "function", "function": function });
        self.delta(json!({ "tool_calls": [call] })).await;
        self
    }

    pub async fn shell(self, command: &str) -> Self {
        let arguments = json!({ "command": command, "purpose": "a test" });
        self.call("shell", arguments).await
    }

    /// The end of the answer, with what it cost.
    pub async fn done(mut self) {
        let finish = match self.calls {
            0 => "stop",
            _ => "tool_calls",
        };
        let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": finish }] });
        self.event(&last.to_string()).await;
        let usage = json!({ "choices": [], "usage": { "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18 } });
        self.event(&usage.to_string()).await;
        self.event("[DONE]").await;
        // An agent that has had enough hangs up.
        let _ = self.socket.write_all(b"0\r\n\r\n").await;
    }

    /// Waits until the agent hangs up.
    pub async fn given_up(mut self) {
        let mut rest = Vec::new();
        let gone = tokio::time::timeout(PATIENCE, self.socket.read_to_end(&mut rest)).await;
        // However it hangs up.
        let _ = gone.expect("the agent hangs up");
    }

    async fn delta(&mut self, delta: Value) {
        let chunk = json!({ "model": "test-1", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
        self.event(&chunk.to_string()).await;
    }

    async fn event(&mut self, data: &str) {
        let event = format!("data: {data}\n\n");
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        // An agent that has had enough hangs up.
        let _ = self.socket.write_all(chunk.as_bytes()).await;
    }
}

fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| text(&part["text"])).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => content.to_string(),
    }
}

async fn request(socket: &mut TcpStream) -> Value {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            if body.len() >= length {
                return serde_json::from_str(body).unwrap();
            }
        }
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0);
    }
}
