//! The server's part of the wait at a gate: from the proposal to the grant, when the approver
//! answers at once.
//!
//! A round trip is `tool.propose` sent → `gate.request` received by the approver → `gate.approve`
//! sent → `tool.execute` received by the agent. Each of the two steps is durable before it is
//! delivered.
//!
//! Settings: GATE_ROUNDS=1000 GATE_SESSIONS=500 GATE_EVERY_MS=1000 GATE_SECONDS=8

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

/// Outputs that follow each grant, so that the load is realistic.
const OUTPUTS_PER_ROUND: usize = 10;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let rounds = env_number("GATE_ROUNDS", 1000);
    let sessions = env_number("GATE_SESSIONS", 500);
    let every = Duration::from_millis(env_number("GATE_EVERY_MS", 1000) as u64);
    let seconds = Duration::from_secs(env_number("GATE_SECONDS", 8) as u64);
    println!(
        "gate round trip, durable      rounds/s   p50 ms   p99 ms   max ms   server CPU µs/round"
    );

    let data = tempfile::tempdir().unwrap();
    let (server, _) = MeasuredProcess::server(data.path());
    let mut pair = AgentAndApprover::new(&server.address, 0).await;
    for _ in 0..rounds / 10 {
        pair.round_trip().await;
    }
    let mut latencies = Latencies::default();
    let (cpu, begun) = (server.cpu_seconds(), Instant::now());
    for _ in 0..rounds {
        latencies.add(pair.round_trip().await);
    }
    report(
        "1 session",
        latencies,
        begun,
        server.cpu_seconds() - cpu,
        10.0,
    );

    let mut pairs = Vec::new();
    for number in 1..=sessions {
        pairs.push(AgentAndApprover::new(&server.address, number).await);
    }
    let (cpu, begun) = (server.cpu_seconds(), Instant::now());
    let mut busy = Vec::new();
    for (number, mut pair) in pairs.into_iter().enumerate() {
        // Spread over the interval, as people's actions are.
        let first = begun + every.mul_f64(number as f64 / sessions as f64);
        busy.push(tokio::spawn(async move {
            let mut latencies = Latencies::default();
            let mut next = first;
            while next < begun + seconds {
                tokio::time::sleep_until(next.into()).await;
                latencies.add(pair.round_trip().await);
                next += every;
            }
            latencies
        }));
    }
    let mut latencies = Latencies::default();
    for task in busy {
        latencies.extend(task.await.unwrap());
    }
    let name = format!("{sessions} sessions busy");
    report(&name, latencies, begun, server.cpu_seconds() - cpu, 50.0);
    println!(
        "busy: each session a round every {} ms and {OUTPUTS_PER_ROUND} outputs and a result after each",
        every.as_millis()
    );
}

fn report(name: &str, mut latencies: Latencies, begun: Instant, cpu: f64, bar: f64) {
    let rounds = latencies.count() as f64;
    let p99 = latencies.percentile(99.0);
    println!(
        "{name:<28} {:>10.0} {:>8.2} {p99:>8.2} {:>8.2} {:>21.0}   bar p99 ≤ {bar} ms: {}",
        rounds / begun.elapsed().as_secs_f64(),
        latencies.percentile(50.0),
        latencies.percentile(100.0),
        cpu / rounds * 1e6,
        target_result(p99 <= bar)
    );
}

/// An agent and the person who approves.
struct AgentAndApprover {
    agent: BenchClient,
    approver: BenchClient,
    rounds: usize,
}

impl AgentAndApprover {
    async fn new(address: &str, number: usize) -> Self {
        let session = format!("gate-{number}");
        BenchClient::create(address, &session, 10).await;
        let more = json!({ "history": 0 });
        let agent =
            BenchClient::join(address, &session, "bot", BenchRole::Agent, more.clone()).await;
        let approver = BenchClient::join(address, &session, "ann", BenchRole::Approver, more).await;
        Self {
            agent,
            approver,
            rounds: 0,
        }
    }

    /// The time from a proposal to its grant; afterwards the run is completed.
    async fn round_trip(&mut self) -> Duration {
        self.rounds += 1;
        let number = self.rounds;
        let proposal = format!("p-{number}");
        let command = self.agent.shell_proposal("touch build/stamp");
        let begun = Instant::now();
        self.agent.send("tool.propose", &proposal, &command).await;
        let request = self.approver.wait_for_type("gate.request").await;
        let vote = json!({ "gate": request["id"], "approver": "ann" });
        let vote_id = format!("v-{number}");
        self.approver.send("gate.approve", &vote_id, &vote).await;
        let execute = self.agent.wait_for_type("tool.execute").await;
        let took = begun.elapsed();
        assert!(execute["payload"]["grant"]["nonce"].is_string());
        self.finish_run(&proposal, number).await;
        took
    }

    async fn finish_run(&mut self, proposal: &str, number: usize) {
        for output in 0..OUTPUTS_PER_ROUND {
            let id = format!("o-{number}-{output}");
            let text = self.agent.output(proposal, &id, &"x".repeat(200));
            self.agent.queue(&text);
        }
        let result = json!({
            "tool_proposal": proposal, "success": true, "duration_ms": 1,
            "result": { "exitCode": 0, "stdout": "", "stderr": "" },
        });
        self.agent
            .send("tool.result", &format!("r-{number}"), &result)
            .await;
        self.agent.wait_for_type("tool.result").await;
        self.approver.wait_for_type("tool.result").await;
    }
}
