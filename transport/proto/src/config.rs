//! What one side chooses for a link, and what the peer said.

use crate::carrier::Carrier;
use crate::limits::{
    CHANNELS_MAX, CHUNK_BYTES_MAX, CREDIT_OUTSTANDING_MAX, MESSAGE_BYTES_MAX, PATHS_MAX,
    PING_INTERVAL, QUOTA_CHUNKS_MIN,
};
use crate::rails::Rails;
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
    pub(crate) times: Times,
    pub(crate) limits: Limits,
    pub(crate) rules: Rules,
    pub(crate) flow: FlowConfig,
    pub(crate) ways: Ways,
    #[cfg(feature = "sabotage")]
    pub(crate) sabotage: Sabotage,
}

impl LinkConfig {
    /// The defaults for one side.
    #[must_use]
    pub fn new(side: Side) -> Self {
        Self {
            side,
            times: Times::default(),
            limits: Limits::default(),
            rules: Rules::default(),
            flow: FlowConfig::default(),
            ways: Ways::default(),
            #[cfg(feature = "sabotage")]
            sabotage: Sabotage::default(),
        }
    }

    /// Switches safeguards off.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn sabotage(mut self, sabotage: Sabotage) -> Self {
        self.sabotage = sabotage;
        self
    }
}

/// Declares each setting once: it becomes a field of its group with a default, and a method of
/// [`LinkConfig`] that sets the field.
macro_rules! settings {
    ($(#[$doc:meta])* $group:ident: $Group:ident {
        $($(#[$about:meta])*
        $name:ident($($given:ident: $type:ty),+) = $default:expr => $kept:expr;)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        #[allow(unused_parens, reason = "several values make a tuple, one does not")]
        pub(crate) struct $Group { $(pub(crate) $name: ($($type),+),)+ }

        impl Default for $Group {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl LinkConfig {
            $($(#[$about])*
            #[must_use]
            pub fn $name(mut self, $($given: $type),+) -> Self {
                self.$group.$name = $kept;
                self
            })+
        }
    };
}

settings! {
    /// When something is late.
    times: Times {
        /// Bounds of the retransmission timeout. Default 1 ms to 500 ms.
        rto(min: Nanos, max: Nanos) = (Nanos::from_millis(1), Nanos::from_millis(500))
            => (min, max.max(min));
        /// How long a peer may be silent while an answer is due before it counts as gone. Default
        /// 10 s.
        peer_timeout(span: Nanos) = Nanos::from_secs(10) => span;
        /// How long nothing that was sent on a path may be acknowledged, while other paths answer,
        /// before the path is doubted and everything on it goes another way; longer where round
        /// trips are. Default 4 ms, at least 1 ms: above what a host's scheduler takes away now and
        /// then, and two of them below the 10 ms at which an I/O counts as slow.
        sla_tick(span: Nanos) = Nanos::from_millis(4) => span.max(Nanos::from_millis(1));
    }
}

impl Times {
    /// How long a link may be idle before a sign of life is asked for. Silence counts from the last
    /// sign of life, so idle links must ask for one in time.
    pub(crate) fn ping_interval(&self) -> Nanos {
        PING_INTERVAL.min(Nanos(self.peer_timeout.0 / 2))
    }
}

settings! {
    /// How much there may be.
    limits: Limits {
        /// The most messages being sent at a time. Default 4,096; about 300 bytes each.
        sends_max(sends: usize) = 4096 => sends.max(1);
        /// The most channels. Default 1,024.
        channels_max(channels: u32) = 1024 => channels.clamp(1, CHANNELS_MAX);
        /// Pieces of messages that the peer may send on one channel before some come back. Default
        /// 128, at least 8. Each holds a receive buffer of `chunk_bytes_max` at most.
        quota_chunks(chunks: u32) = 128
            => chunks.clamp(QUOTA_CHUNKS_MIN, CREDIT_OUTSTANDING_MAX - 1);
        /// Pieces that all channels together may be granted: what readers that stall may hold, in
        /// as many buffers at most. Default 256. A channel that would exceed it is refused.
        credit_total(chunks: u32) = 256 => chunks;
        /// The longest message taken from the peer. Default: the protocol's limit, 2^31.
        message_bytes_max(bytes: u32) = MESSAGE_BYTES_MAX => bytes.clamp(1, MESSAGE_BYTES_MAX);
        /// The longest message that is handed over whole, where the credit of a channel suffices
        /// for it: see [`Link::whole_bytes_max`](crate::Link::whole_bytes_max). Default: credit
        /// alone decides.
        whole_bytes_max(bytes: u32) = MESSAGE_BYTES_MAX => bytes.max(1);
    }
}

impl Limits {
    /// Messages that may have come in part. Each holds a piece or has one under way, all within
    /// credit, but for one of each channel whose next piece is not cut yet: were there fewer,
    /// pieces refused could be sent again for ever in the place of those that complete messages.
    pub(crate) fn incoming_max(&self) -> usize {
        self.credit_total as usize + 2 * self.channels_max as usize
    }
}

settings! {
    /// How messages are handed out, and what is checked.
    rules: Rules {
        /// Whether messages longer than
        /// [`Link::whole_bytes_max`](crate::Link::whole_bytes_max) are taken, in pieces. If not,
        /// the peer is told so when a channel is opened. Default yes.
        streams(on: bool) = true => on;
        /// Whether messages of unordered channels are handed out piece by piece as they come, in
        /// any order, as [`Event::StreamChunk`](crate::Event::StreamChunk): so a reader begins
        /// before the last piece is here. A message that is whole when the application looks comes
        /// whole all the same. Default no.
        pieces_as_they_come(on: bool) = false => on;
        /// Whether payloads carry a CRC32C. Default on; off, a corruption that the ICRC misses goes
        /// unseen unless the application checks.
        payload_crc(on: bool) = true => on;
        /// Whether the client shows at once that it is at the address that its HELLO named, and the
        /// server sends nothing there before (docs/protocol.md section 8). Default off: who hands
        /// over HELLOs vouches for them. Endpoints set it for links that are set up over TCP.
        checks_address(on: bool) = false => on;
    }
}

settings! {
    /// How fast chunks leave, and how long they are.
    flow: FlowConfig {
        /// The congestion controller. Default: see [`ControllerConfig`].
        controller(controller: ControllerConfig) = ControllerConfig::default() => controller;
        /// How far delays may be off at most although nothing is queued: what bounds the noise that
        /// controllers measure. Default zero; endpoints set what their device says.
        delay_noise(span: Nanos) = Nanos::ZERO => span;
        /// The longest chunk to send, in bytes behind its header. Default 61,376: with its header
        /// it makes the 15 packets of 4,096 bytes that one offloaded socket send holds.
        chunk_bytes_max(bytes: u32) = CHUNK_BYTES_MAX => bytes.max(64);
        /// What a chunk costs beside its packets, in packets: the weight of CPU against loss when
        /// the chunk size adapts. Default 0.5.
        chunk_cost_packets(packets: f64) = 0.5 => packets.clamp(0.01, 100.0);
        /// From how many pieces of memory a device gathers what follows the header of a chunk, at
        /// most. Default 31, at least 2; endpoints set what their device can do.
        gather_max(pieces: usize) = 31 => pieces.max(2);
        /// Bytes that the driver puts behind the body of each chunk, as the tag of a seal. Chunks
        /// fill their packets with them. Default 0.
        trailer_bytes(bytes: u32) = 0 => bytes;
    }
}

settings! {
    /// Which ways chunks take: paths, their source ports and packets, and carriers.
    ways: Ways {
        /// Where the choice of paths comes from. Default zero; endpoints draw one for each link.
        seed(seed: u64) = 0 => seed;
        /// How chunks are spread over paths. Default: 256 KiB to a path, then another.
        spreading(spreading: Spreading) = Spreading::default() => spreading;
        /// How many NICs both ends have: each path belongs to one of each. Paths of other NICs than
        /// the first path's are probed before they are used. Default one each.
        rails(rails: Rails) = Rails::ONE => rails;
        /// How many source ports the driver can choose from; path i begins on port i modulo this.
        /// Where we have several NICs each has its part of them, and a path keeps to its NIC's.
        /// For a queue pair that runs [`Link::poll_reroute`](crate::Link::poll_reroute) asks it to
        /// change it. Default 1: paths stay on their ports. Endpoints set what their device says.
        source_ports(count: u16) = 1 => count;
        /// A queue pair that runs keeps its source port: only the next one of its path can leave
        /// from another. Default off; endpoints set what their device says.
        keeps_ports(on: bool) = false => on;
        /// How many of the paths are held back, the last ones of each carrier, until another is
        /// retired and cannot go on from another source port, or none answers; at least one is
        /// used. Default 0: endpoints set what they have in reserve. The peer may do otherwise.
        spare_paths(paths: usize) = 0 => paths;
        /// How the link goes on where a path carries less than the MTU of its queue pairs. Default:
        /// not at all, and paths are not asked; endpoints set what both devices say.
        packet_sizes(sizes: PacketSizes) = PacketSizes::default() => sizes;
        /// Where a link has paths on several carriers: how long the one that it rides on may be
        /// silent before worse ones are asked, and how long it stays on a worse one at least, which
        /// doubles with each fall that follows soon. Default 500 ms, so that paths have been tried
        /// before, a process that has to wait for its processor is not taken for a dead network,
        /// and an I/O is back within two seconds; and 1 s. At least 10 ms each.
        fallback(after: Nanos, stay: Nanos) = (Nanos::from_millis(500), Nanos::from_secs(1))
            => (after.max(Nanos::from_millis(10)), stay.max(Nanos::from_millis(10)));
    }
}

/// How chunks are spread over the good paths of a link.
///
/// Loss is found on each path by itself, and a receiver takes the chunks of a message in any
/// order: so spreading costs no reordering, and the order of delivery holds under both policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spreading {
    /// A path is chosen anew after so many bytes, or a round trip. Long messages use many paths,
    /// so that one slow path holds up a part of them only and load evens out; the more bytes, the
    /// fewer acks.
    Bytes(u32),
    /// Each message keeps to one path unless that fails. A burst stays in one piece, and only
    /// messages on a bad path suffer from it; but two long ones may share a path while others idle.
    Message,
}

impl Default for Spreading {
    /// 256 KiB: four full chunks, so that a turn of the receiver acknowledges one or two paths.
    fn default() -> Self {
        Self::Bytes(256 << 10)
    }
}

/// How a link goes on with smaller packets than the MTU of its queue pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PacketSizes {
    /// Not at all, and nothing is searched: no packets are on the way, or nobody may ask.
    #[default]
    Fixed,
    /// Both devices know sends that are cut at a smaller size
    /// ([`DeviceCaps::cuts_each_send`](towpath_verbs::DeviceCaps::cuts_each_send)).
    Cut,
    /// By sends that fit one packet.
    Lone,
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
