//! The delivery of one notification. Before every attempt it is looked at again whether the gate is
//! still open as it was, and whether its receiver may still vote on it and wants to know.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use pvp_notify::{
    AddressSource, Attempt, ChannelMessage, ChannelTarget, DeliveryError, DeliveryOutcome,
    QueuedDelivery,
};
use pvp_protocol::api::{GateNotification, NotificationEvent};
use pvp_protocol::payload::OpenGate;
use pvp_protocol::{SessionId, Timestamp};

use super::channel::ChannelStatus;
use super::notice_book::Telling;
use super::plan::{GateTimes, plan};
use super::recipient::{ChannelState, OperatorHook, PersonalChannel, Recipient};
use super::text::{self, Addressee, ToldGate};
use super::{message_id, vote_link};
use crate::admission;
use crate::directory::SessionDirectory;
use crate::store::{NoticeRow, StoreError};

/// Whom a notification is for.
enum Receiver {
    /// Looked up again before every attempt.
    Channel,
    Operator(Arc<OperatorHook>),
}

/// A notification about an open gate, on its way to one channel.
pub(super) struct GateDelivery {
    directory: Arc<SessionDirectory>,
    telling: Telling,
    receiver: Receiver,
    /// The secret of a vote link, made for the first attempt.
    vote_link: Option<String>,
    /// What the last attempt said.
    sent: Option<GateNotification>,
}

/// What to send, and where.
type Prepared = (ChannelTarget, AddressSource, ChannelMessage);

impl GateDelivery {
    pub(super) fn new(
        directory: Arc<SessionDirectory>,
        telling: Telling,
        recipient: &Recipient,
    ) -> Self {
        Self {
            directory,
            telling,
            receiver: match recipient {
                Recipient::Person(_) => Receiver::Channel,
                Recipient::Operator(hook) => Receiver::Operator(hook.clone()),
            },
            vote_link: None,
            sent: None,
        }
    }

    async fn try_once(&mut self) -> Result<Attempt, StoreError> {
        let Some((target, source, message)) = self.prepare().await? else {
            return Ok(Attempt::Withdrawn);
        };
        let sender = &self.directory.notifications.sender;
        self.sent = Some(message.notification.clone());
        Ok(match sender.send(&target, source, &message).await {
            Ok(()) => Attempt::Sent,
            Err(error) => Attempt::Failed(error.waiting_at_most(longest_wait(&message))),
        })
    }

    /// What to send and where; `None` if there is no longer a reason to.
    async fn prepare(&mut self) -> Result<Option<Prepared>, StoreError> {
        let recipient = match &self.receiver {
            Receiver::Operator(hook) => Recipient::Operator(hook.clone()),
            Receiver::Channel => {
                match read_channel(&self.directory, &self.telling.channel).await? {
                    Some(channel) => Recipient::Person(channel),
                    None => return Ok(None),
                }
            }
        };
        let found = find_gate(&self.directory, &self.telling, &recipient).await?;
        let Some((open, session_name)) = found else {
            return Ok(None);
        };
        let now = pvp_clock::now();
        if due_event(
            &self.directory,
            &self.telling.session,
            &open,
            &recipient,
            now,
        ) != Some(self.telling.event)
        {
            return Ok(None);
        }
        if let Recipient::Person(channel) = &recipient {
            self.make_vote_link(channel).await;
        }
        let base_url = self.directory.server_address().url;
        let told = ToldGate {
            session: &self.telling.session,
            session_name: session_name.as_deref(),
            open: &open,
        };
        let to = addressee(&recipient, &base_url, self.vote_link.as_deref());
        let id = message_id(&self.telling.key());
        let message = text::message(&told, self.telling.event, &to, id, now);
        Ok(Some(prepared(recipient, message)))
    }

    /// Makes a vote link if the person and the operator want one and only the person reads it. Without
    /// one, the message leads to the card.
    async fn make_vote_link(&mut self, channel: &PersonalChannel) {
        if !vote_link::is_wanted(&self.directory, channel) {
            self.vote_link = None;
            return;
        }
        if self.vote_link.is_some() {
            return;
        }
        let Telling {
            session,
            gate,
            digest,
            ..
        } = &self.telling;
        let now = pvp_clock::now();
        let (row, secret) = vote_link::create(session, gate, *digest, channel, now);
        let notifications = &self.directory.notifications;
        notifications
            .book
            .lock()
            .note_link(self.telling.gate_name());
        match self.directory.store.insert_vote_link(row).await {
            Ok(()) => self.vote_link = Some(secret),
            Err(error) => tracing::warn!(%error, "could not store a vote link; none is sent"),
        }
    }

    /// Notes what came of it, so that it is not told again.
    async fn record(&self, outcome: &DeliveryOutcome) -> Result<(), StoreError> {
        let (store, now) = (self.directory.store.as_ref(), pvp_clock::now());
        let channel = &self.telling.channel;
        store
            .insert_notice(NoticeRow {
                key: self.telling.key(),
                session: self.telling.session.clone(),
                gate: self.telling.gate.clone(),
                channel: channel.clone(),
                at: now,
            })
            .await?;
        if let Some(row) = store.find_channel(channel).await? {
            let last = ChannelStatus::from_row(&row).last_delivery;
            let status = match outcome {
                DeliveryOutcome::Sent | DeliveryOutcome::Withdrawn | DeliveryOutcome::Cancelled => {
                    ChannelStatus {
                        last_error: None,
                        last_delivery: Some(now),
                    }
                }
                DeliveryOutcome::GivenUp(error) => ChannelStatus {
                    last_error: Some(error.to_string()),
                    last_delivery: last,
                },
            };
            store
                .update_channel_status(channel, status.to_json())
                .await?;
        }
        Ok(())
    }

    async fn finish_delivery(self, outcome: DeliveryOutcome) {
        let directory = self.directory.clone();
        let notifications = &directory.notifications;
        match outcome {
            DeliveryOutcome::Cancelled => return notifications.book.lock().abandon(&self.telling),
            DeliveryOutcome::Withdrawn => {
                notifications.book.lock().abandon(&self.telling);
                // It may be due again: quiet hours end, and what could not be read can be again.
                return notifications.recheck(&self.telling.session);
            }
            DeliveryOutcome::Sent | DeliveryOutcome::GivenUp(_) => {}
        }
        if let Err(error) = self.record(&outcome).await {
            tracing::warn!(%error, "could not record a notification; it may be repeated");
        }
        let is_sent = outcome == DeliveryOutcome::Sent;
        let last = self.sent.filter(|_| is_sent);
        notifications.book.lock().complete(&self.telling, last);
        if let DeliveryOutcome::GivenUp(error) = &outcome {
            let channel = &self.telling.channel;
            tracing::info!(channel, %error, "gave up a notification");
            notifications
                .remove_if_gone(&directory, channel, error)
                .await;
        }
        // The gate may have closed while this was on its way.
        notifications.gates_changed_in(&self.telling.session);
    }
}

impl QueuedDelivery for GateDelivery {
    fn attempt(&mut self) -> BoxFuture<'_, Attempt> {
        Box::pin(async { unless_unreadable(self.try_once().await) })
    }

    fn finish(self: Box<Self>, outcome: DeliveryOutcome) -> BoxFuture<'static, ()> {
        Box::pin(self.finish_delivery(outcome))
    }
}

/// That something could not be read is no fault of the receiver, and not the end of it: the watcher
/// looks again.
fn unless_unreadable(attempt: Result<Attempt, StoreError>) -> Attempt {
    attempt.unwrap_or_else(|error| {
        tracing::warn!(%error, "could not look up what a notification is about");
        Attempt::Withdrawn
    })
}

/// How long a receiver may have the next attempt wait: half of the time that is left.
fn longest_wait(message: &ChannelMessage) -> Duration {
    let deadline = message.notification.deadline;
    let left = deadline.map(|at| at.millis_since(pvp_clock::now()));
    left.map_or(Duration::MAX, |left| Duration::from_millis(left / 2))
}

/// The channel, if something may be told over it.
async fn read_channel(
    directory: &SessionDirectory,
    id: &str,
) -> Result<Option<Box<PersonalChannel>>, StoreError> {
    let store = directory.store.as_ref();
    let Some(row) = store.find_channel(id).await? else {
        return Ok(None);
    };
    Ok(match ChannelState::read(store, &row).await? {
        ChannelState::Usable(channel) => Some(channel),
        ChannelState::Off | ChannelState::Ended => None,
    })
}

/// The gate and the name of its session, if it is open as it was and its receiver is to be told.
async fn find_gate(
    directory: &Arc<SessionDirectory>,
    telling: &Telling,
    recipient: &Recipient,
) -> Result<Option<(OpenGate, Option<String>)>, StoreError> {
    let telling = telling.clone();
    let claims = match recipient {
        Recipient::Person(channel) => Some(channel.claims.clone()),
        Recipient::Operator(_) => None,
    };
    let session = telling.session.clone();
    let found = directory.query(&session, move |session| {
        let (proposal, gate) = session.open_gate(&telling.gate)?;
        let approvers = session.approvers(gate, &proposal.proposer);
        let is_wanted =
            claims.is_none_or(|claims| admission::is_told(session, gate, &approvers, &claims));
        let is_same =
            proposal.assessment.digest == telling.digest && gate.escalated == telling.escalated;
        let describe = || (gate.describe(proposal), session.name().map(str::to_owned));
        (is_wanted && is_same).then(describe)
    });
    let unreadable = || StoreError::Failed(format!("the log of session `{session}`"));
    found.await.ok_or_else(unreadable)
}

/// What is due to be told about a gate now.
fn due_event(
    directory: &SessionDirectory,
    session: &SessionId,
    open: &OpenGate,
    recipient: &Recipient,
    now: Timestamp,
) -> Option<NotificationEvent> {
    let closing_seconds = directory.config.notifications.closing_seconds;
    let times = GateTimes::of(&open.request, open.escalated);
    plan(session, &times, recipient.wishes(), closing_seconds, now).tell
}

fn addressee<'a>(
    recipient: &Recipient,
    base_url: &'a str,
    vote_link: Option<&'a str>,
) -> Addressee<'a> {
    Addressee {
        kind: recipient.kind(),
        is_voter: recipient.participant().is_some(),
        show_command: match recipient {
            Recipient::Person(channel) => channel.preferences.show_command,
            Recipient::Operator(hook) => hook.show_command,
        },
        base_url,
        vote_link,
    }
}

fn prepared(recipient: Recipient, message: ChannelMessage) -> Prepared {
    match recipient {
        Recipient::Person(channel) => (channel.target, AddressSource::Person, message),
        Recipient::Operator(hook) => (hook.target.clone(), AddressSource::Operator, message),
    }
}

/// The word to a person that more waits than they are told of one by one.
pub(super) struct DigestDelivery {
    pub(super) directory: Arc<SessionDirectory>,
    /// What is most urgent of what waits.
    pub(super) first: Telling,
    /// How many gates wait.
    pub(super) count: usize,
}

impl DigestDelivery {
    async fn try_once(&self) -> Result<Attempt, StoreError> {
        let Some(channel) = read_channel(&self.directory, &self.first.channel).await? else {
            return Ok(Attempt::Withdrawn);
        };
        let recipient = Recipient::Person(channel);
        let Some((open, name)) = find_gate(&self.directory, &self.first, &recipient).await? else {
            return Ok(Attempt::Withdrawn);
        };
        let (now, session) = (pvp_clock::now(), &self.first.session);
        if due_event(&self.directory, session, &open, &recipient, now).is_none() {
            return Ok(Attempt::Withdrawn);
        }
        let base_url = self.directory.server_address().url;
        let told = ToldGate {
            session,
            session_name: name.as_deref(),
            open: &open,
        };
        let to = addressee(&recipient, &base_url, None);
        let id = message_id(&pvp_clock::random_bytes());
        let message = text::more_wait_message(&told, self.count, &to, id, now);
        let (target, source, message) = prepared(recipient, message);
        let sender = &self.directory.notifications.sender;
        Ok(match sender.send(&target, source, &message).await {
            Ok(()) => Attempt::Sent,
            Err(error) => Attempt::Failed(error.waiting_at_most(longest_wait(&message))),
        })
    }
}

impl QueuedDelivery for DigestDelivery {
    fn attempt(&mut self) -> BoxFuture<'_, Attempt> {
        Box::pin(async { unless_unreadable(self.try_once().await) })
    }

    /// Nothing is noted: whatever waits is told or counted again.
    fn finish(self: Box<Self>, outcome: DeliveryOutcome) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let DeliveryOutcome::GivenUp(error) = &outcome {
                let (directory, channel) = (&self.directory, &self.first.channel);
                let notifications = &directory.notifications;
                notifications
                    .remove_if_gone(directory, channel, error)
                    .await;
            }
        })
    }
}

/// The word to a browser that a gate which it shows is closed. It is tried once.
pub(super) struct ClosedDelivery {
    pub(super) directory: Arc<SessionDirectory>,
    pub(super) channel: String,
    pub(super) told: GateNotification,
}

impl ClosedDelivery {
    async fn try_once(&self) -> Result<Attempt, StoreError> {
        let store = self.directory.store.as_ref();
        let Some(row) = store.find_channel(&self.channel).await? else {
            return Ok(Attempt::Withdrawn);
        };
        let ChannelState::Usable(channel) = ChannelState::read(store, &row).await? else {
            return Ok(Attempt::Withdrawn);
        };
        let quiet = channel.wishes.quiet.as_ref();
        if quiet.is_some_and(|quiet| quiet.end_of(pvp_clock::now()).is_some()) {
            return Ok(Attempt::Withdrawn);
        }
        let id = message_id(&pvp_clock::random_bytes());
        let message = text::closed_message(&self.told, id);
        let sender = &self.directory.notifications.sender;
        let sending = sender.send(&channel.target, AddressSource::Person, &message);
        Ok(match sending.await {
            Ok(()) => Attempt::Sent,
            Err(error @ (DeliveryError::Gone(_) | DeliveryError::Permanent(_))) => {
                Attempt::Failed(error)
            }
            Err(DeliveryError::Transient { .. }) => Attempt::Withdrawn,
        })
    }
}

impl QueuedDelivery for ClosedDelivery {
    fn attempt(&mut self) -> BoxFuture<'_, Attempt> {
        Box::pin(async { self.try_once().await.unwrap_or(Attempt::Withdrawn) })
    }

    fn finish(self: Box<Self>, outcome: DeliveryOutcome) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let DeliveryOutcome::GivenUp(error) = &outcome {
                let notifications = &self.directory.notifications;
                notifications
                    .remove_if_gone(&self.directory, &self.channel, error)
                    .await;
            }
        })
    }
}
