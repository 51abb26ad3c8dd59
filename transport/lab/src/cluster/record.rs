//! What is written down of single messages and of paths, where somebody wants to know.

use super::Cluster;
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_transport::{LinkId, PathId, PathSignal, PathState};
use towpath_verbs::Device;

/// A message that was answered: its sender was told that it is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Of which flow.
    pub flow: usize,
    /// When it was sent.
    pub sent_at: Time,
    /// When its sender was told.
    pub answered_at: Time,
}

impl Answer {
    /// How long it took.
    #[must_use]
    pub fn latency(&self) -> Nanos {
        self.answered_at.since(self.sent_at)
    }

    /// How many took longer than `span`.
    #[must_use]
    pub fn count_above(answers: &[Self], span: Nanos) -> u64 {
        answers.iter().filter(|answer| answer.latency() > span).count() as u64
    }

    /// How long the slowest took.
    #[must_use]
    pub fn longest(answers: &[Self]) -> Nanos {
        answers.iter().map(Self::latency).max().unwrap_or_default()
    }
}

/// A path of a link that is thought of otherwise than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMove {
    /// When.
    pub at: Time,
    /// The host that thinks so.
    pub host: usize,
    /// Which link of that host.
    pub link: LinkId,
    /// Which path of it.
    pub path: PathId,
    /// What it was.
    pub from: PathState,
    /// What it is.
    pub to: PathState,
    /// Why.
    pub signal: PathSignal,
}

impl PathMove {
    /// Whether a path that was good is doubted.
    #[must_use]
    pub fn is_doubt(&self) -> bool {
        self.to == PathState::Suspect
    }

    /// Whether a path that was in use is put into quarantine. One that is probed there, in vain,
    /// was put away before.
    #[must_use]
    pub fn is_put_away(&self) -> bool {
        self.to == PathState::Dead && self.from != PathState::Probing
    }
}

/// Everything that was written down, in the order in which it happened.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Messages and their answers.
    pub answers: Vec<Answer>,
    /// Paths that moved.
    pub moves: Vec<PathMove>,
}

impl<D: Device<Memory = Region>> Cluster<D> {
    /// Writes down every answer and every path that moves.
    #[must_use]
    pub fn with_record(mut self) -> Self {
        self.runner.shared.record = Some(Record::default());
        self
    }

    /// What was written down so far: nothing, where [`with_record`](Self::with_record) did not
    /// ask for it.
    #[must_use]
    pub fn record(&self) -> &Record {
        const NOTHING: &Record = &Record { answers: Vec::new(), moves: Vec::new() };
        self.runner.shared.record.as_ref().unwrap_or(NOTHING)
    }
}
