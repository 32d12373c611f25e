//! What someone asks to have done: the command as it would run, and the verdict on it.

use std::collections::BTreeMap;

use pvp_protocol::payload::OpenGate;
use pvp_protocol::{
    Action, Assessment, Category, Command, JsonObject, PartAssessment, ParticipantId, RunMode,
};
use serde::Serialize;
use serde_json::Value;

use super::text::{MAX_LINE_BYTES, count_invisible, escape_invisible, truncate, truncate_line};

/// Longest command that is kept whole, in bytes. Nobody is asked to approve what is not whole.
pub const MAX_COMMAND_BYTES: usize = 256 * 1024;

/// What is kept of a command that is over, in bytes: enough to recognise it.
pub const MAX_CLOSED_COMMAND_BYTES: usize = 8 * 1024;

/// Most words of an argv, additions to the environment, parts and notes that are kept.
const MAX_LIST_ITEMS: usize = 128;

/// Most words of a suggested prefix: a command, its subcommand, and what that is about.
const MAX_PREFIX_WORDS: usize = 3;

/// How a command is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandForm {
    /// By bash, byte for byte as shown.
    Shell,
    /// Directly, without any shell.
    Argv,
    /// A person's own command, by the account's login shell.
    LoginShell,
    /// A tool other than the shell.
    Tool,
}

/// What someone asks to have done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestedAction {
    /// Who asks; unknown if that was before what was told.
    pub proposer: Option<ParticipantId>,
    /// The command verbatim.
    pub command: String,
    /// The command with everything that an eye would not see written out.
    pub shown: String,
    /// Characters of the command, its directory and its environment that an eye would not see.
    pub hidden: usize,
    /// Bytes of the command, its words and its surroundings that are not kept here.
    pub cut_bytes: u64,
    pub form: CommandForm,
    /// The words, in the `argv` form.
    pub argv: Vec<String>,
    /// The name, in the `tool` form.
    pub tool: Option<String>,
    pub cwd: Option<String>,
    /// Additions to the environment.
    pub env: BTreeMap<String, String>,
    pub mode: RunMode,
    pub timeout_seconds: Option<u32>,
    /// Who may type, in `pty` mode.
    pub driver: Option<ParticipantId>,
    /// Why, in the words of the one who asks.
    pub purpose: String,
    pub assessment: Option<Assessment>,
    /// The words that an allow rule for commands of this kind could begin with.
    pub prefix: Vec<String>,
    /// Who edited it last.
    pub edited_by: Option<ParticipantId>,
}

/// Counts what is cut off on the way.
#[derive(Default)]
struct TruncationCounter(u64);

impl TruncationCounter {
    fn truncate(&mut self, text: &str, most: usize) -> String {
        let kept = truncate(text, most);
        self.0 += (text.len() - kept.len()) as u64;
        kept
    }

    fn count_dropped(&mut self, text: &str) {
        self.0 += text.len() as u64;
    }
}

impl RequestedAction {
    pub(super) fn new(
        proposer: &ParticipantId,
        action: &Action,
        assessment: Option<&Assessment>,
        purpose: &str,
    ) -> Self {
        let category = assessment.map(|assessment| assessment.category);
        Self {
            proposer: Some(proposer.clone()),
            purpose: truncate_line(purpose),
            assessment: assessment.map(truncated_assessment),
            prefix: suggested_prefix(action, category),
            ..Self::from_action(action)
        }
    }

    /// What a newcomer is told of an open gate.
    pub(super) fn from_open_gate(open: &OpenGate) -> Self {
        let assessment = Some(&open.assessment);
        Self {
            edited_by: open.amended_by.clone(),
            ..Self::new(&open.proposer, &open.action, assessment, &open.description)
        }
    }

    /// What a newcomer is told of a running command: one line.
    pub(super) fn from_command_line(command: &str, mode: RunMode) -> Self {
        let line = command.to_owned();
        let action = Action::new(Command::Shell { line });
        Self {
            mode,
            ..Self::from_action(&action)
        }
    }

    fn from_action(action: &Action) -> Self {
        let mut truncation = TruncationCounter::default();
        let command = truncation.truncate(&action.command.summary(), MAX_COMMAND_BYTES);
        let (form, argv, tool) = command_form(&action.command, &mut truncation);
        let cwd = action.cwd.as_deref();
        Self {
            proposer: None,
            shown: escape_invisible(&command),
            hidden: count_invisible_in(action),
            command,
            form,
            argv,
            tool,
            cwd: cwd.map(|cwd| truncation.truncate(cwd, MAX_LINE_BYTES)),
            env: truncated_env(&action.env, &mut truncation),
            mode: action.mode,
            timeout_seconds: action.timeout_seconds,
            driver: action.driver.clone(),
            purpose: String::new(),
            assessment: None,
            prefix: Vec::new(),
            edited_by: None,
            cut_bytes: truncation.0,
        }
    }

    /// The same request for something else, as someone edited it.
    pub(super) fn with_edit(
        &self,
        by: Option<&ParticipantId>,
        arguments: &JsonObject,
        assessment: &Assessment,
    ) -> Option<Self> {
        let tool = self.tool.as_deref().unwrap_or("shell");
        let action = Action::from_arguments(tool, arguments).ok()?;
        Some(Self {
            proposer: self.proposer.clone(),
            purpose: self.purpose.clone(),
            assessment: Some(truncated_assessment(assessment)),
            prefix: suggested_prefix(&action, Some(assessment.category)),
            edited_by: by.cloned(),
            ..Self::from_action(&action)
        })
    }

    /// The same request with what was granted, which is exactly what runs.
    pub(super) fn with_granted_action(&self, action: &Action) -> Self {
        Self {
            proposer: self.proposer.clone(),
            purpose: self.purpose.clone(),
            assessment: self.assessment.clone(),
            prefix: self.prefix.clone(),
            edited_by: self.edited_by.clone(),
            ..Self::from_action(action)
        }
    }

    /// Only what is worth keeping of a command that is over.
    pub(super) fn shorten(&mut self) {
        let kept = truncate(&self.command, MAX_CLOSED_COMMAND_BYTES);
        if kept.len() < self.command.len() {
            self.cut_bytes += (self.command.len() - kept.len()) as u64;
            self.shown = escape_invisible(&kept);
            self.command = kept;
            self.argv.clear();
        }
    }

    /// How dangerous it was found to be, if that was told.
    pub fn category(&self) -> Option<Category> {
        self.assessment
            .as_ref()
            .map(|assessment| assessment.category)
    }

    /// The arguments of a `gate.amend` that runs this line in place of the command; `None` for
    /// what has no command line to edit.
    pub fn amend_arguments(&self, line: &str) -> Option<JsonObject> {
        match self.form {
            CommandForm::Shell | CommandForm::Argv => {}
            CommandForm::LoginShell | CommandForm::Tool => return None,
        }
        let fields = [
            ("full_command", Some(Value::from(line))),
            ("cwd", self.cwd.clone().map(Value::from)),
            ("env", (!self.env.is_empty()).then(|| to_json(&self.env))),
            (
                "mode",
                (self.mode != RunMode::Normal).then(|| to_json(&self.mode)),
            ),
            ("timeout", self.timeout_seconds.map(Value::from)),
            ("driver", self.driver.as_ref().map(to_json)),
        ];
        let fields = fields.into_iter();
        Some(
            fields
                .filter_map(|(name, value)| Some((name.to_owned(), value?)))
                .collect(),
        )
    }
}

fn count_invisible_in(action: &Action) -> usize {
    let directory = action.cwd.as_deref().map_or(0, count_invisible);
    let additions = action.env.iter();
    let environment: usize = additions
        .map(|(name, value)| count_invisible(name) + count_invisible(value))
        .sum();
    count_invisible(&action.command.summary()) + directory + environment
}

fn to_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn command_form(
    command: &Command,
    truncation: &mut TruncationCounter,
) -> (CommandForm, Vec<String>, Option<String>) {
    match command {
        Command::Shell { .. } => (CommandForm::Shell, Vec::new(), None),
        Command::LoginShell { .. } => (CommandForm::LoginShell, Vec::new(), None),
        Command::Tool { name, .. } => (CommandForm::Tool, Vec::new(), Some(truncate_line(name))),
        Command::Argv { command, args } => (
            CommandForm::Argv,
            truncated_argv(command, args, truncation),
            None,
        ),
    }
}

fn truncated_argv(
    command: &str,
    args: &[String],
    truncation: &mut TruncationCounter,
) -> Vec<String> {
    let all = || std::iter::once(command).chain(args.iter().map(String::as_str));
    all()
        .skip(MAX_LIST_ITEMS)
        .for_each(|word| truncation.count_dropped(word));
    all()
        .take(MAX_LIST_ITEMS)
        .map(|word| truncation.truncate(word, MAX_LINE_BYTES))
        .collect()
}

fn truncated_env(
    env: &BTreeMap<String, String>,
    truncation: &mut TruncationCounter,
) -> BTreeMap<String, String> {
    env.iter()
        .skip(MAX_LIST_ITEMS)
        .for_each(|(_, value)| truncation.count_dropped(value));
    let kept = env.iter().take(MAX_LIST_ITEMS);
    kept.map(|(name, value)| {
        (
            truncation.truncate(name, MAX_LINE_BYTES),
            truncation.truncate(value, MAX_LINE_BYTES),
        )
    })
    .collect()
}

/// A verdict of the size that is kept.
fn truncated_assessment(assessment: &Assessment) -> Assessment {
    let part = |part: &PartAssessment| PartAssessment {
        text: truncate_line(&part.text),
        rule: truncate_line(&part.rule),
        reason: truncate_line(&part.reason),
        ..part.clone()
    };
    Assessment {
        rule: truncate_line(&assessment.rule),
        reason: truncate_line(&assessment.reason),
        parts: assessment
            .parts
            .iter()
            .take(MAX_LIST_ITEMS)
            .map(part)
            .collect(),
        notes: assessment
            .notes
            .iter()
            .take(MAX_LIST_ITEMS)
            .map(|note| truncate_line(note))
            .collect(),
        policy: truncate_line(&assessment.policy),
        ..*assessment
    }
}

/// The words that an allow rule could begin with: a bare command name and the subcommands after
/// it. Empty where no rule could ever cover the command, or where its words cannot be told
/// without reading it as a shell would.
fn suggested_prefix(action: &Action, category: Option<Category>) -> Vec<String> {
    let can_be_allowed =
        category == Some(Category::Write) && action.env.is_empty() && action.mode != RunMode::Pty;
    let words: Vec<&str> = match &action.command {
        Command::Shell { line } if line.chars().all(is_unquoted_char) => line.split(' ').collect(),
        Command::Argv { command, args } => std::iter::once(command)
            .chain(args)
            .map(String::as_str)
            .collect(),
        Command::Shell { .. } | Command::LoginShell { .. } | Command::Tool { .. } => Vec::new(),
    };
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    match words.next() {
        Some(command) if can_be_allowed && is_bare_name(command) => {
            let subcommands = words.take_while(|word| is_subcommand(word));
            let words = std::iter::once(command).chain(subcommands);
            words.take(MAX_PREFIX_WORDS).map(str::to_owned).collect()
        }
        Some(_) | None => Vec::new(),
    }
}

/// Characters that a shell hands on as they are.
fn is_unquoted_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || " _-.+/:,@%".contains(c)
}

fn is_bare_name(word: &str) -> bool {
    word.len() <= 64
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.+".contains(c))
}

fn is_subcommand(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.len() <= 64
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-:".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shell(line: &str) -> Action {
        let line = line.to_owned();
        Action::new(Command::Shell { line })
    }

    fn prefix(line: &str) -> String {
        suggested_prefix(&shell(line), Some(Category::Write)).join(" ")
    }

    #[test]
    fn a_prefix_is_the_command_and_its_subcommands() {
        for (line, expected) in [
            ("npm run build -- --watch", "npm run build"),
            ("git commit -m x", "git commit"),
            ("make", "make"),
            ("mkdir -p a/b", "mkdir"),
            ("touch notes.txt", "touch"),
            ("docker compose up web", "docker compose up"),
        ] {
            assert_eq!(prefix(line), expected);
        }
    }

    #[test]
    fn where_a_shell_would_act_no_prefix_is_suggested() {
        for line in [
            "npm i && rm x",
            "make\nrm x",
            "echo $HOME",
            "make 'a b'",
            "A=b make",
            "./run",
            "",
            "make\u{a0}x",
        ] {
            assert_eq!(prefix(line), "", "{line}");
        }
        assert!(suggested_prefix(&shell("make"), Some(Category::Destructive)).is_empty());
        assert!(suggested_prefix(&shell("make"), None).is_empty());
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        let requested = RequestedAction::from_action(&shell(&"é".repeat(MAX_COMMAND_BYTES)));
        assert_eq!(requested.command.len(), MAX_COMMAND_BYTES);
        assert_eq!(requested.cut_bytes, MAX_COMMAND_BYTES as u64);
    }

    #[test]
    fn an_edit_keeps_everything_but_the_line() {
        let arguments = json!({
            "command": "ls", "args": ["a b"], "cwd": "/w", "env": {"A": "b"},
            "mode": "slow", "timeout": 7
        });
        let action = Action::from_arguments("shell", arguments.as_object().unwrap()).unwrap();
        let requested = RequestedAction::from_action(&action);
        assert_eq!(requested.argv, ["ls", "a b"]);
        let edited =
            Action::from_arguments("shell", &requested.amend_arguments("ls -l").unwrap()).unwrap();
        let line = "ls -l".to_owned();
        assert_eq!(
            edited,
            Action {
                command: Command::Shell { line },
                ..action
            }
        );
    }
}
