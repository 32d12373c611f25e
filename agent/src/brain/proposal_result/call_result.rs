//! The result of a tool call: text for the model, and the outcome for programs.

use pvp_protocol::{Category, ParticipantId};

use super::super::result_text::truncate_middle;

/// Bytes of an error message, which may quote what the model wrote.
const MAX_FAILURE_BYTES: usize = 4 * 1024;

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// What the model reads.
    pub text: String,
    /// What replaces `text` when the result is old.
    pub short_text: String,
    pub failed: bool,
    pub outcome: CallOutcome,
}

impl CallResult {
    /// An error before a command was proposed.
    pub fn failed(why: &str) -> Self {
        Self {
            text: truncate_middle(why, MAX_FAILURE_BYTES),
            short_text: truncate_middle(why, 200),
            failed: true,
            outcome: CallOutcome::default(),
        }
    }

    /// A result that is not about a command of its own, such as a page of output.
    pub fn success(text: String) -> Self {
        let first = text.lines().next().unwrap_or_default();
        Self {
            short_text: format!(
                "{} [left out; ask again if needed]",
                truncate_middle(first, 200)
            ),
            text,
            failed: false,
            outcome: CallOutcome::default(),
        }
    }

    /// Replaces the text with the short one.
    pub fn shorten(&mut self) {
        if self.short_text.len() < self.text.len() {
            self.text.clone_from(&self.short_text);
        }
    }
}

/// How a call ended, for programs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallOutcome {
    pub status: Option<CallStatus>,
    pub category: Option<Category>,
    pub exit_code: Option<i64>,
    pub reason: Option<String>,
    pub by: Option<ParticipantId>,
}

/// How a proposal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CallStatus {
    /// It ran to its own end, whatever the exit code.
    Ran,
    /// It was started and runs in the background.
    Started,
    /// It was stopped, by a limit or by someone.
    Stopped,
    Blocked,
    Rejected,
    /// Nobody decided in time.
    TimedOut,
    Cancelled,
    Withdrawn,
    /// The server did not accept the proposal.
    Refused,
    /// It may or may not have run.
    Unknown,
}

impl CallStatus {
    /// The name in a script.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
