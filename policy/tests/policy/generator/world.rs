//! The scratch project in which real programs run, and what they did to it besides reading.

use std::collections::BTreeMap;
use std::path::Path;

use pvp_policy::{ExpectedWord, Explanation};
use pvp_protocol::SandboxProfile;

use super::explain_read;
use super::failures::Failure;
use super::hostile::CANARY;
use super::runner::{LineEnding, LineRunner, Programs, SYSTEM_PATH};
use crate::scratch::changed_paths;

/// Programs that wait, or that take long to start, and are therefore not run.
const SLOW: &str = "sleep npm npx node gcloud java javac terraform apt apt-cache pip pip3 man apropos \
    whatis lsof dmesg vmstat journalctl gdb docker kubectl top watch strace tmux last python3";

/// Programs that go through all files of a directory, and may come across a secret.
const SEARCHERS: &str = "grep egrep fgrep rg ag diff git";

/// A read whose programs can be run.
pub(super) struct RunnableRead {
    pub(super) line: String,
    pub(super) explanation: Explanation,
}

impl RunnableRead {
    /// The line, if it is a read whose programs are all installed, soon end, and need no network.
    pub(super) fn new(line: &str) -> Option<Self> {
        let explanation = explain_read(line)?;
        let mut commands = explanation.read_commands.iter();
        let runnable = explanation.assessment.profile == SandboxProfile::Read
            && commands.all(|words| is_runnable_program(program(words)));
        runnable.then(|| Self {
            line: line.to_owned(),
            explanation,
        })
    }

    /// Whether it may come across a secret, which the sandbox keeps: it searches, or it names what a
    /// pattern matches.
    fn may_come_across_secrets(&self) -> bool {
        let commands = self.explanation.read_commands.iter();
        let mut programs = commands.map(|words| program(words));
        // The name of the file may only be known when the line runs, as with `xargs cat`.
        let mut words = self.explanation.read_commands.iter().flatten();
        let computes = words.any(|word| *word == ExpectedWord::Unknown);
        self.line.contains(['*', '?', '['])
            || computes
            || programs.any(|name| is_listed(SEARCHERS, name))
    }
}

pub(super) fn is_runnable_program(name: &str) -> bool {
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
pub(super) struct World {
    runner: LineRunner,
    before: BTreeMap<String, String>,
    /// How many lines printed a secret that they came across.
    pub(super) came_across_secrets: usize,
}

/// What happened while lines ran.
struct Incident {
    kind: String,
    details: String,
    ending: LineEnding,
}

impl World {
    pub(super) fn new() -> Self {
        let runner = LineRunner::new(Programs::Installed);
        let before = runner.scratch.all_file_states();
        Self {
            runner,
            before,
            came_across_secrets: 0,
        }
    }

    /// Runs a read, and returns what it did besides reading.
    pub(super) fn check(&mut self, read: &RunnableRead) -> Option<Failure> {
        let incident = self.run(&read.line, read.may_come_across_secrets());
        let believed = &read.explanation.read_commands;
        (!incident.kind.is_empty()).then(|| Failure {
            kind: incident.kind,
            details: format!("  believed {believed:?}\n  happened {}", incident.details),
        })
    }

    /// Runs several reads as one script, and returns those that did something besides reading.
    pub(super) fn check_all<'a>(
        &mut self,
        reads: &'a [RunnableRead],
    ) -> Vec<(&'a RunnableRead, Failure)> {
        let lines: Vec<&str> = reads.iter().map(|read| read.line.as_str()).collect();
        let searches = reads.iter().any(RunnableRead::may_come_across_secrets);
        let incident = self.run(&lines.join("\n"), searches);
        if incident.kind.is_empty() && incident.ending == LineEnding::ByItself {
            return Vec::new();
        }
        let failures = reads.iter().map(|read| (read, self.check(read)));
        failures
            .filter_map(|(read, failure)| Some((read, failure?)))
            .collect()
    }

    fn run(&mut self, line: &str, may_come_across_secrets: bool) -> Incident {
        let ending = self.runner.run(line, 0);
        let after = self.runner.scratch.all_file_states();
        let changed = changed_paths(&self.before, &after);
        let connections = self.runner.connections();
        let output = self.runner.output();
        let secret = output.lines().find(|line| line.contains(CANARY));
        let (kind, details) = if let Some(first) = changed.first() {
            let kind = format!("it changes {}", self.below_root(first));
            self.start_over();
            (kind, changed.join(", "))
        } else if !connections.is_empty() {
            ("it connects".to_owned(), connections.join("\n"))
        } else if let Some(secret) = secret.filter(|_| !may_come_across_secrets) {
            ("it prints a secret".to_owned(), secret.to_owned())
        } else {
            self.came_across_secrets += usize::from(secret.is_some());
            (String::new(), String::new())
        };
        Incident {
            kind,
            details,
            ending,
        }
    }

    /// Makes the project anew, because what a line finds must not depend on the one before it.
    fn start_over(&mut self) {
        *self = Self {
            came_across_secrets: self.came_across_secrets,
            ..Self::new()
        };
    }

    fn below_root(&self, path: &str) -> String {
        let root = self.runner.scratch.directory.path();
        let path = Path::new(path);
        let path = path.strip_prefix(root).unwrap_or(path);
        path.display().to_string()
    }
}
