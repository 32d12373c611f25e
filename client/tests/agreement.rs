//! Random stories through the real session core: the view agrees with it, however it was told.

#![allow(
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

mod kit;

use std::collections::BTreeSet;

use kit::{Stage, Step, id, person, view};
use proptest::prelude::*;
use pvp_client::View;
use pvp_protocol::{Envelope, MessageId, ServerMessage};
use pvp_session::SessionSettings;
use serde_json::{Value, json};

const PEOPLE: [(&str, &str); 5] = [
    ("ann", "admin"),
    ("bob", "approver"),
    ("cat", "navigator"),
    ("dan", "driver"),
    ("amy", "admin"),
];

const ROLES: [&str; 5] = ["admin", "approver", "navigator", "driver", "observer"];

/// The one who watches, and never leaves.
const VIEWER: &str = "bob";

/// Dice for one step: what happens, who does it, to what, and how.
type Dice = (u8, usize, usize, usize);

fn say(by: &str, name: String, kind: &str, payload: Value) -> Step {
    Step::Say {
        by: by.to_owned(),
        id: name,
        kind: kind.to_owned(),
        payload,
        reference: None,
    }
}

fn join(who: &str, kind: &str, roles: &[&str], number: usize) -> Step {
    let mut announce = json!({
        "id": who, "name": who, "type": kind, "roles": roles, "transport": "websocket"
    });
    if kind == "agent" {
        announce["executor"] = json!({"profiles": ["read"], "shell_exec": true});
    }
    Step::Join {
        id: format!("j{number}"),
        announce: serde_json::from_value(announce).unwrap(),
        after: None,
        history: None,
    }
}

fn opening() -> Stage {
    let mut stage = Stage::new(VIEWER, SessionSettings::default());
    let config = json!({
        "on_gate_timeout": "escalate", "gate_timeout_seconds": 60,
        "default_gate_quorum": {"type": "any", "count": 3}
    });
    stage.step(&Step::Create {
        by: "ann".to_owned(),
        id: "c".to_owned(),
        viewer: VIEWER.to_owned(),
        name: None,
        open: false,
        config: serde_json::from_value(config).unwrap(),
    });
    for (number, (name, role)) in PEOPLE.iter().enumerate() {
        stage.step(&join(name, "human", &[role], number));
    }
    stage.step(&join("bot", "agent", &[], 90));
    stage
}

const COMMANDS: [&str; 5] = ["ls", "make", "rm -rf build", "npm test", "git status"];

fn quorum(how: usize) -> Value {
    match how % 5 {
        0 => json!({"type": "any", "count": 1}),
        1 => json!({"type": "any", "count": 3}),
        2 => json!({"type": "all"}),
        3 => json!({"type": "majority"}),
        _ => json!({"type": "role", "role": "admin", "count": 1}),
    }
}

/// One step; what makes no sense at the moment is refused, and that is part of the story.
fn step(stage: &Stage, number: usize, (what, who, which, how): Dice) -> Step {
    let (who, old_role) = PEOPLE[who % PEOPLE.len()];
    let name = format!("m{number}");
    let open: Vec<_> = stage.session.proposals().collect();
    let proposal = match open.get(which % open.len().max(1)) {
        Some(open) if which > 2 => open.id.to_string(),
        Some(_) | None => format!("m{which}"),
    };
    let digest = stage
        .session
        .proposal(&id(&proposal))
        .map(|open| open.assessment.digest);
    let role = ROLES[how % ROLES.len()];
    match what {
        0..=3 => {
            let mode = if how == 0 { "background" } else { "normal" };
            let arguments = json!({"full_command": COMMANDS[which % COMMANDS.len()], "mode": mode});
            let propose = json!({
                "tool_name": "shell", "arguments": arguments, "agent": "bot",
                "risk_level": "safe", "description": "d", "requires_approval": false,
                "category": "shell_execute"
            });
            say("bot", name, "tool.propose", propose)
        }
        4..=8 => {
            let vote = json!({"gate": proposal, "approver": who, "digest": digest});
            say(who, name, "gate.approve", vote)
        }
        9 => {
            let vote = json!({"gate": proposal, "rejector": who, "reason": "no", "digest": digest});
            say(who, name, "gate.reject", vote)
        }
        10 => {
            let arguments = json!({"full_command": COMMANDS[how % COMMANDS.len()]});
            let digest = digest.unwrap_or_else(|| pvp_protocol::Digest::new([0; 32]));
            let amend = json!({"gate": proposal, "arguments": arguments, "digest": digest});
            say(who, name, "gate.amend", amend)
        }
        11..=13 => {
            let text = "é\n".repeat(how);
            let output = json!({
                "tool_proposal": proposal, "stream": "stdout", "text": text, "complete": false
            });
            say("bot", name, "tool.output", output)
        }
        14 => {
            let result = json!({"tool_proposal": proposal, "success": true, "duration_ms": 1});
            say("bot", name, "tool.result", result)
        }
        15 => say(who, name, "tool.cancel", json!({"tool_proposal": proposal})),
        16 if who != VIEWER => say(who, name, "session.leave", json!({})),
        16 | 17 if who != VIEWER => join(who, "human", &[role], number + 1000),
        16 | 17 => join("bot", "agent", &[], number + 1000),
        18 => {
            let who = who.to_owned();
            if how > 2 {
                Step::Quiet { who }
            } else {
                Step::Back { who }
            }
        }
        19 => Step::Wait {
            ms: how as u64 * 10_000,
        },
        20 | 21 => Step::Tick,
        22 => {
            let held = stage.session.member(&person(who));
            let old_roles = held.map(|member| json!(member.announce.roles));
            let change = json!({
                "participant": who, "old_roles": old_roles.unwrap_or(json!([old_role])),
                "new_roles": [role], "changed_by": "ann"
            });
            say("ann", name, "participant.role_change", change)
        }
        23 => {
            let timeout = ["skip", "wait", "pause_session"][which % 3];
            let changes = json!({
                "default_gate_quorum": quorum(how), "four_eyes": which % 2 == 0,
                "on_participant_timeout": timeout
            });
            let update = json!({"changes": changes, "reason": "r"});
            say("ann", name, "session.config_update", update)
        }
        24 => {
            let exec = json!({"command": COMMANDS[which % COMMANDS.len()]});
            say("dan", name, "shell.exec", exec)
        }
        25 => {
            let urgency = ["pause", "stop"][how % 2];
            let raise = json!({"urgency": urgency, "message": "wait"});
            say(who, name, "interrupt.raise", raise)
        }
        _ if which.is_multiple_of(7) => say("bot", name, "session.leave", json!({})),
        _ => join("bot", "agent", &[], number + 1000),
    }
}

/// What a card must agree on however it was learnt; a welcome does not say who edited it.
fn cards(view: &View) -> Vec<Value> {
    let card = |card: &pvp_client::view::Card| {
        json!({
            "gate": card.gate, "proposal": card.proposal, "digest": card.digest,
            "quorum": card.quorum, "deadline": card.deadline, "escalated": card.escalated,
            "votes": card.votes, "category": card.category, "command": card.asked.command
        })
    };
    view.gates.iter().map(card).collect()
}

fn running(view: &View) -> BTreeSet<MessageId> {
    view.running().map(|proposal| proposal.id.clone()).collect()
}

/// The view against the core: the same gates, counted the same, and the same runs.
fn invariant_view_agrees_with_the_core(stage: &Stage, view: &View) {
    let open = stage.session.open_gates();
    let gates: Vec<_> = open.iter().map(|(_, gate)| &gate.id).collect();
    assert_eq!(
        view.gates.iter().map(|card| &card.gate).collect::<Vec<_>>(),
        gates
    );
    for ((proposal, gate), card) in open.iter().zip(&view.gates) {
        let tally = gate.tally(&stage.session.approvers(gate, &proposal.proposer));
        assert_eq!(
            (card.received, card.required),
            (tally.received, tally.required)
        );
        assert_eq!(card.awaited, tally.awaited);
        assert_eq!(card.votes, gate.approvals);
        assert_eq!(card.digest, proposal.assessment.digest);
        assert_eq!(card.deadline, gate.deadline());
        assert_eq!(card.asked.edited_by, gate.amended_by);
    }
    let runs: BTreeSet<_> = stage
        .session
        .running()
        .map(|(open, _)| open.id.clone())
        .collect();
    assert_eq!(running(view), runs);
    assert_eq!(view.paused, stage.session.paused_until_back());
}

/// Someone who comes late, and is told only so much of the past, sees the same gates and runs.
fn invariant_late_joiner_agrees(stage: &Stage, all: &View, history: usize) {
    let mut late = View::default();
    late.fold(&stage.welcome_envelope());
    let missed = stage.log.len().saturating_sub(history);
    for entry in &stage.log[missed..] {
        stage
            .seen(entry)
            .iter()
            .for_each(|envelope| late.fold(envelope));
        assert_eq!(
            cards(&late),
            cards(all),
            "the past opens and closes nothing"
        );
    }
    assert_eq!(running(&late), running(all));
    assert_eq!(late.config, all.config);
    assert_eq!(late.me, all.me);
}

/// A connection that was lost for a while, and the welcome when it is back.
fn resumed(told: &[Envelope], lost: usize, back: usize, welcome: &Envelope, again: usize) -> View {
    let mut resumed = view(&told[..lost]);
    resumed.fold(welcome);
    assert!(lost <= back);
    told[lost.saturating_sub(again)..]
        .iter()
        .for_each(|envelope| resumed.fold(envelope));
    resumed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_view_agrees_with_the_core(
        dice in prop::collection::vec((0u8..28, 0usize..5, 0usize..40, 0usize..6), 1..60),
        back in 0usize..60, gap in 0usize..20, again in 0usize..10, history in 0usize..80,
    ) {
        let mut stage = opening();
        let mut live = view(&stage.told);
        let mut folded = stage.told.len();
        let mut welcome = None;
        for (number, dice) in dice.iter().enumerate() {
            let next = step(&stage, number, *dice);
            stage.step(&next);
            stage.told[folded..].iter().for_each(|envelope| live.fold(envelope));
            folded = stage.told.len();
            invariant_view_agrees_with_the_core(&stage, &live);
            if number == back {
                welcome = Some((stage.told.len(), stage.welcome_envelope()));
            }
        }
        invariant_late_joiner_agrees(&stage, &live, history);
        if let Some((back, welcome)) = welcome {
            let lost = back.saturating_sub(gap);
            let kept: Vec<_> = stage.told.iter().filter(|told| is_kept(told)).cloned().collect();
            let lost = stage.told[..lost].iter().filter(|told| is_kept(told)).count();
            let resumed = resumed(&kept, lost, kept.len(), &welcome, again);
            prop_assert_eq!(cards(&resumed), cards(&live));
            prop_assert_eq!(running(&resumed), running(&live));
            let ids = |view: &View| view.commands.iter().map(|one| (one.id.clone(), one.state)).collect::<Vec<_>>();
            prop_assert_eq!(ids(&resumed), ids(&live));
        }
        let mut twice = live.clone();
        let log = stage.told.iter().filter(|told| is_kept(told));
        log.for_each(|envelope| twice.fold(envelope));
        prop_assert_eq!(twice, live);
    }
}

fn is_kept(envelope: &Envelope) -> bool {
    // The viewer's own welcome goes with the log, so that the story can be told without whispers.
    envelope.seq.is_some() || matches!(envelope.message, ServerMessage::SessionWelcome(_))
}
