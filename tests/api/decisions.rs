//! Which decisions led to a commit: the published routes of a server without login, asked as the
//! published git hooks and the published panel ask, and the route that takes a token.

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};

use crate::fixture::{ApiFixture, ApiUser, SESSION, context_payload};
use crate::support::{TestClient, TestServer, TestUser, http_get, http_request, reserve_port};

const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

/// A server without login whose decision tracking has a port of its own.
struct OpenServer {
    server: TestServer,
    /// The address of that port.
    bridge: String,
    /// Keeps the port from others until the server has it.
    _port: TcpSocket,
    ann: TestClient,
    agent: TestClient,
}

fn claimed_user(id: &str, roles: &[&str], agent: bool) -> TestUser {
    TestUser {
        token: String::new(),
        participant: id.to_owned(),
        roles: roles.iter().map(|&role| role.to_owned()).collect(),
        agent,
    }
}

impl OpenServer {
    /// Starts it, with a session that Ann and an agent have joined.
    async fn start() -> Self {
        let port = reserve_port("127.0.0.1:0");
        let bridge = port.local_addr().unwrap();
        let number = bridge.port().to_string();
        let server = TestServer::start(&["--open", "--bridge-port", &number]).await;
        let mut agent = TestClient::connect(&server.address, None, "bot").await;
        let bot = claimed_user("bot", &["driver"], true);
        agent.join(SESSION, &bot, json!({})).await;
        let mut ann = TestClient::connect(&server.address, None, "ann").await;
        let user = claimed_user("ann", &["driver", "approver"], false);
        ann.join(SESSION, &user, json!({})).await;
        Self {
            server,
            bridge: bridge.to_string(),
            _port: port,
            ann,
            agent,
        }
    }

    /// Asks on the port, and asserts that the server's own address says the same.
    async fn get(&self, path: &str) -> Value {
        let own = get_json(&self.server.address, &format!("/bridge{path}")).await;
        let answer = get_json(&self.bridge, path).await;
        assert_eq!(own, answer);
        answer
    }

    async fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let (status, text) = http_request(&self.bridge, "POST", path, &[], body).await;
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// Lets the agent run a command that Ann approves, to its end.
    async fn run_approved(&mut self, command: &str) -> String {
        let proposal = self.agent.propose(command).await;
        self.ann.approve(&proposal).await;
        finish(&mut self.agent, &proposal).await;
        proposal
    }
}

async fn finish(agent: &mut TestClient, proposal: &str) {
    let is_grant = |message: &Value| {
        message["type"] == "tool.execute" && message["payload"]["tool_proposal"] == proposal
    };
    agent.wait(is_grant).await;
    let result = json!({ "tool_proposal": proposal, "success": true, "duration_ms": 1,
        "result": { "exitCode": 0, "stdout": "", "stderr": "" } });
    agent.send_and_ack("tool.result", result).await;
}

async fn send_prompt(person: &mut TestClient, text: &str) {
    let prompt = json!({ "content": text, "target_agent": "bot", "contributors": ["ann"],
        "context_keys": [] });
    person.send_and_ack("prompt.submit", prompt).await;
}

/// An answer, without the time that passes meanwhile.
async fn get_json(address: &str, path: &str) -> Value {
    let (status, text) = http_get(address, path, &[]).await;
    assert_eq!(status, 200, "{text}");
    let mut answer: Value = serde_json::from_str(&text).unwrap();
    if let Some(uptime) = answer.get_mut("uptime_seconds") {
        assert!(uptime.take().is_u64(), "{text}");
    }
    answer
}

/// Runs a script as the published hooks are: with curl, and PVP_GIT_PORT.
async fn run_hook(script: &str, bridge: &str) -> String {
    let port = bridge.rsplit(':').next().unwrap();
    let output = tokio::process::Command::new("bash")
        .args(["-euc", script])
        .env("PVP_GIT_PORT", port)
        .output()
        .await
        .unwrap();
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{problem}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn published_hooks_write_trailers_and_report_the_commit() {
    let mut open = OpenServer::start().await;
    send_prompt(&mut open.ann, "add eggs").await;
    open.run_approved("touch a").await;
    open.run_approved("touch b").await;
    let context = r#"curl -sf --max-time 30 "http://127.0.0.1:${PVP_GIT_PORT}/commit-context""#;
    let prepare = format!(
        r#"context="$({context})"
        field() {{ printf '%s' "$context" | jq -r ".$1"; }}
        printf 'PVP-SESSION: %s\nPVP-PROMPTS: %s\nPVP-APPROVALS: %s\nPVP-PARTICIPANTS: %s\nPVP-TOOLS: %s\n' \
            "$(field session_id)" "$(field prompts_count)" "$(field approvals_count)" \
            "$(field active_participants)" "$(field tool_executions)""#
    );
    assert_eq!(
        run_hook(&prepare, &open.bridge).await,
        "PVP-SESSION: room\nPVP-PROMPTS: 1\nPVP-APPROVALS: 2\nPVP-PARTICIPANTS: ann, bot\nPVP-TOOLS: shell:2\n"
    );
    // `curl -d` names another content type than JSON.
    let report = format!(
        r#"curl -sf -X POST "http://localhost:${{PVP_GIT_PORT}}/commit-created" -d '{{"commit_sha":"{SHA}","message":"Add eggs","files":["a","b"],"odd":{{}}}}'"#
    );
    assert_eq!(run_hook(&report, &open.bridge).await, r#"{"success":true}"#);
    let after = open.get("/commit-context").await;
    assert_eq!(
        after,
        json!({ "session_id": SESSION, "last_commit": SHA, "messages_since_last_commit": 0,
            "active_participants": "ann, bot", "decision_summary": null, "tool_executions": "",
            "prompts_count": 0, "approvals_count": 0 })
    );
    let mut commits = open.get("/commits?limit=20").await;
    assert!(
        commits[0]
            .as_object_mut()
            .unwrap()
            .remove("timestamp")
            .is_some()
    );
    let count = commits[0].as_object_mut().unwrap().remove("message_count");
    assert!(count.unwrap().as_u64().unwrap() > 5);
    assert_eq!(
        commits,
        json!([{ "sha": SHA, "message": "Add eggs", "files": ["a", "b"], "session_id": SESSION,
            "had_pvp_metadata": true, "participants": ["ann", "bot"] }])
    );
    assert_eq!(open.get("/commits?limit=0").await, json!([]));
}

#[tokio::test]
async fn the_published_panel_sees_what_was_decided_since_the_last_commit() {
    let mut open = OpenServer::start().await;
    let proposal = open.run_approved("touch a").await;
    let context = open.get("/commit-context").await;
    assert_eq!(context["decision_summary"], "touch a (approved by ann)");
    assert_eq!(context["last_commit"], Value::Null);
    assert!(context["messages_since_last_commit"].as_u64().unwrap() > 3);
    let metadata = open.get("/extended-metadata").await;
    assert_eq!(metadata["session_id"], SESSION);
    assert_eq!(
        metadata["participants"],
        json!([
            { "id": "ann", "name": "ann", "type": "human", "roles": ["driver", "approver"] },
            { "id": "bot", "name": "bot", "type": "agent", "roles": ["driver"] },
        ])
    );
    assert_eq!(metadata["gates_processed"], 1);
    assert_eq!(metadata["forks"], json!([]));
    assert_eq!(metadata["tools"][0]["tool_name"], "shell");
    assert_eq!(metadata["tools"][0]["execution_count"], 1);
    assert_eq!(metadata["tools"][0]["success_rate"], 1.0);
    let ids: Vec<_> = metadata["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["id"])
        .collect();
    assert!(ids.contains(&&json!(proposal)), "{metadata}");
    assert!(
        metadata["message_ids"]
            .as_array()
            .unwrap()
            .contains(&json!(proposal))
    );
    let status = open.get("/status").await;
    assert_eq!(status["session_id"], SESSION);
    assert_eq!(
        (&status["running"], &status["session_active"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(status["commits_tracked"], 0);
    assert_eq!(
        open.post("/reset", "").await,
        (200, json!({ "success": true }))
    );
    assert_eq!(open.get("/commit-context").await["approvals_count"], 0);
}

#[tokio::test]
async fn the_session_that_was_active_last_is_spoken_of() {
    let mut open = OpenServer::start().await;
    let mut other = TestClient::connect(&open.server.address, None, "cid").await;
    let cid = claimed_user("cid", &["driver"], false);
    other.join("den", &cid, json!({})).await;
    assert_eq!(open.get("/commit-context").await["session_id"], "den");
    open.ann
        .send_and_ack("context.add", context_payload("k"))
        .await;
    assert_eq!(open.get("/commit-context").await["session_id"], SESSION);
    let started = open.post(
        "/session-started",
        r#"{"session_id":"den","participants":[]}"#,
    );
    assert_eq!(started.await.0, 200);
    assert_eq!(open.get("/status").await["session_id"], "den");
    let repeated = json!({ "message": { "session": SESSION, "type": "x" } }).to_string();
    assert_eq!(open.post("/message", &repeated).await.0, 200);
    assert_eq!(open.get("/status").await["session_id"], SESSION);
    assert_eq!(open.post("/session-ended", "{}").await.0, 200);
    assert_eq!(
        open.get("/commit-context").await,
        json!({ "session_id": null, "last_commit": null, "messages_since_last_commit": 0,
            "active_participants": "", "decision_summary": null, "tool_executions": "",
            "prompts_count": 0, "approvals_count": 0 })
    );
    assert_eq!(open.get("/status").await["session_active"], false);
    // A session that is not there cannot be made the active one.
    let unknown = open
        .post("/session-started", r#"{"session_id":"nowhere"}"#)
        .await;
    assert_eq!(unknown.0, 404, "{}", unknown.1);
    assert_eq!(open.get("/status").await["session_id"], Value::Null);
}

#[tokio::test]
async fn after_a_restart_the_store_says_which_session_was_active_last() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(data.path(), &["--open"]).await;
    let mut clients = Vec::new();
    for session in ["first", "second"] {
        let mut ann = TestClient::connect(&server.address, None, "ann").await;
        let user = claimed_user("ann", &["driver"], false);
        ann.join(session, &user, json!({})).await;
        clients.push(ann);
    }
    // The older session, so that the newest is not the answer. Times have milliseconds.
    let last = clients[1].received.last().unwrap()["ts"].clone();
    loop {
        let note = context_payload("k");
        clients[0].send_and_ack("context.add", note).await;
        clients[0].sync().await;
        let entries = clients[0].received.iter();
        let mut added = entries.filter(|it| it["type"] == "context.add");
        if added.any(|it| it["ts"].as_str() > last.as_str()) {
            break;
        }
    }
    drop(clients);
    assert!(server.stop().await.success());
    let server = TestServer::start_in(data.path(), &["--open"]).await;
    let context = get_json(&server.address, "/bridge/commit-context").await;
    assert_eq!(context["session_id"], "first");
    assert_eq!(context["active_participants"], "");
}

#[tokio::test]
async fn what_not_everyone_may_see_is_not_told() {
    let mut open = OpenServer::start().await;
    let before = open.get("/commit-context").await["messages_since_last_commit"].as_u64();
    let mut secret = context_payload("plum");
    secret["visible_to"] = json!(["ann"]);
    open.ann.send_and_ack("context.add", secret).await;
    let thinking = json!({ "agent": "bot", "prompt_ref": "kiwi", "visible_to": "approvers_only" });
    open.agent.send_and_ack("thinking.start", thinking).await;
    let share = json!({ "key": "FIG", "scope": ["bot"], "value_ref": "hunter2" });
    open.ann.send("secret.share", share).await;
    open.ann.sync().await;
    open.ann
        .send_and_ack("context.add", context_payload("pear"))
        .await;
    let metadata = open.get("/extended-metadata").await;
    let text = metadata.to_string();
    for hidden in ["plum", "kiwi", "hunter2"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    assert!(
        metadata["context_keys"]
            .as_array()
            .unwrap()
            .contains(&json!("pear")),
        "{text}"
    );
    let after = open.get("/commit-context").await["messages_since_last_commit"].as_u64();
    assert!(after > before, "what everyone may see is counted");
}

#[tokio::test]
async fn foreign_pages_and_garbage_are_refused() {
    let open = OpenServer::start().await;
    let port = open.bridge.rsplit(':').next().unwrap();
    let rebound = format!("evil.example:{port}");
    for headers in [
        &[("Host", rebound.as_str())][..],
        &[("Host", "evil.example")],
        &[("Origin", "http://evil.example")],
        &[("Origin", "null")],
        // Another port of this machine is another origin, too.
        &[("Origin", "http://127.0.0.1:1")],
    ] {
        let (status, text) = http_get(&open.bridge, "/commit-context", headers).await;
        assert_eq!(status, 403, "{headers:?}: {text}");
        let report = format!(r#"{{"commit_sha":"{SHA}"}}"#);
        let path = "/commit-created";
        let (status, text) = http_request(&open.bridge, "POST", path, headers, &report).await;
        assert_eq!(status, 403, "{headers:?}: {text}");
    }
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let deep = format!(r#"{{"commit_sha":"{SHA}","files":{deep}}}"#);
    for body in [
        "",
        "{}",
        "[]",
        "null",
        "\"x\"",
        "{",
        "\u{1}",
        r#"{"commit_sha":7}"#,
        r#"{"commit_sha":"../../etc/passwd"}"#,
        r#"{"commit_sha":"abc"}"#,
        r#"{"commit_sha":"éééééé"}"#,
        &deep,
    ] {
        let (status, report) = open.post("/commit-created", body).await;
        assert_eq!(
            (status, &report["code"]),
            (400, &json!("INVALID_MESSAGE")),
            "{body}"
        );
    }
    for path in ["/session-started", "/message"] {
        for body in [
            "",
            "{}",
            "[1]",
            r#"{"session_id":"a b"}"#,
            r#"{"message":{"session":7}}"#,
        ] {
            assert_eq!(open.post(path, body).await.0, 400, "{path} {body}");
        }
    }
    assert_eq!(
        open.post("/session-ended", r#"{"session_id":[]}"#).await.0,
        400
    );
    let large = format!(
        r#"{{"commit_sha":"{SHA}","message":"{}"}}"#,
        "x".repeat(100_000)
    );
    assert_eq!(open.post("/commit-created", &large).await.0, 413);
    assert_eq!(http_get(&open.bridge, "/commits?limit=x", &[]).await.0, 400);
    assert_eq!(http_get(&open.bridge, "/api/sessions", &[]).await.0, 404);
    assert_eq!(http_get(&open.bridge, "/commit-created", &[]).await.0, 405);
    assert_eq!(open.get("/commits").await, json!([]));
}

#[tokio::test]
async fn reports_are_bounded() {
    let open = OpenServer::start().await;
    let files: Vec<_> = (0..500).map(|n| format!("{n}{}", "é".repeat(20))).collect();
    let message = format!("{}\nsecond line", "ü".repeat(500));
    let report = json!({ "hash": SHA, "message": message, "files": files });
    for _ in 0..105 {
        assert_eq!(
            open.post("/commit-created", &report.to_string()).await.0,
            200
        );
    }
    let commits = open.get("/commits?limit=100000").await;
    let commits = commits.as_array().unwrap();
    assert_eq!(commits.len(), 100);
    assert_eq!(commits[0]["files"].as_array().unwrap().len(), 50);
    assert_eq!(commits[0]["message"].as_str().unwrap().chars().count(), 201);
    assert_eq!(open.get("/status").await["commits_tracked"], 105);
}

#[tokio::test]
async fn a_server_with_login_has_neither_the_routes_nor_the_port() {
    let port = reserve_port("127.0.0.1:0");
    let address = port.local_addr().unwrap();
    let number = address.port().to_string();
    let server = TestServer::start(&["--bridge-port", &number]).await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    let admin = format!("Bearer {}", server.admin().token);
    for path in [
        "/commit-context",
        "/extended-metadata",
        "/status",
        "/commits",
        "/commit-created",
        "/session-started",
        "/session-ended",
        "/message",
        "/reset",
    ] {
        for headers in [&[][..], &[("Authorization", admin.as_str())]] {
            for method in ["GET", "POST"] {
                let path = format!("/bridge{path}");
                let answer = http_request(&server.address, method, &path, headers, "{}").await;
                assert_eq!(answer.0, 404, "{method} {path}: {}", answer.1);
            }
        }
    }
}

#[tokio::test]
async fn a_taken_port_is_a_warning_and_the_server_goes_on() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let number = taken.local_addr().unwrap().port().to_string();
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("log");
    let flags = ["--open", "--bridge-port", &number];
    let file = std::fs::File::create(&log).unwrap();
    let settings = [("PVP_LOG", "warn")];
    let place = data.path().join("data");
    let server = TestServer::start_with(&place, "127.0.0.1:0", &flags, &settings, Some(file)).await;
    let (status, _) = http_get(&server.address, "/bridge/commit-context", &[]).await;
    assert_eq!(status, 200);
    let log = std::fs::read_to_string(log).unwrap();
    assert!(
        log.contains(&number) && log.contains("--bridge-port"),
        "{log}"
    );
}

fn context_path(query: &str) -> String {
    format!("/api/sessions/{SESSION}/commit-context{query}")
}

#[tokio::test]
async fn a_token_reads_the_commands_that_people_decided_on() {
    let mut fixture = ApiFixture::new(
        json!({ "quorum_by_category": { "write": { "type": "any", "count": 2 } } }),
    )
    .await;
    let read = fixture.propose("cat a").await;
    finish(&mut fixture.agent, &read).await;
    let proposal = fixture.propose("touch a").await;
    for person in [&fixture.ann, &fixture.bob] {
        let vote = person
            .api
            .vote(SESSION, &proposal, json!({ "vote": "approve" }));
        vote.await.expect_ok();
    }
    let waiting = fixture.propose("touch b").await;
    let running = fixture.eve.api.get(&context_path("")).await.expect_ok();
    let commands = running["commands"].as_array().unwrap();
    assert_eq!(
        commands.len(),
        1,
        "neither reads nor what waits: {waiting} {running}"
    );
    assert_eq!(commands[0]["status"], "running");
    finish(&mut fixture.agent, &proposal).await;
    let ended = fixture.eve.api.get(&context_path("")).await.expect_ok();
    let command = &ended["commands"][0];
    assert_eq!(
        (
            &command["tool_proposal"],
            &command["command"],
            &command["category"],
            &command["status"]
        ),
        (
            &json!(proposal),
            &json!("touch a"),
            &json!("write"),
            &json!("finished")
        )
    );
    let approver = |user: &ApiUser, name: &str| json!({ "id": user.id(), "name": name });
    assert_eq!(
        command["approvers"],
        json!([approver(&fixture.ann, "ann"), approver(&fixture.bob, "bob")])
    );
    assert_eq!(ended["approvals_count"], 2);
    assert_eq!(ended["session_id"], SESSION);
    assert_eq!(ended["head"], fixture.log().len());
    // What ended before does not count.
    let later = format!("?after={}", ended["head"]);
    let later = fixture.eve.api.get(&context_path(&later)).await.expect_ok();
    assert_eq!(
        (&later["commands"], &later["messages_since_last_commit"]),
        (&json!([]), &json!(0))
    );
    let future = fixture
        .eve
        .api
        .get(&context_path("?since=99999999999"))
        .await
        .expect_ok();
    assert_eq!(
        (&future["commands"], &future["approvals_count"]),
        (&json!([]), &json!(0))
    );
    let past = fixture
        .eve
        .api
        .get(&context_path("?since=0&after=0"))
        .await
        .expect_ok();
    assert_eq!(past, ended);
}

#[tokio::test]
async fn a_token_reads_only_its_own_session_and_what_its_holder_may_see() {
    let mut fixture = ApiFixture::new(json!({})).await;
    fixture.server.create_session("den", json!({})).await;
    let bound = fixture
        .server
        .invite("dan", &["approver"], &["--session", "den"]);
    let bound = ApiUser::with_user(&fixture.server, bound).await;
    assert_eq!(bound.api.get(&context_path("")).await.status, 403);
    let anonymous = http_get(&fixture.server.address, &context_path(""), &[]).await;
    assert_eq!(anonymous.0, 401);
    let nowhere = fixture
        .ann
        .api
        .get("/api/sessions/nowhere/commit-context")
        .await;
    assert_eq!(nowhere.status, 404);
    assert_eq!(
        fixture.ann.api.get(&context_path("?sinse=1")).await.status,
        400
    );
    let count = async |user: &ApiUser| {
        let context = user.api.get(&context_path("")).await.expect_ok();
        context["messages_since_last_commit"].as_u64().unwrap()
    };
    let thinking =
        json!({ "agent": fixture.bot.id(), "prompt_ref": "p", "visible_to": "approvers_only" });
    fixture.agent.send_and_ack("thinking.start", thinking).await;
    assert_eq!(count(&fixture.bob).await, count(&fixture.eve).await + 1);
}

#[tokio::test]
async fn a_long_log_is_read_from_its_newest_end_only() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let proposal = fixture.propose("touch a").await;
    let vote = json!({ "vote": "approve" });
    fixture
        .ann
        .api
        .vote(SESSION, &proposal, vote)
        .await
        .expect_ok();
    let mut last = String::new();
    for n in 0..4200 {
        let text = format!("line {n}\n");
        let output = json!({ "tool_proposal": proposal, "stream": "stdout", "text": text, "complete": false });
        last = fixture.agent.send("tool.output", output).await;
    }
    fixture.agent.expect_ack(&last).await;
    let context = fixture.ann.api.get(&context_path("")).await.expect_ok();
    // The approval is further back than is read, the command itself is found by its index.
    assert_eq!(context["approvals_count"], 0);
    assert_eq!(context["commands"][0]["tool_proposal"], json!(proposal));
}
