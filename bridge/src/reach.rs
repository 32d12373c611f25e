//! What a client's call reaches on this machine that its words do not show: links that lead
//! elsewhere, and reads that are safe only in a sandbox, which a client does not have.
//!
//! The policy judges words. A link in the workspace gives a guarded file another name, so such a
//! call is refused and the agent is told to use the real one, about which people then decide. Where
//! a call reads, it is let run unasked only if it starts nothing that a repository can configure.

use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use pvp_client::user_directories::private_paths;
use pvp_policy::{ExpectedWord, Policy, Workspace};
use pvp_protocol::{Action, Category, FILE_READ, FILE_WRITE, JsonObject};
use serde_json::Value;

use crate::translation::TranslatedCall;

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

/// Characters that end a word of a command line, for finding names in it.
const BETWEEN_WORDS: &[char] = &[
    ' ', '\t', '\n', '\r', ';', '|', '&', '<', '>', '(', ')', '`', '"', '\'', '=', '{', '}', ',',
    ':', '\\',
];

/// Words of a call that are looked at; a call with more is asked about.
const MAX_WORDS: usize = 2000;

/// Bytes of a word that may be a path.
const MAX_WORD_BYTES: usize = 4096;

static POLICY: LazyLock<Policy> = LazyLock::new(Policy::built_in);

/// Looks at what a call reaches. `workspace` is an absolute path without links.
pub fn check(call: &TranslatedCall, workspace: &Path) -> CallReach {
    let cwd = call.arguments.get("cwd").and_then(Value::as_str);
    let cwd = cwd.map_or_else(|| workspace.to_owned(), |cwd| workspace.join(cwd));
    let words = words_of(call);
    if words.len() > MAX_WORDS {
        return CallReach::Ask;
    }
    let mut reach = CallReach::AsShown;
    for word in &words {
        match check_word(word, &cwd, workspace) {
            CallReach::AsShown => {}
            CallReach::Ask => reach = CallReach::Ask,
            refused @ CallReach::Refused(_) => return refused,
        }
    }
    match reach == CallReach::AsShown && !is_plain_read(call, &cwd, workspace) {
        true => CallReach::Ask,
        false => reach,
    }
}

/// Everything in a call that may be the name of a file.
fn words_of(call: &TranslatedCall) -> Vec<String> {
    let mut words = Vec::new();
    match call.arguments.get("full_command").and_then(Value::as_str) {
        Some(line) => words.extend(line.split(BETWEEN_WORDS).map(str::to_owned)),
        None => collect_texts(&Value::Object(call.arguments.clone()), &mut words),
    }
    words.retain(|word| !word.is_empty() && word.len() <= MAX_WORD_BYTES);
    words
}

fn collect_texts(value: &Value, words: &mut Vec<String>) {
    if words.len() > MAX_WORDS {
        return;
    }
    match value {
        Value::String(text) if !text.contains('\n') => words.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, words)),
        Value::Object(fields) => fields
            .values()
            .for_each(|field| collect_texts(field, words)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check_word(word: &str, cwd: &Path, workspace: &Path) -> CallReach {
    let path = cwd.join(named_path(word));
    let named = without_dots(&path);
    // A step up from behind a link leads elsewhere than the words say.
    let Some(real) = real_path(&path) else {
        return CallReach::Ask;
    };
    if real == named {
        return CallReach::AsShown;
    }
    let shown = Workspace {
        directory: workspace.to_str().map(str::to_owned),
        ..Workspace::default()
    };
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
            "Not allowed: `{word}` leads through a link to `{}`, which agents may not touch. \
             Nothing was done.",
            real.display()
        ));
    }
    match read.category == Category::Read && real.starts_with(workspace) {
        true => CallReach::AsShown,
        false => CallReach::Ask,
    }
}

/// The path that a word names, as far as it is certain: up to a pattern, with the home in place of
/// its short names.
fn named_path(word: &str) -> PathBuf {
    let home = std::env::var("HOME").unwrap_or_default();
    let word = match word {
        "~" | "$HOME" => home,
        word => match word.strip_prefix("~/").or(word.strip_prefix("$HOME/")) {
            Some(rest) => format!("{home}/{rest}"),
            None => word.to_owned(),
        },
    };
    let is_certain = |part: &Component<'_>| {
        let text = part.as_os_str().to_string_lossy();
        !text.contains(['*', '?', '[', '$'])
    };
    Path::new(&word)
        .components()
        .take_while(is_certain)
        .collect()
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

/// Whether a call that reads does so by itself: it runs no program that a repository can make do
/// something else, and looks through no tree that holds what belongs to PVP. What does not read is
/// asked about anyway.
fn is_plain_read(call: &TranslatedCall, cwd: &Path, workspace: &Path) -> bool {
    let holds_private = private_paths()
        .iter()
        .any(|private| private.starts_with(workspace));
    if call.tool_name != "shell" {
        let one_file = call.arguments.get("path").and_then(Value::as_str);
        return one_file.is_some_and(|path| cwd.join(path).is_file()) || !holds_private;
    }
    let Ok(action) = Action::from_arguments(&call.tool_name, &call.arguments) else {
        return false;
    };
    let shown = Workspace {
        directory: workspace.to_str().map(str::to_owned),
        ..Workspace::default()
    };
    let explained = POLICY.explain(&action, &shown);
    let is_plain = |words: &Vec<ExpectedWord>| {
        let reader = matches!(words.first(), Some(ExpectedWord::Exact(name))
            if PLAIN_READERS.contains(&name.as_str()));
        // What a pattern stands for may be a link.
        reader
            && words
                .iter()
                .all(|word| matches!(word, ExpectedWord::Exact(_)))
    };
    !holds_private && explained.read_commands.iter().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translation::{CallPlace, translate};
    use serde_json::json;

    struct LinkFixture {
        /// Removed when dropped.
        _root: tempfile::TempDir,
        workspace: PathBuf,
    }

    impl LinkFixture {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let base = root.path().canonicalize().unwrap();
            let workspace = base.join("w");
            for directory in ["w/src", "home/.claude", "other"] {
                std::fs::create_dir_all(base.join(directory)).unwrap();
            }
            std::fs::write(base.join("home/.claude/settings.json"), "{}").unwrap();
            std::fs::write(workspace.join("src/a.txt"), "a").unwrap();
            let link = |to: PathBuf, name: &str| {
                std::os::unix::fs::symlink(to, workspace.join(name)).unwrap();
            };
            link(base.join("home/.claude/settings.json"), "cfg");
            link(base.join("home/.claude"), "cdir");
            link(base.join("home/.claude/settings.local.json"), "later");
            link(base.join("other"), "away");
            link("src/a.txt".into(), "near");
            Self {
                _root: root,
                workspace,
            }
        }

        fn check(&self, tool: &str, input: Value) -> CallReach {
            let place = CallPlace {
                workspace: self.workspace.clone(),
                cwd: self.workspace.clone(),
            };
            let call = translate(tool, input.as_object().unwrap(), &place);
            check(&call, &self.workspace)
        }

        fn line(&self, line: &str) -> CallReach {
            self.check("Bash", json!({ "command": line }))
        }
    }

    #[test]
    fn a_guarded_file_has_no_other_name() {
        let fixture = LinkFixture::new();
        for line in [
            "echo x > cdir/settings.json",
            "cp a cfg",
            "tee ./src/../cdir/settings.json",
            "echo x >later",
            "cat \"cdir/settings.json\"",
            "dd of=cfg",
            "cat cdir/*.json cdir/settings.json",
        ] {
            assert!(
                matches!(fixture.line(line), CallReach::Refused(_)),
                "{line}"
            );
        }
        for (tool, input) in [
            ("Write", json!({ "file_path": "cfg", "content": "" })),
            (
                "Edit",
                json!({ "file_path": "cdir/settings.json", "old_string": "a", "new_string": "b" }),
            ),
            (
                "Read",
                json!({ "file_path": fixture.workspace.join("cfg") }),
            ),
            (
                "mcp__files__write",
                json!({ "where": { "to": ["cdir/settings.json"] } }),
            ),
        ] {
            assert!(
                matches!(fixture.check(tool, input), CallReach::Refused(_)),
                "{tool}"
            );
        }
    }

    #[test]
    fn a_link_out_of_the_workspace_is_asked_about_and_one_inside_is_not() {
        let fixture = LinkFixture::new();
        for line in [
            "cat away/x",
            "ls away",
            "cat away/*",
            "cat away/../x",
            "cat src/../away/none/../y",
        ] {
            assert_eq!(fixture.line(line), CallReach::Ask, "{line}");
        }
        for line in ["cat near", "cat src/a.txt", "ls", "pwd", "ls src | head -3"] {
            assert_eq!(fixture.line(line), CallReach::AsShown, "{line}");
        }
        let near = json!({ "file_path": fixture.workspace.join("near") });
        assert_eq!(fixture.check("Read", near), CallReach::AsShown);
    }

    #[test]
    fn what_a_repository_can_configure_is_no_plain_read() {
        let fixture = LinkFixture::new();
        for line in [
            "git status",
            "git -C vendor/x status",
            "cargo --version",
            "docker ps",
            "cat src/*",
        ] {
            assert_eq!(fixture.line(line), CallReach::Ask, "{line}");
        }
    }
}
