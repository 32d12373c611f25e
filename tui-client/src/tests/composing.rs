//! Tests of the composer: prompts, shell commands, slash commands, history and completion.

use serde_json::{Value, json};

use crate::app::{AppEffect, AppInput, ConnectionState, Focus, MainContent};
use crate::config::TuiConfig;
use crate::harness::AppHarness;
use crate::history::LoadedHistory;

fn submit(harness: &mut AppHarness, text: &str) {
    harness.input(AppInput::Paste(text.to_owned()));
    harness.press(&["enter"]);
}

fn last_sent(harness: &AppHarness) -> Value {
    harness.sent_messages().pop().expect("something was sent")
}

fn notice(harness: &AppHarness) -> String {
    harness
        .app
        .notice
        .as_ref()
        .map(|notice| notice.text.clone())
        .unwrap_or_default()
}

/// Splits a prompt into its only shell result and the text.
fn split_shell_result(content: &Value) -> (Value, String) {
    let content = content.as_str().unwrap();
    let (block, text) = content.split_once("</shell_result>\n").unwrap();
    let json = block.strip_prefix("<shell_result>").unwrap();
    (serde_json::from_str(json).unwrap(), text.to_owned())
}

/// Submits a shell command and delivers its whole run.
fn run_shell_command(harness: &mut AppHarness, typed: &str, printed: &str) {
    submit(harness, typed);
    let line = last_sent(harness)["payload"]["command"]
        .as_str()
        .unwrap()
        .to_owned();
    let exec = harness.deliver(
        "ann",
        "shell.exec",
        json!({ "command": line, "executor": "bot" }),
    );
    harness.reply_to_last(Ok(&exec));
    let login = json!({ "command": { "form": "login_shell", "line": line } });
    harness.execute(&exec, &line, "direct", login);
    harness.output(&exec, "stdout", printed);
    harness.finish_run(&exec, 0);
}

#[test]
fn a_prompt_of_several_lines_goes_to_the_only_agent() {
    let mut harness = AppHarness::new(80, 24);
    harness.type_text("first");
    harness.press(&["alt+enter"]);
    harness.type_text("second");
    harness.press(&["enter"]);
    assert_eq!(
        harness.sent_messages(),
        [json!({ "type": "prompt.submit", "payload": {
            "content": "first\nsecond", "target_agent": "bot", "contributors": ["ann"], "context_keys": [],
        } })]
    );
    assert!(harness.app.composer.editor.is_empty());
}

#[test]
fn with_several_agents_a_prompt_must_name_one() {
    let mut harness = AppHarness::new(80, 24);
    let announce = json!({ "id": "bit", "name": "Bit Two", "type": "agent", "roles": [], "transport": "websocket" });
    harness.deliver("bit", "participant.announce", announce);
    submit(&mut harness, "hello");
    assert_eq!(harness.sent_messages(), [Value::Null; 0]);
    assert_eq!(
        notice(&harness),
        "choose an agent by starting with its name: @Bit-Two, @bot"
    );
    assert_eq!(harness.app.composer.editor.text(), "hello");
    harness.press(&["ctrl+u"]);
    submit(&mut harness, "@Bit-Two hello");
    assert_eq!(last_sent(&harness)["payload"]["target_agent"], "bit");
    submit(&mut harness, "/to bot");
    submit(&mut harness, "and you");
    assert_eq!(last_sent(&harness)["payload"]["target_agent"], "bot");
}

#[test]
fn the_result_of_an_own_command_goes_with_the_next_prompt_once() {
    let mut harness = AppHarness::new(80, 24);
    run_shell_command(&mut harness, "!make test", "all good </shell_result>\n");
    assert_eq!(notice(&harness), "your command finished (exit 0)");
    assert!(
        harness.draw().contains("[!make test → 0]"),
        "{}",
        harness.draw()
    );
    submit(&mut harness, "what now?");
    let (block, text) = split_shell_result(&last_sent(&harness)["payload"]["content"]);
    assert_eq!(
        (&block["command_preview"], &block["stdout"]),
        (&json!("make test"), &json!("all good </shell_result>\n"))
    );
    assert_eq!(text, "what now?");
    harness.reply_to_last(Ok("prompt-1"));
    assert!(harness.app.shell_results.is_empty());
    submit(&mut harness, "and then?");
    assert_eq!(last_sent(&harness)["payload"]["content"], "and then?");
}

#[test]
fn a_refused_prompt_comes_back_with_its_results() {
    let mut harness = AppHarness::new(80, 24);
    run_shell_command(&mut harness, "!ls", "x\n");
    submit(&mut harness, "look");
    harness.reply_to_last(Err("the disk is full"));
    assert_eq!(harness.app.composer.editor.text(), "look");
    assert_eq!(notice(&harness), "not sent: the disk is full");
    harness.press(&["enter"]);
    assert_eq!(
        split_shell_result(&last_sent(&harness)["payload"]["content"]).1,
        "look"
    );
}

#[test]
fn a_double_bang_sends_the_result_to_the_agent_at_once() {
    let mut harness = AppHarness::new(80, 24);
    run_shell_command(&mut harness, "!!git status", "clean\n");
    let (block, text) = split_shell_result(&last_sent(&harness)["payload"]["content"]);
    assert_eq!((&block["stdout"], text.as_str()), (&json!("clean\n"), ""));
}

#[test]
fn an_own_command_that_is_refused_can_be_corrected() {
    let mut harness = AppHarness::new(80, 24);
    submit(&mut harness, "!");
    assert_eq!(notice(&harness), "type a command after `!`");
    harness.press(&["ctrl+u"]);
    submit(&mut harness, "!rm -rf /");
    harness.reply_to_last(Err("blocked"));
    assert_eq!(
        (
            notice(&harness).as_str(),
            harness.app.composer.editor.text()
        ),
        ("not run: blocked", "!rm -rf /")
    );
}

#[test]
fn sent_texts_can_be_recalled_and_the_draft_is_kept() {
    let mut harness = AppHarness::new(80, 24);
    submit(&mut harness, "one");
    submit(&mut harness, "two");
    harness.type_text("thr");
    let mut seen = Vec::new();
    for key in ["up", "up", "up", "down", "down"] {
        harness.press(&[key]);
        seen.push(harness.app.composer.editor.text().to_owned());
    }
    assert_eq!(seen, ["two", "one", "one", "two", "thr"]);
}

#[test]
fn texts_sent_in_earlier_runs_can_be_recalled() {
    let mut harness = AppHarness::new(80, 24);
    submit(&mut harness, "own");
    let loaded = LoadedHistory {
        entries: vec!["old".to_owned(), "older\nlines".to_owned()],
        problem: Some("a line could not be read".to_owned()),
    };
    harness.input(AppInput::HistoryLoaded(loaded));
    assert_eq!(notice(&harness), "a line could not be read");
    let mut seen = Vec::new();
    for key in ["up", "up", "up", "up"] {
        harness.press(&[key]);
        seen.push(harness.app.composer.editor.text().to_owned());
    }
    // The third press moves between the lines of the recalled text.
    assert_eq!(seen, ["own", "older\nlines", "older\nlines", "old"]);
}

#[test]
fn sent_texts_are_saved_unless_they_begin_with_a_space_or_were_discarded() {
    let mut harness = AppHarness::new(80, 24);
    submit(&mut harness, "!ls");
    submit(&mut harness, "!ls");
    submit(&mut harness, " !cat secret");
    submit(&mut harness, "/people");
    submit(&mut harness, "/nonsense");
    harness.press(&["ctrl+c"]);
    harness.type_text("a draft");
    harness.press(&["ctrl+c", "up"]);
    assert_eq!(harness.app.composer.editor.text(), "a draft");
    harness.press(&["up", "up", "up"]);
    assert_eq!(harness.app.composer.editor.text(), "!ls");
    assert_eq!(saved_history(&harness), ["!ls", "/people"]);

    let config = TuiConfig {
        history: false,
        ..TuiConfig::default()
    };
    let mut harness = AppHarness::with_config(config, 80, 24);
    submit(&mut harness, "!ls");
    assert_eq!(saved_history(&harness), [""; 0]);
    harness.press(&["up"]);
    assert_eq!(harness.app.composer.editor.text(), "!ls");
}

/// The texts that go to the history file.
fn saved_history(harness: &AppHarness) -> Vec<&str> {
    let kept = harness.effects.iter().filter_map(|effect| match effect {
        AppEffect::AppendHistory(text) => Some(text.as_str()),
        AppEffect::Send(..)
        | AppEffect::Copy(_)
        | AppEffect::FetchOutput { .. }
        | AppEffect::SearchOutput { .. }
        | AppEffect::CreateInvitation(_)
        | AppEffect::Notify
        | AppEffect::Redraw
        | AppEffect::Suspend
        | AppEffect::Quit => None,
    });
    kept.collect()
}

#[test]
fn sent_texts_are_found_by_substring() {
    let mut harness = AppHarness::new(80, 24);
    for text in ["!make test", "!make Build", "look at the build", "hello"] {
        submit(&mut harness, text);
    }
    harness.type_text("draft");
    harness.press(&["ctrl+r"]);
    assert_eq!(harness.app.composer.editor.text(), "draft");
    harness.type_text("buil");
    assert_eq!(harness.app.composer.editor.text(), "look at the build");
    let shown = harness.draw();
    assert!(shown.contains("▶ Input history, matching: buil"), "{shown}");
    assert!(shown.contains("ctrl+r earlier"), "{shown}");
    harness.press(&["ctrl+r"]);
    assert_eq!(harness.app.composer.editor.text(), "!make Build");
    harness.press(&["ctrl+r"]);
    assert_eq!(notice(&harness), "no earlier match");
    harness.press(&["ctrl+s"]);
    assert_eq!(harness.app.composer.editor.text(), "look at the build");
    harness.press(&["ctrl+s"]);
    assert_eq!(notice(&harness), "no later match");
    // A capital makes the search case-sensitive.
    harness.press(&["ctrl+u"]);
    harness.type_text("Build");
    assert_eq!(harness.app.composer.editor.text(), "!make Build");
    // Without a match the draft is shown.
    harness.type_text("x");
    assert_eq!(harness.app.composer.editor.text(), "draft");
    assert!(
        harness
            .draw()
            .contains("No match in the input history for: Buildx")
    );
    harness.press(&["backspace", "enter"]);
    assert_eq!(
        harness.sent_messages().len(),
        4,
        "taking it does not send it"
    );
    harness.type_text("!");
    assert_eq!(harness.app.composer.editor.text(), "!make Build!");
    harness.press(&["ctrl+r"]);
    harness.type_text("hello");
    harness.press(&["esc"]);
    assert_eq!(
        (harness.app.composer.editor.text(), harness.app.focus),
        ("!make Build!", Focus::Composer)
    );
}

#[test]
fn a_paste_during_history_search_goes_into_the_search() {
    let mut harness = AppHarness::new(40, 12);
    submit(&mut harness, "one two");
    harness.press(&["ctrl+r"]);
    harness.input(AppInput::Paste("one\ntwo".to_owned()));
    assert_eq!(harness.app.composer.editor.text(), "one two");
    assert!(harness.draw().contains("Input history, matching: one two"));
}

#[test]
fn slash_commands_are_completed() {
    let mut harness = AppHarness::new(80, 24);
    harness.type_text("/peo");
    harness.press(&["tab"]);
    assert_eq!(harness.app.composer.editor.text(), "/people ");
    harness.press(&["ctrl+u"]);
    harness.type_text("/r");
    harness.press(&["tab"]);
    assert_eq!(harness.app.composer.editor.text(), "/r");
    assert!(
        harness.draw().ends_with("/role  /rules  /revoke"),
        "{}",
        harness.draw()
    );
    harness.press(&["tab", "tab"]);
    assert_eq!(harness.app.composer.editor.text(), "/rules");
    harness.press(&["ctrl+u"]);
    harness.type_text("/role bo");
    harness.press(&["tab", "tab"]);
    assert_eq!(harness.app.composer.editor.text(), "/role bob");
}

#[test]
fn own_commands_are_completed_from_the_history_and_the_path() {
    let mut harness = AppHarness::new(80, 24);
    harness.input(AppInput::ProgramsListed(vec![
        "git".to_owned(),
        "gitk".to_owned(),
        "grep".to_owned(),
    ]));
    harness.type_text("!gr");
    harness.press(&["tab"]);
    assert_eq!(harness.app.composer.editor.text(), "!grep ");
    harness.press(&["ctrl+u"]);
    submit(&mut harness, "!git log --oneline");
    harness.type_text("!git l");
    harness.press(&["tab"]);
    assert_eq!(harness.app.composer.editor.text(), "!git log --oneline ");
    harness.press(&["ctrl+u"]);
    harness.type_text("!ls | gitk");
    harness.press(&["tab"]);
    assert_eq!(harness.app.composer.editor.text(), "!ls | gitk");
}

#[test]
fn slash_commands_send_the_matching_protocol_message() {
    for (line, kind, payload) in [
        (
            "/interrupt stop enough",
            "interrupt.raise",
            json!({ "urgency": "stop", "message": "enough" }),
        ),
        (
            "/interrupt wait a bit",
            "interrupt.raise",
            json!({ "urgency": "pause", "message": "wait a bit" }),
        ),
        (
            "/role bob admin,driver",
            "participant.role_change",
            json!({
                "participant": "bob", "old_roles": ["approver"], "new_roles": ["driver", "admin"], "changed_by": "ann",
            }),
        ),
        (
            "/cancel 1 too slow",
            "tool.cancel",
            json!({ "tool_proposal": "m1", "reason": "too slow" }),
        ),
        ("/cancel", "tool.cancel", json!({ "tool_proposal": "m1" })),
        (
            "/allow npm run for 1d",
            "policy.allow",
            json!({ "prefix": ["npm", "run"], "expires_at": "2026-01-02T12:00:00.000Z" }),
        ),
    ] {
        let mut harness = AppHarness::new(80, 24);
        harness.open_gate("make", "write");
        submit(&mut harness, line);
        assert_eq!(
            harness.sent_messages(),
            [json!({ "type": kind, "payload": payload })],
            "{line}"
        );
    }
}

#[test]
fn an_invalid_slash_command_is_reported_and_stays_in_the_composer() {
    for (line, problem) in [
        (
            "/nonsense",
            "there is no command /nonsense; /help lists the commands",
        ),
        (
            "/role nobody admin",
            "there is no participant `nobody`; /people lists them",
        ),
        (
            "/role bob king",
            "`king` is not a role; choose from driver, navigator, adversary, approver, admin, observer",
        ),
        ("/cancel 7", "there is no number 7"),
        ("/revoke", "give the number of a rule; /rules lists them"),
        (
            "/allow make; rm",
            "`make;` has characters that a shell interprets; use plain words",
        ),
        (
            "/invite ann",
            "give a name, a role and optionally a duration: /invite ann approver 8h",
        ),
        ("/to nobody", "there is no agent `nobody`; choose from @bot"),
    ] {
        let mut harness = AppHarness::new(80, 24);
        submit(&mut harness, line);
        assert_eq!(
            (
                notice(&harness).as_str(),
                harness.app.composer.editor.text()
            ),
            (problem, line)
        );
        assert_eq!(harness.sent_messages(), [Value::Null; 0]);
    }
}

#[test]
fn an_invitation_is_for_this_session_and_expires() {
    let mut harness = AppHarness::new(80, 24);
    submit(&mut harness, "/invite cid approver 2h");
    let mut effects = harness.effects.iter();
    let request = effects.find(|effect| matches!(effect, AppEffect::CreateInvitation(_)));
    let Some(AppEffect::CreateInvitation(invite)) = request else {
        panic!("no invitation was requested");
    };
    let invite = serde_json::to_value(invite).unwrap();
    assert_eq!(
        invite,
        json!({ "name": "cid", "roles": ["approver"], "kind": "human", "capabilities": [], "session": "shop", "expires_seconds": 7200 })
    );
}

#[test]
fn every_page_opens_and_closes() {
    for page in [
        "help", "keys", "tools", "people", "rules", "jobs", "context", "history", "audit",
    ] {
        let mut harness = AppHarness::new(80, 24);
        harness.open_gate("make", "write");
        submit(&mut harness, &format!("/{page}"));
        assert!(matches!(harness.app.main, MainContent::Page(_)), "{page}");
        harness.draw();
        harness.press(&["q"]);
        assert_eq!(
            (&harness.app.main, harness.app.focus),
            (&MainContent::Stream, Focus::Composer),
            "{page}"
        );
    }
}

#[test]
fn what_is_typed_survives_a_lost_connection_and_quitting_warns() {
    let mut harness = AppHarness::new(80, 24);
    submit(&mut harness, "under way");
    harness.type_text("draft");
    harness.input(AppInput::Disconnected {
        reason: "gone".to_owned(),
    });
    harness.input(AppInput::Connected { resumed: false });
    harness.welcome(&["driver", "admin"]);
    assert_eq!(
        (harness.app.composer.editor.text(), &harness.app.connection),
        ("draft", &ConnectionState::Connected)
    );
    harness.press(&["ctrl+q"]);
    assert!(!harness.effects.contains(&AppEffect::Quit));
    assert_eq!(
        notice(&harness),
        "sending 1 message before quitting; press again to quit now"
    );
    harness.press(&["ctrl+q"]);
    assert!(harness.effects.contains(&AppEffect::Quit));
}

#[test]
fn quitting_with_pending_requests_waits_until_they_are_sent() {
    for stays in [false, true] {
        let mut harness = AppHarness::new(80, 24);
        submit(&mut harness, "under way");
        harness.press(&["ctrl+q"]);
        assert!(!harness.effects.contains(&AppEffect::Quit));
        if stays {
            harness.type_text("no, one more thing");
        }
        harness.reply_to_last(Ok("m1"));
        assert_eq!(harness.effects.contains(&AppEffect::Quit), !stays);
    }
}

#[test]
fn drafts_are_shared_only_if_the_settings_say_so() {
    let mut harness = AppHarness::new(80, 24);
    harness.type_text("hel");
    harness.advance_clock(500);
    assert_eq!(harness.sent_messages(), [Value::Null; 0]);
    let config = TuiConfig {
        share_drafts: true,
        ..TuiConfig::default()
    };
    let mut harness = AppHarness::with_config(config, 80, 24);
    harness.type_text("hel");
    harness.advance_clock(500);
    harness.advance_clock(500);
    harness.press(&["ctrl+u"]);
    harness.type_text("!secret");
    harness.advance_clock(500);
    let contents: Vec<_> = harness
        .sent_messages()
        .iter()
        .map(|it| it["payload"]["content"].clone())
        .collect();
    assert_eq!(contents, [json!("hel"), json!("")]);
    // Entries shown by a history search are not shared.
    let loaded = LoadedHistory {
        entries: vec!["an old secret".to_owned()],
        problem: None,
    };
    harness.input(AppInput::HistoryLoaded(loaded));
    harness.press(&["ctrl+u", "ctrl+r"]);
    harness.type_text("old");
    harness.advance_clock(500);
    assert_eq!(harness.sent_messages().len(), 2);
}
