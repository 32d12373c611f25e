//! Reads change no file, connect to nothing and print no secret, with the programs themselves.

use super::Lines;
use super::every_flag::lines_with_every_flag;
use super::failures::Failures;
use super::grammar::{ReadGrammar, read_grammars};
use super::random::Random;
use super::runner::{has_namespaces, has_strace};
use super::world::{RunnableRead, World, is_runnable_program};
use crate::skip::skip;
use crate::support::{env_number, explain};

/// How many more turns a rule has whose arguments are a language of their own.
const CHECKED_TURNS: usize = 5;

/// How many lines run before anyone looks at what they did. More would save little time.
const LINES_AT_ONCE: usize = 8;

const NO_NAMESPACES: &str = "no namespaces can be created here";
const NO_STRACE: &str = "attempts to connect cannot be watched here";

#[test]
fn reads_change_nothing_connect_nowhere_and_print_no_secret() {
    let Some(mut world) = watched_world() else {
        return;
    };
    let mut grammars = runnable_grammars();
    let checked = grammars.iter().filter(|grammar| !grammar.check.is_empty());
    let again: Vec<ReadGrammar> = checked.cloned().collect();
    for _ in 0..CHECKED_TURNS {
        grammars.extend(again.clone());
    }
    let mut lines = Lines::new(2, grammars);
    let mut failures = Failures::default();
    let rounds = env_number("PVP_ROUNDS").unwrap_or(1000);
    let mut ran = 0;
    while ran < rounds {
        let line = lines.next();
        let Some(read) = RunnableRead::new(&line) else {
            continue;
        };
        ran += 1;
        if let Some(failure) = world.check(&read) {
            failures.add(&line, failure, |line| {
                world.check(&RunnableRead::new(line)?)
            });
        }
    }
    let secrets = world.came_across_secrets;
    println!("{ran} reads ran, and {secrets} of them came across a secret");
    failures.assert_none();
}

/// In a short run each flag is given once, in one of its forms and places.
#[test]
fn every_flag_of_every_read_rule_only_reads() {
    let Some(mut world) = watched_world() else {
        return;
    };
    let mut random = Random::from_environment(3);
    let mut failures = Failures::default();
    let mut lines: Vec<String> = Vec::new();
    for grammar in runnable_grammars() {
        for forms in lines_with_every_flag(&grammar) {
            match env_number("PVP_ROUNDS") {
                Some(_) => lines.extend(forms),
                None => lines.push(random.pick_string(&forms)),
            }
        }
    }
    let reads = lines.iter().filter_map(|line| RunnableRead::new(line));
    let reads: Vec<RunnableRead> = reads.collect();
    for some in reads.chunks(LINES_AT_ONCE) {
        for (read, failure) in world.check_all(some) {
            failures.add(&read.line, failure, |line| {
                world.check(&RunnableRead::new(line)?)
            });
        }
    }
    println!(
        "{} of {} lines are reads, and ran",
        reads.len(),
        lines.len()
    );
    failures.assert_none();
}

#[test]
fn a_write_a_connection_and_a_secret_would_be_noticed() {
    let Some(mut world) = watched_world() else {
        return;
    };
    let mut kind = |line: &str| {
        let line = line.to_owned();
        let explanation = explain(&line);
        let failure = world.check(&RunnableRead { line, explanation });
        failure.map(|failure| failure.kind)
    };
    let changes = |path: &str| Some(format!("it changes {path}"));
    assert_eq!(kind("cat a.txt"), None);
    assert_eq!(kind("sort -o a.txt b.txt"), changes("tree/a.txt"));
    assert_eq!(kind(": >~/x"), changes("home"));
    assert_eq!(kind("touch $TMPDIR/x"), changes("tmp/x"));
    assert_eq!(kind("cat prod.env"), Some("it prints a secret".to_owned()));
    if has_strace() {
        let connects = Some("it connects".to_owned());
        assert_eq!(kind(": </dev/tcp/127.0.0.1/9"), connects);
    }
    assert_eq!(kind("cat a.txt"), None);
}

/// A world in which connections are watched too, if that is possible here.
fn watched_world() -> Option<World> {
    if !has_namespaces() {
        skip(NO_NAMESPACES);
        return None;
    }
    if !has_strace() {
        skip(NO_STRACE);
    }
    Some(World::new())
}

fn runnable_grammars() -> Vec<ReadGrammar> {
    let mut grammars = read_grammars();
    grammars.retain(|grammar| is_runnable_program(grammar.program()));
    grammars
}
