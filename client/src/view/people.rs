//! Who is in the session, in which role, and what I am in it.

use std::collections::{BTreeMap, BTreeSet};

use pvp_protocol::payload::{
    Announce, ExecutorInfo, PresenceStatus, PresenceUpdate, RoleChange, SessionLeave,
};
use pvp_protocol::{
    Capability, ParticipantId, ParticipantKind, ParticipantTimeoutAction, Role, Sender,
    SessionConfig, ShellExecMode, Timestamp, capabilities_of,
};
use serde::Serialize;

use super::text::{line, some_line};
use super::timeline::What;
use super::{Told, View};

/// Most people and agents that are remembered, those who left included; a session has at most
/// 200 at a time unless its server allows more.
pub const PEOPLE: usize = 1000;

/// One person or agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Person {
    pub id: ParticipantId,
    pub name: String,
    pub kind: ParticipantKind,
    pub roles: Vec<Role>,
    /// Everything they may do, by role or beyond it.
    pub capabilities: BTreeSet<Capability>,
    pub presence: PresenceStatus,
    /// Set if they run commands.
    pub executor: Option<ExecutorInfo>,
    pub last_active: Option<Timestamp>,
    /// They are no longer in the session.
    pub left: bool,
    /// Quiet for so long that `on_participant_timeout` applies to them.
    pub timed_out: bool,
    #[serde(skip)]
    pub(super) explicit: BTreeSet<Capability>,
}

impl Person {
    pub(super) fn new(announce: &Announce) -> Self {
        let explicit = announce.capabilities.iter().flatten().copied().collect();
        Self {
            id: announce.id.clone(),
            name: line(&announce.name),
            kind: announce.kind,
            roles: distinct(&announce.roles),
            capabilities: capabilities_of(announce.kind, &announce.roles, &explicit),
            presence: PresenceStatus::Active,
            executor: announce.executor.clone(),
            last_active: None,
            left: false,
            timed_out: false,
            explicit,
        }
    }

    /// Whether they may do one thing.
    pub fn may(&self, capability: Capability) -> bool {
        !self.left && self.capabilities.contains(&capability)
    }

    /// Whether they could vote on somebody else's proposal.
    pub fn may_vote(&self) -> bool {
        self.kind == ParticipantKind::Human && self.may(Capability::Approve)
    }

    /// Whether this is an agent that is in the session.
    pub fn is_present_agent(&self) -> bool {
        self.kind == ParticipantKind::Agent && !self.left
    }

    /// Whether they run people's own commands.
    pub fn runs_commands(&self) -> bool {
        let able = self
            .executor
            .as_ref()
            .is_some_and(|ability| ability.shell_exec);
        self.is_present_agent() && able
    }

    /// Whether the session waits for them when it pauses for those who are away.
    fn matters(&self) -> bool {
        !self.left && (self.kind == ParticipantKind::Agent || !self.capabilities.is_empty())
    }
}

fn distinct(roles: &[Role]) -> Vec<Role> {
    let once: BTreeSet<_> = roles.iter().copied().collect();
    once.into_iter().collect()
}

/// What I am in this session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Me {
    pub participant: ParticipantId,
    pub roles: Vec<Role>,
    pub capabilities: BTreeSet<Capability>,
    /// I may vote on what others propose.
    pub may_approve: bool,
    /// I may run commands of my own.
    pub may_exec: bool,
    pub may_interrupt: bool,
    pub may_prompt: bool,
}

impl Me {
    pub(super) fn new(person: &Person, config: &SessionConfig) -> Self {
        let human = person.kind == ParticipantKind::Human;
        let exec_is_on = config.shell_exec != ShellExecMode::Off;
        Self {
            participant: person.id.clone(),
            roles: person.roles.clone(),
            capabilities: person.capabilities.clone(),
            may_approve: person.may_vote(),
            may_exec: human && exec_is_on && person.may(Capability::Exec),
            may_interrupt: person.may(Capability::Interrupt),
            may_prompt: person.may(Capability::Prompt),
        }
    }
}

/// Why nothing starts at the moment, if it does not: those who are missed.
fn paused(people: &BTreeMap<ParticipantId, Person>, config: &SessionConfig) -> Option<String> {
    if config.on_participant_timeout != ParticipantTimeoutAction::PauseSession {
        return None;
    }
    let away = people
        .values()
        .filter(|person| person.timed_out && person.matters());
    let away: Vec<_> = away.map(|person| person.id.as_str()).collect();
    (!away.is_empty()).then(|| away.join(" and "))
}

impl View {
    pub(super) fn fold_announce(&mut self, told: &Told<'_>, announce: &Announce) {
        if told.is_kept() {
            let what = What::Joined {
                name: line(&announce.name),
                participant_kind: announce.kind,
                roles: distinct(&announce.roles),
            };
            self.tell(told, what);
        }
        if told.past {
            return;
        }
        let known = self.people.get(&announce.id);
        let here = known.filter(|person| !person.left);
        let person = Person {
            // The server says so when someone who was given up is heard of again.
            timed_out: here.is_some_and(|person| person.timed_out),
            presence: here.map_or(PresenceStatus::Active, |person| person.presence),
            last_active: known.and_then(|person| person.last_active),
            ..Person::new(announce)
        };
        self.remember_person(person);
        self.after_people_changed();
    }

    pub(super) fn remember_person(&mut self, person: Person) {
        let may_vote = person.may_vote();
        let id = person.id.clone();
        self.people.insert(id.clone(), person);
        if !may_vote {
            self.strike_from_votes(&id);
        }
        if self.people.len() > PEOPLE {
            let gone = self
                .people
                .values()
                .find(|person| person.left && person.id != id);
            let other = gone.or_else(|| self.people.values().find(|person| person.id != id));
            let forgotten = other.map(|person| person.id.clone());
            self.people.retain(|id, _| Some(id) != forgotten.as_ref());
        }
    }

    pub(super) fn fold_leave(&mut self, told: &Told<'_>, leave: &SessionLeave) {
        let reason = some_line(leave.reason.as_ref());
        self.tell(told, What::Left { reason });
        let Some(by) = told.by() else { return };
        self.stream.hush(told.who);
        for interrupt in &mut self.interrupts {
            interrupt.awaited.remove(by);
        }
        self.interrupts
            .retain(|interrupt| !interrupt.awaited.is_empty());
        self.drafts.remove(by);
        if told.past {
            return;
        }
        if let Some(person) = self.people.get_mut(by) {
            person.left = true;
            person.timed_out = false;
            person.presence = PresenceStatus::Disconnected;
        }
        self.strike_from_votes(by);
        self.after_people_changed();
    }

    pub(super) fn fold_role_change(&mut self, told: &Told<'_>, change: &RoleChange) {
        let what = What::RolesChanged {
            participant: change.participant.clone(),
            old_roles: distinct(&change.old_roles),
            new_roles: distinct(&change.new_roles),
            reason: some_line(change.reason.as_ref()),
        };
        self.tell(told, what);
        if told.past {
            return;
        }
        let Some(person) = self.people.get_mut(&change.participant) else {
            return;
        };
        person.roles = distinct(&change.new_roles);
        if let Some(capabilities) = &change.capabilities {
            person.explicit = capabilities.iter().copied().collect();
        }
        person.capabilities = capabilities_of(person.kind, &person.roles, &person.explicit);
        if !person.may_vote() {
            self.strike_from_votes(&change.participant);
        }
        self.after_people_changed();
    }

    /// Presence that is kept counts for decisions; a whisper is only for the eye.
    pub(super) fn fold_presence(&mut self, told: &Told<'_>, presence: &PresenceUpdate) {
        let PresenceUpdate {
            participant,
            status,
            last_active,
            ..
        } = presence;
        if told.is_kept() {
            let (participant, status) = (participant.clone(), *status);
            self.tell(
                told,
                What::Attendance {
                    participant,
                    status,
                },
            );
        }
        let Some(person) = self.people.get_mut(participant) else {
            return;
        };
        person.last_active = person.last_active.max(Some(*last_active));
        if told.is_kept() {
            // The last that is kept is exact, so this holds for the past as well.
            person.timed_out = match status {
                PresenceStatus::Away | PresenceStatus::Disconnected => true,
                PresenceStatus::Active | PresenceStatus::Idle => false,
            };
        }
        if !told.past && !person.left {
            person.presence = *status;
        }
        if told.is_kept() && !told.past {
            self.after_people_changed();
        } else if told.is_kept() {
            self.recount();
        }
    }

    /// Whoever says something is there.
    pub(super) fn note_life(&mut self, told: &Told<'_>) {
        let Sender::Participant(who) = told.who else {
            return;
        };
        if let Some(person) = self.people.get_mut(who) {
            person.last_active = person.last_active.max(Some(told.at));
        }
    }

    pub(super) fn after_people_changed(&mut self) {
        self.paused = paused(&self.people, &self.config);
        let me = self
            .me
            .as_ref()
            .and_then(|me| self.people.get(&me.participant));
        if let Some(person) = me {
            self.me = Some(Me::new(person, &self.config));
        }
        self.recount();
    }
}
