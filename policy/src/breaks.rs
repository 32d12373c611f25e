//! Backslashes around line breaks, which the parser misreads.
//!
//! A backslash that begins a line makes it take the break for a blank, and a command for more
//! words of the one above: a blank before it helps. One that ends a line inside a word makes it
//! see two words: without it and the break there is one. Only the parser knows whether a backslash
//! stands in a comment, where it joins nothing, so that some texts have several readings. What
//! changed may have been inside quotes, so that no changed reading is taken for a read.

use std::ops::Range;

/// A text for the parser.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) text: String,
    /// Places in the text from which on the original is shifted, and by how much.
    shifts: Vec<(usize, isize)>,
}

impl Reading {
    pub(crate) fn is_changed(&self) -> bool {
        !self.shifts.is_empty()
    }

    /// The place of a span in the original.
    pub(crate) fn original(&self, span: &Range<usize>) -> Range<usize> {
        let place = |at: usize| {
            let before = self.shifts.iter().take_while(|(from, _)| *from <= at);
            let shift: isize = before.map(|(_, shift)| shift).sum();
            at.saturating_add_signed(shift)
        };
        place(span.start)..place(span.end)
    }
}

/// Every way in which a shell may read this.
pub(crate) fn readings(source: &str) -> Vec<Reading> {
    let mut readings = vec![read(source, Joint::Kept)];
    for joint in [Joint::Broken, Joint::Gone] {
        let reading = read(source, joint);
        if !readings.contains(&reading) {
            readings.push(reading);
        }
    }
    readings
}

/// What is done with a backslash and a line break inside a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joint {
    Kept,
    /// It may be in a comment, and the next line begins something.
    Broken,
    Gone,
}

fn read(source: &str, joint: Joint) -> Reading {
    let mut text = String::with_capacity(source.len());
    let mut shifts = Vec::new();
    for (at, c) in source.char_indices() {
        let begins = Beginning::of(&source[..at]);
        let may_break = match begins {
            Beginning::Nothing => false,
            Beginning::Line => true,
            Beginning::Joined { comment } => comment && joint == Joint::Broken,
        };
        if c == '\\' && may_break {
            text.push(' ');
            shifts.push((text.len(), -1));
        }
        let joined = matches!(begins, Beginning::Joined { .. }) && !c.is_whitespace();
        let in_word = text
            .strip_suffix("\\\n")
            .is_some_and(|before| !before.is_empty() && !before.ends_with(char::is_whitespace));
        if joint == Joint::Gone && joined && in_word {
            text.truncate(text.len() - 2);
            shifts.push((text.len(), 2));
        }
        text.push(c);
    }
    Reading { text, shifts }
}

/// What begins behind a text.
#[derive(Clone, Copy)]
enum Beginning {
    Nothing,
    Line,
    /// A line that a backslash joins to the one before, unless that one is a comment.
    Joined {
        comment: bool,
    },
}

impl Beginning {
    fn of(text: &str) -> Self {
        let Some(text) = text.strip_suffix('\n') else {
            return Self::Nothing;
        };
        let backslashes = text.len() - text.trim_end_matches('\\').len();
        if backslashes.is_multiple_of(2) {
            return Self::Line;
        }
        let line = text.rsplit('\n').next().unwrap_or(text);
        Self::Joined {
            comment: line.contains('#'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        let readings = readings(source).into_iter();
        readings.map(|reading| reading.text).collect()
    }

    #[test]
    fn a_line_that_begins_with_a_backslash_is_a_line() {
        assert_eq!(texts("a\n\\b\n\\\n\\c"), ["a\n \\b\n \\\n\\c"]);
        assert_eq!(texts("a\\\\\n\\b"), ["a\\\\\n \\b"]);
        assert_eq!(texts("# a\n\\b"), ["# a\n \\b"]);
    }

    #[test]
    fn a_word_that_goes_on_in_the_next_line_is_one_word() {
        assert_eq!(texts("r\\\nm x"), ["r\\\nm x", "rm x"]);
        assert_eq!(texts("r\\\n\\\nm"), ["r\\\n\\\nm", "rm"]);
        assert_eq!(texts("r\\\n\\m"), ["r\\\n\\m", "r\\m"]);
    }

    #[test]
    fn what_may_be_a_comment_is_read_in_every_way() {
        assert_eq!(texts("# a\\\n\\b"), ["# a\\\n\\b", "# a\\\n \\b", "# a\\b"]);
        assert_eq!(texts("#\na \\\n\\b").len(), 1);
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for source in [
            "",
            "ls \\\n -l",
            "ls\\\n -l",
            "a\n \\b",
            "\\rm a",
            "\\\nls",
            "é\\",
        ] {
            let readings = readings(source);
            assert_eq!(readings.len(), 1, "{source}");
            assert_eq!(readings[0].text, source);
            assert!(!readings[0].is_changed());
        }
    }

    #[test]
    fn places_are_those_of_the_original() {
        let source = "\\a\n\\b é\nr\\\nm \\\n\\c # x\\\n\\d";
        for reading in readings(source) {
            for word in ["\\a", "\\b", "é", "m \\\n", "\\c", "\\d"] {
                let at = reading.text.find(word).expect(word);
                let span = reading.original(&(at..at + word.len()));
                assert_eq!(&source[span], word, "{reading:?}");
            }
            let all = reading.original(&(0..reading.text.len()));
            assert_eq!(all, 0..source.len());
        }
    }
}
