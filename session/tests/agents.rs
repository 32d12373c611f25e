//! Prompts, thinking, answers and interrupts.

mod kit;
use kit::*;
use pvp_session::Said;
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
fn a_prompt_goes_to_an_agent_that_is_there() {
    let mut room = Room::team(json!({}));
    told(
        room.says_as("q1", "dan", "prompt.submit", prompt("bot")),
        &["8 dan prompt.submit to bot do it", "= accepted 8"],
    );
    told(
        room.says(
            "ann",
            "prompt.amend",
            json!({"original_prompt": "q1", "amendment": "more", "reason": "r"}),
        ),
        &["9 ann prompt.amend q1 more", "= accepted 9"],
    );
    says_no(
        room.refused(
            "dan",
            "prompt.amend",
            json!({"original_prompt": "q9", "amendment": "more", "reason": "r"}),
        ),
        "InvalidState: there is no recent prompt `q9`",
    );
    says_no(
        room.refused("dan", "prompt.submit", prompt("ann")),
        "ParticipantNotFound: there is no participant `ann` in this session",
    );
    says_no(
        room.refused("dan", "prompt.submit", prompt("zoe")),
        "ParticipantNotFound: there is no participant `zoe` in this session",
    );
    says_no(
        room.refused("bob", "prompt.submit", prompt("bot")),
        "Unauthorized: you need the capability `prompt`; ask an admin for a role that has it",
    );
    room.leaves("bot");
    says_no(
        room.refused("dan", "prompt.submit", prompt("bot")),
        "ParticipantNotFound: there is no participant `bot` in this session",
    );
}

#[test]
fn thinking_is_seen_by_whom_it_says_from_start_to_end() {
    let mut room = Room::team(json!({}));
    for (start, visible_to) in [
        ("t1", json!("all")),
        ("t2", json!("approvers_only")),
        ("t3", json!(["dan", "eve"])),
    ] {
        let mut lines = room.says_as(start, "bot", "thinking.start", thinking(visible_to));
        lines.extend(room.says("bot", "thinking.chunk", json!({"text": "hm"})));
        lines.extend(room.says("bot", "thinking.end", json!({"summary": "so"})));
        match start {
            "t1" => told(
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
            "t2" => told(
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
            _ => told(
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
    says_no(
        room.refused("bot", "thinking.chunk", json!({"text": "hm"})),
        "InvalidState: nothing of yours is open here; send its start first",
    );
}

#[test]
fn a_chunk_belongs_to_the_stream_it_names_or_else_to_the_latest() {
    let mut room = Room::team(json!({}));
    room.says_as("t2", "bot", "thinking.start", thinking(json!(["dan"])));
    room.says_as("t1", "bot", "thinking.start", thinking(json!("all")));
    told(
        room.says("bot", "thinking.chunk", json!({"text": "latest"})),
        &["10 bot thinking.chunk latest", "= accepted 10"],
    );
    let mut named = Said::new(
        id("c1"),
        message("thinking.chunk", &json!({"text": "named"})),
    );
    named.reference = Some(id("t2"));
    let outcome = room.say("bot", named.clone());
    let lines = room.lines(&outcome);
    told(
        lines,
        &[
            "11 bot thinking.chunk named | only [bot,dan]",
            "= accepted 11",
        ],
    );
    named.id = id("c2");
    named.reference = Some(id("t9"));
    let outcome = room.say("bot", named);
    let lines = room.lines(&outcome);
    told(
        lines,
        &["= refused InvalidState: nothing of yours is open here; send its start first"],
    );
    room.joins(executor("bee", json!({})));
    says_no(
        room.refused("bee", "thinking.chunk", json!({"text": "mine?"})),
        "InvalidState: nothing of yours is open here; send its start first",
    );
    says_no(
        room.refused("bot", "response.chunk", json!({"text": "x"})),
        "InvalidState: nothing of yours is open here; send its start first",
    );
}

#[test]
fn answers_are_for_everyone() {
    let mut room = Room::team(json!({}));
    told(
        room.says_as(
            "a1",
            "bot",
            "response.start",
            json!({"agent": "bot", "prompt_ref": "q1"}),
        ),
        &["8 bot response.start to q1", "= accepted 8"],
    );
    told(
        room.says("bot", "response.chunk", json!({"text": "hello"})),
        &["9 bot response.chunk hello", "= accepted 9"],
    );
    told(
        room.says("bot", "response.end", json!({"finish_reason": "complete"})),
        &["10 bot response.end complete", "= accepted 10"],
    );
    says_no(
        room.refused("bot", "response.end", json!({"finish_reason": "complete"})),
        "InvalidState: nothing of yours is open here; send its start first",
    );
    says_no(
        room.refused(
            "dan",
            "response.start",
            json!({"agent": "dan", "prompt_ref": "q1"}),
        ),
        "Unauthorized: only an agent may say this",
    );
    says_no(
        room.refused(
            "bot",
            "response.start",
            json!({"agent": "bee", "prompt_ref": "q1"}),
        ),
        "Unauthorized: you are `bot` here; `agent` may not say `bee`",
    );
    says_no(
        room.refused(
            "bot",
            "thinking.start",
            json!({"agent": "bee", "prompt_ref": "q1", "visible_to": "all"}),
        ),
        "Unauthorized: you are `bot` here; `agent` may not say `bee`",
    );
    let crowd: Vec<_> = (0..201).map(|number| format!("p{number}")).collect();
    says_no(
        room.refused("bot", "thinking.start", thinking(json!(crowd))),
        "InvalidMessage: `visible_to` names at most 200 people",
    );
}

#[test]
fn an_agent_has_only_so_many_streams_and_leaving_ends_them() {
    let mut room = Room::team(json!({}));
    for _ in 0..16 {
        room.says("bot", "thinking.start", thinking(json!("all")));
        room.says(
            "bot",
            "response.start",
            json!({"agent": "bot", "prompt_ref": "q1"}),
        );
    }
    says_no(
        room.refused("bot", "thinking.start", thinking(json!("all"))),
        "RateLimited: too many open streams: at most 32",
    );
    says_no(
        room.refused(
            "bot",
            "response.start",
            json!({"agent": "bot", "prompt_ref": "q1"}),
        ),
        "RateLimited: too many open streams: at most 32",
    );
    room.leaves("bot");
    room.joins(executor("bot", json!({})));
    says_no(
        room.refused("bot", "thinking.chunk", json!({"text": "x"})),
        "InvalidState: nothing of yours is open here; send its start first",
    );
}

#[test]
fn an_agent_reports_its_own_errors_and_no_others() {
    let mut room = Room::team(json!({}));
    let report =
        |code: &str| json!({"code": code, "message": "out of tokens", "recoverable": true});
    told(
        room.says("bot", "error", report("AGENT_ERROR")),
        &["8 bot error AgentError out of tokens", "= accepted 8"],
    );
    says_no(
        room.refused("bot", "error", report("UNAUTHORIZED")),
        "InvalidMessage: a client's `error` has the code AGENT_ERROR",
    );
    says_no(
        room.refused("dan", "error", report("AGENT_ERROR")),
        "Unauthorized: only an agent may say this",
    );
}

#[test]
fn a_pause_stops_nothing_and_may_be_ignored() {
    let mut room = Room::team(json!({}));
    room.proposes("p1", "make");
    told(
        room.says_as("i1", "dan", "interrupt.raise", raise("pause", None)),
        &["10 dan interrupt.raise pause all", "= accepted 10"],
    );
    told(
        room.says("bot", "interrupt.acknowledge", done("i1", "ignored")),
        &["11 bot interrupt.acknowledge i1 ignored", "= accepted 11"],
    );
    says_no(
        room.refused("bot", "interrupt.acknowledge", done("i1", "paused")),
        "InvalidState: no interrupt `i1` waits for you",
    );
    assert_eq!(room.session.open_gates().len(), 1);
}

#[test]
fn a_stop_withdraws_what_waits_and_stops_what_runs() {
    for urgency in ["stop", "emergency"] {
        let mut room = Room::team(json!({}));
        room.joins(executor("bee", json!({"shell_exec": true})));
        room.proposes("p1", "make");
        room.proposes("p2", "ls");
        room.says_as("p3", "bee", "tool.propose", shell("bee", "make"));
        room.says_as(
            "s1",
            "ann",
            "shell.exec",
            json!({"command": "rm -rf x", "executor": "bot"}),
        );
        let lines = room.says_as("i1", "dan", "interrupt.raise", raise(urgency, Some("bot")));
        let lines: Vec<_> = lines
            .iter()
            .map(|line| line.replace(urgency, "URGENCY"))
            .collect();
        told(
            lines,
            &[
                "17 dan interrupt.raise URGENCY bot",
                "18 system gate.resolve p1 cancelled by cancel by=dan reason=wait",
                "19 system gate.resolve s1 cancelled by cancel by=dan reason=wait",
                "20 system tool.cancel p2 interrupted by dan",
                "= accepted 17",
            ],
        );
        says_no(
            room.refused("bot", "interrupt.acknowledge", done("i1", "ignored")),
            "InvalidState: stop and emergency may not be ignored",
        );
        assert!(
            room.says("bot", "interrupt.acknowledge", done("i1", "stopped"))
                .len()
                == 2
        );
        let lines = room.says_as("i2", "cat", "interrupt.raise", raise(urgency, None));
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
    let mut room = Room::team(json!({}));
    says_no(
        room.refused("eve", "interrupt.raise", raise("stop", None)),
        "Unauthorized: you need the capability `interrupt`; ask an admin for a role that has it",
    );
    says_no(
        room.refused("dan", "interrupt.raise", raise("stop", Some("ann"))),
        "ParticipantNotFound: there is no participant `ann` in this session",
    );
    says_no(
        room.refused("dan", "interrupt.raise", raise("stop", Some("zoe"))),
        "ParticipantNotFound: there is no participant `zoe` in this session",
    );
    room.joins(executor("bee", json!({})));
    room.says_as("i1", "dan", "interrupt.raise", raise("pause", Some("bee")));
    says_no(
        room.refused("bot", "interrupt.acknowledge", done("i1", "paused")),
        "InvalidState: no interrupt `i1` waits for you",
    );
    says_no(
        room.refused("bee", "interrupt.acknowledge", done("i1", "paused")),
        "Unauthorized: you are `bee` here; `by` may not say `bot`",
    );
    says_no(
        room.refused(
            "dan",
            "interrupt.acknowledge",
            json!({"interrupt": "i1", "by": "dan", "action_taken": "paused"}),
        ),
        "Unauthorized: only an agent may say this",
    );
    room.leaves("bee");
    room.joins(executor("bee", json!({})));
    says_no(
        room.refused(
            "bee",
            "interrupt.acknowledge",
            json!({"interrupt": "i1", "by": "bee", "action_taken": "paused"}),
        ),
        "InvalidState: no interrupt `i1` waits for you",
    );
}

#[test]
fn an_interrupt_that_nobody_hears_is_not_waited_for() {
    let mut room = Room::team(json!({}));
    room.leaves("bot");
    told(
        room.says_as("i1", "dan", "interrupt.raise", raise("stop", None)),
        &["9 dan interrupt.raise stop all", "= accepted 9"],
    );
    room.joins(executor("bot", json!({})));
    says_no(
        room.refused("bot", "interrupt.acknowledge", done("i1", "stopped")),
        "InvalidState: no interrupt `i1` waits for you",
    );
}

#[test]
fn of_too_many_interrupts_the_oldest_is_forgotten() {
    let mut room = Room::team(json!({}));
    for number in (0..257).rev() {
        room.says_as(
            &format!("i{number:03}"),
            "dan",
            "interrupt.raise",
            raise("pause", None),
        );
    }
    says_no(
        room.refused("bot", "interrupt.acknowledge", done("i256", "paused")),
        "InvalidState: no interrupt `i256` waits for you",
    );
    assert_eq!(
        room.says("bot", "interrupt.acknowledge", done("i000", "paused"))
            .len(),
        2
    );
}
