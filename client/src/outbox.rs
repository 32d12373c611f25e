//! What was said and is not answered yet: kept in order, and said again after a reconnect.

use std::collections::{BTreeMap, VecDeque};

use pvp_protocol::MessageId;

/// Messages under way at a time; the server reads no more of one connection.
pub(crate) const MAX_IN_FLIGHT: usize = 64;

/// What losing the connection means for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResendPolicy {
    /// Nobody answers it.
    NoReply,
    /// What someone is doing just now; not worth saying later.
    DropOnDisconnect,
    /// Said again on the next connection.
    Resend,
    /// The same, and once it is accepted there is no next connection.
    ResendThenClose,
}

impl ResendPolicy {
    /// The weight of a type of message.
    pub(crate) fn for_type(kind: &str) -> Self {
        match kind {
            "heartbeat.pong" => ResendPolicy::NoReply,
            "prompt.draft" | "presence.update" | "heartbeat.ping" | "output.read" => {
                ResendPolicy::DropOnDisconnect
            }
            "session.leave" => ResendPolicy::ResendThenClose,
            _ => ResendPolicy::Resend,
        }
    }
}

/// One message on its way.
#[derive(Debug)]
pub(crate) struct OutgoingMessage<R> {
    pub(crate) id: MessageId,
    pub(crate) text: String,
    pub(crate) resend_policy: ResendPolicy,
    /// Who waits for the answer.
    pub(crate) ack_sender: R,
}

/// Messages waiting to be sent, and those sent and not answered.
///
/// A message is repeated under the same id, which the server applies once.
#[derive(Debug)]
pub(crate) struct Outbox<R> {
    unsent: VecDeque<OutgoingMessage<R>>,
    in_flight: BTreeMap<u64, OutgoingMessage<R>>,
    next_number: u64,
}

impl<R> Default for Outbox<R> {
    fn default() -> Self {
        Self {
            unsent: VecDeque::new(),
            in_flight: BTreeMap::new(),
            next_number: 0,
        }
    }
}

impl<R> Outbox<R> {
    pub(crate) fn push(&mut self, outgoing: OutgoingMessage<R>) {
        self.unsent.push_back(outgoing);
    }

    /// The text to send next, if the window has room, and the message if nobody answers it.
    pub(crate) fn next_to_send(&mut self) -> Option<(String, Option<OutgoingMessage<R>>)> {
        if self.in_flight.len() >= MAX_IN_FLIGHT {
            return None;
        }
        let outgoing = self.unsent.pop_front()?;
        let text = outgoing.text.clone();
        if outgoing.resend_policy == ResendPolicy::NoReply {
            return Some((text, Some(outgoing)));
        }
        self.in_flight.insert(self.next_number, outgoing);
        self.next_number += 1;
        Some((text, None))
    }

    /// The message that this answer is for.
    pub(crate) fn acknowledge(&mut self, id: &MessageId) -> Option<OutgoingMessage<R>> {
        let number = self
            .in_flight
            .iter()
            .find(|(_, outgoing)| outgoing.id == *id)
            .map(|(number, _)| *number)?;
        self.in_flight.remove(&number)
    }

    /// The connection is gone: what was under way goes first on the next one. Gives back what is
    /// not worth saying late.
    pub(crate) fn requeue_for_reconnect(&mut self) -> Vec<OutgoingMessage<R>> {
        let in_flight = std::mem::take(&mut self.in_flight).into_values();
        let unsent = std::mem::take(&mut self.unsent);
        let (resent, dropped) =
            in_flight
                .chain(unsent)
                .partition(|outgoing| match outgoing.resend_policy {
                    ResendPolicy::Resend | ResendPolicy::ResendThenClose => true,
                    ResendPolicy::DropOnDisconnect | ResendPolicy::NoReply => false,
                });
        let resent: Vec<_> = resent;
        self.unsent = resent.into();
        dropped
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.unsent.is_empty() && self.in_flight.is_empty()
    }

    /// Everything that will not be answered any more.
    pub(crate) fn drain(&mut self) -> Vec<OutgoingMessage<R>> {
        let in_flight = std::mem::take(&mut self.in_flight).into_values();
        in_flight.chain(std::mem::take(&mut self.unsent)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: usize, resend_policy: ResendPolicy) -> OutgoingMessage<()> {
        let id = MessageId::parse(&format!("m{number}")).unwrap();
        OutgoingMessage {
            text: id.to_string(),
            id,
            resend_policy,
            ack_sender: (),
        }
    }

    #[test]
    fn only_so_many_messages_are_in_flight_and_replies_make_room() {
        let mut outbox = Outbox::default();
        (0..MAX_IN_FLIGHT + 2)
            .for_each(|number| outbox.push(message(number, ResendPolicy::Resend)));
        let sent: Vec<_> = std::iter::from_fn(|| outbox.next_to_send()).collect();
        assert_eq!(sent.len(), MAX_IN_FLIGHT);
        let first = MessageId::parse("m0").unwrap();
        assert_eq!(outbox.acknowledge(&first).unwrap().id, first);
        assert!(outbox.acknowledge(&first).is_none());
        assert_eq!(
            outbox.next_to_send().unwrap().0,
            format!("m{MAX_IN_FLIGHT}")
        );
        assert!(outbox.next_to_send().is_none());
    }

    #[test]
    fn after_a_reconnect_unacknowledged_messages_are_resent_in_order() {
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
            outbox.push(message(number, ResendPolicy::for_type(kind)));
        }
        outbox.next_to_send();
        outbox.next_to_send();
        outbox.next_to_send();
        outbox.acknowledge(&MessageId::parse("m2").unwrap());
        let dropped: Vec<_> = outbox
            .requeue_for_reconnect()
            .into_iter()
            .map(|one| one.text)
            .collect();
        assert_eq!(dropped, ["m1"]);
        let again: Vec<_> = std::iter::from_fn(|| Some(outbox.next_to_send()?.0)).collect();
        assert_eq!(again, ["m0", "m3"]);
        assert!(!outbox.is_empty());
        assert_eq!(outbox.drain().len(), 2);
        assert!(outbox.is_empty());
    }
}
