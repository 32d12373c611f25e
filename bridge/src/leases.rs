//! Renews the leases on the calls of a client while whoever asks for it lives.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use pvp_agent::proposer::Proposer;
use pvp_protocol::MessageId;

/// How often leases are renewed: a lease outlives two renewals that come to nothing.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// The calls that wait or run. The renewals end when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct LeaseRenewal(Arc<Mutex<BTreeSet<MessageId>>>);

/// Keeps the lease of one call until it is dropped.
pub(crate) struct HeldLease {
    leases: LeaseRenewal,
    id: MessageId,
}

impl LeaseRenewal {
    /// Starts to renew what is added.
    pub(crate) fn keep(proposer: Proposer) -> Self {
        let leases = Self(Arc::default());
        tokio::spawn(renew(proposer, Arc::downgrade(&leases.0)));
        leases
    }

    /// Renews the lease of a call as long as the result is kept.
    pub(crate) fn hold(&self, id: MessageId) -> HeldLease {
        self.lock().insert(id.clone());
        HeldLease {
            leases: self.clone(),
            id,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<MessageId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.leases.lock().remove(&self.id);
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
