//! Tests of reading: following, scrolling, searching, copying and the pager.

use insta::assert_snapshot;
use pvp_protocol::MessageId;
use pvp_protocol::payload::{OutputLine, OutputPage, OutputStream};
use serde_json::json;

use crate::app::{AppEffect, AppInput};
use crate::harness::AppHarness;

fn deliver_prompt(harness: &mut AppHarness, text: &str) {
    let prompt = json!({ "content": text, "target_agent": "bot", "contributors": ["bob"], "context_keys": [] });
    harness.deliver("bob", "prompt.submit", prompt);
}

fn deliver_numbered_prompts(harness: &mut AppHarness, count: usize) {
    for number in 1..=count {
        deliver_prompt(harness, &format!("message <{number}>"));
    }
}

#[test]
fn the_newest_item_is_followed_until_the_user_scrolls_back() {
    let mut harness = AppHarness::new(80, 24);
    deliver_numbered_prompts(&mut harness, 50);
    assert!(harness.draw().contains("<50>"));
    harness.press(&["pageup"]);
    let before = harness.draw();
    assert!(
        !before.contains("<50>") && before.contains("more below"),
        "{before}"
    );
    deliver_numbered_prompts(&mut harness, 5);
    let stream = |text: &str| {
        text.lines()
            .skip(2)
            .take(15)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        stream(&harness.draw()),
        stream(&before),
        "nothing moves while one reads"
    );
    harness.press(&["pagedown", "pagedown", "pagedown"]);
    assert!(
        harness.draw().contains("<5>") && !harness.draw().contains("more below"),
        "{}",
        harness.draw()
    );
}

#[test]
fn items_dropped_from_the_stream_move_the_reader_on() {
    let mut harness = AppHarness::new(80, 24);
    deliver_numbered_prompts(&mut harness, 100);
    harness.press(&["esc", "g"]);
    assert!(harness.draw().contains("<1>"));
    deliver_numbered_prompts(&mut harness, pvp_client::view::MAX_ITEMS);
    let text = harness.draw();
    assert!(
        text.contains("<1>") && text.contains("more below"),
        "{text}"
    );
}

#[test]
fn a_search_finds_prompts_and_output() {
    let mut harness = AppHarness::new(80, 24);
    let run = harness.propose("cat list", "read");
    harness.execute(&run, "cat list", "read", json!({}));
    harness.output(&run, "stdout", "the Needle is here\n");
    deliver_numbered_prompts(&mut harness, 60);
    harness.press(&["esc", "/"]);
    harness.type_text("needle");
    harness.press(&["enter"]);
    let text = harness.draw();
    assert!(text.contains("the Needle is here"), "{text}");
    harness.press(&["n"]);
    assert_eq!(
        harness.app.notice.as_ref().unwrap().text,
        "no more matches in that direction"
    );
}

#[test]
fn commands_and_outputs_are_copied_verbatim() {
    let mut harness = AppHarness::new(80, 24);
    let run = harness.propose("echo '\u{202e}'", "read");
    harness.execute(&run, "echo '\u{202e}'", "read", json!({}));
    harness.output(&run, "stdout", "out\n");
    harness.output(&run, "stderr", "err\n");
    harness.press(&["esc", "up", "y", "Y"]);
    let copied = [
        AppEffect::Copy("echo '\u{202e}'".to_owned()),
        AppEffect::Copy("out\nerr\n".to_owned()),
    ];
    assert_eq!(harness.effects, copied);
}

#[test]
fn all_output_is_read_in_the_pager_by_reference() {
    let mut harness = AppHarness::new(80, 24);
    let run = harness.propose("seq 1 1000", "read");
    harness.execute(&run, "seq 1 1000", "read", json!({}));
    harness.output(&run, "stdout", &"x\n".repeat(1000));
    harness.finish_run(&run, 0);
    harness.press(&["esc", "up", "enter"]);
    let reference = MessageId::parse(&run).unwrap();
    let fetch = AppEffect::FetchOutput {
        reference: reference.clone(),
        offset: 0,
        limit: 500,
    };
    assert_eq!(harness.effects, [fetch]);
    let line = |number: u64| OutputLine {
        number,
        stream: if (number + 1).is_multiple_of(5) {
            OutputStream::Stderr
        } else {
            OutputStream::Stdout
        },
        text: format!("\u{1b}[31mline\u{1b}[0m {}\rover", number + 1),
    };
    let page = OutputPage {
        reference,
        lines: (0..500).map(line).collect(),
        total_lines: 1000,
        total_bytes: 0,
        next: None,
        finished: true,
        cut: false,
    };
    harness.input(AppInput::OutputFetched(Ok(page)));
    harness.press(&["down"]);
    assert_snapshot!(harness.draw());
    harness.press(&["G"]);
    let fetch = AppEffect::FetchOutput {
        reference: MessageId::parse(&run).unwrap(),
        offset: 859,
        limit: 500,
    };
    assert_eq!(harness.effects.pop(), Some(fetch));
}

#[test]
fn a_gate_can_be_decided_while_the_pager_is_open() {
    let mut harness = AppHarness::new(80, 40);
    let run = harness.propose("ls", "read");
    harness.execute(&run, "ls", "read", json!({}));
    harness.finish_run(&run, 0);
    harness.press(&["esc", "up", "enter"]);
    harness.open_gate("make", "write");
    harness.press(&["ctrl+g", "a"]);
    assert_eq!(harness.sent_messages()[0]["type"], "gate.approve");
    assert!(matches!(
        harness.app.main,
        crate::app::MainContent::Pager(_)
    ));
}

#[test]
fn the_wheel_scrolls_and_a_click_moves_the_focus_but_neither_votes() {
    use crate::app::Focus;
    use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
    let mouse = |kind, row| {
        AppInput::Mouse(MouseEvent {
            kind,
            column: 10,
            row,
            modifiers: KeyModifiers::NONE,
        })
    };
    let click = MouseEventKind::Down(MouseButton::Left);
    let mut harness = AppHarness::new(80, 24);
    deliver_numbered_prompts(&mut harness, 50);
    harness.open_gate("make", "write");
    harness.draw();
    harness.input(mouse(MouseEventKind::ScrollUp, 3));
    assert!(harness.draw().contains("more below"));
    harness.input(mouse(MouseEventKind::ScrollDown, 3));
    assert!(!harness.draw().contains("more below"));
    let mut focus = Vec::new();
    for row in [15, 3, 21] {
        harness.input(mouse(click, row));
        focus.push(harness.app.focus);
    }
    assert_eq!(focus, [Focus::Card, Focus::Main, Focus::Composer]);
    assert_eq!(harness.effects, [AppEffect::Notify]);
}
