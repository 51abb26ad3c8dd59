//! The rules of what one client writes: the latest write wins, and none comes back.

use super::area;
use super::broken::Broken;
use std::collections::BTreeSet;

/// What one client writes to one place, as numbers from 1 in the order of asking; 0 is what was
/// there before.
#[derive(Debug, Default)]
pub(super) struct Register {
    asked: u64,
    /// The latest that was reported as carried out.
    sure: u64,
    /// Reported as not carried out.
    not: BTreeSet<u64>,
    seen: BTreeSet<u64>,
}

impl Register {
    /// The number of the next write.
    pub(super) fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// What whoever looks from now on finds at least.
    pub(super) fn sure(&self) -> u64 {
        self.sure
    }

    pub(super) fn on_executed(&mut self, number: u64) {
        self.sure = self.sure.max(number);
    }

    pub(super) fn on_not_executed(&mut self, writer: usize, number: u64) -> Result<(), Broken> {
        self.not.insert(number);
        if self.seen.contains(&number) { Err(Broken::Ghost { writer, number }) } else { Ok(()) }
    }

    /// A write was found there by one who began to look when `low` was sure.
    pub(super) fn on_seen(&mut self, writer: usize, number: u64, low: u64) -> Result<(), Broken> {
        self.seen.insert(number);
        let high = self.asked;
        if !(low..=high).contains(&number) {
            return Err(Broken::Age { writer, found: number, low, high });
        }
        if self.not.contains(&number) { Err(Broken::Ghost { writer, number }) } else { Ok(()) }
    }
}

/// What one client writes: its word and its block.
#[derive(Debug, Default)]
pub(super) struct Registers {
    pub(super) word: Register,
    pub(super) block: Register,
}

impl Registers {
    /// What is sure of both.
    pub(super) fn sure(&self) -> (u64, u64) {
        (self.word.sure(), self.block.sure())
    }

    /// The whole area was found like this by one who began to look when `low` was sure.
    pub(super) fn on_seen(
        &mut self,
        writer: usize,
        bytes: &[u8],
        low: (u64, u64),
    ) -> Result<(), Broken> {
        let word = area::words(bytes).next().unwrap_or(u64::MAX);
        self.word.on_seen(writer, word, low.0)?;
        let mut last = None;
        for number in area::numbers(&bytes[area::BLOCK..]) {
            let number = number.map_err(|(place, word)| Broken::Torn { writer, place, word })?;
            if last.replace(number) != Some(number) {
                self.block.on_seen(writer, number, low.1)?;
            }
        }
        Ok(())
    }
}
