//! The quorum of a gate, which satisfies every rule that matched.

use std::collections::BTreeSet;

use pvp_protocol::{ParticipantId, QuorumRule};

use crate::assess::Assessor;
use crate::rule_table::RuleTable;
use crate::verdict::CommandVerdict;

/// The quorums that the rules ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleQuorums {
    /// Those of all rules that matched any part.
    quorums: Vec<QuorumRule>,
    /// Whether the session's own quorum counts too.
    usual_counts: bool,
}

impl RuleQuorums {
    /// The quorums of the rules that matched. They take the place of the session's own if all that
    /// gave the action its category set one.
    pub(crate) fn new(
        table: &RuleTable,
        assessor: &Assessor<'_>,
        decision: &CommandVerdict,
    ) -> Self {
        if assessor.is_incomplete {
            return Self::of_all_rules(table);
        }
        let matched = assessor.matched_rules.iter();
        let quorums = matched.filter_map(|id| table.quorums.get(id).cloned());
        let mut deciding = decision.deciding_rules();
        Self {
            quorums: quorums.collect(),
            usual_counts: deciding.any(|id| !table.quorums.contains_key(id)),
        }
    }

    /// For an action of which it is not known which rules match.
    pub(crate) fn of_all_rules(table: &RuleTable) -> Self {
        Self {
            quorums: table.quorums.values().cloned().collect(),
            usual_counts: true,
        }
    }

    /// One quorum for all of them; `usual` is the session's own, and `electorate` are those who may
    /// approve when the gate opens.
    pub fn combine(&self, usual: QuorumRule, electorate: &[ParticipantId]) -> QuorumRule {
        let quorums = self.quorums.iter().cloned();
        let own = quorums.reduce(|one, other| strictest(one, other, electorate));
        match own {
            Some(own) if self.usual_counts => strictest(own, usual, electorate),
            Some(own) => own,
            None => usual,
        }
    }
}

/// A quorum that needs at least as many approvals as each of the two, and the people whom both
/// name. Where no rule says exactly that, everyone who may approve has to.
fn strictest(one: QuorumRule, other: QuorumRule, electorate: &[ParticipantId]) -> QuorumRule {
    let required = |rule: &QuorumRule| required_count(rule, electorate.len());
    let count = required(&one).max(required(&other));
    let counts: u32 = count.try_into().unwrap_or(u32::MAX);
    let combined = match (&one, &other) {
        (QuorumRule::Any { .. }, QuorumRule::Any { .. }) => QuorumRule::Any { count: counts },
        (QuorumRule::Role { role, .. }, QuorumRule::Any { .. })
        | (QuorumRule::Any { .. }, QuorumRule::Role { role, .. }) => QuorumRule::Role {
            role: *role,
            count: counts,
        },
        (QuorumRule::Role { role, .. }, QuorumRule::Role { role: second, .. })
            if role == second =>
        {
            QuorumRule::Role {
                role: *role,
                count: counts,
            }
        }
        (QuorumRule::Majority, QuorumRule::Majority | QuorumRule::Any { .. })
        | (QuorumRule::Any { .. }, QuorumRule::Majority) => QuorumRule::Majority,
        (
            QuorumRule::Specific { participants },
            QuorumRule::Specific {
                participants: others,
            },
        ) => everyone_of(participants, others),
        (QuorumRule::Specific { participants }, QuorumRule::Any { .. } | QuorumRule::Majority)
        | (QuorumRule::Any { .. } | QuorumRule::Majority, QuorumRule::Specific { participants })
            if participants.len() >= count =>
        {
            everyone_of(participants, &[])
        }
        (QuorumRule::Specific { participants }, _) | (_, QuorumRule::Specific { participants }) => {
            everyone_of(participants, electorate)
        }
        (QuorumRule::All, _)
        | (_, QuorumRule::All)
        | (QuorumRule::Role { .. }, QuorumRule::Role { .. } | QuorumRule::Majority)
        | (QuorumRule::Majority, QuorumRule::Role { .. }) => QuorumRule::All,
    };
    // With fewer people than one of the two needs, only that one keeps the gate closed.
    match (required(&combined) >= count, required(&one) >= count) {
        (true, _) => combined,
        (false, true) => one,
        (false, false) => other,
    }
}

fn everyone_of(some: &[ParticipantId], others: &[ParticipantId]) -> QuorumRule {
    let all: BTreeSet<&ParticipantId> = some.iter().chain(others).collect();
    QuorumRule::Specific {
        participants: all.into_iter().cloned().collect(),
    }
}

/// How many approvals a rule needs with this many people who may approve.
fn required_count(rule: &QuorumRule, electorate: usize) -> usize {
    match rule {
        QuorumRule::Any { count } | QuorumRule::Role { count, .. } => {
            usize::try_from(*count).unwrap_or(usize::MAX)
        }
        QuorumRule::Specific { participants } => participants.len(),
        QuorumRule::All => electorate,
        QuorumRule::Majority => electorate / 2 + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_protocol::Role;

    fn people(names: &[&str]) -> Vec<ParticipantId> {
        let person = |name: &&str| ParticipantId::parse(name).expect("it is a name");
        names.iter().map(person).collect()
    }

    fn any(count: u32) -> QuorumRule {
        QuorumRule::Any { count }
    }

    fn role(role: Role, count: u32) -> QuorumRule {
        QuorumRule::Role { role, count }
    }

    fn specific(names: &[&str]) -> QuorumRule {
        QuorumRule::Specific {
            participants: people(names),
        }
    }

    #[test]
    fn a_combined_quorum_satisfies_both_rules() {
        let electorate = people(&["ann", "bob", "cat"]);
        for (one, other, expected) in [
            (any(1), any(2), any(2)),
            (role(Role::Admin, 1), any(2), role(Role::Admin, 2)),
            (
                role(Role::Admin, 1),
                role(Role::Admin, 2),
                role(Role::Admin, 2),
            ),
            (
                role(Role::Admin, 1),
                role(Role::Approver, 2),
                QuorumRule::All,
            ),
            (role(Role::Admin, 1), QuorumRule::Majority, QuorumRule::All),
            (role(Role::Admin, 5), QuorumRule::All, role(Role::Admin, 5)),
            (QuorumRule::Majority, any(2), QuorumRule::Majority),
            (QuorumRule::Majority, any(3), any(3)),
            (QuorumRule::Majority, QuorumRule::All, QuorumRule::All),
            (QuorumRule::All, any(3), QuorumRule::All),
            (QuorumRule::All, any(4), any(4)),
            (
                specific(&["ann"]),
                specific(&["dan"]),
                specific(&["ann", "dan"]),
            ),
            (specific(&["dan"]), any(1), specific(&["dan"])),
            (
                specific(&["dan"]),
                any(2),
                specific(&["ann", "bob", "cat", "dan"]),
            ),
            (
                specific(&["dan"]),
                role(Role::Admin, 1),
                specific(&["ann", "bob", "cat", "dan"]),
            ),
            (specific(&["dan"]), any(5), any(5)),
        ] {
            assert_eq!(strictest(one.clone(), other.clone(), &electorate), expected);
            assert_eq!(strictest(other, one, &electorate), expected);
        }
    }
}
