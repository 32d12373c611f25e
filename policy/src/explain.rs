//! Describes the rules to people and checks their examples.

use pvp_protocol::{Action, Assessment, Category, Command, Risk};

use crate::load::{PolicyError, RuleSource};
use crate::named_words::NamedWord;
use crate::verdict::default_risk;
use crate::word::ShellWord;
use crate::{Policy, RuleOrigin, RuleQuorums, Workspace};

/// The kind of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    /// A pattern that is matched against one simple command.
    Command,
    /// A pattern that is matched against the raw text.
    Raw,
    /// A command that only reads, and the arguments it may have.
    Read,
    /// Calls of tools other than the shell.
    Tool,
}

/// One rule, for `pvp policy show`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleInfo<'a> {
    /// The rule's stable id.
    pub id: &'a str,
    /// The kind of rule.
    pub kind: RuleKind,
    /// Who wrote it.
    pub origin: RuleOrigin,
    /// The commands or tools it names; empty for raw patterns.
    pub command: &'a str,
    /// The regular expression, if there is one.
    pub pattern: Option<&'a str>,
    /// The category of a match.
    pub category: Category,
    /// The risk of a match.
    pub risk: Risk,
    /// Why, in a sentence for those who vote.
    pub reason: &'a str,
    /// Commands that it must match.
    pub matches: &'a [String],
    /// Commands that it must not match.
    pub not: &'a [String],
}

/// An assessment with every rule that matched, for `pvp policy explain`.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The verdict.
    pub assessment: Assessment,
    /// How much work the assessment took, counted rather than timed.
    pub steps: u32,
    /// The ids of the rules that matched.
    pub matched_rules: Vec<String>,
    /// What the rules that matched say about who has to approve.
    pub quorums: RuleQuorums,
    /// The commands that were found to only read, with the words that each is expected to receive.
    pub read_commands: Vec<Vec<ExpectedWord>>,
    /// Every word of every command and redirection that was found, whatever it does.
    pub named_words: Vec<NamedWord>,
}

/// A word that a command is expected to receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedWord {
    /// Exactly this text.
    Exact(String),
    /// Names of files that match this pattern, or the pattern itself if there are none.
    Pattern(String),
    /// Any number of words, of which nothing is known.
    Unknown,
}

impl From<&ShellWord> for ExpectedWord {
    fn from(word: &ShellWord) -> Self {
        match word.as_literal() {
            Some(text) => Self::Exact(text),
            None if word.is_static() && !word.leading_tilde => Self::Pattern(word.text()),
            None => Self::Unknown,
        }
    }
}

/// An example that fails, for `pvp policy test`.
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
        let tools = self.table.tool_rules.iter().map(|rule| RuleInfo {
            id: rule.data.id.get_ref(),
            kind: RuleKind::Tool,
            origin: rule.origin,
            command: &rule.data.name,
            pattern: None,
            category: rule.data.category,
            risk: rule.risk(),
            reason: &rule.data.reason,
            matches: &rule.data.matches,
            not: &rule.data.not,
        });
        commands.chain(raws).chain(reads).chain(tools)
    }

    /// One rule by its id.
    pub fn rule(&self, id: &str) -> Option<RuleInfo<'_>> {
        self.rules().find(|rule| rule.id == id)
    }

    /// Every example that fails, of every rule.
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

    /// Whether a rule matches this line; for a rule that allows reads it must also be assessed as a
    /// read.
    fn rule_matches(&self, rule: &RuleInfo<'_>, line: &str) -> bool {
        let command = match rule.kind {
            RuleKind::Tool => match Command::tool_call_from_line(line) {
                Ok(command) => command,
                Err(_) => return false,
            },
            RuleKind::Command | RuleKind::Raw | RuleKind::Read => Command::Shell {
                line: line.to_owned(),
            },
        };
        let action = Action::new(command);
        let explanation = self.explain(&action, &Workspace::default());
        let matched = explanation.matched_rules.iter().any(|id| id == rule.id);
        let read = explanation.assessment.category == Category::Read;
        matched && (rule.category != Category::Read || read)
    }

    /// Refuses a user's file at the first rule without examples or example that fails.
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
