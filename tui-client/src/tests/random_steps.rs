//! Property test: with any keys and messages in any order, nothing panics and every vote is for
//! what was on the screen.

use proptest::prelude::*;
use ratatui::layout::Size;
use serde_json::json;

use crate::app::{AppInput, Focus};
use crate::harness::AppHarness;
use crate::keys::DEFAULT_BINDINGS;

/// A key, a message or another event.
#[derive(Debug, Clone)]
enum AppStep {
    Key(String),
    Paste(String),
    Gate(u8),
    Edit(usize, u8),
    Decide(usize, bool),
    Prompt(String),
    Run(String),
    Resize(u16, u16),
    ConnectionLost(bool),
    Reply(bool),
    Tick,
}

fn bound_and_typed_keys() -> Vec<String> {
    let bound = DEFAULT_BINDINGS.iter().flat_map(|binding| binding.keys);
    let typed = ["x", "!", "/", "@", "l", "s", "space", "o"];
    bound.chain(&typed).map(|&key| key.to_owned()).collect()
}

fn any_step() -> impl Strategy<Value = AppStep> {
    let text = "(\\PC|\n|\u{1b}\\[[0-9;]{0,3}[mHJ]|\u{202e}){0,30}";
    prop_oneof![
        8 => proptest::sample::select(bound_and_typed_keys()).prop_map(AppStep::Key),
        1 => text.prop_map(AppStep::Paste),
        2 => any::<u8>().prop_map(AppStep::Gate),
        1 => (0..5usize, any::<u8>()).prop_map(|(which, how)| AppStep::Edit(which, how)),
        1 => (0..5usize, any::<bool>()).prop_map(|(which, how)| AppStep::Decide(which, how)),
        1 => text.prop_map(AppStep::Prompt),
        1 => text.prop_map(AppStep::Run),
        1 => (1..130u16, 1..50u16).prop_map(|(width, height)| AppStep::Resize(width, height)),
        1 => any::<bool>().prop_map(AppStep::ConnectionLost),
        1 => any::<bool>().prop_map(AppStep::Reply),
        1 => Just(AppStep::Tick),
    ]
}

fn apply_step(harness: &mut AppHarness, step: AppStep) {
    match step {
        AppStep::Key(key) => harness.press(&[&key]),
        AppStep::Paste(text) => harness.input(AppInput::Paste(text)),
        AppStep::Gate(number) => {
            harness.open_gate(
                &format!("make {number}\n{}", "x ".repeat(usize::from(number))),
                "write",
            );
        }
        AppStep::Edit(which, how) => {
            let Some(card) = harness.app.view.gates.get(which).cloned() else {
                return;
            };
            let command = format!("make edited {how}");
            let amend = json!({
                "gate": card.gate, "arguments": { "full_command": command }, "digest": card.digest,
                "assessment": AppHarness::assessment(&command, "write"),
            });
            harness.deliver("bob", "gate.amend", amend);
        }
        AppStep::Decide(which, approved) => {
            let Some(card) = harness.app.view.gates.get(which).cloned() else {
                return;
            };
            let outcome = if approved { "approved" } else { "rejected" };
            harness.resolve(card.proposal.as_str(), card.gate.as_str(), outcome, "bob");
        }
        AppStep::Prompt(text) => {
            let prompt = json!({ "content": text, "target_agent": "bot", "contributors": ["bob"], "context_keys": [] });
            harness.deliver("bob", "prompt.submit", prompt);
        }
        AppStep::Run(text) => {
            let id = harness.propose("run", "read");
            harness.execute(
                &id,
                "run",
                "read",
                json!({ "mode": "pty", "driver": "ann" }),
            );
            harness.output(&id, "stdout", &text);
        }
        AppStep::Resize(width, height) => harness.input(AppInput::Resize(Size { width, height })),
        AppStep::ConnectionLost(true) => harness.input(AppInput::Disconnected {
            reason: "gone".to_owned(),
        }),
        AppStep::ConnectionLost(false) => harness.input(AppInput::Connected { resumed: true }),
        AppStep::Reply(good) => {
            if !harness.sent_messages().is_empty() {
                harness.reply_to_last(if good { Ok("answer") } else { Err("no") });
            }
        }
        AppStep::Tick => harness.advance_clock(1_000),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn nothing_panics_and_every_vote_is_for_what_was_drawn(steps in proptest::collection::vec(any_step(), 0..80)) {
        let mut harness = AppHarness::new(80, 24);
        for step in steps {
            harness.draw();
            let sent = harness.sent_messages().len();
            let drawn = harness.app.card_state.last_drawn.clone();
            let (focus, in_dialog) = (harness.app.focus, harness.app.dialog.is_some());
            let listed = matches!(harness.app.main, crate::app::MainContent::Preflight(_));
            let by_key = matches!(step, AppStep::Key(_));
            apply_step(&mut harness, step);
            for message in harness.sent_messages().into_iter().skip(sent) {
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
