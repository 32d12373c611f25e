//! What agents of the published protocol send and wait for.

#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::unwrap_used,
    clippy::panic,
    reason = "the log is searched for one message, and whatever is not as expected ends the test"
)]

use pvp_protocol::payload::{
    CONTENT_REF_FIELD, ContentStorage, ContextAdd, GateReject, SessionLeave,
};
use pvp_protocol::{Digest, ServerMessage};
use pvp_session::{Answer, Input, SessionSettings};
use serde_json::{Value, json};

use crate::support::{
    SessionFixture, announcement, assert_lines, assert_refusal, message_id, participant_id,
    shell_proposal,
};

/// The usual team with `old`, an agent that announces no executor. The next entry is number 9.
fn team_with_old_agent(config: Value) -> SessionFixture {
    let mut fixture = SessionFixture::team(config);
    fixture.joins(announcement("old", "agent", &["driver"]));
    fixture
}

fn open_team() -> SessionFixture {
    let settings = SessionSettings {
        open_mode: true,
        ..SessionSettings::default()
    };
    let mut fixture = SessionFixture::team_with_settings(settings, json!({}));
    fixture.joins(announcement("old", "agent", &["driver"]));
    fixture
}

fn old_proposes(fixture: &mut SessionFixture, id: &str, command: &str) -> Vec<String> {
    let mut proposal = shell_proposal("old", command);
    proposal["risk_level"] = json!("low");
    fixture.sends_with_id(id, "old", "tool.propose", proposal)
}

/// The last `gate.reject` in the log, with who said it.
fn last_rejection(fixture: &SessionFixture) -> (Option<String>, GateReject) {
    let rejections = fixture.log.iter().rev();
    let found = rejections.filter_map(|entry| match &entry.envelope.message {
        ServerMessage::GateReject(reject) => {
            let sender = &entry.envelope.header.sender;
            let by = match sender {
                pvp_protocol::Sender::System => None,
                pvp_protocol::Sender::Participant(id) => Some(id.to_string()),
            };
            Some((by, reject.clone()))
        }
        _ => None,
    });
    found.into_iter().next().expect("a rejection")
}

fn last_context(fixture: &SessionFixture) -> ContextAdd {
    match &fixture.log.last().unwrap().envelope.message {
        ServerMessage::ContextAdd(add) => add.clone(),
        other => panic!("not context: {other:?}"),
    }
}

#[test]
fn every_end_of_a_waiting_proposal_is_told_as_a_rejection_that_names_it() {
    let mut fixture = team_with_old_agent(json!({}));
    type End = fn(&mut SessionFixture);
    let ends: [(&str, End, &str); 4] = [
        (
            "p1",
            |fixture| {
                let vote = json!({"tool_proposal": "p1", "rejector": "bob", "reason": "no", "suggestion": "ls"});
                fixture.sends("bob", "tool.reject", vote);
            },
            "rejected by bob; no; suggestion: ls",
        ),
        (
            "p2",
            |fixture| {
                let cancel = json!({"tool_proposal": "p2", "reason": "not needed"});
                fixture.sends("ann", "tool.cancel", cancel);
            },
            "cancelled by ann; not needed",
        ),
        (
            "p3",
            |fixture| {
                let stop = json!({"urgency": "stop", "message": "enough"});
                fixture.sends("dan", "interrupt.raise", stop);
            },
            "cancelled by dan; enough",
        ),
        (
            "p4",
            |fixture| {
                let end = json!({"reason": "done", "final_state": "completed"});
                fixture.sends("ann", "session.end", end);
            },
            "cancelled: the session has ended",
        ),
    ];
    for (id, end, reason) in ends {
        old_proposes(&mut fixture, id, "make");
        let gate = fixture.gate_id(id);
        end(&mut fixture);
        let (by, told) = last_rejection(&fixture);
        let expected = GateReject {
            gate: message_id(id),
            rejector: participant_id("system"),
            reason: reason.to_owned(),
            digest: None,
            gate_request: Some(message_id(&gate)),
            extra: Default::default(),
        };
        assert_eq!((by, told), (None, expected));
    }
}

#[test]
fn a_blocked_proposal_is_told_as_a_rejection_beside_the_error() {
    let mut fixture = team_with_old_agent(json!({}));
    let lines = old_proposes(&mut fixture, "p1", "rm -rf /");
    assert!(
        lines[1].starts_with("10 system gate.reject p1 "),
        "{lines:?}"
    );
    assert!(lines[2].starts_with("= refused GateFailed: "), "{lines:?}");
    let (_, told) = last_rejection(&fixture);
    assert!(lines[2].ends_with(&told.reason), "{told:?} {lines:?}");
    assert_eq!((told.gate, told.gate_request), (message_id("p1"), None));
}

#[test]
fn votes_and_timeouts_name_the_proposal_whatever_the_voter_named() {
    let mut fixture =
        team_with_old_agent(json!({"default_gate_quorum": {"type": "any", "count": 2}}));
    old_proposes(&mut fixture, "p1", "make");
    let gate = fixture.gate_id("p1");
    assert_lines(
        fixture.approves("bob", &gate),
        &["11 bob gate.approve p1", "= accepted 11"],
    );
    let vote = json!({"tool_proposal": gate, "rejector": "cat", "reason": "no"});
    let lines = fixture.sends("cat", "tool.reject", vote);
    assert_eq!(lines[0], "12 cat tool.reject p1 no");
    old_proposes(&mut fixture, "p2", "make");
    fixture.advances_and_ticks(301);
    let timeout = fixture
        .log
        .iter()
        .find_map(|entry| match &entry.envelope.message {
            ServerMessage::GateTimeout(timeout) => Some(timeout.gate.to_string()),
            _ => None,
        });
    assert_eq!(timeout.as_deref(), Some("p2"));
}

#[test]
fn an_agent_that_knows_the_resolution_is_told_once() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "make");
    let cancel = json!({"tool_proposal": "p1", "reason": "not needed"});
    let lines = fixture.sends("ann", "tool.cancel", cancel);
    assert_eq!(lines.len(), 3, "{lines:?}");
}

#[test]
fn low_is_what_clients_say_of_a_harmless_read() {
    let mut fixture = open_team();
    let lines = old_proposes(&mut fixture, "p1", "ls -la");
    assert_eq!(lines[0], "9 old tool.propose `ls -la` read");
    assert!(
        lines[1].starts_with("10 system tool.execute p1 `ls -la` on old cleared_by=read"),
        "{lines:?}"
    );
}

#[test]
fn published_messages_are_taken() {
    let mut fixture = team_with_old_agent(json!({}));
    let report = json!({"code": "TIMEOUT", "message": "slow", "recoverable": true});
    assert_lines(
        fixture.sends("old", "error", report),
        &["9 old error Timeout slow", "= accepted 9"],
    );
    let prompt =
        json!({"content": "look", "target_agent": "bob", "contributors": [], "context_keys": []});
    assert_lines(
        fixture.sends("dan", "prompt.submit", prompt),
        &["10 dan prompt.submit to bob look", "= accepted 10"],
    );
    let tasks =
        json!({"key": "session:tasks", "content_type": "structured", "content": {"tasks": []}});
    for agent in ["old", "bot"] {
        if agent == "bot" {
            let roles = json!({"participant": "bot", "old_roles": [], "new_roles": ["driver"], "changed_by": "ann"});
            fixture.sends("ann", "participant.role_change", roles);
        }
        let lines = fixture.sends(agent, "context.add", tasks.clone());
        assert!(lines[0].contains("context.add session:tasks"), "{lines:?}");
    }
    for (who, key) in [
        ("dan", "session:tasks"),
        ("old", "session:working_directory"),
    ] {
        let add = json!({"key": key, "content_type": "text", "content": "x"});
        assert_refusal(
            fixture.refused(who, "context.add", add),
            "Unauthorized: keys that begin with `session:` are reserved for the server",
        );
    }
}

#[test]
fn the_end_of_a_response_that_was_not_started_ends_nothing_else() {
    let mut fixture = team_with_old_agent(json!({}));
    let start = json!({"agent": "bot", "prompt_ref": "q1", "visible_to": "approvers_only"});
    fixture.sends_with_id("t1", "bot", "thinking.start", start);
    let end = serde_json::from_value(json!({"finish_reason": "complete"})).unwrap();
    let end = pvp_protocol::ClientMessage::ResponseEnd(end);
    let mut submitted = pvp_session::SubmittedMessage::new(message_id("m-end"), end);
    submitted.reference = Some(message_id("t1"));
    let decision = fixture.submit("old", submitted);
    assert_eq!(decision.answer, Answer::Accepted(Some(10)));
    assert_eq!(decision.entries[0].envelope.header.reference, None);
    // The other agent's thinking goes on.
    let lines = fixture.sends("bot", "thinking.chunk", json!({"text": "so"}));
    assert!(lines.last().unwrap().starts_with("= accepted"), "{lines:?}");
}

#[test]
fn a_result_may_be_any_json_and_is_told_as_it_is() {
    for value in [
        json!("done"),
        json!(["a", 1, null]),
        json!({"files": ["a"], "ok": true}),
        json!(7),
        json!({"stdout": 7}),
    ] {
        let mut fixture = open_team();
        old_proposes(&mut fixture, "p1", "ls");
        let result =
            json!({"tool_proposal": "p1", "success": true, "result": value, "duration_ms": 1});
        fixture.sends("old", "tool.result", result);
        let told = serde_json::to_value(&fixture.log.last().unwrap().envelope.message).unwrap();
        assert_eq!(told["result"], value);
    }
}

#[test]
fn a_large_result_of_any_json_is_read_by_reference() {
    let mut fixture = open_team();
    old_proposes(&mut fixture, "p1", "ls");
    let rows: Vec<_> = (0..40_000).map(|row| format!("row {row}")).collect();
    let result = json!({"tool_proposal": "p1", "success": true, "result": rows, "duration_ms": 1});
    fixture.sends("old", "tool.result", result);
    let messages = fixture.log.iter().map(|entry| &entry.envelope.message);
    let output: String = messages
        .filter_map(|message| match message {
            ServerMessage::ToolOutput(output) => Some(output.text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(serde_json::from_str::<Vec<String>>(&output).unwrap(), rows);
    let told = serde_json::to_value(&fixture.log.last().unwrap().envelope.message).unwrap();
    assert!(told["result"].as_str().unwrap().len() < 70_000);
    assert_eq!(told["output_ref"], "p1");
}

fn streaming_proposal() -> Value {
    json!({
        "tool_name": "monitor", "arguments": {"path": "log.txt", "streaming": true}, "agent": "old",
        "risk_level": "low", "description": "watch the log", "requires_approval": true,
        "category": "file_read",
    })
}

fn result_of(id: &str) -> Value {
    json!({"tool_proposal": id, "success": true, "result": "started", "duration_ms": 1})
}

fn output_of(id: &str, text: &str) -> Value {
    json!({"tool_proposal": id, "stream": "stdout", "text": text, "complete": false})
}

#[test]
fn a_streaming_tool_goes_on_after_its_first_result() {
    let mut fixture = team_with_old_agent(json!({}));
    fixture.sends_with_id("p1", "old", "tool.propose", streaming_proposal());
    fixture.approves("bob", "p1");
    fixture.sends("old", "tool.result", result_of("p1"));
    let told = serde_json::to_value(&fixture.log.last().unwrap().envelope.message).unwrap();
    assert_eq!(told["more_output"], true);
    // It has no time limit any more.
    assert_lines(fixture.advances_and_ticks(100_000), &["= accepted"]);
    let lines = fixture.sends("old", "tool.output", output_of("p1", "line\n"));
    assert!(lines.last().unwrap().starts_with("= accepted"), "{lines:?}");
    fixture.sends("old", "tool.result", result_of("p1"));
    assert_refusal(
        fixture.refused("old", "tool.output", output_of("p1", "line\n")),
        "InvalidState: command `p1` has ended already",
    );
}

#[test]
fn a_tool_that_was_not_declared_streaming_ends_with_its_result() {
    let mut fixture = team_with_old_agent(json!({}));
    let mut proposal = streaming_proposal();
    proposal["arguments"]["streaming"] = json!("yes");
    fixture.sends_with_id("p1", "old", "tool.propose", proposal);
    fixture.approves("bob", "p1");
    fixture.sends("old", "tool.result", result_of("p1"));
    assert_refusal(
        fixture.refused("old", "tool.output", output_of("p1", "line\n")),
        "InvalidState: command `p1` has ended already",
    );
}

#[test]
fn creating_a_session_again_changes_nothing_for_its_members() {
    let mut fixture = open_team();
    let create = json!({"name": "another", "config": {"solo": true}});
    assert_lines(
        fixture.sends("dan", "session.create", create.clone()),
        &["= duplicate 1"],
    );
    let decision = fixture.create("dan", create.clone());
    assert_eq!(decision.answer, Answer::Duplicate(1));
    assert!(!fixture.session.config().solo);
    let decision = fixture.create("stranger", create);
    assert!(matches!(decision.answer, Answer::Refused(_)));
}

fn lose(fixture: &mut SessionFixture, who: &str) -> Vec<String> {
    let participant = participant_id(who);
    let decision = fixture.apply(Input::ConnectionLost { participant });
    fixture.lines(&decision)
}

#[test]
fn whoever_lost_their_connection_is_told_to_be_gone_and_keeps_their_vote() {
    let mut fixture =
        team_with_old_agent(json!({"default_gate_quorum": {"type": "any", "count": 2}}));
    old_proposes(&mut fixture, "p1", "make");
    fixture.approves("bob", "p1");
    assert_lines(
        lose(&mut fixture, "bob"),
        &["12 bob session.leave disconnected", "= accepted 12"],
    );
    assert_lines(lose(&mut fixture, "bob"), &["= accepted"]);
    let here: Vec<_> = fixture
        .session
        .announcements()
        .map(|it| it.id.as_str())
        .collect();
    assert_eq!(here, ["ann", "bot", "cat", "dan", "eve", "old"]);
    // The vote counts, and the proposer that is gone is not cancelled.
    lose(&mut fixture, "old");
    let lines = fixture.approves("cat", "p1");
    assert!(lines[2].contains("tool.execute p1"), "{lines:?}");
    let lines = fixture.joins(announcement("bob", "human", &["approver"]));
    assert!(lines[0].contains("bob participant.announce"), "{lines:?}");
    assert_eq!(fixture.session.announcements().count(), 6);
}

#[test]
fn whoever_is_back_without_joining_is_announced_again() {
    let mut fixture = team_with_old_agent(json!({}));
    let restore = |fixture: &mut SessionFixture| {
        let participant = participant_id("bob");
        let decision = fixture.apply(Input::ConnectionRestored { participant });
        fixture.lines(&decision)
    };
    assert_lines(restore(&mut fixture), &["= accepted"]);
    lose(&mut fixture, "bob");
    let lines = restore(&mut fixture);
    assert!(lines[0].contains("bob participant.announce"), "{lines:?}");
    assert_eq!(fixture.session.announcements().count(), 7);
}

#[test]
fn a_client_cannot_say_that_its_connection_was_lost() {
    let mut fixture = team_with_old_agent(json!({}));
    let leave = json!({"reason": "disconnected", "connection_lost": true});
    fixture.sends("bob", "session.leave", leave);
    let ServerMessage::SessionLeave(SessionLeave {
        connection_lost, ..
    }) = fixture.log.last().unwrap().envelope.message
    else {
        panic!("left")
    };
    assert!(!connection_lost);
    assert!(fixture.session.member(&participant_id("bob")).unwrap().left);
}

#[test]
fn those_who_are_gone_take_no_place_in_a_session() {
    let mut fixture =
        SessionFixture::created(SessionSettings::default(), json!({"max_participants": 2}));
    for number in 0..10 {
        let name = format!("n{number}");
        let lines = fixture.joins(announcement(&name, "human", &["driver"]));
        assert!(lines.last().unwrap().starts_with("= accepted"), "{lines:?}");
        lose(&mut fixture, &name);
    }
}

#[test]
fn a_streaming_tool_ends_with_the_connection_of_its_agent() {
    let mut fixture = team_with_old_agent(json!({}));
    fixture.sends_with_id("p1", "old", "tool.propose", streaming_proposal());
    fixture.approves("bob", "p1");
    fixture.sends("old", "tool.result", result_of("p1"));
    let lines = lose(&mut fixture, "old");
    assert!(
        lines[1].contains("tool.result p1 failed unknown"),
        "{lines:?}"
    );
}

fn file_write(content: &str) -> Value {
    json!({
        "tool_name": "file_write", "arguments": {"path": "src/a.txt", "content": content},
        "agent": "old", "risk_level": "low", "description": "write", "requires_approval": true,
        "category": "file_write",
    })
}

fn written(fixture: &mut SessionFixture, id: &str, content: &str, result: Value) {
    fixture.sends_with_id(id, "old", "tool.propose", file_write(content));
    fixture.approves("bob", id);
    let result = json!({"tool_proposal": id, "success": true, "result": result, "duration_ms": 1});
    fixture.sends("old", "tool.result", result);
}

#[test]
fn a_file_that_was_written_becomes_context_if_the_result_names_it() {
    let mut fixture = team_with_old_agent(json!({}));
    for (number, result) in [
        json!({"path": "src/a.txt", "bytes": 5}),
        json!("wrote src/a.txt"),
        json!({"exitCode": 0, "stdout": "src/a.txt: 5 bytes", "stderr": ""}),
    ]
    .into_iter()
    .enumerate()
    {
        written(&mut fixture, &format!("p{number}"), "hello", result);
        let told = last_context(&fixture);
        assert_eq!(told.key, "file:src/a.txt");
        assert_eq!(serde_json::to_value(&told.content).unwrap(), "hello");
        let reference = told.content_ref.unwrap();
        assert_eq!(reference.hash, Digest::of_content(b"hello"));
        assert_eq!(reference.storage, ContentStorage::Local);
    }
    let head = fixture.session.head();
    written(&mut fixture, "p9", "hello", json!("done"));
    assert_eq!(fixture.session.head(), head + 6, "nothing but the run");
    // Agents that share files themselves still can.
    let add = json!({"key": "file:src/a.txt", "content_type": "file", "content": "mine"});
    let lines = fixture.sends("old", "context.add", add);
    assert!(lines.last().unwrap().starts_with("= accepted"), "{lines:?}");
}

#[test]
fn a_large_file_that_was_written_is_told_by_its_hash() {
    let mut fixture = team_with_old_agent(json!({}));
    let content = "x".repeat(100_000);
    written(&mut fixture, "p1", &content, json!("wrote src/a.txt"));
    let told = last_context(&fixture);
    assert_eq!(told.content, None);
    assert_eq!(told.content_ref.unwrap().size_bytes, 100_000);
    // The same for content that the server keeps elsewhere already.
    let reference = json!({"hash": "a".repeat(64), "size_bytes": 9_000_000, "mime_type": "text/plain", "storage": "local"});
    let mut proposal = file_write("");
    proposal["arguments"]["content"] = json!({CONTENT_REF_FIELD: reference});
    fixture.sends_with_id("p2", "old", "tool.propose", proposal);
    fixture.approves("bob", "p2");
    let result =
        json!({"tool_proposal": "p2", "success": true, "result": "src/a.txt", "duration_ms": 1});
    fixture.sends("old", "tool.result", result);
    assert_eq!(
        last_context(&fixture).content_ref.unwrap().size_bytes,
        9_000_000
    );
}

#[test]
fn what_an_interrupt_injects_becomes_context() {
    let mut fixture = team_with_old_agent(json!({}));
    let raise = json!({"urgency": "pause", "message": "look", "inject_context": "use tabs"});
    fixture.sends_with_id("i1", "dan", "interrupt.raise", raise);
    let told = last_context(&fixture);
    assert_eq!(told.key, "interrupt_i1");
    assert_eq!(serde_json::to_value(&told.content).unwrap(), "use tabs");
    assert_eq!(told.source.as_deref(), Some("dan"));
    // An interrupt is never refused because the context is full.
    fixture.settings.limits.context_bytes = 0;
    let raise = json!({"urgency": "stop", "message": "look", "inject_context": "use tabs"});
    let lines = fixture.sends("dan", "interrupt.raise", raise);
    assert!(lines.last().unwrap().starts_with("= accepted"), "{lines:?}");
}

#[test]
fn in_open_mode_an_update_may_be_the_first_content_of_a_key() {
    let update = json!({"key": "file:a", "new_content": "text", "reason": "r"});
    let mut fixture = open_team();
    let lines = fixture.sends("old", "context.update", update.clone());
    assert!(lines.last().unwrap().starts_with("= accepted"), "{lines:?}");
    // It counts.
    fixture.settings.limits.context_bytes = 20;
    let update_of_another = json!({"key": "file:b", "new_content": "0123456789", "reason": "r"});
    assert!(
        fixture
            .refused("old", "context.update", update_of_another)
            .starts_with("ContextTooLarge")
    );
    let mut fixture = team_with_old_agent(json!({}));
    assert_refusal(
        fixture.refused("old", "context.update", update),
        "InvalidState: there is no context `file:a`",
    );
}

#[test]
fn the_quorum_may_depend_on_the_kind_of_tool() {
    let any = |count: u32| json!({"type": "any", "count": count});
    let quorums = json!({"file_write": any(3), "all": any(2), "destructive": any(4)});
    let mut fixture = team_with_old_agent(json!({"quorum_by_category": quorums}));
    let mut propose = |id: &str, tool: &str, category: &str| {
        let mut proposal = file_write("x");
        (proposal["tool_name"], proposal["category"]) = (json!(tool), json!(category));
        let lines = fixture.sends_with_id(id, "old", "tool.propose", proposal);
        let gate = lines[1].clone();
        gate.split("quorum=")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(propose("p1", "file_write", "file_write"), "any:3");
    // A known tool is what it is, whatever the agent says.
    assert_eq!(propose("p2", "file_write", "file_read"), "any:3");
    assert_eq!(propose("p3", "fetch", "network_request"), "any:2");
    // What may lose data is decided by the quorum for that.
    assert_eq!(propose("p4", "ship", "deploy"), "any:4");
    assert_eq!(propose("p5", "file_write", "file_delete"), "any:4");
}

#[test]
fn an_agent_that_comes_back_is_not_sent_again_what_it_has_dealt_with() {
    let mut fixture = open_team();
    let prompt = |target: &str| json!({"content": "do it", "target_agent": target, "contributors": [], "context_keys": []});
    fixture.sends_with_id("q1", "dan", "prompt.submit", prompt("old"));
    fixture.sends_with_id("q2", "dan", "prompt.submit", prompt("old"));
    fixture.sends_with_id("q3", "dan", "prompt.submit", prompt("bot"));
    let start = json!({"agent": "old", "prompt_ref": "q1"});
    fixture.sends("old", "response.start", start);
    old_proposes(&mut fixture, "p1", "ls");
    fixture.sends("old", "tool.result", result_of("p1"));
    old_proposes(&mut fixture, "p2", "ls");
    let raise = json!({"urgency": "pause", "message": "wait"});
    fixture.sends_with_id("i1", "dan", "interrupt.raise", raise.clone());
    let acknowledge = json!({"interrupt": "i1", "by": "old", "action_taken": "paused"});
    fixture.sends("old", "interrupt.acknowledge", acknowledge);
    fixture.sends_with_id("i2", "dan", "interrupt.raise", raise);
    let filter = fixture
        .session
        .history_filter(&participant_id("old"))
        .unwrap();
    let left_out: Vec<_> = fixture
        .log
        .iter()
        .filter(|entry| {
            use pvp_protocol::WireMessage;
            !filter.includes(entry.seq(), entry.envelope.message.kind())
        })
        .map(|entry| {
            use pvp_protocol::WireMessage;
            (entry.seq(), entry.envelope.message.kind())
        })
        .collect();
    let grant = fixture.log.iter().find(|entry| {
        matches!(&entry.envelope.message, ServerMessage::ToolExecute(it) if it.tool_proposal == message_id("p1"))
    });
    let interrupt = fixture
        .log
        .iter()
        .find(|entry| *entry.id() == message_id("i1"));
    assert_eq!(
        left_out,
        [
            (9, "prompt.submit"),
            (grant.unwrap().seq(), "tool.execute"),
            (interrupt.unwrap().seq(), "interrupt.raise"),
        ]
    );
    // An agent of this server's own knows what is past, and so do people.
    for known in ["bot", "ann"] {
        assert_eq!(fixture.session.history_filter(&participant_id(known)), None);
    }
}

fn gate_quorum(lines: &[String]) -> String {
    let gate = lines.iter().find(|line| line.contains("gate.request"));
    let gate = gate.unwrap_or_else(|| panic!("no gate: {lines:?}"));
    let quorum = gate.split("quorum=").nth(1).unwrap();
    quorum.split(' ').next().unwrap().to_owned()
}

#[test]
fn what_an_agent_states_about_its_tool_never_asks_for_less() {
    let any = |count: u32| json!({"type": "any", "count": count});
    let quorums =
        json!({"write": any(2), "network_request": any(1), "all": any(1), "deploy": any(3)});
    let config = json!({"quorum_by_category": quorums, "require_approval_for": ["file_read"]});
    let mut fixture = SessionFixture::team(config);
    let mut propose = |id: &str, tool: &str, category: &str| {
        let mut proposal = file_write("x");
        proposal["agent"] = json!("bot");
        (proposal["tool_name"], proposal["category"]) = (json!(tool), json!(category));
        fixture.sends_with_id(id, "bot", "tool.propose", proposal)
    };
    for (number, category) in ["network_request", "all", "external_api"]
        .into_iter()
        .enumerate()
    {
        let lines = propose(&format!("p{number}"), "fetch", category);
        assert_eq!(gate_quorum(&lines), "any:2", "{category}");
    }
    // It may ask for more.
    assert_eq!(gate_quorum(&propose("p7", "ship", "deploy")), "any:3");
    // A known tool is what it is: reading files needs approval here, whatever it is called.
    let mut read = file_write("x");
    read["agent"] = json!("bot");
    read["tool_name"] = json!("file_read");
    read["arguments"] = json!({"path": "README.md"});
    (read["category"], read["requires_approval"]) = (json!("external_api"), json!(false));
    let lines = fixture.sends_with_id("p8", "bot", "tool.propose", read);
    assert!(lines[1].contains("gate.request"), "{lines:?}");
}

#[test]
fn an_edit_keeps_what_the_agent_said_of_its_call() {
    let any = |count: u32| json!({"type": "any", "count": count});
    let config = json!({"quorum_by_category": {"destructive": any(2)}});
    let mut fixture = SessionFixture::team(config);
    let mut ship = file_write("x");
    ship["agent"] = json!("bot");
    (ship["tool_name"], ship["category"]) = (json!("ship"), json!("deploy"));
    let lines = fixture.sends_with_id("p1", "bot", "tool.propose", ship);
    assert_eq!(gate_quorum(&lines), "any:2");
    let digest = fixture.digest("p1");
    let edit =
        json!({"gate": "p1", "digest": digest, "arguments": {"path": "src/a.txt", "content": "y"}});
    let lines = fixture.sends("bob", "gate.amend", edit);
    assert!(
        lines[0].contains("destructive") && lines[0].contains("quorum=any:2"),
        "{lines:?}"
    );
}

#[test]
fn what_has_begun_to_report_is_not_granted_again_on_return() {
    let mut fixture = open_team();
    fixture.sends_with_id("p1", "old", "tool.propose", streaming_proposal());
    fixture.approves("bob", "p1");
    fixture.sends("old", "tool.result", result_of("p1"));
    old_proposes(&mut fixture, "p2", "ls");
    fixture.sends("old", "tool.output", output_of("p2", "a\n"));
    let old = participant_id("old");
    let filter = fixture.session.history_filter(&old).unwrap();
    let grants = fixture
        .log
        .iter()
        .filter(|entry| matches!(&entry.envelope.message, ServerMessage::ToolExecute(_)));
    for grant in grants {
        assert!(
            !filter.includes(grant.seq(), "tool.execute"),
            "{}",
            grant.seq()
        );
    }
    assert_eq!(filter.oldest_open(), None);
    let prompt =
        json!({"content": "do", "target_agent": "old", "contributors": [], "context_keys": []});
    fixture.sends_with_id("q1", "dan", "prompt.submit", prompt);
    let filter = fixture.session.history_filter(&old).unwrap();
    assert_eq!(filter.oldest_open(), Some(fixture.session.head()));
}

#[test]
fn those_who_are_gone_are_not_waited_for_and_may_not_overfill_a_session() {
    let config = json!({"default_gate_quorum": {"type": "majority"}});
    let mut fixture = team_with_old_agent(config);
    for gone in ["ann", "cat"] {
        lose(&mut fixture, gone);
    }
    old_proposes(&mut fixture, "p1", "make");
    let lines = fixture.approves("bob", "p1");
    assert!(
        lines.iter().any(|line| line.contains("tool.execute p1")),
        "{lines:?}"
    );
    // Coming back needs a place.
    let mut fixture =
        SessionFixture::created(SessionSettings::default(), json!({"max_participants": 1}));
    fixture.joins(announcement("one", "human", &["driver"]));
    lose(&mut fixture, "one");
    fixture.joins(announcement("two", "human", &["driver"]));
    let lines = fixture.joins(announcement("one", "human", &["driver"]));
    assert!(lines[0].contains("refused"), "{lines:?}");
}

#[test]
fn what_an_agent_without_an_executor_says_of_present_files_is_not_shown() {
    let old = "the old text\n";
    let hash = Digest::of_content(old.as_bytes()).to_string();
    let mut fixture = team_with_old_agent(json!({}));
    let mut proposal = file_write("new");
    proposal["arguments"]["files"] =
        json!([{"path": "src/a.txt", "sha256": hash, "bytes": old.len()}]);
    proposal["file_contents"] = json!([{"path": "src/a.txt", "text": old}]);
    fixture.sends_with_id("p1", "old", "tool.propose", proposal.clone());
    let told = |fixture: &SessionFixture, id: &str| {
        let entry = fixture
            .log
            .iter()
            .find(|entry| *entry.id() == message_id(id));
        serde_json::to_value(&entry.unwrap().envelope.message).unwrap()
    };
    let message = told(&fixture, "p1");
    assert_eq!(message["file_contents"], Value::Null);
    assert!(
        message["assessment"]["notes"]
            .to_string()
            .contains("nobody checks"),
        "{message}"
    );
    // An executor of ours checks them before it starts.
    proposal["agent"] = json!("bot");
    fixture.sends_with_id("p2", "bot", "tool.propose", proposal);
    assert_eq!(told(&fixture, "p2")["file_contents"][0]["text"], old);
}

#[test]
fn a_result_is_bounded_in_all_its_parts() {
    let mut fixture = open_team();
    old_proposes(&mut fixture, "p1", "ls");
    let long = "x".repeat(3_000_000);
    let result = json!({"tool_proposal": "p1", "success": false, "error": long, "more": long,
        "result": {"exitCode": 1, "stdout": "", "stderr": "", "note": long}, "duration_ms": 1});
    fixture.sends("old", "tool.result", result);
    let entry = fixture.log.last().unwrap();
    assert!(entry.body().len() < 300_000, "{}", entry.body().len());
}

#[test]
fn a_written_file_does_not_take_the_context_of_somebody_else() {
    let mut fixture = team_with_old_agent(json!({}));
    let add = json!({"key": "file:src/a.txt", "content_type": "file", "content": "mine"});
    fixture.sends("dan", "context.add", add);
    written(&mut fixture, "p1", "hello", json!("wrote src/a.txt"));
    let last = fixture.log.last().unwrap();
    assert!(
        matches!(last.envelope.message, ServerMessage::ToolResult(_)),
        "{last:?}"
    );
}
