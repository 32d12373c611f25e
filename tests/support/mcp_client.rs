//! An MCP client with a real `pvp mcp` process behind it.

use serde_json::{Value, json};

use super::TestServer;
use super::cli::{CliEnv, CliProcess};

/// A client whose every message the test writes; the process is killed when dropped.
pub struct McpClient {
    /// The working directory and home of the process.
    pub cli: CliEnv,
    /// The `pvp mcp` behind it.
    pub process: CliProcess,
    /// The participant that it works as.
    pub participant: String,
    /// What it answered to `initialize`.
    pub welcome: Value,
    /// The id of the next request.
    next_id: u64,
    /// Received, and not consumed by the test yet.
    unread: Vec<Value>,
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpResult {
    pub text: String,
    pub is_error: bool,
}

impl McpClient {
    /// Starts the process in a session and initializes it.
    pub async fn start(server: &TestServer, session: &str) -> Self {
        Self::start_at(CliEnv::new(), server, session, &[]).await
    }

    /// As `start`, in a CLI environment that the test has prepared, with extra flags.
    pub async fn start_at(cli: CliEnv, server: &TestServer, session: &str, flags: &[&str]) -> Self {
        let user = server.invite("worker", &["driver"], &["--kind", "agent"]);
        let link = server.link(&user, Some(session));
        let process = spawn(&cli, &link, flags);
        Self::over(cli, process, user.participant).await
    }

    /// As `start`, with what the client says of itself.
    pub async fn start_as(server: &TestServer, session: &str, client_info: Value) -> Self {
        let cli = CliEnv::new();
        let user = server.invite("worker", &["driver"], &["--kind", "agent"]);
        let process = spawn(&cli, &server.link(&user, Some(session)), &[]);
        Self::introduced(cli, process, user.participant, client_info).await
    }

    /// Initializes a server that was started elsewhere.
    pub async fn over(cli: CliEnv, process: CliProcess, participant: String) -> Self {
        let client_info = json!({ "name": "test", "version": "1" });
        Self::introduced(cli, process, participant, client_info).await
    }

    async fn introduced(
        cli: CliEnv,
        process: CliProcess,
        participant: String,
        client_info: Value,
    ) -> Self {
        let mut client = Self {
            process,
            cli,
            participant,
            welcome: Value::Null,
            next_id: 1,
            unread: Vec::new(),
        };
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": client_info,
        });
        let id = client.request("initialize", hello).await;
        client.welcome = client.response(id).await["result"].clone();
        client.notify("notifications/initialized", json!({})).await;
        client
    }

    pub async fn notify(&mut self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.process.write_line(&message.to_string()).await;
    }

    /// Sends a request and returns its id.
    pub async fn request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.process.write_line(&message.to_string()).await;
        id
    }

    /// Calls a tool and returns the id of the request.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> u64 {
        let params = json!({ "name": tool, "arguments": arguments });
        self.request("tools/call", params).await
    }

    /// Calls a tool and asks for progress under the id of the request.
    pub async fn call_with_progress(&mut self, tool: &str, arguments: Value) -> u64 {
        let token = json!({ "progressToken": self.next_id });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": token });
        self.request("tools/call", params).await
    }

    /// Calls the shell.
    pub async fn shell(&mut self, line: &str) -> u64 {
        let arguments = json!({ "command": line, "purpose": "a test" });
        self.call("shell", arguments).await
    }

    pub async fn cancel(&mut self, id: u64) {
        let params = json!({ "requestId": id, "reason": "never mind" });
        self.notify("notifications/cancelled", params).await;
    }

    /// Waits for the first unread message that `fits`; the others stay unread.
    pub async fn wait(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.unread.iter().position(&fits) {
            return self.unread.remove(at);
        }
        loop {
            // Every line has to be a message: standard output belongs to the protocol.
            let message = self.process.next_json().await;
            assert_eq!(message["jsonrpc"], "2.0", "{message}");
            if fits(&message) {
                return message;
            }
            self.unread.push(message);
        }
    }

    /// Waits for the answer to a request.
    pub async fn response(&mut self, id: u64) -> Value {
        self.wait(|message| message["id"] == id && message["method"].is_null())
            .await
    }

    /// Waits for the result of a tool call.
    pub async fn result(&mut self, id: u64) -> McpResult {
        let response = self.response(id).await;
        let result = &response["result"];
        let [content] = result["content"].as_array().unwrap().as_slice() else {
            panic!("{response}");
        };
        assert_eq!(content["type"], "text");
        McpResult {
            text: content["text"].as_str().unwrap().to_owned(),
            is_error: result["isError"] == true,
        }
    }

    /// The next progress message of a call.
    pub async fn next_progress(&mut self, id: u64) -> String {
        let is_progress = |message: &Value| {
            let is_progress = message["method"] == "notifications/progress";
            is_progress && message["params"]["progressToken"] == id
        };
        let progress = self.wait(is_progress).await;
        progress["params"]["message"].as_str().unwrap().to_owned()
    }

    /// The messages that were received and not consumed.
    pub fn unread(&self) -> &[Value] {
        &self.unread
    }

    /// The content of a file in the workspace; empty if there is no such file.
    pub fn read_file(&self, name: &str) -> String {
        std::fs::read_to_string(self.cli.workdir().join(name)).unwrap_or_default()
    }
}

/// Starts `pvp mcp` with a link.
pub fn spawn(cli: &CliEnv, link: &str, flags: &[&str]) -> CliProcess {
    let mut command = cli.command(&["mcp"]);
    command
        .args(flags)
        .env("PVP_LINK", link)
        .stdin(std::process::Stdio::piped());
    CliProcess::spawn(&mut command)
}
