//! The order in which one person is told of what is due, if there is not room for all of it. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pvp_protocol::SessionId;

/// How much of a hurry something is in; the greatest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hurry {
    Usual,
    Destructive,
    Closing,
    Escalated,
}

/// Sorts what is due so that sessions take turns, those first of which the least was told of late, and
/// within a session what is most urgent comes first.
pub(crate) fn sort_fairly<T>(
    due: Vec<T>,
    describe: impl Fn(&T) -> (SessionId, Hurry),
    told_of_late: impl Fn(&SessionId) -> u64,
) -> Vec<T> {
    let mut by_session: BTreeMap<SessionId, Vec<(Hurry, T)>> = BTreeMap::new();
    for due in due {
        let (session, hurry) = describe(&due);
        by_session.entry(session).or_default().push((hurry, due));
    }
    let mut turns = Vec::new();
    for (session, mut due) in by_session {
        due.sort_by_key(|(hurry, _)| Reverse(*hurry));
        let first_turn = told_of_late(&session);
        turns.extend((first_turn..).zip(due));
    }
    turns.sort_by_key(|(turn, (hurry, _))| (*turn, Reverse(*hurry)));
    turns.into_iter().map(|(_, (_, due))| due).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Hurry::{Closing, Destructive, Escalated, Usual};

    fn sorted(due: &[(&'static str, Hurry)], told: &[(&str, u64)]) -> Vec<(&'static str, Hurry)> {
        let describe =
            |(name, hurry): &(&'static str, Hurry)| (SessionId::parse(name).unwrap(), *hurry);
        sort_fairly(due.to_vec(), describe, |session| {
            let found = told.iter().find(|(name, _)| *name == session.as_str());
            found.map_or(0, |(_, count)| *count)
        })
    }

    #[test]
    fn within_a_session_the_most_urgent_comes_first() {
        let due = [
            ("a", Usual),
            ("a", Destructive),
            ("a", Escalated),
            ("a", Closing),
        ];
        let expected = [
            ("a", Escalated),
            ("a", Closing),
            ("a", Destructive),
            ("a", Usual),
        ];
        assert_eq!(sorted(&due, &[]), expected);
    }

    #[test]
    fn sessions_take_turns_whatever_their_names_and_however_urgent_they_say_they_are() {
        let due = [
            ("a", Destructive),
            ("a", Destructive),
            ("a", Destructive),
            ("z", Usual),
            ("z", Usual),
        ];
        let expected = [
            ("a", Destructive),
            ("z", Usual),
            ("a", Destructive),
            ("z", Usual),
            ("a", Destructive),
        ];
        assert_eq!(sorted(&due, &[]), expected);
    }

    #[test]
    fn a_session_of_which_much_was_told_comes_behind_the_others() {
        let due = [("a", Escalated), ("b", Usual), ("b", Usual)];
        let expected = [("b", Usual), ("b", Usual), ("a", Escalated)];
        assert_eq!(sorted(&due, &[("a", 2)]), expected);
    }
}
