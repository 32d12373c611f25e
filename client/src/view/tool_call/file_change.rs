//! The change of a file that a tool call makes, as far as its arguments tell it.
//!
//! An argument means something here only if the tool is named like one that takes it, and if no
//! second argument could mean the same: otherwise people would read one text, and the tool might use
//! another.

use pvp_protocol::payload::FileContent;
use pvp_protocol::{BoundFile, JsonObject};
use serde::Serialize;
use serde_json::Value;

use super::super::diff::{self, DiffHunk, DiffLineKind, DiffScope, LineDiff};
use super::super::text::{TextBudget, count_invisible, escape_invisible, truncate_line};
use super::headline::MAX_PATH_BYTES;
use crate::narrate::pluralize;

const PATH_KEYS: &[&str] = &["path", "file_path", "filename", "file"];
const CONTENT_KEYS: &[&str] = &["content", "contents", "text", "new_content", "file_text"];
const OLD_KEYS: &[&str] = &["old_text", "old_string", "oldText", "old_str"];
const NEW_KEYS: &[&str] = &["new_text", "new_string", "newText", "new_str"];

/// Words in the names of tools that write a file as a whole.
const WRITE_WORDS: &[&str] = &["write", "create", "save", "overwrite"];

/// Words in the names of tools that replace parts of a file.
const EDIT_WORDS: &[&str] = &["edit", "multiedit", "replace", "update", "modify"];

/// Words in the names of tools that keep what is in a file, or do something else with the text.
const OTHER_WORDS: &[&str] = &["append", "prepend", "insert", "delete", "move", "rename"];

/// What a change is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeBasis {
    /// The present content, which came with the proposal and has the hash that the call binds.
    PresentContent,
    /// Nothing: the call binds that there is no such file.
    NewFile,
    /// Nothing: the present content is not known.
    Unknown,
    /// The text to replace, which the call names itself.
    ReplacedText,
    /// Nothing: the present content of the cell is not known.
    NotebookCell,
}

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileChangeView {
    /// The path, with invisible characters escaped.
    pub path: String,
    /// The path verbatim.
    #[serde(skip)]
    pub(super) raw_path: String,
    /// What the change is compared with.
    pub basis: ChangeBasis,
    /// Lines added.
    pub added: u64,
    /// Lines removed.
    pub removed: u64,
    /// The changes.
    pub hunks: Vec<DiffHunk>,
    /// What is known about the text to replace, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl FileChangeView {
    /// What the change is compared with, in words.
    pub fn basis_text(&self) -> &'static str {
        match self.basis {
            ChangeBasis::PresentContent => {
                "compared with the present content; the call does not start if that has changed"
            }
            ChangeBasis::NewFile => "a new file; the call does not start if it exists by then",
            ChangeBasis::Unknown => {
                "the present content is not known; all of the new content is shown as added"
            }
            ChangeBasis::ReplacedText => "the text to replace, and what replaces it",
            ChangeBasis::NotebookCell => {
                "the present content of the cell is not known; its new source is shown as added"
            }
        }
    }
}

/// A change, and the arguments that it shows completely.
pub(super) struct FoundChange {
    pub(super) change: FileChangeView,
    pub(super) shown_keys: Vec<&'static str>,
}

/// The change that a call makes; `None` if its arguments do not tell.
pub(super) fn find(
    tool: &str,
    arguments: &JsonObject,
    files: &[BoundFile],
    contents: &[FileContent],
    budget: &mut TextBudget,
) -> Option<FoundChange> {
    let words = name_words(tool);
    let has = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
    if has(OTHER_WORDS) {
        return None;
    }
    let mut finder = ChangeFinder {
        arguments,
        files,
        contents,
        budget,
    };
    if has(&["notebook"]) && has(EDIT_WORDS) {
        return finder.notebook_cell();
    }
    if has(EDIT_WORDS) {
        return finder.edits().or_else(|| finder.edit());
    }
    if has(WRITE_WORDS) {
        return finder.write();
    }
    None
}

/// The words of a tool's name, in lower case: `NotebookEdit` and `notebook_edit` have the same.
fn name_words(tool: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for c in tool.chars().take(200) {
        let starts_word = !c.is_alphanumeric() || (c.is_uppercase() && after_lower);
        if starts_word {
            words.push(String::new());
        }
        after_lower = c.is_lowercase();
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The only one of these arguments that is given, if it is a text.
fn only_text<'a>(
    arguments: &'a JsonObject,
    keys: &[&'static str],
) -> Option<(&'static str, &'a str)> {
    let mut given = keys.iter().filter(|key| arguments.contains_key(**key));
    let key = *given.next()?;
    let text = arguments.get(key)?.as_str()?;
    given.next().is_none().then_some((key, text))
}

/// What is known of a file before the call.
enum OldContent<'a> {
    Text(&'a str),
    NoFile,
    Unknown,
}

struct ChangeFinder<'a> {
    arguments: &'a JsonObject,
    files: &'a [BoundFile],
    contents: &'a [FileContent],
    budget: &'a mut TextBudget,
}

impl<'a> ChangeFinder<'a> {
    /// A file written as a whole.
    fn write(&mut self) -> Option<FoundChange> {
        let (path_key, path) = only_text(self.arguments, PATH_KEYS)?;
        let (content_key, content) = only_text(self.arguments, CONTENT_KEYS)?;
        if self.adds_to_file() {
            return None;
        }
        let (basis, old) = match self.old_content(path) {
            OldContent::Text(text) => (ChangeBasis::PresentContent, text),
            OldContent::NoFile => (ChangeBasis::NewFile, ""),
            OldContent::Unknown => (ChangeBasis::Unknown, ""),
        };
        let diff = diff::compare(old, content, DiffScope::WholeFile, self.budget);
        let note = unchanged_note(&diff);
        let mut found = self.found(path_key, path, basis, diff, vec![content_key]);
        found.change.notes.extend(note);
        Some(found)
    }

    /// Whether an argument says that the file keeps its content.
    fn adds_to_file(&self) -> bool {
        let adds = |value: &Value| match value {
            Value::Bool(adds) => *adds,
            Value::String(mode) => mode == "a" || mode.to_lowercase().contains("append"),
            Value::Null => false,
            Value::Number(_) | Value::Array(_) | Value::Object(_) => true,
        };
        let keys = ["append", "mode", "insert_line", "offset", "position"];
        let mut given = keys.iter().filter_map(|key| self.arguments.get(*key));
        given.any(adds)
    }

    /// One text replaced by another.
    fn edit(&mut self) -> Option<FoundChange> {
        let (path_key, path) = only_text(self.arguments, PATH_KEYS)?;
        let (old_key, old) = only_text(self.arguments, OLD_KEYS)?;
        let (new_key, new) = only_text(self.arguments, NEW_KEYS)?;
        if old == new {
            return None;
        }
        let diff = diff::compare(old, new, DiffScope::Fragment, self.budget);
        let (notes, line) = self.replaced_text(path, old);
        let diff = LineDiff {
            hunks: diff.hunks.into_iter().map(|it| placed(it, line)).collect(),
            ..diff
        };
        let basis = ChangeBasis::ReplacedText;
        let mut found = self.found(path_key, path, basis, diff, vec![old_key, new_key]);
        found.change.notes.extend(notes);
        Some(found)
    }

    /// A list of texts, each replaced by another, one after the other.
    fn edits(&mut self) -> Option<FoundChange> {
        let (path_key, path) = only_text(self.arguments, PATH_KEYS)?;
        let edits = self.arguments.get("edits")?.as_array()?;
        let edits = edits.iter().map(replacement).collect::<Option<Vec<_>>>()?;
        let mut all = LineDiff {
            hunks: Vec::new(),
            added: 0,
            removed: 0,
            unchanged: 0,
        };
        for (index, edit) in edits.iter().enumerate() {
            let diff = diff::compare(edit.old, edit.new, DiffScope::Fragment, self.budget);
            let every = if edit.every { ", every occurrence" } else { "" };
            let title = format!("edit {} of {}{every}", index + 1, edits.len());
            let titled = diff.hunks.into_iter().map(|hunk| DiffHunk {
                title: Some(title.clone()),
                ..placed(hunk, None)
            });
            all.hunks.extend(titled);
            all.added += diff.added;
            all.removed += diff.removed;
        }
        let basis = ChangeBasis::ReplacedText;
        Some(self.found(path_key, path, basis, all, vec!["edits"]))
    }

    /// The source of a notebook's cell.
    fn notebook_cell(&mut self) -> Option<FoundChange> {
        let mut path_keys = vec!["notebook_path"];
        path_keys.extend(PATH_KEYS);
        let (path_key, path) = only_text(self.arguments, &path_keys)?;
        let (source_key, source) = only_text(self.arguments, &["new_source"])?;
        if self.arguments.get("edit_mode").and_then(Value::as_str) == Some("delete") {
            return None;
        }
        let diff = diff::compare("", source, DiffScope::Fragment, self.budget);
        let basis = ChangeBasis::NotebookCell;
        Some(self.found(path_key, path, basis, diff, vec![source_key]))
    }

    fn found(
        &mut self,
        path_key: &'static str,
        path: &str,
        basis: ChangeBasis,
        diff: LineDiff,
        mut shown_keys: Vec<&'static str>,
    ) -> FoundChange {
        // A path that the headline has no room for is listed with the other arguments.
        let one_line = !path.contains(['\n', '\t']) && path.trim() == path;
        if path.len() <= MAX_PATH_BYTES && one_line {
            shown_keys.push(path_key);
            self.budget.hidden += count_invisible(path);
        }
        let path = truncate_line(path);
        let change = FileChangeView {
            path: escape_invisible(&path),
            raw_path: path,
            basis,
            added: diff.added,
            removed: diff.removed,
            hunks: diff.hunks,
            notes: Vec::new(),
        };
        FoundChange { change, shown_keys }
    }

    /// The content that the call binds for this path. Nothing is known if it binds none, or more
    /// than one.
    fn old_content(&self, path: &str) -> OldContent<'a> {
        let mut bound = self.files.iter().filter(|file| same_path(&file.path, path));
        let (Some(file), None) = (bound.next(), bound.next()) else {
            return OldContent::Unknown;
        };
        if file.sha256.is_none() {
            return OldContent::NoFile;
        }
        let mut contents = self.contents.iter();
        let has_hash = |content: &&FileContent| file.has_content(&content.path, &content.text);
        match contents.find(has_hash) {
            Some(content) => OldContent::Text(&content.text),
            None => OldContent::Unknown,
        }
    }

    /// What is known about the text to replace, and the number of its first line.
    fn replaced_text(&self, path: &str, old: &str) -> (Option<String>, Option<u64>) {
        let content = match self.old_content(path) {
            OldContent::Text(content) if !old.is_empty() => content,
            OldContent::Text(_) | OldContent::Unknown => return (None, None),
            OldContent::NoFile => {
                let note = "the call binds that there is no such file";
                return (Some(note.to_owned()), None);
            }
        };
        let mut places = content.match_indices(old).map(|(at, _)| at);
        match (places.next(), places.count()) {
            (None, _) => {
                let note = "the text to replace is not in the present content";
                (Some(note.to_owned()), None)
            }
            (Some(at), 0) => {
                let lines_before = content[..at].matches('\n').count() as u64;
                (None, Some(lines_before + 1))
            }
            (Some(_), others) => {
                let times = pluralize(others as u64 + 1, "time");
                let note = format!("the text to replace is in the present content {times}");
                (Some(note), None)
            }
        }
    }
}

/// Says how many lines of a file stay and are not shown; `None` if all are shown.
fn unchanged_note(diff: &LineDiff) -> Option<String> {
    let lines = diff.hunks.iter().flat_map(|hunk| &hunk.lines);
    let shown = lines.filter(|line| line.kind == DiffLineKind::Context);
    let left_out = diff.unchanged.saturating_sub(shown.count() as u64);
    let lines = pluralize(left_out, "unchanged line");
    (left_out > 0).then(|| format!("{lines} not shown"))
}

/// A part of a file at its place in the file, if that is known.
fn placed(hunk: DiffHunk, line: Option<u64>) -> DiffHunk {
    let place = |start: Option<u64>| Some(start? + line? - 1);
    DiffHunk {
        old_start: place(hunk.old_start),
        new_start: place(hunk.new_start),
        ..hunk
    }
}

/// Whether two paths are the same as they are written.
fn same_path(a: &str, b: &str) -> bool {
    let plain = |path: &'_ str| path.strip_prefix("./").unwrap_or(path).to_owned();
    plain(a) == plain(b)
}

/// One item of a list of edits.
struct TextReplacement<'a> {
    old: &'a str,
    new: &'a str,
    every: bool,
}

/// An edit that consists of nothing but an old text, another new one, and whether it is for all.
fn replacement(edit: &Value) -> Option<TextReplacement<'_>> {
    let edit = edit.as_object()?;
    let (_, old) = only_text(edit, OLD_KEYS)?;
    let (_, new) = only_text(edit, NEW_KEYS)?;
    let every = match edit.get("replace_all") {
        None => None,
        Some(every) => Some(every.as_bool()?),
    };
    let known = 2 + usize::from(every.is_some());
    (edit.len() == known && old != new).then_some(TextReplacement {
        old,
        new,
        every: every == Some(true),
    })
}
