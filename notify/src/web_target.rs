//! An address of the web that something may be posted to.

use url::{Host, Url};

use crate::addresses::{self, AddressPolicy};

/// The longest address that is taken; those of push services have a few hundred characters.
const MAX_ADDRESS_BYTES: usize = 2048;

/// Why an address is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("this is not an address of the web; use one such as https://example.com/hook")]
    NotAnAddress,
    #[error("the address has more than {MAX_ADDRESS_BYTES} characters")]
    TooLong,
    #[error(
        "the address must begin with https://, unless the operator of the server trusts its host"
    )]
    NotEncrypted,
    #[error("leave out the user name and password; the address may not have them")]
    HasCredentials,
    #[error("use port 443 or 8443, or ask the operator of the server to trust this host and port")]
    Port,
    #[error(
        "this host is not on the public Internet; ask the operator of the server to trust it if it is meant"
    )]
    NotPublic,
    #[error(
        "the topic of an ntfy server has 1 to 64 letters, digits, `_` or `-`, as in https://ntfy.sh/topic"
    )]
    NtfyTopic,
    #[error("this is not an e-mail address")]
    NotAMailbox,
    #[error("the operator of the server does not allow e-mail to this domain")]
    MailDomain,
    #[error("the keys are not those of a push subscription")]
    PushKeys,
    #[error("a signing secret is `whsec_` and 24 to 64 bytes in base64")]
    WebhookSecret,
    #[error("an access token has 1 to 200 visible ASCII characters")]
    AccessToken,
}

/// Who vouches for an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressSource {
    /// Somebody who uses the server; the address must be public.
    Person,
    /// The operator, who may name any address.
    Operator,
}

/// An address that may be posted to, as far as it can be told without looking up its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebTarget {
    url: Url,
    /// Whether its host may be on a private network.
    pub(crate) trusted: bool,
}

impl WebTarget {
    pub fn parse(
        text: &str,
        source: AddressSource,
        policy: &AddressPolicy,
    ) -> Result<Self, TargetError> {
        if text.len() > MAX_ADDRESS_BYTES {
            return Err(TargetError::TooLong);
        }
        let url = Url::parse(text).map_err(|_| TargetError::NotAnAddress)?;
        let host = url.host().ok_or(TargetError::NotAnAddress)?;
        let port = url.port_or_known_default();
        let port = port.ok_or(TargetError::NotAnAddress)?;
        let trusted = source == AddressSource::Operator || policy.trusts(&host.to_string(), port);
        match url.scheme() {
            "https" => {}
            "http" if trusted => {}
            "http" => return Err(TargetError::NotEncrypted),
            _ => return Err(TargetError::NotAnAddress),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::HasCredentials);
        }
        if !trusted && !AddressPolicy::allows_public_port(port) {
            return Err(TargetError::Port);
        }
        if !trusted && !may_be_public(&host) {
            return Err(TargetError::NotPublic);
        }
        Ok(Self { url, trusted })
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// The same server, another path.
    pub(crate) fn with_path(&self, path: &str) -> Self {
        let mut url = self.url.clone();
        url.set_path(path);
        url.set_query(None);
        Self {
            url,
            trusted: self.trusted,
        }
    }

    /// The host, with its port if that is not the usual one.
    pub(crate) fn authority(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        match self.url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// The scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", self.url.scheme(), self.authority())
    }

    /// The address without its path, which is what keeps others from using it.
    pub fn masked(&self) -> String {
        format!("{}/…", self.origin())
    }
}

/// Whether a host may be public; what a name leads to is only known when it is used.
fn may_be_public(host: &Host<&str>) -> bool {
    match host {
        Host::Ipv4(address) => addresses::is_public((*address).into()),
        Host::Ipv6(address) => addresses::is_public((*address).into()),
        Host::Domain(name) => {
            let name = name.trim_end_matches('.');
            name != "localhost" && !name.ends_with(".localhost") && name.contains('.')
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::TrustedHost;

    fn parse(text: &str) -> Result<WebTarget, TargetError> {
        let policy = AddressPolicy::new(
            ["ntfy.lan:8080", "10.0.0.7"].map(|host| TrustedHost::parse(host).unwrap()),
        );
        WebTarget::parse(text, AddressSource::Person, &policy)
    }

    #[test]
    fn people_name_public_https_addresses_and_hosts_that_the_operator_trusts() {
        for good in [
            "https://example.com/hook",
            "https://example.com:8443/hook?x=1",
            "https://1.1.1.1/",
            "https://[2606:4700:4700::1111]/",
            "http://ntfy.lan:8080/topic",
            "https://10.0.0.7:9999/",
            "https://bücher.example/",
        ] {
            assert!(parse(good).is_ok(), "{good}: {:?}", parse(good));
        }
        for (bad, why) in [
            ("", TargetError::NotAnAddress),
            ("example.com", TargetError::NotAnAddress),
            ("file:///etc/passwd", TargetError::NotAnAddress),
            ("ftp://example.com/", TargetError::NotAnAddress),
            ("gopher://example.com/", TargetError::NotAnAddress),
            ("https:///x", TargetError::NotPublic),
            ("http://example.com/", TargetError::NotEncrypted),
            ("https://me@example.com/", TargetError::HasCredentials),
            ("https://:pw@example.com/", TargetError::HasCredentials),
            ("https://example.com:22/", TargetError::Port),
            ("https://example.com:6379/", TargetError::Port),
            ("https://127.0.0.1/", TargetError::NotPublic),
            ("https://127.1/", TargetError::NotPublic),
            ("https://2130706433/", TargetError::NotPublic),
            ("https://0x7f000001/", TargetError::NotPublic),
            ("https://0177.0.0.1/", TargetError::NotPublic),
            ("https://１２７.0.0.1/", TargetError::NotPublic),
            ("https://169.254.169.254/latest", TargetError::NotPublic),
            ("https://[::1]/", TargetError::NotPublic),
            ("https://[::ffff:10.0.0.1]/", TargetError::NotPublic),
            ("https://localhost/", TargetError::NotPublic),
            ("https://localhost./", TargetError::NotPublic),
            ("https://a.localhost/", TargetError::NotPublic),
            ("https://intranet/", TargetError::NotPublic),
            ("http://ntfy.lan:8081/topic", TargetError::NotEncrypted),
            ("https://ntfy.lan:8081/topic", TargetError::Port),
        ] {
            assert_eq!(parse(bad), Err(why), "{bad}");
        }
        let long = format!("https://example.com/{}", "a".repeat(3000));
        assert_eq!(parse(&long), Err(TargetError::TooLong));
    }

    #[test]
    fn the_operator_names_any_web_address() {
        let parse =
            |text: &str| WebTarget::parse(text, AddressSource::Operator, &AddressPolicy::default());
        for good in [
            "http://127.0.0.1:9/x",
            "https://intranet/",
            "http://10.0.0.1",
        ] {
            assert!(parse(good).is_ok_and(|target| target.trusted), "{good}");
        }
        assert!(parse("file:///x").is_err());
    }

    #[test]
    fn what_is_secret_about_an_address_is_masked() {
        let masked = |text: &str| parse(text).unwrap().masked();
        assert_eq!(
            masked("https://hooks.example.com/services/T0/B0/secret?x=secret"),
            "https://hooks.example.com/…"
        );
        assert_eq!(
            masked("http://ntfy.lan:8080/topic"),
            "http://ntfy.lan:8080/…"
        );
    }
}
