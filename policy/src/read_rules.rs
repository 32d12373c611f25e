//! Read rules: a command is a read only if every argument is known to only read.

use pvp_protocol::SandboxProfile;
use regex::Regex;

use crate::checks;
use crate::public_variables::{check_text, with_public_variables};
use crate::rule_file::{OperandKind, OptionStyle, ReadRuleData};
use crate::word::{ShellWord, WordPart};

/// A command that only reads if its arguments are of the right kind.
#[derive(Debug)]
pub(crate) struct ReadRule {
    /// The rule's stable id.
    pub(crate) id: String,
    /// The command and its subcommand.
    pub(crate) words: Vec<String>,
    /// The rule as written in its file.
    pub(crate) data: ReadRuleData,
    /// What every operand must match, compiled.
    operand: Option<Regex>,
    /// What no argument may match, compiled.
    refuse: Option<Regex>,
    /// The check in code, if the rule names one.
    check: Option<checks::ArgumentCheck>,
    /// Long flags without a required value.
    long: Vec<String>,
    /// Long flags that take a value.
    long_value: Vec<String>,
    /// Long flags that exist but are refused; `None` forbids abbreviations.
    refused_long: Option<Vec<String>>,
}

/// Arguments that were parsed and found harmless.
#[derive(Debug, Default)]
pub(crate) struct CheckedArguments {
    pub(crate) flags: Vec<(String, Option<ShellWord>)>,
    pub(crate) operands: Vec<ShellWord>,
    /// The operands after `--`; they are among the operands too.
    pub(crate) after_separator: Vec<ShellWord>,
    /// What would be read.
    pub(crate) targets: ReadTargets,
}

/// What a command would read.
#[derive(Debug, Default)]
pub(crate) struct ReadTargets {
    /// Every file that would be opened.
    pub(crate) paths: Vec<ShellWord>,
    /// Words that may name a file in a way of the command's own, such as git's `HEAD:file`.
    pub(crate) names: Vec<String>,
    /// Files whose names are only known when the command runs.
    pub(crate) computed: Vec<ShellWord>,
}

impl ReadTargets {
    pub(crate) fn from_paths(paths: Vec<ShellWord>) -> Self {
        Self {
            paths,
            ..Self::default()
        }
    }
}

impl CheckedArguments {
    pub(crate) fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|(name, _)| name == flag)
    }

    /// The values that were given with any of these flags.
    pub(crate) fn values<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = &'a ShellWord> {
        self.flags
            .iter()
            .filter(|(name, _)| names.contains(&name.as_str()))
            .filter_map(|(_, value)| value.as_ref())
    }
}

fn split_list(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl ReadRule {
    pub(crate) fn new(data: ReadRuleData) -> Result<Self, String> {
        let compile = |pattern: &Option<String>| {
            pattern
                .as_ref()
                .map(|pattern| Regex::new(pattern).map_err(|error| error.to_string()))
                .transpose()
        };
        let check = match data.check.as_deref() {
            Some(name) => Some(checks::by_name(name).ok_or(format!("no check `{name}`"))?),
            None => None,
        };
        let words = split_list(&data.command);
        if words.is_empty() {
            return Err("`command` names no command".to_owned());
        }
        let id = match &data.id {
            Some(id) => id.get_ref().clone(),
            None => format!("read.{}", words.join("-")),
        };
        Ok(Self {
            id,
            words,
            operand: compile(&data.operand)?,
            refuse: compile(&data.refuse)?,
            check,
            long: split_list(&data.long),
            long_value: split_list(&data.long_value),
            refused_long: data.refused_long.as_deref().map(split_list),
            data,
        })
    }

    pub(crate) fn profile(&self) -> SandboxProfile {
        if self.data.builtin {
            SandboxProfile::None
        } else if self.data.net {
            SandboxProfile::ReadNet
        } else {
            SandboxProfile::Read
        }
    }

    /// What would be read, or why this is not a read.
    pub(crate) fn check(&self, arguments: &[ShellWord]) -> Result<ReadTargets, String> {
        if self.data.text {
            for argument in arguments {
                check_text(argument)?;
            }
            return Ok(ReadTargets::default());
        }
        let public: Vec<ShellWord>;
        let arguments = if self.data.public_variables {
            public = arguments.iter().map(with_public_variables).collect();
            &public
        } else {
            arguments
        };
        for argument in arguments {
            self.check_argument(argument)?;
        }
        if let Some(checks::ArgumentCheck::Raw(check)) = self.check {
            return check(arguments).map(ReadTargets::from_paths);
        }
        let mut checked = self.parse_arguments(arguments)?;
        self.check_operands(&mut checked)?;
        if let Some(checks::ArgumentCheck::Parsed(check)) = self.check {
            check(&mut checked)?;
        }
        Ok(checked.targets)
    }

    fn check_argument(&self, word: &ShellWord) -> Result<(), String> {
        if !word.is_static() && !word.is_one_computed_word() {
            return Err(unknown_value());
        }
        let text = word.text();
        match &self.refuse {
            Some(refuse) if refuse.is_match(&text) => {
                Err(format!("`{text}` can do more than read"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn parse_arguments(&self, arguments: &[ShellWord]) -> Result<CheckedArguments, String> {
        let mut checked = CheckedArguments::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let text = word.text();
            if text == "--" {
                checked.after_separator = words.cloned().collect();
                checked.operands.extend(checked.after_separator.clone());
                break;
            }
            if word.may_begin_with_dash() && !self.data.harmless_flags {
                return Err(format!(
                    "`{text}` may stand for a name that is taken as a flag"
                ));
            }
            if word.leading_tilde || !text.starts_with('-') || text == "-" {
                checked.operands.push(word.clone());
                if self.data.style == OptionStyle::Getopt {
                    checked.operands.extend(words.cloned());
                    break;
                }
            } else if word.is_computed() {
                return Err(unknown_value());
            } else if glob_in_flag(word) {
                return Err(format!("`{text}` may stand for other flags"));
            } else if self.is_exact_flag(&text) {
                checked.flags.push((text, None));
            } else if let Some(long) = text.strip_prefix("--") {
                checked.flags.push(self.parse_long_flag(long, &mut words)?);
            } else {
                let letters = text.strip_prefix('-').unwrap_or(&text);
                self.parse_short_flags(letters, &mut words, &mut checked)?;
            }
        }
        Ok(checked)
    }

    fn is_exact_flag(&self, text: &str) -> bool {
        let digits = text.strip_prefix('-').unwrap_or_default();
        let number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let mut exact = self.data.exact.split_whitespace();
        (self.data.number && number) || exact.any(|exact| exact == text)
    }

    fn parse_long_flag<'a>(
        &self,
        flag: &str,
        words: &mut impl Iterator<Item = &'a ShellWord>,
    ) -> Result<(String, Option<ShellWord>), String> {
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(ShellWord::literal(value))),
            None => (flag, None),
        };
        let full = self
            .resolve_long_flag(name)
            .ok_or_else(|| flag_not_allowed(&format!("--{name}")))?;
        if self.data.long_pair.split_whitespace().any(|it| it == full) {
            let name = flag_value(words, &format!("--{full}"))?;
            let value = flag_value(words, &format!("--{full}"))?;
            name.as_literal().ok_or_else(unknown_value)?;
            return Ok((full, Some(value)));
        }
        let takes_value = self.long_value.contains(&full);
        match value {
            Some(value) => Ok((full, Some(value))),
            None if takes_value => {
                let value = flag_value(words, &format!("--{full}"))?;
                Ok((full, Some(value)))
            }
            None => Ok((full, None)),
        }
    }

    /// The allowed flag that this name or abbreviation unambiguously means.
    fn resolve_long_flag(&self, name: &str) -> Option<String> {
        let allowed = || self.long.iter().chain(&self.long_value);
        if let Some(full) = allowed().find(|full| *full == name) {
            return Some(full.clone());
        }
        let refused = self.refused_long.as_ref()?;
        let mut meant = allowed()
            .chain(refused)
            .filter(|full| full.starts_with(name));
        let full = meant.next()?;
        let only = meant.next().is_none() && !refused.contains(full) && !name.is_empty();
        only.then(|| full.clone())
    }

    fn parse_short_flags<'a>(
        &self,
        letters: &str,
        words: &mut impl Iterator<Item = &'a ShellWord>,
        checked: &mut CheckedArguments,
    ) -> Result<(), String> {
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            let name = letter.to_string();
            if self.data.short.contains(letter) {
                checked.flags.push((name, None));
            } else if self.data.short_optional.contains(letter) {
                let value = ShellWord::literal(rest.as_str());
                checked.flags.push((name, Some(value)));
                return Ok(());
            } else if self.data.short_value.contains(letter) {
                if self.data.style == OptionStyle::Own && !rest.as_str().is_empty() {
                    return Err(format!("`-{letters}` takes its values from the next words"));
                }
                let value = if rest.as_str().is_empty() {
                    flag_value(words, &format!("-{letter}"))?
                } else {
                    ShellWord::literal(rest.as_str())
                };
                checked.flags.push((name, Some(value)));
                return Ok(());
            } else {
                return Err(flag_not_allowed(&format!("-{letter}")));
            }
        }
        Ok(())
    }

    fn check_operands(&self, checked: &mut CheckedArguments) -> Result<(), String> {
        let count = checked.operands.len();
        if count < self.data.min_operands || self.data.max_operands.is_some_and(|max| count > max) {
            return Err(format!("{count} operands are not known to only read"));
        }
        for operand in &checked.operands {
            self.check_operand(operand)?;
        }
        let mut required = self.data.requires.split_whitespace().peekable();
        let mut all = self.data.requires_all.split_whitespace();
        let some_missing =
            required.peek().is_some() && !required.any(|flag| checked.has_flag(flag));
        if some_missing || !all.all(|flag| checked.has_flag(flag)) {
            return Err("without a flag that says so, it does more than read".to_owned());
        }
        if self.data.operands == OperandKind::None && count > 0 {
            let operand = checked.operands[0].text();
            return Err(format!("`{operand}` is not expected here"));
        }
        self.collect_targets(checked)
    }

    fn check_operand(&self, operand: &ShellWord) -> Result<(), String> {
        let text = operand.text();
        let unfit = |shape: &Regex| !shape.is_match(&text) || operand.is_computed();
        if self.operand.as_ref().is_some_and(unfit) {
            return Err(format!("`{text}` can do more than read"));
        }
        // Git shows files by names that the sandbox does not see, such as `HEAD:file`.
        if self.data.operands == OperandKind::Names && operand.is_computed() {
            return Err(unknown_value());
        }
        // A pattern may match any number of names, so that a second one may be written to.
        let counted = self.data.max_operands.is_some() || self.operand.is_some();
        if operand.has_glob() && counted {
            return Err(format!("`{text}` may stand for any number of names"));
        }
        if self.data.operands == OperandKind::Paths && text.contains("://") {
            return Err(format!("`{text}` is an address, not a file"));
        }
        Ok(())
    }

    /// Collects every file that would be opened, and every word that may name one.
    fn collect_targets(&self, checked: &mut CheckedArguments) -> Result<(), String> {
        let operands = &checked.operands;
        let mut paths: Vec<ShellWord> = match self.data.operands {
            OperandKind::None | OperandKind::Any => Vec::new(),
            OperandKind::Names => {
                let paths = operands.iter().filter(|operand| is_path_like(operand));
                paths.cloned().collect()
            }
            OperandKind::Paths => operands.clone(),
            OperandKind::Pattern => {
                let first = operands.first();
                let several = first.is_some_and(ShellWord::has_glob);
                let given = PATTERN_FLAGS.iter().any(|flag| checked.has_flag(flag));
                let skip = usize::from(!given && !several);
                operands.iter().skip(skip).cloned().collect()
            }
        };
        let flags: Vec<&str> = self.data.path_flags.split_whitespace().collect();
        paths.extend(checked.values(&flags).cloned());
        if self.data.operands != OperandKind::Any {
            let values = self.values_that_may_be_files(checked);
            let names = values.iter().flat_map(|word| names_in(&word.text()));
            checked.targets.names.extend(names);
            // Where a flag's value is optional, the word behind the flag is a file.
            if self.data.operands != OperandKind::Names {
                paths.extend(values.into_iter().filter(is_path_like));
            }
        }
        if self.data.operands == OperandKind::Names {
            let names = checked.operands.iter();
            let names = names.flat_map(|word| names_in(&word.text()));
            checked.targets.names.extend(names);
        }
        let (computed, known) = paths.into_iter().partition(ShellWord::is_computed);
        let (computed, known): (Vec<_>, Vec<_>) = (computed, known);
        checked.targets.computed.extend(computed);
        checked.targets.paths.extend(known);
        Ok(())
    }

    /// The values of flags, except for those that are certainly text.
    fn values_that_may_be_files(&self, checked: &CheckedArguments) -> Vec<ShellWord> {
        let text = |name: &str| self.data.text_flags.split_whitespace().any(|it| it == name);
        let values = checked.flags.iter().filter(|(name, _)| !text(name));
        values.filter_map(|(_, value)| value.clone()).collect()
    }
}

/// Flags that give the pattern, so that every operand is a file.
const PATTERN_FLAGS: &[&str] = &[
    "e",
    "regexp",
    "expression",
    "f",
    "file",
    "from-file",
    "files",
];

/// Everything in a word that may be the name of a file: git writes `HEAD:file`, `:0:file`,
/// `:(glob)file`, `:!file` and `10,20:file`.
fn names_in(text: &str) -> Vec<String> {
    let without_magic = |part: &str| {
        let part = match part.strip_prefix('(') {
            Some(magic) => magic.split_once(')').map_or("", |(_, name)| name),
            None => part,
        };
        part.trim_start_matches(['!', '^']).to_owned()
    };
    let whole = std::iter::once(text.to_owned());
    whole.chain(text.split(':').map(without_magic)).collect()
}

fn is_path_like(word: &ShellWord) -> bool {
    let text = word.text();
    let absolute = text.starts_with('/') && text.chars().any(|c| c != '/');
    word.leading_tilde || absolute || text.split('/').any(|name| name == "..")
}

/// The value of a flag, given as the next word. One that looks like a flag is refused, because it
/// may be one.
fn flag_value<'a>(
    words: &mut impl Iterator<Item = &'a ShellWord>,
    flag: &str,
) -> Result<ShellWord, String> {
    let value = words.next().ok_or(format!("`{flag}` has no value"))?;
    let text = value.text();
    let dashed = text.strip_prefix('-').filter(|rest| !rest.is_empty());
    let number = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    if dashed.is_some_and(|rest| !number(rest)) {
        return Err(format!("the value of `{flag}` may be a flag"));
    }
    // Several names, or none that is known, would be more than the value.
    if value.has_glob() || value.is_computed() {
        return Err(format!("the value of `{flag}` is not certain"));
    }
    Ok(value.clone())
}

/// Whether a glob could expand to another flag. After a `=` it cannot.
fn glob_in_flag(word: &ShellWord) -> bool {
    word.has_glob()
        && !matches!(word.parts.first(), Some(WordPart::Text(text)) if text.contains('='))
}

fn flag_not_allowed(flag: &str) -> String {
    format!("`{flag}` is not known to only read")
}

fn unknown_value() -> String {
    "uses a value that only the shell knows".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::{ScanUntil, scan_word};

    fn sort_rule() -> ReadRule {
        ReadRule::new(ReadRuleData {
            command: "sort".to_owned(),
            short: "rn".to_owned(),
            short_value: "k".to_owned(),
            long: "reverse numeric-sort".to_owned(),
            long_value: "key".to_owned(),
            refused_long: Some("output random-sort".to_owned()),
            operands: OperandKind::Paths,
            ..ReadRuleData::default()
        })
        .unwrap()
    }

    fn passes(line: &str) -> bool {
        let words: Vec<ShellWord> = line
            .split(' ')
            .map(|text| scan_word(text, 0, ScanUntil::End).word)
            .collect();
        sort_rule().check(&words).is_ok()
    }

    #[test]
    fn known_flags_pass_in_all_their_forms() {
        for line in [
            "-r",
            "-rn",
            "-k2",
            "-rnk2",
            "-k 2 a",
            "--reverse",
            "--rev",
            "--key=2",
            "--key 2",
            "--k 2",
            "a -r",
            "-- -o",
            "a/*",
            "-",
            "--key=*",
        ] {
            assert!(passes(line), "{line}");
        }
    }

    #[test]
    fn unknown_flags_do_not_pass() {
        for line in [
            "-o x",
            "-ro x",
            "--output=x",
            "--out x",
            "--o=x",
            "--r",
            "--unknown",
            "*",
            "-*",
            "-k -o",
            "-k",
            "$x",
            "--",
            "[ab]",
        ] {
            assert_eq!(passes(line), line == "--", "{line}");
        }
    }
}
