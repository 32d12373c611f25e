//! Output that is not plain text: delivered whole, counted correctly, and confirmed by its hash.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::TestClient;
use crate::support::agent_process::AgentProcess;
use crate::support::session::{approve_next, collect_output, result_of, start_session};

/// Runs an approved command; returns the output that was delivered and the result.
async fn run_approved(line: &str) -> (String, Value) {
    let (server, mut ann) = start_session(json!({})).await;
    let script = format!("[[step]]\nshell = '''{line}'''\n[[step]]\nwait = 'prompt'\n");
    let _agent_process = AgentProcess::start_scripted_with(&server, "owl", &script, &[]).await;
    let proposal = approve_next(&mut ann).await;
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["success"], true, "{result}");
    (stdout_of(&ann, &proposal), result)
}

fn stdout_of(person: &TestClient, proposal: &str) -> String {
    collect_output(&person.received, proposal, "stdout")
}

/// The hash of a text, from `sha256sum`.
fn sha256sum(text: &str) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap().stdout;
    String::from_utf8(output[..64].to_vec()).unwrap()
}

fn invariant_stream_facts_match_output(received: &str, result: &Value) {
    let facts = &result["streams"]["stdout"];
    assert_eq!(facts["sha256"], sha256sum(received));
    assert_eq!(facts["bytes"], received.len());
    assert_eq!(facts["lines"], received.lines().count());
}

#[tokio::test]
async fn invalid_bytes_are_replaced_and_counted_as_delivered() {
    let (received, result) = run_approved(r"touch a; printf 'a\377b\300c\n\342\202'").await;
    assert_eq!(received, "a\u{fffd}b\u{fffd}c\n\u{fffd}");
    assert_eq!(result["result"]["stdout"], received);
    invariant_stream_facts_match_output(&received, &result);
}

#[tokio::test]
async fn the_ends_of_long_output_are_cut_between_characters() {
    let (received, result) = run_approved("touch a; yes aü | head -n 25000; printf zz").await;
    // Not compared with `assert_eq`, which would print all of it.
    assert!(received == format!("{}zz", "aü\n".repeat(25_000)));
    invariant_stream_facts_match_output(&received, &result);
    let shown = result["result"]["stdout"].as_str().unwrap();
    let (head, rest) = shown.split_once("\n[… ").unwrap();
    let (left_out, tail) = rest.split_once(" bytes omitted …]\n").unwrap();
    // The last 32 KiB begin inside a character, which is left out too.
    let begun = received.len() - 32 * 1024 + 1;
    let kept = 64 * 1024 - 64 - tail.len();
    assert_eq!((head.len(), tail.len()), (kept, received.len() - begun));
    assert_eq!(left_out, (begun - kept).to_string());
    assert!(head == &received[..kept] && tail == &received[begun..]);
}
