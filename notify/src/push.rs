//! Web Push: messages to a browser, encrypted for it alone (RFC 8030, 8291, 8292).

mod encryption;
mod vapid;

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use pvp_protocol::Timestamp;
use pvp_protocol::api::NewPushSubscription;
use serde::{Deserialize, Serialize};

use crate::error::DeliveryError;
use crate::message::{ChannelMessage, Urgency};
use crate::web_target::{TargetError, WebTarget};

pub use vapid::{VapidKey, VapidKeyError};

/// A browser that has subscribed: where its push service is, and the keys that only it can decrypt
/// with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushSubscription {
    pub(crate) endpoint: String,
    p256dh: String,
    auth: String,
}

impl PushSubscription {
    /// Checks the keys of a subscription; its address is checked by whoever posts there.
    pub fn parse(subscription: &NewPushSubscription) -> Result<Self, TargetError> {
        let keys = &subscription.keys;
        let canonical = |text: &str| Some(BASE64URL_NOPAD.encode(&decode(text)?));
        let parsed = Self {
            endpoint: subscription.endpoint.clone(),
            p256dh: canonical(&keys.p256dh).ok_or(TargetError::PushKeys)?,
            auth: canonical(&keys.auth).ok_or(TargetError::PushKeys)?,
        };
        // Encrypting for it is the only complete check of a public key.
        parsed.encrypt(b"").ok_or(TargetError::PushKeys)?;
        Ok(parsed)
    }

    fn encrypt(&self, plaintext: &[u8]) -> Option<Vec<u8>> {
        let receiver = encryption::ReceiverKeys {
            public: decode(&self.p256dh)?.try_into().ok()?,
            auth: decode(&self.auth)?.try_into().ok()?,
        };
        encryption::encrypt(&receiver, plaintext)
    }
}

/// Decodes base64url, with or without padding: browsers leave it out, some libraries do not.
fn decode(text: &str) -> Option<Vec<u8>> {
    let unpadded = text.trim_end_matches('=');
    let is_padded_well = text.len() - unpadded.len() <= 2;
    is_padded_well.then(|| BASE64URL_NOPAD.decode(unpadded.as_bytes()).ok())?
}

/// The request that a push service takes.
pub(crate) fn request(
    subscription: &PushSubscription,
    target: &WebTarget,
    message: &ChannelMessage,
    key: &VapidKey,
    now: Timestamp,
) -> Result<(HeaderMap, Bytes), DeliveryError> {
    let unusable = || DeliveryError::Permanent("its keys cannot be used".to_owned());
    let plaintext = serde_json::to_vec(&message.notification);
    let plaintext = plaintext.map_err(|_| unusable())?;
    let body = subscription.encrypt(&plaintext).ok_or_else(unusable)?;
    let authorization = key.authorization(&target.origin(), now);
    let authorization = HeaderValue::from_str(&authorization).map_err(|_| unusable())?;
    let topic = HeaderValue::from_str(&message.notification.tag).map_err(|_| unusable())?;
    let urgency = match message.urgency {
        Urgency::Low => "low",
        Urgency::Normal => "normal",
        Urgency::High => "high",
    };
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, authorization);
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("aes128gcm"));
    headers.insert("ttl", HeaderValue::from(message.ttl_seconds));
    headers.insert("urgency", HeaderValue::from_static(urgency));
    headers.insert("topic", topic);
    Ok((headers, body.into()))
}

#[cfg(test)]
mod tests {
    use pvp_protocol::api::PushSubscriptionKeys;

    use super::*;

    fn subscription(p256dh: &str, auth: &str) -> NewPushSubscription {
        NewPushSubscription {
            endpoint: "https://push.example.com/x".to_owned(),
            keys: PushSubscriptionKeys {
                p256dh: p256dh.to_owned(),
                auth: auth.to_owned(),
            },
            expiration_time: None,
            label: None,
        }
    }

    // From RFC 8291, appendix A.
    const P256DH: &str =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

    #[test]
    fn only_the_keys_of_a_browser_are_taken() {
        assert!(PushSubscription::parse(&subscription(P256DH, AUTH)).is_ok());
        let padded = subscription(&format!("{P256DH}="), &format!("{AUTH}=="));
        let plain = PushSubscription::parse(&subscription(P256DH, AUTH));
        assert_eq!(PushSubscription::parse(&padded), plain, "stored alike");
        let overlong = format!("{P256DH}{}", "=".repeat(60_000));
        // A point that is not on the curve would tell something about the key that meets it.
        let off_curve = P256DH.replace("iw4", "iw8");
        let compressed = BASE64URL_NOPAD.encode(&[2; 33]);
        for (p256dh, auth) in [
            ("", AUTH),
            (P256DH, ""),
            (&P256DH[..80], AUTH),
            (off_curve.as_str(), AUTH),
            (compressed.as_str(), AUTH),
            (P256DH, &AUTH[..20]),
            (overlong.as_str(), AUTH),
            ("not base64!", AUTH),
        ] {
            let parsed = PushSubscription::parse(&subscription(p256dh, auth));
            assert_eq!(parsed, Err(TargetError::PushKeys), "{p256dh} {auth}");
        }
    }
}
