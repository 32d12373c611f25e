//! Refusals: why a message is not accepted, with an error code and what to do about it.

use crate::{Capability, MessageId, ParticipantId, Role, SessionId};

/// The published error codes.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    InvalidMessage,
    Unauthorized,
    SessionNotFound,
    ParticipantNotFound,
    GateFailed,
    Timeout,
    RateLimited,
    ContextTooLarge,
    InvalidState,
    TransportError,
    AgentError,
    InternalError,
}

crate::wire::named_variants!(ErrorCode);

/// Why a message was not accepted. Only its sender receives this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    Malformed(String),
    #[error("clients cannot send `{0}`")]
    NotAClientMessage(String),
    #[error("the id `{0}` was used for another message; give every message its own id")]
    IdReused(MessageId),
    #[error("{0}")]
    InvalidConfig(String),

    #[error("join the session first: send `session.join`")]
    NotJoined,
    #[error("`{field}` is `{claimed}`, but you are `{actual}`; name yourself")]
    IdentityMismatch {
        field: &'static str,
        claimed: String,
        actual: ParticipantId,
    },
    #[error("you need the capability `{}`; ask an admin for a role that has it", .0)]
    MissingCapability(Capability),
    #[error("your token does not allow {}", role_names(.0))]
    RolesNotInToken(Vec<Role>),
    #[error("{0}")]
    Unauthorized(String),
    #[error("agents do not vote; a person has to decide")]
    AgentsDoNotVote,
    #[error("you cannot vote on your own command")]
    OwnProposal,
    #[error("you edited this command, so you cannot vote on it: the session has `four_eyes`")]
    OwnAmendment,
    #[error("only `{0}`, which runs this command, may report on it")]
    NotTheExecutor(ParticipantId),

    #[error("there is no session `{0}`")]
    NoSuchSession(SessionId),
    #[error("session `{0}` was deleted by an admin; create one with another id")]
    SessionDeleted(SessionId),
    #[error("session `{0}` exists already; join it, or create one with another id")]
    SessionExists(SessionId),
    #[error("session `{0}` has ended; nothing more can happen in it")]
    SessionEnded(SessionId),
    #[error("the session is paused until {0} is back")]
    SessionPaused(String),
    #[error("session `{session}` is full ({limit} participants)")]
    SessionFull { session: SessionId, limit: u32 },
    #[error("there is no participant `{0}` in this session")]
    NoSuchParticipant(ParticipantId),

    #[error("there is no gate and no proposal `{0}`")]
    NoSuchGate(MessageId),
    #[error("there is no proposal `{0}`")]
    NoSuchProposal(MessageId),
    #[error("there is no text `{0}` in this session; name it by its SHA-256")]
    NoSuchText(String),
    #[error("the gate is closed: {0}")]
    GateClosed(String),
    #[error("the command was edited since you saw it; look again and vote with its digest")]
    CommandChanged,
    #[error("blocked by rule `{rule}`: {reason}")]
    Blocked { rule: String, reason: String },
    #[error("proposal `{0}` was made before and is {1}; propose again with a new id")]
    AlreadyProposed(MessageId, String),

    #[error("`{0}` is not running")]
    NotRunning(MessageId),
    #[error("command `{0}` has ended already")]
    AlreadyFinished(MessageId),
    #[error("the output budget of {0} bytes is spent")]
    OutputBudgetExceeded(u64),

    #[error("too many {what}: at most {limit}")]
    TooMany { what: &'static str, limit: u64 },
    #[error("context would be {would_be} bytes; this session holds at most {limit}")]
    ContextTooLarge { would_be: usize, limit: usize },
    #[error("too many messages; send at most {per_second} per second")]
    RateLimited { per_second: u32 },
    #[error("the body came too slowly: 4096 bytes are due every {seconds} seconds; send it again")]
    BodyTooSlow { seconds: u64 },
    #[error("your token has used up its quota: `{quota}` is {limit}; {advice}")]
    TokenQuota {
        quota: &'static str,
        limit: u64,
        advice: &'static str,
    },
    #[error(
        "session `{session}` has used up its quota: `{quota}` is {limit} bytes; end it and create another, or ask the operator of the server to raise the quota"
    )]
    SessionQuota {
        session: SessionId,
        quota: &'static str,
        limit: u64,
    },

    #[error("{0}")]
    InvalidState(String),
    #[error("this could not be written to the log, so nothing happened ({0}); try again")]
    WriteFailed(String),
    #[error("this cannot be read at the moment ({0}); try again")]
    ReadFailed(String),
    #[error(
        "the server failed while it handled this message, which is a fault in PVP; nothing happened, and the same message would fail again"
    )]
    HandlingFailed,
}

fn role_names(roles: &[Role]) -> String {
    let words: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
    words.join(" and ")
}

impl Refusal {
    /// The published code that tells a program what kind of refusal this is.
    pub fn code(&self) -> ErrorCode {
        match self {
            Refusal::Malformed(_)
            | Refusal::NotAClientMessage(_)
            | Refusal::IdReused(_)
            | Refusal::InvalidConfig(_) => ErrorCode::InvalidMessage,
            Refusal::NotJoined
            | Refusal::IdentityMismatch { .. }
            | Refusal::MissingCapability(_)
            | Refusal::RolesNotInToken(_)
            | Refusal::Unauthorized(_)
            | Refusal::AgentsDoNotVote
            | Refusal::OwnProposal
            | Refusal::OwnAmendment
            | Refusal::NotTheExecutor(_) => ErrorCode::Unauthorized,
            Refusal::NoSuchSession(_) | Refusal::SessionDeleted(_) => ErrorCode::SessionNotFound,
            Refusal::NoSuchParticipant(_) => ErrorCode::ParticipantNotFound,
            Refusal::Blocked { .. } => ErrorCode::GateFailed,
            Refusal::ContextTooLarge { .. } => ErrorCode::ContextTooLarge,
            Refusal::RateLimited { .. } | Refusal::TooMany { .. } | Refusal::TokenQuota { .. } => {
                ErrorCode::RateLimited
            }
            Refusal::BodyTooSlow { .. } => ErrorCode::Timeout,
            Refusal::SessionExists(_)
            | Refusal::SessionEnded(_)
            | Refusal::SessionPaused(_)
            | Refusal::SessionFull { .. }
            | Refusal::SessionQuota { .. }
            | Refusal::NoSuchGate(_)
            | Refusal::NoSuchProposal(_)
            | Refusal::NoSuchText(_)
            | Refusal::GateClosed(_)
            | Refusal::CommandChanged
            | Refusal::AlreadyProposed(..)
            | Refusal::NotRunning(_)
            | Refusal::AlreadyFinished(_)
            | Refusal::OutputBudgetExceeded(_)
            | Refusal::InvalidState(_) => ErrorCode::InvalidState,
            Refusal::WriteFailed(_) | Refusal::ReadFailed(_) | Refusal::HandlingFailed => {
                ErrorCode::InternalError
            }
        }
    }

    /// Whether the same message may succeed if it is sent again later, unchanged.
    pub fn is_recoverable(&self) -> bool {
        matches!(
            self,
            Refusal::WriteFailed(_)
                | Refusal::ReadFailed(_)
                | Refusal::RateLimited { .. }
                | Refusal::TooMany { .. }
                | Refusal::TokenQuota { .. }
                | Refusal::BodyTooSlow { .. }
                | Refusal::SessionPaused(_)
                | Refusal::SessionFull { .. }
                | Refusal::NotJoined
        )
    }
}
