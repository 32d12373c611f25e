//! What the plugin for OpenCode shows while a call waits: it is JavaScript, so its tests run in
//! Node.js, which `make test` needs for the page anyway.

use std::path::Path;

use tokio::process::Command;

#[tokio::test]
async fn the_screen_of_opencode_says_that_a_call_waits() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent/opencode_notice.test.mjs");
    let output = Command::new("node").arg("--test").arg(tests).output().await;
    let output = output.expect("Node.js 20 or later is needed: install `node`");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("pass 2"), "{said}");
}
