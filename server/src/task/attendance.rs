//! Who is there: presence that is told but not kept, and absence that counts for decisions.

use std::sync::Arc;
use std::time::Duration;

use pvp_protocol::payload::{PresenceStatus, PresenceUpdate};
use pvp_protocol::{ExtraFields, ParticipantId, Timestamp};
use pvp_session::{AttendanceChange, Input, Member};
use tokio::time::Instant;

use super::order::{Joined, ReplyTo, Visit};
use super::{Batch, Task};
use crate::viewer::Viewer;
use crate::{clock, envelope};

/// How often a session with nothing due looks around all the same.
const LOOK_AT_LEAST: Duration = Duration::from_secs(3600);

/// How long a request over HTTP counts as being there, in seconds.
const VISIT_SECONDS: u64 = 30;

impl Task {
    /// When something happens by itself next: a deadline, someone going quiet, or a heartbeat.
    pub(super) fn next_alarm(&self) -> Instant {
        let (now, instant) = (clock::now(), Instant::now());
        let due = [self.session.next_deadline(), self.next_look]
            .into_iter()
            .flatten()
            .min();
        let due = due.map_or(instant + LOOK_AT_LEAST, |due| {
            instant + Duration::from_millis(due.millis_since(now))
        });
        let pinging = self.viewers.values().any(|viewer| viewer.devices() > 0);
        let due = if pinging {
            due.min(self.next_ping())
        } else {
            due
        };
        due.max(self.hold)
    }

    fn next_ping(&self) -> Instant {
        let seconds = u64::from(self.session.config().heartbeat_interval_seconds);
        self.last_ping + Duration::from_secs(seconds)
    }

    pub(super) async fn alarm(&mut self) {
        let mut batch = Batch::default();
        let now = clock::now();
        if self.session.next_deadline().is_some_and(|due| due <= now) {
            self.decide(Input::Tick, &mut batch);
        }
        if self.next_ping() <= Instant::now() {
            self.feed.whisper(&envelope::ping(&self.id));
            self.last_ping = Instant::now();
        }
        self.look_around(&mut batch);
        self.write(batch).await;
    }

    /// Gives a newcomer what they need to follow the session.
    pub(super) fn seat(
        &mut self,
        participant: &ParticipantId,
        seq: Option<u64>,
        reply: &mut ReplyTo,
        batch: &mut Batch,
    ) {
        let ReplyTo::Seat(_, seat) = reply else {
            return;
        };
        let viewer = self.viewer(participant);
        let device = viewer.connect();
        viewer.set_left(false);
        viewer.set_quiet(false);
        viewer.acted(clock::now());
        let may_vote = self
            .session
            .member(participant)
            .is_some_and(pvp_session::Member::may_vote);
        if seq.is_none() {
            viewer.set_may_approve(may_vote);
        }
        self.look_around(batch);
        let presence = |id: &ParticipantId| {
            self.presence
                .get(id)
                .copied()
                .unwrap_or(PresenceStatus::Disconnected)
        };
        let limits = &self.house.settings.limits;
        let Some(welcome) =
            self.session
                .welcome(participant, limits, presence, self.house.version())
        else {
            return;
        };
        let others = self
            .session
            .announcements()
            .filter(|who| who.id != *participant)
            .cloned()
            .collect();
        *seat = Some(Box::new(Joined {
            device,
            feed: self.feed.clone(),
            vault: self.vault.clone(),
            others,
            working_directory: self.session.working_directory_context().cloned(),
            present: seq.unwrap_or(welcome.head + 1),
            welcome,
            seq,
        }));
    }

    /// Lets someone look in over HTTP; `None` if there is no such session.
    pub(super) fn visit(
        &mut self,
        participant: Option<ParticipantId>,
        batch: &mut Batch,
    ) -> Option<Visit> {
        if !self.session.is_created() {
            return None;
        }
        let joined = |id: &ParticipantId| self.session.member(id).is_some_and(|m| !m.left);
        let mut visit = Visit {
            viewer: None,
            device: None,
            feed: self.feed.clone(),
            vault: self.vault.clone(),
        };
        match participant {
            Some(id) if joined(&id) => {
                let viewer = self.viewer(&id);
                viewer.set_may_approve(self.session.member(&id).is_some_and(Member::may_vote));
                viewer.heard(clock::now());
                let until = clock::now().plus_seconds(VISIT_SECONDS);
                self.visits.insert(id, (viewer.connect(), until));
                visit.device = Some(viewer.connect());
                visit.viewer = Some(viewer);
                self.look_around(batch);
            }
            Some(id) => {
                let limits = &self.house.settings.limits;
                visit.viewer = Some(Arc::new(Viewer::new(id, clock::now(), limits)));
            }
            None => {}
        }
        Some(visit)
    }

    fn viewer(&mut self, participant: &ParticipantId) -> Arc<Viewer> {
        let limits = &self.house.settings.limits;
        let viewer = self.viewers.entry(participant.clone());
        viewer
            .or_insert_with(|| Arc::new(Viewer::new(participant.clone(), clock::now(), limits)))
            .clone()
    }

    /// Someone who had gone quiet is back.
    pub(super) fn heard(&mut self, participant: &ParticipantId, batch: &mut Batch) {
        if let Some(viewer) = self.viewers.get(participant) {
            viewer.set_quiet(false);
        }
        self.look_around(batch);
    }

    /// Looks at everyone, tells what changed, and notes when to look again.
    pub(super) fn look_around(&mut self, batch: &mut Batch) {
        let now = clock::now();
        for (id, viewer) in &self.viewers {
            if viewer.is_waiting() {
                viewer.heard(now);
                let until = now.plus_seconds(VISIT_SECONDS);
                self.visits.insert(id.clone(), (viewer.connect(), until));
            }
        }
        self.visits.retain(|_, (_, until)| *until > now);
        let members: Vec<_> = self
            .session
            .members()
            .map(|(id, member)| (id.clone(), member.timed_out))
            .collect();
        let mut next_look = self.visits.values().map(|(_, until)| *until).min();
        for (id, timed_out) in members {
            let viewer = self.viewer(&id);
            let (status, silent, next) = self.status(&viewer, now);
            // Who was away is back when they come, not when the server forgets how long it was.
            let gone = silent || (timed_out && viewer.devices() == 0);
            next_look = [next_look, next].into_iter().flatten().min();
            if gone != timed_out {
                viewer.set_quiet(gone);
                let attendance = if gone {
                    AttendanceChange::TimedOut
                } else {
                    AttendanceChange::Back
                };
                let last_active = viewer.last_active();
                let participant = id.clone();
                self.decide(
                    Input::Attendance {
                        participant,
                        attendance,
                        last_active,
                    },
                    batch,
                );
            }
            if self.presence.insert(id.clone(), status) != Some(status) {
                viewer.set_quiet(status != PresenceStatus::Active);
                let (participant, last_active) = (id, viewer.last_active());
                let update = PresenceUpdate {
                    participant,
                    status,
                    last_active,
                    extra: ExtraFields::new(),
                };
                self.feed.whisper(&envelope::unkept(&self.id, None, update));
            }
        }
        self.next_look = next_look;
    }

    /// Someone's presence, whether they are out of decisions, and when that may change.
    fn status(&self, viewer: &Viewer, now: Timestamp) -> (PresenceStatus, bool, Option<Timestamp>) {
        let config = self.session.config();
        let silent_at = viewer
            .last_heard()
            .plus_seconds(u64::from(config.away_timeout_seconds));
        let idle_at = viewer
            .last_active()
            .plus_seconds(u64::from(config.idle_timeout_seconds));
        let gone = silent_at <= now;
        let status = match viewer.devices() {
            0 => PresenceStatus::Disconnected,
            _ if gone => PresenceStatus::Away,
            _ if idle_at <= now => PresenceStatus::Idle,
            _ => PresenceStatus::Active,
        };
        let next = [silent_at, idle_at]
            .into_iter()
            .filter(|at| *at > now)
            .min();
        (status, gone, next)
    }
}
