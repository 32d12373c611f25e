//! Copilot CLI: hooks in a plugin of its own, given with `--plugin-dir`.
//!
//! A call that no hook answers falls to the client's own prompt, and without a person there it is
//! denied. So what lets calls run without a prompt is refused: then nothing runs if the hooks are
//! switched off.

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Value, json};

use super::flags::{flag_of, variable_removals};
use super::project_settings::{self, SettingsProblem};
use super::{HookProgram, LaunchError, LaunchPlan};
use crate::hooks::HookClient;

/// The events that the hook hears.
pub(crate) const EVENTS: [&str; 7] = [
    "preToolUse",
    "postToolUse",
    "postToolUseFailure",
    "userPromptSubmitted",
    "agentStop",
    "sessionStart",
    "sessionEnd",
];

/// How long a question may wait, in seconds: below what fits in milliseconds of 32 bits.
const TIMEOUT_SECONDS: u64 = 2_000_000;

/// How long a report may take.
const REPORT_SECONDS: u64 = 120;

/// Flags that let calls run without a question if the hooks are off.
const FLAGS_WITHOUT_QUESTION: [&str; 6] = [
    "--allow-all-tools",
    "--allow-all",
    "--yolo",
    "--allow-tool",
    "--assisted-approval",
    "--autopilot",
];

/// Flags that work elsewhere or without hooks.
const FLAGS_WITHOUT_HOOKS: [&str; 5] =
    ["--acp", "--connect", "--remote", "--environment-host", "-C"];

const VARIABLES_WITHOUT_QUESTION: [&str; 2] = ["COPILOT_ALLOW_ALL", "COPILOT_ASSISTED_APPROVAL"];

/// Files of a repository in which this client reads whether hooks are off.
const PROJECT_FILES: [&str; 4] = [
    ".github/copilot/settings.json",
    ".github/copilot/settings.local.json",
    ".claude/settings.json",
    ".claude/settings.local.json",
];

pub(super) fn plan(
    arguments: &[OsString],
    hook: &HookProgram,
    workspace: &Path,
) -> Result<LaunchPlan, LaunchError> {
    for (index, word) in arguments.iter().enumerate() {
        let text = word.to_string_lossy();
        let flag = flag_of(&text);
        let sets_autopilot = flag == "--mode"
            && (text.ends_with("=autopilot")
                || arguments
                    .get(index + 1)
                    .is_some_and(|next| next == "autopilot"));
        let is_joined_directory = text.starts_with("-C") && !text.starts_with("--");
        if FLAGS_WITHOUT_QUESTION.contains(&flag)
            || FLAGS_WITHOUT_HOOKS.contains(&flag)
            || sets_autopilot
            || is_joined_directory
            || (index == 0 && flag == "workflow")
        {
            let flag = flag.to_owned();
            return Err(LaunchError::SwitchesOff { flag });
        }
    }
    if let Some(problem) = switched_off_in(workspace) {
        return Err(LaunchError::ProjectSwitchesOff(problem));
    }
    let plugin = write_plugin(hook).map_err(|error| LaunchError::Plugin(error.to_string()))?;
    // The hooks of the plugin that is named last hear of a call last, with what others made of it.
    let mut planned = arguments.to_vec();
    planned.push("--plugin-dir".into());
    planned.push(plugin.into_os_string());
    Ok(LaunchPlan {
        arguments: planned,
        environment: variable_removals(&VARIABLES_WITHOUT_QUESTION),
        offers_tools: false,
    })
}

/// The file of a repository that switches hooks off, or cannot be read.
fn switched_off_in(workspace: &Path) -> Option<SettingsProblem> {
    project_settings::find(workspace, &PROJECT_FILES, |settings| {
        let off = settings.get("disableAllHooks");
        off.filter(|value| **value != Value::Bool(false))
            .map(|_| "`disableAllHooks`".to_owned())
    })
}

/// The hooks, as this client reads them from a file.
pub(crate) fn hooks_file(command: impl Fn(&str) -> String) -> Value {
    let entry = |event: &str| {
        let seconds = match event {
            "preToolUse" => TIMEOUT_SECONDS,
            _ => REPORT_SECONDS,
        };
        json!([{ "type": "command", "bash": command(event), "timeoutSec": seconds }])
    };
    let hooks = EVENTS.map(|event| (event.to_owned(), entry(event)));
    json!({ "version": 1, "hooks": Value::Object(hooks.into_iter().collect()) })
}

fn write_plugin(hook: &HookProgram) -> std::io::Result<std::path::PathBuf> {
    let directory = hook.files.join("copilot-plugin");
    pvp_client::user_directories::create_private_directory(&directory)?;
    let manifest = json!({
        "name": "pvp", "version": env!("CARGO_PKG_VERSION"),
        "description": "People decide about every call", "hooks": "hooks.json",
    });
    let hooks = hooks_file(|event| hook.command(HookClient::Copilot, Some(event)));
    super::write_private(&directory.join("plugin.json"), &manifest.to_string())?;
    super::write_private(&directory.join("hooks.json"), &hooks.to_string())?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(files: &Path) -> HookProgram {
        HookProgram {
            program: "/opt/pvp".into(),
            files: files.to_owned(),
        }
    }

    #[test]
    fn the_hooks_come_in_a_plugin_and_a_question_may_wait() {
        let files = tempfile::tempdir().unwrap();
        let words = ["-p", "do it", "--model", "gpt-5.5"].map(OsString::from);
        let planned = plan(&words, &hook(files.path()), files.path()).unwrap();
        assert_eq!(planned.arguments[..4], words);
        assert_eq!(planned.arguments[4], "--plugin-dir");
        let plugin = Path::new(&planned.arguments[5]);
        let read = |name: &str| -> Value {
            serde_json::from_str(&std::fs::read_to_string(plugin.join(name)).unwrap()).unwrap()
        };
        assert_eq!(read("plugin.json")["hooks"], "hooks.json");
        let hooks = read("hooks.json");
        for event in EVENTS {
            let command = hooks["hooks"][event][0]["bash"].as_str().unwrap();
            let expected = format!("'/opt/pvp' hook run copilot --event {event} --files ");
            assert!(command.starts_with(&expected), "{command}");
        }
        assert_eq!(hooks["hooks"]["preToolUse"][0]["timeoutSec"], 2_000_000);
        for name in VARIABLES_WITHOUT_QUESTION {
            assert!(planned.environment.contains(&(name.to_owned(), None)));
        }
    }

    #[test]
    fn what_would_run_calls_without_the_hooks_is_refused() {
        let files = tempfile::tempdir().unwrap();
        for words in [
            ["--yolo"].as_slice(),
            &["-p", "x", "--allow-all-tools"],
            &["--allow-all"],
            &["--allow-tool=shell(git:*)"],
            &["--allow-tool", "write"],
            &["--mode", "autopilot"],
            &["--mode=autopilot"],
            &["--autopilot"],
            &["--acp"],
            &["--connect=x"],
            &["-C", "/elsewhere"],
            &["-C/elsewhere"],
            &["workflow", "run"],
        ] {
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            let planned = plan(&words, &hook(files.path()), files.path());
            assert!(
                matches!(planned, Err(LaunchError::SwitchesOff { .. })),
                "{words:?}"
            );
        }
        let words = ["--mode", "plan"].map(OsString::from);
        assert!(plan(&words, &hook(files.path()), files.path()).is_ok());
    }

    #[test]
    fn a_repository_that_switches_hooks_off_is_refused() {
        let files = tempfile::tempdir().unwrap();
        for name in PROJECT_FILES {
            let repository = tempfile::tempdir().unwrap();
            let workspace = repository.path().join("sub");
            std::fs::create_dir_all(repository.path().join(".git")).unwrap();
            std::fs::create_dir_all(&workspace).unwrap();
            let path = repository.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let plan_with = |text: &str| {
                std::fs::write(&path, text).unwrap();
                plan(&[], &hook(files.path()), &workspace)
            };
            for off in [
                r#"{"disableAllHooks": true}"#,
                r#"{"\u0064isableAllHooks": true,} // off"#,
                r#"{"disableAllHooks": "true"}"#,
                "{ broken",
            ] {
                let planned = plan_with(off);
                assert!(
                    matches!(planned, Err(LaunchError::ProjectSwitchesOff(_))),
                    "{name} {off}"
                );
            }
            assert!(plan_with(r#"{"disableAllHooks": false, "model": "x"}"#).is_ok());
        }
    }
}
