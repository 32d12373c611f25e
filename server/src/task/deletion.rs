//! Deletes the session when its task ends, after everything that was decided is written.

use pvp_protocol::Refusal;
use tokio::sync::oneshot;

use super::{DeletionRequest, SessionTask};
use crate::store::{SessionDeletion, StoreError, Tombstone};

/// A deletion that waits until the task ends.
pub(super) struct PendingDeletion {
    request: DeletionRequest,
    answer: oneshot::Sender<Result<Tombstone, Refusal>>,
}

impl SessionTask {
    /// Ends the task to delete the session, unless that is refused.
    pub(super) fn begin_deletion(
        &mut self,
        request: DeletionRequest,
        answer: oneshot::Sender<Result<Tombstone, Refusal>>,
    ) {
        match self.check_deletion(&request) {
            Ok(()) => {
                self.stopping = true;
                self.deletion = Some(PendingDeletion { request, answer });
            }
            Err(refusal) => {
                // The caller may have stopped waiting.
                let _ = answer.send(Err(refusal));
            }
        }
    }

    fn check_deletion(&self, request: &DeletionRequest) -> Result<(), Refusal> {
        if !self.session.is_created() {
            return Err(Refusal::NoSuchSession(self.id.clone()));
        }
        if self.stopping {
            let problem = "the session is being unloaded; try again".to_owned();
            return Err(Refusal::WriteFailed(problem));
        }
        if !self.session.has_ended() {
            let problem = format!("session `{}` has not ended; end it first", self.id);
            return Err(Refusal::InvalidState(problem));
        }
        self.check_head(request)
    }

    fn changed(&self) -> Refusal {
        let (session, head) = (&self.id, self.head.seq);
        Refusal::InvalidState(format!(
            "session `{session}` has changed: its log ends at {head}; archive it again"
        ))
    }

    /// Deletes the session, and tells whoever asked and whoever is connected; false if it is still
    /// there.
    pub(super) async fn delete(&mut self, pending: PendingDeletion) -> bool {
        let PendingDeletion { request, answer } = pending;
        // Commands that were waiting may have added entries meanwhile.
        let result = match self.check_head(&request) {
            Ok(()) => self.delete_from_store(request.by).await,
            Err(refusal) => Err(refusal),
        };
        let is_deleted = result.is_ok();
        if is_deleted {
            self.directory.forget_deleted(&self.id);
            self.feed.close_deleted();
        }
        // The caller may have stopped waiting.
        let _ = answer.send(result);
        is_deleted
    }

    fn check_head(&self, request: &DeletionRequest) -> Result<(), Refusal> {
        match request.head {
            Some(head) if head != self.head => Err(self.changed()),
            Some(_) | None => Ok(()),
        }
    }

    async fn delete_from_store(&mut self, by: String) -> Result<Tombstone, Refusal> {
        let deletion = SessionDeletion {
            session: self.id.clone(),
            head: self.head,
            by,
            at: pvp_clock::now(),
        };
        match self.directory.store.delete_session(deletion).await {
            Ok(tombstone) => {
                tracing::info!(session = %self.id, by = tombstone.by, "deleted a session");
                Ok(tombstone)
            }
            Err(StoreError::LogChanged(_)) => Err(self.changed()),
            Err(error) => Err(Refusal::WriteFailed(error.to_string())),
        }
    }
}
