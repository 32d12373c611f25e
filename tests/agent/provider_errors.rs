//! Misbehaving models and providers: bounded, reported in the session, without leaking a secret.

use std::ffi::OsStr;

use serde_json::{Value, json};

use crate::fixture::{ModelAgentFixture, assert_contains, assert_starts_with};
use crate::next_gate;
use crate::support::session::approve_next;

/// How many messages of a type were received so far.
fn count_received(fixture: &ModelAgentFixture, kind: &str) -> usize {
    let received = fixture.ann.received.iter();
    received.filter(|message| message["type"] == kind).count()
}

const CONTEXT_TOO_LONG: &str =
    r#"{"error":{"message":"This model's maximum context length is 8 tokens"}}"#;

#[tokio::test]
async fn provider_errors_are_retried_or_reported() {
    let mut fixture = ModelAgentFixture::new().await;
    fixture.send_prompt("go").await;
    fixture
        .model_server
        .respond_error(429, "retry-after: 0\r\n", "{}")
        .await;
    fixture
        .model_server
        .next_request()
        .await
        .finish_with_text("here I am")
        .await;
    fixture.wait_final_response("complete").await;
    fixture.send_prompt("again").await;
    fixture.model_server.respond_error(401, "", "{}").await;
    let said = fixture.wait_final_response("error").await;
    assert_contains(&said, &["I cannot continue:", "OPENAI_API_KEY"]);
    // The agent is still present.
    fixture
        .prompt_and_wait("better?")
        .await
        .finish_with_text("yes")
        .await;
    fixture.wait_final_response("complete").await;
}

#[tokio::test]
async fn a_conversation_that_is_too_long_is_shortened_and_then_reported() {
    let mut fixture = ModelAgentFixture::new().await;
    let long = format!("begin {} end", "x".repeat(200_000));
    fixture.send_prompt(&long).await;
    fixture
        .model_server
        .respond_error(429, "retry-after: 0\r\n", "{}")
        .await;
    fixture
        .model_server
        .respond_error(400, "", CONTEXT_TOO_LONG)
        .await;
    let request = fixture.model_server.next_request().await;
    let received = request.last_message("user");
    assert!(received.len() < 150_000, "{}", received.len());
    assert_contains(&received, &["ann: begin x", "bytes skipped", "x end"]);
    request.finish_with_text("fine").await;
    let said = fixture.wait_final_response("complete").await;
    assert_eq!(said, "fine");
    fixture.send_prompt("more").await;
    fixture
        .model_server
        .respond_error(400, "", CONTEXT_TOO_LONG)
        .await;
    fixture
        .model_server
        .respond_error(400, "", CONTEXT_TOO_LONG)
        .await;
    let said = fixture.wait_final_response("error").await;
    assert_contains(&said, &["I cannot continue:", "maximum context length"]);
}

#[tokio::test]
async fn a_model_that_never_stops_is_stopped_at_the_step_limit() {
    let mut fixture = ModelAgentFixture::with_flags(&["--most-answers", "2"], &[]).await;
    fixture.send_prompt("go").await;
    for _ in 0..2 {
        fixture
            .model_server
            .next_request()
            .await
            .finish_with_commands(&["true"])
            .await;
    }
    let chunk = fixture.ann.wait_for("response.chunk").await;
    let text = chunk["payload"]["text"].as_str().unwrap();
    assert_starts_with(text, "I stopped after 2 steps in a row");
    let request = fixture.prompt_and_wait("go on").await;
    assert_eq!(request.last_message("user"), "ann: go on");
    request.finish_with_text("enough").await;
}

#[tokio::test]
async fn too_many_calls_are_all_answered_but_not_all_started() {
    let mut fixture = ModelAgentFixture::new().await;
    let calls: Vec<_> = (0..100).map(|_| ("jobs", json!({}))).collect();
    fixture
        .prompt_and_wait("go")
        .await
        .finish_with_calls(&calls)
        .await;
    let request = fixture.model_server.next_request().await;
    let results = request.messages("tool");
    assert_eq!(results.len(), 100);
    assert_eq!(results[63], "You have no background jobs.");
    for result in &results[64..] {
        assert_starts_with(result, "Nothing was done: only the first 64 calls");
    }
    request.finish_with_text("sorry").await;
}

#[tokio::test]
async fn a_stop_in_the_middle_of_many_calls_leaves_none_of_them_waiting() {
    let mut fixture = ModelAgentFixture::new().await;
    fixture
        .prompt_and_wait("go")
        .await
        .finish_with_commands(&["touch x"; 60])
        .await;
    next_gate(&mut fixture.ann).await;
    fixture.interrupt("stop", "so many").await;
    let results = fixture.prompt_and_wait("well?").await.messages("tool");
    assert_eq!(results.len(), 60);
    for result in results {
        let known = [
            "The proposal was withdrawn",
            "The proposal was not accepted: ",
            "Nothing was done: people interrupted you",
        ];
        assert!(known.iter().any(|it| result.starts_with(it)), "{result}");
    }
    // Each result came after its gate was resolved, which everyone receives.
    while count_received(&fixture, "gate.resolve") < count_received(&fixture, "gate.request") {
        fixture.ann.next().await.expect("more is told");
    }
    assert!(!fixture.agent_process.workspace().join("x").exists());
}

#[tokio::test]
async fn invalid_calls_are_answered_with_the_reason() {
    let mut fixture = ModelAgentFixture::new().await;
    let huge = "x".repeat(600_000);
    let request = fixture.prompt_and_wait("go").await;
    request
        .raw_tool_call("shell", "{\"command\": \"ls")
        .await
        .raw_tool_call("shell", "[1, 2]")
        .await
        .raw_tool_call(
            "shell",
            &json!({ "command": huge, "purpose": "p" }).to_string(),
        )
        .await
        .raw_tool_call(&huge, "{}")
        .await
        .finish()
        .await;
    let request = fixture.model_server.next_request().await;
    let results = request.messages("tool");
    assert_contains(&results[0], &["not a JSON object", "Nothing was done"]);
    assert_contains(&results[1], &["not a JSON object"]);
    assert_contains(&results[2], &["a command line has at most 131071"]);
    assert_contains(&results[3], &["There is no tool \"xxx", "bytes skipped"]);
    assert!(results.iter().all(|result| result.len() < 5000));
    request.finish_with_text("sorry").await;
    fixture.wait_final_response("complete").await;
    assert_eq!(count_received(&fixture, "tool.propose"), 0);
}

#[tokio::test]
async fn a_withheld_answer_is_not_acted_on_and_is_retracted() {
    let mut fixture = ModelAgentFixture::new().await;
    let request = fixture
        .prompt_and_wait("something awful")
        .await
        .stream_text("Well, ")
        .await;
    request
        .shell_call("touch never")
        .await
        .finish_with_reason("content_filter")
        .await;
    let said = fixture.wait_final_response("error").await;
    assert_starts_with(&said, "Well, ");
    assert_contains(&said, &["The provider withheld this answer"]);
    let request = fixture.prompt_and_wait("something else").await;
    assert_eq!(request.messages("user"), ["ann: something else"]);
    assert_eq!(request.messages("assistant"), Vec::<String>::new());
    request.finish_with_text("yes").await;
    fixture.wait_final_response("complete").await;
    assert_eq!(count_received(&fixture, "tool.propose"), 0);
}

#[tokio::test]
async fn the_key_is_neither_sent_nor_logged_nor_passed_to_commands() {
    const KEY: &str = "sk-0123456789-abcdefghij";
    let log = "pvp_agent=trace,pvp=trace,reqwest=trace,hyper=trace,hyper_util=trace,rustls=trace";
    let environment = [
        ("OPENAI_API_KEY", OsStr::new(KEY)),
        ("PVP_LOG", OsStr::new(log)),
    ];
    let mut fixture = ModelAgentFixture::with_flags(&[], &environment).await;
    fixture.send_prompt("go").await;
    let complaint = format!(r#"{{"error":{{"message":"{} {KEY}"}}}}"#, "no ".repeat(240));
    let again = "retry-after: 0\r\n";
    fixture
        .model_server
        .respond_error(429, again, &complaint)
        .await;
    let request = fixture.model_server.next_request().await;
    assert_eq!(request.header("authorization"), format!("Bearer {KEY}"));
    request
        .finish_with_commands(&["env; echo ${OPENAI_API_KEY-unset}"])
        .await;
    approve_next(&mut fixture.ann).await;
    let request = fixture.model_server.next_request().await;
    assert_contains(&request.last_message("tool"), &["unset"]);
    request.finish_with_text("ok").await;
    fixture.wait_final_response("complete").await;
    fixture.send_prompt("go").await;
    fixture
        .model_server
        .respond_error(401, "", &complaint)
        .await;
    assert_contains(&fixture.wait_final_response("error").await, &["[key]"]);
    fixture.agent_process.process.signal("TERM");
    let ended = fixture.agent_process.process.ended().await;
    assert_contains(&ended.err, &["asking the provider again", "[key]"]);
    for piece in ["sk-0123", "abcdefghij"] {
        let received = fixture.ann.received.iter();
        let mut received = received
            .map(Value::to_string)
            .chain([ended.out.clone(), ended.err.clone()]);
        assert!(!received.any(|text| text.contains(piece)), "{piece}");
    }
}
