//! What was said and is not answered yet: kept in order, and said again after a reconnect.

use std::collections::{BTreeMap, VecDeque};

use pvp_protocol::MessageId;

/// Messages under way at a time; the server reads no more of one connection.
pub(crate) const WINDOW: usize = 64;

/// What losing the connection means for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Nobody answers it.
    Silent,
    /// What someone is doing just now; not worth saying later.
    Passing,
    /// Said again on the next connection.
    Lasting,
    /// The same, and once it is accepted there is no next connection.
    Farewell,
}

impl Weight {
    /// The weight of a type of message.
    pub(crate) fn of(kind: &str) -> Self {
        match kind {
            "heartbeat.pong" => Weight::Silent,
            "prompt.draft" | "presence.update" | "heartbeat.ping" | "output.read" => {
                Weight::Passing
            }
            "session.leave" => Weight::Farewell,
            _ => Weight::Lasting,
        }
    }
}

/// One message on its way.
#[derive(Debug)]
pub(crate) struct Outgoing<R> {
    pub(crate) id: MessageId,
    pub(crate) text: String,
    pub(crate) weight: Weight,
    /// Who waits for the answer.
    pub(crate) reply: R,
}

/// Messages waiting to be sent, and those sent and not answered.
///
/// A message is repeated under the same id, which the server applies once.
#[derive(Debug)]
pub(crate) struct Outbox<R> {
    waiting: VecDeque<Outgoing<R>>,
    sent: BTreeMap<u64, Outgoing<R>>,
    next: u64,
}

impl<R> Default for Outbox<R> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            sent: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<R> Outbox<R> {
    pub(crate) fn push(&mut self, outgoing: Outgoing<R>) {
        self.waiting.push_back(outgoing);
    }

    /// The text to send next, if the window has room, and the message if nobody answers it.
    pub(crate) fn next(&mut self) -> Option<(String, Option<Outgoing<R>>)> {
        if self.sent.len() >= WINDOW {
            return None;
        }
        let outgoing = self.waiting.pop_front()?;
        let text = outgoing.text.clone();
        if outgoing.weight == Weight::Silent {
            return Some((text, Some(outgoing)));
        }
        self.sent.insert(self.next, outgoing);
        self.next += 1;
        Some((text, None))
    }

    /// The message that this answer is for.
    pub(crate) fn answered(&mut self, id: &MessageId) -> Option<Outgoing<R>> {
        let number = self
            .sent
            .iter()
            .find(|(_, outgoing)| outgoing.id == *id)
            .map(|(number, _)| *number)?;
        self.sent.remove(&number)
    }

    /// The connection is gone: what was under way goes first on the next one. Gives back what is
    /// not worth saying late.
    pub(crate) fn reconnect(&mut self) -> Vec<Outgoing<R>> {
        let sent = std::mem::take(&mut self.sent).into_values();
        let waiting = std::mem::take(&mut self.waiting);
        let (lasting, passed) = sent
            .chain(waiting)
            .partition(|outgoing| match outgoing.weight {
                Weight::Lasting | Weight::Farewell => true,
                Weight::Passing | Weight::Silent => false,
            });
        let lasting: Vec<_> = lasting;
        self.waiting = lasting.into();
        passed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    /// Everything that will not be answered any more.
    pub(crate) fn give_up(&mut self) -> Vec<Outgoing<R>> {
        let sent = std::mem::take(&mut self.sent).into_values();
        sent.chain(std::mem::take(&mut self.waiting)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: usize, weight: Weight) -> Outgoing<()> {
        let id = MessageId::parse(&format!("m{number}")).unwrap();
        Outgoing {
            text: id.to_string(),
            id,
            weight,
            reply: (),
        }
    }

    #[test]
    fn only_a_window_is_under_way_and_answers_make_room() {
        let mut outbox = Outbox::default();
        (0..WINDOW + 2).for_each(|number| outbox.push(message(number, Weight::Lasting)));
        let sent: Vec<_> = std::iter::from_fn(|| outbox.next()).collect();
        assert_eq!(sent.len(), WINDOW);
        let first = MessageId::parse("m0").unwrap();
        assert_eq!(outbox.answered(&first).unwrap().id, first);
        assert!(outbox.answered(&first).is_none());
        assert_eq!(outbox.next().unwrap().0, format!("m{WINDOW}"));
        assert!(outbox.next().is_none());
    }

    #[test]
    fn after_a_reconnect_what_lasts_is_said_again_in_order() {
        let mut outbox = Outbox::default();
        for (number, kind) in [
            "tool.output",
            "prompt.draft",
            "gate.approve",
            "session.leave",
        ]
        .into_iter()
        .enumerate()
        {
            outbox.push(message(number, Weight::of(kind)));
        }
        outbox.next();
        outbox.next();
        outbox.next();
        outbox.answered(&MessageId::parse("m2").unwrap());
        let passed: Vec<_> = outbox.reconnect().into_iter().map(|one| one.text).collect();
        assert_eq!(passed, ["m1"]);
        let again: Vec<_> = std::iter::from_fn(|| Some(outbox.next()?.0)).collect();
        assert_eq!(again, ["m0", "m3"]);
        assert!(!outbox.is_empty());
        assert_eq!(outbox.give_up().len(), 2);
        assert!(outbox.is_empty());
    }
}
