//! Shows the golden transcripts on the screen, as they are and with hostile text in every field.

use crate::text::narrator;
use pvp_client::view::escape_invisible;
use pvp_protocol::{Limits, parse_server_message};
use serde_json::Value;

use super::screens::HOSTILE;
use crate::app::AppInput;
use crate::config::TuiConfig;
use crate::harness::AppHarness;

/// Fields that hold text written by a participant.
const FREE_TEXT_FIELDS: &[&str] = &[
    "amendment",
    "comment",
    "content",
    "description",
    "error",
    "ignore_reason",
    "key",
    "message",
    "name",
    "reason",
    "suggestion",
    "summary",
    "text",
];

fn load_transcripts() -> Vec<(String, Vec<Value>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/transcripts");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let transcripts = files.filter(|path| path.to_string_lossy().ends_with(".told.jsonl"));
    transcripts
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
            (path.display().to_string(), lines.collect())
        })
        .collect()
}

/// Appends hostile text to every field that a participant writes.
fn insert_hostile_text(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if let (Value::String(text), true) =
                    (&mut *field, FREE_TEXT_FIELDS.contains(&&**name))
                {
                    // Short, so that the whole name fits on the screen.
                    let short = name == "name";
                    text.push_str(if short {
                        "c\u{202e}d\u{200b}e"
                    } else {
                        HOSTILE
                    });
                }
                insert_hostile_text(field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(insert_hostile_text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn draw_transcript(messages: &[Value], name: &str) -> usize {
    let mut harness = AppHarness::before_welcome(TuiConfig::default(), 100, 40);
    let mut items = 0;
    for message in messages {
        let limits = Limits {
            json_depth: 128,
            ..Limits::default()
        };
        let envelope = parse_server_message(&message.to_string(), &limits);
        let envelope = envelope.map_err(|error| error.refusal).unwrap();
        harness.input(AppInput::Message(Box::new(envelope.expect("a known type"))));
        for cell in &harness.buffer().content {
            assert_eq!(escape_invisible(cell.symbol()), cell.symbol(), "{name}");
            assert_ne!(cell.symbol(), "\u{fffd}", "{name}: something was scrubbed");
        }
    }
    // The invisible characters between these letters are escaped, not dropped.
    let picture = harness.draw();
    assert!(!picture.contains("cde"), "{name}\n{picture}");
    for item in &harness.app.view.stream.items {
        let words = narrator(&harness.app.view).item_text(item);
        assert_eq!(escape_invisible(&words), words, "{name}");
        assert!(!words.contains('\n'), "{name}: {words}");
        items += 1;
    }
    items
}

#[test]
fn every_transcript_is_shown_and_nothing_in_it_controls_the_terminal() {
    let mut items = 0;
    for (name, mut messages) in load_transcripts() {
        draw_transcript(&messages, &name);
        messages
            .iter_mut()
            .for_each(|message| insert_hostile_text(&mut message["payload"]));
        items += draw_transcript(&messages, &name);
    }
    assert!(items > 100, "{items} items were looked at");
}

/// The screen after a story, as its viewer sees it.
fn screen_after(story: &str) -> String {
    let mut harness = AppHarness::before_welcome(TuiConfig::default(), 100, 40);
    let suffix = format!("/{story}.told.jsonl");
    let transcripts = load_transcripts().into_iter();
    let mut found = transcripts.filter(|(name, _)| name.ends_with(&suffix));
    let (_, messages) = found.next().unwrap();
    for message in &messages {
        let envelope = parse_server_message(&message.to_string(), &Limits::default());
        let envelope = envelope.map_err(|error| error.refusal).unwrap();
        harness.input(AppInput::Message(Box::new(envelope.expect("a known type"))));
    }
    harness.draw()
}

/// From the proposal to the outcome, whoever tells it.
fn story_of_the_command(screen: &str) -> Vec<&str> {
    let lines = screen.lines().map(str::trim_end);
    let story = lines.skip_while(|line| !line.contains("proposes"));
    let story = story.filter(|line| !line.contains("joined"));
    story.take_while(|line| !line.is_empty()).collect()
}

#[test]
fn an_edit_looks_the_same_live_and_to_a_late_joiner() {
    let live = screen_after("an_edited_command_is_voted_on_again_and_runs");
    insta::assert_snapshot!("an_edit_seen_live", live);
    let late = screen_after("a_late_joiner_sees_what_was_edited_and_run");
    insta::assert_snapshot!("an_edit_seen_by_a_late_joiner", late);
    let between = screen_after("a_late_joiner_sees_what_was_edited");
    let what = |screen: &str| -> Vec<String> {
        let lines = story_of_the_command(screen).into_iter();
        // Without the time, which differs.
        lines.map(|line| line.chars().skip(10).collect()).collect()
    };
    assert!(what(&live).len() > 5, "{live}");
    assert_eq!(what(&live), what(&late));
    assert_eq!(what(&live), what(&between));
}
