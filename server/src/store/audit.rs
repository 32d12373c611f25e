//! Verifies offline that logs are as the server wrote them, and names the first entry that is not.

use std::collections::BTreeSet;
use std::path::Path;

use pvp_protocol::{SessionId, Timestamp};
use serde_json::Value;

use super::key_history::KeyHistory;
use super::keys::{self, PublicKey};
use super::sqlite::{LogReader, StoredLog};
use super::verifier::LogVerifier;
use super::{
    CHECKPOINT_EVERY, Checkpoint, Hash, KeyFinding, LogHead, LogRecord, OpenError, Tombstone,
};

pub use super::anchor::{Anchor, KnownHeads, for_each_anchor};
pub use super::export::{export, verify_export, verify_export_since};
pub use super::key_set::{KeyRange, KeySet, TrustedKey};

/// The result of verifying every session.
#[derive(Debug, PartialEq, Eq)]
pub struct AuditReport {
    /// The keys that checkpoints may be signed with.
    pub keys: KeySet,
    pub key_source: KeySource,
    /// What is wrong with the keys themselves, if anything.
    pub key_finding: Option<KeyFinding>,
    pub sessions: Vec<SessionReport>,
    /// What remains of deleted sessions.
    pub tombstones: Vec<TombstoneReport>,
}

impl AuditReport {
    /// Whether neither the logs nor the tombstones nor the keys have a finding.
    pub fn is_intact(&self) -> bool {
        self.key_finding.is_none()
            && self.first_finding().is_none()
            && self.tombstones.iter().all(|one| one.fault.is_none())
    }

    /// The first finding in a log, if any session has one.
    pub fn first_finding(&self) -> Option<&AuditFinding> {
        self.sessions.iter().find_map(|one| one.finding.as_ref())
    }
}

/// The result of verifying one tombstone.
#[derive(Debug, PartialEq, Eq)]
pub struct TombstoneReport {
    pub tombstone: Tombstone,
    /// What is wrong with it; `None` if the server has written it as it is.
    pub fault: Option<TombstoneFault>,
}

impl TombstoneReport {
    pub(super) fn new(tombstone: Tombstone, keys: &KeySet, sessions: &[SessionReport]) -> Self {
        let exists = sessions.iter().any(|one| one.session == tombstone.session);
        let fault = match exists {
            true => Some(TombstoneFault::SessionExists),
            false => keys.tombstone_fault(&tombstone),
        };
        Self { tombstone, fault }
    }
}

/// What is wrong with a tombstone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TombstoneFault {
    #[error("there is a session of this id, although it was deleted")]
    SessionExists,
    #[error("it has a false signature")]
    Signature,
    #[error("it was signed with an unknown key, {0}")]
    Key(String),
    #[error("it was signed at {at}, when its key was not valid: {key}")]
    Range { at: Timestamp, key: String },
    #[error(
        "it is signed with the retired key {key}; the rotation to {newest} signed every tombstone again"
    )]
    RetiredKey { key: String, newest: String },
}

/// Where the key came from. A key that is stored with the logs proves less than one kept elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySource {
    Pinned,
    /// Certificates lead to it from a pinned key.
    Certificate,
    DataDirectory,
    ExportHeader,
}

/// The result of verifying one session.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionReport {
    /// The session.
    pub session: SessionId,
    /// How many entries were found, good or not.
    pub entries: u64,
    /// The hash of the last good entry.
    pub head: Hash,
    /// How many checkpoints were found, good or not.
    pub checkpoints: u64,
    /// The last entry that a good checkpoint covers; later entries are chained but not signed yet.
    pub checkpoint_seq: u64,
    /// The first fault; `None` if the log is as it was written.
    pub finding: Option<AuditFinding>,
}

/// The first entry of a session that is not as the server wrote it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("session `{session}`, entry {seq}: {fault}")]
pub struct AuditFinding {
    pub session: SessionId,
    pub seq: u64,
    pub fault: EntryFault,
}

/// What is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryFault {
    #[error("it is missing; the next one there is {next}")]
    Missing { next: u64 },
    #[error("it is missing, although the log once reached {sealed}: a checkpoint was signed there")]
    Truncated { sealed: u64 },
    #[error("it is missing or too much: the session's row says that the log ends at {says}")]
    Head { says: u64 },
    #[error("its hash does not follow from the entry before it and its own bytes")]
    Hash,
    #[error("its text is not an entry: {0}")]
    NotAnEntry(String),
    #[error("its text says seq {0}")]
    OtherSeq(u64),
    #[error("its text says session `{0}`")]
    OtherSession(String),
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    #[error("its checkpoint was signed for another hash")]
    CheckpointHash,
    #[error("its checkpoint has a false signature")]
    CheckpointSignature,
    #[error("its checkpoint was signed with an unknown key, {0}")]
    CheckpointKey(String),
    #[error("its checkpoint was signed at {at}, when its key was not valid: {key}")]
    CheckpointRange { at: Timestamp, key: String },
    #[error(
        "its checkpoint was signed with the older key {key}, although one before it was signed with {newer}"
    )]
    OlderKey { key: String, newer: String },
    #[error("its checkpoint was signed at {at}, before the one before it, at {last}")]
    CheckpointTime { at: Timestamp, last: Timestamp },
    #[error(
        "its checkpoint is the last one, but is signed with the retired key {key}; the rotation to {newest} signed every log again"
    )]
    RetiredKey { key: String, newest: String },
    #[error("a checkpoint for entry {0} stands here")]
    MisplacedCheckpoint(u64),
    #[error(
        "it is missing, although the log once reached {anchored}: an anchor was made at entry {anchored}"
    )]
    CutBeforeAnchor { anchored: u64 },
    #[error("it is not the entry that an anchor was made of; the log was rewritten before it")]
    OtherThanAnchor,
    #[error(
        "no signed checkpoint covers it; such an entry is signed when it is written, so it was put here later, or its checkpoint was removed"
    )]
    Unsigned,
    #[error("no checkpoint follows it, although {CHECKPOINT_EVERY} or more entries do")]
    MissingCheckpoint,
}

/// Why logs could not be verified or exported.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the store cannot be read: {0}")]
    Unreadable(String),
    #[error("the store is damaged: {0}")]
    Damaged(String),
    #[error("there is no session `{0}`")]
    NoSession(SessionId),
    #[error("the key {0} is given twice or after a later one; give the oldest key first")]
    KeyOrder(String),
    #[error("the server's key was rotated meanwhile; try again")]
    Rotated,
    #[error("line {line}: {why}")]
    Line { line: u64, why: String },
    #[error("the export cannot be read or written: {0}")]
    Io(#[from] std::io::Error),
}

/// One item of a log. A checkpoint comes right after the last entry that it covers.
#[derive(Debug)]
pub enum LogItem {
    Record(LogRecord),
    Checkpoint(Checkpoint),
}

/// Passes every item in the log of one session, or of all, to `each`, without verifying it.
pub fn for_each_log_item(
    dir: &Path,
    only: Option<&SessionId>,
    each: &mut dyn FnMut(&SessionId, LogItem) -> Result<(), AuditError>,
) -> Result<(), AuditError> {
    let reader = LogReader::open(dir)?;
    let mut found = false;
    reader.for_each_session(|log| {
        if only.is_some_and(|only| *only != log.session) {
            return Ok(());
        }
        found = true;
        reader.for_each_item(log, |item| each(&log.session, item))
    })?;
    match only {
        Some(only) if !found => Err(AuditError::NoSession(only.clone())),
        Some(_) | None => Ok(()),
    }
}

/// The tombstones of a data directory, without verifying them.
pub(super) fn read_tombstones(dir: &Path) -> Result<Vec<Tombstone>, AuditError> {
    LogReader::open(dir)?.tombstones()
}

/// The keys of a server as its data directory or an export states them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StatedKeys {
    pub(super) current: PublicKey,
    /// The history as it is stated, good or not; `None` if there is none.
    pub(super) records: Option<Vec<Value>>,
    /// The history as far as it is good.
    pub(super) history: KeyHistory,
    /// What is wrong with the history.
    pub(super) finding: Option<KeyFinding>,
}

impl StatedKeys {
    /// Checks a history. Without one, the current key has been the only one since always.
    pub(super) fn new(current: PublicKey, records: Option<Vec<Value>>) -> Self {
        let (history, finding) = match &records {
            Some(records) => KeyHistory::verify(records, &current),
            None => (KeyHistory::single(current, None), None),
        };
        Self {
            current,
            records,
            history,
            finding,
        }
    }

    /// The keys to verify with, and what is wrong with them. Without pinned keys, the stated ones
    /// are all there is.
    pub(super) fn trusted(
        &self,
        pins: &[KeyRange],
        source: KeySource,
    ) -> Result<(KeySet, KeySource, Option<KeyFinding>), AuditError> {
        let stated = self.finding.clone();
        if pins.is_empty() {
            return Ok((KeySet::from_history(&self.history, source), source, stated));
        }
        let keys = KeySet::from_pins(pins, &self.history)?;
        let finding = stated.or_else(|| keys.current_finding(&self.current));
        Ok((keys, KeySource::Pinned, finding))
    }
}

/// Verifies every log of a data directory, which a running server may be using. Without pinned
/// keys, those in the directory are trusted.
pub fn verify_store(dir: &Path, pins: &[KeyRange]) -> Result<AuditReport, AuditError> {
    verify_store_since(dir, pins, &KnownHeads::default())
}

/// As [`verify_store`], where the logs must contain these entries.
pub fn verify_store_since(
    dir: &Path,
    pins: &[KeyRange],
    known: &KnownHeads,
) -> Result<AuditReport, AuditError> {
    let stated = read_stated(dir, pins)?;
    let (keys, key_source, key_finding) = stated.trusted(pins, KeySource::DataDirectory)?;
    let (sessions, tombstones) = verify_sessions(dir, &keys, known)?;
    if read_stated(dir, pins)? != stated {
        return Err(AuditError::Rotated);
    }
    let mut report = AuditReport {
        keys,
        key_source,
        key_finding,
        sessions,
        tombstones,
    };
    if !report.is_intact() && keys::is_rotation_begun(dir) {
        report.key_finding = Some(KeyFinding::UnfinishedRotation);
    }
    Ok(report)
}

/// The keys that a directory states. Pinned keys are enough to verify one that has lost its own.
fn read_stated(dir: &Path, pins: &[KeyRange]) -> Result<StatedKeys, OpenError> {
    match pins.last() {
        Some(pin) if !keys::has_public(dir) => Ok(StatedKeys::new(pin.key, None)),
        Some(_) | None => keys::read_stated(dir),
    }
}

fn verify_sessions(
    dir: &Path,
    keys: &KeySet,
    known: &KnownHeads,
) -> Result<(Vec<SessionReport>, Vec<TombstoneReport>), AuditError> {
    let reader = LogReader::open(dir)?;
    let mut sessions = Vec::new();
    reader.for_each_session(|log| {
        sessions.push(verify_log(&reader, log, keys, known.of(&log.session))?);
        Ok(())
    })?;
    reader.check_no_orphans()?;
    let tombstones = reader.tombstones()?;
    // One that was deleted after it was read above is not there a second time.
    sessions.retain(|one| one.finding.is_some() || !is_deleted(&tombstones, &one.session, &reader));
    let mut found: BTreeSet<_> = sessions.iter().map(|one| one.session.clone()).collect();
    // What was deleted is accounted for by its tombstone.
    found.extend(tombstones.iter().map(|one| one.session.clone()));
    let tombstones = tombstones
        .into_iter()
        .map(|tombstone| TombstoneReport::new(tombstone, keys, &sessions))
        .collect();
    sessions.extend(known.missing_sessions(&found));
    Ok((sessions, tombstones))
}

/// Whether a session has a tombstone and is not there any more.
fn is_deleted(tombstones: &[Tombstone], session: &SessionId, reader: &LogReader) -> bool {
    tombstones.iter().any(|one| one.session == *session) && !reader.has_session(session)
}

fn verify_log(
    reader: &LogReader,
    log: &StoredLog,
    keys: &KeySet,
    known: &[LogHead],
) -> Result<SessionReport, AuditError> {
    let mut check = LogVerifier::new(log.session.clone(), keys, known);
    match reader.for_each_item(log, |item| {
        check.verify_item(&item);
        Ok(())
    }) {
        Err(AuditError::Unreadable(why)) => check.record_unreadable(why),
        Err(error) => return Err(error),
        Ok(()) => {}
    }
    Ok(check.finish(Some(log.head)))
}

/// The ends of the logs that are intact and have grown since their last checkpoint.
pub(super) fn intact_unsigned_heads(
    dir: &Path,
    history: &KeyHistory,
) -> Result<Vec<(SessionId, LogHead)>, AuditError> {
    let reader = LogReader::open(dir)?;
    let keys = KeySet::from_history(history, KeySource::DataDirectory);
    let mut heads = Vec::new();
    reader.for_each_session(|log| {
        let last = reader.last_checkpoint(log)?;
        if last.is_some_and(|last| last.seq >= log.head.seq) {
            return Ok(());
        }
        match verify_log(&reader, log, &keys, &[])?.finding {
            None => heads.push((log.session.clone(), log.head)),
            Some(finding) => tracing::warn!(%finding, "the end of a log is not signed"),
        }
        Ok(())
    })?;
    Ok(heads)
}
