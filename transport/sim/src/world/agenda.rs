//! The one event heap, ordered by time, then by when an event was scheduled.

use core::cmp::Ordering;
use std::collections::BinaryHeap;
use towpath_base::Time;

/// What happens. Each names its subject by number, so that an entry stays small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A flight comes to the far end of its wire.
    Land { flight: u32 },
    /// Software at the far end of its wire can see a flight.
    Arrive { flight: u32 },
    /// A wire may have something to send.
    Serve { wire: u32 },
    /// Flights that wait to be overtaken on a wire have waited long enough.
    Release { wire: u32 },
    /// A pause, or the end of one, comes to the near end of a wire.
    Pause { wire: u32, class: u8, on: bool },
    /// Something changes that was announced.
    Change { number: u32 },
    /// The timer of a host may be due.
    Timer { host: u32 },
}

#[derive(Clone, Copy)]
struct Entry {
    time: Time,
    sequence: u64,
    event: Event,
}

/// The greatest is the one that comes first, for the heap keeps the greatest on top.
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.sequence).cmp(&(self.time, self.sequence))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

pub(super) struct Agenda {
    heap: BinaryHeap<Entry>,
    sequence: u64,
}

impl Agenda {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }

    pub(super) fn push(&mut self, time: Time, event: Event) {
        self.heap.push(Entry { time, sequence: self.sequence, event });
        self.sequence += 1;
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.time)
    }

    /// The next event, if it comes at `limit` or before.
    pub(super) fn pop(&mut self, limit: Time) -> Option<(Time, Event)> {
        if self.next_time()? > limit {
            return None;
        }
        self.heap.pop().map(|entry| (entry.time, entry.event))
    }
}
