//! One command from its start to the last of its processes: streamed, bounded, stopped.

mod output_recorder;
mod pty;
mod reaper_pool;
mod run_state;
mod stop_channel;

use std::collections::BTreeMap;
use std::time::Duration;

use pvp_protocol::payload::OutputStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::mask::SecretMask;
use crate::reaper::{Cgroup, KillMechanism, ReaperReport, SpawnSpec};
pub use output_recorder::StreamSummary;
use pty::Pty;
pub use pty::{PtyInput, PtyInputError};
pub use reaper_pool::ReaperPool;
use run_state::{ReaperReports, RunEventSources, RunState};
pub use stop_channel::{StopReceiver, StopSender, stop_channel};

/// What one run may use before it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// `None` is for ever.
    pub timeout: Option<Duration>,
    /// Bytes of both streams together, counted as they are told.
    pub output_bytes: u64,
    pub on_overflow: OverflowAction,
}

/// What happens to a command that prints more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverflowAction {
    /// It is ended.
    Kill,
    /// It goes on; of what it prints then only the end is kept, for the summary.
    Truncate,
}

/// A piece of what a command printed: whole characters, at their place in their stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StdioChunk {
    pub stream: OutputStream,
    pub text: String,
    /// Bytes of the stream that were told before.
    pub offset: u64,
}

/// Why a command did not end by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    TimedOut,
    OutputLimit,
    /// Someone wanted it to; what they said.
    Requested(String),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedRun {
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub stop_reason: Option<StopReason>,
    pub duration: Duration,
    pub stdout: StreamSummary,
    pub stderr: StreamSummary,
    /// How its processes were ended; `None` if that could not be seen.
    pub kill_mechanism: Option<KillMechanism>,
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
    StoppedBeforeStart(String),
    /// It may or may not have run to its end.
    #[error("it was lost: {0}")]
    Lost(String),
}

/// A command that has begun below a reaper.
pub struct SupervisedProcess {
    reaper: Child,
    sources: RunEventSources,
    reaper_commands: OwnedWriteHalf,
    pid: u32,
    cgroup: Option<Cgroup>,
    started_at: Instant,
}

impl SupervisedProcess {
    /// Starts a command, and returns when it has begun.
    pub async fn start(
        reapers: &ReaperPool,
        spawn_spec: &SpawnSpec,
        stop_receiver: StopReceiver,
    ) -> Result<Self, RunError> {
        if let Some((_, why)) = stop_receiver.current() {
            return Err(RunError::StoppedBeforeStart(why));
        }
        let started_at = Instant::now();
        let mut reaper = reapers
            .assign(spawn_spec)
            .await
            .map_err(|error| RunError::NotStarted(format!("{error:#}")))?;
        let (pid, cgroup) = await_start(&mut reaper.reports).await?;
        reapers.start_spare(spawn_spec);
        Ok(Self {
            sources: RunEventSources {
                stdout: reaper.stdout,
                stderr: reaper.stderr,
                pty: reaper.pty,
                reports: reaper.reports,
                stop_receiver,
            },
            reaper: reaper.process,
            reaper_commands: reaper.commands,
            pid,
            cgroup,
            started_at,
        })
    }

    /// The process that is the command.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its keyboard, if it has a terminal.
    pub fn pty_input(&self) -> Option<PtyInput> {
        self.sources.pty.as_ref().map(Pty::input)
    }

    /// Sends what is printed, with the values of `secrets` hidden, to `pieces` until nothing is left of the command. A receiver that
    /// does not keep up slows the command down; one that is gone stops it.
    pub async fn stream_to_end(
        self,
        limits: RunLimits,
        secrets: &BTreeMap<String, String>,
        chunks: mpsc::Sender<StdioChunk>,
    ) -> Result<FinishedRun, RunError> {
        let mask = SecretMask::new(secrets);
        let mut state = RunState::new(
            self.started_at,
            limits,
            &mask,
            self.reaper_commands,
            self.cgroup,
        );
        state.drive(self.sources, &chunks).await;
        let mut reaper = self.reaper;
        // It has told everything that it knows, or it was killed.
        let _ = reaper.wait().await;
        state.finish(self.started_at.elapsed())
    }
}

/// Waits until the reaper says that the command has begun, and as which process.
async fn await_start(reports: &mut ReaperReports) -> Result<(u32, Option<Cgroup>), RunError> {
    let lost = |why: &str| RunError::Lost(why.to_owned());
    let line = match reports.next_line().await {
        Ok(Some(line)) => line,
        Ok(None) | Err(_) => return Err(lost("its reaper was killed before it began")),
    };
    match serde_json::from_str(&line) {
        Ok(ReaperReport::Started { pid, cgroup }) => Ok((pid, cgroup)),
        Ok(ReaperReport::NotStarted { why }) => Err(RunError::NotStarted(why)),
        Ok(ReaperReport::Ended { .. } | ReaperReport::Gone { .. }) | Err(_) => {
            Err(lost("its reaper did not say that it began"))
        }
    }
}
