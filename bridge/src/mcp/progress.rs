//! Tells a client that its call still waits or runs, which also keeps it from giving up.

use std::convert::Infallible;
use std::time::Duration;

use pvp_agent::proposer::GateProgress;
use pvp_client::view::escape_invisible;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

/// What the gate of a call waits for, as it changes.
pub(super) type GateWatch = watch::Receiver<Option<GateProgress>>;

pub(super) struct ProgressReporter {
    /// What the client calls the call; `None` if it does not want progress.
    token: Option<ProgressToken>,
    peer: Peer<RoleServer>,
    /// How often to tell it that nothing has changed.
    interval: Duration,
    begun: Instant,
}

impl ProgressReporter {
    pub(super) fn new(
        token: Option<ProgressToken>,
        peer: Peer<RoleServer>,
        interval: Duration,
    ) -> Self {
        Self {
            token,
            peer,
            interval,
            begun: Instant::now(),
        }
    }

    /// Reports until the work is done. `otherwise` says what happens while no gate is open.
    pub(super) async fn during<T>(
        &self,
        work: impl Future<Output = T>,
        gate: Option<GateWatch>,
        otherwise: &str,
    ) -> T {
        let Some(token) = &self.token else {
            return work.await;
        };
        // A client that does not read its notifications gets its result all the same.
        tokio::select! {
            result = work => result,
            never = self.report(token, gate, otherwise) => match never {},
        }
    }

    async fn report(
        &self,
        token: &ProgressToken,
        mut gate: Option<GateWatch>,
        otherwise: &str,
    ) -> Infallible {
        let mut ticks = tokio::time::interval_at(Instant::now() + self.interval, self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut since = self.begun;
        loop {
            let open = gate
                .as_mut()
                .and_then(|gate| gate.borrow_and_update().clone());
            if let Some(open) = open {
                self.send(token, &format!("{open}, {} s", since.elapsed().as_secs()))
                    .await;
            } else if since.elapsed() >= self.interval {
                let seconds = since.elapsed().as_secs();
                self.send(token, &format!("{otherwise}, {seconds} s")).await;
            }
            let was_open = gate.as_ref().is_some_and(|gate| gate.borrow().is_some());
            tokio::select! {
                _ = ticks.tick() => {}
                changed = gate_changed(gate.as_mut()) => if changed.is_err() {
                    gate = None;
                },
            }
            // The seconds are those of the wait, or of the run.
            if was_open != gate.as_ref().is_some_and(|gate| gate.borrow().is_some()) {
                since = Instant::now();
            }
        }
    }

    async fn send(&self, token: &ProgressToken, message: &str) {
        // It has to grow with each notification.
        let progress = self.begun.elapsed().as_secs_f64();
        let notification = ProgressNotificationParam::new(token.clone(), progress)
            .with_message(escape_invisible(message));
        if let Err(error) = self.peer.notify_progress(notification).await {
            tracing::debug!(%error, "could not report progress");
            // The client has gone, and whatever works for it ends soon.
            std::future::pending().await
        }
    }
}

/// Waits for a change; for ever if there is no gate to watch.
async fn gate_changed(gate: Option<&mut GateWatch>) -> Result<(), watch::error::RecvError> {
    match gate {
        Some(gate) => gate.changed().await,
        None => std::future::pending().await,
    }
}
