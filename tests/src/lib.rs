//! What needs more than one crate: loss, interop, crash, scale.
//!
//! Tests that run many seeds listen to the environment: `TOWPATH_SEED=7` replays one seed,
//! `TOWPATH_RUNS=100000` runs more of them (the seeds from 0 up), `TOWPATH_THREADS=16` on more
//! threads.

#![forbid(unsafe_code)]

pub mod namespace;
#[cfg(feature = "verbs")]
pub mod processors;
pub mod wires;

use core::fmt::Display;
use core::ops::Range;
use towpath_lab::sweep::{Verdict, sweep};

/// Failures that a test tells before it gives up.
const FAILURES_MAX: u64 = 5;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is to be a number, not {text:?}")))
}

/// The seeds that a test runs: `default` of them, unless the environment wants it otherwise.
#[must_use]
pub fn seeds(default: u64) -> Range<u64> {
    match number("TOWPATH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TOWPATH_RUNS").unwrap_or(default),
    }
}

/// How many threads share the seeds.
#[must_use]
pub fn threads() -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    number("TOWPATH_THREADS").map_or_else(cores, |threads| threads as usize)
}

/// Runs all seeds and hands each report to `add`.
///
/// # Panics
/// When a run fails or panics: with each such seed, what is known of it, and how to replay it in
/// the test `test` (the file's name).
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
