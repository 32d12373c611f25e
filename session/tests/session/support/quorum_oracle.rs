//! Quorum once more, written from the text of the rules and from nothing else.

use std::collections::{BTreeMap, BTreeSet};

use pvp_protocol::{ParticipantId, QuorumRule, Role};

/// Whether these approvals are enough: walks the voters one by one, the slow and plain way.
///
/// `could` are those whose approval counts at all, `asked` those of them who were there when the
/// gate opened and are waited for.
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
