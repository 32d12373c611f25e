//! Serves a connection that has joined, until it ends.

mod incoming;
mod outgoing;

use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pvp_protocol::{MessageId, ParticipantKind, Refusal, SessionId};
use pvp_session::{Answer, HistoryFilter};
use tokio::sync::futures::Notified;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};

use super::backfill::BackfillPage;
use super::handshake::AdmittedConnection;
use super::{CloseReason, ConnectionEnd, binary_frame, close_code, push_text};
use crate::admission::{self, Allowance, Charge, Principal};
use crate::directory::{ConnectionSlot, SessionDirectory};
use crate::envelope;
use crate::feed::{LogCursor, SessionFeed};
use crate::reply_queue::{ConnectionReply, ReplyQueue};
use crate::secrets::SecretStore;
use crate::socket::{Incoming, Socket, SocketError, SocketStream, Utf8Bytes, text_frame};
use crate::viewer::DeviceGuard;

/// How many messages of one connection may wait for answers before the server stops reading from
/// it.
const MAX_UNANSWERED: usize = 64;

/// Bytes of pages, refusals and pongs that may wait for the entries before them; with more, the
/// server stops reading from the connection.
const MAX_QUEUED_BYTES: usize = 512 * 1024;

/// The longest interval between two ticks.
const TICK_INTERVAL: Duration = Duration::from_secs(5);

/// How many entries of history a client gets unless it asks for another number.
const DEFAULT_HISTORY: u64 = 500;

/// How many entries of history an agent gets for something old that waits for it.
const MAX_AGENT_HISTORY: u64 = 20_000;

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
    /// The replies to this connection's messages, from the session's task and from itself.
    reply_queue: Arc<ReplyQueue>,
    /// How far the connection has read.
    cursor: LogCursor,
    /// Frames to send before the log: the welcome, who else has joined.
    welcome_frames: VecDeque<Bytes>,
    /// The sequence number where history ends, and a frame to send at that point; `None` once the
    /// history was sent, or if the client resumed.
    after_history: Option<(u64, Option<Bytes>)>,
    /// What the history leaves out; `None` if it is complete.
    history_filter: Option<Arc<HistoryFilter>>,
    /// The read from the store that is under way, if any.
    backfill: Option<JoinHandle<Result<BackfillPage, String>>>,
    /// The proposals that were not answered yet, on a server without login.
    sent_proposals: BTreeSet<MessageId>,
    /// How many messages of this connection have not been answered on the socket.
    unanswered: usize,
    /// Bytes of the queued replies that the connection made itself.
    queued_bytes: usize,
    /// Messages above the rate limit; each tick forgives one.
    rate_violations: u32,
    /// Who talks on the connection.
    principal: Principal,
    /// The socket's count of written bytes at the last tick.
    last_bytes_written: u64,
    /// Since when frames have been waiting without any byte written; `None` if the client reads.
    stalled_since: Option<Instant>,
    /// The socket's count of read bytes at the last tick.
    last_bytes_read: u64,
    /// Counts the connection until it ends.
    _slot: Arc<ConnectionSlot>,
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
            principal,
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
        socket.set_max_message(admission::max_message_bytes(&directory, kind));
        let mut welcome_frames = VecDeque::new();
        let roster = joined.roster;
        welcome_frames.push_back(roster.welcome_frame(&session, &join_id, joined.welcome));
        // The answer to the join follows the history, as every answer follows what came before it.
        let reply_queue = ReplyQueue::new(joined.feed.clone());
        let answer = Answer::Accepted(joined.accepted_seq);
        reply_queue.push(
            ConnectionReply {
                id: join_id,
                answer,
            },
            Charge::Paid,
        );
        // Whoever asks for a part of the log knows what is past.
        let filter = joined.history_filter.filter(|_| join.history.is_none());
        let filter = filter.filter(|_| join.after.is_none()).map(Arc::new);
        let (seen, after_history) = match join.after {
            Some(after) => (after, None),
            None => {
                if join.announce_others != Some(false) {
                    welcome_frames.extend(roster.other_announcements());
                }
                let history = join.history.unwrap_or(DEFAULT_HISTORY);
                let working_directory = joined
                    .working_directory
                    .map(|context| text_frame(&envelope::ephemeral(&session, None, context)));
                let live_from = joined.live_from_seq;
                let mut seen = (live_from - 1).saturating_sub(history);
                // What waits for an agent may be older than the history that others get.
                if let Some(oldest) = filter.as_ref().and_then(|filter| filter.oldest_open()) {
                    let most = (live_from - 1).saturating_sub(MAX_AGENT_HISTORY);
                    seen = seen.min(oldest.saturating_sub(1)).max(most);
                }
                // Where many join at a time, what happened before is what is in memory.
                let viewer = &joined.device;
                if filter.is_none()
                    && let Some(recent) = joined.feed.read_range(seen + 1, live_from, viewer)
                {
                    welcome_frames.extend(recent);
                    seen = live_from - 1;
                }
                (seen, Some((live_from, working_directory)))
            }
        };
        Ok(Self {
            cursor: LogCursor {
                next_seq: seen + 1,
                ephemeral: joined.last_ephemeral,
            },
            viewer: joined.device,
            secrets: joined.secrets,
            history_filter: filter,
            sent_proposals: BTreeSet::new(),
            socket,
            directory,
            session,
            kind,
            reply_queue: Arc::new(reply_queue),
            welcome_frames,
            after_history,
            backfill: None,
            unanswered: 1,
            queued_bytes: 0,
            rate_violations: 0,
            principal,
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
                    self.send_refusal(&binary_frame(), None);
                    None
                }
                SocketEvent::Tick => {
                    tick.as_mut().reset(Instant::now() + interval);
                    Box::pin(self.on_tick()).await
                }
                SocketEvent::Ended(ended) => Some(ended),
            };
            if let Some(ended) = ended {
                // The close is the last frame, so the replies that are due go before it.
                poll_fn(|cx| Poll::Ready(self.push_due_replies(cx))).await;
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
        if let Some(refusal) = self.principal.token_ended() {
            return Poll::Ready(SocketEvent::Ended(token_end(&refusal)));
        }
        if let Poll::Ready(ended) = self.poll_outgoing(cx, feed) {
            return Poll::Ready(SocketEvent::Ended(ended));
        }
        if self.may_read()
            && let Poll::Ready(incoming) = self.socket.poll_incoming(cx)
        {
            return Poll::Ready(match incoming {
                Ok(Incoming::Text(text)) => SocketEvent::Message(text),
                Ok(Incoming::Binary(_)) => SocketEvent::Binary,
                Ok(Incoming::Closed { .. }) => SocketEvent::Ended(ConnectionEnd::ByPeer),
                Err(SocketError::TooBig { limit }) => {
                    tracing::info!(session = %self.session, participant = %self.viewer.participant, limit, "refused a message that is too large");
                    SocketEvent::Ended(ConnectionEnd::ByPeer)
                }
                Err(_) => SocketEvent::Ended(ConnectionEnd::ByPeer),
            });
        }
        tick.poll(cx).map(|()| SocketEvent::Tick)
    }

    /// Whether the next message may be read, so that its answer finds room.
    fn may_read(&self) -> bool {
        // Who sends too fast gets each refusal before the next message is read, and so all of them
        // before the connection is closed for it.
        let max_unanswered = match self.rate_violations {
            0 => MAX_UNANSWERED,
            _ => 1,
        };
        self.unanswered < max_unanswered
            && self.queued_bytes < MAX_QUEUED_BYTES
            && !self.socket.is_backed_up()
    }

    /// The participant's rate limit.
    fn allowance(&self) -> Allowance<'_> {
        Allowance {
            viewer: &self.viewer,
            kind: Some(self.kind),
            limits: &self.directory.settings.limits,
        }
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

    /// Ends the connection if its token is no longer valid.
    async fn recheck_token(&mut self) -> Option<ConnectionEnd> {
        let checked = self.principal.recheck(&self.directory).await;
        checked.err().map(|refusal| token_end(&refusal))
    }
}

pub(super) fn token_end(refusal: &Refusal) -> ConnectionEnd {
    let why = refusal.to_string();
    ConnectionEnd::ByServer(CloseReason::new(close_code::POLICY, &why))
}
