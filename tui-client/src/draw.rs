//! Draws the screen from the app's state: the same state always gives the same frame.

mod areas;
mod gate;
mod header;
mod input_area;
mod main_area;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect, Size};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Widget};

pub(crate) use areas::{areas, stream_columns};
pub(crate) use gate::visible_card_rows;

use crate::app::{App, ConnectionState, DrawnGates, Focus, MainContent, StreamPosition};
use crate::text::{clip, clip_line, escape_invisible};

/// The smallest terminal on which a gate can be decided.
const MIN_SIZE: Size = Size {
    width: 20,
    height: 8,
};

/// Draws the whole screen; returns which gates are visible.
pub(crate) fn draw(app: &App, frame: &mut Frame<'_>) -> DrawnGates {
    if app.size.width < MIN_SIZE.width || app.size.height < MIN_SIZE.height {
        // The number of waiting gates comes first: there may be room for nothing else.
        let waiting = format!("{} waiting", app.waiting_cards().count());
        for (y, words) in (0..).zip([waiting.as_str(), "too small", "to decide"]) {
            draw_text(words, app.theme.strong, 0, y, frame.buffer_mut());
        }
        return DrawnGates::default();
    }
    let areas = areas(app);
    let mut drawn = DrawnGates::default();
    header::draw(app, areas.header, frame.buffer_mut());
    match &app.main {
        MainContent::Stream if app.purpose.is_answers() => {
            draw_nothing_waits(app, areas.main, frame.buffer_mut());
        }
        MainContent::Stream => draw_stream(app, areas.main, frame.buffer_mut()),
        MainContent::Page(page) => {
            let buffer = frame.buffer_mut();
            drawn.read_call = main_area::draw_page(app, page, areas.main, buffer);
        }
        MainContent::Pager(pager) => {
            main_area::draw_pager(app, pager, areas.main, frame.buffer_mut())
        }
        MainContent::Preflight(preflight) => {
            let buffer = frame.buffer_mut();
            drawn.fully_listed = gate::draw_preflight(app, preflight, areas.main, buffer);
        }
        MainContent::Terminal(proposal) => {
            main_area::draw_terminal(app, proposal, areas.main, frame)
        }
    }
    if areas.card.height > 0 {
        let (card, whole) = gate::draw(app, areas.card, frame.buffer_mut());
        drawn.card = card;
        drawn.command_end_visible = whole;
    }
    if areas.input.height > 0 {
        input_area::draw(app, areas.input, frame);
    }
    input_area::draw_hints(app, areas.hints, frame.buffer_mut());
    replace_unsafe_cells(frame.buffer_mut());
    drawn
}

/// The last line of defence: whatever was drawn, cells hold nothing but visible characters.
fn replace_unsafe_cells(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        let symbol = cell.symbol();
        let plain = symbol.len() == 1 && (b' '..=b'~').contains(&symbol.as_bytes()[0]);
        let has_control = symbol.contains(['\n', '\t']);
        if !plain && (has_control || escape_invisible(symbol) != symbol) {
            cell.set_symbol("\u{fffd}");
        }
    }
}

/// A frame with a title, highlighted if it has the focus.
fn bordered_block<'a>(app: &App, title: String, focused: bool) -> Block<'a> {
    let style = if focused {
        app.theme.focused
    } else {
        app.theme.unfocused
    };
    let mark = if focused { "▶ " } else { "" };
    let title = Span::styled(format!(" {mark}{title} "), style);
    Block::bordered().border_style(style).title(title)
}

fn draw_lines(lines: Vec<Line<'static>>, area: Rect, buffer: &mut Buffer) {
    Paragraph::new(lines).render(area, buffer);
}

fn draw_row(line: &Line<'_>, area: Rect, y: u16, buffer: &mut Buffer) {
    let at = Position::new(area.x, area.y.saturating_add(y));
    if y < area.height && buffer.area.contains(at) {
        let line = clip_line(line, usize::from(area.width));
        buffer.set_line(at.x, at.y, &line, area.width);
    }
}

/// Writes a text where there is room for it; the terminal may have shrunk since the areas were
/// computed.
fn draw_text(text: &str, style: Style, x: u16, y: u16, buffer: &mut Buffer) {
    if buffer.area.contains(Position::new(x, y)) {
        let room = usize::from(buffer.area.right() - x);
        buffer.set_string(x, y, clip(text, room), style);
    }
}

/// Says that there is no card, where there is none.
fn draw_nothing_waits(app: &App, area: Rect, buffer: &mut Buffer) {
    let words = match (&app.connection, app.view.me.is_some()) {
        _ if app.current_card().is_some() => return,
        (ConnectionState::Closed { .. }, _) => "you cannot answer here",
        (ConnectionState::Connected | ConnectionState::Reconnecting { .. }, false) => {
            "asking the server what waits…"
        }
        (ConnectionState::Connected | ConnectionState::Reconnecting { .. }, true) => {
            "no call of this client waits for a decision"
        }
    };
    draw_text(words, app.theme.strong, area.x + 1, area.y + 1, buffer);
}

fn draw_stream(app: &App, area: Rect, buffer: &mut Buffer) {
    let renderer = app.stream_renderer();
    let height = usize::from(area.height);
    let top = app
        .stream_scroll
        .top
        .unwrap_or_else(|| app.bottom_position());
    let StreamPosition {
        mut item,
        row: mut skip,
    } = top;
    let mut y = 0;
    while y < height {
        let Some(shown) = app.item(item) else { break };
        let chosen = app.focus == Focus::Main && app.stream_scroll.selected_item == Some(item);
        for line in renderer
            .item_rows(shown)
            .into_iter()
            .skip(skip)
            .take(height - y)
        {
            let at = u16::try_from(y).unwrap_or(u16::MAX);
            let line = highlight_matches(line, &app.stream_scroll.needle, app.theme.search_match);
            if chosen {
                draw_text("▌", app.theme.focused, area.x, area.y + at, buffer);
            }
            let rest = Rect {
                x: area.x + 1,
                width: area.width.saturating_sub(1),
                ..area
            };
            draw_row(&line, rest, at, buffer);
            y += 1;
        }
        skip = 0;
        item += 1;
    }
    if app.view.stream.items.is_empty() {
        let words = "nothing has happened yet; type a prompt, or press f1 for the keys";
        draw_text(words, app.theme.muted, area.x + 1, area.y, buffer);
    }
    if app.stream_scroll.top.is_some() && area.height > 1 {
        let words = clip(
            " ↓ more below: press end to follow ",
            usize::from(area.width),
        );
        let x = area
            .right()
            .saturating_sub(u16::try_from(crate::text::width(&words)).unwrap_or(0));
        draw_text(&words, app.theme.selected, x, area.bottom() - 1, buffer);
    }
}

/// The line with every match of the search highlighted.
fn highlight_matches(line: Line<'static>, needle: &str, style: Style) -> Line<'static> {
    if needle.is_empty() {
        return line;
    }
    let needle = needle.to_ascii_lowercase();
    let mut spans = Vec::new();
    for span in line.spans {
        // ASCII lower case has the same length, so offsets in it are offsets in the text.
        let lower = span.content.to_ascii_lowercase();
        let mut from = 0;
        for (at, _) in lower.match_indices(&needle) {
            spans.push(Span::styled(span.content[from..at].to_owned(), span.style));
            from = at + needle.len();
            spans.push(Span::styled(span.content[at..from].to_owned(), style));
        }
        spans.push(Span::styled(span.content[from..].to_owned(), span.style));
    }
    spans.retain(|span| !span.content.is_empty());
    Line::from(spans)
}

/// The title of the terminal's window.
pub(crate) fn window_title(app: &App) -> String {
    let session = app.view.session.as_ref().map(ToString::to_string);
    let session = session.unwrap_or_default();
    match app.view.open_gate_count() {
        0 => format!("pvp {session}"),
        waiting => format!("({waiting}) pvp {session}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_invisible_characters_in_cells_are_replaced() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 7, 1));
        let cells = ["a", "é", "世", "\u{1b}", "\u{202e}", "\n", "🇩🇪"];
        for (cell, symbol) in buffer.content.iter_mut().zip(cells) {
            cell.set_symbol(symbol);
        }
        replace_unsafe_cells(&mut buffer);
        let left: Vec<_> = buffer.content.iter().map(|cell| cell.symbol()).collect();
        let no = "\u{fffd}";
        assert_eq!(left, ["a", "é", "世", no, no, no, no]);
    }
}
