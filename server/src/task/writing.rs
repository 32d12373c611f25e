//! From what was decided to what is durable, and from there to everyone.

use std::collections::BTreeMap;

use bytes::Bytes;
use pvp_protocol::{Refusal, ServerMessage};
use pvp_session::{Answer, Entry};
use tokio::time::Instant;

use super::order::{Release, ReplyTo};
use super::{RETRY, Task};
use crate::clock;
use crate::store::{Append, AppendError, Done, Head, Record, Seal, Standing};
use crate::told;

/// One append and everyone who waits for it.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) entries: Vec<(Entry, Bytes)>,
    pub(super) answers: Vec<(ReplyTo, Answer)>,
    /// Answers to questions about the session as this batch leaves it.
    pub(super) releases: Vec<Release>,
    /// Values of the secrets that are shared in it, by the seq of their entry.
    pub(super) values: BTreeMap<u64, String>,
}

impl Batch {
    fn extend(&mut self, later: Self) {
        self.entries.extend(later.entries);
        self.answers.extend(later.answers);
        self.releases.extend(later.releases);
        self.values.extend(later.values);
    }
}

/// A batch as the store gets it.
pub(super) struct Writing {
    prev: Head,
    records: Vec<Record>,
    standing: Standing,
    seal: Seal,
}

impl Writing {
    fn extend(&mut self, later: Self) {
        self.records.extend(later.records);
        self.standing = later.standing;
        if later.seal == Seal::Now {
            self.seal = Seal::Now;
        }
    }
}

impl Task {
    /// The store has written an append, or could not.
    pub(super) async fn hear(&mut self, report: Result<(), AppendError>) {
        let Some(batch) = self.in_flight.pop_front() else {
            return;
        };
        self.entries_in_flight -= batch.entries.len();
        let took = self.sent_at.elapsed();
        self.house.metrics.appended(took, report.is_ok());
        match report {
            Ok(()) => {
                if let Some(writing) = self.waiting.take() {
                    self.send(writing).await;
                }
                self.tell(batch);
            }
            Err(error) => {
                tracing::error!(session = %self.id, %error, "could not write the log");
                self.refuse(batch, &error.to_string());
                self.give_up_waiting();
                self.hold = Instant::now() + RETRY;
                self.load().await;
            }
        }
    }

    /// What waited for an append that failed rests on it, so it is not sent.
    fn give_up_waiting(&mut self) {
        self.waiting = None;
        self.entries_in_flight = 0;
        for batch in std::mem::take(&mut self.in_flight) {
            self.refuse(batch, "an earlier entry could not be written");
        }
    }

    fn refuse(&self, batch: Batch, why: &str) {
        let made =
            |entry: &Entry| matches!(entry.envelope.message, ServerMessage::SessionCreate(_));
        if batch.entries.iter().any(|(entry, _)| made(entry)) {
            self.house.session_not_made();
        }
        for (reply, _) in batch.answers {
            reply.refuse(Refusal::WriteFailed(why.to_owned()));
        }
    }

    /// Everything in the batch is durable: everyone may hear of it.
    fn tell(&mut self, mut batch: Batch) {
        let mut told = Vec::with_capacity(batch.entries.len());
        let (mut people_changed, mut gates_changed) = (false, false);
        for (entry, body) in batch.entries {
            people_changed |= self.follow(&entry, &mut batch.values);
            gates_changed |= concerns_a_gate(&entry);
            self.house.metrics.told(&entry.envelope.message, body.len());
            told.push(told::from_entry(&entry, body, &self.vault));
        }
        if people_changed {
            self.refresh_viewers();
        }
        self.feed.publish(told);
        if gates_changed {
            self.house.gates_changed();
        }
        for (reply, answer) in batch.answers {
            reply.answer(answer);
        }
        for release in batch.releases {
            release();
        }
    }

    /// Does what a durable entry asks for outside the log; true if it is about people.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other entries change nothing outside the log"
    )]
    fn follow(&self, entry: &Entry, values: &mut BTreeMap<u64, String>) -> bool {
        match &entry.envelope.message {
            ServerMessage::SecretShare(share) => {
                let value = values.remove(&entry.seq());
                self.vault.share(&share.key, &share.scope, value);
                false
            }
            ServerMessage::SecretRevoke(revoke) => {
                self.vault.revoke(&revoke.key);
                false
            }
            ServerMessage::Announce(_)
            | ServerMessage::RoleChange(_)
            | ServerMessage::SessionLeave(_) => true,
            _ => false,
        }
    }

    /// Sends a batch to the store. While the store is at an earlier one, batches gather, so that
    /// what was decided meanwhile is written and told together. One without entries waits for what
    /// it rests on.
    pub(super) async fn write(&mut self, batch: Batch) {
        if batch.entries.is_empty() {
            match self.in_flight.back_mut() {
                Some(last) => last.extend(batch),
                None => self.tell(batch),
            }
            return;
        }
        let writing = self.writing(&batch);
        self.entries_in_flight += batch.entries.len();
        match (&mut self.waiting, self.in_flight.back_mut()) {
            (Some(waiting), Some(last)) => {
                waiting.extend(writing);
                last.extend(batch);
            }
            (_, Some(_)) => {
                self.waiting = Some(writing);
                self.in_flight.push_back(batch);
            }
            (_, None) => {
                self.in_flight.push_back(batch);
                self.send(writing).await;
            }
        }
    }

    /// What the store is to write for a batch. The session is what this batch makes of it.
    fn writing(&mut self, batch: &Batch) -> Writing {
        let prev = self.head;
        let weighty = batch.entries.iter().any(|(entry, _)| is_weighty(entry));
        let mut records = Vec::with_capacity(batch.entries.len());
        for (entry, body) in &batch.entries {
            let record = Record::after(&self.head, entry.meta().into(), body.clone());
            self.head = record.head();
            records.push(record);
        }
        Writing {
            prev,
            records,
            standing: self.standing(),
            seal: if weighty { Seal::Now } else { Seal::WhenDue },
        }
    }

    pub(super) fn standing(&self) -> Standing {
        Standing {
            name: self.session.name().map(str::to_owned),
            next_deadline: self.session.next_deadline(),
            open_gates: u32::try_from(self.session.open_gates().len()).unwrap_or(u32::MAX),
            ended: self.session.has_ended(),
        }
    }

    async fn send(&mut self, writing: Writing) {
        self.sent_at = Instant::now();
        let report = self.report.clone();
        self.house
            .store
            .append(Append {
                session: self.id.clone(),
                prev: writing.prev,
                records: writing.records,
                standing: writing.standing,
                at: clock::now(),
                seal: writing.seal,
                // The receiver is gone only when nobody waits for the answer any more.
                done: Done::new(move |result| drop(report.send(result))),
            })
            .await;
    }
}

fn concerns_a_gate(entry: &Entry) -> bool {
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

/// What ran and how it ended is signed for at once, so that it cannot be cut off unnoticed.
fn is_weighty(entry: &Entry) -> bool {
    matches!(
        entry.envelope.message,
        ServerMessage::ToolExecute(_) | ServerMessage::ToolResult(_)
    )
}
