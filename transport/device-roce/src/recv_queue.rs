//! Receive queues: of one queue pair, or shared.

use std::collections::VecDeque;
use towpath_memory::MrTable;
use towpath_verbs::{BadWr, RecvWr, Verb, VerbError};

/// Posted receive work requests, oldest first.
pub(crate) struct RecvQueue {
    queue: VecDeque<RecvWr>,
    depth: usize,
}

impl RecvQueue {
    pub(crate) fn new(depth: u32) -> Self {
        let depth = depth as usize;
        Self { queue: VecDeque::with_capacity(depth), depth }
    }

    pub(crate) fn post(&mut self, verb: Verb, wrs: &[RecvWr], mrs: &MrTable) -> Result<(), BadWr> {
        for (index, wr) in wrs.iter().enumerate() {
            let refuse = |error| Err(BadWr { index, error });
            if self.queue.len() == self.depth {
                return refuse(VerbError::QueueFull(verb));
            }
            if !wr.sg_list.iter().all(|sge| sge.length == 0 || mrs.allows(sge, true)) {
                return refuse(VerbError::BadMemory(verb));
            }
            self.queue.push_back(*wr);
        }
        Ok(())
    }

    pub(crate) fn pop(&mut self) -> Option<RecvWr> {
        self.queue.pop_front()
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}
