//! Text from others reaches the terminal as plain text: no escapes, no hidden characters, and no
//! lines that look like the program's own.

use serde_json::json;

use super::gates::{gate_handle, only_open_gate};
use super::history::run_approved;
use crate::support::TestServer;
use crate::support::cli::CliEnv;

/// Clears the screen, sets the title, reverses the text direction, hides text, and starts a new
/// line.
const HOSTILE_TEXT: &str =
    "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}\u{61c}\r\u{8}";

/// Asserts that a text has no control or invisible characters.
fn assert_plain_text(what: &str, text: &str) {
    let bad = |c: &char| {
        (c.is_control() && *c != '\n')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{61c}')
    };
    assert_eq!(text.chars().find(bad), None, "{what}: {text:?}");
    assert!(!text.is_empty(), "{what} prints something");
}

#[tokio::test]
async fn nothing_that_others_write_reaches_the_terminal_as_anything_but_text() {
    let server = TestServer::start(&[]).await;
    let config = json!({ "gate_timeout_seconds": 0 });
    let mut agent = server.create_session_with_agent("owl", config).await;
    let user = server.admin();
    let mut admin = server.join("owl", &user).await;
    let command = format!("make {HOSTILE_TEXT} all");
    let printed = [("stdout", HOSTILE_TEXT), ("stderr", HOSTILE_TEXT)];
    let run = run_approved(&mut agent, &mut admin, &command, &printed, 0).await;
    let failing = agent.propose(&command).await;
    admin.approve(&failing).await;
    let result = json!({ "tool_proposal": failing, "success": false, "error": HOSTILE_TEXT, "duration_ms": 1 });
    agent
        .wait(|m| m["type"] == "tool.execute" && m["payload"]["tool_proposal"] == failing.as_str())
        .await;
    agent.send_and_ack("tool.result", result).await;
    let context = json!({ "key": "notes", "content_type": "text", "content": HOSTILE_TEXT });
    admin.send_and_ack("context.add", context).await;
    let prompt = json!({ "content": HOSTILE_TEXT, "target_agent": agent.participant, "contributors": [admin.participant], "context_keys": [] });
    admin.send_and_ack("prompt.submit", prompt).await;
    let mut proposal = agent.proposal(&command);
    proposal["description"] = HOSTILE_TEXT.into();
    proposal["arguments"]["cwd"] = format!("/srv/{HOSTILE_TEXT}").into();
    proposal["arguments"]["env"] = json!({ "A": HOSTILE_TEXT });
    let proposal_id = agent.send("tool.propose", proposal).await;
    agent.expect_ack(&proposal_id).await;

    let cli = CliEnv::logged_in(&server.link(&user, Some("owl"))).await;
    let gate = gate_handle(&only_open_gate(&cli).await);
    for command in [
        &["gates"][..],
        &["show", &gate],
        &["tail"],
        &["history"],
        &["output", &run],
        &["sessions"],
        &["reject", &gate, HOSTILE_TEXT],
        &["show", &proposal_id],
        &["tail"],
        &["create", "cat", "--name", "\u{202e}\u{200b}\u{feff}\u{61c}"],
        &["sessions"],
    ] {
        assert_plain_text(&format!("{command:?}"), &cli.run_ok(command).await);
    }
    let shown = cli.run_ok(&["history"]).await;
    assert!(shown.contains(r"make \u{1b}[2J\u{1b}]0;x\u{7}"), "{shown}");
    let data = server.data.to_str().unwrap();
    assert_plain_text(
        "audit",
        &cli.run_ok(&["audit", "show", "--data", data, "--session", "owl"])
            .await,
    );
    // An error may quote others too.
    let wait_for_response = cli
        .run_refused(&["show", &format!("{HOSTILE_TEXT}abcd")])
        .await;
    assert_plain_text("complaint", &wait_for_response);
}

#[tokio::test]
async fn a_command_of_several_lines_cannot_pass_for_more_than_one() {
    let server = TestServer::start(&[]).await;
    let config = json!({ "gate_timeout_seconds": 0 });
    let mut agent = server.create_session_with_agent("owl", config).await;
    let fake = "true\nabcdef@123456  owl  read         0/1        -  ls";
    let mut proposal = agent.proposal(fake);
    proposal["description"] = "tidy\nverdict   read, safe risk".into();
    let proposal_id = agent.send("tool.propose", proposal).await;
    agent.expect_ack(&proposal_id).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, Some("owl"))).await;
    let gate = gate_handle(&only_open_gate(&cli).await);
    let list = cli.run_ok(&["gates"]).await;
    assert_eq!(list.lines().count(), 1, "{list}");
    assert!(list.starts_with(&gate), "{list}");
    let history = cli.run_ok(&["history"]).await;
    assert_eq!(history.lines().count(), 1, "{history}");
    // The whole card shows every line of it, each marked as part of the command.
    let card = cli.run_ok(&["show", &gate]).await;
    let rows: Vec<_> = card.lines().collect();
    assert_eq!(
        rows[..3],
        [
            "true",
            "> abcdef@123456  owl  read         0/1        -  ls",
            ""
        ]
    );
    let verdicts = rows.iter().filter(|row| row.starts_with("verdict"));
    assert_eq!(verdicts.count(), 1, "{card}");
    let tail = cli.run_ok(&["tail"]).await;
    assert_eq!(tail.lines().count(), server.entries("owl").len(), "{tail}");
}
