//! A participant of a session, and what they may do in it.

use std::collections::BTreeSet;

use pvp_protocol::payload::Announce;
use pvp_protocol::{Capability, ParticipantId, ParticipantKind, Refusal, Role, capabilities_of};
use serde::{Deserialize, Serialize};

use crate::input::Ceiling;

/// A person or an agent who has joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// The last announcement, with the roles and capabilities that apply.
    pub announce: Announce,
    /// Capabilities beyond those of the roles.
    pub extra_capabilities: BTreeSet<Capability>,
    /// Whether an admin has set the roles, which then override those claimed at the next join.
    pub roles_set_by_admin: bool,
    /// The roles among theirs that an admin gave them, beyond what they joined with.
    pub given_roles: BTreeSet<Role>,
    /// The capabilities among theirs that an admin gave them.
    pub given_capabilities: BTreeSet<Capability>,
    /// Whether they have left.
    pub left: bool,
    /// Whether all their connections have been gone for a while, which was told as
    /// `session.leave`.
    pub connection_lost: bool,
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

    /// This member with only what a token allows, and what an admin gave them in this session.
    pub fn bounded_by(&self, ceiling: &Ceiling) -> Result<Self, Refusal> {
        if ceiling.kind != self.announce.kind {
            return Err(Refusal::Unauthorized(format!(
                "this token is for {}, and `{}` is {} here",
                kind_words(ceiling.kind),
                self.announce.id,
                kind_words(self.announce.kind)
            )));
        }
        let given = capabilities_of(
            self.announce.kind,
            &self.given_roles,
            &self.given_capabilities,
        );
        let mut bounded = self.clone();
        bounded
            .announce
            .roles
            .retain(|role| ceiling.roles.contains(role) || self.given_roles.contains(role));
        // What the token allows counts, through whichever role this member may do it.
        bounded.extra_capabilities = self.capabilities();
        bounded
            .extra_capabilities
            .retain(|capability| ceiling.allows(*capability) || given.contains(capability));
        Ok(bounded)
    }

    /// The roles and further capabilities that are left if only these tokens allow them.
    pub(crate) fn with_only(&self, tokens: &Ceiling) -> (Vec<Role>, BTreeSet<Capability>) {
        let kept = |role: &Role| tokens.roles.contains(role) || self.given_roles.contains(role);
        let mut roles: Vec<_> = self.announce.roles.iter().copied().filter(kept).collect();
        if roles.is_empty() && !self.roles_set_by_admin {
            roles.extend(&tokens.roles);
        }
        let mut capabilities = self.extra_capabilities.clone();
        capabilities.retain(|capability| {
            tokens.allows(*capability) || self.given_capabilities.contains(capability)
        });
        (roles, capabilities)
    }

    /// Whether this member is in the session and has this capability.
    pub fn has_capability(&self, capability: Capability) -> bool {
        !self.left && self.capabilities().contains(&capability)
    }

    /// Whether this member could vote on somebody else's proposal.
    pub fn may_vote(&self) -> bool {
        self.is_human() && self.has_capability(Capability::Approve)
    }

    /// Who invited them, if that was during the session.
    pub fn invited_during_session(&self) -> Option<&ParticipantId> {
        let announce = &self.announce;
        let earlier = announce.invited_before_session == Some(true);
        announce.invited_by.as_ref().filter(|_| !earlier)
    }

    /// Whether this is a person.
    pub fn is_human(&self) -> bool {
        self.announce.kind == ParticipantKind::Human
    }

    /// Whether this is an agent that is in the session.
    pub fn is_present_agent(&self) -> bool {
        !self.is_human() && !self.left
    }

    /// Whether this is an agent of the published protocol: it announces no executor, so it knows
    /// none of this server's own messages.
    pub fn is_published_agent(&self) -> bool {
        !self.is_human() && self.announce.executor.is_none()
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

fn kind_words(kind: ParticipantKind) -> &'static str {
    match kind {
        ParticipantKind::Human => "a person",
        ParticipantKind::Agent => "an agent",
    }
}
