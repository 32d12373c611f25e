//! The keys that an audit trusts, and when each of them was valid.

use std::fmt;

use pvp_protocol::{Timestamp, hex};

use super::audit::{AuditError, EntryFault, KeySource, TombstoneFault};
use super::key_history::{KeyHistory, KeyRecord};
use super::keys::PublicKey;
use super::{Checkpoint, KeyFinding, Tombstone};

/// A key and the range of times in which it may have signed, both ends included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    pub key: PublicKey,
    /// `None` if it has been valid since always.
    pub from: Option<Timestamp>,
    /// `None` if it was not retired.
    pub until: Option<Timestamp>,
}

impl KeyRange {
    fn contains(&self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= at) && self.until.is_none_or(|until| at <= until)
    }

    /// The times that are in both ranges.
    fn narrowed_by(&self, record: &KeyRecord) -> Self {
        let until = match (self.until, record.until) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self {
            key: self.key,
            from: self.from.max(record.from),
            until,
        }
    }
}

impl From<&KeyRecord> for KeyRange {
    fn from(record: &KeyRecord) -> Self {
        Self {
            key: record.key,
            from: record.from,
            until: record.until,
        }
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.key))?;
        if let Some(from) = self.from {
            write!(f, " from {from}")?;
        }
        if let Some(until) = self.until {
            write!(f, " until {until}")?;
        }
        Ok(())
    }
}

/// One key of a set, and why it is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedKey {
    pub range: KeyRange,
    pub source: KeySource,
}

/// The keys that checkpoints may be signed with, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeySet(Vec<TrustedKey>);

impl KeySet {
    /// Every key of a history that nothing else vouches for.
    pub(super) fn from_history(history: &KeyHistory, source: KeySource) -> Self {
        let trusted = |record| TrustedKey {
            range: KeyRange::from(record),
            source,
        };
        Self(history.records().iter().map(trusted).collect())
    }

    /// The pinned keys, which are given oldest first, and those that certificates lead to: from one
    /// pinned key to the next, and from the last one to the end of the history.
    ///
    /// Only the last one is followed to keys that nobody pinned, because a thief of a retired key
    /// can certify a key of their own with it.
    pub(super) fn from_pins(pins: &[KeyRange], history: &KeyHistory) -> Result<Self, AuditError> {
        let records = history.records();
        let place = |pin: &KeyRange| records.iter().position(|record| record.key == pin.key);
        let mut set = Self::default();
        let mut reached = None;
        for pin in pins {
            let found = place(pin);
            let goes_back = found.is_some() && found <= reached;
            if goes_back || set.position(&pin.key).is_some() {
                return Err(AuditError::KeyOrder(hex::encode(&pin.key)));
            }
            if let (Some(reached), Some(found)) = (reached, found) {
                set.follow(&records[reached + 1..found]);
            }
            set.0.push(TrustedKey {
                range: found.map_or_else(|| pin.clone(), |at| pin.narrowed_by(&records[at])),
                source: KeySource::Pinned,
            });
            reached = found.or(reached);
        }
        if let Some(last) = pins.last().and_then(place) {
            set.follow(&records[last + 1..]);
        }
        Ok(set)
    }

    /// Adds keys that were certified one by the other while the certifying one was valid.
    fn follow(&mut self, records: &[KeyRecord]) {
        for record in records {
            let certified = self.0.last().zip(record.from);
            if !certified.is_some_and(|(last, at)| last.range.contains(at)) {
                return;
            }
            self.0.push(TrustedKey {
                range: KeyRange::from(record),
                source: KeySource::Certificate,
            });
        }
    }

    pub fn keys(&self) -> &[TrustedKey] {
        &self.0
    }

    /// The newest key, which the last checkpoint of every log is signed with.
    pub fn newest(&self) -> Option<&TrustedKey> {
        self.0.last()
    }

    fn position(&self, key: &PublicKey) -> Option<usize> {
        self.0.iter().position(|one| one.range.key == *key)
    }

    /// What is wrong with a tombstone, if anything. A rotation signs every tombstone again, so that
    /// whoever has a retired key cannot write any.
    pub(super) fn tombstone_fault(&self, tombstone: &Tombstone) -> Option<TombstoneFault> {
        let key = hex::encode(&tombstone.key);
        let Some(position) = self.position(&tombstone.key) else {
            return Some(TombstoneFault::Key(key));
        };
        let (trusted, newest) = (self.0.get(position)?, self.0.last()?);
        let at = tombstone.signed_at;
        if !tombstone.is_signed() || tombstone.at > at {
            Some(TombstoneFault::Signature)
        } else if !trusted.range.contains(at) {
            let key = trusted.range.to_string();
            Some(TombstoneFault::Range { at, key })
        } else if trusted.range.key != newest.range.key {
            let newest = hex::encode(&newest.range.key);
            Some(TombstoneFault::RetiredKey { key, newest })
        } else {
            None
        }
    }

    /// What is wrong if this is the current key of the server.
    pub(super) fn current_finding(&self, current: &PublicKey) -> Option<KeyFinding> {
        let unknown = self.position(current).is_none();
        unknown.then(|| KeyFinding::UnknownCurrent(hex::encode(current)))
    }
}

/// The last good checkpoint of a log, as far as the next one has to follow from it.
#[derive(Debug, Clone, Copy)]
struct LastCheckpoint {
    key_position: usize,
    at: Timestamp,
}

/// Checks the keys and times of the checkpoints of one log, in order.
pub(super) struct KeyOrder<'k> {
    keys: &'k KeySet,
    last: Option<LastCheckpoint>,
}

impl<'k> KeyOrder<'k> {
    pub(super) fn new(keys: &'k KeySet) -> Self {
        Self { keys, last: None }
    }

    /// The place of the checkpoint's key in the set.
    pub(super) fn find_key(&self, checkpoint: &Checkpoint) -> Result<usize, EntryFault> {
        self.keys
            .position(&checkpoint.key)
            .ok_or_else(|| EntryFault::CheckpointKey(hex::encode(&checkpoint.key)))
    }

    /// Checks that a signed checkpoint may follow the last one, by its key and its time.
    pub(super) fn verify_next(
        &self,
        key_position: usize,
        checkpoint: &Checkpoint,
    ) -> Result<(), EntryFault> {
        let range = &self.keys.0[key_position].range;
        let at = checkpoint.at;
        if !range.contains(at) {
            let key = range.to_string();
            return Err(EntryFault::CheckpointRange { at, key });
        }
        let Some(last) = self.last else { return Ok(()) };
        if key_position < last.key_position {
            return Err(EntryFault::OlderKey {
                key: hex::encode(&range.key),
                newer: hex::encode(&self.keys.0[last.key_position].range.key),
            });
        }
        // Earlier builds signed whatever time the clock said, and did not record when a key began.
        if at < last.at && range.from.is_some() {
            return Err(EntryFault::CheckpointTime { at, last: last.at });
        }
        Ok(())
    }

    /// Takes a good checkpoint as the last one.
    pub(super) fn advance(&mut self, checkpoint: &Checkpoint) {
        self.last = self
            .keys
            .position(&checkpoint.key)
            .map(|key_position| LastCheckpoint {
                key_position,
                at: checkpoint.at,
            });
    }

    /// What is wrong if the log has no further checkpoint. A rotation signs the last checkpoint of
    /// every log again, so that whoever has a retired key cannot write logs with it.
    pub(super) fn verify_end(&self) -> Result<(), EntryFault> {
        match (self.last, self.keys.newest()) {
            (Some(last), Some(newest)) if last.key_position + 1 < self.keys.0.len() => {
                Err(EntryFault::RetiredKey {
                    key: hex::encode(&self.keys.0[last.key_position].range.key),
                    newest: hex::encode(&newest.range.key),
                })
            }
            _ => Ok(()),
        }
    }
}
