//! Splits a command line into words as a shell does, without expanding anything, and quotes words.

/// The words of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SplitLine {
    pub(super) words: Vec<String>,
    /// Whether the line ends inside its last word, not after it.
    pub(super) ends_in_word: bool,
}

/// Splits a line; `None` if a quote is not closed.
pub(super) fn split(line: &str) -> Option<SplitLine> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '\'' => break,
                        quoted => word.push(quoted),
                    }
                }
            }
            '"' => read_double_quoted(&mut rest, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(rest.next()?),
            plain => word.get_or_insert_default().push(plain),
        }
    }
    let ends_in_word = word.is_some();
    words.extend(word);
    Some(SplitLine {
        words,
        ends_in_word,
    })
}

fn read_double_quoted(rest: &mut std::str::Chars<'_>, word: &mut String) -> Option<()> {
    loop {
        match rest.next()? {
            '"' => return Some(()),
            '\\' => {
                let escaped = rest.next()?;
                if !matches!(escaped, '"' | '\\' | '$' | '`') {
                    word.push('\\');
                }
                word.push(escaped);
            }
            quoted => word.push(quoted),
        }
    }
}

/// The word as a shell must read it, quoted only if it has to be.
pub(super) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_splits_them() {
        let words = |line: &str| split(line).unwrap().words;
        assert_eq!(words(r#"pvp  reject a@b 'it is "late"' "#).len(), 4);
        assert_eq!(words("a 'b c' d\\ e"), ["a", "b c", "d e"]);
        assert_eq!(words(r#""a \"b\" \n $c""#), [r#"a "b" \n $c"#]);
        assert_eq!(words("'' x"), ["", "x"]);
        assert_eq!(words("   "), Vec::<String>::new());
        for open in ["'a", "\"a", "a\\", "\"a\\\""] {
            assert_eq!(split(open), None, "{open}");
        }
    }

    #[test]
    fn the_end_of_a_line_is_in_a_word_or_after_it() {
        assert!(split("pvp app").unwrap().ends_in_word);
        assert!(split("pvp ''").unwrap().ends_in_word);
        assert!(!split("pvp ").unwrap().ends_in_word);
        assert!(!split("").unwrap().ends_in_word);
    }

    #[test]
    fn a_quoted_word_is_split_into_itself() {
        for word in ["plain", "", "a b", "it's", "$(x)", "é`\"\\", "a\nb"] {
            assert_eq!(split(&quote(word)).unwrap().words, [word]);
        }
        assert_eq!(quote("/usr/bin/pvp"), "/usr/bin/pvp");
    }
}
