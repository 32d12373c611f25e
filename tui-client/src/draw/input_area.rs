//! Draws the composer or a dialog, and the row of hints below it.

use pvp_client::view::PrefixOffer;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use unicode_segmentation::UnicodeSegmentation;

use super::areas::has_frames;
use super::{bordered_block, draw_row, draw_text, highlight_matches};
use crate::app::{App, CurrentCard, Focus, NoticeLevel};
use crate::completion;
use crate::dialog::Dialog;
use crate::editor::Editor;
use crate::keys::{KeyAction, KeyScope};
use crate::text::{clip, one_line, sanitize, width, wrap};

/// The most rows that a notice takes.
const MAX_NOTICE_ROWS: usize = 3;

/// The most rows of text that are shown at a time.
const MAX_TEXT_ROWS: usize = 8;

fn active_editor(app: &App) -> &Editor {
    match &app.dialog {
        Some(dialog) => dialog.editor(),
        None => &app.composer.editor,
    }
}

fn text_columns(app: &App) -> usize {
    let frame = if has_frames(app.size) { 4 } else { 2 };
    usize::from(app.size.width).saturating_sub(frame).max(1)
}

/// Whether the title is a question to the user, so that it is shown even without a frame.
fn title_is_question(app: &App) -> bool {
    app.dialog.is_some() || app.composer.history.search.is_some()
}

/// Rows that the input area needs to show everything.
pub(super) fn preferred_rows(app: &App) -> u16 {
    let (text, _) = layout_text(active_editor(app), text_columns(app));
    let frame = if has_frames(app.size) { 2 } else { 0 };
    let title = u16::from(!has_frames(app.size) && title_is_question(app));
    let rows = u16::try_from(text.len().clamp(1, MAX_TEXT_ROWS)).unwrap_or(1);
    rows + frame + title + extra_rows(app)
}

/// Rows above the text: waiting shell results, and drafts of others.
fn extra_rows(app: &App) -> u16 {
    u16::from(!app.shell_results.is_empty()) + u16::from(!app.view.drafts.is_empty())
}

/// Breaks a text into rows; returns them with the row and column of the cursor.
fn layout_text(editor: &Editor, columns: usize) -> (Vec<String>, (usize, usize)) {
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
        let shown = sanitize(grapheme);
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
    for line in [result_chips_line(app), drafts_line(app)]
        .into_iter()
        .flatten()
    {
        if area.height > 1 {
            draw_row(&line, area, 0, buffer);
            area = Rect {
                y: area.y + 1,
                height: area.height - 1,
                ..area
            };
        }
    }
    let focused = app.focus == Focus::Composer || app.dialog.is_some();
    let inner = if has_frames(app.size) {
        let label = cursor_row_label(app, usize::from(area.height).saturating_sub(2));
        let taken = width(&label) + 8;
        let title = clip(&title(app), usize::from(area.width).saturating_sub(taken));
        let label = Line::from(Span::styled(label, app.theme.selected));
        let block = bordered_block(app, title, focused).title(label.right_aligned());
        let inside = block.inner(area);
        block.render(area, buffer);
        Rect {
            x: inside.x + 1,
            width: inside.width.saturating_sub(2),
            ..inside
        }
    } else {
        if title_is_question(app) && area.height > 1 {
            let title = Line::from(Span::styled(title(app), app.theme.focused));
            draw_row(&title, area, 0, buffer);
            area = Rect {
                y: area.y + 1,
                height: area.height - 1,
                ..area
            };
        }
        let style = if focused {
            app.theme.focused
        } else {
            app.theme.muted
        };
        draw_text("> ", style, area.x, area.y, buffer);
        Rect {
            x: area.x + 2,
            width: area.width.saturating_sub(2),
            ..area
        }
    };
    draw_editor(app, inner, focused, frame);
}

/// The row of the cursor, if not all of the text is shown; else empty.
fn cursor_row_label(app: &App, height: usize) -> String {
    let (rows, (y, _)) = layout_text(active_editor(app), text_columns(app));
    match rows.len() > height {
        true => format!(" row {} of {} ", y + 1, rows.len()),
        false => String::new(),
    }
}

fn draw_editor(app: &App, area: Rect, focused: bool, frame: &mut Frame<'_>) {
    let (rows, (y, x)) = layout_text(active_editor(app), usize::from(area.width).max(1));
    let search = app.composer.history.search.as_ref();
    let needle = search.map_or("", |search| search.needle.text());
    let height = usize::from(area.height).max(1);
    let top = y.saturating_sub(height - 1);
    for (index, text) in rows.iter().skip(top).take(height).enumerate() {
        let line = Line::from(Span::styled(text.clone(), app.theme.plain));
        let line = highlight_matches(line, needle, app.theme.search_match);
        draw_row(
            &line,
            area,
            u16::try_from(index).unwrap_or(0),
            frame.buffer_mut(),
        );
    }
    if active_editor(app).is_empty() && !title_is_question(app) {
        let hint = "ask the agent, !command, /help";
        draw_text(hint, app.theme.muted, area.x, area.y, frame.buffer_mut());
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
        let changed = dialog.gate_version().and_then(|gate_version| {
            match app.view.card(&gate_version.gate) {
                None => Some(" — decided in the meantime"),
                Some(card) if card.digest != gate_version.digest => {
                    Some(" — edited in the meantime; look again")
                }
                Some(_) => None,
            }
        });
        return format!("{}{}", dialog.title(), changed.unwrap_or_default());
    }
    if let Some(search) = &app.composer.history.search {
        let words = match search.has_no_match() {
            true => "No match in the input history for",
            false => "Input history, matching",
        };
        return format!("{words}: {}", one_line(search.needle.text()));
    }
    let text = app.composer.editor.text();
    if text.starts_with("!!") {
        return "Your own command; the agent gets the result at once".to_owned();
    }
    if text.starts_with('!') {
        return "Your own command; the result goes with your next message".to_owned();
    }
    match app.prompt_recipient() {
        Ok(agent) => format!("To {}", one_line(app.view.display_name(&agent))),
        Err(why) => why,
    }
}

/// The shell results that go with the next prompt.
fn result_chips_line(app: &App) -> Option<Line<'static>> {
    if app.shell_results.is_empty() {
        return None;
    }
    let mut spans = vec![Span::styled(" with your next message: ", app.theme.muted)];
    for result in app.shell_results.iter() {
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

/// The drafts of other participants.
fn drafts_line(app: &App) -> Option<Line<'static>> {
    let draft = |(who, draft): (&pvp_protocol::ParticipantId, &pvp_client::view::DraftView)| {
        let name = one_line(app.view.display_name(who));
        format!("{name} is typing: {}", clip(&one_line(&draft.text), 60))
    };
    let drafts: Vec<_> = app.view.drafts.iter().map(draft).collect();
    let words = format!(" ✎ {}", drafts.join("   "));
    (!drafts.is_empty()).then(|| Line::from(Span::styled(words, app.theme.muted)))
}

/// Draws the completion candidates, or the notice, or the keys that are useful here.
pub(super) fn draw_hints(app: &App, area: Rect, buffer: &mut Buffer) {
    let line = if let Some(completion) = &app.composer.completion {
        let candidates = completion.candidates.iter().enumerate();
        let spans = candidates.flat_map(|(index, candidate)| {
            let chosen = index == completion.selected;
            let style = if chosen {
                app.theme.selected
            } else {
                app.theme.plain
            };
            [Span::styled(one_line(candidate), style), Span::raw("  ")]
        });
        Line::from(spans.collect::<Vec<_>>())
    } else if let Some(notice) = notice_line(app) {
        return draw_notice(notice, area, buffer);
    } else {
        key_hints_line(app)
    };
    draw_row(&line, area, 0, buffer);
}

/// Rows that the hints take: one, unless the notice needs more.
pub(super) fn hint_rows(app: &App) -> u16 {
    let columns = usize::from(app.size.width);
    let rows = match (&app.composer.completion, notice_line(app)) {
        (None, Some(line)) => wrap(&line, columns, 1).len(),
        (Some(_), _) | (None, None) => 1,
    };
    u16::try_from(rows.clamp(1, MAX_NOTICE_ROWS)).unwrap_or(1)
}

fn notice_line(app: &App) -> Option<Line<'static>> {
    let notice = app.notice.as_ref()?;
    let (mark, style) = match notice.level {
        NoticeLevel::Info => ("", app.theme.strong),
        NoticeLevel::Success => ("✓ ", app.theme.success),
        NoticeLevel::Error => ("! ", app.theme.error),
    };
    let words = format!(" {mark}{}", notice.text);
    Some(Line::from(Span::styled(words, style)))
}

/// Draws a notice; the last row is marked if the notice is longer.
fn draw_notice(line: Line<'static>, area: Rect, buffer: &mut Buffer) {
    let rows = wrap(&line, usize::from(area.width), 1);
    let left = rows.len().saturating_sub(usize::from(area.height));
    for (y, mut text) in (0..area.height).zip(rows) {
        if left > 0 && y + 1 == area.height {
            text.push_span("……");
        }
        draw_row(&text, area, y, buffer);
    }
}

fn key_hints_line(app: &App) -> Line<'static> {
    let scope = app.key_scope();
    let hints: &[(KeyScope, KeyAction, &str)] = match scope {
        KeyScope::Composer if completion::is_completable(app.composer.editor.text()) => &[
            (KeyScope::Composer, KeyAction::Send, "send"),
            (KeyScope::Composer, KeyAction::Complete, "complete"),
            (KeyScope::Composer, KeyAction::Recall, "history"),
            (KeyScope::Anywhere, KeyAction::FocusCard, "card"),
            (KeyScope::Anywhere, KeyAction::Keys, "keys"),
        ],
        KeyScope::Composer => &[
            (KeyScope::Composer, KeyAction::Send, "send"),
            (KeyScope::Composer, KeyAction::NewLine, "new line"),
            (KeyScope::Composer, KeyAction::Complete, "card/stream"),
            (KeyScope::Anywhere, KeyAction::ScrollUp, "scroll up"),
            (KeyScope::Anywhere, KeyAction::Keys, "keys"),
            (KeyScope::Anywhere, KeyAction::Quit, "quit"),
        ],
        KeyScope::Recall => &[
            (KeyScope::Recall, KeyAction::Earlier, "earlier"),
            (KeyScope::Recall, KeyAction::Later, "later"),
            (KeyScope::Recall, KeyAction::Confirm, "use"),
            (KeyScope::Recall, KeyAction::Cancel, "cancel"),
        ],
        KeyScope::Card if app.purpose.is_answers() && has_frames(app.size) => &[
            (KeyScope::Card, KeyAction::Down, "next"),
            (KeyScope::Card, KeyAction::PageDown, "scroll"),
            (KeyScope::Card, KeyAction::Compose, "back to the client"),
        ],
        KeyScope::Card if app.purpose.is_answers() => &[
            (KeyScope::Card, KeyAction::Approve, "approve"),
            (KeyScope::Card, KeyAction::Reject, "reject"),
            (KeyScope::Card, KeyAction::PageDown, "more"),
            (KeyScope::Card, KeyAction::Down, "next"),
            (KeyScope::Card, KeyAction::Compose, "back"),
            (KeyScope::Card, KeyAction::Edit, "edit"),
            (KeyScope::Card, KeyAction::Explain, "explain"),
        ],
        // Without a frame the card cannot show its own keys.
        KeyScope::Card if !has_frames(app.size) => &[
            (KeyScope::Card, KeyAction::Approve, "approve"),
            (KeyScope::Card, KeyAction::Reject, "reject"),
            (KeyScope::Card, KeyAction::PageDown, "more"),
            (KeyScope::Card, KeyAction::Down, "next"),
            (KeyScope::Card, KeyAction::Edit, "edit"),
            (KeyScope::Card, KeyAction::AllowPrefix, "allow prefix"),
            (KeyScope::Card, KeyAction::ApproveAll, "all"),
            (KeyScope::Card, KeyAction::Explain, "explain"),
            (KeyScope::Card, KeyAction::Compose, "type"),
            (KeyScope::Card, KeyAction::Keys, "keys"),
        ],
        KeyScope::Card => &[
            (KeyScope::Card, KeyAction::Down, "next"),
            (KeyScope::Card, KeyAction::PageDown, "scroll"),
            (KeyScope::Card, KeyAction::Copy, "copy"),
            (KeyScope::Card, KeyAction::Compose, "type"),
            (KeyScope::Card, KeyAction::Interrupt, "interrupt"),
            (KeyScope::Card, KeyAction::Keys, "keys"),
        ],
        KeyScope::Stream => &[
            (KeyScope::Stream, KeyAction::Up, "select"),
            (KeyScope::Stream, KeyAction::Open, "open"),
            (KeyScope::Stream, KeyAction::Search, "search"),
            (KeyScope::Stream, KeyAction::Copy, "copy"),
            (KeyScope::Stream, KeyAction::Fold, "thinking"),
            (KeyScope::Stream, KeyAction::Bottom, "follow"),
            (KeyScope::Stream, KeyAction::Compose, "type"),
        ],
        KeyScope::Dialog if matches!(app.dialog, Some(Dialog::Interrupt { .. })) => &[
            (KeyScope::Dialog, KeyAction::Confirm, "confirm"),
            (
                KeyScope::Dialog,
                KeyAction::Toggle,
                "pause, stop, emergency",
            ),
            (KeyScope::Dialog, KeyAction::Cancel, "cancel"),
        ],
        KeyScope::Dialog => &[
            (KeyScope::Dialog, KeyAction::Confirm, "confirm"),
            (KeyScope::Dialog, KeyAction::Cancel, "cancel"),
        ],
        KeyScope::Preflight => &[
            (KeyScope::Preflight, KeyAction::Confirm, "approve selected"),
            (KeyScope::Preflight, KeyAction::Toggle, "deselect"),
            (KeyScope::Preflight, KeyAction::Cancel, "cancel"),
        ],
        KeyScope::Page => &[
            (KeyScope::Page, KeyAction::PageDown, "scroll"),
            (KeyScope::Page, KeyAction::Search, "search"),
            (KeyScope::Page, KeyAction::FindNext, "next"),
            (KeyScope::Page, KeyAction::Copy, "copy"),
            (KeyScope::Page, KeyAction::Cancel, "close"),
            (KeyScope::Anywhere, KeyAction::FocusNext, "focus"),
        ],
        KeyScope::Terminal => &[(
            KeyScope::Terminal,
            KeyAction::Cancel,
            "leave; all other keys go to the command",
        )],
        KeyScope::Always | KeyScope::Anywhere | KeyScope::Text => &[],
    };
    let no_prefix = matches!(
        app.current_card(),
        Some(CurrentCard::Open(card)) if card.allow_prefix == PrefixOffer::NotPossible
    );
    let mut line = Line::default();
    for (scope, action, word) in hints {
        if *action == KeyAction::AllowPrefix && no_prefix {
            continue;
        }
        let key = app.config.keymap.first_key(*scope, *action);
        let gap = if line.spans.is_empty() { " " } else { "  " };
        let word = format!(" {word}");
        // A hint that would be cut off is left out; the keys page has them all.
        let wide = line.width() + width(gap) + width(&key) + width(&word);
        if !key.is_empty() && wide <= usize::from(app.size.width) {
            line.push_span(gap);
            line.push_span(Span::styled(key, app.theme.key));
            line.push_span(Span::styled(word, app.theme.muted));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a text, with a bar at the cursor.
    fn rows_with_cursor(text: &str, lefts: usize, columns: usize) -> Vec<String> {
        let mut editor = Editor::new(text);
        (0..lefts).for_each(|_| editor.move_left());
        let (mut rows, (y, x)) = layout_text(&editor, columns);
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
        assert_eq!(rows_with_cursor("", 0, 5), ["|"]);
        assert_eq!(rows_with_cursor("abc", 1, 5), ["ab|c"]);
        assert_eq!(rows_with_cursor("ab\ncd", 2, 5), ["ab", "|cd"]);
        assert_eq!(rows_with_cursor("ab\ncd", 3, 5), ["ab|", "cd"]);
        assert_eq!(rows_with_cursor("abcdefg", 2, 5), ["abcde", "|fg"]);
        assert_eq!(rows_with_cursor("abcdefg", 3, 5), ["abcd|e", "fg"]);
        assert_eq!(rows_with_cursor("世界x", 1, 4), ["世界", "|x"]);
        assert_eq!(rows_with_cursor("a\n", 0, 4), ["a", "|"]);
    }
}
