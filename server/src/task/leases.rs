//! Leases on proposals that agent clients run by themselves: whoever asked, or runs it, must be
//! heard of every few seconds, or the proposal is over.
//!
//! Leases are not in the log, because a renewal changes nothing that anybody needs to know. After a
//! restart every lease begins anew.

use std::collections::BTreeMap;

use pvp_protocol::{ClientMessage, MessageId, Timestamp};
use pvp_session::{Answer, Input, Session};

use super::{SessionTask, WriteBatch};

/// How long a proposal outlives its client, in seconds. With the time until the next timer, what a
/// killed client asked for is withdrawn within half a minute.
pub(super) const LEASE_SECONDS: u64 = 25;

/// When each lease ends.
#[derive(Default)]
pub(super) struct Leases(BTreeMap<MessageId, Timestamp>);

impl Leases {
    /// Begins the leases of new proposals, and forgets those that are over.
    pub(super) fn sync(&mut self, session: &Session, now: Timestamp) {
        let ends = now.plus_seconds(LEASE_SECONDS);
        let mut known = std::mem::take(&mut self.0);
        for id in session.leased_proposals() {
            let earlier = known.remove(id);
            self.0.insert(id.clone(), earlier.unwrap_or(ends));
        }
    }

    fn renew(&mut self, id: &MessageId, now: Timestamp) {
        if let Some(ends) = self.0.get_mut(id) {
            *ends = now.plus_seconds(LEASE_SECONDS);
        }
    }

    /// When the next lease ends.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.0.values().min().copied()
    }

    fn take_ended(&mut self, now: Timestamp) -> Vec<MessageId> {
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
            let now = pvp_clock::now();
            for id in renewed {
                self.leases.renew(id, now);
            }
        }
    }

    /// Renews the lease of a proposal that a request waits for.
    pub(super) fn renew_lease(&mut self, id: &MessageId) {
        self.leases.renew(id, pvp_clock::now());
    }

    /// Ends the proposals whose leases have ended.
    pub(super) fn end_leases(&mut self, batch: &mut WriteBatch) {
        for proposal in self.leases.take_ended(pvp_clock::now()) {
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
