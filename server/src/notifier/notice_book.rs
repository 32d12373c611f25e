//! What was told, so that nobody is told twice.

use std::collections::{BTreeMap, BTreeSet};

use pvp_protocol::api::{GateNotification, NotificationEvent};
use pvp_protocol::{Digest, MessageId, SessionId};

use crate::store::{Hash, NoticeRow};

/// A gate, by its session and its own id.
pub(crate) type GateName = (SessionId, MessageId);

/// Something that may be told over one channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Telling {
    /// The channel's id.
    pub(crate) channel: String,
    /// The session of the gate.
    pub(crate) session: SessionId,
    /// The gate's id.
    pub(crate) gate: MessageId,
    /// The digest of the action that is voted on: an edit is told again.
    pub(crate) digest: Digest,
    /// What happened.
    pub(crate) event: NotificationEvent,
    /// Whether the gate has been escalated, which gives it a deadline of its own.
    pub(crate) escalated: bool,
}

impl Telling {
    /// The same for the same thing, also after a restart.
    pub(crate) fn key(&self) -> Hash {
        let phase: &[u8] = if self.escalated {
            b"escalated"
        } else {
            b"open"
        };
        let parts = [
            self.channel.as_bytes(),
            self.session.as_str().as_bytes(),
            self.gate.as_str().as_bytes(),
            self.digest.as_bytes(),
            self.event.as_str().as_bytes(),
            phase,
        ];
        *Digest::of(&parts).as_bytes()
    }

    pub(crate) fn gate_name(&self) -> GateName {
        (self.session.clone(), self.gate.clone())
    }
}

/// What was told about the gates that were open when somebody last looked.
#[derive(Default)]
pub(crate) struct NoticeBook {
    gates: BTreeMap<GateName, GateNotices>,
    /// What is on its way.
    in_flight: BTreeSet<Hash>,
}

#[derive(Default)]
struct GateNotices {
    told: BTreeSet<Hash>,
    /// Whether vote links to it may be stored.
    has_links: bool,
    channels: BTreeSet<String>,
    /// The last that was told, without the command; `None` if that was before a restart.
    last: Option<GateNotification>,
}

/// A gate that is closed, and what was told about it.
pub(crate) struct ClosedGate {
    pub(crate) gate: MessageId,
    /// The last that was told; `None` if that was before a restart, or nothing.
    pub(crate) last: Option<GateNotification>,
    /// The channels that it was told over.
    pub(crate) channels: BTreeSet<String>,
}

impl NoticeBook {
    /// Notes what an earlier run of the server has told.
    pub(crate) fn restore(&mut self, notice: NoticeRow) {
        let gate = self.gates.entry((notice.session, notice.gate)).or_default();
        gate.told.insert(notice.key);
        gate.channels.insert(notice.channel);
    }

    /// Notes a gate that is open, so that it is missed when it is closed.
    pub(crate) fn observe(&mut self, session: &SessionId, gate: &MessageId) {
        self.gates
            .entry((session.clone(), gate.clone()))
            .or_default();
    }

    /// Begins to tell something; false if it was told before or is on its way.
    pub(crate) fn begin(&mut self, telling: &Telling) -> bool {
        let key = telling.key();
        let gate = self.gates.get(&telling.gate_name());
        let is_told = gate.is_some_and(|gate| gate.told.contains(&key));
        !is_told && self.in_flight.insert(key)
    }

    /// Whether something was not told and is not on its way.
    pub(crate) fn is_untold(&self, telling: &Telling) -> bool {
        let key = telling.key();
        let gate = self.gates.get(&telling.gate_name());
        !gate.is_some_and(|gate| gate.told.contains(&key)) && !self.in_flight.contains(&key)
    }

    /// A vote link to the gate is about to be stored.
    pub(crate) fn note_link(&mut self, gate: GateName) {
        self.gates.entry(gate).or_default().has_links = true;
    }

    /// It was not told, and may be told later.
    pub(crate) fn abandon(&mut self, telling: &Telling) {
        self.in_flight.remove(&telling.key());
    }

    /// It was told, or given up.
    pub(crate) fn complete(&mut self, telling: &Telling, last: Option<GateNotification>) {
        let key = telling.key();
        self.in_flight.remove(&key);
        let gate = self.gates.entry(telling.gate_name()).or_default();
        gate.told.insert(key);
        if let Some(last) = last {
            gate.channels.insert(telling.channel.clone());
            gate.last = Some(GateNotification {
                command: None,
                ..last
            });
        }
    }

    /// The sessions with gates that were open.
    pub(crate) fn sessions(&self) -> BTreeSet<SessionId> {
        let sessions = self.gates.keys();
        sessions.map(|(session, _)| session.clone()).collect()
    }

    /// Forgets the gates of a session that are not among the open ones. Returns those that something
    /// is stored about.
    pub(crate) fn forget_closed(
        &mut self,
        session: &SessionId,
        open: &BTreeSet<MessageId>,
    ) -> Vec<ClosedGate> {
        let is_closed = |(of, gate): &&GateName| of == session && !open.contains(gate);
        let closed: Vec<_> = self.gates.keys().filter(is_closed).cloned().collect();
        let forgotten = closed.into_iter().filter_map(|name| {
            let notices = self.gates.remove(&name)?;
            let is_stored = notices.has_links || !notices.told.is_empty();
            is_stored.then_some(ClosedGate {
                gate: name.1,
                last: notices.last,
                channels: notices.channels,
            })
        });
        forgotten.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use NotificationEvent::{Closing, Opened};

    fn telling(channel: &str, event: NotificationEvent) -> Telling {
        Telling {
            channel: channel.to_owned(),
            session: SessionId::parse("owl").unwrap(),
            gate: MessageId::parse("g1").unwrap(),
            digest: Digest::of(&[b"rm"]),
            event,
            escalated: false,
        }
    }

    #[test]
    fn the_same_is_told_once_over_each_channel_and_not_while_it_is_on_its_way() {
        let mut book = NoticeBook::default();
        let opened = telling("a", Opened);
        assert!(book.begin(&opened));
        assert!(!book.begin(&opened), "it is on its way");
        book.abandon(&opened);
        assert!(book.begin(&opened));
        book.complete(&opened, None);
        assert!(!book.begin(&opened), "it was told");
        assert!(book.begin(&telling("b", Opened)), "another channel");
        assert!(book.begin(&telling("a", Closing)), "another event");
        let edited = Telling {
            digest: Digest::of(&[b"ls"]),
            ..telling("a", Opened)
        };
        assert!(book.begin(&edited), "another command");
        let escalated = Telling {
            escalated: true,
            ..telling("a", Closing)
        };
        assert!(book.begin(&escalated), "another deadline");
    }

    #[test]
    fn what_was_told_before_a_restart_is_not_told_again() {
        let opened = telling("a", Opened);
        let mut book = NoticeBook::default();
        book.restore(NoticeRow {
            key: opened.key(),
            session: opened.session.clone(),
            gate: opened.gate.clone(),
            channel: opened.channel.clone(),
            at: Default::default(),
        });
        assert!(!book.begin(&opened));
        assert_eq!(book.sessions().len(), 1);
    }

    #[test]
    fn a_gate_that_is_closed_is_forgotten_with_all_that_was_told_about_it() {
        let mut book = NoticeBook::default();
        let opened = telling("a", Opened);
        book.begin(&opened);
        book.complete(&opened, None);
        let open = BTreeSet::from([opened.gate.clone()]);
        assert!(book.forget_closed(&opened.session, &open).is_empty());
        let other = SessionId::parse("fox").unwrap();
        assert!(book.forget_closed(&other, &BTreeSet::new()).is_empty());
        let forgotten = book.forget_closed(&opened.session, &BTreeSet::new());
        assert_eq!(forgotten.len(), 1);
        assert!(book.sessions().is_empty());
    }

    #[test]
    fn a_gate_that_nothing_is_stored_about_needs_no_deleting() {
        let mut book = NoticeBook::default();
        let opened = telling("a", Opened);
        let none = BTreeSet::new();
        book.observe(&opened.session, &opened.gate);
        assert!(book.forget_closed(&opened.session, &none).is_empty());
        book.observe(&opened.session, &opened.gate);
        book.note_link(opened.gate_name());
        assert_eq!(book.forget_closed(&opened.session, &none).len(), 1);
    }
}
