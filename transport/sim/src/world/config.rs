//! What a virtual link is like.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use towpath_base::Nanos;

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
    /// What a short packet costs the hosts beside itself, in percent of a full one. Default 0:
    /// hosts cost no time on this wire.
    pub short_packet_cost_percent: u16,
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
            short_packet_cost_percent: 0,
        }
    }
}
