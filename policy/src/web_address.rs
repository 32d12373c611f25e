//! Finds out which host a web address names, and whether it is one that the whole world reaches.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An `http` or `https` address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebAddress {
    /// The host, in lower case. Several if programs disagree about which part of the text it is.
    pub(crate) hosts: Vec<String>,
    /// Whether every program finds the same host in it.
    pub(crate) is_plain: bool,
}

impl WebAddress {
    /// The address that this text is as a whole, if it is one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // Browsers drop these characters, wherever they stand.
        let dropped = |c: char| matches!(c, '\t' | '\n' | '\r');
        let cleaned: String = text
            .trim_matches(|c: char| c <= ' ')
            .chars()
            .filter(|c| !dropped(*c))
            .collect();
        let (scheme, rest) = cleaned.split_once(':')?;
        if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) {
            return None;
        }
        let after_slashes = rest.trim_start_matches(['/', '\\']);
        let usual_slashes = rest.strip_prefix("//") == Some(after_slashes);
        let authority_until = |ends: &[char]| after_slashes.split(ends).next().unwrap_or_default();
        let authority = authority_until(&['/', '?', '#']);
        // A browser ends the host at a backslash, other programs do not.
        let browsers = authority_until(&['/', '?', '#', '\\']);
        let mut hosts = vec![host_of(browsers), host_of(authority)];
        hosts.dedup();
        let usual = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        let is_plain = cleaned == text
            && usual_slashes
            && hosts.len() == 1
            && !hosts[0].is_empty()
            && authority.chars().all(usual)
            && (without_port(authority).eq_ignore_ascii_case(&hosts[0]));
        Some(Self { hosts, is_plain })
    }

    /// What is special about a host that it may mean, if it is not one on the internet.
    pub(crate) fn private_host(&self) -> Option<(&str, &'static str)> {
        let mut hosts = self.hosts.iter();
        hosts.find_map(|host| private_kind(host).map(|kind| (host.as_str(), kind)))
    }
}

fn host_of(authority: &str) -> String {
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = percent_decoded(host).to_lowercase();
    let host = without_port(&host);
    let host = host.strip_suffix('.').unwrap_or(host);
    match numeric_address(host) {
        Some(address) => address.to_string(),
        None => host.to_owned(),
    }
}

fn without_port(authority: &str) -> &str {
    if let Some(end) = authority.find(']').filter(|_| authority.starts_with('[')) {
        return authority.get(..=end).unwrap_or(authority);
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if port.chars().all(|c| c.is_ascii_digit()) => host,
        Some(_) | None => authority,
    }
}

/// The address that a host in numbers stands for, in all forms that programs take: `127.1`,
/// `0x7f000001` and `0177.0.0.1` are `127.0.0.1`.
fn numeric_address(host: &str) -> Option<Ipv4Addr> {
    let parts: Option<Vec<u32>> = host.split('.').map(number).collect();
    let parts = parts.filter(|parts| parts.len() <= 4)?;
    let (last, firsts) = parts.split_last()?;
    let mut value: u32 = 0;
    for part in firsts {
        value = value << 8 | u32::from(u8::try_from(*part).ok()?);
    }
    let bits = 32 - 8 * u32::try_from(firsts.len()).ok()?;
    let fits = bits == 32 || *last < 1 << bits;
    let shifted = value.checked_shl(bits).unwrap_or(0);
    fits.then(|| Ipv4Addr::from(shifted | *last))
}

fn number(text: &str) -> Option<u32> {
    match text {
        "" => None,
        _ if text.starts_with("0x") => {
            let digits = text.trim_start_matches("0x");
            u32::from_str_radix(if digits.is_empty() { "0" } else { digits }, 16).ok()
        }
        _ if text.starts_with('0') && text.len() > 1 => u32::from_str_radix(text, 8).ok(),
        _ => text.parse().ok(),
    }
}

const THIS_MACHINE: &str = "this machine itself";
const CREDENTIALS: &str = "where clouds hand out credentials";
const PRIVATE_NETWORK: &str = "in a private network";

/// Endings of names that only private networks know.
const PRIVATE_SUFFIXES: &[&str] = &[
    ".local",
    ".internal",
    ".lan",
    ".intranet",
    ".corp",
    ".home",
    ".home.arpa",
    ".svc",
];

fn private_kind(host: &str) -> Option<&'static str> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let bare = bare.split('%').next().unwrap_or(bare);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return match address {
            IpAddr::V4(address) => private_v4(address),
            IpAddr::V6(address) => private_v6(address),
        };
    }
    let ends_with = |ending: &&str| host.ends_with(*ending);
    match host {
        "localhost" => Some(THIS_MACHINE),
        _ if host.ends_with(".localhost") => Some(THIS_MACHINE),
        "metadata" | "metadata.google.internal" | "instance-data" => Some(CREDENTIALS),
        _ if PRIVATE_SUFFIXES.iter().any(ends_with) => Some(PRIVATE_NETWORK),
        _ if !host.contains('.') && host.is_ascii() && !host.is_empty() => Some(PRIVATE_NETWORK),
        _ => None,
    }
}

fn private_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [127 | 0, ..] => Some(THIS_MACHINE),
        [169, 254, ..] | [100, 100, 100, 200] => Some(CREDENTIALS),
        [10, ..] | [192, 168, ..] => Some(PRIVATE_NETWORK),
        [172, second, ..] if (16..32).contains(&second) => Some(PRIVATE_NETWORK),
        [100, second, ..] if (64..128).contains(&second) => Some(PRIVATE_NETWORK),
        _ => None,
    }
}

fn private_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(address) = address.to_ipv4() {
        return private_v4(address);
    }
    let [first, second, ..] = address.segments();
    match first {
        // Addresses of IPv4 behind a translator.
        0x64 if second == 0xff9b => {
            let [.., a, b, c, d] = address.octets();
            private_v4(Ipv4Addr::new(a, b, c, d))
        }
        0xfe80..=0xfebf => Some(CREDENTIALS),
        0xfc00..=0xfdff => Some(PRIVATE_NETWORK),
        _ => None,
    }
}

/// A text with the characters that are encoded in it as `%2e`.
pub(crate) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digit = |at: usize| {
            let digit = after.get(at).map(|byte| char::from(*byte))?;
            digit.to_digit(16).and_then(|it| u8::try_from(it).ok())
        };
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(high * 16 + low);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A pattern for hosts: one name, or `*.` and the name of a domain for all names below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostPattern {
    Exact(String),
    /// All hosts that end so; with the dot.
    Below(String),
    Any,
}

impl HostPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let lower = text.to_ascii_lowercase();
        let (name, below) = match lower.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (lower.as_str(), false),
        };
        let usual = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let is_v6 = name.starts_with('[') && name.ends_with(']') && !below;
        if name.is_empty() || name.starts_with('.') || !(name.chars().all(usual) || is_v6) {
            return Err(format!(
                "`{text}` is not a host; write a name such as `docs.rs` or `*.example.com`, without \
                 a scheme, a port or a path"
            ));
        }
        let name = name.strip_suffix('.').unwrap_or(name);
        Ok(match below {
            true => Self::Below(format!(".{name}")),
            false => Self::Exact(name.to_owned()),
        })
    }

    pub(crate) fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => name == host,
            Self::Below(ending) => host.ends_with(ending.as_str()),
            Self::Any => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_found_as_programs_find_it() {
        for (text, host) in [
            ("https://docs.rs/serde", "docs.rs"),
            ("HTTPS://Docs.RS:443/x?y@z", "docs.rs"),
            ("http://docs.rs.", "docs.rs"),
            ("http://docs.rs?x=/a@b", "docs.rs"),
            ("http://[::1]:80/x", "[::1]"),
            ("https://xn--dcs-sna.rs/", "xn--dcs-sna.rs"),
        ] {
            let address = WebAddress::parse(text).unwrap();
            assert_eq!(address.hosts, [host], "{text}");
            assert_eq!(address.is_plain, !text.contains("rs."), "{text}");
        }
        for (text, host) in [
            ("https://docs.rs@evil.com/", "evil.com"),
            ("https://docs.rs:x@evil.com/", "evil.com"),
            ("https:docs.rs", "docs.rs"),
            ("https:///evil.com", "evil.com"),
            (" https://docs.rs", "docs.rs"),
            ("https://ev\til.com", "evil.com"),
            ("https://%65vil.com", "evil.com"),
            ("http://2130706433/", "127.0.0.1"),
            ("http://0x7f.1/", "127.0.0.1"),
            ("http://0177.0.0.1/", "127.0.0.1"),
            ("http://127.1/", "127.0.0.1"),
        ] {
            let address = WebAddress::parse(text).unwrap();
            assert_eq!(address.hosts, [host], "{text}");
            assert!(!address.is_plain, "{text}");
        }
        let address = WebAddress::parse("https://docs.rs\\@evil.com/").unwrap();
        assert_eq!(address.hosts, ["docs.rs", "evil.com"]);
        assert!(!address.is_plain);
        for text in [
            "docs.rs",
            "ftp://docs.rs",
            "see https://docs.rs",
            "",
            "file:///etc",
        ] {
            assert_eq!(WebAddress::parse(text), None, "{text}");
        }
    }

    #[test]
    fn hosts_that_not_all_the_world_reaches_are_known() {
        for text in [
            "http://localhost:8080/",
            "http://LOCALHOST",
            "http://a.localhost",
            "http://127.0.0.1",
            "http://0.0.0.0",
            "http://0",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[fe80::1%25eth0]/",
            "http://[fd00:ec2::254]/",
            "http://169.254.169.254/latest/meta-data",
            "http://2852039166/",
            "http://metadata.google.internal/",
            "http://10.1.2.3",
            "http://172.31.0.1",
            "http://192.168.1.1",
            "http://100.64.0.1",
            "http://router",
            "http://printer.local",
            "http://evil.com\\@localhost/",
        ] {
            let address = WebAddress::parse(text).unwrap();
            assert!(address.private_host().is_some(), "{text}");
        }
        for text in [
            "http://example.com",
            "http://8.8.8.8",
            "http://172.32.0.1",
            "http://[2606::1]",
        ] {
            let address = WebAddress::parse(text).unwrap();
            assert_eq!(address.private_host(), None, "{text}");
        }
    }

    #[test]
    fn a_pattern_names_one_host_or_all_below_a_domain() {
        let matches =
            |pattern: &str, host: &str| HostPattern::parse(pattern).unwrap().matches(host);
        assert!(matches("Docs.rs", "docs.rs"));
        assert!(matches("*.example.com", "a.b.example.com"));
        assert!(!matches("*.example.com", "example.com"));
        assert!(!matches("*.example.com", "evilexample.com"));
        assert!(!matches("docs.rs", "docs.rs.evil.com"));
        for pattern in [
            "",
            "https://docs.rs",
            "docs.rs:443",
            "a@b",
            "*",
            "d*cs.rs",
            "*.",
            ".rs",
            "a/b",
        ] {
            assert_eq!(
                HostPattern::parse(pattern).is_ok(),
                pattern == "*",
                "{pattern}"
            );
        }
    }
}
