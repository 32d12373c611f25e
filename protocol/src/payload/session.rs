//! Messages about sessions and their forks.

use serde_json::Value;

use crate::payload::Announce;
use crate::{ConfigChanges, ExtraFields, ForkId, MessageId, ParticipantId, SessionConfig};

wire_enums! {
    /// How a session ended.
    pub enum FinalState {
        Completed,
        Aborted,
        Timeout,
    }

    /// How two forks are merged.
    pub enum MergeStrategy {
        Replace,
        Append,
        Interleave,
        Manual,
    }

    /// Which side of a conflict wins.
    pub enum ConflictResolution {
        UseSource,
        UseTarget,
        Custom,
    }
}

wire_structs! {
    /// `session.create`
    pub struct SessionCreate {
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        #[serde(default)]
        pub config: SessionConfig,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `session.join`
    pub struct SessionJoin {
        /// Who joins, with which roles.
        pub participant: Announce,
        /// The token that proves who this is; removed before anything is recorded.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub token: Option<String>,
        /// The protocol versions that the client speaks.
        pub supported_versions: Vec<u32>,
        /// To resume: send only what came after this sequence number.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub after: Option<u64>,
        /// How many past messages to send when not resuming.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub history: Option<u64>,
        /// Whether everyone who is present is announced after the welcome, which lists them too;
        /// they are if this is not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub announce_others: Option<bool>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `session.leave`
    pub struct SessionLeave {
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// The server says it for somebody whose connections are all gone; their votes and their
        /// proposals stay. Set by the server.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub connection_lost: bool,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `session.end`
    pub struct SessionEnd {
        pub reason: String,
        pub final_state: FinalState,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `session.config_update`
    pub struct SessionConfigUpdate {
        pub changes: ConfigChanges,
        pub reason: String,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `fork.create`
    pub struct ForkCreate {
        /// The fork's name.
        pub name: String,
        /// The message it starts after.
        pub from_point: MessageId,
        /// Why it is made.
        pub reason: String,
        /// Who takes part in it.
        pub participants: Vec<ParticipantId>,
        /// Whether it starts with the session's context.
        pub copy_context: bool,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `fork.switch`
    pub struct ForkSwitch {
        pub target_fork: ForkId,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `merge.propose`
    pub struct MergePropose {
        pub source_fork: ForkId,
        pub target_fork: ForkId,
        pub strategy: MergeStrategy,
        pub summary: String,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// The resolution of one merge conflict.
    pub struct ResolvedConflict {
        pub conflict_id: String,
        pub resolution: ConflictResolution,
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "generate", ts(optional, type = "unknown"))]
        pub custom_value: Option<Value>,
    }

    /// `merge.execute`
    pub struct MergeExecute {
        pub merge_proposal: MessageId,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub resolved_conflicts: Option<Vec<ResolvedConflict>>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }
}
