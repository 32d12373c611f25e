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

use crate::clock;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::outbox::Outbox;
use crate::store::{Store, StoreError};
use crate::task::{self, Handle, Joined, Order, Presence, Release, ReplyTo, Visit, Wish};

/// Readers of the store at a time; more wait their turn.
const READERS: usize = 8;

/// How often sessions that are not in memory are looked up for deadlines.
const SWEEP: Duration = Duration::from_secs(1);

/// Due sessions that are woken at a time.
const WAKE_AT_ONCE: usize = 64;

/// What every session shares.
pub(crate) struct House {
    pub(crate) store: Store,
    pub(crate) config: Config,
    pub(crate) settings: SessionSettings,
    policy: RwLock<Arc<Policy>>,
    sessions: DashMap<SessionId, Handle>,
    stored_sessions: AtomicU64,
    devices_of_token: Mutex<HashMap<String, u64>>,
    connections: AtomicU64,
    /// Rings when the last connection has gone.
    disconnected: Notify,
    pub(crate) readers: Arc<Semaphore>,
    stopping: watch::Sender<bool>,
    /// Counts changes of gates anywhere, for those who wait for the next.
    gates_version: watch::Sender<u64>,
    pub(crate) metrics: Metrics,
}

/// A place among the connections of one token, given back when dropped.
pub(crate) struct Place {
    house: Arc<House>,
    token: Option<String>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.house.connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.house.disconnected.notify_waiters();
        }
        let house = self.house.clone();
        house.unseat_token(self);
    }
}

/// One request of a token's that waits, for as long as it is kept.
pub(crate) struct Turn {
    house: Arc<House>,
    token: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.house.leave_token(&self.token);
    }
}

impl House {
    pub(crate) fn new(
        store: Store,
        config: Config,
        policy: Policy,
    ) -> Result<Arc<Self>, StoreError> {
        let stored = store.count_sessions()?;
        Ok(Arc::new(Self {
            store,
            settings: config.settings(),
            config,
            policy: RwLock::new(Arc::new(policy)),
            sessions: DashMap::new(),
            stored_sessions: AtomicU64::new(stored),
            devices_of_token: Mutex::default(),
            connections: AtomicU64::new(0),
            disconnected: Notify::new(),
            readers: Arc::new(Semaphore::new(READERS)),
            stopping: watch::channel(false).0,
            // Not a number that an earlier run of the server has given out.
            gates_version: watch::channel(clock::now().as_millis()).0,
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

    pub(crate) fn version(&self) -> String {
        format!("pvp {}", env!("CARGO_PKG_VERSION"))
    }

    /// Becomes true when the server shuts down.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Something about a gate has changed.
    pub(crate) fn gates_changed(&self) {
        self.gates_version.send_modify(|version| *version += 1);
    }

    pub(crate) fn gates_version(&self) -> watch::Receiver<u64> {
        self.gates_version.subscribe()
    }

    /// Connections, sessions in memory and sessions stored, at this moment.
    pub(crate) fn population(&self) -> (u64, usize, u64) {
        (
            self.connections.load(Ordering::Relaxed),
            self.sessions.len(),
            self.stored_sessions.load(Ordering::Relaxed),
        )
    }

    /// Room for one more connection.
    pub(crate) fn place(self: &Arc<Self>) -> Option<Place> {
        let taken = self.connections.fetch_add(1, Ordering::Relaxed);
        let place = Place {
            house: self.clone(),
            token: None,
        };
        (taken < self.config.connections).then_some(place)
    }

    /// Counts a connection towards its token.
    pub(crate) fn seat_token(&self, place: &mut Place, token: &str) -> Result<(), Refusal> {
        self.enter_token(token)?;
        place.token = Some(token.to_owned());
        Ok(())
    }

    /// Counts a request that may wait towards its token, as a connection is.
    pub(crate) fn turn(self: &Arc<Self>, token: &str) -> Result<Turn, Refusal> {
        self.enter_token(token)?;
        let (house, token) = (self.clone(), token.to_owned());
        Ok(Turn { house, token })
    }

    fn enter_token(&self, token: &str) -> Result<(), Refusal> {
        let limit = self.config.connections_per_token;
        let mut devices = self.devices_of_token.lock();
        let count = devices.entry(token.to_owned()).or_insert(0);
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
    pub(crate) fn unseat_token(&self, place: &mut Place) {
        if let Some(token) = place.token.take() {
            self.leave_token(&token);
        }
    }

    fn leave_token(&self, token: &str) {
        let mut devices = self.devices_of_token.lock();
        if let Some(count) = devices.get_mut(token) {
            *count -= 1;
            if *count == 0 {
                devices.remove(token);
            }
        }
    }

    /// Counts a session that is about to be made.
    pub(crate) fn room_for_a_session(&self) -> Result<(), Refusal> {
        let limit = self.config.sessions;
        if self.stored_sessions.fetch_add(1, Ordering::Relaxed) < limit {
            return Ok(());
        }
        self.stored_sessions.fetch_sub(1, Ordering::Relaxed);
        Err(Refusal::TooMany {
            what: "sessions on this server",
            limit,
        })
    }

    /// It was not made after all.
    pub(crate) fn session_not_made(&self) {
        self.stored_sessions.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn forget(&self, session: &SessionId) {
        self.sessions.remove(session);
    }

    /// Gives an order to a session's task, which is started if it is not there.
    async fn order(self: &Arc<Self>, session: &SessionId, mut order: Order) {
        while let Some(handle) = self.handle(session) {
            match handle.orders.send(order).await {
                Ok(()) => return,
                Err(unsent) => order = unsent.0,
            }
            // The task is letting go of the session; the next one starts when it has.
            let mut gone = handle.gone;
            let _ = gone.wait_for(|gone| *gone).await;
        }
        order.refuse(Refusal::WriteFailed(
            "the server is shutting down".to_owned(),
        ));
    }

    /// Gives an order that only matters to a session that is in memory.
    async fn note(&self, session: &SessionId, order: Order) {
        let orders = self
            .sessions
            .get(session)
            .map(|handle| handle.orders.clone());
        if let Some(orders) = orders {
            // A task that is letting go has no use for it.
            let _ = orders.send(order).await;
        }
    }

    /// The session's task; `None` when the server is stopping and no task is to be started.
    fn handle(self: &Arc<Self>, session: &SessionId) -> Option<Handle> {
        match self.sessions.entry(session.clone()) {
            Entry::Occupied(entry) => Some(entry.get().clone()),
            Entry::Vacant(_) if *self.stopping.borrow() => None,
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
        let wish = Box::new(Wish::Create { by, id, create });
        self.order(session, Order::Wish(wish, ReplyTo::Once(sender)))
            .await;
        answer.await.unwrap_or_else(|_| Err(lost()))
    }

    pub(crate) async fn join(
        self: &Arc<Self>,
        session: &SessionId,
        identity: Identity,
        announce: Announce,
        id: MessageId,
    ) -> Result<Box<Joined>, Refusal> {
        let (sender, answer) = oneshot::channel();
        let found = self.config.open.then(|| {
            Box::new(SessionCreate {
                name: None,
                config: Default::default(),
                extra: Default::default(),
            })
        });
        let wish = Box::new(Wish::Join {
            identity,
            announce,
            id,
            found,
        });
        self.order(session, Order::Wish(wish, ReplyTo::Seat(sender, None)))
            .await;
        answer.await.unwrap_or_else(|_| Err(lost()))
    }

    pub(crate) async fn say(
        self: &Arc<Self>,
        session: &SessionId,
        by: ParticipantId,
        said: Submitted,
        outbox: Arc<Outbox>,
    ) {
        let reply = ReplyTo::Outbox(outbox, said.id.clone());
        self.order(
            session,
            Order::Wish(Box::new(Wish::Say { by, said }), reply),
        )
        .await;
    }

    /// As `say`, for someone who waits for the answer.
    pub(crate) async fn say_once(
        self: &Arc<Self>,
        session: &SessionId,
        by: ParticipantId,
        said: Submitted,
    ) -> Result<Answer, Refusal> {
        let (sender, answer) = oneshot::channel();
        let wish = Box::new(Wish::Say { by, said });
        self.order(session, Order::Wish(wish, ReplyTo::Once(sender)))
            .await;
        answer.await.unwrap_or_else(|_| Err(lost()))
    }

    /// Looks in on a session without a connection.
    pub(crate) async fn visit(
        self: &Arc<Self>,
        session: &SessionId,
        participant: Option<ParticipantId>,
    ) -> Result<Visit, Refusal> {
        let (sender, answer) = oneshot::channel();
        self.order(session, Order::Visit(participant, sender)).await;
        match answer.await {
            Ok(visit) => visit.ok_or_else(|| Refusal::NoSuchSession(session.clone())),
            Err(_) => Err(unreadable()),
        }
    }

    pub(crate) async fn heard(&self, session: &SessionId, participant: ParticipantId) {
        self.note(session, Order::Heard(participant)).await;
    }

    pub(crate) async fn disconnected(&self, session: &SessionId) {
        self.note(session, Order::Disconnected).await;
    }

    /// Looks something up in a session as it is; `None` if it cannot be read.
    pub(crate) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        session: &SessionId,
        question: impl FnOnce(&Session) -> T + Send + 'static,
    ) -> Option<T> {
        self.ask_with_presence(session, move |session, _| question(session))
            .await
    }

    /// As `ask`, with who is there.
    pub(crate) async fn ask_with_presence<T: Send + 'static>(
        self: &Arc<Self>,
        session: &SessionId,
        question: impl FnOnce(&Session, &Presence) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        let ask = Box::new(move |session: &Session, presence: &Presence| -> Release {
            let answer = question(session, presence);
            // Who asked may have gone.
            Box::new(move || drop(sender.send(answer)))
        });
        self.order(session, Order::Ask(ask)).await;
        answer.await.ok()
    }

    /// Wakes sessions whose deadlines have come while they were not in memory.
    pub(crate) async fn sweep(self: Arc<Self>) {
        let mut stopping = self.stopping();
        loop {
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => return,
                () = tokio::time::sleep(SWEEP) => {}
            }
            let store = self.store.clone();
            let due = tokio::task::spawn_blocking(move || store.due(clock::now(), WAKE_AT_ONCE));
            match due.await {
                Ok(Ok(due)) => {
                    for session in due {
                        // Loading is enough: the task looks at the clock itself.
                        self.handle(&session);
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
    pub(crate) fn begin_to_stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits until the last connection has gone.
    pub(crate) async fn all_disconnected(&self) {
        loop {
            let mut bell = pin!(self.disconnected.notified());
            bell.as_mut().enable();
            if self.connections.load(Ordering::Relaxed) == 0 {
                return;
            }
            bell.await;
        }
    }

    /// Tells everyone, lets every session write what it has, and waits for them.
    pub(crate) async fn shut_down(self: &Arc<Self>) {
        self.stopping.send_replace(true);
        let handles: Vec<_> = self
            .sessions
            .iter()
            .map(|entry| entry.value().clone())
            .collect();
        for handle in &handles {
            // A task that is gone has stopped already.
            let _ = handle.orders.send(Order::Stop).await;
        }
        for mut handle in handles {
            let _ = handle.gone.wait_for(|gone| *gone).await;
        }
    }
}

/// What is said of a session whose log is damaged or cannot be read.
pub(crate) fn unreadable() -> Refusal {
    Refusal::ReadFailed("`pvp audit verify` says why".to_owned())
}

fn lost() -> Refusal {
    Refusal::WriteFailed("the session was put away in the middle; try again".to_owned())
}
