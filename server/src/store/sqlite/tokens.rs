//! Stores login tokens as rows; what a token allows is opaque here.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pvp_protocol::Timestamp;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};

use super::super::{OpenError, StoreError, TokenRow};
use super::schema::{
    self, MigrationScope, get_millis, get_optional_millis, get_seq, millis_column,
};

/// The tokens of a data directory. Several processes may have them open, even while a server runs.
pub struct SqliteTokens {
    connection: Mutex<Connection>,
}

const COLUMNS: &str = "id, hash, data, created_at, expires_at, revoked_at, used_at";

impl SqliteTokens {
    /// Opens the tokens without locking the directory, which is created if it does not exist.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        super::create_data_directory(dir)?;
        Ok(Self {
            connection: Mutex::new(schema::open_or_create(dir, MigrationScope::Empty)?),
        })
    }

    /// Adds a token; fails if its id exists already.
    pub fn insert(&self, token: &TokenRow) -> Result<(), StoreError> {
        insert_token(&self.connection(), token)
    }

    /// The token with this id, revoked or not.
    pub fn find(&self, id: &str) -> Result<Option<TokenRow>, StoreError> {
        Ok(self
            .connection()
            .prepare_cached(&format!("SELECT {COLUMNS} FROM tokens WHERE id = ?1"))?
            .query_row([id], token_from_row)
            .optional()?)
    }

    /// Every token, oldest first.
    pub fn list(&self) -> Result<Vec<TokenRow>, StoreError> {
        Ok(self
            .connection()
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM tokens ORDER BY created_at, rowid"
            ))?
            .query_map([], token_from_row)?
            .collect::<rusqlite::Result<_>>()?)
    }

    /// How many tokens were revoked or have expired by now.
    pub fn count_ended(&self, now: Timestamp) -> Result<u64, StoreError> {
        Ok(self
            .connection()
            .prepare_cached(
                "SELECT count(*) FROM tokens WHERE revoked_at IS NOT NULL OR expires_at <= ?1",
            )?
            .query_row([millis_column(now)], |row| get_seq(row, 0))?)
    }

    /// The ids of the tokens that were revoked or have expired by now.
    pub fn ended(&self, now: Timestamp) -> Result<BTreeSet<String>, StoreError> {
        Ok(self
            .connection()
            .prepare_cached(
                "SELECT id FROM tokens WHERE revoked_at IS NOT NULL OR expires_at <= ?1",
            )?
            .query_map([millis_column(now)], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?)
    }

    /// Revokes a token; false if there is none, or it was revoked before.
    pub fn revoke(&self, id: &str, at: Timestamp) -> Result<bool, StoreError> {
        let changed = self
            .connection()
            .prepare_cached(
                "UPDATE tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL",
            )?
            .execute(params![id, millis_column(at)])?;
        Ok(changed == 1)
    }

    /// Writes when tokens were last used, unless a later time is written.
    pub fn record_uses(&self, uses: &[(String, Timestamp)]) -> Result<(), StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        for (id, at) in uses {
            transaction
                .prepare_cached(
                    "UPDATE tokens SET used_at = ?2 WHERE id = ?1 AND (used_at IS NULL OR used_at < ?2)",
                )?
                .execute(params![id, millis_column(*at)])?;
        }
        Ok(transaction.commit()?)
    }

    /// How many tokens there are, including revoked and expired ones.
    pub fn count(&self) -> Result<u64, StoreError> {
        Ok(self
            .connection()
            .query_row("SELECT count(*) FROM tokens", [], |row| get_seq(row, 0))?)
    }

    pub(super) fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn insert_token(connection: &Connection, token: &TokenRow) -> Result<(), StoreError> {
    let inserted = connection
        .prepare_cached(&format!(
            "INSERT INTO tokens ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        ))?
        .execute(params![
            token.id,
            token.hash,
            token.data,
            millis_column(token.created_at),
            token.expires_at.map(millis_column),
            token.revoked_at.map(millis_column),
            token.used_at.map(millis_column),
        ]);
    match inserted {
        Ok(_) => Ok(()),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
            Err(StoreError::TokenExists(token.id.clone()))
        }
        Err(error) => Err(error.into()),
    }
}

fn token_from_row(row: &Row<'_>) -> rusqlite::Result<TokenRow> {
    Ok(TokenRow {
        id: row.get(0)?,
        hash: row.get(1)?,
        data: row.get(2)?,
        created_at: get_millis(row, 3)?,
        expires_at: get_optional_millis(row, 4)?,
        revoked_at: get_optional_millis(row, 5)?,
        used_at: get_optional_millis(row, 6)?,
    })
}
