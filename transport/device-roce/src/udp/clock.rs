//! The kernel's receive clock, brought over to that of the link.

use super::limits::{CLOCK_READINGS_APART_NS, CLOCK_READINGS_MAX, CLOCK_REFRESH_NS};
use std::time::{SystemTime, UNIX_EPOCH};
use towpath_base::Time;
use towpath_clock::Clock;

/// How far the wall clock, which stamps datagrams, is ahead of the link's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WallOffset {
    wall_minus_link_ns: u64,
    refresh_at_ns: u64,
}

impl WallOffset {
    /// Brings `wall_ns` over to the link's clock; `now` bounds it, as does what a step of the
    /// wall clock can do to it.
    pub(super) fn bring_over(&mut self, wall_ns: u64, now: Time, clock: &Clock) -> Time {
        if now.0 >= self.refresh_at_ns {
            self.wall_minus_link_ns = wall_minus_link_ns(clock);
            self.refresh_at_ns = now.0.saturating_add(CLOCK_REFRESH_NS);
        }
        Time(wall_ns.saturating_sub(self.wall_minus_link_ns).min(now.0))
    }
}

/// The difference of the two clocks, read without an interruption in between.
fn wall_minus_link_ns(clock: &Clock) -> u64 {
    let (mut least_apart, mut difference) = (u64::MAX, 0);
    for _ in 0..CLOCK_READINGS_MAX {
        let before = clock.now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        let apart = clock.now().since(before).0;
        if apart < least_apart {
            (least_apart, difference) = (apart, wall.saturating_sub(before.0 + apart / 2));
        }
        if apart <= CLOCK_READINGS_APART_NS {
            break;
        }
    }
    difference
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_from_the_future_is_held_to_now() {
        let clock = Clock::start();
        let mut offset = WallOffset::default();
        let now = clock.now();
        assert_eq!(offset.bring_over(u64::MAX, now, &clock), now);
        assert_eq!(offset.bring_over(0, now, &clock), Time::ZERO);
    }

    #[test]
    fn a_stamp_taken_between_two_readings_lies_between_them() {
        let clock = Clock::start();
        let mut offset = WallOffset::default();
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
    }
}
