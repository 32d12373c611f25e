//! When tokens were last used: kept in memory, and written at most once a minute for each.

use std::collections::HashMap;

use parking_lot::Mutex;
use pvp_protocol::Timestamp;

/// How long after a token's use was written it is not written again, in milliseconds.
const WRITE_INTERVAL_MS: u64 = 60_000;

/// Tokens that are kept in memory; more than are in use within a minute.
const MAX_TOKENS: usize = 10_000;

/// The last uses of tokens, by the token's id.
#[derive(Default)]
pub(crate) struct TokenUses(Mutex<HashMap<String, LastUse>>);

#[derive(Clone, Copy)]
struct LastUse {
    at: Timestamp,
    /// The use that was written last.
    written: Option<Timestamp>,
}

impl TokenUses {
    /// Notes that a valid token was used.
    pub(crate) fn record(&self, id: &str, now: Timestamp) {
        let mut uses = self.0.lock();
        if let Some(known) = uses.get_mut(id) {
            known.at = now.max(known.at);
        } else if uses.len() < MAX_TOKENS {
            let (at, written) = (now, None);
            uses.insert(id.to_owned(), LastUse { at, written });
        }
    }

    /// When a token was last used, if that is known here.
    pub(crate) fn find(&self, id: &str) -> Option<Timestamp> {
        self.0.lock().get(id).map(|known| known.at)
    }

    /// The uses that are to be written, and forgets tokens that were not used for a while.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<(String, Timestamp)> {
        let is_recent = |written: Option<Timestamp>| {
            written.is_some_and(|at| now.millis_since(at) < WRITE_INTERVAL_MS)
        };
        let mut uses = self.0.lock();
        uses.retain(|_, known| known.written != Some(known.at) || is_recent(known.written));
        let due = uses.iter().filter(|(_, known)| !is_recent(known.written));
        due.map(|(id, known)| (id.clone(), known.at)).collect()
    }

    /// All uses that are not written.
    pub(crate) fn unwritten(&self) -> Vec<(String, Timestamp)> {
        let uses = self.0.lock();
        let unwritten = uses
            .iter()
            .filter(|(_, known)| known.written != Some(known.at));
        unwritten
            .map(|(id, known)| (id.clone(), known.at))
            .collect()
    }

    /// Notes that uses were written.
    pub(crate) fn record_written(&self, written: &[(String, Timestamp)]) {
        let mut uses = self.0.lock();
        for (id, at) in written {
            if let Some(known) = uses.get_mut(id) {
                known.written = Some(*at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + seconds * 1000)
    }

    #[test]
    fn a_use_is_written_soon_and_then_once_a_minute() {
        let uses = TokenUses::default();
        uses.record("a", at(0));
        let first = uses.due(at(0));
        assert_eq!(first, [("a".to_owned(), at(0))]);
        assert_eq!(uses.due(at(1)), first, "it is due until it was written");
        uses.record_written(&first);
        for second in 1..60 {
            uses.record("a", at(second));
            assert_eq!(uses.due(at(second)), []);
        }
        assert_eq!(uses.find("a"), Some(at(59)));
        assert_eq!(uses.unwritten(), [("a".to_owned(), at(59))]);
        let second = uses.due(at(60));
        assert_eq!(second, [("a".to_owned(), at(59))]);
        uses.record_written(&second);
        assert_eq!(uses.unwritten(), []);
        assert_eq!(uses.due(at(200)), []);
        assert_eq!(uses.find("a"), None, "it is forgotten");
    }

    #[test]
    fn only_so_many_tokens_are_kept() {
        let uses = TokenUses::default();
        for number in 0..2 * MAX_TOKENS {
            uses.record(&number.to_string(), at(1));
        }
        assert_eq!(uses.due(at(1)).len(), MAX_TOKENS);
    }
}
