//! What a client's call reaches on this machine that its words do not show: links that lead
//! elsewhere, and reads that are safe only in a sandbox, which a client does not have.
//!
//! The policy judges words. A link in the workspace gives a guarded file another name, so such a
//! call is refused and the agent is told to use the real one, about which people then decide. Where
//! a call reads, it is let run unasked only if it starts nothing that a repository can configure.

mod names;
mod searches;

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use pvp_client::user_directories::private_paths;
use pvp_policy::{
    ExpectedWord, Explanation, FileUse, Policy, Workspace, file_use, patched_paths,
    searches_content,
};
use pvp_protocol::{Action, Category, FILE_READ, FILE_WRITE, JsonObject, text_arguments};
use serde_json::Value;

use crate::translation::TranslatedCall;
use names::{NamesInCall, in_home};
use searches::{LeavesOut, SearchedFiles, is_public_tree, search_of};

/// What was found about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallReach {
    /// It reaches what its words say.
    AsShown,
    /// People must be asked, even if the policy would let it run.
    Ask,
    /// It must not run; the agent reads why.
    Refused(String),
}

/// Programs that read what they are given and start nothing, whatever a repository contains.
const PLAIN_READERS: &[&str] = &[
    "[", "basename", "cat", "cmp", "comm", "cut", "date", "diff", "dirname", "du", "echo", "expr",
    "false", "file", "find", "grep", "head", "id", "ls", "nl", "printf", "pwd", "realpath", "seq",
    "sort", "stat", "tail", "test", "tr", "true", "uniq", "wc", "whoami",
];

/// The search of Claude Code, which never looks into `.git`.
const CLAUDE_SEARCH: &str = "Grep";

static POLICY: LazyLock<Policy> = LazyLock::new(Policy::built_in);

/// Looks at what a call reaches. `workspace` is an absolute path without links.
pub fn check(call: &TranslatedCall, workspace: &Path) -> CallReach {
    if let Some(why) = misplaced_patch(call) {
        return CallReach::Refused(why);
    }
    let here = call.made_in.as_deref().unwrap_or(workspace);
    let cwd = call.arguments.get("cwd").and_then(Value::as_str);
    let cwd = cwd.map_or_else(|| here.to_owned(), |cwd| here.join(cwd));
    let explained = explain(call, workspace);
    let words = explained.as_ref().map(|it| it.named_words.as_slice());
    let names = NamesInCall::new(call, words.unwrap_or_default(), &cwd);
    let mut reach = match names.is_incomplete {
        true => CallReach::Ask,
        false => CallReach::AsShown,
    };
    for (directory, name) in &names.names {
        match check_name(name, directory, workspace) {
            CallReach::AsShown => {}
            CallReach::Ask => reach = CallReach::Ask,
            refused @ CallReach::Refused(_) => return refused,
        }
    }
    let is_plain = || match &explained {
        Some(explained) if call.tool_name == "shell" => is_plain_line(explained, &names, workspace),
        Some(_) => is_plain_call(call, &cwd, workspace),
        None => false,
    };
    match reach == CallReach::AsShown && !is_plain() {
        true => CallReach::Ask,
        false => reach,
    }
}

/// Why a patch is refused that names files from another directory than the workspace: everybody who
/// decides about it would take them for others.
fn misplaced_patch(call: &TranslatedCall) -> Option<String> {
    let directory = call.made_in.as_ref()?.display();
    let patches = file_use(&call.tool_name) == Some(FileUse::Patches);
    let texts = text_arguments(&call.arguments);
    let mut paths = texts.iter().flat_map(|text| patched_paths(text));
    let path = paths.find(|path| patches && !path.starts_with('/'))?;
    Some(format!(
        "Not allowed: the patch names `{path}` from {directory}, and people see it from the directory \
         of the session. Name the file by its whole path. Nothing was done."
    ))
}

/// What the policy finds in a call; `None` if it is none that the server would take.
fn explain(call: &TranslatedCall, workspace: &Path) -> Option<Explanation> {
    let action = Action::from_arguments(&call.tool_name, &call.arguments).ok()?;
    Some(POLICY.explain(&action, &shown_workspace(workspace)))
}

fn shown_workspace(workspace: &Path) -> Workspace {
    Workspace {
        directory: workspace.to_str().map(str::to_owned),
        ..Workspace::default()
    }
}

/// A name in every meaning that it may have: what was quoted in it is not known, so its `~` may be
/// the home, and its `*` and `$` may be plain characters.
fn check_name(name: &str, directory: &Path, workspace: &Path) -> CallReach {
    let (plain, in_home) = (Path::new(name), in_home(name));
    let paths = [plain, &in_home].map(|path| [path.to_owned(), certain_part(path)]);
    let paths: BTreeSet<_> = paths.into_iter().flatten().collect();
    let mut reach = CallReach::AsShown;
    for path in paths {
        match check_path(name, &directory.join(path), workspace) {
            CallReach::AsShown => {}
            CallReach::Ask => reach = CallReach::Ask,
            refused @ CallReach::Refused(_) => return refused,
        }
    }
    reach
}

fn check_path(name: &str, path: &Path, workspace: &Path) -> CallReach {
    let named = without_dots(path);
    // A step up from behind a link leads elsewhere than the words say.
    let Some(real) = real_path(path) else {
        return CallReach::Ask;
    };
    if real == named {
        return CallReach::AsShown;
    }
    let shown = shown_workspace(workspace);
    let category = |tool: &str| {
        let path = real.to_string_lossy().into_owned();
        let mut arguments = JsonObject::from_iter([("path".to_owned(), path.into())]);
        arguments.insert("content".to_owned(), "".into());
        if tool == FILE_READ {
            arguments.remove("content");
        }
        POLICY.assess(&Action::from_tool_call(tool, &arguments), &shown)
    };
    let (read, write) = (category(FILE_READ), category(FILE_WRITE));
    if read.category == Category::Blocked || write.category == Category::Blocked {
        return CallReach::Refused(format!(
            "Not allowed: `{name}` leads through a link to `{}`, which agents may not touch. \
             Nothing was done.",
            real.display()
        ));
    }
    let steps_up = path.components().any(|part| part == Component::ParentDir);
    match read.category == Category::Read && real.starts_with(workspace) && !steps_up {
        true => CallReach::AsShown,
        false => CallReach::Ask,
    }
}

/// The path as far as it is certain: up to a pattern, or to what only the shell knows.
fn certain_part(path: &Path) -> PathBuf {
    let is_certain = |part: &Component<'_>| {
        let text = part.as_os_str().to_string_lossy();
        !text.contains(['*', '?', '[', '$'])
    };
    path.components().take_while(is_certain).collect()
}

/// A path without `.` and `..`, by its words alone.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}

/// Where a path leads: the deepest part of it that exists, without links, and the rest.
fn real_path(path: &Path) -> Option<PathBuf> {
    let mut missing = Vec::new();
    let mut existing = path;
    loop {
        if let Ok(real) = existing.canonicalize() {
            return Some(
                missing
                    .iter()
                    .rev()
                    .fold(real, |real, part| real.join(part)),
            );
        }
        // A link that leads nowhere yet leads somewhere once it is written through.
        if let Ok(target) = existing.read_link() {
            let parent = existing.parent()?.canonicalize().ok()?;
            let real = without_dots(&parent.join(target));
            return Some(
                missing
                    .iter()
                    .rev()
                    .fold(real, |real, part| real.join(part)),
            );
        }
        missing.push(existing.file_name()?.to_owned());
        existing = existing.parent()?;
    }
}

/// Whether a call that reads, and that is no command line, shows nothing but the file that it names,
/// names of files, or what a directory without secrets holds. What does not read is asked about
/// anyway.
fn is_plain_call(call: &TranslatedCall, cwd: &Path, workspace: &Path) -> bool {
    let path = call.arguments.get("path").and_then(Value::as_str);
    if path.is_some_and(|path| cwd.join(path).is_file()) {
        return true;
    }
    if holds_private(workspace) {
        return false;
    }
    let leaves_out = match call.tool_name == CLAUDE_SEARCH {
        true => LeavesOut::Git,
        false => LeavesOut::Nothing,
    };
    let root = cwd.join(path.unwrap_or("."));
    !searches_content(&call.tool_name) || is_public_tree(&root, workspace, leaves_out)
}

/// Whether a command line that reads does so by itself: it runs no program that a repository can
/// make do something else, and reads only what its words name, or what a directory without secrets
/// holds. What does not read is asked about anyway.
fn is_plain_line(explained: &Explanation, names: &NamesInCall, workspace: &Path) -> bool {
    let is_plain = |words: &Vec<ExpectedWord>| {
        // What a pattern stands for may be a link.
        let exact = words.iter().map(|word| match word {
            ExpectedWord::Exact(text) => Some(text.as_str()),
            ExpectedWord::Pattern(_) | ExpectedWord::Unknown => None,
        });
        let words: Option<Vec<&str>> = exact.collect();
        words.is_some_and(|words| is_plain_reader(&words, names, workspace))
    };
    !holds_private(workspace) && explained.read_commands.iter().all(is_plain)
}

fn is_plain_reader(words: &[&str], names: &NamesInCall, workspace: &Path) -> bool {
    let is_known = words
        .first()
        .is_some_and(|name| PLAIN_READERS.contains(name));
    let places = |word: &str| {
        let path = PathBuf::from(word);
        names.directories.iter().map(move |it| it.join(&path))
    };
    let is_directory = |word: &str| places(word).any(|place| place.is_dir());
    let is_public = |place: PathBuf| is_public_tree(&place, workspace, LeavesOut::Nothing);
    is_known
        && match search_of(words, is_directory) {
            SearchedFiles::Nothing => true,
            SearchedFiles::Directories(operands) => {
                let mut operands = operands.iter();
                operands.all(|operand| places(operand).all(is_public))
            }
            SearchedFiles::Unknown => false,
        }
}

/// Whether what belongs to PVP is below the workspace.
fn holds_private(workspace: &Path) -> bool {
    private_paths()
        .iter()
        .any(|private| private.starts_with(workspace))
}

#[cfg(test)]
mod tests;
