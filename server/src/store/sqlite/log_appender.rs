//! Writes groups of appends to the database, one transaction per group.

use std::collections::HashMap;
use std::mem;

use ed25519_dalek::SigningKey;
use pvp_protocol::{SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::super::chain;
use super::super::checkpoint::snapshot_hash;
use super::super::{
    AppendError, AppendRequest, CHECKPOINT_EVERY, Checkpoint, CheckpointTiming, LogHead,
    SessionDeletion, StoreError, Tombstone,
};
use super::schema::{get_optional_millis, get_seq, millis_column, seq_column};
use super::{checkpoint_rows, deletion, index_rows};

/// Sessions cached between groups, about 200 bytes each; above this the cache is cleared.
const MAX_CACHED_LOGS: usize = 10_000;

/// How many logs get their last checkpoint in one transaction when the store is closed.
const MAX_CHECKPOINTS_PER_TRANSACTION: usize = 1024;

/// Appends to logs and signs checkpoints, with a cache of what the database says about the sessions
/// that were written recently.
pub(super) struct LogAppender {
    key: SigningKey,
    /// When the range of the key begins; it signs nothing earlier.
    key_from: Timestamp,
    cache: HashMap<SessionId, CachedLog>,
    /// Where the logs end that this appender has written to and not signed up to their end.
    unsigned_heads: HashMap<SessionId, LogHead>,
}

#[derive(Clone, Copy)]
struct CachedLog {
    row_id: i64,
    head: LogHead,
    checkpoint_seq: u64,
    /// The time of the last checkpoint; the next one is not earlier, even if the clock was set back.
    checkpoint_at: Timestamp,
}

/// The outcome of each append of a committed group.
pub(super) type AppendResults = Vec<Result<(), AppendError>>;

impl LogAppender {
    pub(super) fn new(key: SigningKey, key_from: Timestamp) -> Self {
        Self {
            key,
            key_from,
            cache: HashMap::new(),
            unsigned_heads: HashMap::new(),
        }
    }

    /// Empties the cache, which is wrong after a transaction that did not commit.
    pub(super) fn clear_cache(&mut self) {
        self.cache.clear();
    }

    /// Writes and commits a group. An error means that none of it was written.
    pub(super) fn commit_group<'a>(
        &mut self,
        connection: &mut Connection,
        group: impl Iterator<Item = &'a AppendRequest>,
    ) -> rusqlite::Result<AppendResults> {
        if self.cache.len() > MAX_CACHED_LOGS {
            self.clear_cache();
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let results = group
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
        if cached.is_none() && deletion::is_deleted(connection, &append.session)? {
            let why = "the session was deleted".to_owned();
            return Ok(Err(AppendError::Unwritable(why)));
        }
        let mut log = match cached {
            Some(log) => log,
            None => insert_session(connection, append)?,
        };
        insert_entries(connection, log.row_id, append)?;
        index_rows::insert_changes(connection, log.row_id, &append.index_changes)?;
        log.head = head;
        let at = append.at.max(log.checkpoint_at).max(self.key_from);
        if let Some(snapshot) = &append.snapshot {
            index_rows::insert_snapshot(connection, log.row_id, snapshot)?;
            let hash = Some(snapshot_hash(&snapshot.body));
            let checkpoint = Checkpoint::sign(&self.key, &append.session, snapshot.head, at, hash);
            checkpoint_rows::insert(connection, log.row_id, &checkpoint)?;
            (log.checkpoint_seq, log.checkpoint_at) = (snapshot.head.seq, at);
        }
        if needs_checkpoint(&log, append) {
            let checkpoint = Checkpoint::sign(&self.key, &append.session, head, at, None);
            checkpoint_rows::insert(connection, log.row_id, &checkpoint)?;
            (log.checkpoint_seq, log.checkpoint_at) = (head.seq, at);
        }
        update_session(connection, &log, append)?;
        match log.checkpoint_seq < log.head.seq {
            true => self.unsigned_heads.insert(append.session.clone(), log.head),
            false => self.unsigned_heads.remove(&append.session),
        };
        self.cache.insert(append.session.clone(), log);
        Ok(Ok(()))
    }

    /// Deletes a session, and leaves a tombstone.
    pub(super) fn delete(
        &mut self,
        connection: &mut Connection,
        deletion: &SessionDeletion,
    ) -> rusqlite::Result<Result<Tombstone, StoreError>> {
        self.cache.remove(&deletion.session);
        deletion::bury(connection, &self.key, self.key_from, deletion)
    }

    /// Makes a checkpoint of every log that this appender has written to since its last one. Others
    /// may have been altered, and are signed only after a session has verified them.
    pub(super) fn checkpoint_all(
        &mut self,
        connection: &mut Connection,
        at: Timestamp,
    ) -> rusqlite::Result<()> {
        let heads: Vec<_> = mem::take(&mut self.unsigned_heads).into_iter().collect();
        self.sign_heads(connection, at, &heads)
    }

    /// Makes a checkpoint of each of these logs, unless it ends elsewhere.
    pub(super) fn sign_heads(
        &mut self,
        connection: &mut Connection,
        at: Timestamp,
        heads: &[(SessionId, LogHead)],
    ) -> rusqlite::Result<()> {
        self.clear_cache();
        for part in heads.chunks(MAX_CHECKPOINTS_PER_TRANSACTION) {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for (session, head) in part {
                self.sign_head(&transaction, at, session, *head)?;
            }
            transaction.commit()?;
        }
        Ok(())
    }

    fn sign_head(
        &self,
        connection: &Connection,
        at: Timestamp,
        session: &SessionId,
        head: LogHead,
    ) -> rusqlite::Result<()> {
        // A row that was damaged must not keep the others from their checkpoints.
        let found = find_log(connection, session);
        let Some(log) = found.ok().flatten().filter(|log| log.head == head) else {
            tracing::error!(%session, "its log does not end where it was written; run `pvp audit verify`");
            return Ok(());
        };
        let at = at.max(log.checkpoint_at).max(self.key_from);
        let checkpoint = Checkpoint::sign(&self.key, session, head, at, None);
        checkpoint_rows::insert(connection, log.row_id, &checkpoint)?;
        connection
            .prepare_cached("UPDATE sessions SET sealed_seq = head_seq WHERE no = ?1")?
            .execute([log.row_id])?;
        Ok(())
    }
}

fn needs_checkpoint(log: &CachedLog, append: &AppendRequest) -> bool {
    let uncovered = log.head.seq.saturating_sub(log.checkpoint_seq);
    let ended = append.index.as_ref().is_some_and(|index| index.ended);
    let requested = ended || append.checkpoint == CheckpointTiming::Now;
    // An append that only completes an index vouches for nothing.
    let due = uncovered >= CHECKPOINT_EVERY && !append.records.is_empty();
    due || (requested && uncovered > 0)
}

fn find_log(connection: &Connection, session: &SessionId) -> rusqlite::Result<Option<CachedLog>> {
    connection
        .prepare_cached(
            "SELECT no, head_seq, head_hash,
                 coalesce((SELECT max(seq) FROM checkpoints WHERE session = no), 0),
                 (SELECT at FROM checkpoints WHERE session = no ORDER BY seq DESC LIMIT 1)
             FROM sessions WHERE id = ?1",
        )?
        .query_row([session.as_str()], |row| {
            Ok(CachedLog {
                row_id: row.get(0)?,
                head: LogHead {
                    seq: get_seq(row, 1)?,
                    hash: row.get(2)?,
                },
                checkpoint_seq: get_seq(row, 3)?,
                checkpoint_at: get_optional_millis(row, 4)?.unwrap_or_default(),
            })
        })
        .optional()
}

fn insert_session(connection: &Connection, append: &AppendRequest) -> rusqlite::Result<CachedLog> {
    connection
        .prepare_cached(
            "INSERT INTO sessions
                 (no, id, head_seq, head_hash, created_at, updated_at, ended, sealed_seq,
                  open_gates, indexed)
             VALUES (
                 1 + max(coalesce((SELECT max(no) FROM sessions), 0),
                         coalesce((SELECT max(no) FROM tombstones), 0)),
                 ?1, 0, ?2, ?3, ?3, 0, 0, 0, 1)",
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
        checkpoint_at: Timestamp::default(),
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
    let (seq, checkpoint_seq) = (seq_column(log.head.seq)?, seq_column(log.checkpoint_seq)?);
    let updated_at = (!append.records.is_empty()).then(|| millis_column(append.at));
    match &append.index {
        None => connection
            .prepare_cached(
                "UPDATE sessions SET head_seq = ?2, head_hash = ?3, sealed_seq = ?4,
                     updated_at = coalesce(?5, updated_at)
                 WHERE no = ?1",
            )?
            .execute(params![
                log.row_id,
                seq,
                log.head.hash,
                checkpoint_seq,
                updated_at
            ])?,
        Some(index) => connection
            .prepare_cached(
                "UPDATE sessions SET head_seq = ?2, head_hash = ?3, sealed_seq = ?4,
                     updated_at = coalesce(?5, updated_at), ended = ?6, next_deadline = ?7,
                     name = ?8, open_gates = ?9, indexed = 1,
                     made_by = coalesce(made_by, ?10), log_bytes = ?11, context_bytes = ?12
                 WHERE no = ?1",
            )?
            .execute(params![
                log.row_id,
                seq,
                log.head.hash,
                checkpoint_seq,
                updated_at,
                index.ended,
                index.next_deadline.map(millis_column),
                index.name,
                index.open_gates,
                index.made_by,
                seq_column(index.usage.log_bytes)?,
                seq_column(index.usage.context_bytes)?
            ])?,
    };
    Ok(())
}
