//! Watching over a command until nothing is left of it.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use super::tree::Tree;
use super::{Report, Word};

/// How often a quiet reaper looks for orphans that have ended.
const LOOK: Duration = Duration::from_secs(1);

/// A reaper at work.
pub(super) struct Vigil {
    tree: Tree,
    grace: Duration,
    socket: UnixStream,
    words: BufReader<UnixStream>,
    /// When asking has taken long enough.
    kill_at: Option<Instant>,
}

/// What woke the reaper.
enum Woken {
    Word(Option<Word>),
    Ended,
    Time,
}

impl Vigil {
    pub(super) fn new(
        tree: Tree,
        grace: Duration,
        socket: UnixStream,
        words: BufReader<UnixStream>,
    ) -> Self {
        Self {
            tree,
            grace,
            socket,
            words,
            kill_at: None,
        }
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(super) fn tell(&mut self, report: &Report) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(report)?;
        line.push(b'\n');
        // An executor that is gone hears nothing, and what is to be done is the same.
        let _ = self.socket.write_all(&line);
        Ok(())
    }

    /// Watches until the command has ended, and then ends whatever it left behind.
    pub(super) fn hold(&mut self, mut child: Child) -> anyhow::Result<()> {
        let pid = Pid::from_child(&child);
        let ended = pidfd_open(pid, PidfdFlags::empty())?;
        self.tell(&Report::Started {
            pid: child.id(),
            cgroup: self.tree.cgroup().cloned(),
        })?;
        loop {
            match self.wait(&ended)? {
                Woken::Ended => break,
                Woken::Word(Some(Word::Stop)) => {
                    self.tree.signal(Signal::TERM);
                    self.kill_at.get_or_insert(Instant::now() + self.grace);
                }
                Woken::Word(Some(Word::Kill) | None) => self.tree.signal(Signal::KILL),
                Woken::Time => {
                    if self.kill_at.is_some_and(|at| at <= Instant::now()) {
                        self.tree.signal(Signal::KILL);
                    }
                    self.tree.collect_orphans(pid);
                }
            }
        }
        let status = child.wait()?;
        self.tell(&Report::Ended {
            code: status.code(),
            signal: status.signal(),
        })?;
        let left_behind = self.tree.end_all();
        self.tell(&Report::Gone {
            mechanism: self.tree.mechanism(),
            left_behind,
        })
    }

    fn wait(&mut self, ended: &OwnedFd) -> anyhow::Result<Woken> {
        // A word that was read together with the one before it is nothing to wait for.
        if !self.words.buffer().is_empty() {
            return Ok(Woken::Word(self.next_word()));
        }
        let now = Instant::now();
        let until = self
            .kill_at
            .map_or(LOOK, |at| at.saturating_duration_since(now).min(LOOK));
        let timeout = Timespec {
            tv_sec: i64::try_from(until.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: until.subsec_nanos().into(),
        };
        let mut ready = [
            PollFd::new(ended, PollFlags::IN),
            PollFd::new(self.words.get_ref(), PollFlags::IN),
        ];
        match poll(&mut ready, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (is_ended, has_word) = (
            !ready[0].revents().is_empty(),
            !ready[1].revents().is_empty(),
        );
        if is_ended {
            return Ok(Woken::Ended);
        }
        if has_word {
            return Ok(Woken::Word(self.next_word()));
        }
        Ok(Woken::Time)
    }

    /// What the executor says; nothing if it is gone.
    fn next_word(&mut self) -> Option<Word> {
        let mut line = String::new();
        match self.words.read_line(&mut line) {
            Ok(1..) => serde_json::from_str(&line).ok(),
            Ok(0) | Err(_) => None,
        }
    }
}
