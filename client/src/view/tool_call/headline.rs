//! One line by which people recognise a tool call.

use pvp_protocol::JsonObject;
use serde_json::Value;

use super::file_change::{ChangeBasis, FileChangeView};
use super::first_words;
use crate::narrate::pluralize;

/// Longest argument in a headline, in bytes.
const MAX_WORDS_BYTES: usize = 80;

/// Longest path in a headline, in bytes.
pub(super) const MAX_PATH_BYTES: usize = 200;

/// Programs whose tools are named after their commands, such as `npm_install`.
const PROGRAMS: &[&str] = &[
    "bun", "cargo", "docker", "gem", "git", "go", "kubectl", "npm", "npx", "pip", "pnpm", "poetry",
    "uv", "yarn",
];

/// The arguments of such tools in the order in which one would type them.
const TYPED_ARGUMENTS: &[&str] = &[
    "command",
    "subcommand",
    "script",
    "package",
    "packages",
    "args",
    "arguments",
];

/// The arguments that tell most about a call, the most telling first.
const TELLING_ARGUMENTS: &[&str] = &[
    "command",
    "path",
    "file_path",
    "url",
    "uri",
    "query",
    "title",
    "name",
    "message",
    "key",
    "id",
];

pub(super) fn headline(
    tool: &str,
    arguments: &JsonObject,
    change: Option<&FileChangeView>,
) -> String {
    let name = tool_name(tool);
    if let Some(change) = change {
        let path = first_words(&change.raw_path, MAX_PATH_BYTES);
        return format!("{name} {path} ({})", size_text(change));
    }
    if tool.starts_with("mcp__") {
        return name;
    }
    let words = match typed_words(tool, arguments) {
        Some(words) => return words,
        None => telling_words(arguments),
    };
    match words {
        Some(words) => format!("{name} {words}"),
        None => name,
    }
}

/// The name of a tool; the name of an MCP tool says which server has it.
fn tool_name(tool: &str) -> String {
    let server_and_tool = tool
        .strip_prefix("mcp__")
        .and_then(|rest| rest.split_once("__"));
    match server_and_tool {
        Some((server, tool)) => {
            let server = first_words(server, MAX_WORDS_BYTES);
            format!("mcp {server} · {}", first_words(tool, MAX_WORDS_BYTES))
        }
        None => first_words(tool, MAX_WORDS_BYTES),
    }
}

fn size_text(change: &FileChangeView) -> String {
    let lines = || pluralize(change.added, "line");
    match (change.basis, change.added) {
        (ChangeBasis::NewFile, 0) => "new, empty".to_owned(),
        (ChangeBasis::NewFile, _) => format!("new, {}", lines()),
        (ChangeBasis::Unknown, 0) => "empty".to_owned(),
        (ChangeBasis::Unknown | ChangeBasis::NotebookCell, _) => lines(),
        (ChangeBasis::PresentContent | ChangeBasis::ReplacedText, added) => {
            format!("+{added} −{}", change.removed)
        }
    }
}

/// The call of a package manager and the like, as one would type it.
fn typed_words(tool: &str, arguments: &JsonObject) -> Option<String> {
    let program = tool.split(['_', '-']).next()?;
    if !PROGRAMS.contains(&program) {
        return None;
    }
    let mut words = vec![first_words(&tool.replace(['_', '-'], " "), MAX_WORDS_BYTES)];
    let typed = TYPED_ARGUMENTS.iter();
    words.extend(typed.filter_map(|key| argument_words(arguments.get(*key)?)));
    Some(words.join(" "))
}

fn telling_words(arguments: &JsonObject) -> Option<String> {
    let named = TELLING_ARGUMENTS.iter();
    let mut named = named.filter_map(|key| argument_words(arguments.get(*key)?));
    let first = || arguments.values().find_map(argument_words);
    named.next().or_else(first)
}

/// A text, a number, or a list of them, as words; `None` if it is something else or empty.
fn argument_words(value: &Value) -> Option<String> {
    let scalar = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let words = match value.as_array() {
        Some(items) => {
            let words: Option<Vec<_>> = items.iter().map(scalar).collect();
            words?.join(" ")
        }
        None => scalar(value)?,
    };
    let words = first_words(&words, MAX_WORDS_BYTES);
    (!words.is_empty()).then_some(words)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(tool: &str, arguments: Value) -> String {
        headline(tool, arguments.as_object().unwrap(), None)
    }

    #[test]
    fn calls_are_named_as_people_know_them() {
        for (tool, arguments, expected) in [
            (
                "npm_install",
                json!({"packages": ["left-pad", "is-odd"]}),
                "npm install left-pad is-odd",
            ),
            (
                "npm",
                json!({"command": "run", "script": "build"}),
                "npm run build",
            ),
            (
                "mcp__github__create_issue",
                json!({"title": "x"}),
                "mcp github · create_issue",
            ),
            (
                "fetch",
                json!({"method": "GET", "url": "https://a.example"}),
                "fetch https://a.example",
            ),
            ("deploy", json!({"count": 3}), "deploy 3"),
            ("deploy", json!({"deep": {"a": 1}}), "deploy"),
            ("deploy", json!({}), "deploy"),
        ] {
            assert_eq!(of(tool, arguments), expected);
        }
    }

    #[test]
    fn a_headline_is_one_short_line_of_visible_characters() {
        let long = "é".repeat(500);
        for arguments in [
            json!({"name": "one\ntwo"}),
            json!({"name": "a\u{202e}b\tc\u{1b}[2K"}),
            json!({"name": long}),
            json!({"other": long}),
        ] {
            let text = of("to\u{200b}ol\nx", arguments);
            assert!(
                !text.contains(['\n', '\t', '\u{202e}', '\u{1b}', '\u{200b}']),
                "{text}"
            );
            assert!(text.len() < 300, "{text}");
        }
        assert_eq!(of("t", json!({"name": "one\ntwo"})), "t one…");
    }
}
