//! One command from its start to the end of its last process: streamed, limited, stoppable.

mod output_recorder;
mod own_output;
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
pub(crate) use own_output::OwnOutput;
use pty::Pty;
pub use pty::{PtyInput, PtyInputError};
pub use reaper_pool::ReaperPool;
use run_state::{ReaperReports, RunEventSources, RunState};
pub use stop_channel::{StopReceiver, StopSender, stop_channel};

/// What one run may use before it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// How long it may run; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Bytes of both streams together, counted after decoding and masking.
    pub output_bytes: u64,
    /// What to do when it prints more.
    pub on_overflow: OverflowAction,
}

/// What happens to a command that prints more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverflowAction {
    /// It is killed.
    Kill,
    /// It keeps running; only the end of the excess output is kept, for the summary.
    Truncate,
}

/// A chunk of a command's output: whole characters, with their position in their stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StdioChunk {
    pub stream: OutputStream,
    pub text: String,
    /// Bytes of the stream before this chunk.
    pub offset: u64,
}

/// Why a command did not end by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    TimedOut,
    OutputLimit,
    /// A stop was requested, with this reason.
    Requested(String),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedRun {
    /// The exit code; `None` if a signal ended the command.
    pub exit_code: Option<i32>,
    /// The signal that ended the command, if one did.
    pub signal: Option<i32>,
    /// Why the command was stopped; `None` if it ended by itself.
    pub stop_reason: Option<StopReason>,
    /// From the start to the end of the last process.
    pub duration: Duration,
    /// What was printed to standard output, or to the terminal.
    pub stdout: StreamSummary,
    /// What was printed to standard error.
    pub stderr: StreamSummary,
    /// How its processes were killed; `None` if that is not known.
    pub kill_mechanism: Option<KillMechanism>,
    /// Processes that the command left behind, and that were killed.
    pub left_behind: u32,
    /// What a command that is tried was denied, upon which it was killed; `None` if nothing.
    pub denied: Option<String>,
}

/// Why there is no [`FinishedRun`].
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Nothing ran.
    #[error("it could not be started: {0}")]
    NotStarted(String),
    /// Nothing ran: a stop was requested before the start, with this reason.
    #[error("it was stopped before it began: {0}")]
    StoppedBeforeStart(String),
    /// It may or may not have run to its end.
    #[error("it was lost: {0}")]
    Lost(String),
}

/// A command that was started under a reaper.
pub struct SupervisedProcess {
    /// The reaper's process.
    reaper: Child,
    /// Where output, reports, input and stop requests come from.
    sources: RunEventSources,
    /// Sends commands to the reaper.
    reaper_commands: OwnedWriteHalf,
    /// The process id of the command.
    pid: u32,
    /// The command's cgroup; `None` if it has none.
    cgroup: Option<Cgroup>,
    /// When the reaper was requested.
    started_at: Instant,
}

impl SupervisedProcess {
    /// Starts a command, and returns when it has started.
    ///
    /// A stop requested before the start prevents it.
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

    /// The process id of the command.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The input of its terminal, if it has one.
    pub fn pty_input(&self) -> Option<PtyInput> {
        self.sources.pty.as_ref().map(Pty::input)
    }

    /// Sends the output to `chunks`, with the values of `secrets` masked, until no process of the
    /// command is left.
    ///
    /// A slow receiver slows the command down. Dropping the receiver stops the command.
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
        // It has reported everything that it knows, or it was killed.
        let _ = reaper.wait().await;
        state.finish(self.started_at.elapsed())
    }
}

/// Waits until the reaper reports that the command has started, and its process id.
async fn await_start(reports: &mut ReaperReports) -> Result<(u32, Option<Cgroup>), RunError> {
    let lost = |why: &str| RunError::Lost(why.to_owned());
    let line = match reports.next_line().await {
        Ok(Some(line)) => line,
        Ok(None) | Err(_) => return Err(lost("its reaper was killed before it began")),
    };
    match serde_json::from_str(&line) {
        Ok(ReaperReport::Started { pid, cgroup }) => Ok((pid, cgroup)),
        Ok(ReaperReport::NotStarted { why }) => Err(RunError::NotStarted(why)),
        Ok(
            ReaperReport::Denied { .. } | ReaperReport::Ended { .. } | ReaperReport::Gone { .. },
        )
        | Err(_) => Err(lost("its reaper did not say that it began")),
    }
}
