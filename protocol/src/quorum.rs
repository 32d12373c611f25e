//! Quorum rules: how many of whom must approve a gate, and the count of their approvals.

use std::collections::{BTreeMap, BTreeSet};

use crate::{ParticipantId, Role};

/// The rule that decides a gate.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum QuorumRule {
    /// `count` approvals from anyone who may approve.
    Any { count: u32 },
    /// Approval by everyone who could approve when the gate opened.
    All,
    /// `count` approvals from holders of the role.
    Role { role: Role, count: u32 },
    /// Approval by every one of these people.
    Specific { participants: Vec<ParticipantId> },
    /// Approval by more than half of those who could approve when the gate opened.
    Majority,
}

impl QuorumRule {
    /// Refuses a rule that would pass without an approval, or that names someone twice.
    pub fn validate(&self) -> Result<(), String> {
        match self {
            QuorumRule::Any { count: 0 } | QuorumRule::Role { count: 0, .. } => {
                Err("a quorum `count` of 0 would approve by itself; use 1 or more".to_owned())
            }
            QuorumRule::Specific { participants } if participants.is_empty() => {
                Err("a `specific` quorum names nobody; list at least one participant".to_owned())
            }
            QuorumRule::Specific { participants }
                if participants.iter().collect::<BTreeSet<_>>().len() != participants.len() =>
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

/// The people who decide a gate, at the time of counting.
#[derive(Debug, Default)]
pub struct Approvers {
    /// Everyone whose approval counts: people who may approve, except the proposer.
    pub eligible: BTreeSet<ParticipantId>,
    /// Those who could approve when the gate opened and who still count for it.
    pub electorate: BTreeSet<ParticipantId>,
    /// The roles of the eligible people.
    pub roles: BTreeMap<ParticipantId, BTreeSet<Role>>,
}

/// The current state of a vote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Approvals that count.
    pub received: u32,
    /// Approvals that are needed.
    pub required: u32,
    /// Whether the gate has passed.
    pub passed: bool,
    /// Named people whose approval is still needed; empty if any voter will do.
    pub awaited: BTreeSet<ParticipantId>,
}

/// Counts approvals against a rule. Only eligible people count. Those who joined after the gate
/// opened count too, but never raise the number required.
pub fn tally(
    rule: &QuorumRule,
    approvers: &Approvers,
    approved: &BTreeSet<ParticipantId>,
) -> Tally {
    let counted: BTreeSet<_> = approved
        .intersection(&approvers.eligible)
        .cloned()
        .collect();
    let at_least = |received: usize, required: u32| Tally {
        received: u32::try_from(received).unwrap_or(u32::MAX),
        required,
        passed: received > 0 && received >= required as usize,
        awaited: BTreeSet::new(),
    };
    let each_of = |required_voters: BTreeSet<ParticipantId>| {
        let awaited: BTreeSet<_> = required_voters.difference(&counted).cloned().collect();
        let required = required_voters.len().max(1);
        let received = if required_voters.is_empty() {
            counted.len()
        } else {
            required_voters.len() - awaited.len()
        };
        Tally {
            awaited,
            ..at_least(received, u32::try_from(required).unwrap_or(u32::MAX))
        }
    };
    match rule {
        QuorumRule::Any { count } => at_least(counted.len(), (*count).max(1)),
        QuorumRule::All => each_of(approvers.electorate.clone()),
        QuorumRule::Role { role, count } => {
            let holds = |id: &&ParticipantId| {
                approvers
                    .roles
                    .get(*id)
                    .is_some_and(|roles| roles.contains(role))
            };
            at_least(counted.iter().filter(holds).count(), (*count).max(1))
        }
        QuorumRule::Specific { participants } => each_of(participants.iter().cloned().collect()),
        QuorumRule::Majority => {
            let required = approvers.electorate.len() / 2 + 1;
            at_least(counted.len(), u32::try_from(required).unwrap_or(u32::MAX))
        }
    }
}
