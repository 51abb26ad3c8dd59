//! Strict priority: who is more urgent goes first.

use super::{AtDevice, ClassScheduler};
use crate::class::Class;

/// With so much of more urgent classes a device is busy, and gets nothing that is less urgent: what
/// it has of both it would serve in turns. Less than that is gone before the next turn of a loop
/// (5 us at 100 Gb/s), and holding others up for it would waste the wire.
const BUSY_BYTES: u64 = 64 << 10;

/// Who is in line, by [`Class::index`].
#[derive(Debug, Default)]
pub(super) struct Strict {
    waits: [bool; Class::COUNT],
}

impl ClassScheduler for Strict {
    fn enter(&mut self, class: Class) {
        self.waits[class.index()] = true;
    }

    fn turn(&self, device: &AtDevice) -> Option<Class> {
        let first = Class::ALL.into_iter().find(|class| self.waits[class.index()])?;
        // What is less urgent takes no room from what is more.
        let has_room = device.down_to(first) < device.ahead_bytes;
        (has_room && device.above(first) < BUSY_BYTES).then_some(first)
    }

    fn served(&mut self, class: Class, _bytes: u64, more: bool) {
        self.waits[class.index()] = more;
    }
}
