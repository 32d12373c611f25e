//! A session's recent entries as encoded frames, which its connections read through cursors.
//!
//! Entries are not queued per connection: a connection reads frames when it can send them, and
//! one that falls behind the ring reads from the store instead.

mod chunk;
mod ring;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use pvp_protocol::ParticipantId;
use pvp_session::Audience;
use tokio::sync::Notify;
use tokio::time::Instant;

use ring::FrameRing;
pub(crate) use ring::RingBudget;

use crate::socket::text_frame;
use crate::viewer::{SessionDevices, Viewer};

/// The most buffers a connection takes at a time: what one vectored write carries.
pub(crate) const MAX_BATCH_FRAMES: usize = 64;

/// A connection takes no further buffer once it has taken this many bytes.
const MAX_BATCH_BYTES: usize = 256 * 1024;

/// With more devices than this, waking them all for each one who joins costs more than the joins.
const MAX_DEVICES_WOKEN_PER_JOIN: u32 = 32;

/// How long announcements and presence then wait, so that those of many are sent together.
const JOIN_WAKE_DELAY: Duration = Duration::from_millis(100);

/// One entry as the connections of a session send it on.
pub(crate) struct Delivery {
    pub(crate) seq: u64,
    pub(crate) body: Bytes,
    pub(crate) audience: Audience,
    /// The copy for the executor that a grant is for, with the nonce and the secret values.
    pub(crate) executor_copy: Option<(ParticipantId, Bytes)>,
    /// Whether the others in a large session can receive it a little later.
    pub(crate) can_wait: bool,
}

impl Delivery {
    fn is_same_for_everyone(&self) -> bool {
        self.executor_copy.is_none() && self.audience == Audience::everyone()
    }

    /// The copy that this viewer may see; `None` if they may not see the entry.
    pub(crate) fn body_for(&self, viewer: &Viewer) -> Option<&Bytes> {
        match &self.executor_copy {
            Some((to, body)) if *to == viewer.participant => Some(body),
            Some(_) | None => viewer.may_see(&self.audience).then_some(&self.body),
        }
    }
}

impl Delivery {
    /// Like [`body_for`](Self::body_for); an anonymous reader sees what everyone may see.
    pub(crate) fn body_for_http_reader(&self, viewer: Option<&Viewer>) -> Option<&Bytes> {
        match viewer {
            Some(viewer) => self.body_for(viewer),
            None => (self.audience == Audience::everyone()).then_some(&self.body),
        }
    }
}

/// How far a connection has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogCursor {
    /// The sequence number of the next entry to send.
    pub(crate) next_seq: u64,
    /// The number of the last ephemeral message that was sent.
    pub(crate) ephemeral: u64,
}

/// The outcome of reading from the feed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FeedRead {
    /// The cursor moved, with or without frames for this viewer.
    Advanced,
    /// There is nothing to send.
    UpToDate,
    /// The ring no longer has the next entry; the store does.
    Behind,
    /// The session is being unloaded.
    Closed,
    /// The session was deleted.
    Deleted,
}

/// The ring of a session, with the notification that wakes its connections.
#[derive(Default)]
pub(crate) struct SessionFeed {
    ring: RwLock<FrameRing>,
    notify: Notify,
    devices: Arc<SessionDevices>,
}

impl SessionFeed {
    pub(crate) fn new(budget: Arc<RingBudget>, devices: Arc<SessionDevices>) -> Self {
        Self {
            ring: RwLock::new(FrameRing::new(budget)),
            notify: Notify::new(),
            devices,
        }
    }

    pub(crate) fn notifier(&self) -> &Notify {
        &self.notify
    }

    /// The sequence number of the last published entry.
    pub(crate) fn head(&self) -> u64 {
        self.ring.read().head
    }

    /// Whether the session is being unloaded.
    pub(crate) fn is_closed(&self) -> bool {
        self.ring.read().closed
    }

    /// The cursor of someone who has seen all entries up to `seen`, and everything that is ephemeral.
    #[cfg(test)]
    pub(crate) fn cursor_after(&self, seen: u64) -> LogCursor {
        LogCursor {
            next_seq: seen + 1,
            ephemeral: self.last_ephemeral(),
        }
    }

    /// The number of the last ephemeral message that connections can read.
    pub(crate) fn last_ephemeral(&self) -> u64 {
        self.ring.read().last_ephemeral
    }

    /// Moves the head to where the log was replayed; cursors read the entries before it from the
    /// store.
    pub(crate) fn advance_head_to(&self, head: u64) {
        let mut ring = self.ring.write();
        if head > ring.head {
            ring.restart_at(head);
        }
        drop(ring);
        self.notify.notify_waiters();
    }

    /// Publishes durable entries to the connections.
    pub(crate) fn publish(&self, deliveries: Vec<Delivery>) {
        self.publish_at(deliveries, Instant::now());
    }

    fn publish_at(&self, deliveries: Vec<Delivery>, now: Instant) {
        if deliveries.is_empty() {
            return;
        }
        let can_wait = deliveries.iter().all(|delivery| delivery.can_wait);
        let chunks = chunk::merge_into_chunks(deliveries);
        let mut ring = self.ring.write();
        for chunk in chunks {
            ring.push(chunk, now);
        }
        ring.trim(now);
        self.wake(&mut ring, can_wait, now);
    }

    /// Broadcasts a message that is not logged.
    pub(crate) fn broadcast_ephemeral(&self, text: &[u8]) {
        let (frame, now) = (text_frame(text), Instant::now());
        let mut ring = self.ring.write();
        ring.release(now);
        ring.push_ephemeral(frame, now);
        self.wake(&mut ring, false, now);
    }

    /// Broadcasts someone's presence. In a large session, the presence of many is sent together.
    pub(crate) fn broadcast_presence(&self, text: &[u8]) {
        let (frame, now) = (text_frame(text), Instant::now());
        let mut ring = self.ring.write();
        ring.hold_back(&frame);
        self.wake(&mut ring, true, now);
    }

    /// Wakes the connections, or sees to it that they are woken soon.
    fn wake(&self, ring: &mut FrameRing, can_wait: bool, now: Instant) {
        if can_wait && self.devices.count() > MAX_DEVICES_WOKEN_PER_JOIN {
            let wake_at = *ring.wake_at.get_or_insert(now + JOIN_WAKE_DELAY);
            if now < wake_at {
                return;
            }
        }
        ring.release(now);
        self.notify.notify_waiters();
    }

    /// Wakes every connection and waiting request, so that they check their tokens.
    pub(crate) fn wake_all(&self) {
        self.notify.notify_waiters();
    }

    /// When [`on_timer`](Self::on_timer) has something to do; `None` if nothing waits or ages.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let ring = self.ring.read();
        [ring.wake_at, ring.next_trim()].into_iter().flatten().min()
    }

    /// Wakes the connections if that is due, and drops frames that have become old.
    pub(crate) fn on_timer(&self, now: Instant) {
        if self.next_timer().is_none_or(|due| now < due) {
            return;
        }
        let mut ring = self.ring.write();
        ring.trim(now);
        if ring.wake_at.is_some_and(|due| due <= now) {
            self.wake(&mut ring, false, now);
        }
    }

    /// Ends the feed because the session was deleted.
    pub(crate) fn close_deleted(&self) {
        self.ring.write().deleted = true;
        self.close();
    }

    /// Ends the feed: nothing more will be published here.
    pub(crate) fn close(&self) {
        self.ring.write().closed = true;
        self.notify.notify_waiters();
    }

    /// The frames from the sequence number `from` up to, but not including, `until` that a viewer
    /// may see; `None` if the ring does not have all of these entries, or they are too many for one
    /// batch.
    pub(crate) fn read_range(&self, from: u64, until: u64, viewer: &Viewer) -> Option<Vec<Bytes>> {
        self.ring.read().read_range(from, until, viewer)
    }

    /// Advances a cursor by at most one batch, pushing the frames that its viewer may see.
    pub(crate) fn read_batch(
        &self,
        cursor: &mut LogCursor,
        viewer: &Viewer,
        push: impl FnMut(Bytes),
    ) -> FeedRead {
        self.ring.read().read_batch(cursor, viewer, push)
    }
}
