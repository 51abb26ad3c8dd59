//! The addresses of this host, from what the kernel shows of them in /proc.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use towpath_verbs::Mtu;

/// Headers and checksums around the payload of a packet, at most: IPv6, UDP, RoCE with a
/// destination and an immediate.
const OVERHEAD_BYTES: u32 = 40 + 8 + 12 + 16 + 4 + 4;

/// An address, and the interface that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostAddress {
    pub(super) ip: IpAddr,
    pub(super) interface: Option<String>,
}

impl HostAddress {
    /// The largest path MTU that its interface carries in one piece.
    pub(super) fn path_mtu_max(&self) -> Option<u32> {
        let file = format!("/sys/class/net/{}/mtu", self.interface.as_ref()?);
        let bytes: u32 = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
        Mtu::at_most(bytes.saturating_sub(OVERHEAD_BYTES)).map(Mtu::bytes)
    }
}

/// All addresses of this host; none where the kernel does not show them.
pub(super) fn addresses() -> Vec<HostAddress> {
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let mut all = ipv4(&read("/proc/net/fib_trie"), &read("/proc/net/route"));
    all.extend(ipv6(&read("/proc/net/if_inet6")));
    all
}

/// Addresses stand in the table of routes as `|-- ADDRESS` with `/32 host LOCAL` below.
fn ipv4(trie: &str, routes: &str) -> Vec<HostAddress> {
    let mut all: Vec<HostAddress> = Vec::new();
    let mut last = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if let (Some(ip), "/32 host LOCAL") = (last, line)
            && all.iter().all(|known| known.ip != IpAddr::V4(ip))
        {
            let interface = interface_of(ip, routes);
            all.push(HostAddress { ip: ip.into(), interface });
        }
    }
    all
}

/// The interface of the narrowest route to `ip`, which is that of its own network.
fn interface_of(ip: Ipv4Addr, routes: &str) -> Option<String> {
    if ip.is_loopback() {
        return Some("lo".to_owned());
    }
    // In the byte order of the host, which is how the kernel prints them.
    let ip = u32::from_ne_bytes(ip.octets());
    let route = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
        let (network, mask) = (number(1)?, number(7)?);
        let fits = mask != 0 && ip & mask == network;
        fits.then(|| (mask.count_ones(), words[0].to_owned()))
    };
    routes.lines().skip(1).filter_map(route).max().map(|(_, name)| name)
}

/// Lines like `fe80...01 04 40 20 80     eth0`.
fn ipv6(text: &str) -> Vec<HostAddress> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let bits = u128::from_str_radix(words.next()?, 16).ok()?;
        let interface = words.last().map(str::to_owned);
        Some(HostAddress { ip: Ipv6Addr::from_bits(bits).into(), interface })
    };
    text.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_prints_them() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n\
                    \x20       |-- 10.1.2.3\n           /32 host LOCAL\n           |-- 10.1.2.255\n\
                    \x20             /32 link BROADCAST\n           |-- 127.0.0.1\n\
                    \x20             /32 host LOCAL\nLocal:\n           |-- 10.1.2.3\n\
                    \x20             /32 host LOCAL\n";
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
                      wlan0\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\n\
                      eth7\t0002010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n";
        let found = ipv4(trie, routes);
        let of = |ip: &str, interface: &str| HostAddress {
            ip: ip.parse().unwrap(),
            interface: Some(interface.to_owned()),
        };
        assert_eq!(found, [of("10.1.2.3", "eth7"), of("127.0.0.1", "lo")]);
        let line = "fd000000000000000000000000000002 04 40 00 82     eth0\nnonsense\n";
        assert_eq!(ipv6(line), [of("fd00::2", "eth0")]);
        assert_eq!(ipv4("", ""), []);
    }
}
