//! The golden transcripts on the screen, as they were told and with hostile text in every field.

use pvp_client::view::escape_invisible;
use pvp_protocol::{Limits, parse_server_message};
use serde_json::Value;

use super::screens::HOSTILE;
use crate::app::Input;
use crate::config::Config;
use crate::scene::Scene;
use crate::words;

/// Fields that hold what somebody wrote.
const WRITTEN: &[&str] = &[
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

fn stories() -> Vec<(String, Vec<Value>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/transcripts");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let told = files.filter(|path| path.to_string_lossy().ends_with(".told.jsonl"));
    told.map(|path| {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        (path.display().to_string(), lines.collect())
    })
    .collect()
}

/// Puts hostile text into every field that somebody wrote.
fn poison(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if let (Value::String(text), true) = (&mut *field, WRITTEN.contains(&&**name)) {
                    // A name is short, so that all of it is on the screen.
                    let short = name == "name";
                    text.push_str(if short {
                        "c\u{202e}d\u{200b}e"
                    } else {
                        HOSTILE
                    });
                }
                poison(field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(poison),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn shown(told: &[Value], name: &str) -> usize {
    let mut scene = Scene::empty(Config::default(), 100, 40);
    let mut items = 0;
    for message in told {
        let limits = Limits {
            json_depth: 128,
            ..Limits::default()
        };
        let envelope = parse_server_message(&message.to_string(), &limits);
        let envelope = envelope.map_err(|error| error.refusal).unwrap();
        scene.input(Input::Told(Box::new(envelope.expect("a known type"))));
        for cell in &scene.buffer().content {
            assert_eq!(escape_invisible(cell.symbol()), cell.symbol(), "{name}");
            assert_ne!(cell.symbol(), "\u{fffd}", "{name}: something was scrubbed");
        }
    }
    // What stands between these letters is written out, not left out.
    let picture = scene.draw();
    assert!(!picture.contains("cde"), "{name}\n{picture}");
    for item in &scene.app.view.stream.items {
        let words = words::what(&scene.app.view, item);
        assert_eq!(escape_invisible(&words), words, "{name}");
        assert!(!words.contains('\n'), "{name}: {words}");
        items += 1;
    }
    items
}

#[test]
fn every_story_is_shown_and_nothing_in_it_acts_on_the_terminal() {
    let mut items = 0;
    for (name, mut told) in stories() {
        shown(&told, &name);
        told.iter_mut()
            .for_each(|message| poison(&mut message["payload"]));
        items += shown(&told, &name);
    }
    assert!(items > 100, "{items} items were looked at");
}
