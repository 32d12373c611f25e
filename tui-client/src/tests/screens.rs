//! Snapshot tests of every screen, as text.

use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::json;

use crate::app::{AppInput, NoticeLevel};
use crate::config::TuiConfig;
use crate::harness::AppHarness;
use crate::text::escape_invisible;
use crate::theme::Palette;

/// Fills a session with events of many kinds.
fn fill_session(harness: &mut AppHarness) {
    let prompt = json!({
        "content": "Please tidy the shop.\nBut keep the eggs.", "target_agent": "bot",
        "contributors": ["ann"], "context_keys": [],
    });
    let prompt = harness.deliver("ann", "prompt.submit", prompt);
    let thinking = json!({ "agent": "bot", "prompt_ref": prompt, "visible_to": "all" });
    harness.deliver("bot", "thinking.start", thinking);
    harness.deliver(
        "bot",
        "thinking.chunk",
        json!({ "text": "What is there?\nLet me look." }),
    );
    harness.deliver(
        "bot",
        "thinking.end",
        json!({ "summary": "looks first", "duration_ms": 2100 }),
    );
    let ls = harness.propose("ls -la", "read");
    harness.execute(&ls, "ls -la", "read", json!({}));
    harness.output(&ls, "stdout", "total 2\n\u{1b}[34meggs\u{1b}[0m\nmilk\n");
    harness.output(&ls, "stderr", "ls: cannot open 'attic'\n");
    harness.finish_run(&ls, 1);
    harness.deliver(
        "bot",
        "response.start",
        json!({ "agent": "bot", "prompt_ref": prompt }),
    );
    let answer = "# Found\n- **eggs**, which stay\n- `milk`, which goes";
    harness.deliver("bot", "response.chunk", json!({ "text": answer }));
    harness.deliver(
        "bot",
        "response.end",
        json!({ "finish_reason": "complete" }),
    );
    let seq = harness.propose("seq 1 1000", "read");
    harness.execute(&seq, "seq 1 1000", "read", json!({}));
    let numbers: String = (1..=1000).map(|number| format!("{number}\n")).collect();
    harness.output(&seq, "stdout", &numbers);
}

fn open_five_gates(harness: &mut AppHarness) {
    for (command, category) in [
        ("npm install", "write"),
        ("git commit -m 'tidy'", "write"),
        ("rm -rf build", "destructive"),
        ("make deploy", "write"),
        ("kubectl delete pod shop-1", "destructive"),
    ] {
        harness.open_gate(command, category);
    }
}

#[test]
fn empty() {
    assert_snapshot!(AppHarness::before_welcome(TuiConfig::default(), 80, 24).draw());
}

#[test]
fn joined() {
    assert_snapshot!(AppHarness::new(80, 24).draw());
}

#[test]
fn a_busy_session() {
    let mut harness = AppHarness::new(80, 50);
    fill_session(&mut harness);
    harness.press(&["esc", "t"]);
    assert_snapshot!(harness.draw());
}

#[test]
fn one_gate() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("rm -rf build && make", "destructive");
    harness.advance_clock(12_000);
    assert_snapshot!(harness.draw());
}

#[test]
fn one_gate_with_the_focus_and_a_vote() {
    let mut harness = AppHarness::new(100, 30);
    let (proposal, gate) = harness.open_gate("npm install", "write");
    let vote = json!({ "gate": gate, "approver": "bob", "comment": "fine with me", "digest": AppHarness::digest("npm install") });
    harness.deliver("bob", "gate.approve", vote);
    harness.press(&["tab"]);
    assert!(!proposal.is_empty());
    assert_snapshot!(harness.draw());
}

#[test]
fn five_gates_with_one_open() {
    let mut harness = AppHarness::new(80, 24);
    open_five_gates(&mut harness);
    harness.press(&["tab", "down", "down"]);
    assert_snapshot!(harness.draw());
}

#[test]
fn a_gate_that_somebody_else_decided() {
    let mut harness = AppHarness::new(80, 24);
    let (proposal, gate) = harness.open_gate("rm -rf build", "destructive");
    harness.press(&["tab"]);
    harness.resolve(&proposal, &gate, "rejected", "bob");
    assert_snapshot!(harness.draw());
}

#[test]
fn rejecting() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("rm -rf build", "destructive");
    harness.press(&["tab", "r"]);
    harness.type_text("we need it");
    assert_snapshot!(harness.draw());
}

#[test]
fn editing() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("rm -rf build", "destructive");
    harness.press(&["tab", "e"]);
    harness.type_text("/cache");
    assert_snapshot!(harness.draw());
}

#[test]
fn allowing_a_prefix() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("npm run build --watch", "write");
    harness.press(&["tab", "P"]);
    assert_snapshot!(harness.draw());
}

#[test]
fn preflight() {
    let mut harness = AppHarness::new(80, 40);
    open_five_gates(&mut harness);
    harness.press(&["tab", "A", "down", "space"]);
    assert_snapshot!(harness.draw());
}

#[test]
fn explaining() {
    let mut harness = AppHarness::new(80, 40);
    harness.open_gate("rm -rf build", "destructive");
    harness.press(&["tab", "x"]);
    assert_snapshot!(harness.draw());
}

#[test]
fn help() {
    let mut harness = AppHarness::new(100, 50);
    harness.type_text("/help");
    harness.press(&["enter"]);
    assert_snapshot!(harness.draw());
}

#[test]
fn a_lost_connection() {
    let mut harness = AppHarness::new(80, 24);
    fill_session(&mut harness);
    harness.type_text("still typing");
    harness.input(AppInput::Disconnected {
        reason: "connection refused".to_owned(),
    });
    harness.advance_clock(12_000);
    assert_snapshot!(harness.draw());
}

#[test]
fn narrow_and_low() {
    let mut harness = AppHarness::new(40, 12);
    fill_session(&mut harness);
    open_five_gates(&mut harness);
    harness.press(&["tab"]);
    assert_snapshot!(harness.draw());
}

#[test]
fn wide_and_high() {
    let mut harness = AppHarness::new(160, 45);
    fill_session(&mut harness);
    open_five_gates(&mut harness);
    let draft = json!({ "content": "what about the milk?", "contributors": ["bob"] });
    harness.deliver_ephemeral("bob", "prompt.draft", draft);
    assert_snapshot!(harness.draw());
}

/// Text with control sequences and invisible characters.
pub(super) const HOSTILE: &str = "a\u{1b}]0;owned\u{7}b\u{1b}[2J\u{1b}]52;c;ZXZpbA==\u{7}c\u{202e}d\u{200b}e\u{9b}5nf\r\u{8}g\u{1b}Pq\u{1b}\\h";

#[test]
fn hostile_text_everywhere() {
    let mut harness = AppHarness::new(100, 45);
    harness.open_gate(&format!("echo {HOSTILE}"), "write");
    let run = harness.propose(HOSTILE, "read");
    harness.execute(&run, HOSTILE, "read", json!({}));
    harness.output(&run, "stdout", HOSTILE);
    harness.output(&run, "stderr", HOSTILE);
    let prompt = json!({ "content": HOSTILE, "target_agent": "bot", "contributors": ["bob"], "context_keys": [] });
    harness.deliver("bob", "prompt.submit", prompt);
    harness.deliver_ephemeral(
        "bob",
        "prompt.draft",
        json!({ "content": HOSTILE, "contributors": ["bob"] }),
    );
    harness.app.show_notice(NoticeLevel::Error, HOSTILE);
    assert_snapshot!(harness.draw());
}

#[test]
fn without_colours_no_cell_has_one() {
    let config = TuiConfig {
        palette: Palette::None,
        ..TuiConfig::default()
    };
    let mut harness = AppHarness::with_config(config, 100, 70);
    fill_session(&mut harness);
    open_five_gates(&mut harness);
    harness.press(&["tab"]);
    let reset = ratatui::style::Color::Reset;
    for cell in &harness.buffer().content {
        assert_eq!((cell.fg, cell.bg), (reset, reset), "{}", cell.symbol());
    }
    // Words and marks say what colour would say.
    let text = harness.draw();
    for mark in ["out│", "err│", "WRITE", "▶ Waiting 1 of 5"] {
        assert!(text.contains(mark), "{mark}\n{text}");
    }
}

#[test]
fn without_colours() {
    let config = TuiConfig {
        palette: Palette::None,
        ..TuiConfig::default()
    };
    let mut harness = AppHarness::with_config(config, 80, 30);
    fill_session(&mut harness);
    harness.open_gate("rm -rf build", "destructive");
    harness.press(&["tab"]);
    assert_snapshot!(harness.draw());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn at_any_size_with_any_text_the_screen_is_drawn_and_only_visible_characters_are_on_it(
        width in 1..120u16, height in 1..50u16, text in "(\\PC|[\u{0}-\u{9f}]|\u{1b}\\]0;|\u{202e}|\n){0,200}",
    ) {
        let mut harness = AppHarness::new(width, height);
        fill_session(&mut harness);
        open_five_gates(&mut harness);
        harness.open_gate(&format!("echo {text}"), "write");
        let run = harness.propose("x", "read");
        harness.execute(&run, "x", "read", json!({}));
        harness.output(&run, "stderr", &text);
        harness.input(AppInput::Paste(text.clone()));
        for keys in [&["tab"][..], &["up"], &["e"], &["esc", "A"], &["esc", "esc", "up", "enter"]] {
            harness.press(keys);
            for cell in &harness.buffer().content {
                prop_assert_eq!(escape_invisible(cell.symbol()), cell.symbol());
                prop_assert!(!cell.symbol().contains(['\n', '\t']));
            }
        }
    }
}
