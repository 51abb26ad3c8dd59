//! When an end that polls gives its CPU away.

/// One in so many waits is put off.
const LONG_EACH: u32 = 16;

/// For so many times as many polls.
const LONG_FACTOR: u32 = 16;

/// Counts polls in a row that found nothing.
///
/// A wake-up may take longer than an end polls before it waits. Two ends of which one was late once
/// would then wake each other in turn for every message, for good; so now and then an end polls on
/// until its peer has been woken, and both are awake again.
#[derive(Debug)]
pub(crate) struct Patience {
    usual: u32,
    limit: u32,
    in_vain: u32,
    /// Times that something was found only after a wait.
    waits: u32,
}

impl Patience {
    /// It ends after so many polls; never with `u32::MAX`.
    pub(crate) fn new(usual: u32) -> Self {
        Self { usual, limit: usual, in_vain: 0, waits: 0 }
    }

    /// Takes in whether a poll has found something.
    #[inline]
    pub(crate) fn note(&mut self, found: bool) {
        if !found {
            self.in_vain = self.in_vain.saturating_add(1);
            return;
        }
        if self.is_over() {
            self.count_wait();
        }
        self.in_vain = 0;
    }

    #[cold]
    fn count_wait(&mut self) {
        self.waits = self.waits.wrapping_add(1);
        let is_long = self.waits.is_multiple_of(LONG_EACH);
        self.limit = if is_long { self.usual.saturating_mul(LONG_FACTOR) } else { self.usual };
    }

    /// Whether it is time to wait.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.in_vain >= self.limit
    }

    /// Whether the last poll found nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_vain > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls until it is over; how many that took.
    fn polls(patience: &mut Patience) -> u32 {
        let mut count = 0;
        while !patience.is_over() {
            patience.note(false);
            count += 1;
        }
        patience.note(true);
        count
    }

    #[test]
    fn one_wait_in_sixteen_comes_later() {
        let mut patience = Patience::new(128);
        let waits: Vec<u32> = (0..50).map(|_| polls(&mut patience)).collect();
        for (wait, &polls) in waits.iter().enumerate() {
            let is_late = wait > 0 && wait.is_multiple_of(16);
            assert_eq!(polls, if is_late { 16 * 128 } else { 128 }, "wait {wait}");
        }
    }

    #[test]
    fn what_is_found_in_time_is_no_wait() {
        let mut patience = Patience::new(2);
        for _ in 0..100 {
            patience.note(false);
            assert!(patience.is_idle() && !patience.is_over());
            patience.note(true);
            assert!(!patience.is_idle());
        }
        assert_eq!(polls(&mut patience), 2);
    }

    #[test]
    fn without_a_limit_it_never_ends() {
        let mut patience = Patience::new(u32::MAX);
        (0..100_000).for_each(|_| patience.note(false));
        assert!(!patience.is_over());
    }
}
