//! Records one of a command's two streams: decodes, masks, limits, counts and summarizes it.

use std::borrow::Cow;
use std::collections::VecDeque;

use pvp_protocol::hex;
use pvp_protocol::payload::OutputStream;
use sha2::{Digest as _, Sha256};

use super::StdioChunk;
use crate::mask::SecretMask;

/// Bytes of one chunk, at most.
pub(super) const MAX_CHUNK_BYTES: usize = 32 * 1024;

/// Bytes of the beginning and of the end that are kept for the result.
const EXCERPT_BYTES: usize = 32 * 1024;

/// What is known of a stream once it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSummary {
    /// Bytes that were recorded.
    pub bytes: u64,
    /// Lines that were recorded, including an unterminated last one.
    pub lines: u64,
    /// SHA-256 of everything that was recorded, in hexadecimal digits.
    pub sha256: String,
    /// The beginning of the stream.
    pub head: String,
    /// The end of the stream, if it is longer than `head`.
    pub tail: String,
    /// Bytes between the two.
    pub omitted_bytes: u64,
    /// Whether more was printed than the limit allows.
    pub truncated: bool,
    /// Bytes over the limit that were not recorded while the command went on; `tail` is the end of
    /// them.
    pub dropped_bytes: u64,
}

/// What was recorded of some bytes.
pub(super) struct RecordedBytes {
    /// Bytes of the text that they decoded to and that was recorded.
    pub(super) recorded: u64,
    /// Whether the limit left no room for all of it.
    pub(super) truncated: bool,
}

pub(super) struct OutputRecorder {
    /// Which stream this is.
    stream: OutputStream,
    /// Masks the values of secrets.
    mask: SecretMask,
    /// The first bytes of a character whose rest has not arrived.
    partial_char: Vec<u8>,
    /// Recorded text that is not in a chunk yet.
    buffer: String,
    /// Bytes of text in the chunks so far.
    taken_bytes: u64,
    /// Bytes recorded so far.
    bytes: u64,
    /// Newlines recorded so far.
    lines: u64,
    /// Whether the recorded text ends with a newline, or is empty.
    ends_with_newline: bool,
    /// The hash of the recorded text.
    hash: Sha256,
    /// The first bytes, up to [`EXCERPT_BYTES`].
    head: String,
    /// The last bytes after `head`, up to [`EXCERPT_BYTES`].
    tail: VecDeque<u8>,
    /// Whether the limit was exceeded.
    truncated: bool,
    /// Whether the end of what is over the limit is kept in `tail`.
    keep_tail: bool,
    /// Bytes over the limit, counted if `keep_tail`.
    dropped_bytes: u64,
}

impl OutputRecorder {
    pub(super) fn new(stream: OutputStream, mask: SecretMask, keep_tail: bool) -> Self {
        Self {
            stream,
            mask,
            partial_char: Vec::new(),
            buffer: String::new(),
            taken_bytes: 0,
            bytes: 0,
            lines: 0,
            ends_with_newline: true,
            hash: Sha256::new(),
            head: String::new(),
            tail: VecDeque::new(),
            truncated: false,
            keep_tail,
            dropped_bytes: 0,
        }
    }

    pub(super) fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Records bytes, up to `limit` bytes of the text that they decode to.
    pub(super) fn push(&mut self, bytes: &[u8], limit: u64) -> RecordedBytes {
        if self.truncated && !self.keep_tail {
            return RecordedBytes {
                recorded: 0,
                truncated: true,
            };
        }
        let text = decode_whole_chars(&mut self.partial_char, bytes);
        let text = self.mask.push(&text);
        self.record_within(&text, limit)
    }

    /// Records as much of a text as the limit allows.
    fn record_within(&mut self, text: &str, limit: u64) -> RecordedBytes {
        let limit = match self.truncated {
            true => 0,
            false => usize::try_from(limit).unwrap_or(usize::MAX),
        };
        let (fits, rest) = text.split_at(text.floor_char_boundary(limit));
        self.record(fits);
        self.truncated |= !rest.is_empty();
        if self.keep_tail {
            self.dropped_bytes += rest.len() as u64;
            self.push_tail(rest);
        }
        RecordedBytes {
            recorded: fits.len() as u64,
            truncated: self.truncated,
        }
    }

    /// Ends the stream: an incomplete character is replaced, and text that the mask held back is
    /// recorded. Returns how many more bytes that made.
    pub(super) fn finish(&mut self, limit: u64) -> u64 {
        let mut rest = self.mask.finish();
        if !std::mem::take(&mut self.partial_char).is_empty() {
            rest.push(char::REPLACEMENT_CHARACTER);
        }
        if self.truncated && !self.keep_tail {
            return 0;
        }
        self.record_within(&rest, limit).recorded
    }

    fn record(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.bytes += text.len() as u64;
        self.lines += text.matches('\n').count() as u64;
        self.ends_with_newline = text.ends_with('\n');
        self.hash.update(text);
        let (head, rest) =
            text.split_at(text.floor_char_boundary(EXCERPT_BYTES.saturating_sub(self.head.len())));
        // Once the head is full, all further text goes to the tail, however short.
        let rest = if self.tail.is_empty() {
            self.head.push_str(head);
            rest
        } else {
            text
        };
        self.push_tail(rest);
        self.buffer.push_str(text);
    }

    /// Keeps the last bytes of what comes after the head.
    fn push_tail(&mut self, text: &str) {
        let text = text.as_bytes();
        let end = &text[text.len().saturating_sub(EXCERPT_BYTES)..];
        let over = (self.tail.len() + end.len()).saturating_sub(EXCERPT_BYTES);
        self.tail.drain(..over);
        self.tail.extend(end);
    }

    /// The next chunk to send; `None` if nothing is buffered.
    pub(super) fn next_chunk(&mut self) -> Option<StdioChunk> {
        if self.buffer.is_empty() {
            return None;
        }
        let rest = self
            .buffer
            .split_off(self.buffer.floor_char_boundary(MAX_CHUNK_BYTES));
        let text = std::mem::replace(&mut self.buffer, rest);
        let offset = self.taken_bytes;
        self.taken_bytes += text.len() as u64;
        Some(StdioChunk {
            stream: self.stream,
            text,
            offset,
        })
    }

    pub(super) fn summary(self) -> StreamSummary {
        let tail: Vec<u8> = self.tail.into();
        // The window may begin inside a character.
        let start = tail
            .iter()
            .take(3)
            .take_while(|byte| **byte & 0xc0 == 0x80)
            .count();
        let tail = String::from_utf8_lossy(&tail[start..]).into_owned();
        let omitted = self.bytes + self.dropped_bytes - (self.head.len() + tail.len()) as u64;
        StreamSummary {
            bytes: self.bytes,
            lines: self.lines + u64::from(!self.ends_with_newline),
            sha256: hex::encode(&self.hash.finalize()),
            head: self.head,
            tail,
            omitted_bytes: omitted,
            truncated: self.truncated,
            dropped_bytes: self.dropped_bytes,
        }
    }
}

/// Decodes an incomplete character and the bytes that follow it. Invalid bytes are replaced; an
/// incomplete character at the end stays in `partial_char`.
fn decode_whole_chars<'a>(partial_char: &mut Vec<u8>, bytes: &'a [u8]) -> Cow<'a, str> {
    if partial_char.is_empty()
        && let Ok(text) = std::str::from_utf8(bytes)
    {
        return Cow::Borrowed(text);
    }
    partial_char.extend_from_slice(bytes);
    Cow::Owned(decode_lossy(partial_char))
}

/// Decodes bytes, and leaves only an incomplete character at the end in them.
fn decode_lossy(bytes: &mut Vec<u8>) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes.as_slice();
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                bytes.clear();
                return text;
            }
            Err(error) => {
                let (valid, after) = rest.split_at(error.valid_up_to());
                text.push_str(std::str::from_utf8(valid).expect("it was found to be valid"));
                let Some(bad) = error.error_len() else {
                    *bytes = after.to_vec();
                    return text;
                };
                text.push(char::REPLACEMENT_CHARACTER);
                rest = &after[bad..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record_unmasked(chunks: &[&[u8]], limit: u64) -> (String, StreamSummary) {
        record(
            OutputRecorder::new(OutputStream::Stdout, SecretMask::default(), false),
            chunks,
            limit,
        )
    }

    fn record(
        mut recorder: OutputRecorder,
        chunks: &[&[u8]],
        limit: u64,
    ) -> (String, StreamSummary) {
        let (mut text, mut left) = (String::new(), limit);
        for chunk in chunks {
            left -= recorder.push(chunk, left).recorded;
            while let Some(next) = recorder.next_chunk() {
                assert_eq!(next.offset, text.len() as u64);
                assert!(next.text.len() <= MAX_CHUNK_BYTES);
                text += &next.text;
            }
        }
        left -= recorder.finish(left);
        while let Some(next) = recorder.next_chunk() {
            text += &next.text;
        }
        assert_eq!(text.len() as u64, limit - left);
        (text, recorder.summary())
    }

    #[test]
    fn characters_arrive_whole_however_the_bytes_are_split() {
        let text = "naïve ☕ 𝄞\n".repeat(50);
        for size in 1..9 {
            let chunks: Vec<_> = text.as_bytes().chunks(size).collect();
            assert_eq!(record_unmasked(&chunks, 1 << 20).0, text);
        }
    }

    #[test]
    fn invalid_bytes_are_replaced_and_the_rest_stays() {
        assert_eq!(
            record_unmasked(&[b"a\xffb\xe2\x98", b"c\xf0\x9d"], 100).0,
            "a\u{fffd}b\u{fffd}c\u{fffd}"
        );
    }

    #[test]
    fn nothing_over_the_limit_is_recorded() {
        for limit in 0..12 {
            let (text, summary) = record_unmasked(&["ab☕cd☕".as_bytes()], limit);
            assert!(text.len() as u64 <= limit && "ab☕cd☕".starts_with(&text));
            assert_eq!(summary.truncated, limit < 10);
        }
    }

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        let long: String = (0..20_000).map(|number| format!("{number}\n")).collect();
        let (text, summary) =
            record_unmasked(&long.as_bytes().chunks(1000).collect::<Vec<_>>(), 1 << 30);
        assert_eq!(text, long);
        assert_eq!((summary.bytes, summary.lines), (long.len() as u64, 20_000));
        assert!(long.starts_with(&summary.head) && long.ends_with(&summary.tail));
        let kept = (summary.head.len() + summary.tail.len()) as u64;
        assert_eq!(summary.omitted_bytes, summary.bytes - kept);
        let (_, short) = record_unmasked(&[b"one\ntwo"], 100);
        assert_eq!(
            (short.head.as_str(), short.tail.as_str(), short.lines),
            ("one\ntwo", "", 2)
        );
    }
    #[test]
    fn the_tail_of_what_is_over_the_limit_is_kept() {
        let long: String = (0..20_000).map(|number| format!("{number}\n")).collect();
        let chunks: Vec<_> = long.as_bytes().chunks(1000).collect();
        for limit in [0, 100, 40_000, 80_000] {
            let recorder = OutputRecorder::new(OutputStream::Stdout, SecretMask::default(), true);
            let (text, summary) = record(recorder, &chunks, limit);
            assert_eq!(text, long[..usize::try_from(limit).unwrap()]);
            assert_eq!((summary.bytes, summary.truncated), (limit, true));
            assert_eq!(summary.bytes + summary.dropped_bytes, long.len() as u64);
            assert!(text.starts_with(&summary.head) && long.ends_with(&summary.tail));
            assert_eq!(summary.tail.len(), EXCERPT_BYTES);
            let kept = (summary.head.len() + summary.tail.len()) as u64;
            assert_eq!(summary.omitted_bytes, long.len() as u64 - kept);
        }
    }
}
