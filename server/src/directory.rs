//! The directory of the sessions in memory, with the state that all of them share.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::{Mutex, RwLock};
use pvp_policy::Policy;
use pvp_protocol::payload::{Announce, SessionCreate};
use pvp_protocol::{MessageId, ParticipantId, Refusal, SessionId};
use pvp_session::{Answer, Identity, Session, SessionSettings, SubmittedMessage};
use tokio::sync::{Notify, Semaphore, oneshot, watch};

use crate::config::ServerConfig;
use crate::metrics::Metrics;
use crate::reply_queue::ReplyQueue;
use crate::store::{Store, StoreError};
use crate::task::{
    self, DeferredReply, HttpAccess, JoinedSession, PresenceMap, ReplyTo, SessionCommand,
    SessionHandle, SessionRequest,
};

/// How many tasks may read the store at a time; others wait for a permit.
const MAX_CONCURRENT_READS: usize = 8;

/// How often the store is searched for unloaded sessions whose deadline has passed.
const DEADLINE_SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The most due sessions that one search loads.
const MAX_WAKES_PER_SWEEP: usize = 64;

/// The sessions in memory, and what every session shares.
pub(crate) struct SessionDirectory {
    /// The logs, tokens and keys on disk.
    pub(crate) store: Store,
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
    /// Open connections and waiting requests, by token id.
    connections_by_token: Mutex<HashMap<String, u64>>,
    /// Open connections in total.
    connection_count: AtomicU64,
    /// Notified when the last connection has closed.
    last_connection_closed: Notify,
    /// Permits for reading the store; see [`MAX_CONCURRENT_READS`].
    pub(crate) read_permits: Arc<Semaphore>,
    /// True once the server shuts down.
    shutdown: watch::Sender<bool>,
    /// Incremented when a gate of any session changes; waiting requests watch it.
    gates_version: watch::Sender<u64>,
    /// The counters behind the metrics endpoint.
    pub(crate) metrics: Metrics,
}

/// One connection counted against the server's limit and its token's limit until it is dropped.
pub(crate) struct ConnectionSlot {
    directory: Arc<SessionDirectory>,
    token: Option<String>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if self
            .directory
            .connection_count
            .fetch_sub(1, Ordering::Relaxed)
            == 1
        {
            self.directory.last_connection_closed.notify_waiters();
        }
        let directory = self.directory.clone();
        directory.detach_token(self);
    }
}

/// One waiting request counted against its token's limit until it is dropped.
pub(crate) struct RequestSlot {
    directory: Arc<SessionDirectory>,
    token: String,
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.directory.release_token_slot(&self.token);
    }
}

impl SessionDirectory {
    pub(crate) fn new(
        store: Store,
        config: ServerConfig,
        policy: Policy,
    ) -> Result<Arc<Self>, StoreError> {
        let stored = store.count_sessions()?;
        Ok(Arc::new(Self {
            store,
            settings: config.settings(),
            config,
            policy: RwLock::new(Arc::new(policy)),
            sessions: DashMap::new(),
            stored_session_count: AtomicU64::new(stored),
            connections_by_token: Mutex::default(),
            connection_count: AtomicU64::new(0),
            last_connection_closed: Notify::new(),
            read_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)),
            shutdown: watch::channel(false).0,
            // Starts at the clock, so that it never repeats a version of an earlier server run.
            gates_version: watch::channel(pvp_clock::now().as_millis()).0,
            metrics: Metrics::default(),
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

    /// Wakes the requests that wait for a gate to change.
    pub(crate) fn notify_gates_changed(&self) {
        self.gates_version.send_modify(|version| *version += 1);
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

    /// Counts one more connection; `None` if the server has reached its limit.
    pub(crate) fn acquire_connection_slot(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let taken = self.connection_count.fetch_add(1, Ordering::Relaxed);
        let slot = ConnectionSlot {
            directory: self.clone(),
            token: None,
        };
        (taken < self.config.connections).then_some(slot)
    }

    /// Counts a connection towards its token.
    pub(crate) fn attach_token(
        &self,
        slot: &mut ConnectionSlot,
        token: &str,
    ) -> Result<(), Refusal> {
        self.acquire_token_slot(token)?;
        slot.token = Some(token.to_owned());
        Ok(())
    }

    /// Counts a request that may wait towards its token, as if it were a connection.
    pub(crate) fn acquire_request_slot(
        self: &Arc<Self>,
        token: &str,
    ) -> Result<RequestSlot, Refusal> {
        self.acquire_token_slot(token)?;
        let (directory, token) = (self.clone(), token.to_owned());
        Ok(RequestSlot { directory, token })
    }

    fn acquire_token_slot(&self, token: &str) -> Result<(), Refusal> {
        let limit = self.config.connections_per_token;
        let mut connections = self.connections_by_token.lock();
        let count = connections.entry(token.to_owned()).or_insert(0);
        if *count >= limit {
            return Err(Refusal::TooMany {
                what: "connections with one token",
                limit,
            });
        }
        *count += 1;
        Ok(())
    }

    /// Undoes [`attach_token`](Self::attach_token), for a connection that was refused.
    pub(crate) fn detach_token(&self, slot: &mut ConnectionSlot) {
        if let Some(token) = slot.token.take() {
            self.release_token_slot(&token);
        }
    }

    fn release_token_slot(&self, token: &str) {
        let mut connections = self.connections_by_token.lock();
        if let Some(count) = connections.get_mut(token) {
            *count -= 1;
            if *count == 0 {
                connections.remove(token);
            }
        }
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

    pub(crate) fn remove(&self, session: &SessionId) {
        self.sessions.remove(session);
    }

    /// Sends a command to a session's task, starting the task if the session is not in memory.
    async fn send_command(self: &Arc<Self>, session: &SessionId, mut command: SessionCommand) {
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

    pub(crate) async fn create(
        self: &Arc<Self>,
        session: &SessionId,
        by: ParticipantId,
        id: MessageId,
        create: SessionCreate,
    ) -> Result<Answer, Refusal> {
        let (sender, answer) = oneshot::channel();
        let request = Box::new(SessionRequest::Create { by, id, create });
        self.send_command(
            session,
            SessionCommand::Request(request, ReplyTo::Oneshot(sender)),
        )
        .await;
        answer.await.unwrap_or_else(|_| Err(session_unloaded()))
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
        let request = Box::new(SessionRequest::Join {
            identity,
            announce,
            id,
            create_if_missing,
        });
        self.send_command(
            session,
            SessionCommand::Request(request, ReplyTo::Join(sender, None)),
        )
        .await;
        answer.await.unwrap_or_else(|_| Err(session_unloaded()))
    }

    pub(crate) async fn submit(
        self: &Arc<Self>,
        session: &SessionId,
        by: ParticipantId,
        submitted: SubmittedMessage,
        reply_queue: Arc<ReplyQueue>,
    ) {
        let reply = ReplyTo::Queue(reply_queue, submitted.id.clone());
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
        by: ParticipantId,
        submitted: SubmittedMessage,
    ) -> Result<Answer, Refusal> {
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
            Ok(access) => access.ok_or_else(|| Refusal::NoSuchSession(session.clone())),
            Err(_) => Err(log_unreadable()),
        }
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
            let store = self.store.clone();
            let due = tokio::task::spawn_blocking(move || {
                store.due_sessions(pvp_clock::now(), MAX_WAKES_PER_SWEEP)
            });
            match due.await {
                Ok(Ok(due)) => {
                    for session in due {
                        // Loading is enough: the task checks its deadlines itself.
                        self.get_or_spawn(&session);
                    }
                }
                Ok(Err(error)) => tracing::warn!(%error, "could not look up deadlines"),
                Err(error) => tracing::error!(%error, "looking up deadlines failed"),
            }
        }
    }

    /// The URL that invitation links start with.
    pub(crate) fn base_url(&self) -> String {
        match &self.config.public_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("http://{}", self.config.listen),
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
    Refusal::WriteFailed("the session was put away in the middle; try again".to_owned())
}
