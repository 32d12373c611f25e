//! What an agent knows of its session: what people are called, and what is shared.

use std::collections::BTreeMap;

use pvp_protocol::payload::Content;
use pvp_protocol::{Envelope, ParticipantId, Sender, ServerMessage};

use super::Speaker;
use crate::brain::digest::ends;

/// People whose names are known, and bytes of a name.
const NAMES: usize = 1000;
const NAME_BYTES: usize = 200;

/// Keys of context whose content is known, and bytes of each.
const CONTEXT_KEYS: usize = 1000;
const CONTEXT_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct Lore {
    names: BTreeMap<ParticipantId, String>,
    context: BTreeMap<String, String>,
}

impl Lore {
    /// Takes what a message tells of people and of what is shared.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is not about people or context"
    )]
    pub(super) fn learn(&mut self, envelope: &Envelope) {
        match &envelope.message {
            ServerMessage::SessionWelcome(welcome) => {
                for person in &welcome.people {
                    self.meet(&person.announce.id, &person.announce.name);
                }
            }
            ServerMessage::Announce(announce) => self.meet(&announce.id, &announce.name),
            ServerMessage::ContextAdd(add) => self.share(&add.key, add.content.as_ref()),
            ServerMessage::ContextUpdate(update) => match (&update.new_content, &update.diff) {
                (Some(content), _) => self.share(&update.key, Some(content)),
                (None, Some(diff)) => self.change(&update.key, diff),
                (None, None) => {}
            },
            ServerMessage::ContextRemove(remove) => drop(self.context.remove(&remove.key)),
            _ => {}
        }
    }

    /// What to call someone.
    pub(super) fn name(&self, id: &ParticipantId) -> String {
        let name = self.names.get(id).cloned();
        name.unwrap_or_else(|| id.to_string())
    }

    /// Who sent something, if it was not the server.
    pub(super) fn speaker(&self, sender: &Sender) -> Option<Speaker> {
        match sender {
            Sender::System => None,
            Sender::Participant(id) => Some(Speaker {
                id: id.clone(),
                name: self.name(id),
            }),
        }
    }

    /// What these keys stand for.
    pub(super) fn recall(&self, keys: &[String]) -> Vec<(String, String)> {
        let known = |key: &String| {
            let text = self.context.get(key).cloned();
            let text = text.unwrap_or_else(|| "(not known to this agent)".to_owned());
            (key.clone(), text)
        };
        keys.iter().map(known).collect()
    }

    fn meet(&mut self, id: &ParticipantId, name: &str) {
        if self.names.len() < NAMES || self.names.contains_key(id) {
            self.names.insert(id.clone(), ends(name, NAME_BYTES));
        }
    }

    fn share(&mut self, key: &str, content: Option<&Content>) {
        let text = match content {
            Some(Content::Text(text)) => ends(text, CONTEXT_BYTES),
            Some(Content::Object(object)) => {
                let text = serde_json::Value::Object(object.clone()).to_string();
                ends(&text, CONTEXT_BYTES)
            }
            None => "(kept elsewhere; only its reference is shared)".to_owned(),
        };
        if self.context.len() < CONTEXT_KEYS || self.context.contains_key(key) {
            self.context.insert(key.to_owned(), text);
        }
    }

    fn change(&mut self, key: &str, diff: &str) {
        if let Some(text) = self.context.get_mut(key) {
            text.push_str(&format!("\n(changed since:)\n{diff}"));
            *text = ends(text, CONTEXT_BYTES);
        }
    }
}
