//! Join codes: short secrets that people send and type, each good for one token.

use std::fmt;

use data_encoding::{Encoding, Specification};

/// Bytes of a code: 96 bits, which nobody guesses in the hours that a code lives.
const CODE_BYTES: usize = 12;

/// Characters between two hyphens.
const GROUP_LENGTH: usize = 5;

/// A code that is exchanged for a token, once. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinCode([u8; CODE_BYTES]);

/// A text that cannot be a join code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a join code has 20 letters and digits in four groups, such as 7QK2M-R8T4X-0B6FJ-ZN3WG")]
pub struct JoinCodeError;

impl JoinCode {
    /// Makes a code of random bytes.
    pub fn from_random(bytes: [u8; CODE_BYTES]) -> Self {
        Self(bytes)
    }

    /// Reads a code as people type it: in either case, with or without hyphens and blanks, and with
    /// `O` for `0` and `I` or `L` for `1`.
    pub fn parse(text: &str) -> Result<Self, JoinCodeError> {
        let bytes = crockford()
            .decode(text.trim().as_bytes())
            .map_err(|_| JoinCodeError)?;
        bytes.try_into().map(Self).map_err(|_| JoinCodeError)
    }

    /// The secret bytes, to be hashed.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for JoinCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = crockford().encode(&self.0);
        for (at, c) in text.chars().enumerate() {
            if at > 0 && at % GROUP_LENGTH == 0 {
                f.write_str("-")?;
            }
            write!(f, "{c}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for JoinCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinCode(…)")
    }
}

/// Crockford's base 32, which has no letters that look like digits.
fn crockford() -> Encoding {
    let mut specification = Specification::new();
    specification
        .symbols
        .push_str("0123456789ABCDEFGHJKMNPQRSTVWXYZ");
    specification
        .translate
        .from
        .push_str("abcdefghjkmnpqrstvwxyzoOiIlL");
    specification
        .translate
        .to
        .push_str("ABCDEFGHJKMNPQRSTVWXYZ001111");
    specification.ignore.push_str("- ");
    specification.encoding().expect("the symbols are distinct")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_people_type_it() {
        let code = JoinCode::from_random(*b"\x00\x44\x32\x14\xc7\x42\x54\xb6\x35\xcf\x84\x65");
        let text = code.to_string();
        assert!(text.contains('0') && text.contains('1'), "{text}");
        assert_eq!(text.split('-').map(str::len).collect::<Vec<_>>(), [5; 4]);
        for typed in [
            text.clone(),
            text.to_lowercase(),
            text.replace('-', ""),
            text.replace('-', " "),
            text.replace('0', "o").replace('1', "l"),
            text.replace('0', "O").replace('1', "i"),
            format!("  {text}\n"),
        ] {
            assert_eq!(JoinCode::parse(&typed), Ok(code.clone()), "{typed}");
        }
    }

    #[test]
    fn every_code_is_read_back_and_nothing_else_is_one() {
        for byte in 0..=u8::MAX {
            let code = JoinCode::from_random([byte; CODE_BYTES]);
            assert_eq!(JoinCode::parse(&code.to_string()), Ok(code));
        }
        for text in [
            "",
            "-",
            "7QK2M",
            "7QK2M-R8T4X-0B6FJ-ZN3W",
            "7QK2M-R8T4X-0B6FJ-ZN3W00",
            "7QK2M-R8T4X-0B6FJ-ZN3WU",
            "7QK2M-R8T4X-0B6FJ-ZN3Wé",
            "pvp_0123456789abcdef_0",
        ] {
            assert_eq!(JoinCode::parse(text), Err(JoinCodeError), "{text}");
        }
    }

    #[test]
    fn a_code_is_not_shown_by_accident() {
        let code = JoinCode::from_random([7; CODE_BYTES]);
        assert_eq!(format!("{code:?}"), "JoinCode(…)");
    }
}
