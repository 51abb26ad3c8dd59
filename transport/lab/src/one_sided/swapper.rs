//! The rules of swaps: those that were carried out make one chain from the first value to the last.

use super::broken::Broken;
use std::collections::{BTreeMap, BTreeSet};

/// Bits of a value that say which client put it there.
const CLIENT_BITS: u32 = 8;

/// What a client would put in the place of a value: so no value is ever there twice.
pub(super) fn next_of(value: u64, client: usize) -> u64 {
    ((value >> CLIENT_BITS) + 1) << CLIENT_BITS | client as u64
}

/// All swaps of all clients.
#[derive(Default)]
pub(super) struct Swaps {
    /// By what they put there: what was there before, of those that were carried out, and of those
    /// of which that is not known.
    sure: BTreeMap<u64, u64>,
    perhaps: BTreeMap<u64, u64>,
    seen: BTreeSet<u64>,
}

impl Swaps {
    /// How many were carried out and found what they wanted.
    pub(super) fn done(&self) -> u64 {
        self.sure.len() as u64
    }

    /// One was carried out, and found `was`.
    pub(super) fn on_executed(
        &mut self,
        (compare, swap): (u64, u64),
        was: u64,
    ) -> Result<(), Broken> {
        self.seen.insert(was);
        if was == compare && self.sure.insert(swap, compare).is_some() {
            return Err(Broken::Swaps { what: "a second swap", value: swap });
        }
        Ok(())
    }

    /// It is not known whether one was carried out.
    pub(super) fn on_unknown(&mut self, (compare, swap): (u64, u64)) {
        self.perhaps.insert(swap, compare);
    }

    /// What must hold when all is over.
    pub(super) fn check(&self, last: u64) -> Result<(), Broken> {
        let (mut value, mut chain) = (last, BTreeSet::from([0]));
        while value != 0 {
            chain.insert(value);
            let before = self.sure.get(&value).or_else(|| self.perhaps.get(&value));
            value = *before.ok_or(Broken::Swaps { what: "nobody is the author", value })?;
        }
        let mut outside = self.sure.keys().chain(&self.seen).filter(|&at| !chain.contains(at));
        match outside.next() {
            Some(&value) => Err(Broken::Swaps { what: "no place in the chain", value }),
            None => Ok(()),
        }
    }
}
