//! Folds the messages about gates: cards open, collect votes, are amended, and close.

use std::sync::Arc;

use pvp_protocol::payload::{
    Approval, GateAmend, GateOutcome, GateRequest, GateResolve, GateTimeout, TimeoutResolution,
};
use pvp_protocol::{Digest, MessageId, ParticipantId};

use super::card::{GateCard, TallyContext};
use super::proposal::{ClosedGateCard, ProposalState, ResolutionView};
use super::requested_action::RequestedAction;
use super::text::{truncate_line, truncate_optional_line};
use super::timeline::TimelineEvent;
use super::version::CommandVersion;
use super::{MessageMeta, View, push_bounded};

/// Maximum number of open cards; a session has at most 100 unless its server allows more.
pub(super) const MAX_CARDS: usize = 256;

/// Maximum number of closed cards kept, so that everyone can see who decided and how.
const MAX_CLOSED_CARDS: usize = 100;

impl View {
    pub(super) fn card_mut(&mut self, id: &MessageId) -> Option<&mut GateCard> {
        self.gates.iter_mut().find(|card| card.has_id(id))
    }

    /// The proposal id that belongs to a gate id; a proposal id is returned as it is.
    fn proposal_id_of(&self, id: &MessageId) -> MessageId {
        let proposal = self.proposal_at_gate(id);
        proposal.map_or(id, |proposal| &proposal.id).clone()
    }

    /// Recomputes every tally after participants or settings changed.
    pub(super) fn recount(&mut self) {
        self.recount_matching(|_| true);
    }

    /// Recomputes the tally of one card.
    fn recount_gate(&mut self, id: &MessageId) {
        self.recount_matching(|card| card.has_id(id));
    }

    fn recount_matching(&mut self, which: impl Fn(&GateCard) -> bool) {
        let context = TallyContext {
            people: &self.people,
            config: &self.config,
            me: self.me.as_ref(),
        };
        for card in self.gates.iter_mut().filter(|card| which(card)) {
            card.recount(&context);
        }
    }

    /// Removes a participant who left or lost the right to vote from every open gate. They stay
    /// removed even if the right comes back.
    pub(super) fn remove_from_votes(&mut self, participant: &ParticipantId) {
        self.forget_logged_votes(participant);
        for card in &mut self.gates {
            card.voters.remove(participant);
            card.votes.remove(participant);
        }
    }

    pub(super) fn fold_gate_request(&mut self, meta: &MessageMeta<'_>, request: &GateRequest) {
        let Some(proposal) = self.proposal_mut(&request.action_ref) else {
            return;
        };
        proposal.gate = Some(meta.id.clone());
        proposal.advance_to(ProposalState::Waiting);
        if let Some(trial) = &request.trial {
            Arc::make_mut(&mut proposal.requested).add_trial(trial);
        }
        let (is_waiting, requested) = (
            proposal.state == ProposalState::Waiting,
            Arc::clone(&proposal.requested),
        );
        if meta.is_history {
            if let Some(card) = self.card_mut(meta.id) {
                card.opened_at = Some(meta.at);
            }
            return;
        }
        if !is_waiting || self.gates.len() >= MAX_CARDS || self.card(meta.id).is_some() {
            return;
        }
        let opened_at = Some(meta.at);
        let card = GateCard::new(meta.id.clone(), request, requested);
        self.gates.push(GateCard { opened_at, ..card });
        self.recount_gate(meta.id);
    }

    pub(super) fn fold_approval(
        &mut self,
        meta: &MessageMeta<'_>,
        id: &MessageId,
        digest: Option<Digest>,
        approver: &ParticipantId,
        comment: &Option<String>,
    ) {
        let comment = truncate_optional_line(comment.as_ref());
        let proposal = self.proposal_id_of(id);
        if let Some(proposal) = self.proposal_mut(&proposal) {
            proposal.logged.add_vote(approver);
        }
        let approved = TimelineEvent::Approved {
            command: self.voted_version(&proposal, digest),
            proposal,
            comment: comment.clone(),
        };
        self.push_logged_item(meta, approved);
        if meta.is_history {
            return;
        }
        let (participant, at) = (approver.clone(), meta.at);
        if let Some(card) = self.card_mut(id) {
            let approval = Approval {
                participant,
                at,
                comment,
            };
            card.votes.insert(approver.clone(), approval);
            self.recount_gate(id);
        }
    }

    /// One rejection is enough to close the gate; the `gate.resolve` that follows closes the card.
    pub(super) fn fold_rejection(
        &mut self,
        meta: &MessageMeta<'_>,
        id: &MessageId,
        digest: Option<Digest>,
        reason: &str,
        suggestion: &Option<String>,
    ) {
        let proposal = self.proposal_id_of(id);
        let event = TimelineEvent::Rejected {
            command: self.voted_version(&proposal, digest),
            proposal,
            reason: truncate_line(reason),
            suggestion: truncate_optional_line(suggestion.as_ref()),
        };
        self.push_logged_item(meta, event);
        let (Some(by), false) = (meta.participant(), meta.is_history) else {
            return;
        };
        if let Some(card) = self.card_mut(id) {
            card.votes.remove(by);
            self.recount_gate(id);
        }
    }

    pub(super) fn fold_amend(&mut self, meta: &MessageMeta<'_>, amend: &GateAmend) {
        let id = self.proposal_id_of(&amend.gate);
        let card = self.card(&amend.gate).filter(|_| !meta.is_history);
        let votes: Option<Vec<_>> = card.map(|card| card.votes.keys().cloned().collect());
        let proposal = self
            .proposal_mut(&id)
            .filter(|proposal| !proposal.state.is_over());
        let (Some(proposal), Some(assessment)) = (proposal, &amend.assessment) else {
            return;
        };
        let Some(edited) =
            proposal
                .requested
                .with_edit(meta.participant(), &amend.arguments, assessment)
        else {
            return;
        };
        let requested = Arc::new(edited);
        proposal.requested = Arc::clone(&requested);
        let reason = truncate_optional_line(amend.reason.as_ref());
        // A card has all the votes; the messages received may lack some.
        if let Some(votes) = votes {
            proposal.logged.approved_by = votes;
        }
        let earlier = proposal.log_edit(&requested, amend.digest, meta.at, reason);
        let event = TimelineEvent::Edited {
            proposal: id,
            command: CommandVersion::of(&requested),
            before: earlier.command,
            void_votes: earlier.void_votes,
            reason: earlier.reason,
        };
        self.push_logged_item(meta, event);
        if let Some(card) = self.card_mut(&amend.gate) {
            if !meta.is_history {
                amend_card(card, amend, requested);
            } else if card.digest == assessment.digest {
                // The welcome already shows the edited command; this adds what the welcome left
                // out.
                card.requested = requested;
            }
            self.recount_gate(&amend.gate);
        }
    }

    pub(super) fn fold_timeout(&mut self, meta: &MessageMeta<'_>, timeout: &GateTimeout) {
        let proposal = self.proposal_id_of(&timeout.gate);
        let event = TimelineEvent::DeadlinePassed {
            command: self.version_of(&proposal),
            proposal,
            resolution: timeout.resolution,
            received: timeout.approvals_received,
            required: timeout.approvals_required,
        };
        self.push_logged_item(meta, event);
        match timeout.resolution {
            TimeoutResolution::Escalated if !meta.is_history => self.escalate(timeout),
            TimeoutResolution::Escalated
            | TimeoutResolution::Rejected
            | TimeoutResolution::AutoApproved => {}
        }
    }

    fn escalate(&mut self, timeout: &GateTimeout) {
        let Some(card) = self.card_mut(&timeout.gate) else {
            return;
        };
        card.escalated = true;
        card.deadline = timeout.deadline;
        if let (Some(quorum), Some(voters)) = (&timeout.quorum, &timeout.voters) {
            card.quorum = quorum.clone();
            card.voters = voters.iter().cloned().collect();
        }
        self.recount_gate(&timeout.gate);
    }

    pub(super) fn fold_resolve(&mut self, meta: &MessageMeta<'_>, resolve: &GateResolve) {
        let resolution = ResolutionView::new(resolve);
        let event = TimelineEvent::Resolved {
            proposal: resolve.tool_proposal.clone(),
            command: self.version_of(&resolve.tool_proposal),
            outcome: resolve.outcome,
            how: resolve.how,
            by: resolve.by.clone(),
            reason: resolution.reason.clone(),
            rule: resolve.rule.clone(),
        };
        self.push_logged_item(meta, event);
        self.gates.retain(|card| card.gate != resolve.gate);
        let Some(proposal) = self.proposal_mut(&resolve.tool_proposal) else {
            return;
        };
        proposal.gate = Some(resolve.gate.clone());
        proposal.resolution = Some(resolution.clone());
        let card = closed_card(resolve, &proposal.requested, resolution);
        push_bounded(&mut self.resolved, card, MAX_CLOSED_CARDS);
        match resolve.outcome {
            GateOutcome::Approved => {
                self.advance_proposal(&resolve.tool_proposal, ProposalState::Approved)
            }
            GateOutcome::Rejected => {
                self.close_proposal(&resolve.tool_proposal, ProposalState::Rejected)
            }
            GateOutcome::TimedOut => {
                self.close_proposal(&resolve.tool_proposal, ProposalState::TimedOut)
            }
            GateOutcome::Cancelled => {
                self.close_proposal(&resolve.tool_proposal, ProposalState::Cancelled)
            }
        }
    }
}

/// Replaces the action on a card. An amendment voids every vote given so far.
fn amend_card(card: &mut GateCard, amend: &GateAmend, requested: Arc<RequestedAction>) {
    if let Some(assessment) = &amend.assessment {
        card.category = assessment.category;
        card.digest = assessment.digest;
    }
    card.requested = requested;
    card.votes.clear();
    card.escalated = false;
    card.deadline = amend.deadline;
    if let Some(quorum) = &amend.quorum {
        card.quorum = quorum.clone();
    }
    if let Some(voters) = &amend.voters {
        card.voters = voters.iter().cloned().collect();
    }
}

fn closed_card(
    resolve: &GateResolve,
    requested: &RequestedAction,
    resolution: ResolutionView,
) -> ClosedGateCard {
    ClosedGateCard {
        gate: resolve.gate.clone(),
        proposal: resolve.tool_proposal.clone(),
        command: truncate_line(&requested.command),
        shown: truncate_line(&requested.shown),
        category: requested.category(),
        risk: requested
            .assessment
            .as_ref()
            .map(|assessment| assessment.risk),
        resolution,
    }
}
