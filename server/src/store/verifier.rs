//! Verifies one log, entry by entry.

use pvp_protocol::{SessionId, hex};
use serde::Deserialize;

use super::audit::{AuditFinding, EntryFault, LogItem, SessionReport};
use super::{CHECKPOINT_EVERY, Checkpoint, LogHead, LogRecord, PublicKey, chain_hash};

/// Verifies the items of one log in order, and reports the first fault.
pub(super) struct LogVerifier {
    key: PublicKey,
    head: LogHead,
    report: SessionReport,
}

impl LogVerifier {
    pub(super) fn new(session: SessionId, key: PublicKey) -> Self {
        let head = LogHead::empty(&session);
        Self {
            key,
            head,
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
            }
            LogItem::Checkpoint(checkpoint) => {
                self.report.checkpoints += 1;
                self.verify_checkpoint(checkpoint)
            }
        };
        if self.report.finding.is_some() {
            return;
        }
        match (result, item) {
            (Err((seq, fault)), _) => self.record_finding(seq, fault),
            (Ok(()), LogItem::Record(record)) => {
                self.head = record.head();
                self.report.head = record.hash;
            }
            (Ok(()), LogItem::Checkpoint(checkpoint)) => {
                self.report.checkpoint_seq = checkpoint.seq
            }
        }
    }

    pub(super) fn record_unreadable(&mut self, error: &rusqlite::Error) {
        self.record_finding(self.head.seq + 1, EntryFault::Unreadable(error.to_string()));
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

    fn verify_record(&self, record: &LogRecord) -> Result<(), (u64, EntryFault)> {
        let expected = self.head.seq + 1;
        if record.seq != expected {
            return Err((expected, EntryFault::Missing { next: record.seq }));
        }
        if record.hash != chain_hash(&self.head.hash, &record.meta, &record.body) {
            return Err((expected, EntryFault::Hash));
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
        if checkpoint.key != self.key {
            return Err((
                last,
                EntryFault::CheckpointKey(hex::encode(&checkpoint.key)),
            ));
        }
        if checkpoint.hash != self.head.hash {
            return Err((last, EntryFault::CheckpointHash));
        }
        if !checkpoint.is_signed(&self.report.session) {
            return Err((last, EntryFault::CheckpointSignature));
        }
        Ok(())
    }
}

/// Checks that an entry's text, which is what people see, names the session and the sequence number
/// it is stored under.
fn verify_body(record: &LogRecord, session: &SessionId) -> Result<(), EntryFault> {
    #[derive(Deserialize)]
    struct EntryPosition {
        seq: u64,
        session: String,
    }
    let position: EntryPosition = serde_json::from_slice(&record.body)
        .map_err(|error| EntryFault::NotAnEntry(error.to_string()))?;
    if position.seq != record.seq {
        return Err(EntryFault::OtherSeq(position.seq));
    }
    if position.session != session.as_str() {
        return Err(EntryFault::OtherSession(position.session));
    }
    Ok(())
}
