//! Masks the values of shared secrets in a command's output, also across chunk boundaries.

use std::collections::BTreeMap;

/// Shorter values are not masked, because they would match too much of any text.
const MIN_SECRET_BYTES: usize = 4;

/// Replaces a value in the output.
const REPLACEMENT: &str = "[secret]";

/// Masks values in one stream.
#[derive(Debug, Clone, Default)]
pub struct SecretMask {
    /// Longest first, so that a value inside another does not reveal the rest of it.
    values: Vec<String>,
    /// The end of the text so far that may be the beginning of a value.
    pending: String,
}

impl SecretMask {
    pub fn new(secrets: &BTreeMap<String, String>) -> Self {
        let mut values: Vec<_> = secrets
            .values()
            .filter(|value| value.len() >= MIN_SECRET_BYTES)
            .cloned()
            .collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self {
            values,
            pending: String::new(),
        }
    }

    /// Returns the text with values masked; holds back what may be the beginning of a value.
    pub fn push(&mut self, text: &str) -> String {
        if self.values.is_empty() {
            return text.to_owned();
        }
        self.pending.push_str(text);
        let mut out = String::new();
        let mut rest = std::mem::take(&mut self.pending);
        loop {
            let found = self
                .values
                .iter()
                .filter_map(|value| Some((rest.find(value.as_str())?, value.len())))
                .min_by_key(|(at, length)| (*at, std::cmp::Reverse(*length)));
            let Some((at, length)) = found else { break };
            // A longer value may start here whose end has not arrived yet.
            let longer =
                |value: &&String| value.len() > rest.len() - at && value.starts_with(&rest[at..]);
            if self.values.iter().any(|value| longer(&value)) {
                break;
            }
            out.push_str(&rest[..at]);
            out.push_str(REPLACEMENT);
            rest.drain(..at + length);
        }
        let keep = self.partial_match_len(&rest);
        self.pending = rest.split_off(rest.len() - keep);
        out + &rest
    }

    /// Ends the stream: what was held back was not the beginning of a longer value.
    pub fn finish(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.pending);
        for value in &self.values {
            rest = rest.replace(value.as_str(), REPLACEMENT);
        }
        rest
    }

    /// How many bytes at the end of a text may be the beginning of a value.
    fn partial_match_len(&self, text: &str) -> usize {
        let longest = self
            .values
            .iter()
            .map(|value| value.len() - 1)
            .max()
            .unwrap_or(0);
        (1..=longest.min(text.len()))
            .rev()
            .filter(|length| text.is_char_boundary(text.len() - length))
            .find(|length| {
                let end = &text[text.len() - length..];
                self.values.iter().any(|value| value.starts_with(end))
            })
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(values: &[&str], text: &str, size: usize) -> String {
        let named = values.iter().enumerate();
        let secrets = named
            .map(|(number, value)| (format!("S{number}"), (*value).to_owned()))
            .collect();
        let mut mask = SecretMask::new(&secrets);
        let characters: Vec<char> = text.chars().collect();
        let pieces = characters
            .chunks(size)
            .map(|piece| piece.iter().collect::<String>());
        let output: String = pieces.map(|piece| mask.push(&piece)).collect();
        output + &mask.finish()
    }

    #[test]
    fn values_are_masked_wherever_the_text_is_split() {
        for size in 1..30 {
            assert_eq!(
                masked(&["hunter2"], "a hunter2 b hunter hunter2", size),
                "a [secret] b hunter [secret]"
            );
            assert_eq!(masked(&["pässwörd"], "xpässwördx", size), "x[secret]x");
            let nested = masked(&["abcdef", "abcdefgh"], "abcdefgh abcdef", size);
            assert_eq!(nested, "[secret] [secret]");
        }
    }

    #[test]
    fn without_values_the_text_is_unchanged() {
        assert_eq!(masked(&[], "anything", 3), "anything");
        assert_eq!(
            masked(&["ab"], "ab is too short to hide", 3),
            "ab is too short to hide"
        );
    }
}
