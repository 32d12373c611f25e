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
    /// Whether nobody has asked yet how it ended.
    has_ended: bool,
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

/// A process that is not confused with a later one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessName {
    pub pid: i32,
    /// When it started, in ticks since the machine did.
    pub started: u64,
}

impl ProcessName {
    /// This process.
    pub fn own() -> Option<Self> {
        let pid = i32::try_from(std::process::id()).ok()?;
        let started = read_info(Path::new("/proc/self"))?.started;
        Some(Self { pid, started })
    }

    /// The process that has this number.
    pub fn of(pid: i32) -> Option<Self> {
        let started = read_info(Path::new(&format!("/proc/{pid}")))?.started;
        Some(Self { pid, started })
    }

    /// The processes above this one, the nearest first.
    pub fn ancestors() -> impl Iterator<Item = Self> {
        let table = process_table();
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let mut next = table.get(&own).map(|info| info.parent);
        let mut left = table.len();
        std::iter::from_fn(move || {
            // A table that changes while it is read may lead in a circle.
            left = left.checked_sub(1)?;
            let pid = next.filter(|pid| *pid > 0)?;
            let info = table.get(&pid)?;
            next = Some(info.parent);
            let started = info.started;
            Some(Self { pid, started })
        })
    }

    /// Whether it runs. One that has ended stays in the table until somebody asks how it ended.
    pub fn is_alive(self) -> bool {
        let info = read_info(Path::new(&format!("/proc/{}", self.pid)));
        info.is_some_and(|info| info.started == self.started && !info.has_ended)
    }

    /// The words that it was started with.
    pub fn words(self) -> Vec<String> {
        let bytes = std::fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words = bytes.split(|byte| *byte == 0);
        let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
        words.collect()
    }

    /// The file of its program.
    pub fn program(self) -> Option<PathBuf> {
        program_of(self.pid)
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
    let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
    let parent = fields.next()?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(ProcessInfo {
        parent,
        started,
        has_ended,
    })
}

fn program_of(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_has_ended_is_not_alive_although_nobody_asked_how() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let started = process_table()[&pid].started;
        let name = ProcessName { pid, started };
        assert!(name.is_alive());
        child.kill().unwrap();
        // Killing is done when it is done.
        while name.is_alive() {
            std::thread::yield_now();
        }
        assert!(process_table().contains_key(&pid));
        child.wait().unwrap();
    }

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
