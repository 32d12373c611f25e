//! Runs the examples as their first lines say, and checks what the log has of them.
//!
//! Cargo builds them beside the test programs when it builds all targets.

use crate::support::cli::{CliEnv, CliProcess};
use crate::support::{TestServer, run_pvp};
use serde_json::json;

/// Where Cargo puts examples: next to the directory of the test programs.
fn example_path(name: &str) -> std::path::PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().unwrap().parent().unwrap();
    built.join("examples").join(name)
}

/// Runs an example with the admin's link to its end; returns its output.
async fn run_example(server: &TestServer, name: &str) -> String {
    let cli = CliEnv::new();
    let link = server.link(&server.admin(), None);
    let mut command = cli.program(example_path(name));
    let output = CliProcess::spawn(command.env("PVP_LINK", link))
        .ended()
        .await;
    output.expect_ok(&[name])
}

/// What `pvp audit show` prints of the only session, whose log must be intact.
async fn audit_show(server: &TestServer) -> String {
    let data = server.data.to_str().unwrap();
    let cli = CliEnv::logged_in(&server.link(&server.admin(), None)).await;
    let list = cli.run_json(&["sessions", "--json", "--all"]).await;
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1, "{list}");
    let session = list["sessions"][0]["session"].as_str().unwrap();
    let (intact, report, problem) = run_pvp(&["audit", "verify", "--data", data]);
    let whole = format!(
        "{session}: {} entries, intact",
        server.entries(session).len()
    );
    assert!(intact && report.contains(&whole), "{report}{problem}");
    cli.run_ok(&["audit", "show", "--data", data, "--session", session])
        .await
}

/// Asserts that these parts occur in this order.
fn assert_in_order(account: &str, parts: &[&str]) {
    let mut rest = account;
    for part in parts {
        let at = rest
            .find(part)
            .unwrap_or_else(|| panic!("{part} is not, or not there, in\n{account}"));
        rest = &rest[at + part.len()..];
    }
}

#[tokio::test]
async fn the_basic_session_runs_to_its_end_and_is_logged() {
    let server = TestServer::start(&[]).await;
    let output = run_example(&server, "basic_session").await;
    let lines: Vec<_> = output.lines().collect();
    let session = lines[0].strip_prefix("session   ").unwrap();
    let messages = server.entries(session).len();
    assert_eq!(
        lines[1..],
        [
            "waits     echo hello > greeting.txt (one approval)",
            "granted   approved by admin",
            &format!("finished  exit 0, {messages} messages in the log"),
        ]
    );
    assert_in_order(
        &audit_show(&server).await,
        &[
            "admin: created the session",
            "admin: joined as",
            "joined as bot (driver)",
            "[write]: echo hello > greeting.txt",
            "asks for approval",
            "admin: approves ",
            "approved by admin (echo hello > greeting.txt)",
            "(approved by admin): echo hello > greeting.txt",
            "ended: exit 0",
        ],
    );
}

#[tokio::test]
async fn two_of_three_people_approve_and_all_see_the_same() {
    let server = TestServer::start(&[]).await;
    let output = run_example(&server, "multi_participant").await;
    assert_eq!(
        output,
        "Cid sees  rm -rf build: 1 of 2\n\
         Ann sees  it runs, approved by 2\n\
         Bob sees  it runs, approved by 2\n\
         Cid sees  it runs, approved by 2\n"
    );
    assert_in_order(
        &audit_show(&server).await,
        &[
            "joined as Ann (approver)",
            "joined as Bob (approver)",
            "joined as Cid (approver)",
            "[destructive]: rm -rf build",
            "ann-",
            ": approves ",
            "bob-",
            ": approves ",
            "approved by ann-",
            "grants",
        ],
    );
}

#[tokio::test]
async fn the_minimal_approver_approves_with_y_and_rejects_with_a_reason() {
    let server = TestServer::start(&[]).await;
    let mut agent = server
        .create_session_with_agent("owl", json!({ "gate_timeout_seconds": 0 }))
        .await;
    let ann = server.invite("ann", &["approver"], &["--session", "owl"]);
    let cli = CliEnv::new();
    let mut command = cli.program(example_path("watch_and_approve"));
    command
        .env("PVP_LINK", server.link(&ann, Some("owl")))
        .stdin(std::process::Stdio::piped());
    let mut watching = CliProcess::spawn(&mut command);
    let me = format!("watching as {}", ann.participant);
    assert_eq!(watching.next_line().await, me);

    agent.propose("make all").await;
    watching.wait_for_line("make all").await;
    watching.wait_for_line("y to approve").await;
    watching.write_line("y").await;
    assert_eq!(watching.next_line().await, "counted");
    let granted = agent.wait_for("tool.execute").await;
    assert_eq!(granted["payload"]["approved_by"], json!([ann.participant]));

    agent.propose("rm -rf build").await;
    watching.wait_for_line("rm -rf build").await;
    watching.wait_for_line("y to approve").await;
    watching.write_line("we still need it").await;
    assert_eq!(watching.next_line().await, "counted");
    let rejected = agent
        .wait(|message| message["payload"]["outcome"] == "rejected")
        .await;
    assert_eq!(rejected["payload"]["reason"], "we still need it");

    // Somebody else may be faster.
    let proposal = agent.propose("make install").await;
    watching.wait_for_line("y to approve").await;
    let bob = server.invite("bob", &["approver"], &[]);
    let bob = CliEnv::logged_in(&server.link(&bob, None)).await;
    bob.run_ok(&["approve", &proposal]).await;
    watching.wait_for_line("decided already").await;
    watching.close_stdin();
    agent.propose("make clean").await;
    let ended = watching.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    assert_in_order(
        &audit_show(&server).await,
        &[
            "[write]: make all",
            &format!("{}: approves ", ann.participant),
            "grants",
            "[destructive]",
            &format!("{}: rejects", ann.participant),
            "(we still need it",
            "rejected by",
            "[write]: make clean",
        ],
    );
}

#[tokio::test]
async fn the_shell_tool_demo_covers_every_category() {
    let server = TestServer::start(&[]).await;
    server
        .create_session("owl", json!({ "gate_timeout_seconds": 0 }))
        .await;
    let ann = server.invite("ann", &["approver"], &[]);
    let mut ann = server.join("owl", &ann).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let cli = CliEnv::new();
    let mut command = cli.program(example_path("shell_tool_demo"));
    command.env("PVP_LINK", server.link(&bot, Some("owl")));
    let mut tool = CliProcess::spawn(&mut command);

    tool.wait_for_line("$ ls -la").await;
    tool.wait_for_line("  read: ").await;
    tool.wait_for_line("  ended: exit Some(0)").await;
    tool.wait_for_line("$ echo 'buy milk' > shopping-list.txt")
        .await;
    let gate = ann.wait_for("gate.request").await;
    tool.wait_for_line("  waits for one approval").await;
    ann.approve(gate["id"].as_str().unwrap()).await;
    for tick in ["  | tick 1", "  | tick 2", "  | tick 3"] {
        tool.wait_for_line(tick).await;
    }
    tool.wait_for_line("  ended: exit Some(0)").await;
    assert!(cli.workdir().join("shopping-list.txt").exists());
    tool.wait_for_line("$ rm -rf shopping-list.txt").await;
    tool.wait_for_line("  destructive: ").await;
    let gate = ann.wait_for("gate.request").await;
    let no =
        json!({ "gate": gate["id"], "rejector": ann.participant, "reason": "we are out of milk" });
    ann.send_and_ack("gate.reject", no).await;
    tool.wait_for_line("  not run: Rejected we are out of milk")
        .await;
    tool.wait_for_line("$ rm -rf /").await;
    tool.wait_for_line("  not even sent: ").await;
    let ended = tool.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    assert!(cli.workdir().join("shopping-list.txt").exists());
    let account = audit_show(&server).await;
    assert!(!account.contains("\"rm -rf /\""), "{account}");
}
