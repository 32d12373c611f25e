//! Compares quorum counting with an independent implementation.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::participant_id;
use crate::support::quorum_oracle::quorum_met;
use pvp_protocol::{Approvers, ParticipantId, QuorumRule, Role, tally};

/// The number of voters; a subset of them is the bits of a number.
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

    /// Compares both implementations for one case; all who are not navigators hold another role.
    fn compare(&self, rule: &QuorumRule, [eligible, electorate, approved, navigators]: [usize; 4]) {
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
            eligible: self.subsets[eligible].clone(),
            electorate: self.subsets[electorate].clone(),
            roles,
            ..Approvers::default()
        };
        let approved = &self.subsets[approved];
        let counted = tally(rule, &approvers, approved);
        let Approvers {
            eligible,
            electorate,
            roles,
            ..
        } = &approvers;
        let expected = quorum_met(rule, eligible, electorate, roles, approved);
        assert_eq!(
            counted.passed, expected,
            "{rule:?} eligible {eligible:?} electorate {electorate:?} approved {approved:?}"
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
    let voters = VoterSubsets::new();
    for eligible in 0..1 << VOTER_COUNT {
        for electorate in subsets_of(eligible) {
            // Approvals of those who are not eligible change nothing; half of them are tested.
            for approved in
                (0..1 << VOTER_COUNT).filter(|approved| approved & !eligible & 0b01_0101 == 0)
            {
                voters.compare(&QuorumRule::All, [eligible, electorate, approved, 0]);
                voters.compare(&QuorumRule::Majority, [eligible, electorate, approved, 0]);
            }
        }
    }
}

#[test]
fn any_number_for_every_vote() {
    let voters = VoterSubsets::new();
    for eligible in 0..1 << VOTER_COUNT {
        for approved in 0..1 << VOTER_COUNT {
            for count in 0..=7 {
                voters.compare(
                    &QuorumRule::Any { count },
                    [eligible, eligible & 0b10_1101, approved, 0],
                );
            }
        }
    }
}

#[test]
fn holders_of_a_role_for_every_assignment_of_it() {
    let voters = VoterSubsets::new();
    let mut turn = 0;
    for navigators in 0..1 << VOTER_COUNT {
        for eligible in 0..1 << VOTER_COUNT {
            for approved in 0..1 << VOTER_COUNT {
                turn += 1;
                // Every case of four voters, and every 13th of six.
                if navigators < 16 && eligible < 16 && approved < 16 || turn % 13 == 0 {
                    for count in 0..=3 {
                        let role = Role::Navigator;
                        let rule = QuorumRule::Role { role, count };
                        voters.compare(
                            &rule,
                            [eligible, eligible & 0b01_1011, approved, navigators],
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn specific_people_for_every_list_of_them() {
    let voters = VoterSubsets::new();
    let mut turn = 0;
    for named in 1..1 << VOTER_COUNT {
        let participants = voters.subsets[named].iter().cloned().collect();
        let rule = QuorumRule::Specific { participants };
        for eligible in 0..1 << VOTER_COUNT {
            for approved in 0..1 << VOTER_COUNT {
                turn += 1;
                if named < 16 && eligible < 16 && approved < 16 || turn % 5 == 0 {
                    voters.compare(&rule, [eligible, eligible & 0b11_0110, approved, 0]);
                }
            }
        }
    }
}

#[test]
fn whoever_was_invited_by_another_approver_or_the_owner_is_not_one_more_person() {
    let people = |names: &str| -> BTreeSet<ParticipantId> {
        names.split_whitespace().map(participant_id).collect()
    };
    let everyone = people("ann bob cat dan eve");
    let invitations = [("bob", "ann"), ("cat", "bob"), ("eve", "owner"), ("x", "y")];
    let approvers = Approvers {
        eligible: everyone.clone(),
        electorate: everyone.clone(),
        roles: everyone
            .iter()
            .map(|id| (id.clone(), BTreeSet::from([Role::Approver])))
            .collect(),
        invited_by: invitations
            .map(|(who, by)| (participant_id(who), participant_id(by)))
            .into(),
        owner: Some(participant_id("owner")),
    };
    let two = QuorumRule::Any { count: 2 };
    for (approved, counted, why) in [
        ("ann bob", "ann", "ann invited bob"),
        ("ann cat", "ann", "ann invited bob, who invited cat"),
        ("bob cat", "bob", "bob invited cat"),
        ("ann dan", "ann dan", "nobody invited either"),
        ("bob dan", "bob dan", "ann does not vote"),
        ("dan eve", "dan", "the owner invited eve"),
        ("eve", "", "the owner invited eve"),
    ] {
        for rule in [
            two.clone(),
            QuorumRule::Role {
                role: Role::Approver,
                count: 2,
            },
            QuorumRule::Majority,
        ] {
            let tally = tally(&rule, &approvers, &people(approved));
            assert_eq!(tally.counted, people(counted), "{rule:?} {approved}: {why}");
        }
        // One is enough, or all are needed: nobody is counted in place of somebody else.
        for rule in [QuorumRule::Any { count: 1 }, QuorumRule::All] {
            let tally = tally(&rule, &approvers, &people(approved));
            assert_eq!(tally.counted, people(approved), "{rule:?}");
        }
    }
    // A circle of invitations ends, and counts nobody.
    let circle = Approvers {
        invited_by: [("ann", "bob"), ("bob", "ann")]
            .map(|(who, by)| (participant_id(who), participant_id(by)))
            .into(),
        ..approvers
    };
    assert_eq!(tally(&two, &circle, &people("ann bob")).counted, people(""));
}
