//! Reads whole logs from a data directory, for audits and exports. A server may be using it.

use std::path::Path;

use pvp_protocol::SessionId;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::audit::{AuditError, LogItem};
use super::super::{Checkpoint, Hash, LogHead, OpenError, PublicKey, Tombstone};
use super::read_pool::record_from_row;
use super::schema::{self, get_seq, seq_column};
use super::{checkpoint_rows, deletion};

/// A data directory that is open for reading.
pub(in crate::store) struct LogReader(Connection);

/// One session as its row describes it.
pub(in crate::store) struct StoredLog {
    row_id: i64,
    pub(in crate::store) session: SessionId,
    /// Where the row says that the log ends.
    pub(in crate::store) head: LogHead,
}

impl LogReader {
    pub(in crate::store) fn open(dir: &Path) -> Result<Self, OpenError> {
        schema::open_read_only(dir).map(Self)
    }

    /// Reads each session in its own transaction, so that its rows are consistent and the WAL is
    /// not held for long.
    pub(in crate::store) fn for_each_session(
        &self,
        mut each: impl FnMut(&StoredLog) -> Result<(), AuditError>,
    ) -> Result<(), AuditError> {
        let mut last = i64::MIN;
        loop {
            let snapshot = self.0.unchecked_transaction()?;
            let next = snapshot
                .prepare_cached(
                    "SELECT no, id, head_seq, head_hash FROM sessions
                     WHERE no > ?1 ORDER BY no LIMIT 1",
                )?
                .query_row([last], |row| Ok((row.get(0)?, log_from_row(row))))
                .optional()?;
            let Some((no, log)) = next else { return Ok(()) };
            let log =
                log.map_err(|error| AuditError::Damaged(format!("session row {no}: {error}")))?;
            each(&log)?;
            last = no;
        }
    }

    /// Passes the records and checkpoints of a log to `each`, in order.
    pub(in crate::store) fn for_each_item(
        &self,
        log: &StoredLog,
        mut each: impl FnMut(LogItem) -> Result<(), AuditError>,
    ) -> Result<(), AuditError> {
        let mut records = self.0.prepare_cached(
            "SELECT seq, meta, body, hash FROM entries WHERE session = ?1 ORDER BY seq",
        )?;
        let mut checkpoints = self.0.prepare_cached(&format!(
            "SELECT {} FROM checkpoints WHERE session = ?1 ORDER BY seq",
            checkpoint_rows::COLUMNS
        ))?;
        let mut records = records.query_map([log.row_id], record_from_row)?;
        let mut checkpoints = checkpoints
            .query_map([log.row_id], checkpoint_rows::from_row)?
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

    /// Whether there is a session of this id; if that cannot be read, there is.
    pub(in crate::store) fn has_session(&self, session: &SessionId) -> bool {
        let sql = "SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ?1)";
        let found = self.0.query_row(sql, [session.as_str()], |row| row.get(0));
        found.unwrap_or(true)
    }

    /// Every tombstone, oldest session first.
    pub(in crate::store) fn tombstones(&self) -> Result<Vec<Tombstone>, AuditError> {
        let mut statement = self.0.prepare(&format!(
            "SELECT {} FROM tombstones ORDER BY no",
            deletion::COLUMNS
        ))?;
        let rows = statement.query_map([], deletion::from_row)?;
        rows.map(|row| row?.map_err(AuditError::Damaged)).collect()
    }

    /// The last checkpoint of a log, good or not.
    pub(in crate::store) fn last_checkpoint(
        &self,
        log: &StoredLog,
    ) -> Result<Option<Checkpoint>, AuditError> {
        Ok(checkpoint_rows::find_last(&self.0, log.row_id)?)
    }

    /// The hash of an entry as it is stored.
    pub(in crate::store) fn entry_hash(
        &self,
        log: &StoredLog,
        seq: u64,
    ) -> Result<Option<Hash>, AuditError> {
        let found = self
            .0
            .prepare_cached("SELECT hash FROM entries WHERE session = ?1 AND seq = ?2")?
            .query_row(params![log.row_id, seq_column(seq)?], |row| row.get(0));
        Ok(found.optional()?)
    }

    /// Fails if there are rows that belong to no session, because nothing else would read them.
    pub(in crate::store) fn check_no_orphans(&self) -> Result<(), AuditError> {
        for table in ["entries", "checkpoints"] {
            let stray = self
                .0
                .query_row(
                    &format!(
                        "SELECT session, min(seq) FROM {table}
                         WHERE session NOT IN (SELECT no FROM sessions)
                             AND session NOT IN (SELECT no FROM tombstones WHERE NOT purged)
                         GROUP BY session LIMIT 1"
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
}

/// Whether a checkpoint was signed with another key than this.
pub(super) fn has_foreign_checkpoints(
    connection: &Connection,
    key: &PublicKey,
    dir: &Path,
) -> Result<bool, OpenError> {
    connection
        .query_row(
            "SELECT EXISTS (SELECT 1 FROM checkpoints WHERE key <> ?1)",
            [key.as_slice()],
            |row| row.get(0),
        )
        .map_err(|error| OpenError::Database {
            path: dir.to_owned(),
            source: Box::new(error),
        })
}

fn log_from_row(row: &Row<'_>) -> anyhow::Result<StoredLog> {
    Ok(StoredLog {
        row_id: row.get(0)?,
        session: SessionId::parse(row.get_ref(1)?.as_str()?)?,
        head: LogHead {
            seq: get_seq(row, 2)?,
            hash: row.get(3)?,
        },
    })
}
