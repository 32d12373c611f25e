//! How many notifications one person gets in a while.

use std::collections::BTreeMap;

use pvp_protocol::{ParticipantId, Timestamp};

/// A rate: so many at once, and then one after so many milliseconds each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) burst: u64,
    pub(crate) millis_each: u64,
}

/// When each person, or each of whatever is counted, may be sent something.
#[derive(Debug)]
pub(crate) struct RateLimit<K = ParticipantId> {
    rate: Rate,
    /// Until when what was sent counts, for those to whom something was sent of late.
    busy_until: BTreeMap<K, Timestamp>,
}

impl<K: Ord + Clone> RateLimit<K> {
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            rate,
            busy_until: BTreeMap::new(),
        }
    }

    /// Counts one more; otherwise says when there is room for it.
    pub(crate) fn take(&mut self, key: &K, now: Timestamp) -> Result<(), Timestamp> {
        match self.room_at(key, now) {
            Some(at) => Err(at),
            None => {
                self.count(key, now);
                Ok(())
            }
        }
    }

    /// When there is room for one more; `None` if there is.
    pub(crate) fn room_at(&self, key: &K, now: Timestamp) -> Option<Timestamp> {
        let Rate { burst, millis_each } = self.rate;
        let busy = self.busy_millis(key, now) + millis_each;
        let allowed = burst * millis_each;
        (busy > allowed).then(|| now.plus_millis(busy - allowed))
    }

    /// Counts one more.
    pub(crate) fn count(&mut self, key: &K, now: Timestamp) {
        self.busy_until.retain(|_, until| *until > now);
        let busy = self.busy_millis(key, now) + self.rate.millis_each;
        self.busy_until.insert(key.clone(), now.plus_millis(busy));
    }

    /// How many still count.
    pub(crate) fn used(&self, key: &K, now: Timestamp) -> u64 {
        self.busy_millis(key, now).div_ceil(self.rate.millis_each)
    }

    fn busy_millis(&self, key: &K, now: Timestamp) -> u64 {
        let until = self.busy_until.get(key);
        until.map_or(0, |until| until.millis_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_may_come_at_once_and_then_one_after_the_other() {
        let at = |millis: u64| Timestamp::from_millis(1_000_000 + millis);
        let (ann, bob) = (
            ParticipantId::parse("ann").unwrap(),
            ParticipantId::parse("bob").unwrap(),
        );
        let mut limit = RateLimit::new(Rate {
            burst: 3,
            millis_each: 1000,
        });
        for _ in 0..3 {
            assert_eq!(limit.take(&ann, at(0)), Ok(()));
        }
        assert_eq!(limit.used(&ann, at(0)), 3);
        assert_eq!(limit.take(&ann, at(0)), Err(at(1000)));
        assert_eq!(limit.take(&ann, at(400)), Err(at(1000)));
        assert_eq!(limit.take(&bob, at(400)), Ok(()), "another person");
        assert_eq!(limit.take(&ann, at(1000)), Ok(()));
        assert_eq!(limit.take(&ann, at(1000)), Err(at(2000)));
        for _ in 0..3 {
            assert_eq!(limit.take(&ann, at(60_000)), Ok(()));
        }
        assert_eq!(limit.busy_until.len(), 1, "who is quiet is forgotten");
    }
}
