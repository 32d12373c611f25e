//! Remembers recent messages, so that a repeated one is acknowledged but not applied again.

use std::collections::{BTreeMap, VecDeque};

use pvp_protocol::{Digest, MessageId};

/// How many of a session's latest messages are remembered.
pub(crate) const MAX_RECENT_MESSAGES: usize = 8192;

/// The ids of recent entries, with the digests of their messages and their sequence numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RecentMessages {
    order: VecDeque<MessageId>,
    by_id: BTreeMap<MessageId, (Option<Digest>, u64)>,
}

/// What is known about a message id.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MessageIdStatus {
    New,
    /// The same message was applied with this sequence number.
    Duplicate(u64),
    /// Another message has this id.
    Conflict,
}

impl RecentMessages {
    pub(crate) fn status(&self, id: &MessageId, digest: &Digest) -> MessageIdStatus {
        match self.by_id.get(id) {
            None => MessageIdStatus::New,
            Some((Some(known), seq)) if known == digest => MessageIdStatus::Duplicate(*seq),
            Some(_) => MessageIdStatus::Conflict,
        }
    }

    pub(crate) fn contains(&self, id: &MessageId) -> bool {
        self.by_id.contains_key(id)
    }

    pub(crate) fn record(&mut self, id: MessageId, origin: Option<Digest>, seq: u64) {
        self.by_id.insert(id.clone(), (origin, seq));
        self.order.push_back(id);
        if self.order.len() > MAX_RECENT_MESSAGES
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_id.remove(&oldest);
        }
    }
}
