//! Stores the logs of all sessions durably, so that they can be read and verified later.
//!
//! Everything above talks to the [`Store`] interface, which never blocks its caller. [`SqliteStore`]
//! implements it in a data directory on this machine. A log is safe to share because each append
//! names the head it follows: whoever lost track of the log gets a conflict and reads it again. A
//! store that several servers share would add leases here, so that only one of them works on a
//! session at a time; nothing above would change.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use pvp_protocol::{Digest, MessageId, Refusal, SessionId, Timestamp, hex};
use pvp_session::{IndexChange, ProposalRecord};

mod anchor;
pub mod audit;
mod chain;
mod checkpoint;
mod export;
mod key_history;
mod key_set;
mod keys;
#[cfg(test)]
pub(crate) mod memory;
#[cfg(test)]
mod memory_notifications;
mod notifications;
mod output_slice;
mod restores;
mod sqlite;
mod tombstone;
mod verifier;

pub use chain::{Hash, MAX_RECORD_BYTES, chain_hash, genesis_hash};
pub(crate) use checkpoint::may_wait_for_checkpoint;
pub use checkpoint::{CHECKPOINT_EVERY, Checkpoint};
pub use key_history::KeyFinding;
pub use keys::{KeyFiles, PublicKey};
pub use notifications::{ChannelGroup, ChannelRow, NoticeRow, NotificationStore, VoteLinkRow};
pub use output_slice::{OutputQuery, OutputSlice, OutputStart};
pub(crate) use sqlite::COPY_PREFIX;
pub use sqlite::{
    KeyRotation, RotationKind, SqliteStore, SqliteTokens, declare_restored, rotate_key,
};
pub use tombstone::{RETENTION, SessionDeletion, Tombstone};

/// What the error about a damaged log tells the operator.
pub(crate) const WHAT_TO_DO_ABOUT_DAMAGE: &str = "the session is not used; run `pvp audit verify`, keep \
     the data directory as evidence, and restore the data directory from a backup";

/// One entry of a log: its exact bytes, and the metadata that the server stores beside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Counted from 1, without gaps.
    pub seq: u64,
    /// JSON other than `null`, or empty.
    pub meta: Bytes,
    pub body: Bytes,
    pub hash: Hash,
}

impl LogRecord {
    /// The record that follows `prev`.
    pub fn after(prev: &LogHead, meta: Bytes, body: Bytes) -> Self {
        Self {
            seq: prev.seq + 1,
            hash: chain_hash(&prev.hash, &meta, &body),
            meta,
            body,
        }
    }

    /// The head of a log that ends with this record.
    pub fn head(&self) -> LogHead {
        LogHead {
            seq: self.seq,
            hash: self.hash,
        }
    }
}

/// The last entry of a log, by sequence number and hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHead {
    pub seq: u64,
    pub hash: Hash,
}

impl LogHead {
    /// The head of an empty log.
    pub fn empty(session: &SessionId) -> Self {
        Self {
            seq: 0,
            hash: genesis_hash(session),
        }
    }
}

/// When the log gets its next checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointTiming {
    /// After [`CHECKPOINT_EVERY`] entries, when the session ends and when the store is closed.
    WhenDue,
    /// At the end of this append.
    Now,
}

/// Consecutive records of one session, of which all or none are written. Without records, only the
/// index is updated and the checkpoint made.
#[derive(Debug, PartialEq, Eq)]
pub struct AppendRequest {
    /// The session to append to.
    pub session: SessionId,
    /// The head that the records follow; the append fails if the log ends elsewhere.
    pub prev: LogHead,
    /// The records to write, in order.
    pub records: Vec<LogRecord>,
    /// What is known about the session after these records; `None` leaves it as it is.
    pub index: Option<SessionIndex>,
    /// What the records add to the indexes of closed proposals and of output.
    pub index_changes: Vec<IndexChange>,
    /// The folded state after one of these records, or after `prev`.
    pub snapshot: Option<LogSnapshot>,
    /// The time of the append, which the session's row and its checkpoint carry.
    pub at: Timestamp,
    /// When to make a checkpoint.
    pub checkpoint: CheckpointTiming,
}

impl AppendRequest {
    /// The head of the log after this append.
    pub fn new_head(&self) -> LogHead {
        self.records.last().map_or(self.prev, LogRecord::head)
    }
}

/// The folded state of a session after one entry of its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSnapshot {
    pub head: LogHead,
    /// The state, opaque to the store.
    pub body: Bytes,
}

/// Where a log ends, and how far it is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    pub head: LogHead,
    /// What the last checkpoint covers, which this server has signed, whether or not that entry is
    /// there; the head of an empty log if there is no checkpoint.
    pub signed: LogHead,
}

/// What is known about a log before it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogState {
    pub end: LogEnd,
    /// Whether the indexes of closed proposals and of output are complete; those of logs from
    /// earlier versions are not.
    pub indexed: bool,
    /// The newest snapshot whose checkpoint this server has signed.
    pub snapshot: Option<LogSnapshot>,
    /// What the session has used of its quotas.
    pub usage: LogUsage,
}

/// What can be looked up about a session without reading its log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionIndex {
    /// What people call it.
    pub name: Option<String>,
    /// When something happens in it by itself.
    pub next_deadline: Option<Timestamp>,
    /// How many gates are open.
    pub open_gates: u32,
    /// Whether it has ended.
    pub ended: bool,
    /// The id of the token that made it, written once; `None` leaves it as it is.
    pub made_by: Option<String>,
    /// What it has used of its quotas.
    pub usage: LogUsage,
}

/// What a session has used of its quotas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogUsage {
    /// Bytes of its entries.
    pub log_bytes: u64,
    /// Bytes of those entries that add or update context.
    pub context_bytes: u64,
}

/// How many sessions a token has made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MadeSessions {
    /// Those in the store.
    pub stored: u64,
    /// Those of them that have not ended.
    pub open: u64,
}

/// Why an append failed. Unless it says otherwise, nothing of it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The log does not end where the caller expects, for example because an earlier append failed;
    /// the caller must replay the log.
    #[error("the log ends at seq {}, not at seq {} with the expected hash", found.seq, expected.seq)]
    Conflict { expected: LogHead, found: LogHead },
    /// The records do not continue the log, which is a bug in the caller.
    #[error("record {seq} cannot be written: {why}")]
    BadChain { seq: u64, why: &'static str },
    /// The disk is full, read-only or failing; it may work again later.
    #[error("the log cannot be written: {0}")]
    Unwritable(String),
    /// All of it was written, or nothing, or it may still be written. The caller sends the same
    /// append again; a conflict that finds the log at its new head then means that it was written.
    #[error("it is unknown whether the log was written: {0}")]
    Unknown(String),
}

/// Why the store could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store cannot be read or written: {0}")]
    Failed(String),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the store is damaged: {0}")]
    Damaged(String),
    #[error("a token `{0}` exists already")]
    TokenExists(String),
    #[error("session `{0}` has changed meanwhile")]
    LogChanged(SessionId),
    #[error("session `{session}` cannot be archived to {}: {why}", to.display())]
    NotArchived {
        session: SessionId,
        to: PathBuf,
        why: String,
    },
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::ReadFailed(error.to_string())
    }
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("`{}` cannot be used: {source}", path.display())]
    DataDirectory {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the data directory `{}` is in use by another pvp server; stop it or choose another directory", .0.display())]
    Locked(PathBuf),
    #[error("`{}` is not a PVP store", path.display())]
    NotAStore { path: PathBuf },
    #[error("`{}` has format {found}, this program knows up to {known}; upgrade this program", path.display())]
    Newer {
        path: PathBuf,
        found: i64,
        known: i64,
    },
    #[error("`{}` is empty or from an older version; start the server once to bring it up to date", path.display())]
    Older { path: PathBuf },
    #[error("the key file `{}` cannot be used: {why}", path.display())]
    Key { path: PathBuf, why: String },
    #[error("opening the store failed: {0}")]
    Panicked(String),
    #[error("the database `{}` cannot be opened: {source}", path.display())]
    Database {
        path: PathBuf,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// How much one read may return; one record is always returned if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    pub records: usize,
    pub bytes: usize,
}

/// Who a server is to those who remember what it said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerIdentity {
    /// The key that it signs with.
    pub key: PublicKey,
    /// The keys that it had before, oldest first.
    pub earlier_keys: Vec<PublicKey>,
    /// When the operator last declared that the logs were restored from a backup.
    pub restored_at: Option<Timestamp>,
}

impl ServerIdentity {
    pub(crate) fn earlier_keys_in_hex(&self) -> Vec<String> {
        self.earlier_keys
            .iter()
            .map(|key| hex::encode(key))
            .collect()
    }
}

/// The row of a session, and its anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnchorRow {
    pub row: i64,
    /// `None` if the last checkpoint is not a good one.
    pub anchor: Option<audit::Anchor>,
}

/// What a list of sessions shows about one of them, without reading its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    pub session: SessionId,
    /// The sequence number of the last entry.
    pub seq: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub index: SessionIndex,
}

/// One token. Only the hash of its secret is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// The public part of the token, by which it is found and revoked.
    pub id: String,
    /// The SHA-256 of its secret.
    pub hash: Hash,
    /// The token's claims as JSON, opaque to the store.
    pub data: String,
    /// When it was issued.
    pub created_at: Timestamp,
    /// When it stops being valid; `None` if it never expires.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked; `None` if it was not.
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, to the minute; `None` if it never was.
    pub used_at: Option<Timestamp>,
}

impl TokenRow {
    /// When and why the token has stopped being valid; `None` if it is valid at this time.
    pub(crate) fn end_before(&self, now: Timestamp) -> Option<(Timestamp, TokenEnd)> {
        let revoked = self.revoked_at.map(|at| (at, TokenEnd::Revoked));
        let expired = self.expires_at.filter(|at| *at <= now);
        revoked.or(expired.map(|at| (at, TokenEnd::Expired)))
    }
}

/// Why a token is no longer valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenEnd {
    Revoked,
    Expired,
}

/// A join code. Only its hash is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinCodeRow {
    /// The public name of the code, by which it is found and revoked.
    pub id: String,
    /// The SHA-256 of its secret.
    pub hash: Hash,
    /// What its token will allow, as JSON, opaque to the store.
    pub data: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it can no longer be used.
    pub expires_at: Timestamp,
    /// When it was used or revoked; `None` if neither.
    pub ended_at: Option<Timestamp>,
    /// The id of the token that it was exchanged for.
    pub token: Option<String>,
}

impl JoinCodeRow {
    /// Whether somebody can still use it.
    pub fn is_outstanding(&self, now: Timestamp) -> bool {
        self.ended_at.is_none() && self.expires_at > now
    }
}

/// Which sessions a list contains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only this session.
    pub session: Option<SessionId>,
    /// Only sessions that were created before this one.
    pub before: Option<SessionId>,
    /// Only sessions that have ended, or only those that have not.
    pub ended: Option<bool>,
}

/// What a method of the store returns.
pub type StoreResult<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Where the logs, the indexes and the tokens are stored, beside what is stored about notifications.
pub trait Store: NotificationStore {
    /// Writes an append, durably, and returns when it is written. Appends start in the order of the
    /// calls, whether or not the futures are polled.
    fn append(&self, append: Arc<AppendRequest>) -> BoxFuture<'static, Result<(), AppendError>>;

    /// The head of the session's log; `None` if there is no such session.
    fn head<'a>(&'a self, session: &'a SessionId) -> StoreResult<'a, Option<LogHead>>;

    /// Where the session's log ends, and how far it is signed; `None` if there is no such session.
    /// Fails if the last checkpoint is not one that this server has signed.
    fn log_end<'a>(&'a self, session: &'a SessionId) -> StoreResult<'a, Option<LogEnd>>;

    /// The newest checkpoint that covers no entry after `seq`, good or not.
    fn checkpoint_up_to<'a>(
        &'a self,
        session: &'a SessionId,
        seq: u64,
    ) -> StoreResult<'a, Option<Checkpoint>>;

    /// What is known about a session's log; `None` if there is no such session. Called before the
    /// session is worked on; a store that several servers share would lease it here.
    fn open_log<'a>(&'a self, session: &'a SessionId) -> StoreResult<'a, Option<LogState>>;

    /// Reads records from the sequence number `from` on, in ascending order.
    fn read<'a>(
        &'a self,
        session: &'a SessionId,
        from: u64,
        limit: ReadLimit,
    ) -> StoreResult<'a, Vec<LogRecord>>;

    /// Reads the records with these sequence numbers, in ascending order; those that do not exist
    /// are left out.
    fn read_each<'a>(
        &'a self,
        session: &'a SessionId,
        seqs: Vec<u64>,
    ) -> StoreResult<'a, Vec<LogRecord>>;

    /// At most `limit` closed proposals with a sequence number below `before`, newest first.
    fn closed_proposals<'a>(
        &'a self,
        session: &'a SessionId,
        before: u64,
        limit: usize,
    ) -> StoreResult<'a, Vec<ProposalRecord>>;

    /// The closed proposal that has this id, or whose gate has it.
    fn find_closed_proposal<'a>(
        &'a self,
        session: &'a SessionId,
        name: &'a MessageId,
    ) -> StoreResult<'a, Option<ProposalRecord>>;

    /// At most `limit` closed proposals whose id or gate has this text as its whole id or as an end
    /// that is no shorter than a short id, of one session or of all, in no particular order.
    fn closed_proposals_named<'a>(
        &'a self,
        session: Option<&'a SessionId>,
        text: &'a str,
        limit: usize,
    ) -> StoreResult<'a, Vec<(SessionId, ProposalRecord)>>;

    /// The chunks of a command's output from a line or byte on.
    fn output_slice<'a>(
        &'a self,
        session: &'a SessionId,
        query: OutputQuery,
    ) -> StoreResult<'a, OutputSlice>;

    /// At most `limit` sessions, newest first.
    fn list_sessions(
        &self,
        filter: SessionFilter,
        limit: usize,
    ) -> StoreResult<'_, Vec<SessionSummary>>;

    /// Sessions with open gates, oldest first.
    fn sessions_with_open_gates(&self) -> StoreResult<'_, Vec<SessionId>>;

    /// How many sessions there are, including ended ones.
    fn count_sessions(&self) -> StoreResult<'_, u64>;

    /// How many sessions the token with this id has made.
    fn sessions_made_by<'a>(&'a self, token: &'a str) -> StoreResult<'a, MadeSessions>;

    /// At most `limit` sessions whose next deadline is not after `now`, earliest first.
    fn due_sessions(&self, now: Timestamp, limit: usize) -> StoreResult<'_, Vec<SessionId>>;

    /// The earliest deadline of all sessions.
    fn next_deadline(&self) -> StoreResult<'_, Option<Timestamp>>;

    /// At most `limit` sessions that have ended and were last written to before `before`, oldest
    /// first.
    fn ended_sessions(&self, before: Timestamp, limit: usize) -> StoreResult<'_, Vec<SessionId>>;

    /// Writes the log of a session to a file that [`verify_export`](audit::verify_export) reads,
    /// verifies it, and returns its head. The file is there, readable only by its owner, when all of
    /// it is durable; one that was there is replaced.
    fn archive_session(&self, session: SessionId, to: PathBuf) -> StoreResult<'_, LogHead>;

    /// Deletes a session whose log ends where the caller says, and leaves a tombstone. The session
    /// is gone when the tombstone is durable; its rows are removed afterwards, at the latest when the
    /// store is opened again.
    fn delete_session(&self, deletion: SessionDeletion) -> StoreResult<'_, Tombstone>;

    /// The tombstone of a session; `None` if no session of this id was deleted.
    fn find_tombstone<'a>(&'a self, session: &'a SessionId) -> StoreResult<'a, Option<Tombstone>>;

    /// The last checkpoints of at most `limit` logs whose row follows `after`, by row.
    fn anchors(&self, after: i64, limit: usize) -> StoreResult<'_, Vec<AnchorRow>>;

    /// Who this server is.
    fn identity(&self) -> ServerIdentity;

    /// Adds a token; fails if its id exists already.
    fn insert_token(&self, token: TokenRow) -> StoreResult<'_, ()>;

    /// The token with this id, revoked or not.
    fn find_token<'a>(&'a self, id: &'a str) -> StoreResult<'a, Option<TokenRow>>;

    /// Revokes a token; false if there is none, or it was revoked before.
    fn revoke_token<'a>(&'a self, id: &'a str, at: Timestamp) -> StoreResult<'a, bool>;

    /// When an entry was last written to any log; `None` if there is none.
    fn last_written_at(&self) -> StoreResult<'_, Option<Timestamp>>;

    /// Every token, oldest first, revoked or not.
    fn list_tokens(&self) -> StoreResult<'_, Vec<TokenRow>>;

    /// How many tokens were revoked or have expired by now.
    fn count_ended_tokens(&self, now: Timestamp) -> StoreResult<'_, u64>;

    /// The ids of the tokens that were revoked or have expired by now.
    fn ended_tokens(&self, now: Timestamp) -> StoreResult<'_, BTreeSet<String>>;

    /// How many tokens there are, including revoked and expired ones.
    fn count_tokens(&self) -> StoreResult<'_, u64>;

    /// Writes when tokens were last used, unless a later time is written.
    fn record_token_uses(&self, uses: Vec<(String, Timestamp)>) -> StoreResult<'_, ()>;

    /// Keeps a long text that messages of a session refer to by its hash; false, and nothing is kept,
    /// if the texts of the session would have more than `limit` bytes.
    fn keep_content<'a>(
        &'a self,
        session: &'a SessionId,
        content: String,
        limit: u64,
    ) -> StoreResult<'a, bool>;

    /// The text of a session with this hash.
    fn find_content<'a>(
        &'a self,
        session: &'a SessionId,
        hash: Digest,
    ) -> StoreResult<'a, Option<String>>;

    /// Adds a join code and forgets those that expired long before `forget_before`; false, and
    /// nothing is added, if `limit` of them can still be used.
    fn insert_join_code(
        &self,
        code: JoinCodeRow,
        limit: usize,
        forget_before: Timestamp,
    ) -> StoreResult<'_, bool>;

    /// The join code with this id, used or not.
    fn find_join_code<'a>(&'a self, id: &'a str) -> StoreResult<'a, Option<JoinCodeRow>>;

    /// The join codes that can still be used, oldest first.
    fn outstanding_join_codes(&self, now: Timestamp) -> StoreResult<'_, Vec<JoinCodeRow>>;

    /// Ends a join code and adds its token, both or neither; false if the code has ended before.
    fn redeem_join_code<'a>(
        &'a self,
        id: &'a str,
        token: TokenRow,
        at: Timestamp,
    ) -> StoreResult<'a, bool>;

    /// Ends a join code that can still be used; false if there is none.
    fn revoke_join_code<'a>(&'a self, id: &'a str, at: Timestamp) -> StoreResult<'a, bool>;

    /// Writes what is queued, makes a last checkpoint of every log and lets others open the store.
    /// Later appends fail.
    fn close(&self, at: Timestamp) -> StoreResult<'_, ()>;
}
