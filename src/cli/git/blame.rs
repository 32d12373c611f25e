//! `pvp git blame`: shows who approved the command behind each line of a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::super::{current_directory, one_line, print_error, print_json, print_line};
use super::decision_record::DecisionRecord;
use super::repository::{Repository, is_object_name};

/// The most characters of the column of approvers.
const MAX_APPROVERS_CHARS: usize = 40;

/// How many characters of a commit's name are shown.
const SHORT_COMMIT: usize = 8;

#[derive(Args)]
pub(crate) struct BlameArguments {
    /// The file
    file: PathBuf,
    /// Print JSON, one line of the file per line
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &BlameArguments) -> anyhow::Result<ExitCode> {
    let (directory, file) = place_of(&arguments.file)?;
    let repository = Repository::around(&directory)?;
    let file = file.to_str().context("the name of the file is not UTF-8")?;
    // Without textconv and filters, no program that the repository has configured is run on the
    // file.
    let blame = ["blame", "--porcelain", "--no-textconv", "--", file];
    let output = repository
        .git_without_filters(&blame)
        .with_context(|| format!("cannot blame {}", arguments.file.display()))?;
    let lines = parse_blame(&output);
    let decisions = read_decisions(&repository, &lines)?;
    match arguments.json {
        true => print_as_json(&lines, &decisions)?,
        false => print_as_text(&lines, &decisions)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The directory in which git is asked about a file, and the file's name there.
fn place_of(file: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let path = current_directory()?.join(file);
    let directory = path.parent().filter(|directory| directory.is_dir());
    match (directory, path.file_name()) {
        (Some(directory), Some(name)) => Ok((directory.to_owned(), name.into())),
        _ => Ok((current_directory()?, file.to_owned())),
    }
}

/// A line of the file.
#[derive(Debug, PartialEq, Eq)]
struct BlamedLine {
    commit: String,
    number: u64,
    text: String,
}

/// Where the decisions behind a commit were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum DecisionSource {
    Note,
    Trailers,
}

type CommitRecords = BTreeMap<String, (DecisionSource, DecisionRecord)>;

/// Parses what `git blame --porcelain` prints: for each line of the file a line with the commit and
/// the line's number, some lines about the commit, and the line itself after a tab.
fn parse_blame(output: &[u8]) -> Vec<BlamedLine> {
    let mut lines = Vec::new();
    let mut current: Option<(String, u64)> = None;
    for line in output.split(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        if let Some(text) = text.strip_prefix('\t') {
            if let Some((commit, number)) = current.take() {
                let text = text.to_owned();
                lines.push(BlamedLine {
                    commit,
                    number,
                    text,
                });
            }
        } else if current.is_none() {
            let words: Vec<_> = text.split(' ').collect();
            let number = words.get(2).and_then(|number| number.parse().ok());
            let commit = words.first().filter(|commit| is_object_name(commit));
            current = commit.map(|it| (*it).to_owned()).zip(number);
        }
    }
    lines
}

/// What the commits of these lines say about decisions: their notes, or else their trailers.
fn read_decisions(repository: &Repository, lines: &[BlamedLine]) -> anyhow::Result<CommitRecords> {
    let commits: BTreeSet<_> = lines.iter().map(|line| &line.commit).collect();
    let commits: Vec<_> = commits.into_iter().filter(|it| is_committed(it)).collect();
    let notes = repository.notes()?;
    let names = commits.iter().map(|commit| (*commit).clone());
    let noted = commits
        .iter()
        .filter_map(|commit| notes.get(*commit).cloned());
    let objects = repository.read_objects(&names.chain(noted).collect::<Vec<_>>())?;
    let mut records = CommitRecords::new();
    for commit in commits {
        let note = notes.get(commit).and_then(|note| objects.get(note));
        let note = note.map(|note| DecisionRecord::parse(&String::from_utf8_lossy(note)));
        let message = objects.get(commit);
        let message = message.map(|object| DecisionRecord::parse_commit(object));
        let found = [
            (DecisionSource::Note, note),
            (DecisionSource::Trailers, message),
        ];
        let mut found = found
            .into_iter()
            .filter_map(|(source, record)| Some((source, record?)));
        if let Some(found) = found.find(|(_, record)| !record.is_empty()) {
            records.insert(commit.clone(), found);
        }
    }
    Ok(records)
}

/// Git gives lines that are not committed to a commit of zeros.
fn is_committed(commit: &str) -> bool {
    commit.bytes().any(|byte| byte != b'0')
}

fn print_as_text(lines: &[BlamedLine], decisions: &CommitRecords) -> anyhow::Result<()> {
    let column = |line: &BlamedLine| {
        let record = decisions.get(&line.commit).map(|(_, record)| record);
        (approvers_text(record), proposal_text(record))
    };
    let columns: Vec<_> = lines.iter().map(column).collect();
    let width = |part: fn(&(String, String)) -> &String| {
        let chars = columns.iter().map(|it| part(it).chars().count());
        chars.max().unwrap_or(1)
    };
    let (approvers_width, proposal_width) = (width(|it| &it.0), width(|it| &it.1));
    let number_width = lines.len().to_string().len();
    let mut text = String::new();
    for (line, (approvers, proposal)) in lines.iter().zip(&columns) {
        let commit: String = line.commit.chars().take(SHORT_COMMIT).collect();
        let (number, rest) = (line.number, &line.text);
        text += &format!(
            "{commit} ({approvers:approvers_width$} {proposal:proposal_width$} {number:number_width$}) {rest}\n"
        );
    }
    if !lines.is_empty() {
        print_line(text.trim_end_matches('\n'))?;
    }
    let undecided = lines
        .iter()
        .filter(|it| !decisions.contains_key(&it.commit));
    match undecided.count() {
        0 => {}
        all if all == lines.len() => {
            print_error(&anyhow::anyhow!(
                "no line comes from a commit with a decision"
            ));
        }
        some => print_error(&anyhow::anyhow!(
            "{some} of {} lines come from commits without a decision",
            lines.len()
        )),
    }
    Ok(())
}

/// Who approved, or `-`.
fn approvers_text(record: Option<&DecisionRecord>) -> String {
    let names = match record {
        None => return "-".to_owned(),
        Some(record) if record.approvers.is_empty() => return "nobody".to_owned(),
        Some(record) => one_line(&record.approvers.join(", ")),
    };
    match names.chars().count() > MAX_APPROVERS_CHARS {
        true => names
            .chars()
            .take(MAX_APPROVERS_CHARS - 1)
            .chain(['…'])
            .collect(),
        false => names,
    }
}

/// The first proposal, and how many more there are.
fn proposal_text(record: Option<&DecisionRecord>) -> String {
    let proposals = record.map_or(&[][..], |record| &record.proposals);
    match proposals {
        [] => "-".to_owned(),
        [only] => only.short().to_owned(),
        [first, others @ ..] => format!("{}+{}", first.short(), others.len()),
    }
}

/// A line of the file with the decisions behind it.
#[derive(Serialize)]
struct LineDecision<'a> {
    /// Its number, counted from 1.
    line: u64,
    /// The commit it comes from; null if it is not committed.
    commit: Option<&'a str>,
    /// Where the decisions are named; null if there are none.
    source: Option<DecisionSource>,
    /// Sessions, proposals and approvers.
    #[serde(flatten)]
    record: &'a DecisionRecord,
    /// The line.
    text: &'a str,
}

fn print_as_json(lines: &[BlamedLine], decisions: &CommitRecords) -> anyhow::Result<()> {
    let none = DecisionRecord::default();
    for line in lines {
        let found = decisions.get(&line.commit);
        let decision = LineDecision {
            line: line.number,
            commit: is_committed(&line.commit).then_some(&line.commit),
            source: found.map(|(source, _)| *source),
            record: found.map_or(&none, |(_, record)| record),
            text: &line.text,
        };
        print_json(serde_json::to_string(&decision)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_whatever_they_hold() {
        let (a, b) = ("a".repeat(40), "b".repeat(64));
        let mut output = format!(
            "{a} 1 1 2\nauthor Ann\nsummary \tx\nfilename f\n\t{b} 1 9 1\n{a} 2 2\n\t\n{b} 1 3 1\n"
        )
        .into_bytes();
        output.extend(b"author \xff\n\t\xff\ttab\n");
        let line = |commit: &str, number, text: &str| BlamedLine {
            commit: commit.to_owned(),
            number,
            text: text.to_owned(),
        };
        let expected = [
            line(&a, 1, &format!("{b} 1 9 1")),
            line(&a, 2, ""),
            line(&b, 3, "\u{fffd}\ttab"),
        ];
        assert_eq!(parse_blame(&output), expected);
        for bad in [&b""[..], b"\tx", b"x y z", b"\n\n\t\n", b"\xff\xff"] {
            assert_eq!(parse_blame(bad), []);
        }
    }
}
