//! Messages about gates: requests, votes, amendments, timeouts and resolutions.

use crate::payload::DiscardedTrial;
use crate::{
    Assessment, Category, Digest, ExtraFields, GateTimeoutAction, JsonObject, MessageId,
    ParticipantId, QuorumRule, Sender, Timestamp,
};

wire_enums! {
    /// What a gate decides about.
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

    /// What happened when a gate's deadline passed.
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
        /// Withdrawn by its proposer, cancelled, or closed by the end of the session.
        Cancelled,
    }

    /// What closed a gate.
    pub enum ResolutionCause {
        Quorum,
        Rejection,
        Deadline,
        /// The deadline approved a write, as the session is configured to do.
        Clock,
        Cancel,
        ProposerLeft,
        SessionEnded,
    }
}

impl GateResolve {
    /// Why it did not pass, by whom and what to do instead, in words for the agent.
    pub fn denial_text(&self) -> String {
        let by = self.by.as_ref();
        let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
        let reason = self.reason.as_ref();
        let reason = reason.map(|reason| format!(": {reason}"));
        let reason = reason.unwrap_or_default();
        let suggestion = self.suggestion.as_ref();
        let suggestion = suggestion.map(|text| format!(" Suggestion: {text}."));
        let suggestion = suggestion.unwrap_or_default();
        let what = match self.outcome {
            GateOutcome::Rejected => format!("Rejected{by}{reason}."),
            GateOutcome::TimedOut => "Nobody decided before the deadline.".to_owned(),
            GateOutcome::Cancelled | GateOutcome::Approved => format!("Cancelled{by}{reason}."),
        };
        format!("{what}{suggestion} It did not run.")
    }
}

impl GateReject {
    /// The server's word that a proposal is over.
    pub fn by_server(proposal: MessageId, gate_request: Option<MessageId>, reason: String) -> Self {
        Self {
            gate: proposal,
            rejector: ParticipantId::parse(Sender::SYSTEM).expect("a plain word"),
            reason,
            digest: None,
            gate_request,
            extra: ExtraFields::new(),
        }
    }
}

wire_structs! {
    /// One participant's approval.
    pub struct Approval {
        pub participant: ParticipantId,
        pub at: Timestamp,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub comment: Option<String>,
    }

    /// `gate.request`
    pub struct GateRequest {
        /// What the gate decides about.
        pub action_type: GateActionType,
        /// The id of the proposal that waits.
        pub action_ref: MessageId,
        /// How many of whom must approve.
        pub quorum: QuorumRule,
        /// Seconds from opening to the deadline; 0 means no deadline.
        pub timeout_seconds: u32,
        /// What to show to those who vote.
        pub message: String,
        /// The category of the command's assessment.
        pub category: Category,
        /// The digest of the action that is voted on.
        pub digest: Digest,
        /// When the gate times out; absent if it never does.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deadline: Option<Timestamp>,
        /// What happens at the deadline.
        pub on_timeout: GateTimeoutAction,
        /// Who could approve when the gate opened.
        pub voters: Vec<ParticipantId>,
        /// What came of trying the command in the sandbox, if it was tried.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub trial: Option<DiscardedTrial>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `gate.approve`
    pub struct GateApprove {
        /// The gate's proposal; a client may name the `gate.request` instead.
        pub gate: MessageId,
        /// Who approves; must be the sender.
        pub approver: ParticipantId,
        /// What the voter says about it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub comment: Option<String>,
        /// The digest of the action that was shown to the voter; required once a command was
        /// edited.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub digest: Option<Digest>,
        /// The id of the gate's `gate.request`; set by the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub gate_request: Option<MessageId>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `gate.reject`: a person's vote or, from the server, the end of a proposal that nobody voted
    /// down with `gate.reject`
    pub struct GateReject {
        /// The gate's proposal; a client may name the `gate.request` instead.
        pub gate: MessageId,
        /// Who rejects it; must be the sender.
        pub rejector: ParticipantId,
        /// Why, for the agent.
        pub reason: String,
        /// The digest of the action that was shown to the voter.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub digest: Option<Digest>,
        /// The id of the gate's `gate.request`, if there was one; set by the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub gate_request: Option<MessageId>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `gate.timeout`
    pub struct GateTimeout {
        /// The gate's proposal.
        pub gate: MessageId,
        /// The id of the gate's `gate.request`; absent in logs of earlier versions, where `gate` is
        /// that id.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub gate_request: Option<MessageId>,
        /// Approvals that count.
        pub approvals_received: u32,
        /// Approvals that were needed.
        pub approvals_required: u32,
        /// What happens next.
        pub resolution: TimeoutResolution,
        /// After escalation, the second and last deadline.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deadline: Option<Timestamp>,
        /// After escalation, the rule that decides.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub quorum: Option<QuorumRule>,
        /// After escalation, the people who decide.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub voters: Option<Vec<ParticipantId>>,
    }

    /// `gate.resolve`: the only message that closes a gate
    pub struct GateResolve {
        /// The gate's id.
        pub gate: MessageId,
        /// The proposal that waited at it.
        pub tool_proposal: MessageId,
        /// How it closed.
        pub outcome: GateOutcome,
        /// What closed it.
        pub how: ResolutionCause,
        /// When it closed.
        pub at: Timestamp,
        /// The approvals it had when it closed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub approvals: Vec<Approval>,
        /// Who rejected or cancelled it; absent if nobody did.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub by: Option<ParticipantId>,
        /// Why it was rejected or cancelled, for the agent.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// What the rejector suggests doing instead.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub suggestion: Option<String>,
        /// The allow rule that approved it, which counts as the vote of its author, `by`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rule: Option<MessageId>,
    }

    /// `gate.amend`: edits the command; the votes given so far are void
    pub struct GateAmend {
        /// The gate's id.
        pub gate: MessageId,
        /// The complete new arguments, as in `tool.propose`.
        #[serde(serialize_with = "crate::sorted_fields::serialize")]
        #[cfg_attr(feature = "generate", ts(type = "Record<string, unknown>"))]
        pub arguments: JsonObject,
        /// The digest of the action that was edited.
        pub digest: Digest,
        /// Why it was edited.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// The assessment of the new command; set by the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub assessment: Option<Assessment>,
        /// The quorum of the new command; set by the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub quorum: Option<QuorumRule>,
        /// The new deadline; set by the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deadline: Option<Timestamp>,
        /// Who could approve at the time of the edit; set by the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub voters: Option<Vec<ParticipantId>>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }
}
