//! A grant that reaches its executor after it expired is answered but not executed.

use std::time::Duration;

use pvp_protocol::Timestamp;
use serde_json::{Value, json};

use crate::support::agent_process::AgentProcess;
use crate::support::session::agent_behind_proxy;
use crate::support::session::{
    approve, approve_next, next_gate, proposal_of, result_of, start_session_with_env,
    wait_for_output,
};
use crate::support::{TEST_TIMEOUT, TestClient};

const SHORT_GRANT_LIFE: [(&str, &str); 1] = [("PVP_GRANT_LIFE_SECONDS", "1")];

/// For grants that must reach their executor before they expire, even on a busy machine.
const LONG_GRANT_LIFE: [(&str, &str); 1] = [("PVP_GRANT_LIFE_SECONDS", "12")];

const SCRIPT: &str = r#"
    step = [
        { shell = "touch late" },
        { expect = { outcome = "stopped", contains = "expired" } },
        { wait = "prompt" },
    ]
"#;

/// What time it is for the server: its clock is not that of the test.
async fn server_time(person: &mut TestClient) -> Timestamp {
    person.send("heartbeat.ping", json!({})).await;
    let pong = person.wait_for("heartbeat.pong").await;
    serde_json::from_value(pong["ts"].clone()).unwrap()
}

/// Approves, and waits until the grant has expired.
async fn approve_and_wait_expiry(ann: &mut TestClient, gate: &str) -> String {
    approve(ann, gate).await;
    let execute = ann.wait_for("tool.execute").await;
    let expires = execute["payload"]["grant"]["expires_at"].clone();
    let expires: Timestamp = serde_json::from_value(expires).unwrap();
    while server_time(ann).await <= expires {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    proposal_of(ann, gate)
}

fn assert_expired(result: &Value) {
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
async fn a_grant_that_arrives_after_it_expired_is_not_acted_on() {
    let (server, proxy, mut ann, mut agent_process) =
        agent_behind_proxy(&SHORT_GRANT_LIFE, SCRIPT).await;
    let (open_connections, _) = next_gate(&mut ann).await;
    proxy.cut().await;
    let proposal = approve_and_wait_expiry(&mut ann, &open_connections).await;
    proxy.restore();
    assert_expired(&result_of(&mut ann, &proposal).await);
    assert!(!agent_process.workspace().join("late").exists());
    // The proposer gets the reason, so the script continues.
    agent_process.process.wait_for_line("It did not run").await;
    assert!(
        tokio::time::timeout(TEST_TIMEOUT, server.stop())
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_grant_that_expired_while_the_agent_was_down_is_not_acted_on() {
    let (server, mut ann) = start_session_with_env(&SHORT_GRANT_LIFE, json!({})).await;
    let mut agent_process = AgentProcess::start_scripted_with(&server, "owl", SCRIPT, &[]).await;
    let (open_connections, _) = next_gate(&mut ann).await;
    agent_process.kill_9().await;
    let proposal = approve_and_wait_expiry(&mut ann, &open_connections).await;
    agent_process.restart().await;
    assert_expired(&result_of(&mut ann, &proposal).await);
    assert!(!agent_process.workspace().join("late").exists());
}

#[tokio::test]
async fn a_grant_that_expires_while_it_waits_for_a_slot_is_not_acted_on() {
    let (server, mut ann) = start_session_with_env(&LONG_GRANT_LIFE, json!({})).await;
    let script = r#"
        step = [
            { shell = "echo first; until [ -e go ]; do sleep 0.01; done", together = true },
            { shell = "touch late" },
            { wait = "prompt" },
        ]
    "#;
    let agent_process =
        AgentProcess::start_scripted_with(&server, "owl", script, &["--at-once", "1"]).await;
    let first = approve_next(&mut ann).await;
    wait_for_output(&mut ann, "first").await;
    ann.wait_for("tool.execute").await;
    let (open_connections, _) = next_gate(&mut ann).await;
    let second = approve_and_wait_expiry(&mut ann, &open_connections).await;
    std::fs::write(agent_process.workspace().join("go"), "").unwrap();
    assert_eq!(result_of(&mut ann, &first).await["success"], true);
    assert_eq!(
        result_of(&mut ann, &second).await["error"],
        "the grant expired while other commands ran; propose it again"
    );
    assert!(!agent_process.workspace().join("late").exists());
}
