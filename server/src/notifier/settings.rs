//! What people set: their channels and preferences.
//!
//! A channel ends with the token that it was made with, so that nothing is told over it by the right of
//! a token that was revoked. Whoever has a token that allows less than that one may not change it.

use std::sync::Arc;

use pvp_notify::{
    AddressSource, ChannelTarget, PushSubscription, QuietPeriod, TargetError, WebTarget,
};
use pvp_protocol::api::{
    ChangeChannelRequest, ChannelKind, ChannelTest, NewChannelRequest, NewPushSubscription,
    NotificationChannel, NotificationPreferences, NotificationSettings,
};
use pvp_protocol::{ParticipantKind, Refusal, hex};

use super::channel::{ChannelStatus, StoredChannel, StoredPreferences};
use super::{message_id, text};
use crate::directory::SessionDirectory;
use crate::store::{ChannelGroup, ChannelRow, StoreError};
use crate::token::{self, Login, TokenClaims, TokenError};

/// Channels of one person, without browsers, as far as one token is enough to change them.
const MAX_CHANNELS: usize = 10;

/// Browsers of one person that have subscribed, as far as one token is enough to change them.
const MAX_PUSH_SUBSCRIPTIONS: usize = 20;

/// Tokens of one person that may have so many: those for different sessions cannot change the channels
/// of each other, and must not use them up.
const MAX_TOKENS_WITH_CHANNELS: usize = 10;

/// Characters of a label.
const MAX_LABEL: usize = 100;

/// Sessions that one person chooses.
const MAX_SESSIONS: usize = 100;

impl SessionDirectory {
    /// How the caller is notified.
    pub(crate) async fn notification_settings(
        &self,
        login: &Login,
    ) -> Result<NotificationSettings, Refusal> {
        let participant = &login.claims.participant;
        let stored = self.store.find_preferences(participant).await?;
        let preferences = StoredPreferences::parse(stored)?.of(&login.claims);
        let mut channels = Vec::new();
        for row in self.store.list_channels(Some(participant)).await? {
            // One that has ended with its token is gone, although nobody has cleared it away yet.
            if self.claims_of(&row).await?.is_some() {
                channels.push(StoredChannel::from_row(&row)?.describe(&row));
            }
        }
        let config = &self.config.notifications;
        Ok(NotificationSettings {
            channels,
            events: preferences.events,
            sessions: preferences.sessions,
            quiet_hours: preferences.quiet_hours,
            show_command: preferences.show_command,
            vote_links: preferences.vote_links,
            kinds: config.allowed_kinds(),
            vote_links_allowed: config.vote_links,
        })
    }

    /// Changes what the caller is notified of.
    pub(crate) async fn set_notification_preferences(
        &self,
        login: &Login,
        preferences: &NotificationPreferences,
    ) -> Result<NotificationSettings, Refusal> {
        check_voter(login)?;
        if let Some(hours) = &preferences.quiet_hours {
            QuietPeriod::parse(hours).map_err(|error| Refusal::Malformed(error.to_string()))?;
        }
        if preferences
            .sessions
            .as_ref()
            .is_some_and(|it| it.len() > MAX_SESSIONS)
        {
            return Err(Refusal::TooMany {
                what: "sessions; leave them out to be notified of all",
                limit: MAX_SESSIONS as u64,
            });
        }
        if preferences.vote_links && !self.config.notifications.vote_links {
            let problem = "the operator of this server does not allow vote links";
            return Err(Refusal::Unauthorized(problem.to_owned()));
        }
        let participant = &login.claims.participant;
        let stored = self.store.find_preferences(participant).await?;
        let mut stored = StoredPreferences::parse(stored)?;
        stored.set(&login.claims, preferences);
        let stored = self.store.put_preferences(participant, stored.to_json());
        stored.await.map_err(write_failed)?;
        self.notifications.recipients_changed();
        self.notification_settings(login).await
    }

    /// Adds a channel. The secret that signs what a webhook gets is in the answer, and only there.
    pub(crate) async fn add_channel(
        &self,
        login: &Login,
        request: &NewChannelRequest,
    ) -> Result<NotificationChannel, Refusal> {
        check_voter(login)?;
        check_label(&request.label)?;
        let kinds = self.config.notifications.allowed_kinds();
        if request.kind == ChannelKind::Push {
            let problem = "a browser subscribes with POST /api/push/subscriptions";
            return Err(Refusal::Malformed(problem.to_owned()));
        }
        if !kinds.contains(&request.kind) {
            return Err(not_allowed(request.kind, &kinds));
        }
        let sender = &self.notifications.sender;
        let (source, policy) = (AddressSource::Person, sender.policy());
        let target = ChannelTarget::parse(request, source, policy, sender.relay());
        let target = target.map_err(|error| Refusal::Malformed(error.to_string()))?;
        let channel = StoredChannel {
            label: request.label.clone(),
            enabled: true,
            target,
        };
        let row = self.insert_channel(login, &channel).await?;
        let secret = match &channel.target {
            ChannelTarget::Webhook { secret, .. } => Some(secret.reveal().to_owned()),
            ChannelTarget::Push(_)
            | ChannelTarget::Ntfy { .. }
            | ChannelTarget::Slack { .. }
            | ChannelTarget::Discord { .. }
            | ChannelTarget::Email { .. } => None,
        };
        Ok(NotificationChannel {
            secret,
            ..channel.describe(&row)
        })
    }

    /// Adds a browser, in the place of what it has subscribed with before; returns its id.
    pub(crate) async fn add_push_subscription(
        &self,
        login: &Login,
        request: &NewPushSubscription,
    ) -> Result<String, Refusal> {
        check_voter(login)?;
        let kinds = self.config.notifications.allowed_kinds();
        if !kinds.contains(&ChannelKind::Push) {
            return Err(not_allowed(ChannelKind::Push, &kinds));
        }
        let label = request.label.as_deref().unwrap_or("Browser");
        check_label(label)?;
        let malformed = |error: TargetError| Refusal::Malformed(error.to_string());
        let policy = self.notifications.sender.policy();
        WebTarget::parse(&request.endpoint, AddressSource::Person, policy).map_err(malformed)?;
        let subscription = PushSubscription::parse(request).map_err(malformed)?;
        let target = ChannelTarget::Push(subscription);
        let rows = self.store.list_channels(Some(&login.claims.participant));
        for row in rows.await? {
            if StoredChannel::from_row(&row)?.target.url() == Some(&request.endpoint) {
                self.check_covers(login, &row).await?;
                self.store
                    .delete_channel(&row.id)
                    .await
                    .map_err(write_failed)?;
            }
        }
        let channel = StoredChannel {
            label: label.to_owned(),
            enabled: true,
            target,
        };
        Ok(self.insert_channel(login, &channel).await?.id)
    }

    async fn insert_channel(
        &self,
        login: &Login,
        channel: &StoredChannel,
    ) -> Result<ChannelRow, Refusal> {
        let (what, limit) = match channel.group() {
            ChannelGroup::Push => (
                "browsers that are notified; remove one that you no longer use",
                MAX_PUSH_SUBSCRIPTIONS,
            ),
            ChannelGroup::Other => ("channels; remove one that you no longer use", MAX_CHANNELS),
        };
        let too_many = Refusal::TooMany {
            what,
            limit: limit as u64,
        };
        let (participant, now) = (&login.claims.participant, pvp_clock::now());
        let mut own = 0;
        for row in self.store.list_channels(Some(participant)).await? {
            own += usize::from(row.group == channel.group() && self.covers(login, &row).await?);
        }
        if own >= limit {
            return Err(too_many);
        }
        let counted = self.notifications.additions.lock().take(participant, now);
        if counted.is_err() {
            return Err(Refusal::TooMany {
                what: "channels added in a short time; wait a little",
                limit: super::ADDITION_RATE.burst,
            });
        }
        let row = ChannelRow {
            id: hex::encode(&pvp_clock::random_bytes::<8>()),
            participant: login.claims.participant.clone(),
            token: login.token_id.clone(),
            group: channel.group(),
            data: channel.to_json(),
            status: String::new(),
            created_at: now,
        };
        let limit = limit * MAX_TOKENS_WITH_CHANNELS;
        let inserted = self.store.insert_channel(row.clone(), limit).await;
        if !inserted.map_err(write_failed)? {
            return Err(too_many);
        }
        tracing::info!(participant = %row.participant, channel = row.id, kind = %channel.target.kind(), "somebody added a channel");
        self.notifications.recipients_changed();
        Ok(row)
    }

    /// Changes a channel of the caller; `None` if they have none of this id.
    pub(crate) async fn change_channel(
        &self,
        login: &Login,
        id: &str,
        change: &ChangeChannelRequest,
    ) -> Result<Option<NotificationChannel>, Refusal> {
        let Some((row, mut channel)) = self.own_channel(login, id).await? else {
            return Ok(None);
        };
        if let Some(label) = &change.label {
            check_label(label)?;
            channel.label.clone_from(label);
        }
        channel.enabled = change.enabled.unwrap_or(channel.enabled);
        let updated = self.store.update_channel(id, channel.to_json()).await;
        if !updated.map_err(write_failed)? {
            return Ok(None);
        }
        self.notifications.recipients_changed();
        Ok(Some(channel.describe(&row)))
    }

    /// Removes a channel of the caller; false if they have none of this id.
    pub(crate) async fn remove_channel(&self, login: &Login, id: &str) -> Result<bool, Refusal> {
        if self.own_channel(login, id).await?.is_none() {
            return Ok(false);
        }
        let deleted = self.store.delete_channel(id).await;
        let deleted = deleted.map_err(write_failed)?;
        self.notifications.recipients_changed();
        Ok(deleted)
    }

    /// Sends a message over a channel of the caller, once; `None` if they have none of this id.
    pub(crate) async fn test_channel(
        self: &Arc<Self>,
        login: &Login,
        id: &str,
    ) -> Result<Option<ChannelTest>, Refusal> {
        let Some((row, channel)) = self.own_channel(login, id).await? else {
            return Ok(None);
        };
        let now = pvp_clock::now();
        let counted = self
            .notifications
            .tests
            .lock()
            .take(&login.claims.participant, now);
        if counted.is_err() {
            return Err(Refusal::TooMany {
                what: "tests in a minute; wait a little",
                limit: super::TEST_RATE.burst,
            });
        }
        let message_id = message_id(&pvp_clock::random_bytes());
        let message = text::test_message(
            channel.target.kind(),
            &self.server_address().url,
            message_id,
        );
        let sender = &self.notifications.sender;
        let result = sender
            .send(&channel.target, AddressSource::Person, &message)
            .await;
        let error = result.as_ref().err().map(ToString::to_string);
        let last = ChannelStatus::from_row(&row).last_delivery;
        let status = ChannelStatus {
            last_error: error.clone(),
            last_delivery: if error.is_none() { Some(now) } else { last },
        };
        let updated = self.store.update_channel_status(id, status.to_json()).await;
        updated.map_err(write_failed)?;
        if let Err(error) = &result {
            self.notifications.remove_if_gone(self, id, error).await;
        }
        Ok(Some(ChannelTest {
            delivered: error.is_none(),
            error,
        }))
    }

    /// A channel of the caller that their token is enough for.
    async fn own_channel(
        &self,
        login: &Login,
        id: &str,
    ) -> Result<Option<(ChannelRow, StoredChannel)>, Refusal> {
        let row = self.store.find_channel(id).await?;
        let Some(row) = row.filter(|row| row.participant == login.claims.participant) else {
            return Ok(None);
        };
        self.check_covers(login, &row).await?;
        let channel = StoredChannel::from_row(&row)?;
        Ok(Some((row, channel)))
    }

    /// Refuses whoever has a token that allows less than the one that a channel was made with: a link
    /// that may only watch must not silence somebody who is to vote.
    async fn check_covers(&self, login: &Login, row: &ChannelRow) -> Result<(), Refusal> {
        match self.covers(login, row).await? {
            true => Ok(()),
            false => Err(Refusal::Unauthorized(
                "one of your channels was added with a link that allows more than this one, or other things; use that link"
                    .to_owned(),
            )),
        }
    }

    /// Whether a token allows whatever the one does that a channel was made with.
    async fn covers(&self, login: &Login, row: &ChannelRow) -> Result<bool, StoreError> {
        let claims = self.claims_of(row).await?;
        // A channel whose token has ended is of no use to anybody.
        Ok(claims.is_none_or(|claims| login.claims.covers(&claims)))
    }

    /// What the token allows that a channel was made with; `None` if it has ended.
    async fn claims_of(&self, row: &ChannelRow) -> Result<Option<TokenClaims>, StoreError> {
        let claims = token::valid_claims(self.store.as_ref(), &row.token, pvp_clock::now());
        match claims.await {
            Ok(claims) => Ok(Some(claims)),
            Err(TokenError::Unknown | TokenError::Expired | TokenError::Revoked) => Ok(None),
            Err(TokenError::Store(error)) => Err(error),
        }
    }
}

/// Refuses whoever could not vote on anything.
fn check_voter(login: &Login) -> Result<(), Refusal> {
    if login.claims.kind == ParticipantKind::Agent {
        return Err(Refusal::AgentsDoNotVote);
    }
    match login.claims.may_vote() {
        true => Ok(()),
        false => Err(Refusal::Unauthorized(
            "people are notified of what they may vote on, and your token does not let you vote"
                .to_owned(),
        )),
    }
}

fn check_label(label: &str) -> Result<(), Refusal> {
    let length = label.chars().count();
    match (1..=MAX_LABEL).contains(&length) && !label.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(Refusal::Malformed(format!(
            "`label` has 1 to {MAX_LABEL} characters and no control characters"
        ))),
    }
}

fn not_allowed(kind: ChannelKind, allowed: &[ChannelKind]) -> Refusal {
    let allowed: Vec<_> = allowed.iter().map(|kind| kind.as_str()).collect();
    Refusal::Unauthorized(match allowed.as_slice() {
        [] => "the operator of this server allows no channels".to_owned(),
        allowed => format!(
            "the operator of this server does not allow channels of kind {kind}; use {}",
            allowed.join(", ")
        ),
    })
}

fn write_failed(error: StoreError) -> Refusal {
    Refusal::WriteFailed(error.to_string())
}
