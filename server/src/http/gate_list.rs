//! Shortens the gates in lists, which are asked for again after every change.

use pvp_protocol::api::GateListItem;
use pvp_protocol::{Action, Assessment, Command, JsonObject};
use serde::Serialize;
use serde_json::Value;

/// Bytes of JSON that a gate may have in a list. What is longer is read at the gate's own address.
const MAX_LISTED_BYTES: usize = 64 * 1024;

/// Bytes that are kept of each text of a longer gate: enough to recognise it.
const KEPT_TEXT_BYTES: usize = 2 * 1024;

/// Words, fields, variables and files that are kept of a longer gate.
const KEPT_ITEMS: usize = 16;

/// Longer names of fields and variables are left out with what they name.
const MAX_NAME_BYTES: usize = 256;

/// The gate as a list has it. It says how much of it is missing, so that nobody takes it for all.
pub(super) fn cut_for_list(mut item: GateListItem) -> GateListItem {
    let whole = json_length(&item.open);
    if whole <= MAX_LISTED_BYTES {
        return item;
    }
    cut_action(&mut item.open.action);
    cut_assessment(&mut item.open.assessment);
    cut_text(&mut item.open.description);
    cut_text(&mut item.open.request.message);
    let missing = whole.saturating_sub(json_length(&item.open));
    item.cut_bytes = (missing > 0).then_some(missing as u64);
    item
}

fn cut_action(action: &mut Action) {
    match &mut action.command {
        Command::Shell { line } | Command::LoginShell { line } => cut_text(line),
        Command::Argv { command, args } => {
            cut_text(command);
            cut_texts(args);
        }
        Command::Tool { name, arguments } => {
            cut_text(name);
            cut_arguments(arguments);
        }
    }
    if let Some(directory) = &mut action.cwd {
        cut_text(directory);
    }
    let mut variables = 0;
    action.env.retain(|name, value| {
        cut_text(value);
        variables += 1;
        name.len() <= MAX_NAME_BYTES && variables <= KEPT_ITEMS
    });
    cut_texts(&mut action.secrets);
    action.files.truncate(KEPT_ITEMS);
    action
        .files
        .retain(|file| file.path.len() <= KEPT_TEXT_BYTES);
}

/// Keeps what is short, and the beginnings of long texts: the contents of a file are not needed to
/// recognise its path.
fn cut_arguments(arguments: &mut JsonObject) {
    let mut fields = 0;
    arguments.retain(|name, value| {
        if let Value::String(text) = value {
            cut_text(text);
        }
        // Text may take more bytes as JSON than it has.
        let is_short = value.is_string() || json_length(value) <= KEPT_TEXT_BYTES;
        fields += usize::from(is_short);
        is_short && name.len() <= MAX_NAME_BYTES && fields <= KEPT_ITEMS
    });
}

fn cut_assessment(assessment: &mut Assessment) {
    cut_text(&mut assessment.reason);
    cut_texts(&mut assessment.notes);
    cut_texts(&mut assessment.needed_read_roots);
    assessment.parts.truncate(KEPT_ITEMS);
    for part in &mut assessment.parts {
        cut_text(&mut part.text);
        cut_text(&mut part.reason);
    }
}

fn cut_texts(texts: &mut Vec<String>) {
    texts.truncate(KEPT_ITEMS);
    texts.iter_mut().for_each(cut_text);
}

fn cut_text(text: &mut String) {
    if text.len() > KEPT_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(KEPT_TEXT_BYTES));
        // Whoever overlooks that something is missing sees it here.
        text.push('…');
    }
}

/// The bytes of a value as JSON, without writing it anywhere.
fn json_length(value: &impl Serialize) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).expect("a gate is plain data");
    counter.0
}
