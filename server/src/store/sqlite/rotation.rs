//! Replaces the key that signs checkpoints.

use std::path::Path;

use pvp_protocol::{SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::super::audit::{self, AuditError};
use super::super::keys::{self, BeforeStep, KeyFiles, RotationState, RotationStep, ServerKeys};
use super::super::{Checkpoint, LogHead, OpenError, PublicKey};
use super::log_appender::LogAppender;
use super::schema::{self, millis_column, seq_column};
use super::{checkpoint_rows, deletion, lock_directory};

/// How many logs are signed again in one transaction.
const MAX_LOGS_PER_TRANSACTION: i64 = 1024;

/// A rotation that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRotation {
    /// The first key that the directory had.
    pub first: PublicKey,
    /// The key that was retired.
    pub old: PublicKey,
    /// The current key.
    pub new: PublicKey,
    /// When the old key was retired.
    pub at: Timestamp,
    pub kind: RotationKind,
}

/// Which rotation was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotationKind {
    /// The one that was asked for.
    Complete,
    /// An earlier one that had been interrupted.
    Resumed,
}

/// Gives a directory that no server uses another key, and destroys the old one. A rotation that was
/// interrupted is finished instead.
pub fn rotate_key(files: &KeyFiles, now: Timestamp) -> Result<KeyRotation, OpenError> {
    rotate_with(files, now, &mut |_| Ok(()))
}

pub(super) fn rotate_with(
    files: &KeyFiles,
    now: Timestamp,
    before: BeforeStep<'_>,
) -> Result<KeyRotation, OpenError> {
    let _lock = lock_directory(files.dir())?;
    let mut keys = keys::load_or_create(files)?;
    let mut connection = schema::open_or_create(files.dir(), schema::MigrationScope::Older)?;
    let kind = match keys.rotation {
        RotationState::Begun => RotationKind::Resumed,
        RotationState::Finished => {
            keys = begin(files, &mut connection, keys, now, before)?;
            RotationKind::Complete
        }
    };
    finish_if_begun(files, &mut connection, &mut keys, before)?;
    let records = keys.history.records();
    let old = keys.previous().map_or_else(|| keys.public(), |old| old.key);
    Ok(KeyRotation {
        first: records.first().map_or(old, |first| first.key),
        old,
        new: keys.public(),
        at: keys.current().and_then(|new| new.from).unwrap_or(now),
        kind,
    })
}

fn begin(
    files: &KeyFiles,
    connection: &mut Connection,
    keys: ServerKeys,
    now: Timestamp,
    before: BeforeStep<'_>,
) -> Result<ServerKeys, OpenError> {
    let database = files.dir().join(schema::DATABASE_FILE);
    let failed = schema::map_sqlite_error(&database);
    let at = rotation_time(connection, &keys, now).map_err(&failed)?;
    before(RotationStep::SignWithOldKey)?;
    let heads = audit::intact_unsigned_heads(files.dir(), &keys.history)
        .map_err(|error| failed_audit(&database, error))?;
    LogAppender::new(keys.signing.clone(), at)
        .sign_heads(connection, at, &heads)
        .map_err(&failed)?;
    keys::begin_rotation(files, &keys, at, before)
}

fn failed_audit(database: &Path, error: AuditError) -> OpenError {
    OpenError::Database {
        path: database.to_owned(),
        source: Box::new(error),
    }
}

/// The current time or, if the clock was set back, the last time that the current key signed.
fn rotation_time(
    connection: &Connection,
    keys: &ServerKeys,
    now: Timestamp,
) -> rusqlite::Result<Timestamp> {
    let mut at = keys
        .current()
        .and_then(|current| current.from)
        .unwrap_or_default()
        .max(now);
    let mut later = connection.prepare(&format!(
        "SELECT {}, (SELECT id FROM sessions WHERE no = session) FROM checkpoints WHERE at > ?1",
        checkpoint_rows::COLUMNS
    ))?;
    let mut rows = later.query([millis_column(now)])?;
    while let Some(row) = rows.next()? {
        let checkpoint = checkpoint_rows::from_row(row)?;
        let session: Option<String> = row.get(6)?;
        let session = session.and_then(|id| SessionId::parse(&id).ok());
        // An altered time would otherwise move every later checkpoint.
        let is_own = checkpoint.key == keys.public();
        if is_own && session.is_some_and(|session| checkpoint.is_signed(&session)) {
            at = at.max(checkpoint.at);
        }
    }
    Ok(at)
}

/// Finishes a rotation whose new key is published.
pub(super) fn finish_if_begun(
    files: &KeyFiles,
    connection: &mut Connection,
    keys: &mut ServerKeys,
    before: BeforeStep<'_>,
) -> Result<(), OpenError> {
    match keys.rotation {
        RotationState::Finished => Ok(()),
        RotationState::Begun => {
            before(RotationStep::SignWithNewKey)?;
            sign_again(connection, keys).map_err(|error| {
                schema::map_sqlite_error(&files.dir().join(schema::DATABASE_FILE))(error)
            })?;
            keys::finish_rotation(files, keys, before)
        }
    }
}

/// Signs the last checkpoint of every log again, with the current key, so that logs that do not grow
/// any more need not rest on a retired one.
fn sign_again(connection: &mut Connection, keys: &ServerKeys) -> rusqlite::Result<()> {
    let mut last = i64::MIN;
    loop {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let sessions: Vec<(i64, String)> = transaction
            .prepare_cached("SELECT no, id FROM sessions WHERE no > ?1 ORDER BY no LIMIT ?2")?
            .query_map([last, MAX_LOGS_PER_TRANSACTION], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<rusqlite::Result<_>>()?;
        for (row_id, id) in &sessions {
            if let Ok(session) = SessionId::parse(id) {
                sign_log_again(&transaction, *row_id, &session, keys)?;
            }
        }
        transaction.commit()?;
        match sessions.last() {
            Some((row_id, _)) => last = *row_id,
            None => break,
        }
    }
    match (keys.current(), keys.previous()) {
        (Some(current), Some(previous)) => {
            let at = current.from.unwrap_or_default();
            deletion::sign_again(connection, &previous.key, &keys.signing, at)
        }
        _ => Ok(()),
    }
}

/// Signs one log again, unless its last checkpoint is not a good one of the key before: the current
/// key vouches for nothing that the old key did not vouch for.
fn sign_log_again(
    transaction: &Transaction<'_>,
    row_id: i64,
    session: &SessionId,
    keys: &ServerKeys,
) -> rusqlite::Result<()> {
    let (Some(current), Some(previous)) = (keys.current(), keys.previous()) else {
        return Ok(());
    };
    let found = checkpoint_rows::find_last(transaction, row_id)?;
    let Some(found) = found.filter(|found| found.key != current.key) else {
        return Ok(());
    };
    let entry: Option<[u8; 32]> = transaction
        .prepare_cached("SELECT hash FROM entries WHERE session = ?1 AND seq = ?2")?
        .query_row(params![row_id, seq_column(found.seq)?], |row| row.get(0))
        .optional()?;
    let is_good = found.key == previous.key && found.is_signed(session);
    if !is_good || entry != Some(found.hash) {
        tracing::warn!(%session, "its last checkpoint is not good and was not signed again; run `pvp audit verify`");
        return Ok(());
    }
    let head = LogHead {
        seq: found.seq,
        hash: found.hash,
    };
    let at = current.from.unwrap_or_default();
    let again = Checkpoint::sign(&keys.signing, session, head, at, found.snapshot);
    checkpoint_rows::insert(transaction, row_id, &again)
}
