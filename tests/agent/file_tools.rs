//! Agents that read, write and edit files with tools of their own, and what keeps those in bounds.

use std::os::unix::fs::symlink;
use std::path::Path;

use pvp_protocol::payload::{ClearedBy, GrantTerms};
use pvp_protocol::{Action, BoundFile, Digest, FileTool, JsonObject, SandboxProfile};
use serde_json::{Value, json};

use crate::support::agent_process::{AgentProcess, write_script};
use crate::support::cli::CliEnv;
use crate::support::lying_server::{DeceivedAgent, grant};
use crate::support::session::{proposal_of, result_of};
use crate::support::{TestClient, TestServer};
use crate::{approve, next_gate, start_session};

/// A session with an agent that follows a script in a workspace with this content.
async fn start_in(
    prepare: impl FnOnce(&Path),
    script: &str,
) -> (TestServer, TestClient, AgentProcess) {
    let (server, ann) = start_session(json!({})).await;
    let cli = CliEnv::new();
    prepare(&cli.workdir());
    let script = write_script(&cli, script);
    let flags = ["--script", script.as_str(), "--once"];
    let agent_process = AgentProcess::start_at(cli, &server, "owl", &flags).await;
    (server, ann, agent_process)
}

/// The payload of the proposal that waits at a gate.
fn proposed_at(ann: &TestClient, gate: &str) -> Value {
    let proposal = proposal_of(ann, gate);
    let mut received = ann.received.iter();
    let propose = received.find(|message| message["id"] == proposal.as_str());
    propose.unwrap()["payload"].clone()
}

async fn approved_result(ann: &mut TestClient, gate: &str) -> Value {
    approve(ann, gate).await;
    let proposal = proposal_of(ann, gate);
    result_of(ann, &proposal).await
}

async fn expect_script_followed(agent_process: AgentProcess) {
    let ended = agent_process.process.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
}

#[tokio::test]
async fn a_read_runs_unasked_and_a_change_waits_for_approval() {
    let script = r#"
        [[step]]
        file_read = { path = "notes.txt" }
        [[step]]
        expect = { verdict = "read", outcome = "ran", exit = 0, contains = "milk" }
        [[step]]
        file_edit = { path = "notes.txt", old_text = "bread", new_text = "eggs" }
        purpose = "we need eggs"
        [[step]]
        expect = { verdict = "write", outcome = "ran", exit = 0, contains = "edited notes.txt in 1 place" }
        [[step]]
        file_write = { path = "new/list.txt", content = "tea\n" }
        [[step]]
        expect = { verdict = "write", outcome = "ran", exit = 0, contains = "created new/list.txt" }
        [[step]]
        file_edit = { path = "notes.txt", old_text = "bread", new_text = "rice" }
        [[step]]
        expect = { outcome = "refused", contains = "does not occur in `notes.txt`" }
        [[step]]
        file_read = { path = "../secret" }
        [[step]]
        expect = { outcome = "refused", contains = "only below the current directory" }
    "#;
    let prepare =
        |workspace: &Path| std::fs::write(workspace.join("notes.txt"), "milk\nbread\n").unwrap();
    let (_server, mut ann, agent_process) = start_in(prepare, script).await;
    let (edit, _) = next_gate(&mut ann).await;
    let payload = proposed_at(&ann, &edit);
    assert_eq!(payload["tool_name"], "file_edit");
    assert_eq!(payload["category"], "file_write");
    assert_eq!(payload["description"], "we need eggs");
    assert_eq!(payload["risk_level"], "low");
    assert_eq!(payload["assessment"]["rule"], "tool.file-write");
    // People see what the file contains, and the digest of what they approve covers it.
    let bound = json!([{
        "path": "notes.txt", "sha256": Digest::of_content(b"milk\nbread\n"), "bytes": 11,
    }]);
    assert_eq!(payload["arguments"]["files"], bound);
    let contents = json!([{ "path": "notes.txt", "text": "milk\nbread\n" }]);
    assert_eq!(payload["file_contents"], contents);
    assert_eq!(payload["assessment"].get("notes"), None);
    assert_eq!(agent_process.read_file("notes.txt"), "milk\nbread\n");
    let result = approved_result(&mut ann, &edit).await;
    assert_eq!(result["result"]["exitCode"], 0, "{result}");
    assert_eq!(agent_process.read_file("notes.txt"), "milk\neggs\n");
    let (create, _) = next_gate(&mut ann).await;
    assert!(!agent_process.workspace().join("new").exists());
    approve(&mut ann, &create).await;
    ann.wait_for("session.leave").await;
    assert_eq!(agent_process.read_file("new/list.txt"), "tea\n");
    // What failed before it was proposed is nobody's business.
    let proposals = ann.received.iter();
    let proposals = proposals.filter(|message| message["type"] == "tool.propose");
    assert_eq!(proposals.count(), 3);
    expect_script_followed(agent_process).await;
}

#[tokio::test]
async fn a_file_that_changed_after_it_was_proposed_is_not_overwritten() {
    let script = r#"
        [[step]]
        file_write = { path = "a", content = "agent\n" }
        [[step]]
        expect = { outcome = "stopped", contains = "`a` changed since it was approved" }
        [[step]]
        file_write = { path = "b", content = "agent\n" }
        [[step]]
        expect = { outcome = "stopped", contains = "there was no such file" }
        [[step]]
        file_write = { path = "dir/c", content = "agent\n" }
        [[step]]
        expect = { outcome = "stopped", contains = "symbolic link" }
    "#;
    let prepare = |workspace: &Path| {
        std::fs::write(workspace.join("a"), "old\n").unwrap();
        std::fs::create_dir(workspace.join("dir")).unwrap();
    };
    let (server, mut ann, agent_process) = start_in(prepare, script).await;
    let workspace = agent_process.workspace();
    let (gate, _) = next_gate(&mut ann).await;
    std::fs::write(workspace.join("a"), "person\n").unwrap();
    let result = approved_result(&mut ann, &gate).await;
    assert_eq!(result["success"], false);
    let (gate, _) = next_gate(&mut ann).await;
    std::fs::write(workspace.join("b"), "person\n").unwrap();
    approved_result(&mut ann, &gate).await;
    // A directory that leads elsewhere by the time that people have decided.
    let (gate, _) = next_gate(&mut ann).await;
    let outside = tempfile::tempdir().unwrap();
    std::fs::remove_dir(workspace.join("dir")).unwrap();
    symlink(outside.path(), workspace.join("dir")).unwrap();
    approved_result(&mut ann, &gate).await;
    ann.wait_for("session.leave").await;
    for name in ["a", "b"] {
        assert_eq!(agent_process.read_file(name), "person\n");
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    let log = server.entries("owl");
    let told = log.iter().filter(|entry| entry["type"] == "tool.result");
    assert_eq!(told.count(), 3);
    expect_script_followed(agent_process).await;
}

#[tokio::test]
async fn a_secret_is_asked_for_and_not_found_under_another_name() {
    let script = r#"
        [[step]]
        file_read = { path = "notes" }
        [[step]]
        expect = { verdict = "read", outcome = "stopped", contains = "which may hold secrets" }
        [[step]]
        file_read = { path = ".env" }
        [[step]]
        expect = { verdict = "write", outcome = "ran", contains = "KEY=1" }
    "#;
    let prepare = |workspace: &Path| {
        std::fs::write(workspace.join(".env"), "KEY=1\n").unwrap();
        symlink(".env", workspace.join("notes")).unwrap();
    };
    let (_server, mut ann, agent_process) = start_in(prepare, script).await;
    let (gate, _) = next_gate(&mut ann).await;
    let assessment = &proposed_at(&ann, &gate)["assessment"];
    assert_eq!(assessment["rule"], "path.secret");
    assert_eq!(assessment["sensitive_read"], true);
    let told = ann.received.iter().map(Value::to_string);
    assert!(!told.collect::<String>().contains("KEY=1"));
    approve(&mut ann, &gate).await;
    ann.wait_for("session.leave").await;
    expect_script_followed(agent_process).await;
}

#[tokio::test]
async fn an_edit_by_a_person_needs_a_right_binding_too() {
    let script = r#"
        [[step]]
        file_write = { path = "a", content = "agent\n" }
        [[step]]
        expect = { outcome = "stopped", contains = "does not say what `b` contained" }
        [[step]]
        file_write = { path = "a", content = "agent\n" }
        [[step]]
        expect = { outcome = "ran", exit = 0, contains = "created c" }
    "#;
    let prepare = |workspace: &Path| std::fs::write(workspace.join("b"), "precious\n").unwrap();
    let (_server, mut ann, agent_process) = start_in(prepare, script).await;
    let edits = [
        // The binding of another file.
        json!({ "path": "b", "content": "person\n", "files": [{ "path": "a", "bytes": 0 }] }),
        json!({ "path": "c", "content": "person\n", "files": [{ "path": "c", "bytes": 0 }] }),
    ];
    for arguments in edits {
        let request = ann.wait_for("gate.request").await;
        let amend = json!({
            "gate": request["id"], "digest": request["payload"]["digest"], "arguments": arguments,
        });
        ann.send_and_ack("gate.amend", amend).await;
        let amended = ann.wait_for("gate.amend").await;
        let vote = json!({
            "gate": request["id"], "approver": ann.participant,
            "digest": amended["payload"]["assessment"]["digest"],
        });
        ann.send_and_ack("gate.approve", vote).await;
    }
    ann.wait_for("session.leave").await;
    assert!(!agent_process.workspace().join("a").exists());
    assert_eq!(agent_process.read_file("b"), "precious\n");
    assert_eq!(agent_process.read_file("c"), "person\n");
    expect_script_followed(agent_process).await;
}

#[tokio::test]
async fn behind_a_runner_there_are_no_file_tools() {
    let (server, _ann) = start_session(json!({})).await;
    let script = r#"
        [[step]]
        file_write = { path = "a", content = "x" }
        [[step]]
        expect = { outcome = "refused", contains = "behind `env`" }
    "#;
    let flags = ["--once", "--runner", "env"];
    let agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &flags).await;
    expect_script_followed(agent_process).await;
}

/// An agent whose server lies, with one proposal to write a file that does not exist.
struct DeceivedWriter {
    deceived: DeceivedAgent,
    proposal: String,
    action: Action,
}

impl DeceivedWriter {
    async fn new() -> Self {
        let mut deceived = DeceivedAgent::new().await;
        let (proposal, action) = propose_write(&mut deceived, "a", "good").await;
        Self {
            deceived,
            proposal,
            action,
        }
    }

    /// Grants this action for the proposal, and asserts that no file appears.
    async fn expect_refused(mut self, grant: GrantTerms, why: &str) {
        let Self {
            deceived, proposal, ..
        } = &mut self;
        deceived.expect_refused(proposal, &grant, why).await;
        for name in ["a", "b"] {
            assert!(!deceived.workspace().join(name).exists(), "{name}");
        }
    }
}

/// Proposes to write a file, which the server logs; returns the proposal's id and action.
async fn propose_write(
    deceived: &mut DeceivedAgent,
    path: &str,
    content: &str,
) -> (String, Action) {
    let file_tool = FileTool::Write {
        path: path.to_owned(),
        content: content.to_owned(),
    };
    let proposing = deceived.agent.propose_file_tool(&file_tool, "", None);
    let (handle, propose) = tokio::join!(proposing, deceived.server.receive("tool.propose"));
    handle.unwrap();
    let id = propose["id"].as_str().unwrap().to_owned();
    let payload = propose["payload"].clone();
    let arguments: JsonObject = serde_json::from_value(payload["arguments"].clone()).unwrap();
    let action = Action::from_arguments("file_write", &arguments).unwrap();
    deceived
        .server
        .log(&id, "bot", "tool.propose", payload)
        .await;
    (id, action)
}

fn with_arguments(action: &Action, name: &str, value: Value) -> Action {
    let arguments = serde_json::to_value(&action.command).unwrap()["arguments"].clone();
    let mut arguments: JsonObject = serde_json::from_value(arguments).unwrap();
    arguments.insert(name.to_owned(), value);
    Action::from_arguments("file_write", &arguments).unwrap()
}

#[tokio::test]
async fn a_lying_server_cannot_change_what_is_written_or_where() {
    let changed = "not the one that was shown";
    let writer = DeceivedWriter::new().await;
    let other_bytes = with_arguments(&writer.action, "content", json!("evil"));
    writer.expect_refused(grant(other_bytes), changed).await;
    let writer = DeceivedWriter::new().await;
    let other_path = with_arguments(&writer.action, "path", json!("b"));
    // With the digest of what was proposed.
    let disguised = GrantTerms {
        digest: writer.action.digest(),
        ..grant(other_path)
    };
    writer.expect_refused(disguised, changed).await;
    let writer = DeceivedWriter::new().await;
    let unbound = Action {
        files: Vec::new(),
        ..writer.action.clone()
    };
    writer.expect_refused(grant(unbound), changed).await;
    let writer = DeceivedWriter::new().await;
    let bound_otherwise = Action {
        files: vec![BoundFile {
            path: "a".to_owned(),
            sha256: Some(Digest::of_content(b"x")),
            bytes: 1,
        }],
        ..writer.action.clone()
    };
    writer.expect_refused(grant(bound_otherwise), changed).await;
}

#[tokio::test]
async fn a_lying_server_cannot_clear_a_write_by_itself_or_twice() {
    let writer = DeceivedWriter::new().await;
    let unasked = GrantTerms {
        cleared_by: ClearedBy::Read,
        approvals: Vec::new(),
        ..grant(writer.action.clone())
    };
    let why = "cleared by read, which is impossible here: by rule `tool.file-write`";
    writer.expect_refused(unasked, why).await;
    let writer = DeceivedWriter::new().await;
    let tried = GrantTerms {
        cleared_by: ClearedBy::Tried,
        profile: Some(SandboxProfile::Read),
        ..grant(writer.action.clone())
    };
    writer.expect_refused(tried, "").await;
    let writer = DeceivedWriter::new().await;
    let late = GrantTerms {
        expires_at: pvp_client::now(),
        ..grant(writer.action.clone())
    };
    writer.expect_refused(late, "the grant has expired").await;

    let DeceivedWriter {
        mut deceived,
        proposal,
        action,
    } = DeceivedWriter::new().await;
    deceived
        .server
        .grant(&proposal, &grant(action.clone()))
        .await;
    let result = deceived.result(&proposal).await;
    assert_eq!(result["result"]["stdout"], "created a: 4 bytes, 1 line\n");
    std::fs::remove_file(deceived.workspace().join("a")).unwrap();
    let why = "has not seen a proposal for it";
    deceived
        .expect_refused(&proposal, &grant(action), why)
        .await;
    assert!(!deceived.workspace().join("a").exists());
}

#[tokio::test]
async fn a_stop_before_the_start_prevents_a_write() {
    let mut deceived = DeceivedAgent::new().await;
    let (proposal, action) = propose_write(&mut deceived, "a", "x").await;
    let cancel = json!({ "tool_proposal": proposal, "reason": "no" });
    let server = &mut deceived.server;
    server.log("cancel-1", "ann", "tool.cancel", cancel).await;
    server.grant(&proposal, &grant(action)).await;
    let result = deceived.result(&proposal).await;
    assert_eq!(result["success"], false, "{result}");
    assert!(!deceived.workspace().join("a").exists());
}
