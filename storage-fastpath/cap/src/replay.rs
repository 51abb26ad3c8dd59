//! Which numbers were used.

use crate::denied::Denied;
use crate::limits::{AHEAD_MS, SKEW_MS, SOURCES_MAX, WINDOW};
use std::collections::HashMap;

const WORDS: usize = (WINDOW / 64) as usize;

/// The numbers of one source.
#[derive(Clone, Debug, Default)]
struct Window {
    highest: u64,
    /// When the newest request was made whose number was used.
    newest_ms: u64,
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

/// What is remembered of one capability.
#[derive(Clone, Copy, Debug, Default)]
struct Holder {
    /// Of how many sources the numbers are remembered.
    sources: usize,
    /// Of its other sources, nothing that was made before this is taken.
    floor_ms: u64,
}

/// The numbers of all sources. Where room is missing, the capabilities with the most sources lose
/// some of their own: the holder of one makes up as many as there is room for, and as far ahead in
/// time as clocks may be, and takes nothing from the others.
#[derive(Debug)]
pub(crate) struct Replays {
    /// By capability and source.
    windows: HashMap<(u64, u64), Window>,
    /// Capabilities with a source that is remembered.
    holders: HashMap<u64, Holder>,
    /// Of all other sources, nothing that was made before this is taken.
    floor_ms: u64,
}

/// When a pass would free less room than this, it forgets the oldest sources of all holders.
const FREED_MIN: usize = SOURCES_MAX / 1_024;

impl Replays {
    /// What was made before `start_ms` may have been used before that.
    pub(crate) fn new(start_ms: u64) -> Self {
        // A client's clock may have been ahead.
        let floor_ms = start_ms.saturating_add(AHEAD_MS);
        Self { windows: HashMap::new(), holders: HashMap::new(), floor_ms }
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
        if !self.windows.contains_key(&(holder, source)) {
            let floor_ms = self.holders.get(&holder).map_or(0, |of| of.floor_ms);
            if made_ms < self.floor_ms.max(floor_ms) {
                return Err(Denied::Early);
            }
            if self.windows.len() >= SOURCES_MAX {
                self.make_room();
            }
            self.holders.entry(holder).or_default().sources += 1;
        }
        let window = self.windows.entry((holder, source)).or_default();
        if !window.use_up(number) {
            return Err(Denied::Replayed);
        }
        window.newest_ms = window.newest_ms.max(made_ms);
        Ok(())
    }

    /// Forgets the older half of the sources of each capability that has at least half as many as
    /// the one with the most.
    fn make_room(&mut self) {
        let most = self.holders.values().map(|holder| holder.sources).max().unwrap_or(0);
        let has_many =
            |of: &u64| self.holders.get(of).is_some_and(|holder| 2 * holder.sources >= most);
        let sources = self.windows.iter();
        let mut of_many: Vec<(u64, u64, u64)> = sources
            .filter(|((holder, _), _)| has_many(holder))
            .map(|((holder, source), window)| (*holder, window.newest_ms, *source))
            .collect();
        of_many.sort_unstable();
        let of_each = of_many.chunk_by(|one, other| one.0 == other.0);
        let older: Vec<_> = of_each.flat_map(|of| &of[..of.len() / 2]).copied().collect();
        if older.len() >= FREED_MIN {
            older.into_iter().for_each(|(holder, _, source)| self.forget(holder, source));
        } else {
            self.forget_oldest();
        }
    }

    /// Forgets the older half of all sources, where many capabilities have few each.
    fn forget_oldest(&mut self) {
        let sources = self.windows.iter();
        let mut all: Vec<(u64, (u64, u64))> =
            sources.map(|(of, window)| (window.newest_ms, *of)).collect();
        all.sort_unstable();
        all.truncate(all.len() / 2);
        all.into_iter().for_each(|(_, (holder, source))| self.forget(holder, source));
    }

    /// Forgets the numbers of a source: what may have been used of them is refused from now on.
    fn forget(&mut self, holder: u64, source: u64) {
        let Some(window) = self.windows.remove(&(holder, source)) else { return };
        let Some(of) = self.holders.get_mut(&holder) else { return };
        of.floor_ms = of.floor_ms.max(window.newest_ms.saturating_add(1));
        of.sources -= 1;
        if of.sources == 0 {
            self.floor_ms = self.floor_ms.max(of.floor_ms);
            self.holders.remove(&holder);
        }
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

    /// So many that each holder forgets half of its sources at least once, and nobody may use a
    /// number again.
    fn nothing_is_taken_twice(holders: u64) {
        let mut replays = Replays::new(0);
        let sources = 2 * SOURCES_MAX as u64;
        let made = |source: u64| NOW + source / 10_000;
        for source in 0..sources {
            let now = made(source);
            let used = replays.use_up(now, source % holders, (source, 1, now));
            assert_eq!(used, Ok(()), "{source}");
            assert!(replays.windows.len() <= SOURCES_MAX, "memory is bounded");
        }
        assert!(replays.holders.len() <= SOURCES_MAX, "memory is bounded");
        let now = made(sources);
        for source in 0..sources {
            let again = replays.use_up(now, source % holders, (source, 1, made(source)));
            let is_refused = matches!(again, Err(Denied::Replayed | Denied::Early));
            assert!(is_refused, "{source} of {holders} holders: {again:?}");
        }
    }

    #[test]
    fn of_more_sources_than_are_remembered_nothing_is_taken_twice() {
        // The last ones have one source each.
        [1, 1_000, 50_000, u64::MAX].into_iter().for_each(nothing_is_taken_twice);
    }

    #[test]
    fn who_makes_up_sources_forgets_none_of_others_and_bars_none_of_theirs() {
        let mut replays = Replays::new(0);
        assert_eq!(replays.use_up(NOW, 1, (7, 1, NOW)), Ok(()));
        let flood = NOW + AHEAD_MS;
        for source in 0..4 * SOURCES_MAX as u64 {
            // Each of them forgets some of its own, and is refused what is older then.
            let _ = replays.use_up(NOW, 100 + source % 32, (source, 1, flood - source % 2));
        }
        assert_eq!(replays.use_up(NOW, 1, (7, 1, NOW)), Err(Denied::Replayed));
        assert_eq!(replays.use_up(NOW, 1, (7, 2, NOW)), Ok(()));
        assert_eq!(replays.use_up(NOW, 1, (8, 1, NOW)), Ok(()), "a new link of the capability");
        assert_eq!(replays.use_up(NOW, 2, (7, 1, NOW)), Ok(()), "another capability");
        let own = replays.use_up(NOW, 100, (u64::MAX, 1, NOW));
        assert_eq!(own, Err(Denied::Early), "a capability that was flooded with");
    }
}
