//! How long a late joiner waits for the history of a long session, and how long a server takes to
//! start.
//!
//! Settings: JOIN_ENTRIES=10000 JOIN_TIMES=20 JOIN_SESSIONS=1000

#![allow(clippy::print_stdout, reason = "it prints its figures")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench that cannot go on ends"
)]

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use support::{BenchClient, BenchRole, Latencies, MeasuredProcess, env_number, target_result};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let entries = env_number("JOIN_ENTRIES", 10_000);
    let times = env_number("JOIN_TIMES", 20);
    let data = tempfile::tempdir().unwrap();
    let (server, _) = MeasuredProcess::server(data.path());
    fill_session(&server.address, entries).await;

    println!("late join of {entries} entries             p50 ms   max ms   server CPU ms");
    let mut latencies = Latencies::default();
    let cpu = server.cpu_seconds();
    for number in 0..times {
        latencies.add(measure_join(&server.address, number, entries).await);
    }
    let cpu = (server.cpu_seconds() - cpu) / times as f64;
    report("session in memory", latencies, cpu);
    server.stop();

    let mut latencies = Latencies::default();
    let mut cpu = 0.0;
    let cold = (times / 4).max(1);
    for number in 0..cold {
        let (server, _) = MeasuredProcess::server(data.path());
        let before = server.cpu_seconds();
        latencies.add(measure_join(&server.address, times + number, entries).await);
        cpu += server.cpu_seconds() - before;
        server.stop();
    }
    report("first join after a restart", latencies, cpu / cold as f64);
    measure_start(env_number("JOIN_SESSIONS", 1000)).await;
}

fn report(name: &str, mut latencies: Latencies, cpu: f64) {
    let worst = latencies.percentile(100.0);
    println!(
        "{name:<34} {:>8.1} {worst:>8.1} {:>15.1}   bar ≤ 100 ms: {}",
        latencies.percentile(50.0),
        cpu * 1000.0,
        target_result(latencies.percentile(50.0) <= 100.0)
    );
}

/// Creates a session with this many 200-byte outputs.
async fn fill_session(address: &str, entries: usize) {
    BenchClient::create(address, "long", 10_000).await;
    let more = json!({ "history": 0 });
    let mut agent = BenchClient::join(address, "long", "bot", BenchRole::Agent, more).await;
    agent.start_read_run("run").await;
    let text = "x".repeat(200);
    for first in (0..entries).step_by(64) {
        let many = 64.min(entries - first);
        for number in first..first + many {
            let output = agent.output("run", &format!("out-{number}"), &text);
            agent.queue(&output);
        }
        agent.flush().await.unwrap();
        for _ in 0..many {
            agent.wait_for_type("tool.output").await;
        }
    }
}

/// The time from the join to the last entry of the history, on an open connection.
async fn measure_join(address: &str, number: usize, entries: usize) -> Duration {
    let mut client = BenchClient::connect(address).await.unwrap();
    let begun = Instant::now();
    let more = json!({ "history": entries + 1000 });
    client
        .join_session("long", &format!("v{number}"), BenchRole::Observer, more)
        .await;
    let last = format!(r#"{{"v":1,"id":"out-{}""#, entries - 1);
    let mut outputs = 0;
    loop {
        let received = client.next().await.unwrap();
        outputs += usize::from(received.starts_with(br#"{"v":1,"id":"out-"#));
        if received.starts_with(last.as_bytes()) {
            break;
        }
    }
    assert_eq!(outputs, entries, "the whole history");
    begun.elapsed()
}

async fn measure_start(sessions: usize) {
    let data = tempfile::tempdir().unwrap();
    store_sessions(data.path(), sessions).await;
    let mut latencies = Latencies::default();
    for _ in 0..5 {
        let (server, took) = MeasuredProcess::server(data.path());
        latencies.add(took);
        server.stop();
    }
    let worst = latencies.percentile(100.0);
    println!(
        "start to listening, {sessions} sessions: p50 {:.1} ms, max {worst:.1} ms   bar ≤ 1000 ms: {}",
        latencies.percentile(50.0),
        target_result(worst <= 1000.0)
    );
}

/// Creates sessions with an agent, another participant and a finished command.
async fn store_sessions(data: &Path, sessions: usize) {
    let (server, _) = MeasuredProcess::server(data);
    for number in 0..sessions {
        let session = format!("s{number}");
        let more = json!({});
        let mut agent = BenchClient::join(
            &server.address,
            &session,
            "bot",
            BenchRole::Agent,
            more.clone(),
        )
        .await;
        BenchClient::join(&server.address, &session, "ann", BenchRole::Approver, more).await;
        agent.start_read_run("run").await;
    }
    server.stop();
}
