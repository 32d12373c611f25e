//! A session's recent entries as encoded frames, and the cursors that read them.
//!
//! Nobody queues for anybody: a connection takes frames when it has room, and one that falls
//! out of the ring reads from the store instead.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use parking_lot::RwLock;
use pvp_protocol::ParticipantId;
use pvp_session::Audience;
use tokio::sync::Notify;

use crate::socket::{append_text_frame, text_frame};
use crate::viewer::Viewer;

/// Bytes of frames that a session keeps at hand.
const RING_BYTES: usize = 2 * 1024 * 1024;

/// Unkept messages that a session keeps at hand; who lags behind them misses them.
const WHISPERS: usize = 64;

/// Most pieces a connection takes at a time: what one vectored write carries.
pub(crate) const BATCH: usize = 64;

/// Most bytes a connection takes at a time.
const BATCH_BYTES: usize = 256 * 1024;

/// One entry on its way to the viewers.
pub(crate) struct Told {
    pub(crate) seq: u64,
    pub(crate) body: Bytes,
    pub(crate) audience: Audience,
    /// The executor's own copy.
    pub(crate) private: Option<(ParticipantId, Bytes)>,
}

impl Told {
    fn for_all_alike(&self) -> bool {
        self.private.is_none() && self.audience == Audience::everyone()
    }

    /// What this viewer is told, if anything.
    pub(crate) fn body_for(&self, viewer: &Viewer) -> Option<&Bytes> {
        match &self.private {
            Some((to, body)) if *to == viewer.participant => Some(body),
            Some(_) | None => viewer.may_see(&self.audience).then_some(&self.body),
        }
    }
}

impl Told {
    /// As `body_for`; who did not say who they are sees what everyone may.
    pub(crate) fn body_for_reader(&self, viewer: Option<&Viewer>) -> Option<&Bytes> {
        match viewer {
            Some(viewer) => self.body_for(viewer),
            None => (self.audience == Audience::everyone()).then_some(&self.body),
        }
    }
}

/// Consecutive entries in the ring.
struct Chunk {
    first: u64,
    last: u64,
    frames: Frames,
}

enum Frames {
    /// For everyone alike: whole frames one after the other, and where each ends.
    Shared { bytes: Bytes, ends: Vec<u32> },
    /// For some only, or not alike for all.
    Single {
        frame: Bytes,
        audience: Audience,
        private: Option<(ParticipantId, Bytes)>,
    },
}

impl Chunk {
    fn shared(run: &[Told]) -> Self {
        let mut bytes = BytesMut::with_capacity(run.iter().map(|told| told.body.len() + 10).sum());
        let ends = run
            .iter()
            .map(|told| {
                append_text_frame(&mut bytes, &told.body);
                u32::try_from(bytes.len()).unwrap_or(u32::MAX)
            })
            .collect();
        let frames = Frames::Shared {
            bytes: bytes.freeze(),
            ends,
        };
        Self {
            first: run[0].seq,
            last: run[run.len() - 1].seq,
            frames,
        }
    }

    fn single(told: Told) -> Self {
        let private = told.private.map(|(to, body)| (to, text_frame(&body)));
        let frame = text_frame(&told.body);
        let frames = Frames::Single {
            frame,
            audience: told.audience,
            private,
        };
        Self {
            first: told.seq,
            last: told.seq,
            frames,
        }
    }

    fn size(&self) -> usize {
        match &self.frames {
            Frames::Shared { bytes, ends } => bytes.len() + ends.len() * 4,
            Frames::Single { frame, private, .. } => {
                frame.len() + private.as_ref().map_or(0, |(_, frame)| frame.len())
            }
        }
    }

    /// What a viewer gets of this chunk from `from` on.
    fn part(&self, from: u64, viewer: &Viewer) -> Option<Bytes> {
        match &self.frames {
            Frames::Shared { bytes, .. } if from <= self.first => Some(bytes.clone()),
            Frames::Shared { bytes, ends } => {
                let skip = usize::try_from(from - self.first).ok()?;
                Some(bytes.slice(ends[skip - 1] as usize..))
            }
            Frames::Single {
                private: Some((to, frame)),
                ..
            } if *to == viewer.participant => Some(frame.clone()),
            Frames::Single {
                frame, audience, ..
            } => viewer.may_see(audience).then(|| frame.clone()),
        }
    }
}

/// Consecutive entries that every viewer sees alike are merged up to this size.
const MERGE_BYTES: usize = 64 * 1024;

#[derive(Default)]
struct Ring {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    /// The last seq that may be told.
    head: u64,
    whispers: VecDeque<(u64, Bytes)>,
    last_whisper: u64,
    /// The session is being put away; connections must come again.
    closed: bool,
}

/// Where a connection is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The next seq to tell.
    pub(crate) next: u64,
    pub(crate) whisper: u64,
}

/// What a look at the ring gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Frames, or nothing but a moved cursor.
    Some,
    /// Nothing to tell.
    UpToDate,
    /// The ring no longer has what comes next; the store does.
    Behind,
    /// The session is gone from memory.
    Closed,
}

/// The ring of a session and the bell that wakes its viewers.
#[derive(Default)]
pub(crate) struct Feed {
    ring: RwLock<Ring>,
    bell: Notify,
}

impl Feed {
    pub(crate) fn bell(&self) -> &Notify {
        &self.bell
    }

    /// The last seq that may be told.
    pub(crate) fn head(&self) -> u64 {
        self.ring.read().head
    }

    /// Whether the session is being put away.
    pub(crate) fn is_closed(&self) -> bool {
        self.ring.read().closed
    }

    /// Where someone starts who has seen everything up to `seen`.
    pub(crate) fn cursor_after(&self, seen: u64) -> Cursor {
        Cursor {
            next: seen + 1,
            whisper: self.ring.read().last_whisper,
        }
    }

    /// The log has been read up to here; what is not in the ring comes from the store.
    pub(crate) fn start_at_least(&self, head: u64) {
        let mut ring = self.ring.write();
        if head > ring.head {
            ring.chunks.clear();
            ring.bytes = 0;
            ring.head = head;
        }
        drop(ring);
        self.bell.notify_waiters();
    }

    /// Tells durable entries.
    pub(crate) fn publish(&self, told: Vec<Told>) {
        let Some(last) = told.last() else { return };
        let head = last.seq;
        let chunks = merge(told);
        let mut ring = self.ring.write();
        for chunk in chunks {
            ring.bytes += chunk.size();
            ring.chunks.push_back(chunk);
        }
        ring.head = head;
        while ring.bytes > RING_BYTES && ring.chunks.len() > 1 {
            if let Some(oldest) = ring.chunks.pop_front() {
                ring.bytes -= oldest.size();
            }
        }
        drop(ring);
        self.bell.notify_waiters();
    }

    /// Tells something that is not kept.
    pub(crate) fn whisper(&self, text: &[u8]) {
        let frame = text_frame(text);
        let mut ring = self.ring.write();
        ring.last_whisper += 1;
        let number = ring.last_whisper;
        ring.whispers.push_back((number, frame));
        if ring.whispers.len() > WHISPERS {
            ring.whispers.pop_front();
        }
        drop(ring);
        self.bell.notify_waiters();
    }

    /// No more will be told here.
    pub(crate) fn close(&self) {
        self.ring.write().closed = true;
        self.bell.notify_waiters();
    }

    /// Moves a cursor on, handing out at most one batch of what its viewer may see.
    pub(crate) fn take(
        &self,
        cursor: &mut Cursor,
        viewer: &Viewer,
        mut push: impl FnMut(Bytes),
    ) -> Taken {
        let ring = self.ring.read();
        let (mut pieces, mut bytes) = (0, 0);
        let before = *cursor;
        if cursor.whisper < ring.last_whisper {
            for (number, frame) in &ring.whispers {
                if *number > cursor.whisper {
                    push(frame.clone());
                    pieces += 1;
                }
            }
            cursor.whisper = ring.last_whisper;
        }
        if cursor.next <= ring.head {
            let oldest = ring
                .chunks
                .front()
                .map_or(ring.head + 1, |chunk| chunk.first);
            if cursor.next < oldest {
                return Taken::Behind;
            }
            let start = ring
                .chunks
                .partition_point(|chunk| chunk.last < cursor.next);
            for chunk in ring.chunks.iter().skip(start) {
                if pieces >= BATCH || bytes >= BATCH_BYTES {
                    break;
                }
                if let Some(part) = chunk.part(cursor.next, viewer) {
                    bytes += part.len();
                    pieces += 1;
                    push(part);
                }
                cursor.next = chunk.last + 1;
            }
        }
        match () {
            () if *cursor != before => Taken::Some,
            () if ring.closed => Taken::Closed,
            () => Taken::UpToDate,
        }
    }
}

fn merge(told: Vec<Told>) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    let mut run: Vec<Told> = Vec::new();
    let mut run_bytes = 0;
    let flush = |run: &mut Vec<Told>, chunks: &mut Vec<Chunk>| {
        if !run.is_empty() {
            chunks.push(Chunk::shared(run));
            run.clear();
        }
    };
    for entry in told {
        let alike = entry.for_all_alike();
        if !alike || run_bytes > MERGE_BYTES {
            flush(&mut run, &mut chunks);
            run_bytes = 0;
        }
        if alike {
            run_bytes += entry.body.len();
            run.push(entry);
        } else {
            chunks.push(Chunk::single(entry));
        }
    }
    flush(&mut run, &mut chunks);
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

    fn told(seq: u64, audience: Audience) -> Told {
        Told {
            seq,
            body: Bytes::from(format!("e{seq}")),
            audience,
            private: None,
        }
    }

    fn only(name: &str) -> Audience {
        Audience::only([ParticipantId::parse(name).unwrap()])
    }

    /// Everything a viewer gets from a cursor on, as the texts of the frames.
    fn read(feed: &Feed, from: u64, viewer: &Viewer) -> (Vec<String>, Cursor) {
        let mut cursor = Cursor {
            next: from,
            whisper: 0,
        };
        let mut bytes = Vec::new();
        while feed.take(&mut cursor, viewer, |frame| bytes.extend_from_slice(&frame)) == Taken::Some
        {
        }
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
        let feed = Feed::default();
        let everyone = Audience::everyone;
        let mut private = told(4, everyone());
        private.private = Some((ParticipantId::parse("bot").unwrap(), Bytes::from("secret4")));
        feed.publish(vec![
            told(1, everyone()),
            told(2, everyone()),
            told(3, only("ann")),
            private,
            told(5, everyone()),
        ]);
        assert_eq!(
            read(&feed, 1, &viewer("ann")).0,
            ["e1", "e2", "e3", "e4", "e5"]
        );
        assert_eq!(read(&feed, 1, &viewer("bob")).0, ["e1", "e2", "e4", "e5"]);
        assert_eq!(
            read(&feed, 1, &viewer("bot")).0,
            ["e1", "e2", "secret4", "e5"]
        );
    }

    #[test]
    fn a_cursor_in_the_middle_of_a_merged_run_gets_only_the_rest() {
        let feed = Feed::default();
        feed.publish((1..=9).map(|seq| told(seq, Audience::everyone())).collect());
        let (texts, cursor) = read(&feed, 6, &viewer("ann"));
        assert_eq!(texts, ["e6", "e7", "e8", "e9"]);
        assert_eq!(cursor.next, 10);
    }

    #[test]
    fn who_falls_out_of_the_ring_is_sent_to_the_store() {
        let feed = Feed::default();
        let big = |seq| Told {
            body: Bytes::from(vec![b'x'; RING_BYTES / 4]),
            ..told(seq, Audience::everyone())
        };
        for seq in 1..=12 {
            feed.publish(vec![big(seq)]);
        }
        let mut cursor = Cursor {
            next: 1,
            whisper: 0,
        };
        assert_eq!(
            feed.take(&mut cursor, &viewer("ann"), |_| {}),
            Taken::Behind
        );
        assert_eq!(cursor.next, 1);
        assert!(feed.ring.read().bytes <= RING_BYTES + RING_BYTES / 4);
    }

    #[test]
    fn after_a_restart_everything_older_is_in_the_store() {
        let feed = Feed::default();
        feed.start_at_least(7);
        let mut cursor = Cursor {
            next: 7,
            whisper: 0,
        };
        assert_eq!(
            feed.take(&mut cursor, &viewer("ann"), |_| {}),
            Taken::Behind
        );
        let mut cursor = feed.cursor_after(7);
        assert_eq!(
            feed.take(&mut cursor, &viewer("ann"), |_| {}),
            Taken::UpToDate
        );
        feed.close();
        assert_eq!(
            feed.take(&mut cursor, &viewer("ann"), |_| {}),
            Taken::Closed
        );
    }

    #[test]
    fn whispers_reach_those_who_are_there_and_are_bounded() {
        let feed = Feed::default();
        let mut cursor = feed.cursor_after(0);
        for _ in 0..1000 {
            feed.whisper(b"w");
        }
        let mut heard = 0;
        feed.take(&mut cursor, &viewer("ann"), |_| heard += 1);
        assert_eq!(heard, WHISPERS);
        assert_eq!(
            feed.take(&mut cursor, &viewer("ann"), |_| {}),
            Taken::UpToDate
        );
    }
}
