//! Tests of proposals and their gates.

use crate::support::*;
use pvp_protocol::{ClientMessage, Limits};
use pvp_session::{Entry, Input, ProposalOutcome, Session, SessionSettings, SubmittedMessage};
use serde_json::{Value, json};

fn with(line: &str, changes: Value) -> Value {
    let mut propose = shell_proposal("bot", line);
    for (key, value) in changes.as_object().expect("an object") {
        propose[key] = value.clone();
    }
    propose
}

fn arguments(arguments: Value) -> Value {
    with("", json!({"arguments": arguments}))
}

#[test]
fn a_read_runs_at_once_where_the_executor_can_sandbox_it() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(
        fixture.proposes("p1", "ls -la"),
        &[
            "8 bot tool.propose `ls -la` read",
            "9 system tool.execute p1 `ls -la` on bot cleared_by=read approved_by=[] profile=read 30000ms 10485760B until +60 | nonce for bot",
            "= accepted 8",
        ],
    );
}

#[test]
fn a_read_needs_approval_where_the_executor_cannot_sandbox_it() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.joins(executor_announcement(
        "bee",
        json!({"profiles": ["workspace"]}),
    ));
    fixture.joins(announcement("old", "agent", &[]));
    assert_lines(
        fixture.sends_with_id("p1", "bee", "tool.propose", shell_proposal("bee", "ls")),
        &[
            "10 bee tool.propose `ls` read (the executor cannot sandbox reads)",
            "11 system gate.request action_ref=p1 read quorum=any:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 10",
        ],
    );
    assert_lines(
        fixture.sends_with_id("p2", "old", "tool.propose", shell_proposal("old", "ls")),
        &[
            "12 old tool.propose `ls` read (the executor cannot sandbox reads)",
            "13 system gate.request action_ref=p2 read quorum=any:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 12",
        ],
    );
    assert_lines(
        fixture.configures(json!({"trust_reads": true})),
        &[
            "14 ann session.config_update {\"trust_reads\":true}",
            "= accepted 14",
        ],
    );
    assert_lines(
        fixture.sends_with_id("p3", "bee", "tool.propose", shell_proposal("bee", "ls")),
        &[
            "15 bee tool.propose `ls` read",
            "16 system tool.execute p3 `ls` on bee cleared_by=read approved_by=[] profile=none 30000ms 10485760B until +60 | nonce for bee",
            "= accepted 15",
        ],
    );
}

#[test]
fn with_open_settings_reads_run_unconfined() {
    let mut fixture = SessionFixture::team_with_settings(
        SessionSettings {
            open_mode: true,
            ..SessionSettings::default()
        },
        json!({}),
    );
    fixture.joins(announcement("old", "agent", &[]));
    assert_lines(
        fixture.sends_with_id("p1", "old", "tool.propose", shell_proposal("old", "ls")),
        &[
            "9 old tool.propose `ls` read",
            "10 system tool.execute p1 `ls` on old cleared_by=read approved_by=[] profile=none 30000ms 10485760B until +60 | nonce for old",
            "= accepted 9",
        ],
    );
    assert_lines(
        fixture.proposes("p2", "ls"),
        &[
            "11 bot tool.propose `ls` read",
            "12 system tool.execute p2 `ls` on bot cleared_by=read approved_by=[] profile=read 30000ms 10485760B until +60 | nonce for bot",
            "= accepted 11",
        ],
    );
    assert_lines(
        fixture.proposes("p3", "make"),
        &[
            "13 bot tool.propose `make` write",
            "14 system gate.request action_ref=p3 write quorum=any:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 13",
        ],
    );
}

#[test]
fn the_agents_claim_raises_an_assessment_and_never_lowers_it() {
    let mut fixture = SessionFixture::team(
        json!({"quorum_by_category": {"destructive": {"type": "any", "count": 2}}}),
    );
    assert_lines(
        fixture.sends_with_id(
            "p1",
            "bot",
            "tool.propose",
            with("ls", json!({"risk_level": "medium"})),
        ),
        &[
            "8 bot tool.propose `ls` write (raised, because the agent itself calls this medium)",
            "9 system gate.request action_ref=p1 write quorum=any:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 8",
        ],
    );
    assert_lines(
        fixture.sends_with_id(
            "p2",
            "bot",
            "tool.propose",
            with("ls", json!({"risk_level": "high"})),
        ),
        &[
            "10 bot tool.propose `ls` destructive (raised, because the agent itself calls this high)",
            "11 system gate.request action_ref=p2 destructive quorum=any:2 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 10",
        ],
    );
    assert_lines(
        fixture.sends_with_id(
            "p3",
            "bot",
            "tool.propose",
            with("make", json!({"risk_level": "critical"})),
        ),
        &[
            "12 bot tool.propose `make` destructive (raised, because the agent itself calls this critical)",
            "13 system gate.request action_ref=p3 destructive quorum=any:2 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 12",
        ],
    );
    assert_lines(
        fixture.sends_with_id(
            "p4",
            "bot",
            "tool.propose",
            with("rm -rf build", json!({"risk_level": "safe"})),
        ),
        &[
            "14 bot tool.propose `rm -rf build` destructive",
            "15 system gate.request action_ref=p4 destructive quorum=any:2 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 14",
        ],
    );
    assert_lines(
        fixture.sends_with_id(
            "p5",
            "bot",
            "tool.propose",
            with("ls", json!({"requires_approval": true})),
        ),
        &[
            "16 bot tool.propose `ls` read (the agent itself asks for approval)",
            "17 system gate.request action_ref=p5 read quorum=any:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 16",
        ],
    );
    let assessment = json!({"category": "read", "risk": "safe", "rule": "mine", "reason": "r", "profile": "none", "digest": "0".repeat(64), "policy": "mine"});
    assert_lines(
        fixture.sends_with_id(
            "p6",
            "bot",
            "tool.propose",
            with("make", json!({"assessment": assessment})),
        ),
        &[
            "18 bot tool.propose `make` write",
            "19 system gate.request action_ref=p6 write quorum=any:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 18",
        ],
    );
}

#[test]
fn a_session_can_require_approval_for_a_kind_of_tool() {
    let mut fixture = SessionFixture::team(json!({"require_approval_for": ["shell_execute"]}));
    assert_lines(
        fixture.proposes("p1", "ls"),
        &[
            "8 bot tool.propose `ls` read (this session requires approval for every tool of this kind)",
            "9 system gate.request action_ref=p1 read quorum=any:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 8",
        ],
    );
    assert_lines(
        fixture.sends_with_id(
            "p2",
            "bot",
            "tool.propose",
            with("ls", json!({"category": "file_read"})),
        ),
        &[
            "10 bot tool.propose `ls` read (this session requires approval for every tool of this kind)",
            "11 system gate.request action_ref=p2 read quorum=any:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 10",
        ],
    );
    fixture.configures(json!({"require_approval_for": ["all"]}));
    assert_lines(
        fixture.proposes("p3", "ls"),
        &[
            "13 bot tool.propose `ls` read (this session requires approval for every tool of this kind)",
            "14 system gate.request action_ref=p3 read quorum=any:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 13",
        ],
    );
    fixture.configures(json!({"require_approval_for": ["file_read"]}));
    assert_lines(
        fixture.sends_with_id(
            "p4",
            "bot",
            "tool.propose",
            with("ls", json!({"category": "file_read"})),
        ),
        &[
            "16 bot tool.propose `ls` read (this session requires approval for every tool of this kind)",
            "17 system gate.request action_ref=p4 read quorum=any:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 16",
        ],
    );
    assert_lines(
        fixture.proposes("p5", "ls"),
        &[
            "18 bot tool.propose `ls` read",
            "19 system tool.execute p5 `ls` on bot cleared_by=read approved_by=[] profile=read 30000ms 10485760B until +60 | nonce for bot",
            "= accepted 18",
        ],
    );
}

#[test]
fn a_blocked_command_is_logged_and_refused_without_a_gate() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(
        fixture.proposes("p1", "rm -rf /"),
        &[
            "8 bot tool.propose `rm -rf /` blocked (names files of PVP itself: /)",
            "= refused GateFailed: blocked by rule `blocked.rm-root`: deletes the root, a system directory or a home directory",
        ],
    );
    let blocked = fixture.session.find_proposal(&message_id("p1")).unwrap();
    assert_eq!(blocked.closed, Some((ProposalOutcome::Blocked, 8)));
    let again = fixture.proposes("p1", "rm -rf /");
    assert_lines(
        again,
        &[
            "= refused InvalidState: proposal `p1` was made before and is blocked; propose again with a new id",
        ],
    );
    assert_refusal(
        fixture.refused_with_id("p1", "bot", "tool.propose", shell_proposal("bot", "ls")),
        "InvalidMessage: the id `p1` was used for another message; give every message its own id",
    );
    assert_refusal(
        fixture.refused(
            "bob",
            "gate.approve",
            json!({"gate": "p1", "approver": "bob"}),
        ),
        "InvalidState: the gate is closed: the proposal is blocked",
    );
    assert_refusal(
        fixture.refused(
            "bot",
            "tool.output",
            json!({"tool_proposal": "p1", "stream": "stdout", "text": "", "complete": true}),
        ),
        "InvalidState: `p1` is not running",
    );
}

#[test]
fn a_proposal_id_cannot_be_used_again() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "make");
    assert_lines(fixture.proposes("p1", "make"), &["= duplicate 8"]);
    assert_refusal(
        fixture.refused_with_id(
            "p1",
            "bot",
            "tool.propose",
            shell_proposal("bot", "make test"),
        ),
        "InvalidMessage: the id `p1` was used for another message; give every message its own id",
    );
    fixture.rejects("bob", "p1");
    assert_lines(fixture.proposes("p1", "make"), &["= duplicate 8"]);
    assert_refusal(
        fixture.refused_with_id(
            "p1",
            "bot",
            "tool.propose",
            shell_proposal("bot", "make test"),
        ),
        "InvalidMessage: the id `p1` was used for another message; give every message its own id",
    );
}

#[test]
fn a_tool_other_than_the_shell_always_needs_approval() {
    let mut fixture = SessionFixture::team(json!({"trust_reads": true}));
    let fetch = json!({"tool_name": "fetch", "arguments": {"url": "http://x"}, "agent": "bot", "risk_level": "safe", "description": "d", "requires_approval": false, "category": "network_request"});
    assert_lines(
        fixture.sends_with_id("p1", "bot", "tool.propose", fetch),
        &[
            "8 bot tool.propose `fetch {\"url\":\"http://x\"}` write",
            "9 system gate.request action_ref=p1 write quorum=any:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 8",
        ],
    );
    assert_lines(
        fixture.approves("bob", "p1"),
        &[
            "10 bob gate.approve p1",
            "11 system gate.resolve p1 approved by quorum approvals=[bob]",
            "12 system tool.execute p1 `fetch {\"url\":\"http://x\"}` on bot cleared_by=quorum approved_by=[bob] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 10",
        ],
    );
}

#[test]
fn actions_that_no_executor_should_run_are_refused() {
    let mut fixture = SessionFixture::team(json!({}));
    let many: serde_json::Map<_, _> = (0..101).map(|n| (format!("A{n}"), json!("x"))).collect();
    for (bad, answer) in [
        (
            json!({"full_command": " "}),
            "InvalidMessage: the command is empty",
        ),
        (
            json!({}),
            "InvalidMessage: shell arguments need `full_command`, or `command` and `args`",
        ),
        (
            json!({"full_command": "ls\u{0}"}),
            "InvalidMessage: a command has no NUL characters",
        ),
        (
            json!({"command": "ls", "args": ["a\u{0}"]}),
            "InvalidMessage: a command has no NUL characters",
        ),
        (
            json!({"command": "", "args": []}),
            "InvalidMessage: the command is empty",
        ),
        (
            json!({"full_command": "ls", "cwd": ""}),
            "InvalidMessage: `cwd` is a path of 1 to 4096 bytes",
        ),
        (
            json!({"full_command": "ls", "cwd": "*"}),
            "InvalidMessage: `cwd` is `*`, which means every directory in an allow rule; for a directory of this name, write `./*`",
        ),
        (
            json!({"full_command": "ls", "env": {"A=B": "x"}}),
            "InvalidMessage: `env` and `secrets` have at most 100 names, of letters, digits and _, with values that can be set",
        ),
        (
            json!({"full_command": "ls", "env": {"": "x"}}),
            "InvalidMessage: `env` and `secrets` have at most 100 names, of letters, digits and _, with values that can be set",
        ),
        (
            json!({"full_command": "ls", "env": {"A": "\u{0}"}}),
            "InvalidMessage: `env` and `secrets` have at most 100 names, of letters, digits and _, with values that can be set",
        ),
        (
            json!({"full_command": "ls", "env": many}),
            "InvalidMessage: `env` and `secrets` have at most 100 names, of letters, digits and _, with values that can be set",
        ),
        (
            json!({"full_command": "ls", "timeout": 0}),
            "InvalidMessage: `timeout` is 1 to 300 seconds in this mode",
        ),
        (
            json!({"full_command": "ls", "timeout": 301}),
            "InvalidMessage: `timeout` is 1 to 300 seconds in this mode",
        ),
        (
            json!({"full_command": "ls", "timeout": 901, "mode": "slow"}),
            "InvalidMessage: `timeout` is 1 to 900 seconds in this mode",
        ),
        (
            json!({"full_command": "ls", "mode": "fast"}),
            "InvalidMessage: `arguments.mode` must be `normal`, `slow`, `background` or `pty`",
        ),
        (
            json!({"full_command": "top", "mode": "pty", "driver": "bot"}),
            "ParticipantNotFound: there is no participant `bot` in this session",
        ),
        (
            json!({"full_command": "top", "mode": "pty", "driver": "zoe"}),
            "ParticipantNotFound: there is no participant `zoe` in this session",
        ),
    ] {
        assert_refusal(
            fixture.refused("bot", "tool.propose", arguments(bad)),
            answer,
        );
    }
    assert_refusal(
        fixture.refused("dan", "tool.propose", shell_proposal("dan", "ls")),
        "Unauthorized: only agents may send this",
    );
    assert_refusal(
        fixture.refused("bot", "tool.propose", shell_proposal("bee", "ls")),
        "Unauthorized: `agent` is `bee`, but you are `bot`; name yourself",
    );
}

#[test]
fn modes_and_explicit_time_limits_are_granted() {
    let mut fixture = SessionFixture::team(json!({"profile": "workspace"}));
    for (name, ask) in [
        ("p1", json!({"full_command": "make", "mode": "slow"})),
        (
            "p2",
            json!({"full_command": "make", "mode": "slow", "timeout": 900}),
        ),
        ("p3", json!({"full_command": "make", "mode": "background"})),
        ("p4", json!({"full_command": "make", "timeout": 300})),
        ("p5", json!({"full_command": "rm -rf build"})),
        ("p6", json!({"full_command": "top", "mode": "pty"})),
        (
            "p7",
            json!({"full_command": "top", "mode": "pty", "driver": "dan"}),
        ),
    ] {
        fixture.sends_with_id(name, "bot", "tool.propose", arguments(ask));
    }
    let mut grants = Vec::new();
    for name in ["p1", "p2", "p3", "p4", "p5", "p6", "p7"] {
        grants.push(fixture.approves("bob", name).swap_remove(2));
    }
    assert_lines(
        grants,
        &[
            "24 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[bob] profile=workspace 900000ms 5242880B until +60 | nonce for bot",
            "27 system tool.execute p2 `make` on bot cleared_by=quorum approved_by=[bob] profile=workspace 900000ms 5242880B until +60 | nonce for bot",
            "30 system tool.execute p3 `make` on bot cleared_by=quorum approved_by=[bob] profile=workspace 0ms 67108864B until +60 | nonce for bot",
            "33 system tool.execute p4 `make` on bot cleared_by=quorum approved_by=[bob] profile=workspace 300000ms 5242880B until +60 | nonce for bot",
            "36 system tool.execute p5 `rm -rf build` on bot cleared_by=quorum approved_by=[bob] profile=workspace 120000ms 1048576B until +60 | nonce for bot",
            "39 system tool.execute p6 `top` on bot cleared_by=quorum approved_by=[bob] profile=workspace 0ms 67108864B until +60 driver=bob | nonce for bot",
            "42 system tool.execute p7 `top` on bot cleared_by=quorum approved_by=[bob] profile=workspace 0ms 67108864B until +60 driver=dan | nonce for bot",
        ],
    );
}

#[test]
fn open_proposals_and_gates_are_limited() {
    let settings = SessionSettings {
        limits: Limits {
            open_proposals: 2,
            open_gates: 3,
            proposals: 6,
            ..Limits::default()
        },
        ..SessionSettings::default()
    };
    let mut fixture = SessionFixture::team_with_settings(settings, json!({}));
    fixture.joins(executor_announcement("bee", json!({})));
    fixture.proposes("p1", "make");
    fixture.proposes("p2", "make");
    assert_refusal(
        fixture.refused("bot", "tool.propose", shell_proposal("bot", "ls")),
        "RateLimited: too many open proposals; wait for some to be decided: at most 2",
    );
    fixture.sends_with_id("p3", "bee", "tool.propose", shell_proposal("bee", "make"));
    assert_refusal(
        fixture.refused("bee", "tool.propose", shell_proposal("bee", "ls")),
        "RateLimited: too many open gates; wait for some to be decided: at most 3",
    );
    assert_refusal(
        fixture.refused("dan", "shell.exec", json!({"command": "ls"})),
        "RateLimited: too many open gates; wait for some to be decided: at most 3",
    );
    fixture.rejects("bob", "p1");
    fixture.rejects("bob", "p2");
    fixture.proposes("p4", "ls");
    fixture.proposes("p5", "rm -rf /");
    fixture.rejects("bob", "p3");
    fixture.proposes("p6", "make");
    assert_refusal(
        fixture.refused("bee", "tool.propose", shell_proposal("bee", "ls")),
        "RateLimited: too many proposals in one session; start another session: at most 6",
    );
}

#[test]
fn a_gate_waits_if_nobody_can_approve() {
    let mut fixture = SessionFixture::created(
        SessionSettings::default(),
        json!({"gate_timeout_seconds": 0}),
    );
    fixture.joins(executor_announcement("bot", json!({})));
    assert_lines(
        fixture.proposes("p1", "make"),
        &[
            "3 bot tool.propose `make` write",
            "4 system gate.request action_ref=p1 write quorum=any:1 voters=[] deadline=never then reject",
            "= accepted 3",
        ],
    );
    let gates = fixture.session.open_gates();
    assert!(
        gates[0]
            .1
            .request
            .message
            .contains("waiting for one approval; nobody in this session can approve yet")
    );
    fixture.joins(announcement("bob", "human", &["approver"]));
    assert_lines(
        fixture.approves("bob", "p1"),
        &[
            "6 bob gate.approve p1",
            "7 system gate.resolve p1 approved by quorum approvals=[bob]",
            "8 system tool.execute p1 `make` on bot cleared_by=quorum approved_by=[bob] profile=none 60000ms 5242880B until +60 | nonce for bot",
            "= accepted 6",
        ],
    );
}

#[test]
fn the_quorum_is_that_of_the_category_or_else_the_default() {
    let mut fixture = SessionFixture::team(json!({
        "default_gate_quorum": {"type": "majority"},
        "quorum_by_category": {"write": {"type": "role", "role": "navigator", "count": 1}, "destructive": {"type": "specific", "participants": ["ann", "bob"]}},
        "require_approval_for": ["file_read"]
    }));
    assert_lines(
        fixture.proposes("p1", "make"),
        &[
            "8 bot tool.propose `make` write",
            "9 system gate.request action_ref=p1 write quorum=role:navigator:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 8",
        ],
    );
    assert_lines(
        fixture.proposes("p2", "rm -rf build"),
        &[
            "10 bot tool.propose `rm -rf build` destructive",
            "11 system gate.request action_ref=p2 destructive quorum=specific:[ann,bob] voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 10",
        ],
    );
    assert_lines(
        fixture.sends_with_id(
            "p3",
            "bot",
            "tool.propose",
            with("ls", json!({"category": "file_read"})),
        ),
        &[
            "12 bot tool.propose `ls` read (this session requires approval for every tool of this kind)",
            "13 system gate.request action_ref=p3 read quorum=majority voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 12",
        ],
    );
}

#[test]
fn the_welcome_describes_the_current_state() {
    let mut fixture =
        SessionFixture::team(json!({"default_gate_quorum": {"type": "any", "count": 2}}));
    fixture.proposes("p1", "make");
    fixture.approves("bob", "p1");
    fixture.proposes("p2", "ls");
    let limits = Limits::default();
    let active = |_: &pvp_protocol::ParticipantId| pvp_protocol::payload::PresenceStatus::Active;
    let welcome = fixture
        .session
        .welcome(&participant_id("eve"), &limits, active, "test".to_owned())
        .unwrap();
    assert_eq!(welcome.people.len(), 6);
    assert_eq!(
        (welcome.head, welcome.gates.len(), welcome.running.len()),
        (fixture.session.head(), 1, 1)
    );
    assert_eq!(
        welcome.gates[0].approvals[0].participant,
        participant_id("bob")
    );
    assert_eq!(welcome.running[0].command, "ls");
    assert_eq!(
        fixture
            .session
            .welcome(&participant_id("zoe"), &limits, active, "test".to_owned()),
        None
    );
    assert_eq!(fixture.session.announcements().count(), 6);
}

#[test]
fn forks_are_refused_with_a_reason() {
    let mut fixture = SessionFixture::team(json!({}));
    let answer = "InvalidState: forks and merges are not available on this server";
    let fork = json!({"name": "f", "from_point": "m1", "reason": "r", "participants": [], "copy_context": false});
    assert_refusal(fixture.refused("ann", "fork.create", fork.clone()), answer);
    assert_refusal(
        fixture.refused("ann", "fork.switch", json!({"target_fork": "f"})),
        answer,
    );
    assert_refusal(
        fixture.refused(
            "ann",
            "merge.propose",
            json!({"source_fork": "f", "target_fork": "g", "strategy": "append", "summary": "s"}),
        ),
        answer,
    );
    assert_refusal(
        fixture.refused("ann", "merge.execute", json!({"merge_proposal": "m"})),
        answer,
    );
    assert_refusal(
        fixture.refused("bob", "fork.create", fork),
        "Unauthorized: you need the capability `fork`; ask an admin for a role that has it",
    );
    let mut submitted = pvp_session::SubmittedMessage::new(
        message_id("m"),
        client_message(
            "prompt.submit",
            &json!({"content": "c", "target_agent": "bot", "contributors": [], "context_keys": []}),
        ),
    );
    submitted.fork = Some(pvp_protocol::ForkId::parse("f").unwrap());
    let decision = fixture.submit("dan", submitted);
    let lines = fixture.lines(&decision);
    assert_lines(
        lines,
        &["= refused InvalidState: forks and merges are not available on this server"],
    );
}

#[test]
fn an_extreme_number_in_a_tools_arguments_is_the_same_after_a_restart() {
    let mut fixture = SessionFixture::team(json!({}));
    let arguments = r#"{"tool_name":"fetch","arguments":{"x":2.4103642642937917e-101},"agent":"bot",
        "risk_level":"safe","description":"d","requires_approval":false,"category":"all"}"#;
    let message = ClientMessage::parse_payload("tool.propose", arguments)
        .unwrap()
        .unwrap();
    let decision = fixture.apply_unchecked(Input::Submit {
        by: participant_id("bot"),
        ceiling: None,
        submitted: SubmittedMessage::new(message_id("p1"), message),
    });
    let mut restarted = Session::new(fixture.session.id().clone());
    for entry in fixture.log.iter().chain(&decision.entries) {
        let stored = Entry::decode(&entry.meta(), &entry.body()).unwrap();
        restarted.replay(&stored).unwrap();
    }
    let digest = |session: &Session| session.proposal(&message_id("p1")).unwrap().action.digest();
    assert_eq!(digest(&restarted), digest(&fixture.session));
}

#[test]
fn what_waits_is_withdrawn_when_its_executor_goes_elsewhere() {
    let place = |directory: &str, runner: &[&str]| {
        let info = json!({"working_directory": directory, "runner": runner, "shell_exec": true});
        executor_announcement("bee", info)
    };
    let withdrawn = |lines: &[String]| -> Vec<String> {
        let of_gates = lines.iter().filter(|line| line.contains("gate.resolve"));
        of_gates.cloned().collect()
    };
    for (elsewhere, moved) in [
        (place("/srv/a", &[]), false),
        (place("/srv/production", &[]), true),
        (place("/srv/a", &["ssh", "prod-db"]), true),
        // Who says nothing of a place is on another connection, and has not gone anywhere.
        (announcement("bee", "agent", &[]), false),
    ] {
        let mut fixture = SessionFixture::team(json!({}));
        fixture.joins(place("/srv/a", &[]));
        fixture.proposes("p1", "make");
        fixture.sends_with_id("p2", "bee", "tool.propose", shell_proposal("bee", "make"));
        fixture.sends_with_id(
            "p3",
            "dan",
            "shell.exec",
            json!({"command": "rm -rf x", "executor": "bee"}),
        );
        let joined = withdrawn(&fixture.joins(elsewhere.clone()));
        let expected = match moved {
            true => ["p2", "p3"]
                .map(|id| format!("gate.resolve {id} cancelled by cancel"))
                .to_vec(),
            false => Vec::new(),
        };
        assert_eq!(joined.len(), expected.len(), "{elsewhere}: {joined:?}");
        for (line, expected) in joined.iter().zip(expected) {
            assert!(
                line.contains(&expected) && line.contains("another directory"),
                "{line}"
            );
        }
    }
    // The same without a new connection.
    let mut fixture = SessionFixture::team(json!({}));
    fixture.joins(place("/srv/a", &[]));
    fixture.sends_with_id("p2", "bee", "tool.propose", shell_proposal("bee", "make"));
    let lines = fixture.sends("bee", "participant.announce", place("/srv/b", &[]));
    assert_eq!(withdrawn(&lines).len(), 1, "{lines:?}");
}
