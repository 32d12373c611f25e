//! Pages, the pager, and screens of interactive commands.

use pvp_protocol::MessageId;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::{boxed, highlighted, lines};
use crate::app::{App, Focus};
use crate::pager::{Page, Pager};
use crate::text::{clip, one_line, wrap};
use crate::{ansi, printed};

pub(super) fn page(app: &App, page: &Page, area: Rect, buffer: &mut Buffer) {
    let place = format!("{}/{}", page.top + 1, page.lines.len());
    let inner = frame(app, &page.title, &place, area, buffer);
    let columns = usize::from(inner.width).max(1);
    let shown = page
        .lines
        .iter()
        .skip(page.top)
        .take(usize::from(inner.height));
    let shown = shown.map(|line| highlighted(line.clone(), &page.needle, app.theme.found));
    let rows = shown.flat_map(|line| wrap(&line, columns, 4));
    lines(
        rows.take(usize::from(inner.height)).collect(),
        inner,
        buffer,
    );
}

pub(super) fn pager(app: &App, pager: &Pager, area: Rect, buffer: &mut Buffer) {
    let total = pager.total.map(|total| total.to_string());
    let place = format!("{}/{}", pager.top + 1, total.as_deref().unwrap_or("…"));
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
    for (number, line) in pager.shown(height) {
        let head = format!("{number:>6} {}", printed::mark(line.stream));
        let mut spans = vec![Span::styled(head, app.theme.stream(line.stream))];
        // Here nothing is written over, so that all of it can be read.
        let text = line.text.replace('\r', "␍");
        for line in ansi::lines(&text, Style::new(), app.theme.palette) {
            spans.extend(line.spans);
        }
        let line = highlighted(Line::from(spans), &pager.needle, app.theme.found);
        rows.extend(wrap(&line, columns, 12));
        if rows.len() >= height {
            break;
        }
    }
    rows.truncate(height);
    lines(rows, inner, buffer);
}

pub(super) fn terminal(app: &App, proposal: &MessageId, area: Rect, frame_: &mut Frame<'_>) {
    let command = app
        .view
        .proposal(proposal)
        .map(|it| one_line(&it.asked.shown));
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
