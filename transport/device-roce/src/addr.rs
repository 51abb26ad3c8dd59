//! Addresses of packets.

use std::net::SocketAddr;

/// Whether two addresses are the same. Each packet asks at several places, which would each hold
/// the comparisons of both families.
#[inline(never)]
pub(crate) fn is_same(a: &SocketAddr, b: &SocketAddr) -> bool {
    a == b
}
