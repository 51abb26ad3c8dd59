//! What the monitor knows of one client.

use crate::admission::Share;
use crate::even;
use crate::limits::{LIKELY_DIVISOR, MISSED_IN_VAIN_MAX, REPORTS_MISSED_MAX};
use crate::words::Report;
use towpath_base::Nanos;

/// A client of a monitor, and the place of its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

impl Slot {
    /// An index, unique among the clients that there are.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What a monitor can say of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientReport {
    /// What it has.
    pub share: Share,
    /// What it told last in this period.
    pub last: Report,
    /// What it did in the last period that is over.
    pub done_before: u32,
    /// Periods in which it had enough to do and did not get its reservation.
    pub missed_periods: u64,
    /// Periods in a row in which it did not use its reservation: it may have reserved too much.
    pub unused_periods: u32,
    /// It does not report, and nothing is kept for it in this period.
    pub is_lost: bool,
}

/// One client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) share: Share,
    /// Tokens that this period began with.
    pub(super) reservation: u32,
    /// What the period is to bring it, and no more than that while others lack theirs.
    pub(super) goal: u32,
    /// The same, if others use no more of their reservations than in the last period.
    pub(super) expected: u32,
    /// At the end of the last period it had more to do.
    pub(super) wants_more: bool,
    pub(super) last: Report,
    /// Looks without a new report, while reports are wanted.
    silent: u32,
    /// So many are too many.
    silent_max: u32,
    has_reported: bool,
    /// In all reports of the period it was backlogged.
    was_backlogged: bool,
    /// In some look of the period it was behind.
    pub(super) was_behind: bool,
    done_before: u32,
    missed_periods: u64,
    /// Of these, those in a row in which all others kept to an even use.
    missed_in_vain: u32,
    unused_periods: u32,
    /// The last word that it wrote: the same one again is no news.
    word: u64,
}

impl Client {
    pub(super) fn new(share: Share) -> Self {
        Self {
            share,
            reservation: 0,
            goal: 0,
            expected: 0,
            wants_more: true,
            last: Report::default(),
            silent: 0,
            silent_max: REPORTS_MISSED_MAX,
            has_reported: false,
            was_backlogged: false,
            was_behind: false,
            done_before: 0,
            missed_periods: 0,
            missed_in_vain: 0,
            unused_periods: 0,
            word: 0,
        }
    }

    pub(super) fn report(&self) -> ClientReport {
        ClientReport {
            share: self.share,
            last: self.last,
            done_before: self.done_before,
            missed_periods: self.missed_periods,
            unused_periods: self.unused_periods,
            is_lost: self.is_lost(),
        }
    }

    /// A period begins, in which it reports once in so many looks.
    pub(super) fn begin(&mut self, looks: u32) {
        self.silent_max = looks.saturating_mul(REPORTS_MISSED_MAX);
        self.reservation = self.share.reservation;
        self.last = Report { residual: self.reservation, ..Report::default() };
        (self.silent, self.has_reported) = (0, false);
        (self.was_backlogged, self.was_behind) = (true, false);
    }

    /// What its word says now; none when it is of another period.
    pub(super) fn hear(&mut self, word: u64, report: Option<Report>) {
        let is_new = word != self.word || !self.has_reported;
        self.word = word;
        match report.filter(|_| is_new) {
            Some(report) => {
                (self.silent, self.has_reported) = (0, true);
                self.was_backlogged &= report.is_backlogged;
                self.last = report;
            }
            None => self.silent = self.silent.saturating_add(1),
        }
    }

    /// It does not say anything any more.
    pub(super) fn is_lost(&self) -> bool {
        self.silent > self.silent_max
    }

    /// What may still be used of its reservation.
    pub(super) fn residual(&self, passed: Nanos, period: Nanos, leases: bool) -> u32 {
        let even = self.reservation - even::used(self.reservation, passed, period);
        match (leases, self.has_reported) {
            (true, _) if self.is_lost() => 0,
            (true, false) => even,
            _ if self.is_out_of_reach() => {
                // No more than it has done of late in as long.
                let rest = Nanos(period.0 - passed.0.min(period.0));
                let likely = even::used(self.done_before, rest, period);
                let likely = likely.saturating_add(likely / LIKELY_DIVISOR);
                self.last.residual.min(self.reservation).min(likely)
            }
            _ => self.last.residual.min(self.reservation),
        }
    }

    /// It misses its reservation however the others hold back: what it waits for is its own.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.missed_in_vain >= MISSED_IN_VAIN_MAX
    }

    /// Tokens that it has taken from the pool, by what it told last: all that it has or had beyond
    /// its reservation. More, where it has given some of that up.
    pub(super) fn pooled(&self) -> u64 {
        let Report { held, residual, done, .. } = self.last;
        let all = u64::from(held) + u64::from(residual) + u64::from(done);
        all.saturating_sub(self.reservation.into())
    }

    /// How far its reservation lags an even use, when it has enough to do.
    pub(super) fn behind(&self, passed: Nanos, period: Nanos) -> u32 {
        let even = self.reservation - even::used(self.reservation, passed, period);
        // By what it has done as well: what it says of its reservation holds others up.
        let left = self.reservation.saturating_sub(self.last.done).min(self.last.residual);
        let waits = self.is_backlogged() && !self.is_out_of_reach();
        if waits { left.saturating_sub(even) } else { 0 }
    }

    /// What it did in the last period that is over.
    pub(super) fn done_before(&self) -> u32 {
        self.done_before
    }

    /// It has enough to do, whatever it waits for.
    pub(super) fn is_backlogged(&self) -> bool {
        self.has_reported && self.last.is_backlogged && !self.is_lost()
    }

    pub(super) fn is_at_server(&self) -> bool {
        self.has_reported && self.last.is_at_server && !self.is_lost()
    }

    /// It has done less than is reserved for it.
    pub(super) fn is_short(&self, slack: u32) -> bool {
        self.last.done.saturating_add(slack) < self.reservation
    }

    /// What it has done less than was expected.
    pub(super) fn lacks(&self) -> u32 {
        self.expected.saturating_sub(self.last.done)
    }

    /// A period is over.
    pub(super) fn end(&mut self, slack: u32, was_careful: bool) {
        self.done_before = self.last.done;
        // Of one that has said nothing nothing is known.
        self.wants_more = !self.has_reported || self.is_backlogged();
        let is_short = self.is_short(slack);
        let was_backlogged = self.has_reported && self.was_backlogged;
        self.missed_periods += u64::from(is_short && was_backlogged);
        self.unused_periods = if is_short && !was_backlogged { self.unused_periods + 1 } else { 0 };
        self.missed_in_vain = match is_short && was_backlogged {
            true => self.missed_in_vain + u32::from(was_careful),
            false => 0,
        };
    }
}
