//! The cards of tools other than the shell.

use insta::assert_snapshot;
use pvp_protocol::Digest;
use ratatui::style::Color;
use serde_json::{Value, json};

use crate::config::TuiConfig;
use crate::harness::AppHarness;
use crate::theme::Palette;

/// Opens the gate of a tool call.
fn open_call(
    harness: &mut AppHarness,
    tool: &str,
    arguments: Value,
    contents: Value,
) -> (String, String) {
    let command = format!("{tool} {arguments}");
    let mut propose = AppHarness::proposal_payload(&command, "write");
    propose["tool_name"] = tool.into();
    propose["arguments"] = arguments;
    propose["category"] = "file_write".into();
    propose["file_contents"] = contents;
    harness.open_gate_for(propose, &command, "write")
}

fn edit() -> Value {
    json!({
        "path": "src/main.rs",
        "old_text": "fn main() {\n    println!(\"eggs\");\n}\n",
        "new_text": "fn main() {\n    println!(\"milk\");\n    println!(\"eggs\");\n}\n",
    })
}

fn long_write() -> Value {
    let lines: String = (1..=60).map(|line| format!("line {line}\n")).collect();
    json!({ "path": "notes.txt", "content": lines, "files": [{ "path": "notes.txt" }] })
}

fn bound_write() -> (Value, Value) {
    let old = "milk\nbread\n";
    let sha256 = Digest::of_content(old.as_bytes());
    let arguments = json!({
        "path": "notes.txt", "content": "milk\neggs  \n", "diff": "-bread\n+butter",
        "files": [{ "path": "notes.txt", "sha256": sha256, "bytes": old.len() }],
    });
    (arguments, json!([{ "path": "notes.txt", "text": old }]))
}

/// Opens the gate of a command that a client runs itself.
fn open_client_call(harness: &mut AppHarness, degree: &str, origin: Value) {
    let mut propose = AppHarness::proposal_payload("make", "write");
    propose["runs"] = "client".into();
    propose["degree"] = degree.into();
    propose["origin"] = origin;
    harness.open_gate_for(propose, "make", "write");
    harness.press(&["tab"]);
}

#[test]
fn a_call_that_a_client_runs_says_how_sure_it_is_and_whether_it_fails_open() {
    let mut harness = AppHarness::new(140, 45);
    let origin = json!({ "client": "codex", "version": "0.166.0", "subagent": "tester" });
    open_client_call(&mut harness, "held", origin);
    let held = harness.draw();
    let said = "degree   held (codex 0.166.0, subagent tester): the client runs it; it could not start unasked";
    assert!(held.contains(said), "{held}");
    assert!(!held.contains("fails "), "{held}");

    let mut harness = AppHarness::new(140, 45);
    let origin = json!({ "client": "claude", "version": "2.1.200", "fails_open": true });
    open_client_call(&mut harness, "hooked", origin);
    let hooked = harness.draw();
    for said in [
        "degree   hooked (claude 2.1.200): the client asked; what it runs is the client's own word",
        "fails    open: if what asks PVP crashes, this client runs the call unasked",
    ] {
        assert!(hooked.contains(said), "{hooked}");
    }
}

#[test]
fn a_call_that_our_executor_runs_says_so_and_names_the_client_that_made_it() {
    let mut harness = AppHarness::new(140, 45);
    let propose = AppHarness::proposal_payload("make", "write");
    harness.open_gate_for(propose, "make", "write");
    let executed = harness.draw();
    let said = "degree   executed: PVP's executor runs exactly this";
    assert!(executed.contains(said), "{executed}");

    let mut harness = AppHarness::new(140, 45);
    let mut propose = AppHarness::proposal_payload("make", "write");
    propose["origin"] = json!({ "client": "cursor\u{202e}", "version": "1.9\n" });
    harness.open_gate_for(propose, "make", "write");
    let executed = harness.draw();
    let said = r"degree   executed (cursor\u{202e} 1.9 ⏎ ): PVP's executor runs exactly this";
    assert!(executed.contains(said), "{executed}");
    assert!(
        executed.contains("runs     executed with bash"),
        "{executed}"
    );
}

#[test]
fn an_edit_of_a_file() {
    let mut harness = AppHarness::new(80, 24);
    open_call(&mut harness, "file_edit", edit(), json!([]));
    harness.press(&["tab"]);
    assert_snapshot!(harness.draw());
}

#[test]
fn a_long_write_is_folded() {
    let mut harness = AppHarness::new(80, 24);
    open_call(&mut harness, "file_write", long_write(), json!([]));
    harness.press(&["tab"]);
    assert_snapshot!(harness.draw());
}

#[test]
fn a_bound_write_on_a_wide_screen() {
    let mut harness = AppHarness::new(140, 45);
    let (arguments, contents) = bound_write();
    open_call(&mut harness, "file_write", arguments, contents);
    harness.press(&["tab"]);
    assert_snapshot!(harness.draw());
}

#[test]
fn an_mcp_call_with_nested_and_hostile_arguments() {
    let mut harness = AppHarness::new(80, 40);
    let arguments = json!({
        "title": "It \u{202e}breaks", "labels": ["bug", "p1"], "body": "one\n+ two\u{1b}[2K\n",
        "meta": { "assignee": null, "draft": false, "votes \u{200b}": "¥" }, "+fake": "-fake",
    });
    open_call(
        &mut harness,
        "mcp__github__create_issue",
        arguments,
        json!([]),
    );
    harness.press(&["tab", "x"]);
    assert_snapshot!(harness.draw());
}

#[test]
fn a_folded_call_is_approved_only_after_it_was_read_to_its_end() {
    let mut harness = AppHarness::new(80, 24);
    open_call(&mut harness, "file_write", long_write(), json!([]));
    harness.press(&["tab", "space", "space", "a"]);
    assert_eq!(harness.sent_messages(), Vec::<Value>::new());
    assert!(harness.draw().contains("read all of it first (x)"));
    harness.press(&["x", "pagedown", "esc", "ctrl+g", "a"]);
    assert_eq!(
        harness.sent_messages(),
        Vec::<Value>::new(),
        "the end was not visible"
    );
    harness.press(&["x"]);
    for _ in 0..20 {
        harness.press(&["pagedown"]);
    }
    harness.press(&["esc", "ctrl+g", "a"]);
    let sent = harness.sent_messages();
    assert_eq!(sent.len(), 1, "{}", harness.draw());
    assert_eq!(sent[0]["type"], "gate.approve");
}

#[test]
fn a_call_that_fits_is_approved_on_its_card() {
    let mut harness = AppHarness::new(80, 24);
    open_call(
        &mut harness,
        "deploy",
        json!({ "to": "staging" }),
        json!([]),
    );
    harness.press(&["tab", "a"]);
    assert_eq!(harness.sent_messages().len(), 1);
}

#[test]
fn a_call_too_large_to_show_cannot_be_approved() {
    let mut harness = AppHarness::new(80, 24);
    let content = "x\n".repeat(300_000);
    let arguments = json!({ "path": "a", "content": content });
    open_call(&mut harness, "file_write", arguments, json!([]));
    harness.press(&["tab", "x", "end", "esc", "ctrl+g", "a"]);
    assert_eq!(harness.sent_messages(), Vec::<Value>::new());
    assert!(harness.draw().contains("too long to be shown in full"));
}

/// The colours of the first cell of every row that begins with this mark, below the gutter.
fn colours(harness: &mut AppHarness, mark: &str) -> Vec<Color> {
    let buffer = harness.buffer();
    let rows = buffer.area.top()..buffer.area.bottom();
    let cell = |y| buffer.cell((4, y)).filter(|cell| cell.symbol() == mark);
    rows.filter_map(cell).map(|cell| cell.fg).collect()
}

#[test]
fn only_the_computed_change_is_coloured() {
    let mut harness = AppHarness::new(140, 45);
    let (arguments, contents) = bound_write();
    open_call(&mut harness, "file_write", arguments, contents);
    harness.press(&["tab"]);
    let text = harness.draw();
    assert!(text.contains("┃ +eggs··"), "{text}");
    assert!(text.contains("┃ │ +butter"), "{text}");
    assert_eq!(colours(&mut harness, "+"), [Color::Green]);
    assert_eq!(colours(&mut harness, "-"), [Color::Red]);
    let stated = colours(&mut harness, "│");
    assert_eq!(stated, [Color::Reset, Color::Reset]);
}

#[test]
fn without_colours_the_marks_are_there() {
    let config = TuiConfig {
        palette: Palette::None,
        ..TuiConfig::default()
    };
    let mut harness = AppHarness::with_config(config, 80, 40);
    open_call(&mut harness, "file_edit", edit(), json!([]));
    harness.press(&["tab"]);
    assert_eq!(colours(&mut harness, "+"), [Color::Reset]);
    assert!(harness.draw().contains("+    println!(\"milk\");"));
}

#[test]
fn no_wrapped_row_passes_for_a_line_of_the_diff() {
    let mut harness = AppHarness::new(80, 40);
    // The card has room for 74 columns, of which the mark of the line takes one.
    let long = format!("{}+forged", "x".repeat(73));
    let arguments =
        json!({ "path": "a", "old_text": format!("{long}\nx"), "new_text": format!("{long}\ny") });
    open_call(&mut harness, "file_edit", arguments, json!([]));
    harness.press(&["tab"]);
    assert_eq!(
        colours(&mut harness, "+"),
        [Color::Green],
        "{}",
        harness.draw()
    );
}

#[test]
fn lists_and_the_stream_show_the_headline_and_the_call_stays_reachable() {
    let mut harness = AppHarness::new(100, 30);
    let (proposal, gate) = open_call(&mut harness, "file_edit", edit(), json!([]));
    open_call(
        &mut harness,
        "npm_install",
        json!({ "package": "left-pad" }),
        json!([]),
    );
    let text = harness.draw();
    assert!(text.contains("file_edit src/main.rs (+1 −0)"), "{text}");
    assert!(text.contains("npm install left-pad"), "{text}");
    assert!(
        !text.contains('{') || text.contains("fn main() {"),
        "{text}"
    );
    harness.resolve(&proposal, &gate, "rejected", "bob");
    harness.press(&["esc", "home", "enter"]);
    let page = harness.draw();
    assert!(page.contains("+    println!(\"milk\");"), "{page}");
    assert!(page.contains("The call as it was sent"), "{page}");
}
