//! Receive queues that the links of a class share: one for each class, so that what arrives for
//! one takes no buffer from another.

use towpath_proto::Class;
use towpath_verbs::{Device, RecvWr, SrqNum, VerbError};

/// A receive queue, and what is posted there.
pub(crate) struct Shared {
    pub(crate) srq: SrqNum,
    pub(crate) posted: usize,
    pub(crate) target: usize,
    pub(crate) repost: Vec<RecvWr>,
}

impl Shared {
    /// Whether fewer receives are posted, or wait for that, than there should be.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.posted + self.repost.len() < self.target
    }
}

/// Those of all classes.
pub(crate) struct SharedQueues {
    depth: u32,
    queues: [Option<Shared>; Class::COUNT],
}

impl SharedQueues {
    /// None yet, for `depth` receives each.
    pub(crate) fn new(depth: u32) -> Self {
        Self { depth, queues: [const { None }; Class::COUNT] }
    }

    /// The queue of a class, made when its first link is.
    pub(crate) fn make<D: Device>(
        &mut self,
        device: &mut D,
        class: Class,
    ) -> Result<SrqNum, VerbError> {
        let place = &mut self.queues[class.index()];
        if let Some(queue) = place {
            return Ok(queue.srq);
        }
        let srq = device.create_srq(self.depth)?;
        *place = Some(Shared { srq, posted: 0, target: 0, repost: Vec::new() });
        Ok(srq)
    }

    /// Whether the queue of a class has room.
    pub(crate) fn has_room(&self, class: Class) -> bool {
        self.of(class).is_some_and(Shared::has_room)
    }

    /// A receive of a class is not posted any more.
    #[inline]
    pub(crate) fn uncount(&mut self, class: Class) {
        if let Some(queue) = self.of_mut(class) {
            queue.posted = queue.posted.saturating_sub(1);
        }
    }

    pub(crate) fn of(&self, class: Class) -> Option<&Shared> {
        self.queues[class.index()].as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Shared> {
        self.queues.iter().flatten()
    }

    pub(crate) fn of_mut(&mut self, class: Class) -> Option<&mut Shared> {
        self.queues[class.index()].as_mut()
    }
}
