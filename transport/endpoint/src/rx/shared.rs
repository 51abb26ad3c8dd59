//! Receive queues that the links of a class share: one for each class, so that what arrives for
//! one takes no buffer from another.

use crate::conn::RecvQueue;
use towpath_proto::Class;
use towpath_verbs::{Device, SrqNum, VerbError};

/// The queues of all classes, each made with its first link.
pub(super) struct SharedQueues {
    depth: u32,
    queues: [Option<(SrqNum, RecvQueue)>; Class::COUNT],
    /// Receives may wait to be posted, or be missing.
    pub(super) has_work: bool,
}

impl SharedQueues {
    /// None yet, for `depth` receives each.
    pub(super) fn new(depth: u32) -> Self {
        Self { depth, queues: [const { None }; Class::COUNT], has_work: false }
    }

    /// The queue of a class, made when its first link is.
    pub(super) fn make<D: Device>(
        &mut self,
        device: &mut D,
        class: Class,
    ) -> Result<SrqNum, VerbError> {
        let place = &mut self.queues[class.index()];
        if let Some((srq, _)) = place {
            return Ok(*srq);
        }
        let srq = device.create_srq(self.depth)?;
        *place = Some((srq, RecvQueue::default()));
        Ok(srq)
    }

    #[inline]
    pub(super) fn of(&self, class: Class) -> Option<&RecvQueue> {
        self.queues[class.index()].as_ref().map(|(_, queue)| queue)
    }

    /// For whoever changes the queue.
    #[inline]
    pub(super) fn of_mut(&mut self, class: Class) -> Option<&mut RecvQueue> {
        self.has_work = true;
        self.queues[class.index()].as_mut().map(|(_, queue)| queue)
    }

    /// All that there are, by class.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Class, &RecvQueue)> {
        let found = |class: Class| Some((class, &self.queues[class.index()].as_ref()?.1));
        Class::ALL.into_iter().filter_map(found)
    }

    /// The same, with their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut (SrqNum, RecvQueue)> {
        self.queues.iter_mut().flatten()
    }
}
