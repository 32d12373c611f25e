//! The second key of a read: every argument is one that is known to only read.

use pvp_protocol::Profile;
use regex::Regex;

use crate::checks;
use crate::data::{Operands, ReadData};
use crate::word::{Piece, Word};

/// A command that only reads when its arguments are of the right kind.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) id: String,
    /// The command and its subcommand.
    pub(crate) words: Vec<String>,
    pub(crate) data: ReadData,
    operand: Option<Regex>,
    refuse: Option<Regex>,
    check: Option<checks::Check>,
    long: Vec<String>,
    long_value: Vec<String>,
    refused_long: Option<Vec<String>>,
}

/// Arguments that were taken apart and found harmless.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) flags: Vec<(String, Option<Word>)>,
    pub(crate) operands: Vec<Word>,
    /// Everything that would be opened.
    pub(crate) paths: Vec<Word>,
}

impl Checked {
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|(name, _)| name == flag)
    }

    /// The values that were given with any of these flags.
    pub(crate) fn values<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = &'a Word> {
        self.flags
            .iter()
            .filter(|(name, _)| names.contains(&name.as_str()))
            .filter_map(|(_, value)| value.as_ref())
    }
}

fn list(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Read {
    pub(crate) fn new(data: ReadData) -> Result<Self, String> {
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
        let words = list(&data.command);
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
            long: list(&data.long),
            long_value: list(&data.long_value),
            refused_long: data.refused_long.as_deref().map(list),
            data,
        })
    }

    pub(crate) fn profile(&self) -> Profile {
        if self.data.net {
            Profile::ReadNet
        } else {
            Profile::Read
        }
    }

    /// The paths that would be read, or what stands against it.
    pub(crate) fn check(&self, arguments: &[Word]) -> Result<Vec<Word>, String> {
        if self.data.text {
            let plain = arguments.iter().all(Word::is_plain_expansion);
            return plain.then(Vec::new).ok_or_else(unknown_value);
        }
        for argument in arguments {
            self.check_word(argument)?;
        }
        if let Some(checks::Check::Whole(check)) = self.check {
            return check(arguments);
        }
        let mut checked = self.take_apart(arguments)?;
        self.check_operands(&mut checked)?;
        if let Some(checks::Check::After(check)) = self.check {
            check(&mut checked)?;
        }
        Ok(checked.paths)
    }

    fn check_word(&self, word: &Word) -> Result<(), String> {
        if !word.is_known() {
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

    fn take_apart(&self, arguments: &[Word]) -> Result<Checked, String> {
        let mut checked = Checked::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let text = word.text();
            if text == "--" {
                checked.operands.extend(words.cloned());
                break;
            }
            if word.starts_with_glob() && !self.data.harmless_flags {
                return Err(format!(
                    "`{text}` may stand for a name that is taken as a flag"
                ));
            }
            if word.tilde || !text.starts_with('-') || text == "-" {
                checked.operands.push(word.clone());
            } else if glob_in_flag(word) {
                return Err(format!("`{text}` may stand for other flags"));
            } else if self.is_exact(&text) {
                checked.flags.push((text, None));
            } else if let Some(long) = text.strip_prefix("--") {
                checked.flags.push(self.long_flag(long, &mut words)?);
            } else {
                self.cluster(&text[1..], &mut words, &mut checked)?;
            }
        }
        Ok(checked)
    }

    fn is_exact(&self, text: &str) -> bool {
        let number =
            self.data.number && text.len() > 1 && text[1..].bytes().all(|b| b.is_ascii_digit());
        number
            || self
                .data
                .exact
                .split_whitespace()
                .any(|exact| exact == text)
    }

    fn long_flag<'a>(
        &self,
        flag: &str,
        words: &mut impl Iterator<Item = &'a Word>,
    ) -> Result<(String, Option<Word>), String> {
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(Word::literal(value))),
            None => (flag, None),
        };
        let full = self
            .full_name(name)
            .ok_or_else(|| not_allowed(&format!("--{name}")))?;
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

    /// The allowed flag that this name, or an abbreviation of it, always means.
    fn full_name(&self, name: &str) -> Option<String> {
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

    fn cluster<'a>(
        &self,
        letters: &str,
        words: &mut impl Iterator<Item = &'a Word>,
        checked: &mut Checked,
    ) -> Result<(), String> {
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            let name = letter.to_string();
            if self.data.short.contains(letter) {
                checked.flags.push((name, None));
            } else if self.data.short_optional.contains(letter) {
                let value = Word::literal(rest.as_str());
                checked.flags.push((name, Some(value)));
                return Ok(());
            } else if self.data.short_value.contains(letter) {
                let value = if rest.as_str().is_empty() {
                    flag_value(words, &format!("-{letter}"))?
                } else {
                    Word::literal(rest.as_str())
                };
                checked.flags.push((name, Some(value)));
                return Ok(());
            } else {
                return Err(not_allowed(&format!("-{letter}")));
            }
        }
        Ok(())
    }

    fn check_operands(&self, checked: &mut Checked) -> Result<(), String> {
        let operands = &checked.operands;
        let count = operands.len();
        if count < self.data.min_operands || self.data.max_operands.is_some_and(|max| count > max) {
            return Err(format!("{count} operands are not what only reads"));
        }
        let unfit = |operand: &&Word| {
            self.operand
                .as_ref()
                .is_some_and(|shape| !shape.is_match(&operand.text()))
        };
        if let Some(operand) = operands.iter().find(unfit) {
            return Err(format!("`{}` can do more than read", operand.text()));
        }
        let mut required = self.data.requires.split_whitespace().peekable();
        if required.peek().is_some() && !required.any(|flag| checked.has(flag)) {
            return Err("without a flag that says so, it does more than read".to_owned());
        }
        match self.data.operands {
            Operands::None if count > 0 => {
                return Err(format!("`{}` is not expected here", operands[0].text()));
            }
            Operands::None | Operands::Any => {}
            Operands::Names => {
                let paths = operands.iter().filter(|operand| is_path_like(operand));
                checked.paths.extend(paths.cloned());
            }
            Operands::Paths => checked.paths.extend(operands.iter().cloned()),
            Operands::Pattern => {
                let given = [
                    "e",
                    "regexp",
                    "expression",
                    "f",
                    "file",
                    "from-file",
                    "files",
                ];
                let skip = usize::from(!given.iter().any(|flag| checked.has(flag)));
                checked.paths.extend(operands.iter().skip(skip).cloned());
            }
        }
        let flags: Vec<&str> = self.data.path_flags.split_whitespace().collect();
        let values: Vec<Word> = checked.values(&flags).cloned().collect();
        checked.paths.extend(values);
        Ok(())
    }
}

fn is_path_like(word: &Word) -> bool {
    let text = word.text();
    word.tilde || text.starts_with('/') || text.split('/').any(|name| name == "..")
}

/// A value that stands as its own word. One that looks like a flag may be one.
fn flag_value<'a>(words: &mut impl Iterator<Item = &'a Word>, flag: &str) -> Result<Word, String> {
    let value = words.next().ok_or(format!("`{flag}` has no value"))?;
    let text = value.text();
    let digits = text.len() > 1 && text[1..].starts_with(|c: char| c.is_ascii_digit());
    if value.starts_with_glob() || (text.starts_with('-') && text.len() > 1 && !digits) {
        return Err(format!("the value of `{flag}` may be a flag"));
    }
    Ok(value.clone())
}

/// Names that begin like this word up to a `=` are still the same flag.
fn glob_in_flag(word: &Word) -> bool {
    word.has_glob() && !matches!(word.pieces.first(), Some(Piece::Text(text)) if text.contains('='))
}

fn not_allowed(flag: &str) -> String {
    format!("`{flag}` is not known to only read")
}

fn unknown_value() -> String {
    "its words hold a value that only the shell knows".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::{Until, scan};

    fn read() -> Read {
        Read::new(ReadData {
            command: "sort".to_owned(),
            short: "rn".to_owned(),
            short_value: "k".to_owned(),
            long: "reverse numeric-sort".to_owned(),
            long_value: "key".to_owned(),
            refused_long: Some("output random-sort".to_owned()),
            operands: Operands::Paths,
            ..ReadData::default()
        })
        .unwrap()
    }

    fn passes(line: &str) -> bool {
        let words: Vec<Word> = line
            .split(' ')
            .map(|text| scan(text, 0, Until::End).word)
            .collect();
        read().check(&words).is_ok()
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
    fn anything_else_does_not() {
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
