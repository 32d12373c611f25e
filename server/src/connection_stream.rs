//! The transport of one HTTP connection, which gives up on a peer that does not read.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::directory::ConnectionSlot;
use crate::network_stream::NetworkStream;

/// Whoever takes fewer bytes in the time that a connection may stall does not read.
pub(crate) const MIN_PROGRESS_BYTES: u64 = 4096;

/// A stream whose writes fail once its peer has taken nothing for too long.
pub(crate) struct ConnectionStream {
    network_stream: NetworkStream,
    stall_timeout: Duration,
    /// Counts while something waits to be written; `None` otherwise.
    stall: Option<StallTimer>,
    /// Told when everything is written.
    slot: Arc<ConnectionSlot>,
}

/// How long something has been waiting, and how much went out in that time.
struct StallTimer {
    sleep: Pin<Box<Sleep>>,
    written: u64,
}

impl ConnectionStream {
    pub(crate) fn new(
        network_stream: NetworkStream,
        stall_timeout: Duration,
        slot: Arc<ConnectionSlot>,
    ) -> Self {
        Self {
            network_stream,
            stall_timeout,
            stall: None,
            slot,
        }
    }

    /// The stream itself, for an upgraded connection, which watches over its peer on its own.
    pub(crate) fn into_network_stream(self) -> NetworkStream {
        self.network_stream
    }

    /// Passes on the outcome of a write, unless the peer has stalled.
    fn check_progress(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match (&written, &mut self.stall) {
            (Poll::Ready(Ok(bytes)), Some(stall)) => stall.written += *bytes as u64,
            (Poll::Ready(_), _) => {}
            (Poll::Pending, _) => return self.poll_stalled(cx).map(Err),
        }
        written
    }

    /// Ready with the error once the peer has taken too little for too long.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let timeout = self.stall_timeout;
        let stall = self.stall.get_or_insert_with(|| StallTimer {
            sleep: Box::pin(tokio::time::sleep(timeout)),
            written: 0,
        });
        while stall.sleep.as_mut().poll(cx).is_ready() {
            if stall.written < MIN_PROGRESS_BYTES {
                let problem = "the client does not read";
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
            stall.written = 0;
            stall.sleep.as_mut().reset(Instant::now() + timeout);
        }
        Poll::Pending
    }
}

impl AsyncRead for ConnectionStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().network_stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ConnectionStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.network_stream).poll_write(cx, bytes);
        this.check_progress(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.network_stream).poll_write_vectored(cx, slices);
        this.check_progress(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.network_stream.is_write_vectored()
    }

    /// Called when everything that was handed over is written.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Poll::Ready(flushed) = Pin::new(&mut this.network_stream).poll_flush(cx) else {
            // What TLS has taken may still wait for the peer.
            return this.poll_stalled(cx).map(Err);
        };
        flushed?;
        this.stall = None;
        this.slot.record_flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().network_stream).poll_shutdown(cx)
    }
}
