//! Watches a row: is the peer alive, and is there a person to show progress to?

use super::error::RunError;
use super::limits::{PEER_TIMEOUT, SILENT_SPAN};
use super::settings::Goal;
use crate::cli::progress::time_left;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Instant;

/// Looked at now and then by the loop of a row.
#[derive(Debug)]
pub(crate) struct Watch {
    goal: Goal,
    start: Instant,
    seen: u64,
    seen_at: Instant,
    bar: Option<ProgressBar>,
}

impl Watch {
    pub(crate) fn new(goal: Goal) -> Self {
        let now = Instant::now();
        Self { goal, start: now, seen: 0, seen_at: now, bar: None }
    }

    /// Tells that `done` messages are done, and of everything that counts as progress the sum.
    ///
    /// # Errors
    /// [`RunError::PeerSilent`] when nothing has changed for too long.
    pub(crate) fn look(&mut self, done: u64, progress: u64) -> Result<(), RunError> {
        let now = Instant::now();
        if progress != self.seen {
            (self.seen, self.seen_at) = (progress, now);
        } else if now - self.seen_at > PEER_TIMEOUT {
            return Err(RunError::PeerSilent(PEER_TIMEOUT));
        }
        if now - self.start > SILENT_SPAN {
            self.show(done, now);
        }
        Ok(())
    }

    /// On stderr, and only where that is a terminal: indicatif sees to both.
    fn show(&mut self, done: u64, now: Instant) {
        let (position, length) = match self.goal {
            Goal::Messages(count) => (done, count),
            Goal::Span { span, .. } => {
                ((now - self.start).as_millis() as u64, span.as_millis() as u64)
            }
        };
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(length).with_style(style)
        });
        // Of all that was done so far: the bar appears late, which is no burst.
        let seconds = (now - self.start).as_secs_f64().max(f64::MIN_POSITIVE);
        let left = length.saturating_sub(position);
        bar.set_message(time_left(left, position as f64 / seconds));
        bar.set_position(position.min(length));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
