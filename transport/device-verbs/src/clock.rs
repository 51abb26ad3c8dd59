//! The device's clock, told as ours.

use towpath_base::Time;

/// What a device's clock counts, and one moment on both clocks.
///
/// Completions carry ticks that wrap. The rate is the driver's word; what it is off by (crystals
/// differ by some 50 parts in a million) is made good by setting the moment anew every
/// `CLOCK_POLL_NS`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The bits that count.
    mask: u64,
    khz: u64,
    ticks: u64,
    time: Time,
}

impl Clock {
    /// None when the driver names no bits or no rate.
    pub(crate) fn new(mask: u64, khz: u64, ticks: u64, time: Time) -> Option<Self> {
        let is_whole = mask.count_ones() == mask.trailing_ones();
        (mask != 0 && is_whole && khz != 0).then_some(Self { mask, khz, ticks, time })
    }

    /// From here on counts from this moment.
    pub(crate) fn set(&mut self, ticks: u64, time: Time) {
        (self.ticks, self.time) = (ticks, time);
    }

    /// When it was `ticks`: the moment nearest to the one that was set.
    pub(crate) fn time(&self, ticks: u64) -> Time {
        let ahead = ticks.wrapping_sub(self.ticks) & self.mask;
        let behind = self.ticks.wrapping_sub(ticks) & self.mask;
        let ns = |ticks: u64| {
            let ns = u128::from(ticks) * 1_000_000 / u128::from(self.khz);
            u64::try_from(ns).unwrap_or(u64::MAX)
        };
        if ahead <= behind {
            Time(self.time.0.saturating_add(ns(ahead)))
        } else {
            Time(self.time.0.saturating_sub(ns(behind)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_before_and_after_the_moment_are_told_by_the_rate() {
        let clock = Clock::new(u64::MAX, 156_250, 1_000_000, Time(5_000_000)).unwrap();
        assert_eq!(clock.time(1_000_000), Time(5_000_000));
        assert_eq!(clock.time(1_000_000 + 156_250), Time(6_000_000));
        assert_eq!(clock.time(1_000_000 - 156_250), Time(4_000_000));
    }

    #[test]
    fn a_clock_of_few_bits_wraps_between_the_moment_and_the_completion() {
        let mut clock = Clock::new(0xffff, 1_000_000, 0xfff0, Time(1_000)).unwrap();
        assert_eq!(clock.time(0x0010), Time(1_032));
        clock.set(0x0010, Time(1_032));
        assert_eq!(clock.time(0xfff0), Time(1_000));
        assert_eq!(clock.time(0xabcd_0010), Time(1_032), "bits that do not count");
    }

    #[test]
    fn a_driver_without_a_clock_has_none() {
        assert!(Clock::new(0, 1_000, 0, Time::ZERO).is_none());
        assert!(Clock::new(u64::MAX, 0, 0, Time::ZERO).is_none());
        assert!(Clock::new(0xff00, 1_000, 0, Time::ZERO).is_none());
    }
}
