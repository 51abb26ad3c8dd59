//! A monotonic clock that is cheap to read: [`Clock::now`] gives nanoseconds since its start.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::hint::cold_path;
use std::sync::OnceLock;
use std::time::Instant;
use towpath_base::Time;

/// The file in which Linux names the clock source that it uses.
const SYSTEM_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Monotonic nanoseconds since the start of the clock. It reads the processor's counter where the
/// operating system itself uses that counter, which takes half the time of a system clock call;
/// elsewhere it uses the system clock.
///
/// ```
/// let clock = towpath_clock::Clock::start();
/// let before = clock.now();
/// assert!(clock.now() >= before);
/// ```
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Counter(quanta::Clock, Cell<Reading>),
    System(Instant),
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The counter when `passed_ns` had passed.
    from: u64,
    passed_ns: u64,
    last: u64,
}

impl Clock {
    /// Starts a clock at zero. The first call in a process takes some milliseconds to measure the
    /// counter's rate.
    #[must_use]
    pub fn start() -> Self {
        if !counter_is_trusted() {
            return Self { source: Source::System(Instant::now()) };
        }
        let counter = quanta::Clock::new();
        let raw = counter.raw();
        let reading = Cell::new(Reading { from: raw, passed_ns: 0, last: raw });
        Self { source: Source::Counter(counter, reading) }
    }

    /// The time since the start.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Time {
        match &self.source {
            Source::Counter(counter, reading) => {
                let raw = counter.raw();
                let now = reading.get().at(raw, |from, to| counter.delta_as_nanos(from, to));
                reading.set(now);
                Time(now.passed_ns + counter.delta_as_nanos(now.from, raw))
            }
            Source::System(start) => {
                cold_path();
                Time(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
        }
    }
}

impl Reading {
    /// The next one. A counter that begins anew, as after a suspension, goes on from what had
    /// passed.
    #[inline]
    fn at(self, raw: u64, nanos: impl Fn(u64, u64) -> u64) -> Self {
        if raw >= self.last {
            return Self { last: raw, ..self };
        }
        cold_path();
        let passed_ns = self.passed_ns + nanos(self.from, self.last);
        Self { from: raw, passed_ns, last: raw }
    }
}

/// Whether the system goes by the processor's counter, which it stops doing when that is found to
/// go astray. Elsewhere than on x86 of Linux what the processor says of it is believed.
fn counter_is_trusted() -> bool {
    static TRUSTED: OnceLock<bool> = OnceLock::new();
    *TRUSTED.get_or_init(|| {
        !cfg!(target_arch = "x86_64")
            || std::fs::read_to_string(SYSTEM_SOURCE).is_ok_and(|source| source.trim() == "tsc")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_begins_anew_goes_on_from_what_had_passed() {
        let nanos = |from, to| 10 * (to - from);
        let time = |reading: Reading| reading.passed_ns + nanos(reading.from, reading.last);
        let mut reading = Reading { from: 1_000, passed_ns: 0, last: 1_000 };
        let mut times = [0; 4];
        for (raw, time_ns) in [1_500, 3, 4, 2].into_iter().zip(&mut times) {
            reading = reading.at(raw, nanos);
            *time_ns = time(reading);
        }
        assert_eq!(times, [5_000, 5_000, 5_010, 5_010]);
    }

    #[test]
    fn it_goes_as_fast_as_that_of_the_system() {
        let clock = Clock::start();
        // Ours begins first and ends last, so who takes the processor away only makes it longer.
        let (before, start) = (clock.now(), Instant::now());
        while start.elapsed().as_millis() < 20 {}
        let (span, own) = (start.elapsed().as_nanos() as f64, clock.now().since(before).0 as f64);
        assert!(own > 0.9 * span, "{own} of {span}");
    }
}
