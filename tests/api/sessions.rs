//! Creating and listing sessions.

use serde_json::{Value, json};

use crate::fixture::{ApiUser, SESSION};
use crate::http_client::{HttpTestClient, stored_log};
use crate::support::TestServer;

fn session_ids(list: &Value) -> Vec<&str> {
    let sessions = list["sessions"].as_array().unwrap().iter();
    sessions
        .map(|session| session["session"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn sessions_are_listed_newest_first() {
    let server = TestServer::start(&[]).await;
    let admin = HttpTestClient::with_token(&server, &server.admin()).await;
    assert_eq!(
        admin.get("/api/sessions").await.expect_ok(),
        json!({ "sessions": [], "more": false })
    );
    for session in ["b", "a", "d", "c"] {
        let made = admin.post(
            "/api/sessions",
            json!({ "session": session, "name": session.to_uppercase() }),
        );
        assert_eq!(
            made.await.expect_status(201),
            json!({ "session": session, "seq": 1 })
        );
    }
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    server.join("b", &bot).await.propose("touch a").await;
    let end = json!({ "reason": "done", "final_state": "completed" });
    admin
        .send_message("a", "session.end", end)
        .await
        .expect_ok();
    let list = async |query: &str| {
        admin
            .get(&format!("/api/sessions{query}"))
            .await
            .expect_ok()
    };
    let whole = list("").await;
    assert_eq!(session_ids(&whole), ["c", "d", "a", "b"]);
    let log = stored_log(&server, "b");
    let oldest = &whole["sessions"][3];
    let (created, updated) = (&oldest["created_at"], &oldest["updated_at"]);
    assert_eq!(
        *oldest,
        json!({
            "session": "b", "name": "B", "created_at": created, "updated_at": updated,
            "head": log.len(), "open_gates": 1, "ended": false,
        })
    );
    // The times when they were written, which is not before they were decided.
    let (first, last) = (log.first().unwrap(), log.last().unwrap());
    assert!(created.as_str() >= first["ts"].as_str() && created.as_str() < updated.as_str());
    assert!(updated.as_str() >= last["ts"].as_str());
    for (query, expected, more) in [
        ("?limit=2", vec!["c", "d"], true),
        ("?limit=2&before=d", vec!["a", "b"], false),
        ("?before=b", vec![], false),
        ("?limit=0", vec!["c"], true),
        (
            "?limit=18446744073709551615",
            vec!["c", "d", "a", "b"],
            false,
        ),
        ("?ended=true", vec!["a"], false),
        ("?ended=false", vec!["c", "d", "b"], false),
        ("?ended=false&limit=1&before=c", vec!["d"], true),
        ("?ended=false&before=a", vec!["b"], false),
    ] {
        let found = list(query).await;
        assert_eq!(
            (session_ids(&found), &found["more"]),
            (expected, &json!(more)),
            "{query}"
        );
    }
    let bound = server.invite("pat", &["approver"], &["--session", "d"]);
    let bound = HttpTestClient::with_token(&server, &bound).await;
    assert_eq!(
        session_ids(&bound.get("/api/sessions").await.expect_ok()),
        ["d"]
    );
    // It does not learn which other sessions exist.
    for before in ["c", "nothing"] {
        let refused = bound
            .get(&format!("/api/sessions?before={before}"))
            .await
            .expect_refusal(400);
        assert_eq!(refused.1, "`before` names no session that you may see");
    }
}

#[tokio::test]
async fn a_session_is_created_as_requested() {
    let server = TestServer::start(&[]).await;
    let admin = HttpTestClient::with_token(&server, &server.admin()).await;
    let config = json!({ "default_gate_quorum": { "type": "any", "count": 2 }, "four_eyes": true });
    let made = admin
        .post(
            "/api/sessions",
            json!({ "name": "Two eyes more", "config": config }),
        )
        .await
        .expect_status(201);
    let id = made["session"].as_str().unwrap();
    let state = admin.get(&format!("/api/sessions/{id}")).await.expect_ok();
    assert_eq!(
        (&state["name"], &state["config"]["four_eyes"]),
        (&json!("Two eyes more"), &json!(true))
    );
    assert_eq!(
        state["config"]["default_gate_quorum"],
        config["default_gate_quorum"]
    );
    let log = stored_log(&server, id);
    assert_eq!(
        (&log[0]["type"], &log[0]["sender"]),
        (&json!("session.create"), &json!("admin"))
    );
    let other = admin
        .post("/api/sessions", json!({}))
        .await
        .expect_status(201);
    assert_ne!(other["session"], made["session"]);

    let driver = ApiUser::invite(&server, "dan", &["driver"]).await;
    driver
        .api
        .post("/api/sessions", json!({ "session": SESSION }))
        .await
        .expect_status(201);
    let before = (
        stored_log(&server, SESSION),
        admin.get("/api/sessions").await.expect_ok(),
    );
    let taken = admin
        .post(
            "/api/sessions",
            json!({ "session": SESSION, "name": "other" }),
        )
        .await
        .expect_refusal(409);
    let sentence = "session `room` exists already; join it, or create one with another id";
    assert_eq!(taken, ("INVALID_STATE".to_owned(), sentence.to_owned()));
    for (body, sentence) in [
        (
            json!({ "config": { "max_participants": 0 } }),
            "`max_participants` is 0; use 1 to 200",
        ),
        (
            json!({ "config": { "profile": "read" } }),
            "`profile` for approved commands is `none` or `workspace`",
        ),
        (
            json!({ "config": { "default_gate_quorum": { "type": "any", "count": 0 } } }),
            "`default_gate_quorum`: ",
        ),
        (
            json!({ "config": { "max_participants": "many" } }),
            "config: `max_participants`: invalid type",
        ),
        (
            json!({ "config": { "default_gate_quorm": { "type": "any", "count": 2 } } }),
            "there is no session setting `default_gate_quorm`; did you mean `default_gate_quorum`?",
        ),
        (
            json!({ "config": { "quorum": 2 } }),
            "there is no session setting `quorum`; did you mean `default_gate_quorum`?",
        ),
        (
            json!({ "confg": {} }),
            "unknown field `confg`; did you mean `config`?",
        ),
        (json!({ "config": [] }), "config: invalid type"),
        (
            json!({ "session": "a b" }),
            "session: an id has ' ' at position 1",
        ),
        (json!({ "session": "../etc" }), "session: an id"),
        (json!({ "session": "" }), "session: "),
        (json!({ "session": "x".repeat(129) }), "session: "),
        (json!({ "name": 7 }), "name: invalid type"),
        (json!({ "id": "x" }), "unknown field `id`"),
    ] {
        let refused = admin
            .post("/api/sessions", body.clone())
            .await
            .expect_refusal(400);
        assert_eq!(refused.0, "INVALID_MESSAGE");
        assert!(refused.1.contains(sentence), "{body}: {}", refused.1);
    }
    let may_not = "creating a session requires a token with the role driver or admin that is not bound to a session";
    let bound = server.invite("bea", &["admin"], &["--session", SESSION]);
    for user in [
        ApiUser::invite(&server, "obi", &["observer", "approver", "navigator"]).await,
        ApiUser::with_user(&server, bound).await,
    ] {
        let refused = user
            .api
            .post("/api/sessions", json!({ "session": "mine" }))
            .await
            .expect_refusal(403);
        assert_eq!(refused, ("UNAUTHORIZED".to_owned(), may_not.to_owned()));
    }
    assert_eq!(
        (
            stored_log(&server, SESSION),
            admin.get("/api/sessions").await.expect_ok()
        ),
        before
    );
}

#[tokio::test]
async fn the_number_of_sessions_is_limited() {
    let server = TestServer::start_with_env(&[], &[("PVP_SESSIONS", "2")]).await;
    let admin = HttpTestClient::with_token(&server, &server.admin()).await;
    for _ in 0..2 {
        admin
            .post("/api/sessions", json!({}))
            .await
            .expect_status(201);
    }
    let refused = admin.post("/api/sessions", json!({})).await;
    let sentence = "too many sessions on this server: at most 2".to_owned();
    assert_eq!(
        refused.expect_refusal(429),
        ("RATE_LIMITED".to_owned(), sentence)
    );
    assert_eq!(refused.json()["recoverable"], true);
}
