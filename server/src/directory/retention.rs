//! Archives and deletes sessions that ended longer ago than the server keeps them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pvp_protocol::{Refusal, SessionId, Timestamp};

use super::SessionDirectory;
use crate::store::{RETENTION, Tombstone};
use crate::task::DeletionRequest;

/// How often old sessions are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);

/// How many are archived and deleted before the next ones are looked up.
const SESSIONS_PER_SWEEP: usize = 64;

const DAY_MILLIS: u64 = 24 * 3600 * 1000;

impl SessionDirectory {
    /// Archives and deletes old sessions, at the start and once an hour, until the server shuts down.
    pub(crate) async fn delete_old_sessions(self: Arc<Self>) {
        if self.config.retention_days == 0 {
            return;
        }
        let mut shutdown = self.shutdown_signal();
        loop {
            let stopped = tokio::select! {
                _ = shutdown.wait_for(|stopping| *stopping) => true,
                () = self.sweep_old_sessions(pvp_clock::now()) => false,
            };
            let rest = tokio::time::sleep(SWEEP_INTERVAL);
            tokio::select! {
                _ = shutdown.wait_for(|stopping| *stopping) => return,
                () = rest, if !stopped => {}
            }
        }
    }

    /// Archives and deletes every session that ended before its time, unless one cannot be.
    async fn sweep_old_sessions(self: &Arc<Self>, now: Timestamp) {
        let age = self.config.retention_days.saturating_mul(DAY_MILLIS);
        let before = Timestamp::from_millis(now.as_millis().saturating_sub(age));
        loop {
            let old = match self.store.ended_sessions(before, SESSIONS_PER_SWEEP).await {
                Ok(old) => old,
                Err(error) => {
                    tracing::warn!(%error, "could not look up old sessions");
                    return;
                }
            };
            let mut deleted = 0;
            for session in &old {
                match self.archive_and_delete(session).await {
                    Ok(_) => deleted += 1,
                    Err(refusal) => {
                        tracing::error!(%session, %refusal, "kept an old session");
                    }
                }
            }
            // Those that stay would be found again.
            if deleted < SESSIONS_PER_SWEEP {
                return;
            }
        }
    }

    async fn archive_and_delete(
        self: &Arc<Self>,
        session: &SessionId,
    ) -> Result<Tombstone, Refusal> {
        let to = self.archive_directory().join(format!("{session}.jsonl"));
        let head = self.store.archive_session(session.clone(), to).await?;
        let request = DeletionRequest {
            by: RETENTION.to_owned(),
            head: Some(head),
        };
        self.delete_session(session, request).await
    }

    /// Where retention archives sessions.
    fn archive_directory(&self) -> PathBuf {
        let given = self.config.archive_directory.clone();
        given.unwrap_or_else(|| self.config.data_directory().join("archives"))
    }
}
