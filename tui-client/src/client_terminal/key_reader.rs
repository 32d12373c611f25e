//! Reads keys from what a terminal sends while a card is open, and tells them apart from what nobody
//! pressed: pasted text, and answers of the terminal to questions that the client asked.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::answer_key::AnswerKey;
use super::escape_parser::{CsiSequence, EscapeParser, ParsedByte};

/// Bytes of a pasted text that are taken; the rest is dropped.
const MAX_PASTE_BYTES: usize = 256 * 1024;

/// Bytes that follow `CSI M`, the oldest way to report the mouse.
const OLD_MOUSE_BYTES: u8 = 3;

/// The event types of kitty's protocol.
const REPEATED: u32 = 2;
const RELEASED: u32 = 3;

/// What a terminal has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TerminalInput {
    /// A key was pressed.
    Key(KeyEvent),
    /// The key that opened the card was pressed again.
    AnswerKey,
    Paste(String),
    /// An answer to a question of the client, or news such as a change of focus.
    Report(Vec<u8>),
    /// Nothing that counts: the mouse, a key that was held or released.
    Ignored,
}

#[derive(Debug, Clone)]
pub(super) struct KeyReader {
    key: AnswerKey,
    parser: EscapeParser,
    /// The text that is being pasted.
    paste: Option<Vec<u8>>,
    /// Bytes to skip of a report of the mouse.
    mouse_bytes: u8,
    /// Whether `ESC O` was read, of which the next byte is a part.
    after_ss3: bool,
}

impl KeyReader {
    pub(super) fn new(key: AnswerKey) -> Self {
        Self {
            key,
            parser: EscapeParser::default(),
            paste: None,
            mouse_bytes: 0,
            after_ss3: false,
        }
    }

    /// Whether nothing is incomplete.
    pub(super) fn is_idle(&self) -> bool {
        let in_paste = self.paste.is_some();
        !in_paste && self.mouse_bytes == 0 && !self.after_ss3 && self.parser.is_at_ground()
    }

    pub(super) fn is_pasting(&self) -> bool {
        self.paste.is_some()
    }

    /// Whether an ESC was read that may be a key of its own, or the beginning of a sequence.
    pub(super) fn is_after_escape(&self) -> bool {
        self.paste.is_none() && self.parser.is_after_escape()
    }

    /// Nothing followed the ESC, so it was a key.
    pub(super) fn take_escape(&mut self) -> TerminalInput {
        self.parser.reset();
        key(KeyCode::Esc, KeyModifiers::NONE)
    }

    /// Forgets what is incomplete.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.key);
    }

    /// Takes the next byte; `None` if something goes on after it.
    pub(super) fn push(&mut self, byte: u8) -> Option<TerminalInput> {
        if self.mouse_bytes > 0 {
            self.mouse_bytes -= 1;
            return (self.mouse_bytes == 0).then_some(TerminalInput::Ignored);
        }
        let parsed = self.parser.push(byte);
        if self.paste.is_some() {
            return self.push_pasted(parsed);
        }
        if std::mem::take(&mut self.after_ss3) {
            return Some(ss3_key(byte));
        }
        match parsed {
            ParsedByte::Incomplete => None,
            ParsedByte::LoneEscape => Some(key(KeyCode::Esc, KeyModifiers::NONE)),
            ParsedByte::Character => Some(self.on_character(byte)),
            ParsedByte::Sequence => self.on_sequence(),
        }
    }

    fn push_pasted(&mut self, parsed: ParsedByte) -> Option<TerminalInput> {
        if parsed == ParsedByte::Incomplete {
            return None;
        }
        if self.parser.sequence() == b"\x1b[201~" {
            let pasted = self.paste.take().unwrap_or_default();
            let text = String::from_utf8_lossy(&pasted).into_owned();
            return Some(TerminalInput::Paste(text));
        }
        let pasted = self.paste.get_or_insert_default();
        let bytes = self.parser.sequence();
        if pasted.len() + bytes.len() <= MAX_PASTE_BYTES {
            pasted.extend(bytes);
        }
        None
    }

    fn on_character(&self, byte: u8) -> TerminalInput {
        if byte == self.key.control_byte() {
            return TerminalInput::AnswerKey;
        }
        let text = std::str::from_utf8(self.parser.sequence());
        match text.ok().and_then(|text| text.chars().next()) {
            Some(character) => plain_key(character, KeyModifiers::NONE),
            None => TerminalInput::Ignored,
        }
    }

    fn on_sequence(&mut self) -> Option<TerminalInput> {
        let sequence = self.parser.sequence();
        let input = match sequence {
            // Half of an answer is worse than none.
            _ if self.parser.is_cut() => TerminalInput::Ignored,
            b"\x1b[200~" => {
                self.paste = Some(Vec::new());
                return None;
            }
            b"\x1b[M" => {
                self.mouse_bytes = OLD_MOUSE_BYTES;
                return None;
            }
            b"\x1bO" => {
                self.after_ss3 = true;
                return None;
            }
            [0x1b, letter] if !letter.is_ascii_control() || *letter == 0x7f => {
                plain_key(char::from(*letter), KeyModifiers::ALT)
            }
            _ => match CsiSequence::parse(sequence) {
                Some(csi) if self.key.is_sent_as(&csi) => TerminalInput::AnswerKey,
                Some(csi) => csi_input(&csi, sequence),
                None => TerminalInput::Report(sequence.to_vec()),
            },
        };
        Some(input)
    }
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> TerminalInput {
    TerminalInput::Key(KeyEvent::new(code, modifiers))
}

/// The key that a terminal sends this character for.
fn plain_key(character: char, modifiers: KeyModifiers) -> TerminalInput {
    match character {
        '\r' => key(KeyCode::Enter, modifiers),
        '\t' => key(KeyCode::Tab, modifiers),
        '\u{7f}' | '\u{8}' => key(KeyCode::Backspace, modifiers),
        '\u{0}' => key(KeyCode::Char(' '), modifiers | KeyModifiers::CONTROL),
        '\u{1}'..='\u{1a}' => {
            let letter = char::from(b'a' - 1 + character as u8);
            key(KeyCode::Char(letter), modifiers | KeyModifiers::CONTROL)
        }
        '\u{1c}'..='\u{1f}' => {
            let sign = char::from(b'\\' - 0x1c + character as u8);
            key(KeyCode::Char(sign), modifiers | KeyModifiers::CONTROL)
        }
        character => key(KeyCode::Char(character), modifiers),
    }
}

fn ss3_key(letter: u8) -> TerminalInput {
    match letter_key(letter) {
        Some(code) => key(code, KeyModifiers::NONE),
        None => TerminalInput::Ignored,
    }
}

/// The key of a sequence that ends with this letter.
fn letter_key(letter: u8) -> Option<KeyCode> {
    Some(match letter {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'H' => KeyCode::Home,
        b'F' => KeyCode::End,
        b'M' => KeyCode::Enter,
        b'P' => KeyCode::F(1),
        b'Q' => KeyCode::F(2),
        b'R' => KeyCode::F(3),
        b'S' => KeyCode::F(4),
        _ => return None,
    })
}

/// The key of a sequence that ends with `~`, by its number.
fn numbered_key(number: u32) -> Option<KeyCode> {
    Some(match number {
        1 | 7 => KeyCode::Home,
        2 => KeyCode::Insert,
        3 => KeyCode::Delete,
        4 | 8 => KeyCode::End,
        5 => KeyCode::PageUp,
        6 => KeyCode::PageDown,
        11..=15 => KeyCode::F(u8::try_from(number - 10).ok()?),
        17..=21 => KeyCode::F(u8::try_from(number - 11).ok()?),
        23..=24 => KeyCode::F(u8::try_from(number - 12).ok()?),
        _ => return None,
    })
}

fn csi_input(csi: &CsiSequence<'_>, sequence: &[u8]) -> TerminalInput {
    let report = || TerminalInput::Report(sequence.to_vec());
    if csi.prefix == Some(b'<') && matches!(csi.last, b'M' | b'm') {
        return TerminalInput::Ignored;
    }
    if csi.prefix.is_some() || !csi.intermediates.is_empty() {
        return report();
    }
    let numbers = csi.numbers();
    let number = |at: usize| numbers.get(at).copied().flatten();
    let code = match csi.last {
        b'u' => number(0).and_then(char::from_u32),
        b'~' if number(0) == Some(27) => number(2).and_then(char::from_u32),
        _ => None,
    };
    let modifiers = key_modifiers(number(1).unwrap_or(1));
    let input = match (csi.last, code) {
        (_, Some('\u{1b}')) => key(KeyCode::Esc, modifiers),
        // What a terminal writes as a control character is a key with its modifiers here.
        (_, Some(character)) if character.is_control() => plain_key(character, modifiers),
        (_, Some(character)) if is_private_use(character) => TerminalInput::Ignored,
        (_, Some(character)) => key(shifted(character, modifiers), modifiers),
        (b'Z', None) => key(KeyCode::BackTab, KeyModifiers::SHIFT),
        (b'~', None) => match number(0).and_then(numbered_key) {
            Some(code) => key(code, modifiers),
            None => report(),
        },
        // With a first number that is not 1 it is where the cursor is, and not F3.
        (letter, None) if matches!(number(0), None | Some(1)) && !is_cursor_report(csi) => {
            match letter_key(letter) {
                Some(code) => key(code, modifiers),
                None => report(),
            }
        }
        (_, None) => report(),
    };
    match csi.parameters().get(1).and_then(|parts| *parts.get(1)?) {
        Some(RELEASED) => TerminalInput::Ignored,
        // A key that was held down since before the card was there decides nothing.
        Some(REPEATED) if is_character(&input) => TerminalInput::Ignored,
        Some(_) | None => input,
    }
}

/// Whether a sequence may say where the cursor is.
fn is_cursor_report(csi: &CsiSequence<'_>) -> bool {
    csi.last == b'R' && !csi.has_no_parameters()
}

/// Where kitty puts keys that are not characters, such as the modifiers themselves.
fn is_private_use(character: char) -> bool {
    ('\u{e000}'..='\u{f8ff}').contains(&character)
}

fn is_character(input: &TerminalInput) -> bool {
    matches!(input, TerminalInput::Key(key) if matches!(key.code, KeyCode::Char(_)))
}

/// The character that a key types with shift; of other keys than letters that is not known.
fn shifted(character: char, modifiers: KeyModifiers) -> KeyCode {
    match modifiers.contains(KeyModifiers::SHIFT) {
        true => KeyCode::Char(character.to_ascii_uppercase()),
        false => KeyCode::Char(character),
    }
}

fn key_modifiers(number: u32) -> KeyModifiers {
    let bits = number.saturating_sub(1);
    let mut modifiers = KeyModifiers::NONE;
    for (bit, modifier) in [
        (1, KeyModifiers::SHIFT),
        (2, KeyModifiers::ALT),
        (4, KeyModifiers::CONTROL),
        (8, KeyModifiers::SUPER),
        (16, KeyModifiers::HYPER),
        (32, KeyModifiers::META),
    ] {
        modifiers.set(modifier, bits & bit != 0);
    }
    modifiers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyChord;

    /// What is read, as text.
    fn read(bytes: &[u8]) -> Vec<String> {
        let mut reader = KeyReader::new(AnswerKey::default());
        let inputs = bytes.iter().filter_map(|byte| reader.push(*byte));
        let texts = inputs.map(|input| match input {
            TerminalInput::Key(key) => KeyChord::from_event(&key).to_string(),
            TerminalInput::AnswerKey => "the key".to_owned(),
            TerminalInput::Paste(text) => format!("pasted {text}"),
            TerminalInput::Report(bytes) => {
                format!("report {}", String::from_utf8_lossy(&bytes[1..]))
            }
            TerminalInput::Ignored => "-".to_owned(),
        });
        texts.collect()
    }

    #[test]
    fn keys_are_read_however_a_terminal_sends_them() {
        for (bytes, keys) in [
            (
                &b"a A\r\t\x7f\x03"[..],
                &["a", "space", "A", "enter", "tab", "backspace", "ctrl+c"][..],
            ),
            ("é世".as_bytes(), &["é", "世"]),
            (
                b"\x1b[A\x1bOB\x1b[5~\x1b[H",
                &["up", "down", "pageup", "home"],
            ),
            (
                b"\x1b[1;5C\x1bf\x1b[15~\x1b[Z",
                &["ctrl+right", "alt+f", "f5", "shift+tab"],
            ),
            (b"\x1b[97u\x1b[97;1:1u\x1b[97;2u", &["a", "a", "A"]),
            (
                b"\x1b[13u\x1b[27u\x1b[9;2u\x1b[127u",
                &["enter", "esc", "shift+tab", "backspace"],
            ),
            (b"\x1b[27;5;99~", &["ctrl+c"]),
            (b"\x1d\x1b[93;5u", &["the key", "the key"]),
            (b"\x1b\x1b[A", &["esc", "up"]),
            // Held, released, and a modifier alone.
            (
                b"\x1b[97;1:2u\x1b[97;1:3u\x1b[57441u\x1b[1;1:3A",
                &["-", "-", "-", "-"],
            ),
            (b"\x1b[1;1:2B", &["down"]),
            // The mouse.
            (b"\x1b[<0;97;97Mx\x1b[Maaax", &["-", "x", "-", "x"]),
        ] {
            assert_eq!(read(bytes), keys, "{bytes:?}");
        }
    }

    #[test]
    fn what_a_terminal_answers_is_not_a_key() {
        for (bytes, inputs) in [
            (&b"\x1b[97;97R"[..], &["report [97;97R"][..]),
            (b"\x1b[1;1R", &["report [1;1R"]),
            (b"\x1b[?1;2c", &["report [?1;2c"]),
            (b"\x1b[0n", &["report [0n"]),
            (b"\x1b[?0u", &["report [?0u"]),
            (b"\x1b[8;24;80t", &["report [8;24;80t"]),
            (b"\x1b[I\x1b[O", &["report [I", "report [O"]),
            (b"\x1b]la\x1b\\", &["report ]la\u{1b}\\"]),
            (b"\x1b]52;c;YWFh\x07", &["report ]52;c;YWFh\u{7}"]),
            (b"\x1bP1+r61=61\x1b\\", &["report P1+r61=61\u{1b}\\"]),
            (b"\x1b_Ga\x1b\\", &["report _Ga\u{1b}\\"]),
            (b"\x1b]la", &[]),
        ] {
            assert_eq!(read(bytes), inputs, "{bytes:?}");
        }
    }

    #[test]
    fn what_is_pasted_is_not_keys() {
        assert_eq!(read(b"\x1b[200~a\rb\x1b[201~c"), ["pasted a\rb", "c"]);
        assert_eq!(
            read(b"\x1b[200~a\x1b[A\x1d\x1b[201~"),
            ["pasted a\u{1b}[A\u{1d}"]
        );
        assert_eq!(read(b"\x1b[200~a\ra\r"), [""; 0]);
        let long = [
            &b"\x1b[200~"[..],
            &[b'x'; 2 * MAX_PASTE_BYTES],
            b"\x1b[201~",
        ]
        .concat();
        assert_eq!(read(&long)[0].len(), MAX_PASTE_BYTES + "pasted ".len());
    }

    #[test]
    fn an_escape_is_a_key_if_nothing_follows_it() {
        let mut reader = KeyReader::new(AnswerKey::default());
        assert_eq!(reader.push(0x1b), None);
        assert!(reader.is_after_escape() && !reader.is_idle());
        assert_eq!(reader.take_escape(), key(KeyCode::Esc, KeyModifiers::NONE));
        assert!(reader.is_idle());
        // It also ends a text that somebody began with alt+].
        for byte in b"\x1b]abc\x1b" {
            assert_eq!(reader.push(*byte), None);
        }
        assert!(reader.is_after_escape());
        assert_eq!(reader.take_escape(), key(KeyCode::Esc, KeyModifiers::NONE));
        assert_eq!(
            reader.push(b'a'),
            Some(key(KeyCode::Char('a'), KeyModifiers::NONE))
        );
    }
}
