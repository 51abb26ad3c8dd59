//! Independent runs on several threads, in an order that does not depend on them.

use crate::error::StudyError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Who watches a study.
pub trait Progress: Sync {
    /// So many of all runs are done.
    fn at(&self, done: usize, all: usize);

    /// Whether to stop.
    fn stop(&self) -> bool;
}

/// Nobody watches.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Progress for Unwatched {
    fn at(&self, _: usize, _: usize) {}

    fn stop(&self) -> bool {
        false
    }
}

/// Runs what is independent on threads. Each run makes its own world from its own seed, so what
/// comes out does not depend on how many threads there are.
pub struct Runner<'a> {
    threads: usize,
    progress: &'a dyn Progress,
}

impl<'a> Runner<'a> {
    /// With so many threads, at least one.
    #[must_use]
    pub fn new(threads: usize, progress: &'a dyn Progress) -> Self {
        Self { threads: threads.max(1), progress }
    }

    /// The same with one thread: for runs that measure what the machine does in real time.
    #[must_use]
    pub fn one_at_a_time(&self) -> Self {
        Self { threads: 1, progress: self.progress }
    }

    /// How many threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Whether somebody asked to stop; long runs look now and then.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.progress.stop()
    }

    /// Runs `run` for each of `points`; the results are in the order of the points.
    ///
    /// # Errors
    /// That of the first point, in their order, of those that failed; [`StudyError::Stopped`].
    pub fn map<P: Sync, R: Send>(
        &self,
        points: &[P],
        run: impl Fn(&P) -> Result<R, StudyError> + Sync,
    ) -> Result<Vec<R>, StudyError> {
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let mut slots: Vec<Option<Result<R, StudyError>>> = Vec::new();
        slots.resize_with(points.len(), || None);
        let results = Mutex::new((0, slots));
        std::thread::scope(|scope| {
            for _ in 0..self.threads.min(points.len()) {
                scope.spawn(|| {
                    while !failed.load(Ordering::Relaxed) && !self.progress.stop() {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(point) = points.get(index) else { break };
                        let result = run(point);
                        failed.fetch_or(result.is_err(), Ordering::Relaxed);
                        let mut held = results.lock().unwrap_or_else(PoisonError::into_inner);
                        held.0 += 1;
                        held.1[index] = Some(result);
                        self.progress.at(held.0, points.len());
                    }
                });
            }
        });
        let (_, slots) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut done = Vec::with_capacity(points.len());
        let mut missing = false;
        for slot in slots {
            match slot {
                Some(result) => done.push(result?),
                None => missing = true,
            }
        }
        if missing { Err(StudyError::Stopped) } else { Ok(done) }
    }
}
