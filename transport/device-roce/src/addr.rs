//! Addresses of packets.

use std::net::SocketAddr;

/// Whether two addresses are the same. Each packet asks at several places, which would each hold
/// the comparisons of both families.
#[inline(never)]
pub(crate) fn is_same(a: &SocketAddr, b: &SocketAddr) -> bool {
    a == b
}

/// Bytes of the headers of IP and UDP before a packet from or to an address.
pub(crate) fn header_bytes(addr: &SocketAddr) -> u32 {
    let of_ip = if addr.is_ipv4() { 20 } else { 40 };
    of_ip + 8
}
