//! The judgement of one log, entry by entry.

use pvp_protocol::SessionId;
use serde::Deserialize;

use super::audit::{Fault, Finding, Item, SessionReport};
use super::{CHECKPOINT_EVERY, Checkpoint, Head, PublicKey, Record, hex, link};

/// Follows one log and stops judging at the first thing that is wrong.
pub(super) struct Check {
    key: PublicKey,
    head: Head,
    report: SessionReport,
}

impl Check {
    pub(super) fn new(session: SessionId, key: PublicKey) -> Self {
        let head = Head::empty(&session);
        Self {
            key,
            head,
            report: SessionReport {
                session,
                entries: 0,
                head: head.hash,
                checkpoints: 0,
                sealed_seq: 0,
                finding: None,
            },
        }
    }

    pub(super) fn session(&self) -> &SessionId {
        &self.report.session
    }

    pub(super) fn item(&mut self, item: &Item) {
        let verdict = match item {
            Item::Record(record) => {
                self.report.entries += 1;
                self.judge_record(record)
            }
            Item::Checkpoint(checkpoint) => {
                self.report.checkpoints += 1;
                self.judge_checkpoint(checkpoint)
            }
        };
        if self.report.finding.is_some() {
            return;
        }
        match (verdict, item) {
            (Err((seq, what)), _) => self.found(seq, what),
            (Ok(()), Item::Record(record)) => {
                self.head = record.head();
                self.report.head = record.hash;
            }
            (Ok(()), Item::Checkpoint(checkpoint)) => self.report.sealed_seq = checkpoint.seq,
        }
    }

    pub(super) fn unreadable(&mut self, error: &rusqlite::Error) {
        self.found(self.head.seq + 1, Fault::Unreadable(error.to_string()));
    }

    /// `says` is where the session's row claims that the log ends.
    pub(super) fn finish(mut self, says: Option<Head>) -> SessionReport {
        if let Some(says) = says.filter(|says| *says != self.head) {
            let seq = says.seq.min(self.head.seq) + u64::from(says.seq != self.head.seq);
            self.found(seq, Fault::Head { says: says.seq });
        }
        // The writer never leaves so many without a checkpoint, so one was taken away.
        if self.head.seq - self.report.sealed_seq >= CHECKPOINT_EVERY {
            self.found(self.report.sealed_seq + 1, Fault::Unsealed);
        }
        self.report
    }

    fn found(&mut self, seq: u64, what: Fault) {
        let session = self.report.session.clone();
        self.report
            .finding
            .get_or_insert(Finding { session, seq, what });
    }

    fn judge_record(&self, record: &Record) -> Result<(), (u64, Fault)> {
        let due = self.head.seq + 1;
        if record.seq != due {
            return Err((due, Fault::Missing { next: record.seq }));
        }
        if record.hash != link(&self.head.hash, &record.meta, &record.body) {
            return Err((due, Fault::Hash));
        }
        judge_text(record, &self.report.session).map_err(|fault| (due, fault))
    }

    fn judge_checkpoint(&self, checkpoint: &Checkpoint) -> Result<(), (u64, Fault)> {
        let last = self.head.seq;
        let sealed = checkpoint.seq;
        if sealed > last {
            return Err((last + 1, Fault::Truncated { sealed }));
        }
        if sealed < last {
            return Err((last, Fault::SealMisplaced(sealed)));
        }
        if checkpoint.key != self.key {
            return Err((last, Fault::SealedKey(hex(&checkpoint.key))));
        }
        if checkpoint.hash != self.head.hash {
            return Err((last, Fault::SealedHash));
        }
        if !checkpoint.is_signed(&self.report.session) {
            return Err((last, Fault::SealedSignature));
        }
        Ok(())
    }
}

/// Each entry repeats its place in its own text, which is what people are shown.
fn judge_text(record: &Record, session: &SessionId) -> Result<(), Fault> {
    #[derive(Deserialize)]
    struct Place {
        seq: u64,
        session: String,
    }
    let place: Place = serde_json::from_slice(&record.body)
        .map_err(|error| Fault::NotAnEntry(error.to_string()))?;
    if place.seq != record.seq {
        return Err(Fault::OtherSeq(place.seq));
    }
    if place.session != session.as_str() {
        return Err(Fault::OtherSession(place.session));
    }
    Ok(())
}
