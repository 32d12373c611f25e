//! `--open` mode as published clients use it: no token, WebSocket at `/`, whole outputs in results.

use crate::support::{TestClient, TestServer, TestUser};
use serde_json::{Value, json};

const MIB: usize = 1024 * 1024;

/// A user as a published client announces it: no executor, no token.
fn published_user(id: &str, kind: &str, roles: &[&str]) -> TestUser {
    TestUser {
        token: String::new(),
        participant: id.to_owned(),
        roles: roles.iter().map(|&role| role.to_owned()).collect(),
        agent: kind == "agent",
    }
}

fn announce_without_executor(user: &TestUser) -> Value {
    let mut announce = user.announce();
    announce.as_object_mut().unwrap().remove("executor");
    announce
}

async fn connect(server: &TestServer, user: &TestUser) -> TestClient {
    TestClient::try_connect(&server.address, "/", &[], &user.participant)
        .await
        .unwrap()
}

/// Joins as a published client does; returns the messages up to its own announcement.
async fn join(client: &mut TestClient, session: &str, user: &TestUser) -> Vec<Value> {
    client.session = session.to_owned();
    let payload =
        json!({ "participant": announce_without_executor(user), "supported_versions": [1] });
    let id = client.send("session.join", payload).await;
    let mut received = Vec::new();
    loop {
        let message = client.next().await.expect("the connection stays");
        let own = message["type"] == "participant.announce"
            && message["sender"] == user.participant.as_str();
        assert_ne!(message["type"], "error", "{message}");
        let done = own && message["seq"].is_u64() && message["id"] == id.as_str();
        received.push(message);
        if done {
            return received;
        }
    }
}

fn message_types(messages: &[Value]) -> Vec<&str> {
    let kinds = messages
        .iter()
        .map(|message| message["type"].as_str().unwrap());
    kinds
        .filter(|kind| !matches!(*kind, "session.welcome" | "session.ack" | "presence.update"))
        .collect()
}

/// The published default configuration with every field given.
fn published_config() -> Value {
    json!({
        "require_approval_for": [], "default_gate_quorum": { "type": "any", "count": 1 },
        "allow_forks": true, "max_participants": 10, "ordering_mode": "causal",
        "on_participant_timeout": "skip", "heartbeat_interval_seconds": 30,
        "idle_timeout_seconds": 120, "away_timeout_seconds": 300,
    })
}

#[tokio::test]
async fn create_and_join_on_one_connection_deliver_in_the_published_order() {
    let server = TestServer::start(&["--open"]).await;
    let (ann, bob) = (
        published_user("01ANN", "human", &["driver"]),
        published_user("01BOB", "human", &["navigator"]),
    );
    let mut first = connect(&server, &ann).await;
    first.session = "01SESSION".to_owned();
    let create = json!({ "name": "A session", "config": published_config() });
    let id = first.send("session.create", create).await;
    first.expect_ack(&id).await;
    let received = join(&mut first, "01SESSION", &ann).await;
    assert_eq!(
        message_types(&received),
        [
            // Told to the creator, and then as the beginning of the history.
            "session.create",
            "session.create",
            "context.add",
            "context.add",
            "participant.announce"
        ]
    );
    let context = json!({ "key": "note", "content_type": "text", "content": "remember" });
    first.send_and_ack("context.add", context).await;

    // The participants, then the history, then the working directory, then the newcomer.
    let mut second = connect(&server, &bob).await;
    let received = join(&mut second, "01SESSION", &bob).await;
    let shown: Vec<_> = received
        .iter()
        .filter(|message| message_types(std::slice::from_ref(message)).len() == 1)
        .map(|message| {
            (
                message["type"].as_str().unwrap(),
                message["seq"].as_u64(),
                message["sender"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("participant.announce", None, "01ANN"),
            ("session.create", Some(1), "01ANN"),
            ("context.add", Some(2), "system"),
            ("participant.announce", Some(3), "01ANN"),
            ("context.add", Some(4), "01ANN"),
            ("context.add", None, "system"),
            ("participant.announce", Some(5), "01BOB"),
        ]
    );
    let added = |message: &&Value| message["type"] == "context.add";
    let directory = &received.iter().rfind(added).unwrap()["payload"];
    assert_eq!(directory["key"], "session:working_directory");
    let told = std::path::Path::new(directory["content"].as_str().unwrap());
    assert!(told.starts_with(server.data.join("workspaces")), "{told:?}");
    // The participant who was there receives the newcomer's announcement too.
    let announcement = first
        .wait(|message| message["type"] == "participant.announce" && message["sender"] == "01BOB")
        .await;
    assert_eq!(announcement["payload"], announce_without_executor(&bob));
    assert_eq!(announcement["seq"], 5);
}

#[tokio::test]
async fn joining_a_session_that_does_not_exist_creates_it() {
    let server = TestServer::start(&["--open"]).await;
    let ann = published_user("ann", "human", &["admin"]);
    let mut client = connect(&server, &ann).await;
    let received = join(&mut client, "fresh", &ann).await;
    let create = received
        .iter()
        .find(|message| message["type"] == "session.create")
        .unwrap();
    for (field, value) in published_config().as_object().unwrap() {
        assert_eq!(create["payload"]["config"][field], *value, "{field}");
    }
    let welcome = received
        .iter()
        .find(|message| message["type"] == "session.welcome")
        .unwrap();
    assert_eq!(welcome["payload"]["roles"], json!(["admin"]));
}

#[tokio::test]
async fn pings_go_both_ways() {
    let server = TestServer::start(&["--open"]).await;
    let (ann, bob) = (
        published_user("ann", "human", &["driver"]),
        published_user("bob", "human", &["driver"]),
    );
    let mut first = connect(&server, &ann).await;
    first.session = "beat".to_owned();
    let mut config = published_config();
    config["heartbeat_interval_seconds"] = json!(1);
    let id = first
        .send("session.create", json!({ "config": config }))
        .await;
    first.expect_ack(&id).await;
    join(&mut first, "beat", &ann).await;
    let mut second = connect(&server, &bob).await;
    join(&mut second, "beat", &bob).await;
    let id = first.send("heartbeat.ping", json!({})).await;
    let pong = first.wait_for("heartbeat.pong").await;
    assert_eq!(
        (&pong["ref"], &pong["sender"]),
        (&json!(id), &json!("system"))
    );
    assert_eq!(pong["seq"], Value::Null);
    // The server's own pings reach everybody at its interval and are not stored.
    for client in [&mut first, &mut second] {
        let ping = client.wait_for("heartbeat.ping").await;
        assert_eq!(
            (&ping["sender"], &ping["seq"]),
            (&json!("system"), &Value::Null)
        );
        let mut pong = client.envelope("heartbeat.pong", json!({}));
        pong["ref"] = ping["id"].clone();
        client.send_raw(&pong.to_string()).await;
    }
    assert!(
        !second
            .received
            .iter()
            .any(|message| message["type"] == "heartbeat.pong")
    );
    assert!(
        !server
            .log("beat")
            .iter()
            .any(|line| line.to_string().contains("heartbeat.p"))
    );
}

/// A person and an agent, both published clients, in one session.
async fn join_pair(server: &TestServer, session: &str) -> (TestClient, TestClient) {
    let person = published_user("person", "human", &["driver", "approver"]);
    let agent = published_user("agent", "agent", &["driver"]);
    let mut ann = connect(server, &person).await;
    join(&mut ann, session, &person).await;
    let mut bot = connect(server, &agent).await;
    join(&mut bot, session, &agent).await;
    (ann, bot)
}

fn shell_payload(command: &str, risk: &str) -> Value {
    json!({
        "tool_name": "shell", "arguments": { "command": command, "args": [], "full_command": command },
        "agent": "agent", "risk_level": risk, "description": "d", "requires_approval": false,
        "category": "shell_execute",
    })
}

#[tokio::test]
async fn a_published_agent_is_granted_reads_at_once_and_the_rest_after_a_vote() {
    let server = TestServer::start(&["--open"]).await;
    let (mut ann, mut bot) = join_pair(&server, "runs").await;
    let read = bot
        .send("tool.propose", shell_payload("ls -la", "safe"))
        .await;
    bot.wait(|message| {
        message["type"] == "tool.execute" && message["payload"]["tool_proposal"] == read.as_str()
    })
    .await;
    bot.send_and_ack("tool.result", json!({ "tool_proposal": read, "success": true, "result": { "exitCode": 0, "stdout": "a\n", "stderr": "" }, "duration_ms": 1 })).await;

    // A vote may name the gate's own id or its proposal's, and may use either message type.
    let mut received = Vec::new();
    for (kind, by_gate) in [
        ("gate.approve", true),
        ("gate.approve", false),
        ("tool.approve", false),
    ] {
        let proposal = bot
            .send("tool.propose", shell_payload("touch a", "low"))
            .await;
        let about = |message: &Value| {
            message["type"] == "gate.request"
                && message["payload"]["action_ref"] == proposal.as_str()
        };
        let request = ann.wait(about).await;
        let gate = if by_gate {
            request["id"].as_str().unwrap()
        } else {
            proposal.as_str()
        };
        let field = if kind == "tool.approve" {
            "tool_proposal"
        } else {
            "gate"
        };
        ann.send_and_ack(kind, json!({ field: gate, "approver": "person" }))
            .await;
        let execute = bot
            .wait(|message| {
                message["type"] == "tool.execute"
                    && message["payload"]["tool_proposal"] == proposal.as_str()
            })
            .await;
        assert_eq!(execute["payload"]["approved_by"], json!(["person"]));
        bot.send_and_ack(
            "tool.result",
            json!({ "tool_proposal": proposal, "success": true, "duration_ms": 1 }),
        )
        .await;
        received.push(proposal);
    }
    for kind in ["gate.reject", "tool.reject"] {
        let proposal = bot
            .send("tool.propose", shell_payload("touch b", "low"))
            .await;
        ann.wait(|message| {
            message["type"] == "gate.request"
                && message["payload"]["action_ref"] == proposal.as_str()
        })
        .await;
        let field = if kind == "tool.reject" {
            "tool_proposal"
        } else {
            "gate"
        };
        ann.send_and_ack(
            kind,
            json!({ field: proposal, "rejector": "person", "reason": "not now" }),
        )
        .await;
        // The published message reaches the agent with its reason.
        let rejection = bot
            .wait(|message| {
                message["type"] == kind && message["payload"][field] == proposal.as_str()
            })
            .await;
        assert_eq!(rejection["payload"]["reason"], "not now");
        received.push(proposal);
    }
    ann.sync_as(announce_without_executor(&published_user(
        "person",
        "human",
        &["driver", "approver"],
    )))
    .await;
    // Each proposal is delivered before its consequences.
    for proposal in received.iter().chain([&read]) {
        let position = |kind: &str, field: &str| {
            ann.received.iter().position(|message| {
                message["type"] == kind
                    && (message["payload"][field] == proposal.as_str()
                        || (kind == "tool.propose" && message["id"] == proposal.as_str()))
            })
        };
        let proposed = position("tool.propose", "").unwrap();
        for next in [
            position("gate.request", "action_ref"),
            position("tool.execute", "tool_proposal"),
        ]
        .into_iter()
        .flatten()
        {
            assert!(proposed < next);
        }
    }
}

#[tokio::test]
async fn a_result_of_ten_megabytes_is_accepted_shortened_and_read_by_reference() {
    let server = TestServer::start(&["--open"]).await;
    let (mut ann, mut bot) = join_pair(&server, "large").await;
    let proposal = bot
        .send("tool.propose", shell_payload("ls -la", "safe"))
        .await;
    bot.wait_for("tool.execute").await;
    let lines = 500_000;
    let stdout: String = (0..lines)
        .map(|number| format!("line {number:014}\n"))
        .collect();
    assert!(stdout.len() == 10_000_000);
    let result = json!({ "tool_proposal": proposal, "success": true, "duration_ms": 1,
        "result": { "exitCode": 0, "stdout": stdout, "stderr": "one\ntwo\n" } });
    bot.send_and_ack("tool.result", result).await;
    let received = ann.wait_for("tool.result").await;
    let body = &received["payload"]["result"];
    let excerpt = body["stdout"].as_str().unwrap();
    assert!(excerpt.len() < 65 * 1024, "{}", excerpt.len());
    assert!(
        excerpt.starts_with("line 00000000000000\n") && excerpt.ends_with("line 00000000499999\n")
    );
    assert_eq!(
        (&body["exitCode"], &body["stderr"]),
        (&json!(0), &json!("one\ntwo\n"))
    );
    assert_eq!(received["payload"]["output_ref"], proposal.as_str());
    assert!(
        ann.received
            .iter()
            .all(|message| message.to_string().len() < MIB),
        "nothing big is told"
    );

    let line = |number: usize| json!({ "number": number, "stream": "stdout", "text": format!("line {number:014}") });
    let mut page = async |wanted: Value| {
        let mut payload = wanted;
        payload["ref"] = json!(proposal);
        let id = ann.send("output.read", payload).await;
        let page = ann.wait(|message| message["ref"] == id.as_str()).await;
        assert_eq!(page["type"], "output.page", "{page}");
        page["payload"].clone()
    };
    let whole = page(json!({ "head": 2 })).await;
    assert_eq!(whole["lines"], json!([line(0), line(1)]));
    assert_eq!(
        (&whole["total_lines"], &whole["total_bytes"]),
        (&json!(500_002), &json!(10_000_008))
    );
    assert_eq!(
        (&whole["finished"], &whole["cut"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(
        page(json!({ "stream": "stdout", "tail": 2 })).await["lines"],
        json!([line(499_998), line(499_999)])
    );
    assert_eq!(
        page(json!({ "offset": 250_000, "limit": 1 })).await["lines"],
        json!([line(250_000)])
    );
    assert_eq!(
        page(json!({ "grep": "123456" })).await["lines"],
        json!([line(123_456)])
    );
    let stderr = page(json!({ "stream": "stderr" })).await;
    assert_eq!(stderr["lines"][1]["text"], "two");
    let id = ann
        .send(
            "output.read",
            json!({ "ref": proposal, "head": 1, "tail": 1 }),
        )
        .await;
    assert_eq!(
        ann.expect_refusal(&id).await["message"],
        "ask for `head` or for `tail`, not for both"
    );
    let id = ann.send("output.read", json!({ "ref": "nothing" })).await;
    assert_eq!(
        ann.expect_refusal(&id).await["message"],
        "there is no proposal `nothing`"
    );
}

#[tokio::test]
async fn only_results_of_agents_may_be_large_and_they_have_a_limit_too() {
    let server = TestServer::start(&["--open"]).await;
    let agent = published_user("agent", "agent", &["driver"]);
    let (mut ann, mut bot) = join_pair(&server, "sizes").await;
    let big = "x".repeat(MIB);
    // An agent's other messages have the same limit as everybody's.
    bot.send(
        "error",
        json!({ "code": "AGENT_ERROR", "message": big, "recoverable": true }),
    )
    .await;
    assert_eq!(bot.wait_closed().await, Some(1009));
    // So do all messages of a person, even those that claim to be results.
    let mut person = connect(&server, &published_user("eve", "human", &["driver"])).await;
    join(
        &mut person,
        "sizes",
        &published_user("eve", "human", &["driver"]),
    )
    .await;
    person
        .try_send(
            "tool.result",
            json!({ "tool_proposal": "p", "success": true, "duration_ms": 1, "error": big }),
        )
        .await;
    assert_eq!(person.wait_closed().await, Some(1009));
    // A result has a limit too.
    let mut bot = connect(&server, &agent).await;
    bot.session = "sizes".to_owned();
    let join =
        json!({ "participant": announce_without_executor(&agent), "supported_versions": [1] });
    bot.send("session.join", join).await;
    bot.wait_for("session.welcome").await;
    let result = json!({ "tool_proposal": "p", "success": true, "duration_ms": 1, "error": "x".repeat(24 * MIB) });
    bot.try_send("tool.result", result).await;
    assert_eq!(bot.wait_closed().await, Some(1009));
    ann.sync_as(announce_without_executor(&published_user(
        "person",
        "human",
        &["driver", "approver"],
    )))
    .await;
    let log = server.log("sizes");
    assert!(
        !log.iter()
            .any(|line| line["entry"]["type"] == "error" || line["entry"]["type"] == "tool.result")
    );
}

#[tokio::test]
async fn an_id_that_is_taken_is_not_given_to_another_kind_or_name() {
    let server = TestServer::start(&["--open"]).await;
    let (mut ann, _bot) = join_pair(&server, "ids").await;
    let before = server.log("ids").len();
    let mut other_kind = announce_without_executor(&published_user("person", "agent", &["driver"]));
    let mut other_name =
        announce_without_executor(&published_user("person", "human", &["driver", "approver"]));
    other_kind["name"] = json!("person");
    other_name["name"] = json!("Mallory");
    for claim in [other_kind, other_name] {
        let mut thief = connect(&server, &published_user("person", "human", &[])).await;
        thief.session = "ids".to_owned();
        let id = thief
            .send(
                "session.join",
                json!({ "participant": claim, "supported_versions": [1] }),
            )
            .await;
        let error = thief.expect_refusal(&id).await;
        assert_eq!(
            (&error["code"], &error["message"]),
            (
                &json!("UNAUTHORIZED"),
                &json!("the id `person` belongs to somebody else in this session")
            )
        );
    }
    // A connection keeps the identity of its first message.
    let mut fickle = connect(&server, &published_user("x", "human", &[])).await;
    fickle.session = "ids-2".to_owned();
    let id = fickle
        .send("session.create", json!({ "config": published_config() }))
        .await;
    fickle.expect_ack(&id).await;
    fickle.participant = "y".to_owned();
    let payload = json!({ "participant": announce_without_executor(&published_user("y", "human", &["driver"])), "supported_versions": [1] });
    let id = fickle.send("session.join", payload).await;
    assert_eq!(
        fickle.expect_refusal(&id).await["message"],
        "`sender` is `y`, but you are `x`; name yourself"
    );
    let mut fickle = connect(&server, &published_user("x", "human", &[])).await;
    fickle.session = "ids".to_owned();
    fickle.send("heartbeat.ping", json!({})).await;
    fickle.wait_for("heartbeat.pong").await;
    fickle.participant = "y".to_owned();
    let payload = json!({ "participant": announce_without_executor(&published_user("y", "human", &["driver"])), "supported_versions": [1] });
    let id = fickle.send("session.join", payload).await;
    assert_eq!(
        fickle.expect_refusal(&id).await["message"],
        "`sender` is `y`, but you are `x`; name yourself"
    );
    // Nobody can be `system`, not even in open mode.
    let mut system = connect(&server, &published_user("system", "human", &[])).await;
    system.session = "ids".to_owned();
    let payload = json!({ "participant": announce_without_executor(&published_user("system", "human", &["admin"])), "supported_versions": [1] });
    let id = system.send("session.join", payload).await;
    let error = system.expect_refusal(&id).await;
    assert_eq!(
        (&error["code"], &error["message"]),
        (
            &json!("UNAUTHORIZED"),
            &json!("`system` is reserved for the server")
        )
    );
    // Inviting requires an admin's token even in open mode.
    let invite = r#"{"name":"x","roles":["admin"]}"#;
    assert_eq!(
        crate::support::http_request(&server.address, "POST", "/api/invites", &[], invite)
            .await
            .0,
        401
    );
    assert_eq!(server.log("ids").len(), before);
    // The same person can join on another device, which adds nothing to the log.
    let mut phone = connect(&server, &published_user("person", "human", &[])).await;
    phone
        .join(
            "ids",
            &TestUser {
                token: String::new(),
                participant: "person".to_owned(),
                roles: vec!["driver".to_owned(), "approver".to_owned()],
                agent: false,
            },
            json!({}),
        )
        .await;
    assert_eq!(server.log("ids").len(), before);
    ann.sync_as(announce_without_executor(&published_user(
        "person",
        "human",
        &["driver", "approver"],
    )))
    .await;
}

#[tokio::test]
async fn health_answers_and_the_transcript_shows_what_everyone_may_see() {
    let server = TestServer::start(&["--open"]).await;
    let (status, body) = crate::support::http_get(&server.address, "/health", &[]).await;
    assert_eq!((status, body.as_str()), (200, r#"{"status":"ok"}"#));
    let (mut ann, mut bot) = join_pair(&server, "told").await;
    ann.send_and_ack(
        "context.add",
        json!({ "key": "seen", "content_type": "text", "content": "for-all" }),
    )
    .await;
    ann.send_and_ack("context.add", json!({ "key": "unseen", "content_type": "text", "content": "for-one", "visible_to": ["agent"] })).await;
    ann.send_and_ack(
        "secret.share",
        json!({ "key": "HIDDEN", "scope": ["agent"], "value_ref": "r", "value": "for-nobody" }),
    )
    .await;
    bot.send_and_ack(
        "thinking.start",
        json!({ "agent": "agent", "prompt_ref": "p", "visible_to": "approvers_only" }),
    )
    .await;
    bot.send_and_ack("thinking.chunk", json!({ "text": "for-approvers" }))
        .await;
    let (status, body) =
        crate::support::http_get(&server.address, "/sessions/told/transcript", &[]).await;
    assert_eq!(status, 200);
    let transcript: Value = serde_json::from_str(&body).unwrap();
    let mut names: Vec<_> = transcript.as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(names, ["count", "messages", "sessionId"]);
    assert_eq!(transcript["sessionId"], "told");
    assert_eq!(
        transcript["count"],
        transcript["messages"].as_array().unwrap().len()
    );
    assert!(body.contains("for-all"));
    // The name of a secret is for everyone, its value for nobody.
    assert!(body.contains("HIDDEN"));
    for hidden in ["for-one", "for-nobody", "for-approvers", "unseen"] {
        assert!(!body.contains(hidden), "{hidden}");
    }
    let path = "/sessions/told/transcript?messages=session.create,context.add";
    let (_, body) = crate::support::http_get(&server.address, path, &[]).await;
    let some: Value = serde_json::from_str(&body).unwrap();
    let kinds: Vec<_> = some["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["session.create", "context.add", "context.add"]);
    assert_eq!(
        crate::support::http_get(&server.address, "/sessions/unknown/transcript", &[])
            .await
            .0,
        404
    );
    assert_eq!(
        crate::support::http_get(
            &server.address,
            "/sessions/told/transcript?token=wrong",
            &[]
        )
        .await
        .0,
        401
    );
}
