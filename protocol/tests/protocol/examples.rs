//! Loads the golden examples and makes invalid variants of them.
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "the crate touches no files; its examples are files, and a bad one fails the test"
)]

use std::path::{Path, PathBuf};

use pvp_protocol::{
    ClientMessage, Envelope, Limits, MessageParseError, ServerMessage, Timestamp, WireMessage,
    parse_client_message, parse_server_message,
};
use serde_json::{Value, json};

/// Who sends a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageSide {
    Client,
    Server,
}

impl MessageSide {
    pub(crate) fn name(self) -> &'static str {
        match self {
            MessageSide::Client => "client",
            MessageSide::Server => "server",
        }
    }

    pub(crate) fn kinds(self) -> &'static [&'static str] {
        match self {
            MessageSide::Client => ClientMessage::KINDS,
            MessageSide::Server => ServerMessage::KINDS,
        }
    }

    /// Parses an envelope and serialises it again.
    pub(crate) fn round_trip(self, envelope: &Value) -> Result<Value, MessageParseError> {
        let text = envelope.to_string();
        match self {
            MessageSide::Client => {
                let (header, message) = parse_client_message(&text, &Limits::default())?;
                let at = envelope["ts"].as_str().unwrap_or_default();
                Ok(to_value(&Envelope {
                    header,
                    at: Timestamp::parse(at).unwrap_or_default(),
                    seq: None,
                    message,
                }))
            }
            MessageSide::Server => {
                let read = parse_server_message(&text, &Limits::default())?;
                Ok(to_value(&read.expect("a known type")))
            }
        }
    }
}

fn to_value<M: WireMessage>(envelope: &Envelope<M>) -> Value {
    serde_json::from_slice(&envelope.to_json()).expect("an envelope is JSON")
}

/// One file: `<type>.json`, or `<type>.<variant>.json` beside it.
#[derive(Debug)]
pub(crate) struct Example {
    pub(crate) side: MessageSide,
    pub(crate) name: String,
    pub(crate) envelope: Value,
}

impl Example {
    pub(crate) fn kind(&self) -> &str {
        self.envelope["type"].as_str().expect("`type` is a string")
    }

    /// The example with another payload.
    pub(crate) fn with_payload(&self, payload: Value) -> Value {
        let mut envelope = self.envelope.clone();
        envelope["payload"] = payload;
        envelope
    }

    /// The file it came from, for messages.
    pub(crate) fn file(&self) -> String {
        format!("golden/{}/{}.json", self.side.name(), self.name)
    }
}

pub(crate) fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Every example, in the order of the file names.
pub(crate) fn load_examples() -> Vec<Example> {
    let mut examples: Vec<_> = [MessageSide::Client, MessageSide::Server]
        .into_iter()
        .flat_map(load_side)
        .collect();
    examples.sort_by_key(Example::file);
    examples
}

fn load_side(side: MessageSide) -> Vec<Example> {
    let directory = golden_dir().join(side.name());
    let files = std::fs::read_dir(directory).expect("the directory of examples");
    files
        .map(|file| {
            let path = file.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("a readable example");
            let name = path.file_stem().and_then(|stem| stem.to_str());
            Example {
                side,
                name: name.expect("a plain name").to_owned(),
                envelope: serde_json::from_str(&text)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display())),
            }
        })
        .collect()
}

/// A payload with one change, at any depth.
#[derive(Debug)]
pub(crate) struct MutatedPayload {
    pub(crate) payload: Value,
    /// The name of the field that was changed.
    pub(crate) field: String,
    pub(crate) mutation: String,
}

/// The payload without one of its keys, for every key.
pub(crate) fn with_key_removed(payload: &Value) -> Vec<MutatedPayload> {
    let mut mutated = Vec::new();
    for (at, field) in keys(payload) {
        let mut payload = payload.clone();
        let object = payload.pointer_mut(&at).and_then(Value::as_object_mut);
        object.expect("an object").remove(&field);
        let how = format!("{at}/{field} removed");
        mutated.push(MutatedPayload {
            payload,
            field,
            mutation: how,
        });
    }
    mutated
}

/// The payload with a value of another kind at one of its keys, for every key and five values.
pub(crate) fn with_value_replaced(payload: &Value) -> Vec<MutatedPayload> {
    let wrong = [json!(null), json!(7), json!("x"), json!([]), json!({})];
    let mut mutated = Vec::new();
    for (at, field) in keys(payload) {
        for value in &wrong {
            let mut payload = payload.clone();
            let object = payload.pointer_mut(&at).and_then(Value::as_object_mut);
            object
                .expect("an object")
                .insert(field.clone(), value.clone());
            let how = format!("{at}/{field} set to {value}");
            let field = field.clone();
            mutated.push(MutatedPayload {
                payload,
                field,
                mutation: how,
            });
        }
    }
    mutated
}

/// Every key of every nested object, with the pointer to its object.
fn keys(value: &Value) -> Vec<(String, String)> {
    fn collect(at: &str, value: &Value, found: &mut Vec<(String, String)>) {
        if let Value::Object(object) = value {
            for (key, inner) in object {
                found.push((at.to_owned(), key.clone()));
                let key = key.replace('~', "~0").replace('/', "~1");
                collect(&format!("{at}/{key}"), inner, found);
            }
        }
        for (index, inner) in value.as_array().into_iter().flatten().enumerate() {
            collect(&format!("{at}/{index}"), inner, found);
        }
    }
    let mut found = Vec::new();
    collect("", value, &mut found);
    found
}
