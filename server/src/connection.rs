//! Serves one WebSocket connection: first the handshake, then a participant of a session.

mod backfill;
mod handshake;
mod participant;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pvp_protocol::Refusal;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::directory::{ConnectionSlot, SessionDirectory};
use crate::socket::{Incoming, Socket, SocketError, SocketStream, text_frame};
use crate::token::Login;

/// How long the peer may take to answer a close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Close codes, as WebSocket defines them.
mod close_code {
    pub(super) const NORMAL: u16 = 1000;
    pub(super) const GOING_AWAY: u16 = 1001;
    pub(super) const POLICY: u16 = 1008;
    pub(super) const TOO_BIG: u16 = 1009;
    pub(super) const TRY_AGAIN: u16 = 1013;
}

/// The close code and reason that the peer receives.
struct CloseReason {
    code: u16,
    reason: String,
}

impl CloseReason {
    fn new(code: u16, reason: &str) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
        }
    }
}

/// How a connection ended.
enum ConnectionEnd {
    /// The server closes it.
    ByServer(CloseReason),
    /// The peer closed it, broke the protocol or disconnected; the socket has queued the answer.
    ByPeer,
}

/// Serves a connection from the upgrade to its end.
pub(crate) async fn serve(
    mut socket: Box<Socket<SocketStream>>,
    directory: Arc<SessionDirectory>,
    login: Option<Login>,
    slot: Arc<ConnectionSlot>,
) {
    // Boxed here and where messages are handled: a task is as large as the largest future it may
    // await, and most connections only wait for the next message.
    let end = match Box::pin(handshake::await_join(&mut socket, &directory, login, slot)).await {
        Ok(admitted) => Box::pin(participant::serve(&mut socket, directory, admitted)).await,
        Err(end) => end,
    };
    if let ConnectionEnd::ByServer(close_reason) = end {
        socket.close(close_reason.code, &close_reason.reason);
    }
    // A peer that does not answer the close in time is dropped.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, poll_fn(|cx| socket.poll_closed(cx))).await;
}

/// The refusal of a frame that is not text.
fn binary_frame() -> Refusal {
    Refusal::Malformed("send text frames, one message each".to_owned())
}

/// A refusal as the server's own log may show it: one that quotes what could not be parsed may
/// contain a secret.
fn loggable(refusal: &Refusal) -> String {
    if let Refusal::Malformed(_) = refusal {
        return "not a message".to_owned();
    }
    refusal.to_string()
}

/// Sends one message.
fn push_text<IO: AsyncRead + AsyncWrite + Unpin>(socket: &mut Socket<IO>, text: &[u8]) {
    socket.push(text_frame(text));
}

/// Reads and writes until a message arrives.
fn poll_message<IO: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut Socket<IO>,
    cx: &mut Context<'_>,
) -> Poll<Result<Incoming, SocketError>> {
    if let Poll::Ready(Err(error)) = socket.poll_write(cx) {
        return Poll::Ready(Err(SocketError::Io(error)));
    }
    socket.poll_incoming(cx)
}
