//! Ports, which do one packet at a time in each direction, and units that do jobs.

use super::plan::Ps;
use std::collections::VecDeque;

/// One direction of a port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lane {
    free_at: Ps,
    pub(super) busy: Ps,
}

impl Lane {
    /// Takes a packet that is there at `at` and takes `span`; returns when it has gone through.
    pub(super) fn take(&mut self, at: Ps, span: Ps) -> Ps {
        self.free_at = self.free_at.max(at) + span;
        self.busy += span;
        self.free_at
    }
}

/// What a job is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Part {
    Head,
    /// Of the packet with this number, or of the message.
    Body(usize),
    Tail,
}

/// Something for a unit to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) stream: usize,
    pub(super) part: Part,
}

/// Units that are alike, and the jobs that wait for one.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    /// `None` where there are as many as it takes.
    free: Option<u32>,
    waiting: VecDeque<Job>,
}

impl Pool {
    pub(super) fn new(units: Option<u32>) -> Self {
        Self { free: units, waiting: VecDeque::new() }
    }

    /// Gives the job back if a unit takes it at once.
    pub(super) fn offer(&mut self, job: Job) -> Option<Job> {
        match &mut self.free {
            None => Some(job),
            Some(0) => {
                self.waiting.push_back(job);
                None
            }
            Some(free) => {
                *free -= 1;
                Some(job)
            }
        }
    }

    /// A unit is done; it takes the next job, if one waits.
    pub(super) fn done(&mut self) -> Option<Job> {
        let next = self.waiting.pop_front();
        if let (None, Some(free)) = (next, &mut self.free) {
            *free += 1;
        }
        next
    }
}
