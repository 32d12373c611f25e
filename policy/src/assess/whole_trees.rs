//! Keeps an agent's commands from reading, copying or moving files of PVP with the directory that
//! they are in: under another name, nothing guards them.

use pvp_protocol::{Category, Risk};

use super::{Actor, Assessor};
use crate::checks::find;
use crate::guarded_paths::{Guard, path_of_text, possible_paths};
use crate::held_files::{Reach, reach};
use crate::paths::ResolvedPath;
use crate::secret_files::holds_secrets;
use crate::syntax::SimpleCommand;
use crate::verdict::CommandVerdict;
use crate::word::{ShellWord, WordPart};

/// Commands that search all files below a directory if a flag says so.
const SEARCHERS_BY_FLAG: &[&str] = &["grep", "egrep", "fgrep", "ggrep", "zgrep", "diff"];

/// Commands that always do.
const SEARCHERS: &[&str] = &["rg", "ag", "ack", "ugrep"];

/// Commands that copy, pack or link what they name, all but their last operand.
const COPIERS: &[&str] = &["cp", "gcp", "rsync", "scp", "ditto", "mv", "ln"];

/// Commands that take all that they name.
const TAKERS: &[&str] = &[
    "rm",
    "rmdir",
    "trash",
    "trash-put",
    "zip",
    "7z",
    "7za",
    "7zz",
    "pax",
];

const PACKERS: &[&str] = &["tar", "gtar", "bsdtar"];

/// Flags whose value only names what is left out, or how it is done.
const FLAGS_FOR_OTHERS: &[&str] = &[
    "--exclude",
    "--include",
    "--exclude-from",
    "--filter",
    "-x",
    "-e",
    "-X",
    "-T",
];

impl Assessor<'_> {
    /// Refuses a read of everything below directories that hold files of PVP.
    pub(super) fn check_whole_trees(
        &mut self,
        paths: &[ShellWord],
        directories: &[ResolvedPath],
    ) -> Result<(), CommandVerdict> {
        for word in paths {
            for directory in directories {
                self.check_whole_tree(&directory.resolve(word))?;
            }
        }
        Ok(())
    }

    pub(super) fn check_whole_tree(&mut self, path: &ResolvedPath) -> Result<(), CommandVerdict> {
        match self.actor {
            Actor::Agent => {}
            Actor::Person => return Ok(()),
        }
        match reach(path, self.workspace) {
            Some(Reach::Pattern | Reach::NearOwnFiles) => Err(holds_own_files(path)),
            Some(Reach::Home) => {
                let outside = self.check_path(path).err();
                let home = self.reads_home(path);
                Err(outside.into_iter().fold(home, CommandVerdict::max))
            }
            Some(Reach::System) | None if self.is_secret_in_home(path) => {
                Err(self.reads_home(path))
            }
            // A search through all of the system is asked for anyway.
            Some(Reach::System) | None => Ok(()),
        }
    }

    /// Whether the workspace is a home, where this directory usually holds secrets.
    fn is_secret_in_home(&self, path: &ResolvedPath) -> bool {
        let workspace = self.workspace.resolve_cwd(None);
        let is_home = reach(&workspace, self.workspace) == Some(Reach::Home);
        is_home && self.workspace.contains(path) && holds_secrets(path)
    }

    fn reads_home(&mut self, path: &ResolvedPath) -> CommandVerdict {
        self.notes.insert(Guard::OwnFiles.note(&path.to_string()));
        whole_home_read(&path.to_string())
    }

    /// Blocks a command that copies, packs, links, moves or deletes such a directory.
    pub(super) fn guard_taken_trees(
        &mut self,
        name: &str,
        command: &SimpleCommand,
    ) -> Option<CommandVerdict> {
        if self.actor == Actor::Person {
            return None;
        }
        let directories = command.directories.iter();
        let mut taken =
            directories.flat_map(|directory| taken_by(name, &command.words[1..], directory));
        // A link to a home, or what is deleted there, leaves every name below it as it is.
        let whole_homes =
            COPIERS.contains(&name) && name != "ln" || PACKERS.contains(&name) || name == "zip";
        taken.find_map(|path| match reach(&path, self.workspace)? {
            Reach::Pattern | Reach::NearOwnFiles => Some(holds_own_files(&path)),
            Reach::Home => whole_homes.then(|| holds_own_files(&path)),
            Reach::System => {
                self.notes.insert(Guard::OwnFiles.note(&path.to_string()));
                None
            }
        })
    }
}

/// Whether a command that only reads takes whole directories.
pub(super) fn searches_trees(name: &str, arguments: &[ShellWord]) -> bool {
    let by_flag = |word: &ShellWord| {
        let text = word.text();
        let letters = text.strip_prefix('-').unwrap_or_default();
        ["--rec", "--deref", "--directories=rec"]
            .iter()
            .any(|start| text.starts_with(start))
            || text == "recurse"
            || !letters.starts_with('-') && letters.contains(['r', 'R'])
    };
    SEARCHERS.contains(&name) || SEARCHERS_BY_FLAG.contains(&name) && arguments.iter().any(by_flag)
}

/// What is said of an agent's read of a whole home.
pub(crate) fn whole_home_read(shown: &str) -> CommandVerdict {
    let reason = format!("reads all of `{shown}`, where secrets and files of PVP may be");
    CommandVerdict::sensitive_read(Risk::High, "path.secret", &reason)
}

fn holds_own_files(path: &ResolvedPath) -> CommandVerdict {
    CommandVerdict::new(
        Category::Blocked,
        Risk::Critical,
        Guard::OwnFiles.rule(),
        &held_reason(&path.to_string()),
    )
}

/// Why no agent may take all of a directory.
pub(crate) fn held_reason(shown: &str) -> String {
    format!(
        "`{shown}` holds files of PVP itself, which no agent may read or change; name only what is \
         needed"
    )
}

/// The directories that a command takes as a whole.
fn taken_by(name: &str, arguments: &[ShellWord], directory: &ResolvedPath) -> Vec<ResolvedPath> {
    let is_copier = COPIERS.contains(&name);
    if searches_trees(name, arguments) {
        // What the shell expands is not the pattern. All others are seen if the search is a read.
        let expanded = arguments.iter().filter(|word| is_in_home(word));
        return expanded
            .flat_map(|word| possible_paths(word, directory))
            .collect();
    }
    if matches!(name, "find" | "gfind") {
        return searched_for_a_command(arguments, directory);
    }
    if PACKERS.contains(&name) {
        return packed(arguments, directory);
    }
    let takes = match name {
        "cp" | "gcp" | "scp" => copies_trees(arguments),
        name => is_copier || TAKERS.contains(&name),
    };
    if !takes {
        return Vec::new();
    }
    let (mut operands, has_target) = operands(name, arguments);
    if is_copier && !has_target && operands.len() > 1 {
        operands.pop();
    }
    let operands = operands.into_iter();
    operands
        .flat_map(|word| possible_paths(word, directory))
        .collect()
}

/// The directories below which `find` runs a command on everything, or deletes it.
fn searched_for_a_command(arguments: &[ShellWord], directory: &ResolvedPath) -> Vec<ResolvedPath> {
    let acts = |word: &ShellWord| {
        let text = word.text();
        text.starts_with("-exec") || text.starts_with("-ok") || text == "-delete"
    };
    if !arguments.iter().any(acts) {
        return Vec::new();
    }
    let is_option = |word: &&ShellWord| find::is_option(&word.text());
    let roots = arguments.iter().skip_while(is_option);
    let roots = roots.take_while(|word| !word.text().starts_with(['-', '(', '!']));
    roots
        .flat_map(|word| possible_paths(word, directory))
        .collect()
}

/// Whether the shell puts a home, or another directory of its own, before a word.
fn is_in_home(word: &ShellWord) -> bool {
    let variable = |part: &WordPart| matches!(part, WordPart::Variable { .. });
    word.leading_tilde || word.parts.first().is_some_and(variable)
}

fn copies_trees(arguments: &[ShellWord]) -> bool {
    arguments.iter().any(|word| {
        let text = word.text();
        let letters = text.strip_prefix('-').unwrap_or_default();
        text.starts_with("--rec")
            || text.starts_with("--arch")
            || !letters.starts_with('-') && letters.contains(['r', 'R', 'a'])
    })
}

/// The words that are no flags, and whether a flag says where they go.
fn operands<'a>(name: &str, arguments: &'a [ShellWord]) -> (Vec<&'a ShellWord>, bool) {
    let takes_target = matches!(name, "cp" | "gcp" | "mv" | "ln");
    let names_target = |flag: &str| takes_target && !flag.starts_with("--") && flag.contains('t');
    let mut found = Vec::new();
    let mut has_target = false;
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let text = word.text();
        match text.as_str() {
            "--target-directory" => {
                has_target = true;
                rest.next();
            }
            "--" => {
                found.extend(rest.by_ref());
            }
            flag if FLAGS_FOR_OTHERS.contains(&flag) => {
                rest.next();
            }
            flag if flag.starts_with('-') && flag.len() > 1 => {
                has_target |= flag.starts_with("--target-directory=") || names_target(flag);
                // `-rt DIR`, and not `-tDIR`.
                if names_target(flag) && flag.ends_with('t') {
                    rest.next();
                }
            }
            _ => found.push(word),
        }
    }
    (found, has_target)
}

/// What `tar` puts into an archive, from the directories that `-C` names.
fn packed(arguments: &[ShellWord], directory: &ResolvedPath) -> Vec<ResolvedPath> {
    if !makes_archive(arguments) {
        return Vec::new();
    }
    let mut here = directory.clone();
    let mut found = Vec::new();
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let text = word.text();
        let attached = text
            .strip_prefix("--directory=")
            .or_else(|| text.strip_prefix("-C").filter(|value| !value.is_empty()));
        let value = match text.as_str() {
            "-C" | "--directory" | "--cd" => rest.next().map(ShellWord::text),
            _ => attached.map(str::to_owned),
        };
        match value {
            Some(value) => here = path_of_text(&value, value.starts_with('~'), &here),
            None if FLAGS_FOR_OTHERS.contains(&text.as_str()) => {
                rest.next();
            }
            None if text.starts_with('-') => {}
            None => found.extend(possible_paths(word, &here)),
        }
    }
    found
}

fn makes_archive(arguments: &[ShellWord]) -> bool {
    let by_letters = |text: &str| !text.starts_with("--") && text.contains(['c', 'r', 'u']);
    let bundle = arguments.first().map(ShellWord::text).unwrap_or_default();
    by_letters(&bundle)
        || arguments.iter().any(|word| {
            let text = word.text();
            let letters = text.starts_with('-') && by_letters(&text);
            letters || ["--create", "--append", "--update"].contains(&text.as_str())
        })
}
