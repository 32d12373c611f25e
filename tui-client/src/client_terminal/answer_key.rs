//! The key that opens what waits, in what a person types into the client.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::escape_parser::CsiSequence;
use crate::keys::KeyChord;
use crossterm::event::KeyCode;

/// Keys that every client needs: they interrupt, end or suspend it, send the input, or are written
/// as these.
const NEEDED_BY_CLIENTS: &str = "cdhijmz";

/// The modifiers of a key in an escape sequence, less one: control, and the bits that count.
const CONTROL: u32 = 4;
const MODIFIERS: u32 = 0b11_1111;

/// How the protocol of kitty says that a key was released.
const RELEASED: u32 = 3;

const PASTE_BEGINS: &[u8] = b"\x1b[200~";
const PASTE_ENDS: &[u8] = b"\x1b[201~";

/// The key that opens what waits over the client's screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerKey {
    /// The character that is typed with control.
    character: u8,
}

impl Default for AnswerKey {
    fn default() -> Self {
        Self { character: b']' }
    }
}

impl fmt::Display for AnswerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ctrl+{}", char::from(self.character))
    }
}

impl FromStr for AnswerKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` cannot be the key; write ctrl+ and a letter, \\ or ], which the client does not need, such as ctrl+]"
            )
        };
        let chord = KeyChord::parse(text).map_err(|_| wrong())?;
        let KeyCode::Char(character @ ('a'..='z' | '\\' | ']')) = chord.code() else {
            return Err(wrong());
        };
        let is_control = chord.has_ctrl() && !chord.has_alt();
        if !is_control || NEEDED_BY_CLIENTS.contains(character) {
            return Err(wrong());
        }
        let character = u8::try_from(character).map_err(|_| wrong())?;
        Ok(Self { character })
    }
}

impl AnswerKey {
    /// The byte that a terminal sends for the key.
    pub(super) fn control_byte(self) -> u8 {
        self.character.to_ascii_uppercase() & 0x1f
    }

    /// Whether this sequence is how a terminal sends the key to a client that has asked for more
    /// than the byte: by the protocol of kitty, or by xterm's modifyOtherKeys.
    pub(super) fn is_sent_as(self, csi: &CsiSequence<'_>) -> bool {
        let code = Some(u32::from(self.character));
        let parameters = csi.parameters();
        let part = |parameter: usize, part: usize| -> Option<u32> {
            *parameters.get(parameter)?.get(part)?
        };
        let is_control = |modifiers: Option<u32>| {
            modifiers.is_some_and(|it| it.saturating_sub(1) & MODIFIERS == CONTROL)
        };
        match (csi.prefix, csi.last) {
            (None, b'u') => {
                // The third part is the key at this place of a US keyboard.
                let is_key = part(0, 0) == code || part(0, 2) == code;
                is_key && is_control(part(1, 0)) && part(1, 1) != Some(RELEASED)
            }
            (None, b'~') => part(0, 0) == Some(27) && is_control(part(1, 0)) && part(2, 0) == code,
            _ => false,
        }
    }
}

/// Looks for the key in what is typed, without changing or delaying any of it. In what is pasted,
/// there is no key.
#[derive(Debug, Clone)]
pub(super) struct AnswerKeyWatcher {
    key: AnswerKey,
    is_pasting: bool,
    /// How many bytes of the mark that begins or ends a paste were read last.
    mark_bytes: usize,
}

impl AnswerKeyWatcher {
    pub(super) fn new(key: AnswerKey) -> Self {
        Self {
            key,
            is_pasting: false,
            mark_bytes: 0,
        }
    }

    /// Where the key is in the next bytes, if it is there. What follows the key was not looked at.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<Range<usize>> {
        for (at, byte) in bytes.iter().enumerate() {
            self.follow_marks(*byte);
            if self.is_pasting {
                continue;
            }
            if *byte == self.key.control_byte() {
                return Some(at..at + 1);
            }
            if *byte == 0x1b
                && let Some(length) = self.key_sequence_length(&bytes[at..])
            {
                self.mark_bytes = 0;
                return Some(at..at + length);
            }
        }
        None
    }

    /// The length of the sequence that these bytes begin with, if it is the key.
    fn key_sequence_length(&self, bytes: &[u8]) -> Option<usize> {
        /// A longer one is not a key.
        const MAX_KEY_BYTES: usize = 40;
        let parameters = bytes.get(2..)?.iter().take(MAX_KEY_BYTES);
        let length = 3 + parameters
            .take_while(|byte| (0x30..=0x3f).contains(*byte))
            .count();
        let csi = CsiSequence::parse(bytes.get(..length)?)?;
        self.key.is_sent_as(&csi).then_some(length)
    }

    fn follow_marks(&mut self, byte: u8) {
        let mark = if self.is_pasting {
            PASTE_ENDS
        } else {
            PASTE_BEGINS
        };
        self.mark_bytes = match byte {
            byte if byte == mark[self.mark_bytes] => self.mark_bytes + 1,
            0x1b => 1,
            _ => 0,
        };
        if self.mark_bytes == mark.len() {
            self.is_pasting = !self.is_pasting;
            self.mark_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_a_client_can_do_without_are_taken() {
        for good in ["ctrl+]", "ctrl+\\", "ctrl+g", "ctrl+o"] {
            assert_eq!(good.parse::<AnswerKey>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "]",
            "a",
            "ctrl+c",
            "ctrl+m",
            "ctrl+[",
            "alt+]",
            "ctrl+alt+]",
            "ctrl+1",
            "f5",
            "ctrl+é",
            "ctrl+A",
        ] {
            let refused = bad.parse::<AnswerKey>().unwrap_err();
            assert!(
                refused.starts_with(&format!("`{bad}` cannot be the key")),
                "{refused}"
            );
        }
        assert_eq!(AnswerKey::default().to_string(), "ctrl+]");
        assert_eq!(AnswerKey::default().control_byte(), 0x1d);
        assert_eq!("ctrl+g".parse::<AnswerKey>().unwrap().control_byte(), 7);
    }

    fn found(chunks: &[&[u8]]) -> Option<(usize, Range<usize>)> {
        let mut watcher = AnswerKeyWatcher::new(AnswerKey::default());
        let mut chunks = chunks.iter().enumerate();
        chunks.find_map(|(number, chunk)| Some((number, watcher.find(chunk)?)))
    }

    #[test]
    fn the_key_is_found_however_a_terminal_sends_it() {
        for (bytes, at) in [
            (&b"\x1d"[..], 0..1),
            (b"ab\x1dcd", 2..3),
            (b"\x1b[<35;10;5M\x1d", 11..12),
            (b"\x1b[93;5u", 0..7),
            (b"x\x1b[93;5:1ua", 1..10),
            (b"\x1b[93;5:2u", 0..9),
            (b"\x1b[93:125:93;5u", 0..14),
            (b"\x1b[252::93;5u", 0..12),
            // With Caps Lock and Num Lock.
            (b"\x1b[93;197u", 0..9),
            (b"\x1b[27;5;93~", 0..10),
        ] {
            assert_eq!(found(&[bytes]), Some((0, at)), "{bytes:?}");
        }
        for other in [
            &b"abc\x1b[A\x1bOP\x1b[200~"[..],
            b"\x1b[93;5:3u",
            b"\x1b[93;6u",
            b"\x1b[93u",
            b"\x1b[92;5u",
            b"\x1b[27;5;92~",
            b"\x1b[?93;5u",
            "x世\u{7f}".as_bytes(),
        ] {
            assert_eq!(found(&[other]), None, "{other:?}");
        }
    }

    #[test]
    fn what_is_pasted_has_no_key() {
        assert_eq!(found(&[b"\x1b[200~a\x1db\x1b[201~"]), None);
        assert_eq!(found(&[b"\x1b[20", b"0~a", b"\x1d", b"\x1b[93;5u"]), None);
        let after: &[&[u8]] = &[b"\x1b[200~a\x1d", b"b\x1b[20", b"1~", b"\x1d"];
        assert_eq!(found(after), Some((3, 0..1)));
        assert_eq!(found(&[b"\x1b\x1b[200~\x1d"]), None);
    }
}
