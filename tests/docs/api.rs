//! Runs the commands of docs/api.md as they are written there.

use std::path::Path;

use crate::support::TestServer;
use serde_json::Value;

/// One code block of the page: its commands, and lines that must be in their output, in order.
struct DocBlock {
    commands: String,
    expected: Vec<String>,
}

fn api_page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md");
    std::fs::read_to_string(path).unwrap()
}

fn doc_blocks(page: &str) -> Vec<DocBlock> {
    page.split("```sh\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .map(|block| {
            let (expected, commands): (Vec<_>, Vec<_>) =
                block.lines().partition(|line| line.starts_with("# "));
            DocBlock {
                commands: commands.join("\n"),
                expected: expected.iter().map(|line| line[2..].to_owned()).collect(),
            }
        })
        .collect()
}

#[tokio::test]
async fn every_command_of_the_page_does_what_it_says() {
    let server = TestServer::start(&[]).await;
    let blocks = doc_blocks(&api_page());
    assert!(blocks.len() >= 9, "the page was read");
    // One shell runs them all, as a reader would; a mark ends the output of each block.
    let mark = "=== end of block ===";
    let mut script = "set -euo pipefail\n".to_owned();
    for block in &blocks {
        script += &format!("{}\necho '{mark}'\n", block.commands);
    }
    let directory = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_pvp"));
    let path = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let run = tokio::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(directory.path())
        .env("PATH", path)
        .env("HOME", directory.path())
        .env("SERVER", format!("http://{}", server.address))
        .env("TOKEN", server.admin().token)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(crate::support::TEST_TIMEOUT, run)
        .await
        .unwrap()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let problems = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{printed}\n{problems}");
    for (block, printed) in blocks.iter().zip(printed.split(mark)) {
        let mut lines = printed.lines();
        for expected in &block.expected {
            assert!(
                lines.any(|line| line.contains(expected.as_str())),
                "`{expected}` is not in what this printed:\n{}\n---\n{printed}",
                block.commands
            );
        }
    }
}

#[tokio::test]
async fn the_page_names_every_route_and_no_other() {
    let server = TestServer::start(&[]).await;
    let (_, document) = crate::support::http_get(&server.address, "/openapi.json", &[]).await;
    let document: Value = serde_json::from_str(&document).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let mut served: Vec<_> = paths
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods.map(move |method| format!("{} {path}", method.to_uppercase()))
        })
        .collect();
    served.sort();
    let page = api_page();
    let table = page.split("## Routes").nth(1).unwrap();
    let mut named: Vec<_> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| {
            line.split('|')
                .nth(1)
                .unwrap()
                .split('`')
                .skip(1)
                .step_by(2)
        })
        .map(str::to_owned)
        .collect();
    named.sort();
    assert_eq!(named, served);
}
