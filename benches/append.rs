//! How many entries a second become durable: in the store alone, and from socket to socket.
//!
//! Settings: APPEND_SECONDS=3 APPEND_SESSIONS=64

#![allow(clippy::print_stdout, reason = "it prints its figures")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench that cannot go on ends"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pvp_protocol::SessionId;
use pvp_server::store::{
    AppendRequest, CheckpointTiming, LogHead, LogRecord, SessionIndex, SqliteStore, Store,
};
use serde_json::json;
use support::{BenchClient, BenchRole, Latencies, MeasuredProcess, env_number, target_result};
use tokio::sync::{Semaphore, mpsc};

/// About the size of an entry with a 200-byte output.
const BODY_BYTES: usize = 450;

/// Messages that an agent has in flight; the server reads no more than that unanswered.
const IN_FLIGHT: usize = 64;

fn main() {
    let seconds = Duration::from_secs(env_number("APPEND_SECONDS", 3) as u64);
    let sessions = env_number("APPEND_SESSIONS", 64);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    println!("durable entries, {sessions} sessions                 entries/s   p50 ms   p99 ms");
    runtime.block_on(store_alone(
        "store, each waits for its own",
        sessions,
        1,
        1,
        seconds,
    ));
    runtime.block_on(store_alone(
        "store, appends of 16, 8 under way",
        sessions,
        16,
        8,
        seconds,
    ));
    runtime.block_on(end_to_end(sessions, seconds));
}

/// `sessions` writers, each with `under_way` appends of `size` records that wait for the disk.
async fn store_alone(name: &str, sessions: usize, size: usize, in_flight: usize, time: Duration) {
    let data = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(data.path()).await.unwrap();
    let begun = Instant::now();
    let tasks: Vec<_> = (0..sessions)
        .map(|number| {
            let session = SessionId::parse(&format!("s{number}")).unwrap();
            tokio::spawn(append_until(
                store.clone(),
                session,
                size,
                in_flight,
                begun + time,
            ))
        })
        .collect();
    let mut latencies = Latencies::default();
    for task in tasks {
        latencies.extend(task.await.unwrap());
    }
    let rate = (latencies.count() * size) as f64 / begun.elapsed().as_secs_f64();
    report(name, rate, latencies);
}

async fn append_until(
    store: SqliteStore,
    session: SessionId,
    size: usize,
    in_flight: usize,
    until: Instant,
) -> Latencies {
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    let meta = Bytes::from_static(br#"{"origin":"0123456789abcdef0123456789abcdef"}"#);
    let mut head = LogHead::empty(&session);
    let (report, mut reports) = mpsc::unbounded_channel();
    let permits = Arc::new(Semaphore::new(in_flight));
    while Instant::now() < until {
        permits.acquire().await.unwrap().forget();
        let prev = head;
        let mut records = Vec::with_capacity(size);
        for _ in 0..size {
            let record = LogRecord::after(&head, meta.clone(), body.clone());
            head = record.head();
            records.push(record);
        }
        let (begun, report, permits) = (Instant::now(), report.clone(), permits.clone());
        let written = store.append(Arc::new(AppendRequest {
            session: session.clone(),
            prev,
            records,
            at: pvp_clock::now(),
            index: Some(SessionIndex::default()),
            index_changes: Vec::new(),
            snapshot: None,
            checkpoint: CheckpointTiming::WhenDue,
        }));
        tokio::spawn(async move {
            written.await.unwrap();
            permits.add_permits(1);
            // The receiver lives until the last report.
            let _ = report.send(begun.elapsed());
        });
    }
    drop(report);
    let mut latencies = Latencies::default();
    while let Some(latency) = reports.recv().await {
        latencies.add(latency);
    }
    latencies
}

/// Agents that stream 200-byte outputs, each into its own session, as fast as they are answered.
async fn end_to_end(sessions: usize, time: Duration) {
    let data = tempfile::tempdir().unwrap();
    let (server, _) = MeasuredProcess::server(data.path());
    let mut agents = Vec::new();
    for number in 0..sessions {
        let session = format!("s{number}");
        BenchClient::create(&server.address, &session, 10).await;
        let more = json!({ "history": 0 });
        let mut agent =
            BenchClient::join(&server.address, &session, "bot", BenchRole::Agent, more).await;
        agent.start_read_run("run").await;
        agents.push(agent);
    }
    let answered = Arc::new(AtomicU64::new(0));
    let (cpu, begun) = (server.cpu_seconds(), Instant::now());
    let tasks: Vec<_> = agents
        .into_iter()
        .map(|agent| tokio::spawn(stream_outputs(agent, answered.clone(), begun + time)))
        .collect();
    let mut latencies = Latencies::default();
    for task in tasks {
        latencies.extend(task.await.unwrap());
    }
    let (entries, took) = (
        answered.load(Ordering::Relaxed) as f64,
        begun.elapsed().as_secs_f64(),
    );
    let cpu = server.cpu_seconds() - cpu;
    report("socket to socket, pipelined", entries / took, latencies);
    println!(
        "bar ≥ 50,000/s: {}; server CPU {:.1} µs an entry, {:.2} of its {took:.1} s",
        target_result(entries / took >= 50_000.0),
        cpu / entries * 1e6,
        cpu / took
    );
}

async fn stream_outputs(
    mut agent: BenchClient,
    answered: Arc<AtomicU64>,
    until: Instant,
) -> Latencies {
    let text = agent.output("run", "ID", &"x".repeat(200));
    let (before, after) = text.split_once("ID").unwrap();
    let mut latencies = Latencies::default();
    let mut number = 0_u64;
    while Instant::now() < until {
        for _ in 0..IN_FLIGHT {
            number += 1;
            agent.queue(&format!("{before}o{number}{after}"));
        }
        let begun = Instant::now();
        agent.flush().await.unwrap();
        // An acknowledgement starts with an id from the server, an output with one from the agent.
        let mut acks = 0;
        while acks < IN_FLIGHT {
            let received = agent.next().await.unwrap();
            acks += usize::from(!received.starts_with(br#"{"v":1,"id":"o"#));
        }
        answered.fetch_add(IN_FLIGHT as u64, Ordering::Relaxed);
        latencies.add(begun.elapsed());
    }
    latencies
}

fn report(name: &str, rate: f64, mut latencies: Latencies) {
    println!(
        "{name:<44} {rate:>10.0} {:>8.2} {:>8.2}",
        latencies.percentile(50.0),
        latencies.percentile(99.0)
    );
}
