//! Agents that ask a model: what it is told, what it does with its tools, and what everyone sees.

use std::ffi::OsStr;

use serde_json::{Value, json};

use crate::kit::room::{approve_next, result_of, said};
use crate::scene::{Scene, begins, has, reference};
use crate::{approve, gate, reject, result};

#[tokio::test]
async fn a_prompt_is_answered_in_streams_that_everyone_sees() {
    let mut scene = Scene::plain().await;
    let prompt = scene.prompt("what is here?").await;
    let question = scene.model.asked().await;
    assert_eq!(question.last("user"), "ann: what is here?");
    has(&question.last("system"), &["Several people supervise you"]);
    let tools = question.body["tools"].as_array().unwrap().iter();
    let names: Vec<_> = tools
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["shell", "recall", "jobs"]);
    let question = question.think("I should look.").await.say("I look: ").await;
    let thinking = scene.ann.wait_for("thinking.start").await;
    assert_eq!(thinking["payload"]["prompt_ref"], prompt.as_str());
    assert_eq!(thinking["payload"]["visible_to"], "all");
    let chunk = scene.ann.wait_for("thinking.chunk").await;
    assert_eq!(chunk["payload"]["text"], "I should look.");
    assert_eq!(chunk["ref"], thinking["id"]);
    // What is said is told before the answer ends.
    let chunk = scene.ann.wait_for("response.chunk").await;
    assert_eq!(chunk["payload"]["text"], "I look: ");
    question.runs(&["echo a b; echo c >&2"]).await;
    let usage = scene.answered().await;
    assert_eq!(usage["finish_reason"], "tool_use");
    let usage = &usage["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["output_tokens"]),
        (&json!(11), &json!(7))
    );
    let question = scene.model.asked().await;
    assert_eq!(
        question.last("tool"),
        "Exit code: 0 | stdout: 1 lines | stderr: 1 lines\n\nstderr:\nc\n\nstdout:\na b"
    );
    question.answers("There is nothing.").await;
    scene.ended("complete").await;
}

#[tokio::test]
async fn the_messages_api_is_asked_in_its_own_way() {
    let key = [("ANTHROPIC_API_KEY", OsStr::new("test-key-1"))];
    let mut scene = Scene::with_provider("anthropic", &[], &key).await;
    let question = scene.ask("make it").await;
    begins(&question.head, "POST /v1/messages HTTP/1.1");
    assert_eq!(question.header("x-api-key"), "test-key-1");
    assert_eq!(question.header("anthropic-version"), "2023-06-01");
    assert_eq!(question.body["stream"], true);
    assert_eq!(question.last("user"), "ann: make it");
    let input = json!({ "command": "touch made", "purpose": "a test" }).to_string();
    let (one, other) = input.split_at(9);
    let delta = |delta: Value| json!({ "type": "content_block_delta", "index": 0, "delta": delta });
    let part = |text: &str| delta(json!({ "type": "input_json_delta", "partial_json": text }));
    let call = json!({ "type": "tool_use", "id": "toolu_1", "name": "shell", "input": {} });
    question
        .sends(&[
            started(),
            json!({ "type": "content_block_start", "index": 0, "content_block": call }),
            part(one),
            part(other),
            json!({ "type": "content_block_stop", "index": 0 }),
            ended("tool_use"),
            json!({ "type": "message_stop" }),
        ])
        .await;
    approve_next(&mut scene.ann).await;
    let question = scene.model.asked().await;
    let messages = question.body["messages"].as_array().unwrap();
    let result = &messages.last().unwrap()["content"][0];
    assert_eq!(result["tool_use_id"], "toolu_1");
    has(&result["content"].to_string(), &["Exit code: 0"]);
    let text = json!({ "type": "text", "text": "" });
    question
        .sends(&[
            started(),
            json!({ "type": "content_block_start", "index": 0, "content_block": text }),
            delta(json!({ "type": "text_delta", "text": "Made." })),
            json!({ "type": "content_block_stop", "index": 0 }),
            ended("end_turn"),
            json!({ "type": "message_stop" }),
        ])
        .await;
    assert_eq!(scene.ended("complete").await, "Made.");
    let has_it = scene.worker.desk.here().join("made").exists();
    assert!(has_it, "the command ran where the agent works");
}

fn started() -> Value {
    let usage = json!({ "input_tokens": 11, "output_tokens": 1 });
    let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "test-1", "content": [], "usage": usage });
    json!({ "type": "message_start", "message": message })
}

fn ended(reason: &str) -> Value {
    let usage = json!({ "output_tokens": 7 });
    json!({ "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null }, "usage": usage })
}

#[tokio::test]
async fn rejections_edits_and_refusals_come_back_in_words() {
    let mut scene = Scene::plain().await;
    let question = scene.ask("go").await;
    question.runs(&["touch x", "rm -rf /", "touch y"]).await;
    let (first, _) = gate(&mut scene.ann).await;
    let (second, line) = gate(&mut scene.ann).await;
    assert_eq!(line, "touch y");
    reject(&mut scene.ann, &first, "x is taken").await;
    approve(&mut scene.ann, &second).await;
    let question = scene.model.asked().await;
    let results = question.messages("tool");
    begins(&results[0], "Rejected by ");
    has(&results[0], &["with the reason: x is taken."]);
    begins(&results[1], "Blocked: this command never runs here");
    begins(&results[2], "Exit code: 0");
    let too_slow = json!({ "command": "ls", "timeout": 9999, "purpose": "p" });
    question
        .calls(&[("shell", too_slow), ("python", json!({}))])
        .await;
    let question = scene.model.asked().await;
    let results = question.messages("tool");
    has(&results[3], &["`timeout` is at most 300 seconds"]);
    has(&results[4], &["There is no tool \"python\""]);
    question.answers("ok").await;
}

#[tokio::test]
async fn output_is_recalled() {
    let mut scene = Scene::plain().await;
    scene.ask("go").await.runs(&["seq 1 500"]).await;
    let question = scene.model.asked().await;
    let digest = question.last("tool");
    has(
        &digest,
        &["last 12 of 500, 488 skipped", "read the rest with recall"],
    );
    let it = reference(&digest);
    question
        .calls(&[
            ("recall", json!({ "ref": it, "grep": "49", "limit": 3 })),
            ("recall", json!({ "ref": it, "head": 1, "tail": 1 })),
            ("recall", json!({ "ref": "nothing" })),
        ])
        .await;
    let results = scene.model.asked().await.messages("tool");
    has(&results[1], &["48 | 49\n148 | 149\n248 | 249"]);
    begins(&results[2], "Ask for `head` or for `tail`, not for both.");
    begins(&results[3], "The output cannot be read: ");
}

#[tokio::test]
async fn jobs_are_listed_and_stopped() {
    let mut scene = Scene::plain().await;
    let forever =
        json!({ "command": "echo up; exec sleep 1000", "mode": "background", "purpose": "serve" });
    scene.ask("go").await.calls(&[("shell", forever)]).await;
    approve_next(&mut scene.ann).await;
    let question = scene.model.asked().await;
    let started = question.last("tool");
    begins(
        &started,
        "It was started in the background and goes on, as process ",
    );
    let job = reference(&started);
    question.calls(&[("jobs", json!({}))]).await;
    let question = scene.model.asked().await;
    let running = format!("ref \"{job}\" running (process ");
    has(&question.last("tool"), &[&running]);
    let up = |message: &Value| message["payload"]["text"] == "up\n";
    scene.ann.wait(up).await;
    assert_ne!(scene.worker.at_work(), Vec::<String>::new());
    let stop = json!({ "action": "stop", "ref": job });
    question.calls(&[("jobs", stop)]).await;
    let question = scene.model.asked().await;
    let ended = question.last("tool");
    assert!(
        ended.ends_with(": stopped: the agent stopped it"),
        "{ended}"
    );
    assert_eq!(result_of(&mut scene.ann, &job).await["success"], false);
    assert_eq!(scene.worker.at_work(), Vec::<String>::new());
    question.calls(&[("jobs", json!({}))]).await;
    let listed = scene.model.asked().await.last("tool");
    has(&listed, &["ended: the agent stopped it"]);
}

#[tokio::test]
async fn a_stop_ends_the_answer_and_what_runs_and_the_next_prompt_begins_anew() {
    let mut scene = Scene::plain().await;
    let question = scene.ask("go").await.say("Let me think").await;
    scene.ann.wait_for("response.chunk").await;
    scene.interrupt("stop", "not that").await;
    question.given_up().await;
    scene.ended("interrupted").await;
    // While a command runs.
    let question = scene.ask("then this").await;
    let heard = question.last("user");
    has(&heard, &["ann stopped you: not that"]);
    assert!(heard.ends_with("ann: then this"), "{heard}");
    question.runs(&["touch begun; sleep 1000"]).await;
    approve_next(&mut scene.ann).await;
    scene.ann.wait_for("tool.execute").await;
    scene.interrupt("emergency", "now").await;
    let ended = result(&mut scene.ann).await;
    assert_eq!(ended["success"], false, "{ended}");
    // While one waits at its gate.
    let question = scene.ask("and this").await;
    has(&question.last("tool"), &["stopped"]);
    question.runs(&["touch never"]).await;
    let (waiting, _) = gate(&mut scene.ann).await;
    scene.interrupt("stop", "no").await;
    let closes = |message: &Value| {
        message["type"] == "gate.resolve" && message["payload"]["gate"] == waiting.as_str()
    };
    let resolved = scene.ann.wait(closes).await;
    assert_eq!(resolved["payload"]["outcome"], "cancelled");
    let question = scene.ask("last").await;
    has(&question.last("tool"), &["withdrawn"]);
    question.answers("ok").await;
    assert!(!scene.worker.workspace().join("never").exists());
    assert_eq!(scene.worker.at_work(), Vec::<String>::new());
}

/// Goes on until there is a file `go-on`.
const PATIENT: &str = "touch begun; while [ ! -e go-on ]; do sleep 0.01; done; touch ended";

fn let_go_on(scene: &Scene) {
    std::fs::write(scene.worker.workspace().join("go-on"), "").unwrap();
}

#[tokio::test]
async fn a_pause_lets_the_command_end_and_then_waits_for_a_word() {
    let mut scene = Scene::plain().await;
    scene.ask("go").await.runs(&[PATIENT]).await;
    approve_next(&mut scene.ann).await;
    scene.ann.wait_for("tool.execute").await;
    scene.interrupt("pause", "wait a moment").await;
    let_go_on(&scene);
    assert_eq!(result(&mut scene.ann).await["success"], true);
    assert!(scene.worker.workspace().join("ended").exists());
    // Nothing is asked of the model before someone speaks; then it hears of both.
    let question = scene.ask("go on").await;
    begins(&question.last("tool"), "Exit code: 0");
    let heard = question.last("user");
    has(&heard, &["ann paused you: wait a moment"]);
    assert!(heard.ends_with("ann: go on"), "{heard}");
    question.answers("ok").await;
}

#[tokio::test]
async fn a_pause_holds_back_what_was_asked_before_it() {
    let mut scene = Scene::plain().await;
    scene.ask("go").await.runs(&[PATIENT]).await;
    approve_next(&mut scene.ann).await;
    scene.ann.wait_for("tool.execute").await;
    scene.prompt("then this").await;
    scene.interrupt("pause", "wait").await;
    let_go_on(&scene);
    result(&mut scene.ann).await;
    let heard = scene.ask("now").await.last("user");
    has(
        &heard,
        &["ann paused you: wait", "ann: then this", "ann: now"],
    );
}

#[tokio::test]
async fn who_speaks_before_what_was_paused_has_ended_is_answered() {
    let mut scene = Scene::plain().await;
    // While a command runs.
    scene.ask("go").await.runs(&[PATIENT]).await;
    approve_next(&mut scene.ann).await;
    scene.ann.wait_for("tool.execute").await;
    scene.interrupt("pause", "wait").await;
    scene.prompt("go on").await;
    let_go_on(&scene);
    let question = scene.model.asked().await;
    begins(&question.last("tool"), "Exit code: 0");
    has(
        &question.last("user"),
        &["ann paused you: wait", "ann: go on"],
    );
    // While the model answers.
    let question = question.say("Well").await;
    scene.ann.wait_for("response.chunk").await;
    scene.interrupt("pause", "hm").await;
    scene.prompt("no, go on").await;
    question.runs(&["touch never"]).await;
    let question = scene.model.asked().await;
    has(&question.last("tool"), &["people interrupted you"]);
    has(
        &question.last("user"),
        &["ann paused you: hm", "ann: no, go on"],
    );
    question.answers("ok").await;
    assert!(!scene.worker.workspace().join("never").exists());
}

#[tokio::test]
async fn an_agent_that_comes_back_knows_what_happened_before() {
    let mut scene = Scene::plain().await;
    scene.ask("look").await.runs(&["echo here"]).await;
    let unanswered = scene.model.asked().await;
    scene.worker.kill_9().await;
    unanswered.given_up().await;
    scene.worker.again().await;
    said(&mut scene.ann, "I was restarted while I worked on this").await;
    let question = scene.ask("look again").await;
    assert_eq!(question.messages("user"), ["ann: look again"]);
    has(
        &question.last("system"),
        &[
            "You were restarted",
            "ann asked: look",
            "You ran (exit code 0, ref ",
        ],
    );
    question.answers("ok").await;
}

#[tokio::test]
async fn what_is_asked_of_another_agent_is_none_of_its_business() {
    let mut scene = Scene::plain().await;
    let other = scene
        .server
        .invite("bot", &["driver"], &["--kind", "agent"]);
    let other = scene.server.join("owl", &other).await;
    let aside = json!({ "target_agent": other.participant });
    scene.prompt_with("for the other", aside).await;
    let question = scene.ask("for you").await;
    assert_eq!(question.messages("user"), ["ann: for you"]);
    question.answers("yes").await;
}

#[tokio::test]
async fn who_speaks_while_a_proposal_waits_is_told_and_then_heard() {
    let mut scene = Scene::plain().await;
    scene.ask("go").await.runs(&["touch x"]).await;
    scene.answered().await;
    let (waiting, _) = gate(&mut scene.ann).await;
    let second = scene.prompt("and also this").await;
    let start = |message: &Value| {
        message["type"] == "response.start" && message["payload"]["prompt_ref"] == second.as_str()
    };
    let start = scene.ann.wait(start).await;
    let chunk =
        |message: &Value| message["type"] == "response.chunk" && message["ref"] == start["id"];
    let chunk = scene.ann.wait(chunk).await;
    has(
        chunk["payload"]["text"].as_str().unwrap(),
        &["still waits for a decision"],
    );
    approve(&mut scene.ann, &waiting).await;
    let question = scene.model.asked().await;
    begins(&question.last("tool"), "Exit code: 0");
    assert_eq!(question.last("user"), "ann: and also this");
    question.answers("both done").await;
}

#[tokio::test]
async fn context_amendments_and_wishes_about_tools_reach_the_model() {
    let mut scene = Scene::plain().await;
    let add = json!({ "key": "plan", "content_type": "text", "content": "first the roof" });
    scene.ann.say("context.add", add).await;
    let more = json!({
        "context_keys": ["plan", "nothing"],
        "config": { "tools_allowed": ["recall"], "temperature": 0.5 },
    });
    let prompt = scene.prompt_with("build", more).await;
    let question = scene.model.asked().await;
    has(
        &question.last("user"),
        &["first the roof", "(not known to this agent)"],
    );
    let tools = question.body["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 1);
    assert_eq!(question.body["temperature"], 0.5);
    question.runs(&["ls"]).await;
    let question = scene.model.asked().await;
    has(
        &question.last("tool"),
        &["`shell` is not allowed for this prompt"],
    );
    let amend =
        json!({ "original_prompt": prompt, "amendment": "the cellar first", "reason": "rain" });
    scene.ann.say("prompt.amend", amend).await;
    question.answers("ok").await;
    let question = scene.model.asked().await;
    assert_eq!(
        question.last("user"),
        "ann changes what was asked before (rain): the cellar first"
    );
    question.answers("ok").await;
}
