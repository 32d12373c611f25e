//! Finds where escape sequences begin and end in what a program or a terminal sends.

/// Bytes of a sequence that are kept to look at; what is longer is a picture or a clipboard.
pub(super) const MAX_SEQUENCE_BYTES: usize = 4096;

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
const CANCEL: u8 = 0x18;
const SUBSTITUTE: u8 = 0x1a;

/// The first byte of a control character beyond ASCII, such as U+009B, in UTF-8.
const C1_PREFIX: u8 = 0xc2;

/// The second byte of the one that ends a text.
const C1_STRING_END: u8 = 0x9c;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ParserState {
    #[default]
    Ground,
    /// In a character of several bytes, of which so many are missing.
    Character { missing: u8 },
    /// After ESC, and what may follow it before the last byte.
    Escape,
    /// After `ESC [`.
    Csi,
    /// In a text that ends with ESC \: OSC, DCS, APC, PM or SOS. BEL also ends an OSC.
    Text { is_osc: bool },
    /// After an ESC in such a text.
    TextEscape,
}

/// What a byte completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParsedByte {
    /// Something goes on after it.
    Incomplete,
    /// A character, or a control character.
    Character,
    /// An escape sequence; [`EscapeParser::sequence`] has it.
    Sequence,
    /// An ESC that nothing belongs to, because another one follows.
    LoneEscape,
}

/// Takes bytes one by one, and says which of them belong together.
#[derive(Debug, Clone, Default)]
pub(super) struct EscapeParser {
    state: ParserState,
    sequence: Vec<u8>,
    /// Whether U+0080 to U+009F are what they are in some terminals: short for ESC and a letter.
    takes_c1: bool,
    /// The byte before, in a text.
    previous: u8,
    /// The text that another sequence has ended, which some terminals obey all the same.
    interrupted: Option<Vec<u8>>,
}

impl EscapeParser {
    /// Takes what a program prints. Terminals disagree about it, so the most that any of them
    /// understands is a sequence.
    pub(super) fn for_output() -> Self {
        Self {
            takes_c1: true,
            ..Self::default()
        }
    }

    /// The text that the last byte has ended without being its end.
    pub(super) fn take_interrupted(&mut self) -> Option<Vec<u8>> {
        self.interrupted.take()
    }

    /// Whether nothing is incomplete.
    pub(super) fn is_at_ground(&self) -> bool {
        self.state == ParserState::Ground
    }

    /// Whether an ESC was read, and nothing after it.
    pub(super) fn is_after_escape(&self) -> bool {
        match self.state {
            ParserState::Escape => self.sequence.len() == 1,
            ParserState::TextEscape => true,
            ParserState::Ground
            | ParserState::Character { .. }
            | ParserState::Csi
            | ParserState::Text { .. } => false,
        }
    }

    /// The sequence or character that is or was read last, up to [`MAX_SEQUENCE_BYTES`] of it.
    pub(super) fn sequence(&self) -> &[u8] {
        &self.sequence
    }

    /// Whether the sequence was longer than what is kept of it.
    pub(super) fn is_cut(&self) -> bool {
        self.sequence.len() == MAX_SEQUENCE_BYTES
    }

    /// Forgets what is incomplete.
    pub(super) fn reset(&mut self) {
        self.state = ParserState::Ground;
        self.sequence.clear();
    }

    pub(super) fn push(&mut self, byte: u8) -> ParsedByte {
        if self.state == ParserState::Ground {
            self.sequence.clear();
        }
        if self.sequence.len() < MAX_SEQUENCE_BYTES {
            self.sequence.push(byte);
        }
        let previous = std::mem::replace(&mut self.previous, byte);
        match (self.state, byte) {
            (ParserState::Ground, _) => self.begin(byte),
            (ParserState::Character { missing: 1 }, 0x80..=0x9f)
                if self.takes_c1 && self.sequence[0] == C1_PREFIX =>
            {
                let letter = byte - 0x40;
                self.restart(ESCAPE);
                self.sequence.push(letter);
                self.push_escape(letter)
            }
            (ParserState::Character { missing }, 0x80..=0xbf) => match missing {
                0 | 1 => self.complete(ParsedByte::Character),
                missing => self.go_on(ParserState::Character {
                    missing: missing - 1,
                }),
            },
            // The character stays incomplete; this byte begins something else.
            (ParserState::Character { .. }, _) => {
                self.restart(byte);
                self.begin(byte)
            }
            (_, CANCEL | SUBSTITUTE) => self.complete(ParsedByte::Sequence),
            (ParserState::Escape, ESCAPE) => {
                self.restart(byte);
                ParsedByte::LoneEscape
            }
            (ParserState::Escape, _) => self.push_escape(byte),
            (ParserState::Csi, ESCAPE) => {
                self.restart(byte);
                self.go_on(ParserState::Escape)
            }
            (ParserState::Csi, 0x40..=0x7e) => self.complete(ParsedByte::Sequence),
            (ParserState::Csi, _) => ParsedByte::Incomplete,
            (ParserState::Text { is_osc: true }, BELL) => self.complete(ParsedByte::Sequence),
            (ParserState::Text { .. }, C1_STRING_END) if self.takes_c1 && previous == C1_PREFIX => {
                self.complete(ParsedByte::Sequence)
            }
            (ParserState::Text { .. }, ESCAPE) => self.go_on(ParserState::TextEscape),
            (ParserState::Text { .. }, _) => ParsedByte::Incomplete,
            (ParserState::TextEscape, b'\\') => self.complete(ParsedByte::Sequence),
            // Another sequence ends the text.
            (ParserState::TextEscape, ESCAPE) => {
                self.interrupt();
                self.restart(byte);
                self.go_on(ParserState::Escape)
            }
            (ParserState::TextEscape, _) => {
                self.interrupt();
                self.restart(ESCAPE);
                self.sequence.push(byte);
                self.push_escape(byte)
            }
        }
    }

    /// A byte outside of any sequence.
    fn begin(&mut self, byte: u8) -> ParsedByte {
        let missing = match byte {
            ESCAPE => return self.go_on(ParserState::Escape),
            0xc2..=0xdf => 1,
            0xe0..=0xef => 2,
            0xf0..=0xf4 => 3,
            _ => return self.complete(ParsedByte::Character),
        };
        self.go_on(ParserState::Character { missing })
    }

    /// A byte after ESC.
    fn push_escape(&mut self, byte: u8) -> ParsedByte {
        // Only directly after the ESC do these begin something longer.
        let is_first = self.sequence.len() == 2;
        match byte {
            b'[' if is_first => self.go_on(ParserState::Csi),
            b']' if is_first => self.go_on(ParserState::Text { is_osc: true }),
            b'P' | b'_' | b'^' | b'X' if is_first => {
                self.go_on(ParserState::Text { is_osc: false })
            }
            // What may stand before the last byte, and controls, which count for themselves.
            0x00..=0x2f => self.go_on(ParserState::Escape),
            _ => self.complete(ParsedByte::Sequence),
        }
    }

    fn interrupt(&mut self) {
        // The byte behind the ESC is no part of it.
        if self.sequence.len() < MAX_SEQUENCE_BYTES {
            self.sequence.pop();
        }
        self.interrupted = Some(std::mem::take(&mut self.sequence));
    }

    fn restart(&mut self, byte: u8) {
        self.sequence.clear();
        self.sequence.push(byte);
    }

    fn go_on(&mut self, state: ParserState) -> ParsedByte {
        self.state = state;
        ParsedByte::Incomplete
    }

    fn complete(&mut self, parsed: ParsedByte) -> ParsedByte {
        self.state = ParserState::Ground;
        parsed
    }
}

/// The parts of a sequence that begins with `ESC [`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CsiSequence<'a> {
    /// `?`, `>`, `<` or `=` at the beginning.
    pub(super) prefix: Option<u8>,
    parameters: &'a [u8],
    /// What stands between the parameters and the last byte.
    pub(super) intermediates: &'a [u8],
    pub(super) last: u8,
}

impl<'a> CsiSequence<'a> {
    /// `None` if these bytes are not one whole sequence of this kind.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (&last, rest) = bytes.strip_prefix(b"\x1b[")?.split_last()?;
        if !(0x40..=0x7e).contains(&last) {
            return None;
        }
        let (prefix, rest) = match rest {
            [prefix @ (b'<' | b'=' | b'>' | b'?'), rest @ ..] => (Some(*prefix), rest),
            rest => (None, rest),
        };
        let is_parameter = |byte: &u8| matches!(byte, b'0'..=b'9' | b';' | b':');
        let end = rest.iter().position(|byte| !is_parameter(byte));
        let (parameters, intermediates) = rest.split_at(end.unwrap_or(rest.len()));
        let is_intermediate = |byte: &u8| (0x20..=0x2f).contains(byte);
        intermediates.iter().all(is_intermediate).then_some(Self {
            prefix,
            parameters,
            intermediates,
            last,
        })
    }

    /// The parameters, each with its parts; a part that is left out is `None`.
    pub(super) fn parameters(&self) -> Vec<Vec<Option<u32>>> {
        let text = std::str::from_utf8(self.parameters).unwrap_or_default();
        let part = |part: &str| part.parse().ok();
        let parameter = |parameter: &str| parameter.split(':').map(part).collect();
        text.split(';').map(parameter).collect()
    }

    /// The first parts of the parameters.
    pub(super) fn numbers(&self) -> Vec<Option<u32>> {
        let firsts = self.parameters().into_iter();
        firsts
            .map(|parts| parts.first().copied().flatten())
            .collect()
    }

    pub(super) fn has_no_parameters(&self) -> bool {
        self.parameters.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What belongs together, and what remains.
    fn parts(bytes: &[u8]) -> (Vec<String>, bool) {
        let mut parser = EscapeParser::default();
        let mut found = Vec::new();
        for byte in bytes {
            match parser.push(*byte) {
                ParsedByte::Incomplete => {}
                ParsedByte::Character => {
                    found.push(String::from_utf8_lossy(parser.sequence()).into_owned());
                }
                ParsedByte::Sequence => {
                    let text = String::from_utf8_lossy(parser.sequence()).into_owned();
                    found.push(text.replace('\u{1b}', "^"));
                }
                ParsedByte::LoneEscape => found.push("lone".to_owned()),
            }
        }
        (found, parser.is_at_ground())
    }

    #[test]
    fn characters_and_sequences_are_told_apart() {
        for (bytes, found, complete) in [
            (&b"ab\n"[..], &["a", "b", "\n"][..], true),
            ("世".as_bytes(), &["世"], true),
            (&"世".as_bytes()[..2], &[], false),
            (b"\xe4a", &["a"], true),
            (b"\xff\x80", &["\u{fffd}", "\u{fffd}"], true),
            (b"\x1b[1;31mx", &["^[1;31m", "x"], true),
            (b"\x1b[1;3", &[], false),
            (b"\x1b(0q", &["^(0", "q"], true),
            (b"\x1b7", &["^7"], true),
            (b"\x1b]0;a\x07b", &["^]0;a\u{7}", "b"], true),
            (b"\x1b]52;c;YQ==\x1b\\a", &["^]52;c;YQ==^\\", "a"], true),
            (b"\x1bP1$r\x07a\x1b\\", &["^P1$r\u{7}a^\\"], true),
            (b"\x1b_Gi=1;OK\x1b\\", &["^_Gi=1;OK^\\"], true),
            (b"\x1b]0;never ends", &[], false),
            // Another sequence, or CAN, ends what has not ended.
            (b"\x1b]0;a\x1b[m", &["^[m"], true),
            (b"\x1b[1\x1b[2m", &["^[2m"], true),
            (b"\x1b]0;a\x18b", &["^]0;a\u{18}", "b"], true),
            (b"\x1b\x1b[A", &["lone", "^[A"], true),
        ] {
            let found: Vec<_> = found.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(parts(bytes), (found, complete), "{bytes:?}");
        }
    }

    #[test]
    fn what_a_program_prints_is_understood_as_any_terminal_does() {
        let understood = |bytes: &[u8]| {
            let mut parser = EscapeParser::for_output();
            let mut found = Vec::new();
            for byte in bytes {
                let parsed = parser.push(*byte);
                found.extend(parser.take_interrupted());
                if parsed == ParsedByte::Sequence {
                    found.push(parser.sequence().to_vec());
                }
            }
            let texts = found
                .iter()
                .map(|it| String::from_utf8_lossy(it).into_owned());
            let texts: Vec<_> = texts.map(|it| it.replace('\u{1b}', "^")).collect();
            (texts.join(" "), parser.is_at_ground())
        };
        for (text, found) in [
            ("\u{9b}?1003h", "^[?1003h"),
            ("\u{9d}4;1;x\u{9c}a", "^]4;1;x\u{9c}"),
            ("\u{9d}4;1;x\u{7}a", "^]4;1;x\u{7}"),
            ("\u{1b}]4;1;x\u{9c}a", "^]4;1;x\u{9c}"),
            ("\u{96}a", "^V"),
            ("\u{1b}]4;1;x\u{1b}[m", "^]4;1;x^ ^[m"),
            ("\u{1b}]4;1;x\u{1b}\u{1b}c", "^]4;1;x^ ^c"),
            ("é\u{a0}世", ""),
        ] {
            assert_eq!(
                understood(text.as_bytes()),
                (found.to_owned(), true),
                "{text:?}"
            );
        }
        // What a terminal sends is not read so.
        assert_eq!(parts("\u{9b}A".as_bytes()).0, ["\u{9b}", "A"]);
    }

    #[test]
    fn a_sequence_without_end_takes_no_memory_without_end() {
        let mut parser = EscapeParser::default();
        for byte in b"\x1b]52;c;".iter().chain([b'A'; 100_000].iter()) {
            assert_eq!(parser.push(*byte), ParsedByte::Incomplete);
        }
        assert_eq!(parser.sequence().len(), MAX_SEQUENCE_BYTES);
        assert_eq!(parser.push(0x07), ParsedByte::Sequence);
        assert!(parser.is_at_ground());
    }

    #[test]
    fn parameters_are_read() {
        let csi = CsiSequence::parse(b"\x1b[93:125;5:1u").unwrap();
        assert_eq!(
            csi.parameters(),
            [vec![Some(93), Some(125)], vec![Some(5), Some(1)]]
        );
        assert_eq!(csi.numbers(), [Some(93), Some(5)]);
        let csi = CsiSequence::parse(b"\x1b[?25h").unwrap();
        assert_eq!((csi.prefix, csi.last), (Some(b'?'), b'h'));
        let csi = CsiSequence::parse(b"\x1b[2 q").unwrap();
        assert_eq!((csi.intermediates, csi.last), (&b" "[..], b'q'));
        assert_eq!(CsiSequence::parse(b"\x1b[1\n2m"), None);
        assert_eq!(CsiSequence::parse(b"\x1b]0;m"), None);
        let csi = CsiSequence::parse(b"\x1b[999999999999;1A").unwrap();
        assert_eq!(csi.numbers(), [None, Some(1)]);
    }
}
