//! The server or the network fails in the middle of a command: its output arrives once, in order,
//! and so does its result.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::agent_process::AgentProcess;
use crate::support::audit::{assert_intact, export_log};
use crate::support::session::agent_behind_proxy;
use crate::support::session::{
    approve_next, collect_output, create_session_on, result_of, wait_for_output, wait_until,
};
use crate::support::{TestClient, TestServer};

/// Prints numbered lines, and waits for a file of that number before the next.
const COUNTING_SCRIPT: &str = r#"
    step = [
        { shell = """for i in $(seq 12); do echo line $i; echo aside $i >&2; echo > at-$i; until [ -e go-$i ]; do sleep 0.01; done; done; exit 7""", mode = "slow" },
        { wait = "prompt" },
    ]
"#;

const LINE_NUMBERS: std::ops::RangeInclusive<u32> = 1..=12;

/// Lets the command continue up to a line, and waits until it has printed it.
async fn advance_to_line(workspace: &Path, line: u32) {
    for number in 1..line {
        std::fs::write(workspace.join(format!("go-{number}")), "").unwrap();
    }
    let at = workspace.join(format!("at-{line}"));
    wait_until("the command goes on", || at.exists()).await;
}

/// Lets the command end, and checks that the log has all of its output.
async fn finish_and_check_log(data: &Path, workspace: &Path, ann: &mut TestClient, proposal: &str) {
    advance_to_line(workspace, 12).await;
    std::fs::write(workspace.join("go-12"), "").unwrap();
    let result = result_of(ann, proposal).await;
    assert_eq!(
        (&result["outcome"], &result["result"]["exitCode"]),
        (&json!("known"), &json!(7)),
        "{result}"
    );
    let entries = export_log(data, "owl");
    let lines = |word: &str| -> String { LINE_NUMBERS.map(|i| format!("{word} {i}\n")).collect() };
    assert_eq!(collect_output(&entries, proposal, "stdout"), lines("line"));
    assert_eq!(collect_output(&entries, proposal, "stderr"), lines("aside"));
    assert_eq!(result["result"]["stdout"], lines("line"));
    let results = |entry: &&Value| entry["type"] == "tool.result";
    assert_eq!(entries.iter().filter(results).count(), 1);
    assert_intact(data);
}

#[tokio::test]
async fn a_killed_server_loses_no_output_of_a_command() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(data.path(), &[]).await;
    let (mut server, mut ann) = create_session_on(server, json!({})).await;
    let address = server.address.clone();
    let dee = server.invite("dee", &["driver"], &[]);
    let agent_process =
        AgentProcess::start_scripted_with(&server, "owl", COUNTING_SCRIPT, &[]).await;
    let workspace = agent_process.workspace();
    let proposal = approve_next(&mut ann).await;
    advance_to_line(&workspace, 3).await;
    wait_for_output(&mut ann, "line 3\n").await;

    for (gone_until, back_until) in [(5, 7), (9, 10)] {
        server.kill_9().await;
        advance_to_line(&workspace, gone_until).await;
        server = TestServer::start_on(data.path(), &address, &[]).await;
        ann = server.join("owl", &dee).await;
        advance_to_line(&workspace, back_until).await;
        wait_for_output(&mut ann, &format!("line {back_until}\n")).await;
    }
    finish_and_check_log(data.path(), &workspace, &mut ann, &proposal).await;
}

#[tokio::test]
async fn a_network_that_is_cut_loses_nothing_of_a_command() {
    let (server, proxy, mut ann, agent_process) = agent_behind_proxy(&[], COUNTING_SCRIPT).await;
    let workspace = agent_process.workspace();
    let proposal = approve_next(&mut ann).await;
    advance_to_line(&workspace, 2).await;
    wait_for_output(&mut ann, "line 2\n").await;

    // No bytes pass.
    proxy.cut().await;
    advance_to_line(&workspace, 4).await;
    proxy.restore();
    advance_to_line(&workspace, 5).await;
    wait_for_output(&mut ann, "line 5\n").await;
    // Output arrives, but its acknowledgements are lost.
    proxy.drop_replies();
    advance_to_line(&workspace, 8).await;
    wait_for_output(&mut ann, "line 8\n").await;
    proxy.cut().await;
    advance_to_line(&workspace, 9).await;
    proxy.restore();
    wait_for_output(&mut ann, "line 9\n").await;
    // Output is sent, but does not arrive.
    proxy.drop_requests();
    advance_to_line(&workspace, 11).await;
    proxy.wait_for_loss().await;
    proxy.cut().await;
    proxy.restore();
    finish_and_check_log(&server.data, &workspace, &mut ann, &proposal).await;
}
