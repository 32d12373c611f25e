//! Tests the policy against a corpus of commands with their expected categories.

use crate::support::{CorpusCase, corpus_cases, explain};
use pvp_protocol::Category;

fn mismatches(fits: impl Fn(&CorpusCase, Category) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for case in corpus_cases() {
        let assessment = explain(&case.line).assessment;
        let category = assessment.category;
        if !fits(&case, category) {
            let why = format!("{}: {}", assessment.rule, assessment.reason);
            wrong.push(format!(
                "{}: {:?} is {category}, not {} ({}) [{why}]",
                case.file, case.line, case.expected, case.reason
            ));
        }
    }
    wrong
}

#[test]
fn the_corpus_is_large_and_has_everything() {
    let cases = corpus_cases();
    assert!(cases.len() >= 5500, "{}", cases.len());
    for category in [
        Category::Read,
        Category::Write,
        Category::Destructive,
        Category::Blocked,
    ] {
        let count = cases
            .iter()
            .filter(|case| case.expected == category)
            .count();
        assert!(count >= 200, "{category}: {count}");
    }
}

#[test]
fn nothing_dangerous_is_a_read() {
    let wrong =
        mismatches(|case, category| category > Category::Read || case.expected == Category::Read);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_is_less_severe_than_expected() {
    let wrong = mismatches(|case, category| category >= case.expected);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_is_more_severe_than_expected_except_some_reads() {
    let wrong =
        mismatches(|case, category| category <= case.expected || case.expected == Category::Read);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn everyday_reads_are_reads_almost_always() {
    let everyday = corpus_cases()
        .iter()
        .filter(|case| case.expected == Category::Read)
        .count();
    let missed =
        mismatches(|case, category| case.expected != Category::Read || category == Category::Read);
    let share = 100.0 * (everyday - missed.len()) as f64 / everyday as f64;
    assert!(share >= 95.0, "{share:.1}%\n{}", missed.join("\n"));
    println!(
        "{share:.1}% of {everyday} everyday reads are reads\n{}",
        missed.join("\n")
    );
}
