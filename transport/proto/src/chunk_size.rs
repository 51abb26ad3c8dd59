//! How large chunks should be on a path, from the loss that it shows.
//!
//! A chunk of N packets arrives with probability (1-p)^N and costs N packets plus a fixed part c
//! (headers, CPU). The useful share (1-p)^N * N / (N + c) is largest where
//! N^2 + cN = c / -ln(1-p); for small p that is N = (sqrt(c^2 + 4c/p) - c) / 2.

use crate::limits::{CHUNK_ALIGN_BYTES, HEADER_BYTES};

/// Packets after which old experience counts half: a few round trips of a full window.
const HALF_LIFE_PACKETS: f64 = 2048.0;

/// Losses below this many in memory are too few to tell a rate from.
const LOSSES_MIN: f64 = 2.0;

/// The chunk size of one path.
#[derive(Debug)]
pub(crate) struct ChunkSize {
    mtu_bytes: u32,
    bytes_max: u32,
    cost_packets: f64,
    packets: f64,
    losses: f64,
    bytes: u32,
}

impl ChunkSize {
    pub(crate) fn new(mtu_bytes: u32, bytes_max: u32, cost_packets: f64) -> Self {
        let bytes = aligned(bytes_max);
        Self { mtu_bytes, bytes_max, cost_packets, packets: 0.0, losses: 0.0, bytes }
    }

    /// Payload bytes of the next chunk, at most.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Packets of a chunk: the header makes the first one fuller, and mostly one more.
    pub(crate) fn packets_of(&self, payload_bytes: u32) -> u32 {
        (payload_bytes + HEADER_BYTES as u32).div_ceil(self.mtu_bytes)
    }

    pub(crate) fn on_sent(&mut self, packets: u32) {
        self.packets += f64::from(packets);
        if self.packets > 2.0 * HALF_LIFE_PACKETS {
            self.packets /= 2.0;
            self.losses /= 2.0;
            self.choose();
        }
    }

    pub(crate) fn on_lost(&mut self) {
        self.losses += 1.0;
        self.choose();
    }

    /// A loss that was none.
    pub(crate) fn on_spurious(&mut self) {
        self.losses = (self.losses - 1.0).max(0.0);
        self.choose();
    }

    fn choose(&mut self) {
        if self.losses < LOSSES_MIN {
            self.bytes = aligned(self.bytes_max);
            return;
        }
        let p = (self.losses / self.packets.max(self.losses)).min(0.9);
        let c = self.cost_packets;
        let packets = ((c * c + 4.0 * c / p).sqrt_approx() - c) / 2.0;
        self.bytes = self.payload_of(packets);
    }

    /// The largest payload that makes at most about `packets` packets.
    fn payload_of(&self, packets: f64) -> u32 {
        let one_packet = (self.mtu_bytes - HEADER_BYTES as u32).min(self.bytes_max);
        if packets < 1.5 {
            return one_packet;
        }
        let whole = (packets + 0.5) as u32;
        let payload = whole.saturating_sub(1).saturating_mul(self.mtu_bytes);
        let payload = payload.min(self.bytes_max);
        if payload >= CHUNK_ALIGN_BYTES { aligned(payload) } else { payload.max(one_packet) }
    }
}

/// Rounded down so that chunks start at slice boundaries.
fn aligned(bytes: u32) -> u32 {
    if bytes < CHUNK_ALIGN_BYTES { bytes } else { bytes - bytes % CHUNK_ALIGN_BYTES }
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

    fn after(chunks: u32, lost_each: u32) -> u32 {
        let mut size = ChunkSize::new(4096, 56 << 10, 0.5);
        for i in 0..chunks {
            size.on_sent(size.packets_of(size.bytes()));
            if lost_each != 0 && i % lost_each == 0 {
                size.on_lost();
            }
        }
        size.bytes()
    }

    #[test]
    fn without_loss_chunks_stay_as_large_as_they_may_be() {
        assert_eq!(after(10_000, 0), 56 << 10);
        assert_eq!(ChunkSize::new(4096, 1000, 0.5).bytes(), 1000);
    }

    #[test]
    fn chunks_shrink_with_loss_and_stay_whole_slices() {
        let (rare, some, much) = (after(5_000, 200), after(5_000, 10), after(5_000, 2));
        assert!(rare > some && some > much, "{rare} {some} {much}");
        assert!(rare % 4096 == 0 && some % 4096 == 0);
        assert_eq!(much, 4096 - 64, "at heavy loss a chunk is one packet");
    }

    #[test]
    fn chunks_grow_back_when_the_loss_is_over() {
        let mut size = ChunkSize::new(4096, 56 << 10, 0.5);
        for _ in 0..100 {
            size.on_sent(15);
            size.on_lost();
        }
        assert!(size.bytes() <= 8192);
        for _ in 0..20_000 {
            size.on_sent(size.packets_of(size.bytes()));
        }
        assert_eq!(size.bytes(), 56 << 10);
    }

    #[test]
    fn the_root_is_close_enough_over_the_whole_range() {
        for x in [1e-6f64, 0.25, 2.0, 40.5, 1e7] {
            let root = x.sqrt_approx();
            assert!((root * root / x - 1.0).abs() < 1e-9, "{x}");
        }
    }
}
