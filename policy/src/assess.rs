//! Assesses a whole line: every part of it, what each part runs, and where it writes.

mod guards;
mod own_program;
mod raw_rules;
mod read_check;
mod reader_wrappers;
mod verbs;
mod whole_trees;
mod written_paths;

pub(crate) use whole_trees::{held_reason, whole_home_read};

use crate::source_text::SourceText;
use std::collections::BTreeSet;
use std::ops::Range;

use pvp_protocol::{Category, Command, Risk, SandboxProfile};

use crate::environment::{is_harmless, variable_verdict};
use crate::explain::ExpectedWord;
use crate::line_breaks::{self, Interpretation};
use crate::named_words::NamedWords;
use crate::normalize;
use crate::paths::{PathRoot, ResolvedPath, Workspace};
use crate::public_variables::check_text;
use crate::rule_table::RuleTable;
use crate::syntax::{self, ParsedScript, Redirect, ShellFunction, SimpleCommand};
use crate::verdict::CommandVerdict;
use crate::word::ShellWord;
use crate::wrappers::{self, WrappedCommand};

/// How many levels of wrappers inside wrappers are opened.
const MAX_WRAPPER_DEPTH: usize = 8;

/// How many commands are assessed for one line, including wrapped ones.
const MAX_ASSESSED_COMMANDS: usize = 160;

/// How many bytes are parsed for one line, including scripts inside it.
const MAX_PARSED_BYTES: usize = 80 * 1024;

/// Whose command it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Actor {
    /// An agent proposed it.
    Agent,
    /// A person's own command, which they run as themselves.
    Person,
}

impl Actor {
    pub(crate) fn of(command: &Command) -> Self {
        match command {
            Command::LoginShell { .. } => Self::Person,
            Command::Shell { .. } | Command::Argv { .. } | Command::Tool { .. } => Self::Agent,
        }
    }
}

/// The verdict on one span of the line.
#[derive(Debug, Clone)]
pub(crate) struct SpanVerdict {
    pub(crate) span: Range<usize>,
    pub(crate) verdict: CommandVerdict,
}

/// Collects the verdicts on one action.
pub(crate) struct Assessor<'a> {
    /// The rules.
    table: &'a RuleTable,
    /// Where the command would run.
    workspace: &'a Workspace,
    /// Whose command it is.
    actor: Actor,
    /// The verdicts so far.
    pub(crate) span_verdicts: Vec<SpanVerdict>,
    /// Reasons why the action cannot be a read.
    pub(crate) doubts: Vec<String>,
    /// Remarks for those who vote.
    pub(crate) notes: BTreeSet<String>,
    /// What would be read outside of the workspace and the read roots.
    pub(crate) outside_paths: Vec<ResolvedPath>,
    /// Ids of all rules that matched anything.
    pub(crate) matched_rules: BTreeSet<String>,
    /// The commands that were found to only read, with the words that each would receive.
    pub(crate) read_commands: Vec<Vec<ExpectedWord>>,
    /// Every word of every command and redirection.
    pub(crate) named_words: NamedWords,
    /// How many commands have been assessed, to stop at a limit.
    commands_assessed: usize,
    /// How many bytes have been parsed, to stop at a limit.
    bytes_parsed: usize,
    /// How much work the assessment took; the same number on every machine.
    pub(crate) steps: u32,
    /// Whether something runs a script that is not in its arguments.
    runs_unseen_script: bool,
    /// Whether a limit was reached, so that more rules may match than did.
    pub(crate) is_incomplete: bool,
    /// Whether a file is read whose name is only known when the line runs.
    reads_computed_path: bool,
    /// Words that the line prints, and that may become such a name.
    printed_words: Vec<String>,
    /// All words of commands that only read, which may select such a name.
    read_words: Vec<String>,
    /// Whether the line looks for processes of PVP.
    finds_own_processes: bool,
    /// Whether the line kills processes by their number.
    kills_processes: bool,
}

impl<'a> Assessor<'a> {
    pub(crate) fn new(table: &'a RuleTable, workspace: &'a Workspace, actor: Actor) -> Self {
        Self {
            table,
            workspace,
            actor,
            span_verdicts: Vec::new(),
            doubts: Vec::new(),
            notes: BTreeSet::new(),
            outside_paths: Vec::new(),
            matched_rules: BTreeSet::new(),
            read_commands: Vec::new(),
            named_words: NamedWords::default(),
            commands_assessed: 0,
            bytes_parsed: 0,
            steps: 0,
            runs_unseen_script: false,
            is_incomplete: false,
            reads_computed_path: false,
            printed_words: Vec::new(),
            read_words: Vec::new(),
            finds_own_processes: false,
            kills_processes: false,
        }
    }

    /// Assesses a line that a shell would run in `directory`.
    pub(crate) fn assess_line(&mut self, source: &str, directory: &ResolvedPath) {
        let (span_verdicts, doubts) = self.assess_script(source, directory, 0);
        self.span_verdicts = span_verdicts;
        self.doubts = doubts;
        self.check_printed_names(directory);
    }

    /// Doubts a line that prints the name of a file that needs approval, and reads a file whose
    /// name it computes.
    fn check_printed_names(&mut self, directory: &ResolvedPath) {
        if !self.reads_computed_path {
            return;
        }
        for word in std::mem::take(&mut self.printed_words) {
            for name in possible_names(&word) {
                if let Err(verdict) = self.check_path(&directory.join(name)) {
                    self.doubts.push(verdict.reason);
                }
            }
        }
        for word in std::mem::take(&mut self.read_words) {
            for name in possible_names(&word) {
                if let Err(verdict) = self.check_name(name) {
                    self.doubts.push(verdict.reason);
                }
            }
        }
    }

    /// Assesses words that are run without a shell.
    pub(crate) fn assess_argv(
        &mut self,
        mut words: Vec<ShellWord>,
        directory: &ResolvedPath,
        shown: &str,
    ) {
        if words.len() > syntax::MAX_WORDS {
            words.truncate(syntax::MAX_WORDS);
            self.doubts.push("has too many words to check".to_owned());
        }
        let command = SimpleCommand {
            words,
            assignments: Vec::new(),
            span: 0..shown.len(),
            directories: vec![directory.clone()],
            has_here_document: false,
        };
        let mut verdict = self.assess_command(&command, 0);
        if verdict.category > Category::Read && !self.has_inert_arguments(&command) {
            verdict = self.raised_by_raw_rules(verdict, shown);
        }
        let span = command.span;
        self.span_verdicts.push(SpanVerdict { span, verdict });
    }

    fn assess_script(
        &mut self,
        source: &str,
        directory: &ResolvedPath,
        depth: usize,
    ) -> (Vec<SpanVerdict>, Vec<String>) {
        self.bytes_parsed += source.len();
        if depth > 0 && self.bytes_parsed > MAX_PARSED_BYTES {
            let reason = "has too many scripts inside scripts to check";
            let verdict = CommandVerdict::write(Risk::High, "default.too-much", reason);
            let span = 0..source.len();
            // The raw rules check this text as part of the whole line.
            self.runs_unseen_script = true;
            self.is_incomplete = true;
            return (vec![SpanVerdict { span, verdict }], vec![reason.to_owned()]);
        }
        let mut all = (Vec::new(), Vec::new());
        for interpretation in line_breaks::interpretations(source) {
            let (span_verdicts, doubts) =
                self.assess_interpretation(&interpretation, directory, depth);
            all.0.extend(span_verdicts);
            all.1.extend(doubts);
        }
        all
    }

    fn assess_interpretation(
        &mut self,
        interpretation: &Interpretation,
        directory: &ResolvedPath,
        depth: usize,
    ) -> (Vec<SpanVerdict>, Vec<String>) {
        let source = interpretation.text.as_str();
        let mut script = syntax::parse_script(source, directory);
        self.steps += script.steps;
        self.is_incomplete |= script.too_large;
        if interpretation.is_modified() {
            let why = "has backslashes around line breaks";
            script.doubts.push(why.to_owned());
        }
        let mut span_verdicts: Vec<SpanVerdict> = Vec::new();
        for command in &script.commands {
            let verdict = self.assess_command(command, depth);
            span_verdicts.push(SpanVerdict {
                span: command.span.clone(),
                verdict,
            });
        }
        for (word, directories) in &script.loose_assignments {
            self.named_words.add(word, directories);
        }
        for redirect in &script.redirects {
            self.named_words
                .add(&redirect.target, &redirect.directories);
            if let Some(verdict) = self.assess_redirect(redirect) {
                let span = redirect.span.clone();
                span_verdicts.push(SpanVerdict { span, verdict });
            }
        }
        for span in &script.here_documents {
            self.printed_words
                .push(source.part(span.clone()).to_owned());
        }
        span_verdicts.extend(self.assess_shell_input(source, &script, directory, depth));
        span_verdicts.extend(detect_fork_bomb(source, &script));
        self.apply_raw_rules(source, &script, &mut span_verdicts);
        span_verdicts.extend(self.guard_line(source, &script, &span_verdicts));
        for span_verdict in &mut span_verdicts {
            span_verdict.span = interpretation.original_span(&span_verdict.span);
        }
        (span_verdicts, script.doubts)
    }

    fn assess_command(&mut self, command: &SimpleCommand, depth: usize) -> CommandVerdict {
        self.commands_assessed += 1;
        self.steps += 1;
        let values = command.assignments.iter().map(|(_, value)| value);
        for word in command.words.iter().chain(values) {
            self.named_words.add(word, &command.directories);
        }
        if self.commands_assessed > MAX_ASSESSED_COMMANDS {
            self.is_incomplete = true;
            return CommandVerdict::write(
                Risk::Medium,
                "default.too-much",
                "has too many commands to check",
            );
        }
        let Some(first) = command.words.first() else {
            let reason = "sets variables of the shell";
            return CommandVerdict::write(Risk::Low, "default.assignment", reason);
        };
        let name = command_name(command).unwrap_or_default();
        if let Some(read) = self.assess_reader_wrapper(&name, command, depth) {
            self.add_read_command(command);
            return read;
        }
        let mut verdicts = self.match_rules(&name, &command.words[1..], &command.directories);
        verdicts.extend(self.assess_wrapped(&name, command, depth));
        verdicts.extend(self.assess_brace_expansion(command, depth));
        verdicts.extend(self.assess_assignments(command));
        verdicts.extend(self.assess_verbs(&name, command));
        verdicts.extend(self.guard_written_paths(&name, command));
        verdicts.extend(self.guard_taken_trees(&name, command));
        verdicts.extend(self.guard_own_program(&name, command));
        let severe = verdicts.into_iter().reduce(CommandVerdict::max);
        let lowered = severe
            .as_ref()
            .is_none_or(|it| it.category <= Category::Write);
        let read = if lowered {
            self.assess_read(first, command, severe.is_some())
        } else {
            Err(None)
        };
        let verdict = match (severe, read) {
            (_, Ok(read)) => {
                self.add_read_command(command);
                read
            }
            (Some(severe), Err(Some(path))) => severe.max(path),
            (Some(severe), Err(None)) => severe,
            (None, Err(Some(reason))) => reason,
            (None, Err(None)) => self.unknown_command(&name, command),
        };
        self.raised_by_guards(&name, command, verdict)
    }

    fn add_read_command(&mut self, command: &SimpleCommand) {
        let texts = command.words.iter().map(ShellWord::text);
        self.read_words.extend(texts);
        let words = command.words.iter().map(ExpectedWord::from).collect();
        self.read_commands.push(words);
    }

    /// The verdicts of the rules for a name that match these words.
    fn match_rules(
        &mut self,
        name: &str,
        words: &[ShellWord],
        directories: &[ResolvedPath],
    ) -> Vec<CommandVerdict> {
        let table = self.table;
        let forms = normalize::argument_forms(words, directories);
        let rules: Vec<_> = forms
            .iter()
            .flat_map(|arguments| table.matching_rules(name, arguments))
            .collect();
        let ids = rules.iter().map(|rule| rule.data.id.get_ref().clone());
        self.matched_rules.extend(ids);
        rules.iter().map(|rule| rule.verdict()).collect()
    }

    /// What the rules for redirections say about writing to this file.
    pub(crate) fn output_verdicts(
        &mut self,
        target: &ShellWord,
        directory: &ResolvedPath,
    ) -> Vec<CommandVerdict> {
        let (target, directory) = (
            std::slice::from_ref(target),
            std::slice::from_ref(directory),
        );
        self.match_rules(">", target, directory)
    }

    fn assess_wrapped(
        &mut self,
        name: &str,
        command: &SimpleCommand,
        depth: usize,
    ) -> Option<CommandVerdict> {
        let found = wrappers::wrapped_commands(self.table, name, &command.words)?;
        if depth >= MAX_WRAPPER_DEPTH {
            self.is_incomplete = true;
            let reason = "too many commands that run commands";
            return Some(CommandVerdict::write(
                Risk::High,
                "default.too-deep",
                reason,
            ));
        }
        let raises = self
            .table
            .wrappers
            .get(name)
            .is_some_and(|wrapper| wrapper.raises);
        let inner = found
            .iter()
            .filter_map(|inner| self.assess_wrapped_command(inner, command, depth + 1))
            .map(|verdict| verdict.at_least_write(name))
            .reduce(CommandVerdict::max)?;
        Some(if raises {
            inner.with_raised_risk()
        } else {
            inner
        })
    }

    fn assess_wrapped_command(
        &mut self,
        inner: &WrappedCommand,
        command: &SimpleCommand,
        depth: usize,
    ) -> Option<CommandVerdict> {
        match inner {
            WrappedCommand::Words(words) => {
                let inner = SimpleCommand {
                    words: words.clone(),
                    assignments: Vec::new(),
                    ..command.clone()
                };
                (!words.is_empty()).then(|| self.assess_command(&inner, depth))
            }
            WrappedCommand::Script(text) => {
                let directory = command
                    .directories
                    .first()
                    .cloned()
                    .unwrap_or(ResolvedPath::new(PathRoot::Unknown));
                let (span_verdicts, doubts) = self.assess_script(text, &directory, depth);
                let doubt = doubts
                    .first()
                    .map(|doubt| CommandVerdict::write(Risk::Medium, "default.write", doubt));
                let verdicts = span_verdicts
                    .into_iter()
                    .map(|span_verdict| span_verdict.verdict);
                verdicts.chain(doubt).reduce(CommandVerdict::max)
            }
            WrappedCommand::UnseenScript => {
                self.runs_unseen_script = true;
                let reason = "runs a script that is not in the command";
                Some(CommandVerdict::write(
                    Risk::Medium,
                    "default.unseen-script",
                    reason,
                ))
            }
        }
    }

    /// Assesses the expansion of braces, which may contain a whole command.
    fn assess_brace_expansion(
        &mut self,
        command: &SimpleCommand,
        depth: usize,
    ) -> Option<CommandVerdict> {
        let braced = |word: &ShellWord| word.has_braces && word.text().len() < 1024;
        if depth >= MAX_WRAPPER_DEPTH || !command.words.iter().any(braced) {
            return None;
        }
        let texts: Vec<String> = command.words.iter().map(ShellWord::text).collect();
        let words = texts
            .iter()
            .flat_map(|text| normalize::expand_braces(text))
            .take(256);
        let words: Vec<ShellWord> = words.map(|text| ShellWord::literal(&text)).collect();
        let expanded = SimpleCommand {
            words,
            ..command.clone()
        };
        let verdict = self.assess_command(&expanded, depth + 1);
        Some(verdict.at_least_write("{…}"))
    }

    fn assess_assignments(&mut self, command: &SimpleCommand) -> Option<CommandVerdict> {
        let unsure = |(name, value): &&(String, ShellWord)| {
            !value
                .as_literal()
                .is_some_and(|value| is_harmless(name, &value))
        };
        let (name, _) = command.assignments.iter().find(unsure)?;
        self.notes.insert(format!("sets `{name}` for the command"));
        Some(variable_verdict(name))
    }

    fn assess_redirect(&mut self, redirect: &Redirect) -> Option<CommandVerdict> {
        let target = redirect.target.as_literal();
        let target = target.as_deref();
        match redirect.operator.as_str() {
            "<<<" => {
                self.printed_words.push(redirect.target.text());
                check_text(&redirect.target).err().map(|reason| {
                    let reason = format!("its input {reason}");
                    CommandVerdict::write(Risk::Low, "default.arguments", &reason)
                })
            }
            "<" if redirect.target.is_pipe() => None,
            "<" if redirect.target.is_computed() => {
                let reason = "reads a file whose name is only known when it runs";
                Some(CommandVerdict::write(Risk::Low, "default.redirect", reason))
            }
            "<" => self
                .check_paths(
                    std::slice::from_ref(&redirect.target),
                    &redirect.directories,
                    false,
                )
                .err(),
            ">&" | "<&" | ">&-" | "<&-"
                if target.is_some_and(|to| to == "-" || to.bytes().all(|b| b.is_ascii_digit())) =>
            {
                None
            }
            _ if matches!(target, Some("/dev/null" | "/dev/stdout" | "/dev/stderr")) => None,
            _ => Some(self.assess_output_redirect(redirect)),
        }
    }

    fn assess_output_redirect(&mut self, redirect: &Redirect) -> CommandVerdict {
        let target = std::slice::from_ref(&redirect.target);
        let verdicts = self.match_rules(">", target, &redirect.directories);
        let reason = format!("writes to `{}`", redirect.target.text());
        let write = CommandVerdict::write(Risk::Low, "default.redirect", &reason);
        let guarded = self.guard_redirect(redirect);
        let verdicts = verdicts.into_iter().chain(guarded);
        verdicts.fold(write, CommandVerdict::max)
    }

    /// The verdict on an unknown program that is told to destroy something.
    fn assess_verbs(&self, name: &str, command: &SimpleCommand) -> Option<CommandVerdict> {
        let words = &command.words[1..];
        let verb = (!self.table.has_rules_for(name)).then(|| verbs::destructive_verb(words))??;
        let reason = format!("`{name}` is told to {verb} something");
        Some(CommandVerdict::new(
            Category::Destructive,
            Risk::High,
            "default.destructive-verb",
            &reason,
        ))
    }

    fn unknown_command(&self, name: &str, command: &SimpleCommand) -> CommandVerdict {
        let first = &command.words[0];
        let reason = match first.as_literal() {
            None => "what it runs is computed by the shell".to_owned(),
            Some(text) if text.contains('/') => format!("`{text}` is run by its path"),
            Some(_) if self.table.has_rules_for(name) => {
                format!("this use of `{name}` is not known to only read")
            }
            Some(_) => format!("nothing is known about `{name}`, so it may change things"),
        };
        CommandVerdict::write(Risk::Medium, "default.write", &reason)
    }
}

/// Everything in a text that may be the name of a file.
pub(crate) fn possible_names(text: &str) -> impl Iterator<Item = &str> {
    let part = |c: char| c.is_alphanumeric() || "_-./~*?".contains(c);
    let names = text.split(move |c| !part(c));
    names.filter(|name| !name.is_empty() && !name.starts_with('-'))
}

/// The name of a command, without its directory.
pub(crate) fn command_name(command: &SimpleCommand) -> Option<String> {
    let text = command.words.first()?.text();
    let name = text.rsplit('/').next().unwrap_or(&text);
    Some(name.strip_suffix(".exe").unwrap_or(name).to_owned())
}

/// Finds a function that calls itself more than once or in the background, and so never ends.
fn detect_fork_bomb(source: &str, script: &ParsedScript) -> Option<SpanVerdict> {
    let calls = |function: &ShellFunction| {
        let inside = |command: &&SimpleCommand| {
            function.body.contains(&command.span.start)
                && command_name(command).as_ref() == Some(&function.name)
        };
        script.commands.iter().filter(inside).count()
    };
    let background = |function: &ShellFunction| source.part(function.body.clone()).contains('&');
    let bomb = script
        .functions
        .iter()
        .find(|function| calls(function) > 1 || (calls(function) == 1 && background(function)))?;
    let reason = "a function that keeps starting itself";
    Some(SpanVerdict {
        span: bomb.body.clone(),
        verdict: CommandVerdict::new(
            Category::Blocked,
            Risk::Critical,
            "blocked.fork-bomb",
            reason,
        ),
    })
}

/// The sandbox of a line that only reads: the narrowest of its parts.
pub(crate) fn required_profile(span_verdicts: &[SpanVerdict]) -> SandboxProfile {
    let needs_network = |span_verdict: &SpanVerdict| match span_verdict.verdict.profile {
        SandboxProfile::ReadNet => Some(true),
        SandboxProfile::Read | SandboxProfile::Workspace => Some(false),
        // What the shell does by itself starts no program, so it has no say.
        SandboxProfile::None => None,
    };
    let mut needs = span_verdicts.iter().filter_map(needs_network).peekable();
    if needs.peek().is_some() && needs.all(|network| network) {
        SandboxProfile::ReadNet
    } else {
        SandboxProfile::Read
    }
}

/// Whether some parts need the network, and other programs would get it with them.
pub(crate) fn needs_network_in_part(span_verdicts: &[SpanVerdict]) -> bool {
    let some = |profile: SandboxProfile| {
        let mut verdicts = span_verdicts.iter();
        verdicts.any(|span_verdict| span_verdict.verdict.profile == profile)
    };
    some(SandboxProfile::ReadNet) && some(SandboxProfile::Read)
}
