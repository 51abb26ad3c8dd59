//! The wire, the endpoints and the sizes of a run.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use towpath_base::{Nanos, Prng, Time};
use towpath_cc::{ControllerConfig, FixedWindowConfig};
use towpath_proto::{LinkConfig as ProtoConfig, Sabotage, Spreading};
use towpath_sim::LinkConfig as WireConfig;
use towpath_transport::keys::{
    HostKey, KnownSecret, PairSecret, PeerIdentity, PeerName, Peers, Roles, RollOver, Sealing,
    system_random,
};
use towpath_transport::{EndpointConfig, Icrc, Secure, Trusted};
use towpath_verbs::Mtu;

/// How long messages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The longest, in bytes.
    pub bytes_max: u32,
    /// All messages of one life and host together, about.
    pub bytes_total: u64,
    /// The most messages of one life and host.
    pub messages_max: u64,
}

/// What a run is like. All of it follows from the seed, but a test may change parts of it to have
/// more of what it looks for.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Where everything random comes from.
    pub seed: u64,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// The path MTU.
    pub mtu: Mtu,
    /// The largest chunk.
    pub chunk_bytes_max: u32,
    /// Receive buffers of each channel.
    pub quota_chunks: u32,
    /// Channels, each opened by one host or the other.
    pub channels: u32,
    /// A shared receive queue, or one for each queue pair.
    pub shared_receiving: bool,
    /// Of the wire, in bits a second.
    pub rate_bits_per_s: u64,
    /// Propagation delay of the wire.
    pub delay: Nanos,
    /// Spine switches between the hosts; 0 is a plain wire. Spines take IPv4.
    pub spines: u32,
    /// Paths of the link, each with a source port of its own.
    pub paths: usize,
    /// How chunks are spread over them.
    pub spreading: Spreading,
    /// The window, in bytes.
    pub window_bytes: u64,
    /// A host looks at its device no sooner than this after something happened.
    pub pause: Nanos,
    /// How long messages are.
    pub sizes: Sizes,
    /// Lives of the link, one after the other.
    pub lives: u32,
    /// How hard the faults are: 0.0 is none, 1.0 up to a tenth of all packets lost.
    pub harshness: f64,
    /// Half of the damage is to whole bytes, most often in headers.
    pub scribbles: bool,
    /// When packets carry an ICRC.
    pub icrc: Icrc,
    /// The probability that a life which is not the last ends with the death of both hosts.
    pub crashes: f64,
    /// Safeguards that are switched off.
    pub sabotage: Sabotage,
    /// How links are sealed, and after how many seals their keys roll over.
    pub sealed: Option<(Sealing, u64)>,
}

const KIB: u64 = 1 << 10;

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let prng = &mut prng;
        let sizes = draw_sizes(prng);
        let small_packets = sizes.bytes_max <= 64 << 10;
        let mtu = match prng.below(10) {
            0 if small_packets => Mtu::Mtu256,
            1 if small_packets => Mtu::Mtu512,
            2 | 3 => Mtu::Mtu1024,
            4 => Mtu::Mtu2048,
            _ => Mtu::Mtu4096,
        };
        let chunk_bytes_max = match prng.below(4) {
            0 => mtu.bytes() - 64,
            1 => mtu.bytes() * 2,
            2 => 16 << 10,
            _ => 56 << 10,
        };
        let rates = [1, 10, 25, 100];
        Self {
            seed,
            ipv6: prng.chance(0.3),
            mtu,
            chunk_bytes_max,
            quota_chunks: 1 << prng.between(3, 6),
            channels: prng.between(1, 4) as u32,
            shared_receiving: prng.chance(0.7),
            rate_bits_per_s: rates[prng.below(4) as usize] * 1_000_000_000,
            delay: Nanos(prng.between(500, 30_000)),
            spines: draw_spines(seed),
            paths: draw_paths(seed).0,
            spreading: draw_paths(seed).1,
            window_bytes: prng.between(16, 512) * KIB,
            pause: Nanos(if prng.chance(0.5) { prng.between(0, 5_000) } else { 0 }),
            sizes,
            lives: 1 + u32::from(prng.chance(0.35)) + u32::from(prng.chance(0.15)),
            harshness: 0.05 + 0.95 * prng.unit() * prng.unit(),
            scribbles: draw_damage(seed).0,
            icrc: draw_damage(seed).1,
            crashes: 0.6,
            sabotage: Sabotage::default(),
            sealed: None,
        }
    }

    pub(super) fn wire(&self) -> WireConfig {
        let addr = |last: u16| {
            let ip = if self.ipv6 {
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last))
            } else {
                IpAddr::V4(Ipv4Addr::new(10, 0, 0, last as u8))
            };
            SocketAddr::new(ip, 4791)
        };
        WireConfig {
            addrs: [addr(1), addr(2)],
            rate_bits_per_s: self.rate_bits_per_s,
            delay: self.delay,
            ..WireConfig::default()
        }
    }

    pub(super) fn endpoint(&self) -> EndpointConfig {
        // Out of range only where `draw` was changed by hand to nonsense.
        let window = FixedWindowConfig::new(self.window_bytes).unwrap_or_default();
        let config = EndpointConfig::new()
            .chunk_bytes_max(self.chunk_bytes_max)
            .quota_chunks(self.quota_chunks)
            .credit_total(self.quota_chunks * self.channels)
            // Below the 64 receives of the control queue pair, so that it never runs dry either
            // and any packet without a receive shows.
            .progress_budget(32)
            .links_max(2)
            .paths(self.paths)
            .send_queue_depth(64)
            .mtu_max(self.mtu)
            .shared_receiving(self.shared_receiving)
            .icrc(self.icrc)
            .send_pools(&self.pools())
            .controller(ControllerConfig::Fixed(window));
        let sabotage = self.sabotage;
        let spreading = self.spreading;
        let config = match self.sealed {
            Some((sealing, seals)) => config.secure(keys(self.seed, sealing, seals)),
            None => config,
        };
        config.tune_links(move |link: ProtoConfig| {
            let link = link.spreading(spreading);
            link.sabotage(sabotage)
        })
    }

    /// Buffers for the longest segment there is, and many small ones.
    fn pools(&self) -> Vec<(usize, usize)> {
        let longest = (self.sizes.bytes_max as usize).div_ceil(2).clamp(4096, 4 << 20);
        let mut pools = vec![(256, 32), (4096, 32)];
        if longest > 4096 {
            pools.push(((16 << 10).min(longest), 16));
        }
        if longest > 16 << 10 {
            pools.push((longest, 8));
        }
        pools
    }

    /// Packets of the largest chunk.
    pub(super) fn chunk_packets(&self) -> u32 {
        (self.chunk_bytes_max.min(self.sizes.bytes_max) + 64).div_ceil(self.mtu.bytes())
    }

    /// The length of the next message.
    pub(super) fn draw_len(&self, prng: &mut Prng) -> u32 {
        let packet = self.mtu.bytes() - 64;
        let (edge, max) = (prng.between(0, 2) as u32, self.sizes.bytes_max);
        let len = match prng.below(8) {
            0 => edge + 1,
            1 => packet - 1 + edge,
            2 => self.chunk_bytes_max - 1 + edge,
            3 => max,
            // Even over the orders of magnitude.
            _ => {
                let bits = f64::from(max).log2() * prng.unit();
                bits.exp2() as u32
            }
        };
        len.clamp(1, max)
    }
}

/// The keys of both hosts, whose links have their secrets from the seed.
fn keys(seed: u64, sealing: Sealing, seals: u64) -> Secure {
    let key = HostKey::generate(system_random()).expect("random bytes");
    let line = format!("{} peer", key.public());
    let peers = Arc::new(Peers::parse(&line).expect("a sound line"));
    let keys = Secure::new(&key, Trusted::Peers(peers), sealing).expect("a sound key");
    keys.set_roll_over(RollOver { seals, ..RollOver::default() });
    let mut secret = [0; 32];
    Prng::new(seed ^ 0x5ea1).fill(&mut secret);
    keys.vouch(KnownSecret {
        secret: PairSecret::new(secret),
        peer: PeerIdentity {
            key: key.public(),
            name: PeerName::parse("peer").expect("a name"),
            expires: None,
            roles: Roles::BOTH,
        },
        sealing,
        since: Time::ZERO,
    });
    keys
}

/// Whether bytes are damaged, too, and when packets carry an ICRC: from dice of its own.
fn draw_damage(seed: u64) -> (bool, Icrc) {
    let mut prng = Prng::new(seed ^ 0x1c2c_1c2c);
    let scribbles = prng.chance(0.3);
    (scribbles, if prng.chance(0.3) { Icrc::Always } else { Icrc::Auto })
}

/// From dice of its own, so that all else in a scenario is what it was before there was a fabric.
fn draw_spines(seed: u64) -> u32 {
    let mut prng = Prng::new(seed.rotate_left(32) ^ 0x5b1e);
    if prng.chance(0.4) { prng.between(1, 4) as u32 } else { 0 }
}

/// From dice of its own for the same reason.
fn draw_paths(seed: u64) -> (usize, Spreading) {
    let mut prng = Prng::new(seed.rotate_left(16) ^ 0x9a75);
    let paths = match prng.below(4) {
        0 | 1 => 1,
        2 => 2,
        _ => prng.between(3, 16) as usize,
    };
    let spreading = match prng.below(4) {
        0 => Spreading::Message,
        1 => Spreading::default(),
        2 => Spreading::Bytes(1),
        _ => Spreading::Bytes(prng.between(1, 64 << 10) as u32),
    };
    (paths, spreading)
}

/// Nearly all runs are small, so that there are many; a few hold messages of up to 16 MiB.
fn draw_sizes(prng: &mut Prng) -> Sizes {
    let (bytes_max, bytes_total, messages_max) = match prng.below(1000) {
        0..8 => (16 << 20, 16 << 20, 4),
        8..60 => (1 << 20, 2 << 20, 12),
        60..300 => (128 << 10, 512 << 10, 24),
        300..650 => (16 << 10, 128 << 10, 40),
        _ => (2 << 10, 48 << 10, 60),
    };
    Sizes { bytes_max, bytes_total, messages_max }
}
