//! Gates: asked, voted on, edited, timed out and resolved.

use crate::{
    Assessment, Category, Digest, ExtraFields, GateTimeoutAction, JsonObject, MessageId,
    ParticipantId, QuorumRule, Timestamp,
};

wire_enums! {
    /// What a gate guards.
    pub enum GateActionType {
        Tool,
        Deploy,
        Prompt,
        ContextChange,
        SessionConfig,
        ParticipantAdd,
        Fork,
        Merge,
    }

    /// What a passed deadline led to.
    pub enum TimeoutResolution {
        Rejected,
        AutoApproved,
        Escalated,
    }

    /// How a gate closed.
    pub enum GateOutcome {
        Approved,
        Rejected,
        TimedOut,
        /// Withdrawn by its proposer, cancelled, or overtaken by the end of the session.
        Cancelled,
    }

    /// What closed it.
    pub enum ResolutionCause {
        Quorum,
        Rejection,
        Deadline,
        /// The deadline approved a write, as configured.
        Clock,
        Cancel,
        ProposerLeft,
        SessionEnded,
    }
}

wire_structs! {
    /// One person's yes.
    pub struct Approval {
        pub participant: ParticipantId,
        pub at: Timestamp,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub comment: Option<String>,
    }

    /// `gate.request`
    pub struct GateRequest {
        pub action_type: GateActionType,
        pub action_ref: MessageId,
        pub quorum: QuorumRule,
        pub timeout_seconds: u32,
        pub message: String,
        pub category: Category,
        pub digest: Digest,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deadline: Option<Timestamp>,
        pub on_timeout: GateTimeoutAction,
        /// Who could approve when the gate opened.
        pub voters: Vec<ParticipantId>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `gate.approve`
    pub struct GateApprove {
        pub gate: MessageId,
        pub approver: ParticipantId,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub comment: Option<String>,
        /// The digest that was shown to the voter; needed once a command was edited.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub digest: Option<Digest>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `gate.reject`
    pub struct GateReject {
        pub gate: MessageId,
        pub rejector: ParticipantId,
        pub reason: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub digest: Option<Digest>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `gate.timeout`
    pub struct GateTimeout {
        pub gate: MessageId,
        pub approvals_received: u32,
        pub approvals_required: u32,
        pub resolution: TimeoutResolution,
        /// After escalation: the second and last deadline.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deadline: Option<Timestamp>,
        /// After escalation: the rule and the people that decide.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub quorum: Option<QuorumRule>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub voters: Option<Vec<ParticipantId>>,
    }

    /// `gate.resolve`: the one message that closes a card everywhere
    pub struct GateResolve {
        pub gate: MessageId,
        pub tool_proposal: MessageId,
        pub outcome: GateOutcome,
        pub how: ResolutionCause,
        pub at: Timestamp,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub approvals: Vec<Approval>,
        /// Who rejected or cancelled it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub by: Option<ParticipantId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub suggestion: Option<String>,
    }

    /// `gate.amend`: edit the command, then vote again
    pub struct GateAmend {
        pub gate: MessageId,
        /// The whole new arguments, as in `tool.propose`.
        #[cfg_attr(feature = "generate", ts(type = "Record<string, unknown>"))]
        pub arguments: JsonObject,
        /// The digest of what was edited.
        pub digest: Digest,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// The verdict on the new command; set by the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub assessment: Option<Assessment>,
        /// The quorum of the new command; set by the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub quorum: Option<QuorumRule>,
        /// The new deadline; set by the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deadline: Option<Timestamp>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub voters: Option<Vec<ParticipantId>>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }
}
