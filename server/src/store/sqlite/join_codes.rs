//! Stores join codes as rows, beside the tokens that they are exchanged for.

use pvp_protocol::Timestamp;
use rusqlite::{OptionalExtension, Row, TransactionBehavior, params};

use super::super::{JoinCodeRow, StoreError, TokenRow};
use super::schema::{get_millis, get_optional_millis, get_seq, millis_column};
use super::tokens::{SqliteTokens, insert_token};

const COLUMNS: &str = "id, hash, data, created_at, expires_at, ended_at, token";

impl SqliteTokens {
    /// Adds a join code and forgets those that expired before `forget_before`; false, and nothing is
    /// added, if `limit` of them can still be used.
    pub fn insert_join_code(
        &self,
        code: &JoinCodeRow,
        limit: usize,
        forget_before: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute(
            "DELETE FROM join_codes WHERE expires_at < ?1",
            [millis_column(forget_before)],
        )?;
        let outstanding = transaction.query_row(
            "SELECT count(*) FROM join_codes WHERE ended_at IS NULL AND expires_at > ?1",
            [millis_column(code.created_at)],
            |row| get_seq(row, 0),
        )?;
        if outstanding >= limit as u64 {
            return Ok(false);
        }
        transaction.execute(
            &format!("INSERT INTO join_codes ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"),
            params![
                code.id,
                code.hash,
                code.data,
                millis_column(code.created_at),
                millis_column(code.expires_at),
                code.ended_at.map(millis_column),
                code.token,
            ],
        )?;
        transaction.commit()?;
        Ok(true)
    }

    /// The join code with this id, used or not.
    pub fn find_join_code(&self, id: &str) -> Result<Option<JoinCodeRow>, StoreError> {
        Ok(self
            .connection()
            .prepare_cached(&format!("SELECT {COLUMNS} FROM join_codes WHERE id = ?1"))?
            .query_row([id], code_from_row)
            .optional()?)
    }

    /// The join codes that can still be used, oldest first.
    pub fn outstanding_join_codes(&self, now: Timestamp) -> Result<Vec<JoinCodeRow>, StoreError> {
        Ok(self
            .connection()
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM join_codes WHERE ended_at IS NULL AND expires_at > ?1
                 ORDER BY created_at, id"
            ))?
            .query_map([millis_column(now)], code_from_row)?
            .collect::<rusqlite::Result<_>>()?)
    }

    /// Ends a join code and adds its token, both or neither; false if the code has ended before.
    pub fn redeem_join_code(
        &self,
        id: &str,
        token: &TokenRow,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let ended = transaction.execute(
            "UPDATE join_codes SET ended_at = ?2, token = ?3
             WHERE id = ?1 AND ended_at IS NULL AND expires_at > ?2",
            params![id, millis_column(at), token.id],
        )?;
        if ended != 1 {
            return Ok(false);
        }
        insert_token(&transaction, token)?;
        transaction.commit()?;
        Ok(true)
    }

    /// Ends a join code that can still be used; false if there is none.
    pub fn revoke_join_code(&self, id: &str, at: Timestamp) -> Result<bool, StoreError> {
        let ended = self.connection().execute(
            "UPDATE join_codes SET ended_at = ?2
             WHERE id = ?1 AND ended_at IS NULL AND expires_at > ?2",
            params![id, millis_column(at)],
        )?;
        Ok(ended == 1)
    }
}

fn code_from_row(row: &Row<'_>) -> rusqlite::Result<JoinCodeRow> {
    Ok(JoinCodeRow {
        id: row.get(0)?,
        hash: row.get(1)?,
        data: row.get(2)?,
        created_at: get_millis(row, 3)?,
        expires_at: get_millis(row, 4)?,
        ended_at: get_optional_millis(row, 5)?,
        token: row.get(6)?,
    })
}
