//! Finds the files that a command deletes by name, so that people can be told what is lost.

use pvp_protocol::{Action, Command};

use crate::assess::command_name;
use crate::paths::{PathRoot, ResolvedPath, Workspace};
use crate::syntax::{self, SimpleCommand};
use crate::word::ShellWord;

/// The most files that are named.
const MAX_DELETED_FILES: usize = 16;

/// The operands of `rm` and `unlink` in the workspace, as paths from there. Patterns are left out.
pub(crate) fn find(action: &Action, workspace: &Workspace) -> Vec<String> {
    let directory = workspace.resolve_cwd(action.cwd.as_deref());
    let commands = match &action.command {
        Command::Shell { line } | Command::LoginShell { line } => {
            syntax::parse_script(line, &directory).commands
        }
        Command::Argv { command, args } => {
            let words = std::iter::once(command).chain(args).take(syntax::MAX_WORDS);
            vec![SimpleCommand {
                words: words.map(|word| ShellWord::literal(word)).collect(),
                assignments: Vec::new(),
                span: 0..0,
                directories: vec![directory],
                has_here_document: false,
            }]
        }
        Command::Tool { .. } => Vec::new(),
    };
    let mut found = Vec::new();
    for command in commands.iter().filter(|command| deletes(command)) {
        for path in deleted_paths(command, workspace) {
            if found.len() < MAX_DELETED_FILES && !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

fn deletes(command: &SimpleCommand) -> bool {
    matches!(command_name(command).as_deref(), Some("rm" | "unlink"))
}

fn deleted_paths(command: &SimpleCommand, workspace: &Workspace) -> Vec<String> {
    let root = workspace.resolve_cwd(None);
    let [directory] = command.directories.as_slice() else {
        return Vec::new();
    };
    let mut flags = true;
    let mut paths = Vec::new();
    for word in &command.words[1..] {
        let text = word.text();
        if flags && text.starts_with('-') {
            flags = text != "--";
            continue;
        }
        if word.as_literal().is_none() {
            continue;
        }
        paths.extend(below(&root, &directory.resolve(word)));
    }
    paths
}

/// The path from the root on, if it is below it.
fn below(root: &ResolvedPath, path: &ResolvedPath) -> Option<String> {
    let known = matches!(path.root, PathRoot::Absolute | PathRoot::Workspace);
    let rest = path.components.strip_prefix(root.components.as_slice())?;
    (known && path.root == root.root && !rest.is_empty()).then(|| rest.join("/"))
}
