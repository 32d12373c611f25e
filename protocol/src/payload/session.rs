//! Sessions: made, joined, configured, left and ended; and forks of them.

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

    /// How two lines of history come together.
    pub enum MergeStrategy {
        Replace,
        Append,
        Interleave,
        Manual,
    }

    /// Whose version of a conflict is taken.
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
        pub participant: Announce,
        /// Says who this is; taken out before anything is recorded.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub token: Option<String>,
        pub supported_versions: Vec<u32>,
        /// Resume: tell only what came after this seq.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub after: Option<u64>,
        /// How many past messages to tell when not resuming.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub history: Option<u64>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `session.leave`
    pub struct SessionLeave {
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
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
        pub name: String,
        pub from_point: MessageId,
        pub reason: String,
        pub participants: Vec<ParticipantId>,
        pub copy_context: bool,
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

    /// One conflict of a merge, decided.
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
