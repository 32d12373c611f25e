//! Checkpoints: the server's signatures over a session's log up to one entry.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use pvp_protocol::{SessionId, Timestamp};
use rusqlite::{Connection, Row, params};

use super::keys::PublicKey;
use super::schema::{get_millis, get_seq, millis_column, seq_column};
use super::{Hash, LogHead};

const SIGNING_CONTEXT: &[u8] = b"pvp.checkpoint.v1\0";

/// After this many entries without a checkpoint, a session gets one.
pub const CHECKPOINT_EVERY: u64 = 256;

/// The server's signature that the entry `seq` of a session's log had this hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    pub seq: u64,
    pub hash: Hash,
    pub at: Timestamp,
    pub key: PublicKey,
    pub signature: [u8; 64],
}

impl Checkpoint {
    pub(super) fn sign(
        key: &SigningKey,
        session: &SessionId,
        head: LogHead,
        at: Timestamp,
    ) -> Self {
        let signature = key.sign(&signed_message(session, head.seq, &head.hash, at));
        Self {
            seq: head.seq,
            hash: head.hash,
            at,
            key: key.verifying_key().to_bytes(),
            signature: signature.to_bytes(),
        }
    }

    /// Whether the holder of `self.key` signed this about `session`.
    pub fn is_signed(&self, session: &SessionId) -> bool {
        let message = signed_message(session, self.seq, &self.hash, self.at);
        let signature = Signature::from_bytes(&self.signature);
        VerifyingKey::from_bytes(&self.key)
            .is_ok_and(|key| key.verify_strict(&message, &signature).is_ok())
    }

    pub(super) fn insert(&self, connection: &Connection, session: i64) -> rusqlite::Result<()> {
        connection
            .prepare_cached(
                "INSERT INTO checkpoints (session, seq, hash, at, key, signature)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                session,
                seq_column(self.seq)?,
                self.hash,
                millis_column(self.at),
                self.key,
                self.signature
            ])?;
        Ok(())
    }

    /// Reads the columns seq, hash, at, key, signature.
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: get_seq(row, 0)?,
            hash: row.get(1)?,
            at: get_millis(row, 2)?,
            key: row.get(3)?,
            signature: row.get(4)?,
        })
    }
}

fn signed_message(session: &SessionId, seq: u64, hash: &Hash, at: Timestamp) -> Vec<u8> {
    let session = session.as_str().as_bytes();
    [
        SIGNING_CONTEXT,
        &(session.len() as u64).to_le_bytes(),
        session,
        &seq.to_le_bytes(),
        hash,
        &at.as_millis().to_le_bytes(),
    ]
    .concat()
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
        let good = Checkpoint::sign(&key, &session, head, Timestamp::from_millis(5));
        assert!(good.is_signed(&session));
        assert!(!good.is_signed(&SessionId::parse("red-owl").unwrap()));
        let other_key = SigningKey::from_bytes(&[4; 32]).verifying_key().to_bytes();
        let edits: [fn(&mut Checkpoint); 4] = [
            |checkpoint| checkpoint.seq = 8,
            |checkpoint| checkpoint.hash[0] ^= 1,
            |checkpoint| checkpoint.at = Timestamp::from_millis(6),
            |checkpoint| checkpoint.signature[63] ^= 1,
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
