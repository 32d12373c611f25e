//! Tests of small everyday behaviour that users rely on.

use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use serde_json::{Value, json};

use crate::app::{AppEffect, AppInput, Focus};
use crate::harness::AppHarness;

fn notice(harness: &AppHarness) -> Option<&str> {
    harness
        .app
        .notice
        .as_ref()
        .map(|notice| notice.text.as_str())
}

fn submit(harness: &mut AppHarness, text: &str) {
    harness.input(AppInput::Paste(text.to_owned()));
    harness.press(&["enter"]);
}

fn mouse(harness: &mut AppHarness, kind: MouseEventKind, row: u16) {
    let (column, modifiers) = (10, KeyModifiers::NONE);
    harness.draw();
    harness.input(AppInput::Mouse(MouseEvent {
        kind,
        column,
        row,
        modifiers,
    }));
}

#[test]
fn escape_closes_a_dialog_without_sending_anything() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("make", "write");
    for key in ["r", "e", "P", "i"] {
        harness.press(&["ctrl+g", key]);
        assert!(harness.app.dialog.is_some(), "{key}");
        harness.press(&["esc"]);
        assert_eq!(harness.app.dialog, None, "{key}");
        assert_eq!(harness.app.focus, Focus::Card, "{key}");
    }
    assert_eq!(harness.sent_messages(), [Value::Null; 0]);
}

#[test]
fn selecting_another_card_shows_it_from_its_beginning() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate(&format!("first {}", "word ".repeat(300)), "write");
    harness.open_gate(&format!("second {}", "word ".repeat(300)), "write");
    harness.press(&["ctrl+g", "space", "space"]);
    assert!(!harness.draw().contains("┃ first"));
    harness.press(&["down"]);
    assert!(harness.draw().contains("┃ second"), "{}", harness.draw());
}

#[test]
fn a_truncated_command_cannot_be_edited() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate(&"x".repeat(300 * 1024), "write");
    harness.press(&["ctrl+g", "e"]);
    assert_eq!(
        notice(&harness),
        Some("this command is too long to edit here")
    );
    assert_eq!(harness.app.dialog, None);
}

#[test]
fn pasted_line_endings_are_normalised() {
    let mut harness = AppHarness::new(80, 24);
    harness.input(AppInput::Paste("one\r\ntwo\rthree\nfour".to_owned()));
    assert_eq!(harness.app.composer.editor.text(), "one\ntwo\nthree\nfour");
}

#[test]
fn ctrl_c_clears_then_warns_then_quits() {
    let mut harness = AppHarness::new(80, 24);
    harness.type_text("draft");
    harness.press(&["ctrl+c"]);
    assert_eq!(
        (harness.app.composer.editor.text(), notice(&harness)),
        ("", None)
    );
    harness.press(&["ctrl+c"]);
    assert!(!harness.effects.contains(&AppEffect::Quit));
    assert_eq!(
        notice(&harness),
        Some("press again to quit; the session keeps running")
    );
    // Any other key in between cancels quitting.
    harness.press(&["left", "ctrl+c"]);
    assert!(!harness.effects.contains(&AppEffect::Quit));
    harness.press(&["ctrl+c"]);
    assert!(harness.effects.contains(&AppEffect::Quit));
}

/// Starts an interactive command that ann drives, and opens its screen.
fn open_driven_pty(harness: &mut AppHarness) -> String {
    let propose = json!({
        "tool_name": "shell", "arguments": { "full_command": "vi list", "mode": "pty", "driver": "ann" },
        "agent": "bot", "risk_level": "safe", "description": "", "requires_approval": true,
        "category": "shell_execute", "assessment": AppHarness::assessment("vi list", "write"),
    });
    let id = harness.deliver("bot", "tool.propose", propose);
    let more = json!({ "mode": "pty", "driver": "ann" });
    harness.execute(&id, "vi list", "quorum", more);
    submit(harness, "/open");
    id
}

#[test]
fn pasted_text_cannot_end_a_bracketed_paste() {
    let mut harness = AppHarness::new(80, 24);
    let id = open_driven_pty(&mut harness);
    harness.output(&id, "stdout", "\u{1b}[?2004h");
    harness.input(AppInput::Paste("one\u{1b}[201~:q!\n".to_owned()));
    let sent = harness.sent_messages();
    let data = &sent.last().unwrap()["payload"]["data"];
    assert_eq!(data, "\u{1b}[200~one[201~:q!\n\u{1b}[201~");
}

#[test]
fn redelivered_output_is_not_drawn_twice() {
    let mut harness = AppHarness::new(80, 24);
    let id = open_driven_pty(&mut harness);
    let output =
        json!({ "tool_proposal": id, "stream": "stdout", "text": "milk ", "complete": false });
    harness.deliver("bot", "tool.output", output.clone());
    harness.deliver_again("bot", "tool.output", output);
    let shown = harness.draw();
    assert_eq!(shown.matches("milk").count(), 1, "{shown}");
}

#[test]
fn a_click_does_not_take_the_focus_from_a_dialog() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("make", "write");
    harness.press(&["ctrl+g", "r"]);
    mouse(&mut harness, MouseEventKind::Down(MouseButton::Left), 3);
    assert_eq!(harness.app.focus, Focus::Card);
    harness.type_text("no");
    let reason = harness.app.dialog.as_ref().unwrap().editor();
    assert_eq!(reason.text(), "no");
}

#[test]
fn the_wheel_scrolls_the_card_under_the_pointer() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate(&format!("first {}", "word ".repeat(300)), "write");
    assert!(harness.draw().contains("┃ first"));
    mouse(&mut harness, MouseEventKind::ScrollDown, 15);
    assert!(!harness.draw().contains("┃ first"));
    mouse(&mut harness, MouseEventKind::ScrollUp, 15);
    assert!(harness.draw().contains("┃ first"));
}

#[test]
fn cancel_without_a_number_means_the_latest_command() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("make one", "write");
    let (second, _) = harness.open_gate("make two", "write");
    submit(&mut harness, "/cancel");
    let cancelled = harness.sent_messages().pop().unwrap();
    assert_eq!(cancelled["payload"]["tool_proposal"], second);
}

#[test]
fn every_urgency_of_an_interrupt_is_sent() {
    for urgency in ["pause", "stop", "emergency"] {
        let mut harness = AppHarness::new(80, 24);
        submit(&mut harness, &format!("/interrupt {urgency} now"));
        let payload = json!({ "urgency": urgency, "message": "now" });
        assert_eq!(
            harness.sent_messages(),
            [json!({ "type": "interrupt.raise", "payload": payload })]
        );
    }
    let mut harness = AppHarness::new(80, 24);
    for (tabs, urgency) in [(0, "pause"), (1, "stop"), (2, "emergency"), (3, "pause")] {
        harness.press(&["ctrl+u", "esc", "i"]);
        (0..tabs).for_each(|_| harness.press(&["tab"]));
        harness.press(&["enter", "esc"]);
        let sent = harness.sent_messages().pop().unwrap();
        assert_eq!(sent["payload"]["urgency"], urgency);
    }
}

#[test]
fn revoke_takes_the_number_that_the_rules_page_shows() {
    let mut harness = AppHarness::new(80, 24);
    let allow = |harness: &mut AppHarness, word: &str| {
        let expires_at = harness.now.plus_seconds(600);
        let rule = json!({ "prefix": [word], "expires_at": expires_at });
        harness.deliver("bob", "policy.allow", rule)
    };
    let first = allow(&mut harness, "npm");
    allow(&mut harness, "make");
    submit(&mut harness, "/rules");
    let shown = harness.draw();
    assert!(
        shown.contains("1    npm …   in the agent's directory, expires in"),
        "{shown}"
    );
    harness.press(&["q"]);
    submit(&mut harness, "/revoke 1");
    let revoked = harness.sent_messages().pop().unwrap();
    assert_eq!(revoked["payload"]["rule"], first);
}

/// Runs a command to its end; returns its id.
fn run_to_completion(harness: &mut AppHarness, command: &str) -> String {
    let id = harness.propose(command, "read");
    harness.execute(&id, command, "read", json!({}));
    harness.output(&id, "stdout", "x\n");
    harness.finish_run(&id, 0);
    id
}

#[test]
fn history_numbers_count_from_the_newest() {
    let mut harness = AppHarness::new(80, 24);
    run_to_completion(&mut harness, "ls one");
    let newest = run_to_completion(&mut harness, "ls two");
    submit(&mut harness, "/history");
    let shown = harness.draw();
    assert!(
        shown.contains("│1     12:00:00 m5     read        ls two"),
        "{shown}"
    );
    harness.press(&["q"]);
    submit(&mut harness, "/output 1");
    let is_it = |effect: &AppEffect| matches!(effect, AppEffect::FetchOutput { reference, .. } if reference.as_str() == newest);
    assert!(harness.effects.iter().any(is_it), "{:?}", harness.effects);
}

#[test]
fn dropped_shell_results_are_not_sent() {
    let mut harness = AppHarness::new(80, 24);
    submit(&mut harness, "!ls");
    let exec = json!({ "command": "ls", "executor": "bot" });
    let exec = harness.deliver("ann", "shell.exec", exec);
    harness.reply_to_last(Ok(&exec));
    let login = json!({ "command": { "form": "login_shell", "line": "ls" } });
    harness.execute(&exec, "ls", "direct", login);
    harness.finish_run(&exec, 0);
    assert!(harness.draw().contains("with your next message"));
    submit(&mut harness, "/drop");
    assert!(!harness.draw().contains("with your next message"));
    submit(&mut harness, "hello");
    let sent = harness.sent_messages().pop().unwrap();
    assert_eq!(sent["payload"]["content"], "hello");
}

#[test]
fn a_notice_disappears_after_a_while() {
    let mut harness = AppHarness::new(80, 24);
    submit(&mut harness, "/nonsense");
    harness.advance_clock(8_000);
    assert!(notice(&harness).is_some());
    harness.advance_clock(1);
    assert_eq!(notice(&harness), None);
}

#[test]
fn a_tick_redraws_only_if_something_changes_with_time() {
    let mut harness = AppHarness::new(80, 24);
    assert!(!harness.app.changes_with_time(), "nothing counts");
    let (proposal, gate) = harness.open_gate("make", "write");
    assert!(harness.app.changes_with_time(), "a deadline counts down");
    harness.resolve(&proposal, &gate, "approved", "bob");
    harness.execute(&proposal, "make", "quorum", json!({}));
    assert!(harness.app.changes_with_time(), "a command runs");
    harness.finish_run(&proposal, 0);
    assert!(!harness.app.changes_with_time(), "it is over");
    harness.input(AppInput::Disconnected {
        reason: "gone".to_owned(),
    });
    assert!(harness.app.changes_with_time(), "the connection is away");
}

#[test]
fn a_command_is_approved_if_and_only_if_its_last_row_was_on_the_screen() {
    let mut outcomes = std::collections::BTreeSet::new();
    for lines in 1..25 {
        let mut harness = AppHarness::new(80, 24);
        harness.open_gate(&format!("{}the-end", "make\n".repeat(lines)), "write");
        harness.press(&["ctrl+g"]);
        let seen = harness.draw().contains("┃ the-end");
        harness.press(&["a"]);
        assert_eq!(
            harness.sent_messages().len(),
            usize::from(seen),
            "{lines} lines"
        );
        outcomes.insert(seen);
    }
    assert_eq!(outcomes.len(), 2, "some fit and some do not");
}
