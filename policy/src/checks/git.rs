//! Checks which content of a repository a git command would show.

use crate::paths::{PathRoot, ResolvedPath};
use crate::read_rules::CheckedArguments;
use crate::word::ShellWord;

/// Flags that make `git log` show content.
const PATCH_FLAGS: &[&str] = &[
    "p",
    "u",
    "c",
    "m",
    "W",
    "U",
    "L",
    "patch",
    "patch-with-stat",
    "cc",
    "unified",
    "function-context",
    "word-diff",
    "color-words",
    "check",
];

/// Flags that make `git show` go through the history.
const HISTORY_FLAGS: &[&str] = &[
    "all",
    "branches",
    "tags",
    "remotes",
    "glob",
    "walk-reflogs",
    "do-walk",
];

/// Refuses the patches of a whole history: it holds whatever was ever committed, and removed since.
pub(super) fn check_log(checked: &mut CheckedArguments) -> Result<(), String> {
    // `-L` shows only the lines of the file that it names.
    let lines = |flag: &&&str| **flag != "L";
    let mut flags = PATCH_FLAGS.iter().filter(lines);
    let shows_content = flags.any(|flag| checked.has_flag(flag));
    if shows_content && !is_limited_to_paths(checked) {
        return Err(all_content());
    }
    Ok(())
}

/// Refuses the same of `git show`, which otherwise shows one commit.
pub(super) fn check_show(checked: &mut CheckedArguments) -> Result<(), String> {
    let range = |word: &ShellWord| word.text().contains("..") || word.text().starts_with('^');
    let history = checked.operands.iter().any(range)
        || HISTORY_FLAGS.iter().any(|flag| checked.has_flag(flag));
    if history && !is_limited_to_paths(checked) {
        return Err(all_content());
    }
    Ok(())
}

/// Refuses to print an object of which only the id is known: it may be the content of any file.
pub(super) fn check_cat_file(checked: &mut CheckedArguments) -> Result<(), String> {
    let named = |word: &ShellWord| {
        let text = word.text();
        text.contains(':')
            || text.starts_with("HEAD")
            || ["^{commit}", "^{tree}"]
                .iter()
                .any(|end| text.ends_with(end))
    };
    if checked.has_flag("p") && !checked.operands.iter().all(named) {
        return Err("an object's id does not tell which file it is".to_owned());
    }
    Ok(())
}

/// Whether there are paths after `--`, and none of them is everything.
fn is_limited_to_paths(checked: &CheckedArguments) -> bool {
    let limits = |word: &ShellWord| {
        let text = word.text();
        let path = ResolvedPath::new(PathRoot::Workspace).join(&text);
        !text.starts_with(':') && !text.contains(['*', '?', '[']) && !path.components.is_empty()
    };
    !checked.after_separator.is_empty() && checked.after_separator.iter().all(limits)
}

fn all_content() -> String {
    "the patches of a history may hold secrets; name paths after `--`".to_owned()
}
