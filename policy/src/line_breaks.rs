//! Works around backslashes next to line breaks, which the parser misunderstands.
//!
//! If a line begins with a backslash, the parser treats the line break before it as a blank, and
//! the command as more words of the one above. Inserting a blank before the backslash prevents
//! that. If the line above ends in a backslash too, only the parser knows whether that is in a
//! comment, where it does not join lines, so some texts have two interpretations. The inserted
//! blank may be inside quotes, so a modified interpretation is never a read.

use crate::source_text::SourceText;
use std::ops::Range;

/// A text that is given to the parser.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Interpretation {
    pub(crate) text: String,
    /// The positions of inserted blanks.
    inserted_spaces: Vec<usize>,
}

impl Interpretation {
    pub(crate) fn is_modified(&self) -> bool {
        !self.inserted_spaces.is_empty()
    }

    /// The same span in the original text.
    pub(crate) fn original_span(&self, span: &Range<usize>) -> Range<usize> {
        let original_offset =
            |at: usize| at - self.inserted_spaces.partition_point(|blank| *blank < at);
        original_offset(span.start)..original_offset(span.end)
    }
}

/// Every way in which a shell may interpret this text.
pub(crate) fn interpretations(source: &str) -> Vec<Interpretation> {
    let plain = interpret(source, false);
    let commented = interpret(source, true);
    if commented == plain {
        vec![plain]
    } else {
        vec![plain, commented]
    }
}

/// One interpretation; `comments` is whether a `#` may begin a comment up to the end of its line.
fn interpret(source: &str, comments: bool) -> Interpretation {
    let mut text = String::with_capacity(source.len());
    let mut blanks = Vec::new();
    for (at, c) in source.char_indices() {
        if c == '\\' && starts_line(source.part(..at), comments) {
            blanks.push(text.len());
            text.push(' ');
        }
        text.push(c);
    }
    Interpretation {
        text,
        inserted_spaces: blanks,
    }
}

/// Whether this text ends in a line break that a backslash does not remove.
fn starts_line(before: &str, comments: bool) -> bool {
    before.strip_suffix('\n').is_some_and(|before| {
        let line = before.rsplit('\n').next().unwrap_or(before);
        let backslashes = line.len() - line.trim_end_matches('\\').len();
        backslashes.is_multiple_of(2) || (comments && line.contains('#'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        let interpretations = interpretations(source).into_iter();
        interpretations
            .map(|interpretation| interpretation.text)
            .collect()
    }

    #[test]
    fn a_line_that_begins_with_a_backslash_is_a_line_of_its_own() {
        assert_eq!(texts("a\n\\b\n\\\n\\c"), ["a\n \\b\n \\\n\\c"]);
        assert_eq!(texts("a\\\\\n\\b"), ["a\\\\\n \\b"]);
        assert_eq!(texts("# a\n\\b"), ["# a\n \\b"]);
    }

    #[test]
    fn a_possible_comment_has_two_interpretations() {
        assert_eq!(texts("# a\\\n\\b"), ["# a\\\n\\b", "# a\\\n \\b"]);
        assert_eq!(texts("#\na\\\n\\b").len(), 1);
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for source in [
            "",
            "ls \\\n -l",
            "r\\\n\\m",
            "a\n \\b",
            "\\rm a",
            "\\\nls",
            "é\\",
        ] {
            let readings = interpretations(source);
            assert_eq!(readings.len(), 1, "{source}");
            assert_eq!(readings[0].text, source);
            assert!(!readings[0].is_modified());
        }
    }

    #[test]
    fn spans_are_those_of_the_original() {
        let source = "\\a\n\\b é\nr\\\nm \\\n\\c # x\\\n\\d";
        for interpretation in interpretations(source) {
            for word in ["\\a", "\\b", "é", "m \\\n", "\\c", "\\d"] {
                let at = interpretation.text.find(word).expect(word);
                let span = interpretation.original_span(&(at..at + word.len()));
                assert_eq!(source.part(span), word, "{interpretation:?}");
            }
            let all = interpretation.original_span(&(0..interpretation.text.len()));
            assert_eq!(all, 0..source.len());
        }
    }
}
