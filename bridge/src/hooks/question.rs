//! Reads what a client says to a hook. Of a report that is too long, the long texts are cut, so that
//! the call ends all the same; nothing else that is too long is answered.

use std::io::{self, Read};

/// Bytes of the longest question that is read as it is.
const MAX_WHOLE_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of each text of a report that is longer. No call that was allowed has a longer one.
const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// What a client says.
#[derive(Debug, PartialEq, Eq)]
pub enum HookQuestion {
    /// Exactly what it says.
    Whole(Vec<u8>),
    /// With its long texts cut.
    Cut(Vec<u8>),
    /// It is too long even so.
    TooLong,
}

impl HookQuestion {
    /// Reads to the end of the input, and keeps a bounded part of it.
    pub fn read(input: impl Read) -> io::Result<Self> {
        Self::read_bounded(input, MAX_WHOLE_BYTES, MAX_TEXT_BYTES)
    }

    fn read_bounded(mut input: impl Read, max_whole: usize, max_text: usize) -> io::Result<Self> {
        let mut whole = Vec::new();
        let limit = max_whole as u64 + 1;
        input.by_ref().take(limit).read_to_end(&mut whole)?;
        if whole.len() <= max_whole {
            return Ok(Self::Whole(whole));
        }
        let mut cutter = TextCutter::new(max_text);
        cutter.push(&whole);
        drop(whole);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            cutter.push(&buffer[..count]);
            if cutter.kept.len() > max_whole {
                return Ok(Self::TooLong);
            }
        }
        Ok(match cutter.kept.len() > max_whole {
            true => Self::TooLong,
            false => Self::Cut(cutter.kept),
        })
    }
}

/// Copies JSON without the ends of its long texts.
struct TextCutter {
    /// What is kept so far.
    kept: Vec<u8>,
    /// Bytes of a text that are kept at most.
    max_text: usize,
    /// Whether it is within a text.
    in_text: bool,
    /// Bytes of the text that it is in.
    length: usize,
    /// Whether the rest of that text is left out.
    is_cut: bool,
    /// The character or escape that was read last.
    unit: Vec<u8>,
    /// Bytes that are missing of an escape.
    missing: usize,
}

impl TextCutter {
    fn new(max_text: usize) -> Self {
        Self {
            kept: Vec::new(),
            max_text,
            in_text: false,
            length: 0,
            is_cut: false,
            unit: Vec::new(),
            missing: 0,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.keeps(*byte) {
                self.kept.push(*byte);
            }
        }
    }

    fn keeps(&mut self, byte: u8) -> bool {
        if !self.in_text {
            self.in_text = byte == b'"';
            (self.length, self.is_cut) = (0, false);
            self.unit.clear();
            return true;
        }
        match (self.missing, byte) {
            (0, b'"') => {
                self.in_text = false;
                return true;
            }
            // The rest of a character.
            (0, 0x80..=0xbf) => {}
            (0, _) => {
                // The second half of a pair stays with the first.
                let is_half = byte == b'\\' && is_high_surrogate(&self.unit);
                self.is_cut |= self.length >= self.max_text && !is_half;
                self.unit.clear();
                self.missing = usize::from(byte == b'\\');
            }
            (1, b'u') if self.unit.len() == 1 => self.missing = 4,
            (_, _) => self.missing -= 1,
        }
        self.unit.push(byte);
        self.length += 1;
        !self.is_cut
    }
}

/// Whether this is an escape such as `\ud834`, which means nothing without another one.
fn is_high_surrogate(unit: &[u8]) -> bool {
    matches!(
        unit,
        [
            b'\\',
            b'u',
            b'd' | b'D',
            b'8' | b'9' | b'a' | b'b' | b'A' | b'B',
            ..
        ]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(value: &Value) -> HookQuestion {
        let bytes = value.to_string().into_bytes();
        HookQuestion::read_bounded(bytes.as_slice(), 400, 100).unwrap()
    }

    #[test]
    fn only_what_is_too_long_is_cut_and_stays_readable() {
        let short = json!({ "a": "\"x\\", "b": [1, "é"] });
        assert_eq!(
            read(&short),
            HookQuestion::Whole(short.to_string().into_bytes())
        );
        for filler in ["x", "é", "世", "\"", "\\", "\u{1}", "\n", "𝄞"] {
            for shift in 0..12 {
                let long = format!("{}{}", "x".repeat(shift), filler.repeat(1000));
                let value = json!({ "a": long, "id": "t1", "z": [long, true] });
                let HookQuestion::Cut(bytes) = read(&value) else {
                    panic!("{filler:?} was not cut");
                };
                let cut: Value = serde_json::from_slice(&bytes).unwrap();
                assert_eq!((&cut["id"], &cut["z"][1]), (&json!("t1"), &json!(true)));
                let kept = cut["a"].as_str().unwrap();
                assert!(
                    long.starts_with(kept) && kept.len() >= 10,
                    "{filler:?} {kept:?}"
                );
            }
        }
        // Escaped pairs of surrogates are not cut in half.
        for shift in 0..12 {
            let text = format!(
                "{{\"a\":\"{}{}\",\"b\":1}}",
                "x".repeat(shift),
                "\\ud834\\udd1e".repeat(100)
            );
            let cut = HookQuestion::read_bounded(text.as_bytes(), 400, 100).unwrap();
            let HookQuestion::Cut(bytes) = cut else {
                panic!("not cut");
            };
            let value: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(value["b"], json!(1));
        }
        let many = json!(vec!["x"; 1000]);
        assert_eq!(read(&many), HookQuestion::TooLong);
    }
}
