//! The table of compiled rules, indexed by command name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use pvp_protocol::{Category, ExecutionLimits, QuorumRule, Risk};
use regex::bytes::{RegexSet, RegexSetBuilder};

use crate::read_rules::ReadRule;
use crate::rule_file::{CommandRuleData, GlobalFlagsData, RawRuleData, WrapperData};
use crate::tool_rules::ToolRule;
use crate::verdict::{CommandVerdict, default_risk};

/// The most memory that one compiled set of patterns may use.
const MAX_COMPILED_BYTES: usize = 16 * 1024 * 1024;

/// The most memory for searching with a set; more would only make long lines faster.
const MAX_SEARCH_BYTES: usize = 1024 * 1024;

/// A pattern that is matched against one simple command.
#[derive(Debug, Clone)]
pub(crate) struct CommandRule {
    pub(crate) data: CommandRuleData,
    pub(crate) origin: RuleOrigin,
}

/// A pattern that is matched against raw text.
#[derive(Debug, Clone)]
pub(crate) struct RawRule {
    pub(crate) data: RawRuleData,
    pub(crate) origin: RuleOrigin,
}

/// Who wrote a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleOrigin {
    BuiltIn,
    User,
}

/// The rules of some command names. Their patterns are compiled when one of the commands first
/// occurs.
#[derive(Debug, Default)]
struct RuleGroup {
    /// Indexes of rules that match any arguments.
    unconditional: Vec<usize>,
    /// Indexes of rules with a pattern.
    conditional: Vec<usize>,
    patterns: OnceLock<Option<RegexSet>>,
}

/// All rules.
#[derive(Debug, Default)]
pub(crate) struct RuleTable {
    /// Patterns for simple commands.
    pub(crate) command_rules: Vec<CommandRule>,
    /// Patterns for raw text.
    pub(crate) raw_rules: Vec<RawRule>,
    /// Commands that only read, each with its origin.
    pub(crate) read_rules: Vec<(ReadRule, RuleOrigin)>,
    /// Tools other than the shell.
    pub(crate) tool_rules: Vec<ToolRule>,
    /// Flags between a command and its subcommand, by command.
    pub(crate) global_flags: BTreeMap<String, GlobalFlagsData>,
    /// Commands that run other commands, by name.
    pub(crate) wrappers: BTreeMap<String, WrapperData>,
    /// Commands that never run their arguments.
    pub(crate) inert_commands: BTreeSet<String>,
    /// Commands that run what they receive on standard input.
    pub(crate) stdin_interpreters: BTreeSet<String>,
    /// The limits of runs, where a file sets them.
    pub(crate) limits: BTreeMap<Category, ExecutionLimits>,
    /// The quorums of gates that a rule opens, by rule id.
    pub(crate) quorums: BTreeMap<String, QuorumRule>,
    /// The hash of all files loaded so far.
    pub(crate) hash: String,
    /// Command rules, grouped by the set of rules that a command has.
    groups: Vec<RuleGroup>,
    /// The index in `groups`, by command name.
    group_by_name: BTreeMap<String, usize>,
    /// The compiled patterns of `raw_rules`; `None` inside if they do not compile.
    raw_patterns: OnceLock<Option<RegexSet>>,
    /// Indexes in `read_rules`, by command name.
    read_rules_by_name: BTreeMap<String, Vec<usize>>,
}

/// Compiles patterns over bytes, which suffices for commands and takes much less memory.
pub(crate) fn compile<'a>(
    patterns: impl Iterator<Item = &'a str>,
) -> Result<RegexSet, regex::Error> {
    RegexSetBuilder::new(patterns)
        .unicode(false)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_SEARCH_BYTES)
        .build()
}

impl RuleTable {
    /// Rebuilds the indexes after rules were added.
    pub(crate) fn rebuild_index(&mut self) {
        self.index_rules();
        self.read_rules_by_name.clear();
        self.raw_patterns = OnceLock::new();
        for (index, (read, _)) in self.read_rules.iter().enumerate() {
            if let Some(first) = read.words.first() {
                self.read_rules_by_name
                    .entry(first.clone())
                    .or_default()
                    .push(index);
            }
        }
        for indexes in self.read_rules_by_name.values_mut() {
            indexes.sort_by_key(|&index| std::cmp::Reverse(self.read_rules[index].0.words.len()));
        }
    }

    /// Groups the rules so that commands with the same rules share their compiled patterns.
    fn index_rules(&mut self) {
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, rule) in self.command_rules.iter().enumerate() {
            for name in rule.data.command.split_whitespace() {
                by_name.entry(name).or_default().push(index);
            }
        }
        let mut by_rules: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let mut groups = Vec::new();
        let mut names = BTreeMap::new();
        for (name, rules) in by_name {
            let group = *by_rules.entry(rules.clone()).or_insert_with(|| {
                groups.push(self.build_group(rules));
                groups.len() - 1
            });
            names.insert(name.to_owned(), group);
        }
        (self.groups, self.group_by_name) = (groups, names);
    }

    fn build_group(&self, rules: Vec<usize>) -> RuleGroup {
        // The normalised arguments begin with a blank, so these match anything.
        let matches_any_arguments = |index: &usize| {
            matches!(
                self.command_rules[*index].data.args.as_deref(),
                None | Some("" | " " | " ?")
            )
        };
        let (always, rules) = rules.into_iter().partition(matches_any_arguments);
        RuleGroup {
            unconditional: always,
            conditional: rules,
            patterns: OnceLock::new(),
        }
    }

    /// Compiles all patterns, so that no assessment has to wait for it.
    pub(crate) fn compile_all(&self) {
        for group in &self.groups {
            self.matching_in_group(group, "");
        }
        self.matching_raw_rules("");
    }

    /// Every rule that matches a command by name and normalised arguments.
    pub(crate) fn matching_rules(&self, name: &str, arguments: &str) -> Vec<&CommandRule> {
        let versionless =
            name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        let mut names = vec![name, "*"];
        if versionless != name && !versionless.is_empty() {
            names.push(versionless);
        }
        names
            .iter()
            .filter_map(|name| self.groups.get(*self.group_by_name.get(*name)?))
            .flat_map(|group| self.matching_in_group(group, arguments))
            .collect()
    }

    fn matching_in_group(&self, group: &RuleGroup, arguments: &str) -> Vec<&CommandRule> {
        let patterns = group.patterns.get_or_init(|| {
            let patterns = group.conditional.iter().map(|&index| {
                let args = &self.command_rules[index].data.args;
                args.as_deref().unwrap_or("")
            });
            compile(patterns).ok()
        });
        let matched: Vec<usize> = match patterns {
            Some(patterns) => patterns
                .matches(arguments.as_bytes())
                .into_iter()
                .map(|at| group.conditional[at])
                .collect(),
            // Patterns are checked when they are loaded. If they still do not compile as a set,
            // all of them count as matched.
            None => group.conditional.clone(),
        };
        let indexes = group.unconditional.iter().chain(&matched);
        indexes.map(|&index| &self.command_rules[index]).collect()
    }

    /// Every raw rule that matches the text.
    pub(crate) fn matching_raw_rules(&self, text: &str) -> Vec<&RawRule> {
        let patterns = self.raw_patterns.get_or_init(|| {
            compile(self.raw_rules.iter().map(|raw| raw.data.pattern.as_str())).ok()
        });
        match patterns {
            Some(patterns) => patterns
                .matches(text.as_bytes())
                .into_iter()
                .map(|at| &self.raw_rules[at])
                .collect(),
            None => self.raw_rules.iter().collect(),
        }
    }

    /// The read rules of a command name, those with the longest subcommand first.
    pub(crate) fn read_rules_for(
        &self,
        name: &str,
    ) -> impl Iterator<Item = &(ReadRule, RuleOrigin)> {
        let indexes = self
            .read_rules_by_name
            .get(name)
            .map_or(&[][..], Vec::as_slice);
        indexes.iter().map(|&index| &self.read_rules[index])
    }

    /// Whether any rule names this command.
    pub(crate) fn has_rules_for(&self, name: &str) -> bool {
        self.group_by_name.contains_key(name) || self.read_rules_by_name.contains_key(name)
    }
}

impl CommandRule {
    pub(crate) fn verdict(&self) -> CommandVerdict {
        let category = self.data.category;
        CommandVerdict::new(
            category,
            self.risk(),
            self.data.id.get_ref(),
            &self.data.reason,
        )
        .by(self.origin)
    }

    pub(crate) fn risk(&self) -> Risk {
        let usual = default_risk(self.data.category);
        self.data.risk.unwrap_or(usual)
    }
}

impl RawRule {
    pub(crate) fn verdict(&self) -> CommandVerdict {
        let category = self.data.category;
        let id = self.data.id.get_ref();
        CommandVerdict::new(category, default_risk(category), id, &self.data.reason).by(self.origin)
    }
}
