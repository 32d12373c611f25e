//! The PVP wire protocol: ids, envelope, payloads, roles, quorum rules, refusals and limits.
//!
//! This crate does no I/O and uses no clock and no randomness.

#[macro_use]
mod wire;

pub mod api;
pub mod hex;
pub mod payload;
pub mod suggestion;
pub mod token_text;

mod action;
mod assessment;
mod config;
mod digest;
mod envelope;
mod file_tool;
#[cfg(feature = "generate")]
pub mod generate;
mod id;
mod invisible;
mod join_code;
mod json_depth;
mod key_fingerprint;
mod limits;
mod message;
mod quorum;
mod refusal;
mod role;
mod sorted_fields;
mod time;
mod tool_call;
mod unique_fields;

pub use action::{Action, ActionError, BoundFile, Command, RunMode};
pub use assessment::{Assessment, Category, PartAssessment, Risk, SandboxProfile, ToolCategory};
pub use config::{
    ClientReads, ConfigChanges, GateTimeoutAction, OrderingMode, ParticipantTimeoutAction,
    QuorumByCategory, SessionConfig, ShellExecMode, ToolKind, check_config_fields,
};
pub use digest::{Digest, DigestError};
pub use envelope::{
    Envelope, EnvelopeHeader, MessageParseError, Sender, parse_client_message, parse_server_message,
};
pub use file_tool::{FILE_EDIT, FILE_READ, FILE_WRITE, FileTool};
pub use id::{
    EDITED_HANDLE_DIGEST_LENGTH, ForkId, IdError, MAX_ID_LENGTH, MessageId, ParticipantId,
    SHORT_ID_LENGTH, SessionId,
};
pub use invisible::{count_invisible, escape_invisible};
pub use join_code::{JoinCode, JoinCodeError};
pub use json_depth::nesting_depth;
pub use key_fingerprint::{KeyFingerprint, KeyFingerprintError};
pub use limits::{ExecutionLimits, Limits};
pub use message::{ClientMessage, ServerMessage, WireMessage, is_published};
pub use quorum::{Approvers, QuorumRule, Tally, dependent_approvals, tally};
pub use refusal::{ErrorCode, Refusal};
pub use role::{Capability, ParticipantKind, Role, Transport, capabilities_of};
pub use time::{Timestamp, TimestampError};
pub use tool_call::{ToolCallError, path_arguments, text_arguments};
pub use unique_fields::UniqueFields;
pub use wire::{ExtraFields, JsonObject};

/// The JSON Schema of every message and every HTTP body, generated from the types.
pub const SCHEMA: &str = include_str!("../generated/pvp.schema.json");

/// The protocol version in every envelope.
pub const VERSION: u8 = 1;
