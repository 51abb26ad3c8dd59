//! How large chunks should be on a path, from the loss that it shows.
//!
//! A chunk of N packets arrives with probability (1-p)^N and costs N packets plus a fixed part c
//! (headers, CPU). The useful share (1-p)^N * N / (N + c) is largest where
//! N^2 + cN = c / -ln(1-p); for small p that is N = (sqrt(c^2 + 4c/p) - c) / 2.

use crate::config::LinkConfig;
use crate::event::Cut;
use crate::limits::{CHUNK_ALIGN_BYTES, HEADER_BYTES, PACKED_BYTES_MAX};

/// Packets after which old experience counts half: a few round trips of a full window.
const HALF_LIFE_PACKETS: f64 = 2048.0;

/// Losses below this many in memory are too few to tell a rate from.
const LOSSES_MIN: f64 = 2.0;

/// The chunk sizes of one path, one for each way of cutting.
#[derive(Debug)]
pub(crate) struct ChunkSize {
    /// A power of two.
    mtu_bytes: u32,
    mtu_bits: u32,
    /// What a byte fills of a packet: exact, as the MTU is a power of two.
    share_of_byte: f64,
    bytes_max: u32,
    cost_packets: f64,
    short_packet_cost_packets: f64,
    packets: f64,
    losses: f64,
    full_packets: u32,
    slices: u32,
}

impl ChunkSize {
    pub(crate) fn new(mtu_bytes: u32, bytes_max: u32, config: &LinkConfig) -> Self {
        let mut size = Self {
            mtu_bytes,
            mtu_bits: mtu_bytes.ilog2(),
            share_of_byte: 1.0 / f64::from(mtu_bytes),
            bytes_max,
            cost_packets: config.chunk_cost_packets,
            short_packet_cost_packets: config.short_packet_cost_packets,
            packets: 0.0,
            losses: 0.0,
            full_packets: 0,
            slices: 0,
        };
        size.choose();
        size
    }

    /// Packets have another size from now on. What was lost of those before says nothing of them.
    pub(crate) fn set_packet_bytes(&mut self, bytes: u32) {
        if bytes != self.mtu_bytes {
            (self.mtu_bytes, self.mtu_bits) = (bytes, bytes.ilog2());
            self.share_of_byte = 1.0 / f64::from(bytes);
            (self.packets, self.losses) = (0.0, 0.0);
            self.choose();
        }
    }

    /// Payload bytes of the next chunk, at most, as loss has it.
    fn bytes(&self, cut: Cut) -> u32 {
        match cut {
            Cut::FullPackets => self.full_packets,
            Cut::Slices => self.slices,
        }
    }

    /// Payload bytes of the next chunk, at most: no more than `room` bytes on the wire, but one
    /// packet (or one slice) in any case.
    pub(crate) fn bytes_within(&self, room: u64, cut: Cut) -> u32 {
        let bytes = self.bytes(cut);
        if room >= u64::from(bytes) + HEADER_BYTES as u64 {
            return bytes;
        }
        self.bytes_within_less(room, cut).min(bytes)
    }

    #[inline(never)]
    fn bytes_within_less(&self, room: u64, cut: Cut) -> u32 {
        // Below the length of a chunk, so it fits 32 bits.
        let packets = (room as u32 / self.mtu_bytes).max(1);
        match cut {
            Cut::FullPackets => self.in_full_packets(packets),
            Cut::Slices => self.in_slices(f64::from(packets.max(2))),
        }
    }

    /// Packets of a chunk: the header makes the first one fuller, and mostly one more.
    pub(crate) fn packets_of(&self, payload_bytes: u32) -> u32 {
        // Asked for each chunk, so not by dividing.
        (payload_bytes + HEADER_BYTES as u32 + self.mtu_bytes - 1) >> self.mtu_bits
    }

    /// What a short chunk fills of the packet that it may share; none where it shares none. A lost
    /// packet then counts as one loss, however many chunks were in it.
    #[inline]
    fn share_of_packet(&self, payload_bytes: u32) -> Option<f64> {
        let bytes = payload_bytes + HEADER_BYTES as u32;
        let is_short = (1..=PACKED_BYTES_MAX as u32).contains(&payload_bytes);
        (is_short && bytes <= self.mtu_bytes).then(|| f64::from(bytes) * self.share_of_byte)
    }

    pub(crate) fn on_sent(&mut self, payload_bytes: u32) {
        let share = self.share_of_packet(payload_bytes);
        self.packets += share.unwrap_or_else(|| f64::from(self.packets_of(payload_bytes)));
        if self.packets > 2.0 * HALF_LIFE_PACKETS {
            self.forget_half();
        }
    }

    #[cold]
    fn forget_half(&mut self) {
        self.packets /= 2.0;
        self.losses /= 2.0;
        self.choose();
    }

    pub(crate) fn on_lost(&mut self, payload_bytes: u32) {
        self.losses += self.share_of_packet(payload_bytes).unwrap_or(1.0);
        self.choose();
    }

    /// A loss that was none.
    pub(crate) fn on_spurious(&mut self) {
        self.losses = (self.losses - 1.0).max(0.0);
        self.choose();
    }

    fn choose(&mut self) {
        let most = f64::from(self.bytes_max) / f64::from(self.mtu_bytes) + 1.0;
        let (mut full, mut sliced) = (most, most);
        if self.losses >= LOSSES_MIN {
            let p = (self.losses / self.packets.max(self.losses)).min(0.9);
            full = best_packets(p, self.cost_packets).min(most);
            let cost_packets = self.cost_packets + self.short_packet_cost_packets;
            sliced = best_packets(p, cost_packets).min(most);
        }
        self.full_packets = self.in_full_packets((full + 0.5) as u32);
        self.slices = self.in_slices(sliced);
    }

    /// The largest payload that, with its header, fills up to `packets` packets.
    fn in_full_packets(&self, packets: u32) -> u32 {
        let payload = |packets: u32| packets * self.mtu_bytes - HEADER_BYTES as u32;
        let fits = (self.bytes_max + HEADER_BYTES as u32) / self.mtu_bytes;
        if fits == 0 { self.bytes_max } else { payload(packets.clamp(1, fits)) }
    }

    /// The largest payload of whole slices that makes at most about `packets` packets; less than a
    /// slice where one packet is best, or buffers are that small.
    fn in_slices(&self, packets: f64) -> u32 {
        if packets < 1.5 {
            return self.in_full_packets(1);
        }
        // The header pushes the end of the last slice to a packet of its own.
        let whole = ((packets + 0.5) as u32).saturating_sub(1);
        let payload = whole.saturating_mul(self.mtu_bytes).min(self.bytes_max);
        if payload >= CHUNK_ALIGN_BYTES {
            payload - payload % CHUNK_ALIGN_BYTES
        } else {
            payload.max(self.in_full_packets(1))
        }
    }
}

/// The number of packets at which a chunk's useful share is largest, with loss `p` per packet and a
/// cost of `c` packets per chunk.
fn best_packets(p: f64, c: f64) -> f64 {
    ((c * c + 4.0 * c / p).sqrt_approx() - c) / 2.0
}

/// `f64::sqrt` needs the standard library.
trait SqrtApprox {
    fn sqrt_approx(self) -> f64;
}

impl SqrtApprox for f64 {
    /// Newton's iteration from a power of two; exact to a few ulp for the range used here.
    fn sqrt_approx(self) -> f64 {
        if self <= 0.0 {
            return 0.0;
        }
        let mut root = Self::from_bits((self.to_bits() >> 1) + (1023u64 << 51));
        for _ in 0..4 {
            root = (root + self / root) / 2.0;
        }
        root
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Side;

    fn fresh(mtu_bytes: u32, bytes_max: u32) -> ChunkSize {
        let config = LinkConfig::new(Side::Client).short_packet_cost_packets(5.0);
        ChunkSize::new(mtu_bytes, bytes_max, &config)
    }

    fn after(chunks: u32, lost_each: u32) -> ChunkSize {
        let mut size = fresh(4096, 56 << 10);
        for i in 0..chunks {
            size.on_sent(size.full_packets);
            if lost_each != 0 && i % lost_each == 0 {
                size.on_lost(size.full_packets);
            }
        }
        size
    }

    #[test]
    fn without_loss_chunks_are_as_large_as_they_may_be() {
        let size = after(10_000, 0);
        assert_eq!((size.slices, size.full_packets), (56 << 10, 14 * 4096 - 64));
        let small = fresh(4096, 1000);
        assert_eq!((small.slices, small.full_packets), (1000, 1000));
        let short_mtu = fresh(256, 4096);
        assert_eq!((short_mtu.slices, short_mtu.full_packets), (4096, 16 * 256 - 64));
    }

    #[test]
    fn chunks_shrink_with_loss_and_stay_full_packets_or_whole_slices() {
        let (rare, some, much) = (after(5_000, 200), after(5_000, 10), after(5_000, 2));
        let full = [&rare, &some, &much].map(|size| size.full_packets);
        assert!(full[0] > full[1] && full[1] >= full[2], "{full:?}");
        assert!(full.iter().all(|bytes| (bytes + 64) % 4096 == 0));
        assert_eq!(much.full_packets, 4096 - 64, "at heavy loss a chunk is one packet");
        assert!(rare.slices % 4096 == 0 && some.slices % 4096 == 0);
        assert!(some.slices > some.full_packets, "a short packet costs more than it saves");
    }

    #[test]
    fn chunks_fit_the_room_that_there_is_down_to_one_packet_or_slice() {
        let size = fresh(4096, 56 << 10);
        let within = |room| {
            (size.bytes_within(room, Cut::FullPackets), size.bytes_within(room, Cut::Slices))
        };
        assert_eq!(within(u64::MAX), (14 * 4096 - 64, 56 << 10));
        assert_eq!(within(16 << 10), (4 * 4096 - 64, 3 * 4096));
        assert_eq!(within(5_000), (4096 - 64, 4096));
        assert_eq!(within(1), (4096 - 64, 4096));
        let small = fresh(4096, 1000);
        assert_eq!(small.bytes_within(1, Cut::FullPackets), 1000);
    }

    #[test]
    fn chunks_grow_back_when_the_loss_is_over() {
        let mut size = fresh(4096, 56 << 10);
        for _ in 0..100 {
            size.on_sent(56 << 10);
            size.on_lost(56 << 10);
        }
        assert!(size.full_packets < 16_000);
        for _ in 0..40_000 {
            size.on_sent(size.full_packets);
        }
        assert_eq!(size.slices, 56 << 10);
    }

    #[test]
    fn a_lost_packet_is_one_loss_however_many_short_chunks_it_held() {
        let mut size = fresh(4096, 56 << 10);
        for _ in 0..10 * 32 {
            size.on_sent(64);
        }
        (0..32).for_each(|_| size.on_lost(64));
        assert_eq!((size.packets, size.losses), (10.0, 1.0));
        assert_eq!(size.slices, 56 << 10, "one loss is too few to tell a rate from");
        (0..32).for_each(|_| size.on_lost(64));
        assert!(size.slices < 56 << 10);
        let mut short_mtu = fresh(256, 4096);
        short_mtu.on_sent(512);
        short_mtu.on_lost(512);
        assert_eq!((short_mtu.packets, short_mtu.losses), (3.0, 1.0), "it shares no packet");
    }

    #[test]
    fn the_root_is_close_enough_over_the_whole_range() {
        for x in [1e-6f64, 0.25, 2.0, 40.5, 1e7] {
            let root = x.sqrt_approx();
            assert!((root * root / x - 1.0).abs() < 1e-9, "{x}");
        }
    }
}
