//! Entries as frames, in chunks that the connections of a session share.

use bytes::{Bytes, BytesMut};
use pvp_protocol::ParticipantId;
use pvp_session::Audience;

use super::Delivery;
use crate::socket::{append_text_frame, text_frame};
use crate::viewer::Viewer;

/// Consecutive entries that are the same for every viewer are merged into chunks of about this
/// size, in bytes.
const MAX_MERGED_BYTES: usize = 64 * 1024;

/// Consecutive entries in the ring.
pub(super) struct RingChunk {
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
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

    pub(super) fn size(&self) -> usize {
        match &self.frames {
            ChunkFrames::Shared { bytes, ends } => bytes.len() + ends.len() * 4,
            ChunkFrames::Single {
                frame,
                executor_copy,
                ..
            } => frame.len() + executor_copy.as_ref().map_or(0, |(_, frame)| frame.len()),
        }
    }

    /// The frames of this chunk that a viewer may see, from the sequence number `from` up to, but not
    /// including, `until`.
    pub(super) fn frames_between(&self, from: u64, until: u64, viewer: &Viewer) -> Option<Bytes> {
        match &self.frames {
            ChunkFrames::Shared { bytes, ends } => {
                // The end of the entry before this one, or of the last.
                let offset = |seq: u64| {
                    let entries = seq.saturating_sub(self.first_seq).min(ends.len() as u64);
                    match usize::try_from(entries) {
                        Ok(0) | Err(_) => 0,
                        Ok(entries) => ends[entries - 1] as usize,
                    }
                };
                let range = offset(from)..offset(until);
                (!range.is_empty()).then(|| bytes.slice(range))
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

/// The deliveries as chunks, which share a buffer where everyone may see them.
pub(super) fn merge_into_chunks(deliveries: Vec<Delivery>) -> Vec<RingChunk> {
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
