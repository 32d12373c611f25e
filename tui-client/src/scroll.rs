//! The scroll position in lines that may take several rows each.

use ratatui::layout::Size;

use crate::keys::KeyAction;

/// A line, and a row of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScrollPosition {
    pub(crate) line: u64,
    pub(crate) row: usize,
}

impl ScrollPosition {
    /// The first row of a line.
    pub(crate) fn start_of_line(line: u64) -> Self {
        Self { line, row: 0 }
    }

    /// The first row on the screen after a key. The last line never moves above the bottom of the
    /// window, unless a search moved it there.
    #[expect(clippy::wildcard_enum_match_arm, reason = "handles only its own keys")]
    pub(crate) fn after_action(
        self,
        action: KeyAction,
        lines: u64,
        window: Size,
        rows_of: impl Fn(u64) -> usize,
    ) -> Self {
        let rows = usize::from(window.height).max(1);
        // One row stays on the screen, so that the reader keeps their place.
        let page = rows.saturating_sub(1).max(1);
        let bottom = ScrollPosition::start_of_line(lines).rows_up(rows, &rows_of);
        let down = |by| self.rows_down(by, lines, &rows_of).min(bottom).max(self);
        match action {
            KeyAction::Up => self.rows_up(1, &rows_of),
            KeyAction::Down => down(1),
            KeyAction::PageUp => self.rows_up(page, &rows_of),
            KeyAction::PageDown => down(page),
            KeyAction::Top => ScrollPosition::default(),
            KeyAction::Bottom => bottom,
            _ => self,
        }
    }

    fn rows_up(self, by: usize, rows_of: &impl Fn(u64) -> usize) -> Self {
        let ScrollPosition { mut line, mut row } = self;
        let mut by = by;
        while by > row && line > 0 {
            by -= row;
            line -= 1;
            row = rows_of(line).max(1);
        }
        let row = row.saturating_sub(by);
        ScrollPosition { line, row }
    }

    fn rows_down(self, by: usize, lines: u64, rows_of: &impl Fn(u64) -> usize) -> Self {
        let ScrollPosition { mut line, row } = self;
        let mut row = row + by;
        while line < lines {
            let here = rows_of(line).max(1);
            if row < here {
                return ScrollPosition { line, row };
            }
            row -= here;
            line += 1;
        }
        ScrollPosition::start_of_line(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Size = Size {
        width: 10,
        height: 4,
    };

    /// The rows of each of three lines: the second takes nine.
    fn rows(line: u64) -> usize {
        if line == 1 { 9 } else { 1 }
    }

    fn go(from: ScrollPosition, actions: &[KeyAction]) -> (u64, usize) {
        let moved =
            |from: ScrollPosition, action: &KeyAction| from.after_action(*action, 3, WINDOW, rows);
        let ScrollPosition { line, row } = actions.iter().fold(from, moved);
        (line, row)
    }

    #[test]
    fn every_row_of_a_long_line_can_be_read() {
        let top = ScrollPosition::default();
        assert_eq!(go(top, &[KeyAction::Down; 3]), (1, 2));
        assert_eq!(go(top, &[KeyAction::PageDown; 2]), (1, 5));
        assert_eq!(
            go(top, &[KeyAction::PageDown; 9]),
            (1, 6),
            "the end is at the bottom"
        );
        assert_eq!(go(top, &[KeyAction::Bottom]), (1, 6));
        assert_eq!(go(top, &[KeyAction::Bottom, KeyAction::Up]), (1, 5));
        assert_eq!(
            go(
                top,
                &[KeyAction::Bottom, KeyAction::PageUp, KeyAction::PageUp]
            ),
            (1, 0)
        );
        assert_eq!(go(top, &[KeyAction::Bottom, KeyAction::Top]), (0, 0));
    }

    #[test]
    fn the_position_a_search_found_is_kept() {
        assert_eq!(
            go(ScrollPosition::start_of_line(2), &[KeyAction::Down]),
            (2, 0)
        );
        assert_eq!(
            go(ScrollPosition::start_of_line(2), &[KeyAction::Up]),
            (1, 8)
        );
    }

    #[test]
    fn lines_that_fit_the_window_do_not_scroll() {
        let moved = ScrollPosition::default().after_action(KeyAction::Bottom, 3, WINDOW, |_| 1);
        assert_eq!(moved, ScrollPosition::default());
        let moved = ScrollPosition::default().after_action(KeyAction::PageDown, 0, WINDOW, |_| 1);
        assert_eq!(moved, ScrollPosition::default());
    }
}
