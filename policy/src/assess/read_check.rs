//! Checks that a command only reads, and only files that may be read without a vote.

use pvp_protocol::{Category, Risk};

use super::Assessor;
use super::whole_trees::searches_trees;
use crate::environment::is_harmless;
use crate::paths::{PathAccess, PathRoot, ResolvedPath};
use crate::read_rules::{ReadRule, ReadTargets};
use crate::rule_file::OperandKind;
use crate::rule_table::RuleOrigin;
use crate::secret_files::{ends_like_secret, holds_secrets, is_aimed_at_secret, is_secret};
use crate::syntax::SimpleCommand;
use crate::verdict::CommandVerdict;
use crate::word::{ShellWord, WordPart};

impl Assessor<'_> {
    /// The read verdict, or a more specific reason why it is not a read. A user's own read rules
    /// also lower a write.
    pub(super) fn assess_read(
        &mut self,
        first: &ShellWord,
        command: &SimpleCommand,
        ruled: bool,
    ) -> Result<CommandVerdict, Option<CommandVerdict>> {
        let name = first.as_literal().ok_or(None)?;
        let name = without_system_directory(&name);
        let (arguments, directories) =
            self.without_global_flags(name, &command.words[1..], &command.directories);
        let mut not_read_verdict = None;
        for (read, origin) in self.table.read_rules_for(name) {
            let subcommand = &read.words[1..];
            let Some(rest) =
                arguments
                    .split_at_checked(subcommand.len())
                    .and_then(|(head, rest)| {
                        let same = head
                            .iter()
                            .zip(subcommand)
                            .all(|(word, expected)| word.as_literal().as_ref() == Some(expected));
                        same.then_some(rest)
                    })
            else {
                continue;
            };
            let beats_write = *origin == RuleOrigin::User || read.data.beats_write;
            if ruled && (!beats_write || command.assignments.iter().any(is_harmful_assignment)) {
                continue;
            }
            match read.check(rest) {
                Ok(targets) => {
                    if read.data.text {
                        self.printed_words.extend(rest.iter().map(ShellWord::text));
                    }
                    let recurses = searches_trees(name, rest);
                    let verdict =
                        self.check_targets(read, *origin, &targets, &directories, recurses);
                    return verdict.map_err(Some);
                }
                Err(reason) => {
                    not_read_verdict.get_or_insert_with(|| not_a_read_verdict(name, &reason));
                }
            }
        }
        Err(not_read_verdict)
    }

    /// The arguments without the flags that may come before a subcommand, and the directories that
    /// the command works in.
    fn without_global_flags(
        &self,
        name: &str,
        words: &[ShellWord],
        directories: &[ResolvedPath],
    ) -> (Vec<ShellWord>, Vec<ResolvedPath>) {
        let mut rest = words;
        let mut directories = directories.to_vec();
        let Some(tool) = self.table.global_flags.get(name) else {
            return (words.to_vec(), directories);
        };
        let has = |list: &str, flag: &str| list.split_whitespace().any(|it| it == flag);
        while let Some(word) = rest.first() {
            let text = word.as_literal().unwrap_or_default();
            let flag = text.split('=').next().unwrap_or_default();
            let attached = flag.len() < text.len();
            if has(&tool.flags, &text) || (attached && has(&tool.value_flags, flag)) {
                rest = &rest[1..];
            } else if has(&tool.value_flags, &text)
                && rest
                    .get(1)
                    .is_some_and(|value| value.as_literal().is_some())
            {
                if has(&tool.path_flags, &text) {
                    let Some(moved) = self.moved_directories(&directories, &rest[1]) else {
                        break;
                    };
                    directories = moved;
                }
                rest = &rest[2..];
            } else {
                break;
            }
        }
        (rest.to_vec(), directories)
    }

    /// The directories after a flag such as `git -C`, if all of them are in the workspace.
    fn moved_directories(
        &self,
        directories: &[ResolvedPath],
        word: &ShellWord,
    ) -> Option<Vec<ResolvedPath>> {
        word.as_literal()?;
        let moved: Vec<_> = directories.iter().map(|it| it.resolve(word)).collect();
        let inside = |path: &ResolvedPath| self.workspace.contains(path);
        moved.iter().all(inside).then_some(moved)
    }

    /// A read, if everything that it would open may be read without a vote.
    fn check_targets(
        &mut self,
        read: &ReadRule,
        origin: RuleOrigin,
        targets: &ReadTargets,
        directories: &[ResolvedPath],
        recurses: bool,
    ) -> Result<CommandVerdict, CommandVerdict> {
        for name in &targets.names {
            self.check_name(name)?;
        }
        self.reads_computed_path |= !targets.computed.is_empty();
        self.check_computed_paths(&targets.computed, directories)?;
        let here = [ShellWord::literal(".")];
        let paths = if targets.paths.is_empty() {
            &here[..]
        } else {
            &targets.paths[..]
        };
        if recurses {
            self.check_whole_trees(paths, directories)?;
        }
        self.check_paths(paths, directories, read.data.text)?;
        if read.data.operands == OperandKind::Pattern {
            self.check_not_whole_system(paths, directories)?;
        }
        self.matched_rules.insert(read.id.clone());
        let mut verdict =
            CommandVerdict::new(Category::Read, Risk::Safe, &read.id, &read.data.reason).by(origin);
        verdict.profile = read.profile();
        Ok(verdict)
    }

    /// Refuses names that are computed below a directory that needs approval.
    fn check_computed_paths(
        &mut self,
        words: &[ShellWord],
        directories: &[ResolvedPath],
    ) -> Result<(), CommandVerdict> {
        for word in words {
            if let Some(WordPart::Text(end)) = word.parts.last()
                && ends_like_secret(end)
            {
                return Err(self.secret_verdict(&word.text()));
            }
            if let Some(WordPart::Text(start)) = word.parts.first()
                && let Some((above, _)) = start.rsplit_once('/')
            {
                let above = [ShellWord::literal(if above.is_empty() {
                    "/"
                } else {
                    above
                })];
                self.check_whole_trees(&above, directories)?;
                self.check_paths(&above, directories, false)?;
                self.check_not_whole_system(&above, directories)?;
                for directory in directories {
                    let path = directory.resolve(&above[0]);
                    // What a process has in its memory and environment is below /proc.
                    let process = path.components.first().is_some_and(|name| name == "proc");
                    if process || holds_secrets(&path) {
                        return Err(self.secret_verdict(&path.to_string()));
                    }
                }
            } else {
                // It may be any name here.
                self.check_whole_trees(&[ShellWord::literal(".")], directories)?;
            }
        }
        Ok(())
    }

    pub(super) fn check_paths(
        &mut self,
        paths: &[ShellWord],
        directories: &[ResolvedPath],
        text: bool,
    ) -> Result<(), CommandVerdict> {
        if text {
            return Ok(());
        }
        for word in paths.iter().filter(|word| word.text() != "-") {
            for directory in directories {
                self.check_path(&directory.resolve(word))?;
            }
        }
        Ok(())
    }

    /// Refuses a search through a whole system directory, which would also find secrets.
    fn check_not_whole_system(
        &self,
        paths: &[ShellWord],
        directories: &[ResolvedPath],
    ) -> Result<(), CommandVerdict> {
        let whole = |path: &ResolvedPath| {
            if path.components.last().is_some_and(|name| name == ".git") {
                return true;
            }
            path.root == PathRoot::Absolute
                && matches!(path.components.as_slice(), [] | [_])
                && !self.workspace.may_search_all_of(path)
        };
        let mut resolved = paths
            .iter()
            .flat_map(|word| directories.iter().map(|directory| directory.resolve(word)));
        match resolved.find(whole) {
            Some(path) => {
                let reason = format!("searches all of `{path}`, where secrets may be");
                Err(CommandVerdict::sensitive_read(
                    Risk::Medium,
                    "path.secret",
                    &reason,
                ))
            }
            None => Ok(()),
        }
    }

    /// Refuses the name of a file that may hold secrets, or a pattern that may match one.
    pub(super) fn check_name(&mut self, name: &str) -> Result<(), CommandVerdict> {
        let path = ResolvedPath::new(PathRoot::Workspace).join(name.trim_start_matches('/'));
        if let Some(blocked) = self.guard_read(&path) {
            return Err(blocked);
        }
        if is_secret(&path) || is_aimed_at_secret(&path) {
            return Err(self.secret_verdict(name));
        }
        Ok(())
    }

    fn secret_verdict(&mut self, path: &str) -> CommandVerdict {
        self.notes.insert(format!("may hold secrets: {path}"));
        let reason = format!("reads `{path}`, which may hold secrets");
        CommandVerdict::sensitive_read(Risk::High, "path.secret", &reason)
    }

    pub(super) fn check_path(&mut self, path: &ResolvedPath) -> Result<(), CommandVerdict> {
        if let Some(blocked) = self.guard_read(path) {
            return Err(blocked);
        }
        match self.workspace.classify_read(path) {
            PathAccess::Allowed => Ok(()),
            PathAccess::InReadRoot(path) => {
                self.notes.insert(format!("outside the workspace: {path}"));
                Ok(())
            }
            PathAccess::Outside(text) => {
                self.outside_paths.push(path.clone());
                let path = text;
                self.notes.insert(format!("outside the workspace: {path}"));
                let reason = format!("reads `{path}`, which is outside the workspace");
                Err(CommandVerdict::sensitive_read(
                    Risk::Low,
                    "path.outside",
                    &reason,
                ))
            }
            PathAccess::Secret(path) => Err(self.secret_verdict(&path)),
        }
    }
}

/// The name of a program that is given by its path in a directory that only holds programs of the
/// system.
fn without_system_directory(name: &str) -> &str {
    let directories = ["/usr/bin/", "/bin/"];
    let rest = directories
        .iter()
        .find_map(|start| name.strip_prefix(start));
    // The executor puts a program of its own before git, which only `PATH` finds.
    rest.filter(|rest| !rest.contains('/') && !rest.is_empty() && *rest != "git")
        .unwrap_or(name)
}

fn not_a_read_verdict(name: &str, reason: &str) -> CommandVerdict {
    let reason = format!("`{name}`: {reason}");
    CommandVerdict::write(Risk::Low, "default.arguments", &reason)
}

fn is_harmful_assignment((name, value): &(String, ShellWord)) -> bool {
    !value
        .as_literal()
        .is_some_and(|value| is_harmless(name, &value))
}
