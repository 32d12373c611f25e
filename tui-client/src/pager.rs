//! What a command printed, fetched as one reads on.

use std::collections::VecDeque;

use pvp_protocol::MessageId;
use pvp_protocol::payload::{OutputLine, OutputPage};
use ratatui::layout::Size;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::keys::Act;
use crate::scroll::Spot;
use crate::text::{one_line, wrap};
use crate::theme::{Palette, Theme};
use crate::{ansi, printed};

/// Lines that are fetched at a time.
const PAGE: u64 = 500;

/// Lines that are kept; those furthest from where one reads go first.
const KEPT: usize = 4_000;

/// Columns before the text of a line.
const HEAD: usize = 12;

/// Matches of a search that are kept.
const MATCHES: usize = 10_000;

/// Lines that are to be fetched.
pub(crate) struct Wanted {
    pub(crate) reference: MessageId,
    pub(crate) offset: u64,
    pub(crate) limit: u64,
}

/// What a command printed, fetched by reference.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pager {
    pub(crate) title: String,
    reference: MessageId,
    /// The lines that are here, from `start` on.
    pub(crate) lines: VecDeque<OutputLine>,
    start: u64,
    pub(crate) total: Option<u64>,
    /// The first line on the screen.
    pub(crate) top: u64,
    /// The first row of it that is.
    pub(crate) row: usize,
    /// Whether the command may still print.
    growing: bool,
    /// Whether to look beyond the end that is known.
    again: bool,
    /// A fetch is under way.
    asked: bool,
    pub(crate) problem: Option<String>,
    pub(crate) needle: String,
    matches: Vec<u64>,
}

impl Pager {
    pub(crate) fn new(reference: MessageId, command: &str) -> Self {
        Self {
            title: one_line(command),
            reference,
            lines: VecDeque::new(),
            start: 0,
            total: None,
            top: 0,
            row: 0,
            growing: false,
            again: false,
            asked: false,
            problem: None,
            needle: String::new(),
            matches: Vec::new(),
        }
    }

    fn end(&self) -> u64 {
        self.start + self.lines.len() as u64
    }

    /// Lines on the screen, with their numbers.
    pub(crate) fn shown(&self, rows: usize) -> impl Iterator<Item = (u64, &OutputLine)> {
        let skip = usize::try_from(self.top.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let here = self.top >= self.start;
        let rows = if here { rows } else { 0 };
        let lines = self.lines.iter().enumerate().skip(skip).take(rows);
        lines.map(|(index, line)| (self.start + index as u64 + 1, line))
    }

    pub(crate) fn text(&self) -> String {
        let lines = self.lines.iter().map(|line| line.text.as_str());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// What is missing for a screen of this many rows, if anything is and nothing is under way.
    pub(crate) fn wanted(&mut self, rows: usize) -> Option<Wanted> {
        let rows = rows as u64;
        let known_end = !self.again && self.total.is_some_and(|total| self.end() >= total);
        let outside = self.top < self.start || self.top > self.end();
        let offset = if outside {
            // Somewhere else: what is here does not join.
            self.lines.clear();
            self.start = self.top.saturating_sub(PAGE / 4);
            self.start
        } else if self.top + 2 * rows > self.end() && !known_end {
            self.end()
        } else if self.top < self.start + rows && self.start > 0 {
            self.start.saturating_sub(PAGE)
        } else {
            return None;
        };
        if self.asked || self.problem.is_some() {
            return None;
        }
        self.asked = true;
        self.again = false;
        let limit = match offset < self.start {
            true => self.start - offset,
            false => PAGE,
        };
        let reference = self.reference.clone();
        Some(Wanted {
            reference,
            offset,
            limit,
        })
    }

    pub(crate) fn take(&mut self, page: OutputPage) {
        self.asked = false;
        if page.reference != self.reference {
            return;
        }
        self.total = Some(page.total_lines);
        self.growing = !page.finished;
        if self.top >= page.total_lines {
            self.go_to(page.total_lines.saturating_sub(1));
        }
        let Some(first) = page.lines.first().map(|line| line.number) else {
            // There is no more, whatever was promised.
            self.total = Some(self.end());
            return;
        };
        let count = page.lines.len() as u64;
        if self.lines.is_empty() {
            self.start = first;
            self.lines = page.lines.into();
        } else if first == self.end() {
            self.lines.extend(page.lines);
        } else if first + count == self.start {
            page.lines
                .into_iter()
                .rev()
                .for_each(|line| self.lines.push_front(line));
            self.start = first;
        }
        self.trim();
    }

    /// Looks beyond the end, if the command may have printed more since.
    pub(crate) fn look_again(&mut self) {
        self.again = self.growing;
    }

    fn trim(&mut self) {
        while self.lines.len() > KEPT {
            let above = self.top.saturating_sub(self.start);
            let below = self.end().saturating_sub(self.top);
            if above > below {
                self.lines.pop_front();
                self.start += 1;
            } else {
                self.lines.pop_back();
            }
        }
    }

    pub(crate) fn failed(&mut self, why: String) {
        self.asked = false;
        self.problem = Some(one_line(&why));
    }

    /// Moves; false if there is nothing to go to.
    #[expect(clippy::wildcard_enum_match_arm, reason = "a pane minds its own keys")]
    pub(crate) fn act(&mut self, act: Act, window: Size) -> bool {
        let spot = match act {
            Act::FindNext => self.matches.iter().find(|line| **line > self.top).copied(),
            Act::FindPrevious => {
                let mut back = self.matches.iter().rev();
                back.find(|line| **line < self.top).copied()
            }
            act => {
                self.scroll(act, window);
                return true;
            }
        };
        if let Some(line) = spot {
            self.go_to(line);
        }
        spot.is_some()
    }

    fn scroll(&mut self, act: Act, window: Size) {
        let total = self.total.unwrap_or(self.end());
        let columns = usize::from(window.width);
        let top = Spot {
            line: self.top,
            row: self.row,
        };
        let theme = Theme::new(Palette::None);
        // Of a line that is not here nobody knows how long it is.
        let Spot { line, row } = top.moved(act, total, window, |line| {
            let here = line.checked_sub(self.start);
            let here = here.and_then(|at| self.lines.get(usize::try_from(at).ok()?));
            here.map_or(1, |it| wrapped(&shown(it, line + 1, &theme), columns).len())
        });
        (self.top, self.row) = (line, row);
    }

    fn go_to(&mut self, line: u64) {
        (self.top, self.row) = (line, 0);
    }

    /// Begins a search; the lines that match are asked for.
    pub(crate) fn search(&mut self, needle: &str) -> MessageId {
        self.needle = needle.to_lowercase();
        self.matches.clear();
        self.reference.clone()
    }

    pub(crate) fn take_matches(&mut self, page: &OutputPage) -> Result<(), String> {
        let numbers = page.lines.iter().map(|line| line.number);
        self.matches = numbers.take(MATCHES).collect();
        if self.matches.is_empty() {
            return Err("no line matches".to_owned());
        }
        let ahead = self.matches.iter().find(|line| **line >= self.top);
        let line = *ahead.unwrap_or(&self.matches[0]);
        self.go_to(line);
        Ok(())
    }
}

/// The rows of such a line.
pub(crate) fn wrapped(line: &Line<'_>, columns: usize) -> Vec<Line<'static>> {
    wrap(line, columns.max(1), HEAD)
}

/// A line behind its number and where it was printed. Nothing is written over here, so that all of
/// it can be read.
pub(crate) fn shown(line: &OutputLine, number: u64, theme: &Theme) -> Line<'static> {
    let head = format!("{number:>6} {}", printed::mark(line.stream));
    let mut spans = vec![Span::styled(head, theme.stream(line.stream))];
    let text = line.text.replace('\r', "␍");
    for line in ansi::lines(&text, Style::new(), theme.palette) {
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
            finished: true,
            cut: false,
        }
    }

    /// Fetches until nothing is missing; gives what was asked for.
    fn settle(pager: &mut Pager, total: u64) -> Vec<(u64, u64)> {
        let mut asked = Vec::new();
        while let Some(wanted) = pager.wanted(10) {
            asked.push((wanted.offset, wanted.limit));
            pager.take(page(wanted.offset, wanted.limit, total));
            assert!(asked.len() < 10, "{asked:?}");
        }
        asked
    }

    fn shown(pager: &Pager) -> Vec<u64> {
        pager
            .shown(3)
            .map(|(number, line)| {
                assert_eq!(line.text, format!("line {number}"));
                number
            })
            .collect()
    }

    #[test]
    fn lines_are_fetched_as_one_reads_on_and_back() {
        let mut pager = Pager::new(MessageId::parse("out").unwrap(), "x");
        assert_eq!(settle(&mut pager, 100_000), [(0, 500)]);
        assert_eq!(shown(&pager), [1, 2, 3]);
        pager.act(Act::Bottom, WINDOW);
        assert_eq!(settle(&mut pager, 100_000), [(99_865, 500)]);
        assert_eq!(shown(&pager), [99_991, 99_992, 99_993]);
        for _ in 0..20 {
            pager.act(Act::PageUp, WINDOW);
            settle(&mut pager, 100_000);
        }
        assert_eq!(shown(&pager), [99_811, 99_812, 99_813]);
    }

    #[test]
    fn every_row_of_a_line_that_is_longer_than_the_screen_can_be_read() {
        let mut pager = Pager::new(MessageId::parse("out").unwrap(), "x");
        pager.wanted(10);
        let mut long = page(0, 2, 2);
        long.lines[0].text = "word ".repeat(200);
        pager.take(long);
        // 28 columns are left for the text, which are five words.
        pager.act(Act::Bottom, WINDOW);
        assert_eq!((pager.top, pager.row), (0, 31));
        pager.act(Act::PageUp, WINDOW);
        assert_eq!((pager.top, pager.row), (0, 22));
        pager.act(Act::Top, WINDOW);
        pager.act(Act::PageDown, WINDOW);
        assert_eq!((pager.top, pager.row), (0, 9));
    }

    #[test]
    fn however_far_one_reads_little_is_kept() {
        let mut pager = Pager::new(MessageId::parse("out").unwrap(), "x");
        settle(&mut pager, 100_000);
        for _ in 0..2_000 {
            pager.act(Act::PageDown, WINDOW);
            settle(&mut pager, 100_000);
            assert!(pager.lines.len() <= KEPT);
        }
        assert_eq!(pager.top, 18_000);
        assert_eq!(shown(&pager)[0], 18_001);
    }

    #[test]
    fn matches_are_gone_to_in_turn() {
        let mut pager = Pager::new(MessageId::parse("out").unwrap(), "x");
        settle(&mut pager, 5_000);
        pager.search("7");
        let mut found = page(0, 3, 5_000);
        found
            .lines
            .iter_mut()
            .zip([69, 699, 3_999])
            .for_each(|(line, number)| line.number = number);
        pager.take_matches(&found).unwrap();
        let mut tops = vec![pager.top];
        for act in [
            Act::FindNext,
            Act::FindNext,
            Act::FindNext,
            Act::FindPrevious,
        ] {
            pager.act(act, WINDOW);
            settle(&mut pager, 5_000);
            tops.push(pager.top);
        }
        assert_eq!(tops, [69, 699, 3_999, 3_999, 699]);
        assert_eq!(shown(&pager)[0], 700);
        found.lines.clear();
        assert_eq!(
            pager.take_matches(&found),
            Err("no line matches".to_owned())
        );
    }

    #[test]
    fn what_a_command_prints_while_one_reads_is_fetched() {
        let mut pager = Pager::new(MessageId::parse("out").unwrap(), "x");
        let wanted = pager.wanted(10).unwrap();
        let mut first = page(0, wanted.limit, 5);
        first.finished = false;
        pager.take(first);
        assert!(pager.wanted(10).is_none(), "not before it is time");
        pager.look_again();
        let wanted = pager.wanted(10).unwrap();
        assert_eq!(wanted.offset, 5);
        pager.take(page(wanted.offset, wanted.limit, 9));
        assert_eq!((pager.lines.len(), pager.total), (9, Some(9)));
        pager.look_again();
        assert!(pager.wanted(10).is_none(), "it has ended");
    }

    #[test]
    fn a_page_of_something_else_is_not_taken() {
        let mut pager = Pager::new(MessageId::parse("other").unwrap(), "x");
        pager.wanted(10);
        pager.take(page(0, 10, 10));
        assert_eq!(pager.lines.len(), 0);
        pager.failed("gone\u{1b}".to_owned());
        assert_eq!(pager.problem.as_deref(), Some(r"gone\u{1b}"));
        assert!(pager.wanted(10).is_none());
    }
}
