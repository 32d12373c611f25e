//! The hash chain of a session's log, for clients that check it themselves.

use crate::Timestamp;

wire_structs! {
    /// One entry of a log, as far as the chain is concerned.
    pub struct ChainEntry {
        pub seq: u64,
        /// The hash over the hash before it, its meta and its body, in hex.
        pub hash: String,
        /// The meta that the hash covers, byte for byte; empty if the entry has none. Absent if the
        /// caller may not see the entry, or while it holds a grant that can still be used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub meta: Option<String>,
    }

    /// The server's signature that the entry `seq` had this hash.
    pub struct ChainCheckpoint {
        /// The sequence number of the entry.
        pub seq: u64,
        /// The hash of that entry, in hex.
        pub hash: String,
        /// When it was signed.
        pub at: Timestamp,
        /// The hash of the snapshot made at that entry, in hex; absent if none was made there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub snapshot: Option<String>,
        /// The public key of the signer, in hex.
        pub key: String,
        /// The Ed25519 signature over all of this and the session's id, in hex.
        pub signature: String,
    }

    /// A part of the chain, without gaps, also over entries that the caller may not see.
    pub struct ChainPage {
        pub entries: Vec<ChainEntry>,
        /// The newest checkpoint up to `next`; absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub checkpoint: Option<ChainCheckpoint>,
        /// Pass this as `after` to get the entries that follow.
        pub next: u64,
        /// The sequence number of the last entry of the log.
        pub head: u64,
    }
}
