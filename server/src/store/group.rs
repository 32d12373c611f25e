//! One transaction's worth of appends, written with what is known of their sessions.

use std::collections::HashMap;

use ed25519_dalek::SigningKey;
use pvp_protocol::{SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::chain;
use super::schema::{get_seq, millis, seq_column};
use super::{Append, AppendError, CHECKPOINT_EVERY, Checkpoint, Hash, Head, Seal};

/// Sessions remembered between groups, about 200 bytes each; more are asked of the database.
const REMEMBERED: usize = 10_000;

/// Logs sealed in one transaction when the store is closed.
const SEALED_AT_ONCE: usize = 1024;

/// What the database says about the sessions that were written lately.
pub(super) struct Logs {
    key: SigningKey,
    known: HashMap<SessionId, Log>,
}

#[derive(Clone, Copy)]
struct Log {
    no: i64,
    head: Head,
    sealed: u64,
}

/// How each append of a committed group went.
pub(super) type Verdicts = Vec<Result<(), AppendError>>;

impl Logs {
    pub(super) fn new(key: SigningKey) -> Self {
        Self {
            key,
            known: HashMap::new(),
        }
    }

    /// What was learnt in a transaction that did not commit is wrong.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// Writes and commits a group. An error means that nothing of it was written.
    pub(super) fn write(
        &mut self,
        connection: &mut Connection,
        group: &[Append],
    ) -> rusqlite::Result<Verdicts> {
        if self.known.len() > REMEMBERED {
            self.forget();
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let verdicts = group
            .iter()
            .map(|append| self.append(&transaction, append))
            .collect::<rusqlite::Result<_>>()?;
        transaction.commit()?;
        Ok(verdicts)
    }

    /// Checks everything before the first insert, so that a refused append leaves nothing behind.
    fn append(
        &mut self,
        connection: &Connection,
        append: &Append,
    ) -> rusqlite::Result<Result<(), AppendError>> {
        let known = match self.known.get(&append.session) {
            Some(log) => Some(*log),
            None => find(connection, &append.session)?,
        };
        let found = known.map_or_else(|| Head::empty(&append.session), |log| log.head);
        if found != append.prev {
            let expected = append.prev;
            return Ok(Err(AppendError::Conflict { expected, found }));
        }
        let head = match chain::follow(append) {
            Ok(head) => head,
            Err(error) => return Ok(Err(error)),
        };
        let mut log = match known {
            Some(log) => log,
            None => create(connection, append)?,
        };
        insert(connection, log.no, append)?;
        log.head = head;
        if is_due(&log, append) {
            Checkpoint::sign(&self.key, &append.session, head, append.at)
                .insert(connection, log.no)?;
            log.sealed = head.seq;
        }
        update(connection, &log, append)?;
        self.known.insert(append.session.clone(), log);
        Ok(Ok(()))
    }

    /// Seals every log that has grown since its last checkpoint.
    pub(super) fn seal_all(
        &mut self,
        connection: &mut Connection,
        at: Timestamp,
    ) -> rusqlite::Result<()> {
        self.forget();
        while self.seal_some(connection, at)? == SEALED_AT_ONCE {}
        Ok(())
    }

    fn seal_some(&self, connection: &mut Connection, at: Timestamp) -> rusqlite::Result<usize> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let unsealed: Vec<(i64, String, u64, Hash)> = transaction
            .prepare_cached(
                "SELECT no, id, head_seq, head_hash FROM sessions
                 WHERE head_seq > sealed_seq LIMIT ?1",
            )?
            .query_map([SEALED_AT_ONCE as i64], |row| {
                Ok((row.get(0)?, row.get(1)?, get_seq(row, 2)?, row.get(3)?))
            })?
            .collect::<rusqlite::Result<_>>()?;
        for (no, id, seq, hash) in &unsealed {
            let session = SessionId::parse(id)
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
            let head = Head {
                seq: *seq,
                hash: *hash,
            };
            Checkpoint::sign(&self.key, &session, head, at).insert(&transaction, *no)?;
            transaction
                .prepare_cached("UPDATE sessions SET sealed_seq = head_seq WHERE no = ?1")?
                .execute([no])?;
        }
        transaction.commit()?;
        Ok(unsealed.len())
    }
}

fn is_due(log: &Log, append: &Append) -> bool {
    let unsealed = log.head.seq.saturating_sub(log.sealed);
    let asked = append.standing.ended || append.seal == Seal::Now;
    unsealed >= CHECKPOINT_EVERY || (asked && unsealed > 0)
}

fn find(connection: &Connection, session: &SessionId) -> rusqlite::Result<Option<Log>> {
    connection
        .prepare_cached("SELECT no, head_seq, head_hash, sealed_seq FROM sessions WHERE id = ?1")?
        .query_row([session.as_str()], |row| {
            Ok(Log {
                no: row.get(0)?,
                head: Head {
                    seq: get_seq(row, 1)?,
                    hash: row.get(2)?,
                },
                sealed: get_seq(row, 3)?,
            })
        })
        .optional()
}

fn create(connection: &Connection, append: &Append) -> rusqlite::Result<Log> {
    connection
        .prepare_cached(
            "INSERT INTO sessions
                 (id, head_seq, head_hash, created_at, updated_at, ended, sealed_seq)
             VALUES (?1, 0, ?2, ?3, ?3, 0, 0)",
        )?
        .execute(params![
            append.session.as_str(),
            append.prev.hash,
            millis(append.at)
        ])?;
    Ok(Log {
        no: connection.last_insert_rowid(),
        head: append.prev,
        sealed: 0,
    })
}

fn insert(connection: &Connection, session: i64, append: &Append) -> rusqlite::Result<()> {
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

fn update(connection: &Connection, log: &Log, append: &Append) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE sessions SET head_seq = ?2, head_hash = ?3, updated_at = ?4, ended = ?5,
                 next_deadline = ?6, sealed_seq = ?7, name = ?8, open_gates = ?9
             WHERE no = ?1",
        )?
        .execute(params![
            log.no,
            seq_column(log.head.seq)?,
            log.head.hash,
            millis(append.at),
            append.standing.ended,
            append.standing.next_deadline.map(millis),
            seq_column(log.sealed)?,
            append.standing.name,
            append.standing.open_gates
        ])?;
    Ok(())
}
