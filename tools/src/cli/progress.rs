//! A bar for work that takes more than two seconds, where somebody watches.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Shorter work shows nothing.
const SILENT_SPAN: Duration = Duration::from_secs(2);

/// Shows how far some work is. Only on stderr, only on a terminal, and only once it takes long.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    style: &'static str,
    whole: u64,
    wanted: bool,
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// For work of `whole` bytes.
    #[must_use]
    pub(crate) fn bytes(what: &'static str, whole: u64) -> Self {
        let style = "{msg:>8} [{bar:40}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        Self::new(what, whole, style)
    }

    /// For runs, of which [`of`](Self::of) says how many there are.
    #[must_use]
    pub(crate) fn runs(what: &'static str) -> Self {
        Self::new(what, 0, "{msg:>8} [{bar:40}] {pos} of {len} runs, {eta} left")
    }

    fn new(what: &'static str, whole: u64, style: &'static str) -> Self {
        let wanted = std::io::stderr().is_terminal();
        Self { what, style, whole, wanted, began: Instant::now(), bar: None }
    }

    /// Says how much the whole is.
    pub(crate) fn of(&mut self, whole: u64) {
        self.whole = whole;
        if let Some(bar) = &self.bar {
            bar.set_length(whole);
        }
    }

    /// Says how much is done.
    pub(crate) fn at(&mut self, done: u64) {
        if !self.wanted {
            return;
        }
        if self.bar.is_none() && self.began.elapsed() >= SILENT_SPAN {
            let bar = ProgressBar::new(self.whole).with_elapsed(self.began.elapsed());
            // The template is fixed; were it ever wrong, the plain style would do.
            if let Ok(style) = ProgressStyle::with_template(self.style) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_message(self.what);
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
