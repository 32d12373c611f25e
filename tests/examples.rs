//! The examples, run as their first lines say, and what the record has of them.
//!
//! Cargo builds them beside the test programs when it builds all targets.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

mod kit;

use kit::desk::{Desk, Going};
use kit::{Server, pvp};
use serde_json::json;

/// Where cargo puts examples: beside the directory of the test programs.
fn example(name: &str) -> std::path::PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().unwrap().parent().unwrap();
    built.join("examples").join(name)
}

/// Runs an example with the admin's link to its end, and gives what it printed.
async fn run(server: &Server, name: &str) -> String {
    let desk = Desk::new();
    let link = server.link(&server.admin(), None);
    let mut command = desk.program(example(name));
    let said = Going::start(command.arg(link)).ended().await;
    said.good(&[name])
}

/// The account of the only session there is, which is intact.
async fn account(server: &Server) -> String {
    let data = server.data.to_str().unwrap();
    let desk = Desk::with(&server.link(&server.admin(), None)).await;
    let list = desk.json(&["sessions", "--json", "--all"]).await;
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1, "{list}");
    let session = list["sessions"][0]["session"].as_str().unwrap();
    let (intact, report, problem) = pvp(&["audit", "verify", "--data", data]);
    let whole = format!(
        "{session}: {} entries, intact",
        server.entries(session).len()
    );
    assert!(intact && report.contains(&whole), "{report}{problem}");
    desk.good(&["audit", "show", "--data", data, "--session", session])
        .await
}

/// These parts stand in the account, in this order.
fn tells(account: &str, parts: &[&str]) {
    let mut rest = account;
    for part in parts {
        let at = rest
            .find(part)
            .unwrap_or_else(|| panic!("{part} is not, or not there, in\n{account}"));
        rest = &rest[at + part.len()..];
    }
}

#[tokio::test]
async fn a_basic_session_goes_from_beginning_to_end_and_is_on_record() {
    let server = Server::start(&[]).await;
    let said = run(&server, "basic_session").await;
    let lines: Vec<_> = said.lines().collect();
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
    tells(
        &account(&server).await,
        &[
            "admin: created the session",
            "admin: joined as",
            "joined as bot (driver)",
            r#"proposed [write] "echo hello > greeting.txt""#,
            "asked for approval",
            "admin: approved",
            "was approved by admin",
            "(approved by admin): echo hello > greeting.txt",
            "ended: exit 0",
        ],
    );
}

#[tokio::test]
async fn two_of_three_people_approve_and_all_see_the_same() {
    let server = Server::start(&[]).await;
    let said = run(&server, "multi_participant").await;
    assert_eq!(
        said,
        "Cid sees  rm -rf build: 1 of 2\n\
         Ann sees  it runs, approved by 2\n\
         Bob sees  it runs, approved by 2\n\
         Cid sees  it runs, approved by 2\n"
    );
    tells(
        &account(&server).await,
        &[
            "joined as Ann (approver)",
            "joined as Bob (approver)",
            "joined as Cid (approver)",
            r#"proposed [destructive] "rm -rf build""#,
            "ann-",
            ": approved",
            "bob-",
            ": approved",
            "was approved by ann-",
            "granted",
        ],
    );
}

#[tokio::test]
async fn the_smallest_approver_approves_with_a_y_and_rejects_with_a_sentence() {
    let server = Server::start(&[]).await;
    let mut agent = server
        .with_agent("owl", json!({ "gate_timeout_seconds": 0 }))
        .await;
    let ann = server.invite("ann", &["approver"], &["--session", "owl"]);
    let desk = Desk::new();
    let mut command = desk.program(example("watch_and_approve"));
    command
        .arg(server.link(&ann, Some("owl")))
        .stdin(std::process::Stdio::piped());
    let mut watching = Going::start(&mut command);
    let me = format!("watching as {}", ann.participant);
    assert_eq!(watching.line().await, me);

    agent.propose("make all").await;
    watching.line_with("make all").await;
    watching.line_with("y to approve").await;
    watching.type_line("y").await;
    assert_eq!(watching.line().await, "counted");
    let granted = agent.wait_for("tool.execute").await;
    assert_eq!(granted["payload"]["approved_by"], json!([ann.participant]));

    agent.propose("rm -rf build").await;
    watching.line_with("rm -rf build").await;
    watching.line_with("y to approve").await;
    watching.type_line("we still need it").await;
    assert_eq!(watching.line().await, "counted");
    let rejected = agent
        .wait(|message| message["payload"]["outcome"] == "rejected")
        .await;
    assert_eq!(rejected["payload"]["reason"], "we still need it");

    // Somebody else may be faster.
    let proposal = agent.propose("make install").await;
    watching.line_with("y to approve").await;
    let bob = server.invite("bob", &["approver"], &[]);
    let bob = Desk::with(&server.link(&bob, None)).await;
    bob.good(&["approve", &proposal]).await;
    watching.line_with("decided already").await;
    watching.end_input();
    agent.propose("make clean").await;
    let ended = watching.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    tells(
        &account(&server).await,
        &[
            "proposed [write] \"make all\"",
            &format!("{}: approved", ann.participant),
            "granted",
            "proposed [destructive]",
            &format!("{}: rejected", ann.participant),
            ": we still need it",
            "was rejected",
            "proposed [write] \"make clean\"",
        ],
    );
}

#[tokio::test]
async fn the_shell_tool_reads_writes_streams_is_refused_and_is_not_even_sent() {
    let server = Server::start(&[]).await;
    server
        .create("owl", json!({ "gate_timeout_seconds": 0 }))
        .await;
    let ann = server.invite("ann", &["approver"], &[]);
    let mut ann = server.join("owl", &ann).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let desk = Desk::new();
    let mut command = desk.program(example("shell_tool_demo"));
    command.arg(server.link(&bot, Some("owl")));
    let mut tool = Going::start(&mut command);

    tool.line_with("$ ls -la").await;
    tool.line_with("  read: ").await;
    tool.line_with("  ended: exit Some(0)").await;
    tool.line_with("$ echo 'buy milk' > shopping-list.txt")
        .await;
    let gate = ann.wait_for("gate.request").await;
    tool.line_with("  waits for one approval").await;
    ann.approve(gate["id"].as_str().unwrap()).await;
    for tick in ["  | tick 1", "  | tick 2", "  | tick 3"] {
        tool.line_with(tick).await;
    }
    tool.line_with("  ended: exit Some(0)").await;
    assert!(desk.here().join("shopping-list.txt").exists());
    tool.line_with("$ rm -rf shopping-list.txt").await;
    tool.line_with("  destructive: ").await;
    let gate = ann.wait_for("gate.request").await;
    let no =
        json!({ "gate": gate["id"], "rejector": ann.participant, "reason": "we are out of milk" });
    ann.say("gate.reject", no).await;
    tool.line_with("  not run: Rejected we are out of milk")
        .await;
    tool.line_with("$ rm -rf /").await;
    tool.line_with("  not even sent: ").await;
    let ended = tool.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    assert!(desk.here().join("shopping-list.txt").exists());
    let account = account(&server).await;
    assert!(!account.contains("\"rm -rf /\""), "{account}");
}
