//! To which account each slot of a pool is charged, and how many slots each account has.

use crate::sync::AtomicU32;
use std::sync::atomic::Ordering;

/// No account.
const NONE: u32 = u32::MAX;

/// The accounts of a pool. A slot is charged and settled by whoever owns it, so that `account_of`
/// needs no order of its own: the stack of free slots hands it from one owner to the next.
pub(crate) struct Accounts {
    account_of: Box<[AtomicU32]>,
    held: Box<[AtomicU32]>,
}

impl Accounts {
    pub(crate) fn new(slots: usize, accounts: usize) -> Self {
        let all = |count, value| (0..count).map(|_| AtomicU32::new(value)).collect();
        Self { account_of: all(slots, NONE), held: all(accounts, 0) }
    }

    /// Charges a slot that was just taken; does nothing where there is no such account.
    pub(crate) fn charge(&self, slot: u32, account: usize) {
        if let Some(held) = self.held.get(account) {
            self.account_of[slot as usize].store(account as u32, Ordering::Relaxed);
            held.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A slot goes back to the pool.
    pub(crate) fn settle(&self, slot: u32) {
        let account_of = &self.account_of[slot as usize];
        let account = account_of.load(Ordering::Relaxed);
        if account != NONE {
            account_of.store(NONE, Ordering::Relaxed);
            self.held[account as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn held(&self, account: usize) -> usize {
        self.held.get(account).map_or(0, |held| held.load(Ordering::Relaxed) as usize)
    }

    /// The account with the most slots, and how many; none where no account has any.
    pub(crate) fn most(&self) -> Option<(usize, usize)> {
        let all = (0..self.held.len()).map(|account| (account, self.held(account)));
        all.filter(|&(_, held)| held > 0).max_by_key(|&(account, held)| (held, !account))
    }
}
