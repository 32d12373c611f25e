//! What a command printed: its beginning and its end, with stdout and stderr in the order told.

use std::collections::VecDeque;

use pvp_protocol::payload::OutputStream;
use serde::Serialize;

/// Bytes kept of the beginning of a command's output, where the first error tends to stand.
pub const HEAD_BYTES: usize = 32 * 1024;

/// Bytes kept of its end: more than a screen scrolls back to; the rest is read by reference.
pub const TAIL_BYTES: usize = 96 * 1024;

/// Most pieces in either part; streams that alternate byte by byte make one of each byte.
pub const PIECES: usize = 2048;

/// Some text of one stream, as it stands among the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Piece {
    pub stream: OutputStream,
    /// Where the text begins in its stream, in bytes.
    pub offset: u64,
    /// Bytes just before it that were never told.
    pub missing: u64,
    pub text: String,
}

/// How much of one stream there was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StreamTotal {
    /// Bytes up to the last that was told, those that were missing included.
    pub bytes: u64,
    /// Lines begun, in what was told.
    pub lines: u64,
    /// Bytes that were never told.
    pub missing: u64,
    /// No more will come.
    pub complete: bool,
    #[serde(skip)]
    mid_line: bool,
}

impl StreamTotal {
    fn count(&mut self, text: &str) {
        let ends = text.bytes().filter(|&byte| byte == b'\n').count() as u64;
        let open = !text.ends_with('\n');
        let lines = self.lines + ends + u64::from(open);
        self.lines = lines - u64::from(self.mid_line);
        self.mid_line = open;
    }
}

/// What a command printed, as much of it as is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Output {
    pub stdout: StreamTotal,
    pub stderr: StreamTotal,
    /// The beginning.
    pub head: Vec<Piece>,
    /// Bytes between beginning and end that are not kept.
    pub dropped_bytes: u64,
    /// The end.
    pub tail: VecDeque<Piece>,
    #[serde(skip)]
    head_bytes: usize,
    #[serde(skip)]
    tail_bytes: usize,
}

impl Output {
    /// Everything that is kept, in order. Between head and tail, `dropped_bytes` may be missing.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.head.iter().chain(&self.tail)
    }

    /// The kept text of one stream.
    pub fn text(&self, stream: OutputStream) -> String {
        let of_stream = self.pieces().filter(|piece| piece.stream == stream);
        of_stream.map(|piece| piece.text.as_str()).collect()
    }

    /// How much of one stream there was.
    pub fn total(&self, stream: OutputStream) -> StreamTotal {
        match stream {
            OutputStream::Stdout => self.stdout,
            OutputStream::Stderr => self.stderr,
        }
    }

    fn total_mut(&mut self, stream: OutputStream) -> &mut StreamTotal {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    pub(super) fn complete(&mut self, stream: OutputStream) {
        self.total_mut(stream).complete = true;
    }

    /// Takes text that stands at this offset of its stream, or goes on where it stopped.
    pub(super) fn take(&mut self, stream: OutputStream, offset: Option<u64>, text: &str) {
        let total = self.total_mut(stream);
        let offset = offset.unwrap_or(total.bytes);
        let Some(text_from) = fresh_from(text, total.bytes.saturating_sub(offset)) else {
            return;
        };
        let text = &text[text_from..];
        let start = offset.saturating_add(text_from as u64);
        let missing = start.saturating_sub(total.bytes);
        total.missing = total.missing.saturating_add(missing);
        total.bytes = start.saturating_add(text.len() as u64);
        total.count(text);
        self.push(stream, start, missing, text);
    }

    fn push(&mut self, stream: OutputStream, offset: u64, missing: u64, text: &str) {
        let at_head = self.tail.is_empty() && self.dropped_bytes == 0 && self.head.len() < PIECES;
        let room = if at_head {
            HEAD_BYTES - self.head_bytes
        } else {
            0
        };
        let (first, rest) = text.split_at(text.floor_char_boundary(room));
        let piece = |offset, missing, text: &str| Piece {
            stream,
            offset,
            missing,
            text: text.to_owned(),
        };
        if !first.is_empty() {
            self.head_bytes += first.len();
            let piece = piece(offset, missing, first);
            if let Some(piece) = joined(self.head.last_mut(), piece) {
                self.head.push(piece);
            }
        }
        if !rest.is_empty() {
            let missing = if first.is_empty() { missing } else { 0 };
            self.tail_bytes += rest.len();
            let piece = piece(offset.saturating_add(first.len() as u64), missing, rest);
            if let Some(piece) = joined(self.tail.back_mut(), piece) {
                self.tail.push_back(piece);
            }
            self.trim();
        }
    }

    /// Lets go of the oldest of the tail until what is left is small enough.
    fn trim(&mut self) {
        while self.tail_bytes > TAIL_BYTES || self.tail.len() > PIECES {
            let over = self.tail_bytes.saturating_sub(TAIL_BYTES);
            let Some(front) = self.tail.front_mut() else {
                return;
            };
            // Too many pieces and not too many bytes: the oldest goes whole.
            let cut = match over {
                0 => front.text.len(),
                over => front.text.ceil_char_boundary(over),
            };
            self.tail_bytes -= cut;
            self.dropped_bytes = self.dropped_bytes.saturating_add(cut as u64);
            if cut == front.text.len() {
                self.tail.pop_front();
            } else {
                front.text.drain(..cut);
                front.offset = front.offset.saturating_add(cut as u64);
                front.missing = 0;
            }
        }
    }
}

/// Where the part of a text begins that was not told before; `None` if all of it was.
fn fresh_from(text: &str, known: u64) -> Option<usize> {
    let known = usize::try_from(known).unwrap_or(usize::MAX);
    let from = text.ceil_char_boundary(known.min(text.len()));
    (from < text.len()).then_some(from)
}

/// Joins a piece to the one before it if it goes on where that stops; else gives it back.
fn joined(last: Option<&mut Piece>, piece: Piece) -> Option<Piece> {
    match last {
        Some(last) if last.stream == piece.stream && piece.missing == 0 => {
            last.text.push_str(&piece.text);
            None
        }
        Some(_) | None => Some(piece),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OutputStream::{Stderr, Stdout};

    fn lines(output: &Output) -> Vec<String> {
        let word = |piece: &Piece| match piece.stream {
            Stdout => "out",
            Stderr => "err",
        };
        let line = |piece: &Piece| {
            let Piece {
                offset,
                missing,
                text,
                ..
            } = piece;
            format!("{} {offset} {missing} {text}", word(piece))
        };
        output.pieces().map(line).collect()
    }

    #[test]
    fn streams_interleave_as_told_and_go_on_where_they_stopped() {
        let mut output = Output::default();
        output.take(Stdout, Some(0), "a");
        output.take(Stdout, Some(1), "é\n");
        output.take(Stderr, Some(0), "oops");
        output.take(Stdout, None, "b");
        assert_eq!(
            lines(&output),
            ["out 0 0 aé\n", "err 0 0 oops", "out 4 0 b"]
        );
        assert_eq!((output.stdout.bytes, output.stdout.lines), (5, 2));
        assert_eq!(output.text(Stdout), "aé\nb");
    }

    #[test]
    fn what_was_told_before_is_dropped_and_what_is_missing_is_marked() {
        let mut output = Output::default();
        output.take(Stdout, Some(0), "abc");
        output.take(Stdout, Some(0), "abc");
        output.take(Stdout, Some(1), "bcd");
        output.take(Stdout, Some(10), "xyz");
        output.take(Stdout, Some(2), "");
        assert_eq!(lines(&output), ["out 0 0 abcd", "out 10 6 xyz"]);
        assert_eq!((output.stdout.bytes, output.stdout.missing), (13, 6));
    }

    #[test]
    fn an_overlap_inside_a_character_loses_the_character_and_no_more() {
        let mut output = Output::default();
        output.take(Stdout, Some(0), "ab");
        output.take(Stdout, Some(1), "éx");
        assert_eq!(lines(&output), ["out 0 0 ab", "out 3 1 x"]);
    }

    #[test]
    fn lines_are_counted_once_however_they_are_cut() {
        let text = "one\ntwo\n\nfour";
        for size in 1..text.len() {
            let mut output = Output::default();
            for chunk in text.as_bytes().chunks(size) {
                output.take(Stdout, None, std::str::from_utf8(chunk).unwrap());
            }
            assert_eq!(output.stdout.lines, 4, "in pieces of {size}");
        }
    }

    #[test]
    fn of_much_output_the_beginning_and_the_end_are_kept() {
        let mut output = Output::default();
        let most = HEAD_BYTES + TAIL_BYTES;
        for number in 0..40_000 {
            output.take(Stdout, None, &format!("{number} é\n"));
        }
        let kept: usize = output.pieces().map(|piece| piece.text.len()).sum();
        assert!(kept <= most && kept > most - 8, "{kept}");
        assert_eq!(output.stdout.bytes, output.dropped_bytes + kept as u64);
        assert!(output.head[0].text.starts_with("0 é\n1 é\n"));
        assert!(output.tail[0].text.ends_with("39999 é\n"));
        let after = output.tail[0].offset - output.head[0].text.len() as u64;
        assert_eq!(after, output.dropped_bytes);
    }

    #[test]
    fn streams_that_alternate_byte_by_byte_are_held_to_so_many_pieces() {
        let mut output = Output::default();
        for _ in 0..10_000 {
            output.take(Stdout, None, "a");
            output.take(Stderr, None, "b");
        }
        assert_eq!((output.head.len(), output.tail.len()), (PIECES, PIECES));
        assert_eq!(output.dropped_bytes, 20_000 - 2 * PIECES as u64);
        assert_eq!(output.tail_bytes, PIECES);
    }

    #[test]
    fn one_text_larger_than_everything_is_cut_in_the_middle() {
        let mut output = Output::default();
        output.take(Stderr, None, &"é".repeat(400_000));
        assert_eq!(output.head[0].text.len(), HEAD_BYTES);
        assert_eq!(output.tail[0].text.len(), TAIL_BYTES);
        assert_eq!(output.stderr.bytes, 800_000);
    }

    #[test]
    fn offsets_at_the_end_of_the_world_do_no_harm() {
        let mut output = Output::default();
        output.take(Stdout, Some(u64::MAX), "abc");
        output.take(Stdout, Some(u64::MAX - 1), "abc");
        output.take(Stdout, None, "abc");
        assert_eq!(output.stdout.bytes, u64::MAX);
    }
}
