//! Questions to the store, answered from a few read-only connections.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use pvp_protocol::{SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::schema::{self, get_millis, get_optional_millis, get_seq, millis, seq_column};
use super::{Head, ReadBound, Record, SessionSummary, Standing, StoreError};

/// Connections kept open between questions; each holds a page cache of up to 2 MB.
const KEPT: usize = 4;

pub(super) const DUE: &str =
    "SELECT id FROM sessions WHERE next_deadline <= ?1 ORDER BY next_deadline LIMIT ?2";
pub(super) const NEXT_DEADLINE: &str =
    "SELECT min(next_deadline) FROM sessions WHERE next_deadline IS NOT NULL";

pub(super) const GATED: &str = "SELECT id FROM sessions WHERE open_gates > 0 ORDER BY no";

pub(super) struct Readers {
    dir: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            idle: Mutex::default(),
        }
    }

    pub(super) fn head(&self, session: &SessionId) -> Result<Option<Head>, StoreError> {
        self.ask(|connection| {
            connection
                .prepare_cached("SELECT head_seq, head_hash FROM sessions WHERE id = ?1")?
                .query_row([session.as_str()], |row| {
                    Ok(Head {
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
        most: ReadBound,
    ) -> Result<Vec<Record>, StoreError> {
        // Beyond what SQLite can count there is nothing to read.
        let Ok(from) = seq_column(from) else {
            return Ok(Vec::new());
        };
        self.ask(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT seq, meta, body, hash FROM entries
                 WHERE session = (SELECT no FROM sessions WHERE id = ?1) AND seq >= ?2
                 ORDER BY seq",
            )?;
            let mut rows = statement.query(params![session.as_str(), from])?;
            let mut records = Vec::new();
            let mut bytes = 0;
            while records.len() < most.records.max(1) {
                let Some(row) = rows.next()? else { break };
                let record = record(row)?;
                bytes += record.meta.len() + record.body.len();
                if bytes > most.bytes && !records.is_empty() {
                    break;
                }
                records.push(record);
            }
            Ok(records)
        })
    }

    pub(super) fn sessions(&self) -> Result<Vec<SessionSummary>, StoreError> {
        let rows = self.ask(|connection| {
            connection
                .prepare_cached(
                    "SELECT id, head_seq, created_at, updated_at, ended, next_deadline, name, open_gates
                     FROM sessions ORDER BY no",
                )?
                .query_map([], |row| Ok((row.get::<_, String>(0)?, summary(row)?)))?
                .collect::<rusqlite::Result<Vec<_>>>()
        })?;
        rows.into_iter()
            .map(|(id, summary)| Ok(summary(parse(&id)?)))
            .collect()
    }

    pub(super) fn gated(&self) -> Result<Vec<SessionId>, StoreError> {
        let ids = self.ask(|connection| {
            connection
                .prepare_cached(GATED)?
                .query_map([], |row| row.get::<_, String>(0))?
                .collect::<rusqlite::Result<Vec<_>>>()
        })?;
        ids.iter().map(|id| parse(id)).collect()
    }

    pub(super) fn count_sessions(&self) -> Result<u64, StoreError> {
        self.ask(|connection| {
            connection
                .prepare_cached("SELECT count(*) FROM sessions")?
                .query_row([], |row| get_seq(row, 0))
        })
    }

    pub(super) fn due(&self, now: Timestamp, most: usize) -> Result<Vec<SessionId>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let ids = self.ask(|connection| {
            connection
                .prepare_cached(DUE)?
                .query_map(params![millis(now), most], |row| row.get::<_, String>(0))?
                .collect::<rusqlite::Result<Vec<_>>>()
        })?;
        ids.iter().map(|id| parse(id)).collect()
    }

    pub(super) fn next_deadline(&self) -> Result<Option<Timestamp>, StoreError> {
        self.ask(|connection| {
            connection
                .prepare_cached(NEXT_DEADLINE)?
                .query_row([], |row| get_optional_millis(row, 0))
        })
    }

    /// Asks on an idle connection; one that failed is not kept.
    fn ask<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let connection = match kept {
            Some(connection) => connection,
            None => schema::open_to_read(&self.dir)?,
        };
        let answer = question(&connection)?;
        let mut idle = idle();
        if idle.len() < KEPT {
            idle.push(connection);
        }
        Ok(answer)
    }
}

/// Reads the columns seq, meta, body, hash.
pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    // Text is taken too, so that a row edited by hand is read and then found by its hash.
    let bytes = |column| -> rusqlite::Result<Bytes> {
        Ok(Bytes::copy_from_slice(row.get_ref(column)?.as_bytes()?))
    };
    Ok(Record {
        seq: get_seq(row, 0)?,
        meta: bytes(1)?,
        body: bytes(2)?,
        hash: row.get(3)?,
    })
}

fn summary(row: &Row<'_>) -> rusqlite::Result<impl FnOnce(SessionId) -> SessionSummary + use<>> {
    let (seq, created_at, updated_at) =
        (get_seq(row, 1)?, get_millis(row, 2)?, get_millis(row, 3)?);
    let standing = Standing {
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
        standing,
    })
}

fn parse(id: &str) -> Result<SessionId, StoreError> {
    SessionId::parse(id).map_err(|error| StoreError::Damaged(format!("session `{id}`: {error}")))
}
