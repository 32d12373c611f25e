//! The gate card, the list of those that wait, and the preflight list.

use pvp_client::view::GateCard;
use pvp_protocol::{Digest, MessageId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::areas::framed;
use super::{areas, boxed, lines, put, row};
use crate::app::{App, Current, Focus, Preflight};
use crate::card::{self, CardRows};
use crate::keys::{Act, Scope};
use crate::text::{clip, one_line, width};
use crate::words;

/// Below this many columns everything is said in fewer words.
const NARROW: u16 = 48;

/// Rows of the list of cards, when there are several.
const LISTED: usize = 4;

/// Rows that the card would like to have.
pub(super) fn rows(app: &App) -> u16 {
    let Some(current) = app.current() else {
        return 0;
    };
    let columns = inner_columns(app);
    let frame = if framed(app.size) { 2 } else { 1 };
    let rows = card_rows(app, current, columns).rows.len() + listed(app) + frame;
    u16::try_from(rows).unwrap_or(u16::MAX)
}

fn inner_columns(app: &App) -> usize {
    let frame = if framed(app.size) { 4 } else { 0 };
    usize::from(app.size.width).saturating_sub(frame).max(1)
}

/// Rows of the list: none if the card alone says it all.
fn listed(app: &App) -> usize {
    let closed = matches!(app.current(), Some(Current::Closed(_)));
    let open = app.view.open_gate_count();
    let rows = if open > 1 || (closed && open > 0) {
        open
    } else {
        0
    };
    rows.min(if framed(app.size) { LISTED } else { 2 })
}

fn card_rows(app: &App, current: Current<'_>, columns: usize) -> CardRows {
    match current {
        Current::Open(card) => {
            let mut rows = card::open(card, &app.view, app.now, &app.theme, columns);
            if let Some(words) = app.cards.under_way.get(&card.gate) {
                rows.rows
                    .push(Line::from(Span::styled(*words, app.theme.warning)));
            }
            rows
        }
        Current::Closed(resolved) => {
            let at = app.config.clock.time(resolved.resolution.at);
            card::closed(resolved, &at, &app.view, &app.theme, columns)
        }
    }
}

/// Rows of a card that are on the screen at a time.
pub(crate) fn card_window(app: &App) -> usize {
    let frame = if framed(app.size) { 2 } else { 1 };
    let height = usize::from(areas(app).card.height);
    height.saturating_sub(frame + listed(app)).max(1)
}

/// Draws the card; gives what it is of, and whether the end of its command is on the screen.
pub(super) fn draw(
    app: &App,
    area: Rect,
    buffer: &mut Buffer,
) -> (Option<(MessageId, Digest)>, bool) {
    let Some(current) = app.current() else {
        return (None, false);
    };
    let focused = app.focus == Focus::Card && app.dialog.is_none();
    let inner = if framed(app.size) {
        let mut block = boxed(app, String::new(), focused);
        if focused && matches!(current, Current::Open(_)) {
            block = block.title_bottom(keys(app));
        }
        let inside = block.inner(area);
        block.render(area, buffer);
        Rect {
            x: inside.x + 1,
            width: inside.width.saturating_sub(2),
            ..inside
        }
    } else {
        Rect {
            y: area.y + 1,
            height: area.height.saturating_sub(1),
            ..area
        }
    };
    let listed = list(app, inner, buffer);
    let rest = Rect {
        y: inner.y + listed,
        height: inner.height.saturating_sub(listed),
        ..inner
    };
    let CardRows { rows, command } = card_rows(app, current, usize::from(rest.width).max(1));
    let visible = usize::from(rest.height);
    let scroll = app.cards.scroll.min(rows.len().saturating_sub(visible));
    let below = rows.len().saturating_sub(scroll + visible);
    lines(
        rows.into_iter().skip(scroll).take(visible).collect(),
        rest,
        buffer,
    );
    let more = more(app, below, focused);
    head(app, &title(app, current), &more, focused, area, buffer);
    match current {
        Current::Open(card) => {
            let whole = visible > 0 && command <= scroll + visible;
            (Some((card.gate.clone(), card.digest)), whole)
        }
        Current::Closed(_) => (None, false),
    }
}

/// What is on the first row: the title, and how to read what is below the last one.
fn head(app: &App, title: &str, more: &str, focused: bool, area: Rect, buffer: &mut Buffer) {
    let style = match (focused, framed(app.size)) {
        (true, _) => app.theme.focused,
        (false, true) => app.theme.unfocused,
        (false, false) => app.theme.warning,
    };
    let (before, mark) = match (framed(app.size), focused) {
        (true, true) => (1, " ▶ "),
        (true, false) => (1, " "),
        (false, true) => (0, "▶ "),
        (false, false) => (0, "─ "),
    };
    let columns = usize::from(area.width).saturating_sub(2 * before);
    let room = columns.saturating_sub(width(more));
    let title = clip(&format!("{mark}{title} "), room);
    let x = area.x + u16::try_from(before).unwrap_or(0);
    put(&title, style, x, area.y, buffer);
    let x = x + u16::try_from(room).unwrap_or(0);
    put(more, app.theme.selected, x, area.y, buffer);
}

/// That not all of the card is on the screen, and which key shows the rest.
fn more(app: &App, below: usize, focused: bool) -> String {
    let keymap = &app.config.keymap;
    let key = match focused {
        true => keymap.hint(Scope::Card, Act::PageDown),
        false => keymap.hint(Scope::Anywhere, Act::FocusCard),
    };
    match below {
        0 => String::new(),
        _ if app.size.width < NARROW => format!(" ↓{below} {key} "),
        _ => format!(" {} more: {key} ", words::count(below as u64, "row")),
    }
}

fn title(app: &App, current: Current<'_>) -> String {
    match current {
        Current::Open(card) => {
            let place = app
                .view
                .gates
                .iter()
                .position(|other| other.gate == card.gate);
            let number = place.map_or(1, |place| place + 1);
            let of = match app.view.open_gate_count() {
                1 => "A command waits".to_owned(),
                all => format!("Gate {number} of {all}"),
            };
            let left = card.remaining_ms(app.now).map(words::countdown);
            let left = left.map(|left| format!(" · {left}")).unwrap_or_default();
            format!("{of} · {}{left}", card.category)
        }
        Current::Closed(_) => match app.view.open_gate_count() {
            0 => "Decided; esc goes back to typing".to_owned(),
            _ => "Decided; down goes to the next".to_owned(),
        },
    }
}

fn keys(app: &App) -> Line<'static> {
    let keymap = &app.config.keymap;
    let mut spans = vec![Span::raw(" ")];
    for (act, word) in [
        (Act::Approve, "approve"),
        (Act::Reject, "reject"),
        (Act::Edit, "edit"),
        (Act::AllowPrefix, "allow prefix"),
        (Act::ApproveAll, "all"),
        (Act::Explain, "explain"),
    ] {
        let key = keymap.hint(Scope::Card, act);
        spans.push(Span::styled(key, app.theme.key));
        spans.push(Span::styled(format!(" {word}  "), app.theme.plain));
    }
    Line::from(spans)
}

/// One row for each card, around the one that is open; gives how many.
fn list(app: &App, area: Rect, buffer: &mut Buffer) -> u16 {
    let count = listed(app).min(usize::from(area.height).saturating_sub(2));
    let open = match app.current() {
        Some(Current::Open(card)) => app.view.gates.iter().position(|it| it.gate == card.gate),
        Some(Current::Closed(_)) | None => None,
    };
    let first = open.unwrap_or(0).saturating_sub(count / 2);
    let first = first.min(app.view.open_gate_count().saturating_sub(count));
    let shown = app.view.gates.iter().enumerate().skip(first).take(count);
    for (y, (index, card)) in shown.enumerate() {
        let line = summary(
            app,
            card,
            index,
            open == Some(index),
            usize::from(area.width),
        );
        row(&line, area, u16::try_from(y).unwrap_or(u16::MAX), buffer);
    }
    u16::try_from(count).unwrap_or(0)
}

fn summary(app: &App, card: &GateCard, index: usize, open: bool, columns: usize) -> Line<'static> {
    let mark = if open { "▶" } else { " " };
    let category = format!("{:<11}", card.category.as_str());
    let votes = format!(" {}/{} ", card.received, card.required);
    let left = card
        .remaining_ms(app.now)
        .map(words::countdown)
        .unwrap_or_default();
    let head = format!("{mark} {:<2} ", index + 1);
    let used = head.chars().count() + category.len() + votes.len() + left.len() + 2;
    let command = clip(
        &one_line(&card.requested.shown),
        columns.saturating_sub(used),
    );
    let text = if open {
        app.theme.strong
    } else {
        app.theme.plain
    };
    Line::from(vec![
        Span::styled(head, text),
        Span::styled(category, app.theme.category(card.category)),
        Span::styled(votes, text),
        Span::styled(format!("{left} "), app.theme.quiet),
        Span::styled(command, text),
    ])
}

/// Draws what would be approved together; gives those that are on the screen whole.
pub(super) fn preflight(
    app: &App,
    list: &Preflight,
    area: Rect,
    buffer: &mut Buffer,
) -> Vec<MessageId> {
    let marked = list.rows.iter().filter(|row| row.marked).count();
    let title = format!(
        "Approve {marked} of {}? enter approves, space leaves one out, esc approves nothing",
        list.rows.len()
    );
    let title = clip(&title, usize::from(area.width).saturating_sub(6));
    let block = boxed(app, title, app.focus == Focus::Main);
    let inner = block.inner(area);
    block.render(area, buffer);
    let columns = usize::from(inner.width).max(1);
    let mut rows = Vec::new();
    let mut ends = Vec::new();
    let mut chosen = 0;
    for (index, choice) in list.rows.iter().enumerate() {
        if index == list.cursor {
            chosen = rows.len();
        }
        let box_ = match (choice.marked, choice.fits) {
            (true, _) => "[x]",
            (false, true) => "[ ]",
            (false, false) => "[-]",
        };
        let cursor = if index == list.cursor { "▶" } else { " " };
        rows.extend(choice_rows(
            app,
            choice,
            &format!("{cursor} {box_}"),
            columns,
        ));
        ends.push(rows.len());
    }
    let visible = usize::from(inner.height);
    let top = chosen.min(rows.len().saturating_sub(visible));
    lines(
        rows.into_iter().skip(top).take(visible).collect(),
        inner,
        buffer,
    );
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let spans = list.rows.iter().zip(starts.zip(&ends));
    let whole = spans.filter(|(_, (start, end))| *start >= top && **end <= top + visible);
    whole.map(|(choice, _)| choice.gate.clone()).collect()
}

fn choice_rows(
    app: &App,
    choice: &crate::app::Choice,
    head: &str,
    columns: usize,
) -> Vec<Line<'static>> {
    let Some(card) = app.view.card(&choice.gate) else {
        let words = format!("{head} decided meanwhile");
        return vec![Line::from(Span::styled(words, app.theme.quiet))];
    };
    let mut head = vec![
        Span::styled(format!("{head} "), app.theme.strong),
        Span::styled(card.category.as_str(), app.theme.category(card.category)),
    ];
    if card.digest != choice.digest {
        head.push(Span::styled(
            " edited meanwhile; it will not be approved",
            app.theme.bad,
        ));
    } else if !choice.fits {
        head.push(Span::styled(
            " too long for this list; decide it on its card",
            app.theme.bad,
        ));
    }
    let mut rows = vec![Line::from(head)];
    if choice.fits {
        for line in card::command(
            &card.requested,
            &app.theme,
            columns.saturating_sub(6).max(1),
        ) {
            let spans = [vec![Span::raw("      ")], line.spans].concat();
            rows.push(Line::from(spans));
        }
    }
    rows
}
