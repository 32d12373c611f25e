//! Messages that the server has not answered yet, kept in order and resent after a reconnect.

use std::collections::{BTreeMap, VecDeque};

use pvp_protocol::MessageId;

/// Messages that may be sent but unanswered at a time; the server does not read further ahead on
/// one connection.
pub(crate) const MAX_IN_FLIGHT: usize = 64;

/// What happens to a message when the connection is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResendPolicy {
    /// The server does not answer it, so it is done once sent.
    NoReply,
    /// It describes a passing state and is useless later, so it is dropped.
    DropOnDisconnect,
    /// It is sent again on the next socket.
    Resend,
    /// It is sent again on the next socket, and once it is accepted the connection closes.
    ResendThenClose,
}

impl ResendPolicy {
    /// The policy for a message type.
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

/// One message to send.
#[derive(Debug)]
pub(crate) struct OutgoingMessage<R> {
    pub(crate) id: MessageId,
    pub(crate) text: String,
    pub(crate) resend_policy: ResendPolicy,
    /// Receives the server's answer.
    pub(crate) ack_sender: R,
}

/// Messages waiting to be sent, and messages sent but not answered.
///
/// A message is resent with the same id, which the server applies only once.
#[derive(Debug)]
pub(crate) struct Outbox<R> {
    /// Not sent on the current socket, oldest first.
    unsent: VecDeque<OutgoingMessage<R>>,
    /// Sent and not answered, by the order of sending.
    in_flight: BTreeMap<u64, OutgoingMessage<R>>,
    /// The key of the next message in `in_flight`.
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

    /// The text to send next, or `None` if there is none or too many messages are in flight. A
    /// message that the server does not answer is returned with its text.
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

    /// Removes and returns the message that an answer is for.
    pub(crate) fn acknowledge(&mut self, id: &MessageId) -> Option<OutgoingMessage<R>> {
        let number = self
            .in_flight
            .iter()
            .find(|(_, outgoing)| outgoing.id == *id)
            .map(|(number, _)| *number)?;
        self.in_flight.remove(&number)
    }

    /// Prepares for the next socket after the connection was lost: messages in flight are sent
    /// again first. Returns the messages that are dropped instead.
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

    /// Removes and returns all messages, because none will be answered any more.
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
        let resent: Vec<_> = std::iter::from_fn(|| Some(outbox.next_to_send()?.0)).collect();
        assert_eq!(resent, ["m0", "m3"]);
        assert!(!outbox.is_empty());
        assert_eq!(outbox.drain().len(), 2);
        assert!(outbox.is_empty());
    }
}
