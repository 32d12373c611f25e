//! The nesting depth of a JSON text, found without parsing it.

/// The deepest nesting of arrays and objects in `json`, counted up to `limit + 1`.
///
/// This runs before the parser, so a hostile text costs one pass over its bytes and no stack.
pub fn nesting_depth(json: &str, limit: usize) -> usize {
    let bytes = json.as_bytes();
    let (mut depth, mut deepest, mut at) = (0usize, 0, 0);
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = skip_string(bytes, at),
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
                if deepest > limit {
                    return deepest;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The position after a string whose first byte is at `at`.
fn skip_string(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at += plain_prefix_len(bytes.get(at..).unwrap_or_default());
        match bytes.get(at) {
            None => return at,
            Some(b'"') => return at + 1,
            // Skip the backslash and the byte it escapes.
            Some(_) => at += 2,
        }
    }
}

/// How many bytes come before the first quote or backslash. Most of a message is the text of one
/// string, so this checks whole chunks, which compile to wide instructions.
fn plain_prefix_len(bytes: &[u8]) -> usize {
    const CHUNK: usize = 16;
    let special = |byte: &u8| *byte == b'"' || *byte == b'\\';
    let mut known = 0;
    for chunk in bytes.chunks_exact(CHUNK) {
        if chunk
            .iter()
            .fold(false, |found, byte| found | special(byte))
        {
            break;
        }
        known += CHUNK;
    }
    let rest = &bytes[known..];
    known + rest.iter().position(special).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::nesting_depth;

    #[test]
    fn brackets_count_outside_strings_only() {
        for (json, expected) in [
            ("7", 0),
            ("[]", 1),
            (r#"{"a":[{"b":1}],"c":[[]]}"#, 3),
            (r#"["[[[[\"[[["]"#, 1),
            ("]]]][", 1),
        ] {
            assert_eq!(nesting_depth(json, 64), expected, "{json}");
        }
        assert_eq!(nesting_depth(&"[".repeat(10_000), 64), 65);
    }

    #[test]
    fn strings_of_every_length_end_where_they_end() {
        for length in 0..70 {
            let text = "x".repeat(length);
            for (json, expected) in [
                (format!(r#"["{text}[[[", []]"#), 2),
                (format!(r#"["{text}\"[[[\\", []]"#), 2),
                (format!(r#"["{text}[[["#), 1),
                (format!(r#"["{text}[[[\"#), 1),
            ] {
                assert_eq!(nesting_depth(&json, 64), expected, "{json}");
            }
        }
    }
}
