//! Where everything stands, at whatever size.

use ratatui::layout::{Rect, Size};

use super::{bottom, gate};
use crate::app::{App, Focus, Main};

/// Below this many rows nothing has a frame.
const FRAMED_ROWS: u16 = 16;

/// From this many rows on, people have a row of their own.
const ROOMY_ROWS: u16 = 18;

/// Rows that the stream always has.
const MAIN_ROWS: u16 = 3;

/// The parts of the screen, top to bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Areas {
    pub(crate) header: Rect,
    pub(crate) main: Rect,
    pub(crate) card: Rect,
    pub(crate) bottom: Rect,
    pub(crate) hints: Rect,
}

/// Columns that the text of the stream has; the first is for the mark of what is chosen.
pub(crate) fn stream_columns(size: Size) -> usize {
    usize::from(size.width.saturating_sub(1)).max(1)
}

/// Whether there is room for frames.
pub(crate) fn framed(size: Size) -> bool {
    size.height >= FRAMED_ROWS
}

pub(crate) fn areas(app: &App) -> Areas {
    let Size { width, height } = app.size;
    let header = if height >= ROOMY_ROWS { 2 } else { 1 };
    let hints = bottom::hint_rows(app).min(height / 4).max(1);
    let most = height.saturating_sub(header + hints);
    let bottom = bottom::rows(app)
        .min(most.saturating_sub(1))
        .min((height / 3).max(1));
    let most = most.saturating_sub(bottom);
    let share = match (app.focus, &app.main) {
        (Focus::Card, _) => height * 7 / 10,
        (Focus::Composer, Main::Stream) => height / 2,
        (Focus::Main, Main::Stream) => height / 3,
        // Somebody reads; the command and the verdict stay in sight.
        (Focus::Composer | Focus::Main, _) => (height / 4).max(5),
    };
    let card = gate::rows(app)
        .min(share)
        .min(most.saturating_sub(MAIN_ROWS.min(most)));
    let main = most.saturating_sub(card);
    let mut y = 0;
    let mut part = |rows: u16| {
        let rows = rows.min(height.saturating_sub(y));
        let area = Rect::new(0, y, width, rows);
        y += rows;
        area
    };
    Areas {
        header: part(header),
        main: part(main),
        card: part(card),
        bottom: part(bottom),
        hints: part(hints),
    }
}
