//! Tracks who is present.
//!
//! Presence is broadcast but not logged. An absence long enough to matter for decisions is logged.
//! Each participant is checked when something happens to them or is due for them, so that a session
//! of many does no more work for one of them than a session of few.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pvp_protocol::payload::{PresenceStatus, PresenceUpdate};
use pvp_protocol::{ExtraFields, ParticipantId, Timestamp};
use pvp_session::{AttendanceChange, Ceiling, Input, Member};
use tokio::time::Instant;

use super::command::{HttpAccess, JoinedSession, ReplyTo};
use super::{LogHealth, SessionTask, WriteBatch};
use crate::envelope;
use crate::viewer::{DeviceGuard, Viewer};

/// How often a session checks presence even if nothing is due.
const MAX_PRESENCE_CHECK_INTERVAL: Duration = Duration::from_secs(3600);

/// How long an HTTP request counts as presence, in seconds.
const HTTP_PRESENCE_SECONDS: u64 = 30;

/// When each participant's presence is to be checked next.
#[derive(Default)]
pub(super) struct PresenceSchedule {
    by_participant: BTreeMap<ParticipantId, Timestamp>,
    by_time: BTreeSet<(Timestamp, ParticipantId)>,
}

impl PresenceSchedule {
    /// Sets when someone is checked next, in place of an earlier time; `None` for never.
    fn set(&mut self, participant: &ParticipantId, due: Option<Timestamp>) {
        let earlier = match due {
            Some(due) => self.by_participant.insert(participant.clone(), due),
            None => self.by_participant.remove(participant),
        };
        if earlier == due {
            return;
        }
        if let Some(earlier) = earlier {
            self.by_time.remove(&(earlier, participant.clone()));
        }
        if let Some(due) = due {
            self.by_time.insert((due, participant.clone()));
        }
    }

    fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(due, _)| *due)
    }

    /// Takes out those who are due.
    fn take_due(&mut self, now: Timestamp) -> Vec<ParticipantId> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.by_time.first()
            && *at <= now
            && let Some((_, participant)) = self.by_time.pop_first()
        {
            self.by_participant.remove(&participant);
            due.push(participant);
        }
        due
    }
}

/// Someone who has joined, until the commands handled with their join are handled too.
pub(super) struct Admission {
    participant: ParticipantId,
    device: DeviceGuard,
    /// The most that this connection may do; `None` without a token.
    ceiling: Option<Ceiling>,
    /// The sequence number of their announcement; `None` if it is not repeated.
    seq: Option<u64>,
    /// Which answer of the batch is theirs.
    answer: usize,
}

impl SessionTask {
    /// When the next timer is due: a deadline, a change of someone's presence, or a heartbeat.
    pub(super) fn next_timer(&self) -> Instant {
        let (now, instant) = (pvp_clock::now(), Instant::now());
        let due = [
            self.session.next_deadline(),
            self.next_presence_check,
            self.presence_schedule.next(),
        ];
        let due = due.into_iter().flatten().min();
        let due = due.map_or(instant + MAX_PRESENCE_CHECK_INTERVAL, |due| {
            instant + Duration::from_millis(due.millis_since(now))
        });
        let pinging = self.devices.count() > 0;
        let ping = pinging.then(|| self.next_ping());
        let others = [ping, self.leases.next(), self.feed.next_timer()]
            .into_iter()
            .flatten();
        others.fold(due, Instant::min).max(self.backoff_until)
    }

    fn next_ping(&self) -> Instant {
        let seconds = u64::from(self.session.config().heartbeat_interval_seconds);
        self.last_ping + Duration::from_secs(seconds)
    }

    pub(super) fn on_timer(&mut self) {
        let mut batch = WriteBatch::default();
        let now = pvp_clock::now();
        if self.session.next_deadline().is_some_and(|due| due <= now) {
            self.apply_input(Input::Tick, &mut batch);
        }
        if self.next_ping() <= Instant::now() {
            self.feed.broadcast_ephemeral(&envelope::ping(&self.id));
            self.last_ping = Instant::now();
        }
        self.end_leases(&mut batch);
        self.leases.sync(&self.session, Instant::now());
        self.refresh_presence(&mut batch);
        self.feed.on_timer(Instant::now());
        self.persist(batch);
    }

    /// Counts a connection that has just joined as a device of its participant. What it needs to
    /// follow the session is the same for all who join in one batch, and is made at its end.
    pub(super) fn admit(
        &mut self,
        participant: &ParticipantId,
        ceiling: Option<Ceiling>,
        seq: Option<u64>,
        reply: &ReplyTo,
        batch: &mut WriteBatch,
    ) {
        let ReplyTo::Join(..) = reply else {
            return;
        };
        let viewer = self.get_or_create_viewer(participant);
        let device = viewer.add_device();
        viewer.set_left(false);
        viewer.set_inactive(false);
        viewer.record_activity(pvp_clock::now());
        let may_vote = self
            .session
            .member(participant)
            .is_some_and(pvp_session::Member::may_vote);
        if seq.is_none() {
            viewer.set_may_approve(may_vote);
        }
        let is_new = !self.presence.is_empty() && !self.presence.contains_key(participant);
        if seq.is_some() && is_new {
            // Their announcement says that they are here; nobody needs to hear it twice.
            self.presence
                .insert(participant.clone(), PresenceStatus::Active);
            self.roster.presence_changed(participant);
        }
        self.check_presence_of(participant, batch);
        self.admissions.push(Admission {
            participant: participant.clone(),
            device,
            ceiling,
            seq,
            answer: batch.answers.len(),
        });
    }

    /// Puts into the replies what the connections that joined in this batch need to follow the
    /// session.
    pub(super) fn complete_admissions(&mut self, batch: &mut WriteBatch) {
        let admissions = std::mem::take(&mut self.admissions);
        if !matches!(self.log_health, LogHealth::Readable) {
            return;
        }
        for admission in admissions {
            if let Some((ReplyTo::Join(_, joined), _)) = batch.answers.get_mut(admission.answer) {
                *joined = self.joined_session(admission).map(Box::new);
            }
        }
    }

    fn joined_session(&mut self, admission: Admission) -> Option<JoinedSession> {
        let limits = &self.directory.settings.limits;
        let version = self.directory.server_version();
        let participant = &admission.participant;
        let welcome = self.session.welcome_without_people(
            participant,
            admission.ceiling.as_ref(),
            limits,
            version,
        )?;
        let roster = self
            .roster
            .for_joiner(participant, &self.session, &self.presence);
        Some(JoinedSession {
            device: admission.device,
            feed: self.feed.clone(),
            secrets: self.secrets.clone(),
            roster,
            working_directory: self.session.working_directory_context().cloned(),
            history_filter: self.session.history_filter(participant),
            live_from_seq: admission.seq.unwrap_or(welcome.head + 1),
            welcome,
            accepted_seq: admission.seq,
            last_ephemeral: self.feed.last_ephemeral(),
        })
    }

    /// Gives an HTTP request access to the session; `None` if there is no such session.
    ///
    /// A participant who has joined counts as present for a while.
    pub(super) fn http_access(
        &mut self,
        participant: Option<ParticipantId>,
        batch: &mut WriteBatch,
    ) -> Option<HttpAccess> {
        if !self.session.is_created() {
            return None;
        }
        let joined = |id: &ParticipantId| self.session.member(id).is_some_and(|m| !m.left);
        let mut access = HttpAccess {
            viewer: None,
            device: None,
            feed: self.feed.clone(),
            secrets: self.secrets.clone(),
        };
        match participant {
            Some(id) if joined(&id) => {
                let viewer = self.get_or_create_viewer(&id);
                viewer.set_may_approve(self.session.member(&id).is_some_and(Member::may_vote));
                viewer.record_seen(pvp_clock::now());
                let until = pvp_clock::now().plus_seconds(HTTP_PRESENCE_SECONDS);
                let presence = (viewer.add_device(), until);
                self.http_presence.insert(id.clone(), presence);
                access.device = Some(viewer.add_device());
                access.viewer = Some(viewer);
                self.check_presence_of(&id, batch);
            }
            Some(id) => {
                let limits = &self.directory.settings.limits;
                let viewer = Viewer::new(id, self.devices.clone(), pvp_clock::now(), limits);
                access.viewer = Some(Arc::new(viewer));
            }
            None => {}
        }
        Some(access)
    }

    fn get_or_create_viewer(&mut self, participant: &ParticipantId) -> Arc<Viewer> {
        let (limits, devices) = (&self.directory.settings.limits, &self.devices);
        let viewer = self.viewers.entry(participant.clone());
        viewer
            .or_insert_with(|| {
                let (participant, now) = (participant.clone(), pvp_clock::now());
                Arc::new(Viewer::new(participant, devices.clone(), now, limits))
            })
            .clone()
    }

    /// Handles a message from a participant who counted as inactive.
    pub(super) fn on_participant_returned(
        &mut self,
        participant: &ParticipantId,
        batch: &mut WriteBatch,
    ) {
        if let Some(viewer) = self.viewers.get(participant) {
            viewer.set_inactive(false);
        }
        self.check_presence_of(participant, batch);
    }

    /// Checks the presence of those for whom something is due or whose devices have gone.
    pub(super) fn refresh_presence(&mut self, batch: &mut WriteBatch) {
        self.refresh_presence_at(pvp_clock::now(), batch);
    }

    pub(super) fn refresh_presence_at(&mut self, now: Timestamp, batch: &mut WriteBatch) {
        if self.next_presence_check.is_some_and(|due| due <= now) {
            self.check_presence_of_everyone(now, batch);
        }
        let due = self.presence_schedule.take_due(now);
        let disconnected = self.devices.take_disconnected();
        for participant in due.into_iter().chain(disconnected) {
            self.check_presence(&participant, now, batch);
        }
    }

    fn check_presence_of_everyone(&mut self, now: Timestamp, batch: &mut WriteBatch) {
        self.next_presence_check = None;
        let members: Vec<_> = self.session.members().map(|(id, _)| id.clone()).collect();
        for participant in members {
            self.check_presence(&participant, now, batch);
        }
    }

    /// Checks the presence of someone to whom something happened. The first check after a session
    /// was loaded is of everyone, because nobody's presence is known.
    fn check_presence_of(&mut self, participant: &ParticipantId, batch: &mut WriteBatch) {
        let now = pvp_clock::now();
        if self.presence.is_empty() {
            self.check_presence_of_everyone(now, batch);
        } else {
            self.check_presence(participant, now, batch);
        }
    }

    /// Checks someone's presence, broadcasts what changed, and schedules the next check.
    fn check_presence(&mut self, id: &ParticipantId, now: Timestamp, batch: &mut WriteBatch) {
        #[cfg(test)]
        {
            self.presence_checks += 1;
        }
        let member = self.session.member(id).filter(|member| !member.left);
        let Some(timed_out) = member.map(|member| member.timed_out) else {
            self.presence.remove(id);
            self.http_presence.remove(id);
            self.disconnected_since.remove(id);
            self.presence_schedule.set(id, None);
            return;
        };
        let viewer = self.get_or_create_viewer(id);
        let http_until = self.refresh_http_presence(&viewer, now);
        let (status, away, next) = self.presence_status(&viewer, now);
        let gone_at = self.check_connection(&viewer, now, batch);
        let next = [http_until, next, gone_at].into_iter().flatten().min();
        self.presence_schedule.set(id, next);
        // Someone who was away is back when they connect, not when a restarted server has
        // forgotten how long they have been away.
        let absent = away || (timed_out && viewer.device_count() == 0);
        if absent != timed_out {
            viewer.set_inactive(absent);
            let attendance = if absent {
                AttendanceChange::TimedOut
            } else {
                AttendanceChange::Back
            };
            let (participant, last_active) = (id.clone(), viewer.last_active());
            self.apply_input(
                Input::Attendance {
                    participant,
                    attendance,
                    last_active,
                },
                batch,
            );
        }
        if self.presence.insert(id.clone(), status) != Some(status) {
            viewer.set_inactive(status != PresenceStatus::Active);
            self.roster.presence_changed(id);
            let update = PresenceUpdate {
                participant: id.clone(),
                status,
                last_active: viewer.last_active(),
                extra: ExtraFields::new(),
            };
            self.feed
                .broadcast_presence(&envelope::ephemeral(&self.id, None, update));
        }
    }

    /// On a server without login, tells that somebody is gone once all their devices have been for
    /// the grace time: published clients know of no other presence. Returns when that will be.
    fn check_connection(
        &mut self,
        viewer: &Viewer,
        now: Timestamp,
        batch: &mut WriteBatch,
    ) -> Option<Timestamp> {
        let participant = &viewer.participant;
        let member = self.session.member(participant)?;
        let (lost, connected) = (member.connection_lost, viewer.device_count() > 0);
        if connected || lost || !self.directory.config.open {
            self.disconnected_since.remove(participant);
            if connected && lost {
                // They sent a request without joining again.
                let participant = participant.clone();
                self.apply_input(Input::ConnectionRestored { participant }, batch);
            }
            return None;
        }
        let since = self.disconnected_since.entry(participant.clone());
        let grace = self.directory.config.disconnect_grace_seconds;
        let gone_at = since.or_insert(now).plus_seconds(grace);
        if now < gone_at {
            return Some(gone_at);
        }
        self.disconnected_since.remove(participant);
        let participant = participant.clone();
        self.apply_input(Input::ConnectionLost { participant }, batch);
        None
    }

    /// Until when someone's HTTP requests count as presence; a request that waits extends it.
    fn refresh_http_presence(&mut self, viewer: &Arc<Viewer>, now: Timestamp) -> Option<Timestamp> {
        let id = &viewer.participant;
        if viewer.has_waiting_request() {
            viewer.record_seen(now);
            let until = now.plus_seconds(HTTP_PRESENCE_SECONDS);
            let presence = (viewer.add_device(), until);
            self.http_presence.insert(id.clone(), presence);
        }
        let until = self.http_presence.get(id).map(|(_, until)| *until);
        if until.is_some_and(|until| until <= now) {
            self.http_presence.remove(id);
        }
        until.filter(|until| *until > now)
    }

    /// A participant's presence, whether they are away (decisions do not wait for them), and when
    /// either may change.
    fn presence_status(
        &self,
        viewer: &Viewer,
        now: Timestamp,
    ) -> (PresenceStatus, bool, Option<Timestamp>) {
        let config = self.session.config();
        let away_at = viewer
            .last_seen()
            .plus_seconds(u64::from(config.away_timeout_seconds));
        let idle_at = viewer
            .last_active()
            .plus_seconds(u64::from(config.idle_timeout_seconds));
        let away = away_at <= now;
        let status = match viewer.device_count() {
            0 => PresenceStatus::Disconnected,
            _ if away => PresenceStatus::Away,
            _ if idle_at <= now => PresenceStatus::Idle,
            _ => PresenceStatus::Active,
        };
        let next = [away_at, idle_at].into_iter().filter(|at| *at > now).min();
        (status, away, next)
    }
}
