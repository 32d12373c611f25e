//! Makes characters visible that cannot be seen, or look like something else.

/// Characters that cannot be seen or look like something else: format and bidi controls, joiners,
/// fillers, placeholders, variation selectors, tags, and every space except the ASCII one.
const INVISIBLE_RANGES: &[(char, char)] = &[
    ('\u{a0}', '\u{a0}'),
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{1680}', '\u{1680}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{2000}', '\u{200f}'),
    ('\u{2028}', '\u{202f}'),
    ('\u{205f}', '\u{206f}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3000}', '\u{3000}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffc}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{16fe4}', '\u{16fe4}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d159}', '\u{1d159}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Escapes every invisible character, for example as `\u{202e}`.
///
/// Line feeds and tabs are kept, because their effect is visible on every screen.
pub fn escape_invisible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_invisible(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// How many characters [`escape_invisible`] would escape.
pub fn count_invisible(text: &str) -> usize {
    text.chars().filter(|&c| is_invisible(c)).count()
}

fn is_invisible(c: char) -> bool {
    match c {
        '\n' | '\t' | ' '..='~' => false,
        c if c.is_control() => true,
        c => INVISIBLE_RANGES
            .iter()
            .any(|&(from, to)| (from..=to).contains(&c)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_characters_are_left_alone() {
        for text in [
            "",
            "ls -la",
            "echo 'héllo → 世界 🦀'",
            "a\tb\nc",
            r"\u{202e}",
        ] {
            assert_eq!(escape_invisible(text), text);
            assert_eq!(count_invisible(text), 0, "{text}");
        }
    }

    #[test]
    fn invisible_characters_are_escaped() {
        for (text, shown) in [
            ("a\u{202e}b", r"a\u{202e}b"),
            ("\u{1b}[2K\r", r"\u{1b}[2K\u{d}"),
            ("rm\u{200b} x", r"rm\u{200b} x"),
            ("a\0b\u{7f}\u{9b}", r"a\u{0}b\u{7f}\u{9b}"),
            ("\u{feff}ls\u{a0}-l", r"\u{feff}ls\u{a0}-l"),
            ("\u{2066}x\u{2069}\u{e0041}", r"\u{2066}x\u{2069}\u{e0041}"),
            ("a\u{2028}b\u{3164}", r"a\u{2028}b\u{3164}"),
            (
                "x\u{fffc}\u{16fe4}\u{1d159}",
                r"x\u{fffc}\u{16fe4}\u{1d159}",
            ),
        ] {
            assert_eq!(escape_invisible(text), shown);
        }
        assert_eq!(count_invisible("\u{1b}[2K\r"), 2);
    }

    #[test]
    fn the_table_is_in_order_without_overlap() {
        for pair in INVISIBLE_RANGES.windows(2) {
            assert!(pair[0].0 <= pair[0].1 && pair[0].1 < pair[1].0, "{pair:?}");
        }
    }

    #[test]
    fn escaped_text_has_no_invisible_characters() {
        let all: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
        assert_eq!(count_invisible(&escape_invisible(&all)), 0);
    }
}
