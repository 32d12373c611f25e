//! A session that ends stops the commands of its agents.

use serde_json::json;

use crate::support::agent_process::AgentProcess;
use crate::support::session::agent_behind_proxy;
use crate::support::session::{approve_next, collect_output, start_session, wait_for_output};

/// A job that ignores signals.
const UNSTOPPABLE_JOB: &str = r#"
    step = [
        { shell = "trap '' TERM; setsid sleep 1000 & while :; do echo tick; sleep 0.05; done", mode = "background" },
        { expect = { outcome = "started" } },
        { wait = "prompt" },
    ]
"#;

#[tokio::test]
async fn background_jobs_end_with_the_session() {
    let (server, mut ann) = start_session(json!({})).await;
    let agent_process =
        AgentProcess::start_scripted_with(&server, "owl", UNSTOPPABLE_JOB, &[]).await;
    let job = approve_next(&mut ann).await;
    wait_for_output(&mut ann, "tick").await;
    assert!(!agent_process.running_commands().is_empty());
    let end = json!({ "reason": "enough", "final_state": "aborted" });
    ann.send_and_ack("session.end", end).await;
    agent_process.wait_until_idle().await;
    let ended = agent_process.process.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    let entries = server.entries("owl");
    assert!(collect_output(&entries, &job, "stdout").starts_with("tick\n"));
    let result = entries.iter().find(|entry| entry["type"] == "tool.result");
    let result = &result.expect("the record says how it ended")["payload"];
    assert_eq!(
        (&result["tool_proposal"], &result["success"]),
        (&json!(job), &json!(false))
    );
}

#[tokio::test]
async fn background_jobs_end_with_a_session_that_ended_while_their_agent_was_away() {
    let (_server, proxy, mut ann, agent_process) = agent_behind_proxy(&[], UNSTOPPABLE_JOB).await;
    approve_next(&mut ann).await;
    wait_for_output(&mut ann, "tick").await;
    proxy.cut().await;
    let end = json!({ "reason": "enough", "final_state": "aborted" });
    ann.send_and_ack("session.end", end).await;
    assert!(!agent_process.running_commands().is_empty());
    proxy.restore();
    agent_process.wait_until_idle().await;
    let ended = agent_process.process.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
