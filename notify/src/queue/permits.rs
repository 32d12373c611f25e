//! Permits so many attempts at a time, and shares them between sessions and people.
//!
//! A permit that is given back goes to the session that has the fewest, and there to the person who has
//! the fewest: whoever has many slow receivers waits for themselves.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use pvp_protocol::SessionId;
use tokio::sync::oneshot;

use super::waiting::count_down;

/// How many attempts are made at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitLimits {
    pub in_total: usize,
    /// About gates of one session.
    pub per_session: usize,
    /// To one person.
    pub per_person: usize,
}

pub(super) struct FairPermits {
    limits: PermitLimits,
    state: Mutex<PermitState>,
}

#[derive(Default)]
struct PermitState {
    in_use: usize,
    by_session: BTreeMap<SessionId, usize>,
    by_person: BTreeMap<String, usize>,
    /// Who waits, for each session and person.
    waiting: BTreeMap<SessionId, BTreeMap<String, VecDeque<oneshot::Sender<Permit>>>>,
}

/// A permit for one attempt; it is given back when it is dropped.
pub(super) struct Permit {
    permits: Arc<FairPermits>,
    session: SessionId,
    person: String,
}

impl FairPermits {
    pub(super) fn new(limits: PermitLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            state: Mutex::default(),
        })
    }

    /// A permit, when it is this one's turn.
    pub(super) async fn acquire(self: &Arc<Self>, session: &SessionId, person: &str) -> Permit {
        let (sender, permit) = oneshot::channel();
        {
            let mut state = self.state.lock();
            let people = state.waiting.entry(session.clone()).or_default();
            people
                .entry(person.to_owned())
                .or_default()
                .push_back(sender);
        }
        self.hand_out();
        permit
            .await
            .expect("whoever waits is in the list until it has a permit")
    }

    /// Gives what is free to those whose turn it is.
    fn hand_out(self: &Arc<Self>) {
        loop {
            let next = self.state.lock().take_next(&self.limits);
            let Some((session, person, sender)) = next else {
                return;
            };
            let permit = Permit {
                permits: self.clone(),
                session,
                person,
            };
            // One that nobody waits for any more is given back at once.
            drop(sender.send(permit));
        }
    }
}

impl PermitState {
    /// Takes whoever is next from the list, and counts their permit.
    fn take_next(
        &mut self,
        limits: &PermitLimits,
    ) -> Option<(SessionId, String, oneshot::Sender<Permit>)> {
        if self.in_use >= limits.in_total {
            return None;
        }
        loop {
            let (session, person) = self.whose_turn_it_is(limits)?;
            let sender = self.take_waiting(&session, &person)?;
            // When the server stops, thousands may have given up at once.
            if sender.is_closed() {
                continue;
            }
            self.in_use += 1;
            *self.by_session.entry(session.clone()).or_default() += 1;
            *self.by_person.entry(person.clone()).or_default() += 1;
            return Some((session, person, sender));
        }
    }

    /// The session that uses the fewest, and of those who wait there the person who uses the fewest.
    fn whose_turn_it_is(&self, limits: &PermitLimits) -> Option<(SessionId, String)> {
        let used_by = |person: &String| self.by_person.get(person).copied().unwrap_or(0);
        let sessions = self.waiting.iter().filter_map(|(session, people)| {
            let used = self.by_session.get(session).copied().unwrap_or(0);
            let people = people.keys().map(|person| (used_by(person), person));
            let (used_by, person) = people.min()?;
            let may = used < limits.per_session && used_by < limits.per_person;
            may.then_some((used, used_by, session, person))
        });
        let (_, _, session, person) = sessions.min()?;
        Some((session.clone(), person.clone()))
    }

    /// Takes whoever has waited longest for a person out of the list.
    fn take_waiting(
        &mut self,
        session: &SessionId,
        person: &String,
    ) -> Option<oneshot::Sender<Permit>> {
        let people = self.waiting.get_mut(session)?;
        let waiting = people.get_mut(person)?;
        let sender = waiting.pop_front()?;
        if waiting.is_empty() {
            people.remove(person);
        }
        if people.is_empty() {
            self.waiting.remove(session);
        }
        Some(sender)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.permits.state.lock();
        state.in_use -= 1;
        count_down(&mut state.by_session, &self.session);
        count_down(&mut state.by_person, &self.person);
        drop(state);
        self.permits.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn however_many_have_given_up_waiting_whoever_is_left_is_next() {
        let limits = PermitLimits {
            in_total: 1,
            per_session: 1,
            per_person: 1,
        };
        let (permits, session) = (FairPermits::new(limits), SessionId::parse("owl").unwrap());
        let permit = permits.acquire(&session, "ann").await;
        for _ in 0..100_000 {
            let mut waiting = Box::pin(permits.acquire(&session, "ann"));
            assert!((&mut waiting).now_or_never().is_none());
        }
        let mut left = Box::pin(permits.acquire(&session, "ann"));
        assert!((&mut left).now_or_never().is_none());
        drop(permit);
        assert!(left.now_or_never().is_some());
    }
}
