//! Disk failures and damaged data under a running server: nothing runs that could not be logged,
//! clients get a reason, and work continues when the disk does.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::audit::{assert_intact, export_log, log_entries, message_type};
use crate::support::disk::TmpfsMount;
use crate::support::{TEST_TIMEOUT, TestClient, TestServer, TestUser, http_get, run_pvp};
use pvp_protocol::Timestamp;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

/// Makes every write to a file fail, for this server only.
fn fail_writes(server: &TestServer) {
    set_file_size_limit(server, "0");
}

fn restore_writes(server: &TestServer) {
    set_file_size_limit(server, "unlimited");
}

fn set_file_size_limit(server: &TestServer, bytes: &str) {
    let status = Command::new("prlimit")
        .args(["--pid", &server.pid().to_string()])
        // Only the soft limit, so that it can be raised again without privileges.
        .arg(format!("--fsize={bytes}:"))
        .status();
    assert!(status.unwrap().success(), "prlimit is part of util-linux");
}

#[tokio::test]
async fn while_writes_fail_nothing_happens_and_later_the_same_messages_succeed() {
    let server = TestServer::start(&[]).await;
    check_disk_failure(&server, || fail_writes(&server), || restore_writes(&server)).await;
}

/// The whole scenario: work in progress, a disk that fails, and its recovery.
async fn check_disk_failure(server: &TestServer, fail: impl FnOnce(), restore: impl FnOnce()) {
    server.create_session("work", json!({})).await;
    server.create_session("rest", json!({})).await;
    let person = |name: &str, role: &str| server.invite(name, &[role], &[]);
    let (ann, dee, eye) = (
        person("ann", "approver"),
        person("dee", "driver"),
        person("eye", "observer"),
    );
    let late = person("late", "approver");
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut ann = server.join("work", &ann).await;
    let mut dee = server.join("work", &dee).await;
    let mut agent = server.join("work", &bot).await;
    server.join("work", &eye).await.sync().await;
    let runs = agent.propose("touch running").await;
    ann.approve(&runs).await;
    agent.wait_for("tool.execute").await;
    let waits = agent.propose("touch waiting").await;
    for client in [&mut ann, &mut dee, &mut agent] {
        client.sync().await;
    }
    let before = server.log("work").len();

    fail();
    let vote = json!({ "gate": waits, "approver": ann.participant });
    let vote = ann.envelope("gate.approve", vote);
    let safe = json!({ "risk_level": "safe" });
    let propose = agent.envelope(
        "tool.propose",
        with_fields(agent.proposal("touch more"), &json!({})),
    );
    let read = agent.envelope("tool.propose", with_fields(agent.proposal("ls"), &safe));
    let output =
        json!({ "tool_proposal": runs, "stream": "stdout", "text": "one\n", "complete": false });
    let output = agent.envelope("tool.output", output);
    let note = json!({ "key": "note", "content_type": "text", "content": "text" });
    let note = dee.envelope("context.add", note);
    for _ in 0..2 {
        expect_retryable_refusal(&mut ann, &vote).await;
        expect_retryable_refusal(&mut agent, &propose).await;
        expect_retryable_refusal(&mut agent, &read).await;
        expect_retryable_refusal(&mut agent, &output).await;
        expect_retryable_refusal(&mut dee, &note).await;
    }
    for client in [&mut ann, &mut dee, &mut agent] {
        expect_no_entries(client).await;
    }
    // Known participants can still read; the announcement of a new one would have to be written.
    let mut back = server.connect(&eye).await;
    let welcome = back.join("work", &eye, json!({})).await;
    assert_eq!(
        welcome["payload"]["gates"][0]["request"]["action_ref"],
        waits.as_str()
    );
    assert_eq!(
        welcome["payload"]["running"][0]["tool_proposal"],
        runs.as_str()
    );
    back.wait(|message| message["type"] == "gate.request").await;
    let mut newcomer = server.connect(&late).await;
    newcomer.session = "work".to_owned();
    let join = json!({ "participant": late.announce(), "supported_versions": [1] });
    let join = newcomer.envelope("session.join", join);
    expect_retryable_refusal(&mut newcomer, &join).await;
    let (status, body) = http_get(&server.address, "/health", &[]).await;
    assert_eq!((status, body.as_str()), (200, r#"{"status":"ok"}"#));
    assert_eq!(server.log("work").len(), before);
    assert_intact(&server.data);

    restore();
    send_accepted(&mut ann, &vote).await;
    send_accepted(&mut agent, &propose).await;
    send_accepted(&mut agent, &read).await;
    send_accepted(&mut agent, &output).await;
    send_accepted(&mut dee, &note).await;
    for granted in [&waits, read["id"].as_str().unwrap()] {
        let execute = agent.wait_for("tool.execute").await;
        assert_eq!(execute["payload"]["tool_proposal"], granted);
        assert!(execute["payload"]["grant"]["nonce"].is_string());
    }
    let mut newcomer = server.connect(&late).await;
    newcomer.send_raw(&join.to_string()).await;
    newcomer.wait_for("session.welcome").await;
    newcomer.expect_ack(join["id"].as_str().unwrap()).await;
    // The failed attempts left no participant behind.
    drop(newcomer);
    ann.wait(|message| is_presence(message, &late, "disconnected"))
        .await;

    for client in [&mut dee, &mut agent, &mut ann] {
        client.sync().await;
    }
    let stored = export_log(&server.data, "work");
    assert_eq!(log_entries(&ann.received), stored);
    for said in [&vote, &propose, &read, &output, &note] {
        let times = stored.iter().filter(|entry| entry["id"] == said["id"]);
        assert_eq!(times.count(), 1, "{said}");
    }
    let granted = stored
        .iter()
        .filter(|entry| message_type(entry) == "tool.execute");
    assert_eq!(granted.count(), 3);
    assert_intact(&server.data);
}

fn with_fields(mut payload: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        payload[key] = value.clone();
    }
    payload
}

fn is_presence(message: &Value, user: &TestUser, status: &str) -> bool {
    message["type"] == "presence.update"
        && message["payload"]["participant"] == user.participant.as_str()
        && message["payload"]["status"] == status
}

/// Asserts that the refusal says that nothing happened and that the client may retry.
async fn expect_retryable_refusal(client: &mut TestClient, said: &Value) {
    client.send_raw(&said.to_string()).await;
    let refusal = client.expect_refusal(said["id"].as_str().unwrap()).await;
    assert_eq!(refusal["code"], "INTERNAL_ERROR", "{refusal}");
    assert_eq!(refusal["recoverable"], true, "{refusal}");
    let sentence = refusal["message"].as_str().unwrap();
    let beginning = "this could not be written to the log, so nothing happened (";
    assert!(sentence.starts_with(beginning), "{sentence}");
    assert!(sentence.ends_with("; try again"), "{sentence}");
}

async fn send_accepted(client: &mut TestClient, said: &Value) {
    client.send_raw(&said.to_string()).await;
    client.expect_ack(said["id"].as_str().unwrap()).await;
}

/// Asserts that no log entry arrives.
async fn expect_no_entries(client: &mut TestClient) {
    let received = client.received.len();
    sync_by_ping(client).await;
    let kept = log_entries(&client.received[received..]);
    assert!(kept.is_empty(), "{kept:#?}");
}

/// Waits for the answer to a ping; everything sent before it has arrived by then.
async fn sync_by_ping(client: &mut TestClient) {
    let id = client.send("heartbeat.ping", json!({})).await;
    client
        .wait(|message| message["type"] == "heartbeat.pong" && message["ref"] == id.as_str())
        .await;
}

#[tokio::test]
async fn a_full_disk_with_the_log_on_it_is_survived() {
    let Some(disk) = TmpfsMount::mount() else {
        return;
    };
    let data = disk.path().join("data");
    let problems = File::create(disk.path().join("server.log")).unwrap();
    let server = TestServer::start_with(&data, "127.0.0.1:0", &[], &[], Some(problems)).await;
    check_disk_failure(&server, || disk.fill(), || disk.empty()).await;
    assert!(server.stop().await.success());
    assert_intact(&data);
}

#[tokio::test]
async fn a_deadline_that_cannot_be_written_is_retried_with_a_delay_and_kept() {
    let data = tempfile::tempdir().unwrap();
    let (problems, writer) = std::io::pipe().unwrap();
    let problems_to = File::from(OwnedFd::from(writer));
    let server =
        TestServer::start_with(data.path(), "127.0.0.1:0", &[], &[], Some(problems_to)).await;
    // Long enough for the disk to fail first.
    let config = json!({ "gate_timeout_seconds": 10 });
    server.create_session("due", config).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut agent = server.join("due", &bot).await;
    agent.propose("touch a").await;
    fail_writes(&server);
    let (attempts, attempted) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(problems).lines().map_while(Result::ok);
        // The pipe is read to its end, or the server would block.
        while let Some(line) = lines.find(|line| line.contains("could not write the log")) {
            let _ = attempts.send(log_line_time(&line));
        }
    });
    let attempts = tokio::task::spawn_blocking(move || {
        let next = || {
            attempted
                .recv_timeout(TEST_TIMEOUT)
                .expect("it tries again")
        };
        [next(), next(), next()]
    });
    let attempts = attempts.await.unwrap();
    assert!(attempts[2] > attempts[0].plus_seconds(1), "{attempts:?}");
    restore_writes(&server);
    let resolve = agent.wait_for("gate.resolve").await;
    assert_eq!(resolve["payload"]["outcome"], "timed_out");
    assert_intact(data.path());
}

/// The timestamp of a line of the server's log.
fn log_line_time(line: &str) -> Timestamp {
    let to_the_millisecond = format!("{}Z", &line[.."2026-01-01T00:00:00.000".len()]);
    serde_json::from_value(json!(to_the_millisecond)).unwrap()
}

#[tokio::test]
async fn an_absence_that_cannot_be_written_is_written_when_the_disk_is_back() {
    let data = tempfile::tempdir().unwrap();
    let (problems, writer) = std::io::pipe().unwrap();
    let problems_to = File::from(OwnedFd::from(writer));
    let server =
        TestServer::start_with(data.path(), "127.0.0.1:0", &[], &[], Some(problems_to)).await;
    // Long enough for the disk to fail first.
    let config = json!({ "away_timeout_seconds": 10, "heartbeat_interval_seconds": 3600 });
    server.create_session("away", config).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let mut ann = server.join("away", &ann).await;
    fail_writes(&server);
    let attempted = tokio::task::spawn_blocking(move || {
        let mut lines = BufReader::new(problems).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("could not write the log")));
        lines
    });
    // The pipe stays open, or the server could not write its log any more.
    let attempted = tokio::time::timeout(TEST_TIMEOUT, attempted).await;
    let _lines = attempted.expect("it tries to write").unwrap();
    restore_writes(&server);
    let away = ann
        .wait(|message| message["type"] == "presence.update" && message["seq"].is_u64())
        .await;
    assert_eq!(away["payload"]["status"], "away");
}

/// A lock on the database, held by another connection.
struct DatabaseLock {
    connection: Connection,
    since: Instant,
}

impl DatabaseLock {
    fn acquire(server: &TestServer) -> Self {
        let connection = Connection::open(server.data.join("pvp.sqlite3")).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        Self {
            connection,
            since: Instant::now(),
        }
    }

    /// Whether the server's writer may have given up meanwhile, which it does after five seconds.
    fn held_too_long(&self) -> bool {
        self.since.elapsed() > Duration::from_secs(4)
    }

    fn release(self) {
        self.connection.execute_batch("ROLLBACK").unwrap();
    }
}

/// Repeats a scenario until it was fast enough to be meaningful.
async fn retry_until_in_time(story: impl AsyncFn(&TestServer, &str) -> Option<()>) {
    let server = TestServer::start(&[]).await;
    for number in 0..10 {
        let session = format!("slow-{number}");
        server.create_session(&session, json!({})).await;
        if story(&server, &session).await.is_some() {
            return;
        }
    }
    panic!("this machine is too slow to tell");
}

#[tokio::test]
async fn a_slow_disk_delays_answers_but_not_decisions() {
    retry_until_in_time(answers_are_delayed).await;
}

async fn answers_are_delayed(server: &TestServer, session: &str) -> Option<()> {
    let (dee, eye) = (
        server.invite("dee", &["driver"], &[]),
        server.invite("eye", &["observer"], &[]),
    );
    let mut dee = server.join(session, &dee).await;
    let mut eye = server.join(session, &eye).await;
    let other = DatabaseLock::acquire(server);
    let mut notes = Vec::new();
    for number in 0..50 {
        let key = format!("note-{number}");
        let note = json!({ "key": key, "content_type": "text", "content": "text" });
        notes.push(dee.send("context.add", note).await);
    }
    // A draft is not logged, so it is delivered as soon as everything before it is decided.
    let draft = json!({ "content": "what if", "contributors": [] });
    let draft = dee.send("prompt.draft", draft).await;
    eye.wait(|message| message["id"] == draft.as_str()).await;
    for client in [&mut dee, &mut eye] {
        sync_by_ping(client).await;
        let of_a_note = |message: &&Value| {
            let id = message["payload"]["id"].as_str().or(message["id"].as_str());
            id.is_some_and(|id| notes.iter().any(|note| note == id))
        };
        let received = client.received.iter().find(of_a_note);
        assert_eq!(received, None, "before it was written");
    }
    if other.held_too_long() {
        return None;
    }
    other.release();

    let mut seqs = Vec::new();
    for id in &notes {
        seqs.push(dee.expect_ack(id).await.unwrap());
    }
    let first = seqs[0];
    assert_eq!(seqs, (first..first + 50).collect::<Vec<_>>());
    eye.sync().await;
    assert_eq!(
        log_entries(&eye.received),
        export_log(&server.data, session)
    );
    Some(())
}

#[tokio::test]
async fn an_http_request_is_not_answered_with_state_that_is_not_durable() {
    retry_until_in_time(http_requests_wait).await;
}

async fn http_requests_wait(server: &TestServer, session: &str) -> Option<()> {
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut agent = server.join(session, &bot).await;
    let admin = server.admin();
    let mut eye = server.join(session, &admin).await;
    let bearer = format!("Bearer {}", admin.token);
    let other = DatabaseLock::acquire(server);
    let payload = agent.proposal("touch file");
    let proposal = agent.send("tool.propose", payload).await;
    // A draft is delivered as soon as everything before it is decided.
    let draft = json!({ "content": "what if", "contributors": [] });
    let draft = agent.send("prompt.draft", draft).await;
    eye.wait(|message| message["id"] == draft.as_str()).await;

    let (address, token) = (server.address.clone(), bearer.clone());
    let path = format!("/api/sessions/{session}/gates");
    let mut asking = tokio::spawn(async move {
        let headers = [("Authorization", token.as_str())];
        http_get(&address, &path, &headers).await
    });
    // Enough for the request to arrive; an answer by now would be from state that is not durable.
    for _ in 0..3 {
        http_get(&server.address, "/api/me", &[("Authorization", &bearer)]).await;
    }
    let early = futures_util::FutureExt::now_or_never(&mut asking);
    if other.held_too_long() {
        return None;
    }
    assert!(early.is_none(), "{early:?}");
    other.release();

    agent.expect_ack(&proposal).await;
    let (status, gates) = asking.await.unwrap();
    let gates: Value = serde_json::from_str(&gates).unwrap();
    assert_eq!(status, 200);
    assert_eq!(
        gates["gates"][0]["request"]["action_ref"],
        proposal.as_str()
    );
    Some(())
}

/// Replaces the body of a stored entry; returns the old one.
fn swap_body(data: &Path, session: &str, seq: u64, body: Option<&[u8]>) -> Vec<u8> {
    let connection = Connection::open(data.join("pvp.sqlite3")).unwrap();
    connection.busy_timeout(TEST_TIMEOUT).unwrap();
    let place = "session = (SELECT no FROM sessions WHERE id = ?1) AND seq = ?2";
    let old: Vec<u8> = connection
        .query_row(
            &format!("SELECT body FROM entries WHERE {place}"),
            params![session, seq.cast_signed()],
            |row| row.get(0),
        )
        .unwrap();
    let mut flipped = old.clone();
    // Inside the timestamp, so that it is still a valid entry, but not the one that was written.
    let at = String::from_utf8(old.clone())
        .unwrap()
        .find("\"ts\":\"20")
        .unwrap()
        + 8;
    flipped[at] ^= 1;
    connection
        .execute(
            &format!("UPDATE entries SET body = ?3 WHERE {place}"),
            params![session, seq.cast_signed(), body.unwrap_or(&flipped)],
        )
        .unwrap();
    old
}

#[tokio::test]
async fn a_damaged_session_is_refused_by_name_and_the_others_keep_working() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(data.path(), &[]).await;
    let (ann, dee) = (
        server.invite("ann", &["approver"], &[]),
        server.invite("dee", &["driver"], &[]),
    );
    for session in ["good", "bad"] {
        server.create_session(session, json!({})).await;
        let mut dee = server.join(session, &dee).await;
        for number in 0..5 {
            let note =
                json!({ "key": format!("k{number}"), "content_type": "text", "content": "x" });
            dee.send_and_ack("context.add", note).await;
        }
    }
    assert!(server.stop().await.success());
    let report = assert_intact(data.path());
    let key = report["key"].as_str().unwrap();
    let good_export = export(data.path(), "good.jsonl");
    let data_text = data.path().to_str().unwrap();
    let pinned = ["--key", key];
    for place in [["--data", data_text], ["--export", &good_export]] {
        let (good, output, problem) =
            run_pvp(&[&["audit", "verify"], &place[..], &pinned].concat());
        assert!(good, "{output} {problem}");
        assert!(output.contains("all intact"), "{output}");
        // Signed with another key than the one that was saved elsewhere.
        let other = "0".repeat(64);
        let (good, output, _) =
            run_pvp(&[&["audit", "verify"], &place[..], &["--key", &other]].concat());
        assert!(!good && output.contains("an unknown key"), "{output}");
    }

    swap_body(data.path(), "bad", 4, None);
    let bad_export = export(data.path(), "bad.jsonl");
    for place in [["--data", data_text], ["--export", &bad_export]] {
        let (good, output, _) = run_pvp(&[&["audit", "verify"], &place[..]].concat());
        assert!(!good, "{output}");
        let finding = "first finding: session `bad`, entry 4: its hash does not follow";
        assert!(output.contains(finding), "{output}");
        assert!(
            output.contains("good: ") && output.contains("intact, signed up to"),
            "{output}"
        );
    }
    let status = Command::new(env!("CARGO_BIN_EXE_pvp"))
        .args(["audit", "verify", "--data", data_text])
        .stdout(std::process::Stdio::null())
        .status();
    assert_eq!(status.unwrap().code(), Some(1));

    let server = TestServer::start_in(data.path(), &[]).await;
    let refusal = refused_join(&server, "bad", &ann).await;
    assert_eq!(refusal["code"], "INTERNAL_ERROR");
    let sentence = refusal["message"].as_str().unwrap();
    assert!(sentence.contains("entry 4 is damaged"), "{sentence}");
    assert!(sentence.contains("`pvp audit verify`"), "{sentence}");
    let mut good = server.join("good", &ann).await;
    good.sync().await;
}

fn export(data: &Path, name: &str) -> String {
    let path = data.join(name).to_str().unwrap().to_owned();
    let (good, _, problem) = run_pvp(&[
        "audit",
        "export",
        "--data",
        data.to_str().unwrap(),
        "--out",
        &path,
    ]);
    assert!(good, "{problem}");
    path
}

async fn refused_join(server: &TestServer, session: &str, user: &TestUser) -> Value {
    let mut client = server.connect(user).await;
    client.session = session.to_owned();
    let join = json!({ "participant": user.announce(), "supported_versions": [1] });
    let id = client.send("session.join", join).await;
    client.expect_refusal(&id).await
}

#[tokio::test]
async fn a_session_that_cannot_be_reloaded_is_refused_until_its_log_is_readable() {
    let server = TestServer::start(&[]).await;
    server.create_session("hurt", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let mut dee = server.join("hurt", &dee).await;
    dee.sync().await;
    // A failed write discards the state in memory; by then the log is damaged.
    let whole = swap_body(&server.data, "hurt", 1, None);
    fail_writes(&server);
    let note = json!({ "key": "note", "content_type": "text", "content": "text" });
    let note = dee.envelope("context.add", note);
    expect_retryable_refusal(&mut dee, &note).await;
    restore_writes(&server);
    dee.send_raw(&note.to_string()).await;
    let refusal = dee.expect_refusal(note["id"].as_str().unwrap()).await;
    let sentence = refusal["message"].as_str().unwrap();
    assert!(sentence.contains("entry 1 is damaged"), "{sentence}");
    // Other sessions are not affected.
    server.create_session("sound", json!({})).await;

    swap_body(&server.data, "hurt", 1, Some(&whole));
    let began = Instant::now();
    loop {
        dee.send_raw(&note.to_string()).await;
        let answer = dee.answer(note["id"].as_str().unwrap()).await;
        if answer["type"] == "session.ack" {
            break;
        }
        assert!(began.elapsed() < TEST_TIMEOUT, "{answer}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    dee.sync().await;
    let stored = export_log(&server.data, "hurt");
    assert_eq!(log_entries(&dee.received), stored);
    assert_intact(&server.data);
}

#[tokio::test]
async fn a_database_that_turns_to_garbage_is_refused_and_works_again_when_it_is_back() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(data.path(), &[]).await;
    let dee = server.invite("dee", &["driver"], &[]);
    server.create_session("book", json!({})).await;
    server.join("book", &dee).await.sync().await;
    assert!(server.stop().await.success());
    let server = TestServer::start_in(data.path(), &[]).await;
    let path = data.path().join("pvp.sqlite3");
    let whole = std::fs::read(&path).unwrap();
    let page = usize::from(u16::from_be_bytes([whole[16], whole[17]]));
    let entries = entries_root(&path) * page;
    let mut garbage = whole.clone();
    garbage[entries..entries + page].fill(0xaa);
    overwrite(&path, &garbage);
    let refusal = refused_join(&server, "book", &dee).await;
    assert_eq!(refusal["code"], "INTERNAL_ERROR", "{refusal}");
    let sentence = refusal["message"].as_str().unwrap();
    assert!(sentence.contains("reading the log"), "{sentence}");
    let (good, output, _) = run_pvp(&["audit", "verify", "--data", data.path().to_str().unwrap()]);
    assert!(!good, "{output}");
    let (status, _) = http_get(&server.address, "/health", &[]).await;
    assert_eq!(status, 200);

    overwrite(&path, &whole);
    server.join("book", &dee).await.sync().await;
    assert!(server.stop().await.success());
    assert_intact(data.path());
}

/// The index of the root page of the table of entries.
fn entries_root(path: &Path) -> usize {
    let connection = Connection::open(path).unwrap();
    let root: i64 = connection
        .query_row(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'entries'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    usize::try_from(root - 1).unwrap()
}

/// Overwrites a file in place, because the server has it open.
fn overwrite(path: &Path, bytes: &[u8]) {
    let mut file = File::options().write(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}
