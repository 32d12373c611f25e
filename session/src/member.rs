//! A participant of a session, and what they may do in it.

use std::collections::BTreeSet;

use pvp_protocol::payload::Announce;
use pvp_protocol::{Capability, ParticipantKind, Role, capabilities_of};

/// A person or an agent who has joined.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// The last announcement, with the roles and capabilities that apply.
    pub announce: Announce,
    /// Capabilities beyond those of the roles.
    pub extra_capabilities: BTreeSet<Capability>,
    /// Whether an admin has set the roles, which then override those claimed at the next join.
    pub roles_set_by_admin: bool,
    /// Whether they have left.
    pub left: bool,
    /// Whether they have been silent so long that `on_participant_timeout` applies.
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

    /// Whether this member is in the session and has this capability.
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

    /// Whether a session with `pause_session` pauses while this member is away.
    pub fn pauses_session_when_away(&self) -> bool {
        !self.left && (!self.is_human() || !self.capabilities().is_empty())
    }
}
