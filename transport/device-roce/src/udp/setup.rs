//! How sockets are bound, and told what they are to do.

use super::config::{PortChoice, TimestampSource, UdpConfig};
use super::error::{UdpError, UdpStep};
use super::limits::ROCE_PORT;
use super::steering::{self, Steering};
use super::sys;
use core::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use towpath_verbs::{IpMtu, QpShare};

pub(super) fn with_port(config: &UdpConfig, port: u16) -> SocketAddr {
    match config.ip {
        IpAddr::V4(ip) => (ip, port).into(),
        IpAddr::V6(ip) => {
            let found = || sys::scope_of(ip).unwrap_or(0);
            let is_open = config.scope_id == 0 && ip.is_unicast_link_local();
            let scope_id = if is_open { found() } else { config.scope_id };
            SocketAddrV6::new(ip, port, 0, scope_id).into()
        }
    }
}

pub(super) fn bind_at(addr: SocketAddr) -> Result<UdpSocket, UdpError> {
    let socket = UdpSocket::bind(addr).map_err(|error| UdpError::at(UdpStep::Bind, addr, error))?;
    socket.set_nonblocking(true).map_err(|source| UdpError::System {
        step: UdpStep::Configure,
        addr,
        source,
    })?;
    Ok(socket)
}

pub(super) fn bind_receiver(config: &UdpConfig) -> Result<UdpSocket, UdpError> {
    let (first, fallback) = match config.port_choice() {
        PortChoice::Ephemeral => (0, None),
        PortChoice::Roce4791OrEphemeral => (ROCE_PORT, Some(0)),
        PortChoice::Exact(port) => (port, None),
    };
    match (bind_at(with_port(config, first)), fallback) {
        (Err(UdpError::PortInUse(_)), Some(port)) => bind_at(with_port(config, port)),
        (outcome, _) => outcome,
    }
}

/// Binds further receivers beside the first, which has the port to itself until then: so none of
/// another process can be among them. Says how packets are told apart.
pub(super) fn share_port(
    first: UdpSocket,
    addr: SocketAddr,
    shares: &[QpShare],
    config: &UdpConfig,
) -> Result<(Vec<UdpSocket>, Steering), UdpError> {
    let mut receivers = vec![first];
    let [share, further @ ..] = shares else { return Ok((receivers, Steering::Alone)) };
    if further.is_empty() {
        return Ok((receivers, Steering::Alone));
    }
    let at = |source| UdpError::at(UdpStep::Share, addr, source);
    sys::set_option(receivers[0].as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).map_err(at)?;
    for _ in further {
        let receiver = sys::bind_beside(addr).map_err(at)?;
        receiver.set_nonblocking(true).map_err(at)?;
        receivers.push(receiver);
    }
    let steering = if !config.kernel_steering {
        Steering::HandedOver { refused: None }
    } else if let Err(error) = steering::attach(receivers[0].as_fd(), *share) {
        Steering::HandedOver { refused: error.raw_os_error() }
    } else {
        Steering::Kernel
    };
    Ok((receivers, steering))
}

pub(super) fn local_addr(socket: &UdpSocket, addr: SocketAddr) -> Result<SocketAddr, UdpError> {
    socket.local_addr().map_err(|source| inspect_error(addr, source))
}

pub(super) fn inspect_error(addr: SocketAddr, source: io::Error) -> UdpError {
    UdpError::System { step: UdpStep::Inspect, addr, source }
}

/// The options of every socket.
pub(super) fn configure(
    socket: &UdpSocket,
    addr: SocketAddr,
    segmentation: bool,
) -> Result<(), UdpError> {
    let fd = socket.as_fd();
    // Without these IPv4 packets carry an ID that is not 0, and the ICRC covers it. Those of a
    // connected socket do all the same: see `UdpConfig::connects`.
    let whole = sys::forbid_fragments(fd, addr);
    whole.map_err(|source| UdpError::System { step: UdpStep::Configure, addr, source })?;
    // RoCEv2 sends UDP checksum 0 and so do we where each packet is built by itself; with
    // offload the kernel insists on a checksum, and whoever cuts the run fills it in.
    if !segmentation {
        ignore(if addr.is_ipv4() {
            sys::set_option(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)
        } else {
            sys::set_option(fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_TX, 1)
        });
    }
    Ok(())
}

/// The options of the receiving socket; says whether it coalesces and what buffer it has.
pub(super) fn configure_receiver(
    socket: &UdpSocket,
    addr: SocketAddr,
    config: &UdpConfig,
    card: bool,
) -> Result<(bool, u32), UdpError> {
    let fd = socket.as_fd();
    if addr.is_ipv6() {
        // Foreign packets carry checksum 0, which a socket of IPv6 refuses by default.
        ignore(sys::set_option(fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1));
    }
    ignore(sys::ask_for_tclass(fd, addr, true));
    // Either option tells when packets came; a socket that sends, too, has the one for both.
    let is_told = config.timestamps != TimestampSource::Call;
    let by_one = || !config.connects() && sys::tell_times(fd, true, card).is_ok();
    if is_told && !by_one() {
        ignore(sys::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1));
    }
    let coalescing =
        config.coalescing && sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
    grow_buffer(fd, config, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF);
    let granted_bytes = sys::option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)
        .map_err(|source| UdpError::System { step: UdpStep::Inspect, addr, source })?;
    Ok((coalescing, granted_bytes))
}

/// The clock of the network card of an interface, where that stamps packets.
pub(super) fn open_card(
    socket: &UdpSocket,
    interface: IpMtu,
    config: &UdpConfig,
) -> Option<Arc<File>> {
    let (fd, name) = (socket.as_fd(), interface.interface?);
    let stamps = sys::card_stamps(fd, name)?;
    let is_on =
        stamps.is_on || (config.card_stamps && sys::switch_card_stamps_on(fd, name).is_ok());
    let file = File::open(format!("/dev/ptp{}", stamps.clock)).ok()?;
    (is_on && sys::read_clock(file.as_fd()).is_ok()).then(|| Arc::new(file))
}

/// Asks for the configured buffer, past the system's limits where that is allowed. The kernel
/// doubles what is asked for, to make room for its bookkeeping; what is configured counts that in.
pub(super) fn grow_buffer(fd: BorrowedFd<'_>, config: &UdpConfig, forced: i32, plain: i32) {
    let bytes =
        if plain == libc::SO_RCVBUF { config.rx_buffer_bytes } else { config.tx_buffer_bytes };
    let half = i32::try_from(bytes / 2).unwrap_or(i32::MAX / 2);
    let done = config.force_buffers && sys::set_option(fd, libc::SOL_SOCKET, forced, half).is_ok();
    if !done {
        ignore(sys::set_option(fd, libc::SOL_SOCKET, plain, half));
    }
}

/// An option that only makes things better: without it the link is slower, never wrong.
pub(super) fn ignore(outcome: io::Result<()>) {
    drop(outcome);
}
