//! Writes and reads the indexes of closed proposals and of output, and the snapshots, as rows.

use bytes::Bytes;
use pvp_protocol::payload::OutputStream;
use pvp_protocol::{MessageId, SHORT_ID_LENGTH};
use pvp_session::{IndexChange, IndexedChunk, ProposalRecord};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::{LogHead, LogSnapshot};
use super::checkpoint_rows;
use super::schema::{get_seq, seq_column};

/// How many snapshots of a session are kept; the older one serves if the newest is damaged.
const KEPT_SNAPSHOTS: i64 = 2;

/// Writes what entries add to the indexes. What was written before is replaced by the same.
pub(super) fn insert_changes(
    connection: &Connection,
    session: i64,
    changes: &[IndexChange],
) -> rusqlite::Result<()> {
    for change in changes {
        match change {
            IndexChange::Closed(proposal) => connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO proposals (session, proposed, id, gate, data)
                     VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![
                    session,
                    seq_column(proposal.seqs.proposed)?,
                    proposal.id.as_str(),
                    proposal.gate.as_ref().map(MessageId::as_str),
                    to_json(proposal)?
                ])?,
            IndexChange::Output(chunk) => connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO outputs (session, run, stream, chunk, data)
                     VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![
                    session,
                    seq_column(chunk.run)?,
                    chunk.stream.as_str(),
                    seq_column(chunk.number())?,
                    to_json(chunk)?
                ])?,
        };
    }
    Ok(())
}

pub(super) fn read_chunk(
    connection: &Connection,
    session: i64,
    run: u64,
    stream: OutputStream,
    chunk: u64,
) -> rusqlite::Result<Option<IndexedChunk>> {
    connection
        .prepare_cached(
            "SELECT data FROM outputs
             WHERE session = ?1 AND run = ?2 AND stream = ?3 AND chunk = ?4",
        )?
        .query_row(
            params![
                session,
                seq_column(run)?,
                stream.as_str(),
                seq_column(chunk)?
            ],
            |row| from_json(row, 0),
        )
        .optional()
}

pub(super) fn closed_proposals(
    connection: &Connection,
    session: i64,
    before: i64,
    limit: i64,
) -> rusqlite::Result<Vec<ProposalRecord>> {
    connection
        .prepare_cached(
            "SELECT data FROM proposals WHERE session = ?1 AND proposed < ?2
             ORDER BY proposed DESC LIMIT ?3",
        )?
        .query_map(params![session, before, limit], |row| from_json(row, 0))?
        .collect()
}

/// The newest proposal with this id, or whose gate has it.
pub(super) fn find_proposal(
    connection: &Connection,
    session: i64,
    name: &MessageId,
) -> rusqlite::Result<Option<ProposalRecord>> {
    for column in ["id", "gate"] {
        let found = connection
            .prepare_cached(&format!(
                "SELECT data FROM proposals WHERE session = ?1 AND {column} = ?2
                 ORDER BY proposed DESC LIMIT 1"
            ))?
            .query_row(params![session, name.as_str()], |row| from_json(row, 0))
            .optional()?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Finds closed proposals by the end of their id; the parameters are the short id, the text, the
/// session's row if only one is searched, and the limit.
pub(super) const NAMED_PROPOSALS_SQL: &str =
    "SELECT sessions.id, proposals.data FROM proposals JOIN sessions ON sessions.no = session
     WHERE substr(proposals.id, -6) = ?1 AND substr(proposals.id, -length(?2)) = ?2
         AND (?3 IS NULL OR session = ?3) LIMIT ?4";

/// The same by the end of their gate's id.
pub(super) const NAMED_GATES_SQL: &str =
    "SELECT sessions.id, proposals.data FROM proposals JOIN sessions ON sessions.no = session
     WHERE proposals.gate IS NOT NULL AND substr(proposals.gate, -6) = ?1
         AND substr(proposals.gate, -length(?2)) = ?2
         AND (?3 IS NULL OR session = ?3) LIMIT ?4";

/// The proposals that this text names by their own id or by that of their gate, each with the id of
/// its session.
pub(super) fn proposals_named(
    connection: &Connection,
    session: Option<i64>,
    text: &str,
    limit: i64,
) -> rusqlite::Result<Vec<(String, ProposalRecord)>> {
    let start = text.len().saturating_sub(SHORT_ID_LENGTH);
    // An id is ASCII, so text that cannot be cut there names none.
    let Some(short) = text.get(start..) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for sql in [NAMED_PROPOSALS_SQL, NAMED_GATES_SQL] {
        let mut query = connection.prepare_cached(sql)?;
        let rows = query.query_map(params![short, text, session, limit], |row| {
            Ok((row.get(0)?, from_json(row, 1)?))
        })?;
        for row in rows {
            let row = row?;
            if !found.contains(&row) {
                found.push(row);
            }
        }
    }
    Ok(found)
}

pub(super) fn insert_snapshot(
    connection: &Connection,
    session: i64,
    snapshot: &LogSnapshot,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO snapshots (session, seq, hash, body) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            session,
            seq_column(snapshot.head.seq)?,
            snapshot.head.hash,
            snapshot.body.as_ref()
        ])?;
    connection
        .prepare_cached(
            "DELETE FROM snapshots WHERE session = ?1 AND seq NOT IN
                 (SELECT seq FROM snapshots WHERE session = ?1 ORDER BY seq DESC LIMIT ?2)",
        )?
        .execute([session, KEPT_SNAPSHOTS])?;
    Ok(())
}

/// The newest snapshot that `is_trusted` accepts, together with its checkpoint.
pub(super) fn latest_snapshot(
    connection: &Connection,
    session: i64,
    is_trusted: impl Fn(&super::super::Checkpoint) -> bool,
) -> rusqlite::Result<Option<LogSnapshot>> {
    let mut snapshots = connection.prepare_cached(
        "SELECT snapshots.seq, snapshots.hash, snapshots.body FROM snapshots
         JOIN entries ON entries.session = snapshots.session
             AND entries.seq = snapshots.seq AND entries.hash = snapshots.hash
         WHERE snapshots.session = ?1 ORDER BY snapshots.seq DESC",
    )?;
    let mut checkpoints = connection.prepare_cached(&format!(
        "SELECT {} FROM checkpoints WHERE session = ?1 AND seq = ?2",
        checkpoint_rows::COLUMNS
    ))?;
    let mut rows = snapshots.query([session])?;
    while let Some(row) = rows.next()? {
        let snapshot = LogSnapshot {
            head: LogHead {
                seq: get_seq(row, 0)?,
                hash: row.get(1)?,
            },
            body: Bytes::copy_from_slice(row.get_ref(2)?.as_bytes()?),
        };
        let seq = seq_column(snapshot.head.seq)?;
        let checkpoint = checkpoints.query_row(params![session, seq], checkpoint_rows::from_row);
        match checkpoint.optional()? {
            Some(checkpoint) if checkpoint.covers(&snapshot) && is_trusted(&checkpoint) => {
                return Ok(Some(snapshot));
            }
            Some(_) | None => tracing::warn!(
                seq = snapshot.head.seq,
                "a snapshot is not the one that was signed; it is not used"
            ),
        }
    }
    Ok(None)
}

fn to_json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

fn from_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into())
    })
}
