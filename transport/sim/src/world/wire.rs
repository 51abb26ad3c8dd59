//! One direction of a cable: queues with tail drop, rate, propagation delay.

use super::faults::WireFaults;
use super::flight::{Flight, Flights, List, NONE};
use super::ids::Node;
use super::queue::{EcnConfig, Ingress};
use super::turns::{QueueConfig, Turns};
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
    pub(super) queues: [QueueConfig; CLASSES],
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

/// In this order, so that what every packet needs is in two cache lines.
#[repr(C, align(64))]
pub(super) struct Wire {
    /// When it has sent what it is sending, and the part of a nanosecond that the division left
    /// over (in 1 / rate ns), so that a long run takes exactly its time.
    pub(super) free_at: Time,
    remainder: u64,
    /// When the next event comes that has it served; [`Time::NEVER`] for none.
    pub(super) serve_at: Time,
    rate_bits_per_s: u64,
    delay: Nanos,
    /// The room of each queue, where none has its own.
    queue_bytes: u64,
    /// Bytes in all queues.
    queued_bytes: u64,
    overhead_bytes: u32,
    /// One bit for each class that has flights, and for each that is paused.
    waiting: u8,
    paused: u8,
    /// What comes to its far end is lost.
    pub(super) is_cut: bool,
    /// It is served at the end of each packet, for the switch in front of it counts what it holds.
    pub(super) is_watched: bool,
    /// What waits for it may go at once: nothing on the way to its queues takes time.
    pub(super) is_prompt: bool,
    /// What is at its near end, and at its far end.
    pub(super) to: Node,
    pub(super) from: Node,
    sending: Sending,
    /// What befalls packets on it.
    pub(super) faults: Option<Box<WireFaults>>,
    /// What the switch at its far end holds of it, where that pauses it.
    pub(super) ingress: Option<Box<Ingress>>,
    /// What marks packets that join its queues.
    marker: Option<Box<Marker>>,
    /// `None` where all queues are strict, and have the same room.
    turns: Option<Box<Turns>>,
    /// Flights that are queued or on the way.
    held: u32,
    /// One bit for each class that somebody waits for room of, and the most that it is.
    wanted: u8,
    room_wanted_bytes: u64,
    queues: [Queue; CLASSES],
    pub(super) counters: WireCounters,
    /// Since when each class is paused.
    paused_since: [Time; CLASSES],
}

struct Marker {
    configs: [Option<EcnConfig>; CLASSES],
    prng: Prng,
}

impl Marker {
    /// `None` where no queue is marked.
    fn new(config: &WireConfig, seed: u64) -> Option<Box<Self>> {
        let configs = config.queues.map(|queue| queue.ecn.or(config.ecn));
        let marks = configs.iter().any(Option::is_some);
        marks.then(|| Box::new(Self { configs, prng: Prng::new(seed) }))
    }
}

/// What is being sent.
#[derive(Clone, Copy)]
pub(super) struct Sending {
    /// Zero while nothing is.
    pub(super) bytes: u64,
    /// The wire on which it came in; [`NONE`] at a host.
    pub(super) ingress: u32,
    class: u8,
}

impl Sending {
    const NOTHING: Self = Self { bytes: 0, ingress: NONE, class: 0 };

    pub(super) fn class(self) -> usize {
        usize::from(self.class)
    }
}

/// Bytes of a pause frame on the wire, with preamble and gap.
const PAUSE_FRAME_BYTES: u64 = 84;

/// What a wire could send.
pub(super) enum Next {
    Nothing,
    /// The head of the queue of a class.
    Send(usize),
    /// Nothing before then.
    Wait(Time),
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
    pub(super) fn new(config: &WireConfig, [from, to]: [Node; 2], seed: u64) -> Self {
        Self {
            free_at: Time::ZERO,
            remainder: 0,
            serve_at: Time::NEVER,
            rate_bits_per_s: config.rate_bits_per_s,
            delay: config.delay,
            queue_bytes: config.queue_bytes,
            queued_bytes: 0,
            overhead_bytes: config.overhead_bytes,
            waiting: 0,
            paused: 0,
            is_cut: false,
            is_watched: false,
            is_prompt: true,
            to,
            from,
            sending: Sending::NOTHING,
            faults: None,
            ingress: None,
            marker: Marker::new(config, seed),
            turns: Turns::new(&config.queues, config.queue_bytes),
            held: 0,
            room_wanted_bytes: 0,
            wanted: 0,
            queues: [Queue { flights: List::EMPTY, bytes: 0 }; CLASSES],
            counters: WireCounters::default(),
            paused_since: [Time::NEVER; CLASSES],
        }
    }

    /// A word of each cache line that a flight is going to need.
    pub(super) fn look(&self) -> u64 {
        let sending = u64::from(self.sending.class) ^ self.room_wanted_bytes;
        let queue = self.queues[CLASSES - 1].bytes ^ self.counters.packets;
        self.free_at.0 ^ sending ^ queue
    }

    /// What a flight takes of it, headers counted in.
    pub(super) fn bytes_of(&self, flight: &Flight) -> u64 {
        self.whole_bytes(u64::from(flight.byte_len), flight.packets)
    }

    pub(super) fn whole_bytes(&self, byte_len: u64, packets: u32) -> u64 {
        byte_len + u64::from(packets) * u64::from(self.overhead_bytes)
    }

    /// How long it takes so many bytes.
    pub(super) fn span_of(&self, bytes: u64) -> Nanos {
        Nanos((bytes * 8_000_000_000).checked_div(self.rate_bits_per_s).unwrap_or(0))
    }

    /// The bytes that wait, and those of the packet that is being sent.
    pub(super) fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Whether the queue of `class` has room for so many bytes more.
    pub(super) fn has_room(&self, class: usize, bytes: u64) -> bool {
        !self.is_crowded() && self.queues[class].bytes + bytes <= self.room_bytes(class)
    }

    /// The room of the queue of `class`.
    fn room_bytes(&self, class: usize) -> u64 {
        self.turns.as_ref().map_or(self.queue_bytes, |turns| turns.room_bytes(class))
    }

    /// Whether it holds more flights than any rate and delay explain.
    pub(super) fn is_crowded(&self) -> bool {
        self.held >= IN_FLIGHT_PACKETS_MAX as u32
    }

    /// Whether nothing of `class` waits for it or is being sent.
    pub(super) fn is_idle(&self, class: usize) -> bool {
        self.queues[class].bytes == 0
    }

    /// Notes that so many bytes of `class` were refused.
    pub(super) fn want_room(&mut self, class: usize, bytes: u64) {
        let others = self.wanted & !(1 << class) != 0;
        self.room_wanted_bytes = if others { self.room_wanted_bytes.max(bytes) } else { bytes };
        self.wanted |= 1 << class;
    }

    /// Whether somebody waits for room.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted != 0
    }

    /// Whether somebody who waits for room is to be told now: there is room for what was refused,
    /// and half of the queue is free, so that they are not told of each packet.
    pub(super) fn tells_of_room(&mut self) -> bool {
        let has_room = |class: usize| {
            let (queued, room) = (self.queues[class].bytes, self.room_bytes(class));
            queued == 0 || queued <= room / 2 && queued + self.room_wanted_bytes <= room
        };
        let is_wanted = |class: &usize| self.wanted & 1 << class != 0;
        let tells = self.is_wanted() && (0..CLASSES).filter(is_wanted).any(has_room);
        if tells {
            self.wanted = 0;
        }
        tells
    }

    /// Whether a packet that joins the queue of `class` now is to be marked.
    pub(super) fn marks(&mut self, class: usize) -> bool {
        let queued_bytes = self.queues[class].bytes;
        let Some(marker) = &mut self.marker else { return false };
        marker.configs[class].is_some_and(|ecn| ecn.marks(queued_bytes, &mut marker.prng))
    }

    pub(super) fn push(&mut self, class: usize, flight: u32, flights: &mut Flights) {
        let bytes = self.bytes_of(&flights[flight]);
        self.queues[class].bytes += bytes;
        self.queues[class].flights.push(flights, flight);
        if self.waiting & 1 << class == 0 {
            self.begin(class);
        }
        self.waiting |= 1 << class;
        self.queued_bytes += bytes;
        self.counters.queued_bytes_max = self.counters.queued_bytes_max.max(self.queued_bytes);
        self.held += 1;
    }

    /// A class can send that could not.
    fn begin(&mut self, class: usize) {
        if let Some(turns) = &mut self.turns {
            turns.on_begin(class);
        }
    }

    fn pop(&mut self, class: usize, flights: &Flights) -> Option<u32> {
        let queue = &mut self.queues[class].flights;
        let flight = queue.pop(flights)?;
        if queue.front().is_none() {
            self.waiting &= !(1 << class);
        }
        Some(flight)
    }

    /// A flight that was on it has gone.
    pub(super) fn let_go(&mut self) {
        self.held -= 1;
    }

    /// Copies of flights that are on it were made.
    pub(super) fn hold_more(&mut self, copies: usize) {
        self.held += copies as u32;
    }

    /// What to send now: the head of a queue, strictly by class, or of those with weights by
    /// their turns.
    pub(super) fn next(&self, flights: &Flights, now: Time) -> Next {
        let (mut classes, mut at) = (self.waiting & !self.paused, Time::NEVER);
        let mut weighted: Option<(u64, usize)> = None;
        while classes != 0 {
            let class = classes.trailing_zeros() as usize;
            let ready_at = self.ready_at(class, flights);
            if ready_at <= now {
                let start = self.turns.as_ref().and_then(|turns| turns.start(class));
                let Some(start) = start else { return Next::Send(class) };
                if weighted.is_none_or(|(least, _)| start < least) {
                    weighted = Some((start, class));
                }
            } else {
                at = at.min(ready_at);
            }
            classes &= classes - 1;
        }
        match weighted {
            Some((_, class)) => Next::Send(class),
            None if at == Time::NEVER => Next::Nothing,
            None => Next::Wait(at),
        }
    }

    /// When the head of a queue may go.
    fn ready_at(&self, class: usize, flights: &Flights) -> Time {
        // The flight is better not looked at: it is long since it was in the cache.
        let front = self.queues[class].flights.front();
        let ready_at = |flight| if self.is_prompt { Time::ZERO } else { flights[flight].ready_at };
        front.map_or(Time::NEVER, ready_at)
    }

    /// Takes a flight out of its queues that is not to be sent.
    pub(super) fn flush_one(&mut self, flights: &Flights) -> Option<(usize, u32)> {
        let class = self.waiting.trailing_zeros() as usize;
        let flight = if class < CLASSES { self.pop(class, flights)? } else { return None };
        let bytes = self.bytes_of(&flights[flight]);
        self.queues[class].bytes -= bytes;
        self.queued_bytes -= bytes;
        self.held -= 1;
        Some((class, flight))
    }

    /// Is told to pause a class, or to go on with it.
    pub(super) fn pause(&mut self, class: usize, on: bool, now: Time) {
        let was_on = self.paused & 1 << class != 0;
        if on && !was_on {
            self.paused |= 1 << class;
            self.paused_since[class] = now;
            self.counters.pauses += 1;
        } else if !on && was_on {
            self.paused &= !(1 << class);
            self.begin(class);
            let span = now.since(self.paused_since[class]);
            self.counters.paused = self.counters.paused + span;
        }
    }

    /// How long a pause takes to get back over the cable.
    pub(super) fn pause_delay(&self) -> Nanos {
        let rate = self.rate_bits_per_s;
        let sending = (PAUSE_FRAME_BYTES * 8_000_000_000).checked_div(rate).unwrap_or(0);
        Nanos(sending) + self.delay
    }

    /// Puts the head of the queue of `class` on the wire.
    pub(super) fn send(&mut self, class: usize, flights: &Flights, now: Time) -> Option<Sent> {
        let flight = self.pop(class, flights)?;
        let bytes = self.bytes_of(&flights[flight]);
        if let Some(turns) = &mut self.turns {
            turns.on_send(class, bytes);
        }
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
        self.sending = Sending { bytes, ingress, class: class as u8 };
        self.counters.packets += u64::from(packets);
        self.counters.bytes += bytes;
        let delay = self.delay;
        Some(Sent { flight, head_at: head_at + delay, tail_at: tail_at + delay })
    }

    fn bytes_of_one(&self, flight: &Flight) -> u64 {
        flight.packet_bytes() + u64::from(self.overhead_bytes)
    }

    /// Gives the room of what was sent back, and says what that was.
    pub(super) fn settle(&mut self, now: Time) -> Option<Sending> {
        if self.free_at > now || self.sending.bytes == 0 {
            return None;
        }
        let sent = core::mem::replace(&mut self.sending, Sending::NOTHING);
        self.queues[sent.class()].bytes -= sent.bytes;
        self.queued_bytes -= sent.bytes;
        Some(sent)
    }

    /// The time that so many bytes take from here on, and what the division leaves over.
    fn time_of(&self, bytes: u64) -> (Nanos, u64) {
        let rate = self.rate_bits_per_s;
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
