//! What Codex asks about, in the words of this protocol, and what it says about how a call ended.

use std::path::Path;

use pvp_protocol::JsonObject;
use serde_json::{Value, json};

use super::wire::text;
use crate::supervisor::CallReport;
use crate::translation::{CallPlace, TranslatedCall, translate};

/// What kind of answer a question wants.
#[derive(Debug, Clone, PartialEq)]
pub enum QuestionKind {
    Command,
    FileChange,
    McpTool,
    /// More rights for what follows, as they were asked for.
    Permissions(Value),
}

impl QuestionKind {
    /// The answer that lets this one call run, once.
    pub fn accepted(&self) -> Value {
        match self {
            Self::Command | Self::FileChange => json!({ "decision": "accept" }),
            Self::McpTool => json!({ "action": "accept", "content": {} }),
            Self::Permissions(asked) => json!({ "permissions": asked, "scope": "turn" }),
        }
    }

    /// The answer that lets nothing run; the agent goes on.
    pub fn declined(&self) -> Value {
        match self {
            Self::Command | Self::FileChange => json!({ "decision": "decline" }),
            Self::McpTool => json!({ "action": "decline" }),
            Self::Permissions(_) => json!({ "permissions": {}, "scope": "turn" }),
        }
    }
}

/// A call that Codex asks about.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedCall {
    pub call: TranslatedCall,
    /// What Codex says it will do, to compare it with what it says it did; `None` if it only asks
    /// for a right.
    pub runs: Option<Value>,
}

/// What an item says that Codex does, or did.
pub fn runs(item: &JsonObject) -> Value {
    let field = |name: &str| item.get(name).cloned().unwrap_or_default();
    match text(item, "type") {
        "fileChange" => field("changes"),
        "mcpToolCall" => Value::from_iter(["server", "tool", "arguments"].map(field)),
        _ => field("command"),
    }
}

/// The call of `item/commandExecution/requestApproval`. The error says why it is declined.
pub fn command(params: &JsonObject, place: &CallPlace) -> Result<AskedCall, String> {
    match params.get("kind").and_then(Value::as_str) {
        None | Some("command") => {}
        Some("writeStdin") => {
            return Err(
                "Not allowed: nothing may be typed into a command that is running, because nobody \
                 sees what it does. Start a new command."
                    .to_owned(),
            );
        }
        Some(_) => return Err("Not allowed: PVP does not know this kind of call.".to_owned()),
    }
    if !["", "local"].contains(&text(params, "environmentId")) {
        return Err("Not allowed: this would run on another machine.".to_owned());
    }
    let context = params.get("networkApprovalContext");
    if let Some(Value::Object(context)) = context {
        let mut arguments = context.clone();
        for name in ["command", "cwd", "reason"] {
            copy(params, name, &mut arguments);
        }
        let call = translate("network_access", &arguments, place);
        return Ok(AskedCall { call, runs: None });
    }
    let command = text(params, "command");
    if command.is_empty() {
        return Err("Not allowed: Codex does not say which command it would run.".to_owned());
    }
    if text(params, "cwd").is_empty() {
        return Err("Not allowed: Codex does not say where it would run this.".to_owned());
    }
    let extra = params.get("additionalPermissions");
    let call = match extra {
        None | Some(Value::Null) => {
            let mut arguments = JsonObject::new();
            arguments.insert("command".to_owned(), line_of(command).into());
            copy(params, "reason", &mut arguments);
            rename(&mut arguments, "reason", "description");
            translate("Bash", &arguments, place)
        }
        // More rights than the command has otherwise have to be seen.
        Some(_) => {
            let mut arguments = JsonObject::new();
            for name in ["command", "cwd", "reason", "additionalPermissions"] {
                copy(params, name, &mut arguments);
            }
            translate("exec_command", &arguments, place)
        }
    };
    Ok(AskedCall {
        call,
        runs: Some(command.into()),
    })
}

fn copy(from: &JsonObject, name: &str, to: &mut JsonObject) {
    if let Some(value) = from.get(name).filter(|value| !value.is_null()) {
        to.insert(name.to_owned(), value.clone());
    }
}

fn rename(object: &mut JsonObject, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.insert(to.to_owned(), value);
    }
}

/// The call of `item/fileChange/requestApproval`, from the item that it is about.
pub fn file_change(item: &JsonObject, place: &CallPlace) -> Result<AskedCall, String> {
    let changes = item.get("changes").and_then(Value::as_array);
    let changes: Option<Vec<_>> = changes
        .map(Vec::as_slice)
        .map(parse_changes)
        .unwrap_or(None);
    let Some(changes) = changes.filter(|changes| !changes.is_empty()) else {
        return Err("Not allowed: Codex does not say what it would change.".to_owned());
    };
    let call = match changes.as_slice() {
        [CodexChange::Add { path, content }] => {
            let arguments = json!({ "file_path": path, "content": content });
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            translate("Write", &arguments, place)
        }
        changes => {
            check_adds(changes)?;
            let mut arguments = JsonObject::new();
            arguments.insert("patch".to_owned(), patch_text(changes, place).into());
            translate("apply_patch", &arguments, place)
        }
    };
    Ok(AskedCall {
        call,
        runs: Some(runs(item)),
    })
}

/// Refuses to take a file that is there for a new one: people would not see what is lost.
fn check_adds(changes: &[CodexChange]) -> Result<(), String> {
    let existing = changes.iter().find_map(|change| match change {
        CodexChange::Add { path, .. } => Path::new(path).symlink_metadata().ok().map(|_| path),
        CodexChange::Delete { .. } | CodexChange::Update { .. } => None,
    });
    match existing {
        Some(path) => Err(format!(
            "Not allowed: `{path}` exists already. Update it, or replace it in a patch of its own."
        )),
        None => Ok(()),
    }
}

/// A change of one file.
enum CodexChange {
    Add {
        path: String,
        content: String,
    },
    Delete {
        path: String,
    },
    Update {
        path: String,
        moved_to: Option<String>,
        diff: String,
    },
}

/// The changes; `None` if one of them is not understood.
fn parse_changes(changes: &[Value]) -> Option<Vec<CodexChange>> {
    changes.iter().map(parse_change).collect()
}

fn parse_change(change: &Value) -> Option<CodexChange> {
    // A line break in a name would make the rest of it look like something else.
    let plain = |value: &Value| {
        let path = value.as_str()?;
        let is_plain = !path.is_empty() && !path.chars().any(char::is_control);
        is_plain.then(|| path.to_owned())
    };
    let path = plain(change.get("path")?)?;
    let diff = change.get("diff")?.as_str()?.to_owned();
    let kind = change.get("kind")?;
    Some(match kind.get("type")?.as_str()? {
        "add" => CodexChange::Add {
            path,
            content: diff,
        },
        "delete" => CodexChange::Delete { path },
        "update" => CodexChange::Update {
            path,
            moved_to: match kind.get("move_path") {
                None | Some(Value::Null) => None,
                Some(moved) => Some(plain(moved)?),
            },
            diff,
        },
        _ => return None,
    })
}

/// The changes as a patch, in the form in which agents write them.
fn patch_text(changes: &[CodexChange], place: &CallPlace) -> String {
    let mut patch = String::from("*** Begin Patch\n");
    let shown = |path: &str| {
        let inside = Path::new(path).strip_prefix(&place.workspace).ok();
        inside.map_or(path.to_owned(), |it| it.to_string_lossy().into_owned())
    };
    for change in changes {
        match change {
            CodexChange::Add { path, content } => {
                patch.push_str(&format!("*** Add File: {}\n", shown(path)));
                for line in content.lines() {
                    patch.push_str(&format!("+{line}\n"));
                }
            }
            CodexChange::Delete { path } => {
                patch.push_str(&format!("*** Delete File: {}\n", shown(path)));
            }
            CodexChange::Update {
                path,
                moved_to,
                diff,
            } => {
                patch.push_str(&format!("*** Update File: {}\n", shown(path)));
                if let Some(moved_to) = moved_to {
                    patch.push_str(&format!("*** Move to: {}\n", shown(moved_to)));
                }
                patch.push_str(diff.trim_end_matches('\n'));
                patch.push('\n');
            }
        }
    }
    patch.push_str("*** End Patch");
    patch
}

/// The call of an MCP tool, from the item that it is about.
pub fn mcp_tool(item: &JsonObject, place: &CallPlace) -> Result<AskedCall, String> {
    let (server, tool) = (text(item, "server"), text(item, "tool"));
    if server.is_empty() || tool.is_empty() {
        return Err("Not allowed: Codex does not say which tool it would call.".to_owned());
    }
    let arguments = match item.get("arguments") {
        Some(Value::Object(arguments)) => arguments.clone(),
        None | Some(Value::Null) => JsonObject::new(),
        Some(other) => JsonObject::from_iter([("arguments".to_owned(), other.clone())]),
    };
    Ok(AskedCall {
        call: translate(&format!("mcp__{server}__{tool}"), &arguments, place),
        runs: Some(runs(item)),
    })
}

/// A request for more rights.
pub fn permissions(params: &JsonObject, place: &CallPlace) -> AskedCall {
    let mut arguments = JsonObject::new();
    for name in ["permissions", "cwd", "reason"] {
        copy(params, name, &mut arguments);
    }
    AskedCall {
        call: translate("request_permissions", &arguments, place),
        runs: None,
    }
}

/// The line that a shell is given, if that is what runs; otherwise all of it.
pub fn line_of(command: &str) -> String {
    let Some(words) = split_words(command) else {
        return command.to_owned();
    };
    match words.as_slice() {
        [program, flag, line] if is_shell(program) && (flag == "-lc" || flag == "-c") => {
            line.clone()
        }
        _ => command.to_owned(),
    }
}

/// Whether a program is a shell of this machine. What only has the name of one may do anything.
fn is_shell(program: &str) -> bool {
    const DIRECTORIES: [&str; 4] = ["/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"];
    let (directory, name) = program.rsplit_once('/').unwrap_or(("", program));
    let is_system =
        directory.is_empty() && !program.contains('/') || DIRECTORIES.contains(&directory);
    let is_users = || std::env::var_os("SHELL").is_some_and(|shell| shell == *program);
    ["bash", "sh", "zsh"].contains(&name) && (is_system || is_users())
}

/// The words of a command line that has only quoting in it; `None` if a quote is not closed.
fn split_words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = command.chars();
    while let Some(char) = chars.next() {
        match char {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '\'' => break,
                        other => word.push(other),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '"' => break,
                        '\\' => match chars.next()? {
                            escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                            other => word.extend(['\\', other]),
                        },
                        other => word.push(other),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(chars.next()?),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Some(words)
}

/// How a call ended, from the item that says so.
pub fn report(item: &JsonObject) -> CallReport {
    let status = text(item, "status");
    if status == "declined" {
        return CallReport::not_run("the client did not run it");
    }
    match text(item, "type") {
        "commandExecution" => {
            let exit_code = item.get("exitCode").and_then(Value::as_i64);
            CallReport {
                success: status == "completed" && exit_code == Some(0),
                exit_code,
                stdout: text(item, "aggregatedOutput").to_owned(),
                ..CallReport::default()
            }
        }
        "mcpToolCall" => {
            let error = item.get("error").and_then(|error| error.get("message"));
            let error = error.and_then(Value::as_str).map(str::to_owned);
            CallReport {
                success: status == "completed" && error.is_none(),
                stdout: mcp_text(item.get("result")),
                error,
                ..CallReport::default()
            }
        }
        _ => CallReport {
            success: status == "completed",
            error: (status != "completed").then(|| "the change could not be made".to_owned()),
            ..CallReport::default()
        },
    }
}

/// What an MCP tool returned, as text.
fn mcp_text(result: Option<&Value>) -> String {
    let Some(result) = result.filter(|result| !result.is_null()) else {
        return String::new();
    };
    let parts = result.get("content").and_then(Value::as_array);
    let texts: Vec<_> = parts
        .into_iter()
        .flatten()
        .map(|part| match part.get("text").and_then(Value::as_str) {
            Some(text) => text.to_owned(),
            None => part.to_string(),
        })
        .collect();
    match texts.is_empty() {
        true => result.to_string(),
        false => texts.join("\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> CallPlace {
        CallPlace {
            workspace: "/w".into(),
            cwd: "/w".into(),
        }
    }

    fn object(value: Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn what_a_shell_is_given_is_shown_as_the_shell_reads_it() {
        for (command, line) in [
            ("/bin/bash -lc 'touch x'", "touch x"),
            ("/bin/bash -lc ls", "ls"),
            (r#"bash -c "echo it's \"a\" \$b""#, r#"echo it's "a" $b"#),
            (r#"/bin/sh -c 'it'"'"'s'"#, "it's"),
            // Anything else is shown as it is.
            ("/usr/bin/fish -c 'ls'", "/usr/bin/fish -c 'ls'"),
            ("/bin/bash -lc 'a' b", "/bin/bash -lc 'a' b"),
            ("/bin/bash -lc 'open", "/bin/bash -lc 'open"),
            ("rm -rf x", "rm -rf x"),
            ("/w/tools/bash -lc ls", "/w/tools/bash -lc ls"),
            ("./bash -lc ls", "./bash -lc ls"),
            ("/bash -c ls", "/bash -c ls"),
        ] {
            assert_eq!(line_of(command), line);
        }
    }

    #[test]
    fn typing_into_a_shell_is_declined_and_more_rights_are_shown() {
        let stdin = object(json!({ "kind": "writeStdin", "command": "x" }));
        assert!(command(&stdin, &place()).unwrap_err().contains("typed"));
        assert!(
            command(
                &object(json!({ "kind": "other", "command": "x" })),
                &place()
            )
            .is_err()
        );
        assert!(command(&JsonObject::new(), &place()).is_err());
        let nowhere = object(json!({ "command": "x" }));
        assert!(command(&nowhere, &place()).unwrap_err().contains("where"));
        let elsewhere = object(json!({ "command": "x", "cwd": "/w", "environmentId": "cloud" }));
        assert!(
            command(&elsewhere, &place())
                .unwrap_err()
                .contains("machine")
        );
        let more =
            json!({ "command": "x", "cwd": "/w", "additionalPermissions": { "network": true } });
        let more = object(more);
        let asked = command(&more, &place()).unwrap();
        assert_eq!(asked.call.tool_name, "exec_command");
        assert_eq!(asked.call.arguments, more);
        let network = object(json!({ "networkApprovalContext": { "host": "h" }, "command": "c" }));
        let asked = command(&network, &place()).unwrap();
        assert_eq!(asked.call.tool_name, "network_access");
    }

    #[test]
    fn a_new_file_is_a_write_and_anything_else_a_patch() {
        let add = json!({ "path": "/w/a", "kind": { "type": "add" }, "diff": "one\n" });
        let item = object(json!({ "changes": [add.clone()] }));
        let asked = file_change(&item, &place()).unwrap();
        assert_eq!(asked.call.tool_name, "file_write");
        assert_eq!(
            Value::Object(asked.call.arguments),
            json!({ "path": "a", "content": "one\n" })
        );
        let update = json!({
            "path": "/w/b", "kind": { "type": "update", "move_path": "/w/c" }, "diff": "@@ -1 +1 @@\n-x\n+y\n",
        });
        let delete = json!({ "path": "/etc/d", "kind": { "type": "delete" }, "diff": "z" });
        let item = object(json!({ "changes": [add, update, delete] }));
        let asked = file_change(&item, &place()).unwrap();
        assert_eq!(asked.call.tool_name, "apply_patch");
        let patch = "*** Begin Patch\n*** Add File: a\n+one\n*** Update File: b\n*** Move to: c\n\
                     @@ -1 +1 @@\n-x\n+y\n*** Delete File: /etc/d\n*** End Patch";
        assert_eq!(asked.call.arguments["patch"], patch);
        let there = json!({ "path": "/etc", "kind": { "type": "add" }, "diff": "" });
        let delete = json!({ "path": "/w/d", "kind": { "type": "delete" }, "diff": "z" });
        for bad in [
            json!([]),
            json!([delete, there]),
            json!([{ "path": "a\nb", "kind": { "type": "add" }, "diff": "" }]),
            json!([{ "path": "a", "kind": { "type": "chmod" }, "diff": "" }]),
            json!([{ "path": "a", "kind": { "type": "update", "move_path": 1 }, "diff": "" }]),
        ] {
            assert!(file_change(&object(json!({ "changes": bad })), &place()).is_err());
        }
    }
}
