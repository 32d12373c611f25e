//! Quorum rules: how many of whom must approve a gate, and the count of their approvals.

use std::collections::{BTreeMap, BTreeSet};

use crate::{ParticipantId, Role};

/// The rule that decides a gate.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    expecting = "a quorum such as {\"type\": \"any\", \"count\": 2}"
)]
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
    /// The one of two rules that is harder to meet: more of the same kind of approvals, or the kind
    /// that leaves less choice of who gives them.
    pub fn stricter<'a>(&'a self, other: &'a Self) -> &'a Self {
        let strictness = |rule: &QuorumRule| match rule {
            QuorumRule::Any { count } => (0, *count),
            QuorumRule::Role { count, .. } => (1, *count),
            QuorumRule::Majority => (2, 0),
            QuorumRule::Specific { participants } => (3, participants.len() as u32),
            QuorumRule::All => (4, 0),
        };
        match strictness(other) > strictness(self) {
            true => other,
            false => self,
        }
    }

    /// How a rule is written, for errors.
    pub const EXAMPLE: &'static str = r#"{"type": "any", "count": 2}"#;

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
            QuorumRule::Role {
                role: role @ (Role::Admin | Role::Approver | Role::Adversary | Role::Observer),
                count: 1,
            } => write!(f, "one approval by an {role}"),
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
    /// Who invited whom during the session, also of those who do not vote; empty if approvals need
    /// not be independent.
    pub invited_by: BTreeMap<ParticipantId, ParticipantId>,
    /// Whom the proposal speaks for: the proposer, or who invited the agent that proposed it.
    pub owner: Option<ParticipantId>,
}

impl Approvers {
    /// Whoever keeps this participant's approval from counting as that of one more person: the
    /// owner of the proposal or somebody else who approved, if they invited them or whoever did.
    pub fn dependence(
        &self,
        id: &ParticipantId,
        approved: &BTreeSet<ParticipantId>,
    ) -> Option<&ParticipantId> {
        let mut inviter = self.invited_by.get(id);
        // A chain of invitations is no longer than the list of them, unless it is a circle.
        for _ in 0..self.invited_by.len() {
            let current = inviter?;
            let counts = approved.contains(current) && self.eligible.contains(current);
            if current != id && (counts || self.owner.as_ref() == Some(current)) {
                return Some(current);
            }
            inviter = self.invited_by.get(current);
        }
        None
    }
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
    /// Whose approvals count.
    pub counted: BTreeSet<ParticipantId>,
}

/// Counts approvals against a rule. Only eligible people count. Those who joined after the gate
/// opened count too, but never raise the number required. Where a number of people decide, whoever
/// depends on another of them does not count as one more.
pub fn tally(
    rule: &QuorumRule,
    approvers: &Approvers,
    approved: &BTreeSet<ParticipantId>,
) -> Tally {
    let eligible = approved.intersection(&approvers.eligible);
    let counted: BTreeSet<_> = eligible.cloned().collect();
    let independent = || -> BTreeSet<_> {
        let depends = |id: &&ParticipantId| approvers.dependence(id, approved).is_some();
        let independent = counted.iter().filter(|id| !depends(id));
        independent.cloned().collect()
    };
    match rule {
        QuorumRule::Any { count: 0 | 1 } => at_least(counted, 1),
        QuorumRule::Any { count } => at_least(independent(), *count),
        QuorumRule::Role { role, count } => {
            let mut counted = if *count > 1 { independent() } else { counted };
            counted.retain(|id| {
                let roles = approvers.roles.get(id);
                roles.is_some_and(|roles| roles.contains(role))
            });
            at_least(counted, (*count).max(1))
        }
        QuorumRule::Majority => {
            let required = number_of(approvers.electorate.len() / 2 + 1);
            let counted = if required > 1 { independent() } else { counted };
            at_least(counted, required)
        }
        // Whoever must approve cannot be replaced by others whom somebody invited.
        QuorumRule::All => each_of(&approvers.electorate, counted),
        QuorumRule::Specific { participants } => {
            each_of(&participants.iter().cloned().collect(), counted)
        }
    }
}

/// The approvals of eligible people that a rule does not count as those of one more person, and who
/// keeps each from it.
pub fn dependent_approvals(
    rule: &QuorumRule,
    approvers: &Approvers,
    approved: &BTreeSet<ParticipantId>,
) -> BTreeMap<ParticipantId, ParticipantId> {
    let counted = tally(rule, approvers, approved).counted;
    let eligible = approved.intersection(&approvers.eligible);
    let not_counted = eligible.filter(|id| !counted.contains(*id));
    let with_reason = not_counted.filter_map(|id| {
        let inviter = approvers.dependence(id, approved)?;
        Some((id.clone(), inviter.clone()))
    });
    with_reason.collect()
}

fn at_least(counted: BTreeSet<ParticipantId>, required: u32) -> Tally {
    let received = number_of(counted.len());
    Tally {
        received,
        required,
        passed: received > 0 && received >= required,
        awaited: BTreeSet::new(),
        counted,
    }
}

fn each_of(required_voters: &BTreeSet<ParticipantId>, counted: BTreeSet<ParticipantId>) -> Tally {
    if required_voters.is_empty() {
        return at_least(counted, 1);
    }
    let awaited: BTreeSet<_> = required_voters.difference(&counted).cloned().collect();
    Tally {
        received: number_of(required_voters.len() - awaited.len()),
        required: number_of(required_voters.len()),
        passed: awaited.is_empty(),
        awaited,
        counted,
    }
}

fn number_of(people: usize) -> u32 {
    u32::try_from(people).unwrap_or(u32::MAX)
}
