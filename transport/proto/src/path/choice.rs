//! Which path the next chunk takes: power of two choices on round-trip times.

use super::state::PathState;
use super::table::{PathTable, bit};
use core::hint::cold_path;
use towpath_base::{Nanos, Time};

/// One draw in so many is not compared with another, so that a path that was slow once is
/// measured again.
const EXPLORE_ONE_IN: u64 = 32;

/// A path is kept for one of its round trips at most, and for this where that is shorter than turns
/// are or not known. Then what went there first is answered, or ought to be.
const KEPT_MIN: Nanos = Nanos::from_micros(50);

/// What a path gets at a time where there are several rails: longer turns would fill a slow NIC
/// while a fast one waits for the window that they share.
const RAIL_TURN_BYTES: u64 = 64 << 10;

/// The path that chunks take for a while.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) current: usize,
    /// How much may still go on it, and until when.
    pub(super) left_bytes: u64,
    kept_until: Time,
    /// When the turn of the driver was that sent last, and how much it sent.
    at: Time,
    bytes: u64,
}

impl Turn {
    pub(super) fn new(now: Time) -> Self {
        Self { current: 0, left_bytes: 0, kept_until: now, at: now, bytes: 0 }
    }

    #[inline]
    pub(super) fn on_sent(&mut self, now: Time, charge: u64) {
        self.left_bytes = self.left_bytes.saturating_sub(charge);
        self.bytes = charge + if now > self.at { 0 } else { self.bytes };
        self.at = now;
    }
}

impl PathTable {
    /// The path for the next chunk that is not bound to one, other than those in `avoid` if that
    /// can be; `None` when no path has a number left.
    #[inline(always)]
    pub(crate) fn choose(&mut self, now: Time, avoid: u16) -> Option<usize> {
        if !self.has_choice() {
            let only = self.ladder.paths().trailing_zeros() as usize;
            return self[only].has_number().then_some(only);
        }
        self.choose_of_several(now, avoid)
    }

    #[inline(never)]
    fn choose_of_several(&mut self, now: Time, avoid: u16) -> Option<usize> {
        if self.stays(now) && self.good() & bit(self.turn.current) & !avoid != 0 {
            return Some(self.turn.current);
        }
        self.choose_anew(now, avoid)
    }

    /// Whether the next chunk may take the path of the one before. A turn that would run out of
    /// what its path may have takes another one from the start: in two parts it would cost two
    /// posts here and two acks there.
    #[inline(always)]
    fn stays(&self, now: Time) -> bool {
        let turn = &self.turn;
        let wanted_bytes = if now > turn.at { turn.bytes.max(1) } else { 1 };
        let may_stay = turn.left_bytes >= wanted_bytes && now <= turn.kept_until;
        may_stay && self[turn.current].has_number()
    }

    #[inline(never)]
    fn choose_anew(&mut self, now: Time, avoid: u16) -> Option<usize> {
        let index = self.pick(avoid)?;
        if avoid == 0 {
            let kept = if self.rails.len() > 1 { RAIL_TURN_BYTES } else { u64::MAX };
            (self.turn.current, self.turn.left_bytes) = (index, self.spread_bytes().min(kept));
            let srtt = self[index].timing.srtt().unwrap_or(Nanos::ZERO);
            self.turn.kept_until = now + srtt.max(KEPT_MIN);
        }
        Some(index)
    }

    /// Draws a path.
    pub(crate) fn pick(&mut self, avoid: u16) -> Option<usize> {
        let good = self.good();
        let mut full = 0;
        // The first set that holds a path with a number to spare.
        self.pick_of([good & self.answers.proven & !avoid, good & !avoid, good], &mut full).or_else(
            || {
                cold_path();
                let doubtful =
                    self.in_state(PathState::Suspect) | self.in_state(PathState::Probing);
                let (doubtful, all) = (doubtful & !self.unshown(), self.mask() & !self.unshown());
                self.pick_of([doubtful & !avoid, all & !avoid, all], &mut full)
            },
        )
    }

    fn pick_of(&mut self, sets: [u16; 3], full: &mut u16) -> Option<usize> {
        for set in sets {
            while set & !*full != 0 {
                let index = self.draw(set & !*full);
                if self[index].has_number() {
                    return Some(index);
                }
                *full |= bit(index);
            }
        }
        None
    }

    /// The better of two paths that are drawn from a set. With several rails, one path is drawn for
    /// each, and the best one is taken.
    pub(crate) fn draw(&mut self, set: u16) -> usize {
        let count = u64::from(set.count_ones());
        let first = self.prng.below(count);
        let one = nth(set, first);
        if count == 1 || self.prng.below(EXPLORE_ONE_IN) == 0 {
            return one;
        }
        if self.rails.len() > 1 {
            return self.draw_of_rails(set, one);
        }
        let second = (first + 1 + self.prng.below(count - 1)) % count;
        let other = nth(set, second);
        if self.is_better(other, one) { other } else { one }
    }

    /// NICs may be unlike. The round trip of a slow one is longer even while it is idle, for a
    /// chunk takes longer to leave it: by round trips alone it would get nothing. So each rail has
    /// its say in each draw, and that with the least to do and the shortest round trip is taken.
    fn draw_of_rails(&mut self, set: u16, mut best: usize) -> usize {
        for place in 0..self.rails.len() {
            let of_rail = set & self.rails[place];
            if of_rail == 0 || of_rail & bit(best) != 0 {
                continue;
            }
            let other = nth(of_rail, self.prng.below(u64::from(of_rail.count_ones())));
            if self.load(other) < self.load(best) {
                best = other;
            }
        }
        best
    }

    /// What is under way on a path with one turn more, and for how long.
    fn load(&self, index: usize) -> u64 {
        let bytes = self[index].tx.in_flight_bytes() + RAIL_TURN_BYTES;
        bytes.saturating_mul(self[index].timing.srtt().unwrap_or(Nanos::ZERO).0)
    }

    /// Round trips decide if they differ by more than a quarter, else what is under way.
    fn is_better(&self, index: usize, than: usize) -> bool {
        let srtt = |index: usize| self[index].timing.srtt().unwrap_or(Nanos::ZERO).0;
        let (mine, other) = (srtt(index), srtt(than));
        if mine.abs_diff(other) > mine.min(other) / 4 {
            return mine < other;
        }
        self[index].tx.in_flight_bytes() < self[than].tx.in_flight_bytes()
    }
}

/// The place of the `n`th bit that is set.
fn nth(set: u16, n: u64) -> usize {
    let mut rest = set;
    for _ in 0..n {
        rest &= rest - 1;
    }
    rest.trailing_zeros() as usize
}
