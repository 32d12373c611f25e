//! The plugin for OpenCode, which is JavaScript: its tests run in Node.js, which `make test` needs for
//! the page anyway.

use std::path::Path;

use tokio::process::Command;

#[tokio::test]
async fn the_plugin_lets_nothing_through_that_was_not_allowed() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent/opencode_plugin.test.mjs");
    let output = Command::new("node").arg("--test").arg(tests).output().await;
    let output = output.expect("Node.js 20 or later is needed: install `node`");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("fail 0"), "{said}");
    assert!(!said.contains("tests 0"), "{said}");
}
