//! The screen of a client: passes on what the client prints, keeps it while a card is over it, and
//! then gives the terminal back as the client left it.

use std::num::NonZeroU16;

use rustix::termios::Winsize;

use super::escape_parser::{EscapeParser, ParsedByte};
use super::terminal_modes::{DRAW_PLAINLY, RESET_COLOURS, SequenceKind, TerminalModes};

/// Bytes of an unfinished sequence that wait for its end before the terminal gets them.
const MAX_HELD_BYTES: usize = 64 * 1024;

/// Bytes that are kept while a card is open, enough for an hour of a client that counts seconds.
/// After more than that, only what the screen looks like then is shown.
const MAX_KEPT_BYTES: usize = if cfg!(test) { 64 } else { 8 * 1024 } * 1024;

/// Bytes of sequences about the keyboard that are kept beyond that.
const MAX_KEYBOARD_BYTES: usize = 4096;

/// The largest screen that is remembered.
const MAX_ROWS: u16 = 1000;
const MAX_COLUMNS: u16 = 2000;

/// Ends whatever sequence and update of the screen a client has begun.
const END_ANY_SEQUENCE: &[u8] = b"\x18\x1b\\\x1b[?2026l";

/// What is under a card.
struct CoveredScreen {
    /// What the client had drawn when the card was opened.
    screen: vt100::Screen,
    /// The modes that it had set then.
    modes: TerminalModes,
    /// What it has printed since, unless that is too much.
    printed: Vec<u8>,
    /// Whether it was too much.
    overflowed: bool,
    /// The sequences about the keyboard in what was too much.
    keyboard: Vec<u8>,
    /// Whether the terminal has another size since.
    resized: bool,
    /// Whether the end of a sequence comes of which the terminal has the beginning.
    skips_rest: bool,
}

/// Whether a client has to draw its screen again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientRedraw {
    NotNeeded,
    /// The screen is as far as it can be known, but not to the last attribute.
    Wanted,
}

pub(super) struct ClientScreen {
    /// What the client has drawn.
    parser: vt100::Parser,
    /// Where its sequences begin and end.
    sequences: EscapeParser,
    /// The modes that it has set.
    modes: TerminalModes,
    /// The beginning of a sequence that has not ended.
    held: Vec<u8>,
    /// Whether the terminal has the beginning of a sequence that is too long to be held.
    passed_beginning: bool,
    /// What is under the card, while one is open.
    covered: Option<Box<CoveredScreen>>,
}

impl ClientScreen {
    pub(super) fn new(size: Winsize) -> Self {
        let (rows, columns) = bounded_size(size);
        Self {
            parser: vt100::Parser::new(rows, columns, 0),
            sequences: EscapeParser::for_output(),
            modes: TerminalModes::default(),
            held: Vec::new(),
            passed_beginning: false,
            covered: None,
        }
    }

    pub(super) fn resize(&mut self, size: Winsize) {
        let (rows, columns) = bounded_size(size);
        self.parser.set_size(rows, columns);
        if let Some(covered) = &mut self.covered {
            covered.resized = true;
        }
    }

    /// Takes what the client prints; returns what the terminal gets now. That ends with whole
    /// sequences and characters, so that others can be written after it.
    pub(super) fn print(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.parser.process(bytes);
        let complete = self.follow_sequences(bytes);
        let mut passed = std::mem::take(&mut self.held);
        match complete {
            Some((first, last)) => {
                let skipped = if self.skips_rest() { first } else { 0 };
                if let Some(covered) = &mut self.covered {
                    covered.skips_rest = false;
                }
                passed.extend(&bytes[skipped..last]);
                self.passed_beginning = false;
                self.held.extend(&bytes[last..]);
            }
            None if self.skips_rest() => {}
            None if self.passed_beginning || passed.len() + bytes.len() > MAX_HELD_BYTES => {
                passed.extend(bytes);
                self.passed_beginning = true;
            }
            None => {
                passed.extend(bytes);
                std::mem::swap(&mut passed, &mut self.held);
            }
        }
        match &mut self.covered {
            Some(covered) => {
                covered.keep(passed);
                Vec::new()
            }
            None => passed,
        }
    }

    fn skips_rest(&self) -> bool {
        let covered = self.covered.as_ref();
        covered.is_some_and(|covered| covered.skips_rest)
    }

    /// Follows where sequences end; returns where the first and the last thing ends that is whole.
    fn follow_sequences(&mut self, bytes: &[u8]) -> Option<(usize, usize)> {
        let mut ends: Option<(usize, usize)> = None;
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            if self.sequences.is_at_ground() {
                // Most of what is printed is text, of which nothing has to be known.
                let is_text = |byte: &&u8| (b' '..=b'~').contains(*byte);
                let count = bytes[at..].iter().take_while(is_text).count();
                if count > 0 {
                    let first = ends.map_or(at + 1, |(first, _)| first);
                    at += count;
                    ends = Some((first, at));
                    continue;
                }
            }
            at += 1;
            let parsed = self.sequences.push(*byte);
            if let Some(text) = self.sequences.take_interrupted() {
                self.modes.on_sequence(&text);
            }
            match parsed {
                ParsedByte::Incomplete => continue,
                ParsedByte::LoneEscape => continue,
                ParsedByte::Character => self.modes.on_control(*byte),
                ParsedByte::Sequence => {
                    let kind = self.modes.on_sequence(self.sequences.sequence());
                    if let (SequenceKind::Keyboard, Some(covered)) = (kind, &mut self.covered) {
                        covered.keep_keyboard(self.sequences.sequence());
                    }
                }
            }
            ends = Some((ends.map_or(at, |(first, _)| first), at));
        }
        ends
    }

    /// Begins to keep what the client prints; returns what makes room for a card.
    pub(super) fn cover(&mut self) -> Vec<u8> {
        let screen = self.parser.screen().clone();
        let mut bytes = END_ANY_SEQUENCE.to_vec();
        bytes.extend(match self.modes.is_alternate() {
            // The terminal itself keeps the normal screen, but there is only one other.
            false => &b"\x1b[?1049h"[..],
            true => b"\x1b7",
        });
        bytes.extend(DRAW_PLAINLY);
        // A text that is cut here may be obeyed so far.
        if self.modes.colours_replaced || self.passed_beginning {
            // They may hide what the card says.
            bytes.extend(RESET_COLOURS);
            self.modes.colours_replaced = false;
        }
        bytes.extend(b"\x1b[?5l\x1b[2J\x1b[H\x1b[?25l\x1b[?2004h");
        self.covered = Some(Box::new(CoveredScreen {
            screen,
            modes: self.modes.clone(),
            printed: Vec::new(),
            overflowed: false,
            keyboard: Vec::new(),
            resized: false,
            skips_rest: self.passed_beginning,
        }));
        bytes
    }

    /// Returns what gives the terminal back to the client, with everything that it has printed
    /// meanwhile.
    pub(super) fn uncover(&mut self) -> (Vec<u8>, ClientRedraw) {
        let Some(covered) = self.covered.take() else {
            return (Vec::new(), ClientRedraw::NotNeeded);
        };
        let mut bytes = DRAW_PLAINLY.to_vec();
        let was_alternate = covered.modes.is_alternate();
        if covered.overflowed {
            self.show_present(&covered, &mut bytes);
            return (bytes, ClientRedraw::Wanted);
        }
        bytes.extend(match was_alternate {
            false => b"\x1b[?1049l".to_vec(),
            // What the terminal showed then does not fit any more.
            true if covered.resized => b"\x1b[2J\x1b8".to_vec(),
            true => {
                let drawn = covered.screen.contents_formatted();
                [drawn.as_bytes(), b"\x1b8"].concat()
            }
        });
        bytes.extend(with_cursor_kept(covered.modes.drawing_sequences()));
        for mode in [5, 25, 2004] {
            bytes.extend(covered.modes.mode_sequence(mode));
        }
        bytes.extend(covered.printed);
        match was_alternate {
            true => (bytes, ClientRedraw::Wanted),
            false => (bytes, ClientRedraw::NotNeeded),
        }
    }

    /// Shows what the client's screen looks like, without how it came to that.
    fn show_present(&self, covered: &CoveredScreen, bytes: &mut Vec<u8>) {
        let (was, is) = (covered.modes.is_alternate(), self.modes.is_alternate());
        match (was, is) {
            (false, false) | (true, false) => bytes.extend(b"\x1b[?1049l"),
            (false, true) => bytes.extend(b"\x1b[?1049l\x1b[?1049h"),
            (true, true) => {}
        }
        let mut before = covered.modes.clone();
        // A card needs these.
        before.on_sequence(b"\x1b[?5l");
        before.on_sequence(b"\x1b[?25l");
        before.on_sequence(b"\x1b[?2004h");
        bytes.extend(&covered.keyboard);
        bytes.extend(self.parser.screen().state_formatted().bytes());
        bytes.extend(self.modes.changes_since(&before));
        bytes.extend(with_cursor_kept(self.modes.drawing_sequences()));
    }

    /// Returns what the terminal gets when the client has ended: the rest of what it printed, and
    /// what it should have tidied up.
    pub(super) fn end(&mut self) -> Vec<u8> {
        let (mut bytes, _) = self.uncover();
        // A sequence that nobody finishes would take the next program's text for its own.
        self.held.clear();
        if std::mem::take(&mut self.passed_beginning) {
            bytes.extend(END_ANY_SEQUENCE);
        }
        let reset = self.modes.reset_sequences();
        if !reset.is_empty() {
            bytes.extend(b"\x1b[0m");
        }
        bytes.extend(reset);
        bytes
    }
}

impl CoveredScreen {
    fn keep(&mut self, bytes: Vec<u8>) {
        if self.overflowed {
            return;
        }
        if self.printed.len() + bytes.len() > MAX_KEPT_BYTES {
            self.overflowed = true;
            self.printed = Vec::new();
            return;
        }
        self.printed.extend(bytes);
    }

    fn keep_keyboard(&mut self, sequence: &[u8]) {
        if self.keyboard.len() + sequence.len() <= MAX_KEYBOARD_BYTES {
            self.keyboard.extend(sequence);
        }
    }
}

/// Sequences between which the cursor may move, and is then where it was.
fn with_cursor_kept(sequences: Vec<u8>) -> Vec<u8> {
    match sequences.is_empty() {
        true => sequences,
        false => [&b"\x1b7"[..], &sequences, b"\x1b8"].concat(),
    }
}

pub(super) fn bounded_size(size: Winsize) -> (NonZeroU16, NonZeroU16) {
    let rows = NonZeroU16::new(size.ws_row.clamp(2, MAX_ROWS));
    let columns = NonZeroU16::new(size.ws_col.clamp(2, MAX_COLUMNS));
    (
        rows.unwrap_or(NonZeroU16::MIN),
        columns.unwrap_or(NonZeroU16::MIN),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: Winsize = Winsize {
        ws_row: 12,
        ws_col: 40,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };

    /// A terminal, and a client's screen on it.
    struct Shown {
        client: ClientScreen,
        terminal: vt100::Parser,
        bytes: Vec<u8>,
    }

    impl Shown {
        fn new() -> Self {
            let (rows, columns) = bounded_size(SIZE);
            Self {
                client: ClientScreen::new(SIZE),
                terminal: vt100::Parser::new(rows, columns, 0),
                bytes: Vec::new(),
            }
        }

        fn write(&mut self, bytes: &[u8]) {
            self.terminal.process(bytes);
            self.bytes.extend(bytes);
        }

        fn print(&mut self, bytes: &[u8]) {
            let passed = self.client.print(bytes);
            self.write(&passed);
        }

        fn cover(&mut self) {
            let bytes = self.client.cover();
            self.write(&bytes);
            self.write(b"\x1b[3;3H\x1b[1;31m\x1b[44mTHE CARD\x1b[?25h\x1b[0m");
        }

        fn uncover(&mut self) -> ClientRedraw {
            let (bytes, redraw) = self.client.uncover();
            self.write(&bytes);
            redraw
        }

        /// Everything that can be seen, and the modes.
        fn state(&self) -> (String, bool, (u16, u16)) {
            let screen = self.terminal.screen();
            (
                screen.state_formatted(),
                screen.alternate_screen(),
                screen.cursor_position(),
            )
        }
    }

    /// What a terminal shows to which a client prints this directly.
    fn direct(printed: &[&[u8]]) -> (String, bool, (u16, u16)) {
        let mut shown = Shown::new();
        for bytes in printed {
            shown.write(bytes);
        }
        shown.state()
    }

    const SCREENS: [&[u8]; 6] = [
        b"",
        b"one\r\ntwo \x1b[1;32mgreen\x1b[0m \x1b[7mback",
        b"\x1b[?2004h\x1b[?1004h\x1b[>1u\x1b[?25l\x1b[5;9H\x1b[38;2;1;2;3mcolour \xe4\xb8\x96\xe7\x95\x8c",
        b"before\x1b[?1049h\x1b[2J\x1b[?1002;1006h\x1b[?2004h\x1b[2;2Hinside\x1b[4;38Hedge\x1b[3m",
        b"\x1b[3;7r\x1b[5;1Hin the middle\x1b[?1h\x1b=",
        b"\x1b[12;40Hx",
    ];

    #[test]
    fn without_a_card_every_byte_passes() {
        for screen in SCREENS {
            for size in [1, 2, 3, 7, 1000] {
                let mut shown = Shown::new();
                for piece in screen.chunks(size) {
                    shown.print(piece);
                }
                assert_eq!(shown.bytes, *screen);
            }
        }
    }

    #[test]
    fn after_a_card_the_screen_is_as_it_was() {
        for screen in SCREENS {
            let mut shown = Shown::new();
            shown.print(screen);
            shown.cover();
            assert!(shown.terminal.screen().contents().contains("THE CARD"));
            assert!(shown.terminal.screen().bracketed_paste());
            let redraw = shown.uncover();
            let text = String::from_utf8_lossy(screen);
            assert_eq!(shown.state(), direct(&[screen]), "{text:?}");
            let is_alternate = text.contains("?1049h");
            assert_eq!(redraw == ClientRedraw::Wanted, is_alternate);
        }
    }

    #[test]
    fn what_the_client_prints_under_a_card_is_there_afterwards() {
        for (before, meanwhile) in SCREENS
            .iter()
            .flat_map(|it| SCREENS.map(|other| (*it, other)))
        {
            let mut shown = Shown::new();
            shown.print(before);
            shown.cover();
            let covered = shown.bytes.len();
            for piece in meanwhile.chunks(5) {
                shown.print(piece);
            }
            let written = &shown.bytes[covered..];
            assert!(written.is_empty(), "nothing reaches the terminal meanwhile");
            shown.uncover();
            shown.print(b"!");
            assert_eq!(
                shown.state(),
                direct(&[before, meanwhile, b"!"]),
                "{before:?} {meanwhile:?}"
            );
        }
    }

    #[test]
    fn of_too_much_output_the_end_is_shown_and_no_mode_is_lost() {
        let line = [&[b'x'; 30][..], b"\r\n"].concat();
        let flood = line.repeat(MAX_KEPT_BYTES / line.len() + 10);
        for (before, after) in SCREENS
            .iter()
            .flat_map(|it| SCREENS.map(|other| (*it, other)))
        {
            let mut shown = Shown::new();
            shown.print(before);
            shown.cover();
            shown.print(&flood);
            let covered = shown.client.covered.as_ref().unwrap();
            assert!(covered.overflowed && covered.printed.capacity() == 0);
            shown.print(after);
            assert_eq!(shown.uncover(), ClientRedraw::Wanted);
            let expected = direct(&[before, &flood, after]);
            let expected_modes = shown.client.modes.clone();
            assert_eq!(shown.state(), expected, "{before:?} {after:?}");
            let mut modes = TerminalModes::default();
            let mut parser = EscapeParser::default();
            for byte in &shown.bytes {
                if parser.push(*byte) == ParsedByte::Sequence {
                    modes.on_sequence(parser.sequence());
                }
            }
            assert_eq!(modes.reset_sequences(), expected_modes.reset_sequences());
        }
    }

    #[test]
    fn a_sequence_that_is_cut_by_the_card_is_whole_afterwards() {
        let printed = b"a\x1b[1;3;4;31mb\xe4\xb8\x96c\x1b]0;title\x1b\\d";
        for at in 0..printed.len() {
            let mut shown = Shown::new();
            shown.print(&printed[..at]);
            shown.cover();
            let text = shown.terminal.screen().contents();
            assert!(text.contains("THE CARD"), "{at}: {text}");
            shown.uncover();
            shown.print(&printed[at..]);
            assert_eq!(shown.state(), direct(&[printed]), "{at}");
        }
    }

    #[test]
    fn a_client_that_never_ends_a_sequence_cannot_hide_the_card() {
        let mut shown = Shown::new();
        shown.print(b"text\x1b]0;");
        shown.print(&vec![b'a'; MAX_HELD_BYTES]);
        assert!(
            shown.bytes.len() > MAX_HELD_BYTES,
            "it is not held for ever"
        );
        shown.cover();
        assert!(shown.terminal.screen().contents().contains("THE CARD"));
        shown.print(b"more title\x07and text");
        shown.uncover();
        assert_eq!(shown.terminal.screen().contents(), "textand text");
    }

    #[test]
    fn what_changes_how_text_is_drawn_is_undone_for_the_card() {
        let mut shown = Shown::new();
        let hostile =
            b"\x1b[?69h\x1b[2;4r\x1b[?6h\x1b[4h\x1b(0\x0e\x1b[?7l\x1b]10;#000\x07\x1b[?2026h";
        shown.print(hostile);
        let begun = shown.bytes.len();
        shown.cover();
        let text = String::from_utf8_lossy(&shown.bytes[begun..]).into_owned();
        for undone in [
            "\x18\x1b\\",
            "\x1b[?69l",
            "\x1b[r",
            "\x1b[?6l",
            "\x1b[4l",
            "\x1b(B",
            "\x0f",
            "\x1b[?7h",
            "\x1b]110\x1b\\",
            "\x1bW",
            "\x1b[0\"q",
            "\x1b]8;;\x1b\\",
            "\x1b[0$}",
            "\x1b[2l",
            "\x1b[?2026l",
        ] {
            assert!(text.contains(undone), "{undone:?} in {text:?}");
        }
        let begun = shown.bytes.len();
        shown.uncover();
        let text = String::from_utf8_lossy(&shown.bytes[begun..]).into_owned();
        let (_, after) = text.split_once("\x1b[?1049l").unwrap();
        for again in [
            "\x1b[?69h",
            "\x1b[2;4r",
            "\x1b[?6h",
            "\x1b[4h",
            "\x1b(0",
            "\x0e",
            "\x1b[?7l",
        ] {
            assert!(after.contains(again), "{again:?} in {after:?}");
        }
    }

    #[test]
    fn a_client_that_is_killed_leaves_nothing_behind() {
        for screen in SCREENS {
            let mut shown = Shown::new();
            shown.print(screen);
            shown.cover();
            let rest = shown.client.end();
            shown.write(&rest);
            let screen = shown.terminal.screen();
            let mouse = screen.mouse_protocol_mode();
            assert!(!screen.alternate_screen() && !screen.bracketed_paste());
            assert!(!screen.hide_cursor() && !screen.application_cursor());
            assert_eq!(mouse, vt100::MouseProtocolMode::None);
        }
        let mut shown = Shown::new();
        shown.print(b"tidy\x1b[?1049h\x1b[?1049l\x1b[1mbold\x1b[0m");
        assert_eq!(shown.client.end(), b"", "nothing is added to what was tidy");
    }

    #[test]
    fn every_way_to_replace_colours_is_undone_for_the_card_and_others_are_left_alone() {
        let resets = |printed: &str| {
            let mut shown = Shown::new();
            shown.print(printed.as_bytes());
            let begun = shown.bytes.len();
            shown.cover();
            let text = String::from_utf8_lossy(&shown.bytes[begun..]).into_owned();
            ["\x1b]104\x1b\\", "\x1b]110\x1b\\", "\x1b]21;", "\x1b]R"]
                .iter()
                .all(|reset| text.contains(reset))
        };
        for printed in [
            "\u{1b}]4;1;#000000\u{7}",
            "\u{1b}]4;1;#000000;250;?\u{7}",
            "\u{1b}]10;#000000;?\u{7}",
            "\u{1b}]4;1;#000000\u{1b}[m",
            "\u{1b}]4;1;#000000\u{1b}\u{1b}[m",
            "\u{9d}4;1;#000000\u{9c}",
            "\u{9d}4;1;#000000\u{7}",
            "\u{1b}]21;foreground=#000000\u{1b}\\",
        ] {
            assert!(resets(printed), "{printed:?}");
        }
        let unfinished = format!("\u{1b}]4;1;#000000{}", "0".repeat(MAX_HELD_BYTES));
        assert!(resets(&unfinished));
        for printed in ["\u{1b}]0;title\u{7}", "\u{1b}]11;?\u{1b}\\", "text"] {
            assert!(!resets(printed), "{printed:?}");
        }
    }

    #[test]
    fn a_sequence_without_end_is_not_kept() {
        #[derive(Default)]
        struct LongestTitle(usize);
        impl vt100::Callbacks for LongestTitle {
            fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
                self.0 = self.0.max(title.len());
            }
        }
        // With the feature `std` of `vte`, the parser keeps all of it.
        let (rows, columns) = bounded_size(SIZE);
        let mut parser = vt100::Parser::new_with_callbacks(rows, columns, 0, LongestTitle(0));
        parser.process(b"\x1b]0;");
        parser.process(&vec![b'A'; 1024 * 1024]);
        parser.process(b"\x07");
        let kept = parser.callbacks().0;
        assert!((1..=4096).contains(&kept), "{kept}");
    }

    proptest! {
        #[test]
        fn whatever_a_client_prints_the_screen_comes_back(
            before in "(\\PC|[\u{0}-\u{ff}]|\u{1b}\\[[?0-9;]{0,6}[A-HJKLMPSTXdfhlm]|\u{1b}[78M=>]|世){0,60}",
            meanwhile in "(\\PC|[\u{0}-\u{ff}]|\u{1b}\\[[?0-9;]{0,6}[A-HJKLMPSTXdfhlm]|\u{1b}[78M=>]|世){0,60}",
            size in 1..9_usize,
        ) {
            let mut shown = Shown::new();
            for piece in before.as_bytes().chunks(size) {
                shown.print(piece);
            }
            shown.cover();
            prop_assert!(shown.terminal.screen().contents().contains("THE CARD"));
            for piece in meanwhile.as_bytes().chunks(size) {
                shown.print(piece);
            }
            shown.uncover();
            // What has not ended yet ends here.
            shown.print(b"\x18");
            // The card uses the place where a client may have kept its cursor.
            if !before.contains("\u{1b}7") && !meanwhile.contains("\u{1b}8") {
                let (expected, _, _) = direct(&[before.as_bytes(), meanwhile.as_bytes(), b"\x18"]);
                prop_assert_eq!(shown.state().0, expected);
            }
            let rest = shown.client.end();
            shown.write(&rest);
            prop_assert!(!shown.terminal.screen().alternate_screen());
        }
    }
}
