//! Which numbers were used.

use crate::denied::Denied;
use crate::limits::{AHEAD_MS, SHARES, SKEW_MS, SOURCES_MAX, WINDOW};
use std::collections::HashMap;

const WORDS: usize = (WINDOW / 64) as usize;

/// The numbers of one source.
#[derive(Clone, Debug)]
struct Window {
    highest: u64,
    /// Bit `n % WINDOW` for each number `n` that was used, of those within the window.
    used: [u64; WORDS],
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

/// Sources, half of them newer. Those that have not been heard of for longest are forgotten in
/// halves; what was made before the newest of what is forgotten is then refused where its source is
/// not known.
#[derive(Debug, Default)]
struct Share {
    young: HashMap<(u64, u64), Window>,
    old: HashMap<(u64, u64), Window>,
    /// When the newest was made that is among the young ones, and the old ones.
    newest_ms: (u64, u64),
    /// Of sources that are not known, nothing that was made before this is taken.
    floor_ms: u64,
}

/// The numbers of all sources. Holders of capabilities have shares: who makes up many sources takes
/// room from those of the same share alone.
#[derive(Debug)]
pub(crate) struct Replays {
    shares: Vec<Share>,
}

impl Replays {
    /// What was made before `start_ms` may have been used before that.
    pub(crate) fn new(start_ms: u64) -> Self {
        // A client's clock may have been ahead.
        let floor_ms = start_ms.saturating_add(AHEAD_MS);
        let share = || Share { floor_ms, ..Share::default() };
        Self { shares: (0..SHARES).map(|_| share()).collect() }
    }

    /// Uses the number of a source of a capability, of a request that was made at `made_ms`.
    pub(crate) fn use_up(
        &mut self,
        now_ms: u64,
        holder: u64,
        (source, number, made_ms): (u64, u64, u64),
    ) -> Result<(), Denied> {
        let is_ahead = made_ms > now_ms.saturating_add(AHEAD_MS);
        if is_ahead || made_ms < now_ms.saturating_sub(SKEW_MS) {
            return Err(Denied::Clock);
        }
        // A number far ahead takes the later numbers of a source away: its own harm.
        if number == 0 || number > u64::MAX - WINDOW {
            return Err(Denied::Replayed);
        }
        let share = &mut self.shares[(holder % SHARES as u64) as usize];
        share.use_up((holder, source), number, made_ms)
    }
}

impl Share {
    fn use_up(&mut self, of: (u64, u64), number: u64, made_ms: u64) -> Result<(), Denied> {
        if !self.young.contains_key(&of) {
            let window = match self.old.remove(&of) {
                Some(window) => window,
                None if made_ms < self.floor_ms => return Err(Denied::Early),
                None => Window { highest: 0, used: [0; WORDS] },
            };
            self.make_room();
            self.young.insert(of, window);
        }
        let is_fresh = self.young.get_mut(&of).is_some_and(|window| window.use_up(number));
        if !is_fresh {
            return Err(Denied::Replayed);
        }
        self.newest_ms.0 = self.newest_ms.0.max(made_ms);
        Ok(())
    }

    fn make_room(&mut self) {
        if self.young.len() < SOURCES_MAX / SHARES / 2 {
            return;
        }
        if !self.old.is_empty() {
            self.floor_ms = self.floor_ms.max(self.newest_ms.1.saturating_add(1));
        }
        self.old = core::mem::take(&mut self.young);
        self.newest_ms = (0, self.newest_ms.0);
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
            let taken = replays.use_up(NOW, 0, (7, number, NOW));
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
        assert_eq!(replays.use_up(NOW + 5, 0, (1, 1, before)), Err(Denied::Early));
        assert_eq!(replays.use_up(NOW + 5, 0, (1, 1, before + 1)), Ok(()));
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
            assert_eq!(replays.use_up(NOW, 0, (1, number, made_ms)), taken, "{number}");
        }
    }

    #[test]
    fn of_more_sources_than_are_remembered_nothing_is_taken_twice() {
        let mut replays = Replays::new(0);
        let sources = 3 * (SOURCES_MAX / SHARES) as u64;
        let made = |source: u64| NOW + source / 1_000;
        for source in 0..sources {
            let now = made(source);
            assert_eq!(replays.use_up(now, 0, (source, 1, now)), Ok(()), "{source}");
            let kept = replays.shares[0].young.len() + replays.shares[0].old.len();
            assert!(kept <= SOURCES_MAX / SHARES, "memory is bounded");
        }
        let now = made(sources);
        for source in 0..sources {
            let again = replays.use_up(now, 0, (source, 1, made(source)));
            let is_refused = matches!(again, Err(Denied::Replayed | Denied::Early));
            assert!(is_refused, "{source}: {again:?}");
        }
    }

    #[test]
    fn who_makes_up_sources_forgets_none_of_other_shares() {
        let mut replays = Replays::new(0);
        assert_eq!(replays.use_up(NOW, 1, (7, 1, NOW)), Ok(()));
        let flood = NOW + AHEAD_MS;
        let taken = (0..SOURCES_MAX as u64)
            .filter(|source| replays.use_up(NOW, 0, (*source, 1, flood)).is_ok());
        assert!(taken.count() >= SOURCES_MAX / SHARES, "until their share has forgotten some");
        assert_eq!(replays.use_up(NOW, 1, (7, 1, NOW)), Err(Denied::Replayed));
        assert_eq!(replays.use_up(NOW, 1, (7, 2, NOW)), Ok(()));
        assert_eq!(replays.use_up(NOW, 1, (8, 1, NOW)), Ok(()), "it has not moved their floor");
        assert_eq!(replays.use_up(NOW, 2, (7, 2, NOW)), Ok(()), "of another holder");
    }
}
