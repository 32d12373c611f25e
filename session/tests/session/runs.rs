//! Tests of runs: output, results, cancelling and keystrokes.

use crate::support::*;
use pvp_protocol::ExecutionLimits;
use pvp_session::{OutputStreams, SessionSettings};
use serde_json::{Value, json};

fn running(settings: SessionSettings) -> SessionFixture {
    let mut fixture = SessionFixture::team_with_settings(settings, json!({}));
    fixture.proposes("p1", "ls");
    fixture
}

fn output(stream: &str, offset: Option<u64>, text: &str, complete: bool) -> Value {
    let mut output =
        json!({"tool_proposal": "p1", "stream": stream, "text": text, "complete": complete});
    if let Some(offset) = offset {
        output["offset"] = json!(offset);
    }
    output
}

fn result(stdout: &str, stderr: &str) -> Value {
    json!({"tool_proposal": "p1", "success": true, "duration_ms": 5, "result": {"exitCode": 0, "stdout": stdout, "stderr": stderr}})
}

fn open() -> SessionSettings {
    SessionSettings {
        open_mode: true,
        ..SessionSettings::default()
    }
}

#[test]
fn output_is_recorded_in_order_and_a_result_closes_the_run() {
    let mut fixture = running(SessionSettings::default());
    assert_lines(
        fixture.sends("bot", "tool.output", output("stdout", None, "one ", false)),
        &["10 bot tool.output p1 stdout@0 \"one \"", "= accepted 10"],
    );
    assert_lines(
        fixture.sends(
            "bot",
            "tool.output",
            output("stdout", Some(4), "twö", false),
        ),
        &["11 bot tool.output p1 stdout@4 \"twö\"", "= accepted 11"],
    );
    assert_lines(
        fixture.sends(
            "bot",
            "tool.output",
            output("stderr", Some(0), "oops", true),
        ),
        &[
            "12 bot tool.output p1 stderr@0 \"oops\" complete",
            "= accepted 12",
        ],
    );
    assert_lines(
        fixture.sends("bot", "tool.output", output("stdout", Some(8), "", true)),
        &[
            "13 bot tool.output p1 stdout@8 \"\" complete",
            "= accepted 13",
        ],
    );
    let mut claim = result("one twö", "oops");
    claim["outcome"] = json!("unknown");
    assert_lines(
        fixture.sends("bot", "tool.result", claim),
        &[
            "14 bot tool.result p1 ok known Some(0) \"one twö\" \"oops\"",
            "= accepted 14",
        ],
    );
    assert_eq!(fixture.session.running().count(), 0);
    let run = fixture.session.find_proposal(&message_id("p1")).unwrap();
    assert_eq!((run.seqs.proposed, run.closed.unwrap().1), (8, 14));
    let both = OutputStreams(None);
    assert_eq!(run.output.total_bytes(both), 12);
    assert_eq!(run.output.total_lines(both), 2);
    assert_eq!(fixture.session.find_proposal(&message_id("p9")), None);
    assert_refusal(
        fixture.refused("bot", "tool.output", output("stdout", None, "more", false)),
        "InvalidState: command `p1` has ended already",
    );
    assert_refusal(
        fixture.refused("bot", "tool.result", result("", "")),
        "InvalidState: command `p1` has ended already",
    );
    assert_refusal(
        fixture.refused("bob", "tool.cancel", json!({"tool_proposal": "p1"})),
        "InvalidState: command `p1` has ended already",
    );
}

#[test]
fn output_sent_again_is_acknowledged_and_gaps_and_overlaps_are_refused() {
    let mut fixture = running(SessionSettings::default());
    fixture.sends(
        "bot",
        "tool.output",
        output("stdout", Some(0), "0123456789", false),
    );
    assert_lines(
        fixture.sends(
            "bot",
            "tool.output",
            output("stdout", Some(0), "01234", false),
        ),
        &["= duplicate 10"],
    );
    assert_lines(
        fixture.sends(
            "bot",
            "tool.output",
            output("stdout", Some(5), "56789", false),
        ),
        &["= duplicate 10"],
    );
    assert_lines(
        fixture.sends("bot", "tool.output", output("stdout", None, "", false)),
        &["= duplicate 10"],
    );
    assert_refusal(
        fixture.refused("bot", "tool.output", output("stdout", Some(12), "x", false)),
        "InvalidState: output continues at byte 10, not at 12",
    );
    assert_refusal(
        fixture.refused(
            "bot",
            "tool.output",
            output("stdout", Some(8), "89ab", false),
        ),
        "InvalidState: output continues at byte 10, not at 8",
    );
    assert_refusal(
        fixture.refused("bot", "tool.output", output("stdout", Some(8), "89", true)),
        "InvalidState: output continues at byte 10, not at 8",
    );
    assert_refusal(
        fixture.refused(
            "bot",
            "tool.output",
            output("stdout", Some(u64::MAX), "x", false),
        ),
        "InvalidState: output continues at byte 10, not at 18446744073709551615",
    );
    fixture.sends("bot", "tool.output", output("stdout", Some(10), "", true));
    assert_lines(
        fixture.sends("bot", "tool.output", output("stdout", Some(10), "", true)),
        &["= duplicate 11"],
    );
    assert_lines(
        fixture.sends("bot", "tool.output", output("stdout", Some(3), "3", false)),
        &["= duplicate 11"],
    );
    assert_refusal(
        fixture.refused("bot", "tool.output", output("stdout", Some(10), "x", false)),
        "InvalidState: this stream is complete",
    );
    assert_lines(
        fixture.sends(
            "bot",
            "tool.output",
            output("stderr", None, "still open", false),
        ),
        &[
            "12 bot tool.output p1 stderr@0 \"still open\"",
            "= accepted 12",
        ],
    );
}

#[test]
fn only_the_grants_executor_reports_on_a_run() {
    let mut fixture = running(SessionSettings::default());
    fixture.joins(executor_announcement("bee", json!({})));
    fixture.proposes("p2", "make");
    for who in ["bee", "ann", "dan"] {
        assert_refusal(
            fixture.refused(who, "tool.output", output("stdout", None, "x", false)),
            "Unauthorized: only `bot`, which runs this command, may report on it",
        );
        assert_refusal(
            fixture.refused(who, "tool.result", result("", "")),
            "Unauthorized: only `bot`, which runs this command, may report on it",
        );
    }
    assert_refusal(
        fixture.refused(
            "bot",
            "tool.result",
            json!({"tool_proposal": "p2", "success": true, "duration_ms": 0}),
        ),
        "InvalidState: `p2` is not running",
    );
    assert_refusal(
        fixture.refused(
            "bot",
            "tool.result",
            json!({"tool_proposal": "p9", "success": true, "duration_ms": 0}),
        ),
        "InvalidState: there is no proposal `p9`",
    );
    let gate = fixture.gate_id("p2");
    assert_refusal(
        fixture
            .refused(
                "bot",
                "tool.result",
                json!({"tool_proposal": gate, "success": true, "duration_ms": 0}),
            )
            .replace(&gate, "gate"),
        "InvalidState: there is no proposal `gate`",
    );
}

#[test]
fn the_output_limit_is_for_both_streams_together() {
    let settings = SessionSettings {
        read_limits: ExecutionLimits {
            timeout_ms: 1000,
            output_bytes: 10,
        },
        ..SessionSettings::default()
    };
    let mut fixture = running(settings);
    fixture.sends(
        "bot",
        "tool.output",
        output("stdout", None, "123456", false),
    );
    assert_lines(
        fixture.sends("bot", "tool.output", output("stderr", None, "1234", false)),
        &["11 bot tool.output p1 stderr@0 \"1234\"", "= accepted 11"],
    );
    assert_refusal(
        fixture.refused("bot", "tool.output", output("stdout", None, "x", false)),
        "InvalidState: the output budget of 10 bytes is spent",
    );
    assert_lines(
        fixture.sends("bot", "tool.output", output("stdout", None, "", true)),
        &[
            "12 bot tool.output p1 stdout@6 \"\" complete",
            "= accepted 12",
        ],
    );
    assert_lines(
        fixture.sends("bot", "tool.result", result("123456", "1234")),
        &[
            "13 bot tool.result p1 ok known Some(0) \"123456\" \"1234\"",
            "= accepted 13",
        ],
    );
}

#[test]
fn a_result_repeats_only_head_and_tail() {
    let mut fixture = running(SessionSettings::default());
    let long = "é".repeat(40_000);
    assert_lines(
        fixture.sends("bot", "tool.result", result(&long, "short")),
        &[
            "10 bot tool.result p1 ok known Some(0) \"éééééééé… 65590 bytes\" \"short\"",
            "= accepted 10",
        ],
    );
    let body = String::from_utf8(fixture.log.last().unwrap().body()).unwrap();
    assert!(
        body.contains("[… 14464 bytes cut; read them by `output_ref` …]"),
        "{}",
        body.len()
    );
    assert!(body.contains(r#""output_ref":"p1""#));
}

#[test]
fn with_open_settings_output_that_was_not_streamed_is_appended() {
    let mut fixture = running(open());
    fixture.sends("bot", "tool.output", output("stdout", None, "0123", false));
    assert_lines(
        fixture.sends("bot", "tool.result", result("0123456789", "err")),
        &[
            "11 bot tool.output p1 stdout@4 \"456789\" complete",
            "12 bot tool.output p1 stderr@0 \"err\" complete",
            "13 bot tool.result p1 ok known Some(0) \"0123456789\" \"err\"",
            "= accepted 13",
        ],
    );
}

#[test]
fn with_open_settings_a_complete_stream_stays_complete() {
    let mut fixture = running(open());
    fixture.sends("bot", "tool.output", output("stdout", None, "0123", true));
    assert_lines(
        fixture.sends("bot", "tool.result", result("0123456789", "")),
        &[
            "11 bot tool.result p1 ok known Some(0) \"0123456789\" \"\"",
            "= accepted 11",
        ],
    );
}

#[test]
fn with_open_settings_large_results_are_split_into_entries() {
    let mut fixture = running(open());
    let long = "x".repeat(300_000);
    assert_lines(
        fixture.sends("bot", "tool.result", result(&long, "é")),
        &[
            "10 bot tool.output p1 stdout@0 \"xxxxxxxx… 262144 bytes\"",
            "11 bot tool.output p1 stdout@262144 \"xxxxxxxx… 37856 bytes\" complete",
            "12 bot tool.output p1 stderr@0 \"é\" complete",
            "13 bot tool.result p1 ok known Some(0) \"xxxxxxxx… 65591 bytes\" \"é\"",
            "= accepted 13",
        ],
    );
}

#[test]
fn an_open_result_that_is_too_long_is_cut_between_characters() {
    let mut fixture = running(open());
    let almost = "x".repeat(24 * 1024 * 1024 - 1);
    let decision = fixture.apply_unchecked(pvp_session::Input::Submit {
        by: participant_id("bot"),
        ceiling: None,
        submitted: pvp_session::SubmittedMessage::new(
            message_id("r1"),
            client_message("tool.result", &result(&almost, "é")),
        ),
    });
    let lines = fixture.lines(&decision);
    assert_eq!(lines.len(), 96 + 2);
    assert_lines(
        lines[95..].to_vec(),
        &[
            "105 bot tool.output p1 stdout@24903680 \"xxxxxxxx… 262143 bytes\" complete",
            "106 bot tool.result p1 ok known Some(0) \"xxxxxxxx… 65593 bytes\" \"é\"",
            "= accepted 106",
        ],
    );
}

#[test]
fn with_open_settings_a_result_that_disagrees_with_the_stream_adds_nothing() {
    let mut fixture = running(open());
    fixture.sends("bot", "tool.output", output("stdout", None, "é", false));
    assert_lines(
        fixture.sends("bot", "tool.result", result("e", "")),
        &[
            "11 bot tool.result p1 ok known Some(0) \"e\" \"\"",
            "= accepted 11",
        ],
    );
    let mut fixture = running(open());
    fixture.sends("bot", "tool.output", output("stdout", None, "e", false));
    assert_lines(
        fixture.sends("bot", "tool.result", result("éa", "")),
        &[
            "11 bot tool.result p1 ok known Some(0) \"éa\" \"\"",
            "= accepted 11",
        ],
    );
}

#[test]
fn a_cancelled_run_still_reports_its_result() {
    let mut fixture = running(SessionSettings::default());
    assert_refusal(
        fixture.refused("eve", "tool.cancel", json!({"tool_proposal": "p1"})),
        "Unauthorized: you need the capability `interrupt`; ask an admin for a role that has it",
    );
    assert_lines(
        fixture.sends(
            "dan",
            "tool.cancel",
            json!({"tool_proposal": "p1", "reason": "too long"}),
        ),
        &["10 dan tool.cancel p1 too long", "= accepted 10"],
    );
    assert!(
        fixture
            .session
            .running()
            .all(|(_, execution)| execution.cancelled)
    );
    assert_lines(
        fixture.sends(
            "bot",
            "tool.output",
            output("stdout", None, "last words", false),
        ),
        &[
            "11 bot tool.output p1 stdout@0 \"last words\"",
            "= accepted 11",
        ],
    );
    assert_lines(
        fixture.sends("bot", "tool.result", result("", "")),
        &[
            "12 bot tool.result p1 ok known Some(0) \"\" \"\"",
            "= accepted 12",
        ],
    );
}

#[test]
fn an_executor_that_lost_a_run_reports_its_outcome_as_unknown() {
    let mut fixture = running(SessionSettings::default());
    let lost = json!({
        "tool_proposal": "p1", "success": false, "duration_ms": 0,
        "error": "the executor was restarted", "outcome": "unknown",
    });
    assert_lines(
        fixture.sends("bot", "tool.result", lost),
        &[
            "10 bot tool.result p1 failed unknown the executor was restarted",
            "= accepted 10",
        ],
    );
}

#[test]
fn a_run_whose_executor_is_away_is_closed_as_unknown_when_cancelled() {
    let mut fixture = running(SessionSettings::default());
    fixture.times_out("bot");
    fixture.advance(7);
    assert_lines(
        fixture.sends("dan", "tool.cancel", json!({"tool_proposal": "p1"})),
        &[
            "11 dan tool.cancel p1",
            "12 system tool.result p1 failed unknown outcome unknown: cancelled while its executor was away",
            "= accepted 11",
        ],
    );
    assert_refusal(
        fixture.refused("bot", "tool.result", result("", "")),
        "InvalidState: command `p1` has ended already",
    );
}

#[test]
fn a_run_without_a_result_is_closed_as_unknown_after_its_deadline() {
    let mut fixture = running(SessionSettings::default());
    assert_eq!(fixture.session.next_deadline(), Some(at(150)));
    assert_lines(fixture.advances_and_ticks(149), &["= accepted"]);
    assert_lines(
        fixture.advances_and_ticks(1),
        &[
            "10 system tool.result p1 failed unknown outcome unknown: no result came within its time limit",
            "= accepted",
        ],
    );
    assert_eq!(fixture.session.next_deadline(), None);
}

#[test]
fn a_background_run_has_no_deadline() {
    let mut fixture = SessionFixture::team(json!({}));
    let mut serve = shell_proposal("bot", "");
    serve["arguments"] = json!({"full_command": "make serve", "mode": "background"});
    fixture.sends_with_id("p1", "bot", "tool.propose", serve);
    fixture.approves("bob", "p1");
    assert_eq!(fixture.session.next_deadline(), None);
    assert_lines(fixture.advances_and_ticks(1_000_000), &["= accepted"]);
    assert_lines(
        fixture.sends("dan", "tool.cancel", json!({"tool_proposal": "p1"})),
        &["13 dan tool.cancel p1", "= accepted 13"],
    );
}

#[test]
fn only_the_driver_may_type() {
    let mut fixture = SessionFixture::team(json!({}));
    let mut top = shell_proposal("bot", "");
    top["arguments"] = json!({"full_command": "top", "mode": "pty", "driver": "dan"});
    assert_lines(
        fixture.sends_with_id("p1", "bot", "tool.propose", top),
        &[
            "8 bot tool.propose `top` write",
            "9 system gate.request action_ref=p1 write quorum=any:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 8",
        ],
    );
    let keys = json!({"tool_proposal": "p1", "data": "q"});
    assert_refusal(
        fixture.refused("dan", "tool.input", keys.clone()),
        "InvalidState: `p1` is not running",
    );
    assert_lines(
        fixture.approves("bob", "p1"),
        &[
            "10 bob gate.approve p1",
            "11 system gate.resolve p1 approved by quorum approvals=[bob]",
            "12 system tool.execute p1 `top` on bot cleared_by=quorum approved_by=[bob] profile=none 0ms 67108864B until +60 driver=dan | nonce for bot",
            "= accepted 10",
        ],
    );
    assert_lines(
        fixture.sends("dan", "tool.input", keys.clone()),
        &[
            "13 dan tool.input {\"tool_proposal\":\"p1\",\"data\":\"q\"}",
            "= accepted 13",
        ],
    );
    assert_lines(
        fixture.sends(
            "dan",
            "tool.input",
            json!({"tool_proposal": "p1", "resize": {"columns": 80, "rows": 24}}),
        ),
        &[
            "14 dan tool.input {\"tool_proposal\":\"p1\",\"resize\":{\"columns\":80,\"rows\":24}}",
            "= accepted 14",
        ],
    );
    assert_refusal(
        fixture.refused("bob", "tool.input", keys.clone()),
        "Unauthorized: only `dan` may type into this command",
    );
    assert_refusal(
        fixture.refused("bot", "tool.input", keys.clone()),
        "Unauthorized: only `dan` may type into this command",
    );
    assert_refusal(
        fixture.refused("dan", "tool.input", json!({"tool_proposal": "p1"})),
        "InvalidMessage: `tool.input` needs `data` or `resize`",
    );
    assert_refusal(
        fixture.refused(
            "dan",
            "tool.input",
            json!({"tool_proposal": "p1", "data": "x".repeat(65_537)}),
        ),
        "InvalidMessage: `data` is at most 65536 bytes",
    );
    fixture.proposes("p2", "ls");
    assert_refusal(
        fixture.refused(
            "dan",
            "tool.input",
            json!({"tool_proposal": "p2", "data": "q"}),
        ),
        "InvalidState: this command takes no input",
    );
    fixture.sends("bot", "tool.result", result("", ""));
    assert_refusal(
        fixture.refused("dan", "tool.input", keys),
        "InvalidState: `p1` is not running",
    );
}

#[test]
fn an_interactive_command_is_always_gated_and_its_approver_drives_it() {
    let mut fixture = SessionFixture::team(json!({"trust_reads": true}));
    let mut list = shell_proposal("bot", "");
    list["arguments"] = json!({"full_command": "ls", "mode": "pty"});
    assert_lines(
        fixture.sends_with_id("p1", "bot", "tool.propose", list),
        &[
            "8 bot tool.propose `ls` write",
            "9 system gate.request action_ref=p1 write quorum=any:1 voters=[ann,bob,cat] deadline=+300 then reject",
            "= accepted 8",
        ],
    );
    fixture.approves("cat", "p1");
    assert_lines(
        fixture.sends(
            "cat",
            "tool.input",
            json!({"tool_proposal": "p1", "data": "q"}),
        ),
        &[
            "13 cat tool.input {\"tool_proposal\":\"p1\",\"data\":\"q\"}",
            "= accepted 13",
        ],
    );
}
