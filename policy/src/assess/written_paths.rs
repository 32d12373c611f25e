//! Finds the paths that well-known commands write to, delete, move, or replace by links.

use crate::guarded_paths::{path_of_text, possible_paths};
use crate::paths::ResolvedPath;
use crate::word::ShellWord;

/// A path that a command writes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WrittenPath {
    /// As a file, or as a directory that is made.
    File(ResolvedPath),
    /// With everything in it.
    Tree(ResolvedPath),
}

/// Commands that write to every file that they name, but not to what is in a directory.
const FILE_WRITERS: &[&str] = &[
    "tee",
    "touch",
    "truncate",
    "mkdir",
    "mkfifo",
    "mknod",
    "sponge",
    "patch",
    "ed",
    "ex",
    "vi",
    "vim",
    "nvim",
    "nano",
    "emacs",
    "gzip",
    "gunzip",
    "bzip2",
    "xz",
    "zstd",
    "fallocate",
    "split",
    "csplit",
    "unlink",
    "shred",
    "srm",
];

/// Commands that change whole directories too.
const TREE_WRITERS: &[&str] = &[
    "rm",
    "rmdir",
    "mv",
    "ln",
    "link",
    "chmod",
    "chown",
    "chgrp",
    "chattr",
    "chflags",
    "setfacl",
    "setfattr",
    "xattr",
    "trash",
    "trash-put",
    "rename",
    "mount",
    "umount",
];

/// Commands that write to the last file that they name.
const COPIERS: &[&str] = &["cp", "gcp", "install", "rsync", "scp", "ditto", "mv", "ln"];

/// Programs that change the files that they name if a flag says so.
const EDITORS: &[&str] = &[
    "sed", "gsed", "perl", "ruby", "gawk", "awk", "yq", "dos2unix",
];

/// Flags that name a file or a directory for output, in many programs.
const FLAGS_FOR_OUTPUT: &[&str] = &[
    "-o",
    "-O",
    "--output",
    "--out",
    "--outfile",
    "--output-file",
    "--output-document",
    "--output-dir",
    "--directory-prefix",
    "-P",
];

/// Subcommands of git that change the files that they name.
const GIT_WRITERS: &[&str] = &[
    "checkout",
    "restore",
    "rm",
    "mv",
    "clean",
    "stash",
    "worktree",
    "clone",
    "init",
    "submodule",
    "checkout-index",
    "config",
    "apply",
    "read-tree",
    "sparse-checkout",
];

/// Every path that a command is known to write to, in every directory that it may run in.
pub(super) fn find(
    name: &str,
    words: &[ShellWord],
    directories: &[ResolvedPath],
) -> Vec<WrittenPath> {
    let arguments = words.get(1..).unwrap_or_default();
    directories
        .iter()
        .flat_map(|directory| written_in(name, arguments, directory))
        .collect()
}

fn written_in(name: &str, arguments: &[ShellWord], directory: &ResolvedPath) -> Vec<WrittenPath> {
    let files = |word: &ShellWord| -> Vec<WrittenPath> {
        let paths = possible_paths(word, directory).into_iter();
        paths.map(WrittenPath::File).collect()
    };
    let trees = |word: &ShellWord| -> Vec<WrittenPath> {
        let paths = possible_paths(word, directory).into_iter();
        paths.map(WrittenPath::Tree).collect()
    };
    let mut found: Vec<WrittenPath> = Vec::new();
    if FILE_WRITERS.contains(&name) || (EDITORS.contains(&name) && edits_in_place(arguments)) {
        found.extend(arguments.iter().flat_map(files));
    }
    if TREE_WRITERS.contains(&name) {
        found.extend(arguments.iter().flat_map(trees));
    }
    if COPIERS.contains(&name) {
        found.extend(copied_to(name, arguments, directory));
    }
    match name {
        "dd" => {
            let output = |word: &ShellWord| Some(word.text().strip_prefix("of=")?.to_owned());
            let outputs = arguments.iter().filter_map(output);
            found.extend(outputs.map(|text| WrittenPath::File(path_of(&text, directory))));
        }
        "git" => found.extend(written_by_git(arguments, directory)),
        "find" if deletes_what_it_finds(arguments) => {
            found.extend(arguments.iter().flat_map(trees));
        }
        "tar" | "bsdtar" | "unzip" | "7z" | "cpio" => {
            found.extend(written_by_unpacking(arguments, directory));
        }
        _ => {}
    }
    found.extend(outputs(name, arguments, directory));
    found
}

fn path_of(text: &str, directory: &ResolvedPath) -> ResolvedPath {
    path_of_text(text, text.starts_with('~'), directory)
}

/// Whether a flag such as `-i`, `-ni` or `--in-place` says that files are changed.
fn edits_in_place(arguments: &[ShellWord]) -> bool {
    arguments.iter().any(|word| {
        let text = word.text();
        let letters = text.strip_prefix('-').unwrap_or_default();
        text.starts_with("--in-place")
            || text.starts_with("--inplace")
            || (!letters.starts_with('-') && letters.contains('i'))
    })
}

/// What a copy writes to: its last operand or the value of `-t`, and what gets the name of a source
/// in there.
fn copied_to(name: &str, arguments: &[ShellWord], directory: &ResolvedPath) -> Vec<WrittenPath> {
    let texts: Vec<String> = arguments.iter().map(ShellWord::text).collect();
    let mut operands: Vec<&str> = Vec::new();
    let mut target: Option<&str> = None;
    let mut whole_trees = !matches!(name, "cp" | "gcp" | "install" | "scp");
    let mut rest = texts.iter().map(String::as_str);
    while let Some(text) = rest.next() {
        match text {
            "-t" | "--target-directory" => target = rest.next(),
            _ if text.starts_with("--target-directory=") => {
                target = text.split_once('=').map(|(_, value)| value);
            }
            _ if text.starts_with("--") => whole_trees |= text != "--",
            _ if text.starts_with('-') => {
                whole_trees |= text.contains(['r', 'R', 'a', 'd']);
                let attached = text.split_once('t').map(|(_, value)| value);
                target = attached.filter(|value| !value.is_empty()).or(target);
            }
            _ => operands.push(text),
        }
    }
    if target.is_none() {
        target = operands.pop();
    }
    let Some(target) = target.map(|text| path_of(text, directory)) else {
        return Vec::new();
    };
    let kind = |path: ResolvedPath| match whole_trees {
        true => WrittenPath::Tree(path),
        false => WrittenPath::File(path),
    };
    let inside = operands.iter().map(|source| {
        let source = source.trim_end_matches('/');
        let last = source.rsplit('/').next().unwrap_or(source);
        kind(target.join(last))
    });
    std::iter::once(kind(target.clone()))
        .chain(inside)
        .collect()
}

fn written_by_git(arguments: &[ShellWord], directory: &ResolvedPath) -> Vec<WrittenPath> {
    let mut directory = directory.clone();
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let text = word.text();
        match text.as_str() {
            "-C" | "--work-tree" => {
                let value = rest.next().map(ShellWord::text).unwrap_or_default();
                directory = path_of(&value, &directory);
            }
            "-c" | "--git-dir" | "--namespace" | "--exec-path" => {
                rest.next();
            }
            _ if text.starts_with('-') => {}
            subcommand if GIT_WRITERS.contains(&subcommand) => break,
            _ => return Vec::new(),
        }
    }
    rest.flat_map(|word| possible_paths(word, &directory))
        .map(WrittenPath::Tree)
        .collect()
}

fn deletes_what_it_finds(arguments: &[ShellWord]) -> bool {
    let texts: Vec<String> = arguments.iter().map(ShellWord::text).collect();
    let runs_writer = texts.windows(2).any(|pair| {
        let program = pair[1].rsplit('/').next().unwrap_or_default();
        matches!(pair[0].as_str(), "-exec" | "-execdir" | "-ok" | "-okdir")
            && (FILE_WRITERS.contains(&program) || TREE_WRITERS.contains(&program))
    });
    runs_writer || texts.iter().any(|text| text == "-delete")
}

/// The directory that an archive is unpacked into.
fn written_by_unpacking(arguments: &[ShellWord], directory: &ResolvedPath) -> Vec<WrittenPath> {
    let flags = ["-C", "--directory", "-d", "--one-top-level", "-D"];
    let after = arguments
        .windows(2)
        .filter(|pair| flags.contains(&pair[0].text().as_str()))
        .map(|pair| pair[1].text());
    let attached = arguments.iter().filter_map(|word| {
        let text = word.text();
        let value = text
            .strip_prefix("--directory=")
            .or_else(|| text.strip_prefix("-C"))?;
        (!value.is_empty()).then(|| value.to_owned())
    });
    after
        .chain(attached)
        .map(|text| WrittenPath::Tree(path_of(&text, directory)))
        .collect()
}

/// The values of flags that name an output.
fn outputs(name: &str, arguments: &[ShellWord], directory: &ResolvedPath) -> Vec<WrittenPath> {
    if matches!(
        name,
        "grep" | "egrep" | "fgrep" | "rg" | "ag" | "ssh" | "ps"
    ) {
        return Vec::new();
    }
    let after = arguments.windows(2).filter_map(|pair| {
        let flag = pair[0].text();
        FLAGS_FOR_OUTPUT
            .contains(&flag.as_str())
            .then(|| pair[1].text())
    });
    let attached = arguments.iter().filter_map(|word| {
        let text = word.text();
        FLAGS_FOR_OUTPUT.iter().find_map(|flag| {
            let value = text.strip_prefix(flag)?.trim_start_matches('=');
            (!value.is_empty()).then(|| value.to_owned())
        })
    });
    after
        .chain(attached)
        .map(|text| WrittenPath::File(path_of(&text, directory)))
        .collect()
}
