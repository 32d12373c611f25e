//! Messages over HTTP and on the WebSocket are decided and delivered alike.

use serde_json::{Value, json};

use crate::fixture::{ApiFixture, ApiUser, SESSION, approve_vote, context_payload, message_ids};
use crate::http_client::{HttpTestClient, join_payload, log_entries, stored_log};
use crate::support::{TestServer, fresh_id, short_id};

#[tokio::test]
async fn a_vote_on_the_socket_and_one_over_http_pass_a_gate_together() {
    let server = TestServer::start(&[]).await;
    let config = json!({ "default_gate_quorum": { "type": "any", "count": 2 } });
    server.create_session(SESSION, config).await;
    let people = ["ann", "bob", "cid"].map(|name| server.invite(name, &["approver"], &[]));
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut agent = server.join(SESSION, &bot).await;
    let mut ann = server.join(SESSION, &people[0]).await;
    let mut cid = server.join(SESSION, &people[2]).await;
    let proposal = agent.propose("touch a").await;
    let gate = ann.wait_for("gate.request").await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    ann.approve(&gate).await;

    // Bob has not joined: his vote joins him, and counts.
    let bob = ApiUser::with_user(&server, people[1].clone()).await;
    let path = format!("/api/sessions/{SESSION}/gates/{gate}");
    let open = bob.api.get(&path).await.expect_ok();
    assert_eq!(
        (&open["status"], &open["open"]["received"]),
        (&json!("open"), &json!(1))
    );
    assert_eq!(open["open"]["may_vote"], true, "though he is not there yet");
    let ballot = json!({ "vote": "approve", "comment": "fine", "id": "bobs-vote" });
    let passed = bob.api.vote(SESSION, &gate, ballot).await.expect_ok();
    let resolution = &passed["gate"]["resolution"];
    let mut gate_after = passed["gate"].clone();
    let command = gate_after.as_object_mut().unwrap().remove("command");
    assert_eq!(command.unwrap()["status"], "running");
    let expected = json!({
        "session": SESSION, "tool_proposal": proposal, "status": "approved",
        "short_id": short_id(&proposal), "resolution": resolution,
    });
    assert_eq!(gate_after, expected);
    assert_eq!(passed["ack"]["id"], "bobs-vote");
    let approvals: Vec<_> = resolution["approvals"].as_array().unwrap().iter().collect();
    let by: Vec<_> = approvals
        .iter()
        .map(|one| one["participant"].as_str().unwrap())
        .collect();
    let mut both = [people[0].participant.as_str(), bob.id()];
    both.sort_unstable();
    assert_eq!(by, both);
    let comments: Vec<_> = approvals
        .iter()
        .filter_map(|one| one["comment"].as_str())
        .collect();
    assert_eq!(comments, ["fine"]);

    // Everyone received the same entries in the same order, on the socket and over HTTP.
    let received = cid.wait_for("gate.resolve").await;
    assert_eq!(received["payload"], *resolution);
    assert!(agent.wait_for("tool.execute").await["payload"]["grant"]["nonce"].is_string());
    for client in [&mut agent, &mut ann, &mut cid] {
        client.sync().await;
    }
    let log = stored_log(&server, SESSION);
    let seen = log_entries(&cid.received);
    assert_eq!(seen, log);
    assert_eq!(bob.api.read_whole_log(SESSION, 1000).await, log);
    assert_eq!(log_entries(&ann.received), log[..log.len() - 1]);
    assert_eq!(log_entries(&agent.received), log[..log.len() - 2]);
    let joined = log
        .iter()
        .position(|entry| entry["sender"] == bob.id())
        .unwrap();
    assert_eq!(log[joined]["type"], "participant.announce");
    assert_eq!(log[joined]["payload"]["transport"], "http");
    assert_eq!(
        (&log[joined + 1]["id"], &log[joined + 1]["type"]),
        (&json!("bobs-vote"), &json!("gate.approve"))
    );
}

#[tokio::test]
async fn one_person_over_http_and_socket_has_one_vote() {
    let mut fixture =
        ApiFixture::new(json!({ "default_gate_quorum": { "type": "any", "count": 2 } })).await;
    let mut socket = fixture.server.join(SESSION, &fixture.ann.user).await;
    let proposal = fixture.propose("touch a").await;
    socket.approve(&proposal).await;
    for _ in 0..2 {
        let answer = fixture
            .ann
            .api
            .vote(SESSION, &proposal, approve_vote())
            .await
            .expect_ok();
        assert_eq!(answer["gate"]["open"]["received"], 1);
    }
    // Repeated under its id, it is not logged again.
    let ballot = json!({ "vote": "approve", "id": "same" });
    let first = fixture
        .ann
        .api
        .vote(SESSION, &proposal, ballot.clone())
        .await
        .expect_ok();
    let before = fixture.log();
    let again = fixture
        .ann
        .api
        .vote(SESSION, &proposal, ballot)
        .await
        .expect_ok();
    let expected = json!({ "id": "same", "seq": first["ack"]["seq"], "duplicate": true });
    assert_eq!((&again["ack"], &again["gate"]), (&expected, &first["gate"]));
    assert_eq!(fixture.log(), before);
    let passed = fixture
        .bob
        .api
        .vote(SESSION, &proposal, approve_vote())
        .await
        .expect_ok();
    assert_eq!(passed["gate"]["status"], "approved");
    assert_eq!(
        passed["gate"]["resolution"]["approvals"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn message_ids_are_shared_between_http_and_socket() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let mut socket = fixture.server.join(SESSION, &fixture.ann.user).await;
    let envelope = socket.envelope("context.add", context_payload("one"));
    socket.send_raw(&envelope.to_string()).await;
    let seq = socket
        .expect_ack(envelope["id"].as_str().unwrap())
        .await
        .unwrap();
    let again = fixture
        .ann
        .api
        .send_envelope(SESSION, envelope.clone())
        .await
        .expect_ok();
    assert_eq!(
        again,
        json!({ "id": envelope["id"], "seq": seq, "duplicate": true })
    );
    let other =
        json!({ "id": envelope["id"], "type": "context.add", "payload": context_payload("two") });
    assert_eq!(
        fixture.ann.api.send_envelope(SESSION, other).await.status,
        400
    );
    // Sent over HTTP first, and by someone else.
    let mut envelope = socket.envelope("context.add", context_payload("three"));
    let sent = fixture
        .ann
        .api
        .send_envelope(SESSION, envelope.clone())
        .await
        .expect_ok();
    assert_eq!(sent, json!({ "id": envelope["id"], "seq": sent["seq"] }));
    socket.send_raw(&envelope.to_string()).await;
    let answer = socket.answer(envelope["id"].as_str().unwrap()).await;
    assert_eq!(
        answer["payload"],
        json!({ "id": envelope["id"], "seq": sent["seq"], "duplicate": true })
    );
    envelope["sender"] = json!(fixture.bot.id());
    assert_eq!(
        fixture
            .bot
            .api
            .send_envelope(SESSION, envelope)
            .await
            .status,
        400
    );
    let adds = fixture
        .log()
        .into_iter()
        .filter(|entry| entry["type"] == "context.add");
    let keys: Vec<_> = adds
        .map(|entry| entry["payload"]["key"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(keys[keys.len() - 2..], ["one", "three"]);
    fixture.agent.sync().await;
}

#[tokio::test]
async fn roles_come_from_the_token_and_nowhere_else() {
    let server = TestServer::start(&[]).await;
    server.create_session(SESSION, json!({})).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut agent = server.join(SESSION, &bot).await;
    let proposal = agent.propose("touch a").await;
    let eve = ApiUser::invite(&server, "eve", &["observer"]).await;
    let before = stored_log(&server, SESSION);
    let mut claim = join_payload(&eve.user);
    claim["participant"]["roles"] = json!(["approver"]);
    let refused = eve
        .api
        .send_message(SESSION, "session.join", claim)
        .await
        .expect_refusal(403);
    assert_eq!(refused.1, "your token does not allow approver");
    let mut claim = join_payload(&eve.user);
    claim["participant"]["type"] = json!("agent");
    let refused = eve
        .api
        .send_message(SESSION, "session.join", claim)
        .await
        .expect_refusal(403);
    assert_eq!(refused.1, "you are known here as `human`");
    let mut claim = join_payload(&eve.user);
    claim["participant"]["id"] = json!(bot.participant);
    assert_eq!(
        eve.api
            .send_message(SESSION, "session.join", claim)
            .await
            .status,
        403
    );
    let mut claim = join_payload(&eve.user);
    claim["supported_versions"] = json!([2]);
    let refused = eve
        .api
        .send_message(SESSION, "session.join", claim)
        .await
        .expect_refusal(400);
    assert_eq!(refused.1, "`supported_versions` must include 1");
    assert_eq!(stored_log(&server, SESSION), before);
    // An approver who joined with fewer roles has only those over HTTP too.
    let bob = ApiUser::invite(&server, "bob", &["approver"]).await;
    let mut claim = join_payload(&bob.user);
    claim["participant"]["roles"] = json!(["observer"]);
    assert_eq!(
        bob.api
            .send_message(SESSION, "session.join", claim.clone())
            .await
            .status,
        403,
        "not a role of the token"
    );
    let both = ApiUser::invite(&server, "cid", &["approver", "observer"]).await;
    let mut claim = join_payload(&both.user);
    claim["participant"]["roles"] = json!(["observer"]);
    both.api
        .send_message(SESSION, "session.join", claim)
        .await
        .expect_ok();
    let lacks = "you need the capability `approve`; ask an admin for a role that has it";
    assert_eq!(
        both.api
            .vote(SESSION, &proposal, approve_vote())
            .await
            .expect_refusal(403)
            .1,
        lacks
    );
    // Joining again with the roles of the token is a change that everyone sees.
    both.join(SESSION).await;
    assert_eq!(
        both.api
            .vote(SESSION, &proposal, approve_vote())
            .await
            .expect_ok()["gate"]["status"],
        "approved"
    );
}

#[tokio::test]
async fn a_participant_who_left_rejoins_by_sending_a_message() {
    let fixture = ApiFixture::new(json!({})).await;
    fixture
        .ann
        .api
        .send_message(SESSION, "session.leave", json!({ "reason": "lunch" }))
        .await
        .expect_ok();
    let path = format!("/api/sessions/{SESSION}");
    let people = |state: Value| -> Vec<String> {
        let people = state["people"].as_array().unwrap().clone();
        people
            .iter()
            .map(|person| person["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let there = |mut names: Vec<String>| {
        names.sort();
        names
    };
    assert_eq!(
        there(people(fixture.ann.api.get(&path).await.expect_ok())),
        ["bob", "bot", "eve"]
    );
    fixture
        .ann
        .api
        .send_message(SESSION, "context.add", context_payload("back"))
        .await
        .expect_ok();
    assert_eq!(
        there(people(fixture.ann.api.get(&path).await.expect_ok())),
        ["ann", "bob", "bot", "eve"]
    );
}

#[tokio::test]
async fn an_agent_can_work_over_http_alone() {
    let server = TestServer::start(&[]).await;
    server.create_session(SESSION, json!({})).await;
    let bot = ApiUser::with_user(
        &server,
        server.invite("bot", &["driver"], &["--kind", "agent"]),
    )
    .await;
    let ann = ApiUser::invite(&server, "ann", &["approver"]).await;
    bot.join(SESSION).await;
    ann.join(SESSION).await;
    let proposal = fresh_id("proposal");
    let payload = json!({
        "tool_name": "shell", "arguments": { "command": "sh", "args": [], "full_command": "touch a" },
        "agent": bot.id(), "risk_level": "low", "description": "a test",
        "requires_approval": false, "category": "shell_execute",
    });
    bot.api
        .send_envelope(
            SESSION,
            json!({ "id": proposal, "type": "tool.propose", "payload": payload }),
        )
        .await
        .expect_ok();
    ann.api
        .vote(SESSION, &proposal, approve_vote())
        .await
        .expect_ok();
    let execute = |messages: Vec<Value>| {
        messages
            .into_iter()
            .find(|m| m["type"] == "tool.execute")
            .unwrap()
    };
    let own = execute(bot.api.read_whole_log(SESSION, 100).await);
    assert!(own["payload"]["grant"]["nonce"].is_string());
    let output = json!({ "tool_proposal": proposal, "stream": "stdout", "text": "done\n", "complete": true });
    bot.api
        .send_message(SESSION, "tool.output", output.clone())
        .await
        .expect_ok();
    let result = json!({ "tool_proposal": proposal, "success": true, "result": { "exitCode": 0, "stdout": "done\n", "stderr": "" }, "duration_ms": 3 });
    bot.api
        .send_message(SESSION, "tool.result", result)
        .await
        .expect_ok();
    let late = bot
        .api
        .send_message(SESSION, "tool.output", output.clone())
        .await
        .expect_refusal(409);
    assert_eq!(late.1, format!("command `{proposal}` has ended already"));
    let seen = ann.api.read_whole_log(SESSION, 100).await;
    let kinds: Vec<_> = seen
        .iter()
        .map(|message| message["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds[kinds.len() - 7..],
        [
            "tool.propose",
            "gate.request",
            "gate.approve",
            "gate.resolve",
            "tool.execute",
            "tool.output",
            "tool.result"
        ]
    );
    assert_eq!(
        message_ids(&seen),
        message_ids(&stored_log(&server, SESSION))
    );
    let bearer = HttpTestClient::with_token(&server, &ann.user).await;
    let path = format!("/api/sessions/{SESSION}/outputs/{proposal}?format=text");
    assert_eq!(bearer.get(&path).await.text, "done\n");
}
