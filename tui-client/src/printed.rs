//! What a command printed, folded to its beginning and its end, each line marked with its stream.

use pvp_client::view::{Output, Piece};
use pvp_protocol::payload::Stream;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::ansi;
use crate::theme::Theme;

/// Lines of the beginning and of the end that are shown; the rest is in the pager.
pub(crate) const HEAD_LINES: usize = 6;
pub(crate) const TAIL_LINES: usize = 14;

/// Bytes that are looked at for so few lines, at either end.
const LOOK: usize = 16 * 1024;

/// The word before each line, for those who do not see colours.
pub(crate) fn mark(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "out│ ",
        Stream::Stderr => "err│ ",
    }
}

/// Lines that stand for a command's output; `None` between them is what is folded away.
pub(crate) fn folded(output: &Output, theme: &Theme) -> Vec<Option<Line<'static>>> {
    let mut lines = Vec::new();
    let whole = output.dropped_bytes == 0;
    let kept: usize = output.pieces().map(|piece| piece.text.len()).sum();
    if whole && kept <= LOOK {
        let all = output
            .pieces()
            .flat_map(|piece| marked(piece, &piece.text, theme));
        lines.extend(all);
        if lines.len() <= HEAD_LINES + TAIL_LINES {
            return lines.into_iter().map(Some).collect();
        }
        let tail = lines.split_off(lines.len() - TAIL_LINES);
        lines.truncate(HEAD_LINES);
        return fold(lines, tail);
    }
    let mut room = LOOK;
    for piece in output.pieces() {
        let text = &piece.text[..piece.text.floor_char_boundary(room)];
        room -= text.len();
        lines.extend(marked(piece, text, theme));
        if room == 0 || lines.len() > HEAD_LINES || text.len() < piece.text.len() {
            break;
        }
    }
    lines.truncate(HEAD_LINES);
    fold(lines, ending(output, theme))
}

fn fold(head: Vec<Line<'static>>, tail: Vec<Line<'static>>) -> Vec<Option<Line<'static>>> {
    let head = head.into_iter().map(Some);
    head.chain([None])
        .chain(tail.into_iter().map(Some))
        .collect()
}

/// The last lines, read from the end.
fn ending(output: &Output, theme: &Theme) -> Vec<Line<'static>> {
    let pieces: Vec<&Piece> = output.pieces().collect();
    let mut parts: Vec<Vec<Line<'static>>> = Vec::new();
    let mut room = LOOK;
    let mut lines = 0;
    for piece in pieces.into_iter().rev() {
        let start = piece.text.len().saturating_sub(room);
        let text = &piece.text[piece.text.ceil_char_boundary(start)..];
        room -= text.len().min(room);
        let part = marked(piece, text, theme);
        lines += part.len();
        parts.push(part);
        if lines > TAIL_LINES || room == 0 {
            break;
        }
    }
    let mut all: Vec<_> = parts.into_iter().rev().flatten().collect();
    all.split_off(all.len().saturating_sub(TAIL_LINES))
}

fn marked(piece: &Piece, text: &str, theme: &Theme) -> Vec<Line<'static>> {
    let style = theme.stream(piece.stream);
    let mark = Span::styled(mark(piece.stream), style);
    let mut lines = Vec::new();
    if piece.missing > 0 {
        let missing = format!("[{} bytes were not told]", piece.missing);
        lines.push(Line::from(vec![
            mark.clone(),
            Span::styled(missing, theme.quiet),
        ]));
    }
    for line in ansi::lines(text, Style::new(), theme.palette) {
        let mut spans = vec![mark.clone()];
        spans.extend(line.spans);
        lines.push(Line::from(spans));
    }
    lines
}
