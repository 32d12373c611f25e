//! E-mail, through the relay that the operator names.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use lettre::address::AddressError;
use lettre::message::Mailbox;
use lettre::message::header::{ContentType, Header, HeaderName, HeaderValue};
use lettre::transport::smtp;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};

use crate::error::DeliveryError;
use crate::message::ChannelMessage;
use crate::web_target::TargetError;

/// How long a relay may take for one command.
const RELAY_TIMEOUT: Duration = Duration::from_secs(15);

/// How the connection to the relay is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailSecurity {
    /// It begins in the clear and must become encrypted before anything is said.
    StartTls,
    /// It is encrypted from the start.
    Tls,
    /// It is not; for a relay on the same machine.
    Plain,
}

/// What the operator says about the relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailRelayConfig {
    /// Its host.
    pub host: String,
    /// Its port; the usual one of its security if `None`.
    pub port: Option<u16>,
    /// How the connection is protected.
    pub security: MailSecurity,
    /// The user name and the password, if it wants them.
    pub credentials: Option<(String, String)>,
    /// The address that the mail is from, perhaps with a name.
    pub from: String,
    /// The domains that mail may go to; any if empty.
    pub domains: BTreeSet<String>,
    /// What this server calls itself.
    pub hello: String,
}

/// Why a relay cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MailRelayError {
    #[error("`from` is not an e-mail address: {0}")]
    From(#[from] AddressError),
    #[error("TLS cannot be used: {0}")]
    Tls(#[from] smtp::Error),
}

/// The relay that takes mail for delivery.
pub struct MailRelay {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    domains: BTreeSet<String>,
    hello: String,
}

impl MailRelay {
    pub fn new(config: MailRelayConfig) -> Result<Self, MailRelayError> {
        let (tls, usual_port) = match config.security {
            MailSecurity::StartTls => (Tls::Required(tls_for(&config.host)?), 587),
            MailSecurity::Tls => (Tls::Wrapper(tls_for(&config.host)?), 465),
            MailSecurity::Plain => (Tls::None, 25),
        };
        let mut builder =
            AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(config.host.as_str())
                .port(config.port.unwrap_or(usual_port))
                .tls(tls)
                .hello_name(hello_name(&config.hello))
                .timeout(Some(RELAY_TIMEOUT));
        if let Some((user, password)) = config.credentials {
            builder = builder.credentials(Credentials::new(user, password));
        }
        Ok(Self {
            transport: builder.build(),
            from: config.from.parse()?,
            domains: config.domains,
            hello: hello_name(&config.hello).to_string(),
        })
    }

    /// Checks an address that somebody wants mail at.
    pub(crate) fn parse_address(&self, text: &str) -> Result<String, TargetError> {
        let address: Address = text.trim().parse().map_err(|_| TargetError::NotAMailbox)?;
        let domain = address.domain().to_ascii_lowercase();
        if self.domains.contains(&domain) {
            return Ok(address.to_string());
        }
        if !is_public_mailbox(&address) {
            return Err(TargetError::NotAMailbox);
        }
        match self.domains.is_empty() {
            true => Ok(address.to_string()),
            false => Err(TargetError::MailDomain),
        }
    }

    pub(crate) async fn send(
        &self,
        to: &str,
        message: &ChannelMessage,
    ) -> Result<(), DeliveryError> {
        let refused = |error: TargetError| DeliveryError::Permanent(error.to_string());
        let to = self.parse_address(to).map_err(refused)?;
        let mail = self.compose(&to, message)?;
        match self.transport.send(mail).await {
            Ok(_) => Ok(()),
            Err(error) => Err(relay_error(&error)),
        }
    }

    fn compose(&self, to: &str, message: &ChannelMessage) -> Result<Message, DeliveryError> {
        let unusable = |_| DeliveryError::Permanent("the mail cannot be written".to_owned());
        let to: Address = to.parse().map_err(unusable)?;
        let notification = &message.notification;
        let text = format!(
            "{}\n\n{}\n\n{}:\n{}\n",
            notification.title, notification.body, message.link_label, notification.url
        );
        Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .subject(one_line(&notification.title))
            .message_id(Some(format!("<{}@{}>", message.id, self.hello)))
            .header(AutoSubmitted)
            .header(ContentType::TEXT_PLAIN)
            .body(text)
            .map_err(|_| DeliveryError::Permanent("the mail cannot be written".to_owned()))
    }
}

/// What a server that is reached by an address calls itself.
fn hello_name(host: &str) -> ClientId {
    match host.parse() {
        Ok(IpAddr::V4(address)) => ClientId::Ipv4(address),
        Ok(IpAddr::V6(address)) => ClientId::Ipv6(address),
        Err(_) => ClientId::Domain(host.to_owned()),
    }
}

/// Whether an address is one of the Internet: of a domain with a dot, and not of a host by its number.
/// A quoted name is none that people have.
fn is_public_mailbox(address: &Address) -> bool {
    let labels: Vec<_> = address.domain().trim_end_matches('.').split('.').collect();
    let is_word = |label: &&str| label.contains(|c: char| !c.is_ascii_digit());
    let is_host_name = labels.len() > 1 && labels.last().is_some_and(is_word);
    is_host_name && !address.domain().starts_with('[') && !address.user().contains('"')
}

fn tls_for(host: &str) -> Result<TlsParameters, smtp::Error> {
    TlsParameters::new(host.to_owned())
}

/// A subject cannot bring headers of its own.
fn one_line(text: &str) -> String {
    let is_break = |c: char| c.is_control() || c == '\u{2028}' || c == '\u{2029}';
    text.replace(is_break, " ")
}

/// What a relay said. Only the number: its text may repeat what it was told.
fn relay_error(error: &smtp::Error) -> DeliveryError {
    let code = error.status().map(|code| code.to_string());
    let why = match (&code, error.is_timeout()) {
        (Some(code), _) => format!("the mail relay answered {code}"),
        (None, true) => "the mail relay did not answer in time".to_owned(),
        (None, false) => "the mail relay cannot be reached".to_owned(),
    };
    tracing::debug!(%error, "a mail was not taken");
    match error.is_permanent() {
        true => DeliveryError::Permanent(why),
        false => DeliveryError::transient(why),
    }
}

/// Tells the receiver's programs not to answer.
#[derive(Clone)]
struct AutoSubmitted;

impl Header for AutoSubmitted {
    fn name() -> HeaderName {
        HeaderName::new_from_ascii_str("Auto-Submitted")
    }

    fn parse(_: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self)
    }

    fn display(&self) -> HeaderValue {
        HeaderValue::new(Self::name(), "auto-generated".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_message;

    fn relay(domains: &[&str]) -> MailRelay {
        MailRelay::new(MailRelayConfig {
            host: "127.0.0.1".to_owned(),
            port: None,
            security: MailSecurity::Plain,
            credentials: None,
            from: "PVP <pvp@example.com>".to_owned(),
            domains: domains.iter().map(|&domain| domain.to_owned()).collect(),
            hello: "pvp.example.com".to_owned(),
        })
        .unwrap()
    }

    #[test]
    fn mail_goes_to_addresses_of_the_domains_that_the_operator_names() {
        let (any, some) = (relay(&[]), relay(&["example.com"]));
        assert_eq!(
            any.parse_address(" ann@other.org"),
            Ok("ann@other.org".to_owned())
        );
        assert!(some.parse_address("ann@EXAMPLE.com").is_ok());
        let refused = some.parse_address("ann@example.com.evil.org");
        assert_eq!(refused, Err(TargetError::MailDomain));
        for bad in [
            "",
            "ann",
            "ann@",
            "@example.com",
            "ann@example.com\r\nBcc: all@example.com",
            "ann@example.com, eve@example.com",
            "Ann <ann@example.com>",
            "ann@example.com>\r\nRCPT TO:<eve@example.com",
            "ann@[127.0.0.1]",
            "ann@[IPv6:::1]",
            "ann@127.0.0.1",
            "ann@intranet",
            "ann@intranet.",
            "\"ann|sh\"@example.com",
        ] {
            assert_eq!(
                any.parse_address(bad),
                Err(TargetError::NotAMailbox),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn a_domain_that_the_operator_names_needs_no_dot() {
        let address = relay(&["intranet"]).parse_address("ann@intranet");
        assert_eq!(address, Ok("ann@intranet".to_owned()));
    }

    #[test]
    fn a_server_that_is_reached_by_an_address_says_so_in_brackets() {
        assert_eq!(hello_name("pvp.example.com").to_string(), "pvp.example.com");
        assert_eq!(hello_name("192.0.2.1").to_string(), "[192.0.2.1]");
        assert_eq!(hello_name("2001:db8::1").to_string(), "[IPv6:2001:db8::1]");
    }

    #[test]
    fn a_relay_may_be_reached_in_every_way_and_needs_a_sender() {
        for security in [
            MailSecurity::StartTls,
            MailSecurity::Tls,
            MailSecurity::Plain,
        ] {
            let config = MailRelayConfig {
                host: "mail.example.com".to_owned(),
                port: None,
                security,
                credentials: Some(("pvp".to_owned(), "secret".to_owned())),
                from: "pvp@example.com".to_owned(),
                domains: BTreeSet::new(),
                hello: "localhost".to_owned(),
            };
            let nobody = MailRelayConfig {
                from: "nobody".to_owned(),
                ..config.clone()
            };
            assert!(MailRelay::new(config).is_ok(), "{security:?}");
            assert!(MailRelay::new(nobody).is_err());
        }
    }

    #[test]
    fn no_text_becomes_a_header() {
        let mut message = test_message();
        message.notification.title = "x\r\nBcc: all@example.com\r\n\r\n<b>".to_owned();
        message.notification.body = "\r\n.\r\nMAIL FROM:<eve@example.com>\r\nü".to_owned();
        let mail = relay(&[]).compose("ann@example.com", &message).unwrap();
        let mail = String::from_utf8(mail.formatted()).unwrap();
        let (head, _) = mail.split_once("\r\n\r\n").unwrap();
        let mut names: Vec<_> = head
            .split("\r\n")
            .filter(|line| !line.starts_with(' '))
            .map(|line| line.split_once(": ").unwrap().0)
            .collect();
        names.sort_unstable();
        let expected = [
            "Auto-Submitted",
            "Content-Transfer-Encoding",
            "Content-Type",
            "Date",
            "From",
            "Message-ID",
            "Subject",
            "To",
        ];
        assert_eq!(names, expected);
        assert_eq!(
            mail.matches("Bcc").count(),
            2,
            "in the subject and the text: {mail}"
        );
    }
}
