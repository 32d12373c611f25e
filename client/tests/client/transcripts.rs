//! Plays the stories in `tests/transcripts` and compares the messages that one viewer receives, and
//! the view they fold into, with the golden files.
//!
//! With `PVP_BLESS=1` the golden files are written; without it, both must match them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{StoryPlayer, StoryStep};
use pvp_client::View;
use pvp_protocol::{Limits, parse_server_message};

fn transcripts_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/transcripts")
}

fn story_names() -> Vec<String> {
    let files = fs::read_dir(transcripts_directory()).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = files
        .filter_map(|file| Some(file.strip_suffix(".story.jsonl")?.to_owned()))
        .collect();
    names.sort();
    names
}

/// The messages that the viewer of a story receives, one envelope per line.
fn delivered_lines(name: &str) -> String {
    let story =
        fs::read_to_string(transcripts_directory().join(format!("{name}.story.jsonl"))).unwrap();
    let steps: Vec<_> = story.lines().map(StoryStep::parse).collect();
    let lines = StoryPlayer::play_story(&steps).delivered.into_iter();
    lines
        .map(|envelope| String::from_utf8(envelope.to_json()).unwrap() + "\n")
        .collect()
}

/// The view that those lines fold into, as JSON that can be compared across languages.
fn view_json(delivered: &str) -> String {
    let mut view = View::default();
    for line in delivered.lines() {
        view.fold(
            &parse_server_message(line, &Limits::default())
                .unwrap()
                .unwrap(),
        );
    }
    serde_json::to_string_pretty(&view).unwrap() + "\n"
}

#[track_caller]
fn compare_with_golden(name: &str, kind: &str, actual: &str) {
    let path = transcripts_directory().join(format!("{name}.{kind}"));
    if std::env::var_os("PVP_BLESS").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let differs = golden
        .lines()
        .zip(actual.lines())
        .position(|(golden, actual)| golden != actual);
    assert!(
        golden == actual,
        "{name}.{kind} is not as written, first in line {}; look, and bless with PVP_BLESS=1",
        differs.map_or("of another length".to_owned(), |line| (line + 1)
            .to_string())
    );
}

#[test]
fn every_story_gives_the_golden_messages_and_view() {
    let names = story_names();
    assert!(names.len() >= 20, "{names:?}");
    for name in &names {
        let delivered = delivered_lines(name);
        compare_with_golden(name, "told.jsonl", &delivered);
        compare_with_golden(name, "view.json", &view_json(&delivered));
    }
}

#[test]
fn folding_the_log_again_changes_nothing() {
    for name in story_names() {
        let delivered = delivered_lines(&name);
        let log = |line: &&str| line.contains(r#","seq":"#);
        let again: Vec<_> = delivered
            .lines()
            .chain(delivered.lines().filter(log))
            .collect();
        assert_eq!(
            view_json(&again.join("\n")),
            view_json(&delivered),
            "{name}"
        );
    }
}
