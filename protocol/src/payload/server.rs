//! What only the server says: welcome, acknowledgement, error.

use crate::payload::{Announce, Approval, GateRequest, PresenceStatus};
use crate::{
    Action, Assessment, Capability, ErrorCode, ExtraFields, JsonObject, Limits, MessageId,
    ParticipantId, Role, RunMode, SessionConfig, Timestamp,
};

wire_structs! {
    /// Someone in the session, as told to a newcomer.
    pub struct Participant {
        #[serde(flatten)]
        pub announce: Announce,
        pub presence: PresenceStatus,
    }

    /// A gate that is open, as told to a newcomer.
    pub struct OpenGate {
        pub gate: MessageId,
        pub request: GateRequest,
        pub action: Action,
        pub assessment: Assessment,
        pub proposer: ParticipantId,
        pub description: String,
        #[serde(default)]
        pub approvals: Vec<Approval>,
        pub escalated: bool,
        /// Who edited the command last.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub amended_by: Option<ParticipantId>,
    }

    /// A command that is running, as told to a newcomer.
    pub struct RunningCommand {
        pub tool_proposal: MessageId,
        pub executor: ParticipantId,
        pub command: String,
        pub mode: RunMode,
        pub since: Timestamp,
    }

    /// A prefix that runs without asking, as told to a newcomer; it may have expired meanwhile.
    pub struct AllowRuleInfo {
        /// The id of its `policy.allow`.
        pub rule: MessageId,
        pub by: ParticipantId,
        pub at: Timestamp,
        pub prefix: Vec<String>,
        pub expires_at: Timestamp,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
    }

    /// What this server understands beyond the published protocol.
    pub struct ProtocolExtensions {
        pub supports_shell_exec: bool,
        pub supports_amend: bool,
        pub supports_allow_rules: bool,
        pub supports_resume: bool,
        pub supports_output_read: bool,
        pub supports_forks: bool,
    }

    /// `session.welcome`
    pub struct SessionWelcome {
        pub participant: ParticipantId,
        pub roles: Vec<Role>,
        pub capabilities: Vec<Capability>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        pub config: SessionConfig,
        /// The seq of the last message in the log.
        pub head: u64,
        pub people: Vec<Participant>,
        pub gates: Vec<OpenGate>,
        pub running: Vec<RunningCommand>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub rules: Vec<AllowRuleInfo>,
        pub limits: Limits,
        pub extensions: ProtocolExtensions,
        /// Why nothing starts at the moment, if it does not.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub paused: Option<String>,
        pub server: String,
    }

    /// `session.ack`: your message `id` was accepted as `seq`
    pub struct SessionAck {
        pub id: MessageId,
        /// Messages that are not kept have none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub seq: Option<u64>,
        /// It had been applied before.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub duplicate: bool,
    }

    /// `error`
    pub struct ErrorReport {
        pub code: ErrorCode,
        pub message: String,
        pub recoverable: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "generate", ts(optional, type = "Record<string, unknown>"))]
        pub details: Option<JsonObject>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub related_to: Option<MessageId>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }
}
