//! A person's channel as it is stored and shown.

use pvp_notify::ChannelTarget;
use pvp_protocol::Timestamp;
use pvp_protocol::api::{ChannelKind, NotificationChannel, NotificationPreferences};
use serde::{Deserialize, Serialize};

use crate::config::all_events;
use crate::store::{ChannelGroup, ChannelRow, StoreError};
use crate::token::TokenClaims;

/// Preferences of one person that are stored, for tokens that allow different things.
const MAX_PREFERENCE_SETS: usize = 20;

/// What the row of a channel says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredChannel {
    pub(crate) label: String,
    pub(crate) enabled: bool,
    pub(crate) target: ChannelTarget,
}

/// How the last delivery over a channel went.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ChannelStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_delivery: Option<Timestamp>,
}

impl StoredChannel {
    pub(crate) fn from_row(row: &ChannelRow) -> Result<Self, StoreError> {
        serde_json::from_str(&row.data)
            .map_err(|error| StoreError::Damaged(format!("channel {}: {error}", row.id)))
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a channel is plain data")
    }

    pub(crate) fn group(&self) -> ChannelGroup {
        match self.target.kind() {
            ChannelKind::Push => ChannelGroup::Push,
            ChannelKind::Webhook
            | ChannelKind::Ntfy
            | ChannelKind::Slack
            | ChannelKind::Discord
            | ChannelKind::Email => ChannelGroup::Other,
        }
    }

    /// The channel as its person sees it, without what is secret about it.
    pub(crate) fn describe(&self, row: &ChannelRow) -> NotificationChannel {
        let status = ChannelStatus::from_row(row);
        NotificationChannel {
            id: row.id.clone(),
            kind: self.target.kind(),
            label: self.label.clone(),
            target: self.target.masked(),
            enabled: self.enabled,
            last_error: status.last_error,
            last_delivery: status.last_delivery,
            secret: None,
        }
    }
}

impl ChannelStatus {
    /// A status that cannot be read is not worth an error.
    pub(crate) fn from_row(row: &ChannelRow) -> Self {
        serde_json::from_str(&row.status).unwrap_or_default()
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a status is plain data")
    }
}

/// The preferences of somebody who has set none: everything that they may vote on, at any time, and
/// nothing of the commands.
pub(crate) fn default_preferences() -> NotificationPreferences {
    NotificationPreferences {
        events: all_events(),
        sessions: None,
        quiet_hours: None,
        show_command: false,
        vote_links: false,
    }
}

/// What one person has set, with each of their tokens that allow different things: what was set with a
/// token counts for the channels of those that allow no more.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct StoredPreferences {
    /// What was set last comes last.
    sets: Vec<PreferenceSet>,
    /// What an earlier version of the server has stored, which counts for all tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    for_all: Option<NotificationPreferences>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PreferenceSet {
    /// What the token allows that it was set with.
    set_with: TokenClaims,
    preferences: NotificationPreferences,
}

impl StoredPreferences {
    pub(crate) fn parse(stored: Option<String>) -> Result<Self, StoreError> {
        let Some(data) = stored else {
            return Ok(Self::default());
        };
        if let Ok(preferences) = serde_json::from_str(&data) {
            return Ok(Self {
                sets: Vec::new(),
                for_all: Some(preferences),
            });
        }
        serde_json::from_str(&data)
            .map_err(|error| StoreError::Damaged(format!("notification preferences: {error}")))
    }

    /// What counts for a token that allows this.
    pub(crate) fn of(&self, claims: &TokenClaims) -> NotificationPreferences {
        let mut sets = self.sets.iter().rev();
        let set = sets.find(|set| set.set_with.covers(claims));
        let set = set.map(|set| &set.preferences).or(self.for_all.as_ref());
        set.cloned().unwrap_or_else(default_preferences)
    }

    /// Sets preferences with a token that allows this, in the place of what it covers.
    pub(crate) fn set(&mut self, claims: &TokenClaims, preferences: &NotificationPreferences) {
        self.sets.retain(|set| !claims.covers(&set.set_with));
        // The oldest go; whoever has so many different tokens sets them again.
        let excess = (self.sets.len() + 1).saturating_sub(MAX_PREFERENCE_SETS);
        self.sets.drain(..excess);
        self.sets.push(PreferenceSet {
            set_with: claims.clone(),
            preferences: preferences.clone(),
        });
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("preferences are plain data")
    }
}

#[cfg(test)]
mod tests {
    use pvp_protocol::{ParticipantId, ParticipantKind, Role, SessionId};

    use super::*;

    fn claims(roles: &[Role], session: Option<&str>) -> TokenClaims {
        TokenClaims {
            participant: ParticipantId::parse("ann").unwrap(),
            name: "ann".to_owned(),
            kind: ParticipantKind::Human,
            roles: roles.iter().copied().collect(),
            capabilities: Default::default(),
            session: session.map(|session| SessionId::parse(session).unwrap()),
            invited_by: None,
            invited_at: None,
            made_with: None,
            device: None,
        }
    }

    fn showing_commands() -> NotificationPreferences {
        NotificationPreferences {
            show_command: true,
            ..default_preferences()
        }
    }

    #[test]
    fn what_was_set_with_a_token_counts_for_those_that_allow_no_more() {
        let (all, one) = (
            claims(&[Role::Approver], None),
            claims(&[Role::Approver], Some("one")),
        );
        let two = claims(&[Role::Approver], Some("two"));
        let mut stored = StoredPreferences::default();
        stored.set(&one, &showing_commands());
        assert_eq!(stored.of(&one), showing_commands());
        assert_eq!(stored.of(&two), default_preferences());
        assert_eq!(stored.of(&all), default_preferences());
        stored.set(&all, &default_preferences());
        assert_eq!(stored.of(&one), default_preferences());
        stored.set(&two, &showing_commands());
        assert_eq!(stored.of(&two), showing_commands());
        assert_eq!(stored.of(&one), default_preferences());
        let json = stored.to_json();
        assert_eq!(StoredPreferences::parse(Some(json)).unwrap(), stored);
    }

    #[test]
    fn what_an_earlier_version_has_stored_counts() {
        let data = serde_json::to_string(&showing_commands()).unwrap();
        let stored = StoredPreferences::parse(Some(data)).unwrap();
        let one = claims(&[Role::Approver], Some("one"));
        assert_eq!(stored.of(&one), showing_commands());
        let stored = StoredPreferences::parse(Some(stored.to_json())).unwrap();
        assert_eq!(stored.of(&one), showing_commands());
    }

    #[test]
    fn only_so_much_is_stored_of_one_person() {
        let mut stored = StoredPreferences::default();
        for number in 0..100 {
            let token = claims(&[Role::Approver], Some(&format!("s{number}")));
            stored.set(&token, &showing_commands());
            assert_eq!(stored.of(&token), showing_commands());
        }
        assert_eq!(stored.sets.len(), MAX_PREFERENCE_SETS);
    }
}
