//! Quorum against an oracle that was written on its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::participant_id;
use crate::support::quorum_oracle::quorum_met;
use pvp_protocol::{Approvers, ParticipantId, QuorumRule, Role, tally};

/// Voters; each subset of them is the bits of a number.
const VOTER_COUNT: usize = 6;

struct VoterSubsets {
    subsets: Vec<BTreeSet<ParticipantId>>,
}

impl VoterSubsets {
    fn new() -> Self {
        let voter = |bit: usize| participant_id(&format!("voter{bit}"));
        let subset = |bits: usize| {
            let chosen = (0..VOTER_COUNT).filter(|bit| bits >> bit & 1 == 1);
            chosen.map(voter).collect()
        };
        Self {
            subsets: (0..1 << VOTER_COUNT).map(subset).collect(),
        }
    }

    /// Compares both for one situation; `navigators` hold that role and all others hold another.
    fn compare(&self, rule: &QuorumRule, [could, asked, yes, navigators]: [usize; 4]) {
        let roles: BTreeMap<_, _> = self.subsets[(1 << VOTER_COUNT) - 1]
            .iter()
            .map(|id| {
                let navigates = self.subsets[navigators].contains(id);
                let role = if navigates {
                    Role::Navigator
                } else {
                    Role::Approver
                };
                (id.clone(), BTreeSet::from([role]))
            })
            .collect();
        let approvers = Approvers {
            eligible: self.subsets[could].clone(),
            electorate: self.subsets[asked].clone(),
            roles,
        };
        let approved = &self.subsets[yes];
        let counted = tally(rule, &approvers, approved);
        let Approvers {
            eligible,
            electorate,
            roles,
        } = &approvers;
        let expected = quorum_met(rule, eligible, electorate, roles, approved);
        assert_eq!(
            counted.passed, expected,
            "{rule:?} could {eligible:?} asked {electorate:?} approved {approved:?}"
        );
        assert_eq!(counted.passed, counted.received >= counted.required);
        assert!(counted.awaited.is_empty() || !counted.passed);
    }
}

fn subsets_of(whole: usize) -> impl Iterator<Item = usize> {
    (0..=whole).filter(move |part| part & !whole == 0)
}

#[test]
fn all_and_majority_for_every_electorate_and_every_vote() {
    let crowd = VoterSubsets::new();
    for could in 0..1 << VOTER_COUNT {
        for asked in subsets_of(could) {
            // Approvals of those who do not count change nothing; half of them are tried.
            for yes in (0..1 << VOTER_COUNT).filter(|yes| yes & !could & 0b01_0101 == 0) {
                crowd.compare(&QuorumRule::All, [could, asked, yes, 0]);
                crowd.compare(&QuorumRule::Majority, [could, asked, yes, 0]);
            }
        }
    }
}

#[test]
fn any_number_for_every_vote() {
    let crowd = VoterSubsets::new();
    for could in 0..1 << VOTER_COUNT {
        for yes in 0..1 << VOTER_COUNT {
            for count in 0..=7 {
                crowd.compare(
                    &QuorumRule::Any { count },
                    [could, could & 0b10_1101, yes, 0],
                );
            }
        }
    }
}

#[test]
fn holders_of_a_role_for_every_assignment_of_it() {
    let crowd = VoterSubsets::new();
    let mut turn = 0;
    for navigators in 0..1 << VOTER_COUNT {
        for could in 0..1 << VOTER_COUNT {
            for yes in 0..1 << VOTER_COUNT {
                turn += 1;
                // Everything for up to four voters, and every 13th situation for six.
                if navigators < 16 && could < 16 && yes < 16 || turn % 13 == 0 {
                    for count in 0..=3 {
                        let role = Role::Navigator;
                        let rule = QuorumRule::Role { role, count };
                        crowd.compare(&rule, [could, could & 0b01_1011, yes, navigators]);
                    }
                }
            }
        }
    }
}

#[test]
fn specific_people_for_every_list_of_them() {
    let crowd = VoterSubsets::new();
    let mut turn = 0;
    for named in 1..1 << VOTER_COUNT {
        let participants = crowd.subsets[named].iter().cloned().collect();
        let rule = QuorumRule::Specific { participants };
        for could in 0..1 << VOTER_COUNT {
            for yes in 0..1 << VOTER_COUNT {
                turn += 1;
                if named < 16 && could < 16 && yes < 16 || turn % 5 == 0 {
                    crowd.compare(&rule, [could, could & 0b11_0110, yes, 0]);
                }
            }
        }
    }
}
