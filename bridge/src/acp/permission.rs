//! What an agent asks permission for, in the words of this protocol.

use std::path::Path;

use agent_client_protocol_schema::v1::{
    ContentBlock, Diff, Meta, PermissionOption, PermissionOptionKind, ToolCall, ToolCallContent,
    ToolKind,
};
use pvp_protocol::{FileTool, JsonObject, ToolCategory};
use serde_json::{Value, json};

use crate::translation::{CallPlace, TranslatedCall, translate};

/// Bytes of the longest name of a tool that is shown as the name.
const MAX_NAME_BYTES: usize = 100;

/// Bytes of a file that is compared with what an agent says it replaces.
const MAX_COMPARED_BYTES: u64 = 4 * 1024 * 1024;

/// Words in the id or the name of an option that does more than to allow one call.
const LASTING: [&str; 7] = [
    "switch",
    "always",
    "session",
    "auto",
    "don't ask",
    "dont_ask",
    "ask again",
];

/// Words with which the id or the name of an option begins that allows something.
const ALLOWING: [&str; 8] = [
    "allow", "yes", "accept", "approve", "proceed", "permit", "always", "run",
];

/// The option that allows this once; `None` if there is none that does nothing else.
pub(super) fn allow_option(options: &[PermissionOption]) -> Option<&str> {
    let lasts = |option: &PermissionOption| {
        let said = format!("{} {}", option.option_id.0, option.name).to_lowercase();
        LASTING.iter().any(|word| said.contains(word))
    };
    let once = of_kind(options, PermissionOptionKind::AllowOnce);
    once.filter(|option| !lasts(option))
        .map(|option| option.option_id.0.as_ref())
        .find(|id| is_unique(options, id))
}

/// The option that rejects this once; `None` if there is none. One that is called a rejection and
/// sounds like the opposite is none.
pub(super) fn reject_option(options: &[PermissionOption]) -> Option<&str> {
    let once = of_kind(options, PermissionOptionKind::RejectOnce);
    once.filter(|option| ![&*option.option_id.0, &option.name].into_iter().any(allows))
        .map(|option| option.option_id.0.as_ref())
        .find(|id| is_unique(options, id))
}

fn allows(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut words = text.split(|char: char| !char.is_alphanumeric());
    let first = words.find(|word| !word.is_empty());
    first.is_some_and(|first| ALLOWING.contains(&first))
}

fn of_kind(
    options: &[PermissionOption],
    kind: PermissionOptionKind,
) -> impl Iterator<Item = &PermissionOption> {
    options.iter().filter(move |option| option.kind == kind)
}

/// An id that two options have could mean either.
fn is_unique(options: &[PermissionOption], id: &str) -> bool {
    options
        .iter()
        .filter(|option| option.option_id.0.as_ref() == id)
        .count()
        == 1
}

/// The call that an agent asks about.
pub(super) fn translate_call(
    call: &ToolCall,
    meta: Option<&Meta>,
    place: &CallPlace,
) -> TranslatedCall {
    let name = tool_name(call, meta);
    let input = match &call.raw_input {
        Some(Value::Object(input)) => input.clone(),
        Some(_) | None => JsonObject::new(),
    };
    // A tool of the agent's is not one of ours because it is called so.
    let foreign = name.as_deref().filter(|name| !is_our_name(name));
    let known = foreign.map(|name| translate(name, &input, place));
    let known = known.filter(is_ours);
    let mut translated = known
        .or_else(|| shell_call(call, &input, name.as_deref(), place))
        .or_else(|| file_change(call, place))
        .unwrap_or_else(|| other_call(call, name.as_deref(), input, place));
    if translated.purpose.is_empty() {
        translated.purpose = purpose(call, &translated);
    }
    translated
}

fn is_our_name(name: &str) -> bool {
    name == "shell" || FileTool::is_name(name)
}

/// Whether a call has become one of our own tools, whose arguments are known.
fn is_ours(call: &TranslatedCall) -> bool {
    call.tool_name == "shell" && call.category == ToolCategory::ShellExecute
        || FileTool::is_name(&call.tool_name)
}

/// The agent's name of the tool, wherever it says it.
fn tool_name(call: &ToolCall, meta: Option<&Meta>) -> Option<String> {
    let from_meta = || {
        let meta = meta?;
        let claude = meta.get("claudeCode").and_then(|it| it.get("toolName"));
        claude.or_else(|| meta.get("toolName"))?.as_str()
    };
    let name = call.name.as_deref().or_else(from_meta);
    let name = name.or_else(|| name_in_id(&call.tool_call_id.0))?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/".contains(c);
    let plain = !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(is_plain);
    plain.then(|| name.to_owned())
}

/// Tools of Gemini.
const GEMINI_TOOLS: [&str; 9] = [
    "glob",
    "google_web_search",
    "grep_search",
    "list_directory",
    "read_file",
    "replace",
    "run_shell_command",
    "web_fetch",
    "write_file",
];

/// Gemini's ids are `NAME__ID`, with the id that the model gives its call, or `NAME_TIME_NUMBER`.
fn name_in_id(id: &str) -> Option<&str> {
    let (name, rest) = id.split_once("__")?;
    let own_id = rest
        .strip_prefix(name)
        .is_some_and(|it| it.starts_with('_'));
    (own_id || GEMINI_TOOLS.contains(&name)).then_some(name)
}

fn shell_call(
    call: &ToolCall,
    input: &JsonObject,
    name: Option<&str>,
    place: &CallPlace,
) -> Option<TranslatedCall> {
    if call.kind != ToolKind::Execute {
        return None;
    }
    let input = match input.get("command") {
        Some(Value::String(line)) => {
            // Copilot says it twice.
            let commands = input.get("commands");
            if commands.is_some_and(|it| *it != json!([line])) {
                return None;
            }
            input.clone()
        }
        // Only of Gemini it is known that the title is the command.
        None if name == Some("run_shell_command") && input.is_empty() => titled_command(call)?,
        Some(_) | None => return None,
    };
    let translated = translate("acp_execute", &input, place);
    is_ours(&translated).then_some(translated)
}

/// Gemini's title is the command, and its text begins with where it runs.
fn titled_command(call: &ToolCall) -> Option<JsonObject> {
    let text = content_text(&call.content);
    let mut input = JsonObject::from_iter([("command".to_owned(), call.title.clone().into())]);
    let (place, why) = text.strip_prefix('[')?.split_once(']')?;
    let here = place.strip_prefix("current working directory ");
    let directory = here.or_else(|| place.strip_prefix("in "))?;
    input.insert("cwd".to_owned(), directory.into());
    input.insert("description".to_owned(), why.trim().into());
    Some(input)
}

/// A change of one file of which the agent shows what is there and what will be.
fn file_change(call: &ToolCall, place: &CallPlace) -> Option<TranslatedCall> {
    let mut diffs = call.content.iter().filter_map(|content| match content {
        ToolCallContent::Diff(diff) => Some(diff),
        _ => None,
    });
    let (Some(diff), None) = (diffs.next(), diffs.next()) else {
        return None;
    };
    let path = diff.path.to_str()?;
    let (name, input) = match change_of(diff, place) {
        AskedChange::Whole => (
            "Write",
            json!({"file_path": path, "content": diff.new_text}),
        ),
        AskedChange::Part(old_text) => {
            let new_text = &diff.new_text;
            let input = json!({"file_path": path, "old_string": old_text, "new_string": new_text});
            ("Edit", input)
        }
        AskedChange::Unclear => return None,
    };
    let translated = translate(name, input.as_object()?, place);
    is_ours(&translated).then_some(translated)
}

/// How much of a file the two texts of a diff are.
enum AskedChange<'a> {
    Whole,
    Part(&'a str),
    Unclear,
}

fn change_of<'a>(diff: &'a Diff, place: &CallPlace) -> AskedChange<'a> {
    let present = present_text(&place.cwd.join(&diff.path));
    match (diff.old_text.as_deref(), present.as_deref()) {
        (None | Some(""), None) => AskedChange::Whole,
        (Some(old_text), Some(present)) if old_text == present => AskedChange::Whole,
        (Some(old_text), Some(present))
            if !old_text.is_empty() && present.matches(old_text).count() == 1 =>
        {
            AskedChange::Part(old_text)
        }
        (Some(_) | None, Some(_) | None) => AskedChange::Unclear,
    }
}

fn present_text(path: &Path) -> Option<String> {
    // Opening something else than a file may never end.
    let metadata = std::fs::metadata(path).ok()?;
    let fits = metadata.is_file() && metadata.len() <= MAX_COMPARED_BYTES;
    fits.then(|| std::fs::read_to_string(path).ok()).flatten()
}

/// A call of which nothing is known but what the agent says.
fn other_call(
    call: &ToolCall,
    name: Option<&str>,
    mut input: JsonObject,
    place: &CallPlace,
) -> TranslatedCall {
    let kind = kind_word(call.kind);
    let name = name.unwrap_or(kind);
    let name = match is_our_name(name) {
        true => format!("agent.{name}"),
        false => name.to_owned(),
    };
    if input.is_empty() {
        input.insert("title".to_owned(), call.title.clone().into());
        let text = content_text(&call.content);
        if !text.is_empty() {
            input.insert("text".to_owned(), text.into());
        }
        let diffs: Vec<_> = call.content.iter().filter_map(diff_json).collect();
        if !diffs.is_empty() {
            input.insert("changes".to_owned(), diffs.into());
        }
        let paths = call.locations.iter().map(|it| it.path.to_string_lossy());
        let paths: Vec<Value> = paths.map(Value::from).collect();
        if !paths.is_empty() {
            input.insert("paths".to_owned(), paths.into());
        }
    }
    let mut translated = translate(&name, &input, place);
    if translated.category == ToolCategory::All {
        translated.category = category_of(call.kind);
    }
    translated
}

fn diff_json(content: &ToolCallContent) -> Option<Value> {
    match content {
        ToolCallContent::Diff(diff) => Some(json!({
            "path": diff.path, "old_text": diff.old_text, "new_text": diff.new_text,
        })),
        _ => None,
    }
}

/// What the agent says it is for, unless that is the command itself.
fn purpose(call: &ToolCall, translated: &TranslatedCall) -> String {
    let line = translated.arguments.get("full_command");
    match line.and_then(Value::as_str) == Some(&call.title) {
        true => String::new(),
        false => call.title.clone(),
    }
}

/// The text in what an agent shows of a call.
pub(super) fn content_text(content: &[ToolCallContent]) -> String {
    let texts = content.iter().filter_map(|content| match content {
        ToolCallContent::Content(content) => match &content.content {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        },
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

pub(super) fn kind_word(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Read => "read",
        ToolKind::Edit => "edit",
        ToolKind::Delete => "delete",
        ToolKind::Move => "move",
        ToolKind::Search => "search",
        ToolKind::Execute => "execute",
        ToolKind::Think => "think",
        ToolKind::Fetch => "fetch",
        ToolKind::SwitchMode => "switch_mode",
        _ => "other",
    }
}

fn category_of(kind: ToolKind) -> ToolCategory {
    match kind {
        ToolKind::Read | ToolKind::Search => ToolCategory::FileRead,
        ToolKind::Edit | ToolKind::Delete | ToolKind::Move => ToolCategory::FileWrite,
        ToolKind::Execute => ToolCategory::ShellExecute,
        ToolKind::Fetch => ToolCategory::NetworkRequest,
        _ => ToolCategory::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geminis_title_is_the_command_whoever_gave_the_call_its_id() {
        let place = CallPlace {
            workspace: "/w".into(),
            cwd: "/w".into(),
        };
        let line_of = |id: &str| {
            let call = serde_json::from_value(json!({
                "toolCallId": id, "title": "touch made", "kind": "execute", "status": "pending",
                "content": [{ "type": "content", "content": {
                    "type": "text", "text": "[current working directory /w/src]",
                }}],
            }));
            let translated = translate_call(&call.unwrap(), None, &place);
            let line = translated.arguments.get("full_command").cloned();
            line.map(|line| (line, translated.arguments["cwd"].clone()))
        };
        let command = Some((json!("touch made"), json!("/w/src")));
        for id in [
            "run_shell_command__run_shell_command_1763588000_0",
            "run_shell_command__call_1",
        ] {
            assert_eq!(line_of(id), command, "{id}");
        }
        // Elsewhere a title may be anything.
        for id in ["call_1", "call__1", "describe_it__call_1"] {
            assert_eq!(line_of(id), None, "{id}");
        }
    }
}
