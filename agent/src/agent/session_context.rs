//! What an agent knows about its session: the names of participants and the shared context.

use std::collections::BTreeMap;

use pvp_protocol::payload::Content;
use pvp_protocol::{Envelope, ParticipantId, Sender, ServerMessage};

use super::Requester;
use crate::brain::result_text::truncate_middle;

/// Participants whose names are stored.
const MAX_NAMES: usize = 1000;
/// Bytes of one name.
const MAX_NAME_BYTES: usize = 200;

/// Context keys whose content is stored.
const MAX_CONTEXT_KEYS: usize = 1000;
/// Bytes of one item's content.
const MAX_CONTEXT_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct SessionContext {
    participant_names: BTreeMap<ParticipantId, String>,
    shared_context: BTreeMap<String, String>,
}

impl SessionContext {
    /// Updates names and context from a message.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is not about people or context"
    )]
    pub(super) fn on_message(&mut self, envelope: &Envelope) {
        match &envelope.message {
            ServerMessage::SessionWelcome(welcome) => {
                for participant in &welcome.people {
                    self.set_name(&participant.announce.id, &participant.announce.name);
                }
            }
            ServerMessage::Announce(announce) => self.set_name(&announce.id, &announce.name),
            ServerMessage::ContextAdd(add) => self.set_context(&add.key, add.content.as_ref()),
            ServerMessage::ContextUpdate(update) => match (&update.new_content, &update.diff) {
                (Some(content), _) => self.set_context(&update.key, Some(content)),
                (None, Some(diff)) => self.append_diff(&update.key, diff),
                (None, None) => {}
            },
            ServerMessage::ContextRemove(remove) => drop(self.shared_context.remove(&remove.key)),
            _ => {}
        }
    }

    /// The name of a participant, or the id if the name is not known.
    pub(super) fn display_name(&self, id: &ParticipantId) -> String {
        let name = self.participant_names.get(id).cloned();
        name.unwrap_or_else(|| id.to_string())
    }

    /// The participant who sent a message; `None` if it was the server.
    pub(super) fn requester(&self, sender: &Sender) -> Option<Requester> {
        match sender {
            Sender::System => None,
            Sender::Participant(id) => Some(Requester {
                id: id.clone(),
                name: self.display_name(id),
            }),
        }
    }

    /// The content of these keys.
    pub(super) fn lookup_context(&self, keys: &[String]) -> Vec<(String, String)> {
        let known = |key: &String| {
            let text = self.shared_context.get(key).cloned();
            let text = text.unwrap_or_else(|| "(not known to this agent)".to_owned());
            (key.clone(), text)
        };
        keys.iter().map(known).collect()
    }

    fn set_name(&mut self, id: &ParticipantId, name: &str) {
        if self.participant_names.len() < MAX_NAMES || self.participant_names.contains_key(id) {
            self.participant_names
                .insert(id.clone(), truncate_middle(name, MAX_NAME_BYTES));
        }
    }

    fn set_context(&mut self, key: &str, content: Option<&Content>) {
        let text = match content {
            Some(Content::Text(text)) => truncate_middle(text, MAX_CONTEXT_BYTES),
            Some(Content::Object(object)) => {
                let text = serde_json::Value::Object(object.clone()).to_string();
                truncate_middle(&text, MAX_CONTEXT_BYTES)
            }
            None => "(kept elsewhere; only its reference is shared)".to_owned(),
        };
        if self.shared_context.len() < MAX_CONTEXT_KEYS || self.shared_context.contains_key(key) {
            self.shared_context.insert(key.to_owned(), text);
        }
    }

    fn append_diff(&mut self, key: &str, diff: &str) {
        if let Some(text) = self.shared_context.get_mut(key) {
            text.push_str(&format!("\n(changed since:)\n{diff}"));
            *text = truncate_middle(text, MAX_CONTEXT_BYTES);
        }
    }
}
