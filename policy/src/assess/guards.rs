//! Keeps an agent's commands away from guarded paths.

use pvp_protocol::{Category, Risk};

use super::own_program::{SELF_APPROVAL, may_decide, mentions_deciding, self_approval};
use super::written_paths::{self, WrittenPath};
use super::{Actor, Assessor, SpanVerdict, command_name, possible_names};
use crate::guarded_paths::{
    Access, Guard, guard_in, guard_of, may_name_guarded, path_of_text, possible_paths,
};
use crate::held_files::{Reach, reach};
use crate::paths::{PathRoot, ResolvedPath};
use crate::syntax::{ParsedScript, Redirect, SimpleCommand};
use crate::verdict::CommandVerdict;
use crate::word::{ShellWord, WordPart};

/// Commands that do nothing to a file that they name, whatever their flags are.
const ONLY_MENTION: &[&str] = &[
    "echo", "printf", "true", "false", ":", "test", "[", "cd", "pwd", "gh", "basename", "dirname",
];

/// Commands that only read the files that they name, unless they are told to write elsewhere.
const ONLY_READ: &[&str] = &[
    "cat",
    "head",
    "tail",
    "grep",
    "egrep",
    "fgrep",
    "rg",
    "ag",
    "wc",
    "nl",
    "diff",
    "cmp",
    "stat",
    "file",
    "ls",
    "tree",
    "jq",
    "less",
    "cp",
    "install",
    "rsync",
    "scp",
    "sha256sum",
    "md5sum",
    "md5",
    "shasum",
    "cut",
    "sort",
    "uniq",
    "sed",
    "test",
    "du",
    "realpath",
    "readlink",
    "bat",
];

/// Wrappers that take more words for the command from their input.
const FED_BY_INPUT: &[&str] = &["xargs", "gxargs", "parallel"];

impl Assessor<'_> {
    /// Blocks an agent's command that is known to write to a guarded path.
    pub(super) fn guard_written_paths(
        &mut self,
        name: &str,
        command: &SimpleCommand,
    ) -> Option<CommandVerdict> {
        if self.actor == Actor::Person {
            return None;
        }
        let written = written_paths::find(name, &command.words, &command.directories);
        let found = written.iter().find_map(|written| match written {
            WrittenPath::File(path) => self.guarded(guard_of(path, self.workspace), path),
            WrittenPath::Tree(path) => self.guarded(guard_in(path, self.workspace), path),
        });
        found.map(|(guard, shown)| blocked(guard, &shown))
    }

    fn guarded(&self, guard: Option<Guard>, path: &ResolvedPath) -> Option<(Guard, String)> {
        guard.map(|guard| (guard, path.to_string()))
    }

    /// The verdict on an agent's command, raised if it names a guarded path and is not certain to
    /// leave it alone.
    pub(super) fn raised_by_guards(
        &mut self,
        name: &str,
        command: &SimpleCommand,
        verdict: CommandVerdict,
    ) -> CommandVerdict {
        let mentions = ONLY_MENTION.contains(&name) || is_mentioning_git(name, &command.words);
        let proven = verdict.category == Category::Read && !verdict.is_by_user();
        if self.actor == Actor::Person || mentions || proven {
            return verdict;
        }
        let words = self.words_of_its_own(name, command);
        let whole = words.iter().find_map(|word| {
            let paths = named_paths(word, &command.directories);
            paths.iter().find_map(|path| {
                let guard = guard_of(path, self.workspace);
                self.guarded(guard.or_else(|| self.found_by_pattern(path)), path)
            })
        });
        let only_reads = verdict.category == Category::Read
            || verdict.sensitive_read
            || ONLY_READ.contains(&name);
        match whole {
            Some((Guard::OwnFiles, shown)) => verdict.max(blocked(Guard::OwnFiles, &shown)),
            Some((Guard::ClientSettings, _)) if only_reads => verdict,
            Some((Guard::ClientSettings, shown)) => {
                verdict.max(self.doubtful(Guard::ClientSettings, &shown))
            }
            None if only_reads => verdict,
            None => {
                let texts: Vec<String> = words.iter().map(ShellWord::text).collect();
                let text = texts.join(" ");
                let deciding = mentions_deciding(&text) && !self.has_inert_arguments(command);
                let mentioned = self.mentioned(&text, &command.directories);
                let found = mentioned.map(|(guard, shown)| self.doubtful(guard, &shown));
                let found = deciding.then(may_decide).into_iter().chain(found);
                found.fold(verdict, CommandVerdict::max)
            }
        }
    }

    /// The words of a command without those of the command that it runs, which are judged as that
    /// command's.
    fn words_of_its_own(&self, name: &str, command: &SimpleCommand) -> Vec<ShellWord> {
        use crate::wrappers::{WrappedCommand, wrapped_commands};
        let words = &command.words[1..];
        let inner = wrapped_commands(self.table, name, &command.words).unwrap_or_default();
        let lengths = inner.iter().map(|inner| match inner {
            WrappedCommand::Words(inner) => inner.len(),
            WrappedCommand::Script(_) => 1,
            WrappedCommand::UnseenScript => 0,
        });
        let length = lengths.max().unwrap_or(0);
        words[..words.len().saturating_sub(length)].to_vec()
    }

    /// Blocks an agent's redirection to a guarded path.
    pub(super) fn guard_redirect(&mut self, redirect: &Redirect) -> Option<CommandVerdict> {
        if self.actor == Actor::Person {
            return None;
        }
        let directories = redirect.directories.iter();
        let mut paths = directories.flat_map(|it| possible_paths(&redirect.target, it));
        let found = paths.find_map(|path| self.guarded(guard_of(&path, self.workspace), &path));
        found.map(|(guard, shown)| blocked(guard, &shown))
    }

    /// Raises an agent's line that names a guarded path, and does something that only the shell or
    /// another program knows.
    pub(super) fn guard_line(
        &mut self,
        source: &str,
        script: &ParsedScript,
        span_verdicts: &[SpanVerdict],
    ) -> Option<SpanVerdict> {
        let span = 0..source.len();
        if let Some(verdict) = self.guard_found_processes() {
            return Some(SpanVerdict { span, verdict });
        }
        if self.actor == Actor::Person || !may_name_guarded(source) {
            return None;
        }
        let reads =
            |it: &SpanVerdict| it.verdict.category == Category::Read || it.verdict.sensitive_read;
        if span_verdicts.iter().all(reads) && script.doubts.is_empty() {
            return None;
        }
        let mut pairs = script.commands.iter().zip(span_verdicts);
        let unknown_command = pairs.any(|(command, it)| !reads(it) && self.is_fed(command));
        let unknown_target =
            |redirect: &Redirect| redirect.operator != "<" && has_unknown(&redirect.target);
        let unknown = script.opaque
            || self.runs_unseen_script
            || unknown_command
            || script.redirects.iter().any(unknown_target);
        if !unknown {
            return None;
        }
        let directories = [self.workspace.resolve_cwd(None)];
        let verdict = match self.mentioned(source, &directories) {
            Some((guard, shown)) => self.doubtful(guard, &shown),
            None if mentions_deciding(source) && self.runs_unseen_script => {
                self_approval("gives a shell a command by which an agent would decide for itself")
            }
            None if mentions_deciding(source) => may_decide(),
            None => self.unknown_program(source, script)?,
        };
        Some(SpanVerdict { span, verdict })
    }

    /// The verdict on a line that names our program and runs one whose name the shell computes.
    fn unknown_program(&self, source: &str, script: &ParsedScript) -> Option<CommandVerdict> {
        let computed = |command: &SimpleCommand| command.words.first().is_some_and(has_unknown);
        let names_program = possible_names(source).any(|name| {
            let name = name.to_ascii_lowercase();
            name == "pvp" || name.ends_with("/pvp")
        });
        let found = names_program && script.commands.iter().any(computed);
        let reason = "runs a program whose name is computed, and names `pvp`";
        found.then(|| CommandVerdict::new(Category::Destructive, Risk::High, SELF_APPROVAL, reason))
    }

    /// Whether a command gets words or code that the line does not show.
    fn is_fed(&self, command: &SimpleCommand) -> bool {
        let name = command_name(command).unwrap_or_default();
        let mentions = ONLY_MENTION.contains(&name.as_str())
            || is_mentioning_git(&name, &command.words)
            || ONLY_READ.contains(&name.as_str());
        !mentions
            && (command.words.iter().any(has_unknown)
                || FED_BY_INPUT.contains(&name.as_str())
                || self.interprets_stdin(command)
                || command.has_here_document)
    }

    /// The first guarded path that a text names among other things.
    fn mentioned(&self, text: &str, directories: &[ResolvedPath]) -> Option<(Guard, String)> {
        if !may_name_guarded(text) {
            return None;
        }
        possible_names(text).find_map(|name| {
            let tilde = name.starts_with('~');
            directories.iter().find_map(|directory| {
                let path = path_of_text(name, tilde, directory);
                let guard = guard_in(&path, self.workspace)?;
                Some((guard, name.to_owned()))
            })
        })
    }

    /// What is said where it cannot be seen what happens to a guarded path.
    fn doubtful(&mut self, guard: Guard, shown: &str) -> CommandVerdict {
        self.notes.insert(guard.note(shown));
        let reason = format!("may change `{shown}`, which agents must leave alone");
        CommandVerdict::new(Category::Destructive, Risk::High, guard.rule(), &reason)
    }

    /// The verdict on a read of a path that no agent may read.
    pub(super) fn guard_read(&self, path: &ResolvedPath) -> Option<CommandVerdict> {
        let guard = guard_of(path, self.workspace).or_else(|| self.found_by_pattern(path))?;
        let forbidden = self.actor == Actor::Agent && guard.forbids(Access::Read);
        forbidden.then(|| blocked(guard, &path.to_string()))
    }

    /// The guard of files that a pattern in the path may find.
    fn found_by_pattern(&self, path: &ResolvedPath) -> Option<Guard> {
        let found = reach(path, self.workspace)?;
        (found == Reach::Pattern).then_some(Guard::OwnFiles)
    }
}

pub(crate) fn blocked(guard: Guard, shown: &str) -> CommandVerdict {
    CommandVerdict::new(
        Category::Blocked,
        Risk::Critical,
        guard.rule(),
        &guard.reason(shown),
    )
}

/// Whether only the shell knows what a word becomes; homes and the working directory are known well
/// enough.
fn has_unknown(word: &ShellWord) -> bool {
    word.parts.iter().any(|part| match part {
        WordPart::Text(_) | WordPart::Glob(_) => false,
        WordPart::Variable { name, .. } => !matches!(name.as_str(), "HOME" | "PWD"),
        WordPart::Computed { .. } | WordPart::Opaque(_) => true,
    })
}

/// Every path that a word names as a whole, or behind a flag, an `@` or a host.
fn named_paths(word: &ShellWord, directories: &[ResolvedPath]) -> Vec<ResolvedPath> {
    let text = word.text();
    if text.contains(char::is_whitespace) {
        return Vec::new();
    }
    let mut texts = vec![text.as_str()];
    texts.extend(text.split_once(['=', ':', '@']).map(|(_, rest)| rest));
    texts.extend(text.rsplit_once(['=', ':', '@']).map(|(_, rest)| rest));
    if text.starts_with('-') {
        texts.extend(
            text.char_indices()
                .nth(2)
                .and_then(|(at, _)| text.get(at..)),
        );
    }
    let anywhere = [ResolvedPath::new(PathRoot::Unknown)];
    let directories = match directories {
        [] => &anywhere[..],
        directories => directories,
    };
    let of_parts = texts.iter().skip(1).flat_map(|part| {
        directories
            .iter()
            .map(|directory| path_of_text(part, part.starts_with('~'), directory))
    });
    let whole = directories.iter().flat_map(|it| possible_paths(word, it));
    whole.chain(of_parts).collect()
}

/// Whether this is a git command that names files without changing them.
fn is_mentioning_git(name: &str, words: &[ShellWord]) -> bool {
    const SUBCOMMANDS: &[&str] = &[
        "commit",
        "diff",
        "log",
        "show",
        "status",
        "blame",
        "grep",
        "ls-files",
        "push",
        "tag",
        "check-ignore",
        "shortlog",
        "describe",
        "branch",
        "notes",
        "fetch",
        "add",
    ];
    let second = words.get(1).and_then(ShellWord::as_literal);
    let writes = |word: &ShellWord| word.text().starts_with("--output");
    name == "git"
        && second.is_some_and(|it| SUBCOMMANDS.contains(&it.as_str()))
        && !words.iter().any(writes)
}
