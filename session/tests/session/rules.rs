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
            "20 bot tool.propose `rm -rf /` blocked",
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
