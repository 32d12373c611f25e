//! The hooks of Codex, asked with what Codex 0.166 really says to them.

use serde_json::{Value, json};

use crate::fixture::assert_contains;
use crate::installed_hooks::{StandIn, installed_hook};
use crate::support::cli::CliEnv;
use crate::support::session::{proposal_of, result_of};
use crate::support::{TestClient, TestServer};
use crate::{approve, next_gate, reject, start_session};

const CAPTURED: &str = include_str!("../bridges/captures/codex-hooks.jsonl");

/// A Codex whose hooks are installed, in the session of a person who is logged in.
struct HookedCodex {
    server: TestServer,
    ann: TestClient,
    cli: CliEnv,
    client: StandIn,
}

impl HookedCodex {
    async fn start() -> Self {
        let (server, ann) = start_session(json!({})).await;
        let dee = server.invite("dee", &["admin"], &[]);
        let cli = CliEnv::new();
        cli.log_in(&server.link(&dee, Some("owl"))).await;
        // Codex reads its hooks from a file of the machine; they run as those of Claude Code do.
        cli.run_ok(&["hook", "install", "claude"]).await;
        let hook = installed_hook(&cli).replace(" hook run claude", " hook run codex");
        let client = StandIn::with_hook(&cli, &hook);
        Self {
            server,
            ann,
            cli,
            client,
        }
    }

    /// What Codex said at an event, about a call of this id here.
    fn captured(&self, event: &str, call: &str) -> Value {
        let mut lines = CAPTURED.lines().map(serde_json::from_str);
        let of_event = |said: &Value| said["hook_event_name"] == event;
        let said = lines.find_map(|line: Result<Value, _>| Some(line.unwrap()).filter(of_event));
        let mut said = said.unwrap();
        said["cwd"] = json!(self.cli.workdir());
        if said.get("tool_use_id").is_some() {
            said["tool_use_id"] = call.into();
        }
        said
    }

    async fn say(&mut self, said: &Value) {
        self.client.say_line(&said.to_string()).await;
    }

    /// What the hook answers to a question; null if it says nothing.
    async fn answer(&mut self) -> Value {
        let answer = self.client.answer().await;
        match answer.is_empty() {
            true => Value::Null,
            false => serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{answer}")),
        }
    }

    /// The decision about a call and its reason.
    async fn decision(&mut self) -> (String, String) {
        let answer = self.answer().await;
        let said = &answer["hookSpecificOutput"];
        assert_eq!(said["hookEventName"], "PreToolUse", "{answer}");
        let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        (text("permissionDecision"), text("permissionDecisionReason"))
    }
}

#[tokio::test]
async fn what_is_approved_runs_and_its_end_is_not_known() {
    let mut it = HookedCodex::start().await;
    let question = it.captured("PreToolUse", "call-1");
    it.say(&question).await;
    let (gate, line) = next_gate(&mut it.ann).await;
    assert_eq!(line, "echo one; echo two >&2; touch x");
    let mut received = it.ann.received.iter();
    let proposed = received.find(|message| message["type"] == "tool.propose");
    let proposed = &proposed.unwrap()["payload"];
    assert_eq!(proposed["degree"], "hooked");
    assert_eq!(proposed["origin"]["client"], "codex");
    assert_eq!(proposed["origin"]["call"], "call-1");
    let proposal = proposal_of(&it.ann, &gate);
    approve(&mut it.ann, &gate).await;
    assert_eq!(it.decision().await.0, "allow");
    let ended = it.captured("PostToolUse", "call-1");
    it.say(&ended).await;
    assert_eq!(it.answer().await, Value::Null);
    let result = result_of(&mut it.ann, &proposal).await;
    let mut received = it.ann.received.iter();
    let output = received.find(|message| message["type"] == "tool.output");
    assert_eq!(output.unwrap()["payload"]["text"], "one\ntwo\n");
    assert_eq!(
        (&result["attested"], &result["outcome"]),
        (&json!(true), &json!("unknown"))
    );
    // The end of a turn says nothing by itself.
    let stopped = it.captured("Stop", "");
    it.say(&stopped).await;
    assert_eq!(it.answer().await, Value::Null);
}

#[tokio::test]
async fn what_is_rejected_or_blocked_does_not_run_and_codex_reads_why() {
    let mut it = HookedCodex::start().await;
    let mut question = it.captured("PreToolUse", "call-1");
    it.say(&question).await;
    let (gate, _) = next_gate(&mut it.ann).await;
    reject(&mut it.ann, &gate, "not today").await;
    let (decision, reason) = it.decision().await;
    assert_eq!(decision, "deny");
    assert_contains(&reason, &["ann", "not today"]);
    question["tool_use_id"] = "call-2".into();
    question["tool_input"]["command"] = "pvp approve 123456".into();
    it.say(&question).await;
    let (decision, reason) = it.decision().await;
    assert_eq!(decision, "deny");
    assert_contains(&reason, &["Blocked by rule"]);
}

#[tokio::test]
async fn what_is_no_question_of_codex_is_denied() {
    let mut it = HookedCodex::start().await;
    let question = it.captured("PreToolUse", "call-1");
    let without = |name: &str| {
        let mut question = question.clone();
        question.as_object_mut().unwrap().remove(name);
        question.to_string()
    };
    let whole = question.to_string();
    let mut other_event = question.clone();
    other_event["hook_event_name"] = "BeforeTool".into();
    for garbage in [
        "garbage".to_owned(),
        "[]".to_owned(),
        whole[..whole.len() / 2].to_owned(),
        without("hook_event_name"),
        without("tool_name"),
        without("tool_input"),
        without("cwd"),
        other_event.to_string(),
    ] {
        it.client.say_line(&garbage).await;
        assert_eq!(it.decision().await.0, "deny", "{garbage}");
    }
    // Nor is one about which nobody can be asked.
    it.server.kill_9().await;
    it.say(&question).await;
    assert_eq!(it.decision().await.0, "deny");
}
