//! What a client has changed about its terminal, besides what is on the screen.

use std::collections::BTreeMap;

use super::escape_parser::{CsiSequence, MAX_SEQUENCE_BYTES};

/// The most modes that are remembered; clients use about a dozen.
const MAX_MODES: usize = 64;

/// The deepest stack of keyboard modes that terminals keep.
const MAX_KEYBOARD_DEPTH: u32 = 64;

/// Modes that lead to the alternate screen.
const ALTERNATE_SCREEN: [u32; 3] = [47, 1047, 1049];

/// Modes that are on unless a client switches them off: wrapping, and the cursor.
const ON_BY_DEFAULT: [u32; 2] = [7, 25];

/// Modes that are remembered although there are many others: what is drawn where, the cursor, and
/// what is sent when somebody types or moves the mouse.
const IMPORTANT: [u32; 21] = [
    6, 7, 9, 25, 47, 69, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 1047, 1049,
    2004, 2031, 9001,
];

/// Texts for the terminal that change no colour: titles, icons, the directory, links,
/// notifications, the clipboard, and marks of prompts. Any other may, in some terminal.
const WITHOUT_COLOURS: [u32; 9] = [0, 1, 2, 7, 8, 9, 52, 133, 777];

/// Modes that the end of a client does not change: a blinking cursor is a matter of taste, and an
/// update that began has ended.
const LEFT_ALONE_AT_THE_END: [u32; 2] = [12, 2026];

/// What a client has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TerminalModes {
    /// The modes of `CSI ? h` and `CSI ? l` that are not as a terminal has them by default.
    modes: BTreeMap<u32, bool>,
    /// The sequence that set the rows that scroll, if not all of them do.
    margins: Option<Vec<u8>>,
    /// Whether characters push others to the right.
    inserts: bool,
    /// The sequence that chose another set of characters.
    characters: Option<Vec<u8>>,
    /// Whether the second set of characters is in use.
    shifted_out: bool,
    /// How many keyboard modes were put on the stack of each screen: the normal and the alternate.
    keyboard_depth: [u32; 2],
    /// Whether the keyboard mode of each screen was set without a stack.
    keyboard_set: [bool; 2],
    /// Whether keys are sent as xterm's modifyOtherKeys says.
    modifies_keys: bool,
    /// Whether colours that programs draw with may have been replaced by others.
    pub(super) colours_replaced: bool,
    /// The sequence that protects what is written from being erased.
    protection: Option<Vec<u8>>,
    /// The sequence that opened a link, if it is not closed.
    link: Option<Vec<u8>>,
    /// Whether characters are written into the terminal's status line.
    writes_status_line: bool,
    /// Whether the keyboard is locked.
    locks_keyboard: bool,
}

/// What a sequence is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SequenceKind {
    /// How keys are sent, in a way that is not a mode of `CSI ?`.
    Keyboard,
    Other,
}

impl TerminalModes {
    /// Takes note of a control character.
    pub(super) fn on_control(&mut self, byte: u8) {
        match byte {
            0x0e => self.shifted_out = true,
            0x0f => self.shifted_out = false,
            _ => {}
        }
    }

    /// Takes note of a sequence.
    pub(super) fn on_sequence(&mut self, sequence: &[u8]) -> SequenceKind {
        match sequence {
            b"\x1bc" => {
                // Not every terminal resets them.
                let colours_replaced = self.colours_replaced;
                *self = Self::default();
                self.colours_replaced = colours_replaced;
            }
            b"\x1bV" => self.protection = Some(sequence.to_vec()),
            b"\x1bW" => self.protection = None,
            [0x1b, b'(' | b')', set] => {
                let default = sequence == b"\x1b(B" || (*set == b'B' && self.characters.is_none());
                self.characters = (!default).then(|| sequence.to_vec());
            }
            [0x1b, b']', ..] => self.on_osc(sequence),
            _ => {
                if let Some(csi) = CsiSequence::parse(sequence) {
                    return self.on_csi(&csi, sequence);
                }
            }
        }
        SequenceKind::Other
    }

    fn on_osc(&mut self, sequence: &[u8]) {
        let mut parts = osc_text(sequence).split(|byte| *byte == b';');
        let number = parts.next().unwrap_or_default();
        let number = std::str::from_utf8(number).ok();
        let number: Option<u32> = number.and_then(|number| number.parse().ok());
        let parts: Vec<_> = parts.collect();
        let is_cut = sequence.len() >= MAX_SEQUENCE_BYTES;
        let is_question = |asked: &mut dyn Iterator<Item = &&[u8]>| {
            let mut asked = asked.peekable();
            !is_cut && asked.peek().is_some() && asked.all(|part| *part == b"?")
        };
        let leaves_colours = match number {
            // Each number of a colour is followed by the colour.
            Some(4 | 5) => {
                parts.len().is_multiple_of(2) && is_question(&mut parts.iter().skip(1).step_by(2))
            }
            Some(10..=19) => is_question(&mut parts.iter()),
            Some(number) => WITHOUT_COLOURS.contains(&number),
            None => false,
        };
        self.colours_replaced |= !leaves_colours;
        if number == Some(8) {
            let opens = parts
                .get(1..)
                .is_some_and(|address| address.iter().any(|it| !it.is_empty()));
            self.link =
                (opens && !is_cut).then(|| [b"\x1b]", osc_text(sequence), b"\x1b\\"].concat());
        }
    }

    fn on_csi(&mut self, csi: &CsiSequence<'_>, sequence: &[u8]) -> SequenceKind {
        let numbers = csi.numbers();
        let first = numbers.first().copied().flatten();
        let screen = usize::from(self.is_alternate());
        match (csi.prefix, csi.intermediates, csi.last) {
            (Some(b'?'), b"", b'h') => self.set_modes(&numbers, true),
            (Some(b'?'), b"", b'l') => self.set_modes(&numbers, false),
            (None, b"", b'h') if first == Some(4) => self.inserts = true,
            (None, b"", b'l') if first == Some(4) => self.inserts = false,
            (None, b"", b'h') if first == Some(2) => self.locks_keyboard = true,
            (None, b"", b'l') if first == Some(2) => self.locks_keyboard = false,
            (None, b"\"", b'q') => {
                let protects = first == Some(1);
                self.protection = protects.then(|| sequence.to_vec());
            }
            (None, b"$", b'}') => self.writes_status_line = first.unwrap_or(0) != 0,
            (None, b"", b'r') => {
                let all = csi.has_no_parameters();
                self.margins = (!all).then(|| sequence.to_vec());
            }
            (None, b"!", b'p') => {
                self.margins = None;
                self.characters = None;
                (self.inserts, self.shifted_out) = (false, false);
                for mode in [1, 6, 7, 25] {
                    self.modes.remove(&mode);
                }
            }
            (Some(b'>'), b"", b'u') => {
                let depth = &mut self.keyboard_depth[screen];
                *depth = (*depth + 1).min(MAX_KEYBOARD_DEPTH);
                return SequenceKind::Keyboard;
            }
            (Some(b'<'), b"", b'u') => {
                let count = first.unwrap_or(1).max(1);
                let depth = &mut self.keyboard_depth[screen];
                *depth = depth.saturating_sub(count);
                return SequenceKind::Keyboard;
            }
            (Some(b'='), b"", b'u') => {
                self.keyboard_set[screen] = first.unwrap_or(0) != 0;
                return SequenceKind::Keyboard;
            }
            (Some(b'>'), b"", b'm') if first == Some(4) => {
                let value = numbers.get(1).copied().flatten();
                self.modifies_keys = value.unwrap_or(0) != 0;
                return SequenceKind::Keyboard;
            }
            _ => {}
        }
        SequenceKind::Other
    }

    fn set_modes(&mut self, modes: &[Option<u32>], on: bool) {
        for mode in modes.iter().flatten() {
            if on == ON_BY_DEFAULT.contains(mode) {
                self.modes.remove(mode);
            } else if self.modes.len() < MAX_MODES || IMPORTANT.contains(mode) {
                self.modes.insert(*mode, on);
            }
        }
    }

    fn is_on(&self, mode: u32) -> bool {
        let by_default = || ON_BY_DEFAULT.contains(&mode);
        self.modes.get(&mode).copied().unwrap_or_else(by_default)
    }

    /// Whether the client draws on the alternate screen.
    pub(super) fn is_alternate(&self) -> bool {
        ALTERNATE_SCREEN.iter().any(|mode| self.is_on(*mode))
    }

    /// The sequences that bring back what [`DRAW_PLAINLY`] has changed; none if that is nothing.
    pub(super) fn drawing_sequences(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for mode in [69, 6, 7] {
            if self.modes.contains_key(&mode) {
                bytes.extend(self.mode_sequence(mode));
            }
        }
        if let Some(margins) = &self.margins {
            bytes.extend(margins);
        }
        if self.inserts {
            bytes.extend(b"\x1b[4h");
        }
        if let Some(characters) = &self.characters {
            bytes.extend(characters);
        }
        if self.shifted_out {
            bytes.push(0x0e);
        }
        bytes.extend(self.protection.iter().chain(&self.link).flatten());
        if self.writes_status_line {
            bytes.extend(b"\x1b[1$}");
        }
        if self.locks_keyboard {
            bytes.extend(b"\x1b[2h");
        }
        bytes
    }

    /// The sequence that sets a mode to what the client wants.
    pub(super) fn mode_sequence(&self, mode: u32) -> Vec<u8> {
        let letter = if self.is_on(mode) { 'h' } else { 'l' };
        format!("\x1b[?{mode}{letter}").into_bytes()
    }

    /// The sequences that turn the modes of `before` into these, except those that choose a screen.
    pub(super) fn changes_since(&self, before: &Self) -> Vec<u8> {
        let either = self.modes.keys().chain(before.modes.keys());
        let mut changed: Vec<_> = either
            .filter(|mode| self.is_on(**mode) != before.is_on(**mode))
            .filter(|mode| !ALTERNATE_SCREEN.contains(mode))
            .copied()
            .collect();
        changed.sort_unstable();
        changed.dedup();
        let sequences = changed
            .into_iter()
            .flat_map(|mode| self.mode_sequence(mode));
        sequences.collect()
    }

    /// The sequences that a client has left out which ended without tidying up.
    pub(super) fn reset_sequences(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let screen = usize::from(self.is_alternate());
        bytes.extend(self.keyboard_reset(screen));
        if self.modifies_keys {
            bytes.extend(b"\x1b[>4;0m");
        }
        if self.margins.is_some() {
            bytes.extend(b"\x1b[r");
        }
        if self.inserts {
            bytes.extend(b"\x1b[4l");
        }
        if self.characters.is_some() {
            bytes.extend(b"\x1b(B\x1b)B");
        }
        if self.shifted_out {
            bytes.push(0x0f);
        }
        if self.protection.is_some() {
            bytes.extend(UNPROTECT);
        }
        if self.link.is_some() {
            bytes.extend(CLOSE_LINK);
        }
        if self.writes_status_line {
            bytes.extend(b"\x1b[0$}");
        }
        if self.locks_keyboard {
            bytes.extend(b"\x1b[2l");
        }
        let changed = self.modes.iter();
        let changed = changed.filter(|(mode, _)| !LEFT_ALONE_AT_THE_END.contains(mode));
        for (mode, on) in changed {
            let letter = if *on { 'l' } else { 'h' };
            bytes.extend(format!("\x1b[?{mode}{letter}").bytes());
        }
        if screen == 1 {
            bytes.extend(self.keyboard_reset(0));
        }
        bytes
    }

    fn keyboard_reset(&self, screen: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let depth = self.keyboard_depth[screen];
        if depth > 0 {
            bytes.extend(format!("\x1b[<{depth}u").bytes());
        }
        if self.keyboard_set[screen] {
            bytes.extend(b"\x1b[=0u");
        }
        bytes
    }
}

/// The text of a sequence that begins with `ESC ]`, without what ends it.
fn osc_text(sequence: &[u8]) -> &[u8] {
    let text = sequence.strip_prefix(b"\x1b]").unwrap_or(sequence);
    let ends: [&[u8]; 6] = [b"\x1b\\", b"\xc2\x9c", b"\x07", b"\x18", b"\x1a", b"\x1b"];
    let end = ends.into_iter().find_map(|end| text.strip_suffix(end));
    end.unwrap_or(text)
}

/// Has characters drawn where and as they are written: on the screen, within no margins, counted
/// from the corner of the screen, wrapped, over others, from the usual set, in no colour, without a
/// link and protected from nothing; and has keys sent.
pub(super) const DRAW_PLAINLY: &[u8] = b"\x1b[2l\x1b[0$}\x1b[?69l\x1b[r\x1b[?6l\x1b[?7h\x1b[4l\x1b(B\x0f\x1bW\x1b[0\"q\x1b]8;;\x1b\\\x1b[0m";

const UNPROTECT: &[u8] = b"\x1bW\x1b[0\"q";
const CLOSE_LINK: &[u8] = b"\x1b]8;;\x1b\\";

/// Gives the colours back that programs draw with, in every way that terminals know.
pub(super) const RESET_COLOURS: &[u8] =
    b"\x1b]104\x1b\\\x1b]105\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\\x1b]112\x1b\\\x1b]117\x1b\\\x1b]119\x1b\\\x1b]21;foreground;background;selection_foreground;selection_background;cursor;cursor_text\x1b\\\x1b]R\x1b\\";

#[cfg(test)]
mod tests {
    use super::*;

    fn after(sequences: &[&[u8]]) -> TerminalModes {
        let mut modes = TerminalModes::default();
        for sequence in sequences {
            modes.on_sequence(sequence);
        }
        modes
    }

    #[test]
    fn a_client_that_tidies_up_leaves_nothing_to_reset() {
        let modes = after(&[
            b"\x1b[?1049h",
            b"\x1b[>1u",
            b"\x1b[?25l",
            b"\x1b[?2004h",
            b"\x1b[?1000;1006h",
            b"\x1b[?1004h",
            b"\x1b[>4;2m",
            b"\x1b[2;5r",
            b"\x1b[4h",
            b"\x1b(0",
            b"\x1b[?7l",
            // And back.
            b"\x1b[?7h",
            b"\x1b(B",
            b"\x1b[4l",
            b"\x1b[r",
            b"\x1b[>4m",
            b"\x1b[?1004l",
            b"\x1b[?1000;1006l",
            b"\x1b[?2004l",
            b"\x1b[?25h",
            b"\x1b[<u",
            b"\x1b[?1049l",
        ]);
        assert_eq!(modes, TerminalModes::default());
        assert_eq!(modes.reset_sequences(), b"");
    }

    #[test]
    fn what_a_client_leaves_behind_is_reset() {
        let modes = after(&[
            b"\x1b[>7u",
            b"\x1b[?1049h",
            b"\x1b[>1u",
            b"\x1b[>1u",
            b"\x1b[?25l",
            b"\x1b[?2004h",
        ]);
        assert!(modes.is_alternate());
        let reset = String::from_utf8(modes.reset_sequences()).unwrap();
        assert_eq!(reset, "\x1b[<2u\x1b[?25h\x1b[?1049l\x1b[?2004l\x1b[<1u");
        assert_eq!(after(&[b"\x1b[?1049h", b"\x1bc"]), TerminalModes::default());
    }

    #[test]
    fn what_changed_meanwhile_is_known() {
        let before = after(&[b"\x1b[?2004h", b"\x1b[?1004h"]);
        let mut later = before.clone();
        for sequence in [
            &b"\x1b[?1004l"[..],
            b"\x1b[?1003h",
            b"\x1b[?1049h",
            b"\x1b[?25l",
        ] {
            assert_eq!(later.on_sequence(sequence), SequenceKind::Other);
        }
        let changes = String::from_utf8(later.changes_since(&before)).unwrap();
        assert_eq!(changes, "\x1b[?25l\x1b[?1003h\x1b[?1004l");
        assert_eq!(later.changes_since(&later), b"");
        assert_eq!(later.on_sequence(b"\x1b[>1u"), SequenceKind::Keyboard);
    }

    #[test]
    fn only_what_is_known_to_be_harmless_leaves_the_colours_as_they_are() {
        for replaced in [
            &b"\x1b]4;1;#000000\x07"[..],
            b"\x1b]4;1;#000000;250;?\x07",
            b"\x1b]4;1;?;250;#000000\x07",
            b"\x1b]4;1;?;2\x07",
            b"\x1b]10;black\x1b\\",
            b"\x1b]10;#000000;?\x07",
            b"\x1b]10;?;#000000\x07",
            b"\x1b]10\x07",
            b"\x1b]4;1;#000000\xc2\x9c",
            b"\x1b]4;1;#000000\x1b",
            b"\x1b]4;1;#000000\x18",
            b"\x1b]21;foreground=#000000\x1b\\",
            b"\x1b]1337;SetColors=fg=000\x07",
            b"\x1b]P1000000\x1b",
            b"\x1b]004;1;#000000\x07",
            b"\x1b]\x07",
        ] {
            let text = String::from_utf8_lossy(replaced);
            assert!(after(&[replaced]).colours_replaced, "{text:?}");
            assert!(after(&[replaced, b"\x1bc"]).colours_replaced, "{text:?}");
        }
        let long = [&b"\x1b]4"[..], &b";1;?".repeat(MAX_SEQUENCE_BYTES)].concat();
        assert!(after(&[&long[..MAX_SEQUENCE_BYTES]]).colours_replaced);
        for other in [
            &b"\x1b]11;?\x07"[..],
            b"\x1b]10;?;?\x1b\\",
            b"\x1b]4;1;?;2;?\x1b\\",
            b"\x1b]0;title?\x07",
            b"\x1b]52;c;YQ==\x07",
            b"\x1b]8;;https://example.org\x1b\\",
            b"\x1b]133;A\x07",
            b"\x1b]777;notify;a;b\x07",
        ] {
            let text = String::from_utf8_lossy(other);
            assert!(!after(&[other]).colours_replaced, "{text:?}");
        }
    }

    #[test]
    fn what_is_protected_linked_or_elsewhere_comes_back_and_is_reset_at_the_end() {
        for (set, unset, again, reset) in [
            ("\x1bV", "\x1bW", "\x1bV", "\x1bW\x1b[0\"q"),
            ("\x1b[1\"q", "\x1b[0\"q", "\x1b[1\"q", "\x1bW\x1b[0\"q"),
            (
                "\x1b]8;id=1;http://a\x07",
                "\x1b]8;;\x07",
                "\x1b]8;id=1;http://a\x1b\\",
                "\x1b]8;;\x1b\\",
            ),
            ("\x1b[1$}", "\x1b[0$}", "\x1b[1$}", "\x1b[0$}"),
            ("\x1b[2h", "\x1b[2l", "\x1b[2h", "\x1b[2l"),
        ] {
            let modes = after(&[set.as_bytes()]);
            let text = |bytes| String::from_utf8(bytes).unwrap();
            assert_eq!(text(modes.drawing_sequences()), again, "{set:?}");
            assert_eq!(text(modes.reset_sequences()), reset, "{set:?}");
            let modes = after(&[set.as_bytes(), unset.as_bytes()]);
            assert_eq!(modes, TerminalModes::default(), "{set:?}");
        }
    }

    #[test]
    fn modes_without_end_take_no_memory_without_end() {
        let mut modes = TerminalModes::default();
        for number in 10_000..50_000 {
            modes.on_sequence(format!("\x1b[?{number}h").as_bytes());
            modes.on_sequence(b"\x1b[>1u");
        }
        assert_eq!(modes.modes.len(), MAX_MODES);
        assert_eq!(modes.keyboard_depth, [MAX_KEYBOARD_DEPTH, 0]);
        modes.on_sequence(b"\x1b[?1049h");
        assert!(modes.is_alternate());
        // What makes a terminal send more than keys is never forgotten.
        for mode in [
            9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 9001,
        ] {
            modes.on_sequence(format!("\x1b[?{mode}h").as_bytes());
            let reset = String::from_utf8(modes.reset_sequences()).unwrap();
            assert!(reset.contains(&format!("\x1b[?{mode}l")), "{mode}");
        }
    }
}
