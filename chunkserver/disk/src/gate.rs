//! What all disks check of an operation before they take it, and do with its outcome.

use std::io;

use crate::disk::{
    DiskError, Done, DurableWrites, Limits, Refusal, Refused, flush_lost, is_flush_lost,
};
use crate::op::{OP_BUFFERS_MAX, OP_PAGES_MAX, Op, What};

/// Lets operations in, as many as the queue has room for, and out again.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: Limits,
    flush_failed: bool,
}

impl Gate {
    pub(crate) fn new(page_count: u64, depth: usize, can_discard: bool) -> Self {
        let (in_flight, durable_writes) = (0, DurableWrites::None);
        let limits = Limits { page_count, depth, in_flight, can_discard, durable_writes };
        Self { limits, flush_failed: false }
    }

    /// The same of a disk that takes durable writes.
    pub(crate) fn with(mut self, durable_writes: DurableWrites) -> Self {
        self.limits.durable_writes = durable_writes;
        self
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.limits.in_flight
    }

    /// The operation, when it may begin.
    pub(crate) fn admit(&mut self, op: Op) -> Result<Op, Refused> {
        match self.refusal(&op) {
            Some(why) => Err(Refused { op, why }),
            None => {
                self.limits.in_flight += 1;
                Ok(op)
            }
        }
    }

    fn refusal(&self, op: &Op) -> Option<Refusal> {
        let (what, count) = (op.what(), op.page_count());
        let moves_bytes = matches!(what, What::Read | What::Write);
        if self.flush_failed && what != What::Read {
            return Some(Refusal::FlushFailed);
        }
        if what == What::Discard && !self.limits.can_discard {
            return Some(Refusal::CannotDiscard);
        }
        if op.is_durable_write() && self.limits.durable_writes == DurableWrites::None {
            return Some(Refusal::CannotWriteDurably);
        }
        if what != What::Flush && count == 0 {
            return Some(Refusal::Empty);
        }
        if moves_bytes && (count > OP_PAGES_MAX || op.buffer_count() > OP_BUFFERS_MAX) {
            return Some(Refusal::TooLong);
        }
        if op.at().0.checked_add(count).is_none_or(|end| end > self.limits.page_count) {
            return Some(Refusal::BeyondEnd);
        }
        (self.limits.in_flight >= self.limits.depth).then_some(Refusal::QueueFull)
    }

    /// What is given out for an operation that has ended.
    pub(crate) fn finish(&mut self, tag: u64, op: Op, outcome: io::Result<()>) -> Done {
        self.limits.in_flight -= 1;
        let (what, at) = (op.what(), op.at());
        let makes_last = what == What::Flush || op.is_durable_write();
        let outcome = match outcome {
            // It may have been the other one that took the error that concerns both.
            Ok(()) if makes_last && self.flush_failed => {
                Err(flush_lost(io::Error::other("a flush failed while this was under way")))
            }
            outcome => outcome,
        };
        self.flush_failed |= match &outcome {
            Ok(()) => false,
            Err(error) => what == What::Flush || is_flush_lost(error),
        };
        Done { tag, op, outcome: outcome.map_err(|source| DiskError { what, at, source }) }
    }
}
