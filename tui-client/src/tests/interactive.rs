//! Tests of interactive commands: their screens, and the keys that they get.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::app::{AppInput, MainContent};
use crate::harness::AppHarness;

/// Starts an interactive command with this driver; returns its id.
fn start_interactive_command(harness: &mut AppHarness, driver: &str) -> String {
    let propose = json!({
        "tool_name": "shell", "arguments": { "full_command": "vi list", "mode": "pty", "driver": driver },
        "agent": "bot", "risk_level": "safe", "description": "", "requires_approval": true,
        "category": "shell_execute", "assessment": AppHarness::assessment("vi list", "write"),
    });
    let id = harness.deliver("bot", "tool.propose", propose);
    harness.execute(
        &id,
        "vi list",
        "quorum",
        json!({ "mode": "pty", "driver": driver }),
    );
    harness.output(
        &id,
        "stdout",
        "\u{1b}[2J\u{1b}[1;1Hmilk\r\neggs\u{1b}]0;evil\u{7}\u{1b}[5;3H~",
    );
    id
}

fn payloads(harness: &AppHarness) -> Vec<Value> {
    harness
        .sent_messages()
        .iter()
        .map(|it| it["payload"].clone())
        .collect()
}

#[test]
fn the_driver_types_into_it_and_leaves_with_one_key() {
    let mut harness = AppHarness::new(80, 24);
    let id = start_interactive_command(&mut harness, "ann");
    assert!(harness.draw().contains("/open shows it"));
    harness.type_text("/open");
    harness.press(&["enter"]);
    harness.advance_clock(10_000);
    assert_snapshot!(harness.draw());
    harness.type_text("ia");
    harness.press(&["tab", "ctrl+c", "esc"]);
    harness.input(AppInput::Paste("two\nlines".to_owned()));
    let resize = json!({ "tool_proposal": id, "resize": { "columns": 78, "rows": 16 } });
    let typed = ["i", "a", "\t", "\u{3}", "\u{1b}", "two\rlines"];
    let typed = typed.map(|data| json!({ "tool_proposal": id, "data": data }));
    let mut expected = vec![resize];
    expected.extend(typed);
    assert_eq!(payloads(&harness), expected);
    harness.press(&["ctrl+]"]);
    assert_eq!(harness.app.main, MainContent::Stream);
}

#[test]
fn others_watch_the_same_screen_and_their_keys_go_nowhere() {
    let mut harness = AppHarness::new(80, 24);
    let id = start_interactive_command(&mut harness, "bob");
    harness.deliver(
        "bob",
        "tool.input",
        json!({ "tool_proposal": id, "resize": { "columns": 20, "rows": 5 } }),
    );
    harness.output(&id, "stdout", "\u{1b}[1;1Hbread");
    harness.press(&["esc", "up", "enter"]);
    assert!(harness.draw().contains("bread"), "{}", harness.draw());
    harness.type_text("ia");
    assert_eq!(payloads(&harness), [Value::Null; 0]);
    harness.press(&["esc"]);
    assert_eq!(harness.app.main, MainContent::Stream);
}

#[test]
fn a_gate_that_arrives_while_the_driver_types_takes_no_key() {
    let mut harness = AppHarness::new(80, 24);
    start_interactive_command(&mut harness, "ann");
    harness.press(&["esc", "up", "enter"]);
    harness.open_gate("rm -rf build", "destructive");
    harness.type_text("aA");
    let kinds: Vec<_> = harness
        .sent_messages()
        .iter()
        .map(|it| it["type"].clone())
        .collect();
    assert!(kinds.iter().all(|kind| kind == "tool.input"), "{kinds:?}");
}

#[test]
fn the_pty_size_is_sent_when_it_changes_and_only_then() {
    let mut harness = AppHarness::new(80, 24);
    start_interactive_command(&mut harness, "ann");
    harness.press(&["esc", "up", "enter"]);
    harness.advance_clock(500);
    harness.input(AppInput::Resize(ratatui::layout::Size::new(100, 30)));
    harness.advance_clock(500);
    // A card takes some of the rows.
    harness.open_gate("make", "write");
    harness.advance_clock(500);
    let rows: Vec<_> = payloads(&harness)
        .iter()
        .map(|it| it["resize"]["rows"].clone())
        .collect();
    assert_eq!(rows, [16, 22, 15]);
}
