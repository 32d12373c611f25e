//! Everything below a reaper: found through its cgroup where it has one, else through /proc.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use serde::{Deserialize, Serialize};

/// Where version 2 of cgroups is mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Rounds of killing what is found; a tree that forks faster than this is not.
const ROUNDS: u32 = 10_000;

/// Between two rounds that found something.
const PAUSE: Duration = Duration::from_micros(500);

/// How the processes of a command are found and ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// The kernel ends everything in the command's own cgroup at once.
    Cgroup,
    /// Orphans become the reaper's children, and it ends them until there are none.
    Subreaper,
}

/// The processes below this one.
pub(super) struct Tree {
    cgroup: Option<PathBuf>,
}

impl Tree {
    pub(super) fn new(may_make_cgroup: bool) -> Self {
        Self {
            cgroup: may_make_cgroup.then(make_cgroup).flatten(),
        }
    }

    pub(super) fn cgroup(&self) -> Option<PathBuf> {
        self.cgroup.clone()
    }

    pub(super) fn mechanism(&self) -> Mechanism {
        match self.cgroup {
            Some(_) => Mechanism::Cgroup,
            None => Mechanism::Subreaper,
        }
    }

    /// Sends a signal to everything that is there at the moment.
    pub(super) fn signal(&self, signal: Signal) {
        if signal == Signal::KILL
            && let Some(cgroup) = &self.cgroup
        {
            // What is not reached this way is found below.
            let _ = std::fs::write(cgroup.join("cgroup.kill"), "1");
        }
        for pid in self.members() {
            // It may have ended meanwhile.
            let _ = kill_process(pid, signal);
        }
    }

    /// Ends everything, however fast it forks; gives how many there were at first.
    pub(super) fn end_all(&mut self) -> u32 {
        let left_behind = self.members().len();
        for _ in 0..ROUNDS {
            self.collect(None);
            if self.members().is_empty() {
                break;
            }
            self.signal(Signal::KILL);
            std::thread::sleep(PAUSE);
        }
        if let Some(cgroup) = &self.cgroup {
            // An empty cgroup costs nothing; the next reaper sweeps it away.
            let _ = std::fs::remove_dir(cgroup);
        }
        u32::try_from(left_behind).unwrap_or(u32::MAX)
    }

    /// Takes the exit statuses of orphans; not of the command itself while it is waited for.
    pub(super) fn collect(&self, except: Option<Pid>) {
        if except.is_some() {
            // Waiting for any child would take the command's status from its owner.
            return;
        }
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }

    /// Everything below this process, and everything in its cgroup.
    fn members(&self) -> HashSet<Pid> {
        let mut members = HashSet::new();
        let mut unseen = vec![rustix::process::getpid()];
        while let Some(pid) = unseen.pop() {
            for child in children(pid) {
                if members.insert(child) {
                    unseen.push(child);
                }
            }
        }
        if let Some(cgroup) = &self.cgroup {
            members.extend(pids(&cgroup.join("cgroup.procs")));
        }
        members.retain(|pid| !is_dead(*pid));
        members
    }
}

/// The children of every thread of a process.
fn children(pid: Pid) -> Vec<Pid> {
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let Ok(tasks) = std::fs::read_dir(tasks) else {
        return Vec::new();
    };
    tasks
        .filter_map(Result::ok)
        .flat_map(|task| pids(&task.path().join("children")))
        .collect()
}

fn pids(file: &Path) -> Vec<Pid> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|word| Pid::from_raw(word.parse().ok()?))
        .collect()
}

/// Whether a process has ended and only its status is left.
fn is_dead(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // The name stands in parentheses and may hold anything.
    let state = stat
        .ok()
        .and_then(|stat| stat.rsplit(") ").next()?.chars().next());
    matches!(state, Some('Z' | 'X') | None)
}

/// A cgroup beside our own, if we may make one.
fn make_cgroup() -> Option<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let cgroup = Path::new(CGROUPS)
        .join(own)
        .join(format!("pvp-run-{}", std::process::id()));
    std::fs::create_dir(&cgroup).ok()?;
    if !cgroup.join("cgroup.kill").exists() {
        let _ = std::fs::remove_dir(&cgroup);
        return None;
    }
    Some(cgroup)
}
