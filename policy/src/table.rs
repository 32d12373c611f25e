//! The rules as they are used: compiled, and found by the command they speak of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use pvp_protocol::{Category, ExecutionLimits, QuorumRule, Risk};
use regex::bytes::{RegexSet, RegexSetBuilder};

use crate::data::{RawData, RuleData, ToolData, WrapperData};
use crate::opinion::{Opinion, usual_risk};
use crate::reads::Read;

/// Memory one set of patterns may take when compiled.
const SIZE_LIMIT: usize = 32 * 1024 * 1024;

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

/// Rules for one command name; the patterns are compiled when it is first met.
#[derive(Debug, Default)]
struct Group {
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
    groups: BTreeMap<String, Group>,
    raw_patterns: OnceLock<Option<RegexSet>>,
    read_names: BTreeMap<String, Vec<usize>>,
}

/// Compiles patterns; plain bytes are enough for commands, and much smaller.
pub(crate) fn compile<'a>(patterns: impl Iterator<Item = &'a str>) -> Result<RegexSet, regex::Error> {
    RegexSetBuilder::new(patterns)
        .unicode(false)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(SIZE_LIMIT)
        .build()
}

impl Table {
    /// Finds rules by name from here on.
    pub(crate) fn index(&mut self) {
        self.groups.clear();
        self.read_names.clear();
        self.raw_patterns = OnceLock::new();
        for (index, rule) in self.rules.iter().enumerate() {
            for name in rule.data.command.split_whitespace() {
                self.groups.entry(name.to_owned()).or_default().rules.push(index);
            }
        }
        for (index, (read, _)) in self.reads.iter().enumerate() {
            if let Some(first) = read.words.first() {
                self.read_names.entry(first.clone()).or_default().push(index);
            }
        }
        for indexes in self.read_names.values_mut() {
            indexes.sort_by_key(|&index| std::cmp::Reverse(self.reads[index].0.words.len()));
        }
    }

    /// Compiles all patterns, so that no verdict has to wait for it.
    pub(crate) fn compile_all(&self) {
        for group in self.groups.values() {
            self.matching_in(group, "");
        }
        self.found_in("");
    }

    /// Every rule that matches a command by name and canonical arguments.
    pub(crate) fn matching(&self, name: &str, arguments: &str) -> Vec<&Rule> {
        let versionless = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        let mut names = vec![name, "*"];
        if versionless != name && !versionless.is_empty() {
            names.push(versionless);
        }
        names
            .iter()
            .filter_map(|name| self.groups.get(*name))
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
        match patterns {
            Some(patterns) => patterns
                .matches(arguments.as_bytes())
                .into_iter()
                .map(|at| &self.rules[group.rules[at]])
                .collect(),
            // Patterns are checked when they are loaded; if they still do not compile together,
            // every one of them counts as matched.
            None => group.rules.iter().map(|&index| &self.rules[index]).collect(),
        }
    }

    /// Every raw pattern found in the text.
    pub(crate) fn found_in(&self, text: &str) -> Vec<&Raw> {
        let patterns = self.raw_patterns.get_or_init(|| {
            compile(self.raws.iter().map(|raw| raw.data.pattern.as_str())).ok()
        });
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
        self.groups.contains_key(name) || self.read_names.contains_key(name)
    }
}

impl Rule {
    pub(crate) fn opinion(&self) -> Opinion {
        let category = self.data.category;
        Opinion::new(category, self.risk(), self.data.id.get_ref(), &self.data.reason)
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
