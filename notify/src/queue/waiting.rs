//! The deliveries that nobody works on yet, and how many each session and person has.

use std::collections::{BTreeMap, VecDeque};

use pvp_protocol::{MessageId, SessionId};

use super::{DeliveryAddress, QueuedDelivery};

pub(super) struct WaitingDelivery {
    pub(super) address: DeliveryAddress,
    pub(super) attempts: u32,
    pub(super) delivery: Box<dyn QueuedDelivery>,
}

#[derive(Default)]
pub(super) struct WaitingDeliveries {
    /// Those of each channel that has a worker.
    by_channel: BTreeMap<String, VecDeque<WaitingDelivery>>,
    /// How many each session has.
    by_session: BTreeMap<SessionId, usize>,
    /// How many each person has.
    by_person: BTreeMap<String, usize>,
    total: usize,
}

impl WaitingDeliveries {
    pub(super) fn total(&self) -> usize {
        self.total
    }

    pub(super) fn of_channel(&self, channel: &str) -> usize {
        self.by_channel.get(channel).map_or(0, VecDeque::len)
    }

    pub(super) fn of_person(&self, person: &str) -> usize {
        self.by_person.get(person).copied().unwrap_or(0)
    }

    pub(super) fn has_worker(&self, channel: &str) -> bool {
        self.by_channel.contains_key(channel)
    }

    pub(super) fn push(&mut self, waiting: WaitingDelivery) {
        let address = &waiting.address;
        *self.by_session.entry(address.session.clone()).or_default() += 1;
        *self.by_person.entry(address.person.clone()).or_default() += 1;
        self.total += 1;
        let channel = self.by_channel.entry(address.channel.clone());
        channel.or_default().push_back(waiting);
    }

    /// Takes out the first of a channel.
    pub(super) fn pop(&mut self, channel: &str) -> Option<WaitingDelivery> {
        let popped = self.by_channel.get_mut(channel)?.pop_front()?;
        self.count_out(&popped.address);
        Some(popped)
    }

    /// Removes a channel, whose worker ends, with all that waits for it.
    pub(super) fn remove_channel(&mut self, channel: &str) {
        for removed in self.by_channel.remove(channel).into_iter().flatten() {
            self.count_out(&removed.address);
        }
    }

    /// Takes out all that is about a gate.
    pub(super) fn remove_gate(
        &mut self,
        session: &SessionId,
        gate: &MessageId,
    ) -> Vec<WaitingDelivery> {
        if !self.by_session.contains_key(session) {
            return Vec::new();
        }
        let is_about_it =
            |it: &WaitingDelivery| it.address.session == *session && it.address.gate == *gate;
        let mut removed = Vec::new();
        for deliveries in self.by_channel.values_mut() {
            if deliveries.iter().any(is_about_it) {
                let all = std::mem::take(deliveries);
                let (about_it, others) = all.into_iter().partition::<Vec<_>, _>(is_about_it);
                deliveries.extend(others);
                removed.extend(about_it);
            }
        }
        for removed in &removed {
            self.count_out(&removed.address);
        }
        removed
    }

    /// Takes out one of the session that has the most, if that is more than this session has.
    pub(super) fn remove_from_fullest(&mut self, newcomer: &SessionId) -> Option<WaitingDelivery> {
        let own = self.by_session.get(newcomer).copied().unwrap_or(0);
        let fullest = self.by_session.iter().max_by_key(|(_, count)| **count);
        let (session, _) = fullest.filter(|(_, count)| **count > own + 1)?;
        let is_of_it = |it: &WaitingDelivery| it.address.session == *session;
        let removed = self.by_channel.values_mut().find_map(|deliveries| {
            let place = deliveries.iter().rposition(is_of_it)?;
            deliveries.remove(place)
        })?;
        self.count_out(&removed.address);
        Some(removed)
    }

    fn count_out(&mut self, address: &DeliveryAddress) {
        self.total -= 1;
        count_down(&mut self.by_session, &address.session);
        count_down(&mut self.by_person, &address.person);
    }
}

/// Counts one less; what nothing is left of is forgotten.
pub(super) fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
