//! Finds the files that a command runs, as far as its words name them.

use std::collections::BTreeMap;

use pvp_protocol::{Action, Command};

use crate::assess::command_name;
use crate::line_breaks;
use crate::paths::{PathRoot, ResolvedPath, Workspace};
use crate::rule_table::RuleTable;
use crate::syntax::{self, SimpleCommand};
use crate::tools;
use crate::word::ShellWord;
use crate::wrappers::{self, WrappedCommand};

/// The most files that are found in one action.
const MAX_NAMED_FILES: usize = 32;

/// How many levels of commands inside commands are opened.
const MAX_DEPTH: usize = 8;

/// How many bytes of scripts inside the line are parsed.
const MAX_PARSED_BYTES: usize = 64 * 1024;

/// Programs whose operands may be a script, besides the shells; also with a version behind the name.
const INTERPRETERS: &[&str] = &[
    "python",
    "pypy",
    "node",
    "nodejs",
    "deno",
    "bun",
    "tsx",
    "ts-node",
    "perl",
    "ruby",
    "php",
    "lua",
    "luajit",
    "Rscript",
    "tclsh",
    "expect",
    "java",
    "pwsh",
    "groovy",
    "osascript",
    "source",
    ".",
];

/// Programs that run the recipes of a makefile.
const MAKES: &[&str] = &["make", "gmake"];

/// What `make` reads, in the order of its preference.
const MAKEFILES: &[&str] = &["GNUmakefile", "makefile", "Makefile"];

/// Programs that run the scripts of a `package.json`, which may be in a directory above.
const PACKAGE_MANAGERS: &[&str] = &["npm", "pnpm", "yarn", "bun"];

/// Options that name the directory to work in.
const DIRECTORY_OPTIONS: &[&str] = &["-C", "--directory", "--prefix", "--dir", "--cwd"];

/// Options that name the makefile.
const MAKEFILE_OPTIONS: &[&str] = &["-f", "--file", "--makefile"];

/// Whether it matters that a named file does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilePresence {
    /// It may be an argument and no file at all.
    Possible,
    /// It is what the command runs; if it does not exist, it must not appear later.
    Expected,
}

/// A file in the workspace that a command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// The path from the workspace, in the steps that the command takes: `..` is not resolved,
    /// because a step before it may be a symbolic link.
    pub path: String,
    /// Whether it is certain to be a file that runs.
    pub presence: FilePresence,
}

/// The files that a command runs, as far as its words name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFiles {
    /// In the order of their paths.
    pub files: Vec<NamedFile>,
    /// Whether it may run files of the workspace that are not among them: there are too many, or
    /// only the shell knows what their names will be.
    pub incomplete: bool,
}

/// The files that an action names.
pub(crate) fn find(table: &RuleTable, action: &Action, workspace: &Workspace) -> NamedFiles {
    let mut finder = FileFinder {
        table,
        workspace,
        found: BTreeMap::new(),
        incomplete: false,
        bytes_parsed: 0,
    };
    let directory = workspace.resolve_cwd(action.cwd.as_deref());
    match &action.command {
        Command::Shell { line } | Command::LoginShell { line } => {
            finder.search_script(line, &directory, 0);
        }
        Command::Argv { command, args } => {
            let words = std::iter::once(command).chain(args);
            let words = words.take(syntax::MAX_WORDS);
            let command = SimpleCommand {
                words: words.map(|word| ShellWord::literal(word)).collect(),
                assignments: Vec::new(),
                span: 0..0,
                directories: vec![directory],
                has_here_document: false,
            };
            finder.search_command(&command, 0);
        }
        Command::Tool { .. } => {
            let changed = tools::changed_file(action, workspace).into_iter();
            let changed = changed.map(|path| (path, FilePresence::Expected));
            finder.found.extend(changed);
        }
    }
    let found = finder.found.into_iter();
    NamedFiles {
        files: found
            .map(|(path, presence)| NamedFile { path, presence })
            .collect(),
        incomplete: finder.incomplete,
    }
}

struct FileFinder<'a> {
    table: &'a RuleTable,
    workspace: &'a Workspace,
    found: BTreeMap<String, FilePresence>,
    incomplete: bool,
    bytes_parsed: usize,
}

impl FileFinder<'_> {
    fn search_script(&mut self, source: &str, directory: &ResolvedPath, depth: usize) {
        self.bytes_parsed += source.len();
        if depth > MAX_DEPTH || self.bytes_parsed > MAX_PARSED_BYTES {
            self.incomplete = true;
            return;
        }
        for interpretation in line_breaks::interpretations(source) {
            let script = syntax::parse_script(&interpretation.text, directory);
            for command in &script.commands {
                self.search_command(command, depth);
            }
            let interprets = |command: &SimpleCommand| {
                command_name(command).is_some_and(|name| self.is_interpreter(&name))
            };
            if script.commands.iter().any(interprets) {
                for redirect in script.redirects.iter().filter(|it| it.operator == "<") {
                    self.add_word(
                        &redirect.directories,
                        &redirect.target,
                        FilePresence::Expected,
                    );
                }
            }
        }
    }

    fn search_command(&mut self, command: &SimpleCommand, depth: usize) {
        let (Some(first), Some(name)) = (command.words.first(), command_name(command)) else {
            self.incomplete |= !command.words.is_empty();
            return;
        };
        self.incomplete |= first.as_literal().is_none();
        if first.text().contains('/') {
            self.add_word(&command.directories, first, FilePresence::Expected);
        }
        if MAKES.contains(&name.as_str()) {
            self.add_makefiles(command);
        }
        if PACKAGE_MANAGERS.contains(&name.as_str()) {
            self.add_packages(command);
        }
        if self.is_interpreter(&name) {
            self.add_scripts(command);
        }
        match depth < MAX_DEPTH {
            true => self.search_wrapped(&name, command, depth + 1),
            false => self.incomplete = true,
        }
    }

    fn search_wrapped(&mut self, name: &str, command: &SimpleCommand, depth: usize) {
        let wrapped = wrappers::wrapped_commands(self.table, name, &command.words);
        for inner in wrapped.into_iter().flatten() {
            match inner {
                WrappedCommand::Words(words) => {
                    let inner = SimpleCommand {
                        words,
                        assignments: Vec::new(),
                        ..command.clone()
                    };
                    self.search_command(&inner, depth);
                }
                WrappedCommand::Script(text) => {
                    for directory in &command.directories {
                        self.search_script(&text, directory, depth);
                    }
                }
                // Its operands are searched as those of an interpreter.
                WrappedCommand::UnseenScript => {}
            }
        }
    }

    fn is_interpreter(&self, name: &str) -> bool {
        INTERPRETERS.contains(&name) || INTERPRETERS.contains(&family(name)) || self.is_shell(name)
    }

    fn is_shell(&self, name: &str) -> bool {
        self.table.wrappers.get(name).is_some_and(|it| it.shell)
    }

    /// Whether this option gives an interpreter its code, so that no operand need be a script.
    fn takes_code(&self, name: &str, option: &str) -> bool {
        let is_long = matches!(option, "--eval" | "--print");
        let letters = match option.strip_prefix('-') {
            Some(letters) if !letters.starts_with('-') => letters,
            Some(_) | None => return is_long,
        };
        match family(name) {
            "python" | "pypy" => letters.contains(['c', 'm']),
            "php" => letters.contains('r'),
            _ if self.is_shell(name) => letters.contains('c'),
            _ => letters.contains(['e', 'E', 'p']),
        }
    }

    /// Which operand is the script depends on options that differ between interpreters and
    /// versions, and a file in the place of an option's value would be a decoy. So each operand
    /// that is a file is one that runs.
    fn add_scripts(&mut self, command: &SimpleCommand) {
        let name = command_name(command).unwrap_or_default();
        let mut presence = FilePresence::Expected;
        let mut follows_option = false;
        for word in &command.words[1..] {
            let text = word.text();
            let is_operand = !text.starts_with(['-', '+']) || text == "-";
            // What follows an option may be its value, so that the script is yet to come.
            let may_be_value = std::mem::replace(&mut follows_option, !is_operand);
            if is_operand {
                self.add_word(&command.directories, word, presence);
                if !may_be_value {
                    presence = FilePresence::Possible;
                }
            } else if let Some((_, value)) = text.split_once('=') {
                let value = ShellWord::literal(value);
                self.add_word(&command.directories, &value, FilePresence::Possible);
            } else if self.takes_code(&name, &text) {
                presence = FilePresence::Possible;
            }
        }
    }

    fn add_makefiles(&mut self, command: &SimpleCommand) {
        let named = option_values(&command.words, MAKEFILE_OPTIONS);
        for directory in working_directories(command) {
            let directories = std::slice::from_ref(&directory);
            for word in &named {
                self.add_word(directories, word, FilePresence::Expected);
            }
            if named.is_empty() {
                for name in MAKEFILES {
                    let word = ShellWord::literal(name);
                    self.add_word(directories, &word, FilePresence::Expected);
                }
            }
        }
    }

    fn add_packages(&mut self, command: &SimpleCommand) {
        let root = self.workspace.resolve_cwd(None).components.len();
        for mut directory in working_directories(command) {
            loop {
                let word = ShellWord::literal("package.json");
                self.add_word(
                    std::slice::from_ref(&directory),
                    &word,
                    FilePresence::Expected,
                );
                if directory.components.len() <= root || directory.components.pop().is_none() {
                    break;
                }
            }
        }
    }

    fn add_word(&mut self, directories: &[ResolvedPath], word: &ShellWord, presence: FilePresence) {
        let is_certain = presence == FilePresence::Expected;
        let Some(text) = word.as_literal() else {
            self.incomplete |= is_certain;
            return;
        };
        if text.is_empty() {
            return;
        }
        for directory in directories {
            let Some(path) = self.path_in_workspace(directory, &text) else {
                let root = directory.join(&text).root;
                let known = matches!(root, PathRoot::Absolute | PathRoot::Workspace);
                self.incomplete |= is_certain && !known;
                continue;
            };
            if self.found.len() < MAX_NAMED_FILES || self.found.contains_key(&path) {
                let known = self.found.entry(path).or_insert(presence);
                *known = (*known).max(presence);
            } else {
                self.incomplete |= is_certain;
            }
        }
    }

    /// The path from the workspace; `None` if it leads out of it, or nobody knows where.
    fn path_in_workspace(&self, directory: &ResolvedPath, text: &str) -> Option<String> {
        let workspace = self.workspace.resolve_cwd(None);
        let resolved = directory.join(text);
        let is_inside = |path: &ResolvedPath| {
            path.root == workspace.root && path.components.starts_with(&workspace.components)
        };
        let known = matches!(resolved.root, PathRoot::Absolute | PathRoot::Workspace);
        let inside =
            known && is_inside(&resolved) && resolved.components.len() > workspace.components.len();
        if !inside {
            return None;
        }
        let depth = workspace.components.len();
        // A path that begins outside and leads in has no steps from the workspace.
        if text.starts_with('/') || !is_inside(directory) {
            return Some(resolved.components[depth..].join("/"));
        }
        let steps = text.split('/').filter(|step| !matches!(*step, "" | "."));
        let before = directory.components[depth..].iter().map(String::as_str);
        Some(before.chain(steps).collect::<Vec<_>>().join("/"))
    }
}

/// The name of an interpreter without its version.
fn family(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

/// The directories that a command works in, after its own option for that.
fn working_directories(command: &SimpleCommand) -> Vec<ResolvedPath> {
    let named = option_values(&command.words, DIRECTORY_OPTIONS);
    let mut directories = command.directories.clone();
    for word in named {
        directories = directories.iter().map(|it| it.resolve(&word)).collect();
    }
    directories
}

/// The values of these options, whether attached, after an equals sign or in the next word.
fn option_values(words: &[ShellWord], options: &[&str]) -> Vec<ShellWord> {
    let mut values = Vec::new();
    for (at, word) in words.iter().enumerate().skip(1) {
        let text = word.text();
        for option in options {
            let Some(rest) = text.strip_prefix(option) else {
                continue;
            };
            if rest.is_empty() {
                values.extend(words.get(at + 1).cloned());
            } else if let Some(value) = rest.strip_prefix('=') {
                values.push(ShellWord::literal(value));
            } else if option.len() == 2 {
                values.push(ShellWord::literal(rest));
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use crate::{FilePresence, Policy, Workspace};
    use pvp_protocol::{Action, Command};

    fn action(line: &str) -> Action {
        let line = line.to_owned();
        Action::new(Command::Shell { line })
    }

    /// The paths that a line names in /work; those that may be no files have a `?`.
    fn named(line: &str) -> String {
        let directory = Some("/work".to_owned());
        let found = Policy::built_in().named_files(
            &action(line),
            &Workspace {
                directory,
                ..Workspace::default()
            },
        );
        let marked = found.files.into_iter().map(|file| match file.presence {
            FilePresence::Expected => file.path,
            FilePresence::Possible => format!("{}?", file.path),
        });
        marked.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn programs_and_scripts_are_named_by_their_words() {
        for (line, expected) in [
            ("./deploy.sh prod", "deploy.sh"),
            ("bin/tool", "bin/tool"),
            ("/work/bin/tool", "bin/tool"),
            ("/usr/bin/tool", ""),
            ("../tool", ""),
            ("ls deploy.sh", ""),
            ("bash deploy.sh", "deploy.sh"),
            ("bash -ex deploy.sh prod", "deploy.sh prod"),
            ("sh -c './a.sh && ./b.sh'", "a.sh a.sh && ./b.sh? b.sh"),
            ("python3.12 train.py data.csv", "data.csv? train.py"),
            ("python -m pytest tests", "pytest? tests?"),
            ("node --require=./hook.js app.js", "app.js hook.js?"),
            ("cd sub && ../deploy.sh", "sub/../deploy.sh"),
            (
                "source env.sh; make -C sub",
                "env.sh sub/GNUmakefile sub/Makefile sub/makefile",
            ),
            ("make -f build.mk all", "build.mk"),
            ("sudo -n ./a.sh || timeout 5 ./b.sh", "a.sh b.sh"),
            ("npm run build", "package.json"),
            ("cd web && npm test", "package.json web/package.json"),
            ("bash < deploy.sh", "deploy.sh"),
            ("./$name.sh", ""),
            ("./link/../deploy.sh", "link/../deploy.sh"),
        ] {
            assert_eq!(named(line), expected, "{line}");
        }
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let line: String = (0..100).map(|number| format!("./a{number}; ")).collect();
        let workspace = Workspace::default();
        let found = Policy::built_in().named_files(&action(&line), &workspace);
        assert_eq!(found.files.len(), super::MAX_NAMED_FILES);
        assert!(found.incomplete);
    }

    #[test]
    fn words_without_a_shell_are_searched_too() {
        let command = Command::Argv {
            command: "./a b.sh".to_owned(),
            args: vec!["x".to_owned()],
        };
        let found = Policy::built_in().named_files(&Action::new(command), &Workspace::default());
        assert_eq!(found.files[0].path, "a b.sh");
    }

    #[test]
    fn what_nobody_can_list_is_said_to_be_missing() {
        let directory = Some("/work".to_owned());
        let find = |line: &str| {
            let workspace = Workspace {
                directory: directory.clone(),
                ..Workspace::default()
            };
            Policy::built_in().named_files(&action(line), &workspace)
        };
        for line in [
            "cd ${PWD} && ./run.sh",
            "bash r[u]n.sh",
            "bash $SCRIPT",
            "$TOOL run",
            "python3 $(ls | head -1)",
        ] {
            assert!(find(line).incomplete, "{line}");
        }
        for line in [
            "./run.sh $ARGUMENT",
            "bash run.sh $ARGUMENT",
            "make all",
            "ls $DIRECTORY",
        ] {
            assert!(!find(line).incomplete, "{line}");
        }
        // The word after an option may be its value, so that the next may be the script.
        let found = find("bash -o pipefail later.sh");
        let later = found.files.iter().find(|file| file.path == "later.sh");
        assert_eq!(later.unwrap().presence, super::FilePresence::Expected);
    }
}
