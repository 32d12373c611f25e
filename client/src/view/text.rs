//! Makes text from others safe to show: invisible characters escaped, length bounded.

pub(super) use pvp_protocol::count_invisible;
pub use pvp_protocol::escape_invisible;

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
    fn a_cut_never_splits_a_character() {
        assert_eq!(truncate("aé", 2), "a");
        assert_eq!(truncate("aé", 3), "aé");
        assert_eq!(truncate("", 3), "");
    }
}
