//! What comes in: everything the session core may know about the world.

use std::collections::BTreeSet;

use pvp_protocol::payload::{Announce, SecretShare, SessionCreate};
use pvp_protocol::{
    Capability, ClientMessage, Digest, ForkId, MessageId, ParticipantId, ParticipantKind, Role,
    Timestamp,
};

/// An input with the moment it came and the randomness it may use.
#[derive(Debug, Clone)]
pub struct Stamped<T> {
    pub at: Timestamp,
    /// Fresh ids and nonces are derived from this; it must be unpredictable and used once.
    pub seed: [u8; 32],
    pub input: T,
}

/// Who a connection was proved to be, and the most it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub participant: ParticipantId,
    /// The name that login vouches for; `None` lets the participant choose.
    pub name: Option<String>,
    pub kind: ParticipantKind,
    pub roles: BTreeSet<Role>,
    /// Capabilities beyond the roles.
    pub capabilities: BTreeSet<Capability>,
}

/// A message as a joined participant said it.
#[derive(Debug, Clone, PartialEq)]
pub struct Submitted {
    pub id: MessageId,
    pub reference: Option<MessageId>,
    pub causal_refs: Vec<MessageId>,
    pub fork: Option<ForkId>,
    pub message: ClientMessage,
}

impl Submitted {
    /// A message that refers to nothing else.
    pub fn new(id: MessageId, message: impl Into<ClientMessage>) -> Self {
        let message = message.into();
        Self {
            id,
            reference: None,
            causal_refs: Vec::new(),
            fork: None,
            message,
        }
    }

    /// The fingerprint that tells a repeated message from another one under the same id.
    pub(crate) fn digest(&self, by: &ParticipantId) -> Digest {
        use pvp_protocol::WireMessage;
        let payload = if let ClientMessage::SecretShare(share) = &self.message {
            // The fingerprint is stored, and a short secret could be guessed from it.
            serde_json::to_vec(&SecretShare {
                value: None,
                ..share.clone()
            })
        } else {
            serde_json::to_vec(&self.message)
        };
        let payload = payload.expect("a message is plain data");
        let reference = self.reference.as_ref().map_or("", MessageId::as_str);
        Digest::of(&[
            by.as_str().as_bytes(),
            self.message.kind().as_bytes(),
            reference.as_bytes(),
            &payload,
        ])
    }
}

/// Whether someone who counts for decisions is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttendanceChange {
    /// Not heard of for the session's `away_timeout_seconds`.
    TimedOut,
    /// Heard of again.
    Back,
}

/// One thing that happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// The session begins.
    Create {
        by: ParticipantId,
        id: MessageId,
        create: SessionCreate,
    },
    /// Someone comes in, for the first time or again.
    Join {
        identity: Identity,
        announce: Announce,
        id: MessageId,
    },
    /// Someone who has joined says something.
    Submit {
        by: ParticipantId,
        submitted: Submitted,
    },
    /// Someone went quiet, or came back.
    Attendance {
        participant: ParticipantId,
        attendance: AttendanceChange,
        last_active: Timestamp,
    },
    /// Time has passed; whatever is due happens.
    Tick,
}

/// Ids and nonces derived from one stamp.
#[derive(Debug)]
pub(crate) struct IdGenerator {
    at: Timestamp,
    seed: [u8; 32],
    counter: u64,
}

impl IdGenerator {
    pub(crate) fn new(at: Timestamp, seed: [u8; 32]) -> Self {
        Self {
            at,
            seed,
            counter: 0,
        }
    }

    fn derive(&mut self, purpose: &[u8]) -> Digest {
        self.counter += 1;
        Digest::of(&[purpose, &self.seed, &self.counter.to_le_bytes()])
    }

    pub(crate) fn next_id(&mut self) -> MessageId {
        let digest = self.derive(b"id");
        let entropy = digest.as_bytes()[..10]
            .try_into()
            .expect("a digest has 32 bytes");
        MessageId::new_v7(self.at, entropy)
    }

    /// 256 bits that nobody but the executor learns.
    pub(crate) fn next_nonce(&mut self) -> String {
        self.derive(b"nonce").to_string()
    }
}
