//! How long whoever waits for an endpoint looks for news before it sleeps.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What a spin is worth at most: so many in vain, and nobody spins any more.
const WORTH_MAX: u32 = 8;

/// While it does not pay, one in so many waits tries it.
const TRIED_ONE_IN: u32 = 64;

/// Another thread needs the processor if to let it run took so long.
const IS_NEEDED: Duration = Duration::from_micros(10);

/// Whether it pays on this machine to spin, as the waits before have shown: it does where news came
/// meanwhile, and no other thread had use for the processor.
#[derive(Debug)]
pub(crate) struct Spin {
    /// The longest.
    span: Duration,
    worth: AtomicU32,
    waits: AtomicU32,
}

/// The spin of one wait.
pub(crate) struct Spinning<'a> {
    of: &'a Spin,
    until: Option<Instant>,
    /// It was begun, and given up.
    is_vain: bool,
}

impl Spin {
    pub(crate) fn new(span: Duration) -> Self {
        Self { span, worth: AtomicU32::new(0), waits: AtomicU32::new(0) }
    }

    /// A wait begins.
    pub(crate) fn begin(&self) -> Spinning<'_> {
        let wait = self.waits.fetch_add(1, Ordering::Relaxed);
        let pays = self.worth.load(Ordering::Relaxed) > 0;
        let spins = !self.span.is_zero() && (pays || wait % TRIED_ONE_IN == TRIED_ONE_IN - 1);
        let until = spins.then(|| Instant::now() + self.span);
        Spinning { of: self, until, is_vain: false }
    }
}

impl Spinning<'_> {
    /// Whether to look again rather than sleep.
    pub(crate) fn goes_on(&mut self) -> bool {
        let goes_on = self.until.is_some_and(|until| Instant::now() < until);
        if !goes_on && self.until.take().is_some() {
            self.is_vain = true;
        }
        goes_on
    }

    /// Lets others run, before the next look.
    pub(crate) fn pause(&mut self) {
        if self.until.is_some() {
            let begin = Instant::now();
            thread::yield_now();
            if begin.elapsed() > IS_NEEDED {
                self.until = None;
                self.is_vain = true;
            }
        }
    }

    /// The spin is over: what it waited for has come, or not.
    pub(crate) fn end(&mut self, has_come: bool) {
        let worth = self.of.worth.load(Ordering::Relaxed);
        let was_begun = self.until.take().is_some();
        if std::mem::take(&mut self.is_vain) {
            self.of.worth.store(worth.saturating_sub(1), Ordering::Relaxed);
        } else if was_begun && has_come {
            self.of.worth.store((worth + 1).min(WORTH_MAX), Ordering::Relaxed);
        }
    }

    /// The same, and another wait begins.
    pub(crate) fn renew(&mut self, has_come: bool) {
        self.end(has_come);
        *self = self.of.begin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spins(spin: &Spin) -> bool {
        spin.begin().until.is_some()
    }

    #[test]
    fn who_waits_spins_while_that_pays_and_tries_it_now_and_then() {
        let spin = Spin::new(Duration::from_secs(3600));
        let tries = (0..2 * TRIED_ONE_IN).filter(|_| spins(&spin)).count();
        assert_eq!(tries, 2, "nothing is known yet");
        while !spins(&spin) {}
        for _ in 0..3 {
            let mut wait = spin.begin();
            wait.until = Some(Instant::now() + Duration::from_secs(3600));
            assert!(wait.goes_on());
            wait.end(true);
            assert!(spins(&spin), "it paid");
        }
        for _ in 0..3 {
            let mut wait = spin.begin();
            assert!(wait.until.is_some());
            wait.until = Some(Instant::now());
            assert!(!wait.goes_on());
            wait.end(true);
        }
        assert_eq!((0..TRIED_ONE_IN).filter(|_| spins(&spin)).count(), 1, "it was in vain");
    }

    #[test]
    fn nobody_spins_where_the_owner_does_not_want_it() {
        let spin = Spin::new(Duration::ZERO);
        assert!((0..2 * TRIED_ONE_IN).all(|_| !spins(&spin)));
    }
}
