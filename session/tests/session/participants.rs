//! Tests of joining, leaving, roles and configuration.

use crate::support::*;
use pvp_protocol::payload::Announce;
use pvp_protocol::{Capability, Limits, Refusal, Role};
use pvp_session::{Answer, Identity, Input, SessionSettings, SubmittedMessage};
use serde_json::{Value, json};

fn announce(value: Value) -> Announce {
    serde_json::from_value(value).expect("an announcement")
}

fn role_change(who: &str, old: &[&str], new: &[&str]) -> Value {
    json!({"participant": who, "old_roles": old, "new_roles": new, "changed_by": "ann"})
}

#[test]
fn a_new_session_logs_its_configuration_and_working_directory() {
    let mut fixture = SessionFixture::uncreated(SessionSettings {
        working_directory: Some("/work".to_owned()),
        ..SessionSettings::default()
    });
    let created = fixture.create("ann", json!({"name": "blue owl"}));
    let lines = fixture.lines(&created);
    assert_lines(
        lines,
        &[
            "1 ann session.create blue owl",
            "2 system context.add session:working_directory /work",
            "= accepted 1",
        ],
    );
    let again = fixture.create("ann", json!({"name": "blue owl"}));
    let lines = fixture.lines(&again);
    assert_lines(
        lines,
        &[
            "= refused InvalidState: session `room` exists already; join it, or create one with another id",
        ],
    );
    assert_eq!(
        fixture
            .session
            .working_directory_context()
            .map(|add| add.key.as_str()),
        Some("session:working_directory")
    );
}

#[test]
fn an_invalid_session_is_not_created() {
    let mut fixture = SessionFixture::uncreated(SessionSettings::default());
    for create in [
        json!({"name": " "}),
        json!({"name": "a\u{7}b"}),
        json!({"name": "a".repeat(129)}),
        json!({"config": {"heartbeat_interval_seconds": 0}}),
        json!({"config": {"max_participants": 201}}),
        json!({"config": {"profile": "read"}}),
        json!({"config": {"default_gate_quorum": {"type": "any", "count": 0}}}),
        json!({"config": {"notes": "n".repeat(70_000)}}),
    ] {
        let decision = fixture.create("ann", create.clone());
        let lines = fixture.lines(&decision);
        assert_eq!(lines.len(), 1, "{create}");
        assert!(
            lines[0].starts_with("= refused InvalidMessage"),
            "{create}: {lines:?}"
        );
    }
    assert!(!fixture.session.is_created());
}

#[test]
fn joining_a_session_that_does_not_exist_is_refused() {
    let mut fixture = SessionFixture::uncreated(SessionSettings::default());
    assert_lines(
        fixture.joins(announcement("bob", "human", &[])),
        &["= refused SessionNotFound: there is no session `room`"],
    );
}

#[test]
fn joining_again_from_another_device_adds_no_entry() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(
        fixture.joins(announcement("bob", "human", &["approver"])),
        &["= accepted"],
    );
}

#[test]
fn joining_again_with_a_different_announcement_adds_an_entry() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(
        fixture.joins(executor_announcement(
            "bot",
            json!({"profiles": [], "working_directory": "/src"}),
        )),
        &[
            "8 bot participant.announce agent []",
            "9 system context.add session:working_directory /src",
            "= accepted 8",
        ],
    );
    assert_lines(
        fixture.joins(executor_announcement(
            "bot",
            json!({"profiles": [], "working_directory": "/src"}),
        )),
        &["= accepted"],
    );
}

#[test]
fn only_an_agent_sets_the_working_directory() {
    let mut fixture = SessionFixture::team(json!({}));
    let mut fred = announcement("fred", "human", &["observer"]);
    fred["executor"] = json!({"working_directory": "/evil"});
    assert_lines(
        fixture.joins(fred),
        &[
            "8 fred participant.announce human [observer]",
            "= accepted 8",
        ],
    );
    assert_eq!(fixture.session.working_directory_context(), None);
}

#[test]
fn someone_who_left_may_come_back_and_counts_as_new() {
    let mut fixture = SessionFixture::team(json!({"max_participants": 6}));
    assert_lines(
        fixture.joins(announcement("fred", "human", &["observer"])),
        &["= refused InvalidState: session `room` is full (6 participants)"],
    );
    assert_lines(
        fixture.leaves("eve"),
        &["8 eve session.leave", "= accepted 8"],
    );
    assert_refusal(
        fixture.refused("eve", "session.leave", json!({})),
        "Unauthorized: join the session first: send `session.join`",
    );
    assert_lines(
        fixture.joins(announcement("fred", "human", &["observer"])),
        &[
            "9 fred participant.announce human [observer]",
            "= accepted 9",
        ],
    );
    assert_lines(
        fixture.joins(announcement("eve", "human", &["observer"])),
        &["= refused InvalidState: session `room` is full (6 participants)"],
    );
    assert_lines(
        fixture.leaves("fred"),
        &["10 fred session.leave", "= accepted 10"],
    );
    assert_lines(
        fixture.joins(announcement("eve", "human", &["observer"])),
        &[
            "11 eve participant.announce human [observer]",
            "= accepted 11",
        ],
    );
}

#[test]
fn the_server_may_allow_fewer_people_than_the_session() {
    let settings = SessionSettings {
        limits: Limits {
            participants: 6,
            ..Limits::default()
        },
        ..SessionSettings::default()
    };
    let mut fixture = SessionFixture::team_with_settings(settings, json!({"max_participants": 6}));
    assert_lines(
        fixture.joins(announcement("fred", "human", &[])),
        &["= refused InvalidState: session `room` is full (6 participants)"],
    );
}

#[test]
fn a_token_limits_roles_and_capabilities() {
    let mut fixture = SessionFixture::team(json!({}));
    let identity = Identity {
        participant: participant_id("fred"),
        name: Some("Fred of Accounts".to_owned()),
        kind: pvp_protocol::ParticipantKind::Human,
        roles: [Role::Approver, Role::Observer].into(),
        capabilities: [Capability::Prompt].into(),
        invited_by: None,
    };
    for (claim, answer) in [
        (
            announcement("fred", "human", &["approver", "admin", "driver"]),
            "= refused Unauthorized: your token does not allow admin and driver",
        ),
        (
            announcement("gina", "human", &["observer"]),
            "= refused Unauthorized: `participant.id` is `gina`, but you are `fred`; name yourself",
        ),
        (
            announcement("fred", "agent", &["observer"]),
            "= refused Unauthorized: you are known here as `human`",
        ),
        (
            json!({"id": "fred", "name": "f", "type": "human", "roles": [], "transport": "http", "capabilities": ["end_session"]}),
            "= refused Unauthorized: you need the capability `end_session`; ask an admin for a role that has it",
        ),
        (
            json!({"id": "fred", "name": "f", "type": "human", "roles": [], "transport": "http", "metadata": {"x": "y".repeat(20_000)}}),
            "= refused InvalidMessage: an announcement has at most 16384 bytes, not 20104",
        ),
    ] {
        assert_refusal(
            fixture
                .joins_as(identity.clone(), announce(claim))
                .join("\n"),
            answer,
        );
    }
    assert_lines(
        fixture.joins_as(
            identity,
            announce(announcement("fred", "human", &["observer", "observer"])),
        ),
        &[
            "8 fred participant.announce human [observer] and [\"prompt\"]",
            "= accepted 8",
        ],
    );
    let fred = fixture.session.member(&participant_id("fred")).unwrap();
    assert_eq!(fred.announce.name, "Fred of Accounts");
    assert_eq!(fred.capabilities(), [Capability::Prompt].into());
}

#[test]
fn nobody_is_called_system_and_nobody_changes_their_kind() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(
        fixture.joins(announcement("system", "human", &[])),
        &["= refused Unauthorized: `system` is reserved for the server"],
    );
    assert_lines(
        fixture.joins(announcement("bot", "human", &["admin"])),
        &["= refused Unauthorized: the id `bot` belongs to somebody else in this session"],
    );
    assert_lines(fixture.joins(json!({"id": "fred", "name": "a\nb", "type": "human", "roles": [], "transport": "http"})), &["= refused InvalidMessage: a name has no control characters"]);
}

#[test]
fn announcing_again_changes_neither_rights_nor_names() {
    let mut fixture = SessionFixture::team(json!({}));
    let mut claim = announcement("eve", "human", &["admin"]);
    claim["name"] = json!("ann");
    claim["capabilities"] = json!(["approve"]);
    claim["metadata"] = json!({"colour": "blue"});
    assert_lines(
        fixture.sends("eve", "participant.announce", claim),
        &[
            "8 eve participant.announce human [observer]",
            "= accepted 8",
        ],
    );
    let eve = fixture.session.member(&participant_id("eve")).unwrap();
    assert_eq!(
        (eve.announce.name.as_str(), eve.capabilities().len()),
        ("eve", 0)
    );
    assert_refusal(
        fixture.refused(
            "eve",
            "participant.announce",
            announcement("bob", "human", &[]),
        ),
        "Unauthorized: `id` is `bob`, but you are `eve`; name yourself",
    );
    let mut huge = announcement("eve", "human", &[]);
    huge["metadata"] = json!({"x": "y".repeat(20_000)});
    assert_refusal(
        fixture.refused("eve", "participant.announce", huge),
        "InvalidMessage: an announcement has at most 16384 bytes, not 20095",
    );
}

#[test]
fn an_admin_gives_and_takes_roles_and_a_new_join_does_not_undo_it() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(
        fixture.sends(
            "ann",
            "participant.role_change",
            role_change("eve", &["observer"], &["approver", "approver"]),
        ),
        &[
            "8 ann participant.role_change eve [observer] -> [approver]",
            "= accepted 8",
        ],
    );
    assert_lines(
        fixture.sends(
            "ann",
            "participant.role_change",
            role_change("bob", &["approver"], &[]),
        ),
        &[
            "9 ann participant.role_change bob [approver] -> []",
            "= accepted 9",
        ],
    );
    assert_lines(
        fixture.joins(announcement("bob", "human", &["approver"])),
        &["= accepted"],
    );
    assert_lines(
        fixture.leaves("bob"),
        &["10 bob session.leave", "= accepted 10"],
    );
    assert_lines(
        fixture.joins(announcement("bob", "human", &["approver"])),
        &["11 bob participant.announce human []", "= accepted 11"],
    );
    fixture.proposes("p1", "make");
    assert!(
        fixture
            .refused(
                "bob",
                "gate.approve",
                json!({"gate": "p1", "approver": "bob"})
            )
            .starts_with("Unauthorized")
    );
    let with = json!({"participant": "eve", "old_roles": ["approver"], "new_roles": [], "changed_by": "ann", "capabilities": ["prompt"]});
    assert_lines(
        fixture.sends("ann", "participant.role_change", with),
        &[
            "14 ann participant.role_change eve [approver] -> []",
            "= accepted 14",
        ],
    );
    assert_eq!(
        fixture
            .session
            .member(&participant_id("eve"))
            .unwrap()
            .capabilities(),
        [Capability::Prompt].into()
    );
}

#[test]
fn a_role_change_must_name_the_old_roles() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_refusal(
        fixture.refused(
            "ann",
            "participant.role_change",
            role_change("eve", &["driver"], &["admin"]),
        ),
        "InvalidState: `old_roles` is not what `eve` holds: observer",
    );
    assert_refusal(
        fixture.refused(
            "ann",
            "participant.role_change",
            role_change("zoe", &[], &["admin"]),
        ),
        "ParticipantNotFound: there is no participant `zoe` in this session",
    );
    assert_refusal(
        fixture.refused(
            "bob",
            "participant.role_change",
            role_change("eve", &["observer"], &["admin"]),
        ),
        "Unauthorized: you need the capability `manage_participants`; ask an admin for a role that has it",
    );
    let mut forged = role_change("eve", &["observer"], &["admin"]);
    forged["changed_by"] = json!("bob");
    assert_refusal(
        fixture.refused("ann", "participant.role_change", forged),
        "Unauthorized: `changed_by` is `bob`, but you are `ann`; name yourself",
    );
    fixture.leaves("eve");
    assert_refusal(
        fixture.refused(
            "ann",
            "participant.role_change",
            role_change("eve", &["observer"], &["admin"]),
        ),
        "ParticipantNotFound: there is no participant `eve` in this session",
    );
}

#[test]
fn an_agent_never_gets_a_vote_whatever_role_it_is_given() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.sends(
        "ann",
        "participant.role_change",
        role_change("bot", &[], &["admin", "approver"]),
    );
    fixture.joins(executor_announcement("bee", json!({"profiles": []})));
    assert_lines(
        fixture.sends_with_id("p1", "bee", "tool.propose", shell_proposal("bee", "make")),
        &[
            "10 bee tool.propose `make` write",
            "11 system gate.request action_ref=p1 write quorum=any:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 10",
        ],
    );
    assert_refusal(
        fixture.refused(
            "bot",
            "gate.approve",
            json!({"gate": "p1", "approver": "bot"}),
        ),
        "Unauthorized: agents do not vote; a person has to decide",
    );
    assert_refusal(
        fixture.refused(
            "bot",
            "gate.reject",
            json!({"gate": "p1", "rejector": "bot", "reason": "no"}),
        ),
        "Unauthorized: agents do not vote; a person has to decide",
    );
}

#[test]
fn losing_the_right_to_vote_removes_the_voter_from_open_gates_for_good() {
    let mut fixture =
        SessionFixture::team(json!({"default_gate_quorum": {"type": "any", "count": 2}}));
    fixture.proposes("p1", "make");
    fixture.approves("bob", "p1");
    assert_lines(
        fixture.sends(
            "ann",
            "participant.role_change",
            role_change("bob", &["approver"], &["observer"]),
        ),
        &[
            "11 ann participant.role_change bob [approver] -> [observer]",
            "= accepted 11",
        ],
    );
    assert_lines(
        fixture.approves("cat", "p1"),
        &["12 cat gate.approve p1", "= accepted 12"],
    );
    assert_lines(
        fixture.sends(
            "ann",
            "participant.role_change",
            role_change("bob", &["observer"], &["approver"]),
        ),
        &[
            "13 ann participant.role_change bob [observer] -> [approver]",
            "= accepted 13",
        ],
    );
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
fn joining_again_with_fewer_roles_loses_the_vote_too() {
    let mut fixture =
        SessionFixture::team(json!({"default_gate_quorum": {"type": "any", "count": 2}}));
    fixture.proposes("p1", "make");
    fixture.approves("bob", "p1");
    fixture.joins(announcement("bob", "human", &["observer"]));
    fixture.joins(announcement("bob", "human", &["approver"]));
    assert_lines(
        fixture.approves("cat", "p1"),
        &["13 cat gate.approve p1", "= accepted 13"],
    );
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
fn a_configuration_changes_as_a_whole_or_not_at_all() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(
        fixture.configures(
            json!({"gate_timeout_seconds": 0, "default_gate_quorum": {"type": "majority"}}),
        ),
        &[
            "8 ann session.config_update {\"default_gate_quorum\":{\"type\":\"majority\"},\"gate_timeout_seconds\":0}",
            "= accepted 8",
        ],
    );
    assert_lines(
        fixture.proposes("p1", "make"),
        &[
            "9 bot tool.propose `make` write",
            "10 system gate.request action_ref=p1 write quorum=majority voters=[ann,bob,cat] deadline=never then reject",
            "= accepted 9",
        ],
    );
    for (changes, answer) in [
        (
            json!({"heartbeat_interval_seconds": 0, "four_eyes": true}),
            "InvalidMessage: `heartbeat_interval_seconds` is 0; use 1 to 3600",
        ),
        (
            json!({"max_participants": 0}),
            "InvalidMessage: `max_participants` is 0; use 1 to 200",
        ),
        (
            json!({"gate_timeout_seconds": 31_536_001}),
            "InvalidMessage: `gate_timeout_seconds` is 31536001; use 0 to 31536000",
        ),
        (
            json!({"away_timeout_seconds": 0}),
            "InvalidMessage: `away_timeout_seconds` is 0; use 1 to 31536000",
        ),
        (
            json!({"default_gate_quorum": {"type": "specific", "participants": []}}),
            "InvalidMessage: `default_gate_quorum`: a `specific` quorum names nobody; list at least one participant",
        ),
        (
            json!({"quorum_by_category": {"write": {"type": "role", "role": "admin", "count": 0}}}),
            "InvalidMessage: `quorum_by_category.write`: a quorum `count` of 0 would approve by itself; use 1 or more",
        ),
        (
            json!({"profile": "read_net"}),
            "InvalidMessage: `profile` for approved commands is `none` or `workspace`",
        ),
        (
            json!({"notes": "n".repeat(70_000)}),
            "InvalidMessage: a configuration has at most 65536 bytes, not 70513",
        ),
    ] {
        assert_refusal(
            fixture.refused(
                "ann",
                "session.config_update",
                json!({"changes": changes, "reason": "r"}),
            ),
            answer,
        );
    }
    assert_refusal(
        fixture.refused(
            "bob",
            "session.config_update",
            json!({"changes": {}, "reason": "r"}),
        ),
        "Unauthorized: you need the capability `manage_participants`; ask an admin for a role that has it",
    );
    assert!(!fixture.session.config().four_eyes);
}

#[test]
fn an_open_gate_keeps_the_quorum_it_was_opened_with() {
    let mut fixture =
        SessionFixture::team(json!({"default_gate_quorum": {"type": "any", "count": 2}}));
    fixture.proposes("p1", "make");
    fixture.approves("bob", "p1");
    assert_lines(
        fixture.configures(json!({"default_gate_quorum": {"type": "any", "count": 1}})),
        &[
            "11 ann session.config_update {\"default_gate_quorum\":{\"type\":\"any\",\"count\":1}}",
            "= accepted 11",
        ],
    );
    assert_lines(
        fixture.approves("cat", "p1"),
        &[
            "12 cat gate.approve p1",
            "13 system gate.resolve p1 approved by quorum approvals=[bob,cat]",
            "14 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[bob,cat] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 12",
        ],
    );
}

#[test]
fn presence_and_drafts_are_ephemeral_and_never_stored() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(
        fixture.sends(
            "dan",
            "prompt.draft",
            json!({"content": "wh", "contributors": []}),
        ),
        &["~ dan prompt.draft wh", "= accepted"],
    );
    assert_lines(
        fixture.sends(
            "dan",
            "presence.update",
            json!({"participant": "dan", "status": "idle", "last_active": "2026-01-01T00:00:00Z"}),
        ),
        &["~ dan presence.update dan idle", "= accepted"],
    );
    assert_refusal(
        fixture.refused(
            "dan",
            "presence.update",
            json!({"participant": "bob", "status": "away", "last_active": "2026-01-01T00:00:00Z"}),
        ),
        "Unauthorized: `participant` is `bob`, but you are `dan`; name yourself",
    );
    assert_refusal(
        fixture.refused(
            "eve",
            "prompt.draft",
            json!({"content": "wh", "contributors": []}),
        ),
        "Unauthorized: you need the capability `prompt`; ask an admin for a role that has it",
    );
    assert_lines(
        fixture.sends("dan", "heartbeat.ping", json!({})),
        &["= accepted"],
    );
    assert_lines(
        fixture.sends("dan", "heartbeat.pong", json!({})),
        &["= accepted"],
    );
    assert_lines(
        fixture.sends("dan", "output.read", json!({"ref": "p1"})),
        &["= accepted"],
    );
}

#[test]
fn a_timeout_is_recorded_once_and_only_for_members() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(fixture.comes_back("bob"), &["= accepted"]);
    assert_lines(
        fixture.times_out("bob"),
        &["8 system presence.update bob away", "= accepted 8"],
    );
    assert_lines(fixture.times_out("bob"), &["= accepted"]);
    assert_lines(fixture.times_out("nobody"), &["= accepted"]);
    fixture.leaves("cat");
    assert_lines(fixture.times_out("cat"), &["= accepted"]);
    assert_lines(
        fixture.comes_back("bob"),
        &["10 system presence.update bob active", "= accepted 10"],
    );
}

#[test]
fn leaving_cancels_waiting_proposals_and_closes_runs_as_unknown() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "make");
    fixture.proposes("p2", "ls");
    fixture.proposes("p3", "make test");
    fixture.approves("bob", "p3");
    assert_lines(
        fixture.leaves("bot"),
        &[
            "17 bot session.leave",
            "18 system gate.resolve p1 cancelled by proposer_left",
            "19 system tool.result p2 failed unknown outcome unknown: the executor left the session",
            "20 system tool.result p3 failed unknown outcome unknown: the executor left the session",
            "= accepted 17",
        ],
    );
}

#[test]
fn a_person_who_leaves_withdraws_their_waiting_command_but_not_a_running_one() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.sends_with_id("s1", "ann", "shell.exec", json!({"command": "make"}));
    fixture.sends_with_id(
        "s2",
        "ann",
        "shell.exec",
        json!({"command": "rm -rf build"}),
    );
    assert_lines(
        fixture.leaves("ann"),
        &[
            "12 ann session.leave",
            "13 system gate.resolve s2 cancelled by proposer_left",
            "= accepted 12",
        ],
    );
    assert_lines(
        fixture.sends(
            "bot",
            "tool.result",
            json!({"tool_proposal": "s1", "success": true, "duration_ms": 1}),
        ),
        &["14 bot tool.result s1 ok known", "= accepted 14"],
    );
}

#[test]
fn ending_a_session_closes_gates_and_cancels_runs_that_may_still_report() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "make");
    fixture.proposes("p2", "ls");
    fixture.proposes("p3", "cat README.md");
    let end = json!({"reason": "done", "final_state": "completed"});
    assert_refusal(
        fixture.refused("bob", "session.end", end.clone()),
        "Unauthorized: you need the capability `end_session`; ask an admin for a role that has it",
    );
    assert_lines(
        fixture.sends("ann", "session.end", end.clone()),
        &[
            "14 ann session.end completed done",
            "15 system gate.resolve p1 cancelled by session_ended by=ann",
            "16 system tool.cancel p2 the session has ended",
            "17 system tool.cancel p3 the session has ended",
            "= accepted 14",
        ],
    );
    assert!(fixture.session.has_ended());
    assert_refusal(
        fixture.refused("ann", "session.end", end),
        "InvalidState: session `room` has ended; nothing more can happen in it",
    );
    assert_refusal(
        fixture.refused("bob", "session.leave", json!({})),
        "InvalidState: session `room` has ended; nothing more can happen in it",
    );
    assert_refusal(
        fixture.refused_with_id("p9", "bot", "tool.propose", shell_proposal("bot", "ls")),
        "InvalidState: session `room` has ended; nothing more can happen in it",
    );
    assert_lines(
        fixture.sends(
            "bot",
            "tool.output",
            json!({"tool_proposal": "p2", "stream": "stdout", "text": "a", "complete": false}),
        ),
        &["18 bot tool.output p2 stdout@0 \"a\"", "= accepted 18"],
    );
    assert_lines(
        fixture.sends(
            "bot",
            "tool.result",
            json!({"tool_proposal": "p2", "success": false, "duration_ms": 1}),
        ),
        &["19 bot tool.result p2 failed known", "= accepted 19"],
    );
    assert_lines(
        fixture.joins(announcement("bob", "human", &["approver"])),
        &["= accepted"],
    );
    assert_lines(
        fixture.joins(announcement("fred", "human", &[])),
        &["= refused InvalidState: session `room` has ended; nothing more can happen in it"],
    );
    assert_lines(fixture.times_out("bob"), &["= accepted"]);
    assert_lines(
        fixture.advances_and_ticks(1000),
        &[
            "20 system tool.result p3 failed unknown outcome unknown: no result came within its time limit",
            "= accepted",
        ],
    );
}

#[test]
fn the_number_of_remembered_participants_is_limited() {
    let mut fixture = SessionFixture::created(SessionSettings::default(), json!({}));
    let mut comes = |name: &str| {
        let announce = announce(announcement(name, "human", &[]));
        let identity = identity(&announce);
        let id = fixture.next_id();
        let answer = fixture
            .apply_unchecked(Input::Join {
                identity,
                announce,
                id,
            })
            .answer;
        let leave = SubmittedMessage::new(
            fixture.next_id(),
            client_message("session.leave", &json!({})),
        );
        fixture.apply_unchecked(Input::Submit {
            by: participant_id(name),
            ceiling: None,
            submitted: leave,
        });
        answer
    };
    for number in 0..10_000 {
        comes(&format!("p{number}"));
    }
    let full = Refusal::TooMany {
        what: "people over the life of one session; start another session",
        limit: 10_000,
    };
    assert_eq!(comes("one-more"), Answer::Refused(full));
    assert_eq!(comes("p7"), Answer::Accepted(Some(20_002)));
}
