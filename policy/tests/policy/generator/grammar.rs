//! The options of every program with a read rule, as the rule files list them.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the rule files are read as they are"
)]

use std::path::Path;

use serde::Deserialize;

/// A program, its subcommand, and the arguments that its read rule allows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReadGrammar {
    /// The program and its subcommand.
    pub(super) command: String,
    /// Flag letters without a value.
    pub(super) short: String,
    /// Flag letters with a value.
    pub(super) short_value: String,
    /// Flag letters with an attached value, or none.
    pub(super) short_optional: String,
    /// Long flags without a required value.
    pub(super) long: String,
    /// Long flags with a value.
    pub(super) long_value: String,
    /// Long flags that exist but are refused.
    pub(super) refused_long: String,
    /// Words that are allowed exactly as written.
    pub(super) exact: String,
    /// Flags of which one must be given.
    pub(super) requires: String,
    /// Whether `-5` is a flag.
    pub(super) number: bool,
    /// What the operands are.
    pub(super) operands: String,
    /// Whether no flag does more than read.
    pub(super) harmless_flags: bool,
    /// The check in code, if there is one.
    pub(super) check: String,
    /// Lines that the rule must match.
    pub(super) matches: Vec<String>,
    /// Flags between the program and its subcommand.
    #[serde(skip)]
    pub(super) global_flags: Vec<String>,
}

impl ReadGrammar {
    pub(super) fn program(&self) -> &str {
        self.command.split_whitespace().next().unwrap_or_default()
    }

    /// The id of the rule, as an assessment names it.
    pub(super) fn id(&self) -> String {
        let words: Vec<&str> = self.command.split_whitespace().collect();
        format!("read.{}", words.join("-"))
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ReadRuleFile {
    read: Vec<ReadGrammar>,
    tool: Vec<GlobalFlags>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct GlobalFlags {
    command: String,
    flags: String,
    value_flags: String,
}

/// The grammar of every read rule, in the order of the files' names.
pub(super) fn read_grammars() -> Vec<ReadGrammar> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
    let entries = std::fs::read_dir(directory).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut grammars = Vec::new();
    let mut tools = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(path).unwrap();
        let file: ReadRuleFile = toml::from_str(&text).unwrap();
        grammars.extend(file.read);
        tools.extend(file.tool);
    }
    for grammar in &mut grammars {
        let tool = tools.iter().find(|tool| tool.command == grammar.program());
        grammar.global_flags = tool.map_or_else(Vec::new, global_flags);
    }
    grammars
}

fn global_flags(tool: &GlobalFlags) -> Vec<String> {
    let plain = tool.flags.split_whitespace().map(str::to_owned);
    let valued = tool.value_flags.split_whitespace();
    let valued = valued.flat_map(|flag| [format!("{flag} src"), format!("{flag}=src")]);
    plain.chain(valued).collect()
}
