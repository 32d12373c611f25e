//! Folds a welcome: merges the session's current state with what the view already knows.

use std::collections::BTreeSet;
use std::sync::Arc;

use pvp_protocol::payload::{OpenGate, PresenceStatus, RunningCommand, SessionWelcome};
use pvp_protocol::{MessageId, ParticipantTimeoutAction};

use super::View;
use super::card::GateCard;
use super::gates::MAX_CARDS;
use super::participants::{OwnLimits, ParticipantView, SelfView};
use super::proposal::{CommandOrigin, ProposalState, ProposalView, RunView};
use super::requested_action::RequestedAction;
use super::text::{truncate_line, truncate_optional_line};

impl View {
    pub(super) fn fold_welcome(&mut self, welcome: &SessionWelcome) {
        // An older welcome says nothing that the view does not know better.
        if welcome.head < self.head.max(self.welcome_head) {
            return;
        }
        self.welcome_head = welcome.head;
        self.name = truncate_optional_line(welcome.name.as_ref());
        self.config = welcome.config.clone();
        self.limits = Some(welcome.limits.clone());
        self.extensions = Some(welcome.extensions.clone());
        self.server = Some(truncate_line(&welcome.server));
        self.drafts.clear();
        self.fold_participants(welcome);
        self.fold_open_gates(&welcome.gates);
        self.fold_running(&welcome.running);
        self.set_rules(&welcome.rules);
        self.set_secrets(&welcome.secrets);
        self.close_missing_proposals(welcome);
        let me = self.people.get(&welcome.participant);
        self.own_limits = me.and_then(|me| own_limits(welcome, me));
        let me = me.map(|participant| SelfView::new(participant, &self.config));
        self.me = me.map(|me| me.bounded_by(self.own_limits.as_ref()));
        self.paused = truncate_optional_line(welcome.paused.as_ref());
        self.recount();
    }

    /// Replaces the participants; known ones whom the welcome does not list have left.
    fn fold_participants(&mut self, welcome: &SessionWelcome) {
        let mut gone: BTreeSet<_> = self.people.keys().cloned().collect();
        for participant in &welcome.people {
            let known = self.people.get(&participant.announce.id);
            gone.remove(&participant.announce.id);
            self.insert_participant(ParticipantView {
                presence: participant.presence,
                last_active: known.and_then(|participant| participant.last_active),
                timed_out: seems_timed_out(welcome, participant),
                ..ParticipantView::new(&participant.announce)
            });
        }
        for participant in self
            .people
            .values_mut()
            .filter(|participant| gone.contains(&participant.id))
        {
            participant.left = true;
            participant.timed_out = false;
            participant.presence = PresenceStatus::Disconnected;
        }
    }

    fn fold_open_gates(&mut self, open: &[OpenGate]) {
        let known = std::mem::take(&mut self.gates);
        for open in open.iter().take(MAX_CARDS) {
            let before = known.iter().find(|card| card.gate == open.gate);
            let card = card_from_welcome(open, before);
            self.mark_waiting(&card);
            self.gates.push(card);
        }
    }

    fn mark_waiting(&mut self, card: &GateCard) {
        let proposal = self.proposal_or_insert(&card.proposal, || Arc::clone(&card.requested));
        proposal.requested = Arc::clone(&card.requested);
        proposal.gate = Some(card.gate.clone());
        proposal.state = ProposalState::Waiting;
    }

    fn fold_running(&mut self, running: &[RunningCommand]) {
        for running in running {
            let requested = || Arc::new(RequestedAction::from_running(running));
            let proposal = self.proposal_or_insert(&running.tool_proposal, requested);
            proposal.state = ProposalState::Running;
            proposal
                .run
                .get_or_insert_with(|| RunView::from_welcome(running));
        }
    }

    /// A command that the welcome mentions, inserted if it is not known yet.
    fn proposal_or_insert(
        &mut self,
        id: &MessageId,
        requested: impl FnOnce() -> Arc<RequestedAction>,
    ) -> &mut ProposalView {
        if self.proposal(id).is_none() {
            self.push_proposal(ProposalView::new(id, CommandOrigin::Agent, requested()));
        }
        self.proposal_mut(id).expect("it was remembered above")
    }

    /// Ends the commands that are neither waiting nor running. The history that follows may show
    /// how they ended.
    fn close_missing_proposals(&mut self, welcome: &SessionWelcome) {
        let waiting = welcome.gates.iter().map(|open| &open.request.action_ref);
        let running = welcome.running.iter().map(|running| &running.tool_proposal);
        let open: BTreeSet<_> = waiting.chain(running).collect();
        let known = self
            .commands
            .iter()
            .filter(|proposal| !proposal.state.is_over());
        let missing = known.filter(|proposal| !open.contains(&proposal.id));
        let missing: Vec<_> = missing.map(|proposal| proposal.id.clone()).collect();
        for id in missing {
            self.close_proposal(&id, ProposalState::Over);
        }
    }
}

/// What this client's token allows, if the participant may do more with another.
fn own_limits(welcome: &SessionWelcome, me: &ParticipantView) -> Option<OwnLimits> {
    let limits = OwnLimits {
        roles: welcome.roles.iter().copied().collect(),
        capabilities: welcome.capabilities.iter().copied().collect(),
    };
    let all_roles = me.roles.iter().all(|role| limits.roles.contains(role));
    let all = all_roles && me.capabilities.is_subset(&limits.capabilities);
    (!all).then_some(limits)
}

/// The card of an open gate, with details that only the earlier card of the same gate has.
fn card_from_welcome(open: &OpenGate, before: Option<&GateCard>) -> GateCard {
    let same = before.filter(|card| card.digest == open.request.digest);
    let requested = match same {
        Some(card) => Arc::clone(&card.requested),
        None => {
            let mut requested = RequestedAction::from_open_gate(open);
            if let Some(trial) = &open.request.trial {
                requested.add_trial(trial);
            }
            Arc::new(requested)
        }
    };
    let votes = open.approvals.iter();
    GateCard {
        opened_at: before.and_then(|card| card.opened_at),
        votes: votes
            .map(|vote| (vote.participant.clone(), vote.clone()))
            .collect(),
        escalated: open.escalated,
        ..GateCard::new(open.gate.clone(), &open.request, requested)
    }
}

/// Whether a participant has timed out, as far as a welcome shows. A paused session names those it
/// waits for; otherwise a participant who is away or disconnected is assumed to have timed out.
fn seems_timed_out(
    welcome: &SessionWelcome,
    participant: &pvp_protocol::payload::Participant,
) -> bool {
    match welcome.config.on_participant_timeout {
        ParticipantTimeoutAction::PauseSession => {
            let missed = welcome.paused.as_deref().unwrap_or_default();
            missed
                .split(" and ")
                .any(|id| id == participant.announce.id.as_str())
        }
        ParticipantTimeoutAction::Skip | ParticipantTimeoutAction::Wait => {
            match participant.presence {
                PresenceStatus::Away | PresenceStatus::Disconnected => true,
                PresenceStatus::Active | PresenceStatus::Idle => false,
            }
        }
    }
}
