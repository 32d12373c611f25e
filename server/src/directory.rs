//! The directory of the sessions in memory, with the state that all of them share.

mod devices;
mod joining;
mod retention;
mod session_quotas;
mod slots;
mod token_ends;

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::{Mutex, RwLock};
use pvp_policy::Policy;
use pvp_protocol::api::{Invitation, InviteRequest};
use pvp_protocol::payload::{Announce, SessionCreate};
use pvp_protocol::{KeyFingerprint, MessageId, ParticipantId, Refusal, SessionId};
use pvp_session::{Answer, Identity, ProposalRecord, Session, SessionSettings, SubmittedMessage};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};

use session_quotas::SessionQuotas;
use slots::ConnectionSlots;
pub(crate) use slots::{ConnectionSlot, RequestSlot};

use crate::admission::{Charge, Speaker};
use crate::config::ServerConfig;
use crate::decisions::DecisionTracker;
use crate::device_codes::DeviceCodes;
use crate::feed::RingBudget;
use crate::invite::{self, Inviter, ServerAddress};
use crate::join::FailedJoins;
use crate::live_tokens::LiveTokens;
use crate::long_text;
use crate::metrics::Metrics;
use crate::notifier::Notifications;
use crate::reply_queue::{ConnectionReply, ReplyQueue};
use crate::session_workspace::SessionWorkspaces;
use crate::store::{LogHead, Store, StoreError, Tombstone};
use crate::task::{
    self, DeferredReply, DeletionRequest, HttpAccess, JoinedSession, PresenceMap, ReplyTo,
    SessionCommand, SessionHandle, SessionRequest,
};
use crate::token_uses::TokenUses;

/// How many logs are remembered as checked; the others are checked again when they are loaded.
const MAX_CHECKED_LOGS: usize = 10_000;

/// How long a session without connected participants stays in memory.
const UNLOAD_IDLE_AFTER: Duration = Duration::from_secs(30);

/// How often the store is searched for unloaded sessions whose deadline has passed.
const DEADLINE_SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The most due sessions that one search loads.
const MAX_WAKES_PER_SWEEP: usize = 64;

/// The sessions in memory, and what every session shares.
pub(crate) struct SessionDirectory {
    /// The logs, tokens and keys on disk.
    pub(crate) store: Arc<dyn Store>,
    /// The server's configuration.
    pub(crate) config: ServerConfig,
    /// What the configuration says about sessions, in the form that the session core takes.
    pub(crate) settings: SessionSettings,
    /// The rules that assess commands; replaced when the policy is reloaded.
    policy: RwLock<Arc<Policy>>,
    /// The handle of each session in memory.
    sessions: DashMap<SessionId, SessionHandle>,
    /// Sessions in the store, plus those that are being created.
    stored_session_count: AtomicU64,
    /// The connections, by who is on them.
    slots: ConnectionSlots,
    /// The working directories of the sessions.
    pub(crate) workspaces: SessionWorkspaces,
    /// The sessions that each token makes.
    session_quotas: SessionQuotas,
    /// Permits so many transcripts and archives to be sent at a time.
    transcript_permits: Arc<Semaphore>,
    /// The tokens in use, so that they stop working when they end.
    pub(crate) live_tokens: LiveTokens,
    /// When tokens were last used.
    pub(crate) token_uses: TokenUses,
    /// The wrong join codes of each address.
    failed_joins: FailedJoins,
    /// The session that was active last, and the commits that git hooks reported.
    pub(crate) decisions: DecisionTracker,
    /// Open connections in total.
    connection_count: AtomicU64,
    /// Notified when the last connection has closed.
    last_connection_closed: Notify,
    /// Up to where the hash chain of each log was checked in this run of the server; bounded by
    /// [`MAX_CHECKED_LOGS`].
    checked_heads: Mutex<HashMap<SessionId, LogHead>>,
    /// Permits one log at a time to be checked in the background.
    pub(crate) check_permit: Semaphore,
    /// Lets one message at a time be parsed that is larger than most: it takes many times its size.
    pub(crate) large_message_permit: Semaphore,
    /// The key that links name, if the server signs its certificate itself.
    pinned_key: OnceLock<KeyFingerprint>,
    /// Lets one device at a time be added, so that no two together pass the limit.
    device_permit: Semaphore,
    /// The codes that make devices.
    device_codes: DeviceCodes,
    /// How long a session without connected participants stays in memory.
    pub(crate) unload_idle_after: Duration,
    /// True once the server shuts down.
    shutdown: watch::Sender<bool>,
    /// Incremented when a gate of any session changes; waiting requests watch it.
    gates_version: watch::Sender<u64>,
    /// Counts the frames that all sessions keep in memory.
    pub(crate) ring_budget: Arc<RingBudget>,
    /// The counters behind the metrics endpoint.
    pub(crate) metrics: Metrics,
    /// What notifies people of gates.
    pub(crate) notifications: Notifications,
}

impl SessionDirectory {
    pub(crate) async fn new(
        store: Arc<dyn Store>,
        config: ServerConfig,
        policy: Policy,
    ) -> Result<Arc<Self>, StoreError> {
        Self::with_idle_timeout(store, config, policy, UNLOAD_IDLE_AFTER).await
    }

    /// Like [`new`](Self::new), with another time until idle sessions are unloaded.
    pub(crate) async fn with_idle_timeout(
        store: Arc<dyn Store>,
        config: ServerConfig,
        policy: Policy,
        unload_idle_after: Duration,
    ) -> Result<Arc<Self>, StoreError> {
        let stored = store.count_sessions().await?;
        let metrics = Metrics::default();
        Ok(Arc::new(Self {
            store,
            settings: config.settings(),
            policy: RwLock::new(Arc::new(policy)),
            sessions: DashMap::new(),
            stored_session_count: AtomicU64::new(stored),
            slots: ConnectionSlots::default(),
            workspaces: SessionWorkspaces::new(&config),
            session_quotas: SessionQuotas::default(),
            transcript_permits: Arc::new(Semaphore::new(
                usize::try_from(config.transcripts).unwrap_or(Semaphore::MAX_PERMITS),
            )),
            live_tokens: LiveTokens::default(),
            token_uses: TokenUses::default(),
            failed_joins: FailedJoins::default(),
            decisions: DecisionTracker::new(pvp_clock::now()),
            connection_count: AtomicU64::new(0),
            last_connection_closed: Notify::new(),
            checked_heads: Mutex::default(),
            large_message_permit: Semaphore::new(1),
            check_permit: Semaphore::new(1),
            device_permit: Semaphore::new(1),
            device_codes: DeviceCodes::default(),
            pinned_key: OnceLock::new(),
            unload_idle_after,
            shutdown: watch::channel(false).0,
            // Starts at the clock, so that it never repeats a version of an earlier server run.
            gates_version: watch::channel(pvp_clock::now().as_millis()).0,
            ring_budget: Arc::default(),
            notifications: Notifications::new(&config.notifications, metrics.count_deliveries()),
            metrics,
            config,
        }))
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.read().clone()
    }

    /// Replaces the rules; commands proposed from now on are assessed by the new ones.
    pub(crate) fn set_policy(&self, policy: Policy) {
        *self.policy.write() = Arc::new(policy);
    }

    pub(crate) fn server_version(&self) -> String {
        format!("pvp {}", env!("CARGO_PKG_VERSION"))
    }

    /// Becomes true when the server shuts down.
    pub(crate) fn shutdown_signal(&self) -> watch::Receiver<bool> {
        self.shutdown.subscribe()
    }

    /// Wakes whoever waits for a gate to change, because those of a session did.
    pub(crate) fn notify_gates_changed_in(&self, session: &SessionId) {
        self.gates_version.send_modify(|version| *version += 1);
        self.notifications.gates_changed_in(session);
    }

    /// The same because it changed who may vote, in whatever session.
    pub(crate) fn notify_voters_changed(&self) {
        self.gates_version.send_modify(|version| *version += 1);
        self.notifications.recipients_changed();
    }

    pub(crate) fn watch_gates(&self) -> watch::Receiver<u64> {
        self.gates_version.subscribe()
    }

    /// The current number of connections, sessions in memory and sessions stored.
    pub(crate) fn counts(&self) -> (u64, usize, u64) {
        (
            self.connection_count.load(Ordering::Relaxed),
            self.sessions.len(),
            self.stored_session_count.load(Ordering::Relaxed),
        )
    }

    /// Counts a session that is about to be created towards the server's limit.
    pub(crate) fn reserve_session(&self) -> Result<(), Refusal> {
        let limit = self.config.sessions;
        if self.stored_session_count.fetch_add(1, Ordering::Relaxed) < limit {
            return Ok(());
        }
        self.stored_session_count.fetch_sub(1, Ordering::Relaxed);
        Err(Refusal::TooMany {
            what: "sessions on this server",
            limit,
        })
    }

    /// Undoes [`reserve_session`](Self::reserve_session) when the session was not created.
    pub(crate) fn release_reserved_session(&self) {
        self.stored_session_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a transcript or an archive that is being sent.
    pub(crate) fn acquire_transcript_permit(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let permit = self.transcript_permits.clone().try_acquire_owned();
        permit.map_err(|_| Refusal::TooMany {
            what: "transcripts at a time; try again later",
            limit: self.config.transcripts,
        })
    }

    /// Up to where a log was checked in this run of the server.
    pub(crate) fn checked_head(&self, session: &SessionId) -> Option<LogHead> {
        self.checked_heads.lock().get(session).copied()
    }

    /// Remembers that a log is as it was written, up to this entry.
    pub(crate) fn record_checked(&self, session: &SessionId, head: LogHead) {
        let mut checked = self.checked_heads.lock();
        if checked.len() >= MAX_CHECKED_LOGS {
            checked.clear();
        }
        checked.insert(session.clone(), head);
    }

    /// The proposal that a proposal id or a gate id names, open or closed.
    pub(crate) async fn find_proposal(
        self: &Arc<Self>,
        session: &SessionId,
        name: &MessageId,
    ) -> Result<Option<ProposalRecord>, Refusal> {
        let wanted = name.clone();
        let recent = self.query(session, move |session| session.find_proposal(&wanted));
        match recent.await.ok_or_else(log_unreadable)? {
            Some(proposal) => Ok(Some(proposal)),
            None => Ok(self.store.find_closed_proposal(session, name).await?),
        }
    }

    /// The proposals, open and closed, that an id or the end of one names: at most about `limit` of
    /// one session, or of all.
    pub(crate) async fn proposals_named(
        self: &Arc<Self>,
        session: Option<&SessionId>,
        text: &str,
        limit: usize,
    ) -> Result<Vec<(SessionId, ProposalRecord)>, Refusal> {
        let mut found = Vec::new();
        for session in self.sessions_with_open_proposals(session).await? {
            let text = text.to_owned();
            let open = self.query(&session, move |session| {
                let mut open = session.open_proposals();
                open.retain(|proposal| proposal.is_named_by(&text));
                open
            });
            let open = open.await.unwrap_or_default().into_iter();
            found.extend(open.take(limit).map(|proposal| (session.clone(), proposal)));
        }
        // After the open ones: a proposal that is closed in between is then in both, not in neither.
        let closed = self
            .store
            .closed_proposals_named(session, text, limit)
            .await?;
        for (session, proposal) in closed {
            let known =
                |it: &(SessionId, ProposalRecord)| it.0 == session && it.1.id == proposal.id;
            if !found.iter().any(known) {
                found.push((session, proposal));
            }
        }
        Ok(found)
    }

    /// The session, or else all that are in memory or have open gates. A session that is not in
    /// memory has no executor that would run something.
    async fn sessions_with_open_proposals(
        &self,
        session: Option<&SessionId>,
    ) -> Result<BTreeSet<SessionId>, Refusal> {
        if let Some(session) = session {
            return Ok(BTreeSet::from([session.clone()]));
        }
        let gated = self.store.sessions_with_open_gates().await?;
        let loaded = self.sessions.iter().map(|entry| entry.key().clone());
        Ok(loaded.chain(gated).collect())
    }

    pub(crate) fn remove(&self, session: &SessionId) {
        self.sessions.remove(session);
    }

    /// Sends a command to a session's task, starting the task if the session is not in memory.
    async fn send_command(self: &Arc<Self>, session: &SessionId, mut command: SessionCommand) {
        if self.config.open && matches!(command, SessionCommand::Request(..)) {
            self.decisions.record_activity(session);
        }
        while let Some(handle) = self.get_or_spawn(session) {
            match handle.commands.send(command).await {
                Ok(()) => return,
                Err(unsent) => command = unsent.0,
            }
            // The task is unloading the session; another one may start when it has finished.
            let mut unloaded = handle.unloaded;
            let _ = unloaded.wait_for(|unloaded| *unloaded).await;
        }
        command.refuse(Refusal::WriteFailed(
            "the server is shutting down".to_owned(),
        ));
    }

    /// Sends a command that only matters to a session in memory.
    async fn send_if_loaded(&self, session: &SessionId, command: SessionCommand) {
        let commands = self
            .sessions
            .get(session)
            .map(|handle| handle.commands.clone());
        if let Some(commands) = commands {
            // A task that is unloading the session does not need the command.
            let _ = commands.send(command).await;
        }
    }

    /// The session's task, started if needed; `None` if the server is shutting down and no task
    /// may be started.
    fn get_or_spawn(self: &Arc<Self>, session: &SessionId) -> Option<SessionHandle> {
        match self.sessions.entry(session.clone()) {
            Entry::Occupied(entry) => Some(entry.get().clone()),
            Entry::Vacant(_) if *self.shutdown.borrow() => None,
            Entry::Vacant(entry) => Some(
                entry
                    .insert(task::spawn(self.clone(), session.clone()))
                    .clone(),
            ),
        }
    }

    /// Creates a session, which counts towards the quotas of the token with this id.
    pub(crate) async fn create(
        self: &Arc<Self>,
        session: &SessionId,
        by: ParticipantId,
        token: Option<String>,
        id: MessageId,
        create: SessionCreate,
    ) -> Result<Answer, Refusal> {
        let making = match &token {
            Some(token) => Some(self.begin_making_session(token).await?),
            None => None,
        };
        let request = SessionRequest::Create {
            by,
            token,
            id,
            create,
        };
        let (sender, answer) = oneshot::channel();
        let command = SessionCommand::Request(Box::new(request), ReplyTo::Oneshot(sender));
        let answer = self.create_with_workspace(session, command, answer).await;
        if let (Some(making), Ok(Answer::Accepted(_))) = (making, &answer) {
            making.keep();
        }
        answer
    }

    /// Sends a command that may create the session, after its working directory was made.
    async fn create_with_workspace<T: Send + 'static>(
        self: &Arc<Self>,
        session: &SessionId,
        command: SessionCommand,
        answer: oneshot::Receiver<Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let (directory, session) = (self.clone(), session.clone());
        let store = self.store.as_ref();
        if !self.workspaces.is_to_be_made(store, &session).await? {
            self.send_command(&session, command).await;
            return answer.await.unwrap_or_else(|_| Err(session_unloaded()));
        }
        // It goes on if the caller is gone: the directory stays only if the session was created.
        let creating = tokio::spawn(async move {
            let store = directory.store.as_ref();
            let workspace = directory.workspaces.make(store, &session).await?;
            directory.send_command(&session, command).await;
            let answer = answer.await.unwrap_or_else(|_| Err(session_unloaded()));
            let failed = answer.is_err();
            if let Some(workspace) = workspace
                && failed
                && directory.query(&session, Session::is_created).await == Some(false)
            {
                workspace.discard().await;
            }
            answer
        });
        creating.await.unwrap_or_else(|_| Err(session_unloaded()))
    }

    pub(crate) async fn join(
        self: &Arc<Self>,
        session: &SessionId,
        identity: Identity,
        announce: Announce,
        id: MessageId,
    ) -> Result<Box<JoinedSession>, Refusal> {
        let (sender, answer) = oneshot::channel();
        let create_if_missing = self.config.open.then(|| {
            Box::new(SessionCreate {
                name: None,
                config: Default::default(),
                extra: Default::default(),
            })
        });
        let may_create = create_if_missing.is_some();
        let request = Box::new(SessionRequest::Join {
            identity,
            announce,
            id,
            create_if_missing,
        });
        let command = SessionCommand::Request(request, ReplyTo::Join(sender, None));
        if may_create {
            return self.create_with_workspace(session, command, answer).await;
        }
        self.send_command(session, command).await;
        answer.await.unwrap_or_else(|_| Err(session_unloaded()))
    }

    pub(crate) async fn submit(
        self: &Arc<Self>,
        session: &SessionId,
        by: Speaker,
        submitted: SubmittedMessage,
        reply_queue: Arc<ReplyQueue>,
        charge: Charge,
    ) {
        let mut submitted = submitted;
        let replaced = long_text::replace_long_texts(self, session, &mut submitted.message).await;
        if let Err(refusal) = replaced {
            let (id, answer) = (submitted.id, Answer::Refused(refusal));
            return reply_queue.push(ConnectionReply { id, answer }, charge);
        }
        let reply = ReplyTo::Queue(reply_queue, submitted.id.clone(), charge);
        self.send_command(
            session,
            SessionCommand::Request(Box::new(SessionRequest::Submit { by, submitted }), reply),
        )
        .await;
    }

    /// Like [`submit`](Self::submit), but waits for the answer and returns it.
    pub(crate) async fn submit_and_wait(
        self: &Arc<Self>,
        session: &SessionId,
        by: Speaker,
        submitted: SubmittedMessage,
    ) -> Result<Answer, Refusal> {
        let mut submitted = submitted;
        long_text::replace_long_texts(self, session, &mut submitted.message).await?;
        let (sender, answer) = oneshot::channel();
        let request = Box::new(SessionRequest::Submit { by, submitted });
        self.send_command(
            session,
            SessionCommand::Request(request, ReplyTo::Oneshot(sender)),
        )
        .await;
        answer.await.unwrap_or_else(|_| Err(session_unloaded()))
    }

    /// Gives access to a session for one HTTP request, which has no connection of its own.
    pub(crate) async fn http_access(
        self: &Arc<Self>,
        session: &SessionId,
        participant: Option<ParticipantId>,
    ) -> Result<HttpAccess, Refusal> {
        let (sender, answer) = oneshot::channel();
        self.send_command(session, SessionCommand::HttpAccess(participant, sender))
            .await;
        match answer.await {
            Ok(Some(access)) => Ok(access),
            Ok(None) => Err(match self.store.find_tombstone(session).await? {
                Some(_) => Refusal::SessionDeleted(session.clone()),
                None => Refusal::NoSuchSession(session.clone()),
            }),
            Err(_) => Err(log_unreadable()),
        }
    }

    /// Deletes a session that has ended, if its log ends where it must; whoever is connected to it is
    /// told and disconnected.
    pub(crate) async fn delete_session(
        self: &Arc<Self>,
        session: &SessionId,
        request: DeletionRequest,
    ) -> Result<Tombstone, Refusal> {
        let (directory, session) = (self.clone(), session.clone());
        // It goes on if the caller is gone, so that the working directory goes too.
        let deleting = tokio::spawn(async move {
            let (sender, answer) = oneshot::channel();
            let command = SessionCommand::Delete(request, sender);
            directory.send_command(&session, command).await;
            let answer = answer.await.unwrap_or_else(|_| Err(session_unloaded()));
            if answer.is_ok() {
                directory.workspaces.remove(&session).await;
            }
            answer
        });
        deleting.await.unwrap_or_else(|_| Err(session_unloaded()))
    }

    /// Forgets what is known about a session that was deleted.
    pub(crate) fn forget_deleted(&self, session: &SessionId) {
        self.stored_session_count.fetch_sub(1, Ordering::Relaxed);
        self.checked_heads.lock().remove(session);
        self.notify_gates_changed_in(session);
    }

    pub(crate) async fn participant_returned(
        &self,
        session: &SessionId,
        participant: ParticipantId,
    ) {
        self.send_if_loaded(session, SessionCommand::ParticipantReturned(participant))
            .await;
    }

    pub(crate) async fn connection_closed(&self, session: &SessionId) {
        self.send_if_loaded(session, SessionCommand::ConnectionClosed)
            .await;
    }

    /// Says that somebody waits for a proposal.
    pub(crate) async fn renew_lease(&self, session: &SessionId, proposal: MessageId) {
        self.send_if_loaded(session, SessionCommand::RenewLease(proposal))
            .await;
    }

    /// Runs a query on the current state of a session; `None` if its log cannot be read.
    pub(crate) async fn query<T: Send + 'static>(
        self: &Arc<Self>,
        session: &SessionId,
        query: impl FnOnce(&Session) -> T + Send + 'static,
    ) -> Option<T> {
        self.query_with_presence(session, move |session, _| query(session))
            .await
    }

    /// Like [`query`](Self::query), but also passes who is present.
    pub(crate) async fn query_with_presence<T: Send + 'static>(
        self: &Arc<Self>,
        session: &SessionId,
        query: impl FnOnce(&Session, &PresenceMap) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        let boxed_query = Box::new(
            move |session: &Session, presence: &PresenceMap| -> DeferredReply {
                let answer = query(session, presence);
                // The caller may have stopped waiting.
                Box::new(move || drop(sender.send(answer)))
            },
        );
        self.send_command(session, SessionCommand::Query(boxed_query))
            .await;
        answer.await.ok()
    }

    /// Loads sessions whose deadlines have passed while they were not in memory.
    pub(crate) async fn wake_due_sessions(self: Arc<Self>) {
        let mut shutdown = self.shutdown_signal();
        loop {
            tokio::select! {
                _ = shutdown.wait_for(|stopping| *stopping) => return,
                () = tokio::time::sleep(DEADLINE_SWEEP_INTERVAL) => {}
            }
            let due = self
                .store
                // Some that are in memory count as due as well, and must not crowd out others.
                .due_sessions(pvp_clock::now(), MAX_WAKES_PER_SWEEP + self.sessions.len());
            match due.await {
                Ok(due) => {
                    for session in due {
                        // Loading is enough: the task checks its deadlines itself.
                        self.get_or_spawn(&session);
                    }
                }
                Err(error) => tracing::warn!(%error, "could not look up deadlines"),
            }
        }
    }

    /// Creates a token and its link.
    pub(crate) async fn invite(
        &self,
        invite: InviteRequest,
        inviter: &Inviter<'_>,
    ) -> Result<Invitation, Refusal> {
        let (address, now) = (self.server_address(), pvp_clock::now());
        let (row, invitation) = invite::create_invitation(invite, inviter, &address, now)?;
        let stored = self.store.insert_token(row).await;
        stored.map_err(|error| Refusal::WriteFailed(error.to_string()))?;
        Ok(invitation)
    }

    /// What invitation links start with.
    pub(crate) fn server_address(&self) -> ServerAddress {
        let config = &self.config;
        ServerAddress {
            url: match &config.public_url {
                Some(url) => url.trim_end_matches('/').to_owned(),
                None => format!("{}://{}", config.scheme(), config.listen),
            },
            fingerprint: self.pinned_key.get().copied(),
        }
    }

    /// Says which key links name, if the server signs its certificate itself.
    pub(crate) fn set_pinned_key(&self, key: Option<KeyFingerprint>) {
        if let Some(key) = key {
            // It is said once, when the server starts.
            let _ = self.pinned_key.set(key);
        }
    }

    /// From here on the server accepts no connections and loads no sessions.
    pub(crate) fn begin_shutdown(&self) {
        self.shutdown.send_replace(true);
    }

    /// Waits until the last connection has closed.
    pub(crate) async fn wait_all_disconnected(&self) {
        loop {
            let mut notified = pin!(self.last_connection_closed.notified());
            notified.as_mut().enable();
            if self.connection_count.load(Ordering::Relaxed) == 0 {
                return;
            }
            notified.await;
        }
    }

    /// Signals the shutdown, has every session write what it has, and waits until all are unloaded.
    pub(crate) async fn shut_down(self: &Arc<Self>) {
        self.shutdown.send_replace(true);
        let handles: Vec<_> = self
            .sessions
            .iter()
            .map(|entry| entry.value().clone())
            .collect();
        for handle in &handles {
            // If the send fails, the task has stopped already.
            let _ = handle.commands.send(SessionCommand::Stop).await;
        }
        for mut handle in handles {
            let _ = handle.unloaded.wait_for(|unloaded| *unloaded).await;
        }
    }
}

/// The refusal for a session whose log is damaged or cannot be read.
pub(crate) fn log_unreadable() -> Refusal {
    Refusal::ReadFailed("`pvp audit verify` says why".to_owned())
}

fn session_unloaded() -> Refusal {
    Refusal::WriteFailed("the session was unloaded in the meantime; try again".to_owned())
}
