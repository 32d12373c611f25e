//! The inputs of the session core. It receives nothing else from outside.

use std::collections::BTreeSet;
use std::sync::Arc;

use pvp_protocol::payload::{Announce, SecretShare, SessionCreate};
use pvp_protocol::{
    Capability, ClientMessage, Digest, EnvelopeHeader, ForkId, MessageId, ParticipantId,
    ParticipantKind, Role, Timestamp, capabilities_of,
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
    /// Who they are.
    pub participant: ParticipantId,
    /// The name that the token gives; `None` lets the participant choose.
    pub name: Option<String>,
    /// A person or an agent.
    pub kind: ParticipantKind,
    /// The roles that they may have at most.
    pub roles: BTreeSet<Role>,
    /// Capabilities beyond those of the roles.
    pub capabilities: BTreeSet<Capability>,
    /// Who invited them; `None` if the server's operator did, or nobody.
    pub invited_by: Option<InvitedBy>,
}

impl Identity {
    /// Whether a token proves who this is.
    pub fn has_token(&self) -> bool {
        self.name.is_some()
    }

    /// The most that a connection may do that joins with these roles; `None` without a token.
    pub fn ceiling(&self, claimed: &[Role]) -> Option<Ceiling> {
        self.has_token().then(|| Ceiling {
            kind: self.kind,
            roles: claimed
                .iter()
                .filter(|role| self.roles.contains(role))
                .copied()
                .collect(),
            capabilities: self.capabilities.clone(),
        })
    }
}

/// The most that one connection or request may do, whatever its participant may do elsewhere: what
/// its token says and, on a connection, what was claimed when it joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ceiling {
    pub kind: ParticipantKind,
    pub roles: BTreeSet<Role>,
    /// Capabilities beyond those of the roles.
    pub capabilities: BTreeSet<Capability>,
}

impl Ceiling {
    /// Whether this allows a capability.
    pub(crate) fn allows(&self, capability: Capability) -> bool {
        capabilities_of(self.kind, &self.roles, &self.capabilities).contains(&capability)
    }
}

/// Who made a participant's token, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvitedBy {
    pub participant: ParticipantId,
    pub at: Timestamp,
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

    /// A message with the header of its envelope.
    pub fn with_header(header: EnvelopeHeader, message: ClientMessage) -> Self {
        Self {
            id: header.id,
            reference: header.reference,
            causal_refs: header.causal_refs,
            fork: header.fork,
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
        /// The most that the sender may do here; `None` on a server without login.
        ceiling: Option<Arc<Ceiling>>,
        submitted: SubmittedMessage,
    },
    /// A token of a participant was revoked or has expired. `remaining` is what their other tokens
    /// allow together; `None` if they have no other.
    TokenEnded {
        participant: ParticipantId,
        remaining: Option<Ceiling>,
        reason: String,
    },
    /// A participant timed out or is active again.
    Attendance {
        participant: ParticipantId,
        attendance: AttendanceChange,
        last_active: Timestamp,
    },
    /// All connections of a participant have been gone for a while.
    ConnectionLost { participant: ParticipantId },
    /// A participant who was told to be gone is connected again.
    ConnectionRestored { participant: ParticipantId },
    /// The client of a proposal has not been heard of for the length of a lease.
    LeaseExpired { proposal: MessageId },
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
