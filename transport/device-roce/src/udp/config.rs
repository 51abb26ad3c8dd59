//! What a UDP link is asked for.

use super::limits::{ROCE_PORT, SOURCE_PORTS, SOURCE_PORTS_MAX};
use core::net::IpAddr;

/// Which local UDP port to receive on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChoice {
    /// Any free port.
    Ephemeral,
    /// 4791 where it is free, any free port otherwise.
    Roce4791OrEphemeral,
    /// This port or an error. 0 is any free port.
    Exact(u16),
}

/// Where the times of packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampSource {
    /// The clock is read once after each system call that received something.
    Call,
    /// The kernel stamps each datagram on arrival, and is asked for the stamp where the time of the
    /// call says little: where this end has not looked for 20 us or more, and where more comes than
    /// short packets one by one. So the time in the socket is left out where it may be long, and
    /// short packets are mostly received by the shortest call.
    KernelWhenLate,
    /// The kernel stamps each datagram on arrival, which leaves out the time in the socket. Costs
    /// 0.1 us for each datagram at either end, of 3 us to send and 0.4 to 2 to receive it, and
    /// short packets that come alone are not received by the shortest call.
    Kernel,
}

/// Configuration of a [`UdpLink`](super::UdpLink).
///
/// The defaults are tuned for hosts with our software at both ends: offload both ways, 8 MiB of
/// buffer where the system grants it, 16 source ports.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    pub(super) ip: IpAddr,
    /// Of further NICs.
    pub(super) further: Vec<IpAddr>,
    pub(super) scope_id: u32,
    pub(super) port: PortChoice,
    pub(super) source_ports: u16,
    pub(super) rx_buffer_bytes: u32,
    pub(super) tx_buffer_bytes: u32,
    pub(super) force_buffers: bool,
    pub(super) segmentation: bool,
    pub(super) coalescing: bool,
    pub(super) timestamps: TimestampSource,
    pub(super) card_stamps: bool,
    pub(super) foreign_peers: bool,
    pub(super) kernel_steering: bool,
}

impl UdpConfig {
    /// A link on the local address `ip`, which must not be the unspecified one: the ICRC covers
    /// the address.
    #[must_use]
    pub fn new(ip: IpAddr) -> Self {
        Self {
            ip,
            further: Vec::new(),
            scope_id: 0,
            port: PortChoice::Ephemeral,
            source_ports: SOURCE_PORTS,
            rx_buffer_bytes: 8 << 20,
            tx_buffer_bytes: 8 << 20,
            force_buffers: true,
            segmentation: true,
            coalescing: true,
            timestamps: TimestampSource::KernelWhenLate,
            card_stamps: false,
            foreign_peers: false,
            kernel_steering: true,
        }
    }

    /// Another NIC beside the first, by its local address: a device for both sends by either, and
    /// takes in what comes to any. All that is configured holds for each of them. For
    /// [`Bundle`](crate::Bundle); a [`UdpLink`](super::UdpLink) has one NIC.
    #[must_use]
    pub fn nic(mut self, ip: IpAddr) -> Self {
        self.further.push(ip);
        self
    }

    /// The configuration of each NIC by itself.
    pub(crate) fn each_nic(&self) -> Vec<Self> {
        let one = |ip, scope_id| Self { ip, further: Vec::new(), scope_id, ..self.clone() };
        let further = self.further.iter().map(|&ip| one(ip, 0));
        core::iter::once(one(self.ip, self.scope_id)).chain(further).collect()
    }

    /// Which port to receive on; [`PortChoice::Ephemeral`] by default.
    #[must_use]
    pub fn port(mut self, port: PortChoice) -> Self {
        self.port = port;
        self
    }

    /// The interface index of a link-local IPv6 address. Default: that of the first interface that
    /// has the address.
    #[must_use]
    pub fn scope_id(mut self, scope_id: u32) -> Self {
        self.scope_id = scope_id;
        self
    }

    /// How many source ports to send from, 1 to [`SOURCE_PORTS_MAX`] (held to that range); 16 by
    /// default. The receive port is the first, but for addresses of loopback; each further one
    /// costs a socket that only sends, and nothing while nobody sends from it. What leaves from two
    /// ports takes two system calls: links of four paths make 1.8 times as many for long messages
    /// as from one port, in as long runs. With one port a link whose way swallows has no other.
    #[must_use]
    pub fn source_ports(mut self, count: u16) -> Self {
        self.source_ports = count.clamp(1, SOURCE_PORTS_MAX);
        self
    }

    /// The receive buffer to ask for, in bytes of payload and bookkeeping; 8 MiB by default. What
    /// was granted shows in [`LinkCaps::rx_buffer_bytes`](towpath_verbs::LinkCaps).
    #[must_use]
    pub fn rx_buffer_bytes(mut self, bytes: u32) -> Self {
        self.rx_buffer_bytes = bytes;
        self
    }

    /// The send buffer to ask for, in bytes; 8 MiB by default.
    #[must_use]
    pub fn tx_buffer_bytes(mut self, bytes: u32) -> Self {
        self.tx_buffer_bytes = bytes;
        self
    }

    /// Whether to use `CAP_NET_ADMIN`, where the process has it, to pass the system's limits on
    /// buffers; true by default.
    #[must_use]
    pub fn force_buffers(mut self, force: bool) -> Self {
        self.force_buffers = force;
        self
    }

    /// Whether runs of packets are sent in one piece and cut up by the kernel or the NIC; true by
    /// default. Off costs a factor of three and more. Where peers may be foreign it is off on IPv4
    /// whatever is said here.
    #[must_use]
    pub fn segmentation(mut self, on: bool) -> Self {
        self.segmentation = on;
        self
    }

    /// Whether runs of packets are received in one piece; true by default. While only short packets
    /// come, each alone, they are not.
    #[must_use]
    pub fn coalescing(mut self, on: bool) -> Self {
        self.coalescing = on;
        self
    }

    /// Whether peers may be other NICs, or the kernel's rxe; false by default. It settles what they
    /// depend on, whatever else is configured:
    ///
    /// - The port is 4791, which is the only one that they send to, or binding fails. The kernel's
    ///   rxe has that port in the first network namespace, so next to it a process needs another
    ///   one.
    /// - On IPv4 packets leave one by one. Those that the kernel cuts from a run carry IP IDs 0, 1,
    ///   2 ..., which the ICRC covers: the peer would drop all but the first. Nor is any socket
    ///   connected, whose packets' IDs count up from anywhere.
    /// - On IPv4 a packet whose ICRC fails is accepted if some IP ID explains it, since a socket
    ///   cannot see the ID: 1 in 65,536 corruptions passes. IPv6 has no such ID.
    #[must_use]
    pub fn foreign_peers(mut self, yes: bool) -> Self {
        self.foreign_peers = yes;
        self
    }

    /// Whether the kernel is asked to bring packets to the link that they are for, where several
    /// have the port ([`UdpLink::bind_group`](super::UdpLink::bind_group)); true by default. Off,
    /// the links hand them to each other, as where the kernel refuses.
    #[must_use]
    pub fn kernel_steering(mut self, on: bool) -> Self {
        self.kernel_steering = on;
        self
    }

    /// The port as it is bound.
    pub(super) fn port_choice(&self) -> PortChoice {
        if self.foreign_peers { PortChoice::Exact(ROCE_PORT) } else { self.port }
    }

    /// Whether runs may leave in one piece.
    pub(super) fn segments(&self) -> bool {
        self.segmentation && !(self.foreign_peers && self.ip.is_ipv4())
    }

    /// Whether sockets that only send are connected to where they send, and all that send are such.
    /// Packets of a connected socket of IPv4 carry IDs that count up from anywhere, as no foreign
    /// peer expects them. Beyond this host it is not worth a second port for a firewall to admit.
    pub(super) fn connects(&self) -> bool {
        self.ip.is_loopback() && !(self.foreign_peers && self.ip.is_ipv4())
    }

    /// Where times come from; [`TimestampSource::KernelWhenLate`] by default. But by
    /// [`TimestampSource::Call`], one batch in 4 ms asks the kernel when it leaves, which
    /// tells how long before the end of a call others do: [`SendTimes`](super::SendTimes).
    ///
    /// Where the kernel tells times, those of the network card are taken, if the card stamps all
    /// that comes in and what leaves and asks for it, and this process may read its clock
    /// (`/dev/ptp0` and others).
    #[must_use]
    pub fn timestamps(mut self, source: TimestampSource) -> Self {
        self.timestamps = source;
        self
    }

    /// Whether the stamps of the network card are switched on, where it has any; false by default,
    /// since that is for all who use the interface, and needs `CAP_NET_ADMIN`. Where the system
    /// refuses, all is as it was. Somebody else may have switched them on.
    #[must_use]
    pub fn card_stamps(mut self, on: bool) -> Self {
        self.card_stamps = on;
        self
    }
}
