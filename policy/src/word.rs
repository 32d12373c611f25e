//! Shell words: what their quotes mean, and what a shell would still expand in them.

mod braces;

use crate::lex::{self, LineLayout};
use crate::source_text::SourceText;

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WordPart {
    /// Exactly these characters.
    Text(String),
    /// An unquoted `*`, `?`, `[` or `]`, which expands to unknown file names.
    Glob(char),
    /// `$name` or `${name}`.
    Variable { name: String, quoted: bool },
    /// A value that only the shell knows, as written in the source: what commands print that are
    /// assessed on their own, a line that `read` has read, or arithmetic. In quotes it is part of
    /// one word; without, it may be any number of words and file names.
    Computed { source: String, quoted: bool },
    /// Anything else that a shell would evaluate, as written in the source.
    Opaque(String),
}

/// A word in parts, with a flag that tells an unquoted leading `~` from a quoted one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ShellWord {
    pub(crate) parts: Vec<WordPart>,
    pub(crate) leading_tilde: bool,
    /// Whether it has unquoted braces, which may expand to several words.
    pub(crate) has_braces: bool,
}

impl ShellWord {
    pub(crate) fn literal(text: &str) -> Self {
        Self {
            parts: vec![WordPart::Text(text.to_owned())],
            ..Self::default()
        }
    }

    /// The text, in which unknown values stay as written.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for piece in &self.parts {
            match piece {
                WordPart::Text(part)
                | WordPart::Opaque(part)
                | WordPart::Computed { source: part, .. } => text.push_str(part),
                WordPart::Glob(c) => text.push(*c),
                WordPart::Variable { name, .. } => {
                    text.push('$');
                    text.push_str(name);
                }
            }
        }
        text
    }

    /// The string that this word always is, if a shell would expand nothing in it.
    pub(crate) fn as_literal(&self) -> Option<String> {
        let fixed = |piece: &WordPart| matches!(piece, WordPart::Text(_));
        (!self.leading_tilde && self.parts.iter().all(fixed)).then(|| self.text())
    }

    /// Whether a shell could expand nothing in it but file names.
    pub(crate) fn is_static(&self) -> bool {
        let known = |piece: &WordPart| matches!(piece, WordPart::Text(_) | WordPart::Glob(_));
        self.parts.iter().all(known)
    }

    /// Whether it holds a value that only the shell knows, and is exactly one word all the same.
    pub(crate) fn is_one_computed_word(&self) -> bool {
        let known = |part: &WordPart| {
            matches!(
                part,
                WordPart::Text(_) | WordPart::Computed { quoted: true, .. }
            )
        };
        !self.leading_tilde && self.is_computed() && self.parts.iter().all(known)
    }

    /// Whether this is `<(…)`, which a command reads like a file.
    pub(crate) fn is_pipe(&self) -> bool {
        let computed = |part: &WordPart| matches!(part, WordPart::Computed { .. });
        matches!(self.parts.as_slice(), [WordPart::Text(text), part]
            if text == PIPE_DIRECTORY && computed(part))
    }

    pub(crate) fn is_computed(&self) -> bool {
        let computed = |part: &WordPart| matches!(part, WordPart::Computed { .. });
        self.parts.iter().any(computed)
    }

    pub(crate) fn has_glob(&self) -> bool {
        let glob = |piece: &WordPart| matches!(piece, WordPart::Glob(_));
        self.parts.iter().any(glob)
    }

    /// Whether it begins with a glob or a computed value, so that it could become a flag.
    pub(crate) fn may_begin_with_dash(&self) -> bool {
        let first = self
            .parts
            .iter()
            .find(|piece| **piece != WordPart::Text(String::new()));
        matches!(first, Some(WordPart::Glob(_) | WordPart::Computed { .. }))
    }

    /// This word with a loop variable replaced by its value.
    pub(crate) fn substitute(&self, variable: &str, value: &ShellWord) -> ShellWord {
        let mut parts = Vec::new();
        for piece in &self.parts {
            match piece {
                WordPart::Variable { name, quoted } if name == variable => {
                    parts.extend(value_parts(name, *quoted, value));
                }
                WordPart::Text(_)
                | WordPart::Glob(_)
                | WordPart::Variable { .. }
                | WordPart::Computed { .. }
                | WordPart::Opaque(_) => {
                    parts.push(piece.clone());
                }
            }
        }
        ShellWord { parts, ..*self }
    }
}

/// What a variable with this value expands to.
fn value_parts(name: &str, quoted: bool, value: &ShellWord) -> Vec<WordPart> {
    let source = format!("${name}");
    if value.is_computed() {
        return vec![WordPart::Computed { source, quoted }];
    }
    // A tilde at the beginning of the value was expanded by the loop.
    if !value.leading_tilde && (quoted || survives_splitting(value)) {
        value.parts.clone()
    } else {
        vec![WordPart::Opaque(source)]
    }
}

/// Whether an unquoted variable with this value expands to one word without globs.
fn survives_splitting(value: &ShellWord) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    value
        .as_literal()
        .is_some_and(|text| !text.is_empty() && text.chars().all(plain))
}

/// How many characters of an opaque part are kept for the patterns.
const MAX_OPAQUE_CHARS: usize = 200;

/// How deep substitutions inside substitutions are followed.
const MAX_SUBSTITUTION_DEPTH: usize = 4;

/// Where the names of the pipes are that stand for `<(…)`.
pub(crate) const PIPE_DIRECTORY: &str = "/dev/fd/";

/// A scanned word and where it ends.
pub(crate) struct ScannedWord {
    pub(crate) word: ShellWord,
    pub(crate) end: usize,
    /// Whether everything in it was understood with certainty.
    pub(crate) certain: bool,
    /// The words that its braces expand to, if it has braces and that is certain.
    pub(crate) expanded: Vec<ShellWord>,
    /// The commands of the substitutions in it.
    pub(crate) inner: Vec<LineLayout>,
}

/// Whether to stop at an unquoted operator, or to scan to the end of the text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanUntil {
    Operator,
    End,
}

/// Scans one word from `start`.
pub(crate) fn scan_word(source: &str, start: usize, until: ScanUntil) -> ScannedWord {
    scan_nested_word(source, start, until, 0)
}

/// Scans one word that is inside this many substitutions.
pub(crate) fn scan_nested_word(
    source: &str,
    start: usize,
    until: ScanUntil,
    depth: usize,
) -> ScannedWord {
    let mut scanner = WordScanner::new(source, start, until, depth);
    let tilde = source.part(start..).starts_with('~');
    if source.part(start..).starts_with("<(") {
        scanner.process_substitution();
    }
    scanner.scan();
    scanner.flush_text();
    let raw = source.part(start..scanner.at);
    // Braces may expand to other words. Only `{}` and lone braces never do.
    let without_pairs = raw.replace("{}", "");
    let lone = matches!(raw, "{" | "}") || !without_pairs.contains(['{', '}']);
    let braces = scanner.braces && !lone;
    let expanded = if braces {
        braces::expand(raw).unwrap_or_default()
    } else {
        Vec::new()
    };
    ScannedWord {
        word: ShellWord {
            parts: scanner.parts,
            leading_tilde: tilde,
            has_braces: braces,
        },
        end: scanner.at,
        certain: scanner.certain && (!braces || !expanded.is_empty()),
        expanded: expanded.iter().map(|text| plain_word(text)).collect(),
        inner: scanner.inner,
    }
}

/// A word without quotes, whose braces stay as they are.
fn plain_word(text: &str) -> ShellWord {
    let mut scanner = WordScanner::new(text, 0, ScanUntil::End, 0);
    scanner.scan();
    scanner.flush_text();
    ShellWord {
        parts: scanner.parts,
        leading_tilde: text.starts_with('~'),
        has_braces: false,
    }
}

/// Scans one word, character by character.
struct WordScanner<'a> {
    /// The whole line.
    source: &'a str,
    /// The position of the next character.
    at: usize,
    /// The parts that are complete.
    parts: Vec<WordPart>,
    /// The text of the part that is being scanned.
    text: String,
    /// Whether everything so far was understood with certainty.
    certain: bool,
    /// Whether there were unquoted braces.
    braces: bool,
    /// The commands of the substitutions so far.
    inner: Vec<LineLayout>,
    /// Where to stop.
    until: ScanUntil,
    /// How many substitutions the word is inside.
    depth: usize,
}

impl<'a> WordScanner<'a> {
    fn new(source: &'a str, at: usize, until: ScanUntil, depth: usize) -> Self {
        Self {
            source,
            at,
            parts: Vec::new(),
            text: String::new(),
            certain: true,
            braces: false,
            inner: Vec::new(),
            until,
            depth,
        }
    }
}

impl WordScanner<'_> {
    fn peek(&self) -> Option<char> {
        self.source.part(self.at..).chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn flush_text(&mut self) {
        if !self.text.is_empty() || self.parts.is_empty() {
            let text = std::mem::take(&mut self.text);
            self.parts.push(WordPart::Text(text));
        }
    }

    fn scan(&mut self) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\n' | '|' | '&' | ';' | '(' | ')' | '<' | '>' => {
                    if self.until == ScanUntil::Operator {
                        return;
                    }
                    self.certain = false;
                    self.text.push(c);
                    self.next();
                }
                '\'' => self.single_quoted(),
                '"' => self.double_quoted(),
                '\\' => self.escaped(),
                '$' => self.dollar(false),
                '`' => self.rest_is_opaque(),
                '[' | ']' if !self.is_bracket_pattern(c) => {
                    self.text.push(c);
                    self.next();
                }
                '*' | '?' | '[' | ']' => {
                    self.flush_text();
                    self.parts.push(WordPart::Glob(c));
                    self.next();
                }
                _ => {
                    self.braces |= matches!(c, '{' | '}');
                    // In `name=~/x` and `a=b:~/x` the shell expands the tilde too.
                    let expands = c == '~' && self.text.ends_with(['=', ':']);
                    self.certain &= !expands;
                    self.text.push(c);
                    self.next();
                }
            }
        }
    }

    /// A lone `[` or `]` is a plain character.
    fn is_bracket_pattern(&self, bracket: char) -> bool {
        match bracket {
            '[' => self
                .source
                .part(self.at + 1..)
                .starts_with(|c: char| !" \t\n|&;()<>".contains(c)),
            _ => self.parts.contains(&WordPart::Glob('[')),
        }
    }

    fn single_quoted(&mut self) {
        self.next();
        loop {
            match self.next() {
                Some('\'') => return,
                Some(c) => self.text.push(c),
                None => {
                    self.certain = false;
                    return;
                }
            }
        }
    }

    fn double_quoted(&mut self) {
        self.next();
        loop {
            match self.peek() {
                Some('"') => {
                    self.next();
                    return;
                }
                Some('\\') => {
                    self.next();
                    match self.next() {
                        Some(c @ ('$' | '`' | '"' | '\\')) => self.text.push(c),
                        Some('\n') => self.certain = false,
                        Some(c) => self.text.extend(['\\', c]),
                        None => self.certain = false,
                    }
                }
                Some('$') => self.dollar(true),
                Some('`') => return self.rest_is_opaque(),
                Some(c) => {
                    self.text.push(c);
                    self.next();
                }
                None => {
                    self.certain = false;
                    return;
                }
            }
        }
    }

    fn escaped(&mut self) {
        self.next();
        match self.next() {
            // What comes before and behind it belongs together, as in `$\⏎(x)`.
            Some('\n') => self.certain = false,
            Some(c) => self.text.push(c),
            None => self.certain = false,
        }
    }

    fn dollar(&mut self, quoted: bool) {
        let rest = self.source.part(self.at + 1..);
        let name_length = |text: &str| {
            text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .unwrap_or(text.len())
        };
        match rest.chars().next() {
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let length = name_length(rest);
                self.variable(rest.part(..length), 1 + length, quoted);
            }
            Some(c) if c.is_ascii_digit() || "?$#!@*-".contains(c) => {
                self.variable(&c.to_string(), 2, quoted);
            }
            Some('{') => {
                let inner = rest.part(1..);
                let length = name_length(inner);
                let named = inner.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
                if named && inner.part(length..).starts_with('}') {
                    self.variable(inner.part(..length), 3 + length, quoted);
                } else {
                    self.rest_is_opaque();
                }
            }
            Some('(') if rest.starts_with("((") => self.arithmetic(quoted),
            Some('(') => self.substitution(quoted),
            Some('[') => self.rest_is_opaque(),
            Some('\'') if !quoted => self.ansi_quoted(),
            Some('"') if !quoted => self.rest_is_opaque(),
            Some(_) | None => {
                self.text.push('$');
                self.next();
            }
        }
    }

    /// `$(…)`, if every command in it is understood.
    fn substitution(&mut self, quoted: bool) {
        let depth = self.depth + 1;
        let inside = (depth <= MAX_SUBSTITUTION_DEPTH)
            .then(|| lex::lex_substitution(self.source, self.at + 2, depth))
            .flatten();
        match inside {
            Some((layout, end)) => {
                self.inner.push(layout);
                self.computed(end, quoted);
            }
            None => self.rest_is_opaque(),
        }
    }

    /// `<(…)` at the beginning of a word, which becomes the name of a pipe.
    fn process_substitution(&mut self) {
        let depth = self.depth + 1;
        let inside = (depth <= MAX_SUBSTITUTION_DEPTH)
            .then(|| lex::lex_substitution(self.source, self.at + 2, depth))
            .flatten();
        if let Some((layout, end)) = inside {
            self.inner.push(layout);
            self.parts.push(WordPart::Text(PIPE_DIRECTORY.to_owned()));
            self.computed(end, true);
        }
    }

    /// `$((…))` over numbers. Names in it could hold commands.
    fn arithmetic(&mut self, quoted: bool) {
        let inside = self.source.part(self.at + 3..);
        let length = inside.find("))").unwrap_or(0);
        let plain = |c: char| c.is_ascii_digit() || "+-*/% ".contains(c);
        if length > 0 && inside.part(..length).chars().all(plain) {
            self.computed(self.at + 3 + length + 2, quoted);
        } else {
            self.rest_is_opaque();
        }
    }

    fn computed(&mut self, end: usize, quoted: bool) {
        if !self.text.is_empty() {
            self.flush_text();
        }
        let source = self.source.part(self.at..end).to_owned();
        self.parts.push(WordPart::Computed { source, quoted });
        self.at = end;
    }

    fn variable(&mut self, name: &str, length: usize, quoted: bool) {
        if !self.text.is_empty() {
            self.flush_text();
        }
        let name = name.to_owned();
        self.parts.push(WordPart::Variable { name, quoted });
        self.at += length;
    }

    /// `$'…'` is decoded so that patterns can see it, but it is never certain.
    fn ansi_quoted(&mut self) {
        self.certain = false;
        self.at += 2;
        while let Some(c) = self.next() {
            match c {
                '\'' => return,
                '\\' => self.ansi_escape(),
                _ => self.text.push(c),
            }
        }
    }

    fn ansi_escape(&mut self) {
        let (radix, longest, skip) = match self.peek() {
            Some('x') => (16, 2, 1),
            Some('u') => (16, 4, 1),
            Some('U') => (16, 8, 1),
            Some('0'..='7') => (8, 3, 0),
            Some('n') => return self.replace_escape('\n'),
            Some('t') => return self.replace_escape('\t'),
            Some(c) => return self.replace_escape(c),
            None => return,
        };
        self.at += skip;
        let digits: String = self
            .source
            .part(self.at..)
            .chars()
            .take(longest)
            .take_while(|c| c.is_digit(radix))
            .collect();
        self.at += digits.len();
        let code = u32::from_str_radix(&digits, radix).unwrap_or(0);
        self.text.extend(char::from_u32(code));
    }

    fn replace_escape(&mut self, c: char) {
        self.text.push(c);
        self.next();
    }

    fn rest_is_opaque(&mut self) {
        if !self.text.is_empty() {
            self.flush_text();
        }
        self.certain = false;
        let rest = self
            .source
            .part(self.at..)
            .chars()
            .take(MAX_OPAQUE_CHARS)
            .collect::<String>();
        self.braces |= rest.contains(['{', '}']);
        self.parts.push(WordPart::Opaque(rest));
        self.at = self.source.len();
    }
}

#[cfg(test)]
mod tests;
