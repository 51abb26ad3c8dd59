//! Why a study has no report.

use core::error::Error;

/// Why a study has no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// Somebody asked to stop.
    #[error("stopped before all runs were done")]
    Stopped,
    /// Parameters that are each fine do not go together.
    #[error("--{name}: {problem}")]
    Params {
        /// One of them.
        name: &'static str,
        /// What would be taken.
        problem: &'static str,
    },
    /// A run failed: a promise was broken, or it got stuck.
    #[error("the run \"{run}\" failed (it replays with the same seed and parameters): {cause}")]
    Run {
        /// Which of the study's runs.
        run: String,
        /// Why, with what it looked like then.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
}

impl StudyError {
    /// A run that failed.
    #[must_use]
    pub fn run(run: impl Into<String>, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Run { run: run.into(), cause: cause.into() }
    }
}
