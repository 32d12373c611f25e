//! Reads messages from bytes, without a read buffer per connection while the peer is silent.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, ReadBuf};
use tungstenite::Message;
use tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};

use super::SocketError;
use super::frame_tracker::FrameTracker;

/// Bytes that one read can return. One such buffer per thread serves all its connections.
const SCRATCH_BYTES: usize = 32 * 1024;

/// Bytes read in a row before other tasks get a turn.
const READ_BUDGET: usize = 64 * 1024;

/// Messages returned in a row before other tasks get a turn: as many as a connection may have
/// unanswered, so that a burst is decided, written and published together.
const MESSAGE_BUDGET: usize = 64;

/// The initial size of the parser's buffer in bytes; larger messages grow it.
const PARSER_BUFFER_BYTES: usize = 256;

/// After a message of more bytes than this, the parser's grown buffer is freed.
const LARGE_MESSAGE_BYTES: usize = 512;

/// Whether more messages can be read from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadState {
    Open,
    /// The peer sent a close.
    Closed,
    /// The peer broke the protocol, so its input can no longer be parsed.
    Broken,
    /// The connection has ended.
    Disconnected,
}

#[derive(Debug)]
pub(super) struct MessageReader {
    /// tungstenite's parser.
    parser: WebSocketContext,
    /// Finds frame boundaries, so that the parser gets one frame at a time.
    frame_tracker: FrameTracker,
    /// The size limit of a message, in bytes.
    max_message: usize,
    /// Input that was read after the last returned message, not parsed yet.
    buffered: Bytes,
    /// Whether more messages can be read.
    state: ReadState,
    /// All bytes read from this peer.
    bytes_read: u64,
    /// Bytes read since other tasks last got a turn.
    bytes_since_yield: usize,
    /// Messages returned since other tasks last got a turn.
    messages_since_yield: usize,
}

impl MessageReader {
    pub(super) fn new(leftover: Bytes, max_message: usize) -> Self {
        Self {
            parser: new_parser(max_message),
            frame_tracker: FrameTracker::default(),
            max_message,
            // A copy, because the original may be a small slice that keeps a large HTTP buffer.
            buffered: Bytes::copy_from_slice(&leftover),
            state: ReadState::Open,
            bytes_read: leftover.len() as u64,
            bytes_since_yield: 0,
            messages_since_yield: 0,
        }
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    pub(super) fn set_max_message(&mut self, bytes: usize) {
        self.max_message = bytes;
        self.parser.set_config(|config| {
            config.max_message_size = Some(bytes);
            config.max_frame_size = Some(bytes);
        });
    }

    pub(super) fn poll_message<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Message, SocketError>> {
        if self.state != ReadState::Open {
            return Poll::Ready(Err(SocketError::Disconnected));
        }
        loop {
            if self.bytes_since_yield >= READ_BUDGET || self.messages_since_yield >= MESSAGE_BUDGET
            {
                return self.yield_now(cx);
            }
            let parsed = match self.parse_buffered() {
                Ok(None) => ready!(self.poll_read_and_parse(io, cx)),
                parsed => parsed,
            };
            if let Some(message) = parsed.transpose() {
                self.record_message(&message);
                return Poll::Ready(message);
            }
        }
    }

    /// Drops messages until the peer has closed, broken the protocol or disconnected.
    pub(super) fn poll_until_closed<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<ReadState> {
        while self.state == ReadState::Open {
            // Errors are recorded in `state`.
            let _ = ready!(self.poll_message(io, cx));
        }
        Poll::Ready(self.state)
    }

    /// Discards input; ready when the connection has ended.
    pub(super) fn poll_discard<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        self.buffered = Bytes::new();
        while self.state != ReadState::Disconnected {
            if self.bytes_since_yield >= READ_BUDGET {
                return self.yield_now(cx);
            }
            if let Err(_ended) = ready!(self.poll_read(io, cx, |_, _| ())) {
                self.state = ReadState::Disconnected;
            }
        }
        Poll::Ready(())
    }

    fn parse_buffered(&mut self) -> Result<Option<Message>, SocketError> {
        if self.buffered.is_empty() {
            return Ok(None);
        }
        let mut buffered = mem::take(&mut self.buffered);
        let mut input = &buffered[..];
        let parsed = self.parse(&mut input);
        let parsed_bytes = buffered.len() - input.len();
        buffered.advance(parsed_bytes);
        if !buffered.is_empty() {
            self.buffered = buffered;
        }
        parsed
    }

    fn poll_read_and_parse<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Message>, SocketError>> {
        let parsed = ready!(self.poll_read(io, cx, |reader, mut input| {
            let parsed = reader.parse(&mut input);
            reader.buffered = Bytes::copy_from_slice(input);
            parsed
        }));
        Poll::Ready(parsed.and_then(|parsed| parsed))
    }

    /// Reads once into the thread's scratch buffer.
    fn poll_read<IO: AsyncRead + Unpin, T>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
        consume: impl FnOnce(&mut Self, &[u8]) -> T,
    ) -> Poll<Result<T, SocketError>> {
        with_scratch_buffer(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            let Poll::Ready(read) = Pin::new(io).poll_read(cx, &mut buffer) else {
                self.reset_budget();
                return Poll::Pending;
            };
            read?;
            let bytes = buffer.filled();
            if bytes.is_empty() {
                return Poll::Ready(Err(SocketError::Disconnected));
            }
            self.bytes_read += bytes.len() as u64;
            self.bytes_since_yield += bytes.len();
            Poll::Ready(Ok(consume(self, bytes)))
        })
    }

    fn parse(&mut self, input: &mut &[u8]) -> Result<Option<Message>, SocketError> {
        let frame_tracker = &mut self.frame_tracker;
        match self.parser.read(&mut FrameInput {
            input,
            frame_tracker,
        }) {
            Ok(message) => Ok(Some(message)),
            Err(tungstenite::Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(None)
            }
            Err(error) => Err(to_socket_error(error, self.max_message)),
        }
    }

    fn record_message(&mut self, message: &Result<Message, SocketError>) {
        self.messages_since_yield += 1;
        match message {
            Ok(Message::Close(_)) => self.state = ReadState::Closed,
            // The parser gets one frame at a time, so it is empty after a whole message.
            Ok(message @ (Message::Text(_) | Message::Binary(_))) => {
                if message.len() > LARGE_MESSAGE_BYTES {
                    self.parser = new_parser(self.max_message);
                }
            }
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
            Err(SocketError::Disconnected | SocketError::Io(_)) => {
                self.state = ReadState::Disconnected
            }
            Err(SocketError::TooBig { .. } | SocketError::BadUtf8 | SocketError::Protocol(_)) => {
                self.state = ReadState::Broken;
            }
        }
    }

    fn yield_now<T>(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        self.reset_budget();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn reset_budget(&mut self) {
        self.bytes_since_yield = 0;
        self.messages_since_yield = 0;
    }
}

fn new_parser(max_message: usize) -> WebSocketContext {
    let config = WebSocketConfig::default()
        .read_buffer_size(PARSER_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(max_message))
        .max_frame_size(Some(max_message));
    WebSocketContext::new(Role::Server, Some(config))
}

/// The stream that the parser reads from: it returns at most one frame part per read, and
/// `WouldBlock` when the input is used up.
struct FrameInput<'a, 'input> {
    input: &'a mut &'input [u8],
    frame_tracker: &'a mut FrameTracker,
}

impl Read for FrameInput<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let offered = self.input.len().min(buffer.len());
        if offered == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let consumed = self.frame_tracker.consume(&self.input[..offered]);
        let (now, later) = self.input.split_at(consumed);
        buffer[..consumed].copy_from_slice(now);
        *self.input = later;
        Ok(consumed)
    }
}

/// The socket encodes its own replies, so those of the parser are discarded.
impl Write for FrameInput<'_, '_> {
    fn write(&mut self, reply: &[u8]) -> io::Result<usize> {
        Ok(reply.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn to_socket_error(error: tungstenite::Error, limit: usize) -> SocketError {
    use tungstenite::Error;
    match error {
        Error::Capacity(_) => SocketError::TooBig { limit },
        Error::Utf8(_) => SocketError::BadUtf8,
        Error::Protocol(violation) => SocketError::Protocol(violation),
        Error::Io(error) => SocketError::Io(error),
        // Reading returns none of these, so it is enough that they end the connection.
        error @ (Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Tls(_)
        | Error::WriteBufferFull(_)
        | Error::AttackAttempt
        | Error::Url(_)
        | Error::Http(_)
        | Error::HttpFormat(_)) => SocketError::Io(io::Error::other(error)),
    }
}

fn with_scratch_buffer<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local! {
        static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    let mut buffer = BUFFER.take();
    buffer.resize(SCRATCH_BYTES, 0);
    let result = read(&mut buffer);
    BUFFER.set(buffer);
    result
}
