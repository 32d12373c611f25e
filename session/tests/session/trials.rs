//! Tests of commands that are tried in the sandbox before anybody is asked.

use crate::support::*;
use pvp_session::{Input, SessionSettings};
use serde_json::{Value, json};

const PURE: &str = "python3 -c 'print(1)'";

/// The usual team, with an agent that tries commands.
fn team(config: Value) -> SessionFixture {
    team_with(config, json!({"profiles": ["read"], "trials": true}))
}

fn team_with(config: Value, executor_info: Value) -> SessionFixture {
    let mut fixture = SessionFixture::created(SessionSettings::default(), config);
    for (name, role) in [("ann", "admin"), ("bob", "approver")] {
        fixture.joins(announcement(name, "human", &[role]));
    }
    fixture.joins(executor_announcement("bot", executor_info));
    assert_eq!(fixture.session.head(), 4);
    fixture
}

fn trying() -> SessionFixture {
    team(json!({"try_unknown": true}))
}

fn kinds(lines: &[String]) -> Vec<String> {
    let kind = |line: &String| line.split(' ').nth(2).unwrap_or_default().to_owned();
    let entries = lines.iter().filter(|line| !line.starts_with('='));
    entries.map(kind).collect()
}

fn discard(denied: &[&str]) -> Value {
    json!({"tool_proposal": "p1", "trial": {"denied": denied}})
}

fn lost_result() -> Value {
    json!({"tool_proposal": "p1", "success": false, "duration_ms": 0, "error": "it did not start"})
}

/// The payload of the last message of a type.
fn last_payload(fixture: &SessionFixture, kind: &str) -> Value {
    let entries = fixture.log.iter().rev();
    let mut bodies = entries
        .filter_map(|entry| serde_json::from_slice::<Value>(&entry.body()).ok())
        .filter(|body| body["type"] == kind);
    bodies.next().expect("there is one")["payload"].take()
}

/// The terms of the last grant.
fn last_grant(fixture: &SessionFixture) -> Value {
    last_payload(fixture, "tool.execute")["grant"].take()
}

fn last_gate(fixture: &SessionFixture) -> Value {
    last_payload(fixture, "gate.request")
}

#[test]
fn a_command_that_nothing_is_known_about_is_tried_without_a_vote() {
    let mut fixture = trying();
    let lines = fixture.proposes("p1", PURE);
    assert_eq!(kinds(&lines), ["tool.propose", "tool.execute"]);
    let grant = last_grant(&fixture);
    assert_eq!(
        (&grant["cleared_by"], &grant["profile"]),
        (&json!("tried"), &json!("read"))
    );
    assert_eq!(
        grant["limits"],
        json!({"timeout_ms": 10_000, "output_bytes": 1_048_576})
    );
    assert_eq!(grant["approvals"], Value::Null);
    fixture.sends(
        "bot",
        "tool.output",
        json!({"tool_proposal": "p1", "stream": "stdout", "text": "1\n", "complete": true}),
    );
    fixture.sends(
        "bot",
        "tool.result",
        json!({
            "tool_proposal": "p1", "success": true, "duration_ms": 1,
            "result": {"exitCode": 0, "stdout": "1\n", "stderr": ""},
        }),
    );
    let result: Value = serde_json::from_slice(&fixture.log.last().unwrap().body()).unwrap();
    assert_eq!(result["payload"]["tried"], json!(true));
    assert_eq!(fixture.session.running().count(), 0);
    assert_eq!(fixture.session.open_gates().len(), 0);
}

#[test]
fn a_discarded_trial_opens_the_gate_that_there_would_have_been() {
    let mut fixture = trying();
    fixture.proposes("p1", PURE);
    let lines = fixture.sends("bot", "tool.discard", discard(&["write z"]));
    assert_eq!(kinds(&lines), ["tool.discard", "gate.request"]);
    let gate = last_gate(&fixture);
    assert_eq!(gate["trial"], json!({"denied": ["write z"]}));
    let message = gate["message"].as_str().unwrap();
    let expected = "tried in the sandbox, which denied: write z";
    assert!(message.contains(expected), "{message}");
    let trial_grant = last_grant(&fixture);
    // The trial's grant is spent: nothing can be reported on it any more.
    assert_refusal(
        fixture.refused("bot", "tool.discard", discard(&[])),
        "InvalidState: `p1` is not running",
    );
    let lines = fixture.approves("bob", "p1");
    assert_eq!(
        kinds(&lines),
        ["gate.approve", "gate.resolve", "tool.execute"]
    );
    let grant = last_grant(&fixture);
    assert_eq!(
        (&grant["cleared_by"], &grant["profile"]),
        (&json!("quorum"), &json!("none"))
    );
    assert_ne!(grant["id"], trial_grant["id"]);
    assert_refusal(
        fixture.refused("bot", "tool.discard", discard(&[])),
        "InvalidState: this command was not tried but runs; send its result",
    );
}

#[test]
fn without_the_setting_nothing_is_tried() {
    let mut fixture = team(json!({}));
    let lines = fixture.proposes("p1", PURE);
    assert_eq!(kinds(&lines), ["tool.propose", "gate.request"]);
}

#[test]
fn what_a_rule_knows_to_do_something_is_asked_for() {
    for line in [
        "touch z; echo done",
        "rm -rf build",
        "curl http://example.com",
        "unheard-of > out",
    ] {
        let mut fixture = trying();
        let lines = fixture.proposes("p1", line);
        assert_eq!(kinds(&lines), ["tool.propose", "gate.request"], "{line}");
    }
}

#[test]
fn an_agent_that_calls_it_dangerous_is_believed() {
    let mut fixture = trying();
    let mut propose = shell_proposal("bot", PURE);
    propose["risk_level"] = json!("high");
    let lines = fixture.sends_with_id("p1", "bot", "tool.propose", propose);
    assert_eq!(kinds(&lines), ["tool.propose", "gate.request"]);
}

#[test]
fn a_session_that_asks_for_every_shell_command_tries_none() {
    let config = json!({"try_unknown": true, "require_approval_for": ["shell_execute"]});
    let lines = team(config).proposes("p1", PURE);
    assert_eq!(kinds(&lines), ["tool.propose", "gate.request"]);
}

#[test]
fn an_executor_that_cannot_count_denials_is_asked_nothing_and_the_card_says_so() {
    for executor_info in [
        json!({"profiles": ["read"]}),
        json!({"profiles": [], "trials": true}),
    ] {
        let mut fixture = team_with(json!({"try_unknown": true}), executor_info);
        let lines = fixture.proposes("p1", PURE);
        assert_eq!(kinds(&lines), ["tool.propose", "gate.request"]);
        let notes = &fixture
            .session
            .proposal(&message_id("p1"))
            .unwrap()
            .assessment
            .notes;
        assert!(
            notes
                .iter()
                .any(|note| note.starts_with("not tried in the sandbox: ")),
            "{notes:?}"
        );
    }
}

#[test]
fn the_setting_is_refused_where_no_executor_could_try() {
    let mut fixture = team_with(json!({}), json!({"profiles": ["read"]}));
    let update = json!({"changes": {"try_unknown": true}, "reason": "test"});
    let refusal = fixture.refused("ann", "session.config_update", update.clone());
    assert!(
        refusal.contains("`try_unknown` needs an executor"),
        "{refusal}"
    );
    fixture.joins(executor_announcement(
        "bee",
        json!({"profiles": ["read"], "trials": true}),
    ));
    fixture.sends("ann", "session.config_update", update);
    assert!(fixture.session.config().try_unknown);
}

#[test]
fn an_executor_that_fails_to_try_it_leaves_it_to_the_gate() {
    let mut fixture = trying();
    fixture.proposes("p1", PURE);
    let lines = fixture.sends("bot", "tool.result", lost_result());
    assert_eq!(kinds(&lines), ["tool.discard", "gate.request"]);
    let gate = last_gate(&fixture);
    assert_eq!(gate["trial"], json!({"reason": "it did not start"}));
}

#[test]
fn an_executor_that_is_lost_during_a_trial_leaves_it_to_the_gate() {
    let mut fixture = trying();
    fixture.proposes("p1", PURE);
    let lines = fixture.advances_and_ticks(131);
    assert_eq!(kinds(&lines), ["tool.discard", "gate.request"]);
    assert_eq!(fixture.session.running().count(), 0);
}

#[test]
fn an_executor_that_leaves_takes_its_trial_with_it() {
    let mut fixture = trying();
    fixture.proposes("p1", PURE);
    let lines = fixture.leaves("bot");
    assert_eq!(kinds(&lines), ["session.leave", "tool.result"]);
    assert_eq!(fixture.session.open_gates().len(), 0);
}

#[test]
fn a_trial_that_was_cancelled_is_not_asked_for() {
    let mut fixture = trying();
    fixture.proposes("p1", PURE);
    fixture.sends("ann", "tool.cancel", json!({"tool_proposal": "p1"}));
    let lines = fixture.sends("bot", "tool.discard", discard(&[]));
    assert_eq!(kinds(&lines), ["tool.discard", "tool.result"]);
    assert_eq!(fixture.session.open_gates().len(), 0);
}

#[test]
fn a_trial_that_outlives_its_session_is_closed() {
    let mut fixture = trying();
    fixture.proposes("p1", PURE);
    let end = json!({"reason": "done", "final_state": "completed"});
    fixture.sends("ann", "session.end", end);
    let lines = fixture.sends("bot", "tool.discard", discard(&["write z"]));
    assert_eq!(kinds(&lines), ["tool.discard", "tool.result"]);
}

#[test]
fn an_edited_command_is_not_tried_again() {
    let mut fixture = trying();
    fixture.proposes("p1", PURE);
    fixture.sends("bot", "tool.discard", discard(&["write z"]));
    let amend = json!({
        "gate": fixture.gate_id("p1"), "digest": fixture.digest("p1"),
        "arguments": {"full_command": "python3 -c 'print(2)'"},
    });
    let lines = fixture.sends("bob", "gate.amend", amend);
    assert_eq!(kinds(&lines), ["gate.amend"]);
    let gates = fixture.session.open_gates();
    assert_eq!(gates[0].1.request.trial, None, "it was another command");
}

#[test]
fn only_the_executor_discards_and_only_before_it_told_anything() {
    let mut fixture = trying();
    fixture.proposes("p1", PURE);
    let refusal = fixture.refused("bob", "tool.discard", discard(&[]));
    assert!(refusal.contains("bot"), "{refusal}");
    let long = "x".repeat(2000);
    for denied in [&["a\nb"][..], &[&long], &["x"; 17]] {
        let refusal = fixture.refused("bot", "tool.discard", discard(denied));
        assert!(refusal.contains("`trial` names at most"), "{refusal}");
    }
    fixture.sends(
        "bot",
        "tool.output",
        json!({"tool_proposal": "p1", "stream": "stdout", "text": "1\n", "complete": true}),
    );
    assert_refusal(
        fixture.refused("bot", "tool.discard", discard(&[])),
        "InvalidState: its output was sent already; send its result",
    );
    // Lost after it told something: as any run.
    fixture.advance(131);
    let decision = fixture.apply(Input::Tick);
    let lines = fixture.lines(&decision);
    assert_eq!(kinds(&lines), ["tool.result"]);
}
