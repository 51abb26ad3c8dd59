//! What a device can be told at the start.

use crate::limits::{QP_DEFAULT, QP_MAX, RC_WINDOW_PACKETS, RC_WINDOW_PACKETS_MAX};

/// Settings of a [`RoceDevice`](crate::RoceDevice). Whether its peers may be other NICs is a
/// matter of its link: [`UdpConfig::foreign_peers`](crate::udp::UdpConfig::foreign_peers).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoceConfig {
    pub(crate) seed: u64,
    pub(crate) qp_max: u32,
    pub(crate) rc_window_packets: u32,
}

impl Default for RoceConfig {
    fn default() -> Self {
        Self { seed: 0, qp_max: QP_DEFAULT, rc_window_packets: RC_WINDOW_PACKETS }
    }
}

impl RoceConfig {
    /// Where queue pair numbers start. Give each start of a process another, so that a peer's late
    /// packets miss the queue pairs of the next life. Default: 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The most queue pairs, at most 65,536; fewer leave more bits for the generation in a
    /// queue pair number. Default: 4,096.
    #[must_use]
    pub fn qp_max(mut self, qp_max: u32) -> Self {
        self.qp_max = qp_max.clamp(1, QP_MAX);
        self
    }

    /// How many packets an RC queue pair keeps under way at most. It must cover the bandwidth
    /// times the round trip, queues on the way included, or the wire falls idle; what is beyond
    /// that is sent in vain when a packet is lost, unless the link takes packets no faster than
    /// they leave. Where the link says how much its receive buffer holds, no more than that is
    /// under way. Default: 128.
    #[must_use]
    pub fn rc_window_packets(mut self, packets: u32) -> Self {
        self.rc_window_packets = packets.clamp(1, RC_WINDOW_PACKETS_MAX);
        self
    }
}
