//! Looks for settings of a repository that would switch the supervision off.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::json_text::JsonText;

/// Bytes of the longest file that is read; a longer one counts as one that cannot be read.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// What is wrong with a file of settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsProblem {
    pub file: PathBuf,
    /// What it has, or why it cannot be read.
    pub what: String,
}

impl std::fmt::Display for SettingsProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file: String = self.file.display().to_string();
        let file: String = file.chars().filter(|c| !c.is_control()).collect();
        write!(f, "{file} has {}", self.what)
    }
}

/// The first file of a workspace, or of the repository around it, in which a check finds something.
/// A file that cannot be read counts as found: the client may read it differently.
pub(super) fn find(
    workspace: &Path,
    names: &[&str],
    check: impl Fn(&Map<String, Value>) -> Option<String>,
) -> Option<SettingsProblem> {
    let directories = directories_of(workspace);
    let mut files = directories
        .iter()
        .flat_map(|directory| names.iter().map(|name| directory.join(name)));
    files.find_map(|file| {
        let what = match read(&file) {
            Ok(None) => return None,
            Ok(Some(settings)) => check(&settings)?,
            Err(why) => format!("something that cannot be read: {why}"),
        };
        Some(SettingsProblem { file, what })
    })
}

/// The workspace and the directories above it, up to the top of the outermost repository: what looks
/// like one inside it may be none for the client.
pub(super) fn directories_of(workspace: &Path) -> Vec<PathBuf> {
    let above: Vec<_> = workspace.ancestors().map(Path::to_owned).collect();
    let top = above
        .iter()
        .rposition(|directory| directory.join(".git").exists());
    let count = top.map_or(1, |top| top + 1);
    above.into_iter().take(count).collect()
}

/// The settings of a file; `None` if there is no such file.
pub(super) fn read(file: &Path) -> Result<Option<Map<String, Value>>, String> {
    let length = match std::fs::metadata(file) {
        Ok(metadata) if !metadata.is_file() => return Err("it is not a file".to_owned()),
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if length > MAX_FILE_BYTES {
        return Err("it is too long".to_owned());
    }
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    if let Some(what) = reads_differently(&text) {
        return Err(format!(
            "it has {what}, which the client may read differently"
        ));
    }
    let parsed = JsonText::parse(&text).and_then(|text| text.value());
    match parsed {
        Ok(Value::Object(settings)) => Ok(Some(settings)),
        Ok(_) => Err("it is not an object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What a client may read in another way than we do. Where a comment ends is not the same for all
/// parsers, and OpenCode replaces `{env:NAME}` and `{file:PATH}` in the text before it parses it.
fn reads_differently(text: &str) -> Option<&'static str> {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let is_odd = |c: char| match c {
        '\n' | '\t' => false,
        '\u{2028}' | '\u{2029}' | '\u{feff}' => true,
        c => c.is_control(),
    };
    match text.contains(is_odd) {
        true => Some("control characters"),
        false => ["{env:", "{file:"]
            .iter()
            .any(|start| text.contains(start))
            .then_some("`{env:…}` or `{file:…}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_parser_may_read_differently_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("opencode.jsonc");
        let result = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read(&file)
        };
        for text in [
            "{\n  // harmless \r \"plugin\": [\"./evil.js\"]\n}\n",
            "{\n  // harmless \u{2028} \"plugin\": [\"./evil.js\"]\n}\n",
            "{\n  // harmless \u{85} \"plugin\": [\"./evil.js\"]\n}\n",
            "{ /* *{env:NO}/ \"plugin\": [\"./evil.js\"] /* */ }",
            "{ /* *{file:none}/ \"plugin\": [\"./evil.js\"] /* */ }",
        ] {
            let why = result(text).unwrap_err();
            assert!(why.contains("may read differently"), "{text}: {why}");
        }
        for text in [
            "{\r\n  // a comment\r\n  \"theme\": \"ü\",\t/* another */\r\n}\r\n",
            "\u{feff}{\"theme\": \"\\r{env\"}",
        ] {
            let names: Vec<_> = result(text).unwrap().unwrap().keys().cloned().collect();
            assert_eq!(names, ["theme"], "{text}");
        }
    }
}
