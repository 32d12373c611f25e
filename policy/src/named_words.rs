//! Collects every word that may name a file, as a shell makes it: quotes removed, braces expanded,
//! and with the directories that it may be relative to.

use crate::explain::ExpectedWord;
use crate::normalize::expand_braces;
use crate::paths::{PathRoot, ResolvedPath};
use crate::word::ShellWord;

/// The most words that are collected; after them comes one of which nothing is known.
const MAX_NAMED_WORDS: usize = 4000;

/// The most letters between the ends of a range in braces.
const MAX_RANGE: usize = 26;

/// A word that a command receives, an assignment or its value, or what a redirection opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedWord {
    /// What a shell makes of it. What only the shell knows stays as it is written.
    pub text: String,
    /// How much of that is certain.
    pub word: ExpectedWord,
    /// The directories that it may be relative to, where they are known. One that begins with `~/`
    /// is in the home.
    pub directories: Vec<Option<String>>,
}

/// The words that were found so far.
#[derive(Debug, Default)]
pub(crate) struct NamedWords {
    pub(crate) words: Vec<NamedWord>,
}

impl NamedWords {
    pub(crate) fn add(&mut self, word: &ShellWord, directories: &[ResolvedPath]) {
        if self.words.len() >= MAX_NAMED_WORDS {
            if self.words.len() == MAX_NAMED_WORDS {
                self.push(String::new(), ExpectedWord::Unknown, directories);
            }
            return;
        }
        if !word.has_braces {
            return self.push(word.text(), ExpectedWord::from(word), directories);
        }
        // Which of its braces are quoted is not known here, so it may be another word.
        self.push(word.text(), ExpectedWord::Unknown, directories);
        for text in brace_expansions(&word.text()) {
            let word = match word.has_glob() {
                true => ExpectedWord::Pattern(text.clone()),
                false => ExpectedWord::Exact(text.clone()),
            };
            self.push(text, word, directories);
        }
    }

    fn push(&mut self, text: String, word: ExpectedWord, directories: &[ResolvedPath]) {
        let directories = directories.iter().map(directory_text).collect();
        self.words.push(NamedWord {
            text,
            word,
            directories,
        });
    }
}

/// The words that braces in this text may expand to, whatever of it was quoted; none if there are no
/// braces.
pub fn brace_expansions(text: &str) -> Vec<String> {
    let mut expanded = match text.contains('{') {
        true => expand_braces(&ranges_as_lists(text)),
        false => Vec::new(),
    };
    expanded.retain(|word| word != text);
    expanded
}

fn directory_text(directory: &ResolvedPath) -> Option<String> {
    match directory.root {
        PathRoot::Absolute | PathRoot::Home => Some(directory.to_string()),
        PathRoot::Workspace | PathRoot::AboveWorkspace | PathRoot::Unknown => None,
    }
}

/// The text with each range of letters, such as `{a..c}`, as a list.
fn ranges_as_lists(text: &str) -> String {
    let mut listed = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        listed.push_str(before);
        listed.push('{');
        rest = after;
        let Some((inside, behind)) = after.split_once('}') else {
            continue;
        };
        let ends: Vec<char> = inside.chars().collect();
        if let &[first, '.', '.', last] = ends.as_slice() {
            let (low, high) = (first.min(last), first.max(last));
            let letters: Vec<_> = (low..=high).take(MAX_RANGE).map(String::from).collect();
            // The comma makes it a list, even of one letter; that the empty word is among the
            // results does no harm.
            listed.push_str(&letters.join(","));
            listed.push_str(",}");
            rest = behind;
        }
    }
    listed.push_str(rest);
    listed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, Workspace};
    use pvp_protocol::{Action, Command};

    /// The words of a line that is run in /w, each with its directories; `!` marks what is certain.
    fn words(line: &str) -> Vec<String> {
        let workspace = Workspace {
            directory: Some("/w".to_owned()),
            ..Workspace::default()
        };
        let line = line.to_owned();
        let action = Action::new(Command::Shell { line });
        let explained = Policy::built_in().explain(&action, &workspace);
        let shown = explained.named_words.into_iter().map(|named| {
            let certain = matches!(named.word, ExpectedWord::Exact(_));
            let directories = named.directories.into_iter();
            let directories: Vec<_> = directories.map(|it| it.unwrap_or("?".into())).collect();
            let mark = if certain { "!" } else { "" };
            format!("{}{mark} in {}", named.text, directories.join(" "))
        });
        shown.collect()
    }

    #[test]
    fn words_are_what_a_shell_makes_of_them() {
        for (line, expected) in [
            ("cat no'tes.txt'", "notes.txt! in /w"),
            ("cat no\\tes.txt", "notes.txt! in /w"),
            ("cat no\"\"tes.txt", "notes.txt! in /w"),
            ("cat no{tes.txt,}", "notes.txt! in /w"),
            ("make 'read me'", "read me! in /w"),
            ("cat < no'tes.txt'", "notes.txt! in /w"),
            ("echo x > c'f'g", "cfg! in /w"),
            ("echo x > c{f..f}g", "cfg! in /w"),
            ("cat <<E >c'f'g\nx\nE\n", "cfg! in /w"),
            ("X=c'f'g make", "cfg! in /w"),
            ("x=c'f'g", "x=cfg! in /w"),
            ("cd sub && cat l'ink'", "link! in /w/sub"),
            ("cd sub; cat l'ink'", "link! in /w/sub /w"),
            ("cd ~/a && cat l'ink'", "link! in ~/a"),
            ("cat l*nk", "l*nk in /w"),
            ("cat ~/l'ink'", "~/link in /w"),
            ("cat $HOME/l'ink'", "$HOME/link in /w"),
            ("sudo cat l'ink'", "link! in /w"),
            ("bash -c 'cat l\\ink'", "link! in /w"),
            ("echo $(cat l'ink')", "link! in /w"),
            ("f() { cat l'ink'; }", "link! in /w"),
        ] {
            let found = words(line);
            assert!(found.contains(&expected.to_owned()), "{line}: {found:?}");
        }
    }

    #[test]
    fn the_number_of_words_is_bounded() {
        let mut found = NamedWords::default();
        for _ in 0..MAX_NAMED_WORDS + 10 {
            found.add(&ShellWord::literal("a"), &[]);
        }
        assert_eq!(found.words.len(), MAX_NAMED_WORDS + 1);
        let last = found.words.last().unwrap();
        assert_eq!(last.word, ExpectedWord::Unknown);
    }
}
