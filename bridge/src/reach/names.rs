//! Everything in a call that may be the name of a file: as it is written, and as a shell makes it.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

use pvp_policy::{ExpectedWord, FileUse, NamedWord, brace_expansions, file_use, patched_paths};
use pvp_protocol::path_arguments;
use serde_json::Value;

use crate::translation::TranslatedCall;

/// Names of one call that are looked at; a call with more is asked about.
const MAX_NAMES: usize = 8000;

/// Bytes of a word that may be a path.
const MAX_WORD_BYTES: usize = 4096;

/// Places in one word behind which a name may begin; a word with more is asked about.
const MAX_BEGINNINGS: usize = 64;

/// Letters of short options before a value that is written without a space.
const MAX_OPTION_LETTERS: usize = 8;

/// Entries of directories that a pattern is compared with.
const MAX_COMPARED_ENTRIES: usize = 4096;

/// Characters that end a word of a command line, whatever quotes it.
const BETWEEN_WORDS: &[char] = &[
    ' ', '\t', '\n', '\r', ';', '|', '&', '<', '>', '(', ')', '`', '"', '\'', '=', '{', '}', ',',
    ':', '\\',
];

/// Characters that end a word of a command line where they are not quoted.
const OPERATORS: &[char] = &[
    ' ', '\t', '\n', '\r', ';', '|', '&', '<', '>', '(', ')', '`',
];

/// What stands before a name within a word, as in `of=x`, `host:x` and `@x`.
const BEFORE_NAMES: &[char] = &['=', ':', ',', '@'];

/// Characters of a pattern for names of files.
const WILDCARDS: &[char] = &['*', '?', '['];

/// The names in a call.
#[derive(Debug, Default)]
pub(super) struct NamesInCall {
    /// Each with the directory that it is relative to.
    pub(super) names: BTreeSet<(PathBuf, String)>,
    /// Every directory that the call works in.
    pub(super) directories: BTreeSet<PathBuf>,
    /// Whether there may be others.
    pub(super) is_incomplete: bool,
}

impl NamesInCall {
    /// `words` is what a shell makes of the call.
    pub(super) fn new(call: &TranslatedCall, words: &[NamedWord], cwd: &Path) -> Self {
        let mut names = Self::default();
        names.directories.insert(cwd.to_owned());
        let line = call.arguments.get("full_command").and_then(Value::as_str);
        match line {
            Some(line) => {
                for word in line.split(BETWEEN_WORDS) {
                    names.add(word, cwd);
                }
                let is_unsure = |named: &NamedWord| match named.word {
                    ExpectedWord::Exact(_) => named.directories.contains(&None),
                    ExpectedWord::Pattern(_) | ExpectedWord::Unknown => true,
                };
                names.is_incomplete |= words.iter().any(is_unsure);
            }
            None => names.add_arguments(call, cwd),
        }
        for named in words {
            for directory in &named.directories {
                let directory = directory.as_deref().map(in_home);
                let directory = directory.map_or_else(|| cwd.to_owned(), |it| cwd.join(it));
                names.add_word(&named.text, &directory);
                names.directories.insert(directory);
            }
        }
        let directories = names.directories.clone();
        for word in line.map(unquoted_words).unwrap_or_default() {
            let expanded = brace_expansions(&word);
            for word in std::iter::once(word).chain(expanded) {
                for directory in &directories {
                    names.add_word(&word, directory);
                }
            }
        }
        names
    }

    fn add(&mut self, name: &str, directory: &Path) {
        if name.is_empty() || name.len() > MAX_WORD_BYTES {
            return;
        }
        if self.names.len() >= MAX_NAMES {
            self.is_incomplete = true;
            return;
        }
        self.names.insert((directory.to_owned(), name.to_owned()));
    }

    /// A word of a command line without its quotes, and whatever in it may be a name.
    fn add_word(&mut self, word: &str, directory: &Path) {
        let beginnings = || word.match_indices(BEFORE_NAMES);
        self.is_incomplete |= beginnings().count() > MAX_BEGINNINGS;
        let parts = beginnings().take(MAX_BEGINNINGS);
        let parts = parts.map(|(at, before)| &word[at + before.len()..]);
        let options = word.strip_prefix('-').unwrap_or_default();
        let values = options.char_indices().skip(1).take(MAX_OPTION_LETTERS);
        let values = values.map(|(at, _)| &options[at..]);
        let pieces = word.split(BETWEEN_WORDS);
        for name in std::iter::once(word)
            .chain(parts)
            .chain(values)
            .chain(pieces)
        {
            self.add(name, directory);
            if name.contains(WILDCARDS) {
                for found in matching_names(directory, name) {
                    self.add(&found, directory);
                }
            }
        }
    }

    /// The texts of a call that is no command line. What a search takes for a pattern starts where it
    /// searches.
    fn add_arguments(&mut self, call: &TranslatedCall, cwd: &Path) {
        let all = Value::Object(call.arguments.clone());
        self.add_texts(&all, cwd);
        if file_use(&call.tool_name) == Some(FileUse::Reads) {
            for path in path_arguments(&call.arguments) {
                self.add_texts(&all, &cwd.join(in_home(path)));
            }
        }
    }

    fn add_texts(&mut self, value: &Value, cwd: &Path) {
        match value {
            _ if self.is_incomplete => {}
            Value::String(text) if text.contains('\n') => {
                for path in patched_paths(text) {
                    self.add(path, cwd);
                }
            }
            Value::String(text) => self.add(text, cwd),
            Value::Array(items) => items.iter().for_each(|item| self.add_texts(item, cwd)),
            Value::Object(fields) => fields.values().for_each(|item| self.add_texts(item, cwd)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// A path with the home in place of its short names.
pub(super) fn in_home(path: &str) -> PathBuf {
    let home = std::env::var("HOME").unwrap_or_default();
    match path {
        "~" | "$HOME" => home.into(),
        path => match path.strip_prefix("~/").or(path.strip_prefix("$HOME/")) {
            Some(rest) => Path::new(&home).join(rest.trim_start_matches('/')),
            None => path.into(),
        },
    }
}

/// What quotes a part of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quote {
    Single,
    Double,
    /// `$'…'`
    Escapes,
}

/// The words of a line without quotes and backslashes, whatever else the line is. The policy's
/// parsers give up on some lines, such as those with `$"…"`.
fn unquoted_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (None, '$') if characters.next_if_eq(&'\'').is_some() => quote = Some(Quote::Escapes),
            (None, '$') if characters.peek() == Some(&'"') => {}
            (None, '\'') => quote = Some(Quote::Single),
            (None, '"') => quote = Some(Quote::Double),
            (Some(Quote::Single | Quote::Escapes), '\'') | (Some(Quote::Double), '"') => {
                quote = None;
            }
            (Some(Quote::Escapes), '\\') => word.extend(escaped_character(&mut characters)),
            (None | Some(Quote::Double), '\\') => {
                word.extend(characters.next().filter(|next| *next != '\n'));
            }
            (None, c) if OPERATORS.contains(&c) => words.push(std::mem::take(&mut word)),
            (_, c) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// What a backslash stands for in `$'…'`, together with what follows.
fn escaped_character(rest: &mut Peekable<Chars<'_>>) -> Option<char> {
    let (radix, most) = match rest.peek()? {
        '0'..='7' => (8, 3),
        'x' => (16, 2),
        'u' => (16, 4),
        'U' => (16, 8),
        _ => return rest.next(),
    };
    if radix == 16 {
        rest.next();
    }
    let mut code = 0;
    for _ in 0..most {
        let Some(digit) = rest.peek().and_then(|c| c.to_digit(radix)) else {
            break;
        };
        rest.next();
        code = code * radix + digit;
    }
    char::from_u32(code)
}

/// The names that a pattern stands for at present, as far as they are found quickly.
fn matching_names(directory: &Path, pattern: &str) -> Vec<String> {
    let is_absolute = pattern.starts_with('/');
    let mut found = vec![if is_absolute { "/" } else { "" }.to_owned()];
    let mut compared = 0;
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        for before in found {
            if !part.contains(WILDCARDS) {
                next.push(format!("{before}{part}/"));
                continue;
            }
            let Ok(entries) = directory.join(&before).read_dir() else {
                continue;
            };
            for entry in entries.flatten() {
                compared += 1;
                if compared > MAX_COMPARED_ENTRIES {
                    break;
                }
                let name = entry.file_name().to_string_lossy().into_owned();
                let is_shown = !name.starts_with('.') || part.starts_with(['.', '[']);
                if is_shown && matches(part, &name) {
                    next.push(format!("{before}{name}/"));
                }
            }
        }
        found = next;
    }
    let names = found.iter().map(|name| name.trim_end_matches('/'));
    names.map(str::to_owned).collect()
}

/// Whether a name may match a pattern; a set of characters in brackets stands for any.
fn matches(pattern: &str, name: &str) -> bool {
    let mut units = Vec::new();
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let behind = &rest[c.len_utf8()..];
        // A `]` directly after the `[` is one of the characters.
        let close = || {
            let skipped = behind.strip_prefix(['!', '^']).unwrap_or(behind);
            let skipped = skipped.strip_prefix(']').unwrap_or(skipped);
            skipped.split_once(']').map(|(_, after)| after)
        };
        (rest, _) = match (c, close()) {
            ('[', Some(after)) => (after, units.push('?')),
            _ => (behind, units.push(c)),
        };
    }
    let name: Vec<char> = name.chars().collect();
    // Which positions of the name can be reached with the units so far.
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for unit in units {
        let mut next = vec![false; name.len() + 1];
        for at in 0..=name.len() {
            next[at] = match unit {
                '*' => reached[at] || (at > 0 && next[at - 1]),
                '?' => at > 0 && reached[at - 1],
                c => at > 0 && reached[at - 1] && name[at - 1] == c,
            };
        }
        reached = next;
    }
    reached[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_removed_whatever_they_are() {
        for (line, words) in [
            ("cat a'b'\"c\"d", "cat|abcd"),
            ("cat $\"a b\" > $'c'd", "cat|a b|cd"),
            ("cat a\\ b\\\nc", "cat|a bc"),
            ("a\"$(b 'c d')\"", "a$(b 'c d')"),
            ("cat 'a", "cat|a"),
            ("cat 'a\\' 'b'", "cat|a\\|b"),
            ("cat $'\\141\\x62\\u0063\\'d'e", "cat|abc'de"),
        ] {
            assert_eq!(unquoted_words(line).join("|"), words, "{line}");
        }
    }

    #[test]
    fn patterns_match_as_in_a_shell_or_more() {
        for (pattern, name, expected) in [
            ("c*g", "cfg", true),
            ("c?g", "cfg", true),
            ("c[a-f]g", "cfg", true),
            ("[]x]fg", "cfg", true),
            ("c[fg", "c[fg", true),
            ("*", "", true),
            ("c?", "cfg", false),
            ("x*", "cfg", false),
            ("c*h", "cfg", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
