//! `/sessions/{id}/messages`, where the published protocol has it: as published HTTP clients use it,
//! and with the same authority as below `/api`.

use serde_json::{Value, json};

use crate::fixture::{ApiFixture, SESSION, context_payload};
use crate::http_client::{HttpResponse, HttpTestClient};
use crate::support::{TestServer, TestUser, fresh_id};

/// The path of a session's messages, as published and as ours.
fn message_paths(session: &str) -> [String; 2] {
    [
        format!("/sessions/{session}/messages"),
        format!("/api/sessions/{session}/messages"),
    ]
}

/// A client that knows nothing but the published protocol: it fills in the whole envelope, has no
/// token, and reads on from the id of the last message that it received.
struct PublishedClient {
    /// Its HTTP client.
    http: HttpTestClient,
    /// The id that it claims.
    me: &'static str,
    /// The session that it is in.
    session: &'static str,
    /// The id of the last message that it received, empty before the first.
    last: String,
}

impl PublishedClient {
    async fn new(server: &TestServer, me: &'static str, session: &'static str) -> Self {
        Self {
            http: HttpTestClient::anonymous(server).await,
            me,
            session,
            last: String::new(),
        }
    }

    /// Posts one envelope, under an id that looks like a ULID.
    async fn post(&self, kind: &str, payload: Value) -> (String, HttpResponse) {
        let number: u64 = fresh_id("m").rsplit('-').next().unwrap().parse().unwrap();
        let id = format!("01JD3M{number:0>20}");
        let envelope = json!({
            "v": 1, "id": id, "ts": "2026-01-01T00:00:00.000Z", "session": self.session,
            "sender": self.me, "type": kind, "payload": payload,
        });
        let path = format!("/sessions/{}/messages", self.session);
        (id, self.http.post(&path, envelope).await)
    }

    async fn post_ok(&self, kind: &str, payload: Value) -> String {
        let (id, answer) = self.post(kind, payload).await;
        assert_eq!(answer.expect_ok()["id"], id.as_str());
        id
    }

    async fn join(&self, kind: &str, roles: Value) -> String {
        let participant = json!({ "id": self.me, "name": self.me, "type": kind, "roles": roles, "transport": "http" });
        let payload = json!({ "participant": participant, "supported_versions": [1] });
        self.post_ok("session.join", payload).await
    }

    /// Reads on until a message of this type comes.
    async fn wait_for(&mut self, kind: &str) -> Value {
        loop {
            let after = match self.last.as_str() {
                "" => "?wait=60".to_owned(),
                last => format!("?wait=60&after={last}"),
            };
            let path = format!("/sessions/{}/messages{after}", self.session);
            let page = self.http.get(&path).await.expect_ok();
            for message in page["messages"].as_array().unwrap() {
                self.last = message["id"].as_str().unwrap().to_owned();
                if message["type"] == kind {
                    return message.clone();
                }
            }
        }
    }
}

#[tokio::test]
async fn published_clients_create_join_propose_vote_and_report_over_http() {
    let server = TestServer::start(&["--open"]).await;
    let mut ann = PublishedClient::new(&server, "ann", "owl").await;
    let mut bot = PublishedClient::new(&server, "bot", "owl").await;
    let config = json!({
        "require_approval_for": ["shell_execute"], "default_gate_quorum": { "type": "any", "count": 1 },
        "allow_forks": true, "max_participants": 10, "ordering_mode": "causal",
        "on_participant_timeout": "skip", "heartbeat_interval_seconds": 30,
        "idle_timeout_seconds": 120, "away_timeout_seconds": 300,
    });
    let create = json!({ "name": "Owl", "config": config });
    let created = ann.post_ok("session.create", create).await;
    ann.join("human", json!(["driver", "approver"])).await;
    let joined = bot.join("agent", json!(["driver"])).await;
    assert_eq!(ann.wait_for("session.create").await["id"], created.as_str());
    bot.last = joined;
    let propose = json!({
        "tool_name": "shell", "agent": "bot", "risk_level": "medium", "description": "make a file",
        "arguments": { "command": "touch", "args": ["a"], "full_command": "touch a" },
        "requires_approval": true, "category": "shell_execute",
    });
    let proposal = bot.post_ok("tool.propose", propose).await;
    let request = ann.wait_for("gate.request").await;
    assert_eq!(request["payload"]["action_ref"], proposal.as_str());
    // What comes after the agent's own join is what it waits for, and nothing of before.
    assert_eq!(bot.wait_for("tool.propose").await["id"], proposal.as_str());
    let ballot = json!({ "gate": proposal, "approver": "ann" });
    ann.post_ok("gate.approve", ballot).await;
    let execute = bot.wait_for("tool.execute").await;
    assert_eq!(execute["payload"]["approved_by"], json!(["ann"]));
    // As large as published agents send it.
    let stdout = "x".repeat(3_000_000);
    let result = json!({
        "tool_proposal": proposal, "success": true, "duration_ms": 1,
        "result": { "exitCode": 0, "stdout": stdout, "stderr": "" },
    });
    bot.post_ok("tool.result", result).await;
    let told = ann.wait_for("tool.result").await;
    assert_eq!(told["payload"]["tool_proposal"], proposal.as_str());
    let announced = server.entries("owl").into_iter();
    let mut announced = announced.filter(|entry| entry["type"] == "participant.announce");
    assert!(announced.all(|entry| entry["payload"]["transport"] == "http"));

    // Nothing else may be as large, and nobody speaks for another.
    let (_, big) = ann
        .post(
            "prompt.draft",
            json!({ "content": "k".repeat(3_000_000), "contributors": [] }),
        )
        .await;
    assert_eq!(big.status, 413);
    let forged = json!({ "gate": proposal, "approver": "bot" });
    assert_eq!(ann.post("gate.approve", forged).await.1.status, 403);
    let again = ann.post("session.create", json!({ "config": {} })).await.1;
    assert_eq!(
        (again.status, again.json()["duplicate"].clone()),
        (200, json!(true))
    );
}

#[tokio::test]
async fn with_login_both_paths_need_a_token_and_obey_it() {
    let server = TestServer::start(&[]).await;
    server.create_session(SESSION, json!({})).await;
    let nobody = HttpTestClient::anonymous(&server).await;
    let bob = server.invite("bob", &["approver"], &["--session", SESSION]);
    let dee = server.invite("dee", &["driver"], &[]);
    let api = async |user: &TestUser| HttpTestClient::with_token(&server, user).await;
    let (bob_api, dee_api) = (api(&bob).await, api(&dee).await);
    let create = json!({ "type": "session.create", "payload": { "config": {} } });
    let note = json!({ "type": "context.add", "payload": context_payload("k") });
    for path in message_paths(SESSION) {
        assert_eq!(nobody.get(&path).await.status, 401, "{path}");
        assert_eq!(nobody.post(&path, note.clone()).await.status, 401, "{path}");
        bob_api.get(&path).await.expect_ok();
        assert_eq!(
            bob_api.post(&path, note.clone()).await.status,
            403,
            "{path}"
        );
        dee_api.post(&path, note.clone()).await.expect_ok();
    }
    for (number, path) in message_paths("new").into_iter().enumerate() {
        assert_eq!(bob_api.get(&path).await.status, 403, "{path}");
        assert_eq!(bob_api.post(&path, create.clone()).await.status, 403);
        let refused = nobody.post(&path, create.clone()).await;
        assert_eq!(refused.status, 401, "{path}");
        // Only the first creates it.
        let status = if number == 0 { 200 } else { 409 };
        assert_eq!(dee_api.post(&path, create.clone()).await.status, status);
    }
    let created = &server.entries("new")[0];
    assert_eq!(
        (&created["type"], &created["sender"]),
        (&json!("session.create"), &json!(dee.participant))
    );
}

#[tokio::test]
async fn reading_goes_on_after_a_seq_or_after_a_message() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let digits = json!({ "id": "2", "type": "context.add", "payload": context_payload("digits") });
    let [published, ours] = message_paths(SESSION);
    fixture.ann.api.post(&published, digits).await.expect_ok();
    let mut secret = context_payload("secret");
    secret["visible_to"] = json!([fixture.ann.id(), fixture.bot.id()]);
    let hidden = fixture.agent.send("context.add", secret).await;
    fixture.agent.expect_ack(&hidden).await;
    let log = fixture.log();
    for path in [&published, &ours] {
        for (index, entry) in log.iter().enumerate() {
            let id = entry["id"].as_str().unwrap();
            if id == "2" || id == hidden {
                continue;
            }
            let by_id = fixture.ann.api.get(&format!("{path}?after={id}")).await;
            let by_seq = format!("{path}?after={}", index + 1);
            let by_seq = fixture.ann.api.get(&by_seq).await.expect_ok();
            assert_eq!(by_id.expect_ok(), by_seq, "{path} {id}");
            assert_eq!(by_seq["messages"], json!(log[index + 1..]), "{path} {id}");
        }
        // A number is a sequence number, even where it is also an id.
        let page = fixture.ann.api.get(&format!("{path}?after=2")).await;
        assert_eq!(page.expect_ok()["messages"][0]["seq"], 3);
    }
    // A message that was never there, one that the caller may not see, one too long for a seq.
    let digits = "18446744073709551616";
    for id in ["01JD3M00000000000000000009", hidden.as_str(), digits] {
        for path in [&published, &ours] {
            let refused = fixture.eve.api.get(&format!("{path}?after={id}")).await;
            let (code, sentence) = refused.expect_refusal(400);
            assert_eq!(code, "INVALID_MESSAGE");
            assert_eq!(
                sentence,
                format!(
                    "`after`: none of the newest 8192 messages that you may read has the id `{id}`; give the `seq` of a message, or leave `after` out to read from the beginning"
                )
            );
        }
    }
    for text in ["", "-1", "..", "%20", "a%2Fb"] {
        let path = format!("{published}?after={text}");
        let (_, sentence) = fixture.eve.api.get(&path).await.expect_refusal(400);
        let begins = "`after` takes a seq or the id of a message: ";
        assert!(sentence.starts_with(begins), "{text}: {sentence}");
    }
    // The one who may see it reads on after it.
    let page = fixture.ann.api.get(&format!("{ours}?after={hidden}")).await;
    assert_eq!(page.expect_ok()["next"], log.len());
}

#[tokio::test]
async fn a_request_waits_for_what_comes_after_a_message() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let [published, _] = message_paths(SESSION);
    let last = fixture.log().pop().unwrap();
    let path = format!("{published}?wait=60&after={}", last["id"].as_str().unwrap());
    let waiting = fixture.eve.api.get(&path);
    let sending = fixture
        .agent
        .send_and_ack("context.add", context_payload("later"));
    let (page, _) = tokio::join!(waiting, sending);
    assert_eq!(page.expect_ok()["messages"][0]["payload"]["key"], "later");
}

#[tokio::test]
async fn a_message_that_is_too_old_to_be_found_by_its_id_is_found_by_its_seq() {
    let fast = [
        ("PVP_MESSAGES_PER_SECOND", "1000000"),
        ("PVP_MESSAGE_BURST", "1000000"),
    ];
    let mut fixture = ApiFixture::with_env(json!({}), &fast).await;
    let before = fixture.log();
    let mut sent = Vec::new();
    for _ in 0..8192 {
        let payload = context_payload("same");
        sent.push(fixture.agent.send("context.add", payload).await);
        if sent.len() % 512 == 0 {
            for id in sent.iter().rev().take(512).rev() {
                fixture.agent.expect_ack(id).await;
            }
        }
    }
    let [published, _] = message_paths(SESSION);
    let read = async |after: &str| {
        let path = format!("{published}?limit=1&after={after}");
        fixture.eve.api.get(&path).await
    };
    let oldest = before.last().unwrap();
    let refused = read(oldest["id"].as_str().unwrap()).await;
    assert!(refused.expect_refusal(400).1.contains("newest 8192"));
    let seq = oldest["seq"].as_u64().unwrap();
    let page = read(&seq.to_string()).await.expect_ok();
    assert_eq!(page["messages"][0]["id"], sent[0].as_str());
    let page = read(&sent[0]).await.expect_ok();
    assert_eq!(page["messages"][0]["id"], sent[1].as_str());
}
