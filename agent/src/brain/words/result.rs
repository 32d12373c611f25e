//! What a call is answered with: words for the model, and an account for a program.

use pvp_protocol::{Category, ParticipantId};

use super::super::digest::ends;

/// Bytes of what went wrong, which may quote what the model wrote.
const FAILED: usize = 4 * 1024;

/// What a call is answered with.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// What the model reads.
    pub text: String,
    /// What stays of it when it is old.
    pub brief: String,
    pub failed: bool,
    pub account: Account,
}

impl CallResult {
    /// Something went wrong before a command was proposed.
    pub fn failed(why: &str) -> Self {
        Self {
            text: ends(why, FAILED),
            brief: ends(why, 200),
            failed: true,
            account: Account::default(),
        }
    }

    /// An answer that is not about a command of its own, such as a page of output.
    pub fn answered(text: String) -> Self {
        let first = text.lines().next().unwrap_or_default();
        Self {
            brief: format!("{} [left out; ask again if needed]", ends(first, 200)),
            text,
            failed: false,
            account: Account::default(),
        }
    }

    /// Leaves only the digest.
    pub fn reduce(&mut self) {
        if self.brief.len() < self.text.len() {
            self.text.clone_from(&self.brief);
        }
    }
}

/// What became of a call, for a program to look at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Account {
    pub ending: Option<Ending>,
    pub category: Option<Category>,
    pub exit: Option<i64>,
    pub reason: Option<String>,
    pub by: Option<ParticipantId>,
}

/// How a proposal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It ran to an end of its own, whatever the exit code.
    Ran,
    /// It was started and goes on in the background.
    Started,
    /// It was stopped: by its limits, or by someone.
    Stopped,
    Blocked,
    Rejected,
    /// Nobody decided in time.
    TimedOut,
    Cancelled,
    Withdrawn,
    /// The server did not take the proposal.
    Refused,
    /// It may or may not have run.
    Unknown,
}

impl Ending {
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Ran => "ran",
            Ending::Started => "started",
            Ending::Stopped => "stopped",
            Ending::Blocked => "blocked",
            Ending::Rejected => "rejected",
            Ending::TimedOut => "timed_out",
            Ending::Cancelled => "cancelled",
            Ending::Withdrawn => "withdrawn",
            Ending::Refused => "refused",
            Ending::Unknown => "unknown",
        }
    }
}
