//! The action that a proposal asks for, parsed once from the proposal's arguments.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::file_tool::FileTool;
use crate::payload::ShellExec;
use crate::sorted_fields::SortedFields;
use crate::{Digest, JsonObject, ParticipantId};

wire_enums! {
    /// How a command is run.
    #[derive(Default)]
    pub enum RunMode {
        /// With the limits of its category.
        #[default]
        Normal,
        /// With a longer time limit, for builds and installs.
        Slow,
        /// Without a time limit; returns at once.
        Background,
        /// Under a pseudo-terminal, with a person at the keys.
        Pty,
    }
}

/// The command itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "form", rename_all = "snake_case")]
pub enum Command {
    /// A line that bash runs, byte for byte as shown.
    Shell { line: String },
    /// A program and its arguments, run directly without a shell.
    Argv { command: String, args: Vec<String> },
    /// A person's own command, run by the account's login shell.
    LoginShell { line: String },
    /// A tool other than the shell; it runs without a vote only if a rule of the policy says so.
    Tool {
        name: String,
        #[serde(serialize_with = "crate::sorted_fields::serialize")]
        #[cfg_attr(feature = "generate", ts(type = "Record<string, unknown>"))]
        arguments: JsonObject,
    },
}

impl Command {
    /// One line that describes the command to people. It is never executed.
    pub fn summary(&self) -> String {
        match self {
            Command::Shell { line } | Command::LoginShell { line } => line.clone(),
            Command::Argv { command, args } => {
                let words: Vec<_> = std::iter::once(command)
                    .chain(args)
                    .map(|word| shell_quoted(word))
                    .collect();
                words.join(" ")
            }
            Command::Tool { name, arguments } => {
                let arguments = serde_json::to_string(&SortedFields(arguments));
                format!("{name} {}", arguments.expect("JSON can be written"))
            }
        }
    }
}

fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

wire_structs! {
    /// A file that a command runs, as it was when the command was proposed.
    #[derive(Eq)]
    pub struct BoundFile {
        /// The path, from the executor's workspace.
        pub path: String,
        /// The SHA-256 of the content; absent if there was no such file, and there must be none
        /// when the command starts.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub sha256: Option<Digest>,
        /// The size in bytes; 0 if there was no such file.
        #[serde(default)]
        pub bytes: u64,
    }

    /// What exactly runs when a proposal is granted.
    pub struct Action {
        /// What to run.
        pub command: Command,
        /// The working directory; the executor's own if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cwd: Option<String>,
        /// Variables added to the environment.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub env: BTreeMap<String, String>,
        /// How the command is run.
        #[serde(default)]
        pub mode: RunMode,
        /// The requested time limit; the default of the category and mode if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub timeout_seconds: Option<u32>,
        /// Who may type, in `pty` mode.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub driver: Option<ParticipantId>,
        /// The names of the shared secrets that the command receives as variables.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub secrets: Vec<String>,
        /// The files that the command runs or changes; it does not start if one of them has changed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub files: Vec<BoundFile>,
    }
}

/// What `arguments.files` must be.
const FILES_FORM: &str = "a list of `path`, `sha256` and `bytes`";

/// Why a proposal's arguments do not describe an action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    #[error("shell arguments need `full_command`, or `command` and `args`")]
    MissingCommand,
    #[error("`arguments.{field}` must be {expected}")]
    InvalidField {
        field: &'static str,
        expected: &'static str,
    },
}

impl BoundFile {
    /// Whether this is the file at this path, with this text as its content.
    pub fn has_content(&self, path: &str, text: &str) -> bool {
        self.path == path && self.sha256 == Some(Digest::of_content(text.as_bytes()))
    }
}

impl Action {
    /// Parses `tool.propose` arguments. If `full_command` is present, it alone is what runs.
    pub fn from_arguments(tool_name: &str, arguments: &JsonObject) -> Result<Self, ActionError> {
        if tool_name != "shell" {
            return Ok(Self::from_tool_call(tool_name, arguments));
        }
        let command = match optional_string(arguments, "full_command")? {
            Some(line) => Command::Shell { line },
            None => Command::Argv {
                command: optional_string(arguments, "command")?
                    .ok_or(ActionError::MissingCommand)?,
                args: optional_field(arguments, "args", "a list of strings")?.unwrap_or_default(),
            },
        };
        let mode = "`normal`, `slow`, `background` or `pty`";
        Ok(Self {
            command,
            cwd: optional_string(arguments, "cwd")?,
            env: optional_field(arguments, "env", "an object of strings")?.unwrap_or_default(),
            mode: optional_field(arguments, "mode", mode)?.unwrap_or_default(),
            timeout_seconds: optional_field(arguments, "timeout", "a whole number of seconds")?,
            driver: optional_field(arguments, "driver", "a participant id")?,
            secrets: optional_field(arguments, "secrets", "a list of names")?.unwrap_or_default(),
            files: optional_field(arguments, "files", FILES_FORM)?.unwrap_or_default(),
        })
    }

    /// The call of a tool other than the shell. Those of the file tools may bind files; other
    /// agents' tools of the same name send anything there, which is then no binding.
    pub fn from_tool_call(tool_name: &str, arguments: &JsonObject) -> Self {
        let files = match FileTool::is_name(tool_name) {
            true => optional_field(arguments, "files", FILES_FORM),
            false => Ok(None),
        };
        Self {
            files: files.ok().flatten().unwrap_or_default(),
            ..Self::new(Command::Tool {
                name: tool_name.to_owned(),
                arguments: arguments.clone(),
            })
        }
    }

    /// An action with this command and defaults for everything else.
    pub fn new(command: Command) -> Self {
        Self {
            command,
            cwd: None,
            env: BTreeMap::new(),
            mode: RunMode::Normal,
            timeout_seconds: None,
            driver: None,
            secrets: Vec::new(),
            files: Vec::new(),
        }
    }

    /// The action of a person's own command.
    pub fn from_shell_exec(exec: &ShellExec) -> Self {
        Self {
            cwd: exec.cwd.clone(),
            timeout_seconds: exec.timeout_seconds,
            secrets: exec.secrets.clone(),
            ..Self::new(Command::LoginShell {
                line: exec.command.clone(),
            })
        }
    }

    /// Whether this text is the content of a file that the action binds under this path.
    pub fn binds_content(&self, path: &str, text: &str) -> bool {
        self.files.iter().any(|file| file.has_content(path, text))
    }

    /// The digest of exactly this action. The order of JSON keys does not affect it.
    pub fn digest(&self) -> Digest {
        let bytes = serde_json::to_vec(self).expect("an action is plain data");
        Digest::of(&[b"pvp.action.v1", &bytes])
    }
}

fn optional_field<T: serde::de::DeserializeOwned>(
    arguments: &JsonObject,
    name: &'static str,
    expected: &'static str,
) -> Result<Option<T>, ActionError> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => T::deserialize(value)
            .map(Some)
            .map_err(|_| ActionError::InvalidField {
                field: name,
                expected,
            }),
    }
}

fn optional_string(
    arguments: &JsonObject,
    name: &'static str,
) -> Result<Option<String>, ActionError> {
    optional_field(arguments, name, "a string")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> JsonObject {
        value.as_object().cloned().unwrap()
    }

    fn bound_file(sha256: Option<Digest>) -> BoundFile {
        let path = "deploy.sh".to_owned();
        BoundFile {
            path,
            sha256,
            bytes: 1,
        }
    }

    #[test]
    fn the_order_of_keys_changes_nothing_of_a_call() {
        let action = |text: &str| {
            let arguments: JsonObject = serde_json::from_str(text).unwrap();
            Action::from_arguments("WebFetch", &arguments).unwrap()
        };
        let one = action(r#"{"url": "a", "options": [{"x": 1, "b": 2}]}"#);
        let other = action(r#"{"options": [{"b": 2, "x": 1}], "url": "a"}"#);
        assert_eq!(one.digest(), other.digest());
        let summary = r#"WebFetch {"options":[{"b":2,"x":1}],"url":"a"}"#;
        assert_eq!([&one, &other].map(|it| it.command.summary()), [summary; 2]);
    }

    #[test]
    fn full_command_alone_is_what_runs() {
        let arguments =
            object(json!({"command": "ls", "args": ["-la"], "full_command": "rm -rf x"}));
        let action = Action::from_arguments("shell", &arguments).unwrap();
        assert_eq!(
            action.command,
            Command::Shell {
                line: "rm -rf x".to_owned()
            }
        );
    }

    #[test]
    fn without_full_command_the_arguments_run_without_a_shell() {
        let arguments = object(json!({"command": "echo", "args": ["a b", "$(x)", ""]}));
        let action = Action::from_arguments("shell", &arguments).unwrap();
        assert_eq!(action.command.summary(), "echo 'a b' '$(x)' ''");
    }

    #[test]
    fn unclear_arguments_are_refused() {
        for (arguments, error) in [
            (json!({}), ActionError::MissingCommand),
            (
                json!({"full_command": 7}),
                ActionError::InvalidField {
                    field: "full_command",
                    expected: "a string",
                },
            ),
            (
                json!({"command": "ls", "args": "-la"}),
                ActionError::InvalidField {
                    field: "args",
                    expected: "a list of strings",
                },
            ),
            (
                json!({"command": "ls", "env": {"A": 1}}),
                ActionError::InvalidField {
                    field: "env",
                    expected: "an object of strings",
                },
            ),
            (
                json!({"command": "ls", "timeout": -1}),
                ActionError::InvalidField {
                    field: "timeout",
                    expected: "a whole number of seconds",
                },
            ),
        ] {
            assert_eq!(
                Action::from_arguments("shell", &object(arguments)),
                Err(error)
            );
        }
    }

    #[test]
    fn anything_that_changes_what_happens_changes_the_digest() {
        let base = Action::new(Command::Shell {
            line: "ls".to_owned(),
        });
        let mut others = vec![
            Action::new(Command::Shell {
                line: "ls ".to_owned(),
            }),
            Action::new(Command::LoginShell {
                line: "ls".to_owned(),
            }),
            Action::new(Command::Argv {
                command: "ls".to_owned(),
                args: vec![],
            }),
            Action {
                cwd: Some("/".to_owned()),
                ..base.clone()
            },
            Action {
                env: [("A".to_owned(), "b".to_owned())].into(),
                ..base.clone()
            },
            Action {
                mode: RunMode::Slow,
                ..base.clone()
            },
            Action {
                timeout_seconds: Some(1),
                ..base.clone()
            },
            Action {
                driver: Some(ParticipantId::parse("ann").unwrap()),
                ..base.clone()
            },
            Action {
                secrets: vec!["DEPLOY_KEY".to_owned()],
                ..base.clone()
            },
            Action {
                files: vec![bound_file(Some(Digest::of_content(b"a")))],
                ..base.clone()
            },
            Action {
                files: vec![bound_file(Some(Digest::of_content(b"b")))],
                ..base.clone()
            },
            Action {
                files: vec![bound_file(None)],
                ..base.clone()
            },
            base.clone(),
        ];
        let mut digests: Vec<_> = others.drain(..).map(|action| action.digest()).collect();
        assert_eq!(digests.pop(), Some(base.digest()));
        digests.push(base.digest());
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), 13);
        assert_eq!(Digest::parse(&base.digest().to_string()), Ok(base.digest()));
    }
}
