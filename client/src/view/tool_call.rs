//! A call of a tool other than the shell, as people read it before they decide about it.
//!
//! What is shown is computed from the arguments, which are what is executed. What the agent says
//! about them, such as a diff of its own, is shown apart and as its word.

mod arguments;
mod call_lines;
mod file_change;
mod headline;

use pvp_protocol::payload::FileContent;
use pvp_protocol::{Action, Command, JsonObject, ToolCategory};
use serde::Serialize;
use serde_json::Value;

use super::requested_action::MAX_COMMAND_BYTES;
use super::text::{TextBudget, truncate};

pub use arguments::ArgumentView;
pub use call_lines::{CallLine, CallLineKind};
pub use file_change::{ChangeBasis, FileChangeView};

/// Arguments in which agents describe a change in their own words.
const STATED_DIFFS: &[&str] = &["diff", "patch", "unified_diff"];

/// A text with which the agent describes the change itself. Nobody has compared it with the change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatedDiff {
    /// The name of the argument.
    pub name: String,
    /// The text, with invisible characters escaped.
    pub text: String,
}

/// A tool call in the size that is kept for display.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolCallView {
    /// One line by which people recognise the call, with invisible characters escaped.
    pub headline: String,
    /// The kind of tool, as the agent states it; `None` if the proposal was not received.
    pub stated_category: Option<ToolCategory>,
    /// The change of a file, computed from the arguments; `None` if they do not tell one.
    pub change: Option<FileChangeView>,
    /// The other arguments, in order.
    pub arguments: Vec<ArgumentView>,
    /// What the agent says about the change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stated_diffs: Vec<StatedDiff>,
    /// The number of invisible characters in it, all of them escaped.
    pub hidden: usize,
    /// Bytes of the call that are not kept here.
    pub cut_bytes: u64,
}

impl ToolCallView {
    /// The call of an action; `None` if the action is not a tool call. Contents are used only if
    /// the action binds them by their hash.
    pub fn of_action(
        action: &Action,
        contents: &[FileContent],
        stated_category: Option<ToolCategory>,
    ) -> Option<Self> {
        let Command::Tool { name, arguments } = &action.command else {
            return None;
        };
        // A change may show all of the old text and all of the new one.
        let mut budget = TextBudget::new(2 * MAX_COMMAND_BYTES);
        let found = file_change::find(name, arguments, &action.files, contents, &mut budget);
        let (change, shown_keys) = match found {
            Some(found) => (Some(found.change), found.shown_keys),
            None => (None, Vec::new()),
        };
        let headline = headline::headline(name, arguments, change.as_ref());
        let mut rest = arguments.clone();
        rest.retain(|key, _| !shown_keys.contains(&key.as_str()));
        if !action.files.is_empty() {
            // Everything that the action binds is listed beside the call.
            rest.remove("files");
        }
        let stated_diffs = take_stated_diffs(&mut rest, &mut budget);
        let arguments = arguments::list(&rest, &mut budget);
        Some(Self {
            headline,
            stated_category,
            change,
            arguments,
            stated_diffs,
            hidden: budget.hidden + super::text::count_invisible(name),
            cut_bytes: budget.cut_bytes,
        })
    }

    /// Drops most of a long call that has ended, to save memory.
    pub(super) fn shorten(&mut self, max_bytes: usize) {
        let mut left = max_bytes;
        let mut keep = |bytes: usize| {
            let fits = bytes < left;
            left = if fits { left - bytes - 1 } else { 0 };
            fits
        };
        let mut cut = 0;
        let mut keeps = |text: &str| {
            let kept = keep(text.len());
            cut += if kept { 0 } else { text.len() as u64 };
            kept
        };
        for hunk in self.change.iter_mut().flat_map(|change| &mut change.hunks) {
            hunk.lines.retain(|line| keeps(&line.text));
        }
        self.arguments.retain(|argument| keeps(&argument.value));
        self.stated_diffs.retain(|stated| keeps(&stated.text));
        if let Some(change) = &mut self.change {
            change.hunks.retain(|hunk| !hunk.lines.is_empty());
        }
        self.cut_bytes += cut;
    }
}

/// One line by which people recognise a command: the headline of a tool call, else the command line,
/// which is not escaped.
pub fn command_headline(command: &Command) -> String {
    match command {
        Command::Tool { name, arguments } => {
            let action = Action::from_arguments(name, arguments);
            let action = action.unwrap_or_else(|_| Action::new(command.clone()));
            let call = ToolCallView::of_action(&action, &[], None);
            call.map(|call| call.headline).unwrap_or_default()
        }
        Command::Shell { .. } | Command::Argv { .. } | Command::LoginShell { .. } => {
            command.summary()
        }
    }
}

/// Makes a tool call of its summary, which is its name and its arguments as JSON; `None` if the
/// text is not that.
pub fn parse_tool_summary(tool: &str, summary: &str) -> Option<Action> {
    let arguments = summary.strip_prefix(tool)?.strip_prefix(' ')?;
    let arguments: JsonObject = serde_json::from_str(arguments).ok()?;
    Action::from_arguments(tool, &arguments).ok()
}

fn take_stated_diffs(arguments: &mut JsonObject, budget: &mut TextBudget) -> Vec<StatedDiff> {
    let mut stated = Vec::new();
    for name in STATED_DIFFS {
        if let Some(Value::String(text)) = arguments.get(*name) {
            stated.push(StatedDiff {
                name: (*name).to_owned(),
                text: budget.take(text),
            });
            arguments.remove(*name);
        }
    }
    stated
}

/// A text in one line, not longer than so many bytes, with an ellipsis if something is missing.
fn first_words(text: &str, max_bytes: usize) -> String {
    let text = text.trim();
    let line = text.lines().next().unwrap_or_default();
    let kept = truncate(line, max_bytes);
    let more = if kept.len() < text.len() { "…" } else { "" };
    super::text::escape_invisible(&kept).replace('\t', " ") + more
}
