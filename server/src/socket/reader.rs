//! Messages out of bytes, with no buffer of its own while a peer is silent.

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
use super::meter::Meter;

/// Bytes one read can return; one such buffer a thread serves all its connections.
const SCRATCH: usize = 32 * 1024;

/// Bytes read in a row before other tasks get a turn.
const READ_BUDGET: usize = 64 * 1024;

/// Messages delivered in a row before other tasks get a turn: as many as a connection may have
/// unanswered, so that a burst is decided, written and told in one go.
const MESSAGE_BUDGET: usize = 64;

/// Bytes the parser starts with; larger messages grow it.
const PARSER_BUFFER: usize = 256;

/// Bytes of a message above which the parser's grown buffer is given back.
const LARGE_MESSAGE: usize = 512;

/// Whether more can come from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Open,
    /// The peer's close was read.
    Closed,
    /// What the peer sends cannot be understood any more.
    Broken,
    /// The connection has ended.
    Gone,
}

#[derive(Debug)]
pub(super) struct Reader {
    parser: WebSocketContext,
    meter: Meter,
    max_message: usize,
    /// Read, but behind a message that was already delivered.
    rest: Bytes,
    input: Input,
    bytes_read: u64,
    bytes_in_a_row: usize,
    messages_in_a_row: usize,
}

impl Reader {
    pub(super) fn new(leftover: Bytes, max_message: usize) -> Self {
        Self {
            parser: parser(max_message),
            meter: Meter::default(),
            max_message,
            // A copy, because the original may be a corner of a large HTTP buffer.
            rest: Bytes::copy_from_slice(&leftover),
            input: Input::Open,
            bytes_read: leftover.len() as u64,
            bytes_in_a_row: 0,
            messages_in_a_row: 0,
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
        if self.input != Input::Open {
            return Poll::Ready(Err(SocketError::Gone));
        }
        loop {
            if self.bytes_in_a_row >= READ_BUDGET || self.messages_in_a_row >= MESSAGE_BUDGET {
                return self.give_way(cx);
            }
            let parsed = match self.parse_rest() {
                Ok(None) => ready!(self.poll_parse_more(io, cx)),
                parsed => parsed,
            };
            if let Some(message) = parsed.transpose() {
                self.note(&message);
                return Poll::Ready(message);
            }
        }
    }

    /// Drops messages until the peer has closed, broken the protocol or left.
    pub(super) fn poll_last<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<Input> {
        while self.input == Input::Open {
            // Failures are kept in `input`.
            let _ = ready!(self.poll_message(io, cx));
        }
        Poll::Ready(self.input)
    }

    /// Throws input away; ready when the connection has ended.
    pub(super) fn poll_discard<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        self.rest = Bytes::new();
        while self.input != Input::Gone {
            if self.bytes_in_a_row >= READ_BUDGET {
                return self.give_way(cx);
            }
            if let Err(_ended) = ready!(self.poll_read(io, cx, |_, _| ())) {
                self.input = Input::Gone;
            }
        }
        Poll::Ready(())
    }

    fn parse_rest(&mut self) -> Result<Option<Message>, SocketError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut rest = mem::take(&mut self.rest);
        let mut input = &rest[..];
        let parsed = self.parse(&mut input);
        let parsed_bytes = rest.len() - input.len();
        rest.advance(parsed_bytes);
        if !rest.is_empty() {
            self.rest = rest;
        }
        parsed
    }

    fn poll_parse_more<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Message>, SocketError>> {
        let parsed = ready!(self.poll_read(io, cx, |reader, mut input| {
            let parsed = reader.parse(&mut input);
            reader.rest = Bytes::copy_from_slice(input);
            parsed
        }));
        Poll::Ready(parsed.and_then(|parsed| parsed))
    }

    /// One read into the thread's scratch buffer.
    fn poll_read<IO: AsyncRead + Unpin, T>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
        consume: impl FnOnce(&mut Self, &[u8]) -> T,
    ) -> Poll<Result<T, SocketError>> {
        with_scratch(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            let Poll::Ready(read) = Pin::new(io).poll_read(cx, &mut buffer) else {
                self.new_row();
                return Poll::Pending;
            };
            read?;
            let bytes = buffer.filled();
            if bytes.is_empty() {
                return Poll::Ready(Err(SocketError::Gone));
            }
            self.bytes_read += bytes.len() as u64;
            self.bytes_in_a_row += bytes.len();
            Poll::Ready(Ok(consume(self, bytes)))
        })
    }

    fn parse(&mut self, input: &mut &[u8]) -> Result<Option<Message>, SocketError> {
        let meter = &mut self.meter;
        match self.parser.read(&mut Feed { input, meter }) {
            Ok(message) => Ok(Some(message)),
            Err(tungstenite::Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                Ok(None)
            }
            Err(error) => Err(refusal(error, self.max_message)),
        }
    }

    fn note(&mut self, message: &Result<Message, SocketError>) {
        self.messages_in_a_row += 1;
        match message {
            Ok(Message::Close(_)) => self.input = Input::Closed,
            // The meter feeds one frame at a time, so the parser is empty behind a whole message.
            Ok(message @ (Message::Text(_) | Message::Binary(_))) => {
                if message.len() > LARGE_MESSAGE {
                    self.parser = parser(self.max_message);
                }
            }
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
            Err(SocketError::Gone | SocketError::Io(_)) => self.input = Input::Gone,
            Err(SocketError::TooBig { .. } | SocketError::BadUtf8 | SocketError::Protocol(_)) => {
                self.input = Input::Broken;
            }
        }
    }

    fn give_way<T>(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        self.new_row();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn new_row(&mut self) {
        self.bytes_in_a_row = 0;
        self.messages_in_a_row = 0;
    }
}

fn parser(max_message: usize) -> WebSocketContext {
    let config = WebSocketConfig::default()
        .read_buffer_size(PARSER_BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(max_message))
        .max_frame_size(Some(max_message));
    WebSocketContext::new(Role::Server, Some(config))
}

/// What the parser takes for its stream: frame by frame, and would block between.
struct Feed<'a, 'input> {
    input: &'a mut &'input [u8],
    meter: &'a mut Meter,
}

impl Read for Feed<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let offered = self.input.len().min(buffer.len());
        if offered == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = self.meter.take(&self.input[..offered]);
        let (now, later) = self.input.split_at(taken);
        buffer[..taken].copy_from_slice(now);
        *self.input = later;
        Ok(taken)
    }
}

/// The socket encodes its own replies, so those of the parser go nowhere.
impl Write for Feed<'_, '_> {
    fn write(&mut self, reply: &[u8]) -> io::Result<usize> {
        Ok(reply.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn refusal(error: tungstenite::Error, limit: usize) -> SocketError {
    use tungstenite::Error;
    match error {
        Error::Capacity(_) => SocketError::TooBig { limit },
        Error::Utf8(_) => SocketError::BadUtf8,
        Error::Protocol(violation) => SocketError::Protocol(violation),
        Error::Io(error) => SocketError::Io(error),
        // None of these comes from reading, so they only need to end the connection.
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

fn with_scratch<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local! {
        static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    let mut buffer = BUFFER.take();
    buffer.resize(SCRATCH, 0);
    let result = read(&mut buffer);
    BUFFER.set(buffer);
    result
}
