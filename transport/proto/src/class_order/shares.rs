//! Shares: bytes in the proportion of weights.

use super::{AtDevice, ClassScheduler};
use crate::class::Class;
use crate::schedule::FairQueue;

/// Weighted fair queueing of classes, and who is in line.
#[derive(Debug)]
pub(super) struct Shares {
    weights: [u16; Class::COUNT],
    waits: [bool; Class::COUNT],
    line: FairQueue<Class>,
}

impl Shares {
    pub(super) fn new(weights: [u16; Class::COUNT]) -> Self {
        Self { weights, waits: [false; Class::COUNT], line: FairQueue::default() }
    }
}

impl ClassScheduler for Shares {
    fn enter(&mut self, class: Class) {
        if !core::mem::replace(&mut self.waits[class.index()], true) {
            self.line.enter(class, self.weights[class.index()]);
        }
    }

    /// In the long run a device sends what it is given, in whatever order: so shares of what is
    /// handed over are shares of the wire, as long as all of it together is bounded.
    fn turn(&self, device: &AtDevice) -> Option<Class> {
        self.line.turn().filter(|_| device.of_all() < device.ahead_bytes)
    }

    fn served(&mut self, class: Class, bytes: u64, more: bool) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.line.served(bytes, more.then_some(self.weights[class.index()]));
        self.waits[class.index()] = more;
    }
}
