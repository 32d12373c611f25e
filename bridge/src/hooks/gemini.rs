//! The hooks of Gemini CLI. Its calls have no ids.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::answer::{HookAnswer, HookReply};
use super::event::{EndedCall, HookEvent, HookedCall, directory, object, required, text};
use super::report;
use crate::supervisor::CallReport;

pub(super) fn parse(input: &Value) -> Result<HookEvent, String> {
    let event = required(input, "hook_event_name")?;
    if is_own_tool(input) {
        return Ok(HookEvent::OwnCall);
    }
    Ok(match event.as_str() {
        "BeforeTool" => HookEvent::BeforeCall(call(input)?),
        "AfterTool" => HookEvent::AfterCall(EndedCall {
            report: ended(input),
            call: call(input)?,
        }),
        "BeforeAgent" => HookEvent::Prompted {
            conversation: required(input, "session_id")?,
            text: Some(required(input, "prompt")?),
        },
        "AfterAgent" => HookEvent::Stopped {
            message: text(input, "prompt_response"),
        },
        "SessionEnd" => HookEvent::ConversationEnded,
        "SessionStart" | "Notification" => HookEvent::Other,
        other => return Err(format!("there is no event `{other}`")),
    })
}

/// Whether the call is of a tool that this program offers for the same client, and has decided by
/// itself. The client says which program serves the tool; a server of another program, or of this
/// one for somebody else, is not believed.
fn is_own_tool(input: &Value) -> bool {
    let server = input.get("mcp_context").unwrap_or(&Value::Null);
    let own = std::env::current_exe().ok();
    let command = text(server, "command").map(PathBuf::from);
    let files = files_of(std::env::args());
    command.is_some()
        && command == own
        && files.is_some_and(|files| server["args"] == json!(["mcp", "--relay", files]))
}

/// The directory that this hook was told to use.
fn files_of(words: impl Iterator<Item = String>) -> Option<String> {
    words.skip_while(|word| word != "--files").nth(1)
}

fn call(input: &Value) -> Result<HookedCall, String> {
    Ok(HookedCall {
        conversation: required(input, "session_id")?,
        call_id: None,
        subagent: None,
        cwd: directory(input, "cwd")?,
        tool: required(input, "tool_name")?,
        input: object(input, "tool_input")?,
    })
}

fn ended(input: &Value) -> CallReport {
    let response = input.get("tool_response").unwrap_or(&Value::Null);
    let said = match response.get("llmContent") {
        // The exit code is at its end, so that nothing of it is cut here.
        Some(Value::String(text)) => text.clone(),
        Some(parts) => report::result_text(parts),
        None => report::result_text(response),
    };
    let error = response.get("error").map(report::result_text);
    let exit_code = report::named_exit_code(&said, "Exit Code: ");
    CallReport {
        // It says the code only if it is not 0.
        success: exit_code.unwrap_or(0) == 0 && error.is_none(),
        exit_code,
        stdout: said,
        error,
        ..CallReport::default()
    }
}

pub(super) fn reply(answer: &HookAnswer) -> HookReply {
    HookReply::json(&match answer {
        HookAnswer::Nothing => return HookReply::silent(),
        HookAnswer::Allow { edited: None } => json!({ "decision": "allow" }),
        HookAnswer::Allow {
            edited: Some(input),
        } => json!({
            "decision": "allow",
            "hookSpecificOutput": { "hookEventName": "BeforeTool", "tool_input": input },
        }),
        HookAnswer::Deny { reason, stop } => {
            let mut deny = json!({ "decision": "deny", "reason": reason });
            if *stop {
                deny["continue"] = false.into();
                deny["stopReason"] = reason.as_str().into();
            }
            deny
        }
        HookAnswer::Defer => {
            let reason = "Not allowed yet: it still waits for people. Try it again later.";
            json!({ "decision": "deny", "reason": reason })
        }
        HookAnswer::Stop { reason } => json!({ "continue": false, "stopReason": reason }),
        HookAnswer::Continue { text } => json!({ "decision": "deny", "reason": text }),
    })
}
