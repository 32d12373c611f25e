//! The processes that a client started, to stop them when people interrupt the agent.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

/// A process as /proc describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessInfo {
    parent: i32,
    /// When it started, in ticks since the machine did.
    started: u64,
}

/// What a client had started at some moment. What it starts later is what its calls run.
#[derive(Debug, Default)]
pub struct ClientProcesses {
    client: i32,
    before: HashMap<i32, u64>,
}

impl ClientProcesses {
    /// Notes which processes a client has now.
    pub fn note(client: u32) -> Self {
        let client = i32::try_from(client).unwrap_or(0);
        let table = process_table();
        let before = descendants(&table, client)
            .filter_map(|pid| Some((pid, table.get(&pid)?.started)))
            .collect();
        Self { client, before }
    }

    /// Sends a signal to what the client started since, except to this program. Returns to how many.
    pub fn signal_later(&self, signal: Signal) -> usize {
        let table = process_table();
        let own_program = std::env::current_exe().ok();
        let later = descendants(&table, self.client).filter(|pid| {
            let started = table.get(pid).map(|info| info.started);
            self.before.get(pid).copied() != started
        });
        later
            .filter(|pid| own_program.is_none() || program_of(*pid) != own_program)
            .filter_map(Pid::from_raw)
            .filter(|pid| kill_process(*pid, signal).is_ok())
            .count()
    }
}

fn descendants(table: &HashMap<i32, ProcessInfo>, root: i32) -> impl Iterator<Item = i32> {
    let mut found = HashSet::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for (pid, info) in table {
            if info.parent == parent && found.insert(*pid) {
                parents.push(*pid);
            }
        }
    }
    found.into_iter()
}

fn process_table() -> HashMap<i32, ProcessInfo> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, read_info(&entry.path())?))
        })
        .collect()
}

fn read_info(directory: &Path) -> Option<ProcessInfo> {
    let stat = std::fs::read_to_string(directory.join("stat")).ok()?;
    // The name of the program is in parentheses and may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(ProcessInfo { parent, started })
}

fn program_of(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn only_what_started_later_is_stopped() {
        let own = std::process::id();
        let sleep = || {
            let mut command = Command::new("sleep");
            command.arg("60").stdin(Stdio::null()).spawn().unwrap()
        };
        let mut before = sleep();
        let noted = ClientProcesses::note(own);
        let mut later = sleep();
        // Other tests may start processes at the same time, so only this one's are looked at.
        let later_pid = i32::try_from(later.id()).unwrap();
        let table = process_table();
        assert_eq!(table[&later_pid].parent, i32::try_from(own).unwrap());
        assert!(!noted.before.contains_key(&later_pid));
        assert!(
            noted
                .before
                .contains_key(&i32::try_from(before.id()).unwrap())
        );
        let lone = ClientProcesses {
            client: later_pid,
            before: HashMap::new(),
        };
        assert_eq!(lone.signal_later(Signal::TERM), 0);
        assert!(noted.signal_later(Signal::TERM) >= 1);
        assert!(!later.wait().unwrap().success());
        assert!(before.try_wait().unwrap().is_none());
        before.kill().unwrap();
        before.wait().unwrap();
    }
}
