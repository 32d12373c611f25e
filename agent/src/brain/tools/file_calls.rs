//! Calls of the file tools, as a model writes them.

use pvp_protocol::{FILE_EDIT, FILE_READ, FileTool, JsonObject};
use serde_json::Value;

use super::{integer_argument, purpose_argument, reject_unknown_arguments, string_argument};

/// A change or a read that a model wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCall {
    pub file_tool: FileTool,
    pub purpose: String,
}

impl FileCall {
    /// One line that describes the call to people.
    pub fn summary(&self) -> String {
        format!("{} {}", self.file_tool.name(), self.file_tool.path())
    }
}

/// Parses a call; the error is a sentence for the model.
pub(super) fn parse(name: &str, arguments: &JsonObject) -> Result<FileCall, String> {
    let file_tool = match name {
        FILE_READ => parse_read(arguments)?,
        FILE_EDIT => parse_edit(arguments)?,
        _ => parse_write(arguments)?,
    };
    Ok(FileCall {
        file_tool,
        purpose: purpose_argument(arguments)?,
    })
}

fn parse_read(arguments: &JsonObject) -> Result<FileTool, String> {
    reject_unknown_arguments(arguments, &["path", "offset", "limit", "purpose"])?;
    let limit = integer_argument(arguments, "limit")?;
    if limit == Some(0) {
        return Err("`limit` must be at least 1.".to_owned());
    }
    Ok(FileTool::Read {
        path: path_argument(arguments)?,
        offset: integer_argument(arguments, "offset")?,
        limit,
    })
}

fn parse_write(arguments: &JsonObject) -> Result<FileTool, String> {
    reject_unknown_arguments(arguments, &["path", "content", "purpose"])?;
    Ok(FileTool::Write {
        path: path_argument(arguments)?,
        content: required_text(arguments, "content", "the whole new content")?,
    })
}

fn parse_edit(arguments: &JsonObject) -> Result<FileTool, String> {
    let names = ["path", "old_text", "new_text", "replace_all", "purpose"];
    reject_unknown_arguments(arguments, &names)?;
    let replace_all = match arguments.get("replace_all") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(replace_all)) => *replace_all,
        Some(_) => return Err("`replace_all` must be true or false.".to_owned()),
    };
    Ok(FileTool::Edit {
        path: path_argument(arguments)?,
        old_text: required_text(arguments, "old_text", "the text to replace")?,
        new_text: required_text(arguments, "new_text", "what replaces it")?,
        replace_all,
    })
}

fn path_argument(arguments: &JsonObject) -> Result<String, String> {
    required_text(arguments, "path", "the file, from the current directory")
}

fn required_text(arguments: &JsonObject, name: &str, what: &str) -> Result<String, String> {
    string_argument(arguments, name)?.ok_or_else(|| format!("`{name}` is missing: give {what}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_protocol::FILE_WRITE;
    use serde_json::json;

    fn parsed(name: &str, arguments: Value) -> Result<FileCall, String> {
        parse(name, arguments.as_object().unwrap())
    }

    #[test]
    fn calls_are_parsed() {
        let call = json!({"path": "a", "old_text": "x", "new_text": "", "purpose": "tidy"});
        let call = parsed(FILE_EDIT, call).unwrap();
        assert_eq!(
            (call.summary().as_str(), call.purpose.as_str()),
            ("file_edit a", "tidy")
        );
        let read = parsed(FILE_READ, json!({"path": "a", "offset": 0, "limit": null})).unwrap();
        let expected = FileTool::Read {
            path: "a".to_owned(),
            offset: Some(0),
            limit: None,
        };
        assert_eq!(read.file_tool, expected);
    }

    #[test]
    fn wrong_arguments_are_answered_with_what_to_do() {
        for (name, arguments, problem) in [
            (FILE_READ, json!({}), "`path` is missing: give the file"),
            (
                FILE_READ,
                json!({"path": "a", "limit": 0}),
                "`limit` must be at least 1.",
            ),
            (
                FILE_READ,
                json!({"path": "a", "lines": 1}),
                "There is no argument \"lines\"",
            ),
            (FILE_WRITE, json!({"path": "a"}), "`content` is missing"),
            (
                FILE_WRITE,
                json!({"path": "a", "content": 1}),
                "`content` must be a string.",
            ),
            (
                FILE_EDIT,
                json!({"path": "a", "old_text": "x", "new_text": "y", "replace_all": 1}),
                "`replace_all` must be true or false.",
            ),
        ] {
            let why = parsed(name, arguments).unwrap_err();
            assert!(why.starts_with(problem), "{why}");
        }
    }
}
