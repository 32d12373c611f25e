//! The addresses of this machine under which others can reach a server.

use std::net::{IpAddr, SocketAddr, TcpListener};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

/// How the names of interfaces begin that lead to containers and virtual machines on this machine.
const VIRTUAL_INTERFACES: &[&str] = &[
    "docker", "veth", "br-", "virbr", "vnet", "cni", "flannel", "lxc", "lxd", "podman",
];

/// How many ports after one that is in use are tried.
const PORTS_TRIED: u16 = 100;

/// An address of a network interface that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InterfaceAddress {
    pub(crate) interface: String,
    pub(crate) ip: IpAddr,
}

/// The addresses by which others reach a server that listens on every interface, the best first.
pub(crate) fn reachable_addresses(listen: SocketAddr) -> Vec<IpAddr> {
    let found = interface_addresses();
    let spoken = found
        .into_iter()
        .filter(|address| listen.is_ipv6() || address.ip.is_ipv4());
    rank(spoken.collect())
}

fn interface_addresses() -> Vec<InterfaceAddress> {
    let Ok(interfaces) = getifaddrs() else {
        return Vec::new();
    };
    let up = interfaces.filter(|one| {
        one.flags.contains(InterfaceFlags::IFF_UP)
            && !one.flags.contains(InterfaceFlags::IFF_LOOPBACK)
    });
    up.filter_map(|one| {
        let address = one.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let v6 = || address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()));
        Some(InterfaceAddress {
            ip: v4.or_else(v6)?,
            interface: one.interface_name,
        })
    })
    .collect()
}

/// Puts IPv4 before IPv6, keeps the order of interfaces otherwise, and leaves out addresses that are
/// valid on one cable only, and those of virtual interfaces if there are others.
fn rank(mut addresses: Vec<InterfaceAddress>) -> Vec<IpAddr> {
    addresses.retain(|address| is_routable(address.ip));
    let is_virtual = |address: &InterfaceAddress| {
        let name = &address.interface;
        VIRTUAL_INTERFACES.iter().any(|it| name.starts_with(it))
    };
    if !addresses.iter().all(is_virtual) {
        addresses.retain(|address| !is_virtual(address));
    }
    addresses.sort_by_key(|address| address.ip.is_ipv6());
    let mut ranked = Vec::new();
    for address in addresses {
        if !ranked.contains(&address.ip) {
            ranked.push(address.ip);
        }
    }
    ranked
}

fn is_routable(ip: IpAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || is_link_local)
}

/// The next address with a free port after one that is in use.
pub(crate) fn next_free(taken: SocketAddr) -> Option<SocketAddr> {
    let later = 1..=PORTS_TRIED;
    later
        .filter_map(|more| taken.port().checked_add(more))
        .map(|port| SocketAddr::new(taken.ip(), port))
        .find(|address| TcpListener::bind(address).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(addresses: &[(&str, &str)]) -> Vec<String> {
        let addresses = addresses.iter().map(|(interface, ip)| InterfaceAddress {
            interface: (*interface).to_owned(),
            ip: ip.parse().unwrap(),
        });
        let ranked = rank(addresses.collect());
        ranked.iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn the_address_to_print_is_one_that_others_can_open() {
        assert_eq!(
            ranked(&[
                ("docker0", "172.17.0.1"),
                ("eth0", "fe80::1"),
                ("eth0", "2001:db8::7"),
                ("eth0", "192.168.1.5"),
                ("eth0", "192.168.1.5"),
                ("eth1", "169.254.3.3"),
                ("tailscale0", "100.64.0.9"),
                ("veth12", "10.0.3.1"),
            ]),
            ["192.168.1.5", "100.64.0.9", "2001:db8::7"]
        );
        assert_eq!(ranked(&[("docker0", "172.17.0.1")]), ["172.17.0.1"]);
        assert_eq!(ranked(&[("lo", "127.0.0.1"), ("eth0", "fe80::1")]).len(), 0);
    }

    #[test]
    fn a_taken_port_is_followed_by_a_free_one() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = taken.local_addr().unwrap();
        // The last port has no successor.
        let free = next_free(taken);
        assert!(free.is_none_or(|free| free.port() > taken.port()));
        assert_eq!(next_free(SocketAddr::new(taken.ip(), u16::MAX)), None);
    }
}
