//! Shell words: what their quotes mean, and what a shell would still expand in them.

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WordPart {
    /// Exactly these characters.
    Text(String),
    /// An unquoted `*`, `?`, `[` or `]`, which expands to unknown file names.
    Glob(char),
    /// `$name` or `${name}`.
    Variable { name: String, quoted: bool },
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
                WordPart::Text(part) | WordPart::Opaque(part) => text.push_str(part),
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

    pub(crate) fn has_glob(&self) -> bool {
        let glob = |piece: &WordPart| matches!(piece, WordPart::Glob(_));
        self.parts.iter().any(glob)
    }

    /// Whether it begins with a glob, so that its expansion could begin with a dash.
    pub(crate) fn starts_with_glob(&self) -> bool {
        let first = self
            .parts
            .iter()
            .find(|piece| **piece != WordPart::Text(String::new()));
        matches!(first, Some(WordPart::Glob(_)))
    }

    /// This word with a loop variable replaced by its value.
    pub(crate) fn substitute(&self, variable: &str, value: &ShellWord) -> ShellWord {
        let mut parts = Vec::new();
        for piece in &self.parts {
            match piece {
                WordPart::Variable { name, quoted } if name == variable => {
                    if *quoted || survives_splitting(value) {
                        parts.extend(value.parts.iter().cloned());
                    } else {
                        parts.push(WordPart::Opaque(format!("${name}")));
                    }
                }
                WordPart::Text(_)
                | WordPart::Glob(_)
                | WordPart::Variable { .. }
                | WordPart::Opaque(_) => {
                    parts.push(piece.clone());
                }
            }
        }
        ShellWord { parts, ..*self }
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

/// A scanned word and where it ends.
pub(crate) struct ScannedWord {
    pub(crate) word: ShellWord,
    pub(crate) end: usize,
    /// Whether everything in it was understood with certainty.
    pub(crate) certain: bool,
}

/// Whether to stop at an unquoted operator, or to scan to the end of the text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanUntil {
    Operator,
    End,
}

/// Scans one word from `start`.
pub(crate) fn scan_word(source: &str, start: usize, until: ScanUntil) -> ScannedWord {
    let mut scanner = WordScanner {
        source,
        at: start,
        parts: Vec::new(),
        text: String::new(),
        certain: true,
        until,
    };
    let tilde = source[start..].starts_with('~');
    scanner.scan();
    scanner.flush_text();
    let raw = &source[start..scanner.at];
    // Braces may expand to other words. Only `{}` and lone braces never do.
    let braces = raw.contains(['{', '}']) && !matches!(raw, "{}" | "{" | "}");
    let braces = braces && !braces_are_quoted(raw);
    ScannedWord {
        word: ShellWord {
            parts: scanner.parts,
            leading_tilde: tilde,
            has_braces: braces,
        },
        end: scanner.at,
        certain: scanner.certain && !braces,
    }
}

fn braces_are_quoted(raw: &str) -> bool {
    let mut quote = None;
    let mut previous = ' ';
    let mut variable = false;
    for c in raw.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c && previous != '\\' => quote = None,
            (None, '{') if previous == '$' => variable = true,
            (None, '}') if variable => variable = false,
            (None, '{' | '}') if previous != '\\' => return false,
            (None | Some(_), _) => {}
        }
        previous = if previous == '\\' { ' ' } else { c };
    }
    true
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
    /// Where to stop.
    until: ScanUntil,
}

impl WordScanner<'_> {
    fn peek(&self) -> Option<char> {
        self.source[self.at..].chars().next()
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
                    self.text.push(c);
                    self.next();
                }
            }
        }
    }

    /// A lone `[` or `]` is a plain character.
    fn is_bracket_pattern(&self, bracket: char) -> bool {
        match bracket {
            '[' => self.source[self.at + 1..].starts_with(|c: char| !" \t\n|&;()<>".contains(c)),
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
                        Some('\n') => {}
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
            Some('\n') => {}
            Some(c) => self.text.push(c),
            None => self.certain = false,
        }
    }

    fn dollar(&mut self, quoted: bool) {
        let rest = &self.source[self.at + 1..];
        let name_length = |text: &str| {
            text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .unwrap_or(text.len())
        };
        match rest.chars().next() {
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let length = name_length(rest);
                self.variable(&rest[..length], 1 + length, quoted);
            }
            Some(c) if c.is_ascii_digit() || "?$#!@*-".contains(c) => {
                self.variable(&c.to_string(), 2, quoted);
            }
            Some('{') => {
                let inner = &rest[1..];
                let length = name_length(inner);
                let named = inner.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
                if named && inner[length..].starts_with('}') {
                    self.variable(&inner[..length], 3 + length, quoted);
                } else {
                    self.rest_is_opaque();
                }
            }
            Some('(' | '[') => self.rest_is_opaque(),
            Some('\'') if !quoted => self.ansi_quoted(),
            Some('"') if !quoted => self.rest_is_opaque(),
            Some(_) | None => {
                self.text.push('$');
                self.next();
            }
        }
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
        let digits: String = self.source[self.at..]
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
        let rest = self.source[self.at..]
            .chars()
            .take(MAX_OPAQUE_CHARS)
            .collect();
        self.parts.push(WordPart::Opaque(rest));
        self.at = self.source.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan_all(source: &str) -> ScannedWord {
        scan_word(source, 0, ScanUntil::End)
    }

    #[test]
    fn quotes_are_removed() {
        for (source, text) in [
            ("ls", "ls"),
            ("'a b'", "a b"),
            (r#""a \" b""#, "a \" b"),
            (r"a\ b", "a b"),
            (r#"r''m"#, "rm"),
            (r#""x$""#, "x$"),
            ("a\\\nb", "ab"),
        ] {
            let scan = scan_all(source);
            assert_eq!(
                (scan.word.as_literal(), scan.certain),
                (Some(text.to_owned()), true),
                "{source}"
            );
        }
    }

    #[test]
    fn what_a_shell_would_evaluate_is_not_certain() {
        for source in [
            "$(x)", "`x`", "\"`x`\"", "${a:=b}", "$[1]", "$'a'", "$\"a\"", "'a", "\"a", "a{b,c}",
            "${a[0]}", "{a..b}",
        ] {
            assert!(!scan_all(source).certain, "{source}");
        }
    }

    #[test]
    fn escapes_in_dollar_quotes_are_decoded_for_the_patterns() {
        assert_eq!(scan_all(r"$'\x72\155'").word.text(), "rm");
    }

    #[test]
    fn a_loop_value_that_could_split_is_not_known() {
        let variable = scan_all("$f").word;
        let quoted = scan_all("\"$f\"").word;
        let pattern = scan_all("*.txt").word;
        assert!(!variable.substitute("f", &pattern).is_static());
        assert!(quoted.substitute("f", &pattern).is_static());
        assert_eq!(
            variable
                .substitute("f", &ShellWord::literal("a.txt"))
                .as_literal(),
            Some("a.txt".to_owned())
        );
    }
}
