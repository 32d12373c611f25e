//! Tests of allow rules.

use crate::support::*;
use serde_json::{Value, json};

fn allow(prefix: &[&str], seconds: u64) -> Value {
    json!({"prefix": prefix, "expires_at": at(seconds).to_string()})
}

fn argv(words: &[&str]) -> Value {
    let mut propose = shell_proposal("bot", "");
    propose["arguments"] = json!({"command": words[0], "args": words[1..]});
    propose
}

fn needs_approval(fixture: &mut SessionFixture, name: &str, propose: Value) -> bool {
    let lines = fixture.sends_with_id(name, "bot", "tool.propose", propose);
    lines.iter().any(|line| line.contains("gate.request"))
}

#[test]
fn an_allowed_prefix_runs_without_a_vote_until_the_rule_expires() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(
        fixture.sends_with_id("r1", "bob", "policy.allow", allow(&["npm", "test"], 60)),
        &["8 bob policy.allow npm test until +60", "= accepted 8"],
    );
    assert_lines(
        fixture.proposes("p1", "npm test --watch"),
        &[
            "9 bot tool.propose `npm test --watch` write",
            "10 system tool.execute p1 `npm test --watch` on bot cleared_by=allow_rule approved_by=[] profile=none 60000ms 5242880B until +60 rule=r1 | nonce for bot",
            "= accepted 9",
        ],
    );
    assert_lines(
        fixture.sends_with_id(
            "p2",
            "bot",
            "tool.propose",
            argv(&["npm", "test", "; rm x"]),
        ),
        &[
            "11 bot tool.propose `npm test '; rm x'` write",
            "12 system tool.execute p2 `npm test '; rm x'` on bot cleared_by=allow_rule approved_by=[] profile=none 60000ms 5242880B until +60 rule=r1 | nonce for bot",
            "= accepted 11",
        ],
    );
    fixture.advance(59);
    assert!(!needs_approval(
        &mut fixture,
        "p3",
        shell_proposal("bot", "npm test")
    ));
    fixture.advance(1);
    assert!(needs_approval(
        &mut fixture,
        "p4",
        shell_proposal("bot", "npm test")
    ));
}

#[test]
fn a_prefix_may_not_contain_shell_syntax() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.sends("bob", "policy.allow", allow(&["npm", "test"], 60));
    for (number, line) in [
        "npm tests",
        "npm",
        "npm install",
        "npm test; ls",
        "npm test && ls",
        "npm test > x",
        "npm test $(ls)",
        "npm test \"$A\"",
        "A=1 npm test",
        "/npm test",
        "npm test\nls",
    ]
    .iter()
    .enumerate()
    {
        assert!(
            needs_approval(
                &mut fixture,
                &format!("p{number}"),
                shell_proposal("bot", line)
            ),
            "{line}"
        );
        fixture.rejects("bob", &format!("p{number}"));
    }
}

#[test]
fn a_rule_never_covers_destructive_commands_environments_or_terminals() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.sends("bob", "policy.allow", allow(&["rm"], 60));
    fixture.sends("bob", "policy.allow", allow(&["make"], 60));
    assert!(needs_approval(
        &mut fixture,
        "p1",
        shell_proposal("bot", "rm -rf build")
    ));
    assert!(!needs_approval(
        &mut fixture,
        "p2",
        shell_proposal("bot", "rm a.txt")
    ));
    let mut claimed = shell_proposal("bot", "make");
    claimed["risk_level"] = json!("high");
    assert!(needs_approval(&mut fixture, "p3", claimed));
    let mut environment = shell_proposal("bot", "make");
    environment["arguments"]["env"] = json!({"TARGET": "/evil"});
    assert!(needs_approval(&mut fixture, "p4", environment));
    let mut terminal = shell_proposal("bot", "make");
    terminal["arguments"]["mode"] = json!("pty");
    assert!(needs_approval(&mut fixture, "p5", terminal));
    assert_lines(
        fixture.proposes("p6", "rm -rf /"),
        &[
            "20 bot tool.propose `rm -rf /` blocked (names files of PVP itself: /)",
            "= refused GateFailed: blocked by rule `blocked.rm-root`: deletes the root, a system directory or a home directory",
        ],
    );
    fixture.configures(json!({"require_approval_for": ["shell_execute"]}));
    assert!(needs_approval(
        &mut fixture,
        "p7",
        shell_proposal("bot", "make")
    ));
}

#[test]
fn a_rule_counts_no_more_than_its_authors_vote() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.sends_with_id("r1", "bob", "policy.allow", allow(&["make"], 600));
    assert!(!needs_approval(
        &mut fixture,
        "p1",
        shell_proposal("bot", "make")
    ));
    fixture.configures(json!({"default_gate_quorum": {"type": "any", "count": 2}}));
    assert!(needs_approval(
        &mut fixture,
        "p2",
        shell_proposal("bot", "make")
    ));
    assert_refusal(
        fixture.refused("cat", "policy.allow", allow(&["ls"], 60)),
        "Unauthorized: writes need 2 approvals here, so one person cannot allow them",
    );
    fixture.configures(
        json!({"quorum_by_category": {"write": {"type": "role", "role": "navigator", "count": 1}}}),
    );
    assert!(needs_approval(
        &mut fixture,
        "p3",
        shell_proposal("bot", "make")
    ));
    assert_refusal(
        fixture.refused("bob", "policy.allow", allow(&["ls"], 60)),
        "Unauthorized: writes need one approval by a navigator here, so one person cannot allow them",
    );
    fixture.sends("cat", "policy.allow", allow(&["make", "all"], 60));
    assert!(!needs_approval(
        &mut fixture,
        "p4",
        shell_proposal("bot", "make all")
    ));
    fixture.configures(json!({"quorum_by_category": {"write": {"type": "any", "count": 1}}}));
    fixture.leaves("bob");
    assert!(needs_approval(
        &mut fixture,
        "p5",
        shell_proposal("bot", "make")
    ));
    fixture.joins(announcement("bob", "human", &["approver"]));
    assert!(!needs_approval(
        &mut fixture,
        "p6",
        shell_proposal("bot", "make")
    ));
    fixture.sends("ann", "participant.role_change", json!({"participant": "bob", "old_roles": ["approver"], "new_roles": [], "changed_by": "ann"}));
    assert!(needs_approval(
        &mut fixture,
        "p7",
        shell_proposal("bot", "make")
    ));
}

#[test]
fn anyone_who_may_approve_can_revoke_a_rule() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.sends_with_id("r1", "bob", "policy.allow", allow(&["make"], 60));
    assert_refusal(
        fixture.refused("dan", "policy.revoke", json!({"rule": "r1"})),
        "Unauthorized: you need the capability `approve`; ask an admin for a role that has it",
    );
    assert_refusal(
        fixture.refused("cat", "policy.revoke", json!({"rule": "r9"})),
        "InvalidState: there is no rule `r9`",
    );
    assert_lines(
        fixture.sends(
            "cat",
            "policy.revoke",
            json!({"rule": "r1", "reason": "no"}),
        ),
        &["9 cat policy.revoke r1", "= accepted 9"],
    );
    assert!(needs_approval(
        &mut fixture,
        "p1",
        shell_proposal("bot", "make")
    ));
}

#[test]
fn an_invalid_rule_is_refused() {
    let mut fixture = SessionFixture::team(json!({}));
    let long = "x".repeat(257);
    let many = ["x"; 33];
    for (prefix, answer) in [
        (
            &[][..],
            "InvalidMessage: `prefix` is empty; give the words that commands begin with",
        ),
        (
            &["./make"],
            "InvalidMessage: `prefix` begins with a bare command name, such as `npm`",
        ),
        (
            &["make", "a b"],
            "InvalidMessage: `prefix` is a list of plain words, without spaces, quotes or shell characters",
        ),
        (
            &["make", "a;b"],
            "InvalidMessage: `prefix` is a list of plain words, without spaces, quotes or shell characters",
        ),
        (
            &["make", "$HOME"],
            "InvalidMessage: `prefix` is a list of plain words, without spaces, quotes or shell characters",
        ),
        (
            &["make", ""],
            "InvalidMessage: `prefix` has at most 32 words of 1 to 256 bytes",
        ),
        (
            &["make", long.as_str()],
            "InvalidMessage: `prefix` has at most 32 words of 1 to 256 bytes",
        ),
        (
            &many,
            "InvalidMessage: `prefix` has at most 32 words of 1 to 256 bytes",
        ),
    ] {
        assert_refusal(
            fixture.refused("bob", "policy.allow", allow(prefix, 60)),
            answer,
        );
    }
    for (seconds, answer) in [
        (
            0,
            "InvalidMessage: `expires_at` must be in the future, a week ahead at most",
        ),
        (
            7 * 86_400 + 1,
            "InvalidMessage: `expires_at` must be in the future, a week ahead at most",
        ),
    ] {
        assert_refusal(
            fixture.refused("bob", "policy.allow", allow(&["make"], seconds)),
            answer,
        );
    }
    assert_refusal(
        fixture.refused("dan", "policy.allow", allow(&["make"], 60)),
        "Unauthorized: you need the capability `approve`; ask an admin for a role that has it",
    );
    assert_refusal(
        fixture.refused("bot", "policy.allow", allow(&["make"], 60)),
        "Unauthorized: agents do not vote; a person has to decide",
    );
}

#[test]
fn expired_rules_make_room_for_others() {
    let mut fixture = SessionFixture::team(json!({}));
    for _ in 0..200 {
        fixture.sends("bob", "policy.allow", allow(&["make"], 60));
    }
    assert_refusal(
        fixture.refused("bob", "policy.allow", allow(&["make"], 60)),
        "RateLimited: too many allow rules: at most 200",
    );
    fixture.advance(60);
    assert_eq!(
        fixture
            .sends("bob", "policy.allow", allow(&["make"], 120))
            .len(),
        2
    );
}

#[test]
fn a_new_rule_grants_what_waits_as_the_vote_of_its_author() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "npm test --watch");
    fixture.proposes("p2", "npm publish");
    assert_lines(
        fixture.sends_with_id("r1", "bob", "policy.allow", allow(&["npm", "test"], 60)),
        &[
            "12 bob policy.allow npm test until +60",
            "13 system gate.resolve p1 approved by quorum by=bob rule=r1",
            "14 system tool.execute p1 `npm test --watch` on bot cleared_by=allow_rule approved_by=[] profile=none 60000ms 5242880B until +60 rule=r1 | nonce for bot",
            "= accepted 12",
        ],
    );
    assert_eq!(fixture.session.open_gates().len(), 1);
}

#[test]
fn a_new_rule_is_not_worth_two_votes() {
    let mut fixture =
        SessionFixture::team(json!({"default_gate_quorum": {"type": "any", "count": 2}}));
    fixture.proposes("p1", "make");
    assert_refusal(
        fixture.refused("bob", "policy.allow", allow(&["make"], 60)),
        "Unauthorized: writes need 2 approvals here, so one person cannot allow them",
    );
    // The gate keeps the quorum that it opened with.
    fixture.configures(json!({"default_gate_quorum": {"type": "any", "count": 1}}));
    let lines = fixture.sends_with_id("r1", "bob", "policy.allow", allow(&["make"], 60));
    assert_eq!(lines.len(), 2, "{lines:?}");
    let lines = fixture.approves("cat", "p1");
    assert_eq!(lines.len(), 2, "one vote of two: {lines:?}");
    let lines = fixture.sends_with_id("r2", "bob", "policy.allow", allow(&["make"], 60));
    assert!(
        lines[1].contains("gate.resolve p1 approved by quorum by=bob rule=r2 approvals=[cat]"),
        "{lines:?}"
    );
    assert!(
        lines[2].contains("cleared_by=allow_rule approved_by=[cat]"),
        "{lines:?}"
    );
}

#[test]
fn a_new_rule_approves_nothing_that_its_author_may_not_approve() {
    // Four eyes: whoever edited a command does not decide it.
    let mut fixture = SessionFixture::team(json!({"four_eyes": true}));
    fixture.proposes("p1", "make");
    let amend = json!({
        "gate": "p1", "arguments": {"full_command": "make all"}, "digest": fixture.digest("p1")
    });
    fixture.sends("bob", "gate.amend", amend);
    let lines = fixture.sends("bob", "policy.allow", allow(&["make"], 60));
    assert_eq!(lines.len(), 2, "{lines:?}");
    // After the first deadline only admins decide.
    let mut fixture = SessionFixture::team(json!({
        "gate_timeout_seconds": 30, "on_gate_timeout": "escalate"
    }));
    fixture.proposes("p1", "make");
    fixture.advances_and_ticks(30);
    let lines = fixture.sends("bob", "policy.allow", allow(&["make"], 60));
    assert_eq!(lines.len(), 2, "{lines:?}");
    // Where the session asks for every tool of a kind, no rule answers.
    let mut fixture = SessionFixture::team(json!({"require_approval_for": ["shell_execute"]}));
    fixture.proposes("p1", "make");
    let lines = fixture.sends("bob", "policy.allow", allow(&["make"], 60));
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn a_new_rule_grants_nothing_that_no_rule_covers() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "rm -rf build");
    fixture.proposes("p2", "rm a.txt && rm b.txt");
    let mut environment = shell_proposal("bot", "rm c.txt");
    environment["arguments"]["env"] = json!({"TARGET": "/evil"});
    fixture.sends_with_id("p3", "bot", "tool.propose", environment);
    let lines = fixture.sends("bob", "policy.allow", allow(&["rm"], 60));
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn the_assessment_says_when_no_rule_ever_covers_a_program() {
    let mut fixture = SessionFixture::team(json!({}));
    for (name, line, expected) in [("p1", "sh build.sh", true), ("p2", "make all", false)] {
        fixture.proposes(name, line);
        let proposal = &fixture.session.open_proposals()[0];
        assert_eq!(proposal.id.as_str(), name);
        let gates = fixture.session.describe_open_gates();
        let gate = gates.iter().find(|it| it.request.action_ref == proposal.id);
        assert_eq!(gate.unwrap().assessment.runs_given_code, expected, "{line}");
    }
}
