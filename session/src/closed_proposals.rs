//! Remembers closed proposals: the latest ones in full, of the others only that they existed.
//!
//! The log's index has the record of every closed proposal; see [`IndexChange`](crate::IndexChange).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pvp_protocol::MessageId;
use serde::{Deserialize, Serialize};

use crate::proposal::ProposalRecord;
use crate::short_hash::short_hash;

/// How many closed proposals are remembered in full.
pub(crate) const MAX_RECENT_PROPOSALS: usize = 256;

/// The closed proposals of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClosedProposals {
    /// The latest, by id.
    recent: BTreeMap<MessageId, ProposalRecord>,
    /// The ids in `recent`, oldest first.
    order: VecDeque<MessageId>,
    /// The hashes of the ids of all of them and of their gates, so that no id is used again. Someone
    /// may make two ids with the same hash; the second is refused as used if the first is closed.
    /// Whoever looks here must look for an open proposal with the id first.
    #[serde(with = "crate::short_hash")]
    ids: BTreeSet<u64>,
    /// How many there are.
    count: u64,
}

/// What is remembered about a closed proposal.
pub(crate) enum ClosedProposal<'a> {
    /// Everything.
    Recent(&'a ProposalRecord),
    /// Only that it was closed, long ago.
    Earlier,
}

impl ClosedProposals {
    /// What is remembered about a proposal; `None` if no closed one has this id.
    pub(crate) fn get(&self, id: &MessageId) -> Option<ClosedProposal<'_>> {
        match self.recent.get(id) {
            Some(record) => Some(ClosedProposal::Recent(record)),
            None => self
                .ids
                .contains(&short_hash(id))
                .then_some(ClosedProposal::Earlier),
        }
    }

    /// The record of a proposal that was closed recently.
    pub(crate) fn recent(&self, id: &MessageId) -> Option<&ProposalRecord> {
        self.recent.get(id)
    }

    /// How many proposals were closed.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Adds a proposal, and returns the one that is no longer remembered in full.
    pub(crate) fn insert(&mut self, record: ProposalRecord) -> Option<ProposalRecord> {
        self.ids.insert(short_hash(&record.id));
        self.ids.extend(record.gate.as_ref().map(short_hash));
        self.count += 1;
        self.order.push_back(record.id.clone());
        self.recent.insert(record.id.clone(), record);
        if self.order.len() <= MAX_RECENT_PROPOSALS {
            return None;
        }
        self.recent.remove(&self.order.pop_front()?)
    }
}

impl ClosedProposal<'_> {
    /// How it ended, in a word.
    pub(crate) fn outcome_text(&self) -> String {
        match self {
            ClosedProposal::Recent(ProposalRecord {
                closed: Some((outcome, _)),
                ..
            }) => outcome.to_string(),
            ClosedProposal::Recent(_) | ClosedProposal::Earlier => "closed".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposal::{ProposalOutcome, ProposalSeqs};

    fn record(number: usize) -> ProposalRecord {
        ProposalRecord {
            id: MessageId::parse(&format!("p{number}")).unwrap(),
            gate: None,
            seqs: ProposalSeqs::default(),
            steps: Default::default(),
            closed: Some((ProposalOutcome::Rejected, 1)),
            output: Default::default(),
        }
    }

    #[test]
    fn the_oldest_are_remembered_by_id_alone() {
        let mut closed = ClosedProposals::default();
        for number in 0..MAX_RECENT_PROPOSALS {
            assert_eq!(closed.insert(record(number)), None);
        }
        assert_eq!(closed.insert(record(9999)), Some(record(0)));
        let outcome = |number: usize| {
            let id = record(number).id;
            closed.get(&id).map(|found| found.outcome_text())
        };
        assert_eq!(outcome(0).as_deref(), Some("closed"));
        assert_eq!(outcome(1).as_deref(), Some("rejected"));
        assert_eq!(outcome(5555), None);
        assert_eq!(closed.count(), MAX_RECENT_PROPOSALS as u64 + 1);
        let text = serde_json::to_string(&closed).unwrap();
        assert_eq!(
            serde_json::from_str::<ClosedProposals>(&text).unwrap(),
            closed
        );
    }

    #[test]
    fn a_damaged_list_of_ids_is_an_error() {
        let text = serde_json::to_string(&ClosedProposals::default()).unwrap();
        for ids in ["12", "AAAA", "é123456789abcde"] {
            let damaged = text.replace(r#""ids":"""#, &format!(r#""ids":"{ids}""#));
            assert_ne!(damaged, text);
            assert!(
                serde_json::from_str::<ClosedProposals>(&damaged).is_err(),
                "{ids}"
            );
        }
    }
}
