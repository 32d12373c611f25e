//! Reads the database through a small pool of read-only connections.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use pvp_protocol::{SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::schema::{self, get_millis, get_optional_millis, get_seq, millis_column, seq_column};
use super::{LogHead, LogRecord, ReadLimit, SessionIndex, SessionSummary, StoreError};

/// Connections kept open between queries; each holds a page cache of up to 2 MB.
const MAX_IDLE_CONNECTIONS: usize = 4;

pub(super) const DUE_SESSIONS_SQL: &str =
    "SELECT id FROM sessions WHERE next_deadline <= ?1 ORDER BY next_deadline LIMIT ?2";
pub(super) const NEXT_DEADLINE_SQL: &str =
    "SELECT min(next_deadline) FROM sessions WHERE next_deadline IS NOT NULL";

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

    pub(super) fn list_sessions(&self) -> Result<Vec<SessionSummary>, StoreError> {
        let rows = self.with_connection(|connection| {
            connection
                .prepare_cached(
                    "SELECT id, head_seq, created_at, updated_at, ended, next_deadline, name, open_gates
                     FROM sessions ORDER BY no",
                )?
                .query_map([], |row| Ok((row.get::<_, String>(0)?, summary_from_row(row)?)))?
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
