//! How many bytes of each class the store has from one worker.

use towpath_transport::Class;

use super::server::Job;

/// Bytes of reads and writes of a class that the store may have from one worker, beyond one
/// request: Copper's would else take the worker's buffers for answers. It is some milliseconds of a
/// disk.
const BYTES_MAX: [u64; Class::COUNT] = [u64::MAX, u64::MAX, 4 << 20];

/// Bytes of reads and writes that the store has.
#[derive(Debug, Default)]
pub(super) struct UnderWay([u64; Class::COUNT]);

impl UnderWay {
    /// Whether the store may have a request of a class with so many bytes.
    pub(super) fn has_room(&self, job: &Job) -> bool {
        let under_way = self.0[job.class.index()];
        under_way == 0 || under_way.saturating_add(job.ask.bytes()) <= BYTES_MAX[job.class.index()]
    }

    /// The store has it.
    pub(super) fn add(&mut self, job: &Job) {
        self.0[job.class.index()] += job.ask.bytes();
    }

    /// The store has it no more.
    pub(super) fn sub(&mut self, job: &Job) {
        let under_way = &mut self.0[job.class.index()];
        *under_way = under_way.saturating_sub(job.ask.bytes());
    }
}
