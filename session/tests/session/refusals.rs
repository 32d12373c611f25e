//! Tests of repeated ids and of refusals, which add no entry and change nothing.

use crate::support::*;
use pvp_session::{Answer, Input, SubmittedMessage};
use serde_json::{Value, json};

fn prompt(content: &str) -> Value {
    json!({"content": content, "target_agent": "bot", "contributors": [], "context_keys": []})
}

#[test]
fn a_repeated_message_is_acknowledged_and_not_applied_again() {
    let mut fixture =
        SessionFixture::team(json!({"default_gate_quorum": {"type": "any", "count": 2}}));
    fixture.sends_with_id("x", "dan", "prompt.submit", prompt("one"));
    assert_lines(
        fixture.sends_with_id("x", "dan", "prompt.submit", prompt("one")),
        &["= duplicate 8"],
    );
    fixture.proposes("p1", "make");
    let yes = json!({"gate": "p1", "approver": "bob"});
    fixture.sends_with_id("v", "bob", "gate.approve", yes.clone());
    assert_lines(
        fixture.sends_with_id("v", "bob", "gate.approve", yes.clone()),
        &["= duplicate 11"],
    );
    fixture.approves("cat", "p1");
    assert_lines(
        fixture.sends_with_id("v", "bob", "gate.approve", yes),
        &["= duplicate 11"],
    );
    let done = json!({"tool_proposal": "p1", "success": true, "duration_ms": 1});
    fixture.sends_with_id("z", "bot", "tool.result", done.clone());
    assert_lines(
        fixture.sends_with_id("z", "bot", "tool.result", done),
        &["= duplicate 15"],
    );
}

#[test]
fn the_same_id_with_other_content_is_refused() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.sends_with_id("x", "dan", "prompt.submit", prompt("one"));
    assert_refusal(
        fixture.refused_with_id("x", "dan", "prompt.submit", prompt("two")),
        "InvalidMessage: the id `x` was used for another message; give every message its own id",
    );
    assert_refusal(
        fixture.refused_with_id("x", "ann", "prompt.submit", prompt("one")),
        "InvalidMessage: the id `x` was used for another message; give every message its own id",
    );
    assert_refusal(
        fixture.refused_with_id("x", "dan", "tool.cancel", json!({"tool_proposal": "p1"})),
        "InvalidMessage: the id `x` was used for another message; give every message its own id",
    );
    let mut submitted = SubmittedMessage::new(
        message_id("x"),
        client_message("prompt.submit", &prompt("one")),
    );
    submitted.reference = Some(message_id("y"));
    let decision = fixture.submit("dan", submitted);
    let lines = fixture.lines(&decision);
    assert_lines(
        lines,
        &[
            "= refused InvalidMessage: the id `x` was used for another message; give every message its own id",
        ],
    );
}

#[test]
fn ids_of_server_messages_cannot_be_used() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "make");
    let gate = fixture.gate_id("p1");
    assert_refusal(
        fixture
            .refused_with_id(&gate, "bot", "tool.propose", shell_proposal("bot", "ls"))
            .replace(&gate, "GATE"),
        "InvalidMessage: the id `GATE` was used for another message; give every message its own id",
    );
    assert_refusal(
        fixture.refused_with_id("m1", "bot", "tool.propose", shell_proposal("bot", "ls")),
        "InvalidMessage: the id `m1` was used for another message; give every message its own id",
    );
}

#[test]
fn a_join_with_a_used_id_gets_a_fresh_one() {
    let mut fixture = SessionFixture::team(json!({}));
    let announce: pvp_protocol::payload::Announce =
        serde_json::from_value(announcement("fay", "human", &[])).unwrap();
    let decision = fixture.apply(Input::Join {
        identity: identity(&announce),
        announce,
        id: message_id("m1"),
    });
    assert_eq!(decision.answer, Answer::Accepted(Some(8)));
    assert_ne!(decision.entries[0].id(), &message_id("m1"));
}

#[test]
fn proposals_and_gates_are_remembered_longer_than_other_messages() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "make");
    fixture.proposes("p2", "ls");
    fixture.proposes("p3", "ls");
    let gate = fixture.gate_id("p1");
    fixture.sends(
        "bot",
        "tool.result",
        json!({"tool_proposal": "p3", "success": true, "duration_ms": 1}),
    );
    for _ in 0..8200 {
        let submitted = SubmittedMessage::new(
            fixture.next_id(),
            client_message("prompt.submit", &prompt("x")),
        );
        fixture.apply_unchecked(Input::Submit {
            by: participant_id("dan"),
            ceiling: None,
            submitted,
        });
    }
    let mut again = |name: &str| {
        let submitted = SubmittedMessage::new(
            message_id(name),
            client_message("tool.propose", &shell_proposal("bot", "ls")),
        );
        let decision = fixture.apply_unchecked(Input::Submit {
            by: participant_id("bot"),
            ceiling: None,
            submitted,
        });
        assert_eq!(decision.entries, []);
        entry_format::format_answer(&decision.answer).replace(&gate, "GATE")
    };
    assert_refusal(
        again("p1"),
        "= refused InvalidMessage: the id `p1` was used for another message; give every message its own id",
    );
    assert_refusal(
        again("p2"),
        "= refused InvalidMessage: the id `p2` was used for another message; give every message its own id",
    );
    assert_refusal(
        again("p3"),
        "= refused InvalidState: proposal `p3` was made before and is finished; propose again with a new id",
    );
    assert_refusal(
        again(&gate),
        "= refused InvalidMessage: the id `GATE` was used for another message; give every message its own id",
    );
}

#[test]
fn messages_from_non_members_are_refused() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_refusal(
        fixture.refused("zoe", "prompt.submit", prompt("x")),
        "Unauthorized: join the session first: send `session.join`",
    );
    fixture.leaves("dan");
    assert_refusal(
        fixture.refused("dan", "prompt.submit", prompt("x")),
        "Unauthorized: join the session first: send `session.join`",
    );
    assert_lines(fixture.advances_and_ticks(0), &["= accepted"]);
}

#[test]
fn join_and_create_are_refused_inside_a_session() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_refusal(
        fixture.refused("dan", "session.create", json!({})),
        "InvalidState: session `room` exists already; join it, or create one with another id",
    );
    assert_refusal(
        fixture.refused(
            "dan",
            "session.join",
            json!({"participant": announcement("dan", "human", &[]), "supported_versions": [1]}),
        ),
        "InvalidState: you have joined this session already",
    );
}

/// Sends every type of client message as everyone, with payloads that fit nothing. Each must be
/// answered without a panic, and the fixture checks that a refusal changes nothing.
#[test]
fn no_message_causes_a_panic() {
    let payloads = [
        ("session.create", json!({})),
        (
            "session.join",
            json!({"participant": announcement("dan", "human", &[]), "supported_versions": []}),
        ),
        (
            "session.config_update",
            json!({"changes": {}, "reason": ""}),
        ),
        ("participant.announce", announcement("dan", "human", &[])),
        (
            "participant.role_change",
            json!({"participant": "zoe", "old_roles": [], "new_roles": [], "changed_by": "ann"}),
        ),
        ("heartbeat.ping", json!({})),
        ("heartbeat.pong", json!({})),
        (
            "presence.update",
            json!({"participant": "dan", "status": "idle", "last_active": "2026-01-01T00:00:00Z"}),
        ),
        (
            "context.add",
            json!({"key": "k", "content_type": "text", "content": ""}),
        ),
        (
            "context.update",
            json!({"key": "none", "diff": "", "reason": ""}),
        ),
        ("context.remove", json!({"key": "none", "reason": ""})),
        (
            "secret.share",
            json!({"key": "K", "scope": [], "value_ref": ""}),
        ),
        ("secret.revoke", json!({"key": "none", "reason": ""})),
        ("prompt.draft", json!({"content": "", "contributors": []})),
        ("prompt.submit", prompt("")),
        (
            "prompt.amend",
            json!({"original_prompt": "none", "amendment": "", "reason": ""}),
        ),
        (
            "thinking.start",
            json!({"agent": "bot", "prompt_ref": "none", "visible_to": []}),
        ),
        ("thinking.chunk", json!({"text": ""})),
        ("thinking.end", json!({})),
        (
            "response.start",
            json!({"agent": "bot", "prompt_ref": "none"}),
        ),
        ("response.chunk", json!({"text": ""})),
        ("response.end", json!({"finish_reason": "error"})),
        ("tool.propose", shell_proposal("bot", "\u{1}")),
        (
            "tool.approve",
            json!({"tool_proposal": "none", "approver": "bob"}),
        ),
        (
            "tool.reject",
            json!({"tool_proposal": "none", "rejector": "bob", "reason": ""}),
        ),
        (
            "tool.output",
            json!({"tool_proposal": "none", "stream": "stdout", "text": "", "complete": false}),
        ),
        (
            "tool.result",
            json!({"tool_proposal": "none", "success": true, "duration_ms": 0}),
        ),
        ("gate.approve", json!({"gate": "none", "approver": "bob"})),
        (
            "gate.reject",
            json!({"gate": "none", "rejector": "bob", "reason": ""}),
        ),
        ("interrupt.raise", json!({"urgency": "stop", "message": ""})),
        (
            "interrupt.acknowledge",
            json!({"interrupt": "none", "by": "bot", "action_taken": "ignored"}),
        ),
        (
            "fork.create",
            json!({"name": "", "from_point": "none", "reason": "", "participants": [], "copy_context": true}),
        ),
        ("fork.switch", json!({"target_fork": "none"})),
        (
            "merge.propose",
            json!({"source_fork": "a", "target_fork": "b", "strategy": "manual", "summary": ""}),
        ),
        ("merge.execute", json!({"merge_proposal": "none"})),
        (
            "error",
            json!({"code": "AGENT_ERROR", "message": "", "recoverable": false}),
        ),
        (
            "gate.amend",
            json!({"gate": "none", "arguments": {}, "digest": "0".repeat(64)}),
        ),
        (
            "tool.discard",
            json!({"tool_proposal": "none", "trial": {}}),
        ),
        ("tool.cancel", json!({"tool_proposal": "none"})),
        ("tool.input", json!({"tool_proposal": "none"})),
        ("tool.renew", json!({"tool_proposals": ["none"]})),
        ("tool.defer", json!({"tool_proposal": "none", "seconds": 1})),
        ("shell.exec", json!({"command": ""})),
        (
            "policy.allow",
            json!({"prefix": [], "expires_at": "2026-01-01T00:00:00Z"}),
        ),
        ("policy.revoke", json!({"rule": "none"})),
        ("output.read", json!({"ref": "none"})),
        ("session.leave", json!({})),
        (
            "session.end",
            json!({"reason": "", "final_state": "aborted"}),
        ),
    ];
    assert_eq!(payloads.len(), pvp_protocol::ClientMessage::KINDS.len());
    let mut fixtures = [
        SessionFixture::team(json!({})),
        SessionFixture::team(json!({})),
        SessionFixture::uncreated(pvp_session::SessionSettings::default()),
    ];
    fixtures[1].sends(
        "ann",
        "session.end",
        json!({"reason": "", "final_state": "aborted"}),
    );
    for fixture in &mut fixtures {
        for (kind, payload) in &payloads {
            for who in ["ann", "bob", "cat", "dan", "eve", "bot", "zoe"] {
                fixture.sends(who, kind, payload.clone());
            }
        }
    }
}

#[test]
fn a_proposal_describes_only_so_many_deleted_files() {
    let mut fixture = SessionFixture::team(json!({}));
    let mut propose = shell_proposal("bot", "rm a");
    let file = json!({"path": "a", "bytes": 1, "in_git": "none"});
    propose["deleted_files"] = json!(vec![file.clone(); 17]);
    let refused = fixture.sends_with_id("p1", "bot", "tool.propose", propose.clone());
    assert!(
        refused[0].contains("`deleted_files` has at most 16 files"),
        "{refused:?}"
    );
    propose["deleted_files"] = json!([{"path": "a".repeat(5000), "bytes": 1, "in_git": "same"}]);
    let refused = fixture.sends_with_id("p2", "bot", "tool.propose", propose.clone());
    assert!(
        refused[0].contains("`deleted_files` has at most 16 files"),
        "{refused:?}"
    );
    propose["deleted_files"] = json!([file]);
    let accepted = fixture.sends_with_id("p3", "bot", "tool.propose", propose);
    assert!(
        accepted.iter().any(|line| line.contains("gate.request")),
        "{accepted:?}"
    );
}
