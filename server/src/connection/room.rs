//! A room: a connection that has joined follows the log with a cursor, and speaks.

use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pvp_protocol::{
    ClientMessage, Heading, MessageId, ParticipantKind, Refusal, Sender, SessionId,
    parse_client_message,
};
use pvp_session::Submitted;
use tokio::sync::futures::Notified;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};

use super::fetch::{self, Page};
use super::lobby::Seat;
use super::{Ended, Farewell, code, push};
use crate::feed::{Cursor, Feed, Taken};
use crate::house::{House, Place};
use crate::outbox::{Outbox, Reply, Verdict};
use crate::socket::{Incoming, Socket, SocketError, Stream, Utf8Bytes, text_frame};
use crate::token::{self, Login};
use crate::vault::Vault;
use crate::viewer::Device;
use crate::{clock, envelope, output};

/// Messages of one connection that may wait for their answers; then it is not read.
const MOST_UNANSWERED: usize = 64;

/// Messages over the rate that are refused before the connection is closed.
const MOST_STRIKES: u32 = 50;

/// How often a connection looks at the clock, at least.
const TICK: Duration = Duration::from_secs(5);

/// Batches written before others get a turn.
const BATCHES_AT_ONCE: usize = 16;

/// How much history is told unless the newcomer says otherwise.
const HISTORY: u64 = 500;

/// What a published agent may send as a result where there is no login, in bytes.
const OPEN_RESULT: usize = 24 * 1024 * 1024;

/// Something that happened on the connection.
enum Event {
    Message(Utf8Bytes),
    Binary,
    Ended(Ended),
    Tick,
}

struct Room<'a> {
    socket: &'a mut Socket<Stream>,
    house: Arc<House>,
    session: SessionId,
    viewer: Device,
    kind: ParticipantKind,
    vault: Arc<Vault>,
    outbox: Arc<Outbox>,
    cursor: Cursor,
    /// Told before the log.
    prelude: VecDeque<Bytes>,
    /// What comes between history and the present, and the seq where the present begins.
    interlude: Option<(u64, Option<Bytes>)>,
    fetching: Option<JoinHandle<Result<Page, String>>>,
    unanswered: usize,
    /// Messages let past the rate as output, which pay for it if they turn out not to be.
    unpaid: BTreeSet<MessageId>,
    strikes: u32,
    login: Option<Login>,
    written: u64,
    stuck_since: Option<Instant>,
    read: u64,
    _place: Place,
}

/// Follows a session until the connection ends.
pub(super) async fn follow(
    socket: &mut Socket<Stream>,
    house: Arc<House>,
    seat: Box<Seat>,
) -> Ended {
    let feed = seat.joined.feed.clone();
    let session = seat.session.clone();
    let ended = match Room::enter(socket, house.clone(), seat) {
        Ok(mut room) => room.run(&feed).await,
        Err(ended) => ended,
    };
    // The device went with the room.
    Box::pin(house.disconnected(&session)).await;
    ended
}

impl<'a> Room<'a> {
    fn enter(
        socket: &'a mut Socket<Stream>,
        house: Arc<House>,
        seat: Box<Seat>,
    ) -> Result<Self, Ended> {
        let Seat {
            session,
            joined,
            join,
            join_id,
            login,
            place,
        } = *seat;
        let head = joined.welcome.head;
        if join.after.is_some_and(|after| after > head) {
            let refusal = Refusal::InvalidState(format!(
                "`after` is beyond the log, which ends at {head}; join without it"
            ));
            push(socket, &envelope::error(&session, &refusal, Some(join_id)));
            return Err(Ended::ByUs(Farewell::new(
                code::POLICY,
                "`after` is beyond the log",
            )));
        }
        let kind = join.participant.kind;
        if house.config.open && kind == ParticipantKind::Agent {
            socket.set_max_message(OPEN_RESULT.max(house.settings.limits.message_bytes));
        }
        let mut prelude = VecDeque::new();
        let reference = Some(join_id.clone());
        prelude.push_back(text_frame(&envelope::unkept(
            &session,
            reference,
            joined.welcome,
        )));
        let reply = Reply {
            id: join_id,
            verdict: Verdict::Accepted(joined.seq),
        };
        prelude.push_back(text_frame(&envelope::reply(&session, reply)));
        let (seen, interlude) = match join.after {
            Some(after) => (after, None),
            None => {
                for who in joined.others {
                    let sender = Sender::Participant(who.id.clone());
                    let told = envelope::unkept_by(&session, sender, None, who);
                    prelude.push_back(text_frame(&told));
                }
                let history = join.history.unwrap_or(HISTORY);
                let directory = joined
                    .working_directory
                    .map(|context| text_frame(&envelope::unkept(&session, None, context)));
                let seen = (joined.present - 1).saturating_sub(history);
                (seen, Some((joined.present, directory)))
            }
        };
        Ok(Self {
            cursor: joined.feed.cursor_after(seen),
            viewer: joined.device,
            vault: joined.vault,
            socket,
            house,
            session,
            kind,
            outbox: Arc::default(),
            prelude,
            interlude,
            fetching: None,
            unanswered: 0,
            unpaid: BTreeSet::new(),
            strikes: 0,
            login,
            written: 0,
            stuck_since: None,
            read: 0,
            _place: place,
        })
    }

    async fn run(&mut self, feed: &Feed) -> Ended {
        let mut bell = pin!(feed.bell().notified());
        let often = TICK.min(Duration::from_secs(self.house.config.stall_seconds));
        let mut tick = pin!(tokio::time::sleep(often));
        loop {
            let event = poll_fn(|cx| self.poll_event(cx, feed, bell.as_mut(), tick.as_mut())).await;
            let ended = match event {
                Event::Message(text) => Box::pin(self.hear(&text)).await,
                Event::Binary => {
                    let refusal =
                        Refusal::Malformed("send text frames, one message each".to_owned());
                    self.refuse(&refusal, None)
                }
                Event::Tick => {
                    tick.as_mut().reset(Instant::now() + often);
                    Box::pin(self.look_at_the_clock()).await
                }
                Event::Ended(ended) => Some(ended),
            };
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    fn poll_event<'b>(
        &mut self,
        cx: &mut Context<'_>,
        feed: &'b Feed,
        mut bell: Pin<&mut Notified<'b>>,
        tick: Pin<&mut Sleep>,
    ) -> Poll<Event> {
        // The bell is set before the ring is looked at, so that nothing is missed in between.
        while bell.as_mut().poll(cx).is_ready() {
            bell.set(feed.bell().notified());
        }
        if let Poll::Ready(ended) = self.poll_tell(cx, feed) {
            return Poll::Ready(Event::Ended(ended));
        }
        if self.unanswered < MOST_UNANSWERED
            && !self.socket.is_backed_up()
            && let Poll::Ready(incoming) = self.socket.poll_incoming(cx)
        {
            return Poll::Ready(match incoming {
                Ok(Incoming::Text(text)) => Event::Message(text),
                Ok(Incoming::Binary(_)) => Event::Binary,
                Ok(Incoming::Closed { .. }) => Event::Ended(Ended::ByThem),
                Err(SocketError::TooBig { limit }) => {
                    tracing::info!(session = %self.session, participant = %self.viewer.participant, limit, "refused a message that is too big");
                    Event::Ended(Ended::ByThem)
                }
                Err(_) => Event::Ended(Ended::ByThem),
            });
        }
        tick.poll(cx).map(|()| Event::Tick)
    }

    /// Writes answers and whatever the cursor finds, until there is nothing more or no room.
    fn poll_tell(&mut self, cx: &mut Context<'_>, feed: &Feed) -> Poll<Ended> {
        while let Poll::Ready(reply) = self.outbox.poll(cx) {
            self.answered(reply);
        }
        if self.strikes > MOST_STRIKES {
            return Poll::Ready(too_many_messages());
        }
        for _ in 0..BATCHES_AT_ONCE {
            let mut idle = false;
            if self.socket.wants_frames() {
                match self.poll_next_batch(cx, feed) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(farewell)) => return Poll::Ready(Ended::ByUs(farewell)),
                    Poll::Pending => idle = true,
                }
            }
            match self.socket.poll_write(cx) {
                Poll::Ready(Ok(())) if idle => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Ended::ByThem),
                Poll::Pending => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Pushes the next frames in order: prelude, history, interlude, the present.
    fn poll_next_batch(&mut self, cx: &mut Context<'_>, feed: &Feed) -> Poll<Result<(), Farewell>> {
        if !self.prelude.is_empty() {
            let many = self.prelude.len().min(crate::feed::BATCH);
            for frame in self.prelude.drain(..many) {
                self.socket.push(frame);
            }
            self.prelude.shrink_to(0);
            return Poll::Ready(Ok(()));
        }
        if let Some(fetching) = &mut self.fetching {
            let Poll::Ready(page) = Pin::new(fetching).poll(cx) else {
                return Poll::Pending;
            };
            self.fetching = None;
            return Poll::Ready(
                self.take_page(page.unwrap_or_else(|panic| Err(panic.to_string()))),
            );
        }
        if let Some((present, _)) = self.interlude {
            if self.cursor.next < present {
                self.fetch(present);
            } else if let Some((_, Some(frame))) = self.interlude.take() {
                self.socket.push(frame);
            }
            return Poll::Ready(Ok(()));
        }
        let socket = &mut *self.socket;
        match feed.take(&mut self.cursor, &self.viewer, |frame| socket.push(frame)) {
            Taken::Some => Poll::Ready(Ok(())),
            Taken::Behind => {
                self.fetch(feed.head() + 1);
                Poll::Ready(Ok(()))
            }
            Taken::UpToDate if self.viewer.has_left() && self.unanswered == 0 => Poll::Ready(Err(
                Farewell::new(code::NORMAL, "you have left the session"),
            )),
            Taken::UpToDate => Poll::Pending,
            Taken::Closed => Poll::Ready(Err(Farewell::new(
                code::GOING_AWAY,
                "the server is shutting down; come again",
            ))),
        }
    }

    fn fetch(&mut self, until: u64) {
        self.fetching = Some(tokio::spawn(fetch::page(
            self.house.clone(),
            self.session.clone(),
            Arc::clone(&self.viewer),
            self.vault.clone(),
            self.cursor.next,
            until,
        )));
    }

    fn take_page(&mut self, page: Result<Page, String>) -> Result<(), Farewell> {
        match page {
            Ok(page) => {
                self.cursor.next = page.next;
                if !page.frames.is_empty() {
                    self.socket.push(page.frames);
                }
                Ok(())
            }
            Err(why) => {
                tracing::error!(session = %self.session, why, "could not read the log for a viewer");
                Err(Farewell::new(
                    code::TRY_AGAIN,
                    "the log cannot be read at the moment; come again",
                ))
            }
        }
    }

    fn answered(&mut self, reply: Reply) {
        self.unanswered -= 1;
        let unpaid = self.unpaid.remove(&reply.id);
        if let Verdict::Refused(refusal) = &reply.verdict {
            self.house.metrics.refused(refusal);
            tracing::info!(session = %self.session, participant = %self.viewer.participant, code = ?refusal.code(), %refusal, "refused");
            if unpaid {
                self.pay_late();
            }
        }
        push(self.socket, &envelope::reply(&self.session, reply));
    }

    /// Takes from the allowance what a message did not pay when it came.
    fn pay_late(&mut self) {
        if !self
            .viewer
            .may_send(clock::now(), &self.house.settings.limits)
        {
            self.strikes += 1;
        }
    }

    fn refuse(&mut self, refusal: &Refusal, related_to: Option<MessageId>) -> Option<Ended> {
        self.house.metrics.refused(refusal);
        // It quotes what could not be read, which may be a secret in the wrong place.
        let why = if matches!(refusal, Refusal::Malformed(_)) {
            "not a message".to_owned()
        } else {
            refusal.to_string()
        };
        tracing::info!(session = %self.session, participant = %self.viewer.participant, code = ?refusal.code(), why, "refused");
        push(
            self.socket,
            &envelope::error(&self.session, refusal, related_to),
        );
        None
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is the session's business"
    )]
    async fn hear(&mut self, text: &str) -> Option<Ended> {
        let limits = &self.house.settings.limits;
        let read = parse_client_message(text, limits);
        let output = matches!(
            &read,
            Ok((
                _,
                ClientMessage::ToolOutput(_) | ClientMessage::ToolResult(_)
            ))
        );
        if text.len() > limits.message_bytes
            && !matches!(&read, Ok((_, ClientMessage::ToolResult(_))))
        {
            return Some(Ended::ByUs(Farewell::new(
                code::TOO_BIG,
                "the message is too big",
            )));
        }
        let spoke_for_output = output && self.kind == ParticipantKind::Agent;
        if !spoke_for_output && !self.viewer.may_send(clock::now(), limits) {
            return self.too_fast(read.ok().map(|(heading, _)| heading.id));
        }
        let (heading, message) = match read {
            Ok(read) => read,
            Err(error) => return self.refuse(&error.refusal, error.related_to),
        };
        if let Err(refusal) = self.is_mine(&heading) {
            if spoke_for_output {
                self.pay_late();
            }
            return self.refuse(&refusal, Some(heading.id));
        }
        if spoke_for_output {
            self.unpaid.insert(heading.id.clone());
        }
        self.note_life(&message).await;
        match message {
            ClientMessage::HeartbeatPing(_) => {
                push(self.socket, &envelope::pong(&self.session, heading.id));
            }
            ClientMessage::HeartbeatPong(_) => {}
            ClientMessage::OutputRead(read) => {
                match output::page(&self.house, &self.session, read).await {
                    Ok(page) => {
                        push(
                            self.socket,
                            &envelope::unkept(&self.session, Some(heading.id), page),
                        );
                    }
                    Err(refusal) => return self.refuse(&refusal, Some(heading.id)),
                }
            }
            _ => self.say(heading, message).await,
        }
        None
    }

    async fn say(&mut self, heading: Heading, message: ClientMessage) {
        self.unanswered += 1;
        let said = Submitted {
            id: heading.id,
            reference: heading.reference,
            causal_refs: heading.causal_refs,
            fork: heading.fork,
            message,
        };
        let by = self.viewer.participant.clone();
        self.house
            .say(&self.session, by, said, self.outbox.clone())
            .await;
    }

    fn is_mine(&self, heading: &Heading) -> Result<(), Refusal> {
        let me = &self.viewer.participant;
        match &heading.sender {
            Sender::Participant(sender) if sender == me => {}
            Sender::Participant(_) | Sender::System => {
                let claimed = heading.sender.to_string();
                return Err(Refusal::IdentityMismatch {
                    field: "sender",
                    claimed,
                    actual: me.clone(),
                });
            }
        }
        if heading.session != self.session {
            return Err(Refusal::Unauthorized(format!(
                "this connection has joined `{}`, not `{}`; open another for that",
                self.session, heading.session
            )));
        }
        Ok(())
    }

    /// Keeps the participant's presence, and reports it if they had been given up.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything but a heartbeat is an act"
    )]
    async fn note_life(&mut self, message: &ClientMessage) {
        let now = clock::now();
        let returned = match message {
            ClientMessage::HeartbeatPing(_) | ClientMessage::HeartbeatPong(_) => {
                self.viewer.heard(now)
            }
            _ => self.viewer.acted(now),
        };
        if returned {
            self.house
                .heard(&self.session, self.viewer.participant.clone())
                .await;
        }
    }

    fn too_fast(&mut self, related_to: Option<MessageId>) -> Option<Ended> {
        self.strikes += 1;
        if self.strikes > MOST_STRIKES {
            return Some(too_many_messages());
        }
        let per_second = self.house.settings.limits.messages_per_second;
        self.refuse(&Refusal::RateLimited { per_second }, related_to)
    }

    /// Ends connections that do not read, and those whose token no longer holds.
    async fn look_at_the_clock(&mut self) -> Option<Ended> {
        let read = self.socket.bytes_read();
        if read != self.read {
            self.read = read;
            self.viewer.heard(clock::now());
        }
        let written = self.socket.bytes_written();
        if self.socket.wants_frames() || written != self.written {
            self.stuck_since = None;
        } else {
            let since = *self.stuck_since.get_or_insert_with(Instant::now);
            if since.elapsed().as_secs() >= self.house.config.stall_seconds {
                return Some(Ended::ByUs(Farewell::new(
                    code::POLICY,
                    "not reading; resume with `after`",
                )));
            }
        }
        self.written = written;
        self.strikes = self.strikes.saturating_sub(1);
        self.token_holds().await
    }

    async fn token_holds(&mut self) -> Option<Ended> {
        let login = self.login.as_ref()?;
        let (store, id) = (self.house.store.clone(), login.token_id.clone());
        let checked =
            tokio::task::spawn_blocking(move || token::recheck(store.tokens(), &id, clock::now()));
        match checked.await {
            Ok(Err(error @ (token::TokenError::Revoked | token::TokenError::Expired))) => {
                Some(Ended::ByUs(Farewell::new(code::POLICY, &error.to_string())))
            }
            // A store that cannot be read for a moment is no reason to send people away.
            Ok(Ok(()) | Err(_)) | Err(_) => None,
        }
    }
}

fn too_many_messages() -> Ended {
    Ended::ByUs(Farewell::new(code::POLICY, "too many messages"))
}
