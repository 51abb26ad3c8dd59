//! What one side chooses for a link, and what the peer said.

use crate::carrier::Carrier;
use crate::limits::{
    CHUNK_BYTES_MAX, CREDIT_OUTSTANDING_MAX, MESSAGE_BYTES_MAX, PATHS_MAX, QUOTA_CHUNKS_MIN,
};
use crate::path::{PacketSizes, Spreading};
use alloc::vec::Vec;
use towpath_base::Nanos;
use towpath_cc::ControllerConfig;
use towpath_verbs::Mtu;

/// Which end of a link this is; it decides who opens channels with even numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side that connected.
    Client,
    /// The side that accepted.
    Server,
}

/// Local choices of a link. The defaults are tuned for a datacentre (RTT 5 to 500 us) and for
/// loopback, where the peer may be off the CPU for milliseconds.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    pub(crate) side: Side,
    pub(crate) seed: u64,
    pub(crate) times: Times,
    pub(crate) limits: Limits,
    pub(crate) flow: FlowConfig,
    pub(crate) ways: Ways,
    pub(crate) streams: bool,
    pub(crate) pieces_as_they_come: bool,
    pub(crate) payload_crc: bool,
    pub(crate) checks_address: bool,
    #[cfg(feature = "sabotage")]
    pub(crate) sabotage: Sabotage,
}

/// When something is late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) rto_min: Nanos,
    pub(crate) rto_max: Nanos,
    pub(crate) peer_timeout: Nanos,
    pub(crate) ping_interval: Nanos,
    pub(crate) sla_tick: Nanos,
}

/// How much there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) sends_max: usize,
    pub(crate) lane_ops_max: usize,
    pub(crate) channels_max: u32,
    pub(crate) quota_chunks: u32,
    pub(crate) credit_total: u32,
    pub(crate) message_bytes_max: u32,
    pub(crate) whole_bytes_max: u32,
}

/// How fast chunks leave, and how long they are.
#[derive(Clone, Debug)]
pub(crate) struct FlowConfig {
    pub(crate) controller: ControllerConfig,
    pub(crate) delay_noise: Nanos,
    pub(crate) burst_bytes: u64,
    pub(crate) chunk_bytes_max: u32,
    pub(crate) chunk_cost_packets: f64,
    pub(crate) gather_max: usize,
}

/// Which ways chunks take: paths, their source ports and packets, and carriers.
#[derive(Clone, Debug)]
pub(crate) struct Ways {
    pub(crate) spreading: Spreading,
    pub(crate) source_ports: u16,
    pub(crate) keeps_ports: bool,
    pub(crate) spare_paths: usize,
    pub(crate) packet_sizes: PacketSizes,
    /// After what silence a carrier is left, and how long a worse one is kept at least.
    pub(crate) fallback: (Nanos, Nanos),
    /// From which share of lost packets on a carrier that answers is left for TCP all the same.
    pub(crate) hopeless_loss: f64,
}

impl LinkConfig {
    /// The defaults for one side.
    #[must_use]
    pub fn new(side: Side) -> Self {
        Self {
            side,
            seed: 0,
            times: Times {
                rto_min: Nanos::from_millis(1),
                rto_max: Nanos::from_millis(500),
                peer_timeout: Nanos::from_secs(10),
                ping_interval: Nanos::from_secs(2),
                sla_tick: Nanos::from_millis(4),
            },
            limits: Limits {
                sends_max: 4096,
                lane_ops_max: crate::limits::LANE_OPS_DEFAULT,
                channels_max: 1024,
                quota_chunks: 128,
                credit_total: 256,
                message_bytes_max: MESSAGE_BYTES_MAX,
                whole_bytes_max: MESSAGE_BYTES_MAX,
            },
            flow: FlowConfig {
                controller: ControllerConfig::default(),
                delay_noise: Nanos::ZERO,
                burst_bytes: 64 << 10,
                chunk_bytes_max: CHUNK_BYTES_MAX,
                chunk_cost_packets: 0.5,
                gather_max: 31,
            },
            ways: Ways {
                spreading: Spreading::default(),
                source_ports: 1,
                keeps_ports: false,
                spare_paths: 0,
                packet_sizes: PacketSizes::default(),
                fallback: (Nanos::from_millis(500), Nanos::from_secs(1)),
                hopeless_loss: 0.25,
            },
            streams: true,
            pieces_as_they_come: false,
            payload_crc: true,
            checks_address: false,
            #[cfg(feature = "sabotage")]
            sabotage: Sabotage::default(),
        }
    }

    /// The congestion controller. Default: see [`ControllerConfig`].
    #[must_use]
    pub fn controller(mut self, controller: ControllerConfig) -> Self {
        self.flow.controller = controller;
        self
    }

    /// How far delays may be off at most although nothing is queued: what bounds the noise that
    /// controllers measure.
    /// Default zero; endpoints set what their device says.
    #[must_use]
    pub fn delay_noise(mut self, span: Nanos) -> Self {
        self.flow.delay_noise = span;
        self
    }

    /// The most messages being sent at a time. Default 4,096; about 300 bytes each.
    #[must_use]
    pub fn sends_max(mut self, sends: usize) -> Self {
        self.limits.sends_max = sends.max(1);
        self
    }

    /// Pieces of messages that the peer may send on one channel before some come back. Default 128,
    /// at least 8. Each holds a receive buffer of `chunk_bytes_max` at most.
    #[must_use]
    pub fn quota_chunks(mut self, chunks: u32) -> Self {
        self.limits.quota_chunks = chunks.clamp(QUOTA_CHUNKS_MIN, CREDIT_OUTSTANDING_MAX - 1);
        self
    }

    /// Pieces that all channels together may be granted: what readers that stall may hold, in as
    /// many buffers at most. Default 256. A channel that would exceed it is refused.
    #[must_use]
    pub fn credit_total(mut self, chunks: u32) -> Self {
        self.limits.credit_total = chunks;
        self
    }

    /// Messages that may have come in part. Each holds a piece or has one under way, all within
    /// credit, but for one of each channel whose next piece is not cut yet: were there fewer,
    /// pieces refused could be sent again for ever in the place of those that complete messages.
    pub(crate) fn incoming_max(&self) -> usize {
        self.limits.credit_total as usize + 2 * self.limits.channels_max as usize
    }

    /// The most channels. Default 1,024.
    #[must_use]
    pub fn channels_max(mut self, channels: u32) -> Self {
        self.limits.channels_max = channels.clamp(1, crate::limits::CHANNELS_MAX);
        self
    }

    /// The longest message taken from the peer. Default: the protocol's limit, 2^31.
    #[must_use]
    pub fn message_bytes_max(mut self, bytes: u32) -> Self {
        self.limits.message_bytes_max = bytes.clamp(1, MESSAGE_BYTES_MAX);
        self
    }

    /// The longest message that is handed over whole, where the credit of a channel suffices
    /// for it: see [`Link::whole_bytes_max`](crate::Link::whole_bytes_max). Default: credit alone
    /// decides.
    #[must_use]
    pub fn whole_bytes_max(mut self, bytes: u32) -> Self {
        self.limits.whole_bytes_max = bytes.max(1);
        self
    }

    /// Whether messages longer than [`Link::whole_bytes_max`](crate::Link::whole_bytes_max) are
    /// taken, in pieces. If not, the peer is told so when a channel is opened. Default yes.
    #[must_use]
    pub fn streams(mut self, on: bool) -> Self {
        self.streams = on;
        self
    }

    /// Whether messages of unordered channels are handed out piece by piece as they come, in any
    /// order, as [`Event::StreamChunk`](crate::Event::StreamChunk): so a reader begins before the
    /// last piece is here. A message that is whole when the application looks comes whole all the
    /// same. Default no.
    #[must_use]
    pub fn pieces_as_they_come(mut self, on: bool) -> Self {
        self.pieces_as_they_come = on;
        self
    }

    /// Whether payloads carry a CRC32C. Default on; off, a corruption that the ICRC misses goes
    /// unseen unless the application checks.
    #[must_use]
    pub fn payload_crc(mut self, on: bool) -> Self {
        self.payload_crc = on;
        self
    }

    /// Bounds of the retransmission timeout. Default 1 ms to 500 ms.
    #[must_use]
    pub fn rto(mut self, min: Nanos, max: Nanos) -> Self {
        (self.times.rto_min, self.times.rto_max) = (min, max.max(min));
        self
    }

    /// How long a peer may be silent while an answer is due before it counts as gone. Default 10 s.
    #[must_use]
    pub fn peer_timeout(mut self, span: Nanos) -> Self {
        self.times.peer_timeout = span;
        self
    }

    /// Whether the client shows at once that it is at the address that its HELLO named, and the
    /// server sends nothing there before (docs/protocol.md section 8). Default off: who hands over
    /// HELLOs vouches for them. Endpoints set it for links that are set up over TCP.
    #[must_use]
    pub fn checks_address(mut self, on: bool) -> Self {
        self.checks_address = on;
        self
    }

    /// How long a link may be idle before a sign of life is asked for. Default 2 s.
    #[must_use]
    pub fn ping_interval(mut self, span: Nanos) -> Self {
        self.times.ping_interval = span;
        self
    }

    /// How chunks are spread over paths. Default: 256 KiB to a path, then another.
    #[must_use]
    pub fn spreading(mut self, spreading: Spreading) -> Self {
        self.ways.spreading = spreading;
        self
    }

    /// How long nothing that was sent on a path may be acknowledged, while other paths answer,
    /// before the path is doubted and everything on it goes another way; longer where round trips
    /// are. Default 4 ms, at least 1 ms: above what a host's scheduler takes away now and then,
    /// and two of them below the 10 ms at which an I/O counts as slow.
    #[must_use]
    pub fn sla_tick(mut self, span: Nanos) -> Self {
        self.times.sla_tick = span.max(Nanos::from_millis(1));
        self
    }

    /// How many source ports the driver can choose from; path i begins on port i modulo this. For a
    /// queue pair that runs [`Link::poll_reroute`](crate::Link::poll_reroute) asks it to change it.
    /// Default 1: paths stay on their ports. Endpoints set what their device says.
    #[must_use]
    pub fn source_ports(mut self, count: u16) -> Self {
        self.ways.source_ports = count;
        self
    }

    /// A queue pair that runs keeps its source port: only the next one of its path can leave from
    /// another. Default off; endpoints set what their device says.
    #[must_use]
    pub fn keeps_ports(mut self, on: bool) -> Self {
        self.ways.keeps_ports = on;
        self
    }

    /// Where a link has paths on several carriers: how long the one that it rides on may be silent
    /// before worse ones are asked, and how long it stays on a worse one at least, which doubles
    /// with each fall that follows soon. Default 500 ms, so that paths have been tried before, a
    /// process that has to wait for its processor is not taken for a dead network, and an I/O is
    /// back within two seconds; and 1 s. At least 10 ms each.
    #[must_use]
    pub fn fallback(mut self, after: Nanos, stay: Nanos) -> Self {
        let least = Nanos::from_millis(10);
        self.ways.fallback = (after.max(least), stay.max(least));
        self
    }

    /// A carrier that answers, and yet loses such a share of its packets in each of four spans
    /// `after` of [`fallback`](Self::fallback) in a row, is left for TCP, if the link has a path
    /// over that. Default 0.25, far above what congestion does; 1.0 for never.
    #[must_use]
    pub fn hopeless_loss(mut self, share: f64) -> Self {
        self.ways.hopeless_loss = share.clamp(0.01, 1.0);
        self
    }

    /// How many of the paths are held back, the last ones of each carrier, until another is retired
    /// and cannot go on from another source port, or none answers; at least one is used. Default 0:
    /// endpoints set what they have in reserve. The peer may do otherwise.
    #[must_use]
    pub fn spare_paths(mut self, paths: usize) -> Self {
        self.ways.spare_paths = paths;
        self
    }

    /// How the link goes on where a path carries less than the MTU of its queue pairs. Default: not
    /// at all, and paths are not asked; endpoints set what both devices say.
    #[must_use]
    pub fn packet_sizes(mut self, sizes: PacketSizes) -> Self {
        self.ways.packet_sizes = sizes;
        self
    }

    /// Where the choice of paths comes from. Default zero; endpoints draw one for each link.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The longest chunk to send, in bytes behind its header. Default 61,376: with its header it
    /// makes the 15 packets of 4,096 bytes that one offloaded socket send holds.
    #[must_use]
    pub fn chunk_bytes_max(mut self, bytes: u32) -> Self {
        self.flow.chunk_bytes_max = bytes.max(64);
        self
    }

    /// What a chunk costs beside its packets, in packets: the weight of CPU against loss when the
    /// chunk size adapts. Default 0.5.
    #[must_use]
    pub fn chunk_cost_packets(mut self, packets: f64) -> Self {
        self.flow.chunk_cost_packets = packets.clamp(0.01, 100.0);
        self
    }

    /// From how many pieces of memory a device gathers what follows the header of a chunk, at most.
    /// Default 31, at least 2; endpoints set what their device can do.
    #[must_use]
    pub fn gather_max(mut self, pieces: usize) -> Self {
        self.flow.gather_max = pieces.max(2);
        self
    }

    /// Switches safeguards off.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn sabotage(mut self, sabotage: Sabotage) -> Self {
        self.sabotage = sabotage;
        self
    }
}

/// Safeguards that a test can switch off, to see that it notices.
#[cfg(feature = "sabotage")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sabotage {
    /// Duplicates reach the application.
    pub accept_duplicates: bool,
    /// Chunks of another generation are taken.
    pub accept_stale: bool,
    /// Payload checksums are not looked at.
    pub skip_payload_crc: bool,
}

/// What both sides' HELLOs add up to, seen from one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerParams {
    /// The path MTU.
    pub mtu: Mtu,
    /// Payload bytes of the peer's receive buffers.
    pub chunk_bytes_max: u32,
    /// What the peer charges a message beside its bytes.
    pub charge_bytes: u32,
    /// What may be in flight to the peer at first.
    pub window_bytes: u64,
    /// The most numbers outstanding on a path: as many receives as the peer keeps for each.
    pub path_chunks: u16,
    /// The generations of each path, 1 to 16: ours first (what we accept), the peer's second (what
    /// we send).
    pub generations: Vec<(u32, u32)>,
    /// What carries each path.
    pub carriers: Vec<Carrier>,
    /// The same for the control queue pair.
    pub control_generations: (u32, u32),
}

impl PeerParams {
    pub(crate) fn check(&self) {
        assert!((1..=PATHS_MAX).contains(&self.generations.len()), "1 to {PATHS_MAX} paths");
        assert_eq!(self.carriers.len(), self.generations.len(), "each path has its carrier");
        assert!(self.path_chunks > 0, "a path needs a number");
    }
}
