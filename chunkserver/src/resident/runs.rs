//! Which slots are free: runs of them, taken from the lowest on.

use std::collections::BTreeMap;

/// Slots that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) slot: u32,
    pub(super) count: u32,
}

/// Free slots, by where each run begins. Runs that touch are one.
#[derive(Debug, Default)]
pub(super) struct FreeRuns {
    runs: BTreeMap<u32, u32>,
    count: u64,
}

impl FreeRuns {
    pub(super) fn new(slots: u32) -> Self {
        let mut free = Self::default();
        if slots > 0 {
            free.give(Run { slot: 0, count: slots });
        }
        free
    }

    /// How many slots are free.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Takes slots from `slot` on, as many of `wanted` as are free there.
    pub(super) fn take_at(&mut self, slot: u32, wanted: u32) -> u32 {
        let Some(count) = self.runs.remove(&slot) else { return 0 };
        let taken = count.min(wanted);
        if taken < count {
            self.runs.insert(slot + taken, count - taken);
        }
        self.count -= u64::from(taken);
        taken
    }

    /// Takes up to `wanted` slots that lie together: from the first run that has as many, else all
    /// of the first. None where nothing is free.
    pub(super) fn take(&mut self, wanted: u32) -> Option<Run> {
        let fits = |(_, count): &(&u32, &u32)| **count >= wanted;
        let found = self.runs.iter().find(fits).or_else(|| self.runs.first_key_value());
        let slot = *found?.0;
        let count = self.take_at(slot, wanted);
        Some(Run { slot, count })
    }

    /// Takes slots back.
    pub(super) fn give(&mut self, Run { slot, count }: Run) {
        self.count += u64::from(count);
        let (mut slot, mut count) = (slot, count);
        if let Some((&before, &of_before)) = self.runs.range(..slot).next_back() {
            debug_assert!(before + of_before <= slot, "a slot is given back once");
            if before + of_before == slot {
                (slot, count) = (before, count + of_before);
            }
        }
        if let Some(behind) = self.runs.remove(&(slot + count)) {
            count += behind;
        }
        self.runs.insert(slot, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    #[test]
    fn no_slot_is_given_out_twice_and_none_is_lost() {
        let seed = 3;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let slots = 200;
        let mut free = FreeRuns::new(slots);
        let mut is_taken = vec![false; slots as usize];
        let mut taken: Vec<Run> = Vec::new();
        for _ in 0..10_000 {
            if prng.below(2) == 0 && !taken.is_empty() {
                let run = taken.swap_remove(prng.below(taken.len() as u64) as usize);
                is_taken[run.slot as usize..(run.slot + run.count) as usize].fill(false);
                free.give(run);
            } else {
                let wanted = prng.between(1, 30) as u32;
                let run = match taken.last() {
                    Some(last) if prng.below(2) == 0 => {
                        let slot = last.slot + last.count;
                        Run { slot, count: free.take_at(slot, wanted) }
                    }
                    _ => free.take(wanted).unwrap_or(Run { slot: 0, count: 0 }),
                };
                assert!(run.count <= wanted);
                for place in &mut is_taken[run.slot as usize..][..run.count as usize] {
                    assert!(!std::mem::replace(place, true), "{run:?}");
                }
                if run.count > 0 {
                    taken.push(run);
                }
            }
            let count = is_taken.iter().filter(|taken| !**taken).count();
            assert_eq!(free.count(), count as u64);
            // Runs that touch are one: no other order of the same slots has fewer.
            let edges = is_taken.windows(2).filter(|pair| pair[0] && !pair[1]).count();
            assert_eq!(free.runs.len(), edges + usize::from(!is_taken[0]));
        }
        for run in taken {
            free.give(run);
        }
        assert_eq!(free.take(slots), Some(Run { slot: 0, count: slots }));
        assert_eq!(free.take(1), None);
    }
}
