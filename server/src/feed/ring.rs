//! The recent frames of one session, bounded by size and age.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::chunk::RingChunk;
use super::{FeedRead, LogCursor, MAX_BATCH_BYTES, MAX_BATCH_FRAMES};
use crate::viewer::Viewer;

/// Bytes of entries that all sessions together keep as frames.
const MAX_SHARED_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of entries that one session keeps in a burst.
pub(super) const MAX_RING_BYTES: usize = 2 * 1024 * 1024;

/// Bytes of ephemeral messages that a session keeps; a connection that falls further behind misses
/// the oldest. The presence of 1,000 people who go at once takes half of it.
pub(super) const MAX_EPHEMERAL_BYTES: usize = 512 * 1024;

/// A connection that keeps up has read an entry of this age, so that few older ones are kept.
pub(super) const FRESH_FOR: Duration = Duration::from_millis(200);

/// Bytes of entries older than [`FRESH_FOR`] that a session keeps, for connections that are a
/// little behind.
pub(super) const MAX_STALE_BYTES: usize = 96 * 1024;

/// Frames older than this are not kept: what still needs an entry reads it from the store.
pub(super) const MAX_AGE: Duration = Duration::from_secs(10);

/// A queue that could hold more items than this, and four times what it holds, is made smaller.
const KEPT_CAPACITY: usize = 64;

/// The bytes of entries that the rings of all sessions hold.
#[derive(Default)]
pub(crate) struct RingBudget {
    used: AtomicUsize,
}

impl RingBudget {
    fn is_exceeded(&self) -> bool {
        self.used.load(Ordering::Relaxed) > MAX_SHARED_BYTES
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub(super) struct FrameRing {
    /// The most recent entries with the time of their publication, oldest first.
    chunks: VecDeque<(Instant, RingChunk)>,
    /// The size of all chunks in bytes.
    bytes: usize,
    /// Counts the bytes of all sessions.
    budget: Arc<RingBudget>,
    /// The sequence number of the last published entry.
    pub(super) head: u64,
    /// The most recent ephemeral messages, oldest first; each buffer has a number, and the last one
    /// has `last_ephemeral`.
    ephemeral_frames: VecDeque<(Instant, Bytes)>,
    /// The size of all ephemeral messages in bytes.
    ephemeral_bytes: usize,
    /// How many buffers of ephemeral messages there have been.
    pub(super) last_ephemeral: u64,
    /// Ephemeral messages that are held back, to be sent as one buffer.
    held_back: BytesMut,
    /// When connections are to be woken for what they were not woken for at once.
    pub(super) wake_at: Option<Instant>,
    /// The session is being unloaded; clients must reconnect.
    pub(super) closed: bool,
    /// Whether the session was deleted.
    pub(super) deleted: bool,
}

impl Drop for FrameRing {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl FrameRing {
    pub(super) fn new(budget: Arc<RingBudget>) -> Self {
        let mut ring = Self::default();
        ring.budget = budget;
        ring
    }

    pub(super) fn push(&mut self, chunk: RingChunk, now: Instant) {
        self.head = chunk.last_seq;
        self.bytes += chunk.size();
        self.budget.used.fetch_add(chunk.size(), Ordering::Relaxed);
        self.chunks.push_back((now, chunk));
    }

    /// Drops all entries; cursors read those before the new head from the store.
    pub(super) fn restart_at(&mut self, head: u64) {
        while self.pop_chunk() {}
        self.head = head;
    }

    /// Adds ephemeral messages that connections can read at once.
    pub(super) fn push_ephemeral(&mut self, frames: Bytes, now: Instant) {
        self.ephemeral_bytes += frames.len();
        self.ephemeral_frames.push_back((now, frames));
        self.last_ephemeral += 1;
        while self.ephemeral_bytes > MAX_EPHEMERAL_BYTES && self.ephemeral_frames.len() > 1 {
            self.pop_ephemeral();
        }
    }

    /// Adds an ephemeral message that connections can read after [`release`](Self::release).
    pub(super) fn hold_back(&mut self, frame: &[u8]) {
        self.held_back.extend_from_slice(frame);
    }

    /// Lets connections read what was held back.
    pub(super) fn release(&mut self, now: Instant) {
        self.wake_at = None;
        if !self.held_back.is_empty() {
            let frames = std::mem::take(&mut self.held_back).freeze();
            self.push_ephemeral(frames, now);
        }
    }

    /// Drops what is too old or too much to keep.
    pub(super) fn trim(&mut self, now: Instant) {
        while let Some((at, _)) = self.chunks.front() {
            let age = now.saturating_duration_since(*at);
            let is_last = self.chunks.len() == 1;
            let too_much = self.bytes > MAX_RING_BYTES || self.budget.is_exceeded();
            let stale = age >= FRESH_FOR && self.bytes > MAX_STALE_BYTES;
            if !(age >= MAX_AGE || (!is_last && too_much) || stale) {
                break;
            }
            self.pop_chunk();
        }
        while let Some((at, _)) = self.ephemeral_frames.front()
            && now.saturating_duration_since(*at) >= MAX_AGE
        {
            self.pop_ephemeral();
        }
        shrink(&mut self.chunks);
        shrink(&mut self.ephemeral_frames);
    }

    /// When [`trim`](Self::trim) may have something to do; `None` if nothing is kept.
    pub(super) fn next_trim(&self) -> Option<Instant> {
        let keep_for = if self.bytes > MAX_STALE_BYTES {
            FRESH_FOR
        } else {
            MAX_AGE
        };
        let entries = self.chunks.front().map(|(at, _)| *at + keep_for);
        let ephemeral = self.ephemeral_frames.front().map(|(at, _)| *at + MAX_AGE);
        [entries, ephemeral].into_iter().flatten().min()
    }

    /// Advances a cursor by at most one batch, pushing the frames that its viewer may see.
    pub(super) fn read_batch(
        &self,
        cursor: &mut LogCursor,
        viewer: &Viewer,
        mut push: impl FnMut(Bytes),
    ) -> FeedRead {
        let (mut frame_count, mut bytes) = (0, 0);
        let before = *cursor;
        for frames in self.ephemeral_after(cursor.ephemeral) {
            if frame_count >= MAX_BATCH_FRAMES || bytes >= MAX_BATCH_BYTES {
                return FeedRead::Advanced;
            }
            frame_count += 1;
            bytes += frames.len();
            push(frames.clone());
            cursor.ephemeral = cursor.ephemeral.max(self.oldest_ephemeral() - 1) + 1;
        }
        if cursor.next_seq <= self.head {
            let oldest = self.chunks.front().map(|(_, chunk)| chunk.first_seq);
            if cursor.next_seq < oldest.unwrap_or(self.head + 1) {
                return FeedRead::Behind;
            }
            let start = self
                .chunks
                .partition_point(|(_, chunk)| chunk.last_seq < cursor.next_seq);
            for (_, chunk) in self.chunks.range(start..) {
                if frame_count >= MAX_BATCH_FRAMES || bytes >= MAX_BATCH_BYTES {
                    break;
                }
                if let Some(frames) = chunk.frames_between(cursor.next_seq, u64::MAX, viewer) {
                    bytes += frames.len();
                    frame_count += 1;
                    push(frames);
                }
                cursor.next_seq = chunk.last_seq + 1;
            }
        }
        match () {
            () if *cursor != before => FeedRead::Advanced,
            () if self.deleted => FeedRead::Deleted,
            () if self.closed => FeedRead::Closed,
            () => FeedRead::UpToDate,
        }
    }

    /// The frames of a range of entries; `None` if they are not all here, or too many for one batch.
    pub(super) fn read_range(&self, from: u64, until: u64, viewer: &Viewer) -> Option<Vec<Bytes>> {
        let (_, oldest) = self.chunks.front()?;
        if from < oldest.first_seq || until > self.head + 1 {
            return None;
        }
        let start = self
            .chunks
            .partition_point(|(_, chunk)| chunk.last_seq < from);
        let chunks = self.chunks.range(start..).map(|(_, chunk)| chunk);
        let (mut range, mut bytes) = (Vec::new(), 0);
        for chunk in chunks.take_while(|chunk| chunk.first_seq < until) {
            if let Some(frames) = chunk.frames_between(from, until, viewer) {
                bytes += frames.len();
                range.push(frames);
            }
            if bytes > MAX_BATCH_BYTES {
                return None;
            }
        }
        Some(range)
    }

    /// The number of the oldest buffer of ephemeral messages that is kept.
    fn oldest_ephemeral(&self) -> u64 {
        self.last_ephemeral + 1 - self.ephemeral_frames.len() as u64
    }

    /// The ephemeral messages after the buffer with this number, as far as they are kept.
    fn ephemeral_after(&self, number: u64) -> impl Iterator<Item = &Bytes> {
        let skip = (number + 1).saturating_sub(self.oldest_ephemeral());
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        self.ephemeral_frames
            .range(skip.min(self.ephemeral_frames.len())..)
            .map(|(_, frames)| frames)
    }

    fn pop_chunk(&mut self) -> bool {
        let Some((_, chunk)) = self.chunks.pop_front() else {
            return false;
        };
        self.bytes -= chunk.size();
        self.budget.used.fetch_sub(chunk.size(), Ordering::Relaxed);
        true
    }

    fn pop_ephemeral(&mut self) {
        if let Some((_, frames)) = self.ephemeral_frames.pop_front() {
            self.ephemeral_bytes -= frames.len();
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() {
        *queue = VecDeque::new();
    } else if queue.capacity() > KEPT_CAPACITY.max(queue.len() * 4) {
        queue.shrink_to(KEPT_CAPACITY.max(queue.len() * 2));
    }
}
