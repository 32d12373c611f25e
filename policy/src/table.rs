//! The rules as they are used: compiled, and found by the command they speak of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use pvp_protocol::{Category, ExecutionLimits, QuorumRule, Risk};
use regex::bytes::{RegexSet, RegexSetBuilder};

use crate::data::{RawData, RuleData, ToolData, WrapperData};
use crate::opinion::{Opinion, usual_risk};
use crate::reads::Read;

/// Memory one set of patterns may take when compiled.
const SIZE_LIMIT: usize = 16 * 1024 * 1024;

/// Memory that searching with a set may take; more of it only makes long lines faster.
const SEARCH_LIMIT: usize = 1024 * 1024;

/// A pattern over one simple command.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) data: RuleData,
    pub(crate) origin: Origin,
}

/// A pattern over raw text.
#[derive(Debug, Clone)]
pub(crate) struct Raw {
    pub(crate) data: RawData,
    pub(crate) origin: Origin,
}

/// Who wrote a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    BuiltIn,
    User,
}

/// Rules for some command names; the patterns are compiled when one of them is first met.
#[derive(Debug, Default)]
struct Group {
    /// Rules that hold for any arguments.
    always: Vec<usize>,
    /// Rules with a pattern.
    rules: Vec<usize>,
    patterns: OnceLock<Option<RegexSet>>,
}

/// All rules.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) rules: Vec<Rule>,
    pub(crate) raws: Vec<Raw>,
    pub(crate) reads: Vec<(Read, Origin)>,
    pub(crate) tools: BTreeMap<String, ToolData>,
    pub(crate) wrappers: BTreeMap<String, WrapperData>,
    pub(crate) inert: BTreeSet<String>,
    pub(crate) takes_code: BTreeSet<String>,
    pub(crate) limits: BTreeMap<Category, ExecutionLimits>,
    pub(crate) quorums: BTreeMap<String, QuorumRule>,
    pub(crate) hash: String,
    groups: Vec<Group>,
    names: BTreeMap<String, usize>,
    raw_patterns: OnceLock<Option<RegexSet>>,
    read_names: BTreeMap<String, Vec<usize>>,
}

/// Compiles patterns; plain bytes are enough for commands, and much smaller.
pub(crate) fn compile<'a>(
    patterns: impl Iterator<Item = &'a str>,
) -> Result<RegexSet, regex::Error> {
    RegexSetBuilder::new(patterns)
        .unicode(false)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(SEARCH_LIMIT)
        .build()
}

impl Table {
    /// Finds rules by name from here on.
    pub(crate) fn index(&mut self) {
        self.index_rules();
        self.read_names.clear();
        self.raw_patterns = OnceLock::new();
        for (index, (read, _)) in self.reads.iter().enumerate() {
            if let Some(first) = read.words.first() {
                self.read_names
                    .entry(first.clone())
                    .or_default()
                    .push(index);
            }
        }
        for indexes in self.read_names.values_mut() {
            indexes.sort_by_key(|&index| std::cmp::Reverse(self.reads[index].0.words.len()));
        }
    }

    /// Commands with the same rules share their compiled patterns.
    fn index_rules(&mut self) {
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, rule) in self.rules.iter().enumerate() {
            for name in rule.data.command.split_whitespace() {
                by_name.entry(name).or_default().push(index);
            }
        }
        let mut by_rules: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let mut groups = Vec::new();
        let mut names = BTreeMap::new();
        for (name, rules) in by_name {
            let group = *by_rules.entry(rules.clone()).or_insert_with(|| {
                groups.push(self.group(rules));
                groups.len() - 1
            });
            names.insert(name.to_owned(), group);
        }
        (self.groups, self.names) = (groups, names);
    }

    fn group(&self, rules: Vec<usize>) -> Group {
        // The canonical arguments begin with a blank, so these match anything.
        let anything = |index: &usize| {
            matches!(
                self.rules[*index].data.args.as_deref(),
                None | Some("" | " " | " ?")
            )
        };
        let (always, rules) = rules.into_iter().partition(anything);
        Group {
            always,
            rules,
            patterns: OnceLock::new(),
        }
    }

    /// Compiles all patterns, so that no verdict has to wait for it.
    pub(crate) fn compile_all(&self) {
        for group in &self.groups {
            self.matching_in(group, "");
        }
        self.found_in("");
    }

    /// Every rule that matches a command by name and canonical arguments.
    pub(crate) fn matching(&self, name: &str, arguments: &str) -> Vec<&Rule> {
        let versionless =
            name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        let mut names = vec![name, "*"];
        if versionless != name && !versionless.is_empty() {
            names.push(versionless);
        }
        names
            .iter()
            .filter_map(|name| self.groups.get(*self.names.get(*name)?))
            .flat_map(|group| self.matching_in(group, arguments))
            .collect()
    }

    fn matching_in(&self, group: &Group, arguments: &str) -> Vec<&Rule> {
        let patterns = group.patterns.get_or_init(|| {
            let patterns = group.rules.iter().map(|&index| {
                let args = &self.rules[index].data.args;
                args.as_deref().unwrap_or("")
            });
            compile(patterns).ok()
        });
        let matched: Vec<usize> = match patterns {
            Some(patterns) => patterns
                .matches(arguments.as_bytes())
                .into_iter()
                .map(|at| group.rules[at])
                .collect(),
            // Patterns are checked when they are loaded; if they still do not compile together,
            // every one of them counts as matched.
            None => group.rules.clone(),
        };
        let indexes = group.always.iter().chain(&matched);
        indexes.map(|&index| &self.rules[index]).collect()
    }

    /// Every raw pattern found in the text.
    pub(crate) fn found_in(&self, text: &str) -> Vec<&Raw> {
        let patterns = self
            .raw_patterns
            .get_or_init(|| compile(self.raws.iter().map(|raw| raw.data.pattern.as_str())).ok());
        match patterns {
            Some(patterns) => patterns
                .matches(text.as_bytes())
                .into_iter()
                .map(|at| &self.raws[at])
                .collect(),
            None => self.raws.iter().collect(),
        }
    }

    /// The read rules for a command name, those with the longest subcommand first.
    pub(crate) fn reads_of(&self, name: &str) -> impl Iterator<Item = &(Read, Origin)> {
        let indexes = self.read_names.get(name).map_or(&[][..], Vec::as_slice);
        indexes.iter().map(|&index| &self.reads[index])
    }

    /// Whether any rule speaks of this command.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.names.contains_key(name) || self.read_names.contains_key(name)
    }
}

impl Rule {
    pub(crate) fn opinion(&self) -> Opinion {
        let category = self.data.category;
        Opinion::new(
            category,
            self.risk(),
            self.data.id.get_ref(),
            &self.data.reason,
        )
    }

    pub(crate) fn risk(&self) -> Risk {
        let usual = usual_risk(self.data.category);
        self.data.risk.unwrap_or(usual)
    }
}

impl Raw {
    pub(crate) fn opinion(&self) -> Opinion {
        let category = self.data.category;
        let id = self.data.id.get_ref();
        Opinion::new(category, usual_risk(category), id, &self.data.reason)
    }
}
