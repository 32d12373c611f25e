//! Writes and reads checkpoints as rows.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::Checkpoint;
use super::schema::{get_millis, get_seq, millis_column, seq_column};

/// Writes a checkpoint. One at the same entry, which says less, is replaced.
pub(super) fn insert(
    connection: &Connection,
    session: i64,
    checkpoint: &Checkpoint,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO checkpoints (session, seq, hash, at, key, signature, snapshot)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            session,
            seq_column(checkpoint.seq)?,
            checkpoint.hash,
            millis_column(checkpoint.at),
            checkpoint.key,
            checkpoint.signature,
            checkpoint.snapshot
        ])?;
    Ok(())
}

/// The last checkpoint of a log, good or not.
pub(super) fn find_last(
    connection: &Connection,
    session: i64,
) -> rusqlite::Result<Option<Checkpoint>> {
    find_up_to(connection, session, i64::MAX)
}

/// The last checkpoint that covers no entry after `seq`, good or not.
pub(super) fn find_up_to(
    connection: &Connection,
    session: i64,
    seq: i64,
) -> rusqlite::Result<Option<Checkpoint>> {
    connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM checkpoints WHERE session = ?1 AND seq <= ?2
             ORDER BY seq DESC LIMIT 1"
        ))?
        .query_row([session, seq], from_row)
        .optional()
}

/// The columns that [`from_row`] reads.
pub(super) const COLUMNS: &str = "seq, hash, at, key, signature, snapshot";

/// Reads [`COLUMNS`].
pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Checkpoint> {
    Ok(Checkpoint {
        seq: get_seq(row, 0)?,
        hash: row.get(1)?,
        at: get_millis(row, 2)?,
        key: row.get(3)?,
        signature: row.get(4)?,
        snapshot: row.get(5)?,
    })
}
