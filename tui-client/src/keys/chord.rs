//! A key with its modifiers, from a key event or from text.

use std::fmt;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A key with its modifiers. For a character, its case says whether shift was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyChord {
    code: KeyCode,
    modifiers: KeyModifiers,
}

const NAMED_KEYS: &[(&str, KeyCode)] = &[
    ("enter", KeyCode::Enter),
    ("esc", KeyCode::Esc),
    ("tab", KeyCode::Tab),
    ("backspace", KeyCode::Backspace),
    ("delete", KeyCode::Delete),
    ("insert", KeyCode::Insert),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("pageup", KeyCode::PageUp),
    ("pagedown", KeyCode::PageDown),
    ("space", KeyCode::Char(' ')),
];

impl KeyChord {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other key stays as it is"
    )]
    pub(crate) fn from_event(key: &KeyEvent) -> Self {
        let known = KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT;
        let modifiers = key.modifiers & known;
        match key.code {
            KeyCode::BackTab => Self {
                code: KeyCode::Tab,
                modifiers: modifiers | KeyModifiers::SHIFT,
            },
            KeyCode::Char(_) => Self {
                code: key.code,
                modifiers: modifiers - KeyModifiers::SHIFT,
            },
            code => Self { code, modifiers },
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let problem = || {
            format!("`{text}` is not a key; write such as a, A, f5, ctrl+x, alt+enter, shift+tab")
        };
        let mut modifiers = KeyModifiers::NONE;
        let mut rest = text;
        for (prefix, modifier) in [
            ("ctrl+", KeyModifiers::CONTROL),
            ("alt+", KeyModifiers::ALT),
            ("shift+", KeyModifiers::SHIFT),
        ] {
            if let Some(after) = rest.strip_prefix(prefix).filter(|after| !after.is_empty()) {
                modifiers |= modifier;
                rest = after;
            }
        }
        let named = NAMED_KEYS.iter().find(|(name, _)| *name == rest);
        let code = match named {
            Some((_, code)) => *code,
            None => parse_char_or_function_key(rest).ok_or_else(problem)?,
        };
        let shifted_char =
            matches!(code, KeyCode::Char(_)) && modifiers.contains(KeyModifiers::SHIFT);
        if shifted_char {
            return Err(problem());
        }
        Ok(Self { code, modifiers })
    }

    /// Whether the key types a character.
    pub(crate) fn is_text(self) -> bool {
        self.typed_char().is_some()
    }

    /// The character that the key types.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only characters are typed")]
    pub(crate) fn typed_char(self) -> Option<char> {
        match self.code {
            KeyCode::Char(c) if self.modifiers.is_empty() => Some(c),
            _ => None,
        }
    }

    pub(crate) fn code(self) -> KeyCode {
        self.code
    }

    pub(crate) fn has_ctrl(self) -> bool {
        self.modifiers.contains(KeyModifiers::CONTROL)
    }

    pub(crate) fn has_alt(self) -> bool {
        self.modifiers.contains(KeyModifiers::ALT)
    }

    pub(crate) fn has_shift(self) -> bool {
        self.modifiers.contains(KeyModifiers::SHIFT)
    }
}

/// Parses a single character, or a function key such as `f5`.
fn parse_char_or_function_key(text: &str) -> Option<KeyCode> {
    let mut chars = text.chars();
    if let (Some(c), None) = (chars.next(), chars.next()) {
        return (!c.is_control() && c != ' ').then_some(KeyCode::Char(c));
    }
    let number: u8 = text.strip_prefix('f')?.parse().ok()?;
    (1..=24).contains(&number).then_some(KeyCode::F(number))
}

impl fmt::Display for KeyChord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (modifier, prefix) in [
            (KeyModifiers::CONTROL, "ctrl+"),
            (KeyModifiers::ALT, "alt+"),
            (KeyModifiers::SHIFT, "shift+"),
        ] {
            if self.modifiers.contains(modifier) {
                f.write_str(prefix)?;
            }
        }
        match (
            NAMED_KEYS.iter().find(|(_, code)| *code == self.code),
            self.code,
        ) {
            (Some((name, _)), _) => f.write_str(name),
            (None, KeyCode::Char(c)) => write!(f, "{c}"),
            (None, KeyCode::F(number)) => write!(f, "f{number}"),
            (None, code) => write!(f, "{code:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_events_are_written_as_settings_write_them() {
        let pressed =
            |code, modifiers| KeyChord::from_event(&KeyEvent::new(code, modifiers)).to_string();
        for (code, modifiers, written) in [
            // For a capital, a terminal may or may not report that shift was held.
            (KeyCode::Char('A'), KeyModifiers::SHIFT, "A"),
            (KeyCode::Char('A'), KeyModifiers::NONE, "A"),
            (KeyCode::Char('z'), KeyModifiers::CONTROL, "ctrl+z"),
            (KeyCode::Char('f'), KeyModifiers::ALT, "alt+f"),
            (KeyCode::BackTab, KeyModifiers::SHIFT, "shift+tab"),
            (KeyCode::BackTab, KeyModifiers::NONE, "shift+tab"),
            (KeyCode::F(5), KeyModifiers::NONE, "f5"),
            // Not every keyboard has the super key, and settings cannot name it.
            (KeyCode::Enter, KeyModifiers::SUPER, "enter"),
        ] {
            assert_eq!(pressed(code, modifiers), written);
        }
    }
}
