//! The clocks by which packets are stamped, brought over to that of the link: the kernel's, and
//! that of a network card.

use super::limits::{
    CLOCK_READINGS_APART_NS, CLOCK_READINGS_MAX, CLOCK_REFRESH_NS, CLOCK_SLEW_PART,
};
use super::sys;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use towpath_base::{Nanos, Time};
use towpath_clock::Clock;

/// A clock by which packets are stamped.
#[derive(Clone, Debug, Default)]
pub(super) enum Stamper {
    /// The kernel's wall clock.
    #[default]
    Wall,
    /// That of a network card.
    Card(Arc<File>),
}

impl Stamper {
    /// What it shows, where it shows anything.
    fn read(&self) -> Option<u64> {
        match self {
            Self::Wall => {
                let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Some(u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX))
            }
            Self::Card(file) => sys::read_clock(file.as_fd()).ok(),
        }
    }
}

/// How far a clock that stamps packets is ahead of the link's.
#[derive(Clone, Debug, Default)]
pub(super) struct StampClock {
    stamper: Stamper,
    ahead_ns: i128,
    /// How far apart the two readings of the link's clock were around that of this one.
    apart_ns: u64,
    refresh_at_ns: u64,
}

impl StampClock {
    pub(super) fn of(stamper: Stamper) -> Self {
        Self { stamper, ..Self::default() }
    }

    /// Brings a stamp over to the link's clock; `now` bounds it, as does what a step of its own
    /// clock can do to it.
    pub(super) fn bring_over(&mut self, stamp_ns: u64, now: Time, clock: &Clock) -> Time {
        if now.0 >= self.refresh_at_ns {
            (self.ahead_ns, self.apart_ns) = difference(&self.stamper, clock);
            self.refresh_at_ns = now.0.saturating_add(CLOCK_REFRESH_NS);
        }
        let at = i128::from(stamp_ns) - self.ahead_ns;
        Time(at.clamp(0, now.0.into()) as u64)
    }

    /// How far off it may be: half of what lay between two readings, and what the slewing of a
    /// clock adds until they are taken again.
    pub(super) fn error(&self) -> Nanos {
        Nanos(self.apart_ns / 2 + CLOCK_REFRESH_NS / CLOCK_SLEW_PART)
    }
}

/// The difference of the two clocks, read without an interruption in between, and how long that
/// took. A clock that cannot be read is as far behind as can be: its stamps are of now, whatever
/// they say.
fn difference(stamper: &Stamper, clock: &Clock) -> (i128, u64) {
    let (mut least_apart, mut difference) = (u64::MAX, i128::MIN / 2);
    for _ in 0..CLOCK_READINGS_MAX {
        let before = clock.now();
        let Some(shown) = stamper.read() else { break };
        let apart = clock.now().since(before).0;
        if apart < least_apart {
            let middle = before.0 + apart / 2;
            (least_apart, difference) = (apart, i128::from(shown) - i128::from(middle));
        }
        if apart <= CLOCK_READINGS_APART_NS {
            break;
        }
    }
    (difference, least_apart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_from_the_future_is_held_to_now() {
        let clock = Clock::start();
        let mut offset = StampClock::default();
        let now = clock.now();
        assert_eq!(offset.bring_over(u64::MAX, now, &clock), now);
        assert_eq!(offset.bring_over(0, now, &clock), Time::ZERO);
    }

    #[test]
    fn a_stamp_taken_between_two_readings_lies_between_them() {
        let clock = Clock::start();
        let mut offset = StampClock::default();
        let early = clock.now();
        offset.bring_over(0, early, &clock);
        let before = clock.now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let after = clock.now();
        let stamp = offset.bring_over(wall.as_nanos() as u64, after, &clock);
        // The two readings of the offset are not taken at one instant: a little slack below.
        assert!(
            stamp.0 + 1_000_000 >= before.0 && stamp <= after,
            "{before:?} {stamp:?} {after:?}"
        );
        assert!(offset.error() < Nanos::from_millis(2), "{:?}", offset.error());
    }

    /// A file that is no clock.
    #[test]
    fn a_card_whose_clock_cannot_be_read_tells_nothing_but_now() {
        let clock = Clock::start();
        let file = File::open("/dev/null").expect("every system has it");
        let mut offset = StampClock::of(Stamper::Card(Arc::new(file)));
        let now = clock.now();
        assert_eq!(offset.bring_over(5, now, &clock), now);
    }
}
