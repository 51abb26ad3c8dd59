//! Many seeds over several threads, and how a failure is told.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What became of a seed.
#[derive(Debug)]
pub enum Verdict<R, E> {
    /// It held.
    Held(R),
    /// It failed, and says why.
    Failed(E),
    /// It panicked: the text.
    Panicked(String),
}

/// Runs one seed; a panic in it is a verdict.
pub fn judge<R, E>(seed: u64, run: &impl Fn(u64) -> Result<R, E>) -> Verdict<R, E> {
    match catch_unwind(AssertUnwindSafe(|| run(seed))) {
        Ok(Ok(report)) => Verdict::Held(report),
        Ok(Err(failure)) => Verdict::Failed(failure),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Verdict::Panicked(text.unwrap_or_else(|| "something that is no text".to_owned()))
        }
    }
}

/// Runs `seeds` on `threads` threads and hands every verdict to `take`, which says whether to go
/// on. Seeds are handed out in order; verdicts come as they are done.
pub fn sweep<R: Send, E: Send>(
    seeds: Range<u64>,
    threads: usize,
    run: impl Fn(u64) -> Result<R, E> + Sync,
    take: impl FnMut(u64, Verdict<R, E>) -> bool + Send,
) {
    let (next, stop, take) =
        (AtomicU64::new(seeds.start), AtomicBool::new(false), Mutex::new(take));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let verdict = judge(seed, &run);
                    let mut take = take.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    if !take(seed, verdict) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}
