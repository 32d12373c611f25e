//! Claude Code: hooks in `--settings`, which stand above the files of the user and the repository.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::project_settings::{self, SettingsProblem};
use super::{HookProgram, LaunchError, LaunchPlan, ProjectPlace, ProjectTrust, WaitingText};
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

/// How often the status line is drawn again, in seconds.
const STATUS_SECONDS: u64 = 10;

/// How long a report may take.
const REPORT_SECONDS: u64 = 120;

/// The flag that says whose settings count, and ours: a repository's hooks may replace what people
/// were asked about, and its variables and skills run programs.
const SOURCES: &str = "--setting-sources";
pub(crate) const SOURCE_OF_USER: [&str; 2] = [SOURCES, "user"];

/// The variable that makes the client read what a directory that is named says to the model.
pub(crate) const MEMORY_VARIABLE: &str = "CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD";
const MEMORY: [&str; 3] = ["CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md"];
const RUN_WITH_MEMORY: [&str; 3] = [".claude/skills", ".claude/agents", ".claude/commands"];
const SETTINGS_WITH_MEMORY: [&str; 2] = [".claude/settings.json", ".claude/settings.local.json"];

/// Where the settings of a machine are, which stand above ours.
const MANAGED: &str = "/etc/claude-code";

/// Names in them that keep hooks from running which they do not have themselves.
const MANAGED_WITHOUT_HOOKS: [&str; 2] = ["allowManagedHooksOnly", "disableAllHooks"];

/// Flags that leave hooks out, or work where they are not.
const FLAGS_WITHOUT_HOOKS: [&str; 14] = [
    "--attach-serve",
    "--background",
    "--bare",
    "--bg",
    "--bg-pty-host",
    "--bg-spare",
    "--cloud",
    "--daemon-worker",
    "--desktop",
    "--environment",
    "--safe-mode",
    "--sdk-url",
    "--teleport",
    "--tmux",
];

/// Subcommands that work on in the background or elsewhere.
const COMMANDS_ELSEWHERE: [&str; 5] = [
    "agents",
    "attach",
    "remote-control",
    "respawn",
    "ultrareview",
];

pub(crate) const VARIABLES_WITHOUT_HOOKS: [&str; 2] =
    ["CLAUDE_CODE_SIMPLE", "CLAUDE_CODE_SAFE_MODE"];

pub(super) fn plan(
    arguments: &[OsString],
    hook: &HookProgram,
    place: ProjectPlace<'_>,
    waiting: &WaitingText,
) -> Result<LaunchPlan, LaunchError> {
    check_words(arguments, place)?;
    let mut rest = Vec::new();
    let mut given = None;
    let untrusted = place.trust == ProjectTrust::Untrusted;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if text == "--" {
            rest.push(word.clone());
            rest.extend(words.by_ref().cloned());
            break;
        }
        // Only the last one counts, so it is merged into ours.
        match text.split_once('=') {
            Some((SOURCES, _)) if untrusted => {}
            _ if text == SOURCES && untrusted => {
                words.next();
            }
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
    let mut environment = VARIABLES_WITHOUT_HOOKS
        .map(|name| (name.to_owned(), None))
        .to_vec();
    if untrusted {
        planned.extend(SOURCE_OF_USER.map(OsString::from));
        if let Some(word) = memory_word(place.workspace) {
            planned.push(word);
            environment.push((MEMORY_VARIABLE.to_owned(), Some("1".into())));
        }
    }
    planned.extend(rest);
    Ok(LaunchPlan {
        arguments: planned,
        environment,
        offers_tools: false,
    })
}

/// Refuses words that leave hooks out, work elsewhere, or bring in what a repository has.
pub(crate) fn check_words(
    arguments: &[OsString],
    place: ProjectPlace<'_>,
) -> Result<(), LaunchError> {
    if let Some(problem) = managed_problem(Path::new(MANAGED)) {
        return Err(LaunchError::ManagedSwitchesOff(problem));
    }
    let mut words = arguments
        .iter()
        .map(|word| word.to_string_lossy())
        .take_while(|word| word != "--")
        .peekable();
    while let Some(word) = words.next() {
        let (flag, joined) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (&*word, None),
        };
        let next = words.peek().map(|next| &**next);
        let value = joined.or(next).unwrap_or_default();
        let untrusted = place.trust == ProjectTrust::Untrusted;
        let brings_project = match flag {
            SOURCES => value.split(',').any(|source| source.trim() != "user"),
            "--plugin-dir" => is_below(value, place.workspace),
            _ => false,
        };
        if brings_project && untrusted {
            let flag = format!("{flag} {value}");
            return Err(LaunchError::BringsProject { flag });
        }
        if FLAGS_WITHOUT_HOOKS.contains(&flag) || flag.starts_with("--remote") {
            let flag = flag.to_owned();
            return Err(LaunchError::SwitchesOff { flag });
        }
        if COMMANDS_ELSEWHERE.contains(&&*word) {
            let command = format!("claude {word}");
            return Err(LaunchError::NotSupervised { command });
        }
    }
    Ok(())
}

/// What in the settings of a machine would keep our hooks from running; a file that cannot be read
/// counts.
fn managed_problem(directory: &Path) -> Option<SettingsProblem> {
    let mut files = vec![directory.join("managed-settings.json")];
    let more = std::fs::read_dir(directory.join("managed-settings.d"));
    let more = more
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    files.extend(more.filter(|path| path.extension().is_some_and(|ending| ending == "json")));
    files.sort();
    files.into_iter().find_map(|file| {
        let what = match project_settings::read(&file) {
            Ok(settings) => {
                let settings = settings.unwrap_or_default();
                let is_off =
                    |name: &&&str| !matches!(settings.get(**name), None | Some(Value::Bool(false)));
                let name = MANAGED_WITHOUT_HOOKS.iter().find(is_off)?;
                format!("`{name}`")
            }
            Err(why) => format!("something that cannot be read: {why}"),
        };
        Some(SettingsProblem { file, what })
    })
}

/// The word that lets the client read what a directory says to the model, which is only text;
/// `None` if there is nothing, or something that the client may run along with it.
pub(crate) fn memory_word(workspace: &Path) -> Option<OsString> {
    let is_there = |name: &&str| workspace.join(name).symlink_metadata().is_ok();
    let brings_plugins = |name: &&str| match project_settings::read(&workspace.join(name)) {
        Ok(settings) => settings.is_some_and(|settings| {
            let names = ["enabledPlugins", "extraKnownMarketplaces"];
            names.iter().any(|name| settings.contains_key(*name))
        }),
        Err(_) => true,
    };
    if !MEMORY.iter().any(is_there)
        || RUN_WITH_MEMORY.iter().any(is_there)
        || SETTINGS_WITH_MEMORY.iter().any(brings_plugins)
    {
        return None;
    }
    // In one word, because otherwise the words that follow count as directories too.
    let mut word = OsString::from("--add-dir=");
    word.push(workspace);
    Some(word)
}

/// Whether a path leads into a directory, also by a link; so does one that leads nowhere.
fn is_below(path: &str, directory: &Path) -> bool {
    let directory = directory.canonicalize();
    match (directory.as_ref(), Path::new(path).canonicalize()) {
        (Ok(directory), Ok(path)) => path.starts_with(directory),
        (Ok(_) | Err(_), _) => true,
    }
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
        let line = json!({
            "type": "command", "command": hook.status_command(),
            // How long a call has waited changes while nothing else does.
            "refreshInterval": STATUS_SECONDS,
        });
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
        plan_in(Path::new("/"), ProjectTrust::Untrusted, words)
    }

    fn plan_in(
        workspace: &Path,
        trust: ProjectTrust,
        words: &[&str],
    ) -> Result<LaunchPlan, LaunchError> {
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        let place = ProjectPlace { workspace, trust };
        plan(
            &words,
            &hook(),
            place,
            &WaitingText("asking ann".to_owned()),
        )
    }

    fn settings_of(plan: &LaunchPlan) -> Value {
        assert_eq!(plan.arguments[0], "--settings");
        serde_json::from_str(plan.arguments[1].to_str().unwrap()).unwrap()
    }

    #[test]
    fn every_event_calls_the_hook_and_a_question_fails_closed() {
        let plan = plan_for(&["-p", "do it", "--", "--settings"]).unwrap();
        let sources = plan.arguments[2..4].to_vec();
        assert_eq!(sources, ["--setting-sources", "user"]);
        assert_eq!(plan.arguments[4..], ["-p", "do it", "--", "--settings"]);
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
            assert_eq!(plan.arguments.len(), 4);
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
        for flag in [
            "--bare",
            "--safe-mode",
            "--bare=true",
            "--bg",
            "--cloud=x",
            "--environment",
            "--teleport",
            "--remote-control",
            "--remote",
            "--tmux=classic",
        ] {
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

    #[test]
    fn settings_of_the_machine_that_leave_our_hooks_out_are_seen() {
        let machine = tempfile::tempdir().unwrap();
        let found = || managed_problem(machine.path()).map(|problem| problem.what);
        let drop_ins = machine.path().join("managed-settings.d");
        std::fs::create_dir(&drop_ins).unwrap();
        assert_eq!(found(), None);
        for file in [
            machine.path().join("managed-settings.json"),
            drop_ins.join("a.json"),
        ] {
            for (text, expected) in [
                (r#"{"hooks": {}, "disableAllHooks": false}"#, None),
                (r#"{"disableAllHooks": true}"#, Some("`disableAllHooks`")),
                (
                    r#"{"allowManagedHooksOnly": true}"#,
                    Some("`allowManagedHooksOnly`"),
                ),
                (
                    r#"{"allowManagedHooksOnly": "yes"}"#,
                    Some("`allowManagedHooksOnly`"),
                ),
                ("{ broken", Some("something that cannot be read")),
            ] {
                std::fs::write(&file, text).unwrap();
                let what = found();
                assert_eq!(what.is_some(), expected.is_some(), "{text}: {what:?}");
                assert!(
                    what.unwrap_or_default()
                        .starts_with(expected.unwrap_or_default())
                );
            }
            std::fs::remove_file(&file).unwrap();
        }
    }

    #[test]
    fn what_works_elsewhere_is_not_supervised() {
        for words in [&["attach", "x"][..], &["--verbose", "agents"]] {
            let planned = plan_for(words);
            assert!(
                matches!(planned, Err(LaunchError::NotSupervised { .. })),
                "{words:?}"
            );
        }
        assert!(plan_for(&["-p", "attach it", "--", "attach"]).is_ok());
    }

    #[test]
    fn settings_of_the_repository_count_only_if_the_person_trusts_it() {
        let root = tempfile::tempdir().unwrap();
        let workspace = root.path().join("work");
        let plugin = workspace.join("plugin");
        std::fs::create_dir_all(&plugin).unwrap();
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&plugin, &link).unwrap();
        let (plugin, link) = (plugin.to_str().unwrap(), link.to_str().unwrap());
        let joined = format!("--plugin-dir={plugin}");
        for words in [
            &["--setting-sources", "user,project"][..],
            &["--setting-sources=local"],
            &["--setting-sources"],
            &["--plugin-dir", plugin],
            &["--plugin-dir", link],
            &[joined.as_str()],
        ] {
            let planned = plan_in(&workspace, ProjectTrust::Untrusted, words);
            assert!(
                matches!(planned, Err(LaunchError::BringsProject { .. })),
                "{words:?}"
            );
            let planned = plan_in(&workspace, ProjectTrust::Trusted, words).unwrap();
            assert_eq!(planned.arguments[2..], *words);
        }
        let own = root.path().to_str().unwrap();
        let words = ["--setting-sources", "user", "--plugin-dir", own];
        let planned = plan_in(&workspace, ProjectTrust::Untrusted, &words).unwrap();
        assert_eq!(planned.arguments[2..], words);
    }

    #[test]
    fn what_the_repository_says_to_the_model_stays() {
        let root = tempfile::tempdir().unwrap();
        let planned = || plan_in(root.path(), ProjectTrust::Untrusted, &["fix it"]).unwrap();
        let variable = (MEMORY_VARIABLE.to_owned(), Some("1".into()));
        assert_eq!(planned().arguments[4..], ["fix it"]);
        assert!(!planned().environment.contains(&variable));
        std::fs::write(root.path().join("CLAUDE.md"), "be kind").unwrap();
        std::fs::create_dir(root.path().join(".claude")).unwrap();
        let settings = root.path().join(".claude/settings.json");
        std::fs::write(&settings, r#"{"hooks": {}}"#).unwrap();
        let word = format!("--add-dir={}", root.path().display());
        assert_eq!(planned().arguments[4..], [word.as_str(), "fix it"]);
        assert!(planned().environment.contains(&variable));
        for text in [r#"{"enabledPlugins": {}}"#, "{ broken"] {
            std::fs::write(&settings, text).unwrap();
            assert_eq!(planned().arguments[4..], ["fix it"], "{text}");
        }
        std::fs::remove_file(&settings).unwrap();
        std::fs::create_dir(root.path().join(".claude/skills")).unwrap();
        assert_eq!(planned().arguments[4..], ["fix it"]);
    }
}
