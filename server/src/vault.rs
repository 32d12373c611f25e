//! Values of shared secrets: in memory only, handed to executors, masked in output.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use pvp_protocol::ParticipantId;
use pvp_protocol::payload::{ToolOutput, ToolResult};

/// Shorter values are not masked: they would black out half of any output.
const SHORTEST_MASKED: usize = 4;

/// What one secret is, and which executors get it.
struct Held {
    value: String,
    scope: Vec<ParticipantId>,
}

/// The secret values of one session. Forgotten when the server stops.
#[derive(Default)]
pub(crate) struct Vault(Mutex<BTreeMap<String, Held>>);

impl Vault {
    pub(crate) fn keep(&self, key: String, value: String, scope: Vec<ParticipantId>) {
        self.0.lock().insert(key, Held { value, scope });
    }

    pub(crate) fn forget(&self, key: &str) {
        self.0.lock().remove(key);
    }

    /// What goes into an executor's environment, if anything.
    pub(crate) fn environment(&self, executor: &ParticipantId) -> Option<BTreeMap<String, String>> {
        let held = self.0.lock();
        let environment: BTreeMap<_, _> = held
            .iter()
            .filter(|(_, held)| held.scope.contains(executor))
            .map(|(key, held)| (key.clone(), held.value.clone()))
            .collect();
        (!environment.is_empty()).then_some(environment)
    }

    /// Blacks out every value; the text keeps its length, so that offsets stay true.
    fn mask(&self, text: &mut String) {
        for held in self.0.lock().values() {
            if held.value.len() >= SHORTEST_MASKED && text.contains(&held.value) {
                *text = text.replace(&held.value, &"*".repeat(held.value.len()));
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_masked_byte_for_byte_and_given_in_scope_only() {
        let vault = Vault::default();
        let bot = ParticipantId::parse("bot").unwrap();
        vault.keep("KEY".to_owned(), "hünter2".to_owned(), vec![bot.clone()]);
        vault.keep("SHORT".to_owned(), "ab".to_owned(), vec![]);
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
        vault.forget("KEY");
        assert_eq!(vault.environment(&bot), None);
    }
}
