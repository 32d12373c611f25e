//! The composer or a question, what waits to go with it, and the row of hints.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use unicode_segmentation::UnicodeSegmentation;

use super::areas::framed;
use super::{boxed, highlighted, put, row};
use crate::app::{App, Focus, Tone};
use crate::complete;
use crate::dialog::Dialog;
use crate::editor::Editor;
use crate::keys::{Act, Scope};
use crate::text::{clip, one_line, safe, width, wrap};

/// Rows that something just said may take.
const NOTICE_ROWS: usize = 3;

/// Rows of text that are shown at a time.
const TEXT_ROWS: usize = 8;

fn editor(app: &App) -> &Editor {
    match &app.dialog {
        Some(dialog) => dialog.editor(),
        None => &app.composer.editor,
    }
}

fn columns(app: &App) -> usize {
    let frame = if framed(app.size) { 4 } else { 2 };
    usize::from(app.size.width).saturating_sub(frame).max(1)
}

/// Whether the title is a question, which is shown without a frame too.
fn asks(app: &App) -> bool {
    app.dialog.is_some() || app.composer.recall.search.is_some()
}

/// Rows that it would like to have.
pub(super) fn rows(app: &App) -> u16 {
    let (text, _) = laid_out(editor(app), columns(app));
    let frame = if framed(app.size) { 2 } else { 0 };
    let title = u16::from(!framed(app.size) && asks(app));
    let rows = u16::try_from(text.len().clamp(1, TEXT_ROWS)).unwrap_or(1);
    rows + frame + title + extra(app)
}

/// Rows above the text: results that wait, and what others type.
fn extra(app: &App) -> u16 {
    u16::from(!app.results.is_empty()) + u16::from(!app.view.drafts.is_empty())
}

/// The rows of a text, and where in them the cursor is.
fn laid_out(editor: &Editor, columns: usize) -> (Vec<String>, (usize, usize)) {
    let mut rows = vec![String::new()];
    let mut used = 0;
    let mut at = 0;
    let mut cursor = (0, 0);
    for grapheme in editor.text().graphemes(true) {
        if at == editor.cursor() {
            cursor = (rows.len() - 1, used);
        }
        at += grapheme.len();
        if grapheme == "\n" || grapheme == "\r\n" {
            rows.push(String::new());
            used = 0;
            continue;
        }
        let shown = safe(grapheme);
        let wide = width(&shown);
        if used + wide > columns && used > 0 {
            rows.push(String::new());
            used = 0;
            if cursor.0 + 2 == rows.len() && at - grapheme.len() == editor.cursor() {
                cursor = (rows.len() - 1, 0);
            }
        }
        used += wide;
        if let Some(row) = rows.last_mut() {
            row.push_str(&shown);
        }
    }
    if at == editor.cursor() {
        cursor = (rows.len() - 1, used);
    }
    (rows, cursor)
}

pub(super) fn draw(app: &App, area: Rect, frame: &mut Frame<'_>) {
    let buffer = frame.buffer_mut();
    let mut area = area;
    for line in [chips(app), drafts(app)].into_iter().flatten() {
        if area.height > 1 {
            row(&line, area, 0, buffer);
            area = Rect {
                y: area.y + 1,
                height: area.height - 1,
                ..area
            };
        }
    }
    let focused = app.focus == Focus::Composer || app.dialog.is_some();
    let inner = if framed(app.size) {
        let place = place(app, usize::from(area.height).saturating_sub(2));
        let taken = width(&place) + 8;
        let title = clip(&title(app), usize::from(area.width).saturating_sub(taken));
        let place = Line::from(Span::styled(place, app.theme.selected));
        let block = boxed(app, title, focused).title(place.right_aligned());
        let inside = block.inner(area);
        block.render(area, buffer);
        Rect {
            x: inside.x + 1,
            width: inside.width.saturating_sub(2),
            ..inside
        }
    } else {
        if asks(app) && area.height > 1 {
            let title = Line::from(Span::styled(title(app), app.theme.focused));
            row(&title, area, 0, buffer);
            area = Rect {
                y: area.y + 1,
                height: area.height - 1,
                ..area
            };
        }
        let style = if focused {
            app.theme.focused
        } else {
            app.theme.quiet
        };
        put("> ", style, area.x, area.y, buffer);
        Rect {
            x: area.x + 2,
            width: area.width.saturating_sub(2),
            ..area
        }
    };
    text(app, inner, focused, frame);
}

/// Where in a text the cursor is, if not all of it is shown.
fn place(app: &App, height: usize) -> String {
    let (rows, (y, _)) = laid_out(editor(app), columns(app));
    match rows.len() > height {
        true => format!(" row {} of {} ", y + 1, rows.len()),
        false => String::new(),
    }
}

fn text(app: &App, area: Rect, focused: bool, frame: &mut Frame<'_>) {
    let (rows, (y, x)) = laid_out(editor(app), usize::from(area.width).max(1));
    let search = app.composer.recall.search.as_ref();
    let needle = search.map_or("", |search| search.needle.text());
    let height = usize::from(area.height).max(1);
    let top = y.saturating_sub(height - 1);
    for (index, text) in rows.iter().skip(top).take(height).enumerate() {
        let line = Line::from(Span::styled(text.clone(), app.theme.plain));
        let line = highlighted(line, needle, app.theme.found);
        row(
            &line,
            area,
            u16::try_from(index).unwrap_or(0),
            frame.buffer_mut(),
        );
    }
    if editor(app).is_empty() && !asks(app) {
        let hint = "ask the agent, !command, /help";
        put(hint, app.theme.quiet, area.x, area.y, frame.buffer_mut());
    }
    if focused {
        let column = u16::try_from(x)
            .unwrap_or(u16::MAX)
            .min(area.width.saturating_sub(1));
        let row = u16::try_from(y - top).unwrap_or(0);
        frame.set_cursor_position(Position::new(area.x + column, area.y + row));
    }
}

fn title(app: &App) -> String {
    if let Some(dialog) = &app.dialog {
        let changed = dialog
            .matter()
            .and_then(|matter| match app.view.card(&matter.gate) {
                None => Some(" — decided meanwhile"),
                Some(card) if card.digest != matter.digest => {
                    Some(" — edited meanwhile; look again")
                }
                Some(_) => None,
            });
        return format!("{}{}", dialog.title(), changed.unwrap_or_default());
    }
    if let Some(search) = &app.composer.recall.search {
        let words = match search.failed() {
            true => "Nothing sent before has",
            false => "Sent before, with",
        };
        return format!("{words}: {}", one_line(search.needle.text()));
    }
    let text = app.composer.editor.text();
    if text.starts_with("!!") {
        return "Your command; the agent gets its result at once".to_owned();
    }
    if text.starts_with('!') {
        return "Your command; its result goes with your next message".to_owned();
    }
    match app.addressee() {
        Ok(agent) => format!("To {}", one_line(app.view.display_name(&agent))),
        Err(why) => why,
    }
}

/// Results that go with the next message.
fn chips(app: &App) -> Option<Line<'static>> {
    if app.results.is_empty() {
        return None;
    }
    let mut spans = vec![Span::styled(" with your next message: ", app.theme.quiet)];
    for result in app.results.iter() {
        let code = result
            .exit_code
            .map_or("?".to_owned(), |code| code.to_string());
        let command = clip(&one_line(&result.command_preview), 24);
        spans.push(Span::styled(
            format!("[!{command} → {code}]"),
            app.theme.selected,
        ));
        spans.push(Span::raw(" "));
    }
    Some(Line::from(spans))
}

/// What others are typing.
fn drafts(app: &App) -> Option<Line<'static>> {
    let draft = |(who, draft): (&pvp_protocol::ParticipantId, &pvp_client::view::DraftView)| {
        let name = one_line(app.view.display_name(who));
        format!("{name} types: {}", clip(&one_line(&draft.text), 60))
    };
    let drafts: Vec<_> = app.view.drafts.iter().map(draft).collect();
    let words = format!(" ✎ {}", drafts.join("   "));
    (!drafts.is_empty()).then(|| Line::from(Span::styled(words, app.theme.quiet)))
}

/// What was just done, what completion offers, or which keys do what here.
pub(super) fn hints(app: &App, area: Rect, buffer: &mut Buffer) {
    let line = if let Some(offer) = &app.composer.offer {
        let candidates = offer.candidates.iter().enumerate();
        let spans = candidates.flat_map(|(index, candidate)| {
            let chosen = index == offer.chosen;
            let style = if chosen {
                app.theme.selected
            } else {
                app.theme.plain
            };
            [Span::styled(one_line(candidate), style), Span::raw("  ")]
        });
        Line::from(spans.collect::<Vec<_>>())
    } else if let Some(notice) = notice(app) {
        return said(notice, area, buffer);
    } else {
        keys(app)
    };
    row(&line, area, 0, buffer);
}

/// Rows that the hints take: one, unless what was just said needs more.
pub(super) fn hint_rows(app: &App) -> u16 {
    let columns = usize::from(app.size.width);
    let rows = match (&app.composer.offer, notice(app)) {
        (None, Some(line)) => wrap(&line, columns, 1).len(),
        (Some(_), _) | (None, None) => 1,
    };
    u16::try_from(rows.clamp(1, NOTICE_ROWS)).unwrap_or(1)
}

fn notice(app: &App) -> Option<Line<'static>> {
    let notice = app.notice.as_ref()?;
    let (mark, style) = match notice.tone {
        Tone::Plain => ("", app.theme.strong),
        Tone::Good => ("✓ ", app.theme.good),
        Tone::Bad => ("! ", app.theme.bad),
    };
    let words = format!(" {mark}{}", notice.text);
    Some(Line::from(Span::styled(words, style)))
}

/// Something that was just said; the last row is marked if there was more to say.
fn said(line: Line<'static>, area: Rect, buffer: &mut Buffer) {
    let rows = wrap(&line, usize::from(area.width), 1);
    let left = rows.len().saturating_sub(usize::from(area.height));
    for (y, mut text) in (0..area.height).zip(rows) {
        if left > 0 && y + 1 == area.height {
            text.push_span("……");
        }
        row(&text, area, y, buffer);
    }
}

fn keys(app: &App) -> Line<'static> {
    let scope = app.scope();
    let wanted: &[(Scope, Act, &str)] = match scope {
        Scope::Composer if complete::wanted(app.composer.editor.text()) => &[
            (Scope::Composer, Act::Send, "send"),
            (Scope::Composer, Act::Complete, "complete"),
            (Scope::Composer, Act::Recall, "sent before"),
            (Scope::Anywhere, Act::FocusCard, "card"),
            (Scope::Anywhere, Act::Keys, "keys"),
        ],
        Scope::Composer => &[
            (Scope::Composer, Act::Send, "send"),
            (Scope::Composer, Act::NewLine, "line"),
            (Scope::Composer, Act::Complete, "card/stream"),
            (Scope::Anywhere, Act::ScrollUp, "back"),
            (Scope::Anywhere, Act::Keys, "keys"),
            (Scope::Anywhere, Act::Quit, "quit"),
        ],
        Scope::Recall => &[
            (Scope::Recall, Act::Earlier, "earlier"),
            (Scope::Recall, Act::Later, "later"),
            (Scope::Recall, Act::Confirm, "take it"),
            (Scope::Recall, Act::Cancel, "leave it"),
        ],
        // Without a frame the card has no room of its own for them.
        Scope::Card if !framed(app.size) => &[
            (Scope::Card, Act::Approve, "approve"),
            (Scope::Card, Act::Reject, "reject"),
            (Scope::Card, Act::PageDown, "more"),
            (Scope::Card, Act::Down, "next"),
            (Scope::Card, Act::Edit, "edit"),
            (Scope::Card, Act::AllowPrefix, "allow prefix"),
            (Scope::Card, Act::ApproveAll, "all"),
            (Scope::Card, Act::Explain, "explain"),
            (Scope::Card, Act::Compose, "type"),
            (Scope::Card, Act::Keys, "keys"),
        ],
        Scope::Card => &[
            (Scope::Card, Act::Down, "next"),
            (Scope::Card, Act::PageDown, "read on"),
            (Scope::Card, Act::Copy, "copy"),
            (Scope::Card, Act::Compose, "type"),
            (Scope::Card, Act::Interrupt, "interrupt"),
            (Scope::Card, Act::Keys, "keys"),
        ],
        Scope::Stream => &[
            (Scope::Stream, Act::Up, "select"),
            (Scope::Stream, Act::Open, "open"),
            (Scope::Stream, Act::Search, "search"),
            (Scope::Stream, Act::Copy, "copy"),
            (Scope::Stream, Act::Fold, "thinking"),
            (Scope::Stream, Act::Bottom, "follow"),
            (Scope::Stream, Act::Compose, "type"),
        ],
        Scope::Dialog if matches!(app.dialog, Some(Dialog::Interrupt { .. })) => &[
            (Scope::Dialog, Act::Confirm, "do it"),
            (Scope::Dialog, Act::Toggle, "pause, stop, emergency"),
            (Scope::Dialog, Act::Cancel, "leave it"),
        ],
        Scope::Dialog => &[
            (Scope::Dialog, Act::Confirm, "do it"),
            (Scope::Dialog, Act::Cancel, "leave it"),
        ],
        Scope::Preflight => &[
            (Scope::Preflight, Act::Confirm, "approve those marked"),
            (Scope::Preflight, Act::Toggle, "leave out"),
            (Scope::Preflight, Act::Cancel, "approve nothing"),
        ],
        Scope::Page => &[
            (Scope::Page, Act::PageDown, "on"),
            (Scope::Page, Act::Search, "search"),
            (Scope::Page, Act::FindNext, "next"),
            (Scope::Page, Act::Copy, "copy"),
            (Scope::Page, Act::Cancel, "close"),
            (Scope::Anywhere, Act::FocusNext, "focus"),
        ],
        Scope::Terminal => &[(
            Scope::Terminal,
            Act::Cancel,
            "leave; everything else is for the command",
        )],
        Scope::Always | Scope::Anywhere | Scope::Text => &[],
    };
    let mut line = Line::default();
    for (scope, act, word) in wanted {
        let key = app.config.keymap.hint(*scope, *act);
        let gap = if line.spans.is_empty() { " " } else { "  " };
        let word = format!(" {word}");
        // One that would be cut is left out; the page of keys has them all.
        let wide = line.width() + width(gap) + width(&key) + width(&word);
        if !key.is_empty() && wide <= usize::from(app.size.width) {
            line.push_span(gap);
            line.push_span(Span::styled(key, app.theme.key));
            line.push_span(Span::styled(word, app.theme.quiet));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows, with a bar at the cursor.
    fn shown(text: &str, lefts: usize, columns: usize) -> Vec<String> {
        let mut editor = Editor::new(text);
        (0..lefts).for_each(|_| editor.left());
        let (mut rows, (y, x)) = laid_out(&editor, columns);
        let mut row = String::new();
        let mut used = 0;
        for grapheme in rows[y].graphemes(true) {
            if used == x {
                row.push('|');
            }
            used += width(grapheme);
            row.push_str(grapheme);
        }
        if used == x {
            row.push('|');
        }
        rows[y] = row;
        rows
    }

    #[test]
    fn the_cursor_is_where_the_next_character_goes() {
        assert_eq!(shown("", 0, 5), ["|"]);
        assert_eq!(shown("abc", 1, 5), ["ab|c"]);
        assert_eq!(shown("ab\ncd", 2, 5), ["ab", "|cd"]);
        assert_eq!(shown("ab\ncd", 3, 5), ["ab|", "cd"]);
        assert_eq!(shown("abcdefg", 2, 5), ["abcde", "|fg"]);
        assert_eq!(shown("abcdefg", 3, 5), ["abcd|e", "fg"]);
        assert_eq!(shown("世界x", 1, 4), ["世界", "|x"]);
        assert_eq!(shown("a\n", 0, 4), ["a", "|"]);
    }
}
