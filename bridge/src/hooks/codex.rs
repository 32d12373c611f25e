//! The hooks of Codex, which are like those of Claude Code and say less.

use serde_json::{Value, json};

use super::answer::{HookAnswer, HookReply};
use super::event::{EndedCall, HookEvent, required};
use super::{claude, report};
use crate::supervisor::CallReport;

pub(super) fn parse(input: &Value) -> Result<HookEvent, String> {
    let event = required(input, "hook_event_name")?;
    Ok(match event.as_str() {
        "PreToolUse" => HookEvent::BeforeCall(claude::call(input)?),
        "PostToolUse" => HookEvent::AfterCall(EndedCall {
            report: ended(input),
            call: claude::call(input)?,
        }),
        "UserPromptSubmit" => HookEvent::Prompted {
            conversation: required(input, "session_id")?,
            text: Some(required(input, "prompt")?),
        },
        "Stop" => HookEvent::Stopped {
            message: super::event::text(input, "last_assistant_message"),
        },
        "SessionStart" => HookEvent::Other,
        other => return Err(format!("there is no event `{other}`")),
    })
}

/// Codex does not say whether a command failed.
fn ended(input: &Value) -> CallReport {
    let response = input.get("tool_response").unwrap_or(&Value::Null);
    CallReport {
        stdout: report::result_text(response),
        ..CallReport::unknown("the client does not say how it ended")
    }
}

pub(super) fn reply(answer: &HookAnswer) -> HookReply {
    match answer {
        HookAnswer::Allow { .. } | HookAnswer::Nothing | HookAnswer::Continue { .. } => {
            claude::reply(answer)
        }
        // It ignores `continue`, so the reason has to do.
        HookAnswer::Deny { reason, .. } | HookAnswer::Stop { reason } => {
            HookReply::json(&json!({ "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": reason,
            }}))
        }
        HookAnswer::Defer => reply(&HookAnswer::deny(
            "Not allowed yet: it still waits for people. Try it again later.",
        )),
    }
}
