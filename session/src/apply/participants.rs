//! Decides on joining and leaving, roles, and the session's creation, configuration and end.

use std::collections::BTreeSet;

use pvp_protocol::payload::{
    Announce, Content, ContextAdd, ContextContentType, GateOutcome, PresenceStatus, PresenceUpdate,
    ResolutionCause, RoleChange, SessionConfigUpdate, SessionCreate, SessionEnd, SessionLeave,
    ToolCancel,
};
use pvp_protocol::{
    EnvelopeHeader, ExtraFields, Limits, MessageId, ParticipantId, ParticipantKind, Refusal,
    Sender, ServerMessage, SessionConfig, Timestamp, capabilities_of,
};

use super::{Answer, AnswerResult, CREATION_SEQ, DecisionBuilder};
use crate::entry::Audience;
use crate::input::{AttendanceChange, Identity, SubmittedMessage};
use crate::member::Member;
use crate::recent_messages::MessageIdStatus;
use crate::workspace::workspace_name;

/// The longest name of a participant or a session, in characters.
const MAX_NAME_CHARS: usize = 128;

/// The largest announcement, in bytes of JSON.
const MAX_ANNOUNCEMENT_BYTES: usize = 16 * 1024;

/// The largest configuration, in bytes of JSON.
const MAX_CONFIG_BYTES: usize = 64 * 1024;

/// The most read roots in a configuration. Each is searched for secrets before every read.
const MAX_READ_ROOTS: usize = 16;

/// The most participants that a session remembers, including those who left.
const MAX_KNOWN_PARTICIPANTS: usize = 10_000;

/// The key of the context item that says where commands run, sent to everyone who joins.
pub(crate) const WORKING_DIRECTORY_KEY: &str = "session:working_directory";

impl DecisionBuilder<'_> {
    pub(super) fn session_create(
        &mut self,
        by: &ParticipantId,
        id: MessageId,
        create: SessionCreate,
    ) -> AnswerResult {
        let submitted = SubmittedMessage::new(id, create.clone());
        if self.session.is_created() {
            return match self
                .session
                .recent_messages
                .status(&submitted.id, &submitted.digest(by))
            {
                MessageIdStatus::Duplicate(seq) => Ok(Answer::Duplicate(seq)),
                // Published clients create a session that they are in: nothing changes.
                MessageIdStatus::New
                    if self.decision_context.settings.open_mode
                        && self.session.members.contains_key(by) =>
                {
                    Ok(Answer::Duplicate(CREATION_SEQ))
                }
                MessageIdStatus::Conflict | MessageIdStatus::New => {
                    Err(Refusal::SessionExists(self.session.id.clone()))
                }
            };
        }
        check_config(&create.config, &self.decision_context.settings.limits)?;
        create.name.as_deref().map_or(Ok(()), check_name)?;
        let answer = self.relay(by, &submitted, create);
        if let Some(directory) = self.first_working_directory() {
            self.append_system(working_directory_context(directory), None);
        }
        Ok(answer)
    }

    /// Where commands run until an executor says otherwise.
    fn first_working_directory(&self) -> Option<String> {
        let settings = self.decision_context.settings;
        let own = settings.workspaces.as_ref();
        let own = own.map(|root| format!("{root}/{}", workspace_name(&self.session.id)));
        settings.working_directory.clone().or(own)
    }

    pub(super) fn session_join(
        &mut self,
        identity: &Identity,
        announce: Announce,
        id: MessageId,
    ) -> AnswerResult {
        if !self.session.is_created() {
            return Err(Refusal::NoSuchSession(self.session.id.clone()));
        }
        let known = self.session.members.get(&identity.participant).cloned();
        let announce = self.admit(identity, announce, known.as_ref())?;
        let returning = known.filter(|member| !member.left);
        if self.session.has_ended() {
            // Participants may come back to read; nobody else may join.
            return match returning {
                Some(_) => Ok(Answer::Accepted(None)),
                None => Err(Refusal::SessionEnded(self.session.id.clone())),
            };
        }
        match returning {
            // Whoever was told to have left is announced again.
            Some(member) if member.announce == announce && !member.connection_lost => {
                return Ok(Answer::Accepted(None));
            }
            Some(member) if !member.connection_lost => {}
            Some(_) | None => self.check_capacity(&identity.participant)?,
        }
        let directory = announce
            .executor
            .as_ref()
            .filter(|_| announce.kind == ParticipantKind::Agent)
            .and_then(|e| e.working_directory.clone());
        let header = EnvelopeHeader {
            id: if self.session.recent_messages.contains(&id) {
                self.id_generator.next_id()
            } else {
                id
            },
            session: self.session.id.clone(),
            sender: Sender::Participant(identity.participant.clone()),
            reference: None,
            causal_refs: Vec::new(),
            fork: None,
        };
        let before = self.executor_of(&identity.participant);
        let seq = self.append(header, announce.into(), Audience::everyone(), None, None);
        if let Some(directory) = directory {
            self.append_system(working_directory_context(directory), None);
        }
        self.withdraw_where_moved(&identity.participant, before.as_ref());
        self.grant_passed_gates();
        Ok(Answer::Accepted(Some(seq)))
    }

    /// The announcement with the name, roles and capabilities that this identity may have.
    fn admit(
        &self,
        identity: &Identity,
        mut announce: Announce,
        known: Option<&Member>,
    ) -> Result<Announce, Refusal> {
        if announce.id != identity.participant {
            return Err(Refusal::IdentityMismatch {
                field: "participant.id",
                claimed: announce.id.to_string(),
                actual: identity.participant.clone(),
            });
        }
        if announce.id.as_str() == Sender::SYSTEM {
            return Err(Refusal::Unauthorized(
                "`system` is reserved for the server".to_owned(),
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
                "the id `{}` belongs to somebody else in this session",
                announce.id
            )));
        }
        if let Some(name) = &identity.name {
            announce.name.clone_from(name);
        } else if known.is_some_and(|member| !member.left && member.announce.name != announce.name)
        {
            // No token proves who this is, so the participant who has this id keeps it.
            return Err(Refusal::Unauthorized(format!(
                "the id `{}` belongs to somebody else in this session",
                announce.id
            )));
        }
        check_name(&announce.name)?;
        self.record_invitation(identity, &mut announce, known);
        check_announcement(&announce)?;
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
            return Err(Refusal::RolesNotInToken(beyond));
        }
        let mut roles: BTreeSet<_> = announce.roles.iter().copied().collect();
        let allowed = capabilities_of(identity.kind, &identity.roles, &identity.capabilities);
        let claimed = announce.capabilities.take().unwrap_or_default();
        if let Some(beyond) = claimed
            .iter()
            .find(|capability| !allowed.contains(capability))
        {
            return Err(Refusal::MissingCapability(*beyond));
        }
        // Capabilities beyond the roles come from the token, whether or not they were claimed.
        let mut explicit: BTreeSet<_> = claimed
            .into_iter()
            .chain(identity.capabilities.iter().copied())
            .collect();
        if let Some(member) = known.filter(|member| identity.has_token() && !member.left) {
            // Their other devices keep what they have; this one may do what its token allows.
            roles.extend(&member.announce.roles);
            explicit.extend(&member.extra_capabilities);
        }
        announce.roles = roles.into_iter().collect();
        announce.capabilities = (!explicit.is_empty()).then(|| explicit.into_iter().collect());
        Ok(announce)
    }

    /// Says in the announcement who invited them. Whoever was in the session before stays invited by
    /// whom they were, also with a new token.
    fn record_invitation(
        &self,
        identity: &Identity,
        announce: &mut Announce,
        known: Option<&Member>,
    ) {
        announce.invited_by = None;
        announce.invited_before_session = None;
        if let Some(member) = known {
            announce.invited_by.clone_from(&member.announce.invited_by);
            announce.invited_before_session = member.announce.invited_before_session;
        } else if let Some(invited_by) = &identity.invited_by
            && invited_by.participant != identity.participant
        {
            announce.invited_by = Some(invited_by.participant.clone());
            let earlier = invited_by.at < self.session.created_at;
            announce.invited_before_session = earlier.then_some(true);
        }
    }

    fn check_capacity(&self, newcomer: &ParticipantId) -> Result<(), Refusal> {
        let members = &self.session.members;
        if members.len() >= MAX_KNOWN_PARTICIPANTS && !members.contains_key(newcomer) {
            return Err(Refusal::TooMany {
                what: "people over the life of one session; start another session",
                limit: MAX_KNOWN_PARTICIPANTS as u64,
            });
        }
        let limit = self
            .session
            .config
            .max_participants
            .min(self.decision_context.settings.limits.participants);
        let connected = self.session.members().filter(|(_, it)| !it.connection_lost);
        if connected.count() < limit as usize {
            return Ok(());
        }
        Err(Refusal::SessionFull {
            session: self.session.id.clone(),
            limit,
        })
    }

    /// Accepts a repeated announcement, which may change nothing that concerns rights.
    pub(super) fn announce(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        announce: Announce,
    ) -> AnswerResult {
        check_announcement(&announce)?;
        let current = &self.session.members[by].announce;
        let announce = Announce {
            name: current.name.clone(),
            kind: current.kind,
            roles: current.roles.clone(),
            capabilities: current.capabilities.clone(),
            invited_by: current.invited_by.clone(),
            invited_before_session: current.invited_before_session,
            ..announce
        };
        let before = self.executor_of(by);
        let answer = self.relay(by, submitted, announce);
        self.withdraw_where_moved(by, before.as_ref());
        Ok(answer)
    }

    pub(super) fn session_leave(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        leave: SessionLeave,
    ) -> AnswerResult {
        let sender = self.sender()?;
        if sender.capabilities() != self.session.members[by].capabilities() {
            let problem = "your token does not have all of your rights, so it cannot sign out your other devices; close the connection instead";
            return Err(Refusal::Unauthorized(problem.to_owned()));
        }
        let leave = SessionLeave {
            connection_lost: false,
            ..leave
        };
        let answer = self.relay(by, submitted, leave);
        let waiting: Vec<_> = self
            .session
            .open_gates()
            .iter()
            .filter(|(proposal, _)| proposal.proposer == *by || proposal.executor == *by)
            .map(|(proposal, _)| proposal.id.clone())
            .collect();
        for proposal in waiting {
            self.append_resolution(
                &proposal,
                GateOutcome::Cancelled,
                ResolutionCause::ProposerLeft,
                None,
            );
        }
        self.close_runs_as_unknown(by, "the executor left the session");
        self.grant_passed_gates();
        Ok(answer)
    }

    /// Tells that somebody is gone whose connections are. They stay a member: their votes count, and
    /// their proposals wait.
    pub(super) fn lose_connection(&mut self, participant: &ParticipantId) -> Answer {
        let member = self.session.members.get(participant);
        let is_here = member.is_some_and(|member| !member.left && !member.connection_lost);
        if !is_here || self.session.has_ended() {
            return Answer::Accepted(None);
        }
        let leave = SessionLeave {
            reason: Some("disconnected".to_owned()),
            connection_lost: true,
            extra: ExtraFields::new(),
        };
        let seq = self.append_for(participant, leave);
        self.close_streaming_runs(participant);
        Answer::Accepted(Some(seq))
    }

    /// Announces somebody again who was told to be gone.
    pub(super) fn restore_connection(&mut self, participant: &ParticipantId) -> Answer {
        let member = self.session.members.get(participant);
        let gone = member.filter(|member| !member.left && member.connection_lost);
        match gone.map(|member| member.announce.clone()) {
            Some(announce) if !self.session.has_ended() => {
                Answer::Accepted(Some(self.append_for(participant, announce)))
            }
            Some(_) | None => Answer::Accepted(None),
        }
    }

    /// Appends what the server says for a participant.
    fn append_for(&mut self, who: &ParticipantId, message: impl Into<ServerMessage>) -> u64 {
        let header = EnvelopeHeader {
            id: self.id_generator.next_id(),
            session: self.session.id.clone(),
            sender: Sender::Participant(who.clone()),
            reference: None,
            causal_refs: Vec::new(),
            fork: None,
        };
        self.append(header, message.into(), Audience::everyone(), None, None)
    }

    pub(super) fn session_end(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        end: SessionEnd,
    ) -> Answer {
        let answer = self.relay(by, submitted, end);
        let waiting: Vec<_> = self
            .session
            .open_gates()
            .iter()
            .map(|(proposal, _)| proposal.id.clone())
            .collect();
        for proposal in waiting {
            self.append_resolution(
                &proposal,
                GateOutcome::Cancelled,
                ResolutionCause::SessionEnded,
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
            self.append_system(
                ToolCancel {
                    tool_proposal,
                    reason,
                    extra: ExtraFields::new(),
                },
                None,
            );
        }
        answer
    }

    pub(super) fn session_config_update(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        update: SessionConfigUpdate,
    ) -> AnswerResult {
        let changed = self.session.config.clone().with_changes(&update.changes);
        check_config(&changed, &self.decision_context.settings.limits)?;
        if changed.try_unknown && !self.session.config.try_unknown {
            self.check_somebody_tries()?;
        }
        let answer = self.relay(by, submitted, update);
        self.grant_passed_gates();
        Ok(answer)
    }

    pub(super) fn role_change(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        mut change: RoleChange,
    ) -> AnswerResult {
        let missing = || Refusal::NoSuchParticipant(change.participant.clone());
        let member = self
            .session
            .members
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
        change.votes_void = None;
        let once: BTreeSet<_> = change.new_roles.into_iter().collect();
        change.new_roles = once.into_iter().collect();
        let answer = self.relay(by, submitted, change);
        self.grant_passed_gates();
        Ok(answer)
    }

    /// Records that someone who counts for decisions timed out or is active again.
    pub(super) fn record_attendance(
        &mut self,
        participant: &ParticipantId,
        attendance: AttendanceChange,
        last_active: Timestamp,
    ) -> Answer {
        let timed_out = attendance == AttendanceChange::TimedOut;
        let changes = self
            .session
            .members
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
        self.append_system(
            PresenceUpdate {
                participant,
                status,
                last_active,
                extra: ExtraFields::new(),
            },
            None,
        );
        self.grant_passed_gates();
        Answer::Accepted(Some(self.session.head))
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    if name.trim().is_empty() || name.chars().count() > MAX_NAME_CHARS {
        return Err(Refusal::Malformed(format!(
            "a name has 1 to {MAX_NAME_CHARS} characters"
        )));
    }
    if name.chars().any(char::is_control) {
        return Err(Refusal::Malformed(
            "a name has no control characters".to_owned(),
        ));
    }
    Ok(())
}

/// Checks the size of an announcement, because it is kept as long as the session.
fn check_announcement(announce: &Announce) -> Result<(), Refusal> {
    let bytes = serde_json::to_vec(announce).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_ANNOUNCEMENT_BYTES {
        return Err(Refusal::Malformed(format!(
            "an announcement has at most {MAX_ANNOUNCEMENT_BYTES} bytes, not {bytes}"
        )));
    }
    Ok(())
}

/// Checks the values and the size of a configuration, because it is kept and sent to everyone who
/// joins.
fn check_config(config: &SessionConfig, limits: &Limits) -> Result<(), Refusal> {
    config.validate(limits).map_err(Refusal::InvalidConfig)?;
    if config.read_roots.len() > MAX_READ_ROOTS {
        let problem = format!("`read_roots` has at most {MAX_READ_ROOTS} directories");
        return Err(Refusal::InvalidConfig(problem));
    }
    for root in &config.read_roots {
        pvp_policy::check_read_root(root)
            .map_err(|problem| Refusal::InvalidConfig(format!("`read_roots`: {problem}")))?;
    }
    let bytes = serde_json::to_vec(config).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_CONFIG_BYTES {
        return Err(Refusal::InvalidConfig(format!(
            "a configuration has at most {MAX_CONFIG_BYTES} bytes, not {bytes}"
        )));
    }
    Ok(())
}

fn working_directory_context(directory: String) -> ContextAdd {
    ContextAdd {
        key: WORKING_DIRECTORY_KEY.to_owned(),
        content_type: ContextContentType::Text,
        content: Some(Content::Text(directory)),
        content_ref: None,
        visible_to: None,
        source: None,
        tags: None,
        extra: ExtraFields::new(),
    }
}
