//! The bodies of the calls that set how a person is notified of gates, and of vote links.

use std::collections::BTreeSet;

use super::GateDetails;
use crate::{Category, Digest, MessageId, ParticipantId, Risk, SessionId, Timestamp};

wire_enums! {
    /// What a person wants to be notified of.
    pub enum NotificationEvent {
        /// A gate opened, or its command was edited.
        Opened,
        /// A gate went to the admins.
        Escalated,
        /// A gate is about to reach its deadline.
        Closing,
    }

    /// What happened to a gate, in a notification.
    pub enum GateEvent {
        Opened,
        Escalated,
        Closing,
        /// More wait than the person is told of one by one; the gate is the most urgent of them.
        MoreWait,
        /// It was decided; sent only to browsers, so that what they show does not grow stale.
        Closed,
        /// Nothing happened: somebody tries whether a channel works.
        Test,
    }

    /// How a notification reaches a person.
    pub enum ChannelKind {
        /// Web Push, to one browser.
        Push,
        /// A signed POST to an address of the person's own.
        Webhook,
        /// A topic of an ntfy server.
        Ntfy,
        /// An incoming webhook of Slack, or of a service that takes the same.
        Slack,
        /// A webhook of Discord, or of a service that takes the same.
        Discord,
        /// E-mail, through the relay of the server's operator.
        Email,
    }
}

wire_structs! {
    /// Hours of the day in which a person is not notified. What still waits at their end is told then.
    #[derive(Eq)]
    #[serde(deny_unknown_fields)]
    pub struct QuietHours {
        /// The time of day at which they begin, such as `22:00`.
        pub from: String,
        /// The time of day at which they end, such as `07:00`; it may be that of the next day.
        pub to: String,
        /// The time zone of both, such as `Europe/Berlin`.
        pub time_zone: String,
    }

    /// One way to notify a person.
    pub struct NotificationChannel {
        /// Names the channel.
        pub id: String,
        /// How it reaches the person.
        pub kind: ChannelKind,
        /// What the person calls it.
        pub label: String,
        /// Where it leads, without what is secret about it.
        pub target: String,
        /// Whether it is used.
        pub enabled: bool,
        /// Why the last delivery failed; absent if it did not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub last_error: Option<String>,
        /// When something was last delivered; absent if nothing was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub last_delivery: Option<Timestamp>,
        /// The secret that signs what is sent to a webhook. It is shown only when the channel is
        /// made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub secret: Option<String>,
    }

    /// How the caller is notified, and what they may choose from.
    pub struct NotificationSettings {
        /// The caller's channels, oldest first.
        pub channels: Vec<NotificationChannel>,
        /// What they are notified of.
        pub events: BTreeSet<NotificationEvent>,
        /// The sessions that they are notified of; all that they may vote in if null.
        #[serde(default)]
        pub sessions: Option<BTreeSet<SessionId>>,
        /// When they are not notified; null if they always are.
        #[serde(default)]
        pub quiet_hours: Option<QuietHours>,
        /// Whether a notification contains the command.
        pub show_command: bool,
        /// Whether a notification contains a link that votes in their name.
        pub vote_links: bool,
        /// The kinds of channels that the operator allows.
        pub kinds: Vec<ChannelKind>,
        /// Whether the operator allows vote links.
        pub vote_links_allowed: bool,
    }

    /// Changes how the caller is notified.
    #[serde(deny_unknown_fields)]
    pub struct NotificationPreferences {
        /// What they are notified of.
        pub events: BTreeSet<NotificationEvent>,
        /// The sessions that they are notified of; all that they may vote in if null.
        #[serde(default)]
        pub sessions: Option<BTreeSet<SessionId>>,
        /// When they are not notified; null if they always are.
        #[serde(default)]
        pub quiet_hours: Option<QuietHours>,
        /// Whether a notification contains the command.
        #[serde(default)]
        pub show_command: bool,
        /// Whether a notification contains a link that votes in their name.
        #[serde(default)]
        pub vote_links: bool,
    }

    /// Adds a channel.
    #[serde(deny_unknown_fields)]
    pub struct NewChannelRequest {
        /// How it reaches the caller; a browser subscribes with `/api/push/subscriptions`.
        pub kind: ChannelKind,
        /// What the caller calls it.
        pub label: String,
        /// An address that begins with https://, or an e-mail address.
        pub target: String,
        /// A secret of the caller's own that signs what is sent to a webhook, or the access token of
        /// an ntfy topic. Without one, a webhook gets a random one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub secret: Option<String>,
    }

    /// Changes a channel; what is not given stays.
    #[serde(deny_unknown_fields)]
    pub struct ChangeChannelRequest {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub label: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub enabled: Option<bool>,
    }

    /// Whether a test reached its channel.
    pub struct ChannelTest {
        pub delivered: bool,
        /// Why it did not; absent if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub error: Option<String>,
    }

    /// The public key that a browser subscribes with.
    pub struct PushKey {
        /// The uncompressed point of the VAPID key on P-256, in base64url.
        pub key: String,
    }

    /// The keys that a browser made for a subscription, in base64url.
    #[serde(deny_unknown_fields)]
    pub struct PushSubscriptionKeys {
        /// Its public key on P-256, as an uncompressed point.
        pub p256dh: String,
        /// Its authentication secret of 16 bytes.
        pub auth: String,
    }

    /// A subscription of a browser, as `PushSubscription.toJSON()` gives it.
    #[serde(deny_unknown_fields)]
    pub struct NewPushSubscription {
        /// The address of the push service for this browser.
        pub endpoint: String,
        /// The keys that what is sent there is encrypted with.
        pub keys: PushSubscriptionKeys,
        /// When the browser drops it; not used, because the push service says so too.
        #[serde(default, rename = "expirationTime", skip_serializing_if = "Option::is_none")]
        pub expiration_time: Option<f64>,
        /// What the caller calls this browser.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub label: Option<String>,
    }

    /// The subscription of a browser, which is a channel.
    pub struct PushSubscriptionCreated {
        /// Names the channel.
        pub id: String,
    }

    /// What a push message contains once it is decrypted, and what is posted to a webhook.
    pub struct GateNotification {
        /// What happened.
        pub event: GateEvent,
        /// The session of the gate.
        pub session: SessionId,
        /// What people call the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session_name: Option<String>,
        /// The gate.
        pub gate: MessageId,
        /// The digest of the action that is voted on; only if the person wants the command in
        /// notifications, because whoever guesses a command can compare it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub digest: Option<Digest>,
        /// The category of the command.
        pub category: Category,
        /// The risk of the command.
        pub risk: Risk,
        /// One line that says what happened.
        pub title: String,
        /// What else there is to know; without the person's wish, nothing of the command.
        pub body: String,
        /// The command as one line; only if the person wants it in notifications.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub command: Option<String>,
        /// When the gate times out; absent if it never does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub deadline: Option<Timestamp>,
        /// Where the card is: for a browser relative to the server, otherwise absolute.
        pub url: String,
        /// The same for every notification of one gate, so that a later one replaces an earlier one.
        pub tag: String,
    }

    /// The card behind a vote link, and whose vote it is.
    pub struct VoteLinkCard {
        /// The gate.
        pub gate: GateDetails,
        /// The participant who votes.
        pub participant: ParticipantId,
        /// The name that others see.
        pub name: String,
        /// What people call the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub session_name: Option<String>,
    }
}
