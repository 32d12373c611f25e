//! Writes queued frames in few system calls, without interrupting one that is partly written.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;

use super::frame;

/// A batch of 64 buffers, and the pongs before it.
const MAX_SLICES: usize = 64 + 1;

/// Bytes written by one poll before other tasks get a turn.
const WRITE_BUDGET: usize = 1024 * 1024;

/// Bytes of unwritten pongs at which reading stops, or pings alone could fill the memory.
const MAX_PONG_BYTES: usize = 4 * 1024;

/// Bytes of unwritten frames at which the owner should stop reading, or a client that sends
/// requests but does not read the answers could fill the memory.
const MAX_QUEUED_BYTES: usize = 1024 * 1024;

/// An empty queue with room for more buffers than this is freed.
const KEPT_QUEUE_CAPACITY: usize = 16;

#[derive(Debug, Default)]
pub(super) struct FrameWriter {
    /// Buffers of whole frames that wait to be written.
    frames: VecDeque<Bytes>,
    /// The first of `frames` is partly written, so its rest must be written next.
    mid_frame: bool,
    /// Encoded pongs that wait to be written; the first may be partly written.
    pongs: BytesMut,
    /// A close is queued, after which nothing may follow.
    closing: bool,
    /// Bytes were written since the last flush.
    unflushed: bool,
    /// All bytes written to this peer.
    bytes_written: u64,
}

impl FrameWriter {
    pub(super) fn is_idle(&self) -> bool {
        self.frames.is_empty() && self.pongs.is_empty()
    }

    pub(super) fn is_backed_up(&self) -> bool {
        self.frames.iter().map(Bytes::len).sum::<usize>() >= MAX_QUEUED_BYTES
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    pub(super) fn has_pongs(&self) -> bool {
        !self.pongs.is_empty()
    }

    pub(super) fn pongs_backed_up(&self) -> bool {
        self.pongs.len() >= MAX_PONG_BYTES
    }

    pub(super) fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    pub(super) fn push(&mut self, frames: Bytes) {
        if !self.closing && !frames.is_empty() {
            self.frames.push_back(frames);
        }
    }

    pub(super) fn push_pong(&mut self, payload: &[u8]) {
        if !self.closing {
            frame::append_pong(&mut self.pongs, payload);
        }
    }

    /// Queues a close after the frames, and closes the queue, because nothing may follow a close.
    pub(super) fn close(&mut self, code: Option<u16>, reason: &str) {
        self.push(frame::close_frame(code, reason));
        self.closing = true;
    }

    pub(super) fn poll_write<IO: AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut budget = WRITE_BUDGET;
        while !self.is_idle() {
            if budget == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let written = ready!(self.poll_write_once(io, cx))?;
            self.advance(written);
            budget = budget.saturating_sub(written);
        }
        if self.unflushed {
            ready!(Pin::new(io).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_once<IO: AsyncWrite + Unpin>(
        &self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(self.pending_slices()) {
            *slice = IoSlice::new(part);
            count += 1;
        }
        let written = ready!(Pin::new(io).poll_write_vectored(cx, &slices[..count]))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        Poll::Ready(Ok(written))
    }

    /// What to write, in order: the rest of a partly written buffer, the pongs, the other buffers.
    /// None of the slices is empty.
    fn pending_slices(&self) -> impl Iterator<Item = &[u8]> {
        let partial = usize::from(self.mid_frame);
        let pongs = Some(&self.pongs[..]).filter(|pongs| !pongs.is_empty());
        let frames = || self.frames.iter().map(|frame| &frame[..]);
        frames()
            .take(partial)
            .chain(pongs)
            .chain(frames().skip(partial))
    }

    fn advance(&mut self, mut written: usize) {
        self.unflushed = true;
        self.bytes_written += written as u64;
        if self.mid_frame {
            self.advance_frame(&mut written);
        }
        let pong_bytes = written.min(self.pongs.len());
        self.pongs.advance(pong_bytes);
        written -= pong_bytes;
        while written > 0 {
            self.advance_frame(&mut written);
        }
        self.release_buffers();
    }

    fn advance_frame(&mut self, written: &mut usize) {
        let Some(frame) = self.frames.front_mut() else {
            *written = 0; // Only a stream that claims to have written more than it got comes here.
            return;
        };
        let part = (*written).min(frame.len());
        *written -= part;
        frame.advance(part);
        self.mid_frame = !frame.is_empty();
        if frame.is_empty() {
            self.frames.pop_front();
        }
    }

    fn release_buffers(&mut self) {
        if self.pongs.is_empty() && self.pongs.capacity() > 0 {
            self.pongs = BytesMut::new();
        }
        if self.frames.is_empty() && self.frames.capacity() > KEPT_QUEUE_CAPACITY {
            self.frames = VecDeque::new();
        }
    }
}
