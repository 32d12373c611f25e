//! Reading: following, scrolling, searching, the pager, copying.

use insta::assert_snapshot;
use pvp_protocol::MessageId;
use pvp_protocol::payload::{OutputLine, OutputPage, OutputStream};
use serde_json::json;

use crate::app::{Effect, Input};
use crate::scene::Scene;

fn say(scene: &mut Scene, text: &str) {
    let prompt = json!({ "content": text, "target_agent": "bot", "contributors": ["bob"], "context_keys": [] });
    scene.tell("bob", "prompt.submit", prompt);
}

fn numbered(scene: &mut Scene, count: usize) {
    for number in 1..=count {
        say(scene, &format!("message <{number}>"));
    }
}

#[test]
fn the_newest_is_followed_until_one_reads_back() {
    let mut scene = Scene::new(80, 24);
    numbered(&mut scene, 50);
    assert!(scene.draw().contains("<50>"));
    scene.press(&["pageup"]);
    let before = scene.draw();
    assert!(
        !before.contains("<50>") && before.contains("more below"),
        "{before}"
    );
    numbered(&mut scene, 5);
    let stream = |text: &str| {
        text.lines()
            .skip(2)
            .take(15)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        stream(&scene.draw()),
        stream(&before),
        "nothing moves while one reads"
    );
    scene.press(&["pagedown", "pagedown", "pagedown"]);
    assert!(
        scene.draw().contains("<5>") && !scene.draw().contains("more below"),
        "{}",
        scene.draw()
    );
}

#[test]
fn what_falls_out_of_the_stream_moves_the_reader_on() {
    let mut scene = Scene::new(80, 24);
    numbered(&mut scene, 100);
    scene.press(&["esc", "g"]);
    assert!(scene.draw().contains("<1>"));
    numbered(&mut scene, pvp_client::view::MAX_ITEMS);
    let text = scene.draw();
    assert!(
        text.contains("<1>") && text.contains("more below"),
        "{text}"
    );
}

#[test]
fn a_search_finds_what_was_said_and_printed() {
    let mut scene = Scene::new(80, 24);
    let run = scene.propose("cat list", "read");
    scene.execute(&run, "cat list", "read", json!({}));
    scene.output(&run, "stdout", "the Needle is here\n");
    numbered(&mut scene, 60);
    scene.press(&["esc", "/"]);
    scene.type_text("needle");
    scene.press(&["enter"]);
    let text = scene.draw();
    assert!(text.contains("the Needle is here"), "{text}");
    scene.press(&["n"]);
    assert_eq!(
        scene.app.notice.as_ref().unwrap().text,
        "no more matches that way"
    );
}

#[test]
fn commands_and_outputs_are_copied_verbatim() {
    let mut scene = Scene::new(80, 24);
    let run = scene.propose("echo '\u{202e}'", "read");
    scene.execute(&run, "echo '\u{202e}'", "read", json!({}));
    scene.output(&run, "stdout", "out\n");
    scene.output(&run, "stderr", "err\n");
    scene.press(&["esc", "up", "y", "Y"]);
    let copied = [
        Effect::Copy("echo '\u{202e}'".to_owned()),
        Effect::Copy("out\nerr\n".to_owned()),
    ];
    assert_eq!(scene.effects, copied);
}

#[test]
fn all_output_is_read_in_the_pager_by_reference() {
    let mut scene = Scene::new(80, 24);
    let run = scene.propose("seq 1 1000", "read");
    scene.execute(&run, "seq 1 1000", "read", json!({}));
    scene.output(&run, "stdout", &"x\n".repeat(1000));
    scene.result(&run, 0);
    scene.press(&["esc", "up", "enter"]);
    let reference = MessageId::parse(&run).unwrap();
    let fetch = Effect::Fetch {
        reference: reference.clone(),
        offset: 0,
        limit: 500,
    };
    assert_eq!(scene.effects, [fetch]);
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
        finished: true,
        cut: false,
    };
    scene.input(Input::Fetched(Ok(page)));
    scene.press(&["down"]);
    assert_snapshot!(scene.draw());
    scene.press(&["G"]);
    let fetch = Effect::Fetch {
        reference: MessageId::parse(&run).unwrap(),
        offset: 859,
        limit: 500,
    };
    assert_eq!(scene.effects.pop(), Some(fetch));
}

#[test]
fn a_gate_can_be_decided_while_the_pager_is_open() {
    let mut scene = Scene::new(80, 40);
    let run = scene.propose("ls", "read");
    scene.execute(&run, "ls", "read", json!({}));
    scene.result(&run, 0);
    scene.press(&["esc", "up", "enter"]);
    scene.gate("make", "write");
    scene.press(&["ctrl+g", "a"]);
    assert_eq!(scene.sent()[0]["type"], "gate.approve");
    assert!(matches!(scene.app.main, crate::app::Main::Pager(_)));
}

#[test]
fn the_wheel_reads_and_a_click_moves_the_focus_but_nothing_is_decided() {
    use crate::app::Focus;
    use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
    let mouse = |kind, row| {
        Input::Mouse(MouseEvent {
            kind,
            column: 10,
            row,
            modifiers: KeyModifiers::NONE,
        })
    };
    let click = MouseEventKind::Down(MouseButton::Left);
    let mut scene = Scene::new(80, 24);
    numbered(&mut scene, 50);
    scene.gate("make", "write");
    scene.draw();
    scene.input(mouse(MouseEventKind::ScrollUp, 3));
    assert!(scene.draw().contains("more below"));
    scene.input(mouse(MouseEventKind::ScrollDown, 3));
    assert!(!scene.draw().contains("more below"));
    let mut focus = Vec::new();
    for row in [15, 3, 21] {
        scene.input(mouse(click, row));
        focus.push(scene.app.focus);
    }
    assert_eq!(focus, [Focus::Card, Focus::Main, Focus::Composer]);
    assert_eq!(scene.effects, [Effect::Call]);
}
