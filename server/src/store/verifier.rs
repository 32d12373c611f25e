//! Verifies one log, entry by entry.

use pvp_protocol::SessionId;
use serde::Deserialize;

use super::audit::{AuditFinding, EntryFault, LogItem, SessionReport};
use super::key_set::{KeyOrder, KeySet};
use super::{
    CHECKPOINT_EVERY, Checkpoint, LogHead, LogRecord, chain_hash, may_wait_for_checkpoint,
};

/// Verifies the items of one log in order, and reports the first fault.
pub(super) struct LogVerifier<'k> {
    key_order: KeyOrder<'k>,
    head: LogHead,
    /// The first good entry after the last good checkpoint that cannot be without one.
    unsigned_seq: Option<u64>,
    /// Entries that the log must contain.
    known: &'k [LogHead],
    report: SessionReport,
}

impl<'k> LogVerifier<'k> {
    /// The log must contain the entries in `known`.
    pub(super) fn new(session: SessionId, keys: &'k KeySet, known: &'k [LogHead]) -> Self {
        let head = LogHead::empty(&session);
        Self {
            key_order: KeyOrder::new(keys),
            head,
            unsigned_seq: None,
            known,
            report: SessionReport {
                session,
                entries: 0,
                head: head.hash,
                checkpoints: 0,
                checkpoint_seq: 0,
                finding: None,
            },
        }
    }

    pub(super) fn session(&self) -> &SessionId {
        &self.report.session
    }

    pub(super) fn verify_item(&mut self, item: &LogItem) {
        let result = match item {
            LogItem::Record(record) => {
                self.report.entries += 1;
                self.verify_record(record)
                    .map(|signing| self.advance(record, signing))
            }
            LogItem::Checkpoint(checkpoint) => {
                self.report.checkpoints += 1;
                self.verify_checkpoint(checkpoint)
                    .map(|()| self.advance_signed(checkpoint))
            }
        };
        if let Err((seq, fault)) = result {
            self.record_finding(seq, fault);
        }
    }

    /// Goes on after a good entry. After a finding, the place of the last good entry is kept.
    fn advance(&mut self, record: &LogRecord, signing: Signing) {
        if self.report.finding.is_some() {
            return;
        }
        self.head = record.head();
        self.report.head = record.hash;
        match signing {
            Signing::AtOnce => drop(self.unsigned_seq.get_or_insert(record.seq)),
            Signing::Later => {}
        }
    }

    fn advance_signed(&mut self, checkpoint: &Checkpoint) {
        if self.report.finding.is_none() {
            self.key_order.advance(checkpoint);
            self.report.checkpoint_seq = checkpoint.seq;
            self.unsigned_seq = None;
        }
    }

    pub(super) fn record_unreadable(&mut self, why: String) {
        self.record_finding(self.head.seq + 1, EntryFault::Unreadable(why));
    }

    /// Ends the verification. `claimed_head` is where the session's row says that the log ends;
    /// `None` in an export, which has no such row.
    pub(super) fn finish(mut self, claimed_head: Option<LogHead>) -> SessionReport {
        if let Some(claimed_head) = claimed_head.filter(|claimed| *claimed != self.head) {
            let seq =
                claimed_head.seq.min(self.head.seq) + u64::from(claimed_head.seq != self.head.seq);
            self.record_finding(
                seq,
                EntryFault::Head {
                    says: claimed_head.seq,
                },
            );
        }
        let reached = self.head.seq;
        let beyond = self.known.iter().map(|known| known.seq).max();
        if let Some(anchored) = beyond.filter(|anchored| *anchored > reached) {
            self.record_finding(reached + 1, EntryFault::CutBeforeAnchor { anchored });
        }
        if let Err(fault) = self.key_order.verify_end() {
            self.record_finding(self.report.checkpoint_seq, fault);
        }
        if let Some(seq) = self.unsigned_seq {
            self.record_finding(seq, EntryFault::Unsigned);
        }
        // The writer never leaves this many entries without a checkpoint, so one was removed.
        if self.head.seq - self.report.checkpoint_seq >= CHECKPOINT_EVERY {
            self.record_finding(
                self.report.checkpoint_seq + 1,
                EntryFault::MissingCheckpoint,
            );
        }
        self.report
    }

    fn record_finding(&mut self, seq: u64, fault: EntryFault) {
        let session = self.report.session.clone();
        self.report.finding.get_or_insert(AuditFinding {
            session,
            seq,
            fault,
        });
    }

    fn verify_record(&self, record: &LogRecord) -> Result<Signing, (u64, EntryFault)> {
        let expected = self.head.seq + 1;
        if record.seq != expected {
            return Err((expected, EntryFault::Missing { next: record.seq }));
        }
        if record.hash != chain_hash(&self.head.hash, &record.meta, &record.body) {
            return Err((expected, EntryFault::Hash));
        }
        let is_other = |known: &LogHead| known.seq == record.seq && known.hash != record.hash;
        if self.known.iter().any(is_other) {
            return Err((expected, EntryFault::OtherThanAnchor));
        }
        verify_body(record, &self.report.session).map_err(|fault| (expected, fault))
    }

    fn verify_checkpoint(&self, checkpoint: &Checkpoint) -> Result<(), (u64, EntryFault)> {
        let last = self.head.seq;
        let covered_seq = checkpoint.seq;
        if covered_seq > last {
            return Err((
                last + 1,
                EntryFault::Truncated {
                    sealed: covered_seq,
                },
            ));
        }
        if covered_seq < last {
            return Err((last, EntryFault::MisplacedCheckpoint(covered_seq)));
        }
        let at_last = |fault| (last, fault);
        let key = self.key_order.find_key(checkpoint).map_err(at_last)?;
        if checkpoint.hash != self.head.hash {
            return Err((last, EntryFault::CheckpointHash));
        }
        if !checkpoint.is_signed(&self.report.session) {
            return Err((last, EntryFault::CheckpointSignature));
        }
        self.key_order.verify_next(key, checkpoint).map_err(at_last)
    }
}

/// When an entry gets a checkpoint that covers it.
enum Signing {
    /// With the append that writes it.
    AtOnce,
    /// With one of the entries after it.
    Later,
}

/// Checks that an entry's text, which is what people see, names the session and the sequence number
/// it is stored under.
fn verify_body(record: &LogRecord, session: &SessionId) -> Result<Signing, EntryFault> {
    #[derive(Deserialize)]
    struct EntryPosition {
        seq: u64,
        session: String,
        #[serde(default, rename = "type")]
        kind: String,
    }
    let position: EntryPosition = serde_json::from_slice(&record.body)
        .map_err(|error| EntryFault::NotAnEntry(error.to_string()))?;
    if position.seq != record.seq {
        return Err(EntryFault::OtherSeq(position.seq));
    }
    if position.session != session.as_str() {
        return Err(EntryFault::OtherSession(position.session));
    }
    Ok(match may_wait_for_checkpoint(&position.kind) {
        true => Signing::Later,
        false => Signing::AtOnce,
    })
}
