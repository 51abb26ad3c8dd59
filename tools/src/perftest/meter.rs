//! Counts messages over time: the average, and the best stretch.

use super::settings::Goal;
use std::time::{Duration, Instant};

/// The best stretch is at least so many depths of messages long: completions come in bursts of
/// up to a depth, and a burst is no bandwidth.
const PEAK_DEPTHS: u64 = 8;

/// And at least this share of all messages, one in so many.
const PEAK_SHARE: u64 = 100;

/// Counts the messages of a row.
#[derive(Debug)]
pub(crate) struct Meter {
    start: Instant,
    measured: Option<(Instant, Instant)>,
    stretch: u64,
    count: u64,
    last: Instant,
    mark: Option<(Instant, u64)>,
    best: f64,
}

impl Meter {
    /// From `start` on, over `goal`; `depth` messages are under way.
    pub(crate) fn new(start: Instant, goal: Goal, depth: u32) -> Self {
        let (measured, share) = match goal {
            Goal::Messages(count) => (None, count / PEAK_SHARE),
            Goal::Span { span, margin } => (Some((start + margin, start + span - margin)), 0),
        };
        let stretch = share.max(u64::from(depth) * PEAK_DEPTHS);
        Self { start, measured, stretch, count: 0, last: start, mark: None, best: 0.0 }
    }

    /// Counts messages that were done at `now`.
    #[inline]
    pub(crate) fn add(&mut self, messages: u64, now: Instant) {
        if messages == 0 || self.measured.is_some_and(|(from, until)| now < from || now > until) {
            return;
        }
        self.count += messages;
        self.last = now;
        match self.mark {
            None => self.mark = Some((now, self.count)),
            Some((at, count)) if self.count - count >= self.stretch => {
                self.best = self.best.max(per_second(self.count - count, now - at));
                self.mark = Some((now, self.count));
            }
            Some(_) => {}
        }
    }

    /// Messages counted.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Messages per second, over all that was measured.
    pub(crate) fn average_per_second(&self) -> f64 {
        let span = match self.measured {
            Some((from, until)) => until - from,
            None => self.last - self.start,
        };
        per_second(self.count, span)
    }

    /// Messages per second of the best stretch, which may be the whole.
    pub(crate) fn peak_per_second(&self) -> f64 {
        self.best.max(self.average_per_second())
    }
}

fn per_second(messages: u64, span: Duration) -> f64 {
    if span.is_zero() { 0.0 } else { messages as f64 / span.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn the_average_is_over_all_messages_from_the_start_to_the_last() {
        let start = Instant::now();
        let mut meter = Meter::new(start, Goal::Messages(100), 1);
        meter.add(60, start + ms(20));
        meter.add(40, start + ms(50));
        meter.add(0, start + ms(900));
        assert_eq!(meter.average_per_second(), 2000.0);
        assert_eq!(meter.count(), 100);
    }

    #[test]
    fn margins_are_left_out() {
        let start = Instant::now();
        let goal = Goal::Span { span: ms(100), margin: ms(25) };
        let mut meter = Meter::new(start, goal, 1);
        for at in [10, 24, 30, 70, 76, 90] {
            meter.add(1, start + ms(at));
        }
        assert_eq!(meter.count(), 2);
        assert_eq!(meter.average_per_second(), 40.0);
    }

    #[test]
    fn the_peak_is_a_long_stretch_and_no_burst() {
        let start = Instant::now();
        let mut meter = Meter::new(start, Goal::Messages(100), 1);
        meter.add(1, start + ms(1));
        for at in 2..=9 {
            meter.add(1, start + ms(at * 10));
        }
        for at in 1..=8 {
            meter.add(1, start + ms(90 + at));
        }
        assert_eq!(meter.peak_per_second(), 1000.0, "eight messages in eight milliseconds");
        let mut burst = Meter::new(start, Goal::Messages(100), 1);
        burst.add(1, start + ms(10));
        burst.add(4, start + ms(11));
        burst.add(5, start + ms(20));
        assert_eq!(burst.peak_per_second(), 900.0, "nine in ten milliseconds, not four in one");
    }
}
