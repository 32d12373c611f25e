//! The task behind a connection: one socket after another, the same place in the log.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use pvp_protocol::payload::{
    Announce, ErrorReport, HeartbeatPing, HeartbeatPong, SessionAck, SessionJoin,
};
use pvp_protocol::{
    ClientMessage, Envelope, ErrorCode, ExtraFields, Heading, Limits, MessageId, Sender,
    ServerMessage, SessionId, VERSION, parse_server_message,
};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::{ConnectError, Ending, Event, Reply, SendError, Terms, fresh_id, written};
use crate::Link;
use crate::backoff::{Backoff, dice};
use crate::outbox::{Outbox, Outgoing, Weight};

/// How long connecting and joining may take.
const JOIN: Duration = Duration::from_secs(15);

/// How many heartbeats may be missed before the connection counts as lost.
const MISSED: u64 = 3;

/// Messages that wait to be sent before no more are taken.
const MOST_WAITING: usize = 1024;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Where to sit and as whom.
pub(super) struct Seat {
    pub(super) link: Link,
    pub(super) session: SessionId,
    pub(super) announce: Announce,
    pub(super) after: Option<u64>,
    pub(super) history: Option<u64>,
}

/// How one socket ended.
enum Finish {
    Lost(String),
    Over(Ending),
}

struct Task {
    seat: Seat,
    orders: mpsc::Receiver<Outgoing<Reply>>,
    events: mpsc::Sender<Event>,
    outbox: Outbox<Reply>,
    waiting: usize,
    terms: Terms,
    /// Told once whether the first join worked.
    first: Option<oneshot::Sender<Result<(), ConnectError>>>,
    backoff: Backoff,
    /// Nobody will send any more.
    closing: bool,
    /// Before closing: a ping, and how far we had been told when it was sent.
    last_ping: Option<(MessageId, Option<u64>)>,
    /// The last seq that is known to be ours to hear of, if it is for us.
    expected: u64,
    /// We said that we leave.
    leaving: bool,
    joined: bool,
}

/// Lives until the connection is over for good.
pub(super) async fn live(
    seat: Seat,
    orders: mpsc::Receiver<Outgoing<Reply>>,
    events: mpsc::Sender<Event>,
    first: oneshot::Sender<Result<(), ConnectError>>,
) {
    let mut task = Task {
        seat,
        orders,
        events,
        outbox: Outbox::default(),
        waiting: 0,
        terms: Terms::default(),
        first: Some(first),
        backoff: Backoff::default(),
        closing: false,
        last_ping: None,
        expected: 0,
        leaving: false,
        joined: false,
    };
    let ending = loop {
        match task.once().await {
            Finish::Over(ending) => break ending,
            Finish::Lost(why) => {
                if let Some(first) = task.first.take() {
                    // Who asked may have stopped waiting.
                    let _ = first.send(Err(ConnectError::Lost(why)));
                    return;
                }
                task.lost(why).await;
            }
        }
    };
    for outgoing in task.outbox.give_up() {
        let _ = outgoing.reply.send(Err(SendError::Over));
    }
    match (task.first.take(), ending) {
        (Some(first), Ending::Refused(report)) => {
            let _ = first.send(Err(ConnectError::Refused(report)));
        }
        (_, ending) => task.emit(Event::Ended(ending)).await,
    }
}

impl Task {
    /// Tells an event; nobody may be listening, which is their choice.
    async fn emit(&self, event: Event) {
        let _ = self.events.send(event).await;
    }

    /// Says that the connection is lost, and waits a while, still taking what is to be sent.
    async fn lost(&mut self, why: String) {
        for outgoing in self.outbox.reconnect() {
            self.waiting -= 1;
            // Who sent it may not care.
            let _ = outgoing.reply.send(Err(SendError::Passed));
        }
        self.joined = false;
        self.emit(Event::Down { why }).await;
        let until = Instant::now() + self.backoff.next(dice());
        loop {
            tokio::select! {
                () = sleep_until(until) => return,
                order = self.orders.recv(), if self.takes_orders() => self.take(order),
            }
        }
    }

    fn takes_orders(&self) -> bool {
        !self.closing && self.waiting < MOST_WAITING
    }

    fn take(&mut self, order: Option<Outgoing<Reply>>) {
        let Some(outgoing) = order else {
            self.closing = true;
            return;
        };
        if outgoing.text.len() > self.terms.message_bytes {
            let limit = self.terms.message_bytes;
            let report = ErrorReport {
                code: ErrorCode::InvalidMessage,
                message: format!("a message has at most {limit} bytes; nothing was sent"),
                recoverable: false,
                details: None,
                related_to: Some(outgoing.id),
                extra: ExtraFields::new(),
            };
            let _ = outgoing
                .reply
                .send(Err(SendError::Refused(Box::new(report))));
            return;
        }
        self.waiting += 1;
        self.outbox.push(outgoing);
    }

    /// One socket, from connecting to its end.
    async fn once(&mut self) -> Finish {
        let mut socket = match timeout(JOIN, self.connect()).await {
            Ok(Ok(socket)) => socket,
            Ok(Err(finish)) => return finish,
            Err(_) => return Finish::Lost("the server does not answer".to_owned()),
        };
        let join = fresh_id();
        let resuming = self.seat.after;
        if let Err(error) = socket.send(Message::text(self.join(&join))).await {
            return Finish::Lost(error.to_string());
        }
        let finish = self.follow(&mut socket, &join, resuming).await;
        if matches!(finish, Finish::Over(_)) {
            let close = CloseFrame {
                code: CloseCode::Normal,
                reason: "".into(),
            };
            // The other side may have closed already.
            let _ = timeout(JOIN, socket.close(Some(close))).await;
        }
        finish
    }

    async fn connect(&self) -> Result<Socket, Finish> {
        let lost = |error: Error| Finish::Lost(error.to_string());
        let mut request = self
            .seat
            .link
            .socket()
            .into_client_request()
            .map_err(lost)?;
        if let Some(token) = self.seat.link.token() {
            let bearer = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|error| Finish::Lost(error.to_string()))?;
            request.headers_mut().insert(AUTHORIZATION, bearer);
        }
        match tokio_tungstenite::connect_async_with_config(request, None, true).await {
            Ok((socket, _)) => Ok(socket),
            Err(Error::Http(response)) if response.status().is_client_error() => {
                let body = response.body().as_deref().unwrap_or_default();
                match serde_json::from_slice(body) {
                    Ok(report) => Err(Finish::Over(Ending::Refused(Box::new(report)))),
                    Err(_) => Err(Finish::Lost(format!("HTTP {}", response.status()))),
                }
            }
            Err(error) => Err(lost(error)),
        }
    }

    fn join(&self, id: &MessageId) -> String {
        let join = SessionJoin {
            participant: self.seat.announce.clone(),
            token: None,
            supported_versions: vec![u32::from(VERSION)],
            after: self.seat.after,
            history: self.seat.history,
            extra: ExtraFields::new(),
        };
        written(
            self.heading(id.clone(), None),
            ClientMessage::SessionJoin(join),
        )
    }

    fn heading(&self, id: MessageId, reference: Option<MessageId>) -> Heading {
        Heading {
            id,
            session: self.seat.session.clone(),
            sender: Sender::Participant(self.seat.announce.id.clone()),
            reference,
            causal_refs: Vec::new(),
            fork: None,
        }
    }

    async fn follow(
        &mut self,
        socket: &mut Socket,
        join: &MessageId,
        resuming: Option<u64>,
    ) -> Finish {
        let mut silent_at = Instant::now() + JOIN;
        loop {
            match self.may_close(socket).await {
                Ok(true) if self.leaving => return Finish::Over(Ending::Left),
                Ok(true) => return Finish::Over(Ending::Closed),
                Ok(false) => {}
                Err(error) => return Finish::Lost(error.to_string()),
            }
            let frame = tokio::select! {
                frame = socket.next() => frame,
                order = self.orders.recv(), if self.takes_orders() => {
                    self.take(order);
                    if let Err(error) = self.flush(socket).await {
                        return Finish::Lost(error.to_string());
                    }
                    continue;
                }
                () = sleep_until(silent_at) => {
                    return Finish::Lost("nothing was heard of the server".to_owned());
                }
            };
            let text = match frame {
                Some(Ok(Message::Text(text))) => text.as_str().to_owned(),
                Some(Ok(Message::Close(frame))) => return self.closed(frame),
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Finish::Lost(error.to_string()),
                None => return Finish::Lost("the connection was closed".to_owned()),
            };
            if let Some(finish) = self.hear(socket, text, join, resuming).await {
                return finish;
            }
            let patience = Duration::from_secs(self.terms.heartbeat_seconds.max(5) * MISSED);
            silent_at = Instant::now() + patience;
        }
    }

    /// Whether everything is answered and told that will be. What is told comes by another way
    /// than answers, so a ping asks whether more is coming.
    async fn may_close(&mut self, socket: &mut Socket) -> Result<bool, Error> {
        if !self.joined || !self.closing || !self.outbox.is_empty() {
            return Ok(false);
        }
        if self.seat.after.unwrap_or(0) >= self.expected {
            return Ok(true);
        }
        if self.last_ping.is_none() {
            let id = fresh_id();
            let ping = ClientMessage::HeartbeatPing(HeartbeatPing::default());
            let text = written(self.heading(id.clone(), None), ping);
            self.last_ping = Some((id, self.seat.after));
            socket.send(Message::text(text)).await?;
        }
        Ok(false)
    }

    /// Nothing was told since the ping: what is missing is not for us to see.
    fn ponged(&mut self, ping: &MessageId) {
        if let Some((id, after)) = &self.last_ping
            && id == ping
        {
            if *after == self.seat.after {
                self.expected = 0;
            }
            self.last_ping = None;
        }
    }

    fn closed(&self, frame: Option<CloseFrame>) -> Finish {
        if self.leaving {
            return Finish::Over(Ending::Left);
        }
        let why = frame.map(|frame| frame.reason.as_str().to_owned());
        let why = why.filter(|why| !why.is_empty());
        Finish::Lost(why.unwrap_or_else(|| "the server closed the connection".to_owned()))
    }

    /// Sends what the window has room for.
    async fn flush(&mut self, socket: &mut Socket) -> Result<(), Error> {
        if !self.joined {
            return Ok(());
        }
        while let Some((text, silent)) = self.outbox.next() {
            socket.feed(Message::text(text)).await?;
            if let Some(outgoing) = silent {
                self.waiting -= 1;
                let (id, seq, duplicate) = (outgoing.id, None, false);
                // Who sent it may not wait for the answer.
                let _ = outgoing.reply.send(Ok(SessionAck { id, seq, duplicate }));
            }
        }
        socket.flush().await
    }

    async fn hear(
        &mut self,
        socket: &mut Socket,
        text: String,
        join: &MessageId,
        resuming: Option<u64>,
    ) -> Option<Finish> {
        let limits = Limits {
            json_depth: 128,
            ..Limits::default()
        };
        let envelope = match parse_server_message(&text, &limits) {
            Ok(envelope) => envelope,
            Err(error) => {
                tracing::warn!(problem = %error.refusal, "could not read what the server said");
                None
            }
        };
        let Some(envelope) = envelope else {
            let envelope = None;
            self.emit(Event::Told { envelope, text }).await;
            return None;
        };
        if let Some(seq) = envelope.seq {
            self.seat.after = Some(self.seat.after.unwrap_or(0).max(seq));
        }
        let mut finish = None;
        if let ServerMessage::SessionWelcome(welcome) = &envelope.message
            && envelope.heading.reference.as_ref() == Some(join)
        {
            self.terms = Terms::from(welcome);
            self.last_ping = None;
            self.expected = self.expected.max(welcome.head);
            // From here on a resume is possible even if nothing is told.
            self.seat.after.get_or_insert(0);
            self.welcomed(resuming.is_some()).await;
        } else {
            finish = self.answered(&envelope, join);
        }
        if let ServerMessage::HeartbeatPing(_) = &envelope.message {
            let heading = self.heading(fresh_id(), Some(envelope.heading.id.clone()));
            let pong = ClientMessage::HeartbeatPong(HeartbeatPong::default());
            if let Err(error) = socket.send(Message::text(written(heading, pong))).await {
                return Some(Finish::Lost(error.to_string()));
            }
        }
        let envelope = Some(Box::new(envelope));
        self.emit(Event::Told { envelope, text }).await;
        if finish.is_none()
            && let Err(error) = self.flush(socket).await
        {
            return Some(Finish::Lost(error.to_string()));
        }
        finish
    }

    async fn welcomed(&mut self, resumed: bool) {
        self.joined = true;
        self.backoff.reset();
        if let Some(first) = self.first.take() {
            // Who asked may have stopped waiting; then nobody sends, and this ends.
            let _ = first.send(Ok(()));
        }
        self.emit(Event::Up { resumed }).await;
    }

    /// Hands answers to those who wait for them; a refused join may be the end.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is not an answer"
    )]
    fn answered(&mut self, envelope: &Envelope, join: &MessageId) -> Option<Finish> {
        let report = match &envelope.message {
            ServerMessage::SessionAck(ack) => {
                self.expected = self.expected.max(ack.seq.unwrap_or(0));
                self.reply(&ack.id, Ok(ack.clone()));
                return None;
            }
            ServerMessage::HeartbeatPong(_) | ServerMessage::OutputPage(_) => {
                let id = envelope.heading.reference.clone()?;
                self.ponged(&id);
                let (seq, duplicate) = (None, false);
                self.reply(&id.clone(), Ok(SessionAck { id, seq, duplicate }));
                return None;
            }
            ServerMessage::Error(report) => report,
            _ => return None,
        };
        let related = report.related_to.as_ref()?;
        if related != join {
            let refused = SendError::Refused(Box::new(report.clone()));
            self.reply(related, Err(refused));
            return None;
        }
        if report.code == ErrorCode::InvalidState && self.seat.after.take().is_some() {
            // The log is not the one we knew: begin again.
            return Some(Finish::Lost(report.message.clone()));
        }
        let again = report.recoverable && self.first.is_none();
        Some(match again {
            true => Finish::Lost(report.message.clone()),
            false => Finish::Over(Ending::Refused(Box::new(report.clone()))),
        })
    }

    fn reply(&mut self, id: &MessageId, answer: Result<SessionAck, SendError>) {
        if let Some(outgoing) = self.outbox.answered(id) {
            self.waiting -= 1;
            self.leaving |= answer.is_ok() && outgoing.weight == Weight::Farewell;
            // Who sent it may not wait for the answer.
            let _ = outgoing.reply.send(answer);
        }
    }
}
