//! How many of whom must approve.

use crate::{ParticipantId, Role};

/// The rule a gate is decided by.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum QuorumRule {
    /// That many approvals, from anyone who may approve.
    Any { count: u32 },
    /// Everyone who could approve when the gate opened.
    All,
    /// That many approvals from holders of the role.
    Role { role: Role, count: u32 },
    /// Exactly these people, all of them.
    Specific { participants: Vec<ParticipantId> },
    /// Strictly more than half of those who could approve when the gate opened.
    Majority,
}

impl QuorumRule {
    /// A rule that nobody could fail to meet is no rule: says what is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        match self {
            QuorumRule::Any { count: 0 } | QuorumRule::Role { count: 0, .. } => {
                Err("a quorum `count` of 0 would approve by itself; use 1 or more".to_owned())
            }
            QuorumRule::Specific { participants } if participants.is_empty() => {
                Err("a `specific` quorum names nobody; list at least one participant".to_owned())
            }
            QuorumRule::Specific { participants }
                if participants
                    .iter()
                    .collect::<std::collections::BTreeSet<_>>()
                    .len()
                    != participants.len() =>
            {
                Err("a `specific` quorum names someone twice".to_owned())
            }
            QuorumRule::Any { .. }
            | QuorumRule::All
            | QuorumRule::Role { .. }
            | QuorumRule::Specific { .. }
            | QuorumRule::Majority => Ok(()),
        }
    }
}

impl std::fmt::Display for QuorumRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            QuorumRule::Any { count: 1 } => f.write_str("one approval"),
            QuorumRule::Any { count } => write!(f, "{count} approvals"),
            QuorumRule::All => f.write_str("everyone who may approve"),
            QuorumRule::Role { role, count: 1 } => write!(f, "one approval by a {role}"),
            QuorumRule::Role { role, count } => write!(f, "{count} approvals by {role}s"),
            QuorumRule::Specific { participants } => {
                let names: Vec<_> = participants.iter().map(ParticipantId::as_str).collect();
                write!(f, "approval by {}", names.join(" and "))
            }
            QuorumRule::Majority => f.write_str("more than half of those who may approve"),
        }
    }
}
