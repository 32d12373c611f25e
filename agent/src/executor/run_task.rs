//! The task that takes one grant to its result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use pvp_client::{Connection, now};
use pvp_protocol::payload::{ClearedBy, GrantTerms, ToolResult};
use pvp_protocol::{ClientMessage, Command, MessageId, RunMode};
use serde_json::json;
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::file_run::{self, StopSignal};
use super::job_file::JobFile;
use super::output_sender::{self, OutputSender};
use super::spawn_spec::RunPlaces;
use super::{ExecutorSettings, RunTaskEvent, git_notes, spawn_spec};
use crate::bound_files::{self, FileIdentity};
use crate::grant_check::AcceptedGrant;
use crate::journal::Journal;
use crate::reaper::SpawnSpec;
use crate::run::{
    OverflowAction, OwnOutput, ReaperPool, RunError, RunLimits, StopReceiver, SupervisedProcess,
};
use crate::run_results::{failed_result, unknown_result};
use crate::working_directory::WorkingDirectory;

pub(super) struct RunTask {
    /// The connection to the session.
    pub(super) connection: Connection,
    /// How commands are run.
    pub(super) settings: Arc<ExecutorSettings>,
    /// Processes that commands are started under.
    pub(super) reapers: Arc<ReaperPool>,
    /// The durable list of grants that were acted on.
    pub(super) journal: Arc<Mutex<Journal>>,
    /// One permit for each command that may run at the same time.
    pub(super) slots: Arc<Semaphore>,
    /// Reports the start and the end to the executor.
    pub(super) events: mpsc::UnboundedSender<RunTaskEvent>,
    /// The proposal that was granted.
    pub(super) proposal: MessageId,
    /// What was granted.
    pub(super) grant: GrantTerms,
    /// How the executor acts on it.
    pub(super) accepted: AcceptedGrant,
    /// The directories beside the workspace that it may see if it is a read.
    pub(super) read_roots: Vec<PathBuf>,
    /// The values that are masked in its output.
    pub(super) masked: BTreeMap<String, String>,
}

impl RunTask {
    /// Runs the command in a task of its own. If that task panics, a result says so, instead of
    /// letting everyone wait.
    pub(super) fn spawn(self, stop_receiver: StopReceiver) {
        let (connection, events) = (self.connection.clone(), self.events.clone());
        let (proposal, grant) = (self.proposal.clone(), self.grant.id.clone());
        let run = tokio::spawn(self.run(stop_receiver));
        tokio::spawn(report_panic(
            run,
            proposal,
            grant,
            events,
            async move |lost| {
                output_sender::send_acknowledged(&connection, lost).await;
            },
        ));
    }

    async fn run(self, stop_receiver: StopReceiver) {
        if let Some(report) = self.wait_and_execute(stop_receiver).await
            && output_sender::send_acknowledged(&self.connection, report).await
            && let Err(error) = self.journal.lock().await.record_done(&self.grant.id)
        {
            tracing::warn!(%error, "could not record a result");
        }
        let (proposal, grant) = (self.proposal, self.grant.id);
        // If the executor is gone, nobody needs to know.
        let _ = self.events.send(RunTaskEvent::Finished { proposal, grant });
    }

    /// Waits for a slot, records the start, and runs. `None` if the grant was acted on before.
    async fn wait_and_execute(&self, mut stop_receiver: StopReceiver) -> Option<ClientMessage> {
        let failed = |why: &str| Some(failed_result(self.proposal.clone(), why).into());
        // Jobs run for as long as they like, so they take no slot; they are counted when granted.
        let _slot = match self.grant.action.mode {
            RunMode::Background => None,
            RunMode::Normal | RunMode::Slow | RunMode::Pty => tokio::select! {
                slot = self.slots.acquire() => slot.ok(),
                why = stop_receiver.requested() => {
                    let why = format!("stopped before it began: {why}");
                    return failed(&why);
                }
            },
        };
        if self.grant.expires_at <= self.connection.server_now() {
            let why = "the grant expired while other commands ran; propose it again";
            return failed(why);
        }
        match self.record_start().await {
            Ok(true) => Some(self.execute(stop_receiver).await),
            Ok(false) => None,
            Err(error) => {
                let why = format!(
                    "it did not run, because that could not be written to the journal: {error:#}"
                );
                failed(&why)
            }
        }
    }

    /// Records the grant in the journal; returns false if it was acted on before.
    async fn record_start(&self) -> anyhow::Result<bool> {
        let journal = self.journal.clone();
        let (grant, proposal) = (self.grant.id.clone(), self.proposal.clone());
        let expires = self.grant.expires_at;
        tokio::task::spawn_blocking(move || {
            let mut journal = journal.blocking_lock();
            journal.record_start(&grant, &proposal, expires, now())
        })
        .await
        .context("the journal's task ended")?
    }

    async fn execute(&self, stop_receiver: StopReceiver) -> ClientMessage {
        let failed = |why: &str| failed_result(self.proposal.clone(), why).into();
        if let Command::Tool { .. } = self.grant.action.command {
            return self.call_tool(stop_receiver).await.into();
        }
        let temporary = match tempfile::Builder::new().prefix("pvp-").tempdir() {
            Ok(temporary) => temporary,
            Err(error) => {
                let why = format!("no temporary directory: {error}");
                return failed(&why);
            }
        };
        let prepared = self.prepare(temporary.path()).await;
        let (spawn_spec, directory, identities) = match prepared {
            Ok(prepared) => prepared,
            Err(why) => return failed(&why),
        };
        if self.grant.cleared_by == ClearedBy::Tried {
            return self.try_command(&spawn_spec, stop_receiver).await;
        }
        let snapshot = match git_notes::is_enabled_for(&self.grant, &self.settings) {
            true => git_notes::RepositorySnapshot::capture(&spawn_spec.directory).await,
            false => None,
        };
        let mut result = self.run_and_stream(&spawn_spec, stop_receiver).await;
        // Open until here, so that no other directory could take its identity.
        drop(directory);
        let changed = bound_files::changed_since(&self.settings.workspace, &identities);
        if !changed.is_empty() {
            let extra = &mut result.extra;
            extra.insert("changed_while_running".to_owned(), json!(changed));
        }
        if let Some(snapshot) = snapshot.filter(|_| result.success) {
            snapshot
                .annotate_new_commits(&self.connection, &self.proposal, &self.grant)
                .await;
        }
        result.into()
    }

    /// Makes a call of a tool that the executor has itself, and sends what it says.
    async fn call_tool(&self, stop_receiver: StopReceiver) -> ToolResult {
        let started_at = Instant::now();
        let output = match self.file_tool_output(started_at, stop_receiver).await {
            Ok(output) => output,
            Err(why) => return failed_result(self.proposal.clone(), &why),
        };
        let limits = self.grant.executor_limits();
        let (chunk_sender, chunks) = mpsc::channel(4);
        let output_sender =
            OutputSender::new(&self.connection, &self.proposal, limits.output_bytes, None);
        let duration = started_at.elapsed();
        let streaming =
            output.stream_to_end(limits.output_bytes, &self.masked, duration, chunk_sender);
        let (finished, sent) = tokio::join!(streaming, output_sender.send_all(chunks));
        output_sender::tool_result(&self.proposal, &finished, limits, sent)
    }

    /// Calls a file tool in a thread of its own, which ends early if somebody asks for it.
    async fn file_tool_output(
        &self,
        started_at: Instant,
        mut stop_receiver: StopReceiver,
    ) -> Result<OwnOutput, String> {
        if let Some((_, why)) = stop_receiver.current() {
            return Err(format!("it was stopped before it began: {why}"));
        }
        let (grant, settings) = (self.grant.clone(), self.settings.clone());
        let accepted = self.accepted;
        let timeout = self.run_limits().timeout;
        let requested = Arc::new(AtomicBool::new(false));
        let is_requested = requested.clone();
        let mut calling = tokio::task::spawn_blocking(move || {
            let stop_signal = StopSignal {
                requested: &is_requested,
                deadline: timeout.and_then(|timeout| started_at.checked_add(timeout)),
            };
            file_run::run(&grant, accepted, &settings, stop_signal)
        });
        let called = tokio::select! {
            called = &mut calling => called,
            why = stop_receiver.requested() => {
                requested.store(true, Ordering::Relaxed);
                tracing::debug!(why, "asked a file tool to stop");
                calling.await
            }
        };
        called.unwrap_or_else(|_| Err("the executor failed while it called the tool".to_owned()))
    }

    /// Opens the working directory, checks the files that the command binds, and builds the spec.
    async fn prepare(
        &self,
        temporary: &Path,
    ) -> Result<(SpawnSpec, WorkingDirectory, Vec<FileIdentity>), String> {
        let (grant, settings) = (self.grant.clone(), self.settings.clone());
        let (accepted, temporary) = (self.accepted, temporary.to_owned());
        let read_roots = self.read_roots.clone();
        let preparing = tokio::task::spawn_blocking(move || {
            let directory = spawn_spec::open_directory(&grant, accepted, &settings)?;
            let identities = bound_files::check(&settings.workspace, &grant.action.files)?;
            let places = RunPlaces {
                directory: &directory,
                temporary: &temporary,
                read_roots: &read_roots,
            };
            let spec = spawn_spec::from_grant(&grant, accepted, &settings, places)?;
            Ok((spec, directory, identities))
        });
        preparing
            .await
            .unwrap_or_else(|_| Err("the executor failed while it prepared the command".to_owned()))
    }

    /// Runs the command to its end and sends what it prints.
    async fn run_and_stream(
        &self,
        spawn_spec: &SpawnSpec,
        stop_receiver: StopReceiver,
    ) -> ToolResult {
        let run = match SupervisedProcess::start(&self.reapers, spawn_spec, stop_receiver).await {
            Ok(run) => run,
            Err(error) => return self.error_result(&error),
        };
        let mode = self.grant.action.mode;
        let background = mode == RunMode::Background;
        let mut file = background.then(|| JobFile::for_proposal(&self.settings, &self.proposal));
        let _ = self.events.send(RunTaskEvent::Started {
            proposal: self.proposal.clone(),
            pid: run.pid(),
            file: file.as_ref().map(|file| file.path().to_owned()),
            pty_input: run.pty_input(),
        });
        let (chunk_sender, chunks) = mpsc::channel(4);
        let limits = self.grant.executor_limits();
        let max_bytes = limits.output_bytes;
        let output_sender =
            OutputSender::new(&self.connection, &self.proposal, max_bytes, file.as_mut());
        let running = run.stream_to_end(self.run_limits(), &self.masked, chunk_sender);
        let (finished, sent) = tokio::join!(running, output_sender.send_all(chunks));
        let mut result = match &finished {
            Ok(finish) => output_sender::tool_result(&self.proposal, finish, limits, sent),
            Err(error) => self.error_result(error),
        };
        if let (Ok(finish), Command::LoginShell { .. }) = (&finished, &self.grant.action.command) {
            output_sender::add_shell_exec_fields(&mut result, finish);
        }
        if let Some(mut file) = file {
            file.close(&end_status(&result)).await;
            let path = file.path().display().to_string();
            result.extra.insert("output_file".to_owned(), json!(path));
        }
        result
    }

    fn run_limits(&self) -> RunLimits {
        let limits = self.grant.executor_limits();
        let (output_bytes, on_overflow) = match self.grant.action.mode {
            // A job that prints forever goes on; its file keeps the last part of the output.
            RunMode::Background => (u64::MAX, OverflowAction::Truncate),
            RunMode::Normal | RunMode::Slow | RunMode::Pty => {
                (limits.output_bytes, self.settings.on_overflow)
            }
        };
        RunLimits {
            timeout: (limits.timeout_ms > 0).then(|| Duration::from_millis(limits.timeout_ms)),
            output_bytes,
            on_overflow,
        }
    }

    pub(super) fn error_result(&self, error: &RunError) -> ToolResult {
        let (proposal, why) = (self.proposal.clone(), error.to_string());
        match error {
            RunError::NotStarted(_) | RunError::StoppedBeforeStart(_) => {
                failed_result(proposal, &why)
            }
            RunError::Lost(_) => unknown_result(proposal, &why),
        }
    }
}

/// Waits for a run. If it panics, reports its outcome as unknown and marks it as finished.
async fn report_panic(
    run: JoinHandle<()>,
    proposal: MessageId,
    grant: MessageId,
    events: mpsc::UnboundedSender<RunTaskEvent>,
    send_result: impl AsyncFnOnce(ToolResult),
) {
    if run.await.is_err() {
        send_result(unknown_result(
            proposal.clone(),
            "the executor failed while it ran",
        ))
        .await;
        // If the executor is gone, nobody needs to know.
        let _ = events.send(RunTaskEvent::Finished { proposal, grant });
    }
}

/// How a job ended, for the last line of its file.
fn end_status(result: &ToolResult) -> String {
    let code = result.exit_code();
    match (&result.error, code) {
        (Some(why), _) => format!("failed: {why}"),
        (None, Some(0)) => "completed".to_owned(),
        (None, Some(code)) => format!("failed: exit code {code}"),
        (None, None) => "failed: ended by a signal".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is sent and reported for a run that has ended, in order.
    async fn reported_by(run: impl Future<Output = ()> + Send + 'static) -> Vec<String> {
        let proposal = MessageId::parse("p1").unwrap();
        let (note, mut notes) = mpsc::unbounded_channel();
        let mut left = Vec::new();
        let grant = MessageId::parse("g1").unwrap();
        report_panic(tokio::spawn(run), proposal, grant, note, async |lost| {
            left.push(serde_json::to_string(&lost).unwrap());
        })
        .await;
        while let Some(note) = notes.recv().await {
            left.push(match note {
                RunTaskEvent::Finished { proposal, .. } => format!("{proposal} is over"),
                RunTaskEvent::Started { .. } => "started".to_owned(),
            });
        }
        left
    }

    #[tokio::test]
    async fn a_run_that_panics_is_reported_as_unknown_and_finished() {
        let expected = json!({
            "tool_proposal": "p1", "success": false, "duration_ms": 0,
            "error": "the executor failed while it ran", "outcome": "unknown",
        });
        let left = reported_by(async { panic!("on purpose") }).await;
        assert_eq!(left.len(), 2, "{left:?}");
        let first: serde_json::Value = serde_json::from_str(&left[0]).unwrap();
        assert_eq!(first, expected);
        assert_eq!(left[1], "p1 is over");
    }

    #[tokio::test]
    async fn a_run_that_ends_reports_its_own_result() {
        assert_eq!(reported_by(async {}).await, Vec::<String>::new());
    }
}
