//! Refusals that nobody waits for are logged.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many of the first refusals of a process are logged each; later ones where their number is
/// a power of two, so that a loop of them does not fill the log.
const LOGGED_EACH: u64 = 16;

/// Refusals of this process that nobody waited for.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Logs that something was refused whose ticket was dropped before its outcome was taken.
#[cold]
pub(crate) fn refused(what: &str, error: &dyn Display) {
    let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    if is_logged(count) {
        tracing::warn!(
            %error,
            count,
            "{what} was refused, and its ticket was dropped: keep tickets and wait for outcomes"
        );
    }
}

fn is_logged(count: u64) -> bool {
    count <= LOGGED_EACH || count.is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_refusals_make_few_lines() {
        assert!((1..=LOGGED_EACH).all(is_logged));
        assert_eq!((1..=1_000_000).filter(|&count| is_logged(count)).count(), 16 + 15);
    }
}
