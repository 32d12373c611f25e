//! Where one reads in lines that may take several rows each.

use ratatui::layout::Size;

use crate::keys::Act;

/// A row of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) line: u64,
    pub(crate) row: usize,
}

impl Spot {
    /// The first row of a line.
    pub(crate) fn at(line: u64) -> Self {
        Self { line, row: 0 }
    }

    /// The first row on the screen after a key. The end is never above the bottom of the window,
    /// unless a search went there.
    #[expect(clippy::wildcard_enum_match_arm, reason = "a pane minds its own keys")]
    pub(crate) fn moved(
        self,
        act: Act,
        lines: u64,
        window: Size,
        rows_of: impl Fn(u64) -> usize,
    ) -> Self {
        let rows = usize::from(window.height).max(1);
        // A row of what was on the screen stays on it.
        let page = rows.saturating_sub(1).max(1);
        let bottom = Spot::at(lines).back(rows, &rows_of);
        let on = |by| self.on(by, lines, &rows_of).min(bottom).max(self);
        match act {
            Act::Up => self.back(1, &rows_of),
            Act::Down => on(1),
            Act::PageUp => self.back(page, &rows_of),
            Act::PageDown => on(page),
            Act::Top => Spot::default(),
            Act::Bottom => bottom,
            _ => self,
        }
    }

    fn back(self, by: usize, rows_of: &impl Fn(u64) -> usize) -> Self {
        let Spot { mut line, mut row } = self;
        let mut by = by;
        while by > row && line > 0 {
            by -= row;
            line -= 1;
            row = rows_of(line).max(1);
        }
        let row = row.saturating_sub(by);
        Spot { line, row }
    }

    fn on(self, by: usize, lines: u64, rows_of: &impl Fn(u64) -> usize) -> Self {
        let Spot { mut line, row } = self;
        let mut row = row + by;
        while line < lines {
            let here = rows_of(line).max(1);
            if row < here {
                return Spot { line, row };
            }
            row -= here;
            line += 1;
        }
        Spot::at(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Size = Size {
        width: 10,
        height: 4,
    };

    /// Three lines, of which the second takes nine rows.
    fn rows(line: u64) -> usize {
        if line == 1 { 9 } else { 1 }
    }

    fn go(from: Spot, acts: &[Act]) -> (u64, usize) {
        let moved = |spot: Spot, act: &Act| spot.moved(*act, 3, WINDOW, rows);
        let Spot { line, row } = acts.iter().fold(from, moved);
        (line, row)
    }

    #[test]
    fn every_row_of_a_long_line_can_be_read() {
        let top = Spot::default();
        assert_eq!(go(top, &[Act::Down; 3]), (1, 2));
        assert_eq!(go(top, &[Act::PageDown; 2]), (1, 5));
        assert_eq!(
            go(top, &[Act::PageDown; 9]),
            (1, 6),
            "the end is at the bottom"
        );
        assert_eq!(go(top, &[Act::Bottom]), (1, 6));
        assert_eq!(go(top, &[Act::Bottom, Act::Up]), (1, 5));
        assert_eq!(go(top, &[Act::Bottom, Act::PageUp, Act::PageUp]), (1, 0));
        assert_eq!(go(top, &[Act::Bottom, Act::Top]), (0, 0));
    }

    #[test]
    fn where_a_search_went_one_stays() {
        assert_eq!(go(Spot::at(2), &[Act::Down]), (2, 0));
        assert_eq!(go(Spot::at(2), &[Act::Up]), (1, 8));
    }

    #[test]
    fn what_fits_does_not_move() {
        let moved = Spot::default().moved(Act::Bottom, 3, WINDOW, |_| 1);
        assert_eq!(moved, Spot::default());
        let moved = Spot::default().moved(Act::PageDown, 0, WINDOW, |_| 1);
        assert_eq!(moved, Spot::default());
    }
}
