//! A stand-in for Codex: `pvp run` starts it, and the test is its app-server, and its screen.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::net::unix::pipe;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::cli::{CliEnv, CliProcess};
use super::session::wait_until;
use super::{TEST_TIMEOUT, TestServer};

/// Passes the app-server's messages through two pipes; as the screen it notes its arguments and lives.
const PROGRAM: &str = "#!/bin/sh
[ \"$1\" = --version ] && { echo 'codex-cli 0.166.0'; exit; }
for word; do last=$word; done
if [ \"$last\" = app-server ]; then
    echo $$ > \"$0.pid\"
    env > \"$0.server-env\"
    printf '%s\\n' \"$@\" > \"$0.server\"
    cat \"$0.down\" &
    exec cat > \"$0.up\"
fi
printf '%s\\n' \"$@\" > \"$0.args\"
env > \"$0.screen-env\"
echo \"$PVP_CODEX_SECRET\" > \"$0.new\"
mv \"$0.new\" \"$0.secret\"
exec cat
";

/// The conversation of the stand-in, and its turn.
pub const THREAD: &str = "01a1ed74-ec7e-7462-8362-c889614f32ac";
pub const TURN: &str = "01a1ed74-ecfe-7532-8421-e446d5b49973";

/// A stand-in for Codex under `pvp run`.
pub struct CodexClient {
    /// The working directory and home.
    pub cli: CliEnv,
    /// The `pvp run` that started it.
    pub run: CliProcess,
    /// Who it is in the session.
    pub participant: String,
    /// The stand-in itself.
    program: PathBuf,
    /// What it is told.
    up: Lines<BufReader<pipe::Receiver>>,
    /// What it says.
    down: pipe::Sender,
}

/// The screen's connection.
pub struct ScreenSocket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl CodexClient {
    /// Starts it in a session as an agent of its own, with these arguments.
    pub async fn start(server: &TestServer, arguments: &[&str]) -> Self {
        Self::start_in(CliEnv::new(), server, arguments).await
    }

    /// As `start`, in an environment that the test has prepared.
    pub async fn start_in(cli: CliEnv, server: &TestServer, arguments: &[&str]) -> Self {
        let user = server.invite("codex", &["driver"], &["--kind", "agent"]);
        let link = server.link(&user, Some("owl"));
        let program = install(&cli);
        let (up, down) = (program.with_extension("up"), program.with_extension("down"));
        let up = open(&up).open_receiver(&up).unwrap();
        let down = open(&down).open_sender(&down).unwrap();
        let mut command = cli.command(&["run", "--"]);
        command.arg(&program).args(arguments);
        command.env("PVP_AGENT_LINK", link).stdin(Stdio::piped());
        command.env_remove("CODEX_HOME");
        let run = CliProcess::spawn(&mut command);
        Self {
            cli,
            run,
            participant: user.participant,
            program,
            up: BufReader::new(up).lines(),
            down,
        }
    }

    /// What was written about its start: `args` of the screen, `server` for the app-server.
    pub fn noted(&self, what: &str) -> String {
        std::fs::read_to_string(self.program.with_extension(what)).unwrap()
    }

    /// Ends the app-server at once.
    pub async fn kill_app_server(&self) {
        let file = self.program.with_extension("pid");
        wait_until("the app-server runs", || file.exists()).await;
        let group = self.app_server_group();
        let killed = std::process::Command::new("kill")
            .args(["-KILL", "--", &group])
            .status();
        assert!(killed.unwrap().success());
    }

    /// The app-server's process group.
    pub fn app_server_group(&self) -> String {
        format!("-{}", self.noted("pid").trim())
    }

    /// Waits until the screen is started, which may connect.
    pub async fn wait_for_screen(&self) {
        let secret = self.program.with_extension("secret");
        wait_until("the screen is started", || secret.exists()).await;
    }

    /// Connects as the screen.
    pub async fn connect_screen(&self) -> ScreenSocket {
        self.wait_for_screen().await;
        self.try_connect_screen(self.noted("secret").trim())
            .await
            .unwrap()
    }

    /// Connects as the screen with this secret; `None` if it is not let in.
    pub async fn try_connect_screen(&self, secret: &str) -> Option<ScreenSocket> {
        self.connect_with(secret, &[]).await
    }

    /// As `try_connect_screen`, with further headers.
    pub async fn connect_with(
        &self,
        secret: &str,
        headers: &[(&'static str, &str)],
    ) -> Option<ScreenSocket> {
        let arguments = self.noted("args");
        let url = arguments.lines().find(|word| word.starts_with("ws://"));
        let mut request = url.unwrap().into_client_request().unwrap();
        let bearer = format!("Bearer {secret}");
        let bearer = [("authorization", bearer.as_str())];
        for (name, value) in bearer.iter().chain(headers) {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let connected = tokio_tungstenite::connect_async(request).await;
        connected.ok().map(|(socket, _)| ScreenSocket(socket))
    }

    /// Says something as the app-server.
    pub async fn say(&mut self, message: Value) {
        let line = format!("{message}\n");
        self.down.write_all(line.as_bytes()).await.unwrap();
    }

    /// The next message that the app-server gets.
    pub async fn hear(&mut self) -> Value {
        let line = tokio::time::timeout(TEST_TIMEOUT, self.up.next_line());
        let line = line.await.expect("the app-server is told something");
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    }

    /// Waits for a request of this method, and answers it.
    pub async fn answer(&mut self, method: &str, result: Value) -> Value {
        let request = self.hear().await;
        assert_eq!(request["method"], method, "{request}");
        self.say(json!({ "id": request["id"], "result": result }))
            .await;
        request["params"].clone()
    }

    /// Answers the first requests, up to the beginning of a turn. Returns what the conversation was
    /// started with, and the turn.
    pub async fn begin_turn(&mut self) -> (Value, Value) {
        self.answer("initialize", json!({ "codexHome": self.cli.home() }))
            .await;
        assert_eq!(self.hear().await["method"], "initialized");
        self.answer("config/read", json!({ "config": {} })).await;
        let thread = json!({ "id": THREAD, "ephemeral": false, "parentThreadId": null });
        let started = self
            .answer("thread/start", json!({ "thread": thread }))
            .await;
        let turn = self
            .answer("turn/start", json!({ "turn": { "id": TURN } }))
            .await;
        self.notify("turn/started", json!({ "turn": { "id": TURN } }))
            .await;
        (started, turn)
    }

    /// Sends a notification of the conversation.
    pub async fn notify(&mut self, method: &str, more: Value) {
        let mut params = json!({ "threadId": THREAD, "turnId": TURN });
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        self.say(json!({ "method": method, "params": params }))
            .await;
    }

    /// Announces a command.
    pub async fn begin_command(&mut self, item: &str, line: &str) {
        let item = self.command_item(
            item,
            line,
            json!({ "status": "inProgress", "source": "agent" }),
        );
        self.notify("item/started", json!({ "item": item })).await;
    }

    /// Announces a command and asks about it.
    pub async fn ask_command(&mut self, id: u64, item: &str, line: &str) {
        self.begin_command(item, line).await;
        self.ask(id, "item/commandExecution/requestApproval", json!({
            "kind": "command", "itemId": item, "command": shell(line), "cwd": self.cli.workdir(),
            "proposedExecpolicyAmendment": ["x"], "availableDecisions": ["accept", "cancel"],
        }))
        .await;
    }

    /// Asks something of the conversation.
    pub async fn ask(&mut self, id: u64, method: &str, more: Value) {
        let mut params = json!({ "threadId": THREAD, "turnId": TURN, "startedAtMs": 1 });
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        self.say(json!({ "id": id, "method": method, "params": params }))
            .await;
    }

    /// Says how a command ended.
    pub async fn end_command(&mut self, item: &str, line: &str, output: &str, exit_code: i64) {
        let status = match exit_code {
            0 => "completed",
            _ => "failed",
        };
        let item = self.command_item(
            item,
            line,
            json!({
                "status": status, "source": "unifiedExecStartup", "processId": "79190",
                "aggregatedOutput": output, "exitCode": exit_code,
            }),
        );
        self.notify("item/completed", json!({ "item": item })).await;
    }

    /// Ends the turn.
    pub async fn end_turn(&mut self, status: &str) {
        let turn = json!({ "id": TURN, "items": [], "status": status, "error": null });
        self.notify("turn/completed", json!({ "turn": turn })).await;
    }

    /// A command as an item describes it.
    pub fn command_item(&self, id: &str, line: &str, more: Value) -> Value {
        let mut item = json!({
            "type": "commandExecution", "id": id, "command": shell(line), "cwd": self.cli.workdir(),
            "processId": null, "aggregatedOutput": null, "exitCode": null,
            "commandActions": [{ "type": "unknown", "command": line }],
        });
        for (name, value) in more.as_object().unwrap() {
            item[name] = value.clone();
        }
        item
    }
}

impl ScreenSocket {
    pub async fn say(&mut self, message: Value) {
        self.0
            .send(Message::text(message.to_string()))
            .await
            .unwrap();
    }

    /// Waits for a message of which this is true.
    pub async fn hear(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let frame = tokio::time::timeout(TEST_TIMEOUT, self.0.next());
            let frame = frame.await.expect("the screen is told something");
            let message = serde_json::from_str(frame.unwrap().unwrap().to_text().unwrap()).unwrap();
            if wanted(&message) {
                return message;
            }
        }
    }

    /// Asks something, and waits for the answer.
    pub async fn ask(&mut self, id: u64, method: &str, params: Value) {
        self.say(json!({ "id": id, "method": method, "params": params }))
            .await;
    }
}

/// Whether a process of this group is there.
pub fn group_lives(group: &str) -> bool {
    let asked = std::process::Command::new("kill")
        .args(["-0", "--", group])
        .stderr(Stdio::null())
        .status();
    asked.unwrap().success()
}

fn shell(line: &str) -> String {
    format!("/bin/bash -lc '{line}'")
}

/// Both ends are opened here too, so that opening waits for nobody.
fn open(path: &Path) -> pipe::OpenOptions {
    if !path.exists() {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    }
    let mut options = pipe::OpenOptions::new();
    options.read_write(true);
    options
}

fn install(cli: &CliEnv) -> PathBuf {
    let directory = cli.home().join("bin");
    std::fs::create_dir_all(&directory).unwrap();
    let program = directory.join("codex");
    std::fs::write(&program, PROGRAM).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}
