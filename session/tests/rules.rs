//! Session allow rules.

mod kit;
use kit::*;
use serde_json::{Value, json};

fn allow(prefix: &[&str], seconds: u64) -> Value {
    json!({"prefix": prefix, "expires_at": at(seconds).to_string()})
}

fn argv(words: &[&str]) -> Value {
    let mut propose = shell("bot", "");
    propose["arguments"] = json!({"command": words[0], "args": words[1..]});
    propose
}

fn asks(room: &mut Room, name: &str, propose: Value) -> bool {
    let lines = room.says_as(name, "bot", "tool.propose", propose);
    lines.iter().any(|line| line.contains("gate.request"))
}

#[test]
fn a_prefix_runs_without_asking_until_it_expires() {
    let mut room = Room::team(json!({}));
    told(
        room.says_as("r1", "bob", "policy.allow", allow(&["npm", "test"], 60)),
        &["8 bob policy.allow npm test until +60", "= accepted 8"],
    );
    told(
        room.proposes("p1", "npm test --watch"),
        &[
            "9 bot tool.propose `npm test --watch` write",
            "10 system tool.execute p1 `npm test --watch` on bot cleared_by=allow_rule approved_by=[] profile=none 60000ms 5242880B until +60 rule=r1 | nonce for bot",
            "= accepted 9",
        ],
    );
    told(
        room.says_as(
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
    room.later(59);
    assert!(!asks(&mut room, "p3", shell("bot", "npm test")));
    room.later(1);
    assert!(asks(&mut room, "p4", shell("bot", "npm test")));
}

#[test]
fn a_prefix_is_words_and_nothing_that_a_shell_acts_on() {
    let mut room = Room::team(json!({}));
    room.says("bob", "policy.allow", allow(&["npm", "test"], 60));
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
            asks(&mut room, &format!("p{number}"), shell("bot", line)),
            "{line}"
        );
        room.rejects("bob", &format!("p{number}"));
    }
}

#[test]
fn a_rule_is_never_for_destruction_other_environments_or_terminals() {
    let mut room = Room::team(json!({}));
    room.says("bob", "policy.allow", allow(&["rm"], 60));
    room.says("bob", "policy.allow", allow(&["make"], 60));
    assert!(asks(&mut room, "p1", shell("bot", "rm -rf build")));
    assert!(!asks(&mut room, "p2", shell("bot", "rm a.txt")));
    let mut claimed = shell("bot", "make");
    claimed["risk_level"] = json!("high");
    assert!(asks(&mut room, "p3", claimed));
    let mut environment = shell("bot", "make");
    environment["arguments"]["env"] = json!({"PATH": "/evil"});
    assert!(asks(&mut room, "p4", environment));
    let mut terminal = shell("bot", "make");
    terminal["arguments"]["mode"] = json!("pty");
    assert!(asks(&mut room, "p5", terminal));
    told(
        room.proposes("p6", "rm -rf /"),
        &[
            "20 bot tool.propose `rm -rf /` blocked",
            "= refused GateFailed: blocked by rule `blocked.rm-root`: deletes the root, a system directory or a home directory",
        ],
    );
    room.configures(json!({"require_approval_for": ["shell_execute"]}));
    assert!(asks(&mut room, "p7", shell("bot", "make")));
}

#[test]
fn a_rule_weighs_no_more_than_the_vote_of_who_made_it() {
    let mut room = Room::team(json!({}));
    room.says_as("r1", "bob", "policy.allow", allow(&["make"], 600));
    assert!(!asks(&mut room, "p1", shell("bot", "make")));
    room.configures(json!({"default_gate_quorum": {"type": "any", "count": 2}}));
    assert!(asks(&mut room, "p2", shell("bot", "make")));
    says_no(
        room.refused("cat", "policy.allow", allow(&["ls"], 60)),
        "Unauthorized: writes need 2 approvals here, so one person cannot allow them",
    );
    room.configures(
        json!({"quorum_by_category": {"write": {"type": "role", "role": "navigator", "count": 1}}}),
    );
    assert!(asks(&mut room, "p3", shell("bot", "make")));
    says_no(
        room.refused("bob", "policy.allow", allow(&["ls"], 60)),
        "Unauthorized: writes need one approval by a navigator here, so one person cannot allow them",
    );
    room.says("cat", "policy.allow", allow(&["make", "all"], 60));
    assert!(!asks(&mut room, "p4", shell("bot", "make all")));
    room.configures(json!({"quorum_by_category": {"write": {"type": "any", "count": 1}}}));
    room.leaves("bob");
    assert!(asks(&mut room, "p5", shell("bot", "make")));
    room.joins(announcement("bob", "human", &["approver"]));
    assert!(!asks(&mut room, "p6", shell("bot", "make")));
    room.says("ann", "participant.role_change", json!({"participant": "bob", "old_roles": ["approver"], "new_roles": [], "changed_by": "ann"}));
    assert!(asks(&mut room, "p7", shell("bot", "make")));
}

#[test]
fn a_rule_is_taken_back_by_anyone_who_may_approve() {
    let mut room = Room::team(json!({}));
    room.says_as("r1", "bob", "policy.allow", allow(&["make"], 60));
    says_no(
        room.refused("dan", "policy.revoke", json!({"rule": "r1"})),
        "Unauthorized: you need the capability `approve`; ask an admin for a role that has it",
    );
    says_no(
        room.refused("cat", "policy.revoke", json!({"rule": "r9"})),
        "InvalidState: there is no rule `r9`",
    );
    told(
        room.says(
            "cat",
            "policy.revoke",
            json!({"rule": "r1", "reason": "no"}),
        ),
        &["9 cat policy.revoke r1", "= accepted 9"],
    );
    assert!(asks(&mut room, "p1", shell("bot", "make")));
}

#[test]
fn what_a_rule_may_not_be() {
    let mut room = Room::team(json!({}));
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
            "InvalidMessage: `prefix` is a list of plain words, without spaces, quotes or shell signs",
        ),
        (
            &["make", "a;b"],
            "InvalidMessage: `prefix` is a list of plain words, without spaces, quotes or shell signs",
        ),
        (
            &["make", "$HOME"],
            "InvalidMessage: `prefix` is a list of plain words, without spaces, quotes or shell signs",
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
        says_no(
            room.refused("bob", "policy.allow", allow(prefix, 60)),
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
        says_no(
            room.refused("bob", "policy.allow", allow(&["make"], seconds)),
            answer,
        );
    }
    says_no(
        room.refused("dan", "policy.allow", allow(&["make"], 60)),
        "Unauthorized: you need the capability `approve`; ask an admin for a role that has it",
    );
    says_no(
        room.refused("bot", "policy.allow", allow(&["make"], 60)),
        "Unauthorized: agents do not vote; a person has to decide",
    );
}

#[test]
fn expired_rules_make_room_for_others() {
    let mut room = Room::team(json!({}));
    for _ in 0..200 {
        room.says("bob", "policy.allow", allow(&["make"], 60));
    }
    says_no(
        room.refused("bob", "policy.allow", allow(&["make"], 60)),
        "RateLimited: too many allow rules: at most 200",
    );
    room.later(60);
    assert_eq!(
        room.says("bob", "policy.allow", allow(&["make"], 120))
            .len(),
        2
    );
}
