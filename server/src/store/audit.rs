//! Verifies offline that logs are as the server wrote them, and names the first entry that is not.

use std::path::Path;

use pvp_protocol::SessionId;
use rusqlite::{Connection, OptionalExtension, Row};

use super::read_pool::record_from_row;
use super::schema::{self, get_seq};
use super::verifier::LogVerifier;
use super::{CHECKPOINT_EVERY, Checkpoint, Hash, LogHead, LogRecord, OpenError, PublicKey, keys};

pub use super::export::{export, verify_export};

/// The result of verifying every session.
#[derive(Debug, PartialEq, Eq)]
pub struct AuditReport {
    /// The key that every checkpoint must be signed with.
    pub key: PublicKey,
    pub key_source: KeySource,
    pub sessions: Vec<SessionReport>,
}

impl AuditReport {
    /// The first finding, if any session has one.
    pub fn first_finding(&self) -> Option<&AuditFinding> {
        self.sessions.iter().find_map(|one| one.finding.as_ref())
    }
}

/// Where the key came from. A key that is stored with the logs proves less than one kept elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySource {
    Pinned,
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
    #[error("its checkpoint was signed with another key, {0}")]
    CheckpointKey(String),
    #[error("a checkpoint for entry {0} stands here")]
    MisplacedCheckpoint(u64),
    #[error("no checkpoint follows it, although {CHECKPOINT_EVERY} or more entries do")]
    MissingCheckpoint,
}

/// Why logs could not be verified or exported.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the store cannot be read: {0}")]
    Database(#[from] rusqlite::Error),
    #[error("the store is damaged: {0}")]
    Damaged(String),
    #[error("there is no session `{0}`")]
    NoSession(SessionId),
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
    let connection = schema::open_read_only(dir)?;
    let mut found = false;
    for_each_session(&connection, |log| {
        if only.is_some_and(|only| *only != log.session) {
            return Ok(());
        }
        found = true;
        for_each_item(&connection, log.row_id, |item| each(&log.session, item))
    })?;
    match only {
        Some(only) if !found => Err(AuditError::NoSession(only.clone())),
        Some(_) | None => Ok(()),
    }
}

/// Verifies every log of a data directory, which a running server may be using.
pub fn verify_store(dir: &Path, pinned: Option<&PublicKey>) -> Result<AuditReport, AuditError> {
    let connection = schema::open_read_only(dir)?;
    let (key, key_source) = match pinned {
        Some(key) => (*key, KeySource::Pinned),
        None => (keys::read_public(dir)?, KeySource::DataDirectory),
    };
    let mut sessions = Vec::new();
    for_each_session(&connection, |log| {
        let mut check = LogVerifier::new(log.session.clone(), key);
        match for_each_item(&connection, log.row_id, |item| {
            check.verify_item(&item);
            Ok(())
        }) {
            Err(AuditError::Database(error)) => check.record_unreadable(&error),
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        sessions.push(check.finish(Some(log.head)));
        Ok(())
    })?;
    check_no_orphans(&connection)?;
    Ok(AuditReport {
        key,
        key_source,
        sessions,
    })
}

struct LogRow {
    row_id: i64,
    session: SessionId,
    head: LogHead,
}

/// Reads each session in its own transaction, so that its rows are consistent and the WAL is not
/// held for long.
fn for_each_session(
    connection: &Connection,
    mut each: impl FnMut(&LogRow) -> Result<(), AuditError>,
) -> Result<(), AuditError> {
    let mut last = i64::MIN;
    loop {
        let snapshot = connection.unchecked_transaction()?;
        let next = snapshot
            .prepare_cached(
                "SELECT no, id, head_seq, head_hash FROM sessions WHERE no > ?1 ORDER BY no LIMIT 1",
            )?
            .query_row([last], |row| Ok((row.get(0)?, log_from_row(row))))
            .optional()?;
        let Some((no, log)) = next else { return Ok(()) };
        let log = log.map_err(|error| AuditError::Damaged(format!("session row {no}: {error}")))?;
        each(&log)?;
        last = no;
    }
}

fn log_from_row(row: &Row<'_>) -> anyhow::Result<LogRow> {
    Ok(LogRow {
        row_id: row.get(0)?,
        session: SessionId::parse(row.get_ref(1)?.as_str()?)?,
        head: LogHead {
            seq: get_seq(row, 2)?,
            hash: row.get(3)?,
        },
    })
}

fn for_each_item(
    connection: &Connection,
    session: i64,
    mut each: impl FnMut(LogItem) -> Result<(), AuditError>,
) -> Result<(), AuditError> {
    let mut records = connection.prepare_cached(
        "SELECT seq, meta, body, hash FROM entries WHERE session = ?1 ORDER BY seq",
    )?;
    let mut checkpoints = connection.prepare_cached(
        "SELECT seq, hash, at, key, signature FROM checkpoints WHERE session = ?1 ORDER BY seq",
    )?;
    let mut records = records.query_map([session], record_from_row)?;
    let mut checkpoints = checkpoints
        .query_map([session], Checkpoint::from_row)?
        .peekable();
    loop {
        let record = records.next().transpose()?;
        let before = record.as_ref().map_or(u64::MAX, |record| record.seq);
        while let Some(checkpoint) =
            checkpoints.next_if(|next| next.as_ref().map_or(true, |next| next.seq < before))
        {
            each(LogItem::Checkpoint(checkpoint?))?;
        }
        match record {
            Some(record) => each(LogItem::Record(record))?,
            None => return Ok(()),
        }
    }
}

/// Fails if there are rows that belong to no session, because nothing else would read them.
fn check_no_orphans(connection: &Connection) -> Result<(), AuditError> {
    for table in ["entries", "checkpoints"] {
        let stray = connection
            .query_row(
                &format!(
                    "SELECT session, min(seq) FROM {table}
                     WHERE session NOT IN (SELECT no FROM sessions) GROUP BY session LIMIT 1"
                ),
                [],
                |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
            )
            .optional()?;
        if let Some((no, seq)) = stray {
            return Err(AuditError::Damaged(format!(
                "entry {seq} in `{table}` belongs to session row {no}, which is gone"
            )));
        }
    }
    Ok(())
}
