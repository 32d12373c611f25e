//! Messages about participants: announcements, roles, heartbeats and presence.

use crate::{
    Capability, ExtraFields, JsonObject, ParticipantId, ParticipantKind, Role, SandboxProfile,
    Timestamp, Transport,
};

wire_enums! {
    /// Whether a participant is present.
    pub enum PresenceStatus {
        Active,
        Idle,
        Away,
        Disconnected,
    }
}

wire_structs! {
    /// What an executor can do; announced by agents that run commands.
    pub struct ExecutorInfo {
        /// Sandbox profiles that this machine enforces.
        #[serde(default)]
        pub profiles: Vec<SandboxProfile>,
        /// Whether it tries commands in the sandbox, where the kernel counts what is denied.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub trials: bool,
        /// Whether it runs people's own commands.
        #[serde(default)]
        pub shell_exec: bool,
        /// Whether it runs commands as people edited them; it does unless it says otherwise.
        #[serde(default = "accepts_edits", skip_serializing_if = "is_default_edits")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub edits: bool,
        /// The working directory of commands that name none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub working_directory: Option<String>,
        /// A command that every approved command runs under, such as a container runner.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub runner: Vec<String>,
        /// The account's login shell.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub shell: Option<String>,
        /// Whether it lets reads see the session's read roots; older executors do not.
        #[serde(default, skip_serializing_if = "is_false")]
        #[cfg_attr(feature = "generate", ts(as = "Option<_>"))]
        pub read_roots: bool,
    }

    /// `participant.announce`, and the `participant` of `session.join`
    pub struct Announce {
        /// The participant's id.
        pub id: ParticipantId,
        /// The name that others see.
        pub name: String,
        /// A person or an agent.
        #[serde(rename = "type")]
        pub kind: ParticipantKind,
        /// The roles they hold.
        pub roles: Vec<Role>,
        /// Capabilities beyond those of the roles, if any.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub capabilities: Option<Vec<Capability>>,
        /// How they are connected.
        pub transport: Transport,
        /// Free-form facts about the client.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "generate", ts(optional, type = "Record<string, unknown>"))]
        pub metadata: Option<JsonObject>,
        /// What their executor can do; set by agents that run commands.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub executor: Option<ExecutorInfo>,
        /// Who invited them, if a participant did; set by the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub invited_by: Option<ParticipantId>,
        /// Whether they were invited before the session was created; set by the server.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub invited_before_session: Option<bool>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `participant.role_change`
    pub struct RoleChange {
        /// Whose roles change.
        pub participant: ParticipantId,
        /// The current roles; the change is refused if they differ.
        pub old_roles: Vec<Role>,
        /// The roles they get.
        pub new_roles: Vec<Role>,
        /// The admin who changes them.
        pub changed_by: ParticipantId,
        /// Why.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// Capabilities beyond those of the roles; replaces those that an admin gave before.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub capabilities: Option<Vec<Capability>>,
        /// Whether their approvals at open gates are void; set by the server when a token of theirs
        /// was revoked or has expired.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub votes_void: Option<bool>,
        /// Fields this version does not know.
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

/// Executors that do not say otherwise run edited commands.
fn accepts_edits() -> bool {
    true
}

fn is_default_edits(edits: &bool) -> bool {
    *edits == accepts_edits()
}

fn is_false(value: &bool) -> bool {
    !*value
}

impl Default for ExecutorInfo {
    fn default() -> Self {
        Self {
            profiles: Vec::new(),
            trials: false,
            shell_exec: false,
            edits: accepts_edits(),
            working_directory: None,
            runner: Vec::new(),
            shell: None,
            read_roots: false,
        }
    }
}
