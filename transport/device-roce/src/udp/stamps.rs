//! When packets leave: what the kernel's transmit stamps say, and what is made of them.
//!
//! A stamp comes on the error queue of the socket, and costs about as much as a short send. So only
//! one batch in 4 ms asks for one, for its last message. It says how long before the end of
//! the call that message left, and for the batches between two stamps that much is taken off the
//! time of the call.

use super::clock::{StampClock, Stamper};
use super::counters::UdpCounters;
use super::error_queue::{TxStamp, recv_stamp};
use super::limits::{
    STAMP_CLOCKS_OFF_NS, STAMP_LOOKS_MAX, STAMPS_APART, STAMPS_MISSING_MAX, STAMPS_RECENT,
};
use core::hint::cold_path;
use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;
use towpath_base::{Nanos, Time};
use towpath_clock::Clock;

/// What is known of when packets leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendTimes {
    /// Whether the kernel tells: it does on loopback and with most drivers.
    pub stamped: bool,
    /// Whether the network card does.
    pub by_card: bool,
    /// How long before the end of a call its last packet left, in nanoseconds: the median of the
    /// last stamps. Below zero it left after that, as it does by the clock of a card.
    pub before_end_ns: i64,
    /// How far from that stamps are, in the median: the error of the times between two stamps.
    pub spread: Nanos,
    /// How far the clock of stamps may be off this link's, at most.
    pub clock_error: Nanos,
}

/// A stamp that was asked for.
#[derive(Clone, Copy, Debug)]
struct Pending {
    source_port: usize,
    /// How many stamps the socket was asked for before, modulo 2^32, as the kernel counts them.
    id: u32,
    /// The call began and ended.
    began: Time,
    ended: Time,
    looks: u32,
}

/// What the kernel is asked about when packets leave.
#[derive(Debug)]
pub(super) struct Stamps {
    is_on: bool,
    /// The next batch asks for one.
    is_wanted: bool,
    wanted_at: Time,
    wall: StampClock,
    card: Option<StampClock>,
    pending: Option<Pending>,
    /// Of the last batch, where it was asked for and came at once.
    exact: Option<Time>,
    tails: Tails,
    missing_in_a_row: u32,
    /// Stamps that were given up and may still come, and how often nobody looked for them since
    /// somebody last did: what is on the error queue ends waits.
    strays: u32,
    passed_by: u8,
    /// How many each socket was asked for.
    ids: Vec<u32>,
}

impl Stamps {
    /// Of a link with so many sockets that send, by the clock of a card if there is one; none if
    /// not `is_on`.
    pub(super) fn new(is_on: bool, card: Option<Arc<File>>, source_ports: usize) -> Self {
        Self {
            is_on,
            is_wanted: is_on,
            wanted_at: Time::ZERO,
            wall: StampClock::default(),
            card: card.map(|file| StampClock::of(Stamper::Card(file))),
            pending: None,
            exact: None,
            tails: Tails::default(),
            missing_in_a_row: 0,
            strays: 0,
            passed_by: 0,
            ids: vec![0; source_ports],
        }
    }

    /// Whether the card is asked.
    pub(super) fn by_card(&self) -> bool {
        self.card.is_some()
    }

    /// Whether the batch that is sent now asks for one.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// The next batch asks for one.
    pub(super) fn want(&mut self) {
        self.is_wanted = self.is_on && self.pending.is_none();
    }

    /// A batch is sent that asks for none.
    #[inline]
    pub(super) fn pass(&mut self) {
        self.exact = None;
    }

    /// A batch went out, in a call that `began` and `ended`; the kernel took its last message, with
    /// the question for a stamp, on the socket of a source port.
    pub(super) fn asked(&mut self, source_port: usize, (began, ended): (Time, Time)) {
        let Some(next) = self.ids.get_mut(source_port) else { return };
        let id = *next;
        *next = next.wrapping_add(1);
        self.pending = Some(Pending { source_port, id, began, ended, looks: 0 });
    }

    /// A batch went out that was to ask for one, and could not.
    pub(super) fn not_asked(&mut self, now: Time) {
        self.exact = None;
        self.rest(now);
    }

    /// No other for a while.
    fn rest(&mut self, now: Time) {
        self.is_wanted = false;
        self.wanted_at = now + STAMPS_APART;
    }

    /// When the batch left that was sent last, where its call ended just before `now`.
    #[inline]
    pub(super) fn left_at(&mut self, now: Time) -> Time {
        if now >= self.wanted_at {
            self.want();
        }
        match self.exact.take() {
            Some(exact) => exact,
            None => {
                let usual = Time(now.0.saturating_add_signed(-self.tails.median_ns));
                // Not before its own call, where that is known.
                self.pending.map_or(usual, |pending| usual.max(pending.began))
            }
        }
    }

    /// Whether something may be on an error queue.
    #[inline]
    pub(super) fn may_come(&self) -> bool {
        self.pending.is_some() || self.strays > 0
    }

    /// Whether the error queue is to be looked at now, where something may be there: each time
    /// while a stamp is awaited, now and then for one that was given up.
    pub(super) fn is_time_to_look(&mut self) -> bool {
        self.passed_by = self.passed_by.wrapping_add(1);
        self.pending.is_some() || self.passed_by == 0
    }

    /// The source port whose error queue is to be looked at.
    pub(super) fn awaited_at(&self) -> Option<usize> {
        self.pending.map(|pending| pending.source_port)
    }

    /// Looks for what was asked for, `now`.
    pub(super) fn look(
        &mut self,
        socket: &UdpSocket,
        source_port: usize,
        (now, clock): (Time, &Clock),
        counters: &mut UdpCounters,
    ) {
        loop {
            match recv_stamp(socket.as_fd()) {
                Ok(stamp) => self.take(stamp, source_port, (now, clock), counters),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let Some(pending) = self.pending.as_mut().filter(|of| of.source_port == source_port) else {
            return;
        };
        pending.looks += 1;
        if pending.looks >= STAMP_LOOKS_MAX && now.since(pending.ended) >= STAMPS_APART {
            self.give_up(now, counters);
        }
    }

    /// It has not come, and may not any more.
    #[cold]
    fn give_up(&mut self, now: Time, counters: &mut UdpCounters) {
        self.pending = None;
        self.strays = self.strays.saturating_add(1);
        counters.stamps_missing += 1;
        self.missing_in_a_row += 1;
        // A driver without stamps, most likely: the time of the call is what there is.
        self.is_on &= self.missing_in_a_row < STAMPS_MISSING_MAX;
        self.rest(now);
    }

    fn take(
        &mut self,
        stamp: TxStamp,
        source_port: usize,
        (now, clock): (Time, &Clock),
        counters: &mut UdpCounters,
    ) {
        let Some(pending) = self.pending.filter(|of| of.source_port == source_port) else {
            self.strays = self.strays.saturating_sub(1);
            return;
        };
        let of_card = stamp.card_ns.filter(|_| self.card.is_some());
        let (Some(id), Some(stamp_ns)) = (stamp.id, of_card.or(stamp.wall_ns)) else {
            counters.stamps_bad += 1;
            return;
        };
        let ahead = id.wrapping_sub(pending.id) as i32;
        if ahead < 0 {
            // Of one that was given up.
            cold_path();
            self.strays = self.strays.saturating_sub(1);
            return;
        }
        // The kernel has counted sends, too, that it then did not take.
        self.ids[source_port] = id.wrapping_add(1);
        self.pending = None;
        self.rest(now);
        let by = self.card.as_mut().filter(|_| of_card.is_some()).unwrap_or(&mut self.wall);
        let at = by.bring_over(stamp_ns, now, clock);
        if at.0 + STAMP_CLOCKS_OFF_NS < pending.began.0 {
            // The wall clock was set meanwhile.
            cold_path();
            counters.stamps_bad += 1;
            return;
        }
        self.missing_in_a_row = 0;
        counters.stamps_taken += 1;
        if at > pending.ended && of_card.is_none() {
            // It waited for the interface, behind the call: that queue is one of the network.
            counters.stamps_queued += 1;
        } else {
            self.tails.note(pending.ended.0 as i64 - at.0 as i64);
        }
        if pending.looks == 0 {
            self.exact = Some(at.clamp(pending.began, pending.ended));
        }
    }

    /// What is known of when packets leave.
    pub(super) fn times(&self) -> SendTimes {
        SendTimes {
            stamped: self.is_on && self.tails.count > 0,
            by_card: self.card.is_some(),
            before_end_ns: self.tails.median_ns,
            spread: self.tails.spread,
            clock_error: self.card.as_ref().unwrap_or(&self.wall).error(),
        }
    }
}

/// How many nanoseconds before the end of calls packets left, of late.
#[derive(Clone, Copy, Debug, Default)]
struct Tails {
    recent: [i64; Self::RECENT],
    count: u64,
    median_ns: i64,
    spread: Nanos,
}

impl Tails {
    const RECENT: usize = STAMPS_RECENT;

    fn note(&mut self, tail_ns: i64) {
        self.recent[(self.count % Self::RECENT as u64) as usize] = tail_ns;
        self.count += 1;
        let known = (self.count as usize).min(Self::RECENT);
        let middle = (known - 1) / 2;
        let mut sorted = self.recent;
        sorted[..known].sort_unstable();
        self.median_ns = sorted[middle];
        let mut apart = sorted.map(|tail| tail.abs_diff(self.median_ns));
        apart[..known].sort_unstable();
        self.spread = Nanos(apart[middle]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    fn wall_ns() -> u64 {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        wall.as_nanos() as u64
    }

    /// A stamp that was asked for at port 0, and clocks.
    struct Rig {
        stamps: Stamps,
        clock: Clock,
        counters: UdpCounters,
        began: Time,
        ended: Time,
    }

    impl Rig {
        fn new() -> Self {
            let (clock, counters) = (Clock::start(), UdpCounters::default());
            // So that there is something before the first call.
            std::thread::sleep(std::time::Duration::from_millis(2));
            let stamps = Stamps::new(true, None, 1);
            Self { stamps, clock, counters, began: Time::ZERO, ended: Time::ZERO }
        }

        /// Asks for one, in a call that takes a while in whose middle this says what time it is.
        fn ask(&mut self) -> u64 {
            assert!(self.stamps.is_wanted());
            let spin = || (0..2_000).for_each(|_| core::hint::spin_loop());
            self.began = self.clock.now();
            spin();
            let wall_ns = wall_ns();
            spin();
            self.ended = self.clock.now();
            self.stamps.asked(0, (self.began, self.ended));
            wall_ns
        }

        fn take(&mut self, id: impl Into<Option<u32>>, wall_ns: impl Into<Option<u64>>) {
            let stamp = TxStamp { id: id.into(), wall_ns: wall_ns.into(), card_ns: None };
            let now = self.clock.now();
            self.stamps.take(stamp, 0, (now, &self.clock), &mut self.counters);
        }

        /// Long after.
        fn left_at_later(&mut self) -> Time {
            self.stamps.left_at(self.clock.now() + STAMPS_APART)
        }
    }

    #[test]
    fn a_stamp_says_when_its_batch_left_and_how_long_before_the_end_of_calls_others_do() {
        let mut rig = Rig::new();
        let wall = rig.ask();
        rig.take(0, wall);
        assert!(!rig.stamps.is_wanted() && !rig.stamps.may_come());
        let left_at = rig.stamps.left_at(rig.clock.now());
        assert!((rig.began..=rig.ended).contains(&left_at), "{left_at:?}");
        let times = rig.stamps.times();
        assert!(times.stamped && times.clock_error < Nanos::from_millis(1), "{times:?}");
        assert_eq!(times.before_end_ns as u64, rig.ended.since(left_at).0);
        let now = rig.clock.now() + STAMPS_APART;
        assert_eq!(rig.stamps.left_at(now), Time(now.0 - times.before_end_ns as u64));
        assert!(rig.stamps.is_wanted(), "a while has passed");
        assert_eq!(rig.counters.stamps_taken, 1);
    }

    #[test]
    fn counts_wrap_and_are_taken_from_the_kernel_where_it_counts_more() {
        let mut rig = Rig::new();
        rig.stamps.ids[0] = u32::MAX;
        let wall = rig.ask();
        rig.take(u32::MAX, wall);
        assert_eq!((rig.counters.stamps_taken, rig.stamps.ids[0]), (1, 0));
        rig.left_at_later();
        let wall = rig.ask();
        // One of before the wrap that comes late.
        rig.take(u32::MAX - 1, wall);
        assert!(rig.stamps.may_come());
        // The kernel has counted two that it did not take.
        rig.take(2, wall);
        assert_eq!((rig.counters.stamps_taken, rig.stamps.ids[0]), (2, 3));
    }

    #[test]
    fn what_cannot_be_true_is_counted_and_the_time_of_the_call_counts() {
        let mut rig = Rig::new();
        let wall = rig.ask();
        // Not a stamp; not of a send.
        rig.take(None, wall);
        rig.take(0, None);
        assert_eq!((rig.counters.stamps_bad, rig.stamps.may_come()), (2, true));
        // Long before the call: somebody has set the clock.
        rig.take(0, wall - 1_000_000_000);
        assert_eq!((rig.counters.stamps_bad, rig.counters.stamps_taken), (3, 0));
        let now = rig.clock.now();
        assert_eq!(rig.stamps.left_at(now), now);
        // From the future: it is held to the end of the call.
        rig.left_at_later();
        rig.ask();
        rig.take(1, u64::MAX);
        assert_eq!((rig.counters.stamps_taken, rig.counters.stamps_queued), (1, 1));
        assert_eq!(rig.stamps.left_at(rig.clock.now()), rig.ended);
        assert!(!rig.stamps.times().stamped, "it told nothing of calls");
    }

    #[test]
    fn what_does_not_come_is_given_up_and_asked_for_no_more() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
        let mut rig = Rig::new();
        for missing in 1..=STAMPS_MISSING_MAX {
            rig.ask();
            for _ in 0..STAMP_LOOKS_MAX {
                assert!(rig.stamps.awaited_at() == Some(0));
                let now = rig.ended + STAMPS_APART;
                rig.stamps.look(&socket, 0, (now, &rig.clock), &mut rig.counters);
            }
            assert_eq!(rig.stamps.awaited_at(), None);
            assert_eq!(rig.counters.stamps_missing, u64::from(missing));
            rig.stamps.left_at(rig.ended + STAMPS_APART + STAMPS_APART);
        }
        assert!(!rig.stamps.is_wanted() && rig.stamps.may_come());
        for _ in 0..STAMPS_MISSING_MAX {
            rig.take(0, wall_ns());
        }
        assert!(!rig.stamps.may_come(), "all have come after all");
    }

    #[test]
    fn the_median_tail_counts_and_how_far_others_are_from_it() {
        let mut tails = Tails::default();
        [900, 1_000, 1_100, 1_000_000, 1_050].into_iter().for_each(|ns| tails.note(ns));
        assert_eq!((tails.median_ns, tails.spread), (1_050, Nanos(50)));
        (0..20).for_each(|_| tails.note(-7));
        assert_eq!((tails.median_ns, tails.spread), (-7, Nanos::ZERO));
    }

    /// The clock of a "card" is a file; one of the system's own will do.
    #[test]
    fn what_a_card_stamps_after_the_call_moves_the_time_of_calls_behind_their_end() {
        let mut rig = Rig::new();
        let file = File::open("/dev/null").expect("every system has it");
        rig.stamps.card = Some(StampClock::of(Stamper::Card(Arc::new(file))));
        let wall = rig.ask();
        let now = rig.ended + Nanos(5_000);
        // The clock cannot be read, so the stamp is of now.
        let stamp = TxStamp { id: Some(0), wall_ns: Some(wall), card_ns: Some(1) };
        rig.stamps.take(stamp, 0, (now, &rig.clock), &mut rig.counters);
        let times = rig.stamps.times();
        assert!(times.by_card);
        assert_eq!((times.before_end_ns, rig.counters.stamps_queued), (-5_000, 0));
        rig.stamps.pass();
        assert_eq!(rig.stamps.left_at(Time(9_000_000)), Time(9_005_000));
    }
}
