//! Gates: who has to approve, who has, and whether that is enough.

use std::collections::{BTreeMap, BTreeSet};

use pvp_protocol::payload::{Approval, ClearedBy, GateRequest};
use pvp_protocol::{
    Approvers, Category, Digest, MessageId, ParticipantId, QuorumRule, Role, Tally, Timestamp,
    tally,
};

use crate::proposal::Proposal;

/// An open question to the people of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    pub id: MessageId,
    /// As asked, with what an amendment or an escalation changed since.
    pub request: GateRequest,
    /// Who could approve when the gate opened.
    pub electorate: BTreeSet<ParticipantId>,
    pub approvals: BTreeMap<ParticipantId, Approval>,
    /// Only admins decide.
    pub escalated: bool,
    /// Who edited the command last; votes must then carry its digest.
    pub amended_by: Option<ParticipantId>,
    pub opened_seq: u64,
}

/// The rule that admins decide by once a deadline has passed: as many of them as were asked for.
pub(crate) fn escalated_rule(rule: &QuorumRule) -> QuorumRule {
    let admins = |count: u32| QuorumRule::Role {
        role: Role::Admin,
        count: count.max(1),
    };
    match rule {
        QuorumRule::Any { count } | QuorumRule::Role { count, .. } => admins(*count),
        QuorumRule::Specific { participants } => {
            admins(u32::try_from(participants.len()).unwrap_or(u32::MAX))
        }
        QuorumRule::All => QuorumRule::All,
        QuorumRule::Majority => QuorumRule::Majority,
    }
}

impl Gate {
    /// How the vote stands.
    pub fn tally(&self, approvers: &Approvers) -> Tally {
        let approved = self.approvals.keys().cloned().collect();
        tally(&self.request.quorum, approvers, &approved)
    }

    /// The moment at which the deadline acts.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.request.deadline
    }

    /// Whether the deadline acts, now that it is this late.
    pub(crate) fn is_due(&self, at: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= at)
    }

    /// A passed vote becomes a clearance; an open one does not.
    pub(crate) fn clear_by_quorum(
        &self,
        proposal: &Proposal,
        approvers: &Approvers,
    ) -> Option<Clearance> {
        self.tally(approvers).passed.then(|| Clearance {
            proposal: proposal.id.clone(),
            digest: proposal.assessment.digest,
            cleared_by: ClearedBy::Quorum,
            approvals: self
                .approvals
                .values()
                .filter(|approval| approvers.eligible.contains(&approval.participant))
                .cloned()
                .collect(),
            rule: None,
        })
    }

    /// The clock approves a write, where the session is configured so; never anything else.
    pub(crate) fn clear_by_clock(&self, proposal: &Proposal) -> Option<Clearance> {
        (proposal.assessment.category <= Category::Write).then(|| Clearance {
            proposal: proposal.id.clone(),
            digest: proposal.assessment.digest,
            cleared_by: ClearedBy::Clock,
            approvals: self.approvals.values().cloned().collect(),
            rule: None,
        })
    }
}

/// Leave to run one proposal, as judged. Only a passed gate, a read verdict, an allow rule or a
/// person's own command makes one, and it is spent into one [`Grant`](crate::Grant).
///
/// ```compile_fail
/// let forged = pvp_session::Clearance { approvals: vec![] };
/// ```
#[derive(Debug)]
pub struct Clearance {
    pub(crate) proposal: MessageId,
    pub(crate) digest: Digest,
    pub(crate) cleared_by: ClearedBy,
    pub(crate) approvals: Vec<Approval>,
    pub(crate) rule: Option<MessageId>,
}

impl Clearance {
    /// A read needs nobody's vote.
    pub(crate) fn for_read(proposal: &Proposal) -> Option<Self> {
        (proposal.assessment.category == Category::Read)
            .then(|| Self::without_vote(proposal, ClearedBy::Read, None))
    }

    /// A session rule covers a write, and nothing above it.
    pub(crate) fn for_allow_rule(proposal: &Proposal, rule: MessageId) -> Option<Self> {
        (proposal.assessment.category <= Category::Write)
            .then(|| Self::without_vote(proposal, ClearedBy::AllowRule, Some(rule)))
    }

    /// A person's own command, where the session lets it run directly.
    pub(crate) fn for_direct(proposal: &Proposal) -> Option<Self> {
        (proposal.assessment.category < Category::Blocked)
            .then(|| Self::without_vote(proposal, ClearedBy::Direct, None))
    }

    fn without_vote(proposal: &Proposal, cleared_by: ClearedBy, rule: Option<MessageId>) -> Self {
        Self {
            proposal: proposal.id.clone(),
            digest: proposal.assessment.digest,
            cleared_by,
            approvals: Vec::new(),
            rule,
        }
    }
}
