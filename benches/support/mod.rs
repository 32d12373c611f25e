//! A server process, cheap clients, and figures for the benchmarks.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each bench program uses a part of it"
)]

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Settings that remove the server's limits.
const NO_LIMITS: &[(&str, &str)] = &[
    ("PVP_CONNECTIONS", "1000000"),
    ("PVP_CONNECTIONS_PER_ADDRESS", "1000000"),
    ("PVP_CONNECTIONS_PER_TOKEN", "100000"),
    ("PVP_REQUESTS_PER_TOKEN", "100000"),
    ("PVP_PARTICIPANTS", "100000"),
    ("PVP_SESSIONS", "1000000"),
    ("PVP_SESSIONS_PER_HOUR", "1000000"),
    ("PVP_SESSIONS_PER_TOKEN", "1000000"),
    ("PVP_OPEN_SESSIONS_PER_TOKEN", "1000000"),
    ("PVP_MESSAGES_PER_SECOND", "1000000"),
    ("PVP_MESSAGE_BURST", "1000000"),
    ("PVP_JOIN_SECONDS", "300"),
    ("PVP_READ_OUTPUT_BYTES", "1073741824"),
    ("PVP_READ_TIMEOUT_SECONDS", "86400"),
];

/// A number from the environment, to make a run longer or shorter.
pub fn env_number(name: &str, default: usize) -> usize {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not `{text}`"))
    })
}

/// A process whose CPU time and memory are measured; killed when dropped.
pub struct MeasuredProcess {
    child: Child,
    pub address: String,
    /// The admin's link that a server with login prints at its first start.
    pub admin_link: Option<String>,
}

impl MeasuredProcess {
    /// Starts `pvp server --open` on this directory; returns how long it took until it listened.
    pub fn server(data: &Path) -> (Self, Duration) {
        Self::start_server_with_flags(data, &["--open"])
    }

    /// As `server`, where everyone needs a token.
    pub fn start_server_with_login(data: &Path) -> Self {
        Self::start_server_with_flags(data, &[]).0
    }

    fn start_server_with_flags(data: &Path, flags: &[&str]) -> (Self, Duration) {
        // Another build can be measured with the same benchmark, to compare the two.
        let pvp = std::env::var("BENCH_PVP");
        let mut command = Command::new(pvp.as_deref().unwrap_or(env!("CARGO_BIN_EXE_pvp")));
        command
            .stderr(Stdio::null())
            .args(["server", "--listen", "127.0.0.1:0", "--json"])
            .args(flags)
            .arg("--data")
            .arg(data)
            .env("PVP_LOG", "error")
            .envs(NO_LIMITS.iter().copied());
        let begun = Instant::now();
        let (child, line) = spawn_and_read_line(command);
        let said: Value = serde_json::from_str(&line).unwrap();
        let subject = Self {
            child,
            address: said["listen"].as_str().unwrap().to_owned(),
            admin_link: said["admin_link"].as_str().map(str::to_owned),
        };
        (subject, begun.elapsed())
    }

    /// Starts this program again in another role; it prints the address that it listens on, if any.
    pub fn respawn_self(part: &str, more: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("BENCH_PART", part).envs(more.iter().copied());
        let (child, line) = spawn_and_read_line(command);
        Self {
            child,
            address: line.trim().to_owned(),
            admin_link: None,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU seconds of all its threads, in user and kernel mode, with a resolution of 10 ms.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let after_name = stat.rsplit(')').next().unwrap();
        let field = |at: usize| -> u64 { after_name.split(' ').nth(at).unwrap().parse().unwrap() };
        // utime and stime, which Linux reports in hundredths of a second.
        (field(12) + field(13)) as f64 / 100.0
    }

    /// A line of /proc/PID/status in KiB: `VmRSS`, or the peak `VmHWM`.
    pub fn memory_kib(&self, line: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status
            .lines()
            .find_map(|found| found.strip_prefix(line)?.strip_prefix(':'))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Stops it in an orderly way, so that everything is checkpointed.
    pub fn stop(mut self) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        self.child.wait().unwrap();
    }
}

impl Drop for MeasuredProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a program and waits for the first line it prints.
fn spawn_and_read_line(mut command: Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    (child, line)
}

/// A minimal WebSocket client.
pub struct BenchClient {
    /// The connection.
    pub stream: TcpStream,
    /// Received bytes; those from `read_offset` on are not parsed yet.
    buffer: Vec<u8>,
    /// Start of the unparsed part of `buffer`.
    read_offset: usize,
    /// Frames that `flush` will send.
    outgoing: Vec<u8>,
    /// The participant's id.
    pub name: String,
    /// The session that it joins.
    pub session: String,
}

impl BenchClient {
    pub async fn connect(address: &str) -> io::Result<Self> {
        Self::connect_with(address, "").await
    }

    /// As `connect`, with extra request headers, such as a token.
    pub async fn connect_with(address: &str, headers: &str) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let request = format!(
            "GET /ws HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut buffer = Vec::with_capacity(256);
        while !buffer.ends_with(b"\r\n\r\n") {
            stream.read_buf(&mut buffer).await?;
        }
        assert!(buffer.starts_with(b"HTTP/1.1 101"), "upgraded");
        Ok(Self {
            stream,
            buffer: Vec::new(),
            read_offset: 0,
            outgoing: Vec::new(),
            name: String::new(),
            session: String::new(),
        })
    }

    /// Connects and joins as a person or an agent, and waits for the welcome.
    pub async fn join(
        address: &str,
        session: &str,
        name: &str,
        kind: BenchRole,
        more: Value,
    ) -> Self {
        let mut client = Self::connect(address).await.unwrap();
        client.join_session(session, name, kind, more).await;
        client
    }

    pub async fn join_session(&mut self, session: &str, name: &str, kind: BenchRole, more: Value) {
        self.send_join(session, name, kind, more).await;
        self.wait_for_type("session.welcome").await;
    }

    /// Asks to join, without waiting for the welcome.
    pub async fn send_join(&mut self, session: &str, name: &str, kind: BenchRole, more: Value) {
        self.name = name.to_owned();
        self.session = session.to_owned();
        let mut payload = json!({
            "participant": {
                "id": name, "name": name, "transport": "websocket",
                "type": if kind == BenchRole::Agent { "agent" } else { "human" },
                "roles": [match kind { BenchRole::Agent | BenchRole::Driver => "driver", BenchRole::Approver => "approver", BenchRole::Observer => "observer" }],
                "executor": { "profiles": ["read", "read_net", "workspace"], "shell_exec": true },
            },
            "supported_versions": [1],
        });
        if kind != BenchRole::Agent {
            payload["participant"]
                .as_object_mut()
                .unwrap()
                .remove("executor");
        }
        for (key, value) in more.as_object().unwrap() {
            payload[key] = value.clone();
        }
        self.send("session.join", "join", &payload).await;
    }

    /// Creates a session for this many participants, in which nobody becomes away.
    pub async fn create(address: &str, session: &str, participants: usize) {
        let mut client = Self::connect(address).await.unwrap();
        client.name = "maker".to_owned();
        client.session = session.to_owned();
        let config = json!({
            "max_participants": participants, "heartbeat_interval_seconds": 3600,
            "idle_timeout_seconds": 86400, "away_timeout_seconds": 86400,
        });
        let payload = json!({ "config": config });
        client.send("session.create", "create", &payload).await;
        client.wait_for_type("session.ack").await;
    }

    /// Proposes a read, which needs no approval, so that this agent may send output.
    pub async fn start_read_run(&mut self, id: &str) {
        let proposal = self.shell_proposal("cat log");
        self.send("tool.propose", id, &proposal).await;
        self.wait_for_type("tool.execute").await;
    }

    pub fn shell_proposal(&self, command: &str) -> Value {
        json!({
            "tool_name": "shell",
            "arguments": { "command": "sh", "args": [], "full_command": command },
            "agent": self.name, "risk_level": "safe", "description": "a bench",
            "requires_approval": false, "category": "shell_execute",
        })
    }

    pub fn output(&self, run: &str, id: &str, text: &str) -> String {
        let payload = json!({
            "tool_proposal": run, "stream": "stdout", "text": text, "complete": false,
        });
        self.envelope("tool.output", id, &payload)
    }

    pub fn envelope(&self, kind: &str, id: &str, payload: &Value) -> String {
        format!(
            r#"{{"v":1,"id":"{id}","ts":"2026-01-01T00:00:00.000Z","session":"{}","sender":"{}","type":"{kind}","payload":{payload}}}"#,
            self.session, self.name
        )
    }

    pub async fn send(&mut self, kind: &str, id: &str, payload: &Value) {
        let text = self.envelope(kind, id, payload);
        self.queue(&text);
        self.flush().await.unwrap();
    }

    /// Queues a message; `flush` sends all of them in one write.
    pub fn queue(&mut self, text: &str) {
        append_masked_frame(&mut self.outgoing, text.as_bytes());
    }

    pub async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.outgoing).await?;
        self.outgoing.clear();
        Ok(())
    }

    /// The next message.
    pub async fn next(&mut self) -> io::Result<&[u8]> {
        loop {
            if let Some(frame) = frame_at(&self.buffer[self.read_offset..]) {
                let payload = self.read_offset + frame.header
                    ..self.read_offset + frame.header + frame.payload;
                self.read_offset = payload.end;
                return Ok(&self.buffer[payload]);
            }
            self.buffer.drain(..self.read_offset);
            self.read_offset = 0;
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The next message of a type.
    pub async fn wait_for_type(&mut self, kind: &str) -> Value {
        let wanted = format!(r#""type":"{kind}""#);
        loop {
            let text = std::str::from_utf8(self.next().await.unwrap()).unwrap();
            let refused = text.contains(r#""type":"error""#);
            assert!(!refused, "waiting for {kind}: {text}");
            if text.contains(&wanted) {
                return serde_json::from_str(text).unwrap();
            }
        }
    }

    /// Waits until something has arrived, without reading it.
    pub async fn readable(&self) {
        self.stream.readable().await.unwrap();
    }

    /// Reads up to a message that starts like this.
    pub async fn wait_for_start(&mut self, start: &[u8]) {
        loop {
            let message = self.next().await.unwrap();
            if message.starts_with(start) {
                return;
            }
            let text = String::from_utf8_lossy(message);
            assert!(!text.contains(r#""type":"error""#), "refused: {text}");
        }
    }

    /// The TCP stream, and the received bytes that were not parsed.
    pub fn into_stream(mut self) -> (TcpStream, Vec<u8>) {
        self.buffer.drain(..self.read_offset);
        (self.stream, self.buffer)
    }

    /// Frees the buffers that an idle client does not need.
    pub fn release_buffers(&mut self) {
        self.buffer = Vec::new();
        self.read_offset = 0;
        self.outgoing = Vec::new();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BenchRole {
    Agent,
    Driver,
    Approver,
    Observer,
}

/// The bounds of the first complete frame in a buffer.
pub struct FrameBounds {
    pub header: usize,
    pub payload: usize,
}

pub fn frame_at(bytes: &[u8]) -> Option<FrameBounds> {
    let (header, payload) = match bytes {
        [_, 126, high, low, ..] => (4, usize::from(u16::from_be_bytes([*high, *low]))),
        [_, 127, length @ ..] => {
            let length = length.first_chunk::<8>()?;
            (10, usize::try_from(u64::from_be_bytes(*length)).ok()?)
        }
        [_, short, ..] if *short < 126 => (2, usize::from(*short)),
        _ => return None,
    };
    (bytes.len() >= header + payload).then_some(FrameBounds { header, payload })
}

/// A client's frames must be masked; a zero mask saves the work and is valid.
fn append_masked_frame(buffer: &mut Vec<u8>, payload: &[u8]) {
    buffer.push(0x81);
    match payload.len() {
        length @ ..=125 => buffer.push(0x80 | length as u8),
        length @ 126..=0xffff => {
            buffer.push(0x80 | 126);
            buffer.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            buffer.push(0x80 | 127);
            buffer.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(payload);
}

/// Latencies, sorted when a percentile is computed.
#[derive(Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    pub fn add(&mut self, latency: Duration) {
        self.0.push(latency);
    }

    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// In milliseconds.
    pub fn percentile(&mut self, percent: f64) -> f64 {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        let at = (last as f64 * percent / 100.0).round() as usize;
        self.0
            .get(at)
            .map_or(f64::NAN, |latency| latency.as_secs_f64() * 1000.0)
    }
}

/// Whether a figure meets its target, as text.
pub fn target_result(within: bool) -> &'static str {
    if within { "met" } else { "MISSED" }
}
