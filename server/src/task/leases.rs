//! Leases on proposals that agent clients run by themselves: whoever asked, or runs it, must be
//! heard of every few seconds, or the proposal is over.
//!
//! Leases are not in the log, because a renewal changes nothing that anybody needs to know. After a
//! restart every lease begins anew.

use std::collections::BTreeMap;
use std::time::Duration;

use pvp_protocol::{ClientMessage, MessageId};
use pvp_session::{Answer, Input, Session};
use tokio::time::Instant;

use super::{SessionTask, WriteBatch};

/// How long a proposal outlives its client, in seconds: within half a minute of the client's death,
/// what it asked for is withdrawn, on a busy machine too.
pub(super) const LEASE_SECONDS: u64 = 18;
const LEASE: Duration = Duration::from_secs(LEASE_SECONDS);

/// When each lease ends. This clock stands still while the machine sleeps, as the clients do that
/// should renew them, and does not jump when somebody sets the time.
#[derive(Default)]
pub(super) struct Leases(BTreeMap<MessageId, Instant>);

impl Leases {
    /// Begins the leases of new proposals, and forgets those that are over.
    pub(super) fn sync(&mut self, session: &Session, now: Instant) {
        let ends = now + LEASE;
        let mut known = std::mem::take(&mut self.0);
        for id in session.leased_proposals() {
            let earlier = known.remove(id);
            self.0.insert(id.clone(), earlier.unwrap_or(ends));
        }
    }

    fn renew(&mut self, id: &MessageId, now: Instant) {
        if let Some(ends) = self.0.get_mut(id) {
            *ends = now + LEASE;
        }
    }

    /// When the next lease ends.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().min().copied()
    }

    fn take_ended(&mut self, now: Instant) -> Vec<MessageId> {
        let ended = self.0.extract_if(.., |_, ends| *ends <= now);
        ended.map(|(id, _)| id).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl SessionTask {
    /// Renews the leases that an accepted message names.
    pub(super) fn renew_leases(&mut self, renewed: &[MessageId], answer: &Answer) {
        if let Answer::Accepted(_) | Answer::Duplicate(_) = answer {
            let now = Instant::now();
            for id in renewed {
                self.leases.renew(id, now);
            }
        }
    }

    /// Renews the lease of a proposal that a request waits for.
    pub(super) fn renew_lease(&mut self, id: &MessageId) {
        self.leases.renew(id, Instant::now());
    }

    /// Ends the proposals whose leases have ended.
    pub(super) fn end_leases(&mut self, batch: &mut WriteBatch) {
        for proposal in self.leases.take_ended(Instant::now()) {
            self.apply_input(Input::LeaseExpired { proposal }, batch);
        }
    }
}

/// The proposals whose leases a message renews.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "no other message renews a lease"
)]
pub(super) fn renewed_by(message: &ClientMessage) -> Vec<MessageId> {
    match message {
        ClientMessage::ToolRenew(renew) => renew.tool_proposals.clone(),
        ClientMessage::ToolOutput(output) => vec![output.tool_proposal.clone()],
        _ => Vec::new(),
    }
}
