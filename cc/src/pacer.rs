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
/// afterwards: a chunk cannot be cut, so one larger than the bucket must go, too. What the
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
    pub fn ready_at(&self, now: Time, bytes: u64, rate: Option<Rate>) -> Time {
        let Some(rate) = rate else { return now };
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
    pub fn on_sent(&mut self, now: Time, bytes: u64, rate: Option<Rate>) {
        self.credit_units = match rate {
            Some(rate) => self.credit_at(now, rate).saturating_sub(units(bytes)),
            None => 0,
        };
        self.updated = self.updated.max(now);
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
