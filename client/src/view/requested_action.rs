//! A requested action: the command as it would run, and its assessment.

use std::collections::BTreeMap;

use pvp_protocol::payload::{
    ClientOrigin, Degree, DiscardedTrial, FileContent, OpenGate, RunningCommand, ToolPropose,
};
use pvp_protocol::{
    Action, Assessment, BoundFile, Category, Command, JsonObject, PartAssessment, ParticipantId,
    RunMode, ToolCategory,
};
use serde::Serialize;
use serde_json::Value;

use super::suggested_prefix::suggested_prefix;
use super::text::{MAX_LINE_BYTES, count_invisible, escape_invisible, truncate, truncate_line};
use super::tool_call::ToolCallView;

/// Maximum length of a command that is kept whole, in bytes. Nobody is asked to approve a command
/// that is not shown whole.
pub const MAX_COMMAND_BYTES: usize = 256 * 1024;

/// Bytes kept of a command that has ended: enough to recognise it.
pub const MAX_CLOSED_COMMAND_BYTES: usize = 8 * 1024;

/// Maximum number of argv words, environment additions, assessed parts and notes kept, each.
const MAX_LIST_ITEMS: usize = 128;

/// How a command is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandForm {
    /// By bash, byte for byte as shown.
    Shell,
    /// Directly, without a shell.
    Argv,
    /// A person's own command, by the account's login shell.
    LoginShell,
    /// A tool other than the shell.
    Tool,
}

/// An action that someone wants to run, in the size that is kept for display.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestedAction {
    /// Who proposed it; `None` if that was before the messages received.
    pub proposer: Option<ParticipantId>,
    /// The command verbatim.
    pub command: String,
    /// What people read as the command: the command with invisible characters escaped, or the
    /// headline of a tool call.
    pub shown: String,
    /// The number of invisible characters in the command, its directory and its environment.
    pub hidden: usize,
    /// Bytes of the command, its words, directory and environment that are not kept here.
    pub cut_bytes: u64,
    /// How the command is run.
    pub form: CommandForm,
    /// The words of the command in the `argv` form; empty otherwise.
    pub argv: Vec<String>,
    /// The tool's name in the `tool` form; `None` otherwise.
    pub tool: Option<String>,
    /// The tool call in the `tool` form, as people read it; `None` otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<ToolCallView>,
    /// The working directory; `None` means the session's.
    pub cwd: Option<String>,
    /// Additions to the environment.
    pub env: BTreeMap<String, String>,
    /// Normal, slow, background or pty.
    pub mode: RunMode,
    /// The time limit asked for, in seconds; `None` means the default of the mode.
    pub timeout_seconds: Option<u32>,
    /// Who may type, in `pty` mode.
    pub driver: Option<ParticipantId>,
    /// The names of the shared secrets that it receives as variables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The files that it runs, as they must be when it starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<BoundFile>,
    /// The contents of these files, as far as they came with the proposal and fit their hashes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub file_contents: Vec<FileContent>,
    /// Why the proposer wants to run it, in their words.
    pub purpose: String,
    /// The policy's assessment; `None` if it is unknown.
    pub assessment: Option<Assessment>,
    /// A prefix that an allow rule for such commands could use; empty if no rule could cover it.
    pub prefix: Vec<String>,
    /// Who amended it last; `None` if nobody did.
    pub edited_by: Option<ParticipantId>,
    /// How sure it is that what is approved is what runs; `None` if PVP's executor runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degree: Option<Degree>,
    /// The agent client that the call comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientOrigin>,
}

/// The origin in the size that is kept.
fn truncated_origin(origin: &ClientOrigin) -> ClientOrigin {
    let truncated = |text: &Option<String>| text.as_deref().map(truncate_line);
    ClientOrigin {
        client: truncate_line(&origin.client),
        version: truncated(&origin.version),
        session: truncated(&origin.session),
        call: truncated(&origin.call),
        subagent: truncated(&origin.subagent),
        fails_open: origin.fails_open,
    }
}

/// Counts the bytes that truncation drops.
#[derive(Default)]
struct TruncationCounter(u64);

impl TruncationCounter {
    fn truncate(&mut self, text: &str, max_bytes: usize) -> String {
        let kept = truncate(text, max_bytes);
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
        let details = ProposedDetails::default();
        Self::with_details(proposer, action, assessment, purpose, details)
    }

    /// The action of a proposal.
    pub(super) fn from_proposal(propose: &ToolPropose, action: &Action) -> Self {
        let details = ProposedDetails {
            contents: &propose.file_contents,
            stated_category: Some(propose.category),
        };
        let assessment = propose.assessment.as_ref();
        Self {
            degree: propose.degree,
            client: propose.origin.as_ref().map(truncated_origin),
            ..Self::with_details(
                &propose.agent,
                action,
                assessment,
                &propose.description,
                details,
            )
        }
    }

    fn with_details(
        proposer: &ParticipantId,
        action: &Action,
        assessment: Option<&Assessment>,
        purpose: &str,
        details: ProposedDetails<'_>,
    ) -> Self {
        Self {
            proposer: Some(proposer.clone()),
            purpose: truncate_line(purpose),
            assessment: assessment.map(truncated_assessment),
            prefix: suggested_prefix(action, assessment),
            ..Self::from_action(action, details)
        }
    }

    /// The action at an open gate, as a welcome describes it.
    pub(super) fn from_open_gate(open: &OpenGate) -> Self {
        let assessment = Some(&open.assessment);
        Self {
            edited_by: open.amended_by.clone(),
            degree: open.degree,
            client: open.origin.as_ref().map(truncated_origin),
            ..Self::new(&open.proposer, &open.action, assessment, &open.description)
        }
    }

    /// A granted action whose proposal was before the messages received.
    pub(super) fn from_granted_action(action: &Action) -> Self {
        Self::from_action(action, ProposedDetails::default())
    }

    /// A running command, of which a welcome gives little more than the command line.
    pub(super) fn from_running(running: &RunningCommand) -> Self {
        let line = running.command.clone();
        let action = Action::new(Command::Shell { line });
        Self {
            mode: running.mode,
            degree: running.degree,
            client: running.origin.as_ref().map(truncated_origin),
            ..Self::from_action(&action, ProposedDetails::default())
        }
    }

    fn from_action(action: &Action, details: ProposedDetails<'_>) -> Self {
        let mut truncation = TruncationCounter::default();
        let command = truncation.truncate(&action.command.summary(), MAX_COMMAND_BYTES);
        let call = ToolCallView::of_action(action, details.contents, details.stated_category);
        let (form, argv, tool) = command_form(&action.command, &mut truncation);
        let cwd = action.cwd.as_deref();
        let headline = call.as_ref().map(|call| call.headline.clone());
        Self {
            proposer: None,
            shown: headline.unwrap_or_else(|| escape_invisible(&command)),
            hidden: count_invisible_in(action, call.as_ref()),
            command,
            form,
            argv,
            tool,
            cwd: cwd.map(|cwd| truncation.truncate(cwd, MAX_LINE_BYTES)),
            env: truncated_env(&action.env, &mut truncation),
            mode: action.mode,
            timeout_seconds: action.timeout_seconds,
            driver: action.driver.clone(),
            secrets: truncated_secrets(&action.secrets, &mut truncation),
            files: truncated_files(&action.files, &mut truncation),
            file_contents: bound_contents(action, details.contents),
            purpose: String::new(),
            assessment: None,
            prefix: Vec::new(),
            edited_by: None,
            degree: None,
            client: None,
            // The bytes of a call are the same as those of its summary, so they count once.
            cut_bytes: truncation.0.max(call.as_ref().map_or(0, |it| it.cut_bytes)),
            call,
        }
    }

    /// What is known about this action and not said by the action itself.
    fn details(&self) -> ProposedDetails<'_> {
        ProposedDetails {
            contents: &self.file_contents,
            stated_category: self.call.as_ref().and_then(|call| call.stated_category),
        }
    }

    /// The request with the arguments of an amendment. `None` if they are not a valid action.
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
            prefix: suggested_prefix(&action, Some(assessment)),
            edited_by: by.cloned(),
            degree: self.degree,
            client: self.client.clone(),
            ..Self::from_action(&action, self.details())
        })
    }

    /// The request with the granted action, which is exactly what runs.
    pub(super) fn with_granted_action(&self, action: &Action) -> Self {
        Self {
            proposer: self.proposer.clone(),
            purpose: self.purpose.clone(),
            assessment: self.assessment.clone(),
            prefix: self.prefix.clone(),
            edited_by: self.edited_by.clone(),
            degree: self.degree,
            client: self.client.clone(),
            ..Self::from_action(action, self.details())
        }
    }

    /// What a welcome told about an action, with what only its proposal says. An edit may have
    /// changed the action since.
    pub(super) fn with_proposal(&self, proposed: Self) -> Self {
        let digest = |it: &Self| it.assessment.as_ref().map(|assessment| assessment.digest);
        let is_same = digest(self).is_some() && digest(self) == digest(&proposed);
        let mut contents = proposed.file_contents;
        contents.retain(|content| {
            let mut files = self.files.iter();
            is_same || files.any(|file| file.has_content(&content.path, &content.text))
        });
        let stated_category = proposed.call.as_ref().and_then(|call| call.stated_category);
        let call = match (is_same, proposed.call) {
            (true, Some(call)) => Some(call),
            (_, _) => self.call.clone().map(|call| ToolCallView {
                stated_category,
                ..call
            }),
        };
        let headline = call.as_ref().map(|call| call.headline.clone());
        Self {
            file_contents: contents,
            shown: headline.unwrap_or_else(|| self.shown.clone()),
            call,
            ..self.clone()
        }
    }

    /// The directories that an allow rule could let it read without a vote; empty if more than its
    /// paths needs one.
    pub fn needed_read_roots(&self) -> &[String] {
        let assessment = self.assessment.as_ref();
        assessment.map_or(&[], |assessment| &assessment.needed_read_roots)
    }

    /// Truncates a long command that has ended, to save memory.
    pub(super) fn shorten(&mut self) {
        self.file_contents.clear();
        if let Some(call) = &mut self.call {
            let before = call.cut_bytes;
            call.shorten(MAX_CLOSED_COMMAND_BYTES);
            self.cut_bytes += call.cut_bytes - before;
        }
        let kept = truncate(&self.command, MAX_CLOSED_COMMAND_BYTES);
        if kept.len() < self.command.len() {
            match &self.call {
                // What is cut of a call was counted above.
                Some(_) => {}
                None => {
                    self.cut_bytes += (self.command.len() - kept.len()) as u64;
                    self.shown = escape_invisible(&kept);
                }
            }
            self.command = kept;
            self.argv.clear();
        }
    }

    /// The assessed category; `None` if the assessment is unknown.
    pub fn category(&self) -> Option<Category> {
        self.assessment
            .as_ref()
            .map(|assessment| assessment.category)
    }

    /// The arguments of a `gate.amend` that replaces the command with this line; `None` if there is
    /// no command line to edit.
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
            (
                "secrets",
                (!self.secrets.is_empty()).then(|| to_json(&self.secrets)),
            ),
            (
                "files",
                (!self.files.is_empty()).then(|| to_json(&self.files)),
            ),
        ];
        let fields = fields.into_iter();
        Some(
            fields
                .filter_map(|(name, value)| Some((name.to_owned(), value?)))
                .collect(),
        )
    }
}

/// What a proposal says about an action besides the action itself.
#[derive(Clone, Copy, Default)]
struct ProposedDetails<'a> {
    contents: &'a [FileContent],
    stated_category: Option<ToolCategory>,
}

/// Those of the contents that are what the action binds.
fn bound_contents(action: &Action, contents: &[FileContent]) -> Vec<FileContent> {
    let is_bound = |content: &&FileContent| action.binds_content(&content.path, &content.text);
    let contents = contents.iter().take(MAX_LIST_ITEMS);
    contents.filter(is_bound).cloned().collect()
}

fn count_invisible_in(action: &Action, call: Option<&ToolCallView>) -> usize {
    let directory = action.cwd.as_deref().map_or(0, count_invisible);
    let additions = action.env.iter();
    let environment: usize = additions
        .map(|(name, value)| count_invisible(name) + count_invisible(value))
        .sum();
    let command = match call {
        Some(call) => call.hidden,
        None => count_invisible(&action.command.summary()),
    };
    command + directory + environment
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

fn truncated_secrets(names: &[String], truncation: &mut TruncationCounter) -> Vec<String> {
    let dropped = names.iter().skip(MAX_LIST_ITEMS);
    dropped.for_each(|name| truncation.count_dropped(name));
    let kept = names.iter().take(MAX_LIST_ITEMS);
    kept.map(|name| truncation.truncate(name, MAX_LINE_BYTES))
        .collect()
}

fn truncated_files(files: &[BoundFile], truncation: &mut TruncationCounter) -> Vec<BoundFile> {
    let dropped = files.iter().skip(MAX_LIST_ITEMS);
    dropped.for_each(|file| truncation.count_dropped(&file.path));
    let kept = files.iter().take(MAX_LIST_ITEMS);
    kept.map(|file| BoundFile {
        path: truncation.truncate(&file.path, MAX_LINE_BYTES),
        ..file.clone()
    })
    .collect()
}

impl RequestedAction {
    /// Notes for those who vote what came of trying it in the sandbox.
    pub(super) fn add_trial(&mut self, trial: &DiscardedTrial) {
        let note = truncate_line(&trial.to_string());
        if let Some(assessment) = &mut self.assessment
            && !assessment.notes.contains(&note)
        {
            assessment.notes.push(note);
        }
    }
}

/// The assessment in the size that is kept.
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
        needed_read_roots: assessment
            .needed_read_roots
            .iter()
            .take(MAX_LIST_ITEMS)
            .map(|root| truncate_line(root))
            .collect(),
        policy: truncate_line(&assessment.policy),
        ..*assessment
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shell(line: &str) -> Action {
        let line = line.to_owned();
        Action::new(Command::Shell { line })
    }

    fn from_action(action: &Action) -> RequestedAction {
        RequestedAction::from_action(action, ProposedDetails::default())
    }

    #[test]
    fn a_command_that_is_too_long_is_cut_and_counts_the_lost_bytes() {
        let requested = from_action(&shell(&"é".repeat(MAX_COMMAND_BYTES)));
        assert_eq!(requested.command.len(), MAX_COMMAND_BYTES);
        assert_eq!(requested.cut_bytes, MAX_COMMAND_BYTES as u64);
    }

    #[test]
    fn an_edit_keeps_everything_but_the_line() {
        let arguments = json!({
            "command": "ls", "args": ["a b"], "cwd": "/w", "env": {"A": "b"},
            "mode": "slow", "timeout": 7, "secrets": ["KEY"],
            "files": [{"path": "ls", "sha256": "00".repeat(32), "bytes": 3}, {"path": "make"}]
        });
        let action = Action::from_arguments("shell", arguments.as_object().unwrap()).unwrap();
        let requested = from_action(&action);
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
