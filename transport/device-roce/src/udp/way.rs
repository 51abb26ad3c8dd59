//! How long IP packets may be: on the interface of an address, and on the way to a peer.

use super::error::{UdpError, UdpStep};
use super::limits::PACKET_BYTES_MAX;
use super::sys;
use crate::addr::header_bytes;
use crate::limits::PACKET_OVERHEAD_BYTES;
use core::net::SocketAddr;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use towpath_verbs::{IpMtu, Mtu};

/// The interface that has the address of `socket`, and its MTU. `None` for an address that no
/// interface has by itself (all of 127.0.0.0/8 but one), which only the way to a peer bounds.
pub(super) fn interface(socket: &UdpSocket, addr: SocketAddr) -> Result<Option<IpMtu>, UdpError> {
    let found = sys::interface_of(addr).and_then(|interface| {
        let Some(interface) = interface else { return Ok(None) };
        let bytes = sys::interface_mtu(socket.as_fd(), interface)?;
        Ok(Some(IpMtu { bytes, interface: Some(interface) }))
    });
    found.map_err(|source| UdpError::System { step: UdpStep::Inspect, addr, source })
}

/// Bytes of the longest packet, BTH to ICRC, that leaves an interface.
pub(super) fn packet_bytes_max(addr: SocketAddr, interface: Option<IpMtu>) -> u32 {
    let of_interface = interface.map(|mtu| mtu.bytes.saturating_sub(header_bytes(&addr)));
    of_interface.unwrap_or(u32::MAX).min(PACKET_BYTES_MAX as u32)
}

/// Whether packets of the smallest MTU pass.
pub(super) fn check(addr: SocketAddr, interface: Option<IpMtu>) -> Result<(), UdpError> {
    let needed = Mtu::Mtu256.bytes() + PACKET_OVERHEAD_BYTES + header_bytes(&addr);
    match interface {
        Some(IpMtu { bytes, interface: Some(interface) }) if bytes < needed => {
            Err(UdpError::InterfaceMtu { addr, interface, bytes, needed })
        }
        _ => Ok(()),
    }
}

/// Bytes of the longest IP packet that the system sends from `local` to `dest` whole: what the
/// interface, the route and the routers that have complained allow.
pub(super) fn route_bytes(mut local: SocketAddr, mut dest: SocketAddr) -> io::Result<u32> {
    local.set_port(0);
    if let (SocketAddr::V6(local), SocketAddr::V6(dest)) = (local, &mut dest)
        && dest.scope_id() == 0
    {
        dest.set_scope_id(local.scope_id());
    }
    let socket = UdpSocket::bind(local)?;
    sys::forbid_fragments(socket.as_fd(), local)?;
    // That sends nothing: it looks the route up.
    sys::connect(socket.as_fd(), dest)?;
    let (level, name) = match local {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    sys::option(socket.as_fd(), level, name)
}
