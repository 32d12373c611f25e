//! Votes, edits and withdrawals.

mod kit;
use kit::*;
use serde_json::{Value, json};

fn any(count: u32) -> Value {
    json!({"default_gate_quorum": {"type": "any", "count": count}})
}

fn edit(room: &Room, line: &str) -> Value {
    json!({"gate": "p1", "arguments": {"full_command": line}, "digest": room.digest("p1")})
}

#[test]
fn two_of_three_grant_exactly_one_run() {
    let mut room = Room::team(any(2));
    room.proposes("p1", "make");
    told(
        room.approves("bob", "p1"),
        &["10 bob gate.approve p1", "= accepted 10"],
    );
    told(
        room.approves("bob", "p1"),
        &["11 bob gate.approve p1", "= accepted 11"],
    );
    told(
        room.says(
            "cat",
            "tool.approve",
            json!({"tool_proposal": "p1", "approver": "cat", "comment": "fine"}),
        ),
        &[
            "12 cat tool.approve p1",
            "13 system gate.resolve p1 approved by quorum approvals=[bob,cat]",
            "14 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[bob,cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 12",
        ],
    );
    says_no(
        room.refused(
            "ann",
            "gate.approve",
            json!({"gate": "p1", "approver": "ann"}),
        ),
        "InvalidState: the gate is closed: the command was granted",
    );
    says_no(
        room.refused(
            "ann",
            "gate.reject",
            json!({"gate": "p1", "rejector": "ann", "reason": "late"}),
        ),
        "InvalidState: the gate is closed: the command was granted",
    );
    let grants = room
        .log
        .iter()
        .filter(|entry| entry.private.is_some())
        .count();
    assert_eq!(grants, 1);
}

#[test]
fn a_gate_may_be_named_by_its_own_id() {
    let mut room = Room::team(any(2));
    room.proposes("p1", "make");
    let gate = room.gate_id("p1");
    told(
        room.approves("bob", &gate),
        &["10 bob gate.approve gate(p1)", "= accepted 10"],
    );
    told(
        room.approves("cat", &gate),
        &[
            "11 cat gate.approve gate(p1)",
            "12 system gate.resolve p1 approved by quorum approvals=[bob,cat]",
            "13 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[bob,cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 11",
        ],
    );
    says_no(
        room.refused(
            "ann",
            "gate.approve",
            json!({"gate": gate, "approver": "ann"}),
        ),
        "InvalidState: the gate is closed: the command was granted",
    );
}

#[test]
fn everyone_means_everyone_who_was_asked() {
    let mut room = Room::team(json!({"default_gate_quorum": {"type": "all"}}));
    room.proposes("p1", "make");
    room.joins(announcement("fay", "human", &["approver"]));
    room.approves("ann", "p1");
    told(
        room.approves("fay", "p1"),
        &["12 fay gate.approve p1", "= accepted 12"],
    );
    room.approves("bob", "p1");
    told(
        room.approves("cat", "p1"),
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
    let mut room = Room::team(
        json!({"default_gate_quorum": {"type": "role", "role": "navigator", "count": 1}}),
    );
    room.proposes("p1", "make");
    told(
        room.approves("ann", "p1"),
        &["10 ann gate.approve p1", "= accepted 10"],
    );
    told(
        room.approves("cat", "p1"),
        &[
            "11 cat gate.approve p1",
            "12 system gate.resolve p1 approved by quorum approvals=[ann,cat]",
            "13 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[ann,cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 11",
        ],
    );
}

#[test]
fn a_specific_quorum_waits_for_each_of_them_even_if_one_has_left() {
    let mut room = Room::team(
        json!({"default_gate_quorum": {"type": "specific", "participants": ["bob", "cat"]}}),
    );
    room.proposes("p1", "make");
    room.approves("bob", "p1");
    told(
        room.approves("ann", "p1"),
        &["11 ann gate.approve p1", "= accepted 11"],
    );
    told(
        room.leaves("cat"),
        &["12 cat session.leave", "= accepted 12"],
    );
    room.joins(announcement("cat", "human", &["navigator"]));
    told(
        room.approves("cat", "p1"),
        &[
            "14 cat gate.approve p1",
            "15 system gate.resolve p1 approved by quorum approvals=[ann,bob,cat]",
            "16 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[ann,bob,cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 14",
        ],
    );
}

#[test]
fn a_majority_is_more_than_half_of_those_who_were_asked() {
    let mut room = Room::team(json!({"default_gate_quorum": {"type": "majority"}}));
    room.joins(announcement("fay", "human", &["approver"]));
    room.proposes("p1", "make");
    room.approves("ann", "p1");
    told(
        room.approves("bob", "p1"),
        &["12 bob gate.approve p1", "= accepted 12"],
    );
    told(
        room.approves("cat", "p1"),
        &[
            "13 cat gate.approve p1",
            "14 system gate.resolve p1 approved by quorum approvals=[ann,bob,cat]",
            "15 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[ann,bob,cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 13",
        ],
    );
}

#[test]
fn newcomers_may_vote_but_do_not_raise_the_bar() {
    let mut room = Room::team(json!({"default_gate_quorum": {"type": "majority"}}));
    room.proposes("p1", "make");
    for name in ["fay", "gus", "hal"] {
        room.joins(announcement(name, "human", &["approver"]));
    }
    room.approves("fay", "p1");
    told(
        room.approves("gus", "p1"),
        &[
            "14 gus gate.approve p1",
            "15 system gate.resolve p1 approved by quorum approvals=[fay,gus]",
            "16 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[fay,gus] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 14",
        ],
    );
}

#[test]
fn a_gate_that_waited_only_for_who_left_passes_then() {
    let mut room = Room::team(json!({"default_gate_quorum": {"type": "all"}}));
    room.proposes("p1", "make");
    room.approves("ann", "p1");
    room.approves("bob", "p1");
    told(
        room.leaves("cat"),
        &[
            "12 cat session.leave",
            "13 system gate.resolve p1 approved by quorum approvals=[ann,bob]",
            "14 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[ann,bob] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 12",
        ],
    );
}

#[test]
fn an_approval_goes_with_the_one_who_gave_it() {
    let mut room = Room::team(any(2));
    room.proposes("p1", "make");
    room.approves("bob", "p1");
    told(
        room.leaves("bob"),
        &["11 bob session.leave", "= accepted 11"],
    );
    told(
        room.approves("cat", "p1"),
        &["12 cat gate.approve p1", "= accepted 12"],
    );
    room.joins(announcement("bob", "human", &["approver"]));
    told(
        room.approves("bob", "p1"),
        &[
            "14 bob gate.approve p1",
            "15 system gate.resolve p1 approved by quorum approvals=[bob,cat]",
            "16 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[bob,cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 14",
        ],
    );
}

#[test]
fn the_last_who_could_approve_leaving_approves_nothing() {
    let mut room = Room::team(json!({"default_gate_quorum": {"type": "all"}}));
    room.proposes("p1", "make");
    room.leaves("ann");
    room.leaves("bob");
    told(
        room.leaves("cat"),
        &["12 cat session.leave", "= accepted 12"],
    );
}

#[test]
fn one_rejection_closes_the_gate_whatever_was_approved() {
    let mut room = Room::team(any(2));
    room.proposes("p1", "make");
    room.approves("bob", "p1");
    let no = json!({"tool_proposal": "p1", "rejector": "bob", "reason": "wrong branch", "suggestion": "make -n"});
    told(
        room.says("bob", "tool.reject", no),
        &[
            "11 bob tool.reject p1 wrong branch",
            "12 system gate.resolve p1 rejected by rejection by=bob reason=wrong branch suggestion=make -n",
            "= accepted 11",
        ],
    );
    says_no(
        room.refused(
            "cat",
            "gate.approve",
            json!({"gate": "p1", "approver": "cat"}),
        ),
        "InvalidState: the gate is closed: the proposal is rejected",
    );
    room.proposes("p2", "make");
    told(
        room.rejects("cat", "p2"),
        &[
            "15 cat gate.reject p2 no",
            "16 system gate.resolve p2 rejected by rejection by=cat reason=no",
            "= accepted 15",
        ],
    );
}

#[test]
fn nobody_votes_who_may_not() {
    let mut room = Room::team(json!({}));
    room.proposes("p1", "make");
    room.says_as(
        "s1",
        "ann",
        "shell.exec",
        json!({"command": "rm -rf build"}),
    );
    let yes = |gate: &str, approver: &str| json!({"gate": gate, "approver": approver});
    says_no(
        room.refused("dan", "gate.approve", yes("p1", "dan")),
        "Unauthorized: you need the capability `approve`; ask an admin for a role that has it",
    );
    says_no(
        room.refused("eve", "gate.approve", yes("p1", "eve")),
        "Unauthorized: you need the capability `approve`; ask an admin for a role that has it",
    );
    says_no(
        room.refused("bot", "gate.approve", yes("p1", "bot")),
        "Unauthorized: agents do not vote; a person has to decide",
    );
    says_no(
        room.refused("bob", "gate.approve", yes("p1", "cat")),
        "Unauthorized: you are `bob` here; `approver` may not say `cat`",
    );
    says_no(
        room.refused(
            "bob",
            "gate.reject",
            json!({"gate": "p1", "rejector": "cat", "reason": "r"}),
        ),
        "Unauthorized: you are `bob` here; `rejector` may not say `cat`",
    );
    says_no(
        room.refused(
            "bob",
            "tool.approve",
            json!({"tool_proposal": "p1", "approver": "cat"}),
        ),
        "Unauthorized: you are `bob` here; `approver` may not say `cat`",
    );
    says_no(
        room.refused(
            "bob",
            "tool.reject",
            json!({"tool_proposal": "p1", "rejector": "cat", "reason": "r"}),
        ),
        "Unauthorized: you are `bob` here; `rejector` may not say `cat`",
    );
    says_no(
        room.refused("ann", "gate.approve", yes("s1", "ann")),
        "Unauthorized: a proposer does not vote on its own proposal",
    );
    says_no(
        room.refused(
            "ann",
            "gate.reject",
            json!({"gate": "s1", "rejector": "ann", "reason": "r"}),
        ),
        "Unauthorized: a proposer does not vote on its own proposal",
    );
    says_no(
        room.refused("zoe", "gate.approve", yes("p1", "zoe")),
        "Unauthorized: join the session first: send `session.join`",
    );
    says_no(
        room.refused("bob", "gate.approve", yes("p9", "bob")),
        "InvalidState: there is no gate and no proposal `p9`",
    );
    room.proposes("p2", "ls");
    says_no(
        room.refused("bob", "gate.approve", yes("p2", "bob")),
        "InvalidState: the gate is closed: the command was granted",
    );
}

#[test]
fn a_vote_binds_the_digest_that_was_shown() {
    let mut room = Room::team(json!({}));
    room.proposes("p1", "make");
    let vote = |digest: String| json!({"gate": "p1", "approver": "bob", "digest": digest});
    says_no(
        room.refused("bob", "gate.approve", vote("0".repeat(64))),
        "InvalidState: the command was edited since you saw it; look again and vote with its digest",
    );
    let digest = room.digest("p1");
    told(
        room.says("bob", "gate.approve", vote(digest)),
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
    let mut room = Room::team(
        json!({"default_gate_quorum": {"type": "any", "count": 2}, "quorum_by_category": {"destructive": {"type": "all"}}}),
    );
    room.proposes("p1", "make");
    let before = room.digest("p1");
    room.approves("bob", "p1");
    room.later(100);
    let amend = edit(&room, "rm -rf build");
    told(
        room.says("cat", "gate.amend", amend.clone()),
        &[
            "11 cat gate.amend gate(p1) `rm -rf build` destructive quorum=all voters=[ann,bob,cat] deadline=+400",
            "= accepted 11",
        ],
    );
    says_no(
        room.refused(
            "ann",
            "gate.approve",
            json!({"gate": "p1", "approver": "ann"}),
        ),
        "InvalidState: the command was edited since you saw it; look again and vote with its digest",
    );
    says_no(
        room.refused(
            "ann",
            "gate.approve",
            json!({"gate": "p1", "approver": "ann", "digest": before}),
        ),
        "InvalidState: the command was edited since you saw it; look again and vote with its digest",
    );
    says_no(
        room.refused(
            "ann",
            "gate.reject",
            json!({"gate": "p1", "rejector": "ann", "reason": "r"}),
        ),
        "InvalidState: the command was edited since you saw it; look again and vote with its digest",
    );
    says_no(
        room.refused("ann", "gate.amend", amend),
        "InvalidState: the command was edited since you saw it; look again and vote with its digest",
    );
    let shown = room.digest("p1");
    for (who, last) in [("ann", false), ("bob", false), ("cat", true)] {
        let lines = room.says(
            who,
            "gate.approve",
            json!({"gate": "p1", "approver": who, "digest": shown}),
        );
        if last {
            told(
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
fn with_four_eyes_the_editor_does_not_count() {
    let mut room = Room::team(json!({"four_eyes": true, "default_gate_quorum": {"type": "all"}}));
    room.proposes("p1", "make");
    let amend = edit(&room, "make -j2");
    room.says("cat", "gate.amend", amend);
    let digest = room.digest("p1");
    let yes = |who: &str| json!({"gate": "p1", "approver": who, "digest": digest});
    says_no(
        room.refused("cat", "gate.approve", yes("cat")),
        "Unauthorized: with four eyes, who edited a command does not vote on it",
    );
    room.says("ann", "gate.approve", yes("ann"));
    told(
        room.says("bob", "gate.approve", yes("bob")),
        &[
            "12 bob gate.approve p1",
            "13 system gate.resolve p1 approved by quorum approvals=[ann,bob]",
            "14 system tool.execute p1 `make -j2` on bot cleared_by=quorum approved_by=[ann,bob] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 12",
        ],
    );
}

#[test]
fn four_eyes_switched_on_later_takes_the_editors_vote_away() {
    let mut room = Room::team(any(2));
    room.proposes("p1", "make");
    let amend = edit(&room, "make -j2");
    room.says("cat", "gate.amend", amend);
    let digest = room.digest("p1");
    let yes = |who: &str| json!({"gate": "p1", "approver": who, "digest": digest});
    room.says("cat", "gate.approve", yes("cat"));
    room.configures(json!({"four_eyes": true}));
    told(
        room.says("bob", "gate.approve", yes("bob")),
        &["13 bob gate.approve p1", "= accepted 13"],
    );
    told(
        room.says("ann", "gate.approve", yes("ann")),
        &[
            "14 ann gate.approve p1",
            "15 system gate.resolve p1 approved by quorum approvals=[ann,bob]",
            "16 system tool.execute p1 `make -j2` on bot cleared_by=quorum approved_by=[ann,bob] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 14",
        ],
    );
}

#[test]
fn an_edit_is_judged_like_any_command() {
    let mut room = Room::team(json!({}));
    room.proposes("p1", "make");
    for (line, answer) in [
        (
            "rm -rf /",
            "GateFailed: blocked by rule `blocked.rm-root`: deletes the root, a system directory or a home directory",
        ),
        ("make", "InvalidState: the edit changes nothing"),
        (" ", "InvalidMessage: the command is empty"),
    ] {
        let amend = edit(&room, line);
        says_no(room.refused("bob", "gate.amend", amend), answer);
    }
    let amend = json!({"gate": "p1", "arguments": {}, "digest": room.digest("p1")});
    says_no(
        room.refused("bob", "gate.amend", amend),
        "InvalidMessage: shell arguments need `full_command`, or `command` and `args`",
    );
    let amend = edit(&room, "make -n");
    says_no(
        room.refused("dan", "gate.amend", amend.clone()),
        "Unauthorized: you need the capability `approve`; ask an admin for a role that has it",
    );
    says_no(
        room.refused("bot", "gate.amend", amend.clone()),
        "Unauthorized: agents do not vote; a person has to decide",
    );
    let mut elsewhere = amend.clone();
    elsewhere["gate"] = json!("p7");
    says_no(
        room.refused("bob", "gate.amend", elsewhere),
        "InvalidState: there is no gate and no proposal `p7`",
    );
    room.approves("bob", "p1");
    says_no(
        room.refused("bob", "gate.amend", amend),
        "InvalidState: the gate is closed: the command was granted",
    );
}

#[test]
fn an_edit_to_a_read_still_needs_its_votes() {
    let mut room = Room::team(json!({}));
    room.proposes("p1", "make");
    let amend = edit(&room, "ls");
    told(
        room.says("bob", "gate.amend", amend),
        &[
            "10 bob gate.amend gate(p1) `ls` read quorum=any:1 voters=[ann,bob,cat] deadline=+300",
            "= accepted 10",
        ],
    );
    let vote = json!({"gate": "p1", "approver": "bob", "digest": room.digest("p1")});
    told(
        room.says("bob", "gate.approve", vote),
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
    let mut room = Room::team(json!({"shell_exec": "gated"}));
    room.says_as("p1", "dan", "shell.exec", json!({"command": "make"}));
    let amend = edit(&room, "make -n");
    says_no(
        room.refused("bob", "gate.amend", amend),
        "InvalidState: a person's own command is not edited by others; reject it instead",
    );
}

#[test]
fn a_waiting_proposal_is_withdrawn_by_its_proposer_or_one_who_may_interrupt() {
    let mut room = Room::team(json!({}));
    for name in ["p1", "p2", "p3"] {
        room.proposes(name, "make");
    }
    says_no(
        room.refused("eve", "tool.cancel", json!({"tool_proposal": "p1"})),
        "Unauthorized: you need the capability `interrupt`; ask an admin for a role that has it",
    );
    told(
        room.says(
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
    let gate = room.gate_id("p2");
    told(
        room.says("dan", "tool.cancel", json!({"tool_proposal": gate})),
        &[
            "16 dan tool.cancel p2",
            "17 system gate.resolve p2 cancelled by cancel by=dan",
            "= accepted 16",
        ],
    );
    says_no(
        room.refused("dan", "tool.cancel", json!({"tool_proposal": "p1"})),
        "InvalidState: `p1` is finished; its record is closed",
    );
    says_no(
        room.refused("dan", "tool.cancel", json!({"tool_proposal": "p9"})),
        "InvalidState: there is no proposal `p9`",
    );
    says_no(
        room.refused(
            "bob",
            "gate.approve",
            json!({"gate": "p1", "approver": "bob"}),
        ),
        "InvalidState: the gate is closed: the proposal is cancelled",
    );
}

#[test]
fn with_skip_gates_count_without_those_who_are_away() {
    let mut room = Room::team(json!({"default_gate_quorum": {"type": "all"}}));
    room.proposes("p1", "make");
    room.approves("ann", "p1");
    room.approves("bob", "p1");
    told(
        room.goes_quiet("cat"),
        &[
            "12 system presence.update cat away",
            "13 system gate.resolve p1 approved by quorum approvals=[ann,bob]",
            "14 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[ann,bob] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 14",
        ],
    );
    room.proposes("p2", "make");
    room.approves("ann", "p2");
    room.is_back("cat");
    told(
        room.approves("bob", "p2"),
        &["19 bob gate.approve p2", "= accepted 19"],
    );
    told(
        room.approves("cat", "p2"),
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
    let mut room = Room::team(
        json!({"default_gate_quorum": {"type": "all"}, "on_participant_timeout": "wait"}),
    );
    room.proposes("p1", "make");
    room.approves("ann", "p1");
    room.approves("bob", "p1");
    told(
        room.goes_quiet("cat"),
        &["12 system presence.update cat away", "= accepted 12"],
    );
    told(
        room.is_back("cat"),
        &["13 system presence.update cat active", "= accepted 13"],
    );
    told(
        room.approves("cat", "p1"),
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
    let mut room = Room::team(json!({"on_participant_timeout": "pause_session"}));
    room.proposes("p1", "make");
    room.goes_quiet("eve");
    assert_eq!(room.session.paused(), None);
    room.goes_quiet("cat");
    room.goes_quiet("bot");
    let paused = "InvalidState: the session is paused until bot and cat is back";
    says_no(
        room.refused("bot", "tool.propose", shell("bot", "ls")),
        paused,
    );
    says_no(
        room.refused("dan", "shell.exec", json!({"command": "ls"})),
        paused,
    );
    says_no(
        room.refused(
            "dan",
            "prompt.submit",
            json!({"content": "c", "target_agent": "bot", "contributors": [], "context_keys": []}),
        ),
        paused,
    );
    says_no(
        room.refused(
            "dan",
            "prompt.amend",
            json!({"original_prompt": "m", "amendment": "a", "reason": "r"}),
        ),
        paused,
    );
    told(
        room.approves("bob", "p1"),
        &["13 bob gate.approve p1", "= accepted 13"],
    );
    told(
        room.is_back("bot"),
        &["14 system presence.update bot active", "= accepted 14"],
    );
    told(
        room.is_back("cat"),
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
        let mut room = Room::team(json!({"on_participant_timeout": "pause_session"}));
        room.proposes("p1", "make");
        room.goes_quiet("cat");
        room.approves("bob", "p1");
        let lines = match way {
            "leave" => room.leaves("cat"),
            _ => room.configures(json!({"on_participant_timeout": "wait"})),
        };
        assert!(
            lines.iter().any(|line| line.contains("tool.execute p1")),
            "{way}: {lines:?}"
        );
    }
}

#[test]
fn a_comment_is_a_comment() {
    let mut room = Room::team(any(2));
    room.proposes("p1", "make");
    let with =
        |bytes: usize| json!({"gate": "p1", "approver": "bob", "comment": "x".repeat(bytes)});
    says_no(
        room.refused("bob", "gate.approve", with(4097)),
        "InvalidMessage: `comment` is at most 4096 bytes",
    );
    told(
        room.says("bob", "gate.approve", with(4096)),
        &["10 bob gate.approve p1", "= accepted 10"],
    );
}

#[test]
fn a_proposer_is_never_among_those_who_decide() {
    let mut room = Room::team(json!({"shell_exec": "gated"}));
    room.says_as("s1", "ann", "shell.exec", json!({"command": "make"}));
    let gates = room.session.open_gates();
    let (proposal, gate) = gates[0];
    let approvers = room.session.approvers(gate, &proposal.proposer);
    assert_eq!(approvers.eligible, [person("bob"), person("cat")].into());
    assert_eq!(approvers.electorate, approvers.eligible);
}

#[test]
fn a_vote_on_the_first_version_does_not_count_for_the_second() {
    let mut room = Room::team(any(2));
    room.proposes("p1", "make");
    room.approves("bob", "p1");
    let amend = edit(&room, "make -n");
    room.says("cat", "gate.amend", amend);
    let vote = json!({"gate": "p1", "approver": "ann", "digest": room.digest("p1")});
    told(
        room.says("ann", "gate.approve", vote),
        &["12 ann gate.approve p1", "= accepted 12"],
    );
}
