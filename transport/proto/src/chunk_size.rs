//! How large chunks should be on a path, from the loss and the disorder that it shows.
//!
//! UC drops a message of which a packet is lost, or overtaken by another one of it. A message of
//! one packet cannot be overtaken by itself, so what is measured as disorder counts as loss here,
//! where chunks of several packets are weighed, and nowhere else.
//!
//! A chunk of N packets arrives with probability (1-p)^N and costs N packets plus a fixed part c
//! (headers, CPU). The useful share (1-p)^N * N / (N + c) is largest where
//! N^2 + cN = c / -ln(1-p), which is c/p for small p.

use crate::config::LinkConfig;
use crate::limits::HEADER_BYTES;

/// Packets after which old experience counts half: a few round trips of a full window.
const HALF_LIFE_PACKETS: f64 = 2048.0;

/// Losses below this many in memory are too few to tell a rate from.
const LOSSES_MIN: f64 = 2.0;

/// How much a chunk carries.
#[derive(Debug)]
pub(crate) struct ChunkSize {
    /// Packets have two to the power of this bytes.
    mtu_bits: u32,
    body_max: u32,
    cost_packets: f64,
    packets: f64,
    losses: f64,
    /// Packets that came behind later ones: UC takes a longer message for lost then.
    disordered: f64,
    /// What loss and disorder suggest.
    body: u32,
}

impl ChunkSize {
    /// Of chunks with up to `body_max` bytes behind the header.
    pub(crate) fn new(mtu_bytes: u32, body_max: u32, config: &LinkConfig) -> Self {
        let mut size = Self {
            mtu_bits: mtu_bytes.ilog2(),
            body_max,
            cost_packets: config.flow.chunk_cost_packets,
            packets: 0.0,
            losses: 0.0,
            disordered: 0.0,
            body: 0,
        };
        size.choose();
        size
    }

    /// Packets have another size from now on. What was lost of those before says nothing of them.
    pub(crate) fn set_packet_bytes(&mut self, bytes: u32) {
        if bytes.ilog2() != self.mtu_bits {
            self.mtu_bits = bytes.ilog2();
            (self.packets, self.losses) = (0.0, 0.0);
            self.choose();
        }
    }

    /// Bytes behind the header of the next chunk, at most: what loss suggests, and no more than
    /// `room` bytes on the wire, but a packet in any case.
    #[inline]
    pub(crate) fn body_within(&self, room: u64) -> u32 {
        if room >= u64::from(self.body) + HEADER_BYTES as u64 {
            return self.body;
        }
        // Below the length of a chunk, so it fits 32 bits.
        self.body_of(room as u32 >> self.mtu_bits).min(self.body)
    }

    /// Bytes behind the header of a chunk of one packet.
    pub(crate) fn one_packet(&self) -> u32 {
        self.body_of(1)
    }

    /// Packets of a chunk: the header makes the first one fuller, and mostly one more.
    pub(crate) fn packets_of(&self, body_bytes: u32) -> u32 {
        // Asked for each chunk, so not by dividing.
        ((body_bytes + HEADER_BYTES as u32 - 1) >> self.mtu_bits) + 1
    }

    pub(crate) fn on_sent(&mut self, body_bytes: u32) {
        self.packets += f64::from(self.packets_of(body_bytes));
        if self.packets > 2.0 * HALF_LIFE_PACKETS {
            self.forget_half();
        }
    }

    #[cold]
    fn forget_half(&mut self) {
        self.packets /= 2.0;
        self.losses /= 2.0;
        self.disordered /= 2.0;
        self.choose();
    }

    /// So many chunks were lost, or fewer than had been thought.
    pub(crate) fn on_lost(&mut self, chunks: i32) {
        self.losses = (self.losses + f64::from(chunks)).max(0.0);
        self.choose();
    }

    /// So many chunks came behind later ones.
    pub(crate) fn on_disordered(&mut self, chunks: u16) {
        self.disordered += f64::from(chunks);
        self.choose();
    }

    fn choose(&mut self) {
        let longest = (self.body_max >> self.mtu_bits) + 2;
        let events = self.losses + self.disordered;
        let p = (events / self.packets.max(events)).min(0.9);
        let is_best = |packets: u32| {
            let n = f64::from(packets) + 0.5;
            n * n + self.cost_packets * n > self.cost_packets / p
        };
        let few = events < LOSSES_MIN;
        let packets = if few { None } else { (1..longest).find(|&packets| is_best(packets)) };
        self.body = self.body_of(packets.unwrap_or(longest));
    }

    /// The largest body that, with the header, fills up to `packets` packets, one at least.
    fn body_of(&self, packets: u32) -> u32 {
        let fits = (self.body_max + HEADER_BYTES as u32) >> self.mtu_bits;
        let full = |packets: u32| (packets << self.mtu_bits) - HEADER_BYTES as u32;
        if packets > fits || fits == 0 { self.body_max } else { full(packets.max(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Side;

    fn fresh(mtu_bytes: u32, body_max: u32) -> ChunkSize {
        ChunkSize::new(mtu_bytes, body_max, &LinkConfig::new(Side::Client))
    }

    const BODY_MAX: u32 = 15 * 4096 - 64;

    fn after(chunks: u32, lost_each: u32) -> ChunkSize {
        let mut size = fresh(4096, BODY_MAX);
        for i in 0..chunks {
            size.on_sent(size.body);
            if lost_each != 0 && i % lost_each == 0 {
                size.on_lost(1);
            }
        }
        size
    }

    #[test]
    fn without_loss_chunks_are_as_large_as_they_may_be() {
        assert_eq!(after(10_000, 0).body, BODY_MAX);
        assert_eq!(fresh(4096, 1000).body, 1000);
        assert_eq!(fresh(4096, 57_344).body, 57_344, "its last packet is short");
        assert_eq!(fresh(256, 4096).body, 4096);
    }

    #[test]
    fn chunks_shrink_with_loss_and_fill_their_packets() {
        let (rare, some, much) = (after(5_000, 200), after(5_000, 10), after(5_000, 2));
        let bodies = [&rare, &some, &much].map(|size| size.body);
        assert!(bodies[0] > bodies[1] && bodies[1] >= bodies[2], "{bodies:?}");
        assert!(bodies.iter().all(|bytes| (bytes + 64) % 4096 == 0));
        assert_eq!(much.body, 4096 - 64, "at heavy loss a chunk is one packet");
    }

    #[test]
    fn chunks_fit_the_room_that_there_is_down_to_one_packet() {
        let size = fresh(4096, BODY_MAX);
        let within = [u64::MAX, 16 << 10, 5_000, 1].map(|room| size.body_within(room));
        assert_eq!(within, [BODY_MAX, 4 * 4096 - 64, 4096 - 64, 4096 - 64]);
        assert_eq!(fresh(4096, 1000).body_within(1), 1000);
    }

    #[test]
    fn disorder_makes_chunks_short_and_keeps_them_so_while_it_lasts() {
        let mut size = fresh(4096, BODY_MAX);
        for _ in 0..20_000 {
            size.on_sent(size.body);
            size.on_disordered(1);
        }
        assert_eq!(size.body, 4096 - 64);
        for _ in 0..40_000 {
            size.on_sent(size.body);
        }
        assert_eq!(size.body, BODY_MAX);
    }

    #[test]
    fn chunks_grow_back_when_the_loss_is_over() {
        let mut size = fresh(4096, BODY_MAX);
        for _ in 0..100 {
            size.on_sent(BODY_MAX);
            size.on_lost(1);
        }
        assert!(size.body < 16_000);
        for _ in 0..40_000 {
            size.on_sent(size.body);
        }
        assert_eq!(size.body, BODY_MAX);
    }
}
