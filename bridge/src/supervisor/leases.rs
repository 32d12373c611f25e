//! Renews the leases on the calls of a client while its bridge lives.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use pvp_agent::proposer::Proposer;
use pvp_protocol::MessageId;

/// How often leases are renewed: a lease outlives two renewals that come to nothing.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// The calls that wait or run. The renewals end when the last clone is dropped.
#[derive(Clone)]
pub(super) struct LeaseRenewal(Arc<Mutex<BTreeSet<MessageId>>>);

impl LeaseRenewal {
    /// Starts to renew what is added.
    pub(super) fn keep(proposer: Proposer) -> Self {
        let leases = Self(Arc::default());
        tokio::spawn(renew(proposer, Arc::downgrade(&leases.0)));
        leases
    }

    pub(super) fn add(&self, id: MessageId) {
        self.lock().insert(id);
    }

    pub(super) fn remove(&self, id: &MessageId) {
        self.lock().remove(id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<MessageId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn renew(proposer: Proposer, leases: Weak<Mutex<BTreeSet<MessageId>>>) {
    loop {
        tokio::time::sleep(RENEWAL_INTERVAL).await;
        let Some(leases) = leases.upgrade().map(LeaseRenewal) else {
            return;
        };
        let ids: Vec<_> = leases.lock().iter().cloned().collect();
        drop(leases);
        if !ids.is_empty()
            && let Err(error) = proposer.renew(ids).await
        {
            tracing::debug!(%error, "leases were not renewed");
        }
    }
}
