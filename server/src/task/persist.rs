//! Writes decided entries to the store, and publishes them once they are durable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use pvp_protocol::{Refusal, Role, ServerMessage, Timestamp, WireMessage};
use pvp_session::{Answer, Entry, IndexChange};
use tokio::time::Instant;

use super::command::{DeferredReply, ReplyTo};
use super::leases::LEASE_SECONDS;
use super::{LogHealth, RETRY_DELAY, SessionTask};
use crate::delivery;
use crate::store::{
    AppendError, AppendRequest, CheckpointTiming, LogHead, LogRecord, LogSnapshot, SessionIndex,
    may_wait_for_checkpoint,
};

/// After this many entries without a snapshot, a session gets one.
const SNAPSHOT_EVERY: u64 = 4096;

/// How often an append is sent again if it is unknown whether it was written.
pub(super) const MAX_RESENDS: u32 = 2;

/// The entries of one append, and the replies that wait for it.
#[derive(Default)]
pub(super) struct WriteBatch {
    pub(super) entries: Vec<(Entry, Bytes)>,
    /// What the entries add to the indexes of the log.
    pub(super) index_changes: Vec<IndexChange>,
    pub(super) answers: Vec<(ReplyTo, Answer)>,
    /// Replies to queries on the session's state after this batch.
    pub(super) deferred_replies: Vec<DeferredReply>,
    /// Values of the secrets that this batch shares, by the sequence number of their entry.
    pub(super) secret_values: BTreeMap<u64, String>,
}

impl WriteBatch {
    fn extend(&mut self, later: Self) {
        self.entries.extend(later.entries);
        self.index_changes.extend(later.index_changes);
        self.answers.extend(later.answers);
        self.deferred_replies.extend(later.deferred_replies);
        self.secret_values.extend(later.secret_values);
    }
}

/// A batch in the form that the store writes.
pub(super) struct PendingAppend {
    /// The head that the records follow.
    prev: LogHead,
    /// The records of its entries.
    records: Vec<LogRecord>,
    /// What is known about the session after them.
    index: SessionIndex,
    /// What they add to the indexes of the log.
    index_changes: Vec<IndexChange>,
    /// The state after one of them, if a snapshot was due.
    snapshot: Option<LogSnapshot>,
    /// Whether they need a checkpoint at once.
    checkpoint: CheckpointTiming,
}

impl PendingAppend {
    fn extend(&mut self, later: Self) {
        self.records.extend(later.records);
        self.index = later.index;
        self.index_changes.extend(later.index_changes);
        self.snapshot = later.snapshot.or(self.snapshot.take());
        if later.checkpoint == CheckpointTiming::Now {
            self.checkpoint = CheckpointTiming::Now;
        }
    }
}

/// An append that the store is writing.
pub(super) struct SentAppend {
    append: Arc<AppendRequest>,
    result: BoxFuture<'static, Result<(), AppendError>>,
    sent_at: Instant,
    /// How often it was sent again because the outcome was unknown.
    resends: u32,
}

/// Waits for the outcome of the append that the store is writing; for ever if there is none.
pub(super) async fn append_result(sent: &mut Option<SentAppend>) -> Result<(), AppendError> {
    match sent {
        Some(sent) => (&mut sent.result).await,
        None => std::future::pending().await,
    }
}

impl SessionTask {
    /// Handles the outcome of an append: publishes its batch, or refuses it and reloads.
    pub(super) async fn on_append_result(&mut self, result: Result<(), AppendError>) {
        let Some(sent) = self.sent_append.take() else {
            return;
        };
        let result = match result {
            Err(AppendError::Unknown(why)) if sent.resends < MAX_RESENDS => {
                tracing::warn!(session = %self.id, why, "retrying an append");
                self.resend(sent);
                return;
            }
            // An earlier attempt has written it after all.
            Err(AppendError::Conflict { found, .. })
                if sent.resends > 0 && found == sent.append.new_head() =>
            {
                Ok(())
            }
            result => result,
        };
        let Some(batch) = self.in_flight.pop_front() else {
            return;
        };
        self.entries_in_flight -= batch.entries.len();
        let took = sent.sent_at.elapsed();
        self.directory.metrics.record_append(took, result.is_ok());
        match result {
            Ok(()) => {
                if let Some(append) = self.pending_append.take() {
                    self.send_append(append);
                }
                self.reserved &= !self.session.is_created();
                self.publish(batch);
            }
            Err(error) => {
                tracing::error!(session = %self.id, %error, "could not write the log");
                self.refuse_batch(batch, &error.to_string());
                // They depend on the failed one.
                self.refuse_unsent("an earlier entry could not be written");
                self.backoff_until = Instant::now() + RETRY_DELAY;
                self.load().await;
                // Part of what was refused may be in the log all the same.
                self.voters.clear();
                self.directory.notify_gates_changed_in(&self.id);
            }
        }
    }

    /// Sends the same append again after a while.
    fn resend(&mut self, sent: SentAppend) {
        let (store, append) = (self.directory.store.clone(), sent.append.clone());
        let result = async move {
            tokio::time::sleep(RETRY_DELAY).await;
            store.append(append).await
        };
        self.sent_append = Some(SentAppend {
            result: Box::pin(result),
            resends: sent.resends + 1,
            ..sent
        });
    }

    /// Refuses the batches that were not sent to the store.
    pub(super) fn refuse_unsent(&mut self, why: &str) {
        self.pending_append = None;
        let sent = usize::from(self.sent_append.is_some());
        for batch in self.in_flight.split_off(sent.min(self.in_flight.len())) {
            self.entries_in_flight -= batch.entries.len();
            self.refuse_batch(batch, why);
        }
    }

    pub(super) fn refuse_batch(&self, batch: WriteBatch, why: &str) {
        for (reply, answer) in batch.answers {
            reply.refuse(match answer {
                // It would fail again.
                Answer::Refused(Refusal::HandlingFailed) => Refusal::HandlingFailed,
                Answer::Accepted(_) | Answer::Duplicate(_) | Answer::Refused(_) => {
                    Refusal::WriteFailed(why.to_owned())
                }
            });
        }
    }

    /// Publishes a durable batch: its entries to the connections, and its answers to the callers.
    fn publish(&mut self, mut batch: WriteBatch) {
        let mut deliveries = Vec::with_capacity(batch.entries.len());
        let (mut members_changed, mut gates_changed) = (false, false);
        for (entry, body) in batch.entries {
            members_changed |= self.apply_side_effects(&entry, &mut batch.secret_values);
            gates_changed |= changes_a_gate(&entry) || self.changes_voters(&entry);
            self.directory
                .metrics
                .record_entry(&entry.envelope.message, body.len());
            deliveries.push(delivery::from_entry(&entry, body, &self.secrets));
        }
        if members_changed {
            self.refresh_changed_viewers();
        }
        self.feed.publish(deliveries);
        if gates_changed {
            self.directory.notify_gates_changed_in(&self.id);
        }
        for (reply, answer) in batch.answers {
            reply.answer(answer);
        }
        for reply in batch.deferred_replies {
            reply();
        }
    }

    /// Whether an entry changes who may vote on the gates that are open, or how many must. What comes
    /// often and changes nothing, as announcements do, is not worth waking those who wait.
    fn changes_voters(&mut self, entry: &Entry) -> bool {
        if !may_change_voters(entry) {
            return false;
        }
        let members = self.session.members().filter(|(_, it)| it.may_vote());
        let voters = members.map(|(id, member)| (id.clone(), member.has_role(Role::Admin)));
        let voters: BTreeSet<_> = voters.collect();
        let are_others = voters != self.voters;
        self.voters = voters;
        let is_rule = matches!(
            entry.envelope.message,
            ServerMessage::SessionConfigUpdate(_)
        );
        (are_others || is_rule) && !self.session.open_gates().is_empty()
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
    pub(super) fn persist(&mut self, mut batch: WriteBatch) {
        if let LogHealth::Unreadable(why) = &self.log_health {
            // What was decided beside a fault depends on a state that may be wrong.
            return self.refuse_batch(batch, why);
        }
        if batch.entries.is_empty() {
            match self.in_flight.back_mut() {
                Some(last) => last.extend(batch),
                None => self.publish(batch),
            }
            return;
        }
        let append = self.build_append(&mut batch);
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
                self.send_append(append);
            }
        }
    }

    /// Builds the append for a batch, which the session has already applied.
    fn build_append(&mut self, batch: &mut WriteBatch) -> PendingAppend {
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
            index_changes: std::mem::take(&mut batch.index_changes),
            snapshot: self.snapshot_if_due(SNAPSHOT_EVERY),
            checkpoint: if checkpoint_now {
                CheckpointTiming::Now
            } else {
                CheckpointTiming::WhenDue
            },
        }
    }

    /// A snapshot of the state, if at least this many entries have followed the last one.
    pub(super) fn snapshot_if_due(&mut self, entries: u64) -> Option<LogSnapshot> {
        if self.head.seq < self.snapshot_seq + entries {
            return None;
        }
        self.snapshot_seq = self.head.seq;
        Some(LogSnapshot {
            head: self.head,
            body: self.session.to_snapshot().into(),
        })
    }

    pub(super) fn session_index(&self) -> SessionIndex {
        SessionIndex {
            name: self.session.name().map(str::to_owned),
            next_deadline: self.wake_at(),
            open_gates: u32::try_from(self.session.open_gates().len()).unwrap_or(u32::MAX),
            ended: self.session.has_ended(),
            made_by: self.made_by.clone(),
            usage: self.usage,
        }
    }

    /// When the session must be in memory at the latest: at its next deadline or, if clients run
    /// proposals by themselves, soon, so that they are ended even if this server is not.
    fn wake_at(&self) -> Option<Timestamp> {
        let leased = self.session.leased_proposals().next();
        let leased = leased.map(|_| pvp_clock::now().plus_seconds(LEASE_SECONDS));
        let due = [self.session.next_deadline(), leased];
        due.into_iter().flatten().min()
    }

    fn send_append(&mut self, append: PendingAppend) {
        let append = Arc::new(AppendRequest {
            session: self.id.clone(),
            prev: append.prev,
            records: append.records,
            index: Some(append.index),
            index_changes: append.index_changes,
            snapshot: append.snapshot,
            at: pvp_clock::now(),
            checkpoint: append.checkpoint,
        });
        self.sent_append = Some(SentAppend {
            result: self.directory.store.append(append.clone()),
            append,
            sent_at: Instant::now(),
            resends: 0,
        });
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

/// Whether an entry may change who may vote on the gates that are open, or how many must.
fn may_change_voters(entry: &Entry) -> bool {
    matches!(
        entry.envelope.message,
        ServerMessage::RoleChange(_)
            | ServerMessage::Announce(_)
            | ServerMessage::SessionLeave(_)
            | ServerMessage::SessionConfigUpdate(_)
    )
}

/// True for every entry but streamed text. The checkpoint is written in the same transaction, so that
/// an entry on which rights or decisions rest is never without a signature, not even after a crash.
fn needs_immediate_checkpoint(entry: &Entry) -> bool {
    !may_wait_for_checkpoint(entry.envelope.message.kind())
}
