//! The processes below a reaper, found through its cgroup if it has one, and through /proc.

use std::collections::HashSet;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait, waitpid};
use serde::{Deserialize, Serialize};

use super::cgroup::{Cgroup, read_pids};

/// The most rounds of killing what is found. A tree that keeps forking faster is not ended.
const MAX_KILL_ROUNDS: u32 = 10_000;

/// Time between two rounds.
const ROUND_DELAY: Duration = Duration::from_micros(500);

/// How the processes of a command are found and killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KillMechanism {
    /// The kernel kills everything in the command's own cgroup at once.
    Cgroup,
    /// Orphans become children of the reaper, which kills them until there are none.
    Subreaper,
}

/// The processes below this one.
pub(super) struct ProcessTree {
    cgroup: Option<Cgroup>,
}

impl ProcessTree {
    pub(super) fn new(cgroup: Option<Cgroup>) -> Self {
        Self { cgroup }
    }

    pub(super) fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    pub(super) fn mechanism(&self) -> KillMechanism {
        match self.cgroup {
            Some(_) => KillMechanism::Cgroup,
            None => KillMechanism::Subreaper,
        }
    }

    /// Sends a signal to every process that currently exists.
    pub(super) fn signal(&self, signal: Signal) {
        if signal == Signal::KILL
            && let Some(cgroup) = &self.cgroup
        {
            // Processes that this does not reach are signalled below.
            cgroup.kill();
        }
        for pid in self.members() {
            // The process may have ended meanwhile.
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills everything, however fast it forks; returns how many processes there were at first.
    pub(super) fn kill_all(&self) -> u32 {
        let mut left_behind = self.members().len();
        for _ in 0..MAX_KILL_ROUNDS {
            if self.is_empty() {
                break;
            }
            // A process whose parent has just ended can be missed while they are listed.
            left_behind = left_behind.max(1);
            self.signal(Signal::KILL);
            std::thread::sleep(ROUND_DELAY);
        }
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove();
        }
        u32::try_from(left_behind).unwrap_or(u32::MAX)
    }

    /// Whether no process is left; collects the statuses of those that have ended. Only `wait` can
    /// tell: during a walk through /proc, a process that was seen may end and its children become
    /// ours, unseen. Every process below us is below a child of ours.
    fn is_empty(&self) -> bool {
        let has_children = loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let cgroup = self.cgroup.as_ref();
        !has_children && cgroup.is_none_or(|cgroup| cgroup.members().is_empty())
    }

    /// Memory in bytes that the processes have for themselves, all together.
    pub(super) fn private_memory_bytes(&self) -> u64 {
        let members = self.members();
        members.into_iter().filter_map(private_memory_bytes).sum()
    }

    /// Collects the exit statuses of orphans, but not that of the command, which is waited for.
    pub(super) fn reap_orphans(&self, command: Pid) {
        for child in child_pids(rustix::process::getpid()) {
            if child != command && has_exited(child) {
                // Nobody else waits for it.
                let _ = waitpid(Some(child), WaitOptions::NOHANG);
            }
        }
    }

    /// Every process below this one, and every process in its cgroup.
    fn members(&self) -> HashSet<Pid> {
        let mut members = HashSet::new();
        let mut unseen = vec![rustix::process::getpid()];
        while let Some(pid) = unseen.pop() {
            for child in child_pids(pid) {
                if members.insert(child) {
                    unseen.push(child);
                }
            }
        }
        if let Some(cgroup) = &self.cgroup {
            members.extend(cgroup.members());
        }
        members.retain(|pid| !has_exited(*pid));
        members
    }
}

/// The children of every thread of a process.
fn child_pids(pid: Pid) -> Vec<Pid> {
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let Ok(tasks) = std::fs::read_dir(tasks) else {
        return Vec::new();
    };
    tasks
        .filter_map(Result::ok)
        .flat_map(|task| read_pids(&task.path().join("children")))
        .collect()
}

/// Memory in bytes that a process has for itself.
fn private_memory_bytes(pid: Pid) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes.saturating_mul(1024))
}

/// Whether a process has ended and only its status is left.
fn has_exited(pid: Pid) -> bool {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.map_or(true, |stat| {
        matches!(process_state(&stat), Some(b'Z' | b'X') | None)
    })
}

/// The state letter after the name, which is in parentheses and may contain anything.
fn process_state(stat: &[u8]) -> Option<u8> {
    let end_of_name = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end_of_name + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_hide_its_state() {
        for name in [&b"sh"[..], b"a) Z (", b") X", b"\xff\xfe", b"", b"\n"] {
            for letter in *b"RSZ" {
                let stat = [b"42 (", name, b") ", &[letter], b" 1 42 42 0 -1"].concat();
                assert_eq!(process_state(&stat), Some(letter), "{name:?}");
            }
        }
        assert_eq!(process_state(b""), None);
    }
}
