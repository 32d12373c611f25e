//! Reaches people outside of a session: Web Push, webhooks, ntfy, Slack, Discord and e-mail.
//!
//! This crate knows what a notification says and where it goes. Who is told what, and when, is decided
//! by whoever uses it.

mod addresses;
mod chat;
mod email;
mod error;
mod message;
mod ntfy;
mod push;
mod queue;
mod quiet_hours;
mod sender;
mod target;
mod web_poster;
mod web_target;
mod webhook;

pub use addresses::{AddressPolicy, HostResolver, SystemResolver, TrustedHost, is_public};
pub use email::{MailRelay, MailRelayConfig, MailRelayError, MailSecurity};
pub use error::DeliveryError;
pub use message::{ChannelMessage, Urgency};
pub use push::{PushSubscription, VapidKey, VapidKeyError};
pub use queue::{
    Attempt, CountDelivery, DeliveryAddress, DeliveryCount, DeliveryOutcome, DeliveryQueue,
    PermitLimits, QueueFull, QueueLimits, QueuedDelivery,
};
pub use quiet_hours::{QuietHoursError, QuietPeriod};
pub use sender::ChannelSender;
pub use target::ChannelTarget;
pub use web_poster::WebPoster;
pub use web_target::{AddressSource, TargetError, WebTarget};
pub use webhook::WebhookSecret;

/// A message for tests.
#[cfg(test)]
fn test_message() -> ChannelMessage {
    use pvp_protocol::api::{GateEvent, GateNotification};
    use pvp_protocol::{Category, Digest, MessageId, Risk, SessionId};
    ChannelMessage {
        id: "msg_1".to_owned(),
        notification: GateNotification {
            event: GateEvent::Opened,
            session: SessionId::parse("night").unwrap(),
            session_name: None,
            gate: MessageId::parse("g1").unwrap(),
            digest: Some(Digest::of(&[b"x"])),
            category: Category::Destructive,
            risk: Risk::High,
            title: "A command waits".to_owned(),
            body: "session night".to_owned(),
            command: None,
            deadline: None,
            url: "https://pvp.example.com/#session=night&gate=g1".to_owned(),
            tag: "abc".to_owned(),
        },
        urgency: Urgency::High,
        ttl_seconds: 60,
        link_label: "Open the card".to_owned(),
    }
}
