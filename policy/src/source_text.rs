//! Takes parts of a text without ever cutting a character in two.

use std::ops::{Bound, RangeBounds};

/// A text that is taken apart by positions.
pub(crate) trait SourceText {
    /// The characters in this range. A character that the range cuts is kept whole, so that no
    /// position can cause a panic or hide text.
    fn part(&self, range: impl RangeBounds<usize>) -> &str;
}

impl SourceText for str {
    fn part(&self, range: impl RangeBounds<usize>) -> &str {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len(),
        };
        let start = self.floor_char_boundary(start);
        let end = self.ceil_char_boundary(end.min(self.len()).max(start));
        self.get(start..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole_and_no_position_is_too_far() {
        for (range, expected) in [
            (0..1, "é"),
            (1..2, "é"),
            (2..3, "a"),
            (2..99, "ab"),
            (9..12, ""),
        ] {
            assert_eq!("éab".part(range.clone()), expected, "{range:?}");
        }
        assert_eq!("éab".part(1..), "éab");
        assert_eq!("éab".part(..=2), "éa");
    }
}
