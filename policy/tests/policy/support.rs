//! The corpus of commands, and assessments in its workspace.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "each test uses some of it, a broken corpus stops them all, and the environment says how long to search"
)]

use pvp_policy::{Explanation, Policy, Workspace};
use pvp_protocol::{Action, Category, Command};

/// One line of the corpus: a command, its expected category, and why.
#[derive(Debug, Clone)]
pub struct CorpusCase {
    pub file: &'static str,
    pub expected: Category,
    pub line: String,
    pub reason: &'static str,
}

macro_rules! corpus {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../corpus/", $name)))),*]
    };
}

const CORPUS_FILES: &[(&str, &str)] = corpus![
    "awk.tsv",
    "everyday.tsv",
    "files.tsv",
    "globs.tsv",
    "here_documents.tsv",
    "locale.tsv",
    "loops.tsv",
    "network.tsv",
    "new_reads.tsv",
    "options.tsv",
    "quoting.tsv",
    "secrets.tsv",
    "shell.tsv",
    "side_effects.tsv",
    "systems.tsv",
    "tools.tsv",
    "verbs.tsv",
];

/// Represents a line break inside a command.
const LINE_BREAK: char = '⏎';

/// The whole corpus.
pub fn corpus_cases() -> Vec<CorpusCase> {
    let rows = |(file, text): &(&'static str, &'static str)| {
        let file = *file;
        text.split('\n')
            .filter(|row| !row.is_empty())
            .map(move |row| parse_case(file, row))
            .collect::<Vec<_>>()
    };
    CORPUS_FILES.iter().flat_map(rows).collect()
}

fn parse_case(file: &'static str, row: &'static str) -> CorpusCase {
    let columns: Vec<&'static str> = row.split('\t').collect();
    let [first, middle @ .., reason] = columns.as_slice() else {
        panic!("{file}: `{row}` has no columns");
    };
    let expected = match *first {
        "read" => Category::Read,
        "write" => Category::Write,
        "destructive" => Category::Destructive,
        "blocked" => Category::Blocked,
        other => panic!("{file}: no category `{other}`"),
    };
    // A command may contain tabs.
    let line = middle.join("\t").replace(LINE_BREAK, "\n");
    CorpusCase {
        file,
        expected,
        line,
        reason,
    }
}

/// The action of a shell line.
pub fn shell(line: &str) -> Action {
    Action::new(Command::Shell {
        line: line.to_owned(),
    })
}

/// The assessment of a line, with the rules that matched.
pub fn explain(line: &str) -> Explanation {
    let workspace = Workspace {
        directory: Some("/work/app".to_owned()),
        ..Workspace::default()
    };
    Policy::built_in().explain(&shell(line), &workspace)
}

/// The category of a line.
pub fn category_of(line: &str) -> Category {
    explain(line).assessment.category
}

/// A number that the environment sets for a test, such as its seed.
pub fn env_number(variable: &str) -> Option<u64> {
    env_text(variable)?.parse().ok()
}

/// A text that the environment sets for a test.
pub fn env_text(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

/// Fragments that hostile lines are made of.
pub const HOSTILE_FRAGMENTS: &[&str] = &[
    "(",
    ")",
    "$(",
    "`",
    "\"",
    "'",
    "{",
    "${",
    "${a:-",
    "\"$(",
    "[[ ",
    "((",
    "$((",
    "if ",
    "<(",
    "while ",
    "f() { ",
    "! ",
    "ls;",
    "ls|",
    "ls&&",
    "a=",
    "a[",
    "<<E ",
    ">",
    "-x ",
    "sudo ",
    "env ",
    "-exec ",
    "eval ",
    "\\",
    "a\\\n",
    "#\\\n\\a",
    "cd a;",
    "a|b|c&&cd x&&",
    "é",
    "{\u{10ffff}",
    "\u{0}",
    "*",
    "{a,b}",
    "bash -c ",
    "\n",
    "a ",
    "$",
    "$x ",
    "for f in a; do ",
    "x|",
    "find -exec ",
    "rm -rf / ",
    "rm -rf ~ ",
    "git push ",
    "kill -9 ",
    "dd of=",
    "case x in ",
    "\"${",
    "$'",
    "a\"",
    "ls &",
    "echo 'DROP TABLE ",
    "x=$(",
    "cd / && ",
    "rm -x ",
    "rm ",
    "git a ",
    "x ",
];
