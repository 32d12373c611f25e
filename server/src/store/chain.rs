//! The hash chain that reveals every change to a written log.

use pvp_protocol::SessionId;
use sha2::{Digest, Sha256};

use super::{AppendError, AppendRequest, LogHead, LogRecord};

/// A SHA-256 hash.
pub type Hash = [u8; 32];

const GENESIS_PREFIX: &[u8] = b"pvp.genesis.v1\0";
const ENTRY_PREFIX: &[u8] = b"pvp.entry.v1\0";

/// The most bytes of meta and body in one record; as JSON they must fit an export line (32 MiB).
pub const MAX_RECORD_BYTES: usize = 16 * 1024 * 1024;

/// The hash that the first record of a session is chained to.
pub fn genesis_hash(session: &SessionId) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(GENESIS_PREFIX);
    hasher.update(session.as_str());
    hasher.finalize().into()
}

/// The hash of a record that follows `prev`.
pub fn chain_hash(prev: &Hash, meta: &[u8], body: &[u8]) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(ENTRY_PREFIX);
    hasher.update(prev);
    hasher.update((meta.len() as u64).to_le_bytes());
    hasher.update(meta);
    hasher.update(body);
    hasher.finalize().into()
}

/// The head after an append, if each record follows from the one before.
pub(super) fn verify_append(append: &AppendRequest) -> Result<LogHead, AppendError> {
    let mut head = append.prev;
    for record in &append.records {
        let bad_chain = |why| AppendError::BadChain {
            seq: record.seq,
            why,
        };
        if Some(record.seq) != head.seq.checked_add(1) {
            return Err(bad_chain("its seq does not follow the one before"));
        }
        if record.meta.len().saturating_add(record.body.len()) > MAX_RECORD_BYTES {
            return Err(bad_chain("it is larger than 16 MiB"));
        }
        // An export writes empty meta as null, so null itself would not survive one.
        if record.meta.as_ref() == b"null" {
            return Err(bad_chain("its meta is null; leave it empty"));
        }
        if record.hash != chain_hash(&head.hash, &record.meta, &record.body) {
            return Err(bad_chain("its hash does not follow from the one before"));
        }
        head = record.head();
    }
    if let Some(snapshot) = &append.snapshot {
        let seq = snapshot.head.seq;
        let mut heads = append.records.iter().map(LogRecord::head);
        if snapshot.head != append.prev && !heads.any(|head| head == snapshot.head) {
            let why = "its snapshot was made at an entry that is not part of the append";
            return Err(AppendError::BadChain { seq, why });
        }
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_protocol::hex;

    /// Computed with `printf ... | sha256sum`; a different value would orphan every written log.
    #[test]
    fn the_hash_chain_matches_its_documentation() {
        let session = SessionId::parse("blue-owl").unwrap();
        assert_eq!(hex::encode(&genesis_hash(&session)), GENESIS_OF_BLUE_OWL);
        assert_eq!(
            hex::encode(&chain_hash(&genesis_hash(&session), b"{}", b"{\"seq\":1}")),
            FIRST_OF_BLUE_OWL
        );
    }

    #[test]
    fn a_byte_moved_from_meta_to_body_changes_the_hash() {
        let prev = [7; 32];
        assert_ne!(
            chain_hash(&prev, b"12", b"3"),
            chain_hash(&prev, b"1", b"23")
        );
    }

    const GENESIS_OF_BLUE_OWL: &str =
        "363ca4d52f6470aa1bd74df79272447fe5fe5ec2e55524d9299b57b1db2b61b3";
    const FIRST_OF_BLUE_OWL: &str =
        "0e39e740de595f3c4e85e52132a11ab40f78f3a3213852affd3b1e2d7fabd4f7";
}
