//! Masks the values of shared secrets, and login tokens, in a command's output, also across chunk
//! boundaries.

use std::collections::BTreeMap;

use pvp_protocol::token_text::{find_token, partial_prefix_len, partial_token_len};

/// Shorter values are not masked, because they would match too much of any text.
const MIN_SECRET_BYTES: usize = 4;

/// Replaces a value in the output, and what follows the prefix of a token.
const REPLACEMENT: &str = "[secret]";

/// Masks values and tokens in one stream.
#[derive(Debug, Clone, Default)]
pub struct SecretMask {
    /// Longest first, so that a value inside another does not reveal the rest of it.
    values: Vec<String>,
    /// The end of the text so far that may be the beginning of a value, or of what follows the
    /// prefix of a token.
    pending: String,
    /// The end of the text that was returned, if it may be the prefix of a token. The prefix is not
    /// secret, so it is not held back: a person who types a `p` sees it at once.
    prefix: String,
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
            ..Self::default()
        }
    }

    /// Returns the text with values and tokens masked; holds back what may be the beginning of one.
    pub fn push(&mut self, text: &str) -> String {
        let returned = self.prefix.len();
        let mut rest = std::mem::take(&mut self.prefix) + &std::mem::take(&mut self.pending) + text;
        let mut out = String::new();
        while let Some((at, length)) = self.next_match(&rest) {
            // A longer value may start here, or a token before it, whose end has not arrived yet.
            let longer =
                |value: &&String| value.len() > rest.len() - at && value.starts_with(&rest[at..]);
            let in_token = at >= rest.len() - partial_token_len(&rest);
            if in_token || self.values.iter().any(|value| longer(&value)) {
                break;
            }
            out.push_str(&rest[..at]);
            out.push_str(REPLACEMENT);
            rest.drain(..at + length);
        }
        let keep = self.partial_match_len(&rest).max(partial_token_len(&rest));
        self.pending = rest.split_off(rest.len() - keep);
        self.prefix = rest[rest.len() - partial_prefix_len(&rest)..].to_owned();
        out.push_str(&rest);
        // Nothing of what was returned before is masked afterwards: a value's beginning is held
        // back, and a token's prefix stays.
        out.split_off(returned)
    }

    /// Ends the stream: what was held back was not the beginning of a longer value.
    pub fn finish(&mut self) -> String {
        let returned = self.prefix.len();
        let mut rest = std::mem::take(&mut self.prefix) + &std::mem::take(&mut self.pending);
        let mut out = String::new();
        while let Some((at, length)) = self.next_match(&rest) {
            out.push_str(&rest[..at]);
            out.push_str(REPLACEMENT);
            rest.drain(..at + length);
        }
        (out + &rest).split_off(returned)
    }

    /// Where the next value or token is, and its length.
    fn next_match(&self, text: &str) -> Option<(usize, usize)> {
        let values = self.values.iter();
        values
            .filter_map(|value| Some((text.find(value.as_str())?, value.len())))
            .chain(find_token(text).map(|body| (body.start, body.len())))
            .min_by_key(|(at, length)| (*at, std::cmp::Reverse(*length)))
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
    fn tokens_are_masked_wherever_the_text_is_split() {
        let token = format!("pvp_0123456789abcdef_{}", "4f".repeat(32));
        let text = format!("a {token} pvp_ pvp_01 {token}{token}pvp_0123é hunter2 p");
        let expected = "a pvp_[secret] pvp_ pvp_01 pvp_[secret]pvp_[secret]pvp_0123é [secret] p";
        for size in 1..120 {
            assert_eq!(masked(&["hunter2"], &text, size), expected, "{size}");
            // A value that is part of a token, one that begins with the prefix, and one that
            // begins inside of a token.
            assert_eq!(masked(&["456789"], &token, size), "pvp_[secret]");
            assert_eq!(masked(&["pvp_value"], "pvp_value", size), "[secret]");
            let across = masked(&["4f4f<"], &format!("{token}<"), size);
            assert_eq!(across, "pvp_[secret]<");
        }
        let mut mask = SecretMask::default();
        assert_eq!(
            mask.push("stop"),
            "stop",
            "nothing is held back of a prefix"
        );
        assert_eq!(mask.push("vp_0"), "vp_");
        assert_eq!(mask.finish(), "0");
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
