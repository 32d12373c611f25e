//! The tools of known clients, and what their arguments are called.

use pvp_protocol::{FILE_EDIT, FILE_READ, FILE_WRITE, ToolCategory};

/// A tool that runs command lines.
#[derive(Debug, PartialEq)]
pub(super) struct ShellForm {
    /// The names that clients give it.
    pub(super) names: &'static [&'static str],
    /// The argument with the command line.
    pub(super) command: &'static str,
    /// The argument with the directory, if it has one.
    pub(super) directory: Option<&'static str>,
    /// The argument that says whether it runs in the background, if it has one.
    pub(super) background: Option<&'static str>,
    /// Arguments that change nothing about what runs.
    pub(super) without_effect: &'static [&'static str],
}

/// A tool that reads or changes a file.
#[derive(Debug, PartialEq)]
pub(super) struct FileForm {
    /// The names that clients give it.
    pub(super) names: &'static [&'static str],
    /// Our tool that does the same.
    pub(super) tool: &'static str,
    /// The argument with the path.
    pub(super) path: &'static str,
    /// Every other argument that matters, with our name for it.
    pub(super) fields: &'static [(&'static str, &'static str)],
    /// Which of ours must be there.
    pub(super) required: &'static [&'static str],
    /// Arguments that change nothing about what is done.
    pub(super) without_effect: &'static [&'static str],
}

/// Clients give different tools the same name; a call is of the first form that it fits.
const SHELLS: &[ShellForm] = &[
    // Claude Code, and Codex in its hooks.
    ShellForm {
        names: &["Bash"],
        command: "command",
        directory: None,
        background: Some("run_in_background"),
        without_effect: &["description", "timeout"],
    },
    // OpenCode.
    ShellForm {
        names: &["bash"],
        command: "command",
        directory: Some("workdir"),
        background: None,
        without_effect: &["description", "timeout"],
    },
    // Copilot.
    ShellForm {
        names: &["bash"],
        command: "command",
        directory: None,
        background: Some("mode"),
        without_effect: &["description", "timeout", "initial_wait", "shellId"],
    },
    // Gemini and Qwen.
    ShellForm {
        names: &["run_shell_command"],
        command: "command",
        directory: Some("dir_path"),
        background: Some("is_background"),
        without_effect: &["description"],
    },
    // What agents say over ACP about a command, whatever they call the tool.
    ShellForm {
        names: &["acp_execute"],
        command: "command",
        directory: Some("cwd"),
        background: Some("run_in_background"),
        without_effect: &["description", "timeout", "commands"],
    },
];

const FILES: &[FileForm] = &[
    FileForm {
        names: &["Write", "write_file"],
        tool: FILE_WRITE,
        path: "file_path",
        fields: &[("content", "content")],
        required: &["content"],
        without_effect: &[],
    },
    FileForm {
        names: &["write"],
        tool: FILE_WRITE,
        path: "filePath",
        fields: &[("content", "content")],
        required: &["content"],
        without_effect: &[],
    },
    FileForm {
        names: &["create"],
        tool: FILE_WRITE,
        path: "path",
        fields: &[("file_text", "content")],
        required: &["content"],
        without_effect: &[],
    },
    FileForm {
        names: &["Edit"],
        tool: FILE_EDIT,
        path: "file_path",
        fields: &[
            ("old_string", "old_text"),
            ("new_string", "new_text"),
            ("replace_all", "replace_all"),
        ],
        required: &["old_text", "new_text"],
        without_effect: &[],
    },
    FileForm {
        names: &["edit"],
        tool: FILE_EDIT,
        path: "filePath",
        fields: &[
            ("oldString", "old_text"),
            ("newString", "new_text"),
            ("replaceAll", "replace_all"),
        ],
        required: &["old_text", "new_text"],
        without_effect: &[],
    },
    FileForm {
        names: &["replace"],
        tool: FILE_EDIT,
        path: "file_path",
        fields: &[("old_string", "old_text"), ("new_string", "new_text")],
        required: &["old_text", "new_text"],
        without_effect: &["instruction"],
    },
    FileForm {
        names: &["edit", "str_replace"],
        tool: FILE_EDIT,
        path: "path",
        fields: &[("old_str", "old_text"), ("new_str", "new_text")],
        required: &["old_text", "new_text"],
        without_effect: &[],
    },
    FileForm {
        names: &["Read", "read_file"],
        tool: FILE_READ,
        path: "file_path",
        fields: &[("offset", "offset"), ("limit", "limit")],
        required: &[],
        without_effect: &[],
    },
    FileForm {
        names: &["read"],
        tool: FILE_READ,
        path: "filePath",
        fields: &[("offset", "offset"), ("limit", "limit")],
        required: &[],
        without_effect: &[],
    },
];

/// The forms of tools that run command lines and that a client names so.
pub(super) fn shells(name: &str) -> impl Iterator<Item = &'static ShellForm> {
    SHELLS.iter().filter(move |form| form.names.contains(&name))
}

/// The forms of tools that read or change files and that a client names so.
pub(super) fn files(name: &str) -> impl Iterator<Item = &'static FileForm> {
    FILES.iter().filter(move |form| form.names.contains(&name))
}

/// The kind of a tool whose form is not known. It can only make the assessment stricter.
pub(super) fn category_of(name: &str) -> ToolCategory {
    match name {
        "WebFetch" | "WebSearch" | "web_fetch" | "webfetch" | "websearch" | "google_web_search"
        | "fetch" => ToolCategory::NetworkRequest,
        "NotebookEdit" | "apply_patch" | "MultiEdit" | "multiedit" => ToolCategory::FileWrite,
        "Grep"
        | "Glob"
        | "LS"
        | "grep"
        | "glob"
        | "list"
        | "list_directory"
        | "view"
        | "search_file_content"
        | "grep_search" => ToolCategory::FileRead,
        name if name.starts_with("mcp__") => ToolCategory::ExternalApi,
        _ => ToolCategory::All,
    }
}
