//! Queries that user interfaces make on a view.

use pvp_protocol::{MessageId, ParticipantId, Sender, Timestamp};

use super::{
    AllowRuleView, GateCard, ParticipantView, ProposalView, TimelineItem, View, VoteEligibility,
};

impl View {
    /// How many gates are open.
    pub fn open_gate_count(&self) -> usize {
        self.gates.len()
    }

    /// The open card with this gate id or proposal id.
    pub fn card(&self, id: &MessageId) -> Option<&GateCard> {
        self.gates.iter().find(|card| card.has_id(id))
    }

    /// Open cards that wait for the viewer's vote, oldest first.
    pub fn awaiting_my_vote(&self) -> impl Iterator<Item = &GateCard> {
        self.gates
            .iter()
            .filter(|card| card.standing == VoteEligibility::MayVote)
    }

    /// The earliest deadline of the open gates.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.gates.iter().filter_map(|card| card.deadline).min()
    }

    /// The command with this proposal id.
    pub fn proposal(&self, id: &MessageId) -> Option<&ProposalView> {
        self.commands
            .iter()
            .rev()
            .find(|proposal| proposal.id == *id)
    }

    /// Running commands, including background ones, oldest first.
    pub fn running(&self) -> impl Iterator<Item = &ProposalView> {
        self.commands
            .iter()
            .filter(|proposal| proposal.is_running())
    }

    /// Participants who have not left.
    pub fn present(&self) -> impl Iterator<Item = &ParticipantView> {
        self.people.values().filter(|participant| !participant.left)
    }

    /// Agents that have not left, to prompt or to interrupt.
    pub fn agents(&self) -> impl Iterator<Item = &ParticipantView> {
        self.people
            .values()
            .filter(|participant| participant.is_present_agent())
    }

    /// The newest item of the timeline that was made of this message.
    pub fn timeline_item(&self, message: &MessageId) -> Option<&TimelineItem> {
        self.stream
            .items
            .iter()
            .rev()
            .find(|item| item.id == *message)
    }

    /// The name to show for a participant, or the id if the name is unknown.
    pub fn display_name<'a>(&'a self, participant: &'a ParticipantId) -> &'a str {
        self.people
            .get(participant)
            .map_or(participant.as_str(), |participant| &participant.name)
    }

    /// The name to show for a sender.
    pub fn sender_name<'a>(&'a self, sender: &'a Sender) -> &'a str {
        match sender {
            Sender::System => Sender::SYSTEM,
            Sender::Participant(id) => self.display_name(id),
        }
    }

    /// Whether this participant is the viewer.
    pub fn is_me(&self, participant: &ParticipantId) -> bool {
        self.me
            .as_ref()
            .is_some_and(|me| me.participant == *participant)
    }

    /// Whether the viewer may vote on other participants' proposals.
    pub fn may_approve(&self) -> bool {
        self.me.as_ref().is_some_and(|me| me.may_approve)
    }

    /// Whether the viewer may interrupt agents.
    pub fn may_interrupt(&self) -> bool {
        self.me.as_ref().is_some_and(|me| me.may_interrupt)
    }

    /// Allow rules that have not expired.
    pub fn active_rules(&self, now: Timestamp) -> impl Iterator<Item = &AllowRuleView> {
        self.rules.iter().filter(move |rule| rule.is_active(now))
    }
}
