//! The descriptions of the tools that a model is given.

use pvp_protocol::{FILE_EDIT, FILE_READ, FILE_WRITE};
use serde_json::{Value, json};

use super::MAX_SLOW_TIMEOUT_SECONDS;

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    pub name: &'static str,
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: Value,
}

/// Whether commands that only read need approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadApproval {
    NotRequired,
    /// This executor cannot sandbox reads, so they need approval.
    Required,
}

/// What the descriptions say about where commands run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolContext {
    pub working_directory: String,
    pub read_approval: ReadApproval,
    pub file_tools: FileToolOffer,
}

/// Whether the executor has file tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileToolOffer {
    Offered,
    /// Approved commands run behind a runner, which may see other files.
    NotOffered,
}

/// All tools.
pub fn tool_definitions(tool_context: &ToolContext) -> Vec<ToolDefinition> {
    let mut tools = vec![shell_tool(tool_context)];
    match tool_context.file_tools {
        FileToolOffer::Offered => tools.extend(file_tools(tool_context)),
        FileToolOffer::NotOffered => {}
    }
    tools.extend([recall_tool(), jobs_tool()]);
    tools
}

fn shell_tool(tool_context: &ToolContext) -> ToolDefinition {
    let reads = match tool_context.read_approval {
        ReadApproval::NotRequired => {
            "Commands that only read (ls, cat, grep, git status …) run at once, in a sandbox \
             without network and without writing."
        }
        ReadApproval::Required => "Even commands that only read are shown to people first.",
    };
    ToolDefinition {
        name: "shell",
        description: format!(
            "Proposes one bash command line to the people who supervise you, and runs exactly that \
             line once it is cleared.\n\
             - Current directory: {}. Each command begins there, or in `cwd`.\n\
             - State does not persist between commands: no cd, variables, functions or background \
             jobs of an earlier one. Join what belongs together with &&, or use `cwd`.\n\
             - {reads} Commands that write, run code or use the network wait until people approve \
             them; destructive ones need more people. Some are blocked, and nobody can approve \
             them. People may edit a command before they approve it; the result says what ran.\n\
             - Calls of one answer run at the same time: what builds on another call belongs into a \
             later answer, or into the same line.\n\
             - To read, write or edit files, prefer the file tools, if you have them.\n\
             - A long line is harder to approve: propose small steps, do not mix reading and \
             writing in one line, and say in `purpose` what it is for.\n\
             - mode normal has a limit of 30 to 120 seconds; use slow for builds, installs and \
             test suites (15 minutes); use background for servers and watchers, which never end by \
             themselves: it returns at once, and its output is read with `recall`.\n\
             - There is no terminal and no input: use flags such as -y, never editors or pagers. \
             Only if a person has to type something themselves, such as a password, use mode pty: \
             whoever approves it is then at the keys.\n\
             - Prefer quiet flags (-q, --quiet, --no-progress) and narrow commands: you see only \
             the last lines of long output, and too much output ends a command.\n\
             - A rejection comes with its reason. Answer to the reason; do not propose the same \
             thing in other words.",
            tool_context.working_directory
        ),
        schema: json!({
            "type": "object",
            "properties": {
                "command": {
                    "type": "string",
                    "description": "The bash command line, run exactly as written.",
                },
                "mode": {
                    "type": "string",
                    "enum": ["normal", "slow", "background", "pty"],
                    "description": "normal unless given.",
                },
                "timeout": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_SLOW_TIMEOUT_SECONDS,
                    "description": "Seconds; at most 300, or 900 in mode slow. Only in these two.",
                },
                "cwd": {
                    "type": "string",
                    "description": "Directory to run in, if not the current one.",
                },
                "purpose": {
                    "type": "string",
                    "description": "One sentence for the people who decide: what this is for.",
                },
            },
            "required": ["command", "purpose"],
            "additionalProperties": false,
        }),
    }
}

fn file_tools(tool_context: &ToolContext) -> [ToolDefinition; 3] {
    [
        file_read_tool(tool_context),
        file_write_tool(),
        file_edit_tool(),
    ]
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn purpose() -> Value {
    text("One sentence for the people who decide: what this is for.")
}

fn file_path() -> Value {
    text("The file, from the current directory; no absolute path and no `..`.")
}

fn file_read_tool(tool_context: &ToolContext) -> ToolDefinition {
    let asked = match tool_context.read_approval {
        ReadApproval::NotRequired => {
            "Runs at once, except for files that usually hold secrets, which people are asked for."
        }
        ReadApproval::Required => "It is shown to people first.",
    };
    ToolDefinition {
        name: FILE_READ,
        description: format!(
            "Reads lines of a text file below the current directory. Prefer it to cat, head and \
             sed. {asked} You see the first lines of a long file: give `offset` and `limit` for \
             others. For files elsewhere, use shell."
        ),
        schema: json!({
            "type": "object",
            "properties": {
                "path": file_path(),
                "offset": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "First line, counted from 0.",
                },
                "limit": {"type": "integer", "minimum": 1, "description": "The most lines."},
                "purpose": purpose(),
            },
            "required": ["path"],
            "additionalProperties": false,
        }),
    }
}

fn file_write_tool() -> ToolDefinition {
    ToolDefinition {
        name: FILE_WRITE,
        description: "Proposes to create a file, or to replace all of its content, below the \
             current directory; directories are created. Prefer it to shell redirections and \
             here-documents: people see exactly what changes. Waits until people approve it. It \
             fails if the file changed after you proposed it. To change a part of a file, use \
             file_edit."
            .to_owned(),
        schema: json!({
            "type": "object",
            "properties": {
                "path": file_path(),
                "content": text("The whole new content."),
                "purpose": purpose(),
            },
            "required": ["path", "content", "purpose"],
            "additionalProperties": false,
        }),
    }
}

fn file_edit_tool() -> ToolDefinition {
    ToolDefinition {
        name: FILE_EDIT,
        description: "Proposes to replace text in a file below the current directory. Prefer it \
             to sed and to writing the whole file again: people see exactly what changes. Read the \
             file first: `old_text` must be there exactly once, with its blanks and line breaks; \
             otherwise nothing is proposed. Waits until people approve it. Edits of one file \
             belong into one call or into later answers, because each is bound to the file as it \
             is."
        .to_owned(),
        schema: json!({
            "type": "object",
            "properties": {
                "path": file_path(),
                "old_text": text("The text to replace; long enough to occur only once."),
                "new_text": text("What replaces it; may be empty."),
                "replace_all": {
                    "type": "boolean",
                    "description": "Replace every occurrence; false unless given.",
                },
                "purpose": purpose(),
            },
            "required": ["path", "old_text", "new_text", "purpose"],
            "additionalProperties": false,
        }),
    }
}

fn recall_tool() -> ToolDefinition {
    let count = |text: &str| json!({"type": "integer", "minimum": 1, "description": text});
    ToolDefinition {
        name: "recall",
        description:
            "Reads lines of what an earlier command printed, also of one that still runs. \
             Use it when a result says that it is not all. Give `head` or `tail`, or `offset` and \
             `limit`, each with or without `grep`; nothing but `ref` gives the first lines. Runs \
             without asking anyone."
                .to_owned(),
        schema: json!({
            "type": "object",
            "properties": {
                "ref": {"type": "string", "description": "The ref that the command's result names."},
                "stream": {
                    "type": "string",
                    "enum": ["stdout", "stderr"],
                    "description": "Both unless given.",
                },
                "offset": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "First line, counted from 0; with grep, of the lines that match.",
                },
                "limit": count("How many lines from there."),
                "head": count("This many of the first lines."),
                "tail": count("This many of the last lines."),
                "grep": {
                    "type": "string",
                    "description": "Only lines that contain this text; plain text, not a pattern.",
                },
            },
            "required": ["ref"],
            "additionalProperties": false,
        }),
    }
}

fn jobs_tool() -> ToolDefinition {
    ToolDefinition {
        name: "jobs",
        description:
            "Lists the commands that you started in mode background, or stops one of them \
             with everything that it started. Runs without asking anyone."
                .to_owned(),
        schema: json!({
            "type": "object",
            "properties": {
                "action": {
                    "type": "string",
                    "enum": ["list", "stop"],
                    "description": "list unless given.",
                },
                "ref": {"type": "string", "description": "Which one to stop."},
            },
            "additionalProperties": false,
        }),
    }
}
