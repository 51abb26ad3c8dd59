//! Addresses as people write them: with names, ports, and the interface of a link-local address.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

/// The addresses that a text names: `HOST:PORT`, `10.0.0.1:7400`, `[::1]:7400`, or with the
/// interface that a link-local address needs `[fe80::1%eth0]:7400`. Where `port` is given it may be
/// left out, as in `HOST`, `::1` or `fe80::1%eth0`.
///
/// # Errors
/// What the system says of a name; [`InvalidInput`](io::ErrorKind::InvalidInput) where a port is
/// missing.
pub fn resolve(text: &str, port: Option<u16>) -> io::Result<Vec<SocketAddr>> {
    if let Ok(addr) = text.parse() {
        return Ok(vec![addr]);
    }
    let missing =
        || io::Error::new(io::ErrorKind::InvalidInput, "a port is missing behind a colon");
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, port),
        Some((host, rest)) => (host, rest.strip_prefix(':').and_then(|port| port.parse().ok())),
        None if is_v6(text) => (text, port),
        None => match text.rsplit_once(':') {
            Some((host, number)) => (host, number.parse().ok()),
            None => (text, port),
        },
    };
    let port = port.ok_or_else(missing)?;
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Whether a text is an address of IPv6 without a port, which has colons of its own.
fn is_v6(text: &str) -> bool {
    let ip = text.split_once('%').map_or(text, |(ip, _)| ip);
    ip.parse::<Ipv6Addr>().is_ok()
}

/// An address without a port; that of one link may have its interface, as in `fe80::1%eth0`.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_ip(text: &str) -> io::Result<IpAddr> {
    let none = || io::Error::new(io::ErrorKind::InvalidInput, "it is no IP address");
    let ip = text.split_once('%').map_or(text, |(ip, _)| ip);
    ip.trim_matches(['[', ']']).parse().map_err(|_| none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddrV6;

    #[test]
    fn addresses_have_ports_brackets_and_interfaces() {
        let of = |text: &str, port| resolve(text, port).expect(text)[0];
        for (text, port, expected) in [
            ("127.0.0.1", Some(7400), "127.0.0.1:7400"),
            ("127.0.0.1:99", Some(7400), "127.0.0.1:99"),
            ("::1", Some(7400), "[::1]:7400"),
            ("[::1]", Some(7400), "[::1]:7400"),
            ("[::1]:99", None, "[::1]:99"),
        ] {
            assert_eq!(of(text, port).to_string(), expected, "{text}");
        }
        // Loopback is interface 1 wherever Linux runs.
        let linked = SocketAddrV6::new("fe80::1".parse().expect("an address"), 7400, 0, 1);
        for text in ["[fe80::1%lo]:7400", "[fe80::1%1]:7400", "fe80::1%lo", "[fe80::1%lo]"] {
            assert_eq!(of(text, Some(7400)), linked.into(), "{text}");
        }
        for text in ["127.0.0.1", "::1", "[::1]", "[::1]99", "[fe80::1%lo]:"] {
            assert!(resolve(text, None).is_err(), "{text}: a port is missing");
        }
        assert!(resolve("[fe80::1%no-such-interface]:7400", None).is_err());
        assert_eq!(resolve_ip("fe80::1%lo").expect("an address"), *linked.ip());
        assert!(resolve_ip("fe80").is_err());
    }
}
