//! The exec step: the process that applies the sandbox to itself and then becomes the command.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::Context;
use pvp_protocol::SandboxProfile;
use rustix::process::{
    Pid, Signal, getpid, getppid, ioctl_tiocsctty, set_parent_process_death_signal, setsid,
};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use super::cgroup::Cgroup;
use super::process_tree::ProcessTree;
use super::{EXEC_STEP_SUBCOMMAND, SpawnSpec};
use crate::bound_files;
use crate::working_directory::WorkingDirectory;
use crate::{read_environment, read_git};

/// A started exec step that waits for its spec.
pub(super) struct ExecStep(Child);

impl ExecStep {
    /// Starts the step with a clean environment.
    ///
    /// The command's own environment is sent through a pipe: it may hold variables that the loader
    /// acts on, and secrets, which arguments would show to every user of the machine.
    pub(super) fn spawn() -> anyhow::Result<Self> {
        let child = exec_step_command()?
            .env_clear()
            .stdin(Stdio::piped())
            .spawn()?;
        Ok(Self(child))
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Sends the spec, upon which the process applies the sandbox and becomes the command.
    pub(super) fn start(self, spawn_spec: &SpawnSpec, tree: &ProcessTree) -> anyhow::Result<Child> {
        let Self(mut child) = self;
        if let Some(cgroup) = tree.cgroup() {
            let limits = spawn_spec.sandbox.limits.cgroup;
            cgroup.set_limits(limits).context("limiting the command")?;
        }
        let request = ExecRequest {
            spawn_spec: spawn_spec.clone(),
            cgroup: tree.cgroup().cloned(),
            reaper: getpid().as_raw_pid(),
        };
        let mut stdin = child.stdin.take().expect("a pipe was asked for");
        stdin.write_all(&serde_json::to_vec(&request)?)?;
        Ok(child)
    }
}

/// The exec step's command line, with no open files but the standard three.
fn exec_step_command() -> anyhow::Result<Command> {
    let inherited = inherited_fds()?;
    if inherited.is_empty() {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("pvp").arg(EXEC_STEP_SUBCOMMAND);
        return Ok(command);
    }
    // A shell can close file descriptors by number without unsafe code.
    let close: String = inherited.iter().map(|file| format!(" {file}>&-")).collect();
    let script = format!("exec{close}; exec -a pvp /proc/$PPID/exe {EXEC_STEP_SUBCOMMAND}");
    let mut command = Command::new("/bin/bash");
    command.args(["--noprofile", "--norc", "-c", &script]);
    Ok(command)
}

/// File descriptors that the executor's parent left open, and that a program would inherit.
fn inherited_fds() -> anyhow::Result<Vec<u32>> {
    const CLOSED_ON_EXEC: u32 = 0o2_000_000;
    let mut inherited = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(file) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // The directory that is being read is among them, and may be closed by now.
        let Ok(info) = std::fs::read_to_string(format!("/proc/self/fdinfo/{file}")) else {
            continue;
        };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        if file > 2 && flags.is_none_or(|flags| flags & CLOSED_ON_EXEC == 0) {
            inherited.push(file);
        }
    }
    Ok(inherited)
}

/// What the exec step receives on standard input.
#[derive(Serialize, Deserialize)]
struct ExecRequest {
    spawn_spec: SpawnSpec,
    cgroup: Option<Cgroup>,
    reaper: i32,
}

/// The exit code if the command cannot be executed; shells use the same one.
const EXIT_NOT_FOUND: u8 = 127;

/// Applies the sandbox to this process and becomes the command; returns only on failure.
pub fn exec_step_main() -> ExitCode {
    let request = serde_json::from_reader::<_, ExecRequest>(std::io::stdin());
    let Err(problem) = request
        .map_err(anyhow::Error::new)
        .and_then(|request| exec_command(&request));
    // Standard error is the command's; there is nowhere else to report it.
    let _ = writeln!(std::io::stderr(), "pvp: {problem:#}");
    ExitCode::from(EXIT_NOT_FOUND)
}

fn exec_command(request: &ExecRequest) -> anyhow::Result<Infallible> {
    let _ = setsid();
    die_with_reaper(request.reaper).context("depending on the reaper")?;
    if let Some(cgroup) = &request.cgroup {
        cgroup.enter().context("entering the command's cgroup")?;
    }
    let spawn_spec = &request.spawn_spec;
    enter_directory(spawn_spec)
        .with_context(|| format!("cannot work in {}", spawn_spec.directory.display()))?;
    let (stdin, terminal) = match spawn_spec.terminal {
        Some(_) => take_controlling_terminal().context("taking the terminal")?,
        None => (Stdio::null(), Vec::new()),
    };
    let environment = prepare_environment(spawn_spec)?;
    let mut command = Command::new(&spawn_spec.program);
    command
        .args(&spawn_spec.arguments)
        .env_clear()
        .envs(environment)
        .stdin(stdin);
    reset_ignored_signals().context("heeding signals")?;
    // The executor has checked them too, and says why it starts nothing; this is the last moment.
    bound_files::check(&spawn_spec.sandbox.workspace, &spawn_spec.files)
        .map_err(anyhow::Error::msg)?;
    spawn_spec
        .sandbox
        .apply(&terminal)
        .context("cannot confine the command, so it does not run")?;
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", spawn_spec.program))
}

/// The command's environment; a read's also keeps programs from running what a repository configures.
fn prepare_environment(spawn_spec: &SpawnSpec) -> anyhow::Result<BTreeMap<String, String>> {
    let mut environment = spawn_spec.environment.iter().cloned().collect();
    let sandbox = &spawn_spec.sandbox;
    match sandbox.profile {
        SandboxProfile::Read | SandboxProfile::ReadNet => {
            read_environment::adjust(&spawn_spec.directory, &mut environment);
            read_git::prepare(&sandbox.temporary, &sandbox.secret_files, &mut environment)
                .context("cannot keep git to reading, so the command does not run")?;
        }
        SandboxProfile::None | SandboxProfile::Workspace => {}
    }
    Ok(environment)
}

/// Enters the directory that the executor has opened, by a descriptor of this process's own.
fn enter_directory(spawn_spec: &SpawnSpec) -> anyhow::Result<()> {
    let directory = WorkingDirectory::open_path(&spawn_spec.directory)?;
    let expected = spawn_spec.directory_identity;
    let is_same = expected.is_none_or(|identity| identity == directory.identity());
    anyhow::ensure!(
        is_same,
        "it was replaced by another while the command started"
    );
    Ok(directory.enter()?)
}

/// Makes the terminal on standard output the controlling one of this session, so that keys such as
/// Ctrl-C signal its foreground processes. Returns it as standard input, and its paths.
fn take_controlling_terminal() -> anyhow::Result<(Stdio, Vec<PathBuf>)> {
    let terminal = std::io::stdout().as_fd().try_clone_to_owned()?;
    ioctl_tiocsctty(&terminal)?;
    let name = std::fs::read_link(format!("/proc/self/fd/{}", terminal.as_raw_fd()))?;
    Ok((Stdio::from(terminal), vec![name, "/dev/tty".into()]))
}

/// Resets the signals that the executor's parent had it ignore, as `nohup` and the `&` of a script
/// do. Otherwise the command would ignore them too, and Ctrl-C would do nothing.
fn reset_ignored_signals() -> anyhow::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap_or("0").trim(), 16)?;
    let ignored = RESET_SIGNALS
        .iter()
        .filter(|kind| ignored >> (kind.as_raw_value() - 1) & 1 == 1);
    let ignored: Vec<_> = ignored.collect();
    if ignored.is_empty() {
        return Ok(());
    }
    // A signal that has a handler here gets its default action in the program that this executes.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _inside = runtime.enter();
    for kind in ignored {
        // The handler stays installed when the listener is dropped.
        drop(signal(*kind)?);
    }
    Ok(())
}

/// The signals by which people and shells end, suspend and notify programs.
const RESET_SIGNALS: [SignalKind; 7] = [
    SignalKind::hangup(),
    SignalKind::interrupt(),
    SignalKind::quit(),
    SignalKind::terminate(),
    SignalKind::from_raw(Signal::TSTP.as_raw()),
    SignalKind::from_raw(Signal::TTIN.as_raw()),
    SignalKind::from_raw(Signal::TTOU.as_raw()),
];

/// Has the kernel kill this process when its reaper ends. The signal is sent when the thread that
/// started this process ends, not the whole process; that is the same here, because the reaper has
/// one thread.
fn die_with_reaper(reaper: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(|parent| parent.as_raw_pid());
    anyhow::ensure!(parent == Some(reaper), "it is gone already");
    Ok(())
}
