//! Real servers and sockets for the end-to-end tests. Helpers wait for events, never for
//! milliseconds.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses a part of it"
)]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

pub mod acp_agent;
pub mod agent_process;
pub mod audit;
pub mod cli;
pub mod codex_client;
pub mod control_client;
pub mod disk;
pub mod fake_acme;
pub mod fake_model;
pub mod hook_client;
pub mod http_receiver;
pub mod load;
pub mod lying_server;
pub mod mcp_client;
pub mod program;
pub mod proxy;
pub mod push_browser;
pub mod screen;
pub mod session;
pub mod skip;
pub mod smtp_receiver;
pub mod tls;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, Command};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// Ends a test that would otherwise hang; no test passes because of it.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(180);

/// A running `pvp server`, killed when dropped.
pub struct TestServer {
    /// The server process.
    child: Child,
    /// The address that it listens on.
    pub address: String,
    /// The admin's token; `None` if this start did not print one.
    pub admin_token: Option<String>,
    /// Its data directory.
    pub data: PathBuf,
    /// The data directory if it is temporary, removed when dropped.
    _owned_data: Option<tempfile::TempDir>,
    /// Its user's state directory, removed when dropped.
    _state: tempfile::TempDir,
    /// Reserves the port while the server is down.
    _reserved_port: TcpSocket,
}

impl TestServer {
    /// Starts a server with its own temporary data directory.
    pub async fn start(flags: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut server = Self::start_in(data.path(), flags).await;
        server._owned_data = Some(data);
        server
    }

    /// Starts a server on this data directory and a free port.
    pub async fn start_in(data: &Path, flags: &[&str]) -> Self {
        Self::start_on(data, "127.0.0.1:0", flags).await
    }

    pub async fn start_on(data: &Path, listen: &str, flags: &[&str]) -> Self {
        Self::start_with(data, listen, flags, &[], None).await
    }

    /// As `start`, with these environment variables.
    pub async fn start_with_env(flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut server =
            Self::start_with(data.path(), "127.0.0.1:0", flags, environment, None).await;
        server._owned_data = Some(data);
        server
    }

    /// Starts a server with all choices given; its standard error goes to `log`, if there is one.
    pub async fn start_with(
        data: &Path,
        listen: &str,
        flags: &[&str],
        environment: &[(&str, &str)],
        log: Option<std::fs::File>,
    ) -> Self {
        let port = reserve_port(listen);
        let listen = port.local_addr().unwrap().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pvp"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PVP_") {
                command.env_remove(name);
            }
        }
        if let Some(log) = log {
            command.stderr(log);
        }
        let state = tempfile::tempdir().unwrap();
        let mut child = command
            .args(["server", "--listen", &listen, "--json", "--data"])
            .arg(data)
            .args(flags)
            .env(
                "PVP_LOG",
                std::env::var("PVP_LOG").unwrap_or_else(|_| "error".to_owned()),
            )
            // On a busy machine a client may need longer to join than the default allows.
            .env("PVP_JOIN_SECONDS", "120")
            // The port of published git hooks is one for the whole machine.
            .env("PVP_BRIDGE_PORT", "0")
            .env("XDG_STATE_HOME", state.path())
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(TEST_TIMEOUT, lines.next_line()).await;
        let line = line
            .expect("the server says when it listens")
            .unwrap()
            .expect("a JSON line");
        let said: Value = serde_json::from_str(&line).unwrap();
        let token = said["admin_link"]
            .as_str()
            .map(|link| link.split("token=").nth(1).unwrap())
            .map(|rest| rest.split('&').next().unwrap());
        Self {
            child,
            address: said["listen"].as_str().unwrap().to_owned(),
            admin_token: token.map(str::to_owned),
            data: data.to_owned(),
            _owned_data: None,
            _state: state,
            _reserved_port: port,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("the server runs")
    }

    /// Sends SIGKILL to the server and waits until it is gone.
    pub async fn kill_9(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Asks the server to stop and waits until it has.
    pub async fn stop(mut self) -> std::process::ExitStatus {
        self.request_stop();
        tokio::time::timeout(TEST_TIMEOUT, self.child.wait())
            .await
            .expect("it stops")
            .unwrap()
    }

    pub fn request_stop(&self) {
        self.signal("TERM");
    }

    /// Sends the server a signal by its name.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(
            std::process::Command::new("kill")
                .args(["-s", name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits for a server that was asked to stop.
    pub async fn wait_stopped(&mut self) -> std::process::ExitStatus {
        tokio::time::timeout(TEST_TIMEOUT, self.child.wait())
            .await
            .expect("it stops")
            .unwrap()
    }

    /// Runs `pvp invite` on the data directory.
    pub fn invite(&self, name: &str, roles: &[&str], more: &[&str]) -> TestUser {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pvp"));
        command
            .args(["invite", "--json", "--name", name, "--data"])
            .arg(&self.data);
        for role in roles {
            command.args(["--role", role]);
        }
        let output = command.args(more).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        TestUser {
            token: printed["token"].as_str().unwrap().to_owned(),
            participant: printed["participant"].as_str().unwrap().to_owned(),
            roles: roles.iter().map(|&role| role.to_owned()).collect(),
            agent: more.contains(&"agent"),
        }
    }

    /// The link that `pvp invite` prints for a person.
    pub fn invite_link(&self, name: &str, role: &str) -> String {
        let data = self.data.to_str().unwrap();
        let invite = ["invite", "--json", "--data", data];
        let who = ["--name", name, "--role", role];
        let (good, printed, problem) = run_pvp(&[invite, who].concat());
        assert!(good, "{problem}");
        let printed: Value = serde_json::from_str(&printed).unwrap();
        printed["link"].as_str().unwrap().to_owned()
    }

    /// Every stored entry of a session, as `pvp audit export` prints it.
    pub fn log(&self, session: &str) -> Vec<Value> {
        let data = self.data.to_str().unwrap();
        let (good, out, problem) =
            run_pvp(&["audit", "export", "--data", data, "--session", session]);
        assert!(good, "{problem}");
        let lines = out.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }

    /// The transcript of a session as this user may read it over HTTP.
    pub async fn transcript(&self, session: &str, user: &TestUser) -> Vec<Value> {
        let bearer = format!("Bearer {}", user.token);
        let path = format!("/sessions/{session}/transcript");
        let (status, body) = http_get(&self.address, &path, &[("Authorization", &bearer)]).await;
        assert_eq!(status, 200, "{body}");
        let transcript: Value = serde_json::from_str(&body).unwrap();
        transcript["messages"].as_array().unwrap().clone()
    }

    /// The server's peak memory so far, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib: u64 = line
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        kib * 1024
    }

    pub fn admin(&self) -> TestUser {
        TestUser {
            token: self.admin_token.clone().expect("made at the first start"),
            participant: "admin".to_owned(),
            roles: vec!["admin".to_owned()],
            agent: false,
        }
    }

    /// Opens a connection that has not joined a session yet.
    pub async fn connect(&self, user: &TestUser) -> TestClient {
        TestClient::connect(&self.address, Some(&user.token), &user.participant).await
    }

    /// Opens a connection, joins a session and waits for the welcome.
    pub async fn join(&self, session: &str, user: &TestUser) -> TestClient {
        let mut client = self.connect(user).await;
        client.join(session, user, json!({})).await;
        client
    }

    /// Creates a session with this configuration, as the admin.
    pub async fn create_session(&self, session: &str, config: Value) {
        let admin = self.admin();
        let mut client = self.connect(&admin).await;
        client.session = session.to_owned();
        let id = client
            .send("session.create", json!({ "config": config }))
            .await;
        client.expect_ack(&id).await;
    }
}

/// A socket that is bound and does not listen: a server can still listen on the port, and the
/// system gives it to nobody else.
pub fn reserve_port(address: &str) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address.parse().unwrap()).unwrap();
    socket
}

/// A user with a token.
#[derive(Debug, Clone)]
pub struct TestUser {
    pub token: String,
    pub participant: String,
    pub roles: Vec<String>,
    pub agent: bool,
}

impl TestUser {
    pub fn announce(&self) -> Value {
        let mut announce = json!({
            "id": self.participant,
            "name": self.participant,
            "type": if self.agent { "agent" } else { "human" },
            "roles": self.roles,
            "transport": "websocket",
        });
        if self.agent {
            announce["executor"] =
                json!({ "profiles": ["read", "read_net", "workspace"], "shell_exec": true });
        }
        announce
    }
}

/// One WebSocket client.
pub struct TestClient {
    /// The connection.
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// The id that it sends as.
    pub participant: String,
    /// The session that it sends to.
    pub session: String,
    /// The announcement that it joined with, for `sync`.
    announce: Value,
    /// Received, and not consumed by the test yet.
    unread: VecDeque<Value>,
    /// Everything received, in order.
    pub received: Vec<Value>,
    /// The close code that the server sent.
    pub close_code: Option<u16>,
    /// The reason that the server gave with it.
    pub close_reason: String,
}

/// How people name a proposal.
pub fn short_id(proposal: &str) -> String {
    pvp_protocol::MessageId::parse(proposal)
        .unwrap()
        .short()
        .to_owned()
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// An id that is unique in this test program.
pub fn fresh_id(kind: &str) -> String {
    let number = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    format!(
        "{}-{}-{number}",
        kind.replace(['.', '_'], "-"),
        std::process::id()
    )
}

impl TestClient {
    pub async fn connect(address: &str, token: Option<&str>, participant: &str) -> Self {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<_> = bearer
            .iter()
            .map(|it| ("Authorization", it.as_str()))
            .collect();
        Self::try_connect(address, "/ws", &headers, participant)
            .await
            .unwrap()
    }

    /// Connects to this path with these headers; fails if the server refuses the upgrade.
    pub async fn try_connect(
        address: &str,
        path: &str,
        headers: &[(&'static str, &str)],
        participant: &str,
    ) -> Result<Self, tokio_tungstenite::tungstenite::Error> {
        let mut request = format!("ws://{address}{path}")
            .into_client_request()
            .unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let config = WebSocketConfig::default()
            .max_message_size(None)
            .max_frame_size(None);
        let connecting = tokio_tungstenite::connect_async_with_config(request, Some(config), true);
        let (stream, _) = tokio::time::timeout(TEST_TIMEOUT, connecting)
            .await
            .unwrap()?;
        Ok(Self {
            stream,
            participant: participant.to_owned(),
            session: "none".to_owned(),
            announce: Value::Null,
            unread: VecDeque::new(),
            received: Vec::new(),
            close_code: None,
            close_reason: String::new(),
        })
    }

    /// Connects with a small receive buffer, so that back-pressure sets in soon when the client
    /// does not read.
    pub async fn connect_with_small_buffer(address: &str, user: &TestUser) -> Self {
        let mut request = format!("ws://{address}/ws").into_client_request().unwrap();
        let bearer = format!("Bearer {}", user.token).parse().unwrap();
        request.headers_mut().insert("Authorization", bearer);
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(32 * 1024).unwrap();
        let stream = socket.connect(address.parse().unwrap()).await.unwrap();
        let stream = MaybeTlsStream::Plain(stream);
        let (stream, _) = tokio_tungstenite::client_async(request, stream)
            .await
            .unwrap();
        Self {
            stream,
            participant: user.participant.clone(),
            session: "none".to_owned(),
            announce: Value::Null,
            unread: VecDeque::new(),
            received: Vec::new(),
            close_code: None,
            close_reason: String::new(),
        }
    }

    /// Joins, waits for the welcome and returns it.
    pub async fn join(&mut self, session: &str, user: &TestUser, more: Value) -> Value {
        self.session = session.to_owned();
        self.announce = user.announce();
        let mut payload = json!({ "participant": user.announce(), "supported_versions": [1] });
        for (key, value) in more.as_object().unwrap() {
            payload[key] = value.clone();
        }
        let id = self.send("session.join", payload).await;
        self.wait(|message| message["type"] == "session.welcome" && message["ref"] == id.as_str())
            .await
    }

    /// The envelope that this client would send.
    pub fn envelope(&self, kind: &str, payload: Value) -> Value {
        json!({
            "v": 1, "id": fresh_id(kind), "ts": "2026-01-01T00:00:00.000Z", "session": self.session,
            "sender": self.participant, "type": kind, "payload": payload,
        })
    }

    /// Sends a message and returns its id.
    pub async fn send(&mut self, kind: &str, payload: Value) -> String {
        let envelope = self.envelope(kind, payload);
        self.send_raw(&envelope.to_string()).await;
        envelope["id"].as_str().unwrap().to_owned()
    }

    pub async fn send_raw(&mut self, text: &str) {
        self.send_frame(Message::text(text.to_owned())).await;
    }

    pub async fn send_frame(&mut self, frame: Message) {
        tokio::time::timeout(TEST_TIMEOUT, self.stream.send(frame))
            .await
            .unwrap()
            .unwrap();
    }

    /// As `send_frame`, where the server may close the connection; false if it did.
    pub async fn try_send_frame(&mut self, frame: Message) -> bool {
        let sending = tokio::time::timeout(TEST_TIMEOUT, self.stream.send(frame));
        sending.await.unwrap().is_ok()
    }

    /// As `send`, where the server may be gone.
    pub async fn try_send(&mut self, kind: &str, payload: Value) -> Option<String> {
        let envelope = self.envelope(kind, payload);
        self.stream
            .send(Message::text(envelope.to_string()))
            .await
            .ok()?;
        Some(envelope["id"].as_str().unwrap().to_owned())
    }

    /// The next message; `None` when the connection is closed.
    pub async fn next(&mut self) -> Option<Value> {
        if let Some(message) = self.unread.pop_front() {
            return Some(message);
        }
        self.receive().await
    }

    async fn receive(&mut self) -> Option<Value> {
        loop {
            let frame = tokio::time::timeout(TEST_TIMEOUT, self.stream.next()).await;
            match frame.expect("something happens in time")? {
                Ok(Message::Text(text)) => {
                    let message: Value = serde_json::from_str(&text).unwrap();
                    self.received.push(message.clone());
                    return Some(message);
                }
                Ok(Message::Close(frame)) => {
                    if let Some(frame) = frame {
                        self.close_code = Some(frame.code.into());
                        self.close_reason = frame.reason.to_string();
                    }
                    return None;
                }
                Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Waits for the first unread message that `fits`; the others stay unread.
    pub async fn wait(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.unread.iter().position(&fits) {
            return self.unread.remove(at).unwrap();
        }
        let begun = std::time::Instant::now();
        loop {
            let message = self.receive().await.unwrap_or_else(|| {
                panic!(
                    "the connection ended before it came; received {:#?}",
                    self.received
                )
            });
            assert!(
                begun.elapsed() < TEST_TIMEOUT,
                "it does not come; received {:#?}",
                self.received
            );
            if fits(&message) {
                return message;
            }
            self.unread.push_back(message);
        }
    }

    /// The next message of a type.
    pub async fn wait_for(&mut self, kind: &str) -> Value {
        self.wait(|message| message["type"] == kind).await
    }

    /// Waits until a message is acknowledged; returns its sequence number.
    pub async fn expect_ack(&mut self, id: &str) -> Option<u64> {
        let answer = self.answer(id).await;
        assert_eq!(answer["type"], "session.ack", "{answer}");
        answer["payload"]["seq"].as_u64()
    }

    /// Waits until a message is refused; returns the refusal.
    pub async fn expect_refusal(&mut self, id: &str) -> Value {
        let answer = self.answer(id).await;
        assert_eq!(answer["type"], "error", "{answer}");
        answer["payload"].clone()
    }

    pub async fn answer(&mut self, id: &str) -> Value {
        self.wait(|message| {
            (message["type"] == "session.ack" && message["payload"]["id"] == id)
                || (message["type"] == "error" && message["payload"]["related_to"] == id)
        })
        .await
    }

    /// Sends a message, waits until it is durable and returns its sequence number.
    pub async fn send_and_ack(&mut self, kind: &str, payload: Value) -> u64 {
        let id = self.send(kind, payload).await;
        self.expect_ack(&id).await.expect("it is kept")
    }

    /// Proposes a shell command and returns the proposal's id.
    pub async fn propose(&mut self, command: &str) -> String {
        let payload = self.proposal(command);
        let id = self.send("tool.propose", payload).await;
        self.expect_ack(&id).await;
        id
    }

    pub fn proposal(&self, command: &str) -> Value {
        json!({
            "tool_name": "shell",
            "arguments": { "command": "sh", "args": [], "full_command": command },
            "agent": self.participant, "risk_level": "low", "description": "a test",
            "requires_approval": false, "category": "shell_execute",
        })
    }

    pub async fn approve(&mut self, gate: &str) -> Value {
        let payload = json!({ "gate": gate, "approver": self.participant });
        let id = self.send("gate.approve", payload).await;
        self.answer(&id).await
    }

    /// Adds an entry and returns everything received before it. Entries arrive in log order, so
    /// nothing that was durable before the call is missing.
    pub async fn sync(&mut self) -> Vec<Value> {
        self.sync_as(self.announce.clone()).await
    }

    /// As `sync`, for a client that joined with this announcement.
    pub async fn sync_as(&mut self, announce: Value) -> Vec<Value> {
        let id = self.send("participant.announce", announce).await;
        self.wait(|message| message["seq"].is_u64() && message["id"] == id.as_str())
            .await;
        self.expect_ack(&id).await;
        self.unread.drain(..).collect()
    }

    /// Waits until the server closes the connection; returns the close code.
    pub async fn wait_closed(&mut self) -> Option<u16> {
        let begun = std::time::Instant::now();
        loop {
            assert!(begun.elapsed() < TEST_TIMEOUT, "it does not close");
            let frame = tokio::time::timeout(TEST_TIMEOUT, self.stream.next()).await;
            match frame.expect("it closes in time") {
                Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code.into()),
                Some(Ok(Message::Text(text))) => {
                    self.received.push(serde_json::from_str(&text).unwrap());
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }

    /// The sequence numbers of all received log entries.
    pub fn received_seqs(&self) -> Vec<u64> {
        self.received
            .iter()
            .filter_map(|message| message["seq"].as_u64())
            .collect()
    }
}

/// Sends a GET; returns the status and the body.
pub async fn http_get(address: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    http_request(address, "GET", path, headers, "").await
}

/// Sends one HTTP request on its own connection; returns the status and the body.
pub async fn http_request(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    use tokio::io::AsyncWriteExt;
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        text += &format!("Host: {address}\r\n");
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        text += &format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
    }
    text += "\r\n";
    text += body;
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that refuses a body may not read all of it.
    let _ = stream.write_all(text.as_bytes()).await;
    let answer = read_to_close(&mut stream).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or(0);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    (
        status,
        if chunked {
            decode_chunked(body)
        } else {
            body.to_owned()
        },
    )
}

/// Reads until the server closes the connection, which is a reset if it did not read the whole
/// request.
pub async fn read_to_close(stream: &mut TcpStream) -> Vec<u8> {
    use tokio::io::AsyncReadExt;
    let mut answer = Vec::new();
    let reading = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut answer)).await;
    let ended = reading.expect("it answers in time");
    assert!(ended.is_ok() || !answer.is_empty(), "{ended:?}");
    answer
}

pub fn decode_chunked(body: &str) -> String {
    let mut rest = body;
    let mut whole = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        whole += &after[..size];
        rest = &after[size + 2..];
    }
    whole
}

/// Runs `pvp` with these arguments: success, standard output, standard error.
pub fn run_pvp(arguments: &[&str]) -> (bool, String, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_pvp"))
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (
        output.status.success(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// A participant who watches a session and must not see anything that is refused in it.
pub struct RefusalObserver {
    client: TestClient,
    refused_ids: Vec<String>,
}

impl RefusalObserver {
    pub async fn join(server: &TestServer, session: &str) -> Self {
        let observer = server.invite("witness", &["observer"], &[]);
        Self::new(server.join(session, &observer).await)
    }

    pub fn new(client: TestClient) -> Self {
        Self {
            client,
            refused_ids: Vec::new(),
        }
    }

    /// Sends a message and asserts that its sender gets this error code and this text.
    pub async fn expect_refused(
        &mut self,
        sender: &mut TestClient,
        kind: &str,
        payload: Value,
        code: &str,
        sentence: &str,
    ) {
        let envelope = sender.envelope(kind, payload);
        self.expect_envelope_refused(sender, envelope, code, sentence)
            .await;
    }

    /// As `expect_refused`, for a message whose envelope the test has changed.
    pub async fn expect_envelope_refused(
        &mut self,
        sender: &mut TestClient,
        envelope: Value,
        code: &str,
        sentence: &str,
    ) {
        sender.send_raw(&envelope.to_string()).await;
        let id = envelope["id"].as_str().unwrap();
        let error = sender.expect_refusal(id).await;
        let received = (&error["code"], &error["message"]);
        assert_eq!(received, (&json!(code), &json!(sentence)), "{envelope}");
        assert_eq!(error["related_to"], id);
        self.refused_ids.push(id.to_owned());
    }

    /// Asserts that no refused message reached the observer or the log.
    pub async fn expect_no_trace(&mut self, server: &TestServer) {
        self.client.sync().await;
        let log = server.log(&self.client.session);
        for id in &self.refused_ids {
            let quoted = format!("{id:?}");
            let received = |message: &&Value| message.to_string().contains(&quoted);
            assert_eq!(self.client.received.iter().find(received), None);
            assert_eq!(log.iter().find(received), None);
        }
        assert!(log.len() > 1, "the log was looked at");
    }

    pub fn client(&mut self) -> &mut TestClient {
        &mut self.client
    }
}
