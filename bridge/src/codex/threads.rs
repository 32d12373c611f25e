//! The conversations that an app-server has, as far as the bridge has to know them.

use std::collections::HashMap;

use pvp_protocol::JsonObject;
use serde_json::Value;

use super::wire::text;

/// Conversations that are known at the same time; further ones have no name.
const MAX_THREADS: usize = 4096;

/// A subagent whose name is not known.
const UNNAMED: &str = "subagent";

/// One conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Thread {
    /// Whether Codex has described it.
    is_known: bool,
    /// Whom it belongs to, if a subagent has it.
    pub(super) subagent: Option<String>,
    /// Whether it is beside the work: Codex asks for a title in such a one.
    pub(super) is_temporary: bool,
    /// The turn that is going on.
    pub(super) turn: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Threads {
    threads: HashMap<String, Thread>,
    /// The conversation that people speak to: the last one in which somebody said something.
    main: Option<String>,
}

impl Threads {
    /// Learns of a conversation from what describes it.
    pub(super) fn learn(&mut self, described: Option<&Value>) {
        let Some(Value::Object(described)) = described else {
            return;
        };
        let id = text(described, "id");
        if id.is_empty() {
            return;
        }
        let is_temporary = described.get("ephemeral") == Some(&Value::Bool(true));
        let subagent = subagent(described);
        if subagent.is_none() && !is_temporary && self.main.is_none() {
            self.main = Some(id.to_owned());
        }
        if let Some(thread) = self.entry(id) {
            thread.is_known = true;
            thread.subagent = subagent;
            thread.is_temporary = is_temporary;
        }
    }

    pub(super) fn get(&self, id: &str) -> Thread {
        self.threads.get(id).cloned().unwrap_or_default()
    }

    /// The subagent that has a conversation. What nobody began belongs to one.
    pub(super) fn subagent(&self, id: &str) -> Option<String> {
        let thread = self.get(id);
        let unknown = (!thread.is_known).then(|| UNNAMED.to_owned());
        thread.subagent.or(unknown)
    }

    /// Names the subagent that has a conversation.
    pub(super) fn name_subagent(&mut self, id: &str, name: &str) {
        if let Some(thread) = self.entry(id).filter(|thread| !thread.is_known) {
            thread.subagent = Some(name.chars().take(64).collect());
        }
    }

    /// Whether this is a conversation with people.
    pub(super) fn is_spoken_to(&self, id: &str) -> bool {
        self.subagent(id).is_none() && !self.get(id).is_temporary
    }

    pub(super) fn main(&self) -> Option<&str> {
        self.main.as_deref()
    }

    /// Notes that somebody says something in a conversation.
    pub(super) fn speak_to(&mut self, id: &str) {
        if self.is_spoken_to(id) {
            self.main = Some(id.to_owned());
        }
    }

    pub(super) fn begin_turn(&mut self, id: &str, turn: &str) {
        if let Some(thread) = self.entry(id) {
            thread.turn = Some(turn.to_owned());
        }
    }

    pub(super) fn end_turn(&mut self, id: &str) {
        if let Some(thread) = self.threads.get_mut(id) {
            thread.turn = None;
        }
    }

    /// The turns that are going on, by conversation.
    pub(super) fn turns(&self) -> Vec<(String, String)> {
        let turns = self.threads.iter();
        let turns = turns.filter(|(_, thread)| !thread.is_temporary);
        turns
            .filter_map(|(id, thread)| Some((id.clone(), thread.turn.clone()?)))
            .collect()
    }

    fn entry(&mut self, id: &str) -> Option<&mut Thread> {
        if !self.threads.contains_key(id) && self.threads.len() >= MAX_THREADS {
            tracing::warn!("Codex has more conversations than are followed");
            return None;
        }
        Some(self.threads.entry(id.to_owned()).or_default())
    }
}

/// The name of the subagent that has a conversation.
fn subagent(described: &JsonObject) -> Option<String> {
    let parent = described.get("parentThreadId").filter(|it| !it.is_null());
    parent?;
    let named = ["agentNickname", "agentRole"].map(|name| text(described, name));
    let named = named.into_iter().find(|name| !name.is_empty());
    Some(named.unwrap_or(UNNAMED).chars().take(64).collect())
}
