//! The house: the directory of sessions that are in memory, and what they all share.

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
use pvp_session::{Answer, Identity, Session, SessionSettings, Submitted};
use tokio::sync::{Notify, Semaphore, oneshot, watch};

use crate::config::ServerConfig;
use crate::metrics::Metrics;
use crate::reply_queue::ReplyQueue;
use crate::store::{Store, StoreError};
use crate::task::{
    self, DeferredReply, HttpAccess, JoinedSession, PresenceMap, ReplyTo, SessionCommand,
    SessionHandle, SessionRequest,
};

/// Readers of the store at a time; more wait their turn.
const MAX_CONCURRENT_READS: usize = 8;

/// How often sessions that are not in memory are looked up for deadlines.
const DEADLINE_SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Due sessions that are woken at a time.
const MAX_WAKES_PER_SWEEP: usize = 64;

/// What every session shares.
pub(crate) struct SessionDirectory {
    pub(crate) store: Store,
    pub(crate) config: ServerConfig,
    pub(crate) settings: SessionSettings,
    policy: RwLock<Arc<Policy>>,
    sessions: DashMap<SessionId, SessionHandle>,
    stored_session_count: AtomicU64,
    connections_by_token: Mutex<HashMap<String, u64>>,
    connection_count: AtomicU64,
    /// Rings when the last connection has gone.
    last_connection_closed: Notify,
    pub(crate) read_permits: Arc<Semaphore>,
    shutdown: watch::Sender<bool>,
    /// Counts changes of gates anywhere, for those who wait for the next.
    gates_version: watch::Sender<u64>,
    pub(crate) metrics: Metrics,
}

/// A place among the connections of one token, given back when dropped.
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

/// One request of a token's that waits, for as long as it is kept.
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
            // Not a number that an earlier run of the server has given out.
            gates_version: watch::channel(pvp_clock::now().as_millis()).0,
            metrics: Metrics::default(),
        }))
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.read().clone()
    }

    /// From here on commands are sorted by these rules.
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

    /// Something about a gate has changed.
    pub(crate) fn notify_gates_changed(&self) {
        self.gates_version.send_modify(|version| *version += 1);
    }

    pub(crate) fn watch_gates(&self) -> watch::Receiver<u64> {
        self.gates_version.subscribe()
    }

    /// Connections, sessions in memory and sessions stored, at this moment.
    pub(crate) fn counts(&self) -> (u64, usize, u64) {
        (
            self.connection_count.load(Ordering::Relaxed),
            self.sessions.len(),
            self.stored_session_count.load(Ordering::Relaxed),
        )
    }

    /// Room for one more connection.
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

    /// Counts a request that may wait towards its token, as a connection is.
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

    /// Takes that back, for a connection that did not get in.
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

    /// Counts a session that is about to be made.
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

    /// It was not made after all.
    pub(crate) fn release_reserved_session(&self) {
        self.stored_session_count.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, session: &SessionId) {
        self.sessions.remove(session);
    }

    /// Gives an order to a session's task, which is started if it is not there.
    async fn send_command(self: &Arc<Self>, session: &SessionId, mut command: SessionCommand) {
        while let Some(handle) = self.get_or_spawn(session) {
            match handle.commands.send(command).await {
                Ok(()) => return,
                Err(unsent) => command = unsent.0,
            }
            // The task is letting go of the session; the next one starts when it has.
            let mut unloaded = handle.unloaded;
            let _ = unloaded.wait_for(|gone| *gone).await;
        }
        command.refuse(Refusal::WriteFailed(
            "the server is shutting down".to_owned(),
        ));
    }

    /// Gives an order that only matters to a session that is in memory.
    async fn send_if_loaded(&self, session: &SessionId, command: SessionCommand) {
        let commands = self
            .sessions
            .get(session)
            .map(|handle| handle.commands.clone());
        if let Some(orders) = commands {
            // A task that is letting go has no use for it.
            let _ = orders.send(command).await;
        }
    }

    /// The session's task; `None` when the server is stopping and no task is to be started.
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
        submitted: Submitted,
        reply_queue: Arc<ReplyQueue>,
    ) {
        let reply = ReplyTo::Queue(reply_queue, submitted.id.clone());
        self.send_command(
            session,
            SessionCommand::Request(Box::new(SessionRequest::Submit { by, submitted }), reply),
        )
        .await;
    }

    /// As `say`, for someone who waits for the answer.
    pub(crate) async fn submit_and_wait(
        self: &Arc<Self>,
        session: &SessionId,
        by: ParticipantId,
        submitted: Submitted,
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

    /// Looks in on a session without a connection.
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

    /// Looks something up in a session as it is; `None` if it cannot be read.
    pub(crate) async fn query<T: Send + 'static>(
        self: &Arc<Self>,
        session: &SessionId,
        query: impl FnOnce(&Session) -> T + Send + 'static,
    ) -> Option<T> {
        self.query_with_presence(session, move |session, _| query(session))
            .await
    }

    /// As `ask`, with who is there.
    pub(crate) async fn query_with_presence<T: Send + 'static>(
        self: &Arc<Self>,
        session: &SessionId,
        query: impl FnOnce(&Session, &PresenceMap) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        let boxed_query = Box::new(
            move |session: &Session, presence: &PresenceMap| -> DeferredReply {
                let answer = query(session, presence);
                // Who asked may have gone.
                Box::new(move || drop(sender.send(answer)))
            },
        );
        self.send_command(session, SessionCommand::Query(boxed_query))
            .await;
        answer.await.ok()
    }

    /// Wakes sessions whose deadlines have come while they were not in memory.
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
                        // Loading is enough: the task looks at the clock itself.
                        self.get_or_spawn(&session);
                    }
                }
                Ok(Err(error)) => tracing::warn!(%error, "could not look up deadlines"),
                Err(error) => tracing::error!(%error, "looking up deadlines failed"),
            }
        }
    }

    /// The address that links begin with.
    pub(crate) fn base_url(&self) -> String {
        match &self.config.public_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("http://{}", self.config.listen),
        }
    }

    /// No new connections, no new sessions.
    pub(crate) fn begin_shutdown(&self) {
        self.shutdown.send_replace(true);
    }

    /// Waits until the last connection has gone.
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

    /// Tells everyone, lets every session write what it has, and waits for them.
    pub(crate) async fn shut_down(self: &Arc<Self>) {
        self.shutdown.send_replace(true);
        let handles: Vec<_> = self
            .sessions
            .iter()
            .map(|entry| entry.value().clone())
            .collect();
        for handle in &handles {
            // A task that is gone has stopped already.
            let _ = handle.commands.send(SessionCommand::Stop).await;
        }
        for mut handle in handles {
            let _ = handle.unloaded.wait_for(|gone| *gone).await;
        }
    }
}

/// What is said of a session whose log is damaged or cannot be read.
pub(crate) fn log_unreadable() -> Refusal {
    Refusal::ReadFailed("`pvp audit verify` says why".to_owned())
}

fn session_unloaded() -> Refusal {
    Refusal::WriteFailed("the session was put away in the middle; try again".to_owned())
}
