//! Draws the main area: pages, the pager, and the screens of interactive commands.

use pvp_protocol::{Digest, MessageId};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::{bordered_block, draw_lines, highlight_matches};
use crate::app::{App, Focus};
use crate::pager::{self, Pager};
use crate::text::{clip, one_line};
use crate::text_page::TextPage;

/// Draws a page; returns the gate whose tool call it shows, if the end of the call is visible.
pub(super) fn draw_page(
    app: &App,
    page: &TextPage,
    area: Rect,
    buffer: &mut Buffer,
) -> Option<(MessageId, Digest)> {
    let position = format!("{}/{}", page.top.line + 1, page.lines.len());
    let inner = draw_frame(app, &page.title, &position, area, buffer);
    let columns = usize::from(inner.width).max(1);
    let height = usize::from(inner.height);
    let first = usize::try_from(page.top.line).unwrap_or(usize::MAX);
    let shown = page.lines.iter().skip(first).take(height);
    let shown =
        shown.map(|line| highlight_matches(line.clone(), &page.needle, app.theme.search_match));
    let lines: Vec<_> = shown
        .map(|line| crate::text_page::wrap_page_line(&line, columns))
        .collect();
    let mut row_count = 0;
    let is_visible = |rows: &&Vec<_>| {
        row_count += rows.len();
        row_count <= page.top.row + height
    };
    let next_line = first + lines.iter().take_while(is_visible).count();
    let rows = lines.into_iter().flatten();
    let rows = rows.skip(page.top.row).take(height);
    draw_lines(rows.collect(), inner, buffer);
    let call = page.call.as_ref();
    let call = call.filter(|call| height > 0 && call.line_count <= next_line);
    call.map(|call| (call.gate.clone(), call.digest))
}

pub(super) fn draw_pager(app: &App, pager: &Pager, area: Rect, buffer: &mut Buffer) {
    let total = pager.total_lines.map(|total| total.to_string());
    let at = (pager.top_line + 1).min(pager.total_lines.unwrap_or(u64::MAX));
    let position = format!("{at}/{}", total.as_deref().unwrap_or("…"));
    let inner = draw_frame(app, &pager.title, &position, area, buffer);
    let columns = usize::from(inner.width).max(1);
    let height = usize::from(inner.height);
    let mut rows = Vec::new();
    if let Some(problem) = &pager.error {
        rows.push(Line::from(Span::styled(problem.clone(), app.theme.error)));
    } else if pager.total_lines == Some(0) {
        rows.push(Line::from(Span::styled("no output", app.theme.muted)));
    } else if pager.lines.is_empty() {
        rows.push(Line::from(Span::styled("reading…", app.theme.muted)));
    }
    let needed_rows = pager.top_row + height;
    for (number, line) in pager.visible_lines(height) {
        let line = pager::numbered_line(line, number, &app.theme);
        let line = highlight_matches(line, &pager.needle, app.theme.search_match);
        rows.extend(pager::wrap_output_line(&line, columns));
        if rows.len() >= needed_rows {
            break;
        }
    }
    let rows = rows.into_iter().skip(pager.top_row).take(height);
    draw_lines(rows.collect(), inner, buffer);
}

pub(super) fn draw_terminal(app: &App, proposal: &MessageId, area: Rect, frame: &mut Frame<'_>) {
    let command = app
        .view
        .proposal(proposal)
        .map(|it| one_line(&it.requested.shown));
    let typing = app.key_scope() == crate::keys::KeyScope::Terminal;
    let hint = if typing {
        "ctrl+] leaves"
    } else {
        "watching; esc closes"
    };
    let inner = draw_frame(
        app,
        &command.unwrap_or_default(),
        hint,
        area,
        frame.buffer_mut(),
    );
    app.pty_screens
        .draw(proposal, inner, frame.buffer_mut(), app.theme.palette);
    if let (true, Some((row, column))) = (typing, app.pty_screens.cursor(proposal)) {
        let at = Position::new(inner.x + column, inner.y + row);
        if inner.contains(at) {
            frame.set_cursor_position(at);
        }
    }
}

/// Draws a frame with a title on the left and a label on the right; returns the area inside.
fn draw_frame(app: &App, title: &str, label: &str, area: Rect, buffer: &mut Buffer) -> Rect {
    let title = clip(
        title,
        usize::from(area.width).saturating_sub(label.len() + 10),
    );
    let focused = app.focus == Focus::Main && app.dialog.is_none();
    let block = bordered_block(app, title, focused);
    let label = Line::from(Span::styled(format!(" {label} "), app.theme.muted));
    let block = block.title(label.right_aligned());
    let inner = block.inner(area);
    block.render(area, buffer);
    inner
}
