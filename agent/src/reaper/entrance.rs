//! The last step before a command: it confines itself and becomes it.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::Context;
use rustix::process::{
    Signal, getpid, getppid, ioctl_tiocsctty, set_parent_process_death_signal, setsid,
};
use serde::{Deserialize, Serialize};

use super::cgroup::Cgroup;
use super::tree::Tree;
use super::{ENTER, Errand};

/// Starts the command below this process: confined by its own hand, then itself.
pub(super) fn start(errand: &Errand, tree: &Tree) -> anyhow::Result<Child> {
    if let Some(cgroup) = tree.cgroup() {
        let whole = errand.confinement.share.whole;
        cgroup.hold(whole).context("limiting the command")?;
    }
    // The command's environment may hold what a loader acts on, and secrets that arguments would
    // show to everyone on the machine. So it goes through a pipe, and this step starts clean.
    let mut child = entrance()?.env_clear().stdin(Stdio::piped()).spawn()?;
    let entering = Entering {
        errand: errand.clone(),
        cgroup: tree.cgroup().cloned(),
        reaper: getpid().as_raw_pid(),
    };
    let mut stdin = child.stdin.take().expect("a pipe was asked for");
    stdin.write_all(&serde_json::to_vec(&entering)?)?;
    Ok(child)
}

/// The last step before the command, with no open files but the standard three.
fn entrance() -> anyhow::Result<Command> {
    let inherited = inherited()?;
    if inherited.is_empty() {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("pvp").arg(ENTER);
        return Ok(command);
    }
    // Closing files by number is something that a shell does safely.
    let close: String = inherited.iter().map(|file| format!(" {file}>&-")).collect();
    let become_entrance = format!("exec{close}; exec -a pvp /proc/$PPID/exe {ENTER}");
    let mut command = Command::new("/bin/bash");
    command.args(["--noprofile", "--norc", "-c", &become_entrance]);
    Ok(command)
}

/// Open files that whoever started the executor left to it, and that a program would inherit.
fn inherited() -> anyhow::Result<Vec<u32>> {
    const CLOSED_ON_EXEC: u32 = 0o2_000_000;
    let mut inherited = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(file) = entry?.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        // The directory that is being read is among them, and may be closed by the time.
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

/// What the last step before the command knows.
#[derive(Serialize, Deserialize)]
struct Entering {
    errand: Errand,
    cgroup: Option<Cgroup>,
    reaper: i32,
}

/// Exit code of a step that could not become the command; shells use it too.
const NOT_FOUND: u8 = 127;

/// Confines this process and becomes the command; only a failure returns.
pub fn enter() -> ExitCode {
    let problem = match serde_json::from_reader::<_, Entering>(std::io::stdin()) {
        Ok(entering) => become_command(&entering),
        Err(error) => error.into(),
    };
    // Standard error is the command's; there is nowhere else to say it.
    let _ = writeln!(std::io::stderr(), "pvp: {problem:#}");
    ExitCode::from(NOT_FOUND)
}

fn become_command(entering: &Entering) -> anyhow::Error {
    let _ = setsid();
    if let Err(error) = depend_on(entering.reaper) {
        return error.context("depending on the reaper");
    }
    if let Some(cgroup) = &entering.cgroup
        && let Err(error) = cgroup.enter()
    {
        return anyhow::Error::new(error).context("entering the command's cgroup");
    }
    let errand = &entering.errand;
    if let Err(error) = std::env::set_current_dir(&errand.directory) {
        let place = errand.directory.display();
        return anyhow::Error::new(error).context(format!("cannot work in {place}"));
    }
    let stdin = match errand.terminal {
        Some(_) => match own_terminal() {
            Ok(terminal) => Stdio::from(terminal),
            Err(error) => return anyhow::Error::new(error).context("taking the terminal"),
        },
        None => Stdio::null(),
    };
    let mut command = Command::new(&errand.program);
    command
        .args(&errand.arguments)
        .env_clear()
        .envs(errand.environment.iter().map(|(key, value)| (key, value)))
        .stdin(stdin);
    if let Err(error) = errand.confinement.apply() {
        return error.context("cannot confine the command, so it does not run");
    }
    let error = command.exec();
    anyhow::Error::new(error).context(format!("cannot run {}", errand.program))
}

/// Makes the terminal that standard output is the one of this session; keys such as Ctrl-C then
/// signal what runs in its foreground.
fn own_terminal() -> std::io::Result<OwnedFd> {
    let terminal = std::io::stdout().as_fd().try_clone_to_owned()?;
    ioctl_tiocsctty(&terminal)?;
    Ok(terminal)
}

/// Has the kernel end this process when its reaper is gone. That is safe because the reaper has
/// one thread: the signal comes when the thread that started us ends, not the process.
fn depend_on(reaper: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(|parent| parent.as_raw_pid());
    anyhow::ensure!(parent == Some(reaper), "it is gone already");
    Ok(())
}
