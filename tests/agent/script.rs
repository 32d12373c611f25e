//! Agents that follow a script: what becomes of commands comes back to them.

use serde_json::{Value, json};

use crate::kit::worker::{Worker, at_work_in};
use crate::kit::{Client, Invited, pvp};
use crate::{approve, gate, reject, result, room};

/// What the agent has said so far.
fn said(person: &Client) -> String {
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
async fn what_becomes_of_commands_reaches_who_proposed_them() {
    let (server, mut ann) = room(json!({})).await;
    let script = r#"
        step = [
            { think = "a read first" },
            { shell = "echo one; echo two >&2", purpose = "look" },
            { expect = { verdict = "read", outcome = "ran", exit = 0, contains = "stderr: 1 lines" } },
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
    let worker = Worker::scripted(&server, "owl", script).await;
    let (write, line) = gate(&mut ann).await;
    assert_eq!(line, "touch made");
    let proposed = |message: &&Value| message["payload"]["description"] == "make";
    assert_eq!(ann.received.iter().filter(proposed).count(), 1);
    assert!(!worker.workspace().join("made").exists());
    approve(&mut ann, &write).await;
    let (destroy, line) = gate(&mut ann).await;
    assert_eq!(line, "rm -rf made");
    assert!(worker.workspace().join("made").exists());
    reject(&mut ann, &destroy, "we need it").await;
    let left = ann.wait_for("session.leave").await;
    assert_eq!(left["sender"], worker.who.participant.as_str());
    assert!(worker.workspace().join("made").exists());
    let ended = worker.going.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    assert_eq!(said(&ann), "kept, because we need it");
    let thought = |message: &&Value| message["type"] == "thinking.chunk";
    let thought = ann.received.iter().find(thought).unwrap();
    assert_eq!(thought["payload"]["text"], "a read first");
    // What was blocked is on record, and did not run.
    let blocked = |message: &&Value| message["payload"]["assessment"]["category"] == "blocked";
    assert_eq!(ann.received.iter().filter(blocked).count(), 1);
}

#[tokio::test]
async fn a_script_that_is_not_followed_fails_with_the_line() {
    let (server, _ann) = room(json!({})).await;
    let script = "[[step]]\nshell = 'true'\n\n[[step]]\nexpect = { exit = 7 }\n";
    let worker = Worker::scripted(&server, "owl", script).await;
    let ended = worker.going.ended().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended
            .err
            .contains("script.toml:4: expected exit code 7, not 0"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn an_edited_command_runs_as_edited_and_the_agent_is_told() {
    let (server, mut ann) = room(json!({})).await;
    let script = r#"
        step = [
            { shell = "touch wrong" },
            { expect = { outcome = "ran", exit = 0, contains = "touch right" } },
        ]
    "#;
    let worker = Worker::scripted(&server, "owl", script).await;
    let request = ann.wait_for("gate.request").await;
    let amend = json!({
        "gate": request["id"], "digest": request["payload"]["digest"],
        "arguments": { "full_command": "touch right" }, "reason": "a better name",
    });
    ann.say("gate.amend", amend).await;
    let amended = ann.wait_for("gate.amend").await;
    let vote = json!({
        "gate": request["id"], "approver": ann.participant,
        "digest": amended["payload"]["assessment"]["digest"],
    });
    ann.say("gate.approve", vote).await;
    assert_eq!(result(&mut ann).await["success"], true);
    assert!(worker.workspace().join("right").exists());
    assert!(!worker.workspace().join("wrong").exists());
    let ended = worker.going.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn several_commands_of_one_answer_wait_at_the_same_time() {
    let (server, mut ann) = room(json!({})).await;
    let script = r#"
        step = [
            { shell = "touch a", together = true },
            { shell = "touch b", together = true },
            { shell = "touch c" },
            { expect = { outcome = "ran" } },
        ]
    "#;
    let worker = Worker::scripted(&server, "owl", script).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(gate(&mut ann).await);
    }
    let lines: Vec<_> = waiting.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(lines, ["touch a", "touch b", "touch c"]);
    for (gate, _) in waiting.iter().rev() {
        approve(&mut ann, gate).await;
    }
    let ended = worker.going.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    for name in ["a", "b", "c"] {
        assert!(worker.desk.here().join(name).exists(), "{name}");
    }
}

#[tokio::test]
async fn an_agent_whose_token_is_revoked_says_so_and_ends_what_it_runs() {
    let (server, mut ann) = room(json!({})).await;
    let script = "[[step]]\nshell = 'echo up; sleep 1000'\nmode = 'background'\n";
    let worker = Worker::scripted_with(&server, "owl", script, &[]).await;
    let (gate, _) = gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    ann.wait_for("tool.output").await;
    let data = server.data.to_str().unwrap();
    let (good, _, problem) = pvp(&["tokens", "revoke", "--data", data, &token_id(&worker.who)]);
    assert!(good, "{problem}");
    let directory = worker.workspace();
    let ended = worker.going.ended().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.err.contains("does not let this agent in any more"),
        "{ended:?}"
    );
    assert_eq!(at_work_in(&directory), Vec::new());
}

/// What `pvp tokens` calls a token.
fn token_id(who: &Invited) -> String {
    who.token.split('_').nth(1).unwrap().to_owned()
}
