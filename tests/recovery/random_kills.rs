//! Agent and server are killed at random moments while commands run: none runs twice, and the log
//! has an end for each.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::agent_process::{AgentProcess, write_script};
use crate::support::audit::{assert_intact, export_log};
use crate::support::cli::CliEnv;
use crate::support::load::Rng;
use crate::support::session::create_session_on;
use crate::support::{TEST_TIMEOUT, TestClient, TestServer, TestUser};

/// Commands in the script of one agent process.
const STEPS_PER_SCRIPT: u64 = 100;

/// Results to wait for in one round.
const MAX_RESULTS_PER_ROUND: u64 = 30;

#[tokio::test]
async fn after_random_kills_no_command_runs_twice_and_every_command_ends() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seed = number("PVP_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let rounds: u64 = number("PVP_ROUNDS").unwrap_or(6);
    report(&format!("PVP_SEED={seed} PVP_ROUNDS={rounds}"));
    let mut rng = Rng(seed);
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(data.path(), &[]).await;
    let (mut server, _) = create_session_on(server, json!({ "away_timeout_seconds": 3600 })).await;
    let address = server.address.clone();
    let bob = server.invite("bob", &["approver"], &[]);
    let cli = CliEnv::new();
    let script = write_script(&cli, &agent_script(0));
    let mut agent_process =
        AgentProcess::start_at(cli, &server, "owl", &["--script", &script]).await;
    let mut left = STEPS_PER_SCRIPT;
    for round in 1..=rounds {
        let results = rng.below(MAX_RESULTS_PER_ROUND);
        left -= results;
        let delay = Duration::from_millis(rng.below(40));
        approve_everything(&server, &bob, results).await;
        tokio::time::sleep(delay).await;
        let last = round == rounds;
        let (kill_server, kill_agent) = match rng.below(3) {
            0 => (true, false),
            1 => (false, true),
            _ => (true, true),
        };
        if kill_server {
            server.kill_9().await;
        }
        if kill_agent || last || left < MAX_RESULTS_PER_ROUND {
            agent_process.kill_9().await;
        }
        if kill_server {
            server = TestServer::start_on(data.path(), &address, &[]).await;
        }
        if agent_process.process.try_pid().is_none() {
            let script = if last {
                WAIT_SCRIPT.to_owned()
            } else {
                agent_script(round)
            };
            write_script(&agent_process.cli, &script);
            agent_process.restart().await;
            left = STEPS_PER_SCRIPT;
        }
    }
    wait_until_done(&server, &bob).await;
    agent_process.wait_until_idle().await;
    check_log(data.path(), &agent_process.read_file("lines"));
}

/// The script of the last agent process only waits.
const WAIT_SCRIPT: &str = "[[step]]\nwait = 'prompt'\n";

/// A script of commands that each append a unique line.
fn agent_script(number: u64) -> String {
    let step = |step: u64| {
        let line = format!(
            "echo {number}-{step} >> lines; echo out; sleep 0.0{}",
            step % 5
        );
        let mode = match step % 5 {
            0 => "background",
            _ => "normal",
        };
        let together = !step.is_multiple_of(3);
        format!("[[step]]\nshell = '{line}'\nmode = '{mode}'\ntogether = {together}\n")
    };
    (0..STEPS_PER_SCRIPT).map(step).collect::<String>() + WAIT_SCRIPT
}

#[expect(
    clippy::print_stderr,
    reason = "the seed of a failing run is needed to repeat it"
)]
fn report(text: &str) {
    eprintln!("{text}");
}

/// Joins, and approves what waits.
async fn join_and_approve(server: &TestServer, user: &TestUser) -> (TestClient, Value) {
    let mut person = server.connect(user).await;
    let welcome = person.join("owl", user, json!({ "history": 0 })).await;
    for gate in welcome["payload"]["gates"].as_array().unwrap() {
        vote(&mut person, &gate["gate"]).await;
    }
    (person, welcome)
}

async fn vote(person: &mut TestClient, gate: &Value) {
    let vote = json!({ "gate": gate, "approver": person.participant });
    person.send("gate.approve", vote).await;
}

/// Approves everything until this many results have arrived.
async fn approve_everything(server: &TestServer, user: &TestUser, results: u64) {
    let (mut person, _) = join_and_approve(server, user).await;
    let mut seen = 0;
    let begun = Instant::now();
    while seen < results {
        assert!(begun.elapsed() < TEST_TIMEOUT, "only {seen} of {results}");
        let message = person.next().await.expect("the server runs");
        if message["type"] == "gate.request" {
            vote(&mut person, &message["id"]).await;
        }
        seen += u64::from(message["type"] == "tool.result");
    }
}

/// Approves everything until nothing waits and nothing runs.
async fn wait_until_done(server: &TestServer, user: &TestUser) {
    let is_empty = |welcome: &Value, what: &str| welcome["payload"][what] == json!([]);
    loop {
        let (mut person, welcome) = join_and_approve(server, user).await;
        if is_empty(&welcome, "gates") && is_empty(&welcome, "running") {
            return;
        }
        person
            .wait(|message| message["type"] == "tool.result" || message["type"] == "gate.resolve")
            .await;
    }
}

/// What the log has of one command.
#[derive(Debug, Default)]
struct LoggedCommand {
    line: String,
    granted: u32,
    refused: u32,
    results: Vec<Value>,
}

fn check_log(data: &Path, lines: &str) {
    assert_intact(data);
    let mut commands: BTreeMap<String, LoggedCommand> = BTreeMap::new();
    for entry in export_log(data, "owl") {
        let (payload, kind) = (&entry["payload"], entry["type"].as_str().unwrap());
        let about = payload["tool_proposal"].as_str().unwrap_or_default();
        match kind {
            "tool.propose" => {
                let command = payload["arguments"]["full_command"].as_str().unwrap();
                let line = command.split(' ').nth(1).unwrap().to_owned();
                let id = entry["id"].as_str().unwrap().to_owned();
                commands.entry(id).or_default().line = line;
            }
            "tool.execute" => commands.get_mut(about).unwrap().granted += 1,
            "gate.resolve" if payload["outcome"] != "approved" => {
                commands.get_mut(about).unwrap().refused += 1;
            }
            "tool.result" => {
                let results = &mut commands.get_mut(about).unwrap().results;
                results.push(payload.clone());
            }
            _ => {}
        }
    }
    let mut unknown = 0;
    for (id, command) in &commands {
        let times = lines.lines().filter(|line| **line == command.line).count();
        assert!(times <= 1, "{id} ran twice: {command:?}");
        match (command.granted, command.refused, command.results.as_slice()) {
            (0, 1, []) => assert_eq!(times, 0, "{id} ran: {command:?}"),
            (1, 0, [result]) if result["outcome"] == "unknown" => unknown += 1,
            (1, 0, [result]) if result["result"].is_null() => {
                assert_eq!(times, 0, "{id} ran: {command:?}");
            }
            // Approved just before it was withdrawn: stopped at whatever stage it was.
            (1, 0, [result]) if !result["error"].is_null() => {}
            (1, 0, [_]) => assert_eq!(times, 1, "{id} did not run: {command:?}"),
            _ => panic!("{id} did not come to one end: {command:?}"),
        }
    }
    let ran = lines.lines().count();
    report(&format!(
        "{} proposed, {ran} ran, {unknown} unknown",
        commands.len()
    ));
    assert!(ran > 0, "something ran");
}
