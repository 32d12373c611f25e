//! People and agents: who is here, in which role, and whether they are at their desk.

use crate::{
    Capability, ExtraFields, JsonObject, ParticipantId, ParticipantKind, Role, SandboxProfile,
    Timestamp, Transport,
};

wire_enums! {
    /// Whether someone is there.
    pub enum PresenceStatus {
        Active,
        Idle,
        Away,
        Disconnected,
    }
}

wire_structs! {
    /// What an executor can hold a command to; announced by agents that run commands.
    #[derive(Default)]
    pub struct ExecutorInfo {
        /// Sandbox profiles that this machine enforces.
        #[serde(default)]
        pub profiles: Vec<SandboxProfile>,
        /// Whether it takes people's own commands.
        #[serde(default)]
        pub shell_exec: bool,
        /// Where commands run unless they say otherwise.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub working_directory: Option<String>,
        /// A prefix that every approved command runs behind, such as a container.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub runner: Vec<String>,
        /// The account's login shell.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub shell: Option<String>,
    }

    /// `participant.announce`, and the `participant` of `session.join`
    pub struct Announce {
        pub id: ParticipantId,
        pub name: String,
        #[serde(rename = "type")]
        pub kind: ParticipantKind,
        pub roles: Vec<Role>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub capabilities: Option<Vec<Capability>>,
        pub transport: Transport,
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "generate", ts(optional, type = "Record<string, unknown>"))]
        pub metadata: Option<JsonObject>,
        /// Set by agents that run commands.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub executor: Option<ExecutorInfo>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `participant.role_change`
    pub struct RoleChange {
        pub participant: ParticipantId,
        pub old_roles: Vec<Role>,
        pub new_roles: Vec<Role>,
        pub changed_by: ParticipantId,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// Capabilities beyond the roles; replaces what an admin gave before.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub capabilities: Option<Vec<Capability>>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `heartbeat.ping`
    #[derive(Default)]
    pub struct HeartbeatPing {
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `heartbeat.pong`, with `ref` naming the ping
    #[derive(Default)]
    pub struct HeartbeatPong {
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `presence.update`
    pub struct PresenceUpdate {
        pub participant: ParticipantId,
        pub status: PresenceStatus,
        pub last_active: Timestamp,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }
}
