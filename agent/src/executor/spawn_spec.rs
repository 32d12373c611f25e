//! Turns a grant into the spec that a reaper runs: exactly the granted bytes.

use std::path::{Path, PathBuf};

use pvp_protocol::payload::{ClearedBy, GrantTerms};
use pvp_protocol::{Command, RunMode};

use super::ExecutorSettings;
use crate::environment::{self, Interactivity};
use crate::reaper::{PtySize, SpawnSpec};
use crate::sandbox::{ResourceLimits, Sandbox};

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

/// The spec of a grant's command, or why it cannot run.
pub(super) fn from_grant(
    grant: &GrantTerms,
    settings: &ExecutorSettings,
    temporary: &Path,
) -> Result<SpawnSpec, String> {
    let (program, arguments) = argv(&grant.action.command)?;
    let mut argv: Vec<String> = std::iter::once(program).chain(arguments).collect();
    // Reads run in the sandbox on this machine; the runner is for approved commands.
    if grant.cleared_by != ClearedBy::Read {
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
    Ok(SpawnSpec {
        terminal,
        program,
        arguments: argv.collect(),
        directory: resolve_directory(grant.action.cwd.as_deref(), &settings.workspace)?,
        environment: environment::command_environment(
            utf8_environment(),
            &grant.action.env,
            &secrets,
            temporary,
            interactivity,
        ),
        sandbox: Sandbox {
            profile: grant.profile,
            workspace: settings.workspace.clone(),
            temporary: temporary.to_owned(),
            limits: resource_limits(grant, settings),
        },
        grace_ms: u64::try_from(settings.kill_grace.as_millis()).unwrap_or(u64::MAX),
        cgroup: true,
    })
}

/// What the command may use. Reads get less: `tail /dev/zero` is a read too, and takes all the
/// memory that it can get.
fn resource_limits(grant: &GrantTerms, settings: &ExecutorSettings) -> ResourceLimits {
    match grant.cleared_by {
        ClearedBy::Read => settings
            .limits
            .capped(settings.read_memory_bytes, READ_MAX_FILE_BYTES),
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

/// The directory that a command runs in; the error names a directory that does not exist.
pub(crate) fn resolve_directory(cwd: Option<&str>, workspace: &Path) -> Result<PathBuf, String> {
    let directory = match cwd {
        None => workspace.to_owned(),
        Some(cwd) => workspace.join(cwd),
    };
    match std::fs::metadata(&directory) {
        Ok(metadata) if metadata.is_dir() => Ok(directory),
        Ok(_) => Err(format!(
            "cannot work in {}: it is not a directory",
            directory.display()
        )),
        Err(error) => Err(format!("cannot work in {}: {error}", directory.display())),
    }
}
