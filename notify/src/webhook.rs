//! Webhooks, signed as <https://www.standardwebhooks.com> describes.
//!
//! The signature covers the id, the time and the body, so that a receiver can refuse what was altered,
//! what is old and what it has seen before.

use bytes::Bytes;
use data_encoding::BASE64;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use pvp_protocol::Timestamp;
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::error::DeliveryError;
use crate::message::ChannelMessage;
use crate::web_target::TargetError;

const SECRET_PREFIX: &str = "whsec_";

/// Bytes of a secret that the server makes.
const SECRET_BYTES: usize = 32;

/// The secret that signs what is sent to one webhook.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WebhookSecret(String);

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookSecret(…)")
    }
}

impl WebhookSecret {
    /// A random one.
    pub fn generate() -> Self {
        let bytes = pvp_clock::random_bytes::<SECRET_BYTES>();
        Self(format!("{SECRET_PREFIX}{}", BASE64.encode(&bytes)))
    }

    /// One that somebody chose.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let secret = Self(text.to_owned());
        match secret.bytes() {
            Some(bytes) if (24..=64).contains(&bytes.len()) => Ok(secret),
            Some(_) | None => Err(TargetError::WebhookSecret),
        }
    }

    /// The text to give to the receiver.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        let encoded = self.0.strip_prefix(SECRET_PREFIX)?;
        BASE64.decode(encoded.as_bytes()).ok()
    }

    fn sign(&self, id: &str, seconds: u64, body: &[u8]) -> Option<String> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.bytes()?);
        let mut signed = format!("{id}.{seconds}.").into_bytes();
        signed.extend(body);
        let signature = hmac::sign(&key, &signed);
        Some(format!("v1,{}", BASE64.encode(signature.as_ref())))
    }
}

/// The request that a webhook gets.
pub(crate) fn request(
    secret: &WebhookSecret,
    message: &ChannelMessage,
    now: Timestamp,
) -> Result<(HeaderMap, Bytes), DeliveryError> {
    let unusable = || DeliveryError::Permanent("its signing secret cannot be used".to_owned());
    let body = serde_json::to_vec(&message.notification).map_err(|_| unusable())?;
    let seconds = now.as_millis() / 1000;
    let signature = secret.sign(&message.id, seconds, &body);
    let signature = signature.ok_or_else(unusable)?;
    let header = |text: &str| HeaderValue::from_str(text).map_err(|_| unusable());
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("webhook-id", header(&message.id)?);
    headers.insert("webhook-timestamp", HeaderValue::from(seconds));
    headers.insert("webhook-signature", header(&signature)?);
    Ok((headers, body.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard_is_signed_as_it_says() {
        let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = secret.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signature.as_deref(), Some(expected));
    }

    #[test]
    fn a_secret_is_long_enough_and_never_shown_by_accident() {
        let secret = WebhookSecret::generate();
        assert_eq!(WebhookSecret::parse(secret.reveal()), Ok(secret.clone()));
        assert_eq!(format!("{secret:?}"), "WebhookSecret(…)");
        for bad in ["", "secret", "whsec_", "whsec_c2hvcnQ=", "whsec_!!"] {
            let parsed = WebhookSecret::parse(bad);
            assert_eq!(parsed, Err(TargetError::WebhookSecret), "{bad}");
        }
    }
}
