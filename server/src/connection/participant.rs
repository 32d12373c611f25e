//! Serves a connection that has joined: sends it the log and handles its messages.

use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pvp_protocol::{
    ClientMessage, EnvelopeHeader, MessageId, ParticipantKind, Refusal, Sender, SessionId,
    parse_client_message,
};
use pvp_session::{Answer, SubmittedMessage};
use tokio::sync::futures::Notified;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};

use super::backfill::{self, BackfillPage};
use super::handshake::AdmittedConnection;
use super::{CloseReason, ConnectionEnd, close_code, push_text};
use crate::directory::{ConnectionSlot, SessionDirectory};
use crate::feed::{FeedRead, LogCursor, SessionFeed};
use crate::reply_queue::{ConnectionReply, ReplyQueue};
use crate::secrets::SecretStore;
use crate::socket::{Incoming, Socket, SocketError, SocketStream, Utf8Bytes, text_frame};
use crate::token::{self, Login};
use crate::viewer::DeviceGuard;
use crate::{envelope, output};

/// How many messages of one connection may wait for answers before the server stops reading from
/// it.
const MAX_UNANSWERED: usize = 64;

/// How many messages above the rate limit are refused before the connection is closed.
const MAX_RATE_VIOLATIONS: u32 = 50;

/// The longest interval between two ticks.
const TICK_INTERVAL: Duration = Duration::from_secs(5);

/// Batches written before other tasks get a turn.
const MAX_BATCHES_PER_POLL: usize = 16;

/// How many entries of history a client gets unless it asks for another number.
const DEFAULT_HISTORY: u64 = 500;

/// The largest result that an agent may send to a server without login, in bytes; agents written
/// for the published PVP v1 protocol may send this much.
const MAX_OPEN_MODE_RESULT_BYTES: usize = 24 * 1024 * 1024;

/// What a connection's loop handles next.
enum SocketEvent {
    Message(Utf8Bytes),
    Binary,
    Ended(ConnectionEnd),
    Tick,
}

struct ParticipantConnection<'a> {
    /// The WebSocket.
    socket: &'a mut Socket<SocketStream>,
    /// What all sessions share.
    directory: Arc<SessionDirectory>,
    /// The session that the connection has joined.
    session: SessionId,
    /// The participant, with this connection counted as one of their devices.
    viewer: DeviceGuard,
    /// Whether the participant joined as a human or as an agent.
    kind: ParticipantKind,
    /// The values of the session's secrets, for the executor's copies of grants.
    secrets: Arc<SecretStore>,
    /// Where the session's task puts the answers to this connection's messages.
    reply_queue: Arc<ReplyQueue>,
    /// How far the connection has read.
    cursor: LogCursor,
    /// Frames to send before the log: the welcome, the answer to the join, who else has joined.
    welcome_frames: VecDeque<Bytes>,
    /// The sequence number where history ends, and a frame to send at that point; `None` once the
    /// history was sent, or if the client resumed.
    after_history: Option<(u64, Option<Bytes>)>,
    /// The read from the store that is under way, if any.
    backfill: Option<JoinHandle<Result<BackfillPage, String>>>,
    /// How many messages of this connection wait for an answer from the session.
    unanswered: usize,
    /// Messages that passed the rate limit as output; if refused, they are charged after all.
    rate_exempt: BTreeSet<MessageId>,
    /// Messages above the rate limit; each tick forgives one.
    rate_violations: u32,
    /// The verified token; `None` without login.
    login: Option<Login>,
    /// The socket's count of written bytes at the last tick.
    last_bytes_written: u64,
    /// Since when frames have been waiting without any byte written; `None` if the client reads.
    stalled_since: Option<Instant>,
    /// The socket's count of read bytes at the last tick.
    last_bytes_read: u64,
    /// Counts the connection until it ends.
    _slot: ConnectionSlot,
}

/// Serves a participant until the connection ends.
pub(super) async fn serve(
    socket: &mut Socket<SocketStream>,
    directory: Arc<SessionDirectory>,
    admitted: Box<AdmittedConnection>,
) -> ConnectionEnd {
    let feed = admitted.joined.feed.clone();
    let session = admitted.session.clone();
    let end = match ParticipantConnection::start(socket, directory.clone(), admitted) {
        Ok(mut connection) => connection.run(&feed).await,
        Err(end) => end,
    };
    // The device guard was dropped with the connection, so presence may have changed.
    Box::pin(directory.connection_closed(&session)).await;
    end
}

impl<'a> ParticipantConnection<'a> {
    fn start(
        socket: &'a mut Socket<SocketStream>,
        directory: Arc<SessionDirectory>,
        admitted: Box<AdmittedConnection>,
    ) -> Result<Self, ConnectionEnd> {
        let AdmittedConnection {
            session,
            joined,
            join,
            join_id,
            login,
            slot,
        } = *admitted;
        let head = joined.welcome.head;
        if join.after.is_some_and(|after| after > head) {
            let refusal = Refusal::InvalidState(format!(
                "`after` is beyond the log, which ends at {head}; join without it"
            ));
            push_text(
                socket,
                &envelope::error_report(&session, &refusal, Some(join_id)),
            );
            return Err(ConnectionEnd::ByServer(CloseReason::new(
                close_code::POLICY,
                "`after` is beyond the log",
            )));
        }
        let kind = join.participant.kind;
        if directory.config.open && kind == ParticipantKind::Agent {
            socket.set_max_message(
                MAX_OPEN_MODE_RESULT_BYTES.max(directory.settings.limits.message_bytes),
            );
        }
        let mut welcome_frames = VecDeque::new();
        let reference = Some(join_id.clone());
        welcome_frames.push_back(text_frame(&envelope::ephemeral(
            &session,
            reference,
            joined.welcome,
        )));
        let reply = ConnectionReply {
            id: join_id,
            answer: Answer::Accepted(joined.accepted_seq),
        };
        welcome_frames.push_back(text_frame(&envelope::reply(&session, reply)));
        let (seen, after_history) = match join.after {
            Some(after) => (after, None),
            None => {
                for announce in joined.other_announcements {
                    let sender = Sender::Participant(announce.id.clone());
                    let announcement = envelope::ephemeral_from(&session, sender, None, announce);
                    welcome_frames.push_back(text_frame(&announcement));
                }
                let history = join.history.unwrap_or(DEFAULT_HISTORY);
                let working_directory = joined
                    .working_directory
                    .map(|context| text_frame(&envelope::ephemeral(&session, None, context)));
                let seen = (joined.live_from_seq - 1).saturating_sub(history);
                (seen, Some((joined.live_from_seq, working_directory)))
            }
        };
        Ok(Self {
            cursor: joined.feed.cursor_after(seen),
            viewer: joined.device,
            secrets: joined.secrets,
            socket,
            directory,
            session,
            kind,
            reply_queue: Arc::default(),
            welcome_frames,
            after_history,
            backfill: None,
            unanswered: 0,
            rate_exempt: BTreeSet::new(),
            rate_violations: 0,
            login,
            last_bytes_written: 0,
            stalled_since: None,
            last_bytes_read: 0,
            _slot: slot,
        })
    }

    async fn run(&mut self, feed: &SessionFeed) -> ConnectionEnd {
        let mut notified = pin!(feed.notifier().notified());
        let interval = TICK_INTERVAL.min(Duration::from_secs(self.directory.config.stall_seconds));
        let mut tick = pin!(tokio::time::sleep(interval));
        loop {
            let event =
                poll_fn(|cx| self.poll_event(cx, feed, notified.as_mut(), tick.as_mut())).await;
            let ended = match event {
                SocketEvent::Message(text) => Box::pin(self.on_message(&text)).await,
                SocketEvent::Binary => {
                    let refusal =
                        Refusal::Malformed("send text frames, one message each".to_owned());
                    self.send_refusal(&refusal, None)
                }
                SocketEvent::Tick => {
                    tick.as_mut().reset(Instant::now() + interval);
                    Box::pin(self.on_tick()).await
                }
                SocketEvent::Ended(ended) => Some(ended),
            };
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    fn poll_event<'b>(
        &mut self,
        cx: &mut Context<'_>,
        feed: &'b SessionFeed,
        mut notified: Pin<&mut Notified<'b>>,
        tick: Pin<&mut Sleep>,
    ) -> Poll<SocketEvent> {
        // Register for the notification before reading the ring, so that nothing is missed in
        // between.
        while notified.as_mut().poll(cx).is_ready() {
            notified.set(feed.notifier().notified());
        }
        if let Poll::Ready(ended) = self.poll_outgoing(cx, feed) {
            return Poll::Ready(SocketEvent::Ended(ended));
        }
        if self.unanswered < MAX_UNANSWERED
            && !self.socket.is_backed_up()
            && let Poll::Ready(incoming) = self.socket.poll_incoming(cx)
        {
            return Poll::Ready(match incoming {
                Ok(Incoming::Text(text)) => SocketEvent::Message(text),
                Ok(Incoming::Binary(_)) => SocketEvent::Binary,
                Ok(Incoming::Closed { .. }) => SocketEvent::Ended(ConnectionEnd::ByPeer),
                Err(SocketError::TooBig { limit }) => {
                    tracing::info!(session = %self.session, participant = %self.viewer.participant, limit, "refused a message that is too big");
                    SocketEvent::Ended(ConnectionEnd::ByPeer)
                }
                Err(_) => SocketEvent::Ended(ConnectionEnd::ByPeer),
            });
        }
        tick.poll(cx).map(|()| SocketEvent::Tick)
    }

    /// Writes answers and the frames after the cursor, until nothing is left or the socket is full.
    fn poll_outgoing(&mut self, cx: &mut Context<'_>, feed: &SessionFeed) -> Poll<ConnectionEnd> {
        while let Poll::Ready(reply) = self.reply_queue.poll_next(cx) {
            self.on_reply(reply);
        }
        if self.rate_violations > MAX_RATE_VIOLATIONS {
            return Poll::Ready(rate_limit_close());
        }
        for _ in 0..MAX_BATCHES_PER_POLL {
            let mut idle = false;
            if self.socket.wants_frames() {
                match self.poll_next_batch(cx, feed) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(close_reason)) => {
                        return Poll::Ready(ConnectionEnd::ByServer(close_reason));
                    }
                    Poll::Pending => idle = true,
                }
            }
            match self.socket.poll_write(cx) {
                Poll::Ready(Ok(())) if idle => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(ConnectionEnd::ByPeer),
                Poll::Pending => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Pushes the next frames, in this order: welcome, history, the frame after it, live entries.
    fn poll_next_batch(
        &mut self,
        cx: &mut Context<'_>,
        feed: &SessionFeed,
    ) -> Poll<Result<(), CloseReason>> {
        if !self.welcome_frames.is_empty() {
            let count = self.welcome_frames.len().min(crate::feed::MAX_BATCH_FRAMES);
            for frame in self.welcome_frames.drain(..count) {
                self.socket.push(frame);
            }
            self.welcome_frames.shrink_to(0);
            return Poll::Ready(Ok(()));
        }
        if let Some(backfill) = &mut self.backfill {
            let Poll::Ready(page) = Pin::new(backfill).poll(cx) else {
                return Poll::Pending;
            };
            self.backfill = None;
            return Poll::Ready(
                self.push_page(page.unwrap_or_else(|panic| Err(panic.to_string()))),
            );
        }
        if let Some((live_from_seq, _)) = self.after_history {
            if self.cursor.next_seq < live_from_seq {
                self.start_backfill(live_from_seq);
            } else if let Some((_, Some(frame))) = self.after_history.take() {
                self.socket.push(frame);
            }
            return Poll::Ready(Ok(()));
        }
        let socket = &mut *self.socket;
        match feed.read_batch(&mut self.cursor, &self.viewer, |frame| socket.push(frame)) {
            FeedRead::Advanced => Poll::Ready(Ok(())),
            FeedRead::Behind => {
                self.start_backfill(feed.head() + 1);
                Poll::Ready(Ok(()))
            }
            FeedRead::UpToDate if self.viewer.has_left() && self.unanswered == 0 => {
                Poll::Ready(Err(CloseReason::new(
                    close_code::NORMAL,
                    "you have left the session",
                )))
            }
            FeedRead::UpToDate => Poll::Pending,
            FeedRead::Closed => Poll::Ready(Err(CloseReason::new(
                close_code::GOING_AWAY,
                "the server is shutting down; come again",
            ))),
        }
    }

    fn start_backfill(&mut self, until: u64) {
        self.backfill = Some(tokio::spawn(backfill::read_page(
            self.directory.clone(),
            self.session.clone(),
            Arc::clone(&self.viewer),
            self.secrets.clone(),
            self.cursor.next_seq,
            until,
        )));
    }

    fn push_page(&mut self, page: Result<BackfillPage, String>) -> Result<(), CloseReason> {
        match page {
            Ok(page) => {
                self.cursor.next_seq = page.next_seq;
                if !page.frames.is_empty() {
                    self.socket.push(page.frames);
                }
                Ok(())
            }
            Err(why) => {
                tracing::error!(session = %self.session, why, "could not read the log for a viewer");
                Err(CloseReason::new(
                    close_code::TRY_AGAIN,
                    "the log cannot be read at the moment; come again",
                ))
            }
        }
    }

    fn on_reply(&mut self, reply: ConnectionReply) {
        self.unanswered -= 1;
        let rate_exempt = self.rate_exempt.remove(&reply.id);
        if let Answer::Refused(refusal) = &reply.answer {
            self.directory.metrics.record_refusal(refusal);
            tracing::info!(session = %self.session, participant = %self.viewer.participant, code = ?refusal.code(), %refusal, "refused");
            if rate_exempt {
                self.charge_exempt_message();
            }
        }
        push_text(self.socket, &envelope::reply(&self.session, reply));
    }

    /// Charges a message that passed the rate limit as output but was refused.
    fn charge_exempt_message(&mut self) {
        if !self
            .viewer
            .try_charge_message(pvp_clock::now(), &self.directory.settings.limits)
        {
            self.rate_violations += 1;
        }
    }

    fn send_refusal(
        &mut self,
        refusal: &Refusal,
        related_to: Option<MessageId>,
    ) -> Option<ConnectionEnd> {
        self.directory.metrics.record_refusal(refusal);
        // This refusal quotes the text that could not be parsed, which may contain a secret.
        let why = if matches!(refusal, Refusal::Malformed(_)) {
            "not a message".to_owned()
        } else {
            refusal.to_string()
        };
        tracing::info!(session = %self.session, participant = %self.viewer.participant, code = ?refusal.code(), why, "refused");
        push_text(
            self.socket,
            &envelope::error_report(&self.session, refusal, related_to),
        );
        None
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the session decides on every other message"
    )]
    async fn on_message(&mut self, text: &str) -> Option<ConnectionEnd> {
        let limits = &self.directory.settings.limits;
        let read = parse_client_message(text, limits);
        let is_output = matches!(
            &read,
            Ok((
                _,
                ClientMessage::ToolOutput(_) | ClientMessage::ToolResult(_)
            ))
        );
        if text.len() > limits.message_bytes
            && !matches!(&read, Ok((_, ClientMessage::ToolResult(_))))
        {
            return Some(ConnectionEnd::ByServer(CloseReason::new(
                close_code::TOO_BIG,
                "the message is too big",
            )));
        }
        let rate_exempt = is_output && self.kind == ParticipantKind::Agent;
        if !rate_exempt && !self.viewer.try_charge_message(pvp_clock::now(), limits) {
            return self.on_rate_exceeded(read.ok().map(|(header, _)| header.id));
        }
        let (header, message) = match read {
            Ok(read) => read,
            Err(error) => return self.send_refusal(&error.refusal, error.related_to),
        };
        if let Err(refusal) = self.verify_header(&header) {
            if rate_exempt {
                self.charge_exempt_message();
            }
            return self.send_refusal(&refusal, Some(header.id));
        }
        if rate_exempt {
            self.rate_exempt.insert(header.id.clone());
        }
        self.record_activity(&message).await;
        match message {
            ClientMessage::HeartbeatPing(_) => {
                push_text(self.socket, &envelope::pong(&self.session, header.id));
            }
            ClientMessage::HeartbeatPong(_) => {}
            ClientMessage::OutputRead(read) => {
                match output::read_page(&self.directory, &self.session, read).await {
                    Ok(page) => {
                        push_text(
                            self.socket,
                            &envelope::ephemeral(&self.session, Some(header.id), page),
                        );
                    }
                    Err(refusal) => return self.send_refusal(&refusal, Some(header.id)),
                }
            }
            _ => self.submit(header, message).await,
        }
        None
    }

    async fn submit(&mut self, header: EnvelopeHeader, message: ClientMessage) {
        self.unanswered += 1;
        let submitted = SubmittedMessage {
            id: header.id,
            reference: header.reference,
            causal_refs: header.causal_refs,
            fork: header.fork,
            message,
        };
        let by = self.viewer.participant.clone();
        self.directory
            .submit(&self.session, by, submitted, self.reply_queue.clone())
            .await;
    }

    fn verify_header(&self, header: &EnvelopeHeader) -> Result<(), Refusal> {
        let participant = &self.viewer.participant;
        match &header.sender {
            Sender::Participant(sender) if sender == participant => {}
            Sender::Participant(_) | Sender::System => {
                let claimed = header.sender.to_string();
                return Err(Refusal::IdentityMismatch {
                    field: "sender",
                    claimed,
                    actual: participant.clone(),
                });
            }
        }
        if header.session != self.session {
            return Err(Refusal::Unauthorized(format!(
                "this connection has joined `{}`, not `{}`; open another for that",
                self.session, header.session
            )));
        }
        Ok(())
    }

    /// Records that the participant is present, and notifies the session's task if they counted as
    /// inactive.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every message but a heartbeat counts as activity"
    )]
    async fn record_activity(&mut self, message: &ClientMessage) {
        let now = pvp_clock::now();
        let returned = match message {
            ClientMessage::HeartbeatPing(_) | ClientMessage::HeartbeatPong(_) => {
                self.viewer.record_seen(now)
            }
            _ => self.viewer.record_activity(now),
        };
        if returned {
            self.directory
                .participant_returned(&self.session, self.viewer.participant.clone())
                .await;
        }
    }

    fn on_rate_exceeded(&mut self, related_to: Option<MessageId>) -> Option<ConnectionEnd> {
        self.rate_violations += 1;
        if self.rate_violations > MAX_RATE_VIOLATIONS {
            return Some(rate_limit_close());
        }
        let per_second = self.directory.settings.limits.messages_per_second;
        self.send_refusal(&Refusal::RateLimited { per_second }, related_to)
    }

    /// Ends the connection if the client has stopped reading or its token is no longer valid.
    async fn on_tick(&mut self) -> Option<ConnectionEnd> {
        let read = self.socket.bytes_read();
        if read != self.last_bytes_read {
            self.last_bytes_read = read;
            self.viewer.record_seen(pvp_clock::now());
        }
        let written = self.socket.bytes_written();
        if self.socket.wants_frames() || written != self.last_bytes_written {
            self.stalled_since = None;
        } else {
            let since = *self.stalled_since.get_or_insert_with(Instant::now);
            if since.elapsed().as_secs() >= self.directory.config.stall_seconds {
                return Some(ConnectionEnd::ByServer(CloseReason::new(
                    close_code::POLICY,
                    "not reading; resume with `after`",
                )));
            }
        }
        self.last_bytes_written = written;
        self.rate_violations = self.rate_violations.saturating_sub(1);
        self.recheck_token().await
    }

    async fn recheck_token(&mut self) -> Option<ConnectionEnd> {
        let login = self.login.as_ref()?;
        let (store, id) = (self.directory.store.clone(), login.token_id.clone());
        let checked = tokio::task::spawn_blocking(move || {
            token::recheck(store.tokens(), &id, pvp_clock::now())
        });
        match checked.await {
            Ok(Err(error @ (token::TokenError::Revoked | token::TokenError::Expired))) => Some(
                ConnectionEnd::ByServer(CloseReason::new(close_code::POLICY, &error.to_string())),
            ),
            // A temporary failure of the store must not disconnect anybody.
            Ok(Ok(()) | Err(_)) | Err(_) => None,
        }
    }
}

fn rate_limit_close() -> ConnectionEnd {
    ConnectionEnd::ByServer(CloseReason::new(close_code::POLICY, "too many messages"))
}
