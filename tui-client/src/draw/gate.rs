//! Draws the gate card with the list of open gates, and the preflight list.

use pvp_client::narrate;
use pvp_client::view::{GateCard, PrefixOffer};
use pvp_protocol::{Digest, MessageId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::areas::has_frames;
use super::{areas, bordered_block, draw_lines, draw_row, draw_text};
use crate::app::{App, CurrentCard, Focus, Preflight};
use crate::call_rows::CallFold;
use crate::gate_card::{self, CardRows};
use crate::keys::{KeyAction, KeyScope};
use crate::text::{clip, one_line, width};

/// With fewer columns than this, hints are shorter.
const NARROW_COLUMNS: u16 = 48;

/// The most rows of the list of open gates.
const MAX_LIST_ROWS: usize = 4;

/// The rows of a tool call below its headline that a card shows: a share of the screen, but
/// not fewer and not more than these.
const MIN_CALL_ROWS: usize = 3;
const MAX_CALL_ROWS: usize = 40;

/// Rows that the card needs to show everything.
pub(super) fn preferred_rows(app: &App) -> u16 {
    let Some(current) = app.current_card() else {
        return 0;
    };
    let columns = inner_columns(app);
    let frame = if has_frames(app.size) { 2 } else { 1 };
    let rows = card_rows(app, current, columns).rows.len() + list_row_count(app) + frame;
    u16::try_from(rows).unwrap_or(u16::MAX)
}

fn inner_columns(app: &App) -> usize {
    let frame = if has_frames(app.size) { 4 } else { 0 };
    usize::from(app.size.width).saturating_sub(frame).max(1)
}

/// Rows of the list of open gates; none if the card shows the only one.
fn list_row_count(app: &App) -> usize {
    let closed = matches!(app.current_card(), Some(CurrentCard::Closed(_)));
    let open = app.waiting_cards().count();
    let rows = if open > 1 || (closed && open > 0) {
        open
    } else {
        0
    };
    rows.min(if has_frames(app.size) {
        MAX_LIST_ROWS
    } else {
        2
    })
}

/// The rows of a tool call that a card shows; a card that has the screen to itself shows more.
fn call_rows_shown(app: &App) -> usize {
    let share = match app.purpose.is_answers() {
        true => app.size.height / 2,
        false => app.size.height / 4,
    };
    usize::from(share).clamp(MIN_CALL_ROWS, MAX_CALL_ROWS)
}

fn card_rows(app: &App, current: CurrentCard<'_>, columns: usize) -> CardRows {
    match current {
        CurrentCard::Open(card) => {
            let fold = CallFold {
                max_rows: call_rows_shown(app),
                key: app
                    .config
                    .keymap
                    .first_key(KeyScope::Card, KeyAction::Explain),
            };
            let (view, theme) = (&app.view, &app.theme);
            let mut rows =
                gate_card::open_gate_rows(card, view, app.now, theme, columns, Some(&fold));
            if let Some(words) = app.card_state.pending_votes.get(&card.gate) {
                rows.rows
                    .push(Line::from(Span::styled(*words, app.theme.warning)));
            }
            rows
        }
        CurrentCard::Closed(resolved) => {
            let at = app.config.time_zone.time_of_day(resolved.resolution.at);
            gate_card::closed_gate_rows(resolved, &at, &app.view, &app.theme, columns)
        }
    }
}

/// Rows of the card that are on the screen at a time.
pub(crate) fn visible_card_rows(app: &App) -> usize {
    let frame = if has_frames(app.size) { 2 } else { 1 };
    let height = usize::from(areas(app).card.height);
    height.saturating_sub(frame + list_row_count(app)).max(1)
}

/// Draws the card; returns its gate and digest if it is open, and whether the end of its command
/// is on the screen.
pub(super) fn draw(
    app: &App,
    area: Rect,
    buffer: &mut Buffer,
) -> (Option<(MessageId, Digest)>, bool) {
    let Some(current) = app.current_card() else {
        return (None, false);
    };
    let focused = app.focus == Focus::Card && app.dialog.is_none();
    let inner = if has_frames(app.size) {
        let mut block = bordered_block(app, String::new(), focused);
        if let (CurrentCard::Open(card), None) = (current, &app.dialog) {
            block = block.title_bottom(key_hints_line(app, card, focused));
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
    let listed = draw_list(app, inner, buffer);
    let rest = Rect {
        y: inner.y + listed,
        height: inner.height.saturating_sub(listed),
        ..inner
    };
    let CardRows {
        rows,
        command_row_count: command,
        folded_lines,
    } = card_rows(app, current, usize::from(rest.width).max(1));
    let visible = usize::from(rest.height);
    let scroll = app
        .card_state
        .scroll_rows
        .min(rows.len().saturating_sub(visible));
    let below = rows.len().saturating_sub(scroll + visible);
    draw_lines(
        rows.into_iter().skip(scroll).take(visible).collect(),
        rest,
        buffer,
    );
    let more = more_rows_hint(app, below, focused);
    draw_title_row(app, &title(app, current), &more, focused, area, buffer);
    match current {
        CurrentCard::Open(card) => {
            let whole = visible > 0 && command <= scroll + visible && folded_lines == 0;
            (Some((card.gate.clone(), card.digest)), whole)
        }
        CurrentCard::Closed(_) => (None, false),
    }
}

/// Draws the first row: the title, and a hint if there are more rows below.
fn draw_title_row(
    app: &App,
    title: &str,
    more: &str,
    focused: bool,
    area: Rect,
    buffer: &mut Buffer,
) {
    let style = match (focused, has_frames(app.size)) {
        (true, _) => app.theme.focused,
        (false, true) => app.theme.unfocused,
        (false, false) => app.theme.warning,
    };
    let (before, mark) = match (has_frames(app.size), focused) {
        (true, true) => (1, " ▶ "),
        (true, false) => (1, " "),
        (false, true) => (0, "▶ "),
        (false, false) => (0, "─ "),
    };
    let columns = usize::from(area.width).saturating_sub(2 * before);
    let room = columns.saturating_sub(width(more));
    let title = clip(&format!("{mark}{title} "), room);
    let x = area.x + u16::try_from(before).unwrap_or(0);
    draw_text(&title, style, x, area.y, buffer);
    let x = x + u16::try_from(room).unwrap_or(0);
    draw_text(more, app.theme.selected, x, area.y, buffer);
}

/// Says how many rows are below the visible ones and which key shows them; empty if none are.
fn more_rows_hint(app: &App, below: usize, focused: bool) -> String {
    let keymap = &app.config.keymap;
    let key = match focused {
        true => keymap.first_key(KeyScope::Card, KeyAction::PageDown),
        false => keymap.first_key(KeyScope::Anywhere, KeyAction::FocusCard),
    };
    match below {
        0 => String::new(),
        _ if app.size.width < NARROW_COLUMNS => format!(" ↓{below} {key} "),
        _ => format!(" {} more: {key} ", narrate::pluralize(below as u64, "row")),
    }
}

fn title(app: &App, current: CurrentCard<'_>) -> String {
    match current {
        CurrentCard::Open(card) => {
            let index = app
                .waiting_cards()
                .position(|other| other.gate == card.gate);
            let number = index.map_or(1, |index| index + 1);
            let of = match app.waiting_cards().count() {
                1 => "Waiting for a decision".to_owned(),
                all => format!("Waiting {number} of {all}"),
            };
            let id = card.proposal.short();
            let left = card.remaining_ms(app.now).map(narrate::countdown);
            let left = left.map(|left| format!(" · {left}")).unwrap_or_default();
            format!("{of} · {id} · {}{left}", card.category_label())
        }
        CurrentCard::Closed(_) => {
            let back = match app.purpose.is_answers() {
                true => "client",
                false => "input",
            };
            match app.waiting_cards().count() {
                0 => format!("Decided; esc returns to the {back}"),
                _ => "Decided; down selects the next".to_owned(),
            }
        }
    }
}

/// The keys of the card, and before them the key that takes the focus there.
fn key_hints_line(app: &App, card: &GateCard, focused: bool) -> Line<'static> {
    let keymap = &app.config.keymap;
    let mut spans = vec![Span::raw(" ")];
    if !focused {
        spans.push(Span::styled(focus_key(app), app.theme.key));
        spans.push(Span::styled(", then ", app.theme.muted));
    }
    let answers = app.purpose.is_answers();
    let has_prefix = !answers && card.allow_prefix != PrefixOffer::NotPossible;
    let has_directory = !answers && !card.requested.needed_read_roots().is_empty();
    // A card is as narrow as 80 columns.
    let prefix = if has_directory || !focused {
        "prefix"
    } else {
        "allow prefix"
    };
    for (action, word, possible) in [
        (KeyAction::Approve, "approve", true),
        (KeyAction::Reject, "reject", true),
        (KeyAction::Edit, "edit", card.requested.call.is_none()),
        (KeyAction::AllowPrefix, prefix, has_prefix),
        (KeyAction::ApproveAll, "all", !answers),
        (KeyAction::Explain, "explain", true),
        (KeyAction::AllowReading, "allow reading", has_directory),
    ] {
        if possible {
            let key = keymap.first_key(KeyScope::Card, action);
            spans.push(Span::styled(key, app.theme.key));
            spans.push(Span::styled(format!(" {word}  "), app.theme.plain));
        }
    }
    Line::from(spans)
}

/// The key that takes the focus to the card from where it is.
fn focus_key(app: &App) -> String {
    let keymap = &app.config.keymap;
    let typing = app.focus == Focus::Composer && app.composer.editor.is_empty();
    match typing {
        true => keymap.first_key(KeyScope::Composer, KeyAction::Complete),
        false => keymap.first_key(KeyScope::Anywhere, KeyAction::FocusCard),
    }
}

/// Draws one row for each gate, around the current one; returns how many.
fn draw_list(app: &App, area: Rect, buffer: &mut Buffer) -> u16 {
    let count = list_row_count(app).min(usize::from(area.height).saturating_sub(2));
    let open = match app.current_card() {
        Some(CurrentCard::Open(card)) => app.waiting_cards().position(|it| it.gate == card.gate),
        Some(CurrentCard::Closed(_)) | None => None,
    };
    let first = open.unwrap_or(0).saturating_sub(count / 2);
    let first = first.min(app.waiting_cards().count().saturating_sub(count));
    let shown = app.waiting_cards().enumerate().skip(first).take(count);
    for (y, (index, card)) in shown.enumerate() {
        let line = summary_line(
            app,
            card,
            index,
            open == Some(index),
            usize::from(area.width),
        );
        draw_row(&line, area, u16::try_from(y).unwrap_or(u16::MAX), buffer);
    }
    u16::try_from(count).unwrap_or(0)
}

fn summary_line(
    app: &App,
    card: &GateCard,
    index: usize,
    open: bool,
    columns: usize,
) -> Line<'static> {
    let mark = if open { "▶" } else { " " };
    let category = format!("{:<11}", card.category_label());
    let votes = format!(" {}/{} ", card.received, card.required);
    let left = card
        .remaining_ms(app.now)
        .map(narrate::countdown)
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
        Span::styled(format!("{left} "), app.theme.muted),
        Span::styled(command, text),
    ])
}

/// Draws the preflight list; returns the gates that are completely on the screen.
pub(super) fn draw_preflight(
    app: &App,
    list: &Preflight,
    area: Rect,
    buffer: &mut Buffer,
) -> Vec<MessageId> {
    let marked = list.items.iter().filter(|row| row.marked).count();
    let title = format!(
        "Approve {marked} of {}? enter approves, space deselects one, esc cancels",
        list.items.len()
    );
    let title = clip(&title, usize::from(area.width).saturating_sub(6));
    let block = bordered_block(app, title, app.focus == Focus::Main);
    let inner = block.inner(area);
    block.render(area, buffer);
    let columns = usize::from(inner.width).max(1);
    let mut rows = Vec::new();
    let mut ends = Vec::new();
    let mut chosen = 0;
    for (index, choice) in list.items.iter().enumerate() {
        if index == list.cursor {
            chosen = rows.len();
        }
        let checkbox = match (choice.marked, choice.fits_screen) {
            (true, _) => "[x]",
            (false, true) => "[ ]",
            (false, false) => "[-]",
        };
        let cursor = if index == list.cursor { "▶" } else { " " };
        rows.extend(preflight_item_rows(
            app,
            choice,
            &format!("{cursor} {checkbox}"),
            columns,
        ));
        ends.push(rows.len());
    }
    let visible = usize::from(inner.height);
    let top = chosen.min(rows.len().saturating_sub(visible));
    draw_lines(
        rows.into_iter().skip(top).take(visible).collect(),
        inner,
        buffer,
    );
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let spans = list.items.iter().zip(starts.zip(&ends));
    let whole = spans.filter(|(_, (start, end))| *start >= top && **end <= top + visible);
    whole.map(|(choice, _)| choice.gate.clone()).collect()
}

fn preflight_item_rows(
    app: &App,
    choice: &crate::app::PreflightItem,
    head: &str,
    columns: usize,
) -> Vec<Line<'static>> {
    let Some(card) = app.view.card(&choice.gate) else {
        let words = format!("{head} decided in the meantime");
        return vec![Line::from(Span::styled(words, app.theme.muted))];
    };
    let mut head = vec![
        Span::styled(format!("{head} "), app.theme.strong),
        Span::styled(card.category_label(), app.theme.category(card.category)),
    ];
    if card.digest != choice.digest {
        head.push(Span::styled(
            " edited in the meantime; it will not be approved",
            app.theme.error,
        ));
    } else if !choice.fits_screen {
        head.push(Span::styled(
            " too long for this list; decide it on its card",
            app.theme.error,
        ));
    }
    let mut rows = vec![Line::from(head)];
    if choice.fits_screen {
        for line in gate_card::command_rows(
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
