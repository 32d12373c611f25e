//! `pvp hook install` and `pvp hook uninstall`: the hooks of a client in its own settings, for good.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pvp_bridge::hooks::HookClient;
use pvp_bridge::install::{self, InstallPlace, InstallScope, InstalledHook, SettingsChange};
use pvp_client::user_directories::state_directory;

use super::hook::parse_client;
use super::{one_line, print_line};

#[derive(Args)]
pub(crate) struct HookInstallArguments {
    /// The client: claude, opencode, gemini or copilot; codex with --managed
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
    let (scope, place) = (arguments.scope(), arguments.place()?);
    install::check(arguments.client, scope, &place)?;
    let program = own_program()?;
    if scope == InstallScope::Managed && arguments.root == Path::new("/") {
        check_unwritable(&program)?;
    }
    let hook = installed_hook(scope, &program)?;
    let changes = install::install(arguments.client, scope, &place, &hook)?;
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
fn installed_hook(scope: InstallScope, program: &Path) -> anyhow::Result<InstalledHook> {
    let program = program
        .to_str()
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
    words.push(program.to_owned());
    Ok(InstalledHook { words })
}

/// This program, where hooks will find it too.
fn own_program() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("finding this program")?;
    if !program.is_file() {
        bail!(
            "this program was replaced or removed while it ran ({}); start it again",
            one_line(&program.display().to_string())
        );
    }
    Ok(program)
}

/// Refuses a program that somebody else than the administrator may change: whoever does, decides for
/// every user of the machine.
fn check_unwritable(program: &Path) -> anyhow::Result<()> {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    for path in program.ancestors() {
        let metadata = path
            .metadata()
            .with_context(|| format!("looking at {}", path.display()))?;
        if metadata.uid() != 0 || metadata.mode() & WRITABLE_BY_OTHERS != 0 {
            bail!(
                "others than root may change {}, and with it what every user is asked; put pvp into /usr/local/bin, and install from there",
                path.display()
            );
        }
    }
    Ok(())
}

/// What installed hooks cannot stop.
pub(super) fn cannot_stop(client: HookClient, scope: InstallScope) -> &'static [&'static str] {
    match (client, scope) {
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
            "a hook that crashes, times out or is missing lets the call run, and web searches and resources of MCP servers have no hook; `pvp run -- codex` stands in its protocol and holds",
        ],
    }
}

/// What the hooks do and what they cannot stop.
fn notes(client: HookClient, scope: InstallScope) -> Vec<String> {
    let name = client.name();
    let mut notes = vec![format!(
        "degree: hooked; every call of {name} is asked about in the session of the directory that it works in, and denied if there is none (`pvp up` makes one)"
    )];
    if scope == InstallScope::Project {
        notes.push(
            "the file names this program and your home directory, so it works for you alone: keep it out of the repository, and let others install it for themselves".to_owned(),
        );
    }
    let cannot = cannot_stop(client, scope);
    notes.extend(cannot.iter().map(|line| format!("cannot stop: {line}")));
    notes.push(match client {
        // Its requirements are those of the whole machine, which no trial can have for itself.
        HookClient::Codex => format!("`pvp hook uninstall {name} --managed` takes it out"),
        HookClient::Claude | HookClient::OpenCode | HookClient::Gemini | HookClient::Copilot => {
            format!(
                "`pvp doctor {name} --installed` tries it; `pvp hook uninstall {name}` takes it out"
            )
        }
    });
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_program_that_others_may_change_is_not_installed_for_everybody() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("pvp");
        std::fs::write(&program, "").unwrap();
        // The directory for temporary files is everybody's.
        let refused = check_unwritable(&program).unwrap_err().to_string();
        assert!(refused.contains("/usr/local/bin"), "{refused}");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = check_unwritable(&program).unwrap_err().to_string();
        assert!(refused.contains(program.to_str().unwrap()), "{refused}");
        assert!(check_unwritable(Path::new("/usr/bin/env")).is_ok());
        assert!(check_unwritable(&directory.path().join("missing")).is_err());
    }
}
