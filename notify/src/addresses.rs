//! Which addresses a server may be made to talk to by the people who use it.
//!
//! A person names a host, and the server connects to it from inside its own network. It may therefore
//! reach only what the person could reach without it: addresses of the public Internet, and the hosts
//! that the operator trusts.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

/// Ports of web servers that are not named by the operator.
const PUBLIC_PORTS: [u16; 2] = [443, 8443];

/// Turns a host name into addresses.
pub trait HostResolver: Send + Sync {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// Lookups that are made at a time. Each occupies a thread for as long as the name servers take, and
/// everything else that blocks needs those threads, too.
const MAX_LOOKUPS: usize = 16;

/// The resolver of this machine.
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
        }
    }
}

impl SystemResolver {
    /// Runs a lookup that counts until it is done, also if nobody waits for it any more.
    async fn count<T: Send + 'static>(
        &self,
        lookup: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let permit = self.lookups.clone().acquire_owned().await;
        let permit = permit.map_err(io::Error::other)?;
        let looking_up = tokio::spawn(async move {
            let found = lookup.await;
            drop(permit);
            found
        });
        looking_up.await.map_err(io::Error::other)?
    }
}

impl HostResolver for SystemResolver {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let host = host.to_owned();
        let lookup = async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) };
        Box::pin(self.count(lookup))
    }
}

/// A host that people may name although it is not on the public Internet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrustedHost {
    host: String,
    /// `None` trusts every port of it.
    port: Option<u16>,
}

impl TrustedHost {
    /// Reads `HOST` or `HOST:PORT`, as in an address of the web.
    pub fn parse(text: &str) -> Option<Self> {
        let url = url::Url::parse(&format!("http://{text}")).ok()?;
        let is_plain = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        let is_plain = is_plain && url.username().is_empty() && url.password().is_none();
        // Port 80 is the default of the scheme, and would not be told apart from none.
        let port = url.port().or(text.ends_with(":80").then_some(80));
        is_plain.then(|| Self {
            host: url.host_str().unwrap_or_default().to_owned(),
            port,
        })
    }
}

/// What people may have the server connect to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    trusted: BTreeSet<TrustedHost>,
}

impl AddressPolicy {
    pub fn new(trusted: impl IntoIterator<Item = TrustedHost>) -> Self {
        Self {
            trusted: trusted.into_iter().collect(),
        }
    }

    /// Whether the operator trusts this host at this port.
    pub(crate) fn trusts(&self, host: &str, port: u16) -> bool {
        let with_port = |port| TrustedHost {
            host: host.to_ascii_lowercase(),
            port,
        };
        self.trusted.contains(&with_port(None)) || self.trusted.contains(&with_port(Some(port)))
    }

    /// Whether a port may be used of a host that the operator does not name.
    pub(crate) fn allows_public_port(port: u16) -> bool {
        PUBLIC_PORTS.contains(&port)
    }
}

/// Whether an address is one of the public Internet, and not of this machine, of a private network
/// or of another special use.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match (a, b, c) {
        // This network, private networks, carrier-grade NAT, loopback, link-local.
        (0 | 10 | 127, ..) | (100, 64..=127, _) | (169, 254, _) => true,
        (172, 16..=31, _) | (192, 168, _) => true,
        // Protocol assignments, documentation, 6to4 relays, benchmarks.
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 51, 100) | (203, 0, 113) => true,
        (198, 18 | 19, _) => true,
        // Multicast, reserved, broadcast.
        (224..=255, ..) => true,
        _ => false,
    };
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // Only 2000::/3 is global unicast. This leaves out loopback, link-local, unique local and
    // multicast addresses, and those that stand for an IPv4 address (mapped, NAT64).
    let is_global = first & 0xe000 == 0x2000;
    let is_special = match (first, second) {
        // Teredo, ORCHID and other protocol assignments; documentation; 6to4, which hides an IPv4
        // address.
        (0x2001, 0..=0x01ff | 0x0db8) | (0x2002, _) => true,
        (0x3fff, 0..=0x0fff) => true,
        _ => false,
    };
    is_global && !is_special
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn lookups_that_nobody_waits_for_count_until_they_are_done() {
        let resolver = SystemResolver::default();
        let slow = Arc::new(Semaphore::new(0));
        for _ in 0..MAX_LOOKUPS {
            let slow = slow.clone();
            let lookup = resolver.count(async move {
                slow.acquire().await.unwrap().forget();
                Ok(())
            });
            // Whoever asked is gone at once.
            assert!(lookup.now_or_never().is_none());
        }
        let mut next = Box::pin(resolver.count(async { Ok(7) }));
        tokio::task::yield_now().await;
        assert!((&mut next).now_or_never().is_none(), "all are in use");
        slow.add_permits(1);
        assert_eq!(next.await.unwrap(), 7);
    }

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        for public in [
            "1.1.1.1",
            "9.9.9.9",
            "11.0.0.1",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "192.167.0.1",
            "198.17.0.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001:80b::200e",
            "2001:200::1",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:1.1.1.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:10::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }

    #[test]
    fn a_trusted_host_is_trusted_at_its_port_or_at_every_port() {
        let policy = |text: &str| AddressPolicy::new(TrustedHost::parse(text));
        assert!(policy("ntfy.lan").trusts("ntfy.lan", 8080));
        assert!(policy("NTFY.lan").trusts("ntfy.LAN", 1));
        assert!(policy("ntfy.lan:8080").trusts("ntfy.lan", 8080));
        assert!(!policy("ntfy.lan:8080").trusts("ntfy.lan", 80));
        assert!(policy("ntfy.lan:80").trusts("ntfy.lan", 80));
        assert!(!policy("ntfy.lan:80").trusts("ntfy.lan", 22));
        assert!(policy("[::1]:9").trusts("[::1]", 9));
        assert!(policy("127.1").trusts("127.0.0.1", 9));
        assert!(!policy("ntfy.lan").trusts("evil-ntfy.lan", 443));
        assert!(!policy("ntfy.lan").trusts("ntfy.lan.example.com", 443));
        for bad in ["", "a/b", "a?b", "a#b", "user@a", "a:b", "a b", "http://a"] {
            assert_eq!(TrustedHost::parse(bad), None, "{bad}");
        }
    }
}
