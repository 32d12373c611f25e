//! Where a channel leads, as it is stored.

use pvp_protocol::api::{ChannelKind, NewChannelRequest};
use serde::{Deserialize, Serialize};

use crate::addresses::AddressPolicy;
use crate::email::MailRelay;
use crate::ntfy;
use crate::push::PushSubscription;
use crate::web_target::{AddressSource, TargetError, WebTarget};
use crate::webhook::WebhookSecret;

/// Where a channel leads. All of it is as secret as a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ChannelTarget {
    Push(PushSubscription),
    Webhook {
        url: String,
        secret: WebhookSecret,
    },
    Ntfy {
        url: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        access_token: Option<String>,
    },
    Slack {
        url: String,
    },
    Discord {
        url: String,
    },
    Email {
        address: String,
    },
}

impl std::fmt::Debug for ChannelTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind(), self.masked())
    }
}

impl ChannelTarget {
    /// Checks what somebody wants to add. `relay` is `None` if the operator has none.
    pub fn parse(
        request: &NewChannelRequest,
        source: AddressSource,
        policy: &AddressPolicy,
        relay: Option<&MailRelay>,
    ) -> Result<Self, TargetError> {
        let url = request.target.trim().to_owned();
        let web = || WebTarget::parse(&url, source, policy);
        Ok(match request.kind {
            // A browser gives its keys by another way.
            ChannelKind::Push => return Err(TargetError::PushKeys),
            ChannelKind::Webhook => {
                web()?;
                let secret = request.secret.as_deref().map(WebhookSecret::parse);
                let secret = secret.unwrap_or_else(|| Ok(WebhookSecret::generate()))?;
                Self::Webhook { url, secret }
            }
            ChannelKind::Ntfy => {
                ntfy::topic(&web()?)?;
                let access_token = request.secret.clone();
                if let Some(token) = &access_token {
                    ntfy::check_access_token(token)?;
                }
                Self::Ntfy { url, access_token }
            }
            ChannelKind::Slack => {
                web()?;
                Self::Slack { url }
            }
            ChannelKind::Discord => {
                web()?;
                Self::Discord { url }
            }
            ChannelKind::Email => {
                let relay = relay.ok_or(TargetError::NotAMailbox)?;
                let address = relay.parse_address(&request.target)?;
                Self::Email { address }
            }
        })
    }

    pub fn kind(&self) -> ChannelKind {
        match self {
            Self::Push(_) => ChannelKind::Push,
            Self::Webhook { .. } => ChannelKind::Webhook,
            Self::Ntfy { .. } => ChannelKind::Ntfy,
            Self::Slack { .. } => ChannelKind::Slack,
            Self::Discord { .. } => ChannelKind::Discord,
            Self::Email { .. } => ChannelKind::Email,
        }
    }

    /// Its address of the web; `None` if it is e-mail.
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Push(subscription) => Some(&subscription.endpoint),
            Self::Webhook { url, .. }
            | Self::Ntfy { url, .. }
            | Self::Slack { url }
            | Self::Discord { url } => Some(url),
            Self::Email { .. } => None,
        }
    }

    /// Where it leads, without what lets others use it.
    pub fn masked(&self) -> String {
        match (self, self.url()) {
            (Self::Email { address }, _) => mask_mailbox(address),
            (_, url) => {
                // Whatever was stored was checked; the operator may have changed what is trusted.
                let policy = AddressPolicy::default();
                let url = url.unwrap_or_default();
                let target = WebTarget::parse(url, AddressSource::Operator, &policy);
                target.map_or_else(|_| "…".to_owned(), |target| target.masked())
            }
        }
    }

    /// Whether only one person reads what is sent there, as far as can be known: not a room, and not
    /// a topic that is open to whoever knows its name.
    pub fn is_personal(&self) -> bool {
        match self {
            Self::Push(_) | Self::Webhook { .. } | Self::Email { .. } => true,
            Self::Ntfy { access_token, .. } => access_token.is_some(),
            Self::Slack { .. } | Self::Discord { .. } => false,
        }
    }
}

/// The first character of the name, and the domain.
fn mask_mailbox(address: &str) -> String {
    let (name, domain) = address.rsplit_once('@').unwrap_or(("", address));
    let first: String = name.chars().take(1).collect();
    format!("{first}…@{domain}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(
        kind: ChannelKind,
        target: &str,
        secret: Option<&str>,
    ) -> Result<ChannelTarget, TargetError> {
        let request = NewChannelRequest {
            kind,
            label: "x".to_owned(),
            target: target.to_owned(),
            secret: secret.map(str::to_owned),
        };
        let policy = AddressPolicy::default();
        ChannelTarget::parse(&request, AddressSource::Person, &policy, None)
    }

    #[test]
    fn every_kind_checks_its_target() {
        for kind in [
            ChannelKind::Webhook,
            ChannelKind::Ntfy,
            ChannelKind::Slack,
            ChannelKind::Discord,
        ] {
            assert!(
                parse(kind, "https://example.com/topic", None).is_ok(),
                "{kind}"
            );
            for bad in [
                "http://example.com/topic",
                "https://127.0.0.1/topic",
                "topic",
            ] {
                assert!(parse(kind, bad, None).is_err(), "{kind} {bad}");
            }
        }
        let mail = parse(ChannelKind::Email, "ann@example.com", None);
        assert_eq!(mail, Err(TargetError::NotAMailbox), "there is no relay");
        let push = parse(ChannelKind::Push, "https://push.example.com/x", None);
        assert_eq!(push, Err(TargetError::PushKeys));
    }

    #[test]
    fn what_is_secret_is_in_neither_the_mask_nor_the_logs() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let targets = [
            parse(
                ChannelKind::Webhook,
                "https://example.com/hidden",
                Some(secret),
            )
            .unwrap(),
            parse(ChannelKind::Slack, "https://example.com/hidden", None).unwrap(),
            parse(
                ChannelKind::Ntfy,
                "https://example.com/hidden",
                Some("hidden"),
            )
            .unwrap(),
            ChannelTarget::Email {
                address: "hidden@example.com".to_owned(),
            },
        ];
        for target in targets {
            let shown = format!("{} {target:?}", target.masked());
            assert!(
                !shown.contains("idden") && !shown.contains("whsec"),
                "{shown}"
            );
            assert!(shown.contains("example.com"), "{shown}");
            let stored = serde_json::to_string(&target).unwrap();
            assert_eq!(
                serde_json::from_str::<ChannelTarget>(&stored).unwrap(),
                target
            );
        }
    }

    #[test]
    fn a_room_is_not_personal() {
        let is_personal = |kind, secret| {
            parse(kind, "https://example.com/topic", secret)
                .unwrap()
                .is_personal()
        };
        assert!(is_personal(ChannelKind::Webhook, None));
        assert!(is_personal(ChannelKind::Ntfy, Some("tk_1")));
        assert!(!is_personal(ChannelKind::Ntfy, None));
        assert!(!is_personal(ChannelKind::Slack, None));
        assert!(!is_personal(ChannelKind::Discord, None));
    }
}
