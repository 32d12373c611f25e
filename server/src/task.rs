//! The task that owns one session: it decides, persists the entries, then publishes them.
//!
//! The task keeps deciding while earlier entries are being written. Nothing is published, and no
//! answer is given, before everything it depends on is durable. If a write fails, every waiting
//! request is refused and the session is replayed from what was written.

mod command;
mod load;
mod persist;
mod presence;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pvp_protocol::{ClientMessage, ParticipantId, Refusal, SessionId, Timestamp};
use pvp_session::{Answer, DecisionContext, Input, Session, Stamped, SubmittedMessage};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

pub(crate) use command::{
    DeferredReply, HttpAccess, JoinedSession, PresenceMap, ReplyTo, SessionCommand, SessionRequest,
};
use persist::{PendingAppend, WriteBatch};

use crate::directory::SessionDirectory;
use crate::feed::SessionFeed;
use crate::secrets::SecretStore;
use crate::store::{AppendCallback, AppendError, AppendRequest, CheckpointTiming, LogHead};
use crate::viewer::{DeviceGuard, Viewer};

/// Commands handled together, whose entries are therefore written in one append.
const MAX_COMMANDS_PER_BATCH: usize = 256;

/// Entries that may wait for the disk before the task stops receiving commands.
const MAX_ENTRIES_IN_FLIGHT: usize = 1024;

/// How long a session without connected participants stays in memory.
const UNLOAD_IDLE_AFTER: Duration = Duration::from_secs(30);

/// How long the task waits after a disk error before it retries on its own.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How the rest of the server reaches a session.
#[derive(Clone)]
pub(crate) struct SessionHandle {
    pub(crate) commands: mpsc::Sender<SessionCommand>,
    /// Becomes true when the task has unloaded the session.
    pub(crate) unloaded: watch::Receiver<bool>,
}

/// Whether the session's log could be read, so that the session can accept commands.
enum LogHealth {
    Readable,
    /// The log could not be read, for this reason.
    Unreadable(String),
}

pub(crate) struct SessionTask {
    /// The session's id.
    id: SessionId,
    /// What all sessions share: store, policy, configuration, metrics.
    directory: Arc<SessionDirectory>,
    /// The state that follows from the log and from the entries still being written.
    session: Session,
    /// The last entry that was decided; it may not be durable yet.
    head: LogHead,
    /// Where published entries wait for the session's connections.
    feed: Arc<SessionFeed>,
    /// The values of the session's secrets, which are never logged.
    secrets: Arc<SecretStore>,
    /// What the connections share with this task about each participant.
    viewers: BTreeMap<ParticipantId, Arc<Viewer>>,
    /// Everyone's presence, as last published.
    presence: PresenceMap,
    /// Participants who made an HTTP request recently, and until when that counts as presence.
    http_presence: BTreeMap<ParticipantId, (DeviceGuard, Timestamp)>,
    /// The batch that the store is writing, then the one that collects what is decided meanwhile.
    in_flight: VecDeque<WriteBatch>,
    /// The second batch of `in_flight` as it will be sent to the store; `None` if there is none.
    pending_append: Option<PendingAppend>,
    /// The number of entries in all batches of `in_flight`.
    entries_in_flight: usize,
    /// Whether the log could be read at the last attempt.
    log_health: LogHealth,
    /// Receives the outcome of each append from the store.
    append_results: mpsc::UnboundedReceiver<Result<(), AppendError>>,
    /// The other end of `append_results`, cloned into each append.
    append_result_sender: mpsc::UnboundedSender<Result<(), AppendError>>,
    /// When the last command arrived.
    last_used: Instant,
    /// When the append that the store is writing was sent to it.
    append_sent_at: Instant,
    /// When the last heartbeat was broadcast.
    last_ping: Instant,
    /// When someone's presence may change next; `None` if nothing is due.
    next_presence_check: Option<Timestamp>,
    /// After a disk error, timers and reloads wait until this time.
    backoff_until: Instant,
    /// The server is shutting down: no more commands are accepted.
    stopping: bool,
}

/// Starts the task of a session, which reads the log before it handles its first command.
pub(crate) fn spawn(directory: Arc<SessionDirectory>, id: SessionId) -> SessionHandle {
    let (commands, receiver) = mpsc::channel(MAX_COMMANDS_PER_BATCH);
    let (unloaded_sender, unloaded) = watch::channel(false);
    let (append_result_sender, append_results) = mpsc::unbounded_channel();
    let now = Instant::now();
    let task = SessionTask {
        session: Session::new(id.clone()),
        head: LogHead::empty(&id),
        feed: Arc::default(),
        secrets: Arc::default(),
        viewers: BTreeMap::new(),
        presence: BTreeMap::new(),
        http_presence: BTreeMap::new(),
        in_flight: VecDeque::new(),
        pending_append: None,
        entries_in_flight: 0,
        log_health: LogHealth::Readable,
        append_results,
        append_result_sender,
        last_used: now,
        append_sent_at: now,
        last_ping: now,
        next_presence_check: None,
        backoff_until: now,
        stopping: false,
        directory: directory.clone(),
        id: id.clone(),
    };
    let unload_guard = UnloadGuard {
        directory,
        id,
        feed: task.feed.clone(),
        unloaded: unloaded_sender,
    };
    tokio::spawn(async move {
        let _unload_guard = unload_guard;
        task.run(receiver).await;
    });
    SessionHandle { commands, unloaded }
}

/// Removes the session from the directory however its task ends, so that the next command starts
/// a new task.
struct UnloadGuard {
    directory: Arc<SessionDirectory>,
    id: SessionId,
    feed: Arc<SessionFeed>,
    unloaded: watch::Sender<bool>,
}

impl Drop for UnloadGuard {
    fn drop(&mut self) {
        self.directory.remove(&self.id);
        self.unloaded.send_replace(true);
        // Connections that still read the feed end, and their clients reconnect.
        self.feed.close();
    }
}

impl SessionTask {
    async fn run(mut self, mut receiver: mpsc::Receiver<SessionCommand>) {
        self.load().await;
        let mut commands = Vec::new();
        loop {
            let accepting = matches!(self.log_health, LogHealth::Readable)
                && self.entries_in_flight < MAX_ENTRIES_IN_FLIGHT;
            let nothing_in_flight = self.in_flight.is_empty();
            let unreadable = matches!(self.log_health, LogHealth::Unreadable(_));
            let next_timer = self.next_timer();
            let unload_at = self.last_used + self.idle_timeout();
            let can_unload = nothing_in_flight && self.can_unload();
            tokio::select! {
                biased;
                Some(result) = self.append_results.recv() => self.on_append_result(result).await,
                // Before the commands, or a steady stream of them could delay a deadline forever.
                () = sleep_until(next_timer), if accepting => self.on_timer().await,
                () = sleep_until(self.backoff_until), if unreadable && nothing_in_flight => self.load().await,
                count = receiver.recv_many(&mut commands, MAX_COMMANDS_PER_BATCH), if accepting || unreadable => {
                    if count == 0 {
                        break;
                    }
                    self.last_used = Instant::now();
                    self.handle_commands(std::mem::take(&mut commands)).await;
                }
                () = sleep_until(unload_at), if can_unload => {
                    receiver.close();
                }
            }
            if self.stopping {
                receiver.close();
            }
        }
        self.unload().await;
    }

    /// True when no participant has a device connected. The deadlines of an unloaded session are
    /// indexed in the store.
    fn can_unload(&self) -> bool {
        self.viewers
            .values()
            .all(|viewer| viewer.device_count() == 0)
    }

    fn idle_timeout(&self) -> Duration {
        if self.session.is_created() {
            UNLOAD_IDLE_AFTER
        } else {
            Duration::ZERO
        }
    }

    /// Waits for the writes in flight, then signs a last checkpoint.
    async fn unload(mut self) {
        while !self.in_flight.is_empty() {
            let Some(result) = self.append_results.recv().await else {
                break;
            };
            self.on_append_result(result).await;
        }
        if self.session.is_created() && matches!(self.log_health, LogHealth::Readable) {
            let sender = self.append_result_sender.clone();
            self.directory
                .store
                .append(AppendRequest {
                    session: self.id.clone(),
                    prev: self.head,
                    records: Vec::new(),
                    index: self.session_index(),
                    at: pvp_clock::now(),
                    checkpoint: CheckpointTiming::Now,
                    // The receiver lives as long as this task, which waits for the result.
                    on_done: AppendCallback::new(move |result| drop(sender.send(result))),
                })
                .await;
            if let Some(Err(error)) = self.append_results.recv().await {
                tracing::warn!(session = %self.id, %error, "could not seal the log");
            }
        }
    }

    fn refresh_viewers(&self) {
        for (id, viewer) in &self.viewers {
            let member = self.session.member(id);
            viewer.set_may_approve(member.is_some_and(pvp_session::Member::may_vote));
            viewer.set_left(member.is_none_or(|member| member.left));
        }
    }

    async fn handle_commands(&mut self, commands: Vec<SessionCommand>) {
        let mut batch = WriteBatch::default();
        for command in commands {
            self.handle_command(command, &mut batch);
        }
        self.persist(batch).await;
    }

    fn handle_command(&mut self, command: SessionCommand, batch: &mut WriteBatch) {
        if let LogHealth::Unreadable(why) = &self.log_health {
            command.refuse(Refusal::WriteFailed(why.clone()));
            return;
        }
        match command {
            SessionCommand::Request(request, reply) => self.handle_request(*request, reply, batch),
            SessionCommand::ParticipantReturned(participant) => {
                self.on_participant_returned(&participant, batch)
            }
            SessionCommand::ConnectionClosed => self.refresh_presence(batch),
            SessionCommand::HttpAccess(participant, answer) => {
                // The caller may have stopped waiting.
                let _ = answer.send(self.http_access(participant, batch));
            }
            SessionCommand::Query(query) => batch
                .deferred_replies
                .push(query(&self.session, &self.presence)),
            SessionCommand::Stop => self.stopping = true,
        }
    }

    fn handle_request(
        &mut self,
        request: SessionRequest,
        mut reply: ReplyTo,
        batch: &mut WriteBatch,
    ) {
        match request {
            SessionRequest::Create { by, id, create } => {
                let answer = self.create_session(Input::Create { by, id, create }, batch);
                batch.answers.push((reply, answer));
            }
            SessionRequest::Join {
                identity,
                announce,
                id,
                create_if_missing,
            } => {
                if let (false, Some(create)) = (self.session.is_created(), create_if_missing) {
                    let by = identity.participant.clone();
                    let create = Input::Create {
                        by,
                        id: pvp_clock::fresh_id(),
                        create: *create,
                    };
                    if let Answer::Refused(refusal) = self.create_session(create, batch) {
                        return reply.refuse(refusal);
                    }
                }
                let participant = identity.participant.clone();
                let answer = self.apply_input(
                    Input::Join {
                        identity,
                        announce,
                        id,
                    },
                    batch,
                );
                if let Answer::Accepted(seq) = answer {
                    self.admit(&participant, seq, &mut reply, batch);
                }
                batch.answers.push((reply, answer));
            }
            SessionRequest::Submit { by, submitted } => {
                let (submitted, value) = self.strip_secrets(submitted);
                let answer = self.apply_input(Input::Submit { by, submitted }, batch);
                if let (Answer::Accepted(Some(seq)), Some(value)) = (&answer, value) {
                    batch.secret_values.insert(*seq, value);
                }
                batch.answers.push((reply, answer));
            }
        }
    }

    /// Creates the session, unless the server has reached its limit of sessions.
    fn create_session(&mut self, create: Input, batch: &mut WriteBatch) -> Answer {
        if self.session.is_created() {
            return self.apply_input(create, batch);
        }
        if let Err(refusal) = self.directory.reserve_session() {
            return Answer::Refused(refusal);
        }
        let answer = self.apply_input(create, batch);
        if matches!(answer, Answer::Refused(_)) {
            self.directory.release_reserved_session();
        }
        answer
    }

    /// Removes secret values from a message before the session sees it: takes the value out of a
    /// shared secret, and masks known values in output.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "no other message carries values or output"
    )]
    fn strip_secrets(&self, mut submitted: SubmittedMessage) -> (SubmittedMessage, Option<String>) {
        let mut value = None;
        match &mut submitted.message {
            ClientMessage::SecretShare(share) => value = share.value.take(),
            ClientMessage::ToolOutput(output) => self.secrets.mask_output(output),
            ClientMessage::ToolResult(result) => self.secrets.mask_result(result),
            _ => {}
        }
        (submitted, value)
    }

    /// Applies an input to the session and adds the resulting entries to the batch.
    fn apply_input(&mut self, input: Input, batch: &mut WriteBatch) -> Answer {
        let policy = self.directory.policy();
        let context = DecisionContext {
            policy: &policy,
            settings: &self.directory.settings,
        };
        let outcome = self.session.apply(context, stamp(input));
        for entry in outcome.entries {
            let body = Bytes::from(entry.body());
            batch.entries.push((entry, body));
        }
        if let Some(ephemeral) = outcome.ephemeral {
            self.feed.broadcast_ephemeral(&ephemeral.envelope.to_json());
        }
        outcome.answer
    }
}

/// An input with the current time and a seed for fresh ids and nonces.
fn stamp<T>(input: T) -> Stamped<T> {
    Stamped {
        at: pvp_clock::now(),
        seed: pvp_clock::random_bytes(),
        input,
    }
}
