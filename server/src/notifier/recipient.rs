//! Who may be told something: people by their channels, and the operator by the webhooks of the
//! settings.

use std::sync::Arc;

use pvp_notify::ChannelTarget;
use pvp_protocol::ParticipantId;
use pvp_protocol::api::{ChannelKind, NotificationPreferences};

use super::channel::{StoredChannel, StoredPreferences};
use super::plan::Wishes;
use crate::store::{ChannelRow, Store, StoreError};
use crate::token::{self, TokenClaims, TokenError};

/// A webhook of the operator, with its secret.
#[derive(Debug, Clone)]
pub(crate) struct OperatorHook {
    /// Names it, the same after a restart.
    pub(crate) id: String,
    pub(crate) target: ChannelTarget,
    pub(crate) wishes: Wishes,
    pub(crate) show_command: bool,
}

/// Somebody to whom something may be told, over one channel.
#[derive(Debug, Clone)]
pub(crate) enum Recipient {
    Person(Box<PersonalChannel>),
    Operator(Arc<OperatorHook>),
}

/// A channel of a person, with whatever decides what is told over it.
#[derive(Debug, Clone)]
pub(crate) struct PersonalChannel {
    /// The channel's id.
    pub(crate) id: String,
    /// Where it leads.
    pub(crate) target: ChannelTarget,
    /// The token that it ends with.
    pub(crate) token: String,
    /// What that token allows.
    pub(crate) claims: TokenClaims,
    /// What the person wants.
    pub(crate) preferences: NotificationPreferences,
    /// The same, checked.
    pub(crate) wishes: Wishes,
}

impl Recipient {
    pub(crate) fn channel(&self) -> &str {
        match self {
            Self::Person(channel) => &channel.id,
            Self::Operator(hook) => &hook.id,
        }
    }

    pub(crate) fn kind(&self) -> ChannelKind {
        match self {
            Self::Person(channel) => channel.target.kind(),
            Self::Operator(hook) => hook.target.kind(),
        }
    }

    pub(crate) fn wishes(&self) -> &Wishes {
        match self {
            Self::Person(channel) => &channel.wishes,
            Self::Operator(hook) => &hook.wishes,
        }
    }

    /// The person; `None` if it is the operator.
    pub(crate) fn participant(&self) -> Option<&ParticipantId> {
        match self {
            Self::Person(channel) => Some(&channel.claims.participant),
            Self::Operator(_) => None,
        }
    }
}

/// What a channel is good for at the moment.
pub(crate) enum ChannelState {
    Usable(Box<PersonalChannel>),
    /// Its person has turned it off.
    Off,
    /// The token that it was made with has ended, and so has the channel.
    Ended,
}

impl ChannelState {
    /// Looks at everything that decides what is told over a channel.
    pub(crate) async fn read(store: &dyn Store, row: &ChannelRow) -> Result<Self, StoreError> {
        let now = pvp_clock::now();
        let claims = match token::valid_claims(store, &row.token, now).await {
            Ok(claims) => claims,
            Err(TokenError::Store(error)) => return Err(error),
            Err(TokenError::Unknown | TokenError::Expired | TokenError::Revoked) => {
                return Ok(Self::Ended);
            }
        };
        let channel = StoredChannel::from_row(row)?;
        if !channel.enabled || claims.participant != row.participant {
            return Ok(Self::Off);
        }
        let stored = store.find_preferences(&row.participant).await?;
        let preferences = StoredPreferences::parse(stored)?.of(&claims);
        let wishes = Wishes::parse(&preferences)
            .map_err(|error| StoreError::Damaged(format!("notification preferences: {error}")))?;
        Ok(Self::Usable(Box::new(PersonalChannel {
            id: row.id.clone(),
            target: channel.target,
            token: row.token.clone(),
            claims,
            preferences,
            wishes,
        })))
    }
}
