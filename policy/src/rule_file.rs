//! The shape of a rule file, built in or a user's own.

use std::collections::BTreeMap;

use pvp_protocol::{Category, ExecutionLimits, QuorumRule, Risk};
use serde::Deserialize;
use toml::Spanned;

/// One file of rules.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RuleFile {
    pub(crate) rule: Vec<CommandRuleData>,
    pub(crate) raw: Vec<RawRuleData>,
    pub(crate) read: Vec<ReadRuleData>,
    pub(crate) tool: Vec<GlobalFlagsData>,
    pub(crate) wrapper: Vec<WrapperData>,
    pub(crate) arguments: CommandLists,
    pub(crate) limits: BTreeMap<Category, LimitData>,
    /// Changes to rules that are there already.
    pub(crate) change: Vec<RuleChangeData>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CommandLists {
    /// Commands whose arguments are never run.
    pub(crate) inert: String,
    /// Commands that run what they are given through a pipe.
    pub(crate) takes_code: String,
}

/// A pattern over one simple command.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandRuleData {
    pub(crate) id: Spanned<String>,
    /// Names of commands, between blanks; `*` is any.
    pub(crate) command: String,
    /// A regular expression over the canonical arguments; none matches all.
    pub(crate) args: Option<String>,
    pub(crate) category: Category,
    pub(crate) risk: Option<Risk>,
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) matches: Vec<String>,
    #[serde(default)]
    pub(crate) not: Vec<String>,
    pub(crate) quorum: Option<QuorumRule>,
}

/// A pattern over raw text; only raises.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRuleData {
    pub(crate) id: Spanned<String>,
    pub(crate) pattern: String,
    pub(crate) category: Category,
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) matches: Vec<String>,
    #[serde(default)]
    pub(crate) not: Vec<String>,
}

/// What may follow a command that only reads.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ReadRuleData {
    pub(crate) id: Option<Spanned<String>>,
    /// The command and its subcommand, between blanks.
    pub(crate) command: String,
    pub(crate) reason: String,
    /// Needed in a user's file: says that this lowers a write to a read.
    pub(crate) allow_read: bool,
    /// Letters that may be clustered.
    pub(crate) short: String,
    /// Letters that take a value.
    pub(crate) short_value: String,
    /// Letters whose value, if any, is attached.
    pub(crate) short_optional: String,
    /// Names, each perhaps with `=value`.
    pub(crate) long: String,
    /// Names that take a value, attached or as the next word.
    pub(crate) long_value: String,
    /// Names that exist and are refused; abbreviations are only taken where this is given.
    pub(crate) refused_long: Option<String>,
    /// Words that are taken as they stand, such as `-version`.
    pub(crate) exact: String,
    /// `-5` is taken.
    pub(crate) number: bool,
    /// Flags whose value is a path.
    pub(crate) path_flags: String,
    /// At least one of these must be there.
    pub(crate) requires: String,
    pub(crate) operands: OperandKind,
    pub(crate) max_operands: Option<usize>,
    pub(crate) min_operands: usize,
    /// What every operand must look like.
    pub(crate) operand: Option<String>,
    /// What no argument may contain.
    pub(crate) refuse: Option<String>,
    /// No flag of this command, known or not, does more than read.
    pub(crate) harmless_flags: bool,
    /// Nothing in the arguments is a flag or a file; even values only the shell knows may stand there.
    pub(crate) text: bool,
    /// Holds although a rule calls the command a write in general.
    pub(crate) beats_write: bool,
    /// Code that looks at the arguments as well.
    pub(crate) check: Option<String>,
    /// Talks to a daemon or cluster.
    pub(crate) net: bool,
    pub(crate) matches: Vec<String>,
    pub(crate) not: Vec<String>,
}

/// What operands are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OperandKind {
    #[default]
    None,
    /// Text that is not looked up as a file.
    Any,
    Paths,
    /// Names of another kind, but files where they begin like a path.
    Names,
    /// The first is a pattern, the others are paths.
    Pattern,
}

/// Flags that may stand between a command and its subcommand.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GlobalFlagsData {
    pub(crate) command: String,
    pub(crate) flags: String,
    pub(crate) value_flags: String,
    pub(crate) path_flags: String,
}

/// A command that runs another one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WrapperData {
    pub(crate) command: String,
    /// Letters without a value.
    pub(crate) short: String,
    /// Letters with one.
    pub(crate) short_value: String,
    pub(crate) long: String,
    pub(crate) long_value: String,
    /// Operands before the command.
    pub(crate) skip: usize,
    /// Letters whose value is a shell script.
    pub(crate) script: String,
    pub(crate) long_script: String,
    /// Words are joined and given to a shell.
    pub(crate) join: bool,
    /// `NAME=value` may stand before the command.
    pub(crate) assignments: bool,
    /// Runs with more rights.
    pub(crate) raises: bool,
    /// Without a script it reads one from its input or from a file.
    pub(crate) shell: bool,
}

/// More severity or another quorum for a rule that exists.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleChangeData {
    pub(crate) rule: Spanned<String>,
    pub(crate) category: Option<Category>,
    pub(crate) quorum: Option<QuorumRule>,
}

/// What a run of a category may use.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitData {
    timeout_seconds: u64,
    output_bytes: u64,
}

impl From<LimitData> for ExecutionLimits {
    fn from(data: LimitData) -> Self {
        Self {
            timeout_ms: data.timeout_seconds.saturating_mul(1000),
            output_bytes: data.output_bytes,
        }
    }
}
