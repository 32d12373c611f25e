//! Reads what a program writes to `pvp connect`: how it begins, then one envelope per line.

use anyhow::Context;
use pvp_client::{Connection, fresh_id};
use pvp_protocol::{JsonObject, MessageId, VERSION};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use crate::cli;

/// The lines of standard input.
pub(super) struct ProgramInput {
    lines: Lines<BufReader<Stdin>>,
    /// What was read and still is to be sent.
    unread: Option<JsonObject>,
    /// Whether every line so far was understood.
    pub(super) all_valid: bool,
}

/// How a program begins.
#[derive(Default)]
pub(super) struct Opening {
    /// Its `session.create`, if it begins with one.
    pub(super) create: Option<JsonObject>,
    /// Its `session.join`, if that comes first or after the create.
    pub(super) join: Option<JsonObject>,
}

impl ProgramInput {
    pub(super) fn new() -> Self {
        Self {
            lines: BufReader::new(tokio::io::stdin()).lines(),
            unread: None,
            all_valid: true,
        }
    }

    /// The next line that is a JSON object; `None` at the end. Says what is wrong with the others.
    pub(super) async fn next_object(&mut self) -> anyhow::Result<Option<JsonObject>> {
        if let Some(unread) = self.unread.take() {
            return Ok(Some(unread));
        }
        let read_failed = "reading standard input";
        while let Some(line) = self.lines.next_line().await.context(read_failed)? {
            if line.trim().is_empty() {
                continue;
            }
            match serde_json::from_str(&line) {
                Ok(object) => return Ok(Some(object)),
                Err(error) => {
                    let problem = "each line must be a JSON object";
                    self.complain(&anyhow::Error::new(error).context(problem));
                }
            }
        }
        Ok(None)
    }

    /// Says what is wrong with a line.
    pub(super) fn complain(&mut self, problem: &anyhow::Error) {
        self.all_valid = false;
        cli::print_error(problem);
    }

    /// Reads how the program begins. Another message than a create or a join is sent later.
    pub(super) async fn read_opening(&mut self) -> anyhow::Result<Opening> {
        let mut opening = Opening::default();
        while let Some(object) = self.next_object().await? {
            match text_of(&object, "type") {
                "session.create" if opening.create.is_none() => opening.create = Some(object),
                "session.join" => {
                    opening.join = Some(object);
                    break;
                }
                _ => {
                    self.unread = Some(object);
                    break;
                }
            }
        }
        Ok(opening)
    }
}

/// The text of a field; empty if there is none.
pub(super) fn text_of<'a>(object: &'a JsonObject, key: &str) -> &'a str {
    let value = object.get(key).and_then(Value::as_str);
    value.unwrap_or_default()
}

/// A whole envelope.
pub(super) struct CompleteEnvelope {
    pub(super) id: MessageId,
    pub(super) kind: String,
    pub(super) text: String,
}

/// Completes an envelope by filling in the fields that it leaves out.
pub(super) fn complete_envelope(
    mut envelope: JsonObject,
    session: Option<&str>,
    sender: Option<&str>,
) -> anyhow::Result<CompleteEnvelope> {
    let mut default = |key: &str, value: Value| {
        envelope.entry(key).or_insert(value);
    };
    default("v", VERSION.into());
    default("id", fresh_id().as_str().into());
    if let Some(session) = session {
        default("session", session.into());
    }
    if let Some(sender) = sender {
        default("sender", sender.into());
    }
    default("payload", JsonObject::new().into());
    let id = text_of(&envelope, "id");
    let id = MessageId::parse(id).map_err(|_| anyhow::anyhow!("`{id}` cannot be an id"))?;
    let kind = text_of(&envelope, "type").to_owned();
    let text = serde_json::to_string(&envelope).context("writing an envelope")?;
    Ok(CompleteEnvelope { id, kind, text })
}

/// The same, for somebody who has joined.
pub(super) fn complete_for(
    connection: &Connection,
    envelope: JsonObject,
) -> anyhow::Result<CompleteEnvelope> {
    let session = Some(connection.session().as_str());
    complete_envelope(envelope, session, Some(connection.participant().as_str()))
}
