//! How deeply a JSON text is nested, found without parsing it.

/// The deepest nesting of arrays and objects in `json`, counted up to `limit + 1`.
///
/// Runs before the parser, so that a hostile text costs one pass over its bytes and no stack.
pub fn nesting(json: &str, limit: usize) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        if in_string {
            (in_string, escaped) = match byte {
                _ if escaped => (true, false),
                b'\\' => (true, true),
                b'"' => (false, false),
                _ => (true, false),
            };
            continue;
        }
        match byte {
            b'"' => in_string = true,
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

#[cfg(test)]
mod tests {
    use super::nesting;

    #[test]
    fn brackets_count_outside_strings_only() {
        for (json, expected) in [
            ("7", 0),
            ("[]", 1),
            (r#"{"a":[{"b":1}],"c":[[]]}"#, 3),
            (r#"["[[[[\"[[["]"#, 1),
            ("]]]][", 1),
        ] {
            assert_eq!(nesting(json, 64), expected, "{json}");
        }
        assert_eq!(nesting(&"[".repeat(10_000), 64), 65);
    }
}
