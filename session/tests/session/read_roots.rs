//! Tests of read roots: directories beside the workspace that may be read without a vote.

use crate::support::*;
use serde_json::{Value, json};

/// The usual team, with an executor that works in /work/app and accepts read roots.
fn team(config: Value) -> SessionFixture {
    let mut fixture = SessionFixture::team(config);
    let executor = json!({
        "profiles": ["read"], "working_directory": "/work/app", "read_roots": true,
    });
    fixture.joins(executor_announcement("worker", executor));
    fixture
}

fn allow_reading(root: &str, seconds: u64) -> Value {
    json!({"read_root": root, "expires_at": at(seconds).to_string()})
}

fn needs_approval(fixture: &mut SessionFixture, agent: &str, line: &str) -> bool {
    let lines = fixture.sends(agent, "tool.propose", shell_proposal(agent, line));
    lines.iter().any(|line| line.contains("gate.request"))
}

#[test]
fn a_directory_may_be_read_while_its_rule_holds() {
    let mut fixture = team(json!({}));
    assert!(needs_approval(&mut fixture, "worker", "cat /data/sets/x"));
    assert_lines(
        fixture.sends_with_id("r1", "bob", "policy.allow", allow_reading("/data/sets", 60)),
        &[
            "12 bob policy.allow reading /data/sets until +60",
            "= accepted 12",
        ],
    );
    for (line, asked) in [
        ("cat /data/sets/x", false),
        ("grep -rn y /data/sets", false),
        ("cat /data/sets/.env", true),
        ("cat /data/other", true),
        ("cp /data/sets/x .", true),
        ("touch /data/sets/x", true),
        ("rm -rf /data/sets", true),
    ] {
        assert_eq!(
            needs_approval(&mut fixture, "worker", line),
            asked,
            "{line}"
        );
    }
    fixture.sends("cat", "policy.revoke", json!({"rule": "r1"}));
    assert!(needs_approval(&mut fixture, "worker", "cat /data/sets/x"));
    fixture.sends("bob", "policy.allow", allow_reading("/data/sets", 60));
    assert!(!needs_approval(&mut fixture, "worker", "cat /data/sets/x"));
    fixture.advance(60);
    assert!(needs_approval(&mut fixture, "worker", "cat /data/sets/x"));
}

/// An empty prefix begins every command.
#[test]
fn a_rule_for_reading_lets_no_write_run() {
    let mut fixture = team(json!({}));
    fixture.sends("bob", "policy.allow", allow_reading("/data", 60));
    for agent in ["worker", "bot"] {
        for line in ["make", "npm install", "touch a"] {
            assert!(needs_approval(&mut fixture, agent, line), "{line}");
        }
    }
}

#[test]
fn an_executor_that_does_not_accept_read_roots_has_none() {
    let mut fixture = team(json!({"read_roots": ["/data"]}));
    let executor = json!({"profiles": ["read"], "working_directory": "/work/app"});
    fixture.joins(executor_announcement("old", executor));
    assert!(!needs_approval(&mut fixture, "worker", "cat /data/x"));
    assert!(needs_approval(&mut fixture, "old", "cat /data/x"));
}

#[test]
fn the_card_names_the_directories_that_are_needed() {
    let mut fixture = team(json!({}));
    let mut needed = |agent: &str, line: &str| {
        fixture.sends(agent, "tool.propose", shell_proposal(agent, line));
        let entries = fixture.log.iter().rev();
        let entry = entries.map(|entry| serde_json::to_value(&entry.envelope).unwrap());
        let propose = entry.into_iter().find(|it| it["type"] == "tool.propose");
        propose.unwrap()["payload"]["assessment"]["needed_read_roots"].clone()
    };
    assert_eq!(
        needed("worker", "cat /data/sets/x.csv"),
        json!(["/data/sets"])
    );
    assert_eq!(needed("worker", "cat /data/sets/.env"), Value::Null);
    assert_eq!(needed("worker", "cp /data/x.csv ."), Value::Null);
    assert_eq!(needed("worker", "ls"), Value::Null);
    assert_eq!(needed("bot", "cat /data/sets/x.csv"), Value::Null);
}

#[test]
fn only_someone_who_could_approve_alone_may_allow_reading() {
    let mut fixture = team(json!({}));
    for (who, answer) in [
        (
            "eve",
            "Unauthorized: you need the capability `approve`; ask an admin for a role that has it",
        ),
        (
            "dan",
            "Unauthorized: you need the capability `approve`; ask an admin for a role that has it",
        ),
        (
            "worker",
            "Unauthorized: agents do not vote; a person has to decide",
        ),
    ] {
        let refused = fixture.refused(who, "policy.allow", allow_reading("/data", 60));
        assert_refusal(refused, answer);
    }
    fixture.sends("bob", "policy.allow", allow_reading("/data", 600));
    assert!(!needs_approval(&mut fixture, "worker", "cat /data/x"));
    // A rule is one vote given in advance, and two are needed from here on.
    fixture.configures(json!({"default_gate_quorum": {"type": "any", "count": 2}}));
    assert!(needs_approval(&mut fixture, "worker", "cat /data/x"));
    assert_refusal(
        fixture.refused("bob", "policy.allow", allow_reading("/data", 60)),
        "Unauthorized: writes need 2 approvals here, so one person cannot allow them",
    );
}

#[test]
fn a_directory_that_is_too_wide_or_secret_is_refused() {
    let mut fixture = team(json!({}));
    for (root, problem) in [
        ("/", "`/` is too wide; name the directory that is needed"),
        (
            "/home/ann",
            "`/home/ann` is too wide; name the directory that is needed",
        ),
        ("/home/ann/.ssh", "`/home/ann/.ssh` may hold secrets"),
        (
            "../data",
            "`../data` is not an absolute path without `.`, `..`, `//`, a slash at the end, or shell characters",
        ),
    ] {
        assert_refusal(
            fixture.refused("bob", "policy.allow", allow_reading(root, 60)),
            &format!("InvalidMessage: `read_root`: {problem}"),
        );
        let update = json!({"changes": {"read_roots": ["/data", root]}, "reason": "x"});
        let refused = fixture.refused("ann", "session.config_update", update);
        assert!(refused.contains(problem), "{refused}");
    }
    let mut both = allow_reading("/data", 60);
    both["prefix"] = json!(["ls"]);
    assert_refusal(
        fixture.refused("bob", "policy.allow", both),
        "InvalidMessage: a rule has a `prefix` or a `read_root`, and a `directory` only with a prefix",
    );
}

#[test]
fn an_admin_may_configure_read_roots() {
    let mut fixture = team(json!({}));
    assert!(needs_approval(&mut fixture, "worker", "cat /data/x"));
    fixture.configures(json!({"read_roots": ["/data"]}));
    assert!(!needs_approval(&mut fixture, "worker", "cat /data/x"));
    fixture.configures(json!({"read_roots": []}));
    assert!(needs_approval(&mut fixture, "worker", "cat /data/x"));
    let update = json!({"changes": {"read_roots": ["/data"]}, "reason": "x"});
    let refused = fixture.refused("bob", "session.config_update", update);
    assert!(refused.starts_with("Unauthorized"), "{refused}");
}
