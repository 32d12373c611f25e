//! Whatever is pressed and told, in whatever order: nothing panics, and nothing is decided that was
//! not on the screen.

use proptest::prelude::*;
use ratatui::layout::Size;
use serde_json::json;

use crate::app::{Focus, Input};
use crate::keys::TABLE;
use crate::scene::Scene;

/// Something that happens.
#[derive(Debug, Clone)]
enum Step {
    Key(String),
    Paste(String),
    Gate(u8),
    Edit(usize, u8),
    Decide(usize, bool),
    Speak(String),
    Run(String),
    Resize(u16, u16),
    Lost(bool),
    Answer(bool),
    Wait,
}

fn keys() -> Vec<String> {
    let bound = TABLE.iter().flat_map(|binding| binding.keys);
    let typed = ["x", "!", "/", "@", "l", "s", "space", "o"];
    bound.chain(&typed).map(|&key| key.to_owned()).collect()
}

fn step() -> impl Strategy<Value = Step> {
    let text = "(\\PC|\n|\u{1b}\\[[0-9;]{0,3}[mHJ]|\u{202e}){0,30}";
    prop_oneof![
        8 => proptest::sample::select(keys()).prop_map(Step::Key),
        1 => text.prop_map(Step::Paste),
        2 => any::<u8>().prop_map(Step::Gate),
        1 => (0..5usize, any::<u8>()).prop_map(|(which, how)| Step::Edit(which, how)),
        1 => (0..5usize, any::<bool>()).prop_map(|(which, how)| Step::Decide(which, how)),
        1 => text.prop_map(Step::Speak),
        1 => text.prop_map(Step::Run),
        1 => (1..130u16, 1..50u16).prop_map(|(width, height)| Step::Resize(width, height)),
        1 => any::<bool>().prop_map(Step::Lost),
        1 => any::<bool>().prop_map(Step::Answer),
        1 => Just(Step::Wait),
    ]
}

fn take(scene: &mut Scene, step: Step) {
    match step {
        Step::Key(key) => scene.press(&[&key]),
        Step::Paste(text) => scene.input(Input::Paste(text)),
        Step::Gate(number) => {
            scene.gate(
                &format!("make {number}\n{}", "x ".repeat(usize::from(number))),
                "write",
            );
        }
        Step::Edit(which, how) => {
            let Some(card) = scene.app.view.gates.get(which).cloned() else {
                return;
            };
            let command = format!("make edited {how}");
            let amend = json!({
                "gate": card.gate, "arguments": { "full_command": command }, "digest": card.digest,
                "assessment": Scene::assessment(&command, "write"),
            });
            scene.tell("bob", "gate.amend", amend);
        }
        Step::Decide(which, approved) => {
            let Some(card) = scene.app.view.gates.get(which).cloned() else {
                return;
            };
            let outcome = if approved { "approved" } else { "rejected" };
            scene.resolve(card.proposal.as_str(), card.gate.as_str(), outcome, "bob");
        }
        Step::Speak(text) => {
            let prompt = json!({ "content": text, "target_agent": "bot", "contributors": ["bob"], "context_keys": [] });
            scene.tell("bob", "prompt.submit", prompt);
        }
        Step::Run(text) => {
            let id = scene.propose("run", "read");
            scene.execute(
                &id,
                "run",
                "read",
                json!({ "mode": "pty", "driver": "ann" }),
            );
            scene.output(&id, "stdout", &text);
        }
        Step::Resize(width, height) => scene.input(Input::Resize(Size { width, height })),
        Step::Lost(true) => scene.input(Input::Down {
            why: "gone".to_owned(),
        }),
        Step::Lost(false) => scene.input(Input::Up { resumed: true }),
        Step::Answer(good) => {
            if !scene.sent().is_empty() {
                scene.answer(if good { Ok("answer") } else { Err("no") });
            }
        }
        Step::Wait => scene.wait(1_000),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn nothing_panics_and_every_vote_is_for_what_was_drawn(steps in proptest::collection::vec(step(), 0..80)) {
        let mut scene = Scene::new(80, 24);
        for step in steps {
            scene.draw();
            let sent = scene.sent().len();
            let drawn = scene.app.cards.drawn.clone();
            let (focus, in_dialog) = (scene.app.focus, scene.app.dialog.is_some());
            let listed = matches!(scene.app.main, crate::app::Main::Preflight(_));
            let by_key = matches!(step, Step::Key(_));
            take(&mut scene, step);
            for message in scene.sent().into_iter().skip(sent) {
                if message["type"] == "gate.approve" {
                    prop_assert!(by_key && !in_dialog, "{message}");
                    let (gate, digest) = (&message["payload"]["gate"], &message["payload"]["digest"]);
                    let on_card = drawn.as_ref().is_some_and(|(shown, bound)| {
                        (json!(shown), json!(bound)) == (gate.clone(), digest.clone())
                    });
                    prop_assert!((focus == Focus::Card && on_card) || (focus == Focus::Main && listed), "{message}");
                }
            }
        }
    }
}
