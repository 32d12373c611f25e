//! Writes decided entries to the store, and publishes them once they are durable.

use std::collections::BTreeMap;

use bytes::Bytes;
use pvp_protocol::{Refusal, ServerMessage};
use pvp_session::{Answer, Entry};
use tokio::time::Instant;

use super::command::{DeferredReply, ReplyTo};
use super::{RETRY_DELAY, SessionTask};
use crate::delivery;
use crate::store::{
    AppendCallback, AppendError, AppendRequest, CheckpointTiming, LogHead, LogRecord, SessionIndex,
};

/// The entries of one append, and the replies that wait for it.
#[derive(Default)]
pub(super) struct WriteBatch {
    pub(super) entries: Vec<(Entry, Bytes)>,
    pub(super) answers: Vec<(ReplyTo, Answer)>,
    /// Replies to queries on the session's state after this batch.
    pub(super) deferred_replies: Vec<DeferredReply>,
    /// Values of the secrets that this batch shares, by the sequence number of their entry.
    pub(super) secret_values: BTreeMap<u64, String>,
}

impl WriteBatch {
    fn extend(&mut self, later: Self) {
        self.entries.extend(later.entries);
        self.answers.extend(later.answers);
        self.deferred_replies.extend(later.deferred_replies);
        self.secret_values.extend(later.secret_values);
    }
}

/// A batch in the form that the store writes.
pub(super) struct PendingAppend {
    prev: LogHead,
    records: Vec<LogRecord>,
    index: SessionIndex,
    checkpoint: CheckpointTiming,
}

impl PendingAppend {
    fn extend(&mut self, later: Self) {
        self.records.extend(later.records);
        self.index = later.index;
        if later.checkpoint == CheckpointTiming::Now {
            self.checkpoint = CheckpointTiming::Now;
        }
    }
}

impl SessionTask {
    /// Handles the outcome of an append: publishes its batch, or refuses it and reloads.
    pub(super) async fn on_append_result(&mut self, result: Result<(), AppendError>) {
        let Some(batch) = self.in_flight.pop_front() else {
            return;
        };
        self.entries_in_flight -= batch.entries.len();
        let took = self.append_sent_at.elapsed();
        self.directory.metrics.record_append(took, result.is_ok());
        match result {
            Ok(()) => {
                if let Some(append) = self.pending_append.take() {
                    self.send_append(append).await;
                }
                self.publish(batch);
            }
            Err(error) => {
                tracing::error!(session = %self.id, %error, "could not write the log");
                self.refuse_batch(batch, &error.to_string());
                self.refuse_pending();
                self.backoff_until = Instant::now() + RETRY_DELAY;
                self.load().await;
            }
        }
    }

    /// Refuses the batches that follow a failed append; they depend on it, so they are not sent.
    fn refuse_pending(&mut self) {
        self.pending_append = None;
        self.entries_in_flight = 0;
        for batch in std::mem::take(&mut self.in_flight) {
            self.refuse_batch(batch, "an earlier entry could not be written");
        }
    }

    fn refuse_batch(&self, batch: WriteBatch, why: &str) {
        let creates_session =
            |entry: &Entry| matches!(entry.envelope.message, ServerMessage::SessionCreate(_));
        if batch
            .entries
            .iter()
            .any(|(entry, _)| creates_session(entry))
        {
            self.directory.release_reserved_session();
        }
        for (reply, _) in batch.answers {
            reply.refuse(Refusal::WriteFailed(why.to_owned()));
        }
    }

    /// Publishes a durable batch: its entries to the connections, and its answers to the callers.
    fn publish(&mut self, mut batch: WriteBatch) {
        let mut deliveries = Vec::with_capacity(batch.entries.len());
        let (mut members_changed, mut gates_changed) = (false, false);
        for (entry, body) in batch.entries {
            members_changed |= self.apply_side_effects(&entry, &mut batch.secret_values);
            gates_changed |= changes_a_gate(&entry);
            self.directory
                .metrics
                .record_entry(&entry.envelope.message, body.len());
            deliveries.push(delivery::from_entry(&entry, body, &self.secrets));
        }
        if members_changed {
            self.refresh_viewers();
        }
        self.feed.publish(deliveries);
        if gates_changed {
            self.directory.notify_gates_changed();
        }
        for (reply, answer) in batch.answers {
            reply.answer(answer);
        }
        for reply in batch.deferred_replies {
            reply();
        }
    }

    /// Applies what a durable entry changes outside the log; true if it changes the participants.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other entries change nothing outside the log"
    )]
    fn apply_side_effects(&self, entry: &Entry, secret_values: &mut BTreeMap<u64, String>) -> bool {
        match &entry.envelope.message {
            ServerMessage::SecretShare(share) => {
                let value = secret_values.remove(&entry.seq());
                self.secrets.share(&share.key, &share.scope, value);
                false
            }
            ServerMessage::SecretRevoke(revoke) => {
                self.secrets.revoke(&revoke.key);
                false
            }
            ServerMessage::Announce(_)
            | ServerMessage::RoleChange(_)
            | ServerMessage::SessionLeave(_) => true,
            _ => false,
        }
    }

    /// Sends a batch to the store. While the store writes an earlier batch, later ones are merged,
    /// so that what was decided meanwhile is written and published together. A batch without
    /// entries only waits for the batch before it.
    pub(super) async fn persist(&mut self, batch: WriteBatch) {
        if batch.entries.is_empty() {
            match self.in_flight.back_mut() {
                Some(last) => last.extend(batch),
                None => self.publish(batch),
            }
            return;
        }
        let append = self.build_append(&batch);
        self.entries_in_flight += batch.entries.len();
        match (&mut self.pending_append, self.in_flight.back_mut()) {
            (Some(pending), Some(last)) => {
                pending.extend(append);
                last.extend(batch);
            }
            (_, Some(_)) => {
                self.pending_append = Some(append);
                self.in_flight.push_back(batch);
            }
            (_, None) => {
                self.in_flight.push_back(batch);
                self.send_append(append).await;
            }
        }
    }

    /// Builds the append for a batch, which the session has already applied.
    fn build_append(&mut self, batch: &WriteBatch) -> PendingAppend {
        let prev = self.head;
        let checkpoint_now = batch
            .entries
            .iter()
            .any(|(entry, _)| needs_immediate_checkpoint(entry));
        let mut records = Vec::with_capacity(batch.entries.len());
        for (entry, body) in &batch.entries {
            let record = LogRecord::after(&self.head, entry.meta().into(), body.clone());
            self.head = record.head();
            records.push(record);
        }
        PendingAppend {
            prev,
            records,
            index: self.session_index(),
            checkpoint: if checkpoint_now {
                CheckpointTiming::Now
            } else {
                CheckpointTiming::WhenDue
            },
        }
    }

    pub(super) fn session_index(&self) -> SessionIndex {
        SessionIndex {
            name: self.session.name().map(str::to_owned),
            next_deadline: self.session.next_deadline(),
            open_gates: u32::try_from(self.session.open_gates().len()).unwrap_or(u32::MAX),
            ended: self.session.has_ended(),
        }
    }

    async fn send_append(&mut self, append: PendingAppend) {
        self.append_sent_at = Instant::now();
        let sender = self.append_result_sender.clone();
        self.directory
            .store
            .append(AppendRequest {
                session: self.id.clone(),
                prev: append.prev,
                records: append.records,
                index: append.index,
                at: pvp_clock::now(),
                checkpoint: append.checkpoint,
                // The receiver is gone only when nothing waits for the result any more.
                on_done: AppendCallback::new(move |result| drop(sender.send(result))),
            })
            .await;
    }
}

fn changes_a_gate(entry: &Entry) -> bool {
    matches!(
        entry.envelope.message,
        ServerMessage::GateRequest(_)
            | ServerMessage::GateApprove(_)
            | ServerMessage::GateReject(_)
            | ServerMessage::ToolApprove(_)
            | ServerMessage::ToolReject(_)
            | ServerMessage::GateAmend(_)
            | ServerMessage::GateTimeout(_)
            | ServerMessage::GateResolve(_)
    )
}

/// True for entries that say what ran and how it ended. They get a checkpoint at once, so that
/// cutting them off the log is always detected.
fn needs_immediate_checkpoint(entry: &Entry) -> bool {
    matches!(
        entry.envelope.message,
        ServerMessage::ToolExecute(_) | ServerMessage::ToolResult(_)
    )
}
