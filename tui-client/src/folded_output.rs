//! Folds a command's output to its first and last lines, each labelled with its stream.

use pvp_client::view::{OutputChunk, OutputView};
use pvp_protocol::payload::OutputStream;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::ansi;
use crate::theme::Theme;

/// Lines shown from the beginning; the pager shows the rest.
pub(crate) const HEAD_LINES: usize = 6;
/// Lines shown from the end.
pub(crate) const TAIL_LINES: usize = 14;

/// The most lines that are shown without folding.
const MAX_UNFOLDED_LINES: usize = HEAD_LINES + TAIL_LINES;

/// Bytes scanned for lines at either end of a chunk; more is never needed for so few lines.
const MAX_SCANNED_BYTES: usize = 16 * 1024;

/// The label before each line, for those who do not see colours.
pub(crate) fn stream_label(stream: OutputStream) -> &'static str {
    match stream {
        OutputStream::Stdout => "out│ ",
        OutputStream::Stderr => "err│ ",
    }
}

/// The lines to show of a command's output; `None` stands for those that are folded away.
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

/// The first lines, and whether they are all there are.
fn head_lines(output: &OutputView, theme: &Theme) -> (Vec<Line<'static>>, bool) {
    let mut lines = Vec::new();
    for chunk in output.chunks() {
        let text = first_lines(&chunk.text, MAX_UNFOLDED_LINES + 1 - lines.len());
        lines.extend(labelled_lines(chunk, text, theme));
        if lines.len() > MAX_UNFOLDED_LINES || text.len() < chunk.text.len() {
            return (lines, false);
        }
    }
    (lines, output.dropped_bytes == 0)
}

/// The last lines, read from the end.
fn tail_lines(output: &OutputView, theme: &Theme) -> Vec<Line<'static>> {
    let mut parts: Vec<Vec<Line<'static>>> = Vec::new();
    let mut lines = 0;
    for chunk in output.tail.iter().rev().chain(output.head.iter().rev()) {
        let part = labelled_lines(chunk, last_lines(&chunk.text, TAIL_LINES - lines), theme);
        lines += part.len();
        parts.push(part);
        if lines >= TAIL_LINES {
            break;
        }
    }
    let mut all: Vec<_> = parts.into_iter().rev().flatten().collect();
    all.split_off(all.len().saturating_sub(TAIL_LINES))
}

/// The first `count` lines of a text, within the bytes that are scanned.
fn first_lines(text: &str, count: usize) -> &str {
    let text = &text[..text.floor_char_boundary(MAX_SCANNED_BYTES)];
    let ends = text.match_indices('\n').nth(count.saturating_sub(1));
    ends.map_or(text, |(at, _)| &text[..=at])
}

/// The last `count` lines of a text, within the bytes that are scanned.
fn last_lines(text: &str, count: usize) -> &str {
    let text = &text[text.ceil_char_boundary(text.len().saturating_sub(MAX_SCANNED_BYTES))..];
    let body = text.strip_suffix('\n').unwrap_or(text);
    let ends = body.rmatch_indices('\n').nth(count.saturating_sub(1));
    ends.map_or(text, |(at, _)| &text[at + 1..])
}

fn labelled_lines(chunk: &OutputChunk, text: &str, theme: &Theme) -> Vec<Line<'static>> {
    let style = theme.output_stream(chunk.stream);
    let mark = Span::styled(stream_label(chunk.stream), style);
    let mut lines = Vec::new();
    if chunk.missing > 0 {
        let missing = format!("[{} bytes missing]", chunk.missing);
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
