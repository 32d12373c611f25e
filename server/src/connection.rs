//! One WebSocket connection: first a stranger in the lobby, then a participant in a room.

mod fetch;
mod lobby;
mod room;

pub(crate) use lobby::{anyone, check as check_token};

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::house::{House, Place};
use crate::socket::{Incoming, Socket, SocketError, Stream, text_frame};
use crate::token::Login;

/// How long a closing connection may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

/// Close codes, as WebSocket defines them.
mod code {
    pub(super) const NORMAL: u16 = 1000;
    pub(super) const GOING_AWAY: u16 = 1001;
    pub(super) const POLICY: u16 = 1008;
    pub(super) const TOO_BIG: u16 = 1009;
    pub(super) const TRY_AGAIN: u16 = 1013;
}

/// Why a connection ends: what the other side is told.
struct Farewell {
    code: u16,
    reason: String,
}

impl Farewell {
    fn new(code: u16, reason: &str) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
        }
    }
}

/// How a connection ended.
enum Ended {
    /// We end it.
    ByUs(Farewell),
    /// The other side closed, broke the protocol or is gone; the socket knows what to answer.
    ByThem,
}

/// Serves a connection from the upgrade to its end.
pub(crate) async fn serve(
    mut socket: Box<Socket<Stream>>,
    house: Arc<House>,
    login: Option<Login>,
    place: Place,
) {
    // Boxed here and where messages are heard: a task is as large as the largest thing it may wait
    // for, and most connections wait for the next message only.
    let ended = match Box::pin(lobby::wait(&mut socket, &house, login, place)).await {
        Ok(seat) => Box::pin(room::follow(&mut socket, house, seat)).await,
        Err(ended) => ended,
    };
    if let Ended::ByUs(farewell) = ended {
        socket.close(farewell.code, &farewell.reason);
    }
    // Whoever does not answer the close in time is dropped.
    let _ = tokio::time::timeout(GOODBYE, poll_fn(|cx| socket.poll_closed(cx))).await;
}

/// Sends one message.
fn push<IO: AsyncRead + AsyncWrite + Unpin>(socket: &mut Socket<IO>, text: &[u8]) {
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
