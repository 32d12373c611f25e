//! The pager: shows a command's whole output, fetched from the server as the user scrolls.

use std::collections::VecDeque;

use pvp_protocol::MessageId;
use pvp_protocol::payload::{OutputLine, OutputPage};
use ratatui::layout::Size;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::keys::KeyAction;
use crate::scroll::ScrollPosition;
use crate::text::{one_line, wrap};
use crate::theme::{Palette, Theme};
use crate::{ansi, folded_output};

/// Lines that are fetched at a time.
const FETCH_LINES: u64 = 500;

/// The most lines kept in memory; those furthest from the top of the screen go first.
const MAX_KEPT_LINES: usize = 4_000;

/// Columns before the text of a line: its number and its stream.
const GUTTER_COLUMNS: usize = 12;

/// The most matches of a search that are kept.
const MAX_MATCHES: usize = 10_000;

/// A range of lines to fetch.
pub(crate) struct PagerFetch {
    pub(crate) reference: MessageId,
    pub(crate) offset: u64,
    pub(crate) limit: u64,
}

/// A command's output, of which a window of lines is in memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pager {
    /// The command, on one line.
    pub(crate) title: String,
    /// What the server knows the output by.
    reference: MessageId,
    /// The lines in memory, from `first_kept_line` on.
    pub(crate) lines: VecDeque<OutputLine>,
    /// Index of the first line in memory, counted from zero.
    first_kept_line: u64,
    /// Number of lines of the whole output; `None` before the first page arrives.
    pub(crate) total_lines: Option<u64>,
    /// Index of the first line on the screen, counted from zero.
    pub(crate) top_line: u64,
    /// The first row of that line that is on the screen.
    pub(crate) top_row: usize,
    /// Whether the command may still print.
    may_grow: bool,
    /// Whether the next fetch should look beyond the known end.
    check_beyond_end: bool,
    /// Whether a fetch is under way.
    fetching: bool,
    /// Why a fetch failed; nothing more is fetched then.
    pub(crate) error: Option<String>,
    /// The search text in lower case; empty without a search.
    pub(crate) needle: String,
    /// Indexes of the lines that match the search, in ascending order.
    matches: Vec<u64>,
}

impl Pager {
    pub(crate) fn new(reference: MessageId, command: &str) -> Self {
        Self {
            title: one_line(command),
            reference,
            lines: VecDeque::new(),
            first_kept_line: 0,
            total_lines: None,
            top_line: 0,
            top_row: 0,
            may_grow: false,
            check_beyond_end: false,
            fetching: false,
            error: None,
            needle: String::new(),
            matches: Vec::new(),
        }
    }

    fn end_line(&self) -> u64 {
        self.first_kept_line + self.lines.len() as u64
    }

    /// The lines on the screen with their numbers, counted from one.
    pub(crate) fn visible_lines(&self, rows: usize) -> impl Iterator<Item = (u64, &OutputLine)> {
        let skip = usize::try_from(self.top_line.saturating_sub(self.first_kept_line))
            .unwrap_or(usize::MAX);
        let here = self.top_line >= self.first_kept_line;
        let rows = if here { rows } else { 0 };
        let lines = self.lines.iter().enumerate().skip(skip).take(rows);
        lines.map(|(index, line)| (self.first_kept_line + index as u64 + 1, line))
    }

    pub(crate) fn text(&self) -> String {
        let lines = self.lines.iter().map(|line| line.text.as_str());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The lines to fetch next for a screen of this many rows, if any are missing and no fetch is
    /// under way.
    pub(crate) fn next_fetch(&mut self, rows: usize) -> Option<PagerFetch> {
        let rows = rows as u64;
        let known_end = !self.check_beyond_end
            && self
                .total_lines
                .is_some_and(|total| self.end_line() >= total);
        let outside = self.top_line < self.first_kept_line || self.top_line > self.end_line();
        let offset = if outside {
            // The user jumped: the lines in memory do not adjoin.
            self.lines.clear();
            self.first_kept_line = self.top_line.saturating_sub(FETCH_LINES / 4);
            self.first_kept_line
        } else if self.top_line + 2 * rows > self.end_line() && !known_end {
            self.end_line()
        } else if self.top_line < self.first_kept_line + rows && self.first_kept_line > 0 {
            self.first_kept_line.saturating_sub(FETCH_LINES)
        } else {
            return None;
        };
        if self.fetching || self.error.is_some() {
            return None;
        }
        self.fetching = true;
        self.check_beyond_end = false;
        let limit = match offset < self.first_kept_line {
            true => self.first_kept_line - offset,
            false => FETCH_LINES,
        };
        let reference = self.reference.clone();
        Some(PagerFetch {
            reference,
            offset,
            limit,
        })
    }

    pub(crate) fn add_page(&mut self, page: OutputPage) {
        if page.reference != self.reference {
            return;
        }
        self.fetching = false;
        self.total_lines = Some(page.total_lines);
        self.may_grow = !page.finished;
        if self.top_line >= page.total_lines {
            self.go_to_line(page.total_lines.saturating_sub(1));
        }
        let Some(first) = page.lines.first().map(|line| line.number) else {
            // There are no more lines, whatever the total says.
            self.total_lines = Some(self.end_line());
            return;
        };
        let count = page.lines.len() as u64;
        if self.lines.is_empty() {
            self.first_kept_line = first;
            self.lines = page.lines.into();
        } else if first == self.end_line() {
            self.lines.extend(page.lines);
        } else if first + count == self.first_kept_line {
            page.lines
                .into_iter()
                .rev()
                .for_each(|line| self.lines.push_front(line));
            self.first_kept_line = first;
        }
        self.trim();
    }

    /// Lets the next fetch look beyond the end, if the command may have printed more.
    pub(crate) fn check_for_more(&mut self) {
        self.check_beyond_end = self.may_grow;
    }

    fn trim(&mut self) {
        while self.lines.len() > MAX_KEPT_LINES {
            let above = self.top_line.saturating_sub(self.first_kept_line);
            let below = self.end_line().saturating_sub(self.top_line);
            if above > below {
                self.lines.pop_front();
                self.first_kept_line += 1;
            } else {
                self.lines.pop_back();
            }
        }
    }

    pub(crate) fn fetch_failed(&mut self, why: String) {
        self.fetching = false;
        self.error = Some(one_line(&why));
    }

    /// Scrolls, or goes to the next match; false if there is no match.
    #[expect(clippy::wildcard_enum_match_arm, reason = "handles only its own keys")]
    pub(crate) fn on_action(&mut self, action: KeyAction, window: Size) -> bool {
        let found = match action {
            KeyAction::FindNext => self
                .matches
                .iter()
                .find(|line| **line > self.top_line)
                .copied(),
            KeyAction::FindPrevious => {
                let mut back = self.matches.iter().rev();
                back.find(|line| **line < self.top_line).copied()
            }
            action => {
                self.scroll(action, window);
                return true;
            }
        };
        if let Some(line) = found {
            self.go_to_line(line);
        }
        found.is_some()
    }

    fn scroll(&mut self, action: KeyAction, window: Size) {
        let total = self.total_lines.unwrap_or(self.end_line());
        let columns = usize::from(window.width);
        let top = ScrollPosition {
            line: self.top_line,
            row: self.top_row,
        };
        let theme = Theme::new(Palette::None);
        // How many rows a line takes is unknown unless it is in memory; one is assumed.
        let ScrollPosition { line, row } = top.after_action(action, total, window, |line| {
            let here = line.checked_sub(self.first_kept_line);
            let here = here.and_then(|at| self.lines.get(usize::try_from(at).ok()?));
            here.map_or(1, |it| {
                wrap_output_line(&numbered_line(it, line + 1, &theme), columns).len()
            })
        });
        (self.top_line, self.top_row) = (line, row);
    }

    fn go_to_line(&mut self, line: u64) {
        (self.top_line, self.top_row) = (line, 0);
    }

    /// Begins a search; returns the reference of the output to search in.
    pub(crate) fn start_search(&mut self, needle: &str) -> MessageId {
        self.needle = needle.to_lowercase();
        self.matches.clear();
        self.reference.clone()
    }

    pub(crate) fn set_matches(&mut self, page: &OutputPage) -> Result<(), String> {
        let numbers = page.lines.iter().map(|line| line.number);
        self.matches = numbers.take(MAX_MATCHES).collect();
        if self.matches.is_empty() {
            return Err("no line matches".to_owned());
        }
        let ahead = self.matches.iter().find(|line| **line >= self.top_line);
        let line = *ahead.unwrap_or(&self.matches[0]);
        self.go_to_line(line);
        Ok(())
    }
}

/// Breaks a numbered line into rows.
pub(crate) fn wrap_output_line(line: &Line<'_>, columns: usize) -> Vec<Line<'static>> {
    wrap(line, columns.max(1), GUTTER_COLUMNS)
}

/// A line with its number and stream before it. Carriage returns are shown instead of obeyed, so
/// that all of the line can be read.
pub(crate) fn numbered_line(line: &OutputLine, number: u64, theme: &Theme) -> Line<'static> {
    let head = format!("{number:>6} {}", folded_output::stream_label(line.stream));
    let mut spans = vec![Span::styled(head, theme.output_stream(line.stream))];
    let text = line.text.replace('\r', "␍");
    for line in ansi::styled_lines(&text, Style::new(), theme.palette) {
        spans.extend(line.spans);
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_protocol::payload::OutputStream;

    const WINDOW: Size = Size {
        width: 40,
        height: 10,
    };

    fn page(offset: u64, limit: u64, total: u64) -> OutputPage {
        let line = |number| OutputLine {
            number,
            stream: OutputStream::Stdout,
            text: format!("line {}", number + 1),
        };
        OutputPage {
            reference: MessageId::parse("out").unwrap(),
            lines: (offset..(offset + limit).min(total)).map(line).collect(),
            total_lines: total,
            total_bytes: 0,
            next: None,
            finished: true,
            cut: false,
        }
    }

    /// Fetches until nothing is missing; returns offset and limit of each fetch.
    fn fetch_all_missing(pager: &mut Pager, total: u64) -> Vec<(u64, u64)> {
        let mut fetches = Vec::new();
        while let Some(fetch) = pager.next_fetch(10) {
            fetches.push((fetch.offset, fetch.limit));
            pager.add_page(page(fetch.offset, fetch.limit, total));
            assert!(fetches.len() < 10, "{fetches:?}");
        }
        fetches
    }

    fn visible_line_numbers(pager: &Pager) -> Vec<u64> {
        pager
            .visible_lines(3)
            .map(|(number, line)| {
                assert_eq!(line.text, format!("line {number}"));
                number
            })
            .collect()
    }

    #[test]
    fn lines_are_fetched_while_scrolling_down_and_up() {
        let mut pager = Pager::new(MessageId::parse("out").unwrap(), "x");
        assert_eq!(fetch_all_missing(&mut pager, 100_000), [(0, 500)]);
        assert_eq!(visible_line_numbers(&pager), [1, 2, 3]);
        pager.on_action(KeyAction::Bottom, WINDOW);
        assert_eq!(fetch_all_missing(&mut pager, 100_000), [(99_865, 500)]);
        assert_eq!(visible_line_numbers(&pager), [99_991, 99_992, 99_993]);
        for _ in 0..20 {
            pager.on_action(KeyAction::PageUp, WINDOW);
            fetch_all_missing(&mut pager, 100_000);
        }
        assert_eq!(visible_line_numbers(&pager), [99_811, 99_812, 99_813]);
    }

    #[test]
    fn every_row_of_a_line_that_is_longer_than_the_screen_can_be_read() {
        let mut pager = Pager::new(MessageId::parse("out").unwrap(), "x");
        pager.next_fetch(10);
        let mut long = page(0, 2, 2);
        long.lines[0].text = "word ".repeat(200);
        pager.add_page(long);
        // 28 columns are left for the text, which is five words.
        pager.on_action(KeyAction::Bottom, WINDOW);
        assert_eq!((pager.top_line, pager.top_row), (0, 31));
        pager.on_action(KeyAction::PageUp, WINDOW);
        assert_eq!((pager.top_line, pager.top_row), (0, 22));
        pager.on_action(KeyAction::Top, WINDOW);
        pager.on_action(KeyAction::PageDown, WINDOW);
        assert_eq!((pager.top_line, pager.top_row), (0, 9));
    }

    #[test]
    fn few_lines_are_kept_however_far_the_reader_scrolls() {
        let mut pager = Pager::new(MessageId::parse("out").unwrap(), "x");
        fetch_all_missing(&mut pager, 100_000);
        for _ in 0..2_000 {
            pager.on_action(KeyAction::PageDown, WINDOW);
            fetch_all_missing(&mut pager, 100_000);
            assert!(pager.lines.len() <= MAX_KEPT_LINES);
        }
        assert_eq!(pager.top_line, 18_000);
        assert_eq!(visible_line_numbers(&pager)[0], 18_001);
    }

    #[test]
    fn the_search_keys_go_from_match_to_match() {
        let mut pager = Pager::new(MessageId::parse("out").unwrap(), "x");
        fetch_all_missing(&mut pager, 5_000);
        pager.start_search("7");
        let mut found = page(0, 3, 5_000);
        found
            .lines
            .iter_mut()
            .zip([69, 699, 3_999])
            .for_each(|(line, number)| line.number = number);
        pager.set_matches(&found).unwrap();
        let mut tops = vec![pager.top_line];
        for action in [
            KeyAction::FindNext,
            KeyAction::FindNext,
            KeyAction::FindNext,
            KeyAction::FindPrevious,
        ] {
            pager.on_action(action, WINDOW);
            fetch_all_missing(&mut pager, 5_000);
            tops.push(pager.top_line);
        }
        assert_eq!(tops, [69, 699, 3_999, 3_999, 699]);
        assert_eq!(visible_line_numbers(&pager)[0], 700);
        found.lines.clear();
        assert_eq!(pager.set_matches(&found), Err("no line matches".to_owned()));
    }

    #[test]
    fn output_printed_while_the_pager_is_open_is_fetched() {
        let mut pager = Pager::new(MessageId::parse("out").unwrap(), "x");
        let fetch = pager.next_fetch(10).unwrap();
        let mut first = page(0, fetch.limit, 5);
        first.finished = false;
        pager.add_page(first);
        assert!(pager.next_fetch(10).is_none(), "not before it is time");
        pager.check_for_more();
        let fetch = pager.next_fetch(10).unwrap();
        assert_eq!(fetch.offset, 5);
        pager.add_page(page(fetch.offset, fetch.limit, 9));
        assert_eq!((pager.lines.len(), pager.total_lines), (9, Some(9)));
        pager.check_for_more();
        assert!(pager.next_fetch(10).is_none(), "it has ended");
    }

    #[test]
    fn a_page_of_another_output_is_ignored() {
        let mut pager = Pager::new(MessageId::parse("other").unwrap(), "x");
        pager.next_fetch(10);
        pager.add_page(page(0, 10, 10));
        assert_eq!(pager.lines.len(), 0);
        assert!(pager.fetching, "its own page is still to come");
        pager.fetch_failed("gone\u{1b}".to_owned());
        assert_eq!(pager.error.as_deref(), Some(r"gone\u{1b}"));
        assert!(pager.next_fetch(10).is_none());
    }
}
