//! What a welcome makes of the view: how things stand, merged with what is known.

use std::collections::BTreeSet;
use std::sync::Arc;

use pvp_protocol::payload::{OpenGate, PresenceStatus, RunningCommand, SessionWelcome};
use pvp_protocol::{MessageId, ParticipantTimeoutAction};

use super::View;
use super::asked::Asked;
use super::card::Card;
use super::gates::CARDS;
use super::people::{Me, Person};
use super::proposal::{Origin, Proposal, Run, State};
use super::text::{line, some_line};

impl View {
    pub(super) fn fold_welcome(&mut self, welcome: &SessionWelcome) {
        // One that was told before tells nothing that is not known better.
        if welcome.head < self.head.max(self.as_of) {
            return;
        }
        self.as_of = welcome.head;
        self.name = some_line(welcome.name.as_ref());
        self.config = welcome.config.clone();
        self.limits = Some(welcome.limits.clone());
        self.extensions = Some(welcome.extensions.clone());
        self.server = Some(line(&welcome.server));
        self.drafts.clear();
        self.meet(welcome);
        self.open_cards(&welcome.gates);
        self.find_running(&welcome.running);
        self.find_rules(&welcome.rules);
        self.close_others(welcome);
        let me = self.people.get(&welcome.participant);
        self.me = me.map(|person| Me::new(person, &self.config));
        self.paused = some_line(welcome.paused.as_ref());
        self.recount();
    }

    /// Everyone who is here; whoever else is known has left.
    fn meet(&mut self, welcome: &SessionWelcome) {
        let mut gone: BTreeSet<_> = self.people.keys().cloned().collect();
        for told in &welcome.people {
            let known = self.people.get(&told.announce.id);
            gone.remove(&told.announce.id);
            self.remember_person(Person {
                presence: told.presence,
                last_active: known.and_then(|person| person.last_active),
                timed_out: seems_timed_out(welcome, told),
                ..Person::new(&told.announce)
            });
        }
        for person in self
            .people
            .values_mut()
            .filter(|person| gone.contains(&person.id))
        {
            person.left = true;
            person.timed_out = false;
            person.presence = PresenceStatus::Disconnected;
        }
    }

    fn open_cards(&mut self, open: &[OpenGate]) {
        let known = std::mem::take(&mut self.gates);
        for open in open.iter().take(CARDS) {
            let before = known.iter().find(|card| card.gate == open.gate);
            let card = opened(open, before);
            self.note_waiting(&card);
            self.gates.push(card);
        }
    }

    fn note_waiting(&mut self, card: &Card) {
        let proposal = self.found(&card.proposal, || Arc::clone(&card.asked));
        proposal.asked = Arc::clone(&card.asked);
        proposal.gate = Some(card.gate.clone());
        proposal.state = State::Waiting;
    }

    fn find_running(&mut self, running: &[RunningCommand]) {
        for running in running {
            let asked = || Arc::new(Asked::only_line(&running.command, running.mode));
            let proposal = self.found(&running.tool_proposal, asked);
            proposal.state = State::Running;
            proposal.run.get_or_insert_with(|| Run::found(running));
        }
    }

    /// A command that the welcome tells of, known or not.
    fn found(&mut self, id: &MessageId, asked: impl FnOnce() -> Arc<Asked>) -> &mut Proposal {
        if self.proposal(id).is_none() {
            self.remember_proposal(Proposal::new(id, Origin::Agent, asked()));
        }
        self.proposal_mut(id).expect("it was remembered above")
    }

    /// What is neither waiting nor running is over; the history that follows may tell how.
    fn close_others(&mut self, welcome: &SessionWelcome) {
        let waiting = welcome.gates.iter().map(|open| &open.request.action_ref);
        let running = welcome.running.iter().map(|running| &running.tool_proposal);
        let open: BTreeSet<_> = waiting.chain(running).collect();
        let known = self
            .commands
            .iter()
            .filter(|proposal| !proposal.state.is_over());
        let lost = known.filter(|proposal| !open.contains(&proposal.id));
        let lost: Vec<_> = lost.map(|proposal| proposal.id.clone()).collect();
        for id in lost {
            self.close(&id, State::Over);
        }
    }
}

/// A card as the welcome tells it, with what only an earlier telling of it knew.
fn opened(open: &OpenGate, before: Option<&Card>) -> Card {
    let same = before.filter(|card| card.digest == open.request.digest);
    let asked = match same {
        Some(card) => Arc::clone(&card.asked),
        None => Arc::new(Asked::at_gate(open)),
    };
    let votes = open.approvals.iter();
    Card {
        opened_at: before.and_then(|card| card.opened_at),
        votes: votes
            .map(|vote| (vote.participant.clone(), vote.clone()))
            .collect(),
        escalated: open.escalated,
        ..Card::new(open.gate.clone(), &open.request, asked)
    }
}

/// Whether someone does not count for decisions. A session that pauses names those it misses;
/// otherwise whoever is not connected is taken to have been gone for long.
fn seems_timed_out(welcome: &SessionWelcome, told: &pvp_protocol::payload::Participant) -> bool {
    match welcome.config.on_participant_timeout {
        ParticipantTimeoutAction::PauseSession => {
            let missed = welcome.paused.as_deref().unwrap_or_default();
            missed
                .split(" and ")
                .any(|id| id == told.announce.id.as_str())
        }
        ParticipantTimeoutAction::Skip | ParticipantTimeoutAction::Wait => match told.presence {
            PresenceStatus::Away | PresenceStatus::Disconnected => true,
            PresenceStatus::Active | PresenceStatus::Idle => false,
        },
    }
}
