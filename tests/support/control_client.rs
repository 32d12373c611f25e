//! A stand-in for Claude Code without a screen: the test says what it writes, and reads what it is told.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::pipe;

use super::cli::{CliEnv, CliProcess};
use super::session::wait_until;
use super::{TEST_TIMEOUT, TestServer};

/// Says its version, and otherwise passes lines on between its pipes and two named ones.
const PROGRAM: &str = "#!/bin/sh
[ \"$1\" = --version ] && { echo '2.1.325 (Claude Code)'; exit; }
for word; do printf '%s\\0' \"$word\"; done > \"$0.args\"
cat \"$0.says\" & 
exec cat > \"$0.hears\"
";

/// A stand-in under `pvp agent --client`; killed when dropped.
pub struct ControlClient {
    /// The working directory and home.
    pub cli: CliEnv,
    /// The `pvp agent` that started it.
    pub agent: CliProcess,
    /// Who it is in the session.
    pub participant: String,
    /// The stand-in itself.
    program: PathBuf,
    /// What it writes.
    says: pipe::Sender,
    /// What it is told.
    hears: Lines<BufReader<pipe::Receiver>>,
}

impl ControlClient {
    /// Starts it in a session, and takes its hooks.
    pub async fn start(server: &TestServer, session: &str) -> Self {
        let cli = CliEnv::new();
        let program = cli.home().join("claude");
        std::fs::write(&program, PROGRAM).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let [says, hears] = ["says", "hears"].map(|name| program.with_extension(name));
        for path in [&says, &hears] {
            let made = std::process::Command::new("mkfifo").arg(path).status();
            assert!(made.unwrap().success());
        }
        // Both ends are kept open, so that nothing ends before the test does.
        let open = || pipe::OpenOptions::new();
        let hears = open().read_write(true).open_receiver(&hears).unwrap();
        let says = open().read_write(true).open_sender(&says).unwrap();
        let user = server.invite("claude", &["driver"], &["--kind", "agent"]);
        let link = server.link(&user, Some(session));
        let mut command = cli.command(&["agent", "--client"]);
        command.arg(&program).arg("--model").arg("opus");
        command.env("PVP_AGENT_LINK", link);
        let mut client = Self {
            agent: CliProcess::spawn(&mut command),
            cli,
            participant: user.participant,
            program,
            says,
            hears: BufReader::new(hears).lines(),
        };
        let hello = client.hear().await;
        assert_eq!(hello["request"]["subtype"], "initialize", "{hello}");
        let hooks = hello["request"]["hooks"].as_object().unwrap();
        assert!(hooks.contains_key("PreToolUse"), "{hello}");
        client.confirm(&hello).await;
        client
    }

    /// What it was started with.
    pub async fn arguments(&self) -> Vec<String> {
        let path = self.program.with_extension("args");
        wait_until("the client runs", || path.exists()).await;
        let text = std::fs::read_to_string(path).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    }

    pub async fn say(&mut self, line: Value) {
        self.say_raw(&line.to_string()).await;
    }

    pub async fn say_raw(&mut self, line: &str) {
        self.says
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// The next line that it is told.
    pub async fn hear(&mut self) -> Value {
        let line = tokio::time::timeout(TEST_TIMEOUT, self.hears.next_line());
        let line = line.await.expect("the client is told something").unwrap();
        serde_json::from_str(&line.expect("the pipe is open")).unwrap()
    }

    async fn confirm(&mut self, request: &Value) {
        self.say(json!({ "type": "control_response", "response": {
            "subtype": "success", "request_id": request["request_id"], "response": {},
        }}))
        .await;
    }

    /// Sends the question of a hook about a call.
    pub async fn ask(&mut self, request: &str, event: &str, fields: Value) {
        let mut input = json!({
            "session_id": "conversation-1", "cwd": self.cli.workdir(), "hook_event_name": event,
        });
        for (name, value) in fields.as_object().unwrap() {
            input[name] = value.clone();
        }
        self.say(
            json!({ "type": "control_request", "request_id": request, "request": {
                "subtype": "hook_callback", "callback_id": event, "input": input,
            }}),
        )
        .await;
    }

    /// Asks whether a command may run.
    pub async fn ask_bash(&mut self, call: &str, line: &str) {
        let fields = json!({
            "tool_name": "Bash", "tool_input": { "command": line }, "tool_use_id": call,
        });
        self.ask(&format!("q-{call}"), "PreToolUse", fields).await;
    }

    /// Says that a turn has ended.
    pub async fn end_turn(&mut self) {
        self.say(json!({ "type": "result", "subtype": "success", "is_error": false }))
            .await;
    }
}
