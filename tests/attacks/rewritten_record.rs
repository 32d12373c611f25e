//! Wanted: another past.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use pvp_protocol::SessionId;
use pvp_server::store::{Hash, chain_hash, genesis_hash};
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::audit::assert_intact;
use crate::support::cli::CliEnv;
use crate::support::session::wait_until;
use crate::support::{TEST_TIMEOUT, TestServer, TestUser, run_pvp};

/// The database of a server that is stopped, as somebody has it who may write the file, but does
/// not have the key.
struct Forger {
    connection: Connection,
    session: SessionId,
}

/// One entry as it is stored.
struct EntryRow {
    meta: Vec<u8>,
    body: String,
}

impl Forger {
    fn open(data: &Path, session: &str) -> Self {
        let connection = Connection::open(data.join("pvp.sqlite3")).unwrap();
        connection.busy_timeout(TEST_TIMEOUT).unwrap();
        let session = SessionId::parse(session).unwrap();
        Self {
            connection,
            session,
        }
    }

    fn entries(&self) -> Vec<EntryRow> {
        let sql = "SELECT meta, body FROM entries
                   WHERE session = (SELECT no FROM sessions WHERE id = ?1) ORDER BY seq";
        let mut statement = self.connection.prepare(sql).unwrap();
        let rows = statement.query_map([self.session.as_str()], |row| {
            let body: Vec<u8> = row.get(1)?;
            Ok(EntryRow {
                meta: row.get(0)?,
                body: String::from_utf8(body).unwrap(),
            })
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Replaces the whole log, with a chain that is right and indexes that fit.
    fn write(&self, entries: &[EntryRow]) {
        let row: i64 = self
            .connection
            .query_row(
                "SELECT no FROM sessions WHERE id = ?1",
                [self.session.as_str()],
                |row| row.get(0),
            )
            .unwrap();
        let delete = "DELETE FROM entries WHERE session = ?1";
        self.connection.execute(delete, [row]).unwrap();
        let mut hash: Hash = genesis_hash(&self.session);
        for (seq, entry) in (1_i64..).zip(entries) {
            hash = chain_hash(&hash, &entry.meta, entry.body.as_bytes());
            self.connection
                .execute(
                    "INSERT INTO entries (session, seq, meta, body, hash) VALUES (?1, ?2, ?3, ?4, ?5)",
                    params![row, seq, entry.meta, entry.body.as_bytes(), hash],
                )
                .unwrap();
        }
        self.connection
            .execute(
                "UPDATE sessions SET head_seq = ?2, head_hash = ?3 WHERE no = ?1",
                params![row, entries.len() as i64, hash],
            )
            .unwrap();
    }

    fn remove_checkpoints_after(&self, seq: i64) {
        for table in ["checkpoints", "snapshots"] {
            let sql = format!("DELETE FROM {table} WHERE seq > ?1");
            self.connection.execute(&sql, [seq]).unwrap();
        }
        let sql = "UPDATE sessions SET sealed_seq = min(sealed_seq, ?1)";
        self.connection.execute(sql, [seq]).unwrap();
    }

    /// The checkpoints that are there, by entry and signature.
    fn checkpoints(&self) -> Vec<(i64, Vec<u8>)> {
        let sql = "SELECT seq, signature FROM checkpoints ORDER BY session, seq";
        let mut statement = self.connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Makes it look as if eve had voted, and not ann.
    fn blame_eve(&self) {
        let mut entries = self.entries();
        let mut votes = 0;
        for entry in &mut entries {
            if entry.body.contains(r#""type":"gate.approve""#) {
                entry.body = entry.body.replace("ann", "eve");
                votes += 1;
            }
        }
        assert_eq!(votes, 1);
        self.write(&entries);
    }
}

/// A session in which ann approved a command of an agent that then ran; the server is stopped.
async fn approved_command(data: &Path, flags: &[&str]) -> TestUser {
    let server = TestServer::start_in(data, flags).await;
    server
        .create_session("owl", json!({ "gate_timeout_seconds": 0 }))
        .await;
    let ann = server.invite("ann", &["approver", "driver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut approver = server.join("owl", &ann).await;
    let mut agent = server.join("owl", &bot).await;
    let proposal = agent.propose("touch file").await;
    let gate = approver.wait_for("gate.request").await;
    approver.approve(gate["id"].as_str().unwrap()).await;
    agent.wait_for("tool.execute").await;
    let result = json!({
        "tool_proposal": proposal, "success": true, "exit_code": 0, "output": "", "duration_ms": 1,
    });
    agent.send_and_ack("tool.result", result).await;
    assert!(server.stop().await.success());
    assert_intact(data);
    ann
}

/// The first finding of `pvp audit verify`, which must fail.
fn finding(data: &Path, more: &[&str]) -> String {
    let arguments = ["audit", "verify", "--data", data.to_str().unwrap()];
    let (good, output, problem) = run_pvp(&[&arguments, more].concat());
    assert!(!good, "it passes: {output} {problem}");
    let line = output
        .lines()
        .find(|line| line.starts_with("first finding: "));
    line.unwrap_or_else(|| panic!("{output} {problem}"))
        .to_owned()
}

/// Starts a server, lets ann try to join, and stops it. Returns the refusal.
async fn refused_after_restart(data: &Path, ann: &TestUser) -> String {
    let server = TestServer::start_in(data, &[]).await;
    let mut client = server.connect(ann).await;
    client.session = "owl".to_owned();
    let join = json!({ "participant": ann.announce(), "supported_versions": [1] });
    let id = client.send("session.join", join).await;
    let refusal = client.expect_refusal(&id).await;
    // Another session is as good as before.
    server.invite("dee", &["driver"], &[]);
    assert!(server.stop().await.success());
    refusal["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_vote_is_not_pinned_on_another_by_removing_the_signatures() {
    let data = tempfile::tempdir().unwrap();
    let ann = approved_command(data.path(), &[]).await;
    let forger = Forger::open(data.path(), "owl");
    forger.blame_eve();
    forger.remove_checkpoints_after(0);
    let found = finding(data.path(), &[]);
    assert!(found.contains("no signed checkpoint covers it"), "{found}");

    let refusal = refused_after_restart(data.path(), &ann).await;
    assert!(
        refusal.contains("no signed checkpoint covers it"),
        "{refusal}"
    );
    assert!(
        refusal.contains("restore the data directory from a backup"),
        "{refusal}"
    );
    assert_eq!(forger.checkpoints(), [], "the server signed the forgery");
    assert_eq!(finding(data.path(), &[]), found);
}

#[tokio::test]
async fn a_server_does_not_sign_a_rewritten_log_over_the_signatures_that_contradict_it() {
    let data = tempfile::tempdir().unwrap();
    let ann = approved_command(data.path(), &[]).await;
    let forger = Forger::open(data.path(), "owl");
    forger.blame_eve();
    forger
        .connection
        .execute("DELETE FROM snapshots", [])
        .unwrap();
    let (before, found) = (forger.checkpoints(), finding(data.path(), &[]));
    let refusal = refused_after_restart(data.path(), &ann).await;
    assert!(
        refusal.contains("is not the one that was signed"),
        "{refusal}"
    );
    assert_eq!(forger.checkpoints(), before);
    assert_eq!(finding(data.path(), &[]), found);
}

#[tokio::test]
async fn a_forged_signature_is_not_believed_when_a_session_is_loaded() {
    let data = tempfile::tempdir().unwrap();
    let ann = approved_command(data.path(), &[]).await;
    let forger = Forger::open(data.path(), "owl");
    forger.blame_eve();
    forger
        .connection
        .execute_batch(
            "DELETE FROM snapshots;
             UPDATE checkpoints SET snapshot = NULL, hash = (
                 SELECT hash FROM entries
                 WHERE entries.session = checkpoints.session AND entries.seq = checkpoints.seq)",
        )
        .unwrap();
    let (before, found) = (forger.checkpoints(), finding(data.path(), &[]));
    assert!(found.contains("a false signature"), "{found}");
    let refusal = refused_after_restart(data.path(), &ann).await;
    assert!(refusal.contains("a false signature"), "{refusal}");
    assert_eq!(forger.checkpoints(), before);
}

/// Appends one entry to the log of a stopped server, with a chain that is right.
fn append_forged(forger: &Forger, kind: &str, sender: &str, payload: &Value) {
    let mut entries = forger.entries();
    let seq = entries.len() + 1;
    let body = json!({
        "v": 1, "id": format!("forged-{seq}"), "ts": "2026-01-01T00:00:00.000Z", "seq": seq,
        "session": "owl", "sender": sender, "type": kind, "payload": payload,
    });
    let meta = entries.last().unwrap().meta.clone();
    entries.push(EntryRow {
        meta,
        body: body.to_string(),
    });
    forger.write(&entries);
}

#[tokio::test]
async fn rights_and_rules_do_not_come_from_entries_that_nobody_signed() {
    let forgeries = [
        (
            "gate.approve",
            "ann",
            json!({ "gate": "none", "approver": "ann" }),
        ),
        (
            "policy.allow",
            "ann",
            json!({ "prefix": ["rm", "-rf"], "expires_at": "2099-01-01T00:00:00.000Z" }),
        ),
        (
            "participant.role_change",
            "ann",
            json!({
                "participant": "bot", "old_roles": ["driver"], "new_roles": ["admin"],
                "reason": "x", "changed_by": "ann",
            }),
        ),
        (
            "session.config_update",
            "ann",
            json!({ "changes": { "trust_reads": true }, "reason": "x" }),
        ),
    ];
    let data = tempfile::tempdir().unwrap();
    let ann = approved_command(data.path(), &[]).await;
    let forger = Forger::open(data.path(), "owl");
    let good = forger.entries();
    for (kind, sender, payload) in forgeries {
        append_forged(&forger, kind, sender, &payload);
        let found = finding(data.path(), &[]);
        let place = format!("entry {}: no signed checkpoint covers it", good.len() + 1);
        assert!(found.contains(&place), "{kind}: {found}");
        let refusal = refused_after_restart(data.path(), &ann).await;
        assert!(
            refusal.contains("no signed checkpoint"),
            "{kind}: {refusal}"
        );
        assert_eq!(finding(data.path(), &[]), found, "{kind}");
        forger.write(&good);
    }
    assert_intact(data.path());
}

#[tokio::test]
async fn neither_a_shutdown_nor_a_rotation_signs_what_was_never_verified() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().to_str().unwrap();
    approved_command(data.path(), &[]).await;
    let forger = Forger::open(data.path(), "owl");
    forger.blame_eve();
    forger.remove_checkpoints_after(0);
    let found = finding(data.path(), &[]);
    // Nobody opens the session.
    let server = TestServer::start_in(data.path(), &[]).await;
    assert!(server.stop().await.success());
    assert_eq!(forger.checkpoints(), []);
    let (good, output, problem) = run_pvp(&["server", "rotate-key", "--data", path]);
    assert!(good, "{output} {problem}");
    assert_eq!(forger.checkpoints(), []);
    assert_eq!(finding(data.path(), &[]), found);
}

#[tokio::test]
async fn a_crash_leaves_nothing_that_looks_like_a_forgery() {
    let data = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(data.path(), &[]).await;
    server
        .create_session("owl", json!({ "gate_timeout_seconds": 0 }))
        .await;
    let ann = server.invite("ann", &["approver", "driver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut approver = server.join("owl", &ann).await;
    let mut agent = server.join("owl", &bot).await;
    let proposal = agent.propose("touch file").await;
    let gate = approver.wait_for("gate.request").await;
    approver.approve(gate["id"].as_str().unwrap()).await;
    agent.wait_for("tool.execute").await;
    let chunk = json!({
        "tool_proposal": proposal, "stream": "stdout", "text": "half a li", "complete": false,
    });
    agent.send_and_ack("tool.output", chunk).await;
    server.kill_9().await;

    let report = assert_intact(data.path());
    let session = &report["sessions"][0];
    assert_eq!(
        session["sealed"].as_u64().unwrap() + 1,
        session["entries"].as_u64().unwrap(),
        "the output alone is not signed: {report}"
    );
    let server = TestServer::start_in(data.path(), &[]).await;
    server.join("owl", &ann).await.sync().await;
    assert!(server.stop().await.success());
    let report = assert_intact(data.path());
    assert_eq!(
        report["sessions"][0]["sealed"],
        report["sessions"][0]["entries"]
    );
}

/// Runs `pvp server`, which must refuse to start; returns what it says.
fn refused_start(data: &Path, flags: &[&str]) -> String {
    let server = [
        "server",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data.to_str().unwrap(),
    ];
    let (good, output, problem) = run_pvp(&[&server, flags].concat());
    assert!(!good, "{output}");
    problem
}

#[tokio::test]
async fn whoever_holds_the_data_directory_does_not_hold_the_key() {
    let (data, safe) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = data.path().to_str().unwrap();
    let key = safe.path().join("pvp.key");
    let flags = ["--key-file", key.to_str().unwrap()];
    approved_command(data.path(), &flags).await;
    let mode = std::fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let secret = std::fs::read_to_string(&key).unwrap();
    for file in std::fs::read_dir(data.path()).unwrap() {
        let path = file.unwrap().path();
        if path.ends_with("workspaces") {
            continue;
        }
        let bytes = std::fs::read(path).unwrap();
        let secret = secret.trim_end().as_bytes();
        assert!(!bytes.windows(secret.len()).any(|part| part == secret));
    }
    assert!(!data.path().join("server.key").exists());

    // A server that is not told of the key does not make another one.
    let problem = refused_start(data.path(), &[]);
    assert!(problem.contains("--key-file"), "{problem}");
    assert!(!data.path().join("server.key").exists());

    let rotate = ["server", "rotate-key", "--data", path];
    let (good, _, problem) = run_pvp(&rotate);
    assert!(!good && problem.contains("--key-file"), "{problem}");
    let (good, output, problem) = run_pvp(&[&rotate[..], &flags].concat());
    assert!(good, "{output} {problem}");
    assert_ne!(std::fs::read_to_string(&key).unwrap(), secret);
    let beside: Vec<_> = std::fs::read_dir(safe.path()).unwrap().collect();
    assert_eq!(beside.len(), 1, "{beside:?}");
    assert_intact(data.path());
    let server = TestServer::start_in(data.path(), &flags).await;
    assert!(server.stop().await.success());
    assert_intact(data.path());
}

#[tokio::test]
async fn a_key_file_that_is_lost_shared_or_of_another_server_is_refused() {
    let (data, safe) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let key = safe.path().join("pvp.key");
    let flags = ["--key-file", key.to_str().unwrap()];
    approved_command(data.path(), &[]).await;
    let beside_the_log = data.path().join("server.key");
    let problem = refused_start(data.path(), &flags);
    let advice = format!("mv {} {}", beside_the_log.display(), key.display());
    assert!(problem.contains(&advice), "{problem}");
    assert!(!key.exists());

    // A copy beside the log would be as good as the key.
    std::fs::copy(&beside_the_log, &key).unwrap();
    let problem = refused_start(data.path(), &flags);
    assert!(problem.contains("remove it"), "{problem}");
    std::fs::remove_file(&beside_the_log).unwrap();

    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let problem = refused_start(data.path(), &flags);
    assert!(
        problem.contains(&format!("chmod 600 {}", key.display())),
        "{problem}"
    );
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = TestServer::start_in(data.path(), &flags).await;
    assert!(server.stop().await.success());

    let whole = std::fs::read_to_string(&key).unwrap();
    std::fs::write(&key, format!("{}\n", "ab".repeat(32))).unwrap();
    let problem = refused_start(data.path(), &flags);
    assert!(
        problem.contains("server.pub") && problem.contains("does not belong to"),
        "{problem}"
    );
    std::fs::remove_file(&key).unwrap();
    let problem = refused_start(data.path(), &flags);
    assert!(problem.contains("it is missing although"), "{problem}");
    assert!(!key.exists(), "another key was made in its place");
    std::fs::write(&key, whole).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = TestServer::start_in(data.path(), &flags).await;
    assert!(server.stop().await.success());
    assert_intact(data.path());
}

/// The log as it was before the vote, with the checkpoints of that time: what a database that was
/// put back looks like.
fn cut_before_vote(forger: &Forger) {
    let entries = forger.entries();
    let is_vote = |entry: &EntryRow| entry.body.contains(r#""type":"gate.approve""#);
    let vote = entries.iter().position(is_vote).unwrap();
    forger.write(&entries[..vote]);
    forger.remove_checkpoints_after(vote as i64);
}

/// What `pvp audit anchor` prints.
fn anchors(data: &Path) -> String {
    let arguments = ["audit", "anchor", "--data", data.to_str().unwrap()];
    let (good, output, problem) = run_pvp(&arguments);
    assert!(good, "{problem}");
    output
}

/// The head that an anchor names, as `--since` takes it.
fn head_of(anchor: &str) -> String {
    let anchor: Value = serde_json::from_str(anchor).unwrap();
    let field = |name: &str| anchor["anchor"][name].clone();
    let text = |name: &str| field(name).as_str().unwrap().to_owned();
    format!("{}:{}:{}", text("session"), field("seq"), text("hash"))
}

#[tokio::test]
async fn a_log_that_was_cut_with_its_signatures_is_found_by_an_anchor() {
    let data = tempfile::tempdir().unwrap();
    let ann = approved_command(data.path(), &[]).await;
    let printed = anchors(data.path());
    assert_eq!(printed.lines().count(), 1, "{printed}");
    let head = head_of(printed.trim_end());
    let kept = tempfile::tempdir().unwrap();
    let file = kept.path().join("anchors.jsonl");
    std::fs::write(&file, &printed).unwrap();
    let since: [&[&str]; 2] = [&["--anchor", file.to_str().unwrap()], &["--since", &head]];
    let data_flag = ["audit", "verify", "--data", data.path().to_str().unwrap()];
    for flags in since {
        let (good, output, problem) = run_pvp(&[&data_flag, flags].concat());
        assert!(good, "{output} {problem}");
    }

    let forger = Forger::open(data.path(), "owl");
    let whole = forger.entries().len();
    cut_before_vote(&forger);
    let left = forger.entries().len();
    // On its own it is as the server signed it.
    assert_intact(data.path());
    for flags in since {
        let found = finding(data.path(), flags);
        assert!(
            found.contains(&format!("entry {}: it is missing", left + 1)),
            "{found}"
        );
        assert!(
            found.contains(&format!("an anchor was made at entry {whole}")),
            "{found}"
        );
    }

    // It is still found after the server has gone on, however far, and in an export.
    let server = TestServer::start_in(data.path(), &[]).await;
    let mut client = server.join("owl", &ann).await;
    while forger.entries().len() <= whole {
        client.sync().await;
    }
    assert!(server.stop().await.success());
    assert_intact(data.path());
    let export = kept.path().join("export.jsonl");
    let export = export.to_str().unwrap();
    let path = data.path().to_str().unwrap();
    assert!(run_pvp(&["audit", "export", "--data", path, "--out", export]).0);
    for flags in since {
        let found = finding(data.path(), flags);
        assert!(
            found.contains(&format!("entry {whole}: it is not the entry")),
            "{found}"
        );
        let (good, output, _) =
            run_pvp(&[&["audit", "verify", "--export", export], flags].concat());
        assert!(!good && output.contains(&found), "{output}");
    }
}

#[tokio::test]
async fn a_session_that_was_removed_with_everything_about_it_is_found_by_an_anchor() {
    let data = tempfile::tempdir().unwrap();
    approved_command(data.path(), &[]).await;
    let printed = anchors(data.path());
    let head = head_of(printed.trim_end());
    let forger = Forger::open(data.path(), "owl");
    for table in ["entries", "checkpoints", "snapshots", "sessions"] {
        forger
            .connection
            .execute(&format!("DELETE FROM {table}"), [])
            .unwrap();
    }
    assert_intact(data.path());
    let found = finding(data.path(), &["--since", &head]);
    assert!(
        found.contains("session `owl`, entry 1: it is missing"),
        "{found}"
    );
}

#[tokio::test]
async fn an_anchor_that_was_altered_is_refused() {
    let data = tempfile::tempdir().unwrap();
    approved_command(data.path(), &[]).await;
    let printed = anchors(data.path());
    let file = data.path().join("anchors.jsonl");
    let path = data.path().to_str().unwrap();
    let seq = format!(
        "\"seq\":{}",
        serde_json::from_str::<Value>(&printed).unwrap()["anchor"]["seq"]
    );
    for (bad, why) in [
        (
            printed.replace(&seq, "\"seq\":1"),
            "line 1: the anchor has a false signature",
        ),
        (format!("{printed}{{\"anchor\""), "line 2: "),
        (String::new(), "contains no anchor"),
    ] {
        std::fs::write(&file, bad).unwrap();
        let verify = [
            "audit",
            "verify",
            "--data",
            path,
            "--anchor",
            file.to_str().unwrap(),
        ];
        let (good, output, problem) = run_pvp(&verify);
        assert!(!good, "{output}");
        assert!(problem.contains(why), "{problem}");
    }
    let verify = ["audit", "verify", "--data", path, "--since", "owl:x:y"];
    let (good, _, problem) = run_pvp(&verify);
    assert!(!good && problem.contains("SESSION:SEQ:HASH"), "{problem}");
}

#[tokio::test]
async fn nobody_gets_an_anchor_of_a_forgery() {
    let data = tempfile::tempdir().unwrap();
    approved_command(data.path(), &[]).await;
    let forger = Forger::open(data.path(), "owl");
    forger.blame_eve();
    let path = data.path().to_str().unwrap();
    let (good, output, problem) = run_pvp(&["audit", "anchor", "--data", path]);
    assert!(!good, "{output}");
    assert!(problem.contains("pvp audit verify"), "{problem}");
}

/// Takes one request of a webhook, answers it with this status and returns its body.
async fn take_post(listener: &TcpListener, status: &str) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    let body = loop {
        assert!(
            stream.read_buf(&mut request).await.unwrap() > 0,
            "it ends early"
        );
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then_some(value)
        });
        let length: usize = length.unwrap().parse().unwrap();
        if body.len() >= length {
            break body.to_owned();
        }
    };
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.unwrap();
    body
}

#[tokio::test]
async fn a_cut_is_found_by_the_anchors_that_the_server_has_sent_away() {
    let (data, away) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/anchors?of=owl", listener.local_addr().unwrap());
    let file = away.path().join("anchors.jsonl");
    let settings = [
        ("PVP_ANCHOR_FILE", file.to_str().unwrap()),
        ("PVP_ANCHOR_URL", &url),
        ("PVP_ANCHOR_SECONDS", "1"),
    ];
    let server = TestServer::start_with(data.path(), "127.0.0.1:0", &[], &settings, None).await;
    server.create_session("owl", json!({})).await;
    // What the webhook did not accept is sent again.
    let refused = take_post(&listener, "503 Service Unavailable").await;
    assert!(refused.contains(r#""session":"owl""#), "{refused}");
    let posted = take_post(&listener, "204 No Content").await;
    assert!(posted.contains(r#""session":"owl""#), "{posted}");
    let lines = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_until("an anchor in the file", || lines().ends_with('\n')).await;
    let ann = server.invite("ann", &["driver"], &[]);
    server.join("owl", &ann).await.sync().await;
    let seq = server
        .log("owl")
        .iter()
        .filter(|line| line["entry"].is_object())
        .count();
    // Stopping publishes what is left; the webhook is gone by then, which delays nothing.
    drop(listener);
    assert!(server.stop().await.success());
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let anchored = |text: &str| -> Vec<u64> {
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .map(|line| line["anchor"]["seq"].as_u64().unwrap())
            .collect()
    };
    let seqs = anchored(&lines());
    assert!(
        seqs.is_sorted() && seqs.last() >= Some(&(seq as u64)),
        "{seqs:?} {seq}"
    );

    let flags = ["--anchor", file.to_str().unwrap()];
    let path = data.path().to_str().unwrap();
    let verify = ["audit", "verify", "--data", path];
    let (good, output, problem) = run_pvp(&[&verify[..], &flags].concat());
    assert!(good, "{output} {problem}");
    let forger = Forger::open(data.path(), "owl");
    forger.write(&forger.entries()[..2]);
    forger.remove_checkpoints_after(2);
    let found = finding(data.path(), &flags);
    assert!(found.contains("an anchor was made at"), "{found}");
}

#[tokio::test]
async fn an_address_that_anchors_cannot_be_posted_to_is_refused_at_the_start() {
    let data = tempfile::tempdir().unwrap();
    let settings = data.path().join("pvp.toml");
    for url in [
        "https://example.com/",
        "http://me:secret@example.com/",
        "anchors",
    ] {
        std::fs::write(&settings, format!("anchor_url = \"{url}\"\n")).unwrap();
        let flags = ["--config", settings.to_str().unwrap()];
        let problem = refused_start(&data.path().join("data"), &flags);
        assert!(
            problem.contains("an address that begins with http://"),
            "{problem}"
        );
    }
}

/// A person's and an agent's machine, which have both seen the whole log of a session.
struct Witnesses {
    /// The directory of the server.
    data: tempfile::TempDir,
    /// Where the server listens, whenever it runs.
    address: String,
    /// The person.
    ann: TestUser,
    /// The person's machine.
    person: CliEnv,
    /// The agent's machine.
    machine: CliEnv,
    /// The agent's link.
    agent_link: String,
}

impl Witnesses {
    async fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let ann = approved_command(data.path(), &[]).await;
        let server = TestServer::start_in(data.path(), &[]).await;
        let address = server.address.clone();
        let link = |user: &TestUser| format!("http://{address}/?token={}&session=owl", user.token);
        let bot = server.invite("worker", &["driver"], &["--kind", "agent"]);
        let person = CliEnv::logged_in(&link(&ann)).await;
        let machine = CliEnv::new();
        std::fs::write(machine.workdir().join("script.toml"), "").unwrap();
        let witnesses = Self {
            agent_link: link(&bot),
            data,
            address: address.clone(),
            ann,
            person,
            machine,
        };
        witnesses.start_agent_once(&server).await;
        for words in [&["tail"][..], &["gates"], &["connect"]] {
            let output = witnesses.person.run(words).await;
            assert_eq!(
                (output.code, output.err.as_str()),
                (Some(0), ""),
                "{words:?}"
            );
        }
        let file = witnesses
            .person
            .home()
            .join(".local/state/pvp/heads/owl.json");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(server.stop().await.success());
        witnesses
    }

    fn agent_command(&self) -> [&str; 5] {
        [
            "agent",
            &self.agent_link,
            "--script",
            "script.toml",
            "--quiet",
        ]
    }

    /// Lets the agent join, and stops it when it has.
    async fn start_agent_once(&self, server: &TestServer) {
        let mut watcher = server.join("owl", &self.ann).await;
        let agent = self.machine.spawn(&self.agent_command());
        let joined = |message: &Value| {
            message["type"] == "participant.announce" && message["payload"]["name"] == "worker"
        };
        watcher.wait(joined).await;
        let heads = self.machine.home().join(".local/state/pvp/heads/owl.json");
        wait_until("the agent remembers the log", || heads.exists()).await;
        drop(agent);
    }

    async fn server(&self) -> TestServer {
        TestServer::start_on(self.data.path(), &self.address, &[]).await
    }

    /// What the person's commands say about the log; each must say the same.
    async fn told(&self, expected: &str) {
        for words in [&["tail"][..], &["gates"], &["connect"]] {
            let output = self.person.run(words).await;
            assert!(output.err.contains(expected), "{words:?}: {output:?}");
        }
        let mut screen = self.person.spawn(&["tui", "--plain"]);
        screen.wait_for_line(expected).await;
    }

    /// Runs the agent, which must refuse to go on; returns what it says.
    async fn agent_refusal(&self) -> String {
        self.machine
            .run(&self.agent_command())
            .await
            .expect_refused(&["agent"])
    }
}

#[tokio::test]
async fn nobody_who_saw_the_log_believes_a_shorter_one() {
    let witnesses = Witnesses::new().await;
    let forger = Forger::open(witnesses.data.path(), "owl");
    cut_before_vote(&forger);
    let left = forger.entries().len();
    // The server finds nothing wrong with it.
    assert_intact(witnesses.data.path());
    let server = witnesses.server().await;
    let expected = "WARNING: the log of session `owl` was cut";
    witnesses.told(expected).await;
    let refusal = witnesses.agent_refusal().await;
    assert!(refusal.contains(expected), "{refusal}");
    // It did not join, and said how to prove it.
    assert!(
        refusal.contains("pvp audit verify --since owl:"),
        "{refusal}"
    );
    let log = server.log("owl");
    let entries = log.iter().filter(|line| line["entry"].is_object());
    let granted = entries
        .filter(|line| line["entry"]["type"] == "tool.execute")
        .count();
    assert_eq!(granted, 0);
    assert!(forger.entries().len() >= left);
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn nobody_who_saw_the_log_believes_another_one_of_the_same_length() {
    let witnesses = Witnesses::new().await;
    let forger = Forger::open(witnesses.data.path(), "owl");
    let whole = forger.entries().len();
    cut_before_vote(&forger);
    let server = witnesses.server().await;
    let mut client = server.join("owl", &witnesses.ann).await;
    while forger.entries().len() <= whole {
        client.sync().await;
    }
    let expected = "WARNING: the log of session `owl` was rewritten";
    witnesses.told(expected).await;
    let refusal = witnesses.agent_refusal().await;
    assert!(refusal.contains(expected), "{refusal}");
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn a_restore_that_the_operator_declares_alarms_nobody_and_a_forger_cannot_declare_one() {
    let witnesses = Witnesses::new().await;
    let data = witnesses.data.path();
    let forger = Forger::open(data, "owl");
    cut_before_vote(&forger);
    let forged = format!(
        "{{\"at\":\"2099-01-01T00:00:00.000Z\",\"key\":\"{}\",\"signature\":\"{}\"}}\n",
        std::fs::read_to_string(data.join("server.pub"))
            .unwrap()
            .trim_end(),
        "ab".repeat(64)
    );
    std::fs::write(data.join("server.restores"), forged).unwrap();
    let server = witnesses.server().await;
    witnesses
        .told("WARNING: the log of session `owl` was cut")
        .await;
    let restored = ["server", "restored", "--data", data.to_str().unwrap()];
    let (good, _, problem) = run_pvp(&restored);
    assert!(!good && problem.contains("is in use"), "{problem}");
    assert!(server.stop().await.success());

    let (good, output, problem) = run_pvp(&restored);
    assert!(good, "{output} {problem}");
    let server = witnesses.server().await;
    let output = witnesses.person.run(&["tail"]).await;
    assert!(
        output.err.contains("was restored from a backup"),
        "{output:?}"
    );
    assert!(!output.err.contains("WARNING"), "{output:?}");
    // It is told once.
    let output = witnesses.person.run(&["tail"]).await;
    assert_eq!(output.err, "");
    witnesses.start_agent_once(&server).await;
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn a_rotated_key_and_another_server_at_the_same_address_alarm_nobody() {
    let witnesses = Witnesses::new().await;
    let path = witnesses.data.path().to_str().unwrap();
    assert!(run_pvp(&["server", "rotate-key", "--data", path]).0);
    let server = witnesses.server().await;
    let output = witnesses.person.run(&["tail"]).await;
    assert_eq!((output.code, output.err.as_str()), (Some(0), ""));
    assert!(server.stop().await.success());
    // The memory follows the key: the log is still compared.
    let forger = Forger::open(witnesses.data.path(), "owl");
    let entries = forger.entries();
    forger.write(&entries[..3]);
    forger.remove_checkpoints_after(3);
    let server = witnesses.server().await;
    let output = witnesses.person.run(&["tail"]).await;
    assert!(output.err.contains("WARNING: the log"), "{output:?}");
    assert!(server.stop().await.success());

    let other = tempfile::tempdir().unwrap();
    let server = TestServer::start_on(other.path(), &witnesses.address, &[]).await;
    server.create_session("owl", json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let link = format!("http://{}/?token={}&session=owl", server.address, dee.token);
    let output = witnesses.person.run(&["tail", "--link", &link]).await;
    assert!(!output.err.contains("WARNING"), "{output:?}");
    assert!(
        output.err.contains("has another key than before"),
        "{output:?}"
    );
    let output = witnesses.person.run(&["tail", "--link", &link]).await;
    assert!(!output.err.contains("WARNING"), "{output:?}");
    assert!(!output.err.contains("another key"), "{output:?}");
}
