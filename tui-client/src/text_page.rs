//! A scrollable page of text, such as help, a list or an explanation.

use pvp_protocol::{Digest, MessageId};
use ratatui::layout::Size;
use ratatui::text::Line;

use crate::keys::KeyAction;
use crate::scroll::ScrollPosition;
use crate::text::{line_text, one_line, width, wrap};

/// Spaces before the continuation rows of a line.
const INDENT: usize = 4;

/// The tool call at the beginning of a page. Whoever has read it to its end may approve it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PageCall {
    pub(crate) gate: MessageId,
    pub(crate) digest: Digest,
    /// The number of lines of the page that it takes, from the first on.
    pub(crate) line_count: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TextPage {
    /// What the frame says.
    pub(crate) title: String,
    /// The text.
    pub(crate) lines: Vec<Line<'static>>,
    /// The first row that is visible.
    pub(crate) top: ScrollPosition,
    /// What is searched for, in lower case; empty if nothing is.
    pub(crate) needle: String,
    /// The call that the page is about; `None` if it is about something else.
    pub(crate) call: Option<PageCall>,
    /// The text to copy and what to call it; `None` copies the whole page.
    copy_override: Option<(String, &'static str)>,
}

impl TextPage {
    pub(crate) fn new(title: &str, lines: Vec<Line<'static>>) -> Self {
        let (title, needle) = (one_line(title), String::new());
        let top = ScrollPosition::default();
        Self {
            title,
            lines,
            top,
            needle,
            call: None,
            copy_override: None,
        }
    }

    /// Copies only this text instead of the whole page.
    pub(crate) fn with_copy_text(mut self, what: &'static str, text: &str) -> Self {
        self.copy_override = Some((text.to_owned(), what));
        self
    }

    /// The text to copy, and what to call it.
    pub(crate) fn copy_text(&self) -> (String, &'static str) {
        let whole = || (self.text(), "the page");
        self.copy_override.clone().unwrap_or_else(whole)
    }

    pub(crate) fn text(&self) -> String {
        let lines = self.lines.iter().map(line_text);
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Scrolls, or goes to the next match; false if there is no match.
    #[expect(clippy::wildcard_enum_match_arm, reason = "handles only its own keys")]
    pub(crate) fn on_action(&mut self, action: KeyAction, window: Size) -> bool {
        match action {
            KeyAction::FindNext => self.find(1),
            KeyAction::FindPrevious => self.find(-1),
            action => {
                let count = self.lines.len() as u64;
                let columns = usize::from(window.width);
                self.top = self.top.after_action(action, count, window, |line| {
                    let line = usize::try_from(line).ok().and_then(|at| self.lines.get(at));
                    line.map_or(1, |line| wrap_page_line(line, columns).len())
                });
                true
            }
        }
    }

    pub(crate) fn search(&mut self, needle: &str) -> bool {
        self.needle = needle.to_lowercase();
        self.find(0)
    }

    fn find(&mut self, step: isize) -> bool {
        let count = self.lines.len();
        let top = usize::try_from(self.top.line).unwrap_or(count);
        let order: Vec<usize> = match step {
            ..0 => (0..top).rev().collect(),
            0 => (top..count).chain(0..top).collect(),
            1.. => (top + 1..count).collect(),
        };
        let matches = |index: &usize| {
            line_text(&self.lines[*index])
                .to_lowercase()
                .contains(&self.needle)
        };
        let found = order.into_iter().find(matches);
        if let Some(found) = found {
            self.top = ScrollPosition::start_of_line(found as u64);
        }
        found.is_some()
    }
}

/// Breaks a line into rows; the text after a label stays to the right of it. A single word, such as
/// a link, is not indented, so that a terminal can select it.
pub(crate) fn wrap_page_line(line: &Line<'_>, columns: usize) -> Vec<Line<'static>> {
    let label = match line.spans.as_slice() {
        [label, _, ..] => width(&label.content),
        [word] if !word.content.contains(' ') => 0,
        _ => INDENT,
    };
    let indent = if label * 2 > columns { INDENT } else { label };
    wrap(line, columns, indent)
}
