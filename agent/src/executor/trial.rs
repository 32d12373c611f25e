//! Tries a command in the read sandbox: what it prints is told only if nothing was denied to it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pvp_protocol::payload::{DiscardedTrial, ToolDiscard};
use pvp_protocol::{ClientMessage, ExecutionLimits, ExtraFields};
use tokio::sync::mpsc;

use super::RunTaskEvent;
use super::output_sender::{self, OutputSender};
use super::run_task::RunTask;
use crate::reaper::SpawnSpec;
use crate::run::{
    FinishedRun, OverflowAction, RunLimits, StdioChunk, StopReason, StopReceiver, SupervisedProcess,
};
use crate::sandbox::{ResourceLimits, TrialLimits};

const MIB: u64 = 1024 * 1024;

/// What a trial may use, whatever the server grants.
pub(super) const LIMITS: TrialLimits = TrialLimits {
    memory_bytes: 512 * MIB,
    processes: 300,
};

/// How long a trial may take and how much it may print, whatever the server grants.
const MAX_EXECUTION_LIMITS: ExecutionLimits = ExecutionLimits {
    timeout_ms: 10_000,
    output_bytes: MIB,
};

/// Processor time of each process in seconds.
const MAX_CPU_SECONDS: u64 = 10;

/// Bytes of one temporary file.
const MAX_FILE_BYTES: u64 = 64 * MIB;

/// Everyone sees what a trial prints, so of the executor's variables it gets only those that programs
/// need to start.
const INHERITED_VARIABLES: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "COLUMNS", "LINES", "NO_COLOR",
];

/// Whether a trial gets this variable of the executor.
pub(super) fn may_inherit(name: &str) -> bool {
    INHERITED_VARIABLES.contains(&name) || name.starts_with("LC_")
}

/// Variables that keep programs from writing where they need not.
pub(super) fn added_variables() -> impl Iterator<Item = (String, String)> {
    let variables = [("PYTHONDONTWRITEBYTECODE", "1"), ("SHELL", "/bin/bash")];
    variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// What each process of a trial may use. The memory is a backstop: the reaper ends the trial before.
pub(super) fn resource_limits(limits: ResourceLimits) -> ResourceLimits {
    let capped = limits.capped(2 * LIMITS.memory_bytes, MAX_FILE_BYTES);
    ResourceLimits {
        cpu_seconds: Some(
            limits
                .cpu_seconds
                .map_or(MAX_CPU_SECONDS, |own| own.min(MAX_CPU_SECONDS)),
        ),
        ..capped
    }
}

/// The history of the workspace's repository, which may hold secrets that were removed since.
pub(super) fn history(workspace: &Path) -> PathBuf {
    workspace.join(".git")
}

impl RunTask {
    /// Tries the command; its output is kept until it has ended.
    pub(super) async fn try_command(
        &self,
        spawn_spec: &SpawnSpec,
        stop_receiver: StopReceiver,
    ) -> ClientMessage {
        let run = match SupervisedProcess::start(&self.reapers, spawn_spec, stop_receiver).await {
            Ok(run) => run,
            Err(error) => return self.error_result(&error).into(),
        };
        let _ = self.events.send(RunTaskEvent::Started {
            proposal: self.proposal.clone(),
            pid: run.pid(),
            file: None,
            pty_input: None,
        });
        let limits = self.trial_limits();
        let run_limits = RunLimits {
            timeout: Some(Duration::from_millis(limits.timeout_ms)),
            output_bytes: limits.output_bytes,
            on_overflow: OverflowAction::Kill,
        };
        let (chunk_sender, mut chunks) = mpsc::channel(4);
        let keep_all = async {
            let mut kept = Vec::new();
            while let Some(chunk) = chunks.recv().await {
                kept.push(chunk);
            }
            kept
        };
        let running = run.stream_to_end(run_limits, &self.masked, chunk_sender);
        let (finished, kept) = tokio::join!(running, keep_all);
        match finished {
            Err(error) => self.error_result(&error).into(),
            Ok(finished) => match discarded_trial(&finished, limits) {
                Some(trial) => ToolDiscard {
                    tool_proposal: self.proposal.clone(),
                    trial,
                    extra: ExtraFields::new(),
                }
                .into(),
                None => self.tell(&finished, kept, limits).await,
            },
        }
    }

    /// The smaller of what was granted and what this executor allows.
    fn trial_limits(&self) -> ExecutionLimits {
        let (granted, own) = (self.grant.executor_limits(), MAX_EXECUTION_LIMITS);
        let timeout_ms = match granted.timeout_ms {
            0 => own.timeout_ms,
            granted => granted.min(own.timeout_ms),
        };
        ExecutionLimits {
            timeout_ms,
            output_bytes: granted.output_bytes.min(own.output_bytes),
        }
    }

    /// Sends what a trial printed, and its result.
    async fn tell(
        &self,
        finished: &FinishedRun,
        kept: Vec<StdioChunk>,
        limits: ExecutionLimits,
    ) -> ClientMessage {
        let (sender, chunks) = mpsc::channel(kept.len().max(1));
        for chunk in kept {
            sender
                .try_send(chunk)
                .expect("the channel has room for all of them");
        }
        drop(sender);
        let max_bytes = limits.output_bytes;
        let output_sender = OutputSender::new(&self.connection, &self.proposal, max_bytes, None);
        let sent = output_sender.send_all(chunks).await;
        output_sender::tool_result(&self.proposal, finished, limits, sent).into()
    }
}

/// Why a trial does not count; `None` if it does.
fn discarded_trial(finished: &FinishedRun, limits: ExecutionLimits) -> Option<DiscardedTrial> {
    let left = finished.left_behind;
    let reason = match &finished.stop_reason {
        Some(StopReason::Requested(why)) => Some(format!("stopped: {why}")),
        Some(StopReason::TimedOut) => {
            let seconds = limits.timeout_ms / 1000;
            Some(format!("it ran for more than {seconds} s"))
        }
        Some(StopReason::OutputLimit) => Some(format!(
            "it printed more than {} bytes",
            limits.output_bytes
        )),
        None if finished.denied.is_some() => None,
        None if left == 1 => Some("it left a process running".to_owned()),
        None if left > 1 => Some(format!("it left {left} processes running")),
        None => return None,
    };
    let visible = |text: String| text.replace(char::is_control, " ");
    Some(DiscardedTrial {
        denied: finished.denied.iter().cloned().map(visible).collect(),
        reason: reason.map(visible),
    })
}
