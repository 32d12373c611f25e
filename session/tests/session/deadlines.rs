//! Tests of deadlines.

use crate::support::*;
use serde_json::json;

#[test]
fn a_gate_that_nobody_decides_is_rejected_at_its_deadline() {
    let mut fixture =
        SessionFixture::team(json!({"default_gate_quorum": {"type": "any", "count": 2}}));
    fixture.proposes("p1", "make");
    fixture.approves("bob", "p1");
    assert_eq!(fixture.session.next_deadline(), Some(at(300)));
    assert_lines(fixture.advances_and_ticks(299), &["= accepted"]);
    assert_lines(
        fixture.advances_and_ticks(1),
        &[
            "11 system gate.timeout gate(p1) rejected 1 of 2",
            "12 system gate.resolve p1 timed_out by deadline reason=nobody decided before the deadline approvals=[bob]",
            "= accepted",
        ],
    );
    assert_refusal(
        fixture.refused(
            "cat",
            "gate.approve",
            json!({"gate": "p1", "approver": "cat"}),
        ),
        "InvalidState: the gate is closed: the proposal is timed out",
    );
    assert_eq!(fixture.session.next_deadline(), None);
}

#[test]
fn an_approval_after_the_deadline_is_refused_even_before_a_tick() {
    let mut fixture = SessionFixture::team(json!({"default_gate_quorum": {"type": "all"}}));
    fixture.proposes("p1", "make");
    fixture.approves("ann", "p1");
    fixture.approves("bob", "p1");
    fixture.advance(300);
    assert_refusal(
        fixture.refused(
            "cat",
            "gate.approve",
            json!({"gate": "p1", "approver": "cat"}),
        ),
        "InvalidState: the gate is closed: its deadline has passed",
    );
    let amend = json!({"gate": "p1", "arguments": {"full_command": "make -n"}, "digest": fixture.digest("p1")});
    assert_refusal(
        fixture.refused("cat", "gate.amend", amend),
        "InvalidState: the gate is closed: its deadline has passed",
    );
    assert_lines(
        fixture.leaves("cat"),
        &["12 cat session.leave", "= accepted 12"],
    );
    assert_lines(
        fixture.rejects("bob", "p1"),
        &[
            "13 bob gate.reject p1 no",
            "14 system gate.resolve p1 rejected by rejection by=bob reason=no approvals=[ann]",
            "= accepted 13",
        ],
    );
}

#[test]
fn without_a_deadline_a_gate_waits() {
    let mut fixture =
        SessionFixture::team(json!({"gate_timeout_seconds": 0, "on_gate_timeout": "auto_approve"}));
    fixture.proposes("p1", "make");
    assert_lines(fixture.advances_and_ticks(100_000_000), &["= accepted"]);
    assert_eq!(fixture.session.open_gates().len(), 1);
}

#[test]
fn an_escalated_gate_needs_as_many_admins_and_is_then_rejected() {
    let mut fixture = SessionFixture::team(
        json!({"on_gate_timeout": "escalate", "default_gate_quorum": {"type": "any", "count": 2}}),
    );
    fixture.joins(announcement("abe", "human", &["admin"]));
    fixture.proposes("p1", "make");
    fixture.proposes("p2", "make");
    fixture.approves("bob", "p1");
    assert_lines(
        fixture.advances_and_ticks(300),
        &[
            "14 system gate.timeout gate(p1) escalated 1 of 2 quorum=role:admin:2 voters=[abe,ann] deadline=+600",
            "15 system gate.timeout gate(p2) escalated 0 of 2 quorum=role:admin:2 voters=[abe,ann] deadline=+600",
            "= accepted",
        ],
    );
    assert_refusal(
        fixture.refused(
            "cat",
            "gate.approve",
            json!({"gate": "p1", "approver": "cat"}),
        ),
        "Unauthorized: the deadline has passed and the gate went to the admins",
    );
    assert_refusal(
        fixture.refused(
            "cat",
            "gate.reject",
            json!({"gate": "p1", "rejector": "cat", "reason": "r"}),
        ),
        "Unauthorized: the deadline has passed and the gate went to the admins",
    );
    let amend = json!({"gate": "p1", "arguments": {"full_command": "make -n"}, "digest": fixture.digest("p1")});
    assert_refusal(
        fixture.refused("cat", "gate.amend", amend),
        "Unauthorized: the deadline has passed and the gate went to the admins",
    );
    assert_lines(
        fixture.approves("ann", "p1"),
        &["16 ann gate.approve p1", "= accepted 16"],
    );
    assert_lines(
        fixture.approves("abe", "p1"),
        &[
            "17 abe gate.approve p1",
            "18 system gate.resolve p1 approved by quorum approvals=[abe,ann]",
            "19 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[abe,ann] profile=none 60000ms 5242880B until +360 | nonce for bot",
            "= accepted 17",
        ],
    );
    assert_lines(
        fixture.advances_and_ticks(300),
        &[
            "20 system gate.timeout gate(p2) rejected 0 of 2",
            "21 system gate.resolve p2 timed_out by deadline reason=nobody decided before the deadline",
            "22 system tool.result p1 failed unknown outcome unknown: no result came within its time limit",
            "= accepted",
        ],
    );
}

#[test]
fn approvals_of_admins_count_after_escalation() {
    let mut fixture = SessionFixture::team(
        json!({"on_gate_timeout": "escalate", "default_gate_quorum": {"type": "role", "role": "navigator", "count": 1}}),
    );
    fixture.proposes("p1", "make");
    assert_lines(
        fixture.approves("ann", "p1"),
        &["10 ann gate.approve p1", "= accepted 10"],
    );
    assert_lines(
        fixture.advances_and_ticks(300),
        &[
            "11 system gate.timeout gate(p1) escalated 0 of 1 quorum=role:admin:1 voters=[ann] deadline=+600",
            "12 system gate.resolve p1 approved by quorum approvals=[ann]",
            "13 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[ann] profile=none 60000ms 5242880B until +360 | nonce for bot",
            "= accepted",
        ],
    );
}

#[test]
fn each_quorum_rule_escalates_to_as_many_admins() {
    for (rule, expected) in [
        (
            json!({"type": "any", "count": 3}),
            "role:admin:3 voters=[ann]",
        ),
        (
            json!({"type": "role", "role": "navigator", "count": 2}),
            "role:admin:2 voters=[ann]",
        ),
        (
            json!({"type": "specific", "participants": ["bob", "cat"]}),
            "role:admin:2 voters=[ann]",
        ),
        (json!({"type": "all"}), "all voters=[ann]"),
        (json!({"type": "majority"}), "majority voters=[ann]"),
    ] {
        let mut fixture = SessionFixture::team(
            json!({"on_gate_timeout": "escalate", "default_gate_quorum": rule}),
        );
        fixture.proposes("p1", "make");
        let lines = fixture.advances_and_ticks(300);
        assert_eq!(
            lines[0].split_once("quorum=").map(|(_, rest)| rest),
            Some(format!("{expected} deadline=+600").as_str())
        );
        if expected.starts_with("all") || expected.starts_with("majority") {
            assert!(fixture.approves("ann", "p1").len() > 2);
        }
    }
}

#[test]
fn with_no_admin_an_escalated_gate_waits_for_one() {
    let mut fixture = SessionFixture::team(
        json!({"on_gate_timeout": "escalate", "default_gate_quorum": {"type": "all"}}),
    );
    fixture.proposes("p1", "make");
    fixture.leaves("ann");
    assert_lines(
        fixture.advances_and_ticks(300),
        &[
            "11 system gate.timeout gate(p1) escalated 0 of 2 quorum=all voters=[] deadline=+600",
            "= accepted",
        ],
    );
    fixture.joins(announcement("ann", "human", &["admin"]));
    assert_lines(
        fixture.approves("ann", "p1"),
        &[
            "13 ann gate.approve p1",
            "14 system gate.resolve p1 approved by quorum approvals=[ann]",
            "15 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[ann] profile=none 60000ms 5242880B until +360 | nonce for bot",
            "= accepted 13",
        ],
    );
}

#[test]
fn an_admins_edit_ends_the_escalation() {
    let mut fixture = SessionFixture::team(json!({"on_gate_timeout": "escalate"}));
    fixture.proposes("p1", "make");
    fixture.advances_and_ticks(300);
    let amend = json!({"gate": "p1", "arguments": {"full_command": "make -n"}, "digest": fixture.digest("p1")});
    assert_lines(
        fixture.sends("ann", "gate.amend", amend),
        &[
            "11 ann gate.amend gate(p1) `make -n` write quorum=any:1 voters=[ann,bob,cat] deadline=+600",
            "= accepted 11",
        ],
    );
    let yes = json!({"gate": "p1", "approver": "cat", "digest": fixture.digest("p1")});
    assert_lines(
        fixture.sends("cat", "gate.approve", yes),
        &[
            "12 cat gate.approve p1",
            "13 system gate.resolve p1 approved by quorum approvals=[cat]",
            "14 system tool.execute p1 `make -n` on bot cleared_by=quorum approved_by=[cat] profile=none 60000ms 5242880B until +360 | nonce for bot",
            "= accepted 12",
        ],
    );
}

#[test]
fn auto_approve_applies_to_writes_only() {
    let mut fixture = SessionFixture::team(
        json!({"on_gate_timeout": "auto_approve", "default_gate_quorum": {"type": "any", "count": 2}, "require_approval_for": ["file_read"]}),
    );
    fixture.proposes("p1", "make");
    fixture.proposes("p2", "rm -rf build");
    let mut read = shell_proposal("bot", "ls");
    read["category"] = json!("file_read");
    fixture.sends_with_id("p3", "bot", "tool.propose", read);
    fixture.approves("bob", "p1");
    assert_lines(
        fixture.advances_and_ticks(300),
        &[
            "15 system gate.timeout gate(p1) auto_approved 1 of 2",
            "16 system gate.resolve p1 approved by clock approvals=[bob]",
            "17 system tool.execute p1 `make` on bot cleared_by=clock approved_by=[bob] profile=none 60000ms 5242880B until +360 | nonce for bot",
            "18 system gate.timeout gate(p2) rejected 0 of 2",
            "19 system gate.resolve p2 timed_out by deadline reason=nobody decided before the deadline",
            "20 system gate.timeout gate(p3) auto_approved 0 of 2",
            "21 system gate.resolve p3 approved by clock",
            "22 system tool.execute p3 `ls` on bot cleared_by=clock approved_by=[] profile=none 30000ms 10485760B until +360 | nonce for bot",
            "= accepted",
        ],
    );
}

#[test]
fn auto_approve_does_nothing_while_the_session_is_paused() {
    let mut fixture = SessionFixture::team(
        json!({"on_gate_timeout": "auto_approve", "on_participant_timeout": "pause_session"}),
    );
    fixture.proposes("p1", "make");
    fixture.times_out("cat");
    assert_lines(
        fixture.advances_and_ticks(300),
        &[
            "11 system gate.timeout gate(p1) rejected 0 of 1",
            "12 system gate.resolve p1 timed_out by deadline reason=nobody decided before the deadline",
            "= accepted",
        ],
    );
}

#[test]
fn several_deadlines_can_be_due_at_once() {
    let mut fixture = SessionFixture::team(
        json!({"on_gate_timeout": "escalate", "default_gate_quorum": {"type": "role", "role": "navigator", "count": 1}, "gate_timeout_seconds": 150}),
    );
    fixture.proposes("p1", "make");
    fixture.approves("ann", "p1");
    fixture.proposes("p2", "make");
    fixture.approves("ann", "p2");
    fixture.proposes("p3", "ls");
    fixture.sends(
        "dan",
        "secret.share",
        json!({"key": "A", "scope": ["bot"], "value_ref": "v", "expires_at": at(100).to_string()}),
    );
    assert_lines(
        fixture.advances_and_ticks(150),
        &[
            "17 system gate.timeout gate(p1) escalated 0 of 1 quorum=role:admin:1 voters=[ann] deadline=+300",
            "18 system gate.resolve p1 approved by quorum approvals=[ann]",
            "19 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[ann] profile=none 60000ms 5242880B until +210 | nonce for bot",
            "20 system gate.timeout gate(p2) escalated 0 of 1 quorum=role:admin:1 voters=[ann] deadline=+300",
            "21 system gate.resolve p2 approved by quorum approvals=[ann]",
            "22 system tool.execute p2 `make` on bot cleared_by=quorum approved_by=[ann] profile=none 60000ms 5242880B until +210 | nonce for bot",
            "23 system tool.result p3 failed unknown outcome unknown: no result came within its time limit",
            "24 system secret.revoke A expired",
            "= accepted",
        ],
    );
}

#[test]
fn time_never_goes_backwards() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.advance(100);
    fixture.proposes("p1", "make");
    fixture.now = at(0);
    assert_lines(
        fixture.approves("bob", "p1"),
        &[
            "10 bob gate.approve p1",
            "11 system gate.resolve p1 approved by quorum approvals=[bob]",
            "12 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[bob] profile=none 60000ms 5242880B until +160 | nonce for bot",
            "= accepted 10",
        ],
    );
}
