//! What may be said in a PVP session: identifiers, envelope, payloads, roles, quorum rules,
//! refusals and limits. No I/O, no clock, no randomness.

#[macro_use]
mod wire;

pub mod api;
pub mod payload;

mod action;
mod config;
mod depth;
mod digest;
mod envelope;
#[cfg(feature = "generate")]
pub mod generate;
mod id;
mod limits;
mod message;
mod quorum;
mod refusal;
mod role;
mod time;
mod verdict;

pub use action::{Action, ActionError, Command, Mode};
pub use config::{
    ConfigChanges, GateTimeoutAction, OrderingMode, ParticipantTimeoutAction, QuorumByCategory,
    SessionConfig, ShellExecMode,
};
pub use depth::nesting;
pub use digest::{Digest, DigestError};
pub use envelope::{Envelope, Heading, ReadError, Sender, read_client, read_server};
pub use id::{ForkId, IdError, MAX_ID_LENGTH, MessageId, ParticipantId, SessionId};
pub use limits::{ExecutionLimits, Limits};
pub use message::{ClientMessage, ServerMessage, Vocabulary, is_published};
pub use quorum::{Approvers, QuorumRule, Tally, tally};
pub use refusal::{ErrorCode, Refusal};
pub use role::{Capability, ParticipantKind, Role, Transport, capabilities_of};
pub use time::{Timestamp, TimestampError};
pub use verdict::{Assessment, Category, PartVerdict, Profile, Risk, ToolCategory};
pub use wire::{Extra, JsonObject};

/// The JSON Schema of every message and of what HTTP says, generated from the types.
pub const SCHEMA: &str = include_str!("../generated/pvp.schema.json");

/// The protocol version in every envelope.
pub const VERSION: u8 = 1;
