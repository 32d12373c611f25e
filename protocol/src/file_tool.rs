//! The file tools of our own agent, parsed strictly from an action.

use serde::Deserialize;

use crate::{Action, BoundFile, Command, JsonObject};

/// A call of one of the file tools, exactly as it is carried out when it is granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileTool {
    /// Reads lines of a text file.
    Read {
        path: String,
        /// The first line, counted from 0.
        offset: Option<u64>,
        /// The most lines.
        limit: Option<u64>,
    },
    /// Creates a file, or replaces all of its content.
    Write { path: String, content: String },
    /// Replaces text in a file.
    Edit {
        path: String,
        /// Occurs exactly once, unless `replace_all` is set.
        old_text: String,
        new_text: String,
        replace_all: bool,
    },
}

/// The name of the tool that reads a file.
pub const FILE_READ: &str = "file_read";
/// The name of the tool that creates or replaces a file.
pub const FILE_WRITE: &str = "file_write";
/// The name of the tool that replaces text in a file.
pub const FILE_EDIT: &str = "file_edit";

impl FileTool {
    /// Whether a tool of this name is one of the file tools, whatever its arguments are.
    pub fn is_name(tool_name: &str) -> bool {
        [FILE_READ, FILE_WRITE, FILE_EDIT].contains(&tool_name)
    }

    /// The call that an action is, if it is one of a file tool with exactly its arguments, and
    /// asks for nothing beside them. Another agent's tool may have the same name and mean
    /// something else.
    pub fn from_action(action: &Action) -> Option<Self> {
        let Command::Tool { name, arguments } = &action.command else {
            return None;
        };
        let is_whole = Action::from_arguments(name, arguments).as_ref() == Ok(action);
        let parsed = match name.as_str() {
            FILE_READ => parse::<ReadArguments>(arguments).map(Self::from),
            FILE_WRITE => parse::<WriteArguments>(arguments).map(Self::from),
            FILE_EDIT => parse::<EditArguments>(arguments).map(Self::from),
            _ => None,
        };
        parsed.filter(|_| is_whole)
    }

    /// The file, as it is named.
    pub fn path(&self) -> &str {
        match self {
            Self::Read { path, .. } | Self::Write { path, .. } | Self::Edit { path, .. } => path,
        }
    }

    /// The name of the tool.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Read { .. } => FILE_READ,
            Self::Write { .. } => FILE_WRITE,
            Self::Edit { .. } => FILE_EDIT,
        }
    }

    /// The arguments of the call, without a binding.
    pub fn arguments(&self) -> JsonObject {
        let mut arguments = JsonObject::new();
        let mut insert = |name: &str, value: serde_json::Value| {
            arguments.insert(name.to_owned(), value);
        };
        insert("path", self.path().into());
        match self {
            Self::Read { offset, limit, .. } => {
                if let Some(offset) = offset {
                    insert("offset", (*offset).into());
                }
                if let Some(limit) = limit {
                    insert("limit", (*limit).into());
                }
            }
            Self::Write { content, .. } => insert("content", content.as_str().into()),
            Self::Edit {
                old_text,
                new_text,
                replace_all,
                ..
            } => {
                insert("old_text", old_text.as_str().into());
                insert("new_text", new_text.as_str().into());
                if *replace_all {
                    insert("replace_all", true.into());
                }
            }
        }
        arguments
    }
}

fn parse<'de, T: Deserialize<'de>>(arguments: &'de JsonObject) -> Option<T> {
    T::deserialize(arguments).ok()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
    #[serde(rename = "files")]
    _files: Option<Vec<BoundFile>>,
    #[serde(rename = "description")]
    _description: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArguments {
    path: String,
    content: String,
    #[serde(rename = "files")]
    _files: Option<Vec<BoundFile>>,
    #[serde(rename = "description")]
    _description: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditArguments {
    /// The file.
    path: String,
    /// What is replaced.
    old_text: String,
    /// What replaces it.
    new_text: String,
    /// Whether every occurrence is replaced.
    #[serde(default)]
    replace_all: bool,
    /// The binding, which is in the action too.
    #[serde(rename = "files")]
    _files: Option<Vec<BoundFile>>,
    /// What the agent says it is for.
    #[serde(rename = "description")]
    _description: Option<String>,
}

impl From<ReadArguments> for FileTool {
    fn from(arguments: ReadArguments) -> Self {
        Self::Read {
            path: arguments.path,
            offset: arguments.offset,
            limit: arguments.limit,
        }
    }
}

impl From<WriteArguments> for FileTool {
    fn from(arguments: WriteArguments) -> Self {
        Self::Write {
            path: arguments.path,
            content: arguments.content,
        }
    }
}

impl From<EditArguments> for FileTool {
    fn from(arguments: EditArguments) -> Self {
        Self::Edit {
            path: arguments.path,
            old_text: arguments.old_text,
            new_text: arguments.new_text,
            replace_all: arguments.replace_all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Digest, RunMode};
    use serde_json::{Value, json};

    fn action(name: &str, arguments: Value) -> Action {
        Action::from_arguments(name, arguments.as_object().unwrap()).unwrap()
    }

    fn parsed(name: &str, arguments: Value) -> Option<FileTool> {
        FileTool::from_action(&action(name, arguments))
    }

    #[test]
    fn each_tool_is_parsed_and_written_back() {
        for (name, arguments) in [
            ("file_read", json!({"path": "a"})),
            ("file_read", json!({"path": "a", "offset": 7, "limit": 1})),
            ("file_write", json!({"path": "a", "content": ""})),
            (
                "file_edit",
                json!({"path": "a", "old_text": "b", "new_text": "c"}),
            ),
            (
                "file_edit",
                json!({"path": "a", "old_text": "b", "new_text": "c", "replace_all": true}),
            ),
        ] {
            let tool = parsed(name, arguments.clone()).unwrap();
            assert_eq!(tool.name(), name);
            assert_eq!(tool.path(), "a");
            assert_eq!(Value::Object(tool.arguments()), arguments);
        }
    }

    #[test]
    fn a_binding_and_a_description_may_stand_beside() {
        let sha256 = Digest::of_content(b"old");
        let arguments = json!({
            "path": "a", "content": "new", "description": "why",
            "files": [{"path": "a", "sha256": sha256, "bytes": 3}],
        });
        let action = action("file_write", arguments);
        assert!(action.binds_content("a", "old"));
        let tool = FileTool::Write {
            path: "a".to_owned(),
            content: "new".to_owned(),
        };
        assert_eq!(FileTool::from_action(&action), Some(tool));
    }

    #[test]
    fn another_agents_form_is_no_call_of_ours() {
        for (name, arguments) in [
            ("file_write", json!({"file_path": "a", "content": "b"})),
            (
                "file_write",
                json!({"path": "a", "content": "b", "mode": 7}),
            ),
            ("file_write", json!({"path": "a"})),
            ("file_write", json!({"path": ["a"], "content": "b"})),
            ("file_write", json!({"path": "a", "content": {"b": 1}})),
            (
                "file_write",
                json!({"path": "a", "content": "b", "files": "all"}),
            ),
            ("file_read", json!({"path": "a", "offset": -1})),
            ("file_read", json!({"path": "a", "limit": "3"})),
            (
                "file_edit",
                json!({"path": "a", "old_text": "b", "new_text": "c", "replace_all": "yes"}),
            ),
            ("file_delete", json!({"path": "a"})),
            ("Write", json!({"path": "a", "content": "b"})),
        ] {
            assert_eq!(parsed(name, arguments.clone()), None, "{name} {arguments}");
        }
    }

    #[test]
    fn what_the_arguments_do_not_say_is_not_carried_out() {
        let plain = action("file_write", json!({"path": "a", "content": "b"}));
        assert!(FileTool::from_action(&plain).is_some());
        let bound = BoundFile {
            path: "a".to_owned(),
            sha256: None,
            bytes: 0,
        };
        for other in [
            Action {
                files: vec![bound],
                ..plain.clone()
            },
            Action {
                cwd: Some("/".to_owned()),
                ..plain.clone()
            },
            Action {
                mode: RunMode::Background,
                ..plain.clone()
            },
            Action {
                secrets: vec!["KEY".to_owned()],
                ..plain.clone()
            },
        ] {
            assert_eq!(FileTool::from_action(&other), None, "{other:?}");
        }
    }

    #[test]
    fn a_binding_of_another_shape_is_ignored_and_stays_in_the_arguments() {
        for files in [
            json!("all"),
            json!([{"name": "a"}]),
            json!({"path": "a"}),
            json!(null),
        ] {
            let arguments = json!({"path": "a", "content": "b", "files": files});
            let action = action("file_write", arguments.clone());
            assert_eq!(action.files, []);
            let Command::Tool {
                arguments: kept, ..
            } = &action.command
            else {
                panic!("not a tool");
            };
            assert_eq!(Value::Object(kept.clone()), arguments);
        }
        // Only our file tools have bindings.
        let fetch = action("fetch", json!({"files": [{"path": "a", "bytes": 0}]}));
        assert_eq!(fetch.files, []);
    }
}
