//! Delivers what was submitted, over each channel in turn, and tries again when a receiver cannot take
//! it.
//!
//! Submitting never waits. A channel has one worker while something waits for it, so that a receiver
//! that is down costs one connection at a time and holds up nobody else.

mod permits;
mod waiting;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use pvp_clock::{Backoff, BackoffState};
use pvp_protocol::api::ChannelKind;
use pvp_protocol::{MessageId, SessionId};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::error::DeliveryError;
use permits::FairPermits;
use waiting::{WaitingDeliveries, WaitingDelivery};

pub use permits::PermitLimits;

/// What came of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    Sent,
    /// There is no longer a reason to send it.
    Withdrawn,
    Failed(DeliveryError),
}

/// What came of a delivery in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryOutcome {
    Sent,
    /// There was no reason for it when it was looked at, or there is no room for it any more.
    Withdrawn,
    /// Its gate is closed.
    Cancelled,
    GivenUp(DeliveryError),
}

/// Something to deliver over one channel.
pub trait QueuedDelivery: Send + 'static {
    /// Looks whether there is still a reason to send it, and sends it.
    fn attempt(&mut self) -> BoxFuture<'_, Attempt>;

    /// Called once, with what came of it; not if the queue is shut down before.
    fn finish(self: Box<Self>, outcome: DeliveryOutcome) -> BoxFuture<'static, ()>;
}

/// What a delivery is about and whom it is for, by which the queue shares out its room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryAddress {
    /// The channel's id.
    pub channel: String,
    /// What kind of channel it is.
    pub kind: ChannelKind,
    /// Whose channel it is; whatever is not a person's has a name of its own.
    pub person: String,
    /// The session of the gate.
    pub session: SessionId,
    /// The gate.
    pub gate: MessageId,
}

/// What a queue counts, for each kind of channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryCount {
    /// A receiver has taken it.
    Sent,
    /// It was given up.
    Failed,
    /// An attempt failed, and another will be made.
    Retried,
    /// There was no room for it.
    Dropped,
}

/// How much a queue holds, and how often it tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Deliveries that wait for one channel.
    pub per_channel: usize,
    /// Deliveries that wait for one person.
    pub per_person: usize,
    /// Deliveries that wait for all channels.
    pub in_total: usize,
    /// How many attempts are made at a time.
    pub attempts_at_once: PermitLimits,
    /// Attempts at one delivery.
    pub attempts: u32,
    /// How long to wait after a failure.
    pub backoff: Backoff,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            per_channel: 64,
            per_person: 512,
            in_total: 8192,
            attempts_at_once: PermitLimits {
                in_total: 128,
                per_session: 32,
                per_person: 8,
            },
            attempts: 7,
            backoff: Backoff {
                initial: Duration::from_secs(1),
                max: Duration::from_secs(60),
            },
        }
    }
}

/// There is no room for another delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many notifications wait")]
pub struct QueueFull;

/// Told of everything that is counted.
pub type CountDelivery = Box<dyn Fn(ChannelKind, DeliveryCount) + Send + Sync>;

/// The deliveries that wait, and the tasks that make them.
pub struct DeliveryQueue(Arc<QueueState>);

struct QueueState {
    /// How much it holds, and how often it tries.
    limits: QueueLimits,
    /// Told of everything that is counted.
    count: CountDelivery,
    /// What nobody works on yet.
    waiting: Mutex<WaitingDeliveries>,
    /// The tasks of the channels that something waits for.
    workers: Mutex<JoinSet<()>>,
    /// Permits so many attempts at a time.
    permits: Arc<FairPermits>,
    /// True once it is shut down.
    closing: watch::Sender<bool>,
}

impl DeliveryQueue {
    pub fn new(limits: QueueLimits, count: CountDelivery) -> Self {
        Self(Arc::new(QueueState {
            limits,
            count,
            waiting: Mutex::default(),
            workers: Mutex::default(),
            permits: FairPermits::new(limits.attempts_at_once),
            closing: watch::channel(false).0,
        }))
    }

    /// Takes a delivery, unless too many wait. If no more fit in all, one of the session that has the
    /// most goes, so that no session keeps others from being told of.
    pub fn submit(
        &self,
        address: DeliveryAddress,
        delivery: Box<dyn QueuedDelivery>,
    ) -> Result<(), QueueFull> {
        let state = &self.0;
        let kind = address.kind;
        let mut waiting = state.waiting.lock();
        let has_enough = waiting.of_channel(&address.channel) >= state.limits.per_channel
            || waiting.of_person(&address.person) >= state.limits.per_person;
        let is_full = waiting.total() >= state.limits.in_total;
        let crowded_out = match is_full && !has_enough {
            true => waiting.remove_from_fullest(&address.session),
            false => None,
        };
        if has_enough || (is_full && crowded_out.is_none()) {
            (state.count)(kind, DeliveryCount::Dropped);
            return Err(QueueFull);
        }
        let channel = address.channel.clone();
        let has_worker = waiting.has_worker(&channel);
        waiting.push(WaitingDelivery {
            address,
            attempts: 0,
            delivery,
        });
        drop(waiting);
        if let Some(crowded_out) = crowded_out {
            (state.count)(crowded_out.address.kind, DeliveryCount::Dropped);
            state.start(finish(crowded_out, DeliveryOutcome::Withdrawn));
        }
        if !has_worker {
            state.start(state.clone().work(channel));
        }
        Ok(())
    }

    /// Takes out whatever waits about a gate, because it is closed.
    pub fn cancel(&self, session: &SessionId, gate: &MessageId) {
        let cancelled = self.0.waiting.lock().remove_gate(session, gate);
        if cancelled.is_empty() {
            return;
        }
        self.0.start(async move {
            for cancelled in cancelled {
                finish(cancelled, DeliveryOutcome::Cancelled).await;
            }
        });
    }

    /// Makes no more attempts, and waits a while for those that are being made.
    pub async fn shut_down(&self, patience: Duration) {
        self.0.closing.send_replace(true);
        let mut workers = std::mem::take(&mut *self.0.workers.lock());
        let all = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, all).await.is_err() {
            tracing::debug!("some notifications were not delivered before the shutdown");
        }
    }
}

impl QueueState {
    fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut workers = self.workers.lock();
        while workers.try_join_next().is_some() {}
        workers.spawn(work);
    }

    /// Delivers what waits for a channel, until nothing does.
    async fn work(self: Arc<Self>, channel: String) {
        let mut backoff = BackoffState::new(self.limits.backoff);
        let mut closing = self.closing.subscribe();
        while let Some(mut next) = self.take_next(&channel) {
            next.attempts += 1;
            let address = &next.address;
            let permit = self.permits.acquire(&address.session, &address.person);
            let permit = permit.await;
            let attempting = AssertUnwindSafe(next.delivery.attempt()).catch_unwind();
            let attempt = attempting.await.unwrap_or_else(|_| {
                Attempt::Failed(DeliveryError::Permanent("the server failed".to_owned()))
            });
            drop(permit);
            let delay = match attempt {
                Attempt::Sent => {
                    (self.count)(next.address.kind, DeliveryCount::Sent);
                    backoff.reset();
                    finish(next, DeliveryOutcome::Sent).await;
                    continue;
                }
                Attempt::Withdrawn => {
                    finish(next, DeliveryOutcome::Withdrawn).await;
                    continue;
                }
                Attempt::Failed(error) => self.fail(next, error, &mut backoff).await,
            };
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                _ = closing.wait_for(|closing| *closing) => {}
            }
        }
    }

    /// Puts a delivery back or gives it up; returns how long its channel is left alone.
    async fn fail(
        &self,
        failed: WaitingDelivery,
        error: DeliveryError,
        backoff: &mut BackoffState,
    ) -> Duration {
        match error {
            DeliveryError::Transient { retry_after, .. } => {
                let delay = backoff.next_delay().max(retry_after.unwrap_or_default());
                if failed.attempts < self.limits.attempts {
                    (self.count)(failed.address.kind, DeliveryCount::Retried);
                    // Behind the others: it may be this delivery that the receiver does not take.
                    self.waiting.lock().push(failed);
                } else {
                    self.give_up(failed, error).await;
                }
                delay
            }
            DeliveryError::Gone(_) | DeliveryError::Permanent(_) => {
                self.give_up(failed, error).await;
                Duration::ZERO
            }
        }
    }

    async fn give_up(&self, failed: WaitingDelivery, error: DeliveryError) {
        (self.count)(failed.address.kind, DeliveryCount::Failed);
        finish(failed, DeliveryOutcome::GivenUp(error)).await;
    }

    /// The next delivery of a channel; `None` ends its worker.
    fn take_next(&self, channel: &str) -> Option<WaitingDelivery> {
        let mut waiting = self.waiting.lock();
        let next = match *self.closing.borrow() {
            true => None,
            false => waiting.pop(channel),
        };
        if next.is_none() {
            waiting.remove_channel(channel);
        }
        next
    }
}

/// A panic in one delivery must not end the worker of its channel.
async fn finish(delivery: WaitingDelivery, outcome: DeliveryOutcome) {
    let finishing = AssertUnwindSafe(delivery.delivery.finish(outcome)).catch_unwind();
    if finishing.await.is_err() {
        tracing::error!(channel = delivery.address.channel, "a notification failed");
    }
}

#[cfg(test)]
mod tests;
