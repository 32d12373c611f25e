//! Finds what wrappers, the commands that run other commands, would run.

use crate::lex::{is_assignment, is_variable_name};
use crate::rule_file::WrapperData;
use crate::rule_table::RuleTable;
use crate::source_text::SourceText;
use crate::word::ShellWord;

/// How many possible commands of one wrapper are assessed; raw rules see the rest.
const MAX_WRAPPED: usize = 8;

/// What a wrapper runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WrappedCommand {
    /// A command, as words.
    Words(Vec<ShellWord>),
    /// A script for a shell.
    Script(String),
    /// A script that is not in the line: a file or standard input.
    UnseenScript,
}

/// Everything that these words could run, if they are a wrapper's.
pub(crate) fn wrapped_commands(
    table: &RuleTable,
    name: &str,
    words: &[ShellWord],
) -> Option<Vec<WrappedCommand>> {
    if name == "find" {
        let found = find_exec_commands(words);
        return (!found.is_empty()).then_some(found);
    }
    if name == "command" && is_name_lookup(words) {
        return None;
    }
    let (wrapper, length) = find_wrapper(table, name, words)?;
    let mut found = Vec::new();
    WrapperParser {
        wrapper,
        words,
        at: length,
        skip: wrapper.skip,
    }
    .parse(&mut found);
    if found.is_empty() && wrapper.shell {
        found.push(WrappedCommand::UnseenScript);
    }
    Some(found)
}

/// Interpreters, and programs with a language of their own that can run others, besides those that
/// the rule files list.
const INTERPRETERS: &[&str] = &[
    "awk",
    "gawk",
    "mawk",
    "nawk",
    "sed",
    "gsed",
    "ed",
    "ex",
    "vi",
    "vim",
    "nvim",
    "emacs",
    "nano",
    "less",
    "more",
    "man",
    "python",
    "pypy",
    "ipython",
    "node",
    "nodejs",
    "ts-node",
    "tsx",
    "bun",
    "deno",
    "perl",
    "ruby",
    "irb",
    "php",
    "lua",
    "luajit",
    "tclsh",
    "wish",
    "expect",
    "Rscript",
    "R",
    "julia",
    "ghci",
    "runghc",
    "groovy",
    "scala",
    "kotlin",
    "jshell",
    "java",
    "dotnet-script",
    "pwsh",
    "powershell",
    "osascript",
    "guile",
    "racket",
    "sbcl",
    "clisp",
    "elixir",
    "iex",
    "erl",
    "escript",
    "ocaml",
    "swift",
    "gdb",
    "lldb",
    "m4",
    "source",
    ".",
    "eval",
    "exec",
    "xargs",
    "crontab",
];

/// Rules for commands that run what their arguments say.
const CODE_RULES: &[&str] = &["git.run", "git.inline-config", "git.config-code"];

/// Whether a command runs code that its words or its input give.
pub(crate) fn runs_given_code(table: &RuleTable, words: &[String]) -> bool {
    let Some(first) = words.first() else {
        return false;
    };
    let name = first.rsplit('/').next().unwrap_or(first);
    let name = name.strip_suffix(".exe").unwrap_or(name);
    let versionless = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let interprets = |name: &str| {
        INTERPRETERS.contains(&name)
            || table.stdin_interpreters.contains(name)
            || table.wrappers.contains_key(name)
    };
    let shell_words: Vec<ShellWord> = words.iter().map(|word| ShellWord::literal(word)).collect();
    let arguments = format!(" {} ", words[1..].join(" "));
    let mut rules = table.matching_rules(name, &arguments).into_iter();
    interprets(name)
        || interprets(versionless)
        || wrapped_commands(table, name, &shell_words).is_some()
        || rules.any(|rule| CODE_RULES.contains(&rule.data.id.get_ref().as_str()))
}

/// Whether this is `command -v`, which only prints what a name means.
fn is_name_lookup(words: &[ShellWord]) -> bool {
    let flag = words.get(1).and_then(ShellWord::as_literal);
    matches!(flag.as_deref(), Some("-v" | "-V"))
}

/// The wrapper by its name, or by its name and subcommand.
fn find_wrapper<'a>(
    table: &'a RuleTable,
    name: &str,
    words: &[ShellWord],
) -> Option<(&'a WrapperData, usize)> {
    let second = words.get(1).map(ShellWord::text).unwrap_or_default();
    let third = words.get(2).map(ShellWord::text).unwrap_or_default();
    let keys = [
        (format!("{name} {second} {third}"), 3),
        (format!("{name} {second}"), 2),
        (name.to_owned(), 1),
    ];
    keys.iter().find_map(|(key, length)| {
        let wrapper = table.wrappers.get(key)?;
        Some((wrapper, *length))
    })
}

/// Whether this is `A=1`, `a[0]=1`, or the `!` that may follow `time`.
fn is_command_prefix(text: &str) -> bool {
    let element = text
        .split_once('[')
        .is_some_and(|(name, rest)| is_variable_name(name) && rest.contains("]="));
    is_assignment(text) || element || text == "!"
}

struct WrapperParser<'a> {
    wrapper: &'a WrapperData,
    words: &'a [ShellWord],
    at: usize,
    skip: usize,
}

impl WrapperParser<'_> {
    fn parse(mut self, found: &mut Vec<WrappedCommand>) {
        while let Some(word) = self.words.get(self.at) {
            let text = word.text();
            self.at += 1;
            if text == "--" {
                self.at += self.skip;
                break;
            } else if text.len() > 1 && text.starts_with('-') {
                self.flag(&text, found);
            } else if self.wrapper.assignments && is_command_prefix(&text) {
                continue;
            } else if self.skip > 0 {
                self.skip -= 1;
            } else {
                self.at -= 1;
                break;
            }
        }
        found.extend(self.commands_from(self.at));
    }

    /// What would run if the command began at this word. Words that are joined lose their quotes,
    /// so both the joined script and the words themselves are returned.
    fn commands_from(&self, at: usize) -> Vec<WrappedCommand> {
        let rest = self.words.get(at..).unwrap_or_default();
        if rest.is_empty() {
            return Vec::new();
        }
        if self.wrapper.shell {
            return vec![WrappedCommand::UnseenScript];
        }
        let words = WrappedCommand::Words(rest.to_vec());
        if self.wrapper.join {
            let texts: Vec<String> = rest.iter().map(ShellWord::text).collect();
            let script = WrappedCommand::Script(texts.join(" "));
            let plain = |text: &String| {
                text.chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
            };
            return if texts.iter().all(plain) {
                vec![script]
            } else {
                vec![script, words]
            };
        }
        vec![words]
    }

    fn flag(&mut self, text: &str, found: &mut Vec<WrappedCommand>) {
        if let Some(long) = text.strip_prefix("--") {
            self.long_flag(long, found);
            return;
        }
        let letters = text.part(1..);
        for (at, letter) in letters.char_indices() {
            let attached = letters.part(at + letter.len_utf8()..);
            if self.wrapper.script.contains(letter) {
                self.script(attached, found);
                return;
            }
            if self.wrapper.short_value.contains(letter) {
                self.at += usize::from(attached.is_empty());
                return;
            }
            if !self.wrapper.short.contains(letter) {
                self.unknown_flag(found);
                return;
            }
        }
    }

    fn long_flag(&mut self, long: &str, found: &mut Vec<WrappedCommand>) {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        let has = |list: &str| list.split_whitespace().any(|flag| flag == name);
        if has(&self.wrapper.long_script) {
            self.script(value.unwrap_or_default(), found);
        } else if has(&self.wrapper.long_value) {
            self.at += usize::from(value.is_none());
        } else if !has(&self.wrapper.long) && value.is_none() {
            self.unknown_flag(found);
        }
    }

    /// A shell takes its script from the next operand, other wrappers from the attached value.
    fn script(&mut self, attached: &str, found: &mut Vec<WrappedCommand>) {
        if !attached.is_empty() {
            found.push(WrappedCommand::Script(attached.to_owned()));
        }
        let operand = self.words[self.at.min(self.words.len())..]
            .iter()
            .position(|word| !word.text().starts_with(['-', '+']) || word.text().contains(' '));
        if let Some(offset) = operand {
            found.push(WrappedCommand::Script(self.words[self.at + offset].text()));
            self.at = self.words.len();
        }
    }

    /// It is unknown whether this flag takes a value, so the command may begin at either word.
    fn unknown_flag(&self, found: &mut Vec<WrappedCommand>) {
        if found.len() >= MAX_WRAPPED {
            return;
        }
        found.extend(self.commands_from(self.at + 1 + self.skip));
        found.extend(self.commands_from(self.at + self.skip));
    }
}

/// What `-exec` and similar actions of `find` run.
fn find_exec_commands(words: &[ShellWord]) -> Vec<WrappedCommand> {
    let texts: Vec<String> = words.iter().map(ShellWord::text).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() && found.len() < MAX_WRAPPED {
        at += 1;
        if matches!(
            texts[at - 1].as_str(),
            "-exec" | "-execdir" | "-ok" | "-okdir"
        ) {
            let rest = &texts[at..];
            let end = rest.iter().position(|text| text == ";" || text == "+");
            let length = end.unwrap_or(rest.len());
            found.push(WrappedCommand::Words(words[at..at + length].to_vec()));
            at += length;
        }
    }
    found
}
