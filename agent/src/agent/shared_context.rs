//! The contents of the shared context, which a view leaves out.

use std::collections::BTreeMap;

use pvp_protocol::payload::Content;
use pvp_protocol::{Envelope, ServerMessage};

use crate::brain::result_text::truncate_middle;

/// Context keys whose content is stored.
const MAX_CONTEXT_KEYS: usize = 1000;
/// Bytes of one item's content.
const MAX_CONTEXT_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct SharedContext {
    contents: BTreeMap<String, String>,
}

impl SharedContext {
    /// Updates the contents from a message.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is not about the context"
    )]
    pub(super) fn on_message(&mut self, envelope: &Envelope) {
        match &envelope.message {
            ServerMessage::ContextAdd(add) => self.set(&add.key, add.content.as_ref()),
            ServerMessage::ContextUpdate(update) => match (&update.new_content, &update.diff) {
                (Some(content), _) => self.set(&update.key, Some(content)),
                (None, Some(diff)) => self.append_diff(&update.key, diff),
                (None, None) => {}
            },
            ServerMessage::ContextRemove(remove) => drop(self.contents.remove(&remove.key)),
            _ => {}
        }
    }

    /// The content of these keys.
    pub(super) fn lookup(&self, keys: &[String]) -> Vec<(String, String)> {
        let known = |key: &String| {
            let text = self.contents.get(key).cloned();
            let text = text.unwrap_or_else(|| "(not known to this agent)".to_owned());
            (key.clone(), text)
        };
        keys.iter().map(known).collect()
    }

    fn set(&mut self, key: &str, content: Option<&Content>) {
        let text = match content {
            Some(Content::Text(text)) => truncate_middle(text, MAX_CONTEXT_BYTES),
            Some(Content::Object(object)) => {
                let text = serde_json::Value::Object(object.clone()).to_string();
                truncate_middle(&text, MAX_CONTEXT_BYTES)
            }
            None => "(kept elsewhere; only its reference is shared)".to_owned(),
        };
        if self.contents.len() < MAX_CONTEXT_KEYS || self.contents.contains_key(key) {
            self.contents.insert(key.to_owned(), text);
        }
    }

    fn append_diff(&mut self, key: &str, diff: &str) {
        if let Some(text) = self.contents.get_mut(key) {
            text.push_str(&format!("\n(changed since:)\n{diff}"));
            *text = truncate_middle(text, MAX_CONTEXT_BYTES);
        }
    }
}
