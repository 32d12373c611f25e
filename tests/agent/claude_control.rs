//! `pvp agent --client claude` with a stand-in for Claude Code: prompts, calls, interrupts.

use serde_json::{Value, json};

use crate::fixture::assert_contains;
use crate::support::control_client::ControlClient;
use crate::support::session::{proposal_of, result_of, send_prompt};
use crate::support::{TestClient, TestServer};
use crate::{approve, next_gate, reject, start_session};

async fn start() -> (TestServer, TestClient, ControlClient) {
    let (server, ann) = start_session(json!({})).await;
    let client = ControlClient::start(&server, "owl").await;
    (server, ann, client)
}

/// The answer to a question, with its id.
async fn answer(client: &mut ControlClient) -> (String, Value) {
    let heard = client.hear().await;
    assert_eq!(heard["type"], "control_response", "{heard}");
    assert_eq!(heard["response"]["subtype"], "success", "{heard}");
    let id = heard["response"]["request_id"].as_str().unwrap().to_owned();
    (id, heard["response"]["response"].clone())
}

/// The decision of a hook, with its reason or the edited input.
fn decision(answer: &Value) -> (&str, &Value) {
    let said = &answer["hookSpecificOutput"];
    let more = said.get("updatedInput");
    let more = more.unwrap_or(&said["permissionDecisionReason"]);
    (said["permissionDecision"].as_str().unwrap(), more)
}

#[tokio::test]
async fn people_prompt_it_and_see_what_it_says_and_does() {
    let (_server, mut ann, mut client) = start().await;
    let arguments = client.arguments().await.join(" ");
    assert_contains(
        &arguments,
        &[
            "--permission-prompt-tool stdio",
            "\"disableAllHooks\":false",
            "--model opus",
        ],
    );
    send_prompt(&mut ann, &client.participant, "fix it").await;
    let prompt = client.hear().await;
    assert_eq!(prompt["message"]["content"], "ann says: fix it");
    client
        .say(
            json!({ "type": "assistant", "parent_tool_use_id": null, "message": { "content": [
                { "type": "thinking", "thinking": "hm" }, { "type": "text", "text": "I build it." },
            ]}}),
        )
        .await;
    assert_eq!(
        ann.wait_for("response.chunk").await["payload"]["text"],
        "I build it."
    );
    client.ask_bash("t1", "make").await;
    let (gate, line) = next_gate(&mut ann).await;
    assert_eq!(line, "make");
    let proposal = proposal_of(&ann, &gate);
    let proposed = ann.received.iter().find(|it| it["type"] == "tool.propose");
    assert_eq!(proposed.unwrap()["payload"]["degree"], "held");
    approve(&mut ann, &gate).await;
    let (id, said) = answer(&mut client).await;
    assert_eq!((id.as_str(), decision(&said).0), ("q-t1", "allow"));
    // Its own rules ask about the same call again; it was decided.
    client
        .say(
            json!({ "type": "control_request", "request_id": "p-t1", "request": {
                "subtype": "can_use_tool", "tool_name": "Bash", "input": { "command": "make" },
                "tool_use_id": "t1",
            }}),
        )
        .await;
    let (id, said) = answer(&mut client).await;
    assert_eq!((id.as_str(), &said["behavior"]), ("p-t1", &json!("allow")));
    let ended = json!({
        "tool_name": "Bash", "tool_input": { "command": "make" }, "tool_use_id": "t1",
        "tool_response": { "stdout": "built\n", "stderr": "" },
    });
    client.ask("r-t1", "PostToolUse", ended).await;
    answer(&mut client).await;
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["result"]["stdout"], "built\n");
    assert_eq!(
        (&result["attested"], &result["result"]["exitCode"]),
        (&json!(true), &json!(0))
    );
    client.end_turn().await;
    assert_eq!(
        ann.wait_for("response.end").await["payload"]["finish_reason"],
        "complete"
    );
}

#[tokio::test]
async fn a_rejection_an_edit_and_a_block_reach_it() {
    let (server, mut ann, mut client) = start().await;
    client.ask_bash("t1", "rm -r src").await;
    let (gate, _) = next_gate(&mut ann).await;
    reject(&mut ann, &gate, "keep them").await;
    let (_, said) = answer(&mut client).await;
    assert_eq!(decision(&said).0, "deny");
    assert_contains(decision(&said).1.as_str().unwrap(), &["ann", "keep them"]);
    client.ask_bash("t2", "rm -rf /").await;
    let (_, said) = answer(&mut client).await;
    assert_contains(decision(&said).1.as_str().unwrap(), &["locked"]);
    client.ask_bash("t3", "rm -r all").await;
    let (gate, _) = next_gate(&mut ann).await;
    let bob = server.invite("bob", &["approver"], &[]);
    let mut bob = server.join("owl", &bob).await;
    let request = ann
        .received
        .iter()
        .find(|message| message["id"] == gate.as_str());
    let digest = request.unwrap()["payload"]["digest"].clone();
    let arguments = json!({ "full_command": "rm -r build", "cwd": client.cli.workdir() });
    let amend = json!({ "gate": gate, "arguments": arguments, "digest": digest });
    ann.send_and_ack("gate.amend", amend).await;
    let amended = bob.wait_for("gate.amend").await;
    let digest = &amended["payload"]["assessment"]["digest"];
    let vote = json!({ "gate": gate, "approver": bob.participant, "digest": digest });
    bob.send_and_ack("gate.approve", vote).await;
    let (_, said) = answer(&mut client).await;
    assert_eq!(
        decision(&said),
        ("allow", &json!({ "command": "rm -r build" }))
    );
    // The permission prompt about what was proposed, and not about the edit, is another question.
    client
        .say(
            json!({ "type": "control_request", "request_id": "p-t3", "request": {
                "subtype": "can_use_tool", "tool_name": "Bash", "input": { "command": "rm -r all" },
                "tool_use_id": "t3",
            }}),
        )
        .await;
    let (id, said) = answer(&mut client).await;
    assert_eq!((id.as_str(), &said["behavior"]), ("p-t3", &json!("deny")));
}

#[tokio::test]
async fn an_interrupt_goes_to_it_and_a_question_that_it_takes_back_is_withdrawn() {
    let (_server, mut ann, mut client) = start().await;
    send_prompt(&mut ann, &client.participant, "go").await;
    client.hear().await;
    client.ask_bash("t1", "touch x").await;
    let (gate, _) = next_gate(&mut ann).await;
    client
        .say(json!({ "type": "control_cancel_request", "request_id": "q-t1" }))
        .await;
    let resolved = ann.wait_for("gate.resolve").await;
    assert_eq!(resolved["payload"]["gate"], gate.as_str());
    assert_eq!(resolved["payload"]["outcome"], "cancelled");
    let interrupt = json!({
        "raised_by": ann.participant, "urgency": "stop", "message": "wrong branch",
        "target": client.participant,
    });
    ann.send_and_ack("interrupt.raise", interrupt).await;
    let heard = client.hear().await;
    assert_eq!(heard["request"]["subtype"], "interrupt", "{heard}");
    client
        .say(json!({ "type": "result", "subtype": "error_during_execution", "is_error": true }))
        .await;
    let acknowledged = ann.wait_for("interrupt.acknowledge").await;
    assert_eq!(acknowledged["payload"]["action_taken"], "stopped");
    assert_eq!(
        ann.wait_for("response.end").await["payload"]["finish_reason"],
        "interrupted"
    );
}

#[tokio::test]
async fn what_ran_unasked_is_said_and_ends_the_turn() {
    let (_server, mut ann, mut client) = start().await;
    send_prompt(&mut ann, &client.participant, "go").await;
    client.hear().await;
    for garbage in [
        "",
        "garbage",
        "{\"type\":",
        "[]",
        "null",
        "{\"type\":\"control_request\"}",
    ] {
        client.say_raw(garbage).await;
    }
    let refused = client.hear().await;
    assert_eq!(refused["response"]["subtype"], "error", "{refused}");
    client.say(tool_result("t9", "done", false)).await;
    let heard = client.hear().await;
    assert_eq!(heard["request"]["subtype"], "interrupt", "{heard}");
    let said = ann.wait_for("response.chunk").await;
    assert_contains(
        said["payload"]["text"].as_str().unwrap(),
        &["t9", "without asking"],
    );
}

/// How the client tells the result of a call.
fn tool_result(call: &str, content: &str, is_error: bool) -> Value {
    json!({ "type": "user", "parent_tool_use_id": null, "message": { "content": [
        { "type": "tool_result", "tool_use_id": call, "content": content, "is_error": is_error },
    ]}})
}

#[tokio::test]
async fn what_failed_unasked_ran_too_unless_the_client_says_that_it_did_not() {
    let (_server, mut ann, mut client) = start().await;
    send_prompt(&mut ann, &client.participant, "go").await;
    client.hear().await;
    let mut refused = tool_result("t1", "Permission to use Bash has been denied.", true);
    refused["tool_result_meta"] = json!([{ "id": "t1", "non_execution_kind": "permission-rule" }]);
    client.say(refused).await;
    let no_such_tool = "<tool_use_error>Error: No such tool available: bash</tool_use_error>";
    client.say(tool_result("t2", no_such_tool, true)).await;
    client
        .say(tool_result("t3", "Exit code 1\nno such file", true))
        .await;
    let heard = client.hear().await;
    assert_eq!(heard["request"]["subtype"], "interrupt", "{heard}");
    let said = ann.wait_for("response.chunk").await;
    let text = said["payload"]["text"].as_str().unwrap();
    assert_contains(text, &["t3", "without asking"]);
}

#[tokio::test]
async fn an_allowed_call_of_a_client_that_ends_is_unknown() {
    let (_server, mut ann, mut client) = start().await;
    client.ask_bash("t1", "touch x").await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    approve(&mut ann, &gate).await;
    answer(&mut client).await;
    client.end_turn().await;
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["outcome"], "unknown");
    // A question that waits when the agent is killed is withdrawn by its lease.
    client.ask_bash("t2", "touch y").await;
    next_gate(&mut ann).await;
    client.agent.kill_9().await;
    let resolved =
        ann.wait(|it| it["type"] == "gate.resolve" && it["payload"]["outcome"] == "cancelled");
    assert_contains(
        resolved.await["payload"]["reason"].as_str().unwrap(),
        &["gone"],
    );
}
