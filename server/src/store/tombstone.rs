//! Tombstones: what remains of a session that was deleted, signed by the server.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use pvp_protocol::api::SessionTombstone;
use pvp_protocol::{SessionId, Timestamp, hex};

use super::keys::PublicKey;
use super::{Hash, LogHead};

const SIGNING_CONTEXT: &[u8] = b"pvp.tombstone.v1\0";

/// Who deletes sessions that are older than the server keeps them. No participant has such an id.
pub const RETENTION: &str = "server (retention)";

/// A session to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionDeletion {
    /// The session.
    pub session: SessionId,
    /// Where its log ends; it is not deleted if it ends elsewhere.
    pub head: LogHead,
    /// Who deletes it: a participant's id, or [`RETENTION`].
    pub by: String,
    /// When.
    pub at: Timestamp,
}

/// The server's signature that a session was deleted, by whom and when, and where its log ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The session; its id is never used again.
    pub session: SessionId,
    /// How many entries its log had.
    pub entries: u64,
    /// The hash of the last of them.
    pub head: Hash,
    /// When it was deleted.
    pub at: Timestamp,
    /// Who deleted it: a participant's id, or [`RETENTION`].
    pub by: String,
    /// When this was signed; later than `at` if the server's key was rotated since.
    pub signed_at: Timestamp,
    /// The public key of the signer.
    pub key: PublicKey,
    /// The Ed25519 signature over all of this.
    pub signature: [u8; 64],
}

impl Tombstone {
    /// Signs that a session is deleted. `not_before` is when the range of the key begins.
    pub(super) fn sign(
        key: &SigningKey,
        deletion: &SessionDeletion,
        not_before: Timestamp,
    ) -> Self {
        let unsigned = Self {
            session: deletion.session.clone(),
            entries: deletion.head.seq,
            head: deletion.head.hash,
            at: deletion.at,
            by: deletion.by.clone(),
            signed_at: deletion.at.max(not_before),
            key: [0; 32],
            signature: [0; 64],
        };
        unsigned.signed_with(key)
    }

    /// The same, signed again with another key.
    pub(super) fn sign_again(&self, key: &SigningKey, at: Timestamp) -> Self {
        let unsigned = Self {
            signed_at: at,
            ..self.clone()
        };
        unsigned.signed_with(key)
    }

    fn signed_with(mut self, key: &SigningKey) -> Self {
        self.key = key.verifying_key().to_bytes();
        self.signature = key.sign(&self.signed_message()).to_bytes();
        self
    }

    /// Whether the holder of `self.key` signed this.
    pub fn is_signed(&self) -> bool {
        let message = self.signed_message();
        let signature = Signature::from_bytes(&self.signature);
        VerifyingKey::from_bytes(&self.key)
            .is_ok_and(|key| key.verify_strict(&message, &signature).is_ok())
    }

    fn signed_message(&self) -> Vec<u8> {
        let (session, by) = (self.session.as_str().as_bytes(), self.by.as_bytes());
        [
            SIGNING_CONTEXT,
            &(session.len() as u64).to_le_bytes(),
            session,
            &self.entries.to_le_bytes(),
            &self.head,
            &self.at.as_millis().to_le_bytes(),
            &(by.len() as u64).to_le_bytes(),
            by,
            &self.signed_at.as_millis().to_le_bytes(),
        ]
        .concat()
    }

    /// The same in text, for the API and for exports.
    pub fn to_text(&self) -> SessionTombstone {
        SessionTombstone {
            session: self.session.clone(),
            entries: self.entries,
            head: hex::encode(&self.head),
            at: self.at,
            by: self.by.clone(),
            signed_at: self.signed_at,
            key: hex::encode(&self.key),
            signature: hex::encode(&self.signature),
        }
    }

    pub(super) fn from_text(text: SessionTombstone) -> Result<Self, &'static str> {
        Ok(Self {
            session: text.session,
            entries: text.entries,
            head: hex::decode(&text.head).ok_or("`head` is not 64 hex digits")?,
            at: text.at,
            by: text.by,
            signed_at: text.signed_at,
            key: hex::decode(&text.key).ok_or("`key` is not 64 hex digits")?,
            signature: hex::decode(&text.signature).ok_or("`signature` is not 128 hex digits")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_of_a_tombstone_covers_every_field() {
        let key = SigningKey::from_bytes(&[3; 32]);
        let deletion = SessionDeletion {
            session: SessionId::parse("blue-owl").unwrap(),
            head: LogHead {
                seq: 9,
                hash: [1; 32],
            },
            by: "ann".to_owned(),
            at: Timestamp::from_millis(5),
        };
        let good = Tombstone::sign(&key, &deletion, Timestamp::default());
        assert!(good.is_signed());
        assert_eq!(Tombstone::from_text(good.to_text()), Ok(good.clone()));
        let edits: [fn(&mut Tombstone); 8] = [
            |tombstone| tombstone.session = SessionId::parse("red-owl").unwrap(),
            |tombstone| tombstone.entries = 8,
            |tombstone| tombstone.head[0] ^= 1,
            |tombstone| tombstone.at = Timestamp::from_millis(6),
            |tombstone| tombstone.by = "bob".to_owned(),
            |tombstone| tombstone.signed_at = Timestamp::from_millis(6),
            |tombstone| tombstone.signature[63] ^= 1,
            |tombstone| {
                tombstone.key = SigningKey::from_bytes(&[4; 32]).verifying_key().to_bytes();
            },
        ];
        for (number, edit) in edits.iter().enumerate() {
            let mut bad = good.clone();
            edit(&mut bad);
            assert!(!bad.is_signed(), "edit {number}");
        }
    }
}
