//! Packets that came before, or are too old to tell.

use super::Refusal;

pub(super) const MEANING: &str = "a packet came twice, or so late that nobody can tell: the \
                                  network doubles packets, or somebody sends them again";

/// Which numbers of one stream have come: a window behind the highest one.
#[derive(Debug)]
pub(crate) struct Window {
    /// Numbers from here on have not come.
    next: u64,
    /// Bit `n` modulo their count for each number `n` that came, of those within the window.
    came: Box<[u64]>,
}

impl Window {
    /// For as many numbers behind the highest one; a multiple of 64.
    pub(crate) fn new(numbers: u64) -> Self {
        let words = usize::try_from(numbers / 64).unwrap_or(1).max(1);
        Self { next: 0, came: vec![0; words].into() }
    }

    fn len(&self) -> u64 {
        self.came.len() as u64 * 64
    }

    fn place(&self, number: u64) -> (usize, u64) {
        ((number % self.len() / 64) as usize, 1 << (number % 64))
    }

    /// Whether a number has not come. It is asked before the tag is checked, because it costs less.
    pub(crate) fn check(&self, number: u64) -> Result<(), Refusal> {
        // The highest number of all is kept out, so that `next` has a value behind each.
        if number == u64::MAX || number.saturating_add(self.len()) < self.next {
            return Err(Refusal::Replay);
        }
        let (word, bit) = self.place(number);
        let is_fresh = number >= self.next || self.came[word] & bit == 0;
        if is_fresh { Ok(()) } else { Err(Refusal::Replay) }
    }

    /// Marks a number that passed the check and whose tag is right.
    pub(crate) fn mark(&mut self, number: u64) {
        if number >= self.next {
            if number - self.next >= self.len() {
                self.came.fill(0);
            } else {
                // The bits of these numbers are those of numbers that leave the window.
                for number in self.next..=number {
                    let (word, bit) = self.place(number);
                    self.came[word] &= !bit;
                }
            }
            self.next = number.saturating_add(1);
        }
        let (word, bit) = self.place(number);
        self.came[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use towpath_base::Prng;

    fn take(window: &mut Window, number: u64) -> bool {
        let is_fresh = window.check(number).is_ok();
        if is_fresh {
            window.mark(number);
        }
        is_fresh
    }

    #[test]
    fn each_number_within_the_window_is_taken_once() {
        let mut window = Window::new(128);
        assert!(take(&mut window, 0) && !take(&mut window, 0));
        assert!(take(&mut window, 127) && take(&mut window, 1) && !take(&mut window, 1));
        assert!(take(&mut window, 128), "1 is the last number of the window now");
        assert!(!take(&mut window, 0), "0 has left it");
        assert!(take(&mut window, 1_000_000) && !take(&mut window, 1_000_000 - 128));
        assert!(take(&mut window, 1_000_000 - 127));
        assert!(take(&mut window, u64::MAX - 1) && !take(&mut window, u64::MAX - 1));
        assert!(!take(&mut window, u64::MAX), "no number is behind it");
    }

    #[test]
    fn a_window_agrees_with_a_set() {
        const LEN: u64 = 256;
        for seed in 0..20 {
            let mut prng = Prng::new(seed);
            let (mut window, mut model) = (Window::new(LEN), BTreeSet::new());
            let mut base = 0;
            for _ in 0..5_000 {
                base += prng.below(4) * prng.below(2);
                if prng.chance(0.002) {
                    base += prng.below(2 * LEN);
                }
                let number = (base + prng.below(8)).saturating_sub(prng.below(2 * LEN));
                let next = model.last().map_or(0, |highest| highest + 1);
                let wanted = number + LEN >= next && !model.contains(&number);
                assert_eq!(take(&mut window, number), wanted, "seed {seed}, number {number}");
                if wanted {
                    model.insert(number);
                }
            }
        }
    }
}
