//! Every screen, as text.

use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::json;

use crate::app::{Input, Tone};
use crate::config::Config;
use crate::scene::Scene;
use crate::text::visible;
use crate::theme::Palette;

/// A session in which much has happened.
fn busy(scene: &mut Scene) {
    let prompt = json!({
        "content": "Please tidy the shop.\nBut keep the eggs.", "target_agent": "bot",
        "contributors": ["ann"], "context_keys": [],
    });
    let prompt = scene.tell("ann", "prompt.submit", prompt);
    let thinking = json!({ "agent": "bot", "prompt_ref": prompt, "visible_to": "all" });
    scene.tell("bot", "thinking.start", thinking);
    scene.tell(
        "bot",
        "thinking.chunk",
        json!({ "text": "What is there?\nLet me look." }),
    );
    scene.tell(
        "bot",
        "thinking.end",
        json!({ "summary": "looks first", "duration_ms": 2100 }),
    );
    let ls = scene.propose("ls -la", "read");
    scene.execute(&ls, "ls -la", "read", json!({}));
    scene.output(&ls, "stdout", "total 2\n\u{1b}[34meggs\u{1b}[0m\nmilk\n");
    scene.output(&ls, "stderr", "ls: cannot open 'attic'\n");
    scene.result(&ls, 1);
    scene.tell(
        "bot",
        "response.start",
        json!({ "agent": "bot", "prompt_ref": prompt }),
    );
    let answer = "# Found\n- **eggs**, which stay\n- `milk`, which goes";
    scene.tell("bot", "response.chunk", json!({ "text": answer }));
    scene.tell(
        "bot",
        "response.end",
        json!({ "finish_reason": "complete" }),
    );
    let seq = scene.propose("seq 1 1000", "read");
    scene.execute(&seq, "seq 1 1000", "read", json!({}));
    let numbers: String = (1..=1000).map(|number| format!("{number}\n")).collect();
    scene.output(&seq, "stdout", &numbers);
}

fn five_gates(scene: &mut Scene) {
    for (command, category) in [
        ("npm install", "write"),
        ("git commit -m 'tidy'", "write"),
        ("rm -rf build", "destructive"),
        ("make deploy", "write"),
        ("kubectl delete pod shop-1", "destructive"),
    ] {
        scene.gate(command, category);
    }
}

#[test]
fn empty() {
    assert_snapshot!(Scene::empty(Config::default(), 80, 24).draw());
}

#[test]
fn joined() {
    assert_snapshot!(Scene::new(80, 24).draw());
}

#[test]
fn a_busy_session() {
    let mut scene = Scene::new(80, 50);
    busy(&mut scene);
    scene.press(&["esc", "t"]);
    assert_snapshot!(scene.draw());
}

#[test]
fn one_gate() {
    let mut scene = Scene::new(80, 24);
    scene.gate("rm -rf build && make", "destructive");
    scene.wait(12_000);
    assert_snapshot!(scene.draw());
}

#[test]
fn one_gate_with_the_focus_and_a_vote() {
    let mut scene = Scene::new(100, 30);
    let (proposal, gate) = scene.gate("npm install", "write");
    let vote = json!({ "gate": gate, "approver": "bob", "comment": "fine with me", "digest": Scene::digest("npm install") });
    scene.tell("bob", "gate.approve", vote);
    scene.press(&["tab"]);
    assert!(!proposal.is_empty());
    assert_snapshot!(scene.draw());
}

#[test]
fn five_gates_with_one_open() {
    let mut scene = Scene::new(80, 24);
    five_gates(&mut scene);
    scene.press(&["tab", "down", "down"]);
    assert_snapshot!(scene.draw());
}

#[test]
fn a_gate_that_somebody_else_decided() {
    let mut scene = Scene::new(80, 24);
    let (proposal, gate) = scene.gate("rm -rf build", "destructive");
    scene.press(&["tab"]);
    scene.resolve(&proposal, &gate, "rejected", "bob");
    assert_snapshot!(scene.draw());
}

#[test]
fn rejecting() {
    let mut scene = Scene::new(80, 24);
    scene.gate("rm -rf build", "destructive");
    scene.press(&["tab", "r"]);
    scene.type_text("we need it");
    assert_snapshot!(scene.draw());
}

#[test]
fn editing() {
    let mut scene = Scene::new(80, 24);
    scene.gate("rm -rf build", "destructive");
    scene.press(&["tab", "e"]);
    scene.type_text("/cache");
    assert_snapshot!(scene.draw());
}

#[test]
fn allowing_a_prefix() {
    let mut scene = Scene::new(80, 24);
    scene.gate("npm run build --watch", "write");
    scene.press(&["tab", "P"]);
    assert_snapshot!(scene.draw());
}

#[test]
fn preflight() {
    let mut scene = Scene::new(80, 40);
    five_gates(&mut scene);
    scene.press(&["tab", "A", "down", "space"]);
    assert_snapshot!(scene.draw());
}

#[test]
fn explaining() {
    let mut scene = Scene::new(80, 40);
    scene.gate("rm -rf build", "destructive");
    scene.press(&["tab", "x"]);
    assert_snapshot!(scene.draw());
}

#[test]
fn help() {
    let mut scene = Scene::new(100, 50);
    scene.type_text("/help");
    scene.press(&["enter"]);
    assert_snapshot!(scene.draw());
}

#[test]
fn a_lost_connection() {
    let mut scene = Scene::new(80, 24);
    busy(&mut scene);
    scene.type_text("still typing");
    scene.input(Input::Down {
        why: "connection refused".to_owned(),
    });
    scene.wait(12_000);
    assert_snapshot!(scene.draw());
}

#[test]
fn narrow_and_low() {
    let mut scene = Scene::new(40, 12);
    busy(&mut scene);
    five_gates(&mut scene);
    scene.press(&["tab"]);
    assert_snapshot!(scene.draw());
}

#[test]
fn wide_and_high() {
    let mut scene = Scene::new(160, 45);
    busy(&mut scene);
    five_gates(&mut scene);
    let draft = json!({ "content": "what about the milk?", "contributors": ["bob"] });
    scene.whisper("bob", "prompt.draft", draft);
    assert_snapshot!(scene.draw());
}

/// Text with everything in it that a terminal would obey or an eye would miss.
pub(super) const HOSTILE: &str = "a\u{1b}]0;owned\u{7}b\u{1b}[2J\u{1b}]52;c;ZXZpbA==\u{7}c\u{202e}d\u{200b}e\u{9b}5nf\r\u{8}g\u{1b}Pq\u{1b}\\h";

#[test]
fn hostile_text_everywhere() {
    let mut scene = Scene::new(100, 45);
    scene.gate(&format!("echo {HOSTILE}"), "write");
    let run = scene.propose(HOSTILE, "read");
    scene.execute(&run, HOSTILE, "read", json!({}));
    scene.output(&run, "stdout", HOSTILE);
    scene.output(&run, "stderr", HOSTILE);
    let prompt = json!({ "content": HOSTILE, "target_agent": "bot", "contributors": ["bob"], "context_keys": [] });
    scene.tell("bob", "prompt.submit", prompt);
    scene.whisper(
        "bob",
        "prompt.draft",
        json!({ "content": HOSTILE, "contributors": ["bob"] }),
    );
    scene.app.tell(Tone::Bad, HOSTILE);
    assert_snapshot!(scene.draw());
}

#[test]
fn without_colours_no_cell_has_one() {
    let config = Config {
        palette: Palette::None,
        ..Config::default()
    };
    let mut scene = Scene::with(config, 100, 70);
    busy(&mut scene);
    five_gates(&mut scene);
    scene.press(&["tab"]);
    let reset = ratatui::style::Color::Reset;
    for cell in &scene.buffer().content {
        assert_eq!((cell.fg, cell.bg), (reset, reset), "{}", cell.symbol());
    }
    // What colour would say is said in words and marks.
    let text = scene.draw();
    for mark in ["out│", "err│", "WRITE", "▶ Gate 1 of 5"] {
        assert!(text.contains(mark), "{mark}\n{text}");
    }
}

#[test]
fn without_colours() {
    let config = Config {
        palette: Palette::None,
        ..Config::default()
    };
    let mut scene = Scene::with(config, 80, 30);
    busy(&mut scene);
    scene.gate("rm -rf build", "destructive");
    scene.press(&["tab"]);
    assert_snapshot!(scene.draw());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn at_any_size_with_any_text_the_screen_is_drawn_and_only_visible_characters_are_on_it(
        width in 1..120u16, height in 1..50u16, text in "(\\PC|[\u{0}-\u{9f}]|\u{1b}\\]0;|\u{202e}|\n){0,200}",
    ) {
        let mut scene = Scene::new(width, height);
        busy(&mut scene);
        five_gates(&mut scene);
        scene.gate(&format!("echo {text}"), "write");
        let run = scene.propose("x", "read");
        scene.execute(&run, "x", "read", json!({}));
        scene.output(&run, "stderr", &text);
        scene.input(Input::Paste(text.clone()));
        for keys in [&["tab"][..], &["up"], &["e"], &["esc", "A"], &["esc", "esc", "up", "enter"]] {
            scene.press(keys);
            for cell in &scene.buffer().content {
                prop_assert_eq!(visible(cell.symbol()), cell.symbol());
                prop_assert!(!cell.symbol().contains(['\n', '\t']));
            }
        }
    }
}
