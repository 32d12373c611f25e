//! The hooks of Copilot CLI. Its calls have no ids, and it does not say which event it is.

use serde_json::{Value, json};

use super::answer::{HookAnswer, HookReply};
use super::event::{EndedCall, HookEvent, HookedCall, directory, object, required, text};
use super::report;
use crate::supervisor::CallReport;

pub(super) fn parse(event: &str, input: &Value) -> Result<HookEvent, String> {
    Ok(match event {
        "preToolUse" => HookEvent::BeforeCall(call(input)?),
        "postToolUse" => HookEvent::AfterCall(EndedCall {
            report: ended(input),
            call: call(input)?,
        }),
        "postToolUseFailure" => HookEvent::AfterCall(EndedCall {
            report: CallReport {
                error: Some(text(input, "error").unwrap_or_default()),
                ..CallReport::default()
            },
            call: call(input)?,
        }),
        "userPromptSubmitted" => HookEvent::Prompted {
            conversation: required(input, "sessionId")?,
            text: Some(required(input, "prompt")?),
        },
        "agentStop" => HookEvent::Stopped { message: None },
        "sessionEnd" => HookEvent::ConversationEnded,
        "sessionStart" => HookEvent::Other,
        other => return Err(format!("there is no event `{other}`")),
    })
}

fn call(input: &Value) -> Result<HookedCall, String> {
    Ok(HookedCall {
        conversation: required(input, "sessionId")?,
        call_id: None,
        subagent: None,
        cwd: directory(input, "cwd")?,
        tool: required(input, "toolName")?,
        input: object(input, "toolArgs")?,
    })
}

fn ended(input: &Value) -> CallReport {
    let result = input.get("toolResult").unwrap_or(&Value::Null);
    let said = text(result, "textResultForLlm").unwrap_or_else(|| report::result_text(result));
    let exit_code = report::named_exit_code(&said, "completed with exit code ");
    let succeeded = text(result, "resultType").is_none_or(|kind| kind == "success");
    CallReport {
        success: succeeded && exit_code.unwrap_or(0) == 0,
        exit_code,
        stdout: said,
        error: (!succeeded).then(|| "the client says that it failed".to_owned()),
        ..CallReport::default()
    }
}

pub(super) fn reply(answer: &HookAnswer) -> HookReply {
    HookReply::json(&match answer {
        HookAnswer::Nothing | HookAnswer::Stop { .. } => return HookReply::silent(),
        HookAnswer::Allow { edited: None } => json!({ "permissionDecision": "allow" }),
        HookAnswer::Allow {
            edited: Some(input),
        } => json!({ "permissionDecision": "allow", "modifiedArgs": input }),
        HookAnswer::Deny { reason, .. } => {
            json!({ "permissionDecision": "deny", "permissionDecisionReason": reason })
        }
        HookAnswer::Defer => {
            let reason = "Not allowed yet: it still waits for people. Try it again later.";
            json!({ "permissionDecision": "deny", "permissionDecisionReason": reason })
        }
        HookAnswer::Continue { text } => json!({ "decision": "block", "reason": text }),
    })
}
