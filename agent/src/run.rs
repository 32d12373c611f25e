//! One command from its start to the last of its processes: streamed, bounded, stopped.

mod course;
mod reapers;
mod stopping;
mod stream;
mod terminal;

use std::collections::BTreeMap;
use std::time::Duration;

use pvp_protocol::payload::OutputStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::mask::Mask;
use crate::reaper::{Cgroup, Errand, Mechanism, Report};
use course::{Course, Ears, Reports};
pub use reapers::Reapers;
pub use stopping::{Asked, Stopper, stopping};
pub use stream::Summary;
use terminal::Terminal;
pub use terminal::{Keyboard, PressError};

/// What one run may use before it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// `None` is for ever.
    pub timeout: Option<Duration>,
    /// Bytes of both streams together, counted as they are told.
    pub output_bytes: u64,
    pub on_overflow: Overflow,
}

/// What happens to a command that prints more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// It is ended.
    Kill,
    /// It goes on; of what it prints then only the end is kept, for the summary.
    Truncate,
}

/// A piece of what a command printed: whole characters, at their place in their stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub stream: OutputStream,
    pub text: String,
    /// Bytes of the stream that were told before.
    pub offset: u64,
}

/// Why a command did not end by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    TimedOut,
    PrintedTooMuch,
    /// Someone wanted it to; what they said.
    Asked(String),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stopped: Option<Stopped>,
    pub duration: Duration,
    pub stdout: Summary,
    pub stderr: Summary,
    /// How its processes were ended; `None` if that could not be seen.
    pub mechanism: Option<Mechanism>,
    /// Processes that it left behind, and that were ended.
    pub left_behind: u32,
}

/// Why there is no finish.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Nothing ran.
    #[error("it could not be started: {0}")]
    NotStarted(String),
    /// Nothing ran, because someone wanted it stopped before it began; what they said.
    #[error("it was stopped before it began: {0}")]
    Unwanted(String),
    /// It may or may not have run to its end.
    #[error("it was lost: {0}")]
    Lost(String),
}

/// A command that has begun below a reaper.
pub struct Run {
    reaper: Child,
    ears: Ears,
    words: OwnedWriteHalf,
    pid: u32,
    cgroup: Option<Cgroup>,
    begun: Instant,
}

impl Run {
    /// Starts a command, and returns when it has begun.
    pub async fn start(reapers: &Reapers, errand: &Errand, asked: Asked) -> Result<Self, RunError> {
        if let Some((_, why)) = asked.so_far() {
            return Err(RunError::Unwanted(why));
        }
        let begun = Instant::now();
        let mut reaper = reapers
            .hand_over(errand)
            .await
            .map_err(|error| RunError::NotStarted(format!("{error:#}")))?;
        let (pid, cgroup) = begin(&mut reaper.reports).await?;
        reapers.prepare(errand);
        Ok(Self {
            ears: Ears {
                stdout: reaper.stdout,
                stderr: reaper.stderr,
                terminal: reaper.terminal,
                reports: reaper.reports,
                asked,
            },
            reaper: reaper.process,
            words: reaper.words,
            pid,
            cgroup,
            begun,
        })
    }

    /// The process that is the command.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its keyboard, if it has a terminal.
    pub fn keyboard(&self) -> Option<Keyboard> {
        self.ears.terminal.as_ref().map(Terminal::keyboard)
    }

    /// Sends what is printed, with the values of `secrets` hidden, to `pieces` until nothing is left of the command. A receiver that
    /// does not keep up slows the command down; one that is gone stops it.
    pub async fn finish(
        self,
        bounds: Bounds,
        secrets: &BTreeMap<String, String>,
        pieces: mpsc::Sender<Piece>,
    ) -> Result<Finish, RunError> {
        let mask = Mask::new(secrets);
        let mut course = Course::new(self.begun, bounds, &mask, self.words, self.cgroup);
        course.follow(self.ears, &pieces).await;
        let mut reaper = self.reaper;
        // It has told everything that it knows, or it was killed.
        let _ = reaper.wait().await;
        course.finish(self.begun.elapsed())
    }
}

/// Waits until the reaper says that the command has begun, and as which process.
async fn begin(reports: &mut Reports) -> Result<(u32, Option<Cgroup>), RunError> {
    let lost = |why: &str| RunError::Lost(why.to_owned());
    let line = match reports.next_line().await {
        Ok(Some(line)) => line,
        Ok(None) | Err(_) => return Err(lost("its reaper was killed before it began")),
    };
    match serde_json::from_str(&line) {
        Ok(Report::Started { pid, cgroup }) => Ok((pid, cgroup)),
        Ok(Report::NotStarted { why }) => Err(RunError::NotStarted(why)),
        Ok(Report::Ended { .. } | Report::Gone { .. }) | Err(_) => {
            Err(lost("its reaper did not say that it began"))
        }
    }
}
