//! Signals: being ended, and being stopped and continued by a shell with job control.

use anyhow::Context;
use rustix::process::{Pid, getpgid, getpgrp, getppid, getsid, kill_current_process_group};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ancestors that are looked at; more are not between a shell and what it started.
const ANCESTORS: usize = 32;

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    End,
    Suspend,
    /// We were stopped, and run again.
    Continue,
}

pub(crate) struct Signals {
    terminate: Signal,
    hang_up: Signal,
    suspend: Signal,
    proceed: Signal,
}

impl Signals {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen = |number| signal(SignalKind::from_raw(number)).context("listening for signals");
        Ok(Self {
            terminate: listen(rustix::process::Signal::TERM.as_raw())?,
            hang_up: listen(rustix::process::Signal::HUP.as_raw())?,
            suspend: listen(rustix::process::Signal::TSTP.as_raw())?,
            proceed: listen(rustix::process::Signal::CONT.as_raw())?,
        })
    }

    /// The next signal, an end first: a job that a shell kills is continued for it.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Asked::End,
            _ = self.hang_up.recv() => Asked::End,
            _ = self.suspend.recv() => Asked::Suspend,
            _ = self.proceed.recv() => Asked::Continue,
        }
    }
}

/// Stops us and whatever was started together with us, as a terminal's own ctrl+z would.
pub(crate) fn stop() -> anyhow::Result<()> {
    // SIGTSTP is listened for, so that it stops nothing by itself.
    kill_current_process_group(rustix::process::Signal::STOP).context("stopping")
}

/// Whether the terminal is ours, and not that of a shell that has us in the background.
pub(crate) fn in_foreground() -> bool {
    tcgetpgrp(std::io::stdin()).map_or(true, |group| group == getpgrp())
}

/// Whether a shell would notice that we stop, and could bring us back. The kernel asks the same
/// before it lets SIGTSTP stop anything: a group without such a parent would stop for ever.
pub(crate) fn has_shell() -> bool {
    let group = getpgrp();
    let mut ancestor = getppid();
    for _ in 0..ANCESTORS {
        let Some(pid) = ancestor else { return false };
        match getpgid(Some(pid)) {
            Ok(theirs) if theirs == group => ancestor = parent_of(pid),
            Ok(_) => return same_session(pid),
            Err(_) => return false,
        }
    }
    false
}

fn same_session(pid: Pid) -> bool {
    let ours = getsid(None).ok();
    ours.is_some() && getsid(Some(pid)).ok() == ours
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let status = std::fs::read_to_string(path).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    Pid::from_raw(parent.trim().parse().ok()?)
}
