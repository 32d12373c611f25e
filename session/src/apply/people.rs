//! Coming, going, being given roles, and the session's own beginning, settings and end.

use std::collections::BTreeSet;

use pvp_protocol::payload::{
    Announce, Content, ContextAdd, ContextContentType, GateOutcome, PresenceStatus, PresenceUpdate,
    ResolvedHow, RoleChange, SessionConfigUpdate, SessionCreate, SessionEnd, SessionLeave,
    ToolCancel,
};
use pvp_protocol::{
    Extra, Heading, Limits, MessageId, ParticipantId, ParticipantKind, Refusal, Sender,
    SessionConfig, Timestamp, capabilities_of,
};

use super::{Answer, Decided, Decision};
use crate::entry::Audience;
use crate::input::{Attendance, Identity, Said};
use crate::member::Member;
use crate::seen::Sighting;

/// Longest name of a person or a session, in characters.
const MAX_NAME: usize = 128;

/// Largest announcement and largest configuration, in bytes of JSON.
const MAX_ANNOUNCEMENT: usize = 16 * 1024;
const MAX_CONFIG: usize = 64 * 1024;

/// People and agents that a session remembers, those who left included.
const MAX_KNOWN: usize = 10_000;

/// The key under which newcomers are told where commands run.
pub(crate) const WORKING_DIRECTORY: &str = "session:working_directory";

impl Decision<'_> {
    pub(super) fn create(
        &mut self,
        by: &ParticipantId,
        id: MessageId,
        create: SessionCreate,
    ) -> Decided {
        let said = Said::new(id, create.clone());
        if self.session.exists() {
            return match self.session.seen.look(&said.id, &said.digest(by)) {
                Sighting::Same(seq) => Ok(Answer::Duplicate(seq)),
                Sighting::Other | Sighting::New => {
                    Err(Refusal::SessionExists(self.session.id.clone()))
                }
            };
        }
        good_config(&create.config, &self.terms.settings.limits)?;
        create.name.as_deref().map_or(Ok(()), good_name)?;
        let answer = self.relay(by, &said, create);
        if let Some(directory) = self.terms.settings.working_directory.clone() {
            self.tell(working_directory(directory), None);
        }
        Ok(answer)
    }

    pub(super) fn join(
        &mut self,
        identity: &Identity,
        announce: Announce,
        id: MessageId,
    ) -> Decided {
        if !self.session.exists() {
            return Err(Refusal::NoSuchSession(self.session.id.clone()));
        }
        let known = self.session.people.get(&identity.participant).cloned();
        let announce = self.admissible(identity, announce, known.as_ref())?;
        let returning = known.filter(|member| !member.left);
        if self.session.has_ended() {
            // Those who were there may come back to read; nobody else comes in.
            return match returning {
                Some(_) => Ok(Answer::Accepted(None)),
                None => Err(Refusal::SessionEnded(self.session.id.clone())),
            };
        }
        match returning {
            Some(member) if member.announce == announce => return Ok(Answer::Accepted(None)),
            Some(_) => {}
            None => self.has_room(&identity.participant)?,
        }
        let directory = announce
            .executor
            .as_ref()
            .filter(|_| announce.kind == ParticipantKind::Agent)
            .and_then(|e| e.working_directory.clone());
        let heading = Heading {
            id: if self.session.seen.knows(&id) {
                self.fresh.id()
            } else {
                id
            },
            session: self.session.id.clone(),
            sender: Sender::Participant(identity.participant.clone()),
            reference: None,
            causal_refs: Vec::new(),
            fork: None,
        };
        let seq = self.append(heading, announce.into(), Audience::everyone(), None, None);
        if let Some(directory) = directory {
            self.tell(working_directory(directory), None);
        }
        self.settle_gates();
        Ok(Answer::Accepted(Some(seq)))
    }

    /// The announcement with the name, roles and capabilities that this identity may have here.
    fn admissible(
        &self,
        identity: &Identity,
        mut announce: Announce,
        known: Option<&Member>,
    ) -> Result<Announce, Refusal> {
        if announce.id != identity.participant {
            return Err(Refusal::NotYou {
                field: "participant.id",
                claimed: announce.id.to_string(),
                actual: identity.participant.clone(),
            });
        }
        if announce.id.as_str() == Sender::SYSTEM {
            return Err(Refusal::Unauthorized(
                "nobody but the server is `system`".to_owned(),
            ));
        }
        if announce.kind != identity.kind {
            let kind = if identity.kind == ParticipantKind::Human {
                "human"
            } else {
                "agent"
            };
            return Err(Refusal::Unauthorized(format!(
                "you are known here as `{kind}`"
            )));
        }
        if known.is_some_and(|member| member.announce.kind != announce.kind) {
            return Err(Refusal::Unauthorized(format!(
                "`{}` is someone else here",
                announce.id
            )));
        }
        if let Some(name) = &identity.name {
            announce.name.clone_from(name);
        } else if known.is_some_and(|member| !member.left && member.announce.name != announce.name)
        {
            // Nobody vouches for the name, so whoever is here under this id keeps it.
            return Err(Refusal::Unauthorized(format!(
                "`{}` is someone else here",
                announce.id
            )));
        }
        good_name(&announce.name)?;
        good_announcement(&announce)?;
        if let Some(member) = known.filter(|member| member.roles_set_by_admin) {
            announce.roles.clone_from(&member.announce.roles);
            announce
                .capabilities
                .clone_from(&member.announce.capabilities);
            return Ok(announce);
        }
        let beyond: Vec<_> = announce
            .roles
            .iter()
            .copied()
            .filter(|role| !identity.roles.contains(role))
            .collect();
        if !beyond.is_empty() {
            return Err(Refusal::RolesBeyondToken(beyond));
        }
        let roles: BTreeSet<_> = announce.roles.iter().copied().collect();
        announce.roles = roles.into_iter().collect();
        let allowed = capabilities_of(identity.kind, &identity.roles, &identity.capabilities);
        let claimed = announce.capabilities.take().unwrap_or_default();
        if let Some(beyond) = claimed
            .iter()
            .find(|capability| !allowed.contains(capability))
        {
            return Err(Refusal::Lacks(*beyond));
        }
        // What goes beyond the roles comes from the token, whether or not it was claimed.
        let explicit: BTreeSet<_> = claimed
            .into_iter()
            .chain(identity.capabilities.iter().copied())
            .collect();
        announce.capabilities = (!explicit.is_empty()).then(|| explicit.into_iter().collect());
        Ok(announce)
    }

    fn has_room(&self, newcomer: &ParticipantId) -> Result<(), Refusal> {
        let people = &self.session.people;
        if people.len() >= MAX_KNOWN && !people.contains_key(newcomer) {
            return Err(Refusal::TooMany {
                what: "people over the life of one session; start another session",
                limit: MAX_KNOWN as u64,
            });
        }
        let limit = self
            .session
            .config
            .max_participants
            .min(self.terms.settings.limits.participants);
        if self.session.members().count() < limit as usize {
            return Ok(());
        }
        Err(Refusal::SessionFull {
            session: self.session.id.clone(),
            limit,
        })
    }

    /// Only what does not concern rights can be changed by announcing oneself again.
    pub(super) fn announce_again(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        announce: Announce,
    ) -> Decided {
        good_announcement(&announce)?;
        let current = &self.session.people[by].announce;
        let announce = Announce {
            name: current.name.clone(),
            kind: current.kind,
            roles: current.roles.clone(),
            capabilities: current.capabilities.clone(),
            ..announce
        };
        Ok(self.relay(by, said, announce))
    }

    pub(super) fn leave(&mut self, by: &ParticipantId, said: &Said, leave: SessionLeave) -> Answer {
        let answer = self.relay(by, said, leave);
        let waiting: Vec<_> = self
            .session
            .open_gates()
            .iter()
            .filter(|(proposal, _)| proposal.proposer == *by || proposal.executor == *by)
            .map(|(proposal, _)| proposal.id.clone())
            .collect();
        for proposal in waiting {
            self.resolve(
                &proposal,
                GateOutcome::Cancelled,
                ResolvedHow::ProposerLeft,
                None,
            );
        }
        self.give_up_runs_of(by, "the executor left the session");
        self.settle_gates();
        answer
    }

    pub(super) fn end(&mut self, by: &ParticipantId, said: &Said, end: SessionEnd) -> Answer {
        let answer = self.relay(by, said, end);
        let waiting: Vec<_> = self
            .session
            .open_gates()
            .iter()
            .map(|(proposal, _)| proposal.id.clone())
            .collect();
        for proposal in waiting {
            self.resolve(
                &proposal,
                GateOutcome::Cancelled,
                ResolvedHow::SessionEnded,
                Some(by),
            );
        }
        let running: Vec<_> = self
            .session
            .running()
            .map(|(proposal, _)| proposal.id.clone())
            .collect();
        for tool_proposal in running {
            let reason = Some("the session has ended".to_owned());
            self.tell(
                ToolCancel {
                    tool_proposal,
                    reason,
                    extra: Extra::new(),
                },
                None,
            );
        }
        answer
    }

    pub(super) fn config_update(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        update: SessionConfigUpdate,
    ) -> Decided {
        let changed = self.session.config.clone().with(&update.changes);
        good_config(&changed, &self.terms.settings.limits)?;
        let answer = self.relay(by, said, update);
        self.settle_gates();
        Ok(answer)
    }

    pub(super) fn role_change(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        mut change: RoleChange,
    ) -> Decided {
        let missing = || Refusal::NoSuchParticipant(change.participant.clone());
        let member = self
            .session
            .people
            .get(&change.participant)
            .filter(|m| !m.left)
            .ok_or_else(missing)?;
        let current: BTreeSet<_> = member.announce.roles.iter().collect();
        if change.old_roles.iter().collect::<BTreeSet<_>>() != current {
            let roles: Vec<_> = current.iter().map(|role| role.as_str()).collect();
            return Err(Refusal::InvalidState(format!(
                "`old_roles` is not what `{}` holds: {}",
                change.participant,
                roles.join(", ")
            )));
        }
        let once: BTreeSet<_> = change.new_roles.into_iter().collect();
        change.new_roles = once.into_iter().collect();
        let answer = self.relay(by, said, change);
        self.settle_gates();
        Ok(answer)
    }

    /// Records that someone who counts for decisions went quiet or came back.
    pub(super) fn attendance(
        &mut self,
        participant: &ParticipantId,
        attendance: Attendance,
        last_active: Timestamp,
    ) -> Answer {
        let timed_out = attendance == Attendance::TimedOut;
        let changes = self
            .session
            .people
            .get(participant)
            .is_some_and(|member| !member.left && member.timed_out != timed_out);
        if !changes || self.session.has_ended() {
            return Answer::Accepted(None);
        }
        let status = if timed_out {
            PresenceStatus::Away
        } else {
            PresenceStatus::Active
        };
        let participant = participant.clone();
        self.tell(
            PresenceUpdate {
                participant,
                status,
                last_active,
                extra: Extra::new(),
            },
            None,
        );
        self.settle_gates();
        Answer::Accepted(Some(self.session.head))
    }
}

fn good_name(name: &str) -> Result<(), Refusal> {
    if name.trim().is_empty() || name.chars().count() > MAX_NAME {
        return Err(Refusal::Malformed(format!(
            "a name has 1 to {MAX_NAME} characters"
        )));
    }
    if name.chars().any(char::is_control) {
        return Err(Refusal::Malformed(
            "a name has no control characters".to_owned(),
        ));
    }
    Ok(())
}

/// An announcement is kept for as long as the session, so it is a card and not a suitcase.
fn good_announcement(announce: &Announce) -> Result<(), Refusal> {
    let bytes = serde_json::to_vec(announce).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_ANNOUNCEMENT {
        return Err(Refusal::Malformed(format!(
            "an announcement has at most {MAX_ANNOUNCEMENT} bytes, not {bytes}"
        )));
    }
    Ok(())
}

/// A configuration is kept, and told to every newcomer.
fn good_config(config: &SessionConfig, limits: &Limits) -> Result<(), Refusal> {
    config.check(limits).map_err(Refusal::BadConfig)?;
    let bytes = serde_json::to_vec(config).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_CONFIG {
        return Err(Refusal::BadConfig(format!(
            "a configuration has at most {MAX_CONFIG} bytes, not {bytes}"
        )));
    }
    Ok(())
}

fn working_directory(directory: String) -> ContextAdd {
    ContextAdd {
        key: WORKING_DIRECTORY.to_owned(),
        content_type: ContextContentType::Text,
        content: Some(Content::Text(directory)),
        content_ref: None,
        visible_to: None,
        source: None,
        tags: None,
        extra: Extra::new(),
    }
}
