//! The participants of a session as those who join receive them, encoded once and shared.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use pvp_protocol::payload::{Announce, Participant, PresenceStatus, SessionWelcome};
use pvp_protocol::{
    ExtraFields, MessageId, ParticipantId, ParticipantKind, Sender, SessionId, Transport,
};
use pvp_session::Session;

use crate::envelope;
use crate::socket::{text_frame, text_frame_of_parts};
use crate::task::PresenceMap;

/// Everyone in a session, each encoded when they change and not when others join.
#[derive(Default)]
pub(crate) struct Roster {
    members: BTreeMap<ParticipantId, EncodedMember>,
    /// Those who changed since they were encoded; `None` if nobody is encoded.
    changed: Option<BTreeSet<ParticipantId>>,
    /// Everyone, for those who join; `None` after a change.
    shared: Option<SharedRoster>,
    /// How many parts were encoded, for tests.
    #[cfg(test)]
    pub(crate) encodings: usize,
}

struct EncodedMember {
    /// The member as the welcome lists them.
    person: Vec<u8>,
    /// Their announcement as a frame.
    announcement: Bytes,
}

struct SharedRoster {
    people: Bytes,
    announcements: Arc<Announcements>,
}

/// The announcements of everyone, as frames.
struct Announcements {
    each: Vec<Bytes>,
    /// All of them one after the other, from when the first joiner needs them.
    joined: OnceLock<Bytes>,
}

impl Announcements {
    fn joined(&self) -> &Bytes {
        self.joined.get_or_init(|| self.each.concat().into())
    }
}

/// What one joiner receives about everyone.
pub(crate) struct RosterForJoiner {
    /// The elements of the welcome's `people`, separated by commas.
    pub(crate) people: Bytes,
    announcements: Arc<Announcements>,
    /// Where the joiner's own announcement is.
    own: Range<usize>,
}

impl Roster {
    /// Notes that a member joined, left, or changed their announcement or roles.
    pub(crate) fn member_changed(&mut self, participant: &ParticipantId) {
        self.members.remove(participant);
        self.presence_changed(participant);
    }

    /// Notes that a member's presence changed, which leaves their announcement as it was.
    pub(crate) fn presence_changed(&mut self, participant: &ParticipantId) {
        self.shared = None;
        if let Some(changed) = &mut self.changed {
            changed.insert(participant.clone());
        }
    }

    /// Frees everything; it is encoded again when somebody joins.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            #[cfg(test)]
            encodings: self.encodings,
            ..Self::default()
        };
    }

    /// The roster for someone who has joined.
    pub(crate) fn for_joiner(
        &mut self,
        joiner: &ParticipantId,
        session: &Session,
        presence: &PresenceMap,
    ) -> RosterForJoiner {
        self.encode_changed(session, presence);
        let members = &self.members;
        let shared = self.shared.get_or_insert_with(|| share(members));
        let length = |member: &EncodedMember| member.announcement.len();
        let earlier = members.range(..joiner).map(|(_, other)| length(other));
        let start: usize = earlier.sum();
        RosterForJoiner {
            people: shared.people.clone(),
            announcements: shared.announcements.clone(),
            own: start..start + members.get(joiner).map_or(0, length),
        }
    }

    fn encode_changed(&mut self, session: &Session, presence: &PresenceMap) {
        let everyone = || session.members().map(|(id, _)| id.clone()).collect();
        let changed = self.changed.replace(BTreeSet::new());
        for id in changed.unwrap_or_else(everyone) {
            let Some(member) = session.member(&id).filter(|member| !member.left) else {
                self.members.remove(&id);
                continue;
            };
            let earlier = self
                .members
                .get(&id)
                .map(|encoded| encoded.announcement.clone());
            let status = presence.get(&id).copied();
            let encoded = EncodedMember {
                person: encode_person(&member.announce, status),
                // Whoever was told to be gone is not announced to those who come.
                announcement: match member.connection_lost {
                    true => Bytes::new(),
                    false => earlier
                        .unwrap_or_else(|| announcement_frame(session.id(), &member.announce)),
                },
            };
            self.members.insert(id, encoded);
            #[cfg(test)]
            {
                self.encodings += 1;
            }
        }
    }
}

fn encode_person(announce: &Announce, status: Option<PresenceStatus>) -> Vec<u8> {
    let person = Participant {
        announce: announce.clone(),
        presence: status.unwrap_or(PresenceStatus::Disconnected),
    };
    serde_json::to_vec(&person).expect("a participant is plain data")
}

fn announcement_frame(session: &SessionId, announce: &Announce) -> Bytes {
    let sender = Sender::Participant(announce.id.clone());
    text_frame(&envelope::ephemeral_from(
        session,
        sender,
        None,
        announce.clone(),
    ))
}

fn share(members: &BTreeMap<ParticipantId, EncodedMember>) -> SharedRoster {
    let size = members.values().map(|member| member.person.len() + 1).sum();
    let mut people = BytesMut::with_capacity(size);
    for member in members.values() {
        if !people.is_empty() {
            people.put_u8(b',');
        }
        people.put_slice(&member.person);
    }
    let each = members.values().map(|member| member.announcement.clone());
    SharedRoster {
        people: people.freeze(),
        announcements: Arc::new(Announcements {
            each: each.collect(),
            joined: OnceLock::new(),
        }),
    }
}

impl RosterForJoiner {
    /// The announcements of everyone but the joiner, as whole frames.
    pub(crate) fn other_announcements(&self) -> [Bytes; 2] {
        let all = self.announcements.joined();
        [all.slice(..self.own.start), all.slice(self.own.end..)]
    }

    /// The frame of a welcome, with everyone as its people.
    pub(crate) fn welcome_frame(
        &self,
        session: &SessionId,
        join: &MessageId,
        mut welcome: SessionWelcome,
    ) -> Bytes {
        // Nobody can guess the placeholder's id, so that it marks the place where people belong.
        let placeholder = placeholder(&pvp_clock::fresh_id());
        let marker = encode_person(&placeholder.announce, Some(placeholder.presence));
        welcome.people = vec![placeholder];
        let text = envelope::ephemeral(session, Some(join.clone()), welcome);
        let at = text
            .windows(marker.len())
            .position(|part| part == marker)
            .expect("the placeholder is in the welcome");
        let (before, after) = (&text[..at], &text[at + marker.len()..]);
        text_frame_of_parts(&[before, &self.people, after])
    }
}

fn placeholder(id: &MessageId) -> Participant {
    Participant {
        announce: Announce {
            id: ParticipantId::parse(id.as_str()).expect("ids of all kinds look alike"),
            name: String::new(),
            kind: ParticipantKind::Human,
            roles: Vec::new(),
            capabilities: None,
            transport: Transport::Websocket,
            metadata: None,
            executor: None,
            invited_by: None,
            invited_before_session: None,
            extra: ExtraFields::new(),
        },
        presence: PresenceStatus::Disconnected,
    }
}
