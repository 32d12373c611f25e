//! How long a late joiner waits for the history of a long session, what it costs when many join one
//! session, and how long a server takes to start.
//!
//! Settings: JOIN_ENTRIES=10000 JOIN_TIMES=20 JOIN_SESSIONS=1000 JOIN_CROWD=1000 (0 skips a part)

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
    measure_crowds(env_number("JOIN_CROWD", 1000)).await;
    measure_late_joins(
        env_number("JOIN_ENTRIES", 10_000),
        env_number("JOIN_TIMES", 20),
    )
    .await;
    measure_start(env_number("JOIN_SESSIONS", 1000)).await;
}

/// How the members of a crowd come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// All at once.
    Together,
    /// Each when the one before has been welcomed.
    InTurn,
}

/// What the members of a crowd ask for when they join.
#[derive(Clone, Copy)]
struct JoinRequest {
    /// How much of the history.
    history: u64,
    /// Whether those present are announced, as clients expect that know no welcome.
    announce_others: bool,
}

/// The server's CPU time when a tenth, a third and all of a crowd join one session. Each of them
/// receives all of the others, so that what the server returns for one join grows with the crowd.
async fn measure_crowds(largest: usize) {
    if largest == 0 {
        return;
    }
    println!("joins into one session            server CPU s   ms a join   MiB sent   ms a MiB");
    let ours = |history| JoinRequest {
        history,
        announce_others: false,
    };
    let published = JoinRequest {
        history: 0,
        announce_others: true,
    };
    for (name, arrival, request) in [
        ("together", Arrival::Together, ours(0)),
        (
            "together, with 500 of history",
            Arrival::Together,
            ours(500),
        ),
        ("one after the other", Arrival::InTurn, ours(0)),
        ("together, announced", Arrival::Together, published),
        ("in turn, announced", Arrival::InTurn, published),
    ] {
        let mut figures = Vec::new();
        for joins in [largest / 10, largest * 3 / 10, largest] {
            let (cpu, bytes) = crowd(joins, arrival, request).await;
            let mib = bytes as f64 / 1024.0 / 1024.0;
            let each = cpu * 1000.0 / joins as f64;
            println!(
                "{joins:>5} {name:<29} {cpu:>9.2} {each:>11.2} {mib:>10.1} {:>10.2}",
                cpu * 1000.0 / mib
            );
            figures.push((cpu, mib));
        }
        let [(small, small_mib), .., (large, large_mib)] = figures[..] else {
            return;
        };
        println!(
            "  work grew {:.1} times, what was sent {:.1} times: {}; bar ≤ 0.3 s: {}",
            large / small.max(0.01),
            large_mib / small_mib,
            if large / small.max(0.01) <= 1.5 * large_mib / small_mib {
                "linear"
            } else {
                "NOT LINEAR"
            },
            target_result(large <= 0.3)
        );
    }
}

/// The server's CPU seconds for this many joins, until everyone knows everyone, and the bytes that
/// the clients received.
async fn crowd(joins: usize, arrival: Arrival, request: JoinRequest) -> (f64, u64) {
    let data = tempfile::tempdir().unwrap();
    let (server, _) = MeasuredProcess::server(data.path());
    BenchClient::create(&server.address, "crowd", joins).await;
    let mut clients = Vec::new();
    for _ in 0..joins {
        clients.push(BenchClient::connect(&server.address).await.unwrap());
    }
    let before = server.cpu_seconds();
    let mut readers = Vec::new();
    for (number, mut client) in clients.into_iter().enumerate() {
        let more = json!({
            "history": request.history, "announce_others": request.announce_others,
        });
        let name = format!("p{number}");
        match arrival {
            Arrival::Together => {
                client
                    .send_join("crowd", &name, BenchRole::Observer, more)
                    .await;
            }
            Arrival::InTurn => {
                client
                    .send_join("crowd", &name, BenchRole::Observer, more)
                    .await;
                client.readable().await;
            }
        }
        readers.push(tokio::spawn(read_until_all_known(client, joins)));
    }
    let mut bytes = 0;
    let mut clients = Vec::new();
    for reader in readers {
        let (client, received) = reader.await.unwrap();
        bytes += received;
        clients.push(client);
    }
    (server.cpu_seconds() - before, bytes)
}

/// Reads until everyone is known, from the welcome or an announcement; returns how much was
/// received.
async fn read_until_all_known(mut client: BenchClient, joins: usize) -> (BenchClient, u64) {
    let mut known = vec![false; joins];
    let (mut missing, mut bytes) = (joins, 0);
    while missing > 0 {
        let message = client.next().await.unwrap();
        bytes += message.len() as u64;
        for number in participant_numbers(message) {
            missing -= usize::from(!std::mem::replace(&mut known[number], true));
        }
    }
    (client, bytes)
}

/// The numbers of the participants who are listed or announced in a message.
fn participant_numbers(message: &[u8]) -> impl Iterator<Item = usize> {
    let text = std::str::from_utf8(message).unwrap_or_default();
    let header = text.get(..300).unwrap_or(text);
    let names = header.contains(r#""type":"session.welcome""#)
        || header.contains(r#""type":"participant.announce""#);
    let parts = text.split(r#""id":"p"#).skip(1).filter(move |_| names);
    parts.filter_map(|rest| rest.split_once('"')?.0.parse().ok())
}

async fn measure_late_joins(entries: usize, times: usize) {
    if entries == 0 || times == 0 {
        return;
    }
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
    if sessions == 0 {
        return;
    }
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
