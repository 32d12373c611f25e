//! The task that owns one session: it decides, persists the entries, then publishes them.
//!
//! The task keeps deciding while earlier entries are being written. Nothing is published, and no
//! answer is given, before everything it depends on is durable. If a write fails, every waiting
//! request is refused and the session is replayed from what was written.

mod command;
mod deletion;
mod leases;
mod load;
mod persist;
mod presence;
mod quota;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pvp_protocol::{
    ClientMessage, ParticipantId, Refusal, Sender, ServerMessage, SessionId, Timestamp,
};
use pvp_session::{
    Answer, DecisionContext, Entry, Input, Member, Session, Stamped, SubmittedMessage,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

pub(crate) use command::{
    DeferredReply, DeletionRequest, HttpAccess, JoinedSession, PresenceMap, ReplyTo,
    SessionCommand, SessionRequest,
};
use deletion::PendingDeletion;
use leases::Leases;
use load::BackgroundCheck;
use persist::{PendingAppend, SentAppend, WriteBatch};
use presence::{Admission, PresenceSchedule};

use crate::admission;
use crate::directory::SessionDirectory;
use crate::feed::SessionFeed;
use crate::live_tokens::EndedToken;
use crate::roster::Roster;
use crate::secrets::SecretStore;
use crate::store::{AppendRequest, CheckpointTiming, LogHead, LogUsage, TokenEnd};
use crate::viewer::{DeviceGuard, SessionDevices, Viewer};

/// Commands handled together, whose entries are therefore written in one append.
const MAX_COMMANDS_PER_BATCH: usize = 256;

/// Entries that may wait for the disk before the task stops receiving commands.
const MAX_ENTRIES_IN_FLIGHT: usize = 1024;

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
    /// What the session has used of its quotas, entries that are still being written included.
    usage: LogUsage,
    /// The token that made the session, if that was while it has been in memory.
    made_by: Option<String>,
    /// The last entry that a snapshot was made at.
    snapshot_seq: u64,
    /// Who may vote, and whether as an admin, when that last may have changed.
    voters: BTreeSet<(ParticipantId, bool)>,
    /// Checks the part of the log that the snapshot stands for; `None` if there is nothing to check.
    background_check: Option<BackgroundCheck>,
    /// Whether that part was found to be damaged, so that the whole log must be folded.
    distrusts_snapshots: bool,
    /// Where published entries wait for the session's connections.
    feed: Arc<SessionFeed>,
    /// The values of the session's secrets, which are never logged.
    secrets: Arc<SecretStore>,
    /// What the connections share with this task about each participant.
    viewers: BTreeMap<ParticipantId, Arc<Viewer>>,
    /// Counts the devices of all participants.
    devices: Arc<SessionDevices>,
    /// Everyone as those who join receive them.
    roster: Roster,
    /// Who joined in the batch that is being handled.
    admissions: Vec<Admission>,
    /// Who joined, left or changed roles in entries that are not published yet.
    changed_members: BTreeSet<ParticipantId>,
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
    /// The append that the store is writing: the first batch of `in_flight`.
    sent_append: Option<SentAppend>,
    /// Whether this session is counted towards the server's limit although it may not exist.
    reserved: bool,
    /// When the last command arrived.
    last_used: Instant,
    /// When the last heartbeat was broadcast.
    last_ping: Instant,
    /// When everyone's presence is to be checked; `None` unless something changed for all.
    next_presence_check: Option<Timestamp>,
    /// When the presence of each participant may change next.
    presence_schedule: PresenceSchedule,
    /// Since when those have no device who will be told to be gone.
    disconnected_since: BTreeMap<ParticipantId, Timestamp>,
    /// Until when proposals wait for their clients to be heard of.
    leases: Leases,
    /// How often someone's presence was checked, for tests.
    #[cfg(test)]
    presence_checks: usize,
    /// After a disk error, timers and reloads wait until this time.
    backoff_until: Instant,
    /// The server is shutting down, or the session is deleted: no more commands are accepted.
    stopping: bool,
    /// Whether the session was deleted earlier, so that there is nothing to work on.
    deleted: bool,
    /// Who deletes the session, once everything is written.
    deletion: Option<PendingDeletion>,
}

/// Starts the task of a session, which reads the log before it handles its first command.
pub(crate) fn spawn(directory: Arc<SessionDirectory>, id: SessionId) -> SessionHandle {
    let (commands, receiver) = mpsc::channel(MAX_COMMANDS_PER_BATCH);
    let (unloaded_sender, unloaded) = watch::channel(false);
    let task = SessionTask::new(directory.clone(), id.clone());
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
    fn new(directory: Arc<SessionDirectory>, id: SessionId) -> Self {
        let now = Instant::now();
        let devices = Arc::new(SessionDevices::default());
        let feed = SessionFeed::new(directory.ring_budget.clone(), devices.clone());
        Self {
            session: Session::new(id.clone()),
            head: LogHead::empty(&id),
            usage: LogUsage::default(),
            made_by: None,
            snapshot_seq: 0,
            voters: BTreeSet::new(),
            background_check: None,
            distrusts_snapshots: false,
            feed: Arc::new(feed),
            secrets: Arc::default(),
            viewers: BTreeMap::new(),
            devices,
            roster: Roster::default(),
            admissions: Vec::new(),
            changed_members: BTreeSet::new(),
            presence: BTreeMap::new(),
            http_presence: BTreeMap::new(),
            in_flight: VecDeque::new(),
            pending_append: None,
            entries_in_flight: 0,
            log_health: LogHealth::Readable,
            sent_append: None,
            reserved: false,
            last_used: now,
            last_ping: now,
            next_presence_check: None,
            presence_schedule: PresenceSchedule::default(),
            disconnected_since: BTreeMap::new(),
            leases: Leases::default(),
            #[cfg(test)]
            presence_checks: 0,
            backoff_until: now,
            stopping: false,
            deleted: false,
            deletion: None,
            directory,
            id,
        }
    }

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
                result = persist::append_result(&mut self.sent_append) => self.on_append_result(result).await,
                // Before the commands, or a steady stream of them could delay a deadline forever.
                () = sleep_until(next_timer), if accepting => self.on_timer(),
                result = load::check_result(&mut self.background_check) => self.on_background_check(result),
                () = sleep_until(self.backoff_until), if unreadable && nothing_in_flight => self.load().await,
                count = receiver.recv_many(&mut commands, MAX_COMMANDS_PER_BATCH), if accepting || unreadable => {
                    if count == 0 {
                        break;
                    }
                    self.last_used = Instant::now();
                    self.handle_commands(std::mem::take(&mut commands));
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

    /// True when no participant has a device connected, nobody is about to be told to be gone, and
    /// no proposal waits for its client. The deadlines of an unloaded session are indexed in the
    /// store.
    fn can_unload(&self) -> bool {
        self.devices.count() == 0 && self.disconnected_since.is_empty() && self.leases.is_empty()
    }

    fn idle_timeout(&self) -> Duration {
        if self.session.is_created() {
            self.directory.unload_idle_after
        } else {
            Duration::ZERO
        }
    }

    /// Waits for the writes in flight, then signs a last checkpoint.
    async fn unload(mut self) {
        while !self.in_flight.is_empty() {
            let result = persist::append_result(&mut self.sent_append).await;
            self.on_append_result(result).await;
        }
        let deletion = self.deletion.take();
        if let Some(deletion) = deletion
            && self.delete(deletion).await
        {
            return;
        }
        if self.session.is_created() && matches!(self.log_health, LogHealth::Readable) {
            let snapshot = self.snapshot_if_due(1);
            let sealed = self.directory.store.append(Arc::new(AppendRequest {
                session: self.id.clone(),
                prev: self.head,
                records: Vec::new(),
                index: Some(self.session_index()),
                index_changes: Vec::new(),
                snapshot,
                at: pvp_clock::now(),
                checkpoint: CheckpointTiming::Now,
            }));
            if let Err(error) = sealed.await {
                tracing::warn!(session = %self.id, %error, "could not seal the log");
            } else if self.background_check.is_none() {
                self.directory.record_checked(&self.id, self.head);
            }
        }
        if self.reserved {
            self.directory.release_reserved_session();
        }
    }

    /// Tells all viewers what the session says about them, after it was loaded.
    fn refresh_viewers(&mut self) {
        self.roster.clear();
        self.changed_members = self.viewers.keys().cloned().collect();
        self.refresh_changed_viewers();
    }

    /// Tells the viewers whose part in the session has changed.
    fn refresh_changed_viewers(&mut self) {
        for id in std::mem::take(&mut self.changed_members) {
            if let Some(viewer) = self.viewers.get(&id) {
                let member = self.session.member(&id);
                viewer.set_may_approve(member.is_some_and(pvp_session::Member::may_vote));
                viewer.set_left(member.is_none_or(|member| member.left));
            }
        }
    }

    fn handle_commands(&mut self, commands: Vec<SessionCommand>) {
        let mut batch = WriteBatch::default();
        for command in commands {
            self.handle_command(command, &mut batch);
        }
        self.complete_admissions(&mut batch);
        if !batch.entries.is_empty() {
            self.leases.sync(&self.session, Instant::now());
        }
        self.persist(batch);
    }

    fn handle_command(&mut self, command: SessionCommand, batch: &mut WriteBatch) {
        match (&self.log_health, &command) {
            (LogHealth::Readable, _) | (_, SessionCommand::Stop) => {}
            (LogHealth::Unreadable(why), _) => {
                let why = why.clone();
                return command.refuse(Refusal::WriteFailed(why));
            }
        }
        if self.deleted && !matches!(command, SessionCommand::HttpAccess(..)) {
            return command.refuse(Refusal::SessionDeleted(self.id.clone()));
        }
        match command {
            SessionCommand::Delete(request, answer) => self.begin_deletion(request, answer),
            SessionCommand::Request(request, reply) => self.handle_request(*request, reply, batch),
            SessionCommand::ParticipantReturned(participant) => {
                self.on_participant_returned(&participant, batch)
            }
            SessionCommand::ConnectionClosed => self.refresh_presence(batch),
            SessionCommand::RenewLease(proposal) => self.renew_lease(&proposal),
            SessionCommand::HttpAccess(participant, answer) => {
                // The caller may have stopped waiting.
                let _ = answer.send(self.http_access(participant, batch));
            }
            SessionCommand::TokenEnded(ended) => self.on_token_ended(*ended, batch),
            SessionCommand::Query(query) => batch
                .deferred_replies
                .push(query(&self.session, &self.presence)),
            SessionCommand::Stop => self.stopping = true,
        }
    }

    fn handle_request(&mut self, request: SessionRequest, reply: ReplyTo, batch: &mut WriteBatch) {
        match request {
            SessionRequest::Create {
                by,
                token,
                id,
                create,
            } => {
                let existed = self.session.is_created();
                let answer = self.create_session(Input::Create { by, id, create }, batch);
                if !existed && self.session.is_created() {
                    self.made_by = token;
                }
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
                if let Err(refusal) = self.check_join_quota() {
                    return reply.refuse(refusal);
                }
                let participant = identity.participant.clone();
                let ceiling = identity.ceiling(&announce.roles);
                let answer = self.apply_input(
                    Input::Join {
                        identity,
                        announce,
                        id,
                    },
                    batch,
                );
                if let Answer::Accepted(seq) = answer {
                    self.admit(&participant, ceiling, seq, &reply, batch);
                }
                batch.answers.push((reply, answer));
            }
            SessionRequest::Submit { by, submitted } => {
                // Whatever comes after the end of a token must not count, however it got here.
                if let Some(end) = by.token.as_ref().and_then(|token| token.ended()) {
                    return reply.refuse(admission::token_ended(end));
                }
                // What was accepted before is acknowledged again, however full the session is.
                let is_repeated = self.session.knows_message(&submitted.id);
                if !is_repeated && let Err(refusal) = self.check_quotas(&submitted.message) {
                    batch.answers.push((reply, Answer::Refused(refusal)));
                    return;
                }
                let renewed = leases::renewed_by(&submitted.message);
                let (submitted, value) = self.strip_secrets(submitted);
                let input = Input::Submit {
                    by: by.participant,
                    ceiling: by.ceiling,
                    submitted,
                };
                let answer = self.apply_input(input, batch);
                if let (Answer::Accepted(Some(seq)), Some(value)) = (&answer, value) {
                    batch.secret_values.insert(*seq, value);
                }
                self.renew_leases(&renewed, &answer);
                batch.answers.push((reply, answer));
            }
        }
    }

    /// Takes back what a token gave that has ended, and ends its connections.
    fn on_token_ended(&mut self, ended: EndedToken, batch: &mut WriteBatch) {
        let participant = ended.claims.participant;
        let kind = ended.claims.kind;
        let is_same = |member: &Member| member.announce.kind == kind;
        if self.session.member(&participant).is_some_and(is_same) {
            let input = Input::TokenEnded {
                participant,
                remaining: ended.remaining,
                reason: match ended.end {
                    TokenEnd::Revoked => "a token was revoked".to_owned(),
                    TokenEnd::Expired => "a token has expired".to_owned(),
                },
            };
            self.apply_input(input, batch);
        }
        self.feed.wake_all();
    }

    /// Creates the session, unless the server has reached its limit of sessions.
    fn create_session(&mut self, create: Input, batch: &mut WriteBatch) -> Answer {
        if self.session.is_created() {
            return self.apply_input(create, batch);
        }
        if let Err(refusal) = self.directory.reserve_session() {
            return Answer::Refused(refusal);
        }
        self.reserved = true;
        let answer = self.apply_input(create, batch);
        self.release_if_not_created();
        answer
    }

    /// Stops counting a session that was to be created and does not exist.
    fn release_if_not_created(&mut self) {
        if self.reserved && !self.session.is_created() {
            self.reserved = false;
            self.directory.release_reserved_session();
        }
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
        let apply = AssertUnwindSafe(|| {
            #[cfg(test)]
            tests::panic_if_asked(&input);
            self.session.apply(context, stamp(input))
        });
        let Ok(outcome) = catch_unwind(apply) else {
            return self.on_fault();
        };
        for entry in outcome.entries {
            self.note_member_change(&entry);
            let body = Bytes::from(entry.body());
            self.count_usage(&entry, body.len());
            batch.entries.push((entry, body));
        }
        batch.index_changes.extend(outcome.index_changes);
        if let Some(ephemeral) = outcome.ephemeral {
            self.feed.broadcast_ephemeral(&ephemeral.envelope.to_json());
        }
        outcome.answer
    }

    /// Refuses an input that the session failed to handle, so that nobody sends it again. What the
    /// session is now is not known, so it is loaded from its log.
    fn on_fault(&mut self) -> Answer {
        tracing::error!(session = %self.id, "failed to handle a message; loads the session again");
        let why = "the session is being loaded again after a fault";
        self.log_health = LogHealth::Unreadable(why.to_owned());
        self.backoff_until = Instant::now() + RETRY_DELAY;
        Answer::Refused(Refusal::HandlingFailed)
    }

    /// Notes what an entry changes about a participant, or about the presence of everyone.
    fn note_member_change(&mut self, entry: &Entry) {
        let changed = match (&entry.envelope.message, &entry.envelope.header.sender) {
            (ServerMessage::Announce(announce), _) => announce.id.clone(),
            (ServerMessage::RoleChange(change), _) => change.participant.clone(),
            (ServerMessage::SessionLeave(_), Sender::Participant(id)) => id.clone(),
            (ServerMessage::SessionConfigUpdate(_), _) => {
                self.next_presence_check = Some(pvp_clock::now());
                return;
            }
            _ => return,
        };
        self.roster.member_changed(&changed);
        self.changed_members.insert(changed);
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
