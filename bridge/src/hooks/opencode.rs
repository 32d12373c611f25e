//! What the plugin for OpenCode says, which passes on what OpenCode tells its plugins.

use serde_json::{Value, json};

use super::answer::{HookAnswer, HookReply};
use super::event::{EndedCall, HookEvent, HookedCall, directory, object, required, text};
use super::report;
use crate::supervisor::CallReport;

pub(super) fn parse(input: &Value) -> Result<HookEvent, String> {
    let event = required(input, "event")?;
    Ok(match event.as_str() {
        "before" => HookEvent::BeforeCall(call(input)?),
        "after" => HookEvent::AfterCall(EndedCall {
            report: ended(input),
            call: call(input)?,
        }),
        "prompt" => HookEvent::Prompted {
            conversation: required(input, "sessionID")?,
            text: Some(required(input, "prompt")?),
        },
        "idle" => HookEvent::Stopped {
            message: text(input, "message"),
        },
        "end" => HookEvent::ConversationEnded,
        other => return Err(format!("there is no event `{other}`")),
    })
}

fn call(input: &Value) -> Result<HookedCall, String> {
    Ok(HookedCall {
        conversation: required(input, "sessionID")?,
        call_id: Some(required(input, "callID")?),
        subagent: text(input, "subagent"),
        cwd: directory(input, "directory")?,
        tool: required(input, "tool")?,
        input: object(input, "args")?,
    })
}

fn ended(input: &Value) -> CallReport {
    let exit = input.pointer("/metadata/exit");
    let error = text(input, "error");
    CallReport {
        // A command that was stopped has an exit code that is null; other tools have none.
        success: error.is_none() && exit.is_none_or(|code| *code == 0),
        exit_code: exit.and_then(Value::as_i64),
        stdout: input
            .get("output")
            .map(report::result_text)
            .unwrap_or_default(),
        error,
        ..CallReport::default()
    }
}

pub(super) fn reply(answer: &HookAnswer) -> HookReply {
    HookReply::json(&match answer {
        HookAnswer::Nothing => json!({ "answer": "nothing" }),
        HookAnswer::Allow { edited } => json!({ "answer": "allow", "args": edited }),
        HookAnswer::Deny { reason, stop } => {
            json!({ "answer": "deny", "reason": reason, "stop": stop })
        }
        HookAnswer::Defer => {
            let reason = "Not allowed yet: it still waits for people. Try it again later.";
            json!({ "answer": "deny", "reason": reason, "stop": true })
        }
        HookAnswer::Stop { reason } => json!({ "answer": "stop", "reason": reason }),
        HookAnswer::Continue { text } => json!({ "answer": "continue", "text": text }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_was_stopped_has_not_succeeded() {
        for (metadata, success, exit_code) in [
            (json!({ "exit": 0 }), true, Some(0)),
            (json!({ "exit": 3 }), false, Some(3)),
            (json!({ "exit": null }), false, None),
            (json!({}), true, None),
        ] {
            let report = ended(&json!({ "output": "o", "metadata": metadata }));
            assert_eq!((report.success, report.exit_code), (success, exit_code));
        }
    }
}
