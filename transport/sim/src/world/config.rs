//! What virtual links, hosts, switches and cables are like.

use super::queue::{EcnConfig, PfcConfig};
use super::turns::QueueConfig;
use crate::limits::CLASSES;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use towpath_base::Nanos;

/// How long something takes: `fixed`, and up to `jitter` more, drawn evenly. What is behind waits
/// for what is before, so that jitter never reorders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostDelay {
    /// At least so long.
    pub fixed: Nanos,
    /// At most so much longer.
    pub jitter: Nanos,
}

/// What the timestamp of a packet says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timestamps {
    /// When its last bit came off the wire, or was put on it, as a network card stamps it.
    #[default]
    Wire,
    /// When the kernel had it, where so many hundredths of the delay of the host lie between that
    /// and the wire, or the queue of the network card.
    Kernel {
        /// At most 100.
        percent: u8,
    },
    /// When software could see it, or handed it over.
    Software,
}

impl Timestamps {
    /// What of a delay between software and the wire is on the wire's side of the stamp.
    pub(super) fn part(self, delay: Nanos) -> Nanos {
        match self {
            Self::Wire => Nanos::ZERO,
            Self::Kernel { percent } => Nanos(delay.0 / 100 * u64::from(percent.min(100))),
            Self::Software => delay,
        }
    }
}

/// A host on a switch: its network card, its cable, its software.
///
/// The defaults are a 100 Gb/s network card on 500 ns of cable and switch, in a host that takes no
/// time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Bits a second, both ways. Default 100 Gb/s.
    pub rate_bits_per_s: u64,
    /// Propagation delay of its cable. Default 500 ns.
    pub delay: Nanos,
    /// Bytes that wait in the network card, in each class; when they are full the link takes no
    /// more, and the host is woken once half of them are free and what it offered fits. A train
    /// that is larger goes alone. Default 256 KiB.
    pub nic_queue_bytes: u64,
    /// The queues in its network card, by class. Default: all strict.
    pub nic_queues: [QueueConfig; CLASSES],
    /// Source ports, at most [`SOURCE_PORTS_MAX`](crate::limits::SOURCE_PORTS_MAX). Default 16.
    pub source_ports: u16,
    /// Bytes that each packet takes on its cable beyond BTH to ICRC. Default 66: preamble and gap
    /// 20, Ethernet 18, IPv4 20, UDP 8.
    pub overhead_bytes: u32,
    /// The longest packet, BTH to ICRC. Default 4,200: an MTU of 4,096 and all headers.
    pub packet_bytes_max: u32,
    /// What the receive buffer holds until it is read; what does not fit is dropped and counted.
    /// Default 8 MiB.
    pub rx_buffer_bytes: u64,
    /// What each packet takes of `rx_buffer_bytes` on top of its own bytes. Default 0.
    pub rx_charge_bytes: u32,
    /// From the call that sends a packet to the queue of the network card.
    pub tx_delay: HostDelay,
    /// From the wire to where software can see the packet: the receive buffer.
    pub rx_delay: HostDelay,
    /// What the timestamp of a received packet says.
    pub timestamps: Timestamps,
    /// What its link tells of when a packet left, and so the completion of a send. Default: when
    /// software handed it over.
    pub send_times: Timestamps,
    /// What its device declares of the noise of delays. Default none.
    pub delay_noise: Nanos,
    /// Whether it heeds the pauses of its switch, where that sends any. Default true.
    pub heeds_pauses: bool,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            rate_bits_per_s: 100_000_000_000,
            delay: Nanos(500),
            nic_queue_bytes: 256 << 10,
            nic_queues: [QueueConfig::default(); CLASSES],
            source_ports: 16,
            overhead_bytes: 66,
            packet_bytes_max: 4_200,
            rx_buffer_bytes: 8 << 20,
            rx_charge_bytes: 0,
            tx_delay: HostDelay::default(),
            rx_delay: HostDelay::default(),
            timestamps: Timestamps::Wire,
            send_times: Timestamps::Software,
            delay_noise: Nanos::ZERO,
            heeds_pauses: true,
        }
    }
}

/// A switch: queues in front of each of its wires, one for each class, which drop at their tails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Bytes that wait in front of each wire, in each class, headers counted in. Default 1 MiB.
    pub port_buffer_bytes: u64,
    /// When packets are marked. Default: never.
    pub ecn: Option<EcnConfig>,
    /// The queues in front of each wire, by class. Default: all strict.
    pub queues: [QueueConfig; CLASSES],
    /// When what sends to it is paused. Default: never.
    pub pfc: Option<PfcConfig>,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        let queues = [QueueConfig::default(); CLASSES];
        Self { port_buffer_bytes: 1 << 20, ecn: None, queues, pfc: None }
    }
}

/// A cable between two switches; both directions are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CableConfig {
    /// Bits a second. Default 100 Gb/s.
    pub rate_bits_per_s: u64,
    /// Propagation delay. Default 1 us.
    pub delay: Nanos,
    /// Bytes that each packet takes on the wire beyond BTH to ICRC. Default 66.
    pub overhead_bytes: u32,
    /// Whether pauses of its switches, where they send any, go over it. Default true.
    pub heeds_pauses: bool,
}

impl Default for CableConfig {
    fn default() -> Self {
        let rate_bits_per_s = 100_000_000_000;
        Self {
            rate_bits_per_s,
            delay: Nanos::from_micros(1),
            overhead_bytes: 66,
            heeds_pauses: true,
        }
    }
}

/// A duplex wire; both directions are alike and do not share their rate.
///
/// The defaults are those of one hop inside a rack at 100 Gb/s, with the receive buffer of a
/// stock Linux socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// The IP address and UDP port of each end (IPv4 or IPv6). Default: 10.0.0.1 and 10.0.0.2,
    /// both at port 4791.
    pub addrs: [SocketAddr; 2],
    /// Source ports of each end, at most [`SOURCE_PORTS_MAX`](crate::limits::SOURCE_PORTS_MAX).
    /// Default 8.
    pub source_ports: u16,
    /// Bits a second on the wire; 0 for a wire that takes no time to send. Default 100 Gb/s.
    pub rate_bits_per_s: u64,
    /// Propagation delay. Default 2 us.
    pub delay: Nanos,
    /// Bytes that wait for the wire or are on their way onto it, headers counted in; what does
    /// not fit is dropped at the tail. Default 1 MiB.
    pub queue_bytes: u64,
    /// Bytes that each packet takes on the wire beyond BTH to ICRC. Default 66: preamble and gap
    /// 20, Ethernet 18, IPv4 20, UDP 8.
    pub overhead_bytes: u32,
    /// The longest packet, BTH to ICRC. Default 4,200: an MTU of 4,096 and all headers.
    pub packet_bytes_max: u32,
    /// What the receive buffer holds until `receive` is called; what does not fit is dropped and
    /// counted. Default 212,992, the stock `net.core.rmem_default`.
    pub rx_buffer_bytes: u64,
    /// What each packet takes of `rx_buffer_bytes` on top of its own bytes. Default 768, about
    /// what Linux keeps of bookkeeping for one.
    pub rx_charge_bytes: u32,
}

impl Default for LinkConfig {
    fn default() -> Self {
        let end = |last| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), 4791);
        Self {
            addrs: [end(1), end(2)],
            source_ports: 8,
            rate_bits_per_s: 100_000_000_000,
            delay: Nanos::from_micros(2),
            queue_bytes: 1 << 20,
            overhead_bytes: 66,
            packet_bytes_max: 4_200,
            rx_buffer_bytes: 212_992,
            rx_charge_bytes: 768,
        }
    }
}
