//! Plays random stories through the real session core and checks that the view agrees with it,
//! whether it was live, joined late or resumed.

use std::collections::BTreeSet;

use crate::support::{StoryPlayer, StoryStep, fold_all, id, participant_id};
use proptest::prelude::*;
use pvp_client::View;
use pvp_protocol::{Envelope, MessageId, ServerMessage};
use pvp_session::SessionSettings;
use serde_json::{Value, json};

const PARTICIPANTS: [(&str, &str); 5] = [
    ("ann", "admin"),
    ("bob", "approver"),
    ("cat", "navigator"),
    ("dan", "driver"),
    ("amy", "admin"),
];

const ROLES: [&str; 5] = ["admin", "approver", "navigator", "driver", "observer"];

/// The participant whose view is checked; they never leave.
const VIEWER: &str = "bob";

/// Random numbers for one step: what happens, who does it, to which proposal, and how.
type StepSeed = (u8, usize, usize, usize);

fn submit_step(by: &str, name: String, kind: &str, payload: Value) -> StoryStep {
    StoryStep::Say {
        by: by.to_owned(),
        id: name,
        kind: kind.to_owned(),
        payload,
        reference: None,
    }
}

fn join_step(who: &str, kind: &str, roles: &[&str], number: usize) -> StoryStep {
    let mut announce = json!({
        "id": who, "name": who, "type": kind, "roles": roles, "transport": "websocket"
    });
    if kind == "agent" {
        announce["executor"] = json!({"profiles": ["read"], "shell_exec": true});
    }
    StoryStep::Join {
        id: format!("j{number}"),
        announce: serde_json::from_value(announce).unwrap(),
        after: None,
        history: None,
    }
}

fn new_story() -> StoryPlayer {
    let mut player = StoryPlayer::new(VIEWER, SessionSettings::default());
    let config = json!({
        "on_gate_timeout": "escalate", "gate_timeout_seconds": 60,
        "default_gate_quorum": {"type": "any", "count": 3}
    });
    player.play_step(&StoryStep::Create {
        by: "ann".to_owned(),
        id: "c".to_owned(),
        viewer: VIEWER.to_owned(),
        name: None,
        open: false,
        config: serde_json::from_value(config).unwrap(),
    });
    for (number, (name, role)) in PARTICIPANTS.iter().enumerate() {
        player.play_step(&join_step(name, "human", &[role], number));
    }
    player.play_step(&join_step("bot", "agent", &[], 90));
    player
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

/// One step. The session refuses a step that is invalid in its current state; that is tested too.
fn random_step(
    player: &StoryPlayer,
    number: usize,
    (what, who, which, how): StepSeed,
) -> StoryStep {
    let (who, old_role) = PARTICIPANTS[who % PARTICIPANTS.len()];
    let name = format!("m{number}");
    let open: Vec<_> = player.session.proposals().collect();
    let proposal = match open.get(which % open.len().max(1)) {
        Some(open) if which > 2 => open.id.to_string(),
        Some(_) | None => format!("m{which}"),
    };
    let digest = player
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
            submit_step("bot", name, "tool.propose", propose)
        }
        4..=8 => {
            let vote = json!({"gate": proposal, "approver": who, "digest": digest});
            submit_step(who, name, "gate.approve", vote)
        }
        9 => {
            let vote = json!({"gate": proposal, "rejector": who, "reason": "no", "digest": digest});
            submit_step(who, name, "gate.reject", vote)
        }
        10 => {
            let arguments = json!({"full_command": COMMANDS[how % COMMANDS.len()]});
            let digest = digest.unwrap_or_else(|| pvp_protocol::Digest::new([0; 32]));
            let amend = json!({"gate": proposal, "arguments": arguments, "digest": digest});
            submit_step(who, name, "gate.amend", amend)
        }
        11..=13 => {
            let text = "é\n".repeat(how);
            let output = json!({
                "tool_proposal": proposal, "stream": "stdout", "text": text, "complete": false
            });
            submit_step("bot", name, "tool.output", output)
        }
        14 => {
            let result = json!({"tool_proposal": proposal, "success": true, "duration_ms": 1});
            submit_step("bot", name, "tool.result", result)
        }
        15 => submit_step(who, name, "tool.cancel", json!({"tool_proposal": proposal})),
        16 if who != VIEWER => submit_step(who, name, "session.leave", json!({})),
        16 | 17 if who != VIEWER => join_step(who, "human", &[role], number + 1000),
        16 | 17 => join_step("bot", "agent", &[], number + 1000),
        18 => {
            let who = who.to_owned();
            if how > 2 {
                StoryStep::Quiet { who }
            } else {
                StoryStep::Back { who }
            }
        }
        19 => StoryStep::Wait {
            ms: how as u64 * 10_000,
        },
        20 | 21 => StoryStep::Tick,
        22 => {
            let held = player.session.member(&participant_id(who));
            let old_roles = held.map(|member| json!(member.announce.roles));
            let change = json!({
                "participant": who, "old_roles": old_roles.unwrap_or(json!([old_role])),
                "new_roles": [role], "changed_by": "ann"
            });
            submit_step("ann", name, "participant.role_change", change)
        }
        23 => {
            let timeout = ["skip", "wait", "pause_session"][which % 3];
            let changes = json!({
                "default_gate_quorum": quorum(how), "four_eyes": which % 2 == 0,
                "on_participant_timeout": timeout
            });
            let update = json!({"changes": changes, "reason": "r"});
            submit_step("ann", name, "session.config_update", update)
        }
        24 => {
            let exec = json!({"command": COMMANDS[which % COMMANDS.len()]});
            submit_step("dan", name, "shell.exec", exec)
        }
        25 => {
            let urgency = ["pause", "stop"][how % 2];
            let raise = json!({"urgency": urgency, "message": "wait"});
            submit_step(who, name, "interrupt.raise", raise)
        }
        _ if which.is_multiple_of(7) => submit_step("bot", name, "session.leave", json!({})),
        _ => join_step("bot", "agent", &[], number + 1000),
    }
}

/// The parts of a card that must agree whether it came from messages or from a welcome. The editor
/// is left out.
fn comparable_cards(view: &View) -> Vec<Value> {
    let card = |card: &pvp_client::view::GateCard| {
        json!({
            "gate": card.gate, "proposal": card.proposal, "digest": card.digest,
            "quorum": card.quorum, "deadline": card.deadline, "escalated": card.escalated,
            "votes": card.votes, "category": card.category, "command": card.requested.command
        })
    };
    view.gates.iter().map(card).collect()
}

fn running_ids(view: &View) -> BTreeSet<MessageId> {
    view.running().map(|proposal| proposal.id.clone()).collect()
}

/// The view has the same gates with the same tallies, and the same runs, as the core.
fn invariant_view_agrees_with_the_core(player: &StoryPlayer, view: &View) {
    let open = player.session.open_gates();
    let gates: Vec<_> = open.iter().map(|(_, gate)| &gate.id).collect();
    assert_eq!(
        view.gates.iter().map(|card| &card.gate).collect::<Vec<_>>(),
        gates
    );
    for ((proposal, gate), card) in open.iter().zip(&view.gates) {
        let tally = gate.tally(&player.session.approvers(gate, &proposal.proposer));
        assert_eq!(
            (card.received, card.required),
            (tally.received, tally.required)
        );
        assert_eq!(card.awaited, tally.awaited);
        assert_eq!(card.votes, gate.approvals);
        assert_eq!(card.digest, proposal.assessment.digest);
        assert_eq!(card.deadline, gate.deadline());
        assert_eq!(card.requested.edited_by, gate.amended_by);
    }
    let runs: BTreeSet<_> = player
        .session
        .running()
        .map(|(open, _)| open.id.clone())
        .collect();
    assert_eq!(running_ids(view), runs);
    assert_eq!(view.paused, player.session.paused_for());
}

/// A participant who joins late and receives only part of the history sees the same gates and runs.
fn invariant_late_joiner_agrees(player: &StoryPlayer, all: &View, history: usize) {
    let mut late = View::default();
    late.fold(&player.welcome_envelope());
    let missed = player.log.len().saturating_sub(history);
    for entry in &player.log[missed..] {
        player
            .visible_envelope(entry)
            .iter()
            .for_each(|envelope| late.fold(envelope));
        assert_eq!(
            comparable_cards(&late),
            comparable_cards(all),
            "the past opens and closes nothing"
        );
    }
    assert_eq!(running_ids(&late), running_ids(all));
    assert_eq!(late.config, all.config);
    assert_eq!(late.me, all.me);
}

/// The view of a client that lost its connection after `lost` messages and resumed with a welcome;
/// the last `again` messages before the loss are delivered twice.
fn resumed(
    delivered: &[Envelope],
    lost: usize,
    back: usize,
    welcome: &Envelope,
    again: usize,
) -> View {
    let mut resumed = fold_all(&delivered[..lost]);
    resumed.fold(welcome);
    assert!(lost <= back);
    delivered[lost.saturating_sub(again)..]
        .iter()
        .for_each(|envelope| resumed.fold(envelope));
    resumed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_view_agrees_with_the_core(
        seed in prop::collection::vec((0u8..28, 0usize..5, 0usize..40, 0usize..6), 1..60),
        back in 0usize..60, gap in 0usize..20, again in 0usize..10, history in 0usize..80,
    ) {
        let mut player = new_story();
        let mut live = fold_all(&player.delivered);
        let mut folded = player.delivered.len();
        let mut welcome = None;
        for (number, seed) in seed.iter().enumerate() {
            let next = random_step(&player, number, *seed);
            player.play_step(&next);
            player.delivered[folded..].iter().for_each(|envelope| live.fold(envelope));
            folded = player.delivered.len();
            invariant_view_agrees_with_the_core(&player, &live);
            if number == back {
                welcome = Some((player.delivered.len(), player.welcome_envelope()));
            }
        }
        invariant_late_joiner_agrees(&player, &live, history);
        if let Some((back, welcome)) = welcome {
            let lost = back.saturating_sub(gap);
            let kept: Vec<_> = player.delivered.iter().filter(|envelope| is_logged(envelope)).cloned().collect();
            let lost = player.delivered[..lost].iter().filter(|envelope| is_logged(envelope)).count();
            let resumed = resumed(&kept, lost, kept.len(), &welcome, again);
            prop_assert_eq!(comparable_cards(&resumed), comparable_cards(&live));
            prop_assert_eq!(running_ids(&resumed), running_ids(&live));
            let ids = |view: &View| view.commands.iter().map(|one| (one.id.clone(), one.state)).collect::<Vec<_>>();
            prop_assert_eq!(ids(&resumed), ids(&live));
        }
        let mut twice = live.clone();
        let log = player.delivered.iter().filter(|envelope| is_logged(envelope));
        log.for_each(|envelope| twice.fold(envelope));
        prop_assert_eq!(twice, live);
    }
}

fn is_logged(envelope: &Envelope) -> bool {
    // The viewer's own welcome counts as logged, so that ephemeral messages can be left out.
    envelope.seq.is_some() || matches!(envelope.message, ServerMessage::SessionWelcome(_))
}
