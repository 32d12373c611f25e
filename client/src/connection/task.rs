//! The task behind a connection: it opens one socket after another and resumes the log where the
//! last one stopped.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use pvp_clock::{Backoff, BackoffState, fresh_id};
use pvp_protocol::payload::{Announce, ErrorReport, HeartbeatPong, SessionAck, SessionJoin};
use pvp_protocol::{
    ClientMessage, Envelope, EnvelopeHeader, ErrorCode, ExtraFields, Limits, MessageId, Sender,
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
use tokio_tungstenite::{
    Connector, MaybeTlsStream, WebSocketStream, connect_async_tls_with_config,
};

use super::server_clock::ServerClock;
use super::{
    AckSender, ConnectError, ConnectionEvent, EndReason, OwnJoin, RecordCheck, SendError,
    WelcomeLimits, encode_envelope,
};
use crate::Link;
use crate::api::ApiClient;
use crate::outbox::{Outbox, OutgoingMessage, ResendPolicy};
use crate::tls;

/// Delays between attempts to connect.
const BACKOFF: Backoff = Backoff {
    initial: Duration::from_millis(250),
    max: Duration::from_secs(15),
};

/// How long connecting and joining may take.
const JOIN_TIMEOUT: Duration = Duration::from_secs(15);

/// How many heartbeat intervals may pass without a message before the connection counts as lost.
const MAX_MISSED_HEARTBEATS: u64 = 3;

/// How long a connection goes on before the log is compared again, and its end remembered.
const RECORD_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Messages that may be unsent or unacknowledged before no more are accepted from callers.
const MAX_QUEUED: usize = 1024;

type ClientSocket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What is needed to join, and to join again.
pub(super) struct JoinParams {
    /// Where the server is, with the token.
    pub(super) link: Link,
    /// The session to join.
    pub(super) session: SessionId,
    /// Who joins.
    pub(super) announce: Announce,
    /// The sequence number to resume after; `None` to join without resuming.
    pub(super) after: Option<u64>,
    /// How many past messages to receive when not resuming.
    pub(super) history: Option<u64>,
    /// What the first socket sends before the join.
    pub(super) create: Option<String>,
    /// The join that the first socket sends as it is.
    pub(super) own_join: Option<OwnJoin>,
    /// Whether the log is compared with what was seen of it before.
    pub(super) record_check: RecordCheck,
}

/// How one socket ended.
enum SocketEnd {
    Lost(String),
    Ended(EndReason),
}

struct ConnectionTask {
    /// What to join with; its `after` advances with every message received.
    params: JoinParams,
    /// The last entry that was received on any socket.
    received: u64,
    /// When the log is compared again with what was seen of it.
    next_record_check: Instant,
    /// Messages from the callers of the connection.
    outgoing: mpsc::Receiver<OutgoingMessage<AckSender>>,
    /// Where events go.
    events: mpsc::Sender<ConnectionEvent>,
    /// Messages that are unsent or unacknowledged.
    outbox: Outbox<AckSender>,
    /// How many messages are in the outbox.
    queued: usize,
    /// The limits of the last welcome; defaults until then.
    limits: WelcomeLimits,
    /// What time it is for the server.
    server_clock: ServerClock,
    /// Receives the result of the first join; `None` once it has been sent.
    first_join: Option<oneshot::Sender<Result<(), ConnectError>>>,
    /// How long to wait before the next attempt to connect.
    backoff: BackoffState,
    /// Every handle is dropped, so no more messages will be sent.
    closing: bool,
    /// The server has accepted our `session.leave`.
    leaving: bool,
    /// The current socket has been welcomed.
    joined: bool,
    /// The current socket's join has been answered, so everything logged before it has come.
    caught_up: bool,
}

/// Runs until the connection has ended for good.
pub(super) async fn run(
    params: JoinParams,
    outgoing: mpsc::Receiver<OutgoingMessage<AckSender>>,
    events: mpsc::Sender<ConnectionEvent>,
    first_join: oneshot::Sender<Result<(), ConnectError>>,
    server_clock: ServerClock,
) {
    let mut task = ConnectionTask {
        params,
        received: 0,
        next_record_check: Instant::now(),
        outgoing,
        events,
        outbox: Outbox::default(),
        queued: 0,
        limits: WelcomeLimits::default(),
        server_clock,
        first_join: Some(first_join),
        backoff: BackoffState::new(BACKOFF),
        closing: false,
        leaving: false,
        joined: false,
        caught_up: false,
    };
    let end_reason = loop {
        match task.run_socket().await {
            SocketEnd::Ended(end_reason) => break end_reason,
            SocketEnd::Lost(why) => {
                if let Some(first_join) = task.first_join.take() {
                    // The caller may have stopped waiting.
                    let _ = first_join.send(Err(ConnectError::Failed(why)));
                    return;
                }
                task.wait_to_reconnect(why).await;
            }
        }
    };
    for outgoing in task.outbox.drain() {
        let _ = outgoing.ack_sender.send(Err(SendError::Closed));
    }
    match (task.first_join.take(), end_reason) {
        (Some(first_join), EndReason::Refused(report)) => {
            let _ = first_join.send(Err(ConnectError::Refused(report)));
        }
        (Some(first_join), EndReason::RecordChanged(warning)) => {
            let _ = first_join.send(Err(ConnectError::RecordChanged(warning)));
        }
        (_, end_reason) => task.emit(ConnectionEvent::Ended(end_reason)).await,
    }
}

impl ConnectionTask {
    /// Sends an event. The caller may have dropped the receiver, which is allowed.
    async fn emit(&self, event: ConnectionEvent) {
        let _ = self.events.send(event).await;
    }

    /// Reports the lost connection, then waits for the backoff delay while still accepting
    /// messages.
    async fn wait_to_reconnect(&mut self, why: String) {
        for outgoing in self.outbox.requeue_for_reconnect() {
            self.queued -= 1;
            // The sender may not be waiting for the answer.
            let _ = outgoing.ack_sender.send(Err(SendError::Dropped));
        }
        self.joined = false;
        self.caught_up = false;
        self.emit(ConnectionEvent::Disconnected { why }).await;
        let retry_at = Instant::now() + self.backoff.next_delay();
        loop {
            tokio::select! {
                () = sleep_until(retry_at) => return,
                message = self.outgoing.recv(), if self.accepts_outgoing() => self.enqueue(message),
            }
        }
    }

    fn accepts_outgoing(&self) -> bool {
        !self.closing && self.queued < MAX_QUEUED
    }

    fn enqueue(&mut self, message: Option<OutgoingMessage<AckSender>>) {
        let Some(outgoing) = message else {
            self.closing = true;
            return;
        };
        if outgoing.text.len() > self.limits.message_bytes {
            let limit = self.limits.message_bytes;
            let report = ErrorReport {
                code: ErrorCode::InvalidMessage,
                message: format!("a message has at most {limit} bytes; nothing was sent"),
                recoverable: false,
                details: None,
                related_to: Some(outgoing.id),
                extra: ExtraFields::new(),
            };
            let _ = outgoing
                .ack_sender
                .send(Err(SendError::Refused(Box::new(report))));
            return;
        }
        self.queued += 1;
        self.outbox.push(outgoing);
    }

    /// Runs one socket, from connecting until it ends.
    async fn run_socket(&mut self) -> SocketEnd {
        let mut socket = match timeout(JOIN_TIMEOUT, self.connect()).await {
            Ok(Ok(socket)) => socket,
            Ok(Err(end)) => return end,
            Err(_) => return SocketEnd::Lost("the server does not answer".to_owned()),
        };
        let resume_after = self.params.after;
        let (join_id, opening) = self.opening_messages();
        for text in opening {
            if let Err(error) = socket.send(Message::text(text)).await {
                return SocketEnd::Lost(error.to_string());
            }
        }
        let end = self.read_loop(&mut socket, &join_id, resume_after).await;
        if matches!(end, SocketEnd::Ended(_)) {
            let close = CloseFrame {
                code: CloseCode::Normal,
                reason: "".into(),
            };
            // The other side may have closed already.
            let _ = timeout(JOIN_TIMEOUT, socket.close(Some(close))).await;
        }
        end
    }

    async fn connect(&self) -> Result<ClientSocket, SocketEnd> {
        let lost = |error: Error| {
            let problem = tls::certificate_problem(&error);
            SocketEnd::Lost(problem.unwrap_or_else(|| error.to_string()))
        };
        let mut request = self
            .params
            .link
            .websocket_url()
            .into_client_request()
            .map_err(lost)?;
        if let Some(token) = self.params.link.token() {
            let bearer = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|error| SocketEnd::Lost(error.to_string()))?;
            request.headers_mut().insert(AUTHORIZATION, bearer);
        }
        let pinned = self.params.link.fingerprint().map(tls::pinned_config);
        let pinned = pinned.transpose();
        let pinned = pinned.map_err(|error| SocketEnd::Lost(error.to_string()))?;
        let connector = pinned.map(|config| Connector::Rustls(Arc::new(config)));
        let connecting = connect_async_tls_with_config(request, None, true, connector);
        match connecting.await {
            Ok((socket, _)) => Ok(socket),
            Err(Error::Http(response)) if response.status().is_client_error() => {
                let body = response.body().as_deref().unwrap_or_default();
                match serde_json::from_slice(body) {
                    Ok(report) => Err(SocketEnd::Ended(EndReason::Refused(Box::new(report)))),
                    Err(_) => Err(SocketEnd::Lost(format!("HTTP {}", response.status()))),
                }
            }
            Err(error) => Err(lost(error)),
        }
    }

    /// What a socket sends first, with the id of the join among it.
    fn opening_messages(&self) -> (MessageId, Vec<String>) {
        let is_first = self.first_join.is_some();
        let create = self.params.create.clone().filter(|_| is_first);
        let own_join = self.params.own_join.as_ref().filter(|_| is_first);
        let (id, join) = match own_join {
            Some(own_join) => (own_join.id().clone(), own_join.text().to_owned()),
            None => {
                let id = fresh_id();
                let text = self.join_message(&id);
                (id, text)
            }
        };
        (id, create.into_iter().chain([join]).collect())
    }

    fn join_message(&self, id: &MessageId) -> String {
        let own_join = self.params.own_join.as_ref().map(OwnJoin::payload);
        let join = own_join.unwrap_or_else(|| SessionJoin {
            participant: self.params.announce.clone(),
            token: None,
            supported_versions: vec![u32::from(VERSION)],
            after: None,
            history: None,
            announce_others: None,
            extra: ExtraFields::new(),
        });
        let join = SessionJoin {
            after: self.params.after,
            history: self.params.history,
            announce_others: Some(false),
            ..join
        };
        encode_envelope(
            self.header(id.clone(), None),
            ClientMessage::SessionJoin(join),
        )
    }

    fn header(&self, id: MessageId, reference: Option<MessageId>) -> EnvelopeHeader {
        EnvelopeHeader {
            id,
            session: self.params.session.clone(),
            sender: Sender::Participant(self.params.announce.id.clone()),
            reference,
            causal_refs: Vec::new(),
            fork: None,
        }
    }

    async fn read_loop(
        &mut self,
        socket: &mut ClientSocket,
        join_id: &MessageId,
        resume_after: Option<u64>,
    ) -> SocketEnd {
        let mut idle_deadline = Instant::now() + JOIN_TIMEOUT;
        loop {
            if self.is_ready_to_close() {
                return SocketEnd::Ended(match self.leaving {
                    true => EndReason::Left,
                    false => EndReason::Closed,
                });
            }
            let frame = tokio::select! {
                frame = socket.next() => frame,
                message = self.outgoing.recv(), if self.accepts_outgoing() => {
                    self.enqueue(message);
                    if let Err(error) = self.flush(socket).await {
                        return SocketEnd::Lost(error.to_string());
                    }
                    continue;
                }
                () = sleep_until(idle_deadline) => {
                    return SocketEnd::Lost("the server sent nothing".to_owned());
                }
            };
            let text = match frame {
                Some(Ok(Message::Text(text))) => text.as_str().to_owned(),
                Some(Ok(Message::Close(frame))) => return self.on_close_frame(frame),
                Some(Ok(_)) => continue,
                Some(Err(error)) => return SocketEnd::Lost(error.to_string()),
                None => return SocketEnd::Lost("the connection was closed".to_owned()),
            };
            if let Some(end) = self.on_message(socket, text, join_id, resume_after).await {
                return end;
            }
            let idle_timeout =
                Duration::from_secs(self.limits.heartbeat_seconds.max(5) * MAX_MISSED_HEARTBEATS);
            idle_deadline = Instant::now() + idle_timeout;
        }
    }

    /// Whether everything that this connection asked for has come. An answer follows what was
    /// logged before it, so there is nothing to wait for after the last one.
    fn is_ready_to_close(&self) -> bool {
        self.closing && self.caught_up && self.outbox.is_empty()
    }

    fn on_close_frame(&self, frame: Option<CloseFrame>) -> SocketEnd {
        if self.leaving {
            return SocketEnd::Ended(EndReason::Left);
        }
        let why = frame.map(|frame| frame.reason.as_str().to_owned());
        let why = why.filter(|why| !why.is_empty());
        SocketEnd::Lost(why.unwrap_or_else(|| "the server closed the connection".to_owned()))
    }

    /// Sends unsent messages until the limit on messages in flight is reached.
    async fn flush(&mut self, socket: &mut ClientSocket) -> Result<(), Error> {
        if !self.joined {
            return Ok(());
        }
        while let Some((text, needs_no_reply)) = self.outbox.next_to_send() {
            socket.feed(Message::text(text)).await?;
            if let Some(message) = needs_no_reply {
                self.queued -= 1;
                let (id, seq, duplicate) = (message.id, None, false);
                // The sender may not be waiting for the answer.
                let _ = message
                    .ack_sender
                    .send(Ok(SessionAck { id, seq, duplicate }));
            }
        }
        socket.flush().await
    }

    async fn on_message(
        &mut self,
        socket: &mut ClientSocket,
        text: String,
        join_id: &MessageId,
        resume_after: Option<u64>,
    ) -> Option<SocketEnd> {
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
            self.emit(ConnectionEvent::Message { envelope, text }).await;
            return None;
        };
        if let Some(seq) = envelope.seq {
            self.params.after = Some(self.params.after.unwrap_or(0).max(seq));
            self.received = self.received.max(seq);
        }
        let mut end = None;
        if let ServerMessage::SessionWelcome(welcome) = &envelope.message
            && envelope.header.reference.as_ref() == Some(join_id)
        {
            self.limits = WelcomeLimits::from(welcome);
            self.server_clock.set(envelope.at);
            if let Some(end) = self.check_record().await {
                return Some(end);
            }
            // From here on a resume is possible, even if no message follows.
            self.params.after.get_or_insert(0);
            self.on_welcome(resume_after.is_some()).await;
        } else {
            end = self.on_reply(&envelope, join_id);
        }
        if let ServerMessage::HeartbeatPing(_) = &envelope.message {
            if Instant::now() >= self.next_record_check
                && let Some(end) = self.check_record().await
            {
                return Some(end);
            }
            let header = self.header(fresh_id(), Some(envelope.header.id.clone()));
            let pong = ClientMessage::HeartbeatPong(HeartbeatPong::default());
            if let Err(error) = socket
                .send(Message::text(encode_envelope(header, pong)))
                .await
            {
                return Some(SocketEnd::Lost(error.to_string()));
            }
        }
        let envelope = Some(Box::new(envelope));
        self.emit(ConnectionEvent::Message { envelope, text }).await;
        if end.is_none()
            && let Err(error) = self.flush(socket).await
        {
            return Some(SocketEnd::Lost(error.to_string()));
        }
        end
    }

    /// Compares the log with what was seen of it, before anything of it is acted on.
    async fn check_record(&mut self) -> Option<SocketEnd> {
        let memory = self.params.record_check.memory()?.clone();
        self.next_record_check = Instant::now() + RECORD_CHECK_INTERVAL;
        let (link, session) = (self.params.link.clone(), self.params.session.clone());
        let received = self.received;
        let checking = tokio::task::spawn_blocking(move || {
            memory.check(&ApiClient::new(link), &session, received)
        });
        let warning = match checking.await {
            Ok(Ok(warning)) => warning?,
            Ok(Err(error)) => return Some(SocketEnd::Lost(error.to_string())),
            Err(panic) => return Some(SocketEnd::Lost(panic.to_string())),
        };
        match (&self.params.record_check, warning.is_grave()) {
            (RecordCheck::Enforce(_), true) => {
                Some(SocketEnd::Ended(EndReason::RecordChanged(warning)))
            }
            (RecordCheck::Enforce(_), false) | (RecordCheck::Report(_) | RecordCheck::Off, _) => {
                self.emit(ConnectionEvent::RecordWarning(warning)).await;
                None
            }
        }
    }

    async fn on_welcome(&mut self, resumed: bool) {
        self.joined = true;
        self.backoff.reset();
        if let Some(first_join) = self.first_join.take() {
            // The caller may have stopped waiting; then every handle is gone, and the task ends.
            let _ = first_join.send(Ok(()));
        }
        self.emit(ConnectionEvent::Connected { resumed }).await;
    }

    /// Completes the send that a reply answers. A refused join may end the connection.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "no other message is a reply"
    )]
    fn on_reply(&mut self, envelope: &Envelope, join_id: &MessageId) -> Option<SocketEnd> {
        // Replies are the server's own and not logged; an agent's `error` answers nothing.
        if envelope.seq.is_some() || envelope.header.sender != Sender::System {
            return None;
        }
        let report = match &envelope.message {
            ServerMessage::SessionAck(ack) => {
                self.caught_up |= ack.id == *join_id;
                self.complete_send(&ack.id, Ok(ack.clone()));
                return None;
            }
            ServerMessage::HeartbeatPong(_) | ServerMessage::OutputPage(_) => {
                let id = envelope.header.reference.clone()?;
                let (seq, duplicate) = (None, false);
                self.complete_send(&id.clone(), Ok(SessionAck { id, seq, duplicate }));
                return None;
            }
            ServerMessage::Error(report) => report,
            _ => return None,
        };
        let related = report.related_to.as_ref()?;
        if related != join_id {
            let refused = SendError::Refused(Box::new(report.clone()));
            self.complete_send(related, Err(refused));
            return None;
        }
        if report.code == ErrorCode::InvalidState && self.params.after.take().is_some() {
            // The log is not the one we resumed from, so join without resuming.
            return Some(SocketEnd::Lost(report.message.clone()));
        }
        let retry = report.recoverable && self.first_join.is_none();
        Some(match retry {
            true => SocketEnd::Lost(report.message.clone()),
            false => SocketEnd::Ended(EndReason::Refused(Box::new(report.clone()))),
        })
    }

    fn complete_send(&mut self, id: &MessageId, answer: Result<SessionAck, SendError>) {
        if let Some(outgoing) = self.outbox.acknowledge(id) {
            self.queued -= 1;
            self.leaving |=
                answer.is_ok() && outgoing.resend_policy == ResendPolicy::ResendThenClose;
            // The sender may not be waiting for the answer.
            let _ = outgoing.ack_sender.send(answer);
        }
    }
}
