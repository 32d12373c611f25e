//! Keeps long texts that messages refer to by their hash, beside the log.

use pvp_protocol::{Digest, SessionId};
use rusqlite::{OptionalExtension, TransactionBehavior, params};

use super::super::StoreError;
use super::schema::{get_seq, seq_column};
use super::tokens::SqliteTokens;

impl SqliteTokens {
    /// Keeps a text of a session; false, and nothing is kept, if the texts of the session would have
    /// more than `limit` bytes.
    pub fn keep_content(
        &self,
        session: &SessionId,
        content: &str,
        limit: u64,
    ) -> Result<bool, StoreError> {
        let hash = Digest::of_content(content.as_bytes());
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let no: Option<i64> = transaction
            .prepare_cached("SELECT no FROM sessions WHERE id = ?1")?
            .query_row([session.as_str()], |row| row.get(0))
            .optional()?;
        let Some(no) = no else {
            return Ok(false);
        };
        let known: bool = transaction
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM contents WHERE session = ?1 AND hash = ?2)",
            )?
            .query_row(params![no, hash.as_bytes()], |row| row.get(0))?;
        if known {
            return Ok(true);
        }
        let used = transaction
            .prepare_cached("SELECT coalesce(sum(bytes), 0) FROM contents WHERE session = ?1")?
            .query_row([no], |row| get_seq(row, 0))?;
        if used.saturating_add(content.len() as u64) > limit {
            return Ok(false);
        }
        transaction
            .prepare_cached(
                "INSERT INTO contents (session, hash, bytes, content) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![
                no,
                hash.as_bytes(),
                seq_column(content.len() as u64)?,
                content
            ])?;
        transaction.commit()?;
        Ok(true)
    }

    /// The text of a session with this hash.
    pub fn find_content(
        &self,
        session: &SessionId,
        hash: &Digest,
    ) -> Result<Option<String>, StoreError> {
        let found: Option<String> = self
            .connection()
            .prepare_cached(
                "SELECT content FROM contents
                 WHERE session = (SELECT no FROM sessions WHERE id = ?1) AND hash = ?2",
            )?
            .query_row(params![session.as_str(), hash.as_bytes()], |row| row.get(0))
            .optional()?;
        match found {
            Some(content) if Digest::of_content(content.as_bytes()) != *hash => {
                Err(StoreError::Damaged(format!(
                    "the text {hash} of session `{session}` was changed"
                )))
            }
            found => Ok(found),
        }
    }
}
