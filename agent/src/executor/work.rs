//! One grant on its way to its result.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use pvp_client::{Connection, now};
use pvp_protocol::payload::{GrantTerms, ToolResult};
use pvp_protocol::{Command, MessageId, RunMode};
use serde_json::json;
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::job_file::JobFile;
use super::telling::{self, Telling};
use super::{Note, Settings, errand, failed, notes, unknown};
use crate::journal::Journal;
use crate::reaper::Errand;
use crate::run::{Asked, Bounds, Overflow, Reapers, Run, RunError};

pub(super) struct Work {
    pub(super) connection: Connection,
    pub(super) settings: Arc<Settings>,
    pub(super) reapers: Arc<Reapers>,
    pub(super) journal: Arc<Mutex<Journal>>,
    pub(super) slots: Arc<Semaphore>,
    pub(super) note: mpsc::UnboundedSender<Note>,
    pub(super) proposal: MessageId,
    pub(super) grant: GrantTerms,
}

impl Work {
    /// Runs it beside everything else. If even that fails, everyone is told instead of waiting.
    pub(super) fn begin(self, asked: Asked) {
        let (connection, note) = (self.connection.clone(), self.note.clone());
        let proposal = self.proposal.clone();
        let run = tokio::spawn(self.run(asked));
        tokio::spawn(outlive(run, proposal, note, async move |lost| {
            telling::send(&connection, lost).await;
        }));
    }

    async fn run(self, asked: Asked) {
        if let Some(result) = self.result(asked).await
            && telling::send(&self.connection, result).await
            && let Err(error) = self.journal.lock().await.done(&self.grant.id)
        {
            tracing::warn!(%error, "could not note a result");
        }
        let proposal = self.proposal;
        // Nobody waits any more once the executor is gone.
        let _ = self.note.send(Note::Over { proposal });
    }

    /// Waits its turn, notes that it runs, and runs. `None` if it was acted on before.
    async fn result(&self, mut asked: Asked) -> Option<ToolResult> {
        // Jobs go on for as long as they like, and are counted when they are granted.
        let _slot = match self.grant.action.mode {
            RunMode::Background => None,
            RunMode::Normal | RunMode::Slow | RunMode::Pty => tokio::select! {
                slot = self.slots.acquire() => slot.ok(),
                why = asked.wished() => {
                    let why = format!("stopped before it began: {why}");
                    return Some(failed(self.proposal.clone(), &why));
                }
            },
        };
        if self.grant.expires_at <= now() {
            let why = "the grant expired while other commands ran; propose it again";
            return Some(failed(self.proposal.clone(), why));
        }
        match self.note_down().await {
            Ok(true) => Some(self.execute(asked).await),
            Ok(false) => None,
            Err(error) => {
                let why = format!("it could not be noted that it runs, so it does not: {error:#}");
                Some(failed(self.proposal.clone(), &why))
            }
        }
    }

    /// Notes the grant on disk; false if it was acted on before.
    async fn note_down(&self) -> anyhow::Result<bool> {
        let journal = self.journal.clone();
        let (grant, proposal) = (self.grant.id.clone(), self.proposal.clone());
        let expires = self.grant.expires_at;
        tokio::task::spawn_blocking(move || {
            let mut journal = journal.blocking_lock();
            journal.begin(&grant, &proposal, expires, now())
        })
        .await
        .context("the journal's task ended")?
    }

    async fn execute(&self, asked: Asked) -> ToolResult {
        let temporary = match tempfile::Builder::new().prefix("pvp-").tempdir() {
            Ok(temporary) => temporary,
            Err(error) => {
                let why = format!("no temporary directory: {error}");
                return failed(self.proposal.clone(), &why);
            }
        };
        let errand = match errand::of(&self.grant, &self.settings, temporary.path()) {
            Ok(errand) => errand,
            Err(why) => return failed(self.proposal.clone(), &why),
        };
        let noted = match notes::wanted(&self.grant, &self.settings) {
            true => notes::Before::look(&errand.directory).await,
            false => None,
        };
        let result = self.follow(&errand, asked).await;
        if let Some(before) = noted.filter(|_| result.success) {
            before
                .annotate(&self.connection, &self.proposal, &self.grant)
                .await;
        }
        result
    }

    /// Runs it to its end, and tells everyone what it prints.
    async fn follow(&self, errand: &Errand, asked: Asked) -> ToolResult {
        let run = match Run::start(&self.reapers, errand, asked).await {
            Ok(run) => run,
            Err(error) => return self.no_finish(&error),
        };
        let mode = self.grant.action.mode;
        let background = mode == RunMode::Background;
        let mut file = background.then(|| JobFile::of(&self.settings, &self.proposal));
        let _ = self.note.send(Note::Started {
            proposal: self.proposal.clone(),
            pid: run.pid(),
            file: file.as_ref().map(|file| file.path().to_owned()),
            keyboard: run.keyboard(),
        });
        let secrets = self.grant.secret_env.clone().unwrap_or_default();
        let (pieces, told) = mpsc::channel(4);
        let limits = self.grant.limits;
        let room = limits.output_bytes;
        let telling = Telling::new(&self.connection, &self.proposal, room, file.as_mut());
        let running = run.finish(self.bounds(), &secrets, pieces);
        let (finish, cut) = tokio::join!(running, telling.tell(told));
        let mut result = match &finish {
            Ok(finish) => telling::result(&self.proposal, finish, limits, cut),
            Err(error) => self.no_finish(error),
        };
        if let (Ok(finish), Command::LoginShell { .. }) = (&finish, &self.grant.action.command) {
            telling::own_fields(&mut result, finish);
        }
        if let Some(mut file) = file {
            file.close(&ending(&result)).await;
            let path = file.path().display().to_string();
            result.extra.insert("output_file".to_owned(), json!(path));
        }
        result
    }

    fn bounds(&self) -> Bounds {
        let limits = self.grant.limits;
        let (output_bytes, on_overflow) = match self.grant.action.mode {
            // A job that prints for ever goes on; its file keeps the end of it.
            RunMode::Background => (u64::MAX, Overflow::Truncate),
            RunMode::Normal | RunMode::Slow | RunMode::Pty => {
                (limits.output_bytes, self.settings.on_overflow)
            }
        };
        Bounds {
            timeout: (limits.timeout_ms > 0).then(|| Duration::from_millis(limits.timeout_ms)),
            output_bytes,
            on_overflow,
        }
    }

    fn no_finish(&self, error: &RunError) -> ToolResult {
        let (proposal, why) = (self.proposal.clone(), error.to_string());
        match error {
            RunError::NotStarted(_) | RunError::Unwanted(_) => failed(proposal, &why),
            RunError::Lost(_) => unknown(proposal, &why),
        }
    }
}

/// Waits for a run. One that panics is answered for: its outcome is told to be unknown, and it is
/// over.
async fn outlive(
    run: JoinHandle<()>,
    proposal: MessageId,
    note: mpsc::UnboundedSender<Note>,
    tell: impl AsyncFnOnce(ToolResult),
) {
    if run.await.is_err() {
        tell(unknown(
            proposal.clone(),
            "the executor failed while it ran",
        ))
        .await;
        // Nobody waits any more once the executor is gone.
        let _ = note.send(Note::Over { proposal });
    }
}

/// How a job ended, for the last line of its file.
fn ending(result: &ToolResult) -> String {
    let code = result.result.as_ref().and_then(|body| body.exit_code);
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

    /// What is told and noted of a run that has come to its end, in order.
    async fn left_by(run: impl Future<Output = ()> + Send + 'static) -> Vec<String> {
        let proposal = MessageId::parse("p1").unwrap();
        let (note, mut notes) = mpsc::unbounded_channel();
        let mut left = Vec::new();
        outlive(tokio::spawn(run), proposal, note, async |lost| {
            left.push(serde_json::to_string(&lost).unwrap());
        })
        .await;
        while let Some(note) = notes.recv().await {
            left.push(match note {
                Note::Over { proposal } => format!("{proposal} is over"),
                Note::Started { .. } => "started".to_owned(),
            });
        }
        left
    }

    #[tokio::test]
    async fn a_run_that_panics_is_told_as_unknown_and_is_over() {
        let told = json!({
            "tool_proposal": "p1", "success": false, "duration_ms": 0,
            "error": "the executor failed while it ran", "outcome": "unknown",
        });
        let left = left_by(async { panic!("on purpose") }).await;
        assert_eq!(left.len(), 2, "{left:?}");
        let first: serde_json::Value = serde_json::from_str(&left[0]).unwrap();
        assert_eq!(first, told);
        assert_eq!(left[1], "p1 is over");
    }

    #[tokio::test]
    async fn a_run_that_ends_answers_for_itself() {
        assert_eq!(left_by(async {}).await, Vec::<String>::new());
    }
}
