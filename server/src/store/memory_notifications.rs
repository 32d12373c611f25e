//! Channels, preferences, notices and vote links of the store in memory.

use std::collections::BTreeMap;

use pvp_protocol::{MessageId, ParticipantId, SessionId, Timestamp};

use super::memory::MemoryStore;
use super::notifications::{ChannelRow, NoticeRow, VoteLinkRow};
use super::{NotificationStore, StoreResult};

/// What is stored about notifications.
#[derive(Default)]
pub(super) struct MemoryNotifications {
    channels: Vec<ChannelRow>,
    preferences: BTreeMap<ParticipantId, String>,
    notices: Vec<NoticeRow>,
    vote_links: Vec<VoteLinkRow>,
}

impl MemoryNotifications {
    fn channel(&mut self, id: &str) -> Option<&mut ChannelRow> {
        self.channels.iter_mut().find(|channel| channel.id == id)
    }
}

impl NotificationStore for MemoryStore {
    fn insert_channel(&self, channel: ChannelRow, limit: usize) -> StoreResult<'_, bool> {
        self.with_notifications(|state| {
            let alike = state.channels.iter().filter(|other| {
                other.participant == channel.participant && other.group == channel.group
            });
            let has_room = alike.count() < limit;
            if has_room {
                state.channels.push(channel);
            }
            has_room
        })
    }

    fn update_channel<'a>(&'a self, id: &'a str, data: String) -> StoreResult<'a, bool> {
        self.with_notifications(|state| {
            let channel = state.channel(id);
            channel.map(|channel| channel.data = data).is_some()
        })
    }

    fn update_channel_status<'a>(&'a self, id: &'a str, status: String) -> StoreResult<'a, ()> {
        self.with_notifications(|state| {
            if let Some(channel) = state.channel(id) {
                channel.status = status;
            }
        })
    }

    fn delete_channel<'a>(&'a self, id: &'a str) -> StoreResult<'a, bool> {
        self.with_notifications(|state| {
            let before = state.channels.len();
            state.channels.retain(|channel| channel.id != id);
            state.channels.len() < before
        })
    }

    fn find_channel<'a>(&'a self, id: &'a str) -> StoreResult<'a, Option<ChannelRow>> {
        self.with_notifications(|state| state.channel(id).cloned())
    }

    fn list_channels<'a>(
        &'a self,
        participant: Option<&'a ParticipantId>,
    ) -> StoreResult<'a, Vec<ChannelRow>> {
        self.with_notifications(|state| {
            let mut channels = state.channels.clone();
            channels.retain(|channel| participant.is_none_or(|it| channel.participant == *it));
            channels
        })
    }

    fn put_preferences<'a>(
        &'a self,
        participant: &'a ParticipantId,
        data: String,
    ) -> StoreResult<'a, ()> {
        self.with_notifications(|state| {
            state.preferences.insert(participant.clone(), data);
        })
    }

    fn find_preferences<'a>(
        &'a self,
        participant: &'a ParticipantId,
    ) -> StoreResult<'a, Option<String>> {
        self.with_notifications(|state| state.preferences.get(participant).cloned())
    }

    fn insert_notice(&self, notice: NoticeRow) -> StoreResult<'_, ()> {
        self.with_notifications(|state| {
            if state.notices.iter().all(|known| known.key != notice.key) {
                state.notices.push(notice);
            }
        })
    }

    fn list_notices(&self) -> StoreResult<'_, Vec<NoticeRow>> {
        self.with_notifications(|state| state.notices.clone())
    }

    fn insert_vote_link(&self, link: VoteLinkRow) -> StoreResult<'_, ()> {
        self.with_notifications(|state| state.vote_links.push(link))
    }

    fn find_vote_link<'a>(&'a self, id: &'a str) -> StoreResult<'a, Option<VoteLinkRow>> {
        self.with_notifications(|state| {
            let mut links = state.vote_links.iter();
            links.find(|link| link.id == id).cloned()
        })
    }

    fn forget_gate<'a>(
        &'a self,
        session: &'a SessionId,
        gate: &'a MessageId,
    ) -> StoreResult<'a, ()> {
        self.with_notifications(|state| {
            let named = |its: (&SessionId, &MessageId)| its == (session, gate);
            let notices = &mut state.notices;
            notices.retain(|notice| !named((&notice.session, &notice.gate)));
            let links = &mut state.vote_links;
            links.retain(|link| !named((&link.session, &link.gate)));
        })
    }

    fn forget_vote_links(&self, made_before: Timestamp) -> StoreResult<'_, ()> {
        self.with_notifications(|state| {
            let links = &mut state.vote_links;
            links.retain(|link| link.created_at >= made_before);
        })
    }
}
