//! Which numbers were used.

use crate::denied::Denied;
use crate::limits::{AHEAD_MS, SKEW_MS, SOURCES_MAX, WINDOW};
use std::collections::HashMap;

const WORDS: usize = (WINDOW / 64) as usize;

/// The numbers of one source.
#[derive(Clone, Debug)]
struct Window {
    highest: u64,
    /// Bit `n % WINDOW` for each number `n` that was used, of those within the window.
    used: [u64; WORDS],
    /// When the newest of them was made.
    newest_ms: u64,
}

impl Window {
    /// Uses a number; false where it was used, or is older than the window.
    fn use_up(&mut self, number: u64) -> bool {
        if number + WINDOW <= self.highest {
            return false;
        }
        if number > self.highest {
            // What was there is of numbers that leave the window.
            let fresh = (self.highest + 1).max((number + 1).saturating_sub(WINDOW))..=number;
            fresh.for_each(|number| *self.word(number) &= !bit(number));
            self.highest = number;
        }
        let word = self.word(number);
        let is_fresh = *word & bit(number) == 0;
        *word |= bit(number);
        is_fresh
    }

    fn word(&mut self, number: u64) -> &mut u64 {
        &mut self.used[(number % WINDOW / 64) as usize]
    }
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

/// The numbers of all sources. Those that have not been heard of for longest are forgotten in
/// halves; what was made before the newest of what is forgotten is then refused where its source is
/// not known.
#[derive(Debug)]
pub(crate) struct Replays {
    young: HashMap<u64, Window>,
    old: HashMap<u64, Window>,
    /// Of sources that are not known, nothing that was made before this is taken.
    floor_ms: u64,
}

impl Replays {
    /// What was made before `start_ms` may have been used before that.
    pub(crate) fn new(start_ms: u64) -> Self {
        // A client's clock may have been ahead.
        let floor_ms = start_ms.saturating_add(AHEAD_MS);
        Self { young: HashMap::new(), old: HashMap::new(), floor_ms }
    }

    /// Uses the number of a source, of a request that was made at `made_ms`.
    pub(crate) fn use_up(
        &mut self,
        now_ms: u64,
        (source, number, made_ms): (u64, u64, u64),
    ) -> Result<(), Denied> {
        let is_ahead = made_ms > now_ms.saturating_add(AHEAD_MS);
        if is_ahead || made_ms < now_ms.saturating_sub(SKEW_MS) {
            return Err(Denied::Clock);
        }
        if !self.young.contains_key(&source) {
            let window = match self.old.remove(&source) {
                Some(window) => window,
                None if made_ms < self.floor_ms => return Err(Denied::Early),
                None => Window { highest: 0, used: [0; WORDS], newest_ms: 0 },
            };
            self.make_room();
            self.young.insert(source, window);
        }
        let Some(window) = self.young.get_mut(&source) else { return Err(Denied::Replayed) };
        // A number far ahead would take a source's later numbers away: its own harm.
        if number == 0 || number > u64::MAX - WINDOW || !window.use_up(number) {
            return Err(Denied::Replayed);
        }
        window.newest_ms = window.newest_ms.max(made_ms);
        Ok(())
    }

    fn make_room(&mut self) {
        if self.young.len() < SOURCES_MAX / 2 {
            return;
        }
        let newest = self.old.values().map(|window| window.newest_ms + 1).max();
        self.floor_ms = self.floor_ms.max(newest.unwrap_or(0));
        self.old = core::mem::take(&mut self.young);
    }

    /// Sources that are remembered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use towpath_base::Prng;

    const NOW: u64 = 1_000_000_000;

    #[test]
    fn a_number_is_used_once_in_whatever_order_numbers_come() {
        let mut prng = Prng::new(1);
        let mut replays = Replays::new(0);
        let mut used = HashSet::new();
        let mut highest = 0;
        for _ in 0..100_000 {
            let behind = if prng.below(2) == 0 { 0 } else { prng.below(2 * WINDOW) };
            let number = (highest + prng.below(3)).saturating_sub(behind).max(1);
            let is_fresh = number + WINDOW > highest && !used.contains(&number);
            let taken = replays.use_up(NOW, (7, number, NOW));
            assert_eq!(taken.is_ok(), is_fresh, "{number} after {highest}");
            if is_fresh {
                used.insert(number);
                highest = highest.max(number);
            }
        }
        assert!(highest > 10_000 && used.len() > 10_000, "{highest} {}", used.len());
    }

    #[test]
    fn what_may_have_been_used_before_a_start_is_refused() {
        let mut replays = Replays::new(NOW);
        let before = NOW + AHEAD_MS - 1;
        assert_eq!(replays.use_up(NOW + 5, (1, 1, before)), Err(Denied::Early));
        assert_eq!(replays.use_up(NOW + 5, (1, 1, before + 1)), Ok(()));
    }

    #[test]
    fn clocks_may_differ_by_so_much() {
        let mut replays = Replays::new(0);
        for (number, made_ms, taken) in [
            (1, NOW - SKEW_MS - 1, Err(Denied::Clock)),
            (2, NOW - SKEW_MS, Ok(())),
            (3, NOW + AHEAD_MS, Ok(())),
            (4, NOW + AHEAD_MS + 1, Err(Denied::Clock)),
            (0, NOW, Err(Denied::Replayed)),
            (u64::MAX, NOW, Err(Denied::Replayed)),
        ] {
            assert_eq!(replays.use_up(NOW, (1, number, made_ms)), taken, "{number}");
        }
    }

    #[test]
    fn of_more_sources_than_are_remembered_nothing_is_taken_twice() {
        let mut replays = Replays::new(0);
        let sources = 3 * SOURCES_MAX as u64;
        let made = |source: u64| NOW + source / 1_000;
        for source in 0..sources {
            let now = made(source);
            assert_eq!(replays.use_up(now, (source, 1, now)), Ok(()), "{source}");
            assert!(replays.len() <= SOURCES_MAX, "memory is bounded");
        }
        let now = made(sources);
        for source in 0..sources {
            let again = replays.use_up(now, (source, 1, made(source)));
            let is_refused = matches!(again, Err(Denied::Replayed | Denied::Early));
            assert!(is_refused, "{source}: {again:?}");
        }
    }
}
