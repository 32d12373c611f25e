//! What a client's tool call is in the words of this protocol, and back.
//!
//! A call is translated only if nothing of it is lost: a field that is not known stays in sight,
//! because then the call is proposed as it is, under the client's own name for the tool.

mod forms;

use std::path::{Component, Path, PathBuf};

use pvp_policy::{FileUse, file_use};
use pvp_protocol::{FILE_EDIT, FILE_READ, FILE_WRITE, JsonObject, ToolCategory, path_arguments};
use serde_json::Value;

use forms::{FileForm, ShellForm};

/// A client's tool call in the words of this protocol.
#[derive(Debug, Clone, PartialEq)]
pub struct TranslatedCall {
    /// The tool; `shell` runs commands.
    pub tool_name: String,
    /// The kind of tool.
    pub category: ToolCategory,
    /// The arguments of `tool.propose`.
    pub arguments: JsonObject,
    /// What the agent says it is for.
    pub purpose: String,
    /// Where a client's own tool for files is called, if that is not the workspace and the arguments
    /// do not say it.
    pub(crate) made_in: Option<PathBuf>,
    /// How an edit is given back to the client.
    way_back: WayBack,
}

/// How edited arguments become the client's own again.
#[derive(Debug, Clone, PartialEq)]
enum WayBack {
    Shell(&'static ShellForm),
    File(&'static FileForm),
    /// They are the client's own.
    Same,
}

/// Why an edit cannot be given to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the edit cannot be carried out by this client: {0}")]
pub struct EditError(String);

/// Where a client works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPlace {
    /// The directory that its session is about, as an absolute path without links.
    pub workspace: PathBuf,
    /// The directory that the call is made in.
    pub cwd: PathBuf,
}

/// Translates the call of a tool that a client names so.
pub fn translate(tool: &str, input: &JsonObject, place: &CallPlace) -> TranslatedCall {
    let mut shells = forms::shells(tool).filter_map(|form| shell_call(form, input, place));
    let mut files = forms::files(tool).filter_map(|form| file_call(form, input, place));
    let translated = shells.next().or_else(|| files.next());
    translated.unwrap_or_else(|| TranslatedCall {
        tool_name: tool.to_owned(),
        category: forms::category_of(tool),
        arguments: with_whole_paths(tool, input, place),
        purpose: text_field(input, "description").unwrap_or_default(),
        made_in: file_use(tool)
            .filter(|_| place.cwd != place.workspace)
            .map(|_| place.cwd.clone()),
        way_back: WayBack::Same,
    })
}

/// The arguments of a client's own tool for files, with whole paths where it is called in another
/// directory than the workspace, from which everybody else would read them.
fn with_whole_paths(tool: &str, input: &JsonObject, place: &CallPlace) -> JsonObject {
    let mut arguments = input.clone();
    let Some(file_use) = file_use(tool).filter(|_| place.cwd != place.workspace) else {
        return arguments;
    };
    for (name, value) in &mut arguments {
        let alone = JsonObject::from_iter([(name.clone(), value.clone())]);
        if !path_arguments(&alone).is_empty() {
            make_whole(value, &place.cwd);
        }
    }
    if file_use == FileUse::Reads && path_arguments(&arguments).is_empty() {
        let here = place.cwd.to_string_lossy().into_owned();
        arguments.insert("path".to_owned(), here.into());
    }
    arguments
}

/// A path without the white space at its ends, which some clients cut off.
fn trimmed(path: &str) -> &str {
    path.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}')
}

fn make_whole(value: &mut Value, directory: &Path) {
    match value {
        Value::String(path) if !trimmed(path).starts_with(['/', '~']) => {
            // White space at the ends stays there, where it is seen.
            let meant = trimmed(path);
            let whole = directory.join(meant).to_string_lossy().into_owned();
            *path = match meant.is_empty() {
                true => whole + path.as_str(),
                false => path.replacen(meant, &whole, 1),
            };
        }
        Value::Array(items) => items.iter_mut().for_each(|it| make_whole(it, directory)),
        Value::Object(fields) => fields.values_mut().for_each(|it| make_whole(it, directory)),
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

impl TranslatedCall {
    /// The client's input with what an edit changed in the arguments.
    pub fn edited_input(
        &self,
        input: &JsonObject,
        edited: &JsonObject,
        place: &CallPlace,
    ) -> Result<JsonObject, EditError> {
        match self.way_back {
            WayBack::Same => Ok(edited.clone()),
            WayBack::Shell(form) => self.edited_shell(form, input, edited),
            WayBack::File(form) => self.edited_file(form, input, edited, place),
        }
    }

    fn edited_shell(
        &self,
        form: &ShellForm,
        input: &JsonObject,
        edited: &JsonObject,
    ) -> Result<JsonObject, EditError> {
        let line = text_field(edited, "full_command")
            .ok_or_else(|| EditError("it has no command line".to_owned()))?;
        self.check_only_changed(edited, &["full_command", "files"])?;
        let mut input = input.clone();
        input.insert(form.command.to_owned(), line.into());
        Ok(input)
    }

    fn edited_file(
        &self,
        form: &FileForm,
        input: &JsonObject,
        edited: &JsonObject,
        place: &CallPlace,
    ) -> Result<JsonObject, EditError> {
        let known: Vec<_> = form.fields.iter().map(|(_, ours)| *ours).collect();
        self.check_only_changed(edited, &[known.as_slice(), &["files", "path"]].concat())?;
        let mut input = input.clone();
        for (theirs, ours) in form.fields {
            match edited.get(*ours) {
                Some(value) => input.insert((*theirs).to_owned(), value.clone()),
                None => input.remove(*theirs),
            };
        }
        if edited.get("path") != self.arguments.get("path") {
            let path =
                text_field(edited, "path").ok_or_else(|| EditError("it has no path".to_owned()))?;
            let path = place.workspace.join(path);
            input.insert(form.path.to_owned(), path.to_string_lossy().into());
        }
        Ok(input)
    }

    /// Refuses edits of anything but these arguments.
    fn check_only_changed(&self, edited: &JsonObject, names: &[&str]) -> Result<(), EditError> {
        let changed = |name: &String| edited.get(name) != self.arguments.get(name);
        let mut all = edited.keys().chain(self.arguments.keys());
        match all.find(|name| changed(name) && !names.contains(&name.as_str())) {
            Some(name) => Err(EditError(format!("it has no `{name}`"))),
            None => Ok(()),
        }
    }
}

fn shell_call(
    form: &'static ShellForm,
    input: &JsonObject,
    place: &CallPlace,
) -> Option<TranslatedCall> {
    let known = |name: &str| {
        name == form.command
            || Some(name) == form.directory
            || Some(name) == form.background
            || form.without_effect.contains(&name)
    };
    if !input
        .iter()
        .all(|(name, value)| known(name) || value.is_null())
    {
        return None;
    }
    let command = text_field(input, form.command)?;
    let directory = form.directory.and_then(|name| text_field(input, name));
    let directory = match directory.filter(|directory| !directory.is_empty()) {
        Some(directory) => place.cwd.join(directory),
        None => place.cwd.clone(),
    };
    let mut arguments = JsonObject::new();
    arguments.insert("full_command".to_owned(), command.into());
    arguments.insert("cwd".to_owned(), directory.to_string_lossy().into());
    let background = form.background.and_then(|name| input.get(name));
    match background {
        None | Some(Value::Null | Value::Bool(false)) => {}
        // Copilot says it so.
        Some(Value::String(mode)) if mode == "sync" => {}
        Some(Value::Bool(true)) => {
            arguments.insert("mode".to_owned(), "background".into());
        }
        Some(_) => return None,
    }
    Some(TranslatedCall {
        tool_name: "shell".to_owned(),
        category: ToolCategory::ShellExecute,
        arguments,
        purpose: text_field(input, "description").unwrap_or_default(),
        made_in: None,
        way_back: WayBack::Shell(form),
    })
}

fn file_call(
    form: &'static FileForm,
    input: &JsonObject,
    place: &CallPlace,
) -> Option<TranslatedCall> {
    let ours = |name: &str| form.fields.iter().find(|(theirs, _)| *theirs == name);
    let mut arguments = JsonObject::new();
    for (name, value) in input {
        if value.is_null() || form.without_effect.contains(&name.as_str()) {
            continue;
        }
        if name == form.path {
            let path = value.as_str().filter(|path| trimmed(path) == *path)?;
            let path = relative_path(path, place);
            arguments.insert("path".to_owned(), path.into());
            continue;
        }
        let (_, ours) = ours(name)?;
        arguments.insert((*ours).to_owned(), value.clone());
    }
    let required = ["path"].iter().chain(form.required);
    if !required
        .into_iter()
        .all(|name| arguments.contains_key(*name))
    {
        return None;
    }
    Some(TranslatedCall {
        tool_name: form.tool.to_owned(),
        category: match form.tool {
            FILE_READ => ToolCategory::FileRead,
            FILE_WRITE | FILE_EDIT => ToolCategory::FileWrite,
            _ => ToolCategory::All,
        },
        arguments,
        purpose: String::new(),
        made_in: None,
        way_back: WayBack::File(form),
    })
}

/// A path from the workspace if it is certain to be inside, else the whole path.
fn relative_path(path: &str, place: &CallPlace) -> String {
    // Some clients take it for the home, wherever they work.
    if path.starts_with('~') {
        return path.to_owned();
    }
    let whole = place.cwd.join(path);
    let goes_up = whole.components().any(|part| part == Component::ParentDir);
    let inside = whole.strip_prefix(&place.workspace).ok();
    let inside = inside.filter(|rest| !goes_up && *rest != Path::new(""));
    inside.unwrap_or(&whole).to_string_lossy().into_owned()
}

fn text_field(object: &JsonObject, name: &str) -> Option<String> {
    object.get(name)?.as_str().map(str::to_owned)
}
