//! Why a UDP link could not be set up.

use super::limits::NICS_MAX;
use core::net::{IpAddr, SocketAddr};
use std::io;
use towpath_verbs::InterfaceName;

/// Why [`UdpLink::bind`](super::UdpLink::bind) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UdpError {
    /// The address is 0.0.0.0 or `::`.
    #[error(
        "cannot bind to {0}: the packets are sealed over the IP address, name one of this host"
    )]
    Unspecified(IpAddr),
    /// Another socket has the port.
    #[error(
        "UDP port {} on {} is in use: stop its owner (`ss -ulnp` names it), choose another port, \
         or let the system choose one; where the kernel's rxe has 4791, run in another network \
         namespace",
        .0.port(),
        .0.ip()
    )]
    PortInUse(SocketAddr),
    /// No interface has the address.
    #[error("{0} is no address of this host: `ip addr` lists those that are")]
    AddressNotLocal(IpAddr),
    /// No link, or more than share a port.
    #[error("{wanted} links cannot share a port: from 1 to {max} can")]
    Group {
        /// How many were asked for.
        wanted: usize,
        /// How many there may be.
        max: usize,
    },
    /// These addresses are not those of several NICs of a host.
    #[error(
        "a device has from 1 to {NICS_MAX} NICs: name as many different addresses, all IPv4 or all \
         IPv6, with one number of source ports"
    )]
    Nics,
    /// The interface carries no packets that are long enough.
    #[error(
        "interface {interface} of {} carries IP packets of {bytes} bytes, and the smallest RDMA \
         MTU needs {needed}: raise its MTU (`ip link set {interface} mtu 1500`)",
        .addr.ip()
    )]
    InterfaceMtu {
        /// Whose address it is.
        addr: SocketAddr,
        /// The interface.
        interface: InterfaceName,
        /// What it carries.
        bytes: u32,
        /// What is needed at least.
        needed: u32,
    },
    /// The system forbids it.
    #[error(
        "not permitted to {step} on {addr}: ports below 1024 need CAP_NET_BIND_SERVICE, and a \
         sandbox may forbid sockets"
    )]
    Permission {
        /// What was tried.
        step: UdpStep,
        /// Where.
        addr: SocketAddr,
    },
    /// Anything else.
    #[error("cannot {step} on {addr}")]
    System {
        /// What was tried.
        step: UdpStep,
        /// Where.
        addr: SocketAddr,
        /// What the system said, with its errno.
        #[source]
        source: io::Error,
    },
}

/// A step of setting a link up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UdpStep {
    /// Open and bind a socket.
    Bind,
    /// Bind further sockets to a port.
    Share,
    /// Make a socket non-blocking or set an option without which the link is not sound.
    Configure,
    /// Read back a socket's address or buffer size.
    Inspect,
}

impl core::fmt::Display for UdpStep {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Bind => "bind a UDP socket",
            Self::Share => "share the port of a UDP socket",
            Self::Configure => "set up a UDP socket",
            Self::Inspect => "read back a UDP socket",
        })
    }
}

impl UdpError {
    /// The system has no file to wait on for the sockets of several NICs.
    pub(crate) fn of_file(addr: SocketAddr, source: io::Error) -> Self {
        Self::System { step: UdpStep::Configure, addr, source }
    }

    /// Sorts what the system said about `step` on `addr`.
    pub(super) fn at(step: UdpStep, addr: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::PortInUse(addr),
            io::ErrorKind::AddrNotAvailable => Self::AddressNotLocal(addr.ip()),
            io::ErrorKind::PermissionDenied => Self::Permission { step, addr },
            _ => Self::System { step, addr, source },
        }
    }
}
