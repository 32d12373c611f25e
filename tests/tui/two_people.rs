//! Two people on two machines, from nothing to a command that both have approved.

use std::sync::Arc;

use crate::fixture::TestScreen;
use crate::support::cli::CliEnv;

/// A script for an agent that proposes one write.
const SCRIPT: &str = "[[step]]\nshell = \"touch agreed\"\npurpose = \"agree on it\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn two_people_approve_a_command_with_four_commands_in_all() {
    let (ann, bob) = (Arc::new(CliEnv::new()), Arc::new(CliEnv::new()));
    std::fs::write(ann.workdir().join("script.toml"), SCRIPT).unwrap();

    // One: Ann starts a server, and gets a line to send.
    let up = [
        "up",
        "--share",
        "--approvals",
        "2",
        "--listen",
        "127.0.0.1:0",
    ];
    let mut server = ann.spawn(&up);
    let line = server.wait_for_line("pvp join ").await;
    let join: Vec<_> = line.split_whitespace().skip(1).collect();

    // Two: Bob runs it, and is on the screen.
    let mut bobs = TestScreen::start_in(bob, &join, 100, 30);
    bobs.wait_for_text("● connected");

    // Three: Ann starts an agent, and Bob approves what it proposes.
    let mut agent = ann.spawn(&["agent", "--script", "script.toml"]);
    approve_on(&mut bobs);
    bobs.wait_for_text("1 of 2");
    assert!(!ann.workdir().join("agreed").exists());

    // Four: Ann opens the screen and approves too.
    let mut anns = TestScreen::start_in(ann.clone(), &["tui"], 100, 30);
    approve_on(&mut anns);
    agent.wait_for_line("Exit code: 0").await;
    assert!(ann.workdir().join("agreed").exists());
}

fn approve_on(screen: &mut TestScreen) {
    screen.wait_for_text("touch agreed");
    screen.send_keys("\t");
    screen.wait_for_text("▶ Waiting for a decision");
    screen.send_keys("a");
}
