//! The messages that come from the server itself: welcome, acknowledgement and error.

use crate::payload::{Announce, Approval, ClientOrigin, Degree, GateRequest, PresenceStatus};
use crate::{
    Action, Assessment, Capability, ErrorCode, ExtraFields, JsonObject, Limits, MessageId,
    ParticipantId, Role, RunMode, SessionConfig, Timestamp,
};

wire_structs! {
    /// A participant, as described to someone who joins.
    pub struct Participant {
        #[serde(flatten)]
        pub announce: Announce,
        pub presence: PresenceStatus,
    }

    /// An open gate, as described to someone who joins.
    pub struct OpenGate {
        /// The gate's id.
        pub gate: MessageId,
        /// The request that opened it, as amended and escalated since.
        pub request: GateRequest,
        /// The action that is voted on.
        pub action: Action,
        /// The assessment of the action.
        pub assessment: Assessment,
        /// Who proposed it.
        pub proposer: ParticipantId,
        /// What the proposer says it does.
        pub description: String,
        /// How sure it is that what is approved is what runs; absent if an executor runs it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub degree: Option<Degree>,
        /// The agent client that the call comes from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub origin: Option<ClientOrigin>,
        /// The approvals given so far.
        #[serde(default)]
        pub approvals: Vec<Approval>,
        /// Whether the gate has been escalated to the admins.
        pub escalated: bool,
        /// Who edited the command last; absent if nobody did.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub amended_by: Option<ParticipantId>,
    }

    /// A running command, as described to someone who joins.
    pub struct RunningCommand {
        /// The proposal that it was.
        pub tool_proposal: MessageId,
        /// Who runs it.
        pub executor: ParticipantId,
        /// The command, for people.
        pub command: String,
        /// How it runs.
        pub mode: RunMode,
        /// When it was granted.
        pub since: Timestamp,
        /// How sure it is that what was approved is what runs; absent if an executor runs it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub degree: Option<Degree>,
        /// The agent client that the call comes from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub origin: Option<ClientOrigin>,
    }

    /// A shared secret, as described to someone who joins; the value is in no message.
    pub struct SecretInfo {
        /// The name of the variable.
        pub key: String,
        /// Who shared it.
        pub by: ParticipantId,
        /// The participants it is shared with.
        pub scope: Vec<ParticipantId>,
        /// When the server revokes it; never if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub expires_at: Option<Timestamp>,
    }

    /// An allow rule, as described to someone who joins; it may have expired already.
    pub struct AllowRuleInfo {
        /// The id of its `policy.allow`.
        pub rule: MessageId,
        /// Who allowed it.
        pub by: ParticipantId,
        /// When it was allowed.
        pub at: Timestamp,
        /// The words that an allowed command begins with; empty if it allows reading a directory.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub prefix: Vec<String>,
        /// The directory that may be read, as in `policy.allow`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub read_root: Option<String>,
        /// Where an allowed command runs, as in `policy.allow`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub directory: Option<String>,
        /// When the rule expires.
        pub expires_at: Timestamp,
        /// Why it was allowed.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
    }

    /// What this server supports beyond the published protocol.
    pub struct ProtocolExtensions {
        /// People may run their own commands with `shell.exec`.
        pub supports_shell_exec: bool,
        /// `gate.amend` edits a command at its gate.
        pub supports_amend: bool,
        /// `policy.allow` and `policy.revoke` manage allow rules.
        pub supports_allow_rules: bool,
        /// `session.join` with `after` resumes.
        pub supports_resume: bool,
        /// `output.read` reads recorded output.
        pub supports_output_read: bool,
        /// Sessions can be forked and merged.
        pub supports_forks: bool,
    }

    /// `session.welcome`
    pub struct SessionWelcome {
        /// Your id.
        pub participant: ParticipantId,
        /// Your roles.
        pub roles: Vec<Role>,
        /// Everything you may do.
        pub capabilities: Vec<Capability>,
        /// The session's name, if it has one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// The session's configuration.
        pub config: SessionConfig,
        /// The sequence number of the last message in the log.
        pub head: u64,
        /// Everyone in the session.
        pub people: Vec<Participant>,
        /// The open gates.
        pub gates: Vec<OpenGate>,
        /// The commands that are running.
        pub running: Vec<RunningCommand>,
        /// The allow rules.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub rules: Vec<AllowRuleInfo>,
        /// The shared secrets, by name.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub secrets: Vec<SecretInfo>,
        /// What the session and its participants may use.
        pub limits: Limits,
        /// What this server supports beyond the published protocol.
        pub extensions: ProtocolExtensions,
        /// Why the session is paused; absent if it is not.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub paused: Option<String>,
        /// The server's name and version.
        pub server: String,
    }

    /// `session.ack`: your message `id` was accepted as `seq`
    pub struct SessionAck {
        pub id: MessageId,
        /// The sequence number; absent for ephemeral messages.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub seq: Option<u64>,
        /// Whether the message had been applied before, so that it was not applied again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub duplicate: bool,
    }

    /// `error`
    pub struct ErrorReport {
        /// The published error code.
        pub code: ErrorCode,
        /// What is wrong and what to do about it.
        pub message: String,
        /// Whether the same message may succeed later.
        pub recoverable: bool,
        /// Further facts about the error.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "generate", ts(optional, type = "Record<string, unknown>"))]
        pub details: Option<JsonObject>,
        /// The id of the message that was refused.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub related_to: Option<MessageId>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }
}

impl OpenGate {
    /// The handle of the proposal and of exactly the command that waits.
    pub fn handle(&self) -> String {
        let (proposal, digest) = (&self.request.action_ref, self.assessment.digest);
        match self.amended_by {
            Some(_) => proposal.edited_handle(digest),
            None => proposal.handle(digest),
        }
    }
}
