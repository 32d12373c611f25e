//! A tool call as lines of text, the same for every screen.
//!
//! The first character of a line says what it is, and no text of the call can begin a line of
//! another kind: lines of a diff begin with `+`, `-`, a space, `@` or `\`, names of arguments with a
//! letter, a digit or a quotation mark, and the lines of a text below a name with `│`; what is nested
//! is indented by two spaces for each level.

use super::super::diff::{DiffHunk, DiffLine, DiffLineKind};
use super::arguments::ArgumentView;
use super::{FileChangeView, ToolCallView};
use crate::narrate::byte_size;

/// What a line is, which is how it is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallLineKind {
    /// A line of the computed change that is added.
    Added,
    /// A line of the computed change that is removed.
    Removed,
    /// A line of the computed change that stays.
    Context,
    /// The place of a hunk.
    Hunk,
    /// What we say about the call.
    Note,
    /// An argument.
    Argument,
    /// What the agent says about the change.
    Stated,
}

/// One line to draw. It has no line feed, and no invisible characters but tabs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallLine {
    pub kind: CallLineKind,
    pub text: String,
}

impl CallLine {
    fn new(kind: CallLineKind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { kind, text }
    }
}

impl ToolCallView {
    /// Everything of the call below its headline.
    pub fn lines(&self) -> Vec<CallLine> {
        let mut lines = Vec::new();
        if let Some(change) = &self.change {
            add_change(&mut lines, change);
        }
        for argument in &self.arguments {
            add_argument(&mut lines, argument);
        }
        for stated in &self.stated_diffs {
            let name = &stated.name;
            let note = format!("{name}, as the agent states it, not checked:");
            lines.push(CallLine::new(CallLineKind::Note, note));
            let text = stated.text.split('\n');
            lines.extend(text.map(|line| CallLine::new(CallLineKind::Stated, format!("│ {line}"))));
        }
        if self.cut_bytes > 0 {
            let cut = format!("… {} more are not shown", byte_size(self.cut_bytes));
            lines.push(CallLine::new(CallLineKind::Note, cut));
        }
        lines
    }
}

fn add_change(lines: &mut Vec<CallLine>, change: &FileChangeView) {
    let notes = std::iter::once(change.basis_text()).chain(change.notes.iter().map(String::as_str));
    lines.extend(notes.map(|note| CallLine::new(CallLineKind::Note, note)));
    if change.added == 0 && change.removed == 0 {
        let note = "no line changes";
        lines.push(CallLine::new(CallLineKind::Note, note));
    }
    for hunk in &change.hunks {
        add_hunk(lines, hunk);
    }
}

fn add_hunk(lines: &mut Vec<CallLine>, hunk: &DiffHunk) {
    lines.push(CallLine::new(CallLineKind::Hunk, hunk.header()));
    for line in &hunk.lines {
        let DiffLine { kind, text, .. } = line;
        let (kind, mark) = match kind {
            DiffLineKind::Added => (CallLineKind::Added, '+'),
            DiffLineKind::Removed => (CallLineKind::Removed, '-'),
            DiffLineKind::Context => (CallLineKind::Context, ' '),
        };
        lines.push(CallLine::new(kind, format!("{mark}{text}")));
        if line.no_newline {
            let note = r"\ no line feed at the end";
            lines.push(CallLine::new(CallLineKind::Note, note));
        }
    }
}

fn add_argument(lines: &mut Vec<CallLine>, argument: &ArgumentView) {
    let ArgumentView { depth, name, value } = argument;
    let indent = "  ".repeat(*depth);
    let is_block = value.contains('\n');
    let first = match (is_block, value.as_str()) {
        (false, "") => format!("{indent}{name}:"),
        (false, value) => format!("{indent}{name}: {value}"),
        (true, _) => format!("{indent}{name}:"),
    };
    lines.push(CallLine::new(CallLineKind::Argument, first));
    if is_block {
        let block = value.split('\n');
        let block = block.map(|line| format!("{indent}│ {line}"));
        lines.extend(block.map(|line| CallLine::new(CallLineKind::Argument, line)));
    }
}
