//! One story from end to end: an agent of the published protocol, which knows none of this server's
//! extensions, works with a person who has our screen, and nobody is stuck.

use serde_json::{Value, json};

use crate::fixture::TestScreen;
use crate::support::{TestClient, TestServer};

/// An old-style agent: gates by the id of the proposal, whole files in messages, and no executor.
struct OldAgent {
    socket: TestClient,
}

impl OldAgent {
    /// Joins, and returns the prompts that it is sent: it would answer every one of them.
    async fn join(server: &TestServer) -> (Self, Vec<String>) {
        let socket = TestClient::try_connect(&server.address, "/", &[], "01OLDAGENT").await;
        let mut agent = Self {
            socket: socket.unwrap(),
        };
        agent.socket.session = "story".to_owned();
        let participant = json!({
            "id": "01OLDAGENT", "name": "old agent", "type": "agent", "roles": ["driver"],
            "transport": "websocket",
        });
        let join = json!({ "participant": participant, "supported_versions": [1] });
        let join = agent.socket.send("session.join", join).await;
        agent.socket.expect_ack(&join).await;
        let received = agent.socket.received.iter();
        let prompts = received.filter(|message| message["type"] == "prompt.submit");
        let prompts = prompts.map(|prompt| prompt["payload"]["content"].as_str().unwrap());
        let prompts = prompts.map(str::to_owned).collect();
        (agent, prompts)
    }

    async fn answer_prompt(&mut self, content: &str) {
        let prompt = self
            .socket
            .wait(|message| {
                message["type"] == "prompt.submit" && message["payload"]["content"] == content
            })
            .await;
        let start = json!({ "agent": "01OLDAGENT", "prompt_ref": prompt["id"] });
        self.socket.send("response.start", start).await;
        let text = json!({ "text": format!("working on: {content}") });
        self.socket.send("response.chunk", text).await;
        self.socket
            .send("response.end", json!({ "finish_reason": "complete" }))
            .await;
    }

    async fn propose(&mut self, tool: &str, category: &str, arguments: Value) -> String {
        let proposal = json!({
            "tool_name": tool, "arguments": arguments, "agent": "01OLDAGENT", "risk_level": "low",
            "description": "as asked", "requires_approval": false, "category": category,
        });
        self.socket.send("tool.propose", proposal).await
    }

    async fn propose_command(&mut self, command: &str) -> String {
        let arguments = json!({ "command": command, "args": [], "full_command": command });
        self.propose("shell", "shell_execute", arguments).await
    }

    /// Waits for the end of a proposal; the type of the message that tells it, and the reason.
    async fn outcome(&mut self, proposal: &str) -> (String, String) {
        let outcome = self
            .socket
            .wait(|message| {
                let payload = &message["payload"];
                match message["type"].as_str().unwrap() {
                    "tool.execute" => payload["tool_proposal"] == proposal,
                    "gate.reject" | "gate.timeout" => payload["gate"] == proposal,
                    _ => false,
                }
            })
            .await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&outcome["type"]), text(&outcome["payload"]["reason"]))
    }

    async fn report(&mut self, proposal: &str, result: Value) {
        let result = json!({ "tool_proposal": proposal, "success": true, "result": result, "duration_ms": 3 });
        let id = self.socket.send("tool.result", result).await;
        self.socket.expect_ack(&id).await;
    }
}

/// Moves to the card, wherever the focus is.
fn focus_card(screen: &mut TestScreen) {
    screen.send_keys("\u{7}");
    screen.wait_for_text("▶ Waiting for a decision");
}

/// Goes back to the composer from a card that is decided.
fn leave_card(screen: &mut TestScreen) {
    screen.wait_for_text("Decided");
    screen.send_keys("\u{1b}");
    screen.wait_for_text("enter send");
}

fn open_screen(server: &TestServer) -> TestScreen {
    let link = format!("http://{}", server.address);
    let arguments = [
        &link,
        "--session",
        "story",
        "--as",
        "ann",
        "--role",
        "admin",
        "--create",
    ];
    TestScreen::start_with(&arguments, &[], 100, 36)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_agent_and_a_person_with_our_screen_get_through_a_day() {
    let data = tempfile::tempdir().unwrap();
    let port = crate::support::reserve_port("127.0.0.1:0");
    let address = port.local_addr().unwrap().to_string();
    let mut server = TestServer::start_on(data.path(), &address, &["--open"]).await;
    let mut screen = open_screen(&server);
    screen.wait_for_text("● connected");
    let (mut agent, prompts) = OldAgent::join(&server).await;
    assert_eq!(prompts, [""; 0]);
    screen.wait_for_text("old agent");

    // Read: asked for in words, run at once, and the result is any JSON.
    screen.send_keys("list the files\r");
    agent.answer_prompt("list the files").await;
    screen.wait_for_text("working on: list the files");
    let read = agent.propose_command("ls -la").await;
    assert_eq!(agent.outcome(&read).await.0, "tool.execute");
    agent.report(&read, json!("notes.txt\n")).await;
    screen.wait_for_text("notes.txt");

    // Write: a whole file, with a card that shows it.
    let content = "milk\nbread\neggs\n";
    let arguments = json!({ "path": "list.txt", "content": content, "diff": "+++ harmless" });
    let write = agent.propose("file_write", "file_write", arguments).await;
    screen.wait_for_text("file_write list.txt");
    screen.wait_for_text("+eggs");
    focus_card(&mut screen);
    screen.send_keys("a");
    assert_eq!(agent.outcome(&write).await.0, "tool.execute");
    agent.report(&write, json!({ "path": "list.txt" })).await;
    let shared = |message: &Value| message["payload"]["key"] == "file:list.txt";
    agent.socket.wait(shared).await;
    leave_card(&mut screen);

    // Reject: the reason reaches the agent.
    let rejected = agent.propose_command("rm -rf old").await;
    screen.wait_for_text("rm -rf old");
    focus_card(&mut screen);
    screen.send_keys("r");
    screen.wait_for_text("Reason for rejecting");
    screen.send_keys("we need them\r");
    let (kind, reason) = agent.outcome(&rejected).await;
    assert_eq!(
        (kind.as_str(), reason.as_str()),
        ("gate.reject", "we need them")
    );
    leave_card(&mut screen);

    // Block: nobody is asked.
    let blocked = agent.propose_command("rm -rf /").await;
    assert_eq!(agent.outcome(&blocked).await.0, "gate.reject");

    // Interrupt: what waits is withdrawn.
    let stopped = agent.propose_command("touch waits").await;
    screen.wait_for_text("touch waits");
    screen.send_keys("/interrupt stop enough\r");
    let (kind, reason) = agent.outcome(&stopped).await;
    assert_eq!(
        (kind.as_str(), reason.as_str()),
        ("gate.reject", "cancelled by ann; enough")
    );
    let raised = agent
        .socket
        .wait(|message| message["type"] == "interrupt.raise")
        .await;
    let acknowledge =
        json!({ "interrupt": raised["id"], "by": "01OLDAGENT", "action_taken": "stopped" });
    agent
        .socket
        .send_and_ack("interrupt.acknowledge", acknowledge)
        .await;

    // Restart of the server, by force, while a command waits: the gate is still there, the screen
    // comes back by itself, and the agent is not asked again for what it did.
    let waiting = agent.propose_command("touch after-restart").await;
    screen.wait_for_text("touch after-restart");
    server.kill_9().await;
    let _server = TestServer::start_on(data.path(), &address, &["--open"]).await;
    screen.wait_for_text("● connected");
    let (mut agent, prompts) = OldAgent::join(&_server).await;
    assert_eq!(prompts, [""; 0]);
    focus_card(&mut screen);
    screen.send_keys("a");
    assert_eq!(agent.outcome(&waiting).await.0, "tool.execute");
    agent
        .report(
            &waiting,
            json!({ "exitCode": 0, "stdout": "", "stderr": "" }),
        )
        .await;

    // Timeout: told as such.
    let change = json!({ "changes": { "gate_timeout_seconds": 1 }, "reason": "hurry" });
    let mut admin = TestClient::try_connect(&_server.address, "/", &[], "eve")
        .await
        .unwrap();
    admin.session = "story".to_owned();
    let participant = json!({ "id": "eve", "name": "eve", "type": "human", "roles": ["admin"], "transport": "websocket" });
    let join = json!({ "participant": participant, "supported_versions": [1] });
    let join = admin.send("session.join", join).await;
    admin.expect_ack(&join).await;
    admin.send_and_ack("session.config_update", change).await;
    let late = agent.propose_command("touch late").await;
    assert_eq!(agent.outcome(&late).await.0, "gate.timeout");
}
