//! A session's configuration: the published fields, and ours beside them.

use crate::{ExtraFields, Limits, QuorumRule, SandboxProfile, ToolCategory};

wire_enums! {
    /// The order messages are told in; a total order is always given.
    pub enum OrderingMode {
        Causal,
        Total,
    }

    /// What happens to decisions when a participant has not been heard of for `away_timeout_seconds`.
    pub enum ParticipantTimeoutAction {
        /// Gates go on waiting for them.
        Wait,
        /// Gates count without them until they are back.
        Skip,
        /// Nothing is started or granted until they are back.
        PauseSession,
    }

    /// What happens when a gate's deadline passes.
    pub enum GateTimeoutAction {
        Reject,
        /// Admins are asked once, with the same deadline again; then it is rejected.
        Escalate,
        /// Approves by the clock; only ever for the write category.
        AutoApprove,
    }

    /// Whether people may run their own commands.
    pub enum ShellExecMode {
        /// Reads and writes at once, destructive commands at a gate.
        Direct,
        /// Everything but blocked commands at once.
        DirectAll,
        /// Everything at a gate.
        Gated,
        Off,
    }
}

wire_structs! {
    /// Quorum for a category, where it differs from the default.
    #[derive(Default)]
    pub struct QuorumByCategory {
        #[serde(skip_serializing_if = "Option::is_none")]
        pub write: Option<QuorumRule>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub destructive: Option<QuorumRule>,
    }
}

/// Makes the configuration and the set of changes to it from one list of fields.
macro_rules! session_config {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $default:expr;)*) => {
        wire_structs! {
            /// How a session behaves.
            #[serde(default)]
            pub struct SessionConfig {
                $($(#[$doc])* pub $field: $type,)*
                #[serde(flatten)]
                #[cfg_attr(feature = "generate", ts(skip))]
                pub extra: ExtraFields,
            }

            /// The fields of a configuration that change.
            #[derive(Default)]
            pub struct ConfigChanges {
                $(
                    #[serde(skip_serializing_if = "Option::is_none")]
                    pub $field: Option<$type>,
                )*
                #[serde(flatten)]
                #[cfg_attr(feature = "generate", ts(skip))]
                pub extra: ExtraFields,
            }
        }

        impl Default for SessionConfig {
            fn default() -> Self {
                Self { $($field: $default,)* extra: ExtraFields::new() }
            }
        }

        impl SessionConfig {
            /// This configuration with the changes made.
            pub fn with_changes(mut self, changes: &ConfigChanges) -> Self {
                $(if let Some(value) = &changes.$field {
                    self.$field = value.clone();
                })*
                self.extra.extend(changes.extra.clone());
                self
            }
        }
    };
}

session_config! {
    /// Tool categories that always ask, whatever the verdict.
    require_approval_for: Vec<ToolCategory> = Vec::new();
    default_gate_quorum: QuorumRule = QuorumRule::Any { count: 1 };
    allow_forks: bool = true;
    max_participants: u32 = 10;
    ordering_mode: OrderingMode = OrderingMode::Causal;
    on_participant_timeout: ParticipantTimeoutAction = ParticipantTimeoutAction::Skip;
    heartbeat_interval_seconds: u32 = 30;
    idle_timeout_seconds: u32 = 120;
    away_timeout_seconds: u32 = 300;
    quorum_by_category: QuorumByCategory = QuorumByCategory::default();
    /// 0 means that a gate never closes by itself.
    gate_timeout_seconds: u32 = 300;
    on_gate_timeout: GateTimeoutAction = GateTimeoutAction::Reject;
    shell_exec: ShellExecMode = ShellExecMode::Direct;
    /// Who amends a command may not vote on it.
    four_eyes: bool = false;
    /// Run reads at once even where the executor cannot sandbox them.
    trust_reads: bool = false;
    /// The sandbox of approved commands: `none` or `workspace`.
    profile: SandboxProfile = SandboxProfile::None;
}

/// Longest time anything may wait, a year; keeps arithmetic on deadlines far from overflow.
const MAX_TIMEOUT_SECONDS: u32 = 31_536_000;

impl SessionConfig {
    /// Says which field is wrong and what it may be.
    pub fn validate(&self, limits: &Limits) -> Result<(), String> {
        let check_range = |name: &str, value: u32, least: u32, most: u32| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("`{name}` is {value}; use {least} to {most}"))
            }
        };
        let check_quorum = |name: &str, rule: &QuorumRule| {
            rule.validate()
                .map_err(|problem| format!("`{name}`: {problem}"))
        };
        check_range(
            "max_participants",
            self.max_participants,
            1,
            limits.participants,
        )?;
        check_range(
            "heartbeat_interval_seconds",
            self.heartbeat_interval_seconds,
            1,
            3600,
        )?;
        check_range(
            "idle_timeout_seconds",
            self.idle_timeout_seconds,
            1,
            MAX_TIMEOUT_SECONDS,
        )?;
        check_range(
            "away_timeout_seconds",
            self.away_timeout_seconds,
            1,
            MAX_TIMEOUT_SECONDS,
        )?;
        check_range(
            "gate_timeout_seconds",
            self.gate_timeout_seconds,
            0,
            MAX_TIMEOUT_SECONDS,
        )?;
        check_quorum("default_gate_quorum", &self.default_gate_quorum)?;
        for (name, quorum) in [
            ("quorum_by_category.write", &self.quorum_by_category.write),
            (
                "quorum_by_category.destructive",
                &self.quorum_by_category.destructive,
            ),
        ] {
            quorum
                .as_ref()
                .map_or(Ok(()), |quorum| check_quorum(name, quorum))?;
        }
        match self.profile {
            SandboxProfile::None | SandboxProfile::Workspace => Ok(()),
            SandboxProfile::Read | SandboxProfile::ReadNet => {
                Err("`profile` for approved commands is `none` or `workspace`".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_published_configuration_is_read_and_the_rest_has_defaults() {
        let config: SessionConfig = serde_json::from_value(json!({
            "require_approval_for": ["deploy"], "default_gate_quorum": {"type": "role", "role": "navigator", "count": 2},
            "allow_forks": false, "max_participants": 3, "ordering_mode": "total",
            "on_participant_timeout": "wait", "heartbeat_interval_seconds": 10,
            "idle_timeout_seconds": 20, "away_timeout_seconds": 30, "from_the_future": true
        }))
        .unwrap();
        assert_eq!(config.max_participants, 3);
        assert_eq!(config.gate_timeout_seconds, 300);
        assert_eq!(config.extra["from_the_future"], json!(true));
        assert_eq!(config.validate(&Limits::default()), Ok(()));
    }

    #[test]
    fn a_value_that_makes_no_sense_is_named_with_what_is_allowed() {
        let bad = |changes: serde_json::Value| {
            let changes: ConfigChanges = serde_json::from_value(changes).unwrap();
            SessionConfig::default()
                .with_changes(&changes)
                .validate(&Limits::default())
                .unwrap_err()
        };
        assert_eq!(
            bad(json!({"heartbeat_interval_seconds": 0})),
            "`heartbeat_interval_seconds` is 0; use 1 to 3600"
        );
        assert_eq!(
            bad(json!({"max_participants": 201})),
            "`max_participants` is 201; use 1 to 200"
        );
        assert!(bad(json!({"default_gate_quorum": {"type": "any", "count": 0}})).contains("count"));
        assert!(
            bad(json!({"quorum_by_category": {"write": {"type": "specific", "participants": []}}}))
                .contains("write")
        );
        assert!(bad(json!({"profile": "read"})).contains("profile"));
    }
}
