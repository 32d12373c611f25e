//! The state of one participant of a session that all their connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use pvp_protocol::{Limits, ParticipantId, Timestamp};
use pvp_session::Audience;

/// The connected devices of all participants of a session.
#[derive(Debug, Default)]
pub(crate) struct SessionDevices {
    count: AtomicU32,
    /// Participants whose last device has gone since the session's task last asked.
    disconnected: Mutex<Vec<ParticipantId>>,
}

impl SessionDevices {
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Who has lost their last device since the last call.
    pub(crate) fn take_disconnected(&self) -> Vec<ParticipantId> {
        std::mem::take(&mut self.disconnected.lock())
    }
}

/// Shared between the session's task and the participant's connections.
#[derive(Debug)]
pub(crate) struct Viewer {
    /// Who this is.
    pub(crate) participant: ParticipantId,
    /// Counts the devices of the whole session.
    session_devices: Arc<SessionDevices>,
    /// Whether they may vote, and so may see what only approvers see.
    may_approve: AtomicBool,
    /// Whether they have left the session.
    left: AtomicBool,
    /// Set by the task when it counts the participant as inactive, so that their connections notify
    /// it of the next message at once.
    inactive: AtomicBool,
    /// How many devices are connected, including recent and waiting HTTP requests.
    devices: AtomicU32,
    /// How many HTTP requests wait for the next message.
    waiting_requests: AtomicU32,
    /// When anything last arrived from them, in milliseconds since the Unix epoch.
    last_seen: AtomicU64,
    /// When they last sent anything but a heartbeat, in milliseconds since the Unix epoch.
    last_active: AtomicU64,
    /// Their rate limit, shared by all their devices.
    bucket: Mutex<TokenBucket>,
}

/// How many messages may still be sent at once.
#[derive(Debug)]
struct TokenBucket {
    tokens: f64,
    filled_at: Timestamp,
}

impl Viewer {
    pub(crate) fn new(
        participant: ParticipantId,
        session_devices: Arc<SessionDevices>,
        now: Timestamp,
        limits: &Limits,
    ) -> Self {
        Self {
            participant,
            session_devices,
            may_approve: AtomicBool::new(false),
            left: AtomicBool::new(false),
            inactive: AtomicBool::new(false),
            devices: AtomicU32::new(0),
            waiting_requests: AtomicU32::new(0),
            last_seen: AtomicU64::new(now.as_millis()),
            last_active: AtomicU64::new(now.as_millis()),
            bucket: Mutex::new(TokenBucket {
                tokens: f64::from(limits.message_burst),
                filled_at: now,
            }),
        }
    }

    pub(crate) fn may_see(&self, audience: &Audience) -> bool {
        audience.includes(&self.participant, self.may_approve.load(Ordering::Relaxed))
    }

    pub(crate) fn set_may_approve(&self, may: bool) {
        self.may_approve.store(may, Ordering::Relaxed);
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    pub(crate) fn set_left(&self, left: bool) {
        self.left.store(left, Ordering::Relaxed);
    }

    pub(crate) fn set_inactive(&self, inactive: bool) {
        self.inactive.store(inactive, Ordering::Relaxed);
    }

    /// Records that something arrived from the participant; true if they counted as inactive.
    pub(crate) fn record_seen(&self, now: Timestamp) -> bool {
        self.last_seen.store(now.as_millis(), Ordering::Relaxed);
        self.inactive.load(Ordering::Relaxed)
    }

    /// Records that the participant did something; true if they counted as inactive.
    pub(crate) fn record_activity(&self, now: Timestamp) -> bool {
        self.last_active.store(now.as_millis(), Ordering::Relaxed);
        self.record_seen(now)
    }

    pub(crate) fn last_seen(&self) -> Timestamp {
        Timestamp::from_millis(self.last_seen.load(Ordering::Relaxed))
    }

    pub(crate) fn last_active(&self) -> Timestamp {
        Timestamp::from_millis(self.last_active.load(Ordering::Relaxed))
    }

    /// Counts one more device until the guard is dropped.
    pub(crate) fn add_device(self: &Arc<Self>) -> DeviceGuard {
        self.devices.fetch_add(1, Ordering::Relaxed);
        self.session_devices.count.fetch_add(1, Ordering::Relaxed);
        DeviceGuard(self.clone())
    }

    pub(crate) fn device_count(&self) -> u32 {
        self.devices.load(Ordering::Relaxed)
    }

    /// Counts one more waiting request until the guard is dropped.
    pub(crate) fn begin_wait(self: &Arc<Self>) -> WaitGuard {
        self.waiting_requests.fetch_add(1, Ordering::Relaxed);
        WaitGuard(self.clone())
    }

    /// Whether one of their requests is waiting: then they are present, though they send nothing.
    pub(crate) fn has_waiting_request(&self) -> bool {
        self.waiting_requests.load(Ordering::Relaxed) > 0
    }

    /// Charges one message to the rate limit, whichever device it came from; false if the limit is
    /// reached.
    pub(crate) fn try_charge_message(&self, now: Timestamp, limits: &Limits) -> bool {
        let mut bucket = self.bucket.lock();
        let elapsed = now.millis_since(bucket.filled_at) as f64 / 1000.0;
        let refilled = bucket.tokens + elapsed * f64::from(limits.messages_per_second);
        bucket.tokens = refilled.min(f64::from(limits.message_burst));
        bucket.filled_at = now;
        let enough = bucket.tokens >= 1.0;
        if enough {
            bucket.tokens -= 1.0;
        }
        enough
    }
}

/// One connected device of a participant.
pub(crate) struct DeviceGuard(Arc<Viewer>);

impl std::ops::Deref for DeviceGuard {
    type Target = Arc<Viewer>;

    fn deref(&self) -> &Arc<Viewer> {
        &self.0
    }
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        let session_devices = &self.0.session_devices;
        session_devices.count.fetch_sub(1, Ordering::Relaxed);
        if self.0.devices.fetch_sub(1, Ordering::Relaxed) == 1 {
            let participant = self.0.participant.clone();
            session_devices.disconnected.lock().push(participant);
        }
    }
}

/// One waiting request of a participant.
pub(crate) struct WaitGuard(Arc<Viewer>);

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.0.waiting_requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_only_the_rate() {
        let limits = Limits {
            message_burst: 3,
            messages_per_second: 2,
            ..Limits::default()
        };
        let at = |ms: u64| Timestamp::from_millis(1_000_000 + ms);
        let ann = ParticipantId::parse("ann").unwrap();
        let viewer = Viewer::new(ann, Arc::default(), at(0), &limits);
        let sent: Vec<_> = [0, 0, 0, 0, 400, 500, 500, 1500, 1500, 1500, 60_000]
            .map(|ms| viewer.try_charge_message(at(ms), &limits))
            .into();
        assert_eq!(
            sent,
            [
                true, true, true, false, false, true, false, true, true, false, true
            ]
        );
    }

    #[test]
    fn only_the_last_device_of_a_participant_counts_as_gone() {
        let ann = ParticipantId::parse("ann").unwrap();
        let devices = Arc::new(SessionDevices::default());
        let (now, limits) = (Timestamp::default(), Limits::default());
        let viewer = Arc::new(Viewer::new(ann.clone(), devices.clone(), now, &limits));
        let (first, second) = (viewer.add_device(), viewer.add_device());
        assert_eq!(devices.count(), 2);
        drop(first);
        assert_eq!((devices.count(), devices.take_disconnected()), (1, vec![]));
        drop(second);
        assert_eq!(
            (devices.count(), devices.take_disconnected()),
            (0, vec![ann])
        );
        assert_eq!(devices.take_disconnected(), []);
    }
}
