//! The golden transcripts in `tests/transcripts`: stories, what one viewer is told, what they see.
//!
//! `PVP_BLESS=1` writes what is told and seen; without it, both must be as written.

#![allow(
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

mod kit;

use std::fs;
use std::path::{Path, PathBuf};

use kit::{Stage, Step};
use pvp_client::View;
use pvp_protocol::{Limits, parse_server_message};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/transcripts")
}

fn names() -> Vec<String> {
    let files = fs::read_dir(folder()).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = files
        .filter_map(|file| Some(file.strip_suffix(".story.jsonl")?.to_owned()))
        .collect();
    names.sort();
    names
}

/// What the viewer of a story is told, one envelope a line.
fn told(name: &str) -> String {
    let story = fs::read_to_string(folder().join(format!("{name}.story.jsonl"))).unwrap();
    let steps: Vec<_> = story.lines().map(Step::read).collect();
    let lines = Stage::play(&steps).told.into_iter();
    lines
        .map(|envelope| String::from_utf8(envelope.to_json()).unwrap() + "\n")
        .collect()
}

/// What they see, as any language reads it from those lines.
fn seen(told: &str) -> String {
    let mut view = View::default();
    for line in told.lines() {
        view.fold(
            &parse_server_message(line, &Limits::default())
                .unwrap()
                .unwrap(),
        );
    }
    serde_json::to_string_pretty(&view).unwrap() + "\n"
}

#[track_caller]
fn compare(name: &str, kind: &str, actual: &str) {
    let path = folder().join(format!("{name}.{kind}"));
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
fn every_story_is_told_and_seen_as_written() {
    let names = names();
    assert!(names.len() >= 20, "{names:?}");
    for name in &names {
        let told = told(name);
        compare(name, "told.jsonl", &told);
        compare(name, "view.json", &seen(&told));
    }
}

#[test]
fn being_told_again_what_is_in_the_log_changes_nothing() {
    for name in names() {
        let told = told(&name);
        let log = |line: &&str| line.contains(r#","seq":"#);
        let again: Vec<_> = told.lines().chain(told.lines().filter(log)).collect();
        assert_eq!(seen(&again.join("\n")), seen(&told), "{name}");
    }
}
