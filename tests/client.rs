//! The client's connection against real servers: nothing is lost or told twice when one dies.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

mod kit;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kit::proof::{kind, log};
use kit::{Invited, PATIENCE, Server, pvp};
use pvp_client::{
    ApiError, ConnectError, ConnectOptions, Connection, ConnectionEvent, ConnectionEvents,
    EndReason, Link, Receipt, SendError, View,
};
use pvp_protocol::payload::{
    ExecutorInfo, OutputStream, PromptDraft, ToolExecute, ToolOutput, ToolResult, ToolResultBody,
};
use pvp_protocol::{
    ErrorCode, ExtraFields, MessageId, ParticipantId, ParticipantKind, Role, ServerMessage,
};
use serde_json::{Value, json};

/// Nobody here is slow on purpose.
const FAST: [(&str, &str); 2] = [
    ("PVP_MESSAGES_PER_SECOND", "1000000"),
    ("PVP_MESSAGE_BURST", "1000000"),
];

async fn start(data: &Path, listen: &str, flags: &[&str]) -> Server {
    Server::start_with(data, listen, flags, &FAST, None).await
}

fn link(server: &Server, who: &Invited) -> Link {
    let link = format!("http://{}/?token={}", server.address, who.token);
    Link::parse(&link).unwrap()
}

fn into(session: &str) -> ConnectOptions {
    let link = format!("http://h/?session={session}");
    ConnectOptions {
        session: Link::parse(&link).unwrap().session().cloned(),
        ..ConnectOptions::default()
    }
}

async fn open(server: &Server, session: &str, who: &Invited) -> (Connection, ConnectionEvents) {
    let opening = Connection::open(link(server, who), into(session));
    let opened = tokio::time::timeout(PATIENCE, opening).await;
    opened.expect("it opens or not").unwrap()
}

async fn next(events: &mut ConnectionEvents) -> ConnectionEvent {
    let event = tokio::time::timeout(PATIENCE, events.next()).await;
    event
        .expect("something happens in time")
        .expect("the connection has not ended")
}

async fn answer(receipt: Receipt) -> Result<Option<u64>, SendError> {
    let answer = tokio::time::timeout(PATIENCE, receipt.ack()).await;
    answer.expect("it is answered in time").map(|ack| ack.seq)
}

/// Waits until the connection is lost.
async fn down(events: &mut ConnectionEvents) {
    while !matches!(next(events).await, ConnectionEvent::Disconnected { .. }) {}
}

/// Reads events to the end, which is given.
async fn ending(events: &mut ConnectionEvents) -> EndReason {
    loop {
        if let ConnectionEvent::Ended(ending) = next(events).await {
            let after = tokio::time::timeout(PATIENCE, events.next()).await;
            assert!(after.unwrap().is_none(), "nothing follows the end");
            return ending;
        }
    }
}

/// How often each id stands in a log, of those with this type.
fn ids(log: &[Value], of: &str) -> BTreeMap<String, usize> {
    let mut ids = BTreeMap::new();
    for entry in log.iter().filter(|entry| kind(entry) == of) {
        *ids.entry(entry["id"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    ids
}

/// An agent that proposes, and when it may, prints and reports.
struct Agent {
    connection: Connection,
    events: ConnectionEvents,
    proposed: BTreeSet<MessageId>,
    granted: BTreeSet<MessageId>,
    done: BTreeSet<MessageId>,
    said: Vec<Receipt>,
}

impl Agent {
    async fn join(server: &Server, session: &str) -> Self {
        let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
        let options = ConnectOptions {
            executor: Some(ExecutorInfo {
                profiles: Vec::new(),
                shell_exec: false,
                working_directory: None,
                runner: Vec::new(),
                shell: None,
            }),
            ..into(session)
        };
        let opened = Connection::open(link(server, &bot), options).await;
        let (connection, events) = opened.unwrap();
        Self {
            connection,
            events,
            proposed: BTreeSet::new(),
            granted: BTreeSet::new(),
            done: BTreeSet::new(),
            said: Vec::new(),
        }
    }

    async fn propose(&mut self, line: &str) {
        let receipt = self.connection.propose_shell(line, "a test").await.unwrap();
        self.proposed.insert(receipt.id.clone());
        self.said.push(receipt);
    }

    /// Works until this many commands are done.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "an agent minds nothing else"
    )]
    async fn work(&mut self, done: usize) {
        while self.done.len() < done {
            let ConnectionEvent::Message {
                envelope: Some(envelope),
                ..
            } = next(&mut self.events).await
            else {
                continue;
            };
            match &envelope.message {
                ServerMessage::ToolExecute(execute) => self.run(execute).await,
                ServerMessage::ToolResult(result) => {
                    assert!(
                        self.done.insert(result.tool_proposal.clone()),
                        "told twice of {}",
                        result.tool_proposal
                    );
                }
                _ => {}
            }
        }
    }

    async fn run(&mut self, execute: &ToolExecute) {
        let id = &execute.tool_proposal;
        assert!(self.granted.insert(id.clone()), "granted twice: {id}");
        for (stream, text) in [
            (OutputStream::Stdout, "out\n"),
            (OutputStream::Stderr, "err\n"),
        ] {
            let output = ToolOutput {
                tool_proposal: id.clone(),
                stream,
                text: text.to_owned(),
                complete: true,
                offset: Some(0),
                extra: ExtraFields::new(),
            };
            self.said.push(self.connection.send(output).await.unwrap());
        }
        let result = ToolResult {
            tool_proposal: id.clone(),
            success: true,
            result: Some(ToolResultBody {
                exit_code: Some(0),
                stdout: String::new(),
                stderr: String::new(),
                extra: ExtraFields::new(),
            }),
            error: None,
            duration_ms: 1,
            outcome: None,
            extra: ExtraFields::new(),
        };
        self.said.push(self.connection.send(result).await.unwrap());
    }
}

/// What someone has been told: every kept message by seq, and the view folded from them.
struct Watcher {
    _connection: Connection,
    events: ConnectionEvents,
    view: View,
    told: Vec<(u64, String)>,
    lost: usize,
    resumed: Vec<bool>,
}

impl Watcher {
    async fn join(server: &Server, session: &str, who: &Invited, history: Option<u64>) -> Self {
        let options = ConnectOptions {
            history,
            ..into(session)
        };
        let (connection, events) = Connection::open(link(server, who), options).await.unwrap();
        Self {
            _connection: connection,
            events,
            view: View::default(),
            told: Vec::new(),
            lost: 0,
            resumed: Vec::new(),
        }
    }

    /// Follows until the view is as wanted.
    async fn until(&mut self, wanted: impl Fn(&View) -> bool) {
        while !wanted(&self.view) {
            match next(&mut self.events).await {
                ConnectionEvent::Message {
                    envelope: Some(envelope),
                    ..
                } => {
                    let id = envelope.heading.id.to_string();
                    self.told.extend(envelope.seq.map(|seq| (seq, id)));
                    self.view.fold(&envelope);
                }
                ConnectionEvent::Disconnected { .. } => self.lost += 1,
                ConnectionEvent::Connected { resumed } => self.resumed.push(resumed),
                ConnectionEvent::Message { envelope: None, .. } => {}
                ConnectionEvent::Ended(ending) => panic!("{ending:?}"),
            }
        }
    }
}

/// A person who approves whatever waits for them, except what is to be kept.
async fn approver(connection: Connection, mut events: ConnectionEvents) {
    let mut view = View::default();
    let mut voted = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            ConnectionEvent::Message {
                envelope: Some(envelope),
                ..
            } => view.fold(&envelope),
            ConnectionEvent::Connected { .. }
            | ConnectionEvent::Message { envelope: None, .. }
            | ConnectionEvent::Disconnected { .. } => continue,
            ConnectionEvent::Ended(_) => return,
        }
        let waiting: Vec<_> = view
            .awaiting_my_vote()
            .filter(|card| !card.requested.shown.contains("keep"))
            .map(|card| (card.gate.clone(), card.digest))
            .filter(|(gate, _)| !voted.contains(gate))
            .collect();
        for (gate, digest) in waiting {
            // Said again by the connection if it is lost.
            connection.approve(&gate, digest, None).await.unwrap();
            voted.insert(gate);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_when_the_server_is_killed_in_the_middle_of_traffic() {
    const COMMANDS: usize = 30;
    const PROMPTS: usize = 300;
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path(), "127.0.0.1:0", &[]).await;
    let config = json!({ "gate_timeout_seconds": 0, "away_timeout_seconds": 3600 });
    server.create("owl", config).await;
    let [dee, ann, eye] = [("dee", "driver"), ("ann", "approver"), ("eye", "observer")]
        .map(|(name, role)| server.invite(name, &[role], &[]));
    let mut watcher = Watcher::join(&server, "owl", &eye, Some(100_000)).await;
    let mut agent = Agent::join(&server, "owl").await;
    let bot = agent.connection.participant().clone();
    let (voter, votes) = open(&server, "owl", &ann).await;
    tokio::spawn(approver(voter, votes));
    let (driver, mut heard) = open(&server, "owl", &dee).await;
    tokio::spawn(async move { while heard.next().await.is_some() {} });

    // Everyone speaks at once, and in the middle of it the server dies.
    let address = server.address.clone();
    let prompting = tokio::spawn(async move {
        let mut said = Vec::new();
        for number in 0..PROMPTS {
            said.push(driver.prompt(&bot, &number.to_string()).await.unwrap());
        }
        (driver, said)
    });
    for number in 1..COMMANDS {
        agent.propose(&format!("make {number}")).await;
    }
    agent.propose("make keep").await;
    agent.work(COMMANDS / 3).await;
    server.kill_9().await;
    let server = start(data.path(), &address, &[]).await;
    // However much was done by then, there is something to be told afterwards.
    agent.propose("make again").await;
    agent.work(COMMANDS).await;
    let (_driver, said) = prompting.await.unwrap();

    let mut seqs = Vec::new();
    let order: Vec<_> = said.iter().map(|receipt| receipt.id.to_string()).collect();
    for receipt in said.into_iter().chain(std::mem::take(&mut agent.said)) {
        let id = receipt.id.to_string();
        seqs.push((id, answer(receipt).await.unwrap().expect("it is kept")));
    }
    let last = seqs.iter().map(|(_, seq)| *seq).max().unwrap();
    watcher.until(|view| view.head >= last).await;
    assert!(watcher.lost > 0, "the watcher felt it");
    assert!(watcher.resumed.iter().skip(1).all(|resumed| *resumed));

    // Each message stands in the log once, where its answer said.
    let log = log(data.path(), "owl");
    for (id, seq) in &seqs {
        let at = usize::try_from(*seq).unwrap() - 1;
        assert_eq!(log[at]["id"], id.as_str());
    }
    let prompts = ids(&log, "prompt.submit");
    assert_eq!(prompts.len(), PROMPTS);
    for of in [
        "prompt.submit",
        "tool.propose",
        "tool.output",
        "tool.result",
        "gate.approve",
    ] {
        assert!(ids(&log, of).values().all(|count| *count == 1), "{of}");
    }
    assert_eq!(ids(&log, "tool.propose").len(), COMMANDS + 1);
    assert_eq!(ids(&log, "tool.execute").len(), COMMANDS);
    assert_eq!(ids(&log, "tool.result").len(), COMMANDS);
    // In the order they were said.
    let told: Vec<_> = log
        .iter()
        .filter(|entry| kind(entry) == "prompt.submit")
        .map(|entry| entry["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(told, order);

    // The watcher was told every entry once, across the cut.
    let whole: Vec<_> = log
        .iter()
        .map(|entry| {
            let id = entry["id"].as_str().unwrap().to_owned();
            (entry["seq"].as_u64().unwrap(), id)
        })
        .take(watcher.told.len())
        .collect();
    assert_eq!(watcher.told, whole);

    // And sees what a newcomer sees who reads it all.
    let mut newcomer = Watcher::join(&server, "owl", &eye, Some(100_000)).await;
    let head = watcher.view.head;
    newcomer.until(|view| view.head >= head).await;
    let head = newcomer.view.head;
    watcher.until(|view| view.head >= head).await;
    same(&watcher.view, &newcomer.view);
    assert_eq!(watcher.view.gates.len(), 1);
    assert_eq!(watcher.view.history.len(), COMMANDS);
}

/// Two views agree on what waits, what runs and what was.
fn same(one: &View, other: &View) {
    assert_eq!(one.gates, other.gates);
    let running = |view: &View| -> Vec<_> { view.running().map(|run| run.id.clone()).collect() };
    assert_eq!(running(one), running(other));
    assert_eq!(one.history, other.history);
}

#[tokio::test]
async fn what_cannot_be_joined_is_an_error_at_once() {
    let mut server = Server::start(&[]).await;
    server.create("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let base = format!("http://{}", server.address);
    let try_open = async |link: &str, options| {
        let opening = Connection::open(Link::parse(link).unwrap(), options);
        let opened = tokio::time::timeout(PATIENCE, opening).await.unwrap();
        opened.map(|_| ()).unwrap_err()
    };
    let good = format!("{base}/?token={}", dee.token);
    let error = try_open(&format!("{base}/?token=pvp_no"), into("owl")).await;
    assert!(
        matches!(&error, ConnectError::Api(ApiError::Refused(report)) if report.code == ErrorCode::Unauthorized),
        "{error:?}"
    );
    let error = try_open(&good, into("cat")).await;
    assert!(
        matches!(&error, ConnectError::Refused(report) if report.code == ErrorCode::SessionNotFound),
        "{error:?}"
    );
    let error = try_open(&good, ConnectOptions::default()).await;
    assert!(matches!(error, ConnectError::NoSession), "{error:?}");
    let error = try_open(&format!("{base}/?session=owl"), ConnectOptions::default()).await;
    assert!(matches!(error, ConnectError::NoParticipant), "{error:?}");
    let admin = ConnectOptions {
        roles: Some(vec![Role::Admin]),
        ..into("owl")
    };
    let error = try_open(&good, admin).await;
    assert!(
        matches!(&error, ConnectError::Refused(report) if report.code == ErrorCode::Unauthorized),
        "{error:?}"
    );
    server.kill_9().await;
    let error = try_open(&good, into("owl")).await;
    assert!(
        matches!(&error, ConnectError::Api(ApiError::Unreachable { .. })),
        "{error:?}"
    );
    let nobody = ConnectOptions {
        participant: Some(ParticipantId::parse("zoe").unwrap()),
        ..into("owl")
    };
    let error = try_open(&base, nobody).await;
    assert!(matches!(error, ConnectError::Failed(_)), "{error:?}");
}

#[tokio::test]
async fn a_token_that_is_taken_back_ends_the_connection() {
    let server = Server::start(&[]).await;
    server.create("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let (connection, mut events) = open(&server, "owl", &dee).await;
    let data = server.data.to_str().unwrap();
    let listed = pvp(&["tokens", "list", "--data", data]).1;
    let tokens = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mine = tokens
        .into_iter()
        .find(|token| token["participant"] == dee.participant.as_str());
    let id = mine.unwrap()["id"].as_str().unwrap().to_owned();
    assert!(pvp(&["tokens", "revoke", "--data", data, &id]).0);
    let ending = ending(&mut events).await;
    assert!(
        matches!(&ending, EndReason::Refused(report) if report.code == ErrorCode::Unauthorized),
        "{ending:?}"
    );
    let bot = ParticipantId::parse("bot").unwrap();
    assert!(matches!(
        connection.prompt(&bot, "hello").await.map(|_| ()),
        Err(SendError::Closed)
    ));
}

#[tokio::test]
async fn leaving_ends_the_connection_and_is_on_record() {
    let server = Server::start(&[]).await;
    server.create("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let (connection, mut events) = open(&server, "owl", &dee).await;
    let leaving = connection.leave(Some("tea".to_owned()));
    tokio::time::timeout(PATIENCE, leaving)
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(ending(&mut events).await, EndReason::Left));
    let log = log(&server.data, "owl");
    let left = log.iter().find(|entry| kind(entry) == "session.leave");
    assert_eq!(left.unwrap()["payload"], json!({ "reason": "tea" }));
}

#[tokio::test]
async fn dropping_the_connection_closes_it_once_everything_is_answered() {
    let server = Server::start(&[]).await;
    server.create("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let agent = Agent::join(&server, "owl").await;
    let bot = agent.connection.participant().clone();
    let (connection, mut events) = open(&server, "owl", &dee).await;
    let mut said = Vec::new();
    for number in 0..100 {
        let clone = connection.clone();
        said.push(clone.prompt(&bot, &number.to_string()).await.unwrap());
    }
    drop(connection);
    assert!(matches!(ending(&mut events).await, EndReason::Closed));
    for receipt in said {
        assert!(answer(receipt).await.unwrap().is_some());
    }
    assert_eq!(ids(&log(&server.data, "owl"), "prompt.submit").len(), 100);
}

#[tokio::test]
async fn a_message_that_is_too_big_is_refused_here_and_the_connection_stays() {
    let server = Server::start_env(&[], &[("PVP_MESSAGE_BYTES", "4096")]).await;
    server.create("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let agent = Agent::join(&server, "owl").await;
    let bot = agent.connection.participant().clone();
    let (connection, mut events) = open(&server, "owl", &dee).await;
    let before = log(&server.data, "owl").len();
    let big = connection.prompt(&bot, &"x".repeat(5000)).await.unwrap();
    let id = big.id.clone();
    let Err(SendError::Refused(report)) = answer(big).await else {
        panic!("it is refused");
    };
    assert_eq!(
        (report.code, report.message.as_str(), report.related_to),
        (
            ErrorCode::InvalidMessage,
            "a message has at most 4096 bytes; nothing was sent",
            Some(id)
        )
    );
    let small = connection.prompt(&bot, "small").await.unwrap();
    let seq = answer(small).await.unwrap().unwrap();
    assert_eq!(log(&server.data, "owl").len(), before + 1);
    assert_eq!(seq, before as u64 + 1);
    drop(connection);
    assert!(matches!(ending(&mut events).await, EndReason::Closed));
}

#[tokio::test]
async fn what_was_said_while_the_server_was_away_arrives_in_order_and_drafts_do_not() {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path(), "127.0.0.1:0", &[]).await;
    server.create("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let agent = Agent::join(&server, "owl").await;
    let bot = agent.connection.participant().clone();
    drop(agent);
    let (connection, mut events) = open(&server, "owl", &dee).await;
    let address = server.address.clone();
    server.kill_9().await;
    down(&mut events).await;
    let draft = PromptDraft {
        content: "hm".to_owned(),
        target_agent: Some(bot.clone()),
        contributors: vec![connection.participant().clone()],
        extra: ExtraFields::new(),
    };
    let draft = connection.send(draft).await.unwrap();
    let mut said = Vec::new();
    for number in 0..200 {
        said.push(connection.prompt(&bot, &number.to_string()).await.unwrap());
    }
    // The next try fails as well, and then a draft is of no use.
    let passed = answer(draft).await;
    assert!(matches!(passed, Err(SendError::Dropped)), "{passed:?}");
    let reading = tokio::spawn(async move { while events.next().await.is_some() {} });
    let _server = start(data.path(), &address, &[]).await;
    let mut seqs = Vec::new();
    for receipt in said {
        seqs.push(answer(receipt).await.unwrap().unwrap());
    }
    assert!(seqs.is_sorted(), "{seqs:?}");
    let log = log(data.path(), "owl");
    let prompts = log.iter().filter(|entry| kind(entry) == "prompt.submit");
    let contents: Vec<_> = prompts
        .map(|entry| entry["payload"]["content"].as_str().unwrap().to_owned())
        .collect();
    let expected: Vec<_> = (0..200).map(|number: u32| number.to_string()).collect();
    assert_eq!(contents, expected);
    drop(connection);
    tokio::time::timeout(PATIENCE, reading)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn another_log_in_the_same_place_is_begun_anew() {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(&data.path().join("old"), "127.0.0.1:0", &["--open"]).await;
    let link = Link::parse(&format!("http://{}/", server.address)).unwrap();
    let options = ConnectOptions {
        participant: Some(ParticipantId::parse("zoe").unwrap()),
        roles: Some(vec![Role::Driver]),
        kind: Some(ParticipantKind::Agent),
        ..into("owl")
    };
    let (connection, mut events) = Connection::open(link, options).await.unwrap();
    let zoe = connection.participant().clone();
    let mut view = View::default();
    for number in 0..20 {
        let prompt = connection.prompt(&zoe, &number.to_string()).await.unwrap();
        answer(prompt).await.unwrap();
    }
    let address = server.address.clone();
    server.kill_9().await;
    let _server = start(&data.path().join("new"), &address, &["--open"]).await;
    let mut ups = Vec::new();
    while ups.last() != Some(&(false, true)) {
        match next(&mut events).await {
            // The second time round is after the loss.
            ConnectionEvent::Connected { resumed } => {
                ups.push((resumed, !ups.is_empty()));
                if !resumed {
                    view = View::default();
                }
            }
            ConnectionEvent::Message {
                envelope: Some(envelope),
                ..
            } => view.fold(&envelope),
            ConnectionEvent::Message { envelope: None, .. }
            | ConnectionEvent::Disconnected { .. } => {}
            ConnectionEvent::Ended(ending) => panic!("{ending:?}"),
        }
    }
    assert_eq!(ups, [(false, false), (false, true)]);
    let prompt = connection.prompt(&zoe, "here again").await.unwrap();
    let seq = answer(prompt).await.unwrap().unwrap();
    assert!(seq < 20, "{seq} is in the new log");
    while view.head < seq {
        if let ConnectionEvent::Message {
            envelope: Some(envelope),
            ..
        } = next(&mut events).await
        {
            view.fold(&envelope);
        }
    }
    assert_eq!(view.head, seq);
    assert_eq!(log(&data.path().join("new"), "owl").len() as u64, seq);
}
