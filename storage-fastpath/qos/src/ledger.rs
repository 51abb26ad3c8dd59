//! What each client really did, as the server counts it: the truth beside what clients report.

use crate::monitor::Slot;
use crate::words::Epoch;
use alloc::vec::Vec;

/// What a client did in a period, by the server's own count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Tokens' worth of I/O in this period.
    pub charged: u64,
    /// And in all.
    pub charged_ever: u64,
    /// Tokens' worth beyond what the client may use, in all.
    pub overrun_ever: u64,
    /// Periods in which it did more than it may.
    pub overrun_periods: u64,
    /// Periods in which it reported less, or more, than it did.
    pub misreports: u64,
}

/// Whether a client may do what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has tokens for it.
    Within,
    /// It has not: so many tokens' worth are beyond.
    Overrun {
        /// How many.
        by: u64,
    },
}

/// The ledger of one server.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    epoch: Epoch,
    entries: Vec<Account>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    entry: Entry,
    /// Tokens that the client may use in this period, as far as is known now, and at most.
    may_use: u64,
    at_most: u64,
    is_over: bool,
}

impl Ledger {
    /// A period begins: `may_use` says what a client may use at most, which is its reservation and
    /// what the pool had, or its limit.
    pub fn begin(&mut self, epoch: Epoch, clients: usize, may_use: impl Fn(Slot) -> u64) {
        self.epoch = epoch;
        self.entries.resize(clients.max(self.entries.len()), Account::default());
        for (place, account) in self.entries.iter_mut().enumerate() {
            account.may_use = may_use(Slot(place as u16));
            account.at_most = u64::MAX;
            (account.entry.charged, account.is_over) = (0, false);
        }
    }

    /// A client does I/O of so many tokens' worth.
    pub fn charge(&mut self, slot: Slot, cost: u32) -> Verdict {
        if cost == 0 {
            return Verdict::Within;
        }
        let Some(account) = self.entries.get_mut(slot.index()) else {
            return Verdict::Overrun { by: cost.into() };
        };
        account.entry.charged += u64::from(cost);
        account.entry.charged_ever += u64::from(cost);
        let by = account.entry.charged.saturating_sub(account.may_use).min(cost.into());
        if by == 0 {
            return Verdict::Within;
        }
        account.entry.overrun_ever += by;
        account.entry.overrun_periods += u64::from(!core::mem::replace(&mut account.is_over, true));
        Verdict::Overrun { by }
    }

    /// A client may use so many tokens more in this period: it took them from the pool.
    pub fn allow(&mut self, slot: Slot, tokens: u64) {
        let account = self.account(slot);
        account.may_use = account.may_use.saturating_add(tokens).min(account.at_most);
    }

    /// A client may use so many tokens in this period at most, whatever it takes from the pool.
    pub fn cap(&mut self, slot: Slot, tokens: u64) {
        let account = self.account(slot);
        account.at_most = tokens;
        account.may_use = account.may_use.min(tokens);
    }

    /// A client may use so many tokens in this period, whatever was said before.
    pub fn limit(&mut self, slot: Slot, tokens: u64) {
        self.account(slot).may_use = tokens;
    }

    /// Another client has the slot from now on.
    pub fn clear(&mut self, slot: Slot) {
        *self.account(slot) = Account::default();
    }

    fn account(&mut self, slot: Slot) -> &mut Account {
        if self.entries.len() <= slot.index() {
            self.entries.resize(slot.index() + 1, Account::default());
        }
        &mut self.entries[slot.index()]
    }

    /// As [`charge`](Self::charge), of an I/O that is not done unless there are tokens for all of
    /// it: otherwise nothing is charged, and the period counts as one with an overrun.
    pub fn charge_if_within(&mut self, slot: Slot, cost: u32) -> Verdict {
        let Some(account) = self.entries.get_mut(slot.index()) else {
            return Verdict::Overrun { by: cost.into() };
        };
        let after = account.entry.charged + u64::from(cost);
        if after <= account.may_use {
            return self.charge(slot, cost);
        }
        account.entry.overrun_periods += u64::from(!core::mem::replace(&mut account.is_over, true));
        Verdict::Overrun { by: after - account.may_use }
    }

    /// A client says that it did so much in the period that ends: it counts as a misreport when
    /// that differs by more than `slack`.
    pub fn compare(&mut self, slot: Slot, reported: u64, slack: u64) -> bool {
        let Some(account) = self.entries.get_mut(slot.index()) else { return false };
        let is_wrong = account.entry.charged.abs_diff(reported) > slack;
        account.entry.misreports += u64::from(is_wrong);
        !is_wrong
    }

    /// What a client did.
    #[must_use]
    pub fn entry(&self, slot: Slot) -> Option<Entry> {
        self.entries.get(slot.index()).map(|account| account.entry)
    }

    /// Which period it counts.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_is_counted_once_and_by_name() {
        let mut ledger = Ledger::default();
        ledger.begin(Epoch(1), 2, |slot| if slot.0 == 0 { 10 } else { 100 });
        assert_eq!(ledger.charge(Slot(0), 8), Verdict::Within);
        assert_eq!(ledger.charge(Slot(0), 4), Verdict::Overrun { by: 2 });
        assert_eq!(ledger.charge(Slot(0), 4), Verdict::Overrun { by: 4 });
        assert_eq!(ledger.charge(Slot(1), 100), Verdict::Within);
        assert!(ledger.compare(Slot(1), 99, 1) && !ledger.compare(Slot(0), 10, 1));
        let entry = ledger.entry(Slot(0)).expect("it is known");
        assert_eq!((entry.charged, entry.overrun_ever, entry.overrun_periods), (16, 6, 1));
        assert_eq!(entry.misreports, 1);
        assert_eq!(ledger.charge(Slot(9), 3), Verdict::Overrun { by: 3 }, "nobody knows it");
        assert_eq!(ledger.charge(Slot(9), 0), Verdict::Within);
        ledger.limit(Slot(9), 5);
        assert_eq!(ledger.charge(Slot(9), 3), Verdict::Within, "it came within the period");
        ledger.clear(Slot(9));
        assert_eq!(ledger.entry(Slot(9)), Some(Entry::default()));
        ledger.begin(Epoch(2), 2, |_| 10);
        assert_eq!(ledger.charge(Slot(0), 10), Verdict::Within);
        let refused = Verdict::Overrun { by: 3 };
        assert_eq!([(); 2].map(|()| ledger.charge_if_within(Slot(0), 3)), [refused; 2]);
        let periods = |ledger: &Ledger| ledger.entry(Slot(0)).map(|entry| entry.overrun_periods);
        assert_eq!(periods(&ledger), Some(2), "once for each period");
        ledger.allow(Slot(0), 3);
        assert_eq!(ledger.charge_if_within(Slot(0), 3), Verdict::Within);
        ledger.cap(Slot(0), 15);
        ledger.allow(Slot(0), 100);
        assert_eq!(ledger.charge_if_within(Slot(0), 3), Verdict::Overrun { by: 1 }, "its limit");
        assert_eq!(ledger.entry(Slot(0)).map(|entry| entry.charged_ever), Some(29));
    }
}
