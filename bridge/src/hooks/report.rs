//! Reads what clients say about how a call ended.

use serde_json::Value;

/// Bytes of a result that are passed on; the server keeps no more of it.
const MAX_RESULT_BYTES: usize = 4 * 1024 * 1024;

/// What a call returned, as text: its standard output, the text of its parts, or its JSON.
pub(super) fn result_text(response: &Value) -> String {
    let mut text = match response {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Option<Vec<_>> = parts
                .iter()
                .map(|part| part.get("text")?.as_str())
                .collect();
            texts.map_or_else(|| response.to_string(), |texts| texts.join("\n"))
        }
        Value::Object(fields) => match fields.get("stdout").and_then(Value::as_str) {
            Some(stdout) => stdout.to_owned(),
            None => response.to_string(),
        },
        Value::Bool(_) | Value::Number(_) => response.to_string(),
    };
    text.truncate(text.floor_char_boundary(MAX_RESULT_BYTES));
    text
}

/// The exit code in the first line, as Claude Code says it, and what follows.
pub(super) fn split_exit_code(error: &str) -> Option<(i64, &str)> {
    let rest = error.strip_prefix("Exit code ")?;
    let (code, output) = rest.split_once('\n').unwrap_or((rest, ""));
    Some((code.trim().parse().ok()?, output))
}

/// The number behind the last of these words.
pub(super) fn named_exit_code(text: &str, before: &str) -> Option<i64> {
    let (_, rest) = text.rsplit_once(before)?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '-');
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_are_read_as_text() {
        assert_eq!(result_text(&json!({"stdout": "a", "stderr": "b"})), "a");
        let parts = json!([{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]);
        assert_eq!(result_text(&parts), "x\ny");
        assert_eq!(
            result_text(&json!([{"type": "image"}])),
            r#"[{"type":"image"}]"#
        );
        assert_eq!(
            result_text(&json!("é".repeat(3_000_000))).len(),
            4 * 1024 * 1024
        );
    }

    #[test]
    fn exit_codes_are_found_where_clients_say_them() {
        assert_eq!(split_exit_code("Exit code 3\nbefore"), Some((3, "before")));
        assert_eq!(split_exit_code("Exit code 3"), Some((3, "")));
        assert_eq!(split_exit_code("Exit code x"), None);
        assert_eq!(split_exit_code("no such file"), None);
        let copilot = "one\n<shellId: 0 completed with exit code 3>";
        assert_eq!(
            named_exit_code(copilot, "completed with exit code "),
            Some(3)
        );
        assert_eq!(named_exit_code("Exit Code: -1\n", "Exit Code: "), Some(-1));
        assert_eq!(named_exit_code("Exit Code: ", "Exit Code: "), None);
        assert_eq!(named_exit_code("none", "Exit Code: "), None);
    }
}
