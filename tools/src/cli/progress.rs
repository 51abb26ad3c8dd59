//! A bar for work that takes more than two seconds, where somebody watches.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::bytes::{show_count, show_size};

/// Shorter work shows nothing.
const SILENT_SPAN: Duration = Duration::from_secs(2);

/// The rate is that of so much time before now.
const WINDOW: Duration = Duration::from_secs(3);

/// Time from one sample of the window to the next, and from one text of a bar to the next.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// Samples of a window, and the one before it.
const SAMPLES_MAX: usize = (WINDOW.as_millis() / SAMPLE_EVERY.as_millis()) as usize + 2;

/// How fast something was done lately.
#[derive(Debug)]
struct Rate {
    /// (when, how much was done then), the oldest first.
    samples: VecDeque<(Instant, u64)>,
}

impl Rate {
    /// Of something of which nothing is done at `began`.
    fn new(began: Instant) -> Self {
        Self { samples: VecDeque::from([(began, 0)]) }
    }

    /// So much is done by `now`. Whether the rate is a new one.
    fn at(&mut self, now: Instant, done: u64) -> bool {
        let last = self.samples.back().map(|&(at, _)| at);
        if last.is_some_and(|last| now.saturating_duration_since(last) < SAMPLE_EVERY) {
            return false;
        }
        self.samples.push_back((now, done));
        // The first is the last one that is as old as the window.
        let is_old = |&(at, _): &(Instant, u64)| now.saturating_duration_since(at) >= WINDOW;
        while self.samples.get(1).is_some_and(is_old) || self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
        true
    }

    /// In a second.
    fn per_second(&self) -> f64 {
        let (Some((from, before)), Some((to, done))) = (self.samples.front(), self.samples.back())
        else {
            return 0.0;
        };
        let seconds = to.saturating_duration_since(*from).as_secs_f64();
        if seconds > 0.0 { done.saturating_sub(*before) as f64 / seconds } else { 0.0 }
    }
}

/// How long what is `left` takes at a rate, in words.
pub(crate) fn time_left(left: u64, per_second: f64) -> String {
    if per_second <= 0.0 {
        return String::from("no end in sight");
    }
    let seconds = (left as f64 / per_second).ceil().min(1e9) as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s left"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s left"),
        (hours, minutes, _) => format!("{hours} h {minutes} min left"),
    }
}

/// What the work consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    Runs,
    /// Requests of so many bytes; how much of the whole is done is a share.
    Load(u64),
}

/// The whole of a load, of which shares are done.
const LOAD_WHOLE: u64 = 1000;

/// Shows how far some work is. Only on stderr, only on a terminal, and only once it takes long.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    unit: Unit,
    whole: u64,
    wanted: bool,
    began: Instant,
    rate: Rate,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// For work of `whole` bytes.
    #[must_use]
    pub(crate) fn bytes(what: &'static str, whole: u64) -> Self {
        Self::new(what, whole, Unit::Bytes)
    }

    /// For runs, of which [`of`](Self::of) says how many there are.
    #[must_use]
    pub(crate) fn runs(what: &'static str) -> Self {
        Self::new(what, 0, Unit::Runs)
    }

    /// For load by requests of so many bytes, whose share that is done is told with it.
    #[must_use]
    pub(crate) fn load(request_bytes: u64) -> Self {
        Self::new("load", LOAD_WHOLE, Unit::Load(request_bytes))
    }

    fn new(what: &'static str, whole: u64, unit: Unit) -> Self {
        let wanted = std::io::stderr().is_terminal();
        let began = Instant::now();
        Self { what, unit, whole, wanted, began, rate: Rate::new(began), bar: None }
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
        self.show(done, done);
    }

    /// Says which share of a load is done, and how many requests.
    pub(crate) fn at_load(&mut self, share: f64, requests: u64) {
        self.show((share * LOAD_WHOLE as f64) as u64, requests);
    }

    /// `counted` is what the rate is of.
    fn show(&mut self, done: u64, counted: u64) {
        if !self.wanted {
            return;
        }
        let now = Instant::now();
        if !self.rate.at(now, counted) || now.duration_since(self.began) < SILENT_SPAN {
            return;
        }
        let text = self.text(now, done);
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(self.whole);
            // The template is fixed; were it ever wrong, the plain style would do.
            if let Ok(style) = ProgressStyle::with_template("{prefix:>8} [{bar:40}] {msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(self.what);
            bar
        });
        bar.set_message(text);
        bar.set_position(done);
    }

    /// What stands behind the bar.
    fn text(&self, now: Instant, done: u64) -> String {
        let left = self.whole.saturating_sub(done);
        match self.unit {
            Unit::Bytes => {
                let rate = self.rate.per_second();
                let (done, whole) = (show_size(done), show_size(self.whole));
                let a_second = show_size(rate as u64);
                format!("{done} of {whole}, {a_second}/s, {}", time_left(left, rate))
            }
            // A window may hold no end of a run.
            Unit::Runs => {
                let seconds = now.duration_since(self.began).as_secs_f64();
                let left = time_left(left, done as f64 / seconds.max(f64::MIN_POSITIVE));
                format!("{done} of {} runs, {left}", self.whole)
            }
            Unit::Load(bytes) => {
                let rate = self.rate.per_second() as u64;
                let seconds = now.duration_since(self.began).as_secs_f64();
                let left = time_left(left, done as f64 / seconds.max(f64::MIN_POSITIVE));
                let a_second = show_size(rate.saturating_mul(bytes));
                format!("{} IOPS, {a_second}/s, {left}", show_count(rate))
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn rate_after(bytes_at_ms: impl IntoIterator<Item = (u64, u64)>) -> f64 {
        let began = Instant::now();
        let mut rate = Rate::new(began);
        for (ms, bytes) in bytes_at_ms {
            rate.at(began + Duration::from_millis(ms), bytes);
        }
        assert!(rate.samples.len() <= SAMPLES_MAX, "{}", rate.samples.len());
        rate.per_second()
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds_and_not_of_the_moment_the_bar_appears() {
        // 100 MiB a second all the time, told every 10 ms.
        let steady = rate_after((0..1000).map(|step| (step * 10, step * MIB)));
        assert!((steady / (100 * MIB) as f64 - 1.0).abs() < 0.01, "{steady}");
        // The same until 5 s, then 10 MiB a second for longer than the window.
        let slower = (501..1000).map(|step| (step * 10, 500 * MIB + (step - 500) * MIB / 10));
        let slower = rate_after((0..=500).map(|step| (step * 10, step * MIB)).chain(slower));
        assert!((slower / (10 * MIB) as f64 - 1.0).abs() < 0.01, "{slower}");
        // The first word comes late: what was done until then took the time until then.
        let late = rate_after([(2000, 200 * MIB)]);
        assert!((late / (100 * MIB) as f64 - 1.0).abs() < 0.01, "{late}");
        assert_eq!(rate_after([]), 0.0);
    }

    #[test]
    fn what_is_left_is_told_in_words() {
        assert_eq!(time_left(10, 3.0), "4 s left");
        assert_eq!(time_left(125, 1.0), "2 min 5 s left");
        assert_eq!(time_left(7300, 1.0), "2 h 1 min left");
        assert_eq!(time_left(1, 0.0), "no end in sight");
        assert!(time_left(u64::MAX, 1e-300).ends_with("left"));
    }

    #[test]
    fn the_text_has_what_is_done_the_rate_and_what_is_left() {
        let mut progress = Progress::bytes("put", 400 * MIB);
        let now = progress.began + Duration::from_secs(2);
        progress.rate.at(now, 200 * MIB);
        let text = progress.text(now, 200 * MIB);
        assert_eq!(text, "200 MiB of 400 MiB, 100 MiB/s, 2 s left");
        let mut progress = Progress::runs("loss");
        progress.of(8);
        let now = progress.began + Duration::from_secs(6);
        assert_eq!(progress.text(now, 2), "2 of 8 runs, 18 s left");
        let mut progress = Progress::load(4096);
        let now = progress.began + Duration::from_secs(2);
        progress.rate.at(now, 5120);
        assert_eq!(progress.text(now, 250), "2,560 IOPS, 10 MiB/s, 6 s left");
    }
}
