//! Computes the layout of the screen for any size.

use ratatui::layout::{Rect, Size};

use super::{gate, header, input_area};
use crate::app::{App, Focus, MainContent};

/// With fewer rows than this, nothing has a frame.
const MIN_FRAMED_ROWS: u16 = 16;

/// With at least this many rows, the participants have a row of their own.
const MIN_ROWS_WITH_PEOPLE: u16 = 18;

/// Rows that the main area always has, if there are that many.
const MIN_MAIN_ROWS: u16 = 3;

/// The parts of the screen, top to bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScreenAreas {
    pub(crate) header: Rect,
    pub(crate) main: Rect,
    pub(crate) card: Rect,
    pub(crate) input: Rect,
    pub(crate) hints: Rect,
}

/// Columns for the text of the stream; the first column of the screen marks the selected item.
pub(crate) fn stream_columns(size: Size) -> usize {
    usize::from(size.width.saturating_sub(1)).max(1)
}

/// Whether there is room for frames.
pub(crate) fn has_frames(size: Size) -> bool {
    size.height >= MIN_FRAMED_ROWS
}

pub(crate) fn areas(app: &App) -> ScreenAreas {
    if app.purpose.is_answers() {
        return answer_areas(app);
    }
    let Size { width, height } = app.size;
    let header_rows = if height >= MIN_ROWS_WITH_PEOPLE { 2 } else { 1 };
    let header_rows = header_rows + header::warning_rows(app);
    let hints = input_area::hint_rows(app).min(height / 4).max(1);
    let available = height.saturating_sub(header_rows + hints);
    let bottom = input_area::preferred_rows(app)
        .min(available.saturating_sub(1))
        .min((height / 3).max(1));
    let available = available.saturating_sub(bottom);
    let share = match (app.focus, &app.main) {
        (Focus::Card, _) => height * 7 / 10,
        (Focus::Composer, MainContent::Stream) => height / 2,
        (Focus::Main, MainContent::Stream) => height / 3,
        // The user reads something else; the command and its assessment stay visible.
        (Focus::Composer | Focus::Main, _) => (height / 4).max(5),
    };
    let card = gate::preferred_rows(app)
        .min(share)
        .min(available.saturating_sub(MIN_MAIN_ROWS.min(available)));
    let main = available.saturating_sub(card);
    let mut y = 0;
    let mut next_area = |rows: u16| {
        let rows = rows.min(height.saturating_sub(y));
        let area = Rect::new(0, y, width, rows);
        y += rows;
        area
    };
    ScreenAreas {
        header: next_area(header_rows),
        main: next_area(main),
        card: next_area(card),
        input: next_area(bottom),
        hints: next_area(hints),
    }
}

/// The areas of a screen that is for answers: the card or a page has all of it, a dialog is below the
/// card, and nothing can be typed otherwise.
fn answer_areas(app: &App) -> ScreenAreas {
    let Size { width, height } = app.size;
    let header_rows = 1 + header::warning_rows(app);
    let hint_rows = input_area::hint_rows(app).min(height / 4).max(1);
    let available = height.saturating_sub(header_rows + hint_rows);
    let input_rows = match &app.dialog {
        Some(_) => input_area::preferred_rows(app).min((height / 3).max(1)),
        None => 0,
    };
    let available = available.saturating_sub(input_rows);
    let card_rows = match &app.main {
        MainContent::Stream => gate::preferred_rows(app).min(available),
        MainContent::Page(_)
        | MainContent::Pager(_)
        | MainContent::Preflight(_)
        | MainContent::Terminal(_) => 0,
    };
    let area = |y: u16, rows: u16| {
        let y = y.min(height);
        Rect::new(0, y, width, rows.min(height - y))
    };
    let main_rows = available - card_rows;
    let below_card = header_rows + card_rows;
    let (main, input) = match card_rows {
        0 => (header_rows, header_rows + main_rows),
        _ => (below_card + input_rows, below_card),
    };
    ScreenAreas {
        header: area(0, header_rows),
        main: area(main, main_rows),
        card: area(header_rows, card_rows),
        input: area(input, input_rows),
        hints: area(height.saturating_sub(hint_rows), hint_rows),
    }
}
