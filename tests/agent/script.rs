//! Agents that follow a script and react to the results of their commands.

use serde_json::{Value, json};

use crate::support::agent_process::{AgentProcess, processes_in};
use crate::support::{TestClient, TestUser, run_pvp};
use crate::{approve, next_gate, next_result, reject, start_session};

/// The text of the agent's responses so far.
fn response_text(person: &TestClient) -> String {
    let chunks = person
        .received
        .iter()
        .filter(|message| message["type"] == "response.chunk");
    chunks
        .map(|chunk| chunk["payload"]["text"].as_str().unwrap())
        .collect::<Vec<_>>()
        .join("|")
}

#[tokio::test]
async fn the_results_of_commands_reach_their_proposer() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { think = "a read first" },
            { shell = "echo one; echo two >&2", purpose = "look" },
            { expect = { verdict = "read", outcome = "ran", exit = 0, contains = "stderr: 1 line" } },
            { shell = "touch made", purpose = "make" },
            { expect = { verdict = "write", outcome = "ran", exit = 0 } },
            { shell = "rm -rf made", purpose = "unmake" },
            { expect = { verdict = "destructive", outcome = "rejected", contains = "we need it" } },
            { when = "rejected", say = "kept, because {reason}" },
            { shell = "rm -rf /" },
            { expect = { outcome = "blocked" } },
            { shell = "false" },
            { expect = { outcome = "ran", exit = 1 } },
            { shell = "ls", cwd = "/no/such/place" },
            { expect = { outcome = "refused", contains = "cannot work in /no/such/place" } },
        ]
    "#;
    let agent_process = AgentProcess::start_scripted(&server, "owl", script).await;
    let (write, line) = next_gate(&mut ann).await;
    assert_eq!(line, "touch made");
    let proposed = |message: &&Value| message["payload"]["description"] == "make";
    assert_eq!(ann.received.iter().filter(proposed).count(), 1);
    assert!(!agent_process.workspace().join("made").exists());
    approve(&mut ann, &write).await;
    let (destroy, line) = next_gate(&mut ann).await;
    assert_eq!(line, "rm -rf made");
    assert!(agent_process.workspace().join("made").exists());
    reject(&mut ann, &destroy, "we need it").await;
    let left = ann.wait_for("session.leave").await;
    assert_eq!(left["sender"], agent_process.user.participant.as_str());
    assert!(agent_process.workspace().join("made").exists());
    let ended = agent_process.process.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    assert_eq!(response_text(&ann), "kept, because we need it");
    let thought = |message: &&Value| message["type"] == "thinking.chunk";
    let thought = ann.received.iter().find(thought).unwrap();
    assert_eq!(thought["payload"]["text"], "a read first");
    // The blocked command is in the log and did not run.
    let blocked = |message: &&Value| message["payload"]["assessment"]["category"] == "blocked";
    assert_eq!(ann.received.iter().filter(blocked).count(), 1);
}

#[tokio::test]
async fn a_script_whose_expectation_fails_reports_the_line() {
    let (server, _ann) = start_session(json!({})).await;
    let script = "[[step]]\nshell = 'true'\n\n[[step]]\nexpect = { exit = 7 }\n";
    let agent_process = AgentProcess::start_scripted(&server, "owl", script).await;
    let ended = agent_process.process.ended().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended
            .err
            .contains("script.toml:4: expected exit code 7, not 0"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn an_edited_command_runs_as_edited_and_the_agent_is_notified() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { shell = "touch wrong" },
            { expect = { outcome = "ran", exit = 0, contains = "touch right" } },
        ]
    "#;
    let agent_process = AgentProcess::start_scripted(&server, "owl", script).await;
    let request = ann.wait_for("gate.request").await;
    let amend = json!({
        "gate": request["id"], "digest": request["payload"]["digest"],
        "arguments": { "full_command": "touch right" }, "reason": "a better name",
    });
    ann.send_and_ack("gate.amend", amend).await;
    let amended = ann.wait_for("gate.amend").await;
    let vote = json!({
        "gate": request["id"], "approver": ann.participant,
        "digest": amended["payload"]["assessment"]["digest"],
    });
    ann.send_and_ack("gate.approve", vote).await;
    assert_eq!(next_result(&mut ann).await["success"], true);
    assert!(agent_process.workspace().join("right").exists());
    assert!(!agent_process.workspace().join("wrong").exists());
    let ended = agent_process.process.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn several_commands_of_one_answer_wait_at_the_same_time() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { shell = "touch a", together = true },
            { shell = "touch b", together = true },
            { shell = "touch c" },
            { expect = { outcome = "ran" } },
        ]
    "#;
    let agent_process = AgentProcess::start_scripted(&server, "owl", script).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(next_gate(&mut ann).await);
    }
    let lines: Vec<_> = waiting.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(lines, ["touch a", "touch b", "touch c"]);
    for (gate, _) in waiting.iter().rev() {
        approve(&mut ann, gate).await;
    }
    let ended = agent_process.process.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    for name in ["a", "b", "c"] {
        assert!(agent_process.cli.workdir().join(name).exists(), "{name}");
    }
}

#[tokio::test]
async fn an_agent_whose_token_is_revoked_says_so_and_ends_its_commands() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = "[[step]]\nshell = 'echo up; sleep 1000'\nmode = 'background'\n";
    let agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &[]).await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    ann.wait_for("tool.output").await;
    let data = server.data.to_str().unwrap();
    let (good, _, problem) = run_pvp(&[
        "tokens",
        "revoke",
        "--data",
        data,
        &token_id(&agent_process.user),
    ]);
    assert!(good, "{problem}");
    let directory = agent_process.workspace();
    let ended = agent_process.process.ended().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.err.contains("no longer lets this agent in"),
        "{ended:?}"
    );
    assert_eq!(processes_in(&directory), Vec::new());
}

/// The id of a token in `pvp tokens`.
fn token_id(user: &TestUser) -> String {
    user.token.split('_').nth(1).unwrap().to_owned()
}
