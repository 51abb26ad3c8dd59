//! The words of the token protocol in memory that clients reach one-sided.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use towpath_qos::{Epoch, PoolWord, Slot, Words};
use towpath_transport::{MemoryError, SharedMemory};

/// Bytes of a word.
const WORD_BYTES: usize = 8;

/// Where the words of clients begin: in a cache line apart from the pool's, which all add to.
const REPORTS_AT: usize = 64;

/// The pool's word, which clients reach by FETCH_ADD, and a word of each client, which it writes.
///
/// The words are ordinary atomics of the processor: in memory that a device of this process serves
/// they are atomic towards those of peers.
#[derive(Debug)]
pub struct WordTable {
    memory: SharedMemory,
    clients: usize,
}

impl WordTable {
    /// For so many clients.
    ///
    /// # Errors
    /// [`MemoryError`]: there is no memory.
    pub fn new(clients: usize) -> Result<Self, MemoryError> {
        let memory = SharedMemory::new(REPORTS_AT + clients * WORD_BYTES)?;
        let mut table = Self { memory, clients };
        // A word of zeros is a debt: no tokens are in the pool before the first period.
        table.overwrite_pool(PoolWord { epoch: Epoch(0), tokens: 0 }.pack());
        Ok(table)
    }

    /// The memory, to grant parts of it.
    #[must_use]
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Where the pool's word is: clients have the right of atomics there.
    #[must_use]
    pub fn pool_range(&self) -> Range<usize> {
        0..WORD_BYTES
    }

    /// Where the word of a client is: it alone has the right to write there. `None` for a slot
    /// beyond those that there is room for.
    #[must_use]
    pub fn report_range(&self, slot: Slot) -> Option<Range<usize>> {
        let at = REPORTS_AT + slot.index() * WORD_BYTES;
        (slot.index() < self.clients).then_some(at..at + WORD_BYTES)
    }

    /// Adds to the pool's word, as a client does by FETCH_ADD, and gives what it was.
    pub fn fetch_add(&self, operand: u64) -> u64 {
        self.pool_word().map_or(0, |word| word.fetch_add(operand, AcqRel))
    }

    /// Writes the word of a client, as the client does.
    pub fn write_report(&self, slot: Slot, word: u64) {
        if let Some(at) = self.report_word(slot) {
            at.store(word, Release);
        }
    }

    fn pool_word(&self) -> Option<&AtomicU64> {
        self.memory.word(0).ok()
    }

    fn report_word(&self, slot: Slot) -> Option<&AtomicU64> {
        self.memory.word(self.report_range(slot)?.start).ok()
    }
}

impl Words for WordTable {
    fn pool(&mut self) -> u64 {
        self.pool_word().map_or(0, |word| word.load(Acquire))
    }

    fn exchange_pool(&mut self, from: u64, to: u64) -> Result<(), u64> {
        let Some(word) = self.pool_word() else { return Ok(()) };
        word.compare_exchange(from, to, AcqRel, Acquire).map(drop)
    }

    fn overwrite_pool(&mut self, to: u64) {
        if let Some(word) = self.pool_word() {
            word.store(to, Release);
        }
    }

    fn report(&mut self, slot: Slot) -> u64 {
        self.report_word(slot).map_or(0, |word| word.load(Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_empty_before_the_first_period() {
        let mut table = WordTable::new(1).expect("memory for a test");
        let word = PoolWord::unpack(table.pool());
        assert_eq!(word, PoolWord { epoch: Epoch(0), tokens: 0 });
    }

    #[test]
    fn each_client_has_a_word_of_its_own_and_the_pool_is_apart() {
        let mut table = WordTable::new(3).expect("memory for a test");
        table.overwrite_pool(100);
        for slot in 0..3 {
            table.write_report(Slot(slot), u64::from(slot) + 1);
        }
        assert_eq!(table.fetch_add(u64::MAX), 100);
        assert_eq!((table.pool(), table.exchange_pool(99, 7), table.pool()), (99, Ok(()), 7));
        assert_eq!(table.exchange_pool(99, 8), Err(7));
        assert_eq!([0, 1, 2].map(|slot| table.report(Slot(slot))), [1, 2, 3]);
        assert_eq!((table.report_range(Slot(3)), table.report(Slot(3))), (None, 0));
        table.write_report(Slot(3), 9);
        let ranges = [0, 1, 2].map(|slot| table.report_range(Slot(slot)).expect("it has one"));
        assert!(ranges.windows(2).all(|two| two[0].end == two[1].start));
        assert!(ranges[0].start >= table.pool_range().end + 56);
    }
}
