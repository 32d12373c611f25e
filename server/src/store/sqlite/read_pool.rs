//! Reads the database through a small pool of read-only connections.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use pvp_protocol::{MessageId, SessionId, Timestamp, hex};
use pvp_session::ProposalRecord;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::audit::{Anchor, EntryFault};
use super::super::output_slice::find_slice;
use super::super::{
    AnchorRow, Checkpoint, LogEnd, LogHead, LogRecord, LogState, LogUsage, MadeSessions,
    OutputQuery, OutputSlice, PublicKey, ReadLimit, SessionFilter, SessionIndex, SessionSummary,
    StoreError, Tombstone, WHAT_TO_DO_ABOUT_DAMAGE,
};
use super::schema::{self, get_millis, get_optional_millis, get_seq, millis_column, seq_column};
use super::{checkpoint_rows, deletion, index_rows};

/// Connections kept open between queries; each holds a page cache of up to 512 KiB.
const MAX_IDLE_CONNECTIONS: usize = 4;

pub(super) const DUE_SESSIONS_SQL: &str =
    "SELECT id FROM sessions WHERE next_deadline <= ?1 ORDER BY next_deadline LIMIT ?2";
pub(super) const NEXT_DEADLINE_SQL: &str =
    "SELECT min(next_deadline) FROM sessions WHERE next_deadline IS NOT NULL";

pub(super) const MADE_BY_SQL: &str =
    "SELECT count(*), coalesce(sum(NOT ended), 0) FROM sessions WHERE made_by = ?1";

pub(super) const ENDED_SQL: &str =
    "SELECT id FROM sessions WHERE ended AND updated_at < ?1 ORDER BY updated_at LIMIT ?2";

pub(super) const OPEN_GATES_SQL: &str = "SELECT id FROM sessions WHERE open_gates > 0 ORDER BY no";

pub(super) struct ReadPool {
    dir: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl ReadPool {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            idle: Mutex::default(),
        }
    }

    pub(super) fn head(&self, session: &SessionId) -> Result<Option<LogHead>, StoreError> {
        self.with_connection(|connection| {
            connection
                .prepare_cached("SELECT head_seq, head_hash FROM sessions WHERE id = ?1")?
                .query_row([session.as_str()], |row| {
                    Ok(LogHead {
                        seq: get_seq(row, 0)?,
                        hash: row.get(1)?,
                    })
                })
                .optional()
        })
    }

    pub(super) fn log_end(
        &self,
        session: &SessionId,
        key: &PublicKey,
    ) -> Result<Option<LogEnd>, StoreError> {
        let found = self.with_connection(|connection| {
            find_end(&*connection.unchecked_transaction()?, session)
        })?;
        found.map(|found| found.verify(session, key)).transpose()
    }

    pub(super) fn checkpoint_up_to(
        &self,
        session: &SessionId,
        seq: u64,
    ) -> Result<Option<Checkpoint>, StoreError> {
        let seq = seq_column(seq).unwrap_or(i64::MAX);
        self.with_connection(|connection| match row_id(connection, session)? {
            Some(session) => checkpoint_rows::find_up_to(connection, session, seq),
            None => Ok(None),
        })
    }

    pub(super) fn open_log(
        &self,
        session: &SessionId,
        key: &PublicKey,
    ) -> Result<Option<LogState>, StoreError> {
        let found = self.with_connection(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            let Some(found) = find_end(&snapshot, session)? else {
                return Ok(None);
            };
            let is_trusted =
                |checkpoint: &Checkpoint| checkpoint.key == *key && checkpoint.is_signed(session);
            let latest = index_rows::latest_snapshot(&snapshot, found.row_id, is_trusted)?;
            Ok(Some((found, latest)))
        })?;
        let Some((found, snapshot)) = found else {
            return Ok(None);
        };
        Ok(Some(LogState {
            end: found.verify(session, key)?,
            indexed: found.indexed,
            snapshot,
            usage: found.usage,
        }))
    }

    pub(super) fn closed_proposals(
        &self,
        session: &SessionId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<ProposalRecord>, StoreError> {
        let before = seq_column(before).unwrap_or(i64::MAX);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.with_connection(|connection| match row_id(connection, session)? {
            Some(session) => index_rows::closed_proposals(connection, session, before, limit),
            None => Ok(Vec::new()),
        })
    }

    pub(super) fn find_closed_proposal(
        &self,
        session: &SessionId,
        name: &MessageId,
    ) -> Result<Option<ProposalRecord>, StoreError> {
        self.with_connection(|connection| match row_id(connection, session)? {
            Some(session) => index_rows::find_proposal(connection, session, name),
            None => Ok(None),
        })
    }

    pub(super) fn closed_proposals_named(
        &self,
        session: Option<&SessionId>,
        text: &str,
        limit: usize,
    ) -> Result<Vec<(SessionId, ProposalRecord)>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.with_connection(|connection| {
            let session = match session {
                None => None,
                Some(session) => match row_id(connection, session)? {
                    None => return Ok(Vec::new()),
                    found => found,
                },
            };
            index_rows::proposals_named(connection, session, text, limit)
        })?
        .into_iter()
        .map(|(session, proposal)| Ok((parse_session_id(&session)?, proposal)))
        .collect()
    }

    pub(super) fn output_slice(
        &self,
        session: &SessionId,
        query: &OutputQuery,
    ) -> Result<OutputSlice, StoreError> {
        self.with_connection(|connection| {
            let Some(session) = row_id(connection, session)? else {
                return Ok(Ok(OutputSlice::default()));
            };
            Ok(find_slice(query, |stream, chunk| {
                let read = index_rows::read_chunk(connection, session, query.run, stream, chunk);
                Ok(read?)
            }))
        })?
    }

    pub(super) fn read(
        &self,
        session: &SessionId,
        from: u64,
        limit: ReadLimit,
    ) -> Result<Vec<LogRecord>, StoreError> {
        // No entry has a sequence number that SQLite cannot store.
        let Ok(from) = seq_column(from) else {
            return Ok(Vec::new());
        };
        self.with_connection(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT seq, meta, body, hash FROM entries
                 WHERE session = (SELECT no FROM sessions WHERE id = ?1) AND seq >= ?2
                 ORDER BY seq",
            )?;
            let mut rows = statement.query(params![session.as_str(), from])?;
            let mut records = Vec::new();
            let mut bytes = 0;
            while records.len() < limit.records.max(1) {
                let Some(row) = rows.next()? else { break };
                let record = record_from_row(row)?;
                bytes += record.meta.len() + record.body.len();
                if bytes > limit.bytes && !records.is_empty() {
                    break;
                }
                records.push(record);
            }
            Ok(records)
        })
    }

    pub(super) fn read_each(
        &self,
        session: &SessionId,
        mut seqs: Vec<u64>,
    ) -> Result<Vec<LogRecord>, StoreError> {
        seqs.sort_unstable();
        seqs.dedup();
        self.with_connection(|connection| {
            let session = row_id(connection, session)?;
            let mut statement = connection.prepare_cached(
                "SELECT seq, meta, body, hash FROM entries WHERE session = ?1 AND seq = ?2",
            )?;
            let mut records = Vec::with_capacity(seqs.len());
            for seq in seqs.iter().filter_map(|seq| seq_column(*seq).ok()) {
                let record = statement.query_row(params![session, seq], record_from_row);
                records.extend(record.optional()?);
            }
            Ok(records)
        })
    }

    pub(super) fn list_sessions(
        &self,
        filter: &SessionFilter,
        limit: usize,
    ) -> Result<Vec<SessionSummary>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.with_connection(|connection| {
            connection
                .prepare_cached(
                    "SELECT id, head_seq, created_at, updated_at, ended, next_deadline, name,
                         open_gates, made_by, log_bytes, context_bytes
                     FROM sessions
                     WHERE (?1 IS NULL OR id = ?1)
                         AND (?2 IS NULL OR no < (SELECT no FROM sessions WHERE id = ?2))
                         AND (?3 IS NULL OR ended = ?3)
                     ORDER BY no DESC LIMIT ?4",
                )?
                .query_map(
                    params![
                        filter.session.as_ref().map(SessionId::as_str),
                        filter.before.as_ref().map(SessionId::as_str),
                        filter.ended,
                        limit
                    ],
                    |row| Ok((row.get::<_, String>(0)?, summary_from_row(row)?)),
                )?
                .collect::<rusqlite::Result<Vec<_>>>()
        })?;
        rows.into_iter()
            .map(|(id, summary)| Ok(summary(parse_session_id(&id)?)))
            .collect()
    }

    pub(super) fn sessions_with_open_gates(&self) -> Result<Vec<SessionId>, StoreError> {
        let ids = self.with_connection(|connection| {
            connection
                .prepare_cached(OPEN_GATES_SQL)?
                .query_map([], |row| row.get::<_, String>(0))?
                .collect::<rusqlite::Result<Vec<_>>>()
        })?;
        ids.iter().map(|id| parse_session_id(id)).collect()
    }

    pub(super) fn count_sessions(&self) -> Result<u64, StoreError> {
        self.with_connection(|connection| {
            connection
                .prepare_cached("SELECT count(*) FROM sessions")?
                .query_row([], |row| get_seq(row, 0))
        })
    }

    pub(super) fn sessions_made_by(&self, token: &str) -> Result<MadeSessions, StoreError> {
        self.with_connection(|connection| {
            connection
                .prepare_cached(MADE_BY_SQL)?
                .query_row([token], |row| {
                    Ok(MadeSessions {
                        stored: get_seq(row, 0)?,
                        open: get_seq(row, 1)?,
                    })
                })
        })
    }

    pub(super) fn due_sessions(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<SessionId>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let ids = self.with_connection(|connection| {
            connection
                .prepare_cached(DUE_SESSIONS_SQL)?
                .query_map(params![millis_column(now), limit], |row| {
                    row.get::<_, String>(0)
                })?
                .collect::<rusqlite::Result<Vec<_>>>()
        })?;
        ids.iter().map(|id| parse_session_id(id)).collect()
    }

    pub(super) fn next_deadline(&self) -> Result<Option<Timestamp>, StoreError> {
        self.with_connection(|connection| {
            connection
                .prepare_cached(NEXT_DEADLINE_SQL)?
                .query_row([], |row| get_optional_millis(row, 0))
        })
    }

    pub(super) fn last_written_at(&self) -> Result<Option<Timestamp>, StoreError> {
        self.with_connection(|connection| {
            connection
                .prepare_cached("SELECT max(updated_at) FROM sessions")?
                .query_row([], |row| get_optional_millis(row, 0))
        })
    }

    pub(super) fn ended_sessions(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<SessionId>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let ids = self.with_connection(|connection| {
            connection
                .prepare_cached(ENDED_SQL)?
                .query_map(params![millis_column(before), limit], |row| {
                    row.get::<_, String>(0)
                })?
                .collect::<rusqlite::Result<Vec<_>>>()
        })?;
        ids.iter().map(|id| parse_session_id(id)).collect()
    }

    pub(super) fn find_tombstone(
        &self,
        session: &SessionId,
    ) -> Result<Option<Tombstone>, StoreError> {
        let found = self.with_connection(|connection| deletion::find(connection, session))?;
        found.transpose().map_err(StoreError::Damaged)
    }

    pub(super) fn anchors(
        &self,
        after: i64,
        limit: usize,
        key: &PublicKey,
    ) -> Result<Vec<AnchorRow>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.with_connection(|connection| {
            let rows: Vec<(i64, String)> = connection
                .prepare_cached("SELECT no, id FROM sessions WHERE no > ?1 ORDER BY no LIMIT ?2")?
                .query_map([after, limit], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<_>>()?;
            rows.into_iter()
                .map(|(row, id)| {
                    let found = checkpoint_rows::find_last(connection, row)?;
                    let good =
                        found
                            .zip(SessionId::parse(&id).ok())
                            .filter(|(checkpoint, session)| {
                                checkpoint.key == *key && checkpoint.is_signed(session)
                            });
                    let anchor = good.map(|(checkpoint, session)| Anchor {
                        session,
                        checkpoint,
                    });
                    Ok(AnchorRow { row, anchor })
                })
                .collect()
        })
    }

    /// Runs a query on an idle connection, or on a new one. A connection that failed is not kept.
    fn with_connection<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let pooled = idle().pop();
        let connection = match pooled {
            Some(connection) => connection,
            None => schema::open_read_only(&self.dir)?,
        };
        let result = query(&connection)?;
        let mut idle = idle();
        if idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push(connection);
        }
        Ok(result)
    }
}

/// Where a log ends as its rows say.
struct FoundEnd {
    row_id: i64,
    head: LogHead,
    indexed: bool,
    checkpoint: Option<Checkpoint>,
    /// What the session has used of its quotas.
    usage: LogUsage,
}

impl FoundEnd {
    /// Checks that this server has signed the last checkpoint. A rotation signs it again, so no
    /// earlier key will do.
    fn verify(&self, session: &SessionId, key: &PublicKey) -> Result<LogEnd, StoreError> {
        let Some(checkpoint) = &self.checkpoint else {
            return Ok(LogEnd {
                head: self.head,
                signed: LogHead::empty(session),
            });
        };
        let fault = match checkpoint.key == *key {
            false => Some(EntryFault::CheckpointKey(hex::encode(&checkpoint.key))),
            true if !checkpoint.is_signed(session) => Some(EntryFault::CheckpointSignature),
            true => None,
        };
        match fault {
            Some(fault) => Err(StoreError::Damaged(format!(
                "entry {}: {fault}; {WHAT_TO_DO_ABOUT_DAMAGE}",
                checkpoint.seq
            ))),
            None => Ok(LogEnd {
                head: self.head,
                signed: checkpoint.head(),
            }),
        }
    }
}

/// Finds the head of a log and its last checkpoint. The caller has begun a transaction, so that both
/// are of one time.
fn find_end(connection: &Connection, session: &SessionId) -> rusqlite::Result<Option<FoundEnd>> {
    let found = connection
        .prepare_cached(
            "SELECT no, head_seq, head_hash, indexed, log_bytes, context_bytes
             FROM sessions WHERE id = ?1",
        )?
        .query_row([session.as_str()], |row| {
            Ok(FoundEnd {
                row_id: row.get(0)?,
                head: LogHead {
                    seq: get_seq(row, 1)?,
                    hash: row.get(2)?,
                },
                indexed: row.get(3)?,
                usage: usage_from_row(row, 4)?,
                checkpoint: None,
            })
        })
        .optional()?;
    let Some(mut found) = found else {
        return Ok(None);
    };
    found.checkpoint = checkpoint_rows::find_last(connection, found.row_id)?;
    Ok(Some(found))
}

fn row_id(connection: &Connection, session: &SessionId) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT no FROM sessions WHERE id = ?1")?
        .query_row([session.as_str()], |row| row.get(0))
        .optional()
}

/// Reads the columns seq, meta, body, hash.
pub(super) fn record_from_row(row: &Row<'_>) -> rusqlite::Result<LogRecord> {
    // Text columns are accepted too, so that a row edited by hand is read and then fails its hash.
    let bytes = |column| -> rusqlite::Result<Bytes> {
        Ok(Bytes::copy_from_slice(row.get_ref(column)?.as_bytes()?))
    };
    Ok(LogRecord {
        seq: get_seq(row, 0)?,
        meta: bytes(1)?,
        body: bytes(2)?,
        hash: row.get(3)?,
    })
}

/// Reads the columns log_bytes and context_bytes, of which this is the first.
fn usage_from_row(row: &Row<'_>, first: usize) -> rusqlite::Result<LogUsage> {
    Ok(LogUsage {
        log_bytes: get_seq(row, first)?,
        context_bytes: get_seq(row, first + 1)?,
    })
}

fn summary_from_row(
    row: &Row<'_>,
) -> rusqlite::Result<impl FnOnce(SessionId) -> SessionSummary + use<>> {
    let (seq, created_at, updated_at) =
        (get_seq(row, 1)?, get_millis(row, 2)?, get_millis(row, 3)?);
    let index = SessionIndex {
        ended: row.get(4)?,
        next_deadline: get_optional_millis(row, 5)?,
        name: row.get(6)?,
        open_gates: row.get(7)?,
        made_by: row.get(8)?,
        usage: usage_from_row(row, 9)?,
    };
    Ok(move |session| SessionSummary {
        session,
        seq,
        created_at,
        updated_at,
        index,
    })
}

fn parse_session_id(id: &str) -> Result<SessionId, StoreError> {
    SessionId::parse(id).map_err(|error| StoreError::Damaged(format!("session `{id}`: {error}")))
}
