//! What a hook says to its client, in words that are the same for every client.

use pvp_protocol::JsonObject;
use serde_json::Value;

/// The answer to an event.
#[derive(Debug, Clone, PartialEq)]
pub enum HookAnswer {
    /// The client goes on.
    Nothing,
    /// The call may run, with this input if people edited it.
    Allow { edited: Option<JsonObject> },
    /// The call may not run. With `stop`, the agent must do nothing else either.
    Deny { reason: String, stop: bool },
    /// The call waits for the client's return; the client ends.
    Defer,
    /// The agent must stop.
    Stop { reason: String },
    /// The agent has more to do: people said this.
    Continue { text: String },
}

impl HookAnswer {
    pub fn deny(reason: &str) -> Self {
        HookAnswer::Deny {
            reason: reason.to_owned(),
            stop: false,
        }
    }
}

/// What the hook's process prints, and how it exits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HookReply {
    pub stdout: String,
    pub stderr: String,
    pub exit_code: u8,
}

impl HookReply {
    /// Nothing to say.
    pub(super) fn silent() -> Self {
        Self::default()
    }

    pub(super) fn json(value: &Value) -> Self {
        Self {
            stdout: value.to_string(),
            ..Self::default()
        }
    }
}
