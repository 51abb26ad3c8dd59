//! An even use of a number of tokens over a period.

use crate::limits::GUARD_TICKS;
use towpath_base::Nanos;

/// How long reservations have in careful periods: some ticks less than the period, so that what is
/// under way at its end is done by then.
#[must_use]
pub(crate) fn careful(period: Nanos, tick: Nanos) -> Nanos {
    // Of few ticks they would be so much of a period that large reservations are always late.
    let guard = tick.saturating_mul(GUARD_TICKS).min(Nanos(period.0 / 32));
    Nanos(period.0 - guard.0)
}

/// How many of `tokens` an even use has used when `passed` of the `period` is over, rounded down.
#[must_use]
pub(crate) fn used(tokens: u32, passed: Nanos, period: Nanos) -> u32 {
    let passed = passed.0.min(period.0);
    (u128::from(tokens) * u128::from(passed) / u128::from(period.0.max(1))) as u32
}

/// When an even use has used so many of them: counted from the start of the period.
#[must_use]
pub(crate) fn when(tokens: u32, used: u32, period: Nanos) -> Nanos {
    let span = u128::from(period.0) * u128::from(used);
    Nanos(u64::try_from(span.div_ceil(u128::from(tokens.max(1)))).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_use_is_what_its_time_says() {
        let period = Nanos::from_secs(1);
        for tokens in [1, 7, 80_000, u32::MAX] {
            assert_eq!(used(tokens, Nanos::ZERO, period), 0);
            assert_eq!(used(tokens, Nanos::from_secs(5), period), tokens);
            for count in [1, tokens / 2, tokens] {
                let at = when(tokens, count, period);
                assert!(used(tokens, at, period) >= count);
                assert!(
                    count == 0
                        || used(tokens, Nanos(at.0.saturating_sub(1)), period) < count
                        || tokens == u32::MAX
                );
            }
        }
    }
}
