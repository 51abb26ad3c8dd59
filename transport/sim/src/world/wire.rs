//! One direction of a cable: queues with tail drop, rate, propagation delay.

use super::faults::WireFaults;
use super::flight::{Flight, Flights, List};
use super::ids::Node;
use super::queue::{EcnConfig, Ingress};
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
    /// How often a class of it was told to pause.
    pub pauses: u64,
    /// How long classes of it were paused, added up, pauses that are over.
    pub paused: Nanos,
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
    sending: Option<Sending>,
    /// Flights that are queued or on the way.
    held: usize,
    /// Since when each class is paused; [`Time::NEVER`] for one that is not.
    paused_since: [Time; CLASSES],
    /// What the switch at its far end holds of it, where that pauses it.
    pub(super) ingress: Option<Box<Ingress>>,
    /// It is served at the end of each packet, for the switch in front of it counts what it holds.
    pub(super) is_watched: bool,
    /// What comes to its far end is lost.
    pub(super) is_cut: bool,
}

/// What is being sent.
#[derive(Clone, Copy)]
pub(super) struct Sending {
    pub(super) class: usize,
    pub(super) bytes: u64,
    /// The wire on which it came in; [`NONE`](super::flight::NONE) at a host.
    pub(super) ingress: u32,
}

/// Bytes of a pause frame on the wire, with preamble and gap.
const PAUSE_FRAME_BYTES: u64 = 84;

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
            sending: None,
            held: 0,
            paused_since: [Time::NEVER; CLASSES],
            ingress: None,
            is_watched: false,
            is_cut: false,
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
    pub(super) fn queued_bytes(&self) -> u64 {
        self.queues.iter().map(|queue| queue.bytes).sum()
    }

    /// Whether the queue of `class` has room for so many bytes more.
    pub(super) fn has_room(&self, class: usize, bytes: u64) -> bool {
        self.held < IN_FLIGHT_PACKETS_MAX
            && self.queues[class].bytes + bytes <= self.config.queue_bytes
    }

    /// Whether at most half of its queue is taken.
    pub(super) fn is_half_empty(&self) -> bool {
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
        let mut classes = self.queues.iter().zip(&self.paused_since).enumerate();
        classes.find_map(|(class, (queue, paused_since))| {
            let flight = queue.flights.front()?;
            (*paused_since == Time::NEVER).then_some((class, flight))
        })
    }

    /// Takes a flight out of its queues that is not to be sent.
    pub(super) fn flush_one(&mut self, flights: &Flights) -> Option<(usize, u32)> {
        let class = self.queues.iter().position(|queue| queue.flights.front().is_some())?;
        let flight = self.queues[class].flights.pop(flights)?;
        self.queues[class].bytes -= self.bytes_of(&flights[flight]);
        self.held -= 1;
        Some((class, flight))
    }

    /// Is told to pause a class, or to go on with it.
    pub(super) fn pause(&mut self, class: usize, on: bool, now: Time) {
        let since = &mut self.paused_since[class];
        if on && *since == Time::NEVER {
            *since = now;
            self.counters.pauses += 1;
        } else if !on && *since < Time::NEVER {
            self.counters.paused = self.counters.paused + now.since(*since);
            *since = Time::NEVER;
        }
    }

    /// How long a pause takes to get back over the cable.
    pub(super) fn pause_delay(&self) -> Nanos {
        let rate = self.config.rate_bits_per_s;
        let sending = (PAUSE_FRAME_BYTES * 8_000_000_000).checked_div(rate).unwrap_or(0);
        Nanos(sending) + self.config.delay
    }

    /// Puts the head of the queue of `class` on the wire.
    pub(super) fn send(&mut self, class: usize, flights: &Flights, now: Time) -> Option<Sent> {
        let flight = self.queues[class].flights.pop(flights)?;
        let bytes = self.bytes_of(&flights[flight]);
        if self.free_at < now {
            self.free_at = now;
            self.remainder = 0;
        }
        let (start, sent) = (self.free_at, &flights[flight]);
        let (packets, ingress) = (sent.packets, sent.ingress);
        let (span, remainder) = self.time_of(bytes);
        let (mut head_at, mut tail_at) = (start + span, start + span);
        if packets > 1 {
            // The last packet cannot go before it has come, be the others sent or not.
            let one = self.time_of(self.bytes_of_one(sent)).0;
            (head_at, tail_at) = (start + one, tail_at.max(sent.tail_at + one));
        }
        self.free_at = start + span;
        self.remainder = remainder;
        self.sending = Some(Sending { class, bytes, ingress });
        self.counters.packets += u64::from(packets);
        self.counters.bytes += bytes;
        let delay = self.config.delay;
        Some(Sent { flight, head_at: head_at + delay, tail_at: tail_at + delay })
    }

    fn bytes_of_one(&self, flight: &Flight) -> u64 {
        flight.packet_bytes() + u64::from(self.config.overhead_bytes)
    }

    /// Gives the room of what was sent back, and says what that was.
    pub(super) fn settle(&mut self, now: Time) -> Option<Sending> {
        if self.free_at > now {
            return None;
        }
        let sent = self.sending.take()?;
        self.queues[sent.class].bytes -= sent.bytes;
        Some(sent)
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
