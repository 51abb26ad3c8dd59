//! The one agenda of events, ordered by time, then by when an event was scheduled.
//!
//! It is the hottest thing of a world, so it is laid out for the cache: an entry is 16 bytes, a
//! node of a heap has four children, and four children share one line. And of all the events of
//! thousands of hosts only those of a quarter of a microsecond are in the heap that is worked on.
//! What comes later lies in slots, unordered, each of which becomes that heap in its turn; what
//! comes behind all slots, such as most timers, is in a second heap.

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

/// Bits of an entry that say which event it is: three for the kind, the others for its subject.
const EVENT_BITS: u32 = 32;
const KIND_BITS: u32 = 3;

impl Event {
    fn pack(self) -> u64 {
        let (kind, subject) = match self {
            Self::Land { flight } => (0, flight),
            Self::Arrive { flight } => (1, flight),
            Self::Serve { wire } => (2, wire),
            Self::Release { wire } => (3, wire),
            Self::Pause { wire, class, on } => {
                (4, wire << 4 | u32::from(class) << 1 | u32::from(on))
            }
            Self::Change { number } => (5, number),
            Self::Timer { host } => (6, host),
        };
        debug_assert!(subject < 1 << (EVENT_BITS - KIND_BITS), "more of them than memory holds");
        u64::from(subject << KIND_BITS | kind)
    }

    fn unpack(entry: Entry) -> Self {
        let bits = entry as u32;
        let subject = bits >> KIND_BITS;
        match bits % (1 << KIND_BITS) {
            0 => Self::Land { flight: subject },
            1 => Self::Arrive { flight: subject },
            2 => Self::Serve { wire: subject },
            3 => Self::Release { wire: subject },
            4 => {
                let (class, on) = ((subject >> 1) as u8 & 0b111, subject & 1 == 1);
                Self::Pause { wire: subject >> 4, class, on }
            }
            5 => Self::Change { number: subject },
            _ => Self::Timer { host: subject },
        }
    }
}

/// Time, then when it was scheduled, then what it is, as one number; the last decides nothing.
type Entry = u128;

const UNUSED: Entry = Entry::MAX;

fn time_of(entry: Entry) -> Time {
    Time((entry >> 64) as u64)
}

/// Four siblings, in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([Entry; 4]);

/// Where the root is, so that four siblings begin at a multiple of four.
const ROOT: usize = 3;

/// A sequence number that is not given out: at it the numbers start again.
const SEQUENCE_END: u64 = 1 << (64 - EVENT_BITS);

/// The span of time of a slot, as a power of two: about what a packet of 4,096 bytes takes at
/// 100 Gb/s. Thousands of hosts have some hundred events in it, which fit into the smallest cache.
const SLOT_BITS: u32 = 8;

/// Slots that are ahead: as many as a word has bits. Together they are 16 us, which is longer than
/// most packets take over a wire.
const SLOTS: u64 = 64;

/// The number of the slot of a time.
fn slot_of(entry: Entry) -> u64 {
    time_of(entry).0 >> SLOT_BITS
}

pub(super) struct Agenda {
    /// What comes before the slot `next`; never empty while anything is there.
    near: Heap,
    next: u64,
    /// What comes in that slot and those behind it, each at its number modulo [`SLOTS`]; one bit
    /// says which have any.
    slots: Vec<Vec<Entry>>,
    filled: u64,
    /// What was behind all slots when it was scheduled.
    far: Heap,
    sequence: u64,
}

impl Agenda {
    pub(super) fn new() -> Self {
        Self {
            near: Heap::new(),
            next: 0,
            slots: vec![Vec::new(); SLOTS as usize],
            filled: 0,
            far: Heap::new(),
            sequence: 0,
        }
    }

    pub(super) fn push(&mut self, time: Time, event: Event) {
        if self.sequence == SEQUENCE_END {
            self.number_anew();
        }
        let behind_time = self.sequence << EVENT_BITS | event.pack();
        self.sequence += 1;
        let entry = Entry::from(time.0) << 64 | Entry::from(behind_time);
        if slot_of(entry) < self.next {
            return self.near.push(entry);
        }
        self.put_off(entry);
        if self.near.is_empty() {
            self.go_on();
        }
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        self.near.first().map(time_of)
    }

    /// The next event, if it comes at `limit` or before.
    pub(super) fn pop(&mut self, limit: Time) -> Option<(Time, Event)> {
        let first = self.near.first().filter(|first| time_of(*first) <= limit)?;
        self.near.pop();
        if self.near.is_empty() {
            self.go_on();
        }
        Some((time_of(first), Event::unpack(first)))
    }

    /// All events of the next instant that are known by now, in their order, if it is `limit` or
    /// before. What is pushed for that instant later comes after all of them.
    pub(super) fn pop_instant(&mut self, limit: Time, events: &mut Vec<Event>) -> Option<Time> {
        let (time, first) = self.pop(limit)?;
        events.push(first);
        while let Some((_, event)) = self.pop(time) {
            events.push(event);
        }
        Some(time)
    }

    /// Notes what is in the slot `next` or behind it.
    fn put_off(&mut self, entry: Entry) {
        let slot = slot_of(entry);
        if slot >= self.next + SLOTS {
            return self.far.push(entry);
        }
        self.slots[(slot % SLOTS) as usize].push(entry);
        self.filled |= 1 << (slot % SLOTS);
    }

    /// Has the heap that is worked on, which is empty, go on with what comes next.
    fn go_on(&mut self) {
        let ahead = self.filled.rotate_right((self.next % SLOTS) as u32).trailing_zeros();
        self.next = match self.far.first() {
            _ if self.filled != 0 => self.next + u64::from(ahead),
            Some(first) => slot_of(first),
            None => return,
        };
        // The slots have moved, so some of what was behind them is in them now.
        let end = self.next + SLOTS;
        while let Some(entry) = self.far.first().filter(|entry| slot_of(*entry) < end) {
            self.far.pop();
            self.put_off(entry);
        }
        let slot = self.next % SLOTS;
        self.next += 1;
        self.filled &= !(1 << slot);
        self.slots[slot as usize].drain(..).for_each(|entry| self.near.push(entry));
    }

    /// Numbers what is there from 0 again, in the same order.
    fn number_anew(&mut self) {
        let mut entries: Vec<Entry> = self.near.all().chain(self.far.all()).collect();
        self.slots.iter_mut().for_each(|slot| entries.append(slot));
        entries.sort_unstable();
        *self = Self::new();
        for entry in entries {
            self.push(time_of(entry), Event::unpack(entry));
        }
    }
}

struct Heap {
    /// The places behind the last entry are [`UNUSED`], which comes after every other.
    lines: Vec<Line>,
    /// One behind the last entry.
    end: usize,
}

impl Heap {
    fn new() -> Self {
        Self { lines: vec![Line([UNUSED; 4])], end: ROOT }
    }

    fn is_empty(&self) -> bool {
        self.end == ROOT
    }

    fn first(&self) -> Option<Entry> {
        (self.end > ROOT).then(|| self.at(ROOT))
    }

    fn all(&self) -> impl Iterator<Item = Entry> {
        (ROOT..self.end).map(|place| self.at(place))
    }

    /// Takes the first out, if there is any.
    fn pop(&mut self) {
        if self.is_empty() {
            return;
        }
        self.end -= 1;
        let last = core::mem::replace(self.at_mut(self.end), UNUSED);
        if self.end > ROOT {
            self.sink(last);
        }
    }

    fn at(&self, place: usize) -> Entry {
        self.lines[place / 4].0[place % 4]
    }

    fn at_mut(&mut self, place: usize) -> &mut Entry {
        &mut self.lines[place / 4].0[place % 4]
    }

    fn push(&mut self, entry: Entry) {
        let mut place = self.end;
        self.end += 1;
        if place / 4 == self.lines.len() {
            self.lines.push(Line([UNUSED; 4]));
        }
        while place > ROOT {
            let parent = place / 4 + 2;
            let above = self.at(parent);
            if above < entry {
                break;
            }
            *self.at_mut(place) = above;
            place = parent;
        }
        *self.at_mut(place) = entry;
    }

    /// Puts `entry` where the root was, and lets it sink to its place.
    fn sink(&mut self, entry: Entry) {
        let mut place = ROOT;
        while let Some(children) = self.lines.get(place - 2) {
            let [a, b, c, d] = children.0;
            let (left, right) = (a.min(b), c.min(d));
            let least = left.min(right);
            if entry < least {
                break;
            }
            let which = if left < right { usize::from(b < a) } else { 2 + usize::from(d < c) };
            *self.at_mut(place) = least;
            place = (place - 2) * 4 + which;
        }
        *self.at_mut(place) = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use towpath_base::Prng;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_scheduling() {
        let (mut prng, mut agenda) = (Prng::new(5), Agenda::new());
        let mut expected = BTreeMap::new();
        for n in 0..20_000_u32 {
            let time = Time(prng.below(500));
            agenda.push(time, Event::Land { flight: n });
            expected.insert((time, n), n);
            while prng.chance(0.48) {
                let first = expected.pop_first().map(|((time, _), flight)| (time, flight));
                let popped = agenda.pop(Time::NEVER);
                assert_eq!(popped, first.map(|(time, flight)| (time, Event::Land { flight })));
            }
            assert_eq!(agenda.next_time(), expected.keys().next().map(|key| key.0));
        }
        assert!(expected.len() > 300, "{}", expected.len());
        for ((time, _), flight) in expected {
            assert_eq!(agenda.pop(time), Some((time, Event::Land { flight })));
        }
        assert_eq!(agenda.pop(Time::NEVER), None);
    }

    #[test]
    fn an_instant_is_all_that_is_known_of_it_and_the_rest_comes_next() {
        let mut agenda = Agenda::new();
        for (time, host) in [(5, 1), (9, 2), (5, 3), (6, 4), (5, 5)] {
            agenda.push(Time(time), Event::Timer { host });
        }
        let next = |agenda: &mut Agenda| {
            let mut events = Vec::new();
            let time = agenda.pop_instant(Time(6), &mut events);
            let hosts = events.iter().map(|event| match event {
                Event::Timer { host } => *host,
                _ => 0,
            });
            (time.map(|time| time.0), hosts.collect::<Vec<_>>())
        };
        assert_eq!(next(&mut agenda), (Some(5), vec![1, 3, 5]));
        agenda.push(Time(5), Event::Timer { host: 6 });
        assert_eq!(next(&mut agenda), (Some(5), vec![6]));
        assert_eq!(next(&mut agenda), (Some(6), vec![4]));
        assert_eq!(next(&mut agenda), (None, vec![]));
    }

    #[test]
    fn the_order_is_kept_over_all_spans_of_time() {
        for seed in 0..20 {
            let (mut prng, mut agenda) = (Prng::new(seed), Agenda::new());
            let mut expected = BTreeMap::new();
            let mut now = 0;
            for n in 0..5_000_u32 {
                // From at once to far behind all slots, and the last time that there is.
                let time = match prng.below(100) {
                    0 => u64::MAX,
                    _ => now + (prng.next_u64() >> prng.between(34, 63)),
                };
                agenda.push(Time(time), Event::Serve { wire: n });
                expected.insert((time, n), n);
                while prng.chance(if n < 2_500 { 0.4 } else { 0.6 }) {
                    let first = expected.pop_first();
                    now = first.map_or(now, |((time, _), _)| time.min(1 << 40));
                    let first = first.map(|((time, _), wire)| (Time(time), Event::Serve { wire }));
                    assert_eq!(agenda.pop(Time::NEVER), first, "seed {seed}");
                }
                let next = expected.keys().next().map(|key| Time(key.0));
                assert_eq!(agenda.next_time(), next, "seed {seed}");
            }
        }
    }

    #[test]
    fn nothing_comes_before_its_time() {
        let mut agenda = Agenda::new();
        agenda.push(Time(7), Event::Timer { host: 1 });
        assert_eq!(agenda.pop(Time(6)), None);
        assert_eq!(agenda.pop(Time(7)), Some((Time(7), Event::Timer { host: 1 })));
    }

    #[test]
    fn each_event_comes_out_as_it_went_in() {
        let number = (1 << 25) - 1;
        let mut agenda = Agenda::new();
        let events = [
            Event::Land { flight: number },
            Event::Arrive { flight: number },
            Event::Serve { wire: number },
            Event::Release { wire: number },
            Event::Pause { wire: number, class: 3, on: true },
            Event::Pause { wire: number, class: 0, on: false },
            Event::Change { number },
            Event::Timer { host: number },
        ];
        events.iter().for_each(|event| agenda.push(Time(1), *event));
        for event in events {
            assert_eq!(agenda.pop(Time(1)), Some((Time(1), event)));
        }
    }

    #[test]
    fn the_order_stays_when_the_sequence_starts_again() {
        let mut agenda = Agenda { sequence: SEQUENCE_END - 3, ..Agenda::new() };
        (0..6).for_each(|host| agenda.push(Time(9), Event::Timer { host }));
        assert!(agenda.sequence < 10);
        for host in 0..6 {
            assert_eq!(agenda.pop(Time(9)), Some((Time(9), Event::Timer { host })));
        }
    }
}
