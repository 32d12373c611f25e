//! Stores channels, preferences, notices and vote links as rows, beside the tokens.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pvp_protocol::{MessageId, ParticipantId, SessionId, Timestamp};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};

use super::super::notifications::{ChannelGroup, ChannelRow, NoticeRow, VoteLinkRow};
use super::super::{NotificationStore, OpenError, StoreError, StoreResult};
use super::SqliteStore;
use super::schema::{self, get_millis, get_seq, millis_column};
use super::tokens::SqliteTokens;

/// A connection for what may be lost with the power: a notice that is missing is told again, and a vote
/// link that is missing is dead. It does not wait for the disk, so that it neither holds up the log nor
/// those who log in.
pub(super) struct NoticeConnection(Mutex<Connection>);

impl NoticeConnection {
    pub(super) fn open(dir: &Path) -> Result<Self, OpenError> {
        let connection = schema::open_existing(dir)?;
        connection
            .pragma_update(None, "synchronous", "NORMAL")
            .map_err(schema::map_sqlite_error(&dir.join(schema::DATABASE_FILE)))?;
        Ok(Self(Mutex::new(connection)))
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const CHANNEL_COLUMNS: &str = "id, participant, token, push, data, status, created_at";

impl NotificationStore for SqliteStore {
    fn insert_channel(&self, channel: ChannelRow, limit: usize) -> StoreResult<'_, bool> {
        self.query(move |inner| inner.tokens.insert_channel(&channel, limit))
    }

    fn update_channel<'a>(&'a self, id: &'a str, data: String) -> StoreResult<'a, bool> {
        let id = id.to_owned();
        self.query(move |inner| {
            let sql = "UPDATE channels SET data = ?2 WHERE id = ?1";
            Ok(inner.tokens.connection().execute(sql, params![id, data])? == 1)
        })
    }

    fn update_channel_status<'a>(&'a self, id: &'a str, status: String) -> StoreResult<'a, ()> {
        let id = id.to_owned();
        self.query(move |inner| {
            let sql = "UPDATE channels SET status = ?2 WHERE id = ?1";
            inner
                .tokens
                .connection()
                .execute(sql, params![id, status])?;
            Ok(())
        })
    }

    fn delete_channel<'a>(&'a self, id: &'a str) -> StoreResult<'a, bool> {
        let id = id.to_owned();
        self.query(move |inner| {
            let sql = "DELETE FROM channels WHERE id = ?1";
            Ok(inner.tokens.connection().execute(sql, [id])? == 1)
        })
    }

    fn find_channel<'a>(&'a self, id: &'a str) -> StoreResult<'a, Option<ChannelRow>> {
        let id = id.to_owned();
        self.query(move |inner| {
            let sql = format!("SELECT {CHANNEL_COLUMNS} FROM channels WHERE id = ?1");
            let connection = inner.tokens.connection();
            let mut statement = connection.prepare_cached(&sql)?;
            Ok(statement.query_row([id], channel_from_row).optional()?)
        })
    }

    fn list_channels<'a>(
        &'a self,
        participant: Option<&'a ParticipantId>,
    ) -> StoreResult<'a, Vec<ChannelRow>> {
        let participant = participant.cloned();
        self.query(move |inner| inner.tokens.list_channels(participant.as_ref()))
    }

    fn put_preferences<'a>(
        &'a self,
        participant: &'a ParticipantId,
        data: String,
    ) -> StoreResult<'a, ()> {
        let participant = participant.clone();
        self.query(move |inner| {
            let sql = "INSERT INTO notification_preferences (participant, data) VALUES (?1, ?2)
                 ON CONFLICT (participant) DO UPDATE SET data = excluded.data";
            let values = params![participant.as_str(), data];
            inner.tokens.connection().execute(sql, values)?;
            Ok(())
        })
    }

    fn find_preferences<'a>(
        &'a self,
        participant: &'a ParticipantId,
    ) -> StoreResult<'a, Option<String>> {
        let participant = participant.clone();
        self.query(move |inner| {
            let sql = "SELECT data FROM notification_preferences WHERE participant = ?1";
            let connection = inner.tokens.connection();
            let mut statement = connection.prepare_cached(sql)?;
            let data = statement.query_row([participant.as_str()], |row| row.get(0));
            Ok(data.optional()?)
        })
    }

    fn insert_notice(&self, notice: NoticeRow) -> StoreResult<'_, ()> {
        self.query(move |inner| {
            let sql = "INSERT OR IGNORE INTO notices (key, session, gate, channel, at)
                 VALUES (?1, ?2, ?3, ?4, ?5)";
            let (session, gate) = (notice.session.as_str(), notice.gate.as_str());
            let at = millis_column(notice.at);
            let values = params![notice.key, session, gate, notice.channel, at];
            inner.notices.lock().execute(sql, values)?;
            Ok(())
        })
    }

    fn list_notices(&self) -> StoreResult<'_, Vec<NoticeRow>> {
        self.query(|inner| {
            let sql = "SELECT key, session, gate, channel, at FROM notices ORDER BY rowid";
            let connection = inner.notices.lock();
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([], notice_from_row)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn insert_vote_link(&self, link: VoteLinkRow) -> StoreResult<'_, ()> {
        self.query(move |inner| {
            let sql = "INSERT INTO vote_links (id, hash, session, gate, data, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let (session, gate) = (link.session.as_str(), link.gate.as_str());
            let made = millis_column(link.created_at);
            let values = params![link.id, link.hash, session, gate, link.data, made];
            inner.notices.lock().execute(sql, values)?;
            Ok(())
        })
    }

    fn find_vote_link<'a>(&'a self, id: &'a str) -> StoreResult<'a, Option<VoteLinkRow>> {
        let id = id.to_owned();
        self.query(move |inner| {
            let sql =
                "SELECT id, hash, session, gate, data, created_at FROM vote_links WHERE id = ?1";
            let connection = inner.notices.lock();
            let mut statement = connection.prepare_cached(sql)?;
            Ok(statement.query_row([id], vote_link_from_row).optional()?)
        })
    }

    fn forget_gate<'a>(
        &'a self,
        session: &'a SessionId,
        gate: &'a MessageId,
    ) -> StoreResult<'a, ()> {
        let (session, gate) = (session.clone(), gate.clone());
        self.query(move |inner| {
            let mut connection = inner.notices.lock();
            let transaction = connection.transaction()?;
            let named = params![session.as_str(), gate.as_str()];
            for table in ["notices", "vote_links"] {
                let sql = format!("DELETE FROM {table} WHERE session = ?1 AND gate = ?2");
                transaction.execute(&sql, named)?;
            }
            Ok(transaction.commit()?)
        })
    }

    fn forget_vote_links(&self, made_before: Timestamp) -> StoreResult<'_, ()> {
        self.query(move |inner| {
            let sql = "DELETE FROM vote_links WHERE created_at < ?1";
            let before = millis_column(made_before);
            inner.notices.lock().execute(sql, [before])?;
            Ok(())
        })
    }
}

impl SqliteTokens {
    fn insert_channel(&self, channel: &ChannelRow, limit: usize) -> Result<bool, StoreError> {
        let is_push = channel.group == ChannelGroup::Push;
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let count = transaction.query_row(
            "SELECT count(*) FROM channels WHERE participant = ?1 AND push = ?2",
            params![channel.participant.as_str(), is_push],
            |row| get_seq(row, 0),
        )?;
        if count >= limit as u64 {
            return Ok(false);
        }
        transaction.execute(
            &format!(
                "INSERT INTO channels ({CHANNEL_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
            ),
            params![
                channel.id,
                channel.participant.as_str(),
                channel.token,
                is_push,
                channel.data,
                channel.status,
                millis_column(channel.created_at),
            ],
        )?;
        transaction.commit()?;
        Ok(true)
    }

    fn list_channels(
        &self,
        participant: Option<&ParticipantId>,
    ) -> Result<Vec<ChannelRow>, StoreError> {
        let sql = format!(
            "SELECT {CHANNEL_COLUMNS} FROM channels WHERE ?1 IS NULL OR participant = ?1
             ORDER BY created_at, rowid"
        );
        let connection = self.connection();
        let mut statement = connection.prepare_cached(&sql)?;
        let participant = participant.map(ParticipantId::as_str);
        let rows = statement.query_map([participant], channel_from_row)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

fn channel_from_row(row: &Row<'_>) -> rusqlite::Result<ChannelRow> {
    Ok(ChannelRow {
        id: row.get(0)?,
        participant: get_id(row, 1, ParticipantId::parse)?,
        token: row.get(2)?,
        group: match row.get(3)? {
            true => ChannelGroup::Push,
            false => ChannelGroup::Other,
        },
        data: row.get(4)?,
        status: row.get(5)?,
        created_at: get_millis(row, 6)?,
    })
}

fn notice_from_row(row: &Row<'_>) -> rusqlite::Result<NoticeRow> {
    Ok(NoticeRow {
        key: row.get(0)?,
        session: get_id(row, 1, SessionId::parse)?,
        gate: get_id(row, 2, MessageId::parse)?,
        channel: row.get(3)?,
        at: get_millis(row, 4)?,
    })
}

fn vote_link_from_row(row: &Row<'_>) -> rusqlite::Result<VoteLinkRow> {
    Ok(VoteLinkRow {
        id: row.get(0)?,
        hash: row.get(1)?,
        session: get_id(row, 2, SessionId::parse)?,
        gate: get_id(row, 3, MessageId::parse)?,
        data: row.get(4)?,
        created_at: get_millis(row, 5)?,
    })
}

fn get_id<T, E: std::error::Error + Send + Sync + 'static>(
    row: &Row<'_>,
    column: usize,
    parse: fn(&str) -> Result<T, E>,
) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    parse(&text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
    })
}
