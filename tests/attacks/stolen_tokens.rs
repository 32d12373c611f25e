//! Wanted: more than the token allows, or for longer.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::audit::export_log;
use crate::support::session::next_gate;
use crate::support::{TestClient, TestServer, TestUser, http_get, http_request, run_pvp};

const SESSION: &str = "owl";

/// A session with an agent, and an approver who has two tokens: one that lets her approve and run
/// commands, and one that lets her watch.
struct TwoTokens {
    server: TestServer,
    agent: TestClient,
    ann: TestUser,
    ann_watching: TestUser,
}

impl TwoTokens {
    async fn new(config: Value) -> Self {
        let server = TestServer::start(&[]).await;
        let mut all = json!({ "gate_timeout_seconds": 0 });
        all.as_object_mut()
            .unwrap()
            .extend(config.as_object().unwrap().clone());
        server.create_session(SESSION, all).await;
        let ann = server.invite("ann", &["approver", "driver"], &[]);
        let same = ["--participant", ann.participant.as_str()];
        let ann_watching = server.invite("ann", &["observer"], &same);
        let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
        let agent = server.join(SESSION, &bot).await;
        Self {
            server,
            agent,
            ann,
            ann_watching,
        }
    }

    fn granted(&self) -> bool {
        let log = export_log(&self.server.data, SESSION);
        log.iter().any(|entry| entry["type"] == "tool.execute")
    }

    async fn post(&self, user: &TestUser, path: &str, body: Value) -> (u16, String) {
        let bearer = format!("Bearer {}", user.token);
        let headers = [("Authorization", bearer.as_str())];
        let path = format!("/api/sessions/{SESSION}{path}");
        http_request(
            &self.server.address,
            "POST",
            &path,
            &headers,
            &body.to_string(),
        )
        .await
    }
}

/// The public part of a token, by which it is revoked.
fn token_id(user: &TestUser) -> &str {
    user.token.split('_').nth(1).unwrap()
}

#[tokio::test]
async fn a_watching_token_of_an_approver_approves_nothing() {
    let mut fixture = TwoTokens::new(json!({})).await;
    let mut ann = fixture.server.join(SESSION, &fixture.ann).await;
    ann.sync().await;
    let proposal = fixture.agent.propose("make").await;
    let (gate, _) = next_gate(&mut ann).await;

    // By a socket that joins with it, which leaves her other device as it was.
    let mut thief = fixture.server.connect(&fixture.ann_watching).await;
    let welcome = thief.join(SESSION, &fixture.ann_watching, json!({})).await;
    assert_eq!(welcome["payload"]["roles"], json!(["observer"]));
    assert_eq!(welcome["payload"]["capabilities"], json!([]));
    for (kind, payload) in [
        (
            "gate.approve",
            json!({ "gate": gate, "approver": fixture.ann.participant }),
        ),
        (
            "tool.approve",
            json!({ "tool_proposal": proposal, "approver": fixture.ann.participant }),
        ),
        (
            "gate.reject",
            json!({ "gate": gate, "rejector": fixture.ann.participant, "reason": "r" }),
        ),
        ("shell.exec", json!({ "command": "touch stolen" })),
        (
            "policy.allow",
            json!({ "prefix": ["make"], "expires_at": "2100-01-01T00:00:00Z" }),
        ),
        ("session.leave", json!({})),
    ] {
        let id = thief.send(kind, payload).await;
        assert_eq!(
            thief.expect_refusal(&id).await["code"],
            "UNAUTHORIZED",
            "{kind}"
        );
    }
    // By HTTP, which speaks for someone who has joined.
    let vote = json!({ "vote": "approve" });
    let path = format!("/gates/{gate}/vote");
    let (status, body) = fixture
        .post(&fixture.ann_watching, &path, vote.clone())
        .await;
    assert_eq!(status, 403, "{body}");
    let exec = json!({ "type": "shell.exec", "payload": { "command": "touch stolen" } });
    let (status, body) = fixture.post(&fixture.ann_watching, "/messages", exec).await;
    assert_eq!(status, 403, "{body}");
    assert!(!fixture.granted());

    let (status, body) = fixture.post(&fixture.ann, &path, vote).await;
    assert_eq!(status, 200, "{body}");
    assert!(fixture.granted(), "her own device still may");
}

#[tokio::test]
async fn an_agents_token_with_a_persons_id_votes_on_nothing() {
    let mut fixture = TwoTokens::new(json!({})).await;
    let mut ann = fixture.server.join(SESSION, &fixture.ann).await;
    ann.sync().await;
    let same = [
        "--kind",
        "agent",
        "--participant",
        fixture.ann.participant.as_str(),
    ];
    let puppet = fixture.server.invite("ann", &["approver", "admin"], &same);
    fixture.agent.propose("make").await;
    let (gate, _) = next_gate(&mut ann).await;
    let path = format!("/gates/{gate}/vote");
    let (status, body) = fixture
        .post(&puppet, &path, json!({ "vote": "approve" }))
        .await;
    assert_eq!(status, 403, "{body}");
    let mut thief = fixture.server.connect(&puppet).await;
    thief.session = SESSION.to_owned();
    let join = json!({ "participant": puppet.announce(), "supported_versions": [1] });
    let id = thief.send("session.join", join).await;
    assert_eq!(thief.expect_refusal(&id).await["code"], "UNAUTHORIZED");
    assert!(!fixture.granted());
}

#[tokio::test]
async fn the_vote_of_a_revoked_token_helps_nobody() {
    let two = json!({ "default_gate_quorum": { "type": "any", "count": 2 } });
    let mut fixture = TwoTokens::new(two).await;
    let bob = fixture.server.invite("bob", &["approver"], &[]);
    let mut bob = fixture.server.join(SESSION, &bob).await;
    let mut thief = fixture.server.join(SESSION, &fixture.ann).await;
    thief.sync().await;
    fixture.agent.propose("make").await;
    let (gate, _) = next_gate(&mut thief).await;
    assert_eq!(thief.approve(&gate).await["type"], "session.ack");

    // By the API, and at once: whatever the socket sends after the answer counts no more.
    let admin = format!("Bearer {}", fixture.server.admin().token);
    let path = format!("/api/tokens/{}", token_id(&fixture.ann));
    let headers = [("Authorization", admin.as_str())];
    let (status, body) = http_request(&fixture.server.address, "DELETE", &path, &headers, "").await;
    assert_eq!(status, 204, "{body}");
    let change = bob.wait_for("participant.role_change").await;
    assert_eq!(change["sender"], "system");
    assert_eq!(change["payload"]["votes_void"], true);
    assert_eq!(
        change["payload"]["new_roles"],
        json!(["observer"]),
        "her other token"
    );
    assert_eq!(thief.wait_closed().await, Some(1008));
    let (gate, _) = next_gate(&mut bob).await;
    assert_eq!(bob.approve(&gate).await["type"], "session.ack");
    assert!(!fixture.granted(), "one of two");
}

#[tokio::test]
async fn a_token_that_another_process_revokes_ends_its_socket_and_its_waiting_request() {
    let fixture = TwoTokens::new(json!({})).await;
    let mut thief = fixture.server.join(SESSION, &fixture.ann).await;
    thief.sync().await;
    let head = export_log(&fixture.server.data, SESSION).len();
    let bearer = format!("Bearer {}", fixture.ann.token);
    let address = fixture.server.address.clone();
    let waiting = |path: String| {
        let (address, bearer) = (address.clone(), bearer.clone());
        tokio::spawn(async move {
            http_get(&address, &path, &[("Authorization", bearer.as_str())]).await
        })
    };
    let messages = waiting(format!(
        "/api/sessions/{SESSION}/messages?after={head}&wait=60"
    ));
    let version = http_get(
        &address,
        "/api/gates",
        &[("Authorization", bearer.as_str())],
    )
    .await;
    let version: Value = serde_json::from_str(&version.1).unwrap();
    let gates = waiting(format!("/api/gates?after={}&wait=60", version["version"]));
    let data = fixture.server.data.to_str().unwrap();
    let (good, _, problem) = run_pvp(&["tokens", "revoke", "--data", data, token_id(&fixture.ann)]);
    assert!(good, "{problem}");
    let limit = Duration::from_secs(50);
    for request in [messages, gates] {
        let answer = tokio::time::timeout(limit, request).await;
        let (status, body) = answer.expect("it ends before its time").unwrap();
        assert_eq!(status, 401, "{body}");
    }
    assert_eq!(thief.wait_closed().await, Some(1008));
}

#[tokio::test]
async fn the_vote_of_a_token_that_expires_helps_nobody() {
    let two = json!({ "default_gate_quorum": { "type": "any", "count": 2 } });
    let mut fixture = TwoTokens::new(two).await;
    let bob = fixture.server.invite("bob", &["approver"], &[]);
    let mut bob = fixture.server.join(SESSION, &bob).await;
    let brief = fixture
        .server
        .invite("eve", &["approver"], &["--expires", "5s"]);
    let mut eve = fixture.server.join(SESSION, &brief).await;
    eve.sync().await;
    fixture.agent.propose("make").await;
    let (gate, _) = next_gate(&mut eve).await;
    assert_eq!(eve.approve(&gate).await["type"], "session.ack");
    let change = bob.wait_for("participant.role_change").await;
    assert_eq!(change["payload"]["reason"], "a token has expired");
    assert_eq!(change["payload"]["new_roles"], json!([]));
    assert_eq!(eve.wait_closed().await, Some(1008));
    assert_eq!(bob.approve(&gate).await["type"], "session.ack");
    assert!(!fixture.granted(), "one of two");
}

#[tokio::test]
async fn a_vote_is_void_too_if_its_token_was_revoked_while_the_server_was_down() {
    let two = json!({ "default_gate_quorum": { "type": "any", "count": 2 } });
    let data = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(data.path(), &[]).await;
    let config =
        json!({ "gate_timeout_seconds": 0, "default_gate_quorum": two["default_gate_quorum"] });
    server.create_session(SESSION, config).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let bob = server.invite("bob", &["approver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut agent = server.join(SESSION, &bot).await;
    let mut thief = server.join(SESSION, &ann).await;
    agent.propose("make").await;
    let (gate, _) = next_gate(&mut thief).await;
    assert_eq!(thief.approve(&gate).await["type"], "session.ack");
    server.kill_9().await;
    let path = data.path().to_str().unwrap();
    let (good, _, problem) = run_pvp(&["tokens", "revoke", "--data", path, token_id(&ann)]);
    assert!(good, "{problem}");
    let server = TestServer::start_in(data.path(), &[]).await;
    let mut bob = server.join(SESSION, &bob).await;
    assert_eq!(bob.approve(&gate).await["type"], "session.ack");
    let log = export_log(&server.data, SESSION);
    assert!(!log.iter().any(|entry| entry["type"] == "tool.execute"));
}

#[tokio::test]
async fn a_token_store_that_cannot_be_read_is_no_reason_to_give_up() {
    let fixture = TwoTokens::new(json!({})).await;
    // The row is there and damaged: its holder is not told that there is no such token.
    let database = fixture.server.data.join("pvp.sqlite3");
    let edit = rusqlite::Connection::open(database).unwrap();
    edit.execute(
        "UPDATE tokens SET data = 'garbage' WHERE id = ?1",
        [token_id(&fixture.ann)],
    )
    .unwrap();
    let bearer = format!("Bearer {}", fixture.ann.token);
    let headers = [("Authorization", bearer.as_str())];
    let (status, body) = http_get(&fixture.server.address, "/api/me", &headers).await;
    assert_eq!(status, 503, "{body}");
    let upgrade = TestClient::try_connect(&fixture.server.address, "/ws", &headers, "ann").await;
    let Err(tokio_tungstenite::tungstenite::Error::Http(answer)) = upgrade else {
        panic!("it was let in");
    };
    assert_eq!(answer.status(), 503, "an agent tries again");
}

#[tokio::test]
async fn a_vote_after_the_revocation_has_returned_counts_for_nothing() {
    let mut fixture = TwoTokens::new(json!({})).await;
    let mut thief = fixture.server.join(SESSION, &fixture.ann).await;
    thief.sync().await;
    fixture.agent.propose("make").await;
    let (gate, _) = next_gate(&mut thief).await;
    let data = fixture.server.data.to_str().unwrap();
    let (good, _, problem) = run_pvp(&["tokens", "revoke", "--data", data, token_id(&fixture.ann)]);
    assert!(good, "{problem}");
    let vote = json!({ "gate": gate, "approver": fixture.ann.participant });
    thief.try_send("gate.approve", vote).await;
    assert_eq!(thief.wait_closed().await, Some(1008));
    assert!(!fixture.granted());
}

#[tokio::test]
async fn an_allow_rule_of_a_revoked_token_allows_nothing() {
    let mut fixture = TwoTokens::new(json!({})).await;
    // Her other token could approve, too: only the rule of the revoked one is void.
    let same = ["--participant", fixture.ann.participant.as_str()];
    fixture.server.invite("ann", &["approver"], &same);
    let mut thief = fixture.server.join(SESSION, &fixture.ann).await;
    let hour = pvp_clock::now().plus_seconds(3600);
    let rule = json!({ "prefix": ["mkdir"], "directory": "*", "expires_at": hour });
    thief.send_and_ack("policy.allow", rule.clone()).await;
    fixture.agent.propose("mkdir one").await;
    thief.wait_for("tool.execute").await;
    let bob = fixture.server.invite("bob", &["approver"], &[]);
    let mut bob = fixture.server.join(SESSION, &bob).await;
    let data = fixture.server.data.to_str().unwrap();
    let (good, _, problem) = run_pvp(&["tokens", "revoke", "--data", data, token_id(&fixture.ann)]);
    assert!(good, "{problem}");
    let revoked = bob.wait_for("policy.revoke").await;
    assert_eq!(revoked["sender"], "system");
    fixture.agent.propose("mkdir two").await;
    let (_, line) = next_gate(&mut bob).await;
    assert_eq!(line, "mkdir two");
}

#[tokio::test]
async fn an_allow_rule_is_void_too_if_its_token_was_revoked_while_the_server_was_down() {
    let data = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(data.path(), &[]).await;
    server.create_session(SESSION, json!({})).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut thief = server.join(SESSION, &ann).await;
    let hour = pvp_clock::now().plus_seconds(3600);
    let rule = json!({ "prefix": ["mkdir"], "directory": "*", "expires_at": hour });
    thief.send_and_ack("policy.allow", rule).await;
    server.kill_9().await;
    let path = data.path().to_str().unwrap();
    let (good, _, problem) = run_pvp(&["tokens", "revoke", "--data", path, token_id(&ann)]);
    assert!(good, "{problem}");
    let server = TestServer::start_in(data.path(), &[]).await;
    let mut agent = server.join(SESSION, &bot).await;
    agent.propose("mkdir one").await;
    agent.wait_for("gate.request").await;
    let log = export_log(&server.data, SESSION);
    assert!(!log.iter().any(|entry| entry["type"] == "tool.execute"));
}

#[tokio::test]
async fn a_token_that_makes_another_for_its_holder_gains_no_time() {
    let server = TestServer::start(&[]).await;
    let brief = server.invite("mallory", &["admin"], &["--expires", "1h"]);
    let invite = |user: &TestUser| {
        let bearer = format!("Bearer {}", user.token);
        let own = json!({
            "name": "m", "roles": ["admin", "approver"], "participant": user.participant,
        });
        let address = server.address.clone();
        async move {
            let headers = [("Authorization", bearer.as_str())];
            let own = own.to_string();
            let made = http_request(&address, "POST", "/api/invites", &headers, &own);
            let (status, made) = made.await;
            assert_eq!(status, 201, "{made}");
            serde_json::from_str::<Value>(&made).unwrap()
        }
    };
    let made = invite(&brief).await;
    assert!(made["expires"].is_string(), "as the first: {made}");
    let child = TestUser {
        token: made["token"].as_str().unwrap().to_owned(),
        ..brief.clone()
    };
    let grandchild = invite(&child).await;
    let data = server.data.to_str().unwrap();
    let (good, _, problem) = run_pvp(&["tokens", "revoke", "--data", data, token_id(&brief)]);
    assert!(good, "{problem}");
    for token in [&child.token, grandchild["token"].as_str().unwrap()] {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", bearer.as_str())];
        let (status, _) = http_get(&server.address, "/api/me", &headers).await;
        assert_eq!(status, 401, "it ended with the one that made it");
    }
}
