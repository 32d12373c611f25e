//! Programs receive the words that were assessed.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use pvp_policy::{ExpectedWord, Explanation, Policy, Workspace};
use pvp_protocol::{Action, Category, Command};

use super::failures::{Failure, Failures};
use super::grammar::{ReadGrammar, read_grammars};
use super::received::is_explained;
use super::runner::{LineRunner, Programs};
use super::{Lines, explain_read, try_explain};
use crate::support::env_number;

#[test]
fn programs_receive_the_words_that_were_assessed() {
    let mut lines = Lines::new(1, read_grammars()).after_examples();
    let mut runner = LineRunner::new(Programs::Recorded);
    let mut failures = Failures::default();
    let mut rules = BTreeSet::new();
    let rounds = env_number("PVP_ROUNDS").unwrap_or(4000);
    let (mut built, mut ran, mut programs) = (0, 0, 0);
    while ran < rounds {
        let line = lines.next();
        built += 1;
        let Some(explanation) = try_explain(&line) else {
            failures.add(&line, panics(), |line| {
                try_explain(line).is_none().then(panics)
            });
            continue;
        };
        if explanation.assessment.category != Category::Read {
            continue;
        }
        ran += 1;
        let status = u8::from(ran % 4 == 0);
        runner.run(&line, status);
        let received = runner.received();
        programs += received.len();
        if let Some(failure) = compare(&explanation, &received) {
            failures.add(&line, failure, |line| {
                let explanation = explain_read(line)?;
                runner.run(line, status);
                compare(&explanation, &runner.received())
            });
        }
        rules.extend(explanation.matched_rules);
    }
    println!("{ran} of {built} lines are reads, and start {programs} programs");
    failures.assert_none();
    let missing: Vec<String> = lines.grammars.iter().map(ReadGrammar::id).collect();
    let missing: Vec<String> = missing
        .into_iter()
        .filter(|id| !rules.contains(id))
        .collect();
    assert_eq!(missing, Vec::<String>::new(), "no line for these rules");
}

#[test]
fn a_program_that_nobody_expects_would_be_noticed() {
    let mut runner = LineRunner::new(Programs::Recorded);
    runner.run("for f in a 'b c'; do cat \"$f\" *.tgz; done | touch x", 0);
    let mut received = runner.received();
    received.sort();
    let expected = [
        vec!["cat", "a", "a.tgz"],
        vec!["cat", "b c", "a.tgz"],
        vec!["touch", "x"],
    ];
    assert_eq!(received, expected);
    let explanation = explain_read("cat a *.tgz").unwrap();
    assert_eq!(compare(&explanation, &received[..1]), None);
    assert!(compare(&explanation, &received[1..2]).is_some());
    assert!(compare(&explanation, &received[2..]).is_some());
    // What does not run is not recorded.
    runner.run("false && cat a", 0);
    assert_eq!(runner.received(), Vec::<Vec<String>>::new());
}

fn panics() -> Failure {
    Failure {
        kind: "assessing it panics".to_owned(),
        details: String::new(),
    }
}

/// What is wrong with the words that programs received.
fn compare(explanation: &Explanation, received: &[Vec<String>]) -> Option<Failure> {
    received.iter().find_map(|words| {
        let program = words.first().map_or("", String::as_str);
        let kind = if is_explained(words, &explanation.read_commands) {
            let reason = reason_against(words, explanation)?;
            format!("`{program}` receives what is no read: {reason}")
        } else {
            format!("`{program}` receives other words than were assessed")
        };
        let believed = &explanation.read_commands;
        let details = format!("  believed {believed:?}\n  received {words:?}");
        Some(Failure { kind, details })
    })
}

fn has_harmless_flags(program: &str) -> bool {
    static GRAMMARS: LazyLock<Vec<ReadGrammar>> = LazyLock::new(read_grammars);
    let mut grammars = GRAMMARS.iter();
    grammars.any(|grammar| grammar.program() == program && grammar.harmless_flags)
}

/// Why these words, given to a program without a shell, would need approval.
fn reason_against(words: &[String], explanation: &Explanation) -> Option<String> {
    // A name that a pattern matches may contain a line break, which is refused in other words.
    let mut words = words.iter().map(|word| word.replace('\n', " "));
    let program = words.next()?;
    let words: Vec<String> = words.collect();
    let separates_operands = words.iter().any(|word| word == "--");
    // Behind a wrapper, it is the flags of the inner program that count.
    let is_wrapper = ["xargs", "timeout", "nice", "command", "env"].contains(&program.as_str());
    let inner = words.iter().find(|word| has_harmless_flags(word));
    let harmless = has_harmless_flags(&program) || (is_wrapper && inner.is_some());
    let action = Action::new(Command::Argv {
        command: program.clone(),
        args: words,
    });
    let workspace = Workspace {
        directory: Some("/work/app".to_owned()),
        ..Workspace::default()
    };
    let assessment = Policy::built_in().explain(&action, &workspace).assessment;
    let mut words = explanation.read_commands.iter().flatten();
    let expands = words.any(|word| !matches!(word, ExpectedWord::Exact(_)));
    let changes_directory = explanation.matched_rules.iter().any(|id| id == "read.cd");
    let known = match assessment.rule.as_str() {
        // The sandbox keeps the secrets that a pattern matches by chance.
        "path.secret" => expands,
        "path.outside" => changes_directory,
        "default.arguments" => changes_directory || (expands && harmless),
        "default.wrapped" => expands && harmless,
        // The patterns of the rules see flags behind `--` too.
        _ => expands && separates_operands,
    };
    let allowed = assessment.category == Category::Read || known;
    (!allowed).then(|| format!("{} {}", assessment.rule, assessment.reason))
}
