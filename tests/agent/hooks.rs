//! `pvp run` and the hooks of a client with a real server: what the client asks, what people decide,
//! and what is in the record.

use std::process::Stdio;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Child;

use crate::fixture::assert_contains;
use crate::support::cli::CliEnv;
use crate::support::hook_client::{HookStandIn, answer_of, decision_of, install};
use crate::support::session::{
    assert_within_a_lease, message_of_this_moment, proposal_of, result_of, send_prompt, wait_until,
};
use crate::support::{TestClient, TestServer};
use crate::{approve, next_gate, reject, start_session};

async fn start() -> (TestServer, TestClient, HookStandIn) {
    start_in(json!({})).await
}

async fn start_in(config: Value) -> (TestServer, TestClient, HookStandIn) {
    let (server, ann) = start_session(config).await;
    let client = HookStandIn::start(&server, "owl").await;
    (server, ann, client)
}

fn found<'a>(person: &'a TestClient, kind: &str) -> Vec<&'a Value> {
    let received = person.received.iter();
    received.filter(|message| message["type"] == kind).collect()
}

/// What the client prompts itself with: at the end of something in the background, and when it goes on
/// with a call that it left.
const OWN_PROMPTS: [&str; 2] = [
    "<task-notification>done</task-notification>",
    "Continue from where you left off.",
];

#[tokio::test]
async fn an_approved_call_runs_and_its_result_is_the_clients_word() {
    let (_server, mut ann, client) = start().await;
    let hook = client.ask_bash("toolu_1", "touch made").await;
    let (gate, line) = next_gate(&mut ann).await;
    assert_eq!(line, "touch made");
    let proposal = proposal_of(&ann, &gate);
    let proposed = found(&ann, "tool.propose")[0]["payload"].clone();
    assert_eq!(proposed["runs"], "client");
    assert_eq!(proposed["degree"], "hooked");
    let origin = json!({
        "client": "claude", "version": "2.1.325", "session": "conversation-1", "call": "toolu_1",
    });
    assert_eq!(proposed["origin"], origin);
    approve(&mut ann, &gate).await;
    let (decision, _) = decision_of(hook).await;
    assert_eq!(decision, "allow");
    let said = client.say_done("toolu_1", "touch made", "ok\n").await;
    assert_eq!(said, Value::Null);
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["result"]["exitCode"], 0);
    assert_eq!(result["result"]["stdout"], "ok\n");
    assert_eq!(result["attested"], true);
    // What has ended is not decided again.
    let (decision, reason) = decision_of(client.ask_bash("toolu_1", "touch made").await).await;
    assert_eq!(decision, "deny");
    assert_contains(reason.as_str().unwrap(), &["decided before"]);
}

#[tokio::test]
async fn a_rejected_call_says_who_and_why() {
    let (_server, mut ann, client) = start().await;
    let hook = client.ask_bash("toolu_1", "rm -r src").await;
    let (gate, _) = next_gate(&mut ann).await;
    reject(&mut ann, &gate, "keep the sources").await;
    let (decision, reason) = decision_of(hook).await;
    assert_eq!(decision, "deny");
    assert_contains(reason.as_str().unwrap(), &["ann", "keep the sources"]);
}

#[tokio::test]
async fn a_failed_command_has_its_exit_code_in_the_record() {
    let (_server, mut ann, client) = start().await;
    let hook = client.ask_bash("toolu_1", "make").await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    decision_of(hook).await;
    let failure = json!({
        "tool_name": "Bash", "tool_input": { "command": "make", "description": "why" },
        "tool_use_id": "toolu_1", "error": "Exit code 2\nno rule", "is_interrupt": false,
    });
    answer_of(client.start_hook("PostToolUseFailure", failure).await).await;
    let proposal = proposal_of(&ann, &gate);
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["success"], false);
    assert_eq!(result["result"]["exitCode"], 2);
    assert_eq!(result["result"]["stdout"], "no rule");
}

#[tokio::test]
async fn an_edited_call_runs_edited_or_not_at_all() {
    let (server, mut ann, client) = start().await;
    let hook = client.ask_bash("toolu_1", "rm -r all").await;
    let (gate, _) = next_gate(&mut ann).await;
    let edited = json!({ "full_command": "rm -r build", "cwd": client.cli.workdir() });
    edit_and_approve(&server, &mut ann, &gate, edited).await;
    let (decision, input) = decision_of(hook).await;
    assert_eq!(decision, "allow");
    let expected = json!({ "command": "rm -r build", "description": "why" });
    assert_eq!(input, expected);
    // A client that says it ran something else is not believed to have done what was approved.
    client.say_done("toolu_1", "rm -r all", "").await;
    let proposal = proposal_of(&ann, &gate);
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["success"], false);
    assert_contains(result["error"].as_str().unwrap(), &["rm -r all"]);
    // A directory of its own is nothing that this client's tool takes.
    let hook = client.ask_bash("toolu_2", "touch x").await;
    let (gate, _) = next_gate(&mut ann).await;
    let edited = json!({ "full_command": "touch x", "cwd": "/tmp" });
    edit_and_approve(&server, &mut ann, &gate, edited).await;
    let (decision, reason) = decision_of(hook).await;
    assert_eq!(decision, "deny");
    assert_contains(reason.as_str().unwrap(), &["cannot be carried out"]);
    let proposal = proposal_of(&ann, &gate);
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["outcome"], "not_run");
}

/// Edits what waits at a gate; somebody else approves the edit.
async fn edit_and_approve(server: &TestServer, ann: &mut TestClient, gate: &str, arguments: Value) {
    let bob = server.invite("bob", &["approver"], &[]);
    let mut bob = server.join("owl", &bob).await;
    let request = ann.received.iter().find(|message| message["id"] == *gate);
    let digest = request.unwrap()["payload"]["digest"].clone();
    let amend =
        json!({ "gate": gate, "arguments": arguments, "digest": digest, "reason": "safer" });
    ann.send_and_ack("gate.amend", amend).await;
    let of_this_gate =
        |message: &Value| message["type"] == "gate.amend" && message["payload"]["gate"] == *gate;
    let amended = bob.wait(of_this_gate).await;
    let digest = &amended["payload"]["assessment"]["digest"];
    let vote = json!({ "gate": gate, "approver": bob.participant, "digest": digest });
    bob.send_and_ack("gate.approve", vote).await;
}

#[tokio::test]
async fn a_blocked_call_is_denied_at_once() {
    let (_server, mut ann, client) = start().await;
    for (id, line) in [
        ("toolu_1", "rm -rf /"),
        ("toolu_2", "pvp approve 123456"),
        ("toolu_3", "cat ~/.local/state/pvp/links/x/link"),
    ] {
        let (decision, reason) = decision_of(client.ask_bash(id, line).await).await;
        assert_eq!(decision, "deny", "{line}");
        assert_contains(reason.as_str().unwrap(), &["Blocked by rule"]);
    }
    // The client's own settings decide about its hooks.
    let path = client.cli.workdir().join(".claude/settings.json");
    let input = json!({ "file_path": path, "content": "{\"disableAllHooks\": true}" });
    let (decision, _) = decision_of(client.ask("toolu_4", "Write", input).await).await;
    assert_eq!(decision, "deny");
    ann.sync().await;
    assert!(found(&ann, "gate.request").is_empty());
}

#[tokio::test]
async fn a_file_edit_is_shown_as_what_it_replaces_and_bound_to_it() {
    let (_server, mut ann, client) = start().await;
    let path = client.cli.workdir().join("a.txt");
    std::fs::write(&path, "old\n").unwrap();
    let input = json!({ "file_path": path, "old_string": "old", "new_string": "new", "replace_all": false });
    let hook = client.ask("toolu_1", "Edit", input.clone()).await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposed = found(&ann, "tool.propose")[0]["payload"].clone();
    assert_eq!(proposed["tool_name"], "file_edit");
    assert_eq!(proposed["arguments"]["path"], "a.txt");
    assert_eq!(proposed["file_contents"][0]["text"], "old\n");
    approve(&mut ann, &gate).await;
    assert_eq!(decision_of(hook).await.0, "allow");
    // What changes before the vote is not what people saw.
    let hook = client.ask("toolu_2", "Edit", input).await;
    let (gate, _) = next_gate(&mut ann).await;
    std::fs::write(&path, "old and more\n").unwrap();
    approve(&mut ann, &gate).await;
    let (decision, reason) = decision_of(hook).await;
    assert_eq!(decision, "deny");
    assert_contains(reason.as_str().unwrap(), &["has changed"]);
}

#[tokio::test]
async fn reads_inside_the_workspace_run_unasked_if_the_session_says_so() {
    let (_server, mut ann, client) = start_in(json!({ "client_reads": "workspace" })).await;
    assert_eq!(
        decision_of(client.ask_bash("toolu_1", "ls").await).await.0,
        "allow"
    );
    let path = client.cli.workdir().join("a.txt");
    let input = json!({ "file_path": path });
    assert_eq!(
        decision_of(client.ask("toolu_2", "Read", input).await)
            .await
            .0,
        "allow"
    );
    ann.sync().await;
    assert!(found(&ann, "gate.request").is_empty());
    assert_eq!(found(&ann, "tool.propose").len(), 2);
    let _hook = client.ask_bash("toolu_3", "cat ../elsewhere").await;
    next_gate(&mut ann).await;
}

#[tokio::test]
async fn reads_are_asked_about_by_default() {
    let (_server, mut ann, client) = start().await;
    let _hook = client.ask_bash("toolu_1", "ls").await;
    assert_eq!(next_gate(&mut ann).await.1, "ls");
}

#[tokio::test]
async fn whatever_is_not_an_answer_denies() {
    let (mut server, mut ann, client) = start().await;
    // Garbage, half a question, another event's question, a question without a call.
    for input in ["", "garbage", "{\"hook_event_name\":", "{}", "[]", "null"] {
        let hook = client.start_hook_with("PreToolUse", input.as_bytes()).await;
        assert_eq!(decision_of(hook).await.0, "deny", "{input}");
    }
    let hook = client
        .start_hook("PreToolUse", json!({ "tool_name": "Bash" }))
        .await;
    assert_eq!(decision_of(hook).await.0, "deny");
    // A call whose directory is not known.
    let fields = json!({ "cwd": "src", "tool_name": "Bash", "tool_input": {}, "tool_use_id": "x" });
    assert_eq!(
        decision_of(client.start_hook("PreToolUse", fields).await)
            .await
            .0,
        "deny"
    );
    // The server goes away while people decide, and stays away.
    let hook = client.ask_bash("toolu_1", "touch x").await;
    next_gate(&mut ann).await;
    server.kill_9().await;
    let later = client.ask_bash("toolu_2", "touch y").await;
    let (decision, reason) = decision_of(later).await;
    assert_eq!(decision, "deny");
    assert_contains(
        reason.as_str().unwrap(),
        &["nobody can be asked", "cannot reach"],
    );
    assert_eq!(decision_of(hook).await.0, "deny");
}

#[tokio::test]
async fn a_hook_without_its_files_denies() {
    let cli = CliEnv::new();
    let missing = cli.home().join("nothing");
    let question = json!({
        "session_id": "s", "cwd": cli.workdir(), "hook_event_name": "PreToolUse",
        "tool_name": "Bash", "tool_input": { "command": "ls" }, "tool_use_id": "t",
    });
    for (client, event, denied) in [
        ("claude", "", "\"permissionDecision\":\"deny\""),
        ("codex", "", "\"permissionDecision\":\"deny\""),
        ("gemini", "", "\"decision\":\"deny\""),
        ("copilot", "preToolUse", "\"permissionDecision\":\"deny\""),
        ("opencode", "", "\"answer\":\"deny\""),
    ] {
        let arguments = ["hook", "run", client, "--event", event, "--files"];
        let mut arguments = arguments.to_vec();
        arguments.push(missing.to_str().unwrap());
        let output = cli.run_with_stdin(&arguments, &question.to_string()).await;
        assert_eq!(output.code, Some(0), "{client}");
        assert_contains(&output.out, &[denied]);
    }
}

/// Ends a hook and the shell that the client started it with.
async fn kill_hook(hook: &mut Child, signal: Signal) {
    let shell = hook.id().unwrap();
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
    let children = children.unwrap();
    // The shell may have become the hook.
    let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
    for pid in children.chain([i32::try_from(shell).unwrap()]) {
        // The hook may end with its shell.
        let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal);
    }
    hook.wait().await.unwrap();
}

#[tokio::test]
async fn a_killed_hook_leaves_nothing_that_could_be_approved() {
    let (_server, mut ann, client) = start().await;
    // Asked to end, it withdraws the call.
    let mut hook = client.ask_bash("toolu_1", "touch x").await;
    let (gate, _) = next_gate(&mut ann).await;
    kill_hook(&mut hook, Signal::TERM).await;
    let resolved = ann.wait_for("gate.resolve").await;
    assert_eq!(resolved["payload"]["outcome"], "cancelled", "{gate}");
    // Killed, it can say nothing, and its lease ends.
    let mut hook = client.ask_bash("toolu_3", "touch z").await;
    let (gate, _) = next_gate(&mut ann).await;
    kill_hook(&mut hook, Signal::KILL).await;
    let resolved = ann.wait_for("gate.resolve").await;
    assert_eq!(resolved["payload"]["gate"], gate.as_str());
    assert_eq!(resolved["payload"]["outcome"], "cancelled");
    // Its reader is gone, as when the client was killed.
    let mut hook = client.ask_bash("toolu_2", "touch y").await;
    next_gate(&mut ann).await;
    drop(hook.stdout.take());
    let resolved = ann.wait_for("gate.resolve").await;
    assert_eq!(resolved["payload"]["outcome"], "cancelled");
}

#[tokio::test]
async fn a_client_that_speaks_over_a_socket_is_missed_too() {
    let (_server, mut ann, client) = start().await;
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let input = json!({ "command": "touch x" });
    let fields = json!({ "tool_name": "Bash", "tool_input": input, "tool_use_id": "toolu_1" });
    let said = client.event("PreToolUse", fields).to_string();
    let mut command = client.cli.program("/bin/sh");
    command.args(["-c", &client.hook("PreToolUse")]);
    command.stdin(Stdio::piped());
    command.stdout(std::os::fd::OwnedFd::from(theirs));
    let mut hook = command.spawn().unwrap();
    // The other end must be the hook's alone.
    drop(command);
    let mut stdin = hook.stdin.take().unwrap();
    stdin.write_all(said.as_bytes()).await.unwrap();
    drop(stdin);
    next_gate(&mut ann).await;
    drop(ours);
    let resolved = ann.wait_for("gate.resolve").await;
    assert_eq!(resolved["payload"]["outcome"], "cancelled");
    hook.wait().await.unwrap();
}

#[tokio::test]
async fn an_interrupt_is_acknowledged_although_the_client_ends_by_it() {
    let (_server, mut ann, client) = start().await;
    let hook = client.ask_bash("toolu_1", "sleep 60").await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    decision_of(hook).await;
    let interrupt = json!({
        "raised_by": ann.participant, "urgency": "stop", "message": "wrong branch",
        "target": client.participant,
    });
    ann.send_and_ack("interrupt.raise", interrupt).await;
    // It ends without a word about the call, while that is waited for.
    let files = client.cli.state().join("bridges");
    wait_until("the interrupt is noted", || {
        walk(&files).iter().any(|path| path.ends_with("/stop"))
    })
    .await;
    let HookStandIn { run, cli, .. } = client;
    run.ended().await;
    let acknowledged = ann.wait_for("interrupt.acknowledge").await;
    assert_eq!(acknowledged["payload"]["action_taken"], "stopped");
    drop(cli);
}

#[tokio::test]
async fn the_same_call_is_decided_once() {
    let (_server, mut ann, client) = start().await;
    let first = client.ask_bash("toolu_1", "touch x").await;
    let (gate, _) = next_gate(&mut ann).await;
    let second = client.ask_bash("toolu_1", "touch x").await;
    let (decision, reason) = decision_of(second).await;
    assert_eq!(decision, "deny");
    assert_contains(reason.as_str().unwrap(), &["each call is decided once"]);
    approve(&mut ann, &gate).await;
    assert_eq!(decision_of(first).await.0, "allow");
    let third = client.ask_bash("toolu_1", "touch x").await;
    assert_eq!(decision_of(third).await.0, "deny");
}

#[tokio::test]
async fn two_clients_never_share_an_identity() {
    let (server, _ann) = start_session(json!({})).await;
    let user = server.invite("claude", &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    let client = HookStandIn::start_as(CliEnv::new(), &link, user.participant, &[]).await;
    let program = client.cli.home().join("bin/claude");
    let arguments = ["run", "--", program.to_str().unwrap()];
    let second = client
        .cli
        .run_with_env(&arguments, &[("PVP_AGENT_LINK", &link)])
        .await;
    assert_contains(
        &second.expect_refused(&arguments),
        &["another client is claude", "pvp invite"],
    );
}

#[tokio::test]
async fn a_call_that_the_client_refused_by_itself_was_not_run() {
    let (_server, mut ann, client) = start().await;
    let hook = client.ask_bash("toolu_1", "touch x").await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    decision_of(hook).await;
    let batch = json!({ "tool_calls": [{
        "tool_name": "Bash", "tool_input": { "command": "touch x" }, "tool_use_id": "toolu_1",
        "tool_response": "Permission to use Bash has been denied.",
    }]});
    answer_of(client.start_hook("PostToolBatch", batch).await).await;
    let proposal = proposal_of(&ann, &gate);
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["outcome"], "not_run");
    assert_contains(result["error"].as_str().unwrap(), &["has been denied"]);
}

#[tokio::test]
async fn a_call_whose_end_was_not_reported_is_not_said_not_to_have_run() {
    let (_server, mut ann, client) = start().await;
    let hook = client.ask_bash("toolu_1", "touch x; echo one").await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    decision_of(hook).await;
    // The hook after the call was killed, so that only the batch says something.
    let batch = json!({ "tool_calls": [{
        "tool_name": "Bash", "tool_input": { "command": "touch x; echo one" },
        "tool_use_id": "toolu_1", "tool_response": "one",
    }]});
    answer_of(client.start_hook("PostToolBatch", batch).await).await;
    let proposal = proposal_of(&ann, &gate);
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["outcome"], "unknown");
    assert_eq!(result["attested"], true);
    assert_contains(
        result["error"].as_str().unwrap(),
        &["outcome unknown", "said of it: one"],
    );
}

#[tokio::test]
async fn an_interrupt_stops_the_agent_and_what_waits() {
    let (_server, mut ann, client) = start().await;
    answer_of(
        client
            .start_hook("UserPromptSubmit", json!({ "prompt": "go" }))
            .await,
    )
    .await;
    let hook = client.ask_bash("toolu_1", "touch x").await;
    next_gate(&mut ann).await;
    let interrupt = json!({
        "raised_by": ann.participant, "urgency": "stop", "message": "wrong branch",
        "target": client.participant,
    });
    ann.send_and_ack("interrupt.raise", interrupt).await;
    let answer = answer_of(hook).await;
    assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "deny");
    let acknowledged = ann.wait_for("interrupt.acknowledge").await;
    assert_eq!(acknowledged["payload"]["action_taken"], "stopped");
    // What the client prompts itself with changes nothing about that.
    for own in OWN_PROMPTS {
        let own = json!({ "prompt": own });
        answer_of(client.start_hook("UserPromptSubmit", own).await).await;
    }
    // The next call is told to stop too, until a person says something new.
    let answer = answer_of(client.ask_bash("toolu_2", "touch y").await).await;
    assert_eq!(answer["continue"], false);
    assert_contains(
        answer["stopReason"].as_str().unwrap(),
        &["ann", "wrong branch"],
    );
    answer_of(
        client
            .start_hook("UserPromptSubmit", json!({ "prompt": "go on" }))
            .await,
    )
    .await;
    let _hook = client.ask_bash("toolu_3", "touch z").await;
    next_gate(&mut ann).await;
}

#[tokio::test]
async fn people_can_say_something_while_the_agent_works() {
    let (_server, mut ann, client) = start().await;
    answer_of(
        client
            .start_hook("UserPromptSubmit", json!({ "prompt": "go" }))
            .await,
    )
    .await;
    send_prompt(&mut ann, &client.participant, "also run the tests").await;
    let prompts = client.cli.state().join("bridges");
    wait_until("the prompt is kept", || {
        let files = walk(&prompts);
        files.iter().any(|path| path.contains("/prompts/"))
    })
    .await;
    let stop = json!({ "stop_hook_active": false, "last_assistant_message": "It is done." });
    let answer = answer_of(client.start_hook("Stop", stop.clone()).await).await;
    assert_eq!(answer["decision"], "block");
    assert_contains(
        answer["reason"].as_str().unwrap(),
        &["ann says: also run the tests"],
    );
    let response = ann.wait_for("response.chunk").await;
    assert_eq!(response["payload"]["text"], "It is done.");
    let answer = answer_of(client.start_hook("Stop", stop).await).await;
    assert_eq!(answer, Value::Null);
}

fn walk(directory: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => walk(&path),
            false => vec![path.to_str().unwrap().to_owned()],
        })
        .collect()
}

#[tokio::test]
async fn prompts_are_recorded_as_those_of_the_person_at_the_terminal() {
    let (server, mut ann) = start_session(json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&dee, Some("owl"))).await;
    let client = HookStandIn::start_with(cli, &server, "owl", &[]).await;
    answer_of(
        client
            .start_hook("UserPromptSubmit", json!({ "prompt": "fix it" }))
            .await,
    )
    .await;
    let prompt = ann.wait_for("prompt.submit").await;
    assert_eq!(prompt["sender"], dee.participant);
    assert_eq!(prompt["payload"]["content"], "fix it");
    assert_eq!(prompt["payload"]["target_agent"], client.participant);
    assert_eq!(prompt["payload"]["origin"]["client"], "claude");
    // Some clients say of what others said that it was typed.
    send_prompt(&mut ann, &client.participant, "and the docs").await;
    let prompts = client.cli.state().join("bridges");
    wait_until("the prompt is kept", || {
        let files = walk(&prompts);
        files.iter().any(|path| path.contains("/prompts/"))
    })
    .await;
    let stop = json!({ "stop_hook_active": false });
    let answer = answer_of(client.start_hook("Stop", stop).await).await;
    let passed_on = json!({ "prompt": answer["reason"] });
    answer_of(client.start_hook("UserPromptSubmit", passed_on).await).await;
    // What the client prompts itself with is nobody's.
    for own in OWN_PROMPTS {
        let own = json!({ "prompt": own });
        answer_of(client.start_hook("UserPromptSubmit", own).await).await;
    }
    ann.sync().await;
    let senders: Vec<_> = found(&ann, "prompt.submit")
        .iter()
        .map(|prompt| prompt["sender"].clone())
        .collect();
    assert_eq!(senders, [json!(dee.participant), json!(ann.participant)]);
}

#[tokio::test]
async fn a_client_that_ends_closes_its_calls_and_gives_its_exit_code() {
    let (_server, mut ann, client) = start().await;
    let hook = client.ask_bash("toolu_1", "touch x").await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    decision_of(hook).await;
    let HookStandIn { run, cli, .. } = client;
    let ended = run.ended().await;
    assert_eq!(ended.code, Some(7), "{}", ended.err);
    let proposal = proposal_of(&ann, &gate);
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["outcome"], "unknown");
    ann.wait_for("session.leave").await;
    drop(cli);
}

#[tokio::test]
async fn a_killed_client_has_its_calls_closed_by_the_lease() {
    let (_server, mut ann, mut client) = start().await;
    let hook = client.ask_bash("toolu_1", "touch x").await;
    let (running, _) = next_gate(&mut ann).await;
    approve(&mut ann, &running).await;
    decision_of(hook).await;
    // Its hook is killed with it, which nobody is told either.
    let mut waits = client.ask_bash("toolu_2", "touch y").await;
    let (waiting, _) = next_gate(&mut ann).await;
    client.run.kill_9().await;
    kill_hook(&mut waits, Signal::KILL).await;
    // The last renewal came before this.
    let killed = message_of_this_moment(&mut ann).await;
    let proposal = proposal_of(&ann, &running);
    let result = ann
        .wait(|it| it["type"] == "tool.result" && it["payload"]["tool_proposal"] == *proposal)
        .await;
    assert_eq!(result["payload"]["outcome"], "unknown");
    assert_contains(result["payload"]["error"].as_str().unwrap(), &["gone"]);
    assert_within_a_lease(&killed, &result);
    let resolved = ann
        .wait(|it| it["type"] == "gate.resolve" && it["payload"]["gate"] == *waiting)
        .await;
    assert_eq!(resolved["payload"]["outcome"], "cancelled");
    assert_within_a_lease(&killed, &resolved);
}

#[tokio::test]
async fn a_long_wait_survives_the_end_of_the_client() {
    let (server, mut ann) = start_session(json!({})).await;
    let user = server.invite("claude", &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    let flags = ["--defer-after", "1s"];
    let client =
        HookStandIn::start_as(CliEnv::new(), &link, user.participant.clone(), &flags).await;
    let (decision, _) = decision_of(client.ask_bash("toolu_1", "touch x").await).await;
    assert_eq!(decision, "defer");
    let (gate, _) = next_gate(&mut ann).await;
    let HookStandIn { run, cli, .. } = client;
    run.ended().await;
    std::fs::remove_file(cli.home().join("bin/claude.args")).unwrap();
    // It is decided while the client is away.
    approve(&mut ann, &gate).await;
    let client = HookStandIn::start_as(cli, &link, user.participant, &flags).await;
    let (decision, _) = decision_of(client.ask_bash("toolu_1", "touch x").await).await;
    assert_eq!(decision, "allow");
    let again = client.ask_bash("toolu_1", "touch x").await;
    assert_eq!(decision_of(again).await.0, "deny");
}

#[tokio::test]
async fn a_client_that_leaves_comes_back_to_one_call_and_begins_no_other() {
    let (server, mut ann) = start_session(json!({})).await;
    let user = server.invite("claude", &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    let flags = ["--defer-after", "1s"];
    let client =
        HookStandIn::start_as(CliEnv::new(), &link, user.participant.clone(), &flags).await;
    let both = [
        client.ask_bash("toolu_1", "touch x").await,
        client.ask_bash("toolu_2", "touch y").await,
    ];
    let mut decisions = Vec::new();
    for hook in both {
        decisions.push(decision_of(hook).await);
    }
    decisions.sort_by(|(one, _), (other, _)| one.cmp(other));
    assert_eq!([&*decisions[0].0, &*decisions[1].0], ["defer", "deny"]);
    assert_contains(decisions[1].1.as_str().unwrap(), &["Ask for this again"]);
    let denied = ann.wait_for("gate.resolve").await;
    assert_eq!(denied["payload"]["outcome"], "cancelled");
    // Nor is anybody asked about what it calls then.
    let (decision, reason) = decision_of(client.ask_bash("toolu_3", "touch z").await).await;
    assert_eq!(decision, "deny");
    assert_contains(reason.as_str().unwrap(), &["Ask for this again"]);
    ann.sync().await;
    let asked = ann
        .received
        .iter()
        .filter(|it| it["type"] == "gate.request");
    assert_eq!(asked.count(), 2);
    let HookStandIn { run, cli, .. } = client;
    run.ended().await;
    std::fs::remove_file(cli.home().join("bin/claude.args")).unwrap();
    // When it has come back, it may call what it likes.
    let client = HookStandIn::start_as(cli, &link, user.participant, &flags).await;
    let _hook = client.ask_bash("toolu_3", "touch z").await;
    ann.wait_for("gate.request").await;
}

#[tokio::test]
async fn the_client_gets_no_link_and_nothing_that_switches_its_hooks_off() {
    let (server, _ann) = start_session(json!({})).await;
    let client = HookStandIn::start(&server, "owl").await;
    let environment = client.environment();
    assert!(!environment.contains("PVP_"), "{environment}");
    assert!(!environment.contains("token="), "{environment}");
    let settings = client.settings.to_string();
    assert!(!settings.contains("token"), "{settings}");
    let program = install(&client.cli, "claude");
    let user = server.invite("other", &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    for flag in ["--bare", "--safe-mode", "--setting-sources=user,project"] {
        let arguments = ["run", "--", program.to_str().unwrap(), flag];
        let refused = client
            .cli
            .run_with_env(&arguments, &[("PVP_AGENT_LINK", &link)])
            .await;
        let flag = flag.split('=').next().unwrap();
        assert_contains(&refused.expect_refused(&arguments), &[flag, "leave it out"]);
    }
    let arguments = ["run", "--", "vim"];
    let refused = client
        .cli
        .run_with_env(&arguments, &[("PVP_AGENT_LINK", &link)])
        .await;
    assert_contains(
        &refused.expect_refused(&arguments),
        &["claude, codex", "pvp mcp"],
    );
}

#[tokio::test]
async fn what_a_client_runs_decides_nothing_in_the_name_of_its_person() {
    let (server, _ann) = start_session(json!({})).await;
    let user = server.invite("claude", &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    let dee = server.invite("dee", &["driver", "approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&dee, Some("owl"))).await;
    let program = install(&cli, "claude");
    let pvp = env!("CARGO_BIN_EXE_pvp");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo 2.1.325; exit; }}\n\
         for words in 'approve 123456' 'rules' 'exec ls' 'send hi' 'reject 123456 no' \
         'cancel 123456' 'interrupt' 'hook uninstall claude' 'logout' 'whoami'; do\n\
         setsid -w sh -c \"'{pvp}' $words\" >> \"$0.out\" 2>&1; done\n"
    );
    std::fs::write(&program, script).unwrap();
    let arguments = ["run", "--", program.to_str().unwrap()];
    let run = cli
        .run_with_env(&arguments, &[("PVP_AGENT_LINK", &link)])
        .await;
    let said = std::fs::read_to_string(program.with_extension("out")).unwrap();
    assert_eq!(
        said.matches("run it in another terminal").count(),
        9,
        "{said} {run:?}"
    );
    assert_contains(&said, &["dee"]);
}

#[tokio::test]
async fn a_read_that_only_a_sandbox_makes_safe_is_asked_about() {
    let (_server, mut ann, client) = start_in(json!({ "client_reads": "workspace" })).await;
    let workdir = client.cli.workdir();
    std::os::unix::fs::symlink("/var/log", workdir.join("away")).unwrap();
    for (id, line) in [
        ("toolu_1", "git status"),
        ("toolu_2", "cat *"),
        ("toolu_3", "ls away"),
    ] {
        let _hook = client.ask_bash(id, line).await;
        assert_eq!(next_gate(&mut ann).await.1, line);
    }
    let input = json!({ "file_path": workdir.join("away/syslog") });
    let _hook = client.ask("toolu_4", "Read", input).await;
    next_gate(&mut ann).await;
}

#[tokio::test]
async fn a_guarded_file_behind_a_link_is_refused_and_nobody_is_asked() {
    let (_server, mut ann, client) = start().await;
    let workdir = client.cli.workdir();
    let settings = client.cli.home().join(".claude");
    std::fs::create_dir_all(&settings).unwrap();
    std::os::unix::fs::symlink(&settings, workdir.join("notes")).unwrap();
    std::os::unix::fs::symlink(client.cli.state(), workdir.join("state")).unwrap();
    let write = json!({ "file_path": workdir.join("notes/settings.json"), "content": "{}" });
    let (decision, reason) = decision_of(client.ask("toolu_1", "Write", write).await).await;
    assert_eq!(decision, "deny");
    assert_contains(
        reason.as_str().unwrap(),
        &["through a link", ".claude/settings.json"],
    );
    for (id, line) in [
        ("toolu_2", "echo x > notes/settings.json"),
        ("toolu_3", "cat state/links/*/link"),
    ] {
        let (decision, _) = decision_of(client.ask_bash(id, line).await).await;
        assert_eq!(decision, "deny", "{line}");
    }
    ann.sync().await;
    assert!(found(&ann, "gate.request").is_empty());
}

#[tokio::test]
async fn an_interrupt_reaches_what_runs_on_in_the_background() {
    let (_server, mut ann, client) = start().await;
    let input = json!({ "command": "sleep 600", "run_in_background": true });
    let hook = client.ask("toolu_1", "Bash", input.clone()).await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    assert_eq!(decision_of(hook).await.0, "allow");
    let fields = json!({
        "tool_name": "Bash", "tool_input": input, "tool_use_id": "toolu_1",
        "tool_response": { "stdout": "", "stderr": "", "backgroundTaskId": "b1" },
    });
    answer_of(client.start_hook("PostToolUse", fields).await).await;
    let proposal = proposal_of(&ann, &gate);
    assert_eq!(result_of(&mut ann, &proposal).await["outcome"], "unknown");
    let calls = || {
        let files = walk(&client.cli.state().join("bridges"));
        files
            .into_iter()
            .filter(|path| path.contains("/calls/"))
            .count()
    };
    assert_eq!(calls(), 1, "it is still known");
    let interrupt = json!({
        "raised_by": ann.participant, "urgency": "stop", "message": "enough",
        "target": client.participant,
    });
    ann.send_and_ack("interrupt.raise", interrupt).await;
    let acknowledged = ann.wait_for("interrupt.acknowledge").await;
    assert_eq!(acknowledged["payload"]["action_taken"], "stopped");
    assert_eq!(calls(), 0);
}
