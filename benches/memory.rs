//! The memory of idle connections, and of one that does not read.
//!
//! Each connection takes a file descriptor here and in the server: `ulimit -n` limits their number.
//!
//! Settings: MEMORY_CONNECTIONS=10000 MEMORY_SESSION=100 MEMORY_BROADCAST_MIB=200

#![allow(clippy::print_stdout, reason = "it prints its figures")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench that cannot go on ends"
)]

mod support;

use std::time::{Duration, Instant};

use serde_json::json;
use support::{BenchClient, BenchRole, Latencies, MeasuredProcess, env_number, target_result};

/// Bytes of one output: the most that an executor sends in one message.
const OUTPUT_BYTES: usize = 32 * 1024;

/// Participants who read while one does not.
const READERS: usize = 10;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let connections = env_number("MEMORY_CONNECTIONS", 10_000).min(open_files() - 200);
    idle_unjoined(connections).await;
    idle_joined(connections, env_number("MEMORY_SESSION", 100)).await;
    let bytes = env_number("MEMORY_BROADCAST_MIB", 200) * 1024 * 1024;
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
