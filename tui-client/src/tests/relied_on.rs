//! Small things that people rely on without thinking of them.

use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use serde_json::{Value, json};

use crate::app::{Effect, Focus, Input};
use crate::scene::Scene;

fn notice(scene: &Scene) -> Option<&str> {
    scene.app.notice.as_ref().map(|notice| notice.text.as_str())
}

fn submit(scene: &mut Scene, text: &str) {
    scene.input(Input::Paste(text.to_owned()));
    scene.press(&["enter"]);
}

fn mouse(scene: &mut Scene, kind: MouseEventKind, row: u16) {
    let (column, modifiers) = (10, KeyModifiers::NONE);
    scene.draw();
    scene.input(Input::Mouse(MouseEvent {
        kind,
        column,
        row,
        modifiers,
    }));
}

#[test]
fn a_question_is_left_without_an_answer() {
    let mut scene = Scene::new(80, 24);
    scene.gate("make", "write");
    for key in ["r", "e", "P", "i"] {
        scene.press(&["ctrl+g", key]);
        assert!(scene.app.dialog.is_some(), "{key}");
        scene.press(&["esc"]);
        assert_eq!(scene.app.dialog, None, "{key}");
        assert_eq!(scene.app.focus, Focus::Card, "{key}");
    }
    assert_eq!(scene.sent(), [Value::Null; 0]);
}

#[test]
fn another_card_is_read_from_its_beginning() {
    let mut scene = Scene::new(80, 24);
    scene.gate(&format!("first {}", "word ".repeat(300)), "write");
    scene.gate(&format!("second {}", "word ".repeat(300)), "write");
    scene.press(&["ctrl+g", "space", "space"]);
    assert!(!scene.draw().contains("┃ first"));
    scene.press(&["down"]);
    assert!(scene.draw().contains("┃ second"), "{}", scene.draw());
}

#[test]
fn a_command_that_is_not_all_here_is_not_edited() {
    let mut scene = Scene::new(80, 24);
    scene.gate(&"x".repeat(300 * 1024), "write");
    scene.press(&["ctrl+g", "e"]);
    assert_eq!(notice(&scene), Some("it is too long to be edited here"));
    assert_eq!(scene.app.dialog, None);
}

#[test]
fn lines_end_the_same_wherever_they_were_copied() {
    let mut scene = Scene::new(80, 24);
    scene.input(Input::Paste("one\r\ntwo\rthree\nfour".to_owned()));
    assert_eq!(scene.app.composer.editor.text(), "one\ntwo\nthree\nfour");
}

#[test]
fn ctrl_c_throws_away_then_warns_then_quits() {
    let mut scene = Scene::new(80, 24);
    scene.type_text("draft");
    scene.press(&["ctrl+c"]);
    assert_eq!(
        (scene.app.composer.editor.text(), notice(&scene)),
        ("", None)
    );
    scene.press(&["ctrl+c"]);
    assert!(!scene.effects.contains(&Effect::Quit));
    assert_eq!(
        notice(&scene),
        Some("once more to quit; the session goes on")
    );
    // Anything else in between means that one stays.
    scene.press(&["left", "ctrl+c"]);
    assert!(!scene.effects.contains(&Effect::Quit));
    scene.press(&["ctrl+c"]);
    assert!(scene.effects.contains(&Effect::Quit));
}

/// An interactive command of ann's, with its screen open.
fn driven(scene: &mut Scene) -> String {
    let propose = json!({
        "tool_name": "shell", "arguments": { "full_command": "vi list", "mode": "pty", "driver": "ann" },
        "agent": "bot", "risk_level": "safe", "description": "", "requires_approval": true,
        "category": "shell_execute", "assessment": Scene::assessment("vi list", "write"),
    });
    let id = scene.tell("bot", "tool.propose", propose);
    let more = json!({ "mode": "pty", "driver": "ann" });
    scene.execute(&id, "vi list", "quorum", more);
    submit(scene, "/open");
    id
}

#[test]
fn nothing_that_is_pasted_into_a_program_can_end_the_paste() {
    let mut scene = Scene::new(80, 24);
    let id = driven(&mut scene);
    scene.output(&id, "stdout", "\u{1b}[?2004h");
    scene.input(Input::Paste("one\u{1b}[201~:q!\n".to_owned()));
    let sent = scene.sent();
    let data = &sent.last().unwrap()["payload"]["data"];
    assert_eq!(data, "\u{1b}[200~one[201~:q!\n\u{1b}[201~");
}

#[test]
fn what_a_program_drew_is_not_drawn_twice_when_it_is_told_again() {
    let mut scene = Scene::new(80, 24);
    let id = driven(&mut scene);
    let output =
        json!({ "tool_proposal": id, "stream": "stdout", "text": "milk ", "complete": false });
    scene.tell("bot", "tool.output", output.clone());
    scene.tell_again("bot", "tool.output", output);
    let shown = scene.draw();
    assert_eq!(shown.matches("milk").count(), 1, "{shown}");
}

#[test]
fn a_click_does_not_take_the_focus_from_a_question() {
    let mut scene = Scene::new(80, 24);
    scene.gate("make", "write");
    scene.press(&["ctrl+g", "r"]);
    mouse(&mut scene, MouseEventKind::Down(MouseButton::Left), 3);
    assert_eq!(scene.app.focus, Focus::Card);
    scene.type_text("no");
    let reason = scene.app.dialog.as_ref().unwrap().editor();
    assert_eq!(reason.text(), "no");
}

#[test]
fn the_wheel_reads_the_card_that_is_below_it() {
    let mut scene = Scene::new(80, 24);
    scene.gate(&format!("first {}", "word ".repeat(300)), "write");
    assert!(scene.draw().contains("┃ first"));
    mouse(&mut scene, MouseEventKind::ScrollDown, 15);
    assert!(!scene.draw().contains("┃ first"));
    mouse(&mut scene, MouseEventKind::ScrollUp, 15);
    assert!(scene.draw().contains("┃ first"));
}

#[test]
fn the_latest_is_meant_if_no_number_is_said() {
    let mut scene = Scene::new(80, 24);
    scene.gate("make one", "write");
    let (second, _) = scene.gate("make two", "write");
    submit(&mut scene, "/cancel");
    let cancelled = scene.sent().pop().unwrap();
    assert_eq!(cancelled["payload"]["tool_proposal"], second);
}

#[test]
fn every_urgency_is_sent_as_it_was_said() {
    for urgency in ["pause", "stop", "emergency"] {
        let mut scene = Scene::new(80, 24);
        submit(&mut scene, &format!("/interrupt {urgency} now"));
        let said = json!({ "urgency": urgency, "message": "now" });
        assert_eq!(
            scene.sent(),
            [json!({ "type": "interrupt.raise", "payload": said })]
        );
    }
    let mut scene = Scene::new(80, 24);
    for (tabs, urgency) in [(0, "pause"), (1, "stop"), (2, "emergency"), (3, "pause")] {
        scene.press(&["ctrl+u", "esc", "i"]);
        (0..tabs).for_each(|_| scene.press(&["tab"]));
        scene.press(&["enter", "esc"]);
        let sent = scene.sent().pop().unwrap();
        assert_eq!(sent["payload"]["urgency"], urgency);
    }
}

#[test]
fn the_rule_that_is_taken_back_is_the_one_with_that_number() {
    let mut scene = Scene::new(80, 24);
    let allow = |scene: &mut Scene, word: &str| {
        let expires_at = scene.now.plus_seconds(600);
        let rule = json!({ "prefix": [word], "expires_at": expires_at });
        scene.tell("bob", "policy.allow", rule)
    };
    let first = allow(&mut scene, "npm");
    allow(&mut scene, "make");
    submit(&mut scene, "/rules");
    let shown = scene.draw();
    assert!(shown.contains("1    npm …   for another"), "{shown}");
    scene.press(&["q"]);
    submit(&mut scene, "/revoke 1");
    let revoked = scene.sent().pop().unwrap();
    assert_eq!(revoked["payload"]["rule"], first);
}

/// A command that ran.
fn over(scene: &mut Scene, command: &str) -> String {
    let id = scene.propose(command, "read");
    scene.execute(&id, command, "read", json!({}));
    scene.output(&id, "stdout", "x\n");
    scene.result(&id, 0);
    id
}

#[test]
fn numbers_of_the_history_count_from_the_newest() {
    let mut scene = Scene::new(80, 24);
    over(&mut scene, "ls one");
    let newest = over(&mut scene, "ls two");
    submit(&mut scene, "/history");
    let shown = scene.draw();
    assert!(
        shown.contains("│1     12:00:00 read        ls two"),
        "{shown}"
    );
    scene.press(&["q"]);
    submit(&mut scene, "/output 1");
    let is_it = |effect: &Effect| matches!(effect, Effect::Fetch { reference, .. } if reference.as_str() == newest);
    assert!(scene.effects.iter().any(is_it), "{:?}", scene.effects);
}

#[test]
fn results_that_are_dropped_go_nowhere() {
    let mut scene = Scene::new(80, 24);
    submit(&mut scene, "!ls");
    let exec = json!({ "command": "ls", "executor": "bot" });
    let exec = scene.tell("ann", "shell.exec", exec);
    scene.answer(Ok(&exec));
    let login = json!({ "command": { "form": "login_shell", "line": "ls" } });
    scene.execute(&exec, "ls", "direct", login);
    scene.result(&exec, 0);
    assert!(scene.draw().contains("with your next message"));
    submit(&mut scene, "/drop");
    assert!(!scene.draw().contains("with your next message"));
    submit(&mut scene, "hello");
    let sent = scene.sent().pop().unwrap();
    assert_eq!(sent["payload"]["content"], "hello");
}

#[test]
fn what_was_said_goes_away_by_itself() {
    let mut scene = Scene::new(80, 24);
    submit(&mut scene, "/nonsense");
    scene.wait(8_000);
    assert!(notice(&scene).is_some());
    scene.wait(1);
    assert_eq!(notice(&scene), None);
}

#[test]
fn only_what_changes_with_the_time_is_drawn_by_the_clock() {
    let mut scene = Scene::new(80, 24);
    assert!(!scene.app.is_timely(), "nothing counts");
    let (proposal, gate) = scene.gate("make", "write");
    assert!(scene.app.is_timely(), "a deadline counts down");
    scene.resolve(&proposal, &gate, "approved", "bob");
    scene.execute(&proposal, "make", "quorum", json!({}));
    assert!(scene.app.is_timely(), "a command runs");
    scene.result(&proposal, 0);
    assert!(!scene.app.is_timely(), "it is over");
    scene.input(Input::Down {
        why: "gone".to_owned(),
    });
    assert!(scene.app.is_timely(), "the connection is away");
}

#[test]
fn a_command_is_approved_if_and_only_if_its_last_row_was_on_the_screen() {
    let mut outcomes = std::collections::BTreeSet::new();
    for lines in 1..25 {
        let mut scene = Scene::new(80, 24);
        scene.gate(&format!("{}the-end", "make\n".repeat(lines)), "write");
        scene.press(&["ctrl+g"]);
        let seen = scene.draw().contains("┃ the-end");
        scene.press(&["a"]);
        assert_eq!(scene.sent().len(), usize::from(seen), "{lines} lines");
        outcomes.insert(seen);
    }
    assert_eq!(outcomes.len(), 2, "some fit and some do not");
}
