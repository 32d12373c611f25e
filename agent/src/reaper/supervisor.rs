//! Supervises a command until none of its processes is left.

mod trial;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use super::process_tree::ProcessTree;
use super::{ReaperCommand, ReaperReport};
pub(super) use trial::Tracer;

/// How often an idle reaper looks for orphans that have ended.
const ORPHAN_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The reaper while its command runs.
pub(super) struct CommandSupervisor {
    tree: ProcessTree,
    grace: Duration,
    socket: UnixStream,
    commands: BufReader<UnixStream>,
    /// When the grace period of a stop ends; `None` if no stop was requested.
    kill_at: Option<Instant>,
}

/// What woke the reaper; a missing command means that the executor is gone.
enum WakeReason {
    Command(Option<ReaperCommand>),
    ChildExited,
    Timeout,
}

impl CommandSupervisor {
    pub(super) fn new(
        tree: ProcessTree,
        grace: Duration,
        socket: UnixStream,
        commands: BufReader<UnixStream>,
    ) -> Self {
        Self {
            tree,
            grace,
            socket,
            commands,
            kill_at: None,
        }
    }

    pub(super) fn tree(&self) -> &ProcessTree {
        &self.tree
    }

    pub(super) fn send_report(&mut self, report: &ReaperReport) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(report)?;
        line.push(b'\n');
        // If the executor is gone nobody reads the report, and the cleanup is the same.
        let _ = self.socket.write_all(&line);
        Ok(())
    }

    /// Waits until the command has ended, and then kills whatever it left behind.
    pub(super) fn supervise(&mut self, mut child: Child) -> anyhow::Result<()> {
        let pid = Pid::from_child(&child);
        let child_pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        self.send_report(&ReaperReport::Started {
            pid: child.id(),
            cgroup: self.tree.cgroup().cloned(),
        })?;
        loop {
            match self.wait_for_wake(&child_pidfd)? {
                WakeReason::ChildExited => break,
                WakeReason::Command(Some(ReaperCommand::Stop)) => {
                    self.tree.signal(Signal::TERM);
                    self.kill_at.get_or_insert(Instant::now() + self.grace);
                }
                WakeReason::Command(Some(ReaperCommand::Kill) | None) => {
                    self.tree.signal(Signal::KILL)
                }
                WakeReason::Timeout => {
                    if self.kill_at.is_some_and(|at| at <= Instant::now()) {
                        self.tree.signal(Signal::KILL);
                    }
                    self.tree.reap_orphans(pid);
                }
            }
        }
        let status = child.wait()?;
        self.send_report(&ReaperReport::Ended {
            code: status.code(),
            signal: status.signal(),
        })?;
        let left_behind = self.tree.kill_all();
        self.send_report(&ReaperReport::Gone {
            mechanism: self.tree.mechanism(),
            left_behind,
        })
    }

    fn wait_for_wake(&mut self, child_pidfd: &OwnedFd) -> anyhow::Result<WakeReason> {
        // A command that is already in the buffer does not make the socket readable.
        if !self.commands.buffer().is_empty() {
            return Ok(WakeReason::Command(self.next_command()));
        }
        let now = Instant::now();
        let until = self.kill_at.map_or(ORPHAN_POLL_INTERVAL, |at| {
            at.saturating_duration_since(now).min(ORPHAN_POLL_INTERVAL)
        });
        let timeout = Timespec {
            tv_sec: i64::try_from(until.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: until.subsec_nanos().into(),
        };
        let mut ready = [
            PollFd::new(child_pidfd, PollFlags::IN),
            PollFd::new(self.commands.get_ref(), PollFlags::IN),
        ];
        match poll(&mut ready, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (has_exited, has_command) = (
            !ready[0].revents().is_empty(),
            !ready[1].revents().is_empty(),
        );
        if has_exited {
            return Ok(WakeReason::ChildExited);
        }
        if has_command {
            return Ok(WakeReason::Command(self.next_command()));
        }
        Ok(WakeReason::Timeout)
    }

    /// The next command of the executor; `None` if it is gone.
    fn next_command(&mut self) -> Option<ReaperCommand> {
        let mut line = String::new();
        match self.commands.read_line(&mut line) {
            Ok(1..) => serde_json::from_str(&line).ok(),
            Ok(0) | Err(_) => None,
        }
    }
}
