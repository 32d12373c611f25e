//! Judges the command lines among the arguments of a call: whatever a tool is called, what it is
//! given to run counts as if it were proposed by itself.

use pvp_protocol::{Category, JsonObject, Risk};

use super::JudgedCall;
use crate::assess::{Actor, Assessor};
use crate::guarded_paths::path_of_text;
use crate::paths::ResolvedPath;
use crate::rule_table::RuleTable;
use crate::verdict::CommandVerdict;
use crate::word::ShellWord;

/// Tools that run command lines, as agent clients call them, without capitals and separators.
const RUNNERS: &[&str] = &[
    "bash",
    "sh",
    "zsh",
    "cmd",
    "shell",
    "localshell",
    "localshellcall",
    "shellcommand",
    "shellexec",
    "containerexec",
    "exec",
    "execcommand",
    "unifiedexec",
    "execbash",
    "execshell",
    "execute",
    "executebash",
    "executecommand",
    "executeshell",
    "executeshellcommand",
    "acpexecute",
    "runbash",
    "runbashcommand",
    "runcommand",
    "runshell",
    "runshellcommand",
    "runinterminal",
    "runterminalcmd",
    "runterminalcommand",
    "terminal",
    "powershell",
    "pwsh",
    "launchprocess",
    "startprocess",
    "ptyspawn",
];

/// Arguments that hold command lines, in the same form; and all that end in `command` or `cmd`.
const COMMANDS: &[&str] = &[
    "commands",
    "cmds",
    "script",
    "scripts",
    "commandline",
    "cmdline",
    "commandtext",
    "fullcommandtext",
    "shellscript",
];

/// Arguments that hold a program, of which others beside them hold the words.
const PROGRAMS: &[&str] = &["program", "executable", "binary"];

/// Arguments that hold the words behind a program.
const WORDS: &[&str] = &["args", "arguments", "argv", "parameters"];

/// Arguments that say where a command runs.
const DIRECTORIES: &[&str] = &[
    "workdir",
    "cwd",
    "dir",
    "directory",
    "dirpath",
    "workingdir",
    "workingdirectory",
];

/// Arguments of a tool that runs commands that are told to people, or only choose how it runs.
const NO_COMMANDS: &[&str] = &[
    "description",
    "justification",
    "explanation",
    "reason",
    "intent",
    "title",
    "timeout",
    "mode",
    "sandboxpermissions",
    "shell",
    "shellid",
    "sessionid",
    "id",
    "type",
];

/// Command lines of one call that are looked at.
const MAX_LINES: usize = 16;

/// How deep in the arguments they are looked for.
const MAX_DEPTH: usize = 8;

/// Something that a call may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandText<'a> {
    form: GivenCommand<'a>,
    /// The argument beside it that says where.
    directory: Option<&'a str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum GivenCommand<'a> {
    /// A line for a shell.
    Line(&'a str),
    /// A program and its arguments.
    Words(Vec<&'a str>),
}

impl JudgedCall<'_> {
    /// The verdict on a call, raised by what its arguments would run.
    pub(super) fn raised_by_command_lines(
        &self,
        table: &RuleTable,
        assessor: &mut Assessor<'_>,
        verdict: CommandVerdict,
    ) -> CommandVerdict {
        let runs_lines = is_runner(self.name);
        let found = command_texts(self.arguments, runs_lines);
        let too_many = (found.len() > MAX_LINES).then(|| {
            assessor.is_incomplete = true;
            let reason = "runs more command lines than are looked at";
            CommandVerdict::write(Risk::High, "tool.arguments", reason)
        });
        let mut worst = too_many
            .into_iter()
            .fold(verdict.clone(), CommandVerdict::max);
        for text in found.iter().take(MAX_LINES) {
            let mut inner = Assessor::new(table, self.place.workspace, Actor::Agent);
            text.assess(&self.directory_of(text), &mut inner);
            assessor
                .named_words
                .words
                .append(&mut inner.named_words.words);
            let decision = crate::decide(&inner, &inner.doubts);
            if !runs_lines && !says_something(&decision, &verdict) {
                continue;
            }
            assessor.notes.append(&mut inner.notes);
            assessor.matched_rules.append(&mut inner.matched_rules);
            assessor.is_incomplete |= inner.is_incomplete;
            if decision.category > Category::Read {
                worst = worst.max(decision);
            }
        }
        worst
    }

    fn directory_of(&self, text: &CommandText<'_>) -> ResolvedPath {
        let here = &self.place.directory;
        let moved = text.directory.filter(|directory| !directory.is_empty());
        moved.map_or_else(
            || here.clone(),
            |directory| path_of_text(directory, directory.starts_with('~'), here),
        )
    }
}

impl CommandText<'_> {
    fn assess(&self, directory: &ResolvedPath, assessor: &mut Assessor<'_>) {
        match &self.form {
            GivenCommand::Line(line) => assessor.assess_line(line, directory),
            GivenCommand::Words(words) => {
                let shown = words.join(" ");
                let words = words.iter().map(|word| ShellWord::literal(word)).collect();
                assessor.assess_argv(words, directory, &shown);
            }
        }
    }
}

/// Whether the verdict on a text that may be no command at all says more than that nothing is known
/// about its first word. Whoever vouches for a tool vouches for all but what is never harmless.
fn says_something(decision: &CommandVerdict, verdict: &CommandVerdict) -> bool {
    match decision.category {
        Category::Read => false,
        Category::Write => {
            verdict.category > Category::Read && !decision.rule.starts_with("default.")
        }
        Category::Destructive | Category::Blocked => true,
    }
}

/// Whether a tool of this name runs command lines.
pub(super) fn is_runner(name: &str) -> bool {
    RUNNERS.contains(&plain_name(name).as_str())
}

/// Everything among the arguments that may be run. Of a tool that runs commands, that is every text whose argument is not known to be something else.
fn command_texts(arguments: &JsonObject, runs_lines: bool) -> Vec<CommandText<'_>> {
    let mut found = Vec::new();
    collect(arguments, runs_lines, MAX_DEPTH, &mut found);
    found
}

fn collect<'a>(
    fields: &'a JsonObject,
    runs_lines: bool,
    depth: usize,
    found: &mut Vec<CommandText<'a>>,
) {
    let directories = fields.iter().filter(|(name, _)| names_directory(name));
    let directory = directories.filter_map(|(_, value)| value.as_str()).next();
    let words_beside = words_beside(fields);
    for (name, value) in fields {
        let name = plain_name(name);
        let other = NO_COMMANDS.contains(&name.as_str()) || names_directory(&name);
        let is_command = holds_commands(&name) || runs_lines && !other;
        let items = value.as_array().into_iter().flatten();
        let words: Vec<&str> = items.clone().filter_map(|item| item.as_str()).collect();
        let may_be_program = is_command || PROGRAMS.contains(&name.as_str());
        if let Some(program) = value.as_str().filter(|_| may_be_program)
            && !words_beside.is_empty()
        {
            let words = std::iter::once(program).chain(words_beside.iter().copied());
            let form = GivenCommand::Words(words.collect());
            found.push(CommandText { form, directory });
        }
        if is_command {
            let line = value.as_str().map(GivenCommand::Line);
            let forms = line.into_iter().chain(forms_of_list(words));
            found.extend(forms.map(|form| CommandText { form, directory }));
        }
        let objects = value.as_object().into_iter();
        for fields in objects.chain(items.filter_map(|item| item.as_object())) {
            if depth > 0 && found.len() <= MAX_LINES {
                collect(fields, runs_lines, depth - 1, found);
            }
        }
    }
}

/// The words behind a program that another argument names.
fn words_beside(fields: &JsonObject) -> Vec<&str> {
    let lists = fields
        .iter()
        .filter(|(name, _)| WORDS.contains(&plain_name(name).as_str()));
    let items = lists.flat_map(|(_, value)| value.as_array().into_iter().flatten());
    items.filter_map(|item| item.as_str()).collect()
}

/// What a list of texts may be: the words of one command, or lines.
fn forms_of_list(words: Vec<&str>) -> Vec<GivenCommand<'_>> {
    // Behind the name of a program, a line is an argument of it, which `bash -c` opens by itself.
    let is_line = |word: &&str| word.contains(char::is_whitespace);
    let mut forms: Vec<GivenCommand<'_>> = match words.first() {
        Some(first) if is_line(first) => words.iter().copied().map(GivenCommand::Line).collect(),
        Some(_) | None => Vec::new(),
    };
    if !words.is_empty() {
        forms.push(GivenCommand::Words(words));
    }
    forms
}

fn names_directory(name: &str) -> bool {
    DIRECTORIES.contains(&plain_name(name).as_str())
}

fn holds_commands(name: &str) -> bool {
    COMMANDS.contains(&name) || name.ends_with("command") || name.ends_with("cmd")
}

/// A name without capitals and separators: `fullCommand` and `full_command` are the same.
fn plain_name(name: &str) -> String {
    let letters = name.chars().filter(|c| !matches!(c, '_' | '-' | '.' | ' '));
    letters.flat_map(char::to_lowercase).collect()
}
