//! Keeps long texts out of the log: a message refers to them by their hash, and they are read over
//! HTTP.
//!
//! Agents of the published protocol put whole files into context and proposals. Such a message is
//! taken on a server without login, and told with a reference in place of each long text.

use std::sync::Arc;

use pvp_protocol::payload::{CONTENT_REF_FIELD, Content, ContentRef, ContentStorage};
use pvp_protocol::{ClientMessage, Digest, JsonObject, Refusal, SessionId};
use serde_json::{Value, json};

use crate::admission;
use crate::directory::SessionDirectory;

/// The longest text that a message carries itself, in bytes.
const MAX_INLINE_BYTES: usize = 256 * 1024;

/// The same in a message that is too long as a whole.
const MAX_SHORT_BYTES: usize = 8 * 1024;

/// How much of a long text its place in the message shows, in bytes.
const EXCERPT_BYTES: usize = 2048;

/// The field of that excerpt.
const EXCERPT_FIELD: &str = "excerpt";

/// A text that was taken out of a message.
struct LongText {
    text: String,
    reference: ContentRef,
}

/// Replaces the long texts of a message with references, and keeps them. Other servers take no
/// message that is so long.
pub(crate) async fn replace_long_texts(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    message: &mut ClientMessage,
) -> Result<(), Refusal> {
    if !directory.config.open {
        return Ok(());
    }
    let mut taken = take_long_texts(session, message, MAX_INLINE_BYTES);
    let most = directory.settings.limits.message_bytes;
    if size_of(message) > most {
        taken.extend(take_long_texts(session, message, MAX_SHORT_BYTES));
        if size_of(message) > most {
            return Err(admission::too_big(&directory.settings.limits));
        }
    }
    let limit = directory.config.long_text_bytes;
    for taken in taken {
        let kept = directory.store.keep_content(session, taken.text, limit);
        match kept.await {
            Ok(true) => {}
            Ok(false) => {
                return Err(Refusal::SessionQuota {
                    session: session.clone(),
                    quota: "long_text_bytes",
                    limit,
                });
            }
            Err(error) => return Err(Refusal::WriteFailed(error.to_string())),
        }
    }
    Ok(())
}

/// How long a message is that may be longer than others.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only these messages bring files"
)]
fn size_of(message: &ClientMessage) -> usize {
    match message {
        ClientMessage::ContextAdd(_)
        | ClientMessage::ContextUpdate(_)
        | ClientMessage::ToolPropose(_) => {
            serde_json::to_vec(message).map_or(usize::MAX, |json| json.len())
        }
        _ => 0,
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only these messages bring files"
)]
fn take_long_texts(
    session: &SessionId,
    message: &mut ClientMessage,
    longest: usize,
) -> Vec<LongText> {
    let mut taken = Vec::new();
    match message {
        ClientMessage::ContextAdd(add) => {
            if let Some(long) = take_content(session, &mut add.content, longest) {
                add.content_ref = Some(long.reference.clone());
                taken.push(long);
            }
        }
        ClientMessage::ContextUpdate(update) => {
            if let Some(long) = take_content(session, &mut update.new_content, longest) {
                update.new_content_ref = Some(long.reference.clone());
                taken.push(long);
            }
        }
        ClientMessage::ToolPropose(propose) => {
            take_from_object(session, &mut propose.arguments, longest, &mut taken);
        }
        _ => {}
    }
    taken
}

fn take_content(
    session: &SessionId,
    content: &mut Option<Content>,
    longest: usize,
) -> Option<LongText> {
    let whole = content.take_if(|content| content.size() > longest)?;
    Some(match whole {
        Content::Text(text) => long_text(session, text, "text/plain"),
        Content::Object(object) => long_text(
            session,
            Value::Object(object).to_string(),
            "application/json",
        ),
    })
}

fn take_from_object(
    session: &SessionId,
    object: &mut JsonObject,
    longest: usize,
    taken: &mut Vec<LongText>,
) {
    for (_, value) in object.iter_mut() {
        take_from_value(session, value, longest, taken);
    }
}

fn take_from_value(
    session: &SessionId,
    value: &mut Value,
    longest: usize,
    taken: &mut Vec<LongText>,
) {
    match value {
        Value::String(text) if text.len() > longest => {
            let long = long_text(session, std::mem::take(text), "text/plain");
            let excerpt = &long.text[..long.text.floor_char_boundary(EXCERPT_BYTES)];
            *value = json!({ CONTENT_REF_FIELD: long.reference, EXCERPT_FIELD: excerpt });
            taken.push(long);
        }
        Value::Array(items) => {
            for item in items {
                take_from_value(session, item, longest, taken);
            }
        }
        Value::Object(object) => take_from_object(session, object, longest, taken),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn long_text(session: &SessionId, text: String, mime_type: &str) -> LongText {
    let hash = Digest::of_content(text.as_bytes());
    LongText {
        reference: ContentRef {
            hash,
            size_bytes: text.len() as u64,
            mime_type: mime_type.to_owned(),
            storage: ContentStorage::Local,
            uri: Some(format!("/sessions/{session}/contents/{hash}")),
        },
        text,
    }
}
