//! One shell word: what its quoting means, and what a shell would still expand in it.

/// A stretch of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Exactly these characters.
    Text(String),
    /// An unquoted `*`, `?`, `[` or `]`: stands for names that are not known here.
    Glob(char),
    /// `$name` or `${name}`.
    Variable { name: String, quoted: bool },
    /// Anything else that a shell would evaluate, as written.
    Opaque(String),
}

/// A word as its pieces; an unquoted leading `~` is told apart from a quoted one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) tilde: bool,
    /// Unquoted braces, which may stand for several words.
    pub(crate) braces: bool,
}

impl Word {
    pub(crate) fn literal(text: &str) -> Self {
        Self {
            pieces: vec![Piece::Text(text.to_owned())],
            ..Self::default()
        }
    }

    /// The characters, with what is not known left as written.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(part) | Piece::Opaque(part) => text.push_str(part),
                Piece::Glob(c) => text.push(*c),
                Piece::Variable { name, .. } => {
                    text.push('$');
                    text.push_str(name);
                }
            }
        }
        text
    }

    /// The one string this word always is, if it is always the same.
    pub(crate) fn as_literal(&self) -> Option<String> {
        let fixed = |piece: &Piece| matches!(piece, Piece::Text(_));
        (!self.tilde && self.pieces.iter().all(fixed)).then(|| self.text())
    }

    /// Whether anything but file names could come out of it.
    pub(crate) fn is_known(&self) -> bool {
        let known = |piece: &Piece| matches!(piece, Piece::Text(_) | Piece::Glob(_));
        self.pieces.iter().all(known)
    }

    /// Whether a shell puts only plain variables into it.
    pub(crate) fn is_plain_expansion(&self) -> bool {
        let plain = |piece: &Piece| !matches!(piece, Piece::Opaque(_));
        self.pieces.iter().all(plain)
    }

    pub(crate) fn has_glob(&self) -> bool {
        let glob = |piece: &Piece| matches!(piece, Piece::Glob(_));
        self.pieces.iter().any(glob)
    }

    /// Whether an expanded file name could come first, and so begin with a dash.
    pub(crate) fn starts_with_glob(&self) -> bool {
        let first = self
            .pieces
            .iter()
            .find(|piece| **piece != Piece::Text(String::new()));
        matches!(first, Some(Piece::Glob(_)))
    }

    /// This word with a loop variable's value in place of the variable.
    pub(crate) fn bind(&self, variable: &str, value: &Word) -> Word {
        let mut pieces = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Variable { name, quoted } if name == variable => {
                    if *quoted || survives_splitting(value) {
                        pieces.extend(value.pieces.iter().cloned());
                    } else {
                        pieces.push(Piece::Opaque(format!("${name}")));
                    }
                }
                Piece::Text(_) | Piece::Glob(_) | Piece::Variable { .. } | Piece::Opaque(_) => {
                    pieces.push(piece.clone());
                }
            }
        }
        Word { pieces, ..*self }
    }
}

/// Whether an unquoted variable with this value stays one word and is not a pattern.
fn survives_splitting(value: &Word) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    value
        .as_literal()
        .is_some_and(|text| !text.is_empty() && text.chars().all(plain))
}

/// Characters of an unknown stretch that are kept for the patterns.
const MOST_OPAQUE: usize = 200;

/// A word that was read, and where it ended.
pub(crate) struct Scan {
    pub(crate) word: Word,
    pub(crate) end: usize,
    /// Nothing in it is beyond what this crate is certain of.
    pub(crate) certain: bool,
}

/// Whether to stop where an unquoted operator begins, or to take everything up to the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    Operator,
    End,
}

/// Reads one word from `start`.
pub(crate) fn scan(source: &str, start: usize, until: Until) -> Scan {
    let mut scanner = Scanner {
        source,
        at: start,
        pieces: Vec::new(),
        text: String::new(),
        certain: true,
        until,
    };
    let tilde = source[start..].starts_with('~');
    scanner.run();
    scanner.flush();
    let raw = &source[start..scanner.at];
    // Braces may expand into other words; only the empty pair is always itself.
    let braces = raw.contains(['{', '}']) && !matches!(raw, "{}" | "{" | "}");
    let braces = braces && !only_in_quotes_or_variables(raw);
    Scan {
        word: Word {
            pieces: scanner.pieces,
            tilde,
            braces,
        },
        end: scanner.at,
        certain: scanner.certain && !braces,
    }
}

fn only_in_quotes_or_variables(raw: &str) -> bool {
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

struct Scanner<'a> {
    source: &'a str,
    at: usize,
    pieces: Vec<Piece>,
    text: String,
    certain: bool,
    until: Until,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<char> {
        self.source[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn flush(&mut self) {
        if !self.text.is_empty() || self.pieces.is_empty() {
            let text = std::mem::take(&mut self.text);
            self.pieces.push(Piece::Text(text));
        }
    }

    fn run(&mut self) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\n' | '|' | '&' | ';' | '(' | ')' | '<' | '>' => {
                    if self.until == Until::Operator {
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
                    self.flush();
                    self.pieces.push(Piece::Glob(c));
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
            _ => self.pieces.contains(&Piece::Glob('[')),
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
            self.flush();
        }
        let name = name.to_owned();
        self.pieces.push(Piece::Variable { name, quoted });
        self.at += length;
    }

    /// `$'…'`: decoded so that patterns can see it, never certain.
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
            self.flush();
        }
        self.certain = false;
        let rest = self.source[self.at..].chars().take(MOST_OPAQUE).collect();
        self.pieces.push(Piece::Opaque(rest));
        self.at = self.source.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(source: &str) -> Scan {
        scan(source, 0, Until::End)
    }

    #[test]
    fn quoting_is_taken_off() {
        for (source, text) in [
            ("ls", "ls"),
            ("'a b'", "a b"),
            (r#""a \" b""#, "a \" b"),
            (r"a\ b", "a b"),
            (r#"r''m"#, "rm"),
            (r#""x$""#, "x$"),
            ("a\\\nb", "ab"),
        ] {
            let scan = whole(source);
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
            assert!(!whole(source).certain, "{source}");
        }
    }

    #[test]
    fn escapes_in_dollar_quotes_are_decoded_for_the_patterns() {
        assert_eq!(whole(r"$'\x72\155'").word.text(), "rm");
    }

    #[test]
    fn a_loop_value_that_could_split_is_not_known() {
        let variable = whole("$f").word;
        let quoted = whole("\"$f\"").word;
        let pattern = whole("*.txt").word;
        assert!(!variable.bind("f", &pattern).is_known());
        assert!(quoted.bind("f", &pattern).is_known());
        assert_eq!(
            variable.bind("f", &Word::literal("a.txt")).as_literal(),
            Some("a.txt".to_owned())
        );
    }
}
