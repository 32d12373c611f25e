//! Deletes sessions: first a tombstone takes the place of the session, in one transaction; then its
//! rows are removed, a few at a time, so that other sessions can write in between.

use ed25519_dalek::SigningKey;
use pvp_protocol::{SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};

use super::super::{LogHead, SessionDeletion, StoreError, Tombstone};
use super::schema::{get_millis, get_seq, millis_column, seq_column};

/// How many rows of each table one transaction removes.
const ROWS_PER_TRANSACTION: i64 = 128;

/// The statements that remove rows of a deleted session.
const PURGE_SQL: [&str; 6] = [
    "DELETE FROM contents WHERE rowid IN
         (SELECT rowid FROM contents WHERE session = ?1 LIMIT ?2)",
    "DELETE FROM entries WHERE rowid IN
         (SELECT rowid FROM entries WHERE session = ?1 LIMIT ?2)",
    "DELETE FROM checkpoints WHERE rowid IN
         (SELECT rowid FROM checkpoints WHERE session = ?1 LIMIT ?2)",
    "DELETE FROM snapshots WHERE rowid IN
         (SELECT rowid FROM snapshots WHERE session = ?1 LIMIT ?2)",
    "DELETE FROM proposals WHERE session = ?1 AND proposed IN
         (SELECT proposed FROM proposals WHERE session = ?1 LIMIT ?2)",
    "DELETE FROM outputs WHERE session = ?1 AND (run, stream, chunk) IN
         (SELECT run, stream, chunk FROM outputs WHERE session = ?1 LIMIT ?2)",
];

/// The columns that [`from_row`] reads.
pub(super) const COLUMNS: &str =
    "session, entries, head, at, deleted_by, signed_at, key, signature";

/// Whether rows of deleted sessions are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PurgeState {
    MoreToPurge,
    Clean,
}

/// Puts a signed tombstone in the place of a session.
pub(super) fn bury(
    connection: &mut Connection,
    key: &SigningKey,
    key_from: Timestamp,
    deletion: &SessionDeletion,
) -> rusqlite::Result<Result<Tombstone, StoreError>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = transaction
        .prepare_cached("SELECT no, head_seq, head_hash FROM sessions WHERE id = ?1")?
        .query_row([deletion.session.as_str()], |row| {
            let (seq, hash) = (get_seq(row, 1)?, row.get(2)?);
            Ok((row.get::<_, i64>(0)?, LogHead { seq, hash }))
        })
        .optional()?;
    let Some((row_id, _)) = found.filter(|(_, head)| *head == deletion.head) else {
        return Ok(Err(StoreError::LogChanged(deletion.session.clone())));
    };
    let tombstone = Tombstone::sign(key, deletion, key_from);
    write(&transaction, row_id, &tombstone)?;
    transaction.execute("DELETE FROM sessions WHERE no = ?1", [row_id])?;
    transaction.commit()?;
    Ok(Ok(tombstone))
}

fn write(connection: &Connection, row_id: i64, tombstone: &Tombstone) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO tombstones
                 (no, session, entries, head, at, deleted_by, signed_at, key, signature, purged)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0)",
        )?
        .execute(params![
            row_id,
            tombstone.session.as_str(),
            seq_column(tombstone.entries)?,
            tombstone.head,
            millis_column(tombstone.at),
            tombstone.by,
            millis_column(tombstone.signed_at),
            tombstone.key,
            tombstone.signature
        ])?;
    Ok(())
}

/// Removes some of the rows that deleted sessions have left.
pub(super) fn purge_some(connection: &mut Connection) -> rusqlite::Result<PurgeState> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let next: Option<i64> = transaction
        .prepare_cached("SELECT no FROM tombstones WHERE NOT purged ORDER BY no LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let Some(row_id) = next else {
        return Ok(PurgeState::Clean);
    };
    let mut removed = 0;
    for statement in PURGE_SQL {
        let mut statement = transaction.prepare_cached(statement)?;
        removed += statement.execute([row_id, ROWS_PER_TRANSACTION])?;
    }
    if removed == 0 {
        transaction.execute("UPDATE tombstones SET purged = 1 WHERE no = ?1", [row_id])?;
    }
    transaction.commit()?;
    Ok(PurgeState::MoreToPurge)
}

/// Removes whatever an interrupted deletion has left.
pub(super) fn purge_all(connection: &mut Connection) -> rusqlite::Result<()> {
    while purge_some(connection)? == PurgeState::MoreToPurge {}
    Ok(())
}

pub(super) fn find(
    connection: &Connection,
    session: &SessionId,
) -> rusqlite::Result<Option<Result<Tombstone, String>>> {
    connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM tombstones WHERE session = ?1"
        ))?
        .query_row([session.as_str()], from_row)
        .optional()
}

/// Whether the id of a session was deleted.
pub(super) fn is_deleted(connection: &Connection, session: &SessionId) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM tombstones WHERE session = ?1)")?
        .query_row([session.as_str()], |row| row.get(0))
}

/// Reads [`COLUMNS`]; a row that names no session is returned as an error of its own.
pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Result<Tombstone, String>> {
    let id: String = row.get(0)?;
    let session = match SessionId::parse(&id) {
        Ok(session) => session,
        Err(error) => return Ok(Err(format!("tombstone of `{id}`: {error}"))),
    };
    Ok(Ok(Tombstone {
        session,
        entries: get_seq(row, 1)?,
        head: row.get(2)?,
        at: get_millis(row, 3)?,
        by: row.get(4)?,
        signed_at: get_millis(row, 5)?,
        key: row.get(6)?,
        signature: row.get(7)?,
    }))
}

/// Signs every tombstone again that the key before has signed, with the current key.
pub(super) fn sign_again(
    connection: &mut Connection,
    previous: &[u8; 32],
    key: &SigningKey,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: Vec<_> = transaction
        .prepare(&format!("SELECT {COLUMNS} FROM tombstones WHERE key = ?1"))?
        .query_map([previous.as_slice()], from_row)?
        .collect::<rusqlite::Result<_>>()?;
    // The current key vouches for nothing that the old key did not vouch for.
    for tombstone in found.into_iter().flatten().filter(Tombstone::is_signed) {
        let again = tombstone.sign_again(key, at);
        transaction.execute(
            "UPDATE tombstones SET signed_at = ?2, key = ?3, signature = ?4 WHERE session = ?1",
            params![
                again.session.as_str(),
                millis_column(again.signed_at),
                again.key,
                again.signature
            ],
        )?;
    }
    transaction.commit()
}
