//! The participants of a session, their roles and presence, and the viewer's own rights.

use std::collections::{BTreeMap, BTreeSet};

use pvp_protocol::payload::{
    Announce, ExecutorInfo, PresenceStatus, PresenceUpdate, RoleChange, SessionLeave,
};
use pvp_protocol::{
    Capability, ParticipantId, ParticipantKind, ParticipantTimeoutAction, Role, Sender,
    SessionConfig, ShellExecMode, Timestamp, capabilities_of,
};
use serde::Serialize;

use super::text::{truncate_line, truncate_optional_line};
use super::timeline::TimelineEvent;
use super::{MessageMeta, View};

/// Maximum number of participants kept, including those who left; a session has at most 200 at a
/// time unless its server allows more.
pub const MAX_PARTICIPANTS: usize = 1000;

/// One person or agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParticipantView {
    /// The participant's id.
    pub id: ParticipantId,
    /// The name to show.
    pub name: String,
    /// Human or agent.
    pub kind: ParticipantKind,
    /// The roles held, without duplicates.
    pub roles: Vec<Role>,
    /// Everything they may do, through roles or in addition to them.
    pub capabilities: BTreeSet<Capability>,
    /// Active, idle, away or disconnected.
    pub presence: PresenceStatus,
    /// What their executor can do; `None` if they do not run commands.
    pub executor: Option<ExecutorInfo>,
    /// When they last did something; `None` if that is unknown.
    pub last_active: Option<Timestamp>,
    /// They have left the session.
    pub left: bool,
    /// They have been silent for so long that `on_participant_timeout` applies.
    pub timed_out: bool,
    /// Who invited them, if a participant did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invited_by: Option<ParticipantId>,
    /// They were invited before the session was created.
    #[serde(skip)]
    pub(super) invited_before_session: bool,
    /// Capabilities given in addition to those of the roles.
    #[serde(skip)]
    pub(super) explicit_capabilities: BTreeSet<Capability>,
}

impl ParticipantView {
    pub(super) fn new(announce: &Announce) -> Self {
        let explicit_capabilities = announce.capabilities.iter().flatten().copied().collect();
        Self {
            id: announce.id.clone(),
            name: truncate_line(&announce.name),
            kind: announce.kind,
            roles: deduplicated(&announce.roles),
            capabilities: capabilities_of(announce.kind, &announce.roles, &explicit_capabilities),
            presence: PresenceStatus::Active,
            executor: announce.executor.clone(),
            last_active: None,
            left: false,
            timed_out: false,
            invited_by: announce.invited_by.clone(),
            invited_before_session: announce.invited_before_session == Some(true),
            explicit_capabilities,
        }
    }

    /// Whether they are in the session and have this capability.
    pub fn has_capability(&self, capability: Capability) -> bool {
        !self.left && self.capabilities.contains(&capability)
    }

    /// Whether they may vote on other participants' proposals.
    pub fn may_vote(&self) -> bool {
        self.kind == ParticipantKind::Human && self.has_capability(Capability::Approve)
    }

    /// Whether this is an agent that has not left.
    pub fn is_present_agent(&self) -> bool {
        self.kind == ParticipantKind::Agent && !self.left
    }

    /// Whether they run commands that people send with `shell.exec`.
    pub fn is_executor(&self) -> bool {
        let accepts_shell_exec = self
            .executor
            .as_ref()
            .is_some_and(|ability| ability.shell_exec);
        self.is_present_agent() && accepts_shell_exec
    }

    /// Whether a session that pauses for absent participants waits for this one.
    fn is_required(&self) -> bool {
        !self.left && (self.kind == ParticipantKind::Agent || !self.capabilities.is_empty())
    }
}

fn deduplicated(roles: &[Role]) -> Vec<Role> {
    let once: BTreeSet<_> = roles.iter().copied().collect();
    once.into_iter().collect()
}

/// The viewer's own participant and rights.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SelfView {
    /// The viewer's id.
    pub participant: ParticipantId,
    /// The roles held.
    pub roles: Vec<Role>,
    /// Everything the viewer may do, through roles or in addition to them.
    pub capabilities: BTreeSet<Capability>,
    /// The viewer may vote on other participants' proposals.
    pub may_approve: bool,
    /// The viewer may run their own commands.
    pub may_exec: bool,
    /// The viewer may interrupt agents.
    pub may_interrupt: bool,
    /// The viewer may prompt agents.
    pub may_prompt: bool,
}

impl SelfView {
    pub(super) fn new(participant: &ParticipantView, config: &SessionConfig) -> Self {
        let human = participant.kind == ParticipantKind::Human;
        let exec_is_on = config.shell_exec != ShellExecMode::Off;
        Self {
            participant: participant.id.clone(),
            roles: participant.roles.clone(),
            capabilities: participant.capabilities.clone(),
            may_approve: participant.may_vote(),
            may_exec: human && exec_is_on && participant.has_capability(Capability::Exec),
            may_interrupt: participant.has_capability(Capability::Interrupt),
            may_prompt: participant.has_capability(Capability::Prompt),
        }
    }

    /// The same with only the rights that this client's token gives.
    pub(super) fn bounded_by(mut self, limits: Option<&OwnLimits>) -> Self {
        let Some(limits) = limits else { return self };
        self.roles.retain(|role| limits.roles.contains(role));
        self.capabilities
            .retain(|capability| limits.capabilities.contains(capability));
        let allows = |capability| self.capabilities.contains(&capability);
        self.may_approve &= allows(Capability::Approve);
        self.may_exec &= allows(Capability::Exec);
        self.may_interrupt &= allows(Capability::Interrupt);
        self.may_prompt &= allows(Capability::Prompt);
        self
    }
}

/// What this client's token allows, where that is less than what its participant may do.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OwnLimits {
    pub(super) roles: BTreeSet<Role>,
    pub(super) capabilities: BTreeSet<Capability>,
}

/// The absent participants that pause the session, joined by "and"; `None` if it is not paused.
fn pause_reason(
    people: &BTreeMap<ParticipantId, ParticipantView>,
    config: &SessionConfig,
) -> Option<String> {
    if config.on_participant_timeout != ParticipantTimeoutAction::PauseSession {
        return None;
    }
    let away = people
        .values()
        .filter(|participant| participant.timed_out && participant.is_required());
    let away: Vec<_> = away.map(|participant| participant.id.as_str()).collect();
    (!away.is_empty()).then(|| away.join(" and "))
}

impl View {
    pub(super) fn fold_announce(&mut self, meta: &MessageMeta<'_>, announce: &Announce) {
        if meta.is_logged() {
            let event = TimelineEvent::Joined {
                name: truncate_line(&announce.name),
                participant_kind: announce.kind,
                roles: deduplicated(&announce.roles),
            };
            self.push_logged_item(meta, event);
        }
        if meta.is_history {
            return;
        }
        let known = self.people.get(&announce.id);
        let present = known.filter(|participant| !participant.left);
        let participant = ParticipantView {
            // The server reports it when someone who timed out is active again.
            timed_out: present.is_some_and(|participant| participant.timed_out),
            presence: present.map_or(PresenceStatus::Active, |participant| participant.presence),
            last_active: known.and_then(|participant| participant.last_active),
            ..ParticipantView::new(announce)
        };
        self.insert_participant(participant);
        self.recompute_derived();
    }

    pub(super) fn insert_participant(&mut self, participant: ParticipantView) {
        let may_vote = participant.may_vote();
        let id = participant.id.clone();
        self.people.insert(id.clone(), participant);
        if !may_vote {
            self.remove_from_votes(&id);
        }
        if self.people.len() > MAX_PARTICIPANTS {
            let gone = self
                .people
                .values()
                .find(|participant| participant.left && participant.id != id);
            let other = gone.or_else(|| {
                self.people
                    .values()
                    .find(|participant| participant.id != id)
            });
            let forgotten = other.map(|participant| participant.id.clone());
            self.people.retain(|id, _| Some(id) != forgotten.as_ref());
        }
    }

    pub(super) fn fold_leave(&mut self, meta: &MessageMeta<'_>, leave: &SessionLeave) {
        let reason = truncate_optional_line(leave.reason.as_ref());
        self.push_logged_item(meta, TimelineEvent::Left { reason });
        let Some(by) = meta.participant() else { return };
        if leave.connection_lost {
            // They are still a member, and their votes count.
            let gone = self.people.get_mut(by).filter(|_| !meta.is_history);
            if let Some(participant) = gone {
                participant.presence = PresenceStatus::Disconnected;
            }
            return;
        }
        self.stream.close_items_of(meta.sender);
        for interrupt in &mut self.interrupts {
            interrupt.awaited.remove(by);
        }
        self.interrupts
            .retain(|interrupt| !interrupt.awaited.is_empty());
        self.drafts.remove(by);
        self.forget_logged_votes(by);
        if meta.is_history {
            return;
        }
        if let Some(participant) = self.people.get_mut(by) {
            participant.left = true;
            participant.timed_out = false;
            participant.presence = PresenceStatus::Disconnected;
        }
        self.remove_from_votes(by);
        self.recompute_derived();
    }

    pub(super) fn fold_role_change(&mut self, meta: &MessageMeta<'_>, change: &RoleChange) {
        let event = TimelineEvent::RolesChanged {
            participant: change.participant.clone(),
            old_roles: deduplicated(&change.old_roles),
            new_roles: deduplicated(&change.new_roles),
            reason: truncate_optional_line(change.reason.as_ref()),
        };
        self.push_logged_item(meta, event);
        if meta.is_history {
            return;
        }
        let Some(participant) = self.people.get_mut(&change.participant) else {
            return;
        };
        participant.roles = deduplicated(&change.new_roles);
        if let Some(capabilities) = &change.capabilities {
            participant.explicit_capabilities = capabilities.iter().copied().collect();
        }
        participant.capabilities = capabilities_of(
            participant.kind,
            &participant.roles,
            &participant.explicit_capabilities,
        );
        if !participant.may_vote() {
            self.remove_from_votes(&change.participant);
        } else if change.votes_void == Some(true) {
            self.forget_logged_votes(&change.participant);
            for card in &mut self.gates {
                card.votes.remove(&change.participant);
            }
        }
        self.recompute_derived();
    }

    /// A logged presence update counts for decisions; an ephemeral one is only displayed.
    pub(super) fn fold_presence(&mut self, meta: &MessageMeta<'_>, presence: &PresenceUpdate) {
        let PresenceUpdate {
            participant,
            status,
            last_active,
            ..
        } = presence;
        if meta.is_logged() {
            let (participant, status) = (participant.clone(), *status);
            self.push_logged_item(
                meta,
                TimelineEvent::Attendance {
                    participant,
                    status,
                },
            );
        }
        let Some(participant) = self.people.get_mut(participant) else {
            return;
        };
        participant.last_active = participant.last_active.max(Some(*last_active));
        if meta.is_logged() {
            // The last logged update is exact, so this is right for history as well.
            participant.timed_out = match status {
                PresenceStatus::Away | PresenceStatus::Disconnected => true,
                PresenceStatus::Active | PresenceStatus::Idle => false,
            };
        }
        if !meta.is_history && !participant.left {
            participant.presence = *status;
        }
        if meta.is_logged() && !meta.is_history {
            self.recompute_derived();
        } else if meta.is_logged() {
            self.recount();
        }
    }

    /// Any message shows that its sender is active.
    pub(super) fn record_activity(&mut self, meta: &MessageMeta<'_>) {
        let Sender::Participant(sender) = meta.sender else {
            return;
        };
        if let Some(participant) = self.people.get_mut(sender) {
            participant.last_active = participant.last_active.max(Some(meta.at));
        }
    }

    pub(super) fn recompute_derived(&mut self) {
        self.paused = pause_reason(&self.people, &self.config);
        let me = self
            .me
            .as_ref()
            .and_then(|me| self.people.get(&me.participant));
        if let Some(participant) = me {
            let me = SelfView::new(participant, &self.config);
            self.me = Some(me.bounded_by(self.own_limits.as_ref()));
        }
        self.recount();
    }
}
