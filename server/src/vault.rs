//! Values of shared secrets: in memory only, handed to executors, masked in output.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use pvp_protocol::ParticipantId;
use pvp_protocol::payload::{ToolOutput, ToolResult};

/// Shorter values are not masked: they would black out half of any output.
const SHORTEST_MASKED: usize = 4;

/// Values that are masked after they were revoked or replaced: a command may still print them.
const RETIRED: usize = 1000;

/// What one secret is, and which executors get it.
struct Held {
    value: String,
    scope: Vec<ParticipantId>,
}

#[derive(Default)]
struct Values {
    held: BTreeMap<String, Held>,
    retired: VecDeque<String>,
}

/// The secret values of one session. Forgotten when the server stops.
#[derive(Default)]
pub(crate) struct Vault(Mutex<Values>);

impl Vault {
    /// Keeps a value that came with a share; a share without one changes who gets the value held.
    pub(crate) fn share(&self, key: &str, scope: &[ParticipantId], value: Option<String>) {
        let mut values = self.0.lock();
        if let Some(value) = value {
            values.retire(key);
            let scope = scope.to_vec();
            values.held.insert(key.to_owned(), Held { value, scope });
        } else if let Some(held) = values.held.get_mut(key) {
            held.scope = scope.to_vec();
        }
    }

    /// Nobody gets the value any more; it is still masked.
    pub(crate) fn revoke(&self, key: &str) {
        self.0.lock().retire(key);
    }

    /// What goes into an executor's environment, if anything.
    pub(crate) fn environment(&self, executor: &ParticipantId) -> Option<BTreeMap<String, String>> {
        let values = self.0.lock();
        let environment: BTreeMap<_, _> = values
            .held
            .iter()
            .filter(|(_, held)| held.scope.contains(executor))
            .map(|(key, held)| (key.clone(), held.value.clone()))
            .collect();
        (!environment.is_empty()).then_some(environment)
    }

    /// Blacks out every value; the text keeps its length, so that offsets stay true.
    fn mask(&self, text: &mut String) {
        let values = self.0.lock();
        let held = values.held.values().map(|held| &held.value);
        let mut found: Vec<_> = held
            .chain(&values.retired)
            .filter(|value| value.len() >= SHORTEST_MASKED && text.contains(value.as_str()))
            .collect();
        // A value that is part of a longer one must not leave the rest of that one in the open.
        found.sort_by_key(|value| std::cmp::Reverse(value.len()));
        for value in found {
            *text = text.replace(value.as_str(), &"*".repeat(value.len()));
        }
    }

    pub(crate) fn mask_output(&self, output: &mut ToolOutput) {
        self.mask(&mut output.text);
    }

    pub(crate) fn mask_result(&self, result: &mut ToolResult) {
        if let Some(body) = &mut result.result {
            self.mask(&mut body.stdout);
            self.mask(&mut body.stderr);
        }
        if let Some(error) = &mut result.error {
            self.mask(error);
        }
    }
}

impl Values {
    fn retire(&mut self, key: &str) {
        let Some(held) = self.held.remove(key) else {
            return;
        };
        if held.value.len() >= SHORTEST_MASKED && !self.retired.contains(&held.value) {
            self.retired.push_back(held.value);
            if self.retired.len() > RETIRED {
                self.retired.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_masked_byte_for_byte_and_given_in_scope_only() {
        let vault = Vault::default();
        let bot = ParticipantId::parse("bot").unwrap();
        vault.share(
            "KEY",
            std::slice::from_ref(&bot),
            Some("hünter2".to_owned()),
        );
        vault.share("SHORT", &[], Some("ab".to_owned()));
        let mut text = "ab hünter2 hünter2!".to_owned();
        let before = text.len();
        vault.mask(&mut text);
        assert_eq!(text, "ab ******** ********!");
        assert_eq!(text.len(), before);
        let expected = BTreeMap::from([("KEY".to_owned(), "hünter2".to_owned())]);
        assert_eq!(vault.environment(&bot), Some(expected));
        assert_eq!(
            vault.environment(&ParticipantId::parse("ann").unwrap()),
            None
        );
        vault.share("KEY", &[], None);
        assert_eq!(
            vault.environment(&bot),
            None,
            "another scope, the same value"
        );
        vault.share("KEY", std::slice::from_ref(&bot), None);
        assert!(vault.environment(&bot).is_some());
        vault.revoke("KEY");
        assert_eq!(vault.environment(&bot), None);
    }

    #[test]
    fn what_was_known_once_stays_masked() {
        let vault = Vault::default();
        let masked = |text: &str| {
            let mut text = text.to_owned();
            vault.mask(&mut text);
            text
        };
        vault.share("A", &[], Some("first-value".to_owned()));
        vault.share("A", &[], Some("second-value".to_owned()));
        vault.share("B", &[], Some("second".to_owned()));
        assert_eq!(
            masked("first-value second-value second"),
            "*********** ************ ******"
        );
        vault.revoke("A");
        vault.revoke("B");
        assert_eq!(
            masked("first-value second-value second"),
            "*********** ************ ******"
        );
    }
}
