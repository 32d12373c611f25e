//! Stand-ins for published clients, one for each thing that they do and expect of `--open`.
//!
//! They know nothing of this server's extensions: no acknowledgements, no `gate.resolve`, no `after`,
//! gates by the id of the proposal, and no executor.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{TestClient, TestServer, http_get};

/// The types that the published protocol has not; stand-ins do not see them.
const EXTENSIONS: [&str; 6] = [
    "session.welcome",
    "session.ack",
    "gate.resolve",
    "gate.amend",
    "tool.discard",
    "output.page",
];

/// A published client: a person's screen, or an agent.
struct OldClient {
    socket: TestClient,
    id: String,
}

fn announcement(id: &str, kind: &str, roles: &[&str]) -> Value {
    json!({ "id": id, "name": id, "type": kind, "roles": roles, "transport": "websocket" })
}

impl OldClient {
    async fn connect(server: &TestServer, id: &str) -> Self {
        let socket = TestClient::try_connect(&server.address, "/", &[], id).await;
        Self {
            socket: socket.unwrap(),
            id: id.to_owned(),
        }
    }

    /// Joins, and returns what it was sent up to its own announcement.
    async fn join(
        server: &TestServer,
        session: &str,
        id: &str,
        kind: &str,
        roles: &[&str],
    ) -> (Self, Vec<Value>) {
        let mut client = Self::connect(server, id).await;
        client.socket.session = session.to_owned();
        let participant = announcement(id, kind, roles);
        let join = json!({ "participant": participant, "supported_versions": [1] });
        let join = client.socket.send("session.join", join).await;
        let mut received = Vec::new();
        loop {
            let message = client.socket.next().await.expect("the connection stays");
            assert_ne!(message["type"], "error", "{message}");
            // The last thing before what is new; a published client would take the next message.
            let done =
                message["type"] == "session.ack" && message["payload"]["id"] == join.as_str();
            received.push(message);
            if done {
                break;
            }
        }
        received.retain(|message| !EXTENSIONS.contains(&message["type"].as_str().unwrap()));
        (client, received)
    }

    async fn agent(server: &TestServer, session: &str) -> Self {
        Self::join(server, session, "agent", "agent", &["driver"])
            .await
            .0
    }

    async fn person(server: &TestServer, session: &str) -> Self {
        Self::join(server, session, "person", "human", &["admin"])
            .await
            .0
    }

    /// Sends something that must be taken.
    async fn send(&mut self, kind: &str, payload: Value) -> String {
        let id = self.socket.send(kind, payload).await;
        self.socket.expect_ack(&id).await;
        id
    }

    async fn propose(&mut self, command: &str) -> String {
        let proposal = json!({
            "tool_name": "shell", "arguments": { "command": command, "args": [], "full_command": command },
            "agent": self.id, "risk_level": "low", "description": "d", "requires_approval": false,
            "category": "shell_execute",
        });
        self.socket.send("tool.propose", proposal).await
    }

    /// Waits for how a proposal ends, as a published agent does: by its id, in published messages.
    async fn outcome(&mut self, proposal: &str) -> Value {
        self.socket
            .wait(|message| {
                let payload = &message["payload"];
                match message["type"].as_str().unwrap() {
                    "tool.execute" => payload["tool_proposal"] == proposal,
                    "gate.reject" | "gate.timeout" => payload["gate"] == proposal,
                    _ => false,
                }
            })
            .await
    }

    async fn report(&mut self, proposal: &str, result: Value) {
        let result = json!({ "tool_proposal": proposal, "success": true, "result": result, "duration_ms": 1 });
        self.send("tool.result", result).await;
    }

    /// Waits until this message was told.
    async fn hears(&mut self, kind: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.socket
            .wait(|message| message["type"] == kind && fits(&message["payload"]))
            .await
    }
}

fn config() -> Value {
    json!({
        "require_approval_for": [], "default_gate_quorum": { "type": "any", "count": 1 },
        "allow_forks": true, "max_participants": 10, "ordering_mode": "causal",
        "on_participant_timeout": "skip", "heartbeat_interval_seconds": 30,
        "idle_timeout_seconds": 120, "away_timeout_seconds": 300,
    })
}

#[tokio::test]
async fn no_proposal_leaves_its_agent_waiting() {
    let server = TestServer::start(&["--open"]).await;
    let mut person = OldClient::person(&server, "ends").await;
    let mut agent = OldClient::agent(&server, "ends").await;

    let read = agent.propose("ls -la").await;
    assert_eq!(agent.outcome(&read).await["type"], "tool.execute");
    agent.report(&read, json!("a\n")).await;

    // Whatever the person names, the agent hears of the proposal.
    for (kind, field) in [("gate.reject", "gate"), ("tool.reject", "tool_proposal")] {
        for by_gate in [false, true] {
            let proposal = agent.propose("touch a").await;
            let request = person
                .hears("gate.request", |it| it["action_ref"] == proposal.as_str())
                .await;
            let named = match by_gate {
                true => request["id"].as_str().unwrap(),
                false => &proposal,
            };
            let vote = json!({ field: named, "rejector": "person", "reason": "not now" });
            person.send(kind, vote).await;
            let outcome = agent.outcome(&proposal).await;
            assert_eq!(outcome["type"], "gate.reject");
            let reason = outcome["payload"]["reason"].as_str().unwrap();
            assert!(reason.ends_with("not now"), "{reason}");
            let gate_request = &outcome["payload"]["gate_request"];
            assert_eq!(*gate_request, request["id"]);
        }
    }

    let blocked = agent.propose("rm -rf /").await;
    let outcome = agent.outcome(&blocked).await;
    assert_eq!(
        (&outcome["type"], &outcome["sender"]),
        (&json!("gate.reject"), &json!("system"))
    );
    assert!(
        outcome["payload"]["reason"]
            .as_str()
            .unwrap()
            .contains("rule")
    );

    // A proposal that is not even recorded.
    let payload = json!({
        "tool_name": "shell", "arguments": {}, "agent": "agent", "risk_level": "low",
        "description": "d", "requires_approval": false, "category": "shell_execute",
    });
    let refused = agent.socket.send("tool.propose", payload).await;
    assert_eq!(agent.outcome(&refused).await["type"], "gate.reject");

    let cancelled = agent.propose("touch b").await;
    person
        .hears("gate.request", |it| it["action_ref"] == cancelled.as_str())
        .await;
    let cancel = json!({ "tool_proposal": cancelled, "reason": "too late" });
    person.send("tool.cancel", cancel).await;
    assert_eq!(
        agent.outcome(&cancelled).await["payload"]["reason"],
        "cancelled by person; too late"
    );

    let stopped = agent.propose("touch c").await;
    person
        .hears("gate.request", |it| it["action_ref"] == stopped.as_str())
        .await;
    let stop = json!({ "urgency": "stop", "message": "enough" });
    person.send("interrupt.raise", stop).await;
    assert_eq!(
        agent.outcome(&stopped).await["payload"]["reason"],
        "cancelled by person; enough"
    );

    let change = json!({ "changes": { "gate_timeout_seconds": 1 }, "reason": "r" });
    person.send("session.config_update", change).await;
    let late = agent.propose("touch d").await;
    let outcome = agent.outcome(&late).await;
    assert_eq!(outcome["type"], "gate.timeout");
    assert_eq!(outcome["payload"]["resolution"], "rejected");
}

#[tokio::test]
async fn the_creator_hears_of_the_session_and_may_take_its_time_to_join() {
    let server = TestServer::start_with_env(&["--open"], &[("PVP_JOIN_SECONDS", "1")]).await;
    let mut creator = OldClient::connect(&server, "creator").await;
    creator.socket.session = "made".to_owned();
    let create = json!({ "name": "Made", "config": config() });
    creator.socket.send("session.create", create.clone()).await;
    let told = creator.hears("session.create", |_| true).await;
    assert_eq!(told["payload"]["name"], "Made");
    for (field, value) in config().as_object().unwrap() {
        assert_eq!(told["payload"]["config"][field], *value, "{field}");
    }
    // It talks for longer than it has to join.
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        creator.socket.send("heartbeat.ping", json!({})).await;
        creator.hears("heartbeat.pong", |_| true).await;
    }
    let participant = announcement("creator", "human", &["admin"]);
    let join = json!({ "participant": participant, "supported_versions": [1] });
    let join = creator.socket.send("session.join", join).await;
    creator.socket.expect_ack(&join).await;
    // Creating it again changes nothing, before and after joining.
    let other = json!({ "name": "Other", "config": config() });
    creator.send("session.create", other.clone()).await;
    let told = creator
        .hears("session.create", |it| it["name"] != Value::Null)
        .await;
    assert_eq!(told["payload"]["name"], "Made");
    let mut again = OldClient::connect(&server, "creator").await;
    again.socket.session = "made".to_owned();
    again.send("session.create", other.clone()).await;
    let told = again.hears("session.create", |_| true).await;
    assert_eq!(told["payload"]["name"], "Made");
    let mut stranger = OldClient::connect(&server, "stranger").await;
    stranger.socket.session = "made".to_owned();
    let create = stranger.socket.send("session.create", other).await;
    assert_eq!(
        stranger.socket.expect_refusal(&create).await["code"],
        "INVALID_STATE"
    );
}

#[tokio::test]
async fn whoever_is_gone_is_told_to_have_left_and_is_announced_when_back() {
    let server =
        TestServer::start_with_env(&["--open"], &[("PVP_DISCONNECT_GRACE_SECONDS", "1")]).await;
    let mut person = OldClient::person(&server, "lists").await;
    let agent = OldClient::agent(&server, "lists").await;
    drop(agent);
    let left = person
        .socket
        .wait(|message| message["type"] == "session.leave" && message["sender"] == "agent")
        .await;
    assert_eq!(left["payload"]["reason"], "disconnected");
    // Those who come meanwhile are not told that it is here.
    let (_, received) = OldClient::join(&server, "lists", "late", "human", &["observer"]).await;
    let announced: Vec<_> = received
        .iter()
        .filter(|message| message["type"] == "participant.announce" && message["seq"].is_null())
        .map(|message| message["sender"].as_str().unwrap())
        .collect();
    assert_eq!(announced, ["person"]);
    let seq = left["seq"].as_u64().unwrap();
    let _agent = OldClient::agent(&server, "lists").await;
    person
        .socket
        .wait(|message| {
            message["type"] == "participant.announce"
                && message["sender"] == "agent"
                && message["seq"].as_u64() > Some(seq)
        })
        .await;
}

#[tokio::test]
async fn results_tasks_and_monitors_are_taken_as_they_come() {
    let server = TestServer::start(&["--open"]).await;
    let mut person = OldClient::person(&server, "taken").await;
    let mut agent = OldClient::agent(&server, "taken").await;
    let report = json!({ "code": "GATE_FAILED", "message": "no", "recoverable": true });
    agent.send("error", report).await;
    let tasks = json!({ "key": "session:tasks", "content_type": "structured", "content": { "tasks": ["a"] } });
    agent.send("context.add", tasks).await;
    person
        .hears("context.add", |it| it["key"] == "session:tasks")
        .await;
    agent
        .send("response.end", json!({ "finish_reason": "complete" }))
        .await;
    person.hears("response.end", |_| true).await;
    let prompt = json!({ "content": "and you?", "target_agent": "person", "contributors": ["agent"], "context_keys": [] });
    agent.send("prompt.submit", prompt).await;

    for value in [
        json!("text"),
        json!(["a", { "b": 1 }]),
        json!({ "files": [] }),
    ] {
        let read = agent.propose("ls").await;
        agent.outcome(&read).await;
        agent.report(&read, value.clone()).await;
        let told = person
            .hears("tool.result", |it| it["tool_proposal"] == read.as_str())
            .await;
        assert_eq!(told["payload"]["result"], value);
    }

    let monitor = json!({
        "tool_name": "monitor", "arguments": { "file": "log", "streaming": true }, "agent": "agent",
        "risk_level": "low", "description": "watch", "requires_approval": true, "category": "file_read",
    });
    let monitor = agent.socket.send("tool.propose", monitor).await;
    person
        .hears("gate.request", |it| it["action_ref"] == monitor.as_str())
        .await;
    person
        .send(
            "gate.approve",
            json!({ "gate": monitor, "approver": "person" }),
        )
        .await;
    agent.outcome(&monitor).await;
    agent.report(&monitor, json!("watching")).await;
    let line = json!({ "tool_proposal": monitor, "stream": "stdout", "text": "later\n", "complete": false });
    agent.send("tool.output", line).await;
    person
        .hears("tool.output", |it| it["text"] == "later\n")
        .await;
}

#[tokio::test]
async fn files_that_were_written_and_injected_context_are_told_as_context() {
    let server = TestServer::start(&["--open"]).await;
    let mut person = OldClient::person(&server, "context").await;
    let mut agent = OldClient::agent(&server, "context").await;
    let write = json!({
        "tool_name": "file_write", "arguments": { "path": "src/a.txt", "content": "hello", "diff": "+hello" },
        "agent": "agent", "risk_level": "medium", "description": "write", "requires_approval": true,
        "category": "file_write",
    });
    let write = agent.socket.send("tool.propose", write).await;
    person
        .hears("gate.request", |it| it["action_ref"] == write.as_str())
        .await;
    person
        .send(
            "gate.approve",
            json!({ "gate": write, "approver": "person" }),
        )
        .await;
    agent.outcome(&write).await;
    agent.report(&write, json!({ "path": "src/a.txt" })).await;
    let told = agent
        .hears("context.add", |it| it["key"] == "file:src/a.txt")
        .await;
    assert_eq!(told["payload"]["content"], "hello");
    let raise = json!({ "urgency": "pause", "message": "read this", "inject_context": "use tabs" });
    let raise = person.send("interrupt.raise", raise).await;
    let key = format!("interrupt_{raise}");
    let told = agent
        .hears("context.add", |it| it["key"] == key.as_str())
        .await;
    assert_eq!(told["payload"]["content"], "use tabs");
}

#[tokio::test]
async fn whole_files_and_bursts_are_taken_and_told_by_reference() {
    let server = TestServer::start(&["--open"]).await;
    let mut person = OldClient::person(&server, "sizes").await;
    let mut agent = OldClient::agent(&server, "sizes").await;
    let file = "0123456789abcdé\n".repeat(160_000);
    let update = json!({ "key": "file:big", "new_content": file, "reason": "opened" });
    agent.send("context.update", update).await;
    let told = person
        .hears("context.update", |it| it["key"] == "file:big")
        .await;
    assert_eq!(told["payload"]["new_content"], Value::Null);
    let reference = &told["payload"]["new_content_ref"];
    assert_eq!(reference["size_bytes"], file.len());
    let uri = reference["uri"].as_str().unwrap();
    let (status, body) = http_get(&server.address, uri, &[]).await;
    assert_eq!((status, body == file), (200, true));

    let write = json!({
        "tool_name": "file_write", "arguments": { "path": "big", "content": file }, "agent": "agent",
        "risk_level": "medium", "description": "write", "requires_approval": true, "category": "file_write",
    });
    let write = agent.socket.send("tool.propose", write).await;
    let told = person
        .socket
        .wait(|message| message["type"] == "tool.propose" && message["id"] == write.as_str())
        .await;
    assert!(told.to_string().len() < 20_000);
    let content = &told["payload"]["arguments"]["content"];
    assert_eq!(content["content_ref"]["uri"], uri);
    assert!(file.starts_with(content["excerpt"].as_str().unwrap()));
    let notes = told["payload"]["assessment"]["notes"].to_string();
    assert!(notes.contains("`content` has 2720000 bytes"), "{notes}");

    // A project as it is opened: many messages at once, and nobody is closed for it.
    for number in 0..1500 {
        let add = json!({ "key": format!("file:{number}"), "content_type": "file", "content": "x".repeat(2000) });
        agent.socket.send("context.add", add).await;
    }
    person
        .hears("context.add", |it| it["key"] == "file:1499")
        .await;
    assert!(
        !agent
            .socket
            .received
            .iter()
            .any(|message| message["type"] == "error")
    );
    // Nobody else's text is opened by a hash, nor what is no hash.
    for path in [
        format!(
            "/sessions/other/contents/{}",
            reference["hash"].as_str().unwrap()
        ),
        "/sessions/sizes/contents/x".to_owned(),
    ] {
        let (status, _) = http_get(&server.address, &path, &[]).await;
        assert!(
            status == 404 || status == 400 || status == 409,
            "{path}: {status}"
        );
    }
}

#[tokio::test]
async fn what_one_session_keeps_by_reference_is_bounded() {
    let server =
        TestServer::start_with_env(&["--open"], &[("PVP_LONG_TEXT_BYTES", "1000000")]).await;
    let mut agent = OldClient::agent(&server, "bounded").await;
    let add = |key: &str, fill: &str| json!({ "key": key, "content_type": "file", "content": fill.repeat(700_000) });
    agent.send("context.add", add("file:a", "a")).await;
    // The same text takes no more room.
    agent.send("context.add", add("file:b", "a")).await;
    let third = agent.socket.send("context.add", add("file:c", "c")).await;
    let refused = agent.socket.expect_refusal(&third).await;
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("long_text_bytes"),
        "{refused}"
    );
}

#[tokio::test]
async fn an_agent_that_comes_back_does_not_get_old_prompts_as_new_ones() {
    let data = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(data.path(), &["--open"]).await;
    let mut person = OldClient::person(&server, "back").await;
    let mut agent = OldClient::agent(&server, "back").await;
    let prompt = |content: &str| json!({ "content": content, "target_agent": "agent", "contributors": ["person"], "context_keys": [] });
    let first = person.send("prompt.submit", prompt("first")).await;
    agent
        .hears("prompt.submit", |it| it["content"] == "first")
        .await;
    let start = json!({ "agent": "agent", "prompt_ref": first });
    agent.send("response.start", start).await;
    agent
        .send("response.end", json!({ "finish_reason": "complete" }))
        .await;
    drop(agent);
    person.send("prompt.submit", prompt("second")).await;
    let prompts = |received: &[Value]| -> Vec<String> {
        let prompts = received
            .iter()
            .filter(|message| message["type"] == "prompt.submit");
        let texts =
            prompts.map(|message| message["payload"]["content"].as_str().unwrap().to_owned());
        texts.collect()
    };
    let (agent, received) = OldClient::join(&server, "back", "agent", "agent", &["driver"]).await;
    assert_eq!(prompts(&received), ["second"]);
    drop(agent);
    // The same after the server was killed; people get the whole history.
    server.kill_9().await;
    let server = TestServer::start_in(data.path(), &["--open"]).await;
    let (_agent, received) = OldClient::join(&server, "back", "agent", "agent", &["driver"]).await;
    assert_eq!(prompts(&received), ["second"]);
    let (_person, received) = OldClient::join(&server, "back", "person", "human", &["admin"]).await;
    assert_eq!(prompts(&received), ["first", "second"]);
}
