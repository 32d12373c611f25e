//! Sends a message over whatever kind of channel.

use std::sync::OnceLock;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderValue};
use pvp_protocol::Timestamp;
use serde_json::Value;

use crate::addresses::AddressPolicy;
use crate::email::MailRelay;
use crate::error::DeliveryError;
use crate::message::ChannelMessage;
use crate::push::VapidKey;
use crate::target::ChannelTarget;
use crate::web_poster::WebPoster;
use crate::web_target::{AddressSource, WebTarget};
use crate::{chat, ntfy, push, webhook};

/// Everything that sending needs.
#[derive(Default)]
pub struct ChannelSender {
    poster: WebPoster,
    policy: AddressPolicy,
    relay: OnceLock<MailRelay>,
    vapid: OnceLock<VapidKey>,
}

impl ChannelSender {
    pub fn new(poster: WebPoster, policy: AddressPolicy) -> Self {
        Self {
            poster,
            policy,
            relay: OnceLock::new(),
            vapid: OnceLock::new(),
        }
    }

    /// Sends e-mail through this relay from now on; a second one is not taken.
    pub fn set_relay(&self, relay: MailRelay) {
        let _ = self.relay.set(relay);
    }

    /// Sends push messages with this key from now on; a second one is not taken.
    pub fn set_vapid_key(&self, key: VapidKey) {
        let _ = self.vapid.set(key);
    }

    pub fn relay(&self) -> Option<&MailRelay> {
        self.relay.get()
    }

    pub fn vapid_key(&self) -> Option<&VapidKey> {
        self.vapid.get()
    }

    pub fn policy(&self) -> &AddressPolicy {
        &self.policy
    }

    /// Sends a message once.
    pub async fn send(
        &self,
        target: &ChannelTarget,
        source: AddressSource,
        message: &ChannelMessage,
    ) -> Result<(), DeliveryError> {
        let now = wall_time();
        let missing = |what: &str| DeliveryError::Permanent(format!("this server has no {what}"));
        // Checked again each time: the operator may trust other hosts by now.
        let web = |url: &str| self.web_target(url, source);
        let (target, headers, body) = match target {
            ChannelTarget::Email { address } => {
                let relay = self.relay().ok_or_else(|| missing("mail relay"))?;
                return relay.send(address, message).await;
            }
            ChannelTarget::Push(subscription) => {
                let key = self.vapid_key().ok_or_else(|| missing("push key"))?;
                let target = web(&subscription.endpoint)?;
                let (headers, body) = push::request(subscription, &target, message, key, now)?;
                (target, headers, body)
            }
            ChannelTarget::Webhook { url, secret } => {
                let (headers, body) = webhook::request(secret, message, now)?;
                (web(url)?, headers, body)
            }
            ChannelTarget::Ntfy { url, access_token } => {
                ntfy::request(&web(url)?, access_token.as_deref(), message)?
            }
            ChannelTarget::Slack { url } => json_request(web(url)?, &chat::slack_body(message)),
            ChannelTarget::Discord { url } => json_request(web(url)?, &chat::discord_body(message)),
        };
        self.poster.post(&target, headers, body).await
    }

    fn web_target(&self, url: &str, source: AddressSource) -> Result<WebTarget, DeliveryError> {
        WebTarget::parse(url, source, &self.policy)
            .map_err(|error| DeliveryError::Permanent(error.to_string()))
    }
}

/// The time of day of this machine, by which receivers judge how old a signature is. The clock of the
/// server does not follow when that is set.
pub(crate) fn wall_time() -> Timestamp {
    let difference = pvp_clock::difference_from_wall();
    Timestamp::from_millis(
        pvp_clock::now()
            .as_millis()
            .saturating_add_signed(difference),
    )
}

fn json_request(target: WebTarget, body: &Value) -> (WebTarget, HeaderMap, Bytes) {
    let json = HeaderValue::from_static("application/json");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
    (target, headers, body.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed_has_the_time_of_day_although_the_server_s_clock_is_ahead() {
        let tomorrow = wall_time().plus_seconds(86_400);
        pvp_clock::not_before(tomorrow);
        assert!(pvp_clock::now() >= tomorrow);
        assert!(wall_time() < tomorrow);
    }
}
