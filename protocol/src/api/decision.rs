//! The bodies of the call that proposes something and waits for the decision, made for hooks.

use super::CommandRecord;
use crate::payload::{ClientOrigin, Degree, FileContent, RunBy};
use crate::{Category, JsonObject, MessageId, ParticipantId, Risk, Timestamp, ToolCategory};

wire_enums! {
    /// What was decided about a proposal.
    pub enum DecisionState {
        /// Nothing yet; ask again.
        Waiting,
        /// It may run, once.
        Allowed,
        /// It may not run.
        Denied,
    }
}

wire_structs! {
    /// Proposes a call, as `tool.propose` does.
    #[serde(deny_unknown_fields)]
    pub struct ProposalRequest {
        /// The id of the proposal; sending the same again asks for its decision.
        pub id: MessageId,
        /// The tool; `shell` runs commands.
        pub tool_name: String,
        /// The tool's arguments.
        #[cfg_attr(feature = "generate", ts(type = "Record<string, unknown>"))]
        pub arguments: JsonObject,
        /// The kind of tool.
        pub category: ToolCategory,
        /// What the agent says it does.
        #[serde(default)]
        pub description: String,
        /// The agent's own estimate, which can raise the assessment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub risk_level: Option<Risk>,
        /// Whether it needs a vote even if the policy would let it run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub requires_approval: bool,
        /// The contents of the files that the arguments bind.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub file_contents: Vec<FileContent>,
        /// Who runs it once it is granted.
        #[serde(default)]
        pub runs: RunBy,
        /// How sure it is that what is approved is what runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub degree: Option<Degree>,
        /// The agent client that the call comes from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub origin: Option<ClientOrigin>,
    }

    /// What a proposal waits for.
    pub struct AwaitedVotes {
        /// The gate and the version of the command, for `pvp approve`.
        pub handle: String,
        /// The quorum, in words.
        pub quorum: String,
        /// Approvals that count so far.
        pub received: u32,
        /// Approvals that are needed.
        pub required: u32,
        /// Who could still approve.
        pub awaited: Vec<ParticipantId>,
        /// When the gate times out; absent if it never does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub deadline: Option<Timestamp>,
    }

    /// What was decided about a proposal.
    pub struct ProposalDecision {
        /// The proposal's id.
        pub tool_proposal: MessageId,
        /// Whether it may run.
        pub decision: DecisionState,
        /// Whether the proposal was there before this request.
        #[serde(default)]
        pub repeated: bool,
        /// Why it may not run, by whom and what to do instead, for the agent; absent otherwise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// The category of its assessment.
        pub category: Category,
        /// The arguments as they were decided on.
        #[cfg_attr(feature = "generate", ts(type = "Record<string, unknown>"))]
        pub arguments: JsonObject,
        /// What it waits for; absent once it is decided.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub awaits: Option<AwaitedVotes>,
        /// What the log says about it.
        pub command: CommandRecord,
    }
}
