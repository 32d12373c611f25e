//! The rules as a person reads them, and whether their examples hold.

use pvp_protocol::{Action, Assessment, Category, Command, Risk};

use crate::load::{PolicyError, RuleSource};
use crate::verdict::default_risk;
use crate::{Policy, RuleOrigin, Workspace};

/// What kind of rule it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    /// A pattern over one simple command.
    Command,
    /// A pattern over the raw text.
    Raw,
    /// A command that reads, with the arguments it may have.
    Read,
}

/// One rule, for `pvp policy show`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleInfo<'a> {
    pub id: &'a str,
    pub kind: RuleKind,
    pub origin: RuleOrigin,
    /// The commands it speaks of; empty for raw patterns.
    pub command: &'a str,
    /// The regular expression, if there is one.
    pub pattern: Option<&'a str>,
    pub category: Category,
    pub risk: Risk,
    pub reason: &'a str,
    pub matches: &'a [String],
    pub not: &'a [String],
}

/// A verdict with every rule that matched, for `pvp policy explain`.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    pub assessment: Assessment,
    /// How much work the verdict took, counted and not timed.
    pub steps: u32,
    pub matched_rules: Vec<String>,
}

/// An example that does not hold, for `pvp policy test`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule `{rule}`: `{example}` {problem}")]
pub struct ExampleFailure {
    pub rule: String,
    pub example: String,
    pub problem: &'static str,
}

impl Policy {
    /// All rules, in the order of the files.
    pub fn rules(&self) -> impl Iterator<Item = RuleInfo<'_>> {
        let commands = self.table.command_rules.iter().map(|rule| RuleInfo {
            id: rule.data.id.get_ref(),
            kind: RuleKind::Command,
            origin: rule.origin,
            command: &rule.data.command,
            pattern: rule.data.args.as_deref(),
            category: rule.data.category,
            risk: rule.risk(),
            reason: &rule.data.reason,
            matches: &rule.data.matches,
            not: &rule.data.not,
        });
        let raws = self.table.raw_rules.iter().map(|raw| RuleInfo {
            id: raw.data.id.get_ref(),
            kind: RuleKind::Raw,
            origin: raw.origin,
            command: "",
            pattern: Some(&raw.data.pattern),
            category: raw.data.category,
            risk: default_risk(raw.data.category),
            reason: &raw.data.reason,
            matches: &raw.data.matches,
            not: &raw.data.not,
        });
        let reads = self.table.read_rules.iter().map(|(read, origin)| RuleInfo {
            id: &read.id,
            kind: RuleKind::Read,
            origin: *origin,
            command: &read.data.command,
            pattern: None,
            category: Category::Read,
            risk: Risk::Safe,
            reason: &read.data.reason,
            matches: &read.data.matches,
            not: &read.data.not,
        });
        commands.chain(raws).chain(reads)
    }

    /// One rule by its id.
    pub fn rule(&self, id: &str) -> Option<RuleInfo<'_>> {
        self.rules().find(|rule| rule.id == id)
    }

    /// Every example of every rule that does not hold.
    pub fn failing_examples(&self) -> Vec<ExampleFailure> {
        let rules = self.rules();
        rules
            .flat_map(|rule| self.example_failures(&rule))
            .collect()
    }

    fn example_failures(&self, rule: &RuleInfo<'_>) -> Vec<ExampleFailure> {
        let missed = rule.matches.iter().map(|example| (example, true));
        let hit = rule.not.iter().map(|example| (example, false));
        missed
            .chain(hit)
            .filter(|(example, expected)| self.rule_matches(rule, example) != *expected)
            .map(|(example, expected)| ExampleFailure {
                rule: rule.id.to_owned(),
                example: example.clone(),
                problem: if expected {
                    "should match and does not"
                } else {
                    "should not match and does"
                },
            })
            .collect()
    }

    /// Whether a rule has a say on this line; a read rule must also be the outcome.
    fn rule_matches(&self, rule: &RuleInfo<'_>, line: &str) -> bool {
        let action = Action::new(Command::Shell {
            line: line.to_owned(),
        });
        let explanation = self.explain(&action, &Workspace::default());
        let matched = explanation.matched_rules.iter().any(|id| id == rule.id);
        let read = explanation.assessment.category == Category::Read;
        matched && (rule.kind != RuleKind::Read || read)
    }

    /// The first example of a user's rule that does not hold.
    pub(crate) fn check_user_examples(&self, source: RuleSource<'_>) -> Result<(), PolicyError> {
        let users = self.rules().filter(|rule| rule.origin == RuleOrigin::User);
        for rule in users {
            if rule.matches.is_empty() {
                let at = source.text.find(rule.id).unwrap_or(0);
                return Err(source.error(at, format!("rule `{}` has no `matches`", rule.id)));
            }
            if let Some(failure) = self.example_failures(&rule).into_iter().next() {
                let at = source.text.find(rule.id).unwrap_or(0);
                return Err(source.error(at, failure.to_string()));
            }
        }
        Ok(())
    }
}
