//! Tests of prompts, thinking, responses and interrupts.

use crate::support::*;
use pvp_session::SubmittedMessage;
use serde_json::{Value, json};

fn prompt(agent: &str) -> Value {
    json!({"content": "do it", "target_agent": agent, "contributors": [], "context_keys": []})
}

fn thinking(visible_to: Value) -> Value {
    json!({"agent": "bot", "prompt_ref": "q1", "visible_to": visible_to})
}

fn raise(urgency: &str, target: Option<&str>) -> Value {
    let mut raise = json!({"urgency": urgency, "message": "wait"});
    if let Some(target) = target {
        raise["target"] = json!(target);
    }
    raise
}

fn done(interrupt: &str, action: &str) -> Value {
    json!({"interrupt": interrupt, "by": "bot", "action_taken": action})
}

#[test]
fn a_prompt_needs_somebody_who_is_in_the_session() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(
        fixture.sends_with_id("q1", "dan", "prompt.submit", prompt("bot")),
        &["8 dan prompt.submit to bot do it", "= accepted 8"],
    );
    assert_lines(
        fixture.sends(
            "ann",
            "prompt.amend",
            json!({"original_prompt": "q1", "amendment": "more", "reason": "r"}),
        ),
        &["9 ann prompt.amend q1 more", "= accepted 9"],
    );
    assert_refusal(
        fixture.refused(
            "dan",
            "prompt.amend",
            json!({"original_prompt": "q9", "amendment": "more", "reason": "r"}),
        ),
        "InvalidState: there is no recent prompt `q9`",
    );
    assert_refusal(
        fixture.refused("dan", "prompt.submit", prompt("zoe")),
        "ParticipantNotFound: there is no participant `zoe` in this session",
    );
    assert_refusal(
        fixture.refused("bob", "prompt.submit", prompt("bot")),
        "Unauthorized: you need the capability `prompt`; ask an admin for a role that has it",
    );
    fixture.leaves("bot");
    assert_refusal(
        fixture.refused("dan", "prompt.submit", prompt("bot")),
        "ParticipantNotFound: there is no participant `bot` in this session",
    );
}

#[test]
fn thinking_is_visible_to_those_its_start_names() {
    let mut fixture = SessionFixture::team(json!({}));
    for (start, visible_to) in [
        ("t1", json!("all")),
        ("t2", json!("approvers_only")),
        ("t3", json!(["dan", "eve"])),
    ] {
        let mut lines = fixture.sends_with_id(start, "bot", "thinking.start", thinking(visible_to));
        lines.extend(fixture.sends("bot", "thinking.chunk", json!({"text": "hm"})));
        lines.extend(fixture.sends("bot", "thinking.end", json!({"summary": "so"})));
        match start {
            "t1" => assert_lines(
                lines,
                &[
                    "8 bot thinking.start all",
                    "= accepted 8",
                    "9 bot thinking.chunk hm",
                    "= accepted 9",
                    "10 bot thinking.end so",
                    "= accepted 10",
                ],
            ),
            "t2" => assert_lines(
                lines,
                &[
                    "11 bot thinking.start approvers_only | approvers and [bot]",
                    "= accepted 11",
                    "12 bot thinking.chunk hm | approvers and [bot]",
                    "= accepted 12",
                    "13 bot thinking.end so | approvers and [bot]",
                    "= accepted 13",
                ],
            ),
            _ => assert_lines(
                lines,
                &[
                    "14 bot thinking.start [dan,eve] | only [bot,dan,eve]",
                    "= accepted 14",
                    "15 bot thinking.chunk hm | only [bot,dan,eve]",
                    "= accepted 15",
                    "16 bot thinking.end so | only [bot,dan,eve]",
                    "= accepted 16",
                ],
            ),
        }
    }
    assert_refusal(
        fixture.refused("bot", "thinking.chunk", json!({"text": "hm"})),
        "InvalidState: you have not started this; send its start message first",
    );
}

#[test]
fn a_chunk_belongs_to_the_stream_it_names_or_else_to_the_latest() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.sends_with_id("t2", "bot", "thinking.start", thinking(json!(["dan"])));
    fixture.sends_with_id("t1", "bot", "thinking.start", thinking(json!("all")));
    assert_lines(
        fixture.sends("bot", "thinking.chunk", json!({"text": "latest"})),
        &["10 bot thinking.chunk latest", "= accepted 10"],
    );
    let mut named = SubmittedMessage::new(
        message_id("c1"),
        client_message("thinking.chunk", &json!({"text": "named"})),
    );
    named.reference = Some(message_id("t2"));
    let decision = fixture.submit("bot", named.clone());
    let lines = fixture.lines(&decision);
    assert_lines(
        lines,
        &[
            "11 bot thinking.chunk named | only [bot,dan]",
            "= accepted 11",
        ],
    );
    named.id = message_id("c2");
    named.reference = Some(message_id("t9"));
    let decision = fixture.submit("bot", named);
    let lines = fixture.lines(&decision);
    assert_lines(
        lines,
        &["= refused InvalidState: you have not started this; send its start message first"],
    );
    fixture.joins(executor_announcement("bee", json!({})));
    assert_refusal(
        fixture.refused("bee", "thinking.chunk", json!({"text": "mine?"})),
        "InvalidState: you have not started this; send its start message first",
    );
    assert_refusal(
        fixture.refused("bot", "response.chunk", json!({"text": "x"})),
        "InvalidState: you have not started this; send its start message first",
    );
}

#[test]
fn responses_are_visible_to_everyone() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(
        fixture.sends_with_id(
            "a1",
            "bot",
            "response.start",
            json!({"agent": "bot", "prompt_ref": "q1"}),
        ),
        &["8 bot response.start to q1", "= accepted 8"],
    );
    assert_lines(
        fixture.sends("bot", "response.chunk", json!({"text": "hello"})),
        &["9 bot response.chunk hello", "= accepted 9"],
    );
    assert_lines(
        fixture.sends("bot", "response.end", json!({"finish_reason": "complete"})),
        &["10 bot response.end complete", "= accepted 10"],
    );
    assert_refusal(
        fixture.refused("bot", "response.chunk", json!({"text": "more"})),
        "InvalidState: you have not started this; send its start message first",
    );
    assert_refusal(
        fixture.refused(
            "dan",
            "response.start",
            json!({"agent": "dan", "prompt_ref": "q1"}),
        ),
        "Unauthorized: only agents may send this",
    );
    assert_refusal(
        fixture.refused(
            "bot",
            "response.start",
            json!({"agent": "bee", "prompt_ref": "q1"}),
        ),
        "Unauthorized: `agent` is `bee`, but you are `bot`; name yourself",
    );
    assert_refusal(
        fixture.refused(
            "bot",
            "thinking.start",
            json!({"agent": "bee", "prompt_ref": "q1", "visible_to": "all"}),
        ),
        "Unauthorized: `agent` is `bee`, but you are `bot`; name yourself",
    );
    let participants: Vec<_> = (0..201).map(|number| format!("p{number}")).collect();
    assert_refusal(
        fixture.refused("bot", "thinking.start", thinking(json!(participants))),
        "InvalidMessage: `visible_to` names at most 200 people",
    );
}

#[test]
fn an_agents_open_streams_are_limited_and_end_when_it_leaves() {
    let mut fixture = SessionFixture::team(json!({}));
    for _ in 0..16 {
        fixture.sends("bot", "thinking.start", thinking(json!("all")));
        fixture.sends(
            "bot",
            "response.start",
            json!({"agent": "bot", "prompt_ref": "q1"}),
        );
    }
    assert_refusal(
        fixture.refused("bot", "thinking.start", thinking(json!("all"))),
        "RateLimited: too many open streams: at most 32",
    );
    assert_refusal(
        fixture.refused(
            "bot",
            "response.start",
            json!({"agent": "bot", "prompt_ref": "q1"}),
        ),
        "RateLimited: too many open streams: at most 32",
    );
    fixture.leaves("bot");
    fixture.joins(executor_announcement("bot", json!({})));
    assert_refusal(
        fixture.refused("bot", "thinking.chunk", json!({"text": "x"})),
        "InvalidState: you have not started this; send its start message first",
    );
}

#[test]
fn an_agent_reports_its_own_errors() {
    let mut fixture = SessionFixture::team(json!({}));
    let report =
        |code: &str| json!({"code": code, "message": "out of tokens", "recoverable": true});
    assert_lines(
        fixture.sends("bot", "error", report("AGENT_ERROR")),
        &["8 bot error AgentError out of tokens", "= accepted 8"],
    );
    assert_refusal(
        fixture.refused("dan", "error", report("AGENT_ERROR")),
        "Unauthorized: only agents may send this",
    );
}

#[test]
fn a_pause_stops_nothing_and_may_be_ignored() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.proposes("p1", "make");
    assert_lines(
        fixture.sends_with_id("i1", "dan", "interrupt.raise", raise("pause", None)),
        &["10 dan interrupt.raise pause all", "= accepted 10"],
    );
    assert_lines(
        fixture.sends("bot", "interrupt.acknowledge", done("i1", "ignored")),
        &["11 bot interrupt.acknowledge i1 ignored", "= accepted 11"],
    );
    assert_refusal(
        fixture.refused("bot", "interrupt.acknowledge", done("i1", "paused")),
        "InvalidState: no interrupt `i1` waits for you",
    );
    assert_eq!(fixture.session.open_gates().len(), 1);
}

#[test]
fn a_stop_withdraws_waiting_proposals_and_cancels_runs() {
    for urgency in ["stop", "emergency"] {
        let mut fixture = SessionFixture::team(json!({}));
        fixture.joins(executor_announcement("bee", json!({"shell_exec": true})));
        fixture.proposes("p1", "make");
        fixture.proposes("p2", "ls");
        fixture.sends_with_id("p3", "bee", "tool.propose", shell_proposal("bee", "make"));
        fixture.sends_with_id(
            "s1",
            "ann",
            "shell.exec",
            json!({"command": "rm -rf x", "executor": "bot"}),
        );
        let lines =
            fixture.sends_with_id("i1", "dan", "interrupt.raise", raise(urgency, Some("bot")));
        let lines: Vec<_> = lines
            .iter()
            .map(|line| line.replace(urgency, "URGENCY"))
            .collect();
        assert_lines(
            lines,
            &[
                "17 dan interrupt.raise URGENCY bot",
                "18 system gate.resolve p1 cancelled by cancel by=dan reason=wait",
                "19 system gate.resolve s1 cancelled by cancel by=dan reason=wait",
                "20 system tool.cancel p2 interrupted by dan",
                "= accepted 17",
            ],
        );
        assert_refusal(
            fixture.refused("bot", "interrupt.acknowledge", done("i1", "ignored")),
            "InvalidState: stop and emergency may not be ignored",
        );
        assert!(
            fixture
                .sends("bot", "interrupt.acknowledge", done("i1", "stopped"))
                .len()
                == 2
        );
        let lines = fixture.sends_with_id("i2", "cat", "interrupt.raise", raise(urgency, None));
        assert!(
            lines
                .iter()
                .any(|line| line.contains("gate.resolve p3 cancelled")),
            "{lines:?}"
        );
    }
}

#[test]
fn interrupts_are_raised_and_acknowledged_by_those_who_may() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_refusal(
        fixture.refused("eve", "interrupt.raise", raise("stop", None)),
        "Unauthorized: you need the capability `interrupt`; ask an admin for a role that has it",
    );
    assert_refusal(
        fixture.refused("dan", "interrupt.raise", raise("stop", Some("ann"))),
        "ParticipantNotFound: there is no participant `ann` in this session",
    );
    assert_refusal(
        fixture.refused("dan", "interrupt.raise", raise("stop", Some("zoe"))),
        "ParticipantNotFound: there is no participant `zoe` in this session",
    );
    fixture.joins(executor_announcement("bee", json!({})));
    fixture.sends_with_id("i1", "dan", "interrupt.raise", raise("pause", Some("bee")));
    assert_refusal(
        fixture.refused("bot", "interrupt.acknowledge", done("i1", "paused")),
        "InvalidState: no interrupt `i1` waits for you",
    );
    assert_refusal(
        fixture.refused("bee", "interrupt.acknowledge", done("i1", "paused")),
        "Unauthorized: `by` is `bot`, but you are `bee`; name yourself",
    );
    assert_refusal(
        fixture.refused(
            "dan",
            "interrupt.acknowledge",
            json!({"interrupt": "i1", "by": "dan", "action_taken": "paused"}),
        ),
        "Unauthorized: only agents may send this",
    );
    fixture.leaves("bee");
    fixture.joins(executor_announcement("bee", json!({})));
    assert_refusal(
        fixture.refused(
            "bee",
            "interrupt.acknowledge",
            json!({"interrupt": "i1", "by": "bee", "action_taken": "paused"}),
        ),
        "InvalidState: no interrupt `i1` waits for you",
    );
}

#[test]
fn an_interrupt_without_a_target_agent_awaits_no_acknowledgement() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.leaves("bot");
    assert_lines(
        fixture.sends_with_id("i1", "dan", "interrupt.raise", raise("stop", None)),
        &["9 dan interrupt.raise stop all", "= accepted 9"],
    );
    fixture.joins(executor_announcement("bot", json!({})));
    assert_refusal(
        fixture.refused("bot", "interrupt.acknowledge", done("i1", "stopped")),
        "InvalidState: no interrupt `i1` waits for you",
    );
}

#[test]
fn too_many_interrupts_drop_the_oldest() {
    let mut fixture = SessionFixture::team(json!({}));
    for number in (0..257).rev() {
        fixture.sends_with_id(
            &format!("i{number:03}"),
            "dan",
            "interrupt.raise",
            raise("pause", None),
        );
    }
    assert_refusal(
        fixture.refused("bot", "interrupt.acknowledge", done("i256", "paused")),
        "InvalidState: no interrupt `i256` waits for you",
    );
    assert_eq!(
        fixture
            .sends("bot", "interrupt.acknowledge", done("i000", "paused"))
            .len(),
        2
    );
}
