//! The hooks of Claude Code.

use serde_json::{Value, json};

use super::answer::{HookAnswer, HookReply};
use super::event::{EndedCall, HookEvent, HookedCall, directory, object, required, text};
use super::report;
use crate::supervisor::CallReport;

pub(super) fn parse(input: &Value) -> Result<HookEvent, String> {
    let event = required(input, "hook_event_name")?;
    Ok(match event.as_str() {
        "PreToolUse" => HookEvent::BeforeCall(call(input)?),
        "PostToolUse" => HookEvent::AfterCall(EndedCall {
            report: succeeded(input),
            call: call(input)?,
        }),
        "PostToolUseFailure" => HookEvent::AfterCall(EndedCall {
            report: failed(input),
            call: call(input)?,
        }),
        "PostToolBatch" => HookEvent::BatchEnded {
            calls: batch(input)?,
        },
        "UserPromptSubmit" => HookEvent::Prompted {
            conversation: required(input, "session_id")?,
            text: typed(required(input, "prompt")?),
        },
        "Stop" => HookEvent::Stopped {
            message: text(input, "last_assistant_message"),
        },
        "SessionEnd" => HookEvent::ConversationEnded,
        "SessionStart" => HookEvent::Other,
        other => return Err(format!("there is no event `{other}`")),
    })
}

/// What the client prompts itself with when it goes on with a call that it left.
const GOES_ON: &str = "Continue from where you left off.";

/// A prompt that a person typed; the client also prompts itself, such as when something in the
/// background ends.
fn typed(prompt: String) -> Option<String> {
    let is_own = prompt.starts_with("<task-notification>") || prompt == GOES_ON;
    (!is_own).then_some(prompt)
}

/// The call of an event; Codex's hooks have the same fields.
pub(super) fn call(input: &Value) -> Result<HookedCall, String> {
    Ok(HookedCall {
        conversation: required(input, "session_id")?,
        call_id: Some(required(input, "tool_use_id")?),
        subagent: text(input, "agent_type").or_else(|| text(input, "agent_id")),
        cwd: directory(input, "cwd")?,
        tool: required(input, "tool_name")?,
        input: object(input, "tool_input")?,
    })
}

fn succeeded(input: &Value) -> CallReport {
    let response = input.get("tool_response").unwrap_or(&Value::Null);
    if let Some(task) = text(response, "backgroundTaskId") {
        return CallReport {
            in_background: true,
            ..CallReport::unknown(&format!(
                "it runs on in the background of the client, as task {task}"
            ))
        };
    }
    let is_shell = response.get("stdout").is_some();
    CallReport {
        success: true,
        // Claude reports a command that fails by another event.
        exit_code: is_shell.then_some(0),
        stdout: report::result_text(response),
        stderr: text(response, "stderr").unwrap_or_default(),
        ..CallReport::default()
    }
}

fn failed(input: &Value) -> CallReport {
    let error = text(input, "error").unwrap_or_default();
    let interrupted = input.get("is_interrupt") == Some(&Value::Bool(true));
    match report::split_exit_code(&error) {
        Some((code, output)) => CallReport {
            exit_code: Some(code),
            stdout: output.to_owned(),
            ..CallReport::default()
        },
        None => CallReport {
            error: Some(match interrupted {
                true => format!("interrupted at the client: {error}"),
                false => error,
            }),
            ..CallReport::default()
        },
    }
}

/// The calls of a step. Those that were reported before are over; what is left was refused by the
/// client itself, or nobody heard how it ended.
fn batch(input: &Value) -> Result<Vec<EndedCall>, String> {
    let calls = input.get("tool_calls").and_then(Value::as_array);
    let calls = calls.ok_or("the client does not say `tool_calls`")?;
    let ended = |one: &Value| {
        let mut whole = input.clone();
        for (name, value) in one.as_object()? {
            whole[name.as_str()] = value.clone();
        }
        let response = one.get("tool_response").unwrap_or(&Value::Null);
        let said = report::result_text(response);
        let report = match is_refusal(&said) {
            true => CallReport::not_run(format!("the client did not run it: {said}")),
            false => CallReport::unknown(&format!(
                "the client did not report its end, and then said of it: {said}"
            )),
        };
        let call = call(&whole).ok()?;
        Some(EndedCall { call, report })
    };
    Ok(calls.iter().filter_map(ended).collect())
}

/// How Claude Code begins what the model reads of a call that it refused by its own rules, or whose
/// tool it does not have.
const REFUSALS: [&str; 5] = [
    "Permission to ",
    "Permission for ",
    "Claude requested permissions to ",
    "The user doesn't want to proceed with this tool use",
    "<tool_use_error>",
];

/// Whether a call did not run. What a command prints is taken for a refusal only if it also kept
/// the hook from reporting it.
fn is_refusal(said: &str) -> bool {
    REFUSALS.iter().any(|refusal| said.starts_with(refusal))
}

pub(super) fn reply(answer: &HookAnswer) -> HookReply {
    let decision = |decision: &str| {
        json!({
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
        })
    };
    HookReply::json(&match answer {
        HookAnswer::Nothing => return HookReply::silent(),
        HookAnswer::Allow { edited } => {
            let mut allow = decision("allow");
            allow["permissionDecisionReason"] = "allowed by PVP".into();
            if let Some(input) = edited {
                allow["updatedInput"] = Value::Object(input.clone());
            }
            json!({ "hookSpecificOutput": allow })
        }
        HookAnswer::Deny { reason, stop } => {
            let mut deny = decision("deny");
            deny["permissionDecisionReason"] = reason.as_str().into();
            let mut said = json!({ "hookSpecificOutput": deny });
            if *stop {
                said["continue"] = false.into();
                said["stopReason"] = reason.as_str().into();
            }
            said
        }
        HookAnswer::Defer => json!({ "hookSpecificOutput": decision("defer") }),
        HookAnswer::Stop { reason } => json!({ "continue": false, "stopReason": reason }),
        HookAnswer::Continue { text } => json!({ "decision": "block", "reason": text }),
    })
}
