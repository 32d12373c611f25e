//! Wanted: one person who counts as two.

use serde_json::{Value, json};

use crate::support::audit::export_log;
use crate::support::session::next_gate;
use crate::support::{TestClient, TestServer, TestUser, http_get, http_request};

const SESSION: &str = "owl";

async fn request(
    server: &TestServer,
    user: &TestUser,
    method: &str,
    path: &str,
    body: Value,
) -> (u16, Value) {
    let bearer = format!("Bearer {}", user.token);
    let headers = [("Authorization", bearer.as_str())];
    let body = match body.is_null() {
        true => String::new(),
        false => body.to_string(),
    };
    let (status, body) = http_request(&server.address, method, path, &headers, &body).await;
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

/// Invites somebody over the API, as this admin.
async fn invites(server: &TestServer, admin: &TestUser, name: &str) -> TestUser {
    let invite = json!({ "name": name, "roles": ["approver"], "session": SESSION });
    let (status, made) = request(server, admin, "POST", "/api/invites", invite).await;
    assert_eq!(status, 201, "{made}");
    TestUser {
        token: made["token"].as_str().unwrap().to_owned(),
        participant: made["participant"].as_str().unwrap().to_owned(),
        roles: vec!["approver".to_owned()],
        agent: false,
    }
}

/// A session whose gates need two, with an agent, an admin of the session and an approver.
async fn session_of_two() -> (TestServer, TestClient, TestUser, TestUser) {
    let server = TestServer::start(&[]).await;
    let config = json!({
        "gate_timeout_seconds": 0, "default_gate_quorum": { "type": "any", "count": 2 },
    });
    server.create_session(SESSION, config).await;
    let mallory = server.invite("mallory", &["admin"], &["--session", SESSION]);
    let bob = server.invite("bob", &["approver"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let agent = server.join(SESSION, &bot).await;
    (server, agent, mallory, bob)
}

fn granted(server: &TestServer) -> bool {
    let log = export_log(&server.data, SESSION);
    log.iter().any(|entry| entry["type"] == "tool.execute")
}

#[tokio::test]
async fn an_admin_makes_no_token_for_somebody_else() {
    let (server, _agent, mallory, bob) = session_of_two().await;
    let mut client = server.join(SESSION, &bob).await;
    client.sync().await;
    for participant in [bob.participant.as_str(), "admin"] {
        let invite = json!({
            "name": "bob", "roles": ["approver"], "session": SESSION, "participant": participant,
        });
        let (status, refused) = request(&server, &mallory, "POST", "/api/invites", invite).await;
        assert_eq!(status, 403, "{refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("exists already"), "{message}");
    }
    // For herself, for somebody new, and by the operator: as before.
    for participant in [mallory.participant.as_str(), "somebody-new"] {
        let invite = json!({
            "name": "m", "roles": ["observer"], "session": SESSION, "participant": participant,
        });
        let (status, made) = request(&server, &mallory, "POST", "/api/invites", invite).await;
        assert_eq!(status, 201, "{made}");
    }
    server.invite("bob", &["approver"], &["--participant", &bob.participant]);
}

#[tokio::test]
async fn a_puppet_does_not_count_beside_who_invited_it() {
    let (server, mut agent, mallory, bob) = session_of_two().await;
    let puppet = invites(&server, &mallory, "puppet").await;
    let mut mallory_client = server.join(SESSION, &mallory).await;
    let mut puppet_client = server.join(SESSION, &puppet).await;
    let announced = mallory_client
        .wait(|message| {
            message["type"] == "participant.announce"
                && message["payload"]["id"] == puppet.participant.as_str()
        })
        .await;
    let inviter = &announced["payload"]["invited_by"];
    assert_eq!(inviter, mallory.participant.as_str(), "it is in the record");
    agent.propose("make").await;
    let (gate, _) = next_gate(&mut mallory_client).await;
    assert_eq!(mallory_client.approve(&gate).await["type"], "session.ack");
    assert_eq!(puppet_client.approve(&gate).await["type"], "session.ack");
    assert!(!granted(&server));
    let path = format!("/api/sessions/{SESSION}/gates/{gate}");
    let (_, shown) = request(&server, &bob, "GET", &path, Value::Null).await;
    assert_eq!(shown["open"]["received"], 1, "{shown}");
    let expected = json!({ puppet.participant.as_str(): mallory.participant });
    assert_eq!(shown["open"]["not_counted"], expected);
    assert_eq!(shown["open"]["invited_by"], expected);

    let mut bob_client = server.join(SESSION, &bob).await;
    assert_eq!(bob_client.approve(&gate).await["type"], "session.ack");
    assert!(granted(&server), "bob is another person");
    let log = export_log(&server.data, SESSION);
    let grant = log.iter().find(|entry| entry["type"] == "tool.execute");
    let approvals = grant.unwrap()["payload"]["grant"]["approvals"].to_string();
    assert!(!approvals.contains(&puppet.participant), "{approvals}");
}

#[tokio::test]
async fn a_puppet_of_a_puppet_does_not_count_either() {
    let (server, mut agent, mallory, _bob) = session_of_two().await;
    let invite = json!({ "name": "second", "roles": ["admin"], "session": SESSION });
    let (_, second) = request(&server, &mallory, "POST", "/api/invites", invite).await;
    let second = TestUser {
        token: second["token"].as_str().unwrap().to_owned(),
        participant: second["participant"].as_str().unwrap().to_owned(),
        roles: vec!["admin".to_owned()],
        agent: false,
    };
    let third = invites(&server, &second, "third").await;
    let mut clients = Vec::new();
    for user in [&mallory, &second, &third] {
        clients.push(server.join(SESSION, user).await);
    }
    agent.propose("make").await;
    for client in [0, 2] {
        let (gate, _) = next_gate(&mut clients[client]).await;
        assert_eq!(clients[client].approve(&gate).await["type"], "session.ack");
    }
    assert!(!granted(&server));
}

#[tokio::test]
async fn a_puppet_that_makes_itself_another_token_is_still_a_puppet() {
    let (server, mut agent, mallory, _bob) = session_of_two().await;
    let mut mallory_client = server.join(SESSION, &mallory).await;
    let mut puppets = Vec::new();
    for name in ["one", "two"] {
        let invite = json!({ "name": name, "roles": ["admin"], "session": SESSION });
        let (_, made) = request(&server, &mallory, "POST", "/api/invites", invite).await;
        let mut puppet = TestUser {
            token: made["token"].as_str().unwrap().to_owned(),
            participant: made["participant"].as_str().unwrap().to_owned(),
            roles: vec!["admin".to_owned()],
            agent: false,
        };
        let again = json!({
            "name": name, "roles": ["admin"], "session": SESSION, "participant": puppet.participant,
        });
        let (status, made) = request(&server, &puppet, "POST", "/api/invites", again).await;
        assert_eq!(status, 201, "{made}");
        puppet.token = made["token"].as_str().unwrap().to_owned();
        puppets.push(server.join(SESSION, &puppet).await);
    }
    agent.propose("make").await;
    let (gate, _) = next_gate(&mut mallory_client).await;
    assert_eq!(mallory_client.approve(&gate).await["type"], "session.ack");
    for puppet in &mut puppets {
        assert_eq!(puppet.approve(&gate).await["type"], "session.ack");
    }
    assert!(!granted(&server), "mallory invited both");
}

#[tokio::test]
async fn a_write_of_ones_own_passes_no_quorum_of_two() {
    let (server, _agent, mallory, _bob) = session_of_two().await;
    let mut client = server.join(SESSION, &mallory).await;
    let id = client
        .send("shell.exec", json!({ "command": "touch mine" }))
        .await;
    client.expect_ack(&id).await;
    let (_, line) = next_gate(&mut client).await;
    assert_eq!(line, "touch mine");
    assert!(!granted(&server), "it waits for two others");
    let id = client.send("shell.exec", json!({ "command": "ls" })).await;
    client.expect_ack(&id).await;
    client.wait_for("tool.execute").await;
}

#[tokio::test]
async fn an_edit_does_not_reach_an_agent_that_knows_no_edits() {
    let (server, _agent, mallory, bob) = session_of_two().await;
    let old = server.invite("old", &["driver"], &["--kind", "agent"]);
    let mut agent = server.connect(&old).await;
    let mut announce = old.announce();
    announce.as_object_mut().unwrap().remove("executor");
    agent
        .join(SESSION, &old, json!({ "participant": announce }))
        .await;
    let mut client = server.join(SESSION, &mallory).await;
    agent.propose("make").await;
    let (gate, _) = next_gate(&mut client).await;
    let path = format!("/api/sessions/{SESSION}/gates/{gate}");
    let (_, shown) = request(&server, &bob, "GET", &path, Value::Null).await;
    let edit = json!({
        "gate": gate, "arguments": { "full_command": "make -n" },
        "digest": shown["open"]["assessment"]["digest"],
    });
    let id = client.send("gate.amend", edit).await;
    let refused = client.expect_refusal(&id).await;
    assert_eq!(refused["code"], "INVALID_STATE");
    let log = export_log(&server.data, SESSION);
    assert!(!log.iter().any(|entry| entry["type"] == "gate.amend"));
    let (status, _) = http_get(&server.address, "/health", &[]).await;
    assert_eq!(status, 200);
}
