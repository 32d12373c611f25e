//! Turns a grant into the spec that a reaper runs: exactly the granted bytes.

use std::path::{Path, PathBuf};

use pvp_protocol::payload::{ClearedBy, GrantTerms};
use pvp_protocol::{Command, RunMode, SandboxProfile};

use super::{ExecutorSettings, trial};
use crate::environment::{self, Interactivity};
use crate::grant_check::AcceptedGrant;
use crate::private_paths::private_paths;
use crate::reaper::{PtySize, SpawnSpec};
use crate::sandbox::{ResourceLimits, Sandbox};
use crate::shown_actions::ActionOrigin;
use crate::working_directory::WorkingDirectory;

/// The size of a terminal until a client sends another.
const DEFAULT_PTY_SIZE: PtySize = PtySize {
    columns: 80,
    rows: 24,
};

/// Bytes of one temporary file of a read.
const READ_MAX_FILE_BYTES: u64 = 1024 * 1024 * 1024;

/// The account's login shell.
pub(super) fn login_shell() -> String {
    let shell = std::env::var("SHELL").ok();
    let usable = |shell: &String| shell.starts_with('/') && Path::new(shell).exists();
    shell.filter(usable).unwrap_or_else(|| "/bin/sh".to_owned())
}

/// The directories of one run.
#[derive(Clone, Copy)]
pub(super) struct RunPlaces<'a> {
    /// Where it runs.
    pub(super) directory: &'a WorkingDirectory,
    /// Its own temporary directory.
    pub(super) temporary: &'a Path,
    /// What it may see beside the workspace if it is a read.
    pub(super) read_roots: &'a [PathBuf],
}

/// The spec of a grant's command, or why it cannot run.
pub(super) fn from_grant(
    grant: &GrantTerms,
    accepted: AcceptedGrant,
    settings: &ExecutorSettings,
    places: RunPlaces<'_>,
) -> Result<SpawnSpec, String> {
    let RunPlaces {
        directory,
        temporary,
        read_roots,
    } = places;
    let (program, arguments) = argv(&grant.action.command)?;
    let mut argv: Vec<String> = std::iter::once(program).chain(arguments).collect();
    // Reads and trials run in the sandbox on this machine; the runner is for approved commands.
    let is_trial = grant.cleared_by == ClearedBy::Tried;
    if grant.cleared_by != ClearedBy::Read && !is_trial {
        argv.splice(0..0, settings.runner.iter().cloned());
    }
    let mut argv = argv.into_iter();
    let program = argv.next().ok_or("there is nothing to run")?;
    let secrets = grant.secret_env.clone().unwrap_or_default();
    let (terminal, interactivity) = match grant.action.mode {
        RunMode::Pty => (Some(DEFAULT_PTY_SIZE), Interactivity::Interactive),
        RunMode::Normal | RunMode::Slow | RunMode::Background => {
            (None, Interactivity::NonInteractive)
        }
    };
    let inherited = utf8_environment().filter(|(name, _)| !is_trial || trial::may_inherit(name));
    let mut environment = environment::command_environment(
        inherited,
        &grant.action.env,
        &secrets,
        temporary,
        interactivity,
    );
    let mut private = private_paths(settings);
    if is_trial {
        environment.extend(trial::added_variables());
        private.push(trial::history(&settings.workspace));
    }
    Ok(SpawnSpec {
        terminal,
        program,
        arguments: argv.collect(),
        directory: directory.path().to_owned(),
        directory_identity: Some(directory.identity()),
        files: grant.action.files.clone(),
        environment,
        sandbox: Sandbox {
            profile: accepted.profile,
            workspace: settings.workspace.clone(),
            temporary: temporary.to_owned(),
            private,
            secret_files: secret_files(accepted.profile, settings, read_roots)?,
            read_roots: read_roots.to_owned(),
            limits: resource_limits(grant, settings),
            trial: is_trial.then_some(trial::LIMITS),
        },
        grace_ms: u64::try_from(settings.kill_grace.as_millis()).unwrap_or(u64::MAX),
        cgroup: true,
    })
}

/// The files with secrets that the command must not see, or why it cannot run.
fn secret_files(
    profile: SandboxProfile,
    settings: &ExecutorSettings,
    read_roots: &[PathBuf],
) -> Result<Vec<PathBuf>, String> {
    match profile {
        SandboxProfile::None | SandboxProfile::Workspace => return Ok(Vec::new()),
        SandboxProfile::Read | SandboxProfile::ReadNet => {}
    }
    let mut secret_files = Vec::new();
    for root in std::iter::once(&settings.workspace).chain(read_roots) {
        let found = settings.secret_files.find(root).map_err(|error| {
            format!("{error}; propose `env COMMAND` to ask people for approval instead")
        })?;
        secret_files.extend(found);
    }
    Ok(secret_files)
}

/// What the command may use. Reads get less: `tail /dev/zero` is a read too, and takes all the
/// memory that it can get.
fn resource_limits(grant: &GrantTerms, settings: &ExecutorSettings) -> ResourceLimits {
    match grant.cleared_by {
        ClearedBy::Read => settings
            .limits
            .capped(settings.read_memory_bytes, READ_MAX_FILE_BYTES),
        ClearedBy::Tried => trial::resource_limits(settings.limits),
        ClearedBy::Quorum | ClearedBy::Clock | ClearedBy::AllowRule | ClearedBy::Direct => {
            settings.limits
        }
    }
}

/// This process's environment, without variables that are not UTF-8: a spec is sent as JSON.
fn utf8_environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn argv(command: &Command) -> Result<(String, Vec<String>), String> {
    match command {
        Command::Shell { line } => {
            let words = ["--noprofile", "--norc", "-c", line];
            Ok(("/bin/bash".to_owned(), words.map(str::to_owned).into()))
        }
        Command::LoginShell { line } => Ok((login_shell(), vec!["-lc".to_owned(), line.clone()])),
        Command::Argv { command, args } => Ok((command.clone(), args.clone())),
        Command::Tool { name, .. } => Err(format!("this executor has no tool `{name}`")),
    }
}

/// Opens the directory that a command runs in. The directory of a proposal was resolved when it was
/// made, so its path must still lead to itself.
pub(super) fn open_directory(
    grant: &GrantTerms,
    accepted: AcceptedGrant,
    settings: &ExecutorSettings,
) -> Result<WorkingDirectory, String> {
    let cwd = grant.action.cwd.as_deref();
    let directory = WorkingDirectory::open(cwd, &settings.workspace)?;
    if let (Some(cwd), ActionOrigin::Proposal) = (cwd, accepted.origin) {
        let resolved = directory.resolved_path();
        let resolved = resolved.map_err(|error| format!("cannot work in {cwd}: {error}"))?;
        if resolved != settings.workspace.join(cwd) {
            let resolved = resolved.display();
            return Err(format!(
                "the directory `{cwd}` changed since it was approved: it leads to {resolved}"
            ));
        }
    }
    Ok(directory)
}
