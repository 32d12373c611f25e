//! Makes text from others safe to show: invisible characters escaped, length bounded.

/// Characters that cannot be seen or look like something else: format and bidi controls, joiners,
/// fillers, variation selectors, tags, and every space except the ASCII one.
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
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
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
pub(super) fn count_invisible(text: &str) -> usize {
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

/// Maximum length of a reason, comment, name or other short text, in bytes: about a screenful.
pub(super) const MAX_LINE_BYTES: usize = 4 * 1024;

/// The beginning of a text, at most `max_bytes` long, without splitting a character.
pub(super) fn truncate(text: &str, max_bytes: usize) -> String {
    text[..text.floor_char_boundary(max_bytes)].to_owned()
}

/// Maximum number of lines that one budget has room for.
const MAX_BUDGET_LINES: usize = 10_000;

/// Room for the text of one action. Counts what is escaped in it, and what does not fit.
#[derive(Debug)]
pub(super) struct TextBudget {
    bytes_left: usize,
    lines_left: usize,
    /// Bytes that did not fit.
    pub(super) cut_bytes: u64,
    /// Invisible characters that were escaped.
    pub(super) hidden: usize,
}

impl TextBudget {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            bytes_left: bytes,
            lines_left: MAX_BUDGET_LINES,
            cut_bytes: 0,
            hidden: 0,
        }
    }

    /// As much of a text as fits, with invisible characters escaped.
    pub(super) fn take(&mut self, text: &str) -> String {
        let kept = &text[..text.floor_char_boundary(self.bytes_left)];
        self.bytes_left -= kept.len();
        self.drop_bytes(text.len() - kept.len());
        self.hidden += count_invisible(kept);
        escape_invisible(kept)
    }

    /// A line with invisible characters escaped; `None` if there is no room for all of it.
    pub(super) fn take_line(&mut self, line: &str) -> Option<String> {
        // One byte for the line feed, so that empty lines need room too.
        let needed = line.len() + 1;
        if needed > self.bytes_left || self.lines_left == 0 {
            self.drop_bytes(needed);
            self.lines_left = 0;
            return None;
        }
        self.lines_left -= 1;
        self.bytes_left -= 1;
        Some(self.take(line))
    }

    /// Counts bytes that are not shown.
    pub(super) fn drop_bytes(&mut self, bytes: usize) {
        self.cut_bytes += bytes as u64;
    }
}

/// Truncates a short text from someone to [`MAX_LINE_BYTES`].
pub(super) fn truncate_line(text: &str) -> String {
    truncate(text, MAX_LINE_BYTES)
}

/// Like [`truncate_line`], for a text that may be missing.
pub(super) fn truncate_optional_line(text: Option<&String>) -> Option<String> {
    text.map(|text| truncate_line(text))
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

    #[test]
    fn a_cut_never_splits_a_character() {
        assert_eq!(truncate("aé", 2), "a");
        assert_eq!(truncate("aé", 3), "aé");
        assert_eq!(truncate("", 3), "");
    }
}
