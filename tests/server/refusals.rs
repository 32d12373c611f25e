//! Messages that nobody may send. Each refusal is checked from three sides: the sender's answer,
//! what others receive, and the log.

use crate::support::{RefusalObserver, TestClient, TestServer, TestUser};
use serde_json::{Value, json};

const UNAUTHORIZED: &str = "UNAUTHORIZED";
const INVALID_MESSAGE: &str = "INVALID_MESSAGE";
const INVALID_STATE: &str = "INVALID_STATE";

/// A session with two approvers, an agent with one open proposal, and an observer.
struct RefusalFixture {
    /// The server.
    server: TestServer,
    /// Checks that refused messages reach nobody.
    observer: RefusalObserver,
    /// Ann's and Bob's tokens.
    people: [TestUser; 2],
    /// Ann's client; she is an approver.
    ann: TestClient,
    /// Bob's client; he is an approver.
    bob: TestClient,
    /// The agent's client.
    bot: TestClient,
    /// The id of the agent's open proposal.
    proposal: String,
    /// The id of its gate.
    gate: String,
}

impl RefusalFixture {
    async fn new(session: &str, config: Value) -> Self {
        let server = TestServer::start(&[]).await;
        server.create_session(session, config).await;
        let mut observer = RefusalObserver::join(&server, session).await;
        let people = [
            server.invite("ann", &["approver", "admin"], &[]),
            server.invite("bob", &["approver"], &[]),
        ];
        let agent = server.invite("bot", &["driver"], &["--kind", "agent"]);
        let ann = server.join(session, &people[0]).await;
        let bob = server.join(session, &people[1]).await;
        let mut bot = server.join(session, &agent).await;
        let proposal = bot.propose("touch a").await;
        let gate = gate_of(observer.client(), &proposal).await;
        Self {
            server,
            observer,
            people,
            ann,
            bob,
            bot,
            proposal,
            gate,
        }
    }

    /// The open gates as the welcome of a late joiner lists them.
    async fn open_gates(&self) -> Vec<Value> {
        let late = self.server.invite("late", &["observer"], &[]);
        let mut client = self.server.connect(&late).await;
        let session = &self.ann.session;
        let welcome = client.join(session, &late, json!({ "history": 0 })).await;
        welcome["payload"]["gates"].as_array().unwrap().clone()
    }

    /// The types of the log entries that mention an id, in order.
    fn logged_types(&self, id: &str) -> Vec<String> {
        let quoted = format!("{id:?}");
        let log = self.server.log(&self.ann.session);
        let about = log
            .iter()
            .filter(|line| line["entry"].to_string().contains(&quoted));
        about
            .map(|line| line["entry"]["type"].as_str().unwrap().to_owned())
            .collect()
    }
}

async fn gate_of(client: &mut TestClient, proposal: &str) -> String {
    let fits = |message: &Value| {
        message["type"] == "gate.request" && message["payload"]["action_ref"] == proposal
    };
    let request = client.wait(fits).await;
    request["id"].as_str().unwrap().to_owned()
}

fn wrong_sender_message(actual: &str, field: &str, claimed: &str) -> String {
    format!("`{field}` is `{claimed}`, but you are `{actual}`; name yourself")
}

#[tokio::test]
async fn nobody_can_forge_the_sender() {
    let mut fixture = RefusalFixture::new("forged", json!({})).await;
    let (ann, bob) = (
        fixture.ann.participant.clone(),
        fixture.bob.participant.clone(),
    );
    for claimed in [bob.as_str(), "system", "nobody-at-all"] {
        for (kind, payload) in [
            (
                "gate.approve",
                json!({ "gate": fixture.gate, "approver": claimed }),
            ),
            (
                "context.add",
                json!({ "key": "k", "content_type": "text", "content": "c" }),
            ),
            ("heartbeat.ping", json!({})),
            ("session.leave", json!({})),
        ] {
            let mut envelope = fixture.ann.envelope(kind, payload);
            envelope["sender"] = json!(claimed);
            let sentence = match claimed {
                "system" => "`system` is reserved for the server".to_owned(),
                _ => wrong_sender_message(&ann, "sender", claimed),
            };
            fixture
                .observer
                .expect_envelope_refused(&mut fixture.ann, envelope, UNAUTHORIZED, &sentence)
                .await;
        }
    }
    fixture.observer.expect_no_trace(&fixture.server).await;
    assert_eq!(fixture.open_gates().await[0]["approvals"], json!([]));
    // Bob, whose name was misused, is still connected.
    fixture.bob.sync().await;
}

#[tokio::test]
async fn nobody_acts_in_the_name_of_another() {
    let mut fixture = RefusalFixture::new("names", json!({})).await;
    let (ann, bob, bot) = (
        fixture.ann.participant.clone(),
        fixture.bob.participant.clone(),
        fixture.bot.participant.clone(),
    );
    let (gate, proposal) = (fixture.gate.clone(), fixture.proposal.clone());
    let observer = &mut fixture.observer;
    for (kind, field, payload) in [
        (
            "gate.approve",
            "approver",
            json!({ "gate": gate, "approver": bob }),
        ),
        (
            "tool.approve",
            "approver",
            json!({ "tool_proposal": proposal, "approver": bob }),
        ),
        (
            "gate.approve",
            "approver",
            json!({ "gate": proposal, "approver": bob }),
        ),
        (
            "gate.reject",
            "rejector",
            json!({ "gate": gate, "rejector": bob, "reason": "no" }),
        ),
        (
            "tool.reject",
            "rejector",
            json!({ "tool_proposal": proposal, "rejector": bob, "reason": "no" }),
        ),
        (
            "participant.role_change",
            "changed_by",
            json!({ "participant": bob, "old_roles": ["approver"], "new_roles": [], "changed_by": bob }),
        ),
        (
            "participant.announce",
            "id",
            json!({ "id": bob, "name": "bob", "type": "human", "roles": [], "transport": "websocket" }),
        ),
        (
            "presence.update",
            "participant",
            json!({ "participant": bob, "status": "away", "last_active": "2026-01-01T00:00:00.000Z" }),
        ),
    ] {
        let sentence = wrong_sender_message(&ann, field, &bob);
        observer
            .expect_refused(&mut fixture.ann, kind, payload, UNAUTHORIZED, &sentence)
            .await;
    }
    let interrupt = fixture
        .ann
        .send(
            "interrupt.raise",
            json!({ "urgency": "pause", "message": "wait" }),
        )
        .await;
    fixture.ann.expect_ack(&interrupt).await;
    let mut propose = fixture.bot.proposal("touch b");
    propose["agent"] = json!("other-bot");
    for (kind, field, payload) in [
        ("tool.propose", "agent", propose),
        (
            "thinking.start",
            "agent",
            json!({ "agent": "other-bot", "prompt_ref": "p", "visible_to": "all" }),
        ),
        (
            "response.start",
            "agent",
            json!({ "agent": "other-bot", "prompt_ref": "p" }),
        ),
        (
            "interrupt.acknowledge",
            "by",
            json!({ "interrupt": interrupt, "by": "other-bot", "action_taken": "paused" }),
        ),
    ] {
        let sentence = wrong_sender_message(&bot, field, "other-bot");
        observer
            .expect_refused(&mut fixture.bot, kind, payload, UNAUTHORIZED, &sentence)
            .await;
    }
    observer.expect_no_trace(&fixture.server).await;
    assert_eq!(fixture.open_gates().await[0]["approvals"], json!([]));
    assert_eq!(fixture.logged_types(&fixture.gate), ["gate.request"]);
}

#[tokio::test]
async fn clients_cannot_send_server_messages() {
    let mut fixture = RefusalFixture::new("words", json!({})).await;
    let (gate, proposal) = (fixture.gate.clone(), fixture.proposal.clone());
    let at = "2026-01-01T00:00:00.000Z";
    for (kind, payload) in [
        (
            "tool.execute",
            json!({ "tool_proposal": proposal, "approved_by": [fixture.ann.participant] }),
        ),
        (
            "gate.request",
            json!({ "action_type": "tool", "action_ref": proposal, "quorum": { "type": "any", "count": 1 }, "timeout_seconds": 1, "message": "m" }),
        ),
        (
            "gate.resolve",
            json!({ "gate": gate, "tool_proposal": proposal, "outcome": "approved", "how": "quorum", "at": at }),
        ),
        (
            "gate.timeout",
            json!({ "gate": gate, "approvals_received": 1, "approvals_required": 1, "resolution": "auto_approved" }),
        ),
        ("session.welcome", json!({ "head": 1 })),
        ("session.ack", json!({ "id": "x" })),
        ("output.page", json!({ "ref": proposal, "lines": [] })),
        ("tool.executed", json!({})),
    ] {
        let sentence = format!("clients cannot send `{kind}`");
        for user in [&mut fixture.ann, &mut fixture.bot] {
            fixture
                .observer
                .expect_refused(user, kind, payload.clone(), INVALID_MESSAGE, &sentence)
                .await;
        }
        // The sender `system` does not help: the type is checked first.
        let mut envelope = fixture.ann.envelope(kind, payload);
        envelope["sender"] = json!("system");
        fixture
            .observer
            .expect_envelope_refused(&mut fixture.ann, envelope, INVALID_MESSAGE, &sentence)
            .await;
    }
    fixture.observer.expect_no_trace(&fixture.server).await;
    assert_eq!(fixture.logged_types(&fixture.gate), ["gate.request"]);
    assert_eq!(
        fixture.logged_types(&fixture.proposal),
        ["tool.propose", "gate.request"]
    );
}

#[tokio::test]
async fn roles_are_never_more_than_the_token_allows() {
    let server = TestServer::start(&[]).await;
    server.create_session("roles", json!({})).await;
    let mut observer = RefusalObserver::join(&server, "roles").await;
    let bob = server.invite("bob", &["approver"], &[]);
    let mut client = server.connect(&bob).await;
    client.session = "roles".to_owned();
    let claim = |changes: Value| {
        let mut announce = bob.announce();
        for (key, value) in changes.as_object().unwrap() {
            announce[key] = value.clone();
        }
        json!({ "participant": announce, "supported_versions": [1] })
    };
    for (changes, sentence) in [
        (
            json!({ "roles": ["admin"] }),
            "your token does not allow admin".to_owned(),
        ),
        (
            json!({ "roles": ["approver", "driver"] }),
            "your token does not allow driver".to_owned(),
        ),
        (
            json!({ "capabilities": ["end_session"] }),
            "you need the capability `end_session`; ask an admin for a role that has it".to_owned(),
        ),
        (
            json!({ "type": "agent" }),
            "you are known here as `human`".to_owned(),
        ),
        (
            json!({ "id": "ann" }),
            wrong_sender_message(&bob.participant, "participant.id", "ann"),
        ),
    ] {
        let payload = claim(changes);
        observer
            .expect_refused(
                &mut client,
                "session.join",
                payload,
                UNAUTHORIZED,
                &sentence,
            )
            .await;
    }
    let payload = claim(json!({ "roles": ["system"] }));
    let id = client.send("session.join", payload).await;
    assert_eq!(client.expect_refusal(&id).await["code"], INVALID_MESSAGE);

    // Fewer roles are accepted and take effect, also after announcing again.
    let payload = claim(json!({ "roles": ["observer"] }));
    let id = client.send("session.join", payload).await;
    assert_eq!(
        client.expect_refusal(&id).await["code"],
        UNAUTHORIZED,
        "observer is not in the token"
    );
    let id = client
        .send(
            "session.join",
            claim(json!({ "roles": [], "name": "Boss" })),
        )
        .await;
    let welcome = client
        .wait(|message| message["ref"] == id.as_str() && message["type"] == "session.welcome")
        .await;
    assert_eq!(welcome["payload"]["roles"], json!([]));
    assert_eq!(welcome["payload"]["capabilities"], json!([]));
    let mut again = bob.announce();
    again["roles"] = json!(["admin"]);
    again["capabilities"] = json!(["approve", "exec"]);
    let id = client.send("participant.announce", again).await;
    client.expect_ack(&id).await;
    let received = observer
        .client()
        .wait(|message| message["id"] == id.as_str())
        .await;
    assert_eq!(received["payload"]["roles"], json!([]));
    assert_eq!(received["payload"]["capabilities"], Value::Null);
    assert_eq!(
        received["payload"]["name"], "bob",
        "the token says the name"
    );
    let lacks = "you need the capability `end_session`; ask an admin for a role that has it";
    let end = json!({ "reason": "r", "final_state": "completed" });
    observer
        .expect_refused(&mut client, "session.end", end, UNAUTHORIZED, lacks)
        .await;
    observer.expect_no_trace(&server).await;
}

#[tokio::test]
async fn a_role_may_do_only_what_the_table_of_roles_says() {
    let server = TestServer::start(&[]).await;
    server.create_session("rows", json!({})).await;
    let mut observer = RefusalObserver::join(&server, "rows").await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut agent = server.join("rows", &bot).await;
    let gate = agent.propose("touch a").await;
    let lacks = |capability: &str| {
        format!("you need the capability `{capability}`; ask an admin for a role that has it")
    };
    for role in ["observer", "approver", "driver", "navigator"] {
        let user = server.invite(role, &[role], &[]);
        let mut client = server.join("rows", &user).await;
        let me = client.participant.clone();
        let all = [
            (
                "gate.approve",
                "approve",
                json!({ "gate": gate, "approver": me }),
            ),
            (
                "gate.amend",
                "approve",
                json!({ "gate": gate, "arguments": {}, "digest": "0".repeat(64) }),
            ),
            (
                "policy.allow",
                "approve",
                json!({ "prefix": ["touch"], "expires_at": "2036-01-01T00:00:00.000Z" }),
            ),
            (
                "prompt.submit",
                "prompt",
                json!({ "content": "c", "target_agent": bot.participant, "contributors": [], "context_keys": [] }),
            ),
            (
                "context.add",
                "add_context",
                json!({ "key": "k", "content_type": "text", "content": "c" }),
            ),
            (
                "secret.share",
                "add_context",
                json!({ "key": "K", "scope": [], "value_ref": "r" }),
            ),
            ("shell.exec", "exec", json!({ "command": "ls" })),
            (
                "interrupt.raise",
                "interrupt",
                json!({ "urgency": "stop", "message": "m" }),
            ),
            ("tool.cancel", "interrupt", json!({ "tool_proposal": gate })),
            ("fork.switch", "fork", json!({ "target_fork": "f" })),
            (
                "session.config_update",
                "manage_participants",
                json!({ "changes": {}, "reason": "r" }),
            ),
            (
                "participant.role_change",
                "manage_participants",
                json!({ "participant": me, "old_roles": [role], "new_roles": ["admin"], "changed_by": me }),
            ),
            (
                "session.end",
                "end_session",
                json!({ "reason": "r", "final_state": "aborted" }),
            ),
        ];
        let may: &[&str] = match role {
            "observer" => &[],
            "approver" => &["approve", "interrupt"],
            "driver" => &["prompt", "interrupt", "fork", "add_context", "exec"],
            _ => &["approve", "interrupt", "fork", "add_context"],
        };
        for (kind, capability, payload) in all
            .into_iter()
            .filter(|(_, capability, _)| !may.contains(capability))
        {
            observer
                .expect_refused(&mut client, kind, payload, UNAUTHORIZED, &lacks(capability))
                .await;
        }
        for kind in ["tool.propose", "response.start", "thinking.start"] {
            let payload = match kind {
                "tool.propose" => client.proposal("ls"),
                _ => json!({ "agent": me, "prompt_ref": "p", "visible_to": "all" }),
            };
            observer
                .expect_refused(
                    &mut client,
                    kind,
                    payload,
                    UNAUTHORIZED,
                    "only agents may send this",
                )
                .await;
        }
    }
    observer.expect_no_trace(&server).await;
}

#[tokio::test]
async fn a_proposer_does_not_approve_its_own_command() {
    let server = TestServer::start(&[]).await;
    server
        .create_session("own", json!({ "shell_exec": "gated" }))
        .await;
    let mut observer = RefusalObserver::join(&server, "own").await;
    let both = server.invite("ann", &["driver", "approver", "admin"], &[]);
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut agent = server.join("own", &bot).await;
    let mut ann = server.join("own", &both).await;
    let mut phone = server.join("own", &both).await;
    let own = ann
        .send("shell.exec", json!({ "command": "touch a" }))
        .await;
    ann.expect_ack(&own).await;
    let gate = gate_of(&mut ann, &own).await;
    let sentence = "you cannot vote on your own command";
    for device in [&mut ann, &mut phone] {
        let me = device.participant.clone();
        for (kind, payload) in [
            ("gate.approve", json!({ "gate": gate, "approver": me })),
            ("gate.approve", json!({ "gate": own, "approver": me })),
            (
                "tool.approve",
                json!({ "tool_proposal": own, "approver": me }),
            ),
            (
                "tool.reject",
                json!({ "tool_proposal": own, "rejector": me, "reason": "r" }),
            ),
        ] {
            observer
                .expect_refused(device, kind, payload, UNAUTHORIZED, sentence)
                .await;
        }
    }
    // The agent that would run the command has no vote either.
    let approve = json!({ "gate": gate, "approver": agent.participant });
    let sentence = "agents do not vote; a person has to decide";
    observer
        .expect_refused(&mut agent, "gate.approve", approve, UNAUTHORIZED, sentence)
        .await;
    observer.expect_no_trace(&server).await;
    let received = observer.client().sync().await;
    assert!(
        !received
            .iter()
            .any(|message| message["type"] == "gate.resolve" || message["type"] == "tool.execute")
    );
}

#[tokio::test]
async fn agents_never_vote_whatever_roles_they_hold() {
    let mut fixture = RefusalFixture::new("agents", json!({})).await;
    let judge = fixture.server.invite(
        "judge",
        &["approver", "admin", "navigator"],
        &["--kind", "agent"],
    );
    let mut judge = fixture.server.join("agents", &judge).await;
    let (me, gate, proposal) = (
        judge.participant.clone(),
        fixture.gate.clone(),
        fixture.proposal.clone(),
    );
    let digest = "0".repeat(64);
    for (kind, payload) in [
        ("gate.approve", json!({ "gate": gate, "approver": me })),
        (
            "tool.approve",
            json!({ "tool_proposal": proposal, "approver": me }),
        ),
        (
            "gate.reject",
            json!({ "gate": gate, "rejector": me, "reason": "r" }),
        ),
        (
            "tool.reject",
            json!({ "tool_proposal": proposal, "rejector": me, "reason": "r" }),
        ),
        (
            "gate.amend",
            json!({ "gate": gate, "arguments": { "full_command": "ls" }, "digest": digest }),
        ),
        (
            "policy.allow",
            json!({ "prefix": ["touch"], "expires_at": "2036-01-01T00:00:00.000Z" }),
        ),
    ] {
        let sentence = "agents do not vote; a person has to decide";
        fixture
            .observer
            .expect_refused(&mut judge, kind, payload, UNAUTHORIZED, sentence)
            .await;
    }
    let exec = json!({ "command": "ls" });
    fixture
        .observer
        .expect_refused(
            &mut judge,
            "shell.exec",
            exec,
            UNAUTHORIZED,
            "only people may send this",
        )
        .await;
    fixture.observer.expect_no_trace(&fixture.server).await;
    let gates = fixture.open_gates().await;
    assert_eq!(gates[0]["approvals"], json!([]));
    let voters = gates[0]["request"]["voters"].as_array().unwrap();
    assert!(!voters.contains(&json!(me)), "{voters:?}");
}

#[tokio::test]
async fn one_person_on_two_devices_has_one_vote() {
    let quorum = json!({ "default_gate_quorum": { "type": "any", "count": 2 } });
    let mut fixture = RefusalFixture::new("devices", quorum).await;
    let mut phone = fixture.server.join("devices", &fixture.people[0]).await;
    assert_eq!(
        fixture.ann.approve(&fixture.gate).await["type"],
        "session.ack"
    );
    assert_eq!(
        phone.approve(&fixture.proposal).await["type"],
        "session.ack"
    );
    assert_eq!(
        fixture.ann.approve(&fixture.proposal).await["type"],
        "session.ack"
    );
    let gates = fixture.open_gates().await;
    assert_eq!(gates.len(), 1, "three messages of one person are one vote");
    assert_eq!(gates[0]["approvals"].as_array().unwrap().len(), 1);

    assert_eq!(
        fixture.bob.approve(&fixture.gate).await["type"],
        "session.ack"
    );
    let resolve = fixture.observer.client().wait_for("gate.resolve").await;
    let voters = resolve["payload"]["approvals"].as_array().unwrap();
    let mut voters: Vec<_> = voters
        .iter()
        .map(|vote| vote["participant"].as_str().unwrap())
        .collect();
    voters.sort_unstable();
    assert_eq!(
        voters,
        [
            fixture.people[0].participant.as_str(),
            fixture.people[1].participant.as_str()
        ]
    );
    assert_eq!(
        fixture
            .logged_types(&fixture.proposal)
            .iter()
            .filter(|kind| *kind == "tool.execute")
            .count(),
        1
    );
}

#[tokio::test]
async fn a_replayed_vote_is_not_counted_again() {
    let quorum = json!({ "default_gate_quorum": { "type": "any", "count": 2 } });
    let mut fixture = RefusalFixture::new("replays", quorum).await;
    let mut phone = fixture.server.join("replays", &fixture.people[0]).await;
    let payload = json!({ "gate": fixture.gate, "approver": fixture.ann.participant });
    let vote = fixture.ann.envelope("gate.approve", payload);
    let id = vote["id"].as_str().unwrap();
    fixture.ann.send_raw(&vote.to_string()).await;
    let seq = fixture.ann.expect_ack(id).await;
    for device in [&mut fixture.ann, &mut phone] {
        // The client's timestamp is not part of the content.
        let mut again = vote.clone();
        again["ts"] = json!("2027-01-01T00:00:00.000Z");
        device.send_raw(&again.to_string()).await;
        let ack = device.answer(id).await;
        assert_eq!(
            ack["payload"],
            json!({ "id": id, "seq": seq, "duplicate": true })
        );
    }
    // The same message from somebody else is a different message under the same id.
    let reused =
        format!("the id `{id}` was used for another message; give every message its own id");
    let mut stolen = vote.clone();
    stolen["sender"] = json!(fixture.bob.participant);
    stolen["payload"]["approver"] = json!(fixture.bob.participant);
    let mut reworded = vote.clone();
    reworded["payload"]["comment"] = json!("second thoughts");
    let mut reject = vote.clone();
    reject["type"] = json!("gate.reject");
    reject["payload"] =
        json!({ "gate": fixture.gate, "rejector": fixture.ann.participant, "reason": "r" });
    for (user, message) in [
        (&mut fixture.bob, stolen),
        (&mut fixture.ann, reworded),
        (&mut phone, reject),
    ] {
        user.send_raw(&message.to_string()).await;
        let error = user.expect_refusal(id).await;
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(INVALID_MESSAGE), &json!(reused))
        );
    }
    assert_eq!(fixture.logged_types(id), ["gate.approve"]);
    assert_eq!(
        fixture.open_gates().await[0]["approvals"]
            .as_array()
            .unwrap()
            .len(),
        1
    );

    // Bob closes the gate: the old vote is still acknowledged, a new one is too late.
    fixture.bob.approve(&fixture.gate).await;
    fixture.ann.send_raw(&vote.to_string()).await;
    assert_eq!(fixture.ann.answer(id).await["payload"]["duplicate"], true);
    let me = fixture.ann.participant.clone();
    let late = [
        (
            "gate.approve",
            json!({ "gate": fixture.gate, "approver": me }),
        ),
        (
            "tool.approve",
            json!({ "tool_proposal": fixture.proposal, "approver": me }),
        ),
        (
            "tool.reject",
            json!({ "tool_proposal": fixture.proposal, "rejector": me, "reason": "r" }),
        ),
    ];
    for (kind, payload) in late.clone() {
        let sentence = "the gate is closed: the command was granted";
        fixture
            .observer
            .expect_refused(&mut fixture.ann, kind, payload, INVALID_STATE, sentence)
            .await;
    }
    let result = json!({ "tool_proposal": fixture.proposal, "success": true, "duration_ms": 1 });
    fixture.bot.send_and_ack("tool.result", result).await;
    for (kind, payload) in late {
        let sentence = "the gate is closed: the proposal is finished";
        fixture
            .observer
            .expect_refused(&mut fixture.ann, kind, payload, INVALID_STATE, sentence)
            .await;
    }
    let payload = json!({ "gate": "no-such-gate", "approver": me });
    let sentence = "there is no gate and no proposal `no-such-gate`";
    fixture
        .observer
        .expect_refused(
            &mut fixture.ann,
            "gate.approve",
            payload,
            INVALID_STATE,
            sentence,
        )
        .await;
    fixture.observer.expect_no_trace(&fixture.server).await;
}

#[tokio::test]
async fn a_rejected_proposal_does_not_come_back_under_its_id() {
    let mut fixture = RefusalFixture::new("rejected", json!({})).await;
    let first = fixture
        .bot
        .envelope("tool.propose", fixture.bot.proposal("touch b"));
    let id = first["id"].as_str().unwrap();
    fixture.bot.send_raw(&first.to_string()).await;
    let seq = fixture.bot.expect_ack(id).await;
    let reject =
        json!({ "tool_proposal": id, "rejector": fixture.ann.participant, "reason": "not today" });
    fixture.ann.send_and_ack("tool.reject", reject).await;
    let before = fixture.logged_types(id);

    fixture.bot.send_raw(&first.to_string()).await;
    assert_eq!(
        fixture.bot.answer(id).await["payload"],
        json!({ "id": id, "seq": seq, "duplicate": true })
    );
    let mut other = first.clone();
    other["payload"]["arguments"]["full_command"] = json!("rm -rf .");
    let mut person = first.clone();
    person["type"] = json!("context.add");
    person["sender"] = json!(fixture.ann.participant);
    person["payload"] = json!({ "key": "k", "content_type": "text", "content": "c" });
    let reused =
        format!("the id `{id}` was used for another message; give every message its own id");
    for (user, message) in [(&mut fixture.bot, other), (&mut fixture.ann, person)] {
        user.send_raw(&message.to_string()).await;
        let error = user.expect_refusal(id).await;
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(INVALID_MESSAGE), &json!(reused))
        );
    }
    assert_eq!(fixture.logged_types(id), before);
    assert_eq!(
        before,
        [
            "tool.propose",
            "gate.request",
            "tool.reject",
            "gate.resolve"
        ]
    );
    assert_eq!(
        fixture.open_gates().await.len(),
        1,
        "only the one that was open before"
    );

    // A blocked proposal stays blocked, and its id stays used.
    let blocked = fixture
        .bot
        .envelope("tool.propose", fixture.bot.proposal("rm -rf /"));
    let id = blocked["id"].as_str().unwrap();
    fixture.bot.send_raw(&blocked.to_string()).await;
    assert_eq!(fixture.bot.expect_refusal(id).await["code"], "GATE_FAILED");
    fixture.bot.send_raw(&blocked.to_string()).await;
    let error = fixture.bot.expect_refusal(id).await;
    let sentence =
        format!("proposal `{id}` was made before and is blocked; propose again with a new id");
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(INVALID_STATE), &json!(sentence))
    );
    assert_eq!(fixture.logged_types(id), ["tool.propose"]);
}

#[tokio::test]
async fn only_the_executor_reports_on_a_run_and_only_while_it_runs() {
    let mut fixture = RefusalFixture::new("runs", json!({})).await;
    let other = fixture
        .server
        .invite("other", &["driver"], &["--kind", "agent"]);
    let mut other = fixture.server.join("runs", &other).await;
    let id = fixture.proposal.clone();
    let output = json!({ "tool_proposal": id, "stream": "stdout", "text": "x", "complete": false });
    let result = json!({ "tool_proposal": id, "success": true, "duration_ms": 1 });
    let both = [
        ("tool.output", output.clone()),
        ("tool.result", result.clone()),
    ];
    let not_running = format!("`{id}` is not running");
    let observer = &mut fixture.observer;
    for (kind, payload) in both.clone() {
        observer
            .expect_refused(&mut fixture.bot, kind, payload, INVALID_STATE, &not_running)
            .await;
    }
    fixture.ann.approve(&fixture.gate).await;
    let not_yours = format!(
        "only `{}`, which runs this command, may report on it",
        fixture.bot.participant
    );
    for (kind, payload) in both.clone() {
        for user in [&mut other, &mut fixture.ann] {
            observer
                .expect_refused(user, kind, payload.clone(), UNAUTHORIZED, &not_yours)
                .await;
        }
    }
    for (kind, _) in &both {
        let payload = json!({ "tool_proposal": "nothing", "stream": "stdout", "text": "x", "complete": false, "success": true, "duration_ms": 1 });
        let sentence = "there is no proposal `nothing`";
        observer
            .expect_refused(&mut fixture.bot, kind, payload, INVALID_STATE, sentence)
            .await;
    }
    fixture
        .bot
        .send_and_ack("tool.output", output.clone())
        .await;
    let gap = json!({ "tool_proposal": id, "stream": "stdout", "text": "x", "complete": true, "offset": 7 });
    let sentence = "output continues at byte 1, not at 7";
    observer
        .expect_refused(
            &mut fixture.bot,
            "tool.output",
            gap,
            INVALID_STATE,
            sentence,
        )
        .await;
    let end = json!({ "tool_proposal": id, "stream": "stdout", "text": "", "complete": true });
    fixture.bot.send_and_ack("tool.output", end).await;
    observer
        .expect_refused(
            &mut fixture.bot,
            "tool.output",
            output.clone(),
            INVALID_STATE,
            "this stream is complete",
        )
        .await;
    let keys = json!({ "tool_proposal": id, "data": "x" });
    observer
        .expect_refused(
            &mut fixture.ann,
            "tool.input",
            keys,
            INVALID_STATE,
            "this command takes no input",
        )
        .await;
    fixture.bot.send_and_ack("tool.result", result).await;
    let finished = format!("command `{id}` has ended already");
    for (kind, payload) in both {
        for user in [&mut fixture.bot, &mut other] {
            observer
                .expect_refused(user, kind, payload.clone(), INVALID_STATE, &finished)
                .await;
        }
    }
    observer.expect_no_trace(&fixture.server).await;
    let log = fixture.logged_types(&id);
    assert_eq!(log.iter().filter(|kind| *kind == "tool.output").count(), 2);
    assert_eq!(log.iter().filter(|kind| *kind == "tool.result").count(), 1);
}

#[tokio::test]
async fn a_session_is_created_once_and_accepts_messages_only_after_a_join() {
    let mut fixture = RefusalFixture::new("here", json!({})).await;
    fixture.server.create_session("there", json!({})).await;
    let mut there = RefusalObserver::join(&fixture.server, "there").await;
    let exists = "session `here` exists already; join it, or create one with another id";
    let admin = fixture.server.admin();
    let mut unjoined = fixture.server.connect(&admin).await;
    unjoined.session = "here".to_owned();
    let create = json!({ "config": { "max_participants": 1 } });
    for user in [&mut unjoined, &mut fixture.ann] {
        fixture
            .observer
            .expect_refused(
                user,
                "session.create",
                create.clone(),
                INVALID_STATE,
                exists,
            )
            .await;
    }
    let first = "join the session first: send `session.join`";
    let me = unjoined.participant.clone();
    for (kind, payload) in [
        (
            "gate.approve",
            json!({ "gate": fixture.gate, "approver": me }),
        ),
        (
            "session.end",
            json!({ "reason": "r", "final_state": "aborted" }),
        ),
        ("output.read", json!({ "ref": fixture.proposal })),
        ("participant.announce", admin.announce()),
        ("session.leave", json!({})),
    ] {
        fixture
            .observer
            .expect_refused(&mut unjoined, kind, payload, UNAUTHORIZED, first)
            .await;
    }
    let sentence = "this is session `here`; `session` may not say `there`";
    for (kind, payload) in [
        (
            "gate.approve",
            json!({ "gate": fixture.gate, "approver": fixture.ann.participant }),
        ),
        ("session.leave", json!({})),
        (
            "session.end",
            json!({ "reason": "r", "final_state": "aborted" }),
        ),
    ] {
        let mut envelope = fixture.ann.envelope(kind, payload);
        envelope["session"] = json!("there");
        there
            .expect_envelope_refused(&mut fixture.ann, envelope, INVALID_MESSAGE, sentence)
            .await;
    }
    let again = json!({ "participant": fixture.people[0].announce(), "supported_versions": [1] });
    let sentence = "you have joined this session already";
    fixture
        .observer
        .expect_refused(
            &mut fixture.ann,
            "session.join",
            again,
            INVALID_STATE,
            sentence,
        )
        .await;

    // Joining a session that does not exist creates nothing.
    unjoined.session = "nowhere".to_owned();
    let join = json!({ "participant": admin.announce(), "supported_versions": [1] });
    fixture
        .observer
        .expect_refused(
            &mut unjoined,
            "session.join",
            join,
            "SESSION_NOT_FOUND",
            "there is no session `nowhere`",
        )
        .await;
    fixture.observer.expect_no_trace(&fixture.server).await;
    there.expect_no_trace(&fixture.server).await;
    let (_, sessions, _) = crate::support::run_pvp(&[
        "audit",
        "verify",
        "--json",
        "--data",
        fixture.server.data.to_str().unwrap(),
    ]);
    let sessions: Value = serde_json::from_str(&sessions).unwrap();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_repeated_create_is_acknowledged_and_changes_nothing() {
    let server = TestServer::start(&[]).await;
    let mut admin = server.connect(&server.admin()).await;
    admin.session = "once".to_owned();
    let create = admin.envelope(
        "session.create",
        json!({ "config": { "max_participants": 3 } }),
    );
    let id = create["id"].as_str().unwrap();
    admin.send_raw(&create.to_string()).await;
    let seq = admin.expect_ack(id).await;
    admin.send_raw(&create.to_string()).await;
    let ack = admin.answer(id).await;
    assert_eq!(
        ack["payload"],
        json!({ "id": id, "seq": seq, "duplicate": true })
    );
    let mut other = create.clone();
    other["payload"]["config"]["max_participants"] = json!(4);
    admin.send_raw(&other.to_string()).await;
    assert_eq!(admin.expect_refusal(id).await["code"], INVALID_STATE);
    let made = server.log("once");
    let made = made
        .iter()
        .filter(|line| line["entry"]["type"] == "session.create");
    assert_eq!(made.count(), 1);
}

#[tokio::test]
async fn nobody_joins_with_someone_elses_identity() {
    let mut fixture = RefusalFixture::new("seats", json!({})).await;
    let (ann, bob) = (fixture.people[0].clone(), fixture.people[1].clone());
    let mut thief = fixture.server.connect(&bob).await;
    thief.session = "seats".to_owned();
    // Bob's token with Ann's id in the announcement, in the sender, and in both.
    let join =
        |user: &TestUser| json!({ "participant": user.announce(), "supported_versions": [1] });
    let mut announce_only = thief.envelope("session.join", join(&ann));
    announce_only["payload"]["participant"]["roles"] = json!(["approver"]);
    let mut sender_only = thief.envelope("session.join", join(&bob));
    sender_only["sender"] = json!(ann.participant);
    let mut both = thief.envelope("session.join", join(&ann));
    both["sender"] = json!(ann.participant);
    for (envelope, field) in [
        (announce_only, "participant.id"),
        (sender_only, "sender"),
        (both, "sender"),
    ] {
        let sentence = wrong_sender_message(&bob.participant, field, &ann.participant);
        fixture
            .observer
            .expect_envelope_refused(&mut thief, envelope, UNAUTHORIZED, &sentence)
            .await;
    }
    fixture.observer.expect_no_trace(&fixture.server).await;
    fixture.ann.sync().await;
}

#[tokio::test]
async fn forks_and_merges_are_not_available() {
    let mut fixture = RefusalFixture::new("forks", json!({})).await;
    let sentence = "forks and merges are not available on this server";
    for (kind, payload) in [
        (
            "fork.create",
            json!({ "name": "f", "from_point": fixture.proposal, "reason": "r", "participants": [], "copy_context": true }),
        ),
        ("fork.switch", json!({ "target_fork": "f" })),
        (
            "merge.propose",
            json!({ "source_fork": "a", "target_fork": "b", "strategy": "append", "summary": "s" }),
        ),
        ("merge.execute", json!({ "merge_proposal": "m" })),
    ] {
        fixture
            .observer
            .expect_refused(&mut fixture.ann, kind, payload, INVALID_STATE, sentence)
            .await;
    }
    let mut envelope = fixture.ann.envelope(
        "context.add",
        json!({ "key": "k", "content_type": "text", "content": "c" }),
    );
    envelope["fork"] = json!("f");
    fixture
        .observer
        .expect_envelope_refused(&mut fixture.ann, envelope, INVALID_STATE, sentence)
        .await;
    fixture.observer.expect_no_trace(&fixture.server).await;
}

#[tokio::test]
async fn an_invalid_configuration_is_refused_by_field() {
    let server = TestServer::start(&[]).await;
    server.create_session("config", json!({})).await;
    let mut observer = RefusalObserver::join(&server, "config").await;
    let admin = server.admin();
    let mut inside = server.join("config", &admin).await;
    let mut outside = server.connect(&admin).await;
    outside.session = "new".to_owned();
    for (config, sentence) in [
        (
            json!({ "heartbeat_interval_seconds": 0 }),
            "`heartbeat_interval_seconds` is 0; use 1 to 3600",
        ),
        (
            json!({ "max_participants": 0 }),
            "`max_participants` is 0; use 1 to 200",
        ),
        (
            json!({ "max_participants": 201 }),
            "`max_participants` is 201; use 1 to 200",
        ),
        (
            json!({ "idle_timeout_seconds": 0 }),
            "`idle_timeout_seconds` is 0; use 1 to 31536000",
        ),
        (
            json!({ "away_timeout_seconds": 0 }),
            "`away_timeout_seconds` is 0; use 1 to 31536000",
        ),
        (
            json!({ "gate_timeout_seconds": 31_536_001 }),
            "`gate_timeout_seconds` is 31536001; use 0 to 31536000",
        ),
        (
            json!({ "profile": "read" }),
            "`profile` for approved commands is `none` or `workspace`",
        ),
        (
            json!({ "solo": true, "four_eyes": true }),
            "`solo` lets people approve their own commands, and `four_eyes` forbids it; set one of them",
        ),
    ] {
        let create = json!({ "config": config });
        observer
            .expect_refused(
                &mut outside,
                "session.create",
                create,
                INVALID_MESSAGE,
                sentence,
            )
            .await;
        let update = json!({ "changes": config, "reason": "r" });
        observer
            .expect_refused(
                &mut inside,
                "session.config_update",
                update,
                INVALID_MESSAGE,
                sentence,
            )
            .await;
    }
    // An unknown setting is refused, in whatever place it stands.
    let any = json!({ "type": "any", "count": 2 });
    for (config, sentence) in [
        (
            json!({ "default_gate_quorm": any }),
            "there is no session setting `default_gate_quorm`; did you mean `default_gate_quorum`?",
        ),
        (
            json!({ "quorum_by_category": { "destructiv": any } }),
            "`quorum_by_category`: there is no category with a quorum `destructiv`; did you mean `destructive`?",
        ),
    ] {
        let create = json!({ "config": config, "changes": {} });
        let sentence_of = |kind: &str| format!("`{kind}`: {sentence}");
        observer
            .expect_refused(
                &mut outside,
                "session.create",
                create,
                INVALID_MESSAGE,
                &sentence_of("session.create"),
            )
            .await;
        let update = json!({ "changes": config, "config": {}, "reason": "r" });
        observer
            .expect_refused(
                &mut inside,
                "session.config_update",
                update,
                INVALID_MESSAGE,
                &sentence_of("session.config_update"),
            )
            .await;
    }
    // A value of the wrong type is reported too, by its field or by what is allowed.
    for (config, part) in [
        (json!({ "heartbeat_interval_seconds": -1 }), "integer `-1`"),
        (json!({ "heartbeat_interval_seconds": 1.5 }), "1.5"),
        (
            json!({ "default_gate_quorum": { "type": "any", "count": 0 } }),
            "default_gate_quorum",
        ),
        (
            json!({ "default_gate_quorum": { "type": "some" } }),
            "there is no type of quorum `some`",
        ),
        (
            json!({ "quorum_by_category": { "write": { "type": "specific", "participants": [] } } }),
            "quorum_by_category.write",
        ),
        (
            json!({ "shell_exec": "always" }),
            "unknown variant `always`, expected one of `direct`",
        ),
        (json!({ "on_gate_timeout": null }), "`session.create`: "),
    ] {
        let id = outside
            .send("session.create", json!({ "config": config }))
            .await;
        let error = outside.expect_refusal(&id).await;
        assert_eq!(error["code"], INVALID_MESSAGE);
        assert!(
            error["message"].as_str().unwrap().contains(part),
            "{config}: {error}"
        );
    }
    observer.expect_no_trace(&server).await;
}
