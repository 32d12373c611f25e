//! A command's output: its beginning and its end, with stdout and stderr in the order received.

use std::collections::VecDeque;

use pvp_protocol::payload::OutputStream;
use serde::Serialize;

/// Bytes kept from the beginning of a command's output, where the first error tends to be.
pub const OUTPUT_HEAD_BYTES: usize = 32 * 1024;

/// Bytes kept from its end: more than a person scrolls back to. The rest is read by reference.
pub const OUTPUT_TAIL_BYTES: usize = 96 * 1024;

/// Maximum number of chunks in either part; streams that alternate byte by byte make one chunk per
/// byte.
pub const MAX_OUTPUT_CHUNKS: usize = 2048;

/// A chunk of text from one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutputChunk {
    pub stream: OutputStream,
    /// Where the text begins in its stream, in bytes.
    pub offset: u64,
    /// Bytes directly before the text that were never received.
    pub missing: u64,
    pub text: String,
}

/// The size of one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StreamTotal {
    /// Bytes up to the last one received, including missing ones.
    pub bytes: u64,
    /// Lines begun in the text received.
    pub lines: u64,
    /// Bytes that were never received.
    pub missing: u64,
    /// The stream has ended.
    pub complete: bool,
    /// The text received so far does not end with a line feed.
    #[serde(skip)]
    mid_line: bool,
}

impl StreamTotal {
    fn count_lines(&mut self, text: &str) {
        let ends = text.bytes().filter(|&byte| byte == b'\n').count() as u64;
        let open = !text.ends_with('\n');
        let lines = self.lines + ends + u64::from(open);
        self.lines = lines - u64::from(self.mid_line);
        self.mid_line = open;
    }
}

/// The output of a command, as much of it as is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct OutputView {
    /// The size of stdout.
    pub stdout: StreamTotal,
    /// The size of stderr.
    pub stderr: StreamTotal,
    /// The beginning of the output.
    pub head: Vec<OutputChunk>,
    /// Bytes between `head` and `tail` that are not kept.
    pub dropped_bytes: u64,
    /// The end of the output.
    pub tail: VecDeque<OutputChunk>,
    /// Bytes of text in `head`.
    #[serde(skip)]
    head_bytes: usize,
    /// Bytes of text in `tail`.
    #[serde(skip)]
    tail_bytes: usize,
}

impl OutputView {
    /// All kept chunks, in order. Between head and tail, `dropped_bytes` may be missing.
    pub fn chunks(&self) -> impl Iterator<Item = &OutputChunk> {
        self.head.iter().chain(&self.tail)
    }

    /// The kept text of one stream.
    pub fn text(&self, stream: OutputStream) -> String {
        let of_stream = self.chunks().filter(|chunk| chunk.stream == stream);
        of_stream.map(|chunk| chunk.text.as_str()).collect()
    }

    /// The size of one stream.
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

    pub(super) fn mark_complete(&mut self, stream: OutputStream) {
        self.total_mut(stream).complete = true;
    }

    /// Adds text at an offset of its stream; without an offset, it continues where the stream
    /// stopped. Text that was received before is dropped.
    pub(super) fn append(&mut self, stream: OutputStream, offset: Option<u64>, text: &str) {
        let total = self.total_mut(stream);
        let offset = offset.unwrap_or(total.bytes);
        let Some(text_from) = new_text_start(text, total.bytes.saturating_sub(offset)) else {
            return;
        };
        let text = &text[text_from..];
        let start = offset.saturating_add(text_from as u64);
        let missing = start.saturating_sub(total.bytes);
        total.missing = total.missing.saturating_add(missing);
        total.bytes = start.saturating_add(text.len() as u64);
        total.count_lines(text);
        self.push(stream, start, missing, text);
    }

    fn push(&mut self, stream: OutputStream, offset: u64, missing: u64, text: &str) {
        let at_head =
            self.tail.is_empty() && self.dropped_bytes == 0 && self.head.len() < MAX_OUTPUT_CHUNKS;
        let room = if at_head {
            OUTPUT_HEAD_BYTES - self.head_bytes
        } else {
            0
        };
        let (first, rest) = text.split_at(text.floor_char_boundary(room));
        let chunk = |offset, missing, text: &str| OutputChunk {
            stream,
            offset,
            missing,
            text: text.to_owned(),
        };
        if !first.is_empty() {
            self.head_bytes += first.len();
            let chunk = chunk(offset, missing, first);
            if let Some(chunk) = merge_into_last(self.head.last_mut(), chunk) {
                self.head.push(chunk);
            }
        }
        if !rest.is_empty() {
            let missing = if first.is_empty() { missing } else { 0 };
            self.tail_bytes += rest.len();
            let chunk = chunk(offset.saturating_add(first.len() as u64), missing, rest);
            if let Some(chunk) = merge_into_last(self.tail.back_mut(), chunk) {
                self.tail.push_back(chunk);
            }
            self.trim_tail();
        }
    }

    /// Drops the oldest text of the tail until the rest fits the limits.
    fn trim_tail(&mut self) {
        while self.tail_bytes > OUTPUT_TAIL_BYTES || self.tail.len() > MAX_OUTPUT_CHUNKS {
            let over = self.tail_bytes.saturating_sub(OUTPUT_TAIL_BYTES);
            let Some(front) = self.tail.front_mut() else {
                return;
            };
            // Too many chunks but not too many bytes: drop the oldest chunk whole.
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

/// Where the new part of a text begins, when its first `known` bytes were received before; `None`
/// if nothing is new.
fn new_text_start(text: &str, known: u64) -> Option<usize> {
    let known = usize::try_from(known).unwrap_or(usize::MAX);
    let from = text.ceil_char_boundary(known.min(text.len()));
    (from < text.len()).then_some(from)
}

/// Appends a chunk to the one before it if it continues the same stream; otherwise returns it.
fn merge_into_last(last: Option<&mut OutputChunk>, chunk: OutputChunk) -> Option<OutputChunk> {
    match last {
        Some(last) if last.stream == chunk.stream && chunk.missing == 0 => {
            last.text.push_str(&chunk.text);
            None
        }
        Some(_) | None => Some(chunk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OutputStream::{Stderr, Stdout};

    fn lines(output: &OutputView) -> Vec<String> {
        let word = |chunk: &OutputChunk| match chunk.stream {
            Stdout => "out",
            Stderr => "err",
        };
        let line = |chunk: &OutputChunk| {
            let OutputChunk {
                offset,
                missing,
                text,
                ..
            } = chunk;
            format!("{} {offset} {missing} {text}", word(chunk))
        };
        output.chunks().map(line).collect()
    }

    #[test]
    fn streams_interleave_as_received_and_continue_where_they_stopped() {
        let mut output = OutputView::default();
        output.append(Stdout, Some(0), "a");
        output.append(Stdout, Some(1), "é\n");
        output.append(Stderr, Some(0), "oops");
        output.append(Stdout, None, "b");
        assert_eq!(
            lines(&output),
            ["out 0 0 aé\n", "err 0 0 oops", "out 4 0 b"]
        );
        assert_eq!((output.stdout.bytes, output.stdout.lines), (5, 2));
        assert_eq!(output.text(Stdout), "aé\nb");
    }

    #[test]
    fn repeated_output_is_dropped_and_missing_output_is_marked() {
        let mut output = OutputView::default();
        output.append(Stdout, Some(0), "abc");
        output.append(Stdout, Some(0), "abc");
        output.append(Stdout, Some(1), "bcd");
        output.append(Stdout, Some(10), "xyz");
        output.append(Stdout, Some(2), "");
        assert_eq!(lines(&output), ["out 0 0 abcd", "out 10 6 xyz"]);
        assert_eq!((output.stdout.bytes, output.stdout.missing), (13, 6));
    }

    #[test]
    fn an_overlap_inside_a_character_loses_the_character_and_no_more() {
        let mut output = OutputView::default();
        output.append(Stdout, Some(0), "ab");
        output.append(Stdout, Some(1), "éx");
        assert_eq!(lines(&output), ["out 0 0 ab", "out 3 1 x"]);
    }

    #[test]
    fn lines_are_counted_once_however_the_text_is_split() {
        let text = "one\ntwo\n\nfour";
        for size in 1..text.len() {
            let mut output = OutputView::default();
            for chunk in text.as_bytes().chunks(size) {
                output.append(Stdout, None, std::str::from_utf8(chunk).unwrap());
            }
            assert_eq!(output.stdout.lines, 4, "in pieces of {size}");
        }
    }

    #[test]
    fn the_beginning_and_the_end_of_long_output_are_kept() {
        let mut output = OutputView::default();
        let most = OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES;
        for number in 0..40_000 {
            output.append(Stdout, None, &format!("{number} é\n"));
        }
        let kept: usize = output.chunks().map(|chunk| chunk.text.len()).sum();
        assert!(kept <= most && kept > most - 8, "{kept}");
        assert_eq!(output.stdout.bytes, output.dropped_bytes + kept as u64);
        assert!(output.head[0].text.starts_with("0 é\n1 é\n"));
        assert!(output.tail[0].text.ends_with("39999 é\n"));
        let after = output.tail[0].offset - output.head[0].text.len() as u64;
        assert_eq!(after, output.dropped_bytes);
    }

    #[test]
    fn streams_that_alternate_byte_by_byte_are_held_to_so_many_chunks() {
        let mut output = OutputView::default();
        for _ in 0..10_000 {
            output.append(Stdout, None, "a");
            output.append(Stderr, None, "b");
        }
        assert_eq!(
            (output.head.len(), output.tail.len()),
            (MAX_OUTPUT_CHUNKS, MAX_OUTPUT_CHUNKS)
        );
        assert_eq!(output.dropped_bytes, 20_000 - 2 * MAX_OUTPUT_CHUNKS as u64);
        assert_eq!(output.tail_bytes, MAX_OUTPUT_CHUNKS);
    }

    #[test]
    fn one_text_larger_than_everything_is_cut_in_the_middle() {
        let mut output = OutputView::default();
        output.append(Stderr, None, &"é".repeat(400_000));
        assert_eq!(output.head[0].text.len(), OUTPUT_HEAD_BYTES);
        assert_eq!(output.tail[0].text.len(), OUTPUT_TAIL_BYTES);
        assert_eq!(output.stderr.bytes, 800_000);
    }

    #[test]
    fn offsets_near_the_maximum_do_no_harm() {
        let mut output = OutputView::default();
        output.append(Stdout, Some(u64::MAX), "abc");
        output.append(Stdout, Some(u64::MAX - 1), "abc");
        output.append(Stdout, None, "abc");
        assert_eq!(output.stdout.bytes, u64::MAX);
    }
}
