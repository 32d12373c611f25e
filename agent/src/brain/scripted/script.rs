//! The format of scripts: TOML or JSON lines, parsed into steps.

use std::ops::Range;

use pvp_protocol::suggestion::suggest_in;
use pvp_protocol::{Category, FILE_EDIT, FILE_READ, FILE_WRITE, JsonObject, RunMode};
use serde::Deserialize;
use serde_json::{Value, json};
use toml::Spanned;

use super::super::proposal_result::CallStatus;

/// Why a script is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct ScriptError {
    pub file: String,
    pub line: usize,
    pub problem: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScriptStep {
    pub(super) line: usize,
    /// Run the step only if the last command ended like this; `None` always runs it.
    pub(super) when: Option<CallStatus>,
    pub(super) action: ScriptAction,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ScriptAction {
    WaitForPrompt,
    Say(String),
    Think(String),
    /// Calls a tool.
    Call {
        name: &'static str,
        /// As JSON.
        arguments: String,
        together: bool,
    },
    Expect(ScriptExpectation),
}

/// What the result of the last command must be; `None` is not checked.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptExpectation {
    /// The category that the policy put it into.
    pub(super) verdict: Option<Category>,
    /// How it ended.
    pub(super) outcome: Option<CallStatus>,
    /// The exit code.
    pub(super) exit: Option<i64>,
    /// Text that the result for the model must contain.
    pub(super) contains: Option<String>,
}

/// A step as it is written in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    /// Waits for a prompt.
    wait: Option<WaitFor>,
    /// Text to say.
    say: Option<String>,
    /// Text to show as thinking.
    think: Option<String>,
    /// A command line to propose.
    shell: Option<String>,
    /// A file to read.
    file_read: Option<JsonObject>,
    /// A file to write.
    file_write: Option<JsonObject>,
    /// A file to edit.
    file_edit: Option<JsonObject>,
    /// What the result of the last command must be.
    expect: Option<ScriptExpectation>,
    /// Run the step only if the last command ended like this.
    when: Option<CallStatus>,
    /// The mode of the command.
    mode: Option<RunMode>,
    /// The directory of the command.
    cwd: Option<String>,
    /// The time limit of the command, in seconds.
    timeout: Option<u64>,
    /// The purpose that people are shown with the command.
    purpose: Option<String>,
    /// Whether the command is proposed in the same answer as the next one.
    #[serde(default)]
    together: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WaitFor {
    Prompt,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptFile {
    #[serde(default)]
    step: Vec<Spanned<RawStep>>,
}

/// Parses a list of `[[step]]`.
pub(super) fn from_toml(name: &str, text: &str) -> Result<Vec<ScriptStep>, ScriptError> {
    let line_of = |span: Option<Range<usize>>| {
        let before = span.map_or("", |span| text.get(..span.start).unwrap_or(text));
        before.matches('\n').count() + 1
    };
    let script: ScriptFile = toml::from_str(text).map_err(|error| ScriptError {
        file: name.to_owned(),
        line: line_of(error.span()),
        problem: suggest_in(error.message()),
    })?;
    let read = |raw: Spanned<RawStep>| {
        let line = line_of(Some(raw.span()));
        parse_step(name, line, raw.into_inner())
    };
    script.step.into_iter().map(read).collect()
}

/// Parses one step per line; empty lines and lines that begin with `#` are skipped.
pub(super) fn from_json_lines(name: &str, text: &str) -> Result<Vec<ScriptStep>, ScriptError> {
    let mut steps = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let raw = serde_json::from_str(line).map_err(|error| ScriptError {
            file: name.to_owned(),
            line: index + 1,
            problem: error.to_string(),
        })?;
        steps.push(parse_step(name, index + 1, raw)?);
    }
    Ok(steps)
}

fn parse_step(name: &str, line: usize, raw: RawStep) -> Result<ScriptStep, ScriptError> {
    let when = raw.when;
    let action = parse_action(raw).map_err(|problem| ScriptError {
        file: name.to_owned(),
        line,
        problem,
    })?;
    Ok(ScriptStep { line, when, action })
}

fn parse_action(raw: RawStep) -> Result<ScriptAction, String> {
    let only_with = |fields: &[(&str, bool)], step: &str| match fields.iter().find(|it| it.1) {
        Some((name, _)) => Err(format!("`{name}` works only with {step}")),
        None => Ok(()),
    };
    let of_commands = [
        ("mode", raw.mode.is_some()),
        ("cwd", raw.cwd.is_some()),
        ("timeout", raw.timeout.is_some()),
    ];
    let of_calls = [
        ("purpose", raw.purpose.is_some()),
        ("together", raw.together),
    ];
    let mut actions = raw.actions();
    let (Some(action), None) = (actions.next(), actions.next()) else {
        return Err(STEP_FORM.to_owned());
    };
    match &action {
        ScriptAction::Call { name: "shell", .. } => {}
        ScriptAction::Call { .. } => only_with(&of_commands, "`shell`")?,
        ScriptAction::WaitForPrompt
        | ScriptAction::Say(_)
        | ScriptAction::Think(_)
        | ScriptAction::Expect(_) => {
            only_with(&of_commands, "`shell`")?;
            only_with(&of_calls, "`shell` and the file tools")?;
        }
    }
    Ok(action)
}

/// What a step must be.
const STEP_FORM: &str = "a step has exactly one of wait, say, think, shell, file_read, file_write, \
                         file_edit, expect";

impl RawStep {
    /// Everything that the step says to do; exactly one thing if it is valid.
    fn actions(&self) -> impl Iterator<Item = ScriptAction> {
        let wait = self.wait.map(|WaitFor::Prompt| ScriptAction::WaitForPrompt);
        let say = self.say.clone().map(ScriptAction::Say);
        let think = self.think.clone().map(ScriptAction::Think);
        let expect = self.expect.clone().map(ScriptAction::Expect);
        let shell = self.shell.as_ref().map(|command| {
            let arguments = json!({
                "command": command, "mode": self.mode, "cwd": self.cwd,
                "timeout": self.timeout, "purpose": self.purpose,
            });
            self.call("shell", arguments)
        });
        let files = [
            (FILE_READ, &self.file_read),
            (FILE_WRITE, &self.file_write),
            (FILE_EDIT, &self.file_edit),
        ];
        let files = files.map(|(name, arguments)| {
            let mut arguments = arguments.clone()?;
            arguments.insert("purpose".to_owned(), json!(self.purpose));
            Some(self.call(name, arguments.into()))
        });
        let all = [wait, say, think, shell, expect].into_iter();
        all.chain(files).flatten()
    }

    fn call(&self, name: &'static str, arguments: Value) -> ScriptAction {
        ScriptAction::Call {
            name,
            arguments: arguments.to_string(),
            together: self.together,
        }
    }
}
