//! Recognises login tokens in text, so that whoever passes text on can mask them.

use std::ops::Range;

/// What every token begins with. It is not secret.
pub const TOKEN_PREFIX: &str = "pvp_";

/// Hexadecimal digits of a token's id.
const ID_DIGITS: usize = 16;

/// Hexadecimal digits of a token's secret.
const SECRET_DIGITS: usize = 64;

/// Bytes of a token after [`TOKEN_PREFIX`]: the id, an underscore and the secret.
const BODY_BYTES: usize = ID_DIGITS + 1 + SECRET_DIGITS;

/// The first token in a text, without its prefix: the bytes to mask.
///
/// Case does not matter: a server accepts digits in either case, and the rest is easily restored.
pub fn find_token(text: &str) -> Option<Range<usize>> {
    tokens(text.as_bytes()).next()
}

/// How many bytes at the end of a text, after the prefix of a token, may be the beginning of one.
pub fn partial_token_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let first = bytes
        .len()
        .saturating_sub(TOKEN_PREFIX.len() + BODY_BYTES - 1);
    prefixes(&bytes[first..])
        .map(|start| &bytes[first + start..])
        .find(|body| body.len() < BODY_BYTES && begins_body(body))
        .map_or(0, <[u8]>::len)
}

/// How many bytes at the end of a text may be the beginning of a token's prefix, or all of it.
pub fn partial_prefix_len(text: &str) -> usize {
    let (bytes, prefix) = (text.as_bytes(), TOKEN_PREFIX.as_bytes());
    (1..=prefix.len().min(bytes.len()))
        .rev()
        .find(|length| bytes[bytes.len() - length..].eq_ignore_ascii_case(&prefix[..*length]))
        .unwrap_or(0)
}

/// Masks every token in a text with asterisks. The text keeps its length.
pub fn mask_tokens(text: &mut String) {
    let found: Vec<_> = tokens(text.as_bytes()).collect();
    for body in found {
        text.replace_range(body, &"*".repeat(BODY_BYTES));
    }
}

/// All tokens, without their prefixes. Two never overlap: no body contains a prefix.
fn tokens(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let bodies = prefixes(bytes).map(|start| start..start + BODY_BYTES);
    bodies.filter(|body| bytes.get(body.clone()).is_some_and(begins_body))
}

/// Where the bytes after each prefix begin.
fn prefixes(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let underscores = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_');
    underscores
        .map(|(at, _)| at + 1)
        .filter(|end| bytes[..*end].len() >= TOKEN_PREFIX.len())
        .filter(|end| {
            bytes[end - TOKEN_PREFIX.len()..*end].eq_ignore_ascii_case(TOKEN_PREFIX.as_bytes())
        })
}

/// Whether bytes are the beginning of what follows a prefix, or all of it.
fn begins_body(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(at, byte)| match at {
        ID_DIGITS => *byte == b'_',
        _ => byte.is_ascii_hexdigit(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_token() -> String {
        format!("pvp_0123456789abcdef_{}", "4f".repeat(32))
    }

    #[test]
    fn tokens_are_masked_wherever_they_are_and_nothing_else_is() {
        let (token, stars) = (sample_token(), "*".repeat(81));
        for (text, masked) in [
            (token.clone(), format!("pvp_{stars}")),
            (
                format!("é?token={token}&session=é"),
                format!("é?token=pvp_{stars}&session=é"),
            ),
            (format!("{token}{token}"), format!("pvp_{stars}pvp_{stars}")),
            (format!("{token}0_"), format!("pvp_{stars}0_")),
            (format!("pvp_{token}"), format!("pvp_pvp_{stars}")),
            (token.to_uppercase(), format!("PVP_{stars}")),
        ] {
            let mut found = text.clone();
            mask_tokens(&mut found);
            assert_eq!(found, masked, "{text}");
        }
        for text in [
            String::new(),
            "pvp_".to_owned(),
            "_".to_owned(),
            token[..84].to_owned(),
            token.replace('4', "g"),
            token.replacen('_', "-", 1),
            token.replace("f_4", "f-4"),
            "pvp_é".to_owned(),
        ] {
            let mut found = text.clone();
            mask_tokens(&mut found);
            assert_eq!(found, text);
        }
    }

    #[test]
    fn the_beginning_of_a_token_is_recognised_at_every_length() {
        let token = sample_token();
        for length in 0..token.len() {
            let text = format!("x pvp_ {}", &token[..length]);
            let body = length.saturating_sub(TOKEN_PREFIX.len());
            assert_eq!(partial_token_len(&text), body, "{text}");
            let prefix = if length <= 4 { length } else { 0 };
            assert_eq!(partial_prefix_len(&text), prefix, "{text}");
        }
        assert_eq!(partial_token_len(&token), 0);
        assert_eq!(partial_token_len("pvp_01x"), 0);
    }
}
