//! Commands that only start another command: they are a read if the command that they start is one.

use super::{Assessor, MAX_WRAPPER_DEPTH};
use crate::checks::find;
use crate::environment::is_harmless;
use crate::lex::is_assignment;
use crate::syntax::SimpleCommand;
use crate::verdict::CommandVerdict;
use crate::word::{ShellWord, WordPart};
use pvp_protocol::Category;

/// How many words stand for "any number of words": more than any rule allows where it counts them.
const ANY_NUMBER: usize = 8;

/// What a wrapper of this kind would run.
struct ReaderWrapper {
    /// The commands that it starts.
    inner: Vec<Vec<ShellWord>>,
    /// Its own words without those, if they must be a read too.
    own: Option<Vec<ShellWord>>,
}

impl Assessor<'_> {
    /// The verdict, if this is a wrapper and everything that it does only reads.
    pub(super) fn assess_reader_wrapper(
        &mut self,
        name: &str,
        command: &SimpleCommand,
        depth: usize,
    ) -> Option<CommandVerdict> {
        let first = command.words.first()?.as_literal()?;
        if depth >= MAX_WRAPPER_DEPTH || first != name || !command.assignments.is_empty() {
            return None;
        }
        let wrapper = match name {
            "timeout" => timeout(&command.words[1..]),
            "nice" => after_flags(&command.words[1..], &["-n"]),
            "time" => after_flags(&command.words[1..], &[]),
            "command" => plain_command(&command.words[1..]),
            "env" => environment(&command.words[1..]),
            "xargs" => xargs(&command.words[1..]),
            "find" => find_exec(&command.words),
            _ => None,
        }?;
        let saved = self.read_commands.len();
        let mut verdicts = Vec::new();
        // Behind `command` and `time`, the shell itself goes to the directory.
        let moves = |words: &Vec<ShellWord>| {
            let name = words.first().map(ShellWord::text).unwrap_or_default();
            matches!(name.as_str(), "cd" | "pushd" | "popd")
        };
        if wrapper.inner.iter().any(moves) {
            return None;
        }
        for words in wrapper.inner.into_iter().chain(wrapper.own) {
            let inner = SimpleCommand {
                words,
                ..command.clone()
            };
            let verdict = self.assess_command(&inner, depth + 1);
            let is_read = verdict.category == Category::Read;
            verdicts.push(verdict);
            if !is_read {
                self.read_commands.truncate(saved);
                return None;
            }
        }
        let worst = verdicts.into_iter().reduce(CommandVerdict::max)?;
        Some(worst)
    }
}

fn one(words: &[ShellWord]) -> Option<ReaderWrapper> {
    let inner = vec![words.to_vec()];
    (!words.is_empty()).then_some(ReaderWrapper { inner, own: None })
}

/// `timeout [flags] DURATION command …`
fn timeout(words: &[ShellWord]) -> Option<ReaderWrapper> {
    let mut words = words;
    while let Some(flag) = words.first()?.as_literal()?.strip_prefix('-') {
        let skip = match flag {
            "v" | "-verbose" | "-foreground" | "-preserve-status" => 1,
            "k" | "s" if words.get(1).is_some_and(is_plain_value) => 2,
            value if value.starts_with("-kill-after=") || value.starts_with("-signal=") => 1,
            _ => return None,
        };
        words = words.get(skip..)?;
    }
    let duration = words.first()?.as_literal()?;
    let number = duration.trim_end_matches(['s', 'm', 'h', 'd']);
    let plain = |c: char| c.is_ascii_digit() || c == '.';
    let valid =
        !number.is_empty() && number.chars().all(plain) && duration.len() <= number.len() + 1;
    valid.then(|| one(&words[1..])).flatten()
}

/// Whether a word is what it says: `timeout` prints a value that it does not understand.
fn is_plain_value(word: &ShellWord) -> bool {
    let plain = |text: String| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
    word.as_literal().is_some_and(plain)
}

/// A command behind flags that each take one value.
fn after_flags(words: &[ShellWord], value_flags: &[&str]) -> Option<ReaderWrapper> {
    let mut words = words;
    while let Some(text) = words.first()?.as_literal().filter(|it| it.starts_with('-')) {
        let value = words.get(1)?.as_literal()?;
        let number = value.parse::<i32>().is_ok();
        if !value_flags.contains(&text.as_str()) || !number {
            return None;
        }
        words = words.get(2..)?;
    }
    one(words)
}

/// `command name …`, without flags.
fn plain_command(words: &[ShellWord]) -> Option<ReaderWrapper> {
    let first = words.first()?.as_literal()?;
    (!first.starts_with('-')).then(|| one(words)).flatten()
}

/// `env NAME=value … command …`, where the variables only change how output looks. Without any,
/// `env git` is how people ask for git with all that a repository configures.
fn environment(words: &[ShellWord]) -> Option<ReaderWrapper> {
    let mut words = words;
    words.first()?.as_literal().filter(|it| is_assignment(it))?;
    while let Some(text) = words.first()?.as_literal().filter(|it| is_assignment(it)) {
        let (name, value) = text.split_once('=')?;
        if !is_harmless(name, value) {
            return None;
        }
        words = &words[1..];
    }
    plain_command(words)
}

/// A value of which nothing is known.
fn any_text() -> WordPart {
    WordPart::Computed {
        source: "{}".to_owned(),
        quoted: true,
    }
}

/// `xargs [flags] [command …]`: the command receives any words, in any number.
fn xargs(words: &[ShellWord]) -> Option<ReaderWrapper> {
    let mut words = words;
    let mut replaced = None;
    let mut counted = false;
    while let Some(text) = words.first().and_then(ShellWord::as_literal) {
        let Some(flag) = text.strip_prefix('-') else {
            break;
        };
        let next = words.get(1).and_then(ShellWord::as_literal);
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let skip = match flag {
            "0" | "r" | "t" | "x" | "0r" | "r0" | "-null" | "-no-run-if-empty" => 1,
            "P" if next.as_deref().is_some_and(is_number) => 2,
            "n" | "L" if next.as_deref().is_some_and(is_number) => {
                counted = true;
                2
            }
            "d" if next.is_some() => 2,
            "I" => {
                replaced = Some(next?);
                2
            }
            "-delimiter=\\n" | "d\\n" => 1,
            other => match other.split_at_checked(1)? {
                ("P", value) if is_number(value) => 1,
                ("n" | "L", value) if is_number(value) => {
                    counted = true;
                    1
                }
                ("I", value) => {
                    replaced = Some(value.to_owned());
                    1
                }
                _ => return None,
            },
        };
        words = words.get(skip..)?;
    }
    // The last of `-I`, `-n` and `-L` decides whether words are replaced or appended.
    if counted && replaced.is_some() {
        return None;
    }
    if words.is_empty() {
        return one(&[ShellWord::literal("echo")]);
    }
    let mut inner = words.to_vec();
    match replaced {
        Some(marker) if marker.is_empty() => return None,
        Some(marker) => {
            inner = inner
                .iter()
                .map(|word| with_any_text(word, &marker))
                .collect::<Option<_>>()?;
        }
        None => {
            let appended = ShellWord {
                parts: vec![any_text()],
                ..ShellWord::default()
            };
            inner.extend(std::iter::repeat_n(appended, ANY_NUMBER));
        }
    }
    one(&inner)
}

/// The word with every marker in it replaced by a value of which nothing is known.
fn with_any_text(word: &ShellWord, marker: &str) -> Option<ShellWord> {
    let text = word.as_literal()?;
    let mut parts = Vec::new();
    for (at, piece) in text.split(marker).enumerate() {
        if at > 0 {
            parts.push(any_text());
        }
        if !piece.is_empty() {
            parts.push(WordPart::Text(piece.to_owned()));
        }
    }
    if parts.is_empty() {
        parts.push(WordPart::Text(String::new()));
    }
    Some(ShellWord {
        parts,
        ..ShellWord::default()
    })
}

/// `find … -exec command {} +`: the command receives names that begin with one of the directories
/// that are searched.
fn find_exec(words: &[ShellWord]) -> Option<ReaderWrapper> {
    let mut own = Vec::new();
    let mut inner = Vec::new();
    let roots = find_roots(words);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if word.as_literal().as_deref() != Some("-exec") {
            own.push(word.clone());
            continue;
        }
        let mut clause = Vec::new();
        let many = loop {
            let word = rest.next()?;
            match word.as_literal().as_deref() {
                Some(";") => break false,
                Some("+") if clause.last().is_some_and(is_braces) => break true,
                Some(_) | None => clause.push(word.clone()),
            }
        };
        // Without `+` each run receives one name, below any of the directories.
        let alone = roots.iter().map(std::slice::from_ref);
        let groups: Vec<&[String]> = if many { vec![&roots] } else { alone.collect() };
        for group in groups {
            inner.push(exec_words(&clause, group, many)?);
        }
    }
    let found = !inner.is_empty();
    found.then_some(ReaderWrapper {
        inner,
        own: Some(own),
    })
}

fn is_braces(word: &ShellWord) -> bool {
    word.as_literal().as_deref() == Some("{}")
}

/// The directories that `find` searches, as the names that it prints begin.
fn find_roots(words: &[ShellWord]) -> Vec<String> {
    let texts = words[1..].iter().map(ShellWord::text);
    let roots = texts.skip_while(|text| find::is_option(text));
    let roots: Vec<String> = roots
        .take_while(|text| {
            !text.starts_with('-') && !matches!(text.as_str(), "(" | "!" | ")" | ",")
        })
        .collect();
    if roots.is_empty() {
        vec![".".to_owned()]
    } else {
        roots
    }
}

/// The words of a command in `-exec`, with the names in place of `{}`.
fn exec_words(clause: &[ShellWord], roots: &[String], many: bool) -> Option<Vec<ShellWord>> {
    let mut words = Vec::new();
    for word in clause {
        if !is_braces(word) {
            let plain = !word.text().contains("{}");
            words.push(plain.then(|| word.clone())?);
            continue;
        }
        let count = if many { ANY_NUMBER } else { 1 };
        for root in roots {
            let below = ShellWord {
                parts: vec![WordPart::Text(format!("{root}/")), any_text()],
                ..ShellWord::default()
            };
            words.extend(std::iter::repeat_n(below, count));
        }
    }
    Some(words)
}
