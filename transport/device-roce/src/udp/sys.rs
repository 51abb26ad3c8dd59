//! Sockets that share a port, socket options and poll: the calls that std does not have.
#![allow(unsafe_code)]

use super::mmsg::Name;
use core::ffi::CStr;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io;
use std::mem::{size_of, zeroed};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::time::Duration;
use towpath_verbs::InterfaceName;

/// Has the kernel tell when packets leave for which that is asked, by a count and without their
/// bytes; and, of a socket that receives, when packets came. With those of a `card`, if there are.
pub(super) fn tell_times(fd: BorrowedFd<'_>, receives: bool, card: bool) -> io::Result<()> {
    let mut told = libc::SOF_TIMESTAMPING_SOFTWARE
        | libc::SOF_TIMESTAMPING_OPT_ID
        | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    if card {
        told |= libc::SOF_TIMESTAMPING_RAW_HARDWARE;
    }
    if receives {
        told |= libc::SOF_TIMESTAMPING_RX_SOFTWARE;
    }
    if receives && card {
        told |= libc::SOF_TIMESTAMPING_RX_HARDWARE;
    }
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, told as i32)
}

/// What an interface stamps in its card, and by which clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CardStamps {
    /// The number of its clock, as in `/dev/ptp0`.
    pub(super) clock: u32,
    /// All that comes in is stamped now, and what leaves and asks for it; else that could be
    /// switched on.
    pub(super) is_on: bool,
}

/// `struct ethtool_ts_info`.
#[repr(C)]
struct TsInfo {
    cmd: u32,
    so_timestamping: u32,
    phc_index: i32,
    tx_types: u32,
    tx_reserved: [u32; 3],
    rx_filters: u32,
    rx_reserved: [u32; 3],
}

const ETHTOOL_GET_TS_INFO: u32 = 0x41;
/// Sends are stamped that ask for it; everything that comes in is.
const TX_ON: i32 = 1;
const RX_ALL: i32 = 1;

/// Asks about the stamps of an interface's card, by any socket; none where there are none.
pub(super) fn card_stamps(fd: BorrowedFd<'_>, interface: InterfaceName) -> Option<CardStamps> {
    // SAFETY: plain integers, for which all zeros is a value.
    let mut info: TsInfo = unsafe { zeroed() };
    info.cmd = ETHTOOL_GET_TS_INFO;
    interface_call(fd, interface, libc::SIOCETHTOOL as _, (&raw mut info).cast()).ok()?;
    let wanted = libc::SOF_TIMESTAMPING_TX_HARDWARE
        | libc::SOF_TIMESTAMPING_RX_HARDWARE
        | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
    let bit = |setting: i32| 1_u32 << setting;
    let is_able = info.so_timestamping & wanted == wanted
        && info.tx_types & bit(TX_ON) != 0
        && info.rx_filters & bit(RX_ALL) != 0;
    let clock = u32::try_from(info.phc_index).ok().filter(|_| is_able)?;
    // SAFETY: as above.
    let mut config: libc::hwtstamp_config = unsafe { zeroed() };
    let asked = interface_call(fd, interface, SIOCGHWTSTAMP, (&raw mut config).cast());
    let is_on = asked.is_ok() && config.tx_type == TX_ON && config.rx_filter == RX_ALL;
    Some(CardStamps { clock, is_on })
}

/// `SIOCGHWTSTAMP`, which libc does not have.
const SIOCGHWTSTAMP: libc::c_ulong = 0x89b1;

/// Switches the stamps of an interface's card on, for all who use it; needs `CAP_NET_ADMIN`.
pub(super) fn switch_card_stamps_on(
    fd: BorrowedFd<'_>,
    interface: InterfaceName,
) -> io::Result<()> {
    let mut config = libc::hwtstamp_config { flags: 0, tx_type: TX_ON, rx_filter: RX_ALL };
    interface_call(fd, interface, libc::SIOCSHWTSTAMP, (&raw mut config).cast())
}

/// Makes a call about an interface that reads and writes `data`.
fn interface_call(
    fd: BorrowedFd<'_>,
    interface: InterfaceName,
    call: libc::c_ulong,
    data: *mut libc::c_char,
) -> io::Result<()> {
    let mut request = named(interface);
    request.ifr_ifru.ifru_data = data;
    // SAFETY: the request lives through the call and holds a name; `data` leads to what this call
    // reads and writes, as each of the three callers says.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), call as _, &raw mut request) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A request about an interface.
fn named(interface: InterfaceName) -> libc::ifreq {
    // SAFETY: a request of zeroes is a value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // A name has at most one byte less than its place: the last one stays zero.
    for (place, &byte) in request.ifr_name.iter_mut().zip(interface.as_str().as_bytes()) {
        *place = byte as libc::c_char;
    }
    request
}

/// What the clock of a network card shows, which is a file.
pub(super) fn read_clock(file: BorrowedFd<'_>) -> io::Result<u64> {
    // The kernel's number for the clock behind a file (`FD_TO_CLOCKID`).
    let id = (!file.as_raw_fd() << 3) | 3;
    // SAFETY: `timespec` is plain integers, for which all zeros is a value.
    let mut shown: libc::timespec = unsafe { zeroed() };
    // SAFETY: the pointer is to `shown`, which lives through the call.
    if unsafe { libc::clock_gettime(id, &raw mut shown) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (seconds, nanos) = (shown.tv_sec as u64, shown.tv_nsec as u64);
    Ok(seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos))
}

/// Level and name of the option that says the traffic class of what is sent to `dest`.
pub(super) fn tclass_option(dest: SocketAddr) -> (i32, i32) {
    match dest {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    }
}

/// Whether the kernel says the traffic class of what comes in at `local`.
pub(super) fn ask_for_tclass(fd: BorrowedFd<'_>, local: SocketAddr, asked: bool) -> io::Result<()> {
    let (level, name) = match local {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVTOS),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    };
    set_option(fd, level, name, i32::from(asked))
}

/// Sets an `int` option.
pub(super) fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`, which lives through the call.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option that is `N` ints long.
fn options<const N: usize>(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<[u32; N]> {
    let mut value = [0_u32; N];
    let mut len = size_of::<[u32; N]>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `value`, and the kernel writes at most `len` bytes.
    let rc = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    };
    if rc == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Reads an `int` option.
pub(super) fn option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<u32> {
    options::<1>(fd, level, name).map(|[value]| value)
}

/// Sends `bytes` to where the socket is connected to, without waiting.
#[inline]
pub(super) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    let (fd, at, len, flags) = (fd.as_raw_fd(), bytes.as_ptr(), bytes.len(), libc::MSG_DONTWAIT);
    let (name, name_len) = (core::ptr::null::<libc::sockaddr>(), 0_usize);
    // Not by the C library's `send`, which looks whether the thread is to be cancelled.
    // SAFETY: the pointer and length describe `bytes`; no address is given.
    let rc = unsafe { libc::syscall(libc::SYS_sendto, fd, at, len, flags, name, name_len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives one datagram without waiting, and no more than its bytes and its sender, who is written
/// to `from`; gives its length. What does not fit is cut off, and not told of.
#[inline]
pub(super) fn recv_from(
    fd: BorrowedFd<'_>,
    bytes: &mut [u8],
    from: &mut Name,
) -> io::Result<usize> {
    let (fd, at, len, flags) =
        (fd.as_raw_fd(), bytes.as_mut_ptr(), bytes.len(), libc::MSG_DONTWAIT);
    let mut name_len = size_of::<Name>() as libc::socklen_t;
    // SAFETY: pointers and lengths describe `bytes`, `from` and `name_len`, which live through the
    // call and are written no further; any bytes are a name.
    let rc = unsafe {
        let (from, name_len) = (&raw mut *from, &raw mut name_len);
        libc::syscall(libc::SYS_recvfrom, fd, at, len, flags, from, name_len)
    };
    usize::try_from(rc).map_err(|_| io::Error::last_os_error())
}

/// Binds a socket to an address that other sockets of this user have, which all said that they
/// share it.
pub(super) fn bind_beside(addr: SocketAddr) -> io::Result<UdpSocket> {
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: no pointers; what it returns is looked at.
    let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made just now, and nobody else knows of it.
    let socket = unsafe { UdpSocket::from_raw_fd(fd) };
    set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    let (name, name_len) = Name::of(addr);
    // SAFETY: the pointer and length describe `name`, which lives through the call.
    let rc = unsafe { libc::bind(fd, (&raw const name).cast(), name_len) };
    if rc == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

/// Connects a socket, or gives it another peer: from then on it sends there where no other place is
/// named, and takes in nothing from anywhere else.
pub(super) fn connect(fd: BorrowedFd<'_>, peer: SocketAddr) -> io::Result<()> {
    let (name, name_len) = Name::of(peer);
    // SAFETY: the pointer and length describe `name`, which lives through the call.
    let rc = unsafe { libc::connect(fd.as_raw_fd(), (&raw const name).cast(), name_len) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the system send packets whole or not at all: one that is too long for the interface is
/// refused. What routers say of the way behind it is told once and does not bind, since anybody may
/// say it; whether longer packets get through is for whoever sends them to find out.
pub(super) fn forbid_fragments(fd: BorrowedFd<'_>, local: SocketAddr) -> io::Result<()> {
    if local.is_ipv4() {
        return set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    }
    set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
    set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1)
}

/// The addresses of all interfaces, given back when dropped.
struct InterfaceAddrs(*mut libc::ifaddrs);

impl Drop for InterfaceAddrs {
    fn drop(&mut self) {
        // SAFETY: `getifaddrs` made the list, and this is its one owner.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

/// The interface that has an address.
pub(super) fn interface_of(addr: SocketAddr) -> io::Result<Option<InterfaceName>> {
    let name = entry_of(addr, |entry| {
        // SAFETY: the name of an entry is a string of C that lives as long as the entry.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        name.to_str().ok().and_then(InterfaceName::new)
    })?;
    Ok(name.flatten())
}

/// The index of the interface that has an address of IPv6 which is valid on one link only.
pub(super) fn scope_of(ip: Ipv6Addr) -> Option<u32> {
    let scope = entry_of((ip, 0).into(), |entry| {
        // SAFETY: the entry has an address of IPv6, which is a `sockaddr_in6`.
        unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() }.sin6_scope_id
    });
    scope.ok().flatten()
}

/// What `look` finds in the entry of an address.
fn entry_of<T>(addr: SocketAddr, look: impl Fn(&libc::ifaddrs) -> T) -> io::Result<Option<T>> {
    let mut first = core::ptr::null_mut();
    // SAFETY: the call writes one pointer, to a list that `freeifaddrs` takes back.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let list = InterfaceAddrs(first);
    let mut at = list.0;
    while !at.is_null() {
        // SAFETY: entries of the list are initialised and live until it is given back.
        let entry = unsafe { &*at };
        if has_addr(entry, addr) {
            return Ok(Some(look(entry)));
        }
        at = entry.ifa_next;
    }
    Ok(None)
}

/// Whether an entry of the list is of this address; one that is valid on one link only names that.
fn has_addr(entry: &libc::ifaddrs, addr: SocketAddr) -> bool {
    if entry.ifa_addr.is_null() {
        return false;
    }
    // SAFETY: the address of an entry is at least a family.
    let family = unsafe { (*entry.ifa_addr).sa_family };
    match addr {
        SocketAddr::V4(addr) if i32::from(family) == libc::AF_INET => {
            // SAFETY: of this family it is a `sockaddr_in`.
            let found = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Ipv4Addr::from(found.sin_addr.s_addr.to_ne_bytes()) == *addr.ip()
        }
        SocketAddr::V6(addr) if i32::from(family) == libc::AF_INET6 => {
            // SAFETY: of this family it is a `sockaddr_in6`.
            let found = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            let is_scope = addr.scope_id() == 0 || addr.scope_id() == found.sin6_scope_id;
            Ipv6Addr::from(found.sin6_addr.s6_addr) == *addr.ip() && is_scope
        }
        _ => false,
    }
}

/// The MTU of an interface in bytes, asked by any socket.
pub(super) fn interface_mtu(fd: BorrowedFd<'_>, interface: InterfaceName) -> io::Result<u32> {
    let mut request = named(interface);
    // SAFETY: the pointer is to a request that lives through the call and holds a name.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has written this member.
    let bytes = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(u32::try_from(bytes).unwrap_or(0))
}

/// `SO_ATTACH_REUSEPORT_CBPF` of the architectures that have the generic numbers, which libc names
/// for one system only.
const SO_ATTACH_REUSEPORT_CBPF: i32 = 51;

/// Has the sockets that share a port with this one chosen by a program: for each datagram it
/// returns the socket's place in the order in which they were bound.
pub(super) fn choose_by(fd: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: the pointer and length describe `program`, which lives through the call, as do the
    // `len` instructions that it points to.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What the kernel holds for a socket's receive side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceiveMemory {
    /// Bytes charged now.
    pub(super) charged_bytes: u32,
    /// Packets dropped since the socket was opened, modulo 2^32.
    pub(super) drops: u32,
}

/// Reads `SO_MEMINFO`.
pub(super) fn receive_memory(fd: BorrowedFd<'_>) -> io::Result<ReceiveMemory> {
    // The order of `SK_MEMINFO_*`: rmem_alloc first, drops ninth.
    const WORDS: usize = 9;
    let words: [u32; WORDS] = options(fd, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Ok(ReceiveMemory { charged_bytes: words[0], drops: words[WORDS - 1] })
}

/// Has an epoll instance tell while a file is readable.
pub(crate) fn add_to_epoll(epoll: RawFd, file: RawFd) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: the call reads `event`, which lives through it; it refuses what is no epoll instance,
    // and a file that cannot be waited for.
    let rc = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, file, &raw mut event) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits until one of `files` is readable or `timeout` has passed; says of each whether it is. One
/// below zero is none.
pub(crate) fn wait_readable<const N: usize>(files: [RawFd; N], timeout: Duration) -> [bool; N] {
    let mut polls = files.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: `timespec` is plain integers, for which all zeros is a value.
    let mut limit: libc::timespec = unsafe { zeroed() };
    limit.tv_sec = libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX);
    limit.tv_nsec = timeout.subsec_nanos() as _;
    // SAFETY: `N` entries and one timespec, all alive through the call; no signal mask.
    let rc = unsafe { libc::ppoll(polls.as_mut_ptr(), N as _, &raw const limit, std::ptr::null()) };
    polls.map(|poll| rc > 0 && poll.revents & libc::POLLIN != 0)
}
