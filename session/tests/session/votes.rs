//! Tests of votes, amendments and withdrawals.

use crate::support::*;
use serde_json::{Value, json};

fn any(count: u32) -> Value {
    json!({"default_gate_quorum": {"type": "any", "count": count}})
}

fn edit(fixture: &SessionFixture, line: &str) -> Value {
    json!({"gate": "p1", "arguments": {"full_command": line}, "digest": fixture.digest("p1")})
}

#[test]
fn two_of_three_grant_exactly_one_run() {
    let mut fixture = SessionFixture::team(any(2));
    fixture.proposes("p1", "make");
    assert_lines(
        fixture.approves("bob", "p1"),
        &["10 bob gate.approve p1", "= accepted 10"],
    );
    assert_lines(fixture.approves("bob", "p1"), &["= duplicate 10"]);
    assert_lines(
        fixture.sends(
            "cat",
            "tool.approve",
            json!({"tool_proposal": "p1", "approver": "cat", "comment": "fine"}),
        ),
        &[
            "11 cat tool.approve p1",
            "12 system gate.resolve p1 approved by quorum approvals=[bob,cat]",
            "13 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[bob,cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 11",
        ],
    );
    assert_refusal(
        fixture.refused(
            "ann",
            "gate.approve",
            json!({"gate": "p1", "approver": "ann"}),
        ),
        "InvalidState: the gate is closed: the command was granted",
    );
    assert_refusal(
        fixture.refused(
            "ann",
            "gate.reject",
            json!({"gate": "p1", "rejector": "ann", "reason": "late"}),
        ),
        "InvalidState: the gate is closed: the command was granted",
    );
    let grants = fixture
        .log
        .iter()
        .filter(|entry| entry.grant_nonce.is_some())
        .count();
    assert_eq!(grants, 1);
}

#[test]
fn approving_again_writes_nothing() {
    let mut fixture = SessionFixture::team(any(2));
    fixture.proposes("p1", "make");
    fixture.approves("bob", "p1");
    let digest = fixture.digest("p1");
    for payload in [
        json!({"gate": "p1", "approver": "bob"}),
        json!({"gate": "p1", "approver": "bob", "digest": digest}),
        json!({"gate": "p1", "approver": "bob", "comment": "once more"}),
    ] {
        assert_lines(
            fixture.sends("bob", "gate.approve", payload),
            &["= duplicate 10"],
        );
    }
    let tool = json!({"tool_proposal": "p1", "approver": "bob"});
    assert_lines(
        fixture.sends("bob", "tool.approve", tool),
        &["= duplicate 10"],
    );
    assert_eq!(fixture.log.len(), 10);
}

#[test]
fn an_edit_asks_everyone_again() {
    let mut fixture = SessionFixture::team(any(2));
    fixture.proposes("p1", "make");
    fixture.approves("bob", "p1");
    let amend = edit(&fixture, "make all");
    fixture.sends("cat", "gate.amend", amend);
    let digest = fixture.digest("p1");
    let vote = json!({"gate": "p1", "approver": "bob", "digest": digest});
    assert_lines(
        fixture.sends("bob", "gate.approve", vote.clone()),
        &["12 bob gate.approve p1", "= accepted 12"],
    );
    assert_lines(
        fixture.sends("bob", "gate.approve", vote),
        &["= duplicate 12"],
    );
}

#[test]
fn a_vote_that_was_lost_can_be_given_again() {
    let mut fixture = SessionFixture::team(any(2));
    fixture.proposes("p1", "make");
    fixture.approves("bob", "p1");
    fixture.leaves("bob");
    fixture.joins(announcement("bob", "human", &["approver"]));
    let lines = fixture.approves("bob", "p1");
    assert!(lines[0].contains("bob gate.approve p1"), "{lines:?}");
}

#[test]
fn a_gate_may_be_named_by_its_own_id() {
    let mut fixture = SessionFixture::team(any(2));
    fixture.proposes("p1", "make");
    let gate = fixture.gate_id("p1");
    assert_lines(
        fixture.approves("bob", &gate),
        &["10 bob gate.approve p1", "= accepted 10"],
    );
    assert_lines(
        fixture.approves("cat", &gate),
        &[
            "11 cat gate.approve p1",
            "12 system gate.resolve p1 approved by quorum approvals=[bob,cat]",
            "13 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[bob,cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 11",
        ],
    );
    assert_refusal(
        fixture.refused(
            "ann",
            "gate.approve",
            json!({"gate": gate, "approver": "ann"}),
        ),
        "InvalidState: the gate is closed: the command was granted",
    );
}

#[test]
fn an_all_quorum_needs_everyone_who_could_vote_at_the_start() {
    let mut fixture = SessionFixture::team(json!({"default_gate_quorum": {"type": "all"}}));
    fixture.proposes("p1", "make");
    fixture.joins(announcement("fay", "human", &["approver"]));
    fixture.approves("ann", "p1");
    assert_lines(
        fixture.approves("fay", "p1"),
        &["12 fay gate.approve p1", "= accepted 12"],
    );
    fixture.approves("bob", "p1");
    assert_lines(
        fixture.approves("cat", "p1"),
        &[
            "14 cat gate.approve p1",
            "15 system gate.resolve p1 approved by quorum approvals=[ann,bob,cat,fay]",
            "16 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[ann,bob,cat,fay] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 14",
        ],
    );
}

#[test]
fn a_role_quorum_counts_only_holders_of_the_role() {
    let mut fixture = SessionFixture::team(
        json!({"default_gate_quorum": {"type": "role", "role": "navigator", "count": 1}}),
    );
    fixture.proposes("p1", "make");
    assert_lines(
        fixture.approves("ann", "p1"),
        &["10 ann gate.approve p1", "= accepted 10"],
    );
    assert_lines(
        fixture.approves("cat", "p1"),
        &[
            "11 cat gate.approve p1",
            "12 system gate.resolve p1 approved by quorum approvals=[cat]",
            "13 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 11",
        ],
    );
}

#[test]
fn a_specific_quorum_waits_for_each_of_them_even_if_one_has_left() {
    let mut fixture = SessionFixture::team(
        json!({"default_gate_quorum": {"type": "specific", "participants": ["bob", "cat"]}}),
    );
    fixture.proposes("p1", "make");
    fixture.approves("bob", "p1");
    assert_lines(
        fixture.approves("ann", "p1"),
        &["11 ann gate.approve p1", "= accepted 11"],
    );
    assert_lines(
        fixture.leaves("cat"),
        &["12 cat session.leave", "= accepted 12"],
    );
    fixture.joins(announcement("cat", "human", &["navigator"]));
    assert_lines(
        fixture.approves("cat", "p1"),
        &[
            "14 cat gate.approve p1",
            "15 system gate.resolve p1 approved by quorum approvals=[ann,bob,cat]",
            "16 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[ann,bob,cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 14",
        ],
    );
}

#[test]
fn a_majority_is_more_than_half_of_those_who_could_vote_at_the_start() {
    let mut fixture = SessionFixture::team(json!({"default_gate_quorum": {"type": "majority"}}));
    fixture.joins(announcement("fay", "human", &["approver"]));
    fixture.proposes("p1", "make");
    fixture.approves("ann", "p1");
    assert_lines(
        fixture.approves("bob", "p1"),
        &["12 bob gate.approve p1", "= accepted 12"],
    );
    assert_lines(
        fixture.approves("cat", "p1"),
        &[
            "13 cat gate.approve p1",
            "14 system gate.resolve p1 approved by quorum approvals=[ann,bob,cat]",
            "15 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[ann,bob,cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 13",
        ],
    );
}

#[test]
fn newcomers_may_vote_but_do_not_raise_the_quorum() {
    let mut fixture = SessionFixture::team(json!({"default_gate_quorum": {"type": "majority"}}));
    fixture.proposes("p1", "make");
    for name in ["fay", "gus", "hal"] {
        fixture.joins(announcement(name, "human", &["approver"]));
    }
    fixture.approves("fay", "p1");
    assert_lines(
        fixture.approves("gus", "p1"),
        &[
            "14 gus gate.approve p1",
            "15 system gate.resolve p1 approved by quorum approvals=[fay,gus]",
            "16 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[fay,gus] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 14",
        ],
    );
}

#[test]
fn a_gate_that_waited_only_for_a_member_who_left_passes() {
    let mut fixture = SessionFixture::team(json!({"default_gate_quorum": {"type": "all"}}));
    fixture.proposes("p1", "make");
    fixture.approves("ann", "p1");
    fixture.approves("bob", "p1");
    assert_lines(
        fixture.leaves("cat"),
        &[
            "12 cat session.leave",
            "13 system gate.resolve p1 approved by quorum approvals=[ann,bob]",
            "14 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[ann,bob] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 12",
        ],
    );
}

#[test]
fn an_approval_is_removed_when_its_voter_leaves() {
    let mut fixture = SessionFixture::team(any(2));
    fixture.proposes("p1", "make");
    fixture.approves("bob", "p1");
    assert_lines(
        fixture.leaves("bob"),
        &["11 bob session.leave", "= accepted 11"],
    );
    assert_lines(
        fixture.approves("cat", "p1"),
        &["12 cat gate.approve p1", "= accepted 12"],
    );
    fixture.joins(announcement("bob", "human", &["approver"]));
    assert_lines(
        fixture.approves("bob", "p1"),
        &[
            "14 bob gate.approve p1",
            "15 system gate.resolve p1 approved by quorum approvals=[bob,cat]",
            "16 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[bob,cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 14",
        ],
    );
}

#[test]
fn a_gate_does_not_pass_when_its_last_approver_leaves() {
    let mut fixture = SessionFixture::team(json!({"default_gate_quorum": {"type": "all"}}));
    fixture.proposes("p1", "make");
    fixture.leaves("ann");
    fixture.leaves("bob");
    assert_lines(
        fixture.leaves("cat"),
        &["12 cat session.leave", "= accepted 12"],
    );
}

#[test]
fn one_rejection_closes_the_gate_whatever_was_approved() {
    let mut fixture = SessionFixture::team(any(2));
    fixture.proposes("p1", "make");
    fixture.approves("bob", "p1");
    let no = json!({"tool_proposal": "p1", "rejector": "bob", "reason": "wrong branch", "suggestion": "make -n"});
    assert_lines(
        fixture.sends("bob", "tool.reject", no),
        &[
            "11 bob tool.reject p1 wrong branch",
            "12 system gate.resolve p1 rejected by rejection by=bob reason=wrong branch suggestion=make -n",
            "= accepted 11",
        ],
    );
    assert_refusal(
        fixture.refused(
            "cat",
            "gate.approve",
            json!({"gate": "p1", "approver": "cat"}),
        ),
        "InvalidState: the gate is closed: the proposal is rejected",
    );
    fixture.proposes("p2", "make");
    assert_lines(
        fixture.rejects("cat", "p2"),
        &[
            "15 cat gate.reject p2 no",
            "16 system gate.resolve p2 rejected by rejection by=cat reason=no",
            "= accepted 15",
        ],
    );
}

#[test]
fn votes_from_those_who_may_not_vote_are_refused() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "make");
    fixture.sends_with_id(
        "s1",
        "ann",
        "shell.exec",
        json!({"command": "rm -rf build"}),
    );
    let yes = |gate: &str, approver: &str| json!({"gate": gate, "approver": approver});
    assert_refusal(
        fixture.refused("dan", "gate.approve", yes("p1", "dan")),
        "Unauthorized: you need the capability `approve`; ask an admin for a role that has it",
    );
    assert_refusal(
        fixture.refused("eve", "gate.approve", yes("p1", "eve")),
        "Unauthorized: you need the capability `approve`; ask an admin for a role that has it",
    );
    assert_refusal(
        fixture.refused("bot", "gate.approve", yes("p1", "bot")),
        "Unauthorized: agents do not vote; a person has to decide",
    );
    assert_refusal(
        fixture.refused("bob", "gate.approve", yes("p1", "cat")),
        "Unauthorized: `approver` is `cat`, but you are `bob`; name yourself",
    );
    assert_refusal(
        fixture.refused(
            "bob",
            "gate.reject",
            json!({"gate": "p1", "rejector": "cat", "reason": "r"}),
        ),
        "Unauthorized: `rejector` is `cat`, but you are `bob`; name yourself",
    );
    assert_refusal(
        fixture.refused(
            "bob",
            "tool.approve",
            json!({"tool_proposal": "p1", "approver": "cat"}),
        ),
        "Unauthorized: `approver` is `cat`, but you are `bob`; name yourself",
    );
    assert_refusal(
        fixture.refused(
            "bob",
            "tool.reject",
            json!({"tool_proposal": "p1", "rejector": "cat", "reason": "r"}),
        ),
        "Unauthorized: `rejector` is `cat`, but you are `bob`; name yourself",
    );
    assert_refusal(
        fixture.refused("ann", "gate.approve", yes("s1", "ann")),
        "Unauthorized: you cannot vote on your own command",
    );
    assert_refusal(
        fixture.refused(
            "ann",
            "gate.reject",
            json!({"gate": "s1", "rejector": "ann", "reason": "r"}),
        ),
        "Unauthorized: you cannot vote on your own command",
    );
    assert_refusal(
        fixture.refused("zoe", "gate.approve", yes("p1", "zoe")),
        "Unauthorized: join the session first: send `session.join`",
    );
    assert_refusal(
        fixture.refused("bob", "gate.approve", yes("p9", "bob")),
        "InvalidState: there is no gate and no proposal `p9`",
    );
    fixture.proposes("p2", "ls");
    assert_refusal(
        fixture.refused("bob", "gate.approve", yes("p2", "bob")),
        "InvalidState: the gate is closed: the command was granted",
    );
}

#[test]
fn a_vote_binds_the_digest_that_was_shown() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "make");
    let vote = |digest: String| json!({"gate": "p1", "approver": "bob", "digest": digest});
    assert_refusal(
        fixture.refused("bob", "gate.approve", vote("0".repeat(64))),
        "InvalidState: the command was edited since you saw it; look again and vote with its digest",
    );
    let digest = fixture.digest("p1");
    assert_lines(
        fixture.sends("bob", "gate.approve", vote(digest)),
        &[
            "10 bob gate.approve p1",
            "11 system gate.resolve p1 approved by quorum approvals=[bob]",
            "12 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[bob] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 10",
        ],
    );
}

#[test]
fn an_edit_voids_votes_and_later_votes_need_its_digest() {
    let mut fixture = SessionFixture::team(
        json!({"default_gate_quorum": {"type": "any", "count": 2}, "quorum_by_category": {"destructive": {"type": "all"}}}),
    );
    fixture.proposes("p1", "make");
    let before = fixture.digest("p1");
    fixture.approves("bob", "p1");
    fixture.advance(100);
    let amend = edit(&fixture, "rm -rf build");
    assert_lines(
        fixture.sends("cat", "gate.amend", amend.clone()),
        &[
            "11 cat gate.amend gate(p1) `rm -rf build` destructive quorum=all voters=[ann,bob,cat] deadline=+400",
            "= accepted 11",
        ],
    );
    assert_refusal(
        fixture.refused(
            "ann",
            "gate.approve",
            json!({"gate": "p1", "approver": "ann"}),
        ),
        "InvalidState: the command was edited since you saw it; look again and vote with its digest",
    );
    assert_refusal(
        fixture.refused(
            "ann",
            "gate.approve",
            json!({"gate": "p1", "approver": "ann", "digest": before}),
        ),
        "InvalidState: the command was edited since you saw it; look again and vote with its digest",
    );
    assert_refusal(
        fixture.refused(
            "ann",
            "gate.reject",
            json!({"gate": "p1", "rejector": "ann", "reason": "r"}),
        ),
        "InvalidState: the command was edited since you saw it; look again and vote with its digest",
    );
    assert_refusal(
        fixture.refused("ann", "gate.amend", amend),
        "InvalidState: the command was edited since you saw it; look again and vote with its digest",
    );
    let shown = fixture.digest("p1");
    for (who, last) in [("ann", false), ("bob", false), ("cat", true)] {
        let lines = fixture.sends(
            who,
            "gate.approve",
            json!({"gate": "p1", "approver": who, "digest": shown}),
        );
        if last {
            assert_lines(
                lines,
                &[
                    "14 cat gate.approve p1",
                    "15 system gate.resolve p1 approved by quorum approvals=[ann,bob,cat]",
                    "16 system tool.execute p1 `rm -rf build` on bot cleared_by=quorum approved_by=[ann,bob,cat] profile=none 120000ms 1048576B until +160 | nonce for bot",
                    "= accepted 14",
                ],
            );
        } else {
            assert_eq!(lines.len(), 2);
        }
    }
}

#[test]
fn an_edit_is_refused_if_the_executor_would_not_run_it() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.joins(executor_announcement("bee", json!({"edits": false})));
    fixture.sends_with_id("p1", "bee", "tool.propose", shell_proposal("bee", "make"));
    let amend = edit(&fixture, "make -j2");
    assert_refusal(
        fixture.refused("cat", "gate.amend", amend),
        "InvalidState: `bee` runs only what it proposed itself; reject the command, and say what to run instead",
    );
}

#[test]
fn a_vote_binds_the_files_and_the_secrets_of_a_command() {
    let mut fixture = SessionFixture::team(json!({}));
    let file = |sha256: &str| json!({"path": "run.sh", "sha256": sha256, "bytes": 3});
    let propose = |arguments: Value| {
        let mut propose = shell_proposal("bot", "./run.sh");
        for (name, value) in arguments.as_object().unwrap() {
            propose["arguments"][name] = value.clone();
        }
        propose
    };
    let one = propose(json!({"files": [file(&"11".repeat(32))]}));
    fixture.sends_with_id("p1", "bot", "tool.propose", one);
    let shown = fixture.digest("p1");
    let mut edited = edit(&fixture, "./run.sh");
    edited["arguments"]["files"] = json!([file(&"22".repeat(32))]);
    fixture.sends("cat", "gate.amend", edited);
    assert_refusal(
        fixture.refused(
            "ann",
            "gate.approve",
            json!({"gate": "p1", "approver": "ann", "digest": shown}),
        ),
        "InvalidState: the command was edited since you saw it; look again and vote with its digest",
    );
    for (arguments, answer) in [
        (
            json!({"files": [file("00"), file("00")]}),
            "InvalidMessage: `arguments.files` must be a list of `path`, `sha256` and `bytes`",
        ),
        (
            json!({"files": [{"path": "/etc/passwd"}]}),
            "InvalidMessage: `files` has at most 64 paths from the workspace, each only once",
        ),
        (
            json!({"files": [{"path": "a"}, {"path": "a"}]}),
            "InvalidMessage: `files` has at most 64 paths from the workspace, each only once",
        ),
        (
            json!({"secrets": ["A"], "env": {"A": "b"}}),
            "InvalidMessage: each variable has one name in `env` and `secrets`, and only once",
        ),
        (
            json!({"secrets": ["PATH"]}),
            "InvalidMessage: the environment may not set `PATH`, because it decides which code runs; write it in the command line, where it is assessed",
        ),
    ] {
        assert_refusal(
            fixture.refused("bot", "tool.propose", propose(arguments)),
            answer,
        );
    }
}

#[test]
fn with_four_eyes_the_editor_does_not_count() {
    let mut fixture =
        SessionFixture::team(json!({"four_eyes": true, "default_gate_quorum": {"type": "all"}}));
    fixture.proposes("p1", "make");
    let amend = edit(&fixture, "make -j2");
    fixture.sends("cat", "gate.amend", amend);
    let digest = fixture.digest("p1");
    let yes = |who: &str| json!({"gate": "p1", "approver": who, "digest": digest});
    assert_refusal(
        fixture.refused("cat", "gate.approve", yes("cat")),
        "Unauthorized: you edited this command, so you cannot vote on it: the session has `four_eyes`",
    );
    fixture.sends("ann", "gate.approve", yes("ann"));
    assert_lines(
        fixture.sends("bob", "gate.approve", yes("bob")),
        &[
            "12 bob gate.approve p1",
            "13 system gate.resolve p1 approved by quorum approvals=[ann,bob]",
            "14 system tool.execute p1 `make -j2` on bot cleared_by=quorum approved_by=[ann,bob] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 12",
        ],
    );
}

#[test]
fn switching_on_four_eyes_removes_the_editors_vote() {
    let mut fixture = SessionFixture::team(any(2));
    fixture.proposes("p1", "make");
    let amend = edit(&fixture, "make -j2");
    fixture.sends("cat", "gate.amend", amend);
    let digest = fixture.digest("p1");
    let yes = |who: &str| json!({"gate": "p1", "approver": who, "digest": digest});
    fixture.sends("cat", "gate.approve", yes("cat"));
    fixture.configures(json!({"four_eyes": true}));
    assert_lines(
        fixture.sends("bob", "gate.approve", yes("bob")),
        &["13 bob gate.approve p1", "= accepted 13"],
    );
    assert_lines(
        fixture.sends("ann", "gate.approve", yes("ann")),
        &[
            "14 ann gate.approve p1",
            "15 system gate.resolve p1 approved by quorum approvals=[ann,bob]",
            "16 system tool.execute p1 `make -j2` on bot cleared_by=quorum approved_by=[ann,bob] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 14",
        ],
    );
}

#[test]
fn an_edit_is_assessed_like_any_command() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "make");
    for (line, answer) in [
        (
            "rm -rf /",
            "GateFailed: blocked by rule `blocked.rm-root`: deletes the root, a system directory or a home directory",
        ),
        ("make", "InvalidState: the edit changes nothing"),
        (" ", "InvalidMessage: the command is empty"),
    ] {
        let amend = edit(&fixture, line);
        assert_refusal(fixture.refused("bob", "gate.amend", amend), answer);
    }
    let amend = json!({"gate": "p1", "arguments": {}, "digest": fixture.digest("p1")});
    assert_refusal(
        fixture.refused("bob", "gate.amend", amend),
        "InvalidMessage: shell arguments need `full_command`, or `command` and `args`",
    );
    let amend = edit(&fixture, "make -n");
    assert_refusal(
        fixture.refused("dan", "gate.amend", amend.clone()),
        "Unauthorized: you need the capability `approve`; ask an admin for a role that has it",
    );
    assert_refusal(
        fixture.refused("bot", "gate.amend", amend.clone()),
        "Unauthorized: agents do not vote; a person has to decide",
    );
    let mut elsewhere = amend.clone();
    elsewhere["gate"] = json!("p7");
    assert_refusal(
        fixture.refused("bob", "gate.amend", elsewhere),
        "InvalidState: there is no gate and no proposal `p7`",
    );
    fixture.approves("bob", "p1");
    assert_refusal(
        fixture.refused("bob", "gate.amend", amend),
        "InvalidState: the gate is closed: the command was granted",
    );
}

#[test]
fn an_edit_to_a_read_still_needs_its_votes() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "make");
    let amend = edit(&fixture, "ls");
    assert_lines(
        fixture.sends("bob", "gate.amend", amend),
        &[
            "10 bob gate.amend gate(p1) `ls` read quorum=any:1 voters=[ann,bob,cat] deadline=+300",
            "= accepted 10",
        ],
    );
    let vote = json!({"gate": "p1", "approver": "bob", "digest": fixture.digest("p1")});
    assert_lines(
        fixture.sends("bob", "gate.approve", vote),
        &[
            "11 bob gate.approve p1",
            "12 system gate.resolve p1 approved by quorum approvals=[bob]",
            "13 system tool.execute p1 `ls` on bot cleared_by=quorum approved_by=[bob] profile=none 30000ms 10485760B until +60 | nonce for bot",
            "= accepted 11",
        ],
    );
}

#[test]
fn a_persons_own_command_is_not_edited_by_others() {
    let mut fixture = SessionFixture::team(json!({"shell_exec": "gated"}));
    fixture.sends_with_id("p1", "dan", "shell.exec", json!({"command": "make"}));
    let amend = edit(&fixture, "make -n");
    assert_refusal(
        fixture.refused("bob", "gate.amend", amend),
        "InvalidState: a person's own command is not edited by others; reject it instead",
    );
}

#[test]
fn a_waiting_proposal_is_withdrawn_by_its_proposer_or_one_who_may_interrupt() {
    let mut fixture = SessionFixture::team(json!({}));
    for name in ["p1", "p2", "p3"] {
        fixture.proposes(name, "make");
    }
    assert_refusal(
        fixture.refused("eve", "tool.cancel", json!({"tool_proposal": "p1"})),
        "Unauthorized: you need the capability `interrupt`; ask an admin for a role that has it",
    );
    assert_lines(
        fixture.sends(
            "bot",
            "tool.cancel",
            json!({"tool_proposal": "p1", "reason": "never mind"}),
        ),
        &[
            "14 bot tool.cancel p1 never mind",
            "15 system gate.resolve p1 cancelled by cancel by=bot reason=never mind",
            "= accepted 14",
        ],
    );
    let gate = fixture.gate_id("p2");
    assert_lines(
        fixture.sends("dan", "tool.cancel", json!({"tool_proposal": gate})),
        &[
            "16 dan tool.cancel p2",
            "17 system gate.resolve p2 cancelled by cancel by=dan",
            "= accepted 16",
        ],
    );
    assert_refusal(
        fixture.refused("dan", "tool.cancel", json!({"tool_proposal": "p1"})),
        "InvalidState: command `p1` has ended already",
    );
    assert_refusal(
        fixture.refused("dan", "tool.cancel", json!({"tool_proposal": "p9"})),
        "InvalidState: there is no proposal `p9`",
    );
    assert_refusal(
        fixture.refused(
            "bob",
            "gate.approve",
            json!({"gate": "p1", "approver": "bob"}),
        ),
        "InvalidState: the gate is closed: the proposal is cancelled",
    );
}

#[test]
fn with_skip_gates_count_without_those_who_are_away() {
    let mut fixture = SessionFixture::team(json!({"default_gate_quorum": {"type": "all"}}));
    fixture.proposes("p1", "make");
    fixture.approves("ann", "p1");
    fixture.approves("bob", "p1");
    assert_lines(
        fixture.times_out("cat"),
        &[
            "12 system presence.update cat away",
            "13 system gate.resolve p1 approved by quorum approvals=[ann,bob]",
            "14 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[ann,bob] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 14",
        ],
    );
    fixture.proposes("p2", "make");
    fixture.approves("ann", "p2");
    fixture.comes_back("cat");
    assert_lines(
        fixture.approves("bob", "p2"),
        &["19 bob gate.approve p2", "= accepted 19"],
    );
    assert_lines(
        fixture.approves("cat", "p2"),
        &[
            "20 cat gate.approve p2",
            "21 system gate.resolve p2 approved by quorum approvals=[ann,bob,cat]",
            "22 system tool.execute p2 `make` on bot cleared_by=quorum approved_by=[ann,bob,cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 20",
        ],
    );
}

#[test]
fn with_wait_gates_wait_for_those_who_are_away() {
    let mut fixture = SessionFixture::team(
        json!({"default_gate_quorum": {"type": "all"}, "on_participant_timeout": "wait"}),
    );
    fixture.proposes("p1", "make");
    fixture.approves("ann", "p1");
    fixture.approves("bob", "p1");
    assert_lines(
        fixture.times_out("cat"),
        &["12 system presence.update cat away", "= accepted 12"],
    );
    assert_lines(
        fixture.comes_back("cat"),
        &["13 system presence.update cat active", "= accepted 13"],
    );
    assert_lines(
        fixture.approves("cat", "p1"),
        &[
            "14 cat gate.approve p1",
            "15 system gate.resolve p1 approved by quorum approvals=[ann,bob,cat]",
            "16 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[ann,bob,cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 14",
        ],
    );
}

#[test]
fn with_pause_session_nothing_starts_until_they_are_back() {
    let mut fixture = SessionFixture::team(json!({"on_participant_timeout": "pause_session"}));
    fixture.proposes("p1", "make");
    fixture.times_out("eve");
    assert_eq!(fixture.session.paused_for(), None);
    fixture.times_out("cat");
    fixture.times_out("bot");
    let paused = "InvalidState: the session is paused until bot and cat is back";
    assert_refusal(
        fixture.refused("bot", "tool.propose", shell_proposal("bot", "ls")),
        paused,
    );
    assert_refusal(
        fixture.refused("dan", "shell.exec", json!({"command": "ls"})),
        paused,
    );
    assert_refusal(
        fixture.refused(
            "dan",
            "prompt.submit",
            json!({"content": "c", "target_agent": "bot", "contributors": [], "context_keys": []}),
        ),
        paused,
    );
    assert_refusal(
        fixture.refused(
            "dan",
            "prompt.amend",
            json!({"original_prompt": "m", "amendment": "a", "reason": "r"}),
        ),
        paused,
    );
    assert_lines(
        fixture.approves("bob", "p1"),
        &["13 bob gate.approve p1", "= accepted 13"],
    );
    assert_lines(
        fixture.comes_back("bot"),
        &["14 system presence.update bot active", "= accepted 14"],
    );
    assert_lines(
        fixture.comes_back("cat"),
        &[
            "15 system presence.update cat active",
            "16 system gate.resolve p1 approved by quorum approvals=[bob]",
            "17 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[bob] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 17",
        ],
    );
}

#[test]
fn a_pause_ends_when_the_one_it_waits_for_leaves_or_the_rule_changes() {
    for way in ["leave", "configure"] {
        let mut fixture = SessionFixture::team(json!({"on_participant_timeout": "pause_session"}));
        fixture.proposes("p1", "make");
        fixture.times_out("cat");
        fixture.approves("bob", "p1");
        let lines = match way {
            "leave" => fixture.leaves("cat"),
            _ => fixture.configures(json!({"on_participant_timeout": "wait"})),
        };
        assert!(
            lines.iter().any(|line| line.contains("tool.execute p1")),
            "{way}: {lines:?}"
        );
    }
}

#[test]
fn the_length_of_a_comment_is_limited() {
    let mut fixture = SessionFixture::team(any(2));
    fixture.proposes("p1", "make");
    let with =
        |bytes: usize| json!({"gate": "p1", "approver": "bob", "comment": "x".repeat(bytes)});
    assert_refusal(
        fixture.refused("bob", "gate.approve", with(4097)),
        "InvalidMessage: `comment` is at most 4096 bytes",
    );
    assert_lines(
        fixture.sends("bob", "gate.approve", with(4096)),
        &["10 bob gate.approve p1", "= accepted 10"],
    );
}

#[test]
fn a_proposer_is_never_among_those_who_decide() {
    let mut fixture = SessionFixture::team(json!({"shell_exec": "gated"}));
    fixture.sends_with_id("s1", "ann", "shell.exec", json!({"command": "make"}));
    let gates = fixture.session.open_gates();
    let (proposal, gate) = gates[0];
    let approvers = fixture.session.approvers(gate, &proposal.proposer);
    assert_eq!(
        approvers.eligible,
        [participant_id("bob"), participant_id("cat")].into()
    );
    assert_eq!(approvers.electorate, approvers.eligible);
}

#[test]
fn a_vote_on_the_first_version_does_not_count_for_the_second() {
    let mut fixture = SessionFixture::team(any(2));
    fixture.proposes("p1", "make");
    fixture.approves("bob", "p1");
    let amend = edit(&fixture, "make -n");
    fixture.sends("cat", "gate.amend", amend);
    let vote = json!({"gate": "p1", "approver": "ann", "digest": fixture.digest("p1")});
    assert_lines(
        fixture.sends("ann", "gate.approve", vote),
        &["12 ann gate.approve p1", "= accepted 12"],
    );
}

#[test]
fn in_a_solo_session_people_approve_their_own_commands_and_agents_still_do_not_vote() {
    let mut fixture = SessionFixture::team(json!({"solo": true}));
    fixture.sends_with_id("s1", "ann", "shell.exec", json!({"command": "rm -rf x"}));
    let approval = json!({"gate": "s1", "approver": "ann", "digest": fixture.digest("s1")});
    let lines = fixture.sends("ann", "gate.approve", approval);
    assert!(lines[1].contains("gate.resolve s1 approved by quorum approvals=[ann]"));
    assert!(lines[2].contains("tool.execute s1 `rm -rf x` on bot cleared_by=quorum"));
    fixture.proposes("p1", "make");
    let own = json!({"gate": "p1", "approver": "bot"});
    assert_refusal(
        fixture.refused("bot", "gate.approve", own),
        "Unauthorized: agents do not vote; a person has to decide",
    );
}

#[test]
fn the_vote_of_an_owner_stops_counting_when_the_session_is_no_longer_solo() {
    let mut fixture = SessionFixture::team(json!({
        "solo": true, "default_gate_quorum": {"type": "any", "count": 2},
    }));
    fixture.sends_with_id("s1", "ann", "shell.exec", json!({"command": "rm -rf x"}));
    fixture.approves("ann", "s1");
    fixture.configures(json!({"solo": false}));
    assert_eq!(fixture.approves("bob", "s1").len(), 2, "one of two counts");
    let granted = fixture.approves("cat", "s1");
    assert!(granted[1].contains("approvals=[bob,cat]"), "{granted:?}");
}
