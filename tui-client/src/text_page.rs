//! Pages that we write: help, lists, why a command was judged so.

use ratatui::layout::Size;
use ratatui::text::Line;

use crate::keys::KeyAction;
use crate::scroll::ScrollPosition;
use crate::text::{line_text, one_line, width, wrap};

/// Spaces before what does not fit on the first row of a line.
const INDENT: usize = 4;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TextPage {
    pub(crate) title: String,
    pub(crate) lines: Vec<Line<'static>>,
    pub(crate) top: ScrollPosition,
    pub(crate) needle: String,
    /// What is copied, and what that is called, if it is not the whole page.
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
            copy_override: None,
        }
    }

    /// A page about one thing, which alone is copied.
    pub(crate) fn with_copy_text(mut self, what: &'static str, text: &str) -> Self {
        self.copy_override = Some((text.to_owned(), what));
        self
    }

    /// What is copied from here, and what that is called.
    pub(crate) fn copy_text(&self) -> (String, &'static str) {
        let whole = || (self.text(), "the page");
        self.copy_override.clone().unwrap_or_else(whole)
    }

    pub(crate) fn text(&self) -> String {
        let lines = self.lines.iter().map(line_text);
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Moves; false if there is nothing to go to.
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
        let fits = |index: &usize| {
            line_text(&self.lines[*index])
                .to_lowercase()
                .contains(&self.needle)
        };
        let found = order.into_iter().find(fits);
        if let Some(found) = found {
            self.top = ScrollPosition::start_of_line(found as u64);
        }
        found.is_some()
    }
}

/// The rows of a line; what follows a label stays to the right of it. A single word, such as a link,
/// stays as it is, so that a terminal can select it.
pub(crate) fn wrap_page_line(line: &Line<'_>, columns: usize) -> Vec<Line<'static>> {
    let label = match line.spans.as_slice() {
        [label, _, ..] => width(&label.content),
        [word] if !word.content.contains(' ') => 0,
        _ => INDENT,
    };
    let indent = if label * 2 > columns { INDENT } else { label };
    wrap(line, columns, indent)
}
