//! Receive queues: of one queue pair, or shared.

use std::collections::VecDeque;
use towpath_memory::{Holds, MrTable};
use towpath_verbs::{BadWr, PdNum, RecvWr, Verb, VerbError};

/// A posted receive work request, and what it holds.
pub(crate) struct PostedRecv {
    pub(crate) wr_id: u64,
    pub(crate) list: Holds,
}

/// Posted receive work requests.
pub(crate) struct RecvQueue {
    /// Oldest first.
    queue: VecDeque<PostedRecv>,
    depth: usize,
    newest_first: bool,
}

impl RecvQueue {
    /// Of one queue pair: taken in the order in which they were posted.
    pub(crate) fn new(depth: u32) -> Self {
        let depth = depth as usize;
        Self { queue: VecDeque::with_capacity(depth), depth, newest_first: false }
    }

    /// Shared by queue pairs. The order in which these are taken is the device's own affair: the
    /// one posted last is, whose memory is the likeliest to be in the CPU's caches.
    pub(crate) fn shared(depth: u32) -> Self {
        Self { newest_first: true, ..Self::new(depth) }
    }

    /// Posts to the queue, or to the queue of a queue pair, of `pd`.
    pub(crate) fn post(
        &mut self,
        verb: Verb,
        pd: PdNum,
        wrs: &[RecvWr],
        mrs: &MrTable,
    ) -> Result<(), BadWr> {
        for (index, wr) in wrs.iter().enumerate() {
            let refuse = |error| Err(BadWr { index, error });
            if self.queue.len() == self.depth {
                return refuse(VerbError::QueueFull(verb));
            }
            let Some(list) = mrs.hold_list(pd, &wr.sg_list) else {
                return refuse(VerbError::BadMemory(verb));
            };
            self.queue.push_back(PostedRecv { wr_id: wr.wr_id, list });
        }
        Ok(())
    }

    #[inline(never)]
    pub(crate) fn pop(&mut self) -> Option<PostedRecv> {
        if self.newest_first { self.queue.pop_back() } else { self.queue.pop_front() }
    }

    /// Gives up all that is posted.
    pub(crate) fn clear(&mut self, mrs: &mut MrTable) {
        self.queue.drain(..).for_each(|wr| mrs.release_all(wr.list));
    }
}
