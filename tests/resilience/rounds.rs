//! Agent and server are killed at random moments while commands run: none runs twice, and each
//! comes to an end that is on record.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::crowd::Dice;
use crate::kit::desk::Desk;
use crate::kit::proof::{log, verified};
use crate::kit::room::room_of;
use crate::kit::worker::{Worker, script_at};
use crate::kit::{Client, Invited, PATIENCE, Server};

/// Commands of one life of the agent.
const STEPS: u64 = 100;

/// Results that are waited for in one round.
const MOST_RESULTS: u64 = 30;

#[tokio::test]
async fn whatever_is_killed_when_nothing_runs_twice_and_everything_ends() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seed = number("PVP_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let rounds: u64 = number("PVP_ROUNDS").unwrap_or(6);
    say(&format!("PVP_SEED={seed} PVP_ROUNDS={rounds}"));
    let mut dice = Dice(seed);
    let data = tempfile::tempdir().unwrap();
    let server = Server::start_in(data.path(), &[]).await;
    let (mut server, _) = room_of(server, json!({ "away_timeout_seconds": 3600 })).await;
    let address = server.address.clone();
    let bob = server.invite("bob", &["approver"], &[]);
    let desk = Desk::new();
    let script = script_at(&desk, &life(0));
    let mut worker = Worker::start_at(desk, &server, "owl", &["--script", &script]).await;
    let mut left = STEPS;
    for round in 1..=rounds {
        let results = dice.roll(MOST_RESULTS);
        left -= results;
        let moment = Duration::from_millis(dice.roll(40));
        approve_everything(&server, &bob, results).await;
        tokio::time::sleep(moment).await;
        let last = round == rounds;
        let (kill_server, kill_agent) = match dice.roll(3) {
            0 => (true, false),
            1 => (false, true),
            _ => (true, true),
        };
        if kill_server {
            server.kill_9().await;
        }
        if kill_agent || last || left < MOST_RESULTS {
            worker.kill_9().await;
        }
        if kill_server {
            server = Server::start_on(data.path(), &address, &[]).await;
        }
        if worker.going.try_pid().is_none() {
            let script = if last { QUIET.to_owned() } else { life(round) };
            script_at(&worker.desk, &script);
            worker.again().await;
            left = STEPS;
        }
    }
    until_all_is_over(&server, &bob).await;
    worker.is_quiet().await;
    check(data.path(), &worker.file("lines"));
}

/// The last life only waits.
const QUIET: &str = "[[step]]\nwait = 'prompt'\n";

/// Commands that each add a line that no other adds.
fn life(number: u64) -> String {
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
    (0..STEPS).map(step).collect::<String>() + QUIET
}

#[expect(
    clippy::print_stderr,
    reason = "the seed of a failing run is needed to repeat it"
)]
fn say(text: &str) {
    eprintln!("{text}");
}

/// Joins, and says yes to what waits.
async fn arrive(server: &Server, who: &Invited) -> (Client, Value) {
    let mut person = server.connect(who).await;
    let welcome = person.join("owl", who, json!({ "history": 0 })).await;
    for gate in welcome["payload"]["gates"].as_array().unwrap() {
        vote(&mut person, &gate["gate"]).await;
    }
    (person, welcome)
}

async fn vote(person: &mut Client, gate: &Value) {
    let vote = json!({ "gate": gate, "approver": person.participant });
    person.send("gate.approve", vote).await;
}

/// Says yes to everything until so many results have come.
async fn approve_everything(server: &Server, who: &Invited, results: u64) {
    let (mut person, _) = arrive(server, who).await;
    let mut seen = 0;
    let begun = Instant::now();
    while seen < results {
        assert!(begun.elapsed() < PATIENCE, "only {seen} of {results}");
        let message = person.next().await.expect("the server runs");
        if message["type"] == "gate.request" {
            vote(&mut person, &message["id"]).await;
        }
        seen += u64::from(message["type"] == "tool.result");
    }
}

/// Goes on until nothing waits and nothing runs.
async fn until_all_is_over(server: &Server, who: &Invited) {
    let is_empty = |welcome: &Value, what: &str| welcome["payload"][what] == json!([]);
    loop {
        let (mut person, welcome) = arrive(server, who).await;
        if is_empty(&welcome, "gates") && is_empty(&welcome, "running") {
            return;
        }
        person
            .wait(|message| message["type"] == "tool.result" || message["type"] == "gate.resolve")
            .await;
    }
}

/// What the log says of one command.
#[derive(Debug, Default)]
struct Course {
    line: String,
    granted: u32,
    refused: u32,
    results: Vec<Value>,
}

fn check(data: &Path, lines: &str) {
    verified(data);
    let mut courses: BTreeMap<String, Course> = BTreeMap::new();
    for entry in log(data, "owl") {
        let (payload, kind) = (&entry["payload"], entry["type"].as_str().unwrap());
        let about = payload["tool_proposal"].as_str().unwrap_or_default();
        match kind {
            "tool.propose" => {
                let command = payload["arguments"]["full_command"].as_str().unwrap();
                let line = command.split(' ').nth(1).unwrap().to_owned();
                let id = entry["id"].as_str().unwrap().to_owned();
                courses.entry(id).or_default().line = line;
            }
            "tool.execute" => courses.get_mut(about).unwrap().granted += 1,
            "gate.resolve" if payload["outcome"] != "approved" => {
                courses.get_mut(about).unwrap().refused += 1;
            }
            "tool.result" => {
                let results = &mut courses.get_mut(about).unwrap().results;
                results.push(payload.clone());
            }
            _ => {}
        }
    }
    let mut unknown = 0;
    for (id, course) in &courses {
        let times = lines.lines().filter(|line| **line == course.line).count();
        assert!(times <= 1, "{id} ran twice: {course:?}");
        match (course.granted, course.refused, course.results.as_slice()) {
            (0, 1, []) => assert_eq!(times, 0, "{id} ran: {course:?}"),
            (1, 0, [result]) if result["outcome"] == "unknown" => unknown += 1,
            (1, 0, [result]) if result["result"].is_null() => {
                assert_eq!(times, 0, "{id} ran: {course:?}");
            }
            // Approved just before it was withdrawn: stopped wherever it was.
            (1, 0, [result]) if !result["error"].is_null() => {}
            (1, 0, [_]) => assert_eq!(times, 1, "{id} did not run: {course:?}"),
            _ => panic!("{id} did not come to one end: {course:?}"),
        }
    }
    let ran = lines.lines().count();
    say(&format!(
        "{} proposed, {ran} ran, {unknown} unknown",
        courses.len()
    ));
    assert!(ran > 0, "something ran");
}
