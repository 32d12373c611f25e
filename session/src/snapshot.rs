//! Snapshots of the folded state, so that a session loads without folding its log from the start.
//!
//! A snapshot is a cache, never evidence: whoever reads one must know that it is the one that was
//! made at that entry of the log.

use pvp_protocol::SessionId;
use serde::{Deserialize, Serialize};

use crate::state::Session;

/// Raised whenever a build would fold the same log into another state.
const SNAPSHOT_FORMAT: u32 = 5;

/// The build that made a snapshot. Another build folds the log again.
const BUILD: &str = env!("CARGO_PKG_VERSION");

/// What the state of most sessions takes in a snapshot, besides the recent messages, in bytes.
const OTHER_STATE_BYTES: usize = 32 * 1024;

/// Why a snapshot cannot be used. The log can.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    #[error("it was made by another version")]
    OtherVersion,
    #[error("it is of another session or entry")]
    Misplaced,
    #[error("it is not readable: {0}")]
    Unreadable(String),
}

#[derive(Serialize)]
struct SnapshotRef<'a> {
    format: u32,
    build: &'a str,
    session: &'a Session,
}

#[derive(Deserialize)]
struct SnapshotVersion {
    format: u32,
    build: String,
}

#[derive(Deserialize)]
struct OwnedSnapshot {
    session: Session,
}

impl Session {
    /// The whole state, as [`from_snapshot`](Self::from_snapshot) reads it.
    pub fn to_snapshot(&self) -> Vec<u8> {
        let snapshot = SnapshotRef {
            format: SNAPSHOT_FORMAT,
            build: BUILD,
            session: self,
        };
        // A buffer that grows by doubling would leave as much again behind.
        let mut bytes = Vec::with_capacity(self.recent_messages.stored_bytes() + OTHER_STATE_BYTES);
        serde_json::to_writer(&mut bytes, &snapshot).expect("the state is plain data");
        bytes
    }

    /// The state of this session after the entry `seq`, from a snapshot that was made there.
    pub fn from_snapshot(id: &SessionId, seq: u64, bytes: &[u8]) -> Result<Self, SnapshotError> {
        let unreadable = |error: serde_json::Error| SnapshotError::Unreadable(error.to_string());
        let version: SnapshotVersion = serde_json::from_slice(bytes).map_err(unreadable)?;
        if version.format != SNAPSHOT_FORMAT || version.build != BUILD {
            return Err(SnapshotError::OtherVersion);
        }
        let OwnedSnapshot { session } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if session.id != *id || session.head != seq {
            return Err(SnapshotError::Misplaced);
        }
        Ok(session)
    }
}
