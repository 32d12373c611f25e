//! A question of Claude Code, and how its answer is worded.

use serde_json::{Value, json};

use crate::hooks::{HookAnswer, HookClient};

/// A question of the client, and how its answer is worded.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ControlQuestion {
    pub(super) id: String,
    wording: Wording,
}

#[derive(Debug, Clone, PartialEq)]
enum Wording {
    /// A hook asks.
    Hook,
    /// The client's permission prompt asks about this input.
    Permission { input: Value },
}

impl ControlQuestion {
    pub(super) fn hook(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            wording: Wording::Hook,
        }
    }

    pub(super) fn permission(id: &str, input: &Value) -> Self {
        let input = input.clone();
        Self {
            id: id.to_owned(),
            wording: Wording::Permission { input },
        }
    }

    pub(super) fn wording(&self, answer: &HookAnswer) -> Value {
        match &self.wording {
            Wording::Hook => {
                let reply = HookClient::Claude.reply(answer);
                serde_json::from_str(&reply.stdout).unwrap_or_else(|_| json!({}))
            }
            Wording::Permission { input } => match answer {
                HookAnswer::Allow { edited: None } => {
                    json!({ "behavior": "allow", "updatedInput": input })
                }
                HookAnswer::Allow {
                    edited: Some(edited),
                } => json!({ "behavior": "allow", "updatedInput": edited }),
                HookAnswer::Deny { reason, .. } | HookAnswer::Stop { reason } => {
                    json!({ "behavior": "deny", "message": reason })
                }
                HookAnswer::Nothing | HookAnswer::Defer | HookAnswer::Continue { .. } => {
                    json!({ "behavior": "deny", "message": "Not allowed." })
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_is_never_worded_as_nothing() {
        let permission = ControlQuestion::permission("q", &json!({ "command": "ls" }));
        let hook = ControlQuestion::hook("q");
        let deny = HookAnswer::deny("no");
        assert_eq!(permission.wording(&deny)["behavior"], "deny");
        let said = &hook.wording(&deny)["hookSpecificOutput"];
        assert_eq!(said["permissionDecision"], "deny");
        for other in [HookAnswer::Nothing, HookAnswer::Defer] {
            assert_eq!(permission.wording(&other)["behavior"], "deny");
        }
        let allow = HookAnswer::Allow { edited: None };
        assert_eq!(permission.wording(&allow)["updatedInput"]["command"], "ls");
    }
}
