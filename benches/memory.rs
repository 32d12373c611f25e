//! The memory of idle connections, of one that does not read, and of busy sessions.
//!
//! Each connection takes a file descriptor here and in the server: `ulimit -n` limits their number.
//!
//! Settings: MEMORY_CONNECTIONS=10000 MEMORY_SESSION=100 MEMORY_BROADCAST_MIB=200
//! MEMORY_BUSY_SESSIONS=50 MEMORY_BUSY_MESSAGES=8000 MEMORY_SOAK_SECONDS=60 (0 skips a part)

#![allow(clippy::print_stdout, reason = "it prints its figures")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench that cannot go on ends"
)]

mod support;

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use support::{BenchClient, BenchRole, Latencies, MeasuredProcess, env_number, target_result};

/// Bytes of one output: the most that an executor sends in one message.
const OUTPUT_BYTES: usize = 32 * 1024;

/// Participants who read while one does not.
const READERS: usize = 10;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let sessions = env_number("MEMORY_BUSY_SESSIONS", 50);
    if sessions > 0 {
        busy_sessions(sessions, env_number("MEMORY_BUSY_MESSAGES", 8000)).await;
    }
    soak(env_number("MEMORY_SOAK_SECONDS", 60)).await;
    let connections = env_number("MEMORY_CONNECTIONS", 10_000).min(open_files() - 200);
    if connections > 0 {
        idle_unjoined(connections).await;
        idle_joined(connections, env_number("MEMORY_SESSION", 100)).await;
    }
    let bytes = env_number("MEMORY_BROADCAST_MIB", 200) * 1024 * 1024;
    if bytes > 0 {
        stalled_reader(bytes).await;
    }
}

/// Messages that a busy agent has in flight.
const IN_FLIGHT: usize = 16;

/// How long after the last person has left a session is out of memory, and its memory given back.
const UNLOADED: Duration = Duration::from_secs(45);

/// How long a session is quiet before its memory is measured: longer than it keeps anything only
/// because it was used a moment ago.
const QUIET: Duration = Duration::from_secs(12);

/// An agent whose command writes output, and someone who watches.
struct BusySession {
    agent: BenchClient,
    viewer: tokio::task::JoinHandle<()>,
    sent: usize,
}

impl Drop for BusySession {
    fn drop(&mut self) {
        self.viewer.abort();
    }
}

impl BusySession {
    async fn start(server: &MeasuredProcess, number: usize) -> Self {
        let (name, more) = (format!("busy{number}"), json!({ "history": 0 }));
        let address = &server.address;
        BenchClient::create(address, &name, 4).await;
        let mut agent =
            BenchClient::join(address, &name, "bot", BenchRole::Agent, more.clone()).await;
        agent.start_read_run("run").await;
        let mut viewer = BenchClient::join(address, &name, "ann", BenchRole::Observer, more).await;
        let viewer = tokio::spawn(async move { while viewer.next().await.is_ok() {} });
        Self {
            agent,
            viewer,
            sent: 0,
        }
    }

    /// Sends outputs, and waits until they have come back.
    async fn send(&mut self, messages: usize, text: &str) {
        for _ in 0..messages {
            let output = self
                .agent
                .output("run", &format!("out-{}", self.sent), text);
            self.agent.queue(&output);
            self.sent += 1;
        }
        self.agent.flush().await.unwrap();
        for _ in 0..messages {
            self.agent.wait_for_start(br#"{"v":1,"id":"out-"#).await;
        }
    }
}

/// The memory of sessions that send at a steady rate, while they do and when they are quiet.
async fn busy_sessions(sessions: usize, largest: usize) {
    println!("memory of a busy session, over {sessions}   in use KiB   when quiet KiB");
    let mut in_use_figures = Vec::new();
    for messages in [largest / 16, largest / 4, largest] {
        let data = tempfile::tempdir().unwrap();
        let (server, _) = MeasuredProcess::server(data.path());
        let mut busy = Vec::new();
        // What the first session needs is the server's, such as the caches of the store.
        let mut first = BusySession::start(&server, sessions).await;
        first.send(IN_FLIGHT, "warm").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = server.memory_kib("VmRSS");
        for number in 0..sessions {
            busy.push(BusySession::start(&server, number).await);
        }
        let text = "x".repeat(200);
        let rounds = busy.iter_mut().map(async |session| {
            for _ in 0..messages / IN_FLIGHT {
                session.send(IN_FLIGHT, &text).await;
            }
        });
        join_all(rounds).await;
        let each = |kib: u64| kib.saturating_sub(before) as f64 / sessions as f64;
        let in_use = each(server.memory_kib("VmRSS"));
        tokio::time::sleep(QUIET).await;
        let quiet = each(server.memory_kib("VmRSS"));
        println!(
            "{messages:>6} messages each                {in_use:>10.0} {quiet:>16.0}   bar ≤ 512 KiB: {}",
            target_result(in_use <= 512.0)
        );
        in_use_figures.push(in_use);
        if messages == largest {
            drop(busy);
            tokio::time::sleep(UNLOADED).await;
            println!(
                "  after everyone left: {:.0} KiB more than before for each session",
                each(server.memory_kib("VmRSS"))
            );
        }
    }
    println!(
        "  16 times the messages took {:.1} times the memory",
        in_use_figures[2] / in_use_figures[0]
    );
}

/// Whether memory stays flat while ten sessions send 1,000 messages a second in all.
async fn soak(seconds: usize) {
    const SESSIONS: usize = 10;
    const ROUND: Duration = Duration::from_millis(100);
    if seconds == 0 {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let (server, _) = MeasuredProcess::server(data.path());
    let mut busy = Vec::new();
    for number in 0..SESSIONS {
        busy.push(BusySession::start(&server, number).await);
    }
    let text = "x".repeat(200);
    let rounds = seconds * 10;
    let mut samples = Vec::new();
    let mut ticks = tokio::time::interval(ROUND);
    for round in 0..rounds {
        ticks.tick().await;
        join_all(busy.iter_mut().map(|session| session.send(10, &text))).await;
        if round % (rounds / 10) == rounds / 10 - 1 {
            samples.push(server.memory_kib("VmRSS") as f64 / 1024.0);
        }
    }
    let growth = samples[9] / samples[4];
    let samples: Vec<_> = samples.iter().map(|mib| format!("{mib:.1}")).collect();
    println!(
        "{seconds} s of steady load, MiB at each tenth: {}; the second half grew by {:.2}   bar ≤ 1.05: {}",
        samples.join(" "),
        growth,
        target_result(growth <= 1.05)
    );
}

async fn stalled_reader(bytes: usize) {
    let (_, without) = broadcast(bytes, false).await;
    let (growth, with) = broadcast(bytes, true).await;
    println!(
        "a reader that stalls: {:.1} MiB more than before   bar ≤ 16 MiB: {}; p99 of the others {with:.2} ms, {without:.2} ms without it",
        growth / 1024.0,
        target_result(growth <= 16.0 * 1024.0)
    );
}

/// The limit on open files of this process, which the server inherits.
fn open_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

async fn idle_unjoined(connections: usize) {
    let data = tempfile::tempdir().unwrap();
    let (server, _) = MeasuredProcess::server(data.path());
    let before = server.memory_kib("VmRSS");
    let mut clients = Vec::new();
    for _ in 0..connections {
        clients.push(BenchClient::connect(&server.address).await.unwrap());
    }
    wait_until_idle().await;
    report(
        "idle, not joined",
        connections,
        server.memory_kib("VmRSS") - before,
    );
}

async fn idle_joined(connections: usize, session: usize) {
    let data = tempfile::tempdir().unwrap();
    let (server, _) = MeasuredProcess::server(data.path());
    let before = server.memory_kib("VmRSS");
    let mut clients: Vec<BenchClient> = Vec::new();
    let begun = Instant::now();
    for number in 0..connections {
        let name = format!("s{}", number / session);
        if number % session == 0 {
            BenchClient::create(&server.address, &name, session).await;
        }
        let more = json!({ "history": 0 });
        let participant = format!("p{number}");
        let mut client = BenchClient::join(
            &server.address,
            &name,
            &participant,
            BenchRole::Observer,
            more,
        )
        .await;
        client.release_buffers();
        clients.push(client);
        // Everyone receives everyone's announcement; a client that never reads would count as
        // stalled.
        if number % session == session - 1 {
            let first = clients.len() - session;
            drain_pending(&mut clients[first..]).await;
        }
    }
    let took = begun.elapsed();
    wait_until_idle().await;
    let name = format!("idle, joined, {session} a session");
    report(&name, connections, server.memory_kib("VmRSS") - before);
    println!(
        "  joining took {:.2} ms each, {:.2} ms of server CPU",
        took.as_secs_f64() * 1000.0 / connections as f64,
        server.cpu_seconds() * 1000.0 / connections as f64
    );
}

/// Reads what has arrived.
async fn drain_pending(clients: &mut [BenchClient]) {
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut scratch = vec![0; 256 * 1024];
    for client in clients {
        while client
            .stream
            .try_read(&mut scratch)
            .is_ok_and(|read| read > 0)
        {}
    }
}

/// Waits until the server is idle.
async fn wait_until_idle() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

fn report(name: &str, connections: usize, kib: u64) {
    let each = kib as f64 / connections as f64;
    println!(
        "{connections} connections {name}: {kib} KiB more, {each:.2} KiB each   bar ≤ 4 KiB: {}",
        target_result(each <= 4.0)
    );
}

/// The server's peak memory growth in KiB, and the readers' p99 latency in milliseconds.
async fn broadcast(bytes: usize, stall: bool) -> (f64, f64) {
    let data = tempfile::tempdir().unwrap();
    let (server, _) = MeasuredProcess::server(data.path());
    BenchClient::create(&server.address, "wide", READERS + 2).await;
    let more = json!({ "history": 0 });
    let join = async |name: &str, kind| {
        BenchClient::join(&server.address, "wide", name, kind, more.clone()).await
    };
    let mut agent = join("bot", BenchRole::Agent).await;
    agent.start_read_run("run").await;
    let mut readers = Vec::new();
    for number in 0..READERS {
        readers.push(join(&format!("v{number}"), BenchRole::Observer).await);
    }
    let stalled = join("stalled", BenchRole::Observer).await;
    if !stall {
        drop(stalled);
        wait_until_idle().await;
        return broadcast_and_measure(&server, agent, readers, bytes).await;
    }
    wait_until_idle().await;
    let figures = broadcast_and_measure(&server, agent, readers, bytes).await;
    drop(stalled);
    figures
}

async fn broadcast_and_measure(
    server: &MeasuredProcess,
    mut agent: BenchClient,
    mut readers: Vec<BenchClient>,
    bytes: usize,
) -> (f64, f64) {
    let text = "x".repeat(OUTPUT_BYTES);
    let mut latencies = Latencies::default();
    // Warms up what any broadcast allocates, such as buffers and the store's cache.
    let warm = 4 * 1024 * 1024 / OUTPUT_BYTES;
    let mut before = 0;
    for number in 0..warm + bytes / OUTPUT_BYTES {
        if number == warm {
            before = server.memory_kib("VmHWM");
        }
        let output = agent.output("run", &format!("out-{number}"), &text);
        agent.queue(&output);
        let begun = Instant::now();
        agent.flush().await.unwrap();
        let mut slowest = Duration::ZERO;
        for reader in &mut readers {
            while !reader
                .next()
                .await
                .unwrap()
                .starts_with(br#"{"v":1,"id":"out-"#)
            {}
            slowest = begun.elapsed();
        }
        while !agent
            .next()
            .await
            .unwrap()
            .starts_with(br#"{"v":1,"id":"out-"#)
        {}
        latencies.add(slowest);
    }
    let growth = server.memory_kib("VmHWM") - before;
    (growth as f64, latencies.percentile(99.0))
}
