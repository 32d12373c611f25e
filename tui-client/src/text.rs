//! Makes text from others fit for the screen: visible, wrapped, and of known width.

use std::borrow::Cow;

use pvp_client::View;
use pvp_client::narrate::{Narrator, NarratorStyle};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Characters that some terminals join with the one before and others do not, so that their width
/// is unknown: keycap frames, halves of flags, skin tones.
const UNSTABLE_WIDTH: &[(char, char)] = &[
    ('\u{20e3}', '\u{20e3}'),
    ('\u{1f1e6}', '\u{1f1ff}'),
    ('\u{1f3fb}', '\u{1f3ff}'),
];

/// Escapes every character that would be invisible, or that would shift the text around it.
pub(crate) fn escape_invisible(text: &str) -> String {
    let unstable = |c: char| {
        UNSTABLE_WIDTH
            .iter()
            .any(|&(from, to)| (from..=to).contains(&c))
    };
    let shown = pvp_client::view::escape_invisible(text);
    if !shown.contains(unstable) {
        return shown;
    }
    let mut escaped = String::with_capacity(shown.len());
    for c in shown.chars() {
        match unstable(c) {
            true => escaped.extend(c.escape_unicode()),
            false => escaped.push(c),
        }
    }
    escaped
}

/// Columns between two tab stops.
pub(crate) const TAB_COLUMNS: usize = 8;

/// The text as visible characters and line feeds only; tabs become spaces.
pub(crate) fn sanitize(text: &str) -> String {
    let shown = escape_invisible(text);
    if !shown.contains('\t') {
        return shown;
    }
    let lines = shown.split('\n').map(expand_tabs);
    lines.collect::<Vec<_>>().join("\n")
}

fn expand_tabs(line: &str) -> String {
    let mut flat = String::with_capacity(line.len());
    for part in line.split_inclusive('\t') {
        let text = part.trim_end_matches('\t');
        flat.push_str(text);
        if text.len() < part.len() {
            let spaces = TAB_COLUMNS - width(&flat) % TAB_COLUMNS;
            flat.extend(std::iter::repeat_n(' ', spaces));
        }
    }
    flat
}

/// The text as visible characters on one line.
pub(crate) fn one_line(text: &str) -> String {
    escape_invisible(text)
        .replace('\n', " ⏎ ")
        .replace('\t', " ")
}

/// Describes what happened in one line each, fit for the screen.
pub(crate) fn narrator(view: &View) -> Narrator<'_> {
    Narrator::new(view, NarratorStyle::Screen, one_line)
}

/// The number of columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The beginning of a text that fits, with an ellipsis if something was cut off.
pub(crate) fn clip(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    match columns.checked_sub(1) {
        Some(room) => format!("{}…", prefix_within(text, room)),
        None => String::new(),
    }
}

/// The beginning of a text that fits.
fn prefix_within(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let fits = |grapheme: &&str| {
        used += width(grapheme);
        used <= columns
    };
    let bytes = text.graphemes(true).take_while(fits).map(str::len).sum();
    &text[..bytes]
}

/// The beginning of a line that fits, with an ellipsis if something was cut off.
pub(crate) fn clip_line<'a>(line: &'a Line<'a>, columns: usize) -> Cow<'a, Line<'a>> {
    if line.width() <= columns {
        return Cow::Borrowed(line);
    }
    let mut room = columns.saturating_sub(1);
    let mut spans = Vec::new();
    for span in &line.spans {
        let kept = prefix_within(&span.content, room);
        room -= width(kept);
        spans.push(Span::styled(kept, span.style));
        if kept.len() < span.content.len() {
            spans.push(Span::styled("…", span.style));
            break;
        }
    }
    Cow::Owned(Line::from(spans).style(line.style))
}

/// Breaks a line into rows that fit, between words if possible; rows after the first begin with
/// `indent` spaces.
pub(crate) fn wrap(line: &Line<'_>, columns: usize, indent: usize) -> Vec<Line<'static>> {
    let columns = columns.max(1);
    let indent = if indent * 2 > columns { 0 } else { indent };
    let mut rows = LineWrapper::new(columns, indent);
    for span in &line.spans {
        let style = line.style.patch(span.style);
        for word in span.content.split_word_bounds() {
            rows.push_word(word, style);
        }
    }
    rows.finish()
}

/// Wraps every line.
pub(crate) fn wrap_all(lines: &[Line<'_>], columns: usize, indent: usize) -> Vec<Line<'static>> {
    let wrapped = lines.iter().flat_map(|line| wrap(line, columns, indent));
    wrapped.collect()
}

struct LineWrapper {
    columns: usize,
    indent: usize,
    rows: Vec<Line<'static>>,
    row: Line<'static>,
    used_columns: usize,
}

impl LineWrapper {
    fn new(columns: usize, indent: usize) -> Self {
        Self {
            columns,
            indent,
            rows: Vec::new(),
            row: Line::default(),
            used_columns: 0,
        }
    }

    fn push_word(&mut self, word: &str, style: Style) {
        // Saturating, because a wide character may be on a row that is too narrow for it.
        let room = self.columns.saturating_sub(self.used_columns);
        let wide = width(word);
        if wide <= room {
            return self.append(word, wide, style);
        }
        if wide <= self.columns - self.indent {
            self.next_row();
            // A space at the end of a row is replaced by the break.
            if word != " " {
                self.append(word, wide, style);
            }
            return;
        }
        for grapheme in word.graphemes(true) {
            let wide = width(grapheme);
            if self.used_columns + wide > self.columns && self.used_columns > 0 {
                self.next_row();
            }
            self.append(grapheme, wide, style);
        }
    }

    fn append(&mut self, text: &str, wide: usize, style: Style) {
        self.used_columns += wide;
        match self.row.spans.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push_str(text),
            Some(_) | None => self.row.spans.push(Span::styled(text.to_owned(), style)),
        }
    }

    fn next_row(&mut self) {
        self.rows.push(std::mem::take(&mut self.row));
        self.used_columns = self.indent;
        if self.indent > 0 {
            self.row.spans.push(Span::raw(" ".repeat(self.indent)));
        }
    }

    fn finish(mut self) -> Vec<Line<'static>> {
        self.rows.push(self.row);
        self.rows
    }
}

/// The text of a line without its styles.
pub(crate) fn line_text(line: &Line<'_>) -> String {
    line.spans
        .iter()
        .map(|span| span.content.as_ref())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, columns: usize, indent: usize) -> Vec<String> {
        let rows = wrap(&Line::from(text.to_owned()), columns, indent);
        rows.iter().map(line_text).collect()
    }

    #[test]
    fn lines_break_between_words_and_long_words_anywhere() {
        assert_eq!(wrapped("one two three", 8, 0), ["one two ", "three"]);
        assert_eq!(wrapped("one two", 3, 0), ["one", "two"]);
        assert_eq!(wrapped("abcdefgh", 3, 0), ["abc", "def", "gh"]);
        assert_eq!(wrapped("one two three", 7, 2), ["one two", "  three"]);
        assert_eq!(wrapped("", 7, 0), [""]);
        assert_eq!(wrapped("世界世界", 3, 0), ["世", "界", "世", "界"]);
        assert_eq!(wrapped("世a界", 1, 0), ["世", "a", "界"]);
    }

    #[test]
    fn no_row_is_too_wide_and_no_character_is_lost() {
        let text = "a bb ccc dddd eeeee ffffff/ggggggg 世界 héé  x";
        for columns in 2..60 {
            let rows = wrapped(text, columns, 0);
            assert!(rows.iter().all(|row| width(row) <= columns), "{rows:?}");
            let letters = |text: &str| text.replace(' ', "");
            assert_eq!(letters(&rows.concat()), letters(text));
        }
    }

    #[test]
    fn tabs_are_as_wide_as_they_look() {
        assert_eq!(sanitize("a\tb\n\tc"), "a       b\n        c");
        assert_eq!(sanitize("\u{1b}]0;x\u{7}"), r"\u{1b}]0;x\u{7}");
        assert_eq!(one_line("a\nb\tc"), "a ⏎ b c");
    }

    #[test]
    fn clipped_text_ends_with_an_ellipsis() {
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(clip("abcd", 3), "ab…");
        assert_eq!(clip("世界世", 4), "世…");
        assert_eq!(clip("abc", 0), "");
        let line = Line::from(vec![Span::raw("ab"), Span::raw("世界"), Span::raw("c")]);
        let clipped: Vec<_> = (0..8)
            .map(|columns| line_text(&clip_line(&line, columns)))
            .collect();
        assert_eq!(
            clipped,
            ["…", "…", "a…", "ab…", "ab…", "ab世…", "ab世…", "ab世界c"]
        );
    }

    #[test]
    fn characters_of_unstable_width_are_escaped() {
        assert_eq!(escape_invisible("é 世界 👍 e\u{301}"), "é 世界 👍 e\u{301}");
        assert_eq!(escape_invisible("🇩🇪"), r"\u{1f1e9}\u{1f1ea}");
        assert_eq!(one_line("👍🏽"), r"👍\u{1f3fd}");
        assert_eq!(sanitize("1\u{20e3}\u{202e}"), r"1\u{20e3}\u{202e}");
    }
}
