//! What the README tells a newcomer to run, run.

#![allow(
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

mod kit;

use kit::{Server, pvp};

/// Where cargo puts examples: beside the directory of the test programs.
fn example(name: &str) -> std::path::PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples")
        .join(name)
}

#[tokio::test]
async fn the_first_gate_of_the_readme_works_and_is_on_record() {
    let server = Server::start(&[]).await;
    let link = format!("http://{}/?token={}", server.address, server.admin().token);
    let run = tokio::process::Command::new(example("first_gate"))
        .arg(link)
        .output();
    let output = tokio::time::timeout(kit::PATIENCE, run)
        .await
        .unwrap()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("approved by [\"admin\"]"), "{said}");
    assert!(said.contains("exit 0"), "{said}");
    let session = said.trim_end().rsplit(' ').next().unwrap();
    let data = server.data.to_str().unwrap();
    let (shown, account, problem) = pvp(&["audit", "show", "--data", data, "--session", session]);
    assert!(shown, "{problem}");
    for line in [
        "proposed [write]",
        "admin: approved",
        "granted",
        "finished: exit 0",
    ] {
        assert!(account.contains(line), "{line} is not in\n{account}");
    }
    let (intact, report, _) = pvp(&["audit", "verify", "--data", data]);
    let signed = format!("{session}: 10 entries, intact, signed for up to 10");
    assert!(intact && report.contains(&signed), "{report}");
}
