//! A second, strict lexer that accepts only lines of plain words and operators.
//!
//! A line is a read only if this lexer and the parser agree on every word, so that a construct that
//! one of them misunderstands cannot pass.

use std::ops::Range;

use crate::word::{ScanUntil, ScannedWord, scan_word};

/// The spans of a line's words, as the parser or the lexer found them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LineLayout {
    /// The words of each simple command, and the values of each loop.
    pub(crate) commands: Vec<Vec<Range<usize>>>,
    /// The targets of the redirections.
    pub(crate) redirect_targets: Vec<Range<usize>>,
    /// Each `NAME=value` before a command.
    pub(crate) assignments: Vec<Range<usize>>,
}

/// The layout of a line, if all of it is plain.
pub(crate) fn lex_line(source: &str) -> Option<LineLayout> {
    let mut lexer = Lexer {
        source,
        at: 0,
        layout: LineLayout::default(),
        segment: Segment::default(),
    };
    lexer.lex()?;
    Some(lexer.layout)
}

/// The words of a line that is one simple command without operators.
pub(crate) fn single_command_words(source: &str) -> Option<Vec<ScannedWord>> {
    let layout = lex_line(source)?;
    let [words] = layout.commands.as_slice() else {
        return None;
    };
    if !layout.redirect_targets.is_empty() || !layout.assignments.is_empty() {
        return None;
    }
    // Only blanks may come between the words: no comment, operator or keyword.
    let mut outside = String::new();
    let mut end = 0;
    for word in words {
        outside.push_str(&source[end..word.start]);
        end = word.end;
    }
    outside.push_str(&source[end..]);
    let blank = outside.chars().all(|c| c == ' ' || c == '\t');
    blank.then(|| {
        words
            .iter()
            .map(|word| scan_word(&source[..word.end], word.start, ScanUntil::End))
            .collect()
    })
}

/// The part of the line since the last operator or keyword.
#[derive(Default)]
struct Segment {
    words: Vec<Range<usize>>,
    /// Whether a keyword such as `done` ended it, so that only redirections may follow.
    closed: bool,
    /// Whether this is inside `for name in …`.
    in_loop_values: bool,
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    layout: LineLayout,
    segment: Segment,
}

/// Longest first, so that a prefix never hides a longer operator.
const REDIRECTS: [&str; 9] = ["<<<", "&>>", "&>", ">>", ">|", ">&", "<&", "<", ">"];

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.source[self.at..]
    }

    fn lex(&mut self) -> Option<()> {
        while let Some(c) = self.rest().chars().next() {
            match c {
                ' ' | '\t' => self.at += 1,
                '\\' if self.rest().starts_with("\\\n") => self.at += 2,
                '#' => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                '\n' => self.end_command(1),
                ';' if !self.rest().starts_with(";;") && !self.rest().starts_with(";&") => {
                    self.end_command(1);
                }
                '&' if self.rest().starts_with("&&") => self.end_command(2),
                '&' if self.rest().starts_with("&>") => self.redirect()?,
                '|' if self.rest().starts_with("||") => self.end_command(2),
                '|' if !self.rest().starts_with("|&") => self.end_command(1),
                '(' if self.segment.words.is_empty() && !self.rest().starts_with("((") => {
                    self.end_command(1);
                }
                ')' => {
                    self.end_command(1);
                    self.segment.closed = true;
                }
                '<' | '>' => self.redirect()?,
                ';' | '&' | '|' | '(' => return None,
                _ => self.word()?,
            }
        }
        self.end_command(0);
        Some(())
    }

    fn end_command(&mut self, length: usize) {
        let segment = std::mem::take(&mut self.segment);
        if !segment.words.is_empty() {
            self.layout.commands.push(segment.words);
        }
        self.at += length;
    }

    fn redirect(&mut self) -> Option<()> {
        let rest = self.rest();
        // This lexer does not accept here-documents, process substitution or `<>`.
        if (rest.starts_with("<<") && !rest.starts_with("<<<"))
            || rest.starts_with("<(")
            || rest.starts_with(">(")
            || rest.starts_with("<>")
        {
            return None;
        }
        let operator = REDIRECTS
            .iter()
            .find(|operator| rest.starts_with(**operator))?;
        self.at += operator.len();
        let blanks = self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
        self.at += blanks;
        let target = self.certain_word()?;
        self.layout.redirect_targets.push(target);
        Some(())
    }

    /// The next word, if there is one and it is understood with certainty.
    fn certain_word(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        let scan = scan_word(self.source, start, ScanUntil::Operator);
        self.at = scan.end;
        (scan.certain && scan.end > start).then_some(start..scan.end)
    }

    fn word(&mut self) -> Option<()> {
        let span = self.certain_word()?;
        let raw = &self.source[span.clone()];
        let digits = raw.bytes().all(|byte| byte.is_ascii_digit());
        if digits && self.rest().starts_with(['<', '>']) {
            return self.redirect();
        }
        if self.segment.closed {
            return None;
        }
        if self.segment.words.is_empty() && !self.segment.in_loop_values {
            return self.first_word(span);
        }
        self.segment.words.push(span);
        Some(())
    }

    fn first_word(&mut self, span: Range<usize>) -> Option<()> {
        match &self.source[span.clone()] {
            "!" | "{" | "if" | "then" | "elif" | "else" | "do" => {}
            "}" | "fi" | "done" => self.segment.closed = true,
            "for" => self.for_header()?,
            "while" | "until" | "case" | "esac" | "select" | "function" | "coproc" | "time"
            | "[[" | "]]" | "in" => return None,
            raw if is_assignment(raw) => self.layout.assignments.push(span),
            raw if raw.contains('=') && raw.contains('[') => return None,
            _ => self.segment.words.push(span),
        }
        Some(())
    }

    /// Lexes `name in`, which comes before the values.
    fn for_header(&mut self) -> Option<()> {
        for expected in [None, Some("in")] {
            let blanks = self.rest().len() - self.rest().trim_start_matches(' ').len();
            self.at += blanks;
            let span = self.certain_word()?;
            let raw = &self.source[span];
            if expected.is_some_and(|expected| expected != raw) || !is_variable_name(raw) {
                return None;
            }
        }
        self.segment.in_loop_values = true;
        Some(())
    }
}

/// Whether this is a valid variable name.
pub(crate) fn is_variable_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether this is `NAME=…`.
pub(crate) fn is_assignment(raw: &str) -> bool {
    raw.split_once('=')
        .is_some_and(|(name, _)| is_variable_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(source: &str) -> Option<Vec<Vec<&str>>> {
        let layout = lex_line(source)?;
        let text =
            |words: &Vec<Range<usize>>| words.iter().map(|span| &source[span.clone()]).collect();
        Some(layout.commands.iter().map(text).collect())
    }

    #[test]
    fn plain_lines_are_split_into_commands() {
        for (source, expected) in [
            ("ls -l", vec![vec!["ls", "-l"]]),
            (
                "a; b && c | d || e",
                vec![vec!["a"], vec!["b"], vec!["c"], vec!["d"], vec!["e"]],
            ),
            ("a 2>&1 </x # y", vec![vec!["a"]]),
            ("(cd a; b)", vec![vec!["cd", "a"], vec!["b"]]),
            (
                "for f in x y; do cat \"$f\"; done",
                vec![vec!["x", "y"], vec!["cat", "\"$f\""]],
            ),
            ("! a 'b c'", vec![vec!["a", "'b c'"]]),
        ] {
            assert_eq!(commands(source), Some(expected), "{source}");
        }
    }

    #[test]
    fn anything_else_is_not_read_at_all() {
        for source in [
            "a &",
            "a |& b",
            "f() { a; }",
            "a <<E\nE",
            "a <(b)",
            "a `b`",
            "a $(b)",
            "a \"${b:=c}\"",
            "a {b,c}",
            "(( a ))",
            "case x in",
            "a $'b'",
            "a ;; b",
            "a[0]=b c",
            "[[ a ]]",
            "while a",
        ] {
            assert_eq!(commands(source), None, "{source}");
        }
    }

    #[test]
    fn a_single_command_has_nothing_beside_its_words() {
        assert!(single_command_words("git status -s").is_some());
        for source in ["a; b", "a >b", "A=1 a", "! a", "{ a", "a # b", "(a)", ""] {
            assert!(single_command_words(source).is_none(), "{source}");
        }
    }
}
