//! Little room and much text: what does not fit says so, and all of it can be read.

use ratatui::layout::Size;
use serde_json::json;

use crate::app::{Effect, Focus, Input, Main};
use crate::scene::Scene;

fn notice(scene: &Scene) -> Option<&str> {
    scene.app.notice.as_ref().map(|notice| notice.text.as_str())
}

fn approvals(scene: &Scene) -> usize {
    let sent = scene.sent();
    sent.iter()
        .filter(|message| message["type"] == "gate.approve")
        .count()
}

fn slash(scene: &mut Scene, line: &str) {
    scene.input(Input::Paste(line.to_owned()));
    scene.press(&["enter"]);
}

/// A key without a look at the screen before.
fn blindly(scene: &mut Scene, key: &str) {
    let drawn = scene.app.cards.drawn.clone();
    let chord = crate::keys::Chord::parse(key).unwrap();
    let key = crossterm::event::KeyEvent::from(chord.code());
    scene.input(Input::Key(key));
    assert_eq!(scene.app.cards.drawn, drawn);
}

#[test]
fn five_short_commands_are_approved_together_on_a_usual_terminal() {
    let mut scene = Scene::new(80, 24);
    for number in 0..5 {
        scene.gate(&format!("touch {number}"), "write");
    }
    scene.press(&["ctrl+g", "A"]);
    let shown = scene.draw();
    assert!(shown.contains("Approve 5 of 5?"), "{shown}");
    scene.press(&["down", "down", "down", "down", "enter"]);
    assert_eq!(approvals(&scene), 5);
}

#[test]
fn what_was_never_drawn_in_the_list_is_not_approved() {
    let mut scene = Scene::new(80, 24);
    for number in 0..12 {
        scene.gate(&format!("touch {number}"), "write");
    }
    scene.press(&["ctrl+g", "A"]);
    scene.draw();
    // Keys that come faster than pictures jump over the middle of the list.
    (0..11).for_each(|_| blindly(&mut scene, "down"));
    scene.press(&["enter"]);
    assert_eq!(approvals(&scene), 0);
    assert_eq!(
        notice(&scene),
        Some("read the list to its end first (down)")
    );
    for _ in 0..11 {
        scene.press(&["up"]);
    }
    scene.press(&["enter"]);
    assert_eq!(approvals(&scene), 12);
}

#[test]
fn nothing_marked_is_nothing_approved() {
    let mut scene = Scene::new(80, 24);
    scene.gate("touch one", "write");
    scene.press(&["ctrl+g", "A", "space", "enter"]);
    assert_eq!(notice(&scene), Some("nothing is marked; esc leaves"));
    assert!(matches!(scene.app.main, Main::Preflight(_)));
}

#[test]
fn every_page_can_be_read_to_its_end() {
    let mut scene = Scene::new(60, 18);
    slash(&mut scene, "/help");
    scene.press(&["end"]);
    let shown = scene.draw();
    assert!(shown.contains("f1 lists every key."), "{shown}");

    // One line that takes more rows than there are.
    let command = format!("echo {} last-of-all", "word ".repeat(300));
    scene.gate(&command, "write");
    scene.press(&["ctrl+g", "x"]);
    let mut seen = String::new();
    for _ in 0..60 {
        seen += &scene.draw();
        scene.press(&["pagedown"]);
    }
    assert!(seen.contains("last-of-all"), "{seen}");
}

#[test]
fn a_search_that_finds_nothing_says_so() {
    let mut scene = Scene::new(80, 24);
    slash(&mut scene, "/help");
    scene.press(&["/"]);
    scene.type_text("zebra");
    scene.press(&["enter"]);
    assert_eq!(notice(&scene), Some("no line matches"));
    scene.press(&["/"]);
    scene.type_text("chip");
    scene.press(&["enter", "n"]);
    assert_eq!(notice(&scene), Some("no more matches that way"));
}

#[test]
fn a_card_says_which_key_shows_the_rest_of_it() {
    let mut scene = Scene::new(80, 24);
    scene.gate(&"word ".repeat(200), "write");
    let shown = scene.draw();
    assert!(shown.contains("more: ctrl+g ┐"), "{shown}");
    scene.press(&["ctrl+g"]);
    let shown = scene.draw();
    assert!(shown.contains("more: space ┐"), "{shown}");
    assert!(shown.contains("x explain"), "{shown}");
}

#[test]
fn without_frames_the_keys_that_decide_are_the_first_hints() {
    let mut scene = Scene::new(44, 14);
    scene.gate("rm -rf build", "destructive");
    scene.press(&["ctrl+g"]);
    let shown = scene.draw();
    assert!(
        shown.ends_with(" a approve  r reject  space more  down next"),
        "{shown}"
    );
}

#[test]
fn what_was_said_takes_the_rows_that_it_needs_and_goes_with_the_next_key() {
    let mut scene = Scene::new(44, 14);
    scene.gate("(make; make install)", "write");
    scene.app.tell(
        crate::app::Tone::Bad,
        "something went wrong that takes more words than there is room for on one row",
    );
    let shown = scene.draw();
    assert!(
        shown.ends_with("takes more\n words than there is room for on one row"),
        "{shown}"
    );
    scene.app.tell(crate::app::Tone::Bad, "word ".repeat(100));
    let shown = scene.draw();
    assert!(shown.ends_with('…'), "{shown}");
    scene.press(&["ctrl+g", "down"]);
    assert_eq!(notice(&scene), None);
}

#[test]
fn however_small_it_is_it_says_what_waits() {
    let mut scene = Scene::new(80, 24);
    scene.gate("make", "write");
    let size = Size::new(10, 5);
    scene.input(Input::Resize(size));
    let shown = scene.draw();
    assert_eq!(shown.trim_end(), "1 waiting\ntoo small\nto decide");
    scene.input(Input::Resize(Size::new(5, 1)));
    assert_eq!(scene.draw().trim_end(), "1 wa…");
}

#[test]
fn a_text_that_is_not_all_shown_says_where_one_is() {
    let mut scene = Scene::new(80, 24);
    let text: Vec<_> = (1..=40).map(|line| line.to_string()).collect();
    scene.input(Input::Paste(text.join("\n")));
    assert!(scene.draw().contains(" row 40 of 40 ┐"));
    scene.press(&["up", "up"]);
    assert!(scene.draw().contains(" row 38 of 40 ┐"));
    scene.press(&["ctrl+c"]);
    assert!(!scene.draw().contains(" row "));
}

#[test]
fn hints_say_what_the_keys_do_there() {
    let mut scene = Scene::new(80, 24);
    assert!(scene.draw().contains("tab card/stream"));
    scene.type_text("!ls");
    assert!(scene.draw().contains("tab complete"));
    scene.press(&["ctrl+u", "esc", "i"]);
    assert!(scene.draw().contains("tab pause, stop, emergency"));
}

#[test]
fn very_many_parts_leave_room_for_the_votes() {
    let mut scene = Scene::new(100, 40);
    let command = "many parts";
    let mut assessment = Scene::assessment(command, "destructive");
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
    scene.gate_of(propose, command, "destructive");
    scene.press(&["ctrl+g"]);
    let shown = scene.draw();
    assert!(
        shown.contains("part     destructive rm -rf build"),
        "{shown}"
    );
    assert!(
        shown.contains("50 more parts, none of them worse"),
        "{shown}"
    );
    assert!(shown.contains("votes    0 of 1"), "{shown}");
}

#[test]
fn names_of_agents_are_told_as_one_types_them() {
    let mut scene = Scene::new(80, 24);
    let announce = json!({ "id": "bit", "name": "Bit Two", "type": "agent", "roles": [], "transport": "websocket" });
    scene.tell("bit", "participant.announce", announce);
    assert!(
        scene
            .draw()
            .contains("say which agent before the text: @Bit-Two, @bot")
    );
    slash(&mut scene, "@Bit hello");
    assert_eq!(
        notice(&scene),
        Some("no agent `Bit` is here; there is @Bit-Two, @bot")
    );
}

#[test]
fn what_waits_is_opened_as_its_card_and_what_never_ran_is_not_said_to_have_printed_nothing() {
    let mut scene = Scene::new(80, 24);
    scene.gate("touch one", "write");
    let (proposal, gate) = scene.gate("touch two", "write");
    slash(&mut scene, "/open 2");
    assert_eq!(scene.app.focus, Focus::Card);
    assert!(scene.draw().contains("▶ Gate 2 of 2"));
    scene.resolve(&proposal, &gate, "rejected", "bob");
    scene.press(&["esc"]);
    slash(&mut scene, "/output 1");
    assert_eq!(
        notice(&scene),
        Some("it has not run, so it printed nothing")
    );
    assert_eq!(scene.app.main, Main::Stream);
}

#[test]
fn an_invitation_is_one_word_to_select_and_the_link_alone_is_copied() {
    let mut scene = Scene::new(60, 24);
    let link = format!(
        "http://127.0.0.1:3000/?token=pvp_{}&session=shop",
        "x".repeat(60)
    );
    let invitation = json!({
        "token": "pvp_x", "link": link, "participant": "cid", "roles": ["approver"], "expires": null,
    });
    let invitation = serde_json::from_value(invitation).unwrap();
    scene.input(Input::Invited(Ok(Box::new(invitation))));
    let shown = scene.draw().replace("│\n│", "");
    assert!(shown.contains(&link), "{shown}");
    scene.press(&["y"]);
    assert_eq!(scene.effects.last(), Some(&Effect::Copy(link)));
    assert_eq!(notice(&scene), Some("copied the link"));
}

#[test]
fn a_command_that_says_nothing_leaves_no_old_word_standing() {
    let mut scene = Scene::new(80, 24);
    slash(&mut scene, "/theme pink");
    assert_eq!(
        notice(&scene),
        Some("there are colour, high-contrast and none")
    );
    scene.press(&["ctrl+u"]);
    slash(&mut scene, "/theme none");
    assert_eq!(notice(&scene), None);
}

#[test]
fn whoever_reads_is_not_taken_for_idle() {
    let mut scene = Scene::new(80, 24);
    let present = |scene: &Scene| -> Vec<serde_json::Value> {
        let sent = scene.sent().into_iter();
        sent.filter(|message| message["type"] == "presence.update")
            .collect()
    };
    scene.press(&["pageup"]);
    assert_eq!(present(&scene), [serde_json::Value::Null; 0]);
    let idle = json!({ "participant": "ann", "status": "idle", "last_active": scene.now });
    scene.whisper("system", "presence.update", idle);
    scene.wait(500);
    assert_eq!(present(&scene), [serde_json::Value::Null; 0]);
    scene.press(&["pageup", "pageup"]);
    let said = json!({ "participant": "ann", "status": "active", "last_active": scene.now });
    let said = json!({ "type": "presence.update", "payload": said });
    assert_eq!(present(&scene), [said]);
    // It may have been lost on the way.
    scene.wait(10_000);
    scene.press(&["pageup"]);
    assert_eq!(present(&scene).len(), 2);
}
