//! What is stored about notifications: people's channels and preferences, what was told, vote links.
//! What the rows say is opaque to the store.

use pvp_protocol::{MessageId, ParticipantId, SessionId, Timestamp};

use super::{Hash, StoreResult};

/// Which of a person's limits a channel counts towards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelGroup {
    /// Browsers that have subscribed.
    Push,
    /// Everything else.
    Other,
}

/// One way to notify a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelRow {
    /// Names the channel.
    pub id: String,
    /// Whose it is.
    pub participant: ParticipantId,
    /// The id of the token that it was made with, and that it ends with.
    pub token: String,
    /// Which limit it counts towards.
    pub group: ChannelGroup,
    /// Where it leads, as JSON.
    pub data: String,
    /// How the last delivery went, as JSON; empty before the first.
    pub status: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Something that was told over a channel and is not told there again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeRow {
    /// The hash of what was told, and of the channel.
    pub key: Hash,
    pub session: SessionId,
    pub gate: MessageId,
    pub channel: String,
    pub at: Timestamp,
}

/// A vote link. Only the hash of its secret is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoteLinkRow {
    /// The public part of the link, by which it is found.
    pub id: String,
    /// The SHA-256 of its secret.
    pub hash: Hash,
    /// The session of its gate.
    pub session: SessionId,
    /// The only gate that it votes on.
    pub gate: MessageId,
    /// What else it is bound to, as JSON.
    pub data: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Where notifications are stored.
pub trait NotificationStore: Send + Sync {
    /// Adds a channel; false, and nothing is added, if its person has `limit` of its group.
    fn insert_channel(&self, channel: ChannelRow, limit: usize) -> StoreResult<'_, bool>;

    /// Replaces what a channel says; false if there is none.
    fn update_channel<'a>(&'a self, id: &'a str, data: String) -> StoreResult<'a, bool>;

    /// Replaces how the last delivery over a channel went, if there is such a channel.
    fn update_channel_status<'a>(&'a self, id: &'a str, status: String) -> StoreResult<'a, ()>;

    /// Deletes a channel; false if there is none.
    fn delete_channel<'a>(&'a self, id: &'a str) -> StoreResult<'a, bool>;

    /// The channel with this id.
    fn find_channel<'a>(&'a self, id: &'a str) -> StoreResult<'a, Option<ChannelRow>>;

    /// The channels of one person or of all, oldest first.
    fn list_channels<'a>(
        &'a self,
        participant: Option<&'a ParticipantId>,
    ) -> StoreResult<'a, Vec<ChannelRow>>;

    /// Replaces a person's preferences.
    fn put_preferences<'a>(
        &'a self,
        participant: &'a ParticipantId,
        data: String,
    ) -> StoreResult<'a, ()>;

    /// A person's preferences; `None` if they have never set any.
    fn find_preferences<'a>(
        &'a self,
        participant: &'a ParticipantId,
    ) -> StoreResult<'a, Option<String>>;

    /// Records that something was told; nothing happens if it is recorded already.
    fn insert_notice(&self, notice: NoticeRow) -> StoreResult<'_, ()>;

    /// Everything that was told and not forgotten.
    fn list_notices(&self) -> StoreResult<'_, Vec<NoticeRow>>;

    /// Adds a vote link.
    fn insert_vote_link(&self, link: VoteLinkRow) -> StoreResult<'_, ()>;

    /// The vote link with this id.
    fn find_vote_link<'a>(&'a self, id: &'a str) -> StoreResult<'a, Option<VoteLinkRow>>;

    /// Forgets what was told about a gate that is closed, and the vote links to it.
    fn forget_gate<'a>(
        &'a self,
        session: &'a SessionId,
        gate: &'a MessageId,
    ) -> StoreResult<'a, ()>;

    /// Forgets vote links that were made before this time.
    fn forget_vote_links(&self, made_before: Timestamp) -> StoreResult<'_, ()>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryStore;
    use crate::store::{SqliteStore, Store};

    fn person(name: &str) -> ParticipantId {
        ParticipantId::parse(name).unwrap()
    }

    fn channel(id: &str, participant: &str, group: ChannelGroup) -> ChannelRow {
        ChannelRow {
            id: id.to_owned(),
            participant: person(participant),
            token: "t1".to_owned(),
            group,
            data: "{}".to_owned(),
            status: String::new(),
            created_at: Timestamp::from_millis(1000),
        }
    }

    fn notice(key: u8, gate: &str) -> NoticeRow {
        NoticeRow {
            key: [key; 32],
            session: SessionId::parse("owl").unwrap(),
            gate: MessageId::parse(gate).unwrap(),
            channel: "c1".to_owned(),
            at: Timestamp::from_millis(2000),
        }
    }

    fn vote_link(id: &str, gate: &str, made: u64) -> VoteLinkRow {
        VoteLinkRow {
            id: id.to_owned(),
            hash: [7; 32],
            session: SessionId::parse("owl").unwrap(),
            gate: MessageId::parse(gate).unwrap(),
            data: "{\"x\":1}".to_owned(),
            created_at: Timestamp::from_millis(made),
        }
    }

    async fn check_channels(store: &dyn Store) {
        let first = channel("c1", "ann", ChannelGroup::Other);
        assert!(store.insert_channel(first.clone(), 2).await.unwrap());
        let second = channel("c2", "ann", ChannelGroup::Other);
        assert!(store.insert_channel(second.clone(), 2).await.unwrap());
        let third = channel("c3", "ann", ChannelGroup::Other);
        assert!(
            !store.insert_channel(third, 2).await.unwrap(),
            "one too many"
        );
        let push = channel("c4", "ann", ChannelGroup::Push);
        assert!(store.insert_channel(push.clone(), 1).await.unwrap());
        let other = channel("c5", "bob", ChannelGroup::Other);
        assert!(store.insert_channel(other.clone(), 1).await.unwrap());
        let ann = person("ann");
        let of_ann = store.list_channels(Some(&ann)).await.unwrap();
        assert_eq!(of_ann, [first.clone(), second, push]);
        assert_eq!(store.list_channels(None).await.unwrap().len(), 4);
        let data = "{\"label\":\"x\"}".to_owned();
        assert!(store.update_channel("c1", data.clone()).await.unwrap());
        assert!(!store.update_channel("c9", data.clone()).await.unwrap());
        let status = "{\"error\":\"y\"}".to_owned();
        store
            .update_channel_status("c1", status.clone())
            .await
            .unwrap();
        store
            .update_channel_status("c9", status.clone())
            .await
            .unwrap();
        let changed = ChannelRow {
            data,
            status,
            ..first
        };
        assert_eq!(store.find_channel("c1").await.unwrap(), Some(changed));
        assert!(store.delete_channel("c1").await.unwrap());
        assert!(!store.delete_channel("c1").await.unwrap());
        assert_eq!(store.find_channel("c1").await.unwrap(), None);
    }

    async fn check_preferences(store: &dyn Store) {
        let ann = person("ann");
        assert_eq!(store.find_preferences(&ann).await.unwrap(), None);
        for data in ["1", "2"] {
            store.put_preferences(&ann, data.to_owned()).await.unwrap();
            let found = store.find_preferences(&ann).await.unwrap();
            assert_eq!(found.as_deref(), Some(data));
        }
        assert_eq!(store.find_preferences(&person("bob")).await.unwrap(), None);
    }

    async fn check_notices_and_links(store: &dyn Store) {
        for row in [notice(1, "g1"), notice(2, "g2"), notice(1, "g1")] {
            store.insert_notice(row).await.unwrap();
        }
        let rows = store.list_notices().await.unwrap();
        assert_eq!(rows, [notice(1, "g1"), notice(2, "g2")]);
        for link in [
            vote_link("l1", "g1", 1000),
            vote_link("l2", "g2", 1000),
            vote_link("l3", "g2", 3000),
        ] {
            store.insert_vote_link(link).await.unwrap();
        }
        let found = store.find_vote_link("l1").await.unwrap();
        assert_eq!(found, Some(vote_link("l1", "g1", 1000)));
        let (session, gate) = (notice(1, "g1").session, notice(1, "g1").gate);
        store.forget_gate(&session, &gate).await.unwrap();
        assert_eq!(store.list_notices().await.unwrap(), [notice(2, "g2")]);
        assert_eq!(store.find_vote_link("l1").await.unwrap(), None);
        store
            .forget_vote_links(Timestamp::from_millis(2000))
            .await
            .unwrap();
        assert_eq!(store.find_vote_link("l2").await.unwrap(), None);
        assert!(store.find_vote_link("l3").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn both_stores_keep_channels_preferences_notices_and_vote_links() {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = SqliteStore::open(directory.path()).await.unwrap();
        let memory = MemoryStore::default();
        let stores: [&dyn Store; 2] = [&sqlite, &memory];
        for store in stores {
            check_channels(store).await;
            check_preferences(store).await;
            check_notices_and_links(store).await;
        }
    }
}
