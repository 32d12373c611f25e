//! Writes groups of appends to the database, one transaction per group.

use std::collections::HashMap;

use ed25519_dalek::SigningKey;
use pvp_protocol::{SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::chain;
use super::schema::{get_seq, millis_column, seq_column};
use super::{
    AppendError, AppendRequest, CHECKPOINT_EVERY, Checkpoint, CheckpointTiming, Hash, LogHead,
};

/// Sessions cached between groups, about 200 bytes each; above this the cache is cleared.
const MAX_CACHED_LOGS: usize = 10_000;

/// How many logs get their last checkpoint in one transaction when the store is closed.
const MAX_CHECKPOINTS_PER_TRANSACTION: usize = 1024;

/// Appends to logs and signs checkpoints, with a cache of what the database says about the sessions
/// that were written recently.
pub(super) struct LogAppender {
    key: SigningKey,
    cache: HashMap<SessionId, CachedLog>,
}

#[derive(Clone, Copy)]
struct CachedLog {
    row_id: i64,
    head: LogHead,
    checkpoint_seq: u64,
}

/// The outcome of each append of a committed group.
pub(super) type AppendResults = Vec<Result<(), AppendError>>;

impl LogAppender {
    pub(super) fn new(key: SigningKey) -> Self {
        Self {
            key,
            cache: HashMap::new(),
        }
    }

    /// Empties the cache, which is wrong after a transaction that did not commit.
    pub(super) fn clear_cache(&mut self) {
        self.cache.clear();
    }

    /// Writes and commits a group. An error means that none of it was written.
    pub(super) fn commit_group(
        &mut self,
        connection: &mut Connection,
        group: &[AppendRequest],
    ) -> rusqlite::Result<AppendResults> {
        if self.cache.len() > MAX_CACHED_LOGS {
            self.clear_cache();
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let results = group
            .iter()
            .map(|append| self.append(&transaction, append))
            .collect::<rusqlite::Result<_>>()?;
        transaction.commit()?;
        Ok(results)
    }

    /// Writes one append. It checks everything before the first insert, so that a refused append
    /// leaves nothing behind.
    fn append(
        &mut self,
        connection: &Connection,
        append: &AppendRequest,
    ) -> rusqlite::Result<Result<(), AppendError>> {
        let cached = match self.cache.get(&append.session) {
            Some(log) => Some(*log),
            None => find_log(connection, &append.session)?,
        };
        let found = cached.map_or_else(|| LogHead::empty(&append.session), |log| log.head);
        if found != append.prev {
            let expected = append.prev;
            return Ok(Err(AppendError::Conflict { expected, found }));
        }
        let head = match chain::verify_append(append) {
            Ok(head) => head,
            Err(error) => return Ok(Err(error)),
        };
        let mut log = match cached {
            Some(log) => log,
            None => insert_session(connection, append)?,
        };
        insert_entries(connection, log.row_id, append)?;
        log.head = head;
        if needs_checkpoint(&log, append) {
            Checkpoint::sign(&self.key, &append.session, head, append.at)
                .insert(connection, log.row_id)?;
            log.checkpoint_seq = head.seq;
        }
        update_session(connection, &log, append)?;
        self.cache.insert(append.session.clone(), log);
        Ok(Ok(()))
    }

    /// Makes a checkpoint of every log that has grown since its last one.
    pub(super) fn checkpoint_all(
        &mut self,
        connection: &mut Connection,
        at: Timestamp,
    ) -> rusqlite::Result<()> {
        self.clear_cache();
        while self.checkpoint_batch(connection, at)? == MAX_CHECKPOINTS_PER_TRANSACTION {}
        Ok(())
    }

    fn checkpoint_batch(
        &self,
        connection: &mut Connection,
        at: Timestamp,
    ) -> rusqlite::Result<usize> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let uncovered: Vec<(i64, String, u64, Hash)> = transaction
            .prepare_cached(
                "SELECT no, id, head_seq, head_hash FROM sessions
                 WHERE head_seq > sealed_seq LIMIT ?1",
            )?
            .query_map([MAX_CHECKPOINTS_PER_TRANSACTION as i64], |row| {
                Ok((row.get(0)?, row.get(1)?, get_seq(row, 2)?, row.get(3)?))
            })?
            .collect::<rusqlite::Result<_>>()?;
        for (no, id, seq, hash) in &uncovered {
            let session = SessionId::parse(id)
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
            let head = LogHead {
                seq: *seq,
                hash: *hash,
            };
            Checkpoint::sign(&self.key, &session, head, at).insert(&transaction, *no)?;
            transaction
                .prepare_cached("UPDATE sessions SET sealed_seq = head_seq WHERE no = ?1")?
                .execute([no])?;
        }
        transaction.commit()?;
        Ok(uncovered.len())
    }
}

fn needs_checkpoint(log: &CachedLog, append: &AppendRequest) -> bool {
    let uncovered = log.head.seq.saturating_sub(log.checkpoint_seq);
    let requested = append.index.ended || append.checkpoint == CheckpointTiming::Now;
    uncovered >= CHECKPOINT_EVERY || (requested && uncovered > 0)
}

fn find_log(connection: &Connection, session: &SessionId) -> rusqlite::Result<Option<CachedLog>> {
    connection
        .prepare_cached("SELECT no, head_seq, head_hash, sealed_seq FROM sessions WHERE id = ?1")?
        .query_row([session.as_str()], |row| {
            Ok(CachedLog {
                row_id: row.get(0)?,
                head: LogHead {
                    seq: get_seq(row, 1)?,
                    hash: row.get(2)?,
                },
                checkpoint_seq: get_seq(row, 3)?,
            })
        })
        .optional()
}

fn insert_session(connection: &Connection, append: &AppendRequest) -> rusqlite::Result<CachedLog> {
    connection
        .prepare_cached(
            "INSERT INTO sessions
                 (id, head_seq, head_hash, created_at, updated_at, ended, sealed_seq)
             VALUES (?1, 0, ?2, ?3, ?3, 0, 0)",
        )?
        .execute(params![
            append.session.as_str(),
            append.prev.hash,
            millis_column(append.at)
        ])?;
    Ok(CachedLog {
        row_id: connection.last_insert_rowid(),
        head: append.prev,
        checkpoint_seq: 0,
    })
}

fn insert_entries(
    connection: &Connection,
    session: i64,
    append: &AppendRequest,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO entries (session, seq, meta, body, hash) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for record in &append.records {
        statement.execute(params![
            session,
            seq_column(record.seq)?,
            record.meta.as_ref(),
            record.body.as_ref(),
            record.hash
        ])?;
    }
    Ok(())
}

fn update_session(
    connection: &Connection,
    log: &CachedLog,
    append: &AppendRequest,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE sessions SET head_seq = ?2, head_hash = ?3, updated_at = ?4, ended = ?5,
                 next_deadline = ?6, sealed_seq = ?7, name = ?8, open_gates = ?9
             WHERE no = ?1",
        )?
        .execute(params![
            log.row_id,
            seq_column(log.head.seq)?,
            log.head.hash,
            millis_column(append.at),
            append.index.ended,
            append.index.next_deadline.map(millis_column),
            seq_column(log.checkpoint_seq)?,
            append.index.name,
            append.index.open_gates
        ])?;
    Ok(())
}
