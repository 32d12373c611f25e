//! Log entries: an envelope, its audience, and metadata that only the server needs.

use std::collections::BTreeSet;

use pvp_protocol::{
    Digest, Envelope, ForkId, Limits, MessageId, ParticipantId, parse_server_message,
};
use serde::{Deserialize, Serialize};

/// Who may see an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Viewers {
    Everyone,
    /// Those who may approve at the time of reading, and these.
    Approvers {
        and: BTreeSet<ParticipantId>,
    },
    Only(BTreeSet<ParticipantId>),
}

/// Who may see an entry, and which fork it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audience {
    pub who: Viewers,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<ForkId>,
}

impl Audience {
    /// Everyone, in the main history.
    pub fn everyone() -> Self {
        Self {
            who: Viewers::Everyone,
            fork: None,
        }
    }

    /// Only these participants.
    pub fn only(people: impl IntoIterator<Item = ParticipantId>) -> Self {
        Self {
            who: Viewers::Only(people.into_iter().collect()),
            fork: None,
        }
    }

    /// Whether a viewer may see the entry.
    pub fn includes(&self, viewer: &ParticipantId, may_approve: bool) -> bool {
        match &self.who {
            Viewers::Everyone => true,
            Viewers::Approvers { and } => may_approve || and.contains(viewer),
            Viewers::Only(people) => people.contains(viewer),
        }
    }

    /// How many bytes the list of viewers takes.
    pub(crate) fn stored_bytes(&self) -> usize {
        match &self.who {
            Viewers::Everyone => 0,
            Viewers::Approvers { and: people } | Viewers::Only(people) => {
                people.iter().map(|id| id.as_str().len()).sum()
            }
        }
    }

    fn is_everyone(&self) -> bool {
        self.who == Viewers::Everyone && self.fork.is_none()
    }
}

/// The nonce that only the executor's copy of `tool.execute` contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantNonce {
    pub to: ParticipantId,
    pub nonce: String,
}

/// One entry of a session's log.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub envelope: Envelope,
    pub audience: Audience,
    pub grant_nonce: Option<GrantNonce>,
    /// The digest of the client's message that this entry relays.
    pub submitted_digest: Option<Digest>,
}

/// Why a stored entry cannot be decoded or replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("the entry's body is not a message of this version: {0}")]
    Body(String),
    #[error("the entry's meta is not readable: {0}")]
    Meta(String),
    #[error("the entry has no seq")]
    NoSeq,
    #[error("entry {found} follows entry {head}")]
    OutOfOrder { head: u64, found: u64 },
    #[error("entry {seq} cannot be applied: {why}; open it with the version that wrote it")]
    Unusable { seq: u64, why: String },
}

/// What is stored beside the envelope.
#[derive(Default, Serialize, Deserialize)]
struct EntryMeta {
    #[serde(skip_serializing_if = "Option::is_none")]
    audience: Option<Audience>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private: Option<GrantNonce>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<Digest>,
}

impl Entry {
    /// The sequence number.
    pub fn seq(&self) -> u64 {
        self.envelope.seq.unwrap_or_default()
    }

    /// The message's id.
    pub fn id(&self) -> &MessageId {
        &self.envelope.header.id
    }

    /// The envelope, byte for byte as it is stored, hashed and sent.
    pub fn body(&self) -> Vec<u8> {
        self.envelope.to_json()
    }

    /// The metadata stored beside the envelope; empty if it is all default.
    pub fn meta(&self) -> Vec<u8> {
        let meta = EntryMeta {
            audience: (!self.audience.is_everyone()).then(|| self.audience.clone()),
            private: self.grant_nonce.clone(),
            origin: self.submitted_digest,
        };
        if meta.audience.is_none() && meta.private.is_none() && meta.origin.is_none() {
            return Vec::new();
        }
        serde_json::to_vec(&meta).expect("meta is plain data")
    }

    /// Decodes a stored entry.
    pub fn decode(meta: &[u8], body: &[u8]) -> Result<Self, EntryError> {
        let (audience, private, origin) = Self::decode_meta(meta)?;
        let text =
            std::str::from_utf8(body).map_err(|error| EntryError::Body(error.to_string()))?;
        // The entry was within the limits when it was stored, and those may have been wider.
        let limits = Limits {
            json_depth: usize::MAX - 1,
            ..Limits::default()
        };
        let envelope = parse_server_message(text, &limits)
            .map_err(|error| EntryError::Body(error.refusal.to_string()))?
            .ok_or_else(|| EntryError::Body("unknown type".to_owned()))?;
        if envelope.seq.is_none() {
            return Err(EntryError::NoSeq);
        }
        Ok(Self {
            envelope,
            audience,
            grant_nonce: private,
            submitted_digest: origin,
        })
    }

    /// Decodes only the metadata of an entry, without parsing its body.
    #[allow(clippy::type_complexity)]
    pub fn decode_meta(
        meta: &[u8],
    ) -> Result<(Audience, Option<GrantNonce>, Option<Digest>), EntryError> {
        if meta.is_empty() {
            return Ok((Audience::everyone(), None, None));
        }
        let meta: EntryMeta =
            serde_json::from_slice(meta).map_err(|error| EntryError::Meta(error.to_string()))?;
        Ok((
            meta.audience.unwrap_or_else(Audience::everyone),
            meta.private,
            meta.origin,
        ))
    }
}
