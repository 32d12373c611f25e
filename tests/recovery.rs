//! The server is killed under load and started again: nothing that was acknowledged is lost,
//! nothing is told that is not written, and deadlines go on.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

mod kit;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use kit::crowd::{Dice, HOLD, Member, Part, STAY, Until};
use kit::proof::{kind, log, logs, sealed, verified};
use kit::{Client, Invited, PATIENCE, Server};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Rounds on one data directory; more begin again with an empty one.
const CAMPAIGN: u64 = 20;

const SESSIONS: [&str; 3] = ["red", "green", "blue"];

/// Nobody here is slow on purpose.
const FAST: [(&str, &str); 2] = [
    ("PVP_MESSAGES_PER_SECOND", "1000000"),
    ("PVP_MESSAGE_BURST", "1000000"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed_under_load() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seed = number("PVP_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let rounds: u64 = number("PVP_ROUNDS").unwrap_or(20);
    say(&format!("PVP_SEED={seed} PVP_ROUNDS={rounds}"));
    let mut dice = Dice(seed);
    let mut left = rounds;
    while left > 0 {
        let now = left.min(CAMPAIGN);
        campaign(now, &mut dice).await;
        left -= now;
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the seed of a failing run is needed to repeat it"
)]
fn say(text: &str) {
    eprintln!("{text}");
}

/// Rounds of load and kill on one data directory, and a last one in which all is answered.
async fn campaign(rounds: u64, dice: &mut Dice) {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path()).await;
    let eye = server.invite("eye", &["observer"], &[]);
    let mut crowd = Vec::new();
    for session in SESSIONS {
        gather(&server, session, dice, &mut crowd).await;
        server.join(session, &eye).await.settle().await;
    }
    let mut before = BTreeMap::new();
    for round in 0..rounds {
        let enough = match dice.roll(4) {
            0 => 0,
            _ => 1 + dice.roll(250),
        };
        crowd = load(
            &mut server,
            crowd,
            enough,
            Duration::from_millis(dice.roll(12)),
        )
        .await;
        verified(data.path());
        before = check(data.path(), &mut crowd, before);
        server = start(data.path()).await;
        inspect(&server, &eye, &before).await;
        let said: usize = crowd.iter().map(|member| member.acked.len()).sum();
        say(&format!("round {round}: {said} acknowledged so far"));
    }
    crowd = calm(&server, crowd).await;
    assert!(server.stop().await.success());
    let last = check(data.path(), &mut crowd, before);
    sealed(data.path());
    if rounds == CAMPAIGN {
        check_that_it_was_worth_it(&crowd, &last);
    }
}

async fn start(data: &Path) -> Server {
    Server::start_with(data, "127.0.0.1:0", &[], &FAST, None).await
}

async fn gather(server: &Server, session: &str, dice: &mut Dice, crowd: &mut Vec<Member>) {
    let config = json!({
        "default_gate_quorum": { "type": "any", "count": 2 },
        "gate_timeout_seconds": 3600, "away_timeout_seconds": 3600,
    });
    server.create(session, config).await;
    let name = |name: &str| format!("{name}-{session}");
    let voter = |holds| Part::Voter {
        holds,
        special: BTreeMap::new(),
    };
    let agent = Part::Agent {
        proposed: 0,
        open: BTreeSet::new(),
        granted: BTreeSet::new(),
        stays: None,
        printed: 0,
    };
    let people = [
        (
            server.invite(&name("dee"), &["driver"], &[]),
            Part::Writer { written: 0 },
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
    for (who, part) in people {
        let seed = dice.roll(u64::MAX);
        crowd.push(Member::new(session, who, part, seed));
    }
}

/// Everyone speaks until `enough` messages are acknowledged and `more` has passed; then the
/// server dies.
async fn load(server: &mut Server, crowd: Vec<Member>, enough: u64, more: Duration) -> Vec<Member> {
    let (acks, mut acknowledged) = watch::channel(0);
    let mut living = live(server, crowd, Until::Killed, &acks);
    tokio::select! {
        reached = tokio::time::timeout(PATIENCE, acknowledged.wait_for(|count| *count >= enough)) => {
            reached.expect("the server answers").unwrap();
        }
        Some(ended) = living.join_next() => {
            let member = ended.unwrap();
            panic!("{} went home early", member.who.participant);
        }
    }
    // Not a condition: any moment will do, and this makes it any moment of a batch.
    tokio::time::sleep(more).await;
    server.kill_9().await;
    living.join_all().await
}

/// Nothing new is said; everything that was said gets its answer.
async fn calm(server: &Server, crowd: Vec<Member>) -> Vec<Member> {
    let (acks, _) = watch::channel(0);
    let crowd = live(server, crowd, Until::Answered, &acks).join_all().await;
    for member in &crowd {
        assert!(member.unanswered.is_empty(), "{:?}", member.unanswered);
    }
    crowd
}

fn live(
    server: &Server,
    crowd: Vec<Member>,
    until: Until,
    acks: &watch::Sender<u64>,
) -> JoinSet<Member> {
    let mut living = JoinSet::new();
    for mut member in crowd {
        let (address, acks) = (server.address.clone(), acks.clone());
        living.spawn(async move {
            member.live(&address, until, &acks).await;
            member
        });
    }
    living
}

type Logs = BTreeMap<String, Vec<Value>>;

/// Holds what everyone was answered and told against what is written.
fn check(data: &Path, crowd: &mut [Member], before: Logs) -> Logs {
    let now = logs(data);
    for (session, log) in &now {
        if let Some(before) = before.get(session) {
            assert!(log.starts_with(before), "what was written has changed");
        }
        check_log(log);
    }
    for member in crowd {
        let log = &now[&member.session];
        let places: BTreeMap<&str, u64> = log
            .iter()
            .map(|entry| {
                (
                    entry["id"].as_str().unwrap(),
                    entry["seq"].as_u64().unwrap(),
                )
            })
            .collect();
        for (id, seq) in &member.acked {
            let at = places.get(id.as_str());
            assert_eq!(at, Some(seq), "`{id}` was acknowledged as {seq}");
        }
        for id in &member.refused {
            assert_eq!(places.get(id.as_str()), None, "`{id}` was refused");
        }
        for told in member.told.drain(..) {
            let at = usize::try_from(told["seq"].as_u64().unwrap()).unwrap();
            assert_eq!(log.get(at - 1), Some(&told), "told, and not as written");
        }
    }
    now
}

/// Nothing was applied twice, and nothing was granted without two votes.
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
        match kind(entry) {
            "gate.request" => drop(proposal_of.insert(id, text("action_ref"))),
            "gate.approve" => {
                let proposal = proposal_of[text("gate")];
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

/// After a restart, and before anybody speaks: gates, votes, deadlines and runs are as written.
async fn inspect(server: &Server, eye: &Invited, logs: &Logs) {
    for (session, log) in logs {
        let head = log.len() as u64;
        let mut client = server.connect(eye).await;
        let welcome = client.join(session, eye, json!({ "after": head })).await;
        let welcome = &welcome["payload"];
        assert_eq!(welcome["head"], head);
        assert_eq!(gates(welcome), open_gates(log));
        assert_eq!(runs(welcome), running(log));
    }
}

/// Gate → its proposal, its deadline and who approved.
type Gates = BTreeMap<String, (Value, Value, BTreeSet<String>)>;

fn gates(welcome: &Value) -> Gates {
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

fn open_gates(log: &[Value]) -> Gates {
    let mut gates = Gates::new();
    for entry in log {
        let payload = &entry["payload"];
        match kind(entry) {
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
                let gate = gates.get_mut(payload["gate"].as_str().unwrap());
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

/// Proposal → since when it runs.
type Runs = BTreeMap<String, Value>;

fn runs(welcome: &Value) -> Runs {
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

fn running(log: &[Value]) -> Runs {
    let mut runs = Runs::new();
    for entry in log {
        let proposal = || {
            entry["payload"]["tool_proposal"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        match kind(entry) {
            "tool.execute" => drop(runs.insert(proposal(), entry["ts"].clone())),
            "tool.result" => drop(runs.remove(&proposal())),
            _ => {}
        }
    }
    runs
}

/// A crowd that said nothing proves nothing.
fn check_that_it_was_worth_it(crowd: &[Member], logs: &Logs) {
    for member in crowd {
        let who = &member.who.participant;
        assert!(member.acked.len() > 10, "{who}: {}", member.acked.len());
    }
    for log in logs.values() {
        let described = |description: &str| {
            let mut proposals = log.iter().filter(|entry| kind(entry) == "tool.propose");
            let found = proposals.find(|entry| entry["payload"]["description"] == description);
            found.unwrap()["id"].clone()
        };
        let hold = described(HOLD);
        let held = open_gates(log).into_values().find(|gate| gate.0 == hold);
        assert_eq!(held.expect("it waits for one more vote").2.len(), 1);
        let stay = described(STAY);
        assert!(running(log).contains_key(stay.as_str().unwrap()));
    }
}

#[tokio::test]
async fn a_deadline_passes_after_a_restart_though_nobody_comes() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(data.path(), &[]).await;
    // Long enough for a busy machine to kill the server before.
    let config = json!({ "gate_timeout_seconds": 10 });
    let (_, mut agent) = ann_and_bot(&server, "alone", config).await;
    agent.propose("touch a").await;
    server.kill_9().await;
    let before = log(data.path(), "alone");
    let request = before.iter().find(|entry| kind(entry) == "gate.request");
    let deadline = request.unwrap()["payload"]["deadline"].as_str().unwrap();
    let last = kind(before.last().unwrap());
    assert_eq!(last, "gate.request", "killed before the deadline");

    let server = Server::start_in(data.path(), &[]).await;
    let after = until(data.path(), "alone", |log| log.len() > before.len()).await;
    assert!(after.starts_with(&before));
    let [timeout, resolve] = &after[before.len()..] else {
        panic!("{after:#?}");
    };
    assert_eq!(kind(timeout), "gate.timeout");
    assert_eq!(timeout["payload"]["resolution"], "rejected");
    let told_at = timeout["ts"].as_str().unwrap();
    assert!(told_at >= deadline, "{told_at} is before {deadline}");
    assert_eq!(kind(resolve), "gate.resolve");
    assert_eq!(resolve["payload"]["outcome"], "timed_out");
    assert!(server.stop().await.success());
    sealed(data.path());
}

#[tokio::test]
async fn a_countdown_goes_on_over_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(data.path(), &[]).await;
    // Long enough for a busy machine to start the server again before.
    let config =
        json!({ "gate_timeout_seconds": 15, "default_gate_quorum": { "type": "any", "count": 2 } });
    let (mut ann, mut agent) = ann_and_bot(&server, "count", config).await;
    let who = ann.who.clone();
    let proposal = agent.propose("touch a").await;
    let request = ann.client.wait_for("gate.request").await;
    let deadline = request["payload"]["deadline"].clone();
    assert_eq!(ann.client.approve(&proposal).await["type"], "session.ack");
    let seen = *ann.client.seqs().last().unwrap();
    server.kill_9().await;

    let server = Server::start_in(data.path(), &[]).await;
    let mut client = server.connect(&who).await;
    let welcome = client.join("count", &who, json!({ "after": seen })).await;
    let gate = &welcome["payload"]["gates"][0];
    assert_eq!(gate["request"]["deadline"], deadline);
    assert_eq!(
        gate["approvals"][0]["participant"],
        who.participant.as_str()
    );
    let timeout = client.wait_for("gate.timeout").await;
    assert_eq!(timeout["payload"]["approvals_received"], 1);
    assert!(timeout["ts"].as_str() >= deadline.as_str());
    let resolve = client.wait_for("gate.resolve").await;
    assert_eq!(resolve["payload"]["outcome"], "timed_out");
}

#[tokio::test]
async fn an_escalated_gate_is_for_admins_and_times_out_once_more() {
    let server = Server::start(&[]).await;
    // Long enough for a busy machine to decide before the second time.
    let config = json!({ "gate_timeout_seconds": 10, "on_gate_timeout": "escalate" });
    let (mut ann, mut agent) = ann_and_bot(&server, "up", config).await;
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
    admin.say("session.config_update", soon).await;
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
async fn the_clock_approves_writes_only_and_the_record_says_so() {
    let server = Server::start(&[]).await;
    let config = json!({ "gate_timeout_seconds": 1, "on_gate_timeout": "auto_approve" });
    let (mut ann, mut agent) = ann_and_bot(&server, "clock", config).await;
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
    let executes = agent.settle().await;
    assert!(
        !executes
            .iter()
            .any(|message| message["type"] == "tool.execute")
    );
}

/// A client and who it is.
struct Seated {
    who: Invited,
    client: Client,
}

/// A session with an approver and an agent in it.
async fn ann_and_bot(server: &Server, session: &str, config: Value) -> (Seated, Client) {
    server.create(session, config).await;
    let who = server.invite("ann", &["approver"], &[]);
    let client = server.join(session, &who).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let agent = server.join(session, &bot).await;
    (Seated { who, client }, agent)
}

/// The stored log, as soon as it is as wanted.
async fn until(data: &Path, session: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let asking = async {
        loop {
            let log = log(data, session);
            if wanted(&log) {
                return log;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking)
        .await
        .expect("it is written in time")
}
