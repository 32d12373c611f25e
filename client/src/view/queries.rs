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

    /// The command that waits or waited at this gate; the id of the command itself is as good.
    pub fn proposal_at_gate(&self, id: &MessageId) -> Option<&ProposalView> {
        let gated = |proposal: &&ProposalView| proposal.gate.as_ref() == Some(id);
        let proposal = self.commands.iter().rev().find(gated);
        proposal.or_else(|| self.proposal(id))
    }

    /// What this participant proposed, or typed as their own command, oldest first.
    pub fn proposals_of(&self, participant: &ParticipantId) -> impl Iterator<Item = &ProposalView> {
        self.commands
            .iter()
            .filter(move |proposal| proposal.requested.proposer.as_ref() == Some(participant))
    }

    /// Whether messages of the past are still to come: those up to the head that the last welcome
    /// named. If the last of them is not for the viewer, this lasts until the next message.
    pub fn is_replaying(&self) -> bool {
        self.head < self.welcome_head
    }

    /// Whether a message with this sequence number is of the past, so that the last welcome already
    /// says what became of it.
    pub fn is_history(&self, seq: Option<u64>) -> bool {
        seq.is_some_and(|seq| seq <= self.welcome_head)
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

#[cfg(test)]
mod tests {
    use pvp_protocol::payload::GateRequest;
    use pvp_protocol::{Envelope, EnvelopeHeader, ServerMessage, SessionId};
    use serde_json::json;

    use super::*;

    fn id(text: &str) -> MessageId {
        MessageId::parse(text).unwrap()
    }

    fn bot() -> ParticipantId {
        ParticipantId::parse("bot").unwrap()
    }

    fn fold(view: &mut View, seq: u64, name: &str, message: impl Into<ServerMessage>) {
        let header = EnvelopeHeader {
            id: id(name),
            session: SessionId::parse("owl").unwrap(),
            sender: Sender::Participant(bot()),
            reference: None,
            causal_refs: Vec::new(),
            fork: None,
        };
        view.fold(&Envelope {
            header,
            at: Timestamp::from_millis(1),
            seq: Some(seq),
            message: message.into(),
        });
    }

    fn fold_proposal(view: &mut View, seq: u64, name: &str, agent: &str) {
        let propose = json!({
            "tool_name": "shell", "arguments": { "full_command": "touch a" }, "agent": agent,
            "risk_level": "low", "description": "", "requires_approval": false,
            "category": "shell_execute",
        });
        let propose: pvp_protocol::payload::ToolPropose = serde_json::from_value(propose).unwrap();
        fold(view, seq, name, ServerMessage::ToolPropose(propose));
    }

    fn fold_gate(view: &mut View, seq: u64, name: &str, proposal: &str) {
        let request = json!({
            "action_type": "tool", "action_ref": proposal,
            "quorum": { "type": "any", "count": 1 }, "timeout_seconds": 0, "message": "m",
            "category": "write", "digest": "00".repeat(32), "on_timeout": "reject", "voters": [],
        });
        let request: GateRequest = serde_json::from_value(request).unwrap();
        fold(view, seq, name, ServerMessage::GateRequest(request));
    }

    #[test]
    fn a_command_is_found_by_its_gate_and_by_its_own_id() {
        let mut view = View::default();
        fold_proposal(&mut view, 1, "p1", "bot");
        fold_gate(&mut view, 2, "g1", "p1");
        fold_proposal(&mut view, 3, "p2", "other");
        let found = |name: &str| view.proposal_at_gate(&id(name)).map(|it| it.id.clone());
        assert_eq!(found("g1"), Some(id("p1")));
        assert_eq!(found("p1"), Some(id("p1")));
        assert_eq!(found("p2"), Some(id("p2")));
        assert_eq!(found("g2"), None);
    }

    #[test]
    fn the_proposals_of_one_participant_are_in_order() {
        let mut view = View::default();
        fold_proposal(&mut view, 1, "p1", "bot");
        fold_proposal(&mut view, 2, "p2", "other");
        fold_proposal(&mut view, 3, "p3", "bot");
        let mine: Vec<_> = view.proposals_of(&bot()).map(|it| it.id.clone()).collect();
        assert_eq!(mine, [id("p1"), id("p3")]);
    }

    #[test]
    fn the_past_ends_at_the_head_of_the_welcome() {
        let mut view = View {
            welcome_head: 2,
            ..View::default()
        };
        assert!(view.is_replaying());
        fold_proposal(&mut view, 1, "p1", "bot");
        assert!(view.is_replaying());
        fold_proposal(&mut view, 3, "p2", "bot");
        assert!(!view.is_replaying());
        assert!(view.is_history(Some(2)));
        assert!(!view.is_history(Some(3)));
        assert!(!view.is_history(None));
    }
}
