//! `pvp hook install` and `pvp hook uninstall`: the hooks of a client in its own settings, for good.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pvp_bridge::hooks::HookClient;
use pvp_bridge::install::{self, InstallPlace, InstallScope, InstalledHook, SettingsChange};
use pvp_client::user_directories::state_directory;

use super::hook::parse_client;
use super::{one_line, print_line};

#[derive(Args)]
pub(crate) struct HookInstallArguments {
    /// The client: claude, opencode, gemini or copilot
    #[arg(value_parser = parse_client)]
    client: HookClient,
    /// For you, in every directory (the default)
    #[arg(long, conflicts_with_all = ["project", "managed"])]
    user: bool,
    /// For this directory, in its own settings
    #[arg(long, conflicts_with = "managed")]
    project: bool,
    /// For every user of this machine, in settings that only its administrator changes
    #[arg(long)]
    managed: bool,
    /// Look for `/etc` below this directory
    #[arg(long, value_name = "DIR", hide = true, default_value = "/")]
    root: PathBuf,
}

impl HookInstallArguments {
    fn scope(&self) -> InstallScope {
        match (self.project, self.managed) {
            (true, _) => InstallScope::Project,
            (false, true) => InstallScope::Managed,
            (false, false) => InstallScope::User,
        }
    }

    fn place(&self) -> anyhow::Result<InstallPlace> {
        let home = PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?);
        let config = std::env::var_os("XDG_CONFIG_HOME").filter(|it| !it.is_empty());
        Ok(InstallPlace {
            config: config.map_or_else(|| home.join(".config"), PathBuf::from),
            home,
            project: super::current_directory()?,
            root: self.root.clone(),
            records: state_directory()?.join("hook-installs"),
        })
    }
}

pub(super) fn install(arguments: &HookInstallArguments) -> anyhow::Result<ExitCode> {
    let scope = arguments.scope();
    let hook = installed_hook(scope)?;
    let changes = install::install(arguments.client, scope, &arguments.place()?, &hook)?;
    print_changes(&changes)?;
    for line in notes(arguments.client, scope) {
        print_line(line)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn uninstall(arguments: &HookInstallArguments) -> anyhow::Result<ExitCode> {
    let changes = install::uninstall(arguments.client, arguments.scope(), &arguments.place()?)?;
    print_changes(&changes)?;
    Ok(ExitCode::SUCCESS)
}

fn print_changes(changes: &[SettingsChange]) -> anyhow::Result<()> {
    for change in changes {
        let (done, path) = match change {
            SettingsChange::Written(path) => ("changed", path),
            SettingsChange::Removed(path) => ("removed", path),
            SettingsChange::Unchanged(path) => ("unchanged", path),
        };
        print_line(format!("{done}: {}", one_line(&path.display().to_string())))?;
    }
    Ok(())
}

/// The words that start the hook. Its environment is not the client's, which a repository's settings
/// may change: they would lead it to another server.
fn installed_hook(scope: InstallScope) -> anyhow::Result<InstalledHook> {
    let program = std::env::current_exe().context("finding this program")?;
    let program = program
        .into_os_string()
        .into_string()
        .ok()
        .context("the path of this program is not UTF-8")?;
    let mut words = ["/usr/bin/env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin"]
        .map(str::to_owned)
        .to_vec();
    match scope {
        // Everybody has a home of their own, which the program looks up.
        InstallScope::Managed => {}
        InstallScope::User | InstallScope::Project => {
            for name in ["HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
                let Some(value) = std::env::var_os(name) else {
                    continue;
                };
                let value = value.into_string().ok();
                let value = value.with_context(|| format!("{name} is not UTF-8"))?;
                words.push(format!("{name}={value}"));
            }
        }
    }
    words.push(program);
    Ok(InstalledHook { words })
}

/// What the hooks do and what they cannot stop.
fn notes(client: HookClient, scope: InstallScope) -> Vec<String> {
    let name = client.name();
    let mut notes = vec![format!(
        "degree: hooked; every call of {name} is asked about in the session of the directory that it works in, and denied if there is none (`pvp up` makes one)"
    )];
    let cannot: &[&str] = match (client, scope) {
        (HookClient::Claude, InstallScope::Managed) => {
            &["--bare and --safe-mode may leave the hooks out"]
        }
        (HookClient::Claude, InstallScope::User | InstallScope::Project) => &[
            "a repository's settings with `disableAllHooks`, --bare and --safe-mode leave the hooks out; `pvp run -- claude` and --managed hold",
        ],
        (HookClient::Gemini, _) => &[
            "a hook that crashes or is killed lets the call run, and a repository's settings may switch hooks off; `pvp run -- gemini` takes its shell and its edits away and holds",
        ],
        (HookClient::Copilot, _) => &[
            "`disableAllHooks` in a repository's settings leaves the hooks out, and with --allow-all-tools everything then runs; `pvp run -- copilot` refuses both",
        ],
        (HookClient::OpenCode, _) => &[
            "--pure leaves the plugin out, and then everything is denied if the configuration has no rule of its own for `*`",
        ],
        (HookClient::Codex, _) => &[
            "a hook that crashes, times out or is missing lets the call run; `pvp run -- codex` stands in its protocol and holds",
        ],
    };
    notes.extend(cannot.iter().map(|line| format!("cannot stop: {line}")));
    notes.push(format!(
        "`pvp doctor {name}` tries it; `pvp hook uninstall {name}` takes it out"
    ));
    notes
}
