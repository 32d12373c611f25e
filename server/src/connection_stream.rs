//! The transport of one HTTP connection, which gives up on a peer that does not read.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use crate::directory::ConnectionSlot;

/// Whoever takes fewer bytes in the time that a connection may stall does not read.
pub(crate) const MIN_PROGRESS_BYTES: u64 = 4096;

/// A TCP stream whose writes fail once its peer has taken nothing for too long.
pub(crate) struct ConnectionStream {
    tcp: TcpStream,
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
    pub(crate) fn new(tcp: TcpStream, stall_timeout: Duration, slot: Arc<ConnectionSlot>) -> Self {
        Self {
            tcp,
            stall_timeout,
            stall: None,
            slot,
        }
    }

    /// The stream itself, for an upgraded connection, which watches over its peer on its own.
    pub(crate) fn into_tcp(self) -> TcpStream {
        self.tcp
    }

    /// Passes on the outcome of a write, unless the peer has stalled.
    fn check_progress(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            if let Some(stall) = &mut self.stall {
                stall.written += *bytes as u64;
            }
            return written;
        }
        if written.is_ready() {
            return written;
        }
        let timeout = self.stall_timeout;
        let stall = self.stall.get_or_insert_with(|| StallTimer {
            sleep: Box::pin(tokio::time::sleep(timeout)),
            written: 0,
        });
        while stall.sleep.as_mut().poll(cx).is_ready() {
            if stall.written < MIN_PROGRESS_BYTES {
                let problem = "the client does not read";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, problem)));
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
        Pin::new(&mut self.get_mut().tcp).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ConnectionStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.tcp).poll_write(cx, bytes);
        this.check_progress(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.tcp).poll_write_vectored(cx, slices);
        this.check_progress(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    /// Called when everything that was handed over is written.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.tcp).poll_flush(cx))?;
        this.stall = None;
        this.slot.record_flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}
