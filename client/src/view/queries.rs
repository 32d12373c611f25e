//! Questions that screens ask of a view.

use pvp_protocol::{MessageId, ParticipantId, Sender, Timestamp};

use super::{AllowRuleView, GateCard, ParticipantView, ProposalView, View, VoteEligibility};

impl View {
    /// The seq to resume after; `None` if nothing was told yet.
    pub fn resume_after(&self) -> Option<u64> {
        (self.head > 0).then_some(self.head)
    }

    /// How many gates are open.
    pub fn open_gate_count(&self) -> usize {
        self.gates.len()
    }

    /// The open card of a gate, by its id or by that of the proposal.
    pub fn card(&self, id: &MessageId) -> Option<&GateCard> {
        self.gates.iter().find(|card| card.has_id(id))
    }

    /// Open cards that wait for my vote, oldest first.
    pub fn awaiting_my_vote(&self) -> impl Iterator<Item = &GateCard> {
        self.gates
            .iter()
            .filter(|card| card.standing == VoteEligibility::MayVote)
    }

    /// The deadline that comes first.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.gates.iter().filter_map(|card| card.deadline).min()
    }

    /// A command, by the id of its proposal.
    pub fn proposal(&self, id: &MessageId) -> Option<&ProposalView> {
        self.commands
            .iter()
            .rev()
            .find(|proposal| proposal.id == *id)
    }

    /// Commands that are running, those in the background included, oldest first.
    pub fn running(&self) -> impl Iterator<Item = &ProposalView> {
        self.commands
            .iter()
            .filter(|proposal| proposal.is_running())
    }

    /// Commands that are running in the background, oldest first.
    pub fn background(&self) -> impl Iterator<Item = &ProposalView> {
        self.running().filter(|proposal| proposal.is_background())
    }

    /// Everyone who is in the session.
    pub fn present(&self) -> impl Iterator<Item = &ParticipantView> {
        self.people.values().filter(|participant| !participant.left)
    }

    /// Agents that are in the session, to prompt or to interrupt.
    pub fn agents(&self) -> impl Iterator<Item = &ParticipantView> {
        self.people
            .values()
            .filter(|participant| participant.is_present_agent())
    }

    /// Agents that would run a command of mine.
    pub fn executors(&self) -> impl Iterator<Item = &ParticipantView> {
        self.people
            .values()
            .filter(|participant| participant.is_executor())
    }

    /// What to call someone: their name if it is known, else their id.
    pub fn display_name<'a>(&'a self, participant: &'a ParticipantId) -> &'a str {
        self.people
            .get(participant)
            .map_or(participant.as_str(), |participant| &participant.name)
    }

    /// What to call a sender.
    pub fn sender_name<'a>(&'a self, sender: &'a Sender) -> &'a str {
        match sender {
            Sender::System => Sender::SYSTEM,
            Sender::Participant(id) => self.display_name(id),
        }
    }

    /// Whether this is me.
    pub fn is_me(&self, participant: &ParticipantId) -> bool {
        self.me
            .as_ref()
            .is_some_and(|me| me.participant == *participant)
    }

    /// Whether I may vote on what others propose.
    pub fn may_approve(&self) -> bool {
        self.me.as_ref().is_some_and(|me| me.may_approve)
    }

    /// Whether I may run commands of my own, and someone would run them.
    pub fn may_exec(&self) -> bool {
        self.me.as_ref().is_some_and(|me| me.may_exec) && self.executors().next().is_some()
    }

    /// Whether I may interrupt agents.
    pub fn may_interrupt(&self) -> bool {
        self.me.as_ref().is_some_and(|me| me.may_interrupt)
    }

    /// Whether I may prompt agents.
    pub fn may_prompt(&self) -> bool {
        self.me.as_ref().is_some_and(|me| me.may_prompt)
    }

    /// Allow rules that hold at this moment.
    pub fn active_rules(&self, now: Timestamp) -> impl Iterator<Item = &AllowRuleView> {
        self.rules.iter().filter(move |rule| rule.is_active(now))
    }
}
