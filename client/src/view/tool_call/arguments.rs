//! The arguments of a tool call as readable text: names and values, one below the other.

use std::collections::BTreeMap;

use pvp_protocol::JsonObject;
use serde::Serialize;
use serde_json::Value;

use super::super::text::TextBudget;

/// Maximum number of arguments and items listed.
const MAX_ARGUMENTS: usize = 2000;

/// Maximum depth to which nested values are listed; deeper ones are shown as JSON.
const MAX_DEPTH: usize = 6;

/// One argument, or one item of a nested one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArgumentView {
    /// How deep it is nested; 0 for an argument itself.
    pub depth: usize,
    /// Its key, quoted if it is not a plain word, or its place in a list, such as `[0]`.
    pub name: String,
    /// Its value; several lines for a long text, empty if its items follow. A text that could be
    /// mistaken for another kind of value is quoted.
    pub value: String,
}

/// Lists arguments in the order of their keys.
pub(super) fn list(arguments: &JsonObject, budget: &mut TextBudget) -> Vec<ArgumentView> {
    let mut lister = ArgumentLister {
        listed: Vec::new(),
        budget,
    };
    for (key, value) in sorted(arguments) {
        lister.add(0, &key_name(key), value);
    }
    lister.listed
}

/// The fields in the order of their keys, whatever order the message has.
fn sorted(fields: &JsonObject) -> BTreeMap<&String, &Value> {
    fields.iter().collect()
}

struct ArgumentLister<'a> {
    listed: Vec<ArgumentView>,
    budget: &'a mut TextBudget,
}

impl ArgumentLister<'_> {
    fn add(&mut self, depth: usize, name: &str, value: &Value) {
        if self.listed.len() >= MAX_ARGUMENTS {
            let bytes = name.len() + value.to_string().len();
            return self.budget.drop_bytes(bytes);
        }
        let text = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::String(text) if is_plain(text) => text.clone(),
            Value::String(text) => quoted(text),
            Value::Array(items) if items.is_empty() => "[]".to_owned(),
            Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
            Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => value.to_string(),
            Value::Array(_) | Value::Object(_) => String::new(),
        };
        let is_listed = text.is_empty();
        if depth >= MAX_DEPTH && (value.is_array() || value.is_object()) {
            self.budget.hidden += count_escaped_controls(value);
        }
        let argument = ArgumentView {
            depth,
            name: self.budget.take(name),
            value: self.budget.take(&text),
        };
        self.listed.push(argument);
        if is_listed {
            self.add_items(depth + 1, value);
        }
    }

    fn add_items(&mut self, depth: usize, value: &Value) {
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.add(depth, &format!("[{index}]"), item);
                }
            }
            Value::Object(fields) => {
                for (key, field) in sorted(fields) {
                    self.add(depth, &key_name(key), field);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// A key as it is if it is a plain word, else quoted, so that no key can pass for anything else on
/// a card.
fn key_name(key: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let plain = key.starts_with(word) && key.chars().all(|c| word(c) || "-.$".contains(c));
    match plain {
        true => key.to_owned(),
        false => quoted(key).replace('\n', "\\n").replace('\t', "\\t"),
    }
}

/// A text in quotation marks. Whatever is invisible in it is left for the budget to escape.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', r"\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

/// How many invisible characters the JSON of a value escapes by itself, so that the budget does not
/// see them.
fn count_escaped_controls(value: &Value) -> usize {
    let count = |text: &str| {
        let controls = text.chars().filter(|c| *c < ' ');
        controls.filter(|c| !['\n', '\t'].contains(c)).count()
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => count(text),
        Value::Array(items) => items.iter().map(count_escaped_controls).sum(),
        Value::Object(fields) => {
            let fields = fields.iter();
            fields
                .map(|(key, field)| count(key) + count_escaped_controls(field))
                .sum()
        }
    }
}

/// Whether a text is shown as it is: it cannot be mistaken for another kind of value, and nothing
/// at its ends is invisible.
fn is_plain(text: &str) -> bool {
    let is_trimmed = text.trim() == text || text.contains('\n');
    let looks_like_json = text.starts_with(['{', '[', '"'])
        || matches!(text, "" | "null" | "true" | "false")
        || text.parse::<f64>().is_ok();
    is_trimmed && !looks_like_json
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(arguments: Value) -> Vec<String> {
        let mut budget = TextBudget::new(1 << 16);
        let listed = list(arguments.as_object().unwrap(), &mut budget);
        let line = |it: ArgumentView| format!("{}{} {}", " ".repeat(it.depth), it.name, it.value);
        listed.into_iter().map(line).collect()
    }

    #[test]
    fn nested_values_are_listed_below_their_name() {
        let arguments = json!({
            "title": "It breaks", "labels": ["bug", 7], "meta": {"deep": {"on": true, "off": null}},
            "none": [], "empty": {}, "body": "one\ntwo",
        });
        assert_eq!(
            listed(arguments),
            [
                "body one\ntwo",
                "empty {}",
                "labels ",
                " [0] bug",
                " [1] 7",
                "meta ",
                " deep ",
                "  off null",
                "  on true",
                "none []",
                "title It breaks"
            ]
        );
    }

    #[test]
    fn texts_that_look_like_something_else_are_quoted() {
        let arguments = json!({
            "a": "7", "b": "true", "c": "", "d": " x", "e": "[]", "f": "\"q\"", "+ g": 1, "[0]": 2,
        });
        assert_eq!(
            listed(arguments),
            [
                r#""+ g" 1"#,
                r#""[0]" 2"#,
                r#"a "7""#,
                r#"b "true""#,
                r#"c """#,
                r#"d " x""#,
                r#"e "[]""#,
                r#"f "\"q\"""#
            ]
        );
    }

    #[test]
    fn what_is_nested_deeply_is_shown_as_json() {
        let mut value = json!({"end": 1});
        for _ in 0..20 {
            value = json!({ "a": value });
        }
        let lines = listed(value);
        assert_eq!(lines.len(), MAX_DEPTH + 1);
        assert!(lines[MAX_DEPTH].contains(r#"{"end":1}"#), "{lines:?}");
    }

    #[test]
    fn arguments_without_room_are_counted() {
        let many: Vec<_> = (0..MAX_ARGUMENTS + 10).collect();
        let mut budget = TextBudget::new(1 << 20);
        let arguments = json!({ "many": many });
        let listed = list(arguments.as_object().unwrap(), &mut budget);
        assert_eq!(listed.len(), MAX_ARGUMENTS);
        assert!(budget.cut_bytes >= 11 * 4, "{}", budget.cut_bytes);
    }
}
