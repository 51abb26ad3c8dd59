//! How large chunks should be on a path, from the loss and the disorder that it shows.
//!
//! UC drops a message if one of its packets is lost or overtaken, by a packet of the same message
//! or of the next. A message of one packet arrives in any order. So losses of one-packet chunks are
//! counted apart. A one-packet chunk that came late counts as two losses of longer chunks: its own,
//! and that of the chunk in whose midst it came.
//!
//! A chunk of N packets arrives with probability (1-p)^N and costs N packets plus a fixed part
//! (headers, CPU), and another fixed part if it is lost (finding that out, the wait of its
//! message). The chosen size has the best ratio of packets that arrive to their cost.

use crate::config::LinkConfig;
use crate::limits::HEADER_BYTES;
use core::hint::cold_path;

/// Packets after which old experience counts half: a few round trips of a full window.
const HALF_LIFE_PACKETS: f64 = 2048.0;

/// Fewer losses than this give no rate.
const LOSSES_MIN: f64 = 2.0;

/// What a lost chunk costs beside sending it again, in packets.
const LOST_COST_PACKETS: f64 = 4.0;

/// From this share of lost packets on, one chunk in [`SINGLE_ONE_IN`] is a single packet. Only such
/// chunks show whether longer ones fail by disorder.
const SINGLES_FROM: f64 = 0.02;
const SINGLE_ONE_IN: u32 = 8;

/// From this many one-packet chunks on, these have a loss rate of their own.
const SINGLES_MIN: f64 = 32.0;

/// How much a chunk carries.
#[derive(Debug)]
pub(crate) struct ChunkSize {
    /// Packets have two to the power of this bytes.
    mtu_bits: u32,
    body_max: u32,
    /// Bytes of a chunk beside its body.
    around_bytes: u32,
    cost_packets: f64,
    counts: Counts,
    /// Bytes behind the header that loss and disorder suggest.
    body: u32,
    /// Chunks up to the next that is a single packet whatever `body` says; zero when none is due.
    until_single: u32,
}

/// Recent counts, halved after each [`HALF_LIFE_PACKETS`] packets.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    packets: f64,
    losses: f64,
    /// Chunks that came behind later ones: UC drops a longer message then.
    disordered: f64,
    /// Chunks of one packet, and how many of them were lost.
    singles: f64,
    singles_lost: f64,
}

impl ChunkSize {
    /// Of chunks with up to `body_max` bytes behind the header.
    pub(crate) fn new(mtu_bytes: u32, body_max: u32, config: &LinkConfig) -> Self {
        let mut size = Self {
            mtu_bits: mtu_bytes.ilog2(),
            body_max,
            around_bytes: HEADER_BYTES as u32 + config.flow.trailer_bytes,
            cost_packets: config.flow.chunk_cost_packets,
            counts: Counts::default(),
            body: 0,
            until_single: 0,
        };
        size.choose();
        size
    }

    /// Sets the size of packets. The loss of packets of another size is forgotten.
    pub(crate) fn set_packet_bytes(&mut self, bytes: u32) {
        if bytes.ilog2() != self.mtu_bits {
            self.mtu_bits = bytes.ilog2();
            self.counts = Counts { disordered: self.counts.disordered, ..Counts::default() };
            self.choose();
        }
    }

    /// Bytes behind the header of the next chunk, at most: what loss suggests, and no more than
    /// `room` bytes on the wire, but a packet in any case.
    #[inline]
    pub(crate) fn body_within(&self, room: u64) -> u32 {
        if self.until_single == 1 {
            cold_path();
            return self.one_packet();
        }
        if room >= u64::from(self.body) + u64::from(self.around_bytes) {
            return self.body;
        }
        // Below the length of a chunk, so it fits 32 bits.
        self.body_of(room as u32 >> self.mtu_bits).min(self.body)
    }

    /// Bytes behind the header of a chunk of one packet.
    pub(crate) fn one_packet(&self) -> u32 {
        self.body_of(1)
    }

    /// Bytes of a chunk beside its body: its header, and what the driver puts behind.
    #[inline]
    pub(crate) fn around_bytes(&self) -> u32 {
        self.around_bytes
    }

    /// Packets of a chunk, with its header.
    pub(crate) fn packets_of(&self, body_bytes: u32) -> u32 {
        // A shift and no division, because this runs for each chunk.
        ((body_bytes + self.around_bytes - 1) >> self.mtu_bits) + 1
    }

    pub(crate) fn on_sent(&mut self, body_bytes: u32) {
        let packets = self.packets_of(body_bytes);
        self.counts.packets += f64::from(packets);
        self.counts.singles += f64::from(u8::from(packets <= 1));
        if self.until_single > 0 {
            cold_path();
            self.until_single =
                if packets <= 1 { SINGLE_ONE_IN } else { self.until_single - 1 }.max(1);
        }
        if self.counts.packets > 2.0 * HALF_LIFE_PACKETS {
            self.forget_half();
        }
    }

    #[cold]
    fn forget_half(&mut self) {
        let Counts { packets, losses, disordered, singles, singles_lost } = &mut self.counts;
        for count in [packets, losses, disordered, singles, singles_lost] {
            *count /= 2.0;
        }
        self.choose();
    }

    /// Counts lost chunks, `singles` of them of one packet. Negative counts undo false losses.
    pub(crate) fn on_lost(&mut self, chunks: i32, singles: i32) {
        let Counts { losses, singles_lost, .. } = &mut self.counts;
        *losses = (*losses + f64::from(chunks)).max(0.0);
        *singles_lost = (*singles_lost + f64::from(singles)).max(0.0);
        self.choose();
    }

    /// Counts chunks that came behind later ones.
    pub(crate) fn on_disordered(&mut self, chunks: u16) {
        self.counts.disordered += f64::from(chunks);
        self.choose();
    }

    fn choose(&mut self) {
        let most = self.packets_of(self.body_max);
        let loss = self.counts.of_long();
        let best = loss.map_or(most, |loss| self.best_packets(loss, most));
        let asks = best > 1 && loss >= Some(SINGLES_FROM);
        self.until_single = if asks { self.until_single.max(1) } else { 0 };
        self.body = self.body_of(best);
    }

    /// The best number of packets of a chunk, up to `most`, if chunks of several lose `loss` of
    /// their packets.
    #[cold]
    fn best_packets(&self, loss: f64, most: u32) -> u32 {
        let worth = |packets: f64, arrive: f64| {
            let cost = packets + self.cost_packets + LOST_COST_PACKETS * (1.0 - arrive);
            packets * arrive / cost
        };
        let (mut best, mut worth_most) = (1, 0.0);
        let mut arrive = 1.0 - loss;
        for packets in 2..=most {
            arrive *= 1.0 - loss;
            let worth = worth(f64::from(packets), arrive);
            if worth < worth_most {
                break;
            }
            (best, worth_most) = (packets, worth);
        }
        // A single packet is lost no more often than one of several.
        let loss_of_one = self.counts.of_singles().map_or(loss, |of_one| of_one.min(loss));
        if worth(1.0, 1.0 - loss_of_one) >= worth_most { 1 } else { best }
    }

    /// The largest body that, with what is around it, fills up to `packets` packets, one at least.
    fn body_of(&self, packets: u32) -> u32 {
        let fits = (self.body_max + self.around_bytes) >> self.mtu_bits;
        let full = |packets: u32| (packets << self.mtu_bits) - self.around_bytes;
        if packets > fits || fits == 0 { self.body_max } else { full(packets.max(1)) }
    }
}

impl Counts {
    /// The share of packets that chunks of several packets lose, where enough is known.
    fn of_long(&self) -> Option<f64> {
        // An overtaken chunk fails, and so does the chunk in whose midst it comes.
        let events = self.losses + 2.0 * self.disordered;
        (events >= LOSSES_MIN).then(|| (events / self.packets.max(events)).min(0.9))
    }

    /// The share of one-packet chunks that are lost, where enough of them were sent.
    fn of_singles(&self) -> Option<f64> {
        let loss = (self.singles_lost + 0.5) / self.singles;
        (self.singles >= SINGLES_MIN).then_some(loss.min(0.9))
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
                size.on_lost(1, i32::from(size.body <= size.one_packet()));
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

    /// Packets of a chunk after many in which each packet is lost, or overtaken if `is_disorder`,
    /// with the probability `events`. A single packet that is overtaken comes late.
    fn under(events: f64, is_disorder: bool) -> u32 {
        let (mut size, mut prng) = (fresh(1024, 50_000), towpath_base::Prng::new(1));
        for _ in 0..20_000 {
            let body = size.body_within(u64::MAX);
            let packets = size.packets_of(body);
            size.on_sent(body);
            // An overtaken packet kills its own chunk, and that in whose midst it comes.
            let rate = if is_disorder && packets > 1 { 2.0 * events } else { events };
            if prng.chance(1.0 - (1.0 - rate).powi(packets as i32)) {
                match (packets, is_disorder) {
                    (1, true) => size.on_disordered(1),
                    _ => size.on_lost(1, i32::from(packets == 1)),
                }
            }
        }
        size.packets_of(size.body)
    }

    #[test]
    fn chunks_of_one_packet_show_that_it_is_disorder_that_longer_ones_get_lost_for() {
        assert_eq!([0.03, 0.05, 0.1, 0.3].map(|share| under(share, true)), [1; 4]);
        let lost = [0.01, 0.03, 0.05, 0.1].map(|share| under(share, false));
        assert!(
            lost.iter().all(|&packets| packets > 1) && lost.is_sorted_by(|a, b| a >= b),
            "{lost:?}"
        );
        assert_eq!([0.2, 0.3].map(|share| under(share, false)), [1; 2], "each loss costs as much");
    }

    #[test]
    fn chunks_grow_back_when_the_loss_is_over() {
        let mut size = fresh(4096, BODY_MAX);
        for _ in 0..100 {
            size.on_sent(BODY_MAX);
            size.on_lost(1, 0);
        }
        assert!(size.body < 16_000);
        for _ in 0..40_000 {
            size.on_sent(size.body);
        }
        assert_eq!(size.body, BODY_MAX);
    }
}
