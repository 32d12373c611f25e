//! The server is killed under load and restarted: nothing acknowledged is lost, nothing is
//! delivered that is not durable, and deadlines continue.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use crate::support::audit::{
    assert_checkpointed, assert_intact, export_log, export_logs, message_type,
};
use crate::support::load::{
    HELD_PROPOSAL, LONG_RUNNING_PROPOSAL, LoadClient, LoadRole, Rng, StopWhen,
};
use crate::support::{TEST_TIMEOUT, TestClient, TestServer, TestUser};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Rounds on one data directory; further rounds use a new one.
const ROUNDS_PER_DATA_DIR: u64 = 20;

const SESSIONS: [&str; 3] = ["red", "green", "blue"];

/// Removes the rate limit, so that clients can send as fast as they are answered.
const NO_RATE_LIMIT: [(&str, &str); 2] = [
    ("PVP_MESSAGES_PER_SECOND", "1000000"),
    ("PVP_MESSAGE_BURST", "1000000"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed_under_load() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seed = number("PVP_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let rounds: u64 = number("PVP_ROUNDS").unwrap_or(20);
    report(&format!("PVP_SEED={seed} PVP_ROUNDS={rounds}"));
    let mut rng = Rng(seed);
    let mut left = rounds;
    while left > 0 {
        let now = left.min(ROUNDS_PER_DATA_DIR);
        run_rounds(now, &mut rng).await;
        left -= now;
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the seed of a failing run is needed to repeat it"
)]
fn report(text: &str) {
    eprintln!("{text}");
}

/// Rounds of load and kill on one data directory, and a last one in which everything is answered.
async fn run_rounds(rounds: u64, rng: &mut Rng) {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path()).await;
    let eye = server.invite("eye", &["observer"], &[]);
    let mut clients = Vec::new();
    for session in SESSIONS {
        create_load_clients(&server, session, rng, &mut clients).await;
        server.join(session, &eye).await.sync().await;
    }
    let mut before = BTreeMap::new();
    for round in 0..rounds {
        let enough = match rng.below(4) {
            0 => 0,
            _ => 1 + rng.below(250),
        };
        clients = load_then_kill(
            &mut server,
            clients,
            enough,
            Duration::from_millis(rng.below(12)),
        )
        .await;
        assert_intact(data.path());
        before = check_against_log(data.path(), &mut clients, before);
        server = start(data.path()).await;
        check_after_restart(&server, &eye, &before).await;
        let said: usize = clients.iter().map(|member| member.acked.len()).sum();
        report(&format!("round {round}: {said} acknowledged so far"));
    }
    clients = drain_replies(&server, clients).await;
    assert!(server.stop().await.success());
    let last = check_against_log(data.path(), &mut clients, before);
    assert_checkpointed(data.path());
    if rounds == ROUNDS_PER_DATA_DIR {
        check_coverage(&clients, &last);
    }
}

async fn start(data: &Path) -> TestServer {
    TestServer::start_with(data, "127.0.0.1:0", &[], &NO_RATE_LIMIT, None).await
}

async fn create_load_clients(
    server: &TestServer,
    session: &str,
    rng: &mut Rng,
    clients: &mut Vec<LoadClient>,
) {
    let config = json!({
        "default_gate_quorum": { "type": "any", "count": 2 },
        "gate_timeout_seconds": 3600, "away_timeout_seconds": 3600,
    });
    server.create_session(session, config).await;
    let name = |name: &str| format!("{name}-{session}");
    let voter = |skips_held| LoadRole::Voter {
        skips_held,
        special_proposals: BTreeMap::new(),
    };
    let agent = LoadRole::Agent {
        proposed: 0,
        open: BTreeSet::new(),
        granted: BTreeSet::new(),
        long_running: None,
        printed: 0,
    };
    let people = [
        (
            server.invite(&name("dee"), &["driver"], &[]),
            LoadRole::Writer { written: 0 },
        ),
        (
            server.invite(&name("ann"), &["approver"], &[]),
            voter(false),
        ),
        (server.invite(&name("bob"), &["approver"], &[]), voter(true)),
        (
            server.invite(&name("bot"), &["driver"], &["--kind", "agent"]),
            agent,
        ),
    ];
    for (user, part) in people {
        let seed = rng.below(u64::MAX);
        clients.push(LoadClient::new(session, user, part, seed));
    }
}

/// All clients send until `enough` messages are acknowledged and `more` time has passed; then the
/// server is killed.
async fn load_then_kill(
    server: &mut TestServer,
    clients: Vec<LoadClient>,
    enough: u64,
    more: Duration,
) -> Vec<LoadClient> {
    let (acks, mut acknowledged) = watch::channel(0);
    let mut living = spawn_clients(server, clients, StopWhen::Killed, &acks);
    tokio::select! {
        reached = tokio::time::timeout(TEST_TIMEOUT, acknowledged.wait_for(|count| *count >= enough)) => {
            reached.expect("the server answers").unwrap();
        }
        Some(ended) = living.join_next() => {
            let member = ended.unwrap();
            panic!("{} went home early", member.user.participant);
        }
    }
    // Not a condition: it only varies the moment within a batch.
    tokio::time::sleep(more).await;
    server.kill_9().await;
    living.join_all().await
}

/// Sends nothing new; waits until everything that was sent is answered.
async fn drain_replies(server: &TestServer, clients: Vec<LoadClient>) -> Vec<LoadClient> {
    let (acks, _) = watch::channel(0);
    let clients = spawn_clients(server, clients, StopWhen::Answered, &acks)
        .join_all()
        .await;
    for member in &clients {
        assert!(member.unanswered.is_empty(), "{:?}", member.unanswered);
    }
    clients
}

fn spawn_clients(
    server: &TestServer,
    clients: Vec<LoadClient>,
    until: StopWhen,
    acks: &watch::Sender<u64>,
) -> JoinSet<LoadClient> {
    let mut living = JoinSet::new();
    for mut member in clients {
        let (address, acks) = (server.address.clone(), acks.clone());
        living.spawn(async move {
            member.run_until(&address, until, &acks).await;
            member
        });
    }
    living
}

type SessionLogs = BTreeMap<String, Vec<Value>>;

/// Compares the answers and entries that clients received with the log.
fn check_against_log(data: &Path, clients: &mut [LoadClient], before: SessionLogs) -> SessionLogs {
    let now = export_logs(data);
    for (session, log) in &now {
        if let Some(before) = before.get(session) {
            assert!(log.starts_with(before), "what was written has changed");
        }
        check_log(log);
    }
    for member in clients {
        let log = &now[&member.session];
        let seqs: BTreeMap<&str, u64> = log
            .iter()
            .map(|entry| {
                (
                    entry["id"].as_str().unwrap(),
                    entry["seq"].as_u64().unwrap(),
                )
            })
            .collect();
        for (id, seq) in &member.acked {
            let at = seqs.get(id.as_str());
            assert_eq!(at, Some(seq), "`{id}` was acknowledged as {seq}");
        }
        for id in &member.refused {
            assert_eq!(seqs.get(id.as_str()), None, "`{id}` was refused");
        }
        for entry in member.received.drain(..) {
            let at = usize::try_from(entry["seq"].as_u64().unwrap()).unwrap();
            assert_eq!(log.get(at - 1), Some(&entry), "told, and not as written");
        }
    }
    now
}

/// Asserts that nothing was applied twice, and nothing granted without two votes.
fn check_log(log: &[Value]) {
    let mut ids = BTreeSet::new();
    let mut approvals: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut proposal_of: BTreeMap<&str, &str> = BTreeMap::new();
    let mut granted = BTreeSet::new();
    let mut finished = BTreeSet::new();
    let mut printed: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in log {
        let text = |field: &str| entry["payload"][field].as_str().unwrap();
        let id = entry["id"].as_str().unwrap();
        assert!(ids.insert(id), "applied twice: {entry}");
        match message_type(entry) {
            "gate.request" => drop(proposal_of.insert(id, text("action_ref"))),
            "gate.approve" => {
                let proposal = proposal_of[text("gate_request")];
                assert_eq!(text("gate"), proposal, "{entry}");
                let sender = entry["sender"].as_str().unwrap();
                approvals.entry(proposal).or_default().insert(sender);
            }
            "tool.execute" => {
                let proposal = text("tool_proposal");
                assert!(granted.insert(proposal), "granted twice: {entry}");
                assert_eq!(approvals[proposal].len(), 2, "{entry}");
            }
            "tool.output" => {
                let proposal = text("tool_proposal");
                let piece = printed.entry(proposal).or_default();
                assert_eq!(text("text"), format!("piece {piece}\n"), "{entry}");
                *piece += 1;
                assert!(!finished.contains(proposal), "{entry}");
            }
            "tool.result" => assert!(finished.insert(text("tool_proposal")), "{entry}"),
            _ => {}
        }
    }
}

/// Asserts that after a restart, before any message, gates, votes, deadlines and runs are as
/// logged.
async fn check_after_restart(server: &TestServer, eye: &TestUser, logs: &SessionLogs) {
    for (session, log) in logs {
        let head = log.len() as u64;
        let mut client = server.connect(eye).await;
        let welcome = client.join(session, eye, json!({ "after": head })).await;
        let welcome = &welcome["payload"];
        assert_eq!(welcome["head"], head);
        assert_eq!(gates_in_welcome(welcome), gates_in_log(log));
        assert_eq!(runs_in_welcome(welcome), runs_in_log(log));
    }
}

/// Gate id → its proposal, its deadline and who approved.
type OpenGates = BTreeMap<String, (Value, Value, BTreeSet<String>)>;

fn gates_in_welcome(welcome: &Value) -> OpenGates {
    let gates = welcome["gates"].as_array().unwrap().iter();
    let votes = |gate: &Value| {
        let votes = gate["approvals"].as_array().unwrap().iter();
        votes
            .map(|vote| vote["participant"].as_str().unwrap().to_owned())
            .collect()
    };
    gates
        .map(|gate| {
            let request = &gate["request"];
            let what = (
                request["action_ref"].clone(),
                request["deadline"].clone(),
                votes(gate),
            );
            (gate["gate"].as_str().unwrap().to_owned(), what)
        })
        .collect()
}

fn gates_in_log(log: &[Value]) -> OpenGates {
    let mut gates = OpenGates::new();
    for entry in log {
        let payload = &entry["payload"];
        match message_type(entry) {
            "gate.request" => {
                assert!(payload["deadline"].is_string(), "{entry}");
                let what = (
                    payload["action_ref"].clone(),
                    payload["deadline"].clone(),
                    BTreeSet::new(),
                );
                gates.insert(entry["id"].as_str().unwrap().to_owned(), what);
            }
            "gate.approve" => {
                let gate = gates.get_mut(payload["gate_request"].as_str().unwrap());
                let sender = entry["sender"].as_str().unwrap().to_owned();
                gate.expect("no vote on a closed gate is kept")
                    .2
                    .insert(sender);
            }
            "gate.resolve" => {
                let gate = gates.remove(payload["gate"].as_str().unwrap());
                assert!(gate.is_some(), "closed twice: {entry}");
            }
            _ => {}
        }
    }
    gates
}

/// Proposal id → when it was started.
type RunStartTimes = BTreeMap<String, Value>;

fn runs_in_welcome(welcome: &Value) -> RunStartTimes {
    let running = welcome["running"].as_array().unwrap().iter();
    running
        .map(|run| {
            (
                run["tool_proposal"].as_str().unwrap().to_owned(),
                run["since"].clone(),
            )
        })
        .collect()
}

fn runs_in_log(log: &[Value]) -> RunStartTimes {
    let mut runs = RunStartTimes::new();
    for entry in log {
        let proposal = || {
            entry["payload"]["tool_proposal"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        match message_type(entry) {
            "tool.execute" => drop(runs.insert(proposal(), entry["ts"].clone())),
            "tool.result" => drop(runs.remove(&proposal())),
            _ => {}
        }
    }
    runs
}

/// Asserts that the load covered every kind of message; otherwise the test proves nothing.
fn check_coverage(clients: &[LoadClient], logs: &SessionLogs) {
    for member in clients {
        let user = &member.user.participant;
        assert!(member.acked.len() > 10, "{user}: {}", member.acked.len());
    }
    for log in logs.values() {
        let described = |description: &str| {
            let mut proposals = log
                .iter()
                .filter(|entry| message_type(entry) == "tool.propose");
            let found = proposals.find(|entry| entry["payload"]["description"] == description);
            found.unwrap()["id"].clone()
        };
        let hold = described(HELD_PROPOSAL);
        let held = gates_in_log(log).into_values().find(|gate| gate.0 == hold);
        assert_eq!(held.expect("it waits for one more vote").2.len(), 1);
        let stay = described(LONG_RUNNING_PROPOSAL);
        assert!(runs_in_log(log).contains_key(stay.as_str().unwrap()));
    }
}

#[tokio::test]
async fn a_deadline_acts_after_a_restart_without_any_connection() {
    let data = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(data.path(), &[]).await;
    // Long enough for a busy machine to kill the server first.
    let config = json!({ "gate_timeout_seconds": 10 });
    let (_, mut agent) = approver_and_agent(&server, "alone", config).await;
    agent.propose("touch a").await;
    server.kill_9().await;
    let before = export_log(data.path(), "alone");
    let request = before
        .iter()
        .find(|entry| message_type(entry) == "gate.request");
    let deadline = request.unwrap()["payload"]["deadline"].as_str().unwrap();
    let last = message_type(before.last().unwrap());
    assert_eq!(last, "gate.request", "killed before the deadline");

    let server = TestServer::start_in(data.path(), &[]).await;
    let after = wait_for_log(data.path(), "alone", |log| log.len() > before.len()).await;
    assert!(after.starts_with(&before));
    let [timeout, resolve] = &after[before.len()..] else {
        panic!("{after:#?}");
    };
    assert_eq!(message_type(timeout), "gate.timeout");
    assert_eq!(timeout["payload"]["resolution"], "rejected");
    let timed_out_at = timeout["ts"].as_str().unwrap();
    assert!(
        timed_out_at >= deadline,
        "{timed_out_at} is before {deadline}"
    );
    assert_eq!(message_type(resolve), "gate.resolve");
    assert_eq!(resolve["payload"]["outcome"], "timed_out");
    assert!(server.stop().await.success());
    assert_checkpointed(data.path());
}

#[tokio::test]
async fn a_countdown_continues_across_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(data.path(), &[]).await;
    // Long enough for a busy machine to restart the server first.
    let config =
        json!({ "gate_timeout_seconds": 15, "default_gate_quorum": { "type": "any", "count": 2 } });
    let (mut ann, mut agent) = approver_and_agent(&server, "count", config).await;
    let user = ann.user.clone();
    let proposal = agent.propose("touch a").await;
    let request = ann.client.wait_for("gate.request").await;
    let deadline = request["payload"]["deadline"].clone();
    assert_eq!(ann.client.approve(&proposal).await["type"], "session.ack");
    let seen = *ann.client.received_seqs().last().unwrap();
    server.kill_9().await;

    let server = TestServer::start_in(data.path(), &[]).await;
    let mut client = server.connect(&user).await;
    let welcome = client.join("count", &user, json!({ "after": seen })).await;
    let gate = &welcome["payload"]["gates"][0];
    assert_eq!(gate["request"]["deadline"], deadline);
    assert_eq!(
        gate["approvals"][0]["participant"],
        user.participant.as_str()
    );
    let timeout = client.wait_for("gate.timeout").await;
    assert_eq!(timeout["payload"]["approvals_received"], 1);
    assert!(timeout["ts"].as_str() >= deadline.as_str());
    let resolve = client.wait_for("gate.resolve").await;
    assert_eq!(resolve["payload"]["outcome"], "timed_out");
}

#[tokio::test]
async fn an_escalated_gate_is_for_admins_and_times_out_once_more() {
    let server = TestServer::start(&[]).await;
    // Long enough for a busy machine to decide before the second deadline.
    let config = json!({ "gate_timeout_seconds": 10, "on_gate_timeout": "escalate" });
    let (mut ann, mut agent) = approver_and_agent(&server, "up", config).await;
    let mut admin = server.join("up", &server.admin()).await;

    let proposal = agent.propose("touch a").await;
    let escalated = ann.client.wait_for("gate.timeout").await;
    assert_eq!(escalated["payload"]["resolution"], "escalated");
    assert_eq!(escalated["payload"]["voters"], json!(["admin"]));
    let answer = ann.client.approve(&proposal).await;
    assert_eq!(answer["payload"]["code"], "UNAUTHORIZED", "{answer}");
    let answer = admin.approve(&proposal).await;
    assert_eq!(answer["type"], "session.ack", "{answer}");
    let execute = agent.wait_for("tool.execute").await;
    assert_eq!(execute["payload"]["approved_by"], json!(["admin"]));

    let soon = json!({ "changes": { "gate_timeout_seconds": 1 }, "reason": "nobody decides" });
    admin.send_and_ack("session.config_update", soon).await;
    let proposal = agent.propose("touch b").await;
    let outcome = agent
        .wait(|message| {
            message["type"] == "gate.resolve"
                && message["payload"]["tool_proposal"] == proposal.as_str()
        })
        .await;
    assert_eq!(outcome["payload"]["outcome"], "timed_out");
    let log = server.log("up");
    let resolutions: Vec<_> = log
        .iter()
        .map(|line| &line["entry"])
        .filter(|entry| entry["type"] == "gate.timeout")
        .map(|entry| entry["payload"]["resolution"].as_str().unwrap())
        .collect();
    assert_eq!(resolutions, ["escalated", "escalated", "rejected"]);
}

#[tokio::test]
async fn auto_approve_applies_to_writes_only_and_is_logged() {
    let server = TestServer::start(&[]).await;
    let config = json!({ "gate_timeout_seconds": 1, "on_gate_timeout": "auto_approve" });
    let (mut ann, mut agent) = approver_and_agent(&server, "clock", config).await;
    let write = agent.propose("touch a").await;
    let destructive = agent.propose("rm -rf a").await;
    let execute = agent.wait_for("tool.execute").await;
    assert_eq!(execute["payload"]["tool_proposal"], write.as_str());
    assert_eq!(execute["payload"]["grant"]["cleared_by"], "clock");
    assert_eq!(execute["payload"]["approved_by"], json!([]));
    let outcome = |proposal: String| {
        move |message: &Value| {
            message["type"] == "gate.resolve"
                && message["payload"]["tool_proposal"] == proposal.as_str()
        }
    };
    let resolve = ann.client.wait(outcome(write)).await;
    assert_eq!(resolve["payload"]["how"], "clock");
    let resolve = ann.client.wait(outcome(destructive)).await;
    assert_eq!(resolve["payload"]["outcome"], "timed_out");
    let executes = agent.sync().await;
    assert!(
        !executes
            .iter()
            .any(|message| message["type"] == "tool.execute")
    );
}

/// A client and who it is.
struct JoinedUser {
    user: TestUser,
    client: TestClient,
}

/// A session with an approver and an agent in it.
async fn approver_and_agent(
    server: &TestServer,
    session: &str,
    config: Value,
) -> (JoinedUser, TestClient) {
    server.create_session(session, config).await;
    let user = server.invite("ann", &["approver"], &[]);
    let client = server.join(session, &user).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let agent = server.join(session, &bot).await;
    (JoinedUser { user, client }, agent)
}

/// Waits until the stored log is as wanted, and returns it.
async fn wait_for_log(data: &Path, session: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let asking = async {
        loop {
            let log = export_log(data, session);
            if wanted(&log) {
                return log;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, asking)
        .await
        .expect("it is written in time")
}
