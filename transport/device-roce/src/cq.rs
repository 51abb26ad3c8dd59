//! Completion queues and the events of the device.

use crate::limits::{CQ_MAX, CQE_AT_FIRST, CQE_MAX, EVENTS_MAX};
use std::collections::VecDeque;
use std::hint::cold_path;
use towpath_verbs::{AsyncEvent, CqNum, Verb, VerbError, Wc};

struct Cq {
    ring: VecDeque<Wc>,
    depth: usize,
    /// It overflowed: what it holds can still be polled, nothing is added any more.
    failed: bool,
}

/// All completion queues, and the events.
pub(crate) struct Cqs {
    queues: Vec<Cq>,
    events: VecDeque<AsyncEvent>,
    /// A queue failed whose queue pairs are not yet in error.
    pub(crate) newly_failed: bool,
    /// Completions and events, polled or not.
    pub(crate) made: u64,
    pub(crate) overruns: u64,
    pub(crate) events_lost: u64,
}

impl Cqs {
    pub(crate) fn new() -> Self {
        let events = VecDeque::with_capacity(EVENTS_MAX);
        Self {
            queues: Vec::new(),
            events,
            newly_failed: false,
            made: 0,
            overruns: 0,
            events_lost: 0,
        }
    }

    pub(crate) fn create(&mut self, depth: u32) -> Result<CqNum, VerbError> {
        if depth == 0 || depth > CQE_MAX {
            return Err(VerbError::BadArgument(Verb::CreateCq));
        }
        if self.queues.len() == CQ_MAX {
            return Err(VerbError::OutOfResources(Verb::CreateCq));
        }
        let depth = depth as usize;
        let ring = VecDeque::with_capacity(depth.min(CQE_AT_FIRST));
        self.queues.push(Cq { ring, depth, failed: false });
        Ok(CqNum(self.queues.len() as u32 - 1))
    }

    pub(crate) fn exists(&self, cq: CqNum) -> bool {
        (cq.0 as usize) < self.queues.len()
    }

    pub(crate) fn has_failed(&self, cq: CqNum) -> bool {
        self.queues.get(cq.0 as usize).is_none_or(|queue| queue.failed)
    }

    /// Adds a completion. A full queue fails: that is fatal to it and to its queue pairs, as on
    /// hardware, because its owner sized it too small.
    pub(crate) fn push(&mut self, cq: CqNum, wc: Wc) {
        let Some(queue) = self.queues.get_mut(cq.0 as usize) else { return };
        if queue.ring.len() < queue.depth && !queue.failed {
            queue.ring.push_back(wc);
            self.made += 1;
            return;
        }
        cold_path();
        self.overruns += 1;
        if !queue.failed {
            queue.failed = true;
            self.newly_failed = true;
            self.event(AsyncEvent::CqError(cq));
        }
    }

    #[inline(never)]
    pub(crate) fn poll(&mut self, cq: CqNum, out: &mut [Wc]) -> usize {
        let Some(queue) = self.queues.get_mut(cq.0 as usize) else { return 0 };
        let mut count = 0;
        // One by one: mostly there is one, or none.
        while let Some(to) = out.get_mut(count)
            && let Some(wc) = queue.ring.pop_front()
        {
            *to = wc;
            count += 1;
        }
        count
    }

    pub(crate) fn event(&mut self, event: AsyncEvent) {
        self.made += 1;
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        } else {
            self.events_lost += 1;
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }
}
