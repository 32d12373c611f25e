//! The HTTP API of a server in open mode.

use serde_json::json;

use crate::fixture::{SESSION, context_payload};
use crate::http_client::{HttpTestClient, join_payload, log_entries, stored_log};
use crate::support::{TestClient, TestServer, TestUser};

fn claimed_user(id: &str, roles: &[&str], agent: bool) -> TestUser {
    TestUser {
        token: String::new(),
        participant: id.to_owned(),
        roles: roles.iter().map(|&role| role.to_owned()).collect(),
        agent,
    }
}

fn envelope(user: &str, kind: &str, payload: serde_json::Value) -> serde_json::Value {
    json!({ "sender": user, "type": kind, "payload": payload })
}

#[tokio::test]
async fn anyone_joins_sends_and_votes_under_the_id_they_claim() {
    let server = TestServer::start(&["--open"]).await;
    let api = HttpTestClient::anonymous(&server).await;
    let (ann, eve) = (
        claimed_user("ann", &["driver", "approver"], false),
        claimed_user("eve", &["observer"], false),
    );
    let bot = claimed_user("bot", &["driver"], true);
    // Nobody can send to a session that does not exist, or before joining it.
    let add = envelope("ann", "context.add", context_payload("early"));
    assert_eq!(
        api.send_envelope(SESSION, add.clone())
            .await
            .expect_refusal(404)
            .1,
        "there is no session `room`"
    );
    let mut agent = TestClient::connect(&server.address, None, "bot").await;
    agent.join(SESSION, &bot, json!({})).await;
    let before = stored_log(&server, SESSION);
    let refused = api
        .send_envelope(SESSION, add.clone())
        .await
        .expect_refusal(403);
    assert_eq!(
        refused,
        (
            "UNAUTHORIZED".to_owned(),
            "join the session first: send `session.join`".to_owned()
        )
    );
    let nameless = api
        .send_envelope(
            SESSION,
            json!({ "type": "context.add", "payload": context_payload("k") }),
        )
        .await;
    assert_eq!(
        nameless.expect_refusal(400).1,
        "not a PVP message: missing field `sender`"
    );
    let system = api
        .send_envelope(
            SESSION,
            envelope(
                "system",
                "session.join",
                join_payload(&claimed_user("system", &["admin"], false)),
            ),
        )
        .await;
    assert_eq!(
        system.expect_refusal(403).1,
        "`system` is reserved for the server"
    );
    let other = api
        .send_envelope(SESSION, envelope("ann", "session.join", join_payload(&eve)))
        .await
        .expect_refusal(403);
    assert_eq!(
        other.1,
        "`participant.id` is `eve`, but you are `ann`; name yourself"
    );
    assert_eq!(stored_log(&server, SESSION), before);

    for user in [&ann, &eve] {
        api.send_envelope(
            SESSION,
            envelope(&user.participant, "session.join", join_payload(user)),
        )
        .await
        .expect_ok();
    }
    api.send_envelope(SESSION, add).await.expect_ok();
    let proposal = agent.propose("touch a").await;
    let ballot = envelope(
        "ann",
        "gate.approve",
        json!({ "gate": proposal, "approver": "ann" }),
    );
    api.send_envelope(SESSION, ballot).await.expect_ok();
    let gate = api
        .get(&format!("/api/sessions/{SESSION}/gates/{proposal}"))
        .await
        .expect_ok();
    assert_eq!(gate["status"], "approved");
    let execute = agent.wait_for("tool.execute").await;
    assert!(execute["payload"]["grant"]["nonce"].is_string());
    let forged = envelope(
        "eve",
        "gate.approve",
        json!({ "gate": proposal, "approver": "ann" }),
    );
    assert_eq!(api.send_envelope(SESSION, forged).await.status, 403);
    agent.sync().await;
    assert_eq!(
        api.read_whole_log(SESSION, 100).await,
        log_entries(&agent.received)
    );
}

#[tokio::test]
async fn an_anonymous_reader_sees_what_everyone_may_see() {
    let server = TestServer::start(&["--open"]).await;
    let api = HttpTestClient::anonymous(&server).await;
    let (ann, bot) = (
        claimed_user("ann", &["driver", "approver"], false),
        claimed_user("bot", &["driver"], true),
    );
    let mut agent = TestClient::connect(&server.address, None, "bot").await;
    agent.join(SESSION, &bot, json!({})).await;
    let mut socket = TestClient::connect(&server.address, None, "ann").await;
    socket.join(SESSION, &ann, json!({})).await;
    let mut secret = context_payload("plum");
    secret["visible_to"] = json!(["ann"]);
    socket.send_and_ack("context.add", secret).await;
    let start = json!({ "agent": "bot", "prompt_ref": "kiwi", "visible_to": "approvers_only" });
    agent.send_and_ack("thinking.start", start).await;
    let proposal = agent.propose("touch a").await;
    socket.approve(&proposal).await;
    agent.wait_for("tool.execute").await;
    socket.sync().await;
    let mut public = log_entries(&socket.received);
    public.retain(|message| {
        let text = message.to_string();
        !text.contains("plum") && !text.contains("kiwi")
    });
    assert_eq!(public.len() + 2, stored_log(&server, SESSION).len());
    assert_eq!(api.read_whole_log(SESSION, 100).await, public);
    let transcript = api
        .get(&format!("/sessions/{SESSION}/transcript"))
        .await
        .expect_ok();
    assert_eq!(transcript["messages"], json!(public));
    let gates = api.get("/api/gates").await.expect_ok();
    assert_eq!(gates["gates"], json!([]));
    let sessions = api.get("/api/sessions").await.expect_ok();
    assert_eq!(sessions["sessions"][0]["session"], SESSION);
}

#[tokio::test]
async fn routes_that_always_need_a_token_need_one_on_an_open_server_too() {
    let server = TestServer::start(&["--open"]).await;
    let api = HttpTestClient::anonymous(&server).await;
    let mut agent = TestClient::connect(&server.address, None, "bot").await;
    agent
        .join(SESSION, &claimed_user("bot", &["driver"], true), json!({}))
        .await;
    let proposal = agent.propose("touch a").await;
    let before = stored_log(&server, SESSION);
    let gate = format!("/api/sessions/{SESSION}/gates/{proposal}");
    let edit = json!({ "arguments": {}, "digest": "0".repeat(64) });
    for (method, path, body) in [
        ("POST", "/api/sessions".to_owned(), Some(json!({}))),
        (
            "POST",
            "/api/invites".to_owned(),
            Some(json!({ "name": "x", "roles": ["admin"] })),
        ),
        ("GET", "/api/me".to_owned(), None),
        ("DELETE", "/api/tokens/0123".to_owned(), None),
        (
            "POST",
            format!("{gate}/vote"),
            Some(json!({ "vote": "approve" })),
        ),
        ("POST", format!("{gate}/amend"), Some(edit)),
    ] {
        let refused = api.request(method, &path, body).await.expect_refusal(401);
        let sentence = "this requires a token; ask for an invitation";
        assert_eq!(
            refused,
            ("UNAUTHORIZED".to_owned(), sentence.to_owned()),
            "{method} {path}"
        );
    }
    assert_eq!(stored_log(&server, SESSION), before);
    let ann = server.invite("ann", &["approver"], &[]);
    let voted = HttpTestClient::with_token(&server, &ann)
        .await
        .vote(SESSION, &proposal, json!({ "vote": "approve" }))
        .await
        .expect_ok();
    assert_eq!(voted["gate"]["status"], "approved");
    let mut wrong = ann.clone();
    wrong.token.pop();
    assert_eq!(
        HttpTestClient::with_token(&server, &wrong)
            .await
            .get("/api/gates")
            .await
            .status,
        401
    );
}
