//! Tracks who is present.
//!
//! Presence is broadcast but not logged. An absence long enough to matter for decisions is logged.

use std::sync::Arc;
use std::time::Duration;

use pvp_protocol::payload::{PresenceStatus, PresenceUpdate};
use pvp_protocol::{ExtraFields, ParticipantId, Timestamp};
use pvp_session::{AttendanceChange, Input, Member};
use tokio::time::Instant;

use super::command::{HttpAccess, JoinedSession, ReplyTo};
use super::{SessionTask, WriteBatch};
use crate::envelope;
use crate::viewer::Viewer;

/// How often a session checks presence even if nothing is due.
const MAX_PRESENCE_CHECK_INTERVAL: Duration = Duration::from_secs(3600);

/// How long an HTTP request counts as presence, in seconds.
const HTTP_PRESENCE_SECONDS: u64 = 30;

impl SessionTask {
    /// When the next timer is due: a deadline, a change of someone's presence, or a heartbeat.
    pub(super) fn next_timer(&self) -> Instant {
        let (now, instant) = (pvp_clock::now(), Instant::now());
        let due = [self.session.next_deadline(), self.next_presence_check]
            .into_iter()
            .flatten()
            .min();
        let due = due.map_or(instant + MAX_PRESENCE_CHECK_INTERVAL, |due| {
            instant + Duration::from_millis(due.millis_since(now))
        });
        let pinging = self
            .viewers
            .values()
            .any(|viewer| viewer.device_count() > 0);
        let due = if pinging {
            due.min(self.next_ping())
        } else {
            due
        };
        due.max(self.backoff_until)
    }

    fn next_ping(&self) -> Instant {
        let seconds = u64::from(self.session.config().heartbeat_interval_seconds);
        self.last_ping + Duration::from_secs(seconds)
    }

    pub(super) async fn on_timer(&mut self) {
        let mut batch = WriteBatch::default();
        let now = pvp_clock::now();
        if self.session.next_deadline().is_some_and(|due| due <= now) {
            self.apply_input(Input::Tick, &mut batch);
        }
        if self.next_ping() <= Instant::now() {
            self.feed.broadcast_ephemeral(&envelope::ping(&self.id));
            self.last_ping = Instant::now();
        }
        self.refresh_presence(&mut batch);
        self.persist(batch).await;
    }

    /// Puts into `reply` what a connection that has just joined needs to follow the session.
    pub(super) fn admit(
        &mut self,
        participant: &ParticipantId,
        seq: Option<u64>,
        reply: &mut ReplyTo,
        batch: &mut WriteBatch,
    ) {
        let ReplyTo::Join(_, joined) = reply else {
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
        self.refresh_presence(batch);
        let presence = |id: &ParticipantId| {
            self.presence
                .get(id)
                .copied()
                .unwrap_or(PresenceStatus::Disconnected)
        };
        let limits = &self.directory.settings.limits;
        let Some(welcome) = self.session.welcome(
            participant,
            limits,
            presence,
            self.directory.server_version(),
        ) else {
            return;
        };
        let others = self
            .session
            .announcements()
            .filter(|announce| announce.id != *participant)
            .cloned()
            .collect();
        *joined = Some(Box::new(JoinedSession {
            device,
            feed: self.feed.clone(),
            secrets: self.secrets.clone(),
            other_announcements: others,
            working_directory: self.session.working_directory_context().cloned(),
            live_from_seq: seq.unwrap_or(welcome.head + 1),
            welcome,
            accepted_seq: seq,
        }));
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
                self.http_presence.insert(id, (viewer.add_device(), until));
                access.device = Some(viewer.add_device());
                access.viewer = Some(viewer);
                self.refresh_presence(batch);
            }
            Some(id) => {
                let limits = &self.directory.settings.limits;
                access.viewer = Some(Arc::new(Viewer::new(id, pvp_clock::now(), limits)));
            }
            None => {}
        }
        Some(access)
    }

    fn get_or_create_viewer(&mut self, participant: &ParticipantId) -> Arc<Viewer> {
        let limits = &self.directory.settings.limits;
        let viewer = self.viewers.entry(participant.clone());
        viewer
            .or_insert_with(|| Arc::new(Viewer::new(participant.clone(), pvp_clock::now(), limits)))
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
        self.refresh_presence(batch);
    }

    /// Checks everyone's presence, broadcasts what changed, and sets the time of the next check.
    pub(super) fn refresh_presence(&mut self, batch: &mut WriteBatch) {
        let now = pvp_clock::now();
        for (id, viewer) in &self.viewers {
            if viewer.has_waiting_request() {
                viewer.record_seen(now);
                let until = now.plus_seconds(HTTP_PRESENCE_SECONDS);
                self.http_presence
                    .insert(id.clone(), (viewer.add_device(), until));
            }
        }
        self.http_presence.retain(|_, (_, until)| *until > now);
        let members: Vec<_> = self
            .session
            .members()
            .map(|(id, member)| (id.clone(), member.timed_out))
            .collect();
        let mut next_check = self.http_presence.values().map(|(_, until)| *until).min();
        for (id, timed_out) in members {
            let viewer = self.get_or_create_viewer(&id);
            let (status, away, next) = self.presence_status(&viewer, now);
            // Someone who was away is back when they connect, not when a restarted server has
            // forgotten how long they have been away.
            let absent = away || (timed_out && viewer.device_count() == 0);
            next_check = [next_check, next].into_iter().flatten().min();
            if absent != timed_out {
                viewer.set_inactive(absent);
                let attendance = if absent {
                    AttendanceChange::TimedOut
                } else {
                    AttendanceChange::Back
                };
                let last_active = viewer.last_active();
                let participant = id.clone();
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
                let (participant, last_active) = (id, viewer.last_active());
                let update = PresenceUpdate {
                    participant,
                    status,
                    last_active,
                    extra: ExtraFields::new(),
                };
                self.feed
                    .broadcast_ephemeral(&envelope::ephemeral(&self.id, None, update));
            }
        }
        self.next_presence_check = next_check;
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
