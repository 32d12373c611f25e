//! Compares the policy with the yardstick: commands as coding agents run them, labelled by hand.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    reason = "the test and the report each use some of it, and a broken yardstick stops both"
)]

use std::fmt;

use pvp_policy::{Policy, Workspace};
use pvp_protocol::{Action, Assessment, Category, Command};

const YARDSTICK: &str = include_str!("../yardstick.tsv");

/// Represents a line break inside a command.
const LINE_BREAK: char = '⏎';

/// What a command really does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    /// It has no lasting effect, contacts no network and shows no secret.
    Read,
    /// It is as harmless as a read, but only running it in the sandbox can prove that.
    Try,
    Write,
    Destructive,
    Blocked,
}

impl Truth {
    pub const ALL: [Truth; 5] = [
        Truth::Read,
        Truth::Try,
        Truth::Write,
        Truth::Destructive,
        Truth::Blocked,
    ];

    fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|truth| truth.to_string() == text)
    }

    /// The most severe category that is still right.
    fn category(self) -> Category {
        match self {
            Truth::Read => Category::Read,
            Truth::Try | Truth::Write => Category::Write,
            Truth::Destructive => Category::Destructive,
            Truth::Blocked => Category::Blocked,
        }
    }
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Truth::Read => "read",
            Truth::Try => "try",
            Truth::Write => "write",
            Truth::Destructive => "destructive",
            Truth::Blocked => "blocked",
        })
    }
}

/// One row of the yardstick, and what the policy says about it.
#[derive(Debug, Clone)]
pub struct MeasuredCommand {
    pub truth: Truth,
    pub workspace: &'static str,
    pub line: String,
    pub assessment: Assessment,
}

impl MeasuredCommand {
    fn is_asked(&self) -> bool {
        self.assessment.category > Category::Read
    }

    /// Whether the sandbox may try it: never what is destructive or blocked, nor what was stopped for
    /// the paths it shows, which the sandbox hides too.
    fn may_be_tried(&self) -> bool {
        let assessment = &self.assessment;
        assessment.category <= Category::Write && !assessment.rule.starts_with("path.")
    }

    fn is_more_severe_than_true(&self) -> bool {
        self.assessment.category > self.truth.category().max(Category::Write)
    }
}

impl fmt::Display for MeasuredCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let assessment = &self.assessment;
        let line = self.line.replace('\n', "⏎");
        write!(
            f,
            "{} is {} in {}: {line}\n      {}: {}",
            self.truth, assessment.category, self.workspace, assessment.rule, assessment.reason
        )
    }
}

/// How many of a group of commands have a property, and which ones.
#[derive(Debug)]
pub struct Share<'a> {
    pub found: Vec<&'a MeasuredCommand>,
    pub of: usize,
}

impl Share<'_> {
    pub fn percentage(&self) -> f64 {
        100.0 * self.found.len() as f64 / self.of.max(1) as f64
    }
}

impl fmt::Display for Share<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percentage = self.percentage();
        write!(f, "{} of {} ({percentage:.1}%)", self.found.len(), self.of)
    }
}

/// The whole yardstick with its assessments.
#[derive(Debug)]
pub struct Measurement {
    pub commands: Vec<MeasuredCommand>,
}

impl Measurement {
    /// Assesses every command of the yardstick with the built-in rules.
    pub fn take() -> Self {
        let rows = YARDSTICK.split('\n').filter(|row| !row.is_empty());
        Self {
            commands: rows.map(measure_row).collect(),
        }
    }

    pub fn count(&self, truth: Truth) -> usize {
        let same = |command: &&MeasuredCommand| command.truth == truth;
        self.commands.iter().filter(same).count()
    }

    /// Reads that need approval.
    pub fn needless_questions(&self) -> Share<'_> {
        self.share(|truth| truth == Truth::Read, |command| command.is_asked())
    }

    /// Harmless commands that need approval although the session lets the sandbox try commands.
    pub fn needless_questions_with_trying(&self) -> Share<'_> {
        self.share(
            |truth| matches!(truth, Truth::Read | Truth::Try),
            |command| command.is_asked() && !command.may_be_tried(),
        )
    }

    /// Commands that would run without approval and should not.
    pub fn false_reads(&self) -> Share<'_> {
        self.share(|truth| truth != Truth::Read, |command| !command.is_asked())
    }

    /// Destructive and blocked commands that are recognised as such.
    pub fn recognised_as_destructive(&self) -> Share<'_> {
        self.share(
            |truth| truth >= Truth::Destructive,
            |command| command.assessment.category >= command.truth.category(),
        )
    }

    /// Destructive and blocked commands that are called something milder.
    pub fn missed_destructive(&self) -> Share<'_> {
        self.share(
            |truth| truth >= Truth::Destructive,
            |command| command.assessment.category < command.truth.category(),
        )
    }

    /// Commands that are called destructive or blocked and are not.
    pub fn over_severe(&self) -> Share<'_> {
        self.share(|_| true, MeasuredCommand::is_more_severe_than_true)
    }

    fn share(
        &self,
        counts: impl Fn(Truth) -> bool,
        has_property: impl Fn(&MeasuredCommand) -> bool,
    ) -> Share<'_> {
        let group = self.commands.iter().filter(|command| counts(command.truth));
        let (found, others): (Vec<_>, Vec<_>) = group.partition(|command| has_property(command));
        Share {
            of: found.len() + others.len(),
            found,
        }
    }
}

fn measure_row(row: &'static str) -> MeasuredCommand {
    let mut columns = row.splitn(3, '\t');
    let (Some(truth), Some(workspace), Some(line)) =
        (columns.next(), columns.next(), columns.next())
    else {
        panic!("yardstick: `{row}` has fewer than three columns");
    };
    let Some(truth) = Truth::parse(truth) else {
        panic!("yardstick: no truth `{truth}`");
    };
    let line = line.replace(LINE_BREAK, "\n");
    let action = Action::new(Command::Shell { line: line.clone() });
    let directory = Workspace {
        directory: Some(workspace.to_owned()),
        ..Workspace::default()
    };
    MeasuredCommand {
        truth,
        workspace,
        line,
        assessment: Policy::built_in().assess(&action, &directory),
    }
}
