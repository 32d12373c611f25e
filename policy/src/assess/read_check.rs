//! Checks that a command only reads, and only files that may be read without a vote.

use pvp_protocol::{Category, Risk};

use super::Assessor;
use crate::environment::is_harmless;
use crate::explain::ExpectedWord;
use crate::paths::{PathAccess, PathRoot, ResolvedPath};
use crate::read_rules::{ReadRule, ReadTargets};
use crate::rule_file::OperandKind;
use crate::rule_table::RuleOrigin;
use crate::secret_files::{is_aimed_at_secret, is_secret};
use crate::syntax::SimpleCommand;
use crate::verdict::CommandVerdict;
use crate::word::ShellWord;

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
        let arguments = self.without_global_flags(&name, &command.words[1..]);
        let mut not_read_verdict = None;
        for (read, origin) in self.table.read_rules_for(&name) {
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
                Ok(targets) => return self.check_targets(read, &targets, command).map_err(Some),
                Err(reason) => {
                    not_read_verdict.get_or_insert_with(|| not_a_read_verdict(&name, &reason));
                }
            }
        }
        Err(not_read_verdict)
    }

    /// The arguments without the flags that may come before a subcommand.
    fn without_global_flags(&self, name: &str, words: &[ShellWord]) -> Vec<ShellWord> {
        let Some(tool) = self.table.global_flags.get(name) else {
            return words.to_vec();
        };
        let has = |list: &str, flag: &str| list.split_whitespace().any(|it| it == flag);
        let mut rest = words;
        let mut paths = Vec::new();
        while let Some(word) = rest.first() {
            let text = word.as_literal().unwrap_or_default();
            let flag = text.split('=').next().unwrap_or_default();
            let attached = flag.len() < text.len();
            if has(&tool.flags, &text) || (attached && has(&tool.value_flags, flag)) {
                rest = &rest[1..];
            } else if has(&tool.value_flags, &text) && rest.len() > 1 {
                if has(&tool.path_flags, &text) {
                    paths.push(rest[1].clone());
                }
                rest = &rest[2..];
            } else {
                break;
            }
        }
        let near = |word: &ShellWord| {
            let path = ResolvedPath::new(PathRoot::Workspace).resolve(word);
            word.as_literal().is_some() && path.root == PathRoot::Workspace
        };
        if paths.iter().all(near) {
            rest.to_vec()
        } else {
            words.to_vec()
        }
    }

    /// A read, if everything that it would open may be read without a vote.
    fn check_targets(
        &mut self,
        read: &ReadRule,
        targets: &ReadTargets,
        command: &SimpleCommand,
    ) -> Result<CommandVerdict, CommandVerdict> {
        for name in &targets.names {
            self.check_name(name)?;
        }
        let here = [ShellWord::literal(".")];
        let paths = if targets.paths.is_empty() {
            &here[..]
        } else {
            &targets.paths[..]
        };
        self.check_paths(paths, &command.directories, read.data.text)?;
        if read.data.operands == OperandKind::Pattern {
            self.check_not_whole_system(paths, &command.directories)?;
        }
        self.matched_rules.insert(read.id.clone());
        let words = command.words.iter().map(ExpectedWord::from).collect();
        self.read_commands.push(words);
        let mut verdict =
            CommandVerdict::new(Category::Read, Risk::Safe, &read.id, &read.data.reason);
        verdict.profile = read.profile();
        Ok(verdict)
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
                Err(CommandVerdict::write(Risk::Medium, "path.secret", &reason))
            }
            None => Ok(()),
        }
    }

    /// Refuses the name of a file that may hold secrets, or a pattern that may match one.
    fn check_name(&mut self, name: &str) -> Result<(), CommandVerdict> {
        let path = ResolvedPath::new(PathRoot::Workspace).join(name.trim_start_matches('/'));
        if is_secret(&path) || is_aimed_at_secret(&path) {
            return Err(self.secret_verdict(name));
        }
        Ok(())
    }

    fn secret_verdict(&mut self, path: &str) -> CommandVerdict {
        self.notes.insert(format!("may hold secrets: {path}"));
        let reason = format!("reads `{path}`, which may hold secrets");
        CommandVerdict::write(Risk::High, "path.secret", &reason)
    }

    fn check_path(&mut self, path: &ResolvedPath) -> Result<(), CommandVerdict> {
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
                Err(CommandVerdict::write(Risk::Low, "path.outside", &reason))
            }
            PathAccess::Secret(path) => Err(self.secret_verdict(&path)),
        }
    }
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
