//! One direction of a cable: queues with tail drop, rate, propagation delay.

use super::faults::WireFaults;
use super::flight::{Flight, Flights, List};
use super::ids::Node;
use super::queue::EcnConfig;
use crate::limits::{CLASSES, IN_FLIGHT_PACKETS_MAX};
use towpath_base::{Nanos, Prng, Time};

/// What a wire is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireConfig {
    pub(super) rate_bits_per_s: u64,
    pub(super) delay: Nanos,
    pub(super) queue_bytes: u64,
    pub(super) overhead_bytes: u32,
    pub(super) ecn: Option<EcnConfig>,
}

#[derive(Clone, Copy)]
struct Queue {
    flights: List,
    /// With those of the packet that is being sent.
    bytes: u64,
}

/// What one wire did; each only grows. A train counts as so many packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Packets that were sent.
    pub packets: u64,
    /// Bytes that were sent, headers counted in.
    pub bytes: u64,
    /// Packets that its queue had no room for.
    pub dropped: u64,
    /// Packets that were marked for congestion as they joined its queue.
    pub marked: u64,
    /// The most bytes that ever waited, in all classes together, with those being sent.
    pub queued_bytes_max: u64,
}

pub(super) struct Wire {
    pub(super) counters: WireCounters,
    /// What is at its near end, and at its far end.
    pub(super) from: Node,
    pub(super) to: Node,
    /// What befalls packets on it.
    pub(super) faults: Option<Box<WireFaults>>,
    /// Somebody waits for room in its queue.
    pub(super) room_wanted: bool,
    /// When the next event comes that has it served; [`Time::NEVER`] for none.
    pub(super) serve_at: Time,
    config: WireConfig,
    prng: Prng,
    queues: [Queue; CLASSES],
    /// When it has sent what it is sending, and the part of a nanosecond that the division left
    /// over (in 1 / rate ns), so that a long run takes exactly its time.
    pub(super) free_at: Time,
    remainder: u64,
    sending: (usize, u64),
    /// Flights that are queued or on the way.
    held: usize,
}

/// When a flight that was put on the wire gets across.
pub(super) struct Sent {
    pub(super) flight: u32,
    /// When its first packet lands.
    pub(super) head_at: Time,
    /// When its last packet lands.
    pub(super) tail_at: Time,
}

impl Wire {
    pub(super) fn new(config: WireConfig, [from, to]: [Node; 2], seed: u64) -> Self {
        Self {
            counters: WireCounters::default(),
            from,
            to,
            faults: None,
            room_wanted: false,
            serve_at: Time::NEVER,
            config,
            prng: Prng::new(seed),
            queues: [Queue { flights: List::EMPTY, bytes: 0 }; CLASSES],
            free_at: Time::ZERO,
            remainder: 0,
            sending: (0, 0),
            held: 0,
        }
    }

    /// What a flight takes of it, headers counted in.
    pub(super) fn bytes_of(&self, flight: &Flight) -> u64 {
        self.whole_bytes(flight.byte_len, flight.packets)
    }

    pub(super) fn whole_bytes(&self, byte_len: u64, packets: u32) -> u64 {
        byte_len + u64::from(packets) * u64::from(self.config.overhead_bytes)
    }

    /// The bytes that wait, and those of the packet that is being sent.
    pub(super) fn queued_bytes(&mut self, now: Time) -> u64 {
        self.settle(now);
        self.queues.iter().map(|queue| queue.bytes).sum()
    }

    /// Whether the queue of `class` has room for so many bytes more.
    pub(super) fn has_room(&mut self, class: usize, bytes: u64, now: Time) -> bool {
        self.settle(now);
        self.held < IN_FLIGHT_PACKETS_MAX
            && self.queues[class].bytes + bytes <= self.config.queue_bytes
    }

    /// Whether at most half of its queue is taken.
    pub(super) fn is_half_empty(&mut self, now: Time) -> bool {
        self.settle(now);
        self.queues.iter().all(|queue| queue.bytes <= self.config.queue_bytes / 2)
    }

    /// Whether a packet that joins the queue of `class` now is to be marked.
    pub(super) fn marks(&mut self, class: usize) -> bool {
        let Some(ecn) = self.config.ecn else { return false };
        ecn.marks(self.queues[class].bytes, &mut self.prng)
    }

    pub(super) fn push(&mut self, class: usize, flight: u32, flights: &mut Flights) {
        self.queues[class].bytes += self.bytes_of(&flights[flight]);
        let queued = self.queues.iter().map(|queue| queue.bytes).sum();
        self.counters.queued_bytes_max = self.counters.queued_bytes_max.max(queued);
        self.queues[class].flights.push(flights, flight);
        self.held += 1;
    }

    /// A flight that was on it has gone.
    pub(super) fn let_go(&mut self) {
        self.held -= 1;
    }

    /// Copies of flights that are on it were made.
    pub(super) fn hold_more(&mut self, copies: usize) {
        self.held += copies;
    }

    /// The queue to serve now, strictly by class, and the flight at its head.
    pub(super) fn next(&self) -> Option<(usize, u32)> {
        let mut heads = self.queues.iter().enumerate();
        heads.find_map(|(class, queue)| queue.flights.front().map(|flight| (class, flight)))
    }

    /// Puts the head of the queue of `class` on the wire.
    pub(super) fn send(&mut self, class: usize, flights: &Flights, now: Time) -> Option<Sent> {
        let flight = self.queues[class].flights.pop(flights)?;
        let bytes = self.bytes_of(&flights[flight]);
        self.settle(now);
        if self.free_at < now {
            self.free_at = now;
            self.remainder = 0;
        }
        let (start, packets) = (self.free_at, flights[flight].packets);
        let first = if packets == 1 { bytes } else { self.bytes_of_one(&flights[flight]) };
        let head_at = start + self.time_of(first).0 + self.config.delay;
        let (span, remainder) = self.time_of(bytes);
        self.free_at = start + span;
        self.remainder = remainder;
        self.sending = (class, bytes);
        self.counters.packets += u64::from(packets);
        self.counters.bytes += bytes;
        Some(Sent { flight, head_at, tail_at: self.free_at + self.config.delay })
    }

    /// When a train whose tail lands at `tail_at` can be sent on without a gap in it.
    pub(super) fn gapless_start(&self, flight: &Flight) -> Time {
        let whole = self.time_of(self.bytes_of(flight)).0;
        let last = self.time_of(self.bytes_of_one(flight)).0;
        Time((flight.tail_at + last).0.saturating_sub(whole.0))
    }

    fn bytes_of_one(&self, flight: &Flight) -> u64 {
        flight.packet_bytes() + u64::from(self.config.overhead_bytes)
    }

    /// Gives the room of what was sent back.
    fn settle(&mut self, now: Time) {
        let (class, bytes) = self.sending;
        if bytes != 0 && self.free_at <= now {
            self.queues[class].bytes -= bytes;
            self.sending = (0, 0);
        }
    }

    /// The time that so many bytes take from here on, and what the division leaves over.
    fn time_of(&self, bytes: u64) -> (Nanos, u64) {
        let rate = self.config.rate_bits_per_s;
        if rate == 0 {
            return (Nanos::ZERO, 0);
        }
        let short = bytes.checked_mul(8_000_000_000).and_then(|n| n.checked_add(self.remainder));
        if let Some(scaled) = short {
            return (Nanos(scaled / rate), scaled % rate);
        }
        let scaled = u128::from(bytes) * 8_000_000_000 + u128::from(self.remainder);
        let span = u64::try_from(scaled / u128::from(rate)).unwrap_or(u64::MAX);
        // What is left over is below the rate, a u64.
        (Nanos(span), (scaled % u128::from(rate)) as u64)
    }
}
