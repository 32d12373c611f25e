//! Tests of calls that an agent client runs by itself: degrees, leases, deferring, attested results.

use crate::support::*;
use pvp_session::Input;
use serde_json::{Value, json};

/// A team whose agent `cli` is an agent client in `/srv/app`.
fn team(config: Value) -> SessionFixture {
    let mut fixture = SessionFixture::team(config);
    let place = json!({"profiles": [], "edits": true, "working_directory": "/srv/app"});
    fixture.joins(executor_announcement("cli", place));
    fixture
}

fn call(line: &str) -> Value {
    let mut proposal = shell_proposal("cli", line);
    proposal["arguments"]["cwd"] = json!("/srv/app");
    proposal["runs"] = json!("client");
    proposal["origin"] = json!({"client": "claude", "session": "c1", "call": "t1"});
    proposal
        .as_object_mut()
        .expect("an object")
        .remove("risk_level");
    proposal
}

fn proposes(fixture: &mut SessionFixture, id: &str, proposal: Value) -> Vec<String> {
    fixture.sends_with_id(id, "cli", "tool.propose", proposal)
}

/// The payload of the last entry of this kind, as it is stored.
fn last(fixture: &SessionFixture, kind: &str) -> Value {
    let entries = fixture.log.iter().rev();
    let mut envelopes = entries.map(|entry| serde_json::to_value(&entry.envelope).expect("JSON"));
    envelopes
        .find(|it| it["type"] == kind)
        .expect("such an entry")["payload"]
        .clone()
}

fn expire(fixture: &mut SessionFixture, id: &str) -> Vec<String> {
    let proposal = message_id(id);
    let decision = fixture.apply(Input::LeaseExpired { proposal });
    fixture.lines(&decision)
}

#[test]
fn nothing_that_an_executor_enforces_is_pretended_for_a_client() {
    let mut fixture = team(json!({}));
    proposes(&mut fixture, "p1", call("touch x"));
    fixture.approves("ann", "p1");
    let execute = last(&fixture, "tool.execute");
    for absent in ["nonce", "limits", "profile", "secret_env"] {
        assert_eq!(execute["grant"].get(absent), None, "{execute}");
        assert_eq!(execute.get(absent), None, "{execute}");
    }
    assert_eq!(execute["grant"]["runs"], "client");
    let proposed = last(&fixture, "tool.propose");
    assert_eq!(proposed["degree"], "hooked");
    // The grant of an executor has them all.
    fixture.proposes("p2", "touch y");
    fixture.approves("ann", "p2");
    let execute = last(&fixture, "tool.execute");
    assert!(execute["grant"]["limits"].is_object(), "{execute}");
    assert!(execute["grant"].get("runs").is_none(), "{execute}");
}

#[test]
fn a_client_never_says_that_an_executor_ran_it() {
    let mut fixture = team(json!({}));
    let mut proposal = call("touch x");
    proposal["degree"] = json!("executed");
    assert_refusal(
        fixture.refused("cli", "tool.propose", proposal),
        "InvalidMessage: what the client runs is `held` or `hooked`, not `executed`",
    );
    let mut held = call("touch x");
    held["degree"] = json!("held");
    proposes(&mut fixture, "p1", held);
    assert_eq!(last(&fixture, "tool.propose")["degree"], "held");
    // An executor of ours needs no degree, and a claim of one is dropped.
    let mut claimed = shell_proposal("bot", "touch x");
    claimed["degree"] = json!("held");
    fixture.sends_with_id("p2", "bot", "tool.propose", claimed);
    assert_eq!(last(&fixture, "tool.propose").get("degree"), None);
}

#[test]
fn a_client_gets_nothing_that_only_an_executor_can_give() {
    for (name, value) in [
        ("mode", json!("pty")),
        ("secrets", json!(["KEY"])),
        ("timeout", json!(5)),
    ] {
        let mut fixture = team(json!({}));
        let mut proposal = call("touch x");
        proposal["arguments"][name] = value;
        let refusal = fixture.refused("cli", "tool.propose", proposal);
        assert!(refusal.starts_with("InvalidState: "), "{name}: {refusal}");
    }
    let mut fixture = team(json!({}));
    let mut proposal = call("touch x");
    proposal["origin"]["session"] = json!("x".repeat(257));
    let refusal = fixture.refused("cli", "tool.propose", proposal);
    assert!(refusal.starts_with("InvalidMessage: `origin`"), "{refusal}");
}

#[test]
fn reads_of_a_client_need_a_vote_unless_the_session_trusts_its_workspace() {
    let gated = |fixture: &mut SessionFixture, id: &str, line: &str| {
        let lines = proposes(fixture, id, call(line));
        lines.iter().any(|line| line.contains("gate.request"))
    };
    let mut asks = team(json!({}));
    assert!(gated(&mut asks, "p1", "ls"));
    let mut trusts = team(json!({"client_reads": "workspace"}));
    assert!(!gated(&mut trusts, "p1", "ls"));
    assert!(!gated(&mut trusts, "p2", "cat src/main.rs"));
    for (id, line) in [
        ("p3", "cat /home/ann/notes"),
        ("p4", "cat ../other/notes"),
        ("p5", "cat .env"),
        ("p6", "touch x"),
    ] {
        assert!(gated(&mut trusts, id, line), "{line}");
    }
    // The proposal's own directory counts, not what the agent announced.
    let mut elsewhere = call("cat notes");
    elsewhere["arguments"]["cwd"] = json!("/home/ann");
    let lines = proposes(&mut trusts, "p7", elsewhere);
    assert!(
        lines.iter().any(|line| line.contains("gate.request")),
        "{lines:?}"
    );
    // Where the client works must be known.
    let mut unknown = SessionFixture::team(json!({"client_reads": "workspace"}));
    unknown.joins(executor_announcement("cli", json!({"profiles": []})));
    assert!(gated(&mut unknown, "p1", "ls"));
}

#[test]
fn a_call_whose_client_is_gone_is_withdrawn_or_closed_as_unknown() {
    let mut fixture = team(json!({}));
    proposes(&mut fixture, "p1", call("touch x"));
    let lines = expire(&mut fixture, "p1");
    assert_eq!(lines.len(), 2, "{lines:?}");
    let resolved = last(&fixture, "gate.resolve");
    assert_eq!(resolved["outcome"], "cancelled");
    assert_eq!(resolved["reason"], "the client that asked is gone");
    assert_refusal(
        fixture.refused(
            "ann",
            "gate.approve",
            json!({"gate": "p1", "approver": "ann"}),
        ),
        "InvalidState: the gate is closed: the proposal is cancelled",
    );
    proposes(&mut fixture, "p2", call("touch y"));
    fixture.approves("ann", "p2");
    expire(&mut fixture, "p2");
    let result = last(&fixture, "tool.result");
    assert_eq!(
        (&result["outcome"], &result["attested"]),
        (&json!("unknown"), &json!(true))
    );
    // What is over, or is not the client's to run, has no lease that could end.
    fixture.proposes("p3", "touch z");
    for id in ["p1", "p2", "p3", "nothing"] {
        assert_lines(expire(&mut fixture, id), &["= accepted"]);
    }
}

#[test]
fn only_its_own_client_renews_or_defers_a_call() {
    let mut fixture = team(json!({}));
    proposes(&mut fixture, "p1", call("touch x"));
    let renew = |id: &str| json!({"tool_proposals": [id]});
    assert_lines(
        fixture.sends("cli", "tool.renew", renew("p1")),
        &["= accepted"],
    );
    let refusal = fixture.refused("bot", "tool.renew", renew("p1"));
    assert!(refusal.contains("cli"), "{refusal}");
    fixture.refused("cli", "tool.renew", renew("nothing"));
    let defer = json!({"tool_proposal": "p1", "seconds": 60});
    fixture.refused("bot", "tool.defer", defer);
    fixture.refused(
        "cli",
        "tool.defer",
        json!({"tool_proposal": "p1", "seconds": 604_801}),
    );
    fixture.proposes("p2", "touch z");
    let refusal = fixture.refused("bot", "tool.renew", renew("p2"));
    assert!(refusal.contains("has no lease"), "{refusal}");
}

#[test]
fn what_an_executor_runs_has_a_lease_only_while_it_waits_and_if_its_proposer_wants_one() {
    let mut fixture = SessionFixture::team(json!({}));
    let leased = |line: &str| {
        let mut proposal = shell_proposal("bot", line);
        proposal["lease"] = json!(true);
        proposal
    };
    fixture.sends_with_id("p1", "bot", "tool.propose", leased("touch x"));
    fixture.sends_with_id("p2", "bot", "tool.propose", leased("touch y"));
    fixture.proposes("p3", "touch z");
    let ids = |fixture: &SessionFixture| -> Vec<String> {
        let leased = fixture.session.leased_proposals();
        leased.map(|id| id.as_str().to_owned()).collect()
    };
    assert_eq!(ids(&fixture), ["p1", "p2"]);
    let renew = json!({"tool_proposals": ["p1", "p2"]});
    assert_lines(fixture.sends("bot", "tool.renew", renew), &["= accepted"]);
    expire(&mut fixture, "p1");
    let resolved = last(&fixture, "gate.resolve");
    assert_eq!(
        (&resolved["outcome"], &resolved["reason"]),
        (&json!("cancelled"), &json!("the client that asked is gone"))
    );
    // Its executor may lose the connection, come back and report.
    fixture.approves("ann", "p2");
    assert_eq!(ids(&fixture), [""; 0]);
    assert_lines(expire(&mut fixture, "p2"), &["= accepted"]);
    let renew = json!({"tool_proposals": ["p1", "p2"]});
    assert_lines(fixture.sends("bot", "tool.renew", renew), &["= accepted"]);
    let defer = json!({"tool_proposal": "p2", "seconds": 60});
    let refusal = fixture.refused("bot", "tool.defer", defer);
    assert!(refusal.contains("run by an executor"), "{refusal}");
}

#[test]
fn a_deferred_call_waits_for_its_client_without_a_lease_and_not_for_ever() {
    let mut fixture = team(json!({"gate_timeout_seconds": 0}));
    proposes(&mut fixture, "p1", call("touch x"));
    fixture.sends(
        "cli",
        "tool.defer",
        json!({"tool_proposal": "p1", "seconds": 60}),
    );
    assert_lines(expire(&mut fixture, "p1"), &["= accepted"]);
    assert_eq!(fixture.session.leased_proposals().count(), 0);
    fixture.approves("ann", "p1");
    fixture.sends(
        "cli",
        "tool.defer",
        json!({"tool_proposal": "p1", "seconds": 0}),
    );
    assert_eq!(fixture.session.leased_proposals().count(), 1);
    proposes(&mut fixture, "p2", call("touch y"));
    fixture.sends(
        "cli",
        "tool.defer",
        json!({"tool_proposal": "p2", "seconds": 60}),
    );
    fixture.advances_and_ticks(59);
    assert!(fixture.session.proposal(&message_id("p2")).is_some());
    fixture.advances_and_ticks(1);
    assert!(fixture.session.proposal(&message_id("p2")).is_none());
    assert_eq!(last(&fixture, "gate.resolve")["outcome"], "cancelled");
}

#[test]
fn only_a_client_may_say_that_it_did_not_run_what_it_was_allowed_to() {
    let not_run = |id: &str| {
        json!({
            "tool_proposal": id, "success": false, "duration_ms": 0, "outcome": "not_run",
            "error": "the client refused it by its own rules",
        })
    };
    let mut fixture = team(json!({}));
    proposes(&mut fixture, "p1", call("touch x"));
    fixture.approves("ann", "p1");
    fixture.sends("cli", "tool.result", not_run("p1"));
    let result = last(&fixture, "tool.result");
    assert_eq!(
        (&result["outcome"], &result["attested"]),
        (&json!("not_run"), &json!(true))
    );
    fixture.proposes("p2", "touch y");
    fixture.approves("ann", "p2");
    let mut claim = not_run("p2");
    claim["attested"] = json!(true);
    fixture.sends("bot", "tool.result", claim);
    let result = last(&fixture, "tool.result");
    assert_eq!(
        (&result["outcome"], result.get("attested")),
        (&json!("known"), None)
    );
}
