//! What is said over HTTP besides messages: lists, pages, ballots.

use std::collections::BTreeSet;

use crate::payload::{
    Approval, ClearedBy, GateResolve, OpenGate, Participant, RunOutcome, RunningCommand, SessionAck,
};
use crate::{
    Capability, Category, Digest, JsonObject, MessageId, ParticipantId, ParticipantKind, Risk,
    Role, SessionConfig, SessionId, Timestamp,
};

wire_enums! {
    /// How a gate stands.
    pub enum GateStatus {
        Open,
        Approved,
        Rejected,
        TimedOut,
        Cancelled,
    }

    /// How far a command has come.
    pub enum CommandStatus {
        Waiting,
        Running,
        Blocked,
        Rejected,
        TimedOut,
        Cancelled,
        Finished,
    }

    /// Yes or no.
    pub enum VoteChoice {
        Approve,
        Reject,
    }
}

wire_structs! {
    /// Who a token says you are, and the most you may be.
    pub struct WhoAmI {
        pub participant: ParticipantId,
        pub name: String,
        pub kind: ParticipantKind,
        pub roles: BTreeSet<Role>,
        /// The one session it is for; all of them if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<SessionId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires: Option<Timestamp>,
    }

    /// Whom to invite.
    #[serde(deny_unknown_fields)]
    pub struct InviteRequest {
        pub name: String,
        /// The most they may be.
        pub roles: BTreeSet<Role>,
        #[serde(default = "human")]
        pub kind: ParticipantKind,
        #[serde(default)]
        pub capabilities: BTreeSet<Capability>,
        /// The one session it is for; all of them if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<SessionId>,
        /// How long the token lives; for ever if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires_seconds: Option<u64>,
        /// Another device or another token for someone who is known already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub participant: Option<ParticipantId>,
    }

    /// What the invited gets. The token is shown once and cannot be shown again.
    pub struct Invitation {
        pub token: String,
        pub link: String,
        pub participant: ParticipantId,
        pub roles: BTreeSet<Role>,
        pub expires: Option<Timestamp>,
    }

    /// A session to be made.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct CreateSessionRequest {
        /// Its id; a fresh one if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session: Option<SessionId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        #[serde(default)]
        pub config: SessionConfig,
    }

    /// A session that was made.
    pub struct CreatedSession {
        pub session: SessionId,
        pub seq: u64,
    }

    /// A session in a list.
    pub struct SessionListItem {
        pub session: SessionId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        pub created_at: Timestamp,
        pub updated_at: Timestamp,
        /// The seq of the last message in the log.
        pub head: u64,
        pub open_gates: u32,
        pub ended: bool,
    }

    /// Sessions, newest first.
    pub struct SessionList {
        pub sessions: Vec<SessionListItem>,
        /// There are older ones; ask again with `before` as the last session's id.
        pub more: bool,
    }

    /// A session as it is.
    pub struct SessionDetails {
        pub session: SessionId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        pub config: SessionConfig,
        pub head: u64,
        pub people: Vec<Participant>,
        pub gates: Vec<GateListItem>,
        pub running: Vec<RunningCommand>,
        /// Why nothing starts at the moment, if it does not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub paused: Option<String>,
        pub ended: bool,
    }

    /// Messages of a session, in order.
    pub struct MessagePage {
        /// Envelopes, as on the socket.
        #[cfg_attr(feature = "generate", ts(type = "ServerMessage[]"))]
        pub messages: Vec<JsonObject>,
        /// Ask for what follows with this as `after`.
        pub next: u64,
        /// The seq of the last message in the log.
        pub head: u64,
    }

    /// An open gate, and how the vote stands.
    pub struct GateListItem {
        pub session: SessionId,
        #[serde(flatten)]
        pub open: OpenGate,
        /// Approvals that count, and how many are needed.
        pub received: u32,
        pub required: u32,
        /// Named people whose approval is still needed; empty if anyone's will do.
        pub awaited: Vec<ParticipantId>,
        /// Whether the one who asks may vote on it.
        pub may_vote: bool,
    }

    /// Open gates of every session that the one who asks may see, oldest session first.
    pub struct GateList {
        pub gates: Vec<GateListItem>,
        /// Ask again with this as `after` and a `wait` to hear of the next change.
        pub version: u64,
    }

    /// One gate, open or closed.
    pub struct GateDetails {
        pub session: SessionId,
        pub tool_proposal: MessageId,
        pub status: GateStatus,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub open: Option<GateListItem>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub resolution: Option<GateResolve>,
    }

    /// A vote.
    #[serde(deny_unknown_fields)]
    pub struct VoteRequest {
        pub vote: VoteChoice,
        /// Said with an approval.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub comment: Option<String>,
        /// Why not; a rejection needs one, and the agent reads it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// The digest of what was shown; needed once a command was edited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub digest: Option<Digest>,
        /// The id of the vote; repeating it does not vote twice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub id: Option<MessageId>,
    }

    /// An edit of a command that waits.
    #[serde(deny_unknown_fields)]
    pub struct EditRequest {
        /// The whole new arguments, as in `tool.propose`.
        #[cfg_attr(feature = "generate", ts(type = "Record<string, unknown>"))]
        pub arguments: JsonObject,
        /// The digest of what is edited.
        pub digest: Digest,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub id: Option<MessageId>,
    }

    /// A vote or an edit that counted, and what the gate is after it.
    pub struct GateUpdateResponse {
        pub ack: SessionAck,
        pub gate: GateDetails,
    }

    /// One command of the past, or one that waits or runs.
    pub struct CommandRecord {
        /// The proposal; its output is read by the same id.
        pub tool_proposal: MessageId,
        pub seq: u64,
        pub at: Timestamp,
        pub proposer: ParticipantId,
        pub command: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cwd: Option<String>,
        pub description: String,
        pub category: Category,
        pub risk: Risk,
        pub rule: String,
        pub status: CommandStatus,
        /// Who edited it last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub edited_by: Option<ParticipantId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub resolution: Option<GateResolve>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub executor: Option<ParticipantId>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cleared_by: Option<ClearedBy>,
        #[serde(default)]
        pub approvals: Vec<Approval>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub result: Option<CommandResult>,
    }

    /// How a command ended.
    pub struct CommandResult {
        pub at: Timestamp,
        pub success: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub exit_code: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub error: Option<String>,
        pub duration_ms: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub outcome: Option<RunOutcome>,
    }

    /// Commands of a session, newest first.
    pub struct CommandPage {
        pub commands: Vec<CommandRecord>,
        /// Ask for older ones with this as `before`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub next: Option<u64>,
    }
}

fn human() -> ParticipantKind {
    ParticipantKind::Human
}

/// Types that only HTTP uses, with a name to generate them by.
#[cfg(feature = "generate")]
macro_rules! api_types {
    ($($name:ident),*) => {
        pub(crate) fn schemas(generator: &mut schemars::SchemaGenerator) {
            $(generator.subschema_for::<$name>();)*
        }

        pub(crate) fn visit(visitor: &mut impl ts_rs::TypeVisitor) {
            $(visitor.visit::<$name>();)*
        }
    };
}

#[cfg(feature = "generate")]
api_types!(
    WhoAmI,
    InviteRequest,
    Invitation,
    CreateSessionRequest,
    CreatedSession,
    SessionList,
    SessionDetails,
    MessagePage,
    GateList,
    GateDetails,
    VoteRequest,
    EditRequest,
    GateUpdateResponse,
    CommandPage
);
