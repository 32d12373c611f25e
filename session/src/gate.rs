//! Gates, which collect votes on a proposal, and the clearances that passed gates give.

use std::collections::{BTreeMap, BTreeSet};

use pvp_protocol::payload::{Approval, ClearedBy, GateRequest};
use pvp_protocol::{
    Approvers, Category, Digest, MessageId, ParticipantId, QuorumRule, Role, Tally, Timestamp,
    dependent_approvals, tally,
};
use serde::{Deserialize, Serialize};

use crate::proposal::Proposal;

/// An open gate, where a proposal waits for votes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// The gate's id.
    pub id: MessageId,
    /// The request, with the changes of amendments and escalation.
    pub request: GateRequest,
    /// Who could approve when the gate opened, without those who have lost the right since.
    pub electorate: BTreeSet<ParticipantId>,
    /// The approvals so far, by voter.
    pub approvals: BTreeMap<ParticipantId, Approval>,
    /// The sequence numbers of the last approvals by voter, also of those that no longer count.
    pub approval_seqs: BTreeMap<ParticipantId, u64>,
    /// Whether only admins decide.
    pub escalated: bool,
    /// Who edited the command last; votes must then carry its digest.
    pub amended_by: Option<ParticipantId>,
    /// The sequence number at which it opened.
    pub opened_seq: u64,
}

/// The quorum after escalation: as many admins as approvers were needed before.
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
    /// Counts the votes.
    pub fn tally(&self, approvers: &Approvers) -> Tally {
        let approved = self.approvals.keys().cloned().collect();
        tally(&self.request.quorum, approvers, &approved)
    }

    /// The approvals that do not count as those of one more person, and who keeps them from it.
    pub fn dependent_approvals(
        &self,
        approvers: &Approvers,
    ) -> BTreeMap<ParticipantId, ParticipantId> {
        let approved = self.approvals.keys().cloned().collect();
        dependent_approvals(&self.request.quorum, approvers, &approved)
    }

    /// The approvals so far that count, if the gate passes with the vote that an allow rule of this
    /// participant stands for.
    pub(crate) fn approvals_with_rule_of(
        &self,
        author: &ParticipantId,
        approvers: &Approvers,
    ) -> Option<Vec<Approval>> {
        if !approvers.eligible.contains(author) {
            return None;
        }
        let voted = self.approvals.keys().chain([author]).cloned().collect();
        let tally = tally(&self.request.quorum, approvers, &voted);
        let counts = tally.passed && tally.counted.contains(author);
        let given = self.approvals.values();
        let counted = given.filter(|approval| tally.counted.contains(&approval.participant));
        counts.then(|| counted.cloned().collect())
    }

    /// When the gate times out, if it ever does.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.request.deadline
    }

    /// Whether the deadline has passed at this time.
    pub(crate) fn is_due(&self, at: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= at)
    }

    /// A clearance, if the vote has passed.
    pub(crate) fn clear_by_quorum(
        &self,
        proposal: &Proposal,
        approvers: &Approvers,
    ) -> Option<Clearance> {
        let tally = self.tally(approvers);
        tally.passed.then(|| Clearance {
            proposal: proposal.id.clone(),
            digest: proposal.assessment.digest,
            cleared_by: ClearedBy::Quorum,
            approvals: self
                .approvals
                .values()
                .filter(|approval| tally.counted.contains(&approval.participant))
                .cloned()
                .collect(),
            rule: None,
        })
    }

    /// A clearance because the deadline has passed, for sessions that are configured so. Only for
    /// writes and reads, never for anything more severe.
    pub(crate) fn clear_by_deadline(&self, proposal: &Proposal) -> Option<Clearance> {
        (proposal.assessment.category <= Category::Write).then(|| Clearance {
            proposal: proposal.id.clone(),
            digest: proposal.assessment.digest,
            cleared_by: ClearedBy::Clock,
            approvals: self.approvals.values().cloned().collect(),
            rule: None,
        })
    }
}

/// Proof that one proposal may run, exactly as it was assessed. Only a passed gate, a deadline, a
/// read, an allow rule, a person's own command or a trial gives one, and it is spent on one
/// [`Grant`](crate::Grant).
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
    /// A clearance for a read, which needs no vote.
    pub(crate) fn for_read(proposal: &Proposal) -> Option<Self> {
        (proposal.assessment.category == Category::Read)
            .then(|| Self::without_vote(proposal, ClearedBy::Read, None))
    }

    /// A clearance by an allow rule, for writes and reads only.
    pub(crate) fn for_allow_rule(proposal: &Proposal, rule: MessageId) -> Option<Self> {
        (proposal.assessment.category <= Category::Write)
            .then(|| Self::without_vote(proposal, ClearedBy::AllowRule, Some(rule)))
    }

    /// A clearance to try a command in the read sandbox, for writes only. It does not let the command
    /// have any effect.
    pub(crate) fn for_trial(proposal: &Proposal) -> Option<Self> {
        (proposal.assessment.category == Category::Write && proposal.trial.is_none())
            .then(|| Self::without_vote(proposal, ClearedBy::Tried, None))
    }

    /// A clearance for a person's own command, where the session lets it run directly.
    pub(crate) fn for_own_command(proposal: &Proposal) -> Option<Self> {
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
