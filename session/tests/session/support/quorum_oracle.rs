//! A second implementation of quorum counting, written only from the text of the rules.

use std::collections::{BTreeMap, BTreeSet};

use pvp_protocol::{ParticipantId, QuorumRule, Role};

/// Whether these approvals are enough. Counts the voters one by one, the slow and obvious way.
///
/// `eligible` are all whose approval counts; `electorate` are those of them who could approve when
/// the gate opened and whom it waits for.
pub fn quorum_met(
    rule: &QuorumRule,
    eligible: &BTreeSet<ParticipantId>,
    electorate: &BTreeSet<ParticipantId>,
    roles: &BTreeMap<ParticipantId, BTreeSet<Role>>,
    approved: &BTreeSet<ParticipantId>,
) -> bool {
    let mut yes = 0;
    for voter in eligible {
        if approved.contains(voter) {
            yes += 1;
        }
    }
    if yes == 0 {
        return false;
    }
    let says_yes = |voter: &ParticipantId| eligible.contains(voter) && approved.contains(voter);
    match rule {
        QuorumRule::Any { count } => yes >= *count,
        QuorumRule::All => electorate.iter().all(says_yes),
        QuorumRule::Role { role, count } => {
            let mut holders = 0;
            for voter in eligible {
                let holds = roles.get(voter).is_some_and(|held| held.contains(role));
                if holds && approved.contains(voter) {
                    holders += 1;
                }
            }
            holders >= (*count).max(1)
        }
        QuorumRule::Specific { participants } => participants.iter().all(says_yes),
        QuorumRule::Majority => 2 * yes as usize > electorate.len(),
    }
}

/// Whether a rule asks for a number of people that is more than one.
pub fn counts_people(rule: &QuorumRule, electorate: &BTreeSet<ParticipantId>) -> bool {
    match rule {
        QuorumRule::Any { count } | QuorumRule::Role { count, .. } => *count > 1,
        QuorumRule::Majority => electorate.len() > 1,
        QuorumRule::All | QuorumRule::Specific { .. } => false,
    }
}
