//! Calls of tools whose form is not known: written as one line, and searched for paths.

use serde_json::Value;

use crate::{Command, JsonObject, UniqueFields};

/// Parts of the names of arguments that name files.
const PATH_WORDS: &[&str] = &["path", "file", "dir", "folder", "uri"];

/// Names of arguments that name files in copies and moves.
const PATH_NAMES: &[&str] = &["source", "src", "destination", "dest", "dst", "target"];

/// Why a text is not the call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolCallError {
    #[error("the arguments of `{name}` must be a JSON object: {problem}")]
    BadArguments { name: String, problem: String },
    #[error("the name of the tool is missing")]
    NoName,
    #[error("`shell` is not called like this; give the command line")]
    Shell,
}

impl Command {
    /// The call of a tool with these arguments, which are a JSON object; none if empty.
    pub fn tool_call(name: &str, arguments: &str) -> Result<Self, ToolCallError> {
        match name {
            "" => return Err(ToolCallError::NoName),
            "shell" => return Err(ToolCallError::Shell),
            _ => {}
        }
        let arguments = match arguments.trim() {
            "" => "{}",
            arguments => arguments,
        };
        match serde_json::from_str::<UniqueFields>(arguments) {
            Ok(UniqueFields(arguments)) => Ok(Self::Tool {
                name: name.to_owned(),
                arguments,
            }),
            Err(error) => Err(ToolCallError::BadArguments {
                name: name.to_owned(),
                problem: error.to_string(),
            }),
        }
    }

    /// What people recognise it by: the command line, or the tool and the first file that it names.
    pub fn brief(&self) -> String {
        match self {
            Command::Tool { name, arguments } => match path_arguments(arguments).first() {
                Some(path) => format!("{name} {path}"),
                None => name.clone(),
            },
            Command::Shell { .. } | Command::Argv { .. } | Command::LoginShell { .. } => {
                self.summary()
            }
        }
    }

    /// The call of a tool from one line, as [`summary`](Self::summary) writes it: the name, a
    /// blank, and the arguments.
    pub fn tool_call_from_line(line: &str) -> Result<Self, ToolCallError> {
        let line = line.trim();
        let (name, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        Self::tool_call(name, arguments)
    }
}

/// The texts in a tool's arguments that name files, judging by the names of the arguments; at any
/// depth.
pub fn path_arguments(arguments: &JsonObject) -> Vec<&str> {
    let mut found = Vec::new();
    for (name, value) in arguments {
        collect_paths(value, names_files(name), &mut found);
    }
    found
}

fn names_files(argument: &str) -> bool {
    let argument = argument.to_ascii_lowercase();
    PATH_NAMES.contains(&argument.as_str()) || PATH_WORDS.iter().any(|word| argument.contains(word))
}

fn collect_paths<'a>(value: &'a Value, is_path: bool, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) if is_path => found.push(text),
        Value::Array(items) => {
            for item in items {
                collect_paths(item, is_path, found);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                collect_paths(value, names_files(name), found);
            }
        }
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

/// All texts in a tool's arguments, at any depth, with the names of fields below the first level.
pub fn text_arguments(arguments: &JsonObject) -> Vec<&str> {
    let mut found = Vec::new();
    let mut open: Vec<&Value> = arguments.values().collect();
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => found.push(text.as_str()),
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                found.extend(fields.keys().map(String::as_str));
                open.extend(fields.values());
            }
            Value::Number(_) | Value::Bool(_) | Value::Null => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_is_written_and_read_back() {
        for line in [r#"fetch {"url":"x y"}"#, "list {}"] {
            let command = Command::tool_call_from_line(line).unwrap();
            assert_eq!(command.summary(), line);
        }
        let bare = Command::tool_call_from_line(" list ").unwrap();
        assert_eq!(bare.summary(), "list {}");
        for (line, problem) in [
            ("", "the name of the tool is missing"),
            (r#"shell {"a":1}"#, "`shell` is not called like this"),
            ("list [1]", "the arguments of `list` must be a JSON object"),
            (r#"list {"a":1,"a":2}"#, "the arguments of `list`"),
        ] {
            let error = Command::tool_call_from_line(line).unwrap_err().to_string();
            assert!(error.starts_with(problem), "{error}");
        }
    }

    #[test]
    fn paths_are_found_by_the_names_of_their_arguments() {
        let arguments = json!({
            "file_path": "a", "paths": ["b", 7, "c"], "edits": [{"filePath": "d", "text": "no"}],
            "content": "no", "destination": "e", "root_dir": "f", "options": {"deep": {"uri": "g"}},
        });
        let mut found = path_arguments(arguments.as_object().unwrap());
        found.sort_unstable();
        assert_eq!(found, ["a", "b", "c", "d", "e", "f", "g"]);
    }
}
