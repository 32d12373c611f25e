//! Decides what follows when a token is no longer valid.

use pvp_protocol::payload::{PolicyRevoke, RoleChange};
use pvp_protocol::{ExtraFields, ParticipantId, Sender};

use super::{Answer, DecisionBuilder};
use crate::input::Ceiling;

impl DecisionBuilder<'_> {
    /// Takes from a participant what only a token gave them that is no longer valid, and voids their
    /// approvals at open gates and their allow rules: nobody knows any more that they are theirs.
    pub(super) fn end_token(
        &mut self,
        participant: &ParticipantId,
        remaining: Option<&Ceiling>,
        reason: String,
    ) -> Answer {
        let member = self.session.members.get(participant);
        let Some(member) = member.filter(|_| !self.session.has_ended()) else {
            return Answer::Accepted(None);
        };
        let old_roles = member.announce.roles.clone();
        let (new_roles, capabilities) = match remaining {
            Some(remaining) => member.with_only(remaining),
            None => Default::default(),
        };
        let has_voted = self
            .session
            .open_gates()
            .iter()
            .any(|(_, gate)| gate.approvals.contains_key(participant));
        let rules = self.session.allow_rules.iter();
        let rules = rules.filter(|(_, rule)| rule.by == *participant && rule.expires_at > self.at);
        let rules: Vec<_> = rules.map(|(id, _)| id.clone()).collect();
        let lower = capabilities != member.extra_capabilities;
        let changes = new_roles != old_roles || lower;
        if !changes && !has_voted && rules.is_empty() {
            return Answer::Accepted(None);
        }
        // A rule is a vote given in advance, and as void as the others.
        for rule in rules {
            let reason = Some(reason.clone());
            self.append_system(
                PolicyRevoke {
                    rule,
                    reason,
                    extra: ExtraFields::new(),
                },
                None,
            );
        }
        if !changes && !has_voted {
            return Answer::Accepted(Some(self.session.head));
        }
        let change = RoleChange {
            participant: participant.clone(),
            old_roles,
            new_roles,
            changed_by: ParticipantId::parse(Sender::SYSTEM).expect("it is a plain word"),
            reason: Some(reason),
            capabilities: lower.then(|| capabilities.into_iter().collect()),
            votes_void: Some(true),
            extra: ExtraFields::new(),
        };
        self.append_system(change, None);
        self.grant_passed_gates();
        Answer::Accepted(Some(self.session.head))
    }
}
