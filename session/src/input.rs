//! The inputs of the session core. It receives nothing else from outside.

use std::collections::BTreeSet;

use pvp_protocol::payload::{Announce, SecretShare, SessionCreate};
use pvp_protocol::{
    Capability, ClientMessage, Digest, ForkId, MessageId, ParticipantId, ParticipantKind, Role,
    Timestamp,
};

/// An input with its time and the randomness it may use.
#[derive(Debug, Clone)]
pub struct Stamped<T> {
    pub at: Timestamp,
    /// Fresh ids and nonces are derived from this; it must be unpredictable and used once.
    pub seed: [u8; 32],
    pub input: T,
}

/// Who a connection is authenticated as, and the most roles and capabilities they may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub participant: ParticipantId,
    /// The name that the token gives; `None` lets the participant choose.
    pub name: Option<String>,
    pub kind: ParticipantKind,
    pub roles: BTreeSet<Role>,
    /// Capabilities beyond those of the roles.
    pub capabilities: BTreeSet<Capability>,
}

/// A message from a participant who has joined.
#[derive(Debug, Clone, PartialEq)]
pub struct SubmittedMessage {
    pub id: MessageId,
    pub reference: Option<MessageId>,
    pub causal_refs: Vec<MessageId>,
    pub fork: Option<ForkId>,
    pub message: ClientMessage,
}

impl SubmittedMessage {
    /// A message without references.
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

    /// The digest that distinguishes a repeated message from another message with the same id.
    pub(crate) fn digest(&self, by: &ParticipantId) -> Digest {
        use pvp_protocol::WireMessage;
        let payload = if let ClientMessage::SecretShare(share) = &self.message {
            // The digest is stored, and a short secret could be guessed from it.
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

/// A participant who counts for decisions timed out or is active again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttendanceChange {
    /// Silent for the session's `away_timeout_seconds`.
    TimedOut,
    /// Active again.
    Back,
}

/// An event that the session core decides on.
#[derive(Debug, Clone)]
pub enum Input {
    /// The session is created.
    Create {
        by: ParticipantId,
        id: MessageId,
        create: SessionCreate,
    },
    /// Someone joins, for the first time or again.
    Join {
        identity: Identity,
        announce: Announce,
        id: MessageId,
    },
    /// A participant who has joined sends a message.
    Submit {
        by: ParticipantId,
        submitted: SubmittedMessage,
    },
    /// A participant timed out or is active again.
    Attendance {
        participant: ParticipantId,
        attendance: AttendanceChange,
        last_active: Timestamp,
    },
    /// Time has passed, so deadlines that are due act.
    Tick,
}

/// Derives ids and nonces from the seed of one input.
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

    /// A secret of 256 bits, which only the executor receives.
    pub(crate) fn next_nonce(&mut self) -> String {
        self.derive(b"nonce").to_string()
    }
}
