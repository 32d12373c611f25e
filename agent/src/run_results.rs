//! Results of grants that were not acted on, and of runs that nobody knows the end of.

use pvp_protocol::payload::{RunOutcome, ToolResult};
use pvp_protocol::{ExtraFields, MessageId};

/// A result that says why nothing ran.
pub(crate) fn failed_result(tool_proposal: MessageId, why: &str) -> ToolResult {
    ToolResult {
        tool_proposal,
        success: false,
        result: None,
        error: Some(why.to_owned()),
        duration_ms: 0,
        outcome: Some(RunOutcome::Known),
        more_output: false,
        attested: false,
        extra: ExtraFields::new(),
    }
}

/// A result whose outcome is not known.
pub(crate) fn unknown_result(tool_proposal: MessageId, why: &str) -> ToolResult {
    ToolResult {
        outcome: Some(RunOutcome::Unknown),
        ..failed_result(tool_proposal, why)
    }
}
