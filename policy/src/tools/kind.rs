//! Tells by its name, and by the form of its arguments, what kind of tool a call is of.

use pvp_protocol::{Action, FileTool, JsonObject, text_arguments};

use super::patch::{self, PatchedFile};

/// What a call does, as far as the name of its tool says.
pub(super) enum CallKind<'a> {
    /// One of PVP's own file tools, in exactly their form.
    File(FileTool),
    /// Reads, lists or searches files, under a name that agent clients use.
    ClientRead(ReadKind),
    /// Writes or edits a file, under such a name.
    ClientWrite,
    /// Applies a patch; `None` if its files cannot be told.
    Patch(Option<Vec<PatchedFile<'a>>>),
    /// Fetches an address.
    Fetch,
    /// Asks a search engine.
    WebSearch,
    /// Starts another agent.
    Subagent(Option<&'a str>),
    /// Types into a running shell, or only looks what it has printed.
    Stdin { types: bool },
    /// Calls a tool of an MCP server.
    Mcp { server: &'a str, tool: &'a str },
    /// Nothing is known about it.
    Other,
}

/// What a client's reading tool takes its patterns for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadKind {
    /// For names of files.
    Files,
    /// For the content of files.
    Content,
}

const READERS: &[&str] = &[
    "Read",
    "read",
    "read_file",
    "view",
    "LS",
    "ls",
    "list",
    "list_directory",
    "list_dir",
    "Glob",
    "glob",
];

const SEARCHERS: &[&str] = &["Grep", "grep", "grep_search", "search_file_content"];

/// What a tool does with the files that its arguments name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileUse {
    /// It reads, lists or searches them; without a name, those of the directory that it works in.
    Reads,
    Changes,
    /// It changes those that a patch names, which is text.
    Patches,
}

/// What agent clients do with files by a tool of this name; `None` if it is no tool for files.
pub fn file_use(tool: &str) -> Option<FileUse> {
    match tool {
        _ if READERS.contains(&tool) || SEARCHERS.contains(&tool) => Some(FileUse::Reads),
        _ if WRITERS.contains(&tool) => Some(FileUse::Changes),
        _ if PATCHERS.contains(&tool) => Some(FileUse::Patches),
        _ => None,
    }
}

/// Whether agent clients search the content of files with a tool of this name.
pub fn searches_content(tool: &str) -> bool {
    SEARCHERS.contains(&tool)
}

const WRITERS: &[&str] = &[
    "Write",
    "Edit",
    "MultiEdit",
    "NotebookEdit",
    "write",
    "edit",
    "multiedit",
    "write_file",
    "edit_file",
    "replace",
    "create",
    "str_replace",
    "notebook_edit",
];

const PATCHERS: &[&str] = &["apply_patch", "patch", "ApplyPatch"];

const FETCHERS: &[&str] = &["WebFetch", "web_fetch", "webfetch", "fetch", "fetch_url"];

const WEB_SEARCHERS: &[&str] = &["WebSearch", "web_search", "websearch", "google_web_search"];

const SUBAGENTS: &[&str] = &[
    "Task",
    "task",
    "Agent",
    "agent",
    "spawn_agent",
    "run_subagent",
    "subagent",
];

/// Arguments that say which agent is started.
const AGENT_NAMES: &[&str] = &["subagent_type", "agent_type", "agent_name", "agent", "name"];

/// Tools that type into a running shell, and without a text only show what it has printed.
const SHELL_WRITERS: &[&str] = &["write_stdin", "write_bash", "write_powershell"];

/// Words in the names of other such tools.
const TYPING_VERBS: &[&str] = &["write", "send", "type", "input"];

/// What such tools type into.
const TYPED_INTO: &[&str] = &[
    "stdin",
    "bash",
    "shell",
    "powershell",
    "terminal",
    "pty",
    "tty",
];

/// Arguments by which a client names the shell that it types into.
const SHELL_NAMES: &[&str] = &[
    "session_id",
    "sessionId",
    "process_id",
    "shell_id",
    "shellId",
    "id",
];

/// Arguments of reading tools that say what is read and how much of it is shown. A call with any
/// other argument may do something else.
const READ_ARGUMENTS: &[&str] = &[
    "file_path",
    "filepath",
    "path",
    "paths",
    "absolute_path",
    "dir_path",
    "directory",
    "offset",
    "limit",
    "pages",
    "view_range",
    "start_line",
    "end_line",
    "pattern",
    "query",
    "regex",
    "glob",
    "include",
    "include_pattern",
    "exclude",
    "exclude_pattern",
    "ignore",
    "type",
    "output_mode",
    "head_limit",
    "max_results",
    "max_matches_per_file",
    "total_max_matches",
    "names_only",
    "multiline",
    "case_sensitive",
    "fixed_strings",
    "context",
    "before",
    "after",
    "no_ignore",
    "respect_git_ignore",
    "respect_gemini_ignore",
    "file_filtering_options",
    "recursive",
    "depth",
    "description",
    "-a",
    "-b",
    "-c",
    "-n",
    "-i",
    "-o",
];

/// Arguments of searches that are patterns for the content of files.
const CONTENT_ARGUMENTS: &[&str] = &["pattern", "query", "regex", "description", "type"];

/// Verbs at the beginning of a tool's name that only look.
const READING_VERBS: &[&str] = &[
    "read", "get", "list", "search", "view", "show", "find", "grep", "glob", "stat", "describe",
];

impl<'a> CallKind<'a> {
    pub(super) fn new(action: &Action, name: &'a str, arguments: &'a JsonObject) -> Self {
        if let Some(file_tool) = file_tool(action) {
            return Self::File(file_tool);
        }
        if let Some((server, tool)) = mcp_name(name) {
            return Self::Mcp { server, tool };
        }
        match name {
            _ if READERS.contains(&name) => Self::ClientRead(ReadKind::Files),
            _ if SEARCHERS.contains(&name) => Self::ClientRead(ReadKind::Content),
            _ if WRITERS.contains(&name) => Self::ClientWrite,
            _ if PATCHERS.contains(&name) => Self::Patch(patched_files(arguments)),
            _ if FETCHERS.contains(&name) => Self::Fetch,
            _ if WEB_SEARCHERS.contains(&name) => Self::WebSearch,
            _ if SUBAGENTS.contains(&name) || name.starts_with("delegate") => {
                Self::Subagent(text_of(arguments, AGENT_NAMES))
            }
            _ if SHELL_WRITERS.contains(&name) => Self::Stdin {
                types: types_something(arguments),
            },
            _ if is_named_like_typing(name) && types_something(arguments) => {
                Self::Stdin { types: true }
            }
            _ => Self::Other,
        }
    }

    /// Whether the name of the tool says that it only looks.
    pub(super) fn is_named_like_a_read(&self, name: &str) -> bool {
        let mut name = name;
        if let Self::Mcp { tool, .. } = self {
            name = tool;
        }
        let name = name.to_ascii_lowercase();
        READING_VERBS.iter().any(|verb| {
            let rest = name.strip_prefix(verb);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_lowercase()))
        })
    }
}

/// The call of one of PVP's own file tools that an action is. Where it works is judged with its path,
/// and is no part of its form.
pub(super) fn file_tool(action: &Action) -> Option<FileTool> {
    let anywhere = Action {
        cwd: None,
        ..action.clone()
    };
    FileTool::from_action(&anywhere)
}

/// The first argument of a reading tool that is not known.
pub(super) fn unknown_read_argument(arguments: &JsonObject) -> Option<&str> {
    let known = |name: &str| READ_ARGUMENTS.contains(&name.to_ascii_lowercase().as_str());
    let mut names = arguments.keys().map(String::as_str);
    names.find(|name| !known(name))
}

/// The texts of a reading tool that may name files.
pub(super) fn file_texts(kind: ReadKind, arguments: &JsonObject) -> Vec<&str> {
    let is_content = |name: &str| {
        let name = name.to_ascii_lowercase();
        name == "description"
            || kind == ReadKind::Content && CONTENT_ARGUMENTS.contains(&name.as_str())
    };
    let mut found = Vec::new();
    let named = arguments.iter().filter(|(name, _)| !is_content(name));
    for (_, value) in named {
        match value.as_str() {
            Some(text) => found.push(text),
            None => {
                let items = value.as_array().into_iter().flatten();
                found.extend(items.filter_map(|item| item.as_str()));
                let fields = value.as_object().into_iter();
                found.extend(fields.flat_map(|fields| text_arguments(fields)));
            }
        }
    }
    found
}

fn mcp_name(name: &str) -> Option<(&str, &str)> {
    let (server, tool) = name.strip_prefix("mcp__")?.split_once("__")?;
    (!server.is_empty() && !tool.is_empty()).then_some((server, tool))
}

fn text_of<'a>(arguments: &'a JsonObject, names: &[&str]) -> Option<&'a str> {
    let mut texts = names
        .iter()
        .filter_map(|name| arguments.get(*name)?.as_str());
    texts.find(|text| !text.is_empty())
}

/// Whether a call has anything to type, whatever its argument is called.
fn types_something(arguments: &JsonObject) -> bool {
    let mut others = arguments
        .iter()
        .filter(|(name, _)| !SHELL_NAMES.contains(&name.as_str()));
    others.any(|(_, value)| match value.as_str() {
        Some(text) => !text.is_empty(),
        None => !(value.is_number() || value.is_boolean() || value.is_null()),
    })
}

/// Whether a name says that the tool types into a shell: `send_to_terminal`, `BashInput`, and not
/// `write_shell_script`.
fn is_named_like_typing(name: &str) -> bool {
    let words = words_of_name(name);
    let is_in =
        |list: &[&str], word: Option<&String>| word.is_some_and(|it| list.contains(&it.as_str()));
    let (first, last) = (words.first(), words.last());
    is_in(TYPING_VERBS, first) && is_in(TYPED_INTO, last)
        || is_in(TYPED_INTO, first) && is_in(TYPING_VERBS, last)
}

/// The words of a name in lower case, which begin at capitals and behind separators.
fn words_of_name(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        let is_separator = !c.is_alphanumeric();
        if (is_separator || c.is_uppercase()) && words.last().is_some_and(|it| !it.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| !is_separator) {
            word.extend(c.to_lowercase());
        }
    }
    words
}

/// The files of all patches among the arguments.
fn patched_files(arguments: &JsonObject) -> Option<Vec<PatchedFile<'_>>> {
    let texts = text_arguments(arguments);
    let patches: Vec<_> = texts.iter().filter_map(|text| patch::files(text)).collect();
    let looks_like_one = |text: &&&str| text.contains("*** ") || text.contains("+++ ");
    let all_read = patches.len() == texts.iter().filter(looks_like_one).count();
    (all_read && !patches.is_empty()).then(|| patches.concat())
}
