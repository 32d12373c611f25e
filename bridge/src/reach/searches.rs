//! Which reads go through a directory, and whether everything that they find there may be shown.

use std::path::{Component, Path, PathBuf};

use pvp_policy::{EntryKind, is_secret_entry};

use super::real_path;

/// Entries of a directory, with all below it, that are looked at. A search through more is asked
/// about.
const MAX_ENTRIES: usize = 30_000;

/// What a search must not leave, besides the workspace.
const SYSTEM_PROGRAMS: &str = "/usr";

/// Which files a command reads that its words do not name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SearchedFiles {
    /// None.
    Nothing,
    /// Those in these directories, without those behind links.
    Directories(Vec<String>),
    /// Those behind links too, or those that another file lists.
    Unknown,
}

/// Options by which programs follow links, go through directories or take names from a file. An
/// option may be cut short.
const UNKNOWN_LONG: &[&str] = &[
    "--dereference",
    "--dereference-recursive",
    "--dereference-command-line",
    "--dereference-command-line-symlink-to-dir",
    "--dereference-args",
    "--files0-from",
    "--files-from",
    "--follow",
];

/// The shortest form of such an option.
const MIN_OPTION_BYTES: usize = 4;

/// The same in one letter, by program.
const UNKNOWN_SHORT: &[(&str, &[char])] = &[
    ("grep", &['R']),
    ("diff", &['r']),
    ("ls", &['L', 'H']),
    ("du", &['L', 'H', 'D']),
    ("stat", &['L']),
    ("file", &['L', 'f']),
    ("find", &['L', 'H']),
];

/// What makes `find` read what it finds, or follow links.
const UNKNOWN_FIND: &[&str] = &[
    "-follow",
    "-exec",
    "-execdir",
    "-ok",
    "-okdir",
    "-files0-from",
];

/// Options of `grep` that take the next word, if nothing is attached.
const GREP_VALUES_LONG: &[&str] = &[
    "--regexp",
    "--file",
    "--max-count",
    "--after-context",
    "--before-context",
    "--context",
    "--directories",
    "--devices",
    "--label",
    "--include",
    "--exclude",
    "--exclude-from",
    "--exclude-dir",
    "--binary-files",
    "--group-separator",
];

const GREP_VALUES_SHORT: &[char] = &['e', 'f', 'm', 'A', 'B', 'C', 'd', 'D'];

/// Other long options of `grep`.
const GREP_OTHERS: &[&str] = &[
    "--basic-regexp",
    "--byte-offset",
    "--color",
    "--colour",
    "--count",
    "--extended-regexp",
    "--files-with-matches",
    "--files-without-match",
    "--fixed-strings",
    "--ignore-case",
    "--initial-tab",
    "--invert-match",
    "--line-number",
    "--line-regexp",
    "--no-filename",
    "--no-ignore-case",
    "--no-messages",
    "--null",
    "--null-data",
    "--only-matching",
    "--perl-regexp",
    "--quiet",
    "--recursive",
    "--silent",
    "--text",
    "--unix-byte-offsets",
    "--with-filename",
    "--word-regexp",
];

/// What a command with these words reads besides what they name. `is_directory` tells whether a
/// word names a directory.
pub(super) fn search_of(words: &[&str], is_directory: impl Fn(&str) -> bool) -> SearchedFiles {
    let Some((&program, arguments)) = words.split_first() else {
        return SearchedFiles::Unknown;
    };
    let is_unknown = |word: &&str| match word.strip_prefix("--") {
        Some(_) => {
            let name = word.split('=').next().unwrap_or(word);
            name.len() >= MIN_OPTION_BYTES
                && UNKNOWN_LONG.iter().any(|option| option.starts_with(name))
        }
        None if program == "find" => UNKNOWN_FIND.contains(word) || ["-L", "-H"].contains(word),
        None => {
            let letters = UNKNOWN_SHORT.iter().find(|(name, _)| *name == program);
            word.starts_with('-') && letters.is_some_and(|(_, all)| word.contains(*all))
        }
    };
    if arguments.iter().any(is_unknown) {
        return SearchedFiles::Unknown;
    }
    match program {
        "diff" if is_recursive_diff(arguments, is_directory) => SearchedFiles::Unknown,
        "grep" => grep_search(arguments),
        _ => SearchedFiles::Nothing,
    }
}

/// `diff` follows links in the directories that it compares.
fn is_recursive_diff(arguments: &[&str], is_directory: impl Fn(&str) -> bool) -> bool {
    let recursive =
        |word: &&str| word.len() >= MIN_OPTION_BYTES && "--recursive".starts_with(*word);
    let value = |word: &str| word.rsplit('=').next().is_some_and(&is_directory);
    arguments
        .iter()
        .any(|word| recursive(word) || is_directory(word) || value(word))
}

/// What `grep` searches if it is told to go through directories.
fn grep_search(arguments: &[&str]) -> SearchedFiles {
    let (mut recursive, mut has_pattern, mut only_operands) = (false, false, false);
    let mut operands = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(&word) = arguments.next() {
        if only_operands || !word.starts_with('-') || word == "-" {
            operands.push(word.to_owned());
            continue;
        }
        if word == "--" {
            only_operands = true;
            continue;
        }
        let (option, value) = match word.strip_prefix("--") {
            Some(_) => match word.split_once('=') {
                Some((option, value)) => (option.to_owned(), Some(value)),
                None if GREP_VALUES_LONG.contains(&word) => {
                    (word.to_owned(), arguments.next().copied())
                }
                None => (word.to_owned(), None),
            },
            None => {
                let letters = &word[1..];
                let at = letters.find(GREP_VALUES_SHORT);
                let flags = &letters[..at.unwrap_or(letters.len())];
                recursive |= flags.contains('r');
                match at {
                    None => continue,
                    Some(at) => {
                        let attached = &letters[at + 1..];
                        let value = match attached.is_empty() {
                            true => arguments.next().copied(),
                            false => Some(attached),
                        };
                        (format!("-{}", &letters[at..=at]), value)
                    }
                }
            }
        };
        match option.as_str() {
            "-e" | "-f" | "--regexp" | "--file" => has_pattern = true,
            // `skip` and `read` may be cut short too, so only one of them is certain.
            "-d" | "--directories" => recursive |= value != Some("skip"),
            "--recursive" => recursive = true,
            short if !short.starts_with("--") => {}
            known if GREP_VALUES_LONG.contains(&known) || GREP_OTHERS.contains(&known) => {}
            // An option that is cut short may be any.
            _ => return SearchedFiles::Unknown,
        }
    }
    if !recursive {
        return SearchedFiles::Nothing;
    }
    if !has_pattern && !operands.is_empty() {
        operands.remove(0);
    }
    if operands.is_empty() {
        operands.push(".".to_owned());
    }
    SearchedFiles::Directories(operands)
}

/// What a search leaves out by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeavesOut {
    Nothing,
    /// What git keeps in `.git`.
    Git,
}

/// Whether everything in a directory may be shown to everybody: no file that usually holds secrets,
/// and no link that leads out of it. A file is what its own name says.
pub(super) fn is_public_tree(root: &Path, workspace: &Path, leaves_out: LeavesOut) -> bool {
    let Some(root) = real_path(root) else {
        return false;
    };
    let is_near = root.starts_with(workspace) || root.starts_with(SYSTEM_PROGRAMS);
    if !is_near || is_in_git(&root) {
        return false;
    }
    let mut left = MAX_ENTRIES;
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        match check_entries(&directory, &root, leaves_out, &mut left) {
            Some(below) => directories.extend(below),
            None => return false,
        }
    }
    true
}

/// The directories in a directory, if all of its entries may be shown.
fn check_entries(
    directory: &Path,
    root: &Path,
    leaves_out: LeavesOut,
    left: &mut usize,
) -> Option<Vec<PathBuf>> {
    if !directory.is_dir() {
        return Some(Vec::new());
    }
    let parent = directory.file_name().unwrap_or_default().to_string_lossy();
    let mut below = Vec::new();
    for entry in directory.read_dir().ok()? {
        let entry = entry.ok()?;
        *left = left.checked_sub(1)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name == ".git" {
            match leaves_out {
                LeavesOut::Git => continue,
                LeavesOut::Nothing => return None,
            }
        }
        let kind = entry.file_type().ok()?;
        let entry_kind = match kind.is_dir() {
            true => EntryKind::Directory,
            false => EntryKind::File,
        };
        if is_secret_entry(&parent, &name, entry_kind) {
            return None;
        }
        if kind.is_symlink() {
            let real = real_path(&entry.path())?;
            if !real.starts_with(root) || is_in_git(&real) {
                return None;
            }
        } else if kind.is_dir() {
            below.push(entry.path());
        }
    }
    Some(below)
}

fn is_in_git(path: &Path) -> bool {
    path.components()
        .any(|part| part == Component::Normal(".git".as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(line: &str) -> SearchedFiles {
        let words: Vec<_> = line.split(' ').collect();
        search_of(&words, |word| ["src", "other"].contains(&word))
    }

    #[test]
    fn what_follows_links_or_takes_names_from_a_file_is_not_known() {
        for line in [
            "grep -R . .",
            "grep -inR x src",
            "grep --dereference-recursive x",
            "grep --deref x",
            "grep --recurs x",
            "diff -r a b",
            "diff -ur a b",
            "diff --recursive a b",
            "diff --rec a b",
            "diff src other",
            "diff --from-file=src a",
            "ls -L",
            "ls -lH x",
            "ls --dereference",
            "du -L",
            "du -shL .",
            "du --files0-from=F",
            "wc --files0-from=F",
            "wc --files0=F",
            "sort --files0-from F",
            "file -f F",
            "file --files-from F",
            "file -L x",
            "stat -L x",
            "find -L .",
            "find . -follow",
            "find . -name x -exec cat {} +",
            "find -files0-from F",
        ] {
            assert_eq!(search(line), SearchedFiles::Unknown, "{line}");
        }
        for line in [
            "grep x a.txt",
            "ls -lR",
            "find . -name x",
            "du -sh .",
            "diff -u a b",
            "wc -l x",
            "cat x",
            "stat x",
            "file x",
            "sort -r x",
            "tail -n 3 x",
        ] {
            assert_eq!(search(line), SearchedFiles::Nothing, "{line}");
        }
    }

    #[test]
    fn what_grep_goes_through_is_what_it_is_given_or_the_directory() {
        for (line, directories) in [
            ("grep -r x", "."),
            ("grep -rn x src", "src"),
            ("grep -r x src other", "src other"),
            ("grep --recursive x src", "src"),
            ("grep -d recurse x src", "src"),
            ("grep -drecurse x src", "src"),
            ("grep --directories=recurse x src", "src"),
            ("grep --directories rec x src", "src"),
            ("grep -r -A 3 src", "."),
            ("grep -rA 3 x src", "src"),
            ("grep -rA3 x src", "src"),
            ("grep -re x src", "src"),
            ("grep -r -e x", "."),
            ("grep -r --include *.c x", "."),
            ("grep -r --include=*.c x src", "src"),
            ("grep -r -- -x src", "src"),
            ("grep x src -r", "src"),
        ] {
            let expected = directories.split(' ').map(str::to_owned).collect();
            assert_eq!(search(line), SearchedFiles::Directories(expected), "{line}");
        }
    }
}
