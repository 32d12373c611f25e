//! How long the first join after a restart takes, and a page of output, over three sizes of the log.
//!
//! The server ended in one of two ways: killed, after which up to 4,095 entries follow the newest
//! snapshot, or stopped, after which that is at the end of the log.
//!
//! Settings: LOAD_ENTRIES=10000,100000,1000000 LOAD_TIMES=5

#![allow(clippy::print_stdout, reason = "it prints its figures")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench that cannot go on ends"
)]

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{BenchClient, BenchRole, Latencies, MeasuredProcess, env_number, target_result};

/// Bytes of each output, with its line break; all of them fit in what a read may print.
const LINE_BYTES: usize = 8;

/// Lines of a page.
const PAGE: u64 = 100;

fn main() {
    let sizes = std::env::var("LOAD_ENTRIES");
    let sizes = sizes.as_deref().unwrap_or("10000,100000,1000000");
    let sizes: Vec<usize> = sizes
        .split(',')
        .map(|size| size.trim().parse().unwrap())
        .collect();
    let times = env_number("LOAD_TIMES", 5);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    println!("                                             p50 ms   max ms   server CPU ms");
    for entries in sizes {
        let data = tempfile::tempdir().unwrap();
        runtime.block_on(fill_session(data.path(), entries));
        let target = if entries <= 10_000 { 20.0 } else { 50.0 };
        for ending in [Ending::Killed, Ending::Stopped] {
            runtime.block_on(measure_loads(data.path(), entries, times, ending, target));
        }
        runtime.block_on(measure_pages(data.path(), entries, times));
    }
}

#[derive(Clone, Copy)]
enum Ending {
    Stopped,
    Killed,
}

/// Creates a session whose log has this many outputs of one command.
async fn fill_session(data: &Path, entries: usize) {
    let (server, _) = MeasuredProcess::server(data);
    BenchClient::create(&server.address, "long", 10_000).await;
    let more = json!({ "history": 0 });
    let mut agent = BenchClient::join(&server.address, "long", "bot", BenchRole::Agent, more).await;
    agent.start_read_run("run").await;
    for first in (0..entries).step_by(64) {
        let many = 64.min(entries - first);
        for number in first..first + many {
            let text = format!("{number:>width$}\n", width = LINE_BYTES - 1);
            let output = agent.output("run", &format!("out-{number}"), &text);
            agent.queue(&output);
        }
        agent.flush().await.unwrap();
        for _ in 0..many {
            agent.wait_for_type("tool.output").await;
        }
    }
    // Dropping it kills it.
    drop(server);
}

/// Restarts the server again and again, each time with a first join.
async fn measure_loads(data: &Path, entries: usize, times: usize, ending: Ending, target: f64) {
    let mut latencies = Latencies::default();
    let mut cpu = 0.0;
    for number in 0..times {
        let (server, _) = MeasuredProcess::server(data);
        let mut client = BenchClient::connect(&server.address).await.unwrap();
        let before = server.cpu_seconds();
        let begun = Instant::now();
        let more = json!({ "history": 0 });
        let name = format!("v{number}");
        client
            .join_session("long", &name, BenchRole::Observer, more)
            .await;
        latencies.add(begun.elapsed());
        cpu += server.cpu_seconds() - before;
        match ending {
            Ending::Stopped => server.stop(),
            Ending::Killed => drop(server),
        }
    }
    let name = match ending {
        Ending::Stopped => "first join, stopped before",
        Ending::Killed => "first join, killed before",
    };
    report(
        &format!("{name}, {entries} entries"),
        latencies,
        cpu / times as f64,
        target,
    );
}

/// Reads a page at the start, in the middle and at the end of the output, by line and by tail.
async fn measure_pages(data: &Path, entries: usize, times: usize) {
    let (server, _) = MeasuredProcess::server(data);
    let more = json!({ "history": 0 });
    let mut client =
        BenchClient::join(&server.address, "long", "reader", BenchRole::Observer, more).await;
    let last = entries as u64 - PAGE;
    let requests = [
        ("first lines", json!({ "offset": 0, "limit": PAGE })),
        ("middle lines", json!({ "offset": last / 2, "limit": PAGE })),
        ("last lines", json!({ "offset": last, "limit": PAGE })),
        ("tail", json!({ "tail": PAGE })),
    ];
    for (name, mut request) in requests {
        request["ref"] = json!("run");
        let mut latencies = Latencies::default();
        let before = server.cpu_seconds();
        for number in 0..times {
            let id = format!("{name}-{number}").replace(' ', "-");
            let (page, took) = read_page(&mut client, &id, &request).await;
            assert_eq!(
                page["payload"]["lines"].as_array().unwrap().len() as u64,
                PAGE
            );
            latencies.add(took);
        }
        let cpu = (server.cpu_seconds() - before) / times as f64;
        report(&format!("{name} of {entries}"), latencies, cpu, 20.0);
    }
    server.stop();
}

async fn read_page(client: &mut BenchClient, id: &str, request: &Value) -> (Value, Duration) {
    let begun = Instant::now();
    client.send("output.read", id, request).await;
    let page = client.wait_for_type("output.page").await;
    (page, begun.elapsed())
}

fn report(name: &str, mut latencies: Latencies, cpu: f64, target: f64) {
    let (middle, worst) = (latencies.percentile(50.0), latencies.percentile(100.0));
    println!(
        "{name:<44} {middle:>8.1} {worst:>8.1} {:>15.1}   bar ≤ {target:.0} ms: {}",
        cpu * 1000.0,
        target_result(middle <= target)
    );
}
