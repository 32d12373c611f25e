//! Tests of what a token allows: no more than it says, no longer than it is valid, and who made it.

use std::sync::Arc;

use crate::support::*;
use pvp_protocol::payload::Announce;
use pvp_protocol::{ParticipantKind, Role, Timestamp};
use pvp_session::{Ceiling, Identity, Input, InvitedBy, SubmittedMessage};
use serde_json::{Value, json};

fn ceiling(kind: ParticipantKind, roles: &[Role]) -> Ceiling {
    Ceiling {
        kind,
        roles: roles.iter().copied().collect(),
        capabilities: Default::default(),
    }
}

/// Sends a message with a token that allows these roles; returns the decision.
fn sends_with_token(
    fixture: &mut SessionFixture,
    who: &str,
    token: &Ceiling,
    kind: &str,
    payload: Value,
) -> Vec<String> {
    let id = fixture.next_id();
    let decision = fixture.apply(Input::Submit {
        by: participant_id(who),
        ceiling: Some(Arc::new(token.clone())),
        submitted: SubmittedMessage::new(id, client_message(kind, &payload)),
    });
    fixture.lines(&decision)
}

/// Joins with a token that allows exactly these roles.
fn joins_with_token(
    fixture: &mut SessionFixture,
    who: &str,
    kind: &str,
    roles: &[&str],
    invited_by: Option<InvitedBy>,
) -> Vec<String> {
    let announce = announcement(who, kind, roles);
    let announce: Announce = serde_json::from_value(announce).expect("an announcement");
    let identity = Identity {
        name: Some(announce.name.clone()),
        invited_by,
        ..identity(&announce)
    };
    let id = fixture.next_id();
    let decision = fixture.apply(Input::Join {
        identity,
        announce,
        id,
    });
    fixture.lines(&decision)
}

fn ends_token(fixture: &mut SessionFixture, who: &str, remaining: Option<Ceiling>) -> Vec<String> {
    let decision = fixture.apply(Input::TokenEnded {
        participant: participant_id(who),
        remaining,
        reason: "a token was revoked".to_owned(),
    });
    fixture.lines(&decision)
}

fn roles_of(fixture: &SessionFixture, who: &str) -> Vec<Role> {
    let member = fixture.session.member(&participant_id(who));
    member.expect("they joined").announce.roles.clone()
}

#[test]
fn what_a_token_does_not_allow_is_refused_whatever_its_participant_may_do() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "make");
    let approve = json!({"gate": "p1", "approver": "ann"});
    let amend = json!({"gate": "p1", "arguments": {"full_command": "make -n"},
        "digest": fixture.digest("p1")});
    let observer = ceiling(ParticipantKind::Human, &[Role::Observer]);
    for (kind, payload, capability) in [
        ("gate.approve", approve.clone(), "approve"),
        (
            "tool.reject",
            json!({"tool_proposal": "p1", "rejector": "ann", "reason": "no"}),
            "approve",
        ),
        ("gate.amend", amend, "approve"),
        (
            "policy.allow",
            json!({"prefix": ["make"], "expires_at": "2100-01-01T00:00:00Z"}),
            "approve",
        ),
        ("shell.exec", json!({"command": "ls"}), "exec"),
        (
            "session.config_update",
            json!({"changes": {}, "reason": "r"}),
            "manage_participants",
        ),
        (
            "session.end",
            json!({"reason": "r", "final_state": "completed"}),
            "end_session",
        ),
        ("tool.cancel", json!({"tool_proposal": "p1"}), "interrupt"),
    ] {
        assert_eq!(
            sends_with_token(&mut fixture, "ann", &observer, kind, payload),
            [format!(
                "= refused Unauthorized: you need the capability `{capability}`; ask an admin for a role that has it"
            )],
            "{kind}"
        );
    }
    let leaves = sends_with_token(&mut fixture, "ann", &observer, "session.leave", json!({}));
    assert!(
        leaves[0].contains("cannot sign out your other devices"),
        "{leaves:?}"
    );
    let agent = ceiling(ParticipantKind::Agent, &[Role::Admin]);
    assert_eq!(
        sends_with_token(&mut fixture, "ann", &agent, "gate.approve", approve.clone()),
        ["= refused Unauthorized: this token is for an agent, and `ann` is a person here"]
    );
    let approver = ceiling(ParticipantKind::Human, &[Role::Approver]);
    let lines = sends_with_token(&mut fixture, "ann", &approver, "gate.approve", approve);
    assert!(lines.iter().any(|line| line.contains("tool.execute p1")));
}

#[test]
fn a_vote_counts_only_for_roles_that_the_token_has() {
    let admins = json!({"default_gate_quorum": {"type": "role", "role": "admin", "count": 1}});
    let mut fixture = SessionFixture::team(admins);
    fixture.proposes("p1", "make");
    let approve = json!({"gate": "p1", "approver": "ann"});
    let approver = ceiling(ParticipantKind::Human, &[Role::Approver]);
    assert_eq!(
        sends_with_token(&mut fixture, "ann", &approver, "gate.approve", approve),
        [
            "= refused Unauthorized: this gate counts the votes of admins, and your token does not have that role"
        ]
    );
    let rule = json!({"prefix": ["make"], "expires_at": fixture.now.plus_seconds(60)});
    let lines = sends_with_token(&mut fixture, "ann", &approver, "policy.allow", rule);
    assert!(
        lines[0].contains("one person cannot allow them"),
        "{lines:?}"
    );
}

#[test]
fn joining_with_fewer_roles_takes_none_from_other_devices() {
    let mut fixture = SessionFixture::team(json!({}));
    joins_with_token(&mut fixture, "gus", "human", &["approver", "driver"], None);
    fixture.proposes("p1", "make");
    let lines = joins_with_token(&mut fixture, "gus", "human", &["observer"], None);
    assert_eq!(
        roles_of(&fixture, "gus"),
        [Role::Driver, Role::Observer, Role::Approver],
        "{lines:?}"
    );
    assert!(fixture.session.may_vote(
        &participant_id("gus"),
        &ceiling(ParticipantKind::Human, &[Role::Approver])
    ));
    assert!(!fixture.session.may_vote(
        &participant_id("gus"),
        &ceiling(ParticipantKind::Human, &[Role::Observer])
    ));
    let gates = fixture.session.open_gates();
    assert!(!gates.is_empty());
}

#[test]
fn a_role_that_an_admin_gave_holds_on_every_device() {
    let mut fixture = SessionFixture::team(json!({}));
    joins_with_token(&mut fixture, "gus", "human", &["observer"], None);
    fixture.proposes("p1", "make");
    let observer = ceiling(ParticipantKind::Human, &[Role::Observer]);
    let approve = json!({"gate": "p1", "approver": "gus"});
    let refused = sends_with_token(
        &mut fixture,
        "gus",
        &observer,
        "gate.approve",
        approve.clone(),
    );
    assert_eq!(refused.len(), 1, "{refused:?}");
    let change = json!({"participant": "gus", "old_roles": ["observer"],
        "new_roles": ["observer", "approver"], "changed_by": "ann", "votes_void": true});
    fixture.sends("ann", "participant.role_change", change);
    let lines = sends_with_token(&mut fixture, "gus", &observer, "gate.approve", approve);
    assert!(
        lines.iter().any(|line| line.contains("tool.execute p1")),
        "{lines:?}"
    );
}

#[test]
fn the_votes_of_a_token_that_ended_are_void() {
    let two = json!({"default_gate_quorum": {"type": "any", "count": 2}});
    let mut fixture = SessionFixture::team(two);
    fixture.proposes("p1", "make");
    fixture.approves("bob", "p1");
    // Bob has another device that may approve: he votes again, with that.
    let approver = ceiling(ParticipantKind::Human, &[Role::Approver]);
    let lines = ends_token(&mut fixture, "bob", Some(approver.clone()));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(roles_of(&fixture, "bob"), [Role::Approver]);
    let passed = |lines: Vec<String>| lines.iter().any(|line| line.contains("tool.execute"));
    assert!(!passed(fixture.approves("cat", "p1")), "one of two");
    assert!(passed(fixture.approves("bob", "p1")));
    // Nothing is said where nothing changes.
    assert_eq!(
        ends_token(&mut fixture, "bob", Some(approver)),
        ["= accepted"]
    );

    // His last token: he may do nothing until he has another.
    fixture.proposes("p2", "make -j2");
    fixture.approves("bob", "p2");
    ends_token(&mut fixture, "bob", None);
    assert_eq!(roles_of(&fixture, "bob"), []);
    assert!(!passed(fixture.approves("cat", "p2")));
    let refused = fixture.refused(
        "bob",
        "gate.approve",
        json!({"gate": "p2", "approver": "bob"}),
    );
    assert!(refused.starts_with("Unauthorized"), "{refused}");
    joins_with_token(&mut fixture, "bob", "human", &["approver"], None);
    assert!(passed(fixture.approves("bob", "p2")));
}

#[test]
fn a_token_that_ends_leaves_what_others_give() {
    let mut fixture = SessionFixture::team(json!({}));
    joins_with_token(&mut fixture, "gus", "human", &["approver", "admin"], None);
    let approver = ceiling(ParticipantKind::Human, &[Role::Approver]);
    ends_token(&mut fixture, "gus", Some(approver));
    assert_eq!(roles_of(&fixture, "gus"), [Role::Approver]);
    // Someone who is unknown, or a session that has ended, is not told.
    assert_eq!(ends_token(&mut fixture, "zoe", None), ["= accepted"]);
    fixture.sends(
        "ann",
        "session.end",
        json!({"reason": "done", "final_state": "completed"}),
    );
    assert_eq!(ends_token(&mut fixture, "gus", None), ["= accepted"]);
}

#[test]
fn who_invited_whom_is_recorded_and_two_of_one_inviter_are_not_two() {
    let two = json!({"default_gate_quorum": {"type": "any", "count": 2}});
    let mut fixture = SessionFixture::team(two);
    let during = |by: &str, at: Timestamp| {
        Some(InvitedBy {
            participant: participant_id(by),
            at,
        })
    };
    let now = fixture.now;
    joins_with_token(
        &mut fixture,
        "gus",
        "human",
        &["approver"],
        during("bob", now),
    );
    let earlier = Timestamp::from_millis(1);
    joins_with_token(
        &mut fixture,
        "ivy",
        "human",
        &["approver"],
        during("bob", earlier),
    );
    let announced = |fixture: &SessionFixture, who: &str| {
        let member = fixture.session.member(&participant_id(who)).unwrap();
        let announce = &member.announce;
        (announce.invited_by.clone(), announce.invited_before_session)
    };
    assert_eq!(
        announced(&fixture, "gus"),
        (Some(participant_id("bob")), None)
    );
    assert_eq!(
        announced(&fixture, "ivy"),
        (Some(participant_id("bob")), Some(true))
    );
    // Neither a new announcement nor another token says otherwise.
    let again = json!({"id": "gus", "name": "gus", "type": "human", "roles": ["approver"],
        "transport": "http", "invited_by": "cat", "invited_before_session": true});
    fixture.sends("gus", "participant.announce", again);
    joins_with_token(&mut fixture, "gus", "human", &["approver"], None);
    assert_eq!(
        announced(&fixture, "gus"),
        (Some(participant_id("bob")), None)
    );

    let passed = |lines: Vec<String>| lines.iter().any(|line| line.contains("tool.execute"));
    fixture.proposes("p1", "make");
    assert!(!passed(fixture.approves("bob", "p1")));
    assert!(!passed(fixture.approves("gus", "p1")), "bob invited her");
    assert!(
        passed(fixture.approves("ivy", "p1")),
        "before there was a session"
    );
    fixture.configures(json!({"quorum_independent": false}));
    fixture.proposes("p2", "make -j2");
    fixture.approves("bob", "p2");
    assert!(passed(fixture.approves("gus", "p2")), "as the session says");
}

#[test]
fn the_owner_of_an_agent_cannot_bring_its_approvers() {
    let two = json!({"default_gate_quorum": {"type": "any", "count": 2}});
    let mut fixture = SessionFixture::team(two);
    let now = fixture.now;
    let by = |who: &str| {
        Some(InvitedBy {
            participant: participant_id(who),
            at: now,
        })
    };
    joins_with_token(&mut fixture, "hal", "agent", &["driver"], by("dan"));
    for puppet in ["gus", "ivy"] {
        joins_with_token(&mut fixture, puppet, "human", &["approver"], by("dan"));
    }
    let passed = |lines: Vec<String>| lines.iter().any(|line| line.contains("tool.execute"));
    fixture.sends_with_id("p1", "hal", "tool.propose", shell_proposal("hal", "make"));
    for who in ["gus", "ivy", "bob"] {
        assert!(!passed(fixture.approves(who, "p1")), "{who}");
    }
    assert!(passed(fixture.approves("cat", "p1")), "bob and cat");
    // A person's own command, likewise.
    fixture.sends_with_id(
        "s1",
        "dan",
        "shell.exec",
        json!({"command": "rm -rf build"}),
    );
    for who in ["gus", "ivy", "bob"] {
        assert!(!passed(fixture.approves(who, "s1")), "{who}");
    }
    assert!(passed(fixture.approves("cat", "s1")));
}

#[test]
fn an_edit_is_refused_for_an_agent_that_cannot_be_told_of_it() {
    let mut fixture = SessionFixture::team(json!({}));
    joins_with_token(&mut fixture, "hal", "agent", &["driver"], None);
    fixture.sends_with_id("p1", "hal", "tool.propose", shell_proposal("hal", "make"));
    let amend = json!({"gate": "p1", "arguments": {"full_command": "make -n"},
        "digest": fixture.digest("p1")});
    let refused = fixture.refused("ann", "gate.amend", amend);
    assert!(
        refused.contains("`hal` cannot be told of an edit"),
        "{refused}"
    );
}
