//! What a command printed, folded to its beginning and its end, each line marked with its stream.

use pvp_client::view::{OutputChunk, OutputView};
use pvp_protocol::payload::OutputStream;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::ansi;
use crate::theme::Theme;

/// Lines of the beginning and of the end that are shown; the rest is in the pager.
pub(crate) const HEAD_LINES: usize = 6;
pub(crate) const TAIL_LINES: usize = 14;

/// Lines that are shown whole, without folding.
const MAX_UNFOLDED_LINES: usize = HEAD_LINES + TAIL_LINES;

/// Bytes of a piece that are looked at for so few lines, at either end.
const MAX_SCANNED_BYTES: usize = 16 * 1024;

/// The word before each line, for those who do not see colours.
pub(crate) fn stream_label(stream: OutputStream) -> &'static str {
    match stream {
        OutputStream::Stdout => "out│ ",
        OutputStream::Stderr => "err│ ",
    }
}

/// Lines that stand for a command's output; `None` between them is what is folded away.
pub(crate) fn folded_lines(output: &OutputView, theme: &Theme) -> Vec<Option<Line<'static>>> {
    let (mut head, whole) = head_lines(output, theme);
    if whole && head.len() <= MAX_UNFOLDED_LINES {
        return head.into_iter().map(Some).collect();
    }
    head.truncate(HEAD_LINES);
    let head = head.into_iter().map(Some);
    let tail = tail_lines(output, theme).into_iter().map(Some);
    head.chain([None]).chain(tail).collect()
}

/// The first lines, and whether that is everything.
fn head_lines(output: &OutputView, theme: &Theme) -> (Vec<Line<'static>>, bool) {
    let mut lines = Vec::new();
    for piece in output.chunks() {
        let text = first_lines(&piece.text, MAX_UNFOLDED_LINES + 1 - lines.len());
        lines.extend(labelled_lines(piece, text, theme));
        if lines.len() > MAX_UNFOLDED_LINES || text.len() < piece.text.len() {
            return (lines, false);
        }
    }
    (lines, output.dropped_bytes == 0)
}

/// The last lines, read from the end.
fn tail_lines(output: &OutputView, theme: &Theme) -> Vec<Line<'static>> {
    let mut parts: Vec<Vec<Line<'static>>> = Vec::new();
    let mut lines = 0;
    for piece in output.tail.iter().rev().chain(output.head.iter().rev()) {
        let part = labelled_lines(piece, last_lines(&piece.text, TAIL_LINES - lines), theme);
        lines += part.len();
        parts.push(part);
        if lines >= TAIL_LINES {
            break;
        }
    }
    let mut all: Vec<_> = parts.into_iter().rev().flatten().collect();
    all.split_off(all.len().saturating_sub(TAIL_LINES))
}

/// So many lines of the beginning of a text, and not more of it than is worth looking at.
fn first_lines(text: &str, count: usize) -> &str {
    let text = &text[..text.floor_char_boundary(MAX_SCANNED_BYTES)];
    let ends = text.match_indices('\n').nth(count.saturating_sub(1));
    ends.map_or(text, |(at, _)| &text[..=at])
}

/// The same of its end.
fn last_lines(text: &str, count: usize) -> &str {
    let text = &text[text.ceil_char_boundary(text.len().saturating_sub(MAX_SCANNED_BYTES))..];
    let body = text.strip_suffix('\n').unwrap_or(text);
    let ends = body.rmatch_indices('\n').nth(count.saturating_sub(1));
    ends.map_or(text, |(at, _)| &text[at + 1..])
}

fn labelled_lines(piece: &OutputChunk, text: &str, theme: &Theme) -> Vec<Line<'static>> {
    let style = theme.output_stream(piece.stream);
    let mark = Span::styled(stream_label(piece.stream), style);
    let mut lines = Vec::new();
    if piece.missing > 0 {
        let missing = format!("[{} bytes were not told]", piece.missing);
        lines.push(Line::from(vec![
            mark.clone(),
            Span::styled(missing, theme.muted),
        ]));
    }
    for line in ansi::styled_lines(text, Style::new(), theme.palette) {
        let mut spans = vec![mark.clone()];
        spans.extend(line.spans);
        lines.push(Line::from(spans));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_from_either_end() {
        let text = "one\ntwo\nthree\n";
        assert_eq!(first_lines(text, 2), "one\ntwo\n");
        assert_eq!(first_lines(text, 9), text);
        assert_eq!(last_lines(text, 2), "two\nthree\n");
        assert_eq!(last_lines("one\ntwo", 1), "two");
        assert_eq!(last_lines("one", 1), "one");
        let long = "é".repeat(MAX_SCANNED_BYTES);
        assert!(
            first_lines(&long, 1).len() <= MAX_SCANNED_BYTES
                && last_lines(&long, 1).len() <= MAX_SCANNED_BYTES
        );
    }
}
