//! A grant that reaches its executor too late is answered, and not acted on.

use pvp_client::now;
use pvp_protocol::Timestamp;
use serde_json::{Value, json};

use crate::behind_a_proxy;
use crate::kit::room::{
    approve, approve_next, gate, printed, proposal_of, result_of, room_with, until,
};
use crate::kit::worker::Worker;
use crate::kit::{Client, PATIENCE};

const SHORT: [(&str, &str); 1] = [("PVP_GRANT_LIFE_SECONDS", "1")];

/// For grants that are to reach their executor before they expire, however busy the machine is.
const IN_TIME: [(&str, &str); 1] = [("PVP_GRANT_LIFE_SECONDS", "12")];

const SCRIPT: &str = r#"
    step = [
        { shell = "touch late" },
        { expect = { outcome = "stopped", contains = "expired" } },
        { wait = "prompt" },
    ]
"#;

/// Approves, and waits until the grant is of no use any more.
async fn approve_in_vain(ann: &mut Client, gate: &str) -> String {
    approve(ann, gate).await;
    let execute = ann.wait_for("tool.execute").await;
    let expires = execute["payload"]["grant"]["expires_at"].clone();
    let expires: Timestamp = serde_json::from_value(expires).unwrap();
    until("it expires", || now() > expires).await;
    proposal_of(ann, gate)
}

fn is_refused(result: &Value) {
    assert_eq!(
        (&result["success"], &result["outcome"], &result["error"]),
        (
            &json!(false),
            &json!("known"),
            &json!("the grant has expired")
        )
    );
}

#[tokio::test]
async fn a_grant_that_was_under_way_for_too_long_is_not_acted_on() {
    let (server, proxy, mut ann, mut worker) = behind_a_proxy(&SHORT, SCRIPT).await;
    let (open, _) = gate(&mut ann).await;
    proxy.cut().await;
    let proposal = approve_in_vain(&mut ann, &open).await;
    proxy.mend();
    is_refused(&result_of(&mut ann, &proposal).await);
    assert!(!worker.workspace().join("late").exists());
    // Whoever proposed it heard why: the script goes on.
    worker.going.line_with("It did not run").await;
    assert!(tokio::time::timeout(PATIENCE, server.stop()).await.is_ok());
}

#[tokio::test]
async fn a_grant_that_came_while_the_agent_was_dead_is_not_acted_on() {
    let (server, mut ann) = room_with(&SHORT, json!({})).await;
    let mut worker = Worker::scripted_with(&server, "owl", SCRIPT, &[]).await;
    let (open, _) = gate(&mut ann).await;
    worker.kill_9().await;
    let proposal = approve_in_vain(&mut ann, &open).await;
    worker.again().await;
    is_refused(&result_of(&mut ann, &proposal).await);
    assert!(!worker.workspace().join("late").exists());
}

#[tokio::test]
async fn a_grant_that_expires_while_it_waits_its_turn_is_not_acted_on() {
    let (server, mut ann) = room_with(&IN_TIME, json!({})).await;
    let script = r#"
        step = [
            { shell = "echo first; until [ -e go ]; do sleep 0.01; done", together = true },
            { shell = "touch late" },
            { wait = "prompt" },
        ]
    "#;
    let worker = Worker::scripted_with(&server, "owl", script, &["--at-once", "1"]).await;
    let first = approve_next(&mut ann).await;
    printed(&mut ann, "first").await;
    ann.wait_for("tool.execute").await;
    let (open, _) = gate(&mut ann).await;
    let second = approve_in_vain(&mut ann, &open).await;
    std::fs::write(worker.workspace().join("go"), "").unwrap();
    assert_eq!(result_of(&mut ann, &first).await["success"], true);
    assert_eq!(
        result_of(&mut ann, &second).await["error"],
        "the grant expired while other commands ran; propose it again"
    );
    assert!(!worker.workspace().join("late").exists());
}
