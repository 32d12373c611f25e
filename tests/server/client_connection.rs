//! The client library's connection to real servers: nothing is lost or repeated when a server is
//! killed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::support::audit::{export_log, message_type};
use crate::support::{TEST_TIMEOUT, TestServer, TestUser, run_pvp};
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

/// Removes the rate limit, so that clients can send as fast as they are answered.
const NO_RATE_LIMIT: [(&str, &str); 2] = [
    ("PVP_MESSAGES_PER_SECOND", "1000000"),
    ("PVP_MESSAGE_BURST", "1000000"),
];

async fn start(data: &Path, listen: &str, flags: &[&str]) -> TestServer {
    TestServer::start_with(data, listen, flags, &NO_RATE_LIMIT, None).await
}

fn link_for(server: &TestServer, user: &TestUser) -> Link {
    let link = format!("http://{}/?token={}", server.address, user.token);
    Link::parse(&link).unwrap()
}

fn session_options(session: &str) -> ConnectOptions {
    let link = format!("http://h/?session={session}");
    ConnectOptions {
        session: Link::parse(&link).unwrap().session().cloned(),
        ..ConnectOptions::default()
    }
}

async fn open(
    server: &TestServer,
    session: &str,
    user: &TestUser,
) -> (Connection, ConnectionEvents) {
    let opening = Connection::open(link_for(server, user), session_options(session));
    let opened = tokio::time::timeout(TEST_TIMEOUT, opening).await;
    opened.expect("it opens or not").unwrap()
}

async fn next_event(events: &mut ConnectionEvents) -> ConnectionEvent {
    let event = tokio::time::timeout(TEST_TIMEOUT, events.next()).await;
    event
        .expect("something happens in time")
        .expect("the connection has not ended")
}

async fn wait_answer(receipt: Receipt) -> Result<Option<u64>, SendError> {
    let answer = tokio::time::timeout(TEST_TIMEOUT, receipt.ack()).await;
    answer.expect("it is answered in time").map(|ack| ack.seq)
}

/// Waits until the connection is lost.
async fn wait_down(events: &mut ConnectionEvents) {
    while !matches!(
        next_event(events).await,
        ConnectionEvent::Disconnected { .. }
    ) {}
}

/// Reads events until the connection ends; returns why.
async fn wait_end(events: &mut ConnectionEvents) -> EndReason {
    loop {
        if let ConnectionEvent::Ended(ending) = next_event(events).await {
            let after = tokio::time::timeout(TEST_TIMEOUT, events.next()).await;
            assert!(after.unwrap().is_none(), "nothing follows the end");
            return ending;
        }
    }
}

/// How often each id of entries of this type occurs in a log.
fn id_counts(log: &[Value], of: &str) -> BTreeMap<String, usize> {
    let mut ids = BTreeMap::new();
    for entry in log.iter().filter(|entry| message_type(entry) == of) {
        *ids.entry(entry["id"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    ids
}

/// An agent that proposes commands and, when granted, sends output and results.
struct ConnectionAgent {
    /// The connection under test.
    connection: Connection,
    /// Its events.
    events: ConnectionEvents,
    /// Proposals that were sent.
    proposed: BTreeSet<MessageId>,
    /// Proposals that were granted.
    granted_ids: BTreeSet<MessageId>,
    /// Proposals whose result was logged.
    finished_ids: BTreeSet<MessageId>,
    /// Pending answers to its messages, to compare with the log.
    receipts: Vec<Receipt>,
}

impl ConnectionAgent {
    async fn join(server: &TestServer, session: &str) -> Self {
        let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
        let options = ConnectOptions {
            executor: Some(ExecutorInfo {
                profiles: Vec::new(),
                trials: false,
                shell_exec: false,
                edits: true,
                working_directory: None,
                runner: Vec::new(),
                shell: None,
                read_roots: false,
            }),
            ..session_options(session)
        };
        let opened = Connection::open(link_for(server, &bot), options).await;
        let (connection, events) = opened.unwrap();
        Self {
            connection,
            events,
            proposed: BTreeSet::new(),
            granted_ids: BTreeSet::new(),
            finished_ids: BTreeSet::new(),
            receipts: Vec::new(),
        }
    }

    async fn propose(&mut self, line: &str) {
        let receipt = self.connection.propose_shell(line, "a test").await.unwrap();
        self.proposed.insert(receipt.id.clone());
        self.receipts.push(receipt);
    }

    /// Works until this many commands are done.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "an agent minds nothing else"
    )]
    async fn run_until_done(&mut self, done: usize) {
        while self.finished_ids.len() < done {
            let ConnectionEvent::Message {
                envelope: Some(envelope),
                ..
            } = next_event(&mut self.events).await
            else {
                continue;
            };
            match &envelope.message {
                ServerMessage::ToolExecute(execute) => self.run(execute).await,
                ServerMessage::ToolResult(result) => {
                    assert!(
                        self.finished_ids.insert(result.tool_proposal.clone()),
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
        assert!(self.granted_ids.insert(id.clone()), "granted twice: {id}");
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
            self.receipts
                .push(self.connection.send(output).await.unwrap());
        }
        let result = ToolResult {
            tool_proposal: id.clone(),
            success: true,
            result: Some(
                ToolResultBody {
                    exit_code: Some(0),
                    stdout: String::new(),
                    stderr: String::new(),
                    extra: ExtraFields::new(),
                }
                .into(),
            ),
            error: None,
            duration_ms: 1,
            outcome: None,
            more_output: false,
            attested: false,
            extra: ExtraFields::new(),
        };
        self.receipts
            .push(self.connection.send(result).await.unwrap());
    }
}

/// What a client has received: every log entry by sequence number, and the view folded from them.
struct ViewWatcher {
    /// Keeps the connection open.
    _connection: Connection,
    /// Its events.
    events: ConnectionEvents,
    /// The view folded from all messages.
    view: View,
    /// Log entries received: sequence number and id.
    received: Vec<(u64, String)>,
    /// How often the connection was lost.
    disconnects: usize,
    /// For every connect, whether it resumed.
    resumed: Vec<bool>,
}

impl ViewWatcher {
    async fn join(
        server: &TestServer,
        session: &str,
        user: &TestUser,
        history: Option<u64>,
    ) -> Self {
        let options = ConnectOptions {
            history,
            ..session_options(session)
        };
        let (connection, events) = Connection::open(link_for(server, user), options)
            .await
            .unwrap();
        Self {
            _connection: connection,
            events,
            view: View::default(),
            received: Vec::new(),
            disconnects: 0,
            resumed: Vec::new(),
        }
    }

    /// Reads events until the view is as wanted.
    async fn follow_until(&mut self, wanted: impl Fn(&View) -> bool) {
        while !wanted(&self.view) {
            match next_event(&mut self.events).await {
                ConnectionEvent::Message {
                    envelope: Some(envelope),
                    ..
                } => {
                    let id = envelope.header.id.to_string();
                    self.received.extend(envelope.seq.map(|seq| (seq, id)));
                    self.view.fold(&envelope);
                }
                ConnectionEvent::Disconnected { .. } => self.disconnects += 1,
                ConnectionEvent::Connected { resumed } => self.resumed.push(resumed),
                ConnectionEvent::Message { envelope: None, .. }
                | ConnectionEvent::RecordWarning(_) => {}
                ConnectionEvent::Ended(ending) => panic!("{ending:?}"),
            }
        }
    }
}

/// A person who approves every gate, except the one that is to stay open.
async fn approve_everything(connection: Connection, mut events: ConnectionEvents) {
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
            | ConnectionEvent::RecordWarning(_)
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
            // The connection resends it if it is lost.
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
    server.create_session("owl", config).await;
    let [dee, ann, eye] = [("dee", "driver"), ("ann", "approver"), ("eye", "observer")]
        .map(|(name, role)| server.invite(name, &[role], &[]));
    let mut watcher = ViewWatcher::join(&server, "owl", &eye, Some(100_000)).await;
    let mut agent = ConnectionAgent::join(&server, "owl").await;
    let bot = agent.connection.participant().clone();
    let (voter, votes) = open(&server, "owl", &ann).await;
    tokio::spawn(approve_everything(voter, votes));
    let (driver, mut message) = open(&server, "owl", &dee).await;
    tokio::spawn(async move { while message.next().await.is_some() {} });

    // Everyone sends at once, and meanwhile the server is killed.
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
    agent.run_until_done(COMMANDS / 3).await;
    server.kill_9().await;
    let server = start(data.path(), &address, &[]).await;
    // However much was done by then, something is left to be sent afterwards.
    agent.propose("make again").await;
    agent.run_until_done(COMMANDS).await;
    let (_driver, said) = prompting.await.unwrap();

    let mut seqs = Vec::new();
    let order: Vec<_> = said.iter().map(|receipt| receipt.id.to_string()).collect();
    for receipt in said.into_iter().chain(std::mem::take(&mut agent.receipts)) {
        let id = receipt.id.to_string();
        seqs.push((id, wait_answer(receipt).await.unwrap().expect("it is kept")));
    }
    let last = seqs.iter().map(|(_, seq)| *seq).max().unwrap();
    watcher.follow_until(|view| view.head >= last).await;
    assert!(watcher.disconnects > 0, "the watcher felt it");
    assert!(watcher.resumed.iter().skip(1).all(|resumed| *resumed));

    // Each message is in the log once, at the sequence number of its acknowledgement.
    let log = export_log(data.path(), "owl");
    for (id, seq) in &seqs {
        let at = usize::try_from(*seq).unwrap() - 1;
        assert_eq!(log[at]["id"], id.as_str());
    }
    let prompts = id_counts(&log, "prompt.submit");
    assert_eq!(prompts.len(), PROMPTS);
    for of in [
        "prompt.submit",
        "tool.propose",
        "tool.output",
        "tool.result",
        "gate.approve",
    ] {
        assert!(
            id_counts(&log, of).values().all(|count| *count == 1),
            "{of}"
        );
    }
    assert_eq!(id_counts(&log, "tool.propose").len(), COMMANDS + 1);
    assert_eq!(id_counts(&log, "tool.execute").len(), COMMANDS);
    assert_eq!(id_counts(&log, "tool.result").len(), COMMANDS);
    // In the order they were sent.
    let received: Vec<_> = log
        .iter()
        .filter(|entry| message_type(entry) == "prompt.submit")
        .map(|entry| entry["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(received, order);

    // The watcher received every entry once, across the lost connection.
    let whole: Vec<_> = log
        .iter()
        .map(|entry| {
            let id = entry["id"].as_str().unwrap().to_owned();
            (entry["seq"].as_u64().unwrap(), id)
        })
        .take(watcher.received.len())
        .collect();
    assert_eq!(watcher.received, whole);

    // Its view equals that of a late joiner who reads the whole history.
    let mut newcomer = ViewWatcher::join(&server, "owl", &eye, Some(100_000)).await;
    let head = watcher.view.head;
    newcomer.follow_until(|view| view.head >= head).await;
    let head = newcomer.view.head;
    watcher.follow_until(|view| view.head >= head).await;
    assert_views_agree(&watcher.view, &newcomer.view);
    assert_eq!(watcher.view.gates.len(), 1);
    assert_eq!(watcher.view.history.len(), COMMANDS);
}

/// Asserts that two views agree on open gates, runs and history.
fn assert_views_agree(one: &View, other: &View) {
    assert_eq!(one.gates, other.gates);
    let running = |view: &View| -> Vec<_> { view.running().map(|run| run.id.clone()).collect() };
    assert_eq!(running(one), running(other));
    assert_eq!(one.history, other.history);
}

#[tokio::test]
async fn a_join_that_cannot_succeed_fails_at_once() {
    let mut server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let base = format!("http://{}", server.address);
    let try_open = async |link: &str, options| {
        let opening = Connection::open(Link::parse(link).unwrap(), options);
        let opened = tokio::time::timeout(TEST_TIMEOUT, opening).await.unwrap();
        opened.map(|_| ()).unwrap_err()
    };
    let good = format!("{base}/?token={}", dee.token);
    let error = try_open(&format!("{base}/?token=pvp_no"), session_options("owl")).await;
    assert!(
        matches!(&error, ConnectError::Api(ApiError::Refused(report)) if report.code == ErrorCode::Unauthorized),
        "{error:?}"
    );
    let error = try_open(&good, session_options("cat")).await;
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
        ..session_options("owl")
    };
    let error = try_open(&good, admin).await;
    assert!(
        matches!(&error, ConnectError::Refused(report) if report.code == ErrorCode::Unauthorized),
        "{error:?}"
    );
    server.kill_9().await;
    let error = try_open(&good, session_options("owl")).await;
    assert!(
        matches!(&error, ConnectError::Api(ApiError::Unreachable { .. })),
        "{error:?}"
    );
    let nobody = ConnectOptions {
        participant: Some(ParticipantId::parse("zoe").unwrap()),
        ..session_options("owl")
    };
    let error = try_open(&base, nobody).await;
    assert!(matches!(error, ConnectError::Failed(_)), "{error:?}");
}

#[tokio::test]
async fn a_revoked_token_ends_the_connection() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let (connection, mut events) = open(&server, "owl", &dee).await;
    let data = server.data.to_str().unwrap();
    let listed = run_pvp(&["tokens", "list", "--json", "--data", data]).1;
    let tokens = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mine = tokens
        .into_iter()
        .find(|token| token["participant"] == dee.participant.as_str());
    let id = mine.unwrap()["id"].as_str().unwrap().to_owned();
    assert!(run_pvp(&["tokens", "revoke", "--data", data, &id]).0);
    let ending = wait_end(&mut events).await;
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
async fn an_error_of_an_agent_ends_nobodys_connection() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let (connection, mut events) = open(&server, "owl", &dee).await;
    let mut agent = server.join("owl", &bot).await;
    // Everyone can see the id of a join: it is that of the announcement.
    agent.sync().await;
    let announced = agent.received.iter().find(|message| {
        message["type"] == "participant.announce"
            && message["seq"].is_u64()
            && message["sender"] == dee.participant.as_str()
    });
    let join = announced.unwrap()["id"].clone();
    let report = json!({ "code": "UNAUTHORIZED", "message": "your access was revoked", "recoverable": false, "related_to": join });
    agent.send_and_ack("error", report).await;
    let bot = ParticipantId::parse(&bot.participant).unwrap();
    let receipt = connection.prompt(&bot, "still here").await.unwrap();
    assert!(wait_answer(receipt).await.unwrap().is_some());
    while let Some(event) = futures_util::FutureExt::now_or_never(events.next()).flatten() {
        assert!(!matches!(event, ConnectionEvent::Ended(_)), "{event:?}");
    }
}

#[tokio::test]
async fn leaving_ends_the_connection_and_is_logged() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let (connection, mut events) = open(&server, "owl", &dee).await;
    let leaving = connection.leave(Some("tea".to_owned()));
    tokio::time::timeout(TEST_TIMEOUT, leaving)
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(wait_end(&mut events).await, EndReason::Left));
    let log = export_log(&server.data, "owl");
    let left = log
        .iter()
        .find(|entry| message_type(entry) == "session.leave");
    assert_eq!(left.unwrap()["payload"], json!({ "reason": "tea" }));
}

#[tokio::test]
async fn dropping_the_connection_closes_it_once_everything_is_answered() {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let agent = ConnectionAgent::join(&server, "owl").await;
    let bot = agent.connection.participant().clone();
    let (connection, mut events) = open(&server, "owl", &dee).await;
    let mut said = Vec::new();
    for number in 0..100 {
        let clone = connection.clone();
        said.push(clone.prompt(&bot, &number.to_string()).await.unwrap());
    }
    drop(connection);
    // Everything up to the last answer comes before the end.
    let mut seqs = Vec::new();
    let end = loop {
        match next_event(&mut events).await {
            ConnectionEvent::Message { envelope, .. } => {
                seqs.extend(envelope.and_then(|envelope| envelope.seq));
            }
            ConnectionEvent::Ended(end) => break end,
            ConnectionEvent::Connected { .. } | ConnectionEvent::RecordWarning(_) => {}
            ConnectionEvent::Disconnected { why } => panic!("{why}"),
        }
    };
    assert!(matches!(end, EndReason::Closed));
    let mut last = 0;
    for receipt in said {
        last = wait_answer(receipt).await.unwrap().unwrap();
    }
    let expected: Vec<_> = (1..=last).collect();
    assert!(seqs.starts_with(&expected), "{seqs:?}");
    assert_eq!(
        id_counts(&export_log(&server.data, "owl"), "prompt.submit").len(),
        100
    );
}

#[tokio::test]
async fn a_message_that_is_too_big_is_refused_here_and_the_connection_stays() {
    let server = TestServer::start_with_env(&[], &[("PVP_MESSAGE_BYTES", "4096")]).await;
    server.create_session("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let agent = ConnectionAgent::join(&server, "owl").await;
    let bot = agent.connection.participant().clone();
    let (connection, mut events) = open(&server, "owl", &dee).await;
    let before = export_log(&server.data, "owl").len();
    let big = connection.prompt(&bot, &"x".repeat(5000)).await.unwrap();
    let id = big.id.clone();
    let Err(SendError::Refused(report)) = wait_answer(big).await else {
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
    let seq = wait_answer(small).await.unwrap().unwrap();
    assert_eq!(export_log(&server.data, "owl").len(), before + 1);
    assert_eq!(seq, before as u64 + 1);
    drop(connection);
    assert!(matches!(wait_end(&mut events).await, EndReason::Closed));
}

#[tokio::test]
async fn messages_sent_while_the_server_is_down_arrive_in_order_and_drafts_do_not() {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path(), "127.0.0.1:0", &[]).await;
    server.create_session("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let agent = ConnectionAgent::join(&server, "owl").await;
    let bot = agent.connection.participant().clone();
    drop(agent);
    let (connection, mut events) = open(&server, "owl", &dee).await;
    let address = server.address.clone();
    server.kill_9().await;
    wait_down(&mut events).await;
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
    // The next attempt fails as well, and then the draft is dropped.
    let passed = wait_answer(draft).await;
    assert!(matches!(passed, Err(SendError::Dropped)), "{passed:?}");
    let reading = tokio::spawn(async move { while events.next().await.is_some() {} });
    let _server = start(data.path(), &address, &[]).await;
    let mut seqs = Vec::new();
    for receipt in said {
        seqs.push(wait_answer(receipt).await.unwrap().unwrap());
    }
    assert!(seqs.is_sorted(), "{seqs:?}");
    let log = export_log(data.path(), "owl");
    let prompts = log
        .iter()
        .filter(|entry| message_type(entry) == "prompt.submit");
    let contents: Vec<_> = prompts
        .map(|entry| entry["payload"]["content"].as_str().unwrap().to_owned())
        .collect();
    let expected: Vec<_> = (0..200).map(|number: u32| number.to_string()).collect();
    assert_eq!(contents, expected);
    drop(connection);
    tokio::time::timeout(TEST_TIMEOUT, reading)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn another_log_at_the_same_address_starts_a_fresh_view() {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(&data.path().join("old"), "127.0.0.1:0", &["--open"]).await;
    let link = Link::parse(&format!("http://{}/", server.address)).unwrap();
    let options = ConnectOptions {
        participant: Some(ParticipantId::parse("zoe").unwrap()),
        roles: Some(vec![Role::Driver]),
        kind: Some(ParticipantKind::Agent),
        ..session_options("owl")
    };
    let (connection, mut events) = Connection::open(link, options).await.unwrap();
    let zoe = connection.participant().clone();
    let mut view = View::default();
    for number in 0..20 {
        let prompt = connection.prompt(&zoe, &number.to_string()).await.unwrap();
        wait_answer(prompt).await.unwrap();
    }
    let address = server.address.clone();
    server.kill_9().await;
    let _server = start(&data.path().join("new"), &address, &["--open"]).await;
    let mut ups = Vec::new();
    while ups.last() != Some(&(false, true)) {
        match next_event(&mut events).await {
            // The second time is after the lost connection.
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
            | ConnectionEvent::RecordWarning(_)
            | ConnectionEvent::Disconnected { .. } => {}
            ConnectionEvent::Ended(ending) => panic!("{ending:?}"),
        }
    }
    assert_eq!(ups, [(false, false), (false, true)]);
    let prompt = connection.prompt(&zoe, "here again").await.unwrap();
    let seq = wait_answer(prompt).await.unwrap().unwrap();
    assert!(seq < 20, "{seq} is in the new log");
    while view.head < seq {
        if let ConnectionEvent::Message {
            envelope: Some(envelope),
            ..
        } = next_event(&mut events).await
        {
            view.fold(&envelope);
        }
    }
    assert_eq!(view.head, seq);
    assert_eq!(
        export_log(&data.path().join("new"), "owl").len() as u64,
        seq
    );
}
