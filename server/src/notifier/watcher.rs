//! Watches the gates of all sessions, and has those told who may vote on them.
//!
//! What is told follows from how things are, not from what has changed: whatever is due and was not
//! told yet is told now, whether a gate has just opened, the server was down, or quiet hours have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use pvp_notify::DeliveryAddress;
use pvp_protocol::api::{ChannelKind, GateNotification, NotificationEvent};
use pvp_protocol::{Category, Digest, MessageId, ParticipantId, SessionId, Timestamp};
use pvp_session::{Gate, Proposal, Session};

use super::fair_order::{Hurry, sort_fairly};
use super::gate_delivery::{ClosedDelivery, DigestDelivery, GateDelivery};
use super::notice_book::Telling;
use super::plan::{GateTimes, plan};
use super::rate::{Rate, RateLimit};
use super::recipient::{ChannelState, Recipient};
use super::{Changes, vote_link};
use crate::admission;
use crate::directory::SessionDirectory;
use crate::store::StoreError;

/// The shortest time between two looks, so that many changes are looked at together.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The same after everybody's channels were read, which takes longer the more there are.
const RELOAD_INTERVAL: Duration = Duration::from_millis(500);

/// How long to wait after the store could not be read, or the queue was full.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// How long a session may take to say which gates are open. All others are told of later by as much.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait before one that did not is asked again.
const BUSY_DELAY: Duration = Duration::from_secs(3);

/// Sessions that are asked at a time.
const SESSIONS_AT_ONCE: usize = 16;

/// How long to wait after the log of a session could not be read.
const UNREADABLE_DELAY: Duration = Duration::from_secs(60);

/// How long to wait before what was due and was not told is looked at again.
const RECHECK_DELAY: Duration = Duration::from_secs(3);

/// Notifications of one person: 30 at once, and then one every 3 seconds.
const PERSON_RATE: Rate = Rate {
    burst: 30,
    millis_each: 3000,
};

/// Those of one person about one session: two thirds of that.
const SESSION_RATE: Rate = Rate {
    burst: 20,
    millis_each: 4500,
};

/// How often a person is told how many more wait.
const DIGEST_RATE: Rate = Rate {
    burst: 1,
    millis_each: 60_000,
};

/// Watches until the server stops.
pub(crate) async fn run(directory: Arc<SessionDirectory>) {
    let mut watcher = GateWatcher::new(directory.clone());
    let mut shutdown = directory.shutdown_signal();
    let watching = async {
        watcher.restore().await;
        loop {
            watcher.wait_for_changes().await;
            let interval = match watcher.look().await {
                LookedAt::Sessions => MIN_INTERVAL,
                LookedAt::Everything => RELOAD_INTERVAL,
            };
            tokio::time::sleep(interval).await;
        }
    };
    tokio::select! {
        () = watching => {}
        _ = shutdown.wait_for(|stopping| *stopping) => {}
    }
    directory.notifications.shut_down().await;
}

struct GateWatcher {
    /// The sessions, and who may log in.
    directory: Arc<SessionDirectory>,
    /// Everybody who may be told something.
    recipients: Arc<Vec<Recipient>>,
    /// When to look at a session although nothing in it has changed.
    look_again: BTreeMap<SessionId, Timestamp>,
    /// When to look at all sessions, because it could not be read which have open gates.
    look_at_all_again: Option<Timestamp>,
    /// Sessions in which something that was due was not told after all.
    to_recheck: BTreeSet<SessionId>,
    /// When that is.
    recheck_at: Option<Timestamp>,
    /// How much was told of late.
    rates: TellingRates,
}

/// How much people are told in a while.
struct TellingRates {
    person: RateLimit,
    /// Of one session.
    session: RateLimit<(ParticipantId, SessionId)>,
    /// How many more wait.
    digest: RateLimit,
}

impl TellingRates {
    /// Counts a message to a person about a session; otherwise says when there is room for it.
    fn take(
        &mut self,
        person: &ParticipantId,
        session: &SessionId,
        now: Timestamp,
    ) -> Result<(), Timestamp> {
        let of_session = (person.clone(), session.clone());
        let person_room = self.person.room_at(person, now);
        match person_room.max(self.session.room_at(&of_session, now)) {
            Some(room_at) => Err(room_at),
            None => {
                self.person.count(person, now);
                self.session.count(&of_session, now);
                Ok(())
            }
        }
    }
}

/// What was looked at.
enum LookedAt {
    /// Some sessions.
    Sessions,
    /// Everybody's channels, and all sessions with open gates.
    Everything,
}

/// Something to tell somebody now.
struct DueTelling {
    /// The place of the recipient in the list.
    recipient: usize,
    telling: Telling,
    hurry: Hurry,
}

/// What decides who is told of an open gate, and when.
struct ObservedGate {
    gate: MessageId,
    digest: Digest,
    category: Category,
    times: GateTimes,
    /// Places in the list of recipients: who may vote on it and has not.
    voters: Vec<usize>,
}

/// The open gates of a session, or how long to wait before it is asked again.
type Observed = Result<Vec<ObservedGate>, Duration>;

impl GateWatcher {
    fn new(directory: Arc<SessionDirectory>) -> Self {
        Self {
            recipients: Arc::default(),
            look_again: BTreeMap::new(),
            look_at_all_again: None,
            to_recheck: BTreeSet::new(),
            recheck_at: None,
            rates: TellingRates {
                person: RateLimit::new(PERSON_RATE),
                session: RateLimit::new(SESSION_RATE),
                digest: RateLimit::new(DIGEST_RATE),
            },
            directory,
        }
    }

    /// Reads what an earlier run has told, as often as it takes.
    async fn restore(&self) {
        let (store, notifications) = (&self.directory.store, &self.directory.notifications);
        loop {
            match store.list_notices().await {
                Ok(notices) => {
                    let mut book = notifications.book.lock();
                    notices.into_iter().for_each(|notice| book.restore(notice));
                    break;
                }
                Err(error) => tracing::warn!(%error, "could not read what was told"),
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
        let oldest = pvp_clock::now().minus_seconds(vote_link::MAX_LIFE_SECONDS);
        if let Err(error) = store.forget_vote_links(oldest).await {
            tracing::warn!(%error, "could not forget old vote links");
        }
        notifications.recipients_changed();
    }

    /// Returns when something has changed, or a time has come.
    async fn wait_for_changes(&self) {
        let others = [self.look_at_all_again, self.recheck_at];
        let times = self.look_again.values().copied();
        let next = times.chain(others.into_iter().flatten()).min();
        let now = pvp_clock::now();
        let due = async {
            match next {
                Some(at) => tokio::time::sleep(Duration::from_millis(at.millis_since(now))).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.directory.notifications.wait_for_changes() => {}
            () = due => {}
        }
    }

    /// Looks at every session that has changed or whose time has come.
    async fn look(&mut self) -> LookedAt {
        let mut changes = self.directory.notifications.take_changes();
        let now = pvp_clock::now();
        let are_recipients_stale = self.take_rechecks(&mut changes, now);
        if (changes.recipients || are_recipients_stale)
            && let Err(error) = self.read_recipients().await
        {
            tracing::warn!(%error, "could not read who is to be notified");
            self.directory.notifications.recipients_changed();
            tokio::time::sleep(RETRY_DELAY).await;
            return LookedAt::Everything;
        }
        let looked_at = match changes.recipients {
            true => LookedAt::Everything,
            false => LookedAt::Sessions,
        };
        let sessions = self.sessions_to_look_at(changes, now).await;
        let mut due = Vec::new();
        let mut observing = self.observe(sessions);
        while let Some((session, observed)) = observing.next().await {
            self.look_again.remove(&session);
            due.extend(self.take_observed(&session, observed, now).await);
        }
        self.tell_all(due, now);
        looked_at
    }

    /// Adds the sessions to recheck to those that have changed, if it is time; true if there are any.
    fn take_rechecks(&mut self, changes: &mut Changes, now: Timestamp) -> bool {
        self.to_recheck.append(&mut changes.to_recheck);
        if self.to_recheck.is_empty() {
            return false;
        }
        let at = *self.recheck_at.get_or_insert(after(now, RECHECK_DELAY));
        if at > now {
            return false;
        }
        self.recheck_at = None;
        changes.sessions.append(&mut self.to_recheck);
        true
    }

    /// Reads everybody's channels. Those whose tokens have ended are deleted.
    async fn read_recipients(&mut self) -> Result<(), StoreError> {
        let store = self.directory.store.as_ref();
        let hooks = self.directory.notifications.hooks().iter();
        let mut recipients: Vec<_> = hooks.cloned().map(Recipient::Operator).collect();
        for row in store.list_channels(None).await? {
            match ChannelState::read(store, &row).await {
                Ok(ChannelState::Usable(channel)) => recipients.push(Recipient::Person(channel)),
                Ok(ChannelState::Off) => {}
                Ok(ChannelState::Ended) => {
                    store.delete_channel(&row.id).await?;
                    tracing::info!(channel = row.id, "a channel ended with its token");
                }
                // One that cannot be read must not keep the others from being used.
                Err(error @ StoreError::Damaged(_)) => tracing::warn!(%error, "skipped a channel"),
                Err(error) => return Err(error),
            }
        }
        self.recipients = Arc::new(recipients);
        Ok(())
    }

    async fn sessions_to_look_at(
        &mut self,
        changes: Changes,
        now: Timestamp,
    ) -> BTreeSet<SessionId> {
        let due = self.look_again.iter().filter(|(_, at)| **at <= now);
        let due = due.map(|(session, _)| session.clone());
        let mut sessions: BTreeSet<_> = due.chain(changes.sessions).collect();
        let is_all_due = self.look_at_all_again.is_some_and(|at| at <= now);
        if changes.recipients || changes.all_sessions || is_all_due {
            self.look_at_all_again = None;
            sessions.extend(self.directory.notifications.book.lock().sessions());
            match self.directory.store.sessions_with_open_gates().await {
                Ok(gated) => sessions.extend(gated),
                Err(error) => {
                    tracing::warn!(%error, "could not look up open gates");
                    self.look_at_all_again = Some(after(now, RETRY_DELAY));
                }
            }
        }
        if self.recipients.is_empty() {
            // Only what was told before matters then.
            let known = self.directory.notifications.book.lock().sessions();
            sessions.retain(|session| known.contains(session));
        }
        sessions
    }

    /// The open gates of these sessions, as they answer: several are asked at a time, because one that
    /// is busy or whose log is long must not hold up the others.
    fn observe(
        &self,
        sessions: BTreeSet<SessionId>,
    ) -> impl Stream<Item = (SessionId, Observed)> + Unpin + use<> {
        let (directory, recipients) = (self.directory.clone(), self.recipients.clone());
        let observing = futures_util::stream::iter(sessions).map(move |session| {
            let (directory, recipients) = (directory.clone(), recipients.clone());
            async move {
                let observed =
                    directory.query(&session, move |session| observe_gates(session, &recipients));
                let observed = match tokio::time::timeout(QUERY_TIMEOUT, observed).await {
                    Ok(Some(gates)) => Ok(gates),
                    Ok(None) => Err(UNREADABLE_DELAY),
                    Err(_) => Err(BUSY_DELAY),
                };
                (session, observed)
            }
        });
        Box::pin(observing.buffer_unordered(SESSIONS_AT_ONCE))
    }

    /// Everything that is due to be told about the gates of a session.
    async fn take_observed(
        &mut self,
        session: &SessionId,
        observed: Observed,
        now: Timestamp,
    ) -> Vec<DueTelling> {
        let gates = match observed {
            Ok(gates) => gates,
            Err(delay) => {
                self.look_again_at(session, after(now, delay));
                return Vec::new();
            }
        };
        let open: BTreeSet<_> = gates.iter().map(|gate| gate.gate.clone()).collect();
        self.forget_closed(session, &open).await;
        {
            let mut book = self.directory.notifications.book.lock();
            open.iter().for_each(|gate| book.observe(session, gate));
        }
        let mut due = Vec::new();
        for gate in &gates {
            for voter in &gate.voters {
                due.extend(self.plan_for(session, gate, *voter, now));
            }
        }
        due
    }

    /// Forgets the gates that have closed, and says so to the browsers that show them.
    async fn forget_closed(&self, session: &SessionId, open: &BTreeSet<MessageId>) {
        let notifications = &self.directory.notifications;
        let closed = notifications.book.lock().forget_closed(session, open);
        for closed in closed {
            notifications.queue.cancel(session, &closed.gate);
            if let Some(told) = &closed.last {
                self.tell_closed(told, &closed.channels);
            }
            let forgetting = self.directory.store.forget_gate(session, &closed.gate);
            if let Err(error) = forgetting.await {
                tracing::warn!(%error, "could not forget what was told about a gate");
            }
        }
    }

    fn tell_closed(&self, told: &GateNotification, channels: &BTreeSet<String>) {
        let browsers = self.recipients.iter().filter(|recipient| {
            recipient.kind() == ChannelKind::Push && channels.contains(recipient.channel())
        });
        for browser in browsers {
            let delivery = ClosedDelivery {
                directory: self.directory.clone(),
                channel: browser.channel().to_owned(),
                told: told.clone(),
            };
            let queue = &self.directory.notifications.queue;
            let address = address_of(browser, &told.session, &told.gate);
            // Without room, a card that is shown stays until somebody opens it.
            let _ = queue.submit(address, Box::new(delivery));
        }
    }

    /// What is due to be told to one recipient about one gate.
    fn plan_for(
        &mut self,
        session: &SessionId,
        gate: &ObservedGate,
        voter: usize,
        now: Timestamp,
    ) -> Option<DueTelling> {
        let recipients = self.recipients.clone();
        let recipient = recipients.get(voter)?;
        let closing_seconds = self.directory.config.notifications.closing_seconds;
        let planned = plan(
            session,
            &gate.times,
            recipient.wishes(),
            closing_seconds,
            now,
        );
        if let Some(at) = planned.look_again {
            self.look_again_at(session, at);
        }
        let event = planned.tell?;
        let telling = Telling {
            channel: recipient.channel().to_owned(),
            session: session.clone(),
            gate: gate.gate.clone(),
            digest: gate.digest,
            event,
            escalated: gate.times.escalated,
        };
        let book = self.directory.notifications.book.lock();
        book.is_untold(&telling).then(|| DueTelling {
            recipient: voter,
            telling,
            hurry: hurry(gate.category, event),
        })
    }

    /// Has everybody told what is due.
    fn tell_all(&mut self, due: Vec<DueTelling>, now: Timestamp) {
        let recipients = self.recipients.clone();
        let mut by_person: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for due in due {
            let person = recipients.get(due.recipient).map(Recipient::participant);
            by_person.entry(person.flatten()).or_default().push(due);
        }
        for (person, due) in by_person {
            match person {
                Some(person) => self.tell_person(person, due, now),
                None => due.iter().for_each(|due| self.tell(due, now)),
            }
        }
    }

    /// Has a person told as much of what is due as there is room for, and how much more waits.
    fn tell_person(&mut self, person: &ParticipantId, due: Vec<DueTelling>, now: Timestamp) {
        let describe = |due: &DueTelling| (due.telling.session.clone(), due.hurry);
        let due = sort_fairly(due, describe, |session| {
            let of_session = (person.clone(), session.clone());
            self.rates.session.used(&of_session, now)
        });
        let mut waiting = Vec::new();
        for due in due {
            match self.rates.take(person, &due.telling.session, now) {
                Ok(()) => self.tell(&due, now),
                Err(room_at) => {
                    self.look_again_at(&due.telling.session, room_at);
                    waiting.push(due);
                }
            }
        }
        if !waiting.is_empty() && self.rates.digest.take(person, now).is_ok() {
            self.tell_how_many_wait(&waiting);
        }
    }

    fn tell(&mut self, due: &DueTelling, now: Timestamp) {
        let (recipients, telling) = (self.recipients.clone(), &due.telling);
        let notifications = &self.directory.notifications;
        let Some(recipient) = recipients.get(due.recipient) else {
            return;
        };
        if !notifications.book.lock().begin(telling) {
            return;
        }
        let delivery = GateDelivery::new(self.directory.clone(), telling.clone(), recipient);
        let address = address_of(recipient, &telling.session, &telling.gate);
        let submitted = notifications.queue.submit(address, Box::new(delivery));
        if submitted.is_err() {
            notifications.book.lock().abandon(telling);
            self.look_again_at(&telling.session, after(now, RETRY_DELAY));
        }
    }

    /// Has a person told over each channel how many gates wait, and the first of them.
    fn tell_how_many_wait(&self, waiting: &[DueTelling]) {
        let mut by_channel: BTreeMap<usize, Vec<&Telling>> = BTreeMap::new();
        for due in waiting {
            let tellings = by_channel.entry(due.recipient).or_default();
            tellings.push(&due.telling);
        }
        for (recipient, tellings) in by_channel {
            let (Some(recipient), Some(first)) = (self.recipients.get(recipient), tellings.first())
            else {
                continue;
            };
            let gates: BTreeSet<_> = tellings.iter().map(|it| it.gate_name()).collect();
            let delivery = DigestDelivery {
                directory: self.directory.clone(),
                first: (*first).clone(),
                count: gates.len(),
            };
            let address = address_of(recipient, &first.session, &first.gate);
            let queue = &self.directory.notifications.queue;
            // Without room, it is counted again later.
            let _ = queue.submit(address, Box::new(delivery));
        }
    }

    fn look_again_at(&mut self, session: &SessionId, at: Timestamp) {
        let next = self.look_again.entry(session.clone()).or_insert(at);
        *next = at.min(*next);
    }
}

fn after(now: Timestamp, delay: Duration) -> Timestamp {
    now.plus_millis(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
}

fn address_of(recipient: &Recipient, session: &SessionId, gate: &MessageId) -> DeliveryAddress {
    DeliveryAddress {
        channel: recipient.channel().to_owned(),
        kind: recipient.kind(),
        person: match recipient.participant() {
            Some(person) => format!("participant {person}"),
            None => format!("hook {}", recipient.channel()),
        },
        session: session.clone(),
        gate: gate.clone(),
    }
}

fn hurry(category: Category, event: NotificationEvent) -> Hurry {
    match (event, category) {
        (NotificationEvent::Escalated, _) => Hurry::Escalated,
        (NotificationEvent::Closing, _) => Hurry::Closing,
        (NotificationEvent::Opened, Category::Destructive | Category::Blocked) => {
            Hurry::Destructive
        }
        (NotificationEvent::Opened, Category::Read | Category::Write) => Hurry::Usual,
    }
}

/// The open gates of a session, each with those who may vote on it and have not.
fn observe_gates(session: &Session, recipients: &[Recipient]) -> Vec<ObservedGate> {
    let observe = |(proposal, gate): (&Proposal, &Gate)| {
        let approvers = session.approvers(gate, &proposal.proposer);
        let is_voter = |recipient: &Recipient| match recipient {
            Recipient::Person(channel) => {
                admission::is_told(session, gate, &approvers, &channel.claims)
            }
            Recipient::Operator(_) => true,
        };
        let voters = recipients.iter().enumerate();
        let voters = voters.filter(|(_, recipient)| is_voter(recipient));
        ObservedGate {
            gate: gate.id.clone(),
            digest: proposal.assessment.digest,
            category: proposal.assessment.category,
            times: GateTimes::of(&gate.request, gate.escalated),
            voters: voters.map(|(place, _)| place).collect(),
        }
    };
    session.open_gates().into_iter().map(observe).collect()
}

#[cfg(test)]
mod tests;
