//! Whatever others write, the terminal gets text: no escapes, no hidden characters, and no lines
//! that look like the program's own.

use serde_json::json;

use super::gates::{handle, only};
use super::past::finish;
use crate::kit::Server;
use crate::kit::desk::Desk;

/// Clears the screen, sets the title, turns the direction, hides, and begins a line.
const EVIL: &str =
    "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}\u{61c}\r\u{8}";

/// Nothing but text, of at most this many lines.
fn plain(what: &str, text: &str) {
    let bad = |c: &char| {
        (c.is_control() && *c != '\n')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{61c}')
    };
    assert_eq!(text.chars().find(bad), None, "{what}: {text:?}");
    assert!(!text.is_empty(), "{what} prints something");
}

#[tokio::test]
async fn nothing_that_others_write_reaches_the_terminal_as_anything_but_text() {
    let server = Server::start(&[]).await;
    let config = json!({ "gate_timeout_seconds": 0 });
    let mut agent = server.with_agent("owl", config).await;
    let who = server.admin();
    let mut admin = server.join("owl", &who).await;
    let command = format!("make {EVIL} all");
    let printed = [("stdout", EVIL), ("stderr", EVIL)];
    let run = finish(&mut agent, &mut admin, &command, &printed, 0).await;
    let failing = agent.propose(&command).await;
    admin.approve(&failing).await;
    let result =
        json!({ "tool_proposal": failing, "success": false, "error": EVIL, "duration_ms": 1 });
    agent
        .wait(|m| m["type"] == "tool.execute" && m["payload"]["tool_proposal"] == failing.as_str())
        .await;
    agent.say("tool.result", result).await;
    let context = json!({ "key": "notes", "content_type": "text", "content": EVIL });
    admin.say("context.add", context).await;
    let prompt = json!({ "content": EVIL, "target_agent": agent.participant, "contributors": [admin.participant], "context_keys": [] });
    admin.say("prompt.submit", prompt).await;
    let mut proposal = agent.proposal(&command);
    proposal["description"] = EVIL.into();
    proposal["arguments"]["cwd"] = format!("/srv/{EVIL}").into();
    proposal["arguments"]["env"] = json!({ "A": EVIL });
    let asked = agent.send("tool.propose", proposal).await;
    agent.acked(&asked).await;

    let desk = Desk::with(&server.link(&who, Some("owl"))).await;
    let gate = handle(&only(&desk).await);
    for command in [
        &["gates"][..],
        &["show", &gate],
        &["tail"],
        &["history"],
        &["output", &run],
        &["sessions"],
        &["reject", &gate, EVIL],
        &["show", &asked],
        &["tail"],
        &["create", "cat", "--name", "\u{202e}\u{200b}\u{feff}\u{61c}"],
        &["sessions"],
    ] {
        plain(&format!("{command:?}"), &desk.good(command).await);
    }
    let shown = desk.good(&["history"]).await;
    assert!(shown.contains(r"make \u{1b}[2J\u{1b}]0;x\u{7}"), "{shown}");
    let data = server.data.to_str().unwrap();
    plain(
        "audit",
        &desk
            .good(&["audit", "show", "--data", data, "--session", "owl"])
            .await,
    );
    // A complaint may quote others too.
    let said = desk.refused(&["show", &format!("{EVIL}abcd")]).await;
    plain("complaint", &said);
}

#[tokio::test]
async fn a_command_of_several_lines_cannot_pass_for_more_than_one() {
    let server = Server::start(&[]).await;
    let config = json!({ "gate_timeout_seconds": 0 });
    let mut agent = server.with_agent("owl", config).await;
    let fake = "true\nabcdef@123456  owl  read         0/1  no end  ls";
    let mut proposal = agent.proposal(fake);
    proposal["description"] = "tidy\nverdict   read, safe risk".into();
    let asked = agent.send("tool.propose", proposal).await;
    agent.acked(&asked).await;
    let ann = server.invite("ann", &["approver"], &[]);
    let desk = Desk::with(&server.link(&ann, Some("owl"))).await;
    let gate = handle(&only(&desk).await);
    let list = desk.good(&["gates"]).await;
    assert_eq!(list.lines().count(), 1, "{list}");
    assert!(list.starts_with(&gate), "{list}");
    let history = desk.good(&["history"]).await;
    assert_eq!(history.lines().count(), 1, "{history}");
    // The whole card shows every line of it, each marked as the command's.
    let card = desk.good(&["show", &gate]).await;
    let rows: Vec<_> = card.lines().collect();
    assert_eq!(
        rows[..3],
        [
            "true",
            "> abcdef@123456  owl  read         0/1  no end  ls",
            ""
        ]
    );
    let verdicts = rows.iter().filter(|row| row.starts_with("verdict"));
    assert_eq!(verdicts.count(), 1, "{card}");
    let tail = desk.good(&["tail"]).await;
    assert_eq!(tail.lines().count(), server.entries("owl").len(), "{tail}");
}
