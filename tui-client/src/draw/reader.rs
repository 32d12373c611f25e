//! Pages, the pager, and screens of interactive commands.

use pvp_protocol::MessageId;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::{boxed, highlighted, lines};
use crate::app::{App, Focus};
use crate::page::Page;
use crate::pager::{self, Pager};
use crate::text::{clip, one_line};

pub(super) fn page(app: &App, page: &Page, area: Rect, buffer: &mut Buffer) {
    let place = format!("{}/{}", page.top.line + 1, page.lines.len());
    let inner = frame(app, &page.title, &place, area, buffer);
    let columns = usize::from(inner.width).max(1);
    let height = usize::from(inner.height);
    let first = usize::try_from(page.top.line).unwrap_or(usize::MAX);
    let shown = page.lines.iter().skip(first).take(height);
    let shown = shown.map(|line| highlighted(line.clone(), &page.needle, app.theme.found));
    let rows = shown.flat_map(|line| crate::page::rows(&line, columns));
    let rows = rows.skip(page.top.row).take(height);
    lines(rows.collect(), inner, buffer);
}

pub(super) fn pager(app: &App, pager: &Pager, area: Rect, buffer: &mut Buffer) {
    let total = pager.total.map(|total| total.to_string());
    let at = (pager.top + 1).min(pager.total.unwrap_or(u64::MAX));
    let place = format!("{at}/{}", total.as_deref().unwrap_or("…"));
    let inner = frame(app, &pager.title, &place, area, buffer);
    let columns = usize::from(inner.width).max(1);
    let height = usize::from(inner.height);
    let mut rows = Vec::new();
    if let Some(problem) = &pager.problem {
        rows.push(Line::from(Span::styled(problem.clone(), app.theme.bad)));
    } else if pager.total == Some(0) {
        rows.push(Line::from(Span::styled(
            "it printed nothing",
            app.theme.quiet,
        )));
    } else if pager.lines.is_empty() {
        rows.push(Line::from(Span::styled("reading…", app.theme.quiet)));
    }
    let wanted = pager.row + height;
    for (number, line) in pager.shown(height) {
        let line = pager::shown(line, number, &app.theme);
        let line = highlighted(line, &pager.needle, app.theme.found);
        rows.extend(pager::wrapped(&line, columns));
        if rows.len() >= wanted {
            break;
        }
    }
    let rows = rows.into_iter().skip(pager.row).take(height);
    lines(rows.collect(), inner, buffer);
}

pub(super) fn terminal(app: &App, proposal: &MessageId, area: Rect, frame_: &mut Frame<'_>) {
    let command = app
        .view
        .proposal(proposal)
        .map(|it| one_line(&it.requested.shown));
    let typing = app.scope() == crate::keys::Scope::Terminal;
    let place = if typing {
        "ctrl+] leaves"
    } else {
        "watching; esc leaves"
    };
    let inner = frame(
        app,
        &command.unwrap_or_default(),
        place,
        area,
        frame_.buffer_mut(),
    );
    app.panes
        .draw(proposal, inner, frame_.buffer_mut(), app.theme.palette);
    if let (true, Some((row, column))) = (typing, app.panes.cursor(proposal)) {
        let at = Position::new(inner.x + column, inner.y + row);
        if inner.contains(at) {
            frame_.set_cursor_position(at);
        }
    }
}

fn frame(app: &App, title: &str, place: &str, area: Rect, buffer: &mut Buffer) -> Rect {
    let title = clip(
        title,
        usize::from(area.width).saturating_sub(place.len() + 10),
    );
    let focused = app.focus == Focus::Main && app.dialog.is_none();
    let block = boxed(app, title, focused);
    let place = Line::from(Span::styled(format!(" {place} "), app.theme.quiet));
    let block = block.title(place.right_aligned());
    let inner = block.inner(area);
    block.render(area, buffer);
    inner
}
