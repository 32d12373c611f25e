//! A session's recent entries as encoded frames, which its connections read through cursors.
//!
//! Entries are not queued per connection: a connection reads frames when it can send them, and
//! one that falls behind the ring reads from the store instead.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use parking_lot::RwLock;
use pvp_protocol::ParticipantId;
use pvp_session::Audience;
use tokio::sync::Notify;

use crate::socket::{append_text_frame, text_frame};
use crate::viewer::Viewer;

/// Bytes of frames that a session keeps in memory.
const MAX_RING_BYTES: usize = 2 * 1024 * 1024;

/// Ephemeral messages that a session keeps in memory; a connection that falls further behind
/// misses the oldest.
const MAX_EPHEMERAL_FRAMES: usize = 64;

/// The most buffers a connection takes at a time: what one vectored write carries.
pub(crate) const MAX_BATCH_FRAMES: usize = 64;

/// A connection takes no further buffer once it has taken this many bytes.
const MAX_BATCH_BYTES: usize = 256 * 1024;

/// One entry as the connections of a session send it on.
pub(crate) struct Delivery {
    pub(crate) seq: u64,
    pub(crate) body: Bytes,
    pub(crate) audience: Audience,
    /// The copy for the executor that a grant is for, with the nonce and the secret values.
    pub(crate) executor_copy: Option<(ParticipantId, Bytes)>,
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

/// Consecutive entries in the ring.
struct RingChunk {
    first_seq: u64,
    last_seq: u64,
    frames: ChunkFrames,
}

enum ChunkFrames {
    /// The same for everyone: whole frames one after the other, and where each ends.
    Shared { bytes: Bytes, ends: Vec<u32> },
    /// One entry that not everyone may see, or that has a separate executor copy.
    Single {
        frame: Bytes,
        audience: Audience,
        executor_copy: Option<(ParticipantId, Bytes)>,
    },
}

impl RingChunk {
    fn shared(deliveries: &[Delivery]) -> Self {
        let mut bytes = BytesMut::with_capacity(
            deliveries
                .iter()
                .map(|delivery| delivery.body.len() + 10)
                .sum(),
        );
        let ends = deliveries
            .iter()
            .map(|delivery| {
                append_text_frame(&mut bytes, &delivery.body);
                u32::try_from(bytes.len()).unwrap_or(u32::MAX)
            })
            .collect();
        let frames = ChunkFrames::Shared {
            bytes: bytes.freeze(),
            ends,
        };
        Self {
            first_seq: deliveries[0].seq,
            last_seq: deliveries[deliveries.len() - 1].seq,
            frames,
        }
    }

    fn single(delivery: Delivery) -> Self {
        let executor_copy = delivery
            .executor_copy
            .map(|(to, body)| (to, text_frame(&body)));
        let frame = text_frame(&delivery.body);
        let frames = ChunkFrames::Single {
            frame,
            audience: delivery.audience,
            executor_copy,
        };
        Self {
            first_seq: delivery.seq,
            last_seq: delivery.seq,
            frames,
        }
    }

    fn size(&self) -> usize {
        match &self.frames {
            ChunkFrames::Shared { bytes, ends } => bytes.len() + ends.len() * 4,
            ChunkFrames::Single {
                frame,
                executor_copy,
                ..
            } => frame.len() + executor_copy.as_ref().map_or(0, |(_, frame)| frame.len()),
        }
    }

    /// The frames of this chunk that a viewer may see, from the sequence number `from` on.
    fn frames_for(&self, from: u64, viewer: &Viewer) -> Option<Bytes> {
        match &self.frames {
            ChunkFrames::Shared { bytes, .. } if from <= self.first_seq => Some(bytes.clone()),
            ChunkFrames::Shared { bytes, ends } => {
                let skip = usize::try_from(from - self.first_seq).ok()?;
                Some(bytes.slice(ends[skip - 1] as usize..))
            }
            ChunkFrames::Single {
                executor_copy: Some((to, frame)),
                ..
            } if *to == viewer.participant => Some(frame.clone()),
            ChunkFrames::Single {
                frame, audience, ..
            } => viewer.may_see(audience).then(|| frame.clone()),
        }
    }
}

/// Consecutive entries that are the same for every viewer are merged into chunks of about this
/// size, in bytes.
const MAX_MERGED_BYTES: usize = 64 * 1024;

#[derive(Default)]
struct FrameRing {
    /// The most recent entries, oldest first.
    chunks: VecDeque<RingChunk>,
    /// The size of all chunks in bytes.
    bytes: usize,
    /// The sequence number of the last published entry.
    head: u64,
    /// The most recent ephemeral messages with their numbers, oldest first.
    ephemeral_frames: VecDeque<(u64, Bytes)>,
    /// The number of the last ephemeral message; they are counted from 1.
    last_ephemeral: u64,
    /// The session is being unloaded; clients must reconnect.
    closed: bool,
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
}

/// The ring of a session, with the notification that wakes its connections.
#[derive(Default)]
pub(crate) struct SessionFeed {
    ring: RwLock<FrameRing>,
    notify: Notify,
}

impl SessionFeed {
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

    /// The cursor of a connection that has seen all entries up to `seen`.
    pub(crate) fn cursor_after(&self, seen: u64) -> LogCursor {
        LogCursor {
            next_seq: seen + 1,
            ephemeral: self.ring.read().last_ephemeral,
        }
    }

    /// Moves the head to where the log was replayed; cursors read the entries before it from the
    /// store.
    pub(crate) fn advance_head_to(&self, head: u64) {
        let mut ring = self.ring.write();
        if head > ring.head {
            ring.chunks.clear();
            ring.bytes = 0;
            ring.head = head;
        }
        drop(ring);
        self.notify.notify_waiters();
    }

    /// Publishes durable entries to the connections.
    pub(crate) fn publish(&self, deliveries: Vec<Delivery>) {
        let Some(last) = deliveries.last() else {
            return;
        };
        let head = last.seq;
        let chunks = merge_into_chunks(deliveries);
        let mut ring = self.ring.write();
        for chunk in chunks {
            ring.bytes += chunk.size();
            ring.chunks.push_back(chunk);
        }
        ring.head = head;
        while ring.bytes > MAX_RING_BYTES && ring.chunks.len() > 1 {
            if let Some(oldest) = ring.chunks.pop_front() {
                ring.bytes -= oldest.size();
            }
        }
        drop(ring);
        self.notify.notify_waiters();
    }

    /// Broadcasts a message that is not logged.
    pub(crate) fn broadcast_ephemeral(&self, text: &[u8]) {
        let frame = text_frame(text);
        let mut ring = self.ring.write();
        ring.last_ephemeral += 1;
        let number = ring.last_ephemeral;
        ring.ephemeral_frames.push_back((number, frame));
        if ring.ephemeral_frames.len() > MAX_EPHEMERAL_FRAMES {
            ring.ephemeral_frames.pop_front();
        }
        drop(ring);
        self.notify.notify_waiters();
    }

    /// Ends the feed: nothing more will be published here.
    pub(crate) fn close(&self) {
        self.ring.write().closed = true;
        self.notify.notify_waiters();
    }

    /// Advances a cursor by at most one batch, pushing the frames that its viewer may see.
    pub(crate) fn read_batch(
        &self,
        cursor: &mut LogCursor,
        viewer: &Viewer,
        mut push: impl FnMut(Bytes),
    ) -> FeedRead {
        let ring = self.ring.read();
        let (mut frame_count, mut bytes) = (0, 0);
        let before = *cursor;
        if cursor.ephemeral < ring.last_ephemeral {
            for (number, frame) in &ring.ephemeral_frames {
                if *number > cursor.ephemeral {
                    push(frame.clone());
                    frame_count += 1;
                }
            }
            cursor.ephemeral = ring.last_ephemeral;
        }
        if cursor.next_seq <= ring.head {
            let oldest = ring
                .chunks
                .front()
                .map_or(ring.head + 1, |chunk| chunk.first_seq);
            if cursor.next_seq < oldest {
                return FeedRead::Behind;
            }
            let start = ring
                .chunks
                .partition_point(|chunk| chunk.last_seq < cursor.next_seq);
            for chunk in ring.chunks.iter().skip(start) {
                if frame_count >= MAX_BATCH_FRAMES || bytes >= MAX_BATCH_BYTES {
                    break;
                }
                if let Some(frames) = chunk.frames_for(cursor.next_seq, viewer) {
                    bytes += frames.len();
                    frame_count += 1;
                    push(frames);
                }
                cursor.next_seq = chunk.last_seq + 1;
            }
        }
        match () {
            () if *cursor != before => FeedRead::Advanced,
            () if ring.closed => FeedRead::Closed,
            () => FeedRead::UpToDate,
        }
    }
}

fn merge_into_chunks(deliveries: Vec<Delivery>) -> Vec<RingChunk> {
    let mut chunks = Vec::new();
    let mut pending: Vec<Delivery> = Vec::new();
    let mut pending_bytes = 0;
    let flush = |pending: &mut Vec<Delivery>, chunks: &mut Vec<RingChunk>| {
        if !pending.is_empty() {
            chunks.push(RingChunk::shared(pending));
            pending.clear();
        }
    };
    for delivery in deliveries {
        let shared = delivery.is_same_for_everyone();
        if !shared || pending_bytes > MAX_MERGED_BYTES {
            flush(&mut pending, &mut chunks);
            pending_bytes = 0;
        }
        if shared {
            pending_bytes += delivery.body.len();
            pending.push(delivery);
        } else {
            chunks.push(RingChunk::single(delivery));
        }
    }
    flush(&mut pending, &mut chunks);
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_protocol::{Limits, Timestamp};

    fn viewer(name: &str) -> Viewer {
        let id = ParticipantId::parse(name).unwrap();
        Viewer::new(id, Timestamp::default(), &Limits::default())
    }

    fn delivery(seq: u64, audience: Audience) -> Delivery {
        Delivery {
            seq,
            body: Bytes::from(format!("e{seq}")),
            audience,
            executor_copy: None,
        }
    }

    fn audience_of(name: &str) -> Audience {
        Audience::only([ParticipantId::parse(name).unwrap()])
    }

    /// Everything a viewer gets from the sequence number `from` on, as the texts of the frames.
    fn read_texts(feed: &SessionFeed, from: u64, viewer: &Viewer) -> (Vec<String>, LogCursor) {
        let mut cursor = LogCursor {
            next_seq: from,
            ephemeral: 0,
        };
        let mut bytes = Vec::new();
        while feed.read_batch(&mut cursor, viewer, |frame| bytes.extend_from_slice(&frame))
            == FeedRead::Advanced
        {}
        let mut texts = Vec::new();
        let mut rest = bytes.as_slice();
        while let [0x81, length, after @ ..] = rest {
            let (text, next) = after.split_at(usize::from(*length));
            texts.push(String::from_utf8(text.to_vec()).unwrap());
            rest = next;
        }
        assert!(rest.is_empty(), "whole frames only");
        (texts, cursor)
    }

    #[test]
    fn each_viewer_gets_what_they_may_see_in_order() {
        let feed = SessionFeed::default();
        let everyone = Audience::everyone;
        let mut granted = delivery(4, everyone());
        granted.executor_copy =
            Some((ParticipantId::parse("bot").unwrap(), Bytes::from("secret4")));
        feed.publish(vec![
            delivery(1, everyone()),
            delivery(2, everyone()),
            delivery(3, audience_of("ann")),
            granted,
            delivery(5, everyone()),
        ]);
        assert_eq!(
            read_texts(&feed, 1, &viewer("ann")).0,
            ["e1", "e2", "e3", "e4", "e5"]
        );
        assert_eq!(
            read_texts(&feed, 1, &viewer("bob")).0,
            ["e1", "e2", "e4", "e5"]
        );
        assert_eq!(
            read_texts(&feed, 1, &viewer("bot")).0,
            ["e1", "e2", "secret4", "e5"]
        );
    }

    #[test]
    fn a_cursor_in_the_middle_of_a_merged_run_gets_only_the_rest() {
        let feed = SessionFeed::default();
        feed.publish(
            (1..=9)
                .map(|seq| delivery(seq, Audience::everyone()))
                .collect(),
        );
        let (texts, cursor) = read_texts(&feed, 6, &viewer("ann"));
        assert_eq!(texts, ["e6", "e7", "e8", "e9"]);
        assert_eq!(cursor.next_seq, 10);
    }

    #[test]
    fn a_client_that_falls_behind_reads_from_the_store() {
        let feed = SessionFeed::default();
        let big = |seq| Delivery {
            body: Bytes::from(vec![b'x'; MAX_RING_BYTES / 4]),
            ..delivery(seq, Audience::everyone())
        };
        for seq in 1..=12 {
            feed.publish(vec![big(seq)]);
        }
        let mut cursor = LogCursor {
            next_seq: 1,
            ephemeral: 0,
        };
        assert_eq!(
            feed.read_batch(&mut cursor, &viewer("ann"), |_| {}),
            FeedRead::Behind
        );
        assert_eq!(cursor.next_seq, 1);
        assert!(feed.ring.read().bytes <= MAX_RING_BYTES + MAX_RING_BYTES / 4);
    }

    #[test]
    fn after_a_restart_everything_older_is_in_the_store() {
        let feed = SessionFeed::default();
        feed.advance_head_to(7);
        let mut cursor = LogCursor {
            next_seq: 7,
            ephemeral: 0,
        };
        assert_eq!(
            feed.read_batch(&mut cursor, &viewer("ann"), |_| {}),
            FeedRead::Behind
        );
        let mut cursor = feed.cursor_after(7);
        assert_eq!(
            feed.read_batch(&mut cursor, &viewer("ann"), |_| {}),
            FeedRead::UpToDate
        );
        feed.close();
        assert_eq!(
            feed.read_batch(&mut cursor, &viewer("ann"), |_| {}),
            FeedRead::Closed
        );
    }

    #[test]
    fn ephemeral_broadcasts_reach_those_connected_and_are_bounded() {
        let feed = SessionFeed::default();
        let mut cursor = feed.cursor_after(0);
        for _ in 0..1000 {
            feed.broadcast_ephemeral(b"w");
        }
        let mut received = 0;
        feed.read_batch(&mut cursor, &viewer("ann"), |_| received += 1);
        assert_eq!(received, MAX_EPHEMERAL_FRAMES);
        assert_eq!(
            feed.read_batch(&mut cursor, &viewer("ann"), |_| {}),
            FeedRead::UpToDate
        );
    }
}
