//! The pacer: when the next send may leave, as a token bucket in bytes.

use towpath_base::{Nanos, Time};

use crate::Rate;
use crate::limits::{BURST_BYTES_MIN, PACER_LATE_MAX};

/// Units in a byte. A rate in bytes per second times a span in nanoseconds is then a whole
/// number of units, so that nothing is rounded and nothing drifts.
const UNITS_PER_BYTE: i128 = 1_000_000_000;

/// A token bucket that may go into debt.
///
/// A send may leave as soon as the bucket is not in debt, whatever its size, and is paid for
/// afterwards: a chunk leaves whole, so one larger than the bucket must go, too. What the
/// bucket saves up while the sender is late or idle is bounded twice: by the burst, and by what
/// the rate gives in [`PACER_LATE_MAX`]. So in any span the bytes sent are at most those of the
/// rate, plus the burst, plus one send; and a sender far below one chunk per round trip never has
/// more than its one chunk in a buffer that thousands share.
///
/// The burst should be what one offloaded send holds
/// ([`OFFLOADED_SEND_BYTES`](crate::limits::OFFLOADED_SEND_BYTES)): with less, a sender that
/// comes late by the length of one send falls behind its rate; with more, several offloaded
/// sends reach one switch buffer back to back, which is what pacing is there to prevent.
///
/// Both calls take the rate of the moment. Time since the last send counts at that rate, so a
/// change needs no call of its own, and a debt is paid off at the new rate.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// What may still be sent; negative while in debt. As of `updated`.
    credit_units: i128,
    updated: Time,
    burst_units: i128,
}

impl Pacer {
    /// A pacer that saves up at most `burst_bytes` (at least [`BURST_BYTES_MIN`]) and has saved
    /// nothing at `now`.
    #[must_use]
    pub fn new(now: Time, burst_bytes: u64) -> Self {
        Self { credit_units: 0, updated: now, burst_units: units(burst_bytes.max(BURST_BYTES_MIN)) }
    }

    /// The earliest time, not before `now`, at which `bytes` may be sent at `rate`: `now` where
    /// the sender is not paced or `bytes` is zero, and [`Time::NEVER`] where a rate of zero will
    /// not pay the debt. The answer does not depend on the size of the send beyond that.
    #[must_use]
    #[inline]
    pub fn ready_at(&self, now: Time, bytes: u64, rate: Option<Rate>) -> Time {
        rate.map_or(now, |rate| self.ready_at_rate(now, bytes, rate))
    }

    #[inline(never)]
    fn ready_at_rate(&self, now: Time, bytes: u64, rate: Rate) -> Time {
        let credit = self.credit_at(now, rate);
        if credit >= 0 || bytes == 0 {
            return now;
        }
        match u128::from(rate.0) {
            0 => Time::NEVER,
            rate => {
                let wait = credit.unsigned_abs().div_ceil(rate);
                now + Nanos(u64::try_from(wait).unwrap_or(u64::MAX))
            }
        }
    }

    /// Takes in that `bytes` left at `now`, whether or not the pacer was ready for them. A send
    /// that is not paced clears the account.
    #[inline]
    pub fn on_sent(&mut self, now: Time, bytes: u64, rate: Option<Rate>) {
        self.credit_units = match rate {
            Some(rate) => self.credit_after(now, bytes, rate),
            None => 0,
        };
        self.updated = self.updated.max(now);
    }

    #[inline(never)]
    fn credit_after(&self, now: Time, bytes: u64, rate: Rate) -> i128 {
        self.credit_at(now, rate).saturating_sub(units(bytes))
    }

    fn credit_at(&self, now: Time, rate: Rate) -> i128 {
        let late_units = gained(rate, PACER_LATE_MAX);
        let saved_max = self.burst_units.min(late_units);
        self.credit_units.saturating_add(gained(rate, now.since(self.updated))).min(saved_max)
    }
}

fn units(bytes: u64) -> i128 {
    i128::from(bytes) * UNITS_PER_BYTE
}

fn gained(rate: Rate, span: Nanos) -> i128 {
    i128::from(rate.0).saturating_mul(i128::from(span.0))
}

#[cfg(test)]
mod tests {
    use towpath_base::Prng;

    use super::*;
    use crate::limits::OFFLOADED_SEND_BYTES;

    const SEEDS: u64 = 300;
    const SENDS: usize = 2_000;

    /// Any rate from a trickle to 1 Tb/s, evenly over the magnitudes.
    fn any_rate(prng: &mut Prng) -> Rate {
        Rate((125_000_000_000 >> prng.below(30)) + prng.below(1_000))
    }

    /// Asserts that `sent` bytes by `now` are those of `rate`, give or take `slack` bytes.
    fn assert_at_rate(sent: u64, now: Time, rate: Rate, slack: u64, seed: u64) {
        let off = units(sent) - gained(rate, now.since(Time::ZERO));
        assert!(
            off.abs() <= units(slack),
            "seed {seed}: {sent} bytes by {now:?} at {rate} are off by {off} units"
        );
    }

    #[test]
    fn the_long_run_rate_is_exact_within_a_chunk_though_sends_come_late() {
        for seed in 0..SEEDS {
            let mut prng = Prng::new(seed);
            let rate = any_rate(&mut prng);
            let chunk = prng.between(64, OFFLOADED_SEND_BYTES);
            // Two nanoseconds less than can be made up for, because both bounds were rounded up.
            let late_max = rate.time_for(OFFLOADED_SEND_BYTES).min(PACER_LATE_MAX) - Nanos(2);
            let mut pacer = Pacer::new(Time::ZERO, OFFLOADED_SEND_BYTES);
            let (mut now, mut sent) = (Time::ZERO, 0);
            for _ in 0..SENDS {
                let ready = pacer.ready_at(now, chunk, Some(rate));
                if ready > now {
                    assert_at_rate(sent, ready, rate, chunk, seed);
                    now = ready + Nanos(prng.below(late_max.0));
                }
                pacer.on_sent(now, chunk, Some(rate));
                sent += chunk;
            }
        }
    }

    #[test]
    fn without_lateness_the_long_run_is_exact_to_the_nanosecond() {
        for seed in 0..SEEDS {
            let mut prng = Prng::new(seed);
            let rate = any_rate(&mut prng);
            let mut pacer = Pacer::new(Time::ZERO, OFFLOADED_SEND_BYTES);
            let (mut now, mut sent) = (Time::ZERO, 0);
            for _ in 0..SENDS {
                let chunk = prng.between(64, 1 << 20);
                pacer.on_sent(now, chunk, Some(rate));
                sent += chunk;
                now = pacer.ready_at(now, chunk, Some(rate));
            }
            assert_eq!(now.since(Time::ZERO), rate.time_for(sent), "seed {seed}");
        }
    }

    #[test]
    fn a_window_below_one_chunk_is_one_chunk_in_many_round_trips_even_after_idling() {
        for seed in 0..SEEDS {
            let mut prng = Prng::new(seed);
            let chunk = prng.between(1_024, OFFLOADED_SEND_BYTES);
            let rtt = Nanos(prng.between(10_000, 200_000));
            let window = (chunk * prng.between(1, 250) / 1_000).max(1);
            let rate = Rate::from_bytes_per(window, rtt);
            let mut pacer = Pacer::new(Time::ZERO, OFFLOADED_SEND_BYTES);
            let (mut now, mut sent) = (Time::ZERO, 0);
            for _ in 0..100 {
                pacer.on_sent(now, chunk, Some(rate));
                sent += chunk;
                // Nothing else may leave until the chunk's ack is back.
                now = pacer.ready_at(now + rtt, chunk, Some(rate));
            }
            assert_at_rate(sent, now, rate, chunk, seed);
            now += Nanos::from_secs(1);
            assert_eq!(pacer.ready_at(now, chunk, Some(rate)), now);
            pacer.on_sent(now, chunk, Some(rate));
            let gap = pacer.ready_at(now, chunk, Some(rate)).since(now);
            assert!(gap + PACER_LATE_MAX >= rate.time_for(chunk), "seed {seed}: {gap}");
        }
    }

    #[test]
    fn after_idling_at_most_a_burst_and_one_send_leave_at_once() {
        for seed in 0..SEEDS {
            let mut prng = Prng::new(seed);
            let rate = Some(any_rate(&mut prng));
            let chunk = prng.between(64, OFFLOADED_SEND_BYTES);
            let mut pacer = Pacer::new(Time::ZERO, OFFLOADED_SEND_BYTES);
            let now = Time(prng.next_u64() >> 1);
            let mut sent = 0;
            while pacer.ready_at(now, chunk, rate) == now {
                pacer.on_sent(now, chunk, rate);
                sent += chunk;
            }
            assert!(sent <= OFFLOADED_SEND_BYTES + chunk, "seed {seed}: {sent}");
        }
    }

    #[test]
    fn a_fresh_pacer_lets_one_chunk_go_and_then_paces() {
        let rate = Some(Rate(1_000_000));
        let start = Time(5_000_000_000);
        let mut pacer = Pacer::new(start, OFFLOADED_SEND_BYTES);
        assert_eq!(pacer.ready_at(start, 4_096, rate), start);
        pacer.on_sent(start, 4_096, rate);
        assert_eq!(pacer.ready_at(start, 4_096, rate), start + Nanos(4_096_000));
    }

    #[test]
    fn a_debt_is_paid_at_the_rate_of_the_moment() {
        let slow = Some(Rate(1_000));
        let mut pacer = Pacer::new(Time::ZERO, OFFLOADED_SEND_BYTES);
        pacer.on_sent(Time::ZERO, 4_000, slow);
        assert_eq!(pacer.ready_at(Time::ZERO, 1, slow), Time::ZERO + Nanos::from_secs(4));
        let fast = Some(Rate(4_000_000));
        assert_eq!(pacer.ready_at(Time::ZERO, 1, fast), Time::ZERO + Nanos::from_millis(1));
        assert_eq!(pacer.ready_at(Time::ZERO, 1, Some(Rate(0))), Time::NEVER);
    }

    #[test]
    fn under_changing_rates_the_bytes_stay_between_the_slowest_and_the_fastest() {
        for seed in 0..SEEDS {
            let mut prng = Prng::new(seed);
            let (slow, fast) = (Rate::from_gbps(1), Rate::from_gbps(25));
            let chunk = prng.between(64, OFFLOADED_SEND_BYTES);
            let mut pacer = Pacer::new(Time::ZERO, OFFLOADED_SEND_BYTES);
            let (mut now, mut sent) = (Time::ZERO, 0);
            for _ in 0..SENDS {
                let rate = Rate(prng.between(slow.0, fast.0));
                now = pacer.ready_at(now, chunk, Some(rate));
                pacer.on_sent(now, chunk, Some(rate));
                sent += chunk;
            }
            let span = now.since(Time::ZERO);
            assert!(units(sent) <= gained(fast, span) + units(chunk), "seed {seed}");
            assert!(units(sent) >= gained(slow, span), "seed {seed}");
        }
    }

    #[test]
    fn a_sender_that_is_not_paced_is_always_ready_and_owes_nothing_later() {
        let mut pacer = Pacer::new(Time::ZERO, OFFLOADED_SEND_BYTES);
        pacer.on_sent(Time::ZERO, 1 << 40, Some(Rate(1)));
        assert_eq!(pacer.ready_at(Time(1), 1 << 40, None), Time(1));
        assert_eq!(pacer.ready_at(Time(1), 0, Some(Rate(1))), Time(1));
        pacer.on_sent(Time(1), 1 << 40, None);
        assert_eq!(pacer.ready_at(Time(1), 1, Some(Rate(1))), Time(1));
    }

    #[test]
    fn a_time_in_the_past_gives_no_credit_twice() {
        let rate = Some(Rate(1_000_000_000));
        let mut pacer = Pacer::new(Time::ZERO, OFFLOADED_SEND_BYTES);
        pacer.on_sent(Time(1_000), 10_000, rate);
        pacer.on_sent(Time(0), 1_000, rate);
        assert_eq!(pacer.ready_at(Time(1_000), 1, rate), Time(11_000));
    }

    #[test]
    fn the_ends_of_every_range_neither_overflow_nor_panic() {
        let ends = [0, 1, u64::MAX - 1, u64::MAX];
        for seed in 0..SEEDS {
            let mut prng = Prng::new(seed);
            let mut end = || ends[prng.below(4) as usize];
            let mut pacer = Pacer::new(Time(end()), end());
            for _ in 0..50 {
                let (now, bytes, rate) = (Time(end()), end(), Some(Rate(end())));
                assert!(pacer.ready_at(now, bytes, rate) >= now);
                pacer.on_sent(now, bytes, rate);
            }
        }
    }
}
