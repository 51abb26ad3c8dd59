//! For how long nothing has come, as far as somebody looked.

use super::limits::QUIET_LOOK_MAX;
use std::time::{Duration, Instant};

/// Adds up the time in which nothing came: of the time between two looks no more than
/// [`QUIET_LOOK_MAX`], for what came while nobody looked is found only now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quiet {
    last: Option<(u64, Instant)>,
    span: Duration,
}

impl Quiet {
    /// So much has come by `now`; for how long it is as much.
    pub(crate) fn look(&mut self, received: u64, now: Instant) -> Duration {
        self.span = match self.last {
            Some((before, at)) if before == received => self.span + (now - at).min(QUIET_LOOK_MAX),
            _ => Duration::ZERO,
        };
        self.last = Some((received, now));
        self.span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_quiet_since_the_last_that_came() {
        let (mut quiet, start) = (Quiet::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        for (received, ms, quiet_ms) in [(0, 0, 0), (0, 4, 4), (0, 9, 9), (1, 10, 0), (1, 15, 5)] {
            assert_eq!(quiet.look(received, at(ms)), Duration::from_millis(quiet_ms));
        }
    }

    #[test]
    fn an_end_that_was_away_for_long_does_not_take_that_for_quiet() {
        let (mut quiet, start) = (Quiet::default(), Instant::now());
        quiet.look(7, start);
        assert_eq!(quiet.look(7, start + Duration::from_secs(60)), QUIET_LOOK_MAX);
    }
}
