//! Checks that a request names this server as its host and comes from no foreign web page.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{HOST, ORIGIN};

/// The host names and addresses of this server.
#[derive(Debug, Clone)]
pub(crate) struct AllowedHosts {
    /// What the server speaks itself: `http` or `https`.
    scheme: &'static str,
    listen: SocketAddr,
    /// The scheme and `host[:port]` by which others reach it.
    public: Option<(&'static str, String)>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OriginError {
    #[error("the Host header is not a name of this server; set --public-url to the one you use")]
    Host,
    #[error("the Origin header is a foreign page; set --public-url to the address you use")]
    Origin,
}

impl AllowedHosts {
    pub(crate) fn new(scheme: &'static str, listen: SocketAddr, public_url: Option<&str>) -> Self {
        Self {
            scheme,
            listen,
            public: public_url.and_then(split_origin),
        }
    }

    /// Refuses requests from foreign web pages, and requests under a foreign name that resolves to
    /// this server (DNS rebinding).
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), OriginError> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts
            .next()
            .and_then(|host| host.to_str().ok())
            .ok_or(OriginError::Host)?;
        let host = host.to_ascii_lowercase();
        let public = self.public.as_ref().map(|(_, authority)| authority);
        let is_allowed = public == Some(&host) || self.is_own_address(&host);
        if hosts.next().is_some() || !is_allowed {
            return Err(OriginError::Host);
        }
        for origin in headers.get_all(ORIGIN) {
            let origin = origin.to_str().ok().and_then(split_origin);
            let (scheme, authority) = origin.ok_or(OriginError::Origin)?;
            // A page that came without TLS may have been changed on its way.
            let is_own = scheme == self.scheme && self.is_own_address(&authority);
            if !is_own && self.public != Some((scheme, authority)) {
                return Err(OriginError::Origin);
            }
        }
        Ok(())
    }

    fn is_own_address(&self, authority: &str) -> bool {
        let default_port = match self.scheme {
            "https" => 443,
            _ => 80,
        };
        let (name, port) = split_port(authority);
        if port.unwrap_or(default_port) != self.listen.port() {
            return false;
        }
        let bound = self.listen.ip();
        let address = name
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>();
        match address {
            // The owner of a name can make it resolve to this server; an address cannot be forged.
            Ok(address) => address == bound || bound.is_unspecified(),
            Err(_) => name == "localhost" && (bound.is_loopback() || bound.is_unspecified()),
        }
    }
}

fn split_port(authority: &str) -> (&str, Option<u16>) {
    match authority.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && !port.contains(']') => {
            (name, port.parse().ok().or(Some(0)))
        }
        Some(_) | None => (authority, None),
    }
}

/// `host[:port]` of an http or https URL, in lower case.
pub(crate) fn authority_of(url: &str) -> Option<String> {
    split_origin(url).map(|(_, authority)| authority)
}

/// The host of an http or https URL, without brackets around an address.
pub(crate) fn host_of(url: &str) -> Option<String> {
    let authority = authority_of(url)?;
    let (name, _) = split_port(&authority);
    Some(name.trim_matches(['[', ']']).to_owned())
}

/// The scheme and `host[:port]` of an http or https URL, in lower case.
fn split_origin(url: &str) -> Option<(&'static str, String)> {
    let parts = ["http", "https"].into_iter().find_map(|scheme| {
        let rest = url.strip_prefix(scheme)?.strip_prefix("://")?;
        Some((scheme, rest))
    });
    let (scheme, rest) = parts?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-.:[]_".contains(c);
    let is_plain = !authority.is_empty() && authority.chars().all(plain);
    is_plain.then(|| (scheme, authority.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        listen: &str,
        public: Option<&str>,
        host: &str,
        origin: Option<&str>,
    ) -> Result<(), OriginError> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        let (scheme, listen) = listen.split_once("://").unwrap_or(("http", listen));
        let scheme = if scheme == "https" { "https" } else { "http" };
        AllowedHosts::new(scheme, listen.parse().unwrap(), public).check(&headers)
    }

    #[test]
    fn allowed_hosts_are_the_bound_address_and_the_public_one() {
        let here = "127.0.0.1:3000";
        let public = Some("https://pvp.example.org/");
        for (host, origin) in [
            ("127.0.0.1:3000", None),
            ("localhost:3000", Some("http://localhost:3000")),
            ("LOCALHOST:3000", Some("http://127.0.0.1:3000")),
            ("pvp.example.org", Some("https://pvp.example.org")),
        ] {
            assert_eq!(
                check(here, public, host, origin),
                Ok(()),
                "{host} {origin:?}"
            );
        }
        assert_eq!(check("[::1]:3000", None, "[::1]:3000", None), Ok(()));
        assert_eq!(
            check("0.0.0.0:80", None, "192.0.2.7", Some("http://192.0.2.7")),
            Ok(())
        );
    }

    #[test]
    fn foreign_hosts_and_pages_are_refused() {
        let here = "127.0.0.1:3000";
        for host in [
            "evil.example",
            "evil.example:3000",
            "127.0.0.1",
            "127.0.0.1:3001",
            "127.0.0.2:3000",
            "localhost",
            "localhost:x",
            "",
            "pvp.example.org",
        ] {
            assert_eq!(
                check(here, None, host, None),
                Err(OriginError::Host),
                "{host}"
            );
        }
        for origin in [
            "http://evil.example",
            "null",
            "https://127.0.0.1",
            "https://127.0.0.1:3000",
            "http://127.0.0.1:3000.evil.example",
            "file://",
            "http://localhost:3000@evil.example",
        ] {
            assert_eq!(
                check(here, None, "127.0.0.1:3000", Some(origin)),
                Err(OriginError::Origin),
                "{origin}"
            );
        }
        assert_eq!(
            check("0.0.0.0:3000", None, "rebound.example:3000", None),
            Err(OriginError::Host)
        );
    }

    #[test]
    fn a_server_with_tls_has_https_pages_only() {
        let here = "https://0.0.0.0:443";
        let public = Some("https://pvp.example.org");
        for (host, origin) in [
            ("192.0.2.7", "https://192.0.2.7"),
            ("192.0.2.7:443", "https://192.0.2.7"),
            ("localhost", "https://localhost"),
            ("pvp.example.org", "https://pvp.example.org"),
        ] {
            assert_eq!(check(here, public, host, Some(origin)), Ok(()), "{origin}");
        }
        for origin in [
            "http://192.0.2.7",
            "http://192.0.2.7:443",
            "http://pvp.example.org",
            "https://pvp.example.org:8443",
            "https://evil.example",
        ] {
            let checked = check(here, public, "192.0.2.7", Some(origin));
            assert_eq!(checked, Err(OriginError::Origin), "{origin}");
        }
        assert_eq!(
            check(here, None, "192.0.2.7:80", None),
            Err(OriginError::Host)
        );
    }

    #[test]
    fn the_host_of_a_url_has_neither_port_nor_brackets() {
        for (url, host) in [
            ("https://pvp.example.org/team", "pvp.example.org"),
            ("https://Pvp.example.org:8443", "pvp.example.org"),
            ("http://[2001:db8::7]:3000", "2001:db8::7"),
            ("http://[2001:db8::7]", "2001:db8::7"),
        ] {
            assert_eq!(host_of(url).as_deref(), Some(host));
        }
        assert_eq!(host_of("ftp://h"), None);
    }
}
