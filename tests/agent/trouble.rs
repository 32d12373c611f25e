//! Models and providers that misbehave: bounded, told in words, and without a secret in them.

use std::ffi::OsStr;

use serde_json::{Value, json};

use crate::gate;
use crate::kit::room::approve_next;
use crate::scene::{Scene, begins, has};

/// How many messages of a type were told so far.
fn told(scene: &Scene, kind: &str) -> usize {
    let told = scene.ann.received.iter();
    told.filter(|message| message["type"] == kind).count()
}

const TOO_LONG: &str = r#"{"error":{"message":"This model's maximum context length is 8 tokens"}}"#;

#[tokio::test]
async fn a_provider_in_trouble_is_asked_again_or_complained_about() {
    let mut scene = Scene::plain().await;
    scene.prompt("go").await;
    scene.model.fails(429, "retry-after: 0\r\n", "{}").await;
    scene.model.asked().await.answers("here I am").await;
    scene.ended("complete").await;
    scene.prompt("again").await;
    scene.model.fails(401, "", "{}").await;
    let said = scene.ended("error").await;
    has(&said, &["I cannot go on:", "OPENAI_API_KEY"]);
    // It is still there.
    scene.ask("better?").await.answers("yes").await;
    scene.ended("complete").await;
}

#[tokio::test]
async fn what_is_too_long_is_asked_with_less_and_then_complained_about() {
    let mut scene = Scene::plain().await;
    let long = format!("begin {} end", "x".repeat(200_000));
    scene.prompt(&long).await;
    scene.model.fails(429, "retry-after: 0\r\n", "{}").await;
    scene.model.fails(400, "", TOO_LONG).await;
    let question = scene.model.asked().await;
    let heard = question.last("user");
    assert!(heard.len() < 150_000, "{}", heard.len());
    has(&heard, &["ann: begin x", "bytes skipped", "x end"]);
    question.answers("fine").await;
    let said = scene.ended("complete").await;
    assert_eq!(said, "fine");
    scene.prompt("more").await;
    scene.model.fails(400, "", TOO_LONG).await;
    scene.model.fails(400, "", TOO_LONG).await;
    let said = scene.ended("error").await;
    has(&said, &["I cannot go on:", "maximum context length"]);
}

#[tokio::test]
async fn a_model_that_never_ends_is_ended_after_its_steps() {
    let mut scene = Scene::set(&["--most-answers", "2"], &[]).await;
    scene.prompt("go").await;
    for _ in 0..2 {
        scene.model.asked().await.runs(&["true"]).await;
    }
    let chunk = scene.ann.wait_for("response.chunk").await;
    let text = chunk["payload"]["text"].as_str().unwrap();
    begins(text, "I have taken 2 steps in a row");
    let question = scene.ask("go on").await;
    assert_eq!(question.last("user"), "ann: go on");
    question.answers("enough").await;
}

#[tokio::test]
async fn calls_without_number_are_answered_and_not_all_begun() {
    let mut scene = Scene::plain().await;
    let calls: Vec<_> = (0..100).map(|_| ("jobs", json!({}))).collect();
    scene.ask("go").await.calls(&calls).await;
    let question = scene.model.asked().await;
    let results = question.messages("tool");
    assert_eq!(results.len(), 100);
    assert_eq!(results[63], "You have no background jobs.");
    for result in &results[64..] {
        begins(result, "Nothing was done: only the first 64 calls");
    }
    question.answers("sorry").await;
}

#[tokio::test]
async fn a_stop_in_the_middle_of_many_calls_leaves_none_of_them_waiting() {
    let mut scene = Scene::plain().await;
    scene.ask("go").await.runs(&["touch x"; 60]).await;
    gate(&mut scene.ann).await;
    scene.interrupt("stop", "so many").await;
    let results = scene.ask("well?").await.messages("tool");
    assert_eq!(results.len(), 60);
    for result in results {
        let known = [
            "The proposal was withdrawn",
            "The proposal was not accepted: ",
            "Nothing was done: people interrupted you",
        ];
        assert!(known.iter().any(|it| result.starts_with(it)), "{result}");
    }
    // Each result came after the end of its gate, which is told to everyone.
    while told(&scene, "gate.resolve") < told(&scene, "gate.request") {
        scene.ann.next().await.expect("more is told");
    }
    assert!(!scene.worker.workspace().join("x").exists());
}

#[tokio::test]
async fn nonsense_is_answered_with_what_is_wrong_with_it() {
    let mut scene = Scene::plain().await;
    let huge = "x".repeat(600_000);
    let question = scene.ask("go").await;
    question
        .raw_call("shell", "{\"command\": \"ls")
        .await
        .raw_call("shell", "[1, 2]")
        .await
        .raw_call(
            "shell",
            &json!({ "command": huge, "purpose": "p" }).to_string(),
        )
        .await
        .raw_call(&huge, "{}")
        .await
        .done()
        .await;
    let question = scene.model.asked().await;
    let results = question.messages("tool");
    has(&results[0], &["not a JSON object", "Nothing was done"]);
    has(&results[1], &["not a JSON object"]);
    has(&results[2], &["a command line has at most 131071"]);
    has(&results[3], &["There is no tool \"xxx", "bytes skipped"]);
    assert!(results.iter().all(|result| result.len() < 5000));
    question.answers("sorry").await;
    scene.ended("complete").await;
    assert_eq!(told(&scene, "tool.propose"), 0);
}

#[tokio::test]
async fn an_answer_that_the_provider_withholds_is_not_acted_on_and_taken_back() {
    let mut scene = Scene::plain().await;
    let question = scene.ask("something awful").await.say("Well, ").await;
    question
        .shell("touch never")
        .await
        .ends("content_filter")
        .await;
    let said = scene.ended("error").await;
    begins(&said, "Well, ");
    has(&said, &["The provider withheld this answer"]);
    let question = scene.ask("something else").await;
    assert_eq!(question.messages("user"), ["ann: something else"]);
    assert_eq!(question.messages("assistant"), Vec::<String>::new());
    question.answers("yes").await;
    scene.ended("complete").await;
    assert_eq!(told(&scene, "tool.propose"), 0);
}

#[tokio::test]
async fn the_key_is_neither_told_nor_logged_nor_given_to_commands() {
    const KEY: &str = "sk-0123456789-abcdefghij";
    let log = "pvp_agent=trace,pvp=trace,reqwest=trace,hyper=trace,hyper_util=trace,rustls=trace";
    let environment = [
        ("OPENAI_API_KEY", OsStr::new(KEY)),
        ("PVP_LOG", OsStr::new(log)),
    ];
    let mut scene = Scene::set(&[], &environment).await;
    scene.prompt("go").await;
    let complaint = format!(r#"{{"error":{{"message":"{} {KEY}"}}}}"#, "no ".repeat(240));
    let again = "retry-after: 0\r\n";
    scene.model.fails(429, again, &complaint).await;
    let question = scene.model.asked().await;
    assert_eq!(question.header("authorization"), format!("Bearer {KEY}"));
    question.runs(&["env; echo ${OPENAI_API_KEY-unset}"]).await;
    approve_next(&mut scene.ann).await;
    let question = scene.model.asked().await;
    has(&question.last("tool"), &["unset"]);
    question.answers("ok").await;
    scene.ended("complete").await;
    scene.prompt("go").await;
    scene.model.fails(401, "", &complaint).await;
    has(&scene.ended("error").await, &["[key]"]);
    scene.worker.going.signal("TERM");
    let ended = scene.worker.going.ended().await;
    has(&ended.err, &["asking the provider again", "[key]"]);
    for piece in ["sk-0123", "abcdefghij"] {
        let told = scene.ann.received.iter();
        let mut told = told
            .map(Value::to_string)
            .chain([ended.out.clone(), ended.err.clone()]);
        assert!(!told.any(|text| text.contains(piece)), "{piece}");
    }
}
