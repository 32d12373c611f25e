//! Lines for which something else happened than was believed, each made as short as possible.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::support::env_text;

/// What is wrong about a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// What happened, in a few words that are the same for all lines with the same cause.
    pub(super) kind: String,
    /// What was believed and what happened, in full.
    pub(super) details: String,
}

/// How many lines of one kind are printed.
const LINES_PER_KIND: usize = 20;

/// How often a failing line is made shorter and run again.
const MAX_SHRINKS: usize = 600;

/// The failures of a test.
#[derive(Default)]
pub(super) struct Failures {
    by_kind: BTreeMap<String, Vec<(String, String)>>,
    count: usize,
}

impl Failures {
    /// Records a failure, with the shortest line found for which `check` says the same.
    pub(super) fn add(
        &mut self,
        line: &str,
        failure: Failure,
        mut check: impl FnMut(&str) -> Option<Failure>,
    ) {
        self.count += 1;
        let known = self.by_kind.entry(failure.kind.clone()).or_default();
        if known.len() < LINES_PER_KIND {
            let short = shrink(line, |line| {
                check(line).is_some_and(|other| other.kind == failure.kind)
            });
            let details = check(&short).map_or(failure.details, |failure| failure.details);
            if !known.iter().any(|(line, _)| *line == short) {
                known.push((short, details));
            }
        }
        if env_text("PVP_KEEP_GOING").is_none() {
            self.assert_none();
        }
    }

    /// Ends the test if there was a failure.
    pub(super) fn assert_none(&self) {
        let mut report = String::new();
        for (kind, lines) in &self.by_kind {
            for (line, details) in lines {
                let _ = writeln!(report, "{kind}\n  line     {line:?}\n{details}");
            }
        }
        assert!(report.is_empty(), "{} failures\n{report}", self.count);
    }
}

/// A shorter line that still fails: words are left out first, and then characters.
fn shrink(line: &str, mut fails: impl FnMut(&str) -> bool) -> String {
    let mut line = line.to_owned();
    let mut tries = 0;
    for separator in [" ", ""] {
        let mut at = 0;
        loop {
            let pieces: Vec<&str> = match separator {
                "" => line.split("").filter(|piece| !piece.is_empty()).collect(),
                _ => line.split(separator).collect(),
            };
            if at >= pieces.len() || tries > MAX_SHRINKS {
                break;
            }
            let shorter = [&pieces[..at], &pieces[at + 1..]].concat().join(separator);
            tries += 1;
            if fails(&shorter) {
                line = shorter;
            } else {
                at += 1;
            }
        }
    }
    line
}
