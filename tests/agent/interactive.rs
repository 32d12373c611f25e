//! Interactive commands: one person types, everyone sees the screen.

use std::path::PathBuf;

use pvp_agent::agent::Agent;
use pvp_agent::executor::ExecutorSettings;
use pvp_agent::proposer::{ProposalEvent, ProposalHandle};
use pvp_client::Link;
use pvp_protocol::JsonObject;
use serde_json::{Value, json};

use crate::support::session::{
    approve, collect_output, next_gate, proposal_of, result_of, start_session, wait_for_output,
};
use crate::support::{TestClient, TestServer};

/// An agent that runs in the test process.
struct InProcessAgent {
    agent: Agent,
    _directory: tempfile::TempDir,
}

impl InProcessAgent {
    async fn connect(server: &TestServer) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let workspace = directory.path().canonicalize().unwrap();
        let mut settings = ExecutorSettings::new(workspace.clone(), workspace.join(".state"));
        settings.program = PathBuf::from(env!("CARGO_BIN_EXE_pvp"));
        let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
        let link = Link::parse(&server.link(&bot, Some("owl"))).unwrap();
        let agent = Agent::connect(link, settings).await.unwrap();
        Self {
            agent,
            _directory: directory,
        }
    }

    async fn propose(&self, line: &str, driver: &str) -> ProposalHandle {
        let arguments = json!({ "full_command": line, "mode": "pty", "driver": driver });
        let arguments: JsonObject = serde_json::from_value(arguments).unwrap();
        self.agent
            .propose(arguments, "someone types")
            .await
            .unwrap()
    }
}

/// Sends input and returns the answer.
async fn send_input(person: &mut TestClient, proposal: &str, input: Value) -> Value {
    let mut payload = json!({ "tool_proposal": proposal });
    for (key, value) in input.as_object().unwrap() {
        payload[key] = value.clone();
    }
    let id = person.send("tool.input", payload).await;
    person.answer(&id).await
}

async fn type_keys(person: &mut TestClient, proposal: &str, keys: &str) {
    let answer = send_input(person, proposal, json!({ "data": keys })).await;
    assert_eq!(answer["type"], "session.ack", "{answer}");
}

/// Starts an interactive command with one person who types and one who watches.
async fn start_interactive(
    server: &TestServer,
    ann: &mut TestClient,
    line: &str,
) -> (InProcessAgent, TestClient, TestClient, String) {
    let dee = server.invite("dee", &["driver"], &[]);
    let bob = server.invite("bob", &["observer"], &[]);
    let dee = server.join("owl", &dee).await;
    let bob = server.join("owl", &bob).await;
    let local_agent = InProcessAgent::connect(server).await;
    local_agent.propose(line, &dee.participant).await;
    let (open, _) = next_gate(ann).await;
    approve(ann, &open).await;
    let proposal = proposal_of(ann, &open);
    (local_agent, dee, bob, proposal)
}

#[tokio::test]
async fn the_driver_types_and_everyone_watches() {
    let (server, mut ann) = start_session(json!({})).await;
    let line = "tty >/dev/null && echo a terminal; read name; echo hello $name; stty size; read x; stty size; exit 4";
    let (_local_agent, mut dee, mut bob, proposal) =
        start_interactive(&server, &mut ann, line).await;
    wait_for_output(&mut bob, "a terminal").await;
    type_keys(&mut dee, &proposal, "owl\r").await;
    wait_for_output(&mut bob, "24 80").await;
    let size = json!({ "resize": { "columns": 132, "rows": 43 } });
    let answer = send_input(&mut dee, &proposal, size).await;
    assert_eq!(answer["type"], "session.ack", "{answer}");
    type_keys(&mut dee, &proposal, "\r").await;
    for person in [&mut ann, &mut dee, &mut bob] {
        let result = result_of(person, &proposal).await;
        assert_eq!(result["result"]["exitCode"], 4, "{result}");
        let screen = collect_output(&person.received, &proposal, "stdout");
        assert!(screen.contains("hello owl\r\n24 80\r\n"), "{screen:?}");
        assert!(screen.contains("43 132\r\n"), "{screen:?}");
    }
    // The log has what was typed, by whom, in order.
    let entries = server.entries("owl");
    let typed: Vec<_> = entries
        .iter()
        .filter(|entry| entry["type"] == "tool.input")
        .map(|entry| (entry["sender"].clone(), entry["payload"]["data"].clone()))
        .collect();
    let by = json!(dee.participant);
    assert_eq!(
        typed,
        [
            (by.clone(), json!("owl\r")),
            (by.clone(), Value::Null),
            (by, json!("\r"))
        ]
    );
}

#[tokio::test]
async fn only_the_driver_may_type() {
    let (server, mut ann) = start_session(json!({})).await;
    let (_local_agent, mut dee, _bob, proposal) =
        start_interactive(&server, &mut ann, "echo ready; read name; echo hello $name").await;
    wait_for_output(&mut ann, "ready").await;
    let answer = send_input(&mut ann, &proposal, json!({ "data": "mallory\r" })).await;
    assert_eq!(answer["payload"]["code"], "UNAUTHORIZED", "{answer}");
    assert_eq!(
        answer["payload"]["message"],
        format!("only `{}` may type into this command", dee.participant)
    );
    type_keys(&mut dee, &proposal, "dee\r").await;
    result_of(&mut ann, &proposal).await;
    let screen = collect_output(&ann.received, &proposal, "stdout");
    assert!(screen.contains("hello dee\r\n") && !screen.contains("mallory"));
}

#[tokio::test]
async fn control_c_interrupts_the_running_program() {
    let (server, mut ann) = start_session(json!({})).await;
    let line = "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.01; done";
    let (_local_agent, mut dee, _bob, proposal) = start_interactive(&server, &mut ann, line).await;
    wait_for_output(&mut ann, "ready").await;
    type_keys(&mut dee, &proposal, "\u{3}").await;
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["result"]["exitCode"], 9, "{result}");
    let screen = collect_output(&ann.received, &proposal, "stdout");
    // The terminal echoes `^C` too, before or after that.
    assert!(screen.contains("interrupted\r\n"), "{screen:?}");
}

#[tokio::test]
async fn an_interactive_read_needs_approval_too() {
    let (server, mut ann) = start_session(json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let mut dee = server.join("owl", &dee).await;
    let local_agent = InProcessAgent::connect(&server).await;
    let mut proposal = local_agent.propose("cat", &dee.participant).await;
    let mut steps = Vec::new();
    while let Some(step) = proposal.next().await {
        let ended = matches!(
            step,
            ProposalEvent::GateOpened { .. } | ProposalEvent::Granted { .. }
        );
        steps.push(step);
        if ended {
            break;
        }
    }
    assert!(
        matches!(steps.last(), Some(ProposalEvent::GateOpened { .. })),
        "{steps:?}"
    );
    let (open, line) = next_gate(&mut ann).await;
    assert_eq!(line, "cat");
    approve(&mut ann, &open).await;
    type_keys(&mut dee, proposal.id.as_str(), "echoed\r\u{4}").await;
    let result = result_of(&mut ann, proposal.id.as_str()).await;
    assert_eq!(result["result"]["exitCode"], 0, "{result}");
    assert_eq!(
        collect_output(&ann.received, proposal.id.as_str(), "stdout"),
        "echoed\r\nechoed\r\n"
    );
}
