//! The runs of a study: independent points on the runner's threads, each of which must end well.

use crate::error::StudyError;
use crate::report::{Report, RunTrace};
use crate::runner::Runner;
use core::error::Error;

/// What a run ends with, beside what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunEnd {
    /// The hash of all that was on the wires of each thing that was run, by a name that is empty
    /// where there is only one.
    pub traces: Vec<(&'static str, u64)>,
    /// What must not happen, in words; empty when all is well.
    pub troubles: Vec<String>,
}

impl RunEnd {
    /// After another thing, in which nothing can go wrong that ends a study.
    #[must_use]
    pub fn after(mut self, name: &'static str, trace_hash: u64) -> Self {
        self.traces.insert(0, (name, trace_hash));
        self
    }
}

impl Report {
    /// Runs `points` and notes their traces; returns them with what was found, in their order.
    ///
    /// # Errors
    /// [`StudyError::Run`] with the first failure, or else the first trouble: what must not happen
    /// ends a study. [`StudyError::Stopped`].
    pub fn run<P: Sync, R: Send, E: Into<Box<dyn Error + Send + Sync>>>(
        &mut self,
        runner: &Runner<'_>,
        points: Vec<P>,
        label: impl Fn(&P) -> String + Sync,
        run: impl Fn(&P) -> Result<R, E> + Sync,
        end: impl Fn(&R) -> &RunEnd,
    ) -> Result<Vec<(P, R)>, StudyError> {
        let run = |point: &P| run(point).map_err(|cause| StudyError::run(label(point), cause));
        let results = runner.map(&points, run)?;
        let seen: Vec<(P, R)> = points.into_iter().zip(results).collect();
        for (point, result) in &seen {
            let RunEnd { traces, troubles } = end(result);
            if let Some(trouble) = troubles.first() {
                return Err(StudyError::run(label(point), trouble.clone()));
            }
            for &(what, trace_hash) in traces {
                let comma = if what.is_empty() { "" } else { ", " };
                let run = format!("{what}{comma}{}", label(point));
                self.runs.push(RunTrace { run, trace_hash });
            }
        }
        Ok(seen)
    }
}
