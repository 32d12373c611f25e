//! Claude Code: hooks in `--settings`, which stand above the files of the user and the repository.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::{HookProgram, LaunchError, LaunchPlan, WaitingText};
use crate::hooks::HookClient;

/// The events that the hook hears.
pub(crate) const EVENTS: [&str; 8] = [
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "UserPromptSubmit",
    "SessionStart",
    "SessionEnd",
    "Stop",
];

/// How long a question may wait, in seconds: below what fits in milliseconds of 32 bits.
const TIMEOUT_SECONDS: u64 = 2_000_000;

/// How long a report may take.
const REPORT_SECONDS: u64 = 120;

/// Flags and variables that leave hooks out.
const FLAGS_WITHOUT_HOOKS: [&str; 2] = ["--bare", "--safe-mode"];
const VARIABLES_WITHOUT_HOOKS: [&str; 2] = ["CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SAFE_MODE"];

pub(super) fn plan(
    arguments: &[OsString],
    hook: &HookProgram,
    waiting: &WaitingText,
) -> Result<LaunchPlan, LaunchError> {
    let mut rest = Vec::new();
    let mut given = None;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if text == "--" {
            rest.push(word.clone());
            rest.extend(words.by_ref().cloned());
            break;
        }
        let flag = text.split_once('=').map_or(&*text, |(flag, _)| flag);
        if FLAGS_WITHOUT_HOOKS.contains(&flag) {
            let flag = flag.to_owned();
            return Err(LaunchError::SwitchesOff { flag });
        }
        // Only the last one counts, so it is merged into ours.
        match text.split_once('=') {
            Some(("--settings", value)) => given = Some(value.to_owned()),
            _ if text == "--settings" => {
                let value = words.next();
                let missing = || LaunchError::Settings("it needs a file or JSON".to_owned());
                given = Some(value.ok_or_else(missing)?.to_string_lossy().into_owned());
            }
            _ => rest.push(word.clone()),
        }
    }
    let mut settings = match given {
        Some(text) => read_settings(&text).map_err(LaunchError::Settings)?,
        None => Map::new(),
    };
    add_hooks(&mut settings, hook, waiting);
    let mut planned = vec![
        "--settings".into(),
        OsString::from(Value::Object(settings).to_string()),
    ];
    planned.extend(rest);
    let removed = VARIABLES_WITHOUT_HOOKS.map(|name| (name.to_owned(), None));
    Ok(LaunchPlan {
        arguments: planned,
        environment: removed.to_vec(),
        offers_tools: false,
    })
}

/// The settings of the user, with the hooks added.
pub(super) fn add_hooks(
    settings: &mut Map<String, Value>,
    hook: &HookProgram,
    waiting: &WaitingText,
) {
    settings.insert("disableAllHooks".to_owned(), false.into());
    if !settings.get("hooks").is_some_and(Value::is_object) {
        settings.insert("hooks".to_owned(), json!({}));
    }
    for event in EVENTS {
        let command = hook.command(HookClient::Claude, None);
        let entry = hook_entry(event, &command, &waiting.0);
        match settings["hooks"]
            .get_mut(event)
            .and_then(Value::as_array_mut)
        {
            Some(entries) => entries.push(entry),
            None => settings["hooks"][event] = json!([entry]),
        }
    }
    if !has_status_line() && !settings.contains_key("statusLine") {
        let line = json!({ "type": "command", "command": hook.status_command() });
        settings.insert("statusLine".to_owned(), line);
    }
}

/// The hook of an event, as this client reads it from its settings.
pub(crate) fn hook_entry(event: &str, command: &str, waiting: &str) -> Value {
    let mut entry = json!({ "type": "command", "command": command, "timeout": REPORT_SECONDS });
    if event == "PreToolUse" {
        entry["timeout"] = TIMEOUT_SECONDS.into();
        entry["onFailure"] = "block".into();
        entry["statusMessage"] = waiting.into();
        return json!({ "matcher": "*", "hooks": [entry] });
    }
    json!({ "hooks": [entry] })
}

/// Reads settings as Claude Code takes them: JSON, or the name of a file.
fn read_settings(text: &str) -> Result<Map<String, Value>, String> {
    let json = match text.trim_start().starts_with('{') {
        true => text.to_owned(),
        false => std::fs::read_to_string(text).map_err(|error| format!("{text}: {error}"))?,
    };
    match serde_json::from_str(&json) {
        Ok(Value::Object(settings)) => Ok(settings),
        Ok(_) => Err("it is not a JSON object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether the user has a status line of their own, which is left alone.
fn has_status_line() -> bool {
    user_settings()
        .and_then(|path| std::fs::read_to_string(path).ok())
        .and_then(|text| serde_json::from_str::<Value>(&text).ok())
        .is_some_and(|settings| settings.get("statusLine").is_some())
}

/// The user's own settings.
pub(super) fn user_settings() -> Option<PathBuf> {
    let directory = std::env::var_os("CLAUDE_CONFIG_DIR").map(PathBuf::from);
    let directory =
        directory.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".claude")));
    Some(directory?.join("settings.json"))
}

/// Settings of a repository that the client runs or uses by itself.
pub(super) const ACTIVE_SETTINGS: [(&str, &[&str]); 3] = [
    (".claude/settings.json", ACTIVE),
    (".claude/settings.local.json", ACTIVE),
    (".mcp.json", &["mcpServers"]),
];
const ACTIVE: &[&str] = &["hooks", "env", "apiKeyHelper", "statusLine"];

#[cfg(test)]
mod tests {
    use super::*;

    fn hook() -> HookProgram {
        HookProgram {
            program: "/opt/p v/pvp".into(),
            files: "/state/it's".into(),
        }
    }

    fn plan_for(words: &[&str]) -> Result<LaunchPlan, LaunchError> {
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        plan(&words, &hook(), &WaitingText("asking ann".to_owned()))
    }

    fn settings_of(plan: &LaunchPlan) -> Value {
        assert_eq!(plan.arguments[0], "--settings");
        serde_json::from_str(plan.arguments[1].to_str().unwrap()).unwrap()
    }

    #[test]
    fn every_event_calls_the_hook_and_a_question_fails_closed() {
        let plan = plan_for(&["-p", "do it", "--", "--settings"]).unwrap();
        assert_eq!(plan.arguments[2..], ["-p", "do it", "--", "--settings"]);
        let settings = settings_of(&plan);
        assert_eq!(settings["disableAllHooks"], false);
        for event in EVENTS {
            let hook = &settings["hooks"][event][0]["hooks"][0];
            let command = r"'/opt/p v/pvp' hook run claude --files '/state/it'\''s'";
            assert_eq!(hook["command"], command, "{event}");
        }
        let question = &settings["hooks"]["PreToolUse"][0];
        assert_eq!(question["matcher"], "*");
        assert_eq!(question["hooks"][0]["onFailure"], "block");
        assert_eq!(question["hooks"][0]["statusMessage"], "asking ann");
    }

    #[test]
    fn settings_of_the_user_are_kept_and_ours_win() {
        let given = r#"{"model":"x","disableAllHooks":true,"hooks":{"PreToolUse":[{"hooks":[]}]}}"#;
        for words in [
            ["--settings", given].as_slice(),
            &[&format!("--settings={given}")],
        ] {
            let plan = plan_for(words).unwrap();
            assert_eq!(plan.arguments.len(), 2);
            let settings = settings_of(&plan);
            assert_eq!(settings["model"], "x");
            assert_eq!(settings["disableAllHooks"], false);
            assert_eq!(settings["hooks"]["PreToolUse"][1]["matcher"], "*");
        }
        for bad in ["[]", "{", "/no/such/file"] {
            assert!(matches!(
                plan_for(&["--settings", bad]),
                Err(LaunchError::Settings(_))
            ));
        }
        assert!(plan_for(&["--settings"]).is_err());
    }

    #[test]
    fn what_switches_hooks_off_is_refused_or_removed() {
        for flag in ["--bare", "--safe-mode", "--bare=true"] {
            assert!(matches!(
                plan_for(&["-p", flag]),
                Err(LaunchError::SwitchesOff { .. })
            ));
        }
        let environment = plan_for(&[]).unwrap().environment;
        for name in VARIABLES_WITHOUT_HOOKS {
            assert!(environment.contains(&(name.to_owned(), None)));
        }
    }
}
