//! Interactive commands: one person at the keys, everyone at the screen.

use std::path::PathBuf;

use pvp_agent::agent::{Agent, ProposalEvent, ProposalHandle};
use pvp_agent::executor::ExecutorSettings;
use pvp_client::Link;
use pvp_protocol::JsonObject;
use serde_json::{Value, json};

use crate::kit::room::{approve, gate, output, printed, proposal_of, result_of, room};
use crate::kit::{Client, Server};

/// An agent that this test itself is.
struct Desk {
    agent: Agent,
    _place: tempfile::TempDir,
}

impl Desk {
    async fn at(server: &Server) -> Self {
        let place = tempfile::tempdir().unwrap();
        let workspace = place.path().canonicalize().unwrap();
        let mut settings = ExecutorSettings::new(workspace.clone(), workspace.join(".state"));
        settings.program = PathBuf::from(env!("CARGO_BIN_EXE_pvp"));
        let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
        let link = Link::parse(&server.link(&bot, Some("owl"))).unwrap();
        let agent = Agent::connect(link, settings).await.unwrap();
        Self {
            agent,
            _place: place,
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

/// Types, and gives the answer.
async fn press(person: &mut Client, proposal: &str, input: Value) -> Value {
    let mut payload = json!({ "tool_proposal": proposal });
    for (key, value) in input.as_object().unwrap() {
        payload[key] = value.clone();
    }
    let id = person.send("tool.input", payload).await;
    person.answer(&id).await
}

async fn type_keys(person: &mut Client, proposal: &str, keys: &str) {
    let answer = press(person, proposal, json!({ "data": keys })).await;
    assert_eq!(answer["type"], "session.ack", "{answer}");
}

/// Someone at the keys of a command that everyone sees, and someone who only watches.
async fn begun(server: &Server, ann: &mut Client, line: &str) -> (Desk, Client, Client, String) {
    let dee = server.invite("dee", &["driver"], &[]);
    let bob = server.invite("bob", &["observer"], &[]);
    let dee = server.join("owl", &dee).await;
    let bob = server.join("owl", &bob).await;
    let desk = Desk::at(server).await;
    desk.propose(line, &dee.participant).await;
    let (open, _) = gate(ann).await;
    approve(ann, &open).await;
    let proposal = proposal_of(ann, &open);
    (desk, dee, bob, proposal)
}

#[tokio::test]
async fn the_one_at_the_keys_types_and_everyone_watches() {
    let (server, mut ann) = room(json!({})).await;
    let line = "tty >/dev/null && echo a terminal; read name; echo hello $name; stty size; read x; stty size; exit 4";
    let (_desk, mut dee, mut bob, proposal) = begun(&server, &mut ann, line).await;
    printed(&mut bob, "a terminal").await;
    type_keys(&mut dee, &proposal, "owl\r").await;
    printed(&mut bob, "24 80").await;
    let size = json!({ "resize": { "columns": 132, "rows": 43 } });
    let answer = press(&mut dee, &proposal, size).await;
    assert_eq!(answer["type"], "session.ack", "{answer}");
    type_keys(&mut dee, &proposal, "\r").await;
    for person in [&mut ann, &mut dee, &mut bob] {
        let result = result_of(person, &proposal).await;
        assert_eq!(result["result"]["exitCode"], 4, "{result}");
        let screen = output(&person.received, &proposal, "stdout");
        assert!(screen.contains("hello owl\r\n24 80\r\n"), "{screen:?}");
        assert!(screen.contains("43 132\r\n"), "{screen:?}");
    }
    // What was typed is on record, by whom, in order.
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
async fn nobody_else_types() {
    let (server, mut ann) = room(json!({})).await;
    let (_desk, mut dee, _bob, proposal) =
        begun(&server, &mut ann, "echo ready; read name; echo hello $name").await;
    printed(&mut ann, "ready").await;
    let answer = press(&mut ann, &proposal, json!({ "data": "mallory\r" })).await;
    assert_eq!(answer["payload"]["code"], "UNAUTHORIZED", "{answer}");
    assert_eq!(
        answer["payload"]["message"],
        format!("`{}` is at the keys", dee.participant)
    );
    type_keys(&mut dee, &proposal, "dee\r").await;
    result_of(&mut ann, &proposal).await;
    let screen = output(&ann.received, &proposal, "stdout");
    assert!(screen.contains("hello dee\r\n") && !screen.contains("mallory"));
}

#[tokio::test]
async fn control_c_interrupts_what_runs() {
    let (server, mut ann) = room(json!({})).await;
    let line = "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.01; done";
    let (_desk, mut dee, _bob, proposal) = begun(&server, &mut ann, line).await;
    printed(&mut ann, "ready").await;
    type_keys(&mut dee, &proposal, "\u{3}").await;
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["result"]["exitCode"], 9, "{result}");
    let screen = output(&ann.received, &proposal, "stdout");
    // The terminal shows `^C` too, before that or after.
    assert!(screen.contains("interrupted\r\n"), "{screen:?}");
}

#[tokio::test]
async fn a_read_at_a_terminal_is_asked_for_too() {
    let (server, mut ann) = room(json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let mut dee = server.join("owl", &dee).await;
    let desk = Desk::at(&server).await;
    let mut proposal = desk.propose("cat", &dee.participant).await;
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
    let (open, line) = gate(&mut ann).await;
    assert_eq!(line, "cat");
    approve(&mut ann, &open).await;
    type_keys(&mut dee, proposal.id.as_str(), "echoed\r\u{4}").await;
    let result = result_of(&mut ann, proposal.id.as_str()).await;
    assert_eq!(result["result"]["exitCode"], 0, "{result}");
    assert_eq!(
        output(&ann.received, proposal.id.as_str(), "stdout"),
        "echoed\r\nechoed\r\n"
    );
}
