//! The search alone, against paths that are two numbers: what they carry and what they lose.

use super::*;
use alloc::vec::Vec;
use towpath_base::Prng;

extern crate std;

/// Within this a probe is answered.
const ANSWER: Nanos = Nanos::from_millis(2);

/// A path that carries packets of up to `carried`, and loses some of any length.
struct Carrying {
    search: MtuSearch,
    carried: Mtu,
    loss: f64,
    now: Time,
    /// Probes that were answered, by number.
    answered: Vec<bool>,
    /// Long ones that were sent, by size.
    asked: Vec<Mtu>,
    changes: Vec<MtuChange>,
    prng: Prng,
}

impl Carrying {
    fn new(carried: Mtu, sizes: PacketSizes) -> Self {
        Self {
            search: MtuSearch::new(Mtu::Mtu4096, sizes, Time::ZERO),
            carried,
            loss: 0.0,
            now: Time::ZERO,
            answered: Vec::new(),
            asked: Vec::new(),
            changes: Vec::new(),
            prng: Prng::new(1),
        }
    }

    fn probe(&mut self, size: Option<Mtu>) -> (u64, bool) {
        let fits = size.is_none_or(|size| size <= self.carried);
        let comes = fits && !self.prng.chance(self.loss);
        self.answered.push(comes);
        (self.answered.len() as u64 - 1, comes)
    }

    /// A send of so many bytes.
    fn send(&mut self, bytes: u32) {
        if self.search.wants_more(self.now, u64::from(bytes)) {
            self.search.search(self.now);
        }
        let packets = bytes.div_ceil(self.search.packet_bytes());
        let fits = bytes.min(self.search.packet_bytes()) <= self.carried.bytes();
        let comes = fits && (0..packets).all(|_| !self.prng.chance(self.loss));
        if !comes {
            self.search.on_lost(bytes);
        } else if bytes >= self.search.least_bytes() {
            self.search.on_passed(bytes);
        }
        self.search.suspect(self.now, false);
    }

    /// Does what is due at the next due time; false when nothing is.
    fn step(&mut self) -> bool {
        let due = self.search.due();
        if due == Time::NEVER {
            return false;
        }
        self.now = self.now.max(due);
        let Self { search, answered, now, .. } = self;
        let is_acked = |number: u64| answered[number as usize];
        if search.on_due(*now, ANSWER, is_acked) {
            let (number, _) = self.probe(None);
            assert!(self.search.on_short_probe(number));
            let size = self.search.long_probe_due().unwrap();
            self.asked.push(size);
            let (number, comes) = self.probe(Some(size));
            self.search.on_long_probe(self.now, ANSWER, number);
            if comes {
                self.search.on_long_answered(self.now, size);
            }
        }
        self.changes.extend(self.search.poll_change());
        true
    }

    /// Until nothing is asked any more.
    fn settle(&mut self) -> Mtu {
        let end = self.now + Nanos::from_secs(60);
        while self.step() {
            assert!(self.now < end, "it asks for ever: {:?}", self.search);
        }
        self.search.size()
    }

    fn told(&self) -> Vec<(Mtu, Mtu, MtuReason)> {
        self.changes.iter().map(|change| (change.from, change.to, change.why)).collect()
    }
}

#[test]
fn a_path_begins_at_the_base_and_is_asked_once_something_longer_is_sent() {
    let mut path = Carrying::new(Mtu::Mtu4096, PacketSizes::Cut);
    assert_eq!((path.search.size(), path.search.phase()), (BASE, MtuPhase::Base));
    path.send(1023);
    assert!(!path.step(), "what does not fill a packet asks for nothing");
    path.send(1024);
    assert_eq!(path.search.phase(), MtuPhase::Searching);
    assert_eq!((path.settle(), path.search.phase()), (Mtu::Mtu4096, MtuPhase::Complete));
    assert_eq!((path.asked.len(), path.search.cut_at()), (1, None));
    assert_eq!(path.told(), [], "that was expected");
}

#[test]
fn the_largest_size_that_is_carried_is_found_and_told() {
    for carried in [Mtu::Mtu1024, Mtu::Mtu2048] {
        let mut path = Carrying::new(carried, PacketSizes::Cut);
        path.send(60_000);
        assert_eq!((path.settle(), path.search.phase()), (carried, MtuPhase::Complete));
        assert_eq!(path.told(), [(Mtu::Mtu4096, carried, MtuReason::Swallowed)]);
        assert!(path.now < Time::ZERO + Nanos::from_millis(50), "{}", path.now.0);
        assert_eq!(path.search.cut_at(), Some(carried));
        assert_eq!(
            (path.search.packet_bytes(), path.search.send_bytes_max()),
            (carried.bytes(), u32::MAX)
        );
    }
}

#[test]
fn a_path_that_shrinks_is_noticed_by_what_it_loses_and_goes_on_in_what_it_carries() {
    for carried in [Mtu::Mtu256, Mtu::Mtu512, Mtu::Mtu1024, Mtu::Mtu2048] {
        let mut path = Carrying::new(Mtu::Mtu4096, PacketSizes::Cut);
        path.send(60_000);
        path.settle();
        path.carried = carried;
        let start = path.now;
        // As something is lost at each size, it is asked for that.
        while path.search.size() > carried {
            path.send(60_000);
            path.step();
        }
        assert!(path.now.since(start) < Nanos::from_millis(100), "{}", path.now.since(start));
        path.send(60_000);
        assert_eq!(path.settle(), carried);
        let expected = if carried < BASE { MtuPhase::Error } else { MtuPhase::Complete };
        assert_eq!((path.search.phase(), path.search.why()), (expected, MtuReason::Swallowed));
    }
}

#[test]
fn a_path_that_grows_back_is_asked_again_and_used() {
    let mut path = Carrying::new(Mtu::Mtu1024, PacketSizes::Cut);
    path.send(60_000);
    path.settle();
    path.send(60_000);
    assert!(!path.step(), "not at once");
    path.carried = Mtu::Mtu4096;
    path.now += MTU_RAISE_FIRST;
    assert!(!path.step(), "an idle path is not asked");
    path.send(60_000);
    assert_eq!(path.settle(), Mtu::Mtu4096);
    assert_eq!(path.told().last(), Some(&(Mtu::Mtu1024, Mtu::Mtu4096, MtuReason::Probed)));
}

#[test]
fn a_path_that_stays_small_is_asked_less_and_less_often() {
    let mut path = Carrying::new(Mtu::Mtu1024, PacketSizes::Cut);
    let end = Time::ZERO + Nanos::from_secs(600);
    while path.now < end {
        path.send(60_000);
        path.settle();
        path.now += Nanos::from_millis(100);
    }
    // At 0, 1, 3, 7, ... 63, then each 64 s: 15 times, each 12 for each of two sizes.
    let times = path.asked.len() / 24;
    assert!((14..=16).contains(&times), "{times}");
    assert_eq!(path.told().len(), 1);
}

#[test]
fn loss_that_does_not_look_at_lengths_is_not_taken_for_a_small_packet_size() {
    for (seed, loss) in [(1, 0.02), (2, 0.3), (3, 0.3), (4, 0.3)] {
        std::println!("seed {seed}, loss {loss}");
        let mut path = Carrying::new(Mtu::Mtu4096, PacketSizes::Cut);
        (path.loss, path.prng) = (loss, Prng::new(seed));
        for _ in 0..20_000 {
            path.send(57_344);
            path.step();
        }
        assert_eq!((path.told(), path.settle()), (Vec::new(), Mtu::Mtu4096));
    }
}

#[test]
fn a_path_that_both_loses_and_is_small_is_found_out_all_the_same() {
    for seed in 0..20 {
        std::println!("seed {seed}");
        let mut path = Carrying::new(Mtu::Mtu1024, PacketSizes::Cut);
        (path.loss, path.prng) = (0.3, Prng::new(seed));
        path.send(60_000);
        assert_eq!(path.settle(), Mtu::Mtu1024);
        assert!(path.now < Time::ZERO + Nanos::from_millis(500), "{}", path.now.0);
    }
}

#[test]
fn a_path_that_answers_nothing_is_asked_rarely_and_tells_nothing() {
    let mut path = Carrying::new(Mtu::Mtu4096, PacketSizes::Cut);
    path.loss = 1.0;
    path.send(60_000);
    let end = path.now + Nanos::from_secs(10);
    while path.now < end {
        assert!(path.step());
    }
    assert!(path.asked.len() < 150, "{}", path.asked.len());
    assert_eq!((path.told(), path.search.size()), (Vec::new(), BASE));
}

#[test]
fn a_hint_alone_changes_nothing_and_makes_few_probes_enough() {
    let mut path = Carrying::new(Mtu::Mtu4096, PacketSizes::Cut);
    path.send(60_000);
    path.settle();
    let asked = path.asked.len();
    assert!(path.search.on_hint(path.now, Mtu::Mtu256), "it is asked");
    assert_eq!((path.settle(), path.asked.len()), (Mtu::Mtu4096, asked + 1));
    path.carried = Mtu::Mtu1024;
    assert!(path.search.on_hint(path.now, Mtu::Mtu1024));
    assert!(!path.search.on_hint(path.now, Mtu::Mtu1024), "it is asked already");
    while path.search.size() > BASE {
        assert!(path.step());
    }
    assert_eq!(path.asked.len(), asked + 1 + MTU_PAIRS_HINTED as usize);
    assert!(!path.search.on_hint(path.now, Mtu::Mtu1024), "that is no longer than what is in use");
}

#[test]
fn an_answer_that_is_late_still_counts() {
    let mut path = Carrying::new(Mtu::Mtu1024, PacketSizes::Cut);
    path.send(60_000);
    path.settle();
    path.carried = Mtu::Mtu2048;
    path.search.on_long_answered(path.now, Mtu::Mtu2048);
    path.changes.extend(path.search.poll_change());
    assert_eq!(path.settle(), Mtu::Mtu2048);
    assert_eq!(path.told().last(), Some(&(Mtu::Mtu1024, Mtu::Mtu2048, MtuReason::Probed)));
}

#[test]
fn sends_of_a_device_that_cannot_cut_them_have_to_fit_a_packet_from_the_loss_on() {
    let mut path = Carrying::new(Mtu::Mtu1024, PacketSizes::Lone);
    assert_eq!((path.search.size(), path.search.send_bytes_max()), (Mtu::Mtu4096, u32::MAX));
    while path.search.size() > Mtu::Mtu1024 {
        path.send(60_000);
        path.step();
    }
    path.settle();
    assert_eq!((path.search.send_bytes_max(), path.search.cut_at()), (1024, None));
}

#[test]
fn where_packets_are_fixed_nothing_is_asked() {
    let mut path = Carrying::new(Mtu::Mtu256, PacketSizes::Fixed);
    (0..1_000).for_each(|_| path.send(60_000));
    assert!(!path.search.on_hint(path.now, Mtu::Mtu256) && !path.search.suspect(path.now, true));
    assert!(!path.step());
    assert_eq!((path.search.size(), path.search.phase()), (Mtu::Mtu4096, MtuPhase::Complete));
}

#[test]
fn a_path_that_is_doubted_again_and_again_is_asked_a_bounded_number_of_times() {
    let mut path = Carrying::new(Mtu::Mtu4096, PacketSizes::Cut);
    path.send(60_000);
    path.settle();
    path.asked.clear();
    // All that is sent is lost but for probes: as with a peer that acknowledges what never came.
    let end = path.now + Nanos::from_secs(1);
    while path.now < end {
        (0..100).for_each(|_| path.search.on_lost(60_000));
        path.search.suspect(path.now, true);
        if path.search.due() <= path.now {
            path.step();
        }
        path.now += Nanos::from_micros(50);
    }
    assert!((200..=251).contains(&path.asked.len()), "{}", path.asked.len());
    assert_eq!((path.told(), path.search.size()), (Vec::new(), Mtu::Mtu4096));
}

#[test]
fn sends_that_fill_no_packet_show_what_swallows_them_too() {
    for (bytes, carried) in [(700, Mtu::Mtu512), (1_500, Mtu::Mtu1024), (300, Mtu::Mtu256)] {
        let mut path = Carrying::new(Mtu::Mtu4096, PacketSizes::Cut);
        path.send(60_000);
        path.settle();
        path.carried = carried;
        while path.search.size() > carried {
            // Shorter ones get through all the while.
            path.send(200);
            path.send(bytes);
            path.step();
            assert!(path.now < Time::ZERO + Nanos::from_secs(1), "{bytes} bytes");
        }
    }
}
