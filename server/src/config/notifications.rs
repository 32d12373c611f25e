//! The settings of the operator for notifications: what people may add, and what the server needs for
//! it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use pvp_notify::{AddressPolicy, AddressSource, MailSecurity, TrustedHost, WebTarget};
use pvp_protocol::api::{ChannelKind, NotificationEvent};
use pvp_protocol::suggestion::suggest_in;
use serde::{Deserialize, Deserializer};
use toml::Value;

use super::SettingValue;

/// The most webhooks that the operator may define.
const MAX_HOOKS: usize = 32;

/// How people are notified, as far as the operator decides it.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NotificationConfig {
    /// The kinds of channels that people may add; e-mail only if there is a relay for it.
    pub kinds: BTreeSet<ChannelKind>,
    /// Hosts that people may name although they are not on the public Internet.
    #[serde(deserialize_with = "trusted_hosts")]
    pub trusted_hosts: Vec<TrustedHost>,
    /// Whether people may have links in their notifications that vote for them.
    pub vote_links: bool,
    /// How many seconds before the deadline of a gate it counts as closing.
    pub closing_seconds: u64,
    /// Whom push services may ask about this server: a `mailto:` or `https:` address.
    pub contact: Option<String>,
    /// The relay that takes e-mail.
    pub smtp: Option<SmtpConfig>,
    /// Webhooks of the operator, which are told of every gate of every session.
    pub hooks: Vec<HookConfig>,
}

impl Default for NotificationConfig {
    fn default() -> Self {
        Self {
            kinds: ChannelKind::ALL.iter().copied().collect(),
            trusted_hosts: Vec::new(),
            vote_links: false,
            closing_seconds: 60,
            contact: None,
            smtp: None,
            hooks: Vec::new(),
        }
    }
}

/// Addresses of webhooks are as secret as passwords, and the settings may end up in a log.
impl std::fmt::Debug for NotificationConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match *self == Self::default() {
            true => "{}",
            false => "{…}",
        })
    }
}

/// How the connection to a mail relay is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SmtpSecurity {
    #[default]
    StartTls,
    Tls,
    Plain,
}

impl From<SmtpSecurity> for MailSecurity {
    fn from(security: SmtpSecurity) -> Self {
        match security {
            SmtpSecurity::StartTls => MailSecurity::StartTls,
            SmtpSecurity::Tls => MailSecurity::Tls,
            SmtpSecurity::Plain => MailSecurity::Plain,
        }
    }
}

/// The relay that takes e-mail.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmtpConfig {
    /// Its host.
    pub host: String,
    /// Its port; the usual one of its security if not given.
    #[serde(default)]
    pub port: Option<u16>,
    /// `starttls`, `tls` from the start, or `plain` for a relay on this machine.
    #[serde(default)]
    pub security: SmtpSecurity,
    /// The user to log in as.
    #[serde(default)]
    pub username: Option<String>,
    /// The file with the password of that user.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// The address that mail is from.
    pub from: String,
    /// The domains that people may have mail sent to; any if not given.
    #[serde(default)]
    pub domains: BTreeSet<String>,
}

/// A webhook of the operator.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookConfig {
    /// `webhook`, `slack`, `discord` or `ntfy`.
    #[serde(default = "webhook")]
    pub kind: ChannelKind,
    /// Its address, which may be on a private network.
    pub url: String,
    /// The file with the secret that signs what a webhook gets, or with the access token for ntfy.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// What it is told of.
    #[serde(default = "all_events")]
    pub events: BTreeSet<NotificationEvent>,
    /// Whether it is told the commands.
    #[serde(default)]
    pub show_command: bool,
}

fn webhook() -> ChannelKind {
    ChannelKind::Webhook
}

/// What everybody is told of who says nothing else.
pub(crate) fn all_events() -> BTreeSet<NotificationEvent> {
    NotificationEvent::ALL.iter().copied().collect()
}

fn trusted_hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<TrustedHost>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let parse = |text: &String| {
        TrustedHost::parse(text).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "`trusted_hosts` contains `{text}`; use names such as ntfy.lan or ntfy.lan:8080"
            ))
        })
    };
    texts.iter().map(parse).collect()
}

impl SettingValue for NotificationConfig {
    fn read(value: &Value) -> Option<Self> {
        parse(value).ok()
    }

    fn problem(value: &Value) -> Option<String> {
        parse(value).err()
    }
}

/// Reads a table, or the text of one as a variable holds it.
fn parse(value: &Value) -> Result<NotificationConfig, String> {
    let config = match value {
        Value::String(text) => toml::from_str(text),
        Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_) => value.clone().try_into(),
    };
    let config: NotificationConfig =
        config.map_err(|error: toml::de::Error| suggest_in(error.message()))?;
    config.check()?;
    Ok(config)
}

impl NotificationConfig {
    fn check(&self) -> Result<(), String> {
        if !(5..=3600).contains(&self.closing_seconds) {
            return Err("`closing_seconds` is 5 to 3600".to_owned());
        }
        let is_contact =
            |text: &String| text.starts_with("mailto:") || text.starts_with("https://");
        if self.contact.as_ref().is_some_and(|text| !is_contact(text)) {
            return Err("`contact` begins with mailto: or https://".to_owned());
        }
        if self.hooks.len() > MAX_HOOKS {
            return Err(format!("there are at most {MAX_HOOKS} `hooks`"));
        }
        self.smtp.as_ref().map_or(Ok(()), SmtpConfig::check)?;
        self.hooks.iter().try_for_each(HookConfig::check)
    }

    /// The kinds of channels that people may add.
    pub(crate) fn allowed_kinds(&self) -> Vec<ChannelKind> {
        let mut kinds: Vec<_> = self.kinds.iter().copied().collect();
        kinds.retain(|kind| *kind != ChannelKind::Email || self.smtp.is_some());
        kinds
    }

    /// What people may have the server connect to.
    pub(crate) fn address_policy(&self) -> AddressPolicy {
        AddressPolicy::new(self.trusted_hosts.iter().cloned())
    }
}

impl SmtpConfig {
    fn check(&self) -> Result<(), String> {
        if self.username.is_some() != self.password_file.is_some() {
            return Err("`smtp` has both `username` and `password_file`, or neither".to_owned());
        }
        let address = self.host.parse::<IpAddr>();
        let is_local = self.host == "localhost" || address.is_ok_and(|ip| ip.is_loopback());
        if self.security == SmtpSecurity::Plain && self.username.is_some() && !is_local {
            return Err(
                "`smtp` would send its password in the clear; use `security = \"starttls\"`"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

impl HookConfig {
    fn check(&self) -> Result<(), String> {
        let policy = AddressPolicy::default();
        // The address itself may be secret.
        WebTarget::parse(&self.url, AddressSource::Operator, &policy)
            .map_err(|error| format!("the `url` of one of the `hooks` cannot be used: {error}"))?;
        match (self.kind, &self.secret_file) {
            (ChannelKind::Push | ChannelKind::Email, _) => {
                Err("the `kind` of `hooks` is webhook, ntfy, slack or discord".to_owned())
            }
            (ChannelKind::Webhook, None) => Err(
                "a webhook among the `hooks` needs a `secret_file`, with which its receiver checks who sends"
                    .to_owned(),
            ),
            (ChannelKind::Slack | ChannelKind::Discord, Some(_)) => {
                Err("`hooks` of kind slack and discord have no `secret_file`".to_owned())
            }
            (ChannelKind::Webhook | ChannelKind::Ntfy, Some(_))
            | (ChannelKind::Ntfy | ChannelKind::Slack | ChannelKind::Discord, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ServerConfig;
    use super::*;

    fn load(text: &str) -> Result<NotificationConfig, String> {
        let file = format!("[notifications]\n{text}");
        let loaded = ServerConfig::load(Some(("pvp.toml", &file)), [], &[]);
        loaded
            .map(|config| config.notifications)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn everything_can_be_set_and_the_defaults_are_safe() {
        let usual = load("").unwrap();
        assert_eq!(usual, NotificationConfig::default());
        assert!(!usual.vote_links && usual.trusted_hosts.is_empty());
        assert!(
            !usual.allowed_kinds().contains(&ChannelKind::Email),
            "there is no relay"
        );
        let config = load(
            r#"
            kinds = ["push", "email", "ntfy"]
            trusted_hosts = ["ntfy.lan:8080"]
            vote_links = true
            closing_seconds = 30
            contact = "mailto:ops@example.com"
            [notifications.smtp]
            host = "mail.example.com"
            username = "pvp"
            password_file = "/run/secrets/smtp"
            from = "PVP <pvp@example.com>"
            domains = ["example.com"]
            [[notifications.hooks]]
            url = "http://10.0.0.1:9/x"
            secret_file = "/run/secrets/hook"
            events = ["escalated"]
            [[notifications.hooks]]
            kind = "slack"
            url = "https://hooks.example.com/x"
            show_command = true
            "#,
        )
        .unwrap();
        use ChannelKind::{Email, Ntfy, Push};
        assert_eq!(config.allowed_kinds(), [Push, Ntfy, Email]);
        assert_eq!(config.hooks.len(), 2);
        assert_eq!(config.hooks[1].events, all_events());
        assert_eq!(format!("{config:?}"), "{…}", "nothing secret is shown");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, problem) in [
            ("closing_second = 5", "did you mean `closing_seconds`?"),
            ("closing_seconds = 1", "`closing_seconds` is 5 to 3600"),
            ("kinds = [\"fax\"]", "fax"),
            (
                "trusted_hosts = [\"http://x\"]",
                "use names such as ntfy.lan",
            ),
            ("contact = \"ops\"", "`contact` begins with mailto:"),
            ("hooks = [{ url = \"http://x/\" }]", "needs a `secret_file`"),
            ("hooks = [{ url = \"ftp://x/\" }]", "cannot be used"),
            (
                "hooks = [{ kind = \"email\", url = \"http://x/\" }]",
                "the `kind` of `hooks`",
            ),
            ("smtp = { host = \"m\" }", "missing field `from`"),
            (
                "smtp = { host = \"m\", from = \"a@b\", username = \"u\" }",
                "or neither",
            ),
            (
                "smtp = { host = \"m\", from = \"a@b\", username = \"u\", password_file = \"p\", security = \"plain\" }",
                "in the clear",
            ),
        ] {
            let error = load(text).unwrap_err();
            assert!(
                error.starts_with("pvp.toml:1: `notifications`: "),
                "{error}"
            );
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn a_variable_holds_the_table_as_text() {
        let variable = (
            "PVP_NOTIFICATIONS".to_owned(),
            "closing_seconds = 7".to_owned(),
        );
        let config = ServerConfig::load(None, [variable], &[]).unwrap();
        assert_eq!(config.notifications.closing_seconds, 7);
    }
}
