//! What shells and tools can do, and what the sorter must say of it.

use pvp_policy::{Place, Policy};
use pvp_protocol::{Action, Category, Command};

/// One line of the corpus: what is expected of a command, and why.
struct Case {
    file: &'static str,
    expected: Category,
    line: String,
    reason: &'static str,
}

macro_rules! corpus {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("corpus/", $name)))),*]
    };
}

const FILES: &[(&str, &str)] = corpus![
    "everyday.tsv",
    "files.tsv",
    "shell.tsv",
    "systems.tsv",
    "tools.tsv",
];

/// Stands for a line break inside a command.
const LINE_BREAK: char = '⏎';

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (file, text) in FILES {
        for row in text.lines() {
            let columns: Vec<&'static str> = row.split('\t').collect();
            let (first, last) = (columns[0], columns[columns.len() - 1]);
            let expected = match first {
                "read" => Category::Read,
                "write" => Category::Write,
                "destructive" => Category::Destructive,
                "blocked" => Category::Blocked,
                other => panic!("{file}: no category `{other}`"),
            };
            // A command may hold tabs of its own.
            let line = columns[1..columns.len() - 1].join("\t");
            let line = line.replace(LINE_BREAK, "\n");
            cases.push(Case {
                file,
                expected,
                line,
                reason: last,
            });
        }
    }
    cases
}

fn verdict(policy: &Policy, line: &str) -> (Category, String) {
    let action = Action::plain(Command::Shell {
        line: line.to_owned(),
    });
    let place = Place {
        workspace: Some("/work/app".to_owned()),
    };
    let assessment = policy.assess(&action, &place);
    let why = format!("{}: {}", assessment.rule, assessment.reason);
    (assessment.category, why)
}

fn wrong(fits: impl Fn(&Case, Category) -> bool) -> Vec<String> {
    let policy = Policy::built_in();
    let mut wrong = Vec::new();
    for case in cases() {
        let (category, why) = verdict(&policy, &case.line);
        if !fits(&case, category) {
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
    let cases = cases();
    assert!(cases.len() >= 1500, "{}", cases.len());
    for category in [
        Category::Read,
        Category::Write,
        Category::Destructive,
        Category::Blocked,
    ] {
        let count = cases.iter().filter(|case| case.expected == category).count();
        assert!(count >= 200, "{category}: {count}");
    }
}

#[test]
fn nothing_dangerous_is_a_read() {
    let wrong = wrong(|case, category| {
        category > Category::Read || case.expected == Category::Read
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_is_less_severe_than_expected() {
    let wrong = wrong(|case, category| category >= case.expected);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_is_more_severe_than_expected_except_some_reads() {
    let wrong = wrong(|case, category| {
        category <= case.expected || case.expected == Category::Read
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn everyday_reads_are_reads_almost_always() {
    let everyday = cases()
        .iter()
        .filter(|case| case.expected == Category::Read)
        .count();
    let asked = wrong(|case, category| {
        case.expected != Category::Read || category == Category::Read
    });
    let share = 100.0 * (everyday - asked.len()) as f64 / everyday as f64;
    assert!(share >= 95.0, "{share:.1}%\n{}", asked.join("\n"));
    println!("{share:.1}% of {everyday} everyday reads are reads\n{}", asked.join("\n"));
}
