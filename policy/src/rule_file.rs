//! The format of a rule file, built-in or the user's own.

use std::collections::BTreeMap;

use pvp_protocol::{Category, ExecutionLimits, QuorumRule, Risk};
use serde::Deserialize;
use toml::Spanned;

/// One file of rules.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RuleFile {
    /// Patterns for simple commands.
    pub(crate) rule: Vec<CommandRuleData>,
    /// Patterns for raw text.
    pub(crate) raw: Vec<RawRuleData>,
    /// Commands that only read.
    pub(crate) read: Vec<ReadRuleData>,
    /// Tools other than the shell.
    pub(crate) tool: Vec<ToolRuleData>,
    /// Flags between a command and its subcommand.
    pub(crate) global_flags: Vec<GlobalFlagsData>,
    /// Commands that run other commands.
    pub(crate) wrapper: Vec<WrapperData>,
    /// Commands whose arguments or input are special; only built-in files use it.
    pub(crate) arguments: CommandLists,
    /// The limits of runs, by category.
    pub(crate) limits: BTreeMap<Category, LimitData>,
    /// Changes to existing rules.
    pub(crate) change: Vec<RuleChangeData>,
}

/// Lists of commands whose arguments or input are special.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CommandLists {
    /// Commands that never run their arguments.
    pub(crate) inert: String,
    /// Commands that run what they receive on standard input.
    pub(crate) takes_code: String,
}

/// A pattern that is matched against one simple command.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandRuleData {
    /// The rule's stable id.
    pub(crate) id: Spanned<String>,
    /// The command names, separated by blanks; `*` is any command.
    pub(crate) command: String,
    /// A regular expression for the normalised arguments; `None` matches all.
    pub(crate) args: Option<String>,
    /// The category of a match; never read.
    pub(crate) category: Category,
    /// The risk of a match; the default of the category if `None`.
    pub(crate) risk: Option<Risk>,
    /// Why, in a sentence for those who vote.
    pub(crate) reason: String,
    /// Commands that the rule must match.
    #[serde(default)]
    pub(crate) matches: Vec<String>,
    /// Commands that the rule must not match.
    #[serde(default)]
    pub(crate) not: Vec<String>,
    /// The quorum of gates that the rule opens; the session's own if `None`.
    pub(crate) quorum: Option<QuorumRule>,
}

/// A pattern that is matched against raw text; it only makes a verdict more severe.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRuleData {
    /// The rule's stable id.
    pub(crate) id: Spanned<String>,
    /// A regular expression for the text.
    pub(crate) pattern: String,
    /// The category of a match: destructive or blocked.
    pub(crate) category: Category,
    /// Why, in a sentence for those who vote.
    pub(crate) reason: String,
    /// Commands that the rule must match.
    #[serde(default)]
    pub(crate) matches: Vec<String>,
    /// Commands that the rule must not match.
    #[serde(default)]
    pub(crate) not: Vec<String>,
}

/// A pattern for calls of tools other than the shell.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolRuleData {
    /// The rule's stable id.
    pub(crate) id: Spanned<String>,
    /// The tools, separated by blanks; `*` at the end of a name is any ending.
    pub(crate) name: String,
    /// Patterns for the paths that the arguments name, from the workspace; empty for any call.
    #[serde(default)]
    pub(crate) path: Vec<String>,
    /// Patterns for the hosts of the addresses in the arguments; empty for any call.
    #[serde(default)]
    pub(crate) hosts: Vec<String>,
    /// The category of a match.
    pub(crate) category: Category,
    /// The risk of a match; the default of the category if `None`.
    pub(crate) risk: Option<Risk>,
    /// Why, in a sentence for those who vote.
    pub(crate) reason: String,
    /// Required in a user's file for category read: confirms that this lowers a write to a read.
    #[serde(default)]
    pub(crate) allow_read: bool,
    /// What the card says besides the reason, whichever rule gives the category.
    pub(crate) note: Option<String>,
    /// Calls that the rule must match: the name of the tool, a blank, and the arguments as JSON.
    #[serde(default)]
    pub(crate) matches: Vec<String>,
    /// Calls that the rule must not match.
    #[serde(default)]
    pub(crate) not: Vec<String>,
    /// The quorum of gates that the rule opens; the session's own if `None`.
    pub(crate) quorum: Option<QuorumRule>,
}

/// A command that only reads, and the arguments it may have.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ReadRuleData {
    /// The rule's stable id; made from the command if `None`, which a user's file may not leave
    /// out.
    pub(crate) id: Option<Spanned<String>>,
    /// The command and its subcommand, separated by blanks.
    pub(crate) command: String,
    /// Why it is a read, in a sentence.
    pub(crate) reason: String,
    /// Required in a user's file: confirms that this lowers a write to a read.
    pub(crate) allow_read: bool,
    /// Flag letters that may be combined.
    pub(crate) short: String,
    /// Flag letters that take a value.
    pub(crate) short_value: String,
    /// Flag letters that take an optional value, which must be attached.
    pub(crate) short_optional: String,
    /// Long flags, with or without `=value`.
    pub(crate) long: String,
    /// Long flags that take a value, attached or as the next word.
    pub(crate) long_value: String,
    /// Those of `long` that take a name and a value, as the next two words.
    pub(crate) long_pair: String,
    /// Long flags that exist but are refused. Abbreviations are allowed only if this list is given.
    pub(crate) refused_long: Option<String>,
    /// Words that are allowed exactly as written, such as `-version`.
    pub(crate) exact: String,
    /// Whether flags such as `-5` are allowed.
    pub(crate) number: bool,
    /// Flags whose value is a path.
    pub(crate) path_flags: String,
    /// Flags whose value is text, which never names a file.
    pub(crate) text_flags: String,
    /// How the program parses its flags.
    pub(crate) style: OptionStyle,
    /// Flags of which at least one must be given; empty for none.
    pub(crate) requires: String,
    /// Flags that must all be given; empty for none.
    pub(crate) requires_all: String,
    /// What the operands are.
    pub(crate) operands: OperandKind,
    /// The most operands; no limit if `None`.
    pub(crate) max_operands: Option<usize>,
    /// The fewest operands.
    pub(crate) min_operands: usize,
    /// A regular expression that every operand must match.
    pub(crate) operand: Option<String>,
    /// A regular expression that no argument may match.
    pub(crate) refuse: Option<String>,
    /// No flag of this command, known or not, does more than read.
    pub(crate) harmless_flags: bool,
    /// Quoted variables that hold no secret are allowed as operands.
    pub(crate) public_variables: bool,
    /// No argument is a flag or a file, so variables are allowed too.
    pub(crate) text: bool,
    /// Applies even if a command rule says write.
    pub(crate) beats_write: bool,
    /// The name of a check in code that also inspects the arguments.
    pub(crate) check: Option<String>,
    /// The command talks to a daemon or a cluster.
    pub(crate) net: bool,
    /// The shell does it by itself, without starting a program.
    pub(crate) builtin: bool,
    /// Commands that the rule must match.
    pub(crate) matches: Vec<String>,
    /// Commands that the rule must not match.
    pub(crate) not: Vec<String>,
}

/// How a program parses its flags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OptionStyle {
    /// As GNU programs do: flags may follow operands, and a value may be attached to its flag.
    #[default]
    GetoptLong,
    /// As POSIX says: the first operand ends the flags.
    Getopt,
    /// In a way of its own: the values of a cluster are the words that follow, in order, as in
    /// `tree -IP a b`.
    Own,
}

/// What the operands of a command are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OperandKind {
    #[default]
    None,
    /// Text that is not opened as a file.
    Any,
    Paths,
    /// Names of another kind, unless they look like paths. Those of secret files are recognised
    /// wherever they stand, as in `HEAD:.env`.
    Names,
    /// The first is a pattern, the others are paths.
    Pattern,
}

/// Flags that may come between a command and its subcommand.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GlobalFlagsData {
    pub(crate) command: String,
    pub(crate) flags: String,
    pub(crate) value_flags: String,
    pub(crate) path_flags: String,
}

/// A command that runs another command.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WrapperData {
    /// The wrapper's names, separated by commas, each with its subcommand if it has one.
    pub(crate) command: String,
    /// Flag letters without a value.
    pub(crate) short: String,
    /// Flag letters with a value.
    pub(crate) short_value: String,
    /// Long flags without a value.
    pub(crate) long: String,
    /// Long flags with a value.
    pub(crate) long_value: String,
    /// How many operands come before the command.
    pub(crate) skip: usize,
    /// Flag letters whose value is a shell script.
    pub(crate) script: String,
    /// Long flags whose value is a shell script.
    pub(crate) long_script: String,
    /// The words are joined and passed to a shell.
    pub(crate) join: bool,
    /// `NAME=value` may come before the command.
    pub(crate) assignments: bool,
    /// The command runs with more privileges.
    pub(crate) raises: bool,
    /// Without a script, it runs one from its input or from a file.
    pub(crate) shell: bool,
}

/// A more severe category or another quorum for an existing rule.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleChangeData {
    pub(crate) rule: Spanned<String>,
    pub(crate) category: Option<Category>,
    pub(crate) quorum: Option<QuorumRule>,
}

/// The limits of runs of one category.
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
