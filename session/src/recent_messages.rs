//! Remembers recent messages, so that a repeated one is acknowledged but not applied again.

use std::fmt;

use data_encoding::BASE64;
use hashbrown::HashTable;
use pvp_protocol::{Digest, MessageId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::short_hash::{read_u64, short_hash, truncate};

/// How many of a session's latest messages are remembered.
pub const MAX_RECENT_MESSAGES: usize = 8192;

/// The size of a remembered message when it is stored, in bytes.
const STORED_BYTES: usize = 16;

/// The largest sequence number that the store can hold.
const MAX_SEQ: u64 = i64::MAX as u64;

/// The last entries of a log: what their ids and messages hash to. About 180 KB when full.
///
/// Of each SHA-256, 64 bits are kept. By chance, one of 8,192 ids has the hash of a fresh id once in
/// 10^15 messages, and the fresh message is then refused as if its id were taken. Who looks for such
/// an id gets only their own message refused: the ids of others are random, and who can guess one
/// can take it without a collision. A message is mistaken for a repeated one only if the hash of its
/// sender and content is the same too; then its own sender has lost it.
#[derive(Clone, Default)]
pub(crate) struct RecentMessages {
    /// The entry with the sequence number `seq` is at `(seq - 1) % MAX_RECENT_MESSAGES`.
    entries: Vec<RecentMessage>,
    /// The sequence number of the last entry; 0 if there is none.
    last_seq: u64,
    /// The positions in `entries`, by the hash of the id.
    positions: HashTable<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RecentMessage {
    id: u64,
    /// Of the client's message; 0 if the entry relays none.
    digest: u64,
}

/// What is known about a message id.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MessageIdStatus {
    New,
    /// The same message was applied with this sequence number.
    Duplicate(u64),
    /// Another message has this id.
    Conflict,
}

impl RecentMessages {
    pub(crate) fn status(&self, id: &MessageId, digest: &Digest) -> MessageIdStatus {
        match self.position(short_hash(id)) {
            None => MessageIdStatus::New,
            Some(position) if self.entries[position].digest == truncate(digest) => {
                MessageIdStatus::Duplicate(self.seq_at(position))
            }
            Some(_) => MessageIdStatus::Conflict,
        }
    }

    pub(crate) fn contains(&self, id: &MessageId) -> bool {
        self.position(short_hash(id)).is_some()
    }

    /// The sequence number of the last entry whose id hashes as this one does.
    pub(crate) fn seq_of(&self, id: &MessageId) -> Option<u64> {
        let position = self.position(short_hash(id))?;
        Some(self.seq_at(position))
    }

    /// Remembers the entry after the last one, and forgets the oldest if there are too many.
    pub(crate) fn record(&mut self, id: &MessageId, origin: Option<Digest>) {
        let message = RecentMessage {
            id: short_hash(id),
            digest: origin.as_ref().map_or(0, truncate),
        };
        self.last_seq += 1;
        let position = position_of(self.last_seq);
        if position == self.entries.len() {
            self.entries.push(message);
        } else {
            self.forget_position(position);
            self.entries[position] = message;
        }
        self.index_position(position);
    }

    fn index_position(&mut self, position: usize) {
        let entries = &self.entries;
        let id = entries[position].id;
        let slot = self.positions.entry(
            id,
            |known| entries[usize::from(*known)].id == id,
            |known| entries[usize::from(*known)].id,
        );
        // An id that is there already counts for its last entry.
        slot.insert(u16::try_from(position).expect("there are fewer positions"));
    }

    fn forget_position(&mut self, position: usize) {
        let found = self
            .positions
            .find_entry(self.entries[position].id, |known| {
                usize::from(*known) == position
            });
        // Not found if a later entry has the same id.
        if let Ok(entry) = found {
            entry.remove();
        }
    }

    fn position(&self, id: u64) -> Option<usize> {
        self.positions
            .find(id, |known| self.entries[usize::from(*known)].id == id)
            .map(|position| usize::from(*position))
    }

    fn seq_at(&self, position: usize) -> u64 {
        let behind =
            (MAX_RECENT_MESSAGES + position_of(self.last_seq) - position) % MAX_RECENT_MESSAGES;
        self.last_seq - behind as u64
    }

    /// How many bytes they take when they are stored.
    pub(crate) fn stored_bytes(&self) -> usize {
        BASE64.encode_len(8 + self.entries.len() * STORED_BYTES)
    }

    /// The remembered entries, oldest first.
    fn oldest_first(&self) -> impl Iterator<Item = RecentMessage> {
        let first = self.last_seq - self.entries.len() as u64 + 1;
        (first..=self.last_seq).map(|seq| self.entries[position_of(seq)])
    }

    /// The sequence number of the last entry, then the hashes of each, oldest first.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + self.entries.len() * STORED_BYTES);
        bytes.extend_from_slice(&self.last_seq.to_le_bytes());
        for message in self.oldest_first() {
            bytes.extend_from_slice(&message.id.to_le_bytes());
            bytes.extend_from_slice(&message.digest.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, &'static str> {
        let (last_seq, stored) = bytes.split_first_chunk().ok_or("no sequence number")?;
        let last_seq = u64::from_le_bytes(*last_seq);
        let (stored, rest) = stored.as_chunks::<STORED_BYTES>();
        if last_seq > MAX_SEQ {
            return Err("an impossible sequence number");
        }
        if !rest.is_empty() || stored.len() as u64 != last_seq.min(MAX_RECENT_MESSAGES as u64) {
            return Err("not as many messages as were remembered");
        }
        let first_seq = last_seq - stored.len() as u64 + 1;
        let mut recent = Self {
            entries: vec![RecentMessage { id: 0, digest: 0 }; stored.len()],
            last_seq,
            positions: HashTable::with_capacity(stored.len()),
        };
        for (seq, message) in (first_seq..).zip(stored) {
            let (id, digest) = message.split_at(STORED_BYTES / 2);
            recent.entries[position_of(seq)] = RecentMessage {
                id: read_u64(id),
                digest: read_u64(digest),
            };
        }
        for seq in first_seq..=last_seq {
            recent.index_position(position_of(seq));
        }
        Ok(recent)
    }
}

fn position_of(seq: u64) -> usize {
    let position = (seq + MAX_RECENT_MESSAGES as u64 - 1) % MAX_RECENT_MESSAGES as u64;
    usize::try_from(position).expect("it is below the number of positions")
}

/// The positions follow from the entries.
impl PartialEq for RecentMessages {
    fn eq(&self, other: &Self) -> bool {
        (self.last_seq, &self.entries) == (other.last_seq, &other.entries)
    }
}

impl Eq for RecentMessages {}

impl fmt::Debug for RecentMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RecentMessages({} up to {})",
            self.entries.len(),
            self.last_seq
        )
    }
}

impl Serialize for RecentMessages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(&self.to_bytes()))
    }
}

impl<'de> Deserialize<'de> for RecentMessages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64.decode(text.as_bytes()).map_err(de::Error::custom)?;
        Self::from_bytes(&bytes).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::*;

    /// The same with whole ids and digests, and as simple as can be.
    #[derive(Default)]
    struct SimpleRecentMessages {
        order: VecDeque<(MessageId, u64)>,
        by_id: BTreeMap<MessageId, (Option<Digest>, u64)>,
        last_seq: u64,
    }

    impl SimpleRecentMessages {
        fn status(&self, id: &MessageId, digest: &Digest) -> MessageIdStatus {
            match self.by_id.get(id) {
                None => MessageIdStatus::New,
                Some((Some(known), seq)) if known == digest => MessageIdStatus::Duplicate(*seq),
                Some(_) => MessageIdStatus::Conflict,
            }
        }

        fn record(&mut self, id: MessageId, origin: Option<Digest>) {
            self.last_seq += 1;
            self.by_id.insert(id.clone(), (origin, self.last_seq));
            self.order.push_back((id, self.last_seq));
            if self.order.len() > MAX_RECENT_MESSAGES
                && let Some((oldest, seq)) = self.order.pop_front()
                && self.by_id.get(&oldest).is_some_and(|known| known.1 == seq)
            {
                self.by_id.remove(&oldest);
            }
        }
    }

    fn id(number: u64) -> MessageId {
        MessageId::parse(&format!("m{number}")).unwrap()
    }

    fn digest(number: u64) -> Digest {
        Digest::of(&[&number.to_le_bytes()])
    }

    fn recorded(count: u64) -> RecentMessages {
        let mut recent = RecentMessages::default();
        for number in 0..count {
            recent.record(&id(number), (number % 3 != 0).then(|| digest(number)));
        }
        recent
    }

    fn stored(recent: &RecentMessages) -> String {
        serde_json::to_string(recent).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
        #[test]
        fn it_answers_as_the_simple_one_does(
            before in 0..12_000_u64,
            steps in proptest::collection::vec((0..9000_u64, 0..3_u64, any::<bool>()), 0..200),
        ) {
            let mut recent = recorded(before);
            let mut simple = SimpleRecentMessages::default();
            for number in 0..before {
                simple.record(id(number), (number % 3 != 0).then(|| digest(number)));
            }
            for (back, message, records) in steps {
                // Near what is remembered: older, remembered, and not seen before.
                let number = (before + 500).saturating_sub(back);
                let digest = digest(number + message);
                prop_assert_eq!(recent.status(&id(number), &digest), simple.status(&id(number), &digest));
                prop_assert_eq!(recent.contains(&id(number)), simple.by_id.contains_key(&id(number)));
                let seq = simple.by_id.get(&id(number)).map(|known| known.1);
                prop_assert_eq!(recent.seq_of(&id(number)), seq);
                if records {
                    let origin = (message != 1).then_some(digest);
                    recent.record(&id(number), origin);
                    simple.record(id(number), origin);
                }
            }
            let read: RecentMessages = serde_json::from_str(&stored(&recent)).unwrap();
            prop_assert_eq!(read, recent);
        }
    }

    #[test]
    fn the_oldest_is_forgotten_and_the_rest_is_not() {
        let recent = recorded(MAX_RECENT_MESSAGES as u64 + 2);
        assert_eq!(recent.status(&id(1), &digest(1)), MessageIdStatus::New);
        assert_eq!(
            recent.status(&id(2), &digest(2)),
            MessageIdStatus::Duplicate(3)
        );
        assert_eq!(recent.status(&id(2), &digest(3)), MessageIdStatus::Conflict);
        // The entry relays no message, so that no message can repeat it.
        assert_eq!(recent.status(&id(3), &digest(3)), MessageIdStatus::Conflict);
    }

    #[test]
    fn it_is_small() {
        let recent = recorded(3 * MAX_RECENT_MESSAGES as u64);
        let bytes = recent.entries.capacity() * size_of::<RecentMessage>()
            + recent.positions.allocation_size();
        assert!(bytes < 200_000, "{bytes} bytes");
        assert!(stored(&recent).len() < 200_000);
    }

    #[test]
    fn what_was_stored_goes_on_as_before() {
        for count in [0, 1, 100, 8191, 8192, 8193, 30_000] {
            let mut recent = recorded(count);
            let mut read: RecentMessages = serde_json::from_str(&stored(&recent)).unwrap();
            for number in count..count + 10 {
                read.record(&id(number), Some(digest(number)));
                recent.record(&id(number), Some(digest(number)));
            }
            assert_eq!(read, recent);
            assert_eq!(stored(&read), stored(&recent));
            assert_eq!(
                read.status(&id(count), &digest(count)),
                MessageIdStatus::Duplicate(count + 1)
            );
        }
    }

    #[test]
    fn what_was_damaged_is_refused() {
        let read = |bytes: &[u8]| {
            let text = format!("{:?}", BASE64.encode(bytes));
            serde_json::from_str::<RecentMessages>(&text)
        };
        let good = recorded(9000).to_bytes();
        assert!(read(&good).is_ok());
        for length in [0, 7, 9, 8 + 15, good.len() - 1, good.len() - STORED_BYTES] {
            assert!(read(&good[..length]).is_err(), "{length} bytes");
        }
        let longer = [&good[..], &[0; STORED_BYTES]].concat();
        assert!(read(&longer).is_err());
        for last_seq in [0, 1, 8191, u64::MAX] {
            let mut wrong = good.clone();
            wrong[..8].copy_from_slice(&last_seq.to_le_bytes());
            assert!(read(&wrong).is_err(), "{last_seq} entries");
        }
        for text in ["", "null", "7", "\"AA\"", "\"!\"", "[]"] {
            assert!(
                serde_json::from_str::<RecentMessages>(text).is_err(),
                "{text}"
            );
        }
    }
}
