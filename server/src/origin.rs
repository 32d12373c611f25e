//! Checks that a request names this server as its host and comes from no foreign web page.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{HOST, ORIGIN};

/// The host names and addresses of this server.
#[derive(Debug, Clone)]
pub(crate) struct AllowedHosts {
    listen: SocketAddr,
    public: Option<String>,
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
    pub(crate) fn new(listen: SocketAddr, public_url: Option<&str>) -> Self {
        Self {
            listen,
            public: public_url.and_then(authority_of),
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
        if hosts.next().is_some() || !self.is_allowed(&host.to_ascii_lowercase(), 80) {
            return Err(OriginError::Host);
        }
        for origin in headers.get_all(ORIGIN) {
            let origin = origin.to_str().map_err(|_| OriginError::Origin)?;
            let port = if origin.starts_with("https://") {
                443
            } else {
                80
            };
            let authority = authority_of(origin).ok_or(OriginError::Origin)?;
            if !self.is_allowed(&authority, port) {
                return Err(OriginError::Origin);
            }
        }
        Ok(())
    }

    fn is_allowed(&self, authority: &str, default_port: u16) -> bool {
        if self.public.as_deref() == Some(authority) {
            return true;
        }
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
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"))?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-.:[]_".contains(c);
    (!authority.is_empty() && authority.chars().all(plain)).then(|| authority.to_ascii_lowercase())
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
        AllowedHosts::new(listen.parse().unwrap(), public).check(&headers)
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
}
