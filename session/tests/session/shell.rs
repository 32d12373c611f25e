//! Tests of people's own commands.

use crate::support::*;
use serde_json::json;

#[test]
fn direct_runs_reads_and_writes_and_gates_destructive_commands() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(
        fixture.sends_with_id("s1", "dan", "shell.exec", json!({"command": "ls"})),
        &[
            "8 dan shell.exec `ls` read on bot within 120s",
            "9 system tool.execute s1 `ls` on bot cleared_by=direct approved_by=[] profile=none 120000ms 10485760B until +60 | nonce for bot",
            "= accepted 8",
        ],
    );
    assert_lines(
        fixture.sends_with_id(
            "s2",
            "ann",
            "shell.exec",
            json!({"command": "make", "timeout_seconds": 300, "cwd": "/src"}),
        ),
        &[
            "10 ann shell.exec `make` write on bot within 300s",
            "11 system tool.execute s2 `make` on bot cleared_by=direct approved_by=[] profile=none 300000ms 5242880B until +60 | nonce for bot",
            "= accepted 10",
        ],
    );
    assert_lines(
        fixture.sends_with_id(
            "s3",
            "ann",
            "shell.exec",
            json!({"command": "rm -rf build"}),
        ),
        &[
            "12 ann shell.exec `rm -rf build` destructive on bot within 120s",
            "13 system gate.request action_ref=s3 destructive quorum=any:1 voters=[bob,cat] deadline=+300 then reject",
            "= accepted 12",
        ],
    );
    assert_lines(
        fixture.approves("bob", "s3"),
        &[
            "14 bob gate.approve s3",
            "15 system gate.resolve s3 approved by quorum approvals=[bob]",
            "16 system tool.execute s3 `rm -rf build` on bot cleared_by=quorum approved_by=[bob] profile=none 120000ms 1048576B until +60 | nonce for bot",
            "= accepted 14",
        ],
    );
    assert_lines(
        fixture.sends_with_id("s4", "dan", "shell.exec", json!({"command": "rm -rf /"})),
        &[
            "17 dan shell.exec `rm -rf /` blocked on bot within 120s",
            "= refused GateFailed: blocked by rule `blocked.rm-root`: deletes the root, a system directory or a home directory",
        ],
    );
    assert_lines(
        fixture.sends_with_id("s4", "dan", "shell.exec", json!({"command": "rm -rf /"})),
        &[
            "= refused InvalidState: proposal `s4` was made before and is blocked; propose again with a new id",
        ],
    );
}

#[test]
fn direct_all_runs_everything_but_blocked_commands() {
    let mut fixture = SessionFixture::team(json!({"shell_exec": "direct_all"}));
    assert_lines(
        fixture.sends_with_id(
            "s1",
            "ann",
            "shell.exec",
            json!({"command": "rm -rf build"}),
        ),
        &[
            "8 ann shell.exec `rm -rf build` destructive on bot within 120s",
            "9 system tool.execute s1 `rm -rf build` on bot cleared_by=direct approved_by=[] profile=none 120000ms 1048576B until +60 | nonce for bot",
            "= accepted 8",
        ],
    );
    assert_lines(
        fixture.sends_with_id("s2", "ann", "shell.exec", json!({"command": "rm -rf /"})),
        &[
            "10 ann shell.exec `rm -rf /` blocked on bot within 120s",
            "= refused GateFailed: blocked by rule `blocked.rm-root`: deletes the root, a system directory or a home directory",
        ],
    );
}

#[test]
fn a_persons_own_command_needs_votes_where_they_could_not_approve_it_alone() {
    let two = json!({"shell_exec": "direct_all",
        "quorum_by_category": {"write": {"type": "any", "count": 2},
            "destructive": {"type": "role", "role": "navigator", "count": 1}}});
    let mut fixture = SessionFixture::team(two);
    let mut runs_at_once = |who: &str, command: &str| {
        let id = format!(
            "{who}-{}",
            command.replace(|c: char| !c.is_alphanumeric(), "-")
        );
        let lines = fixture.sends_with_id(&id, who, "shell.exec", json!({"command": command}));
        let gated = lines.iter().any(|line| line.contains("gate.request"));
        let granted = lines.iter().any(|line| line.contains("tool.execute"));
        assert_ne!(gated, granted, "{lines:?}");
        granted
    };
    assert!(runs_at_once("ann", "ls") && runs_at_once("dan", "ls"));
    assert!(!runs_at_once("ann", "make"), "writes need two");
    assert!(!runs_at_once("ann", "rm -rf build"), "she is no navigator");
    fixture.configures(json!({"quorum_by_category": {}}));
    let mut runs_at_once = |who: &str, id: &str| {
        let make = json!({"command": "make"});
        let lines = fixture.sends_with_id(id, who, "shell.exec", make);
        lines.iter().any(|line| line.contains("tool.execute"))
    };
    assert!(runs_at_once("ann", "s1"), "an admin may approve");
    assert!(!runs_at_once("dan", "s2"), "a driver may approve nothing");
}

#[test]
fn gated_gates_everything_and_off_refuses() {
    let mut fixture = SessionFixture::team(json!({"shell_exec": "gated"}));
    assert_lines(
        fixture.sends_with_id("s1", "ann", "shell.exec", json!({"command": "ls"})),
        &[
            "8 ann shell.exec `ls` read on bot within 120s",
            "9 system gate.request action_ref=s1 read quorum=any:1 voters=[bob,cat] deadline=+300 then reject",
            "= accepted 8",
        ],
    );
    fixture.configures(json!({"shell_exec": "off"}));
    assert_refusal(
        fixture.refused("dan", "shell.exec", json!({"command": "ls"})),
        "InvalidState: `shell_exec` is off in this session",
    );
}

#[test]
fn an_allow_rule_does_not_cover_a_login_shell() {
    let mut fixture = SessionFixture::team(json!({"shell_exec": "gated"}));
    fixture.sends(
        "bob",
        "policy.allow",
        json!({"prefix": ["make"], "expires_at": at(60).to_string()}),
    );
    let lines = fixture.sends_with_id("s1", "dan", "shell.exec", json!({"command": "make"}));
    assert!(lines[1].contains("gate.request"), "{lines:?}");
}

#[test]
fn a_command_runs_on_the_named_executor_or_the_only_one() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_refusal(
        fixture.refused(
            "dan",
            "shell.exec",
            json!({"command": "ls", "executor": "zoe"}),
        ),
        "InvalidState: `zoe` does not run people's own commands; these do: bot",
    );
    fixture.joins(executor_announcement("bee", json!({"shell_exec": true})));
    fixture.joins(executor_announcement("cow", json!({})));
    assert_refusal(
        fixture.refused("dan", "shell.exec", json!({"command": "ls"})),
        "InvalidState: say which `executor` should run it: bee, bot",
    );
    assert_refusal(
        fixture.refused(
            "dan",
            "shell.exec",
            json!({"command": "ls", "executor": "cow"}),
        ),
        "InvalidState: `cow` does not run people's own commands; these do: bee, bot",
    );
    assert_lines(
        fixture.sends_with_id(
            "s1",
            "dan",
            "shell.exec",
            json!({"command": "ls", "executor": "bee"}),
        ),
        &[
            "10 dan shell.exec `ls` read on bee within 120s",
            "11 system tool.execute s1 `ls` on bee cleared_by=direct approved_by=[] profile=none 120000ms 10485760B until +60 | nonce for bee",
            "= accepted 10",
        ],
    );
    fixture.leaves("bot");
    assert_lines(
        fixture.sends_with_id("s2", "dan", "shell.exec", json!({"command": "ls"})),
        &[
            "13 dan shell.exec `ls` read on bee within 120s",
            "14 system tool.execute s2 `ls` on bee cleared_by=direct approved_by=[] profile=none 120000ms 10485760B until +60 | nonce for bee",
            "= accepted 13",
        ],
    );
    fixture.leaves("bee");
    assert_refusal(
        fixture.refused("dan", "shell.exec", json!({"command": "ls"})),
        "InvalidState: no agent in this session runs people's own commands; start one with `pvp agent --accept-shell`",
    );
    assert_refusal(
        fixture.refused(
            "dan",
            "shell.exec",
            json!({"command": "ls", "executor": "bee"}),
        ),
        "InvalidState: `bee` does not run people's own commands, and no other agent in this session does",
    );
}

#[test]
fn shell_exec_is_refused_to_the_wrong_people_and_for_bad_commands() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_refusal(
        fixture.refused("bob", "shell.exec", json!({"command": "ls"})),
        "Unauthorized: you need the capability `exec`; ask an admin for a role that has it",
    );
    assert_refusal(
        fixture.refused("bot", "shell.exec", json!({"command": "ls"})),
        "Unauthorized: only people may send this",
    );
    assert_refusal(
        fixture.refused("dan", "shell.exec", json!({"command": " "})),
        "InvalidMessage: the command is empty",
    );
    assert_refusal(
        fixture.refused(
            "dan",
            "shell.exec",
            json!({"command": "ls", "timeout_seconds": 301}),
        ),
        "InvalidMessage: `timeout` is 1 to 300 seconds in this mode",
    );
    assert_refusal(
        fixture.refused("dan", "shell.exec", json!({"command": "ls", "cwd": ""})),
        "InvalidMessage: `cwd` is a path of 1 to 4096 bytes",
    );
}

#[test]
fn a_clients_claimed_origin_and_assessment_are_replaced() {
    let mut fixture = SessionFixture::team(json!({}));
    let assessment = json!({"category": "read", "risk": "safe", "rule": "mine", "reason": "r", "profile": "none", "digest": "0".repeat(64), "policy": "mine"});
    fixture.sends(
        "dan",
        "shell.exec",
        json!({"command": "rm -rf build", "origin": "system", "assessment": assessment}),
    );
    let body = String::from_utf8(fixture.log[7].body()).unwrap();
    assert!(
        body.contains(r#""origin":"ui_bang""#) && body.contains(r#""category":"destructive""#),
        "{body}"
    );
}
