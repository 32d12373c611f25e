//! Why calls were denied, kept until the agent is told.

use super::{Desk, MAX_CONVERSATIONS};
use crate::acp::SERVER_AWAY;
use crate::acp::calls::CallKey;

/// Reasons that wait to be told to an agent.
const MAX_REASONS: usize = 32;

impl Desk {
    pub(super) fn title(&mut self, key: &CallKey) -> String {
        let title: String = self.calls.title(key).chars().take(200).collect();
        match title.is_empty() {
            true => "the call".to_owned(),
            false => title,
        }
    }

    pub(super) fn keep_reason(&mut self, session: &str, reason: &str) {
        if self.reasons.len() >= MAX_CONVERSATIONS && !self.reasons.contains_key(session) {
            return;
        }
        let reasons = self.reasons.entry(session.to_owned()).or_default();
        if reasons.len() < MAX_REASONS {
            reasons.push(reason.to_owned());
        }
    }

    /// Why calls of a conversation were denied, for the agent to read; `None` if none was.
    pub(in crate::acp) fn take_reasons(&mut self, session: &str) -> Option<String> {
        let reasons = self.reasons.remove(session)?;
        let advice = "Do not try other ways to do the same.";
        let server_away = reasons.iter().all(|reason| reason.ends_with(SERVER_AWAY));
        // Nobody is there who could say more.
        (!server_away).then(|| format!("[PVP] {}\n{advice}", reasons.join("\n")))
    }
}
