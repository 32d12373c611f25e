//! The history of commands and their output.

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::fixture::{ApiFixture, ApiUser, SESSION, approve_vote, reject_vote};
use crate::http_client::HttpTestClient;
use crate::support::{TestServer, short_id};

async fn read_output(api: &HttpTestClient, reference: &str, query: &str) -> Value {
    api.get(&format!(
        "/api/sessions/{SESSION}/outputs/{reference}{query}"
    ))
    .await
    .expect_ok()
}

fn numbered_lines(page: &Value) -> Vec<String> {
    let lines = page["lines"].as_array().unwrap().iter();
    lines
        .map(|line| format!("{} {}", line["number"], line["text"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn output_is_read_by_lines() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let proposal = fixture.propose("touch a").await;
    let eve = fixture.eve.api.clone();
    let empty = json!({ "ref": proposal, "lines": [], "total_lines": 0, "total_bytes": 0, "finished": false, "cut": false });
    assert_eq!(read_output(&eve, &proposal, "").await, empty);
    fixture
        .bob
        .api
        .vote(SESSION, &proposal, approve_vote())
        .await
        .expect_ok();
    for (stream, text) in [
        ("stdout", "one\ntw"),
        ("stderr", "oops\n"),
        ("stdout", "o ☃\nthree\n"),
        ("stdout", "four"),
    ] {
        fixture.send_output(&proposal, stream, text).await;
    }
    let line = |number: u64, stream: &str, text: &str| json!({ "number": number, "stream": stream, "text": text });
    let whole = json!({
        "ref": proposal, "total_lines": 5, "total_bytes": 27, "finished": false, "cut": false,
        "lines": [line(0, "stdout", "one"), line(1, "stderr", "oops"), line(2, "stdout", "two ☃"), line(3, "stdout", "three"), line(4, "stdout", "four")],
    });
    assert_eq!(read_output(&eve, &proposal, "").await, whole);
    fixture.send_result(&proposal, 0).await;
    let mut finished = whole.clone();
    finished["finished"] = json!(true);
    let huge = u64::MAX;
    for query in [
        "",
        "?format=json",
        "?offset=0&limit=10000",
        "?limit=18446744073709551615",
        "?head=18446744073709551615",
        "?tail=99999",
    ] {
        assert_eq!(
            read_output(&eve, &proposal, query).await,
            finished,
            "{query}"
        );
    }
    for (query, expected) in [
        ("?offset=1&limit=2", vec!["1 oops", "2 two ☃"]),
        ("?offset=4", vec!["4 four"]),
        ("?offset=5", vec![]),
        (&format!("?offset={huge}&limit={huge}"), vec![]),
        ("?head=2", vec!["0 one", "1 oops"]),
        ("?tail=2", vec!["3 three", "4 four"]),
        ("?head=0", vec![]),
        ("?tail=0", vec![]),
        ("?grep=o&head=2", vec!["0 one", "1 oops"]),
        ("?grep=o&tail=1", vec!["4 four"]),
        ("?grep=%E2%98%83", vec!["2 two ☃"]),
        ("?grep=two+%E2%98%83", vec!["2 two ☃"]),
        ("?grep=nothing", vec![]),
        ("?stream=stderr", vec!["0 oops"]),
        ("?stream=stdout&grep=t", vec!["1 two ☃", "2 three"]),
    ] {
        assert_eq!(
            numbered_lines(&read_output(&eve, &proposal, query).await),
            expected,
            "{query}"
        );
    }
    let text = eve
        .get(&format!(
            "/api/sessions/{SESSION}/outputs/{proposal}?format=text&head=3"
        ))
        .await;
    assert_eq!(text.text, "one\noops\ntwo ☃\n");
    assert_eq!(text.headers["content-type"], "text/plain; charset=utf-8");
    for (query, sentence) in [
        (
            "?head=1&tail=1",
            "ask for `head` or for `tail`, not for both",
        ),
        (
            "?head=1&offset=1",
            "`head` and `tail` do not go with `offset` and `limit`",
        ),
        (
            "?tail=1&limit=1",
            "`head` and `tail` do not go with `offset` and `limit`",
        ),
    ] {
        let refused = eve
            .get(&format!(
                "/api/sessions/{SESSION}/outputs/{proposal}{query}"
            ))
            .await
            .expect_refusal(400);
        assert_eq!(refused, ("INVALID_MESSAGE".to_owned(), sentence.to_owned()));
    }
    // The socket returns the same page.
    let read = fixture
        .agent
        .send("output.read", json!({ "ref": proposal, "tail": 2 }))
        .await;
    let received = fixture
        .agent
        .wait(|message| message["ref"] == read.as_str())
        .await;
    assert_eq!(
        received["payload"],
        read_output(&eve, &proposal, "?tail=2").await
    );
}

/// A session in which commands have ended in every possible way.
struct HistoryFixture {
    fixture: ApiFixture,
    /// The commands in the order they were proposed.
    commands: Vec<&'static str>,
    ids: Vec<String>,
}

async fn history_fixture() -> HistoryFixture {
    let mut fixture = ApiFixture::new(
        json!({ "default_gate_quorum": { "type": "any", "count": 2 }, "gate_timeout_seconds": 0 }),
    )
    .await;
    let mut ids = Vec::new();
    // Approved by two, and failed.
    ids.push(fixture.propose("touch a").await);
    let ballot = json!({ "vote": "approve", "comment": "go" });
    fixture
        .ann
        .api
        .vote(SESSION, &ids[0], ballot)
        .await
        .expect_ok();
    fixture
        .bob
        .api
        .vote(SESSION, &ids[0], approve_vote())
        .await
        .expect_ok();
    fixture.send_output(&ids[0], "stderr", "no space\n").await;
    fixture.send_result(&ids[0], 1).await;
    // Edited, then rejected.
    ids.push(fixture.propose("touch b").await);
    let digest = fixture.gate(&ids[1]).await["open"]["assessment"]["digest"].clone();
    let edit = json!({ "arguments": { "command": "sh", "args": [], "full_command": "rm -r b", "cwd": "/tmp" }, "digest": digest });
    let path = format!("/api/sessions/{SESSION}/gates/{}/amend", ids[1]);
    let digest = fixture.bob.api.post(&path, edit).await.expect_ok()["gate"]["open"]["assessment"]
        ["digest"]
        .clone();
    let mut ballot = reject_vote("too much");
    ballot["digest"] = digest;
    fixture
        .ann
        .api
        .vote(SESSION, &ids[1], ballot)
        .await
        .expect_ok();
    // A running read, a person's own finished command, one waiting, one blocked, one withdrawn.
    ids.push(fixture.propose("ls -la").await);
    let own = json!({ "type": "shell.exec", "payload": { "command": "cat c" } });
    ids.push(
        fixture
            .ann
            .api
            .send_envelope(SESSION, own)
            .await
            .expect_ok()["id"]
            .as_str()
            .unwrap()
            .to_owned(),
    );
    let own = ids[3].clone();
    fixture.send_result(&own, 0).await;
    ids.push(fixture.propose("touch d").await);
    let blocked = fixture.agent.proposal("rm -rf /");
    let blocked = json!({ "id": "blocked-1", "type": "tool.propose", "payload": blocked });
    let answer = fixture
        .bot
        .api
        .send_envelope(SESSION, blocked)
        .await
        .expect_refusal(409);
    assert_eq!(answer.0, "GATE_FAILED");
    ids.push("blocked-1".to_owned());
    ids.push(fixture.propose("touch e").await);
    fixture
        .agent
        .send_and_ack("tool.cancel", json!({ "tool_proposal": ids[6] }))
        .await;
    let all = vec![
        "touch a", "rm -r b", "ls -la", "cat c", "touch d", "rm -rf /", "touch e",
    ];
    HistoryFixture {
        fixture,
        commands: all,
        ids,
    }
}

async fn get_history(api: &HttpTestClient, query: &str) -> Value {
    api.get(&format!("/api/sessions/{SESSION}/history{query}"))
        .await
        .expect_ok()
}

fn command_lines(page: &Value) -> Vec<&str> {
    let commands = page["commands"].as_array().unwrap().iter();
    commands
        .map(|command| command["command"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn history_shows_the_outcome_of_every_command() {
    let past = history_fixture().await;
    let fixture = &past.fixture;
    let log = fixture.log();
    let entry = |id: &str| log.iter().find(|entry| entry["id"] == id).unwrap();
    let about = |kind: &str, id: &str| {
        let fits =
            |entry: &&Value| entry["type"] == kind && entry["payload"]["tool_proposal"] == id;
        log.iter().find(fits).unwrap()
    };
    let record = |id: &str,
                  proposer: &str,
                  description: &str,
                  rule: &str,
                  category: &str,
                  risk: &str,
                  status: &str| {
        json!({
            "tool_proposal": id, "short_id": short_id(id), "seq": entry(id)["seq"], "at": entry(id)["ts"], "proposer": proposer,
            "description": description, "category": category, "risk": risk, "rule": rule, "status": status,
            "approvals": [],
        })
    };
    let bot = fixture.bot.id();
    let with = |mut record: Value, more: Value| {
        record
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        record
    };
    let result = |id: &str, exit_code: i64| {
        let at = &about("tool.result", id)["ts"];
        json!({ "at": at, "success": exit_code == 0, "exit_code": exit_code, "duration_ms": 3, "outcome": "known" })
    };
    let ids = &past.ids;
    let resolved = |id: &str| about("gate.resolve", id)["payload"].clone();
    let proposed_before = |id: &str| {
        let assessment = &entry(id)["payload"]["assessment"];
        let edit = log
            .iter()
            .find(|entry| entry["type"] == "gate.amend")
            .unwrap();
        json!({
            "command": "touch b", "category": "write", "risk": "low", "digest": assessment["digest"],
            "edited_by": fixture.bob.id(), "edited_at": edit["ts"],
        })
    };
    let write =
        |id: &str, status: &str| record(id, bot, "a test", "files.touch", "write", "low", status);
    let expected = json!([
        with(
            write(&ids[6], "cancelled"),
            json!({ "command": "touch e", "resolution": resolved(&ids[6]) })
        ),
        with(
            record(
                &ids[5],
                bot,
                "a test",
                "blocked.rm-root",
                "blocked",
                "critical",
                "blocked"
            ),
            json!({ "command": "rm -rf /" })
        ),
        with(write(&ids[4], "waiting"), json!({ "command": "touch d" })),
        with(
            record(
                &ids[3],
                fixture.ann.id(),
                "a person's own command",
                "read.cat",
                "read",
                "safe",
                "finished"
            ),
            json!({ "command": "cat c", "executor": bot, "cleared_by": "direct", "result": result(&ids[3], 0) }),
        ),
        with(
            record(&ids[2], bot, "a test", "read.ls", "read", "safe", "running"),
            json!({ "command": "ls -la", "executor": bot, "cleared_by": "read" }),
        ),
        with(
            record(
                &ids[1],
                bot,
                "a test",
                "files.rm-recursive",
                "destructive",
                "high",
                "rejected"
            ),
            json!({
                "command": "rm -r b", "cwd": "/tmp", "edited_by": fixture.bob.id(),
                "resolution": resolved(&ids[1]), "earlier": [proposed_before(&ids[1])],
            }),
        ),
        with(
            write(&ids[0], "finished"),
            json!({
                "command": "touch a", "executor": bot, "cleared_by": "quorum", "resolution": resolved(&ids[0]),
                "approvals": resolved(&ids[0])["approvals"], "result": result(&ids[0], 1),
            }),
        ),
    ]);
    let whole = get_history(&fixture.eve.api, "").await;
    assert_eq!(whole["next"], Value::Null);
    assert_eq!(whole["commands"], expected);
    assert_eq!(whole["commands"][5]["resolution"]["reason"], "too much");
    let mut approvers: Vec<_> = whole["commands"][6]["approvals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["participant"].as_str().unwrap())
        .collect();
    approvers.sort_unstable();
    let mut both = [fixture.ann.id(), fixture.bob.id()];
    both.sort_unstable();
    assert_eq!(approvers, both);
}

#[tokio::test]
async fn history_is_searched_paged_and_survives_a_restart() {
    let past = history_fixture().await;
    let newest: Vec<_> = past.commands.iter().rev().copied().collect();
    let eve = &past.fixture.eve.api;
    let before = get_history(eve, "").await;
    assert_eq!(command_lines(&before), newest);
    for (query, expected) in [
        ("?status=waiting", vec!["touch d"]),
        ("?status=running", vec!["ls -la"]),
        ("?status=blocked", vec!["rm -rf /"]),
        ("?status=rejected", vec!["rm -r b"]),
        ("?status=cancelled", vec!["touch e"]),
        ("?status=finished", vec!["cat c", "touch a"]),
        ("?status=timed_out", vec![]),
        ("?grep=rm", vec!["rm -rf /", "rm -r b"]),
        ("?grep=c&status=finished&limit=1", vec!["cat c"]),
        // What was proposed is found too, by what it was before it was edited.
        ("?grep=touch%20b", vec!["rm -r b"]),
        ("?before=0", vec![]),
        ("?limit=0", vec!["touch e"]),
        ("?limit=99999", newest.clone()),
        (&format!("?before={}", u64::MAX), newest.clone()),
    ] {
        assert_eq!(
            command_lines(&get_history(eve, query).await),
            expected,
            "{query}"
        );
    }
    for (limit, grep, expected) in [
        (1, "", newest.clone()),
        (3, "", newest.clone()),
        (1, "&grep=rm", vec!["rm -rf /", "rm -r b"]),
    ] {
        let mut found = Vec::new();
        let mut before = String::new();
        loop {
            let page = get_history(eve, &format!("?limit={limit}{grep}{before}")).await;
            found.extend(command_lines(&page).into_iter().map(str::to_owned));
            match page["next"].as_u64() {
                Some(next) => before = format!("&before={next}"),
                None => break,
            }
        }
        assert_eq!(found, expected);
    }
    let outputs = read_output(eve, &past.ids[0], "").await;
    let restarted = past.restart(|_| {}).await;
    assert_eq!(restarted.history().await, before);
    assert_eq!(restarted.output().await, outputs);
}

/// The server after a kill and a restart.
struct RestartedServer {
    _server: TestServer,
    eve: ApiUser,
    ids: Vec<String>,
}

impl HistoryFixture {
    /// Kills the server, lets the database be changed, and starts it again.
    async fn restart(self, change: impl FnOnce(&Connection)) -> RestartedServer {
        let ApiFixture {
            mut server,
            agent,
            eve,
            ..
        } = self.fixture;
        drop(agent);
        server.kill_9().await;
        change(&Connection::open(server.data.join("pvp.sqlite3")).unwrap());
        let restarted = TestServer::start_in(&server.data, &[]).await;
        RestartedServer {
            eve: ApiUser::with_user(&restarted, eve.user).await,
            _server: restarted,
            ids: self.ids,
        }
    }
}

impl RestartedServer {
    async fn history(&self) -> Value {
        get_history(&self.eve.api, "").await
    }

    async fn output(&self) -> Value {
        read_output(&self.eve.api, &self.ids[0], "").await
    }
}

/// Takes back what the last migrations of the schema did.
const TO_THE_SCHEMA_BEFORE: &str = "
    DROP TABLE channels;
    DROP TABLE notification_preferences;
    DROP TABLE notices;
    DROP TABLE vote_links;
    DROP TABLE contents;
    DROP TABLE join_codes;
    ALTER TABLE tokens DROP COLUMN used_at;
    DROP TABLE tombstones;
    DROP INDEX sessions_by_maker;
    DROP INDEX sessions_by_end;
    ALTER TABLE sessions DROP COLUMN made_by;
    ALTER TABLE sessions DROP COLUMN log_bytes;
    ALTER TABLE sessions DROP COLUMN context_bytes;
    DROP TABLE snapshots;
    DROP TABLE proposals;
    DROP TABLE outputs;
    ALTER TABLE sessions DROP COLUMN indexed;
    ALTER TABLE checkpoints DROP COLUMN snapshot;
    PRAGMA user_version = 2;
";

#[tokio::test]
async fn a_log_from_before_there_were_indexes_is_indexed_when_it_is_loaded() {
    let past = history_fixture().await;
    let eve = &past.fixture.eve.api;
    let before = get_history(eve, "").await;
    let output = read_output(eve, &past.ids[0], "").await;
    let restarted = past
        .restart(|database| database.execute_batch(TO_THE_SCHEMA_BEFORE).unwrap())
        .await;
    assert_eq!(restarted.history().await, before);
    assert_eq!(restarted.output().await, output);
}

#[tokio::test]
async fn an_edited_index_shows_nothing_that_the_log_does_not_say() {
    let edits = [
        "UPDATE proposals SET data = replace(data, 'Finished', 'Rejected')",
        "UPDATE proposals SET data = replace(data, 'Rejected', 'Finished')",
        "UPDATE proposals SET data = 'nothing'",
        "UPDATE proposals SET data = replace(data, 'blocked-1', 'blocked-2')",
    ];
    for edit in edits {
        let past = history_fixture().await;
        let restarted = past.restart(|database| database.execute_batch(edit).unwrap());
        let restarted = restarted.await;
        let path = format!("/api/sessions/{SESSION}/history");
        restarted.eve.api.get(&path).await.expect_refusal(503);
    }
    let edits = [
        "UPDATE outputs SET data = replace(data, '\"bytes\":9', '\"bytes\":8')",
        "UPDATE outputs SET data = replace(data, '\"chunks\":0', '\"chunks\":7')",
        "UPDATE outputs SET data = replace(data, '\"bytes\":0', '\"bytes\":18446744073709551615')",
        "UPDATE outputs SET data = replace(data, 'stderr', 'stdout')",
        "DELETE FROM outputs",
    ];
    for edit in edits {
        let past = history_fixture().await;
        let restarted = past.restart(|database| {
            assert_eq!(database.execute(edit, []).unwrap(), 1, "{edit}");
        });
        let restarted = restarted.await;
        let path = format!("/api/sessions/{SESSION}/outputs/{}", restarted.ids[0]);
        restarted.eve.api.get(&path).await.expect_refusal(503);
    }
}
