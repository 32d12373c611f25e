//! Handles process signals: termination, and job control by a shell.

use anyhow::Context;
use rustix::process::kill_current_process_group;
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The most ancestors that are examined; there are never more between a shell and what it started.
const MAX_ANCESTORS: usize = 32;

/// What a signal requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessSignal {
    Terminate,
    Suspend,
    /// We were stopped and run again.
    Continue,
}

pub(crate) struct SignalListener {
    terminate: Signal,
    hang_up: Signal,
    suspend: Signal,
    resume: Signal,
}

impl SignalListener {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen = |number| signal(SignalKind::from_raw(number)).context("listening for signals");
        Ok(Self {
            terminate: listen(rustix::process::Signal::TERM.as_raw())?,
            hang_up: listen(rustix::process::Signal::HUP.as_raw())?,
            suspend: listen(rustix::process::Signal::TSTP.as_raw())?,
            resume: listen(rustix::process::Signal::CONT.as_raw())?,
        })
    }

    /// The next signal, termination first: a shell that kills a stopped job also continues it.
    pub(crate) async fn next(&mut self) -> ProcessSignal {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => ProcessSignal::Terminate,
            _ = self.hang_up.recv() => ProcessSignal::Terminate,
            _ = self.suspend.recv() => ProcessSignal::Suspend,
            _ = self.resume.recv() => ProcessSignal::Continue,
        }
    }
}

/// Stops our process group, as ctrl+z in a terminal would.
pub(crate) fn stop_process_group() -> anyhow::Result<()> {
    // We handle SIGTSTP, so it would not stop us.
    kill_current_process_group(rustix::process::Signal::STOP).context("stopping")
}

/// Whether we are in the foreground, and not in the background of a shell.
pub(crate) fn in_foreground() -> bool {
    let foreground = tcgetpgrp(std::io::stdin()).ok();
    let ours = ProcessStat::read_proc("self");
    foreground
        .zip(ours)
        .is_none_or(|(foreground, ours)| foreground.as_raw_pid() == ours.process_group)
}

/// Whether a shell would notice that we stop and could continue us. The kernel checks the same
/// before it lets SIGTSTP stop anything: a process group without such a parent would stay stopped.
pub(crate) fn has_job_control_shell() -> bool {
    ProcessStat::read_proc("self").is_some_and(|ours| {
        ours.has_job_control_shell(|pid| ProcessStat::read_proc(&pid.to_string()))
    })
}

/// A process's parent, process group and session. A number is 0 if it belongs to a process outside
/// of our PID namespace: a parent, or the leader of a group or session entered from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessStat {
    parent_pid: i32,
    process_group: i32,
    session_id: i32,
}

impl ProcessStat {
    /// Reads `/proc`, because rustix assumes that the number of a group or session is never 0.
    fn read_proc(process: &str) -> Option<Self> {
        // The process name in it may be any bytes, not only UTF-8.
        let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
        Self::parse(&String::from_utf8_lossy(&stat))
    }

    /// Parses what follows the last bracket, because the process name may hold spaces and brackets.
    fn parse(stat: &str) -> Option<Self> {
        let (_, numbers) = stat.rsplit_once(')')?;
        let mut numbers = numbers.split_whitespace().skip(1).map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self {
            parent_pid: next()?,
            process_group: next()?,
            session_id: next()?,
        })
    }

    fn has_job_control_shell(self, stat_of: impl Fn(i32) -> Option<Self>) -> bool {
        let mut parent = self.parent_pid;
        for _ in 0..MAX_ANCESTORS {
            let Some(ancestor) = (parent != 0).then(|| stat_of(parent)).flatten() else {
                return false;
            };
            if ancestor.process_group != self.process_group {
                return ancestor.session_id == self.session_id;
            }
            parent = ancestor.parent_pid;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(parent: i32, group: i32, session: i32) -> ProcessStat {
        ProcessStat {
            parent_pid: parent,
            process_group: group,
            session_id: session,
        }
    }

    #[test]
    fn process_stat_is_parsed_whatever_the_process_name() {
        assert_eq!(
            ProcessStat::parse("7 (a) S 1 2 (b) R 5 0 0 0 -1 4194304 102"),
            Some(process(5, 0, 0)),
            "outside of the namespace"
        );
        assert_eq!(ProcessStat::parse("7 (pvp) S 5 6"), None);
        assert_eq!(ProcessStat::parse(""), None);
        let ours = ProcessStat::read_proc("self").expect("/proc");
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_pid());
        assert_eq!(ours.parent_pid, parent);
    }

    #[test]
    fn a_shell_is_an_ancestor_in_another_group_of_the_same_session() {
        let shell = process(1, 10, 10);
        let wrapper = process(10, 20, 10);
        let of = |pid| match pid {
            10 => Some(shell),
            20 => Some(wrapper),
            _ => None,
        };
        assert!(process(10, 21, 10).has_job_control_shell(of), "its child");
        assert!(
            process(20, 20, 10).has_job_control_shell(of),
            "started by a script"
        );
        assert!(
            !process(10, 21, 21).has_job_control_shell(of),
            "in a session of its own"
        );
        assert!(
            !process(99, 21, 10).has_job_control_shell(of),
            "left by its parent"
        );
    }

    #[test]
    fn a_process_outside_of_the_namespace_is_not_a_job_control_shell() {
        let first = process(0, 0, 0);
        let of = |pid| (pid == 1).then_some(first);
        assert!(!first.has_job_control_shell(of));
        assert!(
            !process(1, 0, 0).has_job_control_shell(of),
            "in the group from outside"
        );
        assert!(
            !process(1, 5, 5).has_job_control_shell(of),
            "in a session of its own"
        );
        let endless = |_| Some(process(3, 0, 0));
        assert!(!first.has_job_control_shell(endless));
    }
}
