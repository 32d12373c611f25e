//! A WebSocket that sends shared, pre-encoded frames and keeps no large buffer while it is idle.

mod frame;
mod frame_tracker;
mod reader;
mod stream;
#[cfg(test)]
mod tests;
mod upgrade;
mod writer;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tungstenite::Message;

pub use crate::network_stream::NetworkStream;
pub use frame::{append_text_frame, text_frame, text_frame_of_parts};
pub use stream::SocketStream;
pub use tungstenite::Utf8Bytes;
pub use upgrade::{PendingUpgrade, SUBPROTOCOL, UpgradeRefusal, upgrade};

use reader::{MessageReader, ReadState};
use writer::FrameWriter;

/// Bounds on what a peer may make the server hold in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketLimits {
    /// Bytes in one message, all fragments together; a larger one closes the connection with 1009.
    pub max_message: usize,
}

/// What a peer sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    Text(Utf8Bytes),
    /// PVP has no binary messages; the caller can refuse this one without closing.
    Binary(Bytes),
    /// The peer closed the connection with this code; the answer is queued.
    Closed {
        code: Option<u16>,
    },
}

/// Why nothing more can be read.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("message is larger than {limit} bytes")]
    TooBig { limit: usize },
    #[error("text is not UTF-8")]
    BadUtf8,
    #[error("not WebSocket: {0}")]
    Protocol(tungstenite::error::ProtocolError),
    #[error("peer left without closing")]
    Disconnected,
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
}

impl SocketError {
    /// The close code to send to the peer; `None` if the peer is gone.
    pub fn close_code(&self) -> Option<u16> {
        match self {
            SocketError::TooBig { .. } => Some(1009),
            SocketError::BadUtf8 => Some(1007),
            SocketError::Protocol(_) => Some(1002),
            SocketError::Disconnected | SocketError::Io(_) => None,
        }
    }
}

/// A connection after its upgrade. It has no task and no timer of its own: the owner polls it.
#[derive(Debug)]
pub struct Socket<IO> {
    io: IO,
    reader: MessageReader,
    writer: FrameWriter,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Socket<IO> {
    /// Wraps a stream. `leftover` is input that was read together with the HTTP request.
    pub fn new(io: IO, leftover: Bytes, limits: SocketLimits) -> Self {
        let reader = MessageReader::new(leftover, limits.max_message);
        let writer = FrameWriter::default();
        Self { io, reader, writer }
    }

    /// Changes the size limit, from the next frame on.
    pub fn set_max_message(&mut self, bytes: usize) {
        self.reader.set_max_message(bytes);
    }

    /// Returns the next message. It answers pings and ignores pongs; both count in
    /// [`bytes_read`](Self::bytes_read).
    ///
    /// Work is bounded: after 64 KiB or 64 messages in a row this wakes the task and returns
    /// pending once. When it returns an error, the close frame is queued. After an error or
    /// `Closed`, only call [`poll_closed`](Self::poll_closed).
    pub fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Result<Incoming, SocketError>> {
        loop {
            if self.writer.pongs_backed_up() {
                ready!(self.poll_write(cx))?;
            }
            let Poll::Ready(message) = self.reader.poll_message(&mut self.io, cx) else {
                return self.poll_pongs(cx);
            };
            if let Some(incoming) = self.on_message(message) {
                return Poll::Ready(incoming);
            }
        }
    }

    /// Whether everything is written, so that the next batch may be pushed.
    pub fn wants_frames(&self) -> bool {
        self.writer.is_idle() && !self.writer.is_closing()
    }

    /// Whether so much waits to be written that the owner should stop reading, because what it
    /// reads may need answers.
    pub fn is_backed_up(&self) -> bool {
        self.writer.is_backed_up()
    }

    /// Queues one buffer of whole encoded frames; up to 64 buffers go out in one vectored write.
    /// Ignored once a close is queued.
    pub fn push(&mut self, frames: Bytes) {
        self.writer.push(frames);
    }

    /// Ready when everything queued is written and flushed. Work is bounded: after 1 MiB this wakes
    /// the task and returns pending once.
    pub fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer.poll_write(&mut self.io, cx)
    }

    /// Grows while the peer reads. If frames are queued and it does not grow, the peer has stalled.
    pub fn bytes_written(&self) -> u64 {
        self.writer.bytes_written()
    }

    /// Grows while the peer sends anything, including control frames and partial messages.
    pub fn bytes_read(&self) -> u64 {
        self.reader.bytes_read()
    }

    /// Queues a close behind the frames already queued; the first close wins.
    /// The reason is cut to 123 bytes, which is what a close frame has room for.
    pub fn close(&mut self, code: u16, reason: &str) {
        self.writer.close(Some(code), reason);
    }

    /// After a close in either direction: ready when everything queued is written and the peer has
    /// closed or disconnected. Input is drained meanwhile, because closing a connection with unread
    /// input resets it, and a reset can discard the close frame. The caller bounds the time and
    /// then drops the socket.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let written = self.writer.poll_write(&mut self.io, cx);
        if let Poll::Ready(Err(_)) = written {
            return Poll::Ready(()); // The peer is gone and cannot read the close frame.
        }
        let input = ready!(self.reader.poll_until_closed(&mut self.io, cx));
        let drained = self.reader.poll_discard(&mut self.io, cx);
        // Everything is flushed before the shutdown, so a failed shutdown loses nothing.
        if written.is_pending() || Pin::new(&mut self.io).poll_shutdown(cx).is_pending() {
            return Poll::Pending;
        }
        match input {
            // The peer's close cannot be parsed any more; wait until it disconnects.
            ReadState::Broken => drained,
            ReadState::Open | ReadState::Closed | ReadState::Disconnected => Poll::Ready(()),
        }
    }

    fn on_message(
        &mut self,
        message: Result<Message, SocketError>,
    ) -> Option<Result<Incoming, SocketError>> {
        match message {
            Ok(Message::Text(text)) => Some(Ok(Incoming::Text(text))),
            Ok(Message::Binary(bytes)) => Some(Ok(Incoming::Binary(bytes))),
            Ok(Message::Ping(payload)) => {
                self.writer.push_pong(&payload);
                None
            }
            Ok(Message::Pong(_) | Message::Frame(_)) => None,
            Ok(Message::Close(frame)) => {
                let code = frame.map(|frame| u16::from(frame.code));
                self.writer.close(code, "");
                Some(Ok(Incoming::Closed { code }))
            }
            Err(error) => {
                if let Some(code) = error.close_code() {
                    self.writer.close(Some(code), &error.to_string());
                }
                Some(Err(error))
            }
        }
    }

    /// Writes queued pongs, in case the owner polled writing before reading.
    fn poll_pongs(&mut self, cx: &mut Context<'_>) -> Poll<Result<Incoming, SocketError>> {
        if self.writer.has_pongs()
            && let Poll::Ready(Err(error)) = self.poll_write(cx)
        {
            return Poll::Ready(Err(error.into()));
        }
        Poll::Pending
    }
}
