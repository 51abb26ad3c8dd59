//! `trait PacketLink`: the wire under a software device, and the place where decorators go.
//!
//! A packet here is the UDP payload of a RoCEv2 packet: BTH to ICRC. Addresses and ports are
//! beside it, because the ICRC covers them.

use crate::path_mtu::IpMtu;
use crate::share::QpShare;
use core::ffi::c_int;
use core::net::SocketAddr;
use core::task::Waker;
use towpath_base::{Nanos, Time};

/// Pieces that one packet may be gathered from: headers, four pieces of payload, and pad with ICRC.
/// What lies in more is copied together first, which costs a host no more than to hand so many
/// pieces to the wire.
pub const PARTS_MAX: usize = 6;

/// A packet to send, gathered from pieces that live until the call returns.
#[derive(Clone, Copy, Debug)]
pub struct TxPacket<'a> {
    /// Where to.
    pub dest: SocketAddr,
    /// Which source port (an index below [`LinkCaps::source_ports`]) it leaves from.
    pub source_port: u16,
    /// IPv4 ToS or IPv6 traffic class.
    pub tclass: u8,
    /// It leaves in no run with others: [`SendFlags::alone`](crate::SendFlags::alone).
    pub alone: bool,
    parts: [&'a [u8]; PARTS_MAX],
    len: u8,
}

impl<'a> TxPacket<'a> {
    /// An empty packet; add pieces with [`push`](Self::push).
    #[must_use]
    pub fn new(dest: SocketAddr, source_port: u16, tclass: u8) -> Self {
        Self { dest, source_port, tclass, alone: false, parts: [&[]; PARTS_MAX], len: 0 }
    }

    /// Appends a piece; empty ones are left out.
    ///
    /// # Panics
    /// With more than [`PARTS_MAX`] pieces, which callers rule out.
    pub fn push(&mut self, part: &'a [u8]) {
        if !part.is_empty() {
            self.parts[usize::from(self.len)] = part;
            self.len += 1;
        }
    }

    /// The pieces in order.
    #[must_use]
    pub fn parts(&self) -> &[&'a [u8]] {
        &self.parts[..usize::from(self.len)]
    }

    /// Bytes of all pieces.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }
}

/// A received packet; the bytes live until the sink returns.
#[derive(Clone, Copy, Debug)]
pub struct RxPacket<'a> {
    /// Who sent it: IP and source port as seen here.
    pub source: SocketAddr,
    /// The local address and port that it came in on.
    pub dest: SocketAddr,
    /// IPv4 ToS or IPv6 traffic class as it came in: the low two bits are ECN, and 3 says that a
    /// switch was congested. `None` where the link cannot see it or did not look; see
    /// [`PacketLink::look_at_each_tclass`].
    pub tclass: Option<u8>,
    /// BTH to ICRC.
    pub bytes: &'a [u8],
    /// When it came in, on the link's clock.
    pub timestamp: Time,
}

/// What a link can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCaps {
    /// The longest packet, BTH to ICRC, in bytes.
    pub packet_bytes_max: u32,
    /// How many source ports it sends from.
    pub source_ports: u16,
    /// See [`DeviceCaps::rx_buffer_bytes`](crate::DeviceCaps::rx_buffer_bytes).
    pub rx_buffer_bytes: Option<u64>,
    /// See [`DeviceCaps::rx_charge_bytes`](crate::DeviceCaps::rx_charge_bytes).
    pub rx_charge_bytes: u32,
    /// See [`DeviceCaps::delay_noise`](crate::DeviceCaps::delay_noise).
    pub delay_noise: Nanos,
    /// Its peers may be other NICs: it sends what they can verify, and what comes from them on
    /// IPv4 may have an IP ID that it cannot see but the ICRC covers.
    pub foreign_peers: bool,
    /// Which queue pair numbers its packets are for: [`QpShare::ALL`] unless several links have
    /// this address, each with a device of its own.
    pub qp_share: QpShare,
}

/// Counters of a link; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets handed to the wire.
    pub packets_sent: u64,
    /// Bytes handed to the wire, BTH to ICRC.
    pub bytes_sent: u64,
    /// Packets taken from the wire.
    pub packets_received: u64,
    /// Bytes taken from the wire.
    pub bytes_received: u64,
    /// Packets that were lost here for want of buffer (kernel drops, where they can be seen).
    pub packets_dropped: u64,
    /// Packets that the system refused to send for good.
    pub send_errors: u64,
}

/// An unreliable wire for packets. One owner; no call but `wait` blocks.
pub trait PacketLink {
    /// What it can do.
    fn caps(&self) -> LinkCaps;

    /// Where peers send to.
    fn local_addr(&self) -> SocketAddr;

    /// The same of each of its NICs in turn, `None` behind the last; see
    /// [`Device::nic_addr`](crate::Device::nic_addr).
    fn nic_addr(&self, nic: usize) -> Option<SocketAddr> {
        (nic == 0).then(|| self.local_addr())
    }

    /// The link's clock now.
    fn now(&self) -> Time;

    /// The local address of each source port in turn: the ICRC covers the port on IPv4 and IPv6.
    fn source_addr(&self, source_port: u16) -> SocketAddr;

    /// The longest IP packet that goes to `dest` whole, as far as the host knows now; with `None`
    /// that of the interface that has the local address. For set-up: it may ask the system. `None`
    /// where nothing bounds packets but [`LinkCaps::packet_bytes_max`].
    fn ip_mtu(&self, dest: Option<SocketAddr>) -> Option<IpMtu> {
        let _ = dest;
        None
    }

    /// See [`Device::packets_too_long`](crate::Device::packets_too_long).
    fn packets_too_long(&self) -> u64 {
        0
    }

    /// Sends packets in order and returns how many it took; fewer means that the wire is full for
    /// now, and the rest is to be offered again. A packet that the system refuses for good counts
    /// as taken and lost: the wire is unreliable.
    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize;

    /// When the last packet left that the last [`transmit`](Self::transmit) took, as near as the
    /// link knows: to be asked right after that. It may still be to come, where the link knows how
    /// long its hardware takes.
    fn left_at(&mut self) -> Time {
        self.now()
    }

    /// Hands at most about `budget` received packets to `sink`, in order of arrival; returns how
    /// many.
    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize;

    /// Blocks until packets may have come in, its [waker](Self::waker) is used, or `timeout` is
    /// over; false in the last case. A link that cannot block returns false at once.
    fn wait(&mut self, timeout: Nanos) -> bool {
        let _ = timeout;
        false
    }

    /// Ends a [`wait`](Self::wait) from any thread, one that is under way or else the next. `None`
    /// where the link cannot block, or not be woken.
    fn waker(&self) -> Option<Waker> {
        None
    }

    /// Lets a file end each [`wait`](Self::wait), too, while there is something to read; see
    /// [`Device::watch_file`](crate::Device::watch_file).
    fn watch_file(&mut self, file: c_int) -> bool {
        let _ = file;
        false
    }

    /// Adds the files that are readable when a [`wait`](Self::wait) would end to an epoll instance;
    /// see [`Device::add_to_epoll`](crate::Device::add_to_epoll).
    fn add_to_epoll(&mut self, epoll: c_int) -> bool {
        let _ = epoll;
        false
    }

    /// From now on tells [the traffic class](RxPacket::tclass) of each packet, if it can. Before,
    /// it may look at some only.
    fn look_at_each_tclass(&mut self) {}

    /// Its counters.
    fn counters(&self) -> LinkCounters;
}
