//! One of a command's two streams: from bytes to whole characters, counted and remembered.

use std::borrow::Cow;
use std::collections::VecDeque;

use pvp_protocol::payload::OutputStream;
use sha2::{Digest as _, Sha256};

use super::Piece;
use crate::mask::Mask;

/// Bytes of one piece, at most.
pub(super) const PIECE: usize = 32 * 1024;

/// Bytes of the beginning and of the end that are kept for the result.
const KEPT: usize = 32 * 1024;

/// What is known of a stream once it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Bytes that were told.
    pub bytes: u64,
    pub lines: u64,
    /// SHA-256 of everything that was told, in hexadecimal digits.
    pub sha256: String,
    /// The beginning, and the end if there is more than that.
    pub head: String,
    pub tail: String,
    /// Bytes between the two.
    pub omitted: u64,
    /// More was printed than there was room for.
    pub cut: bool,
    /// Bytes that were printed then and not told, where the command went on; the tail is theirs.
    pub untold: u64,
}

/// What became of bytes that were taken.
pub(super) struct Used {
    /// Bytes of text that they became.
    pub(super) told: u64,
    /// There was no room for all of it.
    pub(super) cut: bool,
}

pub(super) struct Recorder {
    stream: OutputStream,
    mask: Mask,
    /// Bytes of a character that is not whole yet.
    unfinished: Vec<u8>,
    /// Text that waits to be told.
    waiting: String,
    /// Bytes of text in pieces that were given out.
    given: u64,
    bytes: u64,
    lines: u64,
    ends_with_newline: bool,
    hash: Sha256,
    head: String,
    tail: VecDeque<u8>,
    cut: bool,
    /// Whether the end is kept of what there is no room for.
    keeps_the_end: bool,
    untold: u64,
}

impl Recorder {
    pub(super) fn new(stream: OutputStream, mask: Mask, keeps_the_end: bool) -> Self {
        Self {
            stream,
            mask,
            unfinished: Vec::new(),
            waiting: String::new(),
            given: 0,
            bytes: 0,
            lines: 0,
            ends_with_newline: true,
            hash: Sha256::new(),
            head: String::new(),
            tail: VecDeque::new(),
            cut: false,
            keeps_the_end,
            untold: 0,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes bytes, as far as the text that they become has room.
    pub(super) fn take(&mut self, bytes: &[u8], room: u64) -> Used {
        if self.cut && !self.keeps_the_end {
            return Used { told: 0, cut: true };
        }
        let text = whole_characters(&mut self.unfinished, bytes);
        let text = self.mask.take(&text);
        self.record_within(&text, room)
    }

    /// Records as much of a text as there is room for.
    fn record_within(&mut self, text: &str, room: u64) -> Used {
        let room = match self.cut {
            true => 0,
            false => usize::try_from(room).unwrap_or(usize::MAX),
        };
        let (fits, rest) = text.split_at(text.floor_char_boundary(room));
        self.record(fits);
        self.cut |= !rest.is_empty();
        if self.keeps_the_end {
            self.untold += rest.len() as u64;
            self.keep(rest);
        }
        Used {
            told: fits.len() as u64,
            cut: self.cut,
        }
    }

    /// The stream has ended: an unfinished character is replaced, and what was held back is told.
    /// Gives how many more bytes that made.
    pub(super) fn end(&mut self, room: u64) -> u64 {
        let mut rest = self.mask.end();
        if !std::mem::take(&mut self.unfinished).is_empty() {
            rest.push(char::REPLACEMENT_CHARACTER);
        }
        if self.cut && !self.keeps_the_end {
            return 0;
        }
        self.record_within(&rest, room).told
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
            text.split_at(text.floor_char_boundary(KEPT.saturating_sub(self.head.len())));
        // Once the head is full, whatever comes goes to the tail, however short.
        let rest = if self.tail.is_empty() {
            self.head.push_str(head);
            rest
        } else {
            text
        };
        self.keep(rest);
        self.waiting.push_str(text);
    }

    /// Keeps the last bytes of what comes after the head.
    fn keep(&mut self, text: &str) {
        let text = text.as_bytes();
        let end = &text[text.len().saturating_sub(KEPT)..];
        let over = (self.tail.len() + end.len()).saturating_sub(KEPT);
        self.tail.drain(..over);
        self.tail.extend(end);
    }

    /// What is to be told next.
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        if self.waiting.is_empty() {
            return None;
        }
        let rest = self
            .waiting
            .split_off(self.waiting.floor_char_boundary(PIECE));
        let text = std::mem::replace(&mut self.waiting, rest);
        let offset = self.given;
        self.given += text.len() as u64;
        Some(Piece {
            stream: self.stream,
            text,
            offset,
        })
    }

    pub(super) fn summary(self) -> Summary {
        let tail: Vec<u8> = self.tail.into();
        // The window may begin inside a character.
        let start = tail
            .iter()
            .take(3)
            .take_while(|byte| **byte & 0xc0 == 0x80)
            .count();
        let tail = String::from_utf8_lossy(&tail[start..]).into_owned();
        let omitted = self.bytes + self.untold - (self.head.len() + tail.len()) as u64;
        Summary {
            bytes: self.bytes,
            lines: self.lines + u64::from(!self.ends_with_newline),
            sha256: self
                .hash
                .finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            head: self.head,
            tail,
            omitted,
            cut: self.cut,
            untold: self.untold,
        }
    }
}

/// Takes what is whole of an unfinished character and what follows it; invalid bytes are replaced,
/// and what is unfinished then waits.
fn whole_characters<'a>(unfinished: &mut Vec<u8>, bytes: &'a [u8]) -> Cow<'a, str> {
    if unfinished.is_empty()
        && let Ok(text) = std::str::from_utf8(bytes)
    {
        return Cow::Borrowed(text);
    }
    unfinished.extend_from_slice(bytes);
    Cow::Owned(replaced(unfinished))
}

/// The text of bytes, of which only an unfinished character at the end is left.
fn replaced(bytes: &mut Vec<u8>) -> String {
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

    fn told(chunks: &[&[u8]], room: u64) -> (String, Summary) {
        record(
            Recorder::new(OutputStream::Stdout, Mask::default(), false),
            chunks,
            room,
        )
    }

    fn record(mut recorder: Recorder, chunks: &[&[u8]], room: u64) -> (String, Summary) {
        let (mut text, mut left) = (String::new(), room);
        for chunk in chunks {
            left -= recorder.take(chunk, left).told;
            while let Some(piece) = recorder.next_piece() {
                assert_eq!(piece.offset, text.len() as u64);
                assert!(piece.text.len() <= PIECE);
                text += &piece.text;
            }
        }
        left -= recorder.end(left);
        while let Some(piece) = recorder.next_piece() {
            text += &piece.text;
        }
        assert_eq!(text.len() as u64, room - left);
        (text, recorder.summary())
    }

    #[test]
    fn characters_arrive_whole_however_they_are_cut() {
        let text = "naïve ☕ 𝄞\n".repeat(50);
        for size in 1..9 {
            let chunks: Vec<_> = text.as_bytes().chunks(size).collect();
            assert_eq!(told(&chunks, 1 << 20).0, text);
        }
    }

    #[test]
    fn invalid_bytes_are_replaced_and_the_rest_stays() {
        assert_eq!(
            told(&[b"a\xffb\xe2\x98", b"c\xf0\x9d"], 100).0,
            "a\u{fffd}b\u{fffd}c\u{fffd}"
        );
    }

    #[test]
    fn nothing_over_the_room_is_told() {
        for room in 0..12 {
            let (text, summary) = told(&["ab☕cd☕".as_bytes()], room);
            assert!(text.len() as u64 <= room && "ab☕cd☕".starts_with(&text));
            assert_eq!(summary.cut, room < 10);
        }
    }

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        let long: String = (0..20_000).map(|number| format!("{number}\n")).collect();
        let (text, summary) = told(&long.as_bytes().chunks(1000).collect::<Vec<_>>(), 1 << 30);
        assert_eq!(text, long);
        assert_eq!((summary.bytes, summary.lines), (long.len() as u64, 20_000));
        assert!(long.starts_with(&summary.head) && long.ends_with(&summary.tail));
        let kept = (summary.head.len() + summary.tail.len()) as u64;
        assert_eq!(summary.omitted, summary.bytes - kept);
        let (_, short) = told(&[b"one\ntwo"], 100);
        assert_eq!(
            (short.head.as_str(), short.tail.as_str(), short.lines),
            ("one\ntwo", "", 2)
        );
    }
    #[test]
    fn the_end_is_kept_of_what_there_is_no_room_for() {
        let long: String = (0..20_000).map(|number| format!("{number}\n")).collect();
        let chunks: Vec<_> = long.as_bytes().chunks(1000).collect();
        for room in [0, 100, 40_000, 80_000] {
            let recorder = Recorder::new(OutputStream::Stdout, Mask::default(), true);
            let (text, summary) = record(recorder, &chunks, room);
            assert_eq!(text, long[..usize::try_from(room).unwrap()]);
            assert_eq!((summary.bytes, summary.cut), (room, true));
            assert_eq!(summary.bytes + summary.untold, long.len() as u64);
            assert!(text.starts_with(&summary.head) && long.ends_with(&summary.tail));
            assert_eq!(summary.tail.len(), KEPT);
            let kept = (summary.head.len() + summary.tail.len()) as u64;
            assert_eq!(summary.omitted, long.len() as u64 - kept);
        }
    }
}
