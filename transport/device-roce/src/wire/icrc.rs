//! The invariant CRC: CRC-32 over the fields that no router changes (InfiniBand Architecture,
//! volume 1, annex A17.3.3: RoCEv2).
//!
//! It covers 8 bytes of ones, the IP and UDP headers and the BTH with their variant fields set to
//! ones, and the rest of the packet. We send from a socket with path MTU discovery on, whose
//! packets carry DF and IP ID 0, so that the whole of it can be known on both sides. What the
//! kernel cuts from a run has other IDs, and so has what a connected socket sends: both ends take
//! them for 0, and where a peer may be foreign neither is used.
//!
//! CRC-32 is linear over GF(2), which is used twice. The CRC up to the end of the BTH is that of
//! the connection ([`IcrcBase`], computed once) XOR one table entry for each byte that varies.
//! And an unknown IP ID moves the CRC only within a space of 16 dimensions ([`IdSpace`]).

use super::BTH_BYTES;
use core::net::{IpAddr, SocketAddr};
use towpath_base::crc::Crc32;

/// Bytes of an ICRC.
pub const ICRC_BYTES: usize = 4;

/// What stands in place of an ICRC in the packets of queue pairs that go without one: "none". A
/// receiver that expects it finds packets whose end was cut off.
pub const NO_ICRC: u32 = u32::from_le_bytes(*b"none");

/// Bytes of a UDP header, which its length field counts.
const UDP_BYTES: usize = 8;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
/// Ones in place of the local routing header.
const LRH_BYTES: usize = 8;
const PSEUDO_BYTES_MAX: usize = LRH_BYTES + IPV6_BYTES + UDP_BYTES + BTH_BYTES;

/// CRC-32 of zlib, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

const BYTE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

const fn zero_byte_after(crc: u32) -> u32 {
    crc >> 8 ^ BYTE[(crc & 0xff) as usize]
}

/// How a byte moves the CRC when `following` more bytes come after it.
const fn effect(following: usize) -> [u32; 256] {
    let mut table = BYTE;
    let mut byte = 0;
    while byte < 256 {
        let mut i = 0;
        while i < following {
            table[byte] = zero_byte_after(table[byte]);
            i += 1;
        }
        byte += 1;
    }
    table
}

/// Effects of the bytes of the BTH, first to last.
static BTH_EFFECT: [[u32; 256]; BTH_BYTES] = [
    effect(11),
    effect(10),
    effect(9),
    effect(8),
    effect(7),
    effect(6),
    effect(5),
    effect(4),
    effect(3),
    effect(2),
    effect(1),
    effect(0),
];
/// Effects of the UDP length: BTH and UDP checksum follow.
static UDP_LEN_EFFECT: [[u32; 256]; 2] = [effect(BTH_BYTES + 3), effect(BTH_BYTES + 2)];
/// Effects of the IPv4 total length, 16 bytes before the end of its header.
static V4_LEN_EFFECT: [[u32; 256]; 2] = [effect(37), effect(36)];
/// Effects of the IPv6 payload length, 34 bytes before the end of its header.
static V6_LEN_EFFECT: [[u32; 256]; 2] = [effect(55), effect(54)];

fn effect_u16(tables: &[[u32; 256]; 2], value: u16) -> u32 {
    let [hi, lo] = value.to_be_bytes();
    tables[0][usize::from(hi)] ^ tables[1][usize::from(lo)]
}

/// The ICRC of everything that is constant between one source, one destination and one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcrcBase {
    crc: u32,
    v4: bool,
}

impl IcrcBase {
    /// For packets from `source` to the queue pair `dest_qp` at `dest`.
    #[must_use]
    #[inline(never)]
    pub fn new(source: SocketAddr, dest: SocketAddr, dest_qp: u32) -> Self {
        let mut bytes = [0; PSEUDO_BYTES_MAX];
        let (len, v4) = pseudo_header(source, dest, &mut bytes);
        bytes[len - BTH_BYTES + 4..len - BTH_BYTES + 8].copy_from_slice(&dest_qp.to_be_bytes());
        bytes[len - BTH_BYTES + 4] = 0xff;
        let mut crc = Crc32::new();
        crc.update(&bytes[..len]);
        Self { crc: crc.value(), v4 }
    }

    /// The CRC up to the end of `bth`, of a packet of `packet_bytes` from BTH to ICRC. The
    /// queue pair in `bth` is not looked at: it is the one given to [`new`](Self::new).
    #[must_use]
    #[inline]
    pub fn to_bth(&self, bth: &[u8; BTH_BYTES], packet_bytes: usize) -> u32 {
        let udp_len = (UDP_BYTES + packet_bytes) as u16;
        let ip_len = if self.v4 {
            effect_u16(&V4_LEN_EFFECT, udp_len.wrapping_add(IPV4_BYTES as u16))
        } else {
            effect_u16(&V6_LEN_EFFECT, udp_len)
        };
        let at = |i: usize| BTH_EFFECT[i][usize::from(bth[i])];
        let head = at(0) ^ at(1) ^ at(2) ^ at(3);
        let tail = at(8) ^ at(9) ^ at(10) ^ at(11);
        self.crc ^ ip_len ^ effect_u16(&UDP_LEN_EFFECT, udp_len) ^ head ^ tail
    }

    /// What is between the ICRC that a packet carries and the right one: zero for a sound packet.
    /// `None` when `packet` is shorter than BTH and ICRC.
    #[must_use]
    #[inline]
    pub fn difference(&self, packet: &[u8]) -> Option<u32> {
        let (bth, rest) = packet.split_first_chunk::<BTH_BYTES>()?;
        let (body, stored) = rest.split_last_chunk::<ICRC_BYTES>()?;
        let mut crc = Crc32::resume(self.to_bth(bth, packet.len()));
        crc.update(body);
        Some(crc.value() ^ u32::from_le_bytes(*stored))
    }

    /// Whether the packets are IPv4.
    #[must_use]
    pub fn is_v4(&self) -> bool {
        self.v4
    }
}

/// The end of a packet that is being written: its ICRC, or what stands in place of one.
pub(crate) struct Trailer(Option<Crc32>);

impl Trailer {
    /// Of a packet of `packet_bytes` from BTH to ICRC, up to the end of `bth`. Without a base it
    /// has no ICRC.
    #[inline]
    pub(crate) fn of(base: Option<&IcrcBase>, bth: &[u8; BTH_BYTES], packet_bytes: usize) -> Self {
        Self(base.map(|base| Crc32::resume(base.to_bth(bth, packet_bytes))))
    }

    /// With the next bytes of the packet.
    #[inline]
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if let Some(crc) = &mut self.0 {
            crc.update(bytes);
        }
    }

    /// Its bytes.
    #[inline]
    pub(crate) fn bytes(self) -> [u8; ICRC_BYTES] {
        self.0.map_or(NO_ICRC, |crc| crc.value()).to_le_bytes()
    }
}

/// Writes ones, IP and UDP headers, with all that varies as zero, and room for a BTH; returns the
/// length of all that and whether it is IPv4.
fn pseudo_header(
    source: SocketAddr,
    dest: SocketAddr,
    out: &mut [u8; PSEUDO_BYTES_MAX],
) -> (usize, bool) {
    out[..LRH_BYTES].fill(0xff);
    let ip = &mut out[LRH_BYTES..];
    let (ip_bytes, v4) = match (source.ip().to_canonical(), dest.ip().to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(dest)) => {
            // Version and length; ToS, TTL and checksum are masked; ID 0, DF, protocol 17.
            ip[..12].copy_from_slice(&[0x45, 0xff, 0, 0, 0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff]);
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&dest.octets());
            (IPV4_BYTES, true)
        }
        (source, dest) => {
            // Version; traffic class, flow label and hop limit are masked; next header 17.
            ip[..8].copy_from_slice(&[0x6f, 0xff, 0xff, 0xff, 0, 0, 17, 0xff]);
            ip[8..24].copy_from_slice(&v6_octets(source));
            ip[24..40].copy_from_slice(&v6_octets(dest));
            (IPV6_BYTES, false)
        }
    };
    let udp = &mut ip[ip_bytes..];
    udp[..2].copy_from_slice(&source.port().to_be_bytes());
    udp[2..4].copy_from_slice(&dest.port().to_be_bytes());
    udp[6..8].fill(0xff);
    (LRH_BYTES + ip_bytes + UDP_BYTES + BTH_BYTES, v4)
}

fn v6_octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// For each packet length, the space of differences that some IPv4 ID explains.
///
/// A socket does not show the ID of a received packet, but other NICs send one and their ICRC
/// covers it. So a difference within this space (one in 65,536 of all) is not held against the
/// packet.
pub struct IdSpace {
    /// Bases in echelon form, by packet length in words.
    bases: Box<[[u32; 16]]>,
}

impl IdSpace {
    /// For packets of up to `packet_bytes_max`; about 64 KiB of tables for 4 KiB packets.
    #[must_use]
    pub fn new(packet_bytes_max: usize) -> Self {
        // The ID is followed by 14 bytes of IP, the UDP header and the packet without its ICRC.
        let before_packet = IPV4_BYTES - 6 + UDP_BYTES;
        let mut vectors: [u32; 16] = std::array::from_fn(|bit| {
            let (byte, following) = (1 << (bit % 8), usize::from(bit >= 8));
            shifted(BYTE[byte], following + before_packet)
        });
        let mut bases = Vec::with_capacity(packet_bytes_max / 4 + 1);
        for _ in 0..=packet_bytes_max / 4 {
            bases.push(echelon(vectors));
            for vector in &mut vectors {
                *vector = shifted(*vector, 4);
            }
        }
        Self { bases: bases.into() }
    }

    /// Whether some ID explains `difference` in a packet of `packet_bytes` from BTH to ICRC.
    #[must_use]
    pub fn explains(&self, packet_bytes: usize, difference: u32) -> bool {
        let covered = packet_bytes.saturating_sub(ICRC_BYTES);
        let Some(basis) = self.bases.get(covered / 4).filter(|_| covered.is_multiple_of(4)) else {
            return false;
        };
        basis.iter().fold(difference, |rest, &vector| rest.min(rest ^ vector)) == 0
    }
}

fn shifted(crc: u32, zero_bytes: usize) -> u32 {
    (0..zero_bytes).fold(crc, |crc, _| zero_byte_after(crc))
}

/// The same space with leading bits that differ, the highest first.
fn echelon(mut vectors: [u32; 16]) -> [u32; 16] {
    for i in 0..vectors.len() {
        vectors[i..].sort_unstable_by(|a, b| b.cmp(a));
        let pivot = vectors[i];
        for vector in &mut vectors[i + 1..] {
            *vector = (*vector).min(*vector ^ pivot);
        }
    }
    vectors
}
