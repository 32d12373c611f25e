//! A stand-in for an agent that speaks ACP: PVP starts a program that leads to the test, and the test
//! says what the agent says.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixListener;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::cli::{CliEnv, CliProcess};
use super::{TEST_TIMEOUT, TestServer};

/// The conversation of the stand-in.
pub const CONVERSATION: &str = "conversation-1";

/// A stand-in for an agent under `pvp agent --acp` or `pvp acp`; killed when dropped.
pub struct AcpStandIn {
    /// The working directory and home.
    pub cli: CliEnv,
    /// The `pvp` that started it.
    pub run: CliProcess,
    /// Who it is in the session.
    pub participant: String,
    /// The parameters of `session/new`.
    pub session_new: Value,
    /// What it is told.
    input: Lines<BufReader<OwnedReadHalf>>,
    /// What it says.
    output: OwnedWriteHalf,
    /// What was read and not asked for yet.
    unread: Vec<Value>,
}

/// Writes the program of a stand-in; what it says and hears goes through the socket.
pub fn install(cli: &CliEnv) -> (PathBuf, UnixListener) {
    let program = cli.home().join("stand-in");
    let relay = cli.home().join("relay");
    std::fs::create_dir(&relay).unwrap();
    let pvp = env!("CARGO_BIN_EXE_pvp");
    let text = format!(
        "#!/bin/sh\necho $$ > '{0}.pid'\nenv > '{0}.env'\nexec '{pvp}' mcp --relay '{1}'\n",
        program.display(),
        relay.display()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (program, UnixListener::bind(relay.join("mcp.sock")).unwrap())
}

impl AcpStandIn {
    /// Starts it in a session, prompted by people.
    pub async fn start(server: &TestServer, session: &str) -> Self {
        Self::start_answering(server, session, json!({ "sessionId": CONVERSATION })).await
    }

    /// As `start`, with its answer to `session/new`.
    pub async fn start_answering(server: &TestServer, session: &str, opened: Value) -> Self {
        let user = server.invite("helper", &["driver"], &["--kind", "agent"]);
        let cli = CliEnv::new();
        let (program, listener) = install(&cli);
        let mut command = cli.command(&["agent", "--acp"]);
        command.arg(&program).arg("--flag");
        command.env("PVP_AGENT_LINK", server.link(&user, Some(session)));
        let run = CliProcess::spawn(&mut command);
        let mut agent = Self::accept(cli, run, listener, user.participant).await;
        agent.introduce(opened).await;
        agent
    }

    /// Waits for the program that PVP starts.
    pub async fn accept(
        cli: CliEnv,
        run: CliProcess,
        listener: UnixListener,
        participant: String,
    ) -> Self {
        let accepted = tokio::time::timeout(TEST_TIMEOUT, listener.accept()).await;
        let (stream, _) = accepted.expect("the agent is started").unwrap();
        let (input, output) = stream.into_split();
        Self {
            cli,
            run,
            participant,
            session_new: Value::Null,
            input: BufReader::new(input).lines(),
            output,
            unread: Vec::new(),
        }
    }

    /// Answers `initialize` and `session/new`.
    pub async fn introduce(&mut self, opened: Value) {
        let initialize = self.expect("initialize").await;
        let capabilities = &initialize["params"]["clientCapabilities"];
        assert_eq!(capabilities["terminal"], true);
        let introduction = json!({
            "protocolVersion": 1, "agentCapabilities": {},
            "agentInfo": { "name": "stand-in", "version": "1.2.3" },
        });
        self.respond(&initialize, introduction).await;
        let session_new = self.expect("session/new").await;
        self.session_new = session_new["params"].clone();
        self.respond(&session_new, opened).await;
    }

    /// Says a line.
    pub async fn say_text(&mut self, text: &str) {
        self.output.write_all(text.as_bytes()).await.unwrap();
        self.output.write_all(b"\n").await.unwrap();
    }

    pub async fn say(&mut self, message: Value) {
        self.say_text(&message.to_string()).await;
    }

    pub async fn request(&mut self, id: u64, method: &str, params: Value) {
        let mut params = params;
        params["sessionId"] = CONVERSATION.into();
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
    }

    pub async fn respond(&mut self, request: &Value, result: Value) {
        let id = &request["id"];
        self.say(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
            .await;
    }

    /// Reports something about the conversation.
    pub async fn update(&mut self, update: Value) {
        let params = json!({ "sessionId": CONVERSATION, "update": update });
        self.say(json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }))
            .await;
    }

    /// Asks whether a command may run, with options for once and for ever.
    pub async fn ask(&mut self, id: u64, call: &str, line: &str) {
        let tool_call = json!({
            "toolCallId": call, "title": line, "kind": "execute", "status": "pending",
            "rawInput": { "command": line, "description": "why" },
        });
        self.ask_about(id, tool_call).await;
    }

    pub async fn ask_about(&mut self, id: u64, tool_call: Value) {
        let options = json!([
            { "optionId": "for-ever", "name": "Always", "kind": "allow_always" },
            { "optionId": "this-one", "name": "Yes", "kind": "allow_once" },
            { "optionId": "never", "name": "Never", "kind": "reject_always" },
            { "optionId": "not-this", "name": "No", "kind": "reject_once" },
        ]);
        let params = json!({ "toolCall": tool_call, "options": options });
        self.request(id, "session/request_permission", params).await;
    }

    /// The option that was chosen, or how else a question was answered.
    pub async fn choice(&mut self, id: u64) -> String {
        let answer = self.answer(id).await;
        let outcome = &answer["result"]["outcome"];
        let choice = outcome["optionId"].as_str();
        let choice = choice.or(outcome["outcome"].as_str());
        choice.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// The answer to a request of its own.
    pub async fn answer(&mut self, id: u64) -> Value {
        self.wait(|message| message["id"] == id && message.get("method").is_none())
            .await
    }

    /// The next call of this method.
    pub async fn expect(&mut self, method: &str) -> Value {
        self.wait(|message| message["method"] == method).await
    }

    /// The next prompt, and its text.
    pub async fn prompted(&mut self) -> (Value, String) {
        let prompt = self.expect("session/prompt").await;
        let text = prompt["params"]["prompt"][0]["text"].as_str().unwrap();
        let text = text.to_owned();
        (prompt, text)
    }

    /// Ends its turn.
    pub async fn end_turn(&mut self, prompt: &Value) {
        self.respond(prompt, json!({ "stopReason": "end_turn" }))
            .await;
    }

    async fn wait(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(index) = self.unread.iter().position(&fits) {
                return self.unread.remove(index);
            }
            let line = tokio::time::timeout(TEST_TIMEOUT, self.input.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("only came: {:?}", self.unread));
            let line = line
                .unwrap()
                .unwrap_or_else(|| panic!("closed after {:?}", self.unread));
            self.unread.push(serde_json::from_str(&line).unwrap());
        }
    }

    /// What came and was not asked for.
    pub fn unread(&self) -> &[Value] {
        &self.unread
    }

    /// Waits until PVP has nothing more to say to it.
    pub async fn wait_closed(&mut self) {
        let closed = async { while let Ok(Some(_)) = self.input.next_line().await {} };
        tokio::time::timeout(TEST_TIMEOUT, closed)
            .await
            .expect("it is ended");
    }

    pub async fn kill_9(&self) {
        let pid = std::fs::read_to_string(self.cli.home().join("stand-in.pid")).unwrap();
        let mut kill = tokio::process::Command::new("kill");
        kill.args(["-9", pid.trim()]).stdin(Stdio::null());
        assert!(kill.status().await.unwrap().success());
    }

    /// The environment that it was started with.
    pub fn environment(&self) -> String {
        std::fs::read_to_string(self.cli.home().join("stand-in.env")).unwrap()
    }
}
