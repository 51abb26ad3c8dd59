//! What a device can be told at the start.

use crate::limits::{QP_DEFAULT, QP_MAX, RC_WINDOW_PACKETS, RC_WINDOW_PACKETS_MAX};

/// Settings of a [`RoceDevice`](crate::RoceDevice). The defaults serve peers that are this same
/// device; with other NICs or the rxe driver as peers over IPv4, set
/// [`foreign_peers`](Self::foreign_peers).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoceConfig {
    pub(crate) foreign_peers: bool,
    pub(crate) seed: u64,
    pub(crate) qp_max: u32,
    pub(crate) rc_window_packets: u32,
}

impl Default for RoceConfig {
    fn default() -> Self {
        Self {
            foreign_peers: false,
            seed: 0,
            qp_max: QP_DEFAULT,
            rc_window_packets: RC_WINDOW_PACKETS,
        }
    }
}

impl RoceConfig {
    /// Whether peers may be other NICs, whose IPv4 packets carry an IP ID that a socket cannot see
    /// but the ICRC covers. Then a packet whose ICRC fails is accepted if some ID explains it:
    /// 1 in 65,536 corruptions passes. Such a peer on IPv4 also needs a link that sends without
    /// segmentation offload ([`UdpConfig::segmentation`](crate::udp::UdpConfig::segmentation)).
    /// Default: no.
    #[must_use]
    pub fn foreign_peers(mut self, yes: bool) -> Self {
        self.foreign_peers = yes;
        self
    }

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
