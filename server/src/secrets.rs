//! Holds the values of shared secrets in memory, gives them to executors, and masks them in output.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use pvp_protocol::ParticipantId;
use pvp_protocol::payload::{ToolOutput, ToolResult, ToolResultValue};
use pvp_protocol::token_text::mask_tokens;
use serde_json::Value;

/// Shorter values are not masked, because they would match too much of any output.
const MIN_MASKED_BYTES: usize = 4;

/// How many revoked or replaced values are still masked, because a command may still print them.
const MAX_RETIRED: usize = 1000;

/// The value of one secret, and the executors that get it.
struct StoredSecret {
    value: String,
    scope: Vec<ParticipantId>,
}

#[derive(Default)]
struct SecretValues {
    secrets: BTreeMap<String, StoredSecret>,
    retired: VecDeque<String>,
}

/// The secret values of one session, in memory only.
#[derive(Default)]
pub(crate) struct SecretStore(Mutex<SecretValues>);

impl SecretStore {
    /// Stores the value of a shared secret; a share without a value only changes who gets it.
    pub(crate) fn share(&self, key: &str, scope: &[ParticipantId], value: Option<String>) {
        let mut values = self.0.lock();
        if let Some(value) = value {
            values.retire(key);
            let scope = scope.to_vec();
            values
                .secrets
                .insert(key.to_owned(), StoredSecret { value, scope });
        } else if let Some(secret) = values.secrets.get_mut(key) {
            secret.scope = scope.to_vec();
        }
    }

    /// Stops giving out a value, which stays masked in output.
    pub(crate) fn revoke(&self, key: &str) {
        self.0.lock().retire(key);
    }

    /// The environment variables with those of the named secrets that are shared with an executor;
    /// `None` if there are none.
    pub(crate) fn environment_for(
        &self,
        executor: &ParticipantId,
        names: &[String],
    ) -> Option<BTreeMap<String, String>> {
        let values = self.0.lock();
        let environment: BTreeMap<_, _> = values
            .secrets
            .iter()
            .filter(|(name, secret)| names.contains(name) && secret.scope.contains(executor))
            .map(|(key, secret)| (key.clone(), secret.value.clone()))
            .collect();
        (!environment.is_empty()).then_some(environment)
    }

    /// Masks every value and every login token with asterisks. The text keeps its length, so that
    /// offsets stay valid.
    fn mask_text(&self, text: &mut String) {
        let values = self.0.lock();
        let current = values.secrets.values().map(|secret| &secret.value);
        let mut present: Vec<_> = current
            .chain(&values.retired)
            .filter(|value| value.len() >= MIN_MASKED_BYTES && text.contains(value.as_str()))
            .collect();
        // Longest first: masking a value that is part of a longer one would leave the rest of the
        // longer one readable.
        present.sort_by_key(|value| std::cmp::Reverse(value.len()));
        for value in present {
            *text = text.replace(value.as_str(), &"*".repeat(value.len()));
        }
        mask_tokens(text);
    }

    pub(crate) fn mask_output(&self, output: &mut ToolOutput) {
        self.mask_text(&mut output.text);
    }

    /// Masks every text in a value. Names of fields are masked too, because a tool may put anything
    /// there.
    fn mask_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.mask_text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_value(item)),
            Value::Object(fields) => {
                let masked = std::mem::take(fields).into_iter();
                *fields = masked
                    .map(|(mut name, mut value)| {
                        self.mask_text(&mut name);
                        self.mask_value(&mut value);
                        (name, value)
                    })
                    .collect();
            }
            Value::Number(number) => {
                let mut text = number.to_string();
                self.mask_text(&mut text);
                if text != number.to_string() {
                    *value = Value::String(text);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    pub(crate) fn mask_result(&self, result: &mut ToolResult) {
        match &mut result.result {
            Some(ToolResultValue::Command(body)) => {
                self.mask_text(&mut body.stdout);
                self.mask_text(&mut body.stderr);
                let extra = body.extra.values_mut();
                extra.for_each(|value| self.mask_value(value));
            }
            Some(ToolResultValue::Other(value)) => self.mask_value(value),
            None => {}
        }
        let extra = result.extra.values_mut();
        extra.for_each(|value| self.mask_value(value));
        if let Some(error) = &mut result.error {
            self.mask_text(error);
        }
    }
}

impl SecretValues {
    fn retire(&mut self, key: &str) {
        let Some(secret) = self.secrets.remove(key) else {
            return;
        };
        if secret.value.len() >= MIN_MASKED_BYTES && !self.retired.contains(&secret.value) {
            self.retired.push_back(secret.value);
            if self.retired.len() > MAX_RETIRED {
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
        let secrets = SecretStore::default();
        let names = ["KEY", "SHORT"].map(str::to_owned);
        let bot = ParticipantId::parse("bot").unwrap();
        secrets.share(
            "KEY",
            std::slice::from_ref(&bot),
            Some("hünter2".to_owned()),
        );
        secrets.share("SHORT", &[], Some("ab".to_owned()));
        let mut text = "ab hünter2 hünter2!".to_owned();
        let before = text.len();
        secrets.mask_text(&mut text);
        assert_eq!(text, "ab ******** ********!");
        assert_eq!(text.len(), before);
        let expected = BTreeMap::from([("KEY".to_owned(), "hünter2".to_owned())]);
        assert_eq!(secrets.environment_for(&bot, &names), Some(expected));
        assert_eq!(
            secrets.environment_for(&ParticipantId::parse("ann").unwrap(), &names),
            None
        );
        secrets.share("KEY", &[], None);
        assert_eq!(
            secrets.environment_for(&bot, &names),
            None,
            "another scope, the same value"
        );
        secrets.share("KEY", std::slice::from_ref(&bot), None);
        assert!(secrets.environment_for(&bot, &names).is_some());
        let other = ["OTHER".to_owned()];
        assert_eq!(
            secrets.environment_for(&bot, &other),
            None,
            "only what a command names"
        );
        secrets.revoke("KEY");
        assert_eq!(secrets.environment_for(&bot, &names), None);
    }

    #[test]
    fn values_are_masked_wherever_a_result_has_them() {
        let secrets = SecretStore::default();
        secrets.share("KEY", &[], Some("s3cret".to_owned()));
        secrets.share("PIN", &[], Some("90210".to_owned()));
        for result in [
            serde_json::json!({"exitCode": 0, "stdout": "s3cret", "stderr": "s3cret", "note": "s3cret"}),
            serde_json::json!({"list": ["s3cret", {"s3cret": 90210}]}),
            serde_json::json!("s3cret"),
        ] {
            let result = serde_json::json!({
                "tool_proposal": "p1", "success": false, "result": result, "error": "s3cret",
                "duration_ms": 1, "more": {"deep": "s3cret"},
            });
            let mut result: ToolResult = serde_json::from_value(result).unwrap();
            secrets.mask_result(&mut result);
            let told = serde_json::to_string(&result).unwrap();
            assert!(
                !told.contains("s3cret") && !told.contains("90210"),
                "{told}"
            );
        }
    }

    #[test]
    fn revoked_and_replaced_values_stay_masked() {
        let secrets = SecretStore::default();
        let masked = |text: &str| {
            let mut text = text.to_owned();
            secrets.mask_text(&mut text);
            text
        };
        secrets.share("A", &[], Some("first-value".to_owned()));
        secrets.share("A", &[], Some("second-value".to_owned()));
        secrets.share("B", &[], Some("second".to_owned()));
        assert_eq!(
            masked("first-value second-value second"),
            "*********** ************ ******"
        );
        secrets.revoke("A");
        secrets.revoke("B");
        assert_eq!(
            masked("first-value second-value second"),
            "*********** ************ ******"
        );
    }
}
