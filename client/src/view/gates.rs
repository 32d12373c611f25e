//! What messages make of gates: cards open, gather votes, are edited, and close.

use std::sync::Arc;

use pvp_protocol::payload::{
    Approval, GateAmend, GateOutcome, GateRequest, GateResolve, GateTimeout, TimeoutResolution,
};
use pvp_protocol::{MessageId, ParticipantId};

use super::asked::Asked;
use super::card::{Card, Company};
use super::proposal::{Resolution, Resolved, State};
use super::text::{line, some_line};
use super::timeline::What;
use super::{Told, View, push_newest};

/// Most cards that are open at a time; a session has at most 100 unless its server allows more.
pub(super) const CARDS: usize = 256;

/// Closed cards that are kept, so that everyone can see who decided and how.
const RESOLVED: usize = 100;

impl View {
    pub(super) fn card_mut(&mut self, name: &MessageId) -> Option<&mut Card> {
        self.gates.iter_mut().find(|card| card.is_named(name))
    }

    /// The proposal that a gate id or a proposal id names.
    fn proposal_named(&self, name: &MessageId) -> MessageId {
        let gated = |proposal: &&super::Proposal| proposal.gate.as_ref() == Some(name);
        let proposal = self.commands.iter().rev().find(gated);
        proposal.map_or(name, |proposal| &proposal.id).clone()
    }

    /// Counts every vote again, after people or settings changed.
    pub(super) fn recount(&mut self) {
        self.recount_cards(|_| true);
    }

    /// Counts the votes on one card again.
    fn recount_named(&mut self, name: &MessageId) {
        self.recount_cards(|card| card.is_named(name));
    }

    fn recount_cards(&mut self, which: impl Fn(&Card) -> bool) {
        let company = Company {
            people: &self.people,
            config: &self.config,
            me: self.me.as_ref(),
        };
        for card in self.gates.iter_mut().filter(|card| which(card)) {
            card.recount(&company);
        }
    }

    /// Who left or lost the right is out of every open vote, even if the right comes back.
    pub(super) fn strike_from_votes(&mut self, who: &ParticipantId) {
        for card in &mut self.gates {
            card.voters.remove(who);
            card.votes.remove(who);
        }
    }

    pub(super) fn fold_gate_request(&mut self, told: &Told<'_>, request: &GateRequest) {
        let Some(proposal) = self.proposal_mut(&request.action_ref) else {
            return;
        };
        proposal.gate = Some(told.id.clone());
        proposal.reach(State::Waiting);
        let (waits, asked) = (
            proposal.state == State::Waiting,
            Arc::clone(&proposal.asked),
        );
        if told.past {
            if let Some(card) = self.card_mut(told.id) {
                card.opened_at = Some(told.at);
            }
            return;
        }
        if !waits || self.gates.len() >= CARDS || self.card(told.id).is_some() {
            return;
        }
        let opened_at = Some(told.at);
        let card = Card::new(told.id.clone(), request, asked);
        self.gates.push(Card { opened_at, ..card });
        self.recount_named(told.id);
    }

    pub(super) fn fold_approval(
        &mut self,
        told: &Told<'_>,
        name: &MessageId,
        approver: &ParticipantId,
        comment: &Option<String>,
    ) {
        let comment = some_line(comment.as_ref());
        let proposal = self.proposal_named(name);
        let approved = What::Approved {
            proposal,
            comment: comment.clone(),
        };
        self.tell(told, approved);
        if told.past {
            return;
        }
        let (participant, at) = (approver.clone(), told.at);
        if let Some(card) = self.card_mut(name) {
            let approval = Approval {
                participant,
                at,
                comment,
            };
            card.votes.insert(approver.clone(), approval);
            self.recount_named(name);
        }
    }

    /// One rejection closes the gate, by the resolution that follows.
    pub(super) fn fold_rejection(
        &mut self,
        told: &Told<'_>,
        name: &MessageId,
        reason: &str,
        suggestion: &Option<String>,
    ) {
        let what = What::Rejected {
            proposal: self.proposal_named(name),
            reason: line(reason),
            suggestion: some_line(suggestion.as_ref()),
        };
        self.tell(told, what);
        let (Some(by), false) = (told.by(), told.past) else {
            return;
        };
        if let Some(card) = self.card_mut(name) {
            card.votes.remove(by);
            self.recount_named(name);
        }
    }

    pub(super) fn fold_amend(&mut self, told: &Told<'_>, amend: &GateAmend) {
        let id = self.proposal_named(&amend.gate);
        let proposal = self
            .proposal_mut(&id)
            .filter(|proposal| !proposal.state.is_over());
        let (Some(proposal), Some(assessment)) = (proposal, &amend.assessment) else {
            return;
        };
        let Some(edited) = proposal
            .asked
            .edited(told.by(), &amend.arguments, assessment)
        else {
            return;
        };
        let asked = Arc::new(edited);
        proposal.asked = Arc::clone(&asked);
        let what = What::Edited {
            proposal: id,
            shown: line(&asked.shown),
            reason: some_line(amend.reason.as_ref()),
        };
        self.tell(told, what);
        if let Some(card) = self.card_mut(&amend.gate) {
            if !told.past {
                amend_card(card, amend, asked);
            } else if card.digest == assessment.digest {
                // The welcome tells what was edited, but not by whom.
                card.asked = asked;
            }
            self.recount_named(&amend.gate);
        }
    }

    pub(super) fn fold_timeout(&mut self, told: &Told<'_>, timeout: &GateTimeout) {
        let what = What::DeadlinePassed {
            proposal: self.proposal_named(&timeout.gate),
            resolution: timeout.resolution,
            received: timeout.approvals_received,
            required: timeout.approvals_required,
        };
        self.tell(told, what);
        match timeout.resolution {
            TimeoutResolution::Escalated if !told.past => self.escalate(timeout),
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
        self.recount_named(&timeout.gate);
    }

    pub(super) fn fold_resolve(&mut self, told: &Told<'_>, resolve: &GateResolve) {
        let resolution = Resolution::new(resolve);
        let what = What::Resolved {
            proposal: resolve.tool_proposal.clone(),
            outcome: resolve.outcome,
            how: resolve.how,
            by: resolve.by.clone(),
            reason: resolution.reason.clone(),
        };
        self.tell(told, what);
        self.gates.retain(|card| card.gate != resolve.gate);
        let Some(proposal) = self.proposal_mut(&resolve.tool_proposal) else {
            return;
        };
        proposal.gate = Some(resolve.gate.clone());
        proposal.resolution = Some(resolution.clone());
        let card = closed_card(resolve, &proposal.asked, resolution);
        push_newest(&mut self.resolved, card, RESOLVED);
        match resolve.outcome {
            GateOutcome::Approved => self.reach(&resolve.tool_proposal, State::Approved),
            GateOutcome::Rejected => self.close(&resolve.tool_proposal, State::Rejected),
            GateOutcome::TimedOut => self.close(&resolve.tool_proposal, State::TimedOut),
            GateOutcome::Cancelled => self.close(&resolve.tool_proposal, State::Cancelled),
        }
    }
}

/// An edit voids every vote, and asks again.
fn amend_card(card: &mut Card, amend: &GateAmend, asked: Arc<Asked>) {
    if let Some(assessment) = &amend.assessment {
        card.category = assessment.category;
        card.digest = assessment.digest;
    }
    card.asked = asked;
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

fn closed_card(resolve: &GateResolve, asked: &Asked, resolution: Resolution) -> Resolved {
    Resolved {
        gate: resolve.gate.clone(),
        proposal: resolve.tool_proposal.clone(),
        command: line(&asked.command),
        shown: line(&asked.shown),
        category: asked.category(),
        risk: asked.assessment.as_ref().map(|assessment| assessment.risk),
        resolution,
    }
}
