//! Checkpoints: the server's signatures over a session's log up to one entry.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use pvp_protocol::{SessionId, Timestamp};
use sha2::{Digest as _, Sha256};

use super::keys::PublicKey;
use super::{Hash, LogHead, LogSnapshot};

const SIGNING_CONTEXT: &[u8] = b"pvp.checkpoint.v1\0";

/// For checkpoints that also vouch for a snapshot.
const SNAPSHOT_SIGNING_CONTEXT: &[u8] = b"pvp.checkpoint.v2\0";

/// After this many entries without a checkpoint, a session gets one.
pub const CHECKPOINT_EVERY: u64 = 256;

/// Whether entries of this type may wait for the next checkpoint. It is the text that streams while
/// a command or a model produces it; every other entry is signed by the append that writes it, in
/// the same transaction. No crash can leave one of those without a checkpoint that covers it.
pub(crate) fn may_wait_for_checkpoint(kind: &str) -> bool {
    matches!(kind, "tool.output" | "response.chunk" | "thinking.chunk")
}

/// The server's signature that the entry `seq` of a session's log had this hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last entry that it covers.
    pub seq: u64,
    /// The hash of that entry.
    pub hash: Hash,
    /// When it was signed.
    pub at: Timestamp,
    /// The SHA-256 of the snapshot made at that entry; `None` if none was made there.
    pub snapshot: Option<Hash>,
    /// The public key of the signer.
    pub key: PublicKey,
    /// The Ed25519 signature over all of this and the session's id.
    pub signature: [u8; 64],
}

impl Checkpoint {
    pub(super) fn sign(
        key: &SigningKey,
        session: &SessionId,
        head: LogHead,
        at: Timestamp,
        snapshot: Option<Hash>,
    ) -> Self {
        let mut checkpoint = Self {
            seq: head.seq,
            hash: head.hash,
            at,
            snapshot,
            key: key.verifying_key().to_bytes(),
            signature: [0; 64],
        };
        checkpoint.signature = key.sign(&checkpoint.signed_message(session)).to_bytes();
        checkpoint
    }

    /// Whether the holder of `self.key` signed this about `session`.
    pub fn is_signed(&self, session: &SessionId) -> bool {
        let message = self.signed_message(session);
        let signature = Signature::from_bytes(&self.signature);
        VerifyingKey::from_bytes(&self.key)
            .is_ok_and(|key| key.verify_strict(&message, &signature).is_ok())
    }

    fn signed_message(&self, session: &SessionId) -> Vec<u8> {
        let context = match self.snapshot {
            None => SIGNING_CONTEXT,
            Some(_) => SNAPSHOT_SIGNING_CONTEXT,
        };
        let session = session.as_str().as_bytes();
        [
            context,
            &(session.len() as u64).to_le_bytes(),
            session,
            &self.seq.to_le_bytes(),
            &self.hash,
            &self.at.as_millis().to_le_bytes(),
            self.snapshot.as_ref().map_or(&[], Hash::as_slice),
        ]
        .concat()
    }

    /// The entry that it covers.
    pub fn head(&self) -> LogHead {
        LogHead {
            seq: self.seq,
            hash: self.hash,
        }
    }

    /// Whether a snapshot is the one that this checkpoint vouches for, if it is trusted.
    pub(super) fn covers(&self, snapshot: &LogSnapshot) -> bool {
        self.head() == snapshot.head && self.snapshot == Some(snapshot_hash(&snapshot.body))
    }
}

/// The hash of a snapshot, as its checkpoint signs it.
pub(super) fn snapshot_hash(body: &[u8]) -> Hash {
    Sha256::digest(body).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_covers_every_field() {
        let key = SigningKey::from_bytes(&[3; 32]);
        let session = SessionId::parse("blue-owl").unwrap();
        let head = LogHead {
            seq: 9,
            hash: [1; 32],
        };
        let at = Timestamp::from_millis(5);
        let plain = Checkpoint::sign(&key, &session, head, at, None);
        assert!(plain.is_signed(&session));
        let good = Checkpoint::sign(&key, &session, head, at, Some([7; 32]));
        assert!(good.is_signed(&session));
        assert!(!good.is_signed(&SessionId::parse("red-owl").unwrap()));
        let other_key = SigningKey::from_bytes(&[4; 32]).verifying_key().to_bytes();
        let edits: [fn(&mut Checkpoint); 6] = [
            |checkpoint| checkpoint.seq = 8,
            |checkpoint| checkpoint.hash[0] ^= 1,
            |checkpoint| checkpoint.at = Timestamp::from_millis(6),
            |checkpoint| checkpoint.signature[63] ^= 1,
            |checkpoint| checkpoint.snapshot = None,
            |checkpoint| checkpoint.snapshot = Some([8; 32]),
        ];
        for (number, edit) in edits.iter().enumerate() {
            let mut bad = good.clone();
            edit(&mut bad);
            assert!(!bad.is_signed(&session), "edit {number}");
        }
        let bad = Checkpoint {
            key: other_key,
            ..good
        };
        assert!(!bad.is_signed(&session));
    }
}
