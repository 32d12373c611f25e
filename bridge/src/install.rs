//! Puts hooks into a client's own settings for good, and takes them out again.
//!
//! Everything else in the settings stays as it is, comments too. A file that cannot be read is left
//! alone.

mod codex;
mod file;

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::hooks::HookClient;
use crate::json_text::{JsonText, JsonTextError};
use crate::launch::{WaitingText, claude, copilot, gemini, opencode};
use file::{Ownership, SettingsFile};

/// What a client shows while a call waits: who is asked depends on the directory.
const INSTALLED_WAITING: &str = "PVP asks the approvers (pvp gates)";

/// For whom hooks are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallScope {
    /// One user, in every directory.
    User,
    /// Everybody who works in one directory.
    Project,
    /// Every user of this machine.
    Managed,
}

/// Where the settings of clients are.
#[derive(Debug, Clone)]
pub struct InstallPlace {
    pub home: PathBuf,
    /// The directory for settings below the home.
    pub config: PathBuf,
    pub project: PathBuf,
    /// What `/etc` is below.
    pub root: PathBuf,
    /// Where it is kept what was there before.
    pub records: PathBuf,
}

/// Why hooks were not installed, or not taken out.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("{0}")]
    NotPossible(String),
    #[error("{path} is left as it is, because it cannot be read: {why}; repair it and try again", path = .path.display())]
    Unreadable { path: PathBuf, why: JsonTextError },
    #[error("{path}: {why}", path = .path.display())]
    Io { path: PathBuf, why: std::io::Error },
}

/// What was done with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingsChange {
    Written(PathBuf),
    Removed(PathBuf),
    /// It was so already.
    Unchanged(PathBuf),
}

/// The words that start the hook program, each as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledHook {
    pub words: Vec<String>,
}

impl InstalledHook {
    /// The command line for a client, for a shell.
    fn command(&self, client: HookClient, event: Option<&str>) -> String {
        let mut words: Vec<_> = self.words.iter().map(|word| quoted(word)).collect();
        words.extend(["hook", "run", client.name()].map(str::to_owned));
        if let Some(event) = event {
            words.push(format!("--event {event}"));
        }
        words.join(" ")
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Refuses settings that a client does not have.
pub fn check(
    client: HookClient,
    scope: InstallScope,
    place: &InstallPlace,
) -> Result<(), InstallError> {
    settings_files(client, scope, place).map(drop)
}

/// Installs the hooks of a client.
pub fn install(
    client: HookClient,
    scope: InstallScope,
    place: &InstallPlace,
    hook: &InstalledHook,
) -> Result<Vec<SettingsChange>, InstallError> {
    let files = settings_files(client, scope, place)?;
    match client {
        HookClient::Claude | HookClient::Gemini => {
            let [file] = files.as_slice() else {
                return Ok(Vec::new());
            };
            check_heeded(client, file)?;
            let change = file.change(
                &place.records,
                |text| remove_hooks(text, client),
                |text| add_hooks(text, client, hook),
            )?;
            Ok(vec![change])
        }
        HookClient::Copilot => {
            let hooks = copilot::hooks_file(|event| hook.command(client, Some(event)));
            let text = serde_json::to_string_pretty(&hooks).unwrap_or_default();
            let text = format!("{text}\n");
            let changes = files
                .iter()
                .map(|file| file.replace(&text, is_ours(client)));
            changes.collect()
        }
        HookClient::OpenCode => {
            let [plugin, config] = files.as_slice() else {
                return Ok(Vec::new());
            };
            plugin.check(is_ours(client))?;
            let mut words = hook.words.clone();
            words.extend(["hook", "run", "opencode"].map(str::to_owned));
            // The denial comes first: without the plugin nothing runs, and not the other way round.
            let ours = has_backstop(plugin)?;
            let denied = config.change(&place.records, |_| Ok(()), add_denial)?;
            let backstop = ours || matches!(denied, SettingsChange::Written(_));
            let waiting = WaitingText(INSTALLED_WAITING.to_owned());
            let text = opencode::plugin_text(&words, backstop, &waiting);
            let written = plugin.replace(&text, is_ours(client))?;
            Ok(vec![written, denied])
        }
        HookClient::Codex => {
            let [file] = files.as_slice() else {
                return Ok(Vec::new());
            };
            let before = file.read()?.unwrap_or_default();
            let directory = file.path().parent().unwrap_or(file.path());
            let command = hook.command(client, None);
            let after = codex::with_hooks(&before, &command, &directory.to_string_lossy());
            let after = after.map_err(|why| {
                InstallError::NotPossible(format!("{}: {why}", file.path().display()))
            })?;
            Ok(vec![file.replace(&after, is_ours(client))?])
        }
    }
}

/// Takes the hooks of a client out again.
pub fn uninstall(
    client: HookClient,
    scope: InstallScope,
    place: &InstallPlace,
) -> Result<Vec<SettingsChange>, InstallError> {
    let files = settings_files(client, scope, place)?;
    match client {
        HookClient::Claude | HookClient::Gemini => {
            let restored = files
                .iter()
                .map(|file| file.restore(&place.records, |text| remove_hooks(text, client)));
            restored.collect()
        }
        HookClient::Copilot => {
            let removed = files.iter().map(|file| file.remove(is_ours(client)));
            removed.collect()
        }
        HookClient::OpenCode => {
            let [plugin, config] = files.as_slice() else {
                return Ok(Vec::new());
            };
            let ours = has_backstop(plugin)?;
            let removed = plugin.remove(is_ours(client))?;
            // A denial of somebody else's stays.
            let restored = match ours {
                true => config.restore(&place.records, remove_denial)?,
                false => SettingsChange::Unchanged(config.path().to_owned()),
            };
            Ok(vec![removed, restored])
        }
        HookClient::Codex => {
            let [file] = files.as_slice() else {
                return Ok(Vec::new());
            };
            let before = file.read()?.unwrap_or_default();
            let after = codex::without_hooks(&before);
            Ok(vec![match after.is_empty() {
                true => file.remove(is_ours(client))?,
                false => file.replace(&after, is_ours(client))?,
            }])
        }
    }
}

/// The files that a client reads its hooks from.
fn settings_files(
    client: HookClient,
    scope: InstallScope,
    place: &InstallPlace,
) -> Result<Vec<SettingsFile>, InstallError> {
    let not_possible = |why: &str| Err(InstallError::NotPossible(why.to_owned()));
    let in_scope = |user: PathBuf, project: &str, managed: &str| match scope {
        InstallScope::User => user,
        InstallScope::Project => place.project.join(project),
        InstallScope::Managed => place.root.join(managed),
    };
    let paths = match (client, scope) {
        (HookClient::Claude, _) => {
            let user = place.home.join(".claude/settings.json");
            vec![in_scope(
                user,
                ".claude/settings.json",
                "etc/claude-code/managed-settings.json",
            )]
        }
        (HookClient::Gemini, _) => {
            let user = place.home.join(".gemini/settings.json");
            vec![in_scope(
                user,
                ".gemini/settings.json",
                "etc/gemini-cli/settings.json",
            )]
        }
        (HookClient::Copilot, InstallScope::User | InstallScope::Project) => {
            let user = place.home.join(".copilot/hooks/pvp.json");
            vec![in_scope(user, ".github/hooks/pvp.json", "")]
        }
        (HookClient::OpenCode, InstallScope::User | InstallScope::Project) => {
            let user = place.config.join("opencode");
            let (plugins, config) = match scope {
                InstallScope::User | InstallScope::Managed => (user.join("plugin"), user),
                InstallScope::Project => (
                    place.project.join(".opencode/plugin"),
                    place.project.clone(),
                ),
            };
            let with_comments = config.join("opencode.jsonc");
            let config = match with_comments.exists() {
                true => with_comments,
                false => config.join("opencode.json"),
            };
            vec![plugins.join("pvp.js"), config]
        }
        (HookClient::Copilot, InstallScope::Managed) => {
            return not_possible(
                "copilot has no hooks for the whole machine; install them with --user, or start it with `pvp run -- copilot`",
            );
        }
        (HookClient::OpenCode, InstallScope::Managed) => {
            return not_possible(
                "opencode has no plugins for the whole machine; install it with --user, or start it with `pvp run -- opencode`",
            );
        }
        (HookClient::Codex, InstallScope::Managed) => {
            vec![place.root.join("etc/codex/requirements.toml")]
        }
        (HookClient::Codex, InstallScope::User | InstallScope::Project) => {
            return not_possible(
                "codex skips hooks silently until each user has trusted them; install them for the whole machine with --managed, or start it with `pvp run -- codex`",
            );
        }
    };
    let files = paths.into_iter().enumerate().map(|(index, path)| {
        let ownership = match (client, index) {
            (HookClient::Copilot, _) | (HookClient::OpenCode, 0) => Ownership::Ours,
            (HookClient::OpenCode, _)
            | (HookClient::Claude | HookClient::Gemini | HookClient::Codex, _) => Ownership::Shared,
        };
        SettingsFile::at(path, scope, ownership, &place.project)
    });
    files.collect()
}

/// Whether a file that PVP writes as a whole is PVP's.
fn is_ours(client: HookClient) -> impl Fn(&str) -> bool {
    move |text| match client {
        HookClient::OpenCode => text.starts_with(opencode::PLUGIN_BEGIN),
        HookClient::Copilot => text.contains(" hook run copilot --event "),
        HookClient::Claude | HookClient::Gemini | HookClient::Codex => true,
    }
}

/// Refuses to add hooks to settings that switch hooks off: people would believe that they are asked.
fn check_heeded(client: HookClient, file: &SettingsFile) -> Result<(), InstallError> {
    let settings = file.value()?;
    let is = |name: &str, value: bool| settings.pointer(name) == Some(&Value::Bool(value));
    let off = match client {
        HookClient::Claude if is("/disableAllHooks", true) => "disableAllHooks",
        HookClient::Gemini if is("/hooksConfig/enabled", false) => "hooksConfig.enabled",
        HookClient::Gemini if is("/tools/enableHooks", false) => "tools.enableHooks",
        HookClient::Claude
        | HookClient::Gemini
        | HookClient::Codex
        | HookClient::OpenCode
        | HookClient::Copilot => return Ok(()),
    };
    let path = file.path().display();
    Err(InstallError::NotPossible(format!(
        "{path} switches hooks off with `{off}`, so nobody would be asked; take that out first"
    )))
}

/// The events of a client whose hooks are in its settings.
fn events(client: HookClient) -> &'static [&'static str] {
    match client {
        HookClient::Claude => &claude::EVENTS,
        HookClient::Gemini => &gemini::EVENTS,
        HookClient::Codex | HookClient::OpenCode | HookClient::Copilot => &[],
    }
}

fn add_hooks(
    text: &mut JsonText,
    client: HookClient,
    hook: &InstalledHook,
) -> Result<(), JsonTextError> {
    let command = hook.command(client, None);
    for event in events(client) {
        let entry = match client {
            HookClient::Gemini => gemini::hook_entry(event, &command),
            HookClient::Claude | HookClient::Codex | HookClient::OpenCode | HookClient::Copilot => {
                claude::hook_entry(event, &command, INSTALLED_WAITING)
            }
        };
        text.push(&["hooks", event], &entry)?;
    }
    Ok(())
}

fn remove_hooks(text: &mut JsonText, client: HookClient) -> Result<(), JsonTextError> {
    let said = format!(" hook run {}", client.name());
    let is_ours = |hook: &Value| {
        let command = hook["command"].as_str();
        command.is_some_and(|command| command.ends_with(&said))
    };
    let holds_only_ours = |entry: &Value| {
        let hooks = entry["hooks"].as_array();
        hooks.is_some_and(|hooks| !hooks.is_empty() && hooks.iter().all(is_ours))
    };
    let mut removed = 0;
    for event in events(client) {
        let path = ["hooks", *event];
        removed += text.remove_elements(&path, holds_only_ours)?;
        // Somebody else's hooks may be beside ours.
        removed += text.remove_inner_elements(&path, "hooks", is_ours)?;
    }
    match removed {
        0 => Ok(()),
        _ => text.remove_if_empty(&["hooks"]),
    }
}

/// Denies every tool, unless the file says something about that already.
fn add_denial(text: &mut JsonText) -> Result<(), JsonTextError> {
    let permission = text.value()?["permission"].clone();
    match &permission {
        Value::Null => text.set(&[], "permission", &json!({ "*": "deny" })),
        Value::Object(rules) if !rules.contains_key("*") => {
            text.set(&["permission"], "*", &"deny".into())
        }
        Value::Object(_)
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_) => Ok(()),
    }
}

fn remove_denial(text: &mut JsonText) -> Result<(), JsonTextError> {
    if text.value()?["permission"]["*"] == "deny" {
        text.remove(&["permission", "*"])?;
        text.remove_if_empty(&["permission"])?;
    }
    Ok(())
}

/// Whether the plugin that is there stands before a denial of ours.
fn has_backstop(plugin: &SettingsFile) -> Result<bool, InstallError> {
    let text = plugin.read()?.unwrap_or_default();
    Ok(text.contains("\"backstop\":true"))
}
