//! Agents with a model: what the model receives, what its tool calls do, and what everyone sees.

use std::ffi::OsStr;

use serde_json::{Value, json};

use crate::fixture::{ModelAgentFixture, assert_contains, assert_starts_with, extract_ref};
use crate::support::session::{approve_next, result_of, wait_for_response};
use crate::{approve, next_gate, next_result, reject};

#[tokio::test]
async fn a_prompt_is_answered_in_streams_that_everyone_sees() {
    let mut fixture = ModelAgentFixture::new().await;
    let prompt = fixture.send_prompt("what is here?").await;
    let request = fixture.model_server.next_request().await;
    assert_eq!(request.last_message("user"), "ann: what is here?");
    assert_contains(
        &request.last_message("system"),
        &["Several people supervise you"],
    );
    let tools = request.body["tools"].as_array().unwrap().iter();
    let names: Vec<_> = tools
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "shell",
            "file_read",
            "file_write",
            "file_edit",
            "recall",
            "jobs"
        ]
    );
    let request = request
        .stream_thinking("I should look.")
        .await
        .stream_text("I look: ")
        .await;
    let thinking = fixture.ann.wait_for("thinking.start").await;
    assert_eq!(thinking["payload"]["prompt_ref"], prompt.as_str());
    assert_eq!(thinking["payload"]["visible_to"], "all");
    let chunk = fixture.ann.wait_for("thinking.chunk").await;
    assert_eq!(chunk["payload"]["text"], "I should look.");
    assert_eq!(chunk["ref"], thinking["id"]);
    // Text is delivered before the response ends.
    let chunk = fixture.ann.wait_for("response.chunk").await;
    assert_eq!(chunk["payload"]["text"], "I look: ");
    request
        .finish_with_commands(&["echo a b; echo c >&2"])
        .await;
    let usage = fixture.wait_response_end().await;
    assert_eq!(usage["finish_reason"], "tool_use");
    let usage = &usage["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["output_tokens"]),
        (&json!(11), &json!(7))
    );
    let request = fixture.model_server.next_request().await;
    assert_eq!(
        request.last_message("tool"),
        "Exit code: 0 | stdout: 1 line | stderr: 1 line\n\nstderr:\nc\n\nstdout:\na b"
    );
    request.finish_with_text("There is nothing.").await;
    fixture.wait_final_response("complete").await;
}

#[tokio::test]
async fn the_messages_api_gets_requests_in_its_own_format() {
    let key = [("ANTHROPIC_API_KEY", OsStr::new("test-key-1"))];
    let mut fixture = ModelAgentFixture::with_provider("anthropic", &[], &key).await;
    let request = fixture.prompt_and_wait("make it").await;
    assert_starts_with(&request.head, "POST /v1/messages HTTP/1.1");
    assert_eq!(request.header("x-api-key"), "test-key-1");
    assert_eq!(request.header("anthropic-version"), "2023-06-01");
    assert_eq!(request.body["stream"], true);
    assert_eq!(request.last_message("user"), "ann: make it");
    let input = json!({ "command": "touch made", "purpose": "a test" }).to_string();
    let (one, other) = input.split_at(9);
    let delta = |delta: Value| json!({ "type": "content_block_delta", "index": 0, "delta": delta });
    let part = |text: &str| delta(json!({ "type": "input_json_delta", "partial_json": text }));
    let call = json!({ "type": "tool_use", "id": "toolu_1", "name": "shell", "input": {} });
    request
        .send_events(&[
            message_start_event(),
            json!({ "type": "content_block_start", "index": 0, "content_block": call }),
            part(one),
            part(other),
            json!({ "type": "content_block_stop", "index": 0 }),
            message_delta_event("tool_use"),
            json!({ "type": "message_stop" }),
        ])
        .await;
    approve_next(&mut fixture.ann).await;
    let request = fixture.model_server.next_request().await;
    let messages = request.body["messages"].as_array().unwrap();
    let result = &messages.last().unwrap()["content"][0];
    assert_eq!(result["tool_use_id"], "toolu_1");
    assert_contains(&result["content"].to_string(), &["Exit code: 0"]);
    let text = json!({ "type": "text", "text": "" });
    request
        .send_events(&[
            message_start_event(),
            json!({ "type": "content_block_start", "index": 0, "content_block": text }),
            delta(json!({ "type": "text_delta", "text": "Made." })),
            json!({ "type": "content_block_stop", "index": 0 }),
            message_delta_event("end_turn"),
            json!({ "type": "message_stop" }),
        ])
        .await;
    assert_eq!(fixture.wait_final_response("complete").await, "Made.");
    let has_it = fixture.agent_process.cli.workdir().join("made").exists();
    assert!(has_it, "the command ran where the agent works");
}

fn message_start_event() -> Value {
    let usage = json!({ "input_tokens": 11, "output_tokens": 1 });
    let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "test-1", "content": [], "usage": usage });
    json!({ "type": "message_start", "message": message })
}

fn message_delta_event(reason: &str) -> Value {
    let usage = json!({ "output_tokens": 7 });
    json!({ "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null }, "usage": usage })
}

#[tokio::test]
async fn rejections_edits_and_refusals_are_explained_to_the_model() {
    let mut fixture = ModelAgentFixture::new().await;
    let request = fixture.prompt_and_wait("go").await;
    request
        .finish_with_commands(&["touch x", "rm -rf /", "touch y"])
        .await;
    let (first, _) = next_gate(&mut fixture.ann).await;
    let (second, line) = next_gate(&mut fixture.ann).await;
    assert_eq!(line, "touch y");
    reject(&mut fixture.ann, &first, "x is taken").await;
    approve(&mut fixture.ann, &second).await;
    let request = fixture.model_server.next_request().await;
    let results = request.messages("tool");
    assert_starts_with(&results[0], "Rejected by ");
    assert_contains(&results[0], &["with the reason: x is taken."]);
    assert_starts_with(&results[1], "Blocked: this command never runs here");
    assert_starts_with(&results[2], "Exit code: 0");
    let too_slow = json!({ "command": "ls", "timeout": 9999, "purpose": "p" });
    request
        .finish_with_calls(&[("shell", too_slow), ("python", json!({}))])
        .await;
    let request = fixture.model_server.next_request().await;
    let results = request.messages("tool");
    assert_contains(&results[3], &["`timeout` is at most 300 seconds"]);
    assert_contains(&results[4], &["There is no tool \"python\""]);
    request.finish_with_text("ok").await;
}

#[tokio::test]
async fn the_model_can_recall_output() {
    let mut fixture = ModelAgentFixture::new().await;
    fixture
        .prompt_and_wait("go")
        .await
        .finish_with_commands(&["seq 1 500"])
        .await;
    let request = fixture.model_server.next_request().await;
    let digest = request.last_message("tool");
    assert_contains(
        &digest,
        &["last 12 of 500, 488 skipped", "read the rest with recall"],
    );
    let it = extract_ref(&digest);
    request
        .finish_with_calls(&[
            ("recall", json!({ "ref": it, "grep": "49", "limit": 3 })),
            ("recall", json!({ "ref": it, "head": 1, "tail": 1 })),
            ("recall", json!({ "ref": "nothing" })),
        ])
        .await;
    let results = fixture.model_server.next_request().await.messages("tool");
    assert_contains(&results[1], &["48 | 49\n148 | 149\n248 | 249"]);
    assert_starts_with(&results[2], "Ask for `head` or for `tail`, not for both.");
    assert_starts_with(&results[3], "The output cannot be read: ");
}

#[tokio::test]
async fn jobs_are_listed_and_stopped() {
    let mut fixture = ModelAgentFixture::new().await;
    let forever =
        json!({ "command": "echo up; exec sleep 1000", "mode": "background", "purpose": "serve" });
    fixture
        .prompt_and_wait("go")
        .await
        .finish_with_calls(&[("shell", forever)])
        .await;
    approve_next(&mut fixture.ann).await;
    let request = fixture.model_server.next_request().await;
    let started = request.last_message("tool");
    assert_starts_with(
        &started,
        "It was started in the background and keeps running, as process ",
    );
    let job = extract_ref(&started);
    request.finish_with_calls(&[("jobs", json!({}))]).await;
    let request = fixture.model_server.next_request().await;
    let running = format!("ref \"{job}\" running (process ");
    assert_contains(&request.last_message("tool"), &[&running]);
    let up = |message: &Value| message["payload"]["text"] == "up\n";
    fixture.ann.wait(up).await;
    assert_ne!(
        fixture.agent_process.running_commands(),
        Vec::<String>::new()
    );
    let stop = json!({ "action": "stop", "ref": job });
    request.finish_with_calls(&[("jobs", stop)]).await;
    let request = fixture.model_server.next_request().await;
    let ended = request.last_message("tool");
    assert!(
        ended.ends_with(": stopped: the agent stopped it"),
        "{ended}"
    );
    assert_eq!(result_of(&mut fixture.ann, &job).await["success"], false);
    assert_eq!(
        fixture.agent_process.running_commands(),
        Vec::<String>::new()
    );
    request.finish_with_calls(&[("jobs", json!({}))]).await;
    let listed = fixture
        .model_server
        .next_request()
        .await
        .last_message("tool");
    assert_contains(&listed, &["ended: stopped: the agent stopped it"]);
}

#[tokio::test]
async fn a_stop_ends_the_answer_and_its_runs_and_the_next_prompt_starts_a_new_turn() {
    let mut fixture = ModelAgentFixture::new().await;
    let request = fixture
        .prompt_and_wait("go")
        .await
        .stream_text("Let me think")
        .await;
    fixture.ann.wait_for("response.chunk").await;
    fixture.interrupt("stop", "not that").await;
    request.wait_disconnected().await;
    fixture.wait_final_response("interrupted").await;
    // While a command runs.
    let request = fixture.prompt_and_wait("then this").await;
    let received = request.last_message("user");
    assert_contains(&received, &["ann stopped you: not that"]);
    assert!(received.ends_with("ann: then this"), "{received}");
    request
        .finish_with_commands(&["touch begun; sleep 1000"])
        .await;
    approve_next(&mut fixture.ann).await;
    fixture.ann.wait_for("tool.execute").await;
    fixture.interrupt("emergency", "now").await;
    let ended = next_result(&mut fixture.ann).await;
    assert_eq!(ended["success"], false, "{ended}");
    // While a command waits at its gate.
    let request = fixture.prompt_and_wait("and this").await;
    assert_contains(&request.last_message("tool"), &["stopped"]);
    request.finish_with_commands(&["touch never"]).await;
    let (waiting, _) = next_gate(&mut fixture.ann).await;
    fixture.interrupt("stop", "no").await;
    let closes = |message: &Value| {
        message["type"] == "gate.resolve" && message["payload"]["gate"] == waiting.as_str()
    };
    let resolved = fixture.ann.wait(closes).await;
    assert_eq!(resolved["payload"]["outcome"], "cancelled");
    let request = fixture.prompt_and_wait("last").await;
    assert_contains(&request.last_message("tool"), &["withdrawn"]);
    request.finish_with_text("ok").await;
    assert!(!fixture.agent_process.workspace().join("never").exists());
    assert_eq!(
        fixture.agent_process.running_commands(),
        Vec::<String>::new()
    );
}

/// Runs until there is a file `go-on`.
const WAITING_COMMAND: &str = "touch begun; while [ ! -e go-on ]; do sleep 0.01; done; touch ended";

fn release_command(fixture: &ModelAgentFixture) {
    std::fs::write(fixture.agent_process.workspace().join("go-on"), "").unwrap();
}

#[tokio::test]
async fn a_pause_lets_the_command_finish_and_then_waits_for_a_prompt() {
    let mut fixture = ModelAgentFixture::new().await;
    fixture
        .prompt_and_wait("go")
        .await
        .finish_with_commands(&[WAITING_COMMAND])
        .await;
    approve_next(&mut fixture.ann).await;
    fixture.ann.wait_for("tool.execute").await;
    fixture.interrupt("pause", "wait a moment").await;
    release_command(&fixture);
    assert_eq!(next_result(&mut fixture.ann).await["success"], true);
    assert!(fixture.agent_process.workspace().join("ended").exists());
    // The model is not called before someone sends a prompt; then it receives both.
    let request = fixture.prompt_and_wait("go on").await;
    assert_starts_with(&request.last_message("tool"), "Exit code: 0");
    let received = request.last_message("user");
    assert_contains(&received, &["ann paused you: wait a moment"]);
    assert!(received.ends_with("ann: go on"), "{received}");
    request.finish_with_text("ok").await;
}

#[tokio::test]
async fn a_pause_holds_back_prompts_that_were_sent_before_it() {
    let mut fixture = ModelAgentFixture::new().await;
    fixture
        .prompt_and_wait("go")
        .await
        .finish_with_commands(&[WAITING_COMMAND])
        .await;
    approve_next(&mut fixture.ann).await;
    fixture.ann.wait_for("tool.execute").await;
    fixture.send_prompt("then this").await;
    fixture.interrupt("pause", "wait").await;
    release_command(&fixture);
    next_result(&mut fixture.ann).await;
    let received = fixture.prompt_and_wait("now").await.last_message("user");
    assert_contains(
        &received,
        &["ann paused you: wait", "ann: then this", "ann: now"],
    );
}

#[tokio::test]
async fn a_prompt_sent_while_a_paused_turn_finishes_is_answered() {
    let mut fixture = ModelAgentFixture::new().await;
    // While a command runs.
    fixture
        .prompt_and_wait("go")
        .await
        .finish_with_commands(&[WAITING_COMMAND])
        .await;
    approve_next(&mut fixture.ann).await;
    fixture.ann.wait_for("tool.execute").await;
    fixture.interrupt("pause", "wait").await;
    fixture.send_prompt("go on").await;
    release_command(&fixture);
    let request = fixture.model_server.next_request().await;
    assert_starts_with(&request.last_message("tool"), "Exit code: 0");
    assert_contains(
        &request.last_message("user"),
        &["ann paused you: wait", "ann: go on"],
    );
    // While the model answers.
    let request = request.stream_text("Well").await;
    fixture.ann.wait_for("response.chunk").await;
    fixture.interrupt("pause", "hm").await;
    fixture.send_prompt("no, go on").await;
    request.finish_with_commands(&["touch never"]).await;
    let request = fixture.model_server.next_request().await;
    assert_contains(&request.last_message("tool"), &["people interrupted you"]);
    assert_contains(
        &request.last_message("user"),
        &["ann paused you: hm", "ann: no, go on"],
    );
    request.finish_with_text("ok").await;
    assert!(!fixture.agent_process.workspace().join("never").exists());
}

#[tokio::test]
async fn a_restarted_agent_knows_what_happened_before() {
    let mut fixture = ModelAgentFixture::new().await;
    fixture
        .prompt_and_wait("look")
        .await
        .finish_with_commands(&["echo here"])
        .await;
    let unanswered = fixture.model_server.next_request().await;
    fixture.agent_process.kill_9().await;
    unanswered.wait_disconnected().await;
    fixture.agent_process.restart().await;
    wait_for_response(&mut fixture.ann, "I was restarted while I worked on this").await;
    let request = fixture.prompt_and_wait("look again").await;
    assert_eq!(request.messages("user"), ["ann: look again"]);
    assert_contains(
        &request.last_message("system"),
        &[
            "You were restarted",
            "ann asked: look",
            "You ran (exit code 0, ref ",
        ],
    );
    request.finish_with_text("ok").await;
}

#[tokio::test]
async fn prompts_to_another_agent_are_ignored() {
    let mut fixture = ModelAgentFixture::new().await;
    let other = fixture
        .server
        .invite("bot", &["driver"], &["--kind", "agent"]);
    let other = fixture.server.join("owl", &other).await;
    let aside = json!({ "target_agent": other.participant });
    fixture.send_prompt_with("for the other", aside).await;
    let request = fixture.prompt_and_wait("for you").await;
    assert_eq!(request.messages("user"), ["ann: for you"]);
    request.finish_with_text("yes").await;
}

#[tokio::test]
async fn a_prompt_sent_while_a_proposal_waits_gets_a_notice_and_is_answered_later() {
    let mut fixture = ModelAgentFixture::new().await;
    fixture
        .prompt_and_wait("go")
        .await
        .finish_with_commands(&["touch x"])
        .await;
    fixture.wait_response_end().await;
    let (waiting, _) = next_gate(&mut fixture.ann).await;
    let second = fixture.send_prompt("and also this").await;
    let start = |message: &Value| {
        message["type"] == "response.start" && message["payload"]["prompt_ref"] == second.as_str()
    };
    let start = fixture.ann.wait(start).await;
    let chunk =
        |message: &Value| message["type"] == "response.chunk" && message["ref"] == start["id"];
    let chunk = fixture.ann.wait(chunk).await;
    assert_contains(
        chunk["payload"]["text"].as_str().unwrap(),
        &["still waiting for a decision"],
    );
    approve(&mut fixture.ann, &waiting).await;
    let request = fixture.model_server.next_request().await;
    assert_starts_with(&request.last_message("tool"), "Exit code: 0");
    assert_eq!(request.last_message("user"), "ann: and also this");
    request.finish_with_text("both done").await;
}

#[tokio::test]
async fn context_amendments_and_tool_settings_reach_the_model() {
    let mut fixture = ModelAgentFixture::new().await;
    let add = json!({ "key": "plan", "content_type": "text", "content": "first the roof" });
    fixture.ann.send_and_ack("context.add", add).await;
    let more = json!({
        "context_keys": ["plan", "nothing"],
        "config": { "tools_allowed": ["recall"], "temperature": 0.5 },
    });
    let prompt = fixture.send_prompt_with("build", more).await;
    let request = fixture.model_server.next_request().await;
    assert_contains(
        &request.last_message("user"),
        &["first the roof", "(not known to this agent)"],
    );
    let tools = request.body["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 1);
    assert_eq!(request.body["temperature"], 0.5);
    request.finish_with_commands(&["ls"]).await;
    let request = fixture.model_server.next_request().await;
    assert_contains(
        &request.last_message("tool"),
        &["`shell` is not allowed for this prompt"],
    );
    let amend =
        json!({ "original_prompt": prompt, "amendment": "the cellar first", "reason": "rain" });
    fixture.ann.send_and_ack("prompt.amend", amend).await;
    request.finish_with_text("ok").await;
    let request = fixture.model_server.next_request().await;
    assert_eq!(
        request.last_message("user"),
        "ann changes what was asked before (rain): the cellar first"
    );
    request.finish_with_text("ok").await;
}
