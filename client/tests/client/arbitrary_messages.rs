//! Checks that a view never panics and stays bounded, whatever messages arrive in whatever order.

use crate::support::{at, fold_all, id};
use proptest::prelude::*;
use pvp_client::View;
use pvp_client::view::{MAX_HISTORY, MAX_ITEMS, MAX_PARTICIPANTS, MAX_PROPOSALS};
use pvp_protocol::{
    Envelope, EnvelopeHeader, ParticipantId, Role, Sender, ServerMessage, SessionId,
};
use serde_json::{Value, json};

/// Upper bound for a view's size as JSON, in bytes. Most of it is output.
const MAX_VIEW_BYTES: usize = 64 * 1024 * 1024;

fn server_envelope(seq: Option<u64>, sender: &str, kind: &str, payload: &Value) -> Envelope {
    let message = ServerMessage::parse_payload(kind, &payload.to_string())
        .unwrap()
        .unwrap_or_else(|error| panic!("{kind} {payload}: {error}"));
    let sender = match sender {
        "system" => Sender::System,
        name => Sender::Participant(ParticipantId::parse(name).unwrap()),
    };
    Envelope {
        header: EnvelopeHeader {
            id: id(&format!("m{}", seq.unwrap_or_default())),
            session: SessionId::parse("s").unwrap(),
            sender,
            reference: None,
            causal_refs: Vec::new(),
            fork: None,
        },
        at: at(seq.unwrap_or_default()),
        seq,
        message,
    }
}

fn pick<'a>(n: u64, words: &[&'a str]) -> &'a str {
    words[n as usize % words.len()]
}

fn digest(n: u64) -> String {
    format!("{:064x}", n % 3)
}

fn assessment(n: u64) -> Value {
    let category = pick(n, &["read", "write", "destructive", "blocked"]);
    json!({"category": category, "risk": "low", "rule": "r", "reason": "because",
        "profile": "none", "digest": digest(n), "policy": "p"})
}

fn request(proposal: &str, n: u64) -> Value {
    json!({"action_type": "tool", "action_ref": proposal, "quorum": {"type": "any", "count": n % 3},
        "timeout_seconds": 3, "message": "m", "category": "write", "digest": digest(n),
        "deadline": at(n % 1000), "on_timeout": "escalate", "voters": ["a", "b"]})
}

fn announce(who: &str, n: u64) -> Value {
    let kind = pick(n, &["human", "agent"]);
    let role = pick(n / 2, &["admin", "observer"]);
    json!({"id": who, "name": who, "type": kind, "roles": [role], "transport": "websocket"})
}

fn welcome(who: &str, proposal: &str, n: u64) -> Value {
    let mut person = announce(who, n);
    person["presence"] = json!("away");
    let action = json!({"command": {"form": "shell", "line": "make"}});
    json!({
        "participant": who, "roles": [], "capabilities": [], "config": {}, "head": n,
        "people": [person],
        "gates": [{"gate": "g", "request": request(proposal, n), "action": action,
            "assessment": assessment(n), "proposer": "c", "description": "d", "escalated": n.is_multiple_of(2)}],
        "running": [{"tool_proposal": format!("m{}", n % 7), "executor": "c", "command": "ls",
            "mode": "background", "since": at(n % 100)}],
        "limits": pvp_protocol::Limits::default(),
        "extensions": {"supports_shell_exec": true, "supports_amend": true,
            "supports_allow_rules": true, "supports_resume": true, "supports_output_read": true,
            "supports_forks": false},
        "paused": "a and b", "server": "x"
    })
}

fn execute(proposal: &str, n: u64) -> Value {
    let action = json!({"command": {"form": "argv", "command": "ls", "args": ["x"]}});
    json!({"tool_proposal": proposal, "approved_by": ["a"], "grant": {
        "id": "grant", "executor": "c", "action": action, "digest": digest(n),
        "limits": {"timeout_ms": 1, "output_bytes": 1}, "profile": "none",
        "expires_at": at(9), "cleared_by": "quorum"}})
}

/// One message about a few participants and proposals, whether or not it makes sense.
fn arbitrary_message(
    kind: u8,
    who: &str,
    proposal: &str,
    n: u64,
    text: &str,
) -> (&'static str, Value) {
    let arguments = json!({"full_command": text});
    match kind % 40 {
        0 => ("session.welcome", welcome(who, proposal, n % 50)),
        1 => ("session.create", json!({"name": text})),
        2 => ("session.leave", json!({})),
        3 => (
            "session.end",
            json!({"reason": text, "final_state": "aborted"}),
        ),
        4 => (
            "session.config_update",
            json!({"changes": {"four_eyes": n.is_multiple_of(2)}, "reason": text}),
        ),
        5 => ("session.ack", json!({"id": proposal})),
        6 => ("participant.announce", announce(who, n)),
        7 => (
            "participant.role_change",
            json!({"participant": who, "old_roles": [],
            "new_roles": ["approver"], "changed_by": "a", "capabilities": ["exec"]}),
        ),
        8 => (
            "presence.update",
            json!({"participant": who, "status": "away", "last_active": at(n % 99)}),
        ),
        9 => (
            "context.add",
            json!({"key": text, "content_type": "text", "content": text}),
        ),
        10 => (
            "context.update",
            json!({"key": text, "diff": text, "reason": text}),
        ),
        11 => ("context.remove", json!({"key": text, "reason": text})),
        12 => (
            "secret.share",
            json!({"key": text, "scope": [who], "value_ref": text}),
        ),
        13 => ("secret.revoke", json!({"key": text, "reason": text})),
        14 => ("prompt.draft", json!({"content": text, "contributors": []})),
        15 => (
            "prompt.submit",
            json!({"content": text, "target_agent": who, "contributors": [], "context_keys": [text]}),
        ),
        16 => (
            "prompt.amend",
            json!({"original_prompt": proposal, "amendment": text, "reason": text}),
        ),
        17 => (
            "thinking.start",
            json!({"agent": who, "prompt_ref": proposal, "visible_to": "all"}),
        ),
        18 => ("thinking.chunk", json!({"text": text})),
        19 => ("thinking.end", json!({"summary": text})),
        20 => (
            "response.start",
            json!({"agent": who, "prompt_ref": proposal}),
        ),
        21 => ("response.chunk", json!({"text": text})),
        22 => ("response.end", json!({"finish_reason": "complete"})),
        23 => (
            "tool.propose",
            json!({"tool_name": pick(n, &["shell", "other"]),
            "arguments": arguments, "agent": who, "risk_level": "low", "description": text,
            "requires_approval": false, "category": "all", "assessment": assessment(n)}),
        ),
        24 => (
            "shell.exec",
            json!({"command": text, "assessment": assessment(n)}),
        ),
        25 => ("gate.request", request(proposal, n)),
        26 => (
            "gate.approve",
            json!({"gate": proposal, "approver": who, "comment": text}),
        ),
        27 => (
            "tool.reject",
            json!({"tool_proposal": proposal, "rejector": who, "reason": text}),
        ),
        28 => (
            "gate.amend",
            json!({"gate": proposal, "arguments": arguments, "digest": digest(n),
            "assessment": assessment(n + 1), "voters": [who]}),
        ),
        29 => (
            "gate.timeout",
            json!({"gate": proposal, "approvals_received": 1, "approvals_required": 2,
            "resolution": "escalated", "quorum": {"type": "all"}, "voters": [who]}),
        ),
        30 => (
            "gate.resolve",
            json!({"gate": format!("m{}", n % 9), "tool_proposal": proposal,
            "outcome": pick(n, &["approved", "rejected", "timed_out", "cancelled"]),
            "how": "quorum", "at": at(1)}),
        ),
        31 | 32 => ("tool.execute", execute(proposal, n)),
        33 | 34 => (
            "tool.output",
            json!({"tool_proposal": proposal, "stream": pick(n, &["stdout", "stderr"]),
            "text": text, "complete": n.is_multiple_of(5), "offset": n}),
        ),
        35 => (
            "tool.result",
            json!({"tool_proposal": proposal, "success": true, "duration_ms": n,
            "result": {"exitCode": null, "stdout": text, "stderr": text, "signal": n, "truncated": {"stdout": true}}}),
        ),
        36 => ("tool.cancel", json!({"tool_proposal": proposal})),
        37 => (
            "policy.allow",
            json!({"prefix": [text], "expires_at": at(n % 500)}),
        ),
        38 => (
            "interrupt.raise",
            json!({"urgency": "stop", "message": text}),
        ),
        _ => (
            "interrupt.acknowledge",
            json!({"interrupt": proposal, "by": who, "action_taken": "stopped"}),
        ),
    }
}

type MessageSeed = (u8, usize, u64, u64, String, Option<u64>);

fn message_seed() -> impl Strategy<Value = MessageSeed> {
    let number = prop_oneof![0u64..20, any::<u64>()];
    (
        any::<u8>(),
        0usize..4,
        0u64..12,
        number,
        "\\PC{0,12}|[\u{0}-\u{1f}é\u{202e}]{0,4}",
        prop::option::of(1u64..200),
    )
}

fn arbitrary_envelope(index: usize, (kind, who, proposal, n, text, seq): &MessageSeed) -> Envelope {
    let who = ["a", "b", "c", "system"][*who];
    let participant = if who == "system" { "a" } else { who };
    let (kind, payload) = arbitrary_message(*kind, participant, &format!("m{proposal}"), *n, text);
    let mut envelope = server_envelope(seq.map(|seq| seq + index as u64), who, kind, &payload);
    envelope.header.id = id(&format!("m{}", index % 12));
    envelope.header.reference = n.is_multiple_of(2).then(|| id(&format!("m{proposal}")));
    envelope
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_messages_breaks_a_view(message_seed in prop::collection::vec(message_seed(), 0..120)) {
        let envelopes: Vec<_> = message_seed.iter().enumerate().map(|(index, message_seed)| arbitrary_envelope(index, message_seed)).collect();
        let mut view = View::default();
        for envelope in &envelopes {
            view.fold(envelope);
            for card in &view.gates {
                let _ = (card.remaining_ms(at(5)), card.standing.description());
                prop_assert!(view.proposal(&card.proposal).is_some(), "a card has its command");
            }
        }
        let log: Vec<_> = envelopes.iter().filter(|envelope| envelope.seq.is_some()).collect();
        let before = view.clone();
        log.into_iter().for_each(|envelope| view.fold(envelope));
        prop_assert_eq!(&view, &before);
        prop_assert!(serde_json::to_string(&view).unwrap().len() < MAX_VIEW_BYTES);
    }
}

#[test]
fn a_flood_of_small_messages_stays_bounded() {
    let mut view = View::default();
    for seq in 1..30_000u64 {
        let (who, proposal) = (format!("p{}", seq % 20), format!("m{}", seq - seq % 7));
        let (kind, payload) = arbitrary_message(
            (seq % 39 + 1) as u8,
            &who,
            &proposal,
            seq,
            &format!("text {seq}"),
        );
        view.fold(&server_envelope(Some(seq), &who, kind, &payload));
    }
    let lists = [
        ("stream", view.stream.items.len(), MAX_ITEMS),
        ("commands", view.commands.len(), MAX_PROPOSALS),
        ("history", view.history.len(), MAX_HISTORY),
        ("gates", view.gates.len(), 256),
        ("resolved", view.resolved.len(), 100),
        ("rules", view.rules.len(), 200),
        ("secrets", view.secrets.len(), 200),
        ("context", view.context.len(), 2000),
        ("interrupts", view.interrupts.len(), 256),
    ];
    for (name, length, max) in lists {
        assert!(length <= max, "{name}: {length}");
    }
    let bytes = serde_json::to_string(&view).unwrap().len();
    assert!(bytes < 4 * 1024 * 1024, "{bytes}");
}

#[test]
fn participants_are_bounded_and_those_who_left_are_dropped_first() {
    let mut view = View::default();
    for seq in 1..3000u64 {
        let who = format!("p{}", seq / 2);
        let (kind, payload) =
            arbitrary_message(if seq % 2 == 0 { 6 } else { 2 }, &who, "m1", seq, "");
        // Every third participant stays.
        if kind == "participant.announce" || !seq.is_multiple_of(3) {
            view.fold(&server_envelope(Some(seq), &who, kind, &payload));
            view.fold(&server_envelope(
                None,
                &who,
                "prompt.draft",
                &json!({"content": "x", "contributors": []}),
            ));
        }
    }
    assert_eq!(
        (view.people.len(), view.drafts.len()),
        (MAX_PARTICIPANTS, 200)
    );
    assert_eq!(view.present().count(), 500);
}

/// A copy of the message with this sequence number, about this proposal.
fn repeat_for_proposal(template: &Envelope, seq: u64, proposal: &str) -> Envelope {
    let mut envelope = template.clone();
    (envelope.seq, envelope.header.id) = (Some(seq), id(&format!("m{seq}")));
    if let ServerMessage::ToolPropose(_) = &envelope.message {
        envelope.header.id = id(proposal);
    } else if let ServerMessage::ToolExecute(execute) = &mut envelope.message {
        execute.tool_proposal = id(proposal);
    } else if let ServerMessage::ToolOutput(output) = &mut envelope.message {
        (output.tool_proposal, output.offset) = (id(proposal), None);
    } else if let ServerMessage::ToolResult(result) = &mut envelope.message {
        result.tool_proposal = id(proposal);
    }
    envelope
}

#[test]
fn a_flood_of_large_texts_stays_bounded() {
    let large = "x".repeat(300_000);
    let template = |kind: u8| {
        let (kind, payload) = arbitrary_message(kind, "a", "m1", 1, &large);
        server_envelope(None, "a", kind, &payload)
    };
    let kinds = [
        23, 31, 33, 34, 35, 15, 16, 17, 18, 3, 4, 9, 12, 14, 26, 27, 37, 38,
    ];
    let templates = kinds.map(template);
    let (mut view, mut seq) = (View::default(), 0);
    for number in 0..MAX_PROPOSALS + 10 {
        // The first five are about commands; the other kinds exceed their bounds with fewer
        // messages.
        let kinds = if number % 6 == 0 { templates.len() } else { 5 };
        for template in &templates[..kinds] {
            seq += 1;
            view.fold(&repeat_for_proposal(template, seq, &format!("p{number}")));
        }
    }
    let bytes = serde_json::to_string(&view).unwrap().len();
    assert!(bytes < MAX_VIEW_BYTES, "{bytes}");
    assert_eq!(view.commands.len(), MAX_PROPOSALS);
    assert!(view.stream.dropped > 0);
}

#[test]
fn messages_of_another_session_are_ignored() {
    let mine = server_envelope(Some(1), "a", "session.create", &json!({"name": "mine"}));
    let mut other = server_envelope(Some(2), "a", "session.create", &json!({"name": "other"}));
    other.header.session = SessionId::parse("other").unwrap();
    assert_eq!(fold_all([&mine, &other]), fold_all([&mine]));
}

#[test]
fn a_command_too_long_to_show_cannot_be_approved() {
    let announce = json!({"id": "a", "name": "a", "type": "human", "roles": ["admin"], "transport": "websocket"});
    let mut person = announce.clone();
    person["presence"] = json!("active");
    let mut welcome = welcome("a", "m9", 0);
    (welcome["people"], welcome["gates"], welcome["running"]) =
        (json!([person]), json!([]), json!([]));
    (welcome["roles"], welcome["capabilities"]) =
        (json!(["admin"]), json!(Role::Admin.capabilities()));
    let proposal = |text: &str| {
        let (kind, payload) = arbitrary_message(23, "c", "", 0, text);
        let propose = server_envelope(Some(1), "c", kind, &payload);
        let request = server_envelope(Some(2), "system", "gate.request", &request("m1", 0));
        fold_all([
            &server_envelope(None, "system", "session.welcome", &welcome),
            &propose,
            &request,
        ])
    };
    let may_vote = |view: &View| view.gates[0].standing.may_vote();
    assert!(may_vote(&proposal("make")));
    assert!(!may_vote(&proposal(&"x".repeat(300_000))));
}
