//! The server dies, or the network does, in the middle of a command: everything that it prints
//! arrives once, in order, and so does its result.

use std::path::Path;

use serde_json::{Value, json};

use crate::behind_a_proxy;
use crate::kit::proof::{log, verified};
use crate::kit::room::{approve_next, output, printed, result_of, room_of, until};
use crate::kit::worker::Worker;
use crate::kit::{Client, Server};

/// Prints a line, then waits for a file of that number before the next.
const COUNT: &str = r#"
    step = [
        { shell = """for i in $(seq 12); do echo line $i; echo aside $i >&2; echo > at-$i; until [ -e go-$i ]; do sleep 0.01; done; done; exit 7""", mode = "slow" },
        { wait = "prompt" },
    ]
"#;

const LINES: std::ops::RangeInclusive<u32> = 1..=12;

/// Lets the command go on up to a line, and waits until it has printed that.
async fn go_to(workspace: &Path, line: u32) {
    for number in 1..line {
        std::fs::write(workspace.join(format!("go-{number}")), "").unwrap();
    }
    let at = workspace.join(format!("at-{line}"));
    until("the command goes on", || at.exists()).await;
}

/// Lets the command end, and checks that the log has all of it.
async fn check_the_end(data: &Path, workspace: &Path, ann: &mut Client, proposal: &str) {
    go_to(workspace, 12).await;
    std::fs::write(workspace.join("go-12"), "").unwrap();
    let result = result_of(ann, proposal).await;
    assert_eq!(
        (&result["outcome"], &result["result"]["exitCode"]),
        (&json!("known"), &json!(7)),
        "{result}"
    );
    let entries = log(data, "owl");
    let lines = |word: &str| -> String { LINES.map(|i| format!("{word} {i}\n")).collect() };
    assert_eq!(output(&entries, proposal, "stdout"), lines("line"));
    assert_eq!(output(&entries, proposal, "stderr"), lines("aside"));
    assert_eq!(result["result"]["stdout"], lines("line"));
    let results = |entry: &&Value| entry["type"] == "tool.result";
    assert_eq!(entries.iter().filter(results).count(), 1);
    verified(data);
}

#[tokio::test]
async fn a_server_that_is_killed_misses_nothing_of_a_command() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start_in(data.path(), &[]).await;
    let (mut server, mut ann) = room_of(server, json!({})).await;
    let address = server.address.clone();
    let dee = server.invite("dee", &["driver"], &[]);
    let worker = Worker::scripted_with(&server, "owl", COUNT, &[]).await;
    let workspace = worker.workspace();
    let proposal = approve_next(&mut ann).await;
    go_to(&workspace, 3).await;
    printed(&mut ann, "line 3\n").await;

    for (gone_until, back_until) in [(5, 7), (9, 10)] {
        server.kill_9().await;
        go_to(&workspace, gone_until).await;
        server = Server::start_on(data.path(), &address, &[]).await;
        ann = server.join("owl", &dee).await;
        go_to(&workspace, back_until).await;
        printed(&mut ann, &format!("line {back_until}\n")).await;
    }
    check_the_end(data.path(), &workspace, &mut ann, &proposal).await;
}

#[tokio::test]
async fn a_network_that_is_cut_loses_nothing_of_a_command() {
    let (server, proxy, mut ann, worker) = behind_a_proxy(&[], COUNT).await;
    let workspace = worker.workspace();
    let proposal = approve_next(&mut ann).await;
    go_to(&workspace, 2).await;
    printed(&mut ann, "line 2\n").await;

    // Nothing goes through.
    proxy.cut().await;
    go_to(&workspace, 4).await;
    proxy.mend();
    go_to(&workspace, 5).await;
    printed(&mut ann, "line 5\n").await;
    // Output arrives, and the agent does not hear that it did.
    proxy.deafen();
    go_to(&workspace, 8).await;
    printed(&mut ann, "line 8\n").await;
    proxy.cut().await;
    go_to(&workspace, 9).await;
    proxy.mend();
    printed(&mut ann, "line 9\n").await;
    // Output is sent, and does not arrive.
    proxy.mute();
    go_to(&workspace, 11).await;
    proxy.swallowed().await;
    proxy.cut().await;
    proxy.mend();
    check_the_end(&server.data, &workspace, &mut ann, &proposal).await;
}
