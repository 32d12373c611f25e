//! Reads how a call ended from what agents say about it.

use agent_client_protocol_schema::v1::{Meta, ToolCall, ToolCallStatus};
use serde_json::Value;

use super::permission::content_text;
use crate::supervisor::CallReport;

/// Bytes of a result that are passed on; the server keeps no more of it.
const MAX_RESULT_BYTES: usize = 4 * 1024 * 1024;

/// Where agents put the output in the result.
const OUTPUT_FIELDS: [&str; 6] = [
    "stdout",
    "output",
    "aggregated_output",
    "formatted_output",
    "text",
    "content",
];

/// How a call ended; `None` if it has not.
pub(super) fn report(call: &ToolCall, meta: &Meta, streamed: &str) -> Option<CallReport> {
    let completed = match call.status {
        ToolCallStatus::Completed => true,
        ToolCallStatus::Failed => false,
        _ => return None,
    };
    let raw = call.raw_output.as_ref().unwrap_or(&Value::Null);
    let exit_code = exit_code(raw, meta);
    let (stdout, stderr) = output(call, raw, meta, streamed);
    Some(CallReport {
        success: completed && exit_code.unwrap_or(0) == 0,
        exit_code,
        stdout: limited(stdout),
        stderr: limited(stderr),
        error: (!completed && exit_code.is_none())
            .then(|| "the agent says that it failed".to_owned()),
        outcome: None,
        in_background: false,
    })
}

/// What a call has printed so far, as far as the agent shows it.
pub(super) fn shown_output(call: &ToolCall, streamed: &str) -> String {
    match streamed.is_empty() {
        true => content_text(&call.content),
        false => streamed.to_owned(),
    }
}

/// The exit code, wherever the agent says it.
fn exit_code(raw: &Value, meta: &Meta) -> Option<i64> {
    let terminal = meta.get("terminal_exit").and_then(|it| it.get("exit_code"));
    let parts = raw["contents"].as_array().into_iter().flatten();
    let in_parts = parts.filter_map(|part| part.get("exitCode"));
    let named = ["exitCode", "exit_code", "exit"]
        .into_iter()
        .map(|name| &raw[name]);
    let candidates = terminal
        .into_iter()
        .chain(named)
        .chain([&raw["metadata"]["exit"]]);
    candidates.chain(in_parts).find_map(Value::as_i64)
}

fn output(call: &ToolCall, raw: &Value, meta: &Meta, streamed: &str) -> (String, String) {
    if !streamed.is_empty() {
        return (streamed.to_owned(), String::new());
    }
    let claude = meta.get("claudeCode").and_then(|it| it.get("toolResponse"));
    if let Some(Value::String(stdout)) = claude.and_then(|it| it.get("stdout")) {
        let stderr = claude
            .and_then(|it| it.get("stderr"))
            .and_then(Value::as_str);
        return (stdout.clone(), stderr.unwrap_or_default().to_owned());
    }
    let text = match raw {
        Value::String(text) => Some(text.as_str()),
        Value::Object(fields) => {
            let texts = OUTPUT_FIELDS.into_iter();
            texts.filter_map(|name| fields.get(name)?.as_str()).next()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    };
    let text = text.map(str::to_owned);
    let text = text.unwrap_or_else(|| content_text(&call.content));
    (text, String::new())
}

fn limited(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_RESULT_BYTES));
    text
}
