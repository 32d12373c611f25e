//! A script as it is written: TOML or JSON lines, read into steps.

use std::ops::Range;

use pvp_protocol::{Category, RunMode};
use serde::Deserialize;
use serde_json::json;
use toml::Spanned;

use super::super::words::Ending;

/// Why a script cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct ScriptError {
    pub file: String,
    pub line: usize,
    pub problem: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub(super) line: usize,
    /// Only if this is how the last command ended.
    pub(super) when: Option<Ending>,
    pub(super) act: Act,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Act {
    WaitForPrompt,
    Say(String),
    Think(String),
    Shell { arguments: String, together: bool },
    Expect(Expect),
}

/// What the last command must have come to.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    /// How it was sorted.
    pub(super) verdict: Option<Category>,
    /// How it ended.
    pub(super) outcome: Option<Ending>,
    pub(super) exit: Option<i64>,
    /// What the model would read contains this.
    pub(super) contains: Option<String>,
}

/// A step as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    wait: Option<Wait>,
    say: Option<String>,
    think: Option<String>,
    shell: Option<String>,
    expect: Option<Expect>,
    when: Option<Ending>,
    mode: Option<RunMode>,
    cwd: Option<String>,
    timeout: Option<u64>,
    purpose: Option<String>,
    /// Goes out in the same answer as the next command.
    #[serde(default)]
    together: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Wait {
    Prompt,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    #[serde(default)]
    step: Vec<Spanned<Written>>,
}

/// A list of `[[step]]`.
pub(super) fn from_toml(name: &str, text: &str) -> Result<Vec<Step>, ScriptError> {
    let line_of = |span: Option<Range<usize>>| {
        let before = span.map_or("", |span| text.get(..span.start).unwrap_or(text));
        before.matches('\n').count() + 1
    };
    let script: Script = toml::from_str(text).map_err(|error| ScriptError {
        file: name.to_owned(),
        line: line_of(error.span()),
        problem: error.message().to_owned(),
    })?;
    let read = |written: Spanned<Written>| {
        let line = line_of(Some(written.span()));
        step(name, line, written.into_inner())
    };
    script.step.into_iter().map(read).collect()
}

/// A step on each line; empty lines and lines that begin with `#` do not count.
pub(super) fn from_json_lines(name: &str, text: &str) -> Result<Vec<Step>, ScriptError> {
    let mut steps = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let written = serde_json::from_str(line).map_err(|error| ScriptError {
            file: name.to_owned(),
            line: index + 1,
            problem: error.to_string(),
        })?;
        steps.push(step(name, index + 1, written)?);
    }
    Ok(steps)
}

fn step(name: &str, line: usize, written: Written) -> Result<Step, ScriptError> {
    let when = written.when;
    let act = act(written).map_err(|problem| ScriptError {
        file: name.to_owned(),
        line,
        problem,
    })?;
    Ok(Step { line, when, act })
}

fn act(written: Written) -> Result<Act, String> {
    let alone = || {
        let extra = [
            ("mode", written.mode.is_some()),
            ("cwd", written.cwd.is_some()),
            ("timeout", written.timeout.is_some()),
            ("purpose", written.purpose.is_some()),
            ("together", written.together),
        ];
        match extra.iter().find(|(_, there)| *there) {
            Some((name, _)) => Err(format!("`{name}` goes only with `shell`")),
            None => Ok(()),
        }
    };
    match (
        &written.wait,
        &written.say,
        &written.think,
        &written.shell,
        &written.expect,
    ) {
        (Some(Wait::Prompt), None, None, None, None) => alone().map(|()| Act::WaitForPrompt),
        (None, Some(text), None, None, None) => alone().map(|()| Act::Say(text.clone())),
        (None, None, Some(text), None, None) => alone().map(|()| Act::Think(text.clone())),
        (None, None, None, None, Some(expect)) => alone().map(|()| Act::Expect(expect.clone())),
        (None, None, None, Some(command), None) => Ok(Act::Shell {
            arguments: json!({
                "command": command, "mode": written.mode, "cwd": written.cwd,
                "timeout": written.timeout, "purpose": written.purpose,
            })
            .to_string(),
            together: written.together,
        }),
        _ => Err("a step has exactly one of wait, say, think, shell, expect".to_owned()),
    }
}
