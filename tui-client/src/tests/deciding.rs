//! Tests of deciding gates by keys: what is sent, and what is not.

use serde_json::json;

use crate::app::{AppEffect, AppInput, Focus};
use crate::config::{NotifyWhen, TuiConfig};
use crate::harness::AppHarness;

/// The types of the sent messages.
fn sent_types(harness: &AppHarness) -> Vec<String> {
    let sent = harness.sent_messages();
    sent.iter()
        .map(|it| it["type"].as_str().unwrap().to_owned())
        .collect()
}

fn notice(harness: &AppHarness) -> String {
    harness
        .app
        .notice
        .as_ref()
        .map(|notice| notice.text.clone())
        .unwrap_or_default()
}

#[test]
fn an_approval_binds_to_what_was_on_the_screen() {
    let mut harness = AppHarness::new(80, 24);
    let (_, gate) = harness.open_gate("make", "write");
    harness.press(&["tab", "a"]);
    assert_eq!(
        harness.sent_messages(),
        [json!({ "type": "gate.approve", "payload": {
            "gate": gate, "approver": "ann", "digest": AppHarness::digest("make"),
        } })]
    );
}

#[test]
fn a_command_that_was_edited_since_it_was_drawn_is_not_approved() {
    let mut harness = AppHarness::new(80, 24);
    let (_, gate) = harness.open_gate("make", "write");
    harness.press(&["tab"]);
    harness.draw();
    let amend = json!({
        "gate": gate, "arguments": { "full_command": "make evil" }, "digest": AppHarness::digest("make"),
        "assessment": AppHarness::assessment("make evil", "write"),
    });
    harness.deliver("bob", "gate.amend", amend);
    // The key was pressed before the next frame.
    let key = crossterm::event::KeyEvent::from(crossterm::event::KeyCode::Char('a'));
    harness.input(AppInput::Key(key));
    assert_eq!(sent_types(&harness), [""; 0]);
    assert_eq!(notice(&harness), "the command changed just now; look again");
    harness.press(&["a"]);
    assert_eq!(
        harness.sent_messages()[0]["payload"]["digest"],
        json!(AppHarness::digest("make evil"))
    );
}

#[test]
fn a_gate_that_arrives_while_typing_takes_no_key_and_no_focus() {
    let mut harness = AppHarness::new(80, 24);
    harness.type_text("ar");
    harness.open_gate("rm -rf build", "destructive");
    harness.type_text("area PAxe");
    assert_eq!(harness.app.composer.editor.text(), "ararea PAxe");
    assert_eq!(
        (harness.app.focus, sent_types(&harness).len()),
        (Focus::Composer, 0)
    );
}

#[test]
fn a_decided_card_ignores_votes_and_the_next_does_not_take_its_place() {
    let mut harness = AppHarness::new(80, 24);
    let (proposal, gate) = harness.open_gate("make", "write");
    harness.press(&["tab"]);
    harness.open_gate("rm -rf build", "destructive");
    harness.resolve(&proposal, &gate, "approved", "bob");
    harness.press(&["a", "r", "e"]);
    assert_eq!(sent_types(&harness), [""; 0]);
    assert!(harness.app.dialog.is_none());
    assert!(
        harness.draw().contains("approved by bob"),
        "{}",
        harness.draw()
    );
    harness.press(&["down", "a"]);
    assert_eq!(
        harness.sent_messages()[0]["payload"]["digest"],
        json!(AppHarness::digest("rm -rf build"))
    );
}

#[test]
fn a_long_command_is_read_to_its_end_before_it_is_approved() {
    let mut harness = AppHarness::new(80, 24);
    let long: Vec<_> = (0..60)
        .map(|number| format!("echo line {number}"))
        .collect();
    harness.open_gate(&long.join("\n"), "write");
    harness.press(&["tab", "a"]);
    assert_eq!(sent_types(&harness), [""; 0]);
    assert_eq!(
        notice(&harness),
        "scroll to the end of the command first (space)"
    );
    let mut pages = 0;
    while !harness.draw().contains("echo line 59") {
        harness.press(&["space"]);
        pages += 1;
        assert!(pages < 20, "{}", harness.draw());
    }
    harness.press(&["a"]);
    assert_eq!(sent_types(&harness), ["gate.approve"]);
}

#[test]
fn a_rejection_needs_a_reason() {
    let mut harness = AppHarness::new(80, 24);
    let (_, gate) = harness.open_gate("make", "write");
    harness.press(&["tab", "r", "enter"]);
    assert_eq!(notice(&harness), "give a reason; the agent reads it");
    harness.type_text("no, later");
    harness.press(&["enter"]);
    assert_eq!(
        harness.sent_messages(),
        [json!({ "type": "gate.reject", "payload": {
            "gate": gate, "rejector": "ann", "reason": "no, later", "digest": AppHarness::digest("make"),
        } })]
    );
    assert!(harness.app.dialog.is_none());
}

#[test]
fn a_dialog_about_a_closed_gate_sends_nothing() {
    let mut harness = AppHarness::new(80, 24);
    let (proposal, gate) = harness.open_gate("make", "write");
    harness.press(&["tab", "r"]);
    harness.type_text("no");
    harness.resolve(&proposal, &gate, "approved", "bob");
    assert!(harness.draw().contains("decided in the meantime"));
    harness.press(&["enter"]);
    assert_eq!(sent_types(&harness), [""; 0]);
    assert_eq!(
        notice(&harness),
        "this one was decided in the meantime; esc closes this"
    );
}

#[test]
fn an_edit_sends_the_whole_new_command_and_what_it_replaces() {
    let mut harness = AppHarness::new(80, 24);
    let (_, gate) = harness.open_gate("make", "write");
    harness.press(&["tab", "e"]);
    harness.type_text(" test");
    harness.press(&["enter"]);
    assert_eq!(
        harness.sent_messages(),
        [json!({ "type": "gate.amend", "payload": {
            "gate": gate, "arguments": { "full_command": "make test" }, "digest": AppHarness::digest("make"),
        } })]
    );
}

#[test]
fn a_prefix_is_allowed_as_it_was_edited() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("npm run build", "write");
    harness.press(&["tab", "P", "ctrl+u"]);
    harness.type_text("npm run for 30m");
    harness.press(&["enter"]);
    let expires = harness.now.plus_seconds(1800);
    assert_eq!(
        harness.sent_messages(),
        [
            json!({ "type": "policy.allow", "payload": { "prefix": ["npm", "run"], "expires_at": expires } })
        ]
    );
}

#[test]
fn reading_below_a_directory_is_allowed_as_it_was_edited() {
    let mut harness = AppHarness::new(80, 24);
    let line = "cat /data/sets/x.csv";
    harness.open_gate(line, "write");
    harness.press(&["tab", "D"]);
    assert_eq!(
        notice(&harness),
        "allowing a directory would not let this command run"
    );
    let mut harness = AppHarness::new(80, 24);
    let mut propose = AppHarness::proposal_payload(line, "write");
    propose["assessment"]["needed_read_roots"] = json!(["/data/sets"]);
    harness.open_gate_for(propose, line, "write");
    harness.press(&["tab"]);
    assert!(harness.draw().contains("D allow reading"));
    harness.press(&["D"]);
    assert!(harness.draw().contains("/data/sets for 1h"));
    harness.press(&["ctrl+u"]);
    harness.type_text("data");
    harness.press(&["enter"]);
    assert_eq!(notice(&harness), "`data` is not an absolute path");
    harness.press(&["ctrl+u"]);
    harness.type_text("/data for 30m");
    harness.press(&["enter"]);
    let expires = harness.now.plus_seconds(1800);
    let allow = json!({ "read_root": "/data", "expires_at": expires });
    assert_eq!(
        harness.sent_messages(),
        [json!({ "type": "policy.allow", "payload": allow })]
    );
}

#[test]
fn the_preflight_list_approves_all_but_the_unmarked_and_the_changed() {
    let mut harness = AppHarness::new(80, 40);
    for command in ["make one", "make two", "make three", "make four"] {
        harness.open_gate(command, "write");
    }
    harness.press(&["tab", "A", "down", "space"]);
    let third = harness.app.view.gates[2].gate.to_string();
    let amend = json!({
        "gate": third, "arguments": { "full_command": "make evil" }, "digest": AppHarness::digest("make three"),
        "assessment": AppHarness::assessment("make evil", "write"),
    });
    harness.deliver("bob", "gate.amend", amend);
    harness.press(&["down", "down", "enter"]);
    let digests: Vec<_> = harness
        .sent_messages()
        .iter()
        .map(|it| it["payload"]["digest"].clone())
        .collect();
    assert_eq!(
        digests,
        [
            json!(AppHarness::digest("make one")),
            json!(AppHarness::digest("make four"))
        ]
    );
    assert_eq!(
        notice(&harness),
        "approved 2 commands; 1 changed or closed in the meantime"
    );
}

#[test]
fn a_preflight_list_that_does_not_fit_must_be_read_to_its_end() {
    let mut harness = AppHarness::new(80, 24);
    for number in 0..30 {
        harness.open_gate(&format!("make {number}"), "write");
    }
    harness.press(&["tab", "A", "enter"]);
    assert_eq!(sent_types(&harness), [""; 0]);
    for _ in 0..29 {
        harness.press(&["down"]);
    }
    harness.press(&["enter"]);
    assert_eq!(sent_types(&harness).len(), 30);
}

#[test]
fn a_person_who_may_not_vote_sees_the_reason() {
    let mut harness = AppHarness::before_welcome(TuiConfig::default(), 80, 24);
    harness.welcome(&["driver"]);
    harness.open_gate("make", "write");
    harness.press(&["tab", "a", "r"]);
    assert_eq!(sent_types(&harness), [""; 0]);
    assert_eq!(notice(&harness), "your roles do not include approving");
    assert!(harness.app.dialog.is_none());
}

#[test]
fn a_refused_vote_is_reported() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("make", "write");
    harness.press(&["tab", "a"]);
    assert!(harness.draw().contains("sending your approval"));
    harness.reply_to_last(Err("the gate has closed"));
    assert_eq!(
        notice(&harness),
        "your vote was refused: the gate has closed"
    );
    assert!(!harness.draw().contains("under way"));
}

#[test]
fn an_unfocused_person_is_notified_once_for_each_gate() {
    let notifications = |harness: &AppHarness| {
        harness
            .effects
            .iter()
            .filter(|it| **it == AppEffect::Notify)
            .count()
    };
    let mut harness = AppHarness::new(80, 24);
    harness.input(AppInput::FocusChanged(false));
    harness.open_gate("make", "write");
    harness.deliver(
        "bob",
        "presence.update",
        json!({ "participant": "bob", "status": "active", "last_active": harness.now }),
    );
    assert_eq!(notifications(&harness), 1);
    harness.input(AppInput::FocusChanged(true));
    harness.open_gate("make again", "write");
    assert_eq!(notifications(&harness), 1);
    let never = TuiConfig {
        notify_when: NotifyWhen::Never,
        ..TuiConfig::default()
    };
    let mut harness = AppHarness::with_config(never, 80, 24);
    harness.open_gate("make", "write");
    assert_eq!(notifications(&harness), 0);
}

#[test]
fn a_paste_never_votes() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("make", "write");
    harness.press(&["tab"]);
    harness.input(AppInput::Paste("aA\nr".to_owned()));
    assert_eq!(sent_types(&harness), [""; 0]);
    assert_eq!(harness.app.composer.editor.text(), "aA\nr");
    assert_eq!(harness.app.focus, Focus::Composer);
}

#[test]
fn no_line_of_a_command_looks_like_a_line_of_the_card() {
    let mut harness = AppHarness::new(80, 30);
    let forged = "rm -rf ~\nverdict  READ, safe risk: reads nothing [ok]\nyou      you may vote";
    harness.open_gate(forged, "destructive");
    harness.press(&["tab"]);
    let text = harness.draw();
    let verdicts: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("│ verdict"))
        .collect();
    assert_eq!(verdicts.len(), 1, "{text}");
    assert!(verdicts[0].contains("DESTRUCTIVE"), "{text}");
    assert!(text.contains("│ ┃ verdict  READ"), "{text}");
}

#[test]
fn gates_open_before_joining_do_not_notify_but_gates_opened_while_disconnected_do() {
    let mut harness = AppHarness::before_welcome(TuiConfig::default(), 80, 24);
    harness.welcome_with_gates(&["admin"], &["make"]);
    assert_eq!(harness.app.view.awaiting_my_vote().count(), 1);
    assert_eq!(harness.effects, []);
    harness.input(AppInput::Disconnected {
        reason: "gone".to_owned(),
    });
    harness.input(AppInput::Connected { resumed: true });
    harness.welcome_with_gates(&["admin"], &["make", "make again"]);
    assert_eq!(harness.effects, [AppEffect::Notify]);
}

#[test]
fn a_reset_view_takes_the_focus_from_the_card() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("make", "write");
    harness.press(&["tab"]);
    harness.input(AppInput::Connected { resumed: false });
    harness.welcome(&["driver", "admin"]);
    harness.open_gate("rm -rf build", "destructive");
    harness.type_text("a");
    assert_eq!(sent_types(&harness), [""; 0]);
    assert_eq!(harness.app.composer.editor.text(), "a");
}

#[test]
fn a_selected_card_that_the_view_has_dropped_is_not_replaced_by_another() {
    let mut harness = AppHarness::new(80, 24);
    let (proposal, gate) = harness.open_gate("make", "write");
    harness.press(&["tab"]);
    harness.resolve(&proposal, &gate, "approved", "bob");
    for number in 0..120 {
        let (proposal, gate) = harness.open_gate(&format!("make {number}"), "write");
        harness.resolve(&proposal, &gate, "approved", "bob");
    }
    harness.open_gate("rm -rf build", "destructive");
    harness.press(&["a", "r"]);
    assert_eq!(sent_types(&harness), [""; 0]);
    assert!(harness.app.dialog.is_none());
}

#[test]
fn a_second_key_is_not_a_second_vote() {
    let mut harness = AppHarness::new(80, 24);
    let (_, gate) = harness.open_gate("make", "write");
    harness.press(&["tab", "a", "a"]);
    assert_eq!(sent_types(&harness), ["gate.approve"]);
    assert_eq!(notice(&harness), "sending your approval");
    harness.reply_to_last(Ok("vote-1"));
    let vote = json!({ "gate": gate, "approver": "ann", "digest": AppHarness::digest("make") });
    harness.deliver("ann", "gate.approve", vote);
    harness.press(&["a"]);
    assert_eq!(sent_types(&harness), ["gate.approve"]);
    assert_eq!(notice(&harness), "you had approved this already");
    // Someone who approved may still reject.
    harness.press(&["r"]);
    assert!(harness.app.dialog.is_some());
}

#[test]
fn the_card_shows_its_keys_wherever_the_focus_is() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("npm run build", "write");
    let hints = "a approve  r reject  e edit  P prefix  A all  x explain";
    assert!(harness.draw().contains(&format!("tab, then {hints}")));
    harness.type_text("half a prompt");
    assert!(harness.draw().contains(&format!("ctrl+g, then {hints}")));
    harness.press(&["ctrl+g"]);
    let shown = harness.draw();
    assert!(
        shown.contains("└ a approve  r reject  e edit  P allow prefix"),
        "{shown}"
    );
}

#[test]
fn a_prefix_is_offered_only_where_a_rule_could_cover_the_command() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("rm -rf build", "destructive");
    assert!(!harness.draw().contains("P prefix"));
    harness.press(&["tab", "P"]);
    assert!(harness.app.dialog.is_none());
    assert_eq!(notice(&harness), "an allow rule cannot cover this command");
    let mut harness = AppHarness::new(80, 24);
    let mut propose = AppHarness::proposal_payload("sh build.sh", "write");
    propose["assessment"]["runs_given_code"] = json!(true);
    harness.open_gate_for(propose, "sh build.sh", "write");
    assert!(!harness.draw().contains("P prefix"));
}

#[test]
fn the_dialog_says_what_a_prefix_does_to_the_command_on_the_card() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("npm run build", "write");
    harness.press(&["tab", "P"]);
    assert!(
        harness
            .draw()
            .contains("begin with this; this one runs at once")
    );
    harness.press(&["esc"]);
    // The gate keeps the quorum that it opened with, here two votes.
    let changes = json!({ "changes": { "default_gate_quorum": { "type": "any", "count": 2 } }, "reason": "" });
    harness.deliver("ann", "session.config_update", changes);
    harness.press(&["P"]);
    assert!(harness.app.dialog.is_none());
    assert_eq!(
        notice(&harness),
        "one person cannot make an allow rule in this session"
    );
}

#[test]
fn a_prefix_does_not_replace_the_votes_that_a_gate_still_needs() {
    let mut harness = AppHarness::new(80, 24);
    let (proposal, _) = harness.open_gate("npm run build", "write");
    let id = pvp_protocol::MessageId::parse(&proposal).unwrap();
    let request = json!({
        "action_type": "tool", "action_ref": harness.propose("make all", "write"),
        "quorum": { "type": "any", "count": 2 }, "timeout_seconds": 0, "message": "m",
        "category": "write", "digest": AppHarness::digest("make all"), "on_timeout": "reject",
        "voters": ["ann", "bob"],
    });
    harness.deliver("system", "gate.request", request);
    assert_eq!(harness.app.view.card(&id).unwrap().missing_approvals(), 1);
    harness.press(&["tab", "down", "P"]);
    let shown = harness.draw();
    assert!(
        shown.contains("begin with this; this one still needs 2 approvals"),
        "{shown}"
    );
}

#[test]
fn a_command_that_a_rule_let_run_says_which_rule_and_whose() {
    let mut harness = AppHarness::new(100, 30);
    let proposal = harness.propose("npm test", "write");
    let allowed_by = json!({ "participant": "bob", "prefix": ["npm", "test"] });
    let more = json!({ "rule": "r1", "allowed_by": allowed_by });
    harness.execute(&proposal, "npm test", "allow_rule", more);
    let expected = "(allowed by the rule `npm test …` of bob, on bot)";
    let shown = harness.draw();
    assert!(shown.contains(expected), "{shown}");
    harness.finish_run(&proposal, 0);
    let shown = harness.draw();
    assert!(shown.contains(expected), "{shown}");
    harness.type_text("/history");
    harness.press(&["enter"]);
    let shown = harness.draw();
    assert!(
        shown.contains("exit 0, allowed by the rule `npm test …` of bob"),
        "{shown}"
    );
}
