//! A second, strict lexer that accepts only lines of plain words and operators.
//!
//! A line is a read only if this lexer and the parser agree on every word, so that a construct that
//! one of them misunderstands cannot pass.

use crate::source_text::SourceText;
use std::ops::Range;

use crate::word::{ScanUntil, ScannedWord, scan_nested_word, scan_word};

/// The spans of a line's words, as the parser or the lexer found them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LineLayout {
    /// The words of each simple command, and the values of each loop.
    pub(crate) commands: Vec<Vec<Range<usize>>>,
    /// The targets of the redirections.
    pub(crate) redirect_targets: Vec<Range<usize>>,
    /// Each `NAME=value` before a command.
    pub(crate) assignments: Vec<Range<usize>>,
    /// The text of each here-document.
    pub(crate) here_documents: Vec<Range<usize>>,
    /// Whether the shell expands variables or escapes in one of them.
    pub(crate) expands_documents: bool,
}

impl LineLayout {
    /// Orders everything by its position, whatever the order in which it was found.
    pub(crate) fn sort(&mut self) {
        self.commands
            .sort_by_key(|words| words.first().map(|word| word.start));
        self.redirect_targets.sort_by_key(|span| span.start);
        self.assignments.sort_by_key(|span| span.start);
        self.here_documents.sort_by_key(|span| span.start);
    }

    fn extend(&mut self, other: LineLayout) {
        self.commands.extend(other.commands);
        self.redirect_targets.extend(other.redirect_targets);
        self.assignments.extend(other.assignments);
        self.here_documents.extend(other.here_documents);
        self.expands_documents |= other.expands_documents;
    }
}

/// The layout of a line, if all of it is plain.
pub(crate) fn lex_line(source: &str) -> Option<LineLayout> {
    let mut lexer = Lexer::new(source, 0, 0);
    lexer.lex()?;
    lexer.layout.sort();
    Some(lexer.layout)
}

/// The layout of the commands in `$(…)`, from the position behind the parenthesis, and the position
/// behind the closing one.
pub(crate) fn lex_substitution(
    source: &str,
    start: usize,
    depth: usize,
) -> Option<(LineLayout, usize)> {
    let mut lexer = Lexer::new(source, start, depth);
    lexer.lex()?;
    Some((lexer.layout, lexer.at))
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
        outside.push_str(source.part(end..word.start));
        end = word.end;
    }
    outside.push_str(source.part(end..));
    let blank = outside.chars().all(|c| c == ' ' || c == '\t');
    blank.then(|| {
        words
            .iter()
            .map(|word| scan_word(source.part(..word.end), word.start, ScanUntil::End))
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

/// A here-document whose text begins behind the next line break.
struct PendingDocument {
    delimiter: String,
    /// Whether tabs before the delimiter are ignored.
    strips_tabs: bool,
    /// Whether the shell would expand something in its text.
    expands: bool,
}

struct Lexer<'a> {
    /// The whole text.
    source: &'a str,
    /// The position of the next character.
    at: usize,
    /// How many substitutions this is inside; the outermost parenthesis ends such a lexer.
    depth: usize,
    /// What has been found so far.
    layout: LineLayout,
    /// The part of the line since the last operator or keyword.
    segment: Segment,
    /// Here-documents that were announced on this line.
    pending: Vec<PendingDocument>,
    /// How many subshells are open.
    open_subshells: usize,
    /// How many case statements are open.
    open_cases: usize,
    /// Whether the patterns of a case statement come next, or its end.
    expects_pattern: bool,
}

/// How deep inside substitutions the text of a here-document may hold others.
const MAX_DOCUMENT_DEPTH: usize = 3;

/// Longest first, so that a prefix never hides a longer operator.
const REDIRECTS: [&str; 9] = ["<<<", "&>>", "&>", ">>", ">|", ">&", "<&", "<", ">"];

impl<'a> Lexer<'a> {
    fn new(source: &'a str, at: usize, depth: usize) -> Self {
        Self {
            source,
            at,
            depth,
            layout: LineLayout::default(),
            segment: Segment::default(),
            pending: Vec::new(),
            open_subshells: 0,
            open_cases: 0,
            expects_pattern: false,
        }
    }
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        self.source.part(self.at..)
    }

    fn lex(&mut self) -> Option<()> {
        while let Some(c) = self.rest().chars().next() {
            if self.expects_pattern {
                self.case_patterns()?;
                continue;
            }
            match c {
                ' ' | '\t' => self.at += 1,
                '\\' if self.rest().starts_with("\\\n") => self.at += 2,
                '#' => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                '\n' => {
                    self.end_command(1);
                    self.skip_here_documents()?;
                }
                ';' if self.rest().starts_with(";;") => self.end_case_item()?,
                ';' if !self.rest().starts_with(";&") => self.end_command(1),
                '&' if self.rest().starts_with("&&") => self.end_command(2),
                '&' if self.rest().starts_with("&>") => self.redirect()?,
                '|' if self.rest().starts_with("||") => self.end_command(2),
                '|' if !self.rest().starts_with("|&") => self.end_command(1),
                '(' if self.segment.words.is_empty() && !self.rest().starts_with("((") => {
                    self.open_subshells += 1;
                    self.end_command(1);
                }
                ')' if self.open_subshells > 0 => {
                    self.open_subshells -= 1;
                    self.end_command(1);
                    self.segment.closed = true;
                }
                ')' if self.depth > 0 => {
                    self.end_command(1);
                    return self.is_complete().then_some(());
                }
                '<' if self.rest().starts_with("<(") && self.begins_word() => self.word()?,
                '<' | '>' => self.redirect()?,
                ';' | '&' | '|' | '(' | ')' => return None,
                _ => self.word()?,
            }
        }
        self.end_command(0);
        (self.depth == 0 && self.is_complete()).then_some(())
    }

    /// Whether an argument begins here: directly behind a word, `<(…)` would be part of that word.
    fn begins_word(&self) -> bool {
        let before = self.source.part(..self.at);
        !self.segment.words.is_empty() && before.ends_with([' ', '\t'])
    }

    /// Whether nothing is left open.
    fn is_complete(&self) -> bool {
        self.pending.is_empty()
            && self.open_subshells == 0
            && self.open_cases == 0
            && !self.expects_pattern
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
        if rest.starts_with("<<") && !rest.starts_with("<<<") {
            return self.here_document();
        }
        // This lexer accepts neither `<(…)` at the place of a command, nor `>(…)` and `<>`.
        if rest.starts_with("<(") || rest.starts_with(">(") || rest.starts_with("<>") {
            return None;
        }
        let operator = REDIRECTS
            .iter()
            .find(|operator| rest.starts_with(**operator))?;
        self.at += operator.len();
        self.skip_blanks();
        let target = self.one_word()?;
        self.layout.redirect_targets.push(target);
        Some(())
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
    }

    /// Lexes `<<` and the delimiter, which must be plain.
    fn here_document(&mut self) -> Option<()> {
        let strips_tabs = self.rest().starts_with("<<-");
        self.at += if strips_tabs { 3 } else { 2 };
        self.skip_blanks();
        let span = self.one_word()?;
        let raw = self.source.part(span.clone());
        let expands = !raw.contains(['\'', '"', '\\']);
        let scan = scan_word(self.source.part(..span.end), span.start, ScanUntil::End);
        let delimiter = scan.word.as_literal()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "_- ".contains(c);
        if delimiter.is_empty() || !delimiter.chars().all(plain) {
            return None;
        }
        self.pending.push(PendingDocument {
            delimiter,
            strips_tabs,
            expands,
        });
        Some(())
    }

    /// Skips the text of the here-documents that were announced on the line before.
    fn skip_here_documents(&mut self) -> Option<()> {
        for document in std::mem::take(&mut self.pending) {
            let start = self.at;
            let end = loop {
                let rest = self.rest();
                let (line, length) = match rest.find('\n') {
                    Some(end) => (rest.part(..end), end + 1),
                    None => (rest, rest.len()),
                };
                let shown = match document.strips_tabs {
                    true => line.trim_start_matches('\t'),
                    false => line,
                };
                let ends = shown == document.delimiter;
                // Inside a substitution, a line that only begins with it may end the text too.
                let may_end = shown.starts_with(&document.delimiter) && !ends;
                // A line that goes on in the next one may end it too.
                let goes_on = document.expands && line.ends_with('\\');
                if length == 0 || may_end || goes_on {
                    return None;
                }
                let line_start = self.at;
                self.at += length;
                if ends {
                    break line_start;
                }
            };
            if document.expands {
                self.expanded_document(start..end)?;
            } else {
                self.layout.here_documents.push(start..end);
            }
        }
        Some(())
    }

    /// Finds the substitutions in the text of a here-document. The rest of it is data.
    fn expanded_document(&mut self, span: Range<usize>) -> Option<()> {
        let text = self.source.part(span.clone());
        let mut data_start = span.start;
        let mut skip_until = span.start;
        let mut escaped = false;
        for (offset, c) in text.char_indices() {
            let at = span.start + offset;
            if at < skip_until {
                continue;
            }
            let rest = self.source.part(at..span.end);
            match c {
                _ if escaped => escaped = false,
                '\\' if rest.starts_with("\\\n") => return None,
                '\\' => escaped = true,
                '`' => return None,
                '$' if rest.starts_with("$(") => {
                    let inside = self.source.part(..span.end);
                    let (layout, end) = lex_substitution(inside, at + 2, self.depth + 1)
                        .filter(|_| self.depth < MAX_DOCUMENT_DEPTH)?;
                    self.layout.here_documents.push(data_start..at);
                    self.layout.extend(layout);
                    (data_start, skip_until) = (end, end);
                }
                _ => {}
            }
            self.layout.expands_documents |= matches!(c, '$' | '\\');
        }
        self.layout.here_documents.push(data_start..span.end);
        Some(())
    }

    /// The next word, if there is one and it is understood with certainty.
    fn certain_word(&mut self) -> Option<(Range<usize>, ScannedWord)> {
        let start = self.at;
        let scan = scan_nested_word(self.source, start, ScanUntil::Operator, self.depth);
        self.at = scan.end;
        let span = start..scan.end;
        // A line break in a word would be where the text of a here-document begins.
        let breaks = !self.pending.is_empty() && self.source.part(span.clone()).contains('\n');
        (scan.certain && scan.end > start && !breaks).then_some((span, scan))
    }

    /// The next word, if it is certain to be exactly one.
    fn one_word(&mut self) -> Option<Range<usize>> {
        let (span, scan) = self.certain_word()?;
        let one = scan.expanded.is_empty();
        self.add_inner(scan.inner);
        one.then_some(span)
    }

    fn add_inner(&mut self, inner: Vec<LineLayout>) {
        for layout in inner {
            self.layout.extend(layout);
        }
    }

    fn word(&mut self) -> Option<()> {
        let (span, scan) = self.certain_word()?;
        let raw = self.source.part(span.clone());
        let digits = raw.bytes().all(|byte| byte.is_ascii_digit());
        let redirects = self.rest().starts_with(['<', '>']);
        if digits && redirects {
            return self.redirect();
        }
        // `{NAME}<file` sets a variable of the shell.
        if redirects && raw.starts_with('{') {
            return None;
        }
        if self.segment.closed {
            return None;
        }
        self.add_inner(scan.inner);
        if self.segment.words.is_empty() && !self.segment.in_loop_values {
            return self.first_word(span);
        }
        self.segment.words.push(span);
        Some(())
    }

    fn first_word(&mut self, span: Range<usize>) -> Option<()> {
        match self.source.part(span.clone()) {
            "!" | "{" | "if" | "then" | "elif" | "else" | "do" | "while" => {}
            "}" | "fi" | "done" => self.segment.closed = true,
            "for" => self.for_header()?,
            "case" => self.case_header()?,
            "[[" => self.double_brackets(span)?,
            "esac" if self.open_cases > 0 => self.close_case(),
            "until" | "esac" | "select" | "function" | "coproc" | "]]" | "in" => return None,
            raw if is_assignment(raw) => self.layout.assignments.push(span),
            raw if raw.contains('=') && raw.contains('[') => return None,
            _ => self.segment.words.push(span),
        }
        Some(())
    }

    /// Lexes `name in`, which comes before the values.
    fn for_header(&mut self) -> Option<()> {
        for expected in [None, Some("in")] {
            self.skip_blanks();
            let span = self.one_word()?;
            let raw = self.source.part(span);
            if expected.is_some_and(|expected| expected != raw) || !is_variable_name(raw) {
                return None;
            }
        }
        self.segment.in_loop_values = true;
        Some(())
    }

    /// Lexes `word in`, which comes before the patterns.
    fn case_header(&mut self) -> Option<()> {
        self.skip_blanks();
        let subject = self.one_word()?;
        self.skip_blanks();
        let keyword = self.one_word()?;
        if self.source.part(keyword) != "in" {
            return None;
        }
        self.layout.commands.push(vec![subject]);
        self.open_cases += 1;
        self.expects_pattern = true;
        Some(())
    }

    /// Lexes the patterns of one item, up to the parenthesis, or the end of the statement.
    fn case_patterns(&mut self) -> Option<()> {
        let rest = self.rest();
        let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\n']).len();
        if blanks > 0 {
            self.at += blanks;
            return self.pending.is_empty().then_some(());
        }
        let mut patterns = Vec::new();
        if self.rest().starts_with('(') {
            self.at += 1;
            self.skip_blanks();
        }
        loop {
            let span = self.one_word()?;
            if patterns.is_empty() && self.source.part(span.clone()) == "esac" {
                self.close_case();
                return Some(());
            }
            patterns.push(span);
            self.skip_blanks();
            let separator = self.rest().chars().next()?;
            self.at += separator.len_utf8();
            self.skip_blanks();
            match separator {
                '|' => {}
                ')' => break,
                _ => return None,
            }
        }
        self.layout.commands.push(patterns);
        self.expects_pattern = false;
        Some(())
    }

    fn end_case_item(&mut self) -> Option<()> {
        if self.open_cases == 0 || self.rest().starts_with(";;&") {
            return None;
        }
        self.end_command(2);
        self.expects_pattern = true;
        Some(())
    }

    fn close_case(&mut self) {
        self.open_cases -= 1;
        self.expects_pattern = false;
        self.segment.closed = true;
    }

    /// Lexes the rest of `[[ … ]]`. The operators in it are not words.
    fn double_brackets(&mut self, first: Range<usize>) -> Option<()> {
        let mut words = vec![first];
        loop {
            let next = self.rest().chars().next()?;
            if " \t\n|&;()<>".contains(next) {
                if next == '\n' && !self.pending.is_empty() {
                    return None;
                }
                self.at += 1;
                continue;
            }
            let span = self.one_word()?;
            let ends = self.source.part(span.clone()) == "]]";
            words.push(span);
            if ends {
                break;
            }
        }
        self.segment.words = words;
        self.segment.closed = true;
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
mod tests;
