//! Helpers for tests that involve several crates: loss, interoperability, crashes, scale.
//!
//! Environment variables control the tests that run many seeds: `TOWPATH_SEED=7` replays one seed,
//! `TOWPATH_RUNS=100000` runs the seeds from 0 to 99,999, and `TOWPATH_THREADS=16` uses that many
//! threads.

#![forbid(unsafe_code)]

pub mod namespace;
#[cfg(feature = "verbs")]
pub mod processors;
pub mod sweep;
pub mod wires;

use core::fmt::Display;
use core::ops::Range;
use sweep::{Verdict, sweep};

/// Failures that a test reports before it stops.
const FAILURES_MAX: u64 = 5;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// The seeds that a test runs: the first `default` ones, unless the environment overrides them.
#[must_use]
pub fn seeds(default: u64) -> Range<u64> {
    match number("TOWPATH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TOWPATH_RUNS").unwrap_or(default),
    }
}

/// The number of threads that share the seeds.
#[must_use]
pub fn threads() -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    number("TOWPATH_THREADS").map_or_else(cores, |threads| threads as usize)
}

/// Runs all seeds and passes each report to `add`.
///
/// # Panics
/// When a run fails or panics. The message names each such seed, its failure, and the command that
/// replays it; `test` is the name of the test's file.
pub fn hold<R: Send, E: Display + Send>(
    test: &str,
    seeds: Range<u64>,
    run: impl Fn(u64) -> Result<R, E> + Sync,
    mut add: impl FnMut(R) + Send,
) {
    let mut failures = 0;
    sweep(seeds, threads(), run, |seed, verdict| {
        let told = match verdict {
            Verdict::Held(report) => {
                add(report);
                return true;
            }
            Verdict::Failed(failure) => failure.to_string(),
            Verdict::Panicked(text) => format!("panicked: {text}\n"),
        };
        eprintln!(
            "seed {seed}: {told}  replay: TOWPATH_SEED={seed} cargo test -p towpath-tests --test \
             {test}\n"
        );
        failures += 1;
        failures < FAILURES_MAX
    });
    assert_eq!(failures, 0, "runs that failed, told above");
}
