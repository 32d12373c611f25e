//! Why a call may not run, in words for the agent.

use pvp_agent::proposer::ProposeError;
use pvp_protocol::payload::{GateOutcome, GateResolve};

/// Why a call may not run, in words for the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    pub kind: DenialKind,
    /// Who denied it and why, and what to do instead.
    pub reason: String,
}

/// What denied a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialKind {
    /// A rule of the policy.
    Blocked,
    /// A person.
    Rejected,
    /// Nobody decided in time.
    TimedOut,
    /// It was withdrawn: by an interrupt, by a person, or because the session ended.
    Cancelled,
    /// The server refused it, or could not be reached.
    Failed,
}

impl From<ProposeError> for Denial {
    fn from(error: ProposeError) -> Self {
        let kind = match &error {
            ProposeError::Blocked { .. } => DenialKind::Blocked,
            ProposeError::BadArguments(_)
            | ProposeError::BadDirectory(_)
            | ProposeError::BadFile(_)
            | ProposeError::NotRecorded(_)
            | ProposeError::Repeated
            | ProposeError::Refused(_)
            | ProposeError::Closed => DenialKind::Failed,
        };
        let reason = match &error {
            ProposeError::Blocked { rule, reason } => {
                format!("Blocked by rule `{rule}`: {reason}. It never runs; do something else.")
            }
            ProposeError::BadArguments(_)
            | ProposeError::BadDirectory(_)
            | ProposeError::BadFile(_)
            | ProposeError::NotRecorded(_)
            | ProposeError::Repeated
            | ProposeError::Refused(_)
            | ProposeError::Closed => format!("Not allowed: {error}."),
        };
        Self { kind, reason }
    }
}

impl Denial {
    pub(super) fn failed(reason: &str) -> Self {
        Self {
            kind: DenialKind::Failed,
            reason: reason.to_owned(),
        }
    }

    pub(super) fn from_resolution(resolve: &GateResolve) -> Self {
        let kind = match resolve.outcome {
            GateOutcome::Rejected => DenialKind::Rejected,
            GateOutcome::TimedOut => DenialKind::TimedOut,
            GateOutcome::Cancelled | GateOutcome::Approved => DenialKind::Cancelled,
        };
        Self {
            kind,
            reason: resolve.denial_text(),
        }
    }
}
