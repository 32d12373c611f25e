//! A session that ends takes along what its agents run.

use serde_json::json;

use crate::behind_a_proxy;
use crate::kit::room::{approve_next, output, printed, room};
use crate::kit::worker::Worker;

/// A job that does not want to end.
const JOB: &str = r#"
    step = [
        { shell = "trap '' TERM; setsid sleep 1000 & while :; do echo tick; sleep 0.05; done", mode = "background" },
        { expect = { outcome = "started" } },
        { wait = "prompt" },
    ]
"#;

#[tokio::test]
async fn background_jobs_end_with_the_session() {
    let (server, mut ann) = room(json!({})).await;
    let worker = Worker::scripted_with(&server, "owl", JOB, &[]).await;
    let job = approve_next(&mut ann).await;
    printed(&mut ann, "tick").await;
    assert!(!worker.at_work().is_empty());
    let end = json!({ "reason": "enough", "final_state": "aborted" });
    ann.say("session.end", end).await;
    worker.is_quiet().await;
    let ended = worker.going.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    let entries = server.entries("owl");
    assert!(output(&entries, &job, "stdout").starts_with("tick\n"));
    let result = entries.iter().find(|entry| entry["type"] == "tool.result");
    let result = &result.expect("the record says how it ended")["payload"];
    assert_eq!(
        (&result["tool_proposal"], &result["success"]),
        (&json!(job), &json!(false))
    );
}

#[tokio::test]
async fn background_jobs_end_with_a_session_that_ended_while_their_agent_was_away() {
    let (_server, proxy, mut ann, worker) = behind_a_proxy(&[], JOB).await;
    approve_next(&mut ann).await;
    printed(&mut ann, "tick").await;
    proxy.cut().await;
    let end = json!({ "reason": "enough", "final_state": "aborted" });
    ann.say("session.end", end).await;
    assert!(!worker.at_work().is_empty());
    proxy.mend();
    worker.is_quiet().await;
    let ended = worker.going.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
