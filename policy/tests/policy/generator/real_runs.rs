//! Reads change no file, connect to nothing and print no secret, with the programs themselves.

use std::collections::BTreeMap;
use std::path::Path;

use pvp_policy::{ExpectedWord, Explanation};
use pvp_protocol::SandboxProfile;

use super::failures::{Failure, Failures};
use super::grammar::{ReadGrammar, read_grammars};
use super::hostile::CANARY;
use super::runner::{LineRunner, Programs, SYSTEM_PATH, has_namespaces, has_strace};
use super::{Lines, explain_read};
use crate::scratch::changed_paths;
use crate::skip::skip;
use crate::support::env_number;

/// Programs that wait, or that take long to start, and are therefore not run.
const SLOW: &str = "sleep npm npx node gcloud java javac terraform apt apt-cache pip pip3 man apropos \
    whatis lsof dmesg vmstat journalctl gdb docker kubectl top watch strace tmux last python3";

/// Programs that go through all files of a directory, and may come across a secret.
const SEARCHERS: &str = "grep egrep fgrep rg ag diff git";

/// How many more turns a rule has whose arguments are a language of their own.
const CHECKED_TURNS: usize = 5;

const NO_NAMESPACES: &str = "no namespaces can be created here";
const NO_STRACE: &str = "attempts to connect cannot be watched here";

#[test]
fn reads_change_nothing_connect_nowhere_and_print_no_secret() {
    if !has_namespaces() {
        return skip(NO_NAMESPACES);
    }
    if !has_strace() {
        skip(NO_STRACE);
    }
    let mut lines = Lines::new(2, runnable_grammars());
    let mut world = World::new();
    let mut failures = Failures::default();
    let rounds = env_number("PVP_ROUNDS").unwrap_or(1000);
    let (mut ran, mut came_across) = (0, 0);
    while ran < rounds {
        let line = lines.next();
        let Some(explanation) = explain_read(&line).filter(is_runnable) else {
            continue;
        };
        ran += 1;
        let failure = world.check(&line, &explanation);
        came_across += usize::from(world.came_across_secret);
        if let Some(failure) = failure {
            failures.add(&line, failure, |line| {
                let explanation = explain_read(line).filter(is_runnable)?;
                world.check(line, &explanation)
            });
        }
    }
    println!("{ran} reads ran, and {came_across} of them came across a secret");
    failures.assert_none();
}

#[test]
fn a_write_a_connection_and_a_secret_would_be_noticed() {
    if !has_namespaces() {
        return skip(NO_NAMESPACES);
    }
    let mut world = World::new();
    let harmless = explain_read("cat a").unwrap();
    let mut kind = |line: &str| world.check(line, &harmless).map(|failure| failure.kind);
    let changes = |path: &str| Some(format!("it changes {path}"));
    assert_eq!(kind("cat a.txt"), None);
    assert_eq!(kind("sort -o a.txt b.txt"), changes("tree/a.txt"));
    assert_eq!(kind(": >~/x"), changes("home"));
    assert_eq!(kind("touch $TMPDIR/x"), changes("tmp/x"));
    assert_eq!(kind("cat prod.env"), Some("it prints a secret".to_owned()));
    if has_strace() {
        let connects = Some("it connects".to_owned());
        assert_eq!(kind(": </dev/tcp/127.0.0.1/9"), connects);
    } else {
        skip(NO_STRACE);
    }
    assert_eq!(kind("cat a.txt"), None);
}

/// The rules of programs that can run, and more often those whose arguments are a language.
fn runnable_grammars() -> Vec<ReadGrammar> {
    let mut grammars = read_grammars();
    grammars.retain(|grammar| is_runnable_program(grammar.program()));
    let checked = grammars.iter().filter(|grammar| !grammar.check.is_empty());
    let again: Vec<ReadGrammar> = checked.cloned().collect();
    for _ in 0..CHECKED_TURNS {
        grammars.extend(again.clone());
    }
    grammars
}

/// Whether every program of the line is installed, soon ends, and needs no network.
fn is_runnable(explanation: &Explanation) -> bool {
    let mut commands = explanation.read_commands.iter();
    explanation.assessment.profile == SandboxProfile::Read
        && commands.all(|words| is_runnable_program(program(words)))
}

fn is_runnable_program(name: &str) -> bool {
    let installed = |directory: &str| Path::new(directory).join(name).exists();
    !is_listed(SLOW, name) && SYSTEM_PATH.split(':').any(installed)
}

fn is_listed(list: &str, program: &str) -> bool {
    list.split_whitespace().any(|listed| listed == program)
}

fn program(words: &[ExpectedWord]) -> &str {
    match words.first() {
        Some(ExpectedWord::Exact(name)) => name,
        Some(ExpectedWord::Pattern(_) | ExpectedWord::Unknown) | None => "",
    }
}

/// What lines run in, and what it was before.
struct World {
    runner: LineRunner,
    before: BTreeMap<String, String>,
    /// Whether the last line printed a secret.
    came_across_secret: bool,
}

impl World {
    fn new() -> Self {
        let runner = LineRunner::new(Programs::Installed);
        let before = runner.scratch.all_file_states();
        Self {
            runner,
            before,
            came_across_secret: false,
        }
    }

    /// Runs a line, and returns what it did besides reading.
    fn check(&mut self, line: &str, explanation: &Explanation) -> Option<Failure> {
        self.runner.run(line, 0);
        let after = self.runner.scratch.all_file_states();
        let changed = changed_paths(&self.before, &after);
        let connections = self.runner.connections();
        let output = self.runner.output();
        let secret = output.lines().find(|line| line.contains(CANARY));
        self.came_across_secret = secret.is_some();
        let failure = |kind: &str, details: &str| {
            let believed = &explanation.read_commands;
            Some(Failure {
                kind: kind.to_owned(),
                details: format!("  believed {believed:?}\n  happened {details}"),
            })
        };
        if let Some(first) = changed.first() {
            let root = self.runner.scratch.directory.path();
            let first = Path::new(first);
            let first = first.strip_prefix(root).unwrap_or(first).display();
            let kind = format!("it changes {first}");
            // What the next line finds must not depend on this one.
            *self = Self::new();
            return failure(&kind, &changed.join(", "));
        }
        if !connections.is_empty() {
            return failure("it connects", &connections.join("\n"));
        }
        match secret {
            Some(secret) if !may_come_across_secrets(line, explanation) => {
                failure("it prints a secret", secret)
            }
            Some(_) | None => None,
        }
    }
}

fn may_come_across_secrets(line: &str, explanation: &Explanation) -> bool {
    let mut programs = explanation.read_commands.iter().map(|words| program(words));
    line.contains(['*', '?', '[']) || programs.any(|name| is_listed(SEARCHERS, name))
}
