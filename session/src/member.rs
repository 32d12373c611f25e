//! One participant of a session, and what they may do in it.

use std::collections::BTreeSet;

use pvp_protocol::payload::Announce;
use pvp_protocol::{Capability, ParticipantKind, Role, capabilities_of};

/// One person or agent that has joined.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// As last announced, with the roles that hold.
    pub announce: Announce,
    /// Capabilities beyond the roles.
    pub extra_capabilities: BTreeSet<Capability>,
    /// An admin has set the roles, so what is claimed at the next join does not matter.
    pub roles_set_by_admin: bool,
    pub left: bool,
    /// Not heard of for long enough that `on_participant_timeout` applies.
    pub timed_out: bool,
}

impl Member {
    /// Everything this member may do.
    pub fn capabilities(&self) -> BTreeSet<Capability> {
        capabilities_of(
            self.announce.kind,
            &self.announce.roles,
            &self.extra_capabilities,
        )
    }

    /// Whether this member may do one thing.
    pub fn has_capability(&self, capability: Capability) -> bool {
        !self.left && self.capabilities().contains(&capability)
    }

    /// Whether this member could vote on somebody else's proposal.
    pub fn may_vote(&self) -> bool {
        self.is_human() && self.has_capability(Capability::Approve)
    }

    /// Whether this is a person.
    pub fn is_human(&self) -> bool {
        self.announce.kind == ParticipantKind::Human
    }

    /// Whether this is an agent that is in the session.
    pub fn is_present_agent(&self) -> bool {
        !self.is_human() && !self.left
    }

    /// Whether this member holds a role.
    pub fn has_role(&self, role: Role) -> bool {
        self.announce.roles.contains(&role)
    }

    /// Whether the session should wait for this member when it pauses for those who are away.
    pub fn pauses_session_when_away(&self) -> bool {
        !self.left && (!self.is_human() || !self.capabilities().is_empty())
    }
}
