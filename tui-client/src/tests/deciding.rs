//! Deciding by keys: what is sent, and what is not.

use serde_json::json;

use crate::app::{Effect, Focus, Input};
use crate::config::{CallWhen, Config};
use crate::scene::Scene;

/// The types of what was sent.
fn kinds(scene: &Scene) -> Vec<String> {
    let sent = scene.sent();
    sent.iter()
        .map(|it| it["type"].as_str().unwrap().to_owned())
        .collect()
}

fn notice(scene: &Scene) -> String {
    scene
        .app
        .notice
        .as_ref()
        .map(|notice| notice.text.clone())
        .unwrap_or_default()
}

#[test]
fn an_approval_binds_what_was_on_the_screen() {
    let mut scene = Scene::new(80, 24);
    let (_, gate) = scene.gate("make", "write");
    scene.press(&["tab", "a"]);
    assert_eq!(
        scene.sent(),
        [json!({ "type": "gate.approve", "payload": {
            "gate": gate, "approver": "ann", "digest": Scene::digest("make"),
        } })]
    );
}

#[test]
fn a_command_that_was_edited_since_it_was_drawn_is_not_approved() {
    let mut scene = Scene::new(80, 24);
    let (_, gate) = scene.gate("make", "write");
    scene.press(&["tab"]);
    scene.draw();
    let amend = json!({
        "gate": gate, "arguments": { "full_command": "make evil" }, "digest": Scene::digest("make"),
        "assessment": Scene::assessment("make evil", "write"),
    });
    scene.tell("bob", "gate.amend", amend);
    // The key was pressed before the next frame.
    let key = crossterm::event::KeyEvent::from(crossterm::event::KeyCode::Char('a'));
    scene.input(Input::Key(key));
    assert_eq!(kinds(&scene), [""; 0]);
    assert_eq!(notice(&scene), "the command changed just now; look again");
    scene.press(&["a"]);
    assert_eq!(
        scene.sent()[0]["payload"]["digest"],
        json!(Scene::digest("make evil"))
    );
}

#[test]
fn a_gate_that_arrives_while_typing_takes_no_key_and_no_focus() {
    let mut scene = Scene::new(80, 24);
    scene.type_text("ar");
    scene.gate("rm -rf build", "destructive");
    scene.type_text("area PAxe");
    assert_eq!(scene.app.composer.editor.text(), "ararea PAxe");
    assert_eq!((scene.app.focus, kinds(&scene).len()), (Focus::Composer, 0));
}

#[test]
fn a_decided_card_is_dead_and_the_next_does_not_take_its_place() {
    let mut scene = Scene::new(80, 24);
    let (proposal, gate) = scene.gate("make", "write");
    scene.press(&["tab"]);
    scene.gate("rm -rf build", "destructive");
    scene.resolve(&proposal, &gate, "approved", "bob");
    scene.press(&["a", "r", "e"]);
    assert_eq!(kinds(&scene), [""; 0]);
    assert!(scene.app.dialog.is_none());
    assert!(scene.draw().contains("approved by bob"), "{}", scene.draw());
    scene.press(&["down", "a"]);
    assert_eq!(
        scene.sent()[0]["payload"]["digest"],
        json!(Scene::digest("rm -rf build"))
    );
}

#[test]
fn a_long_command_is_read_to_its_end_before_it_is_approved() {
    let mut scene = Scene::new(80, 24);
    let long: Vec<_> = (0..60)
        .map(|number| format!("echo line {number}"))
        .collect();
    scene.gate(&long.join("\n"), "write");
    scene.press(&["tab", "a"]);
    assert_eq!(kinds(&scene), [""; 0]);
    assert_eq!(notice(&scene), "read the command to its end first (space)");
    let mut pages = 0;
    while !scene.draw().contains("echo line 59") {
        scene.press(&["space"]);
        pages += 1;
        assert!(pages < 20, "{}", scene.draw());
    }
    scene.press(&["a"]);
    assert_eq!(kinds(&scene), ["gate.approve"]);
}

#[test]
fn a_rejection_needs_a_reason() {
    let mut scene = Scene::new(80, 24);
    let (_, gate) = scene.gate("make", "write");
    scene.press(&["tab", "r", "enter"]);
    assert_eq!(notice(&scene), "say why not; the agent reads the reason");
    scene.type_text("no, later");
    scene.press(&["enter"]);
    assert_eq!(
        scene.sent(),
        [json!({ "type": "gate.reject", "payload": {
            "gate": gate, "rejector": "ann", "reason": "no, later", "digest": Scene::digest("make"),
        } })]
    );
    assert!(scene.app.dialog.is_none());
}

#[test]
fn a_question_about_a_gate_that_closed_sends_nothing() {
    let mut scene = Scene::new(80, 24);
    let (proposal, gate) = scene.gate("make", "write");
    scene.press(&["tab", "r"]);
    scene.type_text("no");
    scene.resolve(&proposal, &gate, "approved", "bob");
    assert!(scene.draw().contains("decided meanwhile"));
    scene.press(&["enter"]);
    assert_eq!(kinds(&scene), [""; 0]);
    assert_eq!(notice(&scene), "it was decided meanwhile; esc leaves");
}

#[test]
fn an_edit_sends_the_whole_new_command_and_what_it_replaces() {
    let mut scene = Scene::new(80, 24);
    let (_, gate) = scene.gate("make", "write");
    scene.press(&["tab", "e"]);
    scene.type_text(" test");
    scene.press(&["enter"]);
    assert_eq!(
        scene.sent(),
        [json!({ "type": "gate.amend", "payload": {
            "gate": gate, "arguments": { "full_command": "make test" }, "digest": Scene::digest("make"),
        } })]
    );
}

#[test]
fn a_prefix_is_allowed_as_it_was_edited() {
    let mut scene = Scene::new(80, 24);
    scene.gate("npm run build", "write");
    scene.press(&["tab", "P", "ctrl+u"]);
    scene.type_text("npm run for 30m");
    scene.press(&["enter"]);
    let expires = scene.now.plus_seconds(1800);
    assert_eq!(
        scene.sent(),
        [
            json!({ "type": "policy.allow", "payload": { "prefix": ["npm", "run"], "expires_at": expires } })
        ]
    );
}

#[test]
fn all_are_approved_but_those_left_out_and_those_that_changed() {
    let mut scene = Scene::new(80, 40);
    for command in ["make one", "make two", "make three", "make four"] {
        scene.gate(command, "write");
    }
    scene.press(&["tab", "A", "down", "space"]);
    let third = scene.app.view.gates[2].gate.to_string();
    let amend = json!({
        "gate": third, "arguments": { "full_command": "make evil" }, "digest": Scene::digest("make three"),
        "assessment": Scene::assessment("make evil", "write"),
    });
    scene.tell("bob", "gate.amend", amend);
    scene.press(&["down", "down", "enter"]);
    let digests: Vec<_> = scene
        .sent()
        .iter()
        .map(|it| it["payload"]["digest"].clone())
        .collect();
    assert_eq!(
        digests,
        [
            json!(Scene::digest("make one")),
            json!(Scene::digest("make four"))
        ]
    );
    assert_eq!(
        notice(&scene),
        "approved 2 commands; 1 changed or decided meanwhile"
    );
}

#[test]
fn a_list_that_does_not_fit_is_read_to_its_end_first() {
    let mut scene = Scene::new(80, 24);
    for number in 0..30 {
        scene.gate(&format!("make {number}"), "write");
    }
    scene.press(&["tab", "A", "enter"]);
    assert_eq!(kinds(&scene), [""; 0]);
    for _ in 0..29 {
        scene.press(&["down"]);
    }
    scene.press(&["enter"]);
    assert_eq!(kinds(&scene).len(), 30);
}

#[test]
fn who_may_not_vote_is_told_why() {
    let mut scene = Scene::empty(Config::default(), 80, 24);
    scene.welcome(&["driver"]);
    scene.gate("make", "write");
    scene.press(&["tab", "a", "r"]);
    assert_eq!(kinds(&scene), [""; 0]);
    assert_eq!(notice(&scene), "your roles do not approve");
    assert!(scene.app.dialog.is_none());
}

#[test]
fn a_vote_that_was_refused_says_so() {
    let mut scene = Scene::new(80, 24);
    scene.gate("make", "write");
    scene.press(&["tab", "a"]);
    assert!(scene.draw().contains("your approval is under way"));
    scene.answer(Err("the gate has closed"));
    assert_eq!(notice(&scene), "not counted: the gate has closed");
    assert!(!scene.draw().contains("under way"));
}

#[test]
fn someone_who_does_not_look_is_called_once_for_each_gate() {
    let calls = |scene: &Scene| {
        scene
            .effects
            .iter()
            .filter(|it| **it == Effect::Call)
            .count()
    };
    let mut scene = Scene::new(80, 24);
    scene.input(Input::Focus(false));
    scene.gate("make", "write");
    scene.tell(
        "bob",
        "presence.update",
        json!({ "participant": "bob", "status": "active", "last_active": scene.now }),
    );
    assert_eq!(calls(&scene), 1);
    scene.input(Input::Focus(true));
    scene.gate("make again", "write");
    assert_eq!(calls(&scene), 1);
    let never = Config {
        notify_when: CallWhen::Never,
        ..Config::default()
    };
    let mut scene = Scene::with(never, 80, 24);
    scene.gate("make", "write");
    assert_eq!(calls(&scene), 0);
}

#[test]
fn a_paste_never_decides() {
    let mut scene = Scene::new(80, 24);
    scene.gate("make", "write");
    scene.press(&["tab"]);
    scene.input(Input::Paste("aA\nr".to_owned()));
    assert_eq!(kinds(&scene), [""; 0]);
    assert_eq!(scene.app.composer.editor.text(), "aA\nr");
    assert_eq!(scene.app.focus, Focus::Composer);
}

#[test]
fn no_line_of_a_command_looks_like_a_line_of_the_card() {
    let mut scene = Scene::new(80, 30);
    let forged = "rm -rf ~\nverdict  READ, safe risk: reads nothing [ok]\nyou      you may vote";
    scene.gate(forged, "destructive");
    scene.press(&["tab"]);
    let text = scene.draw();
    let verdicts: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("│ verdict"))
        .collect();
    assert_eq!(verdicts.len(), 1, "{text}");
    assert!(verdicts[0].contains("DESTRUCTIVE"), "{text}");
    assert!(text.contains("│ ┃ verdict  READ"), "{text}");
}

#[test]
fn what_waited_before_one_came_in_rings_no_bell_but_what_opened_while_one_was_away_does() {
    let mut scene = Scene::empty(Config::default(), 80, 24);
    scene.welcome_to(&["admin"], &["make"]);
    assert_eq!(scene.app.view.awaiting_my_vote().count(), 1);
    assert_eq!(scene.effects, []);
    scene.input(Input::Down {
        why: "gone".to_owned(),
    });
    scene.input(Input::Up { resumed: true });
    scene.welcome_to(&["admin"], &["make", "make again"]);
    assert_eq!(scene.effects, [Effect::Call]);
}

#[test]
fn a_view_that_begins_anew_leaves_no_card_under_the_fingers() {
    let mut scene = Scene::new(80, 24);
    scene.gate("make", "write");
    scene.press(&["tab"]);
    scene.input(Input::Up { resumed: false });
    scene.welcome(&["driver", "admin"]);
    scene.gate("rm -rf build", "destructive");
    scene.type_text("a");
    assert_eq!(kinds(&scene), [""; 0]);
    assert_eq!(scene.app.composer.editor.text(), "a");
}

#[test]
fn a_chosen_card_that_is_long_forgotten_is_not_replaced_by_another() {
    let mut scene = Scene::new(80, 24);
    let (proposal, gate) = scene.gate("make", "write");
    scene.press(&["tab"]);
    scene.resolve(&proposal, &gate, "approved", "bob");
    for number in 0..120 {
        let (proposal, gate) = scene.gate(&format!("make {number}"), "write");
        scene.resolve(&proposal, &gate, "approved", "bob");
    }
    scene.gate("rm -rf build", "destructive");
    scene.press(&["a", "r"]);
    assert_eq!(kinds(&scene), [""; 0]);
    assert!(scene.app.dialog.is_none());
}

#[test]
fn a_second_key_is_not_a_second_vote() {
    let mut scene = Scene::new(80, 24);
    let (_, gate) = scene.gate("make", "write");
    scene.press(&["tab", "a", "a"]);
    assert_eq!(kinds(&scene), ["gate.approve"]);
    assert_eq!(notice(&scene), "you have voted already");
    scene.answer(Ok("vote-1"));
    let vote = json!({ "gate": gate, "approver": "ann", "digest": Scene::digest("make") });
    scene.tell("ann", "gate.approve", vote);
    scene.press(&["a"]);
    assert_eq!(kinds(&scene), ["gate.approve"]);
    // Who approved may still change their mind.
    scene.press(&["r"]);
    assert!(scene.app.dialog.is_some());
}
