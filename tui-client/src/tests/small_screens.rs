//! Tests of small screens and long texts: cut-off text is marked, and all of it can be read.

use ratatui::layout::Size;
use serde_json::json;

use crate::app::{AppEffect, AppInput, Focus, MadeInvitation, MainContent};
use crate::harness::AppHarness;

fn notice(harness: &AppHarness) -> Option<&str> {
    harness
        .app
        .notice
        .as_ref()
        .map(|notice| notice.text.as_str())
}

fn approval_count(harness: &AppHarness) -> usize {
    let sent = harness.sent_messages();
    sent.iter()
        .filter(|message| message["type"] == "gate.approve")
        .count()
}

fn submit(harness: &mut AppHarness, line: &str) {
    harness.input(AppInput::Paste(line.to_owned()));
    harness.press(&["enter"]);
}

/// Presses a key without drawing a frame before.
fn press_without_drawing(harness: &mut AppHarness, key: &str) {
    let drawn = harness.app.card_state.last_drawn.clone();
    let chord = crate::keys::KeyChord::parse(key).unwrap();
    let key = crossterm::event::KeyEvent::from(chord.code());
    harness.input(AppInput::Key(key));
    assert_eq!(harness.app.card_state.last_drawn, drawn);
}

#[test]
fn five_short_commands_are_approved_together_on_a_usual_terminal() {
    let mut harness = AppHarness::new(80, 24);
    for number in 0..5 {
        harness.open_gate(&format!("touch {number}"), "write");
    }
    harness.press(&["ctrl+g", "A"]);
    let shown = harness.draw();
    assert!(shown.contains("Approve 5 of 5?"), "{shown}");
    harness.press(&["down", "down", "down", "down", "enter"]);
    assert_eq!(approval_count(&harness), 5);
}

#[test]
fn a_preflight_item_that_was_never_drawn_is_not_approved() {
    let mut harness = AppHarness::new(80, 24);
    for number in 0..12 {
        harness.open_gate(&format!("touch {number}"), "write");
    }
    harness.press(&["ctrl+g", "A"]);
    harness.draw();
    // Keys that come faster than frames skip the middle of the list.
    (0..11).for_each(|_| press_without_drawing(&mut harness, "down"));
    harness.press(&["enter"]);
    assert_eq!(approval_count(&harness), 0);
    assert_eq!(
        notice(&harness),
        Some("scroll to the end of the list first (down)")
    );
    for _ in 0..11 {
        harness.press(&["up"]);
    }
    harness.press(&["enter"]);
    assert_eq!(approval_count(&harness), 12);
}

#[test]
fn a_preflight_list_with_nothing_marked_approves_nothing() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("touch one", "write");
    harness.press(&["ctrl+g", "A", "space", "enter"]);
    assert_eq!(
        notice(&harness),
        Some("nothing is selected; esc closes the list")
    );
    assert!(matches!(harness.app.main, MainContent::Preflight(_)));
}

#[test]
fn every_page_can_be_read_to_its_end() {
    let mut harness = AppHarness::new(60, 18);
    submit(&mut harness, "/help");
    harness.press(&["end"]);
    let shown = harness.draw();
    assert!(shown.contains("f1 lists every key."), "{shown}");

    // One line that takes more rows than the screen has.
    let command = format!("echo {} last-of-all", "word ".repeat(300));
    harness.open_gate(&command, "write");
    harness.press(&["ctrl+g", "x"]);
    let mut seen = String::new();
    for _ in 0..60 {
        seen += &harness.draw();
        harness.press(&["pagedown"]);
    }
    assert!(seen.contains("last-of-all"), "{seen}");
}

#[test]
fn a_search_without_matches_shows_a_notice() {
    let mut harness = AppHarness::new(80, 24);
    submit(&mut harness, "/help");
    harness.press(&["/"]);
    harness.type_text("zebra");
    harness.press(&["enter"]);
    assert_eq!(notice(&harness), Some("no line matches"));
    harness.press(&["/"]);
    harness.type_text("chip");
    harness.press(&["enter", "n"]);
    assert_eq!(notice(&harness), Some("no more matches in that direction"));
}

#[test]
fn a_card_names_the_key_that_shows_the_rest_of_it() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate(&"word ".repeat(200), "write");
    let shown = harness.draw();
    assert!(shown.contains("more: ctrl+g ┐"), "{shown}");
    harness.press(&["ctrl+g"]);
    let shown = harness.draw();
    assert!(shown.contains("more: space ┐"), "{shown}");
    assert!(shown.contains("x explain"), "{shown}");
}

#[test]
fn without_frames_the_keys_that_decide_are_the_first_hints() {
    let mut harness = AppHarness::new(44, 14);
    harness.open_gate("rm -rf build", "destructive");
    harness.press(&["ctrl+g"]);
    let shown = harness.draw();
    assert!(
        shown.ends_with(" a approve  r reject  space more  down next"),
        "{shown}"
    );
}

#[test]
fn a_notice_takes_the_rows_it_needs_and_goes_with_the_next_key() {
    let mut harness = AppHarness::new(44, 14);
    harness.open_gate("(make; make install)", "write");
    harness.app.show_notice(
        crate::app::NoticeLevel::Error,
        "something went wrong that takes more words than there is room for on one row",
    );
    let shown = harness.draw();
    assert!(
        shown.ends_with("takes more\n words than there is room for on one row"),
        "{shown}"
    );
    harness
        .app
        .show_notice(crate::app::NoticeLevel::Error, "word ".repeat(100));
    let shown = harness.draw();
    assert!(shown.ends_with('…'), "{shown}");
    harness.press(&["ctrl+g", "down"]);
    assert_eq!(notice(&harness), None);
}

#[test]
fn the_smallest_screen_still_shows_how_many_gates_wait() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("make", "write");
    let size = Size::new(10, 5);
    harness.input(AppInput::Resize(size));
    let shown = harness.draw();
    assert_eq!(shown.trim_end(), "1 waiting\ntoo small\nto decide");
    harness.input(AppInput::Resize(Size::new(5, 1)));
    assert_eq!(harness.draw().trim_end(), "1 wa…");
}

#[test]
fn a_text_that_does_not_fit_shows_the_row_of_the_cursor() {
    let mut harness = AppHarness::new(80, 24);
    let text: Vec<_> = (1..=40).map(|line| line.to_string()).collect();
    harness.input(AppInput::Paste(text.join("\n")));
    assert!(harness.draw().contains(" row 40 of 40 ┐"));
    harness.press(&["up", "up"]);
    assert!(harness.draw().contains(" row 38 of 40 ┐"));
    harness.press(&["ctrl+c"]);
    assert!(!harness.draw().contains(" row "));
}

#[test]
fn the_key_hints_match_the_focus() {
    let mut harness = AppHarness::new(80, 24);
    assert!(harness.draw().contains("tab card/stream"));
    harness.type_text("!ls");
    assert!(harness.draw().contains("tab complete"));
    harness.press(&["ctrl+u", "esc", "i"]);
    assert!(harness.draw().contains("tab pause, stop, emergency"));
}

#[test]
fn a_command_of_many_parts_leaves_room_for_the_votes() {
    let mut harness = AppHarness::new(100, 40);
    let command = "many parts";
    let mut assessment = AppHarness::assessment(command, "destructive");
    let part = |category: &str, text: String| {
        json!({ "text": text, "start": 0, "end": 1, "category": category, "risk": "low",
            "rule": "r", "reason": "because" })
    };
    let mut parts: Vec<_> = (0..50)
        .map(|it| part("write", format!("part {it}")))
        .collect();
    parts.push(part("destructive", "rm -rf build".to_owned()));
    assessment["parts"] = json!(parts);
    let propose = json!({
        "tool_name": "shell", "arguments": { "full_command": command }, "agent": "bot",
        "risk_level": "safe", "description": "", "requires_approval": false,
        "category": "shell_execute", "assessment": assessment,
    });
    harness.open_gate_for(propose, command, "destructive");
    harness.press(&["ctrl+g"]);
    let shown = harness.draw();
    assert!(
        shown.contains("part     destructive rm -rf build"),
        "{shown}"
    );
    assert!(shown.contains("50 more parts, none more severe"), "{shown}");
    assert!(shown.contains("votes    0 of 1"), "{shown}");
}

#[test]
fn agent_names_are_shown_as_they_are_typed_after_an_at_sign() {
    let mut harness = AppHarness::new(80, 24);
    let announce = json!({ "id": "bit", "name": "Bit Two", "type": "agent", "roles": [], "transport": "websocket" });
    harness.deliver("bit", "participant.announce", announce);
    assert!(
        harness
            .draw()
            .contains("choose an agent by starting with its name: @Bit-Two, @bot")
    );
    submit(&mut harness, "@Bit hello");
    assert_eq!(
        notice(&harness),
        Some("there is no agent `Bit`; choose from @Bit-Two, @bot")
    );
}

#[test]
fn opening_a_waiting_command_shows_its_card_and_one_that_never_ran_has_no_output() {
    let mut harness = AppHarness::new(80, 24);
    harness.open_gate("touch one", "write");
    let (proposal, gate) = harness.open_gate("touch two", "write");
    submit(&mut harness, "/open 2");
    assert_eq!(harness.app.focus, Focus::Card);
    assert!(harness.draw().contains("▶ Waiting 2 of 2"));
    harness.resolve(&proposal, &gate, "rejected", "bob");
    harness.press(&["esc"]);
    submit(&mut harness, "/output 1");
    assert_eq!(
        notice(&harness),
        Some("this command has not run, so it has no output")
    );
    assert_eq!(harness.app.main, MainContent::Stream);
}

#[test]
fn an_invitation_link_can_be_selected_as_one_word_and_is_copied_alone() {
    let mut harness = AppHarness::new(60, 60);
    let link = format!(
        "http://127.0.0.1:3000/#token=pvp_{}&session=shop",
        "x".repeat(60)
    );
    let invitation = json!({
        "token": "pvp_x", "link": link, "participant": "cid", "roles": ["approver"],
        "expires": harness.now.plus_seconds(7200),
    });
    let page_link = link.replace("#token=pvp_", "#device=");
    let made = MadeInvitation {
        invitation: serde_json::from_value(invitation).unwrap(),
        page_link: Some(page_link.clone()),
    };
    harness.input(AppInput::InvitationCreated(Ok(Box::new(made))));
    let shown = harness.draw().replace("│\n│", "");
    assert!(
        shown.contains(&link) && shown.contains(&page_link),
        "{shown}"
    );
    assert!(
        shown.contains("approver") && shown.contains("2 h"),
        "{shown}"
    );
    // The first row of the code that is not all margin.
    let code = crate::qr_code::draw(&page_link, crate::qr_code::QrBackground::Light).unwrap();
    assert!(shown.contains(code[1].trim_end()), "{shown}");
    harness.press(&["y"]);
    assert_eq!(harness.effects.last(), Some(&AppEffect::Copy(link)));
    assert_eq!(notice(&harness), Some("copied the link"));
}

#[test]
fn a_silent_command_clears_the_previous_notice() {
    let mut harness = AppHarness::new(80, 24);
    submit(&mut harness, "/theme pink");
    assert_eq!(
        notice(&harness),
        Some("choose a theme: colour, high-contrast or none")
    );
    harness.press(&["ctrl+u"]);
    submit(&mut harness, "/theme none");
    assert_eq!(notice(&harness), None);
}

#[test]
fn a_user_who_scrolls_is_reported_as_active() {
    let mut harness = AppHarness::new(80, 24);
    let present = |harness: &AppHarness| -> Vec<serde_json::Value> {
        let sent = harness.sent_messages().into_iter();
        sent.filter(|message| message["type"] == "presence.update")
            .collect()
    };
    harness.press(&["pageup"]);
    assert_eq!(present(&harness), [serde_json::Value::Null; 0]);
    let idle = json!({ "participant": "ann", "status": "idle", "last_active": harness.now });
    harness.deliver_ephemeral("system", "presence.update", idle);
    harness.advance_clock(500);
    assert_eq!(present(&harness), [serde_json::Value::Null; 0]);
    harness.press(&["pageup", "pageup"]);
    let payload = json!({ "participant": "ann", "status": "active", "last_active": harness.now });
    let update = json!({ "type": "presence.update", "payload": payload });
    assert_eq!(present(&harness), [update]);
    // It is sent again, because the first may have been lost.
    harness.advance_clock(10_000);
    harness.press(&["pageup"]);
    assert_eq!(present(&harness).len(), 2);
}
