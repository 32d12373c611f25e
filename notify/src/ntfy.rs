//! Topics of an ntfy server (<https://docs.ntfy.sh/publish>).

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::json;

use crate::error::DeliveryError;
use crate::message::{ChannelMessage, Urgency};
use crate::web_target::{TargetError, WebTarget};

/// The topic that an address names: its only path segment.
pub(crate) fn topic(target: &WebTarget) -> Result<&str, TargetError> {
    let topic = target.url().path().trim_matches('/');
    let is_topic = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match (1..=64).contains(&topic.len()) && topic.chars().all(is_topic) {
        true => Ok(topic),
        false => Err(TargetError::NtfyTopic),
    }
}

/// Checks an access token, which becomes part of a header.
pub(crate) fn check_access_token(token: &str) -> Result<(), TargetError> {
    let is_visible = |c: char| c.is_ascii_graphic();
    match (1..=200).contains(&token.len()) && token.chars().all(is_visible) {
        true => Ok(()),
        false => Err(TargetError::AccessToken),
    }
}

/// The request that the server takes at its root: as JSON, so that no text can become a header.
pub(crate) fn request(
    target: &WebTarget,
    access_token: Option<&str>,
    message: &ChannelMessage,
) -> Result<(WebTarget, HeaderMap, Bytes), DeliveryError> {
    let topic = topic(target).map_err(|error| DeliveryError::Permanent(error.to_string()))?;
    let notification = &message.notification;
    let priority = match message.urgency {
        Urgency::Low => 2,
        Urgency::Normal => 3,
        Urgency::High => 4,
    };
    let body = json!({
        "topic": topic,
        "title": notification.title,
        "message": notification.body,
        "priority": priority,
        "tags": ["pvp", notification.category.as_str()],
        "click": notification.url,
        "actions": [
            { "action": "view", "label": message.link_label, "url": notification.url, "clear": true },
        ],
    });
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(token) = access_token {
        let unusable = |_| DeliveryError::Permanent("its access token cannot be used".to_owned());
        let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(unusable)?;
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
    }
    Ok((target.with_path("/"), headers, body.to_string().into()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::addresses::AddressPolicy;
    use crate::test_message;
    use crate::web_target::AddressSource;

    fn target(text: &str) -> WebTarget {
        WebTarget::parse(text, AddressSource::Person, &AddressPolicy::default()).unwrap()
    }

    #[test]
    fn a_message_goes_to_the_topic_with_title_priority_link_and_action() {
        let target = target("https://ntfy.sh/ops-topic");
        let (root, headers, body) = request(&target, Some("tk_1"), &test_message()).unwrap();
        assert_eq!(root.url().as_str(), "https://ntfy.sh/");
        assert_eq!(headers["authorization"], "Bearer tk_1");
        let body: Value = serde_json::from_slice(&body).unwrap();
        let url = "https://pvp.example.com/#session=night&gate=g1";
        let action =
            json!({ "action": "view", "label": "Open the card", "url": url, "clear": true });
        assert_eq!(
            body,
            json!({
                "topic": "ops-topic", "title": "A command waits", "message": "session night",
                "priority": 4, "tags": ["pvp", "destructive"], "click": url, "actions": [action],
            })
        );
    }

    #[test]
    fn an_address_names_exactly_one_topic() {
        assert_eq!(topic(&target("https://ntfy.sh/a_B-9/")), Ok("a_B-9"));
        let long = format!("https://ntfy.sh/{}", "a".repeat(65));
        for bad in [
            "https://ntfy.sh",
            "https://ntfy.sh/a/b",
            "https://ntfy.sh/a%20b",
            &long,
        ] {
            assert_eq!(topic(&target(bad)), Err(TargetError::NtfyTopic), "{bad}");
        }
        assert!(check_access_token("tk_0aZ").is_ok());
        for bad in ["", "a b", "a\r\nX: y", "é"] {
            assert_eq!(
                check_access_token(bad),
                Err(TargetError::AccessToken),
                "{bad}"
            );
        }
    }
}
