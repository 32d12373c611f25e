//! Loads rule files: those embedded in the binary, and one that a user adds.

use pvp_protocol::suggestion::suggest_in;
use pvp_protocol::{Category, Digest};
use sha2::{Digest as _, Sha256};
use toml::Spanned;

use crate::read_rules::ReadRule;
use crate::rule_file::{
    CommandRuleData, RawRuleData, ReadRuleData, RuleChangeData, RuleFile, ToolRuleData,
};
use crate::rule_table::{CommandRule, RawRule, RuleOrigin, RuleTable, compile};
use crate::tool_rules::ToolRule;
use crate::verdict::default_risk;

/// Why a rule file was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct PolicyError {
    pub file: String,
    pub line: usize,
    pub reason: String,
}

/// A rule file's name and text, for errors that name a line.
#[derive(Clone, Copy)]
pub(crate) struct RuleSource<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
}

impl RuleSource<'_> {
    pub(crate) fn error(&self, at: usize, reason: impl Into<String>) -> PolicyError {
        let before = self.text.get(..at).unwrap_or_default();
        PolicyError {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            reason: reason.into(),
        }
    }

    fn error_at<T>(&self, id: &Spanned<T>, reason: impl Into<String>) -> PolicyError {
        self.error(id.span().start, reason)
    }
}

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../rules/", $name)))),*]
    };
}

/// The rule files in the binary, one for each area.
pub(crate) const BUILT_IN: &[(&str, &str)] = built_in![
    "files.toml",
    "text.toml",
    "processes.toml",
    "system.toml",
    "packages.toml",
    "git.toml",
    "containers.toml",
    "cloud.toml",
    "databases.toml",
    "network.toml",
    "users.toml",
    "build.toml",
    "raw.toml",
    "wrappers.toml",
    "tools.toml",
];

/// Adds the rules of a file to the table.
pub(crate) fn add_file(
    table: &mut RuleTable,
    source: RuleSource<'_>,
    origin: RuleOrigin,
) -> Result<(), PolicyError> {
    let file: RuleFile = toml::from_str(source.text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        source.error(at, suggest_in(error.message()))
    })?;
    for data in file.rule {
        add_command_rule(table, source, data, origin)?;
    }
    for data in file.raw {
        add_raw_rule(table, source, data, origin)?;
    }
    for data in file.read {
        add_read_rule(table, source, data, origin)?;
    }
    for data in file.tool {
        add_tool_rule(table, source, data, origin)?;
    }
    for change in file.change {
        apply_change(table, source, change)?;
    }
    for flags in file.global_flags {
        table.global_flags.insert(flags.command.clone(), flags);
    }
    for wrapper in file.wrapper {
        for name in wrapper.command.split(',').map(str::trim) {
            table.wrappers.insert(name.to_owned(), wrapper.clone());
        }
    }
    if origin == RuleOrigin::BuiltIn {
        let names = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        table.inert_commands.extend(names(&file.arguments.inert));
        table
            .stdin_interpreters
            .extend(names(&file.arguments.takes_code));
    }
    let limits = file
        .limits
        .into_iter()
        .map(|(category, limit)| (category, limit.into()));
    table.limits.extend(limits);
    table.hash = chained_hash(&table.hash, source.text);
    table.rebuild_index();
    Ok(())
}

fn chained_hash(before: &str, text: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(before.as_bytes());
    hasher.update([0]);
    hasher.update(text.as_bytes());
    Digest::new(hasher.finalize().into()).to_string()
}

fn rule_exists(table: &RuleTable, id: &str) -> bool {
    table
        .command_rules
        .iter()
        .any(|rule| rule.data.id.get_ref() == id)
        || table
            .raw_rules
            .iter()
            .any(|raw| raw.data.id.get_ref() == id)
        || table.read_rules.iter().any(|(read, _)| read.id == id)
        || table
            .tool_rules
            .iter()
            .any(|rule| rule.data.id.get_ref() == id)
}

fn add_command_rule(
    table: &mut RuleTable,
    source: RuleSource<'_>,
    data: CommandRuleData,
    origin: RuleOrigin,
) -> Result<(), PolicyError> {
    let id = data.id.get_ref();
    if rule_exists(table, id) {
        return Err(source.error_at(&data.id, format!("there is already a rule `{id}`")));
    }
    if data.category == Category::Read {
        let reason = "a rule raises; use `[[read]]` with `allow_read = true` to allow reads";
        return Err(source.error_at(&data.id, reason));
    }
    if origin == RuleOrigin::User
        && let Err(error) = compile(data.args.as_deref().into_iter())
    {
        return Err(source.error_at(&data.id, format!("`args` of `{id}`: {error}")));
    }
    if let Some(quorum) = &data.quorum {
        quorum
            .validate()
            .map_err(|reason| source.error_at(&data.id, reason))?;
        table.quorums.insert(id.clone(), quorum.clone());
    }
    table.command_rules.push(CommandRule { data, origin });
    Ok(())
}

fn add_raw_rule(
    table: &mut RuleTable,
    source: RuleSource<'_>,
    data: RawRuleData,
    origin: RuleOrigin,
) -> Result<(), PolicyError> {
    let id = data.id.get_ref();
    if rule_exists(table, id) {
        return Err(source.error_at(&data.id, format!("there is already a rule `{id}`")));
    }
    if data.category < Category::Destructive {
        return Err(source.error_at(&data.id, "a raw pattern must be destructive or blocked"));
    }
    if origin == RuleOrigin::User
        && let Err(error) = compile(std::iter::once(data.pattern.as_str()))
    {
        return Err(source.error_at(&data.id, format!("`pattern` of `{id}`: {error}")));
    }
    table.raw_rules.push(RawRule { data, origin });
    Ok(())
}

fn add_read_rule(
    table: &mut RuleTable,
    source: RuleSource<'_>,
    data: ReadRuleData,
    origin: RuleOrigin,
) -> Result<(), PolicyError> {
    let at = data.id.as_ref().map_or(0, |id| id.span().start);
    if origin == RuleOrigin::User {
        check_user_read_rule(table, &data).map_err(|reason| source.error(at, reason))?;
    }
    let mut read = ReadRule::new(data).map_err(|reason| source.error(at, reason))?;
    if rule_exists(table, &read.id) {
        if origin == RuleOrigin::User || read.data.id.is_some() {
            return Err(source.error(at, format!("there is already a rule `{}`", read.id)));
        }
        let others = table
            .read_rules
            .iter()
            .filter(|(other, _)| other.words == read.words)
            .count();
        read.id = format!("{}-{}", read.id, others + 1);
    }
    table.read_rules.push((read, origin));
    Ok(())
}

fn add_tool_rule(
    table: &mut RuleTable,
    source: RuleSource<'_>,
    data: ToolRuleData,
    origin: RuleOrigin,
) -> Result<(), PolicyError> {
    let id = data.id.get_ref();
    if rule_exists(table, id) {
        return Err(source.error_at(&data.id, format!("there is already a rule `{id}`")));
    }
    if let Some(quorum) = &data.quorum {
        quorum
            .validate()
            .map_err(|reason| source.error_at(&data.id, reason))?;
        table.quorums.insert(id.clone(), quorum.clone());
    }
    table.tool_rules.push(ToolRule::new(data, source, origin)?);
    Ok(())
}

/// A user may declare a command a read, unless it runs other commands.
fn check_user_read_rule(table: &RuleTable, data: &ReadRuleData) -> Result<(), String> {
    let first = data.command.split_whitespace().next().unwrap_or_default();
    if data.id.is_none() {
        return Err("a read rule needs an `id`".to_owned());
    }
    if !data.allow_read {
        return Err("set `allow_read = true` to lower a write to a read".to_owned());
    }
    if table.wrappers.contains_key(first) || first.contains('/') {
        return Err(format!(
            "`{first}` can run anything, so it cannot be a read"
        ));
    }
    Ok(())
}

fn apply_change(
    table: &mut RuleTable,
    source: RuleSource<'_>,
    change: RuleChangeData,
) -> Result<(), PolicyError> {
    let id = change.rule.get_ref();
    if let Some(quorum) = change.quorum {
        quorum
            .validate()
            .map_err(|reason| source.error_at(&change.rule, reason))?;
        if !rule_exists(table, id) {
            return Err(source.error_at(&change.rule, format!("there is no rule `{id}`")));
        }
        table.quorums.insert(id.clone(), quorum);
    }
    let Some(category) = change.category else {
        return Ok(());
    };
    if let Some(rule) = table
        .command_rules
        .iter_mut()
        .find(|rule| rule.data.id.get_ref() == id)
    {
        if category < rule.data.category {
            let reason = format!("`{id}` is {}; rules are only raised", rule.data.category);
            return Err(source.error_at(&change.rule, reason));
        }
        rule.data.category = category;
        rule.data.risk = rule.data.risk.max(Some(default_risk(category)));
        return Ok(());
    }
    if let Some(rule) = table
        .tool_rules
        .iter_mut()
        .find(|rule| rule.data.id.get_ref() == id)
    {
        if category < rule.data.category {
            let reason = format!("`{id}` is {}; rules are only raised", rule.data.category);
            return Err(source.error_at(&change.rule, reason));
        }
        rule.data.category = category;
        rule.data.risk = rule.data.risk.max(Some(default_risk(category)));
        return Ok(());
    }
    let before = table.read_rules.len();
    table.read_rules.retain(|(read, _)| read.id != *id);
    if table.read_rules.len() == before {
        return Err(source.error_at(&change.rule, format!("there is no rule `{id}`")));
    }
    Ok(())
}
