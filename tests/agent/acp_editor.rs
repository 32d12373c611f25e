//! `pvp acp` between a stand-in for an editor and one for an agent: what is passed on, what is
//! decided, and what is in the record.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::fixture::assert_contains;
use crate::support::acp_agent::{AcpStandIn, CONVERSATION, install};
use crate::support::cli::{CliEnv, CliProcess};
use crate::support::session::send_prompt;
use crate::support::{TestClient, TestServer};
use crate::{approve, next_gate, reject, start_session};

/// An editor with an open conversation. The editor is `agent.run`.
pub(crate) struct EditorStandIn {
    pub(crate) server: TestServer,
    pub(crate) ann: TestClient,
    pub(crate) agent: AcpStandIn,
    /// What the editor heard and was not asked for yet.
    pub(crate) unread: Vec<Value>,
}

impl EditorStandIn {
    /// Starts an agent in an editor of somebody who is logged in.
    pub(crate) async fn start() -> Self {
        let mut it = Self::start_agent().await;
        let opened = json!({ "sessionId": CONVERSATION });
        let (params, answer) = it.open(opened.clone()).await;
        assert_eq!(params["mcpServers"].as_array().unwrap().len(), 2);
        assert_eq!(params["_meta"], Value::Null);
        assert_eq!(answer["result"], opened);
        it
    }

    pub(crate) async fn start_agent() -> Self {
        Self::start_named("stand-in").await
    }

    /// Starts an agent whose program has this name.
    pub(crate) async fn start_named(name: &str) -> Self {
        let (server, ann) = start_session(json!({})).await;
        let person = server.invite("eve", &["driver", "approver"], &[]);
        let cli = CliEnv::logged_in(&server.link(&person, Some("owl"))).await;
        let (program, listener) = install(&cli);
        let renamed = program.with_file_name(name);
        std::fs::rename(program, &renamed).unwrap();
        let program = renamed;
        let user = server.invite("helper", &["driver"], &["--kind", "agent"]);
        let mut command = cli.command(&["acp", "--"]);
        command.arg(&program).stdin(Stdio::piped());
        command.env("PVP_AGENT_LINK", server.link(&user, Some("owl")));
        let run = CliProcess::spawn(&mut command);
        let agent = AcpStandIn::accept(cli, run, listener, user.participant).await;
        let mut it = Self {
            server,
            ann,
            agent,
            unread: Vec::new(),
        };
        let capabilities = json!({ "fs": { "readTextFile": false }, "elicitation": {} });
        let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        it.request(1, "initialize", params).await;
        let initialize = it.agent.expect("initialize").await;
        // Files and terminals are ours, whatever the editor can do.
        let told = &initialize["params"]["clientCapabilities"];
        assert_eq!(told["fs"]["writeTextFile"], true);
        assert_eq!(told["elicitation"], json!({}));
        it.agent
            .respond(&initialize, json!({ "protocolVersion": 1 }))
            .await;
        assert_eq!(it.answer(1).await["result"]["protocolVersion"], 1);
        it
    }

    /// Opens a conversation; returns what the agent was told, and what the editor was answered.
    pub(crate) async fn open(&mut self, opened: Value) -> (Value, Value) {
        let server = json!({ "name": "own", "command": "own", "args": [], "env": [] });
        let meta =
            json!({ "claudeCode": { "options": { "permissionMode": "bypassPermissions" } } });
        let params =
            json!({ "cwd": self.agent.cli.workdir(), "mcpServers": [server], "_meta": meta });
        self.request(2, "session/new", params).await;
        let session_new = self.agent.expect("session/new").await;
        self.agent.respond(&session_new, opened).await;
        let answer = self.answer(2).await;
        (session_new["params"].clone(), answer)
    }

    pub(crate) async fn request(&mut self, id: u64, method: &str, params: Value) {
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
    }

    pub(crate) async fn say(&mut self, message: Value) {
        self.agent.run.write_line(&message.to_string()).await;
    }

    /// Types a prompt; returns it as the agent reads it.
    pub(crate) async fn prompt(&mut self, id: u64, text: &str) -> Value {
        let prompt = json!([{ "type": "text", "text": text }]);
        let params = json!({ "sessionId": CONVERSATION, "prompt": prompt });
        self.request(id, "session/prompt", params).await;
        let (prompt, read) = self.agent.prompted().await;
        assert_eq!(read, text);
        prompt
    }

    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        self.wait(|message| message["id"] == id && message.get("method").is_none())
            .await
    }

    pub(crate) async fn notified(&mut self, method: &str) -> Value {
        self.wait(|message| message["method"] == method).await
    }

    async fn wait(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(index) = self.unread.iter().position(&fits) {
                return self.unread.remove(index);
            }
            let message = self.agent.run.next_json().await;
            self.unread.push(message);
        }
    }
}

fn found<'a>(person: &'a TestClient, kind: &str) -> Vec<&'a Value> {
    let received = person.received.iter();
    received.filter(|message| message["type"] == kind).collect()
}

#[tokio::test]
async fn a_question_is_decided_in_the_session_and_the_rest_passes() {
    let mut it = EditorStandIn::start().await;
    let prompt = it.prompt(3, "do it").await;
    let recorded = it.ann.wait_for("prompt.submit").await;
    assert_eq!(recorded["payload"]["content"], "do it");
    assert_contains(recorded["sender"].as_str().unwrap(), &["eve"]);
    it.agent.ask(1, "call-1", "touch made").await;
    let (gate, line) = next_gate(&mut it.ann).await;
    assert_eq!(line, "touch made");
    let proposed = found(&it.ann, "tool.propose")[0]["payload"].clone();
    assert_eq!(proposed["degree"], "hooked");
    approve(&mut it.ann, &gate).await;
    assert_eq!(it.agent.choice(1).await, "this-one");
    let chunk = json!({
        "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "done" },
    });
    it.agent.update(chunk.clone()).await;
    assert_eq!(
        it.notified("session/update").await["params"]["update"],
        chunk
    );
    it.agent.end_turn(&prompt).await;
    assert_eq!(it.answer(3).await["result"]["stopReason"], "end_turn");
    it.ann.wait_for("response.end").await;
    let said = found(&it.ann, "response.chunk")[0]["payload"]["text"].clone();
    assert_eq!(said, "done");
    // The question was not the editor's.
    assert!(it.unread.is_empty(), "{:?}", it.unread);
}

#[tokio::test]
async fn the_reason_of_a_rejection_comes_before_the_end_of_the_turn() {
    let mut it = EditorStandIn::start().await;
    let prompt = it.prompt(3, "do it").await;
    it.agent.ask(1, "call-1", "rm -r src").await;
    let (gate, _) = next_gate(&mut it.ann).await;
    send_prompt(&mut it.ann, &it.agent.participant, "look at the tests").await;
    reject(&mut it.ann, &gate, "keep the sources").await;
    assert_eq!(it.agent.choice(1).await, "not-this");
    it.agent.end_turn(&prompt).await;
    let (follow_up, text) = it.agent.prompted().await;
    assert_contains(&text, &["keep the sources", "ann says: look at the tests"]);
    // The person at the editor reads it too, and the turn is not over for them.
    let shown = it.notified("session/update").await;
    assert_eq!(shown["params"]["update"]["content"]["text"], text);
    assert!(it.unread.is_empty());
    it.agent.end_turn(&follow_up).await;
    assert_eq!(it.answer(3).await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn modes_that_ask_nobody_are_refused() {
    let mut it = EditorStandIn::start().await;
    for (id, mode) in [(4, "bypassPermissions"), (5, "yolo")] {
        let params = json!({ "sessionId": CONVERSATION, "modeId": mode });
        it.request(id, "session/set_mode", params).await;
        let refused = it.answer(id).await;
        assert_contains(refused["error"]["message"].as_str().unwrap(), &[mode]);
    }
    let option = json!({ "sessionId": CONVERSATION, "configId": "mode", "value": "full-access" });
    it.request(6, "session/set_config_option", option).await;
    assert!(it.answer(6).await["error"].is_object());
    let params = json!({ "sessionId": CONVERSATION, "modeId": "plan" });
    it.request(7, "session/set_mode", params).await;
    let change = it.agent.expect("session/set_mode").await;
    assert_eq!(change["params"]["modeId"], "plan");
    assert!(it.agent.unread().is_empty());
}

#[tokio::test]
async fn an_agent_that_begins_without_asking_is_brought_to_ask_first() {
    let mut it = EditorStandIn::start_agent().await;
    let modes = json!([{ "id": "yolo", "name": "YOLO" }, { "id": "default", "name": "Ask" }]);
    let modes = json!({ "currentModeId": "yolo", "availableModes": modes });
    let params = json!({ "cwd": it.agent.cli.workdir(), "mcpServers": [] });
    it.request(2, "session/new", params).await;
    let session_new = it.agent.expect("session/new").await;
    let opened = json!({ "sessionId": CONVERSATION, "modes": modes });
    it.agent.respond(&session_new, opened).await;
    let change = it.agent.expect("session/set_mode").await;
    assert_eq!(change["params"]["modeId"], "default");
    assert!(it.unread.is_empty());
    it.agent.respond(&change, json!({})).await;
    let answer = it.answer(2).await;
    assert_eq!(answer["result"]["modes"]["currentModeId"], "default");
}

#[tokio::test]
async fn what_could_run_something_is_never_passed_to_the_editor() {
    let mut it = EditorStandIn::start().await;
    it.prompt(3, "do it").await;
    it.agent.request(1, "terminal/execute_now", json!({})).await;
    assert!(it.agent.answer(1).await["error"].is_object());
    it.agent
        .request(2, "_editor/run", json!({ "command": "rm" }))
        .await;
    assert_eq!(it.agent.answer(2).await["error"]["code"], -32601);
    let path = it.agent.cli.workdir().join("a.txt");
    let write = json!({ "path": path, "content": "new" });
    it.agent.request(3, "fs/write_text_file", write).await;
    let (gate, _) = next_gate(&mut it.ann).await;
    assert!(!path.exists());
    approve(&mut it.ann, &gate).await;
    assert_eq!(it.agent.answer(3).await["result"], json!({}));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    // An answer to what was not asked is none.
    it.agent.ask(4, "call-1", "make").await;
    next_gate(&mut it.ann).await;
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "for-ever" } });
    it.say(json!({ "jsonrpc": "2.0", "id": 4, "result": outcome }))
        .await;
    it.agent
        .say(json!({ "jsonrpc": "2.0", "method": "_note", "params": {} }))
        .await;
    it.notified("_note").await;
    // What comes later is there, so what came before would be too.
    let params = json!({ "sessionId": CONVERSATION, "modeId": "plan" });
    it.request(7, "session/set_mode", params).await;
    it.agent.expect("session/set_mode").await;
    assert!(it.agent.unread().is_empty() && it.unread.is_empty());
}

#[tokio::test]
async fn the_editor_cancels_what_was_asked() {
    let mut it = EditorStandIn::start().await;
    let prompt = it.prompt(3, "do it").await;
    it.agent.ask(1, "call-1", "make").await;
    next_gate(&mut it.ann).await;
    let params = json!({ "sessionId": CONVERSATION });
    it.say(json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params }))
        .await;
    it.agent.expect("session/cancel").await;
    assert_eq!(it.agent.choice(1).await, "cancelled");
    let resolved = it.ann.wait_for("gate.resolve").await;
    assert_eq!(resolved["payload"]["outcome"], "cancelled");
    it.agent
        .respond(&prompt, json!({ "stopReason": "cancelled" }))
        .await;
    assert_eq!(it.answer(3).await["result"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn without_the_editor_the_agent_is_ended() {
    let mut it = EditorStandIn::start().await;
    it.prompt(3, "do it").await;
    it.agent.ask(1, "call-1", "make").await;
    next_gate(&mut it.ann).await;
    it.agent.run.close_stdin();
    it.agent.wait_closed().await;
    let resolved = it.ann.wait_for("gate.resolve").await;
    assert_eq!(resolved["payload"]["outcome"], "cancelled");
    assert_eq!(it.agent.run.ended().await.code, Some(0));
}

#[tokio::test]
async fn a_killed_agents_gate_is_withdrawn_and_the_editor_hears_of_it() {
    let mut it = EditorStandIn::start().await;
    it.prompt(3, "do it").await;
    it.agent.ask(1, "call-1", "make").await;
    next_gate(&mut it.ann).await;
    it.agent.kill_9().await;
    let resolved = it.ann.wait_for("gate.resolve").await;
    assert_eq!(resolved["payload"]["outcome"], "cancelled");
    let ended = it.agent.run.ended().await;
    assert_eq!(ended.code, Some(1));
    assert_contains(&ended.err, &["the agent has ended"]);
}

#[tokio::test]
async fn without_a_server_nothing_is_allowed() {
    let mut it = EditorStandIn::start().await;
    it.prompt(3, "do it").await;
    it.server.kill_9().await;
    it.agent.ask(1, "call-1", "make").await;
    assert_eq!(it.agent.choice(1).await, "not-this");
}

#[tokio::test]
async fn a_missing_agent_starts_no_server() {
    let cli = CliEnv::new();
    let arguments = ["acp", "--", "no-such-agent"];
    let refused = cli.run(&arguments).await.expect_refused(&arguments);
    assert_contains(&refused, &["`no-such-agent` is not installed"]);
    assert!(!cli.state().join("data").exists());
}
